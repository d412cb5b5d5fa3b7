"""What an estimation problem takes from whole runs: friction that remembers, as columns, and torques that come late."""

import dataclasses

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float
from scipy import interpolate

from ...errors import IdentificationError
from ...model._chain import Chain
from .._friction.fit import FrictionFit
from .._friction.model import FrictionModel
from .._preprocessing.samples import Samples
from .._simulation.closed_loop import ClosedLoop

RunFriction = FrictionModel | FrictionFit


def model_of(friction: RunFriction) -> FrictionModel:
    """The friction model of a fit, or the model itself.

    Raises:
        IdentificationError: a model by itself whose terms depend on loads, which a fit knows.
    """
    if isinstance(friction, FrictionFit):
        return friction.model
    if friction.needs_load:
        raise IdentificationError(
            "a friction term depends on the load: give friction=fit_friction(...), which knows the rigid body's torques"
        )
    return friction


def friction_signals(friction: RunFriction, samples: Samples, filtered: bool = True) -> Float[np.ndarray, "N n k"]:
    """The friction's columns along samples at full rate.

    Args:
        filtered: behind the model's low-pass, as measured torques are; without it, as they act.
    """
    model = model_of(friction)
    if not filtered:
        model = dataclasses.replace(model, cutoff=None)
    load = friction.load(samples) if isinstance(friction, FrictionFit) and model.needs_load else None
    return model.signals(samples, load)


def without_friction(chain: Chain) -> Chain:
    """The chain without friction and offsets of its own, which a friction model stands for."""
    none = jnp.zeros(chain.n, chain.dtype)
    friction = dataclasses.replace(chain.friction, viscous=none, coulomb=none, stribeck=none, offset=none)
    return dataclasses.replace(chain, friction=friction)


def samples_of(
    t_0: float, rate: float, q: np.ndarray, qd: np.ndarray, qdd: np.ndarray, tau: np.ndarray | None = None
) -> Samples:
    """A motion in one piece that no filter has seen."""
    t = t_0 + np.arange(len(q)) / rate
    tau = np.zeros_like(q) if tau is None else tau
    return Samples(t, q, qd, qdd, tau, rate, ((0, len(q)),), rate / 2, rate / 2)


def reference_samples(loop: ClosedLoop) -> Samples:
    """The reference of a closed loop at all its instants."""
    return samples_of(loop.t_0, 1 / loop.dt, *(np.asarray(x, float) for x in (loop.q, loop.qd, loop.qdd)))


def align_torques(
    samples: Samples, seconds: float | Float[np.ndarray, " n"]
) -> tuple[Samples, Bool[np.ndarray, "N n"]]:
    """Samples with each joint's torque taken as many seconds later, and where its piece has one.

    tau_j(t + d_j) comes from a cubic spline through each piece's samples; at the ends, where there is none, the nearest
    stands in.

    Args:
        seconds: by how much each joint's torque comes late, as in `without_delay`; for all joints, or one each.

    Raises:
        IdentificationError: not one finite delay a joint, or one longer than a piece.
    """
    delays = np.asarray(seconds, float)
    if delays.shape not in ((), (samples.n,)) or not np.isfinite(delays).all():
        raise IdentificationError(
            f"{samples.source}: delays are one finite number, or one for each of {samples.n} joints"
        )
    delays = np.broadcast_to(delays, (samples.n,))
    tau, inside = samples.tau.copy(), np.zeros(samples.tau.shape, bool)
    for start, stop in samples.segments:
        t = samples.t[start:stop]
        if len(t) < 4 or t[-1] - t[0] <= np.abs(delays).max():
            raise IdentificationError(
                f"{samples.source}: a piece of {t[-1] - t[0]:.3g} s is not longer than the delays, {np.abs(delays).max():.3g} s"
            )
        spline = interpolate.CubicSpline(t, samples.tau[start:stop])
        wanted = t[:, None] + delays
        inside[start:stop] = (wanted >= t[0]) & (wanted <= t[-1])
        for j in range(samples.n):
            tau[start:stop, j] = spline(np.clip(wanted[:, j], t[0], t[-1]))[:, j]
    return dataclasses.replace(samples, tau=tau), inside

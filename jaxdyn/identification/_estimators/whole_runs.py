"""Friction with memory as columns of an estimation problem, computed from whole runs."""

import dataclasses

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ...errors import IdentificationError
from ...model._chain import Chain
from .._friction.fit import FrictionFit
from .._friction.model import FrictionModel
from .._preprocessing.samples import Samples
from .._simulation.closed_loop import ClosedLoop

RunFriction = FrictionModel | FrictionFit


def model_of(friction: RunFriction) -> FrictionModel:
    """The model of a `FrictionFit`; a friction model is returned unchanged.

    Raises:
        IdentificationError: `friction` is a model with load-dependent terms, for which only a `FrictionFit` provides
            the loads.
    """
    if isinstance(friction, FrictionFit):
        return friction.model
    if friction.needs_load:
        raise IdentificationError(
            "a friction term depends on the load: pass friction=fit_friction(...), which provides the rigid-body torques"
        )
    return friction


def friction_signals(friction: RunFriction, samples: Samples, filtered: bool = True) -> Float[np.ndarray, "N n k"]:
    """Columns of the friction model for samples at the log's rate.

    Args:
        filtered: True for friction filtered with the model's low-pass, like measured torques; False for the unfiltered
            friction that acts on the joints.
    """
    model = model_of(friction)
    if not filtered:
        model = dataclasses.replace(model, cutoff=None)
    load = friction.load(samples) if isinstance(friction, FrictionFit) and model.needs_load else None
    return model.signals(samples, load)


def without_friction(chain: Chain) -> Chain:
    """A copy of the chain with zero friction and offsets, which a friction model replaces."""
    none = jnp.zeros(chain.n, chain.dtype)
    friction = dataclasses.replace(chain.friction, viscous=none, coulomb=none, stribeck=none, offset=none)
    return dataclasses.replace(chain, friction=friction)


def samples_of(
    t_0: float, rate: float, q: np.ndarray, qd: np.ndarray, qdd: np.ndarray, tau: np.ndarray | None = None
) -> Samples:
    """Samples of an unfiltered motion, as a single piece."""
    t = t_0 + np.arange(len(q)) / rate
    tau = np.zeros_like(q) if tau is None else tau
    return Samples(t, q, qd, qdd, tau, rate, ((0, len(q)),), rate / 2, rate / 2)


def reference_samples(loop: ClosedLoop) -> Samples:
    """The reference of a closed loop at all its time steps."""
    return samples_of(loop.t_0, 1 / loop.dt, *(np.asarray(x, float) for x in (loop.q, loop.qd, loop.qdd)))

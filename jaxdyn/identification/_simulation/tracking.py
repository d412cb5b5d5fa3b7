"""A planned motion carried out by a simulated arm under its position controller: `jaxdyn simulate`."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from scipy import interpolate

from ...dynamics import mass_matrix_inverse
from ...errors import ModelError
from ...io._logs.log import Log
from ...io._logs.motion import Motion
from ...model._chain import Chain
from .._payload.loads import carrier, transform_matrix
from .._regression.robot import as_float64
from .closed_loop import ClosedLoop, ProportionalDerivativeLaw
from .monte_carlo import NOISE_LEVELS, NoiseLevel, closed_loop_log, drive_gains

SLOWEST_CONTROLLER = 1000.0  # [1/s]


def tracking_log(
    chain: Chain,
    motion: Motion,
    rate: float = 1000.0,
    noise: NoiseLevel = NOISE_LEVELS["standard"],
    bandwidth: float = 120.0,
    seed: int = 0,
) -> Log:
    """A log of the chain following a motion under a proportional-derivative law with the chain's own torques fed forward.

    The law is `drive_gains`, at 1 kHz or faster, and sees the noisy encoders; the reference between the motion's samples is a
    cubic spline. The robot has the chain's inertias, rotors and viscous, Coulomb and constant friction.

    Args:
        motion: what to follow; the start is at its first position and velocity.
        rate: samples of the log a second [1/s].
        noise: standard deviations of encoders and torques.
        bandwidth: of the controller [rad/s].
        seed: of the noise.

    Raises:
        ModelError: a joint that has no inertia, so that nothing can be simulated; the loop is not stable.

    Cost: four forward dynamics a step of integration; steps are as short as dry friction asks for.
    """
    every = math.ceil(SLOWEST_CONTROLLER / rate)
    period = 1 / (rate * every)
    count = int((motion.t[-1] - motion.t[0]) / period + 1e-6) + 1
    t = motion.t[0] + period * np.arange(count)
    reference = interpolate.CubicSpline(motion.t, motion.q)
    with jax.enable_x64(True):
        model = as_float64(chain)
        q, qd, qdd = (jnp.asarray(reference(t, order)) for order in range(3))
        gains = drive_gains(model, bandwidth)
        mobility = np.diag(np.asarray(mass_matrix_inverse(model, q[0])))
        if not (np.all(np.isfinite(mobility)) and np.all(np.asarray(gains.kp) > 0)):
            raise ModelError(
                "the model has links without inertia, so that its motion cannot be simulated; give them inertials"
            )
        friction = model.friction
        # the pace of velocity near zero, 1 / s: explicit integration needs steps well below its inverse
        pace = np.max(mobility * np.asarray(friction.viscous + friction.coulomb / friction.coulomb_velocity))
        loop = ClosedLoop(
            q,
            qd,
            qdd,
            ProportionalDerivativeLaw(gains.kp, gains.kd, model),
            (q[0], qd[0]),
            period,
            float(motion.t[0]),
            every,
            max(1, math.ceil(1.2 * float(pace) * period)),
        )
    return closed_loop_log(chain, loop, noise, seed, f"{motion.source}, simulated")


def with_payload(chain: Chain, mass: float, com: tuple[float, float, float], frame: str | None = None) -> Chain:
    """The chain with a point mass [kg] at a place [m] in a frame, the tip where None.

    Raises:
        IdentificationError: there is no such frame, or the tip is not one.
    """
    link, pose = carrier(chain, frame)
    c = np.asarray(com)
    about = mass * (c @ c * np.eye(3) - np.outer(c, c))
    body = np.concatenate([[mass], mass * c, about[(0, 0, 1, 0, 1, 2), (0, 1, 1, 2, 2, 2)]])
    with jax.enable_x64(True):
        added = transform_matrix(np.asarray(pose, float)) @ body
    return dataclasses.replace(chain, inertia=chain.inertia.at[link].add(jnp.asarray(added, chain.dtype)))

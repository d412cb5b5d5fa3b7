"""Simulation of an arm that executes a planned motion with a position controller, for `jaxdyn simulate`."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import interpolate

from ...dynamics import crba, mass_matrix_inverse
from ...errors import ModelError
from ...io._logs.log import Log
from ...io._logs.motion import Motion
from ...model._chain import Chain
from .._model.step import Deviation, advanced
from .._model.torque_model import TorqueModel, in_float64
from .._payload.loads import carrier, transform_matrix
from .monte_carlo import NOISE_LEVELS, NoiseLevel

SLOWEST_CONTROLLER = 1000.0  # minimum rate of the simulated controller [1/s]
SUBSTEPS = 8  # integration steps per period of the controller


def tracking_log(
    model: TorqueModel,
    motion: Motion,
    rate: float = 1000.0,
    noise: NoiseLevel = NOISE_LEVELS["standard"],
    bandwidth: float = 120.0,
    seed: int = 0,
) -> tuple[Log, Float[np.ndarray, " n"]]:
    """Simulate a log of a robot that tracks a motion with feed-forward torques from its own model.

    The controller is tau = tau_ff + M(q_d) (w^2 (q_d - q) + 2 w (qd_d - qd)), with the feed-forward torque tau_ff, the
    mass matrix M and the bandwidth w. The reference q_d is a cubic spline through the motion's samples. The controller
    receives noisy encoder positions and runs at 1 kHz or faster, with constant torque during each period. The logged
    torque of a sample is the mean of the torques before and after the sample, so the log has no delay. The simulated
    robot is the complete model, including friction with memory.

    Args:
        model: the robot.
        motion: the motion to track. The robot starts with the motion's first position and velocity, and with relaxed
            friction memory.
        rate: sample rate of the log [1/s].
        noise: standard deviations of the encoder noise and of the torque noise.
        bandwidth: bandwidth w of the controller [rad/s].
        seed: seed for the random noise.

    Returns:
        The log, and the largest deviation of each joint's logged position from the motion [rad or m].

    Raises:
        ModelError: a link has no inertia, or a joint deviates from the motion by more than a tenth of its range of
            motion.

    Cost: eight integration steps per period of the controller.
    """
    every = math.ceil(SLOWEST_CONTROLLER / rate)
    period = 1 / (rate * every)
    count = int((motion.t[-1] - motion.t[0]) / period + 1e-6) + 1
    t = motion.t[0] + period * np.arange(count)
    reference = interpolate.CubicSpline(motion.t, motion.q)
    rng = np.random.default_rng(seed)
    seen = noise.position * rng.normal(size=(count, motion.q.shape[1]))
    with jax.enable_x64(True):
        model = in_float64(model)
        q, qd, qdd = (jnp.asarray(reference(t, order)) for order in range(3))
        mobility = np.diag(np.asarray(mass_matrix_inverse(model.chain, q[0])))
        if not (np.all(np.isfinite(mobility)) and np.all(mobility > 0)):
            raise ModelError(
                "the model has links without inertia, so its motion cannot be simulated; add inertials to these links"
            )
        rows = q, qd, qdd, jnp.asarray(seen)
        found, held = (np.asarray(x) for x in _followed(model, jnp.asarray(bandwidth), rows, jnp.asarray(period)))
    tau = 0.5 * (held + np.concatenate([held[:1], held[:-1]]))
    check_tracking(found - np.asarray(q), np.asarray(q), t, bandwidth)
    found, tau, t, wanted = ((x + e)[::every] for x, e in ((found, seen), (tau, 0.0), (t, 0.0), (np.asarray(q), 0.0)))
    tau = tau + noise.torque * rng.normal(size=tau.shape)
    log = Log(t=t, q=found, qd=None, tau=tau, source=f"{motion.source}, simulated")
    return log, np.abs(found - wanted).max(axis=0)


def check_tracking(error: np.ndarray, q: np.ndarray, t: np.ndarray, bandwidth: float) -> None:
    """Raise ModelError if a joint's error exceeds a tenth of its own range or, if larger, a hundredth of the largest range."""
    spread = np.ptp(q, axis=0)
    allowed = 0.1 * np.maximum(spread, 0.1 * spread.max(initial=0.0) + 1e-2)
    bad = ~(np.abs(error) <= allowed)
    if bad.any():
        row = int(np.flatnonzero(bad.any(axis=1))[0])
        joint = int(np.flatnonzero(bad[row])[0])
        raise ModelError(
            f"the simulated robot does not follow the motion: at t = {t[row]:.4g} s, joint {joint + 1} is off by "
            f"{abs(error[row, joint]):.3g} rad or m",
            f"change the bandwidth of the controller (now {bandwidth:g} rad/s), or slow down the motion",
        )


@jax.jit
def _followed(model: TorqueModel, bandwidth: Array, rows: tuple[Array, ...], period: Array) -> tuple[Array, Array]:
    """Positions and commanded torques at the control instants."""
    q, qd, qdd, noise = rows
    dt, still = period / SUBSTEPS, jnp.zeros_like(q[0])

    def substep(state: Deviation, tau: Array) -> Deviation:
        q = state.position  # from here on, `advanced` simulates the deviation from rest at q
        here = Deviation(still, state.travelled - q, state.rate, state.memory)
        after = advanced(model, here, q, still, still, tau, dt)
        return after._replace(position=q + after.position, travelled=q + after.travelled)

    def instant(state: Deviation, row: tuple[Array, ...]) -> tuple[Deviation, tuple[Array, Array]]:
        wanted, speed, fed, error = row
        wish = bandwidth * (bandwidth * (wanted - state.position - error) + 2 * (speed - state.rate))
        tau = fed + crba(model.chain, wanted) @ wish
        after = jax.lax.fori_loop(0, SUBSTEPS, lambda _, x: substep(x, tau), state)
        return after, (state.position, tau)

    start = Deviation(q[0], q[0], qd[0], model.start(q[0]))
    return jax.lax.scan(instant, start, (q, qd, model.torques(q, qd, qdd), noise))[1]


def with_payload(chain: Chain, mass: float, com: tuple[float, float, float], frame: str | None = None) -> Chain:
    """Attach a point mass [kg] to a chain, at the position `com` [m] in a frame, by default that of the tip.

    Raises:
        IdentificationError: the frame is unknown, or no frame is given and the chain does not have exactly one tip.
    """
    link, pose = carrier(chain, frame)
    c = np.asarray(com)
    about = mass * (c @ c * np.eye(3) - np.outer(c, c))
    body = np.concatenate([[mass], mass * c, about[(0, 0, 1, 0, 1, 2), (0, 1, 1, 2, 2, 2)]])
    with jax.enable_x64(True):
        added = transform_matrix(np.asarray(pose, float)) @ body
    return dataclasses.replace(chain, inertia=chain.inertia.at[link].add(jnp.asarray(added, chain.dtype)))

"""Motion computed again from the logged torques: does the identified robot move as the real one did?"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ...dynamics import forward_dynamics, inverse_dynamics, resistive_force
from ...errors import IdentificationError
from ...model._chain import Chain
from ...simulation._damping import with_implicit_friction
from .._preprocessing.samples import Samples
from .._regression.completion import rigid_torque
from .._regression.robot import as_float64
from .._regression.rows import by_chunks

WINDOW = 0.5  # [s]
MOST_WINDOWS = 400


@dataclasses.dataclass(frozen=True, eq=False)
class Resimulation:
    """Positions of a run, simulated along its measured torques in short windows that each start from the measured state.

    Attributes:
        windows: (start, stop) of each window in the samples; the first of its samples is the measured state.
        simulated: (N, n) simulated positions [rad or m]; NaN outside the windows.
        rms: (n,) root mean square of measured minus simulated positions over all windows [rad or m].
        growth: (steps + 1, n) the same by time since the window's start, one row a sample.
        coasting_rms: (n,) as `rms`, of positions guessed without any model, by the velocity at each window's start.
        seconds: length of a window [s].
    """

    windows: tuple[tuple[int, int], ...]
    simulated: Float[np.ndarray, "N n"]
    rms: Float[np.ndarray, " n"]
    growth: Float[np.ndarray, "steps n"]
    coasting_rms: Float[np.ndarray, " n"]
    seconds: float

    def after(self, seconds: float) -> Float[np.ndarray, " n"]:
        """(n,) RMS error so many seconds after the windows' starts, at the nearest sample [rad or m]."""
        last = len(self.growth) - 1
        return self.growth[min(last, max(0, round(seconds / self.seconds * last)))]


def model_torque(chain: Chain, samples: Samples) -> Float[np.ndarray, "N n"]:
    """Torques that a model predicts for the motion of samples: inverse_dynamics + resistive_force, friction and springs
    included [N m].

    Computed in float64 in chunks of one size.
    """
    with jax.enable_x64(True):
        model, s = as_float64(chain), samples
        resistance = by_chunks(functools.partial(_resistance, model), s.q, s.qd)
        return rigid_torque(model, s.q, s.qd, s.qdd) + resistance


@jax.jit
def _resistance(chain: Chain, q, qd):
    return jax.vmap(resistive_force, (None, 0, 0))(chain, q, qd)


def resimulate(
    chain: Chain, samples: Samples, prediction: Float[np.ndarray, "N n"] | None = None, window: float = WINDOW
) -> Resimulation:
    """Positions simulated open loop along the measured torques, restarted from the measured state every `window` seconds.

    The motion is written as the measured one plus a deviation e, q = q_m + e, so that only the model's error is integrated:

        e'' = forward_dynamics(q, q', tau - resistive_force(q, q') - (prediction - model_torque)) - q_m'',    e(0) = e'(0) = 0,

    with velocities stepped once a sample, friction implicit in e' (`with_implicit_friction`), and positions by the
    trapezium rule: without friction a constant error of acceleration is integrated exactly, a varying one to first order in
    the step; a model without error stays on the log.
    Nothing holds the robot to the log. A controller would: then what remains of the positions is the torque error over
    its stiffness, which tells nothing that the torque error does not. Open loop, the error of a window of length T is about
    T^2 / 2 times the error of acceleration, and over whole runs it would grow without bound for any model.

    Args:
        chain: the identified robot.
        samples: of the run; its velocities and accelerations are the derivatives of its positions, as `preprocess` makes
            them.
        prediction: torques predicted along the measured motion, where they differ from the chain's (columns that the chain
            has no place for, a fit without the held-out part): the difference acts along the log.
        window: length of a window [s].

    Raises:
        IdentificationError: the window is not positive, or no piece of the run is that long.

    Cost: one forward dynamics a sample; of more than 400 windows, 400 spread evenly are simulated.
    """
    if not window > 0:
        raise IdentificationError(f"a window of {window:g} s cannot be simulated; give a positive length")
    steps = max(2, round(window * samples.rate))
    pieces = samples.segments or ((0, len(samples)),)
    starts = [at for start, stop in pieces for at in range(start, stop - steps, steps)]
    if not starts:
        longest = max(stop - start for start, stop in pieces) / samples.rate
        raise IdentificationError(
            f"no piece of the run is as long as a window of {window:g} s to simulate, the longest has {longest:.3g} s; "
            "log longer pieces or simulate shorter windows"
        )
    if len(starts) > MOST_WINDOWS:
        starts = [starts[k] for k in np.linspace(0, len(starts) - 1, MOST_WINDOWS).round().astype(int)]
    rows = np.asarray(starts)[:, None] + np.arange(steps + 1)  # (windows, steps + 1)
    own = model_torque(chain, samples)
    tau = samples.tau if prediction is None else samples.tau - (prediction - own)
    parts = [x[rows] for x in (samples.q, samples.qd, samples.qdd, tau)]
    with jax.enable_x64(True):
        deviation = _deviations(as_float64(chain), *map(jnp.asarray, parts), jnp.asarray(1 / samples.rate))
    deviation = np.asarray(deviation)
    simulated = np.full_like(samples.q, np.nan)
    simulated[rows] = samples.q[rows] + deviation
    simulated[np.asarray(starts)] = samples.q[np.asarray(starts)]  # where windows meet, the later one's start
    q, qd = parts[:2]
    coasting = q - (q[:, :1] + qd[:, :1] * (np.arange(steps + 1) / samples.rate)[:, None])
    with np.errstate(over="ignore", invalid="ignore"):  # a mass matrix that is not positive definite
        growth = np.sqrt((deviation**2).mean(axis=0))
        rms = np.sqrt((deviation**2).mean(axis=(0, 1)))
    return Resimulation(
        windows=tuple((at, at + steps + 1) for at in starts),
        simulated=simulated,
        rms=rms,
        growth=growth,
        coasting_rms=np.sqrt((coasting**2).mean(axis=(0, 1))),
        seconds=steps / samples.rate,
    )


@jax.jit
def _deviations(chain: Chain, q, qd, qdd, tau, dt):
    """(windows, steps + 1, n) deviations of the simulated from the measured positions."""

    def window(q, qd, qdd, tau):
        def advance(state, x):
            e, rate = state
            q, qd, qdd, tau = x
            here, speed = q + e, qd + rate
            damped = with_implicit_friction(chain, speed, speed + dt * qdd, dt)
            force = tau - resistive_force(chain, here, speed) + _added(chain, damped, here, qdd)
            later = rate + dt * (forward_dynamics(damped, here, speed, force) - qdd)
            e = e + dt * (rate + later) / 2
            return (e, later), e

        rest = jnp.zeros_like(q[0]), jnp.zeros_like(q[0])
        _, es = jax.lax.scan(advance, rest, tuple(x[:-1] for x in (q, qd, qdd, tau)))
        return jnp.concatenate([rest[0][None], es])

    return jax.vmap(window)(q, qd, qdd, tau)


def _added(chain: Chain, damped: Chain, q, qdd):
    """What the inertia that stands for friction's slopes takes along the log: friction is implicit in the deviation only."""
    if chain.coupling is None and chain.transmission is None:
        return (damped.armature - chain.armature) * qdd
    still = jnp.zeros_like(qdd)
    return inverse_dynamics(damped, q, still, qdd) - inverse_dynamics(chain, q, still, qdd)

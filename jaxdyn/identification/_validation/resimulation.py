"""Re-simulation of the motion of an identified robot under its logged torques."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ...errors import IdentificationError
from ...model._chain import Chain
from .._friction.model import chain_friction_model
from .._model.step import Deviation, advanced
from .._model.torque_model import TorqueModel, in_float64
from .._preprocessing.samples import Samples

WINDOW = 0.5  # [s]
MOST_WINDOWS = 400
TOGETHER = 32  # windows simulated in parallel


@dataclasses.dataclass(frozen=True, eq=False)
class Resimulation:
    """Positions of a run, simulated under the measured torques in short windows that start from the measured state.

    Attributes:
        windows: sample indices (start, stop) of each window, with stop excluded. At its first sample, the simulated
            state is the measured one.
        simulated: (N, n) simulated positions [rad or m]; NaN outside the windows.
        rms: (n,) RMS difference between measured and simulated positions over all windows [rad or m].
        growth: (steps + 1, n) RMS difference over all windows at each sample since the start of a window [rad or m].
        coasting_rms: (n,) RMS difference between measured positions and an extrapolation without a model, in which the
            velocity at the start of each window remains constant [rad or m].
        seconds: length of a window [s].
    """

    windows: tuple[tuple[int, int], ...]
    simulated: Float[np.ndarray, "N n"]
    rms: Float[np.ndarray, " n"]
    growth: Float[np.ndarray, "steps n"]
    coasting_rms: Float[np.ndarray, " n"]
    seconds: float

    def after(self, seconds: float) -> Float[np.ndarray, " n"]:
        """RMS difference at the sample nearest to a given time [s] after the start of a window [rad or m]."""
        last = len(self.growth) - 1
        return self.growth[min(last, max(0, round(seconds / self.seconds * last)))]


def resimulate(
    model: Chain | TorqueModel,
    samples: Samples,
    window: float = WINDOW,
    memory: Float[np.ndarray, "N n m"] | None = None,
) -> Resimulation:
    """Simulate positions in open loop under the measured torques, in windows that start from the measured state.

    The complete model is simulated, including springs, additional columns, and friction with memory or load dependence.
    The motion q = q_m + e is the measured motion q_m plus a deviation e, so that only model errors are integrated. In
    each step, e'' is the solution of

        load(q, q', q_m'' + e'') + friction(q, q', ..) = tau,    e(0) = e'(0) = 0.

    Here, load is the torque without friction, and friction is evaluated at the end of the step.
    Positions are integrated by the trapezoidal rule. Without friction, a constant acceleration error is integrated
    exactly, and a varying error to first order in the step. An exact model reproduces the log.

    No tracking controller is used. With a controller, the position error would be the torque error divided by the
    controller's stiffness, which contains no additional information. In open loop, the position error after a time T is
    about T^2 / 2 times the acceleration error. Windows must be short because, over a whole run, this error would grow
    without bound for any model.

    Args:
        model: the identified robot.
        samples: samples of the run, for example from `preprocess`. The velocities and accelerations must be derivatives
            of the positions.
        window: length of a window [s].
        memory: friction memory at each sample; by default `model.memory(samples)`, which is relaxed at the start of
            each piece of the run.

    Raises:
        IdentificationError: the window is not positive, or every piece of the run is shorter than a window.

    Cost: n + 1 inverse-dynamics evaluations per sample and, with friction, the solution of six linear systems of n
    equations. At most 400 evenly spaced windows are simulated.
    """
    if not window > 0:
        raise IdentificationError(f"the window is {window:g} s; it must be positive")
    model = model if isinstance(model, TorqueModel) else TorqueModel(model)
    steps = max(2, round(window * samples.rate))
    pieces = samples.segments or ((0, len(samples)),)
    starts = [at for start, stop in pieces for at in range(start, stop - steps, steps)]
    if not starts:
        longest = max(stop - start for start, stop in pieces) / samples.rate
        raise IdentificationError(
            f"no piece of the run is as long as a window of {window:g} s; the longest has {longest:.3g} s. "
            "Log longer pieces, or simulate shorter windows"
        )
    if len(starts) > MOST_WINDOWS:
        starts = [starts[k] for k in np.linspace(0, len(starts) - 1, MOST_WINDOWS).round().astype(int)]
    rows = np.asarray(starts)[:, None] + np.arange(steps + 1)  # (windows, steps + 1)
    held = model.memory(samples) if memory is None else memory
    parts = [x[rows] for x in (samples.q, samples.qd, samples.qdd, samples.tau)]
    with jax.enable_x64(True):
        deviation = _by_windows(_in_terms(in_float64(model)), [held[rows[:, 0]], *parts], 1 / samples.rate)
    simulated = np.full_like(samples.q, np.nan)
    simulated[rows] = samples.q[rows] + deviation
    simulated[np.asarray(starts)] = samples.q[np.asarray(starts)]  # where two windows meet, the later one counts
    q, qd = parts[:2]
    coasting = q - (q[:, :1] + qd[:, :1] * (np.arange(steps + 1) / samples.rate)[:, None])
    with np.errstate(over="ignore", invalid="ignore"):  # the mass matrix may not be positive definite
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


def _in_terms(model: TorqueModel) -> TorqueModel:
    """Convert the viscous, Coulomb and constant friction of a model's chain to friction terms.

    Models that differ only in parameter values, such as a given and an identified one, then share a compiled program.
    """
    model = dataclasses.replace(model.unfiltered, delay=None)
    found = chain_friction_model(model.chain) if model.friction is None else None
    return model if found is None else dataclasses.replace(model, friction=found[0], coefficients=found[1])


def _by_windows(
    model: TorqueModel, parts: list[Float[np.ndarray, "windows ..."]], dt: float
) -> Float[np.ndarray, "windows steps n"]:
    """Evaluate `_deviations` in batches of equal size, the last one padded, so that runs of any length share a program."""
    count, step = len(parts[0]), jnp.asarray(dt)
    padded = [x[np.minimum(np.arange(-(-count // TOGETHER) * TOGETHER), count - 1)] for x in parts]
    at = range(0, count, TOGETHER)
    return np.concatenate(
        [np.asarray(_deviations(model, *(jnp.asarray(x[k : k + TOGETHER]) for x in padded), step)) for k in at]
    )[:count]


@jax.jit
def _deviations(model: TorqueModel, memory, q, qd, qdd, tau, dt):
    """Deviations (windows, steps + 1, n) of simulated positions from measured ones."""

    def window(memory, q, qd, qdd, tau):
        rest = jnp.zeros_like(q[0])

        def body(state, x):
            q, qd, qdd, tau = x
            state = advanced(model, state, q, qd, qdd, tau, dt)
            return state, state.position

        _, es = jax.lax.scan(body, Deviation(rest, rest, rest, memory), tuple(x[1:] for x in (q, qd, qdd, tau)))
        return jnp.concatenate([rest[None], es])

    return jax.vmap(window)(memory, q, qd, qdd, tau)

"""Models beside measurements: simulated logs and positions, comparison of models, base regressors, and play in gears."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import interpolate

from .._summary import data_frame
from ..contact import Contacts, ContactState, contact_step
from ..dynamics import crba, mass_matrix_inverse
from ..errors import IdentificationError, LogError, ModelError
from ..io.logs import Log, Motion, check_log
from ..model.chain import Chain, coordinate_names
from .base import BaseParameters
from .columns import Columns
from .factors import as_float64
from .filters import bandwidth, low_pass
from .friction_model import chain_friction_model
from .payload import carrier, transform_matrix
from .prediction import Fit, by_chunks, chunk_rows, fit_quality
from .preprocessing import Filters, Samples, preprocess
from .simulated_logs import NoiseLevel
from .stretches import prepared
from .torque_model import Deviation, TorqueModel, advanced, in_float64

SLOWEST_CONTROLLER = 1000.0  # minimum rate of the simulated controller [1/s]
SUBSTEPS = 8  # integration steps per period of the controller


def tracking_log(
    model: TorqueModel,
    motion: Motion,
    rate: float = 1000.0,
    noise: NoiseLevel = NoiseLevel(),  # noqa: B008
    bandwidth: float = 120.0,
    seed: int = 0,
    contacts: Contacts | None = None,
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
        contacts: contacts, joint limits and dry friction of the robot, which the controller does not know.

    Returns:
        The log, and the largest deviation of each joint's logged position from the motion [rad or m].

    Raises:
        ModelError: a link has no inertia; without contacts, a joint deviates from the motion by more than a tenth of its range
            of motion; or the model has contacts as well as friction with memory, coupled joints or a transmission.

    Cost: eight integration steps per period of the controller.
    """
    if contacts is not None and model.friction is not None:
        raise ModelError(
            "contacts are simulated only with the friction of a chain", "pass a model without further terms"
        )
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
        found, held = (
            np.asarray(x) for x in _followed(model, jnp.asarray(bandwidth), rows, jnp.asarray(period), contacts)
        )
    tau = 0.5 * (held + np.concatenate([held[:1], held[:-1]]))
    check_tracking(found - np.asarray(q), np.asarray(q), t, bandwidth, 0.1 if contacts is None else np.inf)
    found, tau, t, wanted = ((x + e)[::every] for x, e in ((found, seen), (tau, 0.0), (t, 0.0), (np.asarray(q), 0.0)))
    tau = tau + noise.torque * rng.normal(size=tau.shape)
    log = Log(t=t, q=found, qd=None, tau=tau, source=f"{motion.source}, simulated")
    return log, np.abs(found - wanted).max(axis=0)


def check_tracking(error: np.ndarray, q: np.ndarray, t: np.ndarray, bandwidth: float, share: float = 0.1) -> None:
    """Raise ModelError if a joint's error exceeds a share of its range or, if larger, of a tenth of the largest range."""
    spread = np.ptp(q, axis=0)
    allowed = share * np.maximum(spread, 0.1 * spread.max(initial=0.0) + 1e-2)
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
def _followed(
    model: TorqueModel, bandwidth: Array, rows: tuple[Array, ...], period: Array, contacts: Contacts | None
) -> tuple[Array, Array]:
    """Positions and commanded torques at the control instants."""
    q, qd, qdd, noise = rows
    dt, still = period / SUBSTEPS, jnp.zeros_like(q[0])

    def substep(state: Any, tau: Array) -> Any:
        if contacts is not None:
            return contact_step(model.chain, contacts, state, tau, dt)
        q = state.position  # from here on, `advanced` simulates the deviation from rest at q
        here = Deviation(still, state.travelled - q, state.rate, state.memory)
        after = advanced(model, here, q, still, still, tau, dt)
        return after._replace(position=q + after.position, travelled=q + after.travelled)

    def instant(state: Any, row: tuple[Array, ...]) -> tuple[Any, tuple[Array, Array]]:
        wanted, speed, fed, error = row
        position, rate = (state.position, state.rate) if contacts is None else (state.q, state.qd)
        wish = bandwidth * (bandwidth * (wanted - position - error) + 2 * (speed - rate))
        tau = fed + crba(model.chain, wanted) @ wish
        return jax.lax.fori_loop(0, SUBSTEPS, lambda _, x: substep(x, tau), state), (position, tau)

    start = Deviation(q[0], q[0], qd[0], model.start(q[0])) if contacts is None else ContactState(q[0], qd[0], still)
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


# -- resimulation

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

    The loop is open, because with a controller, the position error would only be the torque error divided by its stiffness.
    After a time T, the error is about T^2 / 2 times that of the acceleration, so windows must be short.

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


# -- comparison


@dataclasses.dataclass(frozen=True, eq=False)
class ComparedRun:
    """A log, and the torques that both models predict for its motion.

    Attributes:
        source: origin of the log.
        samples: the filtered samples.
        predictions: torques that each model predicts, (N, n) [N m or N].
        fits: errors of each model's torques.
        simulations: positions simulated with each model (`resimulate`); None if the run is shorter than a simulation
            window.
        notes: remarks from reading and preprocessing.
    """

    source: str
    samples: Samples
    predictions: tuple[Float[np.ndarray, "N n"], Float[np.ndarray, "N n"]]
    fits: tuple[Fit, Fit]
    simulations: tuple[Resimulation, Resimulation] | None
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class ModelComparison:
    """Comparison of two models on the same logs.

    Attributes:
        names: names of the two models.
        models: the two models.
        runs: comparison on each log separately.
        fits: errors of each model over all logs together.
    """

    names: tuple[str, str]
    models: tuple[TorqueModel, TorqueModel]
    runs: tuple[ComparedRun, ...]
    fits: tuple[Fit, Fit]

    @property
    def chains(self) -> tuple[Chain, Chain]:
        """The models' chains."""
        return self.models[0].chain, self.models[1].chain

    @property
    def ratio(self) -> Float[np.ndarray, " n"]:
        """RMS error of the second model divided by that of the first, for each joint; above 1, the first model is better."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.fits[1].rms / self.fits[0].rms

    def to_pandas(self) -> Any:
        """Errors over all logs, as a `pandas.DataFrame` with one row per joint and columns (model, figure).

        The figures are `rms`, `relative` and `relative_moving`, as in `Fit`.

        Raises:
            ImportError: pandas is not installed.
        """
        figures = ("rms", "relative", "relative_moving")
        pairs = zip(self.names, self.fits, strict=True)
        columns = {(name, figure): getattr(fit, figure) for name, fit in pairs for figure in figures}
        return data_frame(columns, coordinate_names(self.chains[0]), "joint")


def compare_models(
    a: Chain | TorqueModel,
    b: Chain | TorqueModel,
    logs: Log | Sequence[Log],
    names: tuple[str, str] = ("a", "b"),
    filters: Filters | None = None,
) -> ModelComparison:
    """Compare the torques that two complete models predict for logged motion with the measured torques.

    No parameter is fitted. A chain predicts inverse_dynamics(q, qd, qdd) + resistive_force(q, qd), and a `TorqueModel`
    predicts the torques of `TorqueModel.predict`. The motion is also simulated with both models (`resimulate`). Joints
    are matched by their order.

    Both models are evaluated on the same filtered samples (`preprocess`), so the errors equal those that `identify`
    reports for the same run and filters. The friction of uncoupled joints is low-pass filtered like the measured
    torques, as `identify` does unless the plain model is fitted. If `filters` does not specify delays, the logged
    torques are corrected for the delays of the first model that has any.

    Args:
        a: the first model.
        b: the second model, of the same robot.
        logs: the runs. Filter settings that are not specified are chosen from the first run.
        names: names of the two models, for display.
        filters: as for `preprocess`.

    Raises:
        IdentificationError: no log is given, the models and logs have different numbers of joints, or a model has
            spherical joints or a floating base.
        LogError: a log looks as if it were in degrees (`check_log`), or is too short to be filtered.
    """
    logs = [logs] if isinstance(logs, Log) else list(logs)
    if not logs:
        raise IdentificationError("no log was given to compare the models on; pass at least one")
    first, second = (m if isinstance(m, TorqueModel) else TorqueModel(m) for m in (a, b))
    models, filters = (first, second), filters or Filters()
    for name, model in zip(names, models, strict=True):
        _check(name, model.chain, logs)
    logs = [check_log(log, first.chain, allow_still=True) for log in logs]
    if filters.delay is None:
        filters = filters.but(delay=next((np.asarray(m.delay, float) for m in models if m.delay is not None), None))
    runs, ready = [], prepared(logs, filters, True)
    judged = [m.filtered(ready[0].samples.torque_cutoff) for m in models]
    for log, run in zip(logs, ready, strict=True):
        s = run.decimated
        one, other = (m.predict(run.samples, run.kept, filtered=True) for m in judged)
        fits = fit_quality(s.tau, one, s.qd), fit_quality(s.tau, other, s.qd)
        try:
            moved, other_moved = (resimulate(m, s, memory=m.memory(run.samples)[run.kept]) for m in models)
            simulations = moved, other_moved
        except IdentificationError:  # shorter than a window
            simulations = None
        notes = tuple(dict.fromkeys((*log.notes, *s.notes)))
        runs.append(ComparedRun(log.source, s, (one, other), fits, simulations, notes))
    tau, qd = (np.concatenate([getattr(r.samples, name) for r in runs]) for name in ("tau", "qd"))
    pooled = [fit_quality(tau, np.concatenate([r.predictions[k] for r in runs]), qd) for k in (0, 1)]
    return ModelComparison(names, models, tuple(runs), (pooled[0], pooled[1]))


def _check(name: str, chain: Chain, logs: Sequence[Log]) -> None:
    """Raise an error if a model cannot be evaluated on the logs."""
    if chain.topology.has_curved_joints:
        raise IdentificationError(
            f"{name}: the model has spherical joints or a floating base, whose motion a joint log does not contain"
        )
    for log in logs:
        if log.n != chain.nv:
            raise IdentificationError(
                f"{log.source}: the log has {log.n} joints, but {name} has {chain.nv}: {', '.join(coordinate_names(chain))}; "
                "lock joints that were not logged (lock=)"
            )


# -- uncertainty of torques


def covariance_root(covariance: Float[np.ndarray, "b b"]) -> Float[np.ndarray, "b b"]:
    """Cholesky factor of a covariance matrix that may be singular due to rounding errors."""
    return np.linalg.cholesky(covariance + 1e-15 * np.diag(np.diag(covariance)))


def base_regressor(
    chain: Chain,
    columns: Columns,
    base: BaseParameters,
    q: Float[np.ndarray, "N nq"],
    qd: Float[np.ndarray, "N nv"],
    qdd: Float[np.ndarray, "N nv"],
) -> Float[np.ndarray, "N nv b"]:
    """Compute the base regressors W in tau = W @ base parameters, for up to a few thousand samples.

    The regressors of all samples are stored in memory. The base parameters of a friction model, which are the last ones, have
    no columns of the state and are left out.
    """
    leading = base.kept[base.kept < len(columns.of_state.names(chain.n))]
    with jax.enable_x64(True):
        model = as_float64(chain)
        return by_chunks(lambda *x: chunk_rows(columns, model, *x)[:, :, leading], q, qd, qdd)


# -- play

ABOVE = 1.5  # positions are examined above this multiple of the motion's bandwidth, where a smooth motion has no power
SHARE = 0.2  # a jump with the torque's sign must explain this share of the positions' power there, and
SIGNIFICANT = 5.0  # be as many standard deviations from zero as this
BLOCK = 1.0  # [s] within which the errors of positions may be correlated
SHORTEST = 2.0  # shortest piece of a log that is examined [s]
MANY = 10**6  # more blocks than a piece has
DETAIL = 0.4  # cutoff of positions, as a share of the sample rate


def play(chain: Chain, logs: Sequence[Log], filters: Filters, cutoff: float) -> Float[np.ndarray, " n"]:
    """Play of each joint [rad or m], zero where none is found.

    If the gear between a position sensor and a link has play p, the position sensor leads the link by p / 2 in the
    direction of the transmitted torque: q = q_link + p / 2 sign(tau). The link moves smoothly, so above the bandwidth of
    the motion, p follows by least squares from q, beside two effects that look similar: elasticity and inertia, which are
    proportional to the torque, and sticking at reversals, which follows the velocity's sign. The transmitted torque is
    the logged torque or, if this explains more, the logged torque without friction. Since its sign is uncertain while it is
    small, the play found is up to a third too small.

    Args:
        chain: the identified robot.
        logs: the fitted logs, with motor and link positions that are equal apart from elasticity and play.
        filters: the filters of the fit, of which the delay of torques is used.
        cutoff: low-pass cutoff of the torques [Hz].
    """
    found = np.zeros(chain.nv)
    if chain.coupling is not None or chain.topology.has_curved_joints:
        return found
    pieces = [piece for log in logs for piece in _pieces(log, filters, cutoff)]
    for j in range(chain.nv):
        friction = float(chain.friction.viscous[j]), float(chain.friction.coulomb[j])
        share, size = max(_jump(pieces, j, *law) for law in ((0.0, 0.0), friction))
        found[j] = size if share > SHARE else 0.0
    return found


def _pieces(log: Log, filters: Filters, cutoff: float) -> list[tuple[Samples, float]]:
    """Gap-free pieces of a log that are long enough, in the detail of the log, and the frequency above which to look [Hz]."""
    seconds = float(log.t[-1] - log.t[0])
    if not seconds > 2 * SHORTEST:
        return []
    most = DETAIL * (len(log.t) - 1) / seconds
    try:
        s = preprocess(
            log,
            Filters(most, min(cutoff, most), stride=1, margin=1.0, gap=filters.gap, delay=filters.delay),
        )
    except LogError:  # uneven, or in too short pieces
        return []
    edge = ABOVE * bandwidth(s.q, s.rate)
    long = [(a, b) for a, b in s.segments if b - a > SHORTEST * s.rate]
    return [(s.rows(slice(a, b), [(0, b - a)]), edge) for a, b in long if 0 < edge < DETAIL * s.rate]


def _jump(pieces: Sequence[tuple[Samples, float]], j: int, viscous: float, coulomb: float) -> tuple[float, float]:
    """Size of a joint's jumps with the sign of the transmitted torque, after the share of the positions' high-frequency power
    that they explain beside the torque and the velocity's sign; zeros if the size is not significant."""
    parts = []
    for k, (s, edge) in enumerate(pieces):
        q, tau = s.q[:, j], s.tau[:, j]
        if not np.isnan(tau).any():
            qd = np.gradient(low_pass(q, s.rate, edge), 1 / s.rate)
            way = np.sign(qd)
            columns = np.stack([q, 0.5 * np.sign(tau - viscous * qd - coulomb * way), tau, way], axis=1)
            blocks = MANY * k + np.arange(len(q)) // round(BLOCK * s.rate)
            parts.append((columns - low_pass(columns, s.rate, edge), blocks))
    if not parts:
        return 0.0, 0.0
    x, blocks = (np.concatenate(part) for part in zip(*parts, strict=True))
    beside = np.linalg.qr(x[:, 2:] / np.maximum(np.linalg.norm(x[:, 2:], axis=0), 1e-300))[0]
    y, step = (x[:, :2] - beside @ (beside.T @ x[:, :2])).T
    power = float(step @ step)
    if power <= 1e-12 * len(y):
        return 0.0, 0.0
    size = float(step @ y) / power
    rest = y - size * step
    _, of = np.unique(blocks, return_inverse=True)
    deviation = np.sqrt((np.bincount(of, step * rest) ** 2).sum()) / power  # errors are correlated within blocks
    share = 1 - float(rest @ rest) / max(float(y @ y), 1e-300)
    return (share, size) if size > SIGNIFICANT * deviation else (0.0, 0.0)

"""Results of estimators.

Friction with memory as columns of an estimation problem, computed from whole runs.

Estimation problem: the robot, the identified columns and the runs, in one object for all estimators.

Least squares on accumulated factors, ordinary or weighted by each joint's noise.

Split-half test: agreement between estimates from the two halves of the data."""

import dataclasses
import functools
import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy import interpolate

from ..errors import IdentificationError
from ..model.chain import Chain
from .accumulate import accumulate_samples
from .base import (
    BaseParameters,
    UndeterminedError,
    given_samples_torque,
    prior_parameters,
    stacked,
)
from .columns import Columns, all_columns, with_friction_at_joints
from .factors import (
    BLOCKS,
    BlockFactors,
    QRFactors,
    as_float64,
    block_degrees,
    dense_blocks,
    least_squares_covariance,
    weighted_blocks,
)
from .filters import low_pass
from .friction_fit import FrictionFit, base_with_friction, with_signals
from .friction_model import FrictionModel
from .prediction import by_chunks, chunk_rows, dry_rows, predict_samples
from .preprocessing import Samples, repeated_motion
from .simulated_logs import ClosedLoop


@dataclasses.dataclass(frozen=True, eq=False)
class Estimate:
    """Base parameters estimated from data.

    Attributes:
        values: (b,) estimated base parameters, in SI units.
        covariance: (b, b) covariance of the values, from a jackknife over eight blocks of the data or, if a motion is
            repeated, over eight stretches of the motion. It accounts for residuals that are correlated, for example due
            to filters or unmodelled friction. If the data were accumulated without blocks, independent residuals are assumed.
        noise: (n,) standard deviation of each joint's residual torque [N m or N].
        condition: condition number of the (weighted) base regressor.
        scaled_condition: condition number with columns scaled to unit norm; it does not depend on units.
        joint_residuals: (n,) RMS residual of each joint on the fitted data [N m or N].
        method: name of the estimator.
        run_noise: (runs, n) standard deviations of the residual torques of each run [N m or N]; None if all runs have
            the same weights.
        iterations: number of updates of the values.
        simulations: number of simulations of the robot; a simulation and its sensitivities together count as one.
        history: one number per iteration: the largest relative step, unless the estimator documents another quantity.
        converged: True if the last step was below the tolerance.
        degrees: degrees of freedom of the covariance, for confidence intervals. They follow from the number of blocks
            or, without blocks, from the number of independent rows. Infinite if unknown.
        notes: remarks from the estimator.
        independent: (b, b) covariance s^2 (W^T W)^-1 for residuals that are correlated only by the filter, where s is
            the standard deviation of the (weighted) rows. None if `covariance` already has this value.
    """

    values: np.ndarray
    covariance: np.ndarray
    noise: np.ndarray
    condition: float
    scaled_condition: float
    joint_residuals: np.ndarray
    method: str = "least squares"
    run_noise: np.ndarray | None = None
    iterations: int = 1
    simulations: int = 0
    history: tuple[float, ...] = ()
    converged: bool = True
    degrees: float = np.inf
    notes: tuple[str, ...] = ()
    independent: np.ndarray | None = None

    def with_covariance(self, covariance: Float[np.ndarray, "b b"], blocks: int) -> "Estimate":
        """A copy with a jackknife covariance; `independent` keeps the covariance for independent residuals."""
        degrees = min(self.degrees, block_degrees(blocks))
        return dataclasses.replace(
            self, covariance=covariance, independent=self.independent_covariance, degrees=degrees
        )

    @property
    def independent_covariance(self) -> Float[np.ndarray, "b b"]:
        """Covariance (b, b) of the values for residuals that are correlated only by the filter."""
        return self.covariance if self.independent is None else self.independent

    @property
    def standard_deviations(self) -> np.ndarray:
        """Standard deviations of the values (b,)."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def relative_standard_deviations(self) -> np.ndarray:
        """Standard deviations of the values as percentages of their magnitudes (b,)."""
        with np.errstate(divide="ignore"):
            return 100 * self.standard_deviations / np.abs(self.values)

    def interval_factor(self, level: float = 0.95) -> float:
        """Half-width of the confidence interval at `level`, in standard deviations, from Student's t distribution."""
        from scipy import stats  # slow to import

        return float(stats.t.ppf(0.5 + level / 2, self.degrees))

    def confidence_intervals(self, level: float = 0.95) -> Float[np.ndarray, "b 2"]:
        """Confidence interval (lower, upper) of each value at `level`, from Student's t distribution."""
        half = self.interval_factor(level) * self.standard_deviations
        return np.stack([self.values - half, self.values + half], axis=1)


# -- whole runs

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


# -- problem


@dataclasses.dataclass(frozen=True, eq=False)
class EstimationProblem:
    """Input of all estimators, created by `estimation_problem`.

    Attributes:
        chain: the model, in float64; its parameters are the initial values of the estimators that simulate the robot.
        columns: the identified columns.
        base: the base parameters.
        samples: the runs.
        weights: (N, n) factors that multiply the rows of each run; zero excludes the row of that sample and joint.
        independence: effective fraction of independent samples.
        loops: the closed loop of each run, for the estimators that simulate the robot; empty if unknown. The other
            estimators use only the `lead` of each loop, by which they delay the logged torques.
        start: (b,) initial base parameters of the estimators that simulate the robot; None means those of the chain.
        parallel_cutoff: cutoff of an additional low-pass filter, which is applied to the torques and to every column of
            the regressor [Hz]; None means no filter beyond those of `preprocess`.
        filtered: (N, n, b + 1) rows [W, tau] of each run, filtered with `parallel_cutoff`; empty if it is None.
        friction: friction model whose k columns are computed from whole runs and are the last columns of W; None means
            no friction model.
        signals: (N, n, k) columns of the friction model along the measured motion of each run; empty without a friction
            model.
    """

    chain: Chain
    columns: Columns
    base: BaseParameters
    samples: tuple[Samples, ...]
    weights: tuple[np.ndarray, ...]
    independence: float = 1.0
    loops: tuple[ClosedLoop, ...] = ()
    start: np.ndarray | None = None
    parallel_cutoff: float | None = None
    filtered: tuple[np.ndarray, ...] = ()
    friction: RunFriction | None = None
    signals: tuple[np.ndarray, ...] = ()

    @functools.cached_property
    def prior(self) -> np.ndarray:
        """The chain's parameters in column order (p,), followed by zeros for the parameters of the friction model."""
        extra = 0 if self.friction is None else len(model_of(self.friction).names(self.chain.n))
        return np.concatenate([prior_parameters(self.chain, self.columns), np.zeros(extra)])

    @functools.cached_property
    def torques(self) -> tuple[np.ndarray, ...]:
        """Torques synchronised with the motion, minus the torques of the drive terms that are not identified.

        One array (N, n) per run [N m or N]. Logged torques are delayed by the `lead` of the loop, unless `preprocess`
        has already removed their delay, which includes this lead (`Filters.delay`).
        """
        return self._torques(ahead=False)

    @functools.cached_property
    def commanded_torques(self) -> tuple[np.ndarray, ...]:
        """`torques` at the times at which the controller commands them, which are earlier by the `lead` of the loop."""
        return self._torques(ahead=True)

    def _torques(self, ahead: bool) -> tuple[np.ndarray, ...]:
        if self.filtered:
            torques = [rows[:, :, -1] for rows in self.filtered]
        else:
            torques = [s.tau - given_samples_torque(self.chain, self.columns, s) for s in self.samples]
        out = []
        for k, (s, tau) in enumerate(zip(self.samples, torques, strict=True)):
            lead, as_commanded = self.loops[k].lead if self.loops else 0.0, s.delay is None
            out.append(tau if not lead or as_commanded == ahead else _delayed(s, tau, -lead if ahead else lead))
        return tuple(out)

    @functools.cached_property
    def blocks(self) -> BlockFactors:
        """Triangular factors of contiguous blocks of the runs, or of stretches of the motion that they repeat."""
        return self.accumulated(self.weights)

    @functools.cached_property
    def groups(self) -> list[np.ndarray] | None:
        """For each run, the stretch of the motion that each sample shows; None if the runs do not repeat any motion."""
        motion = repeated_motion(self.samples)
        return motion and [motion.groups(k, s.t, BLOCKS) for k, s in enumerate(self.samples)]

    def accumulated(self, weights: Sequence[np.ndarray]) -> BlockFactors:
        """Triangular factors of blocks of the runs, with the given weights of the rows."""
        if self.filtered:
            pairs = zip(self.measured_rows(), self.torques, strict=True)
            blocks = dense_blocks(
                [np.concatenate([w, tau[:, :, None]], axis=2) for w, tau in pairs], weights, self.groups
            )
            r = np.zeros((*blocks.counts.shape, len(self.prior) + 1, len(self.prior) + 1))
            at = [*self.base.kept, len(self.prior)]
            r[:, :, : len(at), at] = blocks.r
            return dataclasses.replace(blocks, r=r)
        with jax.enable_x64(True):
            runs = zip(self.samples, self.torques, weights, self._signals, strict=True)
            return accumulate_samples(self.columns, self.chain, list(runs), groups=self.groups)

    @property
    def _signals(self) -> Sequence[np.ndarray | None]:
        return self.signals or [None] * len(self.samples)

    @functools.cached_property
    def factors(self) -> QRFactors:
        """One factor per run and joint, (runs n, p + 1, p + 1), so that runs and joints can be weighted separately."""
        return self.blocks.by_run

    @functools.cached_property
    def pooled(self) -> QRFactors:
        """One factor per joint, over all runs."""
        return self.blocks.total

    def full(self, values: np.ndarray) -> np.ndarray:
        """Full parameters (p,) closest to those of the chain among all that have the given base parameters."""
        return self.prior + self.completion @ (values - self.base.matrix @ self.prior)

    @functools.cached_property
    def completion(self) -> np.ndarray:
        """Pseudo-inverse B^T (B B^T)^-1 (p, b) of the matrix B that maps full to base parameters."""
        return np.linalg.pinv(self.base.matrix)

    @functools.cached_property
    def initial(self) -> np.ndarray:
        """Initial base parameters (b,) of the estimators that simulate the robot.

        Raises:
            IdentificationError: `start` is None, and the chain cannot be simulated because it has massless links.
        """
        if self.start is not None:
            return np.asarray(self.start, float)
        empty = np.all(np.asarray(self.chain.inertia) == 0, axis=1)
        if empty.any():
            raise IdentificationError(
                f"link {self.chain.link_names[int(np.argmax(empty))]!r} has no inertia, so the model cannot be simulated; "
                "specify start=estimate_wls(problem).values, or use a model with inertials"
            )
        return self.base.matrix @ self.prior

    def predictions(self, values: np.ndarray) -> tuple[np.ndarray, ...]:
        """Torques of the identified terms, W base, for each run (N, n) [N m or N]."""
        if self.filtered:
            return tuple(rows[:, :, :-1] @ values for rows in self.filtered)
        spread = np.zeros(len(self.prior))
        spread[self.base.kept] = values
        with jax.enable_x64(True):
            pairs = zip(self.samples, self._signals, strict=True)
            return tuple(predict_samples(self.columns, self.chain, spread, s, f) for s, f in pairs)

    def measured_rows(self) -> list[np.ndarray]:
        """Base regressor of the measured motion of each run (N, n, b)."""
        if self.filtered:
            return [rows[:, :, :-1] for rows in self.filtered]
        out = [self.rows(s.q, s.qd, s.qdd, f) for s, f in zip(self.samples, self._signals, strict=True)]
        _, dry, _, at = self.columns.apart_from_dry(self.chain.n)
        for rows, s in zip(out, self.samples, strict=True):  # dry friction is filtered like the torques
            own, kept = np.flatnonzero(np.isin(self.base.kept, at)), self.base.kept[np.isin(self.base.kept, at)]
            rows[:, :, own] = dry_rows(dry, self.chain, s)[:, :, np.searchsorted(at, kept)]
        return out

    @functools.cached_property
    def acting_friction(self) -> tuple[np.ndarray | None, ...]:
        """Unfiltered columns of the friction model along the reference of each loop (steps, n, k), for the simulation."""
        if self.friction is None:
            return (None,) * len(self.loops)
        return tuple(friction_signals(self.friction, reference_samples(loop), filtered=False) for loop in self.loops)

    def rows(
        self, q: np.ndarray, qd: np.ndarray, qdd: np.ndarray, signals: np.ndarray | None = None
    ) -> Float[np.ndarray, "N n b"]:
        """Base regressor of all samples (8 N n b bytes); without `signals`, the columns of the friction model are zero."""
        k = len(self.prior) - len(self.columns.names(self.chain.n))
        with jax.enable_x64(True):
            kept = self.base.kept[: self.base.size - k]
            rigid = by_chunks(lambda *x: chunk_rows(self.columns, self.chain, *x)[:, :, kept], q, qd, qdd)
        if not k:
            return rigid
        return np.concatenate([rigid, np.zeros((*q.shape, k)) if signals is None else signals], axis=2)


def estimation_problem(
    chain: Chain,
    samples: Samples | Sequence[Samples],
    columns: Columns | None = None,
    *,
    base: BaseParameters | None = None,
    weights: Sequence[Float[np.ndarray, "_ n"]] | None = None,
    loops: ClosedLoop | Sequence[ClosedLoop] = (),
    start: Float[np.ndarray, " b"] | None = None,
    parallel_cutoff: float | None = None,
    friction: RunFriction | None = None,
) -> EstimationProblem:
    """Create an estimation problem, the input of all estimators.

    By default, the effective fraction of independent samples is min(1, 2 * 0.9 * torque cutoff / rate)
    (`Samples.independence`). To use another fraction, call `dataclasses.replace(problem, independence=...)`.

    With a friction model, the estimators that simulate the robot apply the friction that the model predicts along the
    loop's reference. To compare torques with measurements, they compute the friction columns along the simulated
    motion.

    Args:
        chain: the robot; its parameters are the initial values of the estimators that simulate the robot.
        samples: the runs.
        columns: columns to identify. By default, they include all drive terms or, if `friction` is given, only the
            rotor inertias among these terms.
        base: the base parameters of the columns; by default they are computed.
        weights: (N, n) factors that multiply the rows of each run, by default 1; zero excludes the row of that sample
            and joint.
        loops: the closed loop of each run, required by `estimate_iv`, `estimate_didim` and `estimate_cloe`.
        start: initial base parameters of the estimators that simulate the robot; by default those of the chain.
        parallel_cutoff: cutoff of a low-pass filter that is applied to the torques and to every column of the regressor
            before decimation [Hz]. Steps of dry friction and products of fast motions are then filtered identically on
            both sides of tau = W base. Use this filter for runs that were preprocessed with stride 1 and a much higher
            cutoff. It needs 8 N n b bytes of memory.
        friction: a friction model, with or without memory, or a `FrictionFit` if terms depend on the load. Its linear
            parameters replace the drive terms viscous, coulomb and offset, and are estimated together with the other
            parameters. Runs must have the log's rate (stride 1). Samples for which the state of the friction memory is
            still unknown are excluded. The k columns of the model need 8 N n k bytes of memory.

    Raises:
        IdentificationError: there are no runs; the number of joints, loops or weights is wrong; `parallel_cutoff` is
            not between 0 and half the sample rate, or a run is too short for this filter; or a friction model depends
            on loads but is not a `FrictionFit`.
    """
    runs = (samples,) if isinstance(samples, Samples) else tuple(samples)
    closed = (loops,) if isinstance(loops, ClosedLoop) else tuple(loops)
    if columns is None:
        columns = all_columns(chain)
        if friction is not None:
            chain, columns = with_friction_at_joints(chain, columns)
            columns = dataclasses.replace(columns, drive_terms=("armature",))
    if not runs:
        raise IdentificationError("there are no samples to estimate from; pass at least one run")
    for k, s in enumerate(runs):
        if s.n != chain.nv:
            raise IdentificationError(f"run {k + 1} has {s.n} joints, but the model has {chain.nv}")
    for name, given in (("loops", closed), ("weights", weights)):
        if given is not None and len(given) not in ((0, len(runs)) if name == "loops" else (len(runs),)):
            raise IdentificationError(f"there are {len(given)} {name} for {len(runs)} runs; specify one per run")
    masks = [np.ones(s.qd.shape) if weights is None else np.asarray(weights[k], float) for k, s in enumerate(runs)]
    with jax.enable_x64(True):
        model = as_float64(chain)
        base = base or base_with_friction(chain, columns, None if friction is None else model_of(friction))
        model = model if friction is None else without_friction(model)
    signals: tuple[np.ndarray, ...] = ()
    if friction is not None:
        base = with_signals(base, model_of(friction).names(chain.n))
        signals = tuple(friction_signals(friction, s) for s in runs)
        masks = [m * model_of(friction).known(s) for m, s in zip(masks, runs, strict=True)]
    filtered = []
    if parallel_cutoff is not None:
        whole = EstimationProblem(model, columns, base, runs, tuple(masks), friction=friction, signals=signals)
        parts = [_parallel(whole, k, parallel_cutoff) for k in range(len(runs))]
        filtered, runs, masks = map(list, zip(*parts, strict=True))
        signals = ()
    cutoffs = [min(s.torque_cutoff, parallel_cutoff or np.inf) for s in runs]
    independence = min(1.0, *(2 * 0.9 * cutoff / s.rate for cutoff, s in zip(cutoffs, runs, strict=True)))
    made = tuple(runs), tuple(masks), float(independence), closed, start, parallel_cutoff, tuple(filtered)
    return EstimationProblem(model, columns, base, *made, friction=friction, signals=signals)


def _delayed(samples: Samples, tau: Float[np.ndarray, "N n"], lead: float) -> Float[np.ndarray, "N n"]:
    """Torques at the times t - lead, interpolated by a cubic spline within each piece."""
    t, out = samples.t, np.empty_like(tau)
    for a, b in samples.segments:
        out[a:b] = interpolate.make_interp_spline(t[a:b], tau[a:b], k=min(3, b - a - 1))(t[a:b] - lead)
    return out


def _parallel(problem: EstimationProblem, run: int, cutoff: float) -> tuple[np.ndarray, Samples, np.ndarray]:
    """Rows [W, tau] of a run, low-pass filtered and decimated, with the decimated samples and weights."""
    s = problem.samples[run]
    if not 0 < cutoff < s.rate / 2:
        raise IdentificationError(
            f"run {run + 1}: parallel_cutoff is {cutoff:g} Hz; it must be between 0 and half the sample rate, {s.rate / 2:g} Hz"
        )
    stride, margin = max(1, int(s.rate / (10 * cutoff))), round(2 * s.rate / cutoff)
    rows = np.concatenate([problem.measured_rows()[run], problem.torques[run][:, :, None]], axis=2)
    keep, ends = [], [0]
    for first, last in s.segments:
        chosen = np.arange(first + margin, last - margin, stride)
        if len(chosen):
            rows[first:last] = low_pass(rows[first:last], s.rate, cutoff)
            keep.append(chosen)
            ends.append(ends[-1] + len(chosen))
    if not keep:
        raise IdentificationError(
            f"run {run + 1}: no piece is longer than four periods of the cutoff, {cutoff:g} Hz; log a longer run"
        )
    index = np.concatenate(keep)
    thin = s.rows(index, itertools.pairwise(ends), rate=s.rate / stride)
    return rows[index], thin, problem.weights[run][index]


# -- least squares

ROUNDS_OF_NOISE = (
    3  # iterations for the noise level, which sets the weight of prior knowledge in ordinary least squares
)
ROWS_OF_A_RUN = 2.0  # least number of independent samples per base parameter for weights of a run's own


@dataclasses.dataclass(frozen=True, eq=False)
class Stated:
    """Rows [P, y] of prior knowledge with unit standard deviation, and the factor that scales them to the weighted data."""

    rows: Float[np.ndarray, "k w"]
    scale: float


def estimate_ols(problem: EstimationProblem) -> Estimate:
    """Ordinary least squares: minimises sum |tau - W base|^2, with equal weights for all joints and runs.

    The estimate is biased if the regressor W contains errors, for example due to noise in velocities and accelerations.

    Args:
        problem: the problem.

    Raises:
        IdentificationError: there are too few rows, or the motion does not excite all base parameters or does not
            determine them separately.
    """
    return ordinary_least_squares(problem.blocks, problem.base, problem.independence)


def estimate_wls(problem: EstimationProblem, tolerance: float = 1e-6, iterations: int = 20) -> Estimate:
    """Weighted least squares on the rows of a problem, the estimator of `identify`: `weighted_least_squares` of its blocks.

    Args:
        problem: the problem.
        tolerance: relative step of the values below which the iteration has converged.
        iterations: maximum number of iterations.

    Raises:
        IdentificationError: as for `estimate_ols`.
    """
    return weighted_least_squares(problem.blocks, problem.base, problem.independence, tolerance, iterations)


def relative_step(new: np.ndarray, old: np.ndarray) -> float:
    """Largest relative change of the values; changes of small values are relative to 1e-3 of the largest value."""
    size = np.maximum(np.abs(new), np.abs(old))
    return float((np.abs(new - old) / np.maximum(size, 1e-3 * size.max() or 1.0)).max())


def inverse_noise(noise: np.ndarray) -> np.ndarray:
    """Weights 1 / s for noise s, capped for joints with (almost) no noise; equal weights if no joint has noise."""
    return 1 / np.maximum(noise, 1e-12 * float(noise.max()) or 1.0)


def with_blocks(
    estimate: Estimate,
    blocks: BlockFactors,
    base: BaseParameters,
    weights: Float[np.ndarray, "runs n"],
    known: Stated | None = None,
) -> Estimate:
    """A copy of the estimate with a jackknife covariance, for rows weighted by run and joint.

    The jackknife leaves out blocks of data, but never the rows P of prior knowledge. Their contribution C P^T P C to
    the covariance C is therefore added separately.

    Args:
        known: prior knowledge, with the factor that scales it to the weighted rows of the data.
    """
    at = np.append(base.kept, -1)
    parts, beyond, rows = weighted_blocks(blocks, at, weights), 0.0, None
    if known is not None:
        rows = known.rows[:, base.kept]
        beyond = estimate.covariance @ (rows.T @ rows) @ estimate.covariance
        rows = known.scale * rows
    covariance = least_squares_covariance(parts, estimate.values, estimate.covariance - beyond, besides=rows)
    return estimate.with_covariance(covariance + beyond, len(parts))


def ordinary_least_squares(
    factors: QRFactors | BlockFactors,
    base: BaseParameters,
    independence: float = 1.0,
    known: Float[np.ndarray, "k w"] | None = None,
) -> Estimate:
    """Ordinary least squares on factors: minimises sum |tau - W base|^2, with equal weights for all joints.

    Args:
        factors: triangular factors of the regressor and the torques. Standard deviations account for correlated
            residuals only if the factors were accumulated in blocks.
        base: the base parameters.
        independence: effective fraction of independent samples. Filtered data are correlated if they are sampled faster
            than twice the cutoff; ignoring this would make standard deviations too small by a factor of 1 /
            sqrt(independence).
        known: rows [P, y] of prior knowledge P @ parameters = y +- 1, scaled to unit standard deviation
            (`Known.stated`). Their weight relative to the data follows from the RMS of all residuals.

    Raises:
        IdentificationError: there are too few samples, or the data do not excite all base parameters or do not
            determine them separately.
    """
    whole = factors.total if isinstance(factors, BlockFactors) else factors
    weights, stated = np.ones(len(whole.counts)), None
    if known is not None:
        noise = float(np.sqrt((whole.r[:, :, -1] ** 2).sum() / max(whole.counts.sum(), 1)))
        for _ in range(ROUNDS_OF_NOISE):
            stated = Stated(known, noise / np.sqrt(independence))
            residuals = solve_factors(whole, base, weights, independence, stated).joint_residuals
            noise = float(np.sqrt((residuals**2 * whole.counts).sum() / max(whole.counts.sum(), 1)))
    estimate = solve_factors(whole, base, weights, independence, stated)
    if isinstance(factors, BlockFactors):
        return with_blocks(estimate, factors, base, weights[None], stated)
    return estimate


def weighted_least_squares(
    factors: QRFactors | BlockFactors,
    base: BaseParameters,
    independence: float = 1.0,
    tolerance: float = 1e-6,
    iterations: int = 20,
    known: Float[np.ndarray, "k w"] | None = None,
) -> Estimate:
    """Weighted least squares: minimises sum_rj |tau_rj - W_rj base|^2 / s_rj^2, with the noise s_rj of joint j in run r.

    The iteration starts from ordinary least squares. Each step computes s from the residuals of the previous step. The
    iteration ends when the values converge.

    The runs are those of the blocks; factors without blocks count as one run. A run with fewer than twice as many
    independent samples as there are base parameters could be fitted almost exactly, and would then outweigh all others:
    the noise of its joints is that of all runs together.

    Args:
        factors: as for `ordinary_least_squares`.
        base: the base parameters.
        independence: as for `ordinary_least_squares`.
        tolerance: relative step of the values below which the iteration has converged.
        iterations: maximum number of iterations.
        known: rows [P, y] of prior knowledge, as for `ordinary_least_squares`.

    Raises:
        IdentificationError: as for `ordinary_least_squares`.
    """
    if isinstance(factors, BlockFactors):
        factors = dataclasses.replace(factors, runs=np.unique(factors.runs, return_inverse=True)[1])
        whole, n = factors.by_run, factors.r.shape[1]
    else:
        whole, n = factors, len(factors.counts)
    counts = whole.counts.reshape(-1, n)
    pooled = lambda x: np.sqrt((x.reshape(-1, n) ** 2 * counts).sum(0) / np.maximum(counts.sum(0), 1))
    stated = None if known is None else Stated(known, 1 / np.sqrt(independence))
    estimate = ordinary_least_squares(whole, base, independence, known)
    history: list[float] = []
    weights, few = np.ones_like(counts, float), counts * independence < ROWS_OF_A_RUN * base.size

    def noise_of(estimate: Estimate) -> np.ndarray:
        return np.where(few, pooled(estimate.noise), estimate.noise.reshape(-1, n))

    while len(history) < iterations:
        weights = inverse_noise(noise_of(estimate))
        update = solve_factors(whole, base, weights.reshape(-1), independence, stated)
        history.append(relative_step(update.values, estimate.values))
        estimate = update
        if history[-1] < tolerance:
            break
    noise = noise_of(estimate)
    if isinstance(factors, BlockFactors):
        estimate = with_blocks(estimate, factors, base, weights, stated)
    return dataclasses.replace(
        estimate,
        noise=pooled(noise),
        joint_residuals=pooled(estimate.joint_residuals),
        run_noise=noise if isinstance(factors, BlockFactors) else None,
        method="WLS",
        iterations=len(history),
        history=tuple(history),
        converged=history[-1] < tolerance,
    )


def solve_factors(
    factors: QRFactors, base: BaseParameters, weights: np.ndarray, independence: float, known: Stated | None = None
) -> Estimate:
    """Least squares on factors, with one weight per factor.

    Raises the same errors as `ordinary_least_squares`. The covariance is s^2 (W^T W)^-1, where the variance s^2
    accounts for the fraction of independent samples.
    """
    counts = factors.counts
    b = base.size
    if counts.sum() <= b:
        raise UndeterminedError(
            f"{int(counts.sum())} rows of samples cannot determine {b} base parameters; log a longer run or decimate less"
        )
    r = stacked(factors, weights)
    free = b
    if known is not None:
        r, free = np.concatenate([r, known.scale * known.rows]), max(b - len(known.rows), 0)
    w, y = r[:, base.kept], r[:, -1]
    norms = np.linalg.norm(w, axis=0)
    if np.any(norms == 0):
        raise UndeterminedError(
            f"the data do not excite {base.names[int(np.argmin(norms))]!r}: log a motion of all joints, or omit this term"
        )
    u, s, vt = np.linalg.svd(w / norms, full_matrices=False)
    if s[-1] < 1e-12 * s[0]:
        worst = np.argsort(-np.abs(vt[-1]))[:3]
        raise UndeterminedError(
            "the motion does not determine these base parameters separately: "
            + "; ".join(repr(base.names[k]) for k in worst)
            + ". Log a more informative motion in which all joints move at once, or identify fewer terms"
        )
    values = vt.T @ (u.T @ y / s) / norms
    residuals = factors.r[:, :, -1] - factors.r[:, :, base.kept] @ values
    squares = (residuals**2).sum(1)
    spent = free / independence / counts.sum()  # degrees of freedom used by the parameters, as a share of the rows
    if spent >= 1:
        raise UndeterminedError(
            f"only {counts.sum() * independence:.0f} of {int(counts.sum())} rows of filtered samples count as independent, too "
            f"few to determine {b} base parameters; log a longer run"
        )
    noise = np.sqrt(squares / np.maximum(counts * (1 - spent), 1))
    variance = (squares * weights**2).sum() / (counts.sum() * (1 - spent)) / independence
    inverse = vt.T / s / norms[:, None]
    singular = np.linalg.svd(w, compute_uv=False)
    return Estimate(
        values=values,
        covariance=variance * (inverse @ inverse.T),
        noise=noise,
        condition=float(singular[0] / singular[-1]),
        scaled_condition=float(s[0] / s[-1]),
        joint_residuals=np.sqrt(squares / np.maximum(counts, 1)),
        method="OLS",
        degrees=float(counts.sum() * independence - b),
    )


# -- split half

AGREEING = 2.0  # largest difference between agreeing estimates, in standard deviations of the difference


@dataclasses.dataclass(frozen=True, eq=False)
class SplitHalf:
    """Agreement between two estimates from disjoint data.

    Attributes:
        names: names of the base parameters.
        differences: (b,) first minus second estimate, in standard deviations of the difference.
        of_motion: True if a motion is repeated, and the halves are those of the motion, each from all repetitions.
    """

    names: tuple[str, ...]
    differences: Float[np.ndarray, " b"]
    of_motion: bool = False

    @property
    def share(self) -> float:
        """Fraction of the base parameters that agree within two standard deviations; 0.95 is expected."""
        return float(np.mean(np.abs(self.differences) <= AGREEING))

    @property
    def rms(self) -> float:
        """RMS of the differences, in standard deviations; 1 is expected."""
        return float(np.sqrt(np.mean(self.differences**2)))

    @property
    def disagreeing(self) -> tuple[str, ...]:
        """Names of the parameters that disagree, largest difference first."""
        order = np.argsort(-np.abs(self.differences))
        return tuple(self.names[k] for k in order if abs(self.differences[k]) > AGREEING)

    def __str__(self) -> str:
        agree = len(self.names) - len(self.disagreeing)
        of = "repeated motion" if self.of_motion else "data"
        text = f"the two halves of the {of} agree on {agree} of {len(self.names)} base parameters within 2 standard deviations"
        if not self.disagreeing:
            return text
        listed = ", ".join(self.disagreeing[:3]) + (" and others" if len(self.disagreeing) > 3 else "")
        return f"{text}, but not on {listed}"


def agreement(names: tuple[str, ...], first: Estimate, second: Estimate) -> SplitHalf:
    """Differences (x_k - y_k) / sqrt(s_k^2 + r_k^2) of two estimates x +- s and y +- r from disjoint data."""
    deviations = np.hypot(first.standard_deviations, second.standard_deviations)
    off = first.values - second.values
    return SplitHalf(names, np.divide(off, deviations, out=np.zeros_like(off), where=deviations > 0))


def split_half(blocks: BlockFactors, base: BaseParameters, independence: float = 1.0) -> SplitHalf | None:
    """Compare weighted least-squares fits to the first and the second half of the data.

    If there are several runs, the first half contains the first runs. If the runs repeat a motion, the halves are those
    of the motion, because errors of the model repeat with it: two repetitions would agree whatever the model lacks.
    Returns None if either half alone does not determine the base parameters.

    Args:
        blocks: factors of the data, in blocks.
        base: the base parameters.
        independence: fraction of the samples that count as independent.
    """
    if blocks.order_of_groups.max() < 1:
        return None
    try:
        first, second = (weighted_least_squares(half, base, independence) for half in blocks.halves)
    except IdentificationError:
        return None
    return dataclasses.replace(agreement(base.names, first, second), of_motion=blocks.groups is not None)

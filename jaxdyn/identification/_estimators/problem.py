"""Estimation problem: the robot, the identified columns and the runs, in one object for all estimators."""

import dataclasses
import functools
import itertools
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Float
from scipy import interpolate

from ...errors import IdentificationError
from ...model._chain import Chain
from .._friction.fit import base_with_friction, with_signals
from .._preprocessing.filters import low_pass
from .._preprocessing.repeats import repeated_motion
from .._preprocessing.samples import Samples
from .._regression.accumulate import accumulate_samples
from .._regression.base_parameters import BaseParameters
from .._regression.blocks import BLOCKS, BlockFactors, dense_blocks
from .._regression.columns import Columns, all_columns, with_friction_at_joints
from .._regression.completion import given_samples_torque, prior_parameters
from .._regression.factors import QRFactors
from .._regression.prediction import predict_samples
from .._regression.robot import as_float64
from .._regression.rows import by_chunks, chunk_rows, dry_rows
from .._simulation.closed_loop import ClosedLoop
from .whole_runs import RunFriction, friction_signals, model_of, reference_samples, without_friction


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

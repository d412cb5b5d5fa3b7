"""Accumulation of the rows of runs in triangular factors, block by block, in memory that does not grow with the runs.

Let [W_j, tau_j] be the rows of joint j for all samples, with p columns in W_j. The triangular factor R_j of their QR
decomposition satisfies R_j^T R_j = [W_j, tau_j]^T [W_j, tau_j], so it preserves all norms and inner products of the
columns. Unlike the normal equations, R_j does not square the condition number. It needs O(p^2) memory per joint and
block, however long the log is. Every fit, cross-validation, jackknife and search for delays is answered from factors."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from ..errors import IdentificationError
from ..model.chain import Chain
from .columns import Columns
from .defaults import BLOCKS
from .factors import SHORT, BlockFactors, QRFactors, RowBlocks, as_float64, contiguous, numbered
from .prediction import row_chunks
from .preprocessing import Samples

Progress = Callable[[int], None]
States = tuple[np.ndarray, ...]  # q, qd, qdd


class RunRows(NamedTuple):
    """What the rows of one run are computed from, in SI units.

    Attributes:
        samples: the samples, or their arrays (q, qd, qdd); columns of dry friction are low-pass filtered like the
            torques of `Samples`.
        tau: (N, nv) torques, from which known torques are subtracted [N m or N].
        weights: (N, nv) factors by which the rows are multiplied, by default one; zero excludes a row.
        signals: (N, nv, k) further columns, placed between those of the regressor and the torque, such as friction with
            memory, which depends on the history of the motion.
        instruments: motion (q, qd, qdd) at the same instants, whose errors are independent of those of the samples.
        through: function of samples that returns matrices (N, k, nv), which combine the rows of each sample to k rows. These
            are those of a single joint, and their weight is the least of the sample.
    """

    samples: Samples | States
    tau: np.ndarray
    weights: np.ndarray | None = None
    signals: np.ndarray | None = None
    instruments: States | None = None
    through: Callable[[Samples], np.ndarray] | None = None

    @property
    def motion(self) -> States:
        """The arrays q, qd, qdd of the samples."""
        s = self.samples
        return (s.q, s.qd, s.qdd) if isinstance(s, Samples) else s


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
    """Rows [W, signals, tau] of runs, which can be accumulated again with other weights, or beside instruments.

    Attributes:
        columns: the columns of W.
        chain: the robot, in float64; its inertias are not used.
        runs: the runs.
        labels: for each run, the block to which each of its samples belongs.
        numbers: number of each run, in ascending order.
        grouped: True if equal labels in all runs mean the same stretch of a repeated motion.
    """

    columns: Columns
    chain: Chain
    runs: tuple[RunRows, ...]
    labels: tuple[Int[np.ndarray, " _"], ...]
    numbers: tuple[int, ...]
    grouped: bool = False

    def blocks(
        self,
        factors: Sequence[Float[np.ndarray, "_ nv"]] | None = None,
        progress: Progress | None = None,
        beside: Int[np.ndarray, " b"] | None = None,
    ) -> BlockFactors:
        """Accumulate the triangular factors of all blocks.

        Args:
            factors: for each run, factors that multiply the weights of its rows, by default one.
            progress: called with the number of samples done.
            beside: the columns of the regressor and the signals that are placed, along the instruments' motion, before all
                other columns; a signal is its own instrument.

        Raises:
            IdentificationError: a run contains numbers that are not finite.
        """
        first, done = self.runs[0], 0
        width = (
            len(self.columns.of_state.names(self.chain.n))
            + (0 if first.signals is None else first.signals.shape[2])
            + 1
        )
        width += 0 if beside is None else len(beside)
        many = [1 if x.through is None else x.through(x.samples.part(0, 1)).shape[1] for x in self.runs]  # type: ignore
        labels = [np.repeat(own, m) for own, m in zip(self.labels, many, strict=True)]
        found = RowBlocks(labels, self.chain.nv if first.through is None else 1, width, self.grouped)
        for k, run in enumerate(self.runs):
            for part, rows, weights in self._chunks(run, beside):
                if factors is not None:
                    weights = weights * factors[k][part]
                _check_finite(run, part.start, rows, weights)
                if run.through is not None:
                    rows = run.through(run.samples.part(part.start, part.stop)) @ rows  # type: ignore
                    rows, weights = rows.reshape(-1, 1, width), np.repeat(weights.min(axis=1), many[k])[:, None]
                found.absorb(k, part.start * many[k], rows, weights)
                done += part.stop - part.start
                if progress is not None:
                    progress(done)
        blocks = dataclasses.replace(found.factors, runs=np.array(self.numbers)[found.factors.runs])
        return dataclasses.replace(blocks.of(np.argsort(blocks.runs, kind="stable")), rows=self)

    def residuals(self, parameters: Float[np.ndarray, " p"]) -> list[Float[np.ndarray, "_ nv"]]:
        """Torques of each run minus W @ parameters [N m or N], for parameters of all columns and signals."""
        return [
            np.concatenate([rows[..., -1] - rows[..., :-1] @ parameters for _, rows, _ in self._chunks(run, None)])
            for run in self.runs
        ]

    def _chunks(self, run: RunRows, beside: np.ndarray | None) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Indices of the samples, rows and weights of each chunk of a run."""
        signals = np.zeros((*run.tau.shape, 0)) if run.signals is None else run.signals
        weights = np.ones(run.tau.shape) if run.weights is None else run.weights
        motions = [run.samples]
        if beside is not None:
            assert run.instruments is not None
            aside = run.instruments
            if isinstance(run.samples, Samples):
                aside = dataclasses.replace(run.samples, q=aside[0], qd=aside[1], qdd=aside[2])
            motions.insert(0, aside)
        for found in zip(*(row_chunks(self.columns, self.chain, motion) for motion in motions), strict=True):
            part = found[0][0]
            whole = [np.concatenate([w, signals[part]], axis=2) for _, w in found]
            if beside is not None:
                whole[0] = whole[0][:, :, beside]
            yield part, np.concatenate([*whole, run.tau[part][:, :, None]], axis=2), weights[part]


def _check_finite(run: RunRows, at: int, rows: np.ndarray, weights: np.ndarray) -> None:
    if np.isfinite(rows).all() and np.isfinite(weights).all():
        return
    parts = dict(zip(("q", "qd", "qdd"), run.motion, strict=True))
    parts |= {"tau": run.tau, "weights": run.weights, "signals": run.signals}
    for name, x in parts.items():
        bad = np.zeros(1) if x is None else ~np.isfinite(x.reshape(len(x), -1)).all(axis=1)
        if bad.any():
            raise IdentificationError(
                f"{name} of sample {int(np.argmax(bad))} (counted from 0) is not finite; remove such samples "
                "(a weight of zero does not suffice)"
            )
    raise IdentificationError(
        f"the regressor is not finite in samples {at} to {at + len(rows) - 1}: check the user-defined columns there"
    )


def _check_shapes(columns: Columns, chain: Chain, run: RunRows) -> None:
    total, n = len(run.tau), chain.nv
    q, qd, qdd = run.motion
    for name, x, width in (("q", q, chain.nq), *((k, x, n) for k, x in (("qd", qd), ("qdd", qdd), ("tau", run.tau)))):
        if np.shape(x) != (total, width):
            raise IdentificationError(
                f"{name} have shape {np.shape(x)}; for {total} samples of {n} joints, it must be ({total}, {width})"
            )
    if run.weights is not None and np.shape(run.weights) != (total, n):
        raise IdentificationError(f"weights have shape {np.shape(run.weights)}; it must be ({total}, {n})")
    if run.signals is not None and (np.ndim(run.signals) != 3 or np.shape(run.signals)[:2] != (total, n)):
        raise IdentificationError(
            f"signals have shape {np.shape(run.signals)}; for {total} samples of {n} joints, it must be ({total}, {n}, k)"
        )
    columns.check_signals(n, 0 if run.signals is None else np.shape(run.signals)[2])


def accumulate_samples(
    columns: Columns,
    chain: Chain,
    runs: Sequence[RunRows | Sequence[Any]],
    progress: Progress | None = None,
    count: int = BLOCKS,
    edges: Sequence[Sequence[tuple[int, int]]] | None = None,
    groups: Sequence[Int[np.ndarray, " _"]] | None = None,
    numbers: Sequence[int] | None = None,
) -> BlockFactors:
    """Accumulate the triangular factors of blocks of runs, or of stretches of a repeated motion, in one pass.

    The factors suffice to fit all or part of the runs, and to compute covariances. Each block needs 8 n (p + 1)^2
    bytes, for n joints and p columns.

    Args:
        columns: the identified columns.
        chain: the robot; its inertias are not used.
        runs: `RunRows`, or their entries, for each run.
        progress: called with the number of samples accumulated so far.
        count: total number of blocks, which are of about equal length. Each run has at least one.
        edges: limits (start, stop) of the blocks of each run, in place of `count` blocks of equal length.
        groups: for each run, the stretch of a repeated motion that each sample shows (`Motion.groups`). A block then
            consists of all samples of a run that show the same stretch.
        numbers: number of each run, by default counted from zero.

    Raises:
        IdentificationError: there are no runs, the arrays have inconsistent shapes or contain non-finite numbers.

    Cost: O(n^2 + sum_j c_j^2) per sample, where c_j is the number of columns that can be nonzero for joint j.
    """
    listed = tuple(run if isinstance(run, RunRows) else RunRows(*run) for run in runs)
    if not listed:
        raise IdentificationError("there are no samples to accumulate; pass at least one run")
    for run in listed:
        _check_shapes(columns, chain, run)
    if len({0 if run.signals is None else run.signals.shape[2] for run in listed}) > 1:
        raise IdentificationError("all runs must have the same number of signals")
    if groups is not None:
        labels = groups
    else:
        labels = contiguous([len(run.tau) for run in listed], count) if edges is None else map(numbered, edges)
    order = tuple(range(len(listed)) if numbers is None else numbers)
    with jax.enable_x64(True):
        rows = Rows(columns, as_float64(chain), listed, tuple(labels), order, groups is not None)
        return rows.blocks(progress=progress)


def accumulate(
    columns: Columns,
    chain: Chain,
    q: np.ndarray,
    qd: np.ndarray,
    qdd: np.ndarray,
    tau: np.ndarray,
    weights: np.ndarray | None = None,
    signals: np.ndarray | None = None,
) -> QRFactors:
    """Accumulate one triangular factor per joint from arrays in memory; arguments as for `RunRows`."""
    return accumulate_samples(columns, chain, [RunRows((q, qd, qdd), tau, weights, signals)], count=1).total


def accumulate_stream(
    columns: Columns,
    chain: Chain,
    chunks: Iterable[Samples | Sequence[Any]],
    *,
    start: BlockFactors | None = None,
    progress: Progress | None = None,
) -> BlockFactors:
    """Accumulate the triangular factors of samples that arrive in chunks, in bounded memory.

    Between 16 and 32 blocks of consecutive samples are kept, for standard deviations that account for correlated
    residuals: neighbouring blocks are merged as the log grows. Only their factors (8 n (p + 1)^2 bytes each, for n joints
    and p columns) and one chunk of samples are held in memory. All computations use float64, regardless of JAX's
    configuration.

    If there are several processes, each accumulates its own samples, and `merge_over_processes` combines their factors.

    Args:
        columns: the identified columns.
        chain: the robot; its inertias are not used.
        chunks: `Samples`, for example from `preprocess_stream`, whose columns of dry friction are filtered like their
            torques; or tuples (q, qd, qdd, tau[, weights[, signals]]) of arrays of any length N, as in `RunRows`.
        start: factors to which samples are added, for example those of an earlier log or of an interrupted accumulation
            (`save_factors`).
        progress: called with the number of samples accumulated so far.

    Raises:
        IdentificationError: there are no samples, the arrays have inconsistent shapes or contain non-finite numbers, or
            `start` was accumulated for different columns.

    Cost: that of `accumulate_samples`.
    """
    found, done = start, 0
    for chunk in chunks:
        if isinstance(chunk, Samples):
            run = RunRows(chunk, chunk.tau)
        elif 4 <= len(chunk) <= 6:
            run = RunRows((chunk[0], chunk[1], chunk[2]), *chunk[3:])
        else:
            raise IdentificationError(
                f"a chunk has {len(chunk)} arrays; it must contain q, qd, qdd and tau, and optionally weights and signals"
            )
        if len(run.tau):
            blocks = max(1, min(BLOCKS, len(run.tau) // SHORT))
            new = dataclasses.replace(accumulate_samples(columns, chain, [run], count=blocks), rows=None)
            found = new if found is None else found.joined(dataclasses.replace(new, runs=0 * new.runs)).thinned()
        done += len(run.tau)
        if progress is not None:
            progress(done)
    if found is None:
        raise IdentificationError("there are no samples to accumulate; the chunks are empty")
    return found

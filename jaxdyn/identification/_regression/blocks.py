"""Triangular factors of blocks of a stacked regressor, and the jackknife covariance of estimates.

Residual torques of a robot are rarely white: filters correlate noise, friction errors repeat with the motion, and
controllers are periodic. A jackknife, which leaves out one contiguous block of samples at a time, captures all these
effects without a noise model. If the runs repeat a motion, a block is one stretch of the motion, from all repetitions:
the errors of the model repeat with the motion, so blocks cut in time would not be independent.

Let x be the fit to all K blocks. Block k has the Hessian H_k = W_k^T W_k and the score s_k = W_k^T (tau_k - W_k x), and
H is the sum of all H_k. The fit without block k and the jackknife covariance J are then

    x_(-k) - x = -(H - H_k)^-1 s_k,      J = (K - 1) / K sum_k (x_(-k) - mean) (x_(-k) - mean)^T.

These expressions are exact and need only one triangular factor per block. Since blocks must be much longer than the
correlation time of the residuals, there are few of them, and J has few degrees of freedom. J is therefore shrunk
towards the covariance for independent residuals, after scaling the latter by the ratio of the two variances, averaged
over the parameters.

Source: Quenouille 1956, Tukey 1958; Kunsch 1989 (blocks); Cameron & Miller 2015, sec. VI (CR3, few clusters); Smyth 2004
(variances shrunk towards a common one).
"""

import dataclasses
import functools
import itertools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from ...errors import IdentificationError
from .factors import QRFactors, triangle_of, triangles_of

BLOCKS = 16  # blocks stored for all runs together; each half of the data then has LEFT_OUT of them
LEFT_OUT = 8  # jackknife blocks
PRIOR_DEGREES = 5.0  # degrees of freedom of the shrinkage target; those of the blocks are LEFT_OUT - 1
SINGULAR = 1e-10  # directions with a smaller relative singular value, for columns of unit norm, are not fitted
LEAST_LEFT = 0.05  # minimum fraction of the information on a direction that is attributed to the other blocks


@dataclasses.dataclass(frozen=True, eq=False)
class BlockFactors:
    """Triangular factors of the stacked regressor and torque, one for each joint and each contiguous block of a run.

    Attributes:
        r: (k, n, w, w) factors of k blocks and n joints; the last of the w columns is the torque.
        counts: (k, n) number of samples in each factor.
        runs: (k,) index of the run to which each block belongs; no block spans two runs.
        groups: (k,) the stretch of the motion that each block shows, if the runs repeat a motion (`Motion.groups`);
            blocks that show the same stretch are left out together. None if every block is a motion of its own.
    """

    r: Float[np.ndarray, "k n w w"]
    counts: Int[np.ndarray, "k n"]
    runs: Int[np.ndarray, " k"]
    groups: Int[np.ndarray, " k"] | None = None

    def of(self, chosen: slice | Int[np.ndarray, " m"] | Bool[np.ndarray, " k"]) -> "BlockFactors":
        """Some of the blocks."""
        groups = None if self.groups is None else self.groups[chosen]
        return BlockFactors(self.r[chosen], self.counts[chosen], self.runs[chosen], groups)

    def merged(self, labels: Int[np.ndarray, " k"]) -> "BlockFactors":
        """Merge all blocks with the same label; the results are sorted by label."""
        found, first = np.unique(labels, return_index=True)
        parts = [self.r[labels == label] for label in found]
        r = np.stack([x[0] if len(x) == 1 else triangles_of(below(x)) for x in parts])
        counts = np.stack([self.counts[labels == label].sum(0) for label in found])
        return dataclasses.replace(self.of(first), r=r, counts=counts)

    @functools.cached_property
    def total(self) -> QRFactors:
        """One factor per joint, merged from all blocks."""
        whole = self.merged(np.zeros(len(self.runs), int))
        return QRFactors(whole.r[0], whole.counts[0])

    @property
    def by_run(self) -> QRFactors:
        """The factors of each run and joint, as an array of shape (runs n, w, w)."""
        runs = self.merged(self.runs)
        return QRFactors(runs.r.reshape(-1, *runs.r.shape[2:]), runs.counts.reshape(-1))

    @functools.cached_property
    def left_out(self) -> "BlockFactors":
        """The blocks merged into about `LEFT_OUT` longer ones of about equal length.

        None spans two runs, unless the runs repeat a motion: each then shows one stretch of the motion, in all runs.
        """
        if self.groups is not None:
            order = self.order_of_groups
            return self.merged(order * min(LEFT_OUT, order.max() + 1) // (order.max() + 1))
        labels, first = np.zeros(len(self.runs), int), 0
        samples = self.counts.max(axis=1)
        for run in np.unique(self.runs):
            mine = np.flatnonzero(self.runs == run)
            many = min(len(mine), max(1, round(LEFT_OUT * samples[mine].sum() / max(samples.sum(), 1))))
            labels[mine] = first + np.arange(len(mine)) * many // len(mine)
            first += many
        return self.merged(labels)

    @property
    def order_of_groups(self) -> Int[np.ndarray, " k"]:
        """For each block, the number of its group, counted from zero without gaps; of the block without groups."""
        own = np.arange(len(self.runs)) if self.groups is None else self.groups
        return np.unique(own, return_inverse=True)[1]

    @property
    def halves(self) -> tuple["BlockFactors", "BlockFactors"]:
        """The first and the second half of the blocks, or of the motion if the runs repeat it."""
        order = self.order_of_groups
        late = order >= (order.max() + 1) // 2
        return self.of(~late), self.of(late)

    def joined(self, other: "BlockFactors") -> "BlockFactors":
        """These blocks and those of another object, sorted by run; both may contain blocks of the same run."""
        if self.r.shape[1:] != other.r.shape[1:]:
            raise IdentificationError(
                f"blocks of shapes {self.r.shape} and {other.r.shape} are incompatible: they must come from one robot "
                "and the same columns"
            )
        runs = np.concatenate([self.runs, other.runs])
        order = np.argsort(runs, kind="stable")
        both = lambda a, b: np.concatenate([a, b])[order]
        groups = None if self.groups is None or other.groups is None else both(self.groups, other.groups)
        return BlockFactors(both(self.r, other.r), both(self.counts, other.counts), runs[order], groups)


def block_factors(
    factors: Sequence[QRFactors], runs: Sequence[int] | None = None, groups: Sequence[int] | None = None
) -> BlockFactors:
    """Combine the factors of contiguous stretches of a log, in their order, into blocks.

    With these blocks, the standard deviations of `weighted_least_squares` account for correlated residuals. About
    sixteen stretches are enough. Each must be much longer than a period of the slowest joint's motion.

    Args:
        factors: factors of the stretches, for example from `accumulate_stream`.
        runs: run number of each stretch; by default all stretches belong to one run.
        groups: if a motion is repeated, the number of the part of the motion that each stretch shows: stretches with
            equal numbers are left out together, since model errors repeat with the motion.

    Raises:
        IdentificationError: there are no factors, the factors come from different robots or columns, or the number of
            run numbers or groups differs from the number of factors.
    """
    shapes = {f.r.shape for f in factors}
    if len(shapes) != 1 or any(x is not None and len(x) != len(factors) for x in (runs, groups)):
        raise IdentificationError(
            f"{len(factors)} factors of shapes {' and '.join(map(str, sorted(shapes)))} cannot form blocks: pass at least "
            "one factor, all from the same robot and columns, and one run number (and group) per factor"
        )
    labels = np.zeros(len(factors), int) if runs is None else np.asarray(runs, int)
    parts = None if groups is None else np.asarray(groups, int)
    return BlockFactors(np.stack([f.r for f in factors]), np.stack([f.counts for f in factors]), labels, parts)


def block_edges(lengths: Sequence[int], count: int = BLOCKS) -> list[list[tuple[int, int]]]:
    """Limits (start, stop) of the blocks of each run, in samples: `count` blocks in total, of about equal length."""
    total = max(sum(lengths), 1)
    many = [min(length, max(1, round(count * length / total))) for length in lengths]
    return [equal_blocks(length, m) for length, m in zip(lengths, many, strict=True)]


def equal_blocks(length: int, count: int) -> list[tuple[int, int]]:
    """Limits (start, stop) of `count` blocks of about equal length."""
    return list(itertools.pairwise(np.linspace(0, length, count + 1).astype(int).tolist()))


def contiguous(lengths: Sequence[int], count: int = BLOCKS) -> list[Int[np.ndarray, " _"]]:
    """For each run, the number of the block of `block_edges` to which each of its samples belongs."""
    return [np.repeat(np.arange(len(own)), [b - a for a, b in own]) for own in block_edges(list(lengths), count)]


class RowBlocks:
    """Blocks of rows [W, tau] of all joints, accumulated from chunks of rows, run by run.

    Attributes:
        labels: for each run, the number of the block to which each of its samples belongs.
        grouped: True if equal numbers in all runs mean the same stretch of a repeated motion.
        blocks: for each run, the numbers of its blocks.
        r: (k, n, w, w) triangular factors of the rows absorbed so far, for each block and joint.
        counts: (k, n) number of samples absorbed so far, for each block and joint.
    """

    def __init__(self, labels: Sequence[Int[np.ndarray, " _"]], n: int, width: int, grouped: bool = False):
        self.labels, self.grouped = labels, grouped
        self.blocks = [np.unique(own) for own in labels]
        self.starts = np.cumsum([0, *map(len, self.blocks)])
        self.r = np.zeros((self.starts[-1], n, width, width))
        self.counts = np.zeros((self.starts[-1], n), int)

    def absorb(
        self, run: int, at: int, rows: Float[np.ndarray, "m n w"], weights: Float[np.ndarray, "m n"] | None = None
    ) -> None:
        """Absorb rows of a run with their weights; the first row has index `at` in the run."""
        mask = np.ones(rows.shape[:2]) if weights is None else weights
        own = self.labels[run][at : at + len(rows)]
        for label in np.unique(own):
            k = self.starts[run] + int(np.searchsorted(self.blocks[run], label))
            part = rows_of(own, label)
            scaled = (rows[part] * mask[part, :, None]).transpose(1, 0, 2)
            both = np.concatenate([self.r[k], scaled], axis=1) if self.counts[k].any() else scaled
            self.r[k] = triangles_of(both)
            self.counts[k] += (mask[part] != 0).sum(0)

    @property
    def factors(self) -> BlockFactors:
        """The factors of all rows absorbed so far."""
        groups = np.concatenate(self.blocks) if self.grouped else None
        return BlockFactors(self.r, self.counts, np.repeat(np.arange(len(self.labels)), np.diff(self.starts)), groups)


def rows_of(labels: Int[np.ndarray, " N"], label: int | np.integer) -> slice | Int[np.ndarray, " m"]:
    """Indices of the samples with a label, as a slice if they are consecutive."""
    rows = np.flatnonzero(labels == label)
    return slice(rows[0], rows[-1] + 1) if rows[-1] - rows[0] + 1 == len(rows) else rows


def dense_blocks(
    rows: Sequence[Float[np.ndarray, "_ n w"]],
    weights: Sequence[Float[np.ndarray, "_ n"]] | None = None,
    groups: Sequence[Int[np.ndarray, " _"]] | None = None,
) -> BlockFactors:
    """Divide rows [W, tau] in memory, optionally weighted, into blocks of runs, or of a motion that the runs repeat."""
    labels = contiguous([len(x) for x in rows]) if groups is None else groups
    found = RowBlocks(labels, rows[0].shape[1], rows[0].shape[2], groups is not None)
    for run, x in enumerate(rows):
        found.absorb(run, 0, x, None if weights is None else weights[run])
    return found.factors


def weighted_blocks(
    blocks: BlockFactors, columns: Int[np.ndarray, " c"], weights: Float[np.ndarray, "runs n"]
) -> list[Float[np.ndarray, "_ c"]]:
    """Triangular factor of selected columns for each jackknife block, over the rows of all joints weighted by run and joint."""
    if blocks.groups is not None and len(weights) > 1:  # blocks that are left out together may span runs
        held = dataclasses.replace(blocks, r=blocks.r * weights[blocks.runs][:, :, None, None]).left_out
        weights = np.ones_like(weights[:1])
    else:
        held = blocks.left_out
    scale = weights[held.runs if len(weights) > 1 else 0 * held.runs]
    rows = ((r[:, :, columns] * w[:, None, None]).reshape(-1, len(columns)) for r, w in zip(held.r, scale, strict=True))
    return [triangle_of(x[x.any(axis=1)]) for x in rows]


def least_squares_covariance(
    parts: Sequence[Float[np.ndarray, "_ c"]],
    values: Float[np.ndarray, " b"],
    independent: Float[np.ndarray, "b b"],
    curved: Sequence[Float[np.ndarray, "_ b"]] | None = None,
    besides: Float[np.ndarray, "k b"] | None = None,
) -> Float[np.ndarray, "b b"]:
    """Jackknife covariance of a least-squares solution, from blocks of rows [W, y].

    The last column y is the right-hand side.

    Args:
        parts: the rows of each block.
        values: the solution.
        independent: covariance of the solution for independent residuals.
        curved: square root V of the Hessian V^T V of each block, needed if the weights depend on the residuals; by
            default W.
        besides: further rows of the fit, which are never left out, for example prior knowledge.
    """
    curved = [part[:, :-1] for part in parts] if curved is None else curved
    whole = triangle_of(np.concatenate([*curved, *(() if besides is None else (besides,))]))
    norms = np.linalg.norm(whole, axis=0)
    norms[norms == 0] = 1.0
    back = np.linalg.pinv(whole / norms, rcond=SINGULAR) / norms[:, None]
    scores = np.stack([(part[:, :-1] @ back).T @ (part[:, -1] - part[:, :-1] @ values) for part in parts])
    return left_out_covariance(np.stack([(v @ back).T @ (v @ back) for v in curved]), scores, back, independent)


def left_out_covariance(
    shares: Float[np.ndarray, "k b b"],
    scores: Float[np.ndarray, "k b"],
    back: Float[np.ndarray, "b b"],
    independent: Float[np.ndarray, "b b"],
) -> Float[np.ndarray, "b b"]:
    """Jackknife covariance of the solution of sum_k (s_k - H_k dx) = 0, from the solutions with one block left out.

    Args:
        shares: H_k H^-1 for each block, or similar matrices whose sum is the identity.
        scores: the score s_k of each block, in the same coordinates as `shares`.
        back: matrix that maps from these coordinates to the parameter values.
        independent: covariance of the values for independent residuals, which is returned if there is only one block.
    """
    k = len(scores)
    plain = np.diag(independent)
    if k < 2 or not plain.max(initial=0) > 0:
        return independent
    changes = np.stack([-back @ _without(share, s) for share, s in zip(shares, scores, strict=True)])
    off = changes - changes.mean(axis=0)
    found = (1 - 1 / k) * off.T @ off
    ratio = float(np.mean(np.diag(found)[plain > 0] / plain[plain > 0]))
    return ((k - 1) * found + PRIOR_DEGREES * ratio * independent) / (k - 1 + PRIOR_DEGREES)


def block_degrees(blocks: int) -> float:
    """Degrees of freedom of the jackknife covariance for Student's t (Smyth 2004), infinite for a single block."""
    return blocks - 1 + PRIOR_DEGREES if blocks > 1 else np.inf


def _without(share: Float[np.ndarray, "b b"], score: Float[np.ndarray, " b"]) -> Float[np.ndarray, " b"]:
    """Solve (I - share) x = score, replacing singular values of I - share below `LEAST_LEFT` by this value."""
    u, s, vt = np.linalg.svd(np.eye(len(score)) - share)
    return vt.T @ ((u.T @ score) / np.maximum(s, LEAST_LEFT))


def below(r: Float[np.ndarray, "k n m w"]) -> Float[np.ndarray, "n km w"]:
    """The rows of all blocks, stacked on top of each other for each joint."""
    k, n, m, w = r.shape
    return r.transpose(1, 0, 2, 3).reshape(n, k * m, w)

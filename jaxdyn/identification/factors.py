"""Triangular factors of blocks of a stacked regressor: merging, exchange between processes, files, and the jackknife.

Residual torques of a robot are rarely white: filters correlate noise, friction errors repeat with the motion, and
controllers are periodic. A jackknife, which leaves out one contiguous block of samples at a time, captures all these
effects without a noise model. If the runs repeat a motion, a block is one stretch of the motion, from all repetitions:
the errors of the model repeat with the motion, so blocks cut in time would not be independent.

Let x be the fit to all K blocks. Block k has the Hessian H_k = W_k^T W_k and the score s_k = W_k^T (tau_k - W_k x), and
H is the sum of all H_k. The fit without block k and the jackknife covariance J are then

    x_(-k) - x = -(H - H_k)^-1 s_k,      J = (K - 1) / K sum_k (x_(-k) - mean) (x_(-k) - mean)^T.

These expressions are exact and need only one triangular factor per block. J is too wide if residuals are independent and
each block contains information that the others lack; `left_out_covariance` tells from the scores how far this is so. Since
blocks must be much longer than the correlation time of the residuals, there are few of them, and the covariance has few
degrees of freedom. It is therefore shrunk towards the covariance for independent residuals, after scaling the latter by the
ratio of the two variances, averaged over the parameters.

Source: Quenouille 1956, Tukey 1958; Kunsch 1989 (blocks); Cameron & Miller 2015, sec. VI (CR3, few clusters); Smyth 2004
(variances shrunk towards a common one)."""

import dataclasses
import functools
import io
import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from .._jax_compat import process_allgather
from ..errors import IdentificationError, OutputError
from ..io.files import write_whole
from ..model.chain import Chain, layout
from .defaults import BLOCKS, LEAST_LEFT, LEFT_OUT, PRIOR_DEGREES

SHORT = 512  # samples per chunk


def by_chunks(function: Callable[..., jax.Array | np.ndarray], *arrays: np.ndarray) -> np.ndarray:
    """Apply a function to chunks of equal length, so that all runs share one program; return the results (N, ...)."""
    total, out = len(arrays[0]), None
    for at in range(0, max(total, 1), SHORT):
        found = np.asarray(function(*(filled(x[at : at + SHORT]) for x in arrays)))[: total - at]
        out = np.empty((total, *found.shape[1:])) if out is None else out
        out[at : at + len(found)] = found
    assert out is not None
    return out


def filled(x: np.ndarray) -> np.ndarray:
    """A chunk, padded with zeros to the full length of `SHORT` samples."""
    x = np.asarray(x, float)
    return x if len(x) == SHORT else np.concatenate([x, np.zeros((SHORT - len(x), *x.shape[1:]))])


def check_identifiable(chain: Chain) -> None:
    """Raise an IdentificationError for a floating base or spherical joints, whose motion joint logs do not contain."""
    if chain.topology.is_floating:
        raise IdentificationError(
            "this robot has a floating base: a log of its joints describes neither the motion of the base nor the contacts. "
            "Pass a MechanismLog with the base's pose and the contact wrenches (or the fixed frames)"
        )
    if curved := layout(chain).curved:
        name = chain.joint_names[curved[0].link]
        raise IdentificationError(
            f"{name!r} is a spherical joint, whose orientation a log of joint positions does not contain: pass samples with "
            "quaternions (MechanismLog)"
        )


def check_one_by_one(chain: Chain, what: str) -> None:
    """Raise an IdentificationError if the robot has coupled joints, for features that need uncoupled ones."""
    if chain.coupling is not None:
        raise IdentificationError(
            f"{what} needs a robot with uncoupled joints, but {chain.n} joints of this one depend on {chain.nv} coordinates. "
            "The drive terms viscous, coulomb and offset also work with coupled joints"
        )


def as_float64(chain: Chain) -> Chain:
    """Convert a chain to double precision, without its single-precision rounding errors.

    Call this function under `jax.enable_x64(True)`. Rotations are orthonormalised, axes are normalised, and screw
    pitches that are zero up to rounding errors are set to zero. Otherwise, rounding errors would make additional
    parameters seem identifiable, with a small effect on the torques.
    """
    whole = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), chain)
    if chain.dtype == np.float64:
        return whole
    u, _, vt = np.linalg.svd(np.asarray(whole.rotation))
    w, v = np.split(np.array(whole.screw), 2, axis=1)
    turns = np.any(w != 0, axis=1, keepdims=True)
    size = np.linalg.norm(np.where(turns, w, v), axis=1, keepdims=True)
    w, v = w / size, np.where(turns, v, v / size)
    pitch = (w * v).sum(1, keepdims=True)
    v = np.where(np.abs(pitch) < 1e-6 * np.linalg.norm(v, axis=1, keepdims=True), v - pitch * w, v)
    return dataclasses.replace(whole, rotation=jnp.asarray(u @ vt), screw=jnp.asarray(np.hstack([w, v])))


# -- factors


class QRFactors(NamedTuple):
    """Triangular factors of the stacked regressor and torque, one per joint.

    Attributes:
        r: (n, p + 1, p + 1) factors for p columns; the last column is the torque.
        counts: (n,) number of samples in each joint's factor.
    """

    r: np.ndarray
    counts: np.ndarray

    def with_signs(self, signs: Float[np.ndarray, " n"]) -> "QRFactors":
        """The factors after multiplying each joint's torque by its sign."""
        r = self.r.copy()
        r[:, :, -1] *= signs[:, None]
        return QRFactors(r, self.counts)

    def joint_rms(self, kept: Int[np.ndarray, " b"], values: Float[np.ndarray, " b"]) -> Float[np.ndarray, " n"]:
        """RMS torque residual of each joint, for given parameter values of the `kept` columns."""
        residual = self.r[:, :, -1] - self.r[:, :, kept] @ values
        return np.sqrt((residual**2).sum(1) / np.maximum(self.counts, 1))


def merge_factors(*factors: "BlockFactors") -> "BlockFactors":
    """Merge the factors of several parts of the samples; the blocks are those of all parts, sorted by run.

    Raises:
        IdentificationError: there are no factors, or they come from different robots or columns.
    """
    if not factors:
        raise IdentificationError("there are no factors to merge; pass at least one")
    return functools.reduce(BlockFactors.joined, factors)


def merge_over_processes(factors: "BlockFactors") -> "BlockFactors":
    """Merge the factors of all processes, each of its own samples, and return the merged factors on every process.

    Call `jax.distributed.initialize` first. Each process sends 8 k n (p + 1)^2 bytes for k blocks, however many samples
    there are.

    Raises:
        IdentificationError: the factors of the processes come from different robots or columns.
    """
    if jax.process_count() == 1:
        return factors
    own = factors.thinned()
    room = 2 * BLOCKS - len(own.runs)  # all processes send arrays of equal shape
    padded = [np.concatenate([x, np.zeros((room, *x.shape[1:]))]) for x in (own.r, own.counts, own.runs)]
    with jax.enable_x64(True):
        r, counts, runs = (np.asarray(x) for x in process_allgather(tuple(x.astype(np.float64) for x in padded)))
    parts = []
    for part, count, run in zip(r, counts, runs, strict=True):
        there = count.any(axis=1)
        parts.append(BlockFactors(part[there], count[there].astype(int), run[there].astype(int)))
    return merge_factors(*parts)


def save_factors(path: str | os.PathLike[str], factors: "BlockFactors") -> None:
    """Save factors to an .npz archive that contains the arrays `r`, `counts`, `runs` and `groups`.

    Raises:
        OutputError: the file cannot be written. An existing file remains unchanged.
    """
    held = io.BytesIO()
    groups = np.zeros(0, int) if factors.groups is None else factors.groups
    np.savez(held, r=factors.r, counts=factors.counts, runs=factors.runs, groups=groups)
    write_whole(path, held.getvalue(), OutputError)


def load_factors(path: str | os.PathLike[str]) -> "BlockFactors":
    """Load factors saved by `save_factors`; those without blocks, as written by version 0.2, are read as one block.

    Raises:
        IdentificationError: the file is missing, or was not written by `save_factors`.
    """
    name = os.fspath(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            held = {key: np.asarray(archive[key]) for key in archive.files if key in ("r", "counts", "runs", "groups")}
            r, counts = held["r"], held["counts"]
    except FileNotFoundError:
        raise IdentificationError(f"{name}: there is no such file; check the path") from None
    except Exception as error:
        raise IdentificationError(f"{name}: not a file written by `save_factors`: {error}") from None
    if "runs" not in held:
        r, counts = r[None], counts[None]
    runs, groups = held.get("runs", np.zeros(1, int)), held.get("groups", np.zeros(0, int))
    valid = all(x.dtype.kind in "iu" and (x >= 0).all() for x in (counts, runs, groups))
    valid &= r.dtype.kind == "f" and r.ndim == 4 and len(r) > 0 and r.shape[2] == r.shape[3] and np.isfinite(r).all()
    if not (
        valid and counts.shape == r.shape[:2] and runs.shape == r.shape[:1] and groups.shape in (r.shape[:1], (0,))
    ):
        raise IdentificationError(
            f"{name}: invalid factors: r has type {r.dtype} and shape {r.shape}, but must be finite with shape "
            f"(k, n, p + 1, p + 1); counts have type {counts.dtype} and shape {counts.shape}, but must be integers >= 0 with "
            "shape (k, n), with one run per block"
        )
    return BlockFactors(r, counts, runs.astype(int), groups.astype(int) if len(groups) else None)


def triangle_of(rows: Float[np.ndarray, "*batch m w"]) -> Float[np.ndarray, "*batch k w"]:
    """Factor R of a QR decomposition."""
    return np.asarray(np.linalg.qr(rows, mode="r"))


def triangles_of(rows: Float[np.ndarray, "n m w"]) -> Float[np.ndarray, "n w w"]:
    """Triangular factor of each joint's rows, padded with rows of zeros.

    In a kinematic tree, a joint's rows are zero in the columns of all links that the joint does not move. These
    columns, and rows of zeros, are excluded from the decomposition.
    """
    r = np.zeros((len(rows), rows.shape[2], rows.shape[2]), rows.dtype)
    for joint, x in enumerate(rows):
        seen, filled = np.flatnonzero(x.any(axis=0)), x.any(axis=1)
        if len(seen):
            small = triangle_of(x[filled][:, seen])
            r[joint, seen[: len(small), None], seen] = small
    return r


# -- blocks

SINGULAR = 1e-10  # directions with a smaller relative singular value, for columns of unit norm, are not fitted


def cleared(
    rows: Float[np.ndarray, "m w"], of: Sequence[int] | Int[np.ndarray, " j"], rest: Sequence[int]
) -> Float[np.ndarray, "m k"]:
    """Some columns of the rows, without what other columns, of any rank, can explain."""
    others = rows[:, list(of)]
    u, s, _ = np.linalg.svd(others / np.maximum(np.linalg.norm(others, axis=0), 1e-300), full_matrices=False)
    u = u[:, s > SINGULAR * s.max(initial=0)]
    found = rows[:, list(rest)]
    return found - u @ (u.T @ found)


@dataclasses.dataclass(frozen=True, eq=False)
class BlockFactors:
    """Triangular factors of the stacked regressor and torque, one for each joint and each contiguous block of a run.

    Attributes:
        r: (k, n, w, w) factors of k blocks and n joints; the last of the w columns is the torque.
        counts: (k, n) number of samples in each factor.
        runs: (k,) index of the run to which each block belongs; no block spans two runs.
        groups: (k,) the stretch of the motion that each block shows, if the runs repeat a motion (`Motion.groups`);
            blocks that show the same stretch are left out together. None if every block is a motion of its own.
        rows: the rows from which the factors were accumulated (`accumulate.Rows`), for estimators that weight rows; None if
            they are not available.
    """

    r: Float[np.ndarray, "k n w w"]
    counts: Int[np.ndarray, "k n"]
    runs: Int[np.ndarray, " k"]
    groups: Int[np.ndarray, " k"] | None = None
    rows: Any = None

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

    def mapped(self, maps: Sequence[Float[np.ndarray, "p w"]]) -> "BlockFactors":
        """The factors for other parameters x: those of the columns in the blocks of run k are maps[k] @ x."""
        rows = [np.concatenate([r[..., :-1] @ maps[k], r[..., -1:]], 2) for r, k in zip(self.r, self.runs, strict=True)]
        return self.with_rows(np.stack(rows))

    def with_rows(self, rows: Float[np.ndarray, "k j m v"], joints: slice = slice(None)) -> "BlockFactors":
        """The blocks, or those of some joints, with other columns, brought to triangular form."""
        r = np.stack([triangles_of(block) for block in rows])
        return dataclasses.replace(self, r=r, counts=self.counts[:, joints], rows=None)

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
        """These blocks and those of another object, sorted by run, without `rows`; both may have blocks of the same run."""
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

    def thinned(self) -> "BlockFactors":
        """The blocks of one run, with the shortest neighbours merged until at most twice `BLOCKS` are left."""
        starts, samples = np.arange(len(self.runs)), self.counts.max(axis=1)
        while len(starts) > 2 * BLOCKS:
            own = np.add.reduceat(samples, starts)
            starts = np.delete(starts, 1 + int(np.argmin(own[1:] + own[:-1])))
        return self.merged(np.searchsorted(starts, np.arange(len(self.runs)), side="right"))


def equal_blocks(length: int, count: int) -> list[tuple[int, int]]:
    """Limits (start, stop) of `count` blocks of about equal length."""
    return list(itertools.pairwise(np.linspace(0, length, count + 1).astype(int).tolist()))


def contiguous(lengths: Sequence[int], count: int = BLOCKS) -> list[Int[np.ndarray, " _"]]:
    """For each run, the block to which each of its samples belongs: `count` blocks in total, of about equal length."""
    total = max(sum(lengths), 1)
    many = [min(length, max(1, round(count * length / total))) for length in lengths]
    return [numbered(equal_blocks(length, m)) for length, m in zip(lengths, many, strict=True)]


def numbered(blocks: Sequence[tuple[int, int]]) -> Int[np.ndarray, " N"]:
    """The number of the block to which each sample belongs, from the limits of the blocks."""
    return np.repeat(np.arange(len(blocks)), [b - a for a, b in blocks])


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
            part = np.flatnonzero(own == label)
            scaled = (rows[part] * mask[part, :, None]).transpose(1, 0, 2)
            both = np.concatenate([self.r[k], scaled], axis=1) if self.counts[k].any() else scaled
            self.r[k] = triangles_of(both)
            self.counts[k] += (mask[part] != 0).sum(0)

    @property
    def factors(self) -> BlockFactors:
        """The factors of all rows absorbed so far."""
        groups = np.concatenate(self.blocks) if self.grouped else None
        return BlockFactors(self.r, self.counts, np.repeat(np.arange(len(self.labels)), np.diff(self.starts)), groups)


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
    """Covariance of the solution of sum_k (s_k - H_k dx) = 0 from its blocks, for residuals that may be correlated.

    Two estimates are combined, both with the scores at the solution and H = sum_k H_k:

    - the jackknife J, from the changes (H - H_k)^-1 s_k of the solution if one block is left out. It holds if the model has
      errors that one block shows and the others do not, but is too wide if residuals are independent;
    - the bias-reduced estimate B, from the changes H^-1/2 (H - H_k)^-1/2 s_k, which is unbiased for independent residuals
      (Bell & McCaffrey 2002).

    With the mean ratio r > 1 of the variances in B to those of independent residuals, the covariance is J + (B - J) / r^2;
    for r <= 1, it is B. It is finally shrunk towards that of independent residuals, scaled by the mean ratio of variances.

    Args:
        shares: H_k H^-1 for each block, or similar matrices whose sum is the identity.
        scores: the score s_k of each block, in the same coordinates as `shares`.
        back: matrix that maps from these coordinates to the parameter values.
        independent: covariance of the values for independent residuals, which is returned if there is only one block.
    """
    k = len(scores)
    seen = np.diag(independent) > 0
    if k < 2 or not seen.any():
        return independent
    ratio = lambda covariance: float(np.mean(np.diag(covariance)[seen] / np.diag(independent)[seen]))
    changes, halfway = np.stack([_without(*x) for x in zip(shares, scores, strict=True)], axis=1) @ back.T
    off = changes - changes.mean(axis=0)
    left_out, reduced = (1 - 1 / k) * off.T @ off, halfway.T @ halfway
    found = left_out + (reduced - left_out) / max(1.0, ratio(reduced)) ** 2
    return ((k - 1) * found + PRIOR_DEGREES * ratio(found) * independent) / (k - 1 + PRIOR_DEGREES)


def block_degrees(blocks: int) -> float:
    """Degrees of freedom of the jackknife covariance for Student's t (Smyth 2004), infinite for a single block."""
    return blocks - 1 + PRIOR_DEGREES if blocks > 1 else np.inf


def bounded_intervals(
    values: float | Float[np.ndarray, "*p"], reach: float | Float[np.ndarray, "*p"], bounds: Float[np.ndarray, "*p 2"]
) -> Float[np.ndarray, "*p 2"]:
    """Intervals (lower, upper), values +- reach, that end at the bounds; a value beyond its bound is an end itself."""
    low, high = np.moveaxis(bounds, -1, 0)
    ends = np.maximum(values - reach, np.minimum(low, values)), np.minimum(values + reach, np.maximum(high, values))
    return np.stack(ends, axis=-1)


def _without(share: Float[np.ndarray, "b b"], score: Float[np.ndarray, " b"]) -> Float[np.ndarray, "2 b"]:
    """(I - share)^-p score for p = 1 and 1/2; for p = 1, singular values of I - share are at least `LEAST_LEFT`.

    For p = 1/2, such a limit would make the variances too small, since a score vanishes with I - share.
    """
    u, s, vt = np.linalg.svd(np.eye(len(score)) - share)
    left = np.stack([np.maximum(s, LEAST_LEFT), np.sqrt(np.maximum(s, SINGULAR))])
    return (u.T @ score / left) @ vt


def below(r: Float[np.ndarray, "k n m w"]) -> Float[np.ndarray, "n km w"]:
    """The rows of all blocks, stacked on top of each other for each joint."""
    k, n, m, w = r.shape
    return r.transpose(1, 0, 2, 3).reshape(n, k * m, w)

"""Triangular factors of rows that arrive in blocks, by Householder QR and preconditioned Cholesky QR.

The first rows are factorised by Householder QR. Let R be their factor, D the diagonal matrix of its column norms, eps
the square root of the machine precision, and P an invertible triangular factor with P^T P = R^T R + (eps D)^2. Each
further block of rows W is preconditioned to C = W P^-1, and C^T C is added to a sum G. The columns of C are of order
one, whatever the condition number of W. The factor of all rows is the triangular factor of G times P.

The norm |R x| is accurate to rounding error for directions x that earlier rows excited. For other directions, the error
of this norm is of the order of the rounding errors of the column norms. A QR decomposition has the same accuracy, but
this method needs only matrix products. If a block excites a new direction, C is large. Such a block is absorbed by
Householder QR, and P is computed again.

Source: Yamamoto, Nakatsukasa, Yanagisawa & Fukaya 2015 (CholeskyQR2) and Fukaya et al. 2020 (shifted CholeskyQR), here
with a preconditioner from previous rows; Demmel, Grigori, Hoemmen & Langou 2012 (TSQR) for merging factors.

Square-root accumulation of a stacked regressor into one triangular factor per joint.

Let [W_j, tau_j] be the rows of joint j for all samples, with p columns in W_j. The triangular factor R_j of their QR
decomposition satisfies R_j^T R_j = [W_j, tau_j]^T [W_j, tau_j], so it preserves all norms and inner products of the
columns. Unlike the normal equations, R_j does not square the condition number. It needs O(p^2) memory per joint,
however long the log is."""

import concurrent.futures
import dataclasses
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Float, Int

from ..errors import IdentificationError
from ..model.chain import Chain
from .columns import Columns, Layout, by_block, joint_rows, layout_of, packed
from .factors import (
    BLOCKS,
    BlockFactors,
    QRFactors,
    as_float64,
    block_edges,
    block_factors,
    combined,
    rows_of,
    triangle_of,
    triangles_of,
)
from .prediction import SHORT, chunk_rows, dry_rows, filled
from .preprocessing import Samples

LONG, LONG_ELSEWHERE = 4096, 1 << 16  # samples per block and device for matrix products: on a CPU, and on a GPU
EPSILON = float(np.sqrt(np.finfo(np.float64).eps))
LIMIT = 1e4  # a block excites a new direction if the sum of squares of a column of C exceeds this threshold
PARTS = ("q", "qd", "qdd", "tau", "weights", "signals")


class Triangle:
    """Triangular factors that one thread accumulates from blocks of samples."""

    def __init__(self, columns: Columns, chain: Chain, signals: int, mesh: Mesh):
        self.columns, self.mesh = columns, mesh
        self.layout = layout_of(columns, chain, signals, on_cpu(mesh))
        self.given = chain
        self.chain = jax.device_put(chain, NamedSharding(mesh, PartitionSpec()))
        self.short, self.long = SHORT, mesh.size * (LONG if on_cpu(mesh) else LONG_ELSEWHERE)
        self.factors: list[np.ndarray] = [np.zeros((0, len(c))) for c in self.layout.of_joint]
        self.conditioner: list[np.ndarray] = []
        self.inverse: tuple[jax.Array, ...] = ()
        self.gram: list[np.ndarray] = []

    def absorb(self, block: Sequence[np.ndarray], at: int) -> None:
        """Absorb a block (q, qd, qdd, tau, weights, signals) whose first sample has index `at` among all samples.

        Raises:
            IdentificationError: the samples contain non-finite numbers.
        """
        if len(block[0]) > self.short:
            self._condition()
            samples = placed(block, self.long, self.layout, self.mesh)
            packed = np.asarray(_products(self.columns, self.layout, self.mesh, self.chain, self.inverse, samples))
            ends = np.cumsum([len(c) ** 2 for c in self.layout.of_joint])[:-1]
            grams = [
                g.reshape(-1, len(c), len(c)).sum(0)
                for g, c in zip(np.split(packed, ends, axis=1), self.layout.of_joint, strict=True)
            ]
            if max(g.diagonal().max() for g in grams) <= LIMIT:
                self.gram = [a + b for a, b in zip(self.gram, grams, strict=True)]
                if max(g.diagonal().max() for g in self.gram) > LIMIT:
                    self._fold()
                return
        for k in range(0, len(block[0]), self.short):
            self._triangularise([x[k : k + self.short] for x in block], at + k)

    def result(self) -> Float[np.ndarray, "n w w"]:
        """The factors of all samples absorbed so far, with all columns of the regressor."""
        self._fold()
        out = np.zeros((len(self.factors), self.layout.width, self.layout.width))
        for r, columns, whole in zip(self.factors, self.layout.of_joint, out, strict=True):
            full = np.zeros((len(columns), len(columns)))
            full[: len(r)] = r
            whole[np.ix_(columns, columns)] = full
        return out

    def _triangularise(self, block: Sequence[np.ndarray], at: int) -> None:
        self._fold()
        q, qd, qdd, tau, weights, signals = block
        rigid = chunk_rows(self.columns, self.given, *map(filled, (q, qd, qdd)))[: len(q)]
        rows = np.concatenate([rigid, signals, tau[:, :, None]], axis=2, dtype=np.float64) * weights[:, :, None]
        if not np.isfinite(rows).all():
            raise IdentificationError(_not_finite(block, at))
        parts = (rows[:, j, list(columns)] for j, columns in enumerate(self.layout.of_joint))
        self.factors = [triangle_of(np.concatenate(pair)) for pair in zip(self.factors, parts, strict=True)]

    def _condition(self) -> None:
        """Compute the preconditioner P and its inverse from the factors."""
        if self.inverse:
            return
        self.conditioner, self.gram, inverses = [], [], []
        for r in self.factors:
            norms = np.linalg.norm(r, axis=0)
            norms[norms == 0] = norms.max() or 1.0
            p = triangle_of(np.concatenate([r, np.diag(EPSILON * norms)]))
            inverse = np.linalg.inv(p)
            seen = r @ inverse
            self.conditioner.append(p)
            self.gram.append(seen.T @ seen)
            inverses.append(inverse.T)
        self.inverse = jax.device_put(tuple(inverses), NamedSharding(self.mesh, PartitionSpec()))

    def _fold(self) -> None:
        """Compute the factors from the accumulated products."""
        if not self.inverse:
            return
        for j, (g, p) in enumerate(zip(self.gram, self.conditioner, strict=True)):
            values, vectors = np.linalg.eigh(g)
            root = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T
            self.factors[j] = triangle_of(root @ p)
        self.inverse = ()


def placed(block: Sequence[np.ndarray], size: int, layout: Layout, mesh: Mesh) -> jax.Array:
    """Pack the samples of a block, pad them to `size` with samples of weight zero, and shard them over the devices."""
    each = -(-size // mesh.size)
    size = mesh.size * (each + -each % min(each, layout.block))
    return jax.device_put(packed(block, size), NamedSharding(mesh, PartitionSpec(mesh.axis_names)))


def on_cpu(mesh: Mesh) -> bool:
    """True if the devices are CPU devices."""
    return mesh.devices.flat[0].platform == "cpu"


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _products(columns: Columns, layout: Layout, mesh: Mesh, chain: Chain, inverse, samples):
    """Products C^T C of all joints, flattened, with one row per device; `inverse` contains P^-T for each joint."""

    def local(chain, inverse, samples):
        def add(totals, x):
            whitened = [p @ w for p, w in zip(inverse, joint_rows(columns, layout, chain, x), strict=True)]
            return [t + c @ c.T for t, c in zip(totals, whitened, strict=True)], None

        start = [jnp.zeros_like(p) for p in inverse]
        totals, _ = jax.lax.scan(add, start, by_block(layout, samples))
        return jnp.concatenate([t.reshape(-1) for t in totals])[None]

    by_rows, everywhere = PartitionSpec(mesh.axis_names), PartitionSpec()
    specs = (everywhere, everywhere, by_rows)
    return jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=by_rows, check_vma=False)(chain, inverse, samples)


def _not_finite(block: Sequence[np.ndarray], at: int) -> str:
    for name, x in zip(PARTS, block, strict=True):
        bad = ~np.isfinite(x.reshape(len(x), -1)).all(axis=1)
        if bad.any():
            return (
                f"{name} of sample {at + int(np.argmax(bad))} (counted from 0) is not finite; remove such samples "
                "(a weight of zero does not suffice)"
            )
    return (
        f"the regressor is not finite in samples {at} to {at + len(block[0]) - 1}: check the user-defined columns there"
    )


# -- accumulate

WARM = 1 << 14  # number of samples processed by QR before switching to matrix products, which take longer to compile


def accumulate(
    columns: Columns,
    chain: Chain,
    q: np.ndarray,
    qd: np.ndarray,
    qdd: np.ndarray,
    tau: np.ndarray,
    weights: np.ndarray | None = None,
    start: QRFactors | None = None,
    progress: Callable[[int], None] | None = None,
    signals: np.ndarray | None = None,
) -> QRFactors:
    """Accumulate the triangular factors of a stacked regressor from arrays in memory; see `accumulate_stream`.

    Args:
        q: (N, n) positions, or (N, nq) if the robot's coordinates differ from its joints [rad or m].
        qd: (N, n) velocities, or (N, nv) if the robot's coordinates differ from its joints [rad/s or m/s].
        qdd: accelerations, of the same shape as `qd` [rad/s^2 or m/s^2].
        tau: torques, of the same shape as `qd` [N m or N].
        weights: (N, n) factors by which the rows are multiplied, by default one; zero excludes a sample from the
            equations of a joint.
        start: factors to which the samples are added, for example those of an earlier log.
        progress: called with the number of samples accumulated so far.
        signals: (N, n, k) further columns, placed between `columns` and the torque. They describe terms that depend on
            the history of the motion, such as friction with memory.
    """
    return accumulate_stream(columns, chain, [(q, qd, qdd, tau, weights, signals)], start=start, progress=progress)


def accumulate_blocks(
    columns: Columns,
    chain: Chain,
    runs: Sequence[Sequence[Any]],
    progress: Callable[[int], None] | None = None,
    count: int = BLOCKS,
    edges: Sequence[Sequence[tuple[int, int]]] | None = None,
    groups: Sequence[Int[np.ndarray, " _"]] | None = None,
) -> BlockFactors:
    """Accumulate the triangular factors of contiguous blocks of runs, or of stretches of a repeated motion, in one pass.

    The factors suffice to fit all or part of the runs, and to compute covariances. Each block needs 8 n (p + 1)^2
    bytes, for n joints and p columns.

    Args:
        columns: the identified columns.
        chain: the robot.
        runs: arrays (q, qd, qdd, tau[, weights[, signals]]) of each run, as for `accumulate`, in SI units.
        progress: called with the number of samples accumulated so far.
        count: total number of blocks, which are of about equal length. Each run has at least one.
        edges: limits (start, stop) of the blocks of each run, as sample indices with stop excluded. If specified, they
            replace the `count` blocks of equal length.
        groups: for each run, the stretch of a repeated motion that each sample shows (`Motion.groups`). A block then
            consists of all samples of a run that show the same stretch.

    Raises:
        IdentificationError: as for `accumulate_stream`.
    """
    found, labels, stretches, done = [], [], [], 0
    if groups is None:
        edges = block_edges([len(run[0]) for run in runs], count) if edges is None else edges
        parts = [[(0, slice(a, b)) for a, b in own] for own in edges]
    else:
        parts = [[(k, rows_of(own, k)) for k in np.unique(own).tolist()] for own in groups]
    for label, (run, own) in enumerate(zip(runs, parts, strict=True)):
        for group, rows in own:
            found.append(accumulate_stream(columns, chain, [[None if x is None else x[rows] for x in run]]))
            labels.append(label)
            stretches.append(group)
            done += len(run[0][rows])
            if progress is not None:
                progress(done)
    if not found:
        raise IdentificationError("there are no samples to accumulate; pass at least one run")
    return block_factors(found, labels, None if groups is None else stretches)


def accumulate_samples(
    columns: Columns,
    chain: Chain,
    runs: Sequence[tuple[Samples, np.ndarray, np.ndarray | None, np.ndarray | None]],
    progress: Callable[[int], None] | None = None,
    count: int = BLOCKS,
    edges: Sequence[Sequence[tuple[int, int]]] | None = None,
    groups: Sequence[Int[np.ndarray, " _"]] | None = None,
) -> BlockFactors:
    """`accumulate_blocks` for filtered samples: columns of dry friction are low-pass filtered like the torques.

    Args:
        runs: samples, torques (N, nv), weights and signals (or None) of each run.
    """
    rest, dry, others, at = columns.apart_from_dry(chain.n)
    data = []
    for s, tau, weights, signals in runs:
        beside = [dry_rows(dry, chain, s), *([] if signals is None else [signals])]
        data.append((s.q, s.qd, s.qdd, tau, weights, np.concatenate(beside, axis=2)))
    blocks = accumulate_blocks(rest, chain, data, progress, count, edges, groups)
    if not len(at):
        return blocks
    order = np.argsort([*others, *at, *range(len(others) + len(at), blocks.r.shape[3])])
    r = blocks.r[..., order]
    return dataclasses.replace(blocks, r=np.stack([triangles_of(block) for block in r]))


def accumulate_stream(
    columns: Columns,
    chain: Chain,
    chunks: Iterable[Samples | Sequence[Any]],
    *,
    start: QRFactors | None = None,
    progress: Callable[[int], None] | None = None,
    mesh: Mesh | None = None,
) -> QRFactors:
    """Accumulate the triangular factors of a stacked regressor from samples that arrive in chunks, in bounded memory.

    The factor R_j of joint j satisfies R_j^T R_j = sum over samples of [W_j, tau_j]^T [W_j, tau_j], and it contains all
    that least squares needs, however long the log is. Only the factors (8 n (p + 1)^2 bytes for n joints and p columns)
    and a few thousand samples are held in memory.

    Samples are distributed over the devices of this process and, on a CPU, over one thread per core. Up to rounding
    errors, the result does not depend on how samples are divided into chunks or on the devices. If there are several
    processes, each accumulates its own samples, and `merge_over_processes` combines their factors. All computations use
    float64, regardless of JAX's configuration.

    Args:
        columns: the identified columns.
        chain: the robot; its inertias are not used.
        chunks: `Samples`, for example from `preprocess_stream`, or tuples (q, qd, qdd, tau[, weights[, signals]]) of
            (N, n) arrays of any length N, in SI units. Rows are multiplied by their weights; a weight of zero excludes
            a sample from the equations of a joint. The signals are k further columns, of shape (N, n, k).
        start: factors to which samples are added, for example those of an earlier log or of an interrupted accumulation
            (`save_factors`).
        progress: called with the number of samples accumulated so far.
        mesh: devices of this process to use; by default all.

    Raises:
        IdentificationError: there are no samples, the arrays have inconsistent shapes or contain non-finite numbers, or
            `start` was accumulated for different columns.

    Cost: O(n^2 + sum_j c_j^2) per sample, where c_j is the number of columns that can be nonzero for joint j. For a
    7-joint arm with 91 columns, this is about 4 us per sample and core.
    """
    mesh = local_mesh() if mesh is None else mesh
    source = _Blocks(chain, iter(chunks))
    if not source.there:
        if start is None:
            raise IdentificationError("there are no samples to accumulate; the chunks are empty")
        return start
    width = len(columns.names(chain.n)) + source.signals + 1
    if start is not None and start.r.shape != (chain.nv, width, width):
        raise IdentificationError(
            f"the factors to continue from have shape {start.r.shape}, but these columns need {(chain.nv, width, width)}"
        )
    with jax.enable_x64(True):
        model = as_float64(chain)
        triangles = [Triangle(columns, model, source.signals, mesh) for _ in range(workers_of(mesh))]
        used = _drive(triangles, source, progress)
        parts = [t.result() for t in triangles[:used]]
    if start is None:
        return QRFactors(combined(parts), source.counts)
    return QRFactors(combined([start.r, *parts]), start.counts + source.counts)


def _drive(triangles: Sequence[Triangle], source: "_Blocks", progress: Callable[[int], None] | None) -> int:
    """Distribute blocks of samples over the triangles, one thread each, and return the number of triangles used."""
    short, long, workers = triangles[0].short, triangles[0].long, len(triangles)

    def absorb(triangle: Triangle, block: list[np.ndarray], at: int) -> int:
        with jax.enable_x64(True):  # a new thread has JAX's default precision
            triangle.absorb(block, at)
        return len(block[0])

    done, number, compiled = 0, 0, set()
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        pending: list[concurrent.futures.Future[int]] = []

        def wait(most: int) -> None:
            nonlocal done
            while len(pending) > most:
                done += pending.pop(0).result()
                if progress is not None:
                    progress(done)

        while source.there:
            at = source.taken
            size = long if at >= WARM and source.ready(long) >= long // 4 else short
            pending.append(pool.submit(absorb, triangles[number % workers], source.take(size), at))
            number += 1
            wait(workers - 1 if size in compiled else 0)  # prevents two threads from compiling the same program
            compiled.add(size)
        wait(0)
    return min(workers, number)


class _Blocks:
    """Blocks of any requested size, assembled from chunks of any size; each chunk is checked when it is read."""

    def __init__(self, chain: Chain, chunks: Iterator[Samples | Sequence[Any]]):
        self.positions, self.n = chain.nq, chain.nv
        self.chunks, self.taken = chunks, 0
        self.counts = np.zeros(self.n, int)
        self.held: list[list[np.ndarray]] = []
        self.signals = -1
        self.ready(1)

    @property
    def there(self) -> bool:
        """True if samples remain."""
        return self.ready(1) > 0

    def ready(self, wanted: int) -> int:
        """Fetch chunks until `wanted` samples are available; return the number available, at most `wanted`."""
        count = sum(len(parts[0]) for parts in self.held)
        while count < wanted:
            chunk = next(self.chunks, None)
            if chunk is None:
                break
            if isinstance(chunk, Samples):
                chunk = (chunk.q, chunk.qd, chunk.qdd, chunk.tau)
            parts = self._checked(chunk)
            self.counts += len(parts[0]) if len(chunk) < 5 or chunk[4] is None else (parts[4] != 0).sum(0)
            if len(parts[0]):
                self.held.append(parts)
            count += len(parts[0])
        return min(count, wanted)

    def take(self, size: int) -> list[np.ndarray]:
        """The next samples, at most `size`."""
        count = self.ready(size)
        self.taken += count
        out: list[list[np.ndarray]] = []
        while count:
            parts = self.held.pop(0)
            out.append([x[:count] for x in parts])
            if len(parts[0]) > count:
                self.held.insert(0, [x[count:] for x in parts])
            count -= len(out[-1][0])
        return out[0] if len(out) == 1 else [np.concatenate(x) for x in zip(*out, strict=True)]

    def _checked(self, chunk: Sequence[Any]) -> list[np.ndarray]:
        if not 4 <= len(chunk) <= 6:
            raise IdentificationError(
                f"a chunk has {len(chunk)} arrays; it must contain q, qd, qdd and tau, and optionally weights and signals"
            )
        total = len(chunk[0])
        weights, signals = (*chunk[4:], None, None)[:2]
        weights = np.broadcast_to(1.0, (total, self.n)) if weights is None else weights
        signals = np.zeros((total, self.n, 0)) if signals is None else signals
        parts = [np.asarray(x) for x in (*chunk[:4], weights, signals)]
        for name, x in zip(PARTS, parts, strict=True):
            width = self.positions if name == "q" else self.n
            expected = (total, width, *x.shape[2:3]) if name == "signals" else (total, width)
            if x.shape != expected or (name == "signals" and x.ndim != 3):
                axes = f"({total}, {width}{', k' if name == 'signals' else ''})"
                raise IdentificationError(
                    f"{name} have shape {x.shape}; for {total} samples of {self.n} joints, it must be {axes}"
                )
        if self.signals not in (-1, parts[5].shape[2]):
            raise IdentificationError(f"a chunk has {parts[5].shape[2]} signals, but earlier chunks had {self.signals}")
        self.signals = parts[5].shape[2]
        return parts


def local_mesh() -> Mesh:
    """A mesh of all devices of this process."""
    return Mesh(np.array(jax.local_devices()), ("batch",), axis_types=(AxisType.Auto,))


def workers_of(mesh: Mesh) -> int:
    """Number of threads: one per core on a CPU, where XLA runs such programs on one core per device; one on other devices."""
    if not on_cpu(mesh):
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // mesh.size)

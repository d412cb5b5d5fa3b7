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
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Float

from ...errors import IdentificationError
from ...model._chain import Chain
from .assembly import Layout, by_block, joint_rows, layout_of, packed
from .columns import Columns
from .factors import triangle_of
from .rows import SHORT, chunk_rows, filled

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

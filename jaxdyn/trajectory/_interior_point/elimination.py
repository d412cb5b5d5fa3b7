"""Block elimination for the saddle-point systems of constrained Newton steps, stage by stage.

Each block is a linear system

    [ P   D^T    ] [z]   [r1]
    [ D  -delta I] [y] = [r2].

With delta > 0, the rows of D may be linearly dependent. Adding rho D^T times the second row to the first does not change the
solution, but it makes the pivot P + rho D^T D positive definite, provided that P is positive definite on the null space of D
and rho is large enough. A successful Cholesky factorisation therefore shows that the matrix has the inertia required at a
minimum.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Float


class Pivot(NamedTuple):
    """Factors of a block: L^-1, L^-1 D^T, C^-1, rho and delta.

    L and C are the Cholesky factors of P + rho D^T D = L L^T and (1 - rho delta) D (L L^T)^-1 D^T + delta I = C C^T. All
    factors are NaN if a factorisation fails.
    """

    root: Float[Array, "*stages n n"]
    across: Float[Array, "*stages n m"]
    weight: Float[Array, "*stages m m"]
    rho: Float[Array, "*stages"]
    delta: Float[Array, "*stages"]


def pivot(p: Float[Array, "n n"], d: Float[Array, "m n"], rho: Float[Array, ""], delta: Float[Array, ""]) -> Pivot:
    """Factor one block, in O(n^3 + n^2 m + m^3)."""
    root = _inverse_root(p + rho * d.T @ d)
    across = root @ d.T
    small = (1 - rho * delta) * across.T @ across
    return Pivot(root, across, _inverse_root(small + delta * jnp.eye(len(d), dtype=d.dtype)), rho, delta)


def block_forward(block: Pivot, r1: Float[Array, " n"], r2: Float[Array, " m"]) -> tuple[Array, Array]:
    """Forward substitution: y = L^-1 (r1 + rho D^T r2) and w = C^-1 (D (L L^T)^-1 (r1 + rho D^T r2) - r2)."""
    # D^T = L (L^-1 D^T), and therefore L^-1 rho D^T r2 = rho (L^-1 D^T) r2
    y = block.root @ r1 + block.rho * (block.across @ r2)
    return y, block.weight @ (block.across.T @ y - r2)


def block_backward(
    block: Pivot, y: Float[Array, " n"], w: Float[Array, " m"], after: Float[Array, " m"]
) -> tuple[Array, Array]:
    """Back substitution for (z, multipliers); `after` is the term that the next stage's z adds to the second row."""
    share = 1 - block.rho * block.delta
    multipliers = block.weight.T @ (w + block.weight @ after / share) - block.rho / share * after
    return block.root.T @ (y - block.across @ (share * multipliers + block.rho * after)), multipliers


class StageFactors(NamedTuple):
    """Factors of stages 0 ... N - 1, stacked, and of the last stage.

    `right` contains the Jacobian R of each stage's rows with respect to the next stage's z.
    """

    stages: Pivot
    right: Float[Array, "N m n"]
    last: Pivot


def factor_stages(
    p: Float[Array, "S n n"],
    left: Float[Array, "N m n"],
    right: Float[Array, "N m n"],
    last: Float[Array, "k n"],
    rho: Float[Array, ""],
    delta: Float[Array, ""],
) -> StageFactors:
    """Factor S = N + 1 stages with rows left_k z_k + right_k z_{k+1} - delta y_k, followed by rows last z_N - delta y_N.

    The factorisation proceeds from the first stage to the last. As in an information filter, each stage adds R^T ((C C^T)^-1 -
    rho I) R / (1 - rho delta) to the P of the next stage, where C is the factor described in `Pivot`. Cost: O(N (n^3 + m^3)).
    """

    def stage(carried, x):
        own, d, r = x
        block = pivot(own + carried, d, rho, delta)
        seen = block.weight @ r
        carried = (seen.T @ seen - rho * r.T @ r) / (1 - rho * delta)
        return carried, block

    carried, blocks = jax.lax.scan(stage, jnp.zeros_like(p[0]), (p[:-1], left, right))
    return StageFactors(blocks, right, pivot(p[-1] + carried, last, rho, delta))


def solve_stages(
    factors: StageFactors, r1: Float[Array, "S n"], r2: Float[Array, "N m"], last: Float[Array, " k"]
) -> tuple[Array, Array, Array]:
    """Solve for z, the multipliers of all stages' rows, and those of the last rows, in two passes: O(N (n + m)^2)."""

    def forward(carried, x):
        block, r, own, rows = x
        y, w = block_forward(block, own - carried, rows)
        return r.T @ (block.weight.T @ w), (y, w)

    carried, (y, w) = jax.lax.scan(forward, jnp.zeros_like(r1[0]), (factors.stages, factors.right, r1[:-1], r2))
    end, end_multipliers = block_backward(
        factors.last, *block_forward(factors.last, r1[-1] - carried, last), jnp.zeros_like(last)
    )

    def backward(following, x):
        block, r, y, w = x
        z, multipliers = block_backward(block, y, w, r @ following)
        return z, (z, multipliers)

    _, (z, multipliers) = jax.lax.scan(backward, end, (factors.stages, factors.right, y, w), reverse=True)
    return jnp.concatenate([z, end[None]]), multipliers, end_multipliers


def _inverse_root(matrix: Array) -> Array:
    """L^-1 for a matrix L L^T; NaN if the matrix is not positive definite."""
    if matrix.shape[0] == 0:
        return matrix
    lower = jax.lax.linalg.cholesky(matrix, symmetrize_input=False)
    return solve_triangular(lower, jnp.eye(len(matrix), dtype=matrix.dtype), lower=True)

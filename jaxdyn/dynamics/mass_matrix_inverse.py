"""The inverse of the mass matrix, and solving with it: symmetric sweeps for small robots, Cholesky for large ones."""

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve, solve_triangular
from jaxtyping import Array, Float

from ..model.chain import Chain
from .lowering import by_batch, sparse_jvp
from .mass_matrix import crba

SMALL = 56  # velocities: up to there eliminating in a kernel is several times faster than LAPACK (docs/benchmarks.md)
BLOCK = 4  # rows eliminated at once


def mass_matrix_inverse(chain: Chain, q: Float[Array, " nq"]) -> Float[Array, "nv nv"]:
    """M(q)^-1, by `crba` and elimination, O(n^3) but fast up to some fifty velocities.

    Symmetric; its columns are the accelerations at unit torques. Its derivative is -M^-1 dM M^-1: nothing is differentiated
    through the elimination [1/(kg m^2)].

    Returns:
        The inverse; meaningless (huge, infinite or NaN) where M(q) is singular.
    """
    return _inverse(chain, q)


@jax.custom_jvp
def _inverse(chain: Chain, q: Array) -> Array:
    return inverse_of_mass_matrix(crba(chain, q))


def _inverse_jvp(primals, tangents):
    inverse = _inverse(*primals)
    _, change = sparse_jvp(crba, primals, tangents)
    return inverse, -inverse @ change @ inverse


_inverse.defjvp(_inverse_jvp, symbolic_zeros=True)


def inverse_of_mass_matrix(matrix: Float[Array, "nv nv"]) -> Float[Array, "nv nv"]:
    """The inverse of a symmetric positive definite matrix: by elimination, or by L^-T L^-1 with its Cholesky factor L."""
    if matrix.shape[0] <= SMALL:
        return positive_inverse(matrix)
    root = solve_triangular(jnp.linalg.cholesky(matrix), jnp.eye(matrix.shape[0], dtype=matrix.dtype), lower=True)
    return root.T @ root


@by_batch(size=lambda matrix: 5 * matrix.shape[0] ** 2 // 2)
def positive_inverse(matrix: Float[Array, "n n *#lanes"]) -> Float[Array, "n n *#lanes"]:
    """The inverse of a symmetric positive definite matrix, by symmetric sweeps (Goodnight 1979), O(n^3).

    BLOCK rows P at a time, so that the matrix is read and written n / BLOCK times: with B = A_PP^-1, A_PP becomes -B, A_Pj
    becomes B A_Pj, and A_ij becomes A_ij - A_iP B A_Pj. No pivots are searched: such a matrix needs none.
    """
    n, block = matrix.shape[0], min(BLOCK, matrix.shape[0])
    blocks = -(-n // block)
    lanes = (1,) * (matrix.ndim - 2)
    columns = jnp.arange(blocks * block)
    if beyond := blocks * block - n:  # filled up with the identity
        ones = (jnp.diag(columns >= n)).astype(matrix.dtype).reshape(columns.size, columns.size, *lanes)
        matrix = jnp.pad(matrix, ((0, beyond), (0, beyond)) + ((0, 0),) * len(lanes)) + ones

    def sweep(panel, x):
        """Of some rows: eliminate by one of them."""
        row, pivot = x
        here = (columns == pivot).reshape(-1, *lanes)
        chosen = (jnp.arange(block) == row).reshape(-1, 1, *lanes)
        scaled = jnp.where(here, jnp.ones_like(panel[0]), panel[row]) / panel[row, pivot][None]
        others = jnp.where(here[None], jnp.zeros_like(panel), panel) - panel[:, pivot][:, None] * scaled[None]
        return jnp.where(chosen, scaled[None], others), None

    def body(a, start):
        rows = jax.lax.dynamic_slice_in_dim(a, start, block)
        members = jnp.arange(block)
        panel, _ = jax.lax.scan(sweep, rows, (members, start + members))
        for k in range(block):
            a = a - rows[k][:, None] * panel[k][None]
        inside = ((columns >= start) & (columns < start + block)).reshape(-1, *lanes)
        panel = jnp.where(inside[None], -panel, panel)
        a = jax.lax.dynamic_update_slice_in_dim(a, panel, start, 0)
        return jax.lax.dynamic_update_slice_in_dim(a, jnp.swapaxes(panel, 0, 1), start, 1), None

    return -jax.lax.scan(body, matrix, block * jnp.arange(blocks))[0][:n, :n]


def mass_matrix_solve(chain: Chain, q: Float[Array, " nq"], b: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """x with M(q) x = b: by `mass_matrix_inverse` up to 56 velocities, by Cholesky factors of `crba` beyond, O(n^3)."""
    if chain.nv <= SMALL:
        return mass_matrix_inverse(chain, q) @ b
    return cho_solve(cho_factor(crba(chain, q), lower=True), b)

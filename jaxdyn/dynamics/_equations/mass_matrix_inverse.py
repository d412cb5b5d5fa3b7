"""The inverse of the mass matrix, and linear solves with the mass matrix."""

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Float

from ...model._chain import Chain
from ...model._compiled import compiled
from .._lowering import by_batch, sparse_jvp
from .mass_matrix import crba

WHOLE = 16  # up to this number of rows, elimination of a batch in one kernel is faster than elimination by blocks
SMALL = 24  # up to this number of velocities, elimination in a kernel is at least as fast as LAPACK (docs/design.md)


@compiled
def mass_matrix_inverse(chain: Chain, q: Float[Array, " nq"]) -> Float[Array, "nv nv"]:
    """Inverse M(q)^-1 of the mass matrix, by `crba` and elimination, O(n^3) but fast for small n [1/(kg m^2)].

    The columns of the inverse are the accelerations caused by unit torques. The derivative of the inverse is computed as -M^-1
    dM M^-1; the elimination is not differentiated.

    Returns:
        The inverse, a symmetric matrix. If M(q) is singular, it is meaningless (huge, infinite or NaN).
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
    """The inverse of a symmetric positive definite matrix, by elimination, or by recursive 2x2 partitioning beyond 16 rows.

    With the blocks A, B and C on and above the diagonal of the matrix, X = A^-1 B and S = (C - B^T X)^-1, the blocks of the
    inverse are A^-1 + X S X^T, -X S and S. For batches of matrices with 18 to 50 rows, inversion by blocks takes half the time
    of elimination or of LAPACK's triangular inverse.
    """
    n = matrix.shape[0]
    if n <= WHOLE:
        return positive_inverse(matrix)
    first, second = slice(0, n // 2), slice(n // 2, n)
    upper = inverse_of_mass_matrix(matrix[first, first])
    x = upper @ matrix[first, second]
    lower = inverse_of_mass_matrix(matrix[second, second] - x.T @ matrix[first, second])
    beside = -x @ lower
    return jnp.block([[upper - beside @ x.T, beside], [beside.T, lower]])


@by_batch(size=lambda matrix: 6 * matrix.shape[0] ** 2)
def positive_inverse(matrix: Float[Array, "n n *#lanes"]) -> Float[Array, "n n *#lanes"]:
    """The inverse of a symmetric positive definite matrix, by one symmetric sweep per row (Goodnight 1979), O(n^3).

    Positive definite matrices need no pivoting. This function is intended for batches of small matrices.
    """
    n = matrix.shape[0]

    def body(a, k):
        row = a[k]
        pivot = row[k][None]
        here = (jnp.arange(n) == k).reshape(n, *(1,) * (a.ndim - 2))
        # with 1 in place of the pivot, one product also yields the row and the column of the pivot
        scaled = jnp.where(here, -jnp.ones_like(row), row) / pivot
        kept = jnp.where(here[:, None] | here[None], jnp.zeros_like(a), a)
        return kept - jnp.where(here, -jnp.ones_like(row), row)[:, None] * scaled[None], None

    return -jax.lax.scan(body, matrix, jnp.arange(n))[0]


@compiled
def mass_matrix_solve(chain: Chain, q: Float[Array, " nq"], b: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """Solution x of M(q) x = b, O(n^3).

    Robots with up to 24 velocities use `mass_matrix_inverse`; larger robots use a Cholesky factor of the mass matrix. If b are
    torques [N m or N], x are accelerations [rad/s^2 or m/s^2].
    """
    if chain.nv <= SMALL:
        return mass_matrix_inverse(chain, q) @ b
    return cho_solve(cho_factor(crba(chain, q), lower=True), b)

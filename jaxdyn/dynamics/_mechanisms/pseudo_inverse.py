"""The pseudo-inverse of a matrix of any rank, without derivatives of singular vectors."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def pseudo_inverse(
    matrix: Float[Array, "m n"], tolerance: float | Float[Array, ""] | None = None
) -> tuple[Float[Array, "n m"], Float[Array, ""]]:
    """Moore-Penrose inverse A^+ and rank of A, with singular values below `tolerance` times the largest treated as zero.

    Derivatives of any order follow from the formula of Golub & Pereyra (1973) for constant rank,
    dA^+ = -A^+ dA A^+ + A^+ A^+T dA^T (1 - A A^+) + (1 - A^+ A) dA^T A^+T A^+,
    which does not divide by differences of singular values. The cost is O(m n min(m, n)).

    Args:
        tolerance: relative tolerance; by default, the square root of the machine epsilon.

    Returns:
        A^+ and the rank, with the floating-point type of A.
    """
    constant = jax.lax.stop_gradient(matrix)
    left, values, right = jnp.linalg.svd(constant, full_matrices=False)
    threshold = rank_tolerance(matrix, tolerance)
    kept = values > threshold * values[0]
    inverse = jnp.where(kept, 1 / jnp.where(kept, values, jnp.ones_like(values)), jnp.zeros_like(values))
    return _differentiable(matrix, (right.T * inverse[None]) @ left.T), kept.sum().astype(matrix.dtype)


def rank_tolerance(like: Array, tolerance: float | Float[Array, ""] | None) -> Float[Array, ""]:
    """The given tolerance, or by default the square root of the machine epsilon."""
    value = float(jnp.finfo(like.dtype).eps) ** 0.5 if tolerance is None else tolerance
    return jnp.asarray(value, like.dtype)


@jax.custom_jvp
def _differentiable(matrix: Float[Array, "m n"], inverse: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """`inverse`, differentiated as the pseudo-inverse of `matrix`."""
    del matrix
    return inverse


@_differentiable.defjvp
def _differentiable_jvp(primals, tangents):
    a, constant = primals
    da = tangents[0]
    p = _differentiable(a, constant)
    turned = da.T @ p.T  # dA^T A^+T
    outside = turned @ p
    inside = p @ (p.T @ da.T)
    return p, -p @ da @ p + inside - (inside @ a) @ p + outside - p @ (a @ outside)

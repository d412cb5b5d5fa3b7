"""Products of small matrices inside kernels: sums are unrolled, and all arrays may have lanes as last axis."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

SMALL = 24  # rows and columns of the matrices of a kernel
WRITTEN_OUT = 64  # terms of a sum that is unrolled: a kernel cannot contain `einsum`


def size_of_products(n: int, m: int) -> int | None:
    """The `size` for `loop_by_batch` of products of n + m rows and columns, m of them also separately; None: too large
    for a kernel.

    Large enough that few lanes share a kernel and stay in cache.
    """
    return None if max(n, m) > SMALL or m == 1 else 2 * (n + m) * (n + m + 1) + 2000


def product(a: Array, b: Array) -> Array:
    """a b of matrices (m, k), (k, n): row by row, each sum unrolled."""
    if a.shape[1] > SMALL or a.shape[0] == 1:
        return jnp.einsum("ik...,kj...->ij...", a, b)
    return by_row(lambda row: row_times(row, b), a)


def by_row(function: Callable, *xs: Array) -> Any:
    """`function` of each row, one after the other: a product that the compiler does not recompute for each."""
    return jax.lax.scan(lambda _, rows: (None, function(*rows)), None, xs)[1]


def row_times(row: Array, b: Array) -> Array:
    """row b of a vector (k,) and a matrix (k, n)."""
    if row.shape[0] > WRITTEN_OUT:
        return jnp.einsum("k...,kj...->j...", row, b)
    total = row[0][None] * b[0]
    for k in range(1, row.shape[0]):
        total = total + row[k][None] * b[k]
    return total


def matrix_times(a: Array, x: Array) -> Array:
    """a x of a matrix (m, k) and a vector (k,)."""
    if x.shape[0] > WRITTEN_OUT:
        return jnp.einsum("ik...,k...->i...", a, x)
    total = a[:, 0] * x[0][None]
    for k in range(1, x.shape[0]):  # a kernel cannot contain a sum over an axis before the lanes
        total = total + a[:, k] * x[k][None]
    return total


def mask_like(places: Any, like: Array) -> Array:
    """1 at the entries (rows,) or (rows, columns) and 0 elsewhere, in the type of an array and for its lanes.

    Args:
        like: for one lane a matrix.
    """
    places = jnp.asarray(places, like.dtype)
    return places.reshape(*places.shape, *(1,) * (like.ndim - 2))

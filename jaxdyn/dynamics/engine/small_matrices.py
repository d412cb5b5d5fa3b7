"""Products of small matrices inside kernels. Sums are unrolled, and all arrays may have lanes as the last axis."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .lanes import is_for_launches

SMALL = 24  # maximum number of rows and columns of matrices in a kernel
WRITTEN_OUT = 64  # maximum number of terms of an unrolled sum; longer sums use `einsum`, which a kernel cannot contain


def size_of_products(n: int, m: int) -> int | None:
    """The `size` for `loop_by_batch` if steps multiply matrices of up to n + m rows; None if these are too large."""
    return None if max(n, m) > SMALL or m == 1 else 2 * (n + m) * (n + m + 1) + 2000


def product(a: Array, b: Array) -> Array:
    """Product a b of matrices (m, k) and (k, n), row by row, with unrolled sums."""
    if a.shape[1] > SMALL or a.shape[0] == 1:
        return jnp.einsum("ik...,kj...->ij...", a, b)
    return by_row(lambda row: row_times(row, b), a)


def by_row(function: Callable, *xs: Array) -> Any:
    """Apply `function` to rows: on the CPU in sequence, so that shared products are not recomputed; elsewhere all at once."""
    if is_for_launches():
        return jax.vmap(function)(*xs)
    return jax.lax.scan(lambda _, rows: (None, function(*rows)), None, xs)[1]


def row_times(row: Array, b: Array) -> Array:
    """Product of a row vector (k,) and a matrix b (k, n)."""
    if row.shape[0] > WRITTEN_OUT:
        return jnp.einsum("k...,kj...->j...", row, b)
    total = row[0][None] * b[0]
    for k in range(1, row.shape[0]):
        total = total + row[k][None] * b[k]
    return total


def matrix_times(a: Array, x: Array) -> Array:
    """Product a x of a matrix (m, k) and a vector (k,)."""
    if x.shape[0] > WRITTEN_OUT:
        return jnp.einsum("ik...,k...->i...", a, x)
    total = a[:, 0] * x[0][None]
    for k in range(1, x.shape[0]):  # a kernel cannot contain a sum over an axis before the lanes
        total = total + a[:, k] * x[k][None]
    return total


def mask_like(places: Any, like: Array) -> Array:
    """An array with 1 at the entries (rows,) or (rows, columns) and 0 elsewhere, with the type and lanes of `like`."""
    places = jnp.asarray(places, like.dtype)
    return places.reshape(*places.shape, *(1,) * (like.ndim - 2))

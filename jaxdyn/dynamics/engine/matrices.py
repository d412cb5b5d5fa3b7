"""Matrices inside kernels: those with entries for pairs of links, and products of small ones.

In a tree, few pairs of links have nonzero entries in a matrix of the dynamics: those of which one carries the other
(341 of 1225 for a humanoid). An algorithm computes these entries from the vectors of the two links, and `spread`
inserts them into the matrix. For a batch, this follows the kernel, which need not hold it.

In products, sums are unrolled, and all arrays may have lanes as the last axis.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ...model.chain import Chain, ancestor_mask
from .kernel import blank_results, mode
from .lanes import PerLink, spread_over_lanes, unrolls_loops


class Pairs(NamedTuple):
    """Pairs of a link and a link that it carries; each link also forms a pair with itself.

    In an array with m entries per pair, those of pair k begin at m k, and zeros follow the last pair, from m `count` on.
    """

    carrier: np.ndarray  # for every pair, the link that carries the other
    carried: np.ndarray  # for every pair, the link that is carried
    above: np.ndarray  # index of the pair [i, j] in which j carries i or is i, or `count` if there is none
    together: np.ndarray  # like `above`, but as if links that move together carried each other

    @property
    def count(self) -> int:
        return len(self.carrier)

    @property
    def symmetric(self) -> np.ndarray:
        """For every entry of a symmetric matrix, the index of its pair, or `count` if there is none."""
        return np.minimum(self.above, self.above.T)


@functools.lru_cache(maxsize=256)
def pairs_of(parents: tuple[int, ...], together: tuple[tuple[int, int], ...] = ()) -> Pairs:
    """The pairs of links in a tree, and, in reverse order, those of links that move `together` (first link, number)."""
    carries = ancestor_mask(parents)
    carried, carrier = np.nonzero(carries.T)
    extra = [(i, j) for first, size in together for i in range(first, first + size) for j in range(i + 1, first + size)]
    first, second = np.array(extra, int).reshape(-1, 2).T
    count = len(carrier) + len(extra)
    above = np.full(carries.shape, count)
    above[carried, carrier] = np.arange(len(carrier))
    also = above.copy()
    also[first, second] = np.arange(len(carrier), count)
    carrier, carried = (np.concatenate(x).astype(np.int32) for x in ((carrier, second), (carried, first)))
    return Pairs(carrier, carried, above, also)


def entries_size(chain: Chain, per_pair: int = 1) -> int:
    """The `size` for `by_batch` of functions that return up to `per_pair` entries per pair in every result."""
    return 100 + 2 * chain.n + per_pair * pairs_of(chain.topology.parents).count


def row(x: Array | np.ndarray, k: Array) -> Array:
    """Row k of an array, for an index that is known only in a loop."""
    return jax.lax.dynamic_index_in_dim(x, k, keepdims=False, allow_negative_indices=False)


def rows(tree: Any, k: Array) -> Any:
    """Row k of every array."""
    return jax.tree.map(lambda x: row(x, k), tree)


def put(x: Array, value: Array, k: Array) -> Array:
    """The array with another row k."""
    return jax.lax.dynamic_update_index_in_dim(x, value, k, 0, allow_negative_indices=False)


def over_pairs(
    pairs: Pairs, function: Callable[[Any, Any, Any], tuple[tuple[Array, ...], ...]], of_carrier: Any, of_carried: Any
) -> tuple[Float[Array, "entries *lanes"], ...]:
    """Arrays of entries (see `Pairs`) by function(values of the carrier and of the carried link, True if both are one)."""
    if not mode().in_kernel:
        of_pairs = lambda values, links: jax.tree.map(lambda x: x[links], values)
        first, second = of_pairs(of_carrier, pairs.carrier), of_pairs(of_carried, pairs.carried)
        same = (pairs.carrier == pairs.carried).reshape(-1, *(1,) * (jax.tree.leaves(first)[0].ndim - 1))
        found = [
            jnp.stack(x, axis=1).reshape(len(x) * pairs.count, *x[0].shape[1:]) for x in function(first, second, same)
        ]
        return tuple(jnp.pad(x, ((0, 1 + k), *((0, 0),) * (x.ndim - 1))) for k, x in enumerate(found))

    def values(i, j):
        return function(rows(of_carrier, i), rows(of_carried, j), i == j)

    def body(results, x):
        i, j, k = x
        results = list(results)
        for m, found in enumerate(values(i, j)):
            for part, entry in enumerate(found):
                results[m] = put(results[m], entry, len(found) * k + part)
        return tuple(results), None

    shapes = jax.eval_shape(values, 0, 0)
    start = blank_results([len(x) * pairs.count for x in shapes], [x[0] for x in shapes])
    places = (pairs.carrier, pairs.carried, np.arange(pairs.count, dtype=np.int32))
    return jax.lax.scan(body, start, places)[0]


def spread(
    places: Int[np.ndarray, "rows columns"], entries: Float[Array, "entries *lanes"]
) -> Float[Array, "rows columns *lanes"]:
    """The matrix whose entry [i, j] is entries[places[i, j]]."""
    lanes = entries.shape[1:]
    numbers = jax.lax.GatherDimensionNumbers(tuple(range(1, 1 + len(lanes))), (0,), (0,))
    at = jnp.asarray(places.reshape(-1, 1), jnp.int32)
    return jax.lax.gather(entries, at, numbers, (1, *lanes), mode="promise_in_bounds").reshape(*places.shape, *lanes)


def spread_sides(
    pairs: Pairs, above: Float[Array, "k *lanes"], below: Float[Array, "m *lanes"], together: bool = False
) -> Float[Array, "n n *lanes"]:
    """The matrix whose entry [i, j] is that of `above` if j carries i or is i, and that of `below` if i carries j."""
    indices = pairs.together if together else pairs.above
    columns = np.where(indices < pairs.count, pairs.count, pairs.above.T)
    return spread(indices, above) + spread(columns, below)


def jacobian_by_column(
    function: Callable[[Float[Array, "n *lanes"]], Float[Array, "m *lanes"]], x: PerLink
) -> Float[Array, "m n *#lanes"]:
    """The Jacobian of a function of one state in every lane, by forward-mode derivatives along unit vectors."""
    x = spread_over_lanes(x)
    basis = jnp.eye(x.shape[0], dtype=x.dtype).reshape(x.shape[0], x.shape[0], *(1,) * (x.ndim - 1))
    along = lambda unit: jax.jvp(function, (x,), (jnp.broadcast_to(unit, x.shape),))[1]
    return jax.vmap(along, out_axes=1)(basis)


LONGEST_SIDE = 24  # of matrices that a kernel multiplies
WRITTEN_OUT = 64  # maximum number of terms of an unrolled sum; longer sums use `einsum`, which a kernel cannot contain


def size_of_products(n: int, m: int) -> int | None:
    """The `size` for `loop_by_batch` of steps with blocks of n and m rows; None if they are not to be one kernel."""
    return None if max(n, m) > LONGEST_SIDE or m == 1 else 2 * (n + m) * (n + m + 1) + 2000


def product(a: Array, b: Array) -> Array:
    """Product a b of matrices (m, k) and (k, n), row by row, with unrolled sums."""
    if a.shape[1] > LONGEST_SIDE or a.shape[0] == 1:
        return jnp.einsum("ik...,kj...->ij...", a, b)
    return by_row(lambda row: row_times(row, b), a)


def by_row(function: Callable, *xs: Array) -> Any:
    """Apply `function` to rows: on the CPU in sequence, so that shared products are not recomputed; elsewhere all at once."""
    if unrolls_loops():
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

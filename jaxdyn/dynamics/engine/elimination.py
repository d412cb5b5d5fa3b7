"""Sums over a tree of links, and elimination of matrices with the sparsity of a tree, in loops inside a kernel.

Twists, wrenches and screws are in world axes about one common point, so that the twist of a link is the sum of the screws on
its path, times their rates, and a wrench on it acts on all joints of the path. A matrix has entries for the pairs of joints of
which one carries the other, and for those that contacts between links couple; L^T D L elimination from the leaves towards the
base adds no others in a tree (Featherstone 2005), and those that it adds elsewhere are part of the pattern. Sums are loops
of their own beside `sweep`, whose states are single values per lane: here, rows have any shape, and the base has one.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ...model.chain import ancestor_mask
from .matrices import pairs_of, put, row


class Pattern(NamedTuple):
    """The entries of a symmetric matrix: the first `own` are those of the mass matrix, in the order of `pairs_of`.

    The next ones, up to `constant`, are the others of joints that equality constraints join.

    Attributes:
        own: number of entries of the mass matrix.
        constant: number of entries of the mass matrix and of equality constraints.
        first: row of every entry.
        second: column of every entry, not before its row.
        diagonal: indices of the entries on the diagonal.
        steps: of elimination, entries (d, ki, kj, ij), of which ij loses ki kj / d, from the last joint on.
        couples: pairs of links with contacts between them, (first, second).
        movers: for every couple and every joint that moves only one of its links: (couple, joint, side), side -1 or 1.
        products: (mover, mover, entry): pairs of movers of the same couple, and their entry.
    """

    own: int
    constant: int
    first: Int[np.ndarray, " m"]
    second: Int[np.ndarray, " m"]
    diagonal: Int[np.ndarray, " n"]
    steps: Int[np.ndarray, "s 4"]
    couples: tuple[tuple[int, int], ...]
    movers: Int[np.ndarray, "k 3"]
    products: Int[np.ndarray, "e 3"]

    @property
    def count(self) -> int:
        """Number of entries."""
        return len(self.first)


@functools.lru_cache(maxsize=64)
def pattern_of(
    parents: tuple[int, ...], couples: tuple[tuple[int, int], ...], joined: tuple[tuple[int, ...], ...] = ()
) -> Pattern:
    """The pattern of a tree with contacts between pairs of links, and equality constraints that join several joints each."""
    pairs, n = pairs_of(parents), len(parents)
    carries = ancestor_mask(parents)  # [joint, link]
    filled = (carries | carries.T).astype(bool)
    first, second = list(pairs.carrier), list(pairs.carried)
    index = np.full((n, n), -1)
    index[first, second] = np.arange(pairs.count)

    def listed() -> int:
        for i, j in zip(*np.nonzero(np.triu(filled) & (index < 0)), strict=True):
            index[i, j] = len(first)
            first.append(i)
            second.append(j)
        return len(first)

    for joints in joined:
        filled[np.ix_(joints, joints)] = True
    constant, movers = listed(), []
    for c, (a, b) in enumerate(couples):
        own = [(c, j, int(carries[j, b]) - int(carries[j, a])) for j in range(n) if carries[j, b] != carries[j, a]]
        movers += own
        joints = [j for _, j, _ in own]
        filled[np.ix_(joints, joints)] = True
    for k in reversed(range(n)):
        before = np.flatnonzero(filled[k, :k])
        filled[np.ix_(before, before)] = True
    listed()
    above = [np.flatnonzero(filled[k, :k]) for k in range(n)]
    steps = [
        (index[k, k], index[i, k], index[j, k], index[j, i])
        for k in reversed(range(n))
        for i in above[k]
        for j in above[k]
        if j <= i
    ]
    products = [
        (p, q, index[min(i, j), max(i, j)])
        for p, (c, i, _) in enumerate(movers)
        for q, (d, j, _) in enumerate(movers)
        if c == d and i <= j
    ]
    columns = lambda rows, width: np.array(rows, np.int32).reshape(-1, width)
    return Pattern(
        pairs.count,
        constant,
        np.array(first, np.int32),
        np.array(second, np.int32),
        np.diag(index).astype(np.int32),
        columns(steps, 4),
        couples,
        columns(movers, 3),
        columns(products, 3),
    )


def along_paths(parents: tuple[int, ...], screws: tuple[Array, ...], rates: Array) -> tuple[Array, ...]:
    """The twist of every link, and zero for the base as the last row."""
    n = len(parents)
    start = tuple(jnp.zeros((n + 1, *rates.shape[1:]), rates.dtype) for _ in range(6))

    def body(found, at):
        i, parent, screw, rate = at
        return tuple(put(x, row(x, parent) + s * rate, i) for x, s in zip(found, screw, strict=True)), None

    order = np.arange(n, dtype=np.int32), np.array(parents, np.int32) % (n + 1)
    return jax.lax.scan(body, start, (*order, screws, rates))[0]


def carried(parents: tuple[int, ...], values: tuple[Array, ...]) -> tuple[Array, ...]:
    """For every link, and for the base as the last row, the sum over it and all links that it carries."""
    n = len(parents)

    def body(total, at):
        i, parent = at
        return tuple(put(x, row(x, parent) + row(x, i), parent) for x in total), None

    order = np.arange(n, dtype=np.int32)[::-1], (np.array(parents, np.int32) % (n + 1))[::-1]
    return jax.lax.scan(body, values, order)[0]


def mass_times(pattern: Pattern, mass: Array, a: Array) -> Array:
    """M a from the first entries of the pattern."""

    def body(total, at):
        i, j, entry = at
        total = put(total, row(total, i) + entry * row(a, j), i)
        other = jnp.where(i == j, 0, 1).astype(a.dtype) * entry * row(a, i)
        return put(total, row(total, j) + other, j), None

    count = min(len(mass), pattern.constant)
    return jax.lax.scan(body, jnp.zeros_like(a), (pattern.first[:count], pattern.second[:count], mass[:count]))[0]


def factorised(pattern: Pattern, h: Array) -> Array:
    """L^T D L of a matrix: L off the diagonal, and 1/D on it."""
    n, columns = len(pattern.diagonal), pattern.steps[:, 0]
    joints = np.arange(n, dtype=np.int32)[::-1]
    strict = np.flatnonzero(pattern.first != pattern.second)
    strict = strict[np.argsort(pattern.second[strict], kind="stable")].astype(np.int32)
    ranges = lambda values, of: np.searchsorted(values, of).astype(np.int32)
    places = pattern.diagonal[joints]
    order = {d: k for k, d in enumerate(places)}
    ranks = np.array([order[d] for d in columns], int)
    steps = np.arange(n)
    columns = (
        places,
        ranges(ranks, steps),
        ranges(ranks, steps + 1),
        ranges(pattern.second[strict], joints),
        ranges(pattern.second[strict], joints + 1),
    )
    terms, entries = tuple(map(jnp.asarray, pattern.steps[:, 1:].T)), jnp.asarray(strict)

    def eliminate(h, at):
        d, first, last, begin, end = at
        inverse = 1 / row(h, d)

        def subtract(t, h):
            ki, kj, ij = (row(x, t) for x in terms)
            return put(h, row(h, ij) - row(h, ki) * inverse * row(h, kj), ij)

        def divide(t, h):
            e = row(entries, t)
            return put(h, row(h, e) * inverse, e)

        # a loop that never turns would read from empty arrays
        h = jax.lax.fori_loop(first, last, subtract, h) if len(pattern.steps) else h
        h = jax.lax.fori_loop(begin, end, divide, h) if len(strict) else h
        return put(h, inverse, d), None

    return jax.lax.scan(eliminate, h, columns)[0]


def solved(pattern: Pattern, factor: Array, b: Array) -> Array:
    """The solution x of H x = b from the factor of H; b has one row per joint."""
    strict = np.flatnonzero(pattern.first != pattern.second)
    inward = strict[np.argsort(-pattern.second[strict], kind="stable")]

    def back(b, at):  # L^T y = b, from the leaves
        i, k, e = at
        return put(b, row(b, i) - row(factor, e) * row(b, k), i), None

    def forth(b, at):
        i, k, e = at
        return put(b, row(b, k) - row(factor, e) * row(b, i), k), None

    data = lambda order: (pattern.first[order], pattern.second[order], order.astype(np.int32))
    scaled = lambda _, at: (None, at[0] * row(factor, at[1]))
    b = jax.lax.scan(back, b, data(inward))[0]
    b = jax.lax.scan(scaled, None, (b, pattern.diagonal))[1]
    return jax.lax.scan(forth, b, data(inward[::-1]))[0]


def inverted(pattern: Pattern, factor: Array) -> Array:
    """The inverse (n, n) of a matrix from its factor."""
    n, lanes = len(pattern.diagonal), factor.shape[1:]
    units = jnp.broadcast_to(jnp.eye(n, dtype=factor.dtype).reshape(n, n, *(1,) * len(lanes)), (n, n, *lanes))
    return jax.lax.scan(lambda _, unit: (None, solved(pattern, factor, unit)), None, units)[1]

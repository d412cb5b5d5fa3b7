"""Signed distance of a core and a height field: the surface z = h(x, y) above a regular grid, below which all is solid.

Two triangles span each cell of the grid; the diagonal leads from its corner with the least x and y to the one with the largest,
as in MuJoCo. Beyond the border, the surface continues level, at right angles to it. A core is represented by points of its own
(`_points`), for each of which the distance is exact: cells are searched in square rings about the point, until no cell of the
next ring can be closer.

Components are separate scalars, or arrays of them over lanes, as in `cores`.
"""

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..dynamics.engine.kernel import any_lane, settled
from ..spatial.components import Component, Vec, add, dot, rotate, scale, sub, unrotate
from .cores import Closest, Core, Grid, select
from .shapes import Kind

_FARTHEST = 1e6  # cell, beyond which no indices are computed


class _Touch(NamedTuple):
    """A point of the core, its signed distance from the surface, and the unit normal into the solid, in the field's frame."""

    distance: Component
    point: Vec
    normal: Vec


def core_and_height_field(kind: Kind, a: Core, b: Core) -> Closest:
    """The least distance of the points of a core from a surface."""
    zero = jnp.zeros_like(a.centre[0] + b.centre[0])
    local, points = unrotate(b.rotation, sub(a.centre, b.centre)), jnp.asarray(_points(kind, a), zero.dtype)
    sizes = (1, 1, 1) if kind == "hull" else a.size

    def body(k, best):
        offset = rotate(a.rotation, tuple(points[k, i] * s for i, s in enumerate(sizes)))
        found = _signed_distance(b, add(local, unrotate(b.rotation, offset)))
        return select(found.distance < best.distance, found, best)

    turns = len(points)
    if kind == "capsule":  # all points of a sphere are the same
        turns = jnp.where(any_lane(a.size[2] > 0), turns, 1)
    start = _Touch(zero + jnp.inf, (zero, zero, zero), (zero, zero, zero - 1))
    distance, x, n = jax.lax.fori_loop(0, turns, body, start)
    to_world = lambda x: add(b.centre, rotate(b.rotation, x))
    second = to_world(add(x, scale(distance, n)))
    return Closest(distance, to_world(x), second, rotate(b.rotation, n), (distance, *x, *n))


def _points(kind: Kind, core: Core) -> Float[Array, "P 3"] | Float[np.ndarray, "P 3"]:
    """Points of a core, in multiples of its sizes: on an axis, the corners, on both rims, or in all directions."""
    if kind == "hull":
        assert core.vertices is not None
        return core.vertices
    if kind == "capsule":
        return np.outer(np.linspace(-1, 1, 5), [0.0, 0.0, 1.0])
    if kind == "cylinder":
        angle, end = (x.reshape(-1) for x in np.meshgrid(np.arange(8) * np.pi / 4, [-1.0, 1.0]))
        return np.stack([np.cos(angle), np.sin(angle), end], axis=1)
    if kind == "box":
        return np.array(list(itertools.product([-1.0, 1.0], repeat=3)))
    directions = np.array([x for x in itertools.product([-1.0, 0.0, 1.0], repeat=3) if any(x)])
    return directions / np.linalg.norm(directions, axis=1, keepdims=True)


class Triangle(NamedTuple):
    """The triangle of a surface that is nearest to a point.

    Attributes:
        cell: indices of its cell along x and y.
        is_right: 1 for the triangle towards x of the cell's diagonal, 0 for the one towards y.
        side: 1 for a point above the surface, -1 below.
        within: 1 if the nearest point is within the border, 0 if it is on the level continuation of the surface.
    """

    cell: tuple[Component, Component]
    is_right: Component
    side: Component
    within: Component


def nearest_triangle(b: Core, x: Vec, reach: Component) -> Triangle:
    """The triangle that is nearest to a point in the frame of a height field, or any if the surface is not within `reach`."""
    assert b.grid is not None
    found = _signed_distance(b, x, reach)
    dtype, last = found.distance.dtype, b.grid.last
    nearest = add(x, scale(found.distance, found.normal))[:2]
    at = ((y + size) / (2 * size) * n.astype(dtype) for y, size, n in zip(nearest, b.size, last, strict=False))
    at = settled(*at)
    cell = [jnp.clip(jnp.clip(y, -1, _FARTHEST).astype(jnp.int32), 0, n - 1) for y, n in zip(at, last, strict=True)]
    part = [y - first.astype(dtype) for y, first in zip(at, cell, strict=True)]
    excess = [jnp.abs(y) * (1 - 64 * jnp.finfo(dtype).eps) - size for y, size in zip(nearest, b.size, strict=False)]
    as_number = lambda x: x.astype(dtype)
    side, within = jnp.where(found.distance >= 0, 1, -1), (excess[0] <= 0) & (excess[1] <= 0)
    return Triangle((cell[0], cell[1]), as_number(part[0] >= part[1]), as_number(side), as_number(within))


class _Nearest(NamedTuple):
    """The squared distance of a point from a part of the surface, and the vector from the point to the closest one there."""

    square: Component
    away: Vec


def _signed_distance(b: Core, x: Vec, reach: Component = jnp.inf) -> _Touch:
    """That of a point in the frame of the height field, whose cells are searched in rings about it.

    A distance that is larger than `reach` is an upper bound.
    """
    grid = b.grid
    assert grid is not None
    last = grid.last.astype(jnp.result_type(*x))
    width, depth = 2 * b.size[0] / last[0], 2 * b.size[1] / last[1]
    at = [(y + s) / d for y, s, d in zip(x, b.size, (width, depth), strict=False)]
    cell = [jnp.floor(jnp.clip(y, -_FARTHEST, _FARTHEST)) for y in at]
    here = _triangles(grid, width, depth, cell, at, x[2])
    # the surface outside a square of rings is not nearer than its border, nor than the highest and lowest heights
    to_border = [jnp.minimum(y - i, 1 - (y - i)) * d for y, i, d in zip(at, cell, (width, depth), strict=True)]
    border, step = jnp.minimum(*to_border), jnp.minimum(width, depth)
    vertical = jnp.maximum(jnp.maximum(x[2] - grid.range[1], grid.range[0] - x[2]), 0)
    most = jnp.maximum(last[0], last[1])
    outside = [jnp.maximum(-i, i - n) for i, n in zip(cell, last, strict=True)]
    rings = most + jnp.clip(jnp.maximum(*outside), 0, most)
    as_number = lambda count: count.astype(most.dtype)

    def may_be_nearer(state):
        ring, _, found = state
        level = border + as_number(ring - 1) * step
        wanted = (level < reach) | (here.height < 0)
        return any_lane(wanted & (found.square > level * level + vertical * vertical) & (as_number(ring) <= rings))

    def next_cell(state):
        ring, k, found = state
        side, along = k // (2 * ring), k % (2 * ring) - ring
        i = jnp.where(side == 0, along, jnp.where(side == 1, ring, jnp.where(side == 2, -along, -ring)))
        j = jnp.where(side == 0, -ring, jnp.where(side == 1, along, jnp.where(side == 2, ring, -along)))
        other = _triangles(grid, width, depth, (cell[0] + as_number(i), cell[1] + as_number(j)), at, x[2]).nearest
        ends = k + 1 == 8 * ring
        return (
            jnp.where(ends, ring + 1, ring),
            jnp.where(ends, 0, k + 1),
            select(other.square < found.square, other, found),
        )

    one = jnp.int32(1)
    _, _, (square, away) = jax.lax.while_loop(may_be_nearer, next_cell, (one, one - 1, here.nearest))
    length = jnp.sqrt(square)
    sign = jnp.where(here.height >= 0, 1, -1)
    # the direction of a distance that is mostly rounding errors is unknown
    eps = jnp.finfo(square.dtype).eps
    clear = length > 64 * eps * (length + sum(map(jnp.abs, x)) + b.size[0] + b.size[1])
    inverse = sign / jnp.where(clear, length, 1)
    n = select(clear, scale(inverse, away), here.normal)
    return _Touch(sign * length, x, n)


class _Cell(NamedTuple):
    """The nearest point of a cell; height above its plane, and unit normal into the solid, of the triangle below the point."""

    nearest: _Nearest
    height: Component
    normal: Vec


def _triangles(grid: Grid, width: Component, depth: Component, cell, at, z: Component) -> _Cell:
    """Both triangles of a cell, and the three of their edges that meet in its first corner; neighbours have the others."""
    i, j = cell

    def height(i, j):
        i, j = (jnp.clip(k.astype(jnp.int32), 0, n) for k, n in zip((i, j), grid.last, strict=True))
        return grid.heights[grid.first + i * (grid.last[1] + 1) + j]

    low, right, left, high = height(i, j), height(i + 1, j), height(i, j + 1), height(i + 1, j + 1)
    p = (at[0] - i) * width, (at[1] - j) * depth, z - low
    to_right, to_left, to_high = (width, 0, right - low), (0, depth, left - low), (width, depth, high - low)
    # the plane of each triangle is z = slope . (x, y) in coordinates from the first corner
    best, parts = None, []
    for slope, is_first in (
        (((right - low) / width, (high - right) / depth), True),
        (((high - left) / width, (left - low) / depth), False),
    ):
        normal = -slope[0], -slope[1], 1
        above = dot(normal, p)
        square = dot(normal, normal)
        away = scale(-above / square, normal)
        u, v = (p[0] + away[0]) / width, (p[1] + away[1]) / depth
        within = (v >= 0) & (v <= u) & (u <= 1) if is_first else (u >= 0) & (u <= v) & (v <= 1)
        found = _Nearest(jnp.where(within, above * above / square, jnp.inf), away)
        best = found if best is None else select(found.square < best.square, found, best)
        parts.append((above, scale(-1 / jnp.sqrt(square), normal)))
    for edge in (to_right, to_left, to_high):
        share = jnp.clip(dot(p, edge) / dot(edge, edge), 0, 1)
        away = sub(scale(share, edge), p)
        found = _Nearest(dot(away, away), away)
        best = select(found.square < best.square, found, best)
    return _Cell(best, *select(p[0] * depth >= p[1] * width, *parts))

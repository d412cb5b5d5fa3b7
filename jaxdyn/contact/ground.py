"""The points of hulls and above height fields where shapes can touch, and the triangles of the ground that are nearest to them.

A search finds each triangle (see `geometry.height_fields`); its result has no derivative. The heights of the triangle's corners
are then looked up outside of kernels, so that they have derivatives and may differ within a batch.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..dynamics.engine.lanes import NO_KERNEL, PerLink, by_batch, scan_links, with_vmap
from ..dynamics.engine.matrices import rows
from ..geometry.cores import Core
from ..geometry.distance import Scene, grids, placed_shapes
from ..geometry.height_fields import Triangle, nearest_triangle
from ..geometry.shapes import Shapes
from ..spatial.components import add, rotate, sub, unrotate
from .places import Places, Points, bodies_of


def without_surfaces(scene: Scene) -> Scene:
    """The scene without vertices and heights, which the kernels of contacts do not need beside `points_of`."""
    bare = dataclasses.replace(scene.shapes, vertices=(), heights=())
    return scene._replace(shapes=bare, heights=scene.heights[:0])


def points_of(places: Places, scene: Scene, x: Float[Array, " n"], reach: Float[Array, " p"]) -> Points:
    """What determines the places besides the poses, sizes and radii of the shapes, as `places.FINDERS` take it.

    Gaps above height fields that are larger than the `reach` of the pair are upper bounds.
    """
    shapes, dtype, points = scene.shapes, x.dtype, {}
    for kind, group in places.groups.items():
        point: Any = places.share[group].astype(dtype)
        if kind in ("vertex", "ground"):
            second = places.shapes[group][:, 1]
            point = point * shapes.size.astype(dtype)[second] + _vertices(shapes, places.vertex[group], dtype)
        if kind == "ground":
            farthest = shapes.radius.astype(dtype)[second] + reach.astype(dtype)[places.pair[group]]
            point = jnp.concatenate([point, _nearest(scene, x, places.shapes[group], (point, farthest))], axis=1)
        points[kind] = point
    return points


def _vertices(shapes: Shapes, index: Int[np.ndarray, " k"], dtype: Any) -> Float[Array, "k 3"]:
    """Vertices of hulls by their index among those of all hulls, and zero for the index -1."""
    every = jnp.concatenate([*(v.astype(dtype) for v in shapes.vertices), jnp.zeros((1, 3), dtype)])
    return every[index]


def _nearest(
    scene: Scene, x: Array, pairs: Int[np.ndarray, "k 2"], points: tuple[Array, Array]
) -> Float[Array, "k 11"]:
    """The corners of the triangle nearest to each point of a shape, in the field's frame, and its `side` and `within`.

    The points are given by their offset and the distance up to which the triangle must be the nearest one.
    """
    dtype, shapes = x.dtype, scene.shapes
    counts = tuple(field.shape for field in shapes.heights)
    leaves, structure = jax.tree.flatten(jax.lax.stop_gradient((without_surfaces(scene), x, points)))

    def search(heights, first, *leaves):
        bare, x, (offset, reach) = jax.tree.unflatten(structure, leaves)
        return _triangles(_Search(bare._replace(heights=heights), pairs, offset, reach, first), x, counts)

    found = _with_common_heights(search)(scene.heights, jnp.int32(0), *leaves)
    # anticlockwise, as seen from above
    right, one = found.is_right > 0, jnp.ones_like(found.cell[0])
    steps = (0 * one, 0 * one), (one, jnp.where(right, 0, one)), (jnp.where(right, one, 0), one)
    i, j = (jnp.stack([at + step[k] for step in steps], axis=1) for k, at in enumerate(found.cell))
    nodes = np.array(counts, np.int32)
    field = (np.cumsum([kind == "height_field" for kind in shapes.kinds]) - 1)[pairs[:, 0]]
    first, width = np.cumsum([0, *nodes.prod(axis=1)], dtype=np.int32)[field][:, None], nodes[field, 1][:, None]
    every = jnp.concatenate([heights.astype(dtype).reshape(-1) for heights in shapes.heights])
    z = every[first + i * width + j]
    share = lambda node, k: 2 * node.astype(dtype) / (nodes[field, k] - 1).astype(dtype)[:, None] - 1
    half = shapes.size.astype(dtype)[pairs[:, 0]]
    corners = jnp.stack([share(i, 0) * half[:, :1], share(j, 1) * half[:, 1:2], z], axis=2).reshape(len(pairs), 9)
    return jnp.concatenate([corners, found.side[:, None], found.within[:, None]], axis=1)


class _Search(NamedTuple):
    """Points of shapes by offset and `reach`, with the height fields below them; heights begin at the index `first`."""

    scene: Scene
    pairs: Int[np.ndarray, "k 2"]
    offset: Float[Array, "k 3 *#lanes"]
    reach: Float[Array, "k *#lanes"]
    first: Int[Array, "*#lanes"]


def _size(search: _Search) -> int:
    if jax.local_device_count("cpu") > 1:
        return NO_KERNEL  # in which the search could not end early
    return 100 + max(4 * len(search.pairs), 4 * len(search.scene.shapes.kinds), 10 * search.scene.chain.n)


@by_batch(size=_size)
def _triangles(search: _Search, x: PerLink, counts: Any) -> Triangle:
    """The triangle nearest to each point."""
    scene = search.scene
    bodies = bodies_of(placed_shapes(scene, x)[0], scene.shapes.size, scene.shapes.radius)
    grid_of = grids(scene, counts)

    def one(_, at):
        i, j, offset, reach = at
        field, body = rows(bodies, i), rows(bodies, j)
        point = sub(add(body.centre, rotate(body.rotation, tuple(offset))), field.centre)
        grid = grid_of(i)
        grid = grid._replace(first=grid.first + search.first)
        core = Core(field.rotation, field.centre, field.size, None, grid)
        return None, nearest_triangle(core, unrotate(field.rotation, point), reach)

    return scan_links(one, None, (*search.pairs.T, search.offset, search.reach))[1]


def _with_common_heights(search: Callable) -> Callable:
    """search(heights, first, ...), for which `vmap` joins heights that differ within a batch, each with its first index."""

    def many(count, mapped, heights, first, *others):
        of_heights, of_first, *axes = mapped
        if of_heights:
            first = first if of_first else first[None]
            starts = np.arange(count, dtype=np.int32) * heights.shape[1]
            heights, first, of_first = heights.reshape(-1), first + starts.reshape(-1, *(1,) * (first.ndim - 1)), True
        in_axes = None, 0 if of_first else None, *(0 if axis else None for axis in axes)
        return _with_common_heights(jax.vmap(search, in_axes, axis_size=count))(heights, first, *others)

    return with_vmap(search, many)

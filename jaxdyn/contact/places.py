"""Where shapes can touch: for every place its gap, its point, and its axes, in closed form.

Above a height field, this is the distance from one triangle, the nearest one, which `ground` finds before.

Components are separate scalars, or arrays of them over lanes (docs/design.md). Points are relative to one point near the robot,
`Bodies.centre`. Points and axes are those of MuJoCo: the point lies half way between the surfaces, the first axis is the normal
from the first shape to the second, and the second axis is a tangent along a capsule, or else the projection of y or z.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from ..dynamics.engine.lanes import scan_links
from ..dynamics.engine.matrices import rows
from ..geometry.cores import norm, select
from ..geometry.distance import Bodies
from ..geometry.shapes import UNBOUNDED, Fixed, Shapes
from ..spatial.components import Component, Mat, Vec, add, cross, dot, rotate, scale, sub, unrotate

TINY = 1e-15  # MuJoCo's mjMINVAL


class Body(NamedTuple):
    """A shape in world axes: rotation and centre, half sizes, and radius."""

    rotation: Mat
    centre: Vec
    size: Vec
    radius: Component

    @property
    def axis(self) -> Vec:
        """The z axis of the shape."""
        return self.rotation[2::3]


class Touch(NamedTuple):
    """A place where two shapes can touch: gap [m], point [m], the axes of the contact, and whether the place exists."""

    gap: Component
    point: Vec
    axes: tuple[Vec, Vec, Vec]
    exists: Component


class Places(NamedTuple):
    """Places of all pairs of shapes, grouped by their `kind`; the links are n for the base.

    Attributes:
        pair: index of the pair of shapes.
        shapes: indices of the shapes, in MuJoCo's order: a plane comes first.
        links: of the shapes.
        share: which point of the second shape, in multiples of its size.
        vertex: which point of the second shape, if it is a hull: index among the vertices of all hulls; otherwise -1.
        groups: for every kind of place, the slice of its places.
    """

    pair: Int[np.ndarray, " k"]
    shapes: Int[np.ndarray, "k 2"]
    links: Int[np.ndarray, "k 2"]
    share: Int[np.ndarray, "k 3"]
    vertex: Int[np.ndarray, " k"]
    groups: dict[str, slice]


def kind_of(first: str, second: str) -> str | None:
    """The kind of place of two shapes, in either order; None if they are not supported."""
    if second in UNBOUNDED:
        first, second = second, first
    if first == "height_field":
        return "ground" if second in ("sphere", "capsule", "box", "hull") else None
    if first == "plane":
        return _ON_PLANES.get(second)
    return "segments" if {first, second} <= {"sphere", "capsule"} else None


_ON_PLANES = {
    "sphere": "point",
    "capsule": "point",
    "box": "corner",
    "cylinder": "rim",
    "ellipsoid": "ellipsoid",
    "hull": "vertex",
}
_CORNERS = [tuple(1 if i & 1 << k else -1 for k in range(3)) for i in range(8)]
_SHARES = {
    "sphere": [(0, 0, 0)],
    "capsule": [(0, 0, 1), (0, 0, -1)],
    "box": _CORNERS,
    "ellipsoid": [(0, 0, 0)],
    "cylinder": [(2, 0, 1), (2, 0, -1), (-1, 1, 1), (-1, -1, 1)],  # of the lowest generator, and across it
}


@functools.lru_cache(maxsize=64)
def places_of(fixed: Fixed, links: int, vertices: tuple[int, ...]) -> Places:
    """The places of shapes on a robot with so many links, whose hulls have so many vertices."""
    found: dict[str, list[tuple[int, int, int, Any, int]]] = {}
    of_hulls = np.cumsum([0, *vertices])
    hull = np.cumsum([kind == "hull" for kind in fixed.kinds]) - 1
    for p, (a, b) in enumerate(fixed.pairs):
        if fixed.kinds[b] in UNBOUNDED or (fixed.kinds[a], fixed.kinds[b]) == ("capsule", "sphere"):
            a, b = b, a
        kind = kind_of(fixed.kinds[a], fixed.kinds[b])
        assert kind is not None, "pairs are checked when contacts are made"
        points = [(share, -1) for share in ([(0, 0, 0)] if kind == "segments" else _SHARES.get(fixed.kinds[b], []))]
        if fixed.kinds[b] == "hull":
            points = [((0, 0, 0), k) for k in range(of_hulls[hull[b]], of_hulls[hull[b] + 1])]
        found.setdefault(kind, []).extend((p, a, b, share, vertex) for share, vertex in points)
    listed = [place for kind in found for place in found[kind]]
    ends = np.cumsum([0, *(len(x) for x in found.values())])
    pair, first, second = np.array([place[:3] for place in listed], np.int32).reshape(-1, 3).T
    shapes = np.stack([first, second], axis=1)
    carriers = np.array(fixed.links, np.int32) % (links + 1)
    share = np.array([place[3] for place in listed], np.int32).reshape(-1, 3)
    vertex = np.array([place[4] for place in listed], np.int32)
    groups = {kind: slice(int(i), int(j)) for kind, i, j in zip(found, ends, ends[1:], strict=False)}
    return Places(pair, shapes, carriers[shapes] if listed else shapes, share, vertex, groups)


def vertex_counts(shapes: Shapes) -> tuple[int, ...]:
    """Number of vertices of each hull."""
    return tuple(vertices.shape[-2] for vertices in shapes.vertices)


def bodies_of(bodies: Bodies, size: Any, radius: Any) -> Body:
    """All shapes, one row for each."""
    centre = add(sub(bodies.origin, tuple(c[None] for c in bodies.centre)), bodies.offset)
    dtype = centre[0].dtype
    spread = lambda x: (x if x.ndim == centre[0].ndim else x[..., None]).astype(dtype)
    return Body(bodies.rotation, centre, tuple(spread(size[:, k]) for k in range(3)), spread(radius))


Points = dict[str, Any]
"""For every kind of place, one row each of what else determines them: entries as `FINDERS` take them."""


def touches(places: Places, bodies: Body, points: Points) -> Touch:
    """All places, one row for each."""
    found = []
    for kind, group in places.groups.items():

        def one(_, at, finder=FINDERS[kind]):
            first, second, point = at
            return None, finder(rows(bodies, first), rows(bodies, second), tuple(point))

        columns = (*places.shapes[group].T, points[kind])
        found.append(scan_links(one, None, columns)[1])
    return jax.tree.map(lambda *x: jnp.concatenate(x), *found)


def axes_along(normal: Vec, hint: Vec | None = None) -> tuple[Vec, Vec, Vec]:
    """The axes of a contact from its normal and the direction of a tangent."""
    hint = _world_axis(normal) if hint is None else hint
    side = sub(hint, scale(dot(normal, hint), normal))
    side = scale(1 / norm(*side), side)
    return normal, side, cross(normal, side)


def _world_axis(normal: Vec) -> Vec:
    """The y axis of the world, or z if the normal is too close to y."""
    y = (jnp.abs(normal[1]) < 0.5).astype(normal[1].dtype)
    return jnp.zeros_like(y), y, 1 - y


def _on_plane(plane: Body, point: Vec, radius: Component, hint: Vec | None, exists: Component) -> Touch:
    normal = plane.axis
    distance = dot(normal, sub(point, plane.centre))
    return _near(distance, normal, point, radius, hint, exists)


def _near(distance: Component, normal: Vec, point: Vec, radius: Component, hint: Vec | None, exists) -> Touch:
    """A sphere about a point at a distance from a surface, along its normal."""
    gap = distance - radius
    return Touch(gap, sub(point, scale(gap / 2 + radius, normal)), axes_along(normal, hint), exists)


def _point(plane: Body, body: Body, share: Vec) -> Touch:
    """A sphere, or an end of a capsule."""
    end = add(body.centre, scale(share[2] * body.size[2], body.axis))
    normal, axis = plane.axis, body.axis
    long = (body.size[2] > 0) & (norm(*cross(normal, axis)) > TINY)  # across the plane, a capsule gives no direction
    return _on_plane(plane, end, body.radius, select(long, axis, _world_axis(normal)), jnp.ones_like(end[0]))


def _corner(plane: Body, body: Body, share: Vec) -> Touch:
    """A corner of a box, if it is below the centre."""
    offset = rotate(body.rotation, tuple(s * x for s, x in zip(share, body.size, strict=True)))
    below = (dot(plane.axis, offset) <= 0).astype(offset[0].dtype)
    return _on_plane(plane, add(body.centre, offset), body.radius, None, below)


def _vertex(plane: Body, body: Body, offset: Vec) -> Touch:
    """A vertex of a hull."""
    point = add(body.centre, rotate(body.rotation, offset))
    return _on_plane(plane, point, body.radius, None, jnp.ones_like(point[0]))


def _ground(field: Body, body: Body, at: tuple[Component, ...]) -> Touch:
    """A point of a shape and its nearest triangle of a height field."""
    offset, first, second, third = (at[k : k + 3] for k in range(0, 12, 3))
    side, exists = at[12:]
    point = add(body.centre, rotate(body.rotation, offset))
    local = sub(unrotate(field.rotation, sub(point, field.centre)), first)
    rounding = 64 * jnp.finfo(local[0].dtype).eps * sum(map(jnp.abs, (*first, *local)))
    distance, normal = _from_triangle(local, sub(second, first), sub(third, first), side, rounding)
    exists = exists + jnp.zeros_like(distance)
    return _near(distance, rotate(field.rotation, normal), point, body.radius, None, exists)


def _from_triangle(x: Vec, second: Vec, third: Vec, side: Component, rounding: Component) -> tuple[Component, Vec]:
    """Signed distance of a point from a triangle, whose first corner is the origin, and the unit normal towards the point.

    The distance of a point beside the triangle has the sign `side`, unless it is below `rounding`.
    """
    up = cross(second, third)
    up = scale(1 / norm(*up), up)
    zero = (jnp.zeros_like(x[0]),) * 3
    beside, square, away = x[0] != x[0], jnp.inf, zero
    for start, end in ((zero, second), (second, third), (third, zero)):
        edge, from_start = sub(end, start), sub(x, start)
        beside |= dot(cross(edge, up), from_start) > 0
        here = sub(from_start, scale(jnp.clip(dot(from_start, edge) / dot(edge, edge), 0, 1), edge))
        size = dot(here, here)
        square, away = select(size < square, (size, here), (square, away))
    beside &= square > rounding * rounding
    length = jnp.sqrt(jnp.where(beside, square, 1))
    return select(beside, (side * length, scale(side / length, away)), (dot(up, x), up))


def _ellipsoid(plane: Body, body: Body, share: Vec) -> Touch:
    """The lowest point of an ellipsoid."""
    del share
    local = tuple(-x * s for x, s in zip(unrotate(body.rotation, plane.axis), body.size, strict=True))
    lowest = tuple(s * x / norm(*local) for x, s in zip(local, body.size, strict=True))
    offset = rotate(body.rotation, lowest)
    return _on_plane(plane, add(body.centre, offset), body.radius, None, jnp.ones_like(offset[0]))


def _rim(plane: Body, body: Body, share: Vec) -> Touch:
    """A point of a cylinder: both ends of its lowest generator, and two points across on the lower rim."""
    normal, axis = plane.axis, body.axis
    along = dot(normal, axis)
    axis, along = select(along > 0, scale(-1, axis), axis), -jnp.abs(along)
    down = sub(scale(along, axis), normal)
    length = norm(*down)
    upright = length < TINY
    down = scale(1 / jnp.where(upright, 1, length), down)
    down = scale(body.size[0], select(upright, body.rotation[0::3], down))
    side = scale(3**0.5 / 2, cross(down, axis))
    offset = add(scale(share[0] / 2, down), scale(share[1], side), scale(share[2] * body.size[2], axis))
    return _on_plane(plane, add(body.centre, offset), body.radius, None, jnp.ones_like(length))


def _segments(first: Body, second: Body, share: Vec) -> Touch:
    """The closest points of two spheres or capsules."""
    del share
    a, b = scale(first.size[2], first.axis), scale(second.size[2], second.axis)
    apart = sub(first.centre, second.centre)
    aa, ab, bb, u, v = dot(a, a), -dot(a, b), dot(b, b), -dot(a, apart), dot(b, apart)
    over = lambda x, y: jnp.where(y > TINY, x / jnp.where(y > TINY, y, 1), 0)
    clip = lambda x: jnp.clip(x, -1, 1)
    # a stationary point of the distance, or else on the end of a that it passes; then the same for b
    s = clip(over(bb * u - ab * v, aa * bb - ab * ab))
    t = over(v - ab * s, bb)
    s = jnp.where(jnp.abs(t) > 1, clip(over(u - ab * clip(t), aa)), s)
    t = clip(t)
    from_first = add(first.centre, scale(s, a))
    apart = sub(add(second.centre, scale(t, b)), from_first)
    length = norm(*apart)
    one, zero = jnp.ones_like(length), jnp.zeros_like(length)
    unit = scale(1 / jnp.where(length < TINY, 1, length), apart)
    across = cross(first.axis, second.axis)  # of axes that cross
    width = norm(*across)
    across = select(width < TINY, (one, zero, zero), scale(1 / jnp.where(width < TINY, 1, width), across))
    normal = select(length < TINY, across, unit)
    gap = length - first.radius - second.radius
    point = add(from_first, scale(first.radius + gap / 2, normal))
    return Touch(gap, point, axes_along(normal), one)


# by both shapes, and for "vertex" and "ground" the point in the frame of the second, for others its share of the size; for
# "ground" also the corners of the triangle in the first shape's frame, on which side of the surface the point is (1 or -1),
# and whether the nearest point of the surface is within the border (1 or 0)
FINDERS: dict[str, Callable[[Body, Body, Any], Touch]] = {
    "point": _point,
    "corner": _corner,
    "vertex": _vertex,
    "ground": _ground,
    "ellipsoid": _ellipsoid,
    "rim": _rim,
    "segments": _segments,
}

"""Convex cores: supporting points, and the signed distance of two cores along a direction.

Components are separate scalars, or arrays of them over lanes (docs/design.md). For a unit vector n from core A to core B,

    gap(n) = n . (c_B - c_A) - h_A(n) - h_B(-n),    h(n) = max over x in the core of n . (x - c),

is a lower bound of the signed distance of the cores, and its maximum over all n is that distance: the length of the shortest
segment between them, or the negative of the shortest translation that separates them (Cameron & Culley 1986). Functions that
search for n may thus return any of several candidates, and an inexact one errs on the safe side, in second order of its error.
"""

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..dynamics.engine.kernel import settled
from ..spatial.components import Component, Mat, Vec, add, dot, rotate, scale, sub, unrotate
from .shapes import Kind

T = TypeVar("T")


class Grid(NamedTuple):
    """Heights of a height field over a grid: those of all height fields, row by row, and the index of its first one there.

    `last` are the last indices along x and y, and `range` the least and the largest height.
    """

    heights: Float[Array, " h"]
    first: Int[Array, ""]
    last: Int[Array, "2"]
    range: Float[Array, "2"]


class Core(NamedTuple):
    """A convex core, or a height field: rotation and centre of its frame in common axes, half sizes, and what else it needs."""

    rotation: Mat
    centre: Vec
    size: Vec
    vertices: Float[Array, "V 3"] | None = None  # of a hull
    grid: Grid | None = None  # of a height field


class Closest(NamedTuple):
    """Signed distance of two cores, their closest points, and the unit normal n from the first to the second.

    A kernel computes the values that are `shared` by several results once (see `scan_shared`).
    """

    distance: Component
    first: Vec
    second: Vec
    normal: Vec
    shared: tuple[Component, ...] = ()


def support(kind: Kind, core: Core, n: Vec) -> Vec:
    """A point x of the core with the largest n . x, in common axes."""
    if kind in ("sphere", "plane"):  # a half-space has supporting points only along its axis
        return core.centre
    x, y, z = settled(*unrotate(core.rotation, n))
    a, b, c = core.size
    if kind == "capsule":
        axis = core.rotation[2::3]
        return add(core.centre, scale(signed(c, z), axis))
    if kind == "box":
        local = signed(a, x), signed(b, y), signed(c, z)
    elif kind == "cylinder":
        radial = norm(x, y)
        local = a * x / radial, a * y / radial, signed(c, z)
    elif kind == "ellipsoid":
        scaled = a * x, b * y, c * z
        length = norm(*scaled)
        local = a * scaled[0] / length, b * scaled[1] / length, c * scaled[2] / length
    else:
        local = _highest_vertex(core, (x, y, z))
    return add(core.centre, rotate(core.rotation, local))


def _highest_vertex(core: Core, n: Vec) -> Vec:
    """The vertex of a hull with the largest n . x; the first one if several are equally high."""
    assert core.vertices is not None
    here = lambda vertex: tuple(jnp.broadcast_to(x, jnp.shape(n[0])) for x in vertex)
    first = here(core.vertices[0])

    def body(best, vertex):  # unlike `argmax`, a loop over vertices requires no gather
        height, *x = best
        candidate = dot(n, vertex)
        higher = candidate > height
        return (
            jnp.where(higher, candidate, height),
            *(jnp.where(higher, a, b) for a, b in zip(vertex, x, strict=True)),
        ), None

    others = tuple(core.vertices[1:, k] for k in range(3))
    (_, x, y, z), _ = jax.lax.scan(body, (dot(n, first), *first), others)
    return x, y, z


def gap(kinds: tuple[Kind, Kind], a: Core, b: Core, n: Vec) -> tuple[Component, Vec, Vec]:
    """gap(n) of the module's docstring, and the supporting points of both cores."""
    x, y = support(kinds[0], a, n), support(kinds[1], b, scale(-1, n))
    return dot(n, sub(y, x)), x, y


def perpendicular(u: Vec) -> Vec:
    """A unit vector perpendicular to the unit vector u (Duff et al. 2017)."""
    x, y, z = u
    sign = jnp.where(z < 0, -1, 1)
    a = -1 / (sign + z)
    return 1 + sign * x * x * a, sign * x * y * a, -sign * x


def signed(size: Component, x: Component) -> Component:
    """The size with the sign of x."""
    return jnp.where(x < 0, -size, size)


def select(condition: Component, x: T, y: T) -> T:
    """`jnp.where` of each component."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), x, y)


def norm(*x: Component) -> Component:
    """Euclidean norm, bounded away from zero."""
    return jnp.sqrt(jnp.maximum(dot(x, x), jnp.finfo(jnp.result_type(*x)).tiny))

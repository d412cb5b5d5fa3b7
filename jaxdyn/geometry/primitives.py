"""Closest points of the cores of two shapes: closed forms for points, segments, boxes and planes.

Components are separate scalars, or arrays of them over lanes, as in `cores`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.lax import stop_gradient

from ..dynamics.engine.kernel import any_lane, settled
from ..spatial.components import Component, Vec, add, cross, dot, rotate, scale, sub, unrotate
from .convex import search
from .cores import Closest, Core, perpendicular, select, signed, support
from .height_fields import core_and_height_field
from .shapes import Kind


def needs_search(kinds: tuple[Kind, Kind]) -> bool:
    """False if `closest` is in closed form."""
    return kinds[1] != "plane" and (kinds[0] != "capsule" or kinds[1] not in ("capsule", "box", "cylinder"))


def closest(kinds: tuple[Kind, Kind], a: Core, b: Core) -> Closest:
    """Closest points of two cores, whose kinds are in the order of `KINDS`, with a capsule for a sphere.

    They are constants for derivatives if they are found by iterations.
    """
    if kinds == ("capsule", "capsule"):
        return _segments(a, b)
    if kinds == ("capsule", "box"):
        return _segment_and_box(a, b)
    if kinds == ("capsule", "cylinder"):
        return _segment_and_cylinder(*stop_gradient((a, b)))
    if kinds[1] == "plane":
        return _core_and_plane(kinds[0], a, b)
    if kinds[1] == "height_field":
        return core_and_height_field(kinds[0], *stop_gradient((a, b)))
    return search(kinds, *stop_gradient((a, b)))


def differentiable(a: Core, b: Core, found: Closest) -> Component:
    """The distance of two cores, with the derivatives of n . (x_b - x_a) for points that move and grow with the cores."""
    fixed = dot(found.normal, sub(_fixed_to(b, found.second), _fixed_to(a, found.first)))
    return fixed + stop_gradient(found.distance - fixed)


def _fixed_to(core: Core, x: Vec) -> Vec:
    local = unrotate(core.rotation, sub(x, core.centre))
    share = tuple(jnp.where(s > 0, y / jnp.where(s > 0, s, 1), 0) for s, y in zip(core.size, local, strict=True))
    rest = tuple(y - s * k for s, k, y in zip(core.size, share, local, strict=True))
    scaled = tuple(s * stop_gradient(k) + stop_gradient(y) for s, k, y in zip(core.size, share, rest, strict=True))
    return add(core.centre, rotate(core.rotation, scaled))


def _core_and_plane(kind: Kind, a: Core, b: Core) -> Closest:
    n = scale(-1, b.rotation[2::3])
    first = support(kind, a, n)
    distance = dot(n, sub(b.centre, first))
    return Closest(distance, first, add(first, scale(distance, n)), n)


def _segments(a: Core, b: Core) -> Closest:
    """Closest points c_a + s u and c_b + t v of two segments, which may be points (Ericson 2005, sec. 5.1.9)."""
    u, v, c = a.rotation[2::3], b.rotation[2::3], sub(b.centre, a.centre)
    across = cross(u, v)  # and not 1 - (u . v)^2, which has half the digits for nearly parallel segments
    sine = dot(across, across)
    crossing = sine > jnp.sqrt(jnp.finfo(jnp.result_type(sine)).tiny)  # its square, in derivatives, does not underflow
    s = _clip(dot(cross(c, v), across) / jnp.where(crossing, sine, 1), a.size[2])
    cosine = dot(u, v)
    t = _clip(s * cosine - dot(v, c), b.size[2])
    s = _clip(dot(u, c) + t * cosine, a.size[2])
    apart = sub(add(c, scale(t, v)), scale(s, u))
    # where the segments touch, they are separated by a motion along the common normal, and a line by any normal of it
    length, n = _length_and_direction(apart, across, sine, perpendicular(u))
    return Closest(length, add(a.centre, scale(s, u)), add(b.centre, scale(t, v)), n, (s, t, *apart, *across))


def _length_and_direction(x: Vec, second: Vec, square: Component, last: Vec) -> tuple[Component, Vec]:
    """|x|, and the direction of the first vector with a sufficient length among x, a second one, and a unit vector."""
    own = dot(x, x)
    info = jnp.finfo(jnp.result_type(own))
    least = info.tiny / info.eps**2
    long, other = own > least, square > least
    chosen = jnp.where(long, own, jnp.where(other, square, 1))
    inverse = 1 / jnp.sqrt(chosen)
    pick = lambda p, q, r: jnp.where(long, p, jnp.where(other, q, r)) * inverse
    # not own * inverse, since many programs need only the length
    return jnp.where(long, jnp.sqrt(jnp.where(long, own, 1)), 0), tuple(map(pick, x, second, last))


def _segment_and_box(a: Core, b: Core) -> Closest:
    """The closest points of a segment c + t d and a box, in the frame of the box; the least translation if they overlap."""
    c, d, end = _in_frame_of(b, a)
    half = b.size
    excess = lambda x: tuple(y - _clip(y, h) for y, h in zip(x, half, strict=True))
    faces = [(side * h - x) / _nonzero(y) for x, y, h in zip(c, d, half, strict=True) for side in (-1, 1)]
    t = _nearest_on_segment(c, d, end, excess, faces)
    return _apart_or_overlapping(b, c, d, end, t, excess, _least_overlap(c, d, end, half, t))


ROOT_STEPS = 16  # of the method of false position
BISECTIONS = 36  # of a right angle, to 2e-11


class Overlap(NamedTuple):
    """A normal n from a segment to a core, gap(n), and the t of the deepest point of the segment."""

    gap: Component
    n: Vec
    t: Component


def _segment_and_cylinder(a: Core, b: Core) -> Closest:
    """As `_segment_and_box`."""
    c, d, end = _in_frame_of(b, a)
    radius, _, half = b.size

    def excess(x):
        rho = jnp.sqrt(jnp.maximum(x[0] * x[0] + x[1] * x[1], jnp.finfo(jnp.result_type(x[0])).tiny))
        outside = jnp.maximum(1 - radius / rho, 0)
        return outside * x[0], outside * x[1], x[2] - _clip(x[2], half)

    across, along = d[0] * d[0] + d[1] * d[1], c[0] * d[0] + c[1] * d[1]
    root = jnp.sqrt(jnp.maximum(along * along - across * (c[0] * c[0] + c[1] * c[1] - radius * radius), 0))
    breaks = [(side * half - c[2]) / _nonzero(d[2]) for side in (-1, 1)]
    breaks += [(-along + side * root) / _nonzero(across) for side in (-1, 0, 1)]
    t = _nearest_on_segment(c, d, end, excess, breaks, steps=ROOT_STEPS)
    return _apart_or_overlapping(b, c, d, end, t, excess, _least_overlap_of_cylinder(c, d, end, radius, half, t))


def _least_overlap_of_cylinder(
    c: Vec, d: Vec, end: Component, radius: Component, half: Component, inside: Component
) -> Overlap:
    """As `_least_overlap`: the Minkowski difference has two flat faces, a side, and the products of the rims with the segment.

    The latter have normals n = u cos + v sin of an angle, with unit vectors u and v perpendicular to the segment, and u to the
    axis. Up to signs, gap(n) = x cos + y sin - radius sqrt(cos^2 + d_z^2 sin^2) is that of a point and an ellipse. Its slope,
    divided by cos, is concave in the tangent of the angle, so that its last root is the maximum.
    """
    zero = jnp.zeros_like(c[0] + end)
    sign = jnp.where(c[2] > 0, -1, 1) + zero
    tilt = sign * d[2]
    lowest = jnp.where(jnp.abs(tilt) < 1e-6, inside, signed(end, tilt))
    face = Overlap(jnp.abs(c[2]) - half - end * jnp.abs(tilt), (zero, zero, sign), lowest)
    # the side: the point of the segment closest to the axis, and any normal of a segment through the axis
    sine = jnp.sqrt(d[0] * d[0] + d[1] * d[1])
    upright = sine < 1e-9
    inverse = 1 / jnp.where(upright, 1, sine)
    u = jnp.where(upright, 1, d[1] * inverse), jnp.where(upright, 0, -d[0] * inverse), zero
    near = _clip(jnp.where(upright, inside, -(c[0] * d[0] + c[1] * d[1]) * inverse * inverse), end)
    axial = add(c, scale(near, d))
    rho = jnp.sqrt(axial[0] * axial[0] + axial[1] * axial[1])
    off_axis = rho > 0
    inward = -1 / jnp.where(off_axis, rho, 1)
    normal = jnp.where(off_axis, inward * axial[0], u[0]), jnp.where(off_axis, inward * axial[1], u[1]), zero
    best = _better(face, Overlap(rho - radius, normal, near))
    # the rims
    v = cross(d, u)
    p, q = dot(u, c), dot(v, c)
    x, y, flat = jnp.abs(p), jnp.abs(q) - half * jnp.abs(v[2]), radius * v[2] * v[2]

    def narrower(_, bounds):
        low, high = bounds
        n = cosine, sine = _unit(low[0] + high[0], low[1] + high[1])
        width = jnp.sqrt(cosine * cosine + (d[2] * sine) ** 2)
        before = (y * cosine - x * sine) * width + flat * cosine * sine > 0  # the slope is positive, or it still rises
        before |= flat * cosine**3 > x * width**3
        return select(before, n, low), select(before, high, n)

    turns = jnp.where(any_lane(best.gap < 0), BISECTIONS, 0)
    low, high = jax.lax.fori_loop(0, turns, narrower, ((zero + 1, zero), (zero, zero + 1)))
    cosine, sine = _unit(low[0] + high[0], low[1] + high[1])
    n = add(scale(jnp.where(p < 0, cosine, -cosine), u), scale(jnp.where(q < 0, sine, -sine), v))
    level = jnp.sqrt(n[0] * n[0] + n[1] * n[1])
    reach = radius / jnp.where(level > 0, level, 1)
    rim = -reach * n[0], -reach * n[1], -signed(half, n[2])
    to_rim = sub(rim, c)
    gap = jnp.where((x < flat) | (y > 0), dot(n, to_rim), -jnp.inf)  # otherwise, n is that of the side
    return _better(best, Overlap(gap, n, _clip(dot(d, to_rim), end)))


def _in_frame_of(b: Core, segment: Core) -> tuple[Vec, Vec, Component]:
    """Centre, direction and half length of a segment, in the frame of the core b."""
    centre = unrotate(b.rotation, sub(segment.centre, b.centre))
    return centre, unrotate(b.rotation, segment.rotation[2::3]), segment.size[2]


def _nearest_on_segment(
    c: Vec, d: Vec, end: Component, excess: Callable[[Vec], Vec], breaks: list[Component], steps: int = 0
) -> Component:
    """The t of the point of the segment that is closest to a core; the middle if the distance is constant in between.

    `excess` leads from the closest point of the core to a point. Half the squared distance is convex in t, and its slope
    increases. It is linear between the breaks, or else its root is found by at most `steps` of the method of false position
    (Dowell & Jarratt 1971, the Illinois algorithm).
    """
    slope_at = lambda t: dot(d, excess(add(c, scale(t, d))))
    low, high = -end, end
    low_slope = high_slope = jnp.zeros_like(end + c[0])
    ts = settled(-end + low_slope, end + low_slope, *(_clip(t, end) for t in breaks))
    for t, slope in zip(ts, settled(*map(slope_at, ts)), strict=True):
        rises, falls = (slope >= 0) & (t <= high), (slope <= 0) & (t >= low)
        high, high_slope = jnp.where(rises, t, high), jnp.where(rises, slope, high_slope)
        low, low_slope = jnp.where(falls, t, low), jnp.where(falls, slope, low_slope)

    def root(low, high, low_slope, high_slope):
        rise = high_slope - low_slope
        share = jnp.where((high > low) & (rise > 0), -low_slope / jnp.where(rise > 0, rise, 1), 0.5)
        return low + share * (high - low)

    if not steps:
        return root(low, high, low_slope, high_slope)

    def narrower(state):
        left, low, high, low_slope, high_slope, before = state
        t = root(low, high, low_slope, high_slope)
        slope = slope_at(t)
        is_low = slope < 0
        halved = jnp.where(is_low == (before < 0), 0.5, 1.0)  # of the side that has stayed
        return (
            left - 1,
            jnp.where(is_low, t, low),
            jnp.where(is_low, high, t),
            jnp.where(is_low, slope, halved * low_slope),
            jnp.where(is_low, halved * high_slope, slope),
            slope,
        )

    zero = jnp.zeros_like(low_slope)
    least = 8 * jnp.finfo(zero.dtype).eps * (end + sum(map(jnp.abs, c)))
    start = steps, low + zero, high + zero, low_slope, high_slope, jnp.where(low < high, jnp.inf, zero)
    state = jax.lax.while_loop(lambda s: (s[0] > 0) & any_lane(jnp.abs(s[-1]) > least), narrower, start)
    return root(*state[1:5])


def _apart_or_overlapping(
    b: Core,
    c: Vec,
    d: Vec,
    end: Component,
    t: Component,
    excess: Callable[[Vec], Vec],
    overlap: Overlap,
) -> Closest:
    """The result for the closest point t of a segment, or that of the overlap if it lies in the core."""
    apart = excess(add(c, scale(t, d)))
    square = dot(apart, apart)
    info = jnp.finfo(jnp.result_type(square))
    length = jnp.sqrt(jnp.maximum(square, info.tiny))  # with a finite derivative inside, too
    # a segment through the core may have been found where it enters, outside by rounding
    outside = (square > info.tiny) & (length > 16 * info.eps * (end + sum(map(jnp.abs, c))))
    distance, n, t = select(outside, Overlap(length, scale(-1 / jnp.where(outside, length, 1), apart), t), overlap)
    on_segment = add(c, scale(t, d))
    to_world = lambda x: add(b.centre, rotate(b.rotation, x))
    first, second, normal = to_world(on_segment), to_world(add(on_segment, scale(distance, n))), rotate(b.rotation, n)
    return Closest(distance, first, second, normal, (distance, *on_segment, *n))


def _nonzero(x: Component) -> Component:
    return jnp.where(x == 0, 1, x)


def _least_overlap(c: Vec, d: Vec, end: Component, half: Vec, inside: Component) -> Overlap:
    """The normal along which a segment and a box overlap least.

    The Minkowski difference has faces along those of the box, and along the products of its edges with the segment. If the
    segment is parallel to the face of the box, all its points are equally deep, and `inside` is that of one in the box.
    """
    zero = jnp.zeros_like(c[0] + end)
    best = Overlap(jnp.full_like(zero, -jnp.inf), (zero, zero, zero), zero)
    for axis in range(3):
        other, third = (axis + 1) % 3, (axis + 2) % 3
        side = jnp.where(c[axis] > 0, -1, 1) + zero
        tilt = side * d[axis]
        end_of_face = jnp.where(jnp.abs(tilt) < 1e-6, inside, jnp.where(tilt < 0, -end, end))
        face = jnp.abs(c[axis]) - half[axis] - end * jnp.abs(tilt)
        best = _better(best, Overlap(face, _along(axis, side, zero), end_of_face))
        square = d[other] ** 2 + d[third] ** 2
        valid = square > 1e-6  # otherwise, the segment is along the edge, and their product has no direction
        square = jnp.where(valid, square, 1)
        p, q = d[third] / jnp.sqrt(square), -d[other] / jnp.sqrt(square)
        sign = jnp.where(p * c[other] + q * c[third] > 0, -1, 1)
        p, q = sign * p, sign * q
        to_edge = signed(half[other], -p) - c[other], signed(half[third], -q) - c[third]
        edge = jnp.where(valid, p * to_edge[0] + q * to_edge[1], -jnp.inf)
        meeting = _clip((to_edge[0] * d[other] + to_edge[1] * d[third]) / square, end)
        best = _better(best, Overlap(edge, add(_along(other, p, zero), _along(third, q, zero)), meeting))
    return best


def _along(axis: int, x: Component, zero: Component) -> Vec:
    i, j, k = (x if axis == other else zero for other in range(3))
    return i, j, k


def _better(best: Overlap, other: Overlap) -> Overlap:
    return select(other.gap > best.gap, other, best)


def _unit(x: Component, y: Component) -> tuple[Component, Component]:
    inverse = 1 / jnp.sqrt(x * x + y * y)
    return x * inverse, y * inverse


def _clip(x: Component, bound: Component) -> Component:
    return jnp.minimum(jnp.maximum(x, -bound), bound)

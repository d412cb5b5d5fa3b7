"""The direction of largest gap between two convex cores, by a search for the point of their difference closest to a point.

The difference D = {y - x: x in core A, y in core B} contains the vectors from A to B, and gap(n) of `cores` is the minimum of
n . d over D. For a point p outside D, let v be the vector from p to the closest point of D. Then n = v / |v| maximises
gap(n) - n . p. The search follows Gilbert, Johnson & Keerthi (1988): v is the closest point of a triangle of points of D, to
which a supporting point of D along -v is added until |v| and its lower bound agree.

If the cores are apart, p = 0. If they overlap, 0 lies inside D, and gap has several local maxima. With n_k the best direction
so far, p = -t n_k with t = margin - gap(n_k) is outside D, and the direction found from there maximises
gap(n) + t n . n_k: a proximal step, so that gap(n_k+1) >= gap(n_k). Cores that are closer than the margin are treated in the
same way, so that |v| never falls below it, which would make v / |v| inaccurate.
"""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from ..dynamics.engine.kernel import any_lane, settled
from ..spatial.components import Component, Vec, add, cross, dot, scale, sub
from .cores import Closest, Core, gap, norm, perpendicular, select
from .shapes import Kind

LIMIT, LIMIT_AGAIN = 64, 24  # iterations from the first direction, and from each of the others
MARGIN = 1e-3  # of the extent of D
STALLED = 2  # iterations without progress; a single one happens if the closest point is at the end of an edge
# depth, as a share of the extent of D, up to which the first local maximum is the largest for cores without small faces
SHALLOW = 0.05


class Point(NamedTuple):
    """A point d = y - x of D, and the point x of A."""

    d: Vec
    x: Vec


class _Search(NamedTuple):
    """State of the search of each lane."""

    points: tuple[Point, Point, Point]
    p: Vec
    v: Vec
    squared: Component  # v . v
    n: Vec  # the best direction so far
    gap: Component  # gap(n)
    start: Component  # gap(n) when p was last moved
    stalled: Component  # number of iterations since |v| or p last changed
    done: Bool[Array, "*lanes"]
    left: Component  # iterations


def search(kinds: tuple[Kind, Kind], a: Core, b: Core) -> Closest:
    """Closest points of two cores, for all kinds but planes.

    If the cores overlap, the normal n is a local maximum of gap(n), the largest of those found from several directions.
    """
    # relative to the centre of A, for accuracy far from the origin
    origin, centre = a.centre, sub(b.centre, a.centre)
    a, b = a._replace(centre=scale(0, a.centre)), b._replace(centre=centre)
    n, w, extent = _best(kinds, a, b, _candidates(kinds, a, b))
    margin, shallow = MARGIN * extent, 0 if "hull" in kinds else SHALLOW * extent
    rounding = 16 * jnp.finfo(extent.dtype).eps
    noise = rounding * (extent + norm(*centre))
    curved = not {"cylinder", "ellipsoid"}.isdisjoint(kinds)
    tolerance = max(1e-10, rounding) if curved else rounding

    def moved(n: Vec, gap_n: Component) -> Vec:
        return scale(-jnp.maximum(margin - gap_n, 0), n)

    def improve(s: _Search) -> _Search:
        length = jnp.sqrt(s.squared)
        n = scale(1 / length, s.v)
        g, x, y = gap(kinds, a, b, n)
        error = tolerance * (extent + length)
        lower = g - dot(n, s.p)
        found = (length - lower <= error) | (s.stalled >= STALLED)
        gained = 2 * (lower - margin) > length - margin
        apart = (s.p[0] == 0) & (s.p[1] == 0) & (s.p[2] == 0)
        better = (g > s.gap) & ~s.done
        done = s.done | (found & (apart | (jnp.maximum(g, s.gap) - s.start <= error)))
        move = found | (~apart & (gained | (g > margin)))
        g, *point, better, done, move = settled(g, *n, *sub(y, x), *x, better, done, move)
        n, w, g = select(better, _vector(point[:3]), s.n), _point(point[3:]), jnp.where(better, g, s.gap)
        p = _vector(settled(*select(move, moved(n, g), s.p)))
        squared, v, points = _closest(p, w, s.points, noise)
        stalled = jnp.where(move | (squared < s.squared), 0, s.stalled + 1)
        return _Search(points, p, v, squared, n, g, jnp.where(move, g, s.start), stalled, done, s.left - 1)

    def from_start(
        best: tuple[Vec, Component, Vec], start: tuple[Array, ...]
    ) -> tuple[tuple[Vec, Component, Vec], None]:
        old, old_gap, _ = best
        u, v = _tangents(old)
        n = add(old, scale(start[0], u), scale(start[1], v))
        # the first iteration evaluates gap(n) and moves p, as if the search from another p had ended with this direction
        low, far = -1e6 * extent, (extent,) * 3
        stalled, done = jnp.full_like(extent, STALLED), old_gap >= -shallow
        s = _Search((w, w, w), far, n, dot(n, n), n, low, low, stalled, done, start[2])
        s = jax.lax.while_loop(lambda s: (s.left > 0) & any_lane(~s.done), improve, s)
        found = s.n, s.gap, _combined(add(s.p, s.v), s.points)
        return select(s.gap > old_gap, found, best), None

    starts = tuple(jnp.asarray(x, extent.dtype) for x in zip(*_starts(kinds), strict=True))
    nothing = scale(0, n)
    (n, distance, x), _ = jax.lax.scan(from_start, (n, jnp.full_like(extent, -jnp.inf), nothing), starts)
    first = add(origin, x)
    return Closest(distance, first, add(first, scale(distance, n)), n)


def _combined(d: Vec, points: tuple[Point, Point, Point]) -> Vec:
    """The point of A that belongs to a point d of the triangle of D, with the same weights of the vertices."""
    (p, x), (q, y), (r, z) = points
    e, f = sub(q, p), sub(r, p)
    m = cross(e, f)
    info = jnp.finfo(m[0].dtype)
    square = jnp.maximum(dot(m, m), info.tiny)
    along, beside = dot(cross(sub(d, p), f), m) / square, dot(cross(e, sub(d, p)), m) / square
    regular = square > (16 * info.eps) ** 2 * dot(e, e) * dot(f, f)
    least = jnp.where(regular & (along >= 0) & (beside >= 0) & (along + beside <= 1), 0.0, jnp.inf).astype(m[0].dtype)
    best = add(x, scale(along, sub(y, x)), scale(beside, sub(z, x)))
    for start, end, here, there in ((p, q, x, y), (p, r, x, z), (q, r, y, z)):
        edge = sub(end, start)
        share = jnp.clip(dot(sub(d, start), edge) / jnp.maximum(dot(edge, edge), info.tiny), 0, 1)
        miss = sub(add(start, scale(share, edge)), d)
        square, *at = settled(dot(miss, miss), *add(here, scale(share, sub(there, here))))
        best, least = select(square < least, _vector(at), best), jnp.minimum(least, square)
    return best


def _point(components: Sequence[Component]) -> Point:
    return Point(_vector(components[:3]), _vector(components[3:]))


def _vector(components: Sequence[Component]) -> Vec:
    x, y, z = components
    return x, y, z


def _starts(kinds: tuple[Kind, Kind]) -> list[tuple[float, float, int]]:
    """Tangents of the angles from the best direction so far to that of each start, and the largest number of iterations."""
    half = math.sqrt(3) / 2
    ring = [(1.0, 0.0), (-0.5, half), (-0.5, -half)]
    rings = (0.6, -1.5) if "hull" in kinds else (1.0,) if {"cylinder", "ellipsoid"} & set(kinds) else ()
    return [(0.0, 0.0, LIMIT), *((radius * x, radius * y, LIMIT_AGAIN) for radius in rings for x, y in ring)]


def _tangents(n: Vec) -> tuple[Vec, Vec]:
    """Two unit vectors perpendicular to n and to each other."""
    u = perpendicular(n)
    return u, cross(n, u)


def _candidates(kinds: tuple[Kind, Kind], a: Core, b: Core) -> list[Vec]:
    """Directions that often are close to the best one: between the centres, along axes, across edges, and radial."""
    centre = sub(b.centre, a.centre)
    axes = tuple(_axes(kind, core) for kind, core in zip(kinds, (a, b), strict=True))
    found = [centre, *axes[0], *axes[1]]
    for kind, core, own in zip(kinds, (a, b), axes, strict=True):
        if kind in ("capsule", "cylinder"):  # the second one is for centres on the axis
            found += [sub(centre, scale(dot(own[0], centre), own[0])), core.rotation[0::3]]
    if {"ellipsoid", "hull"}.isdisjoint(kinds):
        found += [cross(u, v) for u in axes[0] for v in axes[1]]
    ahead = [select(dot(n, centre) < 0, scale(-1, n), n) for n in found]
    return ahead + [scale(-1, n) for n in ahead] if "hull" in kinds else ahead


def _axes(kind: Kind, core: Core) -> list[Vec]:
    """Axes of the core's frame along which its surface has normals or edges."""
    if kind == "sphere":
        return []
    return [core.rotation[k::3] for k in ((2,) if kind in ("capsule", "cylinder") else (0, 1, 2))]


def _best(kinds: tuple[Kind, Kind], a: Core, b: Core, candidates: list[Vec]) -> tuple[Vec, Point, Component]:
    """The candidate with the largest gap, made a unit vector; a point of D; and the extent of D, from its centre."""
    centre = sub(b.centre, a.centre)
    components = [x for core in (a, b) for x in (*core.rotation, *core.centre, *core.size)]
    shape = functools.reduce(jnp.broadcast_shapes, (jnp.shape(x) for x in components))
    dtype = jnp.result_type(*components, *(core.vertices for core in (a, b) if core.vertices is not None))
    stacked = [jnp.stack([jnp.broadcast_to(n[k], shape) for n in candidates]).astype(dtype) for k in range(3)]

    def body(state: tuple[Vec, Component, Component, Point], candidate: tuple[Array, ...]):
        best_n, best, extent, _ = state
        squared = dot(candidate, candidate)
        usable = squared > jnp.finfo(dtype).tiny
        i, j, k = scale(jnp.where(usable, 1 / jnp.sqrt(jnp.where(usable, squared, 1)), 0), candidate)
        n = jnp.where(usable, i, 1), j, k
        g, x, y = gap(kinds, a, b, n)
        g, *point = settled(g, *n, *sub(y, x), *x)
        n, w = _vector(point[:3]), _point(point[3:])
        better = g > best
        extent = jnp.maximum(extent, norm(*sub(w.d, centre)))
        return (select(better, n, best_n), jnp.where(better, g, best), extent, w), None

    zero = jnp.zeros(shape, dtype)
    zeros = zero, zero, zero
    # the smallest extent is for points that coincide
    start = zeros, zero - jnp.inf, zero + 1e-9, Point(zeros, zeros)
    n, _, extent, w = jax.lax.scan(body, start, tuple(stacked))[0]
    return n, w, extent


def _closest(
    p: Vec, w: Point, points: tuple[Point, Point, Point], noise: Component
) -> tuple[Component, Vec, tuple[Point, Point, Point]]:
    """The vector v from p to the closest point of the tetrahedron (w, points): v . v, v, and a face that contains both.

    The closest point is known to need w, so that the edges and faces without w are left out. `noise` is the rounding error of
    points; triangles that are not higher have no plane.
    """
    d = sub(w.d, p)
    edges = [sub(point.d, w.d) for point in points]
    feet = [_on_edge(d, e) for e in edges]
    feet += [_on_face(d, edges[i], edges[j], noise) for i, j in ((0, 1), (1, 2), (2, 0))]
    squares = settled(*(squared for squared, _ in feet))
    best, v, unused = squares[0], feet[0][1], 2
    for square, (_, other), vertex in zip(squares[1:], feet[1:], (0, 1, 2, 0, 1), strict=True):
        nearer = square < best
        best, v = jnp.where(nearer, square, best), select(nearer, other, v)
        unused = jnp.where(nearer, vertex, unused)
    return best, v, (w, select(unused == 0, points[1], points[0]), select(unused == 2, points[1], points[2]))


def _on_edge(d: Vec, e: Vec) -> tuple[Component, Vec]:
    """The point v closest to zero of the edge from d to d + e: v . v and v."""
    tiny = jnp.finfo(d[0].dtype).tiny
    v = add(d, scale(jnp.clip(-dot(d, e) / jnp.maximum(dot(e, e), tiny), 0, 1), e))
    return dot(v, v), v


def _on_face(d: Vec, e: Vec, f: Vec, noise: Component) -> tuple[Component, Vec]:
    """As `_on_edge`, for the triangle d, d + e, d + f; v . v is infinite unless v is inside."""
    m = cross(e, f)
    squared = dot(m, m)
    first, second = dot(cross(f, d), m), dot(cross(d, e), m)
    inside = (first > 0) & (second > 0) & (first + second < squared)
    regular = squared > noise * noise * jnp.maximum(dot(e, e), dot(f, f))
    share = dot(m, d) / jnp.where(regular, squared, 1)
    return jnp.where(inside & regular, dot(m, d) * share, jnp.inf), scale(share, m)

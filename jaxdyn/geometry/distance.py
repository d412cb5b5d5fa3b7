"""Signed distances of the shapes on a robot's links, with the closest points, for all pairs at once.

Pairs are grouped by the kinds of their shapes; one scan evaluates a group, pair by pair, each for all lanes. For every pair, a
function searches for the unit normal n from the first to the second core; the distance is then gap(n) (see `cores`), less both
radii. Since n maximises gap, the derivatives of the distance are those of gap with n held fixed (Danskin 1967): no derivative
passes through a search, and each is finite, also where the distance has a kink.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..dynamics.engine.kernel import blank_results, linear_map, mode, settled
from ..dynamics.engine.lanes import (
    NO_KERNEL,
    PerLink,
    by_batch,
    fold_shared,
    is_zero,
    scan_links,
    scan_shared,
    sparse_jvp,
    spread_over_lanes,
)
from ..dynamics.engine.matrices import put, rows
from ..dynamics.engine.sweep import Link, inward, next_pose_finely, outward, start_pose
from ..errors import ModelError
from ..model.chain import Chain, Position, ancestor_mask
from ..model.compiled import compiled
from ..model.configuration import place
from ..spatial.components import add, cross, dot, matmul, rotate, scale, sub
from .cores import Core, Grid
from .primitives import closest, differentiable, needs_search
from .shapes import KINDS, Fixed, Kind, Shapes


class ClosestPoints(NamedTuple):
    """Closest points of pairs of shapes, in the order of `Shapes.pairs`.

    Attributes:
        distance: signed distance, see `distances` [m].
        first: point on the first shape, in the world [m]: the end of the shortest segment between the shapes, or in overlap
            the deepest point in the second shape.
        second: point on the second shape, first + distance * normal [m].
        normal: unit vector from the first to the second shape, in world axes. Where several are equally good (concentric
            spheres, crossing axes), it is one of them.
    """

    distance: Float[Array, " p"]
    first: Float[Array, "p 3"]
    second: Float[Array, "p 3"]
    normal: Float[Array, "p 3"]


@compiled
def distances(chain: Chain, shapes: Shapes, q: Position) -> Float[Array, " p"]:
    """Signed distance of every pair in `shapes.pairs` [m].

    It is the length of the shortest segment between the shapes, or the negative of the shortest translation that separates
    them. It is exact for spheres and capsules with each other, boxes or cylinders, and for planes. For other convex pairs, it
    is exact apart and in shallow contact, and in deep overlap a lower bound. The distance from a height field is exact for
    spheres, and for other shapes that of some of their points (see docs/shapes.md).

    Derivatives with respect to q and all leaves of the robot and the shapes are exact, for q
    d distance = n . (v_second - v_first), with the unit normal n and the velocities v of the closest points as fixed to their
    links. Second derivatives are exact for spheres, capsules, boxes and planes, and otherwise count points and normals as
    constants. Vertices of hulls and heights have no derivatives.

    Cost: O(n + m + p) for n links, m shapes and p pairs, and O(n p) for a derivative; in reverse mode O(n + m + p), unless a
    pair needs a search. Near a height field, that of a few cells per point; farther away, of those that may be nearer.
    """
    return _distances(*scene_of(chain, shapes, q))


@compiled
def closest_points(chain: Chain, shapes: Shapes, q: Position) -> ClosestPoints:
    """Signed distance, closest points and normal of every pair in `shapes.pairs` [m].

    The distance is that of `distances`, with its derivatives. Derivatives of points and normals are zero.

    Cost: O(n + m + p) for n links, m shapes and p pairs.
    """
    distance, *components = _points(*scene_of(chain, shapes, q))
    return ClosestPoints(distance, *(jnp.stack(components[k : k + 3], axis=1) for k in (0, 3, 6)))


class Scene(NamedTuple):
    """A chain with ordinary joints, the shapes on it, and the pose of the base in the world, which carries the surroundings."""

    chain: Chain
    shapes: Shapes
    base: Float[Array, "4 4 *#lanes"]
    heights: Float[Array, " h"]  # of all height fields, row by row
    ranges: Float[Array, "f 2"]  # least and largest height of each


def scene_of(chain: Chain, shapes: Shapes, q: Position) -> tuple[Scene, Float[Array, " n"]]:
    if (most := max(shapes.links, default=-1)) >= chain.n:
        fault = f"shape {shapes.names[shapes.links.index(most)]} is on link {most}, but the robot has {chain.n} links"
        raise ModelError(fault, "read or make the shapes for this robot")
    links, x = place(chain, q)
    base = jnp.eye(4, dtype=x.dtype) if chain.base_pose is None else chain.base_pose.astype(x.dtype)
    fields = [heights.astype(x.dtype) for heights in jax.lax.stop_gradient(shapes.heights)]
    nothing = jnp.zeros(0, x.dtype)  # here and not in the kernels, which would repeat this for every few states
    heights = jnp.concatenate([nothing, *(field.reshape(-1) for field in fields)])
    ranges = jnp.array([(field.min(), field.max()) for field in fields], x.dtype).reshape(-1, 2)
    return Scene(links, shapes, base, heights, ranges), x


def _size(scene: Scene) -> int:
    if "height_field" in scene.shapes.kinds and jax.local_device_count("cpu") > 1:
        return NO_KERNEL  # in which the search could not end early
    # results are components, since larger arrays would leave room for fewer lanes
    return 100 + max(2 * len(scene.shapes.pairs), 4 * len(scene.shapes.kinds), 10 * scene.chain.n)


@by_batch(size=_size)
def _distances(scene: Scene, x: PerLink) -> Float[Array, "p *#lanes"]:
    return _all_pairs(scene, placed_shapes(scene, x)[0], lambda pair: pair.distance)


@by_batch(size=_size)
def _points(scene: Scene, x: PerLink) -> tuple[Float[Array, "p *#lanes"], ...]:
    """Distances, and components of the points on both shapes and of the normals."""
    bodies, _ = placed_shapes(scene, x)
    return _all_pairs(scene, bodies, lambda pair: (pair.distance, *pair.first, *pair.second, *pair.normal))


class _Wrenches(NamedTuple):
    """Distances, and in world axes about a point: a unit wrench of every pair, and the screw of every joint."""

    distance: Array
    wrenches: tuple[Array, ...]  # six components (p, *lanes)
    screws: tuple[Array, ...]  # six components (n, *lanes)
    point: tuple[Array, ...]


@by_batch(size=_size)
def _with_wrenches(scene: Scene, x: PerLink) -> _Wrenches:
    bodies, screws = placed_shapes(scene, x)
    distance, *wrench = _all_pairs(scene, bodies, lambda pair: (pair.distance, *pair.moment, *pair.normal))
    return _Wrenches(distance, tuple(wrench), screws, bodies.centre)


class _Loads(NamedTuple):
    """What the forces on all pairs exert: torques of the joints, and a wrench on the robot about a point."""

    torque: Float[Array, "n *#lanes"]
    wrench: Float[Array, "6 *#lanes"]
    point: tuple[Array, ...]


@by_batch(size=_size)
def _loads(scene: Scene, x: PerLink, force: Float[Array, "p *#lanes"]) -> _Loads:
    """The loads of forces that act along the normals, on the first shapes of pairs in their opposite direction."""
    bodies, screws = placed_shapes(scene, x)
    on_links = (_added_up if mode().in_kernel else _gathered)(scene, bodies, spread_over_lanes(force))
    own = tuple(component[: scene.chain.n] for component in on_links)
    gather = lambda below, _, here: (add(below, here), add(below, here))
    carried = inward(scene.chain, x, gather, (jnp.zeros_like(bodies.centre[0]),) * 6, own)
    return _Loads(dot(screws, carried), jnp.stack([component.sum(0) for component in own]), bodies.centre)


def _added_up(scene: Scene, bodies: "Bodies", force: Array) -> tuple[Array, ...]:
    """The wrenches on all links, six components (at least n rows, *lanes), pair by pair."""
    links = np.array(scene.shapes.links, np.int32) % (scene.chain.n + 1)
    evaluate = _evaluator(scene, bodies)
    total = blank_results((scene.chain.n + 1,) * 6, (force[0],) * 6)
    for group in _groups(scene.shapes.fixed).members:

        def add_pair(total, at, kinds=group.kinds):
            pair, (a, b), place = at
            shared, found = evaluate(kinds, pair)
            wrench = settled(*scale(rows(force, place), (*found.moment, *found.normal)))
            for link, sign in ((a, -1), (b, 1)):
                moved = zip(total, add(rows(total, link), scale(sign, wrench)), strict=True)
                total = tuple(put(x, y, link) for x, y in moved)
            return total, shared

        total = fold_shared(add_pair, total, (tuple(group.pairs.T), tuple(links[group.pairs].T), group.places))
    return total


def _gathered(scene: Scene, bodies: "Bodies", force: Array) -> tuple[Array, ...]:
    """As `_added_up`, all pairs at once."""
    pairs, links = np.array(scene.shapes.pairs, int).reshape(-1, 2), np.array(scene.shapes.links, int)
    on_links = np.zeros((scene.chain.n + 1, len(pairs)))
    for side, sign in ((0, -1), (1, 1)):
        np.add.at(on_links, (links[pairs[:, side]], np.arange(len(pairs))), sign)
    wrench = _all_pairs(scene, bodies, lambda pair: (*pair.moment, *pair.normal))
    return tuple(jnp.tensordot(jnp.asarray(on_links, force.dtype), force * component, 1) for component in wrench)


@by_batch(size=_size)
def _differentiable(scene: Scene, x: PerLink) -> Float[Array, "p *#lanes"]:
    """The distances, which JAX differentiates with respect to all leaves."""
    return _all_pairs(scene, placed_shapes(scene, x)[0], lambda pair: pair.distance, differentiates=True)


@_distances.defjvp
def _(primals, tangents):
    scene, x = primals
    (of_chain, of_shapes, of_base, *_), of_x = tangents
    others = {name: t for name, t in vars(of_chain).items() if name not in ("topology", "base_pose")}
    if not all(map(is_zero, jax.tree.leaves((others, of_shapes, of_base), is_leaf=is_zero))):
        return sparse_jvp(_differentiable, primals, tangents)
    moved = () if is_zero(of_chain.base_pose) or of_chain.base_pose is None else (of_chain.base_pose,)
    motion = jnp.zeros_like(x) if is_zero(of_x) else of_x, *moved
    if any(needs_search(group.kinds) for group in _groups(scene.shapes.fixed).members):
        found = _with_wrenches(scene, x)
        return found.distance, _change(scene, found, motion)
    # without outputs for each pair, reverse mode is three times as fast (a humanoid with 412 pairs, batch 4096)
    change = lambda at, motion: _change(at[0], _with_wrenches(at[0], at[1]), motion)
    loads = lambda at, force: _pulled_back(at[0], at[1], force)[: len(motion)]
    return _distances(scene, x), linear_map(change, loads, (scene, x), motion)


def _change(scene: Scene, found: _Wrenches, motion: tuple[Array, ...]) -> Float[Array, " p"]:
    """The change of the distances with that of x, and with that of the base's pose, if it is given."""
    of_x, *moved = motion
    moves, n = jnp.asarray(_relative(scene), of_x.dtype), scene.chain.n
    change = (jnp.stack(found.screws) * of_x[None]) @ moves[:n]
    for pose in moved:
        assert scene.chain.base_pose is not None
        change += _twist_at(jnp.stack(found.point), scene.chain.base_pose, pose)[:, None] * moves[n:]
    return jnp.sum(jnp.stack(found.wrenches) * change, axis=0)


def _pulled_back(scene: Scene, x: Float[Array, " n"], force: Float[Array, " p"]) -> tuple[Array, ...]:
    """The transpose of `_change`."""
    found, pose = _loads(scene, x, force), scene.chain.base_pose
    if pose is None:
        return (found.torque,)
    twist = functools.partial(_twist_at, jnp.stack(found.point), pose)
    return found.torque, *jax.linear_transpose(twist, pose)(found.wrench)


@_points.defjvp
def _(primals, tangents):
    _, change = sparse_jvp(_distances, primals, tangents)
    found = _points(*primals)
    return found, (change, *map(jnp.zeros_like, found[1:]))


def _twist_at(point: Float[Array, "3"], pose: Float[Array, "4 4"], change: Float[Array, "4 4"]) -> Float[Array, "6"]:
    """The twist (w, v) of a pose that changes, in world axes, with v at a point."""
    turn = change[:3, :3] @ pose[:3, :3].T
    w = jnp.stack([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]]) / 2
    return jnp.concatenate([w, change[:3, 3] + jnp.cross(w, point - pose[:3, 3])])


def _relative(scene: Scene) -> Float[np.ndarray, "movers p"]:
    """1 where a joint (or the motion of the whole robot, the last row) moves only the second shape, -1 where only the first."""
    n = scene.chain.n
    carries = np.zeros((n + 1, n + 1))  # of link or base, by joint
    carries[:n, :n], carries[:n, n] = ancestor_mask(scene.chain.topology.parents).T, 1
    links = np.array(scene.shapes.links, int)[np.array(scene.shapes.pairs, int).reshape(-1, 2)]
    return (carries[links[:, 1]] - carries[links[:, 0]]).T


class Bodies(NamedTuple):
    """Cores of all shapes in world axes, each component (m, *lanes). The centre of a core is origin + offset."""

    rotation: tuple[Array, ...]
    origin: tuple[Array, ...]  # of its link
    offset: tuple[Array, ...]
    centre: tuple[Array, ...]  # one for all: the point of wrenches and screws, near the robot


def placed_shapes(scene: Scene, x: PerLink) -> tuple[Bodies, tuple[Array, ...]]:
    """Poses of all cores, and the screws of the joints in world axes, six components (n, *lanes)."""
    chain, shapes, base, *_ = scene
    x = spread_over_lanes(x)

    def out(parent, link: Link, _):
        here = next_pose_finely(parent, link)
        return here, (here, (*rotate(here[0], link.screw[:3]), *rotate(here[0], link.screw[3:])))

    rotation, position = start_pose(chain, x)
    nothing = tuple(jnp.zeros_like(p) for p in position)
    links, screws = outward(chain, x, out, (rotation, position, nothing))
    centre = position if chain.n == 0 else tuple(p[0] for p in links[1])
    w, v = screws[:3], screws[3:]
    screws = *w, *add(v, cross(sub(links[1], tuple(c[None] for c in centre)), w))
    zero = nothing[0]
    world = (
        tuple(base[i, j] + zero for i in range(3) for j in range(3)),
        tuple(base[i, 3] + zero for i in range(3)),
        nothing,
    )
    everything = jax.tree.map(lambda several, one: jnp.concatenate([several, one[None]]), links, world)
    local = shapes.pose.astype(zero.dtype)

    def placed_shape(_, at):
        link, pose = at
        r, p, rest = rows(everything, link)
        offset = add(rest, rotate(r, tuple(pose[i, 3] for i in range(3))))
        return None, (matmul(r, tuple(pose[i, j] for i in range(3) for j in range(3))), p, offset)

    carriers = np.array([link % (chain.n + 1) for link in shapes.links], np.int32)
    _, (rotation, origin, offset) = scan_links(placed_shape, None, (carriers, local))
    return Bodies(rotation, origin, offset, centre), screws


class Group(NamedTuple):
    """Pairs whose shapes have the same kinds, in the order of `KINDS`.

    Attributes:
        kinds: the kinds, with capsules for spheres.
        turned: whether the order of the shapes is turned round for that of their kinds.
        pairs: the shapes of each pair, in the order of the kinds.
        places: indices of the pairs in `Shapes.pairs`.
    """

    kinds: tuple[Kind, Kind]
    turned: bool
    pairs: Int[np.ndarray, "_ 2"]
    places: Int[np.ndarray, " _"]


class Groups(NamedTuple):
    """All pairs, and where each is in the concatenated groups."""

    members: tuple[Group, ...]
    order: Int[np.ndarray, " p"]


@functools.lru_cache(maxsize=64)
def _groups(fixed: Fixed) -> Groups:
    kinds: tuple[Kind, ...] = tuple("capsule" if kind == "sphere" else kind for kind in fixed.kinds)
    members: dict[tuple[tuple[Kind, Kind], bool], list[int]] = {}
    for k, (a, b) in enumerate(fixed.pairs):
        turned = KINDS.index(kinds[a]) > KINDS.index(kinds[b])
        members.setdefault(((kinds[b], kinds[a]) if turned else (kinds[a], kinds[b]), turned), []).append(k)
    order = np.argsort(np.array([k for group in members.values() for k in group], int))
    pairs = np.array(fixed.pairs, np.int32).reshape(-1, 2)
    groups = []
    for (both, turned), places in members.items():
        groups.append(
            Group(both, turned, pairs[places][:, ::-1] if turned else pairs[places], np.array(places, np.int32))
        )
    return Groups(tuple(groups), order)


class Pair(NamedTuple):
    """Results of one pair, with the moment x cross n of a unit wrench that acts at x along the normal n."""

    distance: Array
    first: tuple[Array, ...]
    second: tuple[Array, ...]
    normal: tuple[Array, ...]
    moment: tuple[Array, ...]

    def turned(self) -> "Pair":
        """The results for the same shapes in the other order."""
        return Pair(self.distance, self.second, self.first, scale(-1, self.normal), scale(-1, self.moment))


def _evaluator(scene: Scene, bodies: Bodies, differentiates: bool = False) -> Callable:
    """The function evaluate(kinds, pair) -> shared (see `scan_shared`), results."""
    dtype, shapes = bodies.origin[0].dtype, scene.shapes
    sizes, radii = shapes.size.astype(dtype), shapes.radius.astype(dtype)
    cores = bodies.rotation, bodies.origin, bodies.offset, tuple(sizes[:, k] for k in range(3)), radii
    hulls, places = _hulls(shapes, dtype)
    grid_of = grids(scene, tuple(field.shape for field in shapes.heights))

    def evaluate(kinds: tuple[Kind, Kind], pair: tuple[Array, Array]) -> tuple[tuple[Array, ...], Pair]:
        (ra, pa, oa, sa, rounding), (rb, pb, ob, sb, other) = (rows(cores, k) for k in pair)
        corners = (
            rows(hulls, rows(places, k)) if kind == "hull" else None for kind, k in zip(kinds, pair, strict=True)
        )
        grid = grid_of(pair[1]) if kinds[1] == "height_field" else None
        # relative to the origin of the first link, since positions in the world may have too few digits
        both = a, b = tuple(map(Core, (ra, rb), (oa, add(sub(pb, pa), ob)), (sa, sb), corners, (None, grid)))
        found = closest(kinds, *(jax.lax.stop_gradient(both) if differentiates else both))
        distance, n = differentiable(a, b, found) if differentiates else found.distance, found.normal
        first, second = add(found.first, scale(rounding, n)), sub(found.second, scale(other, n))
        moment = cross(add(first, sub(pa, bodies.centre)), n)
        return found.shared, Pair(distance - rounding - other, add(pa, first), add(pa, second), n, moment)

    return evaluate


def _all_pairs(scene: Scene, bodies: Bodies, wanted: Callable[[Pair], Any], differentiates: bool = False) -> Any:
    """The wanted results of all pairs, in the order of the pairs, each component (p, *lanes)."""
    evaluate, groups = _evaluator(scene, bodies, differentiates), _groups(scene.shapes.fixed)

    def one_pair(group: Group, pair: tuple[Array, Array]) -> tuple[tuple[Array, ...], Any]:
        shared, found = evaluate(group.kinds, pair)
        return shared, wanted(found.turned() if group.turned else found)

    results = [scan_shared(functools.partial(one_pair, group), tuple(group.pairs.T)) for group in groups.members]
    if not results:
        nothing = jnp.zeros((0, *bodies.origin[0].shape[1:]), bodies.origin[0].dtype)
        return wanted(Pair(nothing, *((nothing,) * 3,) * 4))
    joined = jax.tree.map(lambda *x: jnp.concatenate(x), *results) if len(results) > 1 else results[0]
    in_order = (groups.order == np.arange(len(groups.order))).all()
    return joined if in_order else jax.tree.map(lambda x: x[groups.order], joined)


def _hulls(shapes: Shapes, dtype: Any) -> tuple[Float[Array, "h V 3"], Int[np.ndarray, " m"]]:
    """Vertices of all hulls, padded with the last one of each, and for each shape the index of its hull."""
    if any(v.ndim > 2 for v in shapes.vertices):
        raise ModelError("vertices of hulls cannot differ within a batch", "map over the other leaves of the shapes")
    most = max((len(v) for v in shapes.vertices), default=1)
    padded = [v[np.minimum(np.arange(most), len(v) - 1)].astype(dtype) for v in shapes.vertices]
    places = np.cumsum([kind == "hull" for kind in shapes.kinds]) - 1
    return jnp.stack(padded) if padded else jnp.zeros((1, 1, 3), dtype), places


def grids(scene: Scene, counts: tuple[tuple[int, ...], ...]) -> Callable[[Array], Grid]:
    """The grid of a height field, by its index in the shapes, from the numbers of points of all fields."""
    if scene.heights.ndim > 1:
        raise ModelError("heights cannot differ within a batch", "move the height field instead, by its pose")
    points = np.array(counts, np.int32).reshape(-1, 2)
    first = np.cumsum([0, *points.prod(axis=1)], dtype=np.int32)[:-1]
    index = np.cumsum([kind == "height_field" for kind in scene.shapes.kinds]) - 1
    return lambda k: Grid(scene.heights, *rows((first, points - 1, scene.ranges), rows(index, k)))

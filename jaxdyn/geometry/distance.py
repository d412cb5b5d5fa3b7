"""Signed distances of the shapes on a robot's links, with the closest points, for all pairs at once.

Pairs are grouped by the kinds of their shapes; one scan evaluates a group, pair by pair, each for all lanes. For every pair, a
function searches for the unit normal n from the first to the second core; the distance is then gap(n) (see `cores`), less both
radii. Since n maximises gap, the derivatives of the distance are those of gap with n held fixed (Danskin 1967): no derivative
passes through a search, and each is finite, also where the distance has a kink.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ..dynamics.engine.lanes import PerLink, by_batch, is_zero, scan_links, sparse_jvp, with_lanes
from ..dynamics.engine.sweep import Link, next_pose_finely, outward, start_pose
from ..errors import ModelError
from ..model.chain import Chain, Position, ancestor_mask
from ..model.compiled import compiled
from ..model.configuration import place
from ..spatial.components import add, cross, matmul, rotate, scale, sub
from .cores import Core
from .primitives import closest, differentiable
from .shapes import KINDS, Fixed, Kind, Shapes


class Distances(NamedTuple):
    """Signed distances of pairs of shapes, in the order of `Shapes.pairs`.

    Attributes:
        distance: length of the shortest segment between the shapes, or the negative of the shortest translation that
            separates them [m].
        first: point on the first shape, in the world [m]: the end of this segment, or the deepest point in the second shape.
        second: point on the second shape, first + distance * normal.
        normal: unit vector from the first to the second shape, in world axes. Where several are equally good (concentric
            spheres, crossing axes), it is one of them.
    """

    distance: Float[Array, " p"]
    first: Float[Array, "p 3"]
    second: Float[Array, "p 3"]
    normal: Float[Array, "p 3"]


@compiled
def distances(chain: Chain, shapes: Shapes, q: Position) -> Distances:
    """Signed distance, closest points and normal of every pair in `shapes.pairs` [m].

    The distance is exact for spheres, capsules, boxes and planes, apart and in overlap. If a cylinder, an ellipsoid or a hull
    is involved, it is so apart and in shallow contact; in deep overlap, it is a lower bound (see docs/shapes.md).

    Derivatives of the distance with respect to q and all leaves of the robot and the shapes are exact,
    d distance = n . (v_second - v_first), with the velocities v of the points as fixed to their links. Points and normals count
    as constants in derivatives, also in second derivatives of the distance.

    Cost: O(n + m + p) for n links, m shapes and p pairs.
    """
    links, x = place(chain, q)
    base = jnp.eye(4, dtype=x.dtype) if chain.base_pose is None else chain.base_pose.astype(x.dtype)
    return Distances(*_distances(Scene(links, shapes, base), x))


class Scene(NamedTuple):
    """A chain with ordinary joints, the shapes on it, and the pose of the base in the world, which carries the surroundings."""

    chain: Chain
    shapes: Shapes
    base: Float[Array, "4 4 *#lanes"]


def _size(scene: Scene) -> int:
    return 100 + 40 * scene.chain.n + 15 * len(scene.shapes.kinds) + 10 * len(scene.shapes.pairs)


@by_batch(size=_size)
def _distances(scene: Scene, x: PerLink) -> tuple[Array, Array, Array, Array]:
    """Distances (p, *lanes), first and second points and normals (p, 3, *lanes)."""
    bodies, _ = _placed(scene, x)
    return _all_pairs(scene.shapes, bodies)[:4]


@_distances.defjvp
def _(primals, tangents):
    scene, x = primals
    (of_chain, of_shapes, of_base), of_x = tangents
    others = {name: t for name, t in vars(of_chain).items() if name not in ("topology", "base_pose")}
    if not all(map(is_zero, jax.tree.leaves((others, of_shapes, of_base), is_leaf=is_zero))):
        # all search for normals on constants, so that only the kinematics and the gaps are differentiated
        out, (change, *_) = sparse_jvp(_differentiable, primals, tangents)
        return out, (change, *map(jnp.zeros_like, out[1:]))
    *out, wrenches, screws, point = _with_wrenches(scene, x)
    n, moved = scene.chain.n, of_chain.base_pose
    twists = jnp.zeros_like(screws) if is_zero(of_x) else screws * of_x[:, None]
    moves = jnp.asarray(_relative(scene), x.dtype)
    change = moves[:, :n] @ twists
    if moved is not None and not is_zero(moved):
        change += moves[:, n:] * _twist_at(point, scene.chain.base_pose, moved)
    return tuple(out), (jnp.sum(wrenches * change, axis=1), *map(jnp.zeros_like, out[1:]))


@by_batch(size=_size)
def _differentiable(scene: Scene, x: PerLink) -> tuple[Array, Array, Array, Array]:
    """The results of `_distances`, whose distances JAX differentiates with respect to all leaves."""
    bodies, _ = _placed(scene, x)
    return _all_pairs(scene.shapes, bodies, differentiates=True)[:4]


@by_batch(size=lambda scene: _size(scene) + 12 * len(scene.shapes.pairs))
def _with_wrenches(scene: Scene, x: PerLink) -> tuple[Array, ...]:
    """The results of `_distances`; the unit wrench of every pair and the screw of every joint, in world axes about a point."""
    bodies, screws = _placed(scene, x)
    *found, wrenches = _all_pairs(scene.shapes, bodies)
    return (*found, jnp.stack(wrenches, axis=1), jnp.stack(screws, axis=1), jnp.stack(bodies.centre))


def _twist_at(point: Float[Array, "3"], pose: Float[Array, "4 4"], change: Float[Array, "4 4"]) -> Float[Array, "6"]:
    """The twist (w, v) of a pose that changes, in world axes, with v at a point."""
    turn = change[:3, :3] @ pose[:3, :3].T
    w = jnp.stack([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]]) / 2
    return jnp.concatenate([w, change[:3, 3] + jnp.cross(w, point - pose[:3, 3])])


def _relative(scene: Scene) -> Float[np.ndarray, "p n+1"]:
    """1 where a joint (or the motion of the whole robot, the last column) moves only the second shape, -1 where only the first."""
    n = scene.chain.n
    carries = np.zeros((n + 1, n + 1))  # of link or base, by joint
    carries[:n, :n], carries[:n, n] = ancestor_mask(scene.chain.topology.parents).T, 1
    links = np.array(scene.shapes.links, int)[np.array(scene.shapes.pairs, int).reshape(-1, 2)]
    return carries[links[:, 1]] - carries[links[:, 0]]


class Bodies(NamedTuple):
    """Cores of all shapes in world axes, each component (m, *lanes). The centre of a core is origin + offset."""

    rotation: tuple[Array, ...]
    origin: tuple[Array, ...]  # of its link
    offset: tuple[Array, ...]
    centre: tuple[Array, ...]  # one for all: the point of wrenches and screws, near the robot


def _placed(scene: Scene, x: PerLink) -> tuple[Bodies, tuple[Array, ...]]:
    """Poses of all cores, and the screws of the joints in world axes, six components (n, *lanes)."""
    chain, shapes, base = scene

    def out(parent, link: Link, _):
        here = next_pose_finely(parent, link)
        return here, (here, (*rotate(here[0], link.screw[:3]), *rotate(here[0], link.screw[3:])))

    rotation, position = start_pose(chain, x)
    nothing = tuple(jnp.zeros_like(p) for p in position)
    links, screws = outward(chain, x, out, (rotation, position, nothing))
    centre = position if chain.n == 0 else tuple(p[0] for p in links[1])
    w, v = screws[:3], screws[3:]
    screws = *w, *add(v, cross(sub(links[1], centre), w))
    zero = nothing[0]
    world = tuple(base[i, j] + zero for i in range(3) for j in range(3)), tuple(base[i, 3] + zero for i in range(3)), nothing
    everything = jax.tree.map(lambda several, one: jnp.concatenate([several, one[None]]), links, world)
    local = with_lanes(shapes.pose.astype(zero.dtype), 3)

    def placed_shape(_, at):
        link, pose = at
        r, p, rest = _rows(everything, link)
        offset = add(rest, rotate(r, tuple(pose[i, 3] for i in range(3))))
        return None, (matmul(r, tuple(pose[i, j] for i in range(3) for j in range(3))), p, offset)

    carriers = np.array([link % (chain.n + 1) for link in shapes.links], np.int32)
    return Bodies(*scan_links(placed_shape, None, (carriers, local))[1], centre), screws


def _rows(tree: Any, index: Array) -> Any:
    return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, index, keepdims=False), tree)


class Groups(NamedTuple):
    """The pairs by the kinds of their shapes; within a pair, kinds are in the order of `KINDS`, and spheres are capsules."""

    pairs: dict[tuple[Kind, Kind], Int[np.ndarray, "_ 2"]]
    order: Int[np.ndarray, " p"]  # where each pair is in the concatenated groups
    turned: Bool[np.ndarray, " p"]  # the pairs whose first shape is their second here


@functools.lru_cache(maxsize=64)
def _groups(fixed: Fixed) -> Groups:
    kinds = tuple("capsule" if kind == "sphere" else kind for kind in fixed.kinds)
    turned = [KINDS.index(kinds[a]) > KINDS.index(kinds[b]) for a, b in fixed.pairs]
    members: dict[tuple[Kind, Kind], list[int]] = {}
    pairs = [(b, a) if turn else (a, b) for (a, b), turn in zip(fixed.pairs, turned, strict=True)]
    for k, (a, b) in enumerate(pairs):
        members.setdefault((kinds[a], kinds[b]), []).append(k)
    order = np.argsort(np.array([k for group in members.values() for k in group], int))
    return Groups({kind: np.array([pairs[k] for k in ks], np.int32) for kind, ks in members.items()}, order, np.array(turned, bool))


def _all_pairs(shapes: Shapes, bodies: Bodies, differentiates: bool = False) -> tuple[Array, Array, Array, Array, tuple[Array, ...]]:
    """Distances, points, normals and unit wrenches (moment, force) of all pairs, in the order of the pairs."""
    dtype = bodies.origin[0].dtype
    sizes, radii = with_lanes(shapes.size.astype(dtype), 2), with_lanes(shapes.radius.astype(dtype), 1)
    cores = bodies.rotation, bodies.origin, bodies.offset, tuple(sizes[:, k] for k in range(3)), radii
    hulls, places = _hulls(shapes, dtype)
    groups = _groups(shapes.fixed)

    def evaluated(kinds, pairs):
        def one_pair(_, pair):
            (ra, pa, oa, sa, rounding), (rb, pb, ob, sb, other) = (_rows(cores, k) for k in pair)
            corners = (_rows(hulls, _rows(places, k)) if kind == "hull" else None for kind, k in zip(kinds, pair, strict=True))
            # relative to the origin of the first link, since positions in the world may have too few digits
            both = a, b = tuple(map(Core, (ra, rb), (oa, add(sub(pb, pa), ob)), (sa, sb), corners))
            found = closest(kinds, *(jax.lax.stop_gradient(both) if differentiates else both))
            distance, n = differentiable(a, b, found) if differentiates else found.distance, found.normal
            first, second = add(found.first, scale(rounding, n)), sub(found.second, scale(other, n))
            moment = cross(add(first, sub(pa, bodies.centre)), n)
            return None, (distance - rounding - other, add(pa, first), add(pa, second), n, moment)

        return scan_links(one_pair, None, tuple(pairs.T))[1]

    results = [evaluated(kinds, pairs) for kinds, pairs in groups.pairs.items()]
    if not results:
        nothing = jnp.zeros((0, *radii.shape[1:]), dtype)
        results = [(nothing, *((nothing,) * 3,) * 4)]
    joined = jax.tree.map(lambda *x: jnp.concatenate(x), *results)
    if (groups.order != np.arange(len(groups.order))).any():
        joined = jax.tree.map(lambda x: x[groups.order], joined)
    distance, first, second, n, moment = joined
    first, second, n = (jnp.stack(x, axis=1) for x in (first, second, n))
    if groups.turned.any():
        turned = groups.turned.reshape(-1, *(1,) * (first.ndim - 1))
        first, second, n = jnp.where(turned, second, first), jnp.where(turned, first, second), jnp.where(turned, -n, n)
        moment = tuple(jnp.where(turned[:, 0], -m, m) for m in moment)
    return distance, first, second, n, (*moment, *(n[:, k] for k in range(3)))


def _hulls(shapes: Shapes, dtype: Any) -> tuple[Float[Array, "h V 3"], Int[np.ndarray, " m"]]:
    """Vertices of all hulls, padded with the last one of each, and for each shape the index of its hull."""
    if any(v.ndim > 2 for v in shapes.vertices):
        raise ModelError("vertices of hulls cannot differ within a batch", "map over the other leaves of the shapes")
    most = max((len(v) for v in shapes.vertices), default=1)
    padded = [v[np.minimum(np.arange(most), len(v) - 1)].astype(dtype) for v in shapes.vertices]
    return jnp.stack(padded) if padded else jnp.zeros((1, 1, 3), dtype), np.cumsum([k == "hull" for k in shapes.kinds]) - 1

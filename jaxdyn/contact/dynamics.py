"""Accelerations and forces of robots with contacts, by Newton's method in one kernel.

All quantities of links are in world axes about one point near the robot (`Bodies.centre`), so that the acceleration of a link is
the sum of the screws on its path, times their accelerations, and a wrench acts on all joints of its path.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..dynamics.composite_body import carried_masses, crba_entries
from ..dynamics.engine.kernel import any_lane
from ..dynamics.engine.lanes import PerLink, by_batch, lane_shape, spread_over_lanes
from ..dynamics.engine.matrices import pairs_of
from ..dynamics.newton_euler import bias_force
from ..geometry.cores import norm, select
from ..geometry.distance import Bodies, Scene, _rows, _scene, placed_shapes
from ..model.chain import Acceleration, Chain, Force, Position, Velocity, layout
from ..model.compiled import compiled
from ..model.joints import Free
from ..spatial.components import add, cross, dot, rotate, scale, sub, unrotate
from .contacts import Contacts, Rows

_TINY = 1e-15
LEAST_STEP = 64  # steps that are shorter than the accelerations, times this and the rounding error, are not taken
FARTHEST = 64.0  # length of a step, in Newton steps
SEARCHES = 20  # evaluations of the slope along a step
SLOPE_LEFT = 1e-3  # at which the search along a step ends, as a share of the first slope


class _End(NamedTuple):
    """A point of a search, and the slope and curvature there."""

    at: Array
    slope: Array
    curve: Array


class Places(NamedTuple):
    """Where shapes can touch: for each place its pair, link and shapes, and the point of the shape, in multiples of its size."""

    pair: np.ndarray
    link: np.ndarray
    shape: np.ndarray
    plane: np.ndarray
    share: np.ndarray  # (k, 3)
    hinted: np.ndarray  # tangents follow the axis of a capsule
    below: np.ndarray  # only points below the centre of the shape


@functools.lru_cache(maxsize=64)
def places_of(fixed: Any) -> Places:
    rows = []
    for p, (a, b) in enumerate(fixed.pairs):
        plane, shape = (a, b) if fixed.kinds[a] == "plane" else (b, a)
        kind, link = fixed.kinds[shape], fixed.links[shape]
        assert fixed.kinds[plane] == "plane" and fixed.links[plane] < 0 and kind in ("sphere", "capsule", "box"), "todo"
        shares = {"sphere": [(0, 0, 0)], "capsule": [(0, 0, 1), (0, 0, -1)]}.get(
            kind, [tuple(1 if i & 1 << k else -1 for k in range(3)) for i in range(8)]
        )
        rows += [(p, link, shape, plane, share, kind == "capsule", kind == "box") for share in shares]
    columns = list(zip(*rows, strict=True))
    whole = [np.array(x, np.int32) for x in columns[:4]]
    return Places(*whole, np.array(columns[4], float), np.array(columns[5], bool), np.array(columns[6], bool))


class Contact(NamedTuple):
    """One place: components over lanes, or arrays of them over places.

    The rows of the constraint are along the axes of the contact: accelerations e . (v + w x r), and e . w.
    """

    gap: Array
    point: tuple[Array, ...]  # from the common point
    axes: tuple[tuple[Array, ...], ...]
    offset: tuple[Array, ...]  # six: less the reference acceleration, at zero acceleration
    stiffness: tuple[Array, ...]  # D: of all edges of a pyramid (one value), or of six rows


def contact_dynamics(
    chain: Chain, contacts: Contacts, q: Position, qd: Velocity, tau: Force, start: Acceleration | None = None
) -> tuple[Acceleration, Array]:
    scene, x = _scene(chain, contacts.shapes, q)
    turning = jnp.zeros_like(qd)
    for joint in layout(chain).curved:
        if isinstance(joint, Free):
            w, v = qd[joint.columns][:3], qd[joint.columns][3:]
            turning = turning.at[joint.columns].set(jnp.concatenate([jnp.zeros(3, q.dtype), jnp.cross(w, v)]))
    masses = carried_masses(scene.chain.topology.parents, scene.chain.inertia)
    force = tau - bias_force(chain, q, qd)
    begin = jnp.zeros_like(qd) if start is None else start
    return _solve(scene, contacts, x, qd, turning, force, begin, masses)


def _size(scene: Scene) -> int:
    return 400


@by_batch(size=_size)
def _solve(
    scene: Scene,
    contacts: Contacts,
    x: PerLink,
    rates: PerLink,
    turning: PerLink,
    force: PerLink,
    start: PerLink,
    masses: Any,
) -> tuple[PerLink, Any]:
    chain, rows = scene.chain, contacts.rows
    rates, turning, force, start = (spread_over_lanes(y) for y in (rates, turning, force, start))
    x = spread_over_lanes(x)
    mass = crba_entries(chain, x, masses)
    bodies, screws = placed_shapes(scene, x)
    parents = chain.topology.parents
    tree = tree_of(parents)
    twists = along_paths(parents, screws, rates)
    biases = along_paths(parents, screws, turning)
    places = places_of(contacts.shapes.fixed)
    touching = _prepare(contacts, bodies, places, twists, biases)
    dofs = _joint_rows(contacts, chain, x, rates)

    def at(a: Array) -> tuple[Array, ...]:
        return along_paths(parents, screws, a)

    def evaluate(a):
        """Constraint values of contacts and joints, and M a."""
        return _rows_of(places, touching, at(a)), mass_times(tree, mass, a)

    def forces(jar, a, want_curve):
        """Gradient of s with respect to a, and second derivatives."""
        wrench, impedance = _wrenches(rows, contacts, places, touching, jar, chain.n, want_curve)
        grip, curve = _joint_forces(dofs, a)
        torque = dot_rows(screws, summed(parents, wrench)) + grip
        return torque, impedance, curve

    count = 30

    def unfinished(state):
        k, _, _, _, rest = state
        return (k < count) & any_lane(rest)

    def iterate(state):
        k, a, jar, ma, rest = state
        torque, impedance, curve = forces(jar, a, True)
        gradient = ma - force - torque
        composite = summed(parents, impedance)
        h = curvature(tree, mass, screws, composite, curve)
        factor = factorised(tree, h)
        step = scale_(-1, solved(tree, factor, gradient))
        djar, dma = evaluate(step)
        djar = sub_rows(djar, touching.offset)
        slope = jnp.sum(step * gradient, axis=0)
        quad = jnp.sum(step * dma, axis=0)
        linear = jnp.sum(step * (ma - force), axis=0)
        alpha = _search(rows, contacts, places, touching, dofs, jar, djar, a, step, linear, quad)
        # smaller steps are rounding errors, along which the slope cannot be computed
        eps = jnp.finfo(a.dtype).eps
        rest &= -slope > (LEAST_STEP * eps) ** 2 * jnp.sum(a * ma, axis=0)
        alpha = jnp.where(rest, alpha, 0)
        a = a + alpha * step
        jar = tuple(p + alpha * d for p, d in zip(jar, djar, strict=True))
        ma = ma + alpha * dma
        return k + 1, a, jar, ma, rest

    jar, ma = evaluate(start)
    begin = jnp.int32(0), start, jar, ma, jnp.ones(lane_shape(), bool) if lane_shape() else jnp.array(True)
    k, a, jar, ma, _ = jax.lax.while_loop(unfinished, iterate, begin)
    return a, jnp.broadcast_to(k, a.shape[1:])


def scale_(s, x):
    return s * x


def sub_rows(x, y):
    return tuple(a - b for a, b in zip(x, y, strict=True))


# trees


class Tree(NamedTuple):
    carrier: np.ndarray
    carried: np.ndarray
    count: int
    diagonal: np.ndarray
    triples: tuple[np.ndarray, ...]  # d, ki, kj, ij


@functools.lru_cache(maxsize=64)
def tree_of(parents: tuple[int, ...]) -> Tree:
    pairs, n = pairs_of(parents), len(parents)
    index = pairs.above
    above = [[i for i in range(n) if i != k and index[k, i] < pairs.count] for k in range(n)]
    triples = [
        (index[k, k], index[k, i], index[k, j], index[i, j])
        for k in reversed(range(n))
        for i in above[k]
        for j in above[k]
        if j <= i
    ]
    columns = np.array(triples, np.int32).reshape(-1, 4).T
    return Tree(pairs.carrier, pairs.carried, pairs.count, np.diag(index).astype(np.int32), tuple(columns))


def row(x: Array, k: Array) -> Array:
    return jax.lax.dynamic_index_in_dim(x, k, keepdims=False, allow_negative_indices=False)


def put(x: Array, value: Array, k: Array) -> Array:
    return jax.lax.dynamic_update_index_in_dim(x, value, k, 0, allow_negative_indices=False)


def along_paths(parents: tuple[int, ...], screws: tuple[Array, ...], rates: Array) -> tuple[Array, ...]:
    """The twist of every link, and zero as the last row: the sum of screws times rates on its path."""
    n = len(parents)
    start = tuple(jnp.zeros((n + 1, *rates.shape[1:]), rates.dtype) for _ in range(6))

    def body(found, at):
        i, parent, screw, rate = at
        return tuple(put(x, row(x, parent) + s * rate, i) for x, s in zip(found, screw, strict=True)), None

    order = np.arange(n, dtype=np.int32), np.array(parents, np.int32) % (n + 1)
    return jax.lax.scan(body, start, (*order, screws, rates))[0]


def summed(parents: tuple[int, ...], values: tuple[Array, ...]) -> tuple[Array, ...]:
    """The sum of the values, rows over links and the base, of every link and all links that it carries."""
    n = len(parents)

    def body(total, at):
        i, parent = at
        return tuple(put(x, row(x, parent) + row(x, i), parent) for x in total), None

    order = np.arange(n, dtype=np.int32)[::-1], (np.array(parents, np.int32) % (n + 1))[::-1]
    return jax.lax.scan(body, values, order)[0]


def dot_rows(screws: tuple[Array, ...], wrenches: tuple[Array, ...]) -> Array:
    n = len(screws[0])
    return dot(screws, tuple(w[:n] for w in wrenches))


def mass_times(tree: Tree, mass: Array, a: Array) -> Array:
    def body(total, at):
        i, j, entry = at
        both = put(total, row(total, i) + entry * row(a, j), i)
        other = jnp.where(i == j, 0, 1).astype(a.dtype) * entry * row(a, i)
        return put(both, row(both, j) + other, j), None

    return jax.lax.scan(body, jnp.zeros_like(a), (tree.carrier, tree.carried, mass[: tree.count]))[0]


def curvature(tree: Tree, mass: Array, screws, composite, curve: Array) -> Array:
    """Entries of M + J^T H J."""
    n = len(curve)

    def momentum(_, at):
        i, screw = at
        angular, coupling, linear = (tuple(row(x, i) for x in composite[s]) for s in (slice(0, 6), slice(6, 15), slice(15, 21)))
        return None, impedance_times((angular, coupling, linear), screw)

    order = np.arange(n, dtype=np.int32)
    momenta = jax.lax.scan(momentum, None, (order, screws))[1]

    def entry(_, at):
        i, j, m = at
        value = m + dot(tuple(row(s, i) for s in screws), tuple(row(x, j) for x in momenta))
        return None, value + jnp.where(i == j, 1, 0).astype(m.dtype) * row(curve, i)

    return jax.lax.scan(entry, None, (tree.carrier, tree.carried, mass[: tree.count]))[1]


def impedance_times(impedance, twist):
    (xx, xy, yy, xz, yz, zz), k, (a, b, c, d, e, f) = impedance
    w, v = twist[:3], twist[3:]
    sym = lambda s, u: (
        s[0] * u[0] + s[1] * u[1] + s[3] * u[2],
        s[1] * u[0] + s[2] * u[1] + s[4] * u[2],
        s[3] * u[0] + s[4] * u[1] + s[5] * u[2],
    )
    return (
        *add(sym((xx, xy, yy, xz, yz, zz), w), rotate(k, v)),
        *add(unrotate(k, w), sym((a, b, c, d, e, f), v)),
    )


def factorised(tree: Tree, h: Array) -> Array:
    """L^T D L of a matrix with the pattern of the tree: rows of D L off the diagonal, and D on it (Featherstone 2005)."""

    def body(h, at):
        d, ki, kj, ij = at
        return put(h, row(h, ij) - row(h, ki) * row(h, kj) / row(h, d), ij), None

    return jax.lax.scan(body, h, tree.triples)[0]


def solved(tree: Tree, factor: Array, b: Array) -> Array:
    strict = np.flatnonzero(tree.carrier != tree.carried)
    up = strict[np.argsort(-tree.carried[strict], kind="stable")]

    def back(b, at):  # L^T y = b, from the leaves
        i, k, e, d = at
        return put(b, row(b, i) - row(factor, e) / row(factor, d) * row(b, k), i), None

    def forth(b, at):
        i, k, e, d = at
        return put(b, row(b, k) - row(factor, e) / row(factor, d) * row(b, i), k), None

    data = lambda order: (tree.carrier[order], tree.carried[order], order.astype(np.int32), tree.diagonal[tree.carried[order]])
    b = jax.lax.scan(back, b, data(up))[0]

    def divide(_, at):
        x, d = at
        return None, x / row(factor, d)

    b = jax.lax.scan(divide, None, (b, tree.diagonal))[1]
    return jax.lax.scan(forth, b, data(up[::-1]))[0]


# contacts


def _prepare(contacts: Contacts, bodies: Bodies, places: Places, twists, biases) -> Contact:
    dtype = bodies.origin[0].dtype
    shapes = contacts.shapes
    sizes, radii = shapes.size.astype(dtype), shapes.radius.astype(dtype)
    cores = bodies.rotation, bodies.origin, bodies.offset, tuple(sizes[:, k] for k in range(3)), radii
    soft = contacts.softness
    weights = contacts.shape_weight.astype(dtype)
    pairs = np.array(shapes.pairs, np.int32).reshape(-1, 2)
    total = weights[pairs[:, 0], 0] + weights[pairs[:, 1], 0]
    dims = np.array(contacts.rows.dimensions)[places.pair]

    def one(_, at):
        pair, link, shape, plane, share, hinted, below, dim = at
        (rotation, origin, offset, size, radius), (turned, po, poff, _, _) = (_rows(cores, k) for k in (shape, plane))
        reference, impedance, margin = (_rows(x.astype(dtype), pair) for x in (soft.reference, soft.impedance, soft.margin))
        friction, weight = _rows(contacts.friction.astype(dtype), pair), row(total, pair)
        normal = turned[2::3]
        corner = rotate(rotation, tuple(share[k] * size[k] for k in range(3)))
        to_plane = add(sub(origin, po), sub(offset, poff), corner)
        gap = dot(normal, to_plane) - radius
        point = sub(add(sub(origin, bodies.centre), offset, corner), scale(gap / 2 + radius, normal))
        y, z = jnp.where(jnp.abs(normal[1]) < 0.5, 1.0, 0.0), jnp.where(jnp.abs(normal[1]) < 0.5, 0.0, 1.0)
        zero = jnp.zeros_like(gap)
        hint = tuple(jnp.where(hinted, h, d) for h, d in zip(rotation[2::3], (zero, y + zero, z + zero), strict=True))
        side = sub(hint, scale(dot(normal, hint), normal))
        side = scale(1 / norm(*side), side)
        axes = normal, side, cross(normal, side)
        violation = gap - margin
        imp, k, b = reference_of(reference, impedance, violation, contacts.least_time.astype(dtype))
        active = (violation < 0) & (~below | (dot(normal, corner) <= 0))
        twist, bias = (tuple(row(x, link) for x in y) for y in (twists, biases))
        speed, acc = contact_row(axes, point, twist), contact_row(axes, point, bias)
        ratio = contacts.friction_ratio.astype(dtype)
        regular = lambda w: jnp.maximum((1 - imp) * w / imp, _TINY)
        offset6 = tuple(s + b * v for s, v in zip(acc, speed, strict=True))
        offset6 = (offset6[0] + k * imp * violation, *offset6[1:])
        on = active.astype(dtype)
        if contacts.rows.cone == "pyramidal":
            slides = jnp.where(dim > 1, friction[0] ** 2, 0)
            first = regular(weight * (1 + slides))
            inverse = jnp.where(dim > 1, 2 * friction[0] ** 2 / ratio, 1) * first
            stiffness = (on / inverse,)
            # the normal reference applies to every edge
        else:
            first = regular(weight)
            others = [first / ratio * friction[0] ** 2 / friction[j] ** 2 for j in range(5)]
            stiffness = tuple(on * jnp.where(j < dim, 1, 0) / r for j, r in enumerate((first, *others)))
        return None, Contact(gap, point, axes, offset6, stiffness)

    columns = (*(x for x in places[:4]), places.share.astype(dtype), places.hinted, places.below, dims.astype(np.int32))
    return jax.lax.scan(one, None, columns)[1]


def reference_of(reference, impedance, violation, least_time):
    low, high, width, middle, power = (impedance[k] for k in range(5))
    clip = lambda x: jnp.clip(x, 1e-4, 0.9999)
    low, high, middle, power = clip(low), clip(high), clip(middle), jnp.maximum(power, 1)
    x = jnp.clip(jnp.abs(violation) / jnp.maximum(width, _TINY), 0, 1)
    curve = lambda y, top: top * (y / top) ** power
    y = jnp.where(x <= middle, curve(x, middle), 1 - curve(1 - x, 1 - middle))
    imp = jnp.where((low == high) | (width <= _TINY), (low + high) / 2, low + y * (high - low))
    time, ratio = reference[0], reference[1]
    slow = jnp.maximum(time, least_time)
    k = jnp.where(time > 0, 1 / jnp.maximum(_TINY, (high * slow * ratio) ** 2), -time / high**2)
    b = jnp.where(ratio > 0, 2 / jnp.maximum(_TINY, high * slow), -ratio / high)
    return imp, k, b


def contact_row(axes, point, twist):
    linear = add(twist[3:], cross(twist[:3], point))
    return (*(dot(e, linear) for e in axes), *(dot(e, twist[:3]) for e in axes))


def _rows_of(places: Places, touching: Contact, accelerations) -> tuple[Array, ...]:
    def one(_, at):
        link, here = at
        twist = tuple(row(x, link) for x in accelerations)
        return None, add(contact_row(here.axes, here.point, twist), here.offset)

    return jax.lax.scan(one, None, (places.link, touching))[1]


def _wrenches(rows: Rows, contacts: Contacts, places: Places, touching: Contact, jar, n: int, want_curve: bool):
    """Wrenches, and impedances (angular 6, coupling 9, linear 6), on links about the common point."""
    dims = np.array(rows.dimensions)[places.pair].astype(np.int32)
    zero = jnp.zeros((n + 1, *jar[0].shape[1:]), jar[0].dtype)
    friction = contacts.friction.astype(zero.dtype)

    def one(total, at):
        link, pair, dim, here, x = at
        f, h = cone(rows, row(friction, pair), contacts.friction_ratio.astype(zero.dtype), dim, here.stiffness, x)
        force = add(*(scale(f[k], here.axes[k]) for k in range(3)))
        moment = add(cross(here.point, force), *(scale(f[3 + k], here.axes[k]) for k in range(3)))
        values = (*moment, *force)
        if want_curve:
            values = (*values, *impedance_of(h, here.axes, here.point))
        return tuple(put(t, row(t, link) + v, link) for t, v in zip(total, values, strict=True)), None

    start = (zero,) * (27 if want_curve else 6)
    found = jax.lax.scan(one, start, (places.link, places.pair, dims, touching, jar))[0]
    return found[:6], found[6:]


def cone(rows: Rows, friction, ratio, dim, stiffness, x):
    """Forces, and H as a dict of its entries [i][j], i <= j."""
    zero = jnp.zeros_like(x[0])
    used = [jnp.where(j + 1 < dim, friction[j], 0) for j in range(5)]
    if rows.cone == "pyramidal":
        d = stiffness[0]
        single = jnp.where(dim == 1, 1, 0).astype(d.dtype)
        f0, h00 = -single * d * jnp.minimum(x[0], 0), single * d * (x[0] < 0)
        f, h = [f0], {(0, 0): h00}
        for j in range(5):
            there = jnp.where(j + 1 < dim, 1, 0).astype(d.dtype) * d
            plus, minus = x[0] + used[j] * x[j + 1], x[0] - used[j] * x[j + 1]
            fp, fm = -there * jnp.minimum(plus, 0), -there * jnp.minimum(minus, 0)
            hp, hm = jnp.where(plus < 0, there, 0), jnp.where(minus < 0, there, 0)
            f[0] = f[0] + fp + fm
            f.append(used[j] * (fp - fm))
            h[0, 0] = h[0, 0] + hp + hm
            h[0, j + 1] = used[j] * (hp - hm)
            h[j + 1, j + 1] = used[j] ** 2 * (hp + hm)
        return tuple(f), h
    mu = jnp.where(dim > 1, friction[0] / jnp.sqrt(ratio), 1)
    factor = (mu, *used)
    u = [s * y for s, y in zip(factor, x, strict=True)]
    n, t = u[0], jnp.sqrt(sum(y * y for y in u[1:]))
    top = (n >= mu * t) | ((t <= 0) & (n >= 0))
    bottom = ~top & ((mu * n + t <= 0) | ((t <= 0) & (n < 0)))
    inverse = 1 / jnp.where(t > 0, t, 1)
    dm = stiffness[0] / (mu * mu * (1 + mu * mu))
    excess = n - mu * t
    unit = [jnp.ones_like(n), *(-mu * y * inverse for y in u[1:])]
    pick = lambda a, b: jnp.where(top, 0, jnp.where(bottom, a, b))
    f = tuple(pick(-stiffness[i] * x[i], -dm * excess * unit[i] * factor[i]) for i in range(6))
    h = {}
    for i in range(6):
        for j in range(i, 6):
            inner = unit[i] * unit[j]
            if i > 0:
                inner -= mu * excess * inverse * ((i == j) - u[i] * u[j] * inverse * inverse)
            h[i, j] = pick(stiffness[i] if i == j else zero, dm * factor[i] * factor[j] * inner)
    return f, h


def impedance_of(h, axes, r):
    """W^T H W in world axes about the common point: angular (6), coupling (9), linear (6)."""
    zero = jnp.zeros_like(r[0])
    entry = lambda i, j: h.get((min(i, j), max(i, j)), None)

    def block(rows, columns):  # sum over entries of outer products of axes
        total = [zero] * 9
        for i in range(3):
            for j in range(3):
                value = entry(rows + i, columns + j)
                if value is not None:
                    for p in range(3):
                        for q in range(3):
                            total[3 * p + q] = total[3 * p + q] + value * axes[i][p] * axes[j][q]
        return tuple(total)

    ll, al, aa = block(0, 0), block(3, 0), block(3, 3)
    skew = lambda m: tuple(  # [r] m
        cross(r, (m[q], m[3 + q], m[6 + q]))[p] for p in range(3) for q in range(3)
    )
    transpose = lambda m: tuple(m[3 * q + p] for p in range(3) for q in range(3))
    # a wrench f at r has the moment r x f
    coupling = add(al, skew(ll))
    angular = add(aa, transpose(skew(transpose(coupling))), skew(transpose(al)))
    sym = lambda m: (m[0], m[1], m[4], m[2], m[5], m[8])
    return (*sym(angular), *coupling, *sym(ll))


class JointRows(NamedTuple):
    """Dry friction and limits of every velocity: D and offsets, bounds of dry friction."""

    dry: tuple[Array, Array, Array]  # D, offset, bound
    lower: tuple[Array, Array]
    upper: tuple[Array, Array]


def _joint_rows(contacts: Contacts, chain: Chain, x: Array, rates: Array) -> JointRows:
    dtype, n = x.dtype, chain.n
    rows = contacts.rows
    least = contacts.least_time.astype(dtype)

    def whole(values, index, fill):
        base = jnp.full((n, *values.shape[1:]), fill, dtype)
        return base.at[jnp.array(index, int)].set(values.astype(dtype)) if index else base

    def each(body, *inputs):
        return jax.lax.scan(lambda _, at: (None, body(*at)), None, inputs)[1]

    weight = contacts.weight.astype(dtype)
    bound = whole(contacts.dry_friction, rows.rubbing, 0.0)
    imp5 = jnp.array([0.9, 0.95, 0.001, 0.5, 2.0], dtype)
    rub = jnp.broadcast_to(jnp.array([0.02, 1.0], dtype), (n, 2)), jnp.broadcast_to(imp5, (n, 5))
    rub = tuple(b.at[jnp.array(rows.rubbing, int)].set(v.astype(dtype)) if rows.rubbing else b for b, v in zip(rub, (contacts.rubbing.reference, contacts.rubbing.impedance), strict=True))
    lim = jnp.broadcast_to(jnp.array([0.02, 1.0], dtype), (n, 2)), jnp.broadcast_to(imp5, (n, 5))
    lim = tuple(b.at[jnp.array(rows.limited, int)].set(v.astype(dtype)) if rows.limited else b for b, v in zip(lim, (contacts.limits.reference, contacts.limits.impedance), strict=True))
    margin = whole(contacts.limits.margin, rows.limited, 0.0)
    has = np.zeros(n)
    has[list(rows.limited)] = 1
    limits = jnp.where(jnp.asarray(has)[:, None] > 0, chain.limits.position, 0).astype(dtype)

    def dry(ref, imp, w, bound, v):
        i, _, b = reference_of(ref, imp, jnp.zeros_like(v), least)
        return jnp.where(bound > 0, 1 / jnp.maximum((1 - i) * w / i, _TINY), 0) + jnp.zeros_like(v), b * v, bound + jnp.zeros_like(v)

    def limit(sign):
        def one(ref, imp, w, ends, margin, has, y, v):
            gap = sign * (y - ends[0 if sign > 0 else 1]) - margin
            i, k, b = reference_of(ref, imp, gap, least)
            d = jnp.where(gap < 0, has / jnp.maximum((1 - i) * w / i, _TINY), 0)
            return d, b * sign * v + k * i * gap

        return one

    inputs = (*lim, weight, limits, margin, jnp.asarray(has, dtype), x, rates)
    return JointRows(each(dry, *rub, weight, bound, rates), each(limit(1), *inputs), each(limit(-1), *inputs))


def joint_force(at, a):
    (d, offset, bound), (dl, ol), (du, ou) = at
    y = a + offset
    inside = jnp.abs(y) * d < bound
    f = jnp.where(inside, -d * y, -bound * jnp.sign(y))
    h = jnp.where(inside, d, 0)
    low, up = a + ol, -a + ou
    f += -dl * jnp.minimum(low, 0) + du * jnp.minimum(up, 0)
    h += jnp.where(low < 0, dl, 0) + jnp.where(up < 0, du, 0)
    return f, h


def _joint_forces(dofs: JointRows, a: Array) -> tuple[Array, Array]:
    return joint_force(dofs, a)


def _search(rows, contacts, places, touching, dofs, jar, djar, a, step, linear, quad):
    """The step length at which the slope of the function is zero."""
    dims = np.array(rows.dimensions)[places.pair].astype(np.int32)
    friction = contacts.friction.astype(a.dtype)
    ratio = contacts.friction_ratio.astype(a.dtype)

    def slope(alpha):
        def one(total, at):
            pair, dim, stiffness, x, d = at
            here = tuple(p + alpha * s for p, s in zip(x, d, strict=True))
            g, h = cone_slope(rows, row(friction, pair), ratio, dim, stiffness, here, d)
            return (total[0] + g, total[1] + h), None

        f, h = joint_force(dofs, a + alpha * step)
        start = linear + alpha * quad - jnp.sum(f * step, axis=0), quad + jnp.sum(h * step * step, axis=0)
        return jax.lax.scan(one, start, (places.pair, dims, touching.stiffness, jar, djar))[0]

    def newton(end):
        return end.at - end.slope / jnp.where(end.curve > 0, end.curve, 1)

    def body(state):
        k, low, high, alpha, rest = state
        here = _End(alpha, *slope(alpha))
        enough = jnp.abs(here.slope) <= SLOPE_LEFT * jnp.abs(initial.slope)
        low, high = select(here.slope < 0, here, low), select(here.slope < 0, high, here)
        # Newton's step from the last point, or from the other end, where the slope may be better known, or half way
        own, other = newton(here), newton(select(here.slope < 0, high, low))
        inside = lambda x: (x > low.at) & (x < high.at)
        middle = jnp.where(high.at < FARTHEST, (low.at + high.at) / 2, jnp.minimum(2 * alpha, FARTHEST))
        new = jnp.where(inside(own), own, jnp.where(inside(other), other, middle))
        rest &= ~enough
        return k + 1, low, high, jnp.where(rest, new, alpha), rest

    zero = jnp.zeros_like(linear)
    initial = _End(zero, *slope(zero))
    state = jnp.int32(0), initial, _End(zero + FARTHEST, zero, zero), zero + 1, zero == 0
    return jax.lax.while_loop(lambda s: (s[0] < SEARCHES) & any_lane(s[-1]), body, state)[3]


def cone_slope(rows, friction, ratio, dim, stiffness, x, d):
    f, h = cone(rows, friction, ratio, dim, stiffness, x)
    g = -sum(a * b for a, b in zip(f, d, strict=True))
    c = sum((1 if i == j else 2) * v * d[i] * d[j] for (i, j), v in h.items())
    return g, c

"""Jacobians of the torques of contacts in closed form over the tree, and of the dynamics with contacts.

Let W be the wrench of a contact on link b, in world axes about a common point. It depends on the displacement of the link, its
twist nu and its acceleration alpha: dW = X dx + N dnu + A dalpha. If joint j moves by dq_j, so do all links that it carries:
with its screw S_j and the twist nu_p and acceleration alpha_p of the parent of link j,

    dx = S_j dq_j,    dnu = S_j x (nu - nu_p) dq_j,    dalpha = S_j x (alpha - alpha_p) dq_j,

so that dW/dq_j = X' S_j + N (nu_p x S_j) + A (alpha_p x S_j) with X' = X - N [nu x] - A [alpha x], and dW/dqd_j = N S_j. The
sums of X', N, A and W over all contacts on the links that a joint carries are thus enough for all derivatives of
tau_k = S_k . W: those with respect to the joints below k, and, with d(S_k . W) = S_k . dW + (S_j x S_k) . W, above it. Of one
contact, the change of its point, gap and axes with a motion comes from a forward-mode derivative, and all else from the
formulas of softness.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from ..dynamics.derivatives import twist_bracket, wrench_bracket
from ..dynamics.engine.elimination import along_paths, carried, factorised, inverted
from ..dynamics.engine.kernel import settled
from ..dynamics.engine.lanes import PerLink, by_batch, spread_over_lanes
from ..dynamics.engine.matrices import over_pairs, pairs_of, put, row, rows
from ..geometry.distance import placed_shapes
from ..model.chain import ancestor_mask
from ..model.joints import CurvedJoint, Free
from ..spatial.components import add, cross, dot, scale, sub
from .newton import Problem, State, constant_entries, curvature_entries, joint_rows, moves_first, problem_size, slots_of
from .places import FINDERS, Body, Touch, bodies_of
from .softness import (
    Constraint,
    Settings,
    along_axes,
    cone_forces,
    constraint,
    impedance_of,
    impedance_times,
    joint_force,
    row_of,
    with_reference,
    wrench_of,
)

Joints = tuple[CurvedJoint, ...]


class Jacobians(NamedTuple):
    """Derivatives of the torques of constraints by small motions and velocities, (n, n), and the inverse of M + J^T h J."""

    entries: tuple[Array, ...]  # see `spread_derivatives`
    between: tuple[Array, ...]  # those of contacts between links, for q and qd, row by row
    inverse: Array


class _Sums(NamedTuple):
    """For links, or contacts between two of them: W, X', N, -A, and the change of W as both links turn, less its rotation."""

    wrench: tuple[Array, ...]
    by_motion: tuple[Array, ...]  # X', six rows (_, 6, *lanes)
    by_velocity: tuple[Array, ...]  # N, likewise
    impedance: tuple[Array, ...]  # in the blocks of `impedance_of`
    by_turning: tuple[Array, ...]  # six rows (_, 3, *lanes)


@by_batch(size=lambda problem: max(problem_size(problem), 2 * problem.scene.chain.n**2))
def constraint_jacobians(problem: Problem, state: State, a: PerLink, joints: Joints) -> Jacobians:
    """Derivatives of the torques of contacts, limits and dry friction at given accelerations."""
    state, a = jax.tree.map(spread_over_lanes, (state, a))
    n, parents = problem.scene.chain.n, problem.scene.chain.topology.parents
    bodies, screws = placed_shapes(problem.scene, state.x)
    twists, accelerations = along_paths(parents, screws, state.rates), along_paths(parents, screws, a + state.turning)
    shapes = bodies_of(bodies, problem.scene.shapes.size, problem.scene.shapes.radius)
    sums = _sums(problem, shapes, twists, accelerations)
    on_links = _Sums(*(carried(parents, tuple(y[: n + 1] for y in part)) for part in sums))
    between = _Sums(*(tuple(y[n + 1 :] for y in part) for part in sums))

    # of the parent of the joint that moves each link
    base = np.array(parents, np.int32) % (n + 1)
    for joint in joints:
        base[joint.links] = base[joint.link]
    moving = _moving(screws, twists, accelerations, state.rates, base, joints)
    curve, *of_state = _of_joints(problem, state, a)
    entries = _entries(problem, on_links, moving, (*of_state, curve), joints)

    _, mass = constant_entries(problem, state)
    h = curvature_entries(problem, screws, (on_links.impedance, between.impedance), curve, mass)
    inverse = inverted(problem.pattern, factorised(problem.pattern, h))
    return Jacobians(entries, _between(problem, between, moving, joints), inverse)


class _Moving(NamedTuple):
    """For every joint its screw S, nu_p x S, alpha_p x S, and the change of MuJoCo's acceleration with its rate."""

    screw: tuple[Array, ...]
    of_velocity: tuple[Array, ...]
    of_acceleration: tuple[Array, ...]
    turning: tuple[Array, ...]


def _moving(screws, twists, accelerations, rates, base: np.ndarray, joints: Joints) -> _Moving:
    def one(_, at):
        parent, screw = at
        return None, tuple(twist_bracket(rows(y, parent), screw) for y in (twists, accelerations))

    of_velocity, of_acceleration = jax.lax.scan(one, None, (base, screws))[1]
    turning = tuple(jnp.zeros_like(y) for y in screws)
    for joint in joints:
        if isinstance(joint, Free):  # the acceleration of a free joint contains (0, w x v)
            turns, slides = slice(joint.link, joint.link + 3), slice(joint.link + 3, joint.link + 6)
            pick = lambda parts, place: tuple(y[place] for y in parts)
            summed = lambda parts, place: tuple((y[place] * rates[place]).sum(0)[None] for y in parts)
            spin, slide = summed(screws[:3], turns), summed(screws[3:], slides)
            changes = cross(pick(screws[:3], turns), slide), cross(spin, pick(screws[3:], slides))
            for at, change in zip((turns.start, slides.start), changes, strict=True):
                moved = (
                    jax.lax.dynamic_update_slice_in_dim(y, c, at, 0) for y, c in zip(turning[3:], change, strict=True)
                )
                turning = (*turning[:3], *moved)
    return _Moving(screws, of_velocity, of_acceleration, turning)


def _sums(problem: Problem, shapes: Body, twists, accelerations) -> _Sums:
    """Sums over the places of each slot: all links and the base, and the couples of links."""
    places, n = problem.places, problem.scene.chain.n
    slots, first_moves = slots_of(problem), moves_first(problem)
    couples = slots > n
    dtype = twists[0].dtype
    blank = lambda *shape: jnp.zeros((n + 1 + len(problem.pattern.couples), *shape, *twists[0].shape[1:]), dtype)
    turning = (blank(3),) * 6 if problem.pattern.couples else ()
    total = _Sums((blank(),) * 6, (blank(6),) * 6, (blank(6),) * 6, (blank(),) * 21, turning)
    for kind, group in places.groups.items():

        def one(total, at, finder=FINDERS[kind]):
            pair, (i, j), (a, b), share, slot, couple, turned = at
            own, first, second = rows(problem.pairs, pair), rows(shapes, i), rows(shapes, j)
            nu, alpha = (sub(rows(y, b), rows(y, a)) for y in (twists, accelerations))
            # of the link that moves, or of the second of two
            mover = lambda y, relative: tuple(
                jnp.where(couple, p, q) for p, q in zip(rows(y, b), relative, strict=True)
            )
            moves = _Place(nu, alpha, mover(twists, nu), mover(accelerations, alpha), turned)
            found = _of_place(problem, own, finder, (first, second), tuple(share), moves)
            return jax.tree.map(lambda t, y: put(t, row(t, slot) + y, slot), total, found), None

        columns = (
            places.pair[group],
            tuple(places.shapes[group].T),
            tuple(places.links[group].T),
            problem.points[kind],
            slots[group],
            couples[group],
            first_moves[group].astype(dtype),
        )
        total = jax.lax.scan(one, total, columns)[0]
    return total


class _Place(NamedTuple):
    """Relative twist and acceleration of the links of a place, those of the link that moves, and 1 if that is the first."""

    nu: tuple[Array, ...]
    alpha: tuple[Array, ...]
    of_velocity: tuple[Array, ...]
    of_acceleration: tuple[Array, ...]
    turned: Array


def _of_place(problem: Problem, own: Settings, finder, bodies: tuple[Body, Body], share, at: _Place) -> _Sums:
    """W, X', N and -A of one place."""
    width, zero = problem.rows.width, jnp.zeros_like(at.nu[0])
    found = lambda motion: finder(
        _displaced(bodies[0], motion, at.turned), _displaced(bodies[1], motion, 1 - at.turned), share
    )
    touch, change = jax.linearize(found, (zero,) * 6)
    touch = jax.tree.unflatten(jax.tree.structure(touch), settled(*jax.tree.leaves(touch)))
    # all but the rows depends on the gap alone
    of_gap = lambda gap: constraint(touch._replace(gap=gap), own, problem.rows)[1:]
    (damping, offset, stiffness), slopes = jax.jvp(of_gap, (touch.gap,), (jnp.ones_like(zero),))
    held = Constraint(touch, damping, offset, stiffness)
    velocity = row_of(touch, at.nu, width)
    force, h = cone_forces(problem.rows, own, stiffness, with_reference(held, row_of(touch, at.alpha, width), velocity))
    wrench, impedance = settled(*wrench_of(touch, force)), settled(*impedance_of(touch, h))
    # forces are proportional to the stiffness, whose entries have one common factor that depends on the gap
    harder = jnp.where(stiffness[0] > 0, slopes[2][0] / jnp.where(stiffness[0] > 0, stiffness[0], 1), 0)
    of_reference = with_reference(Constraint(touch, slopes[0], slopes[1], stiffness), (zero,) * width, velocity)
    values = settled(*velocity, *of_reference, harder)
    velocity, of_reference, harder = values[:width], values[width:-1], values[-1]

    def along(_, unit):
        unit = tuple(unit[k] + zero for k in range(6))
        moved = change(unit)
        moved = jax.tree.unflatten(jax.tree.structure(moved), settled(*jax.tree.leaves(moved)))
        nu, alpha = (scale(-1, twist_bracket(y, unit)) for y in (at.of_velocity, at.of_acceleration))
        accelerations = add(_moved_row(touch, moved, at.alpha, alpha, width), scale(moved.gap, of_reference))
        velocities = _moved_row(touch, moved, at.nu, nu, width)
        rates = [r + damping[min(k, 1)] * v for k, (r, v) in enumerate(zip(accelerations, velocities, strict=True))]
        forces = _less_forces(h, rates, [harder * moved.gap * f for f in force])
        return None, add(wrench_of(touch, forces), _moved_wrench(touch, moved, force))

    columns = jax.lax.scan(along, None, np.eye(6, dtype=zero.dtype))[1]
    sign = 1 - 2 * at.turned
    # N: the damping of the normal may differ from that of the other rows
    first = wrench_of(touch, tuple(h.get((0, j), zero) for j in range(width)))
    normal, extra = (*cross(touch.point, touch.axes[0]), *touch.axes[0]), damping[0] - damping[1]
    matrix = _full(impedance)
    by_velocity = tuple(
        jnp.stack([-damping[1] * matrix[6 * p + q] - extra * first[p] * normal[q] for q in range(6)]) for p in range(6)
    )
    by_turning = ()
    if problem.pattern.couples:
        # tangents follow an axis of the world, so that they turn about the normal of links that turn together
        _, change = jax.linearize(
            lambda w: finder(*(_displaced(x, (*w, zero, zero, zero), 1) for x in bodies), share), (zero,) * 3
        )
        tangent = touch.axes[1]
        units = [tuple(zero + float(j == k) for j in range(3)) for k in range(3)]
        angles = [dot(touch.axes[2], sub(change(unit).axes[1], cross(unit, tangent))) for unit in units]
        none = (zero, zero, zero)
        twisted = Touch(zero, none, (none, touch.axes[2], scale(-1, tangent)), zero)
        rates = [_moved_row(touch, twisted, y, (zero,) * 6, width) for y in (at.alpha, at.nu)]
        rates = [r + damping[min(k, 1)] * v for k, (r, v) in enumerate(zip(*rates, strict=True))]
        about = add(wrench_of(touch, _less_forces(h, rates, [zero] * width)), _moved_wrench(touch, twisted, force))
        by_turning = tuple(jnp.stack([x * angle for angle in angles]) for x in about)
    return _Sums(scale(sign, wrench), scale(sign, columns), by_velocity, impedance, by_turning)


def _less_forces(h, rates, forces):
    """Forces along the rows, less the curvature h times the rates."""
    forces = list(forces)
    for (i, j), value in h.items():
        forces[i] = forces[i] - value * rates[j]
        if i != j:
            forces[j] = forces[j] - value * rates[i]
    return settled(*forces)


def _moved_row(touch: Touch, moved: Touch, twist, change, width: int):
    """The change of the rows of a twist that changes, while the point and the axes move."""
    linear = settled(*add(twist[3:], cross(twist[:3], touch.point)))
    moved_linear = settled(*add(change[3:], cross(change[:3], touch.point), cross(twist[:3], moved.point)))
    slides = [dot(d, linear) + dot(e, moved_linear) for d, e in zip(moved.axes, touch.axes, strict=True)][:width]
    turns = [dot(d, twist[:3]) + dot(e, change[:3]) for d, e in zip(moved.axes, touch.axes, strict=True)]
    return tuple(slides + turns[: max(width - 3, 0)])


def _moved_wrench(touch: Touch, moved: Touch, force):
    """The change of the wrench of constant forces along the rows, while the point and the axes move."""
    linear, turned = along_axes(touch.axes, force[:3]), along_axes(moved.axes, force[:3])
    moment = add(cross(moved.point, linear), cross(touch.point, turned))
    return (*(add(moment, along_axes(moved.axes, force[3:])) if len(force) > 3 else moment), *turned)


def _full(impedance):
    """The 36 entries, row by row, of a symmetric matrix in the blocks of `impedance_of`."""
    angular, coupling, linear = impedance[:6], impedance[6:15], impedance[15:]
    places = ((0, 1, 3), (1, 2, 4), (3, 4, 5))
    upper = [[angular[places[p][q]] for q in range(3)] + [coupling[3 * p + q] for q in range(3)] for p in range(3)]
    lower = [[coupling[3 * q + p] for q in range(3)] + [linear[places[p][q]] for q in range(3)] for p in range(3)]
    return [x for line in upper + lower for x in line]


def _displaced(body: Body, motion, share) -> Body:
    """A shape displaced by a small motion about the common point."""
    w, v = scale(share, motion[:3]), scale(share, motion[3:])
    columns = [cross(w, body.rotation[k::3]) for k in range(3)]
    turned = tuple(columns[k % 3][k // 3] for k in range(9))
    return Body(add(body.rotation, turned), add(body.centre, v, cross(w, body.centre)), body.size, body.radius)


def _of_joints(problem: Problem, state: State, a) -> tuple[Array, ...]:
    """Of the torques of limits and dry friction, minus the derivatives by a, and those by the joint's position and rate."""
    force = lambda x, rates: joint_force(joint_rows(problem, x, rates), a)
    at, zero, one = (state.x, state.rates), jnp.zeros_like(a), jnp.ones_like(a)
    (_, curve), (by_position, _) = jax.jvp(force, at, (one, zero))
    _, (by_rate, _) = jax.jvp(force, at, (zero, one))
    return curve, by_position, by_rate


def _times(matrix, x):
    """Product of a matrix, six rows of six entries, and a twist."""
    return tuple(sum(line[q] * x[q] for q in range(6)) for line in matrix)


def _transposed_times(matrix, x):
    return tuple(sum(matrix[q][p] * x[q] for q in range(6)) for p in range(6))


def _entries(problem: Problem, on_links: _Sums, moving: _Moving, diagonal: tuple[Array, ...], joints: Joints):
    """Entries of the derivatives, as in `derivative_entries`."""
    n = problem.scene.chain.n

    def one(_, at):
        k, s, v, a, t = at
        wrench, motion, velocity, impedance, _ = (rows(y, k) for y in on_links)
        accelerated = lambda y: scale(-1, impedance_times(impedance, y))
        below = add(_times(motion, s), _times(velocity, v), accelerated(a))
        moved = add(_times(velocity, s), accelerated(t))
        above = add(_transposed_times(motion, s), wrench_bracket(s, wrench))
        return None, (below, moved, above, _transposed_times(velocity, s), accelerated(s))

    columns = (np.arange(n, dtype=np.int32), *moving)
    found = jax.lax.scan(one, None, columns)[1]

    def entries(of_carrier, of_carried, same):
        s, v, a, t = of_carrier
        (below, moved, above, by_velocity, by_acceleration), own = of_carried
        alone = lambda y: jnp.where(same, y, jnp.zeros_like(y))
        on_diagonal, of_rate, curve = own
        return (
            (dot(s, above) + dot(v, by_velocity) + dot(a, by_acceleration) + alone(on_diagonal),),
            (dot(s, below),),
            (dot(s, by_velocity) + dot(t, by_acceleration) + alone(of_rate),),
            (dot(s, moved),),
            (dot(s, by_acceleration) - alone(curve),),
        )

    pairs = pairs_of(problem.scene.chain.topology.parents, tuple((joint.link, joint.size) for joint in joints))
    return over_pairs(pairs, entries, tuple(moving), (found, diagonal))


class _Couplings(NamedTuple):
    """What moves the links of couples, and what their contacts act on.

    Attributes:
        columns: (couple, joint, side): all joints that move a link of a couple, side 0 if both.
        entries: (column of the torque, column that moves, whether its joint carries the other, entry of the matrix).
    """

    columns: Int[np.ndarray, "k 3"]
    entries: Int[np.ndarray, "e 4"]


@functools.lru_cache(maxsize=64)
def _couplings(
    parents: tuple[int, ...], couples: tuple[tuple[int, int], ...], together: tuple[tuple[int, int], ...]
) -> _Couplings:
    carries, n = ancestor_mask(parents).astype(int), len(parents)
    columns = [
        (c, j, carries[j, b] - carries[j, a])
        for c, (a, b) in enumerate(couples)
        for j in range(n)
        if carries[j, a] or carries[j, b]
    ]
    above = carries.astype(bool) & ~np.eye(n, dtype=bool)
    for first, size in together:
        above[first : first + size, first : first + size] = True
    entries = [
        (p, q, int(above[j, i] and moves != 0), i * n + j)
        for p, (c, i, side) in enumerate(columns)
        for q, (d, j, moves) in enumerate(columns)
        if c == d and side
    ]
    return _Couplings(np.array(columns, np.int32).reshape(-1, 3), np.array(entries, np.int32).reshape(-1, 4))


def _between(problem: Problem, sums: _Sums, moving: _Moving, joints: Joints) -> tuple[Array, ...]:
    """Derivatives by q and qd of the torques of contacts between links, two matrices, row by row."""
    n, pattern, parents = problem.scene.chain.n, problem.pattern, problem.scene.chain.topology.parents
    if not pattern.couples:
        return ()
    couplings = _couplings(parents, pattern.couples, tuple((j.link, j.size) for j in joints))
    couple, joint, side = couplings.columns.T
    dtype = moving.screw[0].dtype

    def one(_, at):
        c, j, side, turns = at
        wrench, motion, velocity, impedance, turning = (rows(y, c) for y in sums)
        s, v, a, t = (rows(y, j) for y in moving)
        accelerated = lambda y: scale(-1, impedance_times(impedance, y))
        moved = add(_times(motion, s), _times(velocity, v), accelerated(a))
        turned = wrench_bracket(s, wrench)
        # a joint that moves only the first link moves both, and the second back
        first = (side - 1) * side / 2
        together = tuple(turns * sum(line[k] * s[k] for k in range(3)) for line in turning)
        moved = add(scale(side, moved), scale(first, turned), together)
        return None, (
            s,
            scale(side, s),
            scale(side, turned),
            moved,
            scale(side, add(_times(velocity, s), accelerated(t))),
        )

    columns = couple, joint, side.astype(dtype), (side < 1).astype(dtype)
    screw, s, turned, moved, by_rate = jax.lax.scan(one, None, columns)[1]

    def product(total, at):
        p, q, carries, k = at
        of_motion, of_rate = total
        # (S_j x S_k) . W = S_j . (S_k x* W)
        change = dot(rows(s, p), rows(moved, q)) + carries * dot(rows(screw, q), rows(turned, p))
        of_rate = put(of_rate, row(of_rate, k) + dot(rows(s, p), rows(by_rate, q)), k)
        return (put(of_motion, row(of_motion, k) + change, k), of_rate), None

    blank = jnp.zeros((n * n, *s[0].shape[1:]), dtype)
    p, q, carries, k = couplings.entries.T
    return jax.lax.scan(product, (blank, blank), (p, q, carries.astype(dtype), k))[0]

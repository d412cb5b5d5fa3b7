"""The accelerations with contacts by Newton's method, in one kernel, and the forces, torques and curvature at given ones."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..dynamics.composite_body import Masses, crba_entries
from ..dynamics.engine.elimination import (
    Pattern,
    along_paths,
    carried,
    factorised,
    inverted,
    mass_times,
    pattern_of,
    solved,
)
from ..dynamics.engine.kernel import any_lane, loops_end_early, settled
from ..dynamics.engine.lanes import PerLink, by_batch, lane_shape, spread_over_lanes
from ..dynamics.engine.matrices import put, row, rows
from ..geometry.cores import select
from ..geometry.distance import Scene, placed_shapes
from ..spatial.components import add, cross, dot, scale, sub
from .contacts import Rows
from .places import Places, Points, bodies_of, places_of, touches
from .softness import (
    Constraint,
    JointRow,
    Row,
    Settings,
    cone_forces,
    cone_slope,
    constraint,
    impedance_of,
    impedance_times,
    joint_force,
    reference,
    regularised,
    row_of,
    with_reference,
    wrench_of,
)

NEWTON_STEPS = 50
SEARCHES = 20  # evaluations of the slope along a step
FIXED_STEPS, FIXED_SEARCHES = 16, 6  # of loops that do not end early, for batches on several CPU devices
LEAST_STEP = 64  # steps that are shorter than the accelerations, times this and the rounding error, are not taken
FARTHEST = 64.0  # largest length of a step, in Newton steps
SLOPE_LEFT = 0.5  # at which the search along a step ends, as a share of the first slope


class JointSettings(NamedTuple):
    """Parameters of dry friction and limits for all n joints: 0 for the bound or `limited` where there are none."""

    friction_reference: Array
    friction_impedance: Array
    bound: Array
    limit_reference: Array
    limit_impedance: Array
    margin: Array
    ends: Array
    limited: Array
    weight: Array
    least_time: Array


class Problem(eqx.Module):
    """A robot with its contacts, prepared for kernels."""

    scene: Scene
    masses: Masses  # of each link and all that it carries
    pairs: Settings  # a row for each pair of shapes
    joints: JointSettings
    points: Points
    rows: Rows = eqx.field(static=True)
    joined: tuple[tuple[int, ...], ...] = eqx.field(static=True)  # by equality constraints
    vertices: tuple[int, ...] = eqx.field(static=True)  # number of vertices of each hull

    @property
    def places(self) -> Places:
        """Where shapes can touch."""
        return places_of(self.scene.shapes.fixed, self.scene.chain.n, self.vertices)

    @property
    def pattern(self) -> Pattern:
        """The entries of the curvature."""
        n = self.scene.chain.n
        couples = sorted({(int(a), int(b)) for a, b in self.places.links if a != n and b != n})
        return pattern_of(self.scene.chain.topology.parents, tuple(couples), self.joined)


class Joined(NamedTuple):
    """Equality constraints: the entries of J^T D J, as many as `Pattern.constant`, and the torques J^T f at a = 0."""

    entries: Array
    torque: Array


class State(NamedTuple):
    """A robot's state.

    Attributes:
        x: positions of the joints.
        rates: rates of the joints.
        turning: MuJoCo's accelerations of the joints less the time derivatives of the rates.
        joined: the equality constraints, if there are any.
    """

    x: Array
    rates: Array
    turning: Array
    joined: Joined | None = None


def problem_size(problem: Problem) -> int:
    """The `size` for `by_batch` of functions of contacts."""
    return 100 + max(problem.pattern.count, 8 * len(problem.places.pair), 10 * problem.scene.chain.n)


class _Held(NamedTuple):
    """The constraints of one state: of places with c - r of their rows, and of joints; screws, and their common point."""

    of_places: Constraint
    offset: Row
    joints: JointRow
    screws: tuple[Array, ...]
    centre: tuple[Array, ...]


def _held(problem: Problem, state: State) -> _Held:
    scene, places, parents = problem.scene, problem.places, problem.scene.chain.topology.parents
    bodies, screws = placed_shapes(scene, state.x)
    twists, biases = along_paths(parents, screws, state.rates), along_paths(parents, screws, state.turning)
    joints = joint_rows(problem, state.x, state.rates)
    if not len(places.pair):
        nothing = jnp.zeros((0, *state.x.shape[1:]), state.x.dtype)
        return _Held(nothing, nothing, joints, screws, bodies.centre)  # type: ignore[arg-type]
    touching = touches(places, bodies_of(bodies, scene.shapes.size, scene.shapes.radius), problem.points)

    def one(_, at):
        pair, (a, b), touch = at
        own = rows(problem.pairs, pair)
        held = constraint(touch, own, problem.rows)
        relative = lambda twists: row_of(touch, sub(rows(twists, b), rows(twists, a)), problem.rows.width)
        return None, (held, with_reference(held, relative(biases), relative(twists)))

    held, offset = jax.lax.scan(one, None, (places.pair, tuple(places.links.T), touching))[1]
    return _Held(held, offset, joints, screws, bodies.centre)


def joint_rows(problem: Problem, x: Array, rates: Array) -> JointRow:
    """Dry friction and limits of all joints."""
    static = problem.rows

    def one(_, at):
        own, x, v = at
        zero, least = jnp.zeros_like(v), own.least_time
        friction, lower, upper = (zero, zero, zero), (zero, zero), (zero, zero)
        if static.rubbing:
            d, _, b = reference(own.friction_reference, own.friction_impedance, zero, least)
            friction = jnp.where(own.bound > 0, 1 / regularised(d, own.weight), zero), b * v, own.bound + zero

        def limit(sign: int, end: int) -> tuple[Array, Array]:
            violation = sign * (x - own.ends[end]) - own.margin
            d, k, b = reference(own.limit_reference, own.limit_impedance, violation, least)
            stiff = jnp.where((violation < 0) & (own.limited > 0), 1 / regularised(d, own.weight), zero)
            stiff, offset = settled(stiff, b * sign * v + k * d * violation)
            return stiff, offset

        if static.limited:
            lower, upper = limit(1, 0), limit(-1, 1)
        return None, JointRow(friction, lower, upper)

    return jax.lax.scan(one, None, (problem.joints, x, rates))[1]


def _over_places(problem: Problem, held: _Held, body: Any, carry: Any, *columns: Any) -> Any:
    """Scan `body(carry, settings, links, constraint, *columns)` over all places."""
    places = problem.places
    if not len(places.pair):
        return carry, ()

    def one(carry, at):
        pair, links, constraint, columns = at
        return body(carry, rows(problem.pairs, pair), links, constraint, *columns)

    return jax.lax.scan(one, carry, (places.pair, tuple(places.links.T), held.of_places, columns))


def _relative_rows(problem: Problem, held: _Held, a: Array, with_offset: bool) -> Row:
    """J a of all places, or J a + c - r."""
    accelerations = along_paths(problem.scene.chain.topology.parents, held.screws, a)

    def one(_, own, links, constraint, offset):
        del own
        first, second = links
        change = sub(rows(accelerations, second), rows(accelerations, first))
        found = row_of(constraint.touch, change, problem.rows.width)
        return None, add(found, offset) if with_offset else found

    return _over_places(problem, held, one, None, held.offset)[1]


def _added_up(problem: Problem, held: _Held, relative: Row, with_curvature: bool) -> tuple[Array, ...]:
    """In all slots, the wrenches of contacts about the common point (6), and their impedances J^T h J (21)."""
    blank = jnp.zeros((problem.scene.chain.n + 1 + len(problem.pattern.couples), *held.screws[0].shape[1:]))
    blank = blank.astype(held.screws[0].dtype)
    signs = np.where(moves_first(problem), -1, 1).astype(blank.dtype)

    def one(total, own, links, constraint, slot, sign, x):
        del links
        force, h = cone_forces(problem.rows, own, constraint.stiffness, x)
        values = wrench_of(constraint.touch, scale(sign, force))
        if with_curvature:
            values = (*values, *impedance_of(constraint.touch, h))
        return _added(total, values, slot), None

    start = (blank,) * (27 if with_curvature else 6)
    return _over_places(problem, held, one, start, slots_of(problem), signs, relative)[0]


def _added(total: tuple[Array, ...], values: tuple[Array, ...], k: Array) -> tuple[Array, ...]:
    return tuple(put(t, row(t, k) + v, k) for t, v in zip(total, values, strict=True))


def _on_links(problem: Problem, slots: tuple[Array, ...]) -> tuple[Array, ...]:
    """Wrenches on links from those in all slots: of a couple, on the second link, and with the opposite sign on the first."""
    n, couples = problem.scene.chain.n, np.array(problem.pattern.couples, np.int32).reshape(-1, 2)
    links = tuple(x[: n + 1] for x in slots)
    if not len(couples):
        return links

    def one(total, at):
        first, second, wrench = at
        return _added(_added(total, wrench, second), scale(-1, wrench), first), None

    return jax.lax.scan(one, links, (*couples.T, tuple(x[n + 1 :] for x in slots)))[0]


def _torque(problem: Problem, held: _Held, slots: tuple[Array, ...], a: Array) -> tuple[Array, Array]:
    """J^T f from the wrenches in all slots, with the forces of joints, and the second derivatives of s of the joints."""
    grip, curve = joint_force(held.joints, a)
    n = problem.scene.chain.n
    on_links = carried(problem.scene.chain.topology.parents, _on_links(problem, slots))
    return dot(held.screws, tuple(w[:n] for w in on_links)) + grip, curve


def _torque_and_curvature(problem: Problem, held: _Held, mass: Array, relative: Row, a: Array) -> tuple[Array, Array]:
    """J^T f, and the entries of M + J^T h J."""
    total, links = _added_up(problem, held, relative, True), problem.scene.chain.n + 1
    torque, curve = _torque(problem, held, total[:6], a)
    composite = carried(problem.scene.chain.topology.parents, tuple(x[:links] for x in total[6:]))
    between = tuple(x[links:] for x in total[6:])
    return torque, curvature_entries(problem, held.screws, (composite, between), curve, mass)


def curvature_entries(problem: Problem, screws: tuple[Array, ...], impedances: Any, curve: Array, mass: Array) -> Array:
    """The entries of M + J^T h J from the impedances of all that a joint carries, those between links, and those of joints.

    `mass` are the entries of M, also with equality constraints (`constant_entries`).
    """
    composite, between = impedances
    n, pattern = problem.scene.chain.n, problem.pattern
    order = np.arange(n, dtype=np.int32)
    momentum = lambda _, at: (None, impedance_times(rows(composite, at[0]), at[1]))
    momenta = jax.lax.scan(momentum, None, (order, screws))[1]

    def entry(_, at):
        i, j, m = at
        value = m + dot(rows(screws, i), rows(momenta, j))
        return None, value + jnp.where(i == j, 1, 0).astype(m.dtype) * row(curve, i)

    own = slice(pattern.own)
    h = jax.lax.scan(entry, None, (pattern.first[own], pattern.second[own], mass[own]))[1]
    if pattern.count > pattern.own:
        joined = mass[pattern.own : pattern.constant]
        nothing = jnp.zeros((pattern.count - pattern.own - len(joined), *h.shape[1:]), h.dtype)
        h = jnp.concatenate([h, joined, nothing])
    if not pattern.couples:
        return h

    def coupled(_, at):
        couple, joint, side = at
        screw = scale(side, rows(screws, joint))
        return None, (screw, impedance_times(rows(between, couple), screw))

    couple, joint, side = pattern.movers.T
    moved, momenta = jax.lax.scan(coupled, None, (couple, joint, side.astype(h.dtype)))[1]

    def product(h, at):
        p, q, k = at
        return put(h, row(h, k) + dot(rows(moved, p), rows(momenta, q)), k), None

    return jax.lax.scan(product, h, tuple(pattern.products.T))[0]


def constant_entries(problem: Problem, state: State) -> tuple[Array, Array]:
    """The entries of the mass matrix, and these with equality constraints, which the accelerations do not change."""
    mass = crba_entries(problem.scene.chain, state.x, problem.masses)
    if state.joined is None:
        return mass, mass
    own = problem.pattern.own
    return mass, jnp.concatenate([mass[:own] + state.joined.entries[:own], state.joined.entries[own:]])


def moves_first(problem: Problem) -> np.ndarray:
    """Mask of the places whose second shape is on the base, so that only the first moves."""
    return problem.places.links[:, 1] == problem.scene.chain.n


def slots_of(problem: Problem) -> np.ndarray:
    """Where the wrench and the impedance of each place are added: its link beside the base, or n + 1 + the couple's index."""
    n, couples = problem.scene.chain.n, {pair: k for k, pair in enumerate(problem.pattern.couples)}
    of = lambda a, b: min(a, b) if max(a, b) == n else n + 1 + couples[a, b]
    return np.array([of(int(a), int(b)) for a, b in problem.places.links], np.int32)


class Solution(NamedTuple):
    """Accelerations, number of Newton steps, whether these ended by convergence, and accelerations of a damped step."""

    qdd: Array
    iterations: Array
    converged: Array
    damped: Array | None = None


@by_batch(size=problem_size)
def solve(problem: Problem, state: State, force: PerLink, start: PerLink, damping: PerLink | None = None) -> Solution:
    """The accelerations a that minimise a^T M a / 2 - force . a + s(J a + c - r), and (M + damping)^-1 M (a + turning).

    Equality constraints are part of M and of the force, but not of the second result.
    """
    state, force, start = jax.tree.map(spread_over_lanes, (state, force, start))
    force = force if state.joined is None else force + state.joined.torque
    pattern = problem.pattern
    (own_mass, mass), held = constant_entries(problem, state), _held(problem, state)
    eps = jnp.finfo(start.dtype).eps
    most = NEWTON_STEPS if loops_end_early() else FIXED_STEPS

    def unfinished(carry):
        k, *_, rest = carry
        return (k < most) & any_lane(rest)

    def iterate(carry):
        k, steps, a, relative, ma, rest = carry
        torque, h = _torque_and_curvature(problem, held, mass, relative, a)
        gradient = ma - force - torque
        factor = factorised(pattern, h)
        step = -solved(pattern, factor, gradient)
        along = _relative_rows(problem, held, step, False)
        m_step = mass_times(pattern, mass, step)
        slope = jnp.sum(step * gradient, axis=0)
        linear, square = jnp.sum(step * (ma - force), axis=0), jnp.sum(step * m_step, axis=0)
        length = _searched(problem, held, (a, step), (relative, along), (slope, linear, square))
        length = jnp.where(rest, length, 0)
        relative = tuple(p + length[None] * d for p, d in zip(relative, along, strict=True))
        a, ma = a + length[None] * step, ma + length[None] * m_step
        # the next step with the same curvature; smaller ones are rounding errors, along which the slope cannot be computed
        left = ma - force - _torque(problem, held, _added_up(problem, held, relative, False), a)[0]
        decrease = jnp.sum(left * solved(pattern, factor, left), axis=0)
        steps += rest.astype(steps.dtype)
        rest &= decrease > (LEAST_STEP * eps) ** 2 * jnp.sum(a * ma, axis=0)
        return k + 1, steps, a, relative, ma, rest

    counts = jnp.zeros(lane_shape(), jnp.int32)
    everywhere = jnp.ones(lane_shape(), bool)
    begin = jnp.int32(0), counts, start, _relative_rows(problem, held, start, True), mass_times(pattern, mass, start)
    _, steps, a, *_, rest = jax.lax.while_loop(unfinished, iterate, (*begin, everywhere))
    if damping is None:
        return Solution(a, steps, ~rest)

    def damp(h, at):
        d, value = at
        return put(h, row(h, d) + value, d), None

    own = pattern_of(problem.scene.chain.topology.parents, ())
    damped = jax.lax.scan(damp, own_mass, (own.diagonal, spread_over_lanes(damping)))[0]
    moved = solved(own, factorised(own, damped), mass_times(pattern, own_mass, a + state.turning))
    return Solution(a, steps, ~rest, moved)


class _End(NamedTuple):
    """A point of a search, and the slope and curvature there."""

    at: Array
    slope: Array
    curve: Array


def _searched(problem: Problem, held: _Held, joints, places, smooth) -> Array:
    """The length of a step at which the slope of the minimised function is zero."""
    (a, step), (relative, along), (first, linear, square) = joints, places, smooth

    def slope(length):
        def one(total, own, links, constraint, x, d):
            del links
            here = tuple(p + length * s for p, s in zip(x, d, strict=True))
            return add(total, cone_slope(problem.rows, own, constraint.stiffness, here, d)), None

        force, curve = joint_force(held.joints, a + length[None] * step)
        smooth = linear + length * square - jnp.sum(force * step, axis=0), square + jnp.sum(curve * step**2, axis=0)
        return _over_places(problem, held, one, smooth, relative, along)[0]

    def newton(end):
        return end.at - end.slope / jnp.where(end.curve > 0, end.curve, 1)

    def body(state):
        k, low, high, length, rest = state
        here = _End(length, *slope(length))
        enough = jnp.abs(here.slope) <= SLOPE_LEFT * jnp.abs(initial.slope)
        low, high = select(here.slope < 0, here, low), select(here.slope < 0, high, here)
        # Newton's step from the last point, or from the other end, where the slope may be better known, or half way
        own, other = newton(here), newton(select(here.slope < 0, high, low))
        inside = lambda x: (x > low.at) & (x < high.at)
        middle = jnp.where(high.at < FARTHEST, (low.at + high.at) / 2, jnp.minimum(2 * length, FARTHEST))
        new = jnp.where(inside(own), own, jnp.where(inside(other), other, middle))
        rest &= ~enough
        return k + 1, low, high, jnp.where(rest, new, length), rest

    zero = jnp.zeros_like(linear)
    initial = _End(zero, first, -first)  # Newton's step
    state = jnp.int32(0), initial, _End(zero + FARTHEST, zero, zero), zero + 1, zero == 0
    most = SEARCHES if loops_end_early() else FIXED_SEARCHES
    return jax.lax.while_loop(lambda s: (s[0] < most) & any_lane(s[-1]), body, state)[3]


@by_batch(size=problem_size)
def constraint_torques(problem: Problem, state: State, a: PerLink) -> PerLink:
    """The torques J^T f of contacts, limits and dry friction at given accelerations; JAX differentiates them."""
    state, a = jax.tree.map(spread_over_lanes, (state, a))
    held = _held(problem, state)
    relative = _relative_rows(problem, held, a, True)
    return _torque(problem, held, _added_up(problem, held, relative, False), a)[0]


@by_batch(size=lambda problem: max(problem_size(problem), 2 * problem.scene.chain.n**2))
def curvature_inverse(problem: Problem, state: State, a: PerLink) -> Array:
    """The inverse of M + J^T h J, (n, n), at given accelerations."""
    state, a = jax.tree.map(spread_over_lanes, (state, a))
    (_, mass), held = constant_entries(problem, state), _held(problem, state)
    _, h = _torque_and_curvature(problem, held, mass, _relative_rows(problem, held, a, True), a)
    return inverted(problem.pattern, factorised(problem.pattern, h))


class PlaceForces(NamedTuple):
    """Components of gap, point (relative to `centre`), force and moment of each place, in world axes, on the second shape."""

    gap: Array
    point: tuple[Array, ...]
    force: tuple[Array, ...]
    moment: tuple[Array, ...]
    centre: tuple[Array, ...]


@by_batch(size=problem_size)
def place_forces(problem: Problem, state: State, a: PerLink) -> PlaceForces:
    """What every place exerts at given accelerations."""
    state, a = jax.tree.map(spread_over_lanes, (state, a))
    held = _held(problem, state)
    if not len(problem.places.pair):
        nothing = jnp.zeros((0, *a.shape[1:]), a.dtype)
        return PlaceForces(nothing, (nothing,) * 3, (nothing,) * 3, (nothing,) * 3, held.centre)

    def one(_, own, links, constraint, x):
        del links
        touch = constraint.touch
        wrench = wrench_of(touch, cone_forces(problem.rows, own, constraint.stiffness, x)[0])
        return None, (touch.gap, touch.point, wrench[3:], sub(wrench[:3], cross(touch.point, wrench[3:])))

    gap, point, force, moment = _over_places(problem, held, one, None, _relative_rows(problem, held, a, True))[1]
    return PlaceForces(gap, point, force, moment, held.centre)

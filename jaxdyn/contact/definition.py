"""Accelerations and torques with contacts from their definition, by dense matrices and automatic differentiation.

This is the executable specification of `contact_dynamics`, which JAXDYN_DEFINITIONS=1 selects. MuJoCo's accelerations a
minimise (mujoco.readthedocs.io, Computation: Primal problem)

    (a - a0)^T M (a - a0) / 2 + s(J a + c - r),

where a0 are the accelerations without contacts, J a + c are the accelerations of the constraints in MuJoCo's coordinates, in
which the velocity of a free joint is in world axes, r are reference accelerations, and s is a convex function of each
constraint. Only the places where shapes can touch and the formulas of softness are shared with the fast route.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..dynamics.articulated_body import forward_dynamics
from ..dynamics.composite_body import mass_matrix
from ..dynamics.kinematics import forward_kinematics, link_twists
from ..dynamics.newton_euler import inverse_dynamics
from ..geometry.distance import placed_shapes, scene_of
from ..model.chain import Acceleration, Chain, Force, Position, Velocity, layout
from ..model.configuration import integrate
from ..model.layouts import free_turning
from ..spatial.so3 import rotation_to_quaternion
from .contacts import Connect, Contacts, Equality, Follow, Softness
from .equalities import softened
from .ground import points_of
from .places import Touch, bodies_of, places_of, touches, vertex_counts
from .softness import reference, regularised


class Constraints(NamedTuple):
    """Constraints: J (m, nv), c - r (m,), D (m,), and for elliptic cones friction and mu of the last 6 k rows.

    The first f rows are those of dry friction, with a largest force `bound`; the next `equal` are equality constraints.
    """

    jacobian: Float[Array, "m nv"]
    offset: Float[Array, " m"]
    stiffness: Float[Array, " m"]
    bound: Float[Array, " f"]
    friction: Float[Array, "k 5"]
    mu: Float[Array, " k"]
    equal: int


def contact_dynamics(chain: Chain, contacts: Contacts, q: Position, qd: Velocity, tau: Force) -> Acceleration:
    """The minimiser, by Newton's method with an exact line search."""
    free, mass, rows = forward_dynamics(chain, q, qd, tau), mass_matrix(chain, q), rows_of(chain, contacts, q, qd)
    cost = lambda a: (a - free) @ mass @ (a - free) / 2 + potential(rows, rows.jacobian @ a + rows.offset)
    slope, curvature = jax.grad(cost), jax.hessian(cost)

    def searched(a, step):
        along = lambda length: slope(a + length * step) @ step

        def body(_, ends):  # bisection between ends with slopes of opposite signs, after doubling
            low, high, length = ends
            falls = along(length) < 0
            low, high = jnp.where(falls, length, low), jnp.where(falls, high, length)
            return low, high, jnp.where(jnp.isinf(high), 2 * length, (low + jnp.where(jnp.isinf(high), low, high)) / 2)

        one = jnp.ones((), a.dtype)
        *_, length = jax.lax.fori_loop(0, 40, body, (0 * one, one * jnp.inf, one))
        return jnp.where(jnp.abs(along(one)) <= jnp.abs(along(length)), one, length)

    def body(_, a):
        step = -jnp.linalg.solve(curvature(a), slope(a))
        return a + searched(a, step) * step

    return jax.lax.fori_loop(0, 40, body, free)


def contact_inverse_dynamics(chain: Chain, contacts: Contacts, q: Position, qd: Velocity, qdd: Acceleration) -> Force:
    """inverse_dynamics + J^T ds(J qdd + c - r)."""
    rows = rows_of(chain, contacts, q, qd)
    slope = jax.grad(lambda a: potential(rows, rows.jacobian @ a + rows.offset))
    return inverse_dynamics(chain, q, qd, qdd) + slope(qdd)


def rows_of(chain: Chain, contacts: Contacts, q: Position, qd: Velocity) -> Constraints:
    """All constraints in a state: dry friction, equality constraints, lower and upper limits, and contacts."""
    dtype, eye = jnp.result_type(q, qd, chain.dtype), jnp.eye(chain.nv)
    rubbing, limited = np.array(contacts.rows.rubbing, int), np.array(contacts.rows.limited, int)
    least = contacts.least_time
    d, _, b = _reference(contacts.rubbing, jnp.zeros(len(rubbing), dtype), least)
    parts: list[tuple[Array, ...]] = [(eye[rubbing], b * qd[rubbing], 1 / regularised(d, contacts.weight[rubbing]))]
    parts += [_equality_rows(chain, each, least, q, qd) for each in contacts.equalities]
    equal = sum(len(part[1]) for part in parts[1:])
    entries = layout(chain).entries_at(limited)
    for sign, end in ((1, 0), (-1, 1)):
        violation = sign * (q[entries] - chain.limits.position[limited, end]) - contacts.limits.margin
        d, k, b = _reference(contacts.limits, violation, least)
        stiff = jnp.where(violation < 0, 1 / regularised(d, contacts.weight[limited]), 0)
        parts.append((sign * eye[limited], b * sign * qd[limited] + k * d * violation, stiff))
    friction, mu = jnp.zeros((0, 5), dtype), jnp.zeros(0, dtype)
    if contacts.shapes.pairs:
        of_contacts, friction, mu = _contact_rows(chain, contacts, q, qd)
        parts.append(of_contacts)
    jacobian, offset, stiffness = (jnp.concatenate(x) for x in zip(*parts, strict=True))
    return Constraints(jacobian, offset, stiffness, contacts.dry_friction, friction, mu, equal)


def _reference(soft: Softness, violation: Array, least_time: Array) -> tuple[Array, ...]:
    return reference(soft.reference.T, soft.impedance.T, violation, least_time)  # type: ignore[return-value]


def _equality_rows(chain: Chain, each: Equality, least_time: Array, q: Position, qd: Velocity) -> tuple[Array, ...]:
    """J, c - r and D of an equality constraint, from its violation."""
    moved = lambda dq: integrate(chain, q, dq)
    violation = lambda dq: _violation(chain, each, moved(dq))
    at, jacobian = violation(jnp.zeros_like(qd)), jax.jacfwd(violation)(jnp.zeros_like(qd))
    rate = lambda t: jax.jvp(lambda s: violation((t + s) * qd), (0.0,), (1.0,))[1]
    bias = jnp.zeros_like(at) if isinstance(each, Follow) else jax.jvp(rate, (0.0,), (1.0,))[1]
    weight = each.weight if each.weight.ndim == 0 else jnp.repeat(each.weight, 3)
    damping, push, stiffness = softened(each, at, jnp.broadcast_to(weight, at.shape), least_time)
    return jacobian, bias + damping * (jacobian @ qd) + push, stiffness


def _violation(chain: Chain, each: Equality, q: Position) -> Array:
    if isinstance(each, Follow):
        at = lambda joints: q[layout(chain).entries_at(np.array(joints, int))]
        x, y = (c @ at(j) - zero for c, j, zero in zip(each.coefficients, each.joints, each.zeros, strict=True))
        powers = each.polynomial if each.joints[1] else each.polynomial[:1]
        return (x - sum(c * y**k for k, c in enumerate(powers)))[None]
    poses = jnp.concatenate([forward_kinematics(chain, q), jnp.eye(4)[None]])
    if chain.base_pose is not None:
        poses = poses.at[-1].set(chain.base_pose)
    first, second = (poses[link] for link in each.links)
    if isinstance(each, Connect):
        a, b = (t[:3, :3] @ p + t[:3, 3] for t, p in zip((first, second), each.points, strict=True))
        return a - b
    first, second = first @ each.frames[0], second @ each.frames[1]
    turn = each.turning_scale * rotation_to_quaternion(second[:3, :3].T @ first[:3, :3])[1:]
    return jnp.concatenate([first[:3, 3] - second[:3, 3], turn])


def _contact_rows(chain: Chain, contacts: Contacts, q: Position, qd: Velocity):
    """J, c - r and D of all places: ten edges of a pyramid each, or six rows of an elliptic cone with friction and mu."""
    scene, x = scene_of(chain, contacts.shapes, q)
    bodies, _ = placed_shapes(scene, x)
    places = places_of(contacts.shapes.fixed, chain.n, vertex_counts(contacts.shapes))
    points = points_of(places, scene, x, contacts.reach)
    touch = touches(places, bodies_of(bodies, contacts.shapes.size, contacts.shapes.radius), points)
    pair, dims = places.pair, np.array(contacts.rows.dimensions)[places.pair]
    soft = jax.tree.map(lambda y: y[pair], contacts.softness)
    friction, ratio = contacts.friction[pair], contacts.friction_ratio
    weight = contacts.shape_weight[places.shapes].sum(axis=1)[:, 0]
    violation = touch.gap - soft.margin
    d, k, b = _reference(soft, violation, contacts.least_time)
    acts = jnp.where((violation < 0) & (touch.exists > 0), jnp.ones_like(d), 0)[:, None]
    jacobian, bias = _relative_jacobian(chain, q, qd, touch, jnp.stack(bodies.centre), places.links)
    velocity, used = jacobian @ qd, (np.arange(1, 6) < dims[:, None]).astype(float)
    push = k * d * violation
    if contacts.rows.cone == "elliptic":
        normal = regularised(d, weight)
        others = (normal / ratio * friction[:, 0] ** 2)[:, None] / friction**2
        given = contacts.friction_reference[pair]
        own = (given != 0).any(axis=1, keepdims=True)
        along = Softness(jnp.where(own, given, soft.reference), soft.impedance, soft.margin)
        _, _, other = _reference(along, violation, contacts.least_time)
        damping = jnp.concatenate([b[:, None], jnp.broadcast_to(other[:, None], (len(pair), 5))], axis=1)
        offset = (bias + damping * velocity).at[:, 0].add(push)
        stiff = jnp.concatenate([1 / normal[:, None], used / others], axis=1) * acts
        mu = jnp.where(dims > 1, friction[:, 0] / jnp.sqrt(ratio), 1)
        return (jacobian.reshape(-1, chain.nv), offset.reshape(-1), stiff.reshape(-1)), jnp.asarray(used) * friction, mu
    slides = (dims > 1).astype(float)
    inverse = regularised(d, weight * (1 + slides * friction[:, 0] ** 2))
    inverse = inverse * (slides * 2 * friction[:, 0] ** 2 / ratio + 1 - slides)
    # along n + mu t and n - mu t for every tangent t, and without friction along n
    mu = jnp.concatenate([used * friction, -used * friction, jnp.zeros((len(pair), 1))], axis=1)
    there = np.concatenate([used, used, 1 - slides[:, None]], axis=1)
    tangent = np.array([*range(1, 6), *range(1, 6), 1])
    edge = lambda rows: rows[:, :1] + jnp.einsum("ke,ke...->ke...", mu, rows[:, tangent])
    offset = edge(bias) + b[:, None] * edge(velocity) + push[:, None]
    stiff = acts * there / inverse[:, None]
    return (
        (edge(jacobian).reshape(-1, chain.nv), offset.reshape(-1), stiff.reshape(-1)),
        jnp.zeros((0, 5)),
        jnp.zeros(0),
    )


def _relative_jacobian(chain: Chain, q: Array, qd: Array, touch: Touch, centre: Array, links: np.ndarray):
    """J (k, 6, nv) of the relative velocities along the axes, linear and angular, and their c (k, 6)."""
    point = jnp.stack(touch.point, axis=1) + centre[None]
    axes = jnp.stack([jnp.stack(e, axis=1) for e in touch.axes], axis=1)

    def relative(rates):
        twists = jnp.concatenate([link_twists(chain, q, rates, "space"), jnp.zeros((1, 6), q.dtype)])
        change = twists[links[:, 1]] - twists[links[:, 0]]
        linear = change[:, 3:] + jnp.cross(change[:, :3], point)
        turned = lambda y: jnp.einsum("kij,kj->ki", axes, y)
        return jnp.concatenate([turned(linear), turned(change[:, :3])], axis=1)

    return jax.jacfwd(relative)(jnp.zeros_like(qd)), relative(free_turning(chain, qd))


def potential(rows: Constraints, x: Float[Array, " m"]) -> Float[Array, ""]:
    """s(x): of Huber for dry friction, parabolas for equalities, half ones for limits and edges, and that of elliptic cones."""
    f, k, d = len(rows.bound), len(rows.mu), rows.stiffness
    stiff, bound, rubs = d[:f], rows.bound, jnp.abs(x[:f])
    huber = jnp.where(rubs * stiff < bound, stiff * rubs**2 / 2, bound * rubs - bound**2 / (2 * stiff))
    equal = d[f : f + rows.equal] * x[f : f + rows.equal] ** 2 / 2
    pushes = slice(f + rows.equal, len(x) - 6 * k)
    parabolas = jnp.where(x[pushes] < 0, d[pushes] * x[pushes] ** 2 / 2, 0)
    cones = jax.vmap(_cone)(
        x[len(x) - 6 * k :].reshape(k, 6), d[len(x) - 6 * k :].reshape(k, 6), rows.friction, rows.mu
    )
    return huber.sum() + equal.sum() + parabolas.sum() + cones.sum()


def _cone(x, d, friction, mu):
    """s of an elliptic cone: zero in the dual cone, half the weighted square in the polar cone, and a square beside."""
    n, t2 = mu * x[0], (friction**2 * x[1:] ** 2).sum()
    t = jnp.where(t2 > 0, jnp.sqrt(jnp.where(t2 > 0, t2, 1)), 0)
    inside, away = (d * x**2).sum() / 2, n >= mu * t
    beside = d[0] / (mu**2 * (1 + mu**2)) * (n - mu * t) ** 2 / 2
    return jnp.where(away, 0, jnp.where(mu * n + t <= 0, inside, beside))

"""Analytic derivatives of inverse and forward dynamics, and the derivative rule of the Newton-Euler recursion, O(n^2).

All quantities are in world axes. S_j is the screw of joint j; v_p and a_p are the twist and the acceleration (including
gravity) of the parent p of link j. X x Y is the bracket of two twists, and X x* F that of a twist and a wrench. The
vectors

    Psi'_j = v_p x S_j,    Psi''_j = a_p x S_j + v_p x Psi'_j

are the derivatives with respect to q_j of the velocity and the acceleration of the links that joint j carries, apart
from the rotation of these vectors with S_j. Let I^c, B^c and F^c be the inertia, the Coriolis factor and the wrench of
a link and all links that it carries. The derivatives of the wrench transmitted to link i are

    dF_i/dq_j = I^c Psi''_j + 2 B^c Psi'_j + S_j x* F^c,    dF_i/dqd_j = 2 I^c Psi'_j + 2 B^c S_j,    dF_i/dqdd_j = I^c S_j

where I^c, B^c and F^c are those of link j if i carries j, and those of link i if j carries i (or is i). In the latter
case, S_j x* F^c is cancelled by the rotation of S_i. The torques are tau_i = S_i . F_i (Carpentier & Mansard 2018;
Singh, Russo & Wensing 2022, for the form with brackets).

B^c is represented by twelve numbers, the momentum P = sum m r' and the matrix N = sum m r' r^T over particles of mass m
at r with velocity r': for a twist (a, b), B (a, b) = (tr(N) a - N a, a x P). For a body with twist (w, u), first moment
h and inertia I, N = u h^T + [w] E with E = tr(I)/2 - I. About a point that lies at p from the first one, N becomes N -
P p^T. The vectors of a link are about the link's origin, and pairs of links are evaluated about a common point (see
`crba`).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._jax_compat import SymbolicZero
from ..model.chain import Acceleration, Chain, Force, Position, Velocity, Wrench, Wrenches, is_ordinary, layout
from ..model.compiled import compiled
from ..model.configuration import integrate, place
from ..model.joints import CurvedJoint
from ..spatial.components import (
    add,
    cross,
    dot,
    rotate,
    scale,
    skew_times,
    sub,
    sym_to_mat,
    unrotate,
    unstack,
    zeros,
)
from .articulated_body import articulated_body, forward_dynamics
from .composite_body import (
    Hops,
    carried_wrench,
    inverse_of_mass_matrix,
    mass_entries,
    moved_inertia,
    positive_inverse,
    reach,
    screws_and_inertias,
    stretches,
    twist_at,
    wrench_at,
    wrench_from,
)
from .coordinates import (
    base_gravity,
    by_coordinates,
    generalised_inertia,
    joint_accelerations,
    joint_rates,
    link_wrenches,
)
from .engine.kernel import mode, uses_definitions
from .engine.lanes import BaseGravity, LinkWrenches, PerLink, by_batch, is_zero, sparse_jvp, spread_over_lanes
from .engine.matrices import entries_size, jacobian_by_column, matrix_times, over_pairs, pairs_of, spread, spread_sides
from .engine.sweep import Beside, Link, inward, outward, start_pose
from .newton_euler import inverse_dynamics, link_inverse_dynamics, newton_euler, wrench_columns
from .regressors import regressor

DENSE = 64  # for more links, a directional derivative is cheaper to compute by differentiating the recursion
TOGETHER = 12  # largest nv for which derivatives of forward dynamics are faster as one kernel than as several


class InverseDynamicsDerivatives(NamedTuple):
    """The result of `inverse_dynamics_derivatives`, which describes it."""

    q: Float[Array, "nv nv"]
    qd: Float[Array, "nv nv"]
    qdd: Float[Array, "nv nv"]
    parameters: Float[Array, "nv p"] | None = None


class ForwardDynamicsDerivatives(NamedTuple):
    """The result of `forward_dynamics_derivatives`, which describes it."""

    q: Float[Array, "nv nv"]
    qd: Float[Array, "nv nv"]
    tau: Float[Array, "nv nv"]
    parameters: Float[Array, "nv p"] | None = None


@compiled
def inverse_dynamics_derivatives(
    chain: Chain,
    q: Position,
    qd: Velocity,
    qdd: Acceleration,
    external_wrenches: Wrenches | None = None,
    wrench_by_tip: Wrench | None = None,
    parameters: bool = False,
) -> InverseDynamicsDerivatives:
    """Jacobians of `inverse_dynamics` at (q, qd, qdd), with wrenches constant in their link frames; O(n^2).

    The Jacobians are computed analytically in two sweeps (Carpentier & Mansard 2018; Singh, Russo & Wensing 2022).
    `jax.jacfwd`, `jax.grad` and higher derivatives of `inverse_dynamics` use the same formulas. With `parameters`, the
    `regressor` is included, which takes longer than all other Jacobians together.

    Returns:
        - q: d tau / d q, with respect to small motions dq of `integrate(chain, q, dq)` [N m/rad].
        - qd: d tau / d qd [N m s/rad].
        - qdd: d tau / d qdd, the mass matrix [kg m^2].
        - parameters: d tau / d pi, the `regressor`; None unless requested.
    """
    wrenches = link_wrenches(chain, external_wrenches, wrench_by_tip)
    position, velocity, acceleration = _torque_jacobians(chain, q, qd, qdd, wrenches)
    own = regressor(chain, q, qd, qdd) if parameters else None
    return InverseDynamicsDerivatives(position, velocity, acceleration, own)


@compiled
def forward_dynamics_derivatives(
    chain: Chain,
    q: Position,
    qd: Velocity,
    tau: Force,
    external_wrenches: Wrenches | None = None,
    wrench_by_tip: Wrench | None = None,
    parameters: bool = False,
) -> ForwardDynamicsDerivatives:
    """Jacobians of `forward_dynamics` at (q, qd, tau): d qdd/d x = -M^-1 d ID/d x and d qdd/d tau = M^-1.

    ID is `inverse_dynamics`, which is differentiated analytically at the resulting qdd (Carpentier & Mansard 2018). The
    cost is O(n^3) with small constants. With `parameters`, d qdd/d pi is included. If M(q) is singular, the Jacobians
    are meaningless (huge, infinite or NaN).

    Returns:
        - q: d qdd / d q, with respect to small motions dq of `integrate(chain, q, dq)` [1/s^2].
        - qd: d qdd / d qd [1/s].
        - tau: d qdd / d tau, the inverse of the mass matrix [1/(kg m^2)].
        - parameters: d qdd / d pi = -M^-1 Y with the `regressor` Y; None unless requested.
    """
    wrenches = link_wrenches(chain, external_wrenches, wrench_by_tip)
    ordinary = is_ordinary(chain) and chain.transmission is None
    if ordinary and chain.nv <= TOGETHER and not uses_definitions():
        qdd, position, velocity, inverse = _link_qdd_and_jacobians(chain, q, qd, tau, base_gravity(chain), wrenches)
    else:
        qdd = forward_dynamics(chain, q, qd, tau, wrenches)
        position, velocity, inverse = _jacobians_at_qdd(chain, q, qd, qdd, wrenches)
    own = -inverse @ regressor(chain, q, qd, qdd) if parameters else None
    return ForwardDynamicsDerivatives(position, velocity, inverse, own)


def derivatives_at_qdd(
    chain: Chain, q: Float[Array, " n"], qd: Float[Array, " n"], qdd: Float[Array, " n"]
) -> ForwardDynamicsDerivatives:
    """Jacobians of `forward_dynamics` at known qdd, for robots with ordinary joints and no transmission."""
    if chain.nv <= TOGETHER and not uses_definitions():
        position, velocity, inverse = _link_jacobians_at_qdd(chain, q, qd, qdd, base_gravity(chain), None)
    else:
        position, velocity, inverse = _jacobians_at_qdd(chain, q, qd, qdd, None)
    return ForwardDynamicsDerivatives(position, velocity, inverse)


def _torque_jacobians(chain: Chain, q: Array, qd: Array, qdd: Array, wrenches: Array | None) -> tuple[Array, ...]:
    """Jacobians of `inverse_dynamics` with respect to small motions, velocities and accelerations."""
    if uses_definitions():
        torques = lambda dq, v, a: inverse_dynamics(chain, integrate(chain, q, dq), v, a, wrenches)
        return jax.jacfwd(torques, (0, 1, 2))(jnp.zeros_like(qd), qd, qdd)
    position, velocity, mass = spread_derivatives(
        chain, torque_entries(chain, q, qd, qdd, wrenches), layout(chain).curved
    )
    return by_coordinates(chain, position), by_coordinates(chain, velocity), generalised_inertia(chain, mass)


def torque_entries(chain: Chain, q: Array, qd: Array, qdd: Array, wrenches: Array | None) -> tuple[Array, ...]:
    """`derivative_entries` in a state."""
    links, x = place(chain, q)
    rates, accelerations, joints = joint_rates(chain, qd), joint_accelerations(chain, qd, qdd), layout(chain).curved
    return derivative_entries(links, x, rates, accelerations, base_gravity(links), wrenches, links.armature, joints)


def _jacobians_at_qdd(chain: Chain, q: Array, qd: Array, qdd: Array, wrenches: Array | None) -> tuple[Array, ...]:
    """Jacobians of `forward_dynamics` with respect to small motions and velocities, and M^-1, at known qdd."""
    # without the barrier, XLA would fuse the assembly of the matrices into the products and repeat it for every row
    by_position, by_velocity, mass = jax.lax.optimization_barrier(_torque_jacobians(chain, q, qd, qdd, wrenches))
    inverse = inverse_of_mass_matrix(mass)
    return -inverse @ by_position, -inverse @ by_velocity, inverse


def _per_link(chain: Chain) -> int:
    """Size of functions that hold whole matrices in a kernel."""
    return max(100 + 60 * chain.n, 8 * chain.n**2)


@by_batch(size=_per_link)
def _link_qdd_and_jacobians(
    chain: Chain, q: PerLink, qd: PerLink, tau: PerLink, gravity: BaseGravity, wrenches: LinkWrenches | None
) -> tuple[Array, Array, Array, Array]:
    """Accelerations of a chain with one-degree-of-freedom joints, their Jacobians with respect to q and qd, and M^-1."""
    # on a GPU, the second form, which stores the links' motion at qdd = 0, spills 6 KB of registers; the first, only
    # 1.5 KB
    if not mode().in_kernel:
        qdd = articulated_body(chain, q, qd, tau, gravity, wrenches)
        return qdd, *_link_jacobians_at_qdd(chain, q, qd, qdd, gravity, wrenches)
    still = world_motion(chain, q, qd, jnp.zeros_like(qd), gravity, wrenches)
    bias, mass = torques_and_mass(chain, q, still, chain.armature)
    inverse = positive_inverse(mass)
    qdd = matrix_times(inverse, tau - bias)
    entries = entries_of_motion(chain, q, qd, accelerated(chain, q, still, qdd), chain.armature)
    position, velocity, _ = spread_derivatives(chain, entries)
    return qdd, *_times_inverse(inverse, position, velocity), inverse


@by_batch(size=_per_link)
def _link_jacobians_at_qdd(
    chain: Chain, q: PerLink, qd: PerLink, qdd: PerLink, gravity: BaseGravity, wrenches: LinkWrenches | None
) -> tuple[Array, Array, Array]:
    """Jacobians of the accelerations with respect to q and qd, and M^-1, of a chain with one-degree-of-freedom joints."""
    entries = derivative_entries(chain, q, qd, qdd, gravity, wrenches, chain.armature)
    position, velocity, mass = spread_derivatives(chain, entries)
    inverse = positive_inverse(mass)
    return *_times_inverse(inverse, position, velocity), inverse


def _times_inverse(inverse: Array, position: Array, velocity: Array) -> tuple[Array, Array]:
    """-M^-1 times both matrices."""

    def body(total, x):
        column, row = x
        return total - column[:, None] * row[None], None

    both = jnp.concatenate([position, velocity], axis=1)
    product, _ = jax.lax.scan(body, jnp.zeros_like(both), (inverse, both))
    return product[:, : len(inverse)], product[:, len(inverse) :]


@link_inverse_dynamics.defjvp
def tangent_of_torques(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    """Derivative rule of `link_inverse_dynamics`: analytic for q, qd and qdd, JAX's for other arguments."""
    along = [not is_zero(t) for t in tangents[1:4]]
    others = (tangents[0], *tangents[4:])
    if primals[0].n > DENSE or not any(along):
        return sparse_jvp(newton_euler, primals, tangents)
    if all(is_zero(t) for t in jax.tree.leaves(others, is_leaf=is_zero)):
        value = link_torques_by_recursion(*primals)
        tangent = jnp.zeros_like(value)
    else:
        still = tuple(SymbolicZero(jax.typeof(x)) for x in primals[1:4])
        value, tangent = sparse_jvp(newton_euler, primals, (tangents[0], *still, *tangents[4:]))
    chain = primals[0]
    matrices = spread_derivatives(chain, derivative_entries(*primals, jnp.zeros_like(chain.armature)))
    for matrix, t, moves in zip(matrices, tangents[1:4], along, strict=True):
        tangent = tangent + matrix @ t if moves else tangent
    return value, tangent


@by_batch
def link_torques_by_recursion(
    chain: Chain, q: PerLink, qd: PerLink, qdd: PerLink, gravity: BaseGravity, wrenches: LinkWrenches | None
) -> PerLink:
    """`link_inverse_dynamics` without this rule: JAX differentiates the recursion, as higher derivatives require."""
    return newton_euler(chain, q, qd, qdd, gravity, wrenches)


def spread_derivatives(
    chain: Chain, entries: tuple[Array, ...], joints: tuple[CurvedJoint, ...] = ()
) -> tuple[Array, ...]:
    """The Jacobians (n, n) of the joint torques with respect to q, qd and qdd, from the entries of `derivative_entries`."""
    pairs = pairs_of(chain.topology.parents, tuple((joint.link, joint.size) for joint in joints))
    above, by_position, velocity, by_velocity, mass = entries
    return (
        spread_sides(pairs, above, by_position, together=True),
        spread_sides(pairs, velocity, by_velocity),
        spread(pairs.symmetric, mass),
    )


@by_batch(size=entries_size)
def derivative_entries(
    chain: Chain,
    q: PerLink,
    qd: PerLink,
    qdd: PerLink,
    gravity: BaseGravity,
    wrenches: LinkWrenches | None,
    armature: PerLink,
    joints: tuple[CurvedJoint, ...] = (),
) -> tuple[Float[Array, "entries *#lanes"], ...]:
    """Entries of the Jacobians of `link_inverse_dynamics`, as in `pairs_of`: two arrays for q, two for qd and one for qdd.

    The armature is added to the diagonal for qdd. A change of position moves all links of a (curved) joint in `joints`
    together with their common frame. Their accelerations are qdd - g(qd) (see the module `coordinates`), so for qd, 2
    Psi'_j becomes 2 Psi'_j - T with T = sum_k S_k dg_k/dqd_j.
    """
    return entries_of_motion(chain, q, qd, world_motion(chain, q, qd, qdd, gravity, wrenches), armature, joints)


class Motion(NamedTuple):
    """Joint screw, parent's twist and acceleration, inertia, momentum and wrench of every link, about the link's origin."""

    screw: tuple[Array, ...]
    parent_twist: tuple[Array, ...]
    parent_acceleration: tuple[Array, ...]
    inertia: tuple[Array, ...]
    moments: tuple[Array, ...]  # N, see the module's docstring
    momentum: tuple[Array, ...]  # P, see the module's docstring
    wrench: tuple[Array, ...]
    hops: Hops


def world_motion(chain: Chain, q, qd, qdd, gravity, wrenches) -> Motion:
    """Twists, accelerations and related quantities of every link, about the link's origin and in world axes."""
    s, inertia, hops, rotation = screws_and_inertias(chain, q)

    def out(parent, _: Link, x):
        v, a = parent
        s, inertia, step, rate, acceleration, acting = x
        v, a = twist_at(step, v), twist_at(step, a)
        first = twist_bracket(v, s)
        twist = add(v, scale(rate, s))
        spatial = add(a, scale(acceleration, s), scale(rate, first))
        momentum, force = carried_wrench(inertia, twist), carried_wrench(inertia, spatial)
        wrench = add(force, wrench_bracket(twist, momentum))
        if acting is not None:
            wrench = sub(wrench, acting)
        motion = v, a, velocity_moments(inertia, twist), momentum[3:], wrench
        return (twist, spatial), motion, (*momentum, *force)

    (zero,) = zeros(1, (q, qd, qdd, gravity), (chain.inertia,))
    base_rotation = tuple(x + zero for x in start_pose(chain, q)[0])
    base_acceleration = tuple(zero - x for x in rotate(base_rotation, unstack(gravity)))  # in world axes
    acting = wrench_columns(wrenches)
    if acting is not None:
        acting = (*rotate(rotation, acting[:3]), *rotate(rotation, acting[3:]))
    inputs = (s, inertia, hops.step, qd, qdd, acting)
    at_base = (zero,) * 6, (zero, zero, zero, *base_acceleration)
    v, a, moments, p, wrench = outward(chain, q, out, at_base, inputs, shares=True)
    return Motion(s, v, a, inertia, moments, p, wrench, hops)


def accelerated(chain: Chain, q: Array, motion: Motion, qdd: Array) -> Motion:
    """The motion with qdd added to the joint accelerations; for use inside functions decorated with `by_batch`."""

    def out(parent, _: Link, x):
        s, inertia, own, step = x
        before = twist_at(step, parent)
        a = add(before, scale(own, s))
        return a, (before, carried_wrench(inertia, a)), a

    start = tuple(jnp.zeros_like(x[0]) for x in motion.screw)
    inputs = (motion.screw, motion.inertia, qdd, motion.hops.step)
    of_parent, wrench = outward(chain, q, out, start, inputs, shares=True)
    return motion._replace(
        parent_acceleration=add(motion.parent_acceleration, of_parent), wrench=add(motion.wrench, wrench)
    )


def entries_of_motion(
    chain: Chain, q: Array, qd: Array, motion: Motion, armature: Array, joints: tuple[CurvedJoint, ...] = ()
) -> tuple[Array, ...]:
    """`derivative_entries` for a given motion; for use inside functions decorated with `by_batch`."""
    s, v, a = motion.screw, motion.parent_twist, motion.parent_acceleration
    first = twist_bracket(v, s)
    turning, base = first, np.arange(chain.n)
    if joints:
        for joint in joints:
            base[joint.links] = joint.link
        v, a = (tuple(x[base] for x in y) for y in (v, a))
        turning = twist_bracket(v, s)
        first = _less_rate_terms(first, s, qd, joints)
    second = add(twist_bracket(a, s), twist_bracket(v, turning))

    def gather(children, _: Link, x):
        children, last = children
        own, (s, first, turning, second), stretch = x
        inertia, moments, p, wrench = jax.tree.map(jnp.add, children, own)
        to_pivot, from_parent = reach(stretch, last)
        carried = carried_wrench(inertia, s)
        transposed = scale(2, add(coriolis_turn(unrotate, moments, s), cross(p, s[3:])))
        turned = add(carried_wrench(inertia, second), coriolis_wrench(moments, p, turning))
        moved = add(scale(2, carried_wrench(inertia, first)), coriolis_wrench(moments, p, s))
        found = (carried, transposed, turned, moved, wrench, to_pivot)
        at_parent = (*moved_system(stretch.step, inertia, moments, p), wrench_from(stretch.step, wrench))
        return Beside(at_parent, from_parent), found, (*inertia, *moments, *p, *wrench)

    own = (motion.inertia, motion.moments, motion.momentum, motion.wrench)
    nothing = jax.tree.map(lambda x: jnp.zeros_like(x[0]), Beside(own, motion.momentum))
    inputs = (own, (s, first, turning, second), stretches(chain, motion.hops))
    *found, r = inward(chain, q, gather, nothing, inputs, shares=True)
    momenta, transposed, turned, by_velocity, wrench = found
    by_position = add(turned, wrench_bracket(s, tuple(x[base] for x in wrench) if joints else wrench))

    def entries(of_carrier, of_carried, same):
        s, first, turning, second = of_carrier
        momentum, transposed, by_position, by_velocity, armature = of_carried
        above = dot((*momentum, *transposed), (*second, *turning[:3]))
        velocity = dot((*scale(2, momentum), *transposed), (*first, *s[:3]))
        mass = dot(momentum, s) + jnp.where(same, armature, jnp.zeros_like(armature))
        return (above,), (dot(s, by_position),), (velocity,), (dot(s, by_velocity),), (mass,)

    momenta, by_position, by_velocity = (wrench_at(r, x) for x in (momenta, by_position, by_velocity))
    of_carried = (momenta, transposed, by_position, by_velocity, spread_over_lanes(armature))
    pairs = pairs_of(chain.topology.parents, tuple((joint.link, joint.size) for joint in joints))
    return over_pairs(pairs, entries, (twist_at(r, s), twist_at(r, first), turning, twist_at(r, second)), of_carried)


def _less_rate_terms(first, s, qd, joints):
    """Subtract T / 2 from Psi' for the links of quaternion joints (see `derivative_entries`)."""
    for joint in joints:
        terms = jacobian_by_column(joint.rate_terms, qd[joint.links])
        half = [sum(0.5 * x[joint.link + k][None] * terms[k] for k in range(joint.size)) for x in s]
        first = tuple(
            jax.lax.dynamic_update_slice_in_dim(x, x[joint.links] - t, joint.link, 0)
            for x, t in zip(first, half, strict=True)
        )
    return first


def torques_and_mass(chain: Chain, q: Array, motion: Motion, armature: Array) -> tuple[Array, Array]:
    """Joint torques (n, *lanes) of a motion, and the mass matrix; for use inside functions decorated with `by_batch`."""

    def gather(children, _: Link, x):
        children, last = children
        own, s, stretch = x
        inertia, wrench = jax.tree.map(jnp.add, children, own)
        to_pivot, from_parent = reach(stretch, last)
        at_parent = (moved_inertia(stretch.step, inertia), wrench_from(stretch.step, wrench))
        return Beside(at_parent, from_parent), (carried_wrench(inertia, s), dot(s, wrench), to_pivot), inertia

    own = (motion.inertia, motion.wrench)
    nothing = jax.tree.map(lambda x: jnp.zeros_like(x[0]), Beside(own, motion.momentum))
    inputs = (own, motion.screw, stretches(chain, motion.hops))
    momenta, torques, r = inward(chain, q, gather, nothing, inputs, shares=True)

    pairs, momenta = pairs_of(chain.topology.parents), wrench_at(r, momenta)
    entries = mass_entries(pairs, twist_at(r, motion.screw), momenta, armature)
    return torques, spread(pairs.symmetric, entries)


def velocity_moments(inertia, twist):
    """N of a body (see the module's docstring)."""
    h, (xx, xy, yy, xz, yz, zz) = inertia[1:4], inertia[4:10]
    half = 0.5 * (xx + yy + zz)
    second_moment = sym_to_mat((half - xx, -xy, half - yy, -xz, -yz, half - zz))
    turned = skew_times(twist[:3], second_moment)
    return tuple(x + twist[3 + k // 3] * h[k % 3] for k, x in enumerate(turned))


def moved_system(step, inertia, moments, p):
    """Inertia, N and P of moving bodies about another point, which is at -step from the point of the given values."""
    return moved_inertia(step, inertia), tuple(x + p[k // 3] * step[k % 3] for k, x in enumerate(moments)), p


def twist_bracket(x, y):
    """Bracket x x y of twists (w, u): (w_x x w_y, w_x x u_y + u_x x w_y)."""
    return (*cross(x[:3], y[:3]), *add(cross(x[:3], y[3:]), cross(x[3:], y[:3])))


def wrench_bracket(x, f):
    """Bracket x x* F of a twist x = (w, u) and a wrench F = (n, f): (w x n + u x f, w x f)."""
    return (*add(cross(x[:3], f[:3]), cross(x[3:], f[3:])), *cross(x[:3], f[3:]))


def coriolis_turn(apply, moments, x):
    """tr(N) w - N w, or the same with N^T, depending on `apply`."""
    trace = moments[0] + moments[4] + moments[8]
    return sub(scale(trace, x[:3]), apply(moments, x[:3]))


def coriolis_wrench(moments, p, x):
    """The wrench 2 B x of the Coriolis factor B and a twist x."""
    return scale(2, (*coriolis_turn(rotate, moments, x), *cross(x[:3], p)))

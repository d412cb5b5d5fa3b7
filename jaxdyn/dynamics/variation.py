"""Analytic derivatives of recursive Newton-Euler torques with respect to positions, velocities and accelerations, O(n^2).

All quantities are in world axes. S_j is the screw of joint j; v_p and a_p are the twist and the acceleration (including
gravity) of the parent p of link j. X x Y is the bracket of two twists, and X x* F that of a twist and a wrench. The vectors

    Psi'_j = v_p x S_j,    Psi''_j = a_p x S_j + v_p x Psi'_j

are the derivatives with respect to q_j of the velocity and the acceleration of the links that joint j carries, apart from the
rotation of these vectors with S_j. Let I^c, B^c and F^c be the inertia, the Coriolis factor and the wrench of a link and all
links that it carries. The derivatives of the wrench transmitted to link i are

    dF_i/dq_j = I^c Psi''_j + 2 B^c Psi'_j + S_j x* F^c,    dF_i/dqd_j = 2 I^c Psi'_j + 2 B^c S_j,    dF_i/dqdd_j = I^c S_j

where I^c, B^c and F^c are those of link j if i carries j, and those of link i if j carries i (or is i). In the latter case, S_j
x* F^c is cancelled by the rotation of S_i. The torques are tau_i = S_i . F_i (Carpentier & Mansard 2018; Singh, Russo & Wensing
2022, for the form with brackets).

For particles of mass m at position r with velocity r', 2 B = 2 sum m X^T dX/dt with X = [-[r], 1]. B^c is therefore represented
by twelve numbers, the momentum P = sum m r' and the matrix N = sum m r' r^T: for a twist (a, b), B (a, b) = (tr(N) a - N a, a x
P). For a body with twist (w, u), first moment h and inertia I, N = u h^T + [w] E with E = tr(I)/2 - I.

The vectors of a link are about the link's origin, and pairs of links are evaluated about a common point (see `composite`).
About a point that lies at p from the first one, N becomes N - P p^T.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._jax_compat import SymbolicZero
from ..model.chain import Chain
from ..model.joints import Link
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
from .composite import (
    Hops,
    carried_wrench,
    moved_inertia,
    reach,
    screws_and_inertias,
    stretches,
    twist_at,
    wrench_at,
    wrench_from,
)
from .engine.lanes import by_batch, is_zero, sparse_jvp, spread_over_lanes
from .engine.pairs import jacobian_by_column, over_pairs, pairs_of, spread, spread_sides
from .engine.sweep import Beside, inward, outward, start_pose
from .newton_euler import newton_euler, wrench_columns

DENSE = 64  # for more links, a directional derivative is cheaper to compute by differentiating the recursion


class LinkDerivatives(NamedTuple):
    """Jacobians (n, n) of the joint torques, with the entries d tau_i / d q_j, d tau_i / d qd_j and d tau_i / d qdd_j."""

    position: Array
    velocity: Array
    acceleration: Array


class Motion(NamedTuple):
    """Joint screw, parent's twist and acceleration, inertia, momentum and wrench of every link, about the link's origin."""

    screw: tuple[Array, ...]
    parent_twist: tuple[Array, ...]
    parent_acceleration: tuple[Array, ...]
    inertia: tuple[Array, ...]
    spread: tuple[Array, ...]  # N, see the module's docstring
    momentum: tuple[Array, ...]  # P, see the module's docstring
    wrench: tuple[Array, ...]
    hops: Hops


def link_derivatives(
    chain: Chain,
    q: Float[Array, " n"],
    qd: Float[Array, " n"],
    qdd: Float[Array, " n"],
    gravity: Float[Array, "3"],
    wrenches: Float[Array, "n 6"] | None,
) -> LinkDerivatives:
    """The Jacobians of `newton_euler`, with wrenches on links constant in the link frames."""
    still = jnp.zeros_like(chain.armature)
    return spread_derivatives(chain, derivative_entries(chain, q, qd, qdd, gravity, wrenches, still))


def spread_derivatives(
    chain: Chain, entries: tuple[Array, ...], joints: tuple[tuple[int, int], ...] = ()
) -> LinkDerivatives:
    """The matrices (n, n) with the entries from `derivative_entries`."""
    pairs = pairs_of(chain.topology.parents, joints)
    above, by_position, velocity, by_velocity, mass = entries
    return LinkDerivatives(
        spread_sides(pairs, above, by_position, together=True),
        spread_sides(pairs, velocity, by_velocity),
        spread(pairs.symmetric, mass),
    )


@by_batch(size=lambda chain: 100 + 2 * chain.n + pairs_of(chain.topology.parents).count)
def derivative_entries(
    chain: Chain,
    q: Float[Array, "n *#lanes"],
    qd: Float[Array, "n *#lanes"],
    qdd: Float[Array, "n *#lanes"],
    gravity: Float[Array, "3 *#lanes"],
    wrenches: Float[Array, "n 6 *#lanes"] | None,
    armature: Float[Array, "n *#lanes"],
    joints: tuple[tuple[int, int], ...] = (),
) -> tuple[Float[Array, "entries *#lanes"], ...]:
    """Entries of `link_derivatives` for the pairs in `pairs_of`: two arrays for q, two for qd and one for qdd.

    Five arrays instead of three keep the largest one small, so that a kernel for a humanoid has 64 lanes.

    The armature is added to the diagonal of the derivatives with respect to qdd. `joints` contains (first link, number of
    links) for each quaternion joint. A change of position moves all links of such a joint together with their common frame,
    instead of one after the other. The accelerations of the links are qdd - g(qd) (see the module `coordinates`). In the
    derivatives with respect to qd, 2 Psi'_j therefore becomes 2 Psi'_j - T with T = sum_k S_k dg_k/dqd_j.
    """
    return entries_of_motion(chain, q, qd, world_motion(chain, q, qd, qdd, gravity, wrenches), armature, joints)


def entries_of_motion(
    chain: Chain, q: Array, qd: Array, motion: Motion, armature: Array, joints: tuple[tuple[int, int], ...] = ()
) -> Any:
    """`derivative_entries` for a given motion; for use inside functions decorated with `by_batch`."""
    s, v, a = motion.screw, motion.parent_twist, motion.parent_acceleration
    first = twist_bracket(v, s)
    turning, base = first, np.arange(chain.n)
    if joints:
        for link, size in joints:
            base[link : link + size] = link
        v, a = (tuple(x[base] for x in y) for y in (v, a))
        turning = twist_bracket(v, s)
        first = _less_rate_terms(first, s, qd, joints)
    second = add(twist_bracket(a, s), twist_bracket(v, turning))

    def gather(children, link: Link, x):
        del link
        children, last = children
        own, (s, first, turning, second), stretch = x
        inertia, spread, p, wrench = jax.tree.map(jnp.add, children, own)
        to_pivot, from_parent = reach(stretch, last)
        carried = carried_wrench(inertia, s)
        transposed = scale(2, add(coriolis_turn(unrotate, spread, s), cross(p, s[3:])))
        turned = add(carried_wrench(inertia, second), coriolis_wrench(spread, p, turning))
        moved = add(scale(2, carried_wrench(inertia, first)), coriolis_wrench(spread, p, s))
        found = (carried, transposed, turned, moved, wrench, to_pivot)
        at_parent = (*moved_system(stretch.step, inertia, spread, p), wrench_from(stretch.step, wrench))
        return Beside(at_parent, from_parent), found, (*inertia, *spread, *p, *wrench)

    own = (motion.inertia, motion.spread, motion.momentum, motion.wrench)
    nothing = jax.tree.map(lambda x: jnp.zeros_like(x[0]), Beside(own, motion.momentum))
    inputs = (own, (s, first, turning, second), stretches(chain, motion.hops))
    *found, r = inward(chain, q, gather, nothing, inputs, shared=28)
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
    pairs = pairs_of(chain.topology.parents, joints)
    return over_pairs(pairs, entries, (twist_at(r, s), twist_at(r, first), turning, twist_at(r, second)), of_carried)


@by_batch(size=lambda chain: 100 + 2 * chain.n + pairs_of(chain.topology.parents).count)
def coriolis_entries(
    chain: Chain, q: Float[Array, "n *#lanes"], qd: Float[Array, "n *#lanes"], mass: bool = False
) -> tuple[Float[Array, "entries *#lanes"], ...]:
    """Half of d tau / d qd at qdd = 0 without gravity: the two arrays for `spread_sides`.

    Args:
        mass: True to return the entries of the mass matrix without armature as a third array.
    """
    s, inertia, hops, _ = screws_and_inertias(chain, q)

    def out(parent, link: Link, x):
        del link
        s, inertia, step, rate = x
        v = twist_at(step, parent)
        twist = add(v, scale(rate, s))
        return twist, (v, spread_of(inertia, twist), carried_wrench(inertia, twist)[3:])

    (zero,) = zeros(1, (q, qd), (chain.inertia,))
    v, spread, p = outward(chain, q, out, (zero,) * 6, (s, inertia, hops.step, qd))
    first = twist_bracket(v, s)

    def gather(children, link: Link, x):
        del link
        children, last = children
        own, (s, first), stretch = x
        inertia, spread, p = jax.tree.map(jnp.add, children, own)
        to_pivot, from_parent = reach(stretch, last)
        carried = carried_wrench(inertia, s)
        transposed = add(coriolis_turn(unrotate, spread, s), cross(p, s[3:]))
        moved = add(carried_wrench(inertia, first), scale(0.5, coriolis_wrench(spread, p, s)))
        at_parent = moved_system(stretch.step, inertia, spread, p)
        return Beside(at_parent, from_parent), (carried, transposed, moved, to_pivot)

    own = (inertia, spread, p)
    nothing = jax.tree.map(lambda x: jnp.zeros_like(x[0]), Beside(own, p))
    inputs = (own, (s, first), stretches(chain, hops))
    momenta, transposed, by_velocity, r = inward(chain, q, gather, nothing, inputs)
    of_carried = (wrench_at(r, momenta), transposed, wrench_at(r, by_velocity))

    def entries(of_carrier, of_carried, same):
        s, first = of_carrier
        carried, transposed, moved = of_carried
        found = (dot((*carried, *transposed), (*first, *s[:3])),), (dot(s, moved),)
        return (*found, (dot(carried, s),)) if mass else found

    return over_pairs(pairs_of(chain.topology.parents), entries, (twist_at(r, s), twist_at(r, first)), of_carried)


def joint_rate_terms(v: Float[Array, "k *lanes"]) -> Float[Array, "k *lanes"]:
    """The terms g(v) of one joint (see the module `coordinates`): three for a spherical joint, six for a free joint."""
    x, y, z = v[:3]
    turning = jnp.stack([y * z, -x * z, x * y])
    return turning if v.shape[0] == 3 else jnp.concatenate([turning, jnp.cross(v[:3], v[3:], axis=0)])


def _less_rate_terms(first, s, qd, joints):
    """Subtract T / 2 from Psi' for the links of quaternion joints (see `derivative_entries`)."""
    for link, size in joints:
        here = slice(link, link + size)
        terms = jacobian_by_column(joint_rate_terms, qd[here])
        half = [sum(0.5 * x[link + k][None] * terms[k] for k in range(size)) for x in s]
        first = tuple(
            jax.lax.dynamic_update_slice_in_dim(x, x[here] - t, link, 0) for x, t in zip(first, half, strict=True)
        )
    return first


def world_motion(chain: Chain, q, qd, qdd, gravity, wrenches) -> Motion:
    """Twists, accelerations and related quantities of every link, about the link's origin and in world axes."""
    s, inertia, hops, rotation = screws_and_inertias(chain, q)

    def out(parent, link: Link, x):
        del link
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
        motion = v, a, spread_of(inertia, twist), momentum[3:], wrench
        return (twist, spatial), motion, (*momentum, *force)

    (zero,) = zeros(1, (q, qd, qdd, gravity), (chain.inertia,))
    base = tuple(x + zero for x in start_pose(chain, q)[0])
    # gravity is given in the axes of the base
    falling = tuple(zero - x for x in rotate(base, unstack(gravity)))
    acting = wrench_columns(wrenches)
    if acting is not None:
        acting = (*rotate(rotation, acting[:3]), *rotate(rotation, acting[3:]))
    inputs = (s, inertia, hops.step, qd, qdd, acting)
    v, a, spread, p, wrench = outward(chain, q, out, ((zero,) * 6, (zero, zero, zero, *falling)), inputs, shared=12)
    return Motion(s, v, a, inertia, spread, p, wrench, hops)


def spread_of(inertia, twist):
    """N of a body (see the module's docstring)."""
    h, (xx, xy, yy, xz, yz, zz) = inertia[1:4], inertia[4:10]
    half = 0.5 * (xx + yy + zz)
    second_moment = sym_to_mat((half - xx, -xy, half - yy, -xz, -yz, half - zz))
    turned = skew_times(twist[:3], second_moment)
    return tuple(x + twist[3 + k // 3] * h[k % 3] for k, x in enumerate(turned))


def moved_system(step, inertia, spread, p):
    """Inertia, N and P of moving bodies about another point, which is at -step from the point of the given values."""
    return moved_inertia(step, inertia), tuple(x + p[k // 3] * step[k % 3] for k, x in enumerate(spread)), p


def torques_and_mass(chain: Chain, q: Array, motion: Motion, armature: Array) -> tuple[Array, Array]:
    """Joint torques (n, *lanes) of a motion, and the mass matrix; for use inside functions decorated with `by_batch`."""

    def gather(children, link: Link, x):
        del link
        children, last = children
        own, s, stretch = x
        inertia, wrench = jax.tree.map(jnp.add, children, own)
        to_pivot, from_parent = reach(stretch, last)
        at_parent = (moved_inertia(stretch.step, inertia), wrench_from(stretch.step, wrench))
        return Beside(at_parent, from_parent), (carried_wrench(inertia, s), dot(s, wrench), to_pivot), inertia

    own = (motion.inertia, motion.wrench)
    nothing = jax.tree.map(lambda x: jnp.zeros_like(x[0]), Beside(own, motion.momentum))
    inputs = (own, motion.screw, stretches(chain, motion.hops))
    momenta, torques, r = inward(chain, q, gather, nothing, inputs, shared=10)

    def entry(s, of_carried, same):
        momentum, armature = of_carried
        return ((dot(momentum, s) + jnp.where(same, armature, jnp.zeros_like(armature)),),)

    pairs = pairs_of(chain.topology.parents)
    of_carried = (wrench_at(r, momenta), spread_over_lanes(armature))
    (entries,) = over_pairs(pairs, entry, twist_at(r, motion.screw), of_carried)
    return torques, spread(pairs.symmetric, entries)


def accelerated(chain: Chain, q: Array, motion: Motion, qdd: Array) -> Motion:
    """The motion with qdd added to the joint accelerations; for use inside functions decorated with `by_batch`."""

    def out(parent, link: Link, x):
        del link
        s, inertia, own, step = x
        before = twist_at(step, parent)
        a = add(before, scale(own, s))
        return a, (before, carried_wrench(inertia, a)), a

    start = tuple(jnp.zeros_like(x[0]) for x in motion.screw)
    of_parent, wrench = outward(chain, q, out, start, (motion.screw, motion.inertia, qdd, motion.hops.step), shared=6)
    return motion._replace(
        parent_acceleration=add(motion.parent_acceleration, of_parent), wrench=add(motion.wrench, wrench)
    )


def twist_bracket(x, y):
    """Bracket x x y of twists (w, u): (w_x x w_y, w_x x u_y + u_x x w_y)."""
    return (*cross(x[:3], y[:3]), *add(cross(x[:3], y[3:]), cross(x[3:], y[:3])))


def wrench_bracket(x, f):
    """Bracket x x* F of a twist x = (w, u) and a wrench F = (n, f): (w x n + u x f, w x f)."""
    return (*add(cross(x[:3], f[:3]), cross(x[3:], f[3:])), *cross(x[:3], f[3:]))


def coriolis_turn(apply, spread, x):
    """tr(N) w - N w, or the same with N^T, depending on `apply`."""
    trace = spread[0] + spread[4] + spread[8]
    return sub(scale(trace, x[:3]), apply(spread, x[:3]))


def coriolis_wrench(spread, p, x):
    """The wrench 2 B x of the Coriolis factor B and a twist x."""
    return scale(2, (*coriolis_turn(rotate, spread, x), *cross(x[:3], p)))


def tangent_of_torques(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    """Derivative rule of `newton_euler`: analytic Jacobians for q, qd and qdd, and JAX's derivatives for other arguments.

    If only q, qd and qdd have tangents, the recursion is not differentiated.
    """
    along = [not is_zero(t) for t in tangents[1:4]]
    others = (tangents[0], *tangents[4:])
    if primals[0].n > DENSE or not any(along):
        return sparse_jvp(newton_euler, primals, tangents)
    if all(is_zero(t) for t in jax.tree.leaves(others, is_leaf=is_zero)):
        value = link_torques(*primals)
        tangent = jnp.zeros_like(value)
    else:
        still = tuple(SymbolicZero(jax.typeof(x)) for x in primals[1:4])
        value, tangent = sparse_jvp(newton_euler, primals, (tangents[0], *still, *tangents[4:]))
    for matrix, t, moves in zip(link_derivatives(*primals), tangents[1:4], along, strict=True):
        tangent = tangent + matrix @ t if moves else tangent
    return value, tangent


link_torques = by_batch(newton_euler)

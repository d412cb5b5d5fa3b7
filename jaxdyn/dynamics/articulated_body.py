"""Forward dynamics: accelerations from torques, by the articulated-body algorithm or by factorising the mass matrix.

Articulated inertias are symmetric 6x6 matrices, stored as the three blocks of [[angular, coupling], [coupling^T, linear]],
which act on (w, v).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..errors import ModelError
from ..model.chain import Acceleration, Chain, Force, Position, Velocity, Wrench, Wrenches
from ..model.compiled import compiled
from ..model.configuration import place
from ..spatial.components import (
    Mat,
    Sym,
    add,
    cross,
    dot,
    mat_to_sym,
    matmul,
    move_wrench,
    rotate,
    scale,
    skew_times,
    sym_apply,
    sym_congruence,
    sym_to_mat,
    transpose,
    unrotate,
    zeros,
)
from .composite_body import mass_matrix_solve
from .coordinates import base_at_rest, base_gravity, link_wrenches, rate_terms
from .engine.kernel import uses_definitions
from .engine.lanes import BaseGravity, LinkWrenches, PerLink, by_batch, sparse_jvp
from .engine.sweep import Link, inward, outward
from .newton_euler import bias_force, body_wrench, inverse_dynamics, remaining_wrench, wrench_columns


@compiled
def forward_dynamics(
    chain: Chain,
    q: Position,
    qd: Velocity,
    tau: Force,
    external_wrenches: Wrenches | None = None,
    wrench_by_tip: Wrench | None = None,
) -> Acceleration:
    """Accelerations qdd = M(q)^-1 (tau - C(q, qd) qd - g(q) + sum_i J_i^T F_i - J_tip^T F_tip).

    This function is the inverse of `inverse_dynamics`. It uses the algorithm of `aba`, O(n), or a linear solve with the
    mass matrix for robots with coupled joints or a transmission. Friction and springs are not included; to include
    them, pass tau - resistive_force(chain, q, qd). Derivatives of any order follow from d qdd = M^-1 (d tau - dID),
    where dID is the differential of inverse dynamics at this qdd. The recursion itself is not differentiated
    (Carpentier & Mansard 2018).

    Args:
        external_wrenches: wrenches (n, f) that act *on* each link, in the link's frame [N m, N].
        wrench_by_tip: wrench (n, f) that the tip exerts on the world, in the tip's frame [N m, N].

    Returns:
        Joint accelerations [rad/s^2 or m/s^2]. If M(q) is singular, they are meaningless (huge, infinite or NaN).
    """
    return _forward_dynamics(chain, q, qd, tau, link_wrenches(chain, external_wrenches, wrench_by_tip))


@jax.custom_jvp
def _forward_dynamics(chain, q, qd, tau, wrenches):
    if chain.coupling is None and chain.transmission is None and not uses_definitions():
        return _articulated(chain, q, qd, tau, wrenches)
    return mass_matrix_solve(chain, q, tau - bias_force(chain, q, qd, wrenches))


def _forward_dynamics_jvp(primals, tangents):
    qdd = _forward_dynamics(*primals)
    unbalanced = lambda chain, q, qd, tau, wrenches: tau - inverse_dynamics(chain, q, qd, qdd, wrenches)
    _, rate = sparse_jvp(unbalanced, primals, tangents)
    return qdd, mass_matrix_solve(primals[0], primals[1], rate)


_forward_dynamics.defjvp(_forward_dynamics_jvp, symbolic_zeros=True)


@compiled
def aba(
    chain: Chain,
    q: Position,
    qd: Velocity,
    tau: Force,
    external_wrenches: Wrenches | None = None,
    wrench_by_tip: Wrench | None = None,
) -> Acceleration:
    """Accelerations by the articulated-body algorithm, O(n) (Featherstone 2008, sec. 7.3) [rad/s^2 or m/s^2].

    The arguments and the result are those of `forward_dynamics`. JAX differentiates through the recursion, which costs
    more.

    Raises:
        ModelError: the chain has a coupling or a transmission, which the recursion does not support.
    """
    if chain.coupling is not None or chain.transmission is not None:
        raise ModelError("aba supports neither coupled joints nor a transmission; use forward_dynamics")
    return _articulated(chain, q, qd, tau, link_wrenches(chain, external_wrenches, wrench_by_tip))


def _articulated(chain, q, qd, tau, wrenches):
    links, x = place(chain, q)
    if not chain.topology.has_curved_joints:
        return articulated_body(links, x, qd, tau, base_gravity(links), wrenches)
    # dv/dt = d2x/dt2 + g(v), and an armature resists dv/dt
    terms = rate_terms(chain, qd)
    return terms + articulated_body(links, x, qd, tau - chain.armature * terms, base_gravity(links), wrenches)


class ArticulatedInertia(NamedTuple):
    """A symmetric 6x6 inertia in three blocks."""

    angular: Sym
    coupling: Mat
    linear: Sym


@by_batch
def articulated_body(
    chain: Chain, q: PerLink, qd: PerLink, tau: PerLink, gravity: BaseGravity, wrenches: LinkWrenches | None
) -> PerLink:
    """Accelerations qdd with inverse_dynamics(chain, q, qd, qdd, wrenches) = tau (Featherstone 2008, sec. 7.3)."""
    # Three sweeps: velocities, inertias with bias wrenches, and accelerations. The latter are conventional, and their
    # velocity terms are part of bias_i: a_i = X a_parent + bias_i + A_i qdd_i, with the motion transform X.
    zero = zeros(3, (q, qd, tau, gravity), (chain.inertia,))

    def velocities(w_parent, link: Link, x):
        qdi, wrench = x
        spin, velocity = scale(qdi, link.screw[:3]), scale(qdi, link.screw[3:])
        w_before = unrotate(link.rotation, w_parent)
        w = add(w_before, spin)
        bias_angular = cross(w_before, spin)
        centripetal = cross(w_parent, cross(w_parent, link.translation))
        bias_linear = add(unrotate(link.rotation, centripetal), cross(add(w_before, w), velocity))
        needed = remaining_wrench(body_wrench(link.inertia, w, zero, zero), wrench)
        return w, ((*bias_angular, *bias_linear), needed)

    biases, body_wrenches = outward(chain, q, velocities, zero, (qd, wrench_columns(wrenches)))

    def gather(children, link: Link, x):
        children_inertia, children_wrench = children
        bias, wrench, torque, armature = x
        inertia = ArticulatedInertia(*(add(a, b) for a, b in zip(children_inertia, rigid(link.inertia), strict=True)))
        wrench = add(wrench, children_wrench)
        column = apply(inertia, link.screw)  # IA A
        pivot = dot(link.screw, column) + armature
        rest = torque - dot(link.screw, wrench)
        gain = scale(1 / pivot, column)
        remaining = downdate(inertia, gain, column)
        onward = add(wrench, apply(remaining, bias), scale(rest, gain))
        at_parent, coupling = to_parent(link, remaining)
        onward_at_parent = move_wrench(link.rotation, link.translation, onward)
        shared = (*column, *remaining.angular, *remaining.coupling, *remaining.linear, *onward, *coupling)
        return (at_parent, onward_at_parent), (gain, rest / pivot), shared

    nothing = (ArticulatedInertia(zero * 2, zero * 3, zero * 2), zero * 2)
    gains, rests = inward(chain, q, gather, nothing, (biases, body_wrenches, tau, chain.armature), shares=True)

    def accelerations(parent, link: Link, x):
        dw_parent, a_parent = parent
        bias, gain, rest = x
        dw = add(unrotate(link.rotation, dw_parent), bias[:3])
        a = add(unrotate(link.rotation, add(a_parent, cross(dw_parent, link.translation))), bias[3:])
        qddi = rest - dot(gain, (*dw, *a))
        return (add(dw, scale(qddi, link.screw[:3])), add(a, scale(qddi, link.screw[3:]))), qddi, (*dw, *a, qddi)

    return outward(chain, q, accelerations, base_at_rest(gravity, zero)[1:], (biases, gains, rests), shares=True)


def rigid(inertia) -> ArticulatedInertia:
    """The inertia of a rigid body in blocks: [[I, [h]], [[h]^T, m 1]]."""
    mass, (x, y, z) = inertia[0], inertia[1:4]
    zero = jnp.zeros_like(mass)
    return ArticulatedInertia(
        inertia[4:10], (zero, -z, y, z, zero, -x, -y, x, zero), (mass, zero, mass, zero, zero, mass)
    )


def apply(inertia: ArticulatedInertia, twist) -> tuple[Array, ...]:
    """The product of an inertia and a twist or an acceleration, as a wrench."""
    w, v = twist[:3], twist[3:]
    return (
        *add(sym_apply(inertia.angular, w), rotate(inertia.coupling, v)),
        *add(unrotate(inertia.coupling, w), sym_apply(inertia.linear, v)),
    )


def downdate(inertia: ArticulatedInertia, gain, column) -> ArticulatedInertia:
    """Inertia felt through a joint without torque, IA - column column^T / pivot, with gain = column / pivot."""
    pairs = ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))
    return ArticulatedInertia(
        tuple(x - gain[i] * column[j] for x, (i, j) in zip(inertia.angular, pairs, strict=True)),
        tuple(x - gain[k // 3] * column[3 + k % 3] for k, x in enumerate(inertia.coupling)),
        tuple(x - gain[3 + i] * column[3 + j] for x, (i, j) in zip(inertia.linear, pairs, strict=True)),
    )


def to_parent(link: Link, inertia: ArticulatedInertia) -> tuple[ArticulatedInertia, Mat]:
    """The inertia X^T IA X in the parent's frame, and its coupling block after rotation but before translation."""
    r, p = link.rotation, link.translation
    linear = sym_congruence(r, inertia.linear)
    coupling = matmul(matmul(r, inertia.coupling), transpose(r))
    angular = sym_to_mat(sym_congruence(r, inertia.angular))
    shifted = add(coupling, skew_times(p, sym_to_mat(linear)))
    # [p] coupling^T + (coupling + [p] linear) [p]^T, with M [p]^T = ([p] M^T)^T
    total = add(angular, skew_times(p, transpose(coupling)), transpose(skew_times(p, transpose(shifted))))
    return ArticulatedInertia(mat_to_sym(total), shifted, linear), coupling

"""The articulated-body recursion used by `aba` and `forward_dynamics`.

Articulated inertias are symmetric 6x6 matrices, stored as the three blocks of [[angular, coupling], [coupling^T, linear]],
which act on (w, v).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...model._chain import Chain
from ...model._joints import Link
from ...spatial._components import (
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
    sub,
    sym_apply,
    sym_congruence,
    sym_to_mat,
    transpose,
    unrotate,
    unstack,
    zeros,
)
from .._lowering import by_batch
from .newton_euler import body_wrench
from .sweep import inward, outward
from .wrench import wrench_columns


class ArticulatedInertia(NamedTuple):
    """A symmetric 6x6 inertia in three blocks."""

    angular: Sym
    coupling: Mat
    linear: Sym


@by_batch
def articulated_body(
    chain: Chain,
    q: Float[Array, "n *#lanes"],
    qd: Float[Array, "n *#lanes"],
    tau: Float[Array, "n *#lanes"],
    gravity: Float[Array, "3 *#lanes"],
    wrenches: Float[Array, "n 6 *#lanes"] | None,
) -> Float[Array, "n *#lanes"]:
    """Accelerations qdd with inverse_dynamics(chain, q, qd, qdd, wrenches) = tau (Featherstone 2008, sec. 7.3).

    The algorithm has three sweeps: velocities outward, articulated inertias and bias wrenches inward, and accelerations
    outward. As in inverse dynamics, accelerations are the conventional accelerations of the frame origins. All their velocity
    terms are part of bias_i, so the acceleration of link i is X a_parent + bias_i + A_i qdd_i, where X is the motion transform.
    """
    zero = zeros(3, (q, qd, tau, gravity), (chain.inertia,))

    def velocities(w_parent, link: Link, x):
        qdi, wrench = x
        spin, velocity = scale(qdi, link.screw[:3]), scale(qdi, link.screw[3:])
        w_before = unrotate(link.rotation, w_parent)
        w = add(w_before, spin)
        bias_angular = cross(w_before, spin)
        centripetal = cross(w_parent, cross(w_parent, link.translation))
        bias_linear = add(unrotate(link.rotation, centripetal), cross(add(w_before, w), velocity))
        moment, force = body_wrench(link.inertia, w, zero, zero)
        if wrench is not None:
            moment, force = sub(moment, wrench[:3]), sub(force, wrench[3:])
        return w, ((*bias_angular, *bias_linear), (*moment, *force))

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
    gains, rests = inward(chain, q, gather, nothing, (biases, body_wrenches, tau, chain.armature), shared=42)

    def accelerations(parent, link: Link, x):
        dw_parent, a_parent = parent
        bias, gain, rest = x
        dw = add(unrotate(link.rotation, dw_parent), bias[:3])
        a = add(unrotate(link.rotation, add(a_parent, cross(dw_parent, link.translation))), bias[3:])
        qddi = rest - dot(gain, (*dw, *a))
        return (add(dw, scale(qddi, link.screw[:3])), add(a, scale(qddi, link.screw[3:]))), qddi, (*dw, *a, qddi)

    base = (zero, sub(zero, unstack(gravity)))
    return outward(chain, q, accelerations, base, (biases, gains, rests), shared=7)


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
    """The inertia in the parent's frame, and its coupling block after rotation but before translation.

    The transformed inertia is X^T IA X, where X is the motion transform. All blocks are first rotated by R. Then [p] linear is
    added to coupling, [p] coupling^T - coupling [p] - [p] linear [p] is added to angular, and linear does not change.
    """
    r, p = link.rotation, link.translation
    linear = sym_congruence(r, inertia.linear)
    coupling = matmul(matmul(r, inertia.coupling), transpose(r))
    angular = sym_to_mat(sym_congruence(r, inertia.angular))
    shifted = add(coupling, skew_times(p, sym_to_mat(linear)))
    # [p] coupling^T + (coupling + [p] linear) [p]^T, with M [p]^T = ([p] M^T)^T
    total = add(angular, skew_times(p, transpose(coupling)), transpose(skew_times(p, transpose(shifted))))
    return ArticulatedInertia(mat_to_sym(total), shifted, linear), coupling

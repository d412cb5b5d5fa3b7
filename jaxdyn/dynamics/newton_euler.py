"""Inverse dynamics by the recursive Newton-Euler algorithm, O(n).

The recursion is that of `rnea`, with every component of a vector as a separate scalar, and with the conventional
acceleration of each frame's origin in place of the spatial acceleration. Its derivative rule is in `derivatives`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model.chain import Acceleration, Chain, Force, Position, Velocity, Wrench, Wrenches
from ..model.compiled import compiled
from ..model.configuration import place
from ..spatial.components import add, cross, dot, move_wrench, scale, sub, sym_apply, unrotate, zeros
from . import rnea
from .coordinates import (
    base_at_rest,
    base_gravity,
    generalised_force,
    joint_accelerations,
    joint_rates,
    link_wrenches,
    rate_matrix,
    with_drives,
)
from .engine.kernel import defined_by
from .engine.lanes import BaseGravity, LinkWrenches, PerLink, by_batch, with_lanes
from .engine.sweep import Link, inward, outward


@compiled
def inverse_dynamics(
    chain: Chain,
    q: Position,
    qd: Velocity,
    qdd: Acceleration,
    external_wrenches: Wrenches | None = None,
    wrench_by_tip: Wrench | None = None,
) -> Force:
    """Joint torques that produce qdd: tau = M(q) qdd + C(q, qd) qd + g(q) - sum_i J_i^T F_i + J_tip^T F_tip.

    The torques are computed in O(n) by the recursive Newton-Euler algorithm (Luh, Walker & Paul 1980; Lynch & Park
    2017, sec. 8.3). Gravity enters as an acceleration of the base in the opposite direction. Friction and springs are
    not included; see `resistive_force`.

    Args:
        qdd: joint accelerations; for quaternion joints, the time derivatives of the body components of the twist
            [rad/s^2 or m/s^2].
        external_wrenches: wrenches (n, f) that act *on* each link, in the link's frame [N m, N].
        wrench_by_tip: wrench (n, f) that the tip exerts on the world, in the tip's frame, as in Lynch & Park [N m, N].

    Returns:
        Joint torques [N m] (forces [N] for prismatic joints).
    """
    wrenches = link_wrenches(chain, external_wrenches, wrench_by_tip)
    links, x = place(chain, q)
    rates, accelerations = joint_rates(chain, qd), joint_accelerations(chain, qd, qdd)
    torques = link_inverse_dynamics(links, x, rates, accelerations, base_gravity(links), wrenches)
    return with_drives(chain, torques, qdd)


@compiled
def gravity_force(chain: Chain, q: Position) -> Force:
    """Torques that hold the robot still against gravity: g(q) = dP/dq = inverse_dynamics(chain, q, 0, 0), O(n) [N m or N]."""
    links, x = place(chain, q)
    zero = jnp.zeros_like(x)
    return generalised_force(chain, link_inverse_dynamics(links, x, zero, zero, base_gravity(links), None))


@compiled
def coriolis_force(chain: Chain, q: Position, qd: Velocity) -> Force:
    """Coriolis and centrifugal torques c(q, qd) = C(q, qd) qd, quadratic in qd, O(n) [N m or N]."""
    links, x = place(chain, q)
    accelerations = joint_accelerations(chain, qd, jnp.zeros_like(qd))
    torques = link_inverse_dynamics(
        links, x, joint_rates(chain, qd), accelerations, jnp.zeros_like(chain.gravity), None
    )
    return generalised_force(chain, torques)


@compiled
def bias_force(
    chain: Chain,
    q: Position,
    qd: Velocity,
    external_wrenches: Wrenches | None = None,
    wrench_by_tip: Wrench | None = None,
) -> Force:
    """Torques at zero acceleration, or nonlinear effects, O(n): inverse_dynamics(chain, q, qd, 0, ...) [N m or N]."""
    return inverse_dynamics(chain, q, qd, jnp.zeros_like(qd), external_wrenches, wrench_by_tip)


@compiled
def passivity_inverse_dynamics(
    chain: Chain, q: Position, qd: Velocity, qd_ref: Velocity, qdd_ref: Acceleration
) -> Force:
    """Torques tau = M(q) qdd_ref + C(q, qd) qd_ref + g(q), O(n) (Slotine & Li 1987) [N m or N].

    With C = `coriolis_matrix`, C(q, qd) qd_ref is half the derivative of C(q, qd) qd along qd_ref; dM/dt - 2 C is
    skew-symmetric. For qd_ref = qd, the result equals that of `inverse_dynamics`. A common choice is qd_ref = qd_d -
    lambda (q - q_d). For quaternion joints, qdd_ref is the time derivative of the body components of qd_ref.
    """
    links, x = place(chain, q)
    torques = _link_reference_torques(links, x, *reference_motion(chain, links, qd, qd_ref, qdd_ref))
    return with_drives(chain, torques, qdd_ref)


def reference_motion(chain: Chain, links: Chain, qd: Array, qd_ref: Array, qdd_ref: Array) -> tuple[Array, ...]:
    """Rates, reference rates and reference accelerations of the links' joints, and gravity, for `by_reference`."""
    if chain.topology.has_curved_joints:
        qdd_ref = qdd_ref - rate_matrix(chain, qd) @ qd_ref
    return joint_rates(chain, qd), joint_rates(chain, qd_ref), joint_rates(chain, qdd_ref), base_gravity(links)


def by_reference(terms: Callable[[Array, Array, Array], Any], rates, references, accelerations, gravity) -> Any:
    """From M a + C(q, v) v + g as a function of (v, a, gravity): C(q, v) v, and the terms M a_ref + C(q, v) v_ref + g."""
    rates, references = with_lanes(rates, 1), with_lanes(references, 1)  # only one of them may have lanes
    point = rates, jnp.zeros_like(accelerations), jnp.zeros_like(gravity)
    return jax.jvp(terms, point, (references / 2, accelerations, gravity))


@by_batch
def _link_reference_torques(
    chain: Chain, x: PerLink, rates: PerLink, references: PerLink, accelerations: PerLink, gravity: BaseGravity
) -> PerLink:
    """The torques due to the rigid links of a chain with ordinary joints."""
    torques = lambda qd, qdd, gravity: newton_euler(chain, x, qd, qdd, gravity, None)
    return by_reference(torques, rates, references, accelerations, gravity)[1]


@defined_by(rnea.newton_euler)
@by_batch
def link_inverse_dynamics(
    chain: Chain, q: PerLink, qd: PerLink, qdd: PerLink, gravity: BaseGravity, wrenches: LinkWrenches | None
) -> PerLink:
    """The contribution of the rigid links to `inverse_dynamics`, without armature, for gravity in the axes of the base."""
    return newton_euler(chain, q, qd, qdd, gravity, wrenches)


def newton_euler(
    chain: Chain, q: PerLink, qd: PerLink, qdd: PerLink, gravity: BaseGravity, wrenches: LinkWrenches | None
) -> PerLink:
    """The recursion, for use inside functions decorated with `by_batch`; JAX differentiates it."""

    def accelerations(parent, link: Link, x):
        qdi, qddi, wrench = x
        motion = accelerate(parent, link, qdi, qddi)
        return motion, remaining_wrench(body_wrench(link.inertia, *motion), wrench)

    zero = zeros(3, (q, qd, qdd, gravity), (chain.inertia,))
    inputs = (qd, qdd, wrench_columns(wrenches))
    wrenches_needed = outward(chain, q, accelerations, base_at_rest(gravity, zero), inputs)
    return inward(chain, q, transmit, zero * 2, wrenches_needed)


def accelerate(parent, link: Link, qd, qdd):
    """Angular velocity w, its rate dw and the origin's conventional acceleration a of a link, from those of its parent.

    w = R^T w_p + A_w qd;  dw = R^T dw_p + A_w qdd + (R^T w_p) x A_w qd;
    a = R^T (a_p + dw_p x p + w_p x (w_p x p)) + A_v qdd + (R^T w_p + w) x A_v qd.
    """
    w_parent, dw_parent, a_parent = parent
    p = link.translation
    axis, slide = link.screw[:3], link.screw[3:]
    w_before = unrotate(link.rotation, w_parent)
    spin = scale(qd, axis)
    w = add(w_before, spin)
    dw = add(unrotate(link.rotation, dw_parent), scale(qdd, axis), cross(w_before, spin))
    at_joint = add(a_parent, cross(dw_parent, p), cross(w_parent, cross(w_parent, p)))
    a = add(unrotate(link.rotation, at_joint), scale(qdd, slide), cross(add(w_before, w), scale(qd, slide)))
    return w, dw, a


def body_wrench(inertia, w, dw, a):
    """Wrench about the frame's origin with h = m c: f = m a + dw x h + w x (w x h), n = I dw + w x I w + h x a."""
    mass, h, rotational = inertia[0], inertia[1:4], inertia[4:10]
    force = add(scale(mass, a), cross(dw, h), cross(w, cross(w, h)))
    moment = add(sym_apply(rotational, dw), cross(w, sym_apply(rotational, w)), cross(h, a))
    return moment, force


def remaining_wrench(wrench, acting):
    """The wrench (moment, force) that remains for the joints if the wrench `acting` or None acts on the link, as a 6-tuple."""
    wrench = (*wrench[0], *wrench[1])
    return wrench if acting is None else sub(wrench, acting)


def transmit(children, link: Link, wrench):
    """The wrench that a link passes to its parent (its own plus its children's), and the resulting joint torque."""
    wrench = add(children, wrench)
    return move_wrench(link.rotation, link.translation, wrench), dot(link.screw, wrench)


def wrench_columns(wrenches: LinkWrenches | None) -> tuple[Float[Array, "n *#lanes"], ...] | None:
    """The six components of wrenches, each as an array over links, for a sweep; None if there are no wrenches."""
    return None if wrenches is None else tuple(wrenches[:, k] for k in range(6))

"""Inverse dynamics by the recursive Newton-Euler algorithm."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model.chain import Chain
from ..model.joints import Link
from ..spatial.components import add, cross, dot, rotate, scale, sub, sym_apply, unrotate, unstack, zeros
from .coordinates import (
    base_gravity,
    generalised_force,
    joint_accelerations,
    joint_rates,
    place,
    rotor_torques,
)
from .sweep import by_batch, inward, outward
from .wrench import link_wrenches


def inverse_dynamics(
    chain: Chain,
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    qdd: Float[Array, " nv"],
    external_wrenches: Float[Array, "n 6"] | None = None,
    wrench_by_tip: Float[Array, "6"] | None = None,
) -> Float[Array, " nv"]:
    """Joint torques that realise qdd: tau = M(q) qdd + C(q, qd) qd + g(q) - sum_i J_i^T F_i + J_tip^T F_tip.

    Recursive Newton-Euler: velocities and accelerations outward, wrenches inward, O(n) (Luh, Walker & Paul 1980; Lynch &
    Park 2017, sec. 8.3). Gravity enters as an acceleration -g of the base. Friction is not part of it: see `friction_force`.
    Equals mass_matrix(chain, q) @ qdd + bias_force(chain, q, qd).

    Args:
        chain: the robot.
        q: joint positions [rad or m].
        qd: joint velocities.
        qdd: joint accelerations, dv/dt: of quaternion joints the rates of the twist's components in the body.
        external_wrenches: wrenches (n, f) that act *on* each link, in the link's frame [N m, N].
        wrench_by_tip: wrench (n, f) that the tip exerts on the world, in the tip's frame, as in Lynch & Park [N m, N].

    Returns:
        Joint torques [N m] (forces [N] for prismatic joints).
    """
    wrenches = link_wrenches(chain, external_wrenches, wrench_by_tip)
    links, x = place(chain, q)
    rates, accelerations = joint_rates(chain, qd), joint_accelerations(chain, qd, qdd)
    torques = link_inverse_dynamics(links, x, rates, accelerations, base_gravity(links), wrenches)
    # a rotor has no quaternion joint, so that its accelerations are the coordinates' own
    spins = joint_rates(chain, qdd)
    return generalised_force(chain, torques + chain.armature * spins + rotor_torques(chain, spins))


@by_batch
def link_inverse_dynamics(
    chain: Chain,
    q: Float[Array, " n"],
    qd: Float[Array, " n"],
    qdd: Float[Array, " n"],
    gravity: Float[Array, "3"],
    wrenches: Float[Array, "n 6"] | None,
) -> Float[Array, " n"]:
    """The rigid links' part of `inverse_dynamics`: without armature, under a gravity of the caller's choice.

    The acceleration carried is the conventional one of the frame's origin (not the spatial one), which spares the linear
    velocity: w, dw and a are all that the next link needs.
    """

    def accelerations(parent, link: Link, x):
        qdi, qddi, _ = x
        motion = accelerate(parent, link, qdi, qddi)
        return motion, motion

    def wrench_needed(motion, link: Link, x):
        moment, force = body_wrench(link.inertia, *motion)
        if x[2] is not None:
            moment, force = sub(moment, x[2][:3]), sub(force, x[2][3:])
        return moment, force

    def transmit(children, link: Link, wrench):
        moment, force = add(children[0], wrench[0]), add(children[1], wrench[1])
        turned = rotate(link.rotation, force)
        at_parent = add(rotate(link.rotation, moment), cross(link.translation, turned))
        return (at_parent, turned), (*moment, *force)

    def project(wrench, link: Link, _):
        return dot(link.screw, wrench)

    zero = zeros(q[0] + qd[0] + qdd[0] + gravity[0] + chain.inertia[0, 0], 3)
    base = (zero, zero, tuple(z - g for z, g in zip(zero, unstack(gravity), strict=True)))
    columns = None if wrenches is None else tuple(wrenches.T)
    wrenches_needed = outward(chain, q, accelerations, base, (qd, qdd, columns), wrench_needed)
    return inward(chain, q, transmit, (zero, zero), wrenches_needed, project)


def accelerate(parent, link: Link, qd, qdd):
    """Angular velocity w, its rate dw and the origin's conventional acceleration a of a link, from its parent's.

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
    """Wrench about the frame's origin that moves a body: Newton's and Euler's equations for the ten parameters.

    f = m a + dw x h + w x (w x h),  n = I dw + w x I w + h x a, with h = m c and a the origin's conventional acceleration.
    """
    mass, h, rotational = inertia[0], inertia[1:4], inertia[4:10]
    force = add(scale(mass, a), cross(dw, h), cross(w, cross(w, h)))
    moment = add(sym_apply(rotational, dw), cross(w, sym_apply(rotational, w)), cross(h, a))
    return moment, force


def gravity_force(chain: Chain, q: Float[Array, " nq"]) -> Float[Array, " nv"]:
    """Torques that hold the robot still against gravity: g(q) = dP/dq = inverse_dynamics(chain, q, 0, 0), O(n) [N m]."""
    links, x = place(chain, q)
    zero = jnp.zeros_like(x)
    return generalised_force(chain, link_inverse_dynamics(links, x, zero, zero, base_gravity(links), None))


def coriolis_force(chain: Chain, q: Float[Array, " nq"], qd: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """Coriolis and centrifugal torques c(q, qd) = C(q, qd) qd, quadratic in qd, O(n) [N m]."""
    links, x = place(chain, q)
    accelerations = joint_accelerations(chain, qd, jnp.zeros_like(qd))
    torques = link_inverse_dynamics(
        links, x, joint_rates(chain, qd), accelerations, jnp.zeros_like(chain.gravity), None
    )
    return generalised_force(chain, torques)


def bias_force(
    chain: Chain,
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    external_wrenches: Float[Array, "n 6"] | None = None,
    wrench_by_tip: Float[Array, "6"] | None = None,
) -> Float[Array, " nv"]:
    """Torques at zero acceleration: C(q, qd) qd + g(q) - sum_i J_i^T F_i + J_tip^T F_tip, O(n) [N m].

    Arguments as for `inverse_dynamics`; also known as the non-linear effects.
    """
    return inverse_dynamics(chain, q, qd, jnp.zeros_like(qd), external_wrenches, wrench_by_tip)

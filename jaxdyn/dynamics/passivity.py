"""Quantities for passivity-based control: the torques M a_ref + C v_ref + g, and the work done on a robot."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model.chain import Chain
from ..model.compiled import compiled
from ..model.configuration import difference, place
from ..model.joints import Link
from ..spatial.components import add, cross, scale, sub, sym_apply, unrotate, unstack, zeros
from .coordinates import (
    base_gravity,
    generalised_force,
    joint_rates,
    rate_matrix,
    rotor_torques,
)
from .engine.lanes import by_batch
from .engine.sweep import inward, outward
from .newton_euler import transmit


@compiled
def passivity_inverse_dynamics(
    chain: Chain,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    v_ref: Float[Array, " nv"],
    a_ref: Float[Array, " nv"],
) -> Float[Array, " nv"]:
    """Torques tau = M(q) a_ref + C(q, v) v_ref + g(q) with C = `coriolis_matrix`, O(n) (Slotine & Li 1987).

    The torques are computed by a Newton-Euler recursion in which every product of two velocities is made symmetric in v and
    v_ref. The term C(q, v) v_ref is therefore the symmetric bilinear form of the quadratic velocity terms C(q, v) v, and
    dM/dt - 2 C is skew-symmetric. For v_ref = v, the result equals inverse_dynamics(chain, q, v, a_ref).

    Args:
        v: velocity [rad/s or m/s].
        v_ref: reference velocity, commonly v_d - lambda (q - q_d) [rad/s or m/s].
        a_ref: time derivative of v_ref; for quaternion joints, the time derivatives of its body components [rad/s^2 or m/s^2].

    Returns:
        Joint torques [N m] (forces [N] for prismatic joints).
    """
    links, x = place(chain, q)
    rates, references = joint_rates(chain, v), joint_rates(chain, v_ref)
    accelerations = reference_accelerations(chain, v, v_ref, a_ref)
    torques = _link_torques(links, x, rates, references, accelerations, base_gravity(links))
    spins = joint_rates(chain, a_ref)
    return generalised_force(chain, torques + chain.armature * spins + rotor_torques(chain, spins))


def reference_accelerations(chain: Chain, v: Array, v_ref: Array, a_ref: Array) -> Float[Array, " n"]:
    """Reference accelerations of the links' joints, S (a_ref - dA/dt v_ref), with S and A as in `coordinates`."""
    if chain.topology.quaternion_joints:
        a_ref = a_ref - rate_matrix(chain, v) @ v_ref
    return joint_rates(chain, a_ref)


@by_batch
def _link_torques(
    chain: Chain,
    x: Float[Array, "n *#lanes"],
    rates: Float[Array, "n *#lanes"],
    references: Float[Array, "n *#lanes"],
    accelerations: Float[Array, "n *#lanes"],
    gravity: Float[Array, "3 *#lanes"],
) -> Float[Array, "n *#lanes"]:
    """The torques due to the rigid links of a chain with ordinary joints."""

    def motions(parent, link: Link, inputs):
        motion = accelerate_by_reference(parent, link, *inputs)
        moment, force = reference_wrench(link.inertia, *motion)
        return motion, (*moment, *force)

    zero = zeros(3, (x, rates, references, accelerations, gravity), (chain.inertia,))
    base = (zero, zero, zero, sub(zero, unstack(gravity)))
    wrenches = outward(chain, x, motions, base, (rates, references, accelerations))
    return inward(chain, x, transmit, zero * 2, wrenches)


def accelerate_by_reference(parent, link: Link, rate, reference, acceleration):
    """Actual and reference angular velocity w and w_r of a link, and the acceleration (dw, a) of its reference motion.

    The formulas are those of `newton_euler.accelerate`, with each product B(u, u) of velocities replaced by (B(u, u_r) + B(u_r,
    u)) / 2.
    """
    w_parent, wr_parent, dw_parent, a_parent = parent
    p, axis, slide = link.translation, link.screw[:3], link.screw[3:]
    w_before, wr_before = unrotate(link.rotation, w_parent), unrotate(link.rotation, wr_parent)
    spin, spin_r = scale(rate, axis), scale(reference, axis)
    w, wr = add(w_before, spin), add(wr_before, spin_r)
    turning = mean(cross(w_before, spin_r), cross(wr_before, spin))
    dw = add(unrotate(link.rotation, dw_parent), scale(acceleration, axis), turning)
    centripetal = mean(cross(w_parent, cross(wr_parent, p)), cross(wr_parent, cross(w_parent, p)))
    at_joint = add(a_parent, cross(dw_parent, p), centripetal)
    sliding = mean(cross(add(w_before, w), scale(reference, slide)), cross(add(wr_before, wr), scale(rate, slide)))
    a = add(unrotate(link.rotation, at_joint), scale(acceleration, slide), sliding)
    return w, wr, dw, a


def reference_wrench(inertia, w, wr, dw, a):
    """The wrench of `newton_euler.body_wrench`, with w x (w x h) and w x I w made symmetric in w and w_r."""
    mass, h, rotational = inertia[0], inertia[1:4], inertia[4:10]
    centripetal = mean(cross(w, cross(wr, h)), cross(wr, cross(w, h)))
    gyroscopic = mean(cross(w, sym_apply(rotational, wr)), cross(wr, sym_apply(rotational, w)))
    force = add(scale(mass, a), cross(dw, h), centripetal)
    return add(sym_apply(rotational, dw), gyroscopic, cross(h, a)), force


def mean(a, b):
    """(a + b) / 2, entry by entry."""
    return tuple(0.5 * (x + y) for x, y in zip(a, b, strict=True))


@compiled
def passivity_integral(
    chain: Chain, q: Float[Array, "times nq"], tau: Float[Array, "steps nv"]
) -> Float[Array, " times"]:
    """Work int_0^t v^T tau dt done on a robot up to the time t of each row of q; the first entry is 0 [J].

    The work is computed as sum_k tau_k . (q_{k+1} - q_k), with the torque tau_k constant during step k, as in `rollout`. The
    sum is exact for ordinary joints, and second-order accurate in the time step for quaternion joints. If torques are sampled
    at the rows of q, pass the means of neighbouring samples.

    Without friction, the work equals E(t) - E(0) with E = `total_energy`; with friction, which dissipates energy, it is
    larger. The work is therefore never less than -beta with beta = E(0) - min E, so the robot is passive (Spong, Hutchinson &
    Vidyasagar 2020, sec. 6.5).
    """
    moved = jax.vmap(lambda here, there: difference(chain, here, there))(q[:-1], q[1:])
    work = jnp.cumsum((moved * tau).sum(1))
    return jnp.concatenate([jnp.zeros_like(work[:1]), work])

"""Inverse dynamics by the recursive Newton-Euler algorithm."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model.chain import Chain
from ..model.compiled import compiled
from ..model.configuration import place
from .coordinates import (
    base_gravity,
    generalised_force,
    joint_accelerations,
    joint_rates,
    rotor_torques,
)
from .engine.lanes import by_batch
from .newton_euler import link_wrenches, newton_euler
from .variation import tangent_of_torques


@compiled
def inverse_dynamics(
    chain: Chain,
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    qdd: Float[Array, " nv"],
    external_wrenches: Float[Array, "n 6"] | None = None,
    wrench_by_tip: Float[Array, "6"] | None = None,
) -> Float[Array, " nv"]:
    """Joint torques that produce qdd: tau = M(q) qdd + C(q, qd) qd + g(q) - sum_i J_i^T F_i + J_tip^T F_tip.

    The torques are computed in O(n) by the recursive Newton-Euler algorithm, which propagates velocities and accelerations
    outward and wrenches inward (Luh, Walker & Paul 1980; Lynch & Park 2017, sec. 8.3). Gravity enters as an acceleration of the
    base in the opposite direction. The result equals mass_matrix(chain, q) @ qdd + bias_force(chain, q, qd). Friction and
    springs are not included; see `resistive_force`.

    Args:
        chain: the robot.
        q: joint positions [rad or m].
        qd: joint velocities [rad/s or m/s].
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
    # quaternion joints have no rotors, so the rotors' accelerations follow from qdd without corrections
    spins = joint_rates(chain, qdd)
    return generalised_force(chain, torques + chain.armature * spins + rotor_torques(chain, spins))


link_inverse_dynamics = by_batch(newton_euler, jvp=tangent_of_torques)


@compiled
def gravity_force(chain: Chain, q: Float[Array, " nq"]) -> Float[Array, " nv"]:
    """Torques that hold the robot still against gravity: g(q) = dP/dq = inverse_dynamics(chain, q, 0, 0), O(n) [N m or N]."""
    links, x = place(chain, q)
    zero = jnp.zeros_like(x)
    return generalised_force(chain, link_inverse_dynamics(links, x, zero, zero, base_gravity(links), None))


@compiled
def coriolis_force(chain: Chain, q: Float[Array, " nq"], qd: Float[Array, " nv"]) -> Float[Array, " nv"]:
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
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    external_wrenches: Float[Array, "n 6"] | None = None,
    wrench_by_tip: Float[Array, "6"] | None = None,
) -> Float[Array, " nv"]:
    """Torques at zero acceleration: C(q, qd) qd + g(q) - sum_i J_i^T F_i + J_tip^T F_tip, O(n) [N m or N].

    These torques are also known as nonlinear effects. The arguments are the same as for `inverse_dynamics`.
    """
    return inverse_dynamics(chain, q, qd, jnp.zeros_like(qd), external_wrenches, wrench_by_tip)

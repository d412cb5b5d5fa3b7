"""Energies, the Lagrangian, and joint torques derived independently from the Euler-Lagrange equations."""

import jax
from jaxtyping import Array, Float

from ...model._chain import Chain
from ...model._compiled import compiled
from ...model._joints import Link
from ...spatial._components import add, dot, rotate, scale, unstack, zeros
from .._equations.friction import spring_energy
from .._kinematics.coordinates import (
    generalised_force,
    joint_accelerations,
    joint_rates,
    place,
    rate_terms,
    rotor_torques,
)
from .._recursions.composite import momentum
from .._recursions.poses import carry_twist, start_pose, walk
from .._recursions.sweep import outward


@compiled
def kinetic_energy(chain: Chain, q: Float[Array, " nq"], qd: Float[Array, " nv"]) -> Float[Array, ""]:
    """Kinetic energy K = sum_i V_i^T G_i V_i / 2 + sum_i armature_i qd_i^2 / 2 = qd^T M(q) qd / 2, O(n) [J].

    V_i is the twist of link i and G_i its spatial inertia.
    """

    def out(parent, link: Link, qdi):
        w, v = carry_twist(parent, link, qdi)
        angular, linear = momentum(link.inertia, w, v)
        return (w, v), dot((*w, *v), (*angular, *linear))

    links, x = place(chain, q)
    rates = joint_rates(chain, qd)
    zero = zeros(3, (x, rates), (chain.inertia,))
    of_links = outward(links, x, out, (zero, zero), rates).sum()
    return 0.5 * (of_links + rates @ (chain.armature * rates + rotor_torques(chain, rates)))


@compiled
def potential_energy(chain: Chain, q: Float[Array, " nq"]) -> Float[Array, ""]:
    """Gravitational potential energy P = -sum_i gravity . (m_i p_i + R_i h_i), O(n) [J].

    Link i has the pose (R_i, p_i), the mass m_i and the first moment h_i. P is zero if all mass is at the world's origin.
    """
    gravity = unstack(chain.gravity)

    def out(parent, link: Link, _):
        r, p = walk(parent, link)
        return (r, p), dot(gravity, add(scale(link.inertia[0], p), rotate(r, link.inertia[1:4])))

    links, x = place(chain, q)
    return -outward(links, x, out, start_pose(links, x)).sum()


@compiled
def lagrangian(chain: Chain, q: Float[Array, " nq"], qd: Float[Array, " nv"]) -> Float[Array, ""]:
    """The Lagrangian L(q, qd) = K(q, qd) - P(q), excluding the energy of springs, O(n) [J]."""
    return kinetic_energy(chain, q, qd) - potential_energy(chain, q)


@compiled
def euler_lagrange_torque(
    chain: Chain, q: Float[Array, " nq"], qd: Float[Array, " nv"], qdd: Float[Array, " nv"]
) -> Float[Array, " nv"]:
    """Joint torques tau = d/dt (dL/dqd) - dL/dq by automatic differentiation of `lagrangian`, O(n) [N m or N].

    The result equals that of `inverse_dynamics`, which is faster. This independent derivation (Lynch & Park 2017, sec. 8.1)
    is intended for checks and teaching.
    """
    links, x = place(chain, q)
    rates, accelerations = joint_rates(chain, qd), joint_accelerations(chain, qd, qdd)
    momenta = jax.grad(lagrangian, argnums=2)
    _, change = jax.jvp(lambda y, yd: momenta(links, y, yd), (x, rates), (rates, accelerations))
    torques = change - jax.grad(lagrangian, argnums=1)(links, x, rates)
    if chain.topology.quaternion_joints:  # an armature resists changes of the twist, not of the coordinate rates
        torques = torques + chain.armature * joint_rates(chain, rate_terms(chain, qd))
    return generalised_force(chain, torques)


@compiled
def total_energy(chain: Chain, q: Float[Array, " nq"], qd: Float[Array, " nv"]) -> Float[Array, ""]:
    """Total energy E = kinetic_energy + potential_energy + spring_energy, O(n) [J].

    Without friction, dE/dt = qd . tau.
    """
    return kinetic_energy(chain, q, qd) + potential_energy(chain, q) + spring_energy(chain, q)

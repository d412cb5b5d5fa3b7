"""Energies, the work done on a robot, and the Euler-Lagrange and Hamilton's equations, which are derived from them."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model.chain import Acceleration, Chain, Force, Position, Velocity
from ..model.compiled import compiled
from ..model.configuration import difference, place
from ..spatial.components import dot, zeros
from .centroidal import first_moment
from .composite_body import carried_wrench, mass_matrix_solve
from .coordinates import (
    base_gravity,
    generalised_force,
    joint_accelerations,
    joint_rates,
    rate_matrix,
    rate_terms,
    rotor_torques,
    with_drives,
)
from .engine.sweep import Link, carry_twist, outward
from .friction import spring_energy, spring_force
from .newton_euler import link_inverse_dynamics


@compiled
def kinetic_energy(chain: Chain, q: Position, qd: Velocity) -> Float[Array, ""]:
    """Kinetic energy K = sum_i V_i^T G_i V_i / 2 + sum_i armature_i qd_i^2 / 2 = qd^T M(q) qd / 2, O(n) [J]."""

    def out(parent, link: Link, rate):
        w, v = twist = carry_twist(parent, link, rate)
        return twist, dot((*w, *v), carried_wrench(link.inertia, (*w, *v)))

    links, x = place(chain, q)
    rates = joint_rates(chain, qd)
    zero = zeros(3, (x, rates), (chain.inertia,))
    # without a kernel: the sweep alone is as fast, and its gradient by qd takes two thirds of the time
    of_links = outward(links, x, out, (zero, zero), rates).sum()
    return 0.5 * (of_links + rates @ (chain.armature * rates + rotor_torques(chain, rates)))


@compiled
def potential_energy(chain: Chain, q: Position) -> Float[Array, ""]:
    """Gravitational potential energy P = -sum_i gravity . (m_i p_i + R_i h_i), O(n) [J].

    Link i has the pose (R_i, p_i), the mass m_i and the first moment h_i. P is zero if all mass is at the world's origin.
    """
    return -(chain.gravity @ first_moment(*place(chain, q)))


@compiled
def lagrangian(chain: Chain, q: Position, qd: Velocity) -> Float[Array, ""]:
    """The Lagrangian L(q, qd) = K(q, qd) - P(q), excluding the energy of springs, O(n) [J]."""
    return kinetic_energy(chain, q, qd) - potential_energy(chain, q)


@compiled
def euler_lagrange_torque(chain: Chain, q: Position, qd: Velocity, qdd: Acceleration) -> Force:
    """Joint torques tau = d/dt (dL/dqd) - dL/dq by automatic differentiation of `lagrangian`, O(n) [N m or N].

    The result equals that of `inverse_dynamics`, which is faster (Lynch & Park 2017, sec. 8.1).
    """
    links, x = place(chain, q)
    rates, accelerations = joint_rates(chain, qd), joint_accelerations(chain, qd, qdd)
    momenta = jax.grad(lagrangian, argnums=2)
    _, change = jax.jvp(lambda y, yd: momenta(links, y, yd), (x, rates), (rates, accelerations))
    torques = change - jax.grad(lagrangian, argnums=1)(links, x, rates)
    if chain.topology.has_curved_joints:  # an armature resists changes of the twist, not of the coordinate rates
        torques = torques + chain.armature * joint_rates(chain, rate_terms(chain, qd))
    return generalised_force(chain, torques)


@compiled
def total_energy(chain: Chain, q: Position, qd: Velocity) -> Float[Array, ""]:
    """Total energy E = kinetic_energy + potential_energy + spring_energy, O(n) [J].

    Without friction, dE/dt = qd . tau.
    """
    return kinetic_energy(chain, q, qd) + potential_energy(chain, q) + spring_energy(chain, q)


@compiled
def generalised_momentum(chain: Chain, q: Position, qd: Velocity) -> Float[Array, " nv"]:
    """Generalised momentum p = M(q) qd = dL/dqd, including armature and rotors, O(n) [N m s or N s]."""
    links, x = place(chain, q)
    rates = joint_rates(chain, qd)
    torques = link_inverse_dynamics(links, x, jnp.zeros_like(rates), rates, jnp.zeros_like(chain.gravity), None)
    return with_drives(chain, torques, qd)


@compiled
def hamiltonian(chain: Chain, q: Position, p: Float[Array, " nv"]) -> Float[Array, ""]:
    """The Hamiltonian H(q, p) = p^T M(q)^-1 p / 2 + P(q) + spring_energy(q), where P is the potential energy of gravity [J]."""
    kinetic = 0.5 * (p @ mass_matrix_solve(chain, q, p))
    return kinetic + potential_energy(chain, q) + spring_energy(chain, q)


@compiled
def hamiltonian_flow(
    chain: Chain, q: Position, p: Float[Array, " nv"], tau: Force
) -> tuple[Float[Array, " nv"], Float[Array, " nv"]]:
    """Hamilton's equations: dq/dt = dH/dp = M^-1 p and dp/dt = -dH/dq + tau, and hence dH/dt = tau . dq/dt.

    Here -dH/dq = C^T v - g - k, with v = M^-1 p, g = `gravity_force` and k = `spring_force`. Since C^T v = dM/dt v - C
    v, this term follows from one derivative of the momentum along v. The cost is one factorisation of M and three
    sweeps each way.

    For quaternion joints, dq/dt is the velocity v, to be used with `integrate`, and dp/dt is the rate of p = M v in
    body-fixed components; for a free body with angular velocity w, dp/dt = p x w. Friction is not included. To include
    it, pass tau - friction_force(chain, v).
    """
    v = mass_matrix_solve(chain, q, p)
    return v, momentum_drift(chain, q, v) + tau


@compiled
def momentum_drift(chain: Chain, q: Position, qd: Velocity) -> Force:
    """Rate of the momentum p = M qd at zero torques, C^T qd - g - k as in `hamiltonian_flow`, O(n) [N m or N]."""
    links, x = place(chain, q)
    rates = joint_rates(chain, qd)
    zero, no_gravity = jnp.zeros_like(rates), jnp.zeros_like(chain.gravity)
    # in local coordinates u about the current placement: momentum and dM/dt qd, then C qd + g
    of_links = lambda y: link_inverse_dynamics(links, y, zero, rates, no_gravity, None)
    momenta, change = jax.jvp(of_links, (x,), (rates,))
    bias = link_inverse_dynamics(links, x, rates, zero, base_gravity(links), None)
    slope = generalised_force(chain, change - bias)
    if chain.topology.has_curved_joints:  # p = B^T dK/d(du/dt), whose armature part does not depend on u
        slope = slope - rate_matrix(chain, qd).T @ generalised_force(chain, momenta)
    return slope - spring_force(chain, q)


@compiled
def passivity_integral(
    chain: Chain, q: Float[Array, "times nq"], tau: Float[Array, "steps nv"]
) -> Float[Array, " times"]:
    """Work int_0^t qd^T tau dt done on a robot up to the time t of each row of q; the first entry is 0 [J].

    The work is computed as sum_k tau_k . (q_{k+1} - q_k), with the torque tau_k constant during step k, as in
    `rollout`. The sum is exact for ordinary joints, and second-order accurate in the time step for quaternion joints.
    If torques are sampled at the rows of q, pass the means of neighbouring samples.

    Without friction, the work equals E(t) - E(0) with E = `total_energy`; with friction, it is larger. It is therefore
    never less than min E - E(0), so the robot is passive (Spong, Hutchinson & Vidyasagar 2020, sec. 6.5).
    """
    moved = jax.vmap(lambda here, there: difference(chain, here, there))(q[:-1], q[1:])
    work = jnp.cumsum((moved * tau).sum(1))
    return jnp.concatenate([jnp.zeros_like(work[:1]), work])

"""Hamilton's form of the equations of motion: positions and generalised momenta instead of velocities."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...model._chain import Chain
from ...model._compiled import compiled
from .._equations.forward import mass_matrix_solve
from .._equations.friction import spring_energy, spring_force
from .._equations.inverse import link_inverse_dynamics
from .._kinematics.coordinates import base_gravity, generalised_force, joint_rates, place, rate_matrix, rotor_torques
from .energy import potential_energy


@compiled
def generalised_momentum(chain: Chain, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """Generalised momentum p = M(q) v = dL/dv, including armature and rotors, O(n) [N m s or N s].

    p is computed as the torques that accelerate the robot from rest with joint accelerations v, without gravity.
    """
    links, x = place(chain, q)
    rates = joint_rates(chain, v)
    torques = link_inverse_dynamics(links, x, jnp.zeros_like(rates), rates, jnp.zeros_like(chain.gravity), None)
    return generalised_force(chain, torques + chain.armature * rates + rotor_torques(chain, rates))


@compiled
def hamiltonian(chain: Chain, q: Float[Array, " nq"], p: Float[Array, " nv"]) -> Float[Array, ""]:
    """The Hamiltonian H(q, p) = p^T M(q)^-1 p / 2 + P(q) + spring_energy(q), where P is the potential energy of gravity [J]."""
    kinetic = 0.5 * (p @ mass_matrix_solve(chain, q, p))
    return kinetic + potential_energy(chain, q) + spring_energy(chain, q)


@compiled
def hamiltonian_flow(
    chain: Chain, q: Float[Array, " nq"], p: Float[Array, " nv"], tau: Float[Array, " nv"]
) -> tuple[Float[Array, " nv"], Float[Array, " nv"]]:
    """Hamilton's equations: dq/dt = dH/dp = M^-1 p and dp/dt = -dH/dq + tau, and hence dH/dt = tau . dq/dt.

    The first term of dp/dt is -dH/dq = C^T v - g - k, with v = M^-1 p, g = `gravity_force` and k = `spring_force`. Since C^T
    v = dM/dt v - C v, this term is computed from one derivative of the momentum along v. The cost is one factorisation of the
    mass matrix and three sweeps in each direction.

    For quaternion joints, dq/dt is the velocity v, to be used with `integrate`, and dp/dt is the rate of p = M v in body-fixed
    components. This rate includes Lie-Poisson terms; for a free body with angular velocity w, dp/dt = p x w.

    Friction is not included. To include it, pass tau - friction_force(chain, v).

    Args:
        p: generalised momenta from `generalised_momentum` [N m s or N s].
        tau: joint torques [N m] (forces [N] for prismatic joints).

    Returns:
        (dq/dt, dp/dt) [rad/s or m/s, N m or N].
    """
    v = mass_matrix_solve(chain, q, p)
    return v, momentum_drift(chain, q, v) + tau


@compiled
def momentum_drift(chain: Chain, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """Rate of the momentum p = M v at zero torques, C^T v - g - k as in `hamiltonian_flow`, O(n) [N m or N]."""
    links, x = place(chain, q)
    rates = joint_rates(chain, v)
    zero, still = jnp.zeros_like(rates), jnp.zeros_like(chain.gravity)
    # in local coordinates x about the current placement: momentum and dM/dt v, then C v + g
    of_links = lambda y: link_inverse_dynamics(links, y, zero, rates, still, None)
    momenta, change = jax.jvp(of_links, (x,), (rates,))
    bias = link_inverse_dynamics(links, x, rates, zero, base_gravity(links), None)
    slope = generalised_force(chain, change - bias)
    if chain.topology.quaternion_joints:  # p = A^T dK/d(dx/dt), whose armature part does not depend on x
        slope = slope - rate_matrix(chain, v).T @ generalised_force(chain, momenta)
    return slope - spring_force(chain, q)

"""Hamilton's form of the equations of motion: positions and generalised momenta instead of velocities."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model.chain import Chain
from ..model.configuration import integrate
from .coordinates import generalised_force, joint_rates, place, rotor_torques
from .energy import potential_energy
from .forward import mass_matrix_solve
from .friction import spring_energy, spring_force
from .inverse import bias_force, link_inverse_dynamics


def generalised_momentum(chain: Chain, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """p = M(q) v = dL/dv, armature and rotors included, O(n) [N m s] ([N s] for prismatic joints).

    Computed as the torques that give the resting robot the accelerations v, without gravity.
    """
    links, x = place(chain, q)
    rates = joint_rates(chain, v)
    torques = link_inverse_dynamics(links, x, jnp.zeros_like(rates), rates, jnp.zeros_like(chain.gravity), None)
    return generalised_force(chain, torques + chain.armature * rates + rotor_torques(chain, rates))


def hamiltonian(chain: Chain, q: Float[Array, " nq"], p: Float[Array, " nv"]) -> Float[Array, ""]:
    """H(q, p) = p^T M(q)^-1 p / 2 + P(q) + spring_energy(q): the total energy by momenta [J]."""
    kinetic = 0.5 * (p @ mass_matrix_solve(chain, q, p))
    return kinetic + potential_energy(chain, q) + spring_energy(chain, q)


def hamiltonian_flow(
    chain: Chain, q: Float[Array, " nq"], p: Float[Array, " nv"], tau: Float[Array, " nv"]
) -> tuple[Float[Array, " nv"], Float[Array, " nv"]]:
    """Hamilton's equations: dq/dt = dH/dp = M^-1 p and dp/dt = -dH/dq + tau, so that dH/dt = tau . dq/dt.

    dp/dt is computed as dM/dt v - C v - g - k + tau with v = M^-1 p, C v + g = `bias_force` and k = `spring_force`: for
    ordinary joints the same, as dM/dt v - C v = C^T v = dK/dq. With quaternion joints dq/dt is the velocity v, to be used
    with `integrate`, and dp/dt is that of p = M v in body-fixed components, Lie-Poisson terms included (of a free body
    dp/dt = p x w). Costs a factorised mass matrix and three sweeps. Friction is not part of it: pass
    tau - friction_force(chain, v).

    Args:
        p: generalised momenta (`generalised_momentum`).
        tau: joint torques [N m].

    Returns:
        (dq/dt, dp/dt).
    """
    v = mass_matrix_solve(chain, q, p)
    moved = lambda time: generalised_momentum(chain, integrate(chain, q, time * v), v)
    _, change = jax.jvp(moved, (jnp.zeros((), v.dtype),), (jnp.ones((), v.dtype),))
    return v, change + tau - bias_force(chain, q, v) - spring_force(chain, q)

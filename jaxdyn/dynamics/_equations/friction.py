"""Passive forces at the joints: friction (viscous, Coulomb with a smooth sign, Stribeck, a constant offset) and springs."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...model._chain import Chain, Transmission
from ...model._compiled import compiled
from .._kinematics.coordinates import generalised_force, joint_rates, place


@compiled
def friction_force(chain: Chain, qd: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """Torque that the drives spend on friction [N m].

        f = fv qd + (fc + (fs - fc) exp(-(qd / w_s)^2)) tanh(qd / v_c) + offset

    Positive along positive velocity: a drive must give inverse_dynamics(...) + friction_force(...). tanh with the width v_c
    (`coulomb_velocity`) stands in for the sign, so that it is differentiable and nothing jumps at rest: what breaks away
    creeps. `stribeck_friction` = fs - fc is the excess of static friction, which fades over `stribeck_velocity` = w_s
    (Armstrong-Helouvry, Dupont & Canudas de Wit 1994); it peaks near v_c, below fs unless v_c is much less than w_s.
    Friction at the motors of a transmission comes to the joints by its ratios, R^T f_m(R qd).
    """
    rates = joint_rates(chain, qd)
    sign = jnp.tanh(rates / chain.coulomb_velocity)
    dry = chain.coulomb_friction + chain.stribeck_friction * _fading(rates, chain.stribeck_velocity)
    torques = chain.viscous_friction * rates + dry * sign + chain.torque_offset
    if (motors := chain.transmission) is not None:
        spins = motors.matrix @ rates
        torques = torques + motors.matrix.T @ motor_losses(motors, spins)
    return generalised_force(chain, torques)


def motor_losses(motors: Transmission, spins: Float[Array, " motors"]) -> Float[Array, " motors"]:
    """f_m(spins): what friction takes at the motors of a transmission, before its ratios."""
    return motors.coulomb_friction * jnp.tanh(spins / motors.coulomb_velocity) + motors.viscous_friction * spins


def _fading(rates: Float[Array, " n"], width: Float[Array, " n"]) -> Float[Array, " n"]:
    """exp(-(rates / width)^2) with finite derivatives at rest, far away and for widths as small as rounding allows."""
    # dividing by a tiny width, or squaring a large ratio, would leave 0 * inf in the derivatives
    width = jnp.maximum(width, jnp.finfo(width.dtype).eps ** 2)
    near = jnp.abs(rates) < 12 * width  # exp(-144) < 1e-62
    ratio = jnp.where(near, rates, jnp.zeros_like(rates)) / width
    return jnp.where(near, jnp.exp(-(ratio**2)), jnp.zeros_like(ratio))


@compiled
def spring_force(chain: Chain, q: Float[Array, " nq"]) -> Float[Array, " nv"]:
    """Torque that the joint springs take: k (q - q_rest), the derivative of `spring_energy` [N m].

    Positive where the joint is beyond its rest position: a drive must give it besides inverse_dynamics(...).
    """
    _, x = place(chain, q)
    return generalised_force(chain, chain.stiffness * (x - chain.rest_position))


@compiled
def spring_energy(chain: Chain, q: Float[Array, " nq"]) -> Float[Array, ""]:
    """Energy stored in the joint springs, sum_i k_i (q_i - q_rest,i)^2 / 2 [J]."""
    _, x = place(chain, q)
    return 0.5 * (chain.stiffness * (x - chain.rest_position) ** 2).sum()


@compiled
def resistive_force(chain: Chain, q: Float[Array, " nq"], qd: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """Forces that a drive must supply to overcome friction and springs: friction_force + spring_force, O(n) [N m].

    M qdd + C qd + g + resistive_force = tau. MuJoCo's `qfrc_passive`, which acts on the robot, is its negative.
    """
    return friction_force(chain, qd) + spring_force(chain, q)

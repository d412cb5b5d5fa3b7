"""Joint friction: viscous, Coulomb with a smooth sign, and a constant offset."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model.chain import Chain


def friction_force(chain: Chain, qd: Float[Array, " n"]) -> Float[Array, " n"]:
    """Torque that the drives spend on friction: fv qd + fc tanh(qd / v_c) + offset [N m].

    Positive along positive velocity: a drive must give inverse_dynamics(...) + friction_force(...). tanh with the width v_c
    (`coulomb_velocity`) stands in for the sign, so that it is differentiable and nothing jumps at rest.
    """
    sign = jnp.tanh(qd / chain.coulomb_velocity)
    return chain.viscous_friction * qd + chain.coulomb_friction * sign + chain.torque_offset

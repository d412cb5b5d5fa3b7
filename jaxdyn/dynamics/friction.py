"""Passive joint forces: friction (viscous, Coulomb with a smooth sign function, Stribeck, a constant offset) and springs."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model.chain import Chain, Force, Position, Velocity
from ..model.compiled import compiled
from ..model.configuration import place
from .coordinates import generalised_force, joint_rates
from .engine.lanes import PerLink, lane_shape


@compiled
def friction_force(chain: Chain, qd: Velocity) -> Force:
    """Torques that the drives must supply to overcome friction, computed by `Friction.torque` for every joint [N m or N].

    The torques are positive for positive velocities. The friction f_m of motors is reflected to the joints by the
    transmission matrix R, as R^T f_m(R qd).
    """
    rates = joint_rates(chain, qd)
    return generalised_force(chain, chain.friction.torque(rates) + motor_friction(chain, rates))


def motor_friction(chain: Chain, rates: Float[Array, " n"]) -> Float[Array, " n"]:
    """Friction of a transmission's motors at the joints, R^T f_m(R rates) [N m or N]; zero without a transmission."""
    motors = chain.transmission
    if motors is None:
        return jnp.zeros_like(rates)
    return motors.matrix.T @ motors.friction.torque(motors.matrix @ rates)


@compiled
def spring_force(chain: Chain, q: Position) -> Force:
    """Torques that drives must supply against springs: k (q - q_rest), the gradient of `spring_energy` [N m or N]."""
    _, x = place(chain, q)
    return generalised_force(chain, chain.springs.stiffness * (x - chain.springs.rest_position))


@compiled
def spring_energy(chain: Chain, q: Position) -> Float[Array, ""]:
    """Energy stored in the joint springs, sum_i k_i (q_i - q_rest,i)^2 / 2 [J]."""
    _, x = place(chain, q)
    return 0.5 * (chain.springs.stiffness * (x - chain.springs.rest_position) ** 2).sum()


@compiled
def resistive_force(chain: Chain, q: Position, qd: Velocity) -> Force:
    """Torques that drives must supply against friction and springs: friction_force + spring_force, O(n) [N m or N].

    The equation of motion is M qdd + C qd + g + resistive_force = tau. MuJoCo's `qfrc_passive` has the opposite sign.
    """
    return friction_force(chain, qd) + spring_force(chain, q)


def resistive_force_by_lane(chain: Chain, q: PerLink, qd: PerLink) -> PerLink:
    """`resistive_force` of a chain with ordinary joints, for use inside functions decorated with `by_batch`."""
    parts = chain.friction, chain.springs
    force = lambda parts, q, qd: resistive_force(dataclasses.replace(chain, friction=parts[0], springs=parts[1]), q, qd)
    if not lane_shape():
        return force(parts, q, qd)
    axes = jax.tree.map(lambda x: -1 if x.ndim == 2 else None, parts)
    return jax.vmap(force, (axes, -1, -1), -1)(parts, q, qd)

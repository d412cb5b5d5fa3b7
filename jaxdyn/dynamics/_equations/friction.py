"""Passive forces at the joints: friction (viscous, Coulomb with a smooth sign, Stribeck, a constant offset) and springs."""

from jaxtyping import Array, Float

from ...model._chain import Chain
from ...model._compiled import compiled
from .._kinematics.coordinates import generalised_force, joint_rates, place


@compiled
def friction_force(chain: Chain, qd: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """Torque that the drives spend on friction, `Friction.torque` of every joint [N m].

    Positive along positive velocity: a drive must give inverse_dynamics(...) + friction_force(...). Friction at the motors of
    a transmission comes to the joints by its ratios, R^T f_m(R qd).
    """
    rates = joint_rates(chain, qd)
    torques = chain.friction.torque(rates)
    if (motors := chain.transmission) is not None:
        torques = torques + motors.matrix.T @ motors.friction.torque(motors.matrix @ rates)
    return generalised_force(chain, torques)


@compiled
def spring_force(chain: Chain, q: Float[Array, " nq"]) -> Float[Array, " nv"]:
    """Torque that the joint springs take: k (q - q_rest), the derivative of `spring_energy` [N m].

    Positive where the joint is beyond its rest position: a drive must give it besides inverse_dynamics(...).
    """
    _, x = place(chain, q)
    return generalised_force(chain, chain.springs.stiffness * (x - chain.springs.rest_position))


@compiled
def spring_energy(chain: Chain, q: Float[Array, " nq"]) -> Float[Array, ""]:
    """Energy stored in the joint springs, sum_i k_i (q_i - q_rest,i)^2 / 2 [J]."""
    _, x = place(chain, q)
    return 0.5 * (chain.springs.stiffness * (x - chain.springs.rest_position) ** 2).sum()


@compiled
def resistive_force(chain: Chain, q: Float[Array, " nq"], qd: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """Forces that a drive must supply to overcome friction and springs: friction_force + spring_force, O(n) [N m].

    M qdd + C qd + g + resistive_force = tau. MuJoCo's `qfrc_passive`, which acts on the robot, is its negative.
    """
    return friction_force(chain, qd) + spring_force(chain, q)

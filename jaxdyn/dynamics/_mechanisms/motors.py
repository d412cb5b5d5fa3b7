"""Conversion between the motors of a transmission and a robot's generalised coordinates."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...errors import ModelError
from ...model._chain import Chain
from ...model._compiled import compiled
from .._kinematics.coordinates import generalised_force, joint_rates, joints_of


@compiled
def motor_rates(chain: Chain, qd: Float[Array, " nv"]) -> Float[Array, " m"]:
    """Speeds R S qd of the motors, where R is the transmission matrix and S the coupling matrix [rad/s].

    Without a coupling, S is the identity. For ordinary joints, pass q instead of qd to obtain the motor angles [rad], which are
    zero at zero joint positions.

    Raises:
        ModelError: the chain has no transmission.
    """
    return _matrix(chain) @ joint_rates(chain, qd)


@compiled
def joint_torques_from_motors(chain: Chain, motor_torques: Float[Array, " m"]) -> Float[Array, " nv"]:
    """Generalised forces tau = S^T R^T tau_m from motor torques, for which tau . qd equals the motors' power [N m or N].

    R is the transmission matrix, and S is the coupling matrix (the identity without a coupling). `forward_dynamics` includes
    the rotor inertias, but neither friction nor springs; to include these, pass tau - resistive_force(chain, q, qd).

    Args:
        motor_torques: torques tau_m on the rotors [N m].

    Raises:
        ModelError: the chain has no transmission.
    """
    return generalised_force(chain, _matrix(chain).T @ motor_torques)


@compiled
def motor_torques(chain: Chain, tau: Float[Array, " nv"]) -> Float[Array, " m"]:
    """Motor torques that produce the generalised forces tau, the inverse of `joint_torques_from_motors`, O(n^3) [N m].

    If there are as many motors as coordinates, tau_m = (R S)^-T tau. If there are more motors, tau_m is the minimum-norm
    solution. If there are fewer, as for a floating base, it is the least-squares solution, which is exact if tau is zero for
    coordinates without a motor. The product R S of the transmission and coupling matrices must have full rank. To obtain the
    motor torques for a given motion, pass tau = inverse_dynamics(...) + resistive_force(...), which includes the rotor
    inertias.

    Raises:
        ModelError: the chain has no transmission.
    """
    to_coordinates = joints_of(chain, _matrix(chain)).T
    nv, m = to_coordinates.shape
    if nv == m:
        return jnp.linalg.solve(to_coordinates, tau)
    if nv > m:
        return jnp.linalg.solve(to_coordinates.T @ to_coordinates, to_coordinates.T @ tau)
    return to_coordinates.T @ jnp.linalg.solve(to_coordinates @ to_coordinates.T, tau)


def _matrix(chain: Chain) -> Float[Array, "m n"]:
    if chain.transmission is None:
        raise ModelError("the chain has no transmission and therefore no motors; use with_transmission to add one")
    return chain.transmission.matrix

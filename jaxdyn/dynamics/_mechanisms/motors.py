"""Conversion between the motors of a transmission and a robot's generalised coordinates."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...errors import ModelError
from ...model._chain import Chain
from ...model._compiled import compiled
from .._kinematics.coordinates import generalised_force, joint_rates, joints_of


@compiled
def motor_rates(chain: Chain, qd: Float[Array, " nv"]) -> Float[Array, " m"]:
    """Speeds of the motors: R S qd, with R the transmission's matrix and S the coupling's (1 without one) [rad/s].

    For plain joints they are also the motors' angles, counted from the joints' zero: pass q.

    Raises:
        ModelError: the chain has no transmission.
    """
    return _matrix(chain) @ joint_rates(chain, qd)


@compiled
def joint_torques_from_motors(chain: Chain, motor_torques: Float[Array, " m"]) -> Float[Array, " nv"]:
    """Forces on the coordinates from torques of the motors: tau = S^T R^T tau_m, by equal power, tau . qd = tau_m . qd_m.

    For `forward_dynamics`, which includes the rotors' inertia, subtract friction: tau - resistive_force(chain, q, qd).

    Args:
        motor_torques: torques on the rotors [N m].

    Raises:
        ModelError: the chain has no transmission.
    """
    return generalised_force(chain, _matrix(chain).T @ motor_torques)


@compiled
def motor_torques(chain: Chain, tau: Float[Array, " nv"]) -> Float[Array, " m"]:
    """Motor torques that produce the forces tau on the coordinates: the inverse of `joint_torques_from_motors` [N m].

    With as many motors as coordinates tau_m = (R S)^-T tau. With more motors, the minimum-norm torques; with fewer (a
    floating base), the least-squares ones, exact if tau is zero on coordinates without a motor. R S must have full
    rank; O(n^3). For a given motion, pass tau = inverse_dynamics(...) + resistive_force(...), which includes the
    rotors' inertia.

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
        raise ModelError("the chain has no transmission, so that no motors are known: see with_transmission")
    return chain.transmission.matrix

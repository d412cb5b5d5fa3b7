"""Regressors of joint drives, motors of transmissions, and springs."""

from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...errors import ModelError
from ...model._chain import Chain
from ...model._compiled import compiled
from .._kinematics.coordinates import generalised_force, joint_rates, place

DriveTerm = Literal["armature", "viscous", "coulomb", "offset"]
DRIVE_LEAVES: dict[str, str] = {
    "armature": "armature",
    "viscous": "friction.viscous",
    "coulomb": "friction.coulomb",
    "offset": "friction.offset",
}
MotorTerm = Literal["inertia", "viscous", "coulomb"]
MOTOR_LEAVES: dict[str, str] = {
    "inertia": "transmission.rotor_inertia",
    "viscous": "transmission.friction.viscous",
    "coulomb": "transmission.friction.coulomb",
}


@compiled
def drive_regressor(
    chain: Chain,
    qd: Float[Array, " nv"],
    qdd: Float[Array, " nv"],
    terms: tuple[DriveTerm, ...] = ("armature", "viscous", "coulomb", "offset"),
) -> Float[Array, "nv m"]:
    """Regressor of the drives of all joints; of its n len(terms) columns, column len(terms) j + k belongs to term k of joint j.

    The entries for joint j are

    - qdd_j for armature,
    - qd_j for viscous friction,
    - tanh(qd_j / v_c) for Coulomb friction, where v_c is the chain's `friction.coulomb_velocity`,
    - 1 for the offset.

    Multiplied by the parameters (armature, fv, fc, offset) of every joint, the regressor yields the torques armature * qdd +
    friction_force(chain, qd) [N m or N]. Stribeck friction has no column, since it is nonlinear in its width parameter. For the
    motors of a transmission, see `motor_regressor`.

    Raises:
        ModelError: a term is unknown.
    """
    qd, qdd = joint_rates(chain, qd), joint_rates(chain, qdd)
    columns = {
        "armature": qdd,
        "viscous": qd,
        "coulomb": chain.friction.sign(qd),
        "offset": jnp.ones_like(qd),
    }
    unknown = [t for t in terms if t not in columns]
    if unknown:
        raise ModelError(f"unknown drive term {unknown[0]!r}; the terms are {', '.join(columns)}")
    if not terms:
        return jnp.zeros((chain.nv, 0), qd.dtype)
    values = jnp.stack([columns[t] for t in terms], axis=1)  # (n, len(terms))
    by_joint = jnp.eye(chain.n, dtype=values.dtype)[:, :, None] * values[None]
    return generalised_force(chain, by_joint.reshape(chain.n, -1))


@compiled
def motor_regressor(
    chain: Chain,
    qd: Float[Array, " nv"],
    qdd: Float[Array, " nv"],
    terms: tuple[MotorTerm, ...] = ("inertia", "viscous", "coulomb"),
) -> Float[Array, "nv m"]:
    """Regressor of the motors of a transmission; column len(terms) k + i belongs to term i of motor k.

    The motors turn at the rates w = R S qd, where R is the transmission matrix and S the coupling matrix. The columns of motor
    k are (R S)_k^T x_k, where x is dw/dt for the rotor inertia J, w for viscous friction B, and tanh(w / v_c) for Coulomb
    friction F_c. Multiplied by the parameters (J, B, F_c) of every motor, the regressor yields the torques [N m or N] that
    rotors add to inverse_dynamics and that motor friction adds to friction_force. For example,

        inverse_dynamics = regressor pi + drive_regressor(.., ("armature",)) armature + motor_regressor(.., ("inertia",)) J.

    Raises:
        ModelError: the chain has no transmission, or a term is unknown.
    """
    if chain.transmission is None:
        raise ModelError("the chain has no transmission and therefore no motors; use with_transmission to add one")
    if unknown := [t for t in terms if t not in MOTOR_LEAVES]:
        raise ModelError(f"unknown motor term {unknown[0]!r}; the terms are {', '.join(MOTOR_LEAVES)}")
    ratios = chain.transmission.matrix
    rates, accelerations = ratios @ joint_rates(chain, qd), ratios @ joint_rates(chain, qdd)
    columns = {"inertia": accelerations, "viscous": rates, "coulomb": chain.transmission.friction.sign(rates)}
    if not terms:
        return jnp.zeros((chain.nv, 0), qd.dtype)
    values = jnp.stack([columns[t] for t in terms], axis=1)  # (motors, len(terms))
    by_joint = ratios.T[:, :, None] * values[None]
    return generalised_force(chain, by_joint.reshape(chain.n, -1))


@compiled
def spring_regressor(chain: Chain, q: Float[Array, " nq"]) -> Float[Array, "nv n"]:
    """Regressor of the joint stiffnesses: spring_regressor(chain, q) @ chain.springs.stiffness = spring_force(chain, q).

    Without coupled joints, the regressor is the diagonal matrix of the deflections q - q_rest [rad or m].
    """
    _, x = place(chain, q)
    return generalised_force(chain, jnp.diag(x - chain.springs.rest_position))

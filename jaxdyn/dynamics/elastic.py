"""Drives: robots with elastic joints (`ElasticJoints`), and the motors of a transmission.

The joint coordinates q and the rotor coordinates theta (rotor angles divided by the gear ratio) satisfy, with u =
gear_ratio tau_m and p = resistive_force(q, qd),

    M(q) qdd + C(q, qd) qd + g(q) + p = K (theta + rest - q) + D (thetad - qd),
    J thetadd + B thetad + K (theta + rest - q) + D (thetad - qd) = u.

K and D are the stiffness and the damping of the elastic joints; J and B are the inertia and the friction of the rotors,
reflected through the gears. Spherical and free joints, which have no drive, are rigid.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model.chain import Chain, Force, Position, Velocity, Wrenches, layout
from ..model.compiled import compiled
from ..model.drives import ElasticJoints
from .articulated_body import forward_dynamics
from .coordinates import generalised_force, joint_rates, joints_of
from .energy import total_energy
from .friction import resistive_force
from .newton_euler import inverse_dynamics


@compiled
def elastic_torque(
    chain: Chain,
    elastic: ElasticJoints,
    q: Position,
    theta: Float[Array, " m"],
    qd: Velocity,
    thetad: Float[Array, " m"],
) -> Float[Array, " m"]:
    """Torques that springs and dampers exert on the links, K (theta + rest - q) + D (thetad - qd) [N m].

    A torque sensor on the link side of the gear measures these torques.
    """
    where = layout(chain)
    twist = theta + elastic.rest - q[where.entries]
    return elastic.stiffness * twist + elastic.damping * (thetad - qd[where.columns])


@compiled
def elastic_forward_dynamics(
    chain: Chain,
    elastic: ElasticJoints,
    q: Position,
    theta: Float[Array, " m"],
    qd: Velocity,
    thetad: Float[Array, " m"],
    tau_m: Float[Array, " m"],
    external_wrenches: Wrenches | None = None,
) -> tuple[Float[Array, " nv"], Float[Array, " m"]]:
    """Accelerations of links and rotors, (qdd, thetadd), by `forward_dynamics` and one division, O(n).

    The equations are those of Spong's model (Spong 1987; Spong, Hutchinson & Vidyasagar 2020, example 6.2), with
    `resistive_force`; only `elastic_torque` couples links and rotors. The result equals that of
    forward_dynamics(elastic_chain(chain, elastic), ...) with passive forces subtracted from the torques.

    Args:
        tau_m: motor torques on the rotor shafts, before the gears [N m].
        external_wrenches: wrenches (n, f) that act *on* each link, in the link's frame [N m, N].
    """
    torque = elastic_torque(chain, elastic, q, theta, qd, thetad)
    applied = jnp.zeros_like(qd).at[layout(chain).columns].set(torque, unique_indices=True)
    qdd = forward_dynamics(chain, q, qd, applied - resistive_force(chain, q, qd), external_wrenches)
    driven = elastic.gear_ratio * tau_m - elastic.reflected_friction * thetad
    return qdd, (driven - torque) / elastic.reflected_inertia


@compiled
def elastic_inverse_dynamics(
    chain: Chain,
    elastic: ElasticJoints,
    q: Float[Array, " n"],
    qd: Float[Array, " n"],
    qdd: Float[Array, " n"],
    jerk: Float[Array, " n"],
    snap: Float[Array, " n"],
) -> tuple[Float[Array, " n"], Float[Array, " n"], Float[Array, " n"], Float[Array, " n"]]:
    """Rotor motion and motor torques (theta, thetad, thetadd, tau_m) for a given link motion, without spring damping.

    The springs must transmit f(t) = inverse_dynamics + resistive_force along q(t). Hence theta = q - rest + f / K, and

        gear_ratio tau_m = J (qdd + fdd / K) + B thetad + f.

    The time derivatives of f are computed exactly, from jerk and snap, the third and fourth time derivatives of q
    [rad/s^3, rad/s^4]; the cost is about four times that of inverse dynamics.

    Raises:
        ModelError: the chain has spherical or free joints, which have no drive.
        RuntimeError: a spring has damping, so theta is the solution of a differential equation instead of a function of
            the link motion at one time. The error is also raised under `jax.jit`, by `equinox.error_if`.
    """
    if chain.topology.has_curved_joints:
        raise ModelError("elastic_inverse_dynamics does not support spherical or free joints, which have no motors")
    stiffness = eqx.error_if(
        elastic.stiffness,
        elastic.damping != 0,
        "elastic_inverse_dynamics requires springs without damping: with damping, the link motion at one time does not "
        "determine the rotor motion",
    )

    def carried(x, xd, xdd):
        return inverse_dynamics(chain, x, xd, xdd) + resistive_force(chain, x, xd)

    def rate(x, xd, xdd, xddd):
        return jax.jvp(carried, (x, xd, xdd), (xd, xdd, xddd))

    (f, fd), (_, fdd) = jax.jvp(rate, (q, qd, qdd, jerk), (qd, qdd, jerk, snap))
    theta, thetad, thetadd = q - elastic.rest + f / stiffness, qd + fd / stiffness, qdd + fdd / stiffness
    needed = elastic.reflected_inertia * thetadd + elastic.reflected_friction * thetad + f
    return theta, thetad, thetadd, needed / elastic.gear_ratio


@compiled
def elastic_energy(
    chain: Chain,
    elastic: ElasticJoints,
    q: Position,
    theta: Float[Array, " m"],
    qd: Velocity,
    thetad: Float[Array, " m"],
) -> Float[Array, ""]:
    """Total energy of links, rotors and springs, O(n) [J].

    E = total_energy(chain, q, qd) + thetad^T J thetad / 2 + d^T K d / 2 with the deflection d = theta + rest - q. dE/dt
    is the motor power tau_m . (gear_ratio thetad) minus the power dissipated by damping and friction.
    """
    twist = theta + elastic.rest - q[layout(chain).entries]
    rotors = (elastic.reflected_inertia * thetad**2).sum() + (elastic.stiffness * twist**2).sum()
    return total_energy(chain, q, qd) + 0.5 * rotors


@compiled
def motor_rates(chain: Chain, qd: Velocity) -> Float[Array, " m"]:
    """Speeds R S qd of the motors, where R is the transmission matrix and S the coupling matrix [rad/s].

    For ordinary joints, pass q instead of qd to obtain the motor angles [rad], which are zero at zero joint positions.

    Raises:
        ModelError: the chain has no transmission.
    """
    return _matrix(chain) @ joint_rates(chain, qd)


@compiled
def joint_torques_from_motors(chain: Chain, motor_torques: Float[Array, " m"]) -> Force:
    """Generalised forces tau = S^T R^T tau_m from motor torques, for which tau . qd equals the motors' power [N m or N].

    R is the transmission matrix, and S is the coupling matrix. `forward_dynamics` includes the rotor inertias, but
    neither friction nor springs; to include these, pass tau - resistive_force(chain, q, qd).

    Raises:
        ModelError: the chain has no transmission.
    """
    return generalised_force(chain, _matrix(chain).T @ motor_torques)


@compiled
def motor_torques(chain: Chain, tau: Force) -> Float[Array, " m"]:
    """Motor torques that produce the generalised forces tau, the inverse of `joint_torques_from_motors`, O(n^3) [N m].

    With as many motors as coordinates, tau_m = (R S)^-T tau. With more motors, tau_m is the minimum-norm solution; with
    fewer, as for a floating base, the least-squares solution, which is exact if tau is zero for coordinates without a
    motor. R S must have full rank. For a given motion, pass tau = inverse_dynamics(...) + resistive_force(...), which
    includes the rotor inertias.

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

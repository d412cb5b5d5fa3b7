"""Control in joint space: references and gains, gravity compensation, PD control, and computed torque.

A gain is a scalar, one value per joint (per direction of a task), or a matrix; other shapes raise a `ControlError`.
States (q, qd) are the measured ones.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..dynamics import gravity_force, inverse_dynamics, resistive_force, spring_force
from ..errors import ControlError
from ..model.chain import Chain, Force, Position, Velocity
from ..model.compiled import checked, compiled
from ..model.configuration import difference, integrate

Gain = float | Float[Array, "..."]
Scalar = float | Float[Array, ""]


class JointReference(NamedTuple):
    """The desired motion of the joints at one instant: positions, velocities and accelerations."""

    q: Float[Array, " nq"]
    qd: Float[Array, " nv"]
    qdd: Float[Array, " nv"]


class TaskReference(NamedTuple):
    """The desired motion of a frame at one instant, in mixed coordinates (world axes at the frame's origin).

    Attributes:
        pose: pose T of the frame in the world [m].
        twist: angular velocity w and velocity v of the frame's origin [rad/s, m/s].
        acceleration: time derivatives of w and v [rad/s^2, m/s^2].
    """

    pose: Float[Array, "4 4"]
    twist: Float[Array, "6"]
    acceleration: Float[Array, "6"]


@checked
def hold_configuration(chain: Chain, q: Position) -> JointReference:
    """A reference that holds the joints at q [rad or m]."""
    still = jnp.zeros(chain.nv, q.dtype)
    return JointReference(q, still, still)


@checked
def hold_pose(pose: Float[Array, "4 4"]) -> TaskReference:
    """A reference that holds the frame at a pose in the world [m]."""
    still = jnp.zeros(6, pose.dtype)
    return TaskReference(pose, still, still)


def apply_gain(name: str, gain: Gain, x: Float[Array, " k"]) -> Float[Array, " k"]:
    """The product K x for a gain K that is a scalar, one value per component, or a matrix."""
    k = jnp.asarray(gain, x.dtype) if isinstance(gain, (int, float)) else jnp.asarray(gain)
    if k.shape not in ((), x.shape, 2 * x.shape):
        size = x.shape[0]
        raise ControlError(f"{name} has shape {k.shape}; pass a scalar, {size} values or a {size}x{size} matrix")
    return k @ x if k.ndim == 2 else k * x


def spread_gain(gain: Gain, like: Float[Array, "..."]) -> Float[Array, "..."]:
    """A gain given as a scalar or one value per entry of `like`, as an array of that shape."""
    return jnp.broadcast_to(jnp.asarray(gain, like.dtype), like.shape)


def error_rate(chain: Chain, q: Position, qd: Velocity, q_d: Position, qd_d: Velocity) -> Velocity:
    """The time derivative of difference(chain, q, q_d); qd_d - qd for ordinary joints."""
    if not chain.topology.has_curved_joints:
        return qd_d - qd
    time = jnp.zeros((), qd.dtype)
    moving = lambda t: difference(chain, integrate(chain, q, t * qd), integrate(chain, q_d, t * qd_d))
    return jax.jvp(moving, (time,), (jnp.ones_like(time),))[1]


@compiled
def gravity_compensation(chain: Chain, q: Position, qd: Velocity, damping: Gain = 0.0) -> Force:
    """Gravity compensation with optional damping: tau = g(q) + k(q) - D qd [N m or N].

    The robot can be guided by hand, and comes to rest if D is positive definite. Its kinetic energy K satisfies
    dK/dt = -qd . D qd - qd . f + qd . tau_ext, with the friction f and the external torques, so the robot is passive
    for every positive semidefinite D [N m s/rad or N s/m]. Gravity g and spring torques k are compensated; friction is
    not.
    """
    return gravity_force(chain, q) + spring_force(chain, q) - apply_gain("damping", damping, qd)


@compiled
def pd_gravity_control(chain: Chain, q: Position, qd: Velocity, goal: Position, kp: Gain, kd: Gain) -> Force:
    """PD control with gravity compensation about a goal (Takegaki & Arimoto 1981): tau = g(q) + k(q) + Kp e - Kd qd [N m or N].

    Here e = difference(q, goal), Kp is in [N m/rad or N/m], and Kd in [N m s/rad or N s/m]. The function V = K(q, qd) +
    e . Kp e / 2, where K is the kinetic energy, never increases: dV/dt is -qd . Kd qd minus the power dissipated by
    friction. By LaSalle's theorem, the goal is globally asymptotically stable for any masses if Kp and Kd are positive
    definite and gravity is compensated exactly. The gains of a quaternion joint must be equal in all directions.
    """
    error = apply_gain("kp", kp, difference(chain, q, goal))
    return gravity_compensation(chain, q, qd, kd) + error


class ErrorIntegral(NamedTuple):
    """The time integral of the position error, for integral action [rad s or m s]."""

    value: Float[Array, " nv"]

    def update(
        self, chain: Chain, q: Position, reference: JointReference, dt: Scalar, limit: Gain = float("inf")
    ) -> "ErrorIntegral":
        """The integral after a time step dt [s], clamped to +-limit [rad s or m s] to prevent windup."""
        value = self.value + dt * difference(chain, q, reference.q)
        bound = spread_gain(limit, value)
        return ErrorIntegral(jnp.clip(value, -bound, bound))


@compiled
def computed_torque(
    chain: Chain,
    q: Position,
    qd: Velocity,
    reference: JointReference,
    kp: Gain,
    kd: Gain,
    integral: ErrorIntegral | None = None,
    ki: Gain = 0.0,
) -> Force:
    """Computed-torque control [N m or N]: tau = M (qdd_d + Kd de/dt + Kp e + Ki int e) + C qd + g + k + f, O(n).

    The position error is e = difference(q, q_d). With an exact model, this error satisfies
    e'' + Kd e' + Kp e + Ki int e = 0. Diagonal gains decouple the joints; without integral action, the error is
    critically damped for Kd = 2 sqrt(Kp) (Lynch & Park 2017, sec. 11.4). With an inexact model, the right-hand side is
    M^-1 times the torque error of the model.

    To disable the compensation of the friction f, for example because measured velocities at rest are noisy, pass a
    chain without friction.

    Args:
        kp: position gain [1/s^2].
        kd: velocity gain [1/s].
        integral: integral of the error up to this time; None for control without integral action.
        ki: integral gain [1/s^3].
    """
    wanted = reference.qdd + apply_gain("kd", kd, error_rate(chain, q, qd, reference.q, reference.qd))
    wanted = wanted + apply_gain("kp", kp, difference(chain, q, reference.q))
    if integral is not None:
        wanted = wanted + apply_gain("ki", ki, integral.value)
    return inverse_dynamics(chain, q, qd, wanted) + resistive_force(chain, q, qd)

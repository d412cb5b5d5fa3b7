"""Computed-torque control: the model cancels the nonlinear dynamics, and the tracking error obeys a linear equation."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..dynamics import inverse_dynamics, resistive_force
from ..model._chain import Chain
from ..model._compiled import compiled
from ..model._configuration import difference
from ._reference import Gain, JointReference, apply_gain, error_rate


class ErrorIntegral(NamedTuple):
    """The integral of the position error, for integral action.

    Attributes:
        value: time integral of the position error [rad s or m s].
    """

    value: Float[Array, " nv"]

    def update(
        self,
        chain: Chain,
        q: Float[Array, " nq"],
        reference: JointReference,
        dt: float | Float[Array, ""],
        limit: Gain = float("inf"),
    ) -> "ErrorIntegral":
        """The integral after a time step dt [s], clamped to +-limit [rad s or m s] to prevent windup."""
        value = self.value + dt * difference(chain, q, reference.q)
        bound = jnp.broadcast_to(jnp.asarray(limit, value.dtype), value.shape)
        return ErrorIntegral(jnp.clip(value, -bound, bound))


@compiled
def computed_torque(
    chain: Chain,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    reference: JointReference,
    kp: Gain,
    kd: Gain,
    integral: ErrorIntegral | None = None,
    ki: Gain = 0.0,
) -> Float[Array, " nv"]:
    """Computed-torque control [N m or N]: tau = M (a_d + Kd de/dt + Kp e + Ki int e) + C v + g + k + f, O(n).

    The position error is e = difference(q, q_d). With an exact model, this error satisfies e'' + Kd e' + Kp e + Ki int e = 0.
    Diagonal gains decouple the joints; without integral action, the error is critically damped for Kd = 2 sqrt(Kp) (Lynch &
    Park 2017, sec. 11.4). With an inexact model, the right-hand side is M^-1 times the torque error of the model.

    The spring torques k and the friction torques f are those of the chain in the measured state. To disable friction
    compensation, for example because the measured velocity at rest is noisy, pass a chain without friction.

    Args:
        q: measured positions [rad or m].
        v: measured velocities [rad/s or m/s].
        reference: desired motion.
        kp: position gain [1/s^2], given as a scalar, one value per joint, or a matrix.
        kd: velocity gain [1/s], given as a scalar, one value per joint, or a matrix.
        integral: integral of the error up to this time; None for control without integral action.
        ki: integral gain [1/s^3], given as a scalar, one value per joint, or a matrix.

    Raises:
        ControlError: a gain has the wrong shape.
    """
    wanted = reference.a + apply_gain("kd", kd, error_rate(chain, q, v, reference.q, reference.v))
    wanted = wanted + apply_gain("kp", kp, difference(chain, q, reference.q))
    if integral is not None:
        wanted = wanted + apply_gain("ki", ki, integral.value)
    return inverse_dynamics(chain, q, v, wanted) + resistive_force(chain, q, v)

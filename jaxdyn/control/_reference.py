"""Controller inputs: the desired motion of joints or of a frame, gains, and errors."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import ControlError
from ..model._chain import Chain
from ..model._compiled import checked
from ..model._configuration import difference, integrate

Gain = float | Float[Array, "..."]


class JointReference(NamedTuple):
    """The desired motion of the joints at one instant.

    Attributes:
        q: positions [rad or m].
        v: velocities [rad/s or m/s].
        a: accelerations [rad/s^2 or m/s^2].
    """

    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    a: Float[Array, " nv"]


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
def hold_configuration(chain: Chain, q: Float[Array, " nq"]) -> JointReference:
    """A reference that holds the joints at q [rad or m]."""
    still = jnp.zeros(chain.nv, q.dtype)
    return JointReference(q, still, still)


@checked
def hold_pose(pose: Float[Array, "4 4"]) -> TaskReference:
    """A reference that holds the frame at a pose in the world [m]."""
    still = jnp.zeros(6, pose.dtype)
    return TaskReference(pose, still, still)


def apply_gain(name: str, gain: Gain, x: Float[Array, " k"]) -> Float[Array, " k"]:
    """The product K x for a gain K that is a scalar, one value per component, or a matrix.

    Raises:
        ControlError: the gain has the wrong shape.
    """
    k = jnp.asarray(gain, x.dtype) if isinstance(gain, (int, float)) else jnp.asarray(gain)
    if k.shape not in ((), x.shape, 2 * x.shape):
        size = x.shape[0]
        raise ControlError(f"{name} has shape {k.shape}; pass a scalar, {size} values or a {size}x{size} matrix")
    return k @ x if k.ndim == 2 else k * x


def gain_matrix(name: str, gain: Gain, like: Float[Array, " k"]) -> Float[Array, "k k"]:
    """Convert a gain to a matrix; the errors are the same as for `apply_gain`."""
    return jax.vmap(lambda column: apply_gain(name, gain, column), out_axes=1)(jnp.eye(like.shape[0], dtype=like.dtype))


def error_rate(
    chain: Chain,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    q_d: Float[Array, " nq"],
    v_d: Float[Array, " nv"],
) -> Float[Array, " nv"]:
    """The time derivative of difference(chain, q, q_d) at the velocities v of q and v_d of q_d; v_d - v for ordinary joints."""
    if not chain.topology.quaternion_joints:
        return v_d - v
    time = jnp.zeros((), v.dtype)
    moving = lambda t: difference(chain, integrate(chain, q, t * v), integrate(chain, q_d, t * v_d))
    return jax.jvp(moving, (time,), (jnp.ones_like(time),))[1]

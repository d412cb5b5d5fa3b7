"""Point-to-point motions: a path s -> q(s) or s -> T(s), and a time scaling t -> s(t) (Lynch & Park 2017, ch. 9).

A time scaling is a function s = sigma(u) of the elapsed fraction u = t / T of the duration T, with sigma(0) = 0 and sigma(1)
= 1. JAX computes its derivatives, so any user-defined function works.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...errors import TrajectoryError
from ...model._chain import Chain
from ...model._compiled import checked
from ...model._configuration import difference, integrate
from ...spatial.se3 import pose, pose_exp, pose_inverse, pose_log
from ...spatial.so3 import rotation_exp, rotation_log
from .path import Path, joint_limits, path_dynamics, with_derivatives

Scaling = Callable[[Array], Array]
Duration = float | Float[Array, ""]


class JointMotion(NamedTuple):
    """A motion in joint space, one row per time.

    Attributes:
        q: positions [rad or m].
        qd: velocities [rad/s or m/s].
        qdd: accelerations [rad/s^2 or m/s^2].
    """

    q: Float[Array, "times nq"]
    qd: Float[Array, "times nv"]
    qdd: Float[Array, "times nv"]


class PoseMotion(NamedTuple):
    """The motion of a frame, one row per time.

    Attributes:
        pose: T in the world [m].
        twist: (w, v) in the axes of the moving frame, where v is the velocity of the frame's origin [rad/s, m/s].
        acceleration: d twist / dt, component by component [rad/s^2, m/s^2].
    """

    pose: Float[Array, "times 4 4"]
    twist: Float[Array, "times 6"]
    acceleration: Float[Array, "times 6"]


def cubic_scaling(u: Float[Array, ""]) -> Float[Array, ""]:
    """Cubic time scaling 3 u^2 - 2 u^3: at rest at both ends, where the acceleration is discontinuous.

    For T = 1, the largest speed is 3/2, and the largest acceleration is 6.
    """
    return u * u * (3 - 2 * u)


def quintic_scaling(u: Float[Array, ""]) -> Float[Array, ""]:
    """Quintic time scaling 10 u^3 - 15 u^4 + 6 u^5: at rest with zero acceleration at both ends.

    For T = 1, the largest speed is 15/8, and the largest acceleration is 10/sqrt(3).
    """
    return u * u * u * (10 + u * (6 * u - 15))


def trapezoidal_scaling(u: Float[Array, ""], ramp: float | Float[Array, ""] = 1 / 3) -> Float[Array, ""]:
    """Trapezoidal time scaling: phases of constant acceleration, constant speed, and constant deceleration.

    For T = 1, the largest speed is 1 / (1 - ramp), and the acceleration in the outer phases is 1 / (ramp (1 - ramp)).

    Args:
        ramp: duration of each outer phase as a fraction of T, above 0 and up to 1/2. With 1/2, the speed profile is triangular
            ("bang-bang" acceleration), which is the fastest under an acceleration limit alone. To choose another ramp, pass,
            for example, `functools.partial(trapezoidal_scaling, ramp=0.2)` as the time scaling.

    Raises:
        TrajectoryError: `ramp` is 0 or less, or greater than 1/2.
    """
    if isinstance(ramp, float) and not 0 < ramp <= 0.5:
        raise TrajectoryError(f"the ramp of a trapezoidal scaling must be above 0 and at most 0.5, not {ramp:g}")
    ramp = jnp.asarray(ramp, u.dtype)
    speed = 1 / (1 - ramp)
    up, down = speed * u * u / (2 * ramp), 1 - speed * (1 - u) ** 2 / (2 * ramp)
    return jnp.where(u < ramp, up, jnp.where(u > 1 - ramp, down, speed * (u - ramp / 2)))


@checked
def shortest_trapezoid(
    distance: Float[Array, " nv"], speed: Float[Array, " nv"], acceleration: Float[Array, " nv"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Duration T and ramp of the fastest trapezoidal motion along a straight line in joint space, in closed form.

    The limits of all joints imply |s'| <= v = min(speed / |distance|) and |s''| <= a = min(acceleration / |distance|). If v^2 <
    a, the motion reaches the speed limit, with T = 1/v + v/a and ramp v / (a T). Otherwise, T = 2 / sqrt(a), and the ramp is
    1/2 (Lynch & Park 2017, sec. 9.2.2).

    Args:
        distance: q_1 - q_0 [rad or m].
        speed: largest |qd| of each joint [rad/s or m/s]; may be infinite.
        acceleration: largest |qdd| of each joint [rad/s^2 or m/s^2]; finite.

    Returns:
        The duration T [s] and the ramp; 0 and 1/2 if all distances are zero.
    """
    size = jnp.abs(distance)
    moves = size > 0
    safe = jnp.where(moves, size, jnp.ones_like(size))
    v = jnp.where(moves, speed / safe, jnp.inf).min()
    a = jnp.where(moves, acceleration / safe, jnp.inf).min()
    anywhere = moves.any()
    a = jnp.where(anywhere, a, jnp.ones_like(a))
    cruises = v * v < a
    slow = jnp.where(cruises, v, jnp.ones_like(v))
    total = jnp.where(cruises, 1 / slow + slow / a, 2 / jnp.sqrt(a))
    ramp = jnp.where(cruises, slow / (a * total), 0.5)
    return jnp.where(anywhere, total, jnp.zeros_like(total)), ramp


@checked
def scaled_time(
    scaling: Scaling, duration: Duration, t: Float[Array, " times"]
) -> tuple[Float[Array, " times"], Float[Array, " times"], Float[Array, " times"]]:
    """The path parameter s, ds/dt [1/s] and d2s/dt2 [1/s^2] at times t [s], at rest outside the interval [0, duration]."""
    duration = jnp.asarray(duration, t.dtype)
    u = t / duration
    s, sd, sdd = jax.vmap(lambda u: with_derivatives(scaling, u))(jnp.clip(u, 0, 1))
    inside = (u >= 0) & (u <= 1)
    return s, jnp.where(inside, sd / duration, 0), jnp.where(inside, sdd / duration**2, 0)


@checked
def joint_motion(
    chain: Chain,
    start: Float[Array, " nq"],
    goal: Float[Array, " nq"],
    duration: Duration,
    t: Float[Array, " times"],
    scaling: Scaling = quintic_scaling,
) -> JointMotion:
    """Motion along a straight line in joint space, q(s) = q_0 + s (q_1 - q_0), with a given time scaling s(t).

    For robots with quaternion joints, the line generalises to q(s) = integrate(chain, q_0, s difference(chain, q_0, q_1)):
    spherical joints rotate about a fixed axis, and free joints follow a screw motion.

    Args:
        start: start position q_0 [rad or m].
        goal: goal position q_1 [rad or m].
        duration: duration T [s].
        t: times [s]; before 0 and after T, the robot is at rest.
        scaling: `cubic_scaling`, `quintic_scaling`, `trapezoidal_scaling`, or a user-defined function.
    """
    way = difference(chain, start, goal)
    return JointMotion(*_along(scaling, duration, t, way, lambda x: integrate(chain, start, x)))


def _along(
    scaling: Scaling, duration: Duration, t: Array, way: Array, moved: Callable[[Array], Array]
) -> tuple[Array, Array, Array]:
    """The configurations displaced by s(t) times `way`, and the first two time derivatives of this displacement."""
    s, sd, sdd = scaled_time(scaling, duration, t)
    return jax.vmap(lambda x: moved(x * way))(s), sd[:, None] * way[None], sdd[:, None] * way[None]


@checked
def screw_motion(
    start: Float[Array, "4 4"],
    goal: Float[Array, "4 4"],
    duration: Duration,
    t: Float[Array, " times"],
    scaling: Scaling = quintic_scaling,
) -> PoseMotion:
    """Screw motion between two poses, T(s) = T_0 exp([S] s) with S = log(T_0^-1 T_1) (Lynch & Park 2017, eq. 9.6).

    `start` and `goal` are poses in the world [m]; for the other arguments, see `joint_motion`.
    """
    screw = pose_log(pose_inverse(start) @ goal)
    return PoseMotion(*_along(scaling, duration, t, screw, lambda x: start @ pose_exp(x)))


@checked
def cartesian_motion(
    start: Float[Array, "4 4"],
    goal: Float[Array, "4 4"],
    duration: Duration,
    t: Float[Array, " times"],
    scaling: Scaling = quintic_scaling,
) -> PoseMotion:
    """Motion of a frame whose origin follows a straight line while it rotates about a fixed axis, R(s) = R_0 exp([w] s).

    The translation and the rotation are independent of each other (Lynch & Park 2017, eqs. 9.7 and 9.8). `start` and `goal` are
    poses in the world [m]; for the other arguments, see `joint_motion`.
    """
    turn = rotation_log(start[:3, :3].T @ goal[:3, :3])
    way = goal[:3, 3] - start[:3, 3]

    def one(s, sd, sdd):
        r = start[:3, :3] @ rotation_exp(s * turn)
        w, v = sd * turn, sd * (r.T @ way)
        a = sdd * (r.T @ way) - jnp.cross(w, v)
        t = pose(r, start[:3, 3] + s * way)
        return PoseMotion(t, jnp.concatenate([w, v]), jnp.concatenate([sdd * turn, a]))

    return jax.vmap(one)(*scaled_time(scaling, duration, t))


@checked
def shortest_duration(
    chain: Chain,
    path: Path,
    scaling: Scaling = quintic_scaling,
    *,
    velocity_limits: Float[Array, " nv"] | None = None,
    acceleration_limits: Float[Array, " nv"] | None = None,
    torque_limits: Float[Array, "nv 2"] | None = None,
    samples: int = 201,
) -> Float[Array, ""]:
    """The shortest duration T for which a motion along a path with a given time scaling satisfies the limits.

    The path q(s) is defined for s from 0 to 1. The velocity is q' sigma' / T, and the torque is (m sigma'' + c sigma'^2) / T^2
    + g (see `path_dynamics`). Therefore, every limit at every sample bounds 1/T or 1/T^2, and the tightest bound determines T
    in closed form. Friction is ignored.

    Args:
        path: function s -> q [rad or m], differentiable by JAX: `spline_path`, `straight_path`, or a user-defined function.
        scaling: time scaling s = sigma(t / T).
        velocity_limits: largest |qd| [rad/s or m/s]; None: the chain's limits.
        acceleration_limits: largest |qdd| [rad/s^2 or m/s^2]; None: unlimited.
        torque_limits: (lower, upper) of each torque [N m or N]; None: the chain's effort limits.
        samples: number of grid points; between them, limits are exceeded by at most O(1 / samples^2) if sigma is smooth.

    Returns:
        The duration T [s]; infinite if the static torque alone exceeds its limits.

    Raises:
        TrajectoryError: limits are missing, contradictory or of the wrong shape, or the robot has quaternion joints.
    """
    velocity, acceleration, torque = joint_limits(chain, velocity_limits, acceleration_limits, torque_limits)
    u = jnp.linspace(0, 1, samples, dtype=torque.dtype)
    s, sd, sdd = scaled_time(scaling, 1.0, u)
    at = path_dynamics(chain, path, s)
    rate = jnp.abs(at.slope * sd[:, None]) / velocity[None]
    push = jnp.abs(at.slope * sdd[:, None] + at.curvature * (sd**2)[:, None]) / acceleration[None]
    effort = at.inertia * sdd[:, None] + at.centrifugal * (sd**2)[:, None]
    room = jnp.where(effort > 0, torque[None, :, 1] - at.gravity, at.gravity - torque[None, :, 0])
    size = jnp.abs(effort)
    # 1/T^2 <= room / size
    least = jnp.where(size > 0, size / jnp.where(room > 0, room, jnp.ones_like(room)), jnp.zeros_like(size))
    least = jnp.where(room > 0, least, jnp.where((size > 0) | (room < 0), jnp.inf, 0.0))
    beyond = (at.gravity > torque[None, :, 1]) | (at.gravity < torque[None, :, 0])
    square = jnp.maximum(push.max(), jnp.where(beyond.any(), jnp.inf, least.max()))
    return jnp.maximum(rate.max(), jnp.sqrt(square))

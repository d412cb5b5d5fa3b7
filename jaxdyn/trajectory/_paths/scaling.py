"""Point-to-point motions: a path s -> q(s) or s -> T(s), and a time scaling t -> s(t) (Lynch & Park 2017, ch. 9).

A scaling is a function sigma of the elapsed fraction u = t / T, with sigma(0) = 0 and sigma(1) = 1; its derivatives are taken
by JAX, so any user-defined function works.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...errors import TrajectoryError
from ...model._chain import Chain
from ...model._configuration import difference, integrate
from ...spatial.se3 import pose, pose_exp, pose_inverse, pose_log
from ...spatial.so3 import rotation_exp, rotation_log
from .path import Path, joint_limits, path_dynamics, with_derivatives

Scaling = Callable[[Array], Array]
Duration = float | Float[Array, ""]


class JointMotion(NamedTuple):
    """Rows over time.

    Attributes:
        q: positions.
        qd: velocities.
        qdd: accelerations.
    """

    q: Float[Array, "times nq"]
    qd: Float[Array, "times nv"]
    qdd: Float[Array, "times nv"]


class PoseMotion(NamedTuple):
    """Rows over time.

    Attributes:
        pose: T in the world.
        twist: (w, v) in the moving frame's axes, v of its origin [rad/s, m/s].
        acceleration: d twist / dt.
    """

    pose: Float[Array, "times 4 4"]
    twist: Float[Array, "times 6"]
    acceleration: Float[Array, "times 6"]


def cubic_scaling(u: Float[Array, ""]) -> Float[Array, ""]:
    """3 u^2 - 2 u^3: at rest at both ends, where the acceleration jumps. Largest speed 3/2, largest acceleration 6, for
    T = 1."""
    return u * u * (3 - 2 * u)


def quintic_scaling(u: Float[Array, ""]) -> Float[Array, ""]:
    """10 u^3 - 15 u^4 + 6 u^5: at rest with zero acceleration at both ends. Largest speed 15/8, largest acceleration
    10/sqrt(3)."""
    return u * u * u * (10 + u * (6 * u - 15))


def trapezoidal_scaling(u: Float[Array, ""], ramp: float | Float[Array, ""] = 1 / 3) -> Float[Array, ""]:
    """Constant acceleration, speed and deceleration: largest speed 1 / (1 - ramp), acceleration 1 / (ramp (1 - ramp)).

    Args:
        ramp: fraction of the duration of each outer part, above 0 and at most 1/2, a triangular speed profile
            ("bang-bang"), the fastest under an acceleration limit. As a scaling:
            `functools.partial(trapezoidal_scaling, ramp=0.2)`.

    Raises:
        TrajectoryError: invalid ramp.
    """
    if isinstance(ramp, float) and not 0 < ramp <= 0.5:
        raise TrajectoryError(f"the ramp of a trapezoidal scaling must be above 0 and at most 0.5, not {ramp:g}")
    ramp = jnp.asarray(ramp, u.dtype)
    speed = 1 / (1 - ramp)
    up, down = speed * u * u / (2 * ramp), 1 - speed * (1 - u) ** 2 / (2 * ramp)
    return jnp.where(u < ramp, up, jnp.where(u > 1 - ramp, down, speed * (u - ramp / 2)))


def shortest_trapezoid(
    distance: Float[Array, " nv"], speed: Float[Array, " nv"], acceleration: Float[Array, " nv"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Duration T and ramp of the fastest trapezoid along a straight line in joint space, in closed form.

    With v = min(speed / |distance|) and a = min(acceleration / |distance|) the largest rates of s: if v^2 < a the speed
    limit is reached, and T = 1/v + v/a with the ramp v / (a T); else T = 2 / sqrt(a) with the ramp 1/2 (Lynch & Park
    2017, sec. 9.2.2).

    Args:
        distance: q_1 - q_0 [rad or m].
        speed: largest |qd| of each joint; may be infinite.
        acceleration: largest |qdd|; finite.

    Returns:
        T [s] and the ramp; 0 and 1/2 for zero distance.
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


def scaled_time(
    scaling: Scaling, duration: Duration, t: Float[Array, " times"]
) -> tuple[Float[Array, " times"], Float[Array, " times"], Float[Array, " times"]]:
    """s, ds/dt and d2s/dt2 at times t; at rest before 0 and after the duration."""
    duration = jnp.asarray(duration, t.dtype)
    u = t / duration
    s, sd, sdd = jax.vmap(lambda u: with_derivatives(scaling, u))(jnp.clip(u, 0, 1))
    inside = (u >= 0) & (u <= 1)
    return s, jnp.where(inside, sd / duration, 0), jnp.where(inside, sdd / duration**2, 0)


def joint_motion(
    chain: Chain,
    start: Float[Array, " nq"],
    goal: Float[Array, " nq"],
    duration: Duration,
    t: Float[Array, " times"],
    scaling: Scaling = quintic_scaling,
) -> JointMotion:
    """The straight line in joint space, q(s) = q_0 + s (q_1 - q_0), under a time scaling.

    Quaternion joints rotate about one axis, integrate(chain, q_0, s difference(chain, q_0, q_1)), a free joint by a screw.

    Args:
        duration: T [s].
        t: times [s]; outside [0, T] the motion rests at its ends.
        scaling: `cubic_scaling`, `quintic_scaling`, `trapezoidal_scaling`, or a user-defined function.
    """
    way = difference(chain, start, goal)
    return JointMotion(*_along(scaling, duration, t, way, lambda x: integrate(chain, start, x)))


def _along(
    scaling: Scaling, duration: Duration, t: Array, way: Array, moved: Callable[[Array], Array]
) -> tuple[Array, Array, Array]:
    """Configurations and rates at displacements s way."""
    s, sd, sdd = scaled_time(scaling, duration, t)
    return jax.vmap(lambda x: moved(x * way))(s), sd[:, None] * way[None], sdd[:, None] * way[None]


def screw_motion(
    start: Float[Array, "4 4"],
    goal: Float[Array, "4 4"],
    duration: Duration,
    t: Float[Array, " times"],
    scaling: Scaling = quintic_scaling,
) -> PoseMotion:
    """One screw from pose to pose, T(s) = T_0 exp([S] s) with S = log(T_0^-1 T_1) (Lynch & Park 2017, eq. 9.6).

    Arguments as for `joint_motion`.
    """
    screw = pose_log(pose_inverse(start) @ goal)
    return PoseMotion(*_along(scaling, duration, t, screw, lambda x: start @ pose_exp(x)))


def cartesian_motion(
    start: Float[Array, "4 4"],
    goal: Float[Array, "4 4"],
    duration: Duration,
    t: Float[Array, " times"],
    scaling: Scaling = quintic_scaling,
) -> PoseMotion:
    """A straight line of the origin and, separately, one rotation, R(s) = R_0 exp([w] s) (Lynch & Park 2017, eqs. 9.7, 9.8).

    Arguments as for `joint_motion`.
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
    """The smallest T for which a path q(s), s from 0 to 1, under a time scaling satisfies the limits, in closed form.

    With u = t / T the velocity is q' sigma' / T and the torque (m sigma'' + c sigma'^2) / T^2 + g (`path_dynamics`):
    every limit at every sample bounds 1/T or 1/T^2, and the tightest bound gives T. Friction is ignored.

    Args:
        path: s -> q, differentiable by JAX: `spline_path`, `straight_path`, or a user-defined function.
        velocity_limits: largest |qd|; the chain's own if None.
        acceleration_limits: largest |qdd|; none if None.
        torque_limits: (lower, upper) of each torque [N m]; the chain's effort limits if None.
        samples: grid points; between them, limits are exceeded by at most the square of the spacing, for smooth sigma.

    Returns:
        T [s]; infinite if the static torque alone exceeds its limits.

    Raises:
        TrajectoryError: missing limits, or wrong shapes.
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

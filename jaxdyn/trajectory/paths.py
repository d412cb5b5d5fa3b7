"""Paths and their timing: point-to-point motions, time scalings, and time-optimal motion along a given path.

A path is a function s -> q(s), s from 0 to 1. A time scaling is a function s = sigma(u) of the elapsed fraction u = t / T of
the duration T, with sigma(0) = 0 and sigma(1) = 1; JAX computes its derivatives (Lynch & Park 2017, ch. 9).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._jax_compat import Tracer
from ..dynamics import friction_force, inverse_dynamics, spring_force
from ..errors import TrajectoryError
from ..model.chain import Chain, is_ordinary
from ..model.compiled import checked
from ..model.configuration import difference, integrate
from ..spatial.se3 import pose, pose_exp, pose_inverse, pose_log
from ..spatial.so3 import rotation_exp, rotation_log
from .constraints import torque_limits
from .costs import as_floats
from .problem import Status, status_message

Path = Callable[[Array], Array]  # s () -> q (nq,)


class SplinePath(eqx.Module):
    """A cubic spline s -> q: `knots` from 0 to 1, and coefficients of 1, h, h^2 and h^3 with h = s - knot for every piece."""

    knots: Float[Array, " k"]
    coefficients: Float[Array, "pieces 4 n"]

    def __call__(self, s: Float[Array, ""]) -> Float[Array, " n"]:
        """Position q(s) [rad or m]; beyond the ends, the first and last pieces are extrapolated."""
        piece = jnp.clip(jnp.searchsorted(self.knots, s, side="right") - 1, 0, len(self.knots) - 2)
        a, b, c, d = self.coefficients[piece]
        h = s - self.knots[piece]
        return a + h * (b + h * (c + h * d))


@checked
def spline_path(
    waypoints: Float[Array, "k n"], knots: Float[Array, " k"] | Sequence[float | int] | None = None
) -> SplinePath:
    """The natural cubic spline through waypoints, with q'' continuous everywhere and zero at both ends.

    The second derivatives at the knots solve a tridiagonal system (de Boor 2001, ch. IV). Differentiable by the waypoints.

    Args:
        knots: s at the waypoints, increasing from 0 to 1; None: spaced by the square root of the distance between waypoints
            (centripetal parametrisation, Lee 1989), to avoid overshoot between close waypoints.

    Raises:
        TrajectoryError: there are fewer than two waypoints, successive waypoints are equal (with the default knots), or
            the knots have the wrong shape or do not increase from 0 to 1.
    """
    points = jnp.asarray(waypoints)
    if len(points) < 2:
        raise TrajectoryError(f"a path needs at least two waypoints; got {len(points)}")
    if knots is None:
        steps = jnp.sqrt(jnp.sqrt(((points[1:] - points[:-1]) ** 2).sum(1)))
        if not isinstance(steps, Tracer) and not np.all(np.asarray(steps) > 0):
            k = int(np.flatnonzero(~(np.asarray(steps) > 0))[0])
            raise TrajectoryError(f"waypoints {k} and {k + 1} are equal or not finite; remove or correct one")
        where = jnp.concatenate([jnp.zeros(1, points.dtype), jnp.cumsum(steps)])
        where = where / where[-1]
    else:
        where = as_floats(knots).astype(points.dtype)
        if where.shape != points.shape[:1]:
            raise TrajectoryError(
                f"there are {len(points)} waypoints, but the knots have shape {where.shape}; pass one knot per waypoint"
            )
        if not isinstance(where, Tracer):
            x = np.asarray(where)
            if x[0] != 0 or abs(x[-1] - 1) > 1e-6 or not np.all(np.diff(x) > 0):
                raise TrajectoryError(f"the knots of a path must increase from 0 to 1, but are {x}")
    h = jnp.diff(where)
    rise = jnp.diff(points, axis=0) / h[:, None]
    second = jnp.zeros_like(points)
    if len(points) > 2:
        inner = jnp.diag(2 * (h[:-1] + h[1:])) + jnp.diag(h[1:-1], 1) + jnp.diag(h[1:-1], -1)
        second = second.at[1:-1].set(jnp.linalg.solve(inner, 6 * jnp.diff(rise, axis=0)))
    low, high = second[:-1], second[1:]
    first = rise - h[:, None] * (2 * low + high) / 6
    return SplinePath(where, jnp.stack([points[:-1], first, low / 2, (high - low) / (6 * h[:, None])], axis=1))


@checked
def straight_path(start: Float[Array, " n"], goal: Float[Array, " n"]) -> SplinePath:
    """The straight line between two positions [rad or m], q(s) = q_0 + s (q_1 - q_0)."""
    return spline_path(jnp.stack([start, goal]), (0.0, 1.0))


def with_derivatives(path: Path, s: Float[Array, ""]) -> tuple[Array, Array, Array]:
    """The value of the path at s, and its first two derivatives."""
    rate = lambda y: jax.jvp(path, (y,), (jnp.ones_like(y),))
    (value, slope), (_, curvature) = jax.jvp(rate, (s,), (jnp.ones_like(s),))
    return value, slope, curvature


class PathDynamics(NamedTuple):
    """q and its derivatives by s along a path, and the coefficients of the torque m s'' + c s'^2 + g."""

    q: Float[Array, "points n"]
    slope: Float[Array, "points n"]
    curvature: Float[Array, "points n"]
    inertia: Float[Array, "points n"]
    centrifugal: Float[Array, "points n"]
    gravity: Float[Array, "points n"]


@checked
def path_dynamics(chain: Chain, path: Path, s: Float[Array, " points"]) -> PathDynamics:
    """The dynamics of a robot constrained to a path: tau = m(s) s'' + c(s) s'^2 + g(s), without friction.

    It follows from qd = q' s' and qdd = q' s'' + q'' s'^2 (Bobrow, Dubowsky & Gibson 1985; Lynch & Park 2017, eq. 9.34).
    Cost: three evaluations of inverse dynamics per point.

    Returns:
        One row per point: q, its derivatives `slope` = q' and `curvature` = q'', `inertia` = m = M(q) q',
        `centrifugal` = c = M(q) q'' + C(q, q') q', and `gravity` = g, with the torque of joint springs.

    Raises:
        TrajectoryError: the robot has quaternion joints, or the path does not return q of shape (nv,).
    """
    if chain.topology.has_curved_joints:
        raise TrajectoryError("paths q(s) do not support quaternion joints; use a robot with ordinary joints only")

    def one(x):
        q, slope, curvature = with_derivatives(path, x)
        if q.shape != (chain.nv,):
            raise TrajectoryError(f"the path returns q of shape {q.shape}, but the robot has {chain.nv} coordinates")
        zero = jnp.zeros_like(q)
        rates, pushes = jnp.stack([zero, zero, slope]), jnp.stack([zero, slope, curvature])
        gravity, inertia, centrifugal = jax.vmap(lambda v, a: inverse_dynamics(chain, q, v, a))(rates, pushes)
        held = gravity + spring_force(chain, q)
        return PathDynamics(q, slope, curvature, inertia - gravity, centrifugal - gravity, held)

    return jax.vmap(one)(s)


def joint_limits(
    chain: Chain,
    velocity: Float[Array, " nv"] | None,
    acceleration: Float[Array, " nv"] | None,
    torque: Float[Array, "nv 2"] | None,
) -> tuple[Float[Array, " nv"], Float[Array, " nv"], Float[Array, "nv 2"]]:
    """Limits on velocities, accelerations and torques as arrays, infinite where there are none; checked (TrajectoryError)."""
    own = is_ordinary(chain)
    if not own and (velocity is None or torque is None):
        raise TrajectoryError(
            "the chain's limits apply to its joints, which differ from its coordinates; pass limits for the coordinates"
        )
    speed = chain.limits.velocity if velocity is None else jnp.asarray(velocity)
    push = jnp.full(chain.nv, jnp.inf, speed.dtype) if acceleration is None else jnp.asarray(acceleration)
    effort = torque_limits(chain) if torque is None else jnp.asarray(torque)
    for name, x, shape in (
        ("velocity", speed, (chain.nv,)),
        ("acceleration", push, (chain.nv,)),
        ("torque", effort, (chain.nv, 2)),
    ):
        if x.shape != shape:
            raise TrajectoryError(f"the {name} limits have shape {x.shape}, but this robot requires {shape}")
        if isinstance(x, Tracer):
            continue
        values = np.asarray(x)
        good = values > 0 if values.ndim == 1 else values[:, 0] < values[:, 1]
        if not good.all():
            k = int(np.flatnonzero(~good)[0])
            why = "not positive" if values.ndim == 1 else "contradictory"
            raise TrajectoryError(f"the {name} limit of coordinate {k} is {why}: {values[k]}")
    return speed, push, effort


FAR = 1e9  # substitute for an infinite limit


class Bands(NamedTuple):
    """The bands lo <= a u + b x <= hi, with a >= 0, of every grid interval."""

    a: Float[Array, "intervals bands"]
    b: Float[Array, "intervals bands"]
    lo: Float[Array, "intervals bands"]
    hi: Float[Array, "intervals bands"]


def bands_of(
    at: PathDynamics,
    step: Float[Array, ""],
    friction: Float[Array, "points n"],
    torque: Float[Array, "n 2"],
    acceleration: Float[Array, " n"] | None,
) -> Bands:
    """The bands of torque limits and, if given, acceleration limits, at both ends of every interval."""
    held = at.gravity + friction
    a, b, lo, hi = [at.inertia], [at.centrifugal], [torque[None, :, 0] - held], [torque[None, :, 1] - held]
    if acceleration is not None:
        most = jnp.broadcast_to(acceleration[None], at.slope.shape)
        a, b, lo, hi = [*a, at.slope], [*b, at.curvature], [*lo, -most], [*hi, most]
    a, b, lo, hi = (jnp.concatenate(x, axis=1) for x in (a, b, lo, hi))
    size = jax.lax.stop_gradient(jnp.maximum(jnp.abs(a), jnp.abs(b)).max(0, keepdims=True))
    size = jnp.where(size > 0, size, jnp.ones_like(size))
    a, b, lo, hi = a / size, b / size, lo / size, hi / size
    a, b, lo, hi = (
        jnp.concatenate([left[:-1], right[1:]], axis=1)
        for left, right in ((a, a + 2 * step * b), (b, b), (lo, lo), (hi, hi))
    )
    turned = a < 0
    lo, hi = jnp.where(turned, -hi, lo), jnp.where(turned, -lo, hi)
    return Bands(jnp.abs(a), jnp.where(turned, -b, b), jnp.clip(lo, -FAR, FAR), jnp.clip(hi, -FAR, FAR))


def _half_lines(p: Array, r: Array, scale: Array, axes: int | tuple[int, ...]) -> tuple[Array, Array]:
    """The interval of x with p x <= r for all entries along the axes; empty, (FAR, -FAR), if p = 0 > r for some entry."""
    tolerance = 32 * jnp.finfo(p.dtype).eps
    flat = jnp.abs(p) <= tolerance * scale
    bound = r / jnp.where(flat, jnp.ones_like(p), p)
    never = flat & (r < -jnp.sqrt(tolerance) * scale)
    high = jnp.where(never, -FAR, jnp.where(flat | (p < 0), FAR, bound)).min(axes)
    low = jnp.where(never, FAR, jnp.where(flat | (p > 0), -FAR, bound)).max(axes)
    return low, high


def lasting_speeds(bands: Bands) -> tuple[Float[Array, " intervals"], Float[Array, " intervals"]]:
    """The interval of x for which some u satisfies all bands; empty (low > high) if no x does."""
    a, b = bands.a, bands.b
    p = a[:, None] * b[:, :, None] - a[:, :, None] * b[:, None]
    r = a[:, None] * bands.hi[:, :, None] - a[:, :, None] * bands.lo[:, None]
    scale = a[:, None] * jnp.abs(b)[:, :, None] + a[:, :, None] * jnp.abs(b)[:, None]
    return _half_lines(p, r, scale, (1, 2))


def controllable_speeds(
    bands: Bands,
    lasting: tuple[Float[Array, " intervals"], Float[Array, " intervals"]],
    largest: Float[Array, " points"],
    last: Float[Array, ""],
    step: Float[Array, ""],
) -> tuple[Float[Array, "points 2"], Bool[Array, " points"]]:
    """(low, high) of x at every point from which the end can be reached, computed backward, and the mask of empty intervals."""
    rounding = 64 * jnp.finfo(last.dtype).eps

    def back(following, inputs):
        low, high = following
        row, lasting_low, lasting_high, most = inputs
        p = jnp.concatenate([2 * step * row.b - row.a, row.a - 2 * step * row.b])
        r = jnp.concatenate([2 * step * row.hi - row.a * low, row.a * high - 2 * step * row.lo])
        scale = row.a + 2 * step * jnp.abs(row.b)
        here_low, here_high = _half_lines(p, r, jnp.concatenate([scale, scale]), 0)
        here_low = jnp.maximum(jnp.maximum(here_low, lasting_low), 0)
        here_high = jnp.minimum(jnp.minimum(here_high, lasting_high), most)
        empty = here_low > here_high + rounding * (1 + jnp.abs(here_high))
        here_low, here_high = jnp.minimum(here_low, here_high), here_high
        here = jnp.where(empty, 0, here_low), jnp.where(empty, 0, here_high)
        return here, (jnp.stack(here), empty)

    inputs = (bands, *lasting, largest[:-1])
    _, (sets, empty) = jax.lax.scan(back, (last, last), inputs, reverse=True)
    outside = last > largest[-1] * (1 + rounding)
    return jnp.concatenate([sets, jnp.stack([last, last])[None]]), jnp.concatenate([empty, outside[None]])


def fastest_speeds(
    bands: Bands, sets: Float[Array, "points 2"], first: Float[Array, ""], step: Float[Array, ""]
) -> tuple[Float[Array, " points"], Float[Array, " intervals"]]:
    """Forward pass with the largest u that keeps x in the controllable intervals; return x at the points and u between them."""
    negligible = 32 * jnp.finfo(first.dtype).eps

    def forward(x, inputs):
        row, following = inputs
        flat = row.a <= negligible * (1 + 2 * step * jnp.abs(row.b))
        a = jnp.where(flat, jnp.ones_like(row.a), row.a)
        most = jnp.where(flat, FAR, (row.hi - row.b * x) / a).min()
        least = jnp.where(flat, -FAR, (row.lo - row.b * x) / a).max()
        reached = jnp.clip(x + 2 * step * jnp.maximum(most, least), following[0], following[1])
        return reached, (reached, (reached - x) / (2 * step))

    _, (x, u) = jax.lax.scan(forward, first, (bands, sets[1:]))
    return jnp.concatenate([first[None], x]), u


Scaling = Callable[[Array], Array]
Duration = float | Float[Array, ""]


class JointMotion(NamedTuple):
    """A motion in joint space, one row per time: q [rad or m], qd [rad/s or m/s] and qdd [rad/s^2 or m/s^2]."""

    q: Float[Array, "times nq"]
    qd: Float[Array, "times nv"]
    qdd: Float[Array, "times nv"]


class PoseMotion(NamedTuple):
    """The motion of a frame, one row per time: its pose in the world, its twist in its own axes, and d twist / dt."""

    pose: Float[Array, "times 4 4"]
    twist: Float[Array, "times 6"]
    acceleration: Float[Array, "times 6"]


def cubic_scaling(u: Float[Array, ""]) -> Float[Array, ""]:
    """3 u^2 - 2 u^3: at rest at both ends, where the acceleration jumps; for T = 1, speed <= 3/2, acceleration <= 6."""
    return u * u * (3 - 2 * u)


def quintic_scaling(u: Float[Array, ""]) -> Float[Array, ""]:
    """10 u^3 - 15 u^4 + 6 u^5: zero speed and acceleration at both ends; for T = 1, at most 15/8 and 10/sqrt(3)."""
    return u * u * u * (10 + u * (6 * u - 15))


def trapezoidal_scaling(u: Float[Array, ""], ramp: float | Float[Array, ""] = 1 / 3) -> Float[Array, ""]:
    """Trapezoidal time scaling: phases of constant acceleration, constant speed, and constant deceleration.

    For T = 1, the largest speed is 1 / (1 - ramp), and the acceleration in the outer phases is 1 / (ramp (1 - ramp)).

    Args:
        ramp: duration of each outer phase as a fraction of T, above 0 and up to 1/2, the fastest under an acceleration limit
            alone. Pass another one as `functools.partial(trapezoidal_scaling, ramp=0.2)`.

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
    """Duration T [s] and ramp of the fastest trapezoidal motion along a straight line in joint space, in closed form.

    The limits of all joints imply |s'| <= v = min(speed / |distance|) and |s''| <= a = min(acceleration / |distance|). If v^2 <
    a, the motion reaches the speed limit, with T = 1/v + v/a and ramp v / (a T). Otherwise, T = 2 / sqrt(a), and the ramp is
    1/2 (Lynch & Park 2017, sec. 9.2.2). If all distances are zero, they are 0 and 1/2.

    Args:
        speed: largest |qd| of each joint [rad/s or m/s], which may be infinite.
        acceleration: largest |qdd| of each joint [rad/s^2 or m/s^2].
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
    """Motion along a straight line in joint space, q(s) = q_0 + s (q_1 - q_0), with a time scaling s(t), in duration T [s].

    With quaternion joints, the line is q(s) = integrate(chain, q_0, s difference(chain, q_0, q_1)): spherical joints rotate
    about a fixed axis, and free joints follow a screw motion. At times t [s] before 0 and after T, the robot is at rest.
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
    """Screw motion between two poses in the world [m], T(s) = T_0 exp([S] s) with S = log(T_0^-1 T_1) (Lynch & Park 2017,
    eq. 9.6); otherwise as `joint_motion`.

    Returns:
        One row per time: `pose` in the world [m], `twist` (w, v) in the axes of the moving frame, with the velocity v of its
        origin [rad/s, m/s], and `acceleration`, the time derivative of its components [rad/s^2, m/s^2].
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

    Translation and rotation are independent (Lynch & Park 2017, eqs. 9.7 and 9.8); otherwise as `screw_motion`.
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
    """The shortest duration T [s] for which a motion along a path with a given time scaling satisfies the limits.

    The velocity is q' sigma' / T, and the torque is (m sigma'' + c sigma'^2) / T^2 + g (see `path_dynamics`), so that every
    limit at every sample bounds 1/T or 1/T^2. T is infinite if the static torque alone exceeds its limits. Friction is ignored.
    The path and the limits are those of `time_optimal_path`.

    Args:
        samples: number of grid points; between them, limits are exceeded by at most O(1 / samples^2) if sigma is smooth.

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


FASTEST = 3e4  # upper bound on s' where velocity limits impose none [1/s]


class PathTiming(eqx.Module):
    """The result of `time_optimal_path`, which describes it."""

    s: Float[Array, " points"]
    t: Float[Array, " points"]
    speed: Float[Array, " points"]
    acceleration: Float[Array, " intervals"]
    q: Float[Array, "points n"]
    qd: Float[Array, "points n"]
    qdd: Float[Array, "points n"]
    tau: Float[Array, "points n"]
    controllable: Float[Array, "points 2"]
    speed_limit: Float[Array, " points"]
    status: Int[Array, ""]
    stuck_at: Float[Array, ""]

    @property
    def duration(self) -> Float[Array, ""]:
        """Duration of the path [s]; infinite if it cannot be followed."""
        return self.t[..., -1]

    @property
    def message(self) -> str:
        """The status in words; for a batch, the number of paths with each status."""
        where = f" from s = {float(self.stuck_at):.4g} on" if np.ndim(self.status) == 0 else ""
        return status_message(self.status, lambda status: _MESSAGES[status].format(where))


_MESSAGES = {
    Status.CONVERGED: "converged",
    Status.INFEASIBLE: "the path cannot be followed{} within the limits: allow more torque, or change the path or end speeds",
    Status.NOT_FINITE: "the path or the dynamics along it are not finite: check the waypoints and the chain's parameters",
}


@checked
def time_optimal_path(
    chain: Chain,
    path: Path,
    *,
    velocity_limits: Float[Array, " nv"] | None = None,
    acceleration_limits: Float[Array, " nv"] | None = None,
    torque_limits: Float[Array, "nv 2"] | None = None,
    start_speed: float | Float[Array, ""] = 0.0,
    end_speed: float | Float[Array, ""] = 0.0,
    points: int = 401,
    friction_rounds: int = 6,
) -> PathTiming:
    """The time-optimal motion along a path q(s), s from 0 to 1, within limits on torque, velocity and acceleration.

    The problem of Bobrow, Dubowsky & Gibson (1985) is solved by reachability analysis (Pham & Pham 2018). A backward pass
    computes the intervals of s'^2 from which the end can be reached, and a forward pass selects the largest s'' that keeps s'^2
    in them. Because the torque is m(s) s'' + c(s) s'^2 + g(s), each grid point needs only linear programs in two unknowns, in
    closed form.

    Limits hold at both ends of every grid interval and are exceeded by at most O(1 / points^2) in between. The duration exceeds
    the optimum by O(1 / points). The cost is O(points n^2) for n joints. Friction is not linear in s'^2 and s'': the first
    round ignores it, and each further round takes it at the speeds of the previous round, which multiplies the remaining error
    by about the ratio of viscous friction to inertial torque.

    If the path cannot be followed, for example because gravity alone exceeds the torque limits, the status is INFEASIBLE, the
    motion ends at `stuck_at`, and later times are infinite. The property `message` of the result is the status in words.

    Args:
        path: s -> q [rad or m], twice differentiable by JAX: `spline_path`, `straight_path`, or a user-defined function.
        velocity_limits: largest |qd| [rad/s or m/s]; None: the chain's limits.
        acceleration_limits: largest |qdd| [rad/s^2 or m/s^2]; None: unlimited.
        torque_limits: (lower, upper) of each torque [N m or N]; None: the chain's effort limits.
        start_speed: s' at the start [1/s].
        end_speed: s' at the end [1/s].
        friction_rounds: number of further rounds; none if the chain is known to have no friction.

    Returns:
        - s: grid of points; s'' is constant between them.
        - t: times [s]; infinite beyond `stuck_at`.
        - speed: s' at each point [1/s].
        - acceleration: s'' from each point to the next [1/s^2].
        - qdd: accelerations with the s'' of the interval after each point (at the end, before it).
        - tau: torques for these accelerations, including friction and springs [N m or N].
        - controllable: bounds on s' between which the end can be reached within the limits [1/s].
        - speed_limit: largest s' for which some s'' satisfies the limits [1/s].
        - status: a `Status` as an integer: CONVERGED, INFEASIBLE or NOT_FINITE.
        - stuck_at: smallest s from which the path cannot be followed to its end, if INFEASIBLE; otherwise infinite.
        - duration: last of the times [s].

    Raises:
        TrajectoryError: limits are missing, contradictory or of the wrong shape; `points` is less than 3; a speed or
            `friction_rounds` is negative; or the robot has quaternion joints.
    """
    if points < 3 or friction_rounds < 0:
        raise TrajectoryError(f"points={points} must be at least 3, and friction_rounds={friction_rounds} at least 0")
    for name, x in (("start", start_speed), ("end", end_speed)):
        if not isinstance(x, Tracer) and not float(x) >= 0:
            raise TrajectoryError(f"the speed at the {name} is {float(x):g}; it must not be negative")
    # infinite limits are replaced by large finite ones, so that derivatives are finite
    limits = joint_limits(chain, velocity_limits, acceleration_limits, torque_limits)
    velocity, acceleration, torque = (jnp.clip(x, -FAR, FAR) for x in limits)
    some = None if acceleration_limits is None else acceleration
    dtype = torque.dtype
    s = jnp.linspace(0, 1, points, dtype=dtype)
    step = jnp.asarray(1 / (points - 1), dtype)
    at = path_dynamics(chain, path, s)
    size = jnp.abs(at.slope)
    bounds = size > velocity[None] / FASTEST
    largest = jnp.where(bounds, velocity[None] / jnp.where(bounds, size, jnp.ones_like(size)), FASTEST).min(1) ** 2
    first, last = (jnp.asarray(x, dtype) ** 2 for x in (start_speed, end_speed))

    def timed(friction):
        bands = bands_of(at, step, friction, torque, some)
        lasting = lasting_speeds(bands)
        sets, empty = controllable_speeds(bands, lasting, largest, last, step)
        rounding = 1e3 * jnp.finfo(dtype).eps * (1 + first)
        empty = empty.at[0].set(empty[0] | (first < sets[0, 0] - rounding) | (first > sets[0, 1] + rounding))
        x, u = fastest_speeds(bands, sets, jnp.clip(first, sets[0, 0], sets[0, 1]), step)
        return x, u, sets, jnp.append(jnp.minimum(lasting[1], largest[:-1]), largest[-1]), empty

    def friction_at(x):
        return jax.vmap(lambda slope, rate: friction_force(chain, slope * rate))(at.slope, root(x))

    friction = jnp.zeros_like(at.q)
    if not _is_frictionless(chain):
        again = lambda f, _: (friction_at(timed(f)[0]), None)
        friction, _ = jax.lax.scan(again, friction, None, length=friction_rounds)
    x, u, sets, most, empty = timed(friction)
    return _result(at, s, step, x, u, friction_at(x), sets, most, empty)


def _result(at: PathDynamics, s, step, x, u, friction, sets, most, empty) -> PathTiming:
    """The times, motion and torques that result from x = s'^2 and u = s''."""
    speed = root(x)
    pair = speed[1:] + speed[:-1]
    moving = pair > 0
    lasts = jnp.where(moving, 2 * step / jnp.where(moving, pair, jnp.ones_like(pair)), jnp.inf)
    t = jnp.concatenate([jnp.zeros_like(lasts[:1]), jnp.cumsum(lasts)])
    push = jnp.append(u, u[-1])[:, None]
    x = x[:, None]
    tau = at.inertia * push + at.centrifugal * x + at.gravity + friction
    finite = jnp.isfinite(tau).all() & jnp.isfinite(sets).all()
    stuck = empty | jnp.append(~moving, False)
    ok = jnp.where(stuck.any(), int(Status.INFEASIBLE), int(Status.CONVERGED))
    status = jnp.where(finite, ok, int(Status.NOT_FINITE)).astype(jnp.int32)
    return PathTiming(
        s,
        t,
        speed,
        u,
        at.q,
        at.slope * speed[:, None],
        at.slope * push + at.curvature * x,
        tau,
        root(sets),
        root(most),
        status,
        jnp.where(stuck, s, jnp.inf).min(),
    )


def root(x: Array) -> Array:
    """The square root, with derivative 0 at 0, because a zero speed at the start or end does not depend on the parameters."""
    positive = x > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, jnp.ones_like(x))), jnp.zeros_like(x))


def _is_frictionless(chain: Chain) -> bool:
    """True if the chain is known to have no friction; False if it has friction or its friction is traced."""
    parts = [chain.friction] if chain.transmission is None else [chain.friction, chain.transmission.friction]
    leaves = [x for f in parts for x in (f.viscous, f.coulomb, f.stribeck, f.offset)]
    return not any(isinstance(x, Tracer) or np.any(np.asarray(x)) for x in leaves)


@checked
def motion_along(path: Path, timing: PathTiming, t: Float[Array, " times"]) -> JointMotion:
    """The motion of a timed path at times t [s], at rest before and after; exact, as s'' is constant between grid points."""
    k = jnp.clip(jnp.searchsorted(timing.t, t, side="right") - 1, 0, len(timing.t) - 2)
    late = jnp.clip(t - timing.t[k], 0, timing.t[k + 1] - timing.t[k])
    inside = (t >= 0) & (t <= timing.duration)
    push = jnp.where(inside, timing.acceleration[k], 0)
    rate = jnp.where(inside, timing.speed[k] + late * timing.acceleration[k], 0)
    s = timing.s[k] + late * timing.speed[k] + late**2 * timing.acceleration[k] / 2
    s = jnp.clip(s, timing.s[k], timing.s[k + 1])

    def one(s, rate, push):
        q, d, c = with_derivatives(path, s)
        return JointMotion(q, d * rate, d * push + c * rate**2)

    return jax.vmap(one)(s, rate, push)

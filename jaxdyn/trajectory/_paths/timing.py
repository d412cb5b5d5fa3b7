"""Time-optimal motion along a given path within limits on torque, velocity and acceleration."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..._jax_compat import Tracer
from ...dynamics import friction_force
from ...errors import TrajectoryError
from ...model._chain import Chain
from ...model._compiled import checked
from .._problem.solution import Status, status_message
from .intervals import FAR, bands_of, controllable_speeds, fastest_speeds, lasting_speeds
from .path import Path, PathDynamics, joint_limits, path_dynamics, with_derivatives
from .scaling import JointMotion

FASTEST = 3e4  # upper bound on s' where velocity limits impose none [1/s]


class PathTiming(eqx.Module):
    """A timed path on a grid of s; s'' is constant within each interval.

    Attributes:
        s: grid of the path parameter, from 0 to 1.
        t: times [s]; infinite beyond `stuck_at`.
        speed: s' at each point [1/s].
        acceleration: s'' from each point to the next [1/s^2].
        q: positions [rad or m].
        qd: velocities [rad/s or m/s].
        qdd: accelerations [rad/s^2 or m/s^2], with the s'' of the interval after each point, or of the last interval at the
            last point.
        tau: torques for these accelerations, including friction and springs [N m or N].
        controllable: lower and upper bounds on s' between which the end can be reached within the limits [1/s].
        speed_limit: largest s' for which some s'' satisfies the limits [1/s].
        status: a `Status` as an integer: CONVERGED, INFEASIBLE or NOT_FINITE.
        stuck_at: smallest s from which the path cannot be followed to its end, if INFEASIBLE; otherwise infinite.
    """

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

    The problem, posed by Bobrow, Dubowsky & Gibson (1985), is solved by reachability analysis (Pham & Pham 2018). A backward
    pass computes the intervals of s'^2 from which the end can be reached, and a forward pass selects the largest s'' that keeps
    s'^2 in these intervals. Because the torque is m(s) s'' + c(s) s'^2 + g(s), each grid point requires only linear programs in
    two unknowns, which are solved in closed form.

    Limits are satisfied at both ends of every grid interval and exceeded by at most O(1 / points^2) in between. The duration
    exceeds the optimum by O(1 / points). The cost is O(points n^2) for n joints.

    Friction is not linear in s'^2 and s'', so the problem with friction is solved in rounds. The first round ignores friction,
    and each further round evaluates it at the speeds of the previous round. With each round, the remaining error is multiplied
    by approximately the ratio of viscous friction to inertial torque.

    Args:
        path: function s -> q [rad or m], twice differentiable by JAX: `spline_path`, `straight_path`, or a user-defined
            function.
        velocity_limits: largest |qd| [rad/s or m/s]; None: the chain's limits.
        acceleration_limits: largest |qdd| [rad/s^2 or m/s^2]; None: unlimited.
        torque_limits: (lower, upper) of each torque [N m or N]; None: the chain's effort limits.
        start_speed: value of s' at the start [1/s].
        end_speed: value of s' at the end [1/s].
        points: number of grid points.
        friction_rounds: number of additional rounds, with friction; skipped if the chain is known to have no friction.

    Returns:
        The times, motion and torques on the grid. The status is INFEASIBLE if the path cannot be followed, for example because
        gravity alone exceeds the torque limits. In that case, the motion ends at `stuck_at`, and later times are infinite.

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
    """Positions, velocities and accelerations of a timed path at times t [s]; at rest before its start and after its end.

    Between grid points, s'' is constant, so s(t) is computed exactly.
    """
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

"""Paths in joint space, q(s) with s from 0 to 1, and the dynamics along them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._jax_compat import Tracer
from ...dynamics import inverse_dynamics, spring_force
from ...errors import TrajectoryError
from ...model._chain import Chain
from ...model._compiled import checked
from ...model._layout import is_ordinary
from .._problem.constraints import torque_limits
from .._problem.knot import as_floats

Path = Callable[[Array], Array]  # s () -> q (nq,)


class SplinePath(eqx.Module):
    """A twice continuously differentiable path s -> q, represented by a cubic spline; created by `spline_path`.

    Attributes:
        knots: s at the waypoints, from 0 to 1.
        coefficients: coefficients of 1, h, h^2 and h^3 for every piece, where h = s - knot [rad or m].
    """

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

    The second derivatives at the knots are the solution of a tridiagonal system (de Boor 2001, ch. IV). The path is
    differentiable with respect to the waypoints.

    Args:
        waypoints: at least two positions, in order [rad or m].
        knots: s at the waypoints, increasing from 0 to 1. None: the spacing is proportional to the square root of the
            distance between waypoints (centripetal parametrisation, Lee 1989), to avoid overshoot between close waypoints.

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
    """Position, its derivatives with respect to s, and the coefficients of the torque m s'' + c s'^2 + g along a path.

    Attributes:
        q: positions [rad or m].
        slope: q' = dq/ds [rad or m].
        curvature: q'' = d2q/ds2 [rad or m].
        inertia: m = M(q) q' [kg m^2 or kg m].
        centrifugal: c = M(q) q'' + C(q, q') q' [kg m^2 or kg m].
        gravity: g, the gravity torque plus the torque of joint springs [N m or N].
    """

    q: Float[Array, "points n"]
    slope: Float[Array, "points n"]
    curvature: Float[Array, "points n"]
    inertia: Float[Array, "points n"]
    centrifugal: Float[Array, "points n"]
    gravity: Float[Array, "points n"]


@checked
def path_dynamics(chain: Chain, path: Path, s: Float[Array, " points"]) -> PathDynamics:
    """The dynamics of a robot constrained to a path: tau = m(s) s'' + c(s) s'^2 + g(s), without friction.

    The equation follows from qd = q' s' and qdd = q' s'' + q'' s'^2 (Bobrow, Dubowsky & Gibson 1985; Lynch & Park 2017, eq.
    9.34). Cost: three evaluations of inverse dynamics per point.

    Raises:
        TrajectoryError: the robot has quaternion joints, or the path does not return q of shape (nv,).
    """
    if chain.topology.quaternion_joints:
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
    """The limits on velocities, accelerations and torques as arrays, infinite where there are none.

    Raises:
        TrajectoryError: limits have the wrong shape, are not positive, or contradict each other; or velocity or torque limits
            are missing for a robot with coupled or quaternion joints, whose joint limits do not apply to its coordinates.
    """
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

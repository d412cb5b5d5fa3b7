"""Constraints on a motion: value(knot) = 0 or value(knot) <= 0 at each knot. Limits and targets are pytree leaves."""

from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..dynamics import forward_dynamics, frame_pose, resistive_force
from ..dynamics.wrenches import ground_reaction
from ..errors import TrajectoryError
from ..geometry import Shapes, distances
from ..model.chain import Chain, layout
from ..model.configuration import difference
from ..spatial.se3 import adjoint, pose_inverse, pose_log
from .costs import Knot, as_floats, as_floats_or_none, one_per_knot, one_per_pair, reference_at

Kind = Literal["equality", "inequality"]
_FAR = 1e4  # substitute for the missing side of a one-sided limit [rad or m]


class Constraint(eqx.Module):
    """A constraint value(chain, knot) = 0 (kind "equality") or <= 0 (kind "inequality"), elementwise.

    A subclass defines `value`. On which entries of the knot it depends is found by tracing it.
    """

    kind: Kind = eqx.field(static=True, default="inequality", kw_only=True)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        pinned = next(base for base in cls.__mro__ if "pinned" in vars(base))
        if "value" in vars(cls) and pinned not in (cls, Constraint):
            raise TrajectoryError(
                f"{cls.__name__} defines value, but inherits pinned from {pinned.__name__}, whose values differ",
                "define pinned as well",
            )

    def __check_init__(self) -> None:
        if self.kind not in ("equality", "inequality"):
            raise TrajectoryError(f"the kind of a constraint must be 'equality' or 'inequality', not {self.kind!r}")

    def value(self, chain: Chain, knot: Knot) -> Float[Array, " k"]:
        """Values that must be zero (equality) or must not be positive (inequality)."""
        raise NotImplementedError

    def pinned(self, values: Float[Array, " k"]) -> Bool[Array, " k"]:
        """True for the values of an inequality that must be zero, because they are equal lower and upper limits."""
        return jnp.zeros(values.shape, bool)


class PositionLimits(Constraint):
    """Limits lower <= q <= upper [rad or m] of the `entries` of q (None: all); `position_limits` returns those of a chain."""

    lower: Float[Array, " k"] = eqx.field(converter=as_floats)
    upper: Float[Array, " k"] = eqx.field(converter=as_floats)
    entries: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def value(self, chain: Chain, knot: Knot) -> Float[Array, " k"]:
        q = knot.q if self.entries is None else knot.q[jnp.asarray(self.entries)]
        return jnp.concatenate([self.lower - q, q - self.upper])

    def pinned(self, values: Float[Array, " k"]) -> Bool[Array, " k"]:
        return jnp.tile(coincide(self.lower, self.upper), 2)


class VelocityLimits(Constraint):
    """Limits |v| <= limit [rad/s or m/s] of the `entries` of v (None: all); `velocity_limits` returns those of a chain."""

    limit: Float[Array, " k"] = eqx.field(converter=as_floats)
    entries: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def value(self, chain: Chain, knot: Knot) -> Float[Array, " k"]:
        v = knot.v if self.entries is None else knot.v[jnp.asarray(self.entries)]
        return jnp.concatenate([-self.limit - v, v - self.limit])

    def pinned(self, values: Float[Array, " k"]) -> Bool[Array, " k"]:
        return jnp.tile(coincide(-self.limit, self.limit), 2)


class StateConstraint(Constraint):
    """Constraint (q, v) = (q_d, v_d), constant or one row per knot [rad or m, rad/s or m/s]; None: free."""

    q: Float[Array, "*knots nq"] | None = eqx.field(metadata=one_per_knot(1), converter=as_floats_or_none, default=None)
    v: Float[Array, "*knots nv"] | None = eqx.field(metadata=one_per_knot(1), converter=as_floats_or_none, default=None)
    kind: Kind = eqx.field(static=True, default="equality", kw_only=True)

    def value(self, chain: Chain, knot: Knot) -> Float[Array, " k"]:
        parts = []
        if self.q is not None:
            parts.append(difference(chain, reference_at(self, "q", knot.q.shape, knot.k), knot.q))
        if self.v is not None:
            parts.append(knot.v - reference_at(self, "v", knot.v.shape, knot.k))
        return jnp.concatenate(parts) if parts else jnp.zeros(0, knot.q.dtype)


class PoseConstraint(Constraint):
    """Constraint log(T_d^-1 T) = 0 on a frame's pose T, with the twist of `PoseCost`.

    Attributes:
        target: T_d in the world, constant or one pose per knot [m].
        frame: name of the link or frame; None: the chain's tip.
        directions: constrained components of the twist (0 to 2 rotation, 3 to 5 translation); None: all six.
    """

    target: Float[Array, "*knots 4 4"] = eqx.field(metadata=one_per_knot(2), converter=as_floats)
    frame: str | None = eqx.field(static=True, default=None)
    directions: tuple[int, ...] | None = eqx.field(static=True, default=None)
    kind: Kind = eqx.field(static=True, default="equality", kw_only=True)

    def value(self, chain: Chain, knot: Knot) -> Float[Array, " k"]:
        target = reference_at(self, "target", (4, 4), knot.k)
        twist = pose_log(pose_inverse(target) @ frame_pose(chain, knot.q, self.frame))
        return twist if self.directions is None else twist[jnp.asarray(self.directions)]


class PointConstraint(Constraint):
    """Constraint p = p_d on the origin p of `frame` (None: the tip); `target` p_d in the world, constant or per knot [m]."""

    target: Float[Array, "*knots 3"] = eqx.field(metadata=one_per_knot(1), converter=as_floats)
    frame: str | None = eqx.field(static=True, default=None)
    kind: Kind = eqx.field(static=True, default="equality", kw_only=True)

    def value(self, chain: Chain, knot: Knot) -> Float[Array, " k"]:
        return frame_pose(chain, knot.q, self.frame)[:3, 3] - reference_at(self, "target", (3,), knot.k)


class Clearance(Constraint):
    """Constraint d >= d_min on the signed distance d of every pair in `shapes.pairs` (see `geometry.distances`).

    At the knots, nothing touches if d_min > 0; how near it comes in between depends on the time step.

    Attributes:
        shapes: shapes of the robot and its surroundings (see `geometry.read` and `geometry.with_environment`).
        least: d_min, one for all pairs or one per pair [m].
    """

    shapes: Shapes
    least: Float[Array, "*#p"] = eqx.field(converter=as_floats, default=0.0)

    def value(self, chain: Chain, knot: Knot) -> Float[Array, " p"]:
        return self.violation(chain, knot.q)

    def violation(self, chain: Chain, q: Float[Array, " nq"]) -> Float[Array, " p"]:
        """d_min - d of every pair, positive where it is too near [m]."""
        return one_per_pair(self, "least") - distances(chain, self.shapes, q)


class UserConstraint(Constraint):
    """A user-defined constraint, function(chain, knot, data) = 0 or <= 0, with values (k,); otherwise as `UserCost`."""

    function: Callable[[Chain, Knot, Any], Array] = eqx.field(static=True)
    data: Any = None

    def value(self, chain: Chain, knot: Knot) -> Float[Array, " k"]:
        return jnp.ravel(self.function(chain, knot, self.data))


def coincide(lower: Float[Array, "*n"], upper: Float[Array, "*n"]) -> Bool[Array, "*n"]:
    """True for limits closer than eps^0.6 max(1, |limit|), that is, without an interior in which a barrier is accurate."""
    size = jnp.maximum(1.0, jnp.maximum(jnp.abs(lower), jnp.abs(upper)))
    return jnp.isfinite(size) & (
        upper - lower <= jnp.finfo(lower.dtype).eps ** 0.6 * jnp.where(jnp.isfinite(size), size, 1.0)
    )


def position_limits(chain: Chain, margin: float = 0.0) -> PositionLimits:
    """The chain's finite position limits, tightened by a margin [rad or m]; to be called outside `jax.jit`.

    Where only one limit of a joint is finite, the other is 10 000 rad or m away.

    Raises:
        TrajectoryError: the chain has coupled joints, so its coordinates are not joint positions.
    """
    columns, entries = _ordinary(chain)
    bounds = np.asarray(chain.limits.position)[columns]
    kept = np.isfinite(bounds).any(axis=1)
    bounds = jnp.asarray(np.clip(bounds[kept], -_FAR, _FAR), chain.dtype)
    return PositionLimits(bounds[:, 0] + margin, bounds[:, 1] - margin, tuple(int(i) for i in entries[kept]))


def velocity_limits(chain: Chain, fraction: float = 1.0) -> VelocityLimits:
    """The chain's finite velocity limits, multiplied by a fraction; to be called outside `jax.jit`.

    Raises:
        TrajectoryError: as for `position_limits`.
    """
    columns, _ = _ordinary(chain)
    limit = np.asarray(chain.limits.velocity)[columns]
    kept = np.isfinite(limit)
    return VelocityLimits(jnp.asarray(fraction * limit[kept], chain.dtype), tuple(int(i) for i in columns[kept]))


def torque_limits(chain: Chain, fraction: float = 1.0) -> Float[Array, "nv 2"]:
    """The chain's effort limits, multiplied by a fraction, as (lower, upper) of each torque [N m or N]; infinite if unlimited.

    Free joints, such as a floating base, have no drive: their limits are zero.

    Raises:
        TrajectoryError: as for `position_limits`.
    """
    _ordinary(chain)
    undriven = np.zeros(chain.nv, bool)
    for joint in layout(chain).curved:
        undriven[joint.columns] = not joint.driven
    effort = jnp.where(undriven, 0.0, fraction * chain.limits.effort)
    return jnp.stack([-effort, effort], axis=1)


def _ordinary(chain: Chain) -> tuple[np.ndarray, np.ndarray]:
    """The indices of all ordinary joints in v, and in q."""
    if chain.coupling is not None:
        raise TrajectoryError(
            "the chain has coupled joints, whose limits do not apply to its coordinates",
            "use PositionLimits, VelocityLimits and the problem's torque_limits with limits of the coordinates, or lock "
            "mimic joints, for example those of a gripper, when loading the robot: {lock}",
            lock="{'JOINT': POSITION, ..}",
        )
    where = layout(chain)
    return where.columns, where.entries


class ContactWrenchCone(Constraint):
    """The stance foot neither lifts off nor slips, tips or turns on the ground.

    The ground exerts a wrench (n, f) on the robot, expressed about the middle of a rectangular sole with half lengths X and Y
    and normal z. Forces at the sole's corners, each in the friction pyramid |f_x|, |f_y| <= mu f_z, can produce it if and only
    if (Caron, Pham & Nakamura 2015)

        f_z >= least_force,  |f_x| <= mu f_z,  |f_y| <= mu f_z,                             (no lifting off, no slipping)
        |n_x| <= Y f_z,  |n_y| <= X f_z,                     (no tipping: (-n_y, n_x) / f_z is in the sole)
        |Y f_x - mu n_x| + |X f_y - mu n_y| - mu (X + Y) f_z <= n_z,                            (no turning)
        n_z <= mu (X + Y) f_z - |Y f_x + mu n_x| - |X f_y + mu n_y|.

    These are 17 linear inequalities, divided by the robot's weight and, with moments, by X + Y. A pyramid with mu_cone /
    sqrt(2) lies within the cone with mu_cone. All contact forces act on this foot, the robot's base (single support).
    `solve_by_inverse_dynamics` computes the wrench with the torques; other solvers need forward dynamics, whose second
    derivatives take minutes to compile for ten joints.

    Attributes:
        frame: name of the frame on the ground, with z along the normal; it may be fixed to the base.
        lower: smallest x and y of the sole in this frame [m].
        upper: largest x and y of the sole in this frame [m].
        friction: mu.
        besides: ground wrench for loads besides the modelled links, in world axes about the world's origin [N m, N]; for a base
            that is the foot, (c x f, f) with its centre of mass c and the force f against its weight.
        least_force: smallest normal force [N].
    """

    frame: str = eqx.field(static=True)
    lower: Float[Array, "2"] = eqx.field(converter=as_floats)
    upper: Float[Array, "2"] = eqx.field(converter=as_floats)
    friction: Float[Array, ""] = eqx.field(converter=as_floats)
    besides: Float[Array, "6"] = eqx.field(converter=as_floats, default=(0.0, 0.0, 0.0, 0.0, 0.0, 0.0))
    least_force: Float[Array, ""] = eqx.field(converter=as_floats, default=0.0)

    def wrench(self, chain: Chain, knot: Knot) -> Float[Array, "6"]:
        """The wrench (n, f) that the ground exerts on the robot about the middle of the sole, in the frame's axes [N m, N]."""
        ground = knot.ground
        if ground is None:
            a = forward_dynamics(chain, knot.q, knot.v, knot.tau - resistive_force(chain, knot.q, knot.v))
            ground = ground_reaction(chain, knot.q, knot.v, a)
        middle = jnp.concatenate([(self.lower + self.upper) / 2, jnp.zeros(1, self.lower.dtype)])
        sole = frame_pose(chain, knot.q, self.frame) @ jnp.eye(4, dtype=middle.dtype).at[:3, 3].set(middle)
        return adjoint(sole).T @ (ground + self.besides)

    def value(self, chain: Chain, knot: Knot) -> Float[Array, "17"]:
        nx, ny, nz, fx, fy, fz = self.wrench(chain, knot)
        x, y = (self.upper - self.lower) / 2
        mu = self.friction
        turning = [
            sign * nz + s * (y * fx + sign * mu * nx) + t * (x * fy + sign * mu * ny) - mu * (x + y) * fz
            for sign in (-1, 1)
            for s in (-1, 1)
            for t in (-1, 1)
        ]
        tipping = [s * n - half * fz for n, half in ((nx, y), (ny, x)) for s in (-1, 1)]
        slipping = [s * f - mu * fz for f in (fx, fy) for s in (-1, 1)]
        moments, forces = jnp.stack(tipping + turning), jnp.stack([self.least_force - fz, *slipping])
        weight = chain.inertia[:, 0].sum() * jnp.linalg.norm(chain.gravity)
        return jnp.concatenate([forces, moments / (x + y)]) / weight

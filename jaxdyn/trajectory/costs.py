"""Knots, and costs of a motion: sums of 1/2 |residual|^2 over knots. Weights and targets are pytree leaves."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..dynamics import centre_of_mass, frame_pose
from ..errors import TrajectoryError
from ..geometry import Shapes, distances
from ..model.chain import Chain
from ..model.configuration import difference
from ..spatial.se3 import pose_inverse, pose_log


class Knot(NamedTuple):
    """The state and torques at one time.

    Attributes:
        k: index of the knot; at the midpoint of a collocation step, that of the knot before.
        tau: torques until the next knot [N m or N]; the last knot of a simulation repeats the torque before it.
        tau_before: torques from the previous knot to this one; at k = 0, the problem's `tau0`.
        ground: wrench (n, f) of the ground on the robot, in world axes about the world's origin [N m, N], where the solver
            provides it (`solve_by_inverse_dynamics`, if a constraint reads it); otherwise None.
    """

    k: Int[Array, ""]
    t: Float[Array, ""]
    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    tau: Float[Array, " nv"]
    tau_before: Float[Array, " nv"]
    dt: Float[Array, ""]
    ground: Float[Array, "6"] | None = None


def as_floats(x: Any) -> Array:
    """Convert a number or sequence to a floating-point array, weakly typed for a number; return JAX arrays unchanged."""
    if isinstance(x, Array):
        return x
    return jnp.asarray(float(x)) if isinstance(x, int | float) else jnp.asarray(x, float)


def as_floats_or_none(x: Any) -> Array | None:
    """Apply `as_floats`, unless the argument is None."""
    return None if x is None else as_floats(x)


def one_per_knot(dimensions: int) -> dict[str, int]:
    """The metadata of a field that may have one row per knot, given its number of dimensions without the knot axis."""
    return {"dimensions": dimensions}


def reference_at(owner: Any, name: str, shape: tuple[int, ...], k: Int[Array, ""]) -> Array:
    """The reference of a cost or constraint at knot k: its row k, or the constant; TrajectoryError if the shape is wrong."""
    x = getattr(owner, name)
    at = jnp.take(x, k, axis=0) if x.ndim == len(shape) + 1 else x
    if at.shape != shape:
        raise TrajectoryError(
            f"{type(owner).__name__}: {name} has shape {x.shape}, but this robot requires {shape}, or one such row per knot"
        )
    return at


def one_per_pair(owner: Any, name: str) -> Float[Array, "*#p"]:
    """A field that is a number or has one entry per pair of `owner.shapes`; TrajectoryError if the shape is wrong."""
    x, count = getattr(owner, name), len(owner.shapes.pairs)
    if x.shape not in ((), (1,), (count,)):
        fault = f"{type(owner).__name__}: {name} has shape {x.shape}, but shapes.pairs has length {count}"
        raise TrajectoryError(fault, "pass a number, or one per pair")
    return x


class Cost(eqx.Module):
    """A cost l(knot) = 1/2 |r(knot)|^2, whose residual r is defined by a subclass.

    A subclass defines `residual`, or `value` if the cost is no sum of squares. Gauss-Newton methods approximate the Hessian by
    J_r^T J_r, where J_r is the Jacobian of r; for a cost defined by `value`, they use the exact Hessian, made positive
    semidefinite if necessary. On which entries of the knot a cost depends is found by tracing it. A running cost is
    multiplied by dt and summed over knots 0 ... steps - 1; a terminal cost is evaluated at the last knot.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "value" in vars(cls) and _has_residual(cls):
            raise TrajectoryError(
                f"{cls.__name__} defines value, but it has a residual, which solvers would minimise instead",
                "define residual alone, or derive the class from Cost and define value alone",
            )

    @property
    def has_residual(self) -> bool:
        """False for a cost that is defined by `value`."""
        return _has_residual(type(self))

    def residual(self, chain: Chain, knot: Knot) -> Float[Array, " k"]:
        """The residual r(knot), including weights."""
        raise TrajectoryError(
            f"{type(self).__name__} has no residual; for Gauss-Newton methods, write it as a UserCost"
        )

    def value(self, chain: Chain, knot: Knot) -> Float[Array, ""]:
        """The cost l(knot)."""
        r = self.residual(chain, knot)
        return 0.5 * jnp.sum(r * r)


def _has_residual(kind: type) -> bool:
    return next(base for base in kind.__mro__ if "residual" in vars(base)) is not Cost


class StateCost(Cost):
    """Cost of the state, 1/2 |w_q (q - q_d)|^2 + 1/2 |w_v (v - v_d)|^2, with q - q_d = difference(chain, q_d, q).

    As in all costs, a weight w is the square root of the conventional weight, one number or one per entry, and a reference is
    constant or has one row per knot.

    Attributes:
        position_weight: w_q [1/rad or 1/m].
        velocity_weight: w_v [s/rad or s/m].
    """

    q: Float[Array, "*knots nq"] = eqx.field(metadata=one_per_knot(1), converter=as_floats)
    v: Float[Array, "*knots nv"] = eqx.field(metadata=one_per_knot(1), converter=as_floats)
    position_weight: Float[Array, "*#nv"] = eqx.field(converter=as_floats, default=1.0)
    velocity_weight: Float[Array, "*#nv"] = eqx.field(converter=as_floats, default=1.0)

    def residual(self, chain: Chain, knot: Knot) -> Float[Array, " k"]:
        dq = difference(chain, reference_at(self, "q", knot.q.shape, knot.k), knot.q)
        dv = knot.v - reference_at(self, "v", knot.v.shape, knot.k)
        return jnp.concatenate([self.position_weight * dq, self.velocity_weight * dv])


class TorqueCost(Cost):
    """Cost of torques, 1/2 |w (tau - tau_d)|^2, with `weight` w [1/(N m) or 1/N] and `reference` tau_d [N m or N]."""

    weight: Float[Array, "*#nv"] = eqx.field(converter=as_floats, default=1.0)
    reference: Float[Array, "*knots"] = eqx.field(metadata=one_per_knot(1), converter=as_floats, default=0.0)

    def residual(self, chain: Chain, knot: Knot) -> Float[Array, " k"]:
        if self.reference.ndim == 0:
            return self.weight * (knot.tau - self.reference)
        return self.weight * (knot.tau - reference_at(self, "reference", knot.tau.shape, knot.k))


class TorqueRateCost(Cost):
    """Cost 1/2 |w (tau_k - tau_{k-1}) / dt|^2 with `weight` w [s/(N m) or s/N]; tau_{-1} is the problem's `tau0`."""

    weight: Float[Array, "*#nv"] = eqx.field(converter=as_floats, default=1.0)

    def residual(self, chain: Chain, knot: Knot) -> Float[Array, " k"]:
        return self.weight * ((knot.tau - knot.tau_before) / knot.dt)


class PoseCost(Cost):
    """Cost of a frame's pose T, 1/2 |w log(T_d^-1 T)|^2.

    The logarithm is the twist (rotation, translation) that moves T_d to T in unit time, in the axes of T_d [rad, m].

    Attributes:
        target: T_d in the world [m].
        weight: w [1/rad, 1/m].
        frame: name of the link or frame; None: the chain's tip.
    """

    target: Float[Array, "*knots 4 4"] = eqx.field(metadata=one_per_knot(2), converter=as_floats)
    weight: Float[Array, "*#six"] = eqx.field(converter=as_floats, default=1.0)
    frame: str | None = eqx.field(static=True, default=None)

    def residual(self, chain: Chain, knot: Knot) -> Float[Array, " k"]:
        target = reference_at(self, "target", (4, 4), knot.k)
        return self.weight * pose_log(pose_inverse(target) @ frame_pose(chain, knot.q, self.frame))


class PointCost(Cost):
    """Cost 1/2 |w (p - p_d)|^2 of the origin p of `frame` (None: the tip); `target` p_d in world axes [m], `weight` w [1/m]."""

    target: Float[Array, "*knots 3"] = eqx.field(metadata=one_per_knot(1), converter=as_floats)
    weight: Float[Array, "*#three"] = eqx.field(converter=as_floats, default=1.0)
    frame: str | None = eqx.field(static=True, default=None)

    def residual(self, chain: Chain, knot: Knot) -> Float[Array, " k"]:
        return self.weight * (frame_pose(chain, knot.q, self.frame)[:3, 3] - reference_at(self, "target", (3,), knot.k))


class CentreOfMassCost(Cost):
    """Cost 1/2 |w (c - c_d)|^2 of the robot's centre of mass c; `target` c_d in world axes [m], `weight` w [1/m]."""

    target: Float[Array, "*knots 3"] = eqx.field(metadata=one_per_knot(1), converter=as_floats)
    weight: Float[Array, "*#three"] = eqx.field(converter=as_floats, default=1.0)

    def residual(self, chain: Chain, knot: Knot) -> Float[Array, " k"]:
        return self.weight * (centre_of_mass(chain, knot.q) - reference_at(self, "target", (3,), knot.k))


class ClearanceCost(Cost):
    """Cost 1/2 |w max(0, m - d)^2|^2 of the signed distances d of all pairs in `shapes.pairs` (see `geometry.distances`).

    It is zero beyond the margin m, and its second derivatives are continuous there.

    Attributes:
        margin: m [m].
        weight: w [1/m^2], one for all pairs or one per pair; the residual of a pair in contact is w m^2.
    """

    shapes: Shapes
    margin: Float[Array, "*#p"] = eqx.field(converter=as_floats)
    weight: Float[Array, "*#p"] = eqx.field(converter=as_floats, default=1.0)

    def residual(self, chain: Chain, knot: Knot) -> Float[Array, " k"]:
        lack = one_per_pair(self, "margin") - distances(chain, self.shapes, knot.q)
        return one_per_pair(self, "weight") * jnp.maximum(lack, 0) ** 2


class UserCost(Cost):
    """A user-defined cost, 1/2 |function(chain, knot, data)|^2.

    Attributes:
        function: (chain, knot, data) -> residual (k,); every new function object triggers recompilation.
        data: parameters of the function, as a pytree; its arrays are traced.
    """

    function: Callable[[Chain, Knot, Any], Array] = eqx.field(static=True)
    data: Any = None

    def residual(self, chain: Chain, knot: Knot) -> Float[Array, " k"]:
        return jnp.ravel(self.function(chain, knot, self.data))


class ScalarCost(Cost):
    """A user-defined scalar cost, function(chain, knot, data), which need not be a sum of squares; otherwise as `UserCost`."""

    function: Callable[[Chain, Knot, Any], Array] = eqx.field(static=True)
    data: Any = None

    def value(self, chain: Chain, knot: Knot) -> Float[Array, ""]:
        return self.function(chain, knot, self.data)

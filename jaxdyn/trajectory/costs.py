"""Costs of a motion: sums of 1/2 |residual|^2 over knots. Weights and targets are pytree leaves."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..dynamics import centre_of_mass, frame_pose
from ..errors import TrajectoryError
from ..model.chain import Chain
from ..model.configuration import difference
from ..spatial.se3 import pose_inverse, pose_log
from .knot import Knot, as_floats, reference_at


class Cost(eqx.Module):
    """A cost l(knot) = 1/2 |r(knot)|^2, whose residual r is defined by a subclass.

    Gauss-Newton methods approximate the Hessian by J_r^T J_r, where J_r is the Jacobian of r. A running cost is multiplied
    by dt and summed over knots 0 ... steps - 1; a terminal cost is evaluated at the last knot.
    """

    of_torque_rate: ClassVar[bool] = False  # True if the cost depends on `tau_before`
    is_scalar: ClassVar[bool] = False  # True if the cost has a value but no residual

    # True if each entry of the residual depends on a single entry of (q, v, tau) when all joints are ordinary, so that
    # J_r^T J_r is diagonal; must be False in subclasses with other residuals
    is_diagonal: ClassVar[bool] = False
    # attributes that may also have one row per knot, with their number of dimensions without the knot axis
    per_knot: ClassVar[Mapping[str, int]] = {}

    def residual(self, chain: Chain, knot: Knot) -> Float[Array, " k"]:
        """The residual r(knot), including weights."""
        raise NotImplementedError

    def value(self, chain: Chain, knot: Knot) -> Float[Array, ""]:
        """The cost l(knot)."""
        r = self.residual(chain, knot)
        return 0.5 * jnp.sum(r * r)


class StateCost(Cost):
    """Cost of the state, 1/2 |w_q (q - q_d)|^2 + 1/2 |w_v (v - v_d)|^2, with q - q_d = difference(chain, q_d, q).

    The weights multiply the differences before they are squared, so they are the square roots of conventional quadratic
    weights.

    Attributes:
        q: desired positions q_d, constant or one row per knot [rad or m].
        v: desired velocities v_d, constant or one row per knot [rad/s or m/s].
        position_weight: weight w_q, one per coordinate or one for all [1/rad or 1/m].
        velocity_weight: weight w_v, one per coordinate or one for all [s/rad or s/m].
    """

    is_diagonal: ClassVar[bool] = True
    per_knot: ClassVar[Mapping[str, int]] = {"q": 1, "v": 1}
    q: Float[Array, "*knots nq"] = eqx.field(converter=as_floats)
    v: Float[Array, "*knots nv"] = eqx.field(converter=as_floats)
    position_weight: Float[Array, "*#nv"] = eqx.field(converter=as_floats, default=1.0)
    velocity_weight: Float[Array, "*#nv"] = eqx.field(converter=as_floats, default=1.0)

    def residual(self, chain: Chain, knot: Knot) -> Float[Array, " k"]:
        dq = difference(chain, reference_at(self, "q", knot.q.shape, knot.k), knot.q)
        dv = knot.v - reference_at(self, "v", knot.v.shape, knot.k)
        return jnp.concatenate([self.position_weight * dq, self.velocity_weight * dv])


class TorqueCost(Cost):
    """Cost of torques, 1/2 |w (tau - tau_d)|^2.

    Attributes:
        weight: weight w, one per coordinate or one for all [1/(N m) or 1/N].
        reference: desired torques tau_d, constant or one row per knot [N m or N].
    """

    is_diagonal: ClassVar[bool] = True
    per_knot: ClassVar[Mapping[str, int]] = {"reference": 1}
    weight: Float[Array, "*#nv"] = eqx.field(converter=as_floats, default=1.0)
    reference: Float[Array, "*knots"] = eqx.field(converter=as_floats, default=0.0)

    def residual(self, chain: Chain, knot: Knot) -> Float[Array, " k"]:
        if self.reference.ndim == 0:
            return self.weight * (knot.tau - self.reference)
        return self.weight * (knot.tau - reference_at(self, "reference", knot.tau.shape, knot.k))


class TorqueRateCost(Cost):
    """Cost of the torque rate, 1/2 |w (tau_k - tau_{k-1}) / dt|^2, where tau_{-1} is the problem's `tau0`.

    Attributes:
        weight: weight w, one per coordinate or one for all [s/(N m) or s/N].
    """

    of_torque_rate: ClassVar[bool] = True
    weight: Float[Array, "*#nv"] = eqx.field(converter=as_floats, default=1.0)

    def residual(self, chain: Chain, knot: Knot) -> Float[Array, " k"]:
        return self.weight * ((knot.tau - knot.tau_before) / knot.dt)


class PoseCost(Cost):
    """Cost of a frame's pose T, 1/2 |w log(T_d^-1 T)|^2.

    The logarithm log(T_d^-1 T) is the twist (rotation, translation) that moves T_d to T in unit time, in the axes of T_d [rad,
    m].

    Attributes:
        target: desired pose T_d in the world, constant or one pose per knot [m].
        weight: weight w, one per component of the twist or one for all [1/rad, 1/m].
        frame: name of the link or frame; None: the chain's tip.
    """

    per_knot: ClassVar[Mapping[str, int]] = {"target": 2}
    target: Float[Array, "*knots 4 4"] = eqx.field(converter=as_floats)
    weight: Float[Array, "*#six"] = eqx.field(converter=as_floats, default=1.0)
    frame: str | None = eqx.field(static=True, default=None)

    def residual(self, chain: Chain, knot: Knot) -> Float[Array, " k"]:
        target = reference_at(self, "target", (4, 4), knot.k)
        return self.weight * pose_log(pose_inverse(target) @ frame_pose(chain, knot.q, self.frame))


class PointCost(Cost):
    """Cost of the position p of a frame's origin, 1/2 |w (p - p_d)|^2, in world axes.

    Attributes:
        target: desired position p_d, constant or one row per knot [m].
        weight: weight w, one per axis or one for all [1/m].
        frame: name of the link or frame; None: the chain's tip.
    """

    per_knot: ClassVar[Mapping[str, int]] = {"target": 1}
    target: Float[Array, "*knots 3"] = eqx.field(converter=as_floats)
    weight: Float[Array, "*#three"] = eqx.field(converter=as_floats, default=1.0)
    frame: str | None = eqx.field(static=True, default=None)

    def residual(self, chain: Chain, knot: Knot) -> Float[Array, " k"]:
        return self.weight * (frame_pose(chain, knot.q, self.frame)[:3, 3] - reference_at(self, "target", (3,), knot.k))


class CentreOfMassCost(Cost):
    """Cost of the robot's centre of mass c, 1/2 |w (c - c_d)|^2, in world axes.

    Attributes:
        target: desired position c_d, constant or one row per knot [m].
        weight: weight w, one per axis or one for all [1/m].
    """

    per_knot: ClassVar[Mapping[str, int]] = {"target": 1}
    target: Float[Array, "*knots 3"] = eqx.field(converter=as_floats)
    weight: Float[Array, "*#three"] = eqx.field(converter=as_floats, default=1.0)

    def residual(self, chain: Chain, knot: Knot) -> Float[Array, " k"]:
        return self.weight * (centre_of_mass(chain, knot.q) - reference_at(self, "target", (3,), knot.k))


class UserCost(Cost):
    """A user-defined cost, 1/2 |function(chain, knot, data)|^2.

    Attributes:
        function: (chain, knot, data) -> residual of shape (k,); every new function object triggers recompilation.
        data: parameters of the function, as a pytree; its arrays are traced.
    """

    function: Callable[[Chain, Knot, Any], Array] = eqx.field(static=True)
    data: Any = None

    def residual(self, chain: Chain, knot: Knot) -> Float[Array, " k"]:
        return jnp.ravel(self.function(chain, knot, self.data))


class ScalarCost(Cost):
    """A user-defined scalar cost, function(chain, knot, data).

    A scalar cost has no residual, so solvers use its exact Hessian, made positive semidefinite if necessary.

    Attributes:
        function: (chain, knot, data) -> cost, a scalar; every new function object triggers recompilation.
        data: parameters of the function, as a pytree; its arrays are traced.
    """

    is_scalar: ClassVar[bool] = True
    function: Callable[[Chain, Knot, Any], Array] = eqx.field(static=True)
    data: Any = None

    def residual(self, chain: Chain, knot: Knot) -> Float[Array, " k"]:
        raise TrajectoryError("a ScalarCost has no residual; for Gauss-Newton methods, write it as a UserCost")

    def value(self, chain: Chain, knot: Knot) -> Float[Array, ""]:
        return self.function(chain, knot, self.data)

"""Constraints on a chain: between two frames, between a frame and the world, on the configuration, or on the velocities."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...errors import ModelError
from ...spatial._host import Values, pose_of
from .._build import check_pose
from .._chain import Chain

ROWS = ("rx", "ry", "rz", "x", "y", "z")


class FrameConstraint(eqx.Module):
    """Constraint that a frame of the robot coincides with another frame, or with a frame fixed in the world.

    The constrained frames a and b have the fixed poses P in `frame` and P_b in `other`, and hence the world poses
    T_a = T_frame P and T_b = T_other P_b. With E = T_b^-1 T_a, the residual is (log R_E, p_E) [rad, m], the rotation vector
    and position of a relative to b, in the axes of b. Only the components in `rows` are constrained. Create a constraint with
    `point_constraint` or `pose_constraint`.

    Attributes:
        pose: P, the pose of the constrained frame a in `frame` [m].
        other_pose: P_b, the pose of the constrained frame b in `other`, or in the world [m].
        frame: link or frame of the robot; the chain's tip if None.
        other: link or frame with which `frame` coincides; the world if None.
        rows: indices of the constrained components in (rx, ry, rz, x, y, z), counted from 0.
    """

    pose: Float[Array, "4 4"]
    other_pose: Float[Array, "4 4"]
    frame: str | None = eqx.field(static=True)
    other: str | None = eqx.field(static=True)
    rows: tuple[int, ...] = eqx.field(static=True)


class FunctionConstraint(eqx.Module):
    """Constraint phi(chain, q, parameters) = 0, where phi is a differentiable user-defined function that returns a vector.

    Attributes:
        parameters: pytree of arrays passed to the function; results can be differentiated with respect to them.
        function: the function phi; pass the same object in every call, since a new object makes jitted functions recompile.
    """

    parameters: Any
    function: Callable[[Chain, Array, Any], Array] = eqx.field(static=True)


class PfaffianConstraint(eqx.Module):
    """Velocity constraint A(chain, q, parameters) qd = 0, in general nonholonomic, as for rolling contact or a knife edge.

    In constrained dynamics, A takes the place of the Jacobian J of a holonomic constraint, and dA/dt that of dJ/dt. Positions
    are not constrained:

    - `constraint_residual` is 0;
    - `project_configuration` moves only in directions that satisfy the constraint;
    - `project_velocity` enforces and `constrained_rollout` maintains A qd = 0;
    - stabilisation acts only on velocities.

    Attributes:
        parameters: pytree of arrays passed to the function; results can be differentiated with respect to them.
        function: the function A, which returns an (m, nv) matrix; pass the same object in every call, since a new object makes
            jitted functions recompile.
    """

    parameters: Any
    function: Callable[[Chain, Array, Any], Array] = eqx.field(static=True)


Constraint = FrameConstraint | FunctionConstraint | PfaffianConstraint
Constraints = Constraint | Sequence[Constraint]


def point_constraint(
    frame: str | None,
    other: str | None = None,
    *,
    point: Values = (0.0, 0.0, 0.0),
    other_point: Values = (0.0, 0.0, 0.0),
    axes: str = "xyz",
) -> FrameConstraint:
    """Constraint that a point of one frame coincides with a point of another frame or of the world.

    Examples are a pin, a ball joint and a point foot.

    Args:
        frame: link or frame of the robot; the chain's tip if None.
        other: link or frame at which the loop is closed; the world if None.
        point: the point in `frame` [m].
        other_point: the point in `other`, or in the world [m].
        axes: the constrained axes of `other`. For a planar loop, pass the two axes of the plane of motion ("xz" if the joints
            turn about y), since the third would be redundant. For a point that slides on a line or plane, pass only the axes
            along which it cannot move.

    Raises:
        ModelError: `axes` is empty, or contains a repeated axis or an axis other than x, y and z.
    """
    here, there = (pose_of(translation=np.asarray(x, float)) for x in (point, other_point))
    return pose_constraint(frame, other, pose=here, other_pose=there, rows=" ".join(axes))


def pose_constraint(
    frame: str | None,
    other: str | None = None,
    *,
    pose: Values | None = None,
    other_pose: Values | None = None,
    rows: str = "rx ry rz x y z",
) -> FrameConstraint:
    """Constraint that one frame coincides with another frame, or with a frame fixed in the world.

    Examples are a weld, a flat foot on the ground and a hand on a handle.

    Args:
        frame: link or frame of the robot; the chain's tip if None.
        other: link or frame at which the loop is closed; the world if None.
        pose: 4x4 pose of the constrained frame in `frame` [m]; the identity if None.
        other_pose: 4x4 pose of the other constrained frame in `other`, or in the world [m]; the identity if None.
        rows: the constrained components among rx, ry, rz (rotation) and x, y, z (position), in the axes of `other_pose`.

    Raises:
        ModelError: `rows` is empty, or contains an unknown or repeated component; a matrix is not a pose.
    """
    names = rows.split()
    if not names or len(set(names)) != len(names) or not set(names) <= set(ROWS):
        raise ModelError(f"rows of a constraint must be among {' '.join(ROWS)}, without repetition, not {rows!r}")
    poses = [np.eye(4) if t is None else np.asarray(t, float) for t in (pose, other_pose)]
    for name, t in zip(("pose", "other_pose"), poses, strict=True):
        check_pose(f"a constraint's {name}", t)
    return FrameConstraint(
        pose=jnp.asarray(poses[0]),
        other_pose=jnp.asarray(poses[1]),
        frame=frame,
        other=other,
        rows=tuple(ROWS.index(name) for name in names),
    )


def listed(constraints: Constraints) -> tuple[Constraint, ...]:
    """Return one constraint, or a sequence of constraints, as a tuple.

    Raises:
        ModelError: the sequence is empty.
    """
    several = (constraints,) if isinstance(constraints, Constraint) else tuple(constraints)
    if not several:
        raise ModelError("there is no constraint; for an unconstrained robot use forward_dynamics and rollout")
    return several


def coordinate_columns(chain: Chain, chosen: Sequence[str | int]) -> np.ndarray:
    """Indices in v of coordinates that are specified by name (for one-degree-of-freedom joints) or by index.

    Raises:
        ModelError: a coordinate is unknown or repeated.
    """
    names = chain.topology.coordinate_names or (chain.joint_names if chain.coupling is None else ())
    columns = []
    for which in chosen:
        if isinstance(which, str) and which not in names:
            raise ModelError(f"unknown coordinate {which!r}; the coordinates are {', '.join(names) or 'unnamed'}")
        column = names.index(which) if isinstance(which, str) else int(which)
        if not 0 <= column < chain.nv:
            raise ModelError(f"unknown coordinate {column}; the coordinates are numbered from 0 to {chain.nv - 1}")
        columns.append(column)
    if len(set(columns)) != len(columns):
        raise ModelError(f"a coordinate is named twice in {tuple(chosen)}; name each one once")
    return np.array(columns, int)

"""Constraints on a chain, between two frames, between a frame and the world, on the configuration or on the velocities; and a
base that translates in space, on three additional prismatic joints.
"""

import dataclasses
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from ..spatial.components import Values
from .build import JOINT_LEAVES, check_pose, pose_of
from .chain import Chain, Coupling, Topology, with_leaves

ROWS = ("rx", "ry", "rz", "x", "y", "z")


class FrameConstraint(eqx.Module):
    """Constraint that a frame of the robot coincides with another frame, or with a frame fixed in the world.

    The constrained frames a and b have the fixed poses P in `frame` and P_b in `other`, and hence the world poses
    T_a = T_frame P and T_b = T_other P_b. With E = T_b^-1 T_a, the residual is (log R_E, p_E) [rad, m], the rotation vector
    and position of a relative to b, in the axes of b. Create a constraint with `point_constraint` or `pose_constraint`.

    Attributes:
        pose: P [m].
        other_pose: P_b [m].
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

    Results can be differentiated with respect to the pytree `parameters`. Pass the same `function` in every call, since a new
    object makes jitted functions recompile.
    """

    parameters: Any
    function: Callable[[Chain, Array, Any], Array] = eqx.field(static=True)


class PfaffianConstraint(eqx.Module):
    """Velocity constraint A(chain, q, parameters) qd = 0, in general nonholonomic, as for rolling contact or a knife edge.

    `function` returns the matrix A (m, nv), which takes the place of the Jacobian J of a holonomic constraint in
    constrained dynamics, and dA/dt that of dJ/dt. Positions are not constrained: `constraint_residual` is 0,
    `project_configuration` moves only in directions that satisfy the constraint, and stabilisation acts only on
    velocities. `project_velocity` enforces and `constrained_rollout` maintains A qd = 0.
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
    """Constraint that a point of one frame coincides with a point of another frame or of the world: a pin, a ball joint.

    Args:
        frame: the first frame; the chain's tip if None.
        other: the second frame; the world if None.
        point: the point in `frame` [m].
        other_point: the point in `other`, or in the world [m].
        axes: the constrained axes of `other`. For a planar loop, pass the two axes of the plane of motion ("xz" if the
            joints turn about y), since the third would be redundant. For a point that slides on a line or plane, pass
            only the axes along which it cannot move.

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
    """Constraint that one frame coincides with another frame, or with a frame fixed in the world: a weld, a flat foot.

    Args:
        frame: the first frame; the chain's tip if None.
        other: the second frame; the world if None.
        pose: 4x4 pose of the constrained frame in `frame` [m].
        other_pose: 4x4 pose of the other constrained frame in `other`, or in the world [m].
        rows: the constrained components among rx, ry, rz (rotation) and x, y, z (position), in the axes of
            `other_pose`.

    Raises:
        ModelError: `rows` is empty, or contains an unknown or repeated component; a matrix is not a pose.
    """
    names = rows.split()
    if not names or len(set(names)) != len(names) or not set(names) <= set(ROWS):
        raise ModelError(f"rows of a constraint must be among {' '.join(ROWS)}, without repetition, not {rows!r}")
    poses = {
        name: jnp.asarray(np.eye(4) if t is None else check_pose(f"a constraint's {name}", t))
        for name, t in (("pose", pose), ("other_pose", other_pose))
    }
    return FrameConstraint(**poses, frame=frame, other=other, rows=tuple(ROWS.index(name) for name in names))


def listed(constraints: Constraints) -> tuple[Constraint, ...]:
    """Return one constraint, or a sequence of constraints, as a tuple; raise an error if it is empty."""
    several = (constraints,) if isinstance(constraints, Constraint) else tuple(constraints)
    if not several:
        raise ModelError("there is no constraint; for an unconstrained robot use forward_dynamics and rollout")
    return several


def coordinate_columns(chain: Chain, chosen: Sequence[str | int]) -> np.ndarray:
    """Indices in v of distinct coordinates that are specified by name (for one-degree-of-freedom joints) or by index."""
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


AXES = ("base_x", "base_y", "base_z")


def with_moving_base_point(chain: Chain) -> Chain:
    """Prepend the Cartesian coordinates of the base origin to those of a robot: q_e = (x0, y0, z0, q).

    The base is carried by three prismatic joints along the world axes, with massless links; it does not rotate. The
    mass matrix becomes [[m eye(3), m J_c], [m J_c^T, M(q)]], with the total mass m and the Jacobian J_c of the centre
    of mass. The first three generalised forces are the components of the force that supports the base [N].

    The third massless link takes the name of the base, whose mass is not included. Of `base_pose`, only the rotation
    remains.

    Raises:
        ModelError: the robot has a free joint, or a joint, link or frame with one of the new names.
    """
    old = chain.topology
    if old.is_floating:
        raise ModelError("the robot has a free joint, whose coordinates already include the position of the base")
    links = (*AXES[:2], old.base_name)
    world = "world" if old.base_name != "world" else "fixed_world"
    taken = (set(AXES) & set(old.joint_names)) | ({*AXES[:2], world} & {*old.link_names, *old.frame_names, *links[2:]})
    if taken:
        fault = (
            f"the robot has a joint, link or frame called {sorted(taken)[0]!r}, which is reserved for the base point"
        )
        raise ModelError(fault, "rename it")
    topology = Topology(
        joint_names=(*AXES, *old.joint_names),
        link_names=(*links, *old.link_names),
        parents=(-1, 0, 1, *(p + 3 for p in old.parents)),
        frame_names=old.frame_names,
        frame_links=tuple(k + 3 for k in old.frame_links),
        base_name=world,
        tip_name=old.tip_name,
        compound_joints=tuple((link + 3, kind) for link, kind in old.compound_joints),
        coordinate_names=None if old.coordinate_names is None else (*AXES, *old.coordinate_names),
    )
    base = jnp.eye(3, dtype=chain.dtype) if chain.base_pose is None else chain.base_pose[:3, :3].astype(chain.dtype)
    straight = jnp.broadcast_to(jnp.eye(3, dtype=chain.dtype), (2, 3, 3))
    # the third link is the base: in its frame, the world's z axis is R^T e_z
    slides = jnp.concatenate([jnp.eye(2, 3, dtype=chain.dtype), base[2][None]])
    front: dict[str, Any] = {
        "rotation": jnp.concatenate([straight, base[None]]),
        "translation": 0.0,
        "screw": jnp.concatenate([jnp.zeros_like(slides), slides], axis=1),
        "inertia": 0.0,
        **JOINT_LEAVES,
    }
    longer = with_leaves(chain, {name: _stack(values, attrgetter(name)(chain)) for name, values in front.items()})
    coupling, transmission = chain.coupling, chain.transmission
    if coupling is not None:
        rows, columns = coupling.matrix.shape
        matrix = jnp.zeros((rows + 3, columns + 3), coupling.matrix.dtype).at[3:, 3:].set(coupling.matrix)
        coupling = Coupling(matrix.at[:3, :3].set(jnp.eye(3, dtype=matrix.dtype)), _stack(0.0, coupling.offset))
    if transmission is not None:
        ratios = jnp.pad(transmission.matrix, ((0, 0), (3, 0)))
        transmission = eqx.tree_at(lambda t: t.matrix, transmission, ratios)
    return dataclasses.replace(longer, topology=topology, base_pose=None, coupling=coupling, transmission=transmission)


def _stack(first: Any, rest: Array) -> Array:
    """Prepend three rows to an array; `first` contains these rows, or one value for all their entries."""
    rows = jnp.broadcast_to(jnp.asarray(first, rest.dtype), (3, *rest.shape[1:]))
    return jnp.concatenate([rows, rest])

"""Chains from Denavit-Hartenberg tables, standard or modified."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from ..errors import ModelError
from ..spatial._host import Values, adjoint, pose_inverse
from ._build import check_pose, make_chain
from ._chain import Chain
from ._rounded import meant_angle, with_unrounded
from ._screws import with_tip


def from_dh(
    a: Values,
    alpha: Values,
    d: Values,
    theta: Values,
    *,
    inertia: Values | None = None,
    convention: Literal["standard", "modified"] = "standard",
    joint_types: str | Sequence[str] | None = None,
    base_pose: Values | None = None,
    tool_pose: Values | None = None,
    **leaves: Any,
) -> Chain:
    """Build a chain from a Denavit-Hartenberg table, one row per joint.

    The joint position q_i is added to theta_i (revolute joints) or to d_i (prismatic joints).

    Standard convention (Spong, Hutchinson & Vidyasagar 2020, sec. 3.2): T_{i-1,i} = Rz(theta_i) Tz(d_i) Tx(a_i)
    Rx(alpha_i); the axis of joint i is z_{i-1}, and frame i is at the distal end of the link.

    Modified convention (Craig 2005, sec. 3.4): T_{i-1,i} = Rx(alpha_{i-1}) Tx(a_{i-1}) Rz(theta_i) Tz(d_i); the
    axis of joint i is z_i, and row i of the table contains a_{i-1} and alpha_{i-1}.

    The link frames of the chain are the DH frames 1..n, to which poses, inertial parameters and the regressor refer. In
    the standard convention, the joint axis does not in general pass through the origin of the link frame: A_i =
    Ad(T^-1) (z, 0) with T = T_{i-1,i} at q = 0.

    Args:
        a: link lengths [m], (n,).
        alpha: link twists [rad], (n,).
        d: link offsets [m], (n,); for prismatic joints, the values at q = 0.
        theta: joint angles [rad], (n,); for revolute joints, the values at q = 0.
        inertia: ten inertial parameters per link about the origin of its DH frame, (n, 10) [kg, kg m, kg m^2] (see
            `jaxdyn.spatial.solids`); None for zeros, for example before identification.
        joint_types: "R" (revolute) or "P" (prismatic) for each joint, as in "RRP"; None if all are revolute.
        base_pose: pose of DH frame 0 in the base [m]; None if the two frames coincide.
        tool_pose: pose of a tool in DH frame n [m]; it becomes the frame "tool", which is the chain's tip.
        leaves: other arguments of `make_chain`: topology, frames, friction, armature, limits, gravity.

    Raises:
        ModelError: columns have different lengths; the convention or a joint type is unknown; a pose is not a rigid
            motion; also the errors of `make_chain`.
    """
    columns = {"a": a, "alpha": alpha, "d": d, "theta": theta}
    table = {name: np.atleast_1d(np.asarray(x, float)) for name, x in columns.items()}
    n = table["a"].size
    for name, x in table.items():
        if x.shape != (n,):
            raise ModelError(f"the DH column {name} has shape {x.shape}, but a has {n} entries; pass one per joint")
    types = "R" * n if joint_types is None else "".join(joint_types)
    if len(types) != n:
        raise ModelError(f"{len(types)} joint types ({types}) are given for the {n} rows of the DH table")
    unknown = set(types) - set("RP")
    if unknown:
        raise ModelError(f"unknown joint type {sorted(unknown)[0]!r}; use R (revolute) or P (prismatic)")
    if convention not in ("standard", "modified"):
        raise ModelError(f"unknown DH convention {convention!r}; it must be 'standard' or 'modified' (Craig's)")
    base = np.eye(4) if base_pose is None else np.asarray(base_pose, float)
    check_pose("base_pose", base)
    pose, screw = _placed(table, types, convention, base)
    if tool_pose is not None:
        tool = np.asarray(tool_pose, float)
        check_pose("tool_pose", tool)
        leaves |= with_tip(n, leaves, "tool", tool)
    chain = make_chain(
        pose[:, :3, :3], pose[:, :3, 3], screw, np.zeros((n, 10)) if inertia is None else inertia, **leaves
    )
    meant = {name: np.array([meant_angle(x) for x in table[name].tolist()]) for name in ("alpha", "theta")}
    pose, screw = _placed(table | meant, types, convention, base)
    return with_unrounded(chain, pose[:, :3, :3], pose[:, :3, 3], screw)


def _placed(
    table: Mapping[str, np.ndarray], types: str, convention: str, base: np.ndarray
) -> tuple[Float[np.ndarray, "n 4 4"], Float[np.ndarray, "n 6"]]:
    """Placements and screws of the rows of a DH table."""
    n = len(types)
    pose, screw = np.empty((n, 4, 4)), np.empty((n, 6))
    for i in range(n):
        length_twist = _screw_motion(0, table["alpha"][i], table["a"][i])
        angle_offset = _screw_motion(2, table["theta"][i], table["d"][i])
        axis = np.eye(6)[2 if types[i] == "R" else 5]
        if convention == "standard":
            pose[i] = angle_offset @ length_twist
            screw[i] = adjoint(pose_inverse(pose[i])) @ axis
        else:
            pose[i] = length_twist @ angle_offset
            screw[i] = axis
    pose[0] = base @ pose[0]
    return pose, screw


def _screw_motion(axis: int, angle: float, distance: float) -> np.ndarray:
    """Rotation about a coordinate axis and translation along it; the two commute."""
    t = np.eye(4)
    j, k = (axis + 1) % 3, (axis + 2) % 3
    t[j, j] = t[k, k] = np.cos(angle)
    t[k, j] = np.sin(angle)
    t[j, k] = -t[k, j]
    t[axis, 3] = distance
    return t

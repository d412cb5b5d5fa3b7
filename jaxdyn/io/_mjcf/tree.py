"""The moving links of a compiled MuJoCo model, in MuJoCo's order, with bodies and sites as named frames.

MuJoCo applies the joints of a body one after the other, in the frame of the body. The screw A_j of joint j is therefore the
joint's axis through its anchor, and the frame of its link coincides with the frame of the body. Since the body has the pose
in the file at q = qpos0, the placement M_j of the link at q = 0 contains the factor exp(-[A_j] qpos0). A ball joint rotates
about its anchor, which is the origin of the frames of its links; a body with another origin becomes a named frame.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ...errors import ModelError
from ...model._rounded import meant_rotation, meant_unit, written_unit
from ...spatial._host import move_inertia, pose_of, rotation_about
from .._urdf.elements import fresh
from .features import BALL, FREE, SLIDE

_TWIST = ("wx", "wy", "wz", "vx", "vy", "vz")


class Link(NamedTuple):
    """A joint with one degree of freedom, and its link: names, parent, pose in the parent at q = 0, screw, and the indices
    of the joint and the degree of freedom in MuJoCo."""

    joint_name: str
    name: str
    parent: int
    placement: Float[np.ndarray, "4 4"]
    screw: Float[np.ndarray, "6"]
    joint: int
    dof: int


class Tree(NamedTuple):
    """Links and their inertial parameters, named frames (link, pose), quaternion joints (first link, size), and base name."""

    links: list[Link]
    inertia: Float[np.ndarray, "n 10"]
    frames: dict[str, tuple[int, np.ndarray]]
    quaternion_joints: list[tuple[int, int]]
    base: str


_PLACES = {"body": ("pos", "quat", "ipos", "iquat"), "joint": ("pos", "axis"), "site": ("pos", "quat")}


def tree_of(model: Any, meant: bool = False) -> Tree:
    """Convert a model to a tree of links.

    Bodies without joints are fused with their parents: their inertia is added, except to the world.

    Args:
        meant: read rounded rotations and axes as those for which they stand.

    Raises:
        ModelError: the pose of a body, joint or site contains NaN or infinity, which MuJoCo's compiler accepts.
    """
    _check_places(model)
    taken: set[str] = set()
    joint_names: set[str] = set()
    bodies = body_names(model)
    taken.update(bodies)
    joints = [model.joint(j).name or f"joint{j}" for j in range(model.njnt)]
    links: list[Link] = []
    quaternions: list[tuple[int, int]] = []
    frames: dict[str, tuple[int, np.ndarray]] = {}
    carrier, poses, about_bodies = [-1], [np.eye(4)], []
    for b in range(1, model.nbody):
        above = int(model.body_parentid[b])
        local, quaternion = pose_matrix(model.body_pos[b], model.body_quat[b]), np.asarray(model.body_quat[b])
        if meant:
            local[:3, :3] = meant_rotation(quaternion / np.linalg.norm(quaternion))
        link, pose = carrier[above], poses[above] @ local
        first = int(model.body_jntadr[b])
        own = range(first, first + int(model.body_jntnum[b]))
        for j in own:
            parts, after = _parts(model, j, pose, meant)
            is_body = j == own[-1] and after is None
            if len(parts) > 1:
                quaternions.append((len(links), len(parts)))
            for k, (placement, screw, dof) in enumerate(parts):
                suffix = f"_{_TWIST[k]}" if len(parts) > 1 else ""
                last = is_body and k == len(parts) - 1
                name = bodies[b] if last else fresh(f"{bodies[b]}_{joints[j]}{suffix}", taken)
                joint = fresh(joints[j] + suffix, joint_names)
                links.append(Link(joint, name, link, placement, screw, j, dof))
                link = len(links) - 1
            pose = np.eye(4) if after is None else after
        if not own or links[link].name != bodies[b]:
            frames[bodies[b]] = (link, pose)
        carrier.append(link)
        poses.append(pose)
        about = pose @ pose_matrix(model.body_ipos[b], model.body_iquat[b])
        about_bodies.append((link, move_inertia(_about_com(model, b), about)))
    inertia = np.zeros((len(links), 10))
    for link, pi in about_bodies:
        if link >= 0:
            inertia[link] += pi
    for s in range(model.nsite):
        name = model.site(s).name or f"site{s}"
        name = fresh(f"{name}_site" if name in taken else name, taken)
        b = int(model.site_bodyid[s])
        frames[name] = (carrier[b], poses[b] @ pose_matrix(model.site_pos[s], model.site_quat[s]))
    return Tree(links, inertia, frames, quaternions, bodies[0])


def body_names(model: Any) -> list[str]:
    """Names of the bodies in the chain, in the order of MuJoCo's body indices."""
    taken: set[str] = set()
    return [fresh(model.body(b).name or f"body{b}", taken) for b in range(model.nbody)]


def _parts(
    model: Any, j: int, pose: np.ndarray, meant: bool
) -> tuple[list[tuple[np.ndarray, np.ndarray, int]], np.ndarray | None]:
    """Split joint j, whose body is at `pose`, into links. Return the placement, screw and degree of freedom of each link,
    and the pose of the body in the last link, or None for the identity."""
    kind, anchor, axis = int(model.jnt_type[j]), np.array(model.jnt_pos[j]), np.array(model.jnt_axis[j])
    dof, unit = int(model.jnt_dofadr[j]), np.eye(6)
    if meant and axis.any():
        written = written_unit(axis)
        axis = meant_unit(axis if written is None else written)
    if kind == FREE:  # q contains the entire pose; MuJoCo orders linear before angular velocities
        return [(np.eye(4), unit[k], dof + (k + 3) % 6) for k in range(6)], None
    if kind == BALL:
        there = pose_of(translation=anchor)
        parts = [(pose @ there if k == 0 else np.eye(4), unit[k], dof + k) for k in range(3)]
        return parts, pose_of(translation=-anchor) if anchor.any() else None
    q0 = float(model.qpos0[model.jnt_qposadr[j]])
    if kind == SLIDE:
        return [(pose @ pose_of(translation=-q0 * axis), np.concatenate([np.zeros(3), axis]), dof)], None
    turn = rotation_about(axis, -q0)
    motion = pose_of(turn, anchor - turn @ anchor)
    return [(pose @ motion, np.concatenate([axis, np.cross(anchor, axis)]), dof)], None


def _about_com(model: Any, b: int) -> np.ndarray:
    """The ten inertial parameters of a body about its centre of mass, in its principal axes."""
    x, y, z = model.body_inertia[b]
    return np.array([model.body_mass[b], 0, 0, 0, x, 0, y, 0, 0, z])


def pose_matrix(position: np.ndarray, quaternion: np.ndarray) -> np.ndarray:
    """Compute the pose matrix (4, 4) of a position and a quaternion (w, x, y, z) of any nonzero length."""
    w, x, y, z = np.asarray(quaternion) / np.linalg.norm(quaternion)
    rotation = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return pose_of(rotation, position)


def _check_places(model: Any) -> None:
    counts = {"body": model.nbody, "joint": model.njnt, "site": model.nsite}
    for kind, fields in _PLACES.items():
        for i in range(counts[kind]):
            item = getattr(model, kind)(i)
            for field in fields:
                if not np.all(np.isfinite(value := getattr(item, field))):
                    raise ModelError(
                        f"{kind} {item.name!r} has {field} = {np.array2string(value)}; specify finite numbers"
                    )

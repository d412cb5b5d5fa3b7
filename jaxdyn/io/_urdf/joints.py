"""Split planar and floating URDF joints into joints with one degree of freedom, and couple mimic joints."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ...errors import ModelError
from ...model._build import JOINT_LEAVES
from ...model._chain import Coupling
from .document import Node, fail
from .elements import fresh
from .tree import Joint, Layout, Link, Robot, fuse

FREE = ("wx", "wy", "wz", "vx", "vy", "vz")


class Arrangement(NamedTuple):
    """The structure of a chain: layout, base name, free joints as (first link, 6), coupling of mimic joints, coordinates."""

    layout: Layout
    root: str
    quaternion_joints: tuple[tuple[int, int], ...]
    coupling: Coupling | None
    coordinate_names: tuple[str, ...] | None


def arrange(
    robot: Robot,
    lock: Mapping[str, float] | None = None,
    tip: str | None = None,
    floating_base: bool | str = False,
    ignore_mimic: bool = False,
) -> Arrangement:
    """Split joints, fuse fixed links and couple mimic joints. The arguments and errors are those of `jaxdyn.load`."""
    if ignore_mimic:
        robot = _without_mimics(robot)
    else:
        _check_mimics(robot)
    robot, free = expand(robot, floating_base)
    for name in lock or {}:
        joint = next((whole for whole in free if name in free[whole]), None)
        if joint is not None:
            raise ModelError(
                f"{robot.source}: lock contains {name!r}, a part of the free joint {joint!r}, which cannot be locked"
            )
    layout = fuse(robot, lock, tip)
    coupling, coordinates = coupling_of(layout.joints, robot.source)
    names = [joint.name for joint in layout.joints]
    quaternions = tuple((names.index(parts[0]), 6) for parts in free.values() if parts[0] in names)
    return Arrangement(layout, robot.root, quaternions, coupling, coordinates)


def expand(robot: Robot, floating_base: bool | str = False) -> tuple[Robot, dict[str, tuple[str, ...]]]:
    """Split planar and floating joints. Return the robot, and the names of the parts of every free joint.

    A planar joint J becomes two prismatic joints J_x and J_y in its plane and a revolute joint J. A floating joint J
    becomes the six parts of a free joint: J_wx, J_wy, J_wz, J_vx, J_vy and J_vz. The links between the parts are massless.

    Args:
        floating_base: name of a free joint to insert above the root link, or True for a default name.

    Raises:
        ModelError: a floating joint is not at the root, or the name is already used.
    """
    if floating_base:
        robot = _on_free_joint(robot, floating_base)
    links, joints, outward = dict(robot.links), dict(robot.joints), []
    free: dict[str, tuple[str, ...]] = {}
    for joint in robot.outward:
        if joint.kind == "planar":
            across = _basis(joint.axis)
            parts = [(fresh(f"{joint.name}_{x}", set(joints)), "prismatic", across[i]) for i, x in enumerate("xy")]
            parts.append((joint.name, "continuous", joint.axis))
        elif joint.kind == "floating":
            if joint.parent != robot.root or np.abs(joint.origin - np.eye(4)).max() > 0:
                raise fail(
                    joint.node,
                    f"joint {joint.name!r} is floating, but not relative to the origin of the root {robot.root!r}: floating "
                    "joints are supported only there; attach the joint to the root, without <origin>",
                )
            kinds = ["continuous"] * 3 + ["prismatic"] * 3
            parts = [
                (fresh(f"{joint.name}_{x}", set(joints)), kind, np.eye(3)[i % 3])
                for i, (x, kind) in enumerate(zip(FREE, kinds, strict=True))
            ]
            free[joint.name] = tuple(name for name, _, _ in parts)
        else:
            outward.append(joint)
            continue
        del joints[joint.name]
        parent, origin = joint.parent, joint.origin
        for name, kind, axis in parts:
            last = name == parts[-1][0]
            child = joint.child if last else fresh(f"{joint.child}_{name.removeprefix(joint.name + '_')}", set(links))
            if not last:
                links[child] = Link(child, None, joint.node)
            part = _free_of_limits(joint, name, kind, axis, parent, child, origin)
            joints[name] = part
            outward.append(part)
            parent, origin = child, np.eye(4)
    return dataclasses.replace(robot, links=links, joints=joints, outward=tuple(outward)), free


def coupling_of(joints: Sequence[Joint], source: str) -> tuple[Coupling | None, tuple[str, ...] | None]:
    """Compute the coupling of mimic joints, q_mimic = multiplier q + offset, and the names of the independent coordinates.

    Raises:
        ModelError: a joint mimics an unknown joint, or joints mimic each other cyclically.
    """
    if all(joint.mimic is None for joint in joints):
        return None, None
    index = {joint.name: i for i, joint in enumerate(joints)}
    own = [i for i, joint in enumerate(joints) if joint.mimic is None]
    matrix, offset = np.zeros((len(joints), len(own))), np.zeros(len(joints))
    for column, i in enumerate(own):
        matrix[i, column] = 1.0
    for i, joint in enumerate(joints):
        ratio, shift, here, seen = 1.0, 0.0, joint, set()
        while here.mimic is not None:
            master, multiplier, constant = here.mimic
            if here.name in seen:
                raise fail(joint.node, f"joint {joint.name!r} mimics itself, via other joints; remove one <mimic>")
            seen.add(here.name)
            if master not in index:
                raise fail(
                    here.node,
                    f"joint {here.name!r} mimics {master!r}, which does not move the tip",
                    f"lock {here.name!r} with {{lock}}, or choose another {{tip}}",
                    lock="{...}",
                    tip="",
                )
            shift += ratio * constant
            ratio *= multiplier
            here = joints[index[master]]
        matrix[i, own.index(index[here.name])] = ratio
        offset[i] = shift
    if not own:
        raise ModelError(f"{source}: every joint mimics another joint, so that no independent coordinate remains")
    return Coupling(matrix, offset), tuple(joints[i].name for i in own)  # type: ignore[arg-type]


def _without_mimics(robot: Robot) -> Robot:
    joints = {name: dataclasses.replace(joint, mimic=None) for name, joint in robot.joints.items()}
    return dataclasses.replace(robot, joints=joints, outward=tuple(joints[joint.name] for joint in robot.outward))


def _check_mimics(robot: Robot) -> None:
    """Check that mimic joints follow joints with one degree of freedom.

    Raises:
        ModelError: a joint mimics an unknown or fixed joint, or one with several degrees of freedom.
    """
    for joint in robot.joints.values():
        if joint.mimic is None:
            continue
        master = robot.joints.get(joint.mimic[0])
        if master is None or master.kind in ("fixed", "planar", "floating"):
            what = "moving joint" if master is None or master.kind == "fixed" else "joint with a single position"
            raise fail(
                joint.node,
                f"joint {joint.name!r} mimics {joint.mimic[0]!r}, which is not a {what}; correct the name, or pass "
                "ignore_mimic=True",
            )


def _on_free_joint(robot: Robot, name: bool | str) -> Robot:
    if name is True:
        name = _choose(("floating_base", "root_joint"), robot.joints)
    elif name in robot.joints:
        raise ModelError(f"{robot.source}: a joint is already called {name!r}; choose another name for the free joint")
    world = _choose(("world", "universe"), robot.links)
    node = robot.links[robot.root].node
    free = _joint(str(name), "floating", world, robot.root, node)
    links = {world: Link(world, None, node), **robot.links}
    return dataclasses.replace(
        robot, links=links, joints={free.name: free, **robot.joints}, root=world, outward=(free, *robot.outward)
    )


def _joint(name: str, kind: str, parent: str, child: str, node: Node) -> Joint:
    return Joint(name, kind, parent, child, np.eye(4), np.eye(3)[0], JOINT_LEAVES, mimic=None, node=node)


def _free_of_limits(joint: Joint, name: str, kind: str, axis: np.ndarray, parent: str, child: str, origin) -> Joint:
    leaves = {key: JOINT_LEAVES[key] if key.startswith("limits.") else x for key, x in joint.leaves.items()}
    return dataclasses.replace(
        joint,
        name=name,
        kind=kind,
        axis=axis,
        parent=parent,
        child=child,
        origin=origin,
        mimic=None,
        leaves=leaves,
        unset=(),
    )


def _basis(normal: np.ndarray) -> np.ndarray:
    """Compute two axes of a plane such that (first, second, normal) is right-handed; for the normal z, they are x and y."""
    start = np.eye(3)[0] if abs(normal[0]) < 0.9 else np.eye(3)[1]
    first = start - (start @ normal) * normal
    first /= np.linalg.norm(first)
    return np.array([first, np.cross(normal, first)])


def _choose(names: tuple[str, ...], taken: Mapping) -> str:
    """Return the first unused name, or a variant of the last name if all are in use."""
    return next((name for name in names if name not in taken), fresh(names[-1], set(taken)))

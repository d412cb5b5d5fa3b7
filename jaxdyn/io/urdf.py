"""URDF files as chains: `load` and `loads`, by way of `jaxdyn.io.load` for users."""

import os
import sys
from collections.abc import Container, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import ModelError
from ..model.build import COULOMB_VELOCITY, STRIBECK_VELOCITY, check_inertia, make_chain
from ..model.chain import Chain
from .files import read_bytes
from .urdf_joints import arrange
from .urdf_tree import Joint, Layout, Link, Robot, move_inertia, order_tree
from .urdf_xml import Node, attribute, fail, number, numbers, only_child, parse_xml

_MOVING = ("revolute", "continuous", "prismatic", "planar", "floating")


def load(
    path: str | os.PathLike[str],
    *,
    lock: Mapping[str, float] | None = None,
    tip: str | None = None,
    floating_base: bool | str = False,
    ignore_mimic: bool = False,
    gravity: ArrayLike | Sequence[float] = (0.0, 0.0, -9.81),
    allow_nonphysical: bool = False,
) -> Chain:
    """The robot that a URDF file describes; what is read, the arguments and the errors are those of `jaxdyn.load`.

    Raises:
        ModelError: see `jaxdyn.load`.
    """
    robot = parse_robot(read_bytes(path), os.fspath(path), allow_nonphysical)
    return _chain(robot, lock, tip, gravity, allow_nonphysical, floating_base, ignore_mimic)


def loads(
    text: str | bytes,
    *,
    lock: Mapping[str, float] | None = None,
    tip: str | None = None,
    floating_base: bool | str = False,
    ignore_mimic: bool = False,
    gravity: ArrayLike | Sequence[float] = (0.0, 0.0, -9.81),
    allow_nonphysical: bool = False,
) -> Chain:
    """The robot that URDF text describes: `load` for a description in memory, with the same arguments and errors."""
    robot = parse_robot(text, "<text>", allow_nonphysical)
    return _chain(robot, lock, tip, gravity, allow_nonphysical, floating_base, ignore_mimic)


def parse_robot(data: bytes | str, source: str, allow_nonphysical: bool = False) -> Robot:
    """All links and joints of a URDF document as a tree, checked; `source` is what errors call it.

    Raises:
        ModelError: see `jaxdyn.load`.
    """
    document = parse_xml(data, source)
    root = document.root
    for node in root.iter():
        if isinstance(node, Node) and str(node.tag).startswith("xacro:"):
            raise fail(node, f"<{node.tag}> is a xacro macro, not URDF; run xacro on the file and load what it writes")
    if root.tag != "robot":
        raise fail(root, f"the root element is <{root.tag}>, not <robot>; this is no URDF")
    links: dict[str, Link] = {}
    joints: dict[str, Joint] = {}
    moved = {
        child.get("link")
        for joint in root.findall("joint")
        if joint.get("type") != "fixed"
        for child in joint.findall("child")
    }
    for node in root.findall("link"):
        link = _link(node, allow_nonphysical, moved)  # type: ignore[arg-type]
        if link.name in links:
            raise fail(link.node, f"the link name {link.name!r} is used twice; rename one")
        links[link.name] = link
    for node in root.findall("joint"):
        joint = _joint(node)  # type: ignore[arg-type]
        if joint.name in joints:
            raise fail(joint.node, f"the joint name {joint.name!r} is used twice; rename one")
        joints[joint.name] = joint
    if not links:
        raise fail(root, "the robot has no <link>")
    base, outward = order_tree(source, links, joints.values())
    return Robot(source, links, joints, base, outward, document)


def chain_arrays(layout: Layout) -> dict[str, Any]:
    """The leaves of the chain of a layout, as `make_chain` takes them."""
    joints = layout.joints
    return {
        "rotation": layout.placements[:, :3, :3],
        "translation": layout.placements[:, :3, 3],
        "screw": np.array([joint.screw for joint in joints]),
        "inertia": layout.inertia,
        "armature": np.array([joint.armature for joint in joints]),
        "viscous_friction": np.array([joint.viscous for joint in joints]),
        "coulomb_friction": np.array([joint.coulomb for joint in joints]),
        "coulomb_velocity": np.array([joint.coulomb_velocity for joint in joints]),
        "torque_offset": np.array([joint.offset for joint in joints]),
        "stribeck_friction": np.array([joint.stribeck_friction for joint in joints]),
        "stribeck_velocity": np.array([joint.stribeck_velocity for joint in joints]),
        "stiffness": np.array([joint.stiffness for joint in joints]),
        "rest_position": np.array([joint.rest_position for joint in joints]),
        "position_limits": np.array([joint.limits for joint in joints]),
        "velocity_limit": np.array([joint.velocity for joint in joints]),
        "effort_limit": np.array([joint.effort for joint in joints]),
    }


def _chain(
    robot: Robot,
    lock: Mapping[str, float] | None,
    tip: str | None,
    gravity: ArrayLike | Sequence[float],
    allow_nonphysical: bool,
    floating_base: bool | str,
    ignore_mimic: bool,
) -> Chain:
    parts = arrange(robot, lock, tip, floating_base, ignore_mimic)
    layout = parts.layout
    try:
        return make_chain(
            **chain_arrays(layout),
            joint_names=[joint.name for joint in layout.joints],
            parents=layout.parents,
            quaternion_joints=parts.quaternion_joints,
            coupling=parts.coupling,
            coordinate_names=parts.coordinate_names,
            link_names=[joint.child for joint in layout.joints],
            frames=layout.frames,
            base_name=parts.root,
            tip_name=layout.tip,
            gravity=np.asarray(gravity, float),
            allow_nonphysical=allow_nonphysical,
        )
    except ModelError as error:
        raise ModelError(f"{robot.source}: {error}") from None


def _link(node: Node, allow_nonphysical: bool, moved: Container[str | None]) -> Link:
    """A link; one that is not `moved` by a joint of its own may have an `<inertial>` that says nothing."""
    name = attribute(node, "name", "a link")
    label = f"link {name!r}"
    inertial = only_child(node, "inertial", label)
    if inertial is None:
        return Link(name, None, node)
    mass_node, inertia_node = only_child(inertial, "mass", label), only_child(inertial, "inertia", label)
    if mass_node is None or inertia_node is None:
        missing = "mass" if mass_node is None else "inertia"
        raise fail(
            inertial, f"{label}: <inertial> needs <{missing}>; add it, or remove <inertial> for a link without mass"
        )
    mass = number(mass_node, "value", label)
    moments = [number(inertia_node, key, label) for key in ("ixx", "ixy", "iyy", "ixz", "iyz", "izz")]
    about_com = np.array([mass, 0.0, 0.0, 0.0, *moments])
    if name not in moved and not about_com.any():
        return Link(name, None, node)
    if not allow_nonphysical:
        hint = "or pass allow_nonphysical=True"
        if mass <= 0:
            raise fail(mass_node, f"{label}: mass {mass:g} kg is not positive; correct it, remove <inertial>, {hint}")
        try:
            check_inertia(name, about_com)
        except ModelError as error:
            raise fail(inertia_node, f"{error}, {hint}") from None
    return Link(name, move_inertia(about_com, origin_pose(inertial, label)), node)


def _joint(node: Node) -> Joint:
    name = attribute(node, "name", "a joint")
    label = f"joint {name!r}"
    kind = attribute(node, "type", label)
    if kind not in (*_MOVING, "fixed"):
        raise fail(
            node,
            f"{label}: joint type {kind!r} is not supported; supported are {', '.join(_MOVING)} and fixed. Replace it",
        )
    ends = []
    for tag in ("parent", "child"):
        end = only_child(node, tag, label)
        if end is None:
            raise fail(node, f'{label} needs <{tag} link=".."/>')
        ends.append(attribute(end, "link", label))
    origin = origin_pose(node, label)
    # what a fixed joint says about axis, limits or drives has no meaning
    motion = {
        tag: only_child(node, tag, label) if kind != "fixed" else None
        for tag in ("axis", "limit", "dynamics", "mimic", "jaxdyn")
    }
    axis = np.array(numbers(motion["axis"], "xyz", 3, label, (1.0, 0.0, 0.0) if motion["axis"] is None else None))
    length = np.linalg.norm(axis)
    if length < 1e-9:
        raise fail(node if motion["axis"] is None else motion["axis"], f"{label}: its axis is zero; give a direction")
    lower, upper, velocity, effort = _limits(node, motion["limit"], kind, label)
    extra = motion["jaxdyn"]
    width = number(extra, "coulomb_velocity", label, COULOMB_VELOCITY)
    if width <= 0:
        raise fail(
            node if extra is None else extra,
            f"{label}: coulomb_velocity {width:g} is not positive; it is the width of a smooth sign",
        )
    follows = motion["mimic"]
    if follows is not None and kind in ("planar", "floating"):
        raise fail(follows, f"{label}: a {kind} joint cannot mimic another; remove <mimic>")
    return Joint(
        name=name,
        kind=kind,
        parent=ends[0],
        child=ends[1],
        origin=origin,
        axis=axis / length,
        limits=(lower, upper),
        velocity=velocity,
        effort=effort,
        viscous=number(motion["dynamics"], "damping", label, 0.0),
        coulomb=number(motion["dynamics"], "friction", label, 0.0),
        armature=number(extra, "armature", label, 0.0),
        offset=number(extra, "offset", label, 0.0),
        coulomb_velocity=width,
        stribeck_friction=number(extra, "stribeck_friction", label, 0.0),
        stribeck_velocity=number(extra, "stribeck_velocity", label, STRIBECK_VELOCITY),
        stiffness=number(extra, "stiffness", label, 0.0),
        rest_position=number(extra, "rest_position", label, 0.0),
        mimic=None
        if follows is None
        else (
            attribute(follows, "joint", label),
            number(follows, "multiplier", label, 1.0),
            number(follows, "offset", label, 0.0),
        ),
        node=node,
    )


def _limits(joint: Node, node: Node | None, kind: str, label: str) -> tuple[float, float, float, float]:
    """Lower and upper position, velocity and effort limit; the largest double stands for infinity."""
    if kind == "fixed":
        return 0.0, 0.0, 0.0, 0.0
    bounded = kind in ("revolute", "prismatic")
    if node is None and bounded:
        raise fail(
            joint, f'{label}: a {kind} joint needs <limit lower=".." upper=".." effort=".." velocity=".."/>; add it'
        )
    inf = float("inf")
    values = [
        number(node, "lower", label, 0.0) if bounded else -inf,
        number(node, "upper", label, 0.0) if bounded else inf,
        number(node, "velocity", label, None if bounded else inf),
        number(node, "effort", label, None if bounded else inf),
    ]
    here = joint if node is None else node
    lower, upper, velocity, effort = (np.copysign(inf, x) if abs(x) >= sys.float_info.max else x for x in values)
    if lower > upper:
        raise fail(here, f"{label}: its lower limit {lower:g} is above its upper limit {upper:g}; swap them")
    if velocity < 0 or effort < 0:
        raise fail(here, f"{label}: velocity and effort limits are magnitudes; {min(velocity, effort):g} is negative")
    return float(lower), float(upper), float(velocity), float(effort)


def origin_pose(node: Node, label: str) -> np.ndarray:
    """The pose in an element's `<origin>`, the identity without one: R = Rz(yaw) Ry(pitch) Rx(roll)."""
    origin = only_child(node, "origin", label)
    if origin is not None and "quat_xyzw" in origin.attrib:
        raise fail(origin, f"{label}: <origin> quat_xyzw is not supported; write the rotation as rpy")
    zero = (0.0, 0.0, 0.0)
    (sr, sp, sy), (cr, cp, cy) = (f(numbers(origin, "rpy", 3, label, zero)) for f in (np.sin, np.cos))
    pose = np.eye(4)
    pose[:3, :3] = [
        [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
        [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
        [-sp, cp * sr, cp * cr],
    ]
    pose[:3, 3] = numbers(origin, "xyz", 3, label, zero)
    return pose

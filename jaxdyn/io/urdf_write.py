"""Chains as URDF files: written anew (`to_urdf`, `save_urdf`) or into the file they came from (`update_urdf`)."""

import os
import sys
import xml.etree.ElementTree as ET
from collections.abc import Container, Iterable, Mapping

import numpy as np
from jaxtyping import Float

from ..errors import ModelError
from ..model.chain import Chain
from .files import read_bytes, write_whole
from .urdf import chain_arrays, parse_robot
from .urdf_tree import COULOMB_VELOCITY, Layout, fuse, move_inertia

_HEAD = '<?xml version="1.0" encoding="utf-8"?>\n'


def to_urdf(chain: Chain, name: str = "robot") -> str:
    """The URDF text of a chain; `loads(text, tip=chain.topology.tip_name)` gives its numbers back.

    Inertias are written as mass, centre of mass c = h / m and inertia about it, I_c = I_o + m [c]^2; an all-zero link
    gets none. Named frames become links on fixed joints. A joint's armature, torque offset and Coulomb velocity go into
    a <jaxdyn> element, which other readers skip. Infinite limits that URDF demands a number for are written as the
    largest double. A link whose joint axis misses its origin hangs, by a fixed joint, on a link `<name>_axis` placed on
    the axis, so that all names keep their poses. Gravity and the choice of tip have no place in a URDF.

    Raises:
        ModelError: a joint is helical, a number is not finite, a name cannot be written, or an inertia cannot be
            written as mass and centre of mass to nine digits (a first moment without mass).
    """
    arrays = _arrays(chain)
    topology = chain.topology
    robot = ET.Element("robot", name=name)
    ET.SubElement(robot, "link", name=topology.base_name)
    taken = {topology.base_name, *topology.link_names, *topology.frame_names}
    joint_names = set(topology.joint_names)
    eps = 1e2 * float(np.finfo(chain.dtype).eps)
    for i, (link, joint) in enumerate(zip(topology.link_names, topology.joint_names, strict=True)):
        parent = topology.base_name if topology.parents[i] < 0 else topology.link_names[topology.parents[i]]
        w, v = arrays["screw"][i, :3], arrays["screw"][i, 3:]
        revolute = bool(np.any(w))
        if revolute and abs(w @ v) > eps * (1 + np.linalg.norm(v)):
            raise ModelError(
                f"joint {joint!r} is helical (pitch {w @ v:g} m/rad); URDF knows revolute and prismatic joints only"
            )
        place = _pose(arrays["rotation"][i], arrays["translation"][i])
        offset = np.cross(w, v)
        child = link
        if np.linalg.norm(offset) > eps:
            child = _fresh(f"{link}_axis", taken)
            place[:3, 3] += place[:3, :3] @ offset
            ET.SubElement(robot, "link", name=child)
        _set_inertial(ET.SubElement(robot, "link", name=link), link, arrays["inertia"][i])
        limits = (*arrays["position_limits"][i], arrays["velocity_limit"][i], arrays["effort_limit"][i])
        kind = "prismatic" if not revolute else "continuous" if np.all(np.isinf(limits[:2])) else "revolute"
        node = _joint(robot, joint, kind, parent, child, place)
        ET.SubElement(node, "axis", xyz=_text(w if revolute else v, f"the axis of joint {joint!r}"))
        keys = ("velocity", "effort") if kind == "continuous" else ("lower", "upper", "velocity", "effort")
        if kind != "continuous" or np.any(np.isfinite(limits[2:])):
            bounded = np.clip(limits[-len(keys) :], -sys.float_info.max, sys.float_info.max)
            ET.SubElement(
                node,
                "limit",
                {k: _text([x], f"a limit of joint {joint!r}") for k, x in zip(keys, bounded, strict=True)},
            )
        _set_drive(node, joint, chain, arrays, i)
        if child != link:
            _joint(robot, _fresh(f"{link}_fixed", joint_names), "fixed", child, link, _pose(np.eye(3), -offset))
    for frame, i, pose in zip(
        topology.frame_names, topology.frame_links, np.asarray(chain.frame_poses, float), strict=True
    ):
        ET.SubElement(robot, "link", name=frame)
        parent = topology.base_name if i < 0 else topology.link_names[i]
        _joint(robot, _fresh(f"{frame}_fixed", joint_names), "fixed", parent, frame, pose)
    ET.indent(robot)
    text = _HEAD + ET.tostring(robot, encoding="unicode") + "\n"
    parse_robot(text, "the URDF to be written", allow_nonphysical=True)  # a name may be impossible in XML
    return text


def save_urdf(chain: Chain, path: str | os.PathLike[str], name: str = "robot") -> None:
    """Write `to_urdf(chain, name)` to a file, whole or not at all.

    Raises:
        ModelError: see `to_urdf`, or the file cannot be written.
    """
    write_whole(path, to_urdf(chain, name))


def update_urdf(
    source_path: str | os.PathLike[str],
    chain: Chain,
    path: str | os.PathLike[str],
    *,
    lock: Mapping[str, float] | None = None,
    tip: str | None = None,
) -> None:
    """Write a URDF file again with the inertias and the friction of a chain that was loaded from it and identified.

    Relative mesh paths are made relative to the new place; all else stays: names, comments, base links, branches
    outside the chain. The inertia of links fused to a moving link is part of that link's and is removed from them. A
    locked joint becomes a fixed one at its position.
    `path` may be the source.

    Args:
        lock: as given to `load`.
        tip: as given to `load`.

    Raises:
        ModelError: the source cannot be read as a URDF, the chain is not the one it describes, or differs from it in
            what this function does not write (placements, axes, limits, frames: use `save_urdf`), an inertia cannot be
            written as mass and centre of mass, or the file cannot be written.
    """
    source = os.fspath(source_path)
    robot = parse_robot(read_bytes(source_path), source, allow_nonphysical=True)
    layout = fuse(robot, lock, tip)
    arrays = _arrays(chain)
    for kind, ours, theirs in (
        ("joints", chain.joint_names, tuple(joint.name for joint in layout.joints)),
        ("links", chain.link_names, tuple(joint.child for joint in layout.joints)),
    ):
        if ours != theirs:
            raise ModelError(
                f"{source}: the file has the moving {kind} {', '.join(theirs)}, but the chain has {', '.join(ours)}; "
                "give the file, lock= and tip= that the chain was loaded with"
            )
    strange = set(chain.frame_names) - set(layout.frames)
    if strange:
        raise ModelError(f"{source}: the chain's frame {min(strange)!r} is not in the file; use save_urdf to write it")
    for i, joint in enumerate(layout.joints):
        _set_inertial(robot.links[joint.child].node, joint.child, arrays["inertia"][i])
        _set_drive(joint.node, joint.name, chain, arrays, i)
    for frame, (i, _) in layout.frames.items():
        if i >= 0:
            _remove(robot.links[frame].node, {"inertial"})
    for name, value in layout.locked.items():
        joint = robot.joints[name]
        joint.node.set("type", "fixed")
        _remove(joint.node, {"axis", "limit", "dynamics", "mimic", "jaxdyn", "calibration", "safety_controller"})
        origin = joint.node.find("origin")
        _set_origin(
            _insert(joint.node, "origin") if origin is None else origin, joint.pose_at(value), f"joint {name!r}"
        )
    _keep_meshes(robot.document.root, os.path.dirname(source), os.path.dirname(os.fspath(path)))
    body = ET.tostring(robot.document.root, encoding="unicode")
    text = _HEAD + "\n".join((*robot.document.before, body, *robot.document.after)) + "\n"
    _check_same(source, chain, arrays, fuse(parse_robot(text, source, allow_nonphysical=True), None, tip))
    write_whole(path, text)


def _arrays(chain: Chain) -> dict[str, np.ndarray]:
    if chain.inertia.ndim != 2:
        raise ModelError(f"the chain is a batch (inertia has shape {chain.inertia.shape}); write one robot at a time")
    names = ("rotation", "translation", "screw", "inertia", "armature", "viscous_friction", "coulomb_friction")
    names += ("coulomb_velocity", "torque_offset", "position_limits", "velocity_limit", "effort_limit")
    return {name: np.asarray(getattr(chain, name)).astype(float) for name in names}


def _check_same(source: str, chain: Chain, arrays: Mapping[str, np.ndarray], layout: Layout) -> None:
    """Refuse a chain that the updated file does not describe."""
    tolerance = max(1e-12, 1e2 * float(np.finfo(chain.dtype).eps))
    pairs = [
        (key, name, arrays[key][i], written[i])
        for key, written in chain_arrays(layout).items()
        if key != "inertia"
        for i, name in enumerate(chain.joint_names)
    ]
    poses = np.asarray(chain.frame_poses).astype(float)
    for frame, i, pose in zip(chain.frame_names, chain.topology.frame_links, poses, strict=True):
        index, written = layout.frames[frame]
        pairs.append(("frame_poses", frame, pose, written if index == i else np.full((4, 4), np.nan)))
    for key, name, ours, theirs in pairs:
        ours, theirs = np.atleast_1d(ours), np.atleast_1d(theirs)
        if not np.allclose(ours, theirs, rtol=tolerance, atol=tolerance):
            raise ModelError(
                f"{source}: the chain's {key} of {name!r} is not the file's; update_urdf writes inertias and friction "
                "only. Write the whole chain with save_urdf, or give the lock= and tip= it was loaded with"
            )


def _keep_meshes(root: ET.Element, before: str, after: str) -> None:
    """Let relative paths of meshes and textures, which count from the file's folder, point to the same files from another."""
    for element in root.iter():
        name = element.get("filename") if element.tag in ("mesh", "texture") else None
        if name and "://" not in name and not os.path.isabs(name):
            element.set("filename", os.path.relpath(os.path.join(before, name), after or "."))


def _set_inertial(link: ET.Element, name: str, pi: Float[np.ndarray, "10"]) -> None:
    """Replace a link's <inertial>; none for all-zero parameters."""
    old = link.find("inertial")
    if not np.any(pi):
        _remove(link, {"inertial"})
        return
    with np.errstate(all="ignore"):
        com = pi[1:4] / pi[0] if pi[0] != 0 else np.zeros(3)
        about_com = move_inertia(pi, _pose(np.eye(3), -com))
        about_com[1:4] = 0
        error = np.abs(move_inertia(about_com, _pose(np.eye(3), com)) - pi).max()
    if np.all(np.isfinite(pi)) and not error <= 1e-9 * np.abs(pi).max():
        raise ModelError(
            f"link {name!r}: mass {pi[0]:g} kg with first moment {np.linalg.norm(pi[1:4]):g} kg m cannot be "
            "written as mass and centre of mass, as URDF wants it; give parameters in which the link has its mass"
        )
    node = _insert(link, "inertial", 0) if old is None else old
    for child in list(node):
        node.remove(child)
    label = f"the inertia of link {name!r}"
    ET.SubElement(node, "origin", xyz=_text(com, label), rpy="0 0 0")
    ET.SubElement(node, "mass", value=_text(pi[:1], label))
    keys = ("ixx", "ixy", "iyy", "ixz", "iyz", "izz")
    ET.SubElement(node, "inertia", {key: _text([x], label) for key, x in zip(keys, about_com[4:], strict=True)})
    ET.indent(node, level=2)


def _set_drive(node: ET.Element, joint: str, chain: Chain, arrays: Mapping[str, np.ndarray], i: int) -> None:
    """Set <dynamics> and <jaxdyn> of a joint; numbers that equal their default are left out."""
    usual_width = np.asarray(COULOMB_VELOCITY, chain.dtype).astype(float)
    for tag, entries in (
        ("dynamics", (("damping", "viscous_friction", 0.0), ("friction", "coulomb_friction", 0.0))),
        (
            "jaxdyn",
            (
                ("armature", "armature", 0.0),
                ("offset", "torque_offset", 0.0),
                ("coulomb_velocity", "coulomb_velocity", usual_width),
            ),
        ),
    ):
        element = node.find(tag)
        for key, leaf, usual in entries:
            if arrays[leaf][i] != usual:
                element = _insert(node, tag) if element is None else element
                element.set(key, _text([arrays[leaf][i]], f"{leaf} of joint {joint!r}"))
            elif element is not None:
                element.attrib.pop(key, None)
        if element is not None and not element.attrib:
            _remove(node, {tag})


def _joint(
    robot: ET.Element, name: str, kind: str, parent: str, child: str, pose: Float[np.ndarray, "4 4"]
) -> ET.Element:
    node = ET.SubElement(robot, "joint", name=name, type=kind)
    _set_origin(ET.SubElement(node, "origin"), pose, f"joint {name!r}")
    ET.SubElement(node, "parent", link=parent)
    ET.SubElement(node, "child", link=child)
    return node


def _set_origin(origin: ET.Element, pose: Float[np.ndarray, "4 4"], label: str) -> None:
    """xyz and rpy of a pose. Roll and pitch are those of what yaw leaves over: exact near pitch = +-pi/2 too."""
    r = pose[:3, :3]
    yaw = np.arctan2(r[1, 0], r[0, 0])
    c, s = np.cos(yaw), np.sin(yaw)
    first, second = c * r[0] + s * r[1], c * r[1] - s * r[0]
    rpy = (np.arctan2(-second[2], second[1]), np.arctan2(-r[2, 0], first[0]), yaw)
    origin.set("xyz", _text(pose[:3, 3], f"the origin of {label}"))
    origin.set("rpy", _text(rpy, f"the rotation of {label}"))


def _insert(parent: ET.Element, tag: str, index: int | None = None) -> ET.Element:
    """A new child, on a line of its own as its siblings are."""
    node = parent.makeelement(tag, {})
    index = len(parent) if index is None else index
    inner = parent.text if len(parent) and parent.text and not parent.text.strip() else "\n    "
    if index == 0:
        parent.text, node.tail = inner, inner if len(parent) else "\n  "
    else:
        parent[index - 1].tail, node.tail = inner, parent[index - 1].tail
    parent.insert(index, node)
    return node


def _remove(parent: ET.Element, tags: Container[str]) -> None:
    """Remove children by tag; the white space before the next sibling stays what it was."""
    for child in [c for c in parent if c.tag in tags]:
        index = list(parent).index(child)
        if index == len(parent) - 1:
            if index:
                parent[index - 1].tail = child.tail
            else:
                parent.text = child.tail
        parent.remove(child)


def _text(values: Iterable[float] | np.ndarray, label: str) -> str:
    """Numbers with all their digits."""
    numbers = [float(x) + 0.0 for x in values]
    if not np.all(np.isfinite(numbers)):
        raise ModelError(f"{label} is {numbers}, not finite; a URDF cannot hold it")
    return " ".join(map(repr, numbers))


def _pose(rotation: np.ndarray, translation: np.ndarray) -> Float[np.ndarray, "4 4"]:
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = rotation, translation
    return pose


def _fresh(name: str, taken: set[str]) -> str:
    """The name, lengthened until it is none of those taken, which it joins."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name

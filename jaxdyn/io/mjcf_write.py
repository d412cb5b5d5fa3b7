"""Write chains as new MJCF files: `to_mjcf`, `write_mjcf`.

The body of link i is placed at M_i in its parent. Its hinge rotates about the axis of the screw A_i = (w, v), which passes
through the point w x v. The pose of the body in its parent is therefore M_i exp([A_i] q_i), exactly as in the chain.

MuJoCo does not support massless links between joints. The joints of such links are assigned to the next body with mass, since
M_1 exp([A_1] q_1) M_2 = M_1 M_2 exp([Ad(M_2^-1) A_1] q_1).
"""

import functools
import os
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..errors import ModelError
from ..model.build import pose_of
from ..model.chain import Chain, layout
from ..model.joints import JOINT_TYPES
from ..spatial.inertia import inertial_parameters_to_com
from ..spatial.so3 import rotation_to_quaternion
from .files import write_whole
from .mjcf import listed
from .urdf_write import arrays_of, check_consistent, check_helical, inner_links, written

_LEAST = 1e-15  # MuJoCo's mjMINVAL, the lower bound on a moving body's mass and principal moments
_FAR = 1e10  # replaces an infinite position limit of a joint whose other limit is finite
_text = functools.partial(written, form="MJCF")


class _Joint(NamedTuple):
    """A MuJoCo joint: its (first) link, its type as in `model.joints`, and its screw and anchor in the body's frame."""

    link: int
    kind: str
    screw: Float[np.ndarray, "6"]
    anchor: Float[np.ndarray, "3"]


class _Body(NamedTuple):
    """A body: the link that defines its frame, its parent link, its pose in the parent, and its joints in order."""

    link: int
    parent: int
    pose: Float[np.ndarray, "4 4"]
    joints: tuple[_Joint, ...]


def write_mjcf(chain: Chain, path: str | os.PathLike[str], name: str = "robot") -> tuple[str, ...]:
    """Write `to_mjcf(chain, name)` to a file atomically, and return descriptions of the features that MJCF lacks."""
    text = to_mjcf(chain, name)
    write_whole(path, text)
    return without_place(chain)


def to_mjcf(chain: Chain, name: str = "robot") -> str:
    """Convert a chain or tree to MJCF text for MuJoCo, with one body per link; `loads(text)` restores the numbers.

    - Inertias are written as mass, centre of mass, principal moments and principal axes (`quat`).
    - Joints have armature, damping (viscous friction), frictionloss (Coulomb friction), springs, position limits and effort
      limits (`actuatorfrcrange`). A free joint becomes a joint of type free, and a spherical joint one of type ball.
    - If each motor of a transmission drives a single joint, the inertia, viscous friction and Coulomb friction of the motor
      are added to those of the joint.
    - Named frames become sites, and a base pose becomes the pose of the base body.

    Without friction, `mujoco.mj_inverse` equals `inverse_dynamics`; for free joints, convert with `layouts` first.

    Features that MJCF lacks are omitted and listed in a comment at the top of the text: torque offsets, the width of the smooth
    sign function in Coulomb friction (MuJoCo uses a constraint), Stribeck friction, and velocity limits. Position limits of
    zero width, which MuJoCo rejects, are also omitted.

    Raises:
        ModelError: an inertia is inconsistent or is rejected by MuJoCo (a moving body without mass or with a zero principal
            moment); a joint is helical, joints mimic others, or a free joint is not at the root; a motor drives several
            joints; a number is not finite, or a name cannot be written.
    """
    arrays = arrays_of(chain, decimals=False)
    _check(chain)
    arrays = _with_motors(chain, arrays)
    root = ET.Element("mujoco", model=name)
    ET.SubElement(root, "compiler", angle="radian", autolimits="false")
    ET.SubElement(root, "option", gravity=_text(np.asarray(chain.gravity, float), "gravity"))
    world = ET.SubElement(root, "worldbody")
    topology = chain.topology
    base = world
    if topology.base_name != "world":
        base = ET.SubElement(world, "body", name=topology.base_name)
        if chain.base_pose is not None:
            _place(base, np.asarray(chain.base_pose, float), f"the pose of the base {topology.base_name!r}")
    elif chain.base_pose is not None:
        raise ModelError("the base is called 'world', which cannot have a base pose in MuJoCo; rename the base")
    nodes = {-1: base}
    for body in _bodies(chain, arrays):
        free = body.joints[0].kind == "free"
        if free and chain.base_pose is not None:
            raise ModelError("a free joint is relative to the world in MuJoCo; remove the chain's base_pose")
        nodes[body.link] = _write_body(world if free else nodes[body.parent], chain, arrays, body)
    poses = np.asarray(chain.frame_poses, float)
    for frame, i, pose in zip(topology.frame_names, topology.frame_links, poses, strict=True):
        if i not in nodes:
            fault = f"frame {frame!r} is fixed to link {topology.link_names[i]!r}, which has no mass and is no body in MuJoCo"
            raise ModelError(fault, "fix the frame to a link with mass")
        _place(ET.SubElement(nodes[i], "site", name=frame), pose, f"frame {frame!r}")
    ET.indent(root)
    missing = without_place(chain)
    listed = "; ".join(missing).replace("--", "- -")
    comment = f"<!-- not supported by MJCF, omitted: {listed} -->\n" if missing else ""
    text = comment + ET.tostring(root, encoding="unicode") + "\n"
    try:
        ET.fromstring(text)
    except ET.ParseError as error:
        raise ModelError(f"a name in the chain cannot be written as XML: {error}") from None
    return text


def without_place(chain: Chain) -> tuple[str, ...]:
    """Describe the features that an MJCF file omits and that differ from their neutral values."""
    arrays = arrays_of(chain, decimals=False)
    driven = _with_motors(chain, arrays)
    joints = lambda which: listed([chain.joint_names[i] for i in np.flatnonzero(which)], 8)
    low, high = arrays["limits.position"].T
    found = {
        "torque offsets": driven["friction.offset"] != 0,
        "the width of the smooth sign function in Coulomb friction": arrays["friction.coulomb"] != 0,
        "Stribeck friction": driven["friction.stribeck"] != 0,
        "velocity limits": np.isfinite(arrays["limits.velocity"]),
        "position limits of zero width": np.isfinite(low) & (low == high),
    }
    return tuple(f"{what} ({joints(which)})" for what, which in found.items() if which.any())


def _check(chain: Chain) -> None:
    """Raise an error for features that MuJoCo lacks and for inconsistent inertias."""
    if chain.coupling is not None:
        fault = "the chain has coupled joints, for which MuJoCo has only soft constraints"
        raise ModelError(fault, "lock these joints, or save the unchanged model with save_model")
    check_helical(chain, "MuJoCo has only hinges and slides")
    if "world" in (*chain.link_names, *chain.frame_names):
        raise ModelError("a link or frame is called 'world', which is the name of MuJoCo's root body; rename it")
    for link, pi in zip(chain.link_names, np.asarray(chain.inertia, float), strict=True):
        if not np.all(np.isfinite(pi)):
            raise ModelError(f"link {link!r}: its inertia {pi.tolist()} is not finite; MJCF cannot represent it")
    check_consistent(chain, "save the unchanged model with save_model: MuJoCo rejects such a body")


def _with_motors(chain: Chain, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Add the drives of motors to those of their single joints: r^2 J, r^2 B and |r| fc for the gear ratio r."""
    if chain.transmission is None:
        return arrays
    motors = chain.transmission
    ratios, rotors, friction = np.asarray(motors.matrix, float), motors.rotor_inertia, motors.friction
    if (several := np.flatnonzero((ratios != 0).sum(axis=1) > 1)).size:
        driven = ", ".join(chain.joint_names[j] for j in np.flatnonzero(ratios[several[0]]))
        fault = f"motor {several[0] + 1} of the transmission drives {driven} together, which MJCF cannot represent"
        raise ModelError(fault, "save the model with save_model instead")
    added = {
        "armature": (ratios**2, rotors),
        "friction.viscous": (ratios**2, friction.viscous),
        "friction.coulomb": (np.abs(ratios), friction.coulomb),
        "friction.stribeck": (np.abs(ratios), friction.stribeck),
        "friction.offset": (ratios, friction.offset),
    }
    return arrays | {leaf: arrays[leaf] + matrix.T @ np.asarray(x, float) for leaf, (matrix, x) in added.items()}


def _bodies(chain: Chain, arrays: dict[str, np.ndarray]) -> Iterable[_Body]:
    """Iterate over the bodies, parents first: one per link with mass, with the joints of the massless links before it."""
    parents, curved = chain.topology.parents, {joint.link: joint for joint in layout(chain).curved}
    inner = inner_links(chain, arrays)
    started: dict[int, _Body] = {}  # bodies without mass so far, by their last link
    children = np.bincount(np.array([p for p in parents if p >= 0], int), minlength=chain.n)
    for i in range(chain.n):
        if i not in curved and parents[i] in inner:
            continue  # a later part of the previous joint
        last = curved[i].links.stop - 1 if i in curved else i
        pose = pose_of(arrays["rotation"][i], arrays["translation"][i])
        w, v = np.split(arrays["screw"][i], 2)
        kind = curved[i].kind if i in curved else "single"
        joint = _Joint(i, kind, arrays["screw"][i], np.cross(w, v))
        if kind == "free" and (parents[i] >= 0 or np.abs(pose - np.eye(4)).max() > 1e-12):
            raise ModelError(f"the free joint {chain.joint_names[i]!r} is not at the base, as MuJoCo requires")
        body = _Body(last, parents[i], pose, (joint,))
        if parents[i] in started:
            body = _joined(chain, started.pop(parents[i]), body)
        if np.any(arrays["inertia"][last]):
            _check_mass(chain.link_names[last], arrays["inertia"][last])
            yield body
        elif children[last] == 1:
            started[last] = body
        else:
            what = "carries several" if children[last] else "is the last"
            fault = f"link {chain.link_names[last]!r} has no mass and {what}: MuJoCo rejects moving bodies without mass"
            raise ModelError(fault, "add mass")


def _joined(chain: Chain, first: _Body, second: _Body) -> _Body:
    """Join two bodies into one. The joints of the first body are expressed in the frame of the second."""
    rotation, p = second.pose[:3, :3], second.pose[:3, 3]
    turned = np.abs(rotation - np.eye(3)).max() > 1e-12
    moved = []
    for joint in first.joints:
        if "free" in (joint.kind, second.joints[0].kind) or (joint.kind == "spherical" and turned):
            where = "next to a free joint, or between a spherical joint and a joint with rotated axes"
            fault = f"link {chain.link_names[first.link]!r} has no mass and is {where}: MuJoCo rejects such links"
            raise ModelError(fault, "add mass")
        w, v = np.split(joint.screw, 2)
        screw = np.concatenate([rotation.T @ w, rotation.T @ (v - np.cross(p, w))])
        moved.append(joint._replace(screw=screw, anchor=rotation.T @ (joint.anchor - p)))
    return _Body(second.link, first.parent, first.pose @ second.pose, (*moved, *second.joints))


def _check_mass(link: str, pi: np.ndarray) -> None:
    """Raise an error for a moving body that MuJoCo's compiler rejects."""
    moments = np.linalg.eigvalsh(inertial_parameters_to_com(pi)[2])
    if pi[0] < _LEAST or moments[0] < _LEAST:
        fault = (
            f"mass {pi[0]:g} kg and principal moments {', '.join(f'{x:.3g}' for x in moments)} kg m^2: MuJoCo rejects a"
        )
        remedy = f"moving body if one of these is below {_LEAST:g} (a point mass, a rod without width)"
        raise ModelError(f"link {link!r}: {fault} {remedy}", "increase it")


def _write_body(parent: ET.Element, chain: Chain, arrays: dict[str, np.ndarray], body: _Body) -> ET.Element:
    link = chain.link_names[body.link]
    node = ET.SubElement(parent, "body", name=link)
    if body.joints[0].kind != "free":
        _place(node, body.pose, f"link {link!r}")
    for joint in body.joints:
        _write_joint(node, chain, arrays, joint)
    pi = arrays["inertia"][body.link]
    _, com, inertia = inertial_parameters_to_com(pi)
    moments, axes = np.linalg.eigh(inertia)
    axes[:, 2] *= np.sign(np.linalg.det(axes))
    moments[2] = min(moments[2], moments[0] + moments[1])  # rounding can violate the triangle inequality of a flat body
    label = f"the inertia of link {link!r}"
    numbers = {"pos": com, "quat": rotation_to_quaternion(axes), "mass": pi[:1], "diaginertia": moments}
    ET.SubElement(node, "inertial", {key: _text(x, label) for key, x in numbers.items()})
    return node


def _write_joint(node: ET.Element, chain: Chain, arrays: dict[str, np.ndarray], joint: _Joint) -> None:
    name, i = chain.joint_names[joint.link], joint.link
    w, v = np.split(joint.screw, 2)
    kind = {"free": "free", "spherical": "ball"}.get(joint.kind, "hinge" if np.any(w) else "slide")
    compound = JOINT_TYPES.get(joint.kind)
    stem = name if compound is None else name.removesuffix(compound.parts[0])
    element = ET.SubElement(node, "joint", name=stem, type=kind)
    if compound is None:
        element.set("axis", _text(w if kind == "hinge" else v, name))
    if kind in ("ball", "hinge") and np.any(joint.anchor):
        element.set("pos", _text(joint.anchor, name))
    if compound is not None:
        for leaf in ("armature", "friction.viscous", "friction.coulomb", "springs.stiffness"):
            values = arrays[leaf][i : i + len(compound.parts)]
            if np.ptp(values) or (kind == "free" and leaf != "friction.viscous" and np.any(values)):
                remedy = "MuJoCo supports one value for a ball joint, and for a free joint only damping"
                raise ModelError(f"{leaf} of {stem!r} is {values.tolist()}", remedy)
            if leaf == "springs.stiffness" and np.any(values):
                raise ModelError(f"the spring of {stem!r}, a spherical joint, has no counterpart in MuJoCo")
        _drive(element, name, arrays, i, spring=False)
        return
    low, high = arrays["limits.position"][i]
    if low < high and np.any(np.isfinite([low, high])):
        element.set("limited", "true")
        element.set("range", _text(np.clip([low, high], -_FAR, _FAR), name))
    if np.isfinite(effort := arrays["limits.effort"][i]) and effort > 0:
        element.set("actuatorfrclimited", "true")
        element.set("actuatorfrcrange", _text([-effort, effort], name))
    _drive(element, name, arrays, i, spring=True)


def _drive(element: ET.Element, name: str, arrays: dict[str, np.ndarray], i: int, spring: bool) -> None:
    leaves = {"armature": "armature", "damping": "friction.viscous", "frictionloss": "friction.coulomb"}
    leaves |= {"stiffness": "springs.stiffness", "springref": "springs.rest_position"} if spring else {}
    for key, leaf in leaves.items():
        value = arrays[leaf][i]
        if leaf != "springs.rest_position" and value < 0:
            raise ModelError(f"{leaf} of joint {name!r} is negative ({value:g}), which MuJoCo rejects")
        if value != 0:
            element.set(key, _text([value], f"{leaf} of joint {name!r}"))


def _place(node: ET.Element, pose: np.ndarray, label: str) -> None:
    if np.any(pose[:3, 3]):
        node.set("pos", _text(pose[:3, 3], label))
    if np.any(pose[:3, :3] != np.eye(3)):
        node.set("quat", _text(rotation_to_quaternion(pose[:3, :3]), label))

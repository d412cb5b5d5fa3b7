"""Write chains as URDF: new files, or identified parameters in a copy of the file from which the chain was loaded.

Numbers are written with the fewest digits that reproduce them in the chain's type, so that a file written from a loaded chain
has the numbers of the original file.
"""

import dataclasses
import os
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import DTypeLike

from ..errors import ModelError
from ..model.build import EARTH, JOINT_LEAVES, SLIGHTLY, inertia_faults, pose_of, rpy_of
from ..model.chain import Chain, layout, named_leaves
from ..model.joints import Free
from ..spatial.components import Values
from ..spatial.inertia import transform_inertial_parameters
from ..spatial.so3 import rpy_to_rotation
from .files import read_bytes, write_whole
from .urdf import DRIVES, MOMENTS, Layout, Options, arrange, fresh, parse_robot

_HEAD = '<?xml version="1.0" encoding="utf-8"?>\n'


def to_urdf(chain: Chain, name: str = "robot", *, allow_nonphysical: bool = False) -> str:
    """Convert a chain or tree to URDF text; `loads(text)` restores its numbers.

    - Inertias are written as mass m, centre of mass c = h / m (h is the first moment) and inertia about the centre of mass,
      I_c = I_o + m [c]^2 (I_o is the inertia about the link's origin). An all-zero inertia is omitted.
    - Named frames become links on fixed joints.
    - Armature, torque offset, Coulomb velocity, Stribeck term and spring of a joint, and gravity unless it is (0, 0, -9.81),
      are written to `<jaxdyn>` elements, which other readers ignore.
    - Infinite limits for which URDF requires a number are written as the largest double.
    - A link whose joint axis does not pass through the link's origin is attached by a fixed joint to an additional link
      `<name>_axis` on the axis, so that all named links keep their poses.
    - A free joint becomes a floating joint, which `load` converts back to a free joint. A planar joint remains two prismatic
      joints and a continuous joint.
    - Coupled joints become mimic joints. Each of them follows the joint whose position is the coordinate it depends on.

    Joints are read back in depth-first order, as in every loaded chain. A URDF does not contain the choice of the
    tip; for a serial chain, pass `tip=chain.topology.tip_name` to `loads`.

    Raises:
        ModelError: an inertia is inconsistent, or cannot be written as mass and centre of mass to nine digits (a first moment
            without mass); a joint is helical or spherical; a coupling does not represent mimic joints; the chain has a
            transmission or a base pose; a free joint has limits, different drives of its parts, or inertia before its last
            link; a number is not finite, or a name cannot be written.
    """
    arrays = arrays_of(chain)
    check_writable(chain)
    topology = chain.topology
    robot = ET.Element("robot", name=name)
    set_gravity(robot, arrays["gravity"])
    ET.SubElement(robot, "link", name=topology.base_name)
    taken = {topology.base_name, *topology.link_names, *topology.frame_names}
    joint_names = set(topology.joint_names)
    inner_links(chain, arrays)
    name_of = lambda i: topology.base_name if i < 0 else topology.link_names[i]
    free = {joint.link: joint for joint in layout(chain).curved}
    parts = {i for joint in free.values() for i in range(chain.n)[joint.links]}
    mimics = _mimics(chain)
    for i, (link, joint) in enumerate(zip(topology.link_names, topology.joint_names, strict=True)):
        if i in free:
            _write_free(robot, chain, arrays, i, joint_names)
        if i in parts:
            continue
        node, child, offset = _write_joint(robot, chain, arrays, i, name_of(topology.parents[i]), taken)
        if i in mimics:
            master, *numbers = mimics[i]
            keys = zip(("multiplier", "offset"), numbers, strict=True)
            values = {key: written([x], f"the {key} of joint {joint!r}") for key, x in keys}
            ET.SubElement(node, "mimic", {"joint": master, **values})
        if child != link:
            place = pose_of(translation=-offset)
            _joint(robot, fresh(f"{link}_fixed", joint_names), "fixed", (child, link), place, chain.dtype)
    for frame, i, pose in zip(topology.frame_names, topology.frame_links, shortest(chain.frame_poses), strict=True):
        ET.SubElement(robot, "link", name=frame)
        _joint(robot, fresh(f"{frame}_fixed", joint_names), "fixed", (name_of(i), frame), pose, chain.dtype)
    ET.indent(robot)
    text = _HEAD + ET.tostring(robot, encoding="unicode") + "\n"
    parse_robot(text, "the URDF to be written")  # raises an error if a name is invalid in XML
    if not allow_nonphysical:
        check_consistent(chain)
    return text


def save_urdf(
    chain: Chain, path: str | os.PathLike[str], name: str = "robot", *, allow_nonphysical: bool = False
) -> None:
    """Write `to_urdf(chain, name)` to a file atomically; errors are those of `to_urdf`."""
    write_whole(path, to_urdf(chain, name, allow_nonphysical=allow_nonphysical))


def _write_joint(
    robot: ET.Element, chain: Chain, arrays: dict[str, np.ndarray], i: int, parent: str, taken: set[str]
) -> tuple[ET.Element, str, np.ndarray]:
    """Write the elements of a joint with one degree of freedom and of its link."""
    link, joint = chain.link_names[i], chain.joint_names[i]
    eps = 1e2 * float(np.finfo(chain.dtype).eps)
    w, v = arrays["screw"][i, :3], arrays["screw"][i, 3:]
    revolute = bool(np.any(w))
    place = pose_of(arrays["rotation"][i], arrays["translation"][i])
    offset = np.cross(w, v)
    child = link
    if np.linalg.norm(offset) > eps:
        child = fresh(f"{link}_axis", taken)
        place[:3, 3] += place[:3, :3] @ offset
        ET.SubElement(robot, "link", name=child)
    set_inertial(ET.SubElement(robot, "link", name=link), link, arrays["inertia"][i], chain.dtype)
    limits = (*arrays["limits.position"][i], arrays["limits.velocity"][i], arrays["limits.effort"][i])
    kind = "prismatic" if not revolute else "continuous" if np.all(np.isinf(limits[:2])) else "revolute"
    node = _joint(robot, joint, kind, (parent, child), place, chain.dtype)
    ET.SubElement(node, "axis", xyz=written(w if revolute else v, f"the axis of joint {joint!r}"))
    keys = ("velocity", "effort") if kind == "continuous" else ("lower", "upper", "velocity", "effort")
    if kind != "continuous" or np.any(np.isfinite(limits[2:])):
        bounded = np.clip(limits[-len(keys) :], -sys.float_info.max, sys.float_info.max)
        pairs = zip(keys, bounded, strict=True)
        ET.SubElement(node, "limit", {key: written([x], f"a limit of joint {joint!r}") for key, x in pairs})
    set_drive(node, joint, chain, arrays, i)
    return node, child, offset


def _write_free(
    robot: ET.Element, chain: Chain, arrays: dict[str, np.ndarray], first: int, joint_names: set[str]
) -> None:
    """Write the elements of a free joint, as a floating joint, and of its body."""
    joints, body = chain.joint_names[first : first + 6], chain.link_names[first + 5]
    stem = joints[0].removesuffix(Free.parts[0])
    named = joints == tuple(f"{stem}{x}" for x in Free.parts)
    name = fresh(stem, joint_names) if named else joints[0]
    if not all(np.all(np.isinf(x[first : first + 6])) for key, x in arrays.items() if key.startswith("limits.")):
        raise ModelError(f"the free joint {name!r} has limits, which URDF cannot represent; make them infinite")
    for leaf in DRIVES:
        if np.ptp(arrays[leaf][first : first + 6]):
            fault = f"the six parts of the free joint {name!r} differ in {leaf}"
            raise ModelError(fault, "make them equal, since URDF has one value for all of them")
    set_inertial(ET.SubElement(robot, "link", name=body), body, arrays["inertia"][first + 5], chain.dtype)
    node = _joint(robot, name, "floating", (chain.topology.base_name, body), np.eye(4), chain.dtype)
    set_drive(node, name, chain, arrays, first)


def _mimics(chain: Chain) -> dict[int, tuple[str, float, float]]:
    """Find the joints that mimic another joint: the other joint's name, the multiplier and the offset, by joint index."""
    if chain.coupling is None:
        return {}
    matrix, offset = map(shortest, (chain.coupling.matrix, chain.coupling.offset))
    names = chain.topology.coordinate_names or (None,) * matrix.shape[1]
    unit = (np.count_nonzero(matrix, axis=1) == 1) & (offset == 0)
    masters: list[int] = []
    for column, name in enumerate(names):
        own = [chain.joint_names[i] for i in np.flatnonzero(unit & (matrix[:, column] == 1))]
        if not own:
            what = f"coordinate {column + 1}" if name is None else f"the coordinate {name!r}"
            remedy = "in URDF, joints can only mimic joints"
            raise ModelError(f"{what} of the coupling is not the position of a joint", remedy)
        masters.append(chain.joint_names.index(name if name in own else own[0]))
    if masters != sorted(masters):
        raise ModelError("the coordinates of the coupling are not in the order of their joints; sort the coordinates")
    found: dict[int, tuple[str, float, float]] = {}
    for i in sorted(set(range(chain.n)) - set(masters)):
        columns = np.flatnonzero(matrix[i])
        if len(columns) > 1:
            those = ", ".join(repr(chain.joint_names[masters[c]]) for c in columns)
            fault = f"joint {chain.joint_names[i]!r} follows {those}"
            raise ModelError(fault, "a mimic joint in URDF follows only one joint")
        column = int(columns[0]) if len(columns) else 0
        found[i] = (chain.joint_names[masters[column]], matrix[i, column], offset[i])
    return found


def _joint(
    robot: ET.Element, name: str, kind: str, ends: tuple[str, str], pose: Float[np.ndarray, "4 4"], dtype: DTypeLike
) -> ET.Element:
    node = ET.SubElement(robot, "joint", name=name, type=kind)
    set_origin(ET.SubElement(node, "origin"), pose, f"joint {name!r}", dtype)
    for role, link in zip(("parent", "child"), ends, strict=True):
        ET.SubElement(node, role, link=link)
    return node


def update_urdf(
    source_path: str | os.PathLike[str],
    chain: Chain,
    path: str | os.PathLike[str],
    *,
    lock: Mapping[str, float] | None = None,
    tip: str | None = None,
    floating_base: bool | str = False,
    ignore_mimic: bool = False,
    allow_nonphysical: bool = False,
) -> None:
    """Write a copy of a URDF file with the inertias and friction of a chain that was loaded from the file and identified.

    The inertias of fused links are included in those of the moving links, and removed from the fused links. A locked joint
    becomes a fixed joint at the locked position. Relative mesh paths are adapted to the new location of the file. Everything
    else is unchanged, for example names, comments, base links, and branches outside the chain.

    Args:
        source_path: the file from which the chain was loaded, with the same `lock`, `tip`, `floating_base` and
            `ignore_mimic` as here.
        path: the file to write, which may be `source_path`.

    Raises:
        ModelError: the source cannot be read as a URDF, or the chain was not loaded from it; the chain differs from it in
            what this function does not write (placements, axes, limits, frames, the drive of a floating base, different
            drives of the parts of a planar joint), for which there is `save_urdf`; a part of a planar joint is locked; the
            chain has features that URDF lacks; an inertia is inconsistent, or cannot be written as mass and centre of mass;
            or the file cannot be written.
    """
    source = os.fspath(source_path)
    options = Options(lock=lock, tip=tip, floating_base=floating_base, ignore_mimic=ignore_mimic)
    robot = parse_robot(read_bytes(source_path), source, inertials=False)  # inertias are replaced
    arrangement = arrange(robot, options)
    arrays = arrays_of(chain)
    check_writable(chain)
    _check_layout(source, chain, arrangement)
    if strange := set(chain.frame_names) - set(arrangement.frames):
        raise _refusal(source, f"the file does not contain the chain's frame {min(strange)!r}")
    for name in arrangement.locked:
        if name not in robot.joints or robot.joints[name].kind == "planar":
            raise _refusal(source, f"{name!r} is a part of a planar joint, which cannot be locked in an updated file")
    for i, joint in enumerate(arrangement.joints):
        if joint.child in robot.links:  # otherwise, an internal link of a planar or floating joint
            set_inertial(robot.links[joint.child].node, joint.child, arrays["inertia"][i], chain.dtype)
            if joint.node.tag == "joint":  # a floating base that `load` added has no element
                set_drive(joint.node, joint.name, chain, arrays, i)
        elif np.any(arrays["inertia"][i]):
            fault = f"link {joint.child!r} is internal to a joint with several degrees of freedom but has inertia"
            raise ModelError(fault, "move the inertia to the joint's last link", place=source)
    for frame, (i, _) in arrangement.frames.items():
        if i >= 0:
            remove(robot.links[frame].node, {"inertial"})
    for name, value in arrangement.locked.items():
        joint = robot.joints[name]
        joint.node.set("type", "fixed")
        remove(joint.node, {"axis", "limit", "dynamics", "mimic", "jaxdyn", "calibration", "safety_controller"})
        origin = joint.node.find("origin")
        set_origin(insert(joint.node, "origin") if origin is None else origin, joint.pose_at(value), f"joint {name!r}")
    for joint in robot.joints.values():
        if (
            joint.mimic is not None and joint.mimic[0] in arrangement.locked
        ):  # with ignore_mimic, the joint is independent
            remove(joint.node, {"mimic"})
    set_gravity(robot.document.root, arrays["gravity"])
    _keep_meshes(robot.document.root, os.path.dirname(source), os.path.dirname(os.fspath(path)))
    body = ET.tostring(robot.document.root, encoding="unicode")
    text = _HEAD + "\n".join((*robot.document.before, body, *robot.document.after)) + "\n"
    again = arrange(parse_robot(text, source, inertials=False), dataclasses.replace(options, lock=None))
    _check_same(source, chain, arrays, again)
    if not allow_nonphysical:
        check_consistent(chain)
    write_whole(path, text)


def _refusal(source: str, fault: str) -> ModelError:
    return ModelError(fault, "use save_urdf to write the entire chain", place=source)


def _check_layout(source: str, chain: Chain, file: Layout) -> None:
    """Raise an error if the joints, links or couplings of a chain differ from those in the file."""
    ours = {"joints": chain.joint_names, "links": chain.link_names}
    theirs = {"joints": tuple(x.name for x in file.joints), "links": tuple(x.child for x in file.joints)}
    free = [[i for i, kind in x.compound_joints if kind == Free.kind] for x in (chain.topology, file)]
    fault = next((kind for kind in ours if ours[kind] != theirs[kind]), "")
    if fault:
        have = f"{', '.join(theirs[fault])}, but the chain has {', '.join(ours[fault])}"
        fault = f"the file has the moving {fault} {have}"
    elif chain.topology.parents != file.parents or free[0] != free[1]:
        fault = "the links of the chain are connected differently from those in the file"
    elif (chain.coupling is None) != (file.coupling is None):
        fault = f"only {'the file' if chain.coupling is None else 'the chain'} has joints that mimic others"
    if fault:
        advice = "pass the file, lock=, tip=, floating_base= and ignore_mimic= with which the chain was loaded"
        raise ModelError(fault, advice, place=source)


def _check_same(source: str, chain: Chain, arrays: Mapping[str, np.ndarray], layout: Layout) -> None:
    """Raise an error if the updated file, apart from inertias, would not describe the chain."""
    tolerance = max(1e-12, 1e2 * float(np.finfo(chain.dtype).eps))
    pairs = [
        (key, name, arrays[key][i], written[i])
        for key, written in layout.arrays().items()
        if key != "inertia"
        for i, name in enumerate(chain.joint_names)
    ]
    if chain.coupling is not None and layout.coupling is not None:
        both = (np.column_stack([x.matrix, x.offset]) for x in (chain.coupling, layout.coupling))
        pairs += [("coupling", *rows) for rows in zip(chain.joint_names, *both, strict=True)]
    poses = np.asarray(chain.frame_poses).astype(float)
    for frame, i, pose in zip(chain.frame_names, chain.topology.frame_links, poses, strict=True):
        index, written = layout.frames[frame]
        pairs.append(("frame_poses", frame, pose, written if index == i else np.full((4, 4), np.nan)))
    for key, name, ours, theirs in pairs:
        ours, theirs = np.atleast_1d(ours), np.atleast_1d(theirs)
        if not np.allclose(ours, theirs, rtol=tolerance, atol=tolerance):
            fault = f"{key} of {name!r} differs between the chain and the file"
            remedy = "update_urdf writes only inertias and friction. Write the entire chain with save_urdf, or pass the {lock} "
            raise ModelError(fault, f"{remedy}and {{tip}} with which it was loaded", place=source, lock="", tip="")


def _keep_meshes(root: ET.Element, before: str, after: str) -> None:
    """Adapt relative paths of meshes and textures for a file that moves from the folder `before` to the folder `after`."""
    for element in root.iter():
        name = element.get("filename") if element.tag in ("mesh", "texture") else None
        if name and "://" not in name and not os.path.isabs(name):
            element.set("filename", os.path.relpath(os.path.join(before, name), after or "."))


# numbers and XML elements, also for `mjcf_write`


def arrays_of(chain: Chain, *, decimals: bool = True) -> dict[str, np.ndarray]:
    """Return the leaves of a chain by name, in float64."""
    if chain.inertia.ndim != 2:
        raise ModelError(f"the chain is a batch (inertia has shape {chain.inertia.shape}); write one robot at a time")
    return {name: shortest(x) if decimals else np.asarray(x, float) for name, x in named_leaves(chain).items()}


def shortest(values: Values, dtype: DTypeLike | None = None) -> np.ndarray:
    """Round numbers to the fewest digits that reproduce them in a dtype (by default, their own)."""
    given = np.asarray(values)
    given = given if dtype is None else given.astype(dtype)
    if given.dtype == np.float64:
        return given
    return np.array([float(str(x)) for x in given.ravel()], float).reshape(given.shape)


def fewest_digits(values: np.ndarray, fits: Callable[[np.ndarray], Any]) -> np.ndarray:
    """Round numbers to the fewest significant digits for which `fits` is true, or leave them unchanged if it never is."""
    for digits in range(16):
        rounded = np.array([float(f"{x:.{digits}e}") for x in values])
        if fits(rounded):
            return rounded
    return values


def check_helical(chain: Chain, supported: str) -> None:
    """Raise an error for joints that turn and slide."""
    for joint, (w, v) in zip(chain.joint_names, np.reshape(chain.screw, (-1, 2, 3)).astype(float), strict=True):
        if np.any(w) and abs(w @ v) > 1e2 * np.finfo(chain.dtype).eps * (1 + np.linalg.norm(v)):
            raise ModelError(f"joint {joint!r} is helical (pitch {w @ v:g} m/rad)", supported)


def inner_links(chain: Chain, arrays: Mapping[str, np.ndarray]) -> set[int]:
    """All but the last links of spherical and free joints; ModelError if one has inertia, or carries a link or frame."""
    topology, inner = chain.topology, {}
    for joint in layout(chain).curved:
        *before, last = range(chain.n)[joint.links]
        inner |= dict.fromkeys(before, joint)
        if np.any(arrays["inertia"][before]):
            fault = f"the links before {chain.link_names[last]!r} have inertia"
            raise ModelError(fault, f"only the last link of a {joint.kind} joint may have inertia")
    carried = [(f"link {topology.link_names[i]!r}", p) for i, p in enumerate(topology.parents) if i - 1 != p]
    carried += [(f"frame {name!r}", i) for name, i in zip(topology.frame_names, topology.frame_links, strict=True)]
    for what, i in carried:
        if i in inner:
            fault = f"{what} is attached to an intermediate link of the {inner[i].kind} joint {chain.joint_names[i]!r}"
            raise ModelError(fault, "attach it to the joint's last link")
    return set(inner)


def check_writable(chain: Chain) -> None:
    """Raise an error if URDF cannot represent the chain."""
    check_helical(chain, "URDF supports only revolute and prismatic joints")
    for joint in layout(chain).curved:
        if joint.kind != Free.kind:
            raise ModelError(f"joint {chain.joint_names[joint.link]!r} is {joint.kind}; URDF has no such joint")
    if chain.transmission is not None:
        driven = np.flatnonzero(np.any(np.asarray(chain.transmission.matrix), axis=0))
        where = f" (it drives {chain.joint_names[driven[0]]!r})" if len(driven) else ""
        raise ModelError(f"the chain has a transmission{where}, which URDF cannot represent; use armature= instead")
    if chain.base_pose is not None:
        raise ModelError("the chain has a base_pose, which URDF cannot represent; include it in the joints at the base")


def check_consistent(chain: Chain, advice: str = "write them unchanged with allow_nonphysical=True") -> None:
    """Raise an error if an inertia of a chain is physically inconsistent."""
    inertia = dict(zip(chain.link_names, np.asarray(chain.inertia).astype(float), strict=True))
    reasons = inertia_faults({link: pi for link, pi in inertia.items() if np.all(np.isfinite(pi))}, SLIGHTLY)
    if reasons:
        first, *others = reasons
        more = f" (also for {', '.join(others)})" if others else ""
        fault = f"{reasons[first].fault}; this is impossible for a rigid body{more}"
        raise ModelError(fault, f"make the inertias physically consistent, or {advice}")


def set_inertial(link: ET.Element, name: str, pi: Float[np.ndarray, "10"], dtype: DTypeLike = np.float64) -> None:
    """Set a link's `<inertial>` to numbers that reproduce the parameters `pi` in a dtype, or remove it if `pi` is zero."""
    old = link.find("inertial")
    if not np.any(pi):
        remove(link, {"inertial"})
        return
    with np.errstate(all="ignore"):
        com = pi[1:4] / pi[0] if pi[0] != 0 else np.zeros(3)
        about_com = transform_inertial_parameters(pose_of(translation=-com), pi)
        about_com[1:4] = 0
        error = np.abs(transform_inertial_parameters(pose_of(translation=com), about_com) - pi).max()
    if np.all(np.isfinite(pi)):
        if not error <= 1e-9 * np.abs(pi).max():
            fault = (
                f"link {name!r}: mass {pi[0]:g} kg with first moment {np.linalg.norm(pi[1:4]):g} kg m cannot be written"
            )
            raise ModelError(f"{fault} as mass and centre of mass, as URDF requires", "give the link mass")
        com, about_com[4:] = _fewest_digits_of(pi, com, np.dtype(dtype))
    node = insert(link, "inertial", 0) if old is None else old
    for child in list(node):
        node.remove(child)
    label = f"the inertia of link {name!r}"
    ET.SubElement(node, "origin", xyz=written(com, label), rpy="0 0 0")
    ET.SubElement(node, "mass", value=written(pi[:1], label))
    ET.SubElement(node, "inertia", {key: written([x], label) for key, x in zip(MOMENTS, about_com[4:], strict=True)})
    ET.indent(node, level=2)


def _fewest_digits_of(pi: np.ndarray, com: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Centre of mass, and inertia about it, with the fewest digits that reproduce the inertial parameters in a dtype."""

    def moved(moments: np.ndarray, centre: np.ndarray) -> np.ndarray:
        return transform_inertial_parameters(pose_of(translation=centre), np.array([pi[0], 0, 0, 0, *moments]))

    same = lambda back, part: np.array_equal(back[part].astype(dtype), pi[part].astype(dtype))
    first, second = slice(1, 4), slice(4, 10)
    com = fewest_digits(com, lambda x: same(moved(np.zeros(6), x), first))
    moments = pi[second] - moved(np.zeros(6), com)[second]
    return com, fewest_digits(moments, lambda x: same(moved(x, com), second))


def set_drive(node: ET.Element, joint: str, chain: Chain, arrays: Mapping[str, np.ndarray], i: int) -> None:
    """Set the `<dynamics>` and `<jaxdyn>` elements of a joint. Default values are omitted."""
    for leaf, (tag, key) in DRIVES.items():
        element, value = node.find(tag), arrays[leaf][i]
        if value != shortest(JOINT_LEAVES[leaf], chain.dtype):
            element = insert(node, tag) if element is None else element
            element.set(key, written([value], f"{leaf} of joint {joint!r}"))
        elif element is not None:
            element.attrib.pop(key, None)
            if not element.attrib:
                remove(node, {tag})


def set_gravity(robot: ET.Element, gravity: Float[np.ndarray, "3"]) -> None:
    """Set the `<jaxdyn gravity>` element of a robot, or remove it if gravity has its default value."""
    element = robot.find("jaxdyn")
    if not np.array_equal(gravity, np.array(EARTH)):
        element = insert(robot, "jaxdyn", 0) if element is None else element
        element.set("gravity", written(gravity, "gravity"))
    elif element is not None:
        remove(robot, {"jaxdyn"})


def set_origin(origin: ET.Element, pose: Float[np.ndarray, "4 4"], label: str, dtype: DTypeLike = np.float64) -> None:
    """Set xyz and rpy to numbers that reproduce the pose in a dtype."""
    r = pose[:3, :3]
    same = lambda x: np.array_equal(rpy_to_rotation(x).astype(dtype), r.astype(dtype))
    origin.set("xyz", written(shortest(pose[:3, 3], dtype), f"the origin of {label}"))
    origin.set("rpy", written(fewest_digits(rpy_of(r), same), f"the rotation of {label}"))


def insert(parent: ET.Element, tag: str, index: int | None = None) -> ET.Element:
    """Insert a child element on a line of its own, indented like its siblings."""
    node = parent.makeelement(tag, {})
    index = len(parent) if index is None else index
    inner = parent.text if len(parent) and parent.text and not parent.text.strip() else "\n    "
    if index == 0:
        parent.text, node.tail = inner, inner if len(parent) else "\n  "
    else:
        parent[index - 1].tail, node.tail = inner, parent[index - 1].tail
    parent.insert(index, node)
    return node


def remove(parent: ET.Element, tags: Container[str]) -> None:
    """Remove children by tag, and preserve the white space before the next sibling."""
    for child in [c for c in parent if c.tag in tags]:
        index = list(parent).index(child)
        if index == len(parent) - 1:
            if index:
                parent[index - 1].tail = child.tail
            else:
                parent.text = child.tail
        parent.remove(child)


def written(values: Iterable[float] | np.ndarray, label: str, form: str = "a URDF") -> str:
    """Format finite numbers as text, with all digits."""
    numbers = [float(x) + 0.0 for x in values]
    if not np.all(np.isfinite(numbers)):
        raise ModelError(f"{label} is {numbers}, not finite; {form} cannot represent it")
    return " ".join(map(repr, numbers))

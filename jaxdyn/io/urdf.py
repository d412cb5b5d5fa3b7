"""Read URDF documents as chains, for `jaxdyn.load`.

`parse_robot` reads the elements of a document into links and joints, `arrange` makes of them the tree of moving links
(planar and floating joints are split, fixed links fused, mimic joints coupled), and `chain_of` builds the chain. Every
error names the file, and the line of the element at fault; errors of the whole robot, such as two roots or an unknown tip,
name only the file. What is only doubtful is collected, and reported in a single warning.
"""

import dataclasses
import math
import warnings
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from ..errors import ModelError, ModelWarning, warn
from ..model.build import (
    EARTH,
    JOINT_LEAVES,
    LARGEST,
    SLIGHTLY,
    build_chain,
    check_sizes,
    inertia_faults,
    meant_angle,
    meant_rotation,
    meant_unit,
    pose_of,
    with_unrounded,
)
from ..model.chain import Chain, Coupling, Topology
from ..model.drives import with_coupling
from ..model.joints import Free, Joint as ChainJoint, Planar
from ..spatial.components import rotation_about, skew_matrix
from ..spatial.inertia import spatial_inertia, transform_inertial_parameters
from ..spatial.so3 import quaternion_to_rotation, rpy_to_rotation
from .files import RUN_XACRO, Document, Node, attribute, fail, number, numbers, only_child, parse_xml

MOMENTS = ("ixx", "ixy", "iyy", "ixz", "iyz", "izz")
# URDF element and attribute for each leaf of a joint
DRIVES = {
    "friction.viscous": ("dynamics", "damping"),
    "friction.coulomb": ("dynamics", "friction"),
    "armature": ("jaxdyn", "armature"),
    "friction.offset": ("jaxdyn", "offset"),
    "friction.coulomb_velocity": ("jaxdyn", "coulomb_velocity"),
    "friction.stribeck": ("jaxdyn", "stribeck_friction"),
    "friction.stribeck_velocity": ("jaxdyn", "stribeck_velocity"),
    "springs.stiffness": ("jaxdyn", "stiffness"),
    "springs.rest_position": ("jaxdyn", "rest_position"),
}
_SINGULAR = 1e-13  # eigenvalues of M, scaled to a unit diagonal, that are smaller than this (times n) count as zero


def _basis(normal: np.ndarray) -> np.ndarray:
    """Two axes of a plane and its normal, right-handed; for the normal z, they are x, y and z."""
    start = np.eye(3)[0] if abs(normal[0]) < 0.9 else np.eye(3)[1]
    first = start - (start @ normal) * normal
    first /= np.linalg.norm(first)
    return np.array([first, np.cross(normal, first), normal])


# joints with several degrees of freedom: type in a chain, kinds of the parts, and their axes from the joint's axis
_COMPOUND: dict[str, tuple[type[ChainJoint], tuple[str, ...], Callable[[np.ndarray], np.ndarray]]] = {
    "planar": (Planar, ("prismatic", "prismatic", "continuous"), _basis),
    "floating": (Free, ("continuous",) * 3 + ("prismatic",) * 3, lambda _: np.tile(np.eye(3), (2, 1))),
}
_MOVING = ("revolute", "continuous", "prismatic", *_COMPOUND)


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of `jaxdyn.load` for URDF files."""

    lock: Mapping[str, float] | None = None
    tip: str | None = None
    floating_base: bool | str = False
    ignore_mimic: bool = False
    ignore_inertials: bool = False
    gravity: ArrayLike | Sequence[float] | None = None
    allow_nonphysical: bool = False


class Flaw(NamedTuple):
    """A fault in a link's `<inertial>`: the error, whether it is slight (and tolerated), and the element at fault."""

    error: ModelError
    slight: bool
    node: Node


@dataclasses.dataclass(frozen=True, eq=False)
class Link:
    """A link: its element in the file, and its inertial parameters about its origin (None without a readable `<inertial>`)."""

    name: str
    inertia: Float[np.ndarray, "10"] | None
    node: Node
    flaw: Flaw | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Joint:
    """A joint as declared in the file, with its pose in the parent link and its unit axis."""

    name: str
    kind: str
    parent: str
    child: str
    origin: Float[np.ndarray, "4 4"]
    axis: Float[np.ndarray, "3"]
    leaves: Mapping[str, Any]  # limits, friction, armature and spring by the names of a chain's leaves
    mimic: tuple[str, float, float] | None  # joint, multiplier, offset
    node: Node
    meant: tuple[Float[np.ndarray, "4 4"], Float[np.ndarray, "3"]] | None = None  # unrounded
    unset: tuple[str, ...] = ()  # limits of zero that were read as infinite

    @property
    def screw(self) -> Float[np.ndarray, "6"]:
        """Screw of the joint: (axis, 0) if it is revolute or continuous, (0, axis) if it is prismatic."""
        zero = np.zeros(3)
        return np.concatenate([zero, self.axis] if self.kind == "prismatic" else [self.axis, zero])

    def pose_at(self, q: float) -> Float[np.ndarray, "4 4"]:
        """Pose of the child link in the parent link at joint position q [rad or m]."""
        if self.kind == "prismatic":
            return self.origin @ pose_of(translation=q * self.axis)
        return self.origin @ pose_of(rotation_about(self.axis, q))


@dataclasses.dataclass(frozen=True, eq=False)
class Robot:
    """A robot as declared: links and joints in file order, root link, and joints in depth-first order (`outward`)."""

    source: str
    links: dict[str, Link]
    joints: dict[str, Joint]
    root: str
    outward: tuple[Joint, ...]
    document: Document
    remarks: tuple[str, ...] = ()

    def with_joints(self, change: Callable[[Joint], Joint]) -> "Robot":
        """The robot with all joints changed."""
        joints = {name: change(joint) for name, joint in self.joints.items()}
        return dataclasses.replace(self, joints=joints, outward=tuple(joints[joint.name] for joint in self.outward))


@dataclasses.dataclass(frozen=True, eq=False)
class Layout:
    """The tree of a robot's moving links, or the serial chain to a tip; index -1 is the base."""

    joints: tuple[Joint, ...]
    parents: tuple[int, ...]  # indices of the moving links that carry each moving link
    placements: Float[np.ndarray, "n 4 4"]  # poses at q = 0 in the carrying link
    inertia: Float[np.ndarray, "n 10"]  # with the links fused with each moving link
    frames: dict[str, tuple[int, np.ndarray]]  # carrying link and pose of every fused link
    tip: str | None
    locked: dict[str, float]  # with mimic joints that follow locked joints
    bodies: dict[str, int]  # carrying moving link of every link whose inertia has an effect
    root: str
    compound_joints: tuple[tuple[int, str], ...] = ()
    coupling: Coupling | None = None
    coordinate_names: tuple[str, ...] | None = None

    def arrays(self) -> dict[str, Any]:
        """The leaves of a chain with this layout, by name."""
        arrays = {name: np.array([joint.leaves[name] for joint in self.joints]) for name in JOINT_LEAVES}
        return {
            "rotation": self.placements[:, :3, :3],
            "translation": self.placements[:, :3, 3],
            "screw": np.array([joint.screw for joint in self.joints]),
            "inertia": self.inertia,
            **arrays,
        }


T = TypeVar("T", Link, Joint)


def chain_of(robot: Robot, options: Options) -> Chain:
    """Convert a parsed URDF document to a chain, with the errors of `jaxdyn.load`."""
    layout = arrange(robot, options)
    allow_nonphysical, gravity = options.allow_nonphysical, options.gravity
    if gravity is None:
        node = only_child(robot.document.root, "jaxdyn", "the robot")
        gravity = numbers(node, "gravity", 3, "the robot", EARTH)
    if remarks := [*robot.remarks, *_flaws(robot, layout, allow_nonphysical), *_remarks(robot, layout, options)]:
        warn(f"{robot.source}: {'; '.join(remarks)}")
    names, links = (tuple(getattr(joint, which) for joint in layout.joints) for which in ("name", "child"))
    ends = {"base_name": layout.root, "tip_name": layout.tip, "compound_joints": layout.compound_joints}
    topology = Topology(layout.parents, names, links, **ends)
    arrays = {**layout.arrays(), "gravity": np.asarray(gravity, float)}
    try:
        with warnings.catch_warnings():
            if remarks:  # already reported above, with the names in the file
                warnings.simplefilter("ignore", ModelWarning)
            chain = build_chain(arrays, topology, layout.frames, allow_nonphysical=allow_nonphysical)
        if layout.coupling is not None:
            chain = with_coupling(chain, layout.coupling.matrix, layout.coupling.offset, layout.coordinate_names)
            check_sizes(chain)
        exact = arrange(robot.with_joints(_unrounded), options)
        return with_unrounded(chain, exact.placements, exact.arrays()["screw"])
    except ModelError as error:
        raise ModelError(f"{robot.source}: {error}") from None


def _unrounded(joint: Joint) -> Joint:
    """A joint with the origin and axis for which rounded numbers stand, and without limits, which rounding can exceed."""
    origin, axis = joint.meant or (joint.origin, joint.axis)
    leaves = {**joint.leaves, "limits.position": JOINT_LEAVES["limits.position"]}
    return dataclasses.replace(joint, origin=origin, axis=axis, leaves=leaves)


# -- the elements of a document


def parse_robot(data: bytes | str, source: str, *, inertials: bool = True) -> Robot:
    """Parse a URDF document into a tree of links and joints, and check everything except inertias."""
    document = parse_xml(data, source)
    root = document.root
    if root.tag != "robot":
        raise fail(root, f"the root element is <{root.tag}>, not <robot>; this is not a URDF")
    _check_xacro(root)
    version = _version(root)
    remarks: list[str] = []
    moving = (joint for joint in root.findall("joint") if joint.get("type") != "fixed")
    moved = {child.get("link") for joint in moving for child in joint.findall("child")}
    links = _by_name("link", [_link(node, moved, inertials) for node in root.findall("link")])  # type: ignore[arg-type]
    joints = _by_name("joint", [_joint(node, remarks, version) for node in root.findall("joint")])  # type: ignore[arg-type]
    if not links:
        raise fail(root, "the robot has no <link>")
    base, outward = _order_tree(source, links, joints.values())
    return Robot(source, links, joints, base, outward, document, tuple(remarks))


def _by_name(kind: str, items: Sequence[T]) -> dict[str, T]:
    found: dict[str, T] = {}
    for item in items:
        if found.setdefault(item.name, item) is not item:
            raise fail(item.node, f"the {kind} name {item.name!r} is used twice; rename one {kind}")
    return found


def _link(node: Node, moved: Container[str | None], inertials: bool) -> Link:
    """Read a link. `moved` contains the links on moving joints; for other links, an all-zero `<inertial>` is allowed."""
    name = attribute(node, "name", "a link")
    if not inertials:
        return Link(name, None, node)
    try:
        return _with_inertial(name, node, moved)
    except ModelError as error:  # raised later, if the inertia has an effect
        return Link(name, None, node, Flaw(error, False, node))


def _with_inertial(name: str, node: Node, moved: Container[str | None]) -> Link:
    label = f"link {name!r}"
    inertial = only_child(node, "inertial", label)
    if inertial is None:
        return Link(name, None, node)
    mass_node, inertia_node = only_child(inertial, "mass", label), only_child(inertial, "inertia", label)
    if mass_node is None or inertia_node is None:
        fault = f"{label}: <inertial> needs <{'mass' if mass_node is None else 'inertia'}>"
        raise fail(inertial, fault, "add it, or remove <inertial>, if the link has no mass")
    mass = number(mass_node, "value", label)
    about_com = np.array([mass, 0.0, 0.0, 0.0, *(number(inertia_node, key, label) for key in MOMENTS)])
    if name not in moved and not about_com.any():
        return Link(name, None, node)
    if np.abs(about_com).max() > LARGEST:
        raise fail(inertial, f"{label}: {np.abs(about_com).max():g} is implausible for a rigid body; check the units")
    flaw = _flaw(name, about_com, name in moved, mass_node, inertia_node)
    return Link(name, transform_inertial_parameters(origin_pose(inertial, label), about_com), node, flaw)


def _flaw(name: str, pi: np.ndarray, moved: bool, mass_node: Node, inertia_node: Node) -> Flaw | None:
    """Find the fault of an inertia `pi` about the centre of mass, if any. `moved`: the link is on a moving joint."""
    mass = pi[0]
    if mass < 0 or (mass == 0 and moved):
        error = ModelError(f"link {name!r}: mass {mass:g} kg is not positive", "correct it, remove <inertial>")
        return Flaw(error, False, mass_node)
    if (error := inertia_faults({name: pi}).get(name)) is not None:
        return Flaw(error, not inertia_faults({name: pi}, SLIGHTLY), inertia_node)
    return Flaw(ModelError(f"link {name!r} has an inertia, but no mass"), True, mass_node) if mass == 0 else None


def _joint(node: Node, remarks: list[str], version: float) -> Joint:
    name = attribute(node, "name", "a joint")
    label = f"joint {name!r}"
    kind = attribute(node, "type", label)
    fixed = kind == "fixed"
    if kind not in _MOVING and not fixed:
        raise fail(node, f"{label}: joint type {kind!r} is not supported; use one of {', '.join(_MOVING)} and fixed")
    tags = "parent", "child", "limit", "dynamics", "mimic", "jaxdyn"
    children = {tag: only_child(node, tag, label) for tag in tags}
    if missing := [tag for tag in ("parent", "child") if children[tag] is None]:
        raise fail(node, f'{label} needs <{missing[0]} link=".."/>')
    parent, child = (attribute(children[tag], "link", label) for tag in ("parent", "child"))  # type: ignore[arg-type]
    # axis, limits and drive of a fixed joint are ignored
    motion = {tag: None if fixed else children[tag] for tag in ("limit", "dynamics", "mimic", "jaxdyn")}
    axes: list[Node] = [] if fixed else node.findall("axis")  # type: ignore[assignment]
    if len(axes) > 1:
        remarks.append(f"{label} has {len(axes)} <axis> elements; the first one is used")
    axis = np.array(numbers(axes[0], "xyz", 3, label) if axes else (1.0, 0.0, 0.0))
    length = np.linalg.norm(axis)
    if length < 1e-9:
        raise fail(axes[0] if axes else node, f"{label}: its axis is zero; specify a direction")
    leaves, unset = _limits(node, motion["limit"], kind, label, remarks, version)
    for leaf, (tag, key) in DRIVES.items():
        leaves[leaf] = number(motion[tag], key, label, JOINT_LEAVES[leaf])
    if (width := leaves["friction.coulomb_velocity"]) <= 0:
        here, why = motion["jaxdyn"], "is not positive; it is the width of a smooth sign function"
        raise fail(node if here is None else here, f"{label}: coulomb_velocity {width:g} {why}")
    mimic, follows = None, motion["mimic"]
    if follows is not None:
        if kind in _COMPOUND:
            raise fail(follows, f"{label}: a {kind} joint cannot mimic another joint; remove <mimic>")
        multiplier, offset = number(follows, "multiplier", label, 1.0), number(follows, "offset", label, 0.0)
        mimic = attribute(follows, "joint", label), multiplier, offset
    meant = origin_pose(node, label, meant=True), meant_unit(axis)
    return Joint(name, kind, parent, child, origin_pose(node, label), axis / length, leaves, mimic, node, meant, unset)


def _limits(
    joint: Node, node: Node | None, kind: str, label: str, remarks: list[str], version: float
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Read the limits of a joint as leaves, and the names of those that are not set. Very large numbers are infinite."""
    if kind == "fixed":
        return {"limits.position": (0.0, 0.0), "limits.velocity": 0.0, "limits.effort": 0.0}, ()
    bounded, inf, recent = kind in ("revolute", "prismatic"), float("inf"), version >= 1.2
    if node is None and bounded:
        limit = '<limit lower=".." upper=".." effort=".." velocity=".."/>'
        raise fail(joint, f"{label}: a {kind} joint requires {limit}; add it")
    # from URDF 1.2 on, velocity and effort are optional, but lower and upper are required
    position, others = None if recent else 0.0, None if bounded and not recent else inf
    values = [
        number(node, "lower", label, position) if bounded else -inf,
        number(node, "upper", label, position) if bounded else inf,
        number(node, "velocity", label, others),
        number(node, "effort", label, others),
    ]
    lower, upper, velocity, effort = (float(np.copysign(inf, x)) if abs(x) > LARGEST else x for x in values)
    if lower > upper:
        remarks.append(f"{label}: its lower limit {lower:g} exceeds its upper limit {upper:g}; both are ignored")
        lower, upper = -inf, inf
    if velocity < 0 or effort < 0:
        fault = f"{label}: velocity and effort limits are magnitudes; {min(velocity, effort):g} is negative"
        raise fail(joint if node is None else node, fault)
    limits: dict[str, Any] = {"position": (lower, upper), "velocity": velocity, "effort": effort}
    # CAD programs export zeros for limits that are not set
    unset = tuple(name for name in ("position", "velocity") if not np.any(limits[name]))
    unset += ("effort",) if len(unset) == 2 and effort == 0 else ()
    leaves = {f"limits.{name}": x for name, x in limits.items()}
    return leaves | {key: JOINT_LEAVES[key] for key in leaves if key.removeprefix("limits.") in unset}, unset


def origin_pose(node: Node, label: str, meant: bool = False) -> np.ndarray:
    """Pose in an element's `<origin>`, R = Rz(yaw) Ry(pitch) Rx(roll); with `meant`, that for which rounded angles stand."""
    origin = only_child(node, "origin", label)
    zero = (0.0, 0.0, 0.0)
    position = numbers(origin, "xyz", 3, label, zero)
    if origin is not None and "quat_xyzw" in origin.attrib:
        if "rpy" in origin.attrib:
            raise fail(origin, f"{label}: <origin> has both rpy and quat_xyzw; remove one")
        x, y, z, w = numbers(origin, "quat_xyzw", 4, label)
        if (length := np.linalg.norm([w, x, y, z])) < 1e-9:
            raise fail(origin, f"{label}: <origin> quat_xyzw is zero; specify a rotation (0 0 0 1 for none)")
        turn = meant_rotation if meant else quaternion_to_rotation
        return pose_of(turn(np.array([w, x, y, z]) / length), position)
    rpy = np.array([meant_angle(x) if meant else x for x in numbers(origin, "rpy", 3, label, zero)])
    return pose_of(rpy_to_rotation(rpy), position)


def _check_xacro(node: Node) -> None:
    """Raise an error if a xacro element stands for links, joints or their numbers; elsewhere, it is ignored."""
    for child in node:
        if not isinstance(child, Node):
            continue
        if str(child.tag).startswith("xacro:"):
            raise fail(child, f"<{child.tag}> is a xacro element, not URDF; {RUN_XACRO}")
        if child.tag in ("link", "joint", "inertial"):
            _check_xacro(child)


def _version(root: Node) -> float:
    """Version of the URDF format that a document declares; quaternions need 1.1."""
    try:
        version = float(root.get("version", "1.0"))
    except ValueError:
        raise fail(root, f"<robot> version={root.get('version')!r} is not a version of URDF, such as 1.0") from None
    for node in root.iter("origin") if version < 1.1 else ():
        if "quat_xyzw" in node.attrib:
            fault = f"<origin> quat_xyzw needs URDF 1.1, but the file declares {version:.1f}"
            raise fail(node, fault, 'write <robot version="1.1" ..>, or the rotation as rpy')  # type: ignore[arg-type]
    return version


def _order_tree(source: str, links: Mapping[str, Link], joints: Iterable[Joint]) -> tuple[str, tuple[Joint, ...]]:
    """Find the root link, and sort the joints so that each joint comes after the joint that carries its parent link."""
    above: dict[str, Joint] = {}
    below: dict[str, list[Joint]] = {name: [] for name in links}
    for joint in joints:
        for role, link in (("parent", joint.parent), ("child", joint.child)):
            if link not in links:
                fault = f"its {role} link {link!r} is not declared; add <link> or correct the name"
                raise fail(joint.node, f"joint {joint.name!r}: {fault}")
        if joint.child in above:
            fault = f"has two parents, through the joints {above[joint.child].name!r} and {joint.name!r}"
            raise fail(joint.node, f"link {joint.child!r} {fault}", "a robot must be a tree: remove one of them")
        above[joint.child] = joint
        below[joint.parent].append(joint)

    def loop(link: str) -> str:
        seen: list[str] = []
        while link not in seen:
            seen.append(link)
            link = above[link].parent
        return " <- ".join([*seen[seen.index(link) :], link])

    roots = [name for name in links if name not in above]
    if not roots:
        fault = f"no link is the root, since the joints form a loop: {loop(next(iter(links)))}"
        raise ModelError(fault, "open the loop by removing a joint", place=source)
    if len(roots) > 1:
        those = ", ".join(map(repr, roots))
        raise ModelError(f"the links {those} have no parent; connect them to one root by joints", place=source)
    order: list[Joint] = []
    waiting = below[roots[0]][::-1]
    while waiting:
        order.append(waiting.pop())
        waiting += below[order[-1].child][::-1]
    reached = {roots[0], *(joint.child for joint in order)}
    if (lost := next((name for name in links if name not in reached), None)) is not None:
        remedy = f"open the loop and connect it to {roots[0]!r}"
        raise ModelError(f"the joints form a loop: {loop(lost)}", remedy, place=source)
    return roots[0], tuple(order)


# -- the tree of moving links


def arrange(robot: Robot, options: Options) -> Layout:
    """Split joints with several degrees of freedom, fuse fixed links and couple mimic joints."""
    if options.ignore_mimic:
        robot = robot.with_joints(lambda joint: dataclasses.replace(joint, mimic=None))
    for joint in robot.joints.values():
        if joint.mimic is not None:
            master = robot.joints.get(joint.mimic[0])
            if master is None or master.kind in ("fixed", *_COMPOUND):
                what = "moving joint" if master is None or master.kind == "fixed" else "joint with a single position"
                fault = f"joint {joint.name!r} mimics {joint.mimic[0]!r}, which is not a {what}"
                raise fail(joint.node, fault, "correct the name, or pass {ignore_mimic}", ignore_mimic="True")
    robot, parts = _expand(robot, options.floating_base)
    for name in options.lock or {}:
        for (whole, kind), members in parts.items():
            if name in members and kind == Free.kind:
                fault = f"lock contains {name!r}, a part of the free joint {whole!r}, which cannot be locked"
                raise ModelError(fault, place=robot.source)
    layout = _fuse(robot, options.lock or {}, options.tip)
    coupling, coordinates = _coupling(layout.joints)
    names = [joint.name for joint in layout.joints]
    compound = tuple((names.index(part[0]), kind) for (_, kind), part in parts.items() if set(part) <= set(names))
    return dataclasses.replace(layout, compound_joints=compound, coupling=coupling, coordinate_names=coordinates)


def _expand(robot: Robot, floating_base: bool | str = False) -> tuple[Robot, dict[tuple[str, str], tuple[str, ...]]]:
    """Split planar and floating joints. Return the robot, and the names of the parts by name and type of each such joint."""
    if floating_base:
        robot = _on_free_joint(robot, floating_base)
    links, joints, outward = dict(robot.links), dict(robot.joints), []
    named: dict[tuple[str, str], tuple[str, ...]] = {}
    for joint in robot.outward:
        if joint.kind not in _COMPOUND:
            outward.append(joint)
            continue
        compound, kinds, axes = _COMPOUND[joint.kind]
        if compound.at_base and (joint.parent != robot.root or np.abs(joint.origin - np.eye(4)).max() > 0):
            fault = f"joint {joint.name!r} is {joint.kind}, but not relative to the origin of the root {robot.root!r}"
            raise fail(joint.node, fault, "attach the joint to the root, without <origin>")
        others = joints.keys() - {joint.name}
        names = [untaken(joint.name + end, others) for end in compound.parts]
        parts = list(zip(names, kinds, axes(joint.axis), strict=True))
        named[joint.name, compound.kind] = tuple(names)
        del joints[joint.name]
        parent, origin = joint.parent, joint.origin
        unlimited = {key: JOINT_LEAVES[key] if key.startswith("limits.") else x for key, x in joint.leaves.items()}
        whole = dataclasses.replace(joint, mimic=None, leaves=unlimited, unset=())
        for name, kind, axis in parts:
            child = joint.child
            if name != parts[-1][0]:
                child = untaken(f"{joint.child}_{name.removeprefix(joint.name + '_')}", links)
                links[child] = Link(child, None, joint.node)
            ends = {"parent": parent, "child": child, "origin": origin}
            joints[name] = dataclasses.replace(whole, name=name, kind=kind, axis=axis, **ends)
            outward.append(joints[name])
            parent, origin = child, np.eye(4)
    return dataclasses.replace(robot, links=links, joints=joints, outward=tuple(outward)), named


def _on_free_joint(robot: Robot, name: bool | str) -> Robot:
    """The robot with a free joint, whose name is chosen if it is True, between a new root link and the old one."""
    choose = lambda names, taken: next((x for x in names if x not in taken), untaken(names[-1], taken))
    if name is True:
        name = choose(("floating_base", "root_joint"), robot.joints)
    elif name in robot.joints:
        fault = f"a joint is already called {name!r}; choose another name for the free joint"
        raise ModelError(fault, place=robot.source)
    world = choose(("world", "universe"), robot.links)
    node = robot.links[robot.root].node
    free = Joint(str(name), "floating", world, robot.root, np.eye(4), np.eye(3)[0], JOINT_LEAVES, None, node)
    links = {world: Link(world, None, node), **robot.links}
    joints = {free.name: free, **robot.joints}
    return dataclasses.replace(robot, links=links, joints=joints, root=world, outward=(free, *robot.outward))


def untaken(name: str, taken: Container[str]) -> str:
    """The name, or a variant of the name if it is in `taken`."""
    while name in taken:
        name += "_"
    return name


def fresh(name: str, taken: set[str]) -> str:
    """The name, or a variant of the name if it is in `taken`, to which the result is added."""
    name = untaken(name, taken)
    taken.add(name)
    return name


def _fuse(robot: Robot, lock: Mapping[str, float], tip: str | None) -> Layout:
    """Extract the entire tree, or the serial chain from the root to `tip`; fixed links are fused with those that carry them."""
    if tip is not None and tip not in robot.links:
        raise ModelError(f"unknown link {tip!r} in tip; the links are {', '.join(robot.links)}", place=robot.source)
    locked = _locked(robot, lock)
    # carrier of each link: the name of the moving joint whose link carries it, or None for the base
    carrier: dict[str, str | None] = {robot.root: None}
    pose = {robot.root: np.eye(4)}
    placement: dict[str, np.ndarray] = {}
    above: dict[str, str | None] = {}
    for joint in robot.outward:
        t = pose[joint.parent] @ (joint.pose_at(locked[joint.name]) if joint.name in locked else joint.origin)
        if joint.kind == "fixed" or joint.name in locked:
            carrier[joint.child], pose[joint.child] = carrier[joint.parent], t
        else:
            carrier[joint.child], pose[joint.child] = joint.name, np.eye(4)
            placement[joint.name], above[joint.name] = t, carrier[joint.parent]
    names = _path(robot, above, carrier, tip)
    index: dict[str | None, int] = {None: -1} | {name: i for i, name in enumerate(names)}
    joints = tuple(robot.joints[name] for name in names)
    moving = {joint.child for joint in joints}
    inertia, bodies = np.zeros((len(joints), 10)), {}
    frames: dict[str, tuple[int, np.ndarray]] = {}
    for name, link in robot.links.items():
        if carrier[name] not in index:
            continue
        i = index[carrier[name]]
        if i >= 0 and link.inertia is not None:
            inertia[i] += transform_inertial_parameters(pose[name], link.inertia)
        if i >= 0 and (link.inertia is not None or link.flaw is not None):
            bodies[name] = i
        if name not in moving and name != robot.root:
            frames[name] = (i, pose[name])
    parents = tuple(index[above[name]] for name in names)
    if tip is None and len(set(range(len(names))) - set(parents)) == 1:
        last = {name for name, joint in carrier.items() if joint == names[-1]}
        leaves = last - {joint.parent for joint in robot.outward if joint.child in last}
        tip = leaves.pop() if len(leaves) == 1 else joints[-1].child
    placements = np.array([placement[name] for name in names])
    return Layout(joints, parents, placements, inertia, frames, tip, locked, bodies, robot.root)


def _path(
    robot: Robot, above: Mapping[str, str | None], carrier: Mapping[str, str | None], tip: str | None
) -> tuple[str, ...]:
    """Names of the moving joints, from the base to the tips."""
    names, where, free = tuple(above), "", ". For a body that moves freely, pass floating_base=True"
    if tip is not None:
        back, name = [], carrier[tip]
        while name is not None:
            back.append(name)
            name = above[name]
        names, where, free = tuple(back[::-1]), f" between the root {robot.root!r} and the tip {tip!r}", ""
    if not names:
        remedy = f"a chain needs at least one revolute, continuous or prismatic joint{free}"
        raise ModelError(f"no joint moves{where}", remedy, place=robot.source)
    return names


def _locked(robot: Robot, lock: Mapping[str, float]) -> dict[str, float]:
    """Compute the positions of the locked joints and of the mimic joints that follow them."""
    locked: dict[str, float] = {}
    for name, value in lock.items():
        if name not in robot.joints:
            known = ", ".join(robot.joints)
            raise ModelError(f"unknown joint {name!r} in lock; the joints are {known}", place=robot.source)
        if robot.joints[name].kind == "fixed":  # for example in a file written from a chain with locked joints
            continue
        if not math.isfinite(value):
            fault = f"lock contains {value} for joint {name!r}; specify a finite position"
            raise ModelError(fault, place=robot.source)
        locked[name] = float(value)
    mimics = {joint.name: joint.mimic for joint in robot.joints.values() if joint.mimic is not None}
    while follow := [name for name, (master, *_) in mimics.items() if master in locked and name not in locked]:
        for name in follow:
            master, multiplier, offset = mimics[name]
            locked[name] = multiplier * locked[master] + offset
    for name, value in locked.items():
        lower, upper = robot.joints[name].leaves["limits.position"]
        slack = 1e-9 * (1 + abs(value))  # the limit itself is allowed, also after a conversion of units
        if not lower - slack <= value <= upper + slack:
            follows = "" if name in lock else " (it mimics a locked joint)"
            fault = f"joint {name!r} is locked at {value:g}{follows}, outside its limits {lower:g} to {upper:g}"
            raise fail(robot.joints[name].node, fault, "lock it within its limits")
    return locked


def _coupling(joints: Sequence[Joint]) -> tuple[Coupling | None, tuple[str, ...] | None]:
    """Compute the coupling of mimic joints, q_mimic = multiplier q + offset, and the names of the independent coordinates."""
    if all(joint.mimic is None for joint in joints):
        return None, None
    index = {joint.name: i for i, joint in enumerate(joints)}
    own = [i for i, joint in enumerate(joints) if joint.mimic is None]
    n = len(joints)
    to, ratio, shift = np.arange(n), np.ones(n), np.zeros(n)  # q_i = ratio_i q_to(i) + shift_i
    for i, joint in enumerate(joints):
        if joint.mimic is not None:
            master, ratio[i], shift[i] = joint.mimic
            if master not in index:
                fault = f"joint {joint.name!r} mimics {master!r}, which does not move the tip"
                remedy = f"lock {joint.name!r} with {{lock}}, or choose another {{tip}}"
                raise fail(joint.node, fault, remedy, lock="{...}", tip="")
            to[i] = index[master]
    for _ in range(n.bit_length()):  # a mimic joint may follow another one
        ratio, shift, to = ratio * ratio[to], ratio * shift[to] + shift, to[to]
    if (circular := np.flatnonzero(~np.isin(to, own))).size:
        joint = joints[circular[0]]
        raise fail(joint.node, f"joint {joint.name!r} mimics itself, via other joints; remove one <mimic>")
    matrix = np.zeros((n, len(own)))
    matrix[np.arange(n), np.searchsorted(own, to)] = ratio
    return Coupling(matrix, shift), tuple(joints[i].name for i in own)  # type: ignore[arg-type]


# -- what is doubtful in a file


def massless_motion(layout: Layout) -> list[str]:
    """Find the joints that take part in a motion without kinetic energy, at one generic configuration."""
    free = [i for i, kind in layout.compound_joints if kind == Free.kind]
    if not np.any(layout.inertia[:, 0]) and not free:
        return []
    matrix = _mass_matrix(layout) + np.diag([float(joint.leaves.get("armature", 0.0)) for joint in layout.joints])
    names = [joint.name for joint in layout.joints]
    whole = {part: names[i].removesuffix(Free.parts[0]) for i in free for part in names[i : i + len(Free.parts)]}
    if layout.coupling is not None:
        s = np.asarray(layout.coupling.matrix, float)
        matrix = s.T @ matrix @ s
        names = list(layout.coordinate_names or names)
    size = np.sqrt(np.diag(matrix).clip(0.0))
    scale = np.where(size <= 1e-150, 1.0, size)
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    moves = np.abs(vectors[:, values < _SINGULAR * len(values)]).max(1, initial=0.0) > 1e-6
    return list(dict.fromkeys(whole.get(name, name) for name, part in zip(names, moves, strict=True) if part))


def _mass_matrix(layout: Layout) -> Float[np.ndarray, "n n"]:
    """Mass matrix M = sum_i J_i^T G_i J_i, with the Jacobian J_i and spatial inertia G_i of each link in its frame."""
    n = len(layout.joints)
    positions = np.random.default_rng(0).uniform(0.3, 1.2, n)
    jacobians, matrix = np.zeros((n, 6, n)), np.zeros((n, n))
    for i, (joint, parent) in enumerate(zip(layout.joints, layout.parents, strict=True)):
        moved = np.linalg.solve(joint.origin, joint.pose_at(positions[i]))
        if parent >= 0:
            t, (w, v) = layout.placements[i] @ moved, np.split(jacobians[parent], 2)
            r, p = t[:3, :3], t[:3, 3]
            jacobians[i] = np.concatenate([r.T @ w, r.T @ (v - skew_matrix(p) @ w)])
        jacobians[i, :, i] += joint.screw
        matrix += jacobians[i].T @ spatial_inertia(layout.inertia[i]) @ jacobians[i]
    return matrix


def _remarks(robot: Robot, layout: Layout, options: Options) -> list[str]:
    """Warnings about bodies that the tip removes, unset limits, locks without effect, and motions without mass."""
    remarks, moving = [], {joint.name for joint in layout.joints}
    kept = {robot.root, *layout.frames, *(joint.child for joint in layout.joints)}
    dropped = {name: x.inertia[0] for name, x in robot.links.items() if name not in kept and x.inertia is not None}
    if lost := {name: float(mass) for name, mass in dropped.items() if mass > 0}:
        what = f"{', '.join(map(repr, lost))} ({sum(lost.values()):.3g} kg)"
        remarks.append(f"the chain to the tip {layout.tip!r} drops {what}; lock their joints to keep the mass")
    named: dict[tuple[str, ...], list[str]] = {}
    for joint in layout.joints:
        named.setdefault(joint.unset, []).append(repr(joint.name))
    for unset, joints in named.items():
        if unset:
            which = f"{', '.join(unset)} of {', '.join(joints)}"
            fix = "; to fix a joint, lock it" if "position" in unset else ""
            remarks.append(f"limits of zero allow no motion and are read as no limits ({which}){fix}")
    for joint in (robot.joints[name] for name in options.lock or () if name in robot.joints):
        if joint.kind == "fixed":
            remarks.append(f"the lock of joint {joint.name!r} is ignored, since the joint is fixed in the file")
        elif joint.mimic is not None and not options.ignore_mimic and joint.mimic[0] in moving:
            remarks.append(f"joint {joint.name!r} is locked and no longer follows {joint.mimic[0]!r}, which moves")
    if not options.allow_nonphysical and (still := massless_motion(layout)):
        what = f"since a motion of {', '.join(map(repr, still))} moves no mass"
        remedy = "add inertias to the links, lock a joint, or add armature"
        remarks.append(f"the mass matrix is singular and forward dynamics is not finite, {what}: {remedy}")
    return remarks


def _flaws(robot: Robot, layout: Layout, allow_nonphysical: bool) -> list[str]:
    """Compose warnings about inconsistent inertias that are tolerated; ModelError for one that has an effect."""
    slight, unused = [], []
    possible = lambda name, pi: pi[0] > 0 and not inertia_faults({name: pi}, SLIGHTLY)
    for link in robot.links.values():
        if (flaw := link.flaw) is None:
            continue
        if link.name not in layout.bodies:
            unused.append(repr(link.name))
        elif link.inertia is None:
            raise flaw.error
        elif flaw.slight or possible(link.name, layout.inertia[layout.bodies[link.name]]):
            slight.append(flaw.error.fault)
        elif not allow_nonphysical:
            remedy = "load only the kinematics with {ignore_inertials}, or pass {allow_nonphysical}"
            remedy = f"{flaw.error.remedy}, {remedy}"
            raise fail(flaw.node, flaw.error.fault, remedy, ignore_inertials="True", allow_nonphysical="True")
    if allow_nonphysical:
        return []
    said = [f"physically inconsistent inertias are used unchanged: {'; '.join(slight)}"] if slight else []
    return said + ([f"inconsistent inertias of {', '.join(unused)} have no effect"] if unused else [])

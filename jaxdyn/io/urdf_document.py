"""Parse XML robot descriptions, with line numbers for errors and checks of numbers. Entities are not allowed.

Convert a chain's parameters to URDF elements, for writing and updating files.

Represent a robot description as a tree of links, and fuse fixed links."""

import dataclasses
import math
import xml.etree.ElementTree as ET
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any
from xml.parsers import expat

import numpy as np
from jaxtyping import Float
from numpy.typing import DTypeLike

from ..errors import ModelError
from ..model.build import EARTH, JOINT_LEAVES, SLIGHTLY, inertia_faults
from ..model.chain import Chain, named_leaves
from ..spatial.host import Values, move_inertia, pose_of, rotation_about, rotation_from_rpy, rpy_of

_DEEPEST = 100


class Node(ET.Element):
    """An element with its position in the file ("file:line")."""

    where: str = ""


@dataclasses.dataclass(frozen=True)
class Document:
    """A parsed document: its root element, and the comments and processing instructions before and after the root."""

    root: Node
    before: tuple[str, ...]
    after: tuple[str, ...]


def parse_xml(data: bytes | str, source: str) -> Document:
    """Parse a document, including comments. A document type declaration is an error, so that entities are never expanded."""
    if not data.strip():
        raise ModelError(f"{source}: the document is empty")
    above = data[: len(data) - len(data.lstrip())]  # XML does not allow blank lines before the declaration
    skipped = above.count("\n" if isinstance(above, str) else b"\n")  # type: ignore[arg-type]
    data = data[len(above) :]
    # a str is already decoded, whatever encoding it declares
    parser = expat.ParserCreate("utf-8" if isinstance(data, str) else None)
    parser.buffer_text = True
    builder = ET.TreeBuilder(element_factory=Node, insert_comments=True, insert_pis=True)
    state = {"depth": 0, "closed": False}
    place = lambda: f"{source}:{parser.CurrentLineNumber + skipped}"
    outside: tuple[list[str], list[str]] = ([], [])

    def start(tag: str, attributes: dict[str, str]) -> None:
        state["depth"] += 1
        if state["depth"] > _DEEPEST:
            raise ModelError(f"{place()}: elements are nested more than {_DEEPEST} levels deep; flatten the document")
        builder.start(tag, attributes).where = place()  # type: ignore[attr-defined]

    def end(tag: str) -> None:
        state["depth"] -= 1
        state["closed"] = state["depth"] == 0
        builder.end(tag)

    def comment(text: str) -> None:
        if state["depth"]:
            builder.comment(text)
        else:
            outside[state["closed"]].append(f"<!--{text}-->")

    def instruction(target: str, text: str) -> None:
        if state["depth"]:
            builder.pi(target, text)
        else:
            outside[state["closed"]].append(f"<?{target} {text}?>")

    def doctype(*_: object) -> None:
        raise ModelError(
            f"{place()}: a document type declaration (<!DOCTYPE ...>) is not allowed, because "
            "entities can exhaust memory or read other files; remove it and expand the entities"
        )

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, builder.data
    parser.CommentHandler, parser.ProcessingInstructionHandler = comment, instruction
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(data.encode() if isinstance(data, str) else data, True)
    except ModelError:
        raise
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise ModelError(
            f"{source}:{error.lineno + skipped}: not well-formed XML at column {error.offset + 1}: {reason}"
        ) from None
    except (LookupError, ValueError) as error:
        raise ModelError(f"{source}: the text cannot be decoded: {error}; save the file as UTF-8") from None
    return Document(builder.close(), tuple(outside[0]), tuple(outside[1]))  # type: ignore[arg-type]


def fail(node: Node, fault: str, remedy: str = "", **arguments: str) -> ModelError:
    """Create a `ModelError` that names the position of an element in the file."""
    return ModelError(fault, remedy, place=node.where, **arguments)


def only_child(node: Node, tag: str, label: str) -> Node | None:
    """Return the child element with this tag, or None."""
    found = node.findall(tag)
    if len(found) > 1:
        raise fail(found[1], f"{label}: a second <{tag}>; remove one")  # type: ignore[arg-type]
    return found[0] if found else None  # type: ignore[return-value]


def attribute(node: Node, name: str, label: str) -> str:
    """Read a required attribute."""
    text = node.get(name)
    if not text:
        raise fail(node, f'{label}: <{node.tag}> needs the attribute {name}=".."')
    return text


def numbers(
    node: Node | None, name: str, count: int, label: str, default: tuple[float, ...] | None = None
) -> list[float]:
    """Read the numbers in an attribute. If the element or attribute is missing, return `default`, unless it is None."""
    if node is None or name not in node.attrib:
        if default is None:
            assert node is not None  # an element may be missing only if there is a default
            raise fail(node, f'{label}: <{node.tag}> needs the attribute {name}=".."')
        return list(default)
    text = node.attrib[name]
    here = f"{label}: <{node.tag}> {name}={text!r}"
    if "${" in text or "$(" in text:
        raise fail(node, f"{here} is a xacro expression; run xacro on the file first: xacro FILE > robot.urdf")
    parts = text.split()
    if len(parts) != count:
        raise fail(node, f"{here} has {len(parts)} numbers, but needs {count} numbers, separated by spaces")
    values = [_finite(part) for part in parts]
    for part, value in zip(parts, values, strict=True):
        if value is None:
            raise fail(node, f"{here}: {part!r} is not a finite number")
    return [value for value in values if value is not None]


def number(node: Node | None, name: str, label: str, default: float | None = None) -> float:
    """Read a single number in an attribute: `numbers` with a count of one."""
    return numbers(node, name, 1, label, None if default is None else (default,))[0]


def _finite(part: str) -> float | None:
    try:
        value = float(part)
    except ValueError:
        return None
    return value if math.isfinite(value) and part.isascii() and "_" not in part else None  # as in other readers


# -- elements

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
HEAD = '<?xml version="1.0" encoding="utf-8"?>\n'


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


def check_writable(chain: Chain) -> None:
    """Raise an error if URDF cannot represent the chain."""
    for link, size in chain.topology.quaternion_joints:
        if size == 3:
            raise ModelError(f"joint {chain.joint_names[link]!r} is spherical; URDF has no such joint")
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
        raise ModelError(
            f"{reasons[first].fault}; this is impossible for a rigid body{more}, and other programs reject or misread such a "
            f"file. Make the inertias physically consistent, or {advice}"
        )


def set_inertial(link: ET.Element, name: str, pi: Float[np.ndarray, "10"], dtype: DTypeLike = np.float64) -> None:
    """Set a link's `<inertial>` to numbers that reproduce the parameters `pi` in a dtype, or remove it if `pi` is zero."""
    old = link.find("inertial")
    if not np.any(pi):
        remove(link, {"inertial"})
        return
    with np.errstate(all="ignore"):
        com = pi[1:4] / pi[0] if pi[0] != 0 else np.zeros(3)
        about_com = move_inertia(pi, pose_of(translation=-com))
        about_com[1:4] = 0
        error = np.abs(move_inertia(about_com, pose_of(translation=com)) - pi).max()
    if np.all(np.isfinite(pi)) and not error <= 1e-9 * np.abs(pi).max():
        raise ModelError(
            f"link {name!r}: mass {pi[0]:g} kg with first moment {np.linalg.norm(pi[1:4]):g} kg m cannot be "
            "written as mass and centre of mass, as URDF requires; use parameters in which the link has mass"
        )
    if np.all(np.isfinite(pi)):
        com, about_com[4:] = _fewest_digits_of(pi, com, np.dtype(dtype))
    node = insert(link, "inertial", 0) if old is None else old
    for child in list(node):
        node.remove(child)
    label = f"the inertia of link {name!r}"
    ET.SubElement(node, "origin", xyz=written(com, label), rpy="0 0 0")
    ET.SubElement(node, "mass", value=written(pi[:1], label))
    keys = ("ixx", "ixy", "iyy", "ixz", "iyz", "izz")
    ET.SubElement(node, "inertia", {key: written([x], label) for key, x in zip(keys, about_com[4:], strict=True)})
    ET.indent(node, level=2)


def _fewest_digits_of(pi: np.ndarray, com: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Centre of mass, and inertia about it, with the fewest digits that reproduce the inertial parameters in a dtype."""

    def moved(moments: np.ndarray, centre: np.ndarray) -> np.ndarray:
        return move_inertia(np.array([pi[0], 0, 0, 0, *moments]), pose_of(translation=centre))

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
    same = lambda x: np.array_equal(rotation_from_rpy(np.cos(x), np.sin(x)).astype(dtype), r.astype(dtype))
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


def fresh(name: str, taken: set[str]) -> str:
    """Return the name, or a variant of the name if it is in `taken`, and add the result to `taken`."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


# -- tree


@dataclasses.dataclass(frozen=True, eq=False)
class Fault:
    """A fault in a link's `<inertial>`: the error, whether it is slight (and tolerated), and the element at fault."""

    what: ModelError
    slight: bool
    node: Node


@dataclasses.dataclass(frozen=True, eq=False)
class Link:
    """A link: its element in the file, and its inertial parameters about its origin (None without a readable `<inertial>`)."""

    name: str
    inertia: Float[np.ndarray, "10"] | None
    node: Node
    fault: Fault | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Joint:
    """A joint as declared in the file, with its pose in the parent link and its unit axis.

    `leaves` contains the limits, friction, armature and spring by the names of a chain's leaves; `mimic` is (joint,
    multiplier, offset). `meant` contains the origin and axis for which rounded numbers in the file stand, and `unset` the
    limits that are zero in the file and were read as infinite.
    """

    name: str
    kind: str
    parent: str
    child: str
    origin: Float[np.ndarray, "4 4"]
    axis: Float[np.ndarray, "3"]
    leaves: Mapping[str, Any]
    mimic: tuple[str, float, float] | None
    node: Node
    meant: tuple[Float[np.ndarray, "4 4"], Float[np.ndarray, "3"]] | None = None
    unset: tuple[str, ...] = ()

    @property
    def screw(self) -> Float[np.ndarray, "6"]:
        """Screw of the joint: (axis, 0) if it is revolute or continuous, (0, axis) if it is prismatic."""
        zero = np.zeros(3)
        return np.concatenate([zero, self.axis] if self.kind == "prismatic" else [self.axis, zero])

    def pose_at(self, q: float) -> Float[np.ndarray, "4 4"]:
        """Pose of the child link in the parent link at joint position q [rad or m]."""
        slides = self.kind == "prismatic"
        return self.origin @ (pose_of(translation=q * self.axis) if slides else pose_of(rotation_about(self.axis, q)))


@dataclasses.dataclass(frozen=True, eq=False)
class Robot:
    """A complete robot description: links and joints in file order, root link, and joints in depth-first order (`outward`).

    `remarks` lists irregularities in the file and their interpretation.
    """

    source: str
    links: dict[str, Link]
    joints: dict[str, Joint]
    root: str
    outward: tuple[Joint, ...]
    document: Document
    remarks: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class Layout:
    """The tree of a robot's moving links, or the serial chain to a tip.

    Attributes:
        joints: the moving joints, from the base to the tips.
        parents: for each moving link, the index of the moving link that carries it, or -1 for the base.
        placements: pose of each moving link at q = 0, in the moving link or base that carries it.
        inertia: ten inertial parameters of each moving link, including those of all links fused with it.
        frames: index of the carrying link (-1 for the base) and pose of every fused link, in file order.
        tip: name of the tip link; None if the tree has several ends.
        locked: positions of locked joints, including mimic joints that follow them.
        bodies: index of the carrying moving link, for every link whose inertia has an effect.
    """

    joints: tuple[Joint, ...]
    parents: tuple[int, ...]
    placements: Float[np.ndarray, "n 4 4"]
    inertia: Float[np.ndarray, "n 10"]
    frames: dict[str, tuple[int, np.ndarray]]
    tip: str | None
    locked: dict[str, float]
    bodies: dict[str, int]


def order_tree(source: str, links: Mapping[str, Link], joints: Iterable[Joint]) -> tuple[str, tuple[Joint, ...]]:
    """Find the root link, and sort the joints so that each joint comes after the joint that carries its parent link."""
    above: dict[str, Joint] = {}
    below: dict[str, list[Joint]] = {name: [] for name in links}
    for joint in joints:
        for role, link in (("parent", joint.parent), ("child", joint.child)):
            if link not in links:
                raise fail(
                    joint.node,
                    f"joint {joint.name!r}: its {role} link {link!r} is not declared; add <link> or correct the name",
                )
        if joint.child in above:
            raise fail(
                joint.node,
                f"link {joint.child!r} has two parents, through the joints {above[joint.child].name!r} and {joint.name!r}; "
                "a robot must be a tree: remove one of them",
            )
        above[joint.child] = joint
        below[joint.parent].append(joint)
    roots = [name for name in links if name not in above]
    if not roots:
        raise ModelError(
            f"{source}: no link is the root, since the joints form a loop: {_loop(above, next(iter(links)))}; open "
            "the loop by removing a joint"
        )
    if len(roots) > 1:
        raise ModelError(
            f"{source}: the links {', '.join(map(repr, roots))} have no parent; connect them to one root by joints"
        )
    order: list[Joint] = []
    waiting = below[roots[0]][::-1]
    while waiting:
        order.append(waiting.pop())
        waiting += below[order[-1].child][::-1]
    reached = {roots[0], *(joint.child for joint in order)}
    lost = next((name for name in links if name not in reached), None)
    if lost is not None:
        raise ModelError(
            f"{source}: the joints form a loop: {_loop(above, lost)}; open the loop and connect it to {roots[0]!r}"
        )
    return roots[0], tuple(order)


def fuse(robot: Robot, lock: Mapping[str, float] | None = None, tip: str | None = None) -> Layout:
    """Extract the entire tree, or the serial chain from the root to `tip`, and fuse fixed links.

    If fixed or locked joints attach a link b to a moving link a, the spatial inertia G_b of link b is added to that of
    link a as Ad_{T_ba}^T G_b Ad_{T_ba}, where T_ba is the pose of frame a in frame b, and link b becomes a named frame. Links
    fixed to the base also become named frames, but their inertia is discarded. If a tip is specified, links on moving joints
    outside the chain are removed.

    Raises:
        ModelError: see `jaxdyn.load`.
    """
    if tip is not None and tip not in robot.links:
        raise ModelError(f"{robot.source}: unknown link {tip!r} in tip; the links are {', '.join(robot.links)}")
    locked = _locked(robot, lock or {})
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
            inertia[i] += move_inertia(link.inertia, pose[name])
        if i >= 0 and (link.inertia is not None or link.fault is not None):
            bodies[name] = i
        if name not in moving and name != robot.root:
            frames[name] = (i, pose[name])
    parents = tuple(index[above[name]] for name in names)
    if tip is None and len(set(range(len(names))) - set(parents)) == 1:
        last = {name for name, joint in carrier.items() if joint == names[-1]}
        leaves = last - {joint.parent for joint in robot.outward if joint.child in last}
        tip = leaves.pop() if len(leaves) == 1 else joints[-1].child
    placements = np.array([placement[name] for name in names])
    return Layout(joints, parents, placements, inertia, frames, tip, locked, bodies)


def _path(
    robot: Robot, above: Mapping[str, str | None], carrier: Mapping[str, str | None], tip: str | None
) -> tuple[str, ...]:
    """Names of the moving joints, from the base to the tips."""
    if tip is None:
        names = tuple(above)
    else:
        back, name = [], carrier[tip]
        while name is not None:
            back.append(name)
            name = above[name]
        names = tuple(back[::-1])
    if not names:
        what = (
            "no joint moves" if tip is None else f"no joint moves between the root {robot.root!r} and the tip {tip!r}"
        )
        free = "" if tip is not None else ". For a body that moves freely, pass floating_base=True"
        raise ModelError(
            f"{robot.source}: {what}; a chain needs at least one revolute, continuous or prismatic joint{free}"
        )
    return names


def _locked(robot: Robot, lock: Mapping[str, float]) -> dict[str, float]:
    """Compute the positions of the locked joints and of the mimic joints that follow them."""
    locked: dict[str, float] = {}
    for name, value in lock.items():
        if name not in robot.joints:
            raise ModelError(
                f"{robot.source}: unknown joint {name!r} in lock; the joints are {', '.join(robot.joints)}"
            )
        if robot.joints[name].kind == "fixed":  # for example in a file written from a chain with locked joints
            continue
        if not math.isfinite(value):
            raise ModelError(f"{robot.source}: lock contains {value} for joint {name!r}; specify a finite position")
        locked[name] = float(value)
    mimics = [joint for joint in robot.joints.values() if joint.mimic is not None and joint.name not in locked]
    found = True
    while found:
        found = False
        for joint in mimics:
            assert joint.mimic is not None
            master, multiplier, offset = joint.mimic
            if master in locked and joint.name not in locked:
                locked[joint.name] = multiplier * locked[master] + offset
                found = True
    for name, value in locked.items():
        lower, upper = robot.joints[name].leaves["limits.position"]
        slack = 1e-9 * (1 + abs(value))
        if not lower - slack <= value <= upper + slack:
            follows = "" if name in lock else " (it mimics a locked joint)"
            raise fail(
                robot.joints[name].node,
                f"joint {name!r} is locked at {value:g}{follows}, outside its limits "
                f"{lower:g} to {upper:g}; lock it within its limits",
            )
    return locked


def _loop(above: Mapping[str, Joint], link: str) -> str:
    seen: list[str] = []
    while link not in seen:
        seen.append(link)
        link = above[link].parent
    return " <- ".join([*seen[seen.index(link) :], link])

"""Split planar and floating URDF joints into joints with one degree of freedom, and couple mimic joints.

Search for motions without kinetic energy, for which the mass matrix is singular.

Convert URDF documents to chains, for `jaxdyn.load`."""

import dataclasses
import warnings
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from ..errors import ModelError, ModelWarning, warn
from ..model.build import EARTH, JOINT_LEAVES, LARGEST, SLIGHTLY, build_chain, check_sizes, inertia_faults
from ..model.chain import Chain, Coupling, Topology
from ..model.drives import with_coupling
from ..model.rounded import meant_angle, meant_rotation, meant_unit, rotation_from_quaternion, with_unrounded
from ..spatial.host import adjoint, inertia_tensor, move_inertia, pose_inverse, pose_of, rotation_from_rpy, skew
from .urdf_document import (
    DRIVES,
    Fault,
    Joint,
    Layout,
    Link,
    Node,
    Robot,
    attribute,
    fail,
    fresh,
    fuse,
    number,
    numbers,
    only_child,
    order_tree,
    parse_xml,
)

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
    """Compute the coupling of mimic joints, q_mimic = multiplier q + offset, and the names of the independent coordinates."""
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
    """Check that mimic joints follow joints with one degree of freedom."""
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


# -- masses

_SINGULAR = 1e-13  # eigenvalues of M, scaled to a unit diagonal, that are smaller than this (times n) count as zero


def massless_motion(parts: Arrangement) -> list[str]:
    """Find the joints that take part in a motion without kinetic energy, at one generic configuration."""
    layout = parts.layout
    if not np.any(layout.inertia[:, 0]) and not parts.quaternion_joints:
        return []
    matrix = _mass_matrix(layout) + np.diag([float(joint.leaves.get("armature", 0.0)) for joint in layout.joints])
    names = [joint.name for joint in layout.joints]
    whole = {names[k]: names[i].removesuffix("_wx") for i, size in parts.quaternion_joints for k in range(i, i + size)}
    if parts.coupling is not None:
        s = np.asarray(parts.coupling.matrix, float)
        matrix = s.T @ matrix @ s
        names = list(parts.coordinate_names or names)
    size = np.sqrt(np.diag(matrix).clip(0.0))
    scale = np.where(size <= 1e-150, 1.0, size)
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    moves = np.abs(vectors[:, values < _SINGULAR * len(values)]).max(1, initial=0.0) > 1e-6
    return list(dict.fromkeys(whole.get(name, name) for name, part in zip(names, moves, strict=True) if part))


def _mass_matrix(layout: Layout) -> Float[np.ndarray, "n n"]:
    """Mass matrix M = sum_i J_i^T G_i J_i, with the Jacobian J_i and spatial inertia G_i of each link in the link's frame."""
    n = len(layout.joints)
    positions = np.random.default_rng(0).uniform(0.3, 1.2, n)
    jacobians, matrix = np.zeros((n, 6, n)), np.zeros((n, n))
    for i, (joint, parent) in enumerate(zip(layout.joints, layout.parents, strict=True)):
        moved = np.linalg.solve(joint.origin, joint.pose_at(positions[i]))
        if parent >= 0:
            jacobians[i] = adjoint(pose_inverse(layout.placements[i] @ moved)) @ jacobians[parent]
        jacobians[i, :, i] += joint.screw
        pi = layout.inertia[i]
        first = skew(pi[1:4])
        spatial = np.block([[inertia_tensor(pi), first], [first.T, pi[0] * np.eye(3)]])
        matrix += jacobians[i].T @ spatial @ jacobians[i]
    return matrix


# -- read

_MOVING = ("revolute", "continuous", "prismatic", "planar", "floating")


def parse_robot(data: bytes | str, source: str, *, inertials: bool = True) -> Robot:
    """Parse a URDF document into a tree of links and joints, and check everything except inertias."""
    document = parse_xml(data, source)
    root = document.root
    if root.tag != "robot":
        raise fail(root, f"the root element is <{root.tag}>, not <robot>; this is not a URDF")
    _check_xacro(root)
    version = _version(root)
    links: dict[str, Link] = {}
    joints: dict[str, Joint] = {}
    remarks: list[str] = []
    moved = {
        child.get("link")
        for joint in root.findall("joint")
        if joint.get("type") != "fixed"
        for child in joint.findall("child")
    }
    for node in root.findall("link"):
        link = _link(node, moved, inertials)  # type: ignore[arg-type]
        if link.name in links:
            raise fail(link.node, f"the link name {link.name!r} is used twice; rename one link")
        links[link.name] = link
    for node in root.findall("joint"):
        joint = _read_joint(node, remarks, version)  # type: ignore[arg-type]
        if joint.name in joints:
            raise fail(joint.node, f"the joint name {joint.name!r} is used twice; rename one joint")
        joints[joint.name] = joint
    if not links:
        raise fail(root, "the robot has no <link>")
    base, outward = order_tree(source, links, joints.values())
    return Robot(source, links, joints, base, outward, document, tuple(remarks))


def gravity_of(robot: Robot) -> list[float]:
    """Gravity in the `<jaxdyn>` element of the robot [m/s^2], which `save_urdf` writes; (0, 0, -9.81) without it."""
    return numbers(only_child(robot.document.root, "jaxdyn", "the robot"), "gravity", 3, "the robot", EARTH)


def chain_arrays(layout: Layout) -> dict[str, Any]:
    """Compute the leaves of a chain with this layout, by name."""
    arrays = {name: np.array([joint.leaves[name] for joint in layout.joints]) for name in JOINT_LEAVES}
    return {
        "rotation": layout.placements[:, :3, :3],
        "translation": layout.placements[:, :3, 3],
        "screw": np.array([joint.screw for joint in layout.joints]),
        "inertia": layout.inertia,
        **arrays,
    }


def chain_of(robot: Robot, gravity: ArrayLike | Sequence[float], allow_nonphysical: bool, **options: Any) -> Chain:
    """Convert a parsed URDF document to a chain, with the arguments and errors of `jaxdyn.load`."""
    parts = arrange(robot, **options)
    layout = parts.layout
    remarks = [*robot.remarks, *_faults(robot, layout, allow_nonphysical), *_dropped_mass(robot, layout)]
    remarks += _unset_limits(layout)
    remarks += _doubtful_locks(robot, layout, options.get("lock") or (), bool(options.get("ignore_mimic")))
    if not allow_nonphysical and (still := massless_motion(parts)):
        remarks.append(
            f"the mass matrix is singular and forward dynamics is not finite, since a motion of {', '.join(map(repr, still))} "
            "moves no mass: add inertias to the links, lock a joint, or add armature"
        )
    if remarks:
        warn(f"{robot.source}: {'; '.join(remarks)}")
    try:
        with warnings.catch_warnings():
            if remarks:  # already reported above, with the names in the file
                warnings.simplefilter("ignore", ModelWarning)
            chain = build_chain(
                {**chain_arrays(layout), "gravity": gravity},
                Topology(
                    layout.parents,
                    tuple(joint.name for joint in layout.joints),
                    tuple(joint.child for joint in layout.joints),
                    base_name=parts.root,
                    tip_name=layout.tip,
                    quaternion_joints=parts.quaternion_joints,
                ),
                layout.frames,
                allow_nonphysical=allow_nonphysical,
            )
        if parts.coupling is not None:
            chain = with_coupling(chain, parts.coupling.matrix, parts.coupling.offset, parts.coordinate_names)
            check_sizes(chain)
        exact = chain_arrays(arrange(_unrounded(robot), **options).layout)
        return with_unrounded(chain, exact["rotation"], exact["translation"], exact["screw"])
    except ModelError as error:
        raise ModelError(f"{robot.source}: {error}") from None


def _unrounded(robot: Robot) -> Robot:
    """A robot with the origins and axes for which rounded numbers stand, and without limits, which rounding can exceed."""
    joints = {}
    for name, joint in robot.joints.items():
        origin, axis = joint.meant or (joint.origin, joint.axis)
        leaves = {**joint.leaves, "limits.position": JOINT_LEAVES["limits.position"]}
        joints[name] = dataclasses.replace(joint, origin=origin, axis=axis, leaves=leaves)
    return dataclasses.replace(robot, joints=joints, outward=tuple(joints[joint.name] for joint in robot.outward))


def _doubtful_locks(robot: Robot, layout: Layout, lock: Iterable[str], ignore_mimic: bool) -> list[str]:
    """Compose warnings about locks without effect, and about locked mimic joints that no longer follow a moving joint."""
    remarks, moving = [], {joint.name for joint in layout.joints}
    for joint in (robot.joints[name] for name in lock if name in robot.joints):
        if joint.kind == "fixed":
            remarks.append(f"the lock of joint {joint.name!r} is ignored, since the joint is fixed in the file")
        elif joint.mimic is not None and not ignore_mimic and joint.mimic[0] in moving:
            remarks.append(f"joint {joint.name!r} is locked and no longer follows {joint.mimic[0]!r}, which moves")
    return remarks


def _unset_limits(layout: Layout) -> list[str]:
    """Compose warnings about limits that are zero in the file, one for all joints with the same such limits."""
    named: dict[tuple[str, ...], list[str]] = {}
    for joint in layout.joints:
        named.setdefault(joint.unset, []).append(repr(joint.name))
    return [
        f"limits of zero allow no motion and are read as no limits ({', '.join(unset)} of {', '.join(joints)})"
        + ("; to fix a joint, lock it" if "position" in unset else "")
        for unset, joints in named.items()
        if unset
    ]


def _dropped_mass(robot: Robot, layout: Layout) -> list[str]:
    """Compose a warning about bodies with mass that the choice of the tip removes from the chain."""
    kept = {robot.root, *layout.frames, *(joint.child for joint in layout.joints)}
    masses = {
        name: float(x.inertia[0]) for name, x in robot.links.items() if name not in kept and x.inertia is not None
    }
    lost = {name: mass for name, mass in masses.items() if mass > 0}
    if not lost:
        return []
    names = ", ".join(map(repr, lost))
    return [
        f"the chain to the tip {layout.tip!r} drops {names} ({sum(lost.values()):.3g} kg); lock their joints to keep the "
        "mass"
    ]


def _faults(robot: Robot, layout: Layout, allow_nonphysical: bool) -> list[str]:
    """Compose warnings about inconsistent inertias that have no effect, are only slightly wrong, or are consistent once fused.

    Raises:
        ModelError: an inertia that has an effect cannot be read or is inconsistent.
    """
    slight, unused = [], []
    for link in robot.links.values():
        if link.fault is None:
            continue
        if link.name not in layout.bodies:
            unused.append(repr(link.name))
        elif link.inertia is None:
            raise link.fault.what
        elif link.fault.slight or _possible(link.name, layout.inertia[layout.bodies[link.name]]):
            slight.append(link.fault.what.fault)
        elif not allow_nonphysical:
            what = link.fault.what
            remedy = f"{what.remedy}, load only the kinematics with {{ignore_inertials}}, or pass {{allow_nonphysical}}"
            raise fail(link.fault.node, what.fault, remedy, ignore_inertials="True", allow_nonphysical="True")
    if allow_nonphysical:
        return []
    said = [f"physically inconsistent inertias are used unchanged: {'; '.join(slight)}"] if slight else []
    return said + ([f"inconsistent inertias of {', '.join(unused)} have no effect"] if unused else [])


def _possible(name: str, pi: np.ndarray) -> bool:
    """True if the inertia `pi` of a link is physically consistent within the tolerance."""
    return bool(pi[0] > 0) and not inertia_faults({name: pi}, SLIGHTLY)


def _link(node: Node, moved: Container[str | None], inertials: bool) -> Link:
    """Read a link. `moved` contains the links on moving joints; for other links, an all-zero `<inertial>` is allowed.

    If `<inertial>` cannot be read, the error is stored with the link, and raised later only if the inertia has an effect.
    """
    name = attribute(node, "name", "a link")
    if not inertials:
        return Link(name, None, node)
    try:
        return _with_inertial(name, node, moved)
    except ModelError as error:
        return Link(name, None, node, Fault(error, False, node))


def _with_inertial(name: str, node: Node, moved: Container[str | None]) -> Link:
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
    if np.abs(about_com).max() > LARGEST:
        raise fail(inertial, f"{label}: {np.abs(about_com).max():g} is implausible for a rigid body; check the units")
    fault = _fault(name, about_com, name in moved, mass_node, inertia_node)
    return Link(name, move_inertia(about_com, origin_pose(inertial, label)), node, fault)


def _fault(name: str, pi: np.ndarray, moved: bool, mass_node: Node, inertia_node: Node) -> Fault | None:
    """Find the fault of an inertia `pi` about the centre of mass, if any. `moved`: the link is on a moving joint."""
    mass = pi[0]
    if mass < 0 or (mass == 0 and moved):
        what = ModelError(f"link {name!r}: mass {mass:g} kg is not positive", "correct it, remove <inertial>")
        return Fault(what, False, mass_node)
    what = inertia_faults({name: pi}).get(name)
    if what is not None:
        return Fault(what, not inertia_faults({name: pi}, SLIGHTLY), inertia_node)
    return Fault(ModelError(f"link {name!r} has an inertia, but no mass"), True, mass_node) if mass == 0 else None


def _read_joint(node: Node, remarks: list[str], version: float) -> Joint:
    name = attribute(node, "name", "a joint")
    label = f"joint {name!r}"
    kind = attribute(node, "type", label)
    if kind not in (*_MOVING, "fixed"):
        raise fail(node, f"{label}: joint type {kind!r} is not supported; use one of {', '.join(_MOVING)} and fixed")
    ends = []
    for tag in ("parent", "child"):
        end = only_child(node, tag, label)
        if end is None:
            raise fail(node, f'{label} needs <{tag} link=".."/>')
        ends.append(attribute(end, "link", label))
    origin, meant_origin = origin_pose(node, label), origin_pose(node, label, meant=True)
    # axis, limits and drive of a fixed joint are ignored
    motion: dict[str, Node | None] = {
        tag: only_child(node, tag, label) if kind != "fixed" else None
        for tag in ("limit", "dynamics", "mimic", "jaxdyn")
    }
    axes: list[Node] = node.findall("axis") if kind != "fixed" else []  # type: ignore[assignment]
    motion["axis"] = axes[0] if axes else None
    if len(axes) > 1:
        remarks.append(f"{label} has {len(axes)} <axis> elements; the first one is used")
    axis = np.array(numbers(motion["axis"], "xyz", 3, label, (1.0, 0.0, 0.0) if motion["axis"] is None else None))
    length = np.linalg.norm(axis)
    if length < 1e-9:
        raise fail(
            node if motion["axis"] is None else motion["axis"], f"{label}: its axis is zero; specify a direction"
        )
    leaves, unset = _without_zeros(_limits(node, motion["limit"], kind, label, remarks, version))
    for leaf, (tag, attribute_name) in DRIVES.items():
        leaves[leaf] = number(motion[tag], attribute_name, label, JOINT_LEAVES[leaf])
    if (width := leaves["friction.coulomb_velocity"]) <= 0:
        raise fail(
            node if motion["jaxdyn"] is None else motion["jaxdyn"],
            f"{label}: coulomb_velocity {width:g} is not positive; it is the width of a smooth sign function",
        )
    follows = motion["mimic"]
    if follows is not None and kind in ("planar", "floating"):
        raise fail(follows, f"{label}: a {kind} joint cannot mimic another joint; remove <mimic>")
    return Joint(
        name=name,
        kind=kind,
        parent=ends[0],
        child=ends[1],
        origin=origin,
        axis=axis / length,
        leaves=leaves,
        mimic=None
        if follows is None
        else (
            attribute(follows, "joint", label),
            number(follows, "multiplier", label, 1.0),
            number(follows, "offset", label, 0.0),
        ),
        node=node,
        meant=(meant_origin, meant_unit(axis)),
        unset=unset if kind != "fixed" else (),
    )


def _limits(
    joint: Node, node: Node | None, kind: str, label: str, remarks: list[str], version: float
) -> dict[str, Any]:
    """Read the limits of a joint as leaves. Very large numbers are read as infinity."""
    if kind == "fixed":
        return {"limits.position": (0.0, 0.0), "limits.velocity": 0.0, "limits.effort": 0.0}
    bounded = kind in ("revolute", "prismatic")
    if node is None and bounded:
        raise fail(
            joint, f'{label}: a {kind} joint requires <limit lower=".." upper=".." effort=".." velocity=".."/>; add it'
        )
    inf, recent = float("inf"), version >= 1.2
    values = [
        number(node, "lower", label, None if recent else 0.0) if bounded else -inf,
        number(node, "upper", label, None if recent else 0.0) if bounded else inf,
        number(node, "velocity", label, None if bounded and not recent else inf),
        number(node, "effort", label, None if bounded and not recent else inf),
    ]
    here = joint if node is None else node
    lower, upper, velocity, effort = (np.copysign(inf, x) if abs(x) > LARGEST else x for x in values)
    if lower > upper:
        remarks.append(f"{label}: its lower limit {lower:g} exceeds its upper limit {upper:g}; both are ignored")
        lower, upper = -inf, inf
    if velocity < 0 or effort < 0:
        raise fail(here, f"{label}: velocity and effort limits are magnitudes; {min(velocity, effort):g} is negative")
    return {
        "limits.position": (float(lower), float(upper)),
        "limits.velocity": float(velocity),
        "limits.effort": float(effort),
    }


def _without_zeros(limits: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Replace limits of zero that allow no motion by infinity, and return the names of those replaced.

    CAD programs export zeros for limits that are not set. A torque limit of zero denotes a joint without a motor, unless both
    other limits are zero.
    """
    unset = [name for name in ("position", "velocity") if not np.any(limits[f"limits.{name}"])]
    unset += ["effort"] if len(unset) == 2 and limits["limits.effort"] == 0 else []
    return {**limits, **{key: JOINT_LEAVES[key] for name in unset if (key := f"limits.{name}")}}, tuple(unset)


def origin_pose(node: Node, label: str, meant: bool = False) -> np.ndarray:
    """Read the pose in an element's `<origin>`, with R = Rz(yaw) Ry(pitch) Rx(roll). Without `<origin>`, it is the identity."""
    origin = only_child(node, "origin", label)
    zero = (0.0, 0.0, 0.0)
    position = numbers(origin, "xyz", 3, label, zero)
    if origin is not None and "quat_xyzw" in origin.attrib:
        if "rpy" in origin.attrib:
            raise fail(origin, f"{label}: <origin> has both rpy and quat_xyzw; remove one")
        x, y, z, w = numbers(origin, "quat_xyzw", 4, label)
        if (length := np.linalg.norm([w, x, y, z])) < 1e-9:
            raise fail(origin, f"{label}: <origin> quat_xyzw is zero; specify a rotation (0 0 0 1 for none)")
        turn = meant_rotation if meant else rotation_from_quaternion
        return pose_of(turn(np.array([w, x, y, z]) / length), position)
    rpy = np.array([meant_angle(x) if meant else x for x in numbers(origin, "rpy", 3, label, zero)])
    return pose_of(rotation_from_rpy(np.cos(rpy), np.sin(rpy)), position)


def _check_xacro(node: Node) -> None:
    """Raise an error if a xacro element stands for links, joints or their numbers; elsewhere, it is ignored."""
    for child in node:
        if not isinstance(child, Node):
            continue
        if str(child.tag).startswith("xacro:"):
            raise fail(
                child,
                f"<{child.tag}> is a xacro element, not URDF; run xacro on the file first: xacro FILE > robot.urdf",
            )
        if child.tag in ("link", "joint", "inertial"):
            _check_xacro(child)


def _version(root: Node) -> float:
    """Version of the URDF format that a document declares; quaternions need 1.1."""
    try:
        version = float(root.get("version", "1.0"))
    except ValueError:
        raise fail(root, f"<robot> version={root.get('version')!r} is not a version of URDF, such as 1.0") from None
    if version < 1.1:
        for node in root.iter("origin"):
            if "quat_xyzw" in node.attrib:
                raise fail(
                    node,  # type: ignore[arg-type]
                    f"<origin> quat_xyzw needs URDF 1.1, but the file declares {version:.1f}, in which other readers ignore it",
                    'write <robot version="1.1" ..>, or the rotation as rpy',
                )
    return version

"""Convert a chain's parameters to URDF elements, for writing and updating files."""

import xml.etree.ElementTree as ET
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import DTypeLike

from ...errors import ModelError
from ...model._build import EARTH, JOINT_LEAVES, SLIGHTLY, inertia_faults
from ...model._chain import Chain, named_leaves
from ...spatial._host import Values, move_inertia, pose_of, rotation_from_rpy, rpy_of

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
    """Return the leaves of a chain by name, in float64.

    Args:
        decimals: round to the fewest digits that reproduce the numbers in the chain's dtype. If False, keep all digits.
    """
    if chain.inertia.ndim != 2:
        raise ModelError(f"the chain is a batch (inertia has shape {chain.inertia.shape}); write one robot at a time")
    return {name: shortest(x) if decimals else np.asarray(x, float) for name, x in named_leaves(chain).items()}


def shortest(values: Values, dtype: DTypeLike | None = None) -> np.ndarray:
    """Round numbers to the fewest digits that reproduce them in a dtype (by default, their own).

    For example, 0.34150001406669617 in single precision becomes 0.3415.
    """
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
    """Raise an error if URDF cannot represent the chain.

    Raises:
        ModelError: the chain has a spherical joint, a transmission or a base pose.
    """
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
    """Raise an error if an inertia of a chain is physically inconsistent.

    Args:
        advice: alternative remedy in the message.

    Raises:
        ModelError: an inertia is inconsistent. The message contains the first fault and names all affected links.
    """
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

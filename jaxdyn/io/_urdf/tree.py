"""Represent a robot description as a tree of links, and fuse fixed links."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from ...errors import ModelError
from ...spatial._host import move_inertia, pose_of, rotation_about
from .document import Document, Node, fail


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
    """Find the root link, and sort the joints so that each joint comes after the joint that carries its parent link.

    Raises:
        ModelError: a joint names a link that does not exist, a link has two parents, or links form a loop or are not
            connected.
    """
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

"""The robots used in the benchmarks, each as a URDF that all libraries can read, and their random states."""

import dataclasses
import importlib.metadata
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np

import jaxdyn
from jaxdyn.model import Topology
from tests.helpers import random_chain

ARMS = {"panda": "panda", "ur10": "ur10"}
HUMANOIDS = {"g1": "g1_description/urdf/g1_29dof_rev_1_0.urdf", "talos": "talos_data/robots/talos_full_v2.urdf"}
DT, STEPS = 1e-3, 32  # time step [s] and number of steps of the rollouts


class Unavailable(Exception):
    """A robot or a library that cannot be measured here; the message states the reason."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """A robot: its simplified URDF, and jaxdyn's model of it in JAX's default floating-point type.

    Attributes:
        name: name on the command line and in the tables.
        urdf: URDF that contains only links with inertias, and joints.
        floating: True if the root link moves freely.
        chain: jaxdyn's model.
        frame: name of the link whose pose and Jacobian are measured, the last link of the model.
    """

    name: str
    urdf: str
    floating: bool
    chain: jaxdyn.Chain
    frame: str

    @property
    def nv(self) -> int:
        return self.chain.nv


def subject(name: str) -> Subject:
    """The robot with this name: an arm, a humanoid, "chain-N" or "tree-N" with N revolute joints, or the path of a URDF.

    In a random tree, the parent of each link is a random earlier link, so the depth grows like the logarithm of N.

    Raises:
        Unavailable: there is no robot with this name, or its package is not installed.
    """
    if name in ARMS:
        return _fixed(name, getattr(jaxdyn.robots, ARMS[name])())
    if name.startswith("chain-"):
        return _fixed(name, random_chain(int(name.removeprefix("chain-")), 0, "revolute"))
    if name.startswith("tree-"):
        return _fixed(name, _random_tree(int(name.removeprefix("tree-"))))
    path = _humanoid(name) if name in HUMANOIDS else Path(name)
    if not path.is_file():
        raise Unavailable(f"{name}: neither a robot of the suite nor the path of a URDF")
    return _from_text(path.stem if name not in HUMANOIDS else name, plain(path.read_text()), True)


def states(robot: Subject, count: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Random q, v and a in jaxdyn's layout, in float64, with one row per state."""
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(count, robot.chain.nq))
    v, a = rng.normal(size=(2, count, robot.nv))
    if robot.floating:
        q[:, 3:7] /= np.linalg.norm(q[:, 3:7], axis=1, keepdims=True)
    return {"q": q, "v": v, "a": a}


def plain(urdf: str) -> str:
    """Reduce a URDF to what all libraries interpret alike: no meshes, drives, mimic joints or tight limits."""
    source = ET.fromstring(urdf)
    robot = ET.Element("robot", name=source.get("name", "robot"))
    for link in source.findall("link"):
        node = ET.SubElement(robot, "link", name=link.attrib["name"])
        node.extend(link.findall("inertial"))
    for joint in source.findall("joint"):
        kind = joint.attrib["type"]
        node = ET.SubElement(
            robot, "joint", name=joint.attrib["name"], type="revolute" if kind == "continuous" else kind
        )
        for tag in ("origin", "parent", "child", "axis"):
            node.extend(joint.findall(tag))
        if kind != "fixed":
            ET.SubElement(node, "limit", lower="-100", upper="100", velocity="100", effort="1000")
    for node in [*robot.iter("joint"), *robot.iter("inertial")]:
        if node.find("origin") is None:  # required by adam
            ET.SubElement(node, "origin", xyz="0 0 0", rpy="0 0 0")
    return ET.tostring(robot, encoding="unicode")


def _fixed(name: str, chain: jaxdyn.Chain) -> Subject:
    return _from_text(name, plain(jaxdyn.io.to_urdf(chain)), False)


def _random_tree(n: int) -> jaxdyn.Chain:
    links = random_chain(n, 0, "revolute")
    rng = np.random.default_rng(0)
    parents = (-1, *(int(rng.integers(i)) for i in range(1, n)))
    return jaxdyn.make_chain(links.rotation, links.translation, links.screw, links.inertia, topology=Topology(parents))


def _from_text(name: str, urdf: str, floating: bool) -> Subject:
    base = "root_joint" if floating else False
    chain = jaxdyn.io.loads(urdf, floating_base=base, allow_nonphysical=True)
    return Subject(name, urdf, floating, chain, chain.topology.link_names[-1])


def _humanoid(name: str) -> Path:
    try:
        package = importlib.metadata.distribution("example-robot-data")
    except importlib.metadata.PackageNotFoundError:
        raise Unavailable(f"{name}: pip install example-robot-data (130 MB), or give the path of a URDF") from None
    return Path(str(package.locate_file("cmeel.prefix/share/example-robot-data/robots"))) / HUMANOIDS[name]

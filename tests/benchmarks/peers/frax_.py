"""frax: dynamics vectorised over links by masks of ancestors."""

import os
import tempfile
import warnings
import xml.etree.ElementTree as ET

import jax
import jax.numpy as jnp
import numpy as np

from ..subjects import Subject
from . import Entry
from .mujoco_layout import MujocoLayout


def build(robot: Subject, state: dict, precision: str) -> dict[str, Entry]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # frax warns about recommended settings
        import frax
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "robot.urdf")
        with open(path, "w", encoding="utf-8") as file:
            file.write(with_inertials(robot.urdf))
        kind = frax.Robot if robot.floating else frax.Manipulator
        there = kind(path, floating_base="quaternion" if robot.floating else None)
    layout = MujocoLayout(robot, list(there.joint_names)[6 if robot.floating else 0 :], state)
    given = layout.arguments()
    q, v, a, tau = (given[name] for name in ("q", "v", "a", "tau"))
    up = np.array([0, 0, 9.81, 0, 0, 0])

    def inverse(q, v, a):
        return there.rnea(q, v, a, jnp.asarray(up, q.dtype), None)

    def forward(q, v, tau):
        return there.forward_dynamics(q, v, tau, None)

    found = {
        "inverse_dynamics": Entry(inverse, (q, v, a), layout.vector),
        "crba": Entry(there.crba, (q,), layout.matrix),
        "gravity": Entry(there.gravity_vector, (q,), layout.vector),
        "forward_dynamics": Entry(forward, (q, v, tau), layout.acceleration),
    }
    if not robot.floating:
        both = lambda x: [layout.matrix(y)[0] for y in x]
        found |= {
            "mass_matrix": Entry(there.mass_matrix, (q,), layout.matrix, "mass_matrix"),
            "frame_pose": Entry(there.ee_transform, (q,), lambda x: [np.asarray(x, float)]),
            "inverse_dynamics_derivatives": Entry(jax.jacfwd(inverse, (0, 1, 2)), (q, v, a), both, "by jacfwd"),
            "forward_dynamics_derivatives": Entry(jax.jacfwd(forward, (0, 1, 2)), (q, v, tau), both, "by jacfwd"),
        }
    return found


def with_inertials(urdf: str) -> str:
    """Add zero inertias to links that have none, because frax requires them."""
    root = ET.fromstring(urdf)
    for link in root.findall("link"):
        if link.find("inertial") is None:
            node = ET.SubElement(link, "inertial")
            ET.SubElement(node, "origin", xyz="0 0 0", rpy="0 0 0")
            ET.SubElement(node, "mass", value="0")
            ET.SubElement(node, "inertia", ixx="0", ixy="0", ixz="0", iyy="0", iyz="0", izz="0")
    return ET.tostring(root, encoding="unicode")

"""Commercial arms with published kinematics, inertias and limits; the docstring of each arm names the sources.

The published inertias come from a manufacturer's model or an estimate and may differ from those of your arm. Friction
and rotor inertia are zero. All arguments of `make_chain` (`friction`, `armature`, `gravity`, `frames`, ...) are
accepted and override the published values. All joints are revolute about the z axis of the link frame, whose origin is
on the joint axis.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..model.build import make_chain, pose_of
from ..model.chain import Chain, JointLimits, Topology
from ..spatial.inertia import inertial_parameters_from_com
from ..spatial.so3 import rpy_to_rotation

PI = np.pi
Row = Sequence[float | int] | np.ndarray

# Rows of the tables below. placements: x, y, z [m] and roll, pitch, yaw [quarter turns] of each joint in its parent link.
# bodies: mass [kg], centre of mass x, y, z [m], then xx, xy, yy, xz, yz, zz about the centre of mass [kg m^2].


def panda(**leaves: Any) -> Chain:
    """Franka Emika Panda ("FER") without a hand, 7 joints; the frame "flange" is the tip.

    The placements are those of franka_description, robots/fer/kinematics.yaml; inertias and limits those of franka_ros,
    franka_description/robots, common/inertial.yaml and panda/joint_limits.yaml (Franka, Apache-2.0). The inertias are
    the physically consistent set identified by Gaz et al. 2019; those in franka_description, robots/fer/inertials.yaml,
    violate the triangle inequality.
    """
    a, b, c = 2.8973, 2.175, 2.61
    return _arm(
        "panda",
        placements=[
            (0, 0, 0.333, 0, 0, 0),
            (0, 0, 0, -1, 0, 0),
            (0, -0.316, 0, 1, 0, 0),
            (0.0825, 0, 0, 1, 0, 0),
            (-0.0825, 0.384, 0, -1, 0, 0),
            (0, 0, 0, 1, 0, 0),
            (0.088, 0, 0, 1, 0, 0),
        ],
        bodies=[
            (4.970684, 0.003875, 0.002081, -0.04762, 0.70337, -1.39e-4, 0.70661, 0.006772, 0.019169, 0.009117),
            (0.646926, -0.003141, -0.02872, 0.003495, 0.007962, -0.003925, 0.02811, 0.010254, 7.04e-4, 0.025995),
            (3.228604, 0.027518, 0.039252, -0.066502, 0.037242, -0.004761, 0.036155, -0.011396, -0.012805, 0.01083),
            (3.587895, -0.05317, 0.104419, 0.027454, 0.025853, 0.007796, 0.019552, -0.001332, 0.008641, 0.028323),
            (1.225946, -0.011953, 0.041065, -0.038437, 0.035549, -0.002117, 0.029474, -0.004037, 2.29e-4, 0.008627),
            (1.666555, 0.060149, -0.014117, -0.010517, 0.001964, 1.09e-4, 0.004354, -0.001158, 3.41e-4, 0.005433),
            (0.735522, 0.010517, -0.004252, 0.061597, 0.012516, -4.28e-4, 0.010027, -0.001196, -7.41e-4, 0.004815),
        ],
        limits=JointLimits(
            np.transpose([(-a, -1.7628, -a, -3.0718, -a, -0.0175, -a), (a, 1.7628, a, -0.0698, a, 3.7525, a)]),
            (b, b, b, b, c, c, c),
            (87, 87, 87, 87, 12, 12, 12),
        ),
        frames={"flange": (0, 0, 0.107, 0, 0, 0)},
        leaves=leaves,
    )


def ur5(**leaves: Any) -> Chain:
    """Universal Robots UR5 (CB3), 6 joints, with the base and frames of `ur10`.

    The sources are those of `ur10`, with config/ur5 instead of config/ur10. The published inertias are those of cylinders.
    """
    return _universal(
        "ur5",
        (0.089159, -0.425, -0.39225, 0.10915, 0.09465, 0.0823),
        [
            (3.7, 0, -0.00193, -0.02561, 0.014972358333333331, 0, 0.014972358333333331, 0, 0, 0.01040625),
            (8.393, -0.2125, 0, 0.11336, 0.0151074, 0, 0.13388583541666665, 0, 0, 0.13388583541666665),
            (2.33, -0.24225, 0, 0.0265, 0.004095, 0, 0.031216803515624995, 0, 0, 0.031216803515624995),
            (1.219, 0, -0.01634, -0.0018, 0.002013889583333333, 0, 0.002013889583333333, 0, 0, 0.0021942),
            (1.219, 0, 0.01634, -0.0018, 0.0018310395833333333, 0, 0.0018310395833333333, 0, 0, 0.0021942),
            (0.1879, 0, 0, -0.001159, 8.062475833333332e-5, 0, 8.062475833333332e-5, 0, 0, 1.321171875e-4),
        ],
        turns=(0,) * 6,
        speed=(PI,) * 6,
        torque=(150, 150, 150, 28, 28, 28),
        leaves=leaves,
    )


def ur5e(**leaves: Any) -> Chain:
    """Universal Robots UR5e, 6 joints, with the base, frames and sources of `ur10` (config/ur5e)."""
    return _universal(
        "ur5e",
        (0.1625, -0.425, -0.3922, 0.1333, 0.0997, 0.0996),
        [
            (3.761, 0, -0.00193, -0.02561, 0.0070021, 7.3e-7, 0.00648091, -1.053e-5, 4.9994e-4, 0.00657286),
            (8.058, -0.2125, 0, 0.11336, 0.01505885, -5.4e-5, 0.33388086, 5.63e-6, -1.81e-6, 0.33247207),
            (2.846, -0.2422, 0, 0.0265, 0.00399632, -1.365e-5, 0.07879254, 0.00137272, -6.6e-6, 0.0784851),
            (1.37, 0, -0.01634, -0.0018, 0.00165491, -2.82e-6, 0.00135962, -4.38e-6, 1.0157e-4, 0.00126279),
            (1.3, 0, 0.01634, -0.0018, 0.00135617, -2.74e-6, 0.00127827, 4.44e-6, -5.048e-5, 9.6614e-4),
            (0.365, 0, 0, -0.001159, 1.8694e-4, 6e-8, 1.8908e-4, -1.7e-7, -9.2e-7, 2.5756e-4),
        ],
        speed=(PI,) * 6,
        torque=(150, 150, 150, 28, 28, 28),
        leaves=leaves,
    )


def ur10(**leaves: Any) -> Chain:
    """Universal Robots UR10 (CB3), 6 joints; the frame "tool0" is the tip.

    The frame "tool0" is the last frame of the Denavit-Hartenberg (DH) table; "flange" has the same origin and the ROS
    orientation. The base frame is that of the controller and of the DH table. ROS calls this frame "base"; its
    "base_link" is rotated by 180 degrees about z.

    The kinematics are those of Universal Robots' article "DH Parameters for calculations of kinematics and dynamics";
    inertias and limits (with halved position limits of the elbow) those of Universal_Robots_ROS2_Description,
    config/ur10 (BSD-3-Clause).
    """
    wrist = (0.00296, -1e-5, 0.00222, 0, -2.4e-4, 0.00258)
    return _universal(
        "ur10",
        (0.1273, -0.612, -0.5723, 0.163941, 0.1157, 0.0922),
        [
            (7.1, 0.021, -0.027, 0, 0.03408, 2e-5, 0.03529, -0.00425, 8e-5, 0.02156),
            (12.7, -0.232, 0, 0.158, 0.02814, 5e-5, 0.77068, -0.01561, 2e-5, 0.76943),
            (4.27, -0.3323, 0, 0.068, 0.01014, 8e-5, 0.30928, 0.00916, 0, 0.30646),
            (2.0, 0, -0.018, 0.007, *wrist),
            (2.0, 0, 0.018, -0.007, *wrist),
            (0.365, 0, 0, -0.026, 4e-4, 0, 4.1e-4, 0, 0, 3.4e-4),
        ],
        speed=(2 * PI / 3, 2 * PI / 3, PI, PI, PI, PI),
        torque=(330, 330, 150, 56, 56, 56),
        leaves=leaves,
    )


def iiwa14(**leaves: Any) -> Chain:
    """KUKA LBR iiwa 14 R820, 7 joints; the frame "flange" is the tip.

    Placements, inertias and position limits are those of mujoco_menagerie, kuka_iiwa_14/iiwa14.xml (BSD-3-Clause; from
    Drake's iiwa_description); speed and torque limits those of KUKA's brochure "LBR iiwa", as cited in Drake's
    iiwa_description/README.md.
    """
    angle = np.radians([170, 120, 170, 120, 170, 120, 175])
    return _arm(
        "iiwa14",
        placements=[
            (0, 0, 0.1575, 0, 0, 0),
            (0, 0, 0.2025, 1, 0, 2),
            (0, 0.2045, 0, 1, 0, 2),
            (0, 0, 0.2155, 1, 0, 0),
            (0, 0.1845, 0, -1, 2, 0),
            (0, 0, 0.2155, 1, 0, 0),
            (0, 0.081, 0, -1, 2, 0),
        ],
        bodies=[
            (5.76, 0, -0.03, 0.12, 0.0333, 0, 0.033, 0, 0, 0.0123),
            (6.35, 0.0003, 0.059, 0.042, 0.0305, 0, 0.0304, 0, 0, 0.011),
            (3.5, 0, 0.03, 0.13, 0.025, 0, 0.0238, 0, 0, 0.0076),
            (3.5, 0, 0.067, 0.034, 0.017, 0, 0.0164, 0, 0, 0.006),
            (3.5, 0.0001, 0.021, 0.076, 0.01, 0, 0.0087, 0, 0, 0.00449),
            (1.8, 0, 0.0006, 0.0004, 0.0049, 0, 0.0047, 0, 0, 0.0036),
            (1.2, 0, 0, 0.02, 0.001, 0, 0.001, 0, 0, 0.001),
        ],
        limits=JointLimits(
            np.transpose([-angle, angle]),
            np.radians([85, 85, 100, 75, 130, 135, 135]),
            (320, 320, 176, 176, 110, 40, 40),
        ),
        frames={"flange": (0, 0, 0.045, 0, 0, 0)},
        leaves=leaves,
    )


def xarm7(**leaves: Any) -> Chain:
    """UFACTORY xArm7, 7 joints; the frame "flange" is the tip.

    The placements are those of xarm_ros, xarm_description/config/kinematics/default/xarm7_default_kinematics.yaml, the
    inertias those of xarm_ros, xarm_description/config/link_inertial/xarm7_type7_HT_BR2.yaml, and the limits those of
    xarm_ros2, xarm_description/urdf/xarm7 (UFACTORY, BSD).
    """
    turn = 2 * PI
    return _arm(
        "xarm7",
        placements=[
            (0, 0, 0.267, 0, 0, 0),
            (0, 0, 0, -1, 0, 0),
            (0, -0.293, 0, 1, 0, 0),
            (0.0525, 0, 0, 1, 0, 0),
            (0.0775, -0.3425, 0, 1, 0, 0),
            (0, 0, 0, 1, 0, 0),
            (0.076, 0.097, 0, -1, 0, 0),
        ],
        bodies=[
            (2.382, -0.0002, 0.02905, -0.01233, 0.0056905, -1.579e-5, 0.0049566, 5.125e-6, -8.73378e-4, 0.003316654),
            (1.869, 0.00022, -0.12856, 0.01735, 0.0095989, 1.541e-6, 0.00382472, 5.56e-6, -0.00317156, 0.007565669),
            (1.6383, 0.0466, -0.02463, -0.00768, 0.00310955, 3.0837e-4, 0.00264483, -5.8453e-4, 3.38893e-4, 0.0026624),
            (1.7269, 0.07047, -0.11575, 0.012, 0.005889, 0.00137112, 0.00359703, 8.8143e-4, -0.001762155, 0.00543244),
            (1.3203, -0.00032, 0.01604, -0.026, 0.00534665, 1.5117e-5, 0.0049779, -3.69e-7, -2.2132e-4, 0.0013624),
            (1.325, 0.06469, 0.03278, 0.02141, 0.0014745, -4.88e-4, 0.0019037, 2.953e-4, 1.4749e-4, 0.0023652),
            (0.17, 0, -0.00677, -0.01098, 9.3e-5, 0, 5.87e-5, 0, -3.6e-6, 1.32e-4),
        ],
        limits=JointLimits(
            np.transpose(
                [(-turn, -2.059, -turn, -0.19198, -turn, -1.69297, -turn), (turn, 2.0944, turn, 3.927, turn, PI, turn)]
            ),
            (3.14,) * 7,
            (50, 50, 30, 30, 30, 20, 20),
        ),
        frames={"flange": (0, 0, 0, 0, 0, 0)},
        leaves=leaves,
    )


def _universal(
    name: str,
    dh: Row,
    bodies: Sequence[Row],
    *,
    speed: Row,
    torque: Row,
    leaves: dict[str, Any],
    turns: Sequence[int] = (1, 0, 0, 1, -1, 0),
) -> Chain:
    """Build a Universal Robots arm; `turns` contains the roll of the axes of each published inertia [quarter turns]."""
    d1, a2, a3, d4, d5, d6 = dh
    reach = np.array([2, 2, 1, 2, 2, 2]) * PI
    topology = Topology.serial(
        6,
        joint_names=[f"{x}_joint" for x in ("shoulder_pan", "shoulder_lift", "elbow", "wrist_1", "wrist_2", "wrist_3")],
        link_names=[f"{x}_link" for x in ("shoulder", "upper_arm", "forearm", "wrist_1", "wrist_2", "wrist_3")],
        base_name=f"{name}_base",
        tip_name="tool0",
    )
    return _arm(
        name,
        placements=[
            (0, 0, d1, 0, 0, 0),
            (0, 0, 0, 1, 0, 0),
            (a2, 0, 0, 0, 0, 0),
            (a3, 0, d4, 0, 0, 0),
            (0, -d5, 0, 1, 0, 0),
            (0, d6, 0, -1, 0, 0),
        ],
        bodies=bodies,
        limits=JointLimits(np.transpose([-reach, reach]), speed, torque),
        frames={"tool0": (0, 0, 0, 0, 0, 0), "flange": (0, 0, 0, 0, -1, -1)},
        turns=turns,
        leaves={"topology": topology} | leaves,
    )


def _arm(
    name: str,
    *,
    placements: Sequence[Row],
    bodies: Sequence[Row],
    limits: JointLimits,
    frames: dict[str, Row],
    leaves: dict[str, Any],
    turns: Sequence[int] = (0,) * 7,
) -> Chain:
    """Build an arm from its tables; the user's arguments in `leaves` take precedence, and the first frame is the tip."""
    n = len(placements)
    topology = Topology.serial(
        n,
        joint_names=[f"{name}_joint{i + 1}" for i in range(n)],
        link_names=[f"{name}_link{i + 1}" for i in range(n)],
        base_name=f"{name}_base",
        tip_name=next(iter(frames)),
    )
    given = {
        "topology": topology,
        "limits": limits,
        "rotation": [_quarter_turns(*row[3:]) for row in placements],
        "translation": [row[:3] for row in placements],
        "screw": [[0, 0, 1, 0, 0, 0]] * n,
        "inertia": [_inertia(row, _quarter_turns(turn, 0, 0)) for row, turn in zip(bodies, turns, strict=False)],
    }
    named = {key: (n - 1, pose_of(_quarter_turns(*row[3:]), row[:3])) for key, row in frames.items()}
    return make_chain(frames=named | (leaves.pop("frames", None) or {}), **given | leaves)


def _inertia(row: Row, turn: np.ndarray) -> np.ndarray:
    """Convert a row of `bodies` to ten parameters; `turn` is the orientation of the inertia's axes in the link frame."""
    xx, xy, yy, xz, yz, zz = row[4:]
    return inertial_parameters_from_com(
        row[0], np.array(row[1:4]), turn @ [[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]] @ turn.T
    )


def _quarter_turns(*rpy: float | int) -> np.ndarray:
    """The rotation Rz(yaw) Ry(pitch) Rx(roll) for angles in quarter turns, without rounding errors."""
    return np.round(rpy_to_rotation(np.pi / 2 * np.array(rpy))) + 0.0

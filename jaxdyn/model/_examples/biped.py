"""A walking robot with seven links and ten joints, fixed at its stance foot or floating.

`textbook` exports this robot and describes its units.
"""

from typing import NamedTuple

import numpy as np

from ...spatial._host import pose_of, ten_parameters
from .._build import make_chain
from .._chain import Chain, Topology
from .._joint_properties import JointLimits
from .parts import X, Y, Z

_NO_BODY = (0.0, np.zeros(3), np.zeros((3, 3)))
_FREE = ("wx", "wy", "wz", "vx", "vy", "vz")

# joints of a leg from the hip down: name, axis, point, lower and upper limit [rad], link below the joint
_LEG = (
    ("hip_roll", X, "hip", -0.7, 0.7, "hip"),
    ("hip_pitch", Y, "hip", -1.8, 1.0, "thigh"),
    ("knee", Y, "knee", 0.0, 2.3, "shin"),
    ("ankle_pitch", Y, "ankle", -1.0, 1.0, "ankle"),
    ("ankle_roll", X, "ankle", -0.7, 0.7, "foot"),
)


class _Row(NamedTuple):
    """A joint at a point of the upright robot, and the link that it moves."""

    joint: str
    link: str
    axis: np.ndarray
    point: np.ndarray
    limits: tuple[float, float] = (-np.inf, np.inf)


def biped(
    *,
    floating: bool = False,
    torso_mass: float = 20.0,
    thigh_mass: float = 4.0,
    shin_mass: float = 3.0,
    foot_mass: float = 1.0,
    leg_length: float = 0.35,
    hip_width: float = 0.2,
    ankle_height: float = 0.08,
    gravity: float = 9.81,
) -> Chain:
    """Biped with 7 links and 10 joints: torso, thighs, shins and feet (Shih et al. 2012, example 3).

    With x forward, y to the left and z up, each leg has these joints from the hip down:

    - hip roll about x and hip pitch about y
    - knee pitch about y
    - ankle pitch about y and ankle roll about x

    Each joint angle is that of the lower link relative to the upper link, in both the fixed and the floating form. At q = 0
    the robot stands upright with straight legs; a positive knee angle bends the knee, and a negative hip pitch moves the thigh
    forward. The universal joints at hip and ankle have a massless virtual link (left_hip, left_ankle, ...) between their axes.

    In the fixed form (single support), the left foot is the base, and the world's origin is on the ground below the left
    ankle. The chain is serial, and q contains the left leg from the ankle up (ankle roll, ankle pitch, knee, hip pitch, hip
    roll), followed by the right leg from the hip down. The mass of the left foot is not part of the chain.

    In the floating form, the robot is a tree of all seven links. The torso is the free body, and its frame is midway between
    the hips. q contains the pose of the torso, followed by the left and the right leg, each from the hip down. The
    configuration q_fixed of the fixed form corresponds to

        q = (position and quaternion of the pelvis, q_fixed[4], ..., q_fixed[0], q_fixed[5], ..., q_fixed[9]).

    The joint entries of v and a are in the same order. The first six entries are J v and J a + dJ/dt v,
    where v, a and J = jacobian(.., "pelvis"), in body coordinates, are those of the fixed form. The joint torques of both forms
    are equal if the force on the free joint is zero and the ground's wrench acts on the left sole.

    The frame "pelvis" is on the torso, and the frames "left_sole" and "right_sole" are on the undersides of the feet, below
    the ankles. The tip is "right_sole".

    The default values are our choice, for a total mass of 36 kg, because the source's table of values was not available.
    Links are uniform boxes:

    - torso: 0.15 x 0.25 x 0.5 m, with its centre 0.25 m above the hips
    - thighs and shins: 0.08 m wide and deep, and as long as the distance between their joints
    - feet: 0.12 m wide and `ankle_height` high, from 0.08 m behind the ankle to 0.14 m in front of it

    Args:
        floating: use a free joint at the torso instead of a fixed left foot.
        torso_mass: mass of the torso [kg].
        thigh_mass: mass of a thigh [kg].
        shin_mass: mass of a shin [kg].
        foot_mass: mass of a foot [kg].
        leg_length: length of each thigh and of each shin [m].
        hip_width: distance between the legs [m].
        ankle_height: height of each ankle above the sole [m].
        gravity: magnitude of gravity, along -z [m/s^2].
    """
    feet = {"left": np.zeros(3), "right": np.array([0, -hip_width, 0])}
    heights = {"ankle": ankle_height, "knee": ankle_height + leg_length, "hip": ankle_height + 2 * leg_length}
    pelvis = np.array([0, -hip_width / 2, heights["hip"]])
    bodies = {"torso": _box(torso_mass, pelvis + 0.25 * Z, (0.15, 0.25, 0.5))}
    for side, foot in feet.items():
        bodies[f"{side}_thigh"] = _box(
            thigh_mass, foot + (heights["knee"] + leg_length / 2) * Z, (0.08, 0.08, leg_length)
        )
        bodies[f"{side}_shin"] = _box(shin_mass, foot + (ankle_height + leg_length / 2) * Z, (0.08, 0.08, leg_length))
        bodies[f"{side}_foot"] = _box(foot_mass, foot + 0.03 * X + ankle_height / 2 * Z, (0.22, 0.12, ankle_height))

    down = {
        side: [
            _Row(f"{side}_{joint}", f"{side}_{link}", axis, foot + heights[at] * Z, (low, high))
            for joint, axis, at, low, high, link in _LEG
        ]
        for side, foot in feet.items()
    }
    if floating:
        free = [_Row(f"floating_base_{x}", f"torso_{x}", X, pelvis) for x in _FREE[:-1]]
        rows = [*free, _Row(f"floating_base_{_FREE[-1]}", "torso", X, pelvis), *down["left"], *down["right"]]
        parents = [*range(-1, 10), 5, *range(11, 15)]
        origin = pelvis
        screws = [*np.eye(6), *([*row.axis, 0, 0, 0] for row in rows[6:])]
    else:
        # on the way up, a joint rotates the upper link relative to the lower one
        above = ["torso", *(row.link for row in down["left"][:-1])]
        up = [row._replace(link=link, axis=-row.axis) for row, link in zip(down["left"], above, strict=True)]
        rows = [*reversed(up), *down["right"]]
        parents = list(range(-1, 9))
        origin = feet["left"]
        screws = [[*row.axis, 0, 0, 0] for row in rows]

    links = [row.link for row in rows]
    points = np.array([row.point for row in rows])
    before = np.array([origin if p < 0 else points[p] for p in parents])
    placed = {"pelvis": ("torso", pelvis)} | {f"{side}_sole": (f"{side}_foot", foot) for side, foot in feet.items()}
    frames = {}
    for name, (link, point) in placed.items():
        index = links.index(link) if link in links else -1
        frames[name] = (index, pose_of(translation=point - (points[index] if index >= 0 else origin)))
    masses = [bodies.get(link, _NO_BODY) for link in links]
    return make_chain(
        rotation=np.tile(np.eye(3), (len(rows), 1, 1)),
        translation=points - before,
        screw=screws,
        inertia=[ten_parameters(m, c - p if m else c, i) for (m, c, i), p in zip(masses, points, strict=True)],
        topology=Topology(
            tuple(parents),
            tuple(row.joint for row in rows),
            tuple(links),
            base_name="world" if floating else "left_foot",
            tip_name="right_sole",
            quaternion_joints=((0, 6),) if floating else (),
        ),
        frames=frames,
        gravity=(0, 0, -gravity),
        limits=JointLimits([row.limits for row in rows]),
    )


def _box(mass: float, centre: np.ndarray, edges: tuple[float, float, float]) -> tuple[float, np.ndarray, np.ndarray]:
    """Mass, centre and inertia about the centre of a uniform box with edges (a, b, c): I_xx = m (b^2 + c^2) / 12."""
    square = np.square(edges)
    return mass, np.asarray(centre, float), mass / 12 * np.diag(square.sum() - square)

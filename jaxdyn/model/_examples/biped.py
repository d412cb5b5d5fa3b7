"""A walking robot of seven links and ten joints: fixed by its stance foot, or as a tree that moves freely.

Exported by `textbook`, with its units.
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

# joints of a leg from the hip down: axis, point, lower and upper limit [rad], and the link below
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
    """Biped of 7 links and 10 joints: a torso, thighs and shins of one length, feet (Shih et al. 2012, example 3).

    Each leg has a hip (roll about x, then pitch about y), a knee (y) and an ankle (y, then x): x points ahead, y to the left, z
    up. In both forms, angles are those of the lower link relative to the upper one: q = 0 stands upright with straight legs, a
    positive knee angle bends it, a negative hip pitch lifts the thigh ahead. The universal joints of hip and ankle have a
    virtual link without mass (left_hip, left_ankle, ...) between their axes.

    Fixed (single support): the left foot is the base, with the world's origin on the ground below its ankle. The chain is
    serial: q holds the left leg from the ankle up (ankle roll, ankle pitch, knee, hip pitch, hip roll), then the right leg from
    the hip down. The left foot is the base; its mass is not in the chain.

    Floating: a tree with the torso as the free body, its frame midway between the hips; q holds its pose, then the left
    and the right leg from the hip down. It contains all seven links. The same motion has

        q = (position and quaternion of the pelvis, q_fixed[4], ..., q_fixed[0], q_fixed[5], ..., q_fixed[9]),

    the same for v and a, whose first six are J v and J a + dJ/dt v of the fixed form with its J = jacobian(.., "pelvis").
    With zero force on the free joint and the ground's wrench on the left sole, joint torques are the same.

    Frames: "pelvis" on the torso, "left_sole" and "right_sole" on the ground below the ankles; the tip is "right_sole".

    The source's table of values is lost; those here are our own, for a robot of 36 kg. Links are uniform boxes: the torso
    0.15 x 0.25 x 0.5 m with its centre 0.25 m above the hips, thighs and shins 0.08 m wide and as long as the distance
    between their joints, feet 0.12 m wide, as high as the ankle, and from 0.08 m behind it to 0.14 m ahead.

    Args:
        floating: a free joint instead of a fixed foot.
        leg_length: length of a thigh, and of a shin.
        hip_width: distance between the legs.
        ankle_height: height of the ankles above the soles.
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
        # going up, a joint turns the upper link relative to the lower one
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
    """Mass, centre and inertia about the centre of a uniform box: I_xx = m (b^2 + c^2) / 12."""
    square = np.square(edges)
    return mass, np.asarray(centre, float), mass / 12 * np.diag(square.sum() - square)

"""Textbook systems as chains: small robots with closed-form equations of motion, a biped, and systems with drives.

Units and symbols are those of `textbook`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import ModelError
from ..model.build import make_chain, pose_of
from ..model.chain import Chain, Friction, JointLimits, Topology
from ..model.drives import elastic_chain, elastic_joints, with_coupling, with_transmission
from ..model.joints import Free
from ..spatial.components import Values
from ..spatial.inertia import inertial_parameters_from_com

X, Y, Z = np.eye(3)


def slender_body(mass: float, com: np.ndarray, moment: float, along: np.ndarray | None = None) -> np.ndarray:
    """Ten inertial parameters of a slender body along `along` (default: `com`), with the transverse inertia `moment`."""
    along = com if along is None else along
    square = along @ along
    return inertial_parameters_from_com(mass, com, moment * (np.eye(3) - np.outer(along, along) / (square or 1.0)))


def parallel_chain(
    axes: Sequence[np.ndarray],
    bodies: Sequence[np.ndarray] | np.ndarray,
    gravity: float,
    *,
    up: np.ndarray = Z,
    offsets: Sequence[np.ndarray] | np.ndarray | None = None,
    tip: np.ndarray = 0 * X,
    tip_link: int = -1,
    prismatic: tuple[int, ...] = (),
    **leaves: Any,
) -> Chain:
    """Chain whose frames are all parallel to the base at q = 0, with a frame "tip" on the link `tip_link`."""
    n = len(axes)
    return make_chain(
        rotation=np.tile(np.eye(3), (n, 1, 1)),
        translation=np.zeros((n, 3)) if offsets is None else offsets,
        screw=[[*(0 * axis), *axis] if i in prismatic else [*axis, *(0 * axis)] for i, axis in enumerate(axes)],
        inertia=bodies,
        frames={"tip": (range(n)[tip_link], pose_of(translation=tip))},
        gravity=-gravity * up,
        **{"topology": Topology.serial(n, tip_name="tip"), **leaves},
    )


def hanging_link(mass: float, com_distance: float, link_inertia: float, gravity: float, **leaves: Any) -> Chain:
    """One link that rotates about x and hangs down along -z at q = 0; `link_inertia` is about the joint axis."""
    central = link_inertia - mass * com_distance**2
    if central < -1e-9 * abs(link_inertia):
        raise ModelError(
            f"link_inertia {link_inertia:g} kg m^2 about the joint is less than mass com_distance^2 = "
            f"{mass * com_distance**2:g}; add the parallel-axis term if the value is about the centre of mass"
        )
    com = -com_distance * Z
    return parallel_chain([X], [slender_body(mass, com, max(central, 0.0))], gravity, tip=com, **leaves)


def planar_elbow(
    *,
    m1: float = 1.0,
    m2: float = 1.0,
    l1: float = 1.0,
    l2: float = 1.0,
    lc1: float = 0.5,
    lc2: float = 0.5,
    i1: float = 1 / 12,
    i2: float = 1 / 12,
    gravity: float = 9.81,
) -> Chain:
    """Planar elbow arm with rigid links (Spong, Hutchinson & Vidyasagar 2020, sec. 6.4).

    Axes and gravity are those of `textbook.planar_2r_point_masses`. The centre of mass of each link is on the link, at the
    distance lc from its joint [m], and i is the link's moment of inertia along z about the centre of mass [kg m^2]. With
    k = m2 l1 lc2, c2 = cos q2, s2 = sin q2 and c12 = cos(q1 + q2), M, C and g are

        M11 = m1 lc1^2 + m2 (l1^2 + lc2^2) + 2 k c2 + i1 + i2,  M12 = m2 lc2^2 + k c2 + i2,  M22 = m2 lc2^2 + i2,
        C = k s2 [[-qd2, -qd1 - qd2], [qd1, 0]],
        g = [(m1 lc1 + m2 l1) gravity c1 + m2 lc2 gravity c12, m2 lc2 gravity c12].
    """
    bodies = [slender_body(m1, lc1 * X, i1), slender_body(m2, lc2 * X, i2)]
    return parallel_chain([Z, Z], bodies, gravity, up=Y, offsets=[0 * X, l1 * X], tip=l2 * X)


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

    With x forward, y to the left and z up, each leg has these joints from the hip down: hip roll about x, hip pitch, knee and
    ankle pitch about y, ankle roll about x. A joint angle is that of the lower link relative to the upper link. At q = 0 the
    robot stands upright with straight legs; a positive knee angle bends the knee, and a negative hip pitch moves the thigh
    forward. The universal joints at hip and ankle have a massless virtual link (left_hip, left_ankle, ...) between their axes.

    In the fixed form (single support), the left foot is the base, and the world's origin is on the ground below the left
    ankle. The chain is serial, and q contains the left leg from the ankle up, followed by the right leg from the hip down. The
    mass of the left foot is not part of the chain.

    In the floating form, the torso is the free body, and its frame is midway between the hips. q contains the pose of the
    torso, followed by the left and the right leg, each from the hip down. The configuration q_fixed of the fixed form is

        q = (position and quaternion of the pelvis, q_fixed[4], ..., q_fixed[0], q_fixed[5], ..., q_fixed[9]).

    Velocities and accelerations are in the same order; their first six entries are J qd and J qdd + dJ/dt qd of the fixed form
    with J = jacobian(.., "pelvis"), in body coordinates. The joint torques of both forms are equal if the force on the free
    joint is zero and the ground's wrench acts on the left sole.

    The frame "pelvis" is on the torso, and the frames "left_sole" and "right_sole" are on the undersides of the feet, below the
    ankles. The tip is "right_sole".

    The source's table of values was not available; the default values, with a total mass of 36 kg, are our choice. Links are
    uniform boxes: the torso (0.15 x 0.25 x 0.5 m, with its centre 0.25 m above the hips), thighs and shins (0.08 m wide and
    deep), and feet (0.12 m wide, from 0.08 m behind the ankle to 0.14 m in front of it).

    Args:
        floating: use a free joint at the torso instead of a fixed left foot.
        leg_length: length of each thigh and of each shin [m].
        hip_width: distance between the legs [m].
        ankle_height: height of each ankle above the sole, and of the foot [m].
    """
    feet = {"left": np.zeros(3), "right": np.array([0, -hip_width, 0])}
    heights = {"ankle": ankle_height, "knee": ankle_height + leg_length, "hip": ankle_height + 2 * leg_length}
    pelvis = np.array([0, -hip_width / 2, heights["hip"]])
    middle = leg_length / 2
    leg = (  # link, mass, centre above the sole, edges
        ("thigh", thigh_mass, (heights["knee"] + middle) * Z, (0.08, 0.08, leg_length)),
        ("shin", shin_mass, (heights["ankle"] + middle) * Z, (0.08, 0.08, leg_length)),
        ("foot", foot_mass, 0.03 * X + ankle_height / 2 * Z, (0.22, 0.12, ankle_height)),
    )
    bodies = {f"{side}_{link}": _box(m, foot + c, edges) for side, foot in feet.items() for link, m, c, edges in leg}
    bodies["torso"] = _box(torso_mass, pelvis + 0.25 * Z, (0.15, 0.25, 0.5))

    down = {
        side: [
            _Row(f"{side}_{joint}", f"{side}_{link}", axis, foot + heights[at] * Z, (low, high))
            for joint, axis, at, low, high, link in _LEG
        ]
        for side, foot in feet.items()
    }
    if floating:
        carried = [f"torso{x}" for x in Free.parts[:-1]] + ["torso"]
        free = [_Row(f"floating_base{x}", link, X, pelvis) for x, link in zip(Free.parts, carried, strict=True)]
        rows = [*free, *down["left"], *down["right"]]
        parents = [*range(-1, 10), 5, *range(11, 15)]
        origin = pelvis
    else:
        # on the way up, a joint rotates the upper link relative to the lower one
        above = ["torso", *(row.link for row in down["left"][:-1])]
        up = [row._replace(link=link, axis=-row.axis) for row, link in zip(down["left"], above, strict=True)]
        rows = [*reversed(up), *down["right"]]
        parents = list(range(-1, 9))
        origin = feet["left"]

    screws = np.array([[*row.axis, 0, 0, 0] for row in rows])
    if floating:
        screws[:6] = np.eye(6)
    links = [row.link for row in rows]
    points = np.array([*(row.point for row in rows), origin])  # index -1 is the base
    placed = {"pelvis": ("torso", pelvis)} | {f"{side}_sole": (f"{side}_foot", foot) for side, foot in feet.items()}
    frames = {}
    for name, (link, point) in placed.items():
        index = links.index(link) if link in links else -1
        frames[name] = (index, pose_of(translation=point - points[index]))
    inertia = np.zeros((len(rows), 10))
    for i, link in enumerate(links):
        if link in bodies:
            mass, centre, moments = bodies[link]
            inertia[i] = inertial_parameters_from_com(mass, centre - points[i], moments)
    return make_chain(
        rotation=np.tile(np.eye(3), (len(rows), 1, 1)),
        translation=points[:-1] - points[parents],
        screw=screws,
        inertia=inertia,
        topology=Topology(
            tuple(parents),
            tuple(row.joint for row in rows),
            tuple(links),
            base_name="world" if floating else "left_foot",
            tip_name="right_sole",
            compound_joints=((0, "free"),) if floating else (),
        ),
        frames=frames,
        gravity=(0, 0, -gravity),
        limits=JointLimits([row.limits for row in rows]),
    )


def _box(mass: float, centre: np.ndarray, edges: tuple[float, float, float]) -> tuple[float, np.ndarray, np.ndarray]:
    """Mass, centre and inertia about the centre of a uniform box with edges (a, b, c): I_xx = m (b^2 + c^2) / 12."""
    square = np.square(edges)
    return mass, np.asarray(centre, float), mass / 12 * np.diag(square.sum() - square)


def geared_link(
    *,
    mass: float = 1.0,
    com_distance: float = 0.5,
    link_inertia: float = 1 / 3,
    motor_inertia: float = 1e-4,
    gear_ratio: float = 100.0,
    motor_damping: float = 0.0,
    link_damping: float = 0.0,
    gravity: float = 9.81,
) -> Chain:
    """The link of `single_link` with its gear ratio r as a leaf, which can be differentiated: `chain.transmission.matrix`.

    The equation of motion is that of `single_link` with tau = r tau_m, where tau_m is the torque of the motor.
    """
    link = hanging_link(mass, com_distance, link_inertia, gravity, friction=Friction(link_damping))
    return with_transmission(link, gear_ratio=gear_ratio, rotor_inertia=motor_inertia, viscous_friction=motor_damping)


def elastic_link(
    *,
    mass: float = 1.0,
    com_distance: float = 0.5,
    link_inertia: float = 1 / 3,
    motor_inertia: float = 0.1,
    stiffness: float = 100.0,
    damping: float = 0.0,
    motor_damping: float = 0.0,
    link_damping: float = 0.0,
    gear_ratio: float = 1.0,
    gravity: float = 9.81,
) -> Chain:
    """One link on an elastic joint, with the link angle q1 and the motor angle q2 as coordinates.

    In example 6.2 of Spong, Hutchinson & Vidyasagar 2020, M = diag(link_inertia, motor_inertia) and h = 0. With the
    spring energy stiffness (q1 - q2)^2 / 2, the equations of motion are

        link_inertia qdd1 + mass gravity com_distance sin q1 + stiffness (q1 - q2) = 0,
        motor_inertia qdd2 + stiffness (q2 - q1) = tau_m,

    plus the viscous torques of `damping` (parallel to the spring), `motor_damping` and `link_damping`. (The book
    interchanges the link and motor angles in one line of the example.) With a gear of ratio r, q2 is the motor angle
    divided by r; in the equations, motor_inertia and motor_damping, which refer to the motor shaft, are multiplied by
    r^2, and tau_m by r. `link_inertia` is about the joint axis. The chain is that of `elastic_chain`.

    Raises:
        ModelError: link_inertia is less than mass com_distance^2; a stiffness or motor inertia is not positive.
    """
    link = hanging_link(mass, com_distance, link_inertia, gravity, friction=Friction(link_damping))
    drive = elastic_joints(
        link,
        stiffness=stiffness,
        damping=damping,
        rotor_inertia=motor_inertia,
        rotor_friction=motor_damping,
        gear_ratio=gear_ratio,
    )
    return elastic_chain(link, drive)


def remotely_driven_elbow(*, motor_inertia: Values = 0.0, gear_ratio: Values = 1.0, **arm: float) -> Chain:
    """Planar elbow with both motors at the base, in absolute angles p1, p2 [rad].

    The second motor drives link 2 through a belt, independently of p1 (Spong, Hutchinson & Vidyasagar 2020, sec. 6.4).
    The joint positions are therefore q1 = p1 and q2 = p2 - p1. Both angles are measured from the x axis, and gravity is
    along -y. With k = m2 l1 lc2, rotor inertias J_i and gear ratios r_i, M, C and g are

        M = [[m1 lc1^2 + m2 l1^2 + i1 + r_1^2 J_1, k cos(p2 - p1)], [k cos(p2 - p1), m2 lc2^2 + i2 + r_2^2 J_2]],
        C = k sin(p2 - p1) [[0, -pd2], [pd1, 0]],
        g = [(m1 lc1 + m2 l1) gravity cos p1, m2 lc2 gravity cos p2].

    In absolute angles, there are centrifugal forces but no Coriolis forces (products pd1 pd2), in contrast to
    `textbook.planar_elbow`, which uses relative angles. Each motor drives one coordinate: tau_i = r_i tau_m,i.
    `motor_inertia` [kg m^2] and `gear_ratio` are one value for both motors or two values.

    Args:
        arm: arguments of `textbook.planar_elbow`.
    """
    absolute = np.array([[1.0, 0.0], [1.0, 1.0]])  # p = absolute @ q
    ratios = np.broadcast_to(np.asarray(gear_ratio, float), (2,))
    elbow = with_transmission(planar_elbow(**arm), matrix=ratios[:, None] * absolute, rotor_inertia=motor_inertia)
    return with_coupling(elbow, np.linalg.inv(absolute), names=("p1", "p2"))


def coupled_wrist(
    *,
    gear_ratio: tuple[float, float, float] = (-48.0, 45.0, 32.0),
    rotor_inertia: Values = 2e-5,
    viscous_friction: Values = 1e-4,
    coulomb_friction: Values = 5e-3,
    coulomb_velocity: Values = 1.0,
    masses: tuple[float, float, float] = (1.0, 0.5, 0.2),
    lengths: tuple[float, float, float] = (0.2, 0.07, 0.05),
    gravity: float = 9.81,
) -> Chain:
    """Wrist with three joints (roll, pitch, roll) in which pitch motion also rotates the last motor, as in a Staubli TX40.

    The joints are numbered 4, 5 and 6, as in an arm with six joints. Their axes (z, y and z) intersect in one point,
    and the wrist points up at q = 0. With the gear ratios r4, r5 and r6, the motor rates are

        R qd,  R = [[r4, 0, 0], [0, r5, 0], [0, r6, r6]].

    The inertia J6 and the viscous friction B6 of motor 6 therefore couple joints 5 and 6, by the entries r6^2 J6 of
    R^T J R and r6^2 B6 of R^T B R. Its Coulomb friction fc6 acts on both joints with the torque
    r6 fc6 tanh(r6 (qd5 + qd6) / v_c).

    The corresponding parameters of `coupled_drive(5, 6)` are Iam6, fvm6 and fsm6, with the velocity v_c / |r6|. In this
    chain, joints 5 and 6 are the second and third joints. The default masses, lengths and motor parameters are our
    choice.

    Motor parameters are one value for all motors or three values, in terms of motor speed; `lengths` are the distances
    of the masses from the wrist centre [m].

    Raises:
        ModelError: the number of gear ratios is not three; also the errors of `with_transmission`.
    """
    if len(gear_ratio) != 3:
        raise ModelError(f"gear_ratio has {len(gear_ratio)} values, but the wrist has 3 joints")
    r4, r5, r6 = gear_ratio
    bodies = [
        slender_body(m, sign * d * Z + 0.1 * d * X, m * d**2 / 5)
        for m, d, sign in zip(masses, lengths, (-1, 1, 1), strict=True)
    ]
    topology = Topology.serial(3, joint_names=("joint4", "joint5", "joint6"), tip_name="tip")
    wrist = parallel_chain([Z, Y, Z], bodies, gravity, tip=lengths[2] * Z, topology=topology)
    return with_transmission(
        wrist,
        matrix=[[r4, 0, 0], [0, r5, 0], [0, r6, r6]],
        rotor_inertia=rotor_inertia,
        viscous_friction=viscous_friction,
        coulomb_friction=coulomb_friction,
        coulomb_velocity=coulomb_velocity,
    )


def planar_2r_point_masses(
    *, m1: float = 1.0, m2: float = 1.0, l1: float = 1.0, l2: float = 1.0, gravity: float = 9.81
) -> Chain:
    """Planar 2R arm with point masses m1, m2 at the ends of its links (Lynch & Park 2017, sec. 8.1.1).

    The arm moves in the x-y plane with gravity along -y. Both joint angles are about z; q1 is measured from the x axis and q2
    from link 1. With k = m2 l1 l2, c1 = cos q1, c2 = cos q2, s2 = sin q2 and c12 = cos(q1 + q2), M, h and g are

        M = [[(m1 + m2) l1^2 + m2 l2^2 + 2 k c2, m2 l2^2 + k c2], [m2 l2^2 + k c2, m2 l2^2]],
        h = [-k s2 (2 qd1 qd2 + qd2^2), k s2 qd1^2],
        g = [(m1 + m2) gravity l1 c1 + m2 gravity l2 c12, m2 gravity l2 c12],  det M = m2 l1^2 l2^2 (m1 + m2 s2^2).
    """
    return planar_elbow(m1=m1, m2=m2, l1=l1, l2=l2, lc1=l1, lc2=l2, i1=0.0, i2=0.0, gravity=gravity)


def cartesian_two_link(*, m1: float = 1.0, m2: float = 1.0, gravity: float = 9.81) -> Chain:
    """Cartesian arm, q1 upwards along z and q2 along x [m] (Spong, Hutchinson & Vidyasagar 2020, sec. 6.4).

    M = diag(m1 + m2, m2), h = 0 and g = [(m1 + m2) gravity, 0] are constant.
    """
    bodies = [slender_body(m1, 0 * X, 0.0), slender_body(m2, 0 * X, 0.0)]
    return parallel_chain([Z, X], bodies, gravity, prismatic=(0, 1))


def single_link(
    *,
    mass: float = 1.0,
    com_distance: float = 0.5,
    link_inertia: float = 1 / 3,
    motor_inertia: float = 0.0,
    gear_ratio: float = 1.0,
    motor_damping: float = 0.0,
    link_damping: float = 0.0,
    gravity: float = 9.81,
) -> Chain:
    """One link driven by a motor through an r : 1 gear (Spong, Hutchinson & Vidyasagar 2020, example 6.1).

    The link rotates about x and hangs down along -z at q = 0. With r = gear_ratio, the equation of motion is

        I qdd + B qd + mass gravity com_distance sin q = tau,
        I = r^2 motor_inertia + link_inertia,  B = r^2 motor_damping + link_damping,

    and the potential energy is mass gravity com_distance (1 - cos q). `link_inertia` is about the joint axis; the
    default is that of a uniform rod of 1 m. The reflected motor inertia is the chain's armature, and B its viscous
    friction. The book prints r instead of r^2 in B. The correct factor is r^2, since each damping coefficient refers to the
    speed of its own shaft [N m s/rad]. See `geared_link` for a gear ratio that can be optimised.

    Raises:
        ModelError: link_inertia is less than mass com_distance^2, the inertia of a point mass.
    """
    return hanging_link(
        mass,
        com_distance,
        link_inertia,
        gravity,
        armature=gear_ratio**2 * motor_inertia,
        friction=Friction(gear_ratio**2 * motor_damping + link_damping),
    )


def spherical_rrp(
    *,
    m1: float = 1.0,
    m2: float = 1.0,
    lc1: float = 0.5,
    i1: float = 1 / 12,
    i2: float = 0.0,
    turret_inertia: float = 0.0,
    gravity: float = 9.81,
) -> Chain:
    """Spherical RRP arm with q = (q1, q2, r): azimuth about z, elevation from the horizontal plane, reach along the arm.

    The first link, a turret, is massless but can have the inertia `turret_inertia` about z. The arm has mass m1 at the
    distance lc1 and transverse inertia i1; the slide has mass m2 at the distance r and transverse inertia i2, both about the
    centres of mass. With a(r) = m1 lc1^2 + i1 + m2 r^2 + i2, c2 = cos q2 and s2 = sin q2, M, g and h are

        M = diag(a c2^2 + turret_inertia, a, m2),  g = gravity [0, (m1 lc1 + m2 r) c2, m2 s2],
        h = [2 c2 qd1 (m2 r c2 rd - a s2 qd2), 2 m2 r rd qd2 + a s2 c2 qd1^2, -m2 r (qd2^2 + c2^2 qd1^2)].

    Without turret inertia, M is singular if the arm points straight up or down. The system is example 1 of Shih et al. 2012.
    Since its table of parameters was not available, the axes, zero positions, slender bodies and default values are our choice.
    """
    turret = np.array([0, 0, 0, 0, turret_inertia / 2, 0, turret_inertia / 2, 0, 0, turret_inertia])
    bodies = [turret, slender_body(m1, lc1 * X, i1, along=X), slender_body(m2, 0 * X, i2, along=X)]
    return parallel_chain([Z, -Y, X], bodies, gravity, prismatic=(2,))


def pendulum_3dof(
    *,
    m1: float = 1.0,
    m2: float = 1.0,
    l1: float = 1.0,
    lc1: float = 0.5,
    lc2: float = 0.5,
    i1: float = 1 / 12,
    i2: float = 1 / 12,
    l2: float = 1.0,
    gravity: float = 9.81,
) -> Chain:
    """Pendulum of two rods with three joints and spatial motion; at q = 0 it hangs down along -z.

    The first rod hangs from a universal joint (q1 about x, then q2 about y, with a massless virtual link between them);
    the second rod is hinged to the end of the first (q3 about y). The rods have masses m1 and m2, centres of mass at the
    distances lc1 and lc2, and transverse inertias i1 and i2 about these centres. With u = l1 c2 + lc2 c23, c_i = cos q_i and
    c23 = cos(q2 + q3), M and the potential energy are

        M11 = (m1 lc1^2 + i1) c2^2 + m2 u^2 + i2 c23^2,  M12 = M13 = 0,
        M22 = m1 lc1^2 + i1 + m2 (l1^2 + lc2^2 + 2 l1 lc2 c3) + i2,  M23 = m2 (lc2^2 + l1 lc2 c3) + i2,
        M33 = m2 lc2^2 + i2, potential energy -gravity c1 (m1 lc1 c2 + m2 u).

    The system is example 2 of Shih et al. 2012. Since its figure and table were not available, the axes (x, y, y) and all
    default values are our choice.
    """
    bodies = [np.zeros(10), slender_body(m1, -lc1 * Z, i1), slender_body(m2, -lc2 * Z, i2)]
    return parallel_chain([X, Y, Y], bodies, gravity, offsets=[0 * X, 0 * X, -l1 * Z], tip=-l2 * Z)


def pendulum(
    n: int = 1,
    *,
    mass: Values = 1.0,
    length: Values = 1.0,
    com_distance: Values | None = None,
    inertia: Values | None = None,
    damping: Values = 0.0,
    gravity: float = 9.81,
) -> Chain:
    """Planar pendulum with n links; at q = 0 it hangs down along -z, and joints rotate about x.

    Each argument except n and gravity is one value for all links or one value per link. q_i is the angle of link i relative
    to link i - 1. Links are uniform rods unless `com_distance` (from the link's joint) or `inertia` (about the centre of
    mass) is specified. Point masses result from com_distance = length and inertia = 0. `damping` is the viscous friction
    coefficient of the joints [N m s/rad]. With the absolute angles b_i = q_1 + ... + q_i, the kinetic energy T and potential
    energy V are

        T = sum_ij w_ij cos(b_i - b_j) bd_i bd_j / 2,
        V = -gravity sum_i (m_i lc_i + l_i sum_{k > i} m_k) cos b_i,
        w_ii = m_i lc_i^2 + inertia_i + l_i^2 sum_{k > i} m_k,
        w_ij = w_ji = m_j l_i lc_j + l_i l_j sum_{k > j} m_k for i < j.

    Raises:
        ModelError: n is not positive, or an argument has neither one value nor n values.
    """
    if n < 1:
        raise ModelError(f"a pendulum needs at least one link, but n is {n}")

    def per_link(name: str, x: Values) -> np.ndarray:
        if np.shape(x) not in ((), (n,)):
            raise ModelError(f"{name} has shape {np.shape(x)}; a pendulum with {n} links needs one value or {n}")
        return np.broadcast_to(np.asarray(x, float), (n,))

    m, ll = per_link("mass", mass), per_link("length", length)
    lc = ll / 2 if com_distance is None else per_link("com_distance", com_distance)
    moment = m * ll**2 / 12 if inertia is None else per_link("inertia", inertia)
    joints = np.outer([0, *ll], -Z)  # joint k + 1 is at the end of link k
    return parallel_chain(
        [X] * n,
        [slender_body(m[i], -lc[i] * Z, moment[i]) for i in range(n)],
        gravity,
        offsets=joints[:-1],
        tip=joints[-1],
        friction=Friction(per_link("damping", damping)),
    )

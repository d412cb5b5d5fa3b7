"""Textbook systems with drives as chains: a geared link, an elastic joint, a remotely driven elbow, a coupled wrist.

Exported by `textbook`, with the units and symbols described there.
"""

import numpy as np

from ...errors import ModelError
from ...spatial._host import Values
from .._chain import Chain, Topology
from .._drives import with_coupling, with_transmission
from .._joint_properties import Friction
from .._mechanisms.elastic import elastic_chain, elastic_joints
from .parts import X, Y, Z, hanging_link, parallel_chain, planar_elbow, slender_body


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
    """One link driven by a motor through an r : 1 gear (Spong, Hutchinson & Vidyasagar 2020, example 6.1).

    I qdd + B qd + mass gravity com_distance sin q = r tau_m with I = r^2 motor_inertia + link_inertia and B = r^2
    motor_damping + link_damping. The book prints B = r B_m + B_l. The correct factor is r^2, as for the inertia: each damping
    coefficient refers to the speed of its shaft [N m s/rad], so the power lost at the motor shaft is B_m (r qd)^2. The dynamics
    equal those of `single_link`, in which armature and friction represent the motor; here the gear ratio is a leaf,
    `chain.transmission.matrix`, which can be differentiated and optimised. At q = 0 the link hangs down along -z, and it
    rotates about x; `link_inertia` is about the joint axis [kg m^2].

    Raises:
        ModelError: link_inertia is less than mass com_distance^2, the inertia of a point mass.
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
    """One link on an elastic joint, with coordinates (q1, q2) = (link, motor).

    (Spong, Hutchinson & Vidyasagar 2020, example 6.2.)
    M = diag(link_inertia, motor_inertia) and h = 0. With the spring energy stiffness (q1 - q2)^2 / 2, the equations of
    motion are

        link_inertia qdd1 + mass gravity com_distance sin q1 + stiffness (q1 - q2) = 0,
        motor_inertia qdd2 + stiffness (q2 - q1) = tau_m,

    plus the viscous torques of damping (parallel to the spring), motor_damping and link_damping [N m s/rad]. (The
    book swaps link and motor angle in one line of the example.) With a gear of ratio r, q2 is the motor angle divided
    by r, motor_inertia and motor_damping are multiplied by r^2, and tau_m by r. The chain is that of `elastic_chain`,
    with three rotations, one of which is the spring. `spring_force` contains the spring, and `friction_force` all damping.

    Args:
        mass: mass of the link [kg].
        com_distance: distance of the link's centre of mass from the joint [m].
        link_inertia: inertia of the link about the joint axis [kg m^2].
        motor_inertia: inertia of the rotor about its axis [kg m^2].
        stiffness: stiffness of the spring [N m/rad].
        damping: damping of the spring [N m s/rad].
        motor_damping: viscous friction of the motor, in terms of motor speed [N m s/rad].
        link_damping: viscous friction of the link [N m s/rad].
        gear_ratio: motor revolutions per joint revolution.
        gravity: magnitude of gravity, along -z [m/s^2].

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

    (Spong, Hutchinson & Vidyasagar 2020, sec. 6.4.)
    The second motor drives link 2 through a belt, independently of p1: the joint positions are q1 = p1, q2 = p2 - p1. Both
    angles are measured from the x axis; gravity is along -y. With k = m2 l1 lc2 and rotor inertias J_i behind r_i : 1
    gears, M, C and g are

        M = [[m1 lc1^2 + m2 l1^2 + i1 + r_1^2 J_1, k cos(p2 - p1)], [k cos(p2 - p1), m2 lc2^2 + i2 + r_2^2 J_2]],
        C = k sin(p2 - p1) [[0, -pd2], [pd1, 0]],
        g = [(m1 lc1 + m2 l1) gravity cos p1, m2 lc2 gravity cos p2].

    The Coriolis forces of `textbook.planar_elbow` (products pd1 pd2) vanish and centrifugal forces remain; each motor
    drives one coordinate, tau_i = r_i tau_m,i.

    Args:
        motor_inertia: inertia of the rotors, one value or two [kg m^2].
        gear_ratio: motor revolutions per revolution of p1 and of p2, one value or two.
        arm: m1 to i2 and gravity, as for `textbook.planar_elbow`.
    """
    absolute = np.array([[1.0, 0.0], [1.0, 1.0]])  # p = absolute q
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

    The axes of joints 4 (z), 5 (y) and 6 (z) intersect in one point; at q = 0 the wrist points up. The motor rates are

        R qd,  R = [[r4, 0, 0], [0, r5, 0], [0, r6, r6]].

    Inertia and friction of motor 6 thus act on the sum of two joint rates: R^T J R couples the accelerations of joints 5
    and 6 by r6^2 J6, R^T B R couples their rates by r6^2 B6, and the Coulomb friction on both joints is r6 fc6 tanh(r6
    (qd5 + qd6) / v_c). These three quantities are the parameters Iam6, fvm6, fsm6 of `coupled_drive(5, 6)`, with the velocity
    v_c / |r6|. (The numbers 5 and 6 count the joints of an arm from 1; here they are joints 2 and 3.) The masses, their
    distances from the wrist centre and the motors are our choice.

    Args:
        gear_ratio: r4, r5, r6, motor revolutions per joint revolution.
        rotor_inertia: inertia of the rotors, one value or three [kg m^2].
        viscous_friction: viscous friction of the motors, one value or three [N m s/rad].
        coulomb_friction: Coulomb friction of the motors, one value or three [N m].
        coulomb_velocity: width v_c of the smooth sign, in terms of motor speed [rad/s].
        masses: masses of the links [kg].
        lengths: distances of the masses from the wrist centre [m].
        gravity: magnitude of gravity, along -z [m/s^2].

    Raises:
        ModelError: there are not three gear ratios; also the errors of `with_transmission`.
    """
    if len(gear_ratio) != 3:
        raise ModelError(f"{len(gear_ratio)} gear ratios are given for a wrist with 3 joints")
    r4, r5, r6 = gear_ratio
    wrist = parallel_chain(
        axes=[Z, Y, Z],
        offsets=[0 * X, 0 * X, 0 * X],
        bodies=[
            slender_body(m, sign * d * Z + 0.1 * d * X, m * d**2 / 5)
            for m, d, sign in zip(masses, lengths, (-1, 1, 1), strict=True)
        ],
        tip=lengths[2] * Z,
        gravity=-gravity * Z,
        topology=Topology.serial(3, joint_names=("joint4", "joint5", "joint6"), tip_name="tip"),
    )
    return with_transmission(
        wrist,
        matrix=[[r4, 0, 0], [0, r5, 0], [0, r6, r6]],
        rotor_inertia=rotor_inertia,
        viscous_friction=viscous_friction,
        coulomb_friction=coulomb_friction,
        coulomb_velocity=coulomb_velocity,
    )

"""Textbook systems with drives as chains: a geared link, an elastic joint, a remotely driven elbow, a coupled wrist.

`textbook` exports these systems and describes their units and symbols.
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

    The link rotates about x and hangs down along -z at q = 0. With r = gear_ratio, the equation of motion is

        I qdd + B qd + mass gravity com_distance sin q = r tau_m,
        I = r^2 motor_inertia + link_inertia,  B = r^2 motor_damping + link_damping.

    `link_inertia` is about the joint axis [kg m^2]. The book prints r instead of r^2 in B. The correct factor is r^2, as for
    the inertia: each damping coefficient refers to the speed of its own shaft [N m s/rad], so the power lost at the motor
    shaft is motor_damping (r qd)^2.

    The dynamics equal those of `single_link`, in which armature and friction represent the motor. Here the gear ratio is a
    leaf, `chain.transmission.matrix`, which can be differentiated and optimised.

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
    """One link on an elastic joint, with the link angle q1 and the motor angle q2 as coordinates.

    In example 6.2 of Spong, Hutchinson & Vidyasagar 2020, M = diag(link_inertia, motor_inertia) and h = 0. With the spring
    energy stiffness (q1 - q2)^2 / 2, the equations of motion are

        link_inertia qdd1 + mass gravity com_distance sin q1 + stiffness (q1 - q2) = 0,
        motor_inertia qdd2 + stiffness (q2 - q1) = tau_m,

    plus the viscous torques of `damping` (parallel to the spring), `motor_damping` and `link_damping`. (The book interchanges
    the link and motor angles in one line of the example.) With a gear of ratio r, q2 is the motor angle divided by r; in the
    equations, motor_inertia and motor_damping are multiplied by r^2, and tau_m by r.

    The chain is that of `elastic_chain`, with one joint for the link and one for the spring. `spring_force` includes the
    spring, and `friction_force` includes all damping.

    Args:
        mass: mass of the link [kg].
        com_distance: distance of the link's centre of mass from the joint [m].
        link_inertia: inertia of the link about the joint axis [kg m^2].
        motor_inertia: inertia of the rotor about its axis [kg m^2].
        stiffness: stiffness of the spring [N m/rad].
        damping: damping coefficient parallel to the spring [N m s/rad].
        motor_damping: viscous friction coefficient of the motor, with respect to motor speed [N m s/rad].
        link_damping: viscous friction coefficient of the link [N m s/rad].
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

    The second motor drives link 2 through a belt, independently of p1 (Spong, Hutchinson & Vidyasagar 2020, sec. 6.4). The
    joint positions are therefore q1 = p1 and q2 = p2 - p1. Both angles are measured from the x axis, and gravity is along -y.
    With k = m2 l1 lc2, rotor inertias J_i and gear ratios r_i, M, C and g are

        M = [[m1 lc1^2 + m2 l1^2 + i1 + r_1^2 J_1, k cos(p2 - p1)], [k cos(p2 - p1), m2 lc2^2 + i2 + r_2^2 J_2]],
        C = k sin(p2 - p1) [[0, -pd2], [pd1, 0]],
        g = [(m1 lc1 + m2 l1) gravity cos p1, m2 lc2 gravity cos p2].

    In absolute angles, there are centrifugal forces but no Coriolis forces (products pd1 pd2), in contrast to
    `textbook.planar_elbow`, which uses relative angles. Each motor drives one coordinate: tau_i = r_i tau_m,i.

    Args:
        motor_inertia: inertia of the rotors, one value for both or two values [kg m^2].
        gear_ratio: motor revolutions per revolution of p1 and of p2, one value for both or two values.
        arm: arguments of `textbook.planar_elbow` (m1 to i2, and gravity).
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

    The joints are numbered 4, 5 and 6, as in an arm with six joints. Their axes (z, y and z) intersect in one point, and the
    wrist points up at q = 0. With the gear ratios r4, r5 and r6, the motor rates are

        R qd,  R = [[r4, 0, 0], [0, r5, 0], [0, r6, r6]].

    The inertia J6, viscous friction B6 and Coulomb friction fc6 of motor 6 therefore act on the sum of two joint rates:

    - The accelerations of joints 5 and 6 are coupled by r6^2 J6, an entry of R^T J R with the rotor inertias J.
    - The rates of joints 5 and 6 are coupled by r6^2 B6, an entry of R^T B R with the viscous friction coefficients B.
    - The Coulomb friction of motor 6 acts on both joints with the torque r6 fc6 tanh(r6 (qd5 + qd6) / v_c).

    The corresponding parameters of `coupled_drive(5, 6)` are Iam6, fvm6 and fsm6, with the velocity v_c / |r6|. In this chain,
    joints 5 and 6 are the second and third joints. The default masses, lengths and motor parameters are our choice.

    Args:
        gear_ratio: r4, r5, r6, motor revolutions per joint revolution.
        rotor_inertia: inertia of the rotors, one value for all or three values [kg m^2].
        viscous_friction: viscous friction coefficient of the motors, one value for all or three values [N m s/rad].
        coulomb_friction: Coulomb friction of the motors, one value for all or three values [N m].
        coulomb_velocity: width v_c of the smooth sign function, in terms of motor speed [rad/s].
        masses: masses of the links [kg].
        lengths: distances of the masses from the wrist centre [m].
        gravity: magnitude of gravity, along -z [m/s^2].

    Raises:
        ModelError: the number of gear ratios is not three; also the errors of `with_transmission`.
    """
    if len(gear_ratio) != 3:
        raise ModelError(f"gear_ratio has {len(gear_ratio)} values, but the wrist has 3 joints")
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

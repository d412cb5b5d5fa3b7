"""Textbook systems as chains: small robots with closed-form equations of motion.

Masses are in [kg], lengths in [m], moments of inertia in [kg m^2], angles in [rad], and gravity is a positive magnitude in
[m/s^2]. Each docstring gives M, h = C qd and g in tau = M qdd + h + g, where c_i, s_i and c_ij are cos q_i, sin q_i and
cos(q_i + q_j).
"""

import numpy as np

from ...errors import ModelError
from ...spatial._host import Values
from .._chain import Chain
from .._joint_properties import Friction
from .biped import biped as biped
from .drives import (
    coupled_wrist as coupled_wrist,
    elastic_link as elastic_link,
    geared_link as geared_link,
    remotely_driven_elbow as remotely_driven_elbow,
)
from .parts import X, Y, Z, hanging_link, parallel_chain as _chain, planar_elbow as planar_elbow, slender_body as _thin

# documented names, including systems defined in other files
__all__ = [
    "biped",
    "cartesian_two_link",
    "coupled_wrist",
    "elastic_link",
    "geared_link",
    "pendulum",
    "pendulum_3dof",
    "planar_2r_point_masses",
    "planar_elbow",
    "remotely_driven_elbow",
    "single_link",
    "spherical_rrp",
]


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
    """Cartesian arm with two prismatic joints, q1 upwards along z and q2 along x [m].

    As in Spong, Hutchinson & Vidyasagar 2020, sec. 6.4, M = diag(m1 + m2, m2), h = 0 and g = [(m1 + m2) gravity, 0] are
    constant.
    """
    return _chain(
        axes=[Z, X],
        offsets=[0 * X, 0 * X],
        bodies=[_thin(m1, 0 * X, 0.0), _thin(m2, 0 * X, 0.0)],
        tip=0 * X,
        gravity=-gravity * Z,
        prismatic=(0, 1),
    )


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

    and the potential energy is mass gravity com_distance (1 - cos q). `link_inertia` is about the joint axis; the default is
    that of a uniform rod of 1 m. The reflected motor inertia is the chain's armature, and B its viscous friction. Each
    damping coefficient refers to the speed of its own shaft [N m s/rad], so that of the motor is multiplied by r^2: the
    power lost at the motor shaft is motor_damping (r qd)^2.

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
    return _chain(
        axes=[Z, -Y, X],
        offsets=[0 * X, 0 * X, 0 * X],
        bodies=[turret, _thin(m1, lc1 * X, i1, along=X), _thin(m2, 0 * X, i2, along=X)],
        tip=0 * X,
        gravity=-gravity * Z,
        prismatic=(2,),
    )


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
    return _chain(
        axes=[X, Y, Y],
        offsets=[0 * X, 0 * X, -l1 * Z],
        bodies=[np.zeros(10), _thin(m1, -lc1 * Z, i1), _thin(m2, -lc2 * Z, i2)],
        tip=-l2 * Z,
        gravity=-gravity * Z,
    )


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
    return _chain(
        axes=[X] * n,
        offsets=[0 * X, *(-x * Z for x in ll[:-1])],
        bodies=[_thin(m[i], -lc[i] * Z, moment[i]) for i in range(n)],
        tip=-ll[-1] * Z,
        gravity=-gravity * Z,
        friction=Friction(per_link("damping", damping)),
    )

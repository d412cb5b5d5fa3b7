"""Building blocks of textbook systems: slender bodies, and chains whose frames are parallel at q = 0."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ModelError
from ...spatial._host import pose_of, ten_parameters
from .._build import make_chain
from .._chain import Chain, Topology

X, Y, Z = np.eye(3)


def slender_body(mass: float, com: np.ndarray, moment: float, along: np.ndarray | None = None) -> np.ndarray:
    """Ten inertial parameters of a slender body aligned with the vector `along`, by default its centre of mass `com`.

    `moment` is the transverse moment of inertia about the centre of mass.
    """
    along = com if along is None else along
    square = along @ along
    across = np.eye(3) - np.outer(along, along) / square if square > 0 else np.eye(3)
    return ten_parameters(mass, com, moment * across)


def parallel_chain(
    *,
    axes: list[np.ndarray],
    offsets: list[np.ndarray],
    bodies: Sequence[np.ndarray] | np.ndarray,
    tip: np.ndarray,
    gravity: np.ndarray,
    tip_link: int = -1,
    prismatic: tuple[int, ...] = (),
    **leaves: Any,
) -> Chain:
    """Chain whose frames are all parallel to the base at q = 0, with a frame "tip" on the link `tip_link`."""
    n = len(axes)
    return make_chain(
        rotation=np.tile(np.eye(3), (n, 1, 1)),
        translation=offsets,
        screw=[[*(0 * axis), *axis] if i in prismatic else [*axis, *(0 * axis)] for i, axis in enumerate(axes)],
        inertia=bodies,
        frames={"tip": (range(n)[tip_link], pose_of(translation=tip))},
        gravity=gravity,
        **{"topology": Topology.serial(n, tip_name="tip"), **leaves},
    )


def hanging_link(mass: float, com_distance: float, link_inertia: float, gravity: float, **leaves: Any) -> Chain:
    """One link that rotates about x and hangs down along -z at q = 0; `link_inertia` is about the joint axis.

    Raises:
        ModelError: link_inertia is less than mass com_distance^2, the inertia of a point mass.
    """
    central = link_inertia - mass * com_distance**2
    if central < -1e-9 * abs(link_inertia):
        raise ModelError(
            f"link_inertia {link_inertia:g} kg m^2 about the joint is less than mass com_distance^2 = "
            f"{mass * com_distance**2:g}; add the parallel-axis term if the value is about the centre of mass"
        )
    return parallel_chain(
        axes=[X],
        offsets=[0 * X],
        bodies=[slender_body(mass, -com_distance * Z, max(central, 0.0))],
        tip=-com_distance * Z,
        gravity=-gravity * Z,
        **leaves,
    )


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
    return parallel_chain(
        axes=[Z, Z],
        offsets=[0 * X, l1 * X],
        bodies=[slender_body(m1, lc1 * X, i1), slender_body(m2, lc2 * X, i2)],
        tip=l2 * X,
        gravity=-gravity * Y,
    )

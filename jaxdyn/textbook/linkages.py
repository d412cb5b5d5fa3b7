"""Closed planar linkages from textbooks, each as a tree cut at one pin and the constraint that closes the loop.

The centre of mass of link k is on the link, at the distance lc_k from its joint (`com_distances`), and i_k is the moment of
inertia about it (`inertias`). Gravity is along -y. Both linkages are parallelograms, whose opposite links remain parallel: two
absolute angles determine the configuration.
"""

from typing import Any

import numpy as np

from ..model.chain import Chain, Topology
from ..model.drives import with_coupling
from ..model.mechanisms import FrameConstraint, point_constraint
from .systems import X, Y, Z, parallel_chain, slender_body


def five_bar(
    *,
    masses: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0),
    l1: float = 1.0,
    l2: float = 0.4,
    l4: float = 1.0,
    com_distances: tuple[float, float, float, float] = (0.5, 0.2, 0.5, 0.3),
    inertias: tuple[float, float, float, float] = (1 / 12, 1 / 75, 1 / 12, 0.12),
    gravity: float = 9.81,
) -> tuple[Chain, FrameConstraint]:
    """Five-bar parallelogram (Spong, Hutchinson & Vidyasagar 2020, sec. 6.4); the ground is the fifth bar.

    The links are connected as follows:

    - Links 1 and 2 rotate about the base; motors drive their absolute angles q1 and q2.
    - Link 3 is attached to the end of link 2 and remains parallel to link 1; both have length l1.
    - Link 4 rotates about the end of link 1 and remains parallel to link 2.
    - Link 3 is pinned to link 4 at the distance l2 from the end of link 1. On link 4, the centre of mass (at the
      distance lc4) and the frame "tip" (at l4) are on the opposite side of the end of link 1.

    With e(a) = (cos a, sin a), the centres of mass of links 1 to 4 are at lc1 e(q1), lc2 e(q2), l2 e(q2) + lc3 e(q1)
    and l1 e(q1) - lc4 e(q2). As functions of q1 and q2, with c_ij = cos(q_i - q_j) and s_ij = sin(q_i - q_j), h, g and
    the entries d_ij of M are

        d11 = m1 lc1^2 + m3 lc3^2 + m4 l1^2 + i1 + i3,  d22 = m2 lc2^2 + m3 l2^2 + m4 lc4^2 + i2 + i4,
        d12 = d c_21 with d = m3 l2 lc3 - m4 l1 lc4,  h = d s_12 [qd2^2, -qd1^2],
        g = gravity [(m1 lc1 + m3 lc3 + m4 l1) cos q1, (m2 lc2 + m3 l2 - m4 lc4) cos q2].

    If m3 l2 lc3 = m4 l1 lc4, the two equations are decoupled: M is constant, and h = 0.

    Returns:
        The tree of links 1, 2, 3 (on 2) and 4 (on 1), with joint positions (q1, q2, q1 - q2, q2 - q1), and the pin
        constraint that closes the loop. The independent coordinates are "joint1" and "joint2".
    """
    signs = (1, 1, 1, -1)
    bodies = [
        slender_body(m, s * c * X, i, along=X)
        for m, s, c, i in zip(masses, signs, com_distances, inertias, strict=True)
    ]
    chain = _planar(bodies, (-1, -1, 1, 0), (0.0, 0.0, l2, l1), gravity, tip=(3, -l4))
    return chain, point_constraint("link3", "link4", point=(l1, 0, 0), other_point=(l2, 0, 0), axes="xy")


def four_bar(
    *,
    masses: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0),
    l1: float = 0.5,
    l2: float = 1.0,
    l3: float = 0.4,
    com_distances: tuple[float, float, float, float] = (0.25, 0.5, 0.2, 0.25),
    inertias: tuple[float, float, float, float] = (1 / 48, 1 / 12, 1 / 75, 1 / 48),
    gravity: float = 9.81,
) -> tuple[Chain, FrameConstraint]:
    """Four-bar robot with two degrees of freedom (Shih et al. 2012, example 4).

    Links 1 and 4 are parallel at the absolute angle t1, and links 2 and 3 at the absolute angle t2:

    - Links 1 and 3 rotate about the base.
    - Link 2 is attached to the end of link 1, and link 4 to the end of link 3.
    - The end of link 4 is pinned to link 2 at the distance l3 from the joint of link 2.
    - Links 1 and 4 have length l1; link 2 extends to the frame "tip" at l2.

    The source's figure was not available, and its text calls the second chain "Link 4 and Link 3". We let link 3 rotate
    about the base and carry link 4; the other order would change the torques by 82 %. The default values are ours, too.

    With e(a) = (cos a, sin a), the centres of mass of links 1 to 4 are at lc1 e(t1), l1 e(t1) + lc2 e(t2), lc3 e(t2)
    and l3 e(t2) + lc4 e(t1). As functions of t1 and t2, with c_12 = cos(t1 - t2) and s_12 = sin(t1 - t2), h, g and the
    entries d_ij of M are

        d11 = m1 lc1^2 + m2 l1^2 + m4 lc4^2 + i1 + i4,  d22 = m2 lc2^2 + m3 lc3^2 + m4 l3^2 + i2 + i3,
        d12 = d c_12 with d = m2 l1 lc2 + m4 l3 lc4,  h = d s_12 [td2^2, -td1^2],
        g = gravity [(m1 lc1 + m2 l1 + m4 lc4) cos t1, (m2 lc2 + m3 lc3 + m4 l3) cos t2].

    Returns:
        The tree of links 1, 2 (on 1), 3 and 4 (on 3), with joint positions (t1, t2 - t1, t2, t1 - t2), and the pin
        constraint that closes the loop. The independent coordinates are "joint1" and "joint3".
    """
    bodies = [slender_body(m, c * X, i, along=X) for m, c, i in zip(masses, com_distances, inertias, strict=True)]
    chain = _planar(bodies, (-1, 0, -1, 2), (0.0, l1, 0.0, l3), gravity, tip=(1, l2))
    return chain, point_constraint("link4", "link2", point=(l1, 0, 0), other_point=(l3, 0, 0), axes="xy")


def five_bar_chain(**linkage: Any) -> Chain:
    """The linkage of `five_bar`, with its arguments, in the absolute angles (q1, q2) [rad].

    The joint positions of the tree are (q1, q2, q1 - q2, q2 - q1). The parallelogram is closed for all q1 and q2, so a
    `Coupling` replaces the constraint.
    """
    return with_coupling(five_bar(**linkage)[0], [[1, 0], [0, 1], [1, -1], [-1, 1]], names=("q1", "q2"))


def four_bar_chain(**linkage: Any) -> Chain:
    """The robot of `four_bar`, with its arguments, in the absolute angles (t1, t2) [rad]; compare `five_bar_chain`."""
    return with_coupling(four_bar(**linkage)[0], [[1, 0], [-1, 1], [0, 1], [1, -1]], names=("theta1", "theta2"))


def four_bar_chains(**linkage: Any) -> tuple[Chain, Chain]:
    """The robot of `four_bar`, with its arguments, as two serial chains with the coordinates (t1, t2) [rad].

    The equations of motion of the robot are the sum of those of links 1 and 2 and of links 3 and 4 (Shih et al. 2012):
    M = M_12 + M_34, and similarly for C qd, g and inverse dynamics. Their joint positions are (t1, t2 - t1) and
    (t2, t1 - t2).
    """
    tree, _ = four_bar(**linkage)
    names, bodies, gravity = ("theta1", "theta2"), np.asarray(tree.inertia), -float(tree.gravity[1])
    (l1, l3), l2 = np.asarray(tree.translation)[[1, 3], 0], float(tree.frame_poses[0, 0, 3])
    first = _planar(bodies[:2], (-1, 0), (0.0, l1), gravity, (1, l2))
    second = _planar(bodies[2:], (-1, 0), (0.0, l3), gravity, (1, l1))
    return with_coupling(first, [[1, 0], [-1, 1]], names=names), with_coupling(second, [[0, 1], [1, -1]], names=names)


def _planar(bodies, parents, offsets, gravity, tip) -> Chain:
    """Chain in the x-y plane with joints about z; `offsets` are along x of the parent link, and `tip` is (link, x)."""
    topology, offsets = Topology(parents, tip_name="tip"), np.outer(offsets, X)
    axes, (tip_link, x) = [Z] * len(bodies), tip
    return parallel_chain(axes, bodies, gravity, up=Y, offsets=offsets, tip=x * X, tip_link=tip_link, topology=topology)

"""The equations of motion of a small chain in closed form, from the Jacobians of its links."""

from collections.abc import Sequence
from typing import Any

import sympy
from sympy import ImmutableMatrix, Matrix, Symbol

from ..errors import ModelError
from ..model._chain import Chain
from ._equations import Equations
from ._leaves import Body, Leaves, Robot, robot_of, skew
from ._trigonometry import expand, merge, tidy

Symbols = tuple[Symbol, ...]


def derive(
    chain: Chain, leaves: Leaves | None = None, *, coordinates: Sequence[str] | None = None, simplify: bool = True
) -> Equations:
    """Derive M(q), C(q, qd) and g(q) of tau = M qdd + C qd + g in closed form from a chain.

    The derivation follows the decomposition and cross-product method (Shih et al. 2012, sec. 3). Link i has the mass m_i,
    the inertia I_i about its centre of mass, the angular Jacobian Jw_i and the angular velocity w_i = Jw_i qd; Jv_i is the
    Jacobian of its centre of mass. With the potential energy P and the reflected inertia `rotors` of a transmission,

        M = sum_i (Jw_i^T I_i Jw_i + m_i Jv_i^T Jv_i) + diag(armature) + rotors,
        C = sum_i (Jw_i^T (I_i dJw_i/dt + w_i x I_i Jw_i) + m_i Jv_i^T dJv_i/dt),    g = dP/dq.

    All vectors of link i are expressed in the link frame, in which I_i is constant. The time derivative of a Jacobian is
    therefore dJ/dt = J' + w_i x J, where J' is the derivative of its components.

    The matrix dM/dt - 2 C is skew-symmetric, and C qd equals `coriolis_force`. C equals the Christoffel-consistent
    `coriolis_matrix`, unless three joints rotate a link about independent axes. `Equations.christoffel` returns the
    Christoffel-consistent matrix in every case.

    The equations include coupled joints and the rotors of a transmission, but not friction. Springs are described
    separately, by `spring_energy` and `spring_force` of the result.

    This function is suitable for trees and serial chains with few joints: textbook systems take half a second, three joints
    with general axes one second, and four joints six seconds. Numbers of the chain that are recognised as exact constants,
    such as 1/2, 981/100, sqrt(2)/2 or pi/3, are replaced by these constants; other numbers retain their digits. Quantities
    are in SI units.

    Args:
        leaves: expressions to substitute for numerical parameters of the chain, by leaf name: rotation, translation,
            screw, inertia, armature, gravity, base_pose, springs.stiffness, springs.rest_position, transmission.matrix,
            transmission.rotor_inertia, coupling.matrix or coupling.offset. Each value is either the entire leaf as nested
            lists, with None for entries that keep their numbers, or a dictionary from indices to expressions that replace
            single entries, such as {"translation": {(1, 0): L1}}. `ten_parameters` builds the row of one link in
            `inertia`; `textbook_leaves` returns the leaves of textbook systems.
        coordinates: names of the joint coordinates, for example chain.joint_names; by default q1, q2, ...
        simplify: True to simplify every entry. If False, entries are expanded sums, which takes less time.

    Raises:
        ModelError: a joint is neither revolute, prismatic nor helical; the chain lacks a leaf or an entry of a leaf; a link
            has a nonzero first moment but zero mass; or two symbols have the same name.
    """
    robot = robot_of(chain, leaves or {})
    q, qd, qdd = _coordinates(chain.nv, coordinates, robot.parameters)
    finish = tidy if simplify else expand
    joints, rates = (q, qd) if chain.coupling is None else (_dummies("x", chain.n), _dummies("xd", chain.n))
    M, C, P = _sums(robot, chain.topology.parents, joints, rates)
    stretched = [
        k * (x - rest) ** 2 / 2 for k, x, rest in zip(robot.stiffness.flat(), joints, robot.rest.flat(), strict=True)
    ]
    V: Any = sympy.Add(*stretched)
    if chain.coupling is not None:
        s = robot.coupling
        positions, velocities = s * Matrix(q) + robot.offset, s * Matrix(qd)
        values = dict(zip((*joints, *rates), (*positions, *velocities), strict=True))
        M, C = s.T * M.xreplace(values) * s, s.T * C.xreplace(values) * s
        P, V = P.xreplace(values), V.xreplace(values)
    P = finish(P)
    return Equations(
        q=q,
        qd=qd,
        qdd=qdd,
        M=_symmetric(M, finish),
        C=ImmutableMatrix(C.applyfunc(finish)),
        g=ImmutableMatrix([finish(sympy.diff(P, x)) for x in q]),
        potential_energy=P,
        spring_energy=V,
    )


def _sums(robot: Robot, parents: tuple[int, ...], q: Symbols, qd: Symbols) -> tuple[Any, Any, Any]:
    """M, C and P as sums over the links, for the given joint positions and rates."""
    n = len(q)
    M, C, P = robot.rotors, sympy.zeros(n, n), sympy.S.Zero
    twists: list[tuple[Matrix, Matrix]] = []
    poses: list[tuple[Matrix, Matrix]] = []
    for i, (link, parent) in enumerate(zip(robot.links, parents, strict=True)):
        rotation, translation = _pose(link, q[i])
        before_w, before_v = twists[parent] if parent >= 0 else (sympy.zeros(3, n), sympy.zeros(3, n))
        before_r, before_p = poses[parent] if parent >= 0 else (robot.base_rotation, robot.base_translation)
        join = lambda x, angle=q[i]: merge(x, angle)
        jw = (rotation.T * before_w).applyfunc(join)
        jv = (rotation.T * (before_v + skew(translation).T * before_w)).applyfunc(join)
        jw[:, i], jv[:, i] = link.axis, link.slide
        r = (before_r * rotation).applyfunc(join)
        p = (before_p + before_r * translation).applyfunc(join)
        twists.append((jw, jv))
        poses.append((r, p))
        m, c = _decompose(link, jw, jv, q, qd)
        M, C = M + m, C + c
        P -= link.mass * robot.gravity.dot(p + r * link.com)
    return M, C, P


def _decompose(link: Body, jw: Matrix, jv: Matrix, q: Symbols, qd: Symbols) -> tuple[Matrix, Matrix]:
    """Contribution of a link to M and C, from the Jacobian (jw, jv) of the link frame in body coordinates."""
    jv = jv - skew(link.com) * jw  # Jacobian of the centre of mass
    spin = skew(jw * Matrix(qd))
    rate = lambda j: sum((j.diff(x) * xd for x, xd in zip(q, qd, strict=True)), start=spin * j)
    momentum = link.inertia * jw
    m = jw.T * momentum + link.mass * (jv.T * jv)
    c = jw.T * (link.inertia * rate(jw) + spin * momentum) + link.mass * (jv.T * rate(jv))
    return m, c


def _pose(link: Body, q: Symbol) -> tuple[Matrix, Matrix]:
    """Rotation R_0 (1 + sin(q) [w] + (1 - cos(q)) [w]^2) and translation of M exp([A] q), for the screw A = (w, v)."""
    w, v = skew(link.axis), link.slide
    turn = sympy.eye(3) + sympy.sin(q) * w + (1 - sympy.cos(q)) * w**2
    offset = w * v
    shift = offset - turn * offset + q * (v + w * offset)
    translation = link.translation + link.rotation * shift
    return (link.rotation * turn).applyfunc(expand), translation.applyfunc(expand)


def _symmetric(x: Matrix, finish) -> ImmutableMatrix:
    upper = {(i, j): finish(x[i, j]) for i in range(x.rows) for j in range(i, x.cols)}
    return ImmutableMatrix(x.rows, x.cols, lambda i, j: upper[min(i, j), max(i, j)])


def _coordinates(n: int, names: Sequence[str] | None, parameters: set[Any]) -> list[Symbols]:
    """Symbols of q, qd and qdd, with names that differ from those of the parameters."""
    if names is None:
        stems = [[f"{letter}{i + 1}" for i in range(n)] for letter in ("q", "qd", "qdd")]
    else:
        stems = [[f"{name}{suffix}" for name in names] for suffix in ("", "_dot", "_ddot")]
    if len(stems[0]) != n:
        raise ModelError(f"{len(stems[0])} coordinate names are given for {n} joints")
    taken = [*(name for group in stems for name in group), *sorted(x.name for x in parameters)]
    twice = [name for name in taken if taken.count(name) > 1]
    if twice:
        raise ModelError(f"the name {twice[0]!r} is used twice among the coordinates and the parameters")
    return [tuple(Symbol(name, real=True) for name in group) for group in stems]


def _dummies(name: str, n: int) -> Symbols:
    return tuple(sympy.Dummy(f"{name}{i + 1}", real=True) for i in range(n))

"""The equations of motion in closed form: `derive` them from a chain, and print, evaluate or decompose the `Equations`.

The terms follow from the Jacobians of the links; `Equations.regressor` finds a minimal set of parameters.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import sympy
from sympy import Expr, ImmutableMatrix, Matrix, Symbol

from ..errors import ModelError
from ..model.chain import Chain
from .expressions import (
    Body,
    Leaves,
    Robot,
    expand,
    function_of,
    latex_of,
    merge,
    reduce,
    robot_of,
    skew,
    ten_parameters,
    tidy,
)

Polynomial = dict[Any, Any]  # coefficients by monomial in the symbols
Parts = dict[Any, Polynomial]  # polynomial coefficients by function of the state


class RegressorFunctions(NamedTuple):
    """Regressor and parameters as functions in SI units, from `SymbolicRegressor.lambdify`."""

    Y: Callable[..., Any]
    theta: Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class SymbolicRegressor:
    """Closed form of tau + spring_force = Y(q, qd, qdd) theta, from `Equations.regressor`; `str` returns one entry per line.

    Attributes:
        Y: regressor, n x l.
        theta: parameters, l x 1: linearly independent polynomials in the symbols, in SI units.
    """

    q: tuple[Symbol, ...]
    qd: tuple[Symbol, ...]
    qdd: tuple[Symbol, ...]
    Y: ImmutableMatrix
    theta: ImmutableMatrix

    def lambdify(self, backend: Literal["jax", "numpy"] = "jax") -> RegressorFunctions:
        """The functions `Y(q, qd, qdd)` and `theta()`, as fields of a named tuple; symbols are keyword arguments.

        Raises:
            ModelError: the backend is unknown. The functions raise this error if symbols are missing or unknown.
        """
        states = (self.q, self.qd, self.qdd)
        by_name = lambda found: tuple(sorted(found, key=lambda x: x.name))
        known = by_name(self.Y.free_symbols - {x for state in states for x in state})
        letters = by_name(self.theta.free_symbols)
        return RegressorFunctions(
            function_of(self.Y, self.Y.shape, states, known, backend),
            function_of(self.theta, (len(self.theta),), (), letters, backend),
        )

    def __str__(self) -> str:
        rows, columns = self.Y.shape
        lines = [f"Y{i + 1}{j + 1} = {self.Y[i, j]}" for i in range(rows) for j in range(columns)]
        return "\n".join([*lines, *(f"theta{j + 1} = {x}" for j, x in enumerate(self.theta.flat()))])


def regressor_of(equations: "Equations", known: Sequence[str]) -> SymbolicRegressor:
    """The regressor of the equations, as described in `Equations.regressor`."""
    letters = tuple(x for x in equations.parameters if x.name not in known)
    if not letters:
        raise ModelError("the equations contain no unknown symbols; pass `leaves` with symbols to `derive`")
    n = len(equations.q)
    springs = equations.spring_force
    inertia = {(i, j): _parts(equations.M[i, j], letters) for i in range(n) for j in range(i, n)}
    forces = [_parts(equations.g[i], letters) for i in range(n)]
    stretched = [_parts(springs[i], letters) for i in range(n)]
    velocity = [_parts(x, letters) for x in equations.C * Matrix(equations.qd)]
    basis = _Basis()
    for parts in (*inertia.values(), *forces, *stretched):
        for function in sorted(parts, key=lambda f: (sympy.count_ops(f), sympy.default_sort_key(f))):
            basis.add(parts[function])
    columns: list[list[Any]] = [[sympy.S.Zero] * len(basis.found) for _ in range(n)]
    for i in range(n):
        terms = [(velocity[i], sympy.S.One), (forces[i], sympy.S.One), (stretched[i], sympy.S.One)]
        terms += [(inertia[min(i, j), max(i, j)], equations.qdd[j]) for j in range(n)]
        for parts, factor in terms:
            for function, polynomial in parts.items():
                for k, share in enumerate(basis.shares(polynomial)):
                    columns[i][k] += share * function * factor
    return SymbolicRegressor(
        equations.q,
        equations.qd,
        equations.qdd,
        ImmutableMatrix(n, len(basis.found), lambda i, j: _joined(columns[i][j], equations.q)),
        ImmutableMatrix([sympy.factor_terms(_expression(x)) for x in basis.found]),
    )


def _parts(x: Any, letters: Sequence[Symbol]) -> Parts:
    """An entry as a sum of independent functions of the state, with polynomials in the symbols as coefficients."""
    found: Parts = {}
    for term in sympy.Add.make_args(expand(reduce(sympy.expand_trig(x)))):
        function, rest = term.as_independent(*letters, as_Add=False)
        number, function = function.as_independent(*function.free_symbols, as_Add=False)
        polynomial = found.setdefault(function, {})
        polynomial[rest] = polynomial.get(rest, sympy.S.Zero) + number
    clean = {f: {m: c for m, c in polynomial.items() if c != 0} for f, polynomial in found.items()}
    return {f: polynomial for f, polynomial in clean.items() if polynomial}


def _joined(x: Any, q: Sequence[Symbol]) -> Any:
    """The shorter of two simplified forms, one of them with sines and cosines merged by the addition theorems."""
    joined = x
    for angle in q:
        joined = merge(joined, angle)
    return min(tidy(joined), tidy(x), key=sympy.count_ops)


def _expression(polynomial: Polynomial) -> Any:
    return sympy.Add(*(c * m for m, c in polynomial.items()))


class _Basis:
    """Independent polynomials, in order of appearance."""

    def __init__(self) -> None:
        self.found: list[Polynomial] = []
        self._rows: list[tuple[Any, Polynomial, list[Any]]] = []  # reduced: pivot, polynomial, coefficients in `found`

    def add(self, polynomial: Polynomial) -> None:
        """Add a polynomial, without numerical factors, unless it depends linearly on the polynomials already added."""
        rest, shares = self._reduce(polynomial)
        if not rest:
            return
        numbers = list(polynomial.values())
        if all(c.is_Rational for c in numbers):
            signs = [sympy.sign(c) for c in numbers]
            factor = sympy.Rational(sympy.igcd(0, 0, *(c.p for c in numbers)), sympy.ilcm(1, *(c.q for c in numbers)))
            content = factor * (sympy.sign(sum(signs)) or signs[0])
        else:
            content = numbers[0]
        self.found.append({m: c / content for m, c in polynomial.items()})
        pivot = min(rest, key=sympy.default_sort_key)
        scale = rest[pivot]
        # rest = polynomial - sum_k shares_k found_k is stored as a row with 1 at the pivot, with its coefficients in `found`
        own = [-x / scale for x in shares] + [sympy.S.Zero] * (len(self.found) - 1 - len(shares)) + [content / scale]
        self._rows.append((pivot, {m: sympy.nsimplify(c / scale) for m, c in rest.items()}, own))

    def shares(self, polynomial: Polynomial) -> list[Any]:
        """The coefficients of a polynomial as a linear combination of the polynomials in `found`."""
        rest, shares = self._reduce(polynomial)
        if rest:
            raise ModelError(
                f"the velocity terms contain the parameter {_expression(rest)}, which M and g do not contain"
            )
        return shares

    def _reduce(self, polynomial: Polynomial) -> tuple[Polynomial, list[Any]]:
        rest = dict(polynomial)
        shares: list[Any] = [sympy.S.Zero] * len(self.found)
        for pivot, row, own in self._rows:
            factor = rest.get(pivot, sympy.S.Zero)
            if factor == 0:
                continue
            for m, c in row.items():
                rest[m] = sympy.expand(rest.get(m, sympy.S.Zero) - factor * c)
            rest = {m: c for m, c in rest.items() if c != 0}
            for k, x in enumerate(own):
                shares[k] += factor * x
        return rest, shares


class Functions(NamedTuple):
    """The equations of motion as functions in SI units, from `Equations.lambdify`."""

    tau: Callable[..., Any]
    M: Callable[..., Any]
    C: Callable[..., Any]
    g: Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Equations:
    """The equations of motion tau = M(q) qdd + C(q, qd) qd + g(q) of a chain in closed form, from `derive`.

    `str` returns the entries of M, C and g, one per line, in SymPy's syntax.

    Attributes:
        M: mass matrix, n x n [kg m^2 or kg].
        C: Coriolis matrix, n x n [N m s/rad or N s/m]; dM/dt - 2 C is skew-symmetric.
        g: gravity torques dP/dq, n x 1 [N m or N].
        potential_energy: gravitational potential energy P(q) [J], which is zero if all mass is at the world origin.
        spring_energy: energy of the joint springs [J]. As in `inverse_dynamics`, `tau` does not include spring torques.
    """

    q: tuple[Symbol, ...]
    qd: tuple[Symbol, ...]
    qdd: tuple[Symbol, ...]
    M: ImmutableMatrix
    C: ImmutableMatrix
    g: ImmutableMatrix
    potential_energy: Expr
    spring_energy: Expr = sympy.S.Zero

    @property
    def tau(self) -> ImmutableMatrix:
        """Joint torques M qdd + C qd + g, n x 1 [N m or N]."""
        return self.M * sympy.Matrix(self.qdd) + self.C * sympy.Matrix(self.qd) + self.g

    @property
    def spring_force(self) -> ImmutableMatrix:
        """Torques d spring_energy / dq, n x 1 [N m or N], which the drives must supply in addition to tau."""
        return ImmutableMatrix([tidy(sympy.diff(self.spring_energy, x)) for x in self.q])

    @property
    def kinetic_energy(self) -> Expr:
        """Kinetic energy K = qd^T M qd / 2 [J]."""
        qd = sympy.Matrix(self.qd)
        return tidy((qd.T * self.M * qd)[0] / 2)

    @property
    def parameters(self) -> tuple[Symbol, ...]:
        """Symbols of masses, lengths etc., sorted by name: all symbols except coordinates, rates and accelerations."""
        parts = (self.M, self.C, self.g, self.potential_energy, self.spring_energy)
        found: set[Any] = set().union(*(x.free_symbols for x in parts))
        return tuple(sorted(found - {*self.q, *self.qd, *self.qdd}, key=lambda x: x.name))

    def christoffel(self) -> ImmutableMatrix:
        """Christoffel-consistent Coriolis matrix C_ij = sum_k Gamma_ijk qd_k = d(C qd)/dqd / 2 [N m s/rad].

        Gamma_ijk are the Christoffel symbols of M. The matrix equals `jaxdyn.coriolis_matrix`.
        """
        force = (self.C * sympy.Matrix(self.qd)).applyfunc(expand)
        return ImmutableMatrix((force.jacobian(sympy.Matrix(self.qd)) / 2).applyfunc(tidy))

    def velocity_terms(self) -> dict[tuple[int, int], ImmutableMatrix]:
        """The velocity terms C qd, grouped by products of joint rates (see `jaxdyn.dynamics.velocity_products`).

        The result is a dictionary {(j, k): n x 1 coefficients of qd_j qd_k} with j <= k, counted from 0, without zero
        entries. Terms with j < k are Coriolis terms, and terms with j = k are centrifugal terms.
        """
        force = self.C * sympy.Matrix(self.qd)
        found = {}
        for j, a in enumerate(self.qd):
            for k, b in enumerate(self.qd[j:], j):
                half = 2 if j == k else 1
                column = force.applyfunc(lambda x, a=a, b=b, half=half: tidy(sympy.diff(expand(x), a, b) / half))
                if any(column):
                    found[j, k] = ImmutableMatrix(column)
        return found

    def regressor(self, known: Sequence[str] = ("g",)) -> SymbolicRegressor:
        """Regressor Y(q, qd, qdd) and minimal parameters theta such that tau + spring_force = Y theta, as in textbooks.

        The entries of M, g and the spring torques are written as sums of independent functions of q (even powers of sines are
        replaced by cosines), whose coefficients are polynomials in the symbols. Every polynomial that is linearly independent
        of the previous ones becomes a parameter, without its numerical factor. The number of parameters is therefore minimal.
        For example, the planar elbow has five parameters, or three without gravity (Spong, Hutchinson & Vidyasagar 2020, sec.
        6.5).

        Args:
            known: names of the symbols that remain in Y and do not occur in theta; by default gravity. With numbers instead of
                symbols for known lengths, there are fewer parameters: four for the planar elbow.

        Raises:
            ModelError: the equations contain no symbols other than the known ones.
        """
        return regressor_of(self, known)

    def lambdify(self, backend: Literal["jax", "numpy"] = "jax") -> Functions:
        """The functions `tau(q, qd, qdd)`, `M(q)`, `C(q, qd)` and `g(q)` of one state, as fields of a named tuple, in SI units.

        JAX functions support jit, vmap, and differentiation with respect to the state and the parameters, which are keyword
        arguments: `f.M(q, m1=1.0, l1=0.5)` for equations with the parameters m1 and l1. Their results have the dtype of q.
        Common subexpressions are computed once.

        Raises:
            ModelError: the backend is unknown. The returned functions raise ModelError if parameters are missing or unknown.
        """
        states = (self.q, self.qd, self.qdd)
        tau, shape = self.tau, (len(self.q),)
        return Functions(
            tau=function_of(tau, shape, states, self.parameters, backend),
            M=function_of(self.M, 2 * shape, states[:1], self.parameters, backend),
            C=function_of(self.C, 2 * shape, states[:2], self.parameters, backend),
            g=function_of(self.g, shape, states[:1], self.parameters, backend),
        )

    def latex(self, *, short: bool = True) -> str:
        """M, C and g as LaTeX matrices in one `aligned` block, with c_{12} for cos(q1 + q2) if `short`, as in textbooks."""
        return latex_of(
            self.q, self.qd, self.parameters, {"M(q)": self.M, r"C(q, \dot{q})": self.C, "g(q)": self.g}, short
        )

    def __str__(self) -> str:
        n = len(self.q)
        at = (
            (lambda *index: "".join(str(i + 1) for i in index))
            if n < 10
            else lambda *index: str([i + 1 for i in index])
        )
        lines = [f"M{at(i, j)} = {self.M[i, j]}" for i in range(n) for j in range(i, n)]
        lines += [f"C{at(i, j)} = {self.C[i, j]}" for i in range(n) for j in range(n)]
        lines += [f"g{at(i)} = {self.g[i]}" for i in range(n)]
        springs = self.spring_force.flat()
        return "\n".join([*lines, *(f"k{at(i)} = {x}" for i, x in enumerate(springs) if any(springs))])


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
    `coriolis_matrix`, unless three joints rotate a link about independent axes; see `Equations.christoffel`.

    The equations include coupled joints and the rotors of a transmission, but not friction. Springs are described
    separately, by `spring_energy` and `spring_force` of the result.

    This function is suitable for trees and serial chains with few joints: textbook systems take half a second, three joints
    with general axes one second, and four joints six seconds. Numbers of the chain that are recognised as exact constants,
    such as 1/2, 981/100, sqrt(2)/2 or pi/3, are replaced by these constants; other numbers retain their digits.

    Args:
        leaves: expressions to substitute for numerical parameters of the chain, by leaf name: rotation, translation,
            screw, inertia, armature, gravity, base_pose, springs.stiffness, springs.rest_position, transmission.matrix,
            transmission.rotor_inertia, coupling.matrix or coupling.offset. Each value is either the entire leaf as nested
            lists, with None for entries that keep their numbers, or a dictionary from indices to expressions that replace
            single entries, such as {"translation": {(1, 0): L1}}. See `ten_parameters` and `textbook_leaves`.
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


def textbook_leaves(system: str, joints: int = 2) -> Leaves:
    """Leaves for `derive` that replace the numbers of a chain from `jaxdyn.textbook` with symbols.

    An example is `derive(textbook.planar_elbow(), textbook_leaves("planar_elbow"))`. The symbols are positive. They have the
    names of the arguments of the corresponding function in `jaxdyn.textbook` (m1, l1, lc1, i1, ...), with g for gravity and
    the following exceptions:

    - m, lc, Jl, Jm, r and k stand for mass, com_distance, link_inertia, motor_inertia, gear_ratio and stiffness.
    - The remotely driven elbow has the gear ratios r1 and r2 and the rotor inertias J1 and J2.
    - The coupled wrist has the masses m1 to m3, the distances d1 to d3, the gear ratios r4 to r6 and the rotor inertias J4 to
      J6.

    The inertia of a virtual link remains a number. The systems five_bar and four_bar are those of `linkages.five_bar_chain` and
    `linkages.four_bar_chain`.

    Args:
        system: name of the system: cartesian_two_link, coupled_wrist, elastic_link, five_bar, four_bar, geared_link,
            pendulum, pendulum_3dof, planar_2r_point_masses, planar_elbow, remotely_driven_elbow, single_link or spherical_rrp.
        joints: number of joints of the system pendulum.

    Raises:
        ModelError: the system is unknown.
    """
    if system == "pendulum":
        return _pendulum(joints)
    if system not in _SYSTEMS:
        known = ", ".join(sorted((*_SYSTEMS, "pendulum")))
        raise ModelError(f"unknown system {system!r}; the systems are {known}")
    return _SYSTEMS[system]()


class _Letters:
    """Positive symbols as attributes."""

    def __getattr__(self, name: str) -> Any:
        return Symbol(name, positive=True)

    def body(self, k: int) -> tuple[Any, Any, Any]:
        """Mass, distance of the centre of mass, and moment of inertia of body k."""
        return getattr(self, f"m{k}"), getattr(self, f"lc{k}"), getattr(self, f"i{k}")


_OF = _Letters()


def _along_x(mass: Any, com: Any, moment: Any) -> list[Expr]:
    return ten_parameters(mass, [com, 0, 0], [0, moment, moment])


def _down(mass: Any, com: Any, moment: Any) -> list[Expr]:
    return ten_parameters(mass, [0, 0, -com], [moment, moment, 0])


def _planar(rows: Sequence[list[Expr]], translation: dict[tuple[int, int], Any]) -> Leaves:
    return {"translation": translation, "inertia": list(rows), "gravity": {1: -_OF.g}}


def _planar_elbow() -> Leaves:
    return _planar([_along_x(*_OF.body(k)) for k in (1, 2)], {(1, 0): _OF.l1})


def _remotely_driven_elbow() -> Leaves:
    ratios = {(0, 0): _OF.r1, (1, 0): _OF.r2, (1, 1): _OF.r2}
    return {**_planar_elbow(), "transmission.matrix": ratios, "transmission.rotor_inertia": [_OF.J1, _OF.J2]}


def _five_bar() -> Leaves:
    bodies = ((m, sign * lc, i) for (m, lc, i), sign in zip(map(_OF.body, range(1, 5)), (1, 1, 1, -1), strict=True))
    return _planar([_along_x(*body) for body in bodies], {(2, 0): _OF.l2, (3, 0): _OF.l1})


def _hanging(**more: Any) -> Leaves:
    central = _OF.Jl - _OF.m * _OF.lc**2  # link_inertia is about the joint axis
    return {"inertia": [_down(_OF.m, _OF.lc, central)], "gravity": {2: -_OF.g}, **more}


def _elastic_link() -> Leaves:
    motor = {"transmission.matrix": [[_OF.r, -_OF.r]], "transmission.rotor_inertia": [_OF.Jm]}
    return {**_hanging(), "inertia": [*_hanging()["inertia"], 10 * [None]], **motor, "springs.stiffness": {1: _OF.k}}


def _pendulum(joints: int) -> Leaves:
    offsets = {(k, 2): -getattr(_OF, f"l{k}") for k in range(1, joints)}
    rows = [_down(*_OF.body(k)) for k in range(1, joints + 1)]
    return {"translation": offsets, "inertia": rows, "gravity": {2: -_OF.g}}


def _pendulum_3dof() -> Leaves:
    rows = [10 * [None], _down(*_OF.body(1)), _down(*_OF.body(2))]
    return {"translation": {(2, 2): -_OF.l1}, "inertia": rows, "gravity": {2: -_OF.g}}


def _coupled_wrist() -> Leaves:
    rows = []
    for m, d, sign in ((_OF.m1, _OF.d1, -1), (_OF.m2, _OF.d2, 1), (_OF.m3, _OF.d3, 1)):
        along: Any = np.array([sympy.Rational(1, 10), 0, sign], object)
        across: Any = sympy.eye(3) - sympy.Matrix(np.outer(along, along)) / (along @ along)
        rows.append(ten_parameters(m, list(d * along), m * d**2 / 5 * across))
    ratios = [[_OF.r4, 0, 0], [0, _OF.r5, 0], [0, _OF.r6, _OF.r6]]
    motors = {"transmission.matrix": ratios, "transmission.rotor_inertia": [_OF.J4, _OF.J5, _OF.J6]}
    return {"inertia": rows, "gravity": {2: -_OF.g}, **motors}


_SYSTEMS: dict[str, Callable[[], Leaves]] = {
    "cartesian_two_link": lambda: {
        "inertia": [ten_parameters(m, [0, 0, 0]) for m in (_OF.m1, _OF.m2)],
        "gravity": {2: -_OF.g},
    },
    "coupled_wrist": _coupled_wrist,
    "elastic_link": _elastic_link,
    "five_bar": _five_bar,
    "four_bar": lambda: _planar([_along_x(*_OF.body(k)) for k in range(1, 5)], {(1, 0): _OF.l1, (3, 0): _OF.l3}),
    "geared_link": lambda: _hanging(**{"transmission.matrix": [[_OF.r]], "transmission.rotor_inertia": [_OF.Jm]}),
    "pendulum_3dof": _pendulum_3dof,
    "planar_2r_point_masses": lambda: _planar(
        [_along_x(_OF.m1, _OF.l1, 0), _along_x(_OF.m2, _OF.l2, 0)], {(1, 0): _OF.l1}
    ),
    "planar_elbow": _planar_elbow,
    "remotely_driven_elbow": _remotely_driven_elbow,
    "single_link": lambda: _hanging(armature=[_OF.r**2 * _OF.Jm]),
    "spherical_rrp": lambda: {
        "inertia": [10 * [None], _along_x(*_OF.body(1)), _along_x(_OF.m2, 0, _OF.i2)],
        "gravity": {2: -_OF.g},
    },
}

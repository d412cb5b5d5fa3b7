"""The equations of motion in closed form: `derive` them from a chain, and print, evaluate or decompose the `Equations`.

The terms follow from the Jacobians of the links; `Equations.regressor` finds a minimal set of parameters.
"""

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import sympy
from sympy import Expr, ImmutableMatrix, Matrix, Symbol

from ..errors import ModelError
from ..model.chain import Chain
from .expressions import (
    Body,
    Leaves,
    Robot,
    expand,
    expression,
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
        return RegressorFunctions(
            function_of(self.Y, self.Y.shape, (self.q, self.qd, self.qdd), backend),
            function_of(self.theta, (len(self.theta),), (), backend),
        )

    def __str__(self) -> str:
        rows, columns = self.Y.shape
        lines = [f"Y{i + 1}{j + 1} = {self.Y[i, j]}" for i in range(rows) for j in range(columns)]
        return "\n".join([*lines, *(f"theta{j + 1} = {x}" for j, x in enumerate(self.theta.flat()))])


def _parts(x: Any, letters: Sequence[Symbol]) -> list[tuple[Any, Polynomial]]:
    """An entry as a sum of independent functions of the state, the simplest first, with polynomials in the symbols."""
    found: dict[Any, Polynomial] = {}
    for term in sympy.Add.make_args(expand(reduce(sympy.expand_trig(x)))):
        function, rest = term.as_independent(*letters, as_Add=False)
        number, function = function.as_independent(*function.free_symbols, as_Add=False)
        polynomial = found.setdefault(function, {})
        polynomial[rest] = polynomial.get(rest, sympy.S.Zero) + number
    clean = [(f, {m: c for m, c in polynomial.items() if c != 0}) for f, polynomial in found.items()]
    return sorted((x for x in clean if x[1]), key=lambda x: (sympy.count_ops(x[0]), sympy.default_sort_key(x[0])))


def _joined(x: Any, q: Sequence[Symbol]) -> Any:
    """The shorter of two simplified forms, one of them with sines and cosines merged by the addition theorems."""
    joined = x
    for angle in q:
        joined = merge(joined, angle)
    return min(tidy(joined), tidy(x), key=sympy.count_ops)


def _independent(polynomials: Sequence[Polynomial]) -> tuple[list[Polynomial], Matrix]:
    """The first independent polynomials, without numerical factors, and all polynomials as their linear combinations."""
    monomials = dict.fromkeys(m for polynomial in polynomials for m in polynomial)
    reduced, pivots = Matrix([[expression(p.get(m, 0)) for p in polynomials] for m in monomials]).rref(simplify=True)
    factors = [_common_factor(list(polynomials[k].values())) for k in pivots]
    found = [{m: c / factor for m, c in polynomials[k].items()} for k, factor in zip(pivots, factors, strict=True)]
    return found, sympy.diag(*factors) * reduced[: len(pivots), :]


def _common_factor(numbers: Sequence[Any]) -> Any:
    """The greatest common divisor of rational coefficients, with the sign of most of them; otherwise, the first coefficient."""
    if not all(c.is_Rational for c in numbers):
        return numbers[0]
    signs = [sympy.sign(c) for c in numbers]
    divisor = sympy.Rational(sympy.igcd(0, 0, *(c.p for c in numbers)), sympy.ilcm(1, *(c.q for c in numbers)))
    return divisor * (sympy.sign(sum(signs)) or signs[0])


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
        letters = tuple(x for x in self.parameters if x.name not in known)
        if not letters:
            raise ModelError("the equations contain no unknown symbols; pass `leaves` with symbols to `derive`")
        n = len(self.q)
        # the entries of M, g, k and C qd, with the rows of tau to which they contribute and their factors in these rows
        entries = [(self.M[i, j], {i: self.qdd[j], j: self.qdd[i]}) for i in range(n) for j in range(i, n)]
        for vector in (self.g, self.spring_force, self.C * Matrix(self.qd)):
            entries += [(x, {i: sympy.S.One}) for i, x in enumerate(vector)]
        terms = [(*part, rows) for x, rows in entries for part in _parts(x, letters)]
        found, shares = _independent([polynomial for _, polynomial, _ in terms])
        Y = sympy.zeros(n, len(found))
        for k, (function, _, rows) in enumerate(terms):
            for i, factor in rows.items():
                Y[i, :] += function * factor * shares.col(k).T
        theta = [sympy.factor_terms(sympy.Add(*(c * m for m, c in polynomial.items()))) for polynomial in found]
        Y = ImmutableMatrix(Y.applyfunc(lambda x: _joined(x, self.q)))
        return SymbolicRegressor(self.q, self.qd, self.qdd, Y, ImmutableMatrix(theta))

    def lambdify(self, backend: Literal["jax", "numpy"] = "jax") -> Functions:
        """The functions `tau(q, qd, qdd)`, `M(q)`, `C(q, qd)` and `g(q)` of states, in a named tuple, in SI units.

        JAX functions support jit, vmap, and differentiation with respect to the state and the parameters, which are keyword
        arguments: `f.M(q, m1=1.0, l1=0.5)` for equations with the parameters m1 and l1. Their results have the dtype of q.
        Common subexpressions are computed once.

        Raises:
            ModelError: the backend is unknown. The returned functions raise ModelError if parameters are missing or unknown.
        """
        n, states = len(self.q), (self.q, self.qd, self.qdd)
        terms = {"tau": (self.tau, (n,), 3), "M": (self.M, (n, n), 1), "C": (self.C, (n, n), 2), "g": (self.g, (n,), 1)}
        return Functions(
            **{
                name: function_of(matrix, shape, states[:count], backend, self.parameters)
                for name, (matrix, shape, count) in terms.items()
            }
        )

    def latex(self, *, short: bool = True) -> str:
        """M, C and g as LaTeX matrices in one `aligned` block, with c_{12} for cos(q1 + q2) if `short`, as in textbooks."""
        terms = {"M(q)": self.M, r"C(q, \dot{q})": self.C, "g(q)": self.g}
        return latex_of(self.q, self.qd, self.parameters, terms, short)

    def __str__(self) -> str:
        n = len(self.q)
        at = lambda *index: "".join(str(i + 1) for i in index) if n < 10 else str([i + 1 for i in index])
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
    dummies = lambda name: tuple(sympy.Dummy(f"{name}{i + 1}", real=True) for i in range(chain.n))
    joints, rates = (q, qd) if chain.coupling is None else (dummies("x"), dummies("xd"))
    M, C, P = _sums(robot, chain.topology.parents, joints, rates)
    springs = zip(robot.stiffness.flat(), joints, robot.rest.flat(), strict=True)
    V: Any = sympy.Add(*(k * (x - rest) ** 2 / 2 for k, x, rest in springs))
    if chain.coupling is not None:
        s = robot.coupling
        positions, velocities = s * Matrix(q) + robot.offset, s * Matrix(qd)
        values = dict(zip((*joints, *rates), (*positions, *velocities), strict=True))
        M, C = s.T * M.xreplace(values) * s, s.T * C.xreplace(values) * s
        P, V = P.xreplace(values), V.xreplace(values)
    P = finish(P)
    upper = {(i, j): finish(M[i, j]) for i in range(len(q)) for j in range(i, len(q))}
    M = ImmutableMatrix(len(q), len(q), lambda i, j: upper[min(i, j), max(i, j)])
    g = ImmutableMatrix([finish(sympy.diff(P, x)) for x in q])
    return Equations(q, qd, qdd, M, ImmutableMatrix(C.applyfunc(finish)), g, P, V)


def _sums(robot: Robot, parents: tuple[int, ...], q: Symbols, qd: Symbols) -> tuple[Any, Any, Any]:
    """M, C and P as sums over the links, for the given joint positions and rates."""
    n = len(q)
    M, C, P = robot.rotors, sympy.zeros(n, n), sympy.S.Zero
    twists = {-1: (sympy.zeros(3, n), sympy.zeros(3, n))}  # of the base, then of the links
    poses = {-1: (robot.base_rotation, robot.base_translation)}
    for i, (link, parent) in enumerate(zip(robot.links, parents, strict=True)):
        rotation, translation = _pose(link, q[i])
        (before_w, before_v), (before_r, before_p) = twists[parent], poses[parent]
        join = lambda x, angle=q[i]: merge(x, angle)
        jw = (rotation.T * before_w).applyfunc(join)
        jv = (rotation.T * (before_v + skew(translation).T * before_w)).applyfunc(join)
        jw[:, i], jv[:, i] = link.axis, link.slide
        r = (before_r * rotation).applyfunc(join)
        p = (before_p + before_r * translation).applyfunc(join)
        twists[i], poses[i] = (jw, jv), (r, p)
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
    pendulum = {"bodies": _rods(joints, _DOWN), "translation": {(k, 2): f"-l{k}" for k in range(1, joints)}}
    systems = {**_SYSTEMS, "pendulum": pendulum}
    if system not in systems:
        raise ModelError(f"unknown system {system!r}; the systems are {', '.join(sorted(systems))}")
    given = _letters(systems[system])
    bodies = [10 * [None] if body is None else _rod(*body) for body in given.pop("bodies")]
    return {"inertia": bodies, "gravity": {given.pop("up", 2): -_letters("g")}, **given}


def _letters(x: Any) -> Any:
    """Text as expressions of positive symbols, in dictionaries and lists of any depth."""
    if isinstance(x, str):
        return sympy.parse_expr(x, {name: Symbol(name, positive=True) for name in re.findall(r"[A-Za-z]\w*", x)})
    if isinstance(x, dict):
        return {key: _letters(value) for key, value in x.items()}
    return [_letters(value) for value in x] if isinstance(x, list | tuple) else x


def _rod(mass: Any, distance: Any, moment: Any, along: Sequence[Any] = (1, 0, 0)) -> list[Expr]:
    """The ten parameters of a slender body, as those of `slender_body` in `jaxdyn.textbook`."""
    a = Matrix(along)
    return ten_parameters(mass, list(distance * a), moment * (sympy.eye(3) - a * a.T / a.dot(a)))


_DOWN = (0, 0, -1)


def _rods(count: int, *along: Sequence[Any]) -> list[Any]:
    return [(f"m{k}", f"lc{k}", f"i{k}", *along) for k in range(1, count + 1)]


_ELBOW = {"bodies": _rods(2), "translation": {(1, 0): "l1"}, "up": 1}
_LINK = {"bodies": [("m", "lc", "Jl - m*lc**2", _DOWN)]}  # link_inertia is about the joint axis
# Leaves by system, as text. `bodies`: mass, distance of the centre of mass, moment of inertia and direction of each link, or
# None if the numbers of the chain remain; `up`: the axis against gravity, by default z.
_SYSTEMS: dict[str, dict[str, Any]] = {
    "cartesian_two_link": {"bodies": [("m1", 0, 0), ("m2", 0, 0)]},
    "coupled_wrist": {
        "bodies": [(f"m{k}", f"d{k}", f"m{k}*d{k}**2/5", ("1/10", 0, s)) for k, s in ((1, -1), (2, 1), (3, 1))],
        "transmission.matrix": [["r4", 0, 0], [0, "r5", 0], [0, "r6", "r6"]],
        "transmission.rotor_inertia": ["J4", "J5", "J6"],
    },
    "elastic_link": {
        "bodies": [*_LINK["bodies"], None],
        "transmission.matrix": [["r", "-r"]],
        "transmission.rotor_inertia": ["Jm"],
        "springs.stiffness": {1: "k"},
    },
    "five_bar": {"bodies": [*_rods(3), ("m4", "-lc4", "i4")], "translation": {(2, 0): "l2", (3, 0): "l1"}, "up": 1},
    "four_bar": {"bodies": _rods(4), "translation": {(1, 0): "l1", (3, 0): "l3"}, "up": 1},
    "geared_link": {**_LINK, "transmission.matrix": [["r"]], "transmission.rotor_inertia": ["Jm"]},
    "pendulum_3dof": {"bodies": [None, *_rods(2, _DOWN)], "translation": {(2, 2): "-l1"}},
    "planar_2r_point_masses": {**_ELBOW, "bodies": [("m1", "l1", 0), ("m2", "l2", 0)]},
    "planar_elbow": _ELBOW,
    "remotely_driven_elbow": {
        **_ELBOW,
        "transmission.matrix": {(0, 0): "r1", (1, 0): "r2", (1, 1): "r2"},
        "transmission.rotor_inertia": ["J1", "J2"],
    },
    "single_link": {**_LINK, "armature": ["r**2*Jm"]},
    "spherical_rrp": {"bodies": [None, ("m1", "lc1", "i1"), ("m2", 0, "i2")]},
}

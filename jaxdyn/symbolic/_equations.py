"""`Equations`: the terms of the equations of motion as expressions, as text, and as NumPy or JAX functions."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import sympy
from sympy import Expr, ImmutableMatrix, Symbol

from ..errors import ModelError
from ._functions import function_of
from ._printing import latex_of
from ._regressor import SymbolicRegressor, regressor_of
from ._trigonometry import expand, tidy


class Functions(NamedTuple):
    """The equations of motion as functions in SI units; symbolic parameters, if any, are keyword arguments.

    Attributes:
        tau: function of (q, qd, qdd) that returns M qdd + C qd + g, (n,) [N m or N].
        M: function of q that returns the mass matrix, (n, n) [kg m^2 or kg].
        C: function of (q, qd) that returns the Coriolis matrix, (n, n).
        g: function of q that returns the gravity torques, (n,) [N m or N].
    """

    tau: Callable[..., Any]
    M: Callable[..., Any]
    C: Callable[..., Any]
    g: Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Equations:
    """The equations of motion tau = M(q) qdd + C(q, qd) qd + g(q) of a chain in closed form, from `derive`.

    `str` returns the entries of M, C and g, one per line, in SymPy's syntax.

    Attributes:
        q: joint coordinates [rad or m].
        qd: joint rates [rad/s or m/s].
        qdd: joint accelerations [rad/s^2 or m/s^2].
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
        """Torques d spring_energy / dq with which the drives balance the springs, n x 1 [N m or N].

        In a robot with springs, the drives must supply tau + spring_force.
        """
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
        """Christoffel-consistent Coriolis matrix C_ij = sum_k Gamma_ijk qd_k [N m s/rad].

        Gamma_ijk are the Christoffel symbols of M. The matrix is computed as d(C qd)/dqd / 2, and equals
        `jaxdyn.coriolis_matrix`. Its product with qd equals C qd.
        """
        force = (self.C * sympy.Matrix(self.qd)).applyfunc(expand)
        return ImmutableMatrix((force.jacobian(sympy.Matrix(self.qd)) / 2).applyfunc(tidy))

    def velocity_terms(self) -> dict[tuple[int, int], ImmutableMatrix]:
        """The velocity terms C qd, grouped by products of joint rates.

        The result is a dictionary {(j, k): n x 1 coefficients of qd_j qd_k} with j <= k, without products whose coefficients
        are zero. Joints are counted from 0. Terms with j < k are Coriolis terms, and terms with j = k are centrifugal terms
        (see `jaxdyn.dynamics.velocity_products`).
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

        The entries of M, g and the spring torques are written as sums of independent functions of q, whose coefficients are
        polynomials in the symbols. Even powers of sines are replaced by cosines, so that different products are independent.
        Every polynomial that is linearly independent of the previous polynomials becomes a parameter, without its numerical
        factor.

        The number of parameters is minimal, since the columns of Y are independent functions and the parameters are
        independent polynomials. For example, the planar elbow has five parameters, or three without gravity (Spong,
        Hutchinson & Vidyasagar 2020, sec. 6.5).

        Args:
            known: names of the symbols that remain in Y and do not occur in theta; by default gravity. To reduce the number of
                parameters, derive the equations with numbers instead of symbols for known lengths; the planar elbow then has
                four parameters.

        Raises:
            ModelError: the equations contain no symbols other than the known ones.
        """
        return regressor_of(self, known)

    def lambdify(self, backend: Literal["jax", "numpy"] = "jax") -> Functions:
        """The equations as functions of one state; common subexpressions are computed once.

        JAX functions support jit, vmap, and differentiation with respect to the state and the parameters. Their results have
        the dtype of q. Examples are `jax.vmap(f.tau)(q, qd, qdd)`, and `f.M(q, m1=1.0, l1=0.5)` for equations with the
        parameters m1 and l1.

        Raises:
            ModelError: the backend is unknown. The returned functions raise ModelError if parameters are missing or unknown.
        """
        if backend not in ("jax", "numpy"):
            raise ModelError(f"the backend must be 'jax' or 'numpy', not {backend!r}")
        states = (self.q, self.qd, self.qdd)
        tau, shape = self.tau, (len(self.q),)
        return Functions(
            tau=function_of(tau, shape, states, self.parameters, backend),
            M=function_of(self.M, 2 * shape, states[:1], self.parameters, backend),
            C=function_of(self.C, 2 * shape, states[:2], self.parameters, backend),
            g=function_of(self.g, shape, states[:1], self.parameters, backend),
        )

    def latex(self, *, short: bool = True) -> str:
        """M, C and g as LaTeX matrices in one `aligned` block.

        Args:
            short: True to write c_{12} for cos(q1 + q2), as in textbooks.
        """
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

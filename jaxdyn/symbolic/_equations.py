"""`Equations`: the terms of the equations of motion as expressions, as text, and as functions of NumPy or JAX."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
import sympy
from sympy import Expr, ImmutableMatrix, Symbol

from ..errors import ModelError
from ._printing import latex_of
from ._trigonometry import expand, tidy


class Functions(NamedTuple):
    """The equations of motion as functions; the equations' parameters, where they have some, are keyword arguments.

    Attributes:
        tau: (q, qd, qdd) -> M qdd + C qd + g, (n,).
        M: q -> mass matrix, (n, n).
        C: (q, qd) -> Coriolis matrix, (n, n).
        g: q -> gravity torques, (n,).
    """

    tau: Callable[..., Any]
    M: Callable[..., Any]
    C: Callable[..., Any]
    g: Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class Equations:
    """The equations of motion tau = M(q) qdd + C(q, qd) qd + g(q) of a chain, in closed form; `derive` makes them.

    `str` writes one entry a line, in SymPy's syntax.

    Attributes:
        q: joint coordinates [rad or m].
        qd: their rates.
        qdd: their accelerations.
        M: mass matrix, n x n.
        C: Coriolis matrix of the decomposition, n x n: dM/dt - 2 C is skew-symmetric.
        g: gravity torques dP/dq, n x 1.
        potential_energy: P(q), zero when all mass is at the base's origin [J].
    """

    q: tuple[Symbol, ...]
    qd: tuple[Symbol, ...]
    qdd: tuple[Symbol, ...]
    M: ImmutableMatrix
    C: ImmutableMatrix
    g: ImmutableMatrix
    potential_energy: Expr

    @property
    def tau(self) -> ImmutableMatrix:
        """M qdd + C qd + g, n x 1 [N m], [N] for prismatic joints."""
        return self.M * sympy.Matrix(self.qdd) + self.C * sympy.Matrix(self.qd) + self.g

    @property
    def kinetic_energy(self) -> Expr:
        """K = qd^T M qd / 2 [J]."""
        qd = sympy.Matrix(self.qd)
        return tidy((qd.T * self.M * qd)[0] / 2)

    @property
    def parameters(self) -> tuple[Symbol, ...]:
        """The symbols other than coordinates and their rates: masses, lengths and so on, by name."""
        found: set[Any] = (
            self.M.free_symbols | self.C.free_symbols | self.g.free_symbols | self.potential_energy.free_symbols
        )
        return tuple(sorted(found - {*self.q, *self.qd, *self.qdd}, key=lambda x: x.name))

    def christoffel(self) -> ImmutableMatrix:
        """The other usual Coriolis matrix, C_ij = sum_k Gamma_ijk qd_k with the Christoffel symbols of M.

        Computed as d(C qd)/dqd / 2; equals `jaxdyn.coriolis_matrix`. Its product with qd is that of `C`.
        """
        force = (self.C * sympy.Matrix(self.qd)).applyfunc(expand)
        return ImmutableMatrix((force.jacobian(sympy.Matrix(self.qd)) / 2).applyfunc(tidy))

    def lambdify(self, backend: Literal["jax", "numpy"] = "jax") -> Functions:
        """The equations as functions of one state, compiled from the expressions with common parts computed once.

        Those of JAX work under jit, vmap and grad, also with respect to the parameters, and follow the dtype of q:
        `jax.vmap(f.tau)(q, qd, qdd)`, or `f.M(q, m1=1.0, l1=0.5)` where the equations have the parameters m1 and l1.

        Raises:
            ModelError: no such backend; the functions raise it when parameters are missing or unknown.
        """
        if backend not in ("jax", "numpy"):
            raise ModelError(f"equations become functions of 'jax' or 'numpy', not of {backend!r}")
        states = (self.q, self.qd, self.qdd)
        tau, shape = self.tau, (len(self.q),)
        return Functions(
            tau=_function(tau, shape, states, self.parameters, backend),
            M=_function(self.M, 2 * shape, states[:1], self.parameters, backend),
            C=_function(self.C, 2 * shape, states[:2], self.parameters, backend),
            g=_function(self.g, shape, states[:1], self.parameters, backend),
        )

    def latex(self, *, short: bool = True) -> str:
        """M, C and g as LaTeX matrices in one `aligned` block; `short` writes c_{12} for cos(q1 + q2) as the textbooks do."""
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
        return "\n".join([*lines, *(f"g{at(i)} = {self.g[i]}" for i in range(n))])


def _function(
    matrix: ImmutableMatrix,
    shape: tuple[int, ...],
    states: tuple[tuple[Symbol, ...], ...],
    parameters: tuple[Symbol, ...],
    backend: str,
) -> Callable[..., Any]:
    """A function of the states and the parameters that fills an array with a matrix's entries."""
    entries = [sympy.N(x, 17) for x in matrix]  # roots and pi as numbers: they must not decide the dtype
    symbols = [x for state in states for x in state]
    evaluate = sympy.lambdify([*symbols, *parameters], entries, modules=backend, cse=True)
    names = [x.name for x in parameters]
    xp: Any = jnp if backend == "jax" else np

    def function(*arguments: Any, **values: Any) -> Any:
        if set(values) != set(names):
            wrong = sorted(set(names) - set(values)) or sorted(set(values) - set(names))
            what = "missing" if set(names) - set(values) else "not among the equations' parameters"
            raise ModelError(f"{', '.join(wrong)}: {what}; the equations have {', '.join(names) or 'none'}")
        if len(arguments) != len(states):
            raise TypeError(f"the function takes {len(states)} arrays of the state, not {len(arguments)}")
        arrays = [xp.asarray(x) for x in arguments]
        if any(x.shape != (len(state),) for x, state in zip(arrays, states, strict=True)):
            raise ModelError(f"a state has shape {[x.shape for x in arrays]}, but there are {len(states[0])} joints")
        dtype = xp.result_type(arrays[0], 0.0)
        found = evaluate(*(x[i] for x in arrays for i in range(x.shape[0])), *(values[name] for name in names))
        return xp.stack([xp.asarray(x, dtype) for x in found]).reshape(shape)

    return function

"""The regressor in closed form, with a minimal set of parameters."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import sympy
from sympy import ImmutableMatrix, Matrix, Symbol

from ..errors import ModelError
from ._functions import function_of
from ._trigonometry import expand, merge, reduce, tidy

if TYPE_CHECKING:
    from ._equations import Equations

Polynomial = dict[Any, Any]  # coefficients by monomial in the symbols
Parts = dict[Any, Polynomial]  # polynomial coefficients by function of the state


class RegressorFunctions(NamedTuple):
    """Regressor and parameters as functions, in SI units.

    Attributes:
        Y: function of (q, qd, qdd) that returns the regressor (n, l); the known symbols are keyword arguments.
        theta: function that returns the parameters (l,); the other symbols are keyword arguments.
    """

    Y: Callable[..., Any]
    theta: Callable[..., Any]


@dataclasses.dataclass(frozen=True)
class SymbolicRegressor:
    """Closed form of tau + spring_force = Y(q, qd, qdd) theta, from `Equations.regressor`.

    `str` returns one entry per line, in SymPy's syntax.

    Attributes:
        q: joint coordinates [rad or m].
        qd: joint rates [rad/s or m/s].
        qdd: joint accelerations [rad/s^2 or m/s^2].
        Y: regressor, n x l.
        theta: parameters, l x 1: linearly independent polynomials in the symbols, in SI units.
    """

    q: tuple[Symbol, ...]
    qd: tuple[Symbol, ...]
    qdd: tuple[Symbol, ...]
    Y: ImmutableMatrix
    theta: ImmutableMatrix

    def lambdify(self, backend: Literal["jax", "numpy"] = "jax") -> RegressorFunctions:
        """Y and theta as functions, like those of `Equations.lambdify`.

        Raises:
            ModelError: the backend is unknown. The functions raise this error if symbols are missing or unknown.
        """
        if backend not in ("jax", "numpy"):
            raise ModelError(f"the backend must be 'jax' or 'numpy', not {backend!r}")
        states = (self.q, self.qd, self.qdd)
        by_name = lambda found: tuple(sorted(found, key=lambda x: x.name))
        known = by_name(self.Y.free_symbols - {x for state in states for x in state})
        letters = by_name(self.theta.free_symbols)
        values = sympy.lambdify(letters, [sympy.N(x, 17) for x in self.theta], modules=backend)

        def theta(**given: Any) -> Any:
            if set(given) != {x.name for x in letters}:
                raise ModelError(
                    f"theta requires values for exactly these symbols: {', '.join(x.name for x in letters)}"
                )
            found = values(*(given[x.name] for x in letters))
            return _array(backend, found)

        return RegressorFunctions(function_of(self.Y, self.Y.shape, states, known, backend), theta)

    def __str__(self) -> str:
        rows, columns = self.Y.shape
        lines = [f"Y{i + 1}{j + 1} = {self.Y[i, j]}" for i in range(rows) for j in range(columns)]
        return "\n".join([*lines, *(f"theta{j + 1} = {x}" for j, x in enumerate(self.theta.flat()))])


def _array(backend: str, found: Sequence[Any]) -> Any:
    if backend == "numpy":
        import numpy as np

        return np.asarray(found, float)
    import jax.numpy as jnp

    return jnp.stack([jnp.asarray(x, float) for x in found])


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

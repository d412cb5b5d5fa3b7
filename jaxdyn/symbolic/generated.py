"""Generated NumPy, JAX and C programs for M, C, g and tau of robots of any size."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import sympy

from ..dynamics.composite_body import mass_matrix
from ..dynamics.coriolis import coriolis_matrix
from ..dynamics.newton_euler import gravity_force, inverse_dynamics
from ..errors import ModelError
from ..model.chain import Chain, with_leaves
from ..source import PYTHON, C, Graph, Language, Node, Scalar, body, entries, trace, used
from .equations import Functions
from .expressions import LEAVES, Leaves, array_module, expressions, number, on_arrays

Backend = Literal["jax", "numpy"]
TERMS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "tau": (inverse_dynamics, ("q", "qd", "qdd")),
    "M": (mass_matrix, ("q",)),
    "C": (coriolis_matrix, ("q", "qd")),
    "g": (gravity_force, ("q",)),
}


class _Program(NamedTuple):
    """A term of the equations as scalar operations; its inputs are named q[0], .., p[0], .., which is valid in Python and C."""

    nodes: list[Node]
    result: np.ndarray

    def written(self, language: Language, end: str) -> list[str]:
        """The lines of the program, which end with assignments to the nonzero entries of `out`."""
        _, lines, (values,) = body(language, self.nodes, [self.result])
        kept = [i for i, x in enumerate(self.result.ravel()) if isinstance(x, Node) or x != 0]
        return [*lines, *(f"out[{i}] = {values[i]}{end}" for i in kept)]


class GeneratedEquations:
    """Straight-line programs for tau, M, C and g of a robot, from `generate`; common subexpressions are computed once.

    Attributes:
        parameters: names of the symbols in the leaves.
    """

    def __init__(self, chain: Chain, leaves: Leaves):
        numbers = {name: number(chain, name) for name in leaves}
        if missing := [name for name, x in numbers.items() if x is None]:
            raise ModelError(f"the chain has no leaf {missing[0]!r}")
        given = {name: expressions(name, numbers[name], x) for name, x in leaves.items()}
        letters = {s.name for table in given.values() for x in table.ravel() for s in x.free_symbols}
        self.parameters = tuple(sorted(letters))
        self._sizes = {"q": chain.nq, "qd": chain.nv, "qdd": chain.nv}
        self._programs = {name: self._traced(chain, given, *term) for name, term in TERMS.items()}

    def _traced(
        self, chain: Chain, given: Mapping[str, np.ndarray], function: Callable, arguments: tuple[str, ...]
    ) -> _Program:
        graph = Graph()
        letters = {name: graph.input(f"p[{i}]") for i, name in enumerate(self.parameters)}
        leaves = [np.vectorize(lambda x: _scalar(graph, letters, x), [object])(table) for table in given.values()]
        state = [
            np.array([graph.input(f"{name}[{i}]") for i in range(self._sizes[name])], object) for name in arguments
        ]

        def term(*x: Any) -> Any:
            robot = jax.tree.map(lambda x: jnp.asarray(np.asarray(x), jnp.float64), chain)
            return function(with_leaves(robot, dict(zip(given, x, strict=False))), *x[len(leaves) :])

        closed = trace(term, [x.shape for x in (*leaves, *state)])
        with jax.enable_x64(True):
            (result,) = entries(graph, closed, [*leaves, *state])
        return _Program(graph.nodes, result)

    @property
    def operations(self) -> dict[str, int]:
        """Number of operations (sums, products, sines, ...) in each of tau, M, C and g."""
        return {name: used(program.nodes, [program.result]) for name, program in self._programs.items()}

    def c_source(self, prefix: str = "robot") -> str:
        """C99 code of `void robot_tau(const double *q, const double *qd, const double *qdd, double *out)` etc., in SI units.

        Matrices are in row-major order. If the equations contain symbols, each function has an argument `p` before `out`,
        with their values in the order of `parameters`. Quaternions in q must have unit length. The code uses only stack
        memory.
        """
        parts = ["#include <math.h>\n"]
        for name, program in self._programs.items():
            arrays = [*TERMS[name][1], *(["p"] if self.parameters else [])]
            given = "".join(f"const double *{x}, " for x in arrays)
            zero = f"for (int i = 0; i < {program.result.size}; ++i) out[i] = 0.0;"
            lines = [" ".join(f"(void){x};" for x in arrays), zero, *program.written(C, ";")]
            head = f"void {prefix}_{name}({given}double *out) {{"
            parts.append("\n".join([head, *(f"    {line}" for line in lines), "}\n"]))
        return "\n".join(parts)

    def python_source(self) -> str:
        """Python code of the functions that `lambdify` wraps; sin, cos and sqrt must be in scope.

        Each function takes sequences of scalars, and a list `out` that receives the results.
        """
        parts = []
        for name, program in self._programs.items():
            head = f"def {name}({', '.join([*TERMS[name][1], 'p', 'out'])}):"
            parts.append("\n".join([head, *(f"    {line}" for line in program.written(PYTHON, "") or ["pass"])]))
        return "\n\n\n".join(parts) + "\n"

    def lambdify(self, backend: Backend = "jax") -> Functions:
        """The programs as functions, like those of `Equations.lambdify`.

        With JAX, compilation takes seconds to tens of seconds, since every operation is an XLA instruction, and
        `jaxdyn.inverse_dynamics` and related functions are faster.

        Raises:
            ModelError: the backend is unknown. The functions raise this error if parameters are missing or unknown.
        """
        xp = array_module(backend)
        scope: dict[str, Any] = {f: getattr(xp, f) for f in ("sin", "cos", "sqrt")}
        # executed as Python, because a loop over the operations takes 26 times as long (859 of them: 2.2 ms instead of 83 us)
        exec(compile(self.python_source(), "<jaxdyn.symbolic.generate>", "exec"), scope)

        def function(name: str) -> Callable[..., Any]:
            result, sizes = self._programs[name].result, [self._sizes[x] for x in TERMS[name][1]]

            def evaluate(*scalars: Any) -> list[Any]:
                out: list[Any] = [0.0] * result.size
                scope[name](*scalars, out)
                return out

            return on_arrays(evaluate, sizes, self.parameters, result.shape, xp)

        return Functions(**{name: function(name) for name in TERMS})


def generate(chain: Chain, leaves: Leaves | None = None) -> GeneratedEquations:
    """Generate programs for tau, M, C and g of a robot of any size within seconds, as NumPy, JAX or C code.

    The functions `inverse_dynamics`, `mass_matrix`, `coriolis_matrix` (the Christoffel-consistent matrix) and `gravity_force`
    are traced with symbols for the state and numbers for the robot, and then decomposed into scalar operations. Repeated
    operations are computed once, and operations with zeros and ones are removed. Floating bases are supported. For the
    textbook biped with ten joints, tau has 800 operations and C has 4155, whereas `derive`, whose formulas are readable,
    would produce more than a million.

    Args:
        leaves: expressions that replace numbers of the chain, as in `derive`; their symbols become parameters.

    Raises:
        ModelError: the chain lacks a leaf, or expressions have the wrong shape.
    """
    if unknown := sorted(set(leaves or {}) - set(LEAVES)):
        raise ModelError(
            f"unknown leaf {unknown[0]!r}; the leaves that expressions can replace are {', '.join(LEAVES)}"
        )
    return GeneratedEquations(chain, leaves or {})


def _scalar(graph: Graph, letters: Mapping[str, Node], x: Any) -> Scalar:
    """A SymPy expression as operations on scalars."""
    if not x.free_symbols:
        return float(x)
    if x.is_Symbol:
        return letters[x.name]
    of = [_scalar(graph, letters, y) for y in x.args]
    if x.is_Add or x.is_Mul:
        return functools.reduce(lambda a, b: graph.apply("+" if x.is_Add else "*", a, b), of)
    if x.is_Pow and x.args[1].is_Integer:
        power = functools.reduce(lambda a, b: graph.apply("*", a, b), [of[0]] * abs(int(x.args[1])))
        return power if x.args[1] > 0 else graph.apply("/", 1.0, power)
    kind = "sqrt" if x.is_Pow and x.args[1] == sympy.Rational(1, 2) else x.func.__name__
    if kind not in ("sin", "cos", "sqrt"):
        raise ModelError(f"{x} is not supported; use sums, products, integer powers, square roots, sines and cosines")
    return graph.apply(kind, of[0])

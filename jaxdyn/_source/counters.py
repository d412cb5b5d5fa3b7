"""Integers that depend on loop iterations: counters, and positions in memory."""

import dataclasses
from typing import Any

from .._jax_compat import Literal, scan_counts
from .scalars import Node, Scalar


@dataclasses.dataclass(frozen=True)
class Index:
    """The integer `offset` plus the sum of stride * (current iteration of loop) over all `terms` (loop, stride)."""

    offset: int
    terms: tuple

    def plus(self, other: "Index", sign: int = 1) -> "Index":
        strides = dict(self.terms)
        for loop, stride in other.terms:
            strides[loop] = strides.get(loop, 0) + sign * stride
        return Index(self.offset + sign * other.offset, tuple((k, s) for k, s in strides.items() if s))

    def times(self, factor: int) -> "Index":
        return Index(self.offset * factor, tuple((k, s * factor) for k, s in self.terms if factor))

    def at(self, loop: Any, turn: int) -> "Index":
        """The value of this integer at a given iteration of a loop."""
        stride = dict(self.terms).get(loop, 0)
        return Index(self.offset + stride * turn, tuple((k, s) for k, s in self.terms if k is not loop))

    def bounds(self) -> tuple[int, int]:
        """Minimum and maximum of the integer over all iterations."""
        ends = [sorted((0, s * (loop.length - 1))) for loop, s in self.terms]
        return self.offset + sum(low for low, _ in ends), self.offset + sum(high for _, high in ends)


def is_index(x: Scalar) -> bool:
    """True for an integer node."""
    return isinstance(x, Node) and x.kind == "index"


def applied(kind: str, of: tuple) -> "Index | bool | None":
    """Apply an operation to integers; return an integer, a truth value that holds in all iterations, or None if unknown."""
    if kind not in ("+", "-", "*", "negative", "<", "<=", "==", "!="):
        return None
    numbers = [_index(x) for x in of]
    if any(x is None for x in numbers):
        return None
    a, b = numbers[0], numbers[-1]
    if kind == "negative":
        return a.times(-1)
    if kind == "*":
        return a.times(b.offset) if not b.terms else b.times(a.offset) if not a.terms else None
    if kind == "+":
        return a.plus(b)
    difference = a.plus(b, -1)
    if kind == "-":
        return difference
    low, high = difference.bounds()
    if kind in ("==", "!="):
        same = None if low <= 0 <= high and low < high else low == 0 == high
        return same if same is None or kind == "==" else not same
    below, above = (high < 0, low >= 0) if kind == "<" else (high <= 0, low > 0)
    return True if below else False if above else None


def _index(x: Scalar) -> Any:
    if isinstance(x, Node):
        return Index(*x.of) if x.kind == "index" else None
    return Index(int(x), ()) if abs(x) < 2**31 and x == int(x) else None


def increment(jaxpr: Any, place: int, result: int) -> int | None:
    """The constant integer that a program adds to its input `place` to obtain a result; None if the result has another form."""
    found = _shift(jaxpr, jaxpr.outvars[result])
    return found[1] if found is not None and found[0] == place else None


def _shift(jaxpr: Any, variable: Any) -> tuple[int, int] | None:
    """Position of an input, and the integer added to it to obtain a variable; None if the variable has another form."""
    if isinstance(variable, Literal):
        return None
    if variable in jaxpr.invars:
        return jaxpr.invars.index(variable), 0
    equation = next((x for x in jaxpr.eqns if variable in x.outvars), None)
    if equation is None:
        return None
    position, parameters = equation.outvars.index(variable), equation.params
    inner = next((parameters[k] for k in ("jaxpr", "call_jaxpr", "call") if k in parameters), None)
    if equation.primitive.name == "add" and variable.aval.dtype.kind in "iu" and variable.aval.shape == ():
        known = [x for x in equation.invars if isinstance(x, Literal)]
        varied = [x for x in equation.invars if not isinstance(x, Literal)]
        found = _shift(jaxpr, varied[0]) if len(varied) == 1 else None
        return None if found is None else (found[0], found[1] + int(known[0].val))
    if inner is None or equation.primitive.name in ("while", "cond"):
        return None
    inner = getattr(inner, "jaxpr", inner)
    if equation.primitive.name == "scan":
        fixed, carried = scan_counts(parameters)
        added = increment(inner, fixed + position, position) if position < carried else None
        found = None if added is None else _shift(jaxpr, equation.invars[fixed + position])
        return None if found is None else (found[0], found[1] + added * parameters["length"])
    within = _shift(inner, inner.outvars[position]) if len(inner.outvars) == len(equation.outvars) else None
    if within is None:
        return None
    found = _shift(jaxpr, equation.invars[within[0]])
    return None if found is None else (found[0], found[1] + within[1])

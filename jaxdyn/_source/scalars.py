"""Scalar expressions with constant folding and common-subexpression elimination."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

FUNCTIONS: dict[str, Callable] = {
    name: getattr(math, name)
    for name in (
        *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
        *("exp", "expm1", "log", "log1p", "sqrt", "pow", "fabs", "floor", "fmod"),
    )
}
INFIX: dict[str, Callable] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "and": lambda a, b: bool(a and b),
    "or": lambda a, b: bool(a or b),
}


@dataclasses.dataclass(frozen=True, eq=False, slots=True)
class Node:
    """A scalar operation, unique within its graph.

    Attributes:
        kind: a key of `FUNCTIONS` or `INFIX`, or "negative", "not", "select" (operands: condition, value if true, value
            if false) or "input".
        of: the operands (nodes and numbers); for an input, its name.
        place: position in the order of evaluation.
    """

    kind: str
    of: tuple
    place: int


Scalar = Node | float | int  # conditions are bools, which are ints


class Graph:
    """All operations of a function, in the order of evaluation.

    Attributes:
        target: name of the output format, for error messages.
    """

    target = "plain C"

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self._known: dict[tuple, Node] = {}

    def apply(self, kind: str, *of: Scalar) -> Scalar:
        """Apply an operation to scalars; return a node or, if the result needs no operation, a number or an existing scalar."""
        if not any(isinstance(x, Node) for x in of):
            return _computed(kind, of)
        found = self._simpler(kind, of)
        return self._node(kind, of) if found is None else found

    def special(self, equation: Any, of: list) -> list | None:
        """The results of an equation of a jaxpr if this class handles it specially; otherwise None."""
        del equation, of

    def input(self, name: str) -> Node:
        """An input scalar."""
        return self._node("input", (name,))

    def _node(self, kind: str, of: Sequence) -> Node:
        key = (kind, *((id(x) if isinstance(x, Node) else repr(x)) for x in of))
        if key not in self._known:
            self._known[key] = Node(kind, tuple(of), len(self.nodes))
            self.nodes.append(self._known[key])
        return self._known[key]

    def _simpler(self, kind: str, of: tuple) -> Scalar | None:
        """The simplified form of sums with 0, products with 0 or 1, and selections with a known outcome; otherwise None."""
        if kind == "select":
            condition, then, otherwise = of
            if not isinstance(condition, Node):
                return then if condition else otherwise
            return then if _same(then, otherwise) else None
        if kind == "negative":
            return of[0].of[0] if of[0].kind == "negative" else None
        if kind not in ("+", "-", "*", "/"):
            return None
        a, b = of
        if kind == "+":
            return b if _is(a, 0) else a if _is(b, 0) else None
        if kind == "-":
            return self.apply("negative", b) if _is(a, 0) else a if _is(b, 0) else None
        if kind == "*":
            if _is(a, 0) or _is(b, 0):
                return 0.0
            for x, y in ((a, b), (b, a)):
                if _is(x, 1):
                    return y
                if _is(x, -1):
                    return self.apply("negative", y)
            return None
        return 0.0 if _is(a, 0) else a if _is(b, 1) else self.apply("negative", a) if _is(b, -1) else None


def _is(x: Scalar, number: int) -> bool:
    return not isinstance(x, Node) and x == number


def _same(a: Scalar, b: Scalar) -> bool:
    return a is b or (not isinstance(a, Node) and not isinstance(b, Node) and a == b)


def _computed(kind: str, of: tuple) -> float | int:
    """The result of an operation on numbers; as in C, invalid operands give infinity or NaN instead of an exception."""
    if kind == "select":
        return of[1] if of[0] else of[2]
    if kind == "negative":
        return -of[0]
    if kind == "not":
        return not of[0]
    try:
        return (FUNCTIONS.get(kind) or INFIX[kind])(*of)
    except ZeroDivisionError:
        return math.nan if of[0] == 0 or math.isnan(of[0]) else math.copysign(math.inf, of[0]) * math.copysign(1, of[1])
    except (ValueError, OverflowError):
        return -math.inf if kind == "log" and of[0] == 0 else math.inf if kind in ("exp", "pow") else math.nan

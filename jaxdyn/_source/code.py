"""Scalar operations as lines of C or Python code."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from .scalars import INFIX, Node

_WIDEST = 90  # maximum length of an expression in characters; longer expressions are assigned to a variable
_LEVEL = {"or": 0, "and": 1, "==": 2, "!=": 2, "<": 3, "<=": 3, "+": 4, "-": 4, "*": 5, "/": 5}
_ATOM, _SIGN = 7, 6


@dataclasses.dataclass(frozen=True)
class Language:
    """Syntax of expressions in a programming language.

    Attributes:
        select: template of a conditional expression: {0} is the condition, {1} the value if true, {2} the value if
            false.
        words: spellings of the operators that differ between languages.
        numbers: spellings of infinity, minus infinity and NaN.
        true: spelling of the constant true.
        false: spelling of the constant false.
        define: template of a line that assigns the expression {1} to the variable {0}.
    """

    select: str
    words: Mapping[str, str]
    numbers: tuple[str, str, str]
    true: str
    false: str
    define: str


C = Language(
    "({0} ? {1} : {2})",
    {"and": "&&", "or": "||", "not": "!"},
    ("INFINITY", "-INFINITY", "NAN"),
    "1",
    "0",
    "const double {0} = {1};",
)
PYTHON = Language("({1} if {0} else {2})", {"not": "not "}, ("inf", "-inf", "nan"), "True", "False", "{0} = {1}")


def body(
    language: Language, nodes: Sequence[Node], results: Sequence[np.ndarray]
) -> tuple[list[str], list[str], list[list[str]]]:
    """Return the names of the required inputs, the assignments in order, and an expression for every entry of each result.

    Args:
        nodes: nodes of the graph, in the order of evaluation.
        results: arrays of nodes and numbers.
    """
    flat = [x for result in results for x in result.ravel()]
    uses = _uses(nodes, flat)
    needed: list[str] = []
    lines: list[str] = []
    texts: dict[int, tuple[str, int]] = {}
    said = lambda x: texts[x.place] if isinstance(x, Node) else _number(language, x)
    for node in nodes:
        count = uses[node.place]
        if not count:
            continue
        text, level = _expression(language, node, [] if node.kind == "input" else [said(x) for x in node.of])
        if node.kind == "input":
            needed.append(text)
        elif count > 1 or len(text) > _WIDEST:
            name = f"v{len(lines)}"
            lines.append(language.define.format(name, text))
            text, level = name, _ATOM
        texts[node.place] = text, level
    return needed, lines, [[said(x)[0] for x in result.ravel()] for result in results]


def used(nodes: Sequence[Node], results: Sequence[np.ndarray]) -> int:
    """Number of operations on which the results depend."""
    uses = _uses(nodes, [x for result in results for x in result.ravel()])
    return sum(uses[node.place] > 0 and node.kind != "input" for node in nodes)


def _uses(nodes: Sequence[Node], results: Sequence) -> list[int]:
    """Number of uses of each node; 0 if no result depends on it."""
    uses = [0] * len(nodes)
    for x in results:
        if isinstance(x, Node):
            uses[x.place] += 1
    for node in reversed(nodes):
        if uses[node.place]:
            for x in node.of:
                if isinstance(x, Node):
                    uses[x.place] += 1
    return uses


def _expression(language: Language, node: Node, of: list[tuple[str, int]]) -> tuple[str, int]:
    """The code of an operation, and its precedence."""
    kind = node.kind
    if kind == "input":
        return node.of[0], _ATOM
    if kind in INFIX:
        level, word = _LEVEL[kind], language.words.get(kind, kind)
        # evaluate from left to right, so that rounding is the same as in the traced function
        left, right = _within(of[0], level), _within(of[1], level + 1)
        return f"{left} {word} {right}", level
    if kind == "negative":
        return f"-{_within(of[0], _SIGN + 1)}", _SIGN
    if kind == "not":
        return f"({language.words['not']}{_within(of[0], _SIGN + 1)})", _ATOM
    if kind == "select":
        return language.select.format(*(_within(x, 1) for x in of)), _ATOM
    return f"{kind}({', '.join(text for text, _ in of)})", _ATOM


def _within(of: tuple[str, int], level: int) -> str:
    text, own = of
    return text if own >= level else f"({text})"


def _number(language: Language, x: float | int) -> tuple[str, int]:
    if isinstance(x, bool | np.bool_):
        return (language.true if x else language.false), _ATOM
    x = float(x)
    if math.isinf(x) or math.isnan(x):
        plus, minus, none = language.numbers
        return (none if math.isnan(x) else plus if x > 0 else minus), _ATOM
    text = repr(x)
    return text, _SIGN if text.startswith("-") else _ATOM

"""Traced functions as scalar operations, and these as lines of C or Python.

`entries` interprets a jaxpr with NumPy on arrays of scalars (`Node`s and numbers). A `Graph` folds constants and computes
common subexpressions once; loops are unrolled, unless a subclass keeps them (`loops`). `body` writes operations as code.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._jax_compat import Literal, scan_counts
from ..errors import DeploymentError

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
    """A scalar operation, unique within its graph."""

    kind: str  # a key of `FUNCTIONS` or `INFIX`, "negative", "not", "select" (condition, if true, if false) or "input"
    of: tuple  # the operands; for an input, its name
    place: int  # position in the order of evaluation


Scalar = Node | float | int  # conditions are bools, which are ints


class Graph:
    """All operations of a function, in the order of evaluation."""

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


LONGEST = 10_000  # maximum number of unrolled iterations of a loop


def entries(graph: Graph, jaxpr: Any, constants: Sequence, given: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of a traced program as arrays of scalars (objects), given its arguments in the same form."""
    known: dict[Any, np.ndarray] = {}
    known.update(zip(jaxpr.constvars, map(as_scalars, constants), strict=True))
    known.update(zip(jaxpr.invars, given, strict=True))
    read = lambda v: as_scalars(v.val) if isinstance(v, Literal) else known[v]
    for equation in _needed(jaxpr):
        found = _applied(graph, equation, [read(v) for v in equation.invars])
        known.update(zip(equation.outvars, found, strict=True))
    return [read(v) for v in jaxpr.outvars]


def _needed(jaxpr: Any) -> list[Any]:
    """The equations that have effects or contribute to the results; some have no results, such as `unstack` of no rows."""
    read, kept = {v for v in jaxpr.outvars if not isinstance(v, Literal)}, []
    for equation in reversed(jaxpr.eqns):
        if equation.effects or not read.isdisjoint(equation.outvars):
            read.update(v for v in equation.invars if not isinstance(v, Literal))
            kept.append(equation)
    return kept[::-1]


def trace(function: Callable, shapes: Sequence[tuple[int, ...]]) -> Any:
    """The closed jaxpr of a function, traced in double precision for arrays of the given shapes."""
    with jax.enable_x64(True):
        return jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(shape, jnp.float64) for shape in shapes))


def as_scalars(x: Any) -> np.ndarray:
    """Convert an array to an array of Python numbers (objects)."""
    array = np.asarray(x)
    plain = array.astype(float if array.dtype.kind in "fiu" else array.dtype).astype(object)
    return plain if isinstance(plain, np.ndarray) else np.array(plain, object)


def _applied(graph: Graph, equation: Any, of: list[np.ndarray]) -> list[np.ndarray]:
    name, parameters = equation.primitive.name, equation.params
    if (own := graph.special(equation, of)) is not None:
        return own
    # use the form for other platforms, because the CPU form is written for vector instructions
    if name == "by_platform":
        shapes = [v.aval.shape for v in equation.invars]
        closed = trace(parameters["default"], shapes)
        return entries(graph, closed.jaxpr, closed.consts, of)
    for key in ("jaxpr", "call_jaxpr", "call"):  # a nested program
        inner = parameters.get(key)
        if inner is not None and name not in ("scan", "while", "cond"):
            return entries(graph, getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), of)
    if name in _LOOPS:
        return _LOOPS[name](graph, parameters, of)
    if name in MOVES:
        return moved(graph, equation, of)
    if name in _ENTRIES:
        exponent = {"y": parameters["y"]} if "y" in parameters else {}
        out = each(lambda *x: _ENTRIES[name](graph, *x, **exponent), *of)
    elif name == "scatter-add":
        out = _scattered(graph, equation, of)
    elif name == "reduce_sum":
        out = _summed(graph, of[0], parameters["axes"])
    elif name == "dot_general":
        out = _contracted(graph, parameters, of)
    elif name == "iota":
        out = as_scalars(equation.primitive.bind(**parameters))
    else:
        raise DeploymentError(
            f"the operation {name!r} of the traced function is not supported in {graph.target}",
            "use only arithmetic and elementary functions, or call `export_function` instead",
        )
    return [np.broadcast_to(np.asarray(out, object), equation.outvars[0].aval.shape)]


def each(function: Callable, *xs: np.ndarray) -> np.ndarray:
    """Apply a function to every entry."""
    return np.asarray(np.frompyfunc(function, len(xs), 1)(*xs), object)


def _power(graph: Graph, x: Any, y: int) -> Any:
    """Power by squaring, as XLA computes it."""
    result, square, left = 1.0, x, abs(y)
    while left:
        if left & 1:
            result = graph.apply("*", result, square)
        left >>= 1
        square = graph.apply("*", square, square) if left else square
    return graph.apply("/", 1.0, result) if y < 0 else result


def _sign(graph: Graph, x: Any) -> Any:
    positive, negative = graph.apply("<", 0.0, x), graph.apply("<", x, 0.0)
    return graph.apply("select", positive, 1.0, graph.apply("select", negative, -1.0, 0.0))


def _apply(kind: str) -> Callable:
    return lambda graph, *x: graph.apply(kind, *x)


def _select(graph: Graph, which: Any, *cases: Any) -> Any:
    if len(cases) != 2 or (not isinstance(which, Node) and not isinstance(which, bool)):
        raise DeploymentError(f"a choice among more than two cases is not supported in {graph.target}")
    return graph.apply("select", which, cases[1], cases[0])


_SAME = ("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh")
_SAME += ("exp", "expm1", "log", "log1p", "sqrt", "pow", "floor", "and", "or", "not")
_SPELLED = {
    "add": "+",
    "add_any": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "lt": "<",
    "le": "<=",
    "eq": "==",
    "ne": "!=",
}
_SPELLED |= {"neg": "negative", "abs": "fabs", "rem": "fmod"}
_UNCHANGED = ("copy", "copy_p", "convert_element_type", "stop_gradient", "real", "device_put", "reshard")
_ENTRIES: dict[str, Callable] = {
    **{name: _apply(kind) for name, kind in {**_SPELLED, **dict(zip(_SAME, _SAME, strict=True))}.items()},
    **dict.fromkeys(_UNCHANGED, lambda g, x: x),
    "gt": lambda g, a, b: g.apply("<", b, a),
    "ge": lambda g, a, b: g.apply("<=", b, a),
    "max": lambda g, a, b: g.apply("select", g.apply("<", a, b), b, a),
    "min": lambda g, a, b: g.apply("select", g.apply("<", b, a), b, a),
    "clamp": lambda g, low, x, high: g.apply(
        "select", g.apply("<", x, low), low, g.apply("select", g.apply("<", high, x), high, x)
    ),
    "sign": _sign,
    "square": lambda g, x: g.apply("*", x, x),
    "one_minus_square": lambda g, x: g.apply("-", 1.0, g.apply("*", x, x)),
    "integer_pow": _power,
    "rsqrt": lambda g, x: g.apply("/", 1.0, g.apply("sqrt", x)),
    "logistic": lambda g, x: g.apply("/", 1.0, g.apply("+", 1.0, g.apply("exp", g.apply("negative", x)))),
    "select_n": _select,
}


def _contracted(graph: Graph, parameters: dict, of: list[np.ndarray]) -> np.ndarray:
    """Sums of products over the contracted axes, accumulated from the first product to the last."""
    (left, right), (left_batch, right_batch) = parameters["dimension_numbers"]
    a, b = of
    free = lambda x, used: [axis for axis in range(x.ndim) if axis not in used]
    own, other = free(a, (*left, *left_batch)), free(b, (*right, *right_batch))
    a, b = a.transpose(*left_batch, *own, *left), b.transpose(*right_batch, *other, *right)
    batch, count = a.shape[: len(left_batch)], math.prod(a.shape[len(left_batch) + len(own) :])
    a = a.reshape(*batch, *a.shape[len(batch) : len(batch) + len(own)], *[1] * len(other), count)
    b = b.reshape(*batch, *[1] * len(own), *b.shape[len(batch) : len(batch) + len(other)], count)
    return _summed(graph, each(lambda x, y: graph.apply("*", x, y), a, b), (-1,))


def _summed(graph: Graph, x: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    for axis in sorted((axis % x.ndim for axis in axes), reverse=True):
        total = np.full(x.shape[:axis] + x.shape[axis + 1 :], 0.0, object)
        for k in range(x.shape[axis]):
            total = each(lambda a, b: graph.apply("+", a, b), total, np.asarray(np.take(x, k, axis), object))
        x = total
    return x


def moved(graph: Graph, equation: Any, of: list[np.ndarray]) -> list[np.ndarray]:
    """Rearrange entries: JAX applies the operation to their indices, and the result gives the source of each entry."""
    name, entries_at = equation.primitive.name, MOVES[equation.primitive.name]
    arguments, held, start = [], [], 0
    for k, x in enumerate(of):
        if entries_at is None or k in entries_at:
            arguments.append(np.arange(start, start + x.size).reshape(x.shape))
            held.append(x.ravel())
            start += x.size
        elif any(isinstance(entry, Node) for entry in x.ravel()):
            raise DeploymentError(
                f"the operation {name!r} at an index that depends on the arguments is not supported in {graph.target}"
            )
        else:
            arguments.append(x.astype(int))
    found, entries_of = equation.primitive.bind(*arguments, **equation.params), np.concatenate(held)
    return [
        np.asarray(entries_of[np.asarray(x)], object)
        for x in (found if equation.primitive.multiple_results else [found])
    ]


# for each operation, positions of the operands whose entries are moved (None: all operands); the other operands are indices
MOVES: dict[str, tuple[int, ...] | None] = {
    **dict.fromkeys(
        ("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "rev", "concatenate", "stack", "slice")
    ),
    **dict.fromkeys(("pad", "split", "unstack")),
    "dynamic_slice": (0,),
    "dynamic_update_slice": (0, 1),
    "gather": (0,),
    "scatter": (0, 2),
}


def _scattered(graph: Graph, equation: Any, of: list[np.ndarray]) -> np.ndarray:
    """Add entries at given indices; the Jacobian of JAX's operation gives the target of each added entry."""
    x, added = of[0].flatten(), of[2].ravel()
    if any(isinstance(entry, Node) for entry in of[1].ravel()):
        raise DeploymentError(f"a sum at an index that depends on the arguments is not supported in {graph.target}")
    dtype = equation.invars[0].aval.dtype  # that of the operation's sum, even if it is not the default
    apply = lambda y: equation.primitive.bind(jnp.zeros(of[0].shape, dtype), of[1].astype(int), y, **equation.params)
    where = np.asarray(jax.jacfwd(apply)(jnp.zeros(of[2].shape, dtype))).reshape(len(x), len(added))
    for to, k in np.argwhere(where).tolist():
        x[to] = graph.apply("+", x[to], added[k])
    return x.reshape(of[0].shape)


def _scanned(graph: Graph, parameters: dict, of: list[np.ndarray]) -> list[np.ndarray]:
    inner, (fixed, carried) = parameters["jaxpr"], scan_counts(parameters)
    constants, carry, rows = of[:fixed], of[fixed : fixed + carried], of[fixed + carried :]
    count, outputs = parameters["length"], []
    turns = range(count)[::-1] if parameters["reverse"] else range(count)
    for k in turns:
        found = entries(
            graph, inner.jaxpr, inner.consts, [*constants, *carry, *(np.asarray(x[k], object) for x in rows)]
        )
        carry = found[:carried]
        outputs.append(found[carried:])
    ordered = outputs[::-1] if parameters["reverse"] else outputs
    if not ordered:
        return [*carry, *(np.empty((0, *v.aval.shape), object) for v in inner.jaxpr.outvars[carried:])]
    return [*carry, *(np.stack(column) for column in zip(*ordered, strict=True))]


def _looped(graph: Graph, parameters: dict, of: list[np.ndarray]) -> list[np.ndarray]:
    first, second = parameters["cond_nconsts"], parameters["cond_nconsts"] + parameters["body_nconsts"]
    condition, body, carry = parameters["cond_jaxpr"], parameters["body_jaxpr"], of[second:]
    for _ in range(LONGEST):
        goes_on = entries(graph, condition.jaxpr, condition.consts, [*of[:first], *carry])[0].item()
        if isinstance(goes_on, Node):
            break
        if not goes_on:
            return carry
        carry = entries(graph, body.jaxpr, body.consts, [*of[first:second], *carry])
    raise DeploymentError(
        f"a loop whose number of iterations depends on the arguments is not supported in {graph.target}"
    )


def chosen(graph: Graph, parameters: dict, of: list[np.ndarray]) -> list[np.ndarray]:
    which, branches = of[0].item(), parameters["branches"]
    results = lambda branch: entries(graph, branch.jaxpr, branch.consts, of[1:])
    if not isinstance(which, Node):
        return results(branches[min(max(int(which), 0), len(branches) - 1)])
    if len(branches) != 2:
        raise DeploymentError(f"a choice among more than two cases is not supported in {graph.target}")
    pairs = zip(*map(results, branches), strict=True)
    return [each(lambda a, b: graph.apply("select", which, b, a), *pair) for pair in pairs]


_LOOPS: dict[str, Callable[[Graph, dict, list], list]] = {
    "scan": _scanned,
    "while": _looped,
    "cond": chosen,
    "optimization_barrier": lambda graph, parameters, of: of,
}


_WIDEST = 90  # maximum length of an expression in characters; longer expressions are assigned to a variable
_LEVEL = {"or": 0, "and": 1, "==": 2, "!=": 2, "<": 3, "<=": 3, "+": 4, "-": 4, "*": 5, "/": 5}
_ATOM, _SIGN = 7, 6


@dataclasses.dataclass(frozen=True)
class Language:
    """Syntax of expressions in a programming language."""

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
    """Return the names of the required inputs, the assignments in order, and an expression for every entry of each result."""
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

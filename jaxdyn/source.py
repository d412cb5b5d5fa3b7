"""Traced functions as scalar operations, and these as lines of C or Python.

`entries` interprets a jaxpr with NumPy on arrays of scalars (`Node`s and numbers). A `Graph` folds constants, computes common
subexpressions once and unrolls all loops. A `LoopGraph`, for kernels, keeps long loops, whose iterations read and write memory;
integers that depend on the iteration (`Index`) are counters and positions in memory. `body` writes operations as code.
"""

import dataclasses
import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._jax_compat import Literal, scan_counts
from .errors import DeploymentError

_SAME = ("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh")
_SAME += ("exp", "expm1", "log", "log1p", "sqrt", "pow", "floor")
FUNCTIONS: dict[str, Callable] = {name: getattr(math, name) for name in (*_SAME, "fabs", "fmod")}
_ARITHMETIC = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
_COMPARISONS = {"<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne}
_LOGIC = {"and": lambda a, b: bool(a and b), "or": lambda a, b: bool(a or b)}
INFIX: dict[str, Callable] = {**_ARITHMETIC, **_COMPARISONS, **_LOGIC}


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
            return then if then is otherwise or (not isinstance(then, Node) and _is(otherwise, then)) else None
        if kind == "negative":
            return of[0].of[0] if of[0].kind == "negative" else None
        if kind not in ("+", "-", "*", "/"):
            return None
        a, b = of
        if kind == "+":
            return b if _is(a, 0) else a if _is(b, 0) else None
        if kind == "-":
            return self.apply("negative", b) if _is(a, 0) else a if _is(b, 0) else None
        if _is(a, 0) or (kind == "*" and _is(b, 0)):
            return 0.0
        for x, y in ((a, b), (b, a)) if kind == "*" else ((b, a),):
            if _is(x, 1):
                return y
            if _is(x, -1):
                return self.apply("negative", y)
        return None


def _is(x: Scalar, number: float | int) -> bool:
    return not isinstance(x, Node) and x == number


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


def trace(function: Callable, shapes: Iterable[tuple[int, ...]]) -> Any:
    """The closed jaxpr of a function, traced in double precision for arrays of the given shapes."""
    with jax.enable_x64(True):
        return jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(shape, jnp.float64) for shape in shapes))


def entries(graph: Graph, program: Any, given: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of a traced program as arrays of scalars (objects), given its arguments in the same form."""
    jaxpr = getattr(program, "jaxpr", program)  # a nested program may have no constants
    known = dict(zip(jaxpr.constvars, map(as_scalars, getattr(program, "consts", ())), strict=True))
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
        return entries(graph, trace(parameters["default"], [v.aval.shape for v in equation.invars]), of)
    if name in _LOOPS:
        return _LOOPS[name](graph, parameters, of)
    if (inner := _nested(parameters)) is not None:
        return entries(graph, inner, of)
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


def _nested(parameters: dict) -> Any:
    """The program within an equation, if any."""
    return next((parameters[key] for key in ("jaxpr", "call_jaxpr", "call") if parameters.get(key) is not None), None)


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


def _select(graph: Graph, which: Any, *cases: Any) -> Any:
    if len(cases) != 2 or not isinstance(which, Node | bool):
        raise _too_many_cases(graph)
    return graph.apply("select", which, cases[1], cases[0])


def _too_many_cases(graph: Graph) -> DeploymentError:
    return DeploymentError(f"a choice among more than two cases is not supported in {graph.target}")


# names of operations on entries in jaxprs, and here
_SPELLED = {"add": "+", "add_any": "+", "sub": "-", "mul": "*", "div": "/", "neg": "negative", "abs": "fabs"}
_SPELLED |= {"rem": "fmod", "lt": "<", "le": "<=", "eq": "==", "ne": "!=", **{x: x for x in (*_SAME, *_LOGIC, "not")}}
_UNCHANGED = ("copy", "copy_p", "convert_element_type", "stop_gradient", "real", "device_put", "reshard")
_ENTRIES: dict[str, Callable] = {
    **{name: lambda g, *x, kind=kind: g.apply(kind, *x) for name, kind in _SPELLED.items()},
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
    return _summed(graph, each(functools.partial(graph.apply, "*"), a, b), (-1,))


def _summed(graph: Graph, x: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    for axis in sorted((axis % x.ndim for axis in axes), reverse=True):
        total = np.full(x.shape[:axis] + x.shape[axis + 1 :], 0.0, object)
        for k in range(x.shape[axis]):
            total = each(functools.partial(graph.apply, "+"), total, np.asarray(np.take(x, k, axis), object))
        x = total
    return x


# for each operation, positions of the operands whose entries are moved (None: all operands); the other operands are indices
MOVES: dict[str, tuple[int, ...] | None] = {
    **dict.fromkeys(("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "rev", "concatenate")),
    **dict.fromkeys(("stack", "slice", "pad", "split", "unstack")),
    **dict.fromkeys(("dynamic_slice", "gather"), (0,)),
    "dynamic_update_slice": (0, 1),
    "scatter": (0, 2),
}


def moved(graph: Graph, equation: Any, of: list[np.ndarray]) -> list[np.ndarray]:
    """Rearrange entries: JAX applies the operation to their indices, and the result gives the source of each entry."""
    name, entries_at = equation.primitive.name, MOVES[equation.primitive.name]
    arguments, held, start = [], [], 0
    for k, x in enumerate(of):
        if entries_at is None or k in entries_at:
            arguments.append(np.arange(start, start + x.size).reshape(x.shape))
            held.append(x.ravel())
            start += x.size
        else:
            arguments.append(_positions(graph, f"the operation {name!r}", x))
    found, entries_of = equation.primitive.bind(*arguments, **equation.params), np.concatenate(held)
    several = found if equation.primitive.multiple_results else [found]
    return [np.asarray(entries_of[np.asarray(x)], object) for x in several]


def _positions(graph: Graph, what: str, x: np.ndarray) -> np.ndarray:
    """Indices, which must be known."""
    if any(isinstance(entry, Node) for entry in x.ravel()):
        raise DeploymentError(f"{what} at an index that depends on the arguments is not supported in {graph.target}")
    return x.astype(int)


def _scattered(graph: Graph, equation: Any, of: list[np.ndarray]) -> np.ndarray:
    """Add entries at given indices; the Jacobian of JAX's operation gives the target of each added entry."""
    x, added, places = of[0].flatten(), of[2].ravel(), _positions(graph, "a sum", of[1])
    dtype = equation.invars[0].aval.dtype  # that of the operation's sum, even if it is not the default
    apply = lambda y: equation.primitive.bind(jnp.zeros(of[0].shape, dtype), places, y, **equation.params)
    where = np.asarray(jax.jacfwd(apply)(jnp.zeros(of[2].shape, dtype))).reshape(len(x), len(added))
    for to, k in np.argwhere(where).tolist():
        x[to] = graph.apply("+", x[to], added[k])
    return x.reshape(of[0].shape)


def _scanned(graph: Graph, parameters: dict, of: list[np.ndarray]) -> list[np.ndarray]:
    inner, (fixed, carried) = parameters["jaxpr"], scan_counts(parameters)
    constants, carry, rows = of[:fixed], of[fixed : fixed + carried], of[fixed + carried :]
    outputs: list[Any] = [None] * parameters["length"]
    for k in reversed(range(len(outputs))) if parameters["reverse"] else range(len(outputs)):
        found = entries(graph, inner, [*constants, *carry, *(np.asarray(x[k], object) for x in rows)])
        carry, outputs[k] = found[:carried], found[carried:]
    if not outputs:
        return [*carry, *(np.empty((0, *v.aval.shape), object) for v in inner.jaxpr.outvars[carried:])]
    return [*carry, *(np.stack(column) for column in zip(*outputs, strict=True))]


def _looped(graph: Graph, parameters: dict, of: list[np.ndarray]) -> list[np.ndarray]:
    first, second = parameters["cond_nconsts"], parameters["cond_nconsts"] + parameters["body_nconsts"]
    carry = of[second:]
    for _ in range(LONGEST):
        goes_on = entries(graph, parameters["cond_jaxpr"], [*of[:first], *carry])[0].item()
        if isinstance(goes_on, Node):
            break
        if not goes_on:
            return carry
        carry = entries(graph, parameters["body_jaxpr"], [*of[first:second], *carry])
    raise DeploymentError(
        f"a loop whose number of iterations depends on the arguments is not supported in {graph.target}"
    )


def _chosen(graph: Graph, parameters: dict, of: list[np.ndarray]) -> list[np.ndarray]:
    which, branches = of[0].item(), parameters["branches"]
    if not isinstance(which, Node):
        return entries(graph, branches[min(max(int(which), 0), len(branches) - 1)], of[1:])
    if len(branches) != 2:
        raise _too_many_cases(graph)
    pairs = zip(*(entries(graph, branch, of[1:]) for branch in branches), strict=True)
    return [each(lambda a, b: graph.apply("select", which, b, a), *pair) for pair in pairs]


_LOOPS: dict[str, Callable[[Graph, dict, list], list]] = {
    "scan": _scanned,
    "while": _looped,
    "cond": _chosen,
    "optimization_barrier": lambda graph, parameters, of: of,
}


@dataclasses.dataclass(frozen=True)
class Index:
    """The integer `offset` plus the sum of stride * (current iteration of loop) over all `terms` (loop, stride)."""

    offset: int
    terms: tuple = ()

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


def _is_index(x: Scalar) -> bool:
    return isinstance(x, Node) and x.kind == "index"


def _index(x: Scalar) -> Index | None:
    if isinstance(x, Node):
        return Index(*x.of) if x.kind == "index" else None
    return Index(int(x)) if abs(x) < 2**31 and x == int(x) else None


def _of_integers(kind: str, of: tuple) -> Index | bool | None:
    """Apply an operation to integers; return an integer, a truth value that holds in all iterations, or None if unknown."""
    numbers = [x for x in map(_index, of) if x is not None]
    if len(numbers) < len(of) or kind not in ("+", "-", "*", "negative", "<", "<=", "==", "!="):
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


def _increment(jaxpr: Any, place: int, result: int) -> int | None:
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
    position, parameters, name = equation.outvars.index(variable), equation.params, equation.primitive.name
    inner = _nested(parameters)
    inner = getattr(inner, "jaxpr", inner)
    source: Any = None
    added = 0
    if name == "add" and variable.aval.dtype.kind in "iu" and variable.aval.shape == ():
        varied = [x for x in equation.invars if not isinstance(x, Literal)]
        if len(varied) == 1:
            source, added = varied[0], next(int(x.val) for x in equation.invars if isinstance(x, Literal))
    elif name == "scan":
        fixed, carried = scan_counts(parameters)
        turn = _increment(inner, fixed + position, position) if position < carried else None
        if turn is not None:
            source, added = equation.invars[fixed + position], turn * parameters["length"]
    elif inner is not None and len(inner.outvars) == len(equation.outvars):
        within = _shift(inner, inner.outvars[position])
        if within is not None:
            source, added = equation.invars[within[0]], within[1]
    found = None if source is None else _shift(jaxpr, source)
    return None if found is None else (found[0], found[1] + added)


MOST = 150_000  # maximum number of operations of a function
SMALL = 400  # maximum number of operations of an unrolled loop
# Loops over links are unrolled in library functions of up to this many operations (`cost`), such as forward dynamics of up to
# 17 joints. The limit is needed because Triton's compile time grows with the square of the size. Loops that are not unrolled
# pass values from link to link through memory.
STRAIGHT = 60_000
# if a column has more runs of equal values than this, an iteration reads its value from memory instead of selecting it
CHOICES = 8


@dataclasses.dataclass(eq=False)
class Memory:
    """Block of memory for one state: numbers to read, or a buffer that a loop writes and later operations read."""

    size: int
    argument: int | None = None  # index of the argument leaf
    values: list[float] | None = None  # constants, shared by all states


@dataclasses.dataclass(eq=False)
class Store:
    """A scalar written to `memory` at `offset` plus the sum of stride * (iteration of loop) over all `terms` (loop, stride)."""

    memory: Memory
    offset: int
    terms: tuple
    value: Scalar


@dataclasses.dataclass(eq=False)
class Loop:
    """A loop that is not unrolled."""

    length: int
    items: list = dataclasses.field(default_factory=list)  # operations, stores and loops of an iteration, in order
    carried: list[Node] = dataclasses.field(default_factory=list)  # "carry" nodes: values at the start of an iteration
    first: list[Scalar] = dataclasses.field(default_factory=list)  # values before the first iteration
    last: list[Scalar] = dataclasses.field(default_factory=list)  # values at the end of an iteration


class LoopGraph(Graph):
    """A graph that does not unroll long loops; integers are stored in the floating-point type."""

    # Kinds of nodes besides those of `Graph`, with their operands:
    # "load": memory, offset, terms ((loop, stride), ...)
    # "index", an integer: offset, terms
    # "carry" and "result": loop, number
    # "truncate", which rounds to an integer towards zero: a scalar

    target = "a kernel"

    def __init__(self) -> None:
        super().__init__()
        self.items: list = []
        self._blocks: list[tuple[list, dict]] = [(self.items, self._known)]
        self._count = 0
        self._straight = False
        self._tables: dict[tuple, Memory] = {}

    def apply(self, kind: str, *of: Scalar) -> Scalar:
        if any(map(_is_index, of)) and (found := _of_integers(kind, of)) is not None:
            return self.index(found) if isinstance(found, Index) else found
        first = of[0]
        if kind == "truncate" and (_is_index(first) or not isinstance(first, Node)):
            return first if isinstance(first, Node) else float(np.trunc(first))
        if kind == "!=" and isinstance(first, Node) and first.kind == "select":
            if (*first.of[1:], of[1]) == (1.0, 0.0, 0.0):
                return first.of[0]
        return super().apply(kind, *of)

    def index(self, index: Index) -> Scalar:
        """An integer that depends on the iterations of loops."""
        return self._node("index", (index.offset, index.terms)) if index.terms else float(index.offset)

    def load(self, memory: Memory, offset: int, terms: tuple = ()) -> Node:
        """The number in `memory` at `offset` plus the sum of stride * (iteration of loop) over all `terms` (loop, stride)."""
        return self._node("load", (memory, offset, terms))

    def block(self, memory: Memory, shape: tuple[int, ...]) -> np.ndarray:
        """All numbers in a block of memory, as an array."""
        return _array([self.load(memory, k) for k in range(memory.size)], shape)

    def special(self, equation: Any, of: list[np.ndarray]) -> list[np.ndarray] | None:
        name, parameters = equation.primitive.name, equation.params
        if name == "by_platform":
            return self._written_out(equation, of)
        if name == "scan":
            return self._looping(parameters, of)
        if name == "cond":
            which = self.converted(of[0], equation.invars[0].aval.dtype, bool)
            return _chosen(self, parameters, [which, *of[1:]]) if len(parameters["branches"]) == 2 else None
        if name == "convert_element_type":
            return [self.converted(of[0], equation.invars[0].aval.dtype, parameters["new_dtype"])]
        if name in ("dynamic_slice", "gather"):
            return self._placed(equation, of)
        if name in ("div", "and", "or", "not", "xor") and equation.outvars[0].aval.dtype.kind in "iu":
            if name != "div":
                raise DeploymentError(f"the bitwise operation {name!r} on integers is not supported in a kernel")
            quotient = lambda a, b: self.apply("truncate", self.apply("/", a, b))  # rounded towards zero
            return [each(quotient, *np.broadcast_arrays(*of))]
        return None

    def _node(self, kind: str, of: Sequence) -> Node:
        key = (kind, *(x if isinstance(x, Node | Memory | Loop | tuple) else repr(x) for x in of))
        for _, known in reversed(self._blocks):
            if key in known:
                return known[key]
        if self._count >= MOST and kind != "load":
            raise DeploymentError(f"the traced function has more than {MOST} operations")
        items, known = self._blocks[-1]
        known[key] = node = Node(kind, tuple(of), self._count)
        items.append(node)
        self._count += 1
        return node

    def _written_out(self, equation: Any, of: list[np.ndarray]) -> list[np.ndarray]:
        """The results of a library function in its non-CPU form; loops over links are unrolled unless the function is large."""
        shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars]
        closed = jax.make_jaxpr(equation.params["default"])(*shapes)
        before = self._straight
        self._straight = before or cost(closed.jaxpr) <= STRAIGHT
        try:
            return entries(self, closed, of)
        finally:
            self._straight = before

    def converted(self, x: np.ndarray, old: Any, new: Any) -> np.ndarray:
        """Convert entries between numbers, integers and truth values; all but truth values are already numbers."""
        old, new = np.dtype(old), np.dtype(new)
        if new.kind == "b" and old.kind != "b":
            return each(lambda y: self.apply("!=", y, 0.0), x)
        if old.kind == "b" and new.kind != "b":
            return each(lambda y: self.apply("select", y, 1.0, 0.0), x)
        if new.kind in "iu" and old.kind not in "iu":
            return each(lambda y: self.apply("truncate", y), x)
        return x

    def _restored(self, x: np.ndarray, dtype: Any) -> np.ndarray:
        """Entries that were converted to numbers in their original type; integers remain numbers."""
        return self.converted(x, float, dtype) if dtype.kind == "b" else x

    def _placed(self, equation: Any, of: list[np.ndarray]) -> list[np.ndarray] | None:
        """Entries at positions that depend on a loop's iteration, selected from one precomputed row per iteration."""
        held = MOVES[equation.primitive.name]
        places = {k for k in range(len(of)) if held is not None and k not in held}
        loop = next((loop for k in places for x in of[k].ravel() if _is_index(x) for loop, _ in x.of[1]), None)
        if loop is None:
            return None

        def at(turn: int) -> np.ndarray:
            here = lambda x: self.index(Index(*x.of).at(loop, turn)) if _is_index(x) else x
            known = [each(here, x) if k in places else x for k, x in enumerate(of)]
            return (self._placed(equation, known) or moved(self, equation, known))[0]

        turns = np.stack([at(turn) for turn in range(loop.length)])
        dtype = equation.outvars[0].aval.dtype
        return [self._row(loop, self.converted(turns, dtype, float), dtype, 0, 1)]

    def _looping(self, parameters: dict, of: list[np.ndarray]) -> list[np.ndarray] | None:
        """The results of a scan that remains a loop, or None if the scan is to be unrolled."""
        length, inner = parameters["length"], parameters["jaxpr"]
        if length < 2 or self._straight or cost(inner.jaxpr) * length <= SMALL:
            return None
        fixed, carried = scan_counts(parameters)
        loop, before = Loop(length), self._count
        first, step = (length - 1, -1) if parameters["reverse"] else (0, 1)
        added = [_increment(inner.jaxpr, fixed + k, k) for k in range(carried)]
        types, kinds = ([v.aval.dtype for v in some] for some in (inner.jaxpr.outvars, inner.jaxpr.invars[fixed:]))
        given = [self.converted(x, t, float) for x, t in zip(of[fixed:], kinds, strict=True)]
        start = given[:carried]
        self._blocks.append((loop.items, {}))
        try:
            carry = [self._carried(loop, *x) for x in zip(start, added, types[:carried], strict=True)]
            rows = [self._row(loop, *x, first, step, -2) for x in zip(given[carried:], kinds[carried:], strict=True)]
            found = entries(self, inner, [*of[:fixed], *carry, *rows])
            found = [self.converted(x, t, float) for x, t in zip(found, types, strict=True)]
            loop.last = [y for x, a in zip(found[:carried], added, strict=True) if a is None for y in x.ravel()]
            memories = [self._kept(loop, x, before, first, step) for x in found[carried:]]
        finally:
            self._blocks.pop()
        self._blocks[-1][0].append(loop)
        numbers = iter(range(len(loop.last)))
        ends = [self._ended(loop, x, a, numbers) for x, a in zip(start, added, strict=True)]
        stacked = [
            np.stack([x] * length) if memory is None else self.block(memory, (length, *x.shape))
            for x, memory in zip(found[carried:], memories, strict=True)
        ]
        return [self._restored(x, t) for x, t in zip([*ends, *stacked], types, strict=True)]

    def _carried(self, loop: Loop, x: np.ndarray, added: int | None, dtype: Any) -> np.ndarray:
        """Carried values at the start of an iteration; for a counter, initial value + increment * iteration."""
        if added is not None:
            count = self.index(Index(0, ((loop, added),) if added else ()))
            return self.converted(each(lambda y: self.apply("+", y, count), x), float, dtype)
        start = len(loop.carried)
        loop.first += x.ravel().tolist()
        loop.carried += [self._node("carry", (loop, start + k)) for k in range(x.size)]
        return self.converted(_array(loop.carried[start:], x.shape), float, dtype)

    def _ended(self, loop: Loop, x: np.ndarray, added: int | None, numbers: Iterator[int]) -> np.ndarray:
        """Carried values after the last iteration."""
        if added is not None:
            return each(lambda y: self.apply("+", y, float(added * loop.length)), x)
        places = [next(numbers) for _ in range(x.size)]
        stays = lambda k: loop.last[k] is loop.carried[k]
        return _array([loop.first[k] if stays(k) else self._node("result", (loop, k)) for k in places], x.shape)

    def _row(self, loop: Loop, rows: np.ndarray, dtype: Any, first: int, step: int, block: int = -1) -> np.ndarray:
        """Row `first + step * iteration` of an array of numbers, converted back to its type."""
        columns = rows.reshape(len(rows), -1).T
        row = [self._entry(loop, column.tolist(), first, step, block) for column in columns]
        return self._restored(_array(row, rows.shape[1:]), dtype)

    def _entry(self, loop: Loop, column: list[Scalar], first: int, step: int, block: int) -> Scalar:
        start = column[0]
        if all(x is start for x in column[1:]):
            return start
        known = [float(x) for x in column if not isinstance(x, Node)]
        if len(known) == len(column):
            return self._known_entry(loop, known, first, step)
        if isinstance(start, Node) and start.kind == "load":
            memory, offset, terms = start.of
            stride = column[1].of[1] - offset if isinstance(column[1], Node) and column[1].kind == "load" else 0
            alike = (
                isinstance(x, Node) and x.kind == "load" and x.of == (memory, offset + k * stride, terms)
                for k, x in enumerate(column)
            )
            if all(alike):
                return self.load(memory, offset + stride * first, (*terms, (loop, stride * step)))
        runs = [k for k in range(1, len(column)) if column[k] is not column[k - 1]]
        if len(runs) < CHOICES:
            row, chosen = self.index(Index(first, ((loop, step),))), column[-1]
            for k in reversed(runs):
                chosen = self.apply("select", self.apply("<", row, float(k)), column[k - 1], chosen)
            return chosen
        memory = Memory(len(column))
        self._blocks[block][0].extend(Store(memory, k, (), x) for k, x in enumerate(column))
        return self.load(memory, first, ((loop, step),))

    def _known_entry(self, loop: Loop, column: list[float], first: int, step: int) -> Scalar:
        if all(x == column[0] for x in column):
            return column[0]
        stride = column[1] - column[0]
        if stride == int(stride) and all(x == column[0] + k * stride and x == int(x) for k, x in enumerate(column)):
            return self.index(Index(int(column[0] + stride * first), ((loop, int(stride) * step),)))
        table = self._tables.setdefault(tuple(column), Memory(len(column), values=column))
        return self.load(table, first, ((loop, step),))

    def _kept(self, loop: Loop, x: np.ndarray, before: int, first: int, step: int) -> Memory | None:
        """Memory in which each iteration stores a result; None for a result that is the same in all iterations."""
        if not any(isinstance(y, Node) and y.place >= before for y in x.ravel()):
            return None
        memory = Memory(loop.length * x.size)
        for k, y in enumerate(x.ravel()):
            loop.items.append(Store(memory, first * x.size + k, ((loop, step * x.size),), y))
        return memory


def _array(scalars: list, shape: tuple[int, ...]) -> np.ndarray:
    found = np.empty(len(scalars), object)
    found[:] = scalars
    return found.reshape(shape)


def cost(jaxpr: Any) -> int:
    """Approximate number of scalar operations of a program."""
    total = 0
    for equation in jaxpr.eqns:
        parameters = equation.params
        inner = [parameters[k] for k in ("jaxpr", "call_jaxpr", "call", "cpu", "body_jaxpr") if k in parameters]
        inner += parameters.get("branches", ())
        turns = parameters["length"] if equation.primitive.name == "scan" else 1
        total += sum(v.aval.size for v in equation.outvars)
        total += sum(turns * cost(getattr(x, "jaxpr", x)) for x in inner)
    return total


def live_items(items: list, results: Iterable[Scalar | Memory]) -> tuple[dict[Any, None], dict[Loop, set[int]]]:
    """The nodes, loops, stores and memories on which results depend, and the indices of the values that each loop carries."""
    around: dict[Any, tuple[Loop, ...]] = {}
    stores: dict[Memory, list[Store]] = {}

    def read(items: list, loops: tuple[Loop, ...]) -> None:
        for item in items:
            around[item] = loops
            if isinstance(item, Loop):
                read(item.items, (*loops, item))
            elif isinstance(item, Store):
                stores.setdefault(item.memory, []).append(item)

    read(items, ())
    live: dict[Any, None] = {}  # in the order of discovery, so that the same function always gives the same kernel
    carried: dict[Loop, set[int]] = {}
    todo: list[Any] = list(results)
    while todo:
        item = todo.pop()
        if item in live or not isinstance(item, Node | Loop | Memory | Store):
            continue
        live[item] = None
        todo += around.get(item, ())
        if isinstance(item, Loop):
            carried.setdefault(item, set())
        elif isinstance(item, Memory):
            todo += stores.get(item, ())
        elif isinstance(item, Store):
            todo.append(item.value)
        elif item.kind in ("carry", "result"):
            loop, number = item.of
            carried.setdefault(loop, set()).add(number)
            todo += [loop, loop.first[number], loop.last[number]]
        elif item.kind == "load":
            todo.append(item.of[0])
        elif item.kind not in ("input", "index"):
            todo += item.of
    return live, carried


_WIDEST = 90  # maximum length of an expression in characters; longer expressions are assigned to a variable
_LEVEL = {"or": 0, "and": 1, "==": 2, "!=": 2, "<": 3, "<=": 3, "+": 4, "-": 4, "*": 5, "/": 5}
_ATOM, _SIGN = 7, 6


@dataclasses.dataclass(frozen=True)
class Language:
    """Syntax of expressions in a programming language."""

    select: str
    words: Mapping[str, str]
    numbers: tuple[str, str, str]  # infinity, -infinity, not a number
    truths: tuple[str, str]  # false, true
    define: str


C = Language(
    "({0} ? {1} : {2})",
    {"and": "&&", "or": "||", "not": "!"},
    ("INFINITY", "-INFINITY", "NAN"),
    ("0", "1"),
    "const double {0} = {1};",
)
PYTHON = Language("({1} if {0} else {2})", {"not": "not "}, ("inf", "-inf", "nan"), ("False", "True"), "{0} = {1}")


def body(
    language: Language, nodes: Sequence[Node], results: Sequence[np.ndarray]
) -> tuple[list[str], list[str], list[list[str]]]:
    """Return the names of the required inputs, the assignments in order, and an expression for every entry of each result."""
    uses = _uses(nodes, results)
    needed: list[str] = []
    lines: list[str] = []
    texts: dict[int, tuple[str, int]] = {}
    said = lambda x: texts[x.place] if isinstance(x, Node) else _number(language, x)
    for node in nodes:
        count = uses[node.place]
        if not count:
            continue
        if node.kind == "input":
            needed.append(node.of[0])
            texts[node.place] = node.of[0], _ATOM
            continue
        text, level = _expression(language, node.kind, [said(x) for x in node.of])
        if count > 1 or len(text) > _WIDEST:
            name = f"v{len(lines)}"
            lines.append(language.define.format(name, text))
            text, level = name, _ATOM
        texts[node.place] = text, level
    return needed, lines, [[said(x)[0] for x in result.ravel()] for result in results]


def used(nodes: Sequence[Node], results: Sequence[np.ndarray]) -> int:
    """Number of operations on which the results depend."""
    uses = _uses(nodes, results)
    return sum(uses[node.place] > 0 and node.kind != "input" for node in nodes)


def _uses(nodes: Sequence[Node], results: Sequence[np.ndarray]) -> list[int]:
    """Number of uses of each node; 0 if no result depends on it."""
    uses = [0] * len(nodes)

    def count(of: Iterable) -> None:
        for x in of:
            if isinstance(x, Node):
                uses[x.place] += 1

    for result in results:
        count(result.ravel())
    for node in reversed(nodes):
        if uses[node.place]:
            count(node.of)
    return uses


def _expression(language: Language, kind: str, of: list[tuple[str, int]]) -> tuple[str, int]:
    """The code of an operation, and its precedence."""
    if kind in INFIX:
        level, word = _LEVEL[kind], language.words.get(kind, kind)
        # evaluate from left to right, so that rounding is the same as in the traced function
        return f"{_within(of[0], level)} {word} {_within(of[1], level + 1)}", level
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
        return language.truths[bool(x)], _ATOM
    if not math.isfinite(x):
        return language.numbers[2 if math.isnan(x) else int(x < 0)], _ATOM
    text = repr(float(x))
    return text, _SIGN if text.startswith("-") else _ATOM

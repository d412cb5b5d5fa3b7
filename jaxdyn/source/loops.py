"""Traced functions as scalar operations in which long loops remain loops whose iterations read and write memory.

Integers that depend on loop iterations (`Index`) are counters and positions in memory. `LoopGraph` builds the graph, and `Live`
finds the parts of it that affect the results.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from .._jax_compat import Literal, scan_counts
from ..errors import DeploymentError
from .code import MOVES, Graph, Node, Scalar, chosen, each, entries, moved


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
        if any(map(is_index, of)) and (found := applied(kind, of)) is not None:
            return self.index(found) if isinstance(found, Index) else found
        first = of[0]
        if kind == "truncate" and (is_index(first) or not isinstance(first, Node)):
            return first if isinstance(first, Node) else float(np.trunc(first))
        if (
            kind == "!="
            and isinstance(first, Node)
            and first.kind == "select"
            and (*first.of[1:], of[1]) == (1.0, 0.0, 0.0)
        ):
            return first.of[0]
        return super().apply(kind, *of)

    def index(self, index: Index) -> Scalar:
        """An integer that depends on the iterations of loops."""
        return self._node("index", (index.offset, index.terms)) if index.terms else float(index.offset)

    def load(self, memory: Memory, offset: int, terms: tuple = ()) -> Node:
        """The number in `memory` at `offset` plus the sum of stride * (iteration of loop) over all `terms` (loop, stride)."""
        return self._node("load", (memory, offset, terms))

    def argument(self, number: int, shape: tuple[int, ...]) -> np.ndarray:
        """The entries of an argument leaf."""
        memory = Memory(int(np.prod(shape)), number)
        nodes = [self.load(memory, k) for k in range(memory.size)]
        return np.array(nodes, object).reshape(shape)

    def special(self, equation: Any, of: list[np.ndarray]) -> list[np.ndarray] | None:
        name, parameters = equation.primitive.name, equation.params
        if name == "by_platform":
            return self._written_out(equation, of)
        if name == "scan":
            return self._scanned(parameters, of)
        if name == "cond":
            which = self.converted(of[0], equation.invars[0].aval.dtype, bool)
            return chosen(self, parameters, [which, *of[1:]]) if len(parameters["branches"]) == 2 else None
        if name == "convert_element_type":
            return [self.converted(of[0], equation.invars[0].aval.dtype, parameters["new_dtype"])]
        if name in ("dynamic_slice", "gather"):
            return self._placed(equation, of)
        if name in ("div", "and", "or", "not", "xor") and equation.outvars[0].aval.dtype.kind in "iu":
            return self._whole(name, of)
        return None

    def _node(self, kind: str, of: Sequence) -> Node:
        key = (kind, *(x if isinstance(x, Node | Memory | Loop | tuple) else repr(x) for x in of))
        for _, known in reversed(self._blocks):
            if key in known:
                return known[key]
        if self._count >= MOST and kind != "load":
            raise DeploymentError(f"the traced function has more than {MOST} operations")
        node = Node(kind, tuple(of), self._count)
        self._count += 1
        items, known = self._blocks[-1]
        items.append(node)
        known[key] = node
        return node

    def _written_out(self, equation: Any, of: list[np.ndarray]) -> list[np.ndarray]:
        """The results of a library function in its non-CPU form; loops over links are unrolled unless the function is large."""
        shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars]
        closed = jax.make_jaxpr(equation.params["default"])(*shapes)
        before = self._straight
        self._straight = before or cost(closed.jaxpr) <= STRAIGHT
        try:
            return entries(self, closed.jaxpr, closed.consts, of)
        finally:
            self._straight = before

    def converted(self, x: np.ndarray, old: Any, new: Any) -> np.ndarray:
        old, new = np.dtype(old), np.dtype(new)
        if new.kind == "b" and old.kind != "b":
            return each(lambda y: self.apply("!=", y, 0.0), x)
        if old.kind == "b" and new.kind != "b":
            return each(lambda y: self.apply("select", y, 1.0, 0.0), x)
        if new.kind in "iu" and old.kind not in "iu":
            return each(lambda y: self.apply("truncate", y), x)
        return x

    def _whole(self, name: str, of: list[np.ndarray]) -> list[np.ndarray]:
        """The result of an integer division, rounded towards zero; bitwise operations raise an error."""
        if name != "div":
            raise DeploymentError(f"the bitwise operation {name!r} on integers is not supported in a kernel")
        return [each(lambda a, b: self.apply("truncate", self.apply("/", a, b)), *np.broadcast_arrays(*of))]

    def _placed(self, equation: Any, of: list[np.ndarray]) -> list[np.ndarray] | None:
        """Entries at positions that depend on a loop's iteration, selected from one precomputed row per iteration."""
        held = MOVES[equation.primitive.name]
        places = {k for k in range(len(of)) if held is not None and k not in held}
        decided = [x for k in places for x in of[k].ravel() if is_index(x)]
        loops = list(dict.fromkeys(loop for x in decided for loop, _ in x.of[1]))
        if not loops:
            return None
        loop = loops[0]

        def at(turn):
            known = [each(lambda x: self._at(x, loop, turn), x) if k in places else x for k, x in enumerate(of)]
            return (self._placed(equation, known) or moved(self, equation, known))[0]

        turns = np.stack([at(turn) for turn in range(loop.length)])
        dtype = equation.outvars[0].aval.dtype
        return [self._row(loop, self.converted(turns, dtype, float), dtype, 0, 1)]

    def _at(self, x: Scalar, loop: Loop, turn: int) -> Scalar:
        return self.index(Index(*x.of).at(loop, turn)) if isinstance(x, Node) and is_index(x) else x

    def _scanned(self, parameters: dict, of: list[np.ndarray]) -> list[np.ndarray] | None:
        """The results of a scan that remains a loop, or None if the scan is to be unrolled."""
        length, inner = parameters["length"], parameters["jaxpr"]
        if length < 2 or self._straight or cost(inner.jaxpr) * length <= SMALL:
            return None
        fixed, carried = scan_counts(parameters)
        constants, init, xs = of[:fixed], of[fixed : fixed + carried], of[fixed + carried :]
        loop, before = Loop(length), self._count
        first, step = (length - 1, -1) if parameters["reverse"] else (0, 1)
        added = [increment(inner.jaxpr, fixed + k, k) for k in range(carried)]
        types = [v.aval.dtype for v in inner.jaxpr.outvars]
        start = [self.converted(x, t, float) if t.kind == "b" else x for x, t in zip(init, types, strict=False)]
        kinds = [v.aval.dtype for v in inner.jaxpr.invars[fixed + carried :]]
        read = [self.converted(x, t, float) for x, t in zip(xs, kinds, strict=True)]
        self._blocks.append((loop.items, {}))
        try:
            carry = [self._carried(loop, *x) for x in zip(start, added, types[:carried], strict=True)]
            rows = [self._row(loop, x, t, first, step, -2) for x, t in zip(read, kinds, strict=True)]
            found = entries(self, inner.jaxpr, inner.consts, [*constants, *carry, *rows])
            found = [self.converted(x, t, float) if t.kind == "b" else x for x, t in zip(found, types, strict=True)]
            loop.last = [y for x, a in zip(found[:carried], added, strict=True) if a is None for y in x.ravel()]
            memories = [self._kept(loop, x, before, first, step) for x in found[carried:]]
        finally:
            self._blocks.pop()
        self._blocks[-1][0].append(loop)
        numbers = iter(range(len(loop.last)))
        ends = [self._ended(loop, x, a, numbers) for x, a in zip(start, added, strict=True)]
        loads = lambda memory: [self.load(memory, k) for k in range(memory.size)]
        stacked = [
            np.stack([x] * length) if memory is None else _array(loads(memory), (length, *x.shape))
            for x, memory in zip(found[carried:], memories, strict=True)
        ]
        return [
            self.converted(x, float, bool) if t.kind == "b" else x
            for x, t in zip([*ends, *stacked], types, strict=True)
        ]

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
        if added is not None:
            return each(lambda y: self.apply("+", y, float(added * loop.length)), x)
        places = [next(numbers) for _ in range(x.size)]
        stays = lambda k: loop.last[k] is loop.carried[k]
        return _array([loop.first[k] if stays(k) else self._node("result", (loop, k)) for k in places], x.shape)

    def _row(self, loop: Loop, rows: np.ndarray, dtype: Any, first: int, step: int, block: int = -1) -> np.ndarray:
        """Row `first + step * iteration` of an array of numbers."""
        row = _over(rows, lambda column: self._entry(loop, column, first, step, block))
        return self.converted(row, float, dtype) if dtype.kind == "b" else row

    def _entry(self, loop: Loop, column: Sequence[Scalar], first: int, step: int, block: int) -> Scalar:
        start = column[0]
        if all(x is start for x in column[1:]):
            return start
        known = [float(x) for x in column if not isinstance(x, Node)]
        if len(known) == len(column):
            return self._known_row(loop, known, first, step)
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

    def _known_row(self, loop: Loop, column: list[float], first: int, step: int) -> Scalar:
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


def _over(x: np.ndarray, function: Callable) -> np.ndarray:
    """Apply a function to every column of an array, that is, along its first axis."""
    columns = x.reshape(len(x), -1)
    return _array([function(columns[:, k].tolist()) for k in range(columns.shape[1])], x.shape[1:])


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


class Live:
    """The nodes, loops, stores and memories on which results depend, and the indices of the values that each loop carries."""

    def __init__(self, graph: LoopGraph, results: Iterable[Scalar], written: Iterable[Memory] = ()) -> None:
        self.items: set = set()
        self.carried: dict[Loop, set[int]] = {}
        self._stores: dict[Memory, list[Store]] = {}
        self._around: dict[int, tuple[Loop, ...]] = {}
        self._todo: list = [*results, *written]
        self._read(graph.items, ())
        while self._todo:
            self._mark(self._todo.pop())

    def _read(self, items: list, around: tuple[Loop, ...]) -> None:
        for item in items:
            if isinstance(item, Loop):
                self._read(item.items, (*around, item))
            elif isinstance(item, Store):
                self._stores.setdefault(item.memory, []).append(item)
            self._around[id(item)] = around

    def _mark(self, item: object) -> None:
        if isinstance(item, Node):
            if item in self.items:
                return
            self.items.add(item)
            if item.kind in ("carry", "result"):
                self._carry(*item.of)
            elif item.kind == "load":
                self._todo.append(item.of[0])
            elif item.kind not in ("input", "index"):
                self._todo.extend(item.of)
            self._todo.extend(self._around[id(item)])
        elif isinstance(item, Loop):
            self.items.add(item)
            self.carried.setdefault(item, set())
        elif isinstance(item, Memory) and item not in self.items:
            self.items.add(item)
            for store in self._stores.get(item, ()):
                self.items.add(store)
                self._todo += [store.value, *self._around[id(store)]]

    def _carry(self, loop: Loop, number: int) -> None:
        self._todo.append(loop)
        kept = self.carried.setdefault(loop, set())
        if number not in kept:
            kept.add(number)
            self._todo += [loop.first[number], loop.last[number]]

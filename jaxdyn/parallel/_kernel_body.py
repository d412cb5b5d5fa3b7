"""Execution of a graph of scalar operations in a Pallas kernel, with one thread per state and scalars in registers."""

import dataclasses
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import jax.numpy as jnp
import numpy as np
from jax import lax

from .._source.live import Live
from .._source.loops import Loop, LoopGraph, Memory, Store
from .._source.scalars import Node, Scalar
from ..errors import DeploymentError
from ._kernel_order import Write, ordered

IN_REGISTERS = 32  # maximum size of an argument that is read into registers before the loops
ONE_BY_ONE = 2000  # maximum number of result entries written outside loops
# Maximum number of consecutive entries of a result that one statement writes, for functions of up to LARGE operations and for
# larger ones. Triton's compile time grows with the number of such statements and with the square of the number of operations.
# The entries written by a statement occupy registers until it is executed.
TOGETHER, LARGE = (16, 64), 6000


@dataclasses.dataclass(frozen=True)
class Plan:
    """Memory layout of a kernel's results and buffers.

    Attributes:
        graph: operations of the function.
        results: results as arrays of scalars.
        within: index of the result and offset in the result, for each buffer stored in a result.
        scratch: buffers stored outside the results.
        tables: constant arrays.
        live: parts of the graph on which the results depend.
    """

    graph: LoopGraph
    results: list[np.ndarray]
    within: dict[Memory, tuple[int, int]]
    scratch: list[Memory]
    tables: list[Memory]
    live: Live

    def writes(self, together: int) -> list[Write]:
        """Result entries that no loop writes, in groups of up to `together` consecutive entries."""
        found: list[Write] = []
        for number, result in enumerate(self.results):
            for place, x in _singles(result, self.within, number):
                last = found[-1] if found and found[-1].result == number else None
                if last and place == last.place + len(last.values) and len(last.values) < together:
                    last.values.append(x)
                else:
                    found.append(Write(number, place, [x]))
        return found


def plan(graph: LoopGraph, results: list[np.ndarray]) -> Plan:
    """Choose the memory layout of a kernel.

    A buffer that a loop fills in the order of a result is stored in the result itself.

    Raises:
        DeploymentError: too many entries of the results are not written in order by loops.
    """
    within: dict[Memory, tuple[int, int]] = {}
    for number, result in enumerate(results):
        flat = result.ravel().tolist()
        for place, x in enumerate(flat):
            memory = _written(x)
            if memory is not None and memory not in within:
                start = place - x.of[1]
                covered = flat[start : start + memory.size] if start >= 0 else []
                if len(covered) == memory.size and all(_at(y, memory, k) for k, y in enumerate(covered)):
                    within[memory] = number, start
    singles = [x for number, result in enumerate(results) for _, x in _singles(result, within, number)]
    if len(singles) > ONE_BY_ONE:
        raise DeploymentError(f"{len(singles)} entries of the results are not written in order by a loop")
    live = Live(graph, singles, within)
    memories = [x for x in live.items if isinstance(x, Memory) and x.argument is None]
    tables = [x for x in memories if x.values is not None]
    scratch = [x for x in memories if x.values is None and x not in within]
    return Plan(graph, results, within, scratch, tables, live)


def _written(x: Scalar) -> Memory | None:
    if not isinstance(x, Node) or x.kind != "load":
        return None
    return x.of[0] if x.of[0].argument is None and x.of[0].values is None else None


def _at(x: Scalar, memory: Memory, place: int) -> bool:
    return isinstance(x, Node) and x.kind == "load" and x.of == (memory, place, ())


def _singles(result: np.ndarray, within: Mapping[Memory, tuple[int, int]], number: int) -> list[tuple[int, Scalar]]:
    """Positions and values of the entries of a result that are not part of a buffer stored in this result."""

    def lies(x, place):
        memory = _written(x)
        return memory is not None and within.get(memory) == (number, place - x.of[1])

    return [(k, x) for k, x in enumerate(result.ravel().tolist()) if not lies(x, k)]


@runtime_checkable
class Access(Protocol):
    """Access to the memory of a kernel.

    Values have one entry per lane. Positions are Python integers or traced integers.
    """

    def by_state(self, memory: Memory) -> bool:
        """True if each state has its own copy of this memory."""
        ...

    def read(self, memory: Memory, place: Any, count: int) -> list:
        """Read consecutive entries of a buffer."""
        ...

    def write(self, memory: Memory, place: Any, values: list) -> None:
        """Store consecutive entries of a buffer."""
        ...

    def result(self, number: int, place: int, values: list) -> None:
        """Store consecutive entries of a result."""
        ...


@dataclasses.dataclass(eq=False)
class Stores:
    """Consecutive entries of a buffer, stored together."""

    memory: Memory
    offset: int
    terms: tuple
    values: list[Scalar]


def _grouped(items: Sequence) -> list:
    """Combine adjacent stores of consecutive entries."""
    found: list = []
    for item in items:
        if not isinstance(item, Store):
            found.append(item)
            continue
        last = found[-1] if found and isinstance(found[-1], Stores) else None
        same = last is not None and last.memory is item.memory and last.terms == item.terms
        if (
            last is not None
            and same
            and last.offset + len(last.values) == item.offset
            and len(last.values) < TOGETHER[0]
        ):
            last.values.append(item.value)
        else:
            found.append(Stores(item.memory, item.offset, item.terms, [item.value]))
    return found


class Body:
    """Execution of a plan for several states at once, one per lane.

    Args:
        memory: access to buffers and results.
        zero: function that returns an integer whose value, zero, is not known to the compiler.
        lanes: number of states.
    """

    def __init__(self, plan: Plan, memory: Access, zero: Callable[[], Any], lanes: int, dtype: Any) -> None:
        self._plan, self._memory, self._zero = plan, memory, zero
        self._lanes, self._type = lanes, np.dtype(dtype).type

    def run(self) -> None:
        """Run the plan."""
        writes = self._plan.writes(TOGETHER[len(self._plan.live.items) > LARGE])
        self._items(self._plan.graph.items, writes, (), self._start(), {})

    def _start(self) -> dict[Any, Any]:
        """Values of the argument entries that are kept in registers."""
        loads = [
            x for x in self._plan.graph.items if isinstance(x, Node) and x in self._plan.live.items and _is_entry(x)
        ]
        known = {}
        for memory in dict.fromkeys(x.of[0] for x in loads):
            values = self._memory.read(memory, 0, memory.size)
            known.update({x: values[x.of[1]] for x in loads if x.of[0] is memory})
        return known

    def _items(
        self, items: Sequence, writes: Sequence[Write], ends: Sequence[Scalar], known: dict, turns: dict[Loop, Any]
    ) -> None:
        items = [x for x in items if x in self._plan.live.items and x not in known and not _is_read_where_used(x)]
        beside = self._neighbours(items)
        for item in ordered(_grouped(items), writes, ends, self._operands):
            if isinstance(item, Loop):
                self._loop(item, known, turns)
            elif isinstance(item, Stores):
                place = self._place(item.offset, item.terms, turns)
                self._memory.write(item.memory, place, [self._lane(known, x, turns) for x in item.values])
            elif isinstance(item, Write):
                self._memory.result(item.result, item.place, [self._lane(known, x, turns) for x in item.values])
            elif item.kind == "load" and item not in known:
                loads = beside[item]
                place = self._place(loads[0].of[1], item.of[2], turns)
                known.update(zip(loads, self._memory.read(item.of[0], place, len(loads)), strict=True))
            elif item.kind not in ("carry", "result", "load"):
                known[item] = self._computed(item, known, turns)

    def _neighbours(self, items: Sequence) -> dict[Node, list[Node]]:
        """For each load, the group of loads of consecutive entries that are executed together with it."""
        found: dict[Node, list[Node]] = {}
        loads = [x for x in items if isinstance(x, Node) and x.kind == "load"]
        for x in sorted(loads, key=lambda x: (id(x.of[0]), id(x.of[2]), x.of[1])):
            last = next(reversed(found), x)
            group = found[last] if last is not x else []
            (memory, offset, terms), before = x.of, last.of
            follows = before[0] is memory and before[1] + 1 == offset and before[2] == terms
            if not (group and follows and len(group) < TOGETHER[0] and self._memory.by_state(memory)):
                group = []
            group.append(x)
            found[x] = group
        return found

    def _operands(self, item: Any) -> list[Node]:
        """Nodes that must be known before an item is executed."""
        if isinstance(item, Loop):
            inner = [y for x in item.items if x in self._plan.live.items for y in self._operands(x)]
            kept = self._plan.live.carried[item]
            return [x for x in [*inner, *(y[k] for y in (item.first, item.last) for k in kept)] if isinstance(x, Node)]
        if isinstance(item, Node):
            of = () if item.kind in ("load", "index", "carry", "result", "input") else item.of
        else:
            of = (item.value,) if isinstance(item, Store) else item.values
        return [x for x in of if isinstance(x, Node)]

    def _loop(self, loop: Loop, known: dict, turns: dict[Loop, Any]) -> None:
        kept = sorted(self._plan.live.carried[loop])

        def body(turn, carry):
            inside = {x: y for x, y in known.items() if not (isinstance(x, Node) and _is_read_where_used(x))}
            inside |= {loop.carried[k]: x for k, x in zip(kept, carry, strict=True)}
            now = {**turns, loop: turn}
            self._items(loop.items, (), [loop.last[k] for k in kept], inside, now)
            return tuple(self._lane(inside, loop.last[k], now) for k in kept)

        start = tuple(self._lane(known, loop.first[k], turns) for k in kept)
        ends = lax.fori_loop(np.int32(0), np.int32(loop.length), body, start)
        known.update({(loop, k): x for k, x in zip(kept, ends, strict=True)})

    def _computed(self, node: Node, known: dict, turns: dict[Loop, Any]) -> Any:
        if node.kind == "index":
            return self._full(jnp.asarray(self._place(node.of[0], node.of[1], turns)).astype(self._type))
        if node.kind == "select":
            which, then, otherwise = (self._lane(known, x, turns) for x in node.of)
            return jnp.where(which, then, otherwise)
        of = [self._of(known, x, turns) for x in node.of]
        if node.kind not in FUNCTIONS:
            raise DeploymentError(f"the function {node.kind!r} is not supported in a kernel")
        return FUNCTIONS[node.kind](*of)

    def _of(self, known: dict, x: Scalar, turns: dict[Loop, Any]) -> Any:
        if isinstance(x, Node):
            return self._lane(known, x, turns)
        return x if isinstance(x, bool) else self._type(x)

    def _lane(self, known: dict, x: Scalar, turns: dict[Loop, Any]) -> Any:
        if not isinstance(x, Node):
            return jnp.full(self._lanes, x, bool if isinstance(x, bool) else self._type)
        place = x.of if x.kind == "result" else x
        if place not in known:
            known[place] = self._loaded(x, turns)
        return known[place]

    def _loaded(self, node: Node, turns: dict[Loop, Any]) -> Any:
        memory, offset, terms = node.of
        place = self._place(offset, terms, turns)
        if _is_read_where_used(node) and turns:
            place = place + list(turns.values())[-1] * self._zero()
        return self._memory.read(memory, place, 1)[0]

    def _full(self, x: Any) -> Any:
        return jnp.broadcast_to(x, (self._lanes,))

    def _place(self, offset: int, terms: tuple, turns: dict[Loop, Any]) -> Any:
        place: Any = np.int32(offset) if terms else offset
        for loop, stride in terms:
            place = place + turns[loop] * np.int32(stride)
        return place


def _is_entry(node: Node) -> bool:
    """True for an entry of an argument that is small enough for registers."""
    return (
        node.kind == "load" and node.of[0].argument is not None and not node.of[2] and node.of[0].size <= IN_REGISTERS
    )


def _is_read_where_used(item: object) -> bool:
    """True for an entry of an argument that is too large for registers, and is therefore read in every iteration.

    The position is made to look dependent on the iteration. Otherwise, the compiler would read all entries before the loop.
    """
    if not isinstance(item, Node) or item.kind != "load":
        return False
    memory, _, terms = item.of
    return memory.argument is not None and not terms and memory.size > IN_REGISTERS


def _truncate(x: Any) -> Any:
    return x.astype(jnp.int32).astype(x.dtype)


def _floor(x: Any) -> Any:
    whole = _truncate(x)
    return jnp.where(whole > x, whole - 1, whole)


FUNCTIONS: dict[str, Callable] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    "and": operator.and_,
    "or": operator.or_,
    "not": lax.bitwise_not,
    "negative": operator.neg,
    "fabs": lax.abs,
    "fmod": lax.rem,
    "truncate": _truncate,
    "floor": _floor,
    **{
        name: getattr(lax, name)
        for name in (
            *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
            *("exp", "expm1", "log", "log1p", "sqrt", "pow"),
        )
    },
}

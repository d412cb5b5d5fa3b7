"""A function of one state as one Pallas kernel, with one thread per state and scalars in registers.

`call_kernel` decomposes the function into scalar operations (`source.loops`), `plan` lays out its memory, `Body` executes the
operations in an order that keeps few scalars in registers (`ordered`), and `_Refs` reads and writes the kernel's arrays.
"""

import dataclasses
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .._jax_compat import pallas, pallas_triton
from ..dynamics.engine.lanes import filled
from ..errors import DeploymentError
from ..source import code
from ..source.code import Node, Scalar, entries
from ..source.loops import Live, Loop, LoopGraph, Memory, Store

WARP = 32  # states per block, one per thread


@dataclasses.dataclass(eq=False)
class Write:
    """Consecutive entries of a result, written together."""

    result: int
    place: int
    values: list[Scalar]


def ordered(
    items: Sequence, writes: Sequence[Write], kept: Sequence[Scalar], operands: Callable[[object], Collection[Scalar]]
) -> list:
    """Sort items and writes so that operands come first: as traced or by first use, whichever keeps fewer scalars alive."""
    within = {x for x in items if isinstance(x, Node)}
    needs = {x: [y for y in operands(x) if y in within] for x in (*items, *writes)}
    found = [list(order(items, writes, needs)) for order in (_by_trace, _by_use)]
    ends = [x for x in kept if x in within]
    return min(found, key=lambda order: _most_alive(order, ends, needs))


def _by_trace(items: Sequence, writes: Sequence[Write], needs: dict) -> Iterator:
    place = {x: k for k, x in enumerate(items)}
    after: dict[int, list[Write]] = {}
    for write in writes:
        after.setdefault(max((place[x] for x in needs[write]), default=-1), []).append(write)
    yield from after.get(-1, ())
    for k, item in enumerate(items):
        yield item
        yield from after.get(k, ())


def _by_use(items: Sequence, writes: Sequence[Write], needs: dict) -> Iterator:
    done: set = set()
    for end in (*(x for x in items if not isinstance(x, Node)), *writes, *items):
        todo = [(end, False)]
        while todo:
            x, ready = todo.pop()
            if ready:
                yield x
            elif x not in done:
                done.add(x)
                todo += [(x, True), *((y, False) for y in reversed(needs[x]))]


def _most_alive(order: list, ends: Sequence[Node], needs: dict) -> int:
    """Maximum number of live scalars at any point of the order."""
    last = {y: k for k, x in enumerate(order) for y in needs[x]} | dict.fromkeys(ends, len(order))
    change = [0] * (len(order) + 2)
    for k, x in enumerate(order):
        if x in last:
            change[k] += 1
            change[last[x] + 1] -= 1
    alive = most = 0
    for x in change:
        alive += x
        most = max(most, alive)
    return most


IN_REGISTERS = 32  # maximum size of an argument that is read into registers before the loops
ONE_BY_ONE = 2000  # maximum number of result entries written outside loops
# Maximum number of consecutive entries of a result that one statement writes, for functions of up to LARGE operations and for
# larger ones. Triton's compile time grows with the number of such statements and with the square of the number of operations.
# The entries written by a statement occupy registers until it is executed. A block of an array has room for such a group beyond
# its end, because Triton accesses 2, 4, 8, ... entries at a time.
TOGETHER, LARGE = (16, 64), 6000


@dataclasses.dataclass(frozen=True)
class Plan:
    """Memory layout of a kernel's results and buffers."""

    graph: LoopGraph
    results: list[np.ndarray]
    within: dict[Memory, tuple[int, int]]  # index of the result and offset, for each buffer stored in a result
    scratch: list[Memory]  # buffers stored outside the results
    tables: list[Memory]  # constant arrays
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
    """Choose the memory layout of a kernel."""
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


@dataclasses.dataclass(eq=False)
class Stores:
    """Consecutive entries of a buffer, stored together."""

    memory: Memory
    offset: int
    terms: tuple
    values: list[Scalar]

    def goes_on_with(self, store: Store) -> bool:
        place = self.memory, self.offset + len(self.values), self.terms
        return place == (store.memory, store.offset, store.terms)


def _grouped(items: Sequence) -> list:
    """Combine adjacent stores of consecutive entries."""
    found: list = []
    for item in items:
        if not isinstance(item, Store):
            found.append(item)
            continue
        last = found[-1] if found and isinstance(found[-1], Stores) else None
        if last is not None and len(last.values) < TOGETHER[0] and last.goes_on_with(item):
            last.values.append(item.value)
        else:
            found.append(Stores(item.memory, item.offset, item.terms, [item.value]))
    return found


class Body:
    """Execution of a plan for several states at once, one per lane."""

    def __init__(self, plan: Plan, memory: "_Refs", zero: Callable[[], Any], dtype: Any) -> None:
        self._plan, self._memory, self._zero = plan, memory, zero
        self._type = np.dtype(dtype).type

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
            return jnp.broadcast_to(jnp.asarray(self._place(node.of[0], node.of[1], turns)).astype(self._type), (WARP,))
        if node.kind == "select":
            which, then, otherwise = (self._lane(known, x, turns) for x in node.of)
            return jnp.where(which, then, otherwise)
        if node.kind not in FUNCTIONS:
            raise DeploymentError(f"the function {node.kind!r} is not supported in a kernel")
        plain = lambda x: x if isinstance(x, bool) else self._type(x)
        return FUNCTIONS[node.kind](
            *(self._lane(known, x, turns) if isinstance(x, Node) else plain(x) for x in node.of)
        )

    def _lane(self, known: dict, x: Scalar, turns: dict[Loop, Any]) -> Any:
        if not isinstance(x, Node):
            return jnp.full(WARP, x, bool if isinstance(x, bool) else self._type)
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

    def _place(self, offset: int, terms: tuple, turns: dict[Loop, Any]) -> Any:
        place: Any = np.int32(offset) if terms else offset
        for loop, stride in terms:
            place = place + turns[loop] * np.int32(stride)
        return place


def _is_entry(node: Node) -> bool:
    """True for an entry of an argument that is small enough for registers."""
    return _is_argument(node) and node.of[0].size <= IN_REGISTERS


def _is_argument(item: object) -> bool:
    """True for an entry of an argument at a known position."""
    return isinstance(item, Node) and item.kind == "load" and item.of[0].argument is not None and not item.of[2]


def _is_read_where_used(item: object) -> bool:
    """True for an argument too large for registers: its entries are read in every iteration, not all before the loop."""
    return isinstance(item, Node) and _is_argument(item) and item.of[0].size > IN_REGISTERS


def _truncate(x: Any) -> Any:
    return x.astype(jnp.int32).astype(x.dtype)


def _floor(x: Any) -> Any:
    whole = _truncate(x)
    return jnp.where(whole > x, whole - 1, whole)


FUNCTIONS: dict[str, Callable] = {name: getattr(lax, name) for name in code.FUNCTIONS if hasattr(lax, name)}
FUNCTIONS |= code.INFIX | {"and": operator.and_, "or": operator.or_, "not": lax.bitwise_not, "negative": operator.neg}
FUNCTIONS |= {"fabs": lax.abs, "fmod": lax.rem, "truncate": _truncate, "floor": _floor}


def call_kernel(
    function: Callable, mapped: Sequence[bool], variables: Sequence[jax.Array], interpret: bool
) -> list[jax.Array]:
    """Evaluate function(*variables) in one kernel, for all rows of the mapped variables."""
    count = next(len(x) for x, m in zip(variables, mapped, strict=True) if m)
    shapes = [x.shape[1:] if m else x.shape for x, m in zip(variables, mapped, strict=True)]
    avals = [jax.ShapeDtypeStruct(s, x.dtype) for s, x in zip(shapes, variables, strict=True)]
    traced = jax.make_jaxpr(function)(*avals)
    types = [x.dtype for x in traced.out_avals]
    dtype = _number_type([*(x.dtype for x in avals), *types])
    planned = _planned(traced, shapes)
    out = _called(planned, variables, mapped, count, dtype, interpret)
    typed = lambda x, t: x != 0 if t.kind == "b" else x.astype(t)
    return [
        typed(x[:count], t).reshape(count, *result.shape)
        for x, t, result in zip(out, types, planned.results, strict=True)
    ]


def _number_type(types: Sequence[Any]) -> Any:
    """Floating-point type of the kernel: the widest of the given types, and at least float32."""
    for x in types:
        if not any(jnp.issubdtype(x, kind) for kind in (jnp.floating, jnp.integer, jnp.bool)):
            raise DeploymentError(f"arrays of type {x} are not supported in a kernel")
    floating = [np.dtype(x) for x in types if jnp.issubdtype(x, jnp.floating)]
    return max([np.dtype(np.float32), *floating], key=lambda x: x.itemsize)


def _planned(traced: Any, shapes: Sequence[tuple[int, ...]]) -> Plan:
    graph = LoopGraph()
    with jax.ensure_compile_time_eval(), jax.default_device(jax.local_devices(backend="cpu")[0]):
        arguments = [graph.argument(k, shape) for k, shape in enumerate(shapes)]
        results = entries(graph, traced.jaxpr, traced.consts, arguments)
        numbers = [graph.converted(x, y.dtype, float) for x, y in zip(results, traced.out_avals, strict=True)]
    return plan(graph, numbers)


def _read(ref: Any, place: Any, scratch: bool, count: int) -> list:
    """Read consecutive entries of all states, from an array of shape (states, entries), or (entries, states) if scratch."""
    if count == 1:
        return [ref[(place, slice(None)) if scratch else (slice(None), place)]]
    ref, mask = _columns(ref, place, scratch, count)
    x = pallas_triton().load(ref, mask=mask, other=0)
    return _split(x.T if scratch else x)[:count]


def _write(ref: Any, place: Any, scratch: bool, values: list) -> None:
    """Store consecutive entries of all states."""
    if len(values) == 1:
        ref[(place, slice(None)) if scratch else (slice(None), place)] = values[0]
        return
    ref, mask = _columns(ref, place, scratch, len(values))
    x = _joined([*values, *values[:1] * (power_of_2(len(values)) - len(values))])
    pallas_triton().store(ref, x.T if scratch else x, mask=mask)


def _columns(ref: Any, place: Any, scratch: bool, count: int) -> tuple[Any, jax.Array]:
    """Reference to 2, 4, 8, ... consecutive entries of all states, as Triton requires, and a mask of the requested ones."""
    whole = slice(None) if isinstance(place, int) else pallas().ds(jnp.int32(0), WARP)  # all int32
    places = pallas().ds(place, power_of_2(count))
    shape = (power_of_2(count), WARP) if scratch else (WARP, power_of_2(count))
    mask = jax.lax.broadcasted_iota(jnp.int32, shape, int(not scratch)) < count
    return ref.at[(places, whole) if scratch else (whole, places)], mask


class _Refs:
    """Access to the memories of a plan through the references of a Pallas kernel."""

    def __init__(self, planned: Plan, used: Sequence[int], shared: Sequence[bool], refs: Sequence[Any]):
        inputs, ends = len(shared), len(shared) + len(planned.results)
        self._arguments = dict(zip(used, zip(refs, shared, strict=False), strict=False))
        self._tables = dict(zip(planned.tables, refs[len(used) : inputs - 1], strict=True))
        self._results = refs[inputs:ends]
        self._scratch = dict(zip(planned.scratch, refs[ends:], strict=True))
        self._within = planned.within

    def by_state(self, memory: Memory) -> bool:
        """True if each state has its own copy of this memory."""
        return memory.values is None and (memory.argument is None or not self._arguments[memory.argument][1])

    def read(self, memory: Memory, place: Any, count: int) -> list:
        if self.by_state(memory):
            return _read(*self._of(memory, place), count)
        ref = self._tables[memory] if memory.argument is None else self._arguments[memory.argument][0]
        return [jnp.broadcast_to(ref[place + k], (WARP,)) for k in range(count)]

    def write(self, memory: Memory, place: Any, values: list) -> None:
        _write(*self._of(memory, place), values)

    def result(self, number: int, place: int, values: list) -> None:
        _write(self._results[number], place, False, values)

    def _of(self, memory: Memory, place: Any) -> tuple[Any, Any, bool]:
        """Array that contains a buffer, position of the buffer in the array, and whether the array is laid out as scratch."""
        if memory in self._within:
            number, start = self._within[memory]
            return self._results[number], start + place, False
        if memory.argument is not None:
            return self._arguments[memory.argument][0], place, False
        return self._scratch[memory], place, True


def power_of_2(count: int) -> int:
    """The smallest power of 2 that is at least `count`."""
    return 1 << (count - 1).bit_length()


def _joined(values: list) -> jax.Array:
    """Matrix with the given vectors, a power of 2 in number, as columns, joined in pairs, as Triton requires."""
    if len(values) == 1:
        return values[0]
    pair = [_joined(values[k::2])[..., None] for k in range(2)]
    return jnp.concatenate(pair, -1).reshape(len(values[0]), -1)


def _split(x: jax.Array) -> list:
    """Columns of a matrix whose number of columns is a power of 2."""
    return [y.reshape(-1) for y in jax.lax.split(x, [1] * x.shape[1], 1)]


def _called(
    planned: Plan, variables: Sequence[jax.Array], mapped: Sequence[bool], count: int, dtype: Any, interpret: bool
) -> list[jax.Array]:
    """Call the kernel and return results of shape (states, entries), including the rows that pad the last block."""
    block, states = pallas().BlockSpec, -(-count // WARP) * WARP
    used = sorted({x.argument for x in planned.live.items if isinstance(x, Memory) and x.argument is not None})
    rows = lambda x: filled(x.reshape(len(x), -1), WARP)
    inputs = [(rows(variables[k]) if mapped[k] else variables[k].reshape(-1)).astype(dtype) for k in used]
    inputs += [jnp.asarray(x.values, dtype) for x in planned.tables]
    inputs += [jnp.zeros(1, jnp.int32)]
    shared = [not mapped[k] for k in used] + [True] * (len(planned.tables) + 1)

    def kernel(*refs):
        memory = _Refs(planned, used, shared, refs)
        Body(planned, memory, lambda: refs[len(inputs) - 1][0], dtype).run()

    sizes = [x.size for x in planned.results]
    scratch = [x.size + TOGETHER[0] for x in planned.scratch]  # for coalesced access, states are last
    own = lambda size: block((WARP, size + TOGETHER[-1]), lambda i: (i, 0))
    out = pallas().pallas_call(
        kernel,
        [
            *(jax.ShapeDtypeStruct((states, size), dtype) for size in sizes),
            *(jax.ShapeDtypeStruct((size, states), dtype) for size in scratch),
        ],
        grid=(states // WARP,),
        in_specs=[
            block(x.shape, lambda i: (0,)) if s else own(x.shape[-1]) for x, s in zip(inputs, shared, strict=True)
        ],
        out_specs=[*map(own, sizes), *(block((size, WARP), lambda i: (0, i)) for size in scratch)],
        **({"interpret": True} if interpret else {"compiler_params": pallas_triton().CompilerParams(num_warps=1)}),
    )(*inputs)
    return list(out[: len(planned.results)])

"""`kernel_vmap`: a batched function as a single GPU kernel with one thread per state.

A kernel is an instance of the primitive `batch_of_states`, as are its derivatives, transposes and batches: each is one program
for the entire batch. A gradient on a GPU consists of two kernels, of which the second recomputes the values for each state.
Cotangents of arguments shared by all states are summed afterwards. A function that cannot be one kernel falls back to
`jax.vmap`, in which every library function that it calls becomes a kernel.

`call_kernel` decomposes a function of one state into scalar operations (`source`), `plan` lays out its memory, and `Body`
executes the operations in Pallas, with scalars in registers, in an order that keeps few of them (`ordered`).
"""

import functools
import operator
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .. import source
from .._jax_compat import (
    Primitive,
    ShapedArray,
    Tracer,
    Zero,
    eval_jaxpr,
    is_undefined_primal,
    lower_fun,
    pallas,
    pallas_triton,
    primitive_batchers,
    primitive_jvps,
    primitive_transposes,
    register_lowering,
)
from ..dynamics.engine.kernel import by_platform, with_entries
from ..dynamics.engine.lanes import filled
from ..errors import DeploymentError, FallbackWarning, warn
from ..source import Loop, LoopGraph, Memory, Node, Scalar, Store, cost, entries, live_items
from .sharded import Axes, count_rows, mapped_leaves, of_leaves

Run = Callable[[Callable, tuple[bool, ...], Sequence[jax.Array]], list[jax.Array]]


def kernel_vmap(function: Callable[..., Any], in_axes: Axes = 0, interpret: bool = False) -> Callable[..., Any]:
    """Map a function over a batch like `jax.vmap`, in a single GPU kernel with one thread per state.

    For example, the following call takes one launch for all steps of all states, whereas `jax.vmap` takes a dozen or more per
    step:

        kernel_vmap(lambda q, qd: rollout(robot, q, qd, policy, dt, steps, every=steps))(q, qd)

    The state stays in registers; memory is accessed only at the start, at the end, and for rows that a step reads or stores. On
    a CPU, the program is that of `jax.vmap`. Pallas' Triton backend, which the kernel uses, is deprecated since JAX 0.11.

    The function is traced once and decomposed into scalar operations. Parameters of a robot captured by closure become
    constants, those passed as arguments are read from memory. Loops over links are unrolled in small functions, such as forward
    dynamics of up to 17 joints; loops over time are not. The function may contain integrators, checkpoints, torque tables,
    policies of arithmetic and elementary functions, `lax.scan`, `lax.cond` and `jax.grad`, but no linear algebra by LAPACK,
    sorting, random numbers, and loops or array indices that depend on the arguments.

    All computations use the widest floating-point type among the arguments and results (float32 or float64). Integers are
    exact up to 2^24 in float32 and 2^53 in float64. `jax.export` of a kernel requires `disabled_checks`, since JAX does not
    guarantee compatibility for kernels. Derivatives in forward and reverse mode are also kernels; a gradient consists of two,
    of which the second recomputes the values for each state, with checkpoints at each iteration of the loops over time.

    Args:
        function: function of one robot and one state, like those of jaxdyn, with positional arguments only.
        in_axes: 0 for batched arguments and None for the others, or trees of these, as for `jax.vmap`.
        interpret: True to run the kernel in Pallas' interpreter, on any device; this is slow and intended for tests.

    Returns:
        A compiled function whose results have the batch as the leading axis. Store and reuse it, as with `jax.jit`.

    Raises:
        ModelError: at the call, if an axis is neither 0 nor None, if batches differ in length, or if no argument has a
            batch.
        FallbackWarning: when compiling for a GPU or interpreting, if the function has more than 150 000 operations or
            contains an unsupported operation, which the message names. The function then runs under `jax.vmap`, with one
            kernel for each call of a library function such as `forward_dynamics`.
    """
    name = getattr(function, "__name__", type(function).__name__)

    def run(structure, mapped, *leaves):
        return _batched(of_leaves(function, structure), name, mapped, leaves, interpret)

    compiled = jax.jit(run, static_argnums=(0, 1))

    @functools.wraps(function)
    def batched(*arguments):
        leaves, structure = jax.tree.flatten(arguments)
        return compiled(structure, mapped_leaves(in_axes, arguments), *leaves)

    return batched


def _batched(single: Callable, name: str, mapped: tuple[bool, ...], leaves: tuple, interpret: bool) -> Any:
    count_rows(leaves, mapped)
    shapes = [jax.ShapeDtypeStruct(x.shape[1:] if m else x.shape, x.dtype) for x, m in zip(leaves, mapped, strict=True)]
    traced, results = jax.make_jaxpr(single, return_shape=True)(*shapes)
    # traced arrays captured by the function become additional arguments
    outer = [k for k, x in enumerate(traced.consts) if isinstance(x, Tracer)]
    mapped = (*mapped, *[False] * len(outer))

    def one(*variables):
        constants = list(traced.consts)
        for k, x in zip(outer, variables[len(leaves) :], strict=True):
            constants[k] = x
        return eval_jaxpr(traced.jaxpr, constants, *variables[: len(leaves)])

    def plain(function, mapped):
        return jax.vmap(function, tuple(0 if m else None for m in mapped))

    def kernel(function, mapped, variables):
        try:
            return call_kernel(function, mapped, variables, interpret)
        except DeploymentError as error:
            what = name if function is one else f"a derivative of {name}"
            warn(f"kernel_vmap of {what} falls back to jax.vmap with many kernels: {error.fault}", FallbackWarning)
            return with_kernels(plain(function, mapped), interpret)(*variables)

    def run(function, mapped, variables):
        if interpret:
            return kernel(function, mapped, variables)
        return by_platform(plain(function, mapped), lambda *v: kernel(function, mapped, v), *variables)

    found = batch_of_states(one, traced.out_avals, mapped, run, [*leaves, *(traced.consts[k] for k in outer)])
    return jax.tree.unflatten(jax.tree.structure(results), found)


_batch_p = Primitive("batch_of_states")
_batch_p.multiple_results = True


def batch_of_states(
    function: Callable, results: Sequence[Any], mapped: Sequence[bool], run: Run, variables: Sequence[Any]
) -> list[Any]:
    """Evaluate run(function, mapped, variables), with derivatives in forward and reverse mode."""
    return _batch_p.bind(*variables, function=function, results=tuple(results), mapped=tuple(mapped), run=run)


@_batch_p.def_abstract_eval
def _(*variables, results, mapped, **_):
    count = next(x.shape[0] for x, m in zip(variables, mapped, strict=True) if m)
    return [ShapedArray((count, *x.shape), x.dtype) for x in results]


def _run(*variables, function, mapped, run, **_):
    return run(function, mapped, variables)


def _jvp(primals, tangents, *, function, results, mapped, run):
    """Compute values and tangents by separate programs; the program for the tangents recomputes the values that it needs."""
    out = batch_of_states(function, results, mapped, run, primals)
    active = [k for k, t in enumerate(tangents) if not isinstance(t, Zero)]
    smooth = [k for k, x in enumerate(results) if jnp.issubdtype(x.dtype, jnp.inexact)]
    stepwise = with_checkpoints(function)

    def tangent(*variables):
        values, directions = variables[: len(primals)], variables[len(primals) :]

        def of_active(*varied):
            found = stepwise(*with_entries(values, active, varied))
            return [found[k] for k in smooth]

        return jax.jvp(of_active, tuple(values[k] for k in active), directions)[1]

    both = (*mapped, *(mapped[k] for k in active))
    found = batch_of_states(
        tangent, [results[k] for k in smooth], both, run, [*primals, *(tangents[k] for k in active)]
    )
    return out, with_entries([Zero(jax.typeof(x).to_tangent_aval()) for x in out], smooth, found)


def _transposed(cotangents, *variables, function, results, mapped, run):
    del results
    linear = [k for k, x in enumerate(variables) if is_undefined_primal(x)]
    given = [k for k in range(len(variables)) if k not in linear]
    used = [k for k, x in enumerate(cotangents) if not isinstance(x, Zero)]
    avals = [variables[k].aval for k in linear]
    if not used:
        return [Zero(x.aval) if k in linear else None for k, x in enumerate(variables)]
    shapes = [
        jax.ShapeDtypeStruct(x.shape[1:] if mapped[k] else x.shape, x.dtype) for k, x in zip(linear, avals, strict=True)
    ]

    def back(*inputs):
        values = with_entries([None] * len(variables), given, inputs[: len(given)])

        def forward(*directions):
            found = function(*with_entries(values, linear, directions))
            return [found[k] for k in used]

        return list(jax.linear_transpose(forward, *shapes)(list(inputs[len(given) :])))

    found = batch_of_states(
        back,
        shapes,
        [*(mapped[k] for k in given), *[True] * len(used)],
        run,
        [*(variables[k] for k in given), *(cotangents[k] for k in used)],
    )
    summed = [x if mapped[k] else x.sum(0) for k, x in zip(linear, found, strict=True)]
    return with_entries([None] * len(variables), linear, summed)


def _batch_of_batches(variables, dims, *, function, results, mapped, run):
    """Apply the primitive to a batch of batches, merged into one batch."""
    count = next(x.shape[int(d == 0)] for x, d, m in zip(variables, dims, mapped, strict=True) if m)
    size = next(x.shape[d] for x, d in zip(variables, dims, strict=True) if d is not None)
    merged = []
    for x, d, m in zip(variables, dims, mapped, strict=True):
        if d is None and not m:
            merged.append(x)
            continue
        x = x[None] if d is None else jnp.moveaxis(x, d, 0)
        x = x if m else x[:, None]
        merged.append(jnp.broadcast_to(x, (size, count, *x.shape[2:])).reshape(size * count, *x.shape[2:]))
    either = [m or d is not None for m, d in zip(mapped, dims, strict=True)]
    found = batch_of_states(function, results, either, run, merged)
    return [x.reshape(size, count, *x.shape[1:]) for x in found], [0] * len(found)


_batch_p.def_impl(_run)
primitive_jvps[_batch_p] = _jvp
primitive_transposes[_batch_p] = _transposed
primitive_batchers[_batch_p] = _batch_of_batches
register_lowering(_batch_p, lambda ctx, *x, **p: lower_fun(lambda *x: _run(*x, **p), multiple_results=True)(ctx, *x))


def _rewritten(function: Callable, change: Callable[[Any], Any]) -> Callable:
    """The function with `change(equation)`, unless it is None, in place of every equation, also in programs within it."""

    def program(jaxpr: Any) -> Any:
        return jaxpr.replace(eqns=[equation(x) for x in jaxpr.eqns])

    def equation(x: Any) -> Any:
        new = change(x)
        return x.replace(params={k: parameter(y) for k, y in x.params.items()}) if new is None else new

    def parameter(x: Any) -> Any:
        if type(x) is tuple:
            return tuple(map(parameter, x))
        if hasattr(x, "consts") and hasattr(x, "jaxpr"):
            return x.replace(jaxpr=program(x.jaxpr))
        return program(x) if hasattr(x, "eqns") else x

    def rewritten(*variables):
        traced = jax.make_jaxpr(function)(*variables)
        return eval_jaxpr(program(traced.jaxpr), traced.consts, *variables)

    return rewritten


def with_checkpoints(function: Callable) -> Callable:
    """Rewrite loops over time without checkpoints so that reverse mode stores only the state at the start of iterations."""

    def change(equation: Any) -> Any:
        name, inner = equation.primitive.name, equation.params.get("jaxpr")
        if name == "jit":
            return None
        if name != "scan" or any(x.primitive.name.startswith(("remat", "checkpoint")) for x in inner.eqns):
            return equation
        loops = [x.params for x in inner.eqns if x.primitive.name == "scan"]
        if cost(inner.jaxpr) <= 1.1 * sum(cost(x["jaxpr"].jaxpr) * x["length"] for x in loops):
            return None  # most of the work is in an inner loop, so its iterations become checkpoints
        body = lambda *x: eval_jaxpr(inner.jaxpr, inner.consts, *x)
        stored = jax.make_jaxpr(jax.checkpoint(body, prevent_cse=False))(*inner.in_avals)
        return equation.replace(params={**equation.params, "jaxpr": stored})

    return _rewritten(function, change)


def with_kernels(batched: Callable, interpret: bool) -> Callable:
    """Rewrite a batched function so that library functions such as forward dynamics run as kernels, except on CPUs."""

    def change(equation: Any) -> Any:
        if equation.primitive.name != "by_platform":
            return None
        parameters = equation.params
        plain = with_kernels(parameters["default"], interpret)  # a solver, for example, calls other library functions

        def kernel(*variables):
            function, mapped = parameters["one_state"]
            try:
                return call_kernel(lambda *x: jax.tree.leaves(function(*x)), mapped, variables, interpret)
            except DeploymentError:
                return plain(*variables)

        default = plain if parameters["one_state"] is None else kernel
        cpu = jax.make_jaxpr(default)(*(x.aval for x in equation.invars)) if interpret else parameters["cpu"]
        return equation.replace(params={**parameters, "default": default, "cpu": cpu})

    return _rewritten(batched, change)


WARP = 32  # states per block, one per thread


class Group:
    """Consecutive scalars that are written together, to a buffer or to the result with this number."""

    def __init__(self, to: Memory | int, offset: int, terms: tuple, value: Scalar):
        self.to, self.offset, self.terms, self.values = to, offset, terms, [value]

    def takes(self, to: Memory | int, offset: int, terms: tuple, value: Scalar, most: int) -> bool:
        """Add the scalar if it follows on the group and the group has fewer than `most`."""
        end = self.to, self.offset + len(self.values), self.terms
        follows = (to, offset, terms) == end and len(self.values) < most
        if follows:
            self.values.append(value)
        return follows


def ordered(
    items: Sequence, writes: Sequence[Group], kept: Sequence[Scalar], operands: Callable[[object], Collection[Scalar]]
) -> list:
    """Sort items and writes so that operands come first: as traced or by first use, whichever keeps fewer scalars alive."""
    nodes = {x for x in items if isinstance(x, Node)}
    needs = {x: [y for y in operands(x) if y in nodes] for x in (*items, *writes)}
    found = [list(order(items, writes, needs)) for order in (_by_trace, _by_use)]
    ends = [x for x in kept if x in nodes]
    return min(found, key=lambda order: _most_alive(order, ends, needs))


def _by_trace(items: Sequence, writes: Sequence[Group], needs: dict) -> Iterator:
    place = {x: k for k, x in enumerate(items)}
    after: dict[int, list[Group]] = {}
    for write in writes:
        after.setdefault(max((place[x] for x in needs[write]), default=-1), []).append(write)
    yield from after.get(-1, ())
    for k, item in enumerate(items):
        yield item
        yield from after.get(k, ())


def _by_use(items: Sequence, writes: Sequence[Group], needs: dict) -> Iterator:
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


class Plan(NamedTuple):
    """What a kernel computes, and where its results and buffers lie."""

    items: list
    results: list[np.ndarray]
    placed: dict[Memory, tuple[int, int]]  # index of the result and offset, for each buffer placed in a result
    singles: list[tuple[int, int, Scalar]]  # index of the result, place and value of entries that no loop writes
    live: dict[Any, None]  # the items and memories on which results depend
    carried: dict[Loop, set[int]]  # and the values that each loop carries

    def memories(self, given: bool) -> list[Memory]:
        """Constant arrays, or buffers stored outside the results."""
        found = (x for x in self.live if isinstance(x, Memory) and x.argument is None and x not in self.placed)
        return [x for x in found if (x.values is not None) == given]

    def writes(self) -> list[Group]:
        """The single entries of results, in groups of consecutive ones."""
        found: list[Group] = []
        most = TOGETHER[len(self.live) > LARGE]
        for number, place, x in self.singles:
            if not (found and found[-1].takes(number, place, (), x, most)):
                found.append(Group(number, place, (), x))
        return found


def plan(graph: LoopGraph, results: list[np.ndarray]) -> Plan:
    """Choose the memory layout of a kernel."""
    placed: dict[Memory, tuple[int, int]] = {}
    flat = [(number, place, x) for number, result in enumerate(results) for place, x in enumerate(result.flat)]
    for number, place, x in flat:
        memory = _written(x)
        if memory is not None and memory not in placed:
            start = place - x.of[1]
            covered = results[number].flat[start : start + memory.size] if start >= 0 else ()
            if len(covered) == memory.size and all(_at(y, memory, k) for k, y in enumerate(covered)):
                placed[memory] = number, start
    lies = lambda number, place, x: (memory := _written(x)) and placed.get(memory) == (number, place - x.of[1])
    singles = [single for single in flat if not lies(*single)]
    if len(singles) > ONE_BY_ONE:
        raise DeploymentError(f"{len(singles)} entries of the results are not written in order by a loop")
    return Plan(graph.items, results, placed, singles, *live_items(graph.items, [*(x for *_, x in singles), *placed]))


def _written(x: Scalar) -> Memory | None:
    """The buffer from which a scalar is read."""
    memory = x.of[0] if isinstance(x, Node) and x.kind == "load" else None
    return memory if memory is not None and memory.argument is None and memory.values is None else None


def _at(x: Scalar, memory: Memory, place: int) -> bool:
    return isinstance(x, Node) and x.kind == "load" and x.of == (memory, place, ())


def _grouped(items: Sequence) -> list:
    """Combine adjacent stores of consecutive entries."""
    found: list = []
    for item in items:
        if not isinstance(item, Store):
            found.append(item)
            continue
        store = item.memory, item.offset, item.terms, item.value
        if not (found and isinstance(found[-1], Group) and found[-1].takes(*store, TOGETHER[0])):
            found.append(Group(*store))
    return found


class Body:
    """Execution of a plan for several states at once, one per lane, with the references of a Pallas kernel.

    The references are those of the arguments `used`, the constant arrays, a zero, the results and the buffers; `shared` says
    which arguments are the same for all states.
    """

    def __init__(self, planned: Plan, used: Sequence[int], shared: Sequence[bool], refs: Sequence[Any], dtype: Any):
        self._plan, self._type = planned, np.dtype(dtype).type
        of = iter(refs)
        self._arguments = {k: (next(of), s) for k, s in zip(used, shared, strict=True)}
        self._tables = {memory: next(of) for memory in planned.memories(given=True)}
        self._zero = next(of)
        self._results = [next(of) for _ in planned.results]
        self._scratch = {memory: next(of) for memory in planned.memories(given=False)}

    def run(self) -> None:
        """Run the plan."""
        self._items(self._plan.items, self._plan.writes(), (), self._start(), {})

    def _start(self) -> dict[Any, Any]:
        """Values of the argument entries that are kept in registers."""
        loads = [x for x in self._plan.items if x in self._plan.live and _is_entry(x)]
        known = {}
        for memory in dict.fromkeys(x.of[0] for x in loads):
            values = self._read(memory, 0, memory.size)
            known.update({x: values[x.of[1]] for x in loads if x.of[0] is memory})
        return known

    def _items(
        self, items: Sequence, writes: Sequence[Group], ends: Sequence[Scalar], known: dict, turns: dict[Loop, Any]
    ) -> None:
        items = [x for x in items if x in self._plan.live and x not in known and not _is_read_where_used(x)]
        beside = self._neighbours(items)
        for item in ordered(_grouped(items), writes, ends, self._operands):
            if isinstance(item, Loop):
                self._loop(item, known, turns)
            elif isinstance(item, Group):
                place = self._place(item.offset, item.terms, turns)
                values = [self._lane(known, x, turns) for x in item.values]
                _write(*self._of(item.to, place), values)
            elif item.kind == "load" and item not in known:
                loads = beside[item]
                place = self._place(loads[0].of[1], item.of[2], turns)
                known.update(zip(loads, self._read(item.of[0], place, len(loads)), strict=True))
            elif item.kind not in ("carry", "result", "load"):
                known[item] = self._computed(item, known, turns)

    def _neighbours(self, items: Sequence) -> dict[Node, list[Node]]:
        """For each load, the group of loads of consecutive entries that are executed together with it."""
        found: dict[Node, list[Node]] = {}
        rank: dict[Any, int] = {}  # of memories and terms, by first appearance
        loads = [x for x in items if isinstance(x, Node) and x.kind == "load"]
        key = {x: (*(rank.setdefault(y, len(rank)) for y in (x.of[0], x.of[2])), x.of[1]) for x in loads}
        group: list[Node] = []
        for x in sorted(loads, key=lambda x: key[x]):
            memory, offset, terms = x.of
            follows = group and group[-1].of == (memory, offset - 1, terms) and len(group) < TOGETHER[0]
            if not (follows and self._by_state(memory)):
                group = []
            group.append(x)
            found[x] = group
        return found

    def _operands(self, item: Any) -> list[Node]:
        """Nodes that must be known before an item is executed."""
        if isinstance(item, Loop):
            inner = [y for x in item.items if x in self._plan.live for y in self._operands(x)]
            kept = self._plan.carried[item]
            return [x for x in [*inner, *(y[k] for y in (item.first, item.last) for k in kept)] if isinstance(x, Node)]
        if isinstance(item, Node):
            of = () if item.kind in ("load", "index", "carry", "result", "input") else item.of
        else:
            of = (item.value,) if isinstance(item, Store) else item.values
        return [x for x in of if isinstance(x, Node)]

    def _loop(self, loop: Loop, known: dict, turns: dict[Loop, Any]) -> None:
        kept = sorted(self._plan.carried[loop])

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
            place = place + list(turns.values())[-1] * self._zero[0]
        return self._read(memory, place, 1)[0]

    def _place(self, offset: int, terms: tuple, turns: dict[Loop, Any]) -> Any:
        place: Any = np.int32(offset) if terms else offset
        for loop, stride in terms:
            place = place + turns[loop] * np.int32(stride)
        return place

    def _by_state(self, memory: Memory) -> bool:
        """True if each state has its own copy of this memory."""
        return memory.values is None and (memory.argument is None or not self._arguments[memory.argument][1])

    def _read(self, memory: Memory, place: Any, count: int) -> list:
        if self._by_state(memory):
            return _read(*self._of(memory, place), count)
        ref = self._tables[memory] if memory.argument is None else self._arguments[memory.argument][0]
        return [jnp.broadcast_to(ref[place + k], (WARP,)) for k in range(count)]

    def _of(self, memory: Memory | int, place: Any) -> tuple[Any, Any, bool]:
        """Array that contains a result or buffer, a place in the array, and whether the array is laid out as scratch."""
        if isinstance(memory, int):
            return self._results[memory], place, False
        if memory in self._plan.placed:
            number, start = self._plan.placed[memory]
            return self._results[number], start + place, False
        if memory.argument is not None:
            return self._arguments[memory.argument][0], place, False
        return self._scratch[memory], place, True


def _is_entry(item: object) -> bool:
    """True for an entry of an argument that is small enough for registers."""
    return isinstance(item, Node) and _is_argument(item) and item.of[0].size <= IN_REGISTERS


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


FUNCTIONS: dict[str, Callable] = {name: getattr(lax, name) for name in source.FUNCTIONS if hasattr(lax, name)}
FUNCTIONS |= source.INFIX | {"and": operator.and_, "or": operator.or_, "not": lax.bitwise_not, "negative": operator.neg}
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
        arguments = [graph.block(Memory(int(np.prod(shape)), k), shape) for k, shape in enumerate(shapes)]
        results = entries(graph, traced, arguments)
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
    used = sorted({x.argument for x in planned.live if isinstance(x, Memory) and x.argument is not None})
    rows = lambda x: filled(x.reshape(len(x), -1), WARP)
    inputs = [(rows(variables[k]) if mapped[k] else variables[k].reshape(-1)).astype(dtype) for k in used]
    inputs += [jnp.asarray(x.values, dtype) for x in planned.memories(given=True)]
    inputs += [jnp.zeros(1, jnp.int32)]
    sizes = [x.size for x in planned.results]
    scratch = [x.size + TOGETHER[0] for x in planned.memories(given=False)]  # for coalesced access, states are last
    own = lambda size: block((WARP, size + TOGETHER[-1]), lambda i: (i, 0))
    out = pallas().pallas_call(
        lambda *refs: Body(planned, used, [not mapped[k] for k in used], refs, dtype).run(),
        [
            *(jax.ShapeDtypeStruct((states, size), dtype) for size in sizes),
            *(jax.ShapeDtypeStruct((size, states), dtype) for size in scratch),
        ],
        grid=(states // WARP,),
        in_specs=[own(x.shape[-1]) if x.ndim == 2 else block(x.shape, lambda i: (0,)) for x in inputs],
        out_specs=[*map(own, sizes), *(block((size, WARP), lambda i: (0, i)) for size in scratch)],
        **({"interpret": True} if interpret else {"compiler_params": pallas_triton().CompilerParams(num_warps=1)}),
    )(*inputs)
    return list(out[: len(planned.results)])

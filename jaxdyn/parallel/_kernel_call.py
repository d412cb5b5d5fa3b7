"""Pallas call of a kernel, with the operations of the function, the memory layout, and the blocks of states."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._jax_compat import pallas, pallas_triton
from .._source.loops import LoopGraph, Memory
from .._source.operations import entries
from ..dynamics._lowering import filled
from ..errors import DeploymentError
from ._kernel_body import TOGETHER, Body, Plan, plan

WARP = 32  # states per block


def call_kernel(
    function: Callable, mapped: Sequence[bool], variables: Sequence[jax.Array], interpret: bool
) -> list[jax.Array]:
    """Evaluate function(*variables) in one kernel, for all rows of the mapped variables.

    Raises:
        DeploymentError: the function cannot be compiled to a kernel; the message states the reason.
    """
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


@dataclasses.dataclass(frozen=True)
class Rows:
    """Layout of arrays of shape (states, entries) in blocks of rows, for Triton and Pallas' interpreter.

    Attributes:
        lanes: number of states per block.
    """

    lanes: int = WARP

    def shape(self, states: int, size: int, scratch: bool) -> tuple[int, int]:
        return (_room(size, scratch), states) if scratch else (states, size)  # for coalesced access, states are last

    def spec(self, size: int, shared: bool, scratch: bool = False) -> Any:
        if shared:
            return pallas().BlockSpec((size,), lambda i: (0,))
        if scratch:
            return pallas().BlockSpec((_room(size, scratch), self.lanes), lambda i: (0, i))
        return pallas().BlockSpec((self.lanes, _room(size)), lambda i: (i, 0))

    def read(self, ref: Any, place: Any, scratch: bool, count: int) -> list:
        """Read consecutive entries."""
        if count == 1:
            return [ref[(place, slice(None)) if scratch else (slice(None), place)]]
        ref, mask = self._columns(ref, place, scratch, count)
        x = pallas_triton().load(ref, mask=mask, other=0)
        return _split(x.T if scratch else x)[:count]

    def write(self, ref: Any, place: Any, scratch: bool, values: list) -> None:
        """Store consecutive entries."""
        if len(values) == 1:
            ref[(place, slice(None)) if scratch else (slice(None), place)] = values[0]
            return
        ref, mask = self._columns(ref, place, scratch, len(values))
        x = _joined([*values, *values[:1] * (power_of_2(len(values)) - len(values))])
        pallas_triton().store(ref, x.T if scratch else x, mask=mask)

    def _columns(self, ref: Any, place: Any, scratch: bool, count: int) -> tuple[Any, jax.Array]:
        """Reference to consecutive entries of all states, and a mask of the requested entries.

        Triton accesses 2, 4, 8, ... entries at a time, so the reference may extend beyond the requested entries.
        """
        whole = slice(None) if isinstance(place, int) else pallas().ds(jnp.int32(0), self.lanes)  # all int32
        places = pallas().ds(place, power_of_2(count))
        shape = (power_of_2(count), self.lanes) if scratch else (self.lanes, power_of_2(count))
        mask = jax.lax.broadcasted_iota(jnp.int32, shape, int(not scratch)) < count
        return ref.at[(places, whole) if scratch else (whole, places)], mask

    def options(self, interpret: bool) -> dict[str, Any]:
        if interpret:
            return {"interpret": True}
        return {"compiler_params": pallas_triton().CompilerParams(num_warps=self.lanes // WARP)}


class _Refs:
    """Access to the memories of a plan through the references of a Pallas kernel."""

    def __init__(self, planned: Plan, used: Sequence[int], shared: Sequence[bool], refs: Sequence[Any], layout: Any):
        inputs, ends = len(shared), len(shared) + len(planned.results)
        self._arguments = dict(zip(used, zip(refs, shared, strict=False), strict=False))
        self._tables = dict(zip(planned.tables, refs[len(used) : inputs - 1], strict=True))
        self._results = refs[inputs:ends]
        self._scratch = dict(zip(planned.scratch, refs[ends:], strict=True))
        self._within, self._layout = planned.within, layout

    def by_state(self, memory: Memory) -> bool:
        return memory.values is None and (memory.argument is None or not self._arguments[memory.argument][1])

    def read(self, memory: Memory, place: Any, count: int) -> list:
        if self.by_state(memory):
            return self._layout.read(*self._of(memory, place), count)
        ref = self._tables[memory] if memory.argument is None else self._arguments[memory.argument][0]
        return [jnp.broadcast_to(ref[place + k], (self._layout.lanes,)) for k in range(count)]

    def write(self, memory: Memory, place: Any, values: list) -> None:
        self._layout.write(*self._of(memory, place), values)

    def result(self, number: int, place: int, values: list) -> None:
        self._layout.write(self._results[number], place, False, values)

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


def _room(size: int, scratch: bool = False) -> int:
    """Number of entries to allocate, including space for a group of entries that extends beyond the array."""
    return size + TOGETHER[0 if scratch else -1]


def _joined(values: list) -> jax.Array:
    """Matrix with the given vectors as columns; the number of vectors is a power of 2.

    The vectors are joined in pairs, as Triton requires.
    """
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
    layout = Rows()
    blocks = -(-count // layout.lanes)
    used = sorted({x.argument for x in planned.live.items if isinstance(x, Memory) and x.argument is not None})
    inputs = [
        (_rows(variables[k], layout.lanes) if mapped[k] else variables[k].reshape(-1)).astype(dtype) for k in used
    ]
    inputs += [jnp.asarray(x.values, dtype) for x in planned.tables]
    inputs += [jnp.zeros(1, jnp.int32)]
    shared = [not mapped[k] for k in used] + [True] * (len(planned.tables) + 1)
    sizes = [(x.size, False) for x in planned.results] + [(x.size, True) for x in planned.scratch]

    def kernel(*refs):
        memory = _Refs(planned, used, shared, refs, layout)
        zero = lambda: refs[len(inputs) - 1][0]
        Body(planned, memory, zero, layout.lanes, dtype).run()

    out = pallas().pallas_call(
        kernel,
        [jax.ShapeDtypeStruct(layout.shape(blocks * layout.lanes, *size), dtype) for size in sizes],
        grid=(blocks,),
        in_specs=[layout.spec(x.shape[-1], s) for x, s in zip(inputs, shared, strict=True)],
        out_specs=[layout.spec(size, False, scratch) for size, scratch in sizes],
        **layout.options(interpret),
    )(*inputs)
    return list(out[: len(planned.results)])


def _rows(x: jax.Array, multiple: int) -> jax.Array:
    return filled(x.reshape(len(x), -1), multiple)

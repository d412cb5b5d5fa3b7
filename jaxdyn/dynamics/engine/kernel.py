"""Compilation of a function to one CPU kernel: a call that XLA neither inlines nor splits.

XLA uses such calls for small loops (`SmallWhileLoopHoistingPass`, xla/service/cpu/small_while_loop_hoisting_pass.cc) and
compiles the called computation to one LLVM function. The list below states the requirements on such a computation and how each
is met here. The requirements were found in XLA's sources for jaxlib 0.10.2 and in the error messages of its compiled library.
tests/test_xla_limits.py reproduces each case; tests/users_programs (arguments, flow, compilers) tries to violate the
requirements through the public API.

1. Every buffer that is addressed must be in a table; otherwise XLA aborts (`EmitGlobalBufferPointer`, ir_emitter.cc: "All
   or none of the slices should have an explicit index"). `GetAllSlices` (computation_kernel_emitter.cc) fills the table with
   the operands of instructions and with the results of instructions other than parameters; `HandleParameter` addresses all
   parameters. Therefore some instruction of the final computation must read each parameter. Three earlier passes could
   remove such instructions:
   - `HloConstantFolding` moves constant operands into the computation. The operands therefore pass through an
     `optimization_barrier`.
   - `AlgebraicSimplifier` folds instructions that read an operand, such as x * 0. Therefore an entry of every operand is
     returned.
   - `HloDCE` removes unused results. These entries and the first result are therefore returned through one barrier.
2. `IrEmitter` must support every instruction without calls at run time, since the function is called without run options.
   The following are not supported:
   - scatters ("Scatter is not implemented on CPUs"), sorts, FFTs and `top_k`;
   - matrix products fused for a library ("Fusion kind not implemented on CPU", from 8 x 8), and LAPACK;
   - callbacks and prints;
   - collectives and `PartitionId` ("Failed to materialize symbols").

   User functions never become kernels. Only functions of this library do, and they consist of arithmetic, indexing and
   loops. If lanes are sharded over devices, an entry of every lane is returned, which requires no communication.
3. No instruction may be distributed over threads ("Invalid LLVM IR before optimizations"). `ParallelTaskAssigner`
   (parallel_task_assignment.cc) distributes an instruction in two cases: if bytes >= flops and the result has 512 KiB, or if
   bytes < flops and flops + 2 * transcendentals + 10 * bytes (read and written) reaches 200 000. `lanes.py` prevents the first
   case by `LARGEST` and the `size` of functions. The second case is not excluded by construction: a fusion with many
   operations would reach the limit with 18 KB. At 64 lanes, functions of this library stay below the limit; for an arm with
   three joints, the margin is a factor of 4.
4. Called computations must be emitted before their callers, and the computation of a reduction must not contain a call;
   otherwise XLA aborts (`EmitThreadLocalCall`, `EmitGlobalCall`; computation_partitioner.cc: "operand_maps.size() == 1").
   The attributes that mark a kernel apply to every call traced or lowered under them. Calls inside the kernel are therefore
   marked as ordinary calls, which XLA inlines.
5. The state, condition and body of a loop must share their buffers (`HandleWhile`: "does not share slice with"), and modules
   must be scheduled: `CopyInsertion` and the scheduler ensure this for every program. Constants and empty arrays are
   unrestricted: constants of up to 10 000 bytes are part of the kernel, and larger ones are passed as arguments. Results
   may be operands or constants, and the same array may be passed as several operands.

In later versions, XLA's pass also outlines straight-line instructions and excludes tokens (`kAfterAll`), and the
per-operation emitters under `IrEmitter` will be retired (openxla/xla#48001).
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..._jax_compat import dce_jaxpr, eval_jaxpr, set_xla_metadata
from .mode import traced_in, uses_kernels

# maximum number of values that one operation of a kernel reads and writes (400 KB): see point 3
LARGEST = 50_000


def as_kernel(function: Callable, lanes: Sequence[int | None] | None = None) -> Callable:
    """Compile a function to one kernel. Numbers in comments refer to the list in the module's docstring.

    Args:
        lanes: axis of the lanes of each argument; None for an argument without lanes.
    """
    if not uses_kernels():
        return function
    inside = traced_in(function, in_kernel=True)

    def call(*variables):
        traced, shapes = jax.make_jaxpr(inside, return_shape=True)(*variables)
        # arguments that the function does not use are omitted, so that they need not be computed
        jaxpr, used = dce_jaxpr(traced.jaxpr, [True] * len(traced.jaxpr.outvars))
        if not any(used):  # the result is constant
            return function(*variables)

        axes = [axis for axis, u in zip(lanes or [None] * len(used), used, strict=True) if u]

        def program(*inputs):
            entries = [_entry(x, axis) for x, axis in zip(inputs, axes, strict=True) if x.size]
            with set_xla_metadata(inlineable="true", xla_cpu_small_call="false"):  # 4
                return eval_jaxpr(jaxpr, traced.consts, *inputs), sum(entries, jnp.zeros(()))

        operands = jax.lax.optimization_barrier([x for x, u in zip(variables, used, strict=True) if u])  # 1
        with set_xla_metadata(inlineable="false", xla_cpu_small_call="true"):
            out, read = jax.jit(program)(*operands)
        out[0], _ = jax.lax.optimization_barrier((out[0], read))  # 1
        return jax.tree.unflatten(jax.tree.structure(shapes), out)

    return call


def _entry(x: Array, lanes: int | None) -> Array:
    """The first entry of an array, or of each lane if the array has lanes."""
    if lanes is None:
        return x.reshape(-1)[0].astype(float)
    return jnp.moveaxis(x, lanes, -1).reshape(-1, x.shape[lanes])[0].astype(float)


def kept(carry: tuple[Array, ...], q: Array, results: Any) -> Any:
    """The results of a loop, made dependent on the last values that it carried.

    A step of a sweep may use a value in several results. XLA would compute it once for every result: for the inertias of the
    articulated-body algorithm, a step would cost several times as much. Values that a loop carries are computed once, but XLA
    removes carries that nobody reads. The results do not change unless q contains NaN, which XLA cannot exclude.
    """
    (first, *others), structure = jax.tree.flatten(results)
    return jax.tree.unflatten(structure, [jnp.where(q[0] != q[0], sum(carry), first), *others])


def blank_results(entries: Sequence[int], like: Sequence[Any]) -> tuple[Array, ...]:
    """Arrays for the results of a loop that writes them entry by entry, of lengths that all differ.

    Array k has the given number of entries and 1 + k more, which stay zero. If arrays had equal shapes, XLA would use one array
    of zeros for all and copy it for each of them.
    """
    return tuple(jnp.zeros((n + 1 + k, *x.shape), x.dtype) for k, (n, x) in enumerate(zip(entries, like, strict=True)))


def compilable_lanes(lanes: int, most: int, variables: Sequence[Any]) -> int:
    """The number of lanes of a kernel, but not eight lanes that fit one vector register, such as those of float32.

    With eight such lanes, LLVM keeps the arrays of a kernel in registers. Compiling the derivatives of a Panda's forward
    dynamics then takes more than 23 GB of memory, compared with 0.5 GB and 6 s for 7 or 16 lanes (jaxlib 0.10.2). In float64,
    kernels with 4 and 8 lanes compile well.
    """
    single = any(jnp.result_type(x) in (jnp.float32, jnp.float16, jnp.bfloat16) for x in variables)
    return lanes if lanes != 8 or not single else 16 if most >= 16 else 7

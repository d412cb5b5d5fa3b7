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
   bytes < flops and flops + 2 * transcendentals + 10 * bytes (read and written) reaches 200 000. `batch` prevents the first
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

import contextvars
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..._jax_compat import dce_jaxpr, eval_jaxpr, set_xla_metadata


def uses_definitions() -> bool:
    """True if `JAXDYN_DEFINITIONS=1`: dynamics are computed by the definitions in the module `rnea`, without kernels.

    Like `JAXDYN_KERNELS=0`, which only disables kernels, the variable is read when a function is traced. Programs that are
    already compiled do not change, so it must be set before a process first calls the library.
    """
    return os.environ.get("JAXDYN_DEFINITIONS", "0") == "1"


def defined_by(definition: Callable) -> Callable:
    """Decorator: the function below computes the same values as `definition`, which replaces it if `uses_definitions`."""

    def decorate(fast: Callable) -> Any:
        @functools.wraps(fast)
        def chosen(*arguments: Any, **named: Any) -> Any:
            return (definition if uses_definitions() else fast)(*arguments, **named)

        return chosen

    return decorate


_IN_KERNEL: contextvars.ContextVar[bool] = contextvars.ContextVar("kernel", default=False)


def in_kernel() -> bool:
    """True while a function is traced as one kernel."""
    return _IN_KERNEL.get()


def as_kernel(function: Callable, lanes: Sequence[int | None] | None = None) -> Callable:
    """Compile a function to one kernel. Numbers in comments refer to the list in the module's docstring.

    Args:
        lanes: axis of the lanes of each argument; None for an argument without lanes.
    """
    if os.environ.get("JAXDYN_KERNELS", "1") == "0" or uses_definitions():
        return function

    def call(*variables):
        token = _IN_KERNEL.set(True)
        try:
            traced, shapes = jax.make_jaxpr(function, return_shape=True)(*variables)
        finally:
            _IN_KERNEL.reset(token)
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

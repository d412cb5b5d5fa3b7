"""A function as one CPU kernel: a call that XLA neither inlines nor splits.

XLA has this for small loops of its own (`SmallWhileLoopHoistingPass`, xla/service/cpu/small_while_loop_hoisting_pass.cc):
the called computation becomes one LLVM function. The requirements on such a computation, from XLA's sources for jaxlib
0.10.2 and the messages in its library, and how each is met here: tests/test_xla_limits.py reproduces each case,
tests/users_programs (arguments, flow, compilers) tries to violate them through the public API.

1. Every buffer that is addressed is in a table (`EmitGlobalBufferPointer`, ir_emitter.cc: "All or none of the slices should
   have an explicit index", an abort). `GetAllSlices` (computation_kernel_emitter.cc) fills it with what instructions
   read and with the results of instructions other than parameters; `HandleParameter` addresses all parameters. So each
   parameter needs a reader in the final computation, and earlier passes remove readers:
   - `HloConstantFolding` moves constant operands into the computation: an `optimization_barrier` on the operands prevents it;
   - `AlgebraicSimplifier` folds instructions that read an operand (x * 0): an entry of every operand is returned;
   - `HloDCE` removes unused results: these entries and the first result are returned through one barrier.
2. Every instruction has code in `IrEmitter` that calls nothing at run time: the function is called without run options. A
   scatter ("Scatter is not implemented on CPUs"), a sort, an FFT, `top_k`, a product of matrices in a library's fusion ("Fusion
   kind not implemented on CPU", from 8 x 8), LAPACK, callbacks, prints, collectives and `PartitionId` ("Failed to materialize
   symbols") are refused. Only this library's functions become kernels, never a user's, and they consist of arithmetic,
   indexing and loops. If lanes are sharded over devices, an entry of every lane is returned, without communication.
3. No instruction is spread over threads ("Invalid LLVM IR before optimizations"). `ParallelTaskAssigner`
   (parallel_task_assignment.cc) does so where bytes >= flops and the result has 512 KiB, or where bytes < flops and
   flops + 2 * transcendentals + 10 * bytes, of what was read and written, is 200 000. `batch` bounds the first by `LARGEST`
   and the sizes given with the functions. The second is not bounded by construction: a fusion with much computation
   would reach it with 18 KB. At 64 lanes the library's stay below it, by 4 times for an arm of three joints.
4. Called computations are emitted before their callers, and the computation of a reduction contains no call
   (`EmitThreadLocalCall`, `EmitGlobalCall`; computation_partitioner.cc: "operand_maps.size() == 1", an abort). The
   marks apply to every call traced or lowered under them, so the inside is marked as ordinary, and XLA inlines all
   calls there.
5. A loop's state, condition and body share their buffers (`HandleWhile`: "does not share slice with"), and modules are
   scheduled: `CopyInsertion` and the scheduler do this for every program. There are no requirements on constants (part
   of the kernel up to 10 000 bytes, arguments above) or empty arrays; results may be operands or constants, and one
   array may be several operands.

Later versions: XLA's pass also outlines straight-line instructions and excludes tokens (`kAfterAll`); the per-operation
emitters under `IrEmitter` will be retired (openxla/xla#48001).
"""

import contextvars
import os
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..._jax_compat import dce_jaxpr, eval_jaxpr, set_xla_metadata

_IN_KERNEL: contextvars.ContextVar[bool] = contextvars.ContextVar("kernel", default=False)


def in_kernel() -> bool:
    """True while a function is traced as one kernel."""
    return _IN_KERNEL.get()


def as_kernel(function: Callable, lanes: Sequence[int | None] | None = None) -> Callable:
    """The function as one kernel; the numbers refer to the module's list.

    Args:
        lanes: the lane axis of each argument; None if it has none.
    """
    if os.environ.get("JAXDYN_KERNELS", "1") == "0":
        return function

    def call(*variables):
        token = _IN_KERNEL.set(True)
        try:
            traced, shapes = jax.make_jaxpr(function, return_shape=True)(*variables)
        finally:
            _IN_KERNEL.reset(token)
        # arguments that the function does not use are omitted, and not computed
        jaxpr, used = dce_jaxpr(traced.jaxpr, [True] * len(traced.jaxpr.outvars))
        if not any(used):  # a constant
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
    """The first entry of an array, for every lane if it has lanes."""
    if lanes is None:
        return x.reshape(-1)[0].astype(float)
    return jnp.moveaxis(x, lanes, -1).reshape(-1, x.shape[lanes])[0].astype(float)

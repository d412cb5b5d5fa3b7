"""A function as one kernel of the CPU: a call that XLA neither inlines nor takes apart.

XLA has this for small loops of its own (`SmallWhileLoopHoistingPass`, xla/service/cpu/small_while_loop_hoisting_pass.cc):
the called computation becomes one function of LLVM's. What that asks of a computation, by XLA's sources next to jaxlib 0.10.2
and the texts in its library, and how it holds here. tests/test_xla_limits.py reproduces each case,
tests/users_programs (arguments, flow, compilers) tries to break them from the outside.

1. Every buffer that is addressed is in a table (`EmitGlobalBufferPointer`, ir_emitter.cc: "All or none of the slices should
   have an explicit index", an abort). `GetAllSlices` (computation_kernel_emitter.cc) fills it with what instructions read and
   with the results of those that are no parameters; `HandleParameter` addresses all parameters. So each one needs a reader
   in the computation that code is made for, and passes before that take readers away:
   - `HloConstantFolding` puts operands that it finds to be constant into the computation: an `optimization_barrier` on the
     operands hides them;
   - `AlgebraicSimplifier` folds what reads an operand (x * 0): an entry of every operand is returned;
   - `HloDCE` removes results that nobody reads: these entries and the first result leave through one barrier.
2. Every instruction has code in `IrEmitter` that calls nothing at run time: the function is called without run options. A
   scatter ("Scatter is not implemented on CPUs"), a sort, an FFT, `top_k`, a product of matrices in a library's fusion ("Fusion
   kind not implemented on CPU", from 8 x 8), LAPACK, callbacks, prints, collectives and `PartitionId` ("Failed to materialize
   symbols") are refused. Functions that become kernels are this library's own and hold arithmetic, indexing and loops, none
   of a user's. Where devices share the lanes, an entry is one of every lane, so that none asks another device.
3. No instruction is spread over threads ("Invalid LLVM IR before optimizations"). `ParallelTaskAssigner`
   (parallel_task_assignment.cc) does so where bytes >= flops and the result has 512 KiB, or where bytes < flops and
   flops + 2 * transcendentals + 10 * bytes, of what was read and written, is 200 000. `batch` bounds the first by `LARGEST`
   and the sizes given with the functions. The second has no bound by construction: a fusion would reach it with 18 KB that
   it computes much from. At 64 lanes the library's stay below it, by 4 times for an arm of three joints.
4. Called computations are emitted before those that call them, and a call does not stand in the computation of a reduction
   (`EmitThreadLocalCall`, `EmitGlobalCall`; computation_partitioner.cc: "operand_maps.size() == 1", an abort). The marks reach
   every call that is traced or lowered under them, so that the inside is marked as ordinary: XLA inlines all calls there.
5. A loop's state, condition and body share their buffers (`HandleWhile`: "does not share slice with"), and modules are
   scheduled: `CopyInsertion` and the scheduler do this for every program. Nothing is asked of constants (up to 10 000 bytes
   they become part of the kernel, above it arguments) or of empty arrays; results may be operands or constants, and one array
   may be several operands.

Later versions: XLA's own pass outlines straight runs of instructions too and leaves tokens out (`kAfterAll`); the emitters of
single operations that lie under `IrEmitter` are to be retired (openxla/xla#48001).
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
        lanes: which axis of each argument is that of the lanes, None for those without.
    """
    if os.environ.get("JAXDYN_KERNELS", "1") == "0":
        return function

    def call(*variables):
        token = _IN_KERNEL.set(True)
        try:
            traced, shapes = jax.make_jaxpr(function, return_shape=True)(*variables)
        finally:
            _IN_KERNEL.reset(token)
        # what the function does not use is left out: nobody computes it
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
    """The first number of an array, of every lane where it has lanes."""
    if lanes is None:
        return x.reshape(-1)[0].astype(float)
    return jnp.moveaxis(x, lanes, -1).reshape(-1, x.shape[lanes])[0].astype(float)

"""`kernel_vmap`: a batched function as a single GPU kernel with one thread per state."""

import functools
from collections.abc import Callable
from typing import Any

import jax

from .._jax_compat import Tracer, eval_jaxpr
from ..dynamics._lowering import by_platform
from ..errors import DeploymentError, FallbackWarning, warn
from ._kernel_call import call_kernel
from ._kernel_parts import with_kernels
from ._kernel_primitive import batch_of_states
from ._sharded import Axes, _count, _mapped, _of_leaves


def kernel_vmap(function: Callable[..., Any], in_axes: Axes = 0, interpret: bool = False) -> Callable[..., Any]:
    """Map a function over a batch like `jax.vmap`, in a single GPU kernel with one thread per state.

    For example, the following call launches one kernel for all steps of all states:

        kernel_vmap(lambda q, qd: rollout(robot, q, qd, policy, dt, steps, every=steps))(q, qd)

    The kernel keeps the state in registers. It accesses memory only at the start, at the end, and for rows that a step
    reads or stores. In contrast, `jax.vmap` launches a dozen or more kernels per step. On a CPU, the program is that of
    `jax.vmap`. The kernel uses Pallas' Triton backend, for which JAX 0.11 emits a deprecation warning.

    The function is traced once and decomposed into scalar operations, which form the body of a Pallas kernel. The
    parameters of a robot captured by closure become constants, whereas robots and parameters passed as arguments are read
    from memory. Loops over links are unrolled in small functions, such as forward dynamics of up to 17 joints. In larger
    functions, these loops remain, and links exchange values through memory. Loops over time are not unrolled.

    The function may contain:

    - integrators, checkpoints, torque tables, and policies that consist of arithmetic and elementary functions;
    - `lax.scan`, `lax.cond` and `jax.grad`.

    Kernels do not support:

    - linear algebra by LAPACK, sorting or random numbers;
    - loops whose number of iterations depends on the arguments;
    - array indices that depend on the arguments.

    All computations use the widest floating-point type among the arguments and results (float32 or float64). Integers are
    exact up to 2^24 in float32 and 2^53 in float64. `jax.export` of a kernel requires `disabled_checks`, since JAX does not
    guarantee compatibility for kernels.

    Derivatives in forward and reverse mode are also kernels. A gradient consists of two kernels, followed by sums of the
    cotangents of shared arguments over the batch. The second kernel recomputes the values for each state, with checkpoints
    at the start of each iteration of the loops over time.

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
        return _batched(_of_leaves(function, structure), name, mapped, leaves, interpret)

    compiled = jax.jit(run, static_argnums=(0, 1))

    @functools.wraps(function)
    def batched(*arguments):
        leaves, structure = jax.tree.flatten(arguments)
        return compiled(structure, _mapped(in_axes, arguments), *leaves)

    return batched


def _batched(single: Callable, name: str, mapped: tuple[bool, ...], leaves: tuple, interpret: bool) -> Any:
    _count(leaves, mapped)
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

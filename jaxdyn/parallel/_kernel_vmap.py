"""`kernel_vmap`: a batched function as a single GPU kernel, one thread per state."""

import functools
from collections.abc import Callable
from typing import Any

import jax

from .._jax_compat import Tracer, eval_jaxpr
from ..dynamics._lowering import by_platform
from ..errors import DeploymentError, FallbackWarning, warn
from ._kernel_call import call_kernel
from ._sharded import Axes, _count, _mapped, _of_leaves


def kernel_vmap(function: Callable[..., Any], in_axes: Axes = 0, interpret: bool = False) -> Callable[..., Any]:
    """`jax.vmap(function, in_axes)`, compiled; on a GPU a single kernel, one thread per state.

    kernel_vmap(lambda q, qd: rollout(robot, q, qd, policy, dt, steps, every=steps))(q, qd) launches one kernel for all
    steps of all states: the state stays in registers, and memory is accessed at the start, at the end, and for the rows that
    steps read and store. `jax.vmap` launches about a hundred kernels per step. On a CPU the program is that of `jax.vmap`.
    The kernel is written with Pallas' Triton backend, which JAX 0.11 calls deprecated with a warning.

    The function is traced once and decomposed into scalar operations, which form a Pallas kernel. A robot that it closes over
    becomes constants of the program, folded at compile time; robots and parameters passed as arguments are read from memory.
    Supported are integrators, checkpoints, torque tables, `lax.scan`, `lax.cond`, policies of arithmetic and elementary
    functions, and `jax.grad` within the function. Loops over links are unrolled, loops over time are kept. All numbers have
    the widest type of the arguments and results (float32 or float64); integers are exact up to 2^24 or 2^53.

    Derivatives are those of `jax.vmap(function)`. For gradients in one kernel, differentiate inside:
    kernel_vmap(jax.grad(cost), in_axes), with `checkpoint=` in the rollout, and sum those of shared arguments over the batch.

    Args:
        function: of one robot and one state, as all of jaxdyn; positional arguments only.
        in_axes: 0 for arguments with a batch, None for those without, as for `jax.vmap`, trees of them included.
        interpret: run the kernel in Pallas' interpreter, on any device: slow, to check what becomes of a function.

    Returns:
        a function whose results have the batch as leading axis. Keep and reuse it, as with `jax.jit`.

    Raises:
        ModelError: when it is called: an axis other than 0 and None, batches of different lengths, or none at all.
        FallbackWarning: when it is compiled for a GPU or interpreted: an operation that no kernel holds, which it names
            (linear algebra of LAPACK's, sorting, random numbers, loops whose number of turns depends on arguments, places in
            arrays that do), or more than 150 000 operations; the program is that of `jax.vmap` then.
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
    count = _count(leaves, mapped)
    shapes = [jax.ShapeDtypeStruct(x.shape[1:] if m else x.shape, x.dtype) for x, m in zip(leaves, mapped, strict=True)]
    traced, results = jax.make_jaxpr(single, return_shape=True)(*shapes)
    # arrays of a larger function that is being traced, which this one closes over, are arguments too
    outer = [k for k, x in enumerate(traced.consts) if isinstance(x, Tracer)]
    mapped = (*mapped, *[False] * len(outer))

    def one(*variables):
        constants = list(traced.consts)
        for k, x in zip(outer, variables[len(leaves) :], strict=True):
            constants[k] = x
        return eval_jaxpr(traced.jaxpr, constants, *variables[: len(leaves)])

    plain = jax.vmap(one, tuple(0 if m else None for m in mapped))

    def kernel(*variables):
        try:
            return call_kernel(one, mapped, count, variables, interpret)
        except DeploymentError as error:
            warn(f"kernel_vmap of {name} runs as jax.vmap does, in many kernels: {error.fault}", FallbackWarning)
            return plain(*variables)

    @jax.custom_jvp
    def call(*variables):
        return kernel(*variables) if interpret else by_platform(plain, kernel, *variables)

    call.defjvp(lambda primals, tangents: jax.jvp(plain, primals, tangents))
    found = call(*leaves, *(traced.consts[k] for k in outer))
    return jax.tree.unflatten(jax.tree.structure(results), found)

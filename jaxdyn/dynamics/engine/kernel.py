"""How a function runs: its mode, one CPU kernel, and one form for each platform.

JAX calls a function long after the caller has gone: from the rules of `vmap` and `jvp`, inside `scan`, or when a
program is lowered for a platform. The `Mode` of a function is therefore kept in one context variable, which is set
around a trace (`traced_in`).

A kernel is a call that XLA neither inlines nor splits. XLA uses such calls for small loops
(`SmallWhileLoopHoistingPass`) and compiles the called computation to one LLVM function. It makes these demands on the
computation (jaxlib 0.10.2), each of which tests/test_xla_limits.py reproduces:

1. Every buffer that is addressed must be in a table, or XLA aborts (`EmitGlobalBufferPointer`). `GetAllSlices` enters
   operands of instructions and results of instructions other than parameters, but `HandleParameter` addresses all
   parameters. Some instruction must therefore read each parameter in the final computation. Because of
   `HloConstantFolding`, operands pass through an `optimization_barrier`; because of `AlgebraicSimplifier`, which folds
   x * 0, an entry of every operand is returned; because of `HloDCE`, these entries and the first result are returned
   through one barrier.
2. `IrEmitter` must support every instruction without calls at run time: no scatters, sorts, FFTs, `top_k`, matrix
   products fused for a library (from 8 x 8), LAPACK, callbacks, prints, collectives or `PartitionId`. User functions
   never become kernels. If lanes are sharded over devices, an entry of every lane is returned, which requires no
   communication, and loops do not end early (`any_lane`).
3. No instruction may be distributed over threads ("Invalid LLVM IR before optimizations"). `ParallelTaskAssigner` does
   so in two cases: if bytes >= flops and the result has 512 KiB, which `LARGEST` and the `size` of functions prevent;
   and if bytes < flops and flops + 2 * transcendentals + 10 * bytes (read and written) reaches 200 000. The second case
   is not excluded by construction, but functions of this library stay below the limit at 64 lanes; for an arm with
   three joints, by a factor of 4.
4. Called computations must be emitted before their callers, and that of a reduction must not contain a call; otherwise
   XLA aborts (`EmitThreadLocalCall`, `EmitGlobalCall`). Calls inside the kernel, which inherit the attributes that mark
   a kernel, are therefore marked as ordinary calls, which XLA inlines.
5. The state, condition and body of a loop must share their buffers (`HandleWhile`), and modules must be scheduled,
   which XLA ensures. Constants and empty arrays are unrestricted; constants of more than 10 000 bytes are passed as
   arguments.

Later versions of XLA outline straight-line instructions, exclude tokens, and will retire `IrEmitter`
(openxla/xla#48001).
"""

import contextvars
import dataclasses
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..._jax_compat import (
    Primitive,
    Zero,
    custom_vmap,
    dce_jaxpr,
    eval_jaxpr,
    instantiate_zeros,
    lower_fun,
    primitive_batchers,
    primitive_jvps,
    primitive_transposes,
    register_lowering,
    set_xla_metadata,
)

Count = Any  # number of states: an int, or a symbolic size under `jax.export`


@dataclasses.dataclass(frozen=True)
class Mode:
    """How a function is run."""

    # trailing shape of all arrays, () for one state or (count,) for a batch, in the body of a function decorated with
    # `by_batch`; None outside
    lanes: tuple[Count, ...] | None = None
    in_kernel: bool = False  # the function becomes one CPU kernel
    unroll: int | None = None  # longest loop over links that other platforms than the CPU unroll; None on the CPU


_PLAIN = Mode()
_MODE: contextvars.ContextVar[Mode] = contextvars.ContextVar("mode", default=_PLAIN)


def mode() -> Mode:
    """How the function that is being traced will run."""
    return _MODE.get()


def traced_in(function: Callable, **changes: Any) -> Callable:
    """The function, with `changes` of the mode while it is traced."""

    def traced(*variables: Any) -> Any:
        token = _MODE.set(dataclasses.replace(mode(), **changes))
        try:
            return function(*variables)
        finally:
            _MODE.reset(token)

    return traced


def uses_definitions() -> bool:
    """True if `JAXDYN_DEFINITIONS=1`: dynamics are computed by the definitions in `rnea`, without kernels."""
    return os.environ.get("JAXDYN_DEFINITIONS", "0") == "1"


def uses_kernels() -> bool:
    """True unless `JAXDYN_KERNELS=0` or `JAXDYN_DEFINITIONS=1`."""
    return os.environ.get("JAXDYN_KERNELS", "1") != "0" and not uses_definitions()


def defined_by(definition: Callable) -> Callable:
    """Decorator: the function below computes the same values as `definition`, which replaces it if `uses_definitions`."""

    def decorate(fast: Callable) -> Any:
        @functools.wraps(fast)  # which copies attributes, too, such as `defjvp`
        def chosen(*arguments: Any, **named: Any) -> Any:
            return (definition if uses_definitions() else fast)(*arguments, **named)

        return chosen

    return decorate


# maximum number of values that one operation of a kernel reads and writes (400 KB): see point 3
LARGEST = 50_000


def as_kernel(function: Callable, lanes: Sequence[int | None] | None = None) -> Callable:
    """Compile a function to one kernel; `lanes` are the axes of the lanes of its arguments."""
    # numbers in comments refer to the list in the module's docstring
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


# workarounds for XLA and LLVM


def computed_once(carry: tuple[Array, ...], q: Array, results: Any) -> Any:
    """The results of a loop, made dependent on the values that it carried last."""
    # XLA would compute a value that a step uses in several results once for each, but it computes what a loop carries
    # once, and removes carries that nobody reads. Results change only if q contains NaN, which XLA cannot exclude.
    (first, *others), structure = jax.tree.flatten(results)
    return jax.tree.unflatten(structure, [jnp.where(q[0] != q[0], sum(carry), first), *others])


@jax.custom_jvp
def settled(*values: Array) -> tuple[Array, ...]:
    """The values, which XLA computes before anything that depends on them, and only once."""
    # XLA merges an operation into each of its users, where it may round differently. Decisions, such as which end of a
    # segment is higher, could then differ between the components of one vector. Conditionals are not merged.
    return _in_conditional(*values)


settled.defjvp(lambda primals, tangents: (settled(*primals), tuple(tangents)))


@custom_vmap
def _in_conditional(*values: Array) -> tuple[Array, ...]:
    keep = lambda x: x if x.dtype == bool else jnp.where(x == x, x, 0)
    always = jax.lax.optimization_barrier(jnp.array(True))
    return jax.lax.cond(always, lambda *x: x, lambda *x: tuple(map(keep, x)), *values)


@_in_conditional.def_vmap
def _(axis_size: int, in_batched: list[bool], *values: Array) -> Any:
    """`vmap` would replace a conditional by a selection."""
    # its own derivative would call this rule for a batch of tangents at one state, and so on without end
    return settled(*values), tuple(in_batched)


def any_lane(condition: Array) -> Array:
    """True if the condition of any lane is; always true for lanes on several devices, between which no kernel communicates."""
    return jnp.any(condition) if loops_end_early() else jnp.array(True)


def loops_end_early() -> bool:
    """False in a kernel whose lanes may be on several devices (see `any_lane`)."""
    return not mode().in_kernel or jax.local_device_count("cpu") == 1


def blank_results(entries: Sequence[int], like: Sequence[Any]) -> tuple[Array, ...]:
    """Zeros for results that a loop writes entry by entry; array k keeps 1 + k zeros at its end (see `Pairs`)."""
    # lengths differ, since XLA would use one array of zeros for arrays of equal shape, and copy it for each of them
    return tuple(jnp.zeros((n + 1 + k, *x.shape), x.dtype) for k, (n, x) in enumerate(zip(entries, like, strict=True)))


def compilable_lanes(lanes: int, most: int, variables: Sequence[Any]) -> int:
    """The number of lanes of a kernel, but not eight lanes that fit one vector register, such as those of float32."""
    # with eight such lanes, LLVM keeps the arrays of a kernel in registers: compiling the derivatives of a Panda's
    # forward dynamics needs more than 23 GB, and 0.5 GB with 7 or 16 lanes (jaxlib 0.10.2)
    single = any(jnp.result_type(x) in (jnp.float32, jnp.float16, jnp.bfloat16) for x in variables)
    return lanes if lanes != 8 or not single else 16 if most >= 16 else 7


# Functions that have one form for the CPU and another for other platforms. Unlike `jax.lax.platform_dependent`, they
# trace the other form only when a program is lowered for another platform.

_by_platform_p = Primitive("by_platform")
_by_platform_p.multiple_results = True


def by_platform(
    cpu: Callable, default: Callable, *arguments: Any, one_state: tuple[Callable, tuple[bool, ...]] | None = None
) -> Any:
    """Evaluate cpu(*arguments) in programs for the CPU, and default(*arguments) in programs for other platforms.

    Neither function may capture traced arrays. Derivatives are computed in forward mode. For a batch, `one_state` is
    its function and the mask of the arguments with a batch axis (`parallel.kernel_vmap`).
    """
    variables, structure = jax.tree.flatten(arguments)
    mesh = jax.sharding.get_abstract_mesh()

    def flat(function):
        return lambda *variables: function(*jax.tree.unflatten(structure, variables))

    def other(*variables):
        with jax.sharding.use_abstract_mesh(mesh):
            return jax.tree.leaves(flat(default)(*variables))

    jaxpr, shapes = jax.make_jaxpr(flat(cpu), return_shape=True)(*variables)
    out = _by_platform_p.bind(*variables, cpu=jaxpr, default=other, one_state=one_state)
    return jax.tree.unflatten(jax.tree.structure(shapes), out)


def _evaluated(jaxpr) -> Callable[..., list]:
    return lambda *variables: eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *variables)


@_by_platform_p.def_effectful_abstract_eval
def _(*_, cpu, **__):
    return cpu.out_avals, cpu.effects


@_by_platform_p.def_impl
def _(*variables, cpu, default, one_state):
    del one_state
    on_cpu = all(device.platform == "cpu" for x in variables for device in jnp.asarray(x).devices())
    return (_evaluated(cpu) if on_cpu else default)(*variables)


def _batched(variables, dims, *, cpu, default, one_state):
    del one_state
    in_axes = tuple(dims)
    out = by_platform(jax.vmap(_evaluated(cpu), in_axes), jax.vmap(default, in_axes), *variables)
    return out, [0] * len(out)


def _jvp(primals, tangents, *, cpu, default, one_state):
    def pushed(function):
        return lambda primals, tangents: jax.jvp(function, primals, tangents)[1]

    # values and derivatives are computed separately, so that values are not batched when only the tangents are batched
    out = _by_platform_p.bind(*primals, cpu=cpu, default=default, one_state=one_state)
    tangents = tuple(instantiate_zeros(t) for t in tangents)
    return out, by_platform(pushed(_evaluated(cpu)), pushed(default), tuple(primals), tangents)


primitive_batchers[_by_platform_p] = _batched
primitive_jvps[_by_platform_p] = _jvp
register_lowering(
    _by_platform_p,
    lambda ctx, *x, cpu, **_: lower_fun(_evaluated(cpu), multiple_results=True)(ctx, *x),
    platform="cpu",
)
register_lowering(_by_platform_p, lambda ctx, *x, default, **_: lower_fun(default, multiple_results=True)(ctx, *x))


# Linear functions with a transpose of their own, such as a kernel.

_linear_p = Primitive("linear_map")
_linear_p.multiple_results = True


def linear_map(function: Callable, transpose: Callable, constants: Any, x: Any) -> Any:
    """function(constants, x), which is linear in x; reverse mode evaluates transpose(constants, cotangent).

    Under `vmap`, several x or cotangents for the same constants use the function and JAX's transpose of it, which share what
    depends on the constants only.
    """
    known, structure = jax.tree.flatten(constants)
    variables, of_x = jax.tree.flatten(x)
    count = len(known)

    def flat(function, of_argument):
        def call(*values):
            argument = jax.tree.unflatten(of_argument, values[count:])
            return jax.tree.leaves(function(jax.tree.unflatten(structure, values[:count]), argument))

        return call

    of_result = jax.tree.structure(jax.eval_shape(function, constants, x))
    out = _bound(flat(function, of_x), *known, *variables, transpose=flat(transpose, of_result), count=count)
    return jax.tree.unflatten(of_result, out)


def _bound(function: Callable, *values: Any, **parameters: Any) -> list[Array]:
    return _linear_p.bind(*values, program=jax.make_jaxpr(function)(*values), **{"is_transposed": False, **parameters})


def _linear_batched(values, dims, *, program, transpose, count, is_transposed):
    known, axes = values[:count], dims[count:]
    if all(axis is None for axis in dims[:count]):
        several = _evaluated(program)
        if is_transposed:
            start = [jnp.zeros(x.shape, x.dtype) for x in program.out_avals]
            _, pull = jax.vjp(lambda *x: transpose(*known, *x), *start)
            several = lambda *values: pull(list(values[count:]))
        out = jax.vmap(several, tuple(dims))(*values)
        return out, [0] * len(out)

    def transposed(*values):
        out = jax.vmap(transpose, (*dims[:count], *[0] * (len(values) - count)))(*values)
        return [x.sum(axis=0) if axis is None else jnp.moveaxis(x, 0, axis) for x, axis in zip(out, axes, strict=True)]

    mapped = jax.vmap(_evaluated(program), tuple(dims))
    out = _bound(mapped, *values, transpose=transposed, count=count, is_transposed=is_transposed)
    return out, [0] * len(out)


def _linear_jvp(primals, tangents, *, program, count, **others):
    linear = functools.partial(_linear_p.bind, *primals[:count], program=program, count=count, **others)
    out, changes = linear(*primals[count:]), linear(*map(instantiate_zeros, tangents[count:]))
    active = [k for k, t in enumerate(tangents[:count]) if not isinstance(t, Zero)]
    if active:
        of_active = lambda *some: _evaluated(program)(*with_entries(primals, active, some))
        _, more = jax.jvp(of_active, [primals[k] for k in active], [tangents[k] for k in active])
        changes = [x + y for x, y in zip(changes, more, strict=True)]
    return out, changes


def with_entries(values: Sequence[Any], places: Sequence[int], new: Sequence[Any]) -> list[Any]:
    """Copy of `values` in which the entries at `places` are replaced by `new`."""
    found = list(values)
    for k, x in zip(places, new, strict=True):
        found[k] = x
    return found


def _linear_transpose(cotangents, *values, program, transpose, count, is_transposed):
    given = *values[:count], *map(instantiate_zeros, cotangents)
    swapped = {"transpose": _evaluated(program), "is_transposed": not is_transposed}
    return [None] * count + _bound(transpose, *given, count=count, **swapped)


_linear_p.def_impl(lambda *x, program, **_: _evaluated(program)(*x))
_linear_p.def_effectful_abstract_eval(lambda *_, program, **__: (program.out_avals, program.effects))
primitive_batchers[_linear_p] = _linear_batched
primitive_jvps[_linear_p] = _linear_jvp
primitive_transposes[_linear_p] = _linear_transpose
register_lowering(
    _linear_p, lambda ctx, *x, program, **_: lower_fun(_evaluated(program), multiple_results=True)(ctx, *x)
)

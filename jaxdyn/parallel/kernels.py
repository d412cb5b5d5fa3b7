"""`kernel_vmap`: a batched function as a single GPU kernel with one thread per state.

A kernel is an instance of the primitive `batch_of_states`, as are its derivatives, transposes and batches: each is one program
for the entire batch. A gradient on a GPU consists of two kernels, of which the second recomputes the values for each state.
Cotangents of arguments shared by all states are summed afterwards. A function that cannot be one kernel falls back to
`jax.vmap`, in which every library function that it calls becomes a kernel.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from .._jax_compat import (
    Primitive,
    ShapedArray,
    Tracer,
    Zero,
    eval_jaxpr,
    is_undefined_primal,
    lower_fun,
    primitive_batchers,
    primitive_jvps,
    primitive_transposes,
    register_lowering,
)
from ..dynamics.engine.platform import by_platform
from ..errors import DeploymentError, FallbackWarning, warn
from ..source.loops import cost
from .kernel_call import call_kernel
from .sharded import Axes, count_rows, mapped_leaves, of_leaves

Run = Callable[[Callable, tuple[bool, ...], Sequence[jax.Array]], list[jax.Array]]


def kernel_vmap(function: Callable[..., Any], in_axes: Axes = 0, interpret: bool = False) -> Callable[..., Any]:
    """Map a function over a batch like `jax.vmap`, in a single GPU kernel with one thread per state.

    For example, the following call launches one kernel for all steps of all states:

        kernel_vmap(lambda q, qd: rollout(robot, q, qd, policy, dt, steps, every=steps))(q, qd)

    The kernel keeps the state in registers. It accesses memory only at the start, at the end, and for rows that a step
    reads or stores. In contrast, `jax.vmap` launches a dozen or more kernels per step. On a CPU, the program is that of
    `jax.vmap`. The kernel uses Pallas' Triton backend, for which JAX 0.11 emits a deprecation warning.

    The function is traced once and decomposed into scalar operations. The parameters of a robot captured by closure become
    constants, whereas robots and parameters passed as arguments are read from memory. Loops over links are unrolled in small
    functions, such as forward dynamics of up to 17 joints; in larger ones, links exchange values through memory. Loops over
    time are not unrolled.

    The function may contain integrators, checkpoints, torque tables, policies of arithmetic and elementary functions,
    `lax.scan`, `lax.cond` and `jax.grad`, but no linear algebra by LAPACK, sorting, random numbers, loops whose number of
    iterations depends on the arguments, or array indices that depend on them.

    All computations use the widest floating-point type among the arguments and results (float32 or float64). Integers are
    exact up to 2^24 in float32 and 2^53 in float64. `jax.export` of a kernel requires `disabled_checks`, since JAX does not
    guarantee compatibility for kernels.

    Derivatives in forward and reverse mode are also kernels. A gradient consists of two kernels, of which the second
    recomputes the values for each state, with checkpoints at the start of each iteration of the loops over time.

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
            found = stepwise(*_filled(values, active, varied))
            return [found[k] for k in smooth]

        return jax.jvp(of_active, tuple(values[k] for k in active), directions)[1]

    both = (*mapped, *(mapped[k] for k in active))
    found = batch_of_states(
        tangent, [results[k] for k in smooth], both, run, [*primals, *(tangents[k] for k in active)]
    )
    return out, _filled([Zero(jax.typeof(x).to_tangent_aval()) for x in out], smooth, found)


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
        values = _filled([None] * len(variables), given, inputs[: len(given)])

        def forward(*directions):
            found = function(*_filled(values, linear, directions))
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
    return _filled([None] * len(variables), linear, summed)


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


def _filled(values: Sequence[Any], places: Sequence[int], new: Sequence[Any]) -> list[Any]:
    """Copy of `values` in which the entries at `places` are replaced by `new`."""
    found = list(values)
    for k, x in zip(places, new, strict=True):
        found[k] = x
    return found


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
        default = with_kernels(parameters["default"], interpret)  # a solver, for example, calls other library functions
        if parameters["each"] is not None:
            function, mapped = parameters["each"]
            default = _kernel(function, mapped, default, interpret)
        cpu = jax.make_jaxpr(default)(*(x.aval for x in equation.invars)) if interpret else parameters["cpu"]
        return equation.replace(params={**parameters, "default": default, "cpu": cpu})

    return _rewritten(batched, change)


def _kernel(function: Callable, mapped: tuple[bool, ...], default: Callable, interpret: bool) -> Callable:
    """Batched form of a function of one state, evaluated by one kernel if possible, and by `default` otherwise."""

    def evaluated(*variables):
        try:
            return call_kernel(lambda *x: jax.tree.leaves(function(*x)), mapped, variables, interpret)
        except DeploymentError:
            return default(*variables)

    return evaluated

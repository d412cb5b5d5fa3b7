"""JAX primitive for batched functions, whose derivatives, transposes and batches are instances of the same primitive.

Each instance is one program for the entire batch. On a GPU, a gradient therefore consists of two kernels. The first
computes the values, and the second recomputes them for each state and applies the transposed derivative. The cotangents of
arguments shared by all states are summed afterwards.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from .._jax_compat import (
    Primitive,
    ShapedArray,
    Zero,
    eval_jaxpr,
    is_undefined_primal,
    lower_fun,
    primitive_batchers,
    primitive_jvps,
    primitive_transposes,
    register_lowering,
)
from .._source.loops import cost

Run = Callable[[Callable, tuple[bool, ...], Sequence[jax.Array]], list[jax.Array]]

_batch_p = Primitive("batch_of_states")
_batch_p.multiple_results = True


def batch_of_states(
    function: Callable, results: Sequence[Any], mapped: Sequence[bool], run: Run, variables: Sequence[Any]
) -> list[Any]:
    """Evaluate run(function, mapped, variables), with derivatives in forward and reverse mode.

    Args:
        function: function of one state, which maps arrays to a list of arrays.
        results: shapes and types of the results for one state.
        mapped: mask of the variables that have a batch axis.
        run: function that evaluates a function of one state for a batch.
    """
    return _batch_p.bind(*variables, function=function, results=tuple(results), mapped=tuple(mapped), run=run)


@_batch_p.def_abstract_eval
def _(*variables, results, mapped, **_):
    count = _count(variables, mapped)
    return [ShapedArray((count, *x.shape), x.dtype) for x in results]


def _count(variables: Sequence[Any], mapped: Sequence[bool]) -> int:
    return next(x.shape[0] for x, m in zip(variables, mapped, strict=True) if m)


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


def _batched(variables, dims, *, function, results, mapped, run):
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
primitive_batchers[_batch_p] = _batched
register_lowering(_batch_p, lambda ctx, *x, **p: lower_fun(lambda *x: _run(*x, **p), multiple_results=True)(ctx, *x))


def _filled(values: Sequence[Any], places: Sequence[int], new: Sequence[Any]) -> list[Any]:
    """Copy of `values` in which the entries at `places` are replaced by `new`."""
    found = list(values)
    for k, x in zip(places, new, strict=True):
        found[k] = x
    return found


def with_checkpoints(function: Callable) -> Callable:
    """Rewrite loops so that reverse mode stores the state at the start of each iteration and recomputes the rest.

    Loops that already contain checkpoints do not change. Library functions do not change either, since their loops are over
    links.
    """

    def stepwise(*variables):
        traced = jax.make_jaxpr(function)(*variables)
        return eval_jaxpr(_checkpointed(traced.jaxpr), traced.consts, *variables)

    return stepwise


def _checkpointed(jaxpr: Any) -> Any:
    return jaxpr.replace(eqns=[_checkpointed_equation(x) for x in jaxpr.eqns])


def _checkpointed_equation(equation: Any) -> Any:
    name, inner = equation.primitive.name, equation.params.get("jaxpr")
    if name == "jit":
        found = inner.replace(jaxpr=_checkpointed(inner.jaxpr))
    elif name == "scan" and not any(x.primitive.name.startswith(("remat", "checkpoint")) for x in inner.eqns):
        nested = sum(
            cost(x.params["jaxpr"].jaxpr) * x.params["length"] for x in inner.eqns if x.primitive.name == "scan"
        )
        if cost(inner.jaxpr) > 1.1 * nested:
            body = lambda *x: eval_jaxpr(inner.jaxpr, inner.consts, *x)
            found = jax.make_jaxpr(jax.checkpoint(body, prevent_cse=False))(*inner.in_avals)
        else:  # most of the work is in an inner loop, so its iterations become checkpoints
            found = inner.replace(jaxpr=_checkpointed(inner.jaxpr))
    else:
        return equation
    return equation.replace(params={**equation.params, "jaxpr": found})

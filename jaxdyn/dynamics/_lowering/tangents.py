"""Helpers for derivative rules of functions with custom batching: zero tangents, and the batch axis."""

from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array

from ..._jax_compat import SymbolicZero, custom_vmap


@jax.custom_jvp
def batch_first(x: Array) -> Array:
    """Return x; under `vmap`, its batch axis becomes the first axis.

    JAX assumes that the batch axis is the same in the results of a function and of its derivative rule. Otherwise derivatives
    of a compiled `vmap` of the function have wrong shapes (jax-ml/jax#16374).
    """
    return _first_axis(x)


@custom_vmap
def _first_axis(x: Array) -> Array:
    return x


@_first_axis.def_vmap
def _(axis_size, in_batched, x):
    del axis_size
    return x, in_batched[0]


batch_first.defjvp(lambda primals, tangents: (batch_first(*primals), tangents[0]))


def sparse_jvp(function: Callable[..., Any], primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    """`jax.jvp`, except that leaves of the arguments with a `SymbolicZero` tangent are not differentiated."""
    values, structure = jax.tree.flatten(primals)
    directions = jax.tree.leaves(tangents, is_leaf=is_zero)
    active = [not is_zero(t) for t in directions]

    def of_active(*varied):
        rest = iter(varied)
        filled = [next(rest) if a else v for v, a in zip(values, active, strict=True)]
        return function(*jax.tree.unflatten(structure, filled))

    chosen = [(v, t) for v, t, a in zip(values, directions, active, strict=True) if a]
    return jax.jvp(of_active, tuple(v for v, _ in chosen), tuple(t for _, t in chosen))


def is_zero(tangent: Any) -> bool:
    """True for a tangent that is known to be zero."""
    return isinstance(tangent, SymbolicZero)

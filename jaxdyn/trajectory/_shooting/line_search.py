"""Backtracking line search with step lengths 1, 1/2, 1/4, ..., which can also extend the step beyond 1."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._trees import batched_with

LENGTHS = 10
ENOUGH = 1e-4  # required fraction of the decrease predicted by the slope
LONGEST, WORTH = 8.0, 1.5  # the longest step length that is tried, and the shortest one above 1


class _Search(NamedTuple):
    tries: Array
    length: Array  # next step length to try
    result: Any  # best result so far
    merit: Array
    chosen: Array  # step length of the best result; 0 until a step is accepted
    done: Array


def first_that_helps(
    attempt: Callable[[Array], tuple[Any, Array]],
    nothing: Any,
    merit: Float[Array, ""],
    slope: Float[Array, ""],
    together: bool,
    longer: Array,
) -> tuple[Any, Float[Array, ""]]:
    """Find a step that lowers the merit sufficiently; return (result, step length), or (nothing, 0) if there is none.

    A step is accepted if its merit is at most merit + 1e-4 length slope (Armijo's condition). The first accepted length
    among 1, 1/2, 1/4, ... is used.

    A step of length 1 is too short if the model overestimates the Hessian, as is common with Gauss-Newton. If the merit at
    length 1 indicates this, a longer step is also tried, and used if its merit is lower. Its length minimises the parabola
    defined by the current merit, the current slope, and the merit at length 1.

    Args:
        attempt: function from a step length to (result, merit).
        nothing: result to return if no step is accepted.
        merit: current merit.
        slope: derivative of the merit with respect to the step length at 0.
        together: True to try all lengths at once, along an additional axis; False to try them one after another.
        longer: True to also try lengths above 1.
    """
    dtype = merit.dtype
    rounding = 10 * jnp.finfo(dtype).eps * jnp.abs(merit)
    helps = lambda new, length: new <= merit + ENOUGH * length * jnp.minimum(slope, 0) + rounding
    if together:
        lengths = jnp.concatenate([0.5 ** jnp.arange(LENGTHS, dtype=dtype), jnp.asarray([2, 4, LONGEST], dtype)])
        results, merits = jax.vmap(attempt)(lengths)
        good = helps(merits, lengths) & (longer | (lengths <= 1))
        first = jnp.argmax(good)
        best = jnp.argmin(jnp.where(good & (lengths >= 1), merits, jnp.inf))
        chosen = jnp.where(good[0], best, first)
        some = good.any()
        result = jax.tree.map(lambda new, old: jnp.where(some, new[chosen], old), results, nothing)
        return result, jnp.where(some, lengths[chosen], jnp.zeros((), dtype))

    def body(state: _Search) -> _Search:
        result, new = attempt(state.length)
        one, whole = jnp.ones((), dtype), state.length == 1
        found = state.chosen > 0
        better = helps(new, state.length) & (~found | (new < state.merit))
        curvature = 2 * (new - merit - slope)
        fit = jnp.where(curvature * LONGEST > -slope, -slope / jnp.where(curvature == 0, one, curvature), LONGEST)
        further = whole & better & longer & (fit > WORTH) & (slope < 0)
        pick = lambda x, y: jax.tree.map(lambda a, b: jnp.where(better, a, b), x, y)
        return _Search(
            state.tries + 1,
            jnp.where(further, fit, 0.5 * state.length),
            pick(result, state.result),
            pick(new, state.merit),
            jnp.where(better, state.length, state.chosen),
            found | (better & ~further),
        )

    zero = jnp.zeros((), dtype)
    start = _Search(jnp.zeros((), jnp.int32), zero + 1, nothing, merit, zero, jnp.zeros((), bool))
    start = batched_with(start, merit)
    state = jax.lax.while_loop(lambda s: (s.tries < LENGTHS) & ~s.done, body, start)
    return state.result, state.chosen

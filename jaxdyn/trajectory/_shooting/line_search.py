"""Line search: the first step length among 1, 1/2, 1/4 ... that lowers the merit sufficiently, or a longer one."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._trees import batched_with

LENGTHS = 10
ENOUGH = 1e-4  # required fraction of the decrease that the slope predicts
LONGEST, WORTH = 8.0, 1.5  # the longest step length, and the shortest one above 1 that is tried


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
    """Find the longest step that lowers the merit to merit + 1e-4 length slope or less; return (result, step length).

    If no step is accepted, return (nothing, 0). If the Hessian is too large, which is common with Gauss-Newton, steps
    of length 1 are too short. If the merit at length 1 indicates this, also try the minimiser of the parabola defined
    by the current merit, its slope and the merit at length 1, and use it if it is better.

    Args:
        attempt: function from a step length to (result, merit).
        nothing: result if no step is accepted.
        merit: current merit.
        slope: derivative of the merit with respect to the step length at 0.
        together: True to try all lengths at once, along an additional axis; False to try one at a time, as many as needed.
        longer: True to try lengths above 1, too.
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

"""Which step length a direction gets: the first of 1, 1/2, 1/4 ... that lowers the merit enough."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

LENGTHS = 10
ENOUGH = 1e-4  # of the decrease that the slope promises


def first_that_helps(
    attempt: Callable[[Array], tuple[Any, Array]],
    nothing: Any,
    merit: Float[Array, ""],
    slope: Float[Array, ""],
    together: bool,
) -> tuple[Any, Float[Array, ""]]:
    """(what `attempt` made, its step length) of the longest step with merit + 1e-4 length slope; (nothing, 0) if none.

    Args:
        attempt: length -> (result, merit).
        nothing: a result to give where none helps.
        merit: now.
        slope: its derivative to the length at 0.
        together: all lengths at once, one more axis; else one after the other, only as many as needed.
    """
    dtype = merit.dtype
    rounding = 10 * jnp.finfo(dtype).eps * jnp.abs(merit)
    helps = lambda new, length: new <= merit + ENOUGH * length * jnp.minimum(slope, 0) + rounding
    if together:
        lengths = 0.5 ** jnp.arange(LENGTHS, dtype=dtype)
        results, merits = jax.vmap(attempt)(lengths)
        good = helps(merits, lengths)
        chosen = jnp.argmax(good)
        some = good.any()
        result = jax.tree.map(lambda new, old: jnp.where(some, new[chosen], old), results, nothing)
        return result, jnp.where(some, lengths[chosen], jnp.zeros((), dtype))

    def body(state):
        k, _, _, _ = state
        length = 0.5 ** k.astype(dtype)
        result, new = attempt(length)
        return k + 1, result, length, helps(new, length)

    state = jnp.zeros((), jnp.int32), nothing, jnp.zeros((), dtype), jnp.zeros((), bool)
    _, result, length, good = jax.lax.while_loop(lambda s: (s[0] < LENGTHS) & ~s[3], body, state)
    result = jax.tree.map(lambda new, old: jnp.where(good, new, old), result, nothing)
    return result, jnp.where(good, length, jnp.zeros((), dtype))

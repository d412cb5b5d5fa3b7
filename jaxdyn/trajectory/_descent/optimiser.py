"""One step of an optax optimiser, shared by the gradient-based solvers."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree


@functools.lru_cache(maxsize=32)  # a single object for all calls, to avoid recompilation
def supported(optimiser: Any) -> Any:
    """The optimiser, wrapped to accept (and ignore) the arguments of a line search if it has no line search."""
    import optax

    return optax.with_extra_args_support(optimiser)


@functools.cache
def quasi_newton() -> Any:
    """L-BFGS, suited to few unknowns; the line search uses no gradients, which halves the compilation time."""
    import optax

    return supported(optax.lbfgs(linesearch=optax.scale_by_backtracking_linesearch(max_backtracking_steps=25)))


@functools.lru_cache(maxsize=32)
def clipped_adam(learning_rate: float | Callable = 1e-2, clip: float = 1.0) -> Any:
    """Adam with gradient clipping: `optax.clip_by_global_norm` followed by `optax.adam`, suited to many unknowns.

    Args:
        learning_rate: a number or an optax schedule.
        clip: maximum norm of the gradient.
    """
    import optax

    return optax.chain(optax.clip_by_global_norm(clip), optax.adam(learning_rate))


def firm(tree: PyTree) -> PyTree:
    """Remove weak types from all arrays, so that the first iterate has the same types as later ones (no recompilation)."""
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.asarray(x).dtype), tree)


def begin(optimiser: Any, unknowns: PyTree) -> PyTree:
    """The optimiser's initial state."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # optax mixes integer types
        state = optimiser.init(unknowns)
    return firm(state)


def descend(
    optimiser: Any,
    unknowns: PyTree,
    state: PyTree,
    value: Float[Array, ""],
    slope: PyTree,
    value_of: Callable[[PyTree], Array],
    scale: Float[Array, ""],
) -> tuple[PyTree, PyTree]:
    """Apply the optimiser's update, multiplied by `scale`; return the new unknowns and the optimiser's new state."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        change, state = optimiser.update(slope, state, unknowns, value=value, grad=slope, value_fn=value_of)
    return jax.tree.map(lambda x, d: x + (scale * d).astype(x.dtype), unknowns, change), state

"""One step of an optax optimiser, shared by the gradient-based solvers."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree


@functools.lru_cache(maxsize=32)  # the same object at every call, to avoid recompilation
def supported(optimiser: Any) -> Any:
    """The optimiser, wrapped to accept the arguments of a line search even if it has none."""
    import optax

    return optax.with_extra_args_support(optimiser)


@functools.cache
def quasi_newton() -> Any:
    """L-BFGS, for few unknowns; its line search evaluates no gradients, which halves the compilation time."""
    import optax

    return supported(optax.lbfgs(linesearch=optax.scale_by_backtracking_linesearch(max_backtracking_steps=25)))


@functools.lru_cache(maxsize=32)
def clipped_adam(learning_rate: float | Callable = 1e-2, clip: float = 1.0) -> Any:
    """Adam, for many unknowns: `optax.adam` after clipping the norm of the gradient by `optax.clip_by_global_norm`.

    Args:
        learning_rate: a number or an optax schedule.
        clip: maximum norm of the gradient.
    """
    import optax

    return optax.chain(optax.clip_by_global_norm(clip), optax.adam(learning_rate))


def firm(tree: PyTree) -> PyTree:
    """Convert weakly typed arrays to strong types, as in later iterates, so that the second iteration does not recompile."""
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
    """The unknowns after a step of `scale` times the optimiser's update, and the optimiser's new state."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        change, state = optimiser.update(slope, state, unknowns, value=value, grad=slope, value_fn=value_of)
    return jax.tree.map(lambda x, d: x + (scale * d).astype(x.dtype), unknowns, change), state

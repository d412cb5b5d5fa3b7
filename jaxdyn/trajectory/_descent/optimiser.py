"""One step of an optax optimiser, shared by the gradient-based solvers."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree


@functools.lru_cache(maxsize=32)  # the same object again, so that nothing is compiled again
def supported(optimiser: Any) -> Any:
    """The optimiser, able to take what a line search needs whether it has one or not."""
    import optax

    return optax.with_extra_args_support(optimiser)


@functools.cache
def quasi_newton() -> Any:
    """The optimiser for few unknowns: L-BFGS with a line search that needs values alone, which halves what is compiled."""
    import optax

    return supported(optax.lbfgs(linesearch=optax.scale_by_backtracking_linesearch(max_backtracking_steps=25)))


@functools.lru_cache(maxsize=32)
def clipped_adam(learning_rate: float | Callable = 1e-2, clip: float = 1.0) -> Any:
    """The optimiser for many unknowns: `optax.adam` after clipping the gradient's norm (`optax.clip_by_global_norm`).

    Args:
        learning_rate: a number or a schedule of optax.
        clip: norm that gradients are clipped to.
    """
    import optax

    return optax.chain(optax.clip_by_global_norm(clip), optax.adam(learning_rate))


def firm(tree: PyTree) -> PyTree:
    """Arrays whose types are not weak, as those of later iterates are: otherwise the second one would be recompiled."""
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.asarray(x).dtype), tree)


def begin(optimiser: Any, unknowns: PyTree) -> PyTree:
    """The optimiser's first state."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # optax mixes types of integers
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
    """The unknowns a step further, `scale` times as long as the optimiser says, and its state."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        change, state = optimiser.update(slope, state, unknowns, value=value, grad=slope, value_fn=value_of)
    return jax.tree.map(lambda x, d: x + (scale * d).astype(x.dtype), unknowns, change), state

"""Selection and batching of pytrees under `jit`."""

from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

Tree = TypeVar("Tree")


def choose(condition: Array, yes: Tree, no: Tree) -> Tree:
    """Select `yes` if the condition is true, else `no`, leaf by leaf."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def at(tree: Tree, rows: int | slice) -> Tree:
    """Select the same row or rows of every array in a tree."""
    return jax.tree.map(lambda x: x[rows], tree)


def batched_with(tree: Tree, x: Array) -> Tree:
    """The same tree; under `vmap`, all of its leaves are batched if the scalar x is batched.

    Under `vmap`, JAX traces the body of a loop again whenever another part of the carry turns out to be batched. If all parts
    are batched from the start, the body is traced only once.
    """
    return jax.tree.map(lambda y: jnp.where(x == x, y, y), tree)


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """True if every number in a tree is finite."""
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(tree)]))

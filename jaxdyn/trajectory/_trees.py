"""Selection from trees of arrays, under `jit`."""

from typing import TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

Tree = TypeVar("Tree")


def choose(condition: Array, yes: Tree, no: Tree) -> Tree:
    """Select one of two trees."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


def at(tree: Tree, rows: int | slice) -> Tree:
    """Select one or several rows of all arrays in a tree."""
    return jax.tree.map(lambda x: x[rows], tree)


def batched_with(tree: Tree, x: Array) -> Tree:
    """The same tree, batched under `vmap` wherever the scalar x is.

    `vmap` traces the body of a loop once more each time it finds that further carries differ between problems. If all of
    them are batched from the start, it traces the body once.
    """
    return jax.tree.map(lambda y: jnp.where(x == x, y, y), tree)


def all_finite(tree: PyTree) -> Bool[Array, ""]:
    """True if every number in a tree is finite."""
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(tree)]))

"""Conversion of trees to plain containers that any process can read, and names of the leaves of trees."""

from collections.abc import Sequence
from typing import Any

import jax
from jax.tree_util import GetAttrKey, keystr, tree_flatten_with_path

Signature = Sequence[tuple[str, Sequence[int | str], str]]


def plain(tree: Any) -> Any:
    """Replace named tuples, modules and other objects in a tree by dictionaries that map field names to values."""
    if tree is None or jax.tree_util.all_leaves([tree]):
        return tree
    children, _ = tree_flatten_with_path(tree, is_leaf=lambda x: x is not tree)
    if type(tree) in (tuple, list):
        return type(tree)(plain(child) for _, child in children)
    return {_name(path[0]): plain(child) for path, child in children}


def is_plain(tree: Any) -> bool:
    """True if a tree contains no containers other than tuples, lists and dictionaries."""
    return jax.tree.structure(tree) == jax.tree.structure(plain(tree))


def signature(tree: Any, names: Sequence[str] = ()) -> list[tuple[str, list[int | str], str]]:
    """Name, shape and type of each leaf; symbolic dimensions are strings, and `names` labels the top-level entries."""
    leaves, _ = tree_flatten_with_path(tree)
    found = []
    for path, x in leaves:
        at = getattr(path[0], "idx", len(names)) if path else len(names)
        named = at < len(names)
        rest = keystr(path[named:], simple=True, separator=".")
        name = ".".join(part for part in (names[at] if named else "", rest) if part) or "result"
        found.append((name, [d if isinstance(d, int) else str(d) for d in x.shape], str(x.dtype)))
    return found


def _name(key: Any) -> str:
    if isinstance(key, GetAttrKey):
        return key.name
    return str(getattr(key, "key", getattr(key, "idx", key)))

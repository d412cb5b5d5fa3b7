"""Files with the progress of a policy optimisation: a line of JSON, followed by arrays in NumPy's format."""

import io
import json
import os
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from ...errors import TrajectoryError
from ...io._files import read_bytes, write_whole
from ...io._model_file import checksum

Tree = TypeVar("Tree", bound=PyTree)
FORMAT, VERSION = "jaxdyn policy progress", 2  # version 1, whose checksum covers only the arrays, is still readable


def write_progress(path: str | os.PathLike[str], carry: PyTree, history: dict[str, list[float]], lost: int) -> None:
    """Write the arrays and the history to the file atomically.

    Raises:
        TrajectoryError: the file cannot be written; an existing file is left unchanged.
    """
    body = io.BytesIO()
    for leaf in jax.tree.leaves(carry):
        np.save(body, np.asarray(leaf), allow_pickle=False)
    content = body.getvalue()
    header = {
        "format": FORMAT,
        "version": VERSION,
        "leaves": _shapes(carry),
        "lost": lost,
        "history": history,
    }
    header["sha256"] = checksum(header, content)
    write_whole(path, json.dumps(header).encode() + b"\n" + content, TrajectoryError)


def read_progress(path: str | os.PathLike[str], like: Tree) -> tuple[Tree, dict[str, list[float]], int]:
    """Read the arrays (with the structure of `like`), the history, and the number of consecutive non-finite updates.

    Raises:
        TrajectoryError: the file cannot be read, is damaged, or does not contain the progress of this optimisation.
    """
    name = os.fspath(path)
    first, _, content = read_bytes(path, "file with the progress", TrajectoryError).partition(b"\n")
    try:
        header: dict[str, Any] = json.loads(first)
        known = header["format"] == FORMAT and header["version"] in (1, VERSION)
        leaves, digest, history, lost = header["leaves"], header["sha256"], header["history"], int(header["lost"])
        intact = known and checksum(header, content) == digest
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise TrajectoryError(
            f"{name}: this file does not contain the progress of a policy; choose another file=, or remove this one"
        ) from None
    if not intact:
        raise TrajectoryError(
            f"{name}: this file is damaged or was written by another version; remove it to start again"
        )
    if leaves != _shapes(like):
        raise TrajectoryError(
            f"{name}: this file belongs to another policy or optimiser; choose another file=, or remove this one"
        )
    body = io.BytesIO(content)
    arrays = [jnp.asarray(np.load(body, allow_pickle=False)) for _ in leaves]
    return jax.tree.unflatten(jax.tree.structure(like), arrays), history, lost


def _shapes(tree: PyTree) -> list[list]:
    return [[list(jnp.shape(x)), str(jnp.asarray(x).dtype)] for x in jax.tree.leaves(tree)]

"""Rows of the regressor along a run, from compiled programs that are reused throughout an identification.

For logs of a few minutes, compilation takes most of the computing time. The links' columns take the longest to compile.
They are therefore computed by one program per robot, in chunks of equal length, and all other columns by a separate
program.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ...dynamics import regressor
from ...model._chain import Chain
from .columns import Columns

SHORT = 512  # samples per chunk


def by_chunks(function: Callable[..., jax.Array | np.ndarray], *arrays: np.ndarray) -> np.ndarray:
    """Apply a function to chunks of equal length, so that all runs share one program; return the results (N, ...)."""
    total, out = len(arrays[0]), None
    for at in range(0, max(total, 1), SHORT):
        found = np.asarray(function(*(filled(x[at : at + SHORT]) for x in arrays)))[: total - at]
        out = np.empty((total, *found.shape[1:])) if out is None else out
        out[at : at + len(found)] = found
    assert out is not None
    return out


def filled(x: np.ndarray) -> np.ndarray:
    """A chunk, padded with zeros to the full length of `SHORT` samples."""
    x = np.asarray(x, float)
    return x if len(x) == SHORT else np.concatenate([x, np.zeros((SHORT - len(x), *x.shape[1:]))])


def chunk_rows(
    columns: Columns,
    chain: Chain,
    q: Float[np.ndarray, "m nq"],
    qd: Float[np.ndarray, "m nv"],
    qdd: Float[np.ndarray, "m nv"],
) -> Float[np.ndarray, "m nv p"]:
    """Regressor W of a full chunk of m = `SHORT` samples (see `filled`), in the chain's precision.

    In float64, the result needs 8 m nv p bytes.
    """
    state = [jnp.asarray(x, chain.dtype) for x in (q, qd, qdd)]
    links = np.asarray(_of_links(chain, *state))
    beyond = np.asarray(_beyond_links(columns, chain, *state))
    rows = np.concatenate([links, beyond], axis=2)
    if (absent := columns.absent(chain)).any():
        rows[:, :, absent] = 0
    return rows


@jax.jit
def _of_links(chain: Chain, q, qd, qdd):
    return jax.vmap(regressor, (None, 0, 0, 0))(chain, q, qd, qdd)


@functools.partial(jax.jit, static_argnums=0)
def _beyond_links(columns: Columns, chain: Chain, q, qd, qdd):
    return jax.vmap(columns.beyond_links, (None, 0, 0, 0))(chain, q, qd, qdd)

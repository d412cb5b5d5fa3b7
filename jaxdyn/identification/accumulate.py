"""Square-root accumulation of a stacked regressor: however long the log, only a triangular factor a joint is held.

For joint j with rows [W_j, tau_j] over all samples, the factor R_j of the QR decomposition keeps every norm and inner product
of the columns: R_j^T R_j = [W_j, tau_j]^T [W_j, tau_j], without squaring the condition number. O(p^2) memory a joint.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..model.chain import Chain
from .columns import Columns

CHUNK = 512


class Factors(NamedTuple):
    """Triangular factors of the stacked regressor and torque, one a joint.

    Attributes:
        r: (n, p + 1, p + 1); the last column is the torque.
        counts: number of samples behind each joint's factor.
    """

    r: np.ndarray
    counts: np.ndarray


@functools.partial(jax.jit, static_argnums=0, donate_argnums=2)
def _absorb(columns: Columns, chain: Chain, factors, q, qd, qdd, tau, weights):
    rows = jax.vmap(columns.matrix, in_axes=(None, 0, 0, 0))(chain, q, qd, qdd)
    rows = jnp.concatenate([rows, tau[:, :, None]], axis=2) * weights[:, :, None]
    stacked = jnp.concatenate([factors, rows.transpose(1, 0, 2)], axis=1)
    return jax.vmap(lambda a: jnp.linalg.qr(a, mode="r"))(stacked)


def accumulate(
    columns: Columns,
    chain: Chain,
    q: np.ndarray,
    qd: np.ndarray,
    qdd: np.ndarray,
    tau: np.ndarray,
    weights: np.ndarray | None = None,
    start: Factors | None = None,
    progress: Callable[[int], None] | None = None,
) -> Factors:
    """Absorb samples into the factors, in jit-compiled chunks of one size (the last is padded with weight zero).

    Args:
        q, qd, qdd, tau: (N, n) samples.
        weights: (N, n) factors on the rows; zero leaves a sample out for a joint. All one where None.
        start: factors to go on from, as of an earlier log.
        progress: called with the number of samples done after each chunk.
    """
    total, n = q.shape
    weights = np.ones((total, n)) if weights is None else np.asarray(weights, float)
    width = len(columns.names(n)) + 1
    r = jnp.zeros((n, width, width)) if start is None else jnp.asarray(start.r)
    counts = np.zeros(n, int) if start is None else start.counts
    for at in range(0, total, CHUNK):
        parts = [np.asarray(x[at : at + CHUNK], float) for x in (q, qd, qdd, tau, weights)]
        short = CHUNK - len(parts[0])
        if short:
            parts = [np.concatenate([x, np.zeros((short, n))]) for x in parts]
        r = _absorb(columns, chain, r, *(jnp.asarray(x) for x in parts))
        if progress is not None:
            r.block_until_ready()
            progress(min(at + CHUNK, total))
    return Factors(np.asarray(r), counts + (weights != 0).sum(0))


@functools.partial(jax.jit, static_argnums=0)
def _predict(columns: Columns, chain: Chain, parameters, q, qd, qdd):
    return jax.vmap(lambda *x: columns.matrix(chain, *x) @ parameters)(q, qd, qdd)


def predict(
    columns: Columns, chain: Chain, parameters: np.ndarray, q: np.ndarray, qd: np.ndarray, qdd: np.ndarray
) -> np.ndarray:
    """Torques W parameters of (N, n) samples, in the same chunks."""
    total, n = q.shape
    held = jnp.asarray(parameters)
    out = np.empty((total, n))
    for at in range(0, total, CHUNK):
        parts = [np.asarray(x[at : at + CHUNK], float) for x in (q, qd, qdd)]
        size = len(parts[0])
        parts = [np.concatenate([x, np.zeros((CHUNK - size, n))]) for x in parts]
        out[at : at + size] = np.asarray(_predict(columns, chain, held, *(jnp.asarray(x) for x in parts)))[:size]
    return out

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

from ..errors import IdentificationError
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
def _absorb(columns: Columns, chain: Chain, factors, q, qd, qdd, tau, weights, signals):
    rows = jax.vmap(columns.matrix, in_axes=(None, 0, 0, 0))(chain, q, qd, qdd)
    rows = jnp.concatenate([rows, signals, tau[:, :, None]], axis=2) * weights[:, :, None]
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
    signals: np.ndarray | None = None,
) -> Factors:
    """Absorb samples into the factors, in jit-compiled chunks of one size (the last is padded with weight zero).

    Args:
        q, qd, qdd, tau: (N, n) samples.
        weights: (N, n) factors on the rows; zero leaves a sample out for a joint. All one where None.
        start: factors to go on from, as of an earlier log.
        progress: called with the number of samples done after each chunk.
        signals: (N, n, k) further columns, computed from the whole run (friction with memory); they come after those of
            `columns` and before the torque.

    Raises:
        IdentificationError: signals of another shape.
    """
    total, n = q.shape
    weights = np.ones((total, n)) if weights is None else np.asarray(weights, float)
    signals = _signals(signals, total, n)
    width = len(columns.names(n)) + signals.shape[2] + 1
    r = jnp.zeros((n, width, width)) if start is None else jnp.asarray(start.r)
    counts = np.zeros(n, int) if start is None else start.counts
    for at in range(0, total, CHUNK):
        parts = [_filled(x[at : at + CHUNK]) for x in (q, qd, qdd, tau, weights, signals)]
        r = _absorb(columns, chain, r, *(jnp.asarray(x) for x in parts))
        if progress is not None:
            r.block_until_ready()
            progress(min(at + CHUNK, total))
    return Factors(np.asarray(r), counts + (weights != 0).sum(0))


def _signals(signals: np.ndarray | None, total: int, n: int) -> np.ndarray:
    if signals is None:
        return np.zeros((total, n, 0))
    if np.ndim(signals) != 3 or signals.shape[:2] != (total, n):
        raise IdentificationError(
            f"signals have shape {np.shape(signals)}; for {total} samples of {n} joints it is ({total}, {n}, k)"
        )
    return signals


def _filled(x: np.ndarray) -> np.ndarray:
    """A chunk of full length: the last one is filled up with zeros."""
    x = np.asarray(x, float)
    return x if len(x) == CHUNK else np.concatenate([x, np.zeros((CHUNK - len(x), *x.shape[1:]))])


@functools.partial(jax.jit, static_argnums=0)
def _predict(columns: Columns, chain: Chain, parameters, q, qd, qdd, signals):
    def torque(q, qd, qdd, signals):
        w = columns.matrix(chain, q, qd, qdd)
        return w @ parameters[: w.shape[1]] + signals @ parameters[w.shape[1] :]

    return jax.vmap(torque)(q, qd, qdd, signals)


def predict(
    columns: Columns,
    chain: Chain,
    parameters: np.ndarray,
    q: np.ndarray,
    qd: np.ndarray,
    qdd: np.ndarray,
    signals: np.ndarray | None = None,
) -> np.ndarray:
    """Torques W parameters of (N, n) samples, in the same chunks.

    Args:
        parameters: in column order, those of the signals last.
        signals: (N, n, k) further columns, as for `accumulate`.

    Raises:
        IdentificationError: signals of another shape, or not as many parameters as columns.
    """
    total, n = q.shape
    signals = _signals(signals, total, n)
    held = jnp.asarray(parameters)
    width = len(columns.names(n)) + signals.shape[2]
    if held.shape != (width,):
        raise IdentificationError(f"there are {width} columns, but parameters of shape {held.shape}")
    out = np.empty((total, n))
    for at in range(0, total, CHUNK):
        parts = [_filled(x[at : at + CHUNK]) for x in (q, qd, qdd, signals)]
        out[at : at + CHUNK] = np.asarray(_predict(columns, chain, held, *map(jnp.asarray, parts)))[: total - at]
    return out

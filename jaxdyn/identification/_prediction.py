"""Torques that a set of parameters gives on samples."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import IdentificationError
from ..model._chain import Chain
from ._columns import Columns
from ._triangular import SHORT


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
    """Torques W parameters of (N, n) samples, in chunks.

    Args:
        parameters: in column order, those of the signals last.
        signals: (N, n, k) further columns, as for `accumulate`.

    Raises:
        IdentificationError: signals of another shape, or not as many parameters as columns.
    """
    total, n = q.shape
    signals = np.zeros((total, n, 0)) if signals is None else np.asarray(signals)
    if signals.ndim != 3 or signals.shape[:2] != (total, n):
        raise IdentificationError(
            f"signals have shape {signals.shape}; for {total} samples of {n} joints it is ({total}, {n}, k)"
        )
    held = jnp.asarray(parameters)
    width = len(columns.names(n)) + signals.shape[2]
    if held.shape != (width,):
        raise IdentificationError(f"there are {width} columns, but parameters of shape {held.shape}")
    out = np.empty((total, n))
    for at in range(0, total, SHORT):
        parts = [_filled(x[at : at + SHORT]) for x in (q, qd, qdd, signals)]
        out[at : at + SHORT] = np.asarray(_predict(columns, chain, held, *map(jnp.asarray, parts)))[: total - at]
    return out


def _filled(x: np.ndarray) -> np.ndarray:
    """A chunk of full length: the last one is filled up with zeros."""
    x = np.asarray(x, float)
    return x if len(x) == SHORT else np.concatenate([x, np.zeros((SHORT - len(x), *x.shape[1:]))])

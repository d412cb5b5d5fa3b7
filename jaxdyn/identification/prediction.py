"""Rows of the regressor along a run, from compiled programs that are reused throughout an identification.

For logs of a few minutes, compilation takes most of the computing time. The links' columns take the longest to compile.
They are therefore computed by one program per robot, in chunks of equal length, and all other columns by a separate
program.

Columns of dry friction jump when a joint reverses. They are low-pass filtered like the torques of the samples; otherwise
Coulomb friction would be underestimated by several percent. The samples are interpolated for this purpose, because
decimated samples resolve the time of a reversal too coarsely.

Prediction of torques from identified parameters, and prediction errors of each joint."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy import interpolate

from ..dynamics import regressor
from ..errors import IdentificationError
from ..model.chain import Chain
from .columns import Columns
from .factors import SHORT, as_float64, by_chunks, filled
from .filters import low_pass
from .preprocessing import Samples

FINE = 40  # samples per period of the cutoff at which jumps are filtered: reversals are off by at most 1/80 of a period


def chunk_rows(
    columns: Columns,
    chain: Chain,
    q: Float[np.ndarray, "m nq"],
    qd: Float[np.ndarray, "m nv"],
    qdd: Float[np.ndarray, "m nv"],
) -> Float[np.ndarray, "m nv p"]:
    """Columns W of the states of a full chunk of m = `SHORT` samples (see `filled`), in the chain's precision.

    In float64, the result needs 8 m nv p bytes.
    """
    state = [jnp.asarray(x, chain.dtype) for x in (q, qd, qdd)]
    links = link_rows(chain, q, qd, qdd)
    beyond = np.asarray(_beyond_links(columns.of_state, chain, *state))
    rows = np.concatenate([links, beyond], axis=2)
    if (absent := columns.of_state.absent(chain)).any():
        rows[:, :, absent] = 0
    return rows


def link_rows(
    chain: Chain, q: Float[np.ndarray, "m nq"], qd: Float[np.ndarray, "m nv"], qdd: Float[np.ndarray, "m nv"]
) -> Float[np.ndarray, "m nv p"]:
    """The links' columns of `chunk_rows`."""
    return np.asarray(_of_links(chain, *(jnp.asarray(x, chain.dtype) for x in (q, qd, qdd))))


@jax.jit
def _of_links(chain: Chain, q, qd, qdd):
    return jax.vmap(regressor, (None, 0, 0, 0))(chain, q, qd, qdd)


@functools.partial(jax.jit, static_argnums=0)
def _beyond_links(columns: Columns, chain: Chain, q, qd, qdd):
    return jax.vmap(columns.beyond_links, (None, 0, 0, 0))(chain, q, qd, qdd)


def dry_rows(dry: Columns, chain: Chain, samples: Samples, filtered: bool = True) -> Float[np.ndarray, "N nv d"]:
    """Columns of dry friction along samples, low-pass filtered like their torques unless `filtered` is False.

    Args:
        dry: the columns of dry friction (`Columns.dry`).
    """
    if not (d := len(dry.names(chain.n)) - 10 * chain.n):
        return np.zeros((len(samples), chain.nv, d))
    with jax.enable_x64(True):
        model = as_float64(chain)
        evaluate = lambda *x: by_chunks(lambda *y: _beyond_links(dry, model, *map(jnp.asarray, y)), *x)
        if not filtered:
            return evaluate(samples.q, samples.qd, samples.qdd)
        return filtered_along(samples, evaluate, samples.q, samples.qd, samples.qdd)


def filtered_along(
    samples: Samples, evaluate: Callable[..., np.ndarray], *signals: Float[np.ndarray, "N _"]
) -> Float[np.ndarray, "N ..."]:
    """Evaluate a function with jumps along samples, and low-pass filter it like the torques of the samples.

    Args:
        evaluate: function of the signals at any number of instants.
        signals: signals at the samples; between samples, they are interpolated by cubic splines.
    """
    s, out = samples, None
    filtered = s.torque_cutoff < s.rate / 2
    fine = max(1, math.ceil(FINE * s.torque_cutoff / s.rate)) if filtered else 1
    for a, b in s.segments if filtered else ((0, len(s)),):
        parts, grid = [x[a:b] for x in signals], np.arange(fine * (b - a - 1) + 1) / fine
        if fine > 1:
            parts = [interpolate.make_interp_spline(np.arange(b - a), x, k=min(3, b - a - 1))(grid) for x in parts]
        found = evaluate(*parts)
        if filtered:
            found = low_pass(found, fine * s.rate, s.torque_cutoff)[::fine]
        out = np.zeros((len(s), *found.shape[1:])) if out is None else out
        out[a:b] = found
    return evaluate(*signals) if out is None else out


def row_chunks(
    columns: Columns, chain: Chain, samples: Samples | tuple[np.ndarray, ...]
) -> Iterator[tuple[slice, Float[np.ndarray, "m nv p"]]]:
    """Chunks of the columns W of the states along samples, with those of dry friction filtered like the torques.

    Args:
        samples: the samples; or positions, velocities and accelerations, whose filter is unknown, so that none is applied.
    """
    dry, at = columns.dry(chain.n)
    filtered = isinstance(samples, Samples)
    states = (samples.q, samples.qd, samples.qdd) if filtered else samples
    friction = dry_rows(dry, chain, samples) if filtered else None
    for first in range(0, len(states[0]), SHORT):
        part = slice(first, min(first + SHORT, len(states[0])))
        rows = chunk_rows(columns, chain, *(filled(x[part]) for x in states))[: part.stop - first]
        if friction is not None:
            rows[:, :, at] = friction[part]
        yield part, rows


# -- prediction


def predict(
    columns: Columns,
    chain: Chain,
    parameters: np.ndarray,
    q: np.ndarray,
    qd: np.ndarray,
    qdd: np.ndarray,
    signals: np.ndarray | None = None,
) -> np.ndarray:
    """Predict the torques W @ parameters of N samples [N m or N], chunk by chunk.

    Args:
        columns: columns of the regressor W.
        chain: the robot's kinematics and gravity.
        parameters: parameters in column order, in SI units, followed by those of further signals.
        q: (N, n) positions [rad or m].
        qd: (N, n) velocities [rad/s or m/s].
        qdd: (N, n) accelerations [rad/s^2 or m/s^2].
        signals: (N, n, k) further columns of W, as for `accumulate`: those of the friction model of `columns`, if any.

    Raises:
        IdentificationError: the signals have the wrong shape, or the numbers of parameters and columns differ.
    """
    total, n = np.shape(qd)
    signals = np.zeros((total, n, 0)) if signals is None else np.asarray(signals)
    if signals.ndim != 3 or signals.shape[:2] != (total, n):
        raise IdentificationError(
            f"signals have shape {signals.shape}; for {total} samples of {n} joints, it must be ({total}, {n}, k)"
        )
    columns.check_signals(chain.n, signals.shape[2])
    held = np.asarray(parameters)
    width = len(columns.of_state.names(chain.n)) + signals.shape[2]
    if held.shape != (width,):
        raise IdentificationError(f"there are {width} columns, but the parameters have shape {held.shape}")
    rigid, rest = np.split(held, [width - signals.shape[2]])
    return by_chunks(lambda q, qd, qdd: chunk_rows(columns, chain, q, qd, qdd) @ rigid, q, qd, qdd) + signals @ rest


def predict_samples(
    columns: Columns, chain: Chain, parameters: np.ndarray, samples: Samples, signals: np.ndarray | None = None
) -> Float[np.ndarray, "N nv"]:
    """Torques W @ parameters of samples, with columns of dry friction filtered like the measured torques [N m or N].

    Args:
        parameters: parameters in column order, in SI units, followed by those of the signals.
        signals: (N, n, k) further columns of W, as for `predict`.
    """
    s = samples
    torque = predict(columns, chain, parameters, s.q, s.qd, s.qdd, signals)
    return torque + filtering_of_friction(columns, chain, parameters, s)


def filtering_of_friction(
    columns: Columns, chain: Chain, parameters: np.ndarray, samples: Samples
) -> Float[np.ndarray, "N nv"]:
    """Change in the torques W @ parameters when the columns of dry friction are filtered like measured torques."""
    dry, at = columns.dry(chain.n)
    held = np.asarray(parameters, float)[at]
    if not held.any():
        return np.zeros(samples.qd.shape)
    rows = dry_rows(dry, chain, samples)
    rows -= dry_rows(dry, chain, samples, filtered=False)
    return rows @ held


MOVING = 0.02


@dataclasses.dataclass(frozen=True)
class Fit:
    """Errors of predicted torques on one set of samples.

    Attributes:
        rms: (n,) RMS torque error [N m or N].
        relative: (n,) relative error 100 |tau_j - prediction_j| / |tau_j|, with norms over all samples [%].
        relative_moving: (n,) `relative` over only those samples at which joint j moves, |qd_j| > 0.02 rad/s or m/s [%].
        total_relative: relative error 100 |tau - prediction| / |tau|, with norms over all samples and joints [%].
        samples: number of samples.
    """

    rms: np.ndarray
    relative: np.ndarray
    relative_moving: np.ndarray
    total_relative: float
    samples: int


def fit_quality(tau: np.ndarray, prediction: np.ndarray, qd: np.ndarray) -> Fit:
    """Compute the errors of predicted torques for each joint.

    For a joint that never moves, `relative_moving` is NaN. For a joint whose torque was not measured, all errors are
    NaN.

    Args:
        tau: (N, n) measured torques [N m or N].
        prediction: (N, n) predicted torques [N m or N].
        qd: (N, n) velocities [rad/s or m/s].
    """
    error = tau - prediction
    measured = ~np.isnan(tau).any(axis=0)
    size = np.linalg.norm(tau[:, measured])
    moving = np.abs(qd) > MOVING

    def relative(mask):
        top, bottom = (np.sqrt((np.where(mask, x, 0) ** 2).sum(0)) for x in (error, tau))
        return np.where(bottom > 0, 100 * top / np.where(bottom > 0, bottom, 1), np.nan)

    return Fit(
        rms=np.sqrt((error**2).mean(0)),
        relative=relative(np.ones_like(moving)),
        relative_moving=relative(moving),
        total_relative=float(100 * np.linalg.norm(error[:, measured]) / size) if size > 0 else np.nan,
        samples=len(tau),
    )

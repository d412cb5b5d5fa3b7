"""Prediction of torques from identified parameters, and prediction errors of each joint."""

import dataclasses

import numpy as np
from jaxtyping import Float

from ...errors import IdentificationError
from ...model._chain import Chain
from .._preprocessing.samples import Samples
from .columns import Columns
from .rows import by_chunks, chunk_rows, dry_rows


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
        parameters: parameters in column order, in SI units, followed by those of the signals.
        q: (N, n) positions [rad or m].
        qd: (N, n) velocities [rad/s or m/s].
        qdd: (N, n) accelerations [rad/s^2 or m/s^2].
        signals: (N, n, k) further columns of W, as for `accumulate`.

    Raises:
        IdentificationError: the signals have the wrong shape, or the numbers of parameters and columns differ.
    """
    total, n = np.shape(qd)
    signals = np.zeros((total, n, 0)) if signals is None else np.asarray(signals)
    if signals.ndim != 3 or signals.shape[:2] != (total, n):
        raise IdentificationError(
            f"signals have shape {signals.shape}; for {total} samples of {n} joints, it must be ({total}, {n}, k)"
        )
    held = np.asarray(parameters)
    width = len(columns.names(chain.n)) + signals.shape[2]
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
    _, dry, _, at = columns.apart_from_dry(chain.n)
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

"""Uncertainty of predicted torques due to uncertain parameters."""

import jax
import numpy as np
from jaxtyping import Float

from ...model._chain import Chain
from .._regression.base_parameters import BaseParameters
from .._regression.columns import Columns
from .._regression.robot import as_float64
from .._regression.rows import by_chunks, chunk_rows


def torque_band(
    chain: Chain,
    columns: Columns,
    base: BaseParameters,
    covariance: Float[np.ndarray, "b b"],
    q: Float[np.ndarray, "N nq"],
    qd: Float[np.ndarray, "N nv"],
    qdd: Float[np.ndarray, "N nv"],
) -> Float[np.ndarray, "N nv"]:
    """Compute the standard deviation sqrt(diag(W C W^T)) of the torques predicted along a motion [N m or N].

    W is the base regressor, and C the covariance of the base parameters (`Estimate.covariance`). This band expresses
    the uncertainty of the estimate as a torque. Unlike the confidence intervals of single parameters, the band does not
    depend on the choice of parameters. Measured torques also contain noise, and scatter about the prediction with a
    standard deviation of sqrt(band^2 + Estimate.noise^2).

    Args:
        chain: the robot's kinematics and gravity.
        columns: the identified columns.
        base: the base parameters.
        covariance: covariance of the base parameters.
        q: positions of the motion [rad or m].
        qd: velocities of the motion [rad/s or m/s].
        qdd: accelerations of the motion [rad/s^2 or m/s^2].

    Cost: one base regressor and O(n b^2) operations per sample, in chunks of equal size.
    """
    root = covariance_root(covariance)
    with jax.enable_x64(True):
        model = as_float64(chain)
        rows = lambda q, qd, qdd: np.linalg.norm(chunk_rows(columns, model, q, qd, qdd)[:, :, base.kept] @ root, axis=2)
        return by_chunks(rows, q, qd, qdd)


def covariance_root(covariance: Float[np.ndarray, "b b"]) -> Float[np.ndarray, "b b"]:
    """Cholesky factor of a covariance matrix that may be singular due to rounding errors."""
    return np.linalg.cholesky(covariance + 1e-15 * np.diag(np.diag(covariance)))


def base_regressor(
    chain: Chain,
    columns: Columns,
    base: BaseParameters,
    q: Float[np.ndarray, "N nq"],
    qd: Float[np.ndarray, "N nv"],
    qdd: Float[np.ndarray, "N nv"],
) -> Float[np.ndarray, "N nv b"]:
    """Compute the base regressors W in tau = W @ base parameters, for up to a few thousand samples.

    The regressors of all samples are stored in memory.
    """
    with jax.enable_x64(True):
        model = as_float64(chain)
        return by_chunks(lambda *x: chunk_rows(columns, model, *x)[:, :, base.kept], q, qd, qdd)

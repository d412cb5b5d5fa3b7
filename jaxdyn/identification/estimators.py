"""Least squares on accumulated factors: ordinary, and weighted by each joint's noise."""

import dataclasses

import numpy as np

from ..errors import IdentificationError
from .accumulate import Factors
from .base_parameters import BaseParameters, stacked


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Base parameters estimated from data.

    Attributes:
        values: (b,) estimates.
        covariance: (b, b), s^2 (W^T W)^-1 with the noise of the (weighted) rows.
        noise: (n,) standard deviation of each joint's residual torque [N m].
        condition: condition number of the (weighted) base regressor.
        scaled_condition: the same with columns of unit norm: near-dependence apart from units.
        joint_residuals: (n,) root mean square of each joint's residual on the data fitted [N m].
    """

    values: np.ndarray
    covariance: np.ndarray
    noise: np.ndarray
    condition: float
    scaled_condition: float
    joint_residuals: np.ndarray

    @property
    def standard_deviations(self) -> np.ndarray:
        """(b,) standard deviations of the estimates."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def relative_standard_deviations(self) -> np.ndarray:
        """(b,) standard deviations in percent of the estimates."""
        with np.errstate(divide="ignore"):
            return 100 * self.standard_deviations / np.abs(self.values)


def ordinary_least_squares(factors: Factors, base: BaseParameters, independence: float = 1.0) -> Estimate:
    """argmin sum |tau - W base|^2, all joints weighing the same.

    Args:
        independence: share of the samples that count as independent; filtered data sampled faster than twice the cutoff
            repeat themselves, and standard deviations that ignore it are too small by 1 / sqrt(independence).

    Raises:
        IdentificationError: fewer samples than parameters, or a base parameter that the data do not excite at all.
    """
    return _solve(factors, base, np.ones(len(factors.counts)), independence)


def weighted_least_squares(
    factors: Factors, base: BaseParameters, independence: float = 1.0, iterations: int = 5
) -> Estimate:
    """argmin sum_j |tau_j - W_j base|^2 / s_j^2, with each joint's noise s_j estimated from the residuals of the last round.

    Starts from ordinary least squares; `independence` and errors as there.
    """
    estimate = _solve(factors, base, np.ones(len(factors.counts)), independence)
    for _ in range(iterations):
        floor = 1e-12 * float(estimate.noise.max()) or 1.0  # no noise at all: all joints weigh the same
        estimate = _solve(factors, base, 1 / np.maximum(estimate.noise, floor), independence)
    return estimate


def _solve(factors: Factors, base: BaseParameters, weights: np.ndarray, independence: float) -> Estimate:
    counts = factors.counts
    b = base.size
    if counts.sum() <= b:
        raise IdentificationError(
            f"{int(counts.sum())} rows of samples cannot determine {b} base parameters; log a longer run or decimate less"
        )
    r = stacked(factors, weights)
    w, y = r[:, base.kept], r[:, -1]
    norms = np.linalg.norm(w, axis=0)
    if np.any(norms == 0):
        raise IdentificationError(
            f"the data do not excite {base.names[int(np.argmin(norms))]!r} at all: let every joint move, or leave its term out"
        )
    u, s, vt = np.linalg.svd(w / norms, full_matrices=False)
    if s[-1] < 1e-12 * s[0]:
        worst = np.argsort(-np.abs(vt[-1]))[:3]
        raise IdentificationError(
            "the motion does not tell these base parameters apart: "
            + "; ".join(repr(base.names[k]) for k in worst)
            + ". Log a richer motion in which all joints move at once, or identify fewer terms"
        )
    values = vt.T @ (u.T @ y / s) / norms
    residuals = factors.r[:, :, -1] - factors.r[:, :, base.kept] @ values
    squares = (residuals**2).sum(1)
    spent = b / independence / counts.sum()  # share of the rows that the parameters use up
    if spent >= 1:
        raise IdentificationError(
            f"only {counts.sum() * independence:.0f} of {int(counts.sum())} rows of filtered samples count as independent, too "
            f"few to determine {b} base parameters: log a longer run"
        )
    noise = np.sqrt(squares / np.maximum(counts * (1 - spent), 1))
    variance = (squares * weights**2).sum() / (counts.sum() * (1 - spent)) / independence
    inverse = vt.T / s / norms[:, None]
    singular = np.linalg.svd(w, compute_uv=False)
    return Estimate(
        values=values,
        covariance=variance * (inverse @ inverse.T),
        noise=noise,
        condition=float(singular[0] / singular[-1]),
        scaled_condition=float(s[0] / s[-1]),
        joint_residuals=np.sqrt(squares / np.maximum(counts, 1)),
    )

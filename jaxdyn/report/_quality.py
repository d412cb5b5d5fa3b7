"""Quantities shared by the report and the summary: pooled errors, units, and the precision of each parameter."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from ..identification._regression.completion import prior_parameters
from ..identification._regression.prediction import MOVING, Fit, fit_quality
from ..identification._result import Evaluation, Identification
from ..model._chain import Chain
from ..model._layout import leading_joints, turning_joints

GOOD, FAIR = (
    10.0,
    30.0,
)  # largest relative standard deviations [%] of well determined and of fairly determined parameters


def determination(relative: float) -> Literal["well", "fairly", "poorly"]:
    """How well a parameter with the given relative standard deviation [%] is determined, as a word."""
    return "well" if relative <= GOOD else "fairly" if relative <= FAIR else "poorly"


class Together(NamedTuple):
    """Samples of several evaluations, concatenated, as arrays (N, n)."""

    q: np.ndarray
    qd: np.ndarray
    tau: np.ndarray
    prediction: np.ndarray

    @property
    def error(self) -> np.ndarray:
        """Measured minus predicted torques."""
        return self.tau - self.prediction

    @property
    def moves(self) -> np.ndarray:
        """Mask of the samples at which the joint moves."""
        return np.abs(self.qd) > MOVING


def together(evaluations: Sequence[Evaluation]) -> Together:
    """Concatenate the samples of several evaluations."""
    q, qd, tau = (np.concatenate([getattr(e.samples, name) for e in evaluations]) for name in ("q", "qd", "tau"))
    return Together(q, qd, tau, np.concatenate([e.prediction for e in evaluations]))


def measured_rows(evaluations: Sequence[Evaluation]) -> list[int]:
    """Coordinates whose torque was measured in every run."""
    tau = np.concatenate([e.samples.tau for e in evaluations])
    return [j for j, x in enumerate(tau.T) if not np.isnan(x).any()]


def rms_where(x: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """RMS over the chosen samples of each joint, (n,); NaN if there are none."""
    return np.sqrt((x**2 * chosen).sum(0) / np.where(chosen.any(0), chosen.sum(0), np.nan))


def pooled(evaluations: Sequence[Evaluation]) -> Fit | None:
    """Errors over the samples of all evaluations; None if there are no evaluations."""
    if not evaluations:
        return None
    data = together(evaluations)
    return fit_quality(data.tau, data.prediction, data.qd)


def pooled_raw(evaluations: Sequence[Evaluation]) -> Fit | None:
    """Errors relative to the torques as logged, over the samples of all evaluations; None if logged torques are unknown."""
    known = [e.logged for e in evaluations if e.logged is not None]
    if not known or len(known) < len(evaluations):
        return None
    logged, predicted = (np.concatenate(x) for x in zip(*known, strict=True))
    return fit_quality(logged, predicted, np.concatenate([e.samples.qd for e in evaluations]))


def pooled_unconstrained(evaluations: Sequence[Evaluation]) -> np.ndarray:
    """RMS errors with the unconstrained base parameters, (n,), over the samples of all evaluations."""
    counts = [e.unconstrained.samples for e in evaluations]
    return np.sqrt(np.average([e.unconstrained.rms**2 for e in evaluations], axis=0, weights=counts))


def torque_units(chain: Chain) -> tuple[str, ...]:
    """Unit of the torque of each joint (coordinate): N m, or N for prismatic joints."""
    return tuple("N m" if turns else "N" for turns in turning_joints(chain)[leading_joints(chain)])


def position_units(chain: Chain) -> tuple[str, ...]:
    """Unit of the position of each joint (coordinate): rad, or m for prismatic joints."""
    return tuple("rad" if turns else "m" for turns in turning_joints(chain)[leading_joints(chain)])


def deviations_from(result: Identification, truth: Chain) -> np.ndarray:
    """Estimated minus true base parameters, (b,), in units of the estimates' standard deviations."""
    true = result.base.matrix @ prior_parameters(truth, result.columns)
    return (result.wls.values - true) / result.wls.standard_deviations

"""What the report and the summary say in numbers: pooled errors, units, and how well each parameter is determined."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ..identification._regression.completion import prior_parameters
from ..identification._regression.prediction import Fit, fit_quality
from ..identification._result import Evaluation, Identification
from ..model._chain import Chain
from ..model._layout import turning_joints

GOOD, FAIR = 10.0, 30.0  # relative standard deviation [%] up to which a parameter is well, or fairly, determined


def determination(relative: float) -> Literal["well", "fairly", "poorly"]:
    """A relative standard deviation [%] in a word."""
    return "well" if relative <= GOOD else "fairly" if relative <= FAIR else "poorly"


def pooled(evaluations: Sequence[Evaluation]) -> Fit | None:
    """Errors over the samples of several evaluations taken together; None where there are none."""
    if not evaluations:
        return None
    tau, prediction, qd = (
        np.concatenate(parts)
        for parts in (
            [e.samples.tau for e in evaluations],
            [e.prediction for e in evaluations],
            [e.samples.qd for e in evaluations],
        )
    )
    return fit_quality(tau, prediction, qd)


def pooled_unconstrained(evaluations: Sequence[Evaluation]) -> np.ndarray:
    """(n,) RMS errors of the base parameters that were not asked to be those of possible bodies, over several evaluations."""
    counts = [e.unconstrained.samples for e in evaluations]
    return np.sqrt(np.average([e.unconstrained.rms**2 for e in evaluations], axis=0, weights=counts))


def torque_units(chain: Chain) -> tuple[str, ...]:
    """Unit of each joint's torque: N m, or N for prismatic joints."""
    return tuple("N m" if turns else "N" for turns in turning_joints(chain))


def position_units(chain: Chain) -> tuple[str, ...]:
    """Unit of each joint's position: rad, or m for prismatic joints."""
    return tuple("rad" if turns else "m" for turns in turning_joints(chain))


def deviations_from(result: Identification, truth: Chain) -> np.ndarray:
    """(b,) estimated minus true base parameters, in standard deviations of the estimates."""
    true = result.base.matrix @ prior_parameters(truth, result.columns)
    return (result.wls.values - true) / result.wls.standard_deviations

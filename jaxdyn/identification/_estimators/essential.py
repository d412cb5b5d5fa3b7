"""Essential parameters: the base parameters whose removal measurably degrades the predicted torques."""

import dataclasses
from typing import NamedTuple

import numpy as np

from .._regression.base_parameters import BaseParameters
from .._regression.factors import QRFactors
from .estimate import Estimate
from .least_squares import estimate_wls, inverse_noise, solve_factors, with_blocks
from .problem import EstimationProblem


class Elimination(NamedTuple):
    """One base parameter left out.

    Attributes:
        name: name of the parameter.
        relative_deviation: its standard deviation for independent residuals at removal, in percent of its value.
        residual: relative increase of the weighted RMS residual over that of all parameters, percent.
        probability: that the increase is due to chance, by the F-test of all parameters removed so far.
    """

    name: str
    relative_deviation: float
    residual: float
    probability: float


@dataclasses.dataclass(frozen=True, eq=False)
class EssentialParameters:
    """The essential base parameters.

    Attributes:
        base: the retained base parameters; torques are those of W[:, base.kept] only, the others being zero.
        estimate: weighted least squares of these parameters.
        eliminated: the others, in order of removal.
        stopped: the reason for stopping.
    """

    base: BaseParameters
    estimate: Estimate
    eliminated: tuple[Elimination, ...]
    stopped: str


def essential_parameters(
    problem: EstimationProblem, ratio: float = 10.0, significance: float = 0.05, rise: float = 1.0
) -> EssentialParameters:
    """Repeatedly remove the least certain base parameter and refit, as long as predicted torques do not degrade.

    The parameter with the largest relative standard deviation, that of independent residuals, goes first (Khalil & Dombre
    2002, sec. 12.6.4; Gautier 1997).
    It stops when the largest is below `ratio` times the smallest, when the F-test finds the removed parameters
    significant, or when the residual has increased by `rise` percent. Weights are those of `estimate_wls` on all
    parameters throughout, so residuals are comparable.

    Args:
        ratio: between the largest and the smallest relative standard deviation.
        significance: of the F-test; 0 disables it.
        rise: of the weighted residual's root mean square [%].

    Raises:
        IdentificationError: as for `estimate_wls`.

    Cost: O(b^3) per removed parameter; the samples are read once.
    """
    from scipy import stats  # slow to import

    whole = estimate_wls(problem)
    assert whole.run_noise is not None
    factors, weights = problem.factors, inverse_noise(whole.run_noise.reshape(-1))
    base, estimate = problem.base, solve_factors(factors, problem.base, weights, problem.independence)
    total = factors.counts.sum() * problem.independence
    first = _squares(factors, base, estimate, weights)
    degrees = total - problem.base.size
    out: list[Elimination] = []
    while True:
        relative = np.nan_to_num(estimate.relative_standard_deviations, nan=np.inf)
        worst = int(np.argmax(relative))
        if relative[worst] < ratio * relative.min():
            stopped = (
                f"{base.names[worst]!r}, the least certain, has {relative[worst]:.3g} %, within {ratio:g} of the best"
            )
            break
        if base.size == 1:
            stopped = "one parameter is left"
            break
        fewer = _without(base, worst)
        trial = solve_factors(factors, fewer, weights, problem.independence)
        squares = _squares(factors, fewer, trial, weights)
        f = (
            (squares - first) / (len(out) + 1) / (first / degrees)
        )  # both are independence times their values for white noise
        probability = float(stats.f.sf(max(f, 0.0), len(out) + 1, degrees))
        residual = 100 * (np.sqrt(squares / first) - 1)
        if probability < significance:
            stopped = f"without {base.names[worst]!r} the fit is significantly worse (F-test, p = {probability:.2g})"
            break
        if residual > rise:
            stopped = f"without {base.names[worst]!r} the residual is {residual:.2g} % larger"
            break
        out.append(Elimination(base.names[worst], float(relative[worst]), float(residual), probability))
        base, estimate = fewer, trial
    held = weights.reshape(len(problem.samples), -1)
    estimate = with_blocks(dataclasses.replace(estimate, method="essential"), problem.blocks, base, held)
    return EssentialParameters(base, estimate, tuple(out), stopped)


def _without(base: BaseParameters, row: int) -> BaseParameters:
    keep = np.arange(base.size) != row
    names = tuple(name for name, kept in zip(base.names, keep, strict=True) if kept)
    return dataclasses.replace(base, kept=base.kept[keep], matrix=base.matrix[keep], names=names)


def _squares(factors: QRFactors, base: BaseParameters, estimate: Estimate, weights: np.ndarray) -> float:
    error = factors.r[:, :, -1] - factors.r[:, :, base.kept] @ estimate.values
    return float(((error**2).sum(1) * weights**2).sum())

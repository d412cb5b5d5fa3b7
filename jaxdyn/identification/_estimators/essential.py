"""Essential parameters: the base parameters needed to predict torques without a noticeable loss of accuracy."""

import dataclasses
from typing import NamedTuple

import numpy as np

from .._regression.base_parameters import BaseParameters
from .._regression.factors import QRFactors
from .estimate import Estimate
from .least_squares import estimate_wls, inverse_noise, solve_factors, with_blocks
from .problem import EstimationProblem


class Elimination(NamedTuple):
    """Removal of one base parameter, and its effect on the fit.

    Attributes:
        name: name of the parameter.
        relative_deviation: relative standard deviation of the parameter in the last fit that included it, assuming
            independent residuals [%].
        residual: increase in the weighted RMS residual relative to the fit of all parameters [%].
        probability: p-value of the F-test for all parameters removed so far. It is the probability of at least this
            increase in the residual if the true values of these parameters were zero.
    """

    name: str
    relative_deviation: float
    residual: float
    probability: float


@dataclasses.dataclass(frozen=True, eq=False)
class EssentialParameters:
    """The essential base parameters.

    Attributes:
        base: the essential base parameters. All other base parameters are taken as zero, so the torques are predicted
            by the columns W[:, base.kept] alone.
        estimate: estimate of the essential parameters by weighted least squares.
        eliminated: the removed parameters, in order of removal.
        stopped: the reason why the elimination stopped.
    """

    base: BaseParameters
    estimate: Estimate
    eliminated: tuple[Elimination, ...]
    stopped: str


def essential_parameters(
    problem: EstimationProblem, ratio: float = 10.0, significance: float = 0.05, rise: float = 1.0
) -> EssentialParameters:
    """Repeatedly remove the least certain base parameter and refit, until a removal would noticeably worsen the fit.

    Each step removes the parameter with the largest relative standard deviation, assuming independent residuals (Khalil
    & Dombre 2002, sec. 12.6.4; Gautier 1997). The elimination stops in any of these cases:

    - the largest relative standard deviation is below `ratio` times the smallest;
    - the removed parameters are significant according to the F-test;
    - the residual would increase by more than `rise` percent;
    - only one parameter is left.

    All fits use the weights of `estimate_wls` with all parameters, so that their residuals are comparable.

    Args:
        problem: the problem.
        ratio: ratio of the largest to the smallest relative standard deviation below which the elimination stops.
        significance: significance level of the F-test; 0 disables it.
        rise: maximum increase in the weighted RMS residual [%].

    Raises:
        IdentificationError: as for `estimate_wls`.

    Cost: O(b^3) per removed parameter for b base parameters; the samples are read only once.
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
                f"the largest relative standard deviation, {relative[worst]:.3g} % for {base.names[worst]!r}, "
                f"is within a factor of {ratio:g} of the smallest"
            )
            break
        if base.size == 1:
            stopped = "only one parameter is left"
            break
        fewer = _without(base, worst)
        trial = solve_factors(factors, fewer, weights, problem.independence)
        squares = _squares(factors, fewer, trial, weights)
        f = (squares - first) / (len(out) + 1) / (first / degrees)  # independence cancels
        probability = float(stats.f.sf(max(f, 0.0), len(out) + 1, degrees))
        residual = 100 * (np.sqrt(squares / first) - 1)
        if probability < significance:
            stopped = (
                f"without {base.names[worst]!r} the fit would be significantly worse (F-test, p = {probability:.2g})"
            )
            break
        if residual > rise:
            stopped = f"without {base.names[worst]!r} the residual would be {residual:.2g} % larger"
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

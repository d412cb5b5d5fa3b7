"""Comparison of estimators by figures of merit."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ..._summary import data_frame
from ...errors import IdentificationError
from .didim import estimate_didim
from .estimate import Estimate
from .instrumental import estimate_iv
from .least_squares import estimate_ols, estimate_wls
from .output_error import estimate_cloe
from .problem import EstimationProblem
from .recursive import estimate_recursive
from .robust import estimate_irls
from .simulation import at_samples, motion
from .total import estimate_tls

Estimator = Callable[[EstimationProblem], Estimate]
LINEAR: tuple[Estimator, ...] = (estimate_ols, estimate_wls, estimate_irls, estimate_tls, estimate_recursive)
SIMULATING: tuple[Estimator, ...] = (estimate_iv, estimate_didim, estimate_cloe)


class Merit(NamedTuple):
    """Figures of merit of one estimate (Leboutet et al. 2021).

    Attributes:
        torque: relative error of the predicted torques, d_tau = 100 |tau - W base| / |tau|, averaged over the runs [%].
        position: relative error of the positions q_s of the simulated closed loop, d_q = 100 |q - q_s| / |q|, averaged
            over the runs [%]. NaN if the problem has no closed loops; infinite if a loop is unstable.
        parameters: mean relative error of the b base parameters, d_beta = 200 / b sum |base - true| / (|base| + |true|)
            [%]. NaN if the true parameters are unknown.
        seconds: computation time d_t [s], including compilation on the first call with new array shapes.
        iterations: number of iterations N_it.
        simulations: number of simulations N_sim; a simulation and its sensitivities together count as one.
    """

    torque: float
    position: float
    parameters: float
    seconds: float
    iterations: int
    simulations: int


def figures_of_merit(
    problem: EstimationProblem,
    estimate: Estimate,
    truth: Float[np.ndarray, " b"] | None = None,
    seconds: float = np.nan,
) -> Merit:
    """Compute the figures of merit of an estimate on the runs of a problem.

    Args:
        problem: problem whose runs are predicted; they may differ from the runs used for the estimate.
        estimate: the estimate.
        truth: true base parameters, if known.
        seconds: computation time of the estimate [s].
    """
    pairs = zip(problem.torques, problem.predictions(estimate.values), strict=True)
    torque = np.mean([np.linalg.norm(tau - p) / np.linalg.norm(tau) for tau, p in pairs])
    position = []
    for run in range(len(problem.loops)):
        moved = motion(problem, run, estimate.values)
        q = problem.samples[run].q
        if moved is None:
            position.append(np.inf)
        else:
            error = q - at_samples(problem, run, moved.q, problem.samples[run].position_cutoff)
            position.append(np.linalg.norm(error) / np.linalg.norm(q))
    parameters = np.nan
    if truth is not None:
        size = np.abs(estimate.values) + np.abs(truth)
        parameters = 200 * float(np.mean(np.abs(estimate.values - truth) / np.where(size > 0, size, 1)))
    d_q = 100 * float(np.mean(position)) if position else np.nan
    return Merit(100 * float(torque), d_q, parameters, seconds, estimate.iterations, estimate.simulations)


@dataclasses.dataclass(frozen=True, eq=False)
class EstimatorComparison:
    """Comparison of several estimates for one problem.

    Attributes:
        names: names of the base parameters.
        estimates: one estimate per successful method.
        merits: figures of merit of each of the `estimates`.
        failures: name of each method that failed, with its error message.
    """

    names: tuple[str, ...]
    estimates: tuple[Estimate, ...]
    merits: tuple[Merit, ...]
    failures: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        """One line per method."""
        lines = [
            f"{'method':8s}{'d_tau %':>9s}{'d_q %':>9s}{'d_beta %':>10s}{'d_t s':>8s}{'N_it':>6s}{'N_sim':>7s}  converged"
        ]
        for estimate, m in zip(self.estimates, self.merits, strict=True):
            lines.append(
                f"{estimate.method:8s}{m.torque:9.3f}{m.position:9.4f}{m.parameters:10.3f}{m.seconds:8.2f}{m.iterations:6d}"
                f"{m.simulations:7d}  {'yes' if estimate.converged else 'no'}"
            )
        return "\n".join([*lines, *(f"{name:8s}{reason}" for name, reason in self.failures)])

    def to_pandas(self) -> Any:
        """Return figures of merit and convergence as a `pandas.DataFrame` with one row per successful method.

        Raises:
            ImportError: pandas is not installed.
        """
        columns = {name: [getattr(merit, name) for merit in self.merits] for name in Merit._fields}
        columns["converged"] = [estimate.converged for estimate in self.estimates]
        return data_frame(columns, [estimate.method for estimate in self.estimates], "method")


def compare_estimators(
    problem: EstimationProblem,
    estimators: Sequence[Estimator] | None = None,
    truth: Float[np.ndarray, " b"] | None = None,
    check: EstimationProblem | None = None,
) -> EstimatorComparison:
    """Solve one problem with several estimators and compare their figures of merit.

    `print` the result to see it as a table. If an estimator raises an `IdentificationError`, its name and the message
    are added to `failures`, and the comparison continues.

    Args:
        problem: the problem.
        estimators: functions that take an estimation problem and return an estimate; by default all linear estimators
            and, if the problem has closed loops, those that simulate the robot.
        truth: true base parameters, if known.
        check: problem whose runs are used to evaluate the torque and position errors; by default `problem`.
    """
    chosen = estimators or (*LINEAR, *(SIMULATING if problem.loops else ()))
    estimates, merits, failures = [], [], []
    for estimator in chosen:
        start = time.perf_counter()
        try:
            estimate = estimator(problem)
        except IdentificationError as error:
            failures.append((getattr(estimator, "__name__", "?").removeprefix("estimate_").upper(), str(error)))
            continue
        seconds = time.perf_counter() - start
        estimates.append(estimate)
        merits.append(figures_of_merit(check or problem, estimate, truth, seconds))
    return EstimatorComparison(problem.base.names, tuple(estimates), tuple(merits), tuple(failures))

"""Iteratively reweighted least squares, which reduces the weight of outliers."""

import dataclasses

import numpy as np

from .._regression.base_parameters import stacked
from .._regression.blocks import least_squares_covariance, weighted_blocks
from .estimate import Estimate
from .least_squares import estimate_wls, inverse_noise, relative_step, solve_factors
from .problem import EstimationProblem


def estimate_irls(
    problem: EstimationProblem, threshold: float = 1.345, tolerance: float = 1e-4, iterations: int = 30
) -> Estimate:
    """Robust M-estimate with Huber's loss function, computed by iteratively reweighted least squares.

    Minimises the sum of rho(u) over all rows, with the scaled residuals u = (tau - W base) / s. Huber's loss rho is
    quadratic for |u| up to the threshold and linear beyond. The noise s of joint j in run r is computed from the median
    of |tau - W base|. Each iteration multiplies the rows by sqrt(min(1, threshold / |u|)) and accumulates the regressor
    again (Huber 1964; Holland & Welsch 1977). This limits the influence of outliers, collisions and friction at rest.

    Args:
        problem: the problem.
        threshold: largest residual with full weight, in standard deviations. With 1.345, the estimate is 95 % as
            efficient as least squares if the noise is normally distributed.
        tolerance: relative step of the values below which the iteration has converged.
        iterations: maximum number of iterations.

    Raises:
        IdentificationError: as for `estimate_wls`.

    Cost: one pass over the samples per iteration.
    """
    estimate = estimate_wls(problem)
    history: list[float] = []
    blocks, held = problem.blocks, np.ones(problem.chain.nv * len(problem.samples))
    scale, residuals = _residuals(problem, estimate.values)
    while len(history) < iterations:
        weights = []
        for mask, error, size in zip(problem.weights, residuals, scale, strict=True):
            light = np.sqrt(np.minimum(1, threshold * size / np.maximum(np.abs(error), 1e-300)))
            weights.append(mask * np.where(size > 0, light, 1.0))
        blocks, held = problem.accumulated(weights), inverse_noise(scale.reshape(-1))
        update = solve_factors(blocks.by_run, problem.base, held, problem.independence)
        history.append(relative_step(update.values, estimate.values))
        estimate = update
        scale, residuals = _residuals(problem, estimate.values)
        if history[-1] < tolerance:
            break
    masks = problem.weights
    inside = [
        m * (np.abs(e) <= threshold * np.maximum(s, 1e-300)) for m, e, s in zip(masks, residuals, scale, strict=True)
    ]
    columns, rows = np.append(problem.base.kept, -1), held.reshape(scale.shape)
    curved = [part[:, :-1] for part in weighted_blocks(problem.accumulated(inside), columns, rows)]
    independent, own = _independent(problem, scale, residuals, threshold, np.concatenate(curved))
    covariance = least_squares_covariance(weighted_blocks(blocks, columns, rows), estimate.values, own, curved)
    return dataclasses.replace(
        dataclasses.replace(estimate, covariance=independent).with_covariance(covariance, len(curved)),
        noise=np.sqrt((scale**2).mean(0)),
        run_noise=scale,
        joint_residuals=np.sqrt(
            sum(((e * (m > 0)) ** 2).sum(0) for e, m in zip(residuals, masks, strict=True))
            / np.maximum(sum((m > 0).sum(0) for m in masks), 1)
        ),
        method="IRLS",
        iterations=len(history),
        history=tuple(history),
        converged=history[-1] < tolerance,
        notes=(*estimate.notes, *_outliers(problem, scale, residuals)),
    )


def _residuals(problem: EstimationProblem, values: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Robust standard deviations (runs, n), and the residuals of each run [N m or N]."""
    residuals = [tau - p for tau, p in zip(problem.torques, problem.predictions(values), strict=True)]
    used = [np.where(m > 0, np.abs(e), np.nan) for e, m in zip(residuals, problem.weights, strict=True)]
    return np.stack([np.nan_to_num(np.nanmedian(u, axis=0)) for u in used]) / 0.6745, residuals


def _independent(
    problem: EstimationProblem, scale: np.ndarray, residuals: list[np.ndarray], threshold: float, curved: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Covariance of an M-estimate for independent rows, E[psi^2] / E[psi']^2 (W^T S^-2 W)^-1 (Huber 1981, sec. 7.6).

    psi is the derivative of rho, and S is the noise of the rows. Also returns E[psi^2] / E[psi'] (V^T V)^-1, where V
    consists of the rows with residuals within the threshold. The two covariances are equal if outliers are evenly
    distributed.
    """
    u = np.concatenate(
        [(e / np.maximum(s, 1e-300))[m > 0] for e, s, m in zip(residuals, scale, problem.weights, strict=True)]
    )
    b = problem.base.size
    spread = (np.clip(u, -threshold, threshold) ** 2).sum() / max(len(u) - b / problem.independence, 1)
    r = stacked(problem.factors, inverse_noise(scale.reshape(-1)))[:, problem.base.kept]
    slope = max(float((np.abs(u) <= threshold).mean()), 1e-3)
    inverses = [np.linalg.pinv(np.linalg.qr(x, mode="r")) for x in (r, curved)]
    first, second = (spread / slope / problem.independence * (inverse @ inverse.T) for inverse in inverses)
    return first / slope, second


def _outliers(problem: EstimationProblem, scale: np.ndarray, residuals: list[np.ndarray]) -> list[str]:
    counts = [((np.abs(e) > 4 * s) & (m > 0)).sum(0) for e, s, m in zip(residuals, scale, problem.weights, strict=True)]
    total = np.sum(counts, axis=0)
    worst = int(np.argmax(total))
    return (
        [
            f"{total[worst]} samples of {problem.chain.joint_names[worst]} have residuals of more than 4 standard deviations"
        ]
        if total[worst]
        else []
    )

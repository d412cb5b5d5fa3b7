"""Least squares on accumulated factors, ordinary or weighted by each joint's noise."""

import dataclasses

import numpy as np
from jaxtyping import Float

from .._regression.base_parameters import BaseParameters, UndeterminedError, stacked
from .._regression.blocks import BlockFactors, least_squares_covariance, weighted_blocks
from .._regression.factors import QRFactors
from .estimate import Estimate
from .problem import EstimationProblem

ROUNDS_OF_NOISE = (
    3  # iterations for the noise level, which sets the weight of prior knowledge in ordinary least squares
)
ROWS_OF_A_RUN = 2.0  # least number of independent samples per base parameter for weights of a run's own


@dataclasses.dataclass(frozen=True, eq=False)
class Stated:
    """Rows [P, y] of prior knowledge with unit standard deviation, and the factor that scales them to the weighted data."""

    rows: Float[np.ndarray, "k w"]
    scale: float


def estimate_ols(problem: EstimationProblem) -> Estimate:
    """Ordinary least squares: minimises sum |tau - W base|^2, with equal weights for all joints and runs.

    The estimate is biased if the regressor W contains errors, for example due to noise in velocities and accelerations.

    Args:
        problem: the problem.

    Raises:
        IdentificationError: there are too few rows, or the motion does not excite all base parameters or does not
            determine them separately.
    """
    return ordinary_least_squares(problem.blocks, problem.base, problem.independence)


def estimate_wls(problem: EstimationProblem, tolerance: float = 1e-6, iterations: int = 20) -> Estimate:
    """Weighted least squares on the rows of a problem, the estimator of `identify`: `weighted_least_squares` of its blocks.

    Args:
        problem: the problem.
        tolerance: relative step of the values below which the iteration has converged.
        iterations: maximum number of iterations.

    Raises:
        IdentificationError: as for `estimate_ols`.
    """
    return weighted_least_squares(problem.blocks, problem.base, problem.independence, tolerance, iterations)


def relative_step(new: np.ndarray, old: np.ndarray) -> float:
    """Largest relative change of the values; changes of small values are relative to 1e-3 of the largest value."""
    size = np.maximum(np.abs(new), np.abs(old))
    return float((np.abs(new - old) / np.maximum(size, 1e-3 * size.max() or 1.0)).max())


def inverse_noise(noise: np.ndarray) -> np.ndarray:
    """Weights 1 / s for noise s, capped for joints with (almost) no noise; equal weights if no joint has noise."""
    return 1 / np.maximum(noise, 1e-12 * float(noise.max()) or 1.0)


def with_blocks(
    estimate: Estimate,
    blocks: BlockFactors,
    base: BaseParameters,
    weights: Float[np.ndarray, "runs n"],
    known: Stated | None = None,
) -> Estimate:
    """A copy of the estimate with a jackknife covariance, for rows weighted by run and joint.

    The jackknife leaves out blocks of data, but never the rows P of prior knowledge. Their contribution C P^T P C to
    the covariance C is therefore added separately.

    Args:
        known: prior knowledge, with the factor that scales it to the weighted rows of the data.
    """
    at = np.append(base.kept, -1)
    parts, beyond, rows = weighted_blocks(blocks, at, weights), 0.0, None
    if known is not None:
        rows = known.rows[:, base.kept]
        beyond = estimate.covariance @ (rows.T @ rows) @ estimate.covariance
        rows = known.scale * rows
    covariance = least_squares_covariance(parts, estimate.values, estimate.covariance - beyond, besides=rows)
    return estimate.with_covariance(covariance + beyond, len(parts))


def ordinary_least_squares(
    factors: QRFactors | BlockFactors,
    base: BaseParameters,
    independence: float = 1.0,
    known: Float[np.ndarray, "k w"] | None = None,
) -> Estimate:
    """Ordinary least squares on factors: minimises sum |tau - W base|^2, with equal weights for all joints.

    Args:
        factors: triangular factors of the regressor and the torques. Standard deviations account for correlated
            residuals only if the factors were accumulated in blocks.
        base: the base parameters.
        independence: effective fraction of independent samples. Filtered data are correlated if they are sampled faster
            than twice the cutoff; ignoring this would make standard deviations too small by a factor of 1 /
            sqrt(independence).
        known: rows [P, y] of prior knowledge P @ parameters = y +- 1, scaled to unit standard deviation
            (`Known.stated`). Their weight relative to the data follows from the RMS of all residuals.

    Raises:
        IdentificationError: there are too few samples, or the data do not excite all base parameters or do not
            determine them separately.
    """
    whole = factors.total if isinstance(factors, BlockFactors) else factors
    weights, stated = np.ones(len(whole.counts)), None
    if known is not None:
        noise = float(np.sqrt((whole.r[:, :, -1] ** 2).sum() / max(whole.counts.sum(), 1)))
        for _ in range(ROUNDS_OF_NOISE):
            stated = Stated(known, noise / np.sqrt(independence))
            residuals = solve_factors(whole, base, weights, independence, stated).joint_residuals
            noise = float(np.sqrt((residuals**2 * whole.counts).sum() / max(whole.counts.sum(), 1)))
    estimate = solve_factors(whole, base, weights, independence, stated)
    if isinstance(factors, BlockFactors):
        return with_blocks(estimate, factors, base, weights[None], stated)
    return estimate


def weighted_least_squares(
    factors: QRFactors | BlockFactors,
    base: BaseParameters,
    independence: float = 1.0,
    tolerance: float = 1e-6,
    iterations: int = 20,
    known: Float[np.ndarray, "k w"] | None = None,
) -> Estimate:
    """Weighted least squares: minimises sum_rj |tau_rj - W_rj base|^2 / s_rj^2, with the noise s_rj of joint j in run r.

    The iteration starts from ordinary least squares. Each step computes s from the residuals of the previous step. The
    iteration ends when the values converge.

    The runs are those of the blocks; factors without blocks count as one run. A run with fewer than twice as many
    independent samples as there are base parameters could be fitted almost exactly, and would then outweigh all others:
    the noise of its joints is that of all runs together.

    Args:
        factors: as for `ordinary_least_squares`.
        base: the base parameters.
        independence: as for `ordinary_least_squares`.
        tolerance: relative step of the values below which the iteration has converged.
        iterations: maximum number of iterations.
        known: rows [P, y] of prior knowledge, as for `ordinary_least_squares`.

    Raises:
        IdentificationError: as for `ordinary_least_squares`.
    """
    if isinstance(factors, BlockFactors):
        factors = dataclasses.replace(factors, runs=np.unique(factors.runs, return_inverse=True)[1])
        whole, n = factors.by_run, factors.r.shape[1]
    else:
        whole, n = factors, len(factors.counts)
    counts = whole.counts.reshape(-1, n)
    pooled = lambda x: np.sqrt((x.reshape(-1, n) ** 2 * counts).sum(0) / np.maximum(counts.sum(0), 1))
    stated = None if known is None else Stated(known, 1 / np.sqrt(independence))
    estimate = ordinary_least_squares(whole, base, independence, known)
    history: list[float] = []
    weights, few = np.ones_like(counts, float), counts * independence < ROWS_OF_A_RUN * base.size

    def noise_of(estimate: Estimate) -> np.ndarray:
        return np.where(few, pooled(estimate.noise), estimate.noise.reshape(-1, n))

    while len(history) < iterations:
        weights = inverse_noise(noise_of(estimate))
        update = solve_factors(whole, base, weights.reshape(-1), independence, stated)
        history.append(relative_step(update.values, estimate.values))
        estimate = update
        if history[-1] < tolerance:
            break
    noise = noise_of(estimate)
    if isinstance(factors, BlockFactors):
        estimate = with_blocks(estimate, factors, base, weights, stated)
    return dataclasses.replace(
        estimate,
        noise=pooled(noise),
        joint_residuals=pooled(estimate.joint_residuals),
        run_noise=noise if isinstance(factors, BlockFactors) else None,
        method="WLS",
        iterations=len(history),
        history=tuple(history),
        converged=history[-1] < tolerance,
    )


def solve_factors(
    factors: QRFactors, base: BaseParameters, weights: np.ndarray, independence: float, known: Stated | None = None
) -> Estimate:
    """Least squares on factors, with one weight per factor.

    Raises the same errors as `ordinary_least_squares`. The covariance is s^2 (W^T W)^-1, where the variance s^2
    accounts for the fraction of independent samples.
    """
    counts = factors.counts
    b = base.size
    if counts.sum() <= b:
        raise UndeterminedError(
            f"{int(counts.sum())} rows of samples cannot determine {b} base parameters; log a longer run or decimate less"
        )
    r = stacked(factors, weights)
    free = b
    if known is not None:
        r, free = np.concatenate([r, known.scale * known.rows]), max(b - len(known.rows), 0)
    w, y = r[:, base.kept], r[:, -1]
    norms = np.linalg.norm(w, axis=0)
    if np.any(norms == 0):
        raise UndeterminedError(
            f"the data do not excite {base.names[int(np.argmin(norms))]!r}: log a motion of all joints, or omit this term"
        )
    u, s, vt = np.linalg.svd(w / norms, full_matrices=False)
    if s[-1] < 1e-12 * s[0]:
        worst = np.argsort(-np.abs(vt[-1]))[:3]
        raise UndeterminedError(
            "the motion does not determine these base parameters separately: "
            + "; ".join(repr(base.names[k]) for k in worst)
            + ". Log a more informative motion in which all joints move at once, or identify fewer terms"
        )
    values = vt.T @ (u.T @ y / s) / norms
    residuals = factors.r[:, :, -1] - factors.r[:, :, base.kept] @ values
    squares = (residuals**2).sum(1)
    spent = free / independence / counts.sum()  # degrees of freedom used by the parameters, as a share of the rows
    if spent >= 1:
        raise UndeterminedError(
            f"only {counts.sum() * independence:.0f} of {int(counts.sum())} rows of filtered samples count as independent, too "
            f"few to determine {b} base parameters; log a longer run"
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
        method="OLS",
        degrees=float(counts.sum() * independence - b),
    )

"""Instrumental variables from a simulation of the robot, to remove the bias due to noise in the measured regressor."""

import numpy as np
from jaxtyping import Int

from ...errors import IdentificationError
from .._regression.blocks import BLOCKS, LEFT_OUT, block_edges, left_out_covariance
from .estimate import Estimate
from .least_squares import inverse_noise, relative_step
from .problem import EstimationProblem
from .simulation import check_loops, shortened


def estimate_iv(problem: EstimationProblem, tolerance: float = 1e-3, iterations: int = 10) -> Estimate:
    """Estimate base parameters by instrumental variables from a simulated closed loop (IDIM-IV).

    Computes base = (Z^T W)^-1 Z^T tau, where W is the regressor of the measured motion. The instruments Z = W(q_s,
    qd_s, qdd_s) are the regressor of the simulated motion.

    Least squares is biased, because position noise affects W and, through the controller, tau. The simulated motion
    follows the reference and is free of noise, so Z is uncorrelated with the noise, and the estimate is statistically
    consistent (Janot, Vandanjon & Gautier 2014). Each step simulates the robot with the parameters from the previous
    step. Each joint of each run is weighted by the inverse of its noise.

    Args:
        problem: the estimation problem, which must contain closed loops.
        tolerance: relative step of the values below which the iteration has converged.
        iterations: maximum number of steps.

    Raises:
        IdentificationError: the problem has no closed loops; a loop is unstable or does not cover the time range of its
            run; the data do not excite a parameter; or the instruments do not determine the parameters separately.

    Cost: one simulation per step and run. Memory: 16 N n b bytes for two regressors of N samples, n joints and b base
    parameters.
    """
    check_loops(problem, "IV")
    values = problem.initial
    values, instruments, simulations = shortened(problem, values, values, "IV")
    runs, n, b = len(problem.samples), problem.chain.nv, problem.base.size
    measured = problem.measured_rows()
    counts = np.array([(m > 0).sum(0) for m in problem.weights])
    noise = np.ones((runs, n))
    history: list[float] = []
    while True:
        z, w, y = (
            np.concatenate([(x * (m / s)[(...,) + (None,) * (x.ndim - 2)]).reshape(-1, *x.shape[2:]) for x, m, s in zip(
                parts, problem.weights, 1 / inverse_noise(noise.reshape(-1)).reshape(runs, n), strict=True
            )])
            for parts in (instruments, measured, problem.torques)
        )  # fmt: skip
        scale = np.linalg.norm(w, axis=0)
        if np.any(scale == 0):
            raise IdentificationError(f"the data do not excite {problem.base.names[int(np.argmin(scale))]!r}")
        q, r = np.linalg.qr(z / np.linalg.norm(z, axis=0))
        mixed = q.T @ (w / scale)
        u, singular, vt = np.linalg.svd(mixed)
        if singular[-1] < 1e-12 * singular[0] or np.abs(np.diag(r)).min() < 1e-12:
            worst = problem.base.names[int(np.argmax(np.abs(vt[-1])))]
            raise IdentificationError(
                f"the instruments do not determine {worst!r} separately: use a more informative reference motion"
            )
        inverse = (vt.T / singular) @ u.T
        new = inverse @ (q.T @ y) / scale
        errors = [tau - x @ new for tau, x in zip(problem.torques, measured, strict=True)]
        squares = np.array([((e * m) ** 2).sum(0) for e, m in zip(errors, problem.weights, strict=True)])
        spent = b / problem.independence / counts.sum()
        first = not history
        noise = np.sqrt(squares / np.maximum(counts * (1 - spent), 1))
        history.append(relative_step(new, values))
        rest = history[-1] < tolerance and not first
        if rest or len(history) >= iterations:
            break
        values, instruments, tried = shortened(problem, values, new, "IV")
        simulations += tried
    variance = ((y - w @ new) ** 2).sum() / (counts.sum() * (1 - spent)) / problem.independence
    spread = inverse / scale[:, None]
    independent = variance * (spread @ spread.T)
    parts = _blocks(problem)
    shares = np.stack([inverse @ (q[part].T @ (w[part] / scale)) for part in parts])
    scores = np.stack([inverse @ (q[part].T @ (y[part] - w[part] @ new)) for part in parts])
    found = Estimate(
        values=new,
        covariance=independent,
        noise=np.sqrt((noise**2).mean(0)),
        condition=float(np.linalg.cond(z)),
        scaled_condition=float(singular[0] / singular[-1]),
        joint_residuals=np.sqrt(squares.sum(0) / np.maximum(counts.sum(0), 1)),
        method="IV",
        run_noise=noise,
        iterations=len(history),
        simulations=simulations,
        history=tuple(history),
        converged=bool(rest),
        degrees=float(counts.sum() * problem.independence - b),
    )
    return found.with_covariance(left_out_covariance(shares, scores, np.diag(1 / scale), independent), len(parts))


def _blocks(problem: EstimationProblem) -> list[slice | Int[np.ndarray, " m"]]:
    """Rows of the jackknife blocks in the concatenated rows of all runs, with n rows per sample."""
    n, lengths = problem.chain.nv, [len(s) for s in problem.samples]
    if problem.groups is not None:
        groups = np.repeat(np.concatenate(problem.groups) * LEFT_OUT // BLOCKS, n)
        return [np.flatnonzero(groups == k) for k in np.unique(groups)]
    starts = np.cumsum([0, *lengths[:-1]]).tolist()
    edges = zip(starts, block_edges(lengths, LEFT_OUT), strict=True)
    return [slice(n * (start + a), n * (start + b)) for start, run in edges for a, b in run]

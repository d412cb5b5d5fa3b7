"""Closed-loop output error: fit of simulated to measured joint positions, with exact sensitivities."""

import dataclasses

import numpy as np

from ...errors import IdentificationError
from .estimate import Estimate
from .least_squares import inverse_noise, relative_step, solve_factors, with_blocks
from .problem import EstimationProblem
from .simulation import at_samples, check_loops, motion, sensitivities, with_right_sides

HALVINGS = 6  # maximum number of trial steps, each half as long as the previous one


def estimate_cloe(problem: EstimationProblem, tolerance: float = 1e-3, iterations: int = 15) -> Estimate:
    """Fit base parameters to joint positions alone by simulating the closed loop (closed-loop output error).

    Minimises sum_rj |q_rj - q_s,rj(base)|^2 / s_rj^2 by the Gauss-Newton method, where q_s is the motion of the
    simulated closed loop, and s_rj is the noise of joint j's position in run r. The derivatives d q_s / d base are
    computed in forward mode for all parameters at once, and are exact for the discretised loop. A step that worsens the
    fit or makes the loop unstable is halved and tried again.

    The only information about the parameters is in the controller's tracking errors. If the controller's gains are
    torques per position error [N m/rad], these errors determine the parameters, including their scale. With
    `ComputedTorqueLaw`, the simulated motion hardly depends on the parameters, so the tracking errors contain almost no
    information about them.

    Args:
        problem: the estimation problem, which must contain closed loops.
        tolerance: relative step, or relative change of the cost, below which the iteration has converged.
        iterations: maximum number of steps.

    Returns:
        The estimate. Its `noise` and `joint_residuals` are those of the positions [rad or m], and its `history`
        contains the weighted RMS residual after each step.

    Raises:
        IdentificationError: the problem has no closed loops; a loop is unstable with the initial parameters or does not
            cover the time range of its run; or the positions do not determine the parameters separately.

    Cost: one simulation with b sensitivities per step, for b base parameters, and one simulation per trial step.
    Memory: 8 T n b bytes for T time steps and n joints.
    """
    check_loops(problem, "CLOE")
    runs, b = len(problem.samples), problem.base.size
    reduced = dataclasses.replace(problem.base, kept=np.arange(b))
    independence = min(1.0, *(2 * 0.9 * s.position_cutoff / s.rate for s in problem.samples))
    values = problem.initial
    residuals = _residuals(problem, values)
    simulations = runs
    if residuals is None:
        raise IdentificationError(
            "CLOE: the simulated closed loop is unstable with the initial parameters; check the gains, the reference "
            "and the initial estimate, or use more substeps in the loop"
        )
    history: list[float] = []
    rest = False
    while True:
        noise = _noise(residuals, problem.weights)
        jacobians = [sensitivities(problem, run, values)[1] for run in range(runs)]
        simulations += runs
        weights = inverse_noise(noise.reshape(-1))
        blocks = with_right_sides(problem, jacobians, residuals)
        step = solve_factors(blocks.by_run, reduced, weights, independence)
        if rest or len(history) >= iterations:
            break
        before = _cost(residuals, noise, problem.weights)
        share, found, after = 1.0, None, before
        for _ in range(HALVINGS):
            found = _residuals(problem, values + share * step.values)
            simulations += runs
            after = np.inf if found is None else _cost(found, noise, problem.weights)
            if after < before:
                break
            share, found = share / 2, None
        if found is None:  # no trial step improves the fit, so this is the minimum, up to rounding
            rest = True
            break
        new = values + share * step.values
        history.append(float(np.sqrt(after)))
        rest = share == 1 and (relative_step(new, values) < tolerance or before - after < tolerance * after)
        values, residuals = new, found
    noise = _noise(residuals, problem.weights)
    return dataclasses.replace(
        with_blocks(step, blocks, reduced, weights.reshape(runs, -1)),
        values=values,
        noise=np.sqrt((noise**2).mean(0)),
        run_noise=noise,
        joint_residuals=np.sqrt((noise**2).mean(0)),
        method="CLOE",
        iterations=len(history),
        simulations=simulations,
        history=tuple(history),
        converged=bool(rest),
    )


def _residuals(problem: EstimationProblem, values: np.ndarray) -> list[np.ndarray] | None:
    """Measured minus simulated positions of each run (N, n); None if a loop is unstable."""
    out = []
    for run, samples in enumerate(problem.samples):
        moved = motion(problem, run, values)
        if moved is None:
            return None
        out.append(samples.q - at_samples(problem, run, moved.q, samples.position_cutoff))
    return out


def _noise(residuals: list[np.ndarray], masks: tuple[np.ndarray, ...]) -> np.ndarray:
    used = [(e * (m > 0), np.maximum((m > 0).sum(0), 1)) for e, m in zip(residuals, masks, strict=True)]
    return np.stack([np.sqrt((e**2).sum(0) / count) for e, count in used])


def _cost(residuals: list[np.ndarray], noise: np.ndarray, masks: tuple[np.ndarray, ...]) -> float:
    weights = inverse_noise(noise.reshape(-1)).reshape(noise.shape)
    squares = sum(((e * m * w) ** 2).sum() for e, m, w in zip(residuals, masks, weights, strict=True))
    return float(squares / sum((m > 0).sum() for m in masks))

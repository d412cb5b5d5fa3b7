"""Closed-loop output error: the simulated robot's positions fitted to the measured ones, with exact sensitivities."""

import dataclasses

import numpy as np

from ...errors import IdentificationError
from .estimate import Estimate
from .least_squares import inverse_noise, relative_step, solve_factors, with_blocks
from .problem import EstimationProblem
from .simulation import at_samples, check_loops, motion, sensitivities, with_right_sides

HALVINGS = 6


def estimate_cloe(problem: EstimationProblem, tolerance: float = 1e-3, iterations: int = 15) -> Estimate:
    """Closed-loop output error: minimises sum_rj |q_rj - q_s,rj(base)|^2 / s_rj^2 by Gauss-Newton, without measured torques.

    q_s is the motion of the simulated closed loop and d q_s / d base its forward-mode derivative, all directions in one
    vmap: exact for the discretised loop, whereas finite differences need one simulation per parameter. The step is
    halved while it worsens the fit or destabilises the loop. s is the noise of joint j's position in run r. The
    tracking errors determine the result: with gains in N m/rad they carry the scale, with `ComputedTorqueLaw` no
    information.

    Args:
        tolerance: largest relative step, or relative change of the cost, at which it stops.
        iterations: maximum number of steps.

    Returns:
        The estimate; noise and joint_residuals are those of the positions [rad or m]; its history holds the root mean square
        of the weighted residuals.

    Raises:
        IdentificationError: no closed loop is given, it is unstable at the start, it does not cover the run's times, or
            the positions do not separate the parameters.

    Cost: one simulation with b sensitivities per step, and one per trial; 8 T n b bytes.
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
            "CLOE: the simulated closed loop is not stable with the values it starts from; check the gains, the reference and "
            "the start, or give the loop more substeps"
        )
    history: list[float] = []
    rest = False
    while True:
        noise = _noise(residuals, problem.weights)
        jacobians = [sensitivities(problem, run, values)[1] for run in range(runs)]
        simulations += runs
        weights = inverse_noise(noise.reshape(-1))
        blocks = with_right_sides(jacobians, residuals, problem.weights)
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
        if found is None:  # no better point along the step: the minimum, to rounding
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
    """(N, n) of each run: measured minus simulated positions; None if a loop is unstable."""
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

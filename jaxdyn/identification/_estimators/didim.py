"""DIDIM: identification from torques alone, with direct and inverse dynamic models."""

import dataclasses

import numpy as np

from .estimate import Estimate
from .least_squares import inverse_noise, relative_step, solve_factors, with_blocks
from .problem import EstimationProblem
from .simulation import check_loops, shortened, with_right_sides


def estimate_didim(problem: EstimationProblem, tolerance: float = 1e-3, iterations: int = 10) -> Estimate:
    """Fit the torques of the simulated closed loop to the measured torques (DIDIM), without measured positions.

    Minimises |tau - tau_s(base)|^2 over the base parameters by the Gauss-Newton method, where tau is the measured
    torque, and tau_s = W(q_s, qd_s, qdd_s) base is the torque of the simulated motion q_s. The controller keeps q_s
    near its reference whatever the parameters, so the derivative d tau_s / d base is approximately W(q_s, qd_s, qdd_s).
    Each step is therefore a linear least-squares fit on the simulated motion (Gautier, Janot & Vandanjon 2013).

    Measured positions are not used, so their noise and filters do not affect the regressor. Each joint of each run is
    weighted by the inverse of its noise.

    Args:
        problem: the estimation problem, which must contain closed loops.
        tolerance: relative step of the values, or relative change of the residual, below which the iteration has
            converged.
        iterations: maximum number of steps.

    Returns:
        The estimate, whose `history` contains the relative residual |tau - W base| / |tau| of each step.

    Raises:
        IdentificationError: the problem has no closed loops; or a loop is unstable or does not cover the time range of
            its run.

    Cost: one simulation per step and run. Memory: 8 T n b bytes for the regressor of T time steps, n joints and b base
    parameters.
    """
    check_loops(problem, "DIDIM")
    reduced = dataclasses.replace(problem.base, kept=np.arange(problem.base.size))
    values = problem.initial
    values, rows, simulations = shortened(problem, values, values, "DIDIM")
    noise = None
    size = np.sqrt(
        sum((tau**2 * (m > 0)).sum() for tau, m in zip(problem.commanded_torques, problem.weights, strict=True))
    )
    history: list[float] = []
    while True:
        blocks = with_right_sides(problem, rows, problem.commanded_torques)
        factors = blocks.by_run
        if noise is None:
            noise = solve_factors(factors, reduced, np.ones(len(factors.counts)), problem.independence).noise
        weights = inverse_noise(noise)
        estimate = solve_factors(factors, reduced, weights, problem.independence)
        noise = estimate.noise
        residual = np.sqrt((estimate.joint_residuals**2 * factors.counts).sum()) / size
        rest = relative_step(estimate.values, values) < tolerance or (
            len(history) > 0 and abs(residual - history[-1]) < tolerance * history[-1]
        )
        history.append(float(residual))
        if rest or len(history) >= iterations:
            break
        values, rows, tried = shortened(problem, values, estimate.values, "DIDIM")
        simulations += tried
    runs, n = len(problem.samples), problem.chain.nv
    return dataclasses.replace(
        with_blocks(estimate, blocks, reduced, weights.reshape(runs, n)),
        noise=np.sqrt((noise.reshape(runs, n) ** 2).mean(0)),
        run_noise=noise.reshape(runs, n),
        joint_residuals=np.sqrt((estimate.joint_residuals.reshape(runs, n) ** 2).mean(0)),
        method="DIDIM",
        iterations=len(history),
        simulations=simulations,
        history=tuple(history),
        converged=bool(rest),
    )

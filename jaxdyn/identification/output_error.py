"""Closed-loop motions, filtered like the logs, for the estimators that simulate the robot.

DIDIM: identification from torques alone, with direct and inverse dynamic models.

Closed-loop output error: fit of simulated to measured joint positions, with exact sensitivities."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import IdentificationError
from ..model.chain import Chain
from .columns import Columns
from .factors import BlockFactors, dense_blocks
from .filters import low_pass
from .least_squares import (
    Estimate,
    EstimationProblem,
    friction_signals,
    inverse_noise,
    relative_step,
    samples_of,
    solve_factors,
    with_blocks,
)
from .simulated_logs import ClosedLoop, ClosedLoopMotion, simulate_closed_loop

HALVINGS = 8  # maximum number of trial steps, each half as long as the previous one


class Motion(NamedTuple):
    """A `ClosedLoopMotion` as NumPy arrays."""

    q: np.ndarray
    qd: np.ndarray
    qdd: np.ndarray
    tau: np.ndarray


@functools.partial(jax.jit, static_argnums=0)
def _motion(columns: Columns, chain: Chain, loop: ClosedLoop, friction: Array | None, parameters: Array):
    return _simulated(columns, chain, loop, friction, parameters)


def _simulated(
    columns: Columns, chain: Chain, loop: ClosedLoop, friction: Array | None, parameters: Array
) -> ClosedLoopMotion:
    """Simulate the loop; the last k parameters multiply the columns `friction` (steps, n, k)."""
    if friction is None:
        return simulate_closed_loop(loop, chain, columns, parameters)
    p = parameters.shape[0] - friction.shape[2]
    return simulate_closed_loop(loop, chain, columns, parameters[:p], resistance=friction @ parameters[p:])


@functools.partial(jax.jit, static_argnums=0)
def _sensitivity(columns: Columns, chain: Chain, loop: ClosedLoop, friction, parameters: Array, directions: Array):
    """Positions (N, n) and their derivatives (N, n, b) along the directions (p, b), in forward mode."""

    def positions(values):
        q = _simulated(columns, chain, loop, friction, parameters + directions @ values).q
        return q, q

    jacobian, q = jax.jacfwd(positions, has_aux=True)(jnp.zeros(directions.shape[1], parameters.dtype))
    return q, jacobian


def check_loops(problem: EstimationProblem, method: str) -> None:
    """Raise an error if a problem has no closed loops.

    Raises:
        IdentificationError: there are no closed loops.
    """
    if not problem.loops:
        raise IdentificationError(
            f"{method} simulates the robot with its controller and needs closed loops: pass loops=[...] "
            "(`ClosedLoop.following` for a known reference, `ClosedLoop.tracking` for the measured motion)"
        )


def motion(problem: EstimationProblem, run: int, values: np.ndarray) -> Motion | None:
    """Simulated motion of a run, as NumPy arrays; None if the loop is unstable with the given base parameters."""
    with jax.enable_x64(True):
        loop, acting = problem.loops[run], problem.acting_friction[run]
        found = _motion(problem.columns, problem.chain, loop, acting, jnp.asarray(problem.full(values)))
        q, qd, qdd, tau = (np.asarray(x) for x in found)
    return Motion(q, qd, qdd, tau) if all(np.isfinite(x).all() for x in (q, qd, qdd, tau)) else None


def sensitivities(problem: EstimationProblem, run: int, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Simulated positions at a run's samples (N, n), and their derivatives with respect to the base parameters (N, n, b).

    The positions and their derivatives are filtered like the measured positions of the run.
    """
    with jax.enable_x64(True):
        full, directions = jnp.asarray(problem.full(values)), jnp.asarray(problem.completion)
        loop, acting = problem.loops[run], problem.acting_friction[run]
        found = _sensitivity(problem.columns, problem.chain, loop, acting, full, directions)
    cutoff = problem.samples[run].position_cutoff
    q, jacobian = (at_samples(problem, run, np.asarray(x), cutoff) for x in found)
    return q, jacobian


def at_samples(
    problem: EstimationProblem, run: int, x: Float[np.ndarray, "T ..."], cutoff: float
) -> Float[np.ndarray, "N ..."]:
    """Low-pass filter a signal of the loop, and evaluate it at the times of the run's samples."""
    loop, samples = problem.loops[run], problem.samples[run]
    if cutoff < 0.45 * loop.rate:
        x = low_pass(x, loop.rate, cutoff)
    return x[loop.rows(samples.t, f"run {run + 1}")]


def simulated_rows(problem: EstimationProblem, values: np.ndarray) -> list[np.ndarray] | None:
    """Base regressor along the simulated motion of each run (N, n, b), with each column filtered like the torques.

    Returns None if a loop is unstable with the given base parameters.
    """
    out = []
    for run, samples in enumerate(problem.samples):
        moved = motion(problem, run, values)
        if moved is None:
            return None
        signals = None
        if problem.friction is not None:
            loop = problem.loops[run]
            signals = friction_signals(problem.friction, samples_of(loop.t_0, loop.rate, *moved))
        w = problem.rows(moved.q, moved.qd, moved.qdd, signals)
        if problem.parallel_cutoff is not None and problem.parallel_cutoff < 0.45 * problem.loops[run].rate:
            w = low_pass(w, problem.loops[run].rate, problem.parallel_cutoff)
        out.append(at_samples(problem, run, w, samples.torque_cutoff))
    return out


def shortened(
    problem: EstimationProblem, old: np.ndarray, new: np.ndarray, method: str
) -> tuple[np.ndarray, list[np.ndarray], int]:
    """Find base parameters between `old` and `new` for which all loops are stable.

    The step from `old` to `new` is halved until all loops are stable. Returns the base parameters, the base regressor
    of each run's simulated motion, and the number of simulations.

    Raises:
        IdentificationError: a loop is unstable in each of the eight trial steps.
    """
    share = 1.0
    for tried in range(1, HALVINGS + 1):
        values = old + share * (new - old)
        rows = simulated_rows(problem, values)
        if rows is not None:
            return values, rows, tried * len(problem.samples)
        share /= 2
    raise IdentificationError(
        f"{method}: the simulated closed loop is unstable even near the previous parameters; check the gains, "
        "the reference and the initial estimate, or use more substeps in the loop"
    )


def with_right_sides(
    problem: EstimationProblem, rows: Sequence[np.ndarray], right: Sequence[np.ndarray]
) -> BlockFactors:
    """Triangular factors of the rows of a problem in blocks, with the right-hand side as the last column."""
    whole = [np.concatenate([w, y[:, :, None]], axis=2) for w, y in zip(rows, right, strict=True)]
    return dense_blocks(whole, problem.weights, problem.groups)


# -- didim


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


# -- output error

STEP_HALVINGS = 6  # maximum number of trial steps, each half as long as the previous one


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
        for _ in range(STEP_HALVINGS):
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

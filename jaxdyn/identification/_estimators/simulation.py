"""Closed-loop motions, filtered like the logs, for the estimators that simulate the robot."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...errors import IdentificationError
from ...model._chain import Chain
from .._preprocessing.filters import low_pass
from .._regression.blocks import BlockFactors, dense_blocks
from .._regression.columns import Columns
from .._simulation.closed_loop import ClosedLoop, ClosedLoopMotion, simulate_closed_loop
from .problem import EstimationProblem
from .whole_runs import friction_signals, samples_of

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

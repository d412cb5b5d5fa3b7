"""Optimal control by multiple shooting: differential dynamic programming with gaps, torque limits and constraints."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from ...dynamics._lowering import in_groups
from ...errors import TrajectoryError
from ...model._compiled import compiled
from .._linear_quadratic.problem import LinearQuadratic, LQPolicy, adjoints
from .._linear_quadratic.riccati import Descent, policy_and_descent
from .._problem.augmented_lagrangian import (
    HEAVIEST,
    Penalty,
    Violation,
    constraint_rows,
    no_penalty,
    updated,
    violation,
)
from .._problem.guess import stationary_guess
from .._problem.problem import (
    OptimalControlProblem,
    knot_times,
    knots_of,
    limited_torque,
    status_of_problem,
    total_cost,
    with_resting_torque,
)
from .._problem.solution import Guess, Residuals, Solution, Status, Trajectory
from .._trees import batched_with, choose
from .line_search import first_that_helps
from .local_model import gaps_of, linearised, objective
from .rollout import under_policy
from .sensitivity import Solved, differentiable

RUNNING = -1  # status while iterating
RECORDED = 200  # number of iterations in the history
TOGETHER = 16  # number of problems per group when a batch is solved on the CPU
LIGHTEST, HEAVIEST_DAMPING = 1e-2, 1e8  # smallest nonzero and largest damping, relative to the Hessian of the controls
FASTER = 3.0  # factor by which consecutive changes of the damping accelerate (Tassa, Erez & Todorov 2012)
SMALLEST_SHARE, FIRST_SHARE = 1 / 64, 1 / 16  # smallest and initial factor applied to second derivatives


class _Start(NamedTuple):
    trajectory: Trajectory
    penalty: Penalty
    boxed: Array  # True if the policy respects the torque limits from the first iteration on


class _Limits(NamedTuple):
    iterations: Array
    tolerance: Array


class _Iterate(NamedTuple):
    trajectory: Trajectory
    gaps: Array
    value: Array  # objective, including the penalty


class _Round(NamedTuple):
    penalty: Penalty
    violated: Array  # violation when the multipliers were last updated
    precision: Array  # tolerance in the current round of multipliers


class _Pace(NamedTuple):
    damping: Array
    growth: Array  # factor by which the damping changes, below 1 while the damping decreases
    share: Array  # factor applied to the second derivatives in the Hessian
    gap_weight: Array  # weight of the gaps in the merit
    boxed: Array  # True if the policy respects the torque limits, False if torques are only clipped


class _State(NamedTuple):
    now: _Iterate
    round: _Round
    pace: _Pace
    iteration: Array
    status: Array
    residuals: Residuals
    multipliers: dict[str, Any]
    history: dict[str, Array]


def solve_by_shooting(
    problem: OptimalControlProblem,
    guess: Trajectory | Guess | Solution | None = None,
    *,
    max_iterations: int | Int[Array, ""] = 200,
    tolerance: float | None = None,
    second_order: bool = False,
    penalty: float = 10.0,
    together: bool = False,
) -> Solution:
    """Find the motion of minimum cost by differential dynamic programming with multiple shooting.

    Every iteration solves the linear-quadratic problem around the current trajectory by `riccati`, and simulates the robot
    under the resulting policy. If the guess violates the dynamics, there are gaps between its knots, which close as steps are
    taken (Mastalli et al. 2020). The merit function of the line search is the cost plus a weighted sum of the absolute gaps.

    Torque limits are bounds in the linear-quadratic problem (Tassa, Mansard & Todorov 2014). If the guess is not an earlier
    solution, the first iterations ignore these bounds and only clip the torques in the simulation, usually until the first full
    step is accepted. Other constraints are handled by an augmented Lagrangian (Hestenes 1969; Powell 1969).

    The solution is differentiable with respect to all floating-point leaves of the problem.

    Cost: O(N (n^3 + nv^3)) per iteration for n joints.

    Args:
        problem: problem to solve; for a batch, use `jax.vmap`, which runs until the slowest problem has finished.
        guess: a trajectory, which need not be feasible, or an earlier solution, optionally shifted by `shift_guess`, whose
            multipliers are also used; None: the robot at rest.
        max_iterations: maximum number of Riccati recursions, including all rounds of multipliers. Changing it does not
            trigger recompilation.
        tolerance: tolerance for the Karush-Kuhn-Tucker residual; None: 1e-6 in float64, 1e-3 in float32.
        second_order: use the Hessian of the Lagrangian instead of the Gauss-Newton Hessian. The second derivatives, including
            those of the dynamics, are scaled down if the problem would otherwise not be convex. Near the solution, this option
            needs fewer but more expensive iterations.
        penalty: initial weight of the augmented Lagrangian.
        together: try all step lengths in parallel instead of one after another. This is faster if latency dominates, for
            example for a few problems on a GPU.

    Returns:
        The solution, or the last iterate if the status is not CONVERGED. The history contains the first 200 iterations. The
        dictionary `multipliers` contains:

        - "dynamics": multipliers of the dynamics, (N + 1, 2 nv);
        - "constraints" and "terminal_constraints": multipliers of the constraints;
        - "torques": derivatives of the cost with respect to torques at a limit;
        - "gains": feedback gains of the policy near the solution, (N, nv, 2 nv).

    Raises:
        TrajectoryError: the duration is free, the guess and the problem differ in the number of steps, or `max_iterations` is
            less than 1.
    """
    if problem.duration_limits is not None:
        raise TrajectoryError("shooting needs a fixed duration; use solve_by_collocation, or omit duration_limits")
    if not isinstance(max_iterations, Array) and max_iterations < 1:
        raise TrajectoryError(f"max_iterations={max_iterations}; it must be at least 1")
    if isinstance(guess, Solution):
        guess = Guess(guess.trajectory, guess.multipliers)
    # pass the guess and the numeric options as arguments, so that new values do not trigger recompilation
    start = _first(problem, guess, penalty)
    dtype = start.trajectory.q.dtype
    limits = _Limits(
        jnp.asarray(max_iterations, jnp.int32),
        jnp.asarray((1e-6 if dtype == jnp.float64 else 1e-3) if tolerance is None else tolerance, dtype),
    )
    return _solve(problem, start, limits, second_order, together)


@compiled
def _solve(
    problem: OptimalControlProblem, start: _Start, limits: _Limits, second_order: bool, together: bool
) -> Solution:
    problem = with_resting_torque(problem)
    # differentiate the solution, not the iterations
    bare, start = jax.lax.stop_gradient((problem, start))
    solve = in_groups(functools.partial(_iterate, second_order=second_order, together=together), TOGETHER)
    state = jax.lax.stop_gradient(solve(bare, start, limits))
    duals, held = state.multipliers["dynamics"], state.multipliers["torques"]
    found = state.multipliers["constraints"], state.multipliers["terminal_constraints"]
    solved = Solved(state.now.trajectory, state.round.penalty._replace(multipliers=found), duals, -jnp.sign(held))
    trajectory = differentiable(problem, solved)
    return Solution(
        trajectory,
        total_cost(problem, trajectory),
        state.multipliers,
        state.status,
        state.residuals,
        state.iteration,
        state.history,
    )


@compiled
def _first(problem: OptimalControlProblem, guess: Trajectory | Guess | None, weight: float | Array) -> _Start:
    """The initial iterate: the guess, with the problem's initial state and with torques clipped to the limits."""
    problem = with_resting_torque(problem)
    known = isinstance(guess, Guess)
    trajectory = guess.trajectory if known else stationary_guess(problem) if guess is None else guess
    if trajectory.tau.shape[0] != problem.steps:
        raise TrajectoryError(f"the guess has {trajectory.tau.shape[0]} steps, but the problem has {problem.steps}")
    dtype = jnp.result_type(problem.chain.dtype, problem.q0, trajectory.q)
    tau = jax.vmap(functools.partial(limited_torque, problem))(trajectory.tau)
    q, v = trajectory.q.at[0].set(problem.q0), trajectory.v.at[0].set(problem.v0)
    trajectory = Trajectory(*(x.astype(dtype) for x in (knot_times(problem, dtype), q, v, tau)))
    penalty = no_penalty(problem, trajectory, weight)
    if known:
        found = guess.multipliers["constraints"], guess.multipliers["terminal_constraints"]
        penalty = penalty._replace(multipliers=found)
    return _Start(trajectory, penalty, jnp.asarray(known or problem.torque_limits is None))


def _iterate(
    problem: OptimalControlProblem, start: _Start, limits: _Limits, second_order: bool, together: bool
) -> _State:
    """Iterate, and return the final state."""
    turn = lambda state: _turn(problem, limits, state, second_order, together)
    return jax.lax.while_loop(lambda state: state.status == RUNNING, turn, _before(problem, start, limits.tolerance))


def _before(problem: OptimalControlProblem, start: _Start, tolerance: Array) -> _State:
    """The state before the first iteration."""
    trajectory, penalty, boxed = start
    dtype, steps, nv = trajectory.q.dtype, problem.steps, problem.chain.nv
    n = (3 if problem.has_torque_rate else 2) * nv
    zero, one, far = (jnp.asarray(x, dtype) for x in (0, 1, jnp.inf))
    now = _Iterate(trajectory, gaps_of(problem, trajectory), objective(problem, trajectory, penalty))
    sound = status_of_problem(problem)
    begins = jnp.where(jnp.isfinite(now.value), RUNNING, Status.NOT_FINITE)
    multipliers = {
        "dynamics": jnp.zeros((steps + 1, n), dtype),
        "constraints": penalty.multipliers[0],
        "terminal_constraints": penalty.multipliers[1],
        "torques": jnp.zeros((steps, nv), dtype),
        "gains": jnp.zeros((steps, nv, n), dtype),
    }
    state = _State(
        now,
        _Round(penalty, far, jnp.maximum(1e-2, tolerance) if _is_constrained(problem) else tolerance),
        _Pace(zero, one, jnp.asarray(FIRST_SHARE, dtype), zero, boxed),
        jnp.zeros((), jnp.int32),
        jnp.where(sound == Status.CONVERGED, begins, sound).astype(jnp.int32),
        Residuals(far, far, far, far),
        multipliers,
        {name: jnp.full(RECORDED, jnp.nan, dtype) for name in ("cost", "residual", "damping", "length")},
    )
    return batched_with(state, now.value)


def _is_constrained(problem: OptimalControlProblem) -> bool:
    return bool(problem.constraints or problem.terminal_constraints)


def _turn(problem: OptimalControlProblem, ends: _Limits, state: _State, second_order: bool, together: bool) -> _State:
    """One iteration: solve the linear-quadratic problem, evaluate the residuals, and take a step under the new policy."""
    now, round_, pace, limits = state.now, state.round, state.pace, problem.torque_limits
    tau = now.trajectory.tau
    bounds = None if limits is None else (limits[:, 0][None] - tau, limits[:, 1][None] - tau)
    policy, descent, share = _policy(problem, state, bounds, second_order)
    found = violation(constraint_rows(problem, knots_of(problem, now.trajectory)), round_.penalty)
    residuals = _residuals(policy, bounds, now.gaps, found)
    near = jnp.maximum(residuals.stationarity, residuals.dynamics) <= round_.precision
    fine = near & pace.boxed
    status = _status(ends, state, residuals, found, fine)
    new, length, gap_weight = _step(problem, state, policy, descent, together)
    pace = _paced(pace, share, length, near, gap_weight)
    if _is_constrained(problem):  # once this round is solved, update the multipliers instead of taking a step
        penalty = updated(round_.penalty, found, round_.violated)
        again = now._replace(value=objective(problem, now.trajectory, penalty))
        later = _Round(penalty, found.largest, jnp.maximum(0.1 * round_.precision, ends.tolerance))
        new, round_ = choose(fine, (again, later), (new, round_))
    ended = status != RUNNING
    new, round_ = choose(ended, (now, state.round), (new, round_))
    recorded = {"cost": now.value, "residual": residuals.largest, "damping": state.pace.damping, "length": length}
    return _State(
        new,
        round_,
        pace,
        state.iteration + (~ended).astype(jnp.int32),
        status,
        residuals,
        _multipliers(policy, found, bounds),
        {name: state.history[name].at[state.iteration].set(x, mode="drop") for name, x in recorded.items()},
    )


def _policy(
    problem: OptimalControlProblem, state: _State, bounds: tuple[Array, Array] | None, second_order: bool
) -> tuple[LQPolicy, Descent, Array]:
    """The policy at the current iterate, its predicted decrease, and the factor applied to the second derivatives."""
    (trajectory, gaps, _), penalty, pace = state.now, state.round.penalty, state.pace
    lq = linearised(problem, trajectory, gaps, penalty)
    box = None if bounds is None else _widened(bounds, pace.boxed)
    damping = pace.damping * jnp.abs(lq.control_weights).mean()
    if not second_order:
        return *policy_and_descent(lq, box, damping), pace.share
    exact = linearised(problem, trajectory, gaps, penalty, adjoints(lq), lq.dynamics)
    solution, share = _convex_policy(lq.dense(), exact.dense(), box, damping, pace.share)
    return *solution, share


def _status(ends: _Limits, state: _State, residuals: Residuals, found: Violation, fine: Array) -> Array:
    """The status at the current iterate; RUNNING if the iterations continue."""
    solved = (residuals.largest <= ends.tolerance) & jnp.isfinite(state.now.value) & state.pace.boxed
    too_heavy = fine & (state.round.penalty.weight >= HEAVIEST) & (found.largest > ends.tolerance)
    hopeless = (state.pace.damping >= HEAVIEST_DAMPING) | ~jnp.isfinite(residuals.stationarity)
    last = state.iteration >= ends.iterations
    status = jnp.where(solved, Status.CONVERGED, RUNNING)
    for ended, why in ((too_heavy, Status.INFEASIBLE), (hopeless, Status.STALLED), (last, Status.MAX_ITERATIONS)):
        status = jnp.where((status == RUNNING) & ended, why, status)
    return status.astype(jnp.int32)


def _paced(pace: _Pace, share: Array, length: Array, near: Array, gap_weight: Array) -> _Pace:
    """Adapt damping, second-derivative factor and bounds to the accepted step length; length 0 means that none was accepted."""
    helped = length > 0
    worse, better = ~helped | (length < 0.1), length > 0.5
    growth = jnp.where(worse, jnp.maximum(FASTER, FASTER * pace.growth), pace.growth)
    growth = jnp.where(better, jnp.minimum(1 / FASTER, pace.growth / FASTER), growth)
    damping = jnp.where(worse, jnp.maximum(growth * pace.damping, LIGHTEST), pace.damping)
    damping = jnp.where(better, growth * damping, damping)
    damping = jnp.where(damping < LIGHTEST, 0, damping)
    growth, damping = choose(pace.boxed, (growth, damping), (pace.growth, pace.damping))
    grown = jnp.where(better & (share == pace.share), 2 * share, jnp.where(length < 0.25, share / 4, share))
    boxed = pace.boxed | near | ~helped | (length >= 1)
    damping, growth, share = (x.astype(length.dtype) for x in (damping, growth, jnp.clip(grown, SMALLEST_SHARE, 1)))
    return _Pace(damping, growth, share, gap_weight, boxed)


def _convex_policy(
    lq: LinearQuadratic, exact: LinearQuadratic, bounds, damping: Array, share: Array
) -> tuple[tuple[LQPolicy, Descent], Array]:
    """The policy with all second derivatives multiplied by a factor, and this factor.

    The factor is the largest of share, share / 4, ..., 0 for which the problem is convex.
    """

    def solved(share):
        return policy_and_descent(jax.tree.map(lambda a, b: a + share * (b - a), lq, exact), bounds, damping)

    def body(state):
        _, share, _ = state
        less = jnp.where(share < SMALLEST_SHARE, jnp.zeros_like(share), share / 4)
        return solved(share), less, share

    none = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(solved, share))
    fails = lambda state: ~(state[0][0].pivot > 0) & (state[2] > 0)
    solution, _, used = jax.lax.while_loop(fails, body, (none, share, jnp.ones_like(share)))
    return solution, used


def _step(
    problem: OptimalControlProblem, state: _State, policy: LQPolicy, descent: Descent, together: bool
) -> tuple[_Iterate, Array, Array]:
    """The iterate after a step, the step length (0 if no step is accepted), and the weight of the gaps in the merit."""
    now, slope, curved = state.now, descent.slope, jnp.maximum(descent.curvature, 0)
    wide = jnp.abs(now.gaps).sum()
    needed = jnp.where(wide > 0, (slope + 0.5 * curved) / (0.5 * jnp.where(wide > 0, wide, 1)), 0)
    weight = jnp.maximum(state.pace.gap_weight, needed)
    merit = now.value + weight * wide

    def attempt(length):
        trajectory = under_policy(problem, now.trajectory, policy, now.gaps, length)
        gaps = (1 - length) * now.gaps
        value = objective(problem, trajectory, state.round.penalty)
        return _Iterate(trajectory, gaps, value), value + weight * jnp.abs(gaps).sum()

    # the policy of a non-convex problem is meaningless; a slope of NaN rejects every step
    slope = jnp.where(policy.pivot > 0, slope - weight * wide, jnp.nan)
    return *first_that_helps(attempt, now, merit, slope, together, wide == 0), weight


def _widened(bounds: tuple[Array, Array], boxed: Array) -> tuple[Array, Array]:
    """The bounds of all controls if `boxed`; otherwise, only the bounds of fixed controls, and infinite ones for the rest."""
    lower, upper = bounds
    kept = boxed | (lower >= upper)
    return jnp.where(kept, lower, -jnp.inf), jnp.where(kept, upper, jnp.inf)


def _residuals(policy: LQPolicy, bounds, gaps, found) -> Residuals:
    slope = policy.slope
    if bounds is not None:
        slope = -jnp.clip(-slope, *bounds)
    return Residuals(jnp.abs(slope).max(), jnp.abs(gaps).max(), found.largest, found.complementarity)


def _multipliers(policy: LQPolicy, found, bounds) -> dict[str, Array]:
    held = policy.slope if bounds is not None else jnp.zeros_like(policy.slope)
    return {
        "dynamics": policy.adjoint,
        "constraints": found.multipliers[0],
        "terminal_constraints": found.multipliers[1],
        "torques": jnp.where(policy.free, jnp.zeros_like(held), held),
        "gains": policy.gains,
    }

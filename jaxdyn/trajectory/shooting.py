"""Optimal control by multiple shooting: differential dynamic programming with gaps, torque limits and constraints."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..dynamics.articulated_body import articulated_body
from ..dynamics.coordinates import base_gravity
from ..dynamics.engine.lanes import in_groups, loop_by_batch, sparse_jvp
from ..dynamics.engine.matrices import LONGEST_SIDE, matrix_times
from ..dynamics.friction import resistive_force_by_lane
from ..errors import TrajectoryError
from ..model.chain import is_ordinary
from ..model.compiled import compiled
from ..model.configuration import difference, integrate
from ..simulation.rollouts import march
from .collocation import KnotLinearisation, Part, StagedProgram
from .lq import (
    EULER,
    HEAVIEST,
    Descent,
    LinearQuadratic,
    LQPolicy,
    Penalty,
    Violation,
    adjoints,
    binding,
    constraint_rows,
    dynamics_jacobian,
    end_objective,
    gaps_of,
    linear_steps,
    linearised,
    moved,
    no_penalty,
    objective,
    policy_and_descent,
    running_objective,
    state_after,
    updated,
    violation,
)
from .primal_dual import solve_conditions
from .problem import (
    RUNNING,
    Guess,
    OptimalControlProblem,
    Residuals,
    Solution,
    Status,
    Trajectory,
    advance,
    at,
    batched_with,
    begun,
    choose,
    constraint_values,
    knot_times,
    knots_of,
    limited_torque,
    on_forces,
    stationary_guess,
    status_of_problem,
    total_cost,
    with_resting_torque,
)

RECORDED = 200  # iterations in the history: its length must not depend on `max_iterations`, which is traced
# problems per group of a batch on the CPU; more would wait for the slowest
GROUP = 16

# The damping of Q_uu, relative to the mean of R, changes as in Tassa, Erez & Todorov (2012): by a factor that itself grows by
# FASTER with every failure in a row, from LIGHTEST on; below LIGHTEST, it is zero, so that convergence is quadratic.
FASTER = 3.0
LIGHTEST, HEAVIEST_DAMPING = 1e-2, 1e8
# The factor of second derivatives: below the smallest, they are left out, and the first lets Gauss-Newton steps begin.
SMALLEST_SHARE, FIRST_SHARE = 1 / 64, 1 / 16

LENGTHS = 10  # step lengths tried: down to 1/512, below which damping helps more
ENOUGH = 1e-4  # required fraction of the decrease predicted by the slope (Armijo; Nocedal & Wright 2006, sec. 3.1)
# the longest step length that is tried, and the shortest one above 1 worth another simulation
LONGEST, WORTH = 8.0, 1.5

# least weight of active constraints in the Hessian for derivatives: it is then positive at a strict minimum
HEAVY = 1e4


class _Start(NamedTuple):
    trajectory: Trajectory
    penalty: Penalty
    boxed: Array  # True if the policy respects the torque limits from the first iteration on


class _Ends(NamedTuple):
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

    Torque limits are bounds in the linear-quadratic problem (Tassa, Mansard & Todorov 2014). Unless the guess is an earlier
    solution, the first iterations only clip the torques in the simulation, usually until the first full step is accepted. Other
    constraints are handled by an augmented Lagrangian (Hestenes 1969; Powell 1969). The solution is differentiable with respect
    to all floating-point leaves of the problem. Cost: O(N (n^3 + nv^3)) per iteration for n joints.

    Args:
        problem: problem to solve; a batch under `jax.vmap` runs until its slowest problem has finished.
        guess: a trajectory, which need not be feasible, or an earlier solution, usually shifted by `shift_guess`; None: the
            robot at rest.
        max_iterations: maximum number of Riccati recursions, including all rounds of multipliers; a new number needs no
            recompilation.
        tolerance: tolerance for the Karush-Kuhn-Tucker residual; None: 1e-6 in float64, 1e-3 in float32.
        second_order: use the Hessian of the Lagrangian, with second derivatives scaled down while the problem would not be
            convex: near the solution, fewer but more expensive iterations than with Gauss-Newton's.
        penalty: initial weight of the augmented Lagrangian.
        together: try all step lengths in parallel, which is faster where latency dominates, as for a few problems on a GPU.
            Step lengths above 1 are then fixed, so that the iterations may differ.

    Returns:
        The solution, or the last iterate. The history contains the first 200 iterations. Besides those of all solvers, the
        multipliers are "torques", the derivatives of the cost by torques at a limit, and "gains", the feedback gains of the
        policy near the solution, (N, nv, 2 nv), or (N, nv, 3 nv) with a cost or constraint of the torque rate.

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
    ends = _Ends(
        jnp.asarray(max_iterations, jnp.int32),
        jnp.asarray((1e-6 if dtype == jnp.float64 else 1e-3) if tolerance is None else tolerance, dtype),
    )
    return _solve(problem, start, ends, second_order, together)


@compiled
def _solve(problem: OptimalControlProblem, start: _Start, ends: _Ends, second_order: bool, together: bool) -> Solution:
    problem = with_resting_torque(problem)
    # differentiate the solution, not the iterations
    bare, start = jax.lax.stop_gradient((problem, start))
    solve = in_groups(functools.partial(_iterate, second_order=second_order, together=together), GROUP)
    state = jax.lax.stop_gradient(solve(bare, start, ends))
    duals, held = state.multipliers["dynamics"], state.multipliers["torques"]
    found = state.multipliers["constraints"], state.multipliers["terminal_constraints"]
    solved = Solved(state.now.trajectory, state.round.penalty._replace(multipliers=found), duals, -jnp.sign(held))
    trajectory = differentiable(problem, solved)
    return Solution(
        trajectory,
        total_cost(problem, trajectory),
        _named(bare, state.multipliers),
        state.status,
        state.residuals,
        state.iteration,
        state.history,
    )


def _named(problem: OptimalControlProblem, multipliers: dict[str, Array]) -> dict[str, Array]:
    """The multipliers with those of equalities and inequalities apart, under the names that all solvers use."""
    named = {name: x for name, x in multipliers.items() if "constraints" not in name}
    for prefix, constraints in (("", problem.constraints), ("terminal_", problem.terminal_constraints)):
        count = len(on_forces(problem, constraints)[0])
        equal, below = jnp.split(multipliers[prefix + "constraints"], [count], -1)
        named |= {prefix + "equality": equal, prefix + "inequality": below}
    return named


@compiled
def _first(problem: OptimalControlProblem, guess: Trajectory | Guess | None, weight: float | Array) -> _Start:
    """The initial iterate: the guess, with the problem's initial state and with torques clipped to the limits."""
    problem = with_resting_torque(problem)
    known = guess.multipliers if isinstance(guess, Guess) else None
    trajectory = guess.trajectory if isinstance(guess, Guess) else stationary_guess(problem) if guess is None else guess
    if trajectory.tau.shape[0] != problem.steps:
        raise TrajectoryError(f"the guess has {trajectory.tau.shape[0]} steps, but the problem has {problem.steps}")
    dtype = jnp.result_type(problem.chain.dtype, problem.q0, trajectory.q)
    tau = jax.vmap(functools.partial(limited_torque, problem))(trajectory.tau)
    q, v = trajectory.q.at[0].set(problem.q0), trajectory.v.at[0].set(problem.v0)
    trajectory = Trajectory(*(x.astype(dtype) for x in (knot_times(problem, dtype), q, v, tau)))
    penalty = no_penalty(problem, trajectory, weight)
    if known is not None:
        rows = [[known[prefix + kind] for kind in ("equality", "inequality")] for prefix in ("", "terminal_")]
        penalty = penalty._replace(multipliers=tuple(jnp.concatenate(pair, -1) for pair in rows))
    return _Start(trajectory, penalty, jnp.asarray(known is not None or problem.torque_limits is None))


def _iterate(problem: OptimalControlProblem, start: _Start, ends: _Ends, second_order: bool, together: bool) -> _State:
    """Iterate, and return the final state."""
    turn = lambda state: _turn(problem, ends, state, second_order, together)
    return jax.lax.while_loop(lambda state: state.status == RUNNING, turn, _before(problem, start, ends.tolerance))


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


def _turn(problem: OptimalControlProblem, ends: _Ends, state: _State, second_order: bool, together: bool) -> _State:
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
    lq = lq.dense()
    exact = linearised(problem, trajectory, gaps, penalty, adjoints(lq), lq.dynamics).dense()
    solution, share = _convex_policy(lq, exact, box, damping, pace.share)
    return *solution, share


def _status(ends: _Ends, state: _State, residuals: Residuals, found: Violation, fine: Array) -> Array:
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
    """The policy with second derivatives times the largest of share, share / 4, ..., 0 for which it is convex; that factor."""

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
    return *line_search(attempt, now, merit, slope, together, wide == 0), weight


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


class _Search(NamedTuple):
    tries: Array
    length: Array  # next step length to try
    result: Any  # best result so far
    merit: Array
    chosen: Array  # step length of the best result; 0 until a step is accepted
    done: Array


def line_search(
    attempt: Callable[[Array], tuple[Any, Array]],
    nothing: Any,
    merit: Float[Array, ""],
    slope: Float[Array, ""],
    together: bool,
    longer: Array,
) -> tuple[Any, Float[Array, ""]]:
    """(result, length) of the first of 1, 1/2, ... that lowers the merit enough (Armijo); length 0 if none does.

    If `longer`, step lengths above 1 are tried as well, if 1 helps: the minimum of a parabola through the merits, or, if
    `together`, 2, 4 and 8. The two searches can therefore take different steps.
    """
    dtype = merit.dtype
    rounding = 10 * jnp.finfo(dtype).eps * jnp.abs(merit)
    helps = lambda new, length: new <= merit + ENOUGH * length * jnp.minimum(slope, 0) + rounding
    if together:
        lengths = jnp.concatenate([0.5 ** jnp.arange(LENGTHS, dtype=dtype), jnp.asarray([2, 4, LONGEST], dtype)])
        results, merits = jax.vmap(attempt)(lengths)
        good = helps(merits, lengths) & (longer | (lengths <= 1))
        first = jnp.argmax(good)
        best = jnp.argmin(jnp.where(good & (lengths >= 1), merits, jnp.inf))
        chosen = jnp.where(good[0], best, first)
        some = good.any()
        result = jax.tree.map(lambda new, old: jnp.where(some, new[chosen], old), results, nothing)
        return result, jnp.where(some, lengths[chosen], jnp.zeros((), dtype))

    def body(state: _Search) -> _Search:
        result, new = attempt(state.length)
        one, whole = jnp.ones((), dtype), state.length == 1
        found = state.chosen > 0
        better = helps(new, state.length) & (~found | (new < state.merit))
        curvature = 2 * (new - merit - slope)
        fit = jnp.where(curvature * LONGEST > -slope, -slope / jnp.where(curvature == 0, one, curvature), LONGEST)
        further = whole & better & longer & (fit > WORTH) & (slope < 0)
        pick = lambda x, y: jax.tree.map(lambda a, b: jnp.where(better, a, b), x, y)
        return _Search(
            state.tries + 1,
            jnp.where(further, fit, 0.5 * state.length),
            pick(result, state.result),
            pick(new, state.merit),
            jnp.where(better, state.length, state.chosen),
            found | (better & ~further),
        )

    zero = jnp.zeros((), dtype)
    start = _Search(jnp.zeros((), jnp.int32), zero + 1, nothing, merit, zero, jnp.zeros((), bool))
    start = batched_with(start, merit)
    state = jax.lax.while_loop(lambda s: (s.tries < LENGTHS) & ~s.done, body, start)
    return state.result, state.chosen


def under_policy(
    problem: OptimalControlProblem,
    trajectory: Trajectory,
    policy: LQPolicy,
    gaps: Float[Array, "steps n"],
    length: float | Float[Array, ""],
) -> Trajectory:
    """Simulate under the torques tau + length k + K (x - x_nominal), clipped to limits; scale all gaps by 1 - length."""
    length = jnp.asarray(length, trajectory.q.dtype)
    left = (1 - length) * gaps
    chain, n = problem.chain, problem.chain.n
    # one kernel for all steps reduces the time of 100 steps of a Panda from 0.80 to 0.63 ms (16 problems: 2.7 to 2.3 ms)
    simple = (
        is_ordinary(chain)
        and chain.transmission is None
        and problem.contacts is None
        and problem.method in EULER
        and not problem.has_torque_rate
        and n <= LONGEST_SIDE
    )
    start = problem.q0.astype(left.dtype), problem.v0.astype(left.dtype)
    turns = (trajectory.q[:-1], trajectory.v[:-1], trajectory.tau, policy.gains, length * policy.feedforward, left)
    if not simple:
        return Trajectory(trajectory.t, *_general(problem, start, turns))
    step = functools.partial(_euler_step, problem.method)
    constants = chain, base_gravity(chain), problem.dt, problem.torque_limits
    size = max(100 + 2 * n, 4 * n**2) if n > 1 else None
    last, (q, v, tau) = loop_by_batch(step, start, constants, turns, size)
    q, v = (jnp.concatenate([rows, end[None]]) for rows, end in zip((q, v), last, strict=True))
    return Trajectory(trajectory.t, q, v, tau)


def _euler_step(method: str, state: tuple, constants: tuple, x: tuple) -> tuple:
    """An Euler step of `under_policy` for a chain of ordinary joints: v' = v + dt qdd, and q' = q + dt v' or q + dt v."""
    chain, gravity, dt, limits = constants
    (q, v), (q_before, v_before, tau, gains, feedforward, left) = state, x
    tau = tau + feedforward + matrix_times(gains, jnp.concatenate([q - q_before, v - v_before]))
    if limits is not None:
        tau = jnp.clip(tau, limits[:, 0], limits[:, 1])
    after = v + dt[None] * articulated_body(chain, q, v, tau - resistive_force_by_lane(chain, q, v), gravity, None)
    rate = after if method == EULER[0] else v
    return (q + dt[None] * rate - left[: chain.n], after - left[chain.n :]), (q, v, tau)


def _general(
    problem: OptimalControlProblem, start: tuple[Array, Array], turns: tuple
) -> tuple[Float[Array, "knots nq"], Float[Array, "knots nv"], Float[Array, "steps nv"]]:
    """Positions, velocities and torques of `under_policy`, for any chain and method."""
    chain, nv = problem.chain, problem.chain.nv

    def move(state, k, x):
        (q, v, near, _, changed), (q_before, v_before, tau_before, gains, feedforward, left) = state, x
        away = [difference(chain, q_before, q), v - v_before]
        away = jnp.concatenate([*away, changed] if problem.has_torque_rate else away)
        tau = limited_torque(problem, tau_before + feedforward + gains @ away)
        q_after, v_after, near = advance(problem, q, v, tau, near)
        return integrate(chain, q_after, -left[:nv]), v_after - left[nv : 2 * nv], near, tau, tau - tau_before

    still = jnp.zeros_like(start[1])
    q, v, _, tau, _ = march(move, (*begun(problem, *start), still, still), turns, len(turns[0]))
    return q, v, tau[1:]


class Solved(NamedTuple):
    """The result of a solver, treated as constant; `side` is -1 or 1 for a torque at its lower or upper limit, else 0."""

    trajectory: Trajectory
    penalty: Penalty
    duals: Array
    side: Array


def differentiable(problem: OptimalControlProblem, solved: Solved) -> Trajectory:
    """The solution's trajectory, differentiable with respect to the problem's floating-point leaves."""
    leaves, rest = eqx.partition(problem, eqx.is_inexact_array)

    @jax.custom_jvp
    def found(leaves: Any, solved: Solved) -> Trajectory:
        del leaves
        return solved.trajectory

    def rule(primals, tangents):
        leaves, solved = primals
        return solved.trajectory, _tangent(leaves, rest, solved, tangents[0])

    found.defjvp(rule, symbolic_zeros=True)
    return found(leaves, jax.lax.stop_gradient(solved))


class _Conditions(NamedTuple):
    """Quantities that vanish at a solution: Lagrangian gradients (at knots, at the end), gaps, and active constraints."""

    running: Array
    end: Array
    gaps: Array
    constraints: tuple[Array, Array]


def _conditions(problem: OptimalControlProblem, solved: Solved) -> _Conditions:
    x, penalty, duals = _held(problem, solved), solved.penalty, solved.duals
    knots = knots_of(problem, x)
    first, last = at(knots, slice(None, -1)), at(knots, -1)
    parts = (jnp.zeros_like(x.v[0]),) * (4 if problem.has_torque_rate else 3)

    def gradient(knot, multiplier, counted, dual):
        along = jax.grad(
            lambda z: running_objective(problem, moved(problem, knot, z), multiplier, penalty.weight, counted)
        )
        return jnp.concatenate(along(parts)) + dual @ dynamics_jacobian(problem, knot.q, knot.v, knot.tau)

    running = jax.vmap(gradient)(first, penalty.multipliers[0][:-1], penalty.counted[:-1], duals[1:])
    end = jax.grad(lambda z: end_objective(problem, moved(problem, last, (*z, parts[-1])), penalty))(parts[:-1])
    gaps = jax.vmap(lambda knot, q, v: state_after(problem, (q, v), knot))(first, x.q[1:], x.v[1:])
    if problem.has_torque_rate:
        gaps = gaps.at[:, 2 * x.v.shape[1] :].set(0)
    values = constraint_rows(problem, knots)
    return _Conditions(running, jnp.concatenate(end), gaps, (values.running, values.terminal))


def _held(problem: OptimalControlProblem, solved: Solved) -> Trajectory:
    """The trajectory, in which times, initial state and torques at limits are differentiable functions of the problem."""
    x, limits, side = solved.trajectory, problem.torque_limits, solved.side
    tau = x.tau
    if limits is not None:
        tau = jnp.where(side < 0, limits[None, :, 0], jnp.where(side > 0, limits[None, :, 1], tau)).astype(tau.dtype)
    return Trajectory(knot_times(problem, x.t.dtype), x.q.at[0].set(problem.q0), x.v.at[0].set(problem.v0), tau)


def _tangent(leaves, rest, solved: Solved, change) -> Trajectory:
    problem = eqx.combine(leaves, rest)
    heavy = jnp.maximum(solved.penalty.weight, HEAVY)
    solved = solved._replace(penalty=solved.penalty._replace(weight=heavy))
    both = lambda leaves: (_conditions(eqx.combine(leaves, rest), solved), _held(eqx.combine(leaves, rest), solved))
    _, (off, held) = sparse_jvp(both, (leaves,), (change,))
    dx, du = _cancelling_changes(problem, solved, off)
    nv = solved.trajectory.v.shape[1]
    dq, dv = dx[:, :nv], dx[:, nv : 2 * nv]
    moving = lambda q, rate: jax.jvp(lambda d: integrate(problem.chain, q, d), (jnp.zeros_like(rate),), (rate,))[1]
    dq = jax.vmap(moving)(solved.trajectory.q, dq)
    return Trajectory(held.t, held.q + dq, held.v + dv, held.tau + du)


def _cancelling_changes(problem: OptimalControlProblem, solved: Solved, off: _Conditions) -> tuple[Array, Array]:
    """The changes (dx at all knots, du) of the solution that cancel the residuals `off` of the optimality conditions.

    They solve the linear-quadratic problem around the solution, with its active constraints as equalities, stage by stage.
    """
    x, penalty, bare = jax.lax.stop_gradient((solved.trajectory, solved.penalty, problem))
    # compute the accelerations from the torques; velocity differences would be accurate only to the solver's tolerance
    gaps = jnp.zeros_like(off.gaps)
    lq = linearised(bare, x, gaps, penalty, solved.duals, linear_steps(bare, x, gaps)).dense()
    knots, n, m = problem.steps + 1, lq.states, lq.controls
    jacobians, active = _constraint_jacobians(bare, x), binding(constraint_rows(bare, knots_of(bare, x)), penalty)
    running, terminal = (jnp.where(a[..., None], j, 0) for a, j in zip(active, jacobians, strict=True))
    # the unknowns are (dx, du) at every knot; the initial state and torques at limits are fixed, and the last du is unused
    padded = lambda rows: jnp.pad(rows, [(0, knots - len(rows)), *[(0, 0)] * (rows.ndim - 1)])
    free = (
        padded(jnp.pad(solved.side == 0, ((0, 0), (n, 0)), constant_values=True))
        .at[-1, :n]
        .set(True)
        .at[0, :n]
        .set(False)
    )
    free = free.astype(gaps.dtype).reshape(-1)
    hessian = padded(lq.cost[..., :-1]).at[-1, :n, :n].set(lq.end[:, :n])
    nothing = jnp.zeros((knots, 0, n + m), gaps.dtype)
    after = jnp.broadcast_to(-jnp.eye(n, n + m, dtype=gaps.dtype), (knots, n, n + m))
    zero = jnp.zeros_like(hessian[:, 0])
    at_knots = Part(zero, running, nothing, padded(lq.dynamics[..., :-1]), after)
    at_end = Part(zero[:1], terminal[None], nothing[:1], nothing[:1], nothing[:1])
    wrong = (
        padded(off.running).at[-1, :n].set(off.end).reshape(-1) * free,
        jnp.concatenate(
            [
                off.gaps.reshape(-1),
                *(jnp.where(a, v, 0).reshape(-1) for a, v in zip(active, off.constraints, strict=True)),
            ]
        ),
    )
    sizes = n, running.shape[1], 0
    program = StagedProgram(jnp.arange(knots), nothing[0], None, None, None, sizes)
    values = jnp.zeros((), gaps.dtype), jnp.zeros_like(wrong[1]), zero[0, :0]
    at = KnotLinearisation(values, zero.reshape(-1), at_knots, at_end, hessian, jnp.abs(hessian).max(), free)
    z, _ = solve_conditions(program, at, 1 - free, zero[0, :0], jax.tree.map(jnp.negative, wrong))
    z = z.reshape(knots, -1)
    return z[:, :n], z[:-1, n:]


def _constraint_jacobians(problem: OptimalControlProblem, x: Trajectory) -> tuple[Array, Array]:
    """Jacobians of all constraints with respect to the displacements of their knots, at the knots and at the end."""
    knots = knots_of(problem, x)
    parts = (jnp.zeros_like(x.v[0]),) * (4 if problem.has_torque_rate else 3)

    def jacobian(constraints, knot):
        values = lambda *z: jnp.concatenate(constraint_values(constraints, problem.chain, moved(problem, knot, z)))
        return jnp.concatenate([jax.jacfwd(values, argnums=i)(*parts) for i in range(len(parts))], -1)

    running = jax.vmap(functools.partial(jacobian, problem.constraints))(knots)
    return running, jacobian(problem.terminal_constraints, at(knots, -1))

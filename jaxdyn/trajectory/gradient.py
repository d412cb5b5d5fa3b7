"""Optimal control by gradient descent through the simulation, with the torques as unknowns and an optimiser from optax."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..errors import TrajectoryError
from .augmented_lagrangian import (
    HEAVIEST,
    Penalty,
    Values,
    Violation,
    constraint_rows,
    no_penalty,
    penalty_cost,
    updated,
    violation,
)
from .policy import begin, descend, quasi_newton, supported
from .problem import (
    OptimalControlProblem,
    knots_of,
    simulate_controls,
    stationary_guess,
    status_of_problem,
    total_cost,
)
from .solution import Residuals, Solution, Status, Trajectory, all_finite, choose

_ROUND = 40  # maximum number of iterations between updates of the multipliers
_SLOW = 12  # a round ends after this number of consecutive iterations without progress
_BACK = 20  # maximum number of times a non-finite iterate is replaced by the best one
_GROWTH = 4.0  # growth factor of the penalty weight


class _Controls(NamedTuple):
    """Torques and, if it is free, the duration. The same type holds their unconstrained substitutes and their limits."""

    tau: Float[Array, "steps nv"]
    duration: Float[Array, ""] | None


class _Task(NamedTuple):
    """Data shared by all iterations; `bounds` contains the lower and upper limits of the unknowns."""

    problem: OptimalControlProblem
    bounds: tuple[_Controls, _Controls]
    optimiser: Any
    tolerance: float
    checkpoint: int | None


class _Iterate(NamedTuple):
    """An iterate and the quantities evaluated at it; `merit` is the augmented Lagrangian."""

    z: _Controls
    merit: Float[Array, ""]
    cost: Float[Array, ""]
    residuals: Residuals
    trajectory: Trajectory


class _State(NamedTuple):
    z: _Controls
    optimiser: Any
    penalty: Penalty
    best: _Iterate
    value: Float[Array, ""]
    scale: Float[Array, ""]
    violation: Float[Array, ""]
    slow: Int[Array, ""]
    inner: Int[Array, ""]
    returns: Int[Array, ""]
    k: Int[Array, ""]
    status: Int[Array, ""]
    history: dict[str, Array]


def solve_by_gradient(
    problem: OptimalControlProblem,
    guess: Trajectory | None = None,
    *,
    optimiser: Any = None,
    iterations: int = 500,
    tolerance: float = 1e-6,
    penalty: float = 10.0,
    checkpoint: int | None = 1,
) -> Solution:
    """Minimise the cost by gradient descent on the torques, differentiating through the simulation.

    This is the simplest of the solvers: it requires neither a linearisation nor second derivatives, and handles any motion that
    `step` can simulate and JAX can differentiate. However, it takes hundreds of iterations where `solve_by_shooting` takes
    tens. Every iterate satisfies the dynamics exactly. `jax.jit`, `jax.vmap` over problems, and float32 are supported. A batch
    runs until its slowest problem has finished.

    Torque limits are enforced by a change of variables. A torque with two limits is written as tau = c + h tanh(u / h), where u
    is the unknown, c is the centre of the range, and h is half its width. A torque with only a lower limit is written as tau =
    lower + softplus(u - lower); one with only an upper limit is treated in the same way. Every iterate therefore satisfies the
    limits, but torques converge slowly towards an active limit.

    Equalities c = 0 and inequalities d <= 0 are handled by an augmented Lagrangian with multipliers l and m >= 0 and penalty
    weight w:

        cost + l . c + w/2 |c|^2 + (|max(0, m + w d)|^2 - |m|^2) / (2 w).

    The augmented Lagrangian is minimised in rounds. After each round, the multipliers of equalities become l + w c, those of
    inequalities become max(0, m + w d), and the weight w is multiplied by 4 if the violation is more than a quarter of its
    previous value. State constraints at the first knot are ignored.

    Args:
        guess: trajectory with the initial torques and, if the duration is free, the initial duration; None: the torques that
            hold the robot at its initial position.
        optimiser: any `optax.GradientTransformation`, with or without a line search; None: L-BFGS with a backtracking
            line search.
        iterations: maximum number of iterations.
        tolerance: tolerance for the Karush-Kuhn-Tucker residual; values below about 1e-3 require float64.
        penalty: initial weight w.
        checkpoint: number of checkpoint levels of the backward pass, as in `rollout`.

    Returns:
        The solution. Its multipliers are "equality" and "inequality", each a pair of arrays: one for the constraints at the
        knots, one for the terminal constraints. The history contains "cost" and "residual".

    Raises:
        TrajectoryError: the guess and the problem differ in the number of steps, or `iterations` is less than 1.

    Cost: one forward and one backward pass through the simulation per iteration. The default optimiser adds one forward pass
    per trial of its line search.
    Source: Nocedal & Wright 2006, Numerical Optimization, secs. 7.2 (L-BFGS) and 17.3 (augmented Lagrangian).
    """
    if iterations < 1:
        raise TrajectoryError(f"iterations={iterations}; it must be at least 1")
    start = stationary_guess(problem) if guess is None else guess
    if start.tau.shape != (problem.steps, problem.chain.nv):
        raise TrajectoryError(
            f"the guess has torques of shape {start.tau.shape}, but the problem needs {(problem.steps, problem.chain.nv)}"
        )
    descent = quasi_newton() if optimiser is None else supported(optimiser)
    task = _Task(problem, _bounds(problem), descent, tolerance, checkpoint)
    start = jax.tree.map(lambda x: jnp.asarray(x, problem.dtype), start)
    state = jax.lax.while_loop(
        lambda s: (s.status == Status.MAX_ITERATIONS) & (s.k < iterations),
        lambda s: _iterate(task, s),
        _first(task, start, penalty, iterations),
    )
    best = state.best
    multipliers = _multipliers(constraint_rows(problem, knots_of(problem, best.trajectory)), state.penalty)
    return Solution(best.trajectory, best.cost, multipliers, state.status, best.residuals, state.k, state.history)


def _multipliers(values: Values, penalty: Penalty) -> dict[str, tuple]:
    """The updated multipliers of equalities and inequalities, each as a pair (at the knots, at the end)."""
    rows = violation(values, penalty).multipliers
    equal, below = zip(
        *(jnp.split(x, [count], -1) for x, count in zip(rows, values.equalities, strict=True)), strict=True
    )
    return {"equality": equal, "inequality": below}


def _first(task: _Task, start: Trajectory, weight: float, iterations: int) -> _State:
    """The state before the first iteration."""
    problem, dtype = task.problem, start.q.dtype
    duration = None if problem.duration_limits is None else start.t[-1] - start.t[0]
    z = jax.tree.map(_freed, _Controls(start.tau, duration), *task.bounds)
    far, none, sound = jnp.asarray(jnp.inf, dtype), jnp.zeros((), jnp.int32), status_of_problem(problem)
    return _State(
        z=z,
        optimiser=begin(task.optimiser, z),
        penalty=no_penalty(problem, start, weight),
        best=_Iterate(z, far, far, Residuals(far, far, far, far), start),
        value=far,
        scale=jnp.ones((), dtype),
        violation=far,
        slow=none,
        inner=none,
        returns=none,
        k=none,
        status=jnp.where(sound == Status.CONVERGED, Status.MAX_ITERATIONS, sound).astype(jnp.int32),
        history={name: jnp.full(iterations, jnp.nan, dtype) for name in ("cost", "residual")},
    )


def _iterate(task: _Task, s: _State) -> _State:
    """One iteration: evaluate the iterate, take a step, and update the multipliers at the end of a round."""
    here, slope = _measured(task, s.z, s.penalty)
    finite = jnp.isfinite(here.merit) & all_finite(slope)
    done = finite & (here.residuals.largest <= task.tolerance)
    best = choose(done | (finite & ((s.inner == 0) | (here.merit < s.best.merit))), here, s.best)
    progress = here.merit < s.value - 1e-9 * jnp.maximum(jnp.abs(s.value), 1e-9)
    numbers = {"cost": here.cost, "residual": here.residuals.largest}

    # take a descent step; if this iterate is not finite, return to the best one and halve the steps
    there = lambda z: _merit(task, jax.tree.map(_within, z, *task.bounds), s.penalty)[0]
    moved = descend(task.optimiser, s.z, s.optimiser, here.merit, slope, there, s.scale)
    back = best.z, begin(task.optimiser, best.z)
    z, optimiser = choose(finite, moved, back)
    after = s._replace(
        z=z,
        optimiser=optimiser,
        best=best,
        value=jnp.where(finite, here.merit, s.value),
        scale=jnp.where(finite, s.scale, 0.5 * s.scale),
        slow=jnp.where(progress | (s.inner == 0), 0, s.slow + 1),
        inner=s.inner + 1,
        returns=s.returns + (~finite).astype(jnp.int32),
        k=s.k + 1,
        history={name: column.at[s.k].set(numbers[name]) for name, column in s.history.items()},
    )
    stalled = after.slow >= _SLOW
    if task.problem.constraints or task.problem.terminal_constraints:
        after, stalled = _next_round(task, after, here.residuals, finite & ~done, back)
    infeasible = here.residuals.constraints > jnp.sqrt(task.tolerance)
    status = jnp.where(stalled, jnp.where(infeasible, Status.INFEASIBLE, Status.STALLED), Status.MAX_ITERATIONS)
    status = jnp.where(done, Status.CONVERGED, status)
    status = jnp.where(after.returns > _BACK, Status.NOT_FINITE, status).astype(jnp.int32)
    return after._replace(status=status)


def _next_round(
    task: _Task, s: _State, residuals: Residuals, goes_on: Array, back: tuple[_Controls, Any]
) -> tuple[_State, Bool[Array, ""]]:
    """At the end of a round, update the multipliers and restart from the best iterate.

    Also return True if a round has ended and the penalty weight has reached its maximum.
    """
    calm = residuals.stationarity <= jnp.maximum(task.tolerance, 0.1 * residuals.constraints)
    turn = goes_on & (calm | (s.slow >= _SLOW) | (s.inner > _ROUND))
    found = violation(constraint_rows(task.problem, knots_of(task.problem, s.best.trajectory)), s.penalty)
    again = s._replace(
        z=back[0],
        optimiser=back[1],
        penalty=updated(s.penalty, found, s.violation, _GROWTH),
        violation=found.largest,
        slow=jnp.zeros_like(s.slow),
        inner=jnp.zeros_like(s.inner),
    )
    s = choose(turn, again, s)
    return s, turn & (s.penalty.weight >= HEAVIEST)


def _measured(task: _Task, z: _Controls, penalty: Penalty) -> tuple[_Iterate, _Controls]:
    """Evaluate an iterate and the gradient of the augmented Lagrangian with respect to its unknowns."""
    controls, pull = jax.vjp(lambda z: jax.tree.map(_within, z, *task.bounds), z)
    by_controls = jax.value_and_grad(lambda controls: _merit(task, controls, penalty), has_aux=True)
    (merit, (cost, motion, found)), slope = by_controls(controls)
    return _Iterate(z, merit, cost, _residuals(task.bounds, controls, slope, found), motion), pull(slope)[0]


def _merit(task: _Task, controls: _Controls, penalty: Penalty) -> tuple[Array, tuple[Array, Trajectory, Violation]]:
    """Simulate the controls; return the augmented Lagrangian and (cost, trajectory, constraint violation)."""
    problem = task.problem
    if controls.duration is not None:
        problem = dataclasses.replace(problem, dt=controls.duration / problem.steps)
    trajectory = simulate_controls(problem, controls.tau, task.checkpoint)
    cost, values = total_cost(problem, trajectory), constraint_rows(problem, knots_of(problem, trajectory))
    return cost + penalty_cost(values, penalty), (cost, trajectory, violation(values, penalty))


def _residuals(
    bounds: tuple[_Controls, _Controls], controls: _Controls, slope: _Controls, found: Violation
) -> Residuals:
    """Residuals of the Karush-Kuhn-Tucker conditions.

    The gradient of the augmented Lagrangian equals the gradient of the Lagrangian at the updated multipliers.
    """
    off = lambda x, g, lower, upper: jnp.abs(x - jnp.clip(x - g, lower, upper)).max()
    moves = jax.tree.leaves(jax.tree.map(off, controls, slope, *bounds))
    return Residuals(jnp.stack(moves).max(), jnp.zeros_like(found.largest), found.largest, found.complementarity)


def _bounds(problem: OptimalControlProblem) -> tuple[_Controls, _Controls]:
    """Lower and upper limits of the torques, (1, nv), and of the duration."""
    limits, span = problem.torque_limits, problem.duration_limits
    inf = jnp.full(problem.chain.nv, jnp.inf, problem.dtype)
    limits = jnp.stack([-inf, inf], axis=1) if limits is None else limits.astype(problem.dtype)
    lower, upper = (
        _Controls(limits[None, :, side], None if span is None else span[side].astype(problem.dtype)) for side in (0, 1)
    )
    return lower, upper


def _within(u: Array, lower: Array, upper: Array) -> Array:
    low, high, has_low, has_high = _sides(lower, upper)
    half = (high - low) / 2
    both = low + half + half * jnp.tanh(u / jnp.where(half > 0, half, 1.0))
    one = jnp.where(has_low, low + jax.nn.softplus(u - low), high - jax.nn.softplus(high - u))
    return jnp.where(has_low & has_high, both, jnp.where(has_low | has_high, one, u))


def _freed(x: Array, lower: Array, upper: Array) -> Array:
    """The inverse of `_within`; x is first moved slightly inside its limits, where the gradient does not vanish."""
    low, high, has_low, has_high = _sides(lower, upper)
    half = jnp.where(high > low, (high - low) / 2, 1.0)
    both = half * jnp.arctanh(jnp.clip((x - (low + high) / 2) / half, -0.95, 0.95))
    inverse = lambda y: y + jnp.log(-jnp.expm1(-y))  # of softplus
    above = low + inverse(jnp.maximum(x - low, 0.05))
    below = high - inverse(jnp.maximum(high - x, 0.05))
    one = jnp.where(has_low, above, below)
    return jnp.where(has_low & has_high, both, jnp.where(has_low | has_high, one, x))


def _sides(lower: Array, upper: Array) -> tuple[Array, Array, Bool[Array, "*shape"], Bool[Array, "*shape"]]:
    """The lower and upper limits, with infinite ones replaced by zero, and masks of the finite ones."""
    has_low, has_high = jnp.isfinite(lower), jnp.isfinite(upper)
    return jnp.where(has_low, lower, 0.0), jnp.where(has_high, upper, 0.0), has_low, has_high

"""Optimal control by gradient descent through the simulation: torques are the unknowns, optax does the descending."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ...errors import TrajectoryError
from ...simulation._march import march
from .._problem._knot import Knot
from .._problem._problem import (
    OptimalControlProblem,
    advance,
    constraint_values,
    knots_of,
    stationary_guess,
    status_of_problem,
    total_cost,
)
from .._problem._solution import Residuals, Solution, Status, Trajectory
from ._optimiser import all_finite, begin, choose, descend, quasi_newton, supported

_ROUND = 40  # iterations between updates of the multipliers, at most
_SLOW = 12  # iterations in a row without progress that end a round
_BACK = 20  # returns from iterates that are not finite


class _Controls(NamedTuple):
    """The unknowns, or what the descent sees in their place; the duration where it is free."""

    tau: Float[Array, "steps nv"]
    duration: Float[Array, ""] | None


class _Multipliers(NamedTuple):
    equal: tuple[Array, Array]  # at the knots, at the end
    below: tuple[Array, Array]
    weight: Float[Array, ""]


class _Iterate(NamedTuple):
    """An iterate and all that is known of it; `merit` is the augmented Lagrangian."""

    z: _Controls
    merit: Float[Array, ""]
    cost: Float[Array, ""]
    residuals: Residuals
    values: tuple[tuple, tuple]
    trajectory: Trajectory


class _State(NamedTuple):
    z: _Controls
    optimiser: Any
    multipliers: _Multipliers
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
    """The plainest solver: descend the gradient of the cost by the torques, through every step of the simulation.

    Nothing is linearised and no second derivative is taken, so that anything that `step` can simulate and a gradient exists
    of can be optimised; what it costs is iterations, hundreds where `solve_by_shooting` takes tens. The dynamics
    hold exactly at every iterate. Torques between two limits are tau = middle + half tanh(u) of unknowns u, above or below one
    limit softplus(u) from it, so that limits hold at every iterate too, and are approached slowly. Constraints enter by an
    augmented Lagrangian (multipliers l of equalities, m >= 0 of inequalities, weight w),

        cost + l . c + w/2 |c|^2 + (|max(0, m + w d)|^2 - |m|^2) / 2w,    c = 0, d <= 0,

    minimised in rounds with l' = l + w c, m' = max(0, m + w d) after each, and w' = 4 w where the violation has not fallen to
    a quarter. Constraints on the state at the start, which nothing can change, are left out. jit, vmap over problems and
    float32 work; a batch takes as long as its slowest.

    Args:
        guess: where to start (its torques and duration); None: the robot held still.
        optimiser: any `optax.GradientTransformation`, with a line search or without; None: `optax.lbfgs()`.
        iterations: at most.
        tolerance: on the Karush-Kuhn-Tucker residual; below about 1e-3 asks for float64.
        penalty: the first w.
        checkpoint: levels of checkpoints of the backward pass, as in `rollout`.

    Returns:
        solution with multipliers {"equality": (knots, end), "inequality": (knots, end)}, history {"cost", "residual"}.

    Raises:
        TrajectoryError: a guess of another number of steps, or no iteration.

    Cost: an iteration simulates forwards and backwards once, and again for each trial of the line search.
    Source: Nocedal & Wright 2006, Numerical Optimization, secs. 7.2 (L-BFGS) and 17.3 (augmented Lagrangian).
    """
    if iterations < 1:
        raise TrajectoryError(f"iterations={iterations}: allow one at least")
    start = stationary_guess(problem) if guess is None else guess
    if start.tau.shape != (problem.steps, problem.chain.nv):
        raise TrajectoryError(
            f"the guess has torques of shape {start.tau.shape}, but the problem takes {(problem.steps, problem.chain.nv)}"
        )
    dtype = jnp.result_type(problem.q0, problem.chain.dtype)
    descent = quasi_newton() if optimiser is None else supported(optimiser)
    bounds = _bounds(problem)
    unknowns = functools.partial(_unknowns, bounds)

    def merit(controls: _Controls, multipliers: _Multipliers) -> tuple[Array, tuple]:
        trajectory, problem_now = _rolled(problem, controls, checkpoint)
        cost = total_cost(problem_now, trajectory)
        values = _constraints(problem_now, trajectory)
        return cost + _augmented(values, multipliers), (cost, values, trajectory)

    def measured(z: _Controls, multipliers: _Multipliers) -> tuple[_Iterate, _Controls]:
        """An iterate, and the slope of the merit by its unknowns."""
        controls, pull = jax.vjp(unknowns, z)
        (value, (cost, values, motion)), slope = jax.value_and_grad(merit, has_aux=True)(controls, multipliers)
        residuals = _residuals(bounds, controls, slope, values, multipliers)
        return _Iterate(z, value, cost, residuals, values, motion), pull(slope)[0]

    def iterate(s: _State) -> _State:
        here, slope = measured(s.z, s.multipliers)
        residuals = here.residuals
        finite = jnp.isfinite(here.merit) & all_finite(slope)
        done = finite & (residuals.largest <= tolerance)
        best = choose(done | (finite & ((s.inner == 0) | (here.merit < s.best.merit))), here, s.best)
        numbers = {"cost": here.cost, "residual": residuals.largest}
        history = {name: column.at[s.k].set(numbers[name]) for name, column in s.history.items()}

        # one step down, or back to the best iterate with smaller steps
        there = lambda z: merit(unknowns(z), s.multipliers)[0]
        moved, optimiser_state = descend(descent, s.z, s.optimiser, here.merit, slope, there, s.scale)
        fresh = begin(descent, best.z)
        z, optimiser_state = choose(finite, (moved, optimiser_state), (best.z, fresh))
        scale = jnp.where(finite, s.scale, 0.5 * s.scale)
        returns = s.returns + (~finite).astype(jnp.int32)
        progress = here.merit < s.value - 1e-9 * jnp.maximum(jnp.abs(s.value), 1e-9)
        slow = jnp.where(progress | (s.inner == 0), 0, s.slow + 1)

        # the end of a round
        stopped = slow >= _SLOW
        if sum(x.size for kind in here.values for x in kind):  # are there constraints at all: known when traced
            calm = residuals.stationarity <= jnp.maximum(tolerance, 0.1 * residuals.constraints)
            turn = finite & ~done & (calm | stopped | (s.inner >= _ROUND))
            new = _updated(best.values, s.multipliers, best.residuals.constraints, s.violation)
            multipliers = choose(turn, new, s.multipliers)
            z, optimiser_state = choose(turn, (best.z, fresh), (z, optimiser_state))
            violation = jnp.where(turn, best.residuals.constraints, s.violation)
            stalled = turn & (multipliers.weight > 1e8)
        else:
            turn, multipliers, violation, stalled = jnp.zeros((), bool), s.multipliers, s.violation, stopped
        infeasible = residuals.constraints > jnp.sqrt(tolerance)
        ended = jnp.where(infeasible, Status.INFEASIBLE, Status.STALLED)
        status = jnp.where(stalled, ended, Status.MAX_ITERATIONS)
        status = jnp.where(done, Status.CONVERGED, status)
        status = jnp.where(returns > _BACK, Status.NOT_FINITE, status).astype(jnp.int32)
        return _State(
            z=z,
            optimiser=optimiser_state,
            multipliers=multipliers,
            best=best,
            value=jnp.where(finite, here.merit, s.value),
            scale=scale,
            violation=violation,
            slow=jnp.where(turn, 0, slow),
            inner=jnp.where(turn, 0, s.inner + 1),
            returns=returns,
            k=s.k + 1,
            status=status,
            history=history,
        )

    duration = None if problem.duration_limits is None else jnp.asarray(start.t[-1] - start.t[0], dtype)
    z = _inverse(bounds, _Controls(jnp.asarray(start.tau, dtype), duration))
    far, none, sound = jnp.asarray(jnp.inf, dtype), jnp.zeros((), jnp.int32), status_of_problem(problem)
    values = _constraints(problem, start)
    zero = [tuple(jnp.zeros(x.shape, dtype) for x in kind) for kind in values]
    first = _Iterate(z, far, far, Residuals(far, far, far, far), _like(values, dtype), _like(start, dtype))
    state = _State(
        z=z,
        optimiser=begin(descent, z),
        multipliers=_Multipliers(zero[0], zero[1], jnp.asarray(penalty, dtype)),  # type: ignore[arg-type]
        best=first,
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
    running = lambda s: (s.status == Status.MAX_ITERATIONS) & (s.k < iterations)
    state = jax.lax.while_loop(running, iterate, state)
    best = state.best
    estimate = _updated(best.values, state.multipliers, far, far)
    multipliers = {"equality": estimate.equal, "inequality": estimate.below}
    return Solution(best.trajectory, best.cost, multipliers, state.status, best.residuals, state.k, state.history)


def _like(tree: Any, dtype: Any) -> Any:
    return jax.tree.map(lambda x: jnp.asarray(x, dtype), tree)


def _rolled(
    problem: OptimalControlProblem, controls: _Controls, checkpoint: int | None
) -> tuple[Trajectory, OptimalControlProblem]:
    """The trajectory of torques, and the problem with its duration."""
    if controls.duration is not None:
        problem = dataclasses.replace(problem, dt=controls.duration / problem.steps)
    dtype = controls.tau.dtype
    start = jnp.asarray(problem.q0, dtype), jnp.asarray(problem.v0, dtype)
    move = lambda state, k, tau: advance(problem, state[0], state[1], tau)
    q, v = march(move, start, controls.tau, problem.steps, checkpoint=checkpoint)
    t = problem.dt * jnp.arange(problem.steps + 1, dtype=dtype)
    return Trajectory(t, q, v, controls.tau), problem


def _constraints(problem: OptimalControlProblem, trajectory: Trajectory) -> tuple[tuple, tuple]:
    """Equalities and inequalities, each (at the knots, at the end); what no torque can change at the start is zero, or far."""
    knots = knots_of(problem, trajectory)
    last = jax.tree.map(lambda x: x[-1], knots)
    first = jax.tree.map(lambda x: x[0], knots)
    equal, below = jax.vmap(lambda knot: constraint_values(problem.constraints, problem.chain, knot))(knots)

    def of_torque(tau: Array) -> tuple[Array, Array]:
        knot: Knot = first._replace(tau=tau)
        return constraint_values(problem.constraints, problem.chain, knot)

    if equal.size or below.size:
        slopes = jax.jacfwd(of_torque)(jax.lax.stop_gradient(first.tau))
        moved = [jnp.any(jax.lax.stop_gradient(slope) != 0, axis=1) for slope in slopes]
        equal = equal.at[0].set(jnp.where(moved[0], equal[0], 0.0))
        below = below.at[0].set(jnp.where(moved[1], below[0], -1.0))
    end = constraint_values(problem.terminal_constraints, problem.chain, last)
    return (equal, end[0]), (below, end[1])


def _augmented(values: tuple[tuple, tuple], multipliers: _Multipliers) -> Float[Array, ""]:
    """What the augmented Lagrangian adds to the cost."""
    w = multipliers.weight
    total = jnp.zeros_like(w)
    for c, l in zip(values[0], multipliers.equal, strict=True):
        total += jnp.sum(l * c + w / 2 * c * c)
    for d, m in zip(values[1], multipliers.below, strict=True):
        total += jnp.sum(jnp.maximum(0.0, m + w * d) ** 2 - m * m) / (2 * w)
    return total


def _updated(values: tuple[tuple, tuple], multipliers: _Multipliers, violation: Array, before: Array) -> _Multipliers:
    """Multipliers after a round, and a weight four times as large where the violation has not fallen to a quarter."""
    w = multipliers.weight
    equal = tuple(l + w * c for c, l in zip(values[0], multipliers.equal, strict=True))
    below = tuple(jnp.maximum(0.0, m + w * d) for d, m in zip(values[1], multipliers.below, strict=True))
    return _Multipliers(equal, below, jnp.where(violation > 0.25 * before, 4 * w, w))  # type: ignore[arg-type]


def _residuals(
    bounds: tuple, controls: _Controls, slope: _Controls, values: tuple[tuple, tuple], multipliers: _Multipliers
) -> Residuals:
    """Of the Karush-Kuhn-Tucker conditions: the merit's slope is that of the Lagrangian at the new multipliers."""
    zero = jnp.zeros_like(multipliers.weight)
    largest = lambda parts: jnp.max(jnp.stack([zero, *(jnp.max(jnp.abs(x)) for x in parts if x.size)]))
    moves = [x - jnp.clip(x - g, *pair) for x, g, pair in _pairs(bounds, controls, slope)]
    below = [jnp.maximum(d, 0.0) for d in values[1]]
    new = _updated(values, multipliers, zero, zero)
    products = [m * d for m, d in zip(new.below, values[1], strict=True)]
    return Residuals(largest(moves), zero, largest([*values[0], *below]), largest(products))


def _pairs(bounds: tuple, controls: _Controls, slope: _Controls) -> list[tuple[Array, Array, tuple]]:
    pairs = [(controls.tau, slope.tau, bounds[0])]
    if controls.duration is not None:
        assert slope.duration is not None
        pairs.append((controls.duration, slope.duration, bounds[1]))
    return pairs


def _bounds(problem: OptimalControlProblem) -> tuple:
    """(lower, upper) of the torques, (steps, nv) by broadcasting, and of the duration."""
    dtype = jnp.result_type(problem.q0, problem.chain.dtype)
    inf = jnp.full((1, problem.chain.nv), jnp.inf, dtype)
    limits = problem.torque_limits
    torque = (-inf, inf) if limits is None else (limits[None, :, 0].astype(dtype), limits[None, :, 1].astype(dtype))
    span = problem.duration_limits
    return torque, None if span is None else (span[0].astype(dtype), span[1].astype(dtype))


def _unknowns(bounds: tuple, z: _Controls) -> _Controls:
    """Torques and duration from the numbers that the descent moves, within their limits."""
    return _Controls(_within(z.tau, *bounds[0]), None if z.duration is None else _within(z.duration, *bounds[1]))


def _inverse(bounds: tuple, controls: _Controls) -> _Controls:
    duration = None if controls.duration is None else _freed(controls.duration, *bounds[1])
    return _Controls(_freed(controls.tau, *bounds[0]), duration)


def _within(u: Array, lower: Array, upper: Array) -> Array:
    low, high, has_low, has_high = _sides(lower, upper)
    half = (high - low) / 2
    both = low + half + half * jnp.tanh(u / jnp.where(half > 0, half, 1.0))
    one = jnp.where(has_low, low + jax.nn.softplus(u - low), high - jax.nn.softplus(high - u))
    return jnp.where(has_low & has_high, both, jnp.where(has_low | has_high, one, u))


def _freed(x: Array, lower: Array, upper: Array) -> Array:
    """The inverse of `_within`, for x taken back a little from its limits, where the slope would vanish."""
    low, high, has_low, has_high = _sides(lower, upper)
    half = jnp.where(high > low, (high - low) / 2, 1.0)
    both = half * jnp.arctanh(jnp.clip((x - (low + high) / 2) / half, -0.95, 0.95))
    inverse = lambda y: y + jnp.log(-jnp.expm1(-y))  # of softplus
    above = low + inverse(jnp.maximum(x - low, 0.05))
    below = high - inverse(jnp.maximum(high - x, 0.05))
    one = jnp.where(has_low, above, below)
    return jnp.where(has_low & has_high, both, jnp.where(has_low | has_high, one, x))


def _sides(lower: Array, upper: Array) -> tuple[Array, Array, Bool[Array, "*shape"], Bool[Array, "*shape"]]:
    """Limits with zeros where there is none, and which there are."""
    has_low, has_high = jnp.isfinite(lower), jnp.isfinite(upper)
    return jnp.where(has_low, lower, 0.0), jnp.where(has_high, upper, 0.0), has_low, has_high

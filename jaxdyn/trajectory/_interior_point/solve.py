"""A primal-dual interior-point method with a filter line search, for programs of any structure.

    minimise f(x)  subject to  c(x) = 0,  g(x) + s = 0,  s >= 0,  lower <= x <= upper

The method solves a sequence of barrier problems with decreasing mu. Each replaces the bounds and s >= 0 by the term - mu (sum
log s + sum log(x - lower) + sum log(upper - x)) in the objective, and is solved by Newton's method on its optimality
conditions. A step is accepted if, compared with every entry of the filter, it sufficiently reduces the infeasibility or the
barrier function (Waechter & Biegler 2006). If necessary, a multiple of the identity is added to the Hessian to make the Newton
step a descent direction.

If no step is accepted, a restoration phase reduces the infeasibility alone, by Levenberg-Marquardt steps for the problem

    minimise |c|^2 / 2 + |g + s|^2 / 2 - nu (sum log s + sum log(x - lower) + sum log(upper - x)),   nu -> 0.

The barrier term keeps the iterates away from the bounds, near which steps would have to be shortened. The restoration ends when
the filter accepts an iterate. The constraints are reported as locally infeasible only if the restoration reaches a stationary
point of the constraint violation.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ...model._compiled import checked
from .._problem.solution import Status
from .program import DenseProgram, Function, Program
from .step import (
    MARGIN,
    Bounds,
    Direction,
    Judge,
    Point,
    Trial,
    barrier_function,
    bounds_of,
    infeasibility,
    longest,
    newton_system,
    passes,
    search,
)

RUNNING = -1
KAPPA = 10.0  # each barrier problem is solved to the tolerance KAPPA mu
LARGE = 100.0  # residuals are divided by (mean multiplier / LARGE), clipped to the range from 1 to LARGE
REACH = 1e10  # multipliers of inequalities and bounds are kept within this factor of mu / distance


class InteriorPointResult(NamedTuple):
    """The final iterate of an interior-point solver, which is a solution only if `status` is `Status.CONVERGED`.

    Attributes:
        x: the unknowns.
        cost: f(x).
        equality_multipliers: multipliers y of the equalities c(x) = 0, in the Lagrangian f + y . c + w . g.
        inequality_multipliers: multipliers w >= 0 of the inequalities g(x) <= 0.
        lower_multipliers: multipliers of the lower bounds, positive.
        upper_multipliers: multipliers of the upper bounds, positive.
        slacks: values s >= 0 with g(x) + s = 0.
        status: a `Status` as an integer.
        stationarity: largest absolute entry of the gradient of the Lagrangian.
        infeasibility: largest violation of a constraint.
        complementarity: largest product of a multiplier and the corresponding slack or distance to a bound.
        iterations: number of iterations.
        history: "cost", "infeasibility", "stationarity", "barrier" (mu) and "step" at each iteration; NaN after the last
            iteration.
    """

    x: Float[Array, " n"]
    cost: Float[Array, ""]
    equality_multipliers: Float[Array, " m"]
    inequality_multipliers: Float[Array, " r"]
    lower_multipliers: Float[Array, " n"]
    upper_multipliers: Float[Array, " n"]
    slacks: Float[Array, " r"]
    status: Int[Array, ""]
    stationarity: Float[Array, ""]
    infeasibility: Float[Array, ""]
    complementarity: Float[Array, ""]
    iterations: Int[Array, ""]
    history: dict[str, Float[Array, " iterations"]]


class _State(NamedTuple):
    point: Point
    cost: Array
    mu: Array
    filter: Array  # `filter` and `worst` as in `Judge`
    worst: Array
    delta: Array  # last regularisation
    floor: Array  # minimum regularisation, raised if no step from a feasible iterate is accepted
    restoring: Array
    entry: Array  # infeasibility at the start of the restoration
    inner: Array  # nu of the restoration
    damping: Array  # Levenberg-Marquardt damping of the restoration
    slow: Array  # number of consecutive iterations without an accepted step
    iteration: Array
    status: Array
    residuals: Array
    history: dict[str, Array]


@checked
def interior_point(
    objective: Function,
    x: Float[Array, " n"],
    equality: Function | None = None,
    inequality: Function | None = None,
    lower: float | Float[Array, "*n"] = -jnp.inf,
    upper: float | Float[Array, "*n"] = jnp.inf,
    *,
    tolerance: float | Float[Array, ""] | None = None,
    max_iterations: int = 200,
    barrier: float | Float[Array, ""] = 0.1,
) -> InteriorPointResult:
    """Find a local minimum of objective(x) subject to equality(x) = 0, inequality(x) <= 0 and lower <= x <= upper.

    The method is a primal-dual interior-point method with a filter line search (Waechter & Biegler 2006). It uses dense
    matrices, so an iteration costs O(n^3) for n unknowns, and is intended for up to a few hundred unknowns. JAX computes all
    derivatives, including the exact Hessian of the Lagrangian. `jax.jit`, `jax.vmap` and forward-mode differentiation
    (`jax.jvp`) are supported; reverse mode is not. Unknowns with equal bounds are fixed. Inequalities with nothing in between,
    such as x <= 1 and x >= 1, must be given as an equality.

    Args:
        objective: x -> f, a scalar.
        x: initial guess; it is moved inside the bounds.
        equality: x -> (m,) values that must be zero; None: no equalities.
        inequality: x -> (r,) values that must not be positive; None: no inequalities.
        lower: lower bounds of x.
        upper: upper bounds of x.
        tolerance: tolerance for the largest Karush-Kuhn-Tucker residual; None: 1e-8, or 1e-4 in float32. The residuals of
            stationarity and complementarity are first divided by a hundredth of the mean multiplier, clipped to the range
            from 1 to 100.
        max_iterations: maximum number of iterations.
        barrier: initial barrier parameter mu; use a small value, for example 1e-4, if the guess is near the solution.

    Returns:
        The solution if `status` is `Status.CONVERGED`; otherwise, the last iterate, with a status that gives the reason.
    """
    x = jnp.asarray(x)
    none = lambda x: jnp.zeros(0, x.dtype)
    program = DenseProgram(objective, equality or none, inequality or none)
    limits = [jnp.broadcast_to(jnp.asarray(bound, x.dtype), x.shape) for bound in (lower, upper)]
    return solve_program(program, x, *limits, tolerance=tolerance, max_iterations=max_iterations, barrier=barrier)


def solve_program(
    program: Program,
    x: Float[Array, " n"],
    lower: Float[Array, " n"],
    upper: Float[Array, " n"],
    *,
    tolerance: float | Float[Array, ""] | None,
    max_iterations: int,
    barrier: float | Float[Array, ""],
) -> InteriorPointResult:
    """Solve a program of any structure, starting from x; for a program given by plain functions, use `interior_point`."""
    dtype, shapes = x.dtype, jax.eval_shape(program.evaluate, x)
    pinned = jnp.zeros(shapes[2].shape, bool) if program.pinned is None else program.pinned
    bounds, x = _start(x, bounds_of(lower, upper, pinned))
    if tolerance is None:
        tolerance = 1e-8 if jnp.finfo(dtype).eps < 1e-10 else 1e-4
    mu = jnp.asarray(barrier, dtype)
    y, s = (jnp.zeros(shape.shape, dtype) for shape in shapes[1:])
    below, above = bounds.gaps(x)
    point = Point(x, s, y, s, mu / below, mu / above)  # slacks and their multipliers are set in the first iteration
    status = jnp.where((lower <= upper).all(), RUNNING, Status.CONTRADICTORY_LIMITS)
    number = lambda value: jnp.asarray(value, dtype)
    names = ("cost", "infeasibility", "stationarity", "barrier", "step")
    state = _State(
        point=point,
        cost=number(jnp.nan),
        mu=mu,
        filter=jnp.full((max_iterations + 1, 2), jnp.inf, dtype),
        worst=number(jnp.inf),
        delta=number(0.0),
        floor=number(0.0),
        restoring=jnp.zeros((), bool),
        entry=number(0.0),
        inner=number(0.0),
        damping=number(0.0),
        slow=jnp.zeros((), jnp.int32),
        iteration=jnp.zeros((), jnp.int32),
        status=status.astype(jnp.int32),
        residuals=jnp.full(3, jnp.inf, dtype),
        history={name: jnp.full(max_iterations, jnp.nan, dtype) for name in names},
    )

    def body(state):
        return _iterate(program, bounds, state, number(tolerance), max_iterations)

    state = jax.lax.while_loop(lambda state: state.status == RUNNING, body, state)
    p = state.point
    low, high = bounds.multipliers(p.low, p.high)
    residuals = state.residuals[0], state.residuals[1], state.residuals[2]
    return InteriorPointResult(
        p.x, state.cost, p.y, p.w, low, high, p.s, state.status, *residuals, state.iteration, state.history
    )


def _start(x: Array, bounds: Bounds) -> tuple[Bounds, Array]:
    """The bounds, and the guess, moved inside them by at most a hundredth of their distance or of max(1, |bound|)."""
    lower, upper, has_lower, has_upper = bounds.lower, bounds.upper, bounds.has_lower, bounds.has_upper
    both = has_lower & has_upper
    push = lambda bound: jnp.minimum(
        1e-2 * jnp.maximum(1.0, jnp.abs(bound)), jnp.where(both, 1e-2 * (upper - lower), jnp.inf)
    )
    x = jnp.where(has_lower, jnp.maximum(x, lower + push(jnp.where(has_lower, lower, 0.0))), x)
    x = jnp.where(has_upper, jnp.minimum(x, upper - push(jnp.where(has_upper, upper, 0.0))), x)
    fixed = jnp.isfinite(lower) & jnp.isfinite(upper)
    x = jnp.where(bounds.free > 0, x, jnp.where(fixed, (lower + upper) / 2, x))  # also for contradictory bounds
    return bounds, x


def _iterate(program: Program, bounds: Bounds, state: _State, tolerance: Array, max_iterations: int) -> _State:
    """Check the optimality conditions, and take one step if they are not satisfied."""
    p, first = state.point, state.iteration == 0
    at = program.linearise(p.x, p.y, p.w, bounds.free)
    f, c, g = program.values(at)
    s = jnp.where(first, jnp.where(bounds.pinned, 0.0, jnp.maximum(jnp.abs(g), 1e-2)), p.s)
    p = p._replace(s=s, w=jnp.where(first & ~bounds.pinned, state.mu / bounds.slacks(s), p.w))
    worst = jnp.where(first, 1e4 * jnp.maximum(1.0, infeasibility(c, g + s)), state.worst)
    gradient = program.gradient(at) + program.transposed(at, p.y, p.w)
    low, high = bounds.multipliers(p.low, p.high)
    gradient = gradient - low + high
    stationarity = jnp.abs(gradient * bounds.free).max(initial=0.0)
    violated = jnp.maximum(jnp.abs(c).max(initial=0.0), jnp.abs(bounds.violated(g)).max(initial=0.0))
    inner = jnp.maximum(jnp.abs(c).max(initial=0.0), jnp.abs(g + s).max(initial=0.0))
    multipliers = jnp.abs(p.y).sum() + jnp.abs(p.w).sum() + low.sum() + high.sum()
    count = max(1, p.y.size + p.w.size + 2 * p.x.size)
    scale = jnp.clip(multipliers / count / LARGE, 1.0, LARGE)

    def error(mu):
        return jnp.maximum(jnp.maximum(stationarity, _products_off(bounds, p, mu)) / scale, inner)

    residuals = jnp.stack([stationarity, violated, _products_off(bounds, p, 0.0)])
    finite = jnp.isfinite(residuals).all() & jnp.isfinite(f)
    status = jnp.where(state.iteration >= max_iterations, Status.MAX_ITERATIONS, RUNNING)
    status = jnp.where(error(0.0) <= tolerance, Status.CONVERGED, status)
    status = jnp.where(finite, status, Status.NOT_FINITE).astype(jnp.int32)
    mu = state.mu
    for _ in range(3):
        lower_mu = jnp.maximum(tolerance / 10, jnp.minimum(0.2 * mu, mu**1.5))
        mu = jnp.where((error(mu) <= KAPPA * mu) & ~state.restoring, lower_mu, mu)
    changed = mu < state.mu
    state = state._replace(
        point=p,
        cost=f,
        worst=worst,
        mu=mu,
        filter=jnp.where(changed, jnp.inf, state.filter),
        floor=jnp.where(changed, 0.0, state.floor),
        status=status,
        residuals=residuals,
    )
    record = {"cost": f, "infeasibility": violated, "stationarity": stationarity, "barrier": mu}
    history = {name: state.history[name].at[state.iteration].set(value, mode="drop") for name, value in record.items()}
    state = state._replace(history=state.history | history)
    return jax.lax.cond(status == RUNNING, lambda s: _advance(program, bounds, s, at), lambda s: s, state)


def _products_off(bounds: Bounds, p: Point, mu: float | Array) -> Array:
    """The largest residual of the complementarity conditions: w s = mu, and the corresponding ones for the bounds."""
    below, above = bounds.gaps(p.x)
    of_lower = jnp.where(bounds.has_lower, jnp.abs(p.low * below - mu), 0.0).max(initial=0.0)
    of_upper = jnp.where(bounds.has_upper, jnp.abs(p.high * above - mu), 0.0).max(initial=0.0)
    of_slacks = jnp.where(bounds.pinned, 0.0, jnp.abs(p.w * p.s - mu)).max(initial=0.0)
    return jnp.maximum(jnp.maximum(of_lower, of_upper), of_slacks)


def _advance(program: Program, bounds: Bounds, state: _State, at: Any) -> _State:
    """Take a step, start or end a restoration, or terminate."""
    p, mu, restoring = state.point, state.mu, state.restoring
    judge = Judge(mu, jnp.where(restoring, state.inner, mu), state.filter, state.worst, restoring)
    least = jnp.where(restoring, state.damping, state.floor)
    newton = newton_system(program, bounds, p, at, judge, state.delta, least)
    _, c, g = program.values(at)
    step, trial = search(program, bounds, p, at, newton, judge)
    theta, phi = infeasibility(c, g + p.s), barrier_function(bounds, p.x, p.s, state.cost, mu)
    taken, feasible = trial.accepted, theta <= jnp.sqrt(jnp.finfo(p.x.dtype).eps)
    failed = ~taken & ~restoring
    enters = failed & ~feasible
    leaves = restoring & taken & (trial.theta <= 0.9 * state.entry) & passes(state.filter, trial.theta, trial.phi)
    nu = restoration_barrier(theta, mu)
    point = _stepped(bounds, p, step, trial, judge.inner, leaves | enters, jnp.where(leaves, mu, nu))
    none = restoring | enters
    point = point._replace(y=jnp.where(none, 0.0, point.y), w=jnp.where(none & bounds.pinned, 0.0, point.w))

    damping = jnp.where(trial.length >= 0.5, state.damping / 4, 4 * state.damping)
    damping = jnp.clip(jnp.where(taken, damping, 10 * state.damping), 1e-8, 1e8)
    slow = jnp.where(~taken, state.slow + 1, 0)
    stuck = restoring & _is_stuck(program, bounds, p, at)
    verdict = jnp.where(stuck, Status.INFEASIBLE, Status.STALLED)
    k = state.iteration
    joins = (taken & trial.by_theta) | enters
    row = jnp.stack([(1 - MARGIN) * theta, phi - MARGIN * theta])
    return state._replace(
        point=point,
        filter=state.filter.at[k].set(jnp.where(joins, row, state.filter[k])),
        delta=jnp.where((newton.delta > 0) & ~restoring, newton.delta, state.delta),
        floor=jnp.where(failed & feasible, jnp.maximum(1e-4, 10 * newton.delta), 0.0),
        restoring=(restoring & ~leaves) | enters,
        entry=jnp.where(enters, theta, state.entry),
        inner=jnp.where(enters, nu, jnp.minimum(_next_inner(program, bounds, p, at, judge.inner), nu)),
        damping=jnp.where(enters, 1e-2, damping),
        slow=slow.astype(jnp.int32),
        iteration=k + 1,
        status=jnp.where(stuck | (slow >= 8), verdict, RUNNING).astype(jnp.int32),
        history=state.history | {"step": state.history["step"].at[k].set(jnp.where(taken, trial.length, 0.0))},
    )


def _stepped(
    bounds: Bounds, p: Point, step: Direction, trial: Trial, inner: Array, anew: Array, barrier: Array
) -> Point:
    """The iterate after a trial.

    The multipliers of inequalities and bounds have their own step length and are kept near the values `inner` / distance.

    Args:
        anew: True at the start or end of a restoration, to reset the multipliers to the values `barrier` / distance.
    """
    taken = trial.accepted
    rest = jnp.minimum(0.01, inner)
    dual = jnp.minimum(longest(p.low, step.d_low, rest), longest(p.high, step.d_high, rest))
    dual = jnp.minimum(dual, longest(p.w, jnp.where(bounds.pinned, 0.0, step.dw), rest))
    x, s = jnp.where(taken, trial.x, p.x), jnp.where(taken, trial.s, p.s)
    near = []
    changes = (p.w, step.dw), (p.low, step.d_low), (p.high, step.d_high)
    for (z, dz), gap in zip(changes, (bounds.slacks(s), *bounds.gaps(x)), strict=True):
        kept = jnp.where(taken, jnp.clip(z + dual * dz, inner / (REACH * gap), REACH * inner / gap), z)
        near.append(jnp.where(anew, barrier / gap, kept))
    length = jnp.where(taken, trial.length, 0.0)
    near[0] = jnp.where(bounds.pinned, p.w + length * step.dw, near[0])
    return Point(x, s, p.y + length * (step.y - p.y), *near)


def _is_stuck(program: Program, bounds: Bounds, p: Point, at: Any) -> Array:
    """True if the iterate is a stationary point of the constraint violation, and this violation is not small."""
    _, c, g = program.values(at)
    violated, small = bounds.violated(g), jnp.finfo(p.x.dtype).eps
    push = program.transposed(at, c, violated) * bounds.free
    projected = jnp.abs(p.x - jnp.clip(p.x - push, bounds.lower, bounds.upper)) * bounds.free
    violation = infeasibility(c, violated)
    return (projected.max(initial=0.0) <= small**0.25 * violation) & (violation > small**0.4)


def _next_inner(program: Program, bounds: Bounds, p: Point, at: Any, inner: Array) -> Array:
    """The next barrier parameter of the restoration, reduced if the optimality conditions are nearly satisfied."""
    _, c, g = program.values(at)
    low, high = bounds.multipliers(p.low, p.high)
    w = jnp.where(bounds.pinned, g, p.w)
    off = jnp.abs((program.transposed(at, c, w) - low + high) * bounds.free).max(initial=0.0)
    off = jnp.maximum(off, jnp.abs(g + p.s - w).max(initial=0.0))
    off = jnp.maximum(off, _products_off(bounds, p, inner))
    return jnp.where(off <= KAPPA * inner, 0.1 * inner, inner)


def restoration_barrier(theta: Array, mu: Array) -> Array:
    """The initial barrier parameter nu of a restoration: small relative to the infeasibility theta, but not to mu."""
    return 0.01 * theta * jnp.maximum(mu, 0.1 * theta)

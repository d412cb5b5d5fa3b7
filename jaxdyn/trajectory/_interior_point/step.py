"""One step of the interior-point method: the Newton direction, the step length, and the filter."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._problem.knot import coincide
from .._trees import choose
from .program import Program

MARGIN = 1e-5  # required improvement of the infeasibility or the barrier function, relative to the infeasibility
TRIES = 30  # maximum number of regularisations tried per system, and of trial steps per line search

# the barrier function alone decides if alpha |slope|^STEEP > infeasibility^CLOSE (Waechter & Biegler 2006)
STEEP = 2.3
CLOSE = 1.1
# The weight of a pinned inequality is eps^-SOFT. With a larger one, its multiplier would be found in fewer iterations, but the
# Newton matrix would lose digits.
SOFT = 1 / 3


class Point(NamedTuple):
    """An iterate: unknowns, slacks, and multipliers of c, g, lower and upper bounds."""

    x: Array
    s: Array
    y: Array
    w: Array
    low: Array
    high: Array


class Bounds(NamedTuple):
    """Bounds of the unknowns and of the inequalities.

    `free` is 0 for unknowns with equal bounds, and 1 for all others. Inequalities that are `pinned` must be zero. They have no
    slack, and multipliers of any sign.
    """

    lower: Array
    upper: Array
    free: Array
    has_lower: Array
    has_upper: Array
    pinned: Array

    def gaps(self, x: Array) -> tuple[Array, Array]:
        """Distances to the lower and upper bounds; 1 where there is no bound."""
        one = jnp.ones_like(x)
        return jnp.where(self.has_lower, x - self.lower, one), jnp.where(self.has_upper, self.upper - x, one)

    def slacks(self, s: Array) -> Array:
        """Slacks of the inequalities; 1 for those that are pinned."""
        return jnp.where(self.pinned, 1.0, s)

    def violated(self, g: Array) -> Array:
        """Violations of the inequalities."""
        return jnp.where(self.pinned, g, jnp.maximum(g, 0.0))

    def multipliers(self, low: Array, high: Array) -> tuple[Array, Array]:
        """Multipliers of the lower and upper bounds; 0 where there is no bound."""
        return jnp.where(self.has_lower, low, 0.0), jnp.where(self.has_upper, high, 0.0)


def bounds_of(lower: Array, upper: Array, pinned: Array) -> Bounds:
    """The bounds, with masks of the finite ones. Equal bounds fix an unknown and are excluded from the masks."""
    free = (lower <= upper) & ~coincide(lower, upper)
    finite = jnp.isfinite(lower) & free, jnp.isfinite(upper) & free
    return Bounds(lower, upper, free.astype(lower.dtype), *finite, pinned)


class Direction(NamedTuple):
    """A step: changes of the unknowns and slacks, the new multipliers of c, and changes of the other multipliers."""

    dx: Array
    ds: Array
    y: Array
    dw: Array
    d_low: Array
    d_high: Array


class Trial(NamedTuple):
    """A trial point of the line search.

    A trial contains the step length, the unknowns x and slacks s, the values of c and h = g + s, the infeasibility theta, and
    the barrier function phi. `by_theta` is False during restoration and whenever the barrier function alone decides on
    acceptance. If a trial with `by_theta` is accepted, the previous iterate is added to the filter.
    """

    length: Array
    x: Array
    s: Array
    c: Array
    h: Array
    theta: Array
    phi: Array
    accepted: Array
    by_theta: Array


def infeasibility(c: Array, h: Array) -> Array:
    """The infeasibility: the Euclidean norm of all constraint violations (c, h)."""
    return jnp.sqrt((c * c).sum() + (h * h).sum())


def barrier_function(bounds: Bounds, x: Array, s: Array, f: Array, mu: Array) -> Array:
    """The barrier function: f minus mu times the sum of the logarithms of all slacks and distances to bounds."""
    below, above = bounds.gaps(x)
    return f - mu * (jnp.log(bounds.slacks(s)).sum() + jnp.log(below).sum() + jnp.log(above).sum())


def passes(filter_: Array, theta: Array, phi: Array) -> Array:
    """True if, for every filter entry, the infeasibility theta or the barrier function phi is lower than in this entry."""
    return ((theta < filter_[:, 0]) | (phi < filter_[:, 1])).all()


class Judge(NamedTuple):
    """The quantities that decide whether to accept a step.

    Attributes:
        mu: barrier parameter.
        inner: barrier parameter during restoration.
        filter: pairs (infeasibility, barrier function) that a step must improve on, (iterations, 2); infinite in unused rows.
        worst: infeasibility above which every step is rejected.
        restoring: True in the restoration phase.
    """

    mu: Array
    inner: Array
    filter: Array
    worst: Array
    restoring: Array

    def measure(self, bounds: Bounds, x: Array, s: Array, f: Array, theta: Array) -> tuple[Array, Array]:
        """The barrier function, and the merit of the restoration: half the squared infeasibility plus its barrier term."""
        return barrier_function(bounds, x, s, f, self.mu), barrier_function(bounds, x, s, theta**2 / 2, self.inner)


class Newton(NamedTuple):
    """The factored Newton system at an iterate, and functions that compute a direction and its slope."""

    factors: Any
    good: Array
    delta: Array
    direction: Callable[[Array, Array], Direction]
    slope: Callable[[Direction], Array]


def newton_system(
    program: Program, bounds: Bounds, p: Point, at: Any, judge: Judge, last: Array, least: Array
) -> Newton:
    """Factor the Newton system, increasing the regularisation delta until the matrix has the inertia required at a minimum.

    The matrix is [W + S + delta I, A^T, G^T; A, -e I, 0; G, 0, -s/w]. The diagonal matrix S contains the bounds' multipliers
    divided by the distances to the bounds. The scalar e regularises the multipliers of c about their current values, so that
    constraints may be linearly dependent; it affects the iterations but not the solution. For pinned inequalities, a larger
    scalar replaces s/w.

    During restoration, the objective is (|c|^2 + |g + s|^2) / 2, the barrier parameter is `inner`, and the violations take the
    place of the multipliers. The matrix is then [S + delta I, A^T, G^T; A, -I, 0; G, 0, -I - s/w]; eliminating the multipliers
    yields the Gauss-Newton Hessian.

    Args:
        last: delta of the previous step.
        least: first delta to try.
    """
    dtype, mu, restoring = p.x.dtype, judge.inner, judge.restoring
    below, above = bounds.gaps(p.x)
    low, high = bounds.multipliers(p.low, p.high)
    pull = mu * (jnp.where(bounds.has_lower, 1 / below, 0.0) - jnp.where(bounds.has_upper, 1 / above, 0.0))
    newton = jnp.where(restoring, 0.0, 1.0).astype(dtype)
    soft = jnp.where(restoring, 1.0, jnp.sqrt(jnp.finfo(dtype).eps)).astype(dtype)
    s, w, one = bounds.slacks(p.s), jnp.where(bounds.pinned, 1.0, p.w), jnp.ones((), dtype)
    softer = jnp.where(restoring, one, jnp.finfo(dtype).eps ** SOFT * one)
    weights = jnp.where(bounds.pinned, 1 / softer, w / (s + (1 - newton) * w))
    shift = jnp.where(
        bounds.pinned, newton * softer * p.w, mu / w
    )  # the new multipliers are weights (g + s + G dx + shift)
    diagonal = (low / below + high / above) * bounds.free + (1 - bounds.free)

    def factored(delta):
        factors = program.factor(at, newton, diagonal + delta * bounds.free, weights, soft)
        return factors, jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(factors)]).all()

    def attempt(carry):
        delta, tried, _, _ = carry
        known = last > 0
        first = jnp.where(known, jnp.maximum(last / 3, 1e-12), 1e-4)
        larger = jnp.where(delta > 0, jnp.where(known, 8.0, 20.0) * delta, first)
        delta = jnp.where(tried == 0, least, jnp.maximum(larger, first)).astype(dtype)
        return delta, tried + 1, *factored(delta)

    empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(lambda: factored(least)[0]))
    start = (jnp.zeros((), dtype), jnp.zeros((), jnp.int32), empty, jnp.zeros((), bool))
    delta, _, factors, good = jax.lax.while_loop(lambda carry: ~carry[3] & (carry[1] < TRIES), attempt, start)
    diagonal = diagonal + delta * bounds.free

    def direction(c, h):
        """The Newton step, which zeroes c and h to first order and minimises a quadratic model of the barrier function.

        During restoration, the step instead minimises a quadratic model of the restoration's objective.
        """
        r1 = pull * bounds.free - newton * program.gradient(at)
        r1 = r1 - program.transposed(at, jnp.zeros_like(p.y), weights * (h + shift))
        r2 = -c - newton * soft * p.y

        def refine(_, carry):
            dx, y = carry
            w_dx, a_dx, g_dx = program.times(at, dx)
            left = r1 - newton * w_dx - diagonal * dx - program.transposed(at, y, weights * g_dx)
            more, more_y = program.solve(factors, left, r2 - a_dx + soft * y)
            return dx + more, y + more_y

        dx, y = jax.lax.fori_loop(0, 3, refine, (jnp.zeros_like(p.x), jnp.zeros_like(p.y)))
        moved = h + program.times(at, dx)[2]
        w = weights * (moved + shift)
        ds = jnp.where(bounds.pinned, 0.0, (1 - newton) * w - moved)
        d_low = jnp.where(bounds.has_lower, mu / below - p.low - p.low / below * dx, 0.0)
        d_high = jnp.where(bounds.has_upper, mu / above - p.high + p.high / above * dx, 0.0)
        return Direction(dx, ds, y, w - p.w, d_low, d_high)

    def slope(step):
        _, c, g = program.values(at)
        _, a_dx, g_dx = program.times(at, step.dx)
        of_f = jnp.where(restoring, c @ a_dx + (g + p.s) @ (g_dx + step.ds), program.gradient(at) @ step.dx)
        return of_f - pull @ step.dx - mu * (step.ds / s).sum()

    return Newton(factors, good, delta, direction, slope)


class Attempt(NamedTuple):
    """A step along a direction; `alpha` and `slope` are the length and the directional derivative for the decrease test."""

    along: Direction
    length: Array
    alpha: Array
    slope: Array


def search(
    program: Program, bounds: Bounds, p: Point, at: Any, newton: Newton, judge: Judge
) -> tuple[Direction, Trial]:
    """Backtrack until a step is accepted; if the full step is rejected, first try a second-order correction."""
    f, c, g = program.values(at)
    h, theta = g + p.s, infeasibility(c, g + p.s)
    here = theta, *judge.measure(bounds, p.x, p.s, f, theta)
    rest = jnp.where(judge.restoring, 0.01, jnp.minimum(0.01, judge.mu))  # fraction of each distance that must remain

    # trial 0: full step; trial 1: second-order correction, if applicable; later trials: half the previous length
    def turn(carry):
        count, alpha, slope, step, trial = carry
        first = count == 0
        correcting = (count == 1) & (trial.theta >= theta) & ~judge.restoring & newton.good
        goal = (jnp.where(first, c, alpha * c + trial.c), jnp.where(first, h, alpha * h + trial.h))
        along = jax.lax.cond(first | correcting, lambda goal: newton.direction(*goal), lambda _: step, goal)
        step = choose(first, along, step)
        slope = jnp.where(first, newton.slope(along), slope)
        whole = _furthest(bounds, p, along, rest)
        alpha = jnp.where(first, whole, jnp.where(correcting, alpha, alpha / 2))
        attempt = Attempt(along, jnp.where(correcting, whole, alpha), alpha, slope)
        return count + 1, alpha, slope, step, _tried(program, bounds, p, here, newton.good, judge, attempt)

    zero, no = jnp.zeros((), p.x.dtype), jnp.zeros((), bool)
    step = Direction(*(jnp.zeros_like(v) for v in (p.x, p.s, p.y, p.w, p.x, p.x)))
    trial = Trial(zero, p.x, p.s, c, h, zero, zero, no, no)
    start = (jnp.zeros((), jnp.int32), zero, zero, step, trial)
    *_, step, trial = jax.lax.while_loop(lambda carry: ~carry[-1].accepted & (carry[0] < TRIES), turn, start)
    return step, trial


def _tried(
    program: Program, bounds: Bounds, p: Point, here: tuple, good: Array, judge: Judge, attempt: Attempt
) -> Trial:
    """Evaluate an attempt and decide whether to accept it.

    A step must pass the filter and reduce the infeasibility or the barrier function by at least MARGIN times the infeasibility.
    If the slope of the barrier function is steep and the infeasibility is small, the barrier function must instead decrease by
    a fraction of the predicted decrease. During restoration, only the merit of the restoration must decrease.
    """
    (along, length, alpha, slope), (theta, phi, psi), small = attempt, here, jnp.finfo(p.x.dtype).eps
    # infeasibility at the level of rounding errors
    level = 100 * small * jnp.sqrt(1.0 * p.x.size) * (1 + jnp.abs(p.x).max(initial=0.0))
    x = p.x + length * along.dx
    f, c, g = program.evaluate(x)
    s = jnp.where(
        bounds.pinned, 0.0, jnp.maximum(p.s + length * along.ds, -g)
    )  # raising s to -g lowers both theta and the barrier function
    new_theta = infeasibility(c, g + s)
    new_phi, new_psi = judge.measure(bounds, x, s, f, new_theta)
    falls = (slope < 0) & (theta <= 1e-4 * judge.worst) & (alpha * jnp.maximum(-slope, 0.0) ** STEEP > theta**CLOSE)
    descends = new_phi <= phi + 1e-4 * alpha * slope + 10 * small * jnp.abs(phi)
    improves = (new_theta <= (1 - MARGIN) * theta) | (new_phi <= phi - MARGIN * theta)
    accepted = jnp.where(falls, descends, improves)
    accepted &= passes(judge.filter, new_theta, new_phi) & (new_theta < judge.worst)
    accepted |= (new_theta <= level) & (new_phi <= phi + 10 * small * jnp.abs(phi))
    lower = new_psi <= psi + 1e-4 * alpha * slope + 10 * small * jnp.abs(psi)
    accepted = jnp.where(judge.restoring, lower, accepted)
    accepted &= jnp.isfinite(new_phi) & jnp.isfinite(new_theta) & good
    return Trial(length, x, s, c, g + s, new_theta, new_phi, accepted, ~falls & ~judge.restoring)


def _furthest(bounds: Bounds, p: Point, along: Direction, rest: Array) -> Array:
    """The longest step, at most 1, that leaves at least the fraction `rest` of every slack and distance to a bound."""
    below, above = bounds.gaps(p.x)
    to_lower, to_upper = jnp.where(bounds.has_lower, along.dx, 0.0), jnp.where(bounds.has_upper, -along.dx, 0.0)
    length = jnp.minimum(longest(p.s, along.ds, rest), longest(below, to_lower, rest))
    return jnp.minimum(length, longest(above, to_upper, rest))


def longest(distance: Array, change: Array, rest: Array) -> Array:
    """The longest step, at most 1, that leaves at least the fraction `rest` of every distance."""
    closing = change < 0
    ratio = jnp.where(closing, (rest - 1) * distance / jnp.where(closing, change, -1.0), 1.0)
    return jnp.minimum(ratio.min(initial=1.0), 1.0)

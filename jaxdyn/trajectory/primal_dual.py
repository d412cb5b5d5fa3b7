"""A primal-dual interior-point method with a filter line search, for programs of any structure (Waechter & Biegler 2006).

    minimise f(x)  subject to  c(x) = 0,  g(x) + s = 0,  s >= 0,  lower <= x <= upper

Barrier problems with decreasing mu replace the bounds and s >= 0 by - mu (sum log s + sum log(x - lower) + sum log(upper - x))
in the objective. A Newton step is accepted if, compared with every entry of the filter, it sufficiently reduces the
infeasibility or the barrier function. If none is, a restoration phase reduces the infeasibility alone, by Levenberg-Marquardt
steps with a barrier of its own, until the filter accepts an iterate. The constraints are reported as locally infeasible only
at a stationary point of their violation.

Each class of programs evaluates f, c, g and their derivatives, and solves the linear systems of Newton steps: `DenseProgram`
as a whole, a program of knots also stage by stage. Each block of these systems is

    [ P   D^T    ] [z]   [r1]
    [ D  -delta I] [y] = [r2].

With delta > 0, the rows of D may be linearly dependent. Adding rho D^T times the second row to the first makes the pivot P +
rho D^T D positive definite if P is so on the null space of D and rho is large enough. A successful Cholesky factorisation
therefore shows that the matrix has the inertia required at a minimum.
"""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float, Int, PyTree

from ..dynamics.engine.lanes import sparse_jvp
from ..model.compiled import checked
from .constraints import coincide
from .problem import RUNNING, Status, choose

Function = Callable[[Array], Array]


class Pivot(NamedTuple):
    """Factors with P + rho D^T D = L L^T, (1 - rho delta) D (L L^T)^-1 D^T + delta I = C C^T; NaN if one does not exist."""

    root: Float[Array, "*stages n n"]  # L^-1
    across: Float[Array, "*stages n m"]  # L^-1 D^T
    weight: Float[Array, "*stages m m"]  # C^-1
    rho: Float[Array, "*stages"]
    delta: Float[Array, "*stages"]


def pivot(p: Float[Array, "n n"], d: Float[Array, "m n"], rho: Float[Array, ""], delta: Float[Array, ""]) -> Pivot:
    """Factor one block, in O(n^3 + n^2 m + m^3)."""
    root = _inverse_root(p + rho * d.T @ d)
    across = root @ d.T
    small = (1 - rho * delta) * across.T @ across
    return Pivot(root, across, _inverse_root(small + delta * jnp.eye(len(d), dtype=d.dtype)), rho, delta)


def _inverse_root(matrix: Array) -> Array:
    """L^-1 for a matrix L L^T; NaN if the matrix is not positive definite."""
    if matrix.shape[0] == 0:
        return matrix
    lower = jax.lax.linalg.cholesky(matrix, symmetrize_input=False)
    return solve_triangular(lower, jnp.eye(len(matrix), dtype=matrix.dtype), lower=True)


def forward(block: Pivot, r1: Float[Array, " n"], r2: Float[Array, " m"]) -> tuple[Array, Array]:
    """Forward substitution: y = L^-1 (r1 + rho D^T r2) and w = C^-1 (D (L L^T)^-1 (r1 + rho D^T r2) - r2)."""
    # D^T = L (L^-1 D^T), and therefore L^-1 rho D^T r2 = rho (L^-1 D^T) r2
    y = block.root @ r1 + block.rho * (block.across @ r2)
    return y, block.weight @ (block.across.T @ y - r2)


def backward(
    block: Pivot, y: Float[Array, " n"], w: Float[Array, " m"], after: Float[Array, " m"]
) -> tuple[Array, Array]:
    """Back substitution for (z, multipliers); `after` is the term that the next stage's z adds to the second row."""
    share = 1 - block.rho * block.delta
    multipliers = block.weight.T @ (w + block.weight @ after / share) - block.rho / share * after
    return block.root.T @ (y - block.across @ (share * multipliers + block.rho * after)), multipliers


class StageFactors(NamedTuple):
    """Factors of the stages; `right` is the Jacobian R of each stage's rows with respect to the next stage's z."""

    stages: Pivot
    right: Float[Array, "N m n"]
    last: Pivot


def factor_stages(
    p: Float[Array, "S n n"],
    left: Float[Array, "N m n"],
    right: Float[Array, "N m n"],
    last: Float[Array, "k n"],
    rho: Float[Array, ""],
    delta: Float[Array, ""],
) -> StageFactors:
    """Factor stages with rows left_k z_k + right_k z_{k+1} - delta y_k, then last z_N - delta y_N: O(N (n^3 + m^3))."""

    def stage(carried, x):
        own, d, r = x
        block = pivot(own + carried, d, rho, delta)
        seen = block.weight @ r
        carried = (seen.T @ seen - rho * r.T @ r) / (1 - rho * delta)
        return carried, block

    carried, blocks = jax.lax.scan(stage, jnp.zeros_like(p[0]), (p[:-1], left, right))
    return StageFactors(blocks, right, pivot(p[-1] + carried, last, rho, delta))


def solve_stages(
    factors: StageFactors, r1: Float[Array, "S n"], r2: Float[Array, "N m"], last: Float[Array, " k"]
) -> tuple[Array, Array, Array]:
    """Solve for z, the multipliers of all stages' rows, and those of the last rows, in two passes: O(N (n + m)^2)."""

    def ahead(carried, x):
        block, r, own, rows = x
        y, w = forward(block, own - carried, rows)
        return r.T @ (block.weight.T @ w), (y, w)

    carried, (y, w) = jax.lax.scan(ahead, jnp.zeros_like(r1[0]), (factors.stages, factors.right, r1[:-1], r2))
    end = forward(factors.last, r1[-1] - carried, last)
    end, end_multipliers = backward(factors.last, *end, jnp.zeros_like(last))

    def back(following, x):
        block, r, y, w = x
        z, multipliers = backward(block, y, w, r @ following)
        return z, (z, multipliers)

    _, (z, multipliers) = jax.lax.scan(back, end, (factors.stages, factors.right, y, w), reverse=True)
    return jnp.concatenate([z, end[None]]), multipliers, end_multipliers


def convexifier(curvature: Array, largest: Array, delta: Array) -> Float[Array, ""]:
    """The rho that outweighs negative curvature of W across the constraints without losing precision."""
    size = jnp.maximum(largest * largest, jnp.finfo(largest.dtype).tiny)
    return jnp.minimum(jnp.maximum(1e4 * curvature, 1.0) / size, 0.01 / delta)


class Program(eqx.Module):
    """A nonlinear program in x. `pinned` entries of g must be zero.

    What `linearise` returns has the `values` (f, c, g) and the `gradient` of f at a point, and the `curvature`, the largest
    absolute entry of W or an estimate of it. Derivatives by fixed unknowns (`free` = 0) are zero.
    """

    pinned: Bool[Array, " r"] | None = eqx.field(default=None, kw_only=True)

    @abc.abstractmethod
    def evaluate(self, x: Float[Array, " n"]) -> tuple[Array, Array, Array]:
        """The values of f, c and g."""

    @abc.abstractmethod
    def linearise(self, x: Array, y: Array, w: Array, free: Array) -> Any:
        """Compute grad f, the Jacobians A of c and G of g, and W, the Hessian of f + y . c + w . g or an approximation."""

    @abc.abstractmethod
    def curved(self, at: Any, dx: Float[Array, " n"]) -> Float[Array, " n"]:
        """The product W dx."""

    @abc.abstractmethod
    def slopes(self, at: Any, dx: Float[Array, " n"]) -> tuple[Array, Array, Array]:
        """The products grad f . dx, A dx and G dx."""

    def times(self, at: Any, dx: Float[Array, " n"]) -> tuple[Array, Array, Array]:
        """The products W dx, A dx and G dx."""
        return self.curved(at, dx), *self.slopes(at, dx)[1:]

    def transposed(self, at: Any, y: Float[Array, " m"], w: Float[Array, " r"]) -> Float[Array, " n"]:
        """The vector A^T y + G^T w."""
        return jax.linear_transpose(lambda dx: self.slopes(at, dx)[1:], at.gradient)((y, w))[0]

    @abc.abstractmethod
    def factor(self, at: Any, share: Array, diagonal: Array, weights: Array, delta: Array) -> Any:
        """Factor [H, A^T; A, -delta I], H = share W + diag(diagonal) + G^T diag(weights) G; not finite at a wrong inertia."""

    def solve(self, factors: Any, r1: Array, r2: Array) -> tuple[Array, Array]:
        """Solve the factored system for (dx, y), given the right-hand side (r1, r2)."""
        return backward(factors, *forward(factors, r1, r2), jnp.zeros_like(r2))


def dense_pivot(matrix: Array, equality: Array, curvature: Array, delta: Array) -> Pivot:
    """Factor [H, A^T; A, -delta I] by two Cholesky factorisations, of an n x n and an m x m matrix."""
    return pivot(matrix, equality, convexifier(curvature, jnp.abs(equality).max(initial=0.0), delta), delta)


def with_values(function: Callable, argument: int = 0) -> Callable:
    """A function that returns the Jacobian of `function` with respect to one argument, and its value."""
    return jax.jacfwd(lambda *x: (function(*x),) * 2, argument, has_aux=True)


class DenseLinearisation(NamedTuple):
    """Values and derivatives of a dense program at one point."""

    values: tuple[Array, Array, Array]
    gradient: Float[Array, " n"]
    equality: Float[Array, "m n"]
    inequality: Float[Array, "r n"]
    hessian: Float[Array, "n n"]

    @property
    def curvature(self) -> Float[Array, ""]:
        """The largest absolute entry of W."""
        return jnp.abs(self.hessian).max()


class DenseProgram(Program):
    """A program of functions of up to a few hundred unknowns, with dense matrices and exact derivatives from JAX."""

    objective: Function
    equality: Function
    inequality: Function

    def evaluate(self, x: Float[Array, " n"]) -> tuple[Array, Array, Array]:
        return self.objective(x), self.equality(x), self.inequality(x)

    def linearise(self, x: Array, y: Array, w: Array, free: Array) -> DenseLinearisation:
        def lagrangian(x):
            f, c, g = self.evaluate(x)
            return f + y @ c + w @ g

        (f, c, g), values = with_values(self.evaluate)(x)
        hessian = jax.jacfwd(jax.grad(lagrangian))(x)
        hessian = (hessian + hessian.T) / 2
        hessian = hessian * (free[:, None] * free[None])
        return DenseLinearisation(values, f * free, c * free[None], g * free[None], hessian)

    def curved(self, at: DenseLinearisation, dx: Array) -> Array:
        return at.hessian @ dx

    def slopes(self, at: DenseLinearisation, dx: Array) -> tuple[Array, Array, Array]:
        return at.gradient @ dx, at.equality @ dx, at.inequality @ dx

    def factor(self, at: DenseLinearisation, share: Array, diagonal: Array, weights: Array, delta: Array) -> Pivot:
        matrix = share * at.hessian + jnp.diag(diagonal) + at.inequality.T @ (weights[:, None] * at.inequality)
        return dense_pivot(matrix, at.equality, at.curvature, delta)


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
    """Bounds of the unknowns, `free` = 0 where they are equal; `pinned` inequalities must be zero and have no slack."""

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


def bounds_of(program: Program, lower: Array, upper: Array, inequalities: tuple[int, ...]) -> Bounds:
    """The bounds, with masks of the finite ones. Equal bounds fix an unknown and are excluded from the masks."""
    pinned = jnp.zeros(inequalities, bool) if program.pinned is None else program.pinned
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
    """A trial point with its c, h = g + s, infeasibility theta and barrier function phi; `by_theta` extends the filter."""

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
    """What decides on a step: mu, that of the restoration, the filter, and the infeasibility `worst` that is never accepted."""

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

    good: Array
    delta: Array
    direction: Callable[[Array, Array], Direction]
    slope: Callable[[Direction], Array]


def newton_system(
    program: Program, bounds: Bounds, p: Point, at: Any, judge: Judge, last: Array, least: Array
) -> Newton:
    """Factor the Newton system, increasing the regularisation delta until the matrix has the inertia required at a minimum."""
    # The matrix is [W + S + delta I, A^T, G^T; A, -e I, 0; G, 0, -s/w], where S contains the bounds' multipliers divided by
    # the distances to the bounds. The scalar e regularises the multipliers of c about their current values, which does not
    # affect the solution. A larger scalar replaces s/w for pinned inequalities. During restoration, which minimises
    # (|c|^2 + |g + s|^2) / 2, the matrix is [S + delta I, A^T, G^T; A, -I, 0; G, 0, -I - s/w].
    dtype, mu, restoring = p.x.dtype, judge.inner, judge.restoring
    below, above = bounds.gaps(p.x)
    low, high = bounds.multipliers(p.low, p.high)
    pull = mu * (jnp.where(bounds.has_lower, 1 / below, 0.0) - jnp.where(bounds.has_upper, 1 / above, 0.0))
    newton = jnp.where(restoring, 0.0, 1.0).astype(dtype)
    soft = jnp.where(restoring, 1.0, jnp.sqrt(jnp.finfo(dtype).eps)).astype(dtype)
    s, w, one = bounds.slacks(p.s), jnp.where(bounds.pinned, 1.0, p.w), jnp.ones((), dtype)
    softer = jnp.where(restoring, one, jnp.finfo(dtype).eps ** SOFT * one)
    weights = jnp.where(bounds.pinned, 1 / softer, w / (s + (1 - newton) * w))
    # the new multipliers are weights (g + s + G dx + shift)
    shift = jnp.where(bounds.pinned, newton * softer * p.w, mu / w)
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
        """The Newton step, which zeroes c and h to first order and minimises a model of the barrier function or merit."""
        r1 = pull * bounds.free - newton * at.gradient
        r1 = r1 - program.transposed(at, jnp.zeros_like(p.y), weights * (h + shift))
        r2 = -c - newton * soft * p.y

        def refine(_, carry):
            dx, y = carry
            w_dx, a_dx, g_dx = program.times(at, dx)
            left = r1 - newton * w_dx - diagonal * dx - program.transposed(at, y, weights * g_dx)
            more, more_y = program.solve(factors, left, r2 - a_dx + soft * y)
            return dx + more, y + more_y

        dx, y = jax.lax.fori_loop(0, 3, refine, (jnp.zeros_like(p.x), jnp.zeros_like(p.y)))
        moved = h + program.slopes(at, dx)[2]
        w = weights * (moved + shift)
        ds = jnp.where(bounds.pinned, 0.0, (1 - newton) * w - moved)
        d_low = jnp.where(bounds.has_lower, mu / below - p.low - p.low / below * dx, 0.0)
        d_high = jnp.where(bounds.has_upper, mu / above - p.high + p.high / above * dx, 0.0)
        return Direction(dx, ds, y, w - p.w, d_low, d_high)

    def slope(step):
        _, c, g = at.values
        _, a_dx, g_dx = program.slopes(at, step.dx)
        of_f = jnp.where(restoring, c @ a_dx + (g + p.s) @ (g_dx + step.ds), at.gradient @ step.dx)
        return of_f - pull @ step.dx - mu * (step.ds / s).sum()

    return Newton(good, delta, direction, slope)


def search(
    program: Program, bounds: Bounds, p: Point, at: Any, newton: Newton, judge: Judge
) -> tuple[Direction, Trial]:
    """Backtrack until a step is accepted; if the full step is rejected, first try a second-order correction."""
    f, c, g = at.values
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
        # `alpha` and `slope` are those of the decrease test, also for a correction of another length
        attempt = along, jnp.where(correcting, whole, alpha), alpha, slope
        return count + 1, alpha, slope, step, _tried(program, bounds, p, here, newton.good, judge, attempt)

    zero, no = jnp.zeros((), p.x.dtype), jnp.zeros((), bool)
    step = Direction(*map(jnp.zeros_like, p))
    trial = Trial(zero, p.x, p.s, c, h, zero, zero, no, no)
    start = (jnp.zeros((), jnp.int32), zero, zero, step, trial)
    *_, step, trial = jax.lax.while_loop(lambda carry: ~carry[-1].accepted & (carry[0] < TRIES), turn, start)
    return step, trial


def _tried(program: Program, bounds: Bounds, p: Point, here: tuple, good: Array, judge: Judge, attempt: tuple) -> Trial:
    """Evaluate an attempt, and accept it if it passes the filter and reduces theta or phi enough (or restoration's merit)."""
    (along, length, alpha, slope), (theta, phi, psi), small = attempt, here, jnp.finfo(p.x.dtype).eps
    # infeasibility at the level of rounding errors
    level = 100 * small * jnp.sqrt(1.0 * p.x.size) * (1 + jnp.abs(p.x).max(initial=0.0))
    x = p.x + length * along.dx
    f, c, g = program.evaluate(x)
    # raising s to -g lowers both theta and the barrier function
    s = jnp.where(bounds.pinned, 0.0, jnp.maximum(p.s + length * along.ds, -g))
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


KAPPA = 10.0  # each barrier problem is solved to the tolerance KAPPA mu
LARGE = 100.0  # residuals are divided by (mean multiplier / LARGE), clipped to the range from 1 to LARGE
REACH = 1e10  # multipliers of inequalities and bounds are kept within this factor of mu / distance


class InteriorPointResult(NamedTuple):
    """The result of `interior_point`, which describes it."""

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


HISTORY = ("cost", "infeasibility", "stationarity", "barrier", "step")


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

    A primal-dual method with a filter line search (Waechter & Biegler 2006) and dense matrices, O(n^3) per iteration, for up to
    a few hundred unknowns. JAX computes all derivatives, including the exact Hessian of the Lagrangian. `jax.jit`, `jax.vmap`
    and `jax.jvp` are supported; reverse mode is not. Unknowns with equal bounds are fixed. Inequalities with nothing in
    between, such as x <= 1 and x >= 1, must be given as an equality.

    Args:
        x: initial guess; it is moved inside the bounds.
        tolerance: tolerance for the largest Karush-Kuhn-Tucker residual; None: 1e-8, or 1e-4 in float32. The residuals of
            stationarity and complementarity are first divided by a hundredth of the mean multiplier, clipped to the range
            from 1 to 100.
        barrier: initial barrier parameter mu; use a small value, for example 1e-4, if the guess is near the solution.

    Returns:
        - x: final iterate.
        - status: a `Status` as an integer; x is a solution only if it is CONVERGED.
        - cost: f(x).
        - equality_multipliers: y, in the Lagrangian f + y . c + w . g.
        - inequality_multipliers: w >= 0.
        - lower_multipliers, upper_multipliers: multipliers of the bounds, positive.
        - stationarity: largest absolute entry of the gradient of the Lagrangian.
        - infeasibility: largest violation of a constraint.
        - complementarity: largest product of a multiplier and its slack or distance to a bound.
        - history: "cost", "infeasibility", "stationarity", "barrier" (mu) and "step" of each iteration; NaN after the last.
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
    bounds = bounds_of(program, lower, upper, shapes[2].shape)
    x = _inside(x, bounds)
    if tolerance is None:
        tolerance = 1e-8 if jnp.finfo(dtype).eps < 1e-10 else 1e-4
    mu = jnp.asarray(barrier, dtype)
    y, s = (jnp.zeros(shape.shape, dtype) for shape in shapes[1:])
    below, above = bounds.gaps(x)
    point = Point(x, s, y, s, mu / below, mu / above)  # slacks and their multipliers are set in the first iteration
    status = jnp.where((lower <= upper).all(), RUNNING, Status.CONTRADICTORY_LIMITS)
    number = lambda value: jnp.asarray(value, dtype)
    zero, far, none = number(0.0), number(jnp.inf), jnp.zeros((), jnp.int32)
    state = _State(
        point=point,
        cost=number(jnp.nan),
        mu=mu,
        filter=jnp.full((max_iterations + 1, 2), jnp.inf, dtype),
        worst=far,
        **dict.fromkeys(("delta", "floor", "entry", "inner", "damping"), zero),
        **dict.fromkeys(("slow", "iteration"), none),
        restoring=jnp.zeros((), bool),
        status=status.astype(jnp.int32),
        residuals=jnp.full(3, jnp.inf, dtype),
        history={name: jnp.full(max_iterations, jnp.nan, dtype) for name in HISTORY},
    )
    body = lambda state: _iterate(program, bounds, state, number(tolerance), max_iterations)
    state = jax.lax.while_loop(lambda state: state.status == RUNNING, body, state)
    p = state.point
    low, high = bounds.multipliers(p.low, p.high)
    stationarity, violated, products = (state.residuals[i] for i in range(3))
    multipliers = p.y, p.w, low, high, p.s
    measures = stationarity, violated, products, state.iteration, state.history
    return InteriorPointResult(p.x, state.cost, *multipliers, state.status, *measures)


def _inside(x: Array, bounds: Bounds) -> Array:
    """The guess, moved inside the bounds by at most a hundredth of their distance or of max(1, |bound|)."""
    lower, upper, has_lower, has_upper = bounds.lower, bounds.upper, bounds.has_lower, bounds.has_upper
    span = jnp.where(has_lower & has_upper, 1e-2 * (upper - lower), jnp.inf)
    push = lambda bound: jnp.minimum(1e-2 * jnp.maximum(1.0, jnp.abs(bound)), span)
    x = jnp.where(has_lower, jnp.maximum(x, lower + push(jnp.where(has_lower, lower, 0.0))), x)
    x = jnp.where(has_upper, jnp.minimum(x, upper - push(jnp.where(has_upper, upper, 0.0))), x)
    fixed = jnp.isfinite(lower) & jnp.isfinite(upper)
    return jnp.where(bounds.free > 0, x, jnp.where(fixed, (lower + upper) / 2, x))  # also for contradictory bounds


def _iterate(program: Program, bounds: Bounds, state: _State, tolerance: Array, max_iterations: int) -> _State:
    """Check the optimality conditions, and take one step if they are not satisfied."""
    p, first = state.point, state.iteration == 0
    at = program.linearise(p.x, p.y, p.w, bounds.free)
    f, c, g = at.values
    s = jnp.where(first, jnp.where(bounds.pinned, 0.0, jnp.maximum(jnp.abs(g), 1e-2)), p.s)
    p = p._replace(s=s, w=jnp.where(first & ~bounds.pinned, state.mu / bounds.slacks(s), p.w))
    # theta_max of Waechter & Biegler (2006): iterates may become less feasible, but not without bound
    worst = jnp.where(first, 1e4 * jnp.maximum(1.0, infeasibility(c, g + s)), state.worst)
    gradient = at.gradient + program.transposed(at, p.y, p.w)
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
    for _ in range(3):  # mu may fall several times per step, from 0.1 to 1.5e-4 in three
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
    _, c, g = at.values
    step, trial = search(program, bounds, p, at, newton, judge)
    theta, phi = infeasibility(c, g + p.s), barrier_function(bounds, p.x, p.s, state.cost, mu)
    taken, feasible = trial.accepted, theta <= jnp.sqrt(jnp.finfo(p.x.dtype).eps)
    failed = ~taken & ~restoring
    enters = failed & ~feasible
    # kappa_resto of Waechter & Biegler (2006): unless a tenth is gained, the same step could fail again
    leaves = restoring & taken & (trial.theta <= 0.9 * state.entry) & passes(state.filter, trial.theta, trial.phi)
    nu = 0.01 * theta * jnp.maximum(mu, 0.1 * theta)  # small relative to the infeasibility, but not to mu
    point = _stepped(bounds, p, step, trial, judge.inner, leaves | enters, jnp.where(leaves, mu, nu))
    none = restoring | enters
    point = point._replace(y=jnp.where(none, 0.0, point.y), w=jnp.where(none & bounds.pinned, 0.0, point.w))

    damping = jnp.where(trial.length >= 0.5, state.damping / 4, 4 * state.damping)
    damping = jnp.clip(jnp.where(taken, damping, 10 * state.damping), 1e-8, 1e8)
    slow = jnp.where(~taken, state.slow + 1, 0)
    stuck = restoring & _is_stuck(program, bounds, p, at)
    # after eight rejections in a row, each with ten times the damping, steps are at the level of rounding
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
    """The iterate after a trial; `anew` resets multipliers to `barrier` / distance at the start or end of a restoration."""
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
    _, c, g = at.values
    violated, small = bounds.violated(g), jnp.finfo(p.x.dtype).eps
    push = program.transposed(at, c, violated) * bounds.free
    projected = jnp.abs(p.x - jnp.clip(p.x - push, bounds.lower, bounds.upper)) * bounds.free
    violation = infeasibility(c, violated)
    return (projected.max(initial=0.0) <= small**0.25 * violation) & (violation > small**0.4)


def _next_inner(program: Program, bounds: Bounds, p: Point, at: Any, inner: Array) -> Array:
    """The next barrier parameter of the restoration, reduced if the optimality conditions are nearly satisfied."""
    _, c, g = at.values
    low, high = bounds.multipliers(p.low, p.high)
    w = jnp.where(bounds.pinned, g, p.w)
    off = jnp.abs((program.transposed(at, c, w) - low + high) * bounds.free).max(initial=0.0)
    off = jnp.maximum(off, jnp.abs(g + p.s - w).max(initial=0.0))
    off = jnp.maximum(off, _products_off(bounds, p, inner))
    return jnp.where(off <= KAPPA * inner, 0.1 * inner, inner)


Posed = tuple[Program, Array, Array, Array]  # (program with an exact Hessian, guess, lower bounds, upper bounds)
_MULTIPLIERS = ("equality_multipliers", "inequality_multipliers", "lower_multipliers", "upper_multipliers")
DIFFERENTIABLE = ("x", *_MULTIPLIERS, "cost")
ROUNDS = 10  # number of iterative-refinement steps, which remove the effect of the regularisation


class _Conditions(NamedTuple):
    """The optimality conditions at constant unknowns and multipliers; `x` contains the unknowns fixed by equal bounds."""

    gradient: Array
    equality: Array
    inequality: Array
    cost: Array
    lower: Array
    upper: Array
    x: Array


def differentiable(
    pose: Callable[[PyTree], Posed], parameters: PyTree, result: InteriorPointResult
) -> InteriorPointResult:
    """Make a result differentiable with respect to the parameters, once, through the conditions of the last barrier problem:

        grad f + A^T y + G^T w - low + high = 0,   c = 0,   w s = mu,   low (x - lower) = mu,   high (upper - x) = mu.

    By the implicit function theorem, [W + D + G^T (w/s) G, A^T; A, 0] (dx, dy) = -(change of the conditions at fixed x, y). At
    a kink, the result lies between the one-sided derivatives. It is NaN if the minimum is not strict.
    """
    leaves, rest = eqx.partition(parameters, eqx.is_inexact_array)
    result = jax.lax.stop_gradient(result)

    @jax.custom_jvp
    def found(leaves: Any, result: InteriorPointResult) -> tuple[Array, ...]:
        del leaves
        return tuple(getattr(result, name) for name in DIFFERENTIABLE)

    def rule(primals, tangents):
        leaves, result = primals
        posed = lambda leaves: pose(eqx.combine(leaves, rest))
        return found(leaves, result), _tangent(posed, leaves, result, tangents[0])

    found.defjvp(rule, symbolic_zeros=True)
    return result._replace(**dict(zip(DIFFERENTIABLE, found(leaves, result), strict=True)))


def solve_conditions(
    program: Program, at: Any, diagonal: Array, weights: Array, right: tuple[Array, Array]
) -> tuple[Array, Array]:
    """Solve [W + diag(diagonal) + G^T diag(weights) G, A^T; A, 0] (dx, dy) = right, with iterative refinement."""
    one = jnp.ones((), diagonal.dtype)
    factors = program.factor(at, one, diagonal, weights, jnp.sqrt(jnp.finfo(diagonal.dtype).eps))

    def product(unknowns):
        dx, dy = unknowns
        w_dx, a_dx, g_dx = program.times(at, dx)
        return w_dx + diagonal * dx + program.transposed(at, dy, weights * g_dx), a_dx

    def solve(_, right):
        def refine(_, found):
            wrong = jax.tree.map(jnp.subtract, right, product(found))
            return jax.tree.map(jnp.add, found, program.solve(factors, *wrong))

        return jax.lax.fori_loop(0, ROUNDS, refine, jax.tree.map(jnp.zeros_like, right))

    # JAX can transpose a linear solve only if every part of the right-hand side depends on the argument
    tie = 0 * sum(part.sum() for part in right)
    return jax.lax.custom_linear_solve(product, (right[0] + tie, right[1] + tie), solve, symmetric=True)


def _tangent(pose, leaves, result: InteriorPointResult, change) -> tuple[Array, ...]:
    x, y, w = result.x, result.equality_multipliers, result.inequality_multipliers
    program, _, lower, upper = pose(leaves)
    bounds = bounds_of(program, lower, upper, w.shape)
    held = bounds.free == 0

    def conditions(leaves):
        program, _, lower, upper = pose(leaves)
        inside = jnp.where(held, jnp.where(held, lower, 0.0) / 2 + jnp.where(held, upper, 0.0) / 2, x)

        def lagrangian(x):
            f, c, g = program.evaluate(x)
            return f + y @ c + w @ g, (f, c, g)

        gradient, (f, c, g) = jax.grad(lagrangian, has_aux=True)(inside)
        only = lambda there, bound: jnp.where(there, bound, 0.0)
        return _Conditions(
            gradient, c, g, f, only(bounds.has_lower, lower), only(bounds.has_upper, upper), only(held, inside)
        )

    _, off = sparse_jvp(conditions, (leaves,), (change,))
    at = program.linearise(x, y, w, bounds.free)
    below, above = bounds.gaps(x)
    low, high = bounds.multipliers(result.lower_multipliers, result.upper_multipliers)
    # larger weights would not improve the accuracy at active constraints, but would cause cancellation in reverse mode
    most = jnp.finfo(x.dtype).eps ** -0.5
    stiff = lambda multiplier, distance: jnp.minimum(multiplier / distance, most)
    weights, from_lower, from_upper = stiff(w, bounds.slacks(result.slacks)), stiff(low, below), stiff(high, above)
    weights = jnp.where(bounds.pinned, most, weights)
    diagonal = (from_lower + from_upper) * bounds.free + (1 - bounds.free)
    pull = from_lower * off.lower + from_upper * off.upper - off.gradient
    right = (pull * bounds.free - program.transposed(at, jnp.zeros_like(y), weights * off.inequality), -off.equality)
    dx, dy = solve_conditions(program, at, diagonal, weights, right)
    _, _, g_dx = program.slopes(at, dx)
    d_low, d_high = from_lower * (off.lower - dx), from_upper * (dx - off.upper)
    cost = off.cost + at.gradient @ dx
    return dx + off.x, dy, weights * (g_dx + off.inequality), d_low, d_high, cost

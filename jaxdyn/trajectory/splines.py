"""Optimal control with B-splines: control points of q are the unknowns, and inverse dynamics determines the torques.

    q(t) = sum_i P_i B_i(t / T),  v = q',  a = q'',  tau = ID(q, v, a) + passive forces

Every such motion satisfies the dynamics, so there are no defects. Costs, constraints and limits are evaluated at the problem's
N + 1 knots (Bobrow, Martin, Sohl, Wang, Park & Kim 2001). The duration T may be free. The unknowns x are the control points P
and T. Knot k depends on y_k = (q, q', q'', d3q, T) = S_k x, where primes (and d3q, the third) are derivatives by t / T;
gradients and Hessians are computed with respect to y_k and mapped to x by S_k^T.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree
from scipy import interpolate

from .._jax_compat import Tracer
from ..dynamics.wrenches import ground_reaction
from ..errors import TrajectoryError
from .collocation import (
    HessianKind,
    TorqueRows,
    check_transcribable,
    drive_torque,
    guessed_motion,
    path_rows,
    pinned_rows,
    rows_that_count,
    solve_transcribed,
    torque_jacobian,
    torque_rows,
    transcribed_solution,
)
from .constraints import coincide
from .costs import Knot
from .nonlinear_program import (
    Inner,
    Part,
    Pivot,
    Program,
    along_rows,
    dense_factor,
    dense_solve,
    with_slopes,
    with_values,
)
from .problem import (
    OptimalControlProblem,
    Solution,
    Trajectory,
    constraint_values,
    knot_dependence,
    resting_torque,
    running_cost,
    terminal_cost,
)


class SplineLinearisation(NamedTuple):
    """Values, gradient and Jacobian of the equalities with respect to x, and all other derivatives with respect to y_k."""

    values: tuple[Array, Array, Array]
    gradient: Float[Array, " n"]
    equality: Float[Array, "m n"]
    inequality: Float[Array, "S r y"]
    first: Float[Array, "rf y"]
    last: Float[Array, "rl y"]
    hessian: Float[Array, "S y y"]
    free: Float[Array, " n"]


class SplineProgram(Program):
    """A sum over knots, with additional terms for the first and the last knot; rows of all knots precede those of the ends."""

    basis: Float[Array, "d S k"]  # values of the splines and of their derivatives at the knots
    data: PyTree
    inner: Inner = eqx.field(static=True)  # expensive intermediate values u of a knot, such as torques
    knot: Callable[[Any, Array, Array], Part] = eqx.field(static=True)  # (data of a knot, y, u) -> part
    first: Callable[[Array], Part] = eqx.field(static=True)  # y of the first knot -> additional part
    last: Callable[[Array, Array], Part] = eqx.field(static=True)  # (y, u) of the last knot -> additional part
    joints: int = eqx.field(static=True)  # entries of a control point

    def seen(self, x: Float[Array, " n"]) -> Float[Array, "S y"]:
        """y_k at every knot."""
        control = x[:-1].reshape(-1, self.joints)
        parts = jnp.einsum("dsk,kj->sdj", self.basis, control)
        count = self.basis.shape[1]
        return jnp.concatenate([parts.reshape(count, -1), jnp.broadcast_to(x[-1:], (count, 1))], axis=1)

    def gathered(self, y: Float[Array, "S y"]) -> Float[Array, " n"]:
        """The sum over k of S_k^T y_k."""
        d, count, _ = self.basis.shape
        control = jnp.einsum("dsk,sdj->kj", self.basis, y[:, :-1].reshape(count, d, self.joints))
        return jnp.concatenate([control.reshape(-1), y[:, -1].sum()[None]])

    def _rows(self, jacobian: Float[Array, "s r y"], knots: slice = slice(None)) -> Float[Array, "rows n"]:
        """Convert Jacobian rows with respect to y_k at some knots into rows with respect to x."""
        basis, (count, r, _) = self.basis[:, knots], jacobian.shape
        parts = jacobian[:, :, :-1].reshape(count, r, basis.shape[0], self.joints)
        control = jnp.einsum("dsk,srdj->srkj", basis, parts).reshape(count * r, basis.shape[2] * self.joints)
        return jnp.concatenate([control, jacobian[:, :, -1].reshape(-1, 1)], axis=1)

    def evaluate(self, x: Float[Array, " n"]) -> tuple[Array, Array, Array]:
        y = self.seen(x)
        u = jax.vmap(self.inner.value)(y)
        return self._sums(jax.vmap(self.knot)(self.data, y, u), self.first(y[0]), self.last(y[-1], u[-1]))

    def _sums(self, at: Part, first: Part, last: Part) -> tuple[Array, Array, Array]:
        join = lambda name: jnp.concatenate([getattr(at, name).reshape(-1), getattr(first, name), getattr(last, name)])
        return at.cost.sum() + first.cost + last.cost, join("equality"), join("inequality")

    def linearise(self, x: Array, y: Array, w: Array, free: Array) -> SplineLinearisation:
        """Compute Jacobians with respect to y_k in forward mode, and Hessians in forward-over-reverse mode."""
        seen = self.seen(x)
        n = seen.shape[1]
        joined, along = self.inner.joined(seen)
        knot, end = lambda data, e: self.knot(data, e[:n], e[n:]), lambda e: self.last(e[:n], e[n:])
        at, values = jax.vmap(with_values(knot, 1))(self.data, joined)
        at = along_rows(at, along)
        first, first_values = with_values(self.first)(seen[0])
        last, last_values = with_values(end)(joined[-1])
        last = jax.tree.map(lambda rows: rows @ along[-1], last)
        gradient = self.gathered(at.cost.at[0].add(first.cost).at[-1].add(last.cost))
        ends = self._rows(first.equality[None], slice(0, 1)), self._rows(last.equality[None], slice(-1, None))
        equality = jnp.concatenate([self._rows(at.equality), *ends]) * free[None]

        own, of_first, of_last = self.split(y, at.equality.shape[1], len(first.equality))
        below, below_first, below_last = self.split(w, at.inequality.shape[1], len(first.inequality))
        of_knot = with_slopes(lambda e, data, y, w: knot(data, e).lagrangian(y, w))
        outer, slopes = jax.vmap(of_knot)(joined, self.data, own, below)
        outer_end, slopes_end = with_slopes(lambda e: end(e).lagrangian(of_last, below_last))(joined[-1])
        outer, slopes = outer.at[-1].add(outer_end), slopes.at[-1].add(slopes_end)
        hessian = along.mT @ outer @ along
        if self.inner.exact:
            hessian = hessian + self.inner.curvature(seen, slopes)
        at_first = lambda y: self.first(y).lagrangian(of_first, below_first)
        hessian = hessian.at[0].add(jax.jacfwd(jax.grad(at_first))(seen[0]))
        values, hessian = self._sums(values, first_values, last_values), (hessian + hessian.mT) / 2
        return SplineLinearisation(
            values, gradient * free, equality, at.inequality, first.inequality, last.inequality, hessian, free
        )

    def split(self, values: Array, own: int, first: int) -> tuple[Array, Array, Array]:
        """Split a vector into the values of all knots (one row each) and the additional values of the first and last knot."""
        count = self.basis.shape[1]
        at, of_first, of_last = jnp.split(values, [count * own, count * own + first])
        return at.reshape(count, own), of_first, of_last

    def gradient(self, at: SplineLinearisation) -> Float[Array, " n"]:
        return at.gradient

    def times(self, at: SplineLinearisation, dx: Array) -> tuple[Array, Array, Array]:
        dx = dx * at.free
        seen = self.seen(dx)
        curved = self.gathered(jnp.einsum("syz,sz->sy", at.hessian, seen)) * at.free
        below = jnp.einsum("sry,sy->sr", at.inequality, seen).reshape(-1)
        return curved, at.equality @ dx, jnp.concatenate([below, at.first @ seen[0], at.last @ seen[-1]])

    def transposed(self, at: SplineLinearisation, y: Array, w: Array) -> Array:
        below, first, last = self.split(w, at.inequality.shape[1], len(at.first))
        seen = jnp.einsum("sry,sr->sy", at.inequality, below)
        seen = seen.at[0].add(at.first.T @ first).at[-1].add(at.last.T @ last)
        return at.equality.T @ y + self.gathered(seen) * at.free

    def curvature(self, at: SplineLinearisation) -> Float[Array, ""]:
        """An estimate of the largest absolute entry of W."""
        return jnp.abs(self._matrix(at.hessian)).max()

    def _matrix(self, hessian: Float[Array, "S y y"]) -> Float[Array, "n n"]:
        """The sum over k of S_k^T H_k S_k."""
        d, count, _ = self.basis.shape
        n = self.joints
        inner = hessian[:, :-1, :-1].reshape(count, d, n, d, n)
        half = jnp.einsum("dsa,sdjel->sajel", self.basis, inner)
        control = jnp.einsum("sajel,esb->ajbl", half, self.basis).reshape(self.basis.shape[2] * n, -1)
        across = jnp.einsum("dsa,sdj->aj", self.basis, hessian[:, :-1, -1].reshape(count, d, n)).reshape(-1)
        corner = hessian[:, -1, -1].sum()[None]
        upper = jnp.concatenate([control, across[:, None]], axis=1)
        return jnp.concatenate([upper, jnp.concatenate([across, corner])[None]])

    def factor(self, at: SplineLinearisation, share: Array, diagonal: Array, weights: Array, delta: Array) -> Pivot:
        below, first, last = self.split(weights, at.inequality.shape[1], len(at.first))
        hessian = share * at.hessian + jnp.einsum("sry,sr,srz->syz", at.inequality, below, at.inequality)
        hessian = hessian.at[0].add(at.first.T @ (first[:, None] * at.first))
        hessian = hessian.at[-1].add(at.last.T @ (last[:, None] * at.last))
        matrix = self._matrix(hessian) * (at.free[:, None] * at.free[None]) + jnp.diag(diagonal)
        return dense_factor(matrix, at.equality, share * self.curvature(at), delta)

    def solve(self, factors: Pivot, r1: Array, r2: Array) -> tuple[Array, Array]:
        return dense_solve(factors, r1, r2)


def spline_basis(intervals: int, degree: int, times: Float[np.ndarray, " times"]) -> Float[np.ndarray, "4 times k"]:
    """Values of all B-splines with uniform, clamped knots on [0, 1], and of their first three derivatives."""
    knots = np.concatenate([np.zeros(degree), np.linspace(0, 1, intervals + 1), np.ones(degree)])
    spline = interpolate.BSpline(knots, np.eye(intervals + degree), degree)
    return np.stack([spline.derivative(d)(times) if d else spline(times) for d in range(4)])


class _Data(NamedTuple):
    """The data of a knot."""

    k: Array
    weight: Array  # weight of the knot in the integral, in units of the time step
    active: tuple[Array, Array]  # 1 for enforced constraints, else 0


def solve_by_inverse_dynamics(
    problem: OptimalControlProblem,
    guess: Trajectory | None = None,
    *,
    intervals: int | None = None,
    degree: int = 5,
    hessian: HessianKind = "gauss_newton",
    tolerance: float | None = None,
    max_iterations: int = 200,
    barrier: float | Float[Array, ""] = 0.1,
) -> Solution:
    """Find the B-spline motion of minimum cost, with torques from inverse dynamics, by the interior-point method.

    Costs are integrated by the trapezoidal rule over the problem's knots. Constraints and limits are imposed at the knots, and
    are satisfied only approximately in between. With k = intervals + degree control points, the linear algebra of an iteration
    costs O((nv k)^3), independent of the number of steps. Equal lower and upper torque limits prescribe a torque at the knots,
    which needs as many control points as there are prescribed torques; in general, no spline keeps a torque at zero at all
    times. The problem's `method` is ignored. Arguments not listed are those of `solve_by_collocation`.

    Args:
        intervals: number of intervals between the spline's knots; None: a quarter of the steps, clipped to the range from 4
            to 30.

    Returns:
        The solution, with torques averaged over each step, once differentiable with respect to the problem's leaves. The
        residual `dynamics` is the error of the initial velocity, whose multipliers are "start".

    Raises:
        TrajectoryError: the robot has spherical or free joints; the spline has too few control points for prescribed torques
            (if the limits are traced, the status is INFEASIBLE instead); `intervals` is less than 1; `degree` is less than 3;
            or `hessian` is unknown.
    """
    check_transcribable(problem)
    intervals = min(max(4, problem.steps // 4), 30) if intervals is None else intervals
    if intervals < 1 or degree < 3:
        raise TrajectoryError(f"intervals={intervals} must be at least 1, and degree={degree} at least 3")
    _check_prescribed(problem, intervals + degree)
    form_of = lambda problem, exact, like: _Form(problem, intervals, degree, exact, like)
    return solve_transcribed(form_of, problem, guess, hessian, tolerance, max_iterations, barrier)


def _check_prescribed(problem: OptimalControlProblem, count: int) -> None:
    """Raise TrajectoryError if a spline with `count` control points cannot have the torques that equal limits prescribe."""
    limits = problem.torque_limits
    if limits is None or isinstance(limits, Tracer):
        return
    fixed, nv = np.flatnonzero(coincide(limits[:, 0], limits[:, 1])), problem.chain.nv
    knots = problem.steps + 1
    if len(fixed) * knots > nv * (count - 2):
        raise TrajectoryError(
            f"the torques in rows {fixed.tolist()} of torque_limits are prescribed (equal limits) at {knots} knots, but the "
            f"spline has only {count} control points per joint",
            "use solve_by_collocation or solve_by_shooting, or pass more intervals, for example {intervals}",
            intervals="problem.steps",
        )


class _Form:
    """The spline program of one problem: the layout of the unknowns, and the contributions of its knots to the program."""

    def __init__(
        self, problem: OptimalControlProblem, intervals: int, degree: int, exact: bool, like: TorqueRows | None = None
    ):
        self.problem, self.steps = problem, problem.steps
        self.torques = torque_rows(problem, like)
        self.inner = Inner(self.torques_at, self.torques_jacobian, exact)
        self.orders = 4 if problem.has_torque_rate else 3
        constraints = (*problem.constraints, *problem.terminal_constraints)
        self.grounded = any(knot_dependence(problem, c, True).ground.any() for c in constraints)
        self.basis = spline_basis(intervals, degree, np.linspace(0, 1, problem.steps + 1))

    def motion(self, y: Array) -> list[Array]:
        """q and its derivatives with respect to time."""
        parts = jnp.split(y[:-1], self.orders)
        return [part / y[-1] ** order for order, part in enumerate(parts)]

    def torques_at(self, y: Array) -> Array:
        """The torques and, if a cost or constraint needs them, their rates and the ground wrench."""
        torque = partial(drive_torque, self.problem.chain)
        q, v, a, *jerk = self.motion(y)
        parts = jax.jvp(torque, (q, v, a), (v, a, *jerk)) if jerk else (torque(q, v, a),)
        ground = (ground_reaction(self.problem.chain, q, v, a),) if self.grounded else ()
        return jnp.concatenate([*parts, *ground])

    def torques_jacobian(self, y: Array) -> Array:
        """The Jacobian of `torques_at` with respect to y; the rows of the torques are analytic unless rates are needed."""
        if self.orders > 3:
            return jax.jacfwd(self.torques_at)(y)
        rates = jax.jacfwd(lambda y: jnp.concatenate(self.motion(y)))(y)
        rows = torque_jacobian(self.problem.chain, *self.motion(y)) @ rates
        if not self.grounded:
            return rows
        of_ground = jax.jacfwd(lambda y: ground_reaction(self.problem.chain, *self.motion(y)))(y)
        return jnp.concatenate([rows, of_ground])

    def knot_of(self, k: Array, y: Array, u: Array) -> Knot:
        """The argument of costs and constraints."""
        n, h = self.problem.chain.nv, y[-1] / self.steps
        q, v, *_ = self.motion(y)
        tau = before = u[:n]
        if self.orders > 3:
            before = jnp.where(k < 0.5, resting_torque(self.problem), tau - h * u[n : 2 * n])
        ground = u[-6:] if self.grounded else None
        return Knot(jax.lax.stop_gradient(k).astype(jnp.int32), k * h, q, v, tau, before, h, ground)

    def at_knot(self, data: _Data, y: Array, u: Array) -> Part:
        """The contribution of a knot to the integral, and its constraints."""
        knot = self.knot_of(data.k, y, u)
        equal, below = path_rows(self.problem, self.torques, knot)
        cost = data.weight * knot.dt * running_cost(self.problem, knot)
        return Part(cost, data.active[0] * equal, data.active[1] * below - (1 - data.active[1]))

    def at_start(self, y: Array) -> Part:
        """The condition on the initial velocity."""
        n = self.problem.chain.nv
        return Part(jnp.zeros((), y.dtype), y[n : 2 * n] - y[-1] * self.problem.v0, jnp.zeros(0, y.dtype))

    def at_end(self, y: Array, u: Array) -> Part:
        """The terminal cost and constraints."""
        problem = self.problem
        knot = self.knot_of(jnp.asarray(1.0 * self.steps, y.dtype), y, u)
        equal, below = constraint_values(problem.terminal_constraints, problem.chain, knot)
        cost = terminal_cost(problem, knot) + problem.duration_weight * y[-1]
        return Part(cost, equal, below)

    def program(self, guess: Trajectory | None) -> tuple[SplineProgram, Array, Array, Array]:
        """The program, its initial guess and its bounds."""
        problem, count = self.problem, self.steps + 1
        dtype, n = problem.q0.dtype, problem.chain.nv
        motion, duration = guessed_motion(problem, guess, jnp.linspace(0, 1, count, dtype=dtype))
        basis = self.basis[: self.orders]
        # least-squares fit to the positions of the guess and, with weight 0.1, to its velocities times the duration
        rows = np.concatenate([basis[0], 0.1 * basis[1], 1e-4 * np.eye(basis.shape[2])])
        wanted = jnp.concatenate([motion.q, 0.1 * duration * motion.v, jnp.zeros((basis.shape[2], n), dtype)])
        control = jnp.asarray(np.linalg.pinv(rows), dtype) @ wanted
        control = control.at[0].set(problem.q0)
        x = jnp.concatenate([control.reshape(-1), duration[None]])
        lower = jnp.full_like(x, -jnp.inf).at[:n].set(problem.q0)
        upper = jnp.full_like(x, jnp.inf).at[:n].set(problem.q0)
        limits = problem.duration_limits
        limits = jnp.stack([duration, duration]) if limits is None else limits
        lower, upper = lower.at[-1].set(limits[0]), upper.at[-1].set(limits[1])
        ends = np.ones(count)
        ends[[0, -1]] = 0.5
        active = rows_that_count(problem, self.torques, grounded=self.grounded)
        data = _Data(jnp.arange(count, dtype=dtype), jnp.asarray(ends, dtype), active)
        basis = jnp.asarray(basis, dtype)
        own, end = pinned_rows(problem, self.torques, active[1])
        pinned = jnp.concatenate([own.reshape(-1), end])
        program = SplineProgram(basis, data, self.inner, self.at_knot, self.at_start, self.at_end, n, pinned=pinned)
        return program, x, lower, upper

    def solution(self, program: SplineProgram, result) -> Solution:
        """Convert a result of the interior-point method to a `Solution`."""
        seen = program.seen(result.x)
        knots = jax.vmap(self.knot_of)(program.data.k, seen, jax.vmap(self.torques_at)(seen))
        trajectory = Trajectory(knots.t, knots.q, knots.v, (knots.tau[:-1] + knots.tau[1:]) / 2)
        equal, below = (active.shape[1] for active in program.data.active)
        own, start, end = program.split(result.equality_multipliers, equal, self.problem.chain.nv)
        below, _, below_end = program.split(result.inequality_multipliers, below, 0)
        multipliers = {
            "equality": own,
            "inequality": below,
            "start": start,
            "terminal_equality": end,
            "terminal_inequality": below_end,
        }
        defect = jnp.abs(knots.v[0] - self.problem.v0).max()
        return transcribed_solution(self.problem, trajectory, result, defect, multipliers)

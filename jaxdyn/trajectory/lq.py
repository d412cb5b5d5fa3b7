"""Linear-quadratic problems, their optimal policies, and the linear-quadratic model of a problem around a motion.

Policies come from the Riccati recursion, with bounds on the controls. Shooting solves one such problem in every iteration. With
bounds, each knot needs a small box-constrained quadratic program, solved by projected Newton steps. Loops over knots run as one
kernel for a batch (`lanes`).

The objective of shooting is the cost plus the augmented Lagrangian of the constraints, which it does not enforce directly. A
constraint c with multiplier m and penalty weight rho adds rho/2 |c + m/rho|^2; for inequalities c <= 0, only the positive part
of c + m/rho is squared. The derivative of this term with respect to c is the multiplier of the next round: m + rho c for
equalities, max(0, m + rho c) for inequalities (Hestenes 1969; Powell 1969; Nocedal & Wright 2006, sec. 17.3).
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..contact import ContactState, contact_step_derivatives
from ..dynamics import forward_dynamics_derivatives, friction_force, resistive_force
from ..dynamics.derivatives import derivatives_at_qdd
from ..dynamics.engine.lanes import by_batch, loop_by_batch, unrolls_loops
from ..dynamics.engine.matrices import by_row, mask_like, matrix_times, product, row_times, size_of_products
from ..model.chain import Chain, is_ordinary
from ..model.compiled import checked
from ..model.configuration import difference, integrate
from .constraints import Constraint
from .costs import Cost, Knot
from .problem import (
    OptimalControlProblem,
    Trajectory,
    advance,
    at,
    constraint_values,
    knot_dependence,
    knots_of,
    on_forces,
    residuals,
)


class EulerSteps(NamedTuple):
    """Semi-implicit Euler steps: dv_next = slopes z + c_v, dq_next = dq + dt dv_next + c_q - dt c_v, with gaps (c_q, c_v)."""

    slopes: Float[Array, "steps v w"]
    gaps: Float[Array, "steps n"]
    dt: Float[Array, ""]


class DiagonalCost(NamedTuple):
    """A cost with a diagonal Hessian: 1/2 sum_i hessian_i z_i^2 + gradient . z at each knot."""

    hessian: Float[Array, "steps m"]
    gradient: Float[Array, "steps m"]


Steps = Any  # Float[Array, "steps n w"] or EulerSteps
Costs = Any  # Float[Array, "steps m w"] or DiagonalCost


class LinearQuadratic(NamedTuple):
    """A linear-quadratic problem, built by `linear_quadratic` from the usual blocks A, B, Q and R.

    With z = (dx, du), minimise the sum over knots of 1/2 z' H z + g' z, plus 1/2 dx' H_end dx + g_end' dx at the end, subject
    to dx_{k+1} = F z_k + c_k from a given dx_0.

    Attributes:
        dynamics: [F, c] of each knot, (steps, n, n + m + 1), or `EulerSteps`.
        cost: [H, g] of each knot, (steps, n + m, n + m + 1), with x before u, or a `DiagonalCost`.
        end: [H_end, g_end], (n, n + 1).
    """

    dynamics: Steps
    cost: Costs
    end: Float[Array, "n l"]

    @property
    def states(self) -> int:
        """Number n of states, the size of dx."""
        return self.end.shape[-2]

    @property
    def controls(self) -> int:
        """Number m of controls, the size of du."""
        cost = self.cost
        return (cost.gradient.shape[-1] if isinstance(cost, DiagonalCost) else cost.shape[-2]) - self.states

    @property
    def control_weights(self) -> Float[Array, "steps m"]:
        """The diagonal of R, the block of H that belongs to the controls."""
        if isinstance(self.cost, DiagonalCost):
            return self.cost.hessian[:, self.states :]
        return jnp.diagonal(self.cost[:, self.states :, self.states : -1], axis1=1, axis2=2)

    def dense(self) -> "LinearQuadratic":
        """The same problem with dense matrices."""
        dynamics, cost, n = self.dynamics, self.cost, self.states
        if isinstance(dynamics, EulerSteps):
            v = n // 2
            first = jnp.eye(v, dynamics.slopes.shape[-1], dtype=dynamics.slopes.dtype)
            positions = first[None] + dynamics.dt * dynamics.slopes
            both = jnp.concatenate([positions, dynamics.slopes], 1)
            dynamics = jnp.concatenate([both, dynamics.gaps[..., None]], -1)
        if isinstance(cost, DiagonalCost):
            eye = jnp.eye(cost.hessian.shape[-1], dtype=cost.hessian.dtype)
            cost = jnp.concatenate([eye[None] * cost.hessian[..., None], cost.gradient[..., None]], -1)
        return LinearQuadratic(dynamics, cost, self.end)


class LQPolicy(NamedTuple):
    """The policy du = gains dx + feedforward and the cost-to-go 1/2 dx' hessian dx + gradient' dx at each knot."""

    gains: Float[Array, "steps m n"]
    feedforward: Float[Array, "steps m"]
    hessian: Float[Array, "knots n n"]
    gradient: Float[Array, "knots n"]
    adjoint: Float[Array, "knots n"]  # derivative of the total cost by the state at dx = du = 0, ignoring the gaps c
    slope: Float[Array, "steps m"]  # the same by the controls
    pivot: Float[Array, ""]
    free: Array


class LQSolution(NamedTuple):
    """The minimising dx at all knots and du, and the multipliers P dx + p of the dynamics."""

    states: Float[Array, "knots n"]
    controls: Float[Array, "steps m"]
    multipliers: Float[Array, "knots n"]


@checked
def linear_quadratic(
    A: Float[Array, "steps n n"],
    B: Float[Array, "steps n m"],
    Q: Float[Array, "steps n n"],
    R: Float[Array, "steps m m"],
    end: Float[Array, "n n"],
    *,
    S: Float[Array, "steps n m"] | None = None,
    c: Float[Array, "steps n"] | None = None,
    q: Float[Array, "steps n"] | None = None,
    r: Float[Array, "steps m"] | None = None,
    end_gradient: Float[Array, " n"] | None = None,
) -> LinearQuadratic:
    """Build a `LinearQuadratic` from the usual blocks; omitted blocks are zero.

    The dynamics are dx_{k+1} = A dx + B du + c, and the cost is 1/2 dx' Q dx + dx' S du + 1/2 du' R du + q' dx + r' du at every
    knot but the last, where it is 1/2 dx' end dx + end_gradient' dx.
    """
    S = jnp.zeros_like(B) if S is None else S
    c = jnp.zeros_like(A[..., 0]) if c is None else c
    q = jnp.zeros_like(Q[..., 0]) if q is None else q
    r = jnp.zeros_like(R[..., 0]) if r is None else r
    end_gradient = jnp.zeros_like(end[..., 0]) if end_gradient is None else end_gradient
    rows = jnp.concatenate([Q, S, q[..., None]], -1), jnp.concatenate([S.mT, R, r[..., None]], -1)
    return LinearQuadratic(
        jnp.concatenate([A, B, c[..., None]], -1),
        jnp.concatenate(rows, -2),
        jnp.concatenate([end, end_gradient[..., None]], -1),
    )


def adjoints(lq: LinearQuadratic) -> Float[Array, "knots n"]:
    """Derivative of the total cost with respect to the state at each knot, at dx = du = 0, ignoring the gaps c."""
    lq, n = lq.dense(), lq.states

    def before(later, x):
        dynamics, gradient = x
        now = gradient[:n] + dynamics[:, :n].T @ later
        return now, now

    _, rows = jax.lax.scan(before, lq.end[:, n], (lq.dynamics, lq.cost[..., -1]), reverse=True)
    return jnp.concatenate([rows, lq.end[None, :, n]])


STEPS = 5  # number of step lengths tried: 1, 1/2, ...
MOST = 50  # maximum number of projected steps


def masked_inverse(h: Float[Array, "m m *lanes"], free: Array) -> tuple[Array, Array]:
    """The inverse of the free block of h, zeros elsewhere, by symmetric sweeps (Goodnight 1979), and its smallest pivot."""
    m = h.shape[0]
    index = jnp.arange(m).reshape(m, *(1,) * (h.ndim - 2))
    diagonal = index[:, None] == index[None]
    both = free[:, None] & free[None]
    a = jnp.where(both, h, jnp.where(diagonal, jnp.ones_like(h), jnp.zeros_like(h)))
    if m == 1:
        return jnp.where(both, 1 / a, jnp.zeros_like(a)), a[0, 0]

    def body(carry, k):
        a, smallest = carry
        row = a[k]
        pivot = row[k]
        here = index == k
        signed = jnp.where(here, -jnp.ones_like(row), row)
        kept = jnp.where(here[:, None] | here[None], jnp.zeros_like(a), a)
        return (kept - signed[:, None] * (signed / pivot[None])[None], jnp.minimum(smallest, pivot)), None

    start = (a, jnp.full_like(a[0, 0], jnp.inf))
    (swept, smallest), _ = jax.lax.scan(body, start, jnp.arange(m), unroll=unrolls_loops())
    return jnp.where(both, -swept, jnp.zeros_like(a)), smallest


def box_qp(
    h: Float[Array, "m m *lanes"], g: Float[Array, "m *lanes"], lower: Array, upper: Array
) -> tuple[Array, Array, Array, Array]:
    """Minimise 1/2 u' h u + g' u in the box (Tassa et al. 2014): u, free entries, inverse of their block, its least pivot."""
    fixed = lower >= upper

    bound = jnp.abs(h).sum(1).max(0)  # an upper bound on the eigenvalues of h

    def held(u):
        gradient = matrix_times(h, u) + g
        return fixed | ((u <= lower) & (gradient > 0)) | ((u >= upper) & (gradient < 0)), gradient

    def value(u):
        return (u * (0.5 * matrix_times(h, u) + g)).sum(0)

    def body(state):
        count, u, clamped, gradient, _, _, _ = state
        inverse, pivot = masked_inverse(h, ~clamped)
        direction = -matrix_times(inverse, gradient)
        best, _ = jax.lax.scan(
            lambda best, length: (_better(best, jnp.clip(u + length * direction, lower, upper), value), None),
            (u, value(u)),
            0.5 ** jnp.arange(STEPS, dtype=h.dtype),
            unroll=unrolls_loops(),
        )
        # the step to the first bound reduces the value unless its length is zero; in that case, a gradient step does
        ratio = jnp.where(direction > 0, upper - u, lower - u) / jnp.where(direction == 0, 1, direction)
        length = jnp.where(clamped | (direction == 0), jnp.inf, ratio).min(0)
        length = jnp.where(jnp.isfinite(length), length, 0)
        best = _better(best, jnp.clip(u + length[None] * direction, lower, upper), value)
        best = _better(best, jnp.clip(u - gradient / bound[None], lower, upper), value)
        whole = u + direction
        exact = ((whole >= lower) & (whole <= upper)).all(0)
        new = jnp.where(exact[None], whole, best[0])
        now, gradient = held(new)
        done = (exact & (now == clamped).all(0)) | (pivot <= 0) | ((new == u).all(0) & ~exact)
        return count + 1, new, now, gradient, inverse, pivot, done

    def live(state):
        return (state[0] < MOST) & ~state[-1].all()

    def guarded(state):
        """Keep finished lanes unchanged."""
        new = body(state)
        done = state[-1]
        keep = lambda old, x: jnp.where(done.reshape((1,) * (x.ndim - done.ndim) + done.shape), old, x)
        return new[0], *(keep(a, b) for a, b in zip(state[1:], new[1:], strict=True))

    start = jnp.clip(jnp.zeros_like(g), lower, upper)
    clamped, gradient = held(start)
    nothing = jnp.zeros_like(g[0])
    state = (0, start, clamped, gradient, jnp.zeros_like(h), nothing, nothing > 1)
    _, u, clamped, _, inverse, pivot, _ = jax.lax.while_loop(live, guarded, state)
    return u, ~clamped, inverse, pivot


def _better(best, u, value):
    old, lowest = best
    new = value(u)
    better = new < lowest
    return jnp.where(better[None], u, old), jnp.where(better, new, lowest)


class Descent(NamedTuple):
    """The predicted change a slope + a^2 / 2 curvature of the cost for a step of length a along the policy from dx_0 = 0."""

    slope: Float[Array, ""]
    curvature: Float[Array, ""]


def riccati(
    lq: LinearQuadratic,
    bounds: tuple[Float[Array, "steps m"], Float[Array, "steps m"]] | None = None,
    damping: float | Float[Array, ""] = 0.0,
) -> LQPolicy:
    """The optimal policy du = K dx + k of a linear-quadratic problem, computed backward in time, O(steps (n + m)^3).

    At each knot, Q = H + F' P F is the Hessian of the cost at this knot plus the cost-to-go from the next knot, whose Hessian
    is P. The gains are K = -Q_uu^-1 Q_ux, and the Hessian of the cost-to-go from this knot is Q_xx + Q_xu K. With bounds, k is
    the minimiser within lower <= k <= upper, and controls at a bound have no feedback (Tassa, Mansard & Todorov 2014). The
    policy is then optimal only near dx = 0.

    Args:
        bounds: lower and upper bounds of du at each knot, infinite where there are none. Equal bounds fix a control.
        damping: number added to the diagonal of R at every knot.

    Returns:
        At each knot: `gains` K, `feedforward` k, the `hessian` P and the `gradient` of the cost-to-go, and `free`, the
        mask of the controls that are not at a bound. The policy is meaningless unless `pivot`, the smallest pivot of the
        Hessians by the controls, is positive.
    """
    return policy_and_descent(lq, bounds, damping)[0]


def policy_and_descent(lq: LinearQuadratic, bounds, damping: float | Float[Array, ""]) -> tuple[LQPolicy, Descent]:
    """The result of `riccati`, and the predicted change of the cost."""
    n, m = lq.states, lq.controls
    damping = jnp.asarray(damping, lq.end.dtype)
    end = lq.end[:, n]
    start = lq.end[:, :n], end, end, end
    dynamics, constants = lq.dynamics, (damping, None)
    if isinstance(dynamics, EulerSteps):
        dynamics, constants = (dynamics.slopes, dynamics.gaps), (damping, dynamics.dt)
    _, (hessian, gradient, gains, pivot, free, adjoint, descent) = loop_by_batch(
        _backward, start, constants, (dynamics, lq.cost, bounds), size_of_products(n, m), reverse=True
    )
    policy = LQPolicy(
        gains[..., :n],
        gains[..., n],
        jnp.concatenate([hessian, lq.end[None, :, :n]]),
        jnp.concatenate([gradient, end[None]]),
        jnp.concatenate([adjoint[:, :n], end[None]]),
        adjoint[:, n:],
        pivot.min(),
        free > 0,
    )
    slope, value = descent.sum(0)
    return policy, Descent(slope, 2 * (value - slope))


class _Seen(NamedTuple):
    """Blocks of the Hessian Q = H + F' P F and gradient q at a knot: [Q_xx, q_x], [Q_ux, q_u], and Q_uu."""

    by_state: Array
    by_control: Array
    of_controls: Array  # Q_uu
    of_gaps: Array  # c' (p + P c)


def _backward(carry, constants, x):
    (hessian, gradient, adjoint, followed), (damping, dt), (dynamics, cost, bounds) = carry, constants, x
    n = hessian.shape[0]
    cost = _written_out(cost, hessian)
    w = cost.shape[0]
    if dt is None:
        columns, gaps = jnp.moveaxis(dynamics[:, :w], 0, 1), dynamics[:, w]
        seen = _through_steps(hessian, gradient, dynamics, columns, cost)
        back = lambda y: matrix_times(columns, y) + cost[:, w]
    else:
        slopes, gaps = dynamics
        columns, v = jnp.moveaxis(slopes, 0, 1), n // 2
        seen = _through_euler_steps(hessian, gradient, slopes, columns, gaps, dt, cost)

        def back(y):
            own = cost[:, w] + matrix_times(columns, dt[None] * y[:v] + y[v:])
            return jnp.concatenate([own[:v] + y[:v], own[v:]])

    of_controls = seen.of_controls + damping[None, None] * mask_like(jnp.eye(w - n), hessian)
    ahead = seen.by_control[:, n]
    if bounds is None:
        free = jnp.ones_like(ahead) > 0
        inverse, pivot = masked_inverse(of_controls, free)
        feedforward = -matrix_times(inverse, ahead)
    else:
        feedforward, free, inverse, pivot = box_qp(of_controls, ahead, *bounds)
    gains = -product(inverse, seen.by_control[:, :n])
    policy = jnp.concatenate([gains, feedforward[:, None]], 1)
    across = jnp.moveaxis(seen.by_control[:, :n], 0, 1)
    left = by_row(lambda row, own: own + row_times(row, policy), across, seen.by_state)
    # predicted change of the cost; its slope is computed with the adjoint of the motion under the policy
    by_all = back(followed)
    slope = (by_all[n:] * feedforward).sum(0) + (followed * gaps).sum(0)
    quadratic = (feedforward * (ahead + 0.5 * matrix_times(of_controls, feedforward))).sum(0)
    value = quadratic + 0.5 * (seen.of_gaps + (gradient * gaps).sum(0))
    followed = by_all[:n] + matrix_times(jnp.moveaxis(gains, 0, 1), by_all[n:])
    adjoint = back(adjoint)
    hessian = 0.5 * (left[:, :n] + jnp.moveaxis(left[:, :n], 0, 1))
    gradient = left[:, n]
    turn = hessian, gradient, policy, pivot, free.astype(hessian.dtype), adjoint, jnp.stack([slope, value])
    return (hessian, gradient, adjoint[:n], followed), turn


def _written_out(cost: Array | DiagonalCost, like: Array) -> Array:
    """The dense matrix [H, g] of a knot."""
    if not isinstance(cost, DiagonalCost):
        return cost
    w = cost.hessian.shape[0]
    last = jnp.broadcast_to(jnp.arange(w + 1) == w, (w, w + 1))
    return mask_like(jnp.eye(w, w + 1), like) * cost.hessian[:, None] + mask_like(last, like) * cost.gradient[:, None]


def _through_steps(hessian: Array, gradient: Array, dynamics: Array, columns: Array, cost: Array) -> _Seen:
    n, w = hessian.shape[0], cost.shape[0]
    last = mask_like(jnp.arange(w + 1) == w, hessian)
    shifted = by_row(lambda row, p: row_times(row, dynamics) + p[None] * last, hessian, gradient)
    total = by_row(lambda column, row: row_times(column, shifted) + row, columns, cost)
    with_one = lambda rows: jnp.concatenate([rows[:, :n], rows[:, w:]], 1)
    of_gaps = (dynamics[:, w] * shifted[:, w]).sum(0)
    return _Seen(with_one(total[:n]), with_one(total[n:]), total[n:, n:w], of_gaps)


def _through_euler_steps(
    hessian: Array, gradient: Array, slopes: Array, columns: Array, gaps: Array, dt: Array, cost: Array
) -> _Seen:
    """`_through_steps` for Euler steps, where F = N + T J with N = [1 0 0; 0 0 0], T = [dt; 1]: half as many products."""
    n, w = hessian.shape[0], cost.shape[0]
    v = n // 2
    of_velocity, rest = gaps[v:], gaps[:v] - dt[None] * gaps[v:]
    moved = dt[None, None] * hessian[:, :v] + hessian[:, v:]  # P T
    squared = dt[None, None] * moved[:v] + moved[v:]  # T' P T
    slopes = jnp.concatenate([slopes[:, :n], of_velocity[:, None], slopes[:, n:]], 1)  # of x, 1, u
    nothing = jnp.zeros_like(hessian[:v, v:])
    offset = matrix_times(hessian[:, :v], rest) + gradient  # P (c - T c_v) + p

    # the rows of P F that belong to q, and T' P F
    own = jnp.concatenate([hessian[:v, :v], nothing, offset[:v, None]], 1)
    above = by_row(lambda row, y: row_times(row, slopes[:, : n + 1]) + y, moved[:v], own)
    both = dt[None] * offset[:v] + offset[v:]
    fixed = jnp.concatenate(
        [jnp.moveaxis(moved[:v], 0, 1), nothing, both[:, None], jnp.zeros_like(slopes[:, n + 1 :])], 1
    )
    below = by_row(lambda row, y: row_times(row, slopes) + y, squared, fixed)
    whole = jnp.concatenate([above, jnp.zeros_like(above)]) + jnp.concatenate([cost[:n, :n], cost[:n, w:]], 1)
    by_state = by_row(lambda column, row: row_times(column, below[:, : n + 1]) + row, columns[:n], whole)
    own = jnp.concatenate([cost[n:, :n], cost[n:, w:], cost[n:, n:w]], 1)
    by_control = by_row(lambda column, row: row_times(column, below) + row, columns[n:], own)
    of_gaps = (rest * above[:, n]).sum(0) + (of_velocity * below[:, n]).sum(0)
    return _Seen(by_state, by_control[:, : n + 1], by_control[:, n + 1 :], of_gaps)


def lq_rollout(lq: LinearQuadratic, policy: LQPolicy, start: Float[Array, " n"] | None = None) -> LQSolution:
    """Simulate a linear-quadratic problem under a policy from dx_0 = start (default: zero), and compute the multipliers."""
    start = jnp.zeros_like(lq.end[:, -1]) if start is None else start
    turns = (lq.dense().dynamics, policy.gains, policy.feedforward)
    last, (states, controls) = loop_by_batch(_forward, start, (), turns, size_of_products(lq.states, lq.controls))
    states = jnp.concatenate([states, last[None]])
    return LQSolution(states, controls, jnp.einsum("kij,kj->ki", policy.hessian, states) + policy.gradient)


def _forward(state, constants, x):
    del constants
    dynamics, gains, feedforward = x
    control = matrix_times(gains, state) + feedforward
    one = jnp.ones_like(state[:1])
    return matrix_times(dynamics, jnp.concatenate([state, control, one])), (state, control)


def solve_lq(
    lq: LinearQuadratic,
    start: Float[Array, " n"] | None = None,
    bounds: tuple[Float[Array, "steps m"], Float[Array, "steps m"]] | None = None,
) -> LQSolution:
    """The minimiser of a linear-quadratic problem from dx_0 = start (default: zero).

    With bounds on du, as for `riccati`, the policy is optimal only near dx = 0, so the result is the minimiser only if no
    further bounds become active along the motion.

    Returns:
        The minimising dx (`states`) and du (`controls`), and the `multipliers` P dx + p of the dynamics.
    """
    return lq_rollout(lq, riccati(lq, bounds), start)


GROWTH = 10.0  # growth factor of the weight if the violation remains above a quarter of its previous value
HEAVIEST = 1e8  # largest weight


class Penalty(NamedTuple):
    """Multipliers and weight rho of all constraints, equalities first, at the knots and at the end, without torque limits."""

    multipliers: tuple[Float[Array, "knots k"], Float[Array, " l"]]
    weight: Float[Array, ""]
    counted: Float[Array, "knots k"]  # 0 for constraints that are not enforced


class Values(eqx.Module):
    """Values of the constraints at every knot and at the end; the first `equalities` of each are equalities."""

    running: Float[Array, "knots k"]
    terminal: Float[Array, " l"]
    equalities: tuple[int, int] = eqx.field(static=True)

    def beside(self, penalty: Penalty) -> Iterator[tuple[Array, Array, Array, int]]:
        """Yield (values, multipliers, mask of enforced constraints, number of equalities) for the knots, then for the end."""
        counted = penalty.counted, jnp.ones_like(self.terminal)
        return zip((self.running, self.terminal), penalty.multipliers, counted, self.equalities, strict=True)


class Violation(NamedTuple):
    """The multipliers of the next round, the largest violation, and the largest product of a multiplier and a slack."""

    multipliers: tuple[Array, Array]
    largest: Float[Array, ""]
    complementarity: Float[Array, ""]


def constraint_rows(problem: OptimalControlProblem, knots: Knot) -> Values:
    """Values of all constraints at stacked knots."""
    equal, below = jax.vmap(lambda knot: constraint_values(problem.constraints, problem.chain, knot))(knots)
    last = at(knots, -1)
    end = constraint_values(problem.terminal_constraints, problem.chain, last)
    counts = equal.shape[1], end[0].shape[0]
    return Values(jnp.concatenate([equal, below], 1), jnp.concatenate(end), counts)


def no_penalty(problem: OptimalControlProblem, trajectory: Trajectory, weight: float | Array) -> Penalty:
    """A penalty with zero multipliers."""
    values = constraint_rows(problem, knots_of(problem, trajectory))
    on_torque = jnp.asarray(np.concatenate(on_forces(problem, problem.constraints)))
    k = jnp.arange(problem.steps + 1)[:, None]
    counted = jnp.where(on_torque[None], k < problem.steps, k > 0).astype(values.running.dtype)
    weight = jnp.asarray(weight, values.running.dtype)
    return Penalty((jnp.zeros_like(values.running), jnp.zeros_like(values.terminal)), weight, counted)


def penalty_residual(
    constraints: tuple[Constraint, ...],
    chain: Chain,
    knot: Knot,
    multiplier: Float[Array, " k"],
    weight: Float[Array, ""],
    counted: Float[Array, " k"],
) -> Float[Array, " k"]:
    """The residuals that the constraints add at a knot: sqrt(rho) (c + m / rho), or its positive part for inequalities."""
    equal, below = constraint_values(constraints, chain, knot)
    shifted = jnp.concatenate([equal, below]) + multiplier / weight
    return jnp.sqrt(weight) * jnp.where(_is_equality(shifted, len(equal)), shifted, jnp.maximum(shifted, 0)) * counted


def violation(values: Values, penalty: Penalty) -> Violation:
    """The constraint violation of a trajectory with these values."""
    zero = jnp.zeros_like(penalty.weight)
    multipliers, largest, products = [], zero, zero
    for value, multiplier, counts, count in values.beside(penalty):
        below = ~_is_equality(value, count)
        new = multiplier + penalty.weight * value
        new = jnp.where(below, jnp.maximum(new, 0), new) * counts
        miss = jnp.where(below, jnp.maximum(value, 0), jnp.abs(value)) * counts
        slack = jnp.where(below, new * jnp.maximum(-value, 0), 0)
        multipliers.append(new)
        largest = jnp.maximum(largest, jnp.max(miss, initial=0.0))
        products = jnp.maximum(products, jnp.max(slack, initial=0.0))
    return Violation((multipliers[0], multipliers[1]), largest, products)


def binding(values: Values, penalty: Penalty) -> tuple[Bool[Array, "knots k"], Bool[Array, " l"]]:
    """Masks of the constraints with a nonzero penalty gradient: equalities, and inequalities with c + m / rho > 0."""
    running, terminal = (
        (_is_equality(value, count) | (value + multiplier / penalty.weight > 0)) & (counts > 0)
        for value, multiplier, counts, count in values.beside(penalty)
    )
    return running, terminal


def _is_equality(values: Array, count: int) -> Array:
    return jnp.broadcast_to(jnp.arange(values.shape[-1]) < count, values.shape)


def updated(penalty: Penalty, found: Violation, before: Float[Array, ""]) -> Penalty:
    """The penalty of the next round; a violation above a quarter of the previous one multiplies the weight by 10."""
    slow = found.largest > 0.25 * before
    weight = jnp.where(slow, jnp.minimum(penalty.weight * GROWTH, HEAVIEST), penalty.weight)
    return penalty._replace(multipliers=found.multipliers, weight=weight)


EULER = ("semi_implicit_euler", "explicit_euler")


def _running_residual(problem, knot, multiplier, weight, counted) -> Array:
    own = jnp.sqrt(knot.dt) * residuals(problem.running, problem.chain, knot)
    added = penalty_residual(problem.constraints, problem.chain, knot, multiplier, weight, counted)
    return jnp.concatenate([own, added])


def _end_residual(problem, knot, penalty: Penalty) -> Array:
    running, terminal = penalty.multipliers
    chain, weight = problem.chain, penalty.weight
    along = penalty_residual(problem.constraints, chain, knot, running[-1], weight, penalty.counted[-1])
    end = penalty_residual(problem.terminal_constraints, chain, knot, terminal, weight, jnp.ones_like(terminal))
    return jnp.concatenate([residuals(problem.terminal, chain, knot), along, end])


def _scalars(costs, chain: Chain, knot: Knot) -> Array:
    return sum((c.value(chain, knot) for c in costs if not c.has_residual), jnp.zeros((), knot.q.dtype))


def _of_knots(problem: OptimalControlProblem, trajectory: Trajectory):
    knots = knots_of(problem, trajectory)
    return at(knots, slice(None, -1)), at(knots, -1)


def objective(problem: OptimalControlProblem, trajectory: Trajectory, penalty: Penalty) -> Float[Array, ""]:
    """The problem's cost plus the penalty of its constraints."""
    knots, last = _of_knots(problem, trajectory)
    rows = penalty.multipliers[0][:-1], penalty.counted[:-1]

    one = lambda knot, multiplier, counted: running_objective(problem, knot, multiplier, penalty.weight, counted)
    return jax.vmap(one)(knots, *rows).sum() + end_objective(problem, last, penalty)


def running_objective(problem: OptimalControlProblem, knot: Knot, multiplier, weight, counted) -> Float[Array, ""]:
    """The contribution of one knot to the objective."""
    r = _running_residual(problem, knot, multiplier, weight, counted)
    return 0.5 * (r * r).sum() + knot.dt * _scalars(problem.running, problem.chain, knot)


def end_objective(problem: OptimalControlProblem, last: Knot, penalty: Penalty) -> Float[Array, ""]:
    """The contribution of the last knot to the objective."""
    r = _end_residual(problem, last, penalty)
    return 0.5 * (r * r).sum() + _scalars(problem.terminal, problem.chain, last)


def linearised(
    problem: OptimalControlProblem,
    trajectory: Trajectory,
    gaps: Float[Array, "steps n"],
    penalty: Penalty,
    duals: Float[Array, "knots n"] | None = None,
    dynamics: Steps | None = None,
) -> LinearQuadratic:
    """The linear-quadratic problem in (dq, dv, dtau) around a trajectory; with `duals`, its Hessian is the Lagrangian's."""
    knots, last = _of_knots(problem, trajectory)
    parts = (jnp.zeros_like(trajectory.v[0]),) * (4 if problem.has_torque_rate else 3)
    rows = penalty.multipliers[0][:-1], penalty.counted[:-1]
    parts_at_knots = (*problem.running, *problem.constraints)
    diagonal = (
        duals is None
        and is_ordinary(problem.chain)
        and not any(isinstance(c, Cost) and not c.has_residual for c in parts_at_knots)
        and all(knot_dependence(problem, c).is_single for c in parts_at_knots)
    )

    def running(knot, multiplier, counted, *dual):
        residual = lambda *z: _running_residual(problem, moved(problem, knot, z), multiplier, penalty.weight, counted)
        scalar = lambda *z: knot.dt * _scalars(problem.running, problem.chain, moved(problem, knot, z))
        if diagonal:
            return _diagonal(residual, parts)

        def pulled_back(z):
            """The derivative of dual . step(knot) with respect to the knot's displacements."""
            there = moved(problem, knot, z)
            return dual[0] @ dynamics_jacobian(problem, there.q, there.v, there.tau)

        return _quadratic(residual, scalar, problem.running, parts, pulled_back if dual else None)

    there = lambda z: moved(problem, last, (*z, parts[-1]))
    end = lambda *z: _end_residual(problem, there(z), penalty)
    end_scalar = lambda *z: _scalars(problem.terminal, problem.chain, there(z))
    exact = None if duals is None else lambda z: jnp.zeros_like(jnp.concatenate(z))
    cost = jax.vmap(running)(knots, *rows, *(() if duals is None else (duals[1:],)))
    of_end = _quadratic(end, end_scalar, problem.terminal, parts[:-1], exact)
    if dynamics is None:
        dv = trajectory.v[1:] - trajectory.v[:-1] + gaps[:, problem.chain.nv : 2 * problem.chain.nv]
        dynamics = linear_steps(problem, trajectory, gaps, dv / problem.dt)
    return LinearQuadratic(dynamics, cost, of_end)


def linear_steps(
    problem: OptimalControlProblem,
    trajectory: Trajectory,
    gaps: Float[Array, "steps n"],
    accelerations: Float[Array, "steps nv"] | None = None,
) -> Steps:
    """The linearised steps, with offsets `gaps`; known accelerations (of an Euler step, dv / dt) save computing them."""
    x = trajectory
    if is_ordinary(problem.chain) and problem.method == EULER[0] and not problem.has_torque_rate:
        one = lambda q, v, tau, qdd: velocity_slopes(problem, q, v, tau, qdd)
        return EulerSteps(jax.vmap(one)(x.q[:-1], x.v[:-1], x.tau, accelerations), gaps, problem.dt)
    jacobians = jax.vmap(lambda q, v, tau: dynamics_jacobian(problem, q, v, tau))(x.q[:-1], x.v[:-1], x.tau)
    return jnp.concatenate([jacobians, gaps[..., None]], -1)


def moved(problem: OptimalControlProblem, knot: Knot, z: tuple[Array, ...]) -> Knot:
    """A knot displaced by (dq, dv, dtau) or (dq, dv, dtau_before, dtau)."""
    before = knot.tau_before + z[2] if len(z) == 4 else knot.tau_before
    q = integrate(problem.chain, knot.q, z[0])
    return knot._replace(q=q, v=knot.v + z[1], tau=knot.tau + z[-1], tau_before=before)


def state_after(problem: OptimalControlProblem, reference: tuple[Array, Array], knot: Knot) -> Array:
    """The state one step after a knot, relative to a reference state."""
    q, v, _ = advance(problem, knot.q, knot.v, knot.tau)
    parts = [difference(problem.chain, reference[0], q), v - reference[1]]
    return jnp.concatenate([*parts, knot.tau] if problem.has_torque_rate else parts)


def _quadratic(residual, scalar, costs, parts, exact) -> Float[Array, "w 1+w"]:
    """[Hessian, gradient] of 1/2 |residual|^2 + scalar: by Gauss-Newton, or exact plus the Jacobian of the function `exact`."""
    with_scalar = any(not cost.has_residual for cost in costs)
    jacobian = [jax.jacfwd(residual, argnums=i)(*parts) for i in range(len(parts))]
    rows = jnp.concatenate([*jacobian, residual(*parts)[:, None]], -1)
    total = gram(rows) if len(rows) else jnp.zeros((rows.shape[1] - 1, rows.shape[1]), rows.dtype)
    if not with_scalar and exact is None:
        return total
    split = lambda z: tuple(jnp.split(z, len(parts)))
    flat = jnp.concatenate(parts)
    if with_scalar:
        total = total.at[:, -1].add(jax.grad(lambda z: scalar(*split(z)))(flat))
    if exact is None:
        values, vectors = jnp.linalg.eigh(jax.hessian(lambda z: scalar(*split(z)))(flat))
        own = (vectors * jnp.maximum(values, 0)[None]) @ vectors.T
        return total.at[:, :-1].add(own)

    def whole(z):
        r = residual(*split(z))
        return 0.5 * (r * r).sum() + scalar(*split(z))

    curved = jax.jacfwd(lambda z: exact(split(z)))(flat)
    return total.at[:, :-1].set(jax.hessian(whole)(flat) + 0.5 * (curved + curved.T))


def _diagonal(residual, parts) -> DiagonalCost:
    """Hessian and gradient of 1/2 |residual|^2 if J' J is diagonal; the diagonal is then J' J times a vector of ones."""
    r, along = jax.linearize(residual, *parts)
    back = jax.linear_transpose(along, *parts)
    hessian = back(along(*(jnp.ones_like(x) for x in parts)))
    return DiagonalCost(jnp.concatenate(hessian), jnp.concatenate(back(r)))


@by_batch(size=lambda rows: 2 * rows.shape[0] * rows.shape[1] + 2000 if rows.shape[0] <= 64 else 10**6)
def gram(rows: Float[Array, "k w *#lanes"]) -> Array:
    """The product J' [J, r], given [J, r]."""
    width = rows.shape[1] - 1
    columns = jnp.moveaxis(rows[:, :width], 0, 1)
    return by_row(lambda column: row_times(column, rows), columns)


def dynamics_jacobian(
    problem: OptimalControlProblem, q: Float[Array, " nq"], v: Float[Array, " nv"], tau: Float[Array, " nv"]
) -> Float[Array, "n w"]:
    """The Jacobian [A, B] of a step: analytic for steps with contacts and Euler steps of ordinary joints, or `jax.jacfwd`."""
    chain, dt, nv = problem.chain, problem.dt, problem.chain.nv
    eye = jnp.eye(nv, dtype=q.dtype)
    if problem.contacts is not None:
        found = contact_slopes(problem, q, v, tau, jnp.zeros_like(v))
        rows = [jnp.split(part, 3, axis=1) for part in (found[:nv], found[nv:])]
    elif is_ordinary(chain) and problem.method in EULER:
        a, b, c = jnp.split(velocity_slopes(problem, q, v, tau), 3, axis=1)
        first = [eye + dt * a, dt * b, dt * c] if problem.method == EULER[0] else [eye, dt * eye, 0 * eye]
        rows = [first, [a, b, c]]
    else:
        after = advance(problem, q, v, tau)
        zero = jnp.zeros_like(v)

        def along(dq, dv, dtau):
            x = advance(problem, integrate(chain, q, dq), v + dv, tau + dtau)
            return difference(chain, after[0], x[0]), x[1] - after[1]

        columns = [jax.jacfwd(along, argnums=i)(zero, zero, zero) for i in range(3)]
        rows = [[c[0] for c in columns], [c[1] for c in columns]]
    if problem.has_torque_rate:
        nothing = jnp.zeros_like(eye)
        rows = [[*row[:2], nothing, row[2]] for row in rows] + [[nothing, nothing, nothing, eye]]
    return jnp.concatenate([jnp.concatenate(row, 1) for row in rows])


def velocity_slopes(
    problem: OptimalControlProblem,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    qdd: Float[Array, " nv"] | None = None,
) -> Float[Array, "nv w"]:
    """Derivatives of the velocities after an Euler step of ordinary joints by (q, v, tau); qdd, their change / dt, if known."""
    chain, dt = problem.chain, problem.dt
    if problem.contacts is not None:
        return contact_slopes(problem, q, v, tau, jnp.zeros_like(v) if qdd is None else qdd)[len(v) :]
    if qdd is None or chain.transmission is not None:
        of_qdd = forward_dynamics_derivatives(chain, q, v, tau - resistive_force(chain, q, v))
    else:
        of_qdd = derivatives_at_qdd(chain, q, v, qdd)
    if chain.transmission is None:
        _, slopes = jax.jvp(lambda x: friction_force(chain, x), (v,), (jnp.ones_like(v),))
        by_velocity = of_qdd.qd - of_qdd.tau * slopes[None]
    else:
        by_velocity = of_qdd.qd - of_qdd.tau @ jax.jacfwd(lambda x: friction_force(chain, x))(v)
    by_position = dt * (of_qdd.q - of_qdd.tau * chain.springs.stiffness[None])
    return jnp.concatenate([by_position, jnp.eye(len(v), dtype=v.dtype) + dt * by_velocity, dt * of_qdd.tau], 1)


def contact_slopes(problem: OptimalControlProblem, q: Array, v: Array, tau: Array, start: Array) -> Float[Array, "n w"]:
    """The Jacobian [A, B] of a step with contacts; the search begins at the accelerations `start`."""
    assert problem.contacts is not None
    state = ContactState(q, v, start)
    found = contact_step_derivatives(problem.chain, problem.contacts, state, tau, problem.dt)
    return jnp.concatenate([found.state, found.tau], axis=1)


def gaps_of(problem: OptimalControlProblem, trajectory: Trajectory) -> Float[Array, "steps n"]:
    """The gaps step(x_k, tau_k) - x_{k+1}; zero for previous torques that are part of the state."""
    x = trajectory

    def one(knot):
        q, v, tau, q_after, v_after = knot
        q, v, _ = advance(problem, q, v, tau)
        return jnp.concatenate([difference(problem.chain, q_after, q), v - v_after])

    # The gaps are evaluated only once per solution, and a loop over the knots compiles twice as fast as `jax.vmap`.
    gaps = jax.lax.map(one, (x.q[:-1], x.v[:-1], x.tau, x.q[1:], x.v[1:]))
    return jnp.concatenate([gaps, jnp.zeros_like(x.tau)], -1) if problem.has_torque_rate else gaps

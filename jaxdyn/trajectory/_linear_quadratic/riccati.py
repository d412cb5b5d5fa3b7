"""The Riccati recursion, which computes the optimal policy of a linear-quadratic problem with bounded controls."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...dynamics._lowering import by_row, loop_by_batch, mask_like, matrix_times, product, row_times, size_of_products
from .box_qp import box_qp, masked_inverse
from .problem import DiagonalCost, EulerSteps, LinearQuadratic, LQPolicy, LQSolution


class Descent(NamedTuple):
    """The predicted change of the cost, a slope + a^2 / 2 curvature, for a step of length a along the policy's motion.

    The motion starts at dx_0 = 0.

    Attributes:
        slope: derivative at a = 0.
        curvature: second derivative, including damping.
    """

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
    """Compute the result of `_through_steps` for Euler steps with slopes J.

    For such steps, F = N + T J with N = [1 0 0; 0 0 0] and T = [dt; 1]. P F and F' P F can therefore be computed from J, which
    has half as many rows as F.
    """
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

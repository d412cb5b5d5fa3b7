"""The Riccati recursion: the policy of a linear-quadratic problem, knot by knot from the end, with bounds on the controls."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..dynamics.lowering import LARGEST, lane_shape, loop_by_batch
from .box_qp import box_qp, masked_inverse
from .lq import LinearQuadratic, LQPolicy, LQSolution, matrix_times, product, row_times


def riccati(
    lq: LinearQuadratic,
    bounds: tuple[Float[Array, "steps m"], Float[Array, "steps m"]] | None = None,
    damping: float | Float[Array, ""] = 0.0,
) -> LQPolicy:
    """The best policy du = K dx + k of a linear-quadratic problem, O(steps (n + m)^3), one knot after the other.

    With Q the Hessian of a knot's cost and of the cost to go behind it, Q = H + F' P F, the policy is K = -Q_uu^-1 Q_ux
    and what is left P = Q_xx + Q_xu K. With bounds, k minimises over lower <= k <= upper, and a control at a bound does not
    follow the state (Tassa, Mansard & Todorov 2014): the policy is the best one near dx = 0.

    Args:
        bounds: lower and upper bounds of du at each knot; infinite ones do not bind, equal ones fix a control.
        damping: added to the diagonal of every knot's R.
    """
    n, m = lq.states, lq.controls
    damping = jnp.asarray(damping, lq.cost.dtype)
    start = lq.end[:, :n], lq.end[:, n], lq.end[:, n]
    turns = (lq.dynamics, lq.cost, bounds)
    width = kernel_width(n, m)
    _, (hessian, gradient, gains, pivot, free, adjoint) = loop_by_batch(
        _backward, start, (damping,), turns, width, reverse=True
    )
    return LQPolicy(
        gains[..., :n],
        gains[..., n],
        jnp.concatenate([hessian, start[0][None]]),
        jnp.concatenate([gradient, start[1][None]]),
        jnp.concatenate([adjoint[:, :n], start[1][None]]),
        adjoint[:, n:],
        pivot.min(),
        free > 0,
    )


def kernel_width(n: int, m: int) -> int:
    """Numbers that the largest operation of a step touches, so many that few lanes share a kernel and stay in the cache."""
    return 2 * LARGEST if max(n, m) > 24 or m == 1 else 2 * (n + m) * (n + m + 1) + 2000


def _backward(carry, constants, x):
    (hessian, gradient, adjoint), (damping,), (dynamics, cost, bounds) = carry, constants, x
    n, w = hessian.shape[0], cost.shape[0]
    m = w - n
    dynamics, cost, hessian = (_with_lanes(y, 2) for y in (dynamics, cost, hessian))
    gradient, adjoint, damping = _with_lanes(gradient, 1), _with_lanes(adjoint, 1), _with_lanes(damping, 0)
    lanes = (1,) * (hessian.ndim - 2)
    last = (jnp.arange(w + 1) == w).reshape(w + 1, *lanes).astype(hessian.dtype)
    shifted = _by_row(lambda row, p: row_times(row, dynamics) + p[None] * last, (hessian, gradient))
    columns = jnp.moveaxis(dynamics[:, :w], 0, 1)
    total = _by_row(lambda column, row: row_times(column, shifted) + row, (columns, cost))
    identity = jnp.eye(m, dtype=hessian.dtype).reshape(m, m, *lanes)
    adjoint = matrix_times(columns, adjoint) + cost[:, w]
    by_control = total[n:, n:w] + damping[None, None] * identity
    slope = total[n:, w]
    if bounds is None:
        free = jnp.ones_like(slope) > 0
        inverse, pivot = masked_inverse(by_control, free)
        feedforward = -matrix_times(inverse, slope)
    else:
        lower, upper = (_with_lanes(y, 1) for y in bounds)
        feedforward, free, inverse, pivot = box_qp(by_control, slope, lower, upper)
    policy = jnp.concatenate([-product(inverse, total[n:, :n]), feedforward[:, None]], 1)
    both = jnp.concatenate([total[:n, :n], total[:n, w:]], 1)
    left = _by_row(lambda row, own: own + row_times(row, policy), (total[:n, n:w], both))
    hessian = 0.5 * (left[:, :n] + jnp.moveaxis(left[:, :n], 0, 1))
    gradient = left[:, n]
    turn = hessian, gradient, policy, pivot, free.astype(hessian.dtype), adjoint
    return (hessian, gradient, adjoint[:n]), turn


def _by_row(function, xs):
    """`function` of each row, one after the other: a product that the compiler does not work out again and again."""
    return jax.lax.scan(lambda _, x: (None, function(*x)), None, xs)[1]


def _with_lanes(x: Array, dimensions: int) -> Array:
    """x with the lanes of a batch behind, where it is the same for all."""
    lanes = lane_shape()
    return jnp.broadcast_to(x[..., None], (*x.shape, *lanes)) if lanes and x.ndim == dimensions else x


def lq_rollout(lq: LinearQuadratic, policy: LQPolicy, start: Float[Array, " n"] | None = None) -> LQSolution:
    """States, controls and multipliers of a linear-quadratic problem under its policy, from dx_0 = start (zero by default)."""
    start = jnp.zeros_like(lq.end[:, -1]) if start is None else start
    turns = (lq.dynamics, policy.gains, policy.feedforward)
    last, (states, controls) = loop_by_batch(_forward, start, (), turns, kernel_width(lq.states, lq.controls))
    states = jnp.concatenate([states, last[None]])
    return LQSolution(states, controls, jnp.einsum("kij,kj->ki", policy.hessian, states) + policy.gradient)


def _forward(state, constants, x):
    del constants
    dynamics, gains, feedforward = x
    dynamics, gains = _with_lanes(dynamics, 2), _with_lanes(gains, 2)
    state, feedforward = _with_lanes(state, 1), _with_lanes(feedforward, 1)
    control = matrix_times(gains, state) + feedforward
    one = jnp.ones_like(state[:1])
    return matrix_times(dynamics, jnp.concatenate([state, control, one])), (state, control)

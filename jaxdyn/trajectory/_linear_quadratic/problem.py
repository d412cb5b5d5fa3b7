"""Linear-quadratic problems, which are solved in every shooting iteration and to differentiate shooting solutions."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...model._compiled import checked


class EulerSteps(NamedTuple):
    """Linearised semi-implicit Euler steps of ordinary joints.

    With z = (dq, dv, dtau), a step yields dv_next = slopes z + c_v and dq_next = dq + dt dv_next + (c_q - dt c_v).

    Attributes:
        slopes: derivatives of the velocities after each step with respect to z.
        gaps: offsets c = (c_q, c_v) of each step.
        dt: time step [s].
    """

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
    """A linear-quadratic optimal control problem.

    With z = (dx, du), minimise the sum over knots of 1/2 z' H z + g' z, plus 1/2 dx' H_end dx + g_end' dx at the end, subject
    to dx_{k+1} = F z_k + c_k from a given dx_0. `linear_quadratic` builds a problem from the usual blocks A, B, Q and R. With
    `EulerSteps` and `DiagonalCost`, `riccati` takes at most half the time that it takes with dense matrices; `dense` expands
    both into dense matrices.

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
    """The policy du = gains dx + feedforward and the cost-to-go 1/2 dx' P dx + p' dx at each knot.

    Attributes:
        gains: feedback gains K.
        feedforward: du at dx = 0.
        hessian: P at all knots, including the end.
        gradient: p at all knots, including the end.
        adjoint: derivative of the total cost with respect to the state at each knot, at dx = du = 0, ignoring the gaps c.
        slope: derivative of the total cost with respect to the controls at each knot, at dx = du = 0, ignoring the gaps c.
        pivot: smallest pivot of the Hessians with respect to the controls. If it is not positive, the problem is not convex,
            and the policy is meaningless.
        free: mask of the controls that are not at a bound, (steps, m).
    """

    gains: Float[Array, "steps m n"]
    feedforward: Float[Array, "steps m"]
    hessian: Float[Array, "knots n n"]
    gradient: Float[Array, "knots n"]
    adjoint: Float[Array, "knots n"]
    slope: Float[Array, "steps m"]
    pivot: Float[Array, ""]
    free: Array


class LQSolution(NamedTuple):
    """The minimiser of a linear-quadratic problem, and the multipliers of its dynamics.

    Attributes:
        states: dx at all knots, starting with the given dx_0.
        controls: du at all knots but the last.
        multipliers: P dx + p at all knots, the derivatives of the cost-to-go with respect to the state.
    """

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
    knot but the last.

    Args:
        end: Hessian of the terminal cost.
        end_gradient: gradient of the terminal cost at dx = 0.
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

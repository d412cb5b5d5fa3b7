"""The Riccati recursion as a parallel scan, with depth O(log steps) instead of O(steps), for devices with many cores."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...dynamics._lowering import by_platform
from .problem import LinearQuadratic, LQPolicy, LQSolution
from .riccati import lq_rollout, riccati


class Stretch(NamedTuple):
    """The optimal cost of a segment of knots from state x at its start to state y at its end, in dual form.

    The cost is the maximum over the dual variable z of 1/2 x' J x - eta' x - z' (y - A x - b) - 1/2 z' C z.
    """

    A: Array
    b: Array
    C: Array
    eta: Array
    J: Array


def riccati_scan(lq: LinearQuadratic, damping: float | Float[Array, ""] = 0.0) -> LQPolicy:
    """The policy of `riccati` without bounds, by an associative scan over the knots (Sarkka & Garcia-Fernandez 2023).

    The depth is O(log steps). R must be positive definite at every knot. The scan needs about six times as many operations as
    `riccati`, so it is faster only if many knots can be processed in parallel, that is, on a GPU with one or a few problems.

    Args:
        damping: number added to the diagonal of R at every knot.
    """
    lq, n = lq.dense(), lq.states
    eye = jnp.eye(lq.controls, dtype=lq.cost.dtype)
    cost = lq.cost.at[:, n:, n:-1].add(jnp.asarray(damping, lq.cost.dtype) * eye[None])
    A, B, c = lq.dynamics[..., :n], lq.dynamics[..., n:-1], lq.dynamics[..., -1:]
    S, q, r = cost[:, :n, n:-1], cost[:, :n, -1:], cost[:, n:, -1:]
    solved = jnp.linalg.solve(cost[:, n:, n:-1], jnp.concatenate([S.mT, r, B.mT], -1))
    by_state, by_slope, by_dual = solved[..., :n], solved[..., n : n + 1], solved[..., n + 1 :]
    own = Stretch(A - B @ by_state, c - B @ by_slope, B @ by_dual, S @ by_slope - q, cost[:, :n, :n] - S @ by_state)
    zero = jnp.zeros_like(A[:1])
    end = Stretch(zero, zero[..., :1], zero, -lq.end[None, :, n:], lq.end[None, :, :n])
    stretches = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), own, end)
    to_end = jax.lax.associative_scan(lambda later, earlier: joined(earlier, later), stretches, reverse=True)
    hessian, gradient = 0.5 * (to_end.J + to_end.J.mT), -to_end.eta[..., 0]
    F = lq.dynamics
    total = cost + F[..., :-1].mT @ (hessian[1:] @ F)
    slope = total[:, n:, -1:] + B.mT @ gradient[1:, :, None]
    by_control = total[:, n:, n:-1]
    policy = -jnp.linalg.solve(by_control, jnp.concatenate([total[:, n:, :n], slope], -1))
    pivot = jnp.linalg.eigvalsh(by_control).min()
    free = jnp.ones_like(policy[..., 0]) > 0
    adjoint = _adjoint(F[..., :n].mT, lq.cost[:, :n, -1], lq.end[:, -1])
    slope = lq.cost[:, n:, -1] + jnp.einsum("kij,ki->kj", B, adjoint[1:])
    return LQPolicy(policy[..., :n], policy[..., n], hessian, gradient, adjoint, slope, pivot, free)


def _adjoint(matrices: Array, offsets: Array, end: Array) -> Array:
    """Solve l_k = matrix_k l_{k+1} + offset_k backward from the end, by a scan of affine maps."""

    def before(later, earlier):
        return product(earlier[0], later[0]), product(earlier[0], later[1][..., None])[..., 0] + earlier[1]

    matrices, offsets = jax.lax.associative_scan(before, (matrices, offsets), reverse=True)
    return jnp.concatenate([matrices @ end + offsets, end[None]])


def product(a: Array, b: Array) -> Array:
    """The product a b of small matrices, as sums that XLA fuses with neighbouring operations.

    XLA's compiler for GPUs aborts on matrix products of padded slices, which occur when `associative_scan` is differentiated
    in reverse mode (jaxlib 0.11.2, triton_tiling_propagation.cc: "src_fragment_it != src_fragments_order.end()").
    """
    return jnp.sum(a[..., :, :, None] * b[..., None, :, :], -2)


def joined(first: Stretch, second: Stretch) -> Stretch:
    """The union of two adjacent segments, from the start of the first to the end of the second."""
    A, b, C, eta, J = first
    eye = jnp.eye(A.shape[-1], dtype=A.dtype)
    n = A.shape[-1]
    # (1 + C J)^-1 [A, C, b + C eta]; the products with J below use the transpose of its first block
    right = jnp.concatenate([A, C, b + product(C, second.eta)], -1)
    through = jnp.linalg.solve(jnp.broadcast_to(eye, A.shape) + product(C, second.J), right)
    a, cov, mean = through[..., :n], through[..., n : 2 * n], through[..., 2 * n :]
    # A' (1 + J C)^-1 = ((1 + C J)^-1 A)'
    return Stretch(
        product(second.A, a),
        product(second.A, mean) + second.b,
        product(product(second.A, cov), second.A.mT) + second.C,
        product(a.mT, second.eta - product(second.J, b)) + eta,
        product(product(a.mT, second.J), A) + J,
    )


def lq_rollout_scan(lq: LinearQuadratic, policy: LQPolicy, start: Float[Array, " n"] | None = None) -> LQSolution:
    """The result of `lq_rollout`, by an associative scan over the closed loop's affine maps, with depth O(log steps)."""
    lq, n = lq.dense(), lq.states
    start = jnp.zeros_like(lq.end[:, -1]) if start is None else start
    A, B, c = lq.dynamics[..., :n], lq.dynamics[..., n:-1], lq.dynamics[..., -1]
    matrix = A + B @ policy.gains
    offset = c + jnp.einsum("kij,kj->ki", B, policy.feedforward)

    def after(first, second):
        return product(second[0], first[0]), product(second[0], first[1][..., None])[..., 0] + second[1]

    matrices, offsets = jax.lax.associative_scan(after, (matrix, offset))
    states = jnp.concatenate([start[None], matrices @ start + offsets])
    controls = jnp.einsum("kij,kj->ki", policy.gains, states[:-1]) + policy.feedforward
    return LQSolution(states, controls, jnp.einsum("kij,kj->ki", policy.hessian, states) + policy.gradient)


def solve_lq(
    lq: LinearQuadratic,
    start: Float[Array, " n"] | None = None,
    bounds: tuple[Float[Array, "steps m"], Float[Array, "steps m"]] | None = None,
) -> LQSolution:
    """The minimiser of a linear-quadratic problem, by `riccati` on CPUs and by `riccati_scan` on other devices.

    With bounds, `riccati` is always used. Its policy is then optimal only near dx = 0, so the result is the minimiser only if
    no further bounds become active along the motion.

    Args:
        start: initial state dx_0; None: zero.
        bounds: lower and upper bounds of du at each knot, as for `riccati`.
    """
    start = jnp.zeros_like(lq.end[:, -1]) if start is None else start

    def in_turn(lq, start, bounds):
        return lq_rollout(lq, riccati(lq, bounds), start)

    def at_once(lq, start, bounds):
        del bounds
        return lq_rollout_scan(lq, riccati_scan(lq), start)

    if bounds is not None:
        return in_turn(lq, start, bounds)
    return by_platform(in_turn, at_once, lq, start, None)

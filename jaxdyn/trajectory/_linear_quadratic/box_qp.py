"""Batches of small box-constrained quadratic programs, one per lane, solved by projected Newton steps."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...dynamics._lowering import is_for_launches, matrix_times

STEPS = 5  # number of step lengths tried: 1, 1/2, ...
MOST = 50  # maximum number of projected steps


def masked_inverse(h: Float[Array, "m m *lanes"], free: Array) -> tuple[Array, Array]:
    """The inverse of the free block of a symmetric matrix h, with zeros elsewhere, and the block's smallest pivot.

    The inverse is computed by one symmetric sweep per row (Goodnight 1979), as in `positive_inverse`.
    """
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
    (swept, smallest), _ = jax.lax.scan(body, start, jnp.arange(m), unroll=is_for_launches())
    return jnp.where(both, -swept, jnp.zeros_like(a)), smallest


def box_qp(
    h: Float[Array, "m m *lanes"], g: Float[Array, "m *lanes"], lower: Array, upper: Array
) -> tuple[Array, Array, Array, Array]:
    """Minimise 1/2 u' h u + g' u over lower <= u <= upper by projected Newton steps (Tassa, Mansard & Todorov 2014).

    Returns:
        The minimiser u, (m, *lanes), the mask of its free entries, the inverse of the free block of h with zeros elsewhere, and
        the smallest pivot of that block. The pivot is not positive if the block is not positive definite.
    """
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
            unroll=is_for_launches(),
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

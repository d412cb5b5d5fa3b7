"""A damped Newton method for smooth functions of some tens to hundreds of variables."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class Minimum(NamedTuple):
    """What `minimise` found.

    Attributes:
        z: (k,) the point.
        value: the function there.
        decrement: g^T H^-1 g / 2 there: by how much a quadratic model says the function is above its least value.
        hessian: (k, k) H there.
        steps: steps tried.
        converged: H is positive definite and the decrement within the tolerance.
    """

    z: Float[Array, " k"]
    value: Float[Array, ""]
    decrement: Float[Array, ""]
    hessian: Float[Array, "k k"]
    steps: Int[Array, ""]
    converged: Bool[Array, ""]


@functools.partial(jax.jit, static_argnums=0)
def minimise(
    f: Callable[..., Float[Array, ""]], z: Float[Array, " k"], arguments, tolerance: float, limit: int = 400
) -> Minimum:
    """Minimise f(z, arguments) by steps -(H + l 1)^-1 g, with the exact Hessian and Levenberg-Marquardt damping l.

    l falls with every step that does as well as the quadratic model says and grows with every step that does not, or for
    which H + l 1 is not positive definite (Nielsen 1999). Quadratic convergence: unlike a Gauss-Newton matrix, H holds the
    curvature of a parametrisation, which is all there is where its image's boundary is approached. Variables should be
    scaled to like sizes. O(k^3) a step, besides k + 1 derivatives of f.

    Args:
        f: returns infinity or NaN where it is not defined; such steps are not taken.
        tolerance: on the decrement.
        limit: number of steps at most.
    """
    value_and_grad = jax.value_and_grad(f)
    hessian = jax.hessian(f)

    def decrement(g, h):
        shift = 1e-15 * jnp.max(jnp.abs(jnp.diagonal(h)))
        factor = jnp.linalg.cholesky(h + shift * jnp.eye(len(g), dtype=g.dtype))
        half = jax.scipy.linalg.solve_triangular(factor, g, lower=True)
        return 0.5 * half @ half

    def body(carry):
        z, value, g, h, damping, growth, _, steps = carry
        factor = jnp.linalg.cholesky(h + damping * jnp.eye(len(z), dtype=z.dtype))
        step = -jax.scipy.linalg.cho_solve((factor, True), g)
        expected = -(g @ step + 0.5 * step @ (h @ step))
        new = z + step
        new_value, new_g = value_and_grad(new, arguments)
        ratio = (value - new_value) / expected
        # within rounding of the value itself, a shorter gradient has to do
        tiny = expected < 1e-13 * jnp.abs(value)
        accept = (ratio > 1e-3) | (tiny & (jnp.abs(new_g) < jnp.abs(g)).all())
        accept &= jnp.isfinite(new_value) & jnp.isfinite(new_g).all() & jnp.isfinite(step).all()

        def taken(_):
            shrink = jnp.where(tiny, 0.1, jnp.maximum(0.1, 1 - (2 * ratio - 1) ** 3))
            h_new = hessian(new, arguments)
            return new, new_value, new_g, h_new, damping * shrink, jnp.asarray(2.0, z.dtype), decrement(new_g, h_new)

        def refused(_):
            return z, value, g, h, damping * growth, 2 * growth, carry[6]

        return (*jax.lax.cond(accept, taken, refused, None), steps + 1)

    def more(carry):
        return (~(carry[6] <= tolerance)) & (carry[7] < limit) & jnp.isfinite(carry[4])

    value, g = value_and_grad(z, arguments)
    h = hessian(z, arguments)
    damping = 1e-3 * jnp.max(jnp.abs(jnp.diagonal(h)))
    first = (z, value, g, h, damping, jnp.asarray(2.0, z.dtype), decrement(g, h), jnp.asarray(0))
    z, value, _, h, _, _, last, steps = jax.lax.while_loop(more, body, first)
    return Minimum(z, value, last, h, steps, last <= tolerance)

"""Feasible speeds along a path: linear programs in two unknowns, solved by eliminating one of them.

The path parameter s is discretised on a grid with spacing d. Let x = s'^2, and let u = s'' be constant between grid points, so
that x_{i+1} = x_i + 2 d u. Torque and acceleration limits are linear inequalities lo <= a u + b x <= hi ("bands"), imposed at
both ends of each grid interval, with signs chosen so that a >= 0.

Eliminating u from the upper limit of a band k and the lower limit of a band l leaves (a_l b_k - a_k b_l) x <= a_l hi_k - a_k
lo_l. All pairs of bands together define the feasible interval of x (Fourier-Motzkin elimination). The method never divides by
a, which is zero at singular points.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .path import PathDynamics

FAR = 1e9  # substitute for an infinite limit


class Bands(NamedTuple):
    """The bands lo <= a u + b x <= hi, with a >= 0, of every grid interval."""

    a: Float[Array, "intervals bands"]
    b: Float[Array, "intervals bands"]
    lo: Float[Array, "intervals bands"]
    hi: Float[Array, "intervals bands"]


def bands_of(
    at: PathDynamics,
    step: Float[Array, ""],
    friction: Float[Array, "points n"],
    torque: Float[Array, "n 2"],
    acceleration: Float[Array, " n"] | None,
) -> Bands:
    """The bands of torque limits and, if given, acceleration limits, at both ends of every interval."""
    held = at.gravity + friction
    a, b, lo, hi = [at.inertia], [at.centrifugal], [torque[None, :, 0] - held], [torque[None, :, 1] - held]
    if acceleration is not None:
        most = jnp.broadcast_to(acceleration[None], at.slope.shape)
        a, b, lo, hi = [*a, at.slope], [*b, at.curvature], [*lo, -most], [*hi, most]
    a, b, lo, hi = (jnp.concatenate(x, axis=1) for x in (a, b, lo, hi))
    size = jax.lax.stop_gradient(jnp.maximum(jnp.abs(a), jnp.abs(b)).max(0, keepdims=True))
    size = jnp.where(size > 0, size, jnp.ones_like(size))
    a, b, lo, hi = a / size, b / size, lo / size, hi / size
    a, b, lo, hi = (
        jnp.concatenate([left[:-1], right[1:]], axis=1)
        for left, right in ((a, a + 2 * step * b), (b, b), (lo, lo), (hi, hi))
    )
    turned = a < 0
    lo, hi = jnp.where(turned, -hi, lo), jnp.where(turned, -lo, hi)
    return Bands(jnp.abs(a), jnp.where(turned, -b, b), jnp.clip(lo, -FAR, FAR), jnp.clip(hi, -FAR, FAR))


def _half_lines(p: Array, r: Array, scale: Array, axes: int | tuple[int, ...]) -> tuple[Array, Array]:
    """The interval of x in which p x <= r holds for all entries along the given axes.

    The result is the empty interval (FAR, -FAR) if p = 0 > r for some entry.
    """
    tolerance = 32 * jnp.finfo(p.dtype).eps
    flat = jnp.abs(p) <= tolerance * scale
    bound = r / jnp.where(flat, jnp.ones_like(p), p)
    never = flat & (r < -jnp.sqrt(tolerance) * scale)
    high = jnp.where(never, -FAR, jnp.where(flat | (p < 0), FAR, bound)).min(axes)
    low = jnp.where(never, FAR, jnp.where(flat | (p > 0), -FAR, bound)).max(axes)
    return low, high


def lasting_speeds(bands: Bands) -> tuple[Float[Array, " intervals"], Float[Array, " intervals"]]:
    """The interval of x for which some u satisfies all bands; empty (low > high) if no x does."""
    a, b = bands.a, bands.b
    p = a[:, None] * b[:, :, None] - a[:, :, None] * b[:, None]
    r = a[:, None] * bands.hi[:, :, None] - a[:, :, None] * bands.lo[:, None]
    scale = a[:, None] * jnp.abs(b)[:, :, None] + a[:, :, None] * jnp.abs(b)[:, None]
    return _half_lines(p, r, scale, (1, 2))


def controllable_speeds(
    bands: Bands,
    lasting: tuple[Float[Array, " intervals"], Float[Array, " intervals"]],
    largest: Float[Array, " points"],
    last: Float[Array, ""],
    step: Float[Array, ""],
) -> tuple[Float[Array, "points 2"], Bool[Array, " points"]]:
    """The interval of x from which the end can be reached within the limits, computed backward from the end.

    Args:
        largest: upper bounds on x from the velocity limits.
        last: x at the end.
        step: grid spacing d.

    Returns:
        (low, high) at every point, both zero if the interval is empty, and the mask of empty intervals.
    """
    rounding = 64 * jnp.finfo(last.dtype).eps

    def back(following, inputs):
        low, high = following
        row, lasting_low, lasting_high, most = inputs
        p = jnp.concatenate([2 * step * row.b - row.a, row.a - 2 * step * row.b])
        r = jnp.concatenate([2 * step * row.hi - row.a * low, row.a * high - 2 * step * row.lo])
        scale = row.a + 2 * step * jnp.abs(row.b)
        here_low, here_high = _half_lines(p, r, jnp.concatenate([scale, scale]), 0)
        here_low = jnp.maximum(jnp.maximum(here_low, lasting_low), 0)
        here_high = jnp.minimum(jnp.minimum(here_high, lasting_high), most)
        empty = here_low > here_high + rounding * (1 + jnp.abs(here_high))
        here_low, here_high = jnp.minimum(here_low, here_high), here_high
        here = jnp.where(empty, 0, here_low), jnp.where(empty, 0, here_high)
        return here, (jnp.stack(here), empty)

    inputs = (bands, *lasting, largest[:-1])
    _, (sets, empty) = jax.lax.scan(back, (last, last), inputs, reverse=True)
    outside = last > largest[-1] * (1 + rounding)
    return jnp.concatenate([sets, jnp.stack([last, last])[None]]), jnp.concatenate([empty, outside[None]])


def fastest_speeds(
    bands: Bands, sets: Float[Array, "points 2"], first: Float[Array, ""], step: Float[Array, ""]
) -> tuple[Float[Array, " points"], Float[Array, " intervals"]]:
    """Forward pass with the largest u that keeps x in the controllable intervals; return x at the points and u between them."""
    negligible = 32 * jnp.finfo(first.dtype).eps

    def forward(x, inputs):
        row, following = inputs
        flat = row.a <= negligible * (1 + 2 * step * jnp.abs(row.b))
        a = jnp.where(flat, jnp.ones_like(row.a), row.a)
        most = jnp.where(flat, FAR, (row.hi - row.b * x) / a).min()
        least = jnp.where(flat, -FAR, (row.lo - row.b * x) / a).max()
        reached = jnp.clip(x + 2 * step * jnp.maximum(most, least), following[0], following[1])
        return reached, (reached, (reached - x) / (2 * step))

    _, (x, u) = jax.lax.scan(forward, first, (bands, sets[1:]))
    return jnp.concatenate([first[None], x]), u

"""Motions scaled down until every limit holds on a fine grid."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..model.chain import Chain
from .excitation_limits import LIMIT_NAMES, Clearance, MotionLimits, shares
from .excitation_solver import motion_at

LINEAR = LIMIT_NAMES.index("torque")  # limits before this one are linear in the coefficients
HALVINGS = 10
ROUNDING = 1e-9


@functools.partial(jax.jit, static_argnames="clearance")
def largest_shares(
    chain: Chain,
    matrices: Float[Array, "4 n N k"],
    limits: MotionLimits,
    clearance: Clearance | None,
    z: Float[Array, "s n k"],
) -> tuple[Float[Array, "s 6 n"], Float[Array, " s"]]:
    """The largest share of every limit that each motion uses at the samples, and its least clearance."""

    def one(z):
        most, least = shares(chain, limits, tuple(motion_at(matrices, limits, z)), clearance)
        return most.max(0), least.min()

    return jax.vmap(one)(z)


def repaired(
    chain: Chain,
    matrices: Float[Array, "4 n N k"],
    limits: MotionLimits,
    clearance: Clearance | None,
    z: Float[np.ndarray, "s n k"],
) -> tuple[Float[np.ndarray, "s n k"], Bool[np.ndarray, " s"]]:
    """Coefficients scaled towards rest in the middle of the ranges until all limits hold, and whether they do.

    Position, velocity, acceleration and jerk are linear in a joint's coefficients: each joint is scaled by what it exceeds.
    For torques and the user's clearance all joints are then scaled by one number, found by bisection.
    """

    def look(z):
        most, least = largest_shares(chain, matrices, limits, clearance, jnp.asarray(z))
        return np.asarray(most), np.asarray(least)

    def holds(z):
        most, least = look(z)
        return (most.max((1, 2)) <= 1) & (least >= 0)  # False where NaN

    linear = look(z)[0][:, :LINEAR].max(1)
    z = np.asarray(z) * (1 - ROUNDING) / np.maximum(1, linear)[:, :, None]
    good = holds(z)
    if good.all():
        return z, good
    low, high = np.where(good, 1.0, 0.0), np.ones(len(z))
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        held = holds(z * middle[:, None, None])
        low, high = np.where(held, middle, low), np.where(held, high, middle)
    return z * low[:, None, None], low > 0

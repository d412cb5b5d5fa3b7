"""Motions scaled down until every limit holds on a fine grid."""

import numpy as np
from jaxtyping import Float

from ..model._chain import Chain
from ._excitation_limits import LIMIT_NAMES, Clearance, MotionLimits, largest_shares

LINEAR = LIMIT_NAMES.index("torque")  # limits before this one are linear in the coefficients
HALVINGS = 8
ROUNDING = 1e-9


def repaired(
    chain: Chain, limits: MotionLimits, offset: Float[np.ndarray, "4 N n"], clearance: Clearance | None
) -> tuple[Float[np.ndarray, " n"], bool]:
    """Factors on the joints' motion about the middle of their ranges with which all limits hold, and whether there are any.

    Position, velocity, acceleration and jerk are linear in a joint's motion: each joint is scaled by what it exceeds. For
    torques and the user's clearance all joints are then scaled by one number, found by bisection.

    Args:
        chain: the robot.
        limits: finite for positions.
        offset: q less the middle of the ranges, qd, qdd, qddd at the samples where the limits have to hold.
        clearance: the user's function.
    """
    middle = np.zeros_like(offset)
    middle[0] = (limits.upper + limits.lower) / 2

    def holds(factors: np.ndarray) -> bool:
        most, least = largest_shares(chain, limits, middle + factors * offset, clearance)
        return bool(most.max() <= 1 and least >= 0)  # False where NaN

    bounds = np.stack([(limits.upper - limits.lower) / 2, limits.velocity, limits.acceleration, limits.jerk])
    linear = (np.abs(offset).max(1) / bounds).max(0)
    factors = (1 - ROUNDING) / np.maximum(1, linear)
    if holds(factors):
        return factors, True
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        between = (low + high) / 2
        low, high = (between, high) if holds(between * factors) else (low, between)
    return low * factors, low > 0

"""Limits of a robot's coordinates, for sliders and plots."""

import numpy as np
from jaxtyping import Bool, Float

from ..io._logs.motion import coordinate_names
from ..model._chain import Chain
from ..model._configuration import neutral_configuration
from ..model._layout import layout, turning_joints
from ..trajectory._kinematics.inverse_kinematics import coordinate_limits


def slider_ranges(chain: Chain) -> list[tuple[str, int, float, float]]:
    """Name, entry of q, lower limit and upper limit of every coordinate that has a single entry in q and a nonzero range."""
    where, names = layout(chain), coordinate_names(chain)
    limits, sliding = np.asarray(coordinate_limits(chain), float), sliding_coordinates(chain)
    ranges = []
    for column, entry in zip(where.columns.tolist(), where.entries.tolist(), strict=True):
        free = 1.0 if sliding[column] else np.pi
        low, high = limits[column]
        low, high = low if np.isfinite(low) else min(-free, high - free), high
        high = high if np.isfinite(high) else max(free, low + free)
        if high > low:
            ranges.append((names[column], entry, float(low), float(high)))
    return ranges


def start_configuration(chain: Chain) -> Float[np.ndarray, " nq"]:
    """The neutral configuration, clipped to the limits."""
    q = np.array(neutral_configuration(chain), float)
    for _, entry, low, high in slider_ranges(chain):
        q[entry] = np.clip(q[entry], low, high)
    return q


def sliding_coordinates(chain: Chain) -> Bool[np.ndarray, " nv"]:
    """Mask of the coordinates that are lengths [m], that is, those that move only prismatic joints."""
    sliding = ~turning_joints(chain)
    if chain.coupling is None:
        return sliding
    moves = np.asarray(chain.coupling.matrix) != 0
    return moves.any(axis=0) & ~moves[~sliding].any(axis=0)


def effort_limits(chain: Chain) -> Float[np.ndarray, " nv"]:
    """Largest |tau| of each coordinate [N m or N], infinite if unknown, for example if a coordinate moves several joints."""
    limits = np.asarray(chain.limits.effort, float)
    if chain.coupling is None:
        return limits
    matrix = np.asarray(chain.coupling.matrix, float)
    own = np.abs(matrix).argmax(axis=0)
    plain = ((matrix != 0).sum(axis=0) == 1) & ((matrix[own] != 0).sum(axis=1) == 1)
    return np.where(plain, limits[own] * np.abs(matrix).max(axis=0), np.inf)

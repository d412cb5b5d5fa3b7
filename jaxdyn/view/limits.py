"""Limits of a robot's coordinates, for sliders and pictures."""

import numpy as np
from jaxtyping import Float

from ..io.motion import coordinate_names
from ..model.chain import Chain
from ..model.configuration import layout


def slider_ranges(chain: Chain) -> list[tuple[str, int, float, float]]:
    """(name, entry of q, lowest, highest) of every coordinate with one position."""
    where, names = layout(chain), coordinate_names(chain)
    limits = np.asarray(chain.position_limits, float) if chain.coupling is None else np.full((chain.nv, 2), np.inf)
    sliding = (
        np.zeros(chain.nv, bool)
        if chain.coupling is not None
        else np.abs(np.asarray(chain.screw)[:, :3]).max(axis=1) == 0
    )
    ranges = []
    for column, entry in zip(where.columns.tolist(), where.entries.tolist(), strict=True):
        free = 1.0 if sliding[column] else np.pi
        low, high = limits[column]
        low, high = low if np.isfinite(low) else -free, high if np.isfinite(high) else free
        if high > low:
            ranges.append((names[column], entry, float(low), float(high)))
    return ranges


def effort_limits(chain: Chain) -> Float[np.ndarray, " nv"]:
    """Largest |tau| of each coordinate, infinite where none is known."""
    if chain.coupling is None:
        return np.asarray(chain.effort_limit, float)
    return np.full(chain.nv, np.inf)

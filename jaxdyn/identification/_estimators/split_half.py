"""Split-half test: agreement between estimates from the two halves of the data."""

import dataclasses

import numpy as np
from jaxtyping import Float

from ...errors import IdentificationError
from .._regression.base_parameters import BaseParameters
from .._regression.blocks import BlockFactors
from .estimate import Estimate
from .least_squares import weighted_least_squares

AGREEING = 2.0  # largest difference between agreeing estimates, in standard deviations of the difference


@dataclasses.dataclass(frozen=True, eq=False)
class SplitHalf:
    """Agreement between two estimates from disjoint data.

    Attributes:
        names: names of the base parameters.
        differences: (b,) first minus second estimate, in standard deviations of the difference.
        of_motion: True if a motion is repeated, and the halves are those of the motion, each from all repetitions.
    """

    names: tuple[str, ...]
    differences: Float[np.ndarray, " b"]
    of_motion: bool = False

    @property
    def share(self) -> float:
        """Fraction of the base parameters that agree within two standard deviations; 0.95 is expected."""
        return float(np.mean(np.abs(self.differences) <= AGREEING))

    @property
    def rms(self) -> float:
        """RMS of the differences, in standard deviations; 1 is expected."""
        return float(np.sqrt(np.mean(self.differences**2)))

    @property
    def disagreeing(self) -> tuple[str, ...]:
        """Names of the parameters that disagree, largest difference first."""
        order = np.argsort(-np.abs(self.differences))
        return tuple(self.names[k] for k in order if abs(self.differences[k]) > AGREEING)

    def __str__(self) -> str:
        agree = len(self.names) - len(self.disagreeing)
        of = "repeated motion" if self.of_motion else "data"
        text = f"the two halves of the {of} agree on {agree} of {len(self.names)} base parameters within 2 standard deviations"
        if not self.disagreeing:
            return text
        listed = ", ".join(self.disagreeing[:3]) + (" and others" if len(self.disagreeing) > 3 else "")
        return f"{text}, but not on {listed}"


def agreement(names: tuple[str, ...], first: Estimate, second: Estimate) -> SplitHalf:
    """Differences (x_k - y_k) / sqrt(s_k^2 + r_k^2) of two estimates x +- s and y +- r from disjoint data."""
    deviations = np.hypot(first.standard_deviations, second.standard_deviations)
    off = first.values - second.values
    return SplitHalf(names, np.divide(off, deviations, out=np.zeros_like(off), where=deviations > 0))


def split_half(blocks: BlockFactors, base: BaseParameters, independence: float = 1.0) -> SplitHalf | None:
    """Compare weighted least-squares fits to the first and the second half of the data.

    If there are several runs, the first half contains the first runs. If the runs repeat a motion, the halves are those
    of the motion, because errors of the model repeat with it: two repetitions would agree whatever the model lacks.
    Returns None if either half alone does not determine the base parameters.

    Args:
        blocks: factors of the data, in blocks.
        base: the base parameters.
        independence: fraction of the samples that count as independent.
    """
    if blocks.order_of_groups.max() < 1:
        return None
    try:
        first, second = (weighted_least_squares(half, base, independence) for half in blocks.halves)
    except IdentificationError:
        return None
    return dataclasses.replace(agreement(base.names, first, second), of_motion=blocks.groups is not None)

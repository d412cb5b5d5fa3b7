"""Total mass of an identified robot, and whether the fitted equations determine it."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float

from .base_parameters import BaseParameters
from .columns import INERTIAL_NAMES

CLOSE = 1e-4  # relative tolerance, which must cover the noise with which logged positions satisfy the constraints


@dataclasses.dataclass(frozen=True)
class TotalMass:
    """Total mass of the moving links.

    Attributes:
        value: total mass of the identified robot [kg].
        deviation: standard deviation of the weighted least-squares estimate, from a jackknife [kg]. It is None if the
            fitted equations do not determine the total mass, so that `value` depends on the given model. The equations
            never determine the total mass of a robot with a fixed base, and may not do so if unmeasured forces act at
            fixed frames.
        prior: total mass of the given model [kg].
    """

    value: float
    deviation: float | None
    prior: float

    def __str__(self) -> str:
        if self.deviation is None:
            return f"{self.value:.4g} kg, not determined by the data ({self.prior:.4g} kg in the given model)"
        return f"{self.value:.4g} kg, standard deviation {self.deviation:.2g} kg"


def total_mass_of(
    base: BaseParameters,
    covariance: Float[np.ndarray, "b b"],
    parameters: Float[np.ndarray, " p"],
    prior: Float[np.ndarray, " p"],
    bodies: Bool[np.ndarray, " n"],
) -> TotalMass:
    """Sum of the links' masses, with a standard deviation if the sum is a combination of base parameters.

    Args:
        covariance: covariance of the base parameters.
        parameters: the identified full parameters.
        prior: the full parameters of the prior model.
        bodies: mask of the links that can have a mass (`with_bodies`).
    """
    masses = np.zeros(base.matrix.shape[1])
    masses[: len(INERTIAL_NAMES) * len(bodies) : len(INERTIAL_NAMES)] = bodies
    unknown = np.where(np.isin(np.array(base.parameters), base.known), 0.0, masses) if base.known else masses
    weights = np.linalg.lstsq(base.matrix.T, unknown, rcond=None)[0]
    missed = np.linalg.norm(base.matrix.T @ weights - unknown)
    determined = missed <= CLOSE * max(float(np.linalg.norm(unknown)), 1.0)
    deviation = float(np.sqrt(weights @ covariance @ weights)) if determined else None
    return TotalMass(float(masses @ parameters), deviation, float(masses @ prior))

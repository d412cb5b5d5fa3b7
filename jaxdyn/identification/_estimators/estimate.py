"""Results of estimators."""

import dataclasses

import numpy as np
from jaxtyping import Float

from .._regression.blocks import block_degrees


@dataclasses.dataclass(frozen=True, eq=False)
class Estimate:
    """Base parameters estimated from data.

    Attributes:
        values: (b,) estimated base parameters, in SI units.
        covariance: (b, b) covariance of the values, from a jackknife over eight blocks of the data or, if a motion is
            repeated, over eight stretches of the motion. It accounts for residuals that are correlated, for example due
            to filters or unmodelled friction. If the data were accumulated without blocks, independent residuals are assumed.
        noise: (n,) standard deviation of each joint's residual torque [N m or N].
        condition: condition number of the (weighted) base regressor.
        scaled_condition: condition number with columns scaled to unit norm; it does not depend on units.
        joint_residuals: (n,) RMS residual of each joint on the fitted data [N m or N].
        method: name of the estimator.
        run_noise: (runs, n) standard deviations of the residual torques of each run [N m or N]; None if all runs have
            the same weights.
        iterations: number of updates of the values.
        simulations: number of simulations of the robot; a simulation and its sensitivities together count as one.
        history: one number per iteration: the largest relative step, unless the estimator documents another quantity.
        converged: True if the last step was below the tolerance.
        degrees: degrees of freedom of the covariance, for confidence intervals. They follow from the number of blocks
            or, without blocks, from the number of independent rows. Infinite if unknown.
        notes: remarks from the estimator.
        independent: (b, b) covariance s^2 (W^T W)^-1 for residuals that are correlated only by the filter, where s is
            the standard deviation of the (weighted) rows. None if `covariance` already has this value.
    """

    values: np.ndarray
    covariance: np.ndarray
    noise: np.ndarray
    condition: float
    scaled_condition: float
    joint_residuals: np.ndarray
    method: str = "least squares"
    run_noise: np.ndarray | None = None
    iterations: int = 1
    simulations: int = 0
    history: tuple[float, ...] = ()
    converged: bool = True
    degrees: float = np.inf
    notes: tuple[str, ...] = ()
    independent: np.ndarray | None = None

    def with_covariance(self, covariance: Float[np.ndarray, "b b"], blocks: int) -> "Estimate":
        """A copy with a jackknife covariance; `independent` keeps the covariance for independent residuals."""
        degrees = min(self.degrees, block_degrees(blocks))
        return dataclasses.replace(
            self, covariance=covariance, independent=self.independent_covariance, degrees=degrees
        )

    @property
    def independent_covariance(self) -> Float[np.ndarray, "b b"]:
        """Covariance (b, b) of the values for residuals that are correlated only by the filter."""
        return self.covariance if self.independent is None else self.independent

    @property
    def standard_deviations(self) -> np.ndarray:
        """Standard deviations of the values (b,)."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def relative_standard_deviations(self) -> np.ndarray:
        """Standard deviations of the values as percentages of their magnitudes (b,)."""
        with np.errstate(divide="ignore"):
            return 100 * self.standard_deviations / np.abs(self.values)

    def interval_factor(self, level: float = 0.95) -> float:
        """Half-width of the confidence interval at `level`, in standard deviations, from Student's t distribution."""
        from scipy import stats  # slow to import

        return float(stats.t.ppf(0.5 + level / 2, self.degrees))

    def confidence_intervals(self, level: float = 0.95) -> Float[np.ndarray, "b 2"]:
        """Confidence interval (lower, upper) of each value at `level`, from Student's t distribution."""
        half = self.interval_factor(level) * self.standard_deviations
        return np.stack([self.values - half, self.values + half], axis=1)

"""What an estimator found."""

import dataclasses

import numpy as np
from jaxtyping import Float

from .._regression.blocks import block_degrees


@dataclasses.dataclass(frozen=True, eq=False)
class Estimate:
    """Base parameters estimated from data.

    Attributes:
        values: (b,) estimates.
        covariance: (b, b), from fits that leave out an eighth of the data in turn, so that it allows for whatever makes
            residuals alike from sample to sample: filters, friction that the model does not describe. That of independent
            residuals where the data were accumulated without blocks.
        noise: (n,) standard deviation of each joint's residual torque [N m].
        condition: condition number of the (weighted) base regressor.
        scaled_condition: the same with columns of unit norm: near-dependence apart from units.
        joint_residuals: (n,) root mean square of each joint's residual on the data fitted [N m].
        method: name of the estimator.
        run_noise: (runs, n) standard deviations of the residuals, where runs are weighed by their own.
        iterations: how often the values were updated.
        simulations: how often the robot was simulated, sensitivities included.
        history: a figure an iteration, as the estimator's own text says; the largest relative step where it says nothing.
        converged: whether the last step was below the tolerance.
        degrees: degrees of freedom of the covariance: those of the blocks that were left out and of what it was shrunk
            towards; without blocks of the independent rows left; infinite where unknown.
        notes: what the estimator noticed.
        independent: (b, b) covariance if residuals were as independent as the filter leaves them, s^2 (W^T W)^-1 with the noise
            of the (weighted) rows; None where that is `covariance`.
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
        """With a covariance from fits that leave out blocks in place of that of independent residuals."""
        degrees = min(self.degrees, block_degrees(blocks))
        return dataclasses.replace(
            self, covariance=covariance, independent=self.independent_covariance, degrees=degrees
        )

    @property
    def independent_covariance(self) -> Float[np.ndarray, "b b"]:
        """(b, b) covariance if residuals were as independent as the filter leaves them."""
        return self.covariance if self.independent is None else self.independent

    @property
    def standard_deviations(self) -> np.ndarray:
        """(b,) standard deviations of the estimates."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def relative_standard_deviations(self) -> np.ndarray:
        """(b,) standard deviations in percent of the estimates."""
        with np.errstate(divide="ignore"):
            return 100 * self.standard_deviations / np.abs(self.values)

    def interval_factor(self, level: float = 0.95) -> float:
        """Half the width of intervals that hold a true value with probability `level`, in standard deviations: Student's t."""
        from scipy import stats  # slow to import

        return float(stats.t.ppf(0.5 + level / 2, self.degrees))

    def confidence_intervals(self, level: float = 0.95) -> Float[np.ndarray, "b 2"]:
        """Intervals that hold the true values with probability `level`, each by itself, by Student's t."""
        half = self.interval_factor(level) * self.standard_deviations
        return np.stack([self.values - half, self.values + half], axis=1)

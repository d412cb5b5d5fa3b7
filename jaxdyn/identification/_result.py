"""What `identify` gives back."""

import dataclasses

import numpy as np

from .._summary import Summary, lines
from ..model._chain import Chain
from ._consistency.consistent import ConsistentEstimate
from ._estimators.estimate import Estimate
from ._friction.fit import FrictionFit
from ._preprocessing.samples import Samples
from ._regression.base_parameters import BaseParameters
from ._regression.columns import Columns
from ._regression.factors import QRFactors
from ._regression.prediction import Fit
from ._settings import Settings


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Measured and predicted torques of one stretch of samples, and how well they match.

    Attributes:
        title: what the samples are ("fitted: run.csv", "held out: last 30 % of run.csv").
        samples: the samples.
        prediction: (N, n) predicted torques [N m].
        fit: the errors.
        unconstrained: the errors of the base parameters that were not asked to be those of possible bodies.
    """

    title: str
    samples: Samples
    prediction: np.ndarray
    fit: Fit
    unconstrained: Fit


@dataclasses.dataclass(frozen=True, repr=False)
class Identification(Summary):
    """What `identify` found.

    Attributes:
        chain: the model with the identified inertias, friction and armature in its leaves.
        prior: the model that was given.
        columns: what was identified.
        base: the base parameters.
        ols: ordinary least squares.
        wls: weighted least squares, of the base parameters alone.
        consistent: the estimate among bodies that can exist, which the chain holds; None where it was not asked for.
        parameters: (p,) the full set in the chain, in column order.
        unconstrained: (p,) the full set nearest the prior's that has the base parameters of `wls`; the chain holds it where
            `consistent` is None.
        fitted: an evaluation per log that was fitted.
        validation: an evaluation per stretch of data that was not.
        validation_refit: the held-out stretch was predicted by a fit without it, while `chain` was fitted to everything.
        friction: the friction model that was fitted in place of viscous, Coulomb and constant friction, or None.
        delay: (n,) how much later than the positions the torques were taken to be [s]; None where it was not asked about.
        settings: chosen or given; None where none were asked for.
        factors: of the runs that were fitted: the columns, and the torque less what was taken as given.
        impossible: for every link whose identified inertia no body can have, what is wrong with it.
        notes: what reading and preprocessing noticed.
    """

    chain: Chain
    prior: Chain
    columns: Columns
    base: BaseParameters
    ols: Estimate
    wls: Estimate
    consistent: ConsistentEstimate | None
    parameters: np.ndarray
    unconstrained: np.ndarray
    fitted: tuple[Evaluation, ...]
    validation: tuple[Evaluation, ...]
    validation_refit: bool
    friction: FrictionFit | None
    delay: np.ndarray | None
    settings: Settings | None
    factors: QRFactors
    impossible: tuple[str, ...]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        rows = (
            f"{run.title}: torque error {run.fit.total_relative:.3g} % of the torque, rms by joint "
            f"{np.array2string(run.fit.rms, precision=3)} N m"
            for run in (*self.fitted, *self.validation)
        )
        consistent = f"{len(self.impossible)} links are not" if self.impossible else "all links are"
        return lines(
            f"Identification: {len(self.base.names)} base parameters of {self.chain.n} joints",
            *rows,
            f"{consistent} physically consistent",
            f"friction: {', '.join(type(term).__name__ for term in self.friction.model.terms)}"
            if self.friction
            else "",
            f"{len(self.notes)} notes" if self.notes else "",
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the full parameters, in column order."""
        return self.columns.names(self.chain.n)

"""The fit behind `identify`: one regression, to one part of the runs or another."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from jaxtyping import Float

from ..model._chain import Chain
from ._consistency.consistent import ConsistentEstimate, consistent_least_squares, consistent_problem
from ._consistency.constraints import Consistency
from ._consistency.densities import LinkBounds, consistent_within, link_bounds
from ._estimators.estimate import Estimate
from ._estimators.least_squares import weighted_least_squares
from ._friction.fit import FrictionFit
from ._friction.model import FrictionModel
from ._model.torque_model import torque_model
from ._preprocessing.samples import split
from ._regression.accumulate import accumulate_blocks
from ._regression.base_parameters import BaseParameters, base_parameters
from ._regression.blocks import BLOCKS, BlockFactors
from ._regression.columns import Columns
from ._regression.completion import (
    nearest_parameters,
    prior_parameters,
    with_parameters,
    with_stand_ins,
    with_thickness,
)
from ._regression.prediction import fit_quality, predict
from ._regression.robot import as_float64
from ._result import Evaluation
from ._stretches import FullRun, Stretch, fit_friction_beside, friction_stretch, plain_stretch

Progress = Callable[[str, int, int], None]


@dataclasses.dataclass(frozen=True, eq=False)
class Solution:
    """Estimates from one set of factors.

    Attributes:
        wls: weighted least squares.
        consistent: the estimate among bodies that can exist; None where it is not asked for.
        parameters: (p,) the full set that is taken for identified.
        nearest: (p,) the full set nearest the prior that has the base parameters of `wls`.
    """

    wls: Estimate
    consistent: ConsistentEstimate | None
    parameters: Float[np.ndarray, " p"]
    nearest: Float[np.ndarray, " p"]


@dataclasses.dataclass(frozen=True, eq=False)
class Fitting:
    """A regression and the runs it is fitted to; under `jax.enable_x64(True)`.

    Attributes:
        chain: the robot.
        columns: what is identified.
        friction: the friction model beside them.
        dead_zone: speed below which a joint's rows are left out [rad/s].
        runs: all of them.
        fitted: how many of them are fitted, the first ones.
        consistent: what is known of the bodies; None for plain least squares.
        model: the robot in double precision.
        base: the base parameters.
        prior: (p,) full parameters that hold for what the motion does not determine.
        bodiless, thin: names of links whose prior had to be made up, and of those that were given some thickness.
        report: called with (stage, done, total).
    """

    chain: Chain
    columns: Columns
    friction: FrictionModel | Literal["chosen"] | None
    dead_zone: float
    runs: Sequence[FullRun]
    fitted: int
    consistent: Consistency | None
    model: Chain
    base: BaseParameters
    prior: Float[np.ndarray, " p"]
    bodiless: tuple[str, ...]
    thin: tuple[str, ...]
    report: Progress

    @property
    def independence(self) -> float:
        """Least share of the samples of a fitted run that are independent."""
        return min(run.thinned.independence for run in self.runs[: self.fitted])

    def stretches(self, share: float) -> tuple[list[Stretch], FrictionFit | None]:
        """All runs, with the friction fitted to this first share of those that are fitted."""
        model, columns = self.model, self.columns
        if self.friction is None:
            return [plain_stretch(model, columns, run.thinned, self.dead_zone) for run in self.runs], None
        self.report("fitting friction", 0, 1)
        parts = [run.samples for run in self.runs[: self.fitted]]
        parts = parts if share == 1.0 else [split(s, share)[0] for s in parts]
        stride = self.runs[0].stride
        found = fit_friction_beside(self.chain, columns, self.base, parts, self.friction, stride)
        self.report("fitting friction", 1, 1)
        return [friction_stretch(model, columns, run, found, self.dead_zone) for run in self.runs], found

    def accumulated(self, parts: Sequence[Stretch], share: float = 1.0) -> BlockFactors:
        """The factors of stretches, which are this share of the runs, block by block."""
        total = sum(len(part.samples) for part in parts)
        advance = lambda done: self.report("accumulating the regressor", done, total)
        runs = [(p.samples.q, p.samples.qd, p.samples.qdd, p.tau, p.weights) for p in parts]
        return accumulate_blocks(self.columns, self.model, runs, advance, max(1, round(BLOCKS * share)))

    @property
    def bounds(self) -> LinkBounds | None:
        """How large and dense links can be; None where nothing is asked of them."""
        densities = None if self.consistent is None else self.consistent.densities
        return None if densities is None else link_bounds(self.chain, densities)

    def solved(self, blocks: BlockFactors, friction: FrictionFit | None) -> Solution:
        """The estimates from factors, beside which this friction was fitted."""
        wls, factors = weighted_least_squares(blocks, self.base, self.independence), blocks.total
        if friction is not None:  # whose parameters are estimated from the same torques
            own = friction.covariance[: self.base.size, : self.base.size]
            wls = dataclasses.replace(wls, covariance=own)
        nearest = nearest_parameters(self.base, wls.values, self.prior)
        if self.consistent is None:
            return Solution(wls, None, nearest, nearest)
        problem = consistent_problem(
            factors,
            self.base,
            wls,
            self.columns,
            self.prior,
            constraints=self.consistent.constraints,
            independence=self.independence,
            weight=self.consistent.prior_weight,
            divergence=self.consistent.divergence,
        )
        bounds = self.bounds
        possible = (
            consistent_least_squares(problem, self.base)
            if bounds is None
            else consistent_within(problem, self.base, bounds)
        )
        possible = possible.with_covariance_of(wls)
        return Solution(wls, possible, possible.parameters, nearest)

    def evaluated(self, title: str, part: Stretch, solution: Solution, friction: FrictionFit | None) -> Evaluation:
        """How well a solution predicts a stretch, with this friction beside it: as the model does that is written."""
        s = part.samples
        torques = lambda x: predict(self.columns, self.model, x, s.q, s.qd, s.qdd) + part.given
        nearest = torques(solution.nearest)
        if friction is None:
            predicted = torques(solution.parameters)
        else:  # where it depends on the load, that is the solution's, not that of the friction's own fit
            assert part.run is not None
            chain = with_parameters(self.model, self.columns, solution.parameters)
            predicted = torque_model(chain, self.columns, solution.parameters, friction).predict(part.run, part.rows)
        fit, unconstrained = (fit_quality(s.tau, torque, s.qd) for torque in (predicted, nearest))
        return Evaluation(title, s, predicted, fit, unconstrained, part.run, part.rows)


def begin(
    chain: Chain,
    columns: Columns,
    consistent: Consistency | None,
    friction: FrictionModel | Literal["chosen"] | None,
    dead_zone: float,
    runs: Sequence[FullRun],
    fitted: int,
    report: Progress,
) -> Fitting:
    """The regression with its base parameters and its prior found."""
    model = as_float64(chain)
    report("finding base parameters", 0, 1)
    base = base_parameters(chain, columns)
    report("finding base parameters", 1, 1)
    filled, bodiless = with_stand_ins(model)
    filled, thin = (filled, ()) if consistent is None else with_thickness(filled)
    prior = prior_parameters(filled, columns)
    given = (chain, columns, friction, dead_zone, runs, fitted, consistent)
    return Fitting(*given, model, base, prior, bodiless, thin, report)

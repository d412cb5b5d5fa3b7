"""Regression used by `identify`, on whole runs or parts of them."""

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ..errors import IdentificationError
from ..model.chain import Chain
from .accumulate import RunRows, accumulate_samples
from .base import (
    BaseParameters,
    UndeterminedError,
    base_parameters,
    impossible_links,
    nearest_parameters,
    prior_parameters,
    with_parameters,
    with_stand_ins,
    with_thickness,
)
from .columns import Columns
from .consistency import Consistency
from .consistent import (
    ConsistentEstimate,
    LinkBounds,
    consistent_least_squares,
    consistent_problem,
    consistent_within,
    link_bounds,
    unusual_links,
)
from .defaults import BLOCKS, DENSITIES
from .factors import BlockFactors, as_float64
from .friction_fit import FrictionFit, chain_with_friction
from .knowledge import Knowledge, Known
from .least_squares import Estimate, Estimator, SplitHalf, solve, split_half
from .prediction import filtering_of_friction, fit_quality, predict
from .preprocessing import REPEATED, Motion, Samples, divide, picked, split
from .result import Evaluation, Identification
from .selection import Setup, TermChoice
from .stretches import FullRun, Stretch, fit_friction_beside, stretch
from .torque_model import TorqueModel, torque_model

HOLDOUT = 0.3  # share of each fitted run to hold out if there are no validation runs
POSSIBLE = Consistency()
Progress = Callable[[str, int, int], None]


@dataclasses.dataclass(frozen=True, eq=False)
class Solution:
    """Estimates from one set of QR factors.

    Attributes:
        base: the base parameters.
        blocks: the QR factors.
        estimate: the unconstrained estimate of the base parameters.
        split_half: agreement between fits to the two halves of the blocks; None if either half is not informative enough.
        consistent: the physically consistent estimate; None if not requested.
        parameters: (p,) the identified full parameters.
        nearest: (p,) the full parameters nearest to the prior among those that reproduce the base parameters of `estimate`.
        frictions: the fit of the friction model of each robot; empty if there is none.
    """

    base: BaseParameters
    blocks: BlockFactors
    estimate: Estimate
    split_half: SplitHalf | None
    consistent: ConsistentEstimate | None
    parameters: Float[np.ndarray, " p"]
    nearest: Float[np.ndarray, " p"]
    frictions: tuple[FrictionFit, ...] = ()

    @property
    def friction(self) -> FrictionFit | None:
        """The fit of the friction model of the only robot, with `parameters`; None if there is none."""
        covariance = (self.estimate if self.consistent is None else self.consistent).covariance
        fields = {"parameters": self.parameters, "covariance": covariance}
        return dataclasses.replace(self.frictions[0], **fields) if self.frictions else None


@dataclasses.dataclass(frozen=True, eq=False)
class Fitting:
    """A regression and its runs, for use under `jax.enable_x64(True)`.

    Attributes:
        setup: the robot and the identified columns.
        consistent: physical-consistency constraints; None for plain least squares.
        runs: all runs, with the runs to fit before the validation runs.
        fitted: number of runs to fit.
        model: the robot in float64.
        base: the base parameters.
        prior: (p,) prior values of the full parameters, used for those that the motion does not determine.
        without_inertia: names of links without inertia in the model, for which a default prior is used.
        thickened: names of links whose prior inertia was flat, thin or inconsistent and was therefore thickened.
        report: callback that receives the name of the current stage, the number of steps done, and the total number of
            steps.
        known: further prior knowledge of the parameters; None if there is none.
        motion: the distinct motion of all runs; None if no motion is repeated.
        estimator: the estimator of the base parameters (`solve`).
        robots: number of the robot of each run, if the runs are those of several; empty for a single robot.
        origin: (w,) index of the column of each parameter, if robots have parameters of their own; None if every column has
            one parameter.
    """

    setup: Setup
    consistent: Consistency | None
    runs: Sequence[FullRun]
    fitted: int
    model: Chain
    base: BaseParameters
    prior: Float[np.ndarray, " p"]
    without_inertia: tuple[str, ...]
    thickened: tuple[str, ...]
    report: Progress
    known: Known | None = None
    motion: Motion | None = None
    estimator: Estimator = "weighted"
    robots: tuple[int, ...] = ()
    origin: Int[np.ndarray, " w"] | None = None

    @property
    def chain(self) -> Chain:
        """The robot as given to `identify`."""
        return self.setup.chain

    @property
    def columns(self) -> Columns:
        """Columns of the regressor."""
        return self.setup.columns

    @property
    def independence(self) -> float:
        """Smallest fraction of effectively independent samples among the fitted runs."""
        return min(run.decimated.independence for run in self.runs[: self.fitted])

    def robot(self, run: int) -> int:
        """Number of the robot of a run."""
        return self.robots[run] if self.robots else 0

    @property
    def numbers(self) -> list[int]:
        """Numbers of all robots."""
        return sorted(set(self.robots)) or [0]

    @property
    def base_of_runs(self) -> BaseParameters:
        """Base parameters of the columns of single runs."""
        return self.base

    @property
    def bounds(self) -> LinkBounds | None:
        """Bounds on the size and density of links; None if there are none."""
        densities = None if self.consistent is None else self.consistent.densities
        return None if densities is None else link_bounds(self.setup.chain, densities)

    @property
    def fitted_motion(self) -> Motion | None:
        """The distinct motion of the fitted runs; None if they do not repeat any."""
        return None if self.motion is None else self.motion.first(self.fitted)

    def identified(self, holdout: float | None) -> tuple[list[tuple[int, Evaluation]], Solution | None, Solution]:
        """Evaluate held-out stretches, if any; return the solution without them (if any) and that from all fitted data.

        If the fitted runs repeat a motion, a stretch of the motion is held out, from all of its repetitions. If the rest
        of the motion does not determine the parameters, the end of each run is held out; its motion was seen before.

        Args:
            holdout: share of each fitted run to hold out at its end; None means that nothing is held out. The held-out
                part is predicted by a first fit that excludes it. The final fit uses all data.
        """
        if holdout is None:
            parts, start = self.stretches(1.0)
            return [], None, self.solved(self.accumulated(parts[: self.fitted]), start)
        if self.fitted_motion is not None:
            try:
                return self._held_out(holdout, self.fitted_motion)
            except UndeterminedError:
                pass
        return self._held_out(holdout, None)

    def _held_out(
        self, holdout: float, motion: Motion | None
    ) -> tuple[list[tuple[int, Evaluation]], Solution, Solution]:
        parts, first = self.stretches(1 - holdout, motion=motion)
        halves = self.divided(parts, holdout, motion)
        early, late = ([half[k] for half in halves] for k in (0, 1))
        without = self.solved(self.accumulated(early, 1 - holdout, motion, holdout), first)
        title = f"held out: {held_out_of(holdout, motion)}"
        held = [(k, self.evaluated(k, title, part, without, early)) for k, part in enumerate(late) if part is not None]
        parts, found = (parts, ()) if not first else self.stretches(1.0, first)
        return held, without, self.solved(self.accumulated(parts[: self.fitted]), found)

    def divided(
        self, parts: Sequence[Stretch], holdout: float, motion: Motion | None
    ) -> list[tuple[Stretch | None, Stretch | None]]:
        """Split each fitted run into a part to fit and a held-out part; None for a part without samples.

        Raises:
            LogError: a run is too short to be split.
            UndeterminedError: nothing of a repeated motion would be held out or left.
        """
        if motion is None:
            return [part.cut(holdout) for part in parts[: self.fitted]]
        found = [part.cut_at(motion.held(k, part.samples.t, holdout)) for k, part in enumerate(parts[: self.fitted])]
        if not all(any(x is not None for x in half) for half in zip(*found, strict=True)):
            raise UndeterminedError("the repeated motion is too short to hold out a part of it")
        return found

    def stretches(
        self, share: float, start: Sequence[FrictionFit] = (), motion: Motion | None = None
    ) -> tuple[list[Stretch], tuple[FrictionFit, ...]]:
        """Return all runs as stretches, and the friction model of each robot, fitted to the first part of its fitted runs.

        Args:
            share: share of each fitted run, from its beginning, to which the friction model is fitted.
            start: friction models from which the fit begins; by default that of the setup.
            motion: if the runs repeat a motion, the motion of which a share is fitted.
        """
        columns = self.setup.columns
        if columns.friction is None:
            return self.as_stretches(()), ()
        self.report("fitting friction", 0, 1)
        parts = dict(enumerate(run.samples for run in self.runs[: self.fitted]))
        if share < 1 and motion is not None:
            parts = {k: picked(s, divide(s, motion.held(k, s.t, 1 - share))[0]) for k, s in parts.items()}
            if not (parts := {k: s for k, s in parts.items() if len(s)}):
                raise UndeterminedError("nothing of the repeated motion is left to fit")
        elif share < 1:
            parts = {k: split(s, share)[0] for k, s in parts.items()}
        found = []
        for robot in self.numbers:
            own = [s for k, s in parts.items() if self.robot(k) == robot]
            model = start[robot].model if start else columns.friction
            found.append(self.fit_friction(dataclasses.replace(columns, friction=model), own))
        self.report("fitting friction", 1, 1)
        return self.as_stretches(found), tuple(found)

    def fit_friction(self, columns: Columns, runs: Sequence[Samples]) -> FrictionFit:
        """Fit the columns with the friction model of one robot to its runs."""
        base, stride = self.base_of_runs, self.runs[0].stride
        return fit_friction_beside(self.model, columns, base, runs, stride, self.setup.fitted_joints)

    def as_stretches(self, frictions: Sequence[FrictionFit]) -> list[Stretch]:
        """All runs as stretches, with the columns of the fitted friction model of each robot, if any."""
        of = lambda k: frictions[self.robot(k)] if frictions else None
        columns, zone = self.setup.columns, self.setup.terms.dead_zone
        return [stretch(self.model, columns, run, of(k), zone) for k, run in enumerate(self.runs)]

    def accumulated(
        self,
        parts: Sequence[Stretch | None],
        share: float = 1.0,
        motion: Motion | None = None,
        holdout: float = 0.0,
    ) -> BlockFactors:
        """Compute the QR factors of the given stretches in blocks.

        Args:
            parts: a stretch of each fitted run; None for runs of which nothing is fitted.
            share: fraction of the runs that the stretches cover; the number of blocks is proportional to it.
            motion: the motion that the runs repeat, by default that of the fitted runs if they are fitted whole.
            holdout: held-out share of the repeated motion.
        """
        motion = self.fitted_motion if share == 1.0 else motion
        count, listed = max(1, round(BLOCKS * share)), [(k, p) for k, p in enumerate(parts) if p is not None]
        total = sum(len(p.samples) for _, p in listed)
        advance = lambda done: self.report("accumulating the regressor", done, total)
        groups = None
        if motion is not None:
            groups = [motion.groups(k, p.samples.t, count, holdout) for k, p in listed]
        runs = [RunRows(p.samples, p.tau, p.weights, p.signals, p.instruments, p.through) for _, p in listed]
        numbers = [k for k, _ in listed]
        found = accumulate_samples(self.setup.columns, self.model, runs, advance, count, groups=groups, numbers=numbers)
        return self.mapped(found)

    def mapped(self, blocks: BlockFactors) -> BlockFactors:
        """The factors of the columns of single runs, as those of all parameters."""
        return blocks

    def of_robot(self, robot: int, solution: Solution) -> Solution:
        """The part of a solution that belongs to one robot, with one parameter per column."""
        return solution

    def solved(self, blocks: BlockFactors, frictions: tuple[FrictionFit, ...]) -> Solution:
        """Estimate the parameters from the factors of all columns."""
        filled = (lambda x: x) if self.known is None else self.known.filled_in
        estimate = solve(blocks, self.base, self.estimator, self.independence, self.known)
        assert estimate.blocks is not None
        halves = split_half(estimate.blocks, self.base, self.independence)
        possible = self.possible(estimate)
        nearest = filled(nearest_parameters(self.base, estimate.values, self.prior))
        whole = nearest
        if possible is not None:
            whole = filled(possible.parameters)
            possible = dataclasses.replace(possible, parameters=whole)
        return Solution(
            base=self.base,
            blocks=estimate.blocks,
            estimate=estimate,
            split_half=halves,
            consistent=possible,
            parameters=whole,
            nearest=nearest,
            frictions=frictions,
        )

    def possible(self, estimate: Estimate) -> ConsistentEstimate | None:
        """Compute the physically consistent estimate, if requested."""
        if self.consistent is None:
            return None
        columns, base = self.setup.columns, self.base
        consistent = self.setup.known(self.consistent, base.parameters)
        constraints = consistent.constraints
        if self.known is not None and constraints is not None:
            constraints = constraints.given(self.known.fixed, self.known.values)
        options = {"constraints": constraints, "weight": consistent.prior_weight, "origin": self.origin}
        problem = consistent_problem(estimate, base, columns, self.prior, **options)
        stand_ins = tuple(self.chain.link_names.index(name) for name in self.without_inertia)
        problem = dataclasses.replace(problem, stand_ins=stand_ins)
        bounds = self.bounds
        found = consistent_least_squares(problem, base) if bounds is None else consistent_within(problem, base, bounds)
        return found.with_covariance_of(estimate)

    def evaluated(
        self,
        number: int,
        title: str,
        part: Stretch,
        solution: Solution,
        fitted: Sequence[Stretch | None] | None = None,
    ) -> Evaluation:
        """Evaluate a solution on a stretch; the torques are predicted by the model that would be saved for it.

        Args:
            number: number of the stretch's run, whose name is added to the title.
            fitted: for validation, the fitted stretches, to find repeated motion.
        """
        s, columns = part.samples, self.setup.columns
        solution, title = self.of_robot(self.robot(number), solution), f"{title}{s.source}"
        torques = lambda x: predict(columns, self.model, x, s.q, s.qd, s.qdd, part.signals) + part.given
        filtering = lambda x: filtering_of_friction(columns, self.model, x, s)
        nearest = torques(solution.nearest) + filtering(solution.nearest)
        if not solution.frictions:
            sharp = torques(solution.parameters)
            predicted, unfiltered = sharp + filtering(solution.parameters), lambda: sharp
        else:
            assert part.run is not None
            predict_by = functools.partial(self.model_of(solution).predict, part.run, part.rows)
            predicted, unfiltered = predict_by(filtered=True), lambda: predict_by(filtered=False)
        as_logged = predicted if self.setup.filters.logged_cutoff is not None else unfiltered()
        predicted, nearest, seen = part.with_forces(predicted), part.with_forces(nearest), part.seen
        fit, unconstrained = (fit_quality(seen.tau, torque, s.qd) for torque in (predicted, nearest))
        logged = None if part.logged is None else (part.logged, as_logged)
        repeated = False
        if fitted is not None and self.motion is not None:
            shown = [(k, x.samples.t) for k, x in enumerate(fitted) if x is not None]
            repeated = self.motion.repeats_those(number, s.t, shown)
            title = f"{title} ({REPEATED})" if repeated else title
        forces = None if part.forces is None else part.with_forces
        shown = predicted, fit, unconstrained, logged, part.run, part.rows, forces
        return Evaluation(title, seen, *shown, repeats_fitted=repeated)

    def seen(self, solution: Solution) -> list[tuple[int, Evaluation]]:
        """Evaluate the solution on each run: first those that were fitted, then those for validation."""
        frictions = [self.of_robot(robot, solution).friction for robot in self.numbers]
        parts = self.as_stretches([x for x in frictions if x is not None])
        seen = [("fitted: ", None)] * self.fitted + [("validation: ", parts[: self.fitted])] * len(parts)
        return [(k, self.evaluated(k, seen[k][0], part, solution, seen[k][1])) for k, part in enumerate(parts)]

    def results(
        self, holdout: float | None, notes: Callable[[Solution], Iterable[str]], choice: TermChoice | None = None
    ) -> list[Identification]:
        """Fit the runs and evaluate the solution on all of them; return the result for each robot.

        Args:
            holdout: as for `identified`.
            notes: function that returns the notes for the user on a solution.
        """
        held, without, solution = self.identified(holdout)
        seen = self.seen(solution)
        self.report("predicting torques", 1, 1)
        fitted, validation, out = seen[: self.fitted], [*held, *seen[self.fitted :]], []
        for robot in self.numbers:
            own, early = self.of_robot(robot, solution), without and self.of_robot(robot, without)
            shown = [[x for k, x in some if self.robot(k) == robot] for some in (fitted, validation)]
            out.append(self.identification(own, early, *shown, notes=notes(own), choice=choice))
        return out

    def model_of(self, solution: Solution) -> TorqueModel:
        """The complete torque model of a solution, in float64."""
        columns = self.fitted_columns(solution)
        chain = with_parameters(self.model, columns, solution.parameters)
        return torque_model(chain, columns, solution.parameters, self.setup.delay)

    def fitted_columns(self, solution: Solution) -> Columns:
        """The columns, with the nonlinear parameters of friction that belong to a solution."""
        return self.setup.columns if solution.friction is None else solution.friction.columns

    def identified_chain(self, solution: Solution) -> Chain:
        """The robot with a solution's parameters and an approximation of its friction model, in the original precision."""
        model = self.model
        if solution.friction is not None:
            whole = [run.samples for run in self.runs[: self.fitted]]
            model = chain_with_friction(dataclasses.replace(solution.friction, chain=model), whole)
        found = with_parameters(model, self.setup.columns, solution.parameters)
        like = lambda new, old: jnp.asarray(np.asarray(new), old.dtype)
        return jax.tree.map(like, found, self.setup.chain)

    def identification(
        self,
        solution: Solution,
        without: Solution | None,
        fitted: Sequence[Evaluation],
        validation: Sequence[Evaluation],
        *,
        notes: Iterable[str],
        choice: TermChoice | None = None,
    ) -> Identification:
        """Assemble the result of `identify` from a solution and its evaluations.

        Args:
            without: the solution that excluded the held-out stretches and predicted them; None if nothing was held out.
        """
        identified, setup, zone = self.identified_chain(solution), self.setup, self.setup.terms.dead_zone
        if zone:
            notes = [
                *notes,
                f"dead zone: samples at which a joint is slower than {zone:g} rad/s (m/s) are excluded from that joint's "
                "equations",
            ]
        densities = (self.consistent and self.consistent.densities) or DENSITIES
        return Identification(
            chain=identified,
            prior=setup.chain,
            columns=self.fitted_columns(solution),
            base=solution.base,
            estimate=solution.estimate,
            consistent=solution.consistent,
            parameters=solution.parameters,
            unconstrained=solution.nearest,
            fitted=tuple(fitted),
            validation=tuple(validation),
            held_out_model=None if without is None else self.model_of(without),
            friction=solution.friction,
            delay=setup.delay,
            choice=choice,
            factors=solution.blocks.total,
            split_half=solution.split_half,
            inconsistent_links=impossible_links(identified),
            notes=tuple(dict.fromkeys(notes)),
            unusual_links=unusual_links(identified, densities, setup.chain),
        )


def held_out_share(validate: Any) -> float | None:
    """The share of the data to hold out, if `validate` is one and not validation runs; otherwise None."""
    if not isinstance(validate, int | float):
        return None
    if not 0 < validate < 1:
        raise IdentificationError(
            f"the share to hold out is {validate:g}; pass validation runs, or a share greater than 0 and less than 1"
        )
    return float(validate)


def begin(
    setup: Setup,
    consistent: Consistency | None,
    runs: Sequence[FullRun],
    fitted: int,
    report: Progress,
    knowledge: Knowledge | None = None,
    choose_base: Callable[[Known | None], BaseParameters] | None = None,
    motion: Motion | None = None,
    estimator: Estimator = "weighted",
) -> Fitting:
    """Create the regression, with its base parameters and prior.

    Args:
        choose_base: function that computes the base parameters for given prior knowledge. By default, they are computed
            from the full regressor at random states.
        motion: the distinct motion of all runs; None if no motion is repeated.
        estimator: the estimator of the base parameters.
    """
    model, columns = as_float64(setup.chain), setup.columns
    if columns.friction is not None:  # filter its columns like the torques
        whole = runs[0].samples
        cutoff = whole.torque_cutoff if whole.torque_cutoff < whole.rate / 2 else None
        friction = dataclasses.replace(columns.friction, cutoff=cutoff)
        setup = dataclasses.replace(setup, columns=dataclasses.replace(columns, friction=friction))
    report("finding base parameters", 0, 1)
    known = None if knowledge is None else knowledge.of(setup.chain, setup.columns)
    base = choose_base(known) if choose_base else base_parameters(setup.chain, setup.columns, knowledge=knowledge)
    report("finding base parameters", 1, 1)
    filled, bodiless = with_stand_ins(model)
    filled, thin = (filled, ()) if consistent is None else with_thickness(filled)
    prior = prior_parameters(filled, setup.columns)
    return Fitting(
        setup, consistent, runs, fitted, model, base, prior, bodiless, thin, report, known, motion, estimator
    )


def held_out_of(share: float, motion: Motion | None) -> str:
    """What is held out of a run, for titles."""
    return f"last {100 * share:g} % of " if motion is None else f"{100 * share:g} % of the motion in "

"""`identify_together`: identification of several robots of one type, with shared links and individual drives."""

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jaxtyping import Int

from ..errors import IdentificationError
from ..io.logs import Log, named_apart
from ..model.chain import Chain
from .base import BaseParameters, chosen_parameters, random_factors, rank_tolerance, stacked
from .columns import DRIVE_NAMES, DriveTerm
from .consistency import Consistency
from .factors import BlockFactors, check_identifiable
from .fit import HOLDOUT, POSSIBLE, Fitting, Progress, Solution, begin, held_out_share
from .friction_fit import FrictionFit
from .friction_terms import FRICTION
from .preprocessing import Filters
from .result import Identification
from .selection import setup_of
from .stretches import check_run, motion_of, prepared
from .terms import Terms

Runs = Mapping[str, Log | Sequence[Log]]


def identify_together(
    chain: Chain,
    logs: Runs,
    validate: Runs | float = HOLDOUT,
    *,
    own: tuple[DriveTerm, ...] | None = None,
    terms: Terms | None = None,
    filters: Filters | None = None,
    consistent: Consistency | None = POSSIBLE,
    progress: Progress | None = None,
) -> dict[str, Identification]:
    """Identify several robots of one type, with shared links and individual drive terms.

    All logs are fitted in one regression:

        tau_r = W pi + W_own(r) d_r,        r = left, right, ...

    Here tau_r are the torques of robot r. The parameters pi of the links and of the shared drive terms, with regressor
    W, are common to all robots. The drive parameters d_r, with regressor W_own(r), belong to robot r alone. Because the
    data of all robots determine pi, one robot's motion can excite parameters that another's does not.

    Friction with memory and other further terms belong to each robot as well. Their nonlinear parameters are fitted to the
    runs of this robot alone, and their coefficients together with all other parameters.

    Each run has its own noise level of each joint. Everything else is as in `identify` without a selection of terms.

    Args:
        chain: the robots' model; its inertias are the prior.
        logs: the runs to fit, by name of the robot.
        validate: validation runs, by name of the robot, or the share of each fitted run to hold out at its end.
        own: drive terms with separate values for each robot, by default those of friction. The other drive terms (by
            default the rotor inertias) are shared, like the links. If no friction is in `own`, the coefficients of further
            terms are shared too, but their nonlinear parameters are not.
        terms: drive terms and further terms to fit, by default all drive terms; term selection must be disabled
            (`choose=()`).
        filters: cutoffs, stride and delay; by default they are chosen from the first run and used for all runs.
        consistent: as in `identify`.
        progress: callback that receives the name of the current stage, the number of steps done, and the total number
            of steps.

    Returns:
        One identification per robot, by name. All of them have the same links, link covariances and split-half
        agreement.

    Raises:
        IdentificationError: a log does not match the chain; `own` contains a term that is not fitted; `terms` requests
            a selection; logs of only one robot were given; or a robot has no runs to fit.
        LogError: a log seems to be in degrees (`check_log`) or is too short to be filtered, or a filter setting is invalid.
    """
    terms = terms or Terms(choose=())
    own = tuple(term for term in FRICTION if term in terms.drives) if own is None else own
    share = held_out_share(validate)
    fitted, robots = _listed(chain, logs)
    unseen, others = ([], []) if share is not None else _listed(chain, validate)  # type: ignore[arg-type]
    _check(terms, own, list(logs), robots, others)
    report = progress or (lambda stage, done, total: None)
    setup = setup_of(chain, terms, filters or Filters(), None)
    every, names = named_apart([*fitted, *unseen]), list(logs)
    full_rate = setup.columns.friction is not None
    runs = prepared(every, setup.filters, full_rate, lambda done: report("preparing logs", done, len(every)))
    with jax.enable_x64(True):
        single = begin(setup, consistent, runs, len(fitted), report, motion=motion_of(every, setup.filters))
        numbers = tuple(names.index(robot) for robot in (*robots, *others))
        whole = TogetherFitting.of(single, own, numbers, names)
        notes = [f"{run.decimated.source}: {note}" for run in runs for note in run.decimated.notes]
        return dict(zip(names, whole.results(share, lambda solution: notes), strict=True))


def _listed(chain: Chain, logs: Runs) -> tuple[list[Log], list[str]]:
    """List all runs, and the name of each run's robot."""
    check_identifiable(chain)
    runs, robots = [], []
    for robot, some in logs.items():
        for log in [some] if isinstance(some, Log) else some:
            runs.append(check_run(log, chain, robot))
            robots.append(robot)
    return runs, robots


def _check(
    terms: Terms, own: Sequence[str], names: Sequence[str], robots: Sequence[str], others: Sequence[str]
) -> None:
    """Raise an error if the robots cannot be fitted together."""
    if terms.choose:
        raise IdentificationError(
            "no terms can be selected for several robots: pass those of one of them as further terms",
            "Use {terms}",
            terms="Terms(choose=())",
        )
    for term in own:
        if term not in terms.drives:
            raise IdentificationError(
                f"own contains {term!r}, which is not among the fitted terms: {', '.join(terms.drives)}"
            )
    if idle := [name for name in names if name not in robots]:
        raise IdentificationError(f"robot {idle[0]!r} has no runs to fit; pass at least one, or omit the robot")
    if len(names) < 2:
        raise IdentificationError("pass logs of at least two robots, by name; for a single robot, use identify")
    if unknown := [robot for robot in others if robot not in robots]:
        raise IdentificationError(f"robot {unknown[0]!r} has validation runs, but no runs to fit")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class TogetherFitting(Fitting):
    """One regression for several robots, each of which has its own values of some parameters.

    Attributes:
        single: the regression for one robot.
        places: (robots, c) index of the parameter of each column, for each robot.
    """

    single: Fitting
    places: Int[np.ndarray, "robots c"]

    @classmethod
    def of(
        cls, single: Fitting, own: tuple[DriveTerm, ...], robots: tuple[int, ...], names: Sequence[str]
    ) -> "TogetherFitting":
        """The regression for all robots, from that for one, with the fields of the same names."""
        chain, columns = single.model, single.columns
        labels = columns.names(chain.n)
        stems = [DRIVE_NAMES[term] for term in own]
        of_drives = [stem + str(j + 1) for stem in stems for j in range(chain.n)]
        if set(own) & set(FRICTION):
            of_drives += columns.friction_names(chain.n)
        mine = np.isin(labels, of_drives)
        # shared parameters first, and those of the friction models last
        order = [
            (k in range(len(labels) - len(columns.friction_names(chain.n)), len(labels)), robot, k)
            for k in range(len(labels))
            for robot in (range(len(names)) if mine[k] else [-1])
        ]
        _, owner, origin = np.array(sorted(order)).T
        placed = lambda robot: np.array(
            [np.flatnonzero((origin == k) & np.isin(owner, [-1, robot]))[0] for k in range(len(labels))]
        )
        places = np.stack([placed(robot) for robot in range(len(names))])
        parameters = [
            labels[k] + (f" {names[robot]}" if robot >= 0 else "") for robot, k in zip(owner, origin, strict=True)
        ]
        rows = random_factors(single.chain, columns).r
        found = BlockFactors(
            np.stack([rows] * len(names)), np.ones((len(names), len(rows)), int), np.arange(len(names))
        )
        r = stacked(found.mapped([np.eye(len(origin))[at] for at in places]).total)[:, :-1]
        base = chosen_parameters(single.chain, columns, r, rank_tolerance(single.chain), None, origin, parameters)
        changed = {"base": base, "prior": single.prior[origin], "robots": robots, "origin": origin}
        return cls(**vars(single) | changed, single=single, places=places)

    @property
    def base_of_runs(self) -> BaseParameters:
        """Base parameters of one robot."""
        return self.single.base

    def mapped(self, blocks: BlockFactors) -> BlockFactors:
        """The factors of all parameters; those of other robots are absent from the rows of a robot."""
        return blocks.mapped([np.eye(len(self.prior))[self.places[robot]] for robot in self.robots])

    def solved(self, blocks: BlockFactors, frictions: tuple[FrictionFit, ...]) -> Solution:
        """As in `Fitting`, with the blocks in an order in which each half contains half of every run."""
        size = [(blocks.runs == k).sum() for k in blocks.runs]
        order = [(blocks.runs[:k] == blocks.runs[k]).sum() for k in range(len(blocks.runs))]
        return super().solved(blocks.of(np.argsort(np.array(order) / size, kind="stable")), frictions)

    def of_robot(self, robot: int, solution: Solution) -> Solution:
        """Extract one robot's part of a solution, as a solution for a single robot."""
        at, base = self.places[robot], self.single.base
        change = base.matrix @ np.linalg.pinv(self.base.matrix)[at]
        moved = lambda c: None if c is None else change @ c @ change.T
        mapped = lambda x, **rest: dataclasses.replace(
            x, values=change @ x.values, covariance=moved(x.covariance), **rest
        )
        blocks = solution.blocks.of(np.array([self.robots[k] == robot for k in solution.blocks.runs]))
        possible = solution.consistent and mapped(
            solution.consistent,
            parameters=solution.consistent.parameters[at],
            bounds=solution.consistent.bounds[at],
            pull=change @ solution.consistent.pull,
        )
        return dataclasses.replace(
            solution,
            base=base,
            blocks=blocks.mapped([np.eye(len(self.prior))[at].T] * len(self.runs)),
            estimate=mapped(solution.estimate, independent=moved(solution.estimate.independent)),
            consistent=possible,
            parameters=solution.parameters[at],
            nearest=solution.nearest[at],
            frictions=solution.frictions[robot : robot + 1],
        )

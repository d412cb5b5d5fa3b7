"""`identify_together`: identification of several robots of one type, with shared links and individual drives."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from ..errors import IdentificationError
from ..io.logs import Log, check_log, named_apart
from ..model.chain import Chain
from .base import chosen_parameters, random_factors, rank_tolerance
from .columns import DRIVE_NAMES, Columns, DriveTerm, ExtraColumns
from .consistency import Consistency
from .consistent import POSITIVE_TERMS
from .factors import BlockFactors, check_identifiable, triangle_of
from .fit import HOLDOUT, POSSIBLE, Fitting, Progress, Solution, begin
from .friction_fit import FrictionFit
from .friction_terms import FRICTION
from .preprocessing import Filters
from .result import Evaluation, Identification
from .selection import setup_of
from .stretches import Stretch, motion_of, prepared
from .terms import Terms

Runs = Mapping[str, Log | Sequence[Log]]


def identify_together(
    chain: Chain,
    logs: Runs,
    validate: Runs | float = HOLDOUT,
    *,
    own: tuple[DriveTerm, ...] = FRICTION,
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

    Each joint has one noise level, which is the same for all robots. Everything else is as in `identify` with plain
    drive terms.

    Args:
        chain: the robots' model; its inertias are the prior.
        logs: the runs to fit, by name of the robot.
        validate: validation runs, by name of the robot, or the share of each fitted run to hold out at its end.
        own: drive terms with separate values for each robot. The other drive terms (by default the rotor inertias) are
            shared, like the links.
        terms: drive terms to fit, by default all of them; term selection must be disabled (`choose=()`), and further
            terms are not supported.
        filters: cutoffs, stride and delay; by default they are chosen from the first run and used for all runs.
        consistent: as in `identify`.
        progress: callback that receives the name of the current stage, the number of steps done, and the total number
            of steps.

    Returns:
        One identification per robot, by name. All of them have the same links, link covariances and split-half
        agreement.

    Raises:
        IdentificationError: a log does not match the chain; `own` contains a term that is not fitted; `terms` requests
            a selection or further terms; logs of only one robot were given; or a robot has validation runs but no runs
            to fit.
        LogError: a log seems to be in degrees (`check_log`) or is too short to be filtered, or a filter setting is invalid.
    """
    terms = terms or Terms(choose=())
    share = float(validate) if isinstance(validate, float | int) else None
    fitted, robots = _listed(chain, logs)
    unseen, others = ([], []) if isinstance(validate, float | int) else _listed(chain, validate)
    _check(terms, own, robots, others)
    report = progress or (lambda stage, done, total: None)
    setup = setup_of(chain, terms, filters or Filters(), None)
    every, of_runs = named_apart([*fitted, *unseen]), [*robots, *others]
    sources = [f"{robot}, run {k + 1}: {log.source}" for k, (robot, log) in enumerate(zip(of_runs, every, strict=True))]
    marked = [dataclasses.replace(log, source=source) for log, source in zip(every, sources, strict=True)]
    runs = prepared(marked, setup.filters, False, lambda done: report("preparing logs", done, len(every)))
    with jax.enable_x64(True):
        single = begin(setup, consistent, runs, len(fitted), report, motion=motion_of(every, setup.filters))
        whole = TogetherFitting.of(single, own, dict(zip(sources, of_runs, strict=True)))
        held, partial, solution = whole.identified(share, [log.source for log in every[: len(fitted)]])
        kinds = ["fitted"] * len(fitted) + ["validation"] * len(unseen)
        seen = whole.seen([f"{kind}: {log.source}" for kind, log in zip(kinds, every, strict=True)], solution)
        own_of = lambda some, robot: [x for x in some if whole.robots[x.samples.source] == robot]
        return {
            robot: single.identification(
                whole.of_robot(robot, solution),
                own_of(seen[: len(fitted)], robot),
                own_of([*held, *seen[len(fitted) :]], robot),
                without=None if partial is None else whole.of_robot(robot, partial),
                notes=(note for run in single.runs for note in run.decimated.notes),
            )
            for robot in logs
        }


def _listed(chain: Chain, logs: Runs) -> tuple[list[Log], list[str]]:
    """List all runs, and the name of each run's robot."""
    check_identifiable(chain)
    runs, robots = [], []
    for robot, some in logs.items():
        for log in [some] if isinstance(some, Log) else some:
            if log.n != chain.nv:
                raise IdentificationError(
                    f"{robot}, {log.source}: the log has {log.n} joints, but the model has {chain.nv}"
                )
            runs.append(check_log(log, chain, allow_still=True))
            robots.append(robot)
    return runs, robots


def _check(terms: Terms, own: Sequence[str], robots: Sequence[str], others: Sequence[str]) -> None:
    """Raise an error if the robots cannot be fitted together."""
    if terms.choose or terms.further:
        raise IdentificationError(
            "several robots can only be fitted with plain drive terms: no terms can be selected or added",
            "Use {terms}",
            terms="Terms(choose=())",
        )
    for term in own:
        if term not in terms.drives:
            raise IdentificationError(
                f"own contains {term!r}, which is not among the fitted terms: {', '.join(terms.drives)}"
            )
    if len(set(robots)) < 2:
        raise IdentificationError("pass logs of at least two robots, by name; for a single robot, use identify")
    if unknown := [robot for robot in others if robot not in robots]:
        raise IdentificationError(f"robot {unknown[0]!r} has validation runs, but no runs to fit")


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class TogetherFitting(Fitting):
    """One regression for several robots; its last columns are the individual terms, one set per robot.

    Attributes:
        single: the regression for one robot.
        places: indices of each robot's columns.
        robots: name of the robot of each run, by the source of its samples.
    """

    single: Fitting
    places: Mapping[str, Int[np.ndarray, " _"]]
    robots: Mapping[str, str]

    @classmethod
    def of(cls, single: Fitting, own: tuple[DriveTerm, ...], robots: Mapping[str, str]) -> "TogetherFitting":
        """The regression for all robots, from that for one, with the fields of the same names."""
        chain, given = single.model, single.columns
        shared: tuple[DriveTerm, ...] = tuple(term for term in given.drive_terms if term not in own)
        extra, names = list(given.extra), tuple(dict.fromkeys(robots.values()))
        for robot in names:
            for term in own:
                of_joints = tuple(f"{DRIVE_NAMES[term]}{j + 1} {robot}" for j in range(chain.n))
                positive = term in POSITIVE_TERMS
                extra.append(ExtraColumns(of_joints, ("",) * chain.n, _of_another_robot, positive=positive))
        columns = Columns(shared, tuple(extra))
        where = {name: k for k, name in enumerate(columns.names(chain.n))}
        places = {r: np.array([where.get(f"{x} {r}", where.get(x, -1)) for x in given.names(chain.n)]) for r in names}
        rows, prior = random_factors(single.chain, given).r, np.zeros(len(where))
        stack = np.concatenate([_placed(rows, at, len(where)) for at in places.values()]).reshape(-1, len(where) + 1)
        base = chosen_parameters(single.chain, columns, triangle_of(stack)[:, :-1], rank_tolerance(single.chain))
        for at in places.values():
            prior[at] = single.prior
        changed = {"setup": dataclasses.replace(single.setup, columns=columns), "base": base, "prior": prior}
        return cls(**vars(single) | changed, single=single, places=places, robots=robots)

    def as_stretches(self, friction: FrictionFit | None) -> list[Stretch]:
        """All runs as stretches of one robot."""
        return self.single.as_stretches(friction)

    def factors(
        self,
        parts: Sequence[tuple[int, Stretch]],
        advance: Callable[[int], None],
        count: int,
        groups: Sequence[Int[np.ndarray, " _"]] | None,
    ) -> BlockFactors:
        """As in `Fitting`, with each robot's columns at their places, and blocks of all runs in each half."""
        blocks, runs = self.single.factors(parts, advance, count, groups), dict(parts)
        places = [self.places[self.robots[runs[k].samples.source]] for k in blocks.runs]
        r = np.stack([_placed(x, at, len(self.prior)) for x, at in zip(blocks.r, places, strict=True)])
        return dataclasses.replace(blocks, r=r, rows=None)

    def solved(self, blocks: BlockFactors, friction: FrictionFit | None) -> Solution:
        """As in `Fitting`, with the blocks in an order in which each half contains half of every run."""
        size = [(blocks.runs == k).sum() for k in blocks.runs]
        order = [(blocks.runs[:k] == blocks.runs[k]).sum() for k in range(len(blocks.runs))]
        return super().solved(blocks.of(np.argsort(np.array(order) / size, kind="stable")), friction)

    def evaluated(
        self,
        title: str,
        part: Stretch,
        solution: Solution,
        apart: tuple[int, Sequence[Stretch | None]] | None = None,
    ) -> Evaluation:
        """As in `Fitting`, with the solution of the stretch's robot."""
        return self.single.evaluated(title, part, self.of_robot(self.robots[part.samples.source], solution), apart)

    def of_robot(self, robot: str, solution: Solution) -> Solution:
        """Extract one robot's part of a solution, as a solution for a single robot."""
        at = self.places[robot]
        change = self.single.base.matrix @ np.linalg.pinv(self.base.matrix)[at]
        moved = lambda c: None if c is None else change @ c @ change.T
        mapped = lambda x, **rest: dataclasses.replace(
            x, values=change @ x.values, covariance=moved(x.covariance), **rest
        )
        sources = [run.decimated.source for run in self.runs[: self.fitted]]
        blocks = solution.blocks.of(np.array([self.robots[sources[k]] == robot for k in solution.blocks.runs]))
        possible = solution.consistent and mapped(
            solution.consistent,
            parameters=solution.consistent.parameters[at],
            bounds=solution.consistent.bounds[at],
            pull=change @ solution.consistent.pull,
        )
        return dataclasses.replace(
            solution,
            blocks=dataclasses.replace(blocks, r=blocks.r[:, :, : len(at) + 1][..., [*at, -1]]),
            estimate=mapped(solution.estimate, independent=moved(solution.estimate.independent)),
            consistent=possible,
            parameters=solution.parameters[at],
            nearest=solution.nearest[at],
        )


def _of_another_robot(chain: Chain, q: Array, qd: Array, qdd: Array) -> Array:
    raise NotImplementedError("the terms of one robot among several have no columns of a single state")


def _placed(r: Float[np.ndarray, "n w w"], at: Int[np.ndarray, " p"], width: int) -> Float[np.ndarray, "n W W"]:
    """Factors of one robot, with its columns moved to their places among those of all robots."""
    out = np.zeros((len(r), width + 1, width + 1))
    out[:, : r.shape[1], [*at, width]] = r
    return out

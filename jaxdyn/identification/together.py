"""`identify_together`: identification of several robots of one type, with shared links and individual drives."""

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from ..errors import IdentificationError, LogError
from ..io.logs import Log, check_log, named_apart
from ..model.chain import Chain
from .base import chosen_parameters, random_factors, rank_tolerance
from .columns import DRIVE_NAMES, Columns, DriveTerm, ExtraColumns
from .consistency import Consistency
from .consistent import POSITIVE_TERMS
from .factors import BlockFactors, check_identifiable, triangle_of
from .fit import (
    HOLDOUT,
    POSSIBLE,
    Fitting,
    Progress,
    Solution,
    begin,
    held_out_of,
)
from .friction_terms import FRICTION
from .least_squares import Estimate
from .preprocessing import Filters
from .result import Identification
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
    every = named_apart([*fitted, *unseen])
    runs = prepared(every, setup.filters, False, lambda done: report("preparing logs", done, len(every)))
    with jax.enable_x64(True):
        motion = motion_of(every, setup.filters)
        single = begin(setup, consistent, runs, len(fitted), report, motion=motion)
        whole = _Together.of(single, own, robots)
        parts, held = single.stretches(1.0, None)[0], []
        without: dict[str, Solution] = {}
        if share is not None:
            early, late, named = _early(single, whole, parts, share)
            without = {robot: whole.of_robot(robot, early[1]) for robot in logs}
            for k, (log, part, robot) in enumerate(zip(every, late, robots, strict=False)):
                if part is not None:
                    title = f"held out: {named}{log.source}"
                    held.append((robot, single.evaluated(title, part, without[robot], (k, early[0]))))
        blocks = single.accumulated(parts[: len(fitted)])
        solution = whole.solved(blocks)
        found = {robot: whole.of_robot(robot, solution) for robot in logs}
        seen = []
        for k, (log, part, robot) in enumerate(zip(every, parts, [*robots, *others], strict=True)):
            title = f"{'fitted' if k < len(fitted) else 'validation'}: {log.source}"
            apart = (k, parts[: len(fitted)]) if k >= len(fitted) else None
            seen.append((robot, single.evaluated(title, part, found[robot], apart)))
        own_seen = lambda some, robot: tuple(evaluation for of, evaluation in some if of == robot)
        results = {}
        for robot in logs:
            of_robot = dataclasses.replace(found[robot], blocks=_of_runs(blocks, np.array(robots) == robot))
            results[robot] = single.identification(
                of_robot,
                own_seen(seen[: len(fitted)], robot),
                own_seen([*held, *seen[len(fitted) :]], robot),
                without=without.get(robot),
                notes=(note for run in single.runs for note in run.decimated.notes),
            )
        return results


def _early(
    single: Fitting, whole: "_Together", parts: Sequence[Stretch], share: float
) -> tuple[tuple[list[Stretch | None], Solution], list[Stretch | None], str]:
    """The stretches that are not held out and their solution, those that are, and what they are; as in `Fitting.identified`."""
    for motion in [m for m in (single.fitted_motion,) if m is not None] + [None]:
        try:
            cut = single.divided(parts, share, motion)
            early = [a for a, _ in cut]
            solution = whole.solved(single.accumulated(early, 1 - share, motion, share))
        except (IdentificationError, LogError):
            if motion is None:
                raise
            continue
        return (early, solution), [b for _, b in cut], held_out_of(share, motion)
    raise AssertionError("unreachable")


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


@dataclasses.dataclass(frozen=True, eq=False)
class _Together:
    """One regression for several robots.

    Attributes:
        single: the regression for one robot.
        fitting: the regression for all robots; its last columns are the individual terms, one set per robot.
        columns: indices of each robot's columns in `fitting`.
        robots: name of the robot of each fitted run.
    """

    single: Fitting
    fitting: Fitting
    columns: dict[str, Int[np.ndarray, " p"]]
    robots: tuple[str, ...]

    @classmethod
    def of(cls, single: Fitting, own: tuple[DriveTerm, ...], robots: Sequence[str]) -> "_Together":
        chain, given = single.model, single.setup.columns
        shared: tuple[DriveTerm, ...] = tuple(term for term in given.drive_terms if term not in own)
        extra, names = list(given.extra), tuple(dict.fromkeys(robots))
        for robot in names:
            for term in own:
                of_joints = tuple(f"{DRIVE_NAMES[term]}{j + 1} {robot}" for j in range(chain.n))
                positive = term in POSITIVE_TERMS
                extra.append(ExtraColumns(of_joints, ("",) * chain.n, _of_another_robot, positive=positive))
        columns = Columns(shared, tuple(extra))
        where = {name: k for k, name in enumerate(columns.names(chain.n))}
        places = {r: np.array([where.get(f"{x} {r}", where.get(x, -1)) for x in given.names(chain.n)]) for r in names}
        width = len(where)
        rows = random_factors(single.chain, given).r
        stack = np.concatenate([_placed(rows, at, width) for at in places.values()]).reshape(-1, width + 1)
        base = chosen_parameters(single.chain, columns, triangle_of(stack)[:, :-1], rank_tolerance(single.chain))
        prior = np.zeros(width)
        for at in places.values():
            prior[at] = single.prior
        setup = dataclasses.replace(single.setup, columns=columns)
        return cls(single, dataclasses.replace(single, setup=setup, base=base, prior=prior), places, tuple(robots))

    def solved(self, blocks: BlockFactors) -> Solution:
        """Estimate the parameters of all robots from the blocks of all runs."""
        width = len(self.fitting.prior)
        r = np.stack(
            [_placed(x, self.columns[self.robots[k]], width) for x, k in zip(blocks.r, blocks.runs, strict=True)]
        )
        size = [(blocks.runs == k).sum() for k in blocks.runs]
        order = [(blocks.runs[:k] == blocks.runs[k]).sum() for k in range(len(blocks.runs))]
        early_first = np.argsort(np.array(order) / size, kind="stable")  # so that each half contains half of every run
        return self.fitting.solved(dataclasses.replace(blocks, r=r).of(early_first), None)

    def of_robot(self, robot: str, solution: Solution) -> Solution:
        """Extract one robot's part of a solution, as a solution for a single robot."""
        at, base = self.columns[robot], self.single.base
        change = base.matrix @ np.linalg.pinv(self.fitting.base.matrix)[at]
        values = lambda x: change @ x
        covariance = lambda c: None if c is None else change @ c @ change.T

        def of(estimate: Estimate) -> Estimate:
            return dataclasses.replace(
                estimate,
                values=values(estimate.values),
                covariance=covariance(estimate.covariance),
                independent=covariance(estimate.independent),
            )

        possible = solution.consistent
        if possible is not None:
            possible = dataclasses.replace(
                possible,
                parameters=possible.parameters[at],
                bounds=possible.bounds[at],
                pull=values(possible.pull),
                values=values(possible.values),
                covariance=covariance(possible.covariance),
            )
        return dataclasses.replace(
            solution,
            estimate=of(solution.estimate),
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


def _of_runs(blocks: BlockFactors, chosen: np.ndarray) -> BlockFactors:
    return blocks.of(chosen[blocks.runs])

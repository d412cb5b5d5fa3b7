"""A verdict in plain words: is the model good enough, by limits that the user gives or by what usually matters."""

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np

from ..errors import IdentificationError
from ..identification._regression.prediction import MOVING
from ..identification._result import Evaluation, Identification
from ._markup import rounded
from ._quality import FAIR, pooled, pooled_unconstrained, torque_units
from ._sections.prior import AgainstPrior

Level = Literal["good", "fair", "poor"]
Measure = Literal["rms", "rre", "moving"]
_NAMES = {"rms": "RMS error", "rre": "RRE", "moving": "RRE while moving"}
_ORDER: tuple[Level, ...] = ("good", "fair", "poor")

UNSEEN_FAIR, UNSEEN_POOR = 1.5, 2.5  # held-out over fitted RMS, worst joint
REST = 2.0  # error at rest over that in motion
COST_FAIR, COST_POOR = 5.0, 20.0  # what consistency adds to the worst joint's error [%]
CONDITION_FAIR, CONDITION_POOR = 30.0, 100.0  # with columns of unit norm


@dataclasses.dataclass(frozen=True)
class ErrorLimit:
    """The largest error that is good enough, for each joint.

    Attributes:
        measure: "rms" [N m or N], "rre" [%] or "moving", the RRE over samples at which the joint moves [%].
        values: one for all joints, or one a joint.
    """

    measure: Measure
    values: tuple[float, ...]

    def of_joints(self, n: int) -> np.ndarray:
        """(n,) the limit of each joint.

        Raises:
            IdentificationError: their number is neither 1 nor n.
        """
        if len(self.values) not in (1, n):
            raise IdentificationError(
                f"the limit {self.measure} has {len(self.values)} numbers for {n} joints; give one for all or one a joint"
            )
        return np.broadcast_to(np.asarray(self.values, float), (n,))


def parse_limit(text: str) -> ErrorLimit:
    """A limit from text: "rms=0.3", or "rre=10,5,5,8,10,10" with one number a joint.

    Raises:
        IdentificationError: it is neither, or a number is not positive.
    """
    measure, sign, numbers = text.partition("=")
    measure = measure.strip().lower()
    try:
        values = tuple(float(x) for x in numbers.split(","))
    except ValueError:
        values = ()
    if measure not in _NAMES or not sign or not values or not all(0 < v < np.inf for v in values):
        raise IdentificationError(
            f"{text!r} is no limit: write rms=, rre= or moving= and one positive number, or one a joint, as in rms=0.3 or "
            "rre=10,5,5,8,10,10"
        )
    return ErrorLimit(measure, values)  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class VerdictCheck:
    """One thing that was looked at."""

    level: Level
    text: str


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What was looked at, and the outcome: that of the worst check, or of the limits alone where there are some.

    Attributes:
        level: good, fair (use with care) or poor.
        headline: the outcome in a sentence.
        checks: limits first, then what usually matters.
    """

    level: Level
    headline: str
    checks: tuple[VerdictCheck, ...]


def verdict(result: Identification, limits: Sequence[ErrorLimit] = (), prior: AgainstPrior | None = None) -> Verdict:
    """Judge an identification.

    With limits: every joint has to keep each of them, on held-out motion where there is some. Without: held-out against
    fitted error (worst joint's ratio of RMS errors while it moves up to 1.5, up to 2.5), errors at standstill (twice those in
    motion), condition number of the base regressor with columns of unit norm (up to 30, up to 100), links whose inertia no
    body can have, what it costs in torque that bodies are possible (up to 5 %, up to 20 %), joints that the given model
    predicts better, and base parameters with a standard deviation above 30 % (more than half).

    Args:
        prior: as `against_prior` gives it, to compare with the given model.

    Raises:
        IdentificationError: a limit has the wrong number of numbers.
    """
    by_limits = [_within(result, limit) for limit in limits]
    general = [
        _unseen(result),
        *([rest] if (rest := _rest(result)) else []),
        _condition(result),
        _bodies(result),
        *([_cost(result)] if result.consistent else []),
        *([_better(result, prior)] if prior else []),
        _determined(result),
    ]
    deciding = by_limits or general
    level = _ORDER[max(_ORDER.index(check.level) for check in deciding)]
    headline = _headline(result, level, bool(limits))
    if by_limits and level == "good" and any(check.level != "good" for check in general):
        headline += " Note what else is marked below."
    return Verdict(level, headline, (*by_limits, *general))


def _headline(result: Identification, level: Level, limited: bool) -> str:
    if limited:
        which = "on motion that was not fitted" if result.validation else "on the fitted motion; none was held out"
        kept = "keeps the limits you gave" if level == "good" else "does not keep the limits you gave"
        return f"The identified model {kept}, {which}."
    return {
        "good": "The identified model can be trusted for motion like that of the logs.",
        "fair": "The identified model can be used, with care: see below.",
        "poor": "The identified model should not be used as it is: see below.",
    }[level]


def _within(result: Identification, limit: ErrorLimit) -> VerdictCheck:
    fit = pooled(result.validation or result.fitted)
    assert fit is not None
    most = limit.of_joints(result.chain.n)
    found = {"rms": fit.rms, "rre": fit.relative, "moving": fit.relative_moving}[limit.measure]
    over = [j for j in range(result.chain.n) if not (found[j] <= most[j] or np.isnan(found[j]))]
    units = torque_units(result.chain) if limit.measure == "rms" else ("%",) * result.chain.n
    name = _NAMES[limit.measure]
    if not over:
        return VerdictCheck("good", f"The {name} of every joint is within {_listed(limit.values)} {units[0]}.")
    words = ", ".join(
        f"{result.chain.joint_names[j]} has {rounded(found[j])} {units[j]} for a limit of {most[j]:g}" for j in over
    )
    return VerdictCheck("poor", f"The {name} is above the limit: {words}.")


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{v:g}" for v in values)


def _rms(evaluations: Sequence[Evaluation], moving: bool) -> tuple[np.ndarray, np.ndarray]:
    """(n,) RMS errors over samples at which the joint itself moves, or rests, and (n,) the share of these samples."""
    error, qd = (
        np.concatenate(parts)
        for parts in ([e.samples.tau - e.prediction for e in evaluations], [e.samples.qd for e in evaluations])
    )
    chosen = (np.abs(qd) > MOVING) == moving
    return np.sqrt((error**2 * chosen).sum(0) / np.maximum(chosen.sum(0), 1)), chosen.mean(0)


def _unseen(result: Identification) -> VerdictCheck:
    if not result.validation:
        return VerdictCheck(
            "fair", "No motion was held out, so nothing tells how other motion is predicted: give --validate a log."
        )
    (fitted, _), (unseen, share) = _rms(result.fitted, True), _rms(result.validation, True)
    ratio = np.where(share > 0, unseen / np.maximum(fitted, 1e-300), 0.0)
    worst = int(np.argmax(ratio))
    level: Level = "good" if ratio[worst] <= UNSEEN_FAIR else "fair" if ratio[worst] <= UNSEEN_POOR else "poor"
    joint = result.chain.joint_names[worst]
    words = {
        "good": "Motion that was not fitted is predicted as well as the fitted one",
        "fair": "Motion that was not fitted is predicted somewhat worse than the fitted one",
        "poor": "Motion that was not fitted is predicted much worse than the fitted one: it goes where the fitted data did "
        "not, or the model follows their noise; fit richer motion or fewer terms",
    }[level]
    return VerdictCheck(
        level,
        f"{words} (while they move, joints err up to {rounded(ratio[worst])} times as much as in the fit, {joint} the most).",
    )


def _rest(result: Identification) -> VerdictCheck | None:
    """Joints that err much more at rest than in motion; None where none does."""
    evaluations = result.validation or result.fitted
    (moving, _), (resting, share) = _rms(evaluations, True), _rms(evaluations, False)
    found = np.flatnonzero((share > 0.05) & (resting > REST * moving))
    if not len(found):
        return None
    words = ", ".join(f"{result.chain.joint_names[j]} ({rounded(resting[j] / moving[j])} times)" for j in found)
    return VerdictCheck(
        "fair",
        f"At standstill the torque is predicted worse than in motion on {words}: dry friction takes whatever value holds the "
        "joint, which no function of velocity knows.",
    )


def _condition(result: Identification) -> VerdictCheck:
    number = result.wls.scaled_condition
    level: Level = "good" if number <= CONDITION_FAIR else "fair" if number <= CONDITION_POOR else "poor"
    words = {
        "good": "The motion tells the base parameters apart",
        "fair": "The motion tells some base parameters apart only weakly",
        "poor": "The motion hardly tells some base parameters apart: let all joints move at once, further and faster",
    }[level]
    return VerdictCheck(level, f"{words} (condition number {rounded(number)} with columns of unit norm).")


def _cost(result: Identification) -> VerdictCheck:
    """What it costs in torque that bodies have to be possible."""
    evaluations = result.validation or result.fitted
    fit = pooled(evaluations)
    assert fit is not None
    excess = 100 * (fit.rms / np.maximum(pooled_unconstrained(evaluations), 1e-300) - 1)
    worst = int(np.argmax(excess))
    level: Level = "good" if excess[worst] <= COST_FAIR else "fair" if excess[worst] <= COST_POOR else "poor"
    words = {
        "good": "Bodies that can exist predict the torques as well as any numbers would",
        "fair": "Bodies that can exist predict the torques somewhat worse than other numbers would: something is missing in "
        "the model, or its kinematics are off",
        "poor": "Bodies that can exist predict the torques much worse than other numbers would: something is missing in "
        "the model, or its kinematics, units or signs are wrong",
    }[level]
    return VerdictCheck(
        level, f"{words} ({excess[worst]:+.1f} % on {result.chain.joint_names[worst]}, the worst joint)."
    )


def _bodies(result: Identification) -> VerdictCheck:
    count = len(result.impossible)
    if not count:
        return VerdictCheck("good", "Every link has an inertia that a body can have, so the model can be simulated.")
    return VerdictCheck(
        "poor" if count == result.chain.n else "fair",
        f"{count} of {result.chain.n} links have an inertia that no body can have: predicted torques are not the worse for it, "
        "but do not simulate with this model.",
    )


def _better(result: Identification, prior: AgainstPrior) -> VerdictCheck:
    worse = [result.chain.joint_names[j] for j in np.flatnonzero(prior.identified.rms > 1.02 * prior.given.rms)]
    if worse:
        return VerdictCheck("poor", f"The given model predicts the torque better on {', '.join(worse)}.")
    ratio = float(np.median(prior.given.rms / np.maximum(prior.identified.rms, 1e-300)))
    return VerdictCheck(
        "good",
        f"Every joint's torque is predicted better than by the given model, in the middle {rounded(ratio)} times.",
    )


def _determined(result: Identification) -> VerdictCheck:
    relative = np.nan_to_num(result.wls.relative_standard_deviations, nan=np.inf)
    poor = int((relative > FAIR).sum())
    return VerdictCheck(
        "good" if poor <= result.base.size / 2 else "fair",
        f"{poor} of {result.base.size} base parameters have a standard deviation above {FAIR:g} % of their value; most of "
        "them are small, and do not show in the torques.",
    )

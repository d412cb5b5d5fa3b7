"""Verdict on an identified model: a few figures against limits, for gravity compensation, feed-forward and simulation.

All limits stand in one table, `LIMITS`; the user's own limits on torque errors (`ErrorLimit`) replace them in the headline.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from ..errors import IdentificationError
from ..identification.diagnostics import Finding, diagnose_identification
from ..identification.result import Identification
from ..model.chain import position_units, torque_units
from .files import FilePrediction
from .markup import rounded
from .quality import (
    AgainstPrior,
    Simulated,
    against_prior,
    all_figures,
    pooled,
    resimulated,
)

Level = Literal["good", "fair", "poor", "note"]
JointLevel = Literal["good", "fair", "poor", "untested"]
Use = Literal["gravity compensation", "feed-forward", "simulation"]
Measure = Literal["rms", "rre", "moving"]
Found = tuple[Level, str]  # level and text of a reason
ORDER: tuple[Level, ...] = ("note", "good", "fair", "poor")
ANSWERS = {"good": "yes", "fair": "with care", "poor": "no"}
UNKNOWN = 10.0  # relative error or standard deviation from which on no figure is given
EVER = np.inf


class Limit(NamedTuple):
    """Limits of a figure, which is a ratio (unit 1): good up to `good`, fair up to `fair`, and poor above that.

    `words` is a sentence about the figure, with its value {} and the worst {joint}; `origin` is the reason for the numbers.
    `sensitivity` says how many of the 78 judged uses of 26 simulated and real logs (tests/verdict_cases.py) get another
    level, or how many more or fewer of these logs get a warning, if both limits are a quarter smaller, and a quarter larger.
    """

    words: str
    good: float
    fair: float
    origin: str
    sensitivity: str


_VALUES = {
    "torque": (0.10, 0.40, "judgement, before the logs were judged; the controller removes a tenth", "4, 4"),
    "slow": (0.20, 0.80, "twice `torque`; 0.16 on real arms judged good, 0.24 with stiction", "2, 0"),
    "position": (0.10, 0.25, "0.01 to 0.06 on logs judged good, 0.53 where a counterbalance is missing", "2, 2"),
    "rest": (0.10, 0.25, "as `position`: an uncertainty counts like an error", "0, 1"),
    "inertia": (0.20, 0.60, "judgement; a simulated acceleration errs by the same ratio", "1, 1"),
    "simulated": (0.60, 1.0, "at 1, the model predicts no better than constant velocity", "3, 0"),
    "play": (0.05, EVER, "judgement; smaller play is hidden by other errors", "0, 0"),
    "given": (1.1, EVER, "judgement; smaller differences are chance", "0, 0"),
    "unseen": (1.5, EVER, "judgement", "7 more, 3 fewer"),
    "still": (2.0, EVER, "judgement", "0, 0"),
    "halves": (0.15, EVER, "0.05 is expected of independent parameters, more of correlated ones", "0, 0"),
    "cost": (0.05, 0.20, "judgement", "0, 1 fewer"),
    "parameter": (
        0.5,
        1.0,
        "at 1, the uncertainty changes the torque as much as the noise does",
        "-9 %, +5 % well",
    ),
}
_WORDS = {
    "torque": "the torque error while moving is {} of the torque ({joint})",
    "slow": "at {speeds}, the torque error is {} of the torque ({joint})",
    "position": "position-dependent errors are {} of the torque ({joint})",
    "rest": "the torque at rest within the joint limits is known to {} ({joint}, 1 s.d.)",
    "inertia": "the inertia about the joint is known to {} ({joint}, 1 s.d.)",
    "simulated": "re-simulated positions err by {} of the error of a coasting robot ({joint})",
    "play": "the model lacks the gears' play, {} of the error of a coasting robot ({joint})",
    "given": "the given model predicts better: the error is {} of its error ({joint})",
    "unseen": "held-out errors are {} of those of the fit ({joint})",
    "still": "errors at rest are {} of those in motion ({joint})",
    "halves": "two halves of the data disagree on {} of the base parameters",
    "cost": "physically consistent links increase the torque error by {} ({joint})",
    "parameter": "one standard deviation of the parameter changes the torque by {} of the noise",
}
# least RMS difference of halves that is more than chance [standard deviations]; up to 1.24 on sound logs of real robots
APART = 1.5
LIMITS = {name: Limit(_WORDS[name], *values) for name, values in _VALUES.items()}
USES: Mapping[Use, tuple[str, ...]] = {
    "gravity compensation": ("position", "rest"),
    "feed-forward": ("torque", "slow", "given"),
    "simulation": ("inertia", "simulated", "play"),
}


class UseVerdict(NamedTuple):
    """Verdict on one use of the model.

    Attributes:
        use: "gravity compensation", "feed-forward" or "simulation".
        level: "good", "fair" (usable with care) or "poor".
        text: the reason in one line.
    """

    use: Use
    level: Level
    text: str


class VerdictCheck(NamedTuple):
    """The result of one check."""

    level: Level
    text: str


@dataclasses.dataclass(frozen=True)
class ErrorLimit:
    """The largest acceptable error of each joint.

    Attributes:
        measure: "rms" [N m or N], "rre" [%] or "moving" (RRE over the samples at which the joint moves [%]).
        values: one limit for all joints, or one per joint.
    """

    measure: Measure
    values: tuple[float, ...]

    def of_joints(self, n: int) -> np.ndarray:
        """The limits of n joints, (n,).

        Raises:
            IdentificationError: the number of values is neither 1 nor n.
        """
        if len(self.values) not in (1, n):
            raise IdentificationError(
                f"the limit {self.measure} has {len(self.values)} numbers for {n} joints: specify one number for all, or "
                "one per joint"
            )
        return np.broadcast_to(np.asarray(self.values, float), (n,))


_MEASURES = {
    "rms": ("RMS error", "rms"),
    "rre": ("RRE", "relative"),
    "moving": ("RRE while moving", "relative_moving"),
}


def parse_limit(text: str) -> ErrorLimit:
    """Parse a limit from text: "rms=0.3", or "rre=10,5,5,8,10,10" with one number per joint.

    Raises:
        IdentificationError: the text has another form, or a number is not positive.
    """
    measure, sign, numbers = text.partition("=")
    measure = measure.strip().lower()
    try:
        values = tuple(float(x) for x in numbers.split(","))
    except ValueError:
        values = ()
    if measure not in _MEASURES or not sign or not values or not all(0 < v < np.inf for v in values):
        raise IdentificationError(
            f"{text!r} is not a limit: write rms=, rre= or moving= and one positive number, or one per joint, for example "
            "rms=0.3 or rre=10,5,5,8,10,10"
        )
    return ErrorLimit(measure, values)  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True, eq=False)
class Verdict:
    """Verdict on a model, based on the user's limits or on its uses, with what it is based on.

    Attributes:
        level: with limits, "good" if all are met, else "poor"; without limits, the level that all uses share, else "fair".
        headline: the outcome in a sentence.
        uses: verdicts on gravity compensation, feed-forward and simulation.
        joints: level of the predicted torque of each joint while it moves; "untested" for joints that moved for less
            than a second, or through less than 1 % of their range, in the held-out motion.
        limits: checks of the limits.
        checks: problems beyond those of the uses.
        findings: suspected faults of the logs or the given model.
        figures: the figures (n,) by their names in `LIMITS`, and the others of `torque_figures`; NaN where unknown.
        given: errors of the given and of the identified model; None if the given model has no inertias.
        simulated: runs re-simulated with the model that was not fitted to them.
        files: predictions of the written model files.
    """

    level: Level
    headline: str
    uses: tuple[UseVerdict, ...]
    joints: tuple[JointLevel, ...]
    limits: tuple[VerdictCheck, ...]
    checks: tuple[VerdictCheck, ...]
    findings: tuple[Finding, ...]
    figures: Mapping[str, np.ndarray]
    given: AgainstPrior | None
    simulated: Sequence[Simulated]
    files: Sequence[FilePrediction]


def verdict(
    result: Identification,
    limits: Sequence[ErrorLimit] = (),
    files: Sequence[FilePrediction] = (),
    findings: Sequence[Finding] | None = None,
) -> Verdict:
    """Judge an identified model in absolute terms, for three uses: gravity compensation, feed-forward and simulation.

    Every use is judged by the worst joint's figures (`USES`) on held-out motion, by the limits in `LIMITS`. Simulation is
    also poor if a link is inconsistent or unlike those of machines, if friction or armature is negative, or if gravity
    compensation or a joint's torque is poor. If the torques lack the given gravity, gravity compensation and simulation are
    poor. If a wrong sign, gain or scale is suspected, if no new motion was held out, or if it does not test a joint, no use
    is better than fair; if it does not test most joints, all are poor. If limits are given, the outcome depends only on
    whether every joint meets all limits, but the uses are still judged.

    Args:
        result: the identification.
        limits: acceptable errors (`parse_limit`).
        files: predictions of the written model files. If model.eqx predicts worse than the fitted model, all uses are
            poor. If a URDF or MJCF file predicts worse, a check names this file.
        findings: suspected faults; by default those of `diagnose_identification`.

    Raises:
        IdentificationError: a limit has neither one value nor one per joint.

    Cost: evaluation of the base regressor at about 1000 samples, and of forward dynamics at every held-out sample.
    """
    by_limits = tuple(_within(result, limit) for limit in limits)
    if findings is None:  # of a fixed arm's logs, with the torques of all joints
        of_arm = not (result.chain.topology.has_curved_joints or result.has_unmeasured_forces)
        whole = all(np.isfinite(run.samples.tau).all() for run in result.fitted)
        findings = diagnose_identification(result) if of_arm and whole else ()
    prior, runs = against_prior(result), resimulated(result.validated_model, result.validation or result.fitted)
    figures = all_figures(result, prior, runs)
    joints = _joint_levels(figures)
    uses = _uses(result, figures, joints, findings, files)
    found = [*_validation(result, figures, joints), *_bodies(result), *_further(result, figures)]
    found += [*_drift(result), *_files(files)]
    if by_limits:
        level: Level = worst(check.level for check in by_limits)
        kept = "meets your limits" if level == "good" else "does not meet your limits"
        which = "on held-out motion" if result.validation else "on the fitted motion; none was held out"
        headline = f"The identified model {kept} {which}."
        if level == "good" and (found or any(use.level != "good" for use in uses)):
            headline += " Note the marked items below."
    else:
        level = uses[0].level if len({use.level for use in uses}) == 1 else "fair"
        headline = _headline(uses)
    checks = tuple(VerdictCheck(*one) for one in found)
    known = (figures, prior, runs, files)
    return Verdict(level, headline, uses, joints, by_limits, checks, tuple(findings), *known)


def level_of(value: float, name: str) -> Literal["good", "fair", "poor"]:
    """The level of a figure by its limits."""
    limit = LIMITS[name]
    return "good" if value <= limit.good else "fair" if value <= limit.fair else "poor"


def worst(levels: Iterable[Level]) -> Level:
    """The worst of several levels."""
    return max(levels, key=ORDER.index)


def _joint_levels(figures: Mapping[str, np.ndarray]) -> tuple[JointLevel, ...]:
    """Level of the predicted torque of each joint; "untested" for joints that hardly moved or were not measured."""
    levels: list[JointLevel] = []
    for relative, slow in zip(figures["torque"].tolist(), figures["slow"].tolist(), strict=True):
        both: list[JointLevel] = ["good" if np.isnan(slow) else level_of(slow, "slow"), level_of(relative, "torque")]
        levels.append("untested" if np.isnan(relative) else max(both, key=ORDER.index))
    return tuple(levels)


def _words(name: str, value: float, joint: str, speeds: str = "") -> str:
    """The sentence about a figure; beyond tenfold without the figure."""
    shown = f"{rounded(100 * value)} %" if value < UNKNOWN else "more than 1000 %"
    return LIMITS[name].words.format(shown, joint=joint, speeds=speeds)


def _uses(
    result: Identification,
    figures: Mapping[str, np.ndarray],
    joints: Sequence[JointLevel],
    findings: Sequence[Finding],
    files: Sequence[FilePrediction],
) -> tuple[UseVerdict, ...]:
    """The verdict on each use: the worst level of its figures and of what else is known, with the reasons for it."""
    names, units, uses = result.rows, position_units(result.chain), list[UseVerdict]()
    general = _general(result, figures, files)
    for use, keys in USES.items():
        found: list[Found] = []
        for key in keys:
            values, limit = figures[key], LIMITS[key]
            if np.isnan(values).all():
                continue
            j = int(np.nanargmax(values))
            level = level_of(float(values[j]), key)
            if level != "good" or limit.fair < EVER:
                low, high = (rounded(float(x)) for x in figures["speeds"][:, j])
                found.append(
                    (level, _words(key, float(values[j]), names[j], f"speeds of {low} to {high} {units[j]}/s"))
                )
        if use == "simulation":
            found += _possible(result, figures, uses[0].level, joints)
        found += [*general, *_suspected(findings, use)]
        level = worst(one for one, _ in found)
        reasons = "; ".join(text for one, text in found if one == level)
        text = f"{use.capitalize()}: {ANSWERS[level]}. {reasons[:1].upper()}{reasons[1:]}."
        uses.append(UseVerdict(use, level, text))
    return tuple(uses)


def _general(result: Identification, figures: Mapping[str, np.ndarray], files: Sequence[FilePrediction]) -> list[Found]:
    """What holds for every use: the written model, untested joints, and missing validation."""
    found: list[Found] = [
        ("poor", f"the written model, {file.name}, differs from the fitted one: {file.why}")
        for file in files
        if file.whole and file.why
    ]
    names = [result.rows[j] for j in np.flatnonzero(figures["untested"])]
    if names:
        level: Level = "poor" if 2 * len(names) > len(result.rows) else "fair"
        found.append((level, f"not tested: {', '.join(names)}, which hardly moved"))
    if not result.is_validated:
        repeats = "the validation motion repeats the fitted motion"
        found.append(("fair", repeats if result.validation else "no motion was held out for validation"))
    return found


def _suspected(findings: Sequence[Finding], use: Use) -> list[Found]:
    """What suspected faults of the torques mean for a use."""
    found: list[Found] = []
    for finding in findings:
        if finding.kind == "gravity":
            found.append(("fair" if use == "feed-forward" else "poor", finding.text.split(":")[0]))
        elif finding.kind in ("sign", "gain", "scale"):
            names = f" of {', '.join(finding.about)}" if finding.about else ""
            found.append(("fair", f"the {finding.kind} of the torques{names} is doubtful"))
    return found


def _possible(
    result: Identification, figures: Mapping[str, np.ndarray], gravity: Level, joints: Sequence[JointLevel]
) -> list[Found]:
    """What else a simulation needs: possible links, friction that takes power, torques that are right, and a test."""
    chain, names, found = result.chain, result.rows, list[Found]()
    if result.inconsistent_links:
        found.append(("poor", f"{len(result.inconsistent_links)} links are not physically consistent"))
    if result.unusual_links:
        found.append(("poor", result.unusual_links[0]))
    law = chain.friction
    for name, values in (
        ("armature", chain.armature),
        ("viscous friction", law.viscous),
        ("Coulomb friction", law.coulomb),
    ):
        if negative := [names[j] for j in np.flatnonzero(np.asarray(values, float) < 0)]:
            found.append(("poor", f"{name} is negative at {', '.join(negative)}"))
    if np.isnan(figures["simulated"]).all():
        why = "the runs are too short to simulate windows of half a second"
        if chain.topology.has_curved_joints:
            why = "robots with a moving base are not re-simulated"
        elif result.has_unmeasured_forces:
            why = "robots with closed loops or unmeasured contact forces are not re-simulated"
        found.append(("fair", why))
    if gravity == "poor":
        found.append(("poor", "the torque at rest is inaccurate or undetermined"))
    if "poor" in joints:
        found.append(("poor", f"the torque of {names[joints.index('poor')]} is predicted poorly"))
    return found


def _headline(uses: Sequence[UseVerdict]) -> str:
    named = {level: [use.use for use in uses if use.level == level] for level in ("good", "fair", "poor")}
    join = lambda words: words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
    if not named["good"] and not named["fair"]:
        return "Do not use the identified model; the reasons are below."
    parts = []
    if named["good"]:
        parts.append(f"can be relied on for {join(named['good'])}")
    if named["fair"]:
        parts.append(f"{'' if parts else 'can be used '}with care for {join(named['fair'])}")
    if named["poor"]:
        parts.append(f"not for {join(named['poor'])}")
    if len(parts) == 1:
        return f"The identified model {parts[0]}{', for motion like that of the logs' if named['good'] else ': see below'}."
    return f"The identified model {', '.join(parts[:-1])}, {'but ' if named['poor'] else ''}{parts[-1]}: see below."


# -- checks


def _within(result: Identification, limit: ErrorLimit) -> VerdictCheck:
    most, (name, field) = limit.of_joints(len(result.rows)), _MEASURES[limit.measure]
    found = getattr(pooled(result.validation or result.fitted), field)
    over = [j for j in range(len(result.rows)) if not (found[j] <= most[j] or np.isnan(found[j]))]
    units = torque_units(result.chain) if limit.measure == "rms" else ("%",) * len(result.rows)
    if not over:
        listed = ", ".join(f"{v:g}" for v in limit.values)
        return VerdictCheck("good", f"The {name} of every joint is within {listed} {units[0]}.")
    words = ", ".join(f"{result.rows[j]} has {rounded(found[j])} {units[j]} (limit: {most[j]:g})" for j in over)
    return VerdictCheck("poor", f"The {name} is above the limit: {words}.")


def _validation(result: Identification, figures: Mapping[str, np.ndarray], joints: Sequence[JointLevel]) -> list[Found]:
    """What is wrong with the validation, if anything."""
    if not result.validation:
        return [("fair", "No motion was held out, so the model is not validated: pass a log with --validate.")]
    if not result.is_validated:
        return [
            (
                "fair",
                "The validation motion repeats the fitted motion, and so do the model's errors: the model is not validated. "
                "Pass a log of another motion with --validate.",
            )
        ]
    if figures["untested"].all():
        return [("poor", "Validation says nothing: no joint moves enough in the held-out motion.")]
    ratio = np.nan_to_num(figures["unseen"])
    failed = [(ratio[j], j) for j, level in enumerate(joints) if ratio[j] > LIMITS["unseen"].good and level != "good"]
    if failed:
        times, j = max(failed)
        text = (
            f"Validation does not confirm the fit: {_words('unseen', times, result.rows[j])}. The most common causes are a "
            "different robot, payload, temperature (which changes the friction) or set of gains, or motion outside the range "
            "of the fitted logs."
        )
        return [("poor" if any(joints[k] == "poor" for _, k in failed) else "fair", text)]
    untested = ", ".join(result.rows[j] for j in np.flatnonzero(figures["untested"]))
    return [("fair", f"The validation does not test {untested}, which hardly moved.")] if untested else []


def _further(result: Identification, figures: Mapping[str, np.ndarray]) -> list[Found]:
    """Joints with much larger errors at rest than in motion, and what physical consistency costs."""
    found, still, cost = list[Found](), figures["still"], np.nan_to_num(figures["cost"], nan=-1.0)
    over = ", ".join(
        f"{result.rows[j]} ({rounded(still[j])} times)" for j in np.flatnonzero(still > LIMITS["still"].good)
    )
    if over:
        cause = (
            "dry friction at rest takes whatever value holds the joint still, which no function of velocity can predict"
        )
        found.append(("fair", f"Torque errors are larger at standstill than in motion on {over}: {cause}."))
    level = level_of(float(cost.max()), "cost")
    if level != "good":
        words = _words("cost", float(cost.max()), result.rows[int(np.argmax(cost))])
        advice = "the model lacks a term, or its kinematics, units or signs are wrong"
        found.append((level, f"{words[:1].upper()}{words[1:]}: {advice}."))
    return found


def _bodies(result: Identification) -> list[Found]:
    """Links that no machine has."""
    found: list[Found] = []
    if links := result.inconsistent_links:
        advice = "torques are predicted all the same, but forward dynamics can fail. Load the model with allow_nonphysical=True"
        level: Level = "poor" if len(links) == result.chain.n else "fair"
        found.append((level, f"Some links are not physically consistent; {advice}: {'; '.join(links)}."))
    if links := result.unusual_links:
        found.append(("fair", f"Some identified links are unlike those of ordinary machines: {'; '.join(links)}."))
    return found


def _drift(result: Identification) -> list[Found]:
    """Drift of the fitted runs, or errors that vary along a repeated motion, beyond the intervals and beyond chance."""
    halves = result.split_half
    if halves is None or halves.share >= 1 - LIMITS["halves"].good or halves.rms < APART:
        return []
    found = halves.disagreeing
    listed = ", ".join(found[:4]) + (" and others" if len(found) > 4 else "")
    differ = (
        f"{len(found)} of {len(halves.names)} base parameters differ by more than two standard deviations ({listed})"
    )
    if halves.of_motion:
        lacks = "The model lacks an effect that varies along the motion, which the standard deviations do not include."
        return [("fair", f"The two halves of the repeated motion disagree: {differ}. {lacks}")]
    friction = 2 * sum(name.startswith(("fv", "fc", "off")) for name in found) > len(found)
    cause = "mostly friction: temperature, or wear" if friction else "temperature, load or gains"
    where = "between the fitted runs" if len(result.fitted) > 1 else "within the fitted run"
    return [("fair", f"Drift {where}, which the standard deviations do not include: {differ}; {cause}.")]


def _files(files: Sequence[FilePrediction]) -> list[Found]:
    """Written files that predict worse than the complete model."""
    poorer = [file for file in files if file.why and not file.whole]
    reasons = dict.fromkeys(reason for file in poorer for reason in file.why.split("; "))
    names = " and ".join(file.name for file in poorer)
    return [("fair", f"Use model.eqx for accurate torques, not {names}: {'; '.join(reasons)}.")] if poorer else []

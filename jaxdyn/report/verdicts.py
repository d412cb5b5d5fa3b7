"""Separate verdicts on three uses of an identified model: gravity compensation, feed-forward and simulation.

Verdict in plain words on whether a model meets the user's error limits and is suitable for common uses."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import numpy as np

from ..errors import IdentificationError
from ..identification.diagnostics import Finding, diagnose_identification
from ..identification.result import Identification
from .files import FilePrediction
from .markup import rounded
from .parameter_sections import AgainstPrior, against_prior
from .quality import (
    FAIR,
    SMALL,
    Determination,
    Simulated,
    TorqueAccuracy,
    determination_in_use,
    pooled,
    pooled_unconstrained,
    resimulated,
    rms_where,
    simulated_against_coasting,
    together,
    torque_accuracy,
    torque_units,
    with_drive,
)

Level = Literal["good", "fair", "poor", "note"]
JointLevel = Literal["good", "fair", "poor", "untested"]
Use = Literal["gravity compensation", "feed-forward", "simulation"]
Found = tuple[Level, str]  # level and text of a check
ORDER: tuple[Level, ...] = ("note", "good", "fair", "poor")

# upper bounds for (good, fair)
TORQUE = (0.10, 0.40)  # torque error while a joint moves, relative to the torque, after subtraction of noise
# position-dependent part of the error, and standard deviation of the torque at rest, relative to the torque
POSITION = (0.10, 0.25)
INERTIA = (0.20, 0.60)  # relative standard deviation of a diagonal entry of the mass matrix
UNKNOWN = 10.0  # relative error or standard deviation from which on no figure is given
COASTING = (0.60, 1.0)  # errors of simulated positions relative to those of a coasting robot
WORSE = 1.1  # ratio of the identified to the given model's error above which the identified model counts as worse


@dataclasses.dataclass(frozen=True)
class UseVerdict:
    """Verdict on one use of the model.

    Attributes:
        use: "gravity compensation", "feed-forward" or "simulation".
        level: "good", "fair" (usable with care) or "poor".
        text: the reason in one line.
    """

    use: Use
    level: Level
    text: str


def level_of(value: float, bounds: tuple[float, float]) -> Literal["good", "fair", "poor"]:
    """The level of a value: good up to the first bound, fair up to the second, and poor above that."""
    return "good" if value <= bounds[0] else "fair" if value <= bounds[1] else "poor"


def worst(levels: Iterable[Level]) -> Level:
    """The worst of several levels."""
    return max(levels, key=lambda level: ORDER.index(level))


def joint_levels(accuracy: TorqueAccuracy) -> tuple[JointLevel, ...]:
    """Level of the predicted torque of each joint; "untested" for joints that hardly moved or were not measured."""
    of_joint: Callable[[float], JointLevel] = lambda x: "untested" if np.isnan(x) else level_of(x, TORQUE)
    return tuple(of_joint(x) for x in accuracy.judged.tolist())


def _untested(result: Identification, accuracy: TorqueAccuracy) -> list[Found]:
    """What joints that hardly moved mean for every use: at most with care, and no if fewer than half were tested."""
    names = [result.rows[j] for j in np.flatnonzero(accuracy.untested)]
    if not names:
        return []
    level: Level = "poor" if 2 * len(names) > len(result.rows) else "fair"
    return [(level, f"not tested: {', '.join(names)}, which hardly moved")]


def judge_uses(
    result: Identification,
    accuracy: TorqueAccuracy,
    simulated: Sequence[Simulated],
    worse_than_given: tuple[str, ...] = (),
    worse_in_file: str = "",
    findings: Sequence[Finding] = (),
) -> tuple[UseVerdict, ...]:
    """Verdicts on gravity compensation, feed-forward and simulation.

    Args:
        simulated: runs re-simulated with the model.
        worse_than_given: joints whose torque the given model predicts better than the identified model.
        worse_in_file: text on how the written model differs from the fitted model; empty if both are equal.
        findings: suspected faults.
    """
    known = determination_in_use(result)
    written: list[Found] = [("poor", worse_in_file)] if worse_in_file else []
    written += _untested(result, accuracy)
    heavy = _suspected(findings, "poor")
    gravity = _gravity(result, known, [*written, *heavy])
    return (
        gravity,
        _feed_forward(result, accuracy, worse_than_given, [*written, *_suspected(findings, "fair")]),
        _simulation(result, known, accuracy, gravity.level, simulated, [*written, *heavy]),
    )


def _suspected(findings: Sequence[Finding], without_gravity: Level) -> list[Found]:
    """What suspected faults of the torques mean for a use that is of the given level if gravity is missing or wrong."""
    found: list[Found] = []
    for finding in findings:
        if finding.kind == "gravity":
            found.append((without_gravity, finding.text.split(":")[0]))
        elif finding.kind in ("sign", "gain", "scale"):
            names = f" of {', '.join(finding.about)}" if finding.about else ""
            found.append(("fair", f"the {finding.kind} of the torques{names} is doubtful"))
    return found


def _line(use: Use, level: Level, reasons: list[str]) -> UseVerdict:
    answer = {"good": "yes", "fair": "with care", "poor": "no"}[level]
    return UseVerdict(use, level, f"{use.capitalize()}: {answer}. {'; '.join(reasons)}.".replace("  ", " "))


def _largest(values: np.ndarray) -> int:
    return int(np.argmax(np.where(np.isnan(values), -1, values)))


def _percent(x: float) -> str:
    return f"{rounded(100 * x)} %" if x < UNKNOWN else "more than 1000 %"


def _not_validated(result: Identification) -> list[Found]:
    if result.is_validated:
        return []
    why = (
        "the validation motion repeats the fitted motion"
        if result.validation
        else "no motion was held out for validation"
    )
    return [("fair", why)]


def _sentence(use: Use, found: Sequence[Found]) -> UseVerdict:
    """The verdict on a use: the worst level and the reasons for it."""
    level = worst([one for one, _ in found])
    reasons = [text for one, text in found if one == level]
    return _line(use, level, [reasons[0][:1].upper() + reasons[0][1:], *reasons[1:]])


def _gravity(result: Identification, known: Determination, written: list[Found]) -> UseVerdict:
    names = result.rows
    a, b = _largest(known.position_error), _largest(known.gravity)
    error, spread = float(known.position_error[a]), float(known.gravity[b])
    found: list[Found] = [
        (
            level_of(error, POSITION),
            f"position-dependent errors are up to {_percent(error)} of the torque ({names[a]})",
        ),
        *_not_validated(result),
        *written,
    ]
    if not np.isnan(spread):
        text = f"the data do not determine the torque at rest of {names[b]}"
        if spread < UNKNOWN:
            within = f"{_percent(spread)} ({names[b]}, one standard deviation)"
            text = f"within the joint limits, the torque at rest is known to within {within}"
        found.insert(1, (level_of(spread, POSITION), text))
    return _sentence("gravity compensation", found)


def _feed_forward(
    result: Identification, accuracy: TorqueAccuracy, worse: tuple[str, ...], written: list[Found]
) -> UseVerdict:
    names, net = result.rows, accuracy.judged
    j = _largest(net)
    noise = f", {_percent(accuracy.noise[j])} of the error's power is noise" if accuracy.noise[j] > 0.05 else ""
    text = (
        f"torque errors while moving are up to {_percent(accuracy.relative[j])} of the torque ({names[j]}: RMS "
        f"{rounded(float(accuracy.error[j]))} of {rounded(float(accuracy.torque[j]))}{noise})"
    )
    if net[j] > accuracy.without_noise[j]:
        k = int(np.argmax(accuracy.by_speed[:, j]))
        slow, fast = (rounded(float(x)) for x in accuracy.speeds[k : k + 2, j])
        text += f", and {_percent(accuracy.at_worst_speed[j])} at speeds of {slow} to {fast}"
    found: list[Found] = [] if np.isnan(net[j]) else [(level_of(float(net[j]), TORQUE), text)]
    found += [*_not_validated(result), *written]
    if worse:
        found.append(("fair", f"the given model predicts {', '.join(worse)} better"))
    return _sentence("feed-forward", found)


def _loose(result: Identification, simulated: Sequence[Simulated]) -> list[Found]:
    """Play that is not small relative to what a joint moves by within a window of simulation."""
    if result.play is None or not simulated:
        return []
    moved = np.max([run.coasting_rms for _, run in simulated], axis=0)
    some = np.flatnonzero(result.play > SMALL * moved)
    listed = ", ".join(f"{result.rows[j]} ({rounded(float(result.play[j]))})" for j in some)
    return [("fair", f"the model lacks the play (rad or m) found at {listed}")] if len(some) else []


def _simulation(
    result: Identification,
    known: Determination,
    accuracy: TorqueAccuracy,
    gravity: Level,
    simulated: Sequence[Simulated],
    written: list[Found],
) -> UseVerdict:
    chain, names = result.chain, result.rows
    found: list[Found] = []
    if result.inconsistent_links:
        found.append(("poor", f"{len(result.inconsistent_links)} links are not physically consistent"))
    for sentence in result.unusual_links[:1]:
        found.append(("poor", sentence))
    terms = {
        "armature": chain.armature,
        "viscous friction": chain.friction.viscous,
        "Coulomb friction": chain.friction.coulomb,
    }
    for name, values in terms.items():
        negative = [names[j] for j in np.flatnonzero(np.asarray(values, float) < 0)]
        if negative:
            found.append(("poor", f"{name} is negative at {', '.join(negative)}"))
    j = _largest(known.inertia)
    spread = float(known.inertia[j])
    text = f"the inertia about every joint is known to within {_percent(spread)} ({names[j]}, one standard deviation)"
    if spread > INERTIA[0]:
        text = f"the inertia about {names[j]} is known only to within {_percent(spread)} (one standard deviation)"
    if spread >= UNKNOWN:
        text = f"the data do not determine the inertia about {names[j]}"
    if not np.isnan(spread):
        found.append((level_of(spread, INERTIA), text))
    ratio = simulated_against_coasting(chain, simulated)
    if ratio is None and chain.topology.has_curved_joints:
        found.append(("fair", "robots with a moving base are not re-simulated"))
    elif ratio is None and result.has_unmeasured_forces:
        found.append(("fair", "robots with closed loops or unmeasured contact forces are not re-simulated"))
    elif ratio is None:
        found.append(("fair", "the runs are too short to simulate windows of half a second"))
    else:
        j = _largest(ratio)
        of_run = " in the worst run" if len(simulated) > 1 else ""
        if np.isinf(ratio[j]):
            text = "the re-simulation diverges"
        elif ratio[j] > COASTING[1]:
            times = rounded(float(ratio[j]))
            text = f"re-simulated positions have {times} times the error of a coasting robot ({names[j]}{of_run})"
        else:
            text = (
                f"re-simulated positions have {_percent(float(ratio[j]))} of the error of a coasting robot "
                f"({names[j]}{of_run})"
            )
        if not np.isnan(ratio[j]):
            found.append((level_of(float(ratio[j]), COASTING), text))
    found += _loose(result, simulated)
    if gravity == "poor":
        found.append(("poor", "the torque at rest is inaccurate or undetermined"))
    levels = joint_levels(accuracy)
    if "poor" in levels:
        found.append(("poor", f"the torque of {names[levels.index('poor')]} is predicted poorly"))
    return _sentence("simulation", [*found, *_not_validated(result), *written])


# -- verdict

Measure = Literal["rms", "rre", "moving"]
_NAMES = {"rms": "RMS error", "rre": "RRE", "moving": "RRE while moving"}

UNSEEN = 1.5  # ratio of held-out to fitted RMS error above which validation does not confirm the fit
BETTER = 1.02  # ratio of the given to the identified model's error above which the identified model counts as better
REST = 2.0  # ratio of the error at rest to that in motion above which it is reported
LEAST_AGREEING = 0.85  # smallest fraction of base parameters on which both halves of the data agree; 0.95 is expected
COST_FAIR, COST_POOR = 5.0, 20.0  # increase of the worst joint's error due to physical consistency [%]


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
    if measure not in _NAMES or not sign or not values or not all(0 < v < np.inf for v in values):
        raise IdentificationError(
            f"{text!r} is not a limit: write rms=, rre= or moving= and one positive number, or one per joint, for example "
            "rms=0.3 or rre=10,5,5,8,10,10"
        )
    return ErrorLimit(measure, values)  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class VerdictCheck:
    """The result of one check; the level "note" is for information only."""

    level: Level
    text: str


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Verdict on a model, based on the user's limits or on its uses, with the underlying checks.

    Attributes:
        level: with limits, "good" if all are met, else "poor"; without limits, the level that all uses share, else "fair".
        headline: the outcome in a sentence.
        uses: verdicts on gravity compensation, feed-forward and simulation.
        joints: level of the predicted torque of each joint while it moves; "untested" for joints that moved for less
            than a second, or through less than 1 % of their range, in the held-out motion.
        checks: all checks: first those of the limits, then those of the uses, then the others.
        limits: checks of the limits.
    """

    level: Level
    headline: str
    uses: tuple[UseVerdict, ...]
    joints: tuple[JointLevel, ...]
    checks: tuple[VerdictCheck, ...]
    limits: tuple[VerdictCheck, ...] = ()


def verdict(
    result: Identification,
    limits: Sequence[ErrorLimit] = (),
    prior: AgainstPrior | None = None,
    files: Sequence[FilePrediction] = (),
    simulated: Sequence[Simulated] | None = None,
    findings: Sequence[Finding] | None = None,
) -> Verdict:
    """Judge an identified model in absolute terms, for three uses: gravity compensation, feed-forward and simulation.

    - Each joint is judged by its RMS torque error relative to its RMS torque while it moves, on held-out motion and
      without the noise within the filter's band (`noise_share`): good up to 10 %, fair up to 40 %. In no tenth of the
      motion, sorted by speed, may it err by more than twice as much. If the torque of a joint is less than one twentieth
      of the largest joint torque, its error is relative to that twentieth.
    - Gravity compensation is judged by the position-dependent part of the torque error, and by the standard deviation of
      torques at rest within the joint limits, both relative to the torque (with the same lower bound): good up to 10 %,
      fair up to 25 %.
    - Feed-forward is judged by the worst joint, and is at most fair if the given model predicts a joint's torque better.
    - Simulation is judged by two figures: the error of positions re-simulated from measured torques in the worst run,
      relative to that of a coasting robot (good up to 60 %, fair up to 100 %), and the relative standard deviation of the
      inertia about each joint (good up to 20 %, fair up to 60 %). It is at most fair if gears have play
      (`Identification.play`) of more than a twentieth of the coasting robot's error.
    - Simulation is poor if a link is physically inconsistent, or is denser, lighter or larger than the links of ordinary
      machines; if friction or armature is negative; or if gravity compensation or a joint is poor.
    - If the torques do not contain the given gravity, gravity compensation and simulation are poor. If a wrong sign, gain
      or scale of torques is suspected (`diagnose`), no use is better than fair.

    Without held-out motion, if it only repeats the fitted motion, or if it does not test a joint (`Verdict.joints`), no
    use is better than fair; if it does not test most joints, all uses are poor. If limits are given, the outcome depends
    only on whether every joint meets all limits, but the uses are still judged. The condition number is for information
    only.

    Args:
        result: the identification.
        limits: acceptable errors (`parse_limit`).
        prior: errors of the given model (`against_prior`), for comparison.
        files: predictions of the written model files. If model.eqx predicts worse than the fitted model, all uses are
            poor. If a URDF or MJCF file predicts worse, a check names this file.
        simulated: runs re-simulated with the model (`resimulated`); by default computed by this function.
        findings: suspected faults; by default those of `diagnose_identification`.

    Raises:
        IdentificationError: a limit has neither one value nor one per joint.

    Cost: evaluation of the base regressor at about 1000 samples, and of forward dynamics at every held-out sample.
    """
    by_limits = [_within(result, limit) for limit in limits]
    accuracy = torque_accuracy(result)
    held = result.validation or result.fitted
    runs = resimulated(result.validated_model, held) if simulated is None else simulated
    own = "; ".join(
        f"the written model, {file.name}, differs from the fitted one: {file.why}"
        for file in files
        if file.whole and file.why
    )
    suspected = suspected_faults(result) if findings is None else findings
    uses = judge_uses(result, accuracy, runs, _worse(result, prior), own, suspected)
    general = [
        *(VerdictCheck(use.level, use.text) for use in uses),
        _joints(result, accuracy),
        *([unseen] if (unseen := _unseen(result, accuracy)) else []),
        *([rest] if (rest := _rest(result)) else []),
        _bodies(result),
        *([_cost(result)] if result.consistent else []),
        *([drift] if (drift := _drift(result)) else []),
        *([_better(result, prior)] if prior else []),
        *_poorer_files(files),
        _determined(result),
        _condition(result),
    ]
    if by_limits:
        level = worst([check.level for check in by_limits])
    else:
        levels = {use.level for use in uses}
        level = uses[0].level if len(levels) == 1 else "fair"
    headline = _limited(result, level) if limits else _headline(uses)
    if by_limits and level == "good" and any(ORDER.index(check.level) > ORDER.index("good") for check in general):
        headline += " Note the other marked items below."
    return Verdict(level, headline, uses, joint_levels(accuracy), (*by_limits, *general), tuple(by_limits))


@dataclasses.dataclass(frozen=True, eq=False)
class Assessment:
    """Assessment of a model, computed once for the report and the terminal.

    Attributes:
        verdict: verdict based on the other fields.
        files: predictions of the written model files.
        prior: errors of the given and of the identified model.
        simulated: runs re-simulated with the model.
        findings: suspected faults.
    """

    verdict: Verdict
    files: Sequence[FilePrediction]
    prior: AgainstPrior | None
    simulated: Sequence[Simulated]
    findings: Sequence[Finding]


def assess(
    result: Identification,
    limits: Sequence[ErrorLimit] = (),
    files: Sequence[FilePrediction] = (),
    findings: Sequence[Finding] | None = None,
) -> Assessment:
    """The verdict with all its inputs; the arguments are those of `verdict`."""
    findings = suspected_faults(result) if findings is None else findings
    prior, simulated = against_prior(result), resimulated(result.validated_model, result.validation or result.fitted)
    judged = verdict(result, limits, prior, files, simulated, findings)
    return Assessment(judged, files, prior, simulated, findings)


def suspected_faults(result: Identification) -> tuple[Finding, ...]:
    """Findings of `diagnose_identification`; none for robots whose logs are not those of a fixed arm."""
    if result.chain.topology.has_curved_joints or result.has_unmeasured_forces:
        return ()
    return diagnose_identification(result)


def _limited(result: Identification, level: Level) -> str:
    which = "on held-out motion" if result.validation else "on the fitted motion; none was held out"
    kept = "meets your limits" if level == "good" else "does not meet your limits"
    return f"The identified model {kept} {which}."


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


def _worse(result: Identification, prior: AgainstPrior | None) -> tuple[str, ...]:
    if prior is None:
        return ()
    return tuple(result.rows[j] for j in np.flatnonzero(prior.identified.rms > WORSE * prior.given.rms))


def _joints(result: Identification, accuracy: TorqueAccuracy) -> VerdictCheck:
    """The error of every joint."""
    names = result.rows
    net = 100 * accuracy.without_noise
    seen = [j for j in range(len(names)) if not np.isnan(net[j])]
    words = ", ".join(f"{names[j]} {rounded(float(net[j]))} %" for j in seen)
    others = [name for j, name in enumerate(names) if j not in seen]
    rest = f" Not tested, without enough motion or measured torque: {', '.join(others)}." if others else ""
    found: list[Level] = [level_of(float(accuracy.judged[j]), TORQUE) for j in seen]
    if accuracy.untested.any():
        found.append("fair")
    return VerdictCheck(
        worst(found) if seen else "poor",
        f"Torque error relative to the torque while the joint moves, without in-band noise: {words}.{rest}",
    )


def _within(result: Identification, limit: ErrorLimit) -> VerdictCheck:
    fit = pooled(result.validation or result.fitted)
    assert fit is not None
    most = limit.of_joints(len(result.rows))
    found = {"rms": fit.rms, "rre": fit.relative, "moving": fit.relative_moving}[limit.measure]
    over = [j for j in range(len(result.rows)) if not (found[j] <= most[j] or np.isnan(found[j]))]
    units = torque_units(result.chain) if limit.measure == "rms" else ("%",) * len(result.rows)
    name = _NAMES[limit.measure]
    if not over:
        return VerdictCheck("good", f"The {name} of every joint is within {_listed(limit.values)} {units[0]}.")
    words = ", ".join(f"{result.rows[j]} has {rounded(found[j])} {units[j]} (limit: {most[j]:g})" for j in over)
    return VerdictCheck("poor", f"The {name} is above the limit: {words}.")


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{v:g}" for v in values)


def _unseen(result: Identification, accuracy: TorqueAccuracy) -> VerdictCheck | None:
    """Check that validation confirms the fit."""
    if not result.validation:
        return VerdictCheck(
            "fair", "No motion was held out, so the model is not validated: pass a log with --validate."
        )
    if not result.is_validated:
        return VerdictCheck(
            "fair",
            "The validation motion repeats the fitted motion, and so do the model's errors: the model is not validated. Pass "
            "a log of another motion with --validate.",
        )
    ratio = np.nan_to_num(accuracy.error / np.maximum(accuracy.fitted, 1e-300))
    levels = joint_levels(accuracy)
    if accuracy.untested.all():
        return VerdictCheck("poor", "Validation says nothing: no joint moves enough in the held-out motion.")
    untested = ", ".join(result.rows[j] for j in np.flatnonzero(accuracy.untested))
    failed = [j for j in range(len(result.rows)) if ratio[j] > UNSEEN and levels[j] != "good"]
    j = max(failed, key=lambda k: ratio[k]) if failed else int(np.argmax(ratio))
    figures = f"errors are up to {rounded(float(ratio[j]))} times those of the fit, on {result.rows[j]}"
    if not failed and ratio[j] > UNSEEN:
        return VerdictCheck(
            "fair", f"Held-out motion is predicted well, but less accurately than the fitted motion: {figures}."
        )
    if not failed and untested:
        return VerdictCheck(
            "fair", f"Validation confirms the fit, except on {untested}, which hardly moved: {figures}."
        )
    if not failed:
        return VerdictCheck("good", f"Validation confirms the fit: {figures}.")
    return VerdictCheck(
        worst([level_of(float(accuracy.judged[k]), TORQUE) for k in failed]),
        f"Validation does not confirm the fit: {figures}. The most common causes are a different robot, payload, "
        "temperature (which changes the friction) or set of gains, or motion outside the range of the fitted logs.",
    )


def _rest(result: Identification) -> VerdictCheck | None:
    """Joints with much larger errors at rest than in motion; None if there are none."""
    data = together(result.validation or result.fitted)
    moving, resting = (rms_where(data.error, chosen) for chosen in (data.moves, ~data.moves))
    found = np.flatnonzero(
        with_drive(result.chain) & (data.moves.mean(0) < 0.95) & (resting > REST * np.nan_to_num(moving))
    )
    if not len(found):
        return None
    words = ", ".join(f"{result.rows[j]} ({rounded(resting[j] / moving[j])} times)" for j in found)
    return VerdictCheck(
        "fair",
        f"Torque errors are larger at standstill than in motion on {words}: dry friction at rest takes whatever value holds "
        "the joint still, which no function of velocity can predict.",
    )


def _drift(result: Identification) -> VerdictCheck | None:
    """Drift of the fitted runs, or errors that vary along a repeated motion, beyond the intervals; None if negligible."""
    halves = result.split_half
    if halves is None or halves.share >= LEAST_AGREEING:
        return None
    found = halves.disagreeing
    listed = ", ".join(found[:4]) + (" and others" if len(found) > 4 else "")
    differ = (
        f"{len(found)} of {len(halves.names)} base parameters ({listed}) differ by more than two standard deviations"
    )
    if halves.of_motion:
        return VerdictCheck(
            "fair",
            f"The two halves of the repeated motion, each fitted from all repetitions, disagree: {differ}. The model lacks an "
            "effect that varies along the motion, or the standard deviations do not include all of it.",
        )
    friction = 2 * sum(name.startswith(("fv", "fc", "off")) for name in found) > len(found)
    cause = "mostly friction: temperature, or wear" if friction else "temperature, load or gains"
    where = "between the fitted runs" if len(result.fitted) > 1 else "within the fitted run"
    return VerdictCheck(
        "fair",
        f"Drift {where}: {differ} between the two halves of the data ({cause}). The standard deviations do not include "
        "drift.",
    )


def _condition(result: Identification) -> VerdictCheck:
    number = rounded(result.estimate.scaled_condition)
    return VerdictCheck("note", f"Condition number of the base regressor with columns of unit norm: {number}.")


def _cost(result: Identification) -> VerdictCheck:
    """Increase of the torque error due to physical consistency."""
    evaluations = result.validation or result.fitted
    fit = pooled(evaluations)
    assert fit is not None
    excess = 100 * (fit.rms / np.maximum(pooled_unconstrained(evaluations), 1e-300) - 1)
    worst = int(np.nanargmax(excess))
    level: Level = "good" if excess[worst] <= COST_FAIR else "fair" if excess[worst] <= COST_POOR else "poor"
    words = {
        "good": "Physically consistent links predict the torques as well as unconstrained parameters do",
        "fair": "Physically consistent links predict the torques somewhat worse than unconstrained parameters: the model "
        "lacks a term, or its kinematics are inaccurate",
        "poor": "Physically consistent links predict the torques much worse than unconstrained parameters: the model "
        "lacks a term, or its kinematics, units or signs are wrong",
    }[level]
    return VerdictCheck(level, f"{words} ({excess[worst]:+.1f} % on {result.rows[worst]}, the worst joint).")


def _bodies(result: Identification) -> VerdictCheck:
    count = len(result.inconsistent_links)
    if count:
        return VerdictCheck(
            "poor" if count == result.chain.n else "fair",
            f"{count} of {result.chain.n} links are not physically consistent: predicted torques are unaffected, but do not "
            "simulate with this model.",
        )
    if result.unusual_links:
        return VerdictCheck(
            "fair",
            "All identified links are physically consistent, but some are unlike those of ordinary machines: "
            f"{'; '.join(result.unusual_links)}.",
        )
    return VerdictCheck(
        "good", "All identified links are physically consistent, of the size and density of ordinary machines."
    )


def _better(result: Identification, prior: AgainstPrior) -> VerdictCheck:
    worse = _worse(result, prior)
    if worse:
        return VerdictCheck("poor", f"The given model predicts the torque better on {', '.join(worse)}.")
    ratio = prior.given.rms / np.maximum(prior.identified.rms, 1e-300)
    ratio = np.where(np.isnan(prior.identified.relative), np.nan, ratio)  # passive joints have no torque
    middle = float(np.nanmedian(ratio))
    if middle < BETTER:
        return VerdictCheck("note", "The torque is predicted no better than by the given model.")
    if np.nanmin(ratio) < BETTER:
        same = ", ".join(result.rows[j] for j in np.flatnonzero(ratio < BETTER))
        return VerdictCheck("note", f"The torque is predicted better than by the given model, but not on {same}.")
    return VerdictCheck(
        "good",
        f"Every joint's torque is predicted better than by the given model, whose errors are {rounded(middle)} times as large "
        "(median).",
    )


def _poorer_files(files: Sequence[FilePrediction]) -> list[VerdictCheck]:
    """One check for each file that predicts worse than the complete model."""
    whole = next((file.fit for file in files if file.whole and file.fit), None)
    return [
        VerdictCheck(
            "fair",
            f"{file.name} cannot represent all fitted terms: its torque error is {rounded(file.fit.total_relative)} %, that of "
            f"model.eqx {rounded(whole.total_relative)} %. Use model.eqx if you need accurate torques.",
        )
        for file in files
        if whole and file.fit and file.why and not file.whole
    ]


def _determined(result: Identification) -> VerdictCheck:
    relative = np.nan_to_num(result.estimate.relative_standard_deviations, nan=np.inf)
    poor = int((relative > FAIR).sum())
    return VerdictCheck(
        "note",
        f"{poor} of {result.base.size} base parameters have a standard deviation above {FAIR:g} % of their value; the "
        "verdicts on the uses show the consequences.",
    )

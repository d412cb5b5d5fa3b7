"""Separate verdicts on three uses of an identified model: gravity compensation, feed-forward and simulation."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import numpy as np

from ..identification._result import Identification
from ..identification._validation.diagnostics import Finding
from ._accuracy import SMALL, Determination, Simulated, TorqueAccuracy, determination_in_use, simulated_against_coasting
from ._markup import rounded

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


def _unseen(result: Identification) -> list[Found]:
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
        *_unseen(result),
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
    found += [*_unseen(result), *written]
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
    if ratio is None and chain.topology.quaternion_joints:
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
    return _sentence("simulation", [*found, *_unseen(result), *written])

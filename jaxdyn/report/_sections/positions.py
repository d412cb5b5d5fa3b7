"""The part of the report about motion computed again from measured torques."""

from collections.abc import Sequence

import numpy as np

from ...errors import IdentificationError
from ...identification._result import Evaluation, Identification
from ...identification._validation.resimulation import Resimulation, resimulate
from ...model._chain import Chain
from .._markup import element, escaped, rounded, table
from .._pictures.over_time import over_time

SOON = 0.1  # [s]
_POINTS = 700


def resimulated(
    chain: Chain, evaluations: Sequence[Evaluation], predicted: bool = True
) -> list[tuple[Evaluation, Resimulation]]:
    """Each run that is long enough with its re-simulation.

    Args:
        predicted: by the torques of the evaluation rather than by the chain's own.
    """
    found = []
    for e in evaluations:
        try:
            found.append((e, resimulate(chain, e.samples, e.prediction if predicted else None)))
        except IdentificationError:  # shorter than a window
            continue
    return found


def position_units(chain: Chain) -> tuple[str, ...]:
    """Unit of each joint's position: rad, or m for prismatic joints."""
    return tuple("rad" if turns else "m" for turns in np.any(np.asarray(chain.screw[:, :3]) != 0, axis=1))


def positions_section(result: Identification, with_prior: bool) -> str:
    """Errors of position joint by joint and the pictures of one run."""
    evaluations = result.validation or result.fitted
    runs = resimulated(result.chain, evaluations)
    title = element("h2", "Positions re-simulated", id="positions")
    if not runs:
        return title + element("p", "The runs are too short to simulate windows of half a second.")
    before = resimulated(result.prior, evaluations, predicted=False) if with_prior else []
    units = position_units(result.chain)
    which = "held out" if result.validation else "fitted"
    seconds = runs[0][1].seconds
    columns = [
        ("over the window", _pooled([r.rms for _, r in runs], runs), ""),
        (f"after {SOON:g} s", _pooled([r.after(SOON) for _, r in runs], runs), ""),
        (f"after {seconds:.2g} s", _pooled([r.growth[-1] for _, r in runs], runs), ""),
        ("given model", _pooled([r.rms for _, r in before], before), "edge") if before else None,
        ("coasting", _pooled([r.coasting_rms for _, r in runs], runs), "edge"),
    ]
    shown = [c for c in columns if c is not None]
    head = element("th", "joint", "text") + element("th", "unit", "text") + element("th", "range of motion")
    head += "".join(element("th", name, kind) for name, _, kind in shown)
    span = np.max([np.ptp(e.samples.q, axis=0) for e, _ in runs], axis=0)
    rows = [
        element("th", escaped(joint), "text")
        + element("td", units[j], "text")
        + element("td", rounded(span[j]))
        + "".join(element("td", _error(float(values[j])), kind) for _, values, kind in shown)
        for j, joint in enumerate(result.chain.joint_names)
    ]
    count = sum(len(r.windows) for _, r in runs)
    text = title + element(
        "p",
        f"The identified robot is driven by the measured torques alone, in {count} windows of {seconds:.2g} s on the "
        f"{which} runs, each starting from the measured position and velocity; RMS of measured minus simulated position. "
        "Nothing holds it to the log: a simulated controller would hide the model's error behind its stiffness. An error of "
        "acceleration a grows to a T² / 2, and every model leaves the log in time, so windows are short. "
        "Coasting is the guess without any model, by the velocity at the window's start.",
        "faint",
    )
    text += table([head], rows)
    evaluation, first = runs[0]
    s = evaluation.samples
    # a curve breaks where a window ends and the next one starts from the log
    simulated, pieces = _parted(first, s.segments or ((0, len(s)),))
    text += element("h3", escaped(evaluation.title[:1].upper() + evaluation.title[1:]))
    for j, joint in enumerate(result.chain.joint_names):
        if not np.all(np.isfinite(first.rms)) or first.rms[j] > 100 * max(span[j], 1e-9):
            continue
        caption = element("b", escaped(joint)) + element("span", f"error {rounded(first.rms[j])} {units[j]} RMS")
        label = f"Measured and re-simulated position over time, and their difference, of joint {j + 1}"
        words = ("position", "error", units[j])
        curves = {"simulated": simulated[:, j]}
        svg = over_time(s.t, s.q[:, j], curves, pieces, words, label, _POINTS, f"position {j}")
        text += element("figure", element("figcaption", caption) + svg)
    if not np.all(np.isfinite(first.rms)):
        text += element(
            "p",
            "Not drawn: the simulation does not stay bounded, because the mass matrix is not positive definite everywhere.",
        )
    return text


def _parted(run: Resimulation, pieces: Sequence[tuple[int, int]]) -> tuple[np.ndarray, tuple[tuple[int, int], ...]]:
    """Simulated positions, NaN at each window's start so that it shows, and the pieces of the run that have windows."""
    covered = [(a, b) for a, b in pieces if np.isfinite(run.simulated[a:b]).any()]
    return run.simulated, tuple(covered)


def _pooled(values: Sequence[np.ndarray], runs: Sequence[tuple[Evaluation, Resimulation]]) -> np.ndarray:
    weights = np.array([len(r.windows) for _, r in runs], float)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.sqrt(np.tensordot(weights, np.asarray(values) ** 2, 1) / weights.sum()) if len(runs) else np.zeros(0)


def _error(value: float) -> str:
    return rounded(value) if np.isfinite(value) and value < 1e6 else "unbounded"

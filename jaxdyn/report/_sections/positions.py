"""Section on positions re-simulated from measured torques."""

from collections.abc import Callable, Sequence

import numpy as np

from ...identification._model.torque_model import TorqueModel
from ...identification._result import Evaluation, Identification
from ...identification._validation.resimulation import Resimulation
from .._accuracy import Simulated, resimulated
from .._markup import Column, columns_table, element, faint, names_column, rounded
from .._pictures.plot import View, plot, time_view
from .._quality import position_units
from .torques import run_titles

SOON = 0.1  # [s]
_POINTS = 42_000  # maximum total number of points in all curves
_FAR = 3.0  # largest distance from the log at which a simulated position is drawn, relative to the range of motion


def positions_section(result: Identification, found: Sequence[Simulated], with_prior: bool) -> str:
    """Section with position errors by joint, and positions over time for a selectable joint and run.

    Args:
        found: runs, each with its re-simulation with the model that was not fitted to them
            (`Identification.validated_model`, `resimulated`).
        with_prior: True to re-simulate the given model as well.
    """
    title = element("h2", "Positions re-simulated", id="positions")
    if result.chain.topology.quaternion_joints:
        return title + element(
            "p", "Robots with a moving base are not simulated: they fall over under the smallest torque error."
        )
    if result.has_unmeasured_forces:
        return title + element("p", "Robots with closed loops or unmeasured contact forces are not simulated.")
    if not found:
        return title + element("p", "The runs are too short to simulate windows of half a second.")
    runs = [run for _, run in found]
    before = [run for _, run in resimulated(TorqueModel(result.prior), [e for e, _ in found])] if with_prior else []
    units = position_units(result.chain)
    which = "held out" if result.validation else "fitted"
    seconds = runs[0].seconds
    span = np.max([np.ptp(e.samples.q, axis=0) for e, _ in found], axis=0)
    count = sum(len(r.windows) for r in runs)
    text = title + faint(
        f"The identified robot is driven only by the measured torques, in {count} windows of {seconds:.2g} s. Each "
        f"window starts from the measured position and velocity of a run that was {which}. Errors are RMS values of measured "
        "minus simulated positions. No controller keeps the robot near the log, because the controller's stiffness would hide "
        "model errors. A constant acceleration error a causes a position error a T² / 2 after a time T. The windows are "
        "short, because over longer times, every model drifts away from the log. Coasting is the prediction without a model: "
        "constant velocity from the start of the window."
    )
    columns = [
        *(names_column("joint", result.rows), Column("unit", units, "text")),
        Column("range of motion", [*map(rounded, span)]),
        Column("over the window", errors_of(lambda r: r.rms, runs)),
        Column(f"after {SOON:g} s", errors_of(lambda r: r.after(SOON), runs)),
        Column(f"after {seconds:.2g} s", errors_of(lambda r: r.growth[-1], runs)),
    ]
    if before:
        columns.append(Column("given model", errors_of(lambda r: r.rms, before), "edge"))
    columns.append(Column("coasting", errors_of(lambda r: r.coasting_rms, runs), "edge"))
    text += columns_table(columns)
    points = max(150, min(1000, _POINTS // (len(found) * len(result.rows))))
    views = [_view(e, run, j, units[j], points) for e, run in found for j in range(len(result.rows))]
    choices = (("run", run_titles([e for e, _ in found])), ("joint", result.rows))
    label = "Measured and re-simulated position over time, and their difference"
    return text + plot(label, views, choices)


def _view(evaluation: Evaluation, run: Resimulation, joint: int, unit: str, points: int) -> View:
    s = evaluation.samples
    q, simulated = s.q[:, joint], run.simulated[:, joint]
    with np.errstate(invalid="ignore"):
        drawn = np.where(np.abs(simulated - q) < _FAR * max(float(np.ptp(q)), 1e-9), simulated, np.nan)
    # curves are interrupted where a window ends and the next starts from the log; pieces without windows are not drawn
    pieces = [(a, b) for a, b in s.segments or ((0, len(s)),) if np.isfinite(drawn[a:b]).any()]
    caption = f"error {errors_of(lambda r: r.rms, [run])[joint]} {unit} RMS"
    if np.any(~np.isfinite(drawn) & (np.isfinite(simulated) | ~np.isfinite(run.rms[joint]))):
        caption += "; not drawn where the simulation diverges"
    return time_view(s.t, q, {"simulated": drawn}, pieces, ("position", "error", unit), caption, points)


def errors_of(error: Callable[[Resimulation], np.ndarray], runs: Sequence[Resimulation]) -> list[str]:
    """RMS error over all runs for each joint, weighted by the number of windows."""
    weights = np.array([len(r.windows) for r in runs], float)
    with np.errstate(over="ignore", invalid="ignore"):
        pooled = np.sqrt(np.tensordot(weights, np.asarray([error(r) for r in runs]) ** 2, 1) / weights.sum())
    return [rounded(float(x)) if np.isfinite(x) and x < 1e6 else "unbounded" for x in pooled]

"""Sections on torques: errors by joint and by run, and measured and predicted torque over time."""

from collections.abc import Sequence

import numpy as np

from ...identification._regression.prediction import MOVING, Fit
from ...identification._result import Evaluation, Identification
from .._markup import (
    Cell,
    Column,
    columns_table,
    element,
    escaped,
    faint,
    group_row,
    names_column,
    number,
    rounded,
    section,
)
from .._pictures.plot import plot, time_view
from .._quality import measured_rows, pooled, pooled_raw, together, torque_units

_POINTS = 90_000  # maximum total number of points in all curves


def errors_section(result: Identification) -> str:
    """Section with errors by joint, on fitted and on held-out motion, followed by errors by run."""
    runs = (("held out", result.validation), ("fitted", result.fitted))
    groups = [(name, fit) for name, fit in ((name, pooled(some)) for name, some in runs) if fit]
    units = torque_units(result.chain)
    size = np.sqrt((together((*result.fitted, *result.validation)).tau ** 2).mean(0))
    cutoff = result.fitted[0].samples.torque_cutoff
    same = len(set(units)) == 1
    unit, total = f" [{units[0]}]" if same else "", ("", "")
    columns = [names_column("joint", (*result.rows, "all joints"))]
    columns += [] if same else [Column("unit", [*units, total], "text")]
    columns.append(Column(f"torque,<br>RMS{unit}", [*map(rounded, size), total]))
    raw = {name: pooled_raw(some) for name, some in runs if some}
    known = None not in raw.values()
    for name, fit in groups:
        columns += error_columns((known and raw[name]) or fit, f"RMS{unit}")
        if known:
            behind = {f"filtered<br>RMS{unit}": fit.rms, "filtered<br>moving [%]": fit.relative_moving}
            columns += [Column(heading, [*map(rounded, values), ""]) for heading, values in behind.items()]
    return section(
        "Errors by joint",
        "errors",
        columns_table(
            columns, group_row(2 if same else 3, (f"error, {name}" for name, _ in groups), 5 if known else 3)
        ),
        faint(
            "RRE is the norm of the error as a percentage of the norm of the measured torque; “moving” includes only samples "
            f"at which the joint moves faster than {MOVING:g} rad/s or m/s. A joint with little torque has a "
            "large RRE even if the error is small. Errors are relative to the torque as logged, including noise"
            + (
                f"; “filtered” errors are relative to the low-pass filtered torque ({cutoff:.3g} Hz), as used in the fit."
                if known
                else f", after low-pass filtering at {cutoff:.3g} Hz."
            )
        ),
        element("h3", "Errors by run", id="runs"),
        columns_table(_run_columns(result)),
        faint(
            f"Each cell contains the RRE while moving [%], and below it the RMS error{unit or ' [N m or N]'}, both relative to "
            "the low-pass filtered torque. Click a cell to "
            "see the torques. errors.csv contains the same numbers."
        ),
    )


def error_columns(fit: Fit, heading: str, better: Sequence[bool] = ()) -> list[Column]:
    """Columns with RMS error, RRE, and RRE while moving, by joint and in total; bold for joints marked in `better`."""
    texts = [*map(rounded, fit.rms), ""]
    wins = [*(better or [False] * len(fit.rms)), False]
    rms: list[Cell] = [(text, "edge yes") if won else text for text, won in zip(texts, wins, strict=True)]
    relative = [*map(rounded, fit.relative), (rounded(fit.total_relative), "yes")]
    moving = [*map(rounded, fit.relative_moving), ""]
    return [Column(heading, rms, "edge"), Column("RRE [%]", relative), Column("moving [%]", moving)]


def runs_of(result: Identification) -> tuple[Evaluation, ...]:
    """All evaluations in the order in which the page shows their runs, with held-out runs first."""
    return (*result.validation, *result.fitted)


def run_titles(runs: Sequence[Evaluation]) -> list[str]:
    """Titles for row headings and selection lists."""
    return [run.title[:1].upper() + run.title[1:] for run in runs]


def _run_columns(result: Identification) -> list[Column]:
    runs = runs_of(result)
    columns = [
        Column("run", [escaped(title) for title in run_titles(runs)], "text", "wrap", tag="th"),
        Column("length [s]", [number(seconds_of(run), 3) for run in runs]),
        Column("total RRE [%]", [(rounded(run.fit.total_relative), "yes") for run in runs]),
    ]
    for place, j in enumerate(measured_rows(runs)):
        cells: list[Cell] = []
        for k, run in enumerate(runs):
            inner = rounded(run.fit.relative_moving[j]) + element("small", rounded(run.fit.rms[j]))
            cells.append(element("a", inner, href="#torques", data_run=str(k), data_joint=str(place)))
        columns.append(Column(escaped(result.rows[j]).replace("_", "_<wbr>"), cells, "name", "go"))
    return columns


def seconds_of(run: Evaluation) -> float:
    """Length of a run, excluding gaps [s]."""
    return sum(float(run.samples.t[stop - 1] - run.samples.t[start]) for start, stop in run.samples.segments)


def torques_section(result: Identification) -> str:
    """Section with measured and predicted torque over time for a selectable joint and run."""
    units, runs = torque_units(result.chain), runs_of(result)
    joints = measured_rows(runs)
    points = max(150, min(1400, _POINTS // (len(runs) * len(joints))))
    views = [
        time_view(
            run.samples.t,
            run.samples.tau[:, j],
            {"predicted": run.prediction[:, j]},
            run.samples.segments,
            ("torque", "residual", units[j]),
            _caption(run.fit, j, units[j]),
            points,
        )
        for run in runs
        for j in joints
    ]
    choices = (("run", run_titles(runs)), ("joint", [result.rows[j] for j in joints]))
    label = "Measured and predicted torque over time, and their difference"
    return section("Torques", "torques", plot(label, views, choices))


def _caption(fit: Fit, joint: int, unit: str) -> str:
    return (
        f"error {rounded(fit.rms[joint])} {unit} RMS, RRE {rounded(fit.relative[joint])} %, "
        f"while moving {rounded(fit.relative_moving[joint])} %"
    )

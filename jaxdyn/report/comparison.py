"""Comparison of two models on the same logs as text for the terminal: a table of errors, and a verdict.

HTML page that compares two models on the same logs."""

import datetime
import os
from typing import Any

import numpy as np

from ..errors import OutputError
from ..identification.prediction import MOVING
from ..identification.validation import ModelComparison
from ..io.files import write_whole
from .fit_sections import error_columns, errors_of
from .markup import (
    Column,
    columns_table,
    element,
    escaped,
    faint,
    group_row,
    names_column,
    rounded,
    section,
)
from .page import made_by, notes_section, page, page_head
from .pictures import plot, time_view
from .provenance import Provenance, provenance_section
from .quality import position_units, torque_units

BETTER = 1.05  # errors of a joint within 5 % count as equal


def print_whole(console: Any, table: Any) -> None:
    """Print a table at its own width if it is wider than the console: rich would cut numbers."""
    from rich.measure import Measurement

    own, wide = console.width, Measurement.get(console, console.options.update(max_width=10_000), table).maximum
    console.width = max(own, wide)
    try:
        console.print(table)
    finally:
        console.width = own


def comparison_verdict(comparison: ModelComparison) -> str:
    """The errors of both models and the better model, in two sentences."""
    names, ratio, joints = comparison.names, comparison.ratio, comparison.chains[0].joint_names
    totals = [fit.total_relative for fit in comparison.fits]
    first, second = ([j for j, r in enumerate(x) if r > BETTER] for x in (ratio, 1 / ratio))
    both = (
        f"{names[0]} predicts the torques with a total relative error of {rounded(totals[0])} %, "
        f"{names[1]} with {rounded(totals[1])} %."
    )
    if not first and not second:
        return f"{both} The errors of the two models differ by no more than 5 % on any joint."
    if not first or not second:
        better = names[0] if first else names[1]
        which = first or second
        where = (
            "every joint" if len(which) == len(joints) else ", ".join(joints[j] for j in which) + " and equal elsewhere"
        )
        return f"{both} {better} is better on {where}."
    lists = [", ".join(joints[j] for j in found) for found in (first, second)]
    return f"{both} {names[0]} is better on {lists[0]}; {names[1]} on {lists[1]}."


def comparison_table(comparison: ModelComparison) -> Any:
    """Errors by joint, as a rich table."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    units, joints = torque_units(comparison.chains[0]), comparison.chains[0].joint_names
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, title="Torque errors by joint", title_justify="left")
    shown.add_column("joint")
    same = len(set(units)) == 1
    for name in "ab":
        for column in (f"{name}: RMS\n[{units[0]}]" if same else f"{name}: RMS", "RRE\n[%]", "moving\n[%]"):
            shown.add_column(column, justify="right")
    shown.add_column("b / a", justify="right")
    for j, joint in enumerate(joints):
        cells = [Text(joint)]
        for fit in comparison.fits:
            rms = rounded(fit.rms[j]) if same else f"{rounded(fit.rms[j])} {units[j]}"
            cells += [rms, rounded(fit.relative[j]), rounded(fit.relative_moving[j])]
        shown.add_row(*cells, rounded(float(comparison.ratio[j])))
    totals = [cell for fit in comparison.fits for cell in ("", rounded(fit.total_relative), "")]
    shown.add_row("all", *totals, "")
    return shown


def print_comparison(comparison: ModelComparison, console: Any = None) -> None:
    """Print a table of errors by joint and a verdict for a comparison of two models.

    Args:
        comparison: result of `compare_models`.
        console: a rich `Console`; by default standard output.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False) if console is None else console
    print_whole(console, comparison_table(comparison))
    for letter, name in zip("ab", comparison.names, strict=True):
        console.print(Text(f"{letter}: {name}"), soft_wrap=True)
    console.print(Text(comparison_verdict(comparison)))


# -- comparison

_POINTS = 80_000  # maximum total number of points in all curves


def write_comparison(
    comparison: ModelComparison,
    path: str | os.PathLike[str],
    date: datetime.datetime | None = None,
    provenance: Provenance | None = None,
) -> None:
    """Write a comparison of the errors, torques and positions of two models as a self-contained HTML file.

    Args:
        comparison: result of `compare_models`.
        path: the HTML file.
        date: date shown at the top; by default now.
        provenance: input files and settings (`collect_provenance`).

    Raises:
        OutputError: the file cannot be written; an existing file remains unchanged.
    """
    write_whole(path, comparison_html(comparison, date, provenance), OutputError)


def comparison_html(
    comparison: ModelComparison, date: datetime.datetime | None = None, provenance: Provenance | None = None
) -> str:
    """The HTML that `write_comparison` writes."""
    title = f"{comparison.names[0]} and {comparison.names[1]}"
    first, second = comparison.chains
    notes = [f"{run.source}: {note}" for run in comparison.runs for note in run.notes]
    if first.joint_names != second.joint_names:
        notes.insert(0, f"joints are matched by their order; the joints of b are {', '.join(second.joint_names)}")
    pulls = [np.asarray(chain.gravity, float) for chain in comparison.chains]
    if not np.allclose(pulls[0], pulls[1]):
        words = [", ".join(f"{x:.4g}" for x in pull) for pull in pulls]
        notes.insert(
            0,
            f"gravity is ({words[1]}) in b and ({words[0]}) in a, each in its base frame; for a URDF, it can be specified "
            "by --gravity",
        )
    facts = [
        ("a", comparison.names[0]),
        ("b", comparison.names[1]),
        *(
            (
                "Log",
                f"{r.source} ({len(r.samples)} samples at {r.samples.rate:.4g} Hz; low-pass {r.samples.position_cutoff:.3g} Hz "
                f"on positions, {r.samples.torque_cutoff:.3g} Hz on torques)",
            )
            for r in comparison.runs
        ),
        *made_by(date),
    ]
    sections = (
        page_head("Two models on a log", title, facts),
        element("p", escaped(comparison_verdict(comparison)), "verdict stamp"),
        _errors(comparison),
        _positions(comparison),
        _torques(comparison),
        notes_section(notes),
        provenance_section(provenance),
    )
    return page(title, sections)


def _errors(comparison: ModelComparison) -> str:
    chain, ratio = comparison.chains[0], comparison.ratio
    columns = [names_column("joint", (*chain.joint_names, "all joints"))]
    columns.append(Column("unit", [*torque_units(chain), ("", "")], "text"))
    for fit, better in zip(comparison.fits, (ratio > BETTER, 1 / ratio > BETTER), strict=True):
        columns += error_columns(fit, "RMS", better.tolist())
    columns.append(Column("b / a", [*map(rounded, ratio.tolist()), ""], "edge"))
    return section(
        "Errors by joint",
        "errors",
        columns_table(columns, group_row(2, "ab", 3) + element("th", "", "edge")),
        faint(
            "Errors of predicted torques, with friction, over all logs. RRE is the norm of the error as a percentage of the "
            f"norm of the measured torque; “moving” includes only samples at which the joint is faster than {MOVING:g} rad/s "
            "or m/s. If two errors differ by more than 5 %, the smaller one is bold."
        ),
    )


def _positions(comparison: ModelComparison) -> str:
    pairs = [r.simulations for r in comparison.runs if r.simulations is not None]
    if not pairs:
        return ""
    chain, (first, second) = comparison.chains[0], zip(*pairs, strict=True)
    return section(
        "Positions re-simulated",
        "positions",
        faint(
            f"RMS of measured minus simulated positions. Each model is driven only by the measured torques, in windows of "
            f"{first[0].seconds:.2g} s that start from the measured state. Coasting is the prediction without a "
            "model: constant velocity from the start of the window."
        ),
        columns_table(
            [
                names_column("joint", chain.joint_names),
                Column("unit", position_units(chain), "text"),
                Column("a", errors_of(lambda r: r.rms, first)),
                Column("b", errors_of(lambda r: r.rms, second)),
                Column("coasting", errors_of(lambda r: r.coasting_rms, first), "edge"),
            ]
        ),
    )


def _torques(comparison: ModelComparison) -> str:
    chain, units = comparison.chains[0], torque_units(comparison.chains[0])
    points = max(150, min(1400, _POINTS // (len(comparison.runs) * chain.n)))
    views = []
    for run in comparison.runs:
        s = run.samples
        for j in range(chain.n):
            errors = " and ".join(rounded(fit.rms[j]) for fit in run.fits)
            curves = {name: p[:, j] for name, p in zip("ab", run.predictions, strict=True)}
            words, caption = ("torque", "residual", units[j]), f"RMS errors of a and b: {errors} {units[j]}"
            views.append(time_view(s.t, s.tau[:, j], curves, s.segments, words, caption, points))
    choices = (("run", [run.source for run in comparison.runs]), ("joint", chain.joint_names))
    label = "Measured torque, torques predicted by the two models, and their differences from the measurement"
    return section("Torques", "torques", plot(label, views, choices))

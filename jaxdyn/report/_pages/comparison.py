"""HTML page that compares two models on the same logs."""

import datetime
import os

import numpy as np

from ...errors import OutputError
from ...identification._regression.prediction import MOVING
from ...identification._validation.comparison import ModelComparison
from ...io._files import write_whole
from .._markup import Column, columns_table, element, escaped, faint, group_row, names_column, rounded, section
from .._pictures.plot import plot, time_view
from .._provenance import Provenance, provenance_section
from .._quality import position_units, torque_units
from .._sections.positions import errors_of
from .._sections.torques import error_columns
from .._terminal.comparison import BETTER, comparison_verdict
from .page import made_by, notes_section, page, page_head

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

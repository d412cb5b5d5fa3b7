"""Comparison of two models on the same logs: a table of errors and a verdict for the terminal, and an HTML page."""

import datetime
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import OutputError
from ..identification.prediction import Fit
from ..identification.validation import ModelComparison
from ..io.files import write_whole
from ..model.chain import coordinate_names, torque_units
from .markup import faint, rounded, section
from .page import simple_page
from .pictures import plot, time_view
from .provenance import Provenance
from .sections import ErrorRow, errors_table, positions_table

BETTER = 1.05  # errors of a joint within 5 % count as equal
_POINTS = 80_000  # maximum total number of points in all curves


def print_errors(console: Any, title: str, rows: Sequence[str], groups: Sequence[tuple[str, Fit, np.ndarray]]) -> None:
    """Print errors in percent of the filtered torque, with a row per joint and a column per group (name, fit, errors)."""
    percent = lambda x: "-" if np.isnan(x) else rounded(x)
    columns = [[title, *rows, "all"]]
    for name, fit, errors in groups:
        columns.append([name, *map(percent, errors), percent(fit.total_relative)])
    widths = [max(map(len, column)) for column in columns]
    for first, *numbers in zip(*columns, strict=True):
        cells = [
            first.ljust(max(widths[0], 16)),
            *(x.rjust(width) for x, width in zip(numbers, widths[1:], strict=True)),
        ]
        console.print("   ".join(cells), markup=False, soft_wrap=True)  # a wide table is not cut


def comparison_verdict(comparison: ModelComparison) -> str:
    """The errors of both models and the better model, in two sentences."""
    names, ratio, joints = comparison.names, comparison.ratio, coordinate_names(comparison.chains[0])
    totals = [rounded(fit.total_relative) for fit in comparison.fits]
    both = (
        f"{names[0]} predicts the torques with a total relative error of {totals[0]} %, {names[1]} with {totals[1]} %."
    )
    better = [[joint for joint, r in zip(joints, x, strict=True) if r > BETTER] for x in (ratio, 1 / ratio)]
    if not any(better):
        return f"{both} The errors of the two models differ by no more than 5 % on any joint."
    if all(better):
        return f"{both} {names[0]} is better on {', '.join(better[0])}; {names[1]} on {', '.join(better[1])}."
    name, where = next(pair for pair in zip(names, better, strict=True) if pair[1])
    place = "every joint" if len(where) == len(joints) else f"{', '.join(where)} and equal elsewhere"
    return f"{both} {name} is better on {place}."


def print_comparison(comparison: ModelComparison, console: Any = None) -> None:
    """Print the errors of two models by joint, in percent of the filtered torque, and a verdict.

    Args:
        comparison: result of `compare_models`.
        console: a rich `Console`; by default standard output.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False) if console is None else console
    groups = [(letter, fit, fit.relative) for letter, fit in zip("ab", comparison.fits, strict=True)]
    print_errors(console, "torque error [%]", coordinate_names(comparison.chains[0]), groups)
    for letter, name in zip("ab", comparison.names, strict=True):
        console.print(Text(f"{letter}: {name}"), soft_wrap=True)
    console.print(Text(comparison_verdict(comparison)))


# -- page


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
    (first, second), names = comparison.chains, comparison.names
    notes = [f"{run.source}: {note}" for run in comparison.runs for note in run.notes]
    if coordinate_names(first) != coordinate_names(second):
        notes.insert(0, f"joints are matched by their order; the joints of b are {', '.join(coordinate_names(second))}")
    pulls = [np.asarray(chain.gravity, float) for chain in comparison.chains]
    if not np.allclose(pulls[0], pulls[1]):
        words = [", ".join(f"{x:.4g}" for x in pull) for pull in pulls]
        about = "each in its base frame; for a URDF, it can be specified by --gravity"
        notes.insert(0, f"gravity is ({words[1]}) in b and ({words[0]}) in a, {about}")
    facts = [("a", names[0]), ("b", names[1])]
    for run in comparison.runs:
        s = run.samples
        low = f"low-pass {s.position_cutoff:.3g} Hz on positions, {s.torque_cutoff:.3g} Hz on torques"
        facts.append(("Log", f"{run.source} ({len(s)} samples at {s.rate:.4g} Hz; {low})"))
    text = simple_page(
        ("Two models on a log", f"{names[0]} and {names[1]}"),
        facts,
        comparison_verdict(comparison),
        _torques(comparison),
        _errors(comparison),
        _positions(comparison),
        notes=notes,
        date=date,
        provenance=provenance,
    )
    write_whole(path, text, OutputError)


def _errors(comparison: ModelComparison) -> str:
    chain, titles = comparison.chains[0], [f"{x}: {name}" for x, name in zip("ab", comparison.names, strict=True)]
    rows: list[ErrorRow] = []
    for k, run in enumerate(comparison.runs):
        of = f", on {run.source}" if len(comparison.runs) > 1 else ""
        rows += [(title + of, fit, k) for title, fit in zip(titles, run.fits, strict=True)]
    if len(comparison.runs) > 1:
        rows += [(f"{title}, on all logs", fit, None) for title, fit in zip(titles, comparison.fits, strict=True)]
    torque = np.sqrt(np.mean(np.concatenate([run.samples.tau for run in comparison.runs]) ** 2, axis=0))
    joints = [j for j in range(chain.nv) if np.isfinite(torque[j])]
    shown = errors_table(joints, coordinate_names(chain), torque_units(chain), torque, rows)
    return section("Errors", "errors", shown, faint("Errors are relative to the filtered torque, with friction."))


def _positions(comparison: ModelComparison) -> str:
    pairs = [r.simulations for r in comparison.runs if r.simulations is not None]
    if not pairs:
        return ""
    columns = {"a": [a for a, _ in pairs], "b": [b for _, b in pairs]}
    return section("Positions re-simulated", "positions", *positions_table(comparison.chains[0], columns))


def _torques(comparison: ModelComparison) -> str:
    chain, units = comparison.chains[0], torque_units(comparison.chains[0])
    points = max(150, min(1400, _POINTS // (len(comparison.runs) * chain.nv)))
    views = []
    for run in comparison.runs:
        s = run.samples
        for j in range(chain.nv):
            errors = " and ".join(rounded(fit.rms[j]) for fit in run.fits)
            curves = {name: p[:, j] for name, p in zip("ab", run.predictions, strict=True)}
            words, caption = ("torque", "residual", units[j]), f"RMS errors of a and b: {errors} {units[j]}"
            views.append(time_view(s.t, s.tau[:, j], curves, s.segments, words, caption, points))
    choices = (("run", [run.source for run in comparison.runs]), ("joint", coordinate_names(chain)))
    label = "Measured torque, torques predicted by the two models, and their differences from the measurement"
    return section("Torques", "torques", plot(label, views, choices))

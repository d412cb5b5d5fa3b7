"""Two models on the same logs: a table for the terminal and an HTML page."""

import datetime
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..._version import version_of
from ...errors import OutputError
from ...identification._regression.prediction import MOVING
from ...identification._validation.comparison import ModelComparison
from ...io._files import write_whole
from .._markup import element, escaped, items, rounded, table
from .._pictures.over_time import over_time
from .._provenance import Provenance, provenance_section
from .._quality import torque_units
from .._sections.positions import position_units
from .identification import page, page_head

BETTER = 1.05  # a joint's errors that are closer than 5 % count as equal
MOST_PICTURES = 40


def comparison_verdict(comparison: ModelComparison) -> str:
    """Which model is better and by how much, in a sentence or two."""
    names, ratio, joints = comparison.names, comparison.ratio, comparison.chains[0].joint_names
    totals = [fit.total_relative for fit in comparison.fits]
    first, second = ([j for j, r in enumerate(x) if r > BETTER] for x in (ratio, 1 / ratio))
    both = (
        f"{names[0]} predicts the torques with a total relative error of {rounded(totals[0])} %, "
        f"{names[1]} with {rounded(totals[1])} %."
    )
    if not first and not second:
        return f"{both} On no joint do they differ by more than 5 %."
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
    """Errors joint by joint, for rich to print."""
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
    """Print the table and the verdict.

    Args:
        console: of rich; standard output where None.
    """
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False) if console is None else console
    console.print(comparison_table(comparison))
    for letter, name in zip("ab", comparison.names, strict=True):
        console.print(Text(f"{letter}: {name}"), soft_wrap=True)
    console.print(Text(comparison_verdict(comparison)))


def write_comparison(
    comparison: ModelComparison,
    path: str | os.PathLike[str],
    date: datetime.datetime | None = None,
    provenance: Provenance | None = None,
) -> None:
    """Write the comparison as one HTML file without any reference outside itself: errors, torques and positions of both models.

    Args:
        date: shown in the head; now where None.
        provenance: input files and settings (`collect_provenance`).

    Raises:
        OutputError: the file cannot be written; what was there before is untouched.
    """
    write_whole(path, comparison_html(comparison, date, provenance), OutputError)


def comparison_html(
    comparison: ModelComparison, date: datetime.datetime | None = None, provenance: Provenance | None = None
) -> str:
    """The text of `write_comparison`."""
    date = date or datetime.datetime.now().astimezone()
    title = f"{comparison.names[0]} and {comparison.names[1]}"
    first, second = comparison.chains
    notes = [f"{run.source}: {note}" for run in comparison.runs for note in run.notes]
    if first.joint_names != second.joint_names:
        notes.insert(
            0, f"joints are matched by their order, and are called otherwise in b: {', '.join(second.joint_names)}"
        )
    pulls = [np.asarray(chain.gravity, float) for chain in comparison.chains]
    if not np.allclose(pulls[0], pulls[1]):
        words = [", ".join(f"{x:.4g}" for x in pull) for pull in pulls]
        notes.insert(
            0, f"gravity is ({words[1]}) in b and ({words[0]}) in a, each in its base frame; a URDF has no place for it"
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
        ("Date", date.strftime("%Y-%m-%d %H:%M %Z").strip()),
        ("Made by", f"jaxdyn {version_of()}"),
    ]
    sections = (
        page_head("Two models on a log", title, facts),
        element("p", escaped(comparison_verdict(comparison)), "verdict stamp"),
        _errors(comparison),
        _positions(comparison),
        _pictures(comparison),
        element("h2", "Notes on the data", id="notes") + (items(notes) if notes else element("p", "None.")),
        provenance_section(provenance),
    )
    return page(title, sections)


def _errors(comparison: ModelComparison) -> str:
    chain, units = comparison.chains[0], torque_units(comparison.chains[0])
    top = (
        element("th", "") * 2
        + "".join(element("th", k, "group edge", colspan="3") for k in "ab")
        + element("th", "", "edge")
    )
    head = element("th", "joint", "text") + element("th", "unit", "text")
    head += (element("th", "RMS", "edge") + element("th", "RRE [%]") + element("th", "RRE moving [%]")) * 2
    head += element("th", "b / a", "edge")
    rows = []
    for j, joint in enumerate(chain.joint_names):
        row = element("th", escaped(joint), "text") + element("td", units[j], "text")
        better = [comparison.ratio[j] > BETTER, 1 / comparison.ratio[j] > BETTER]
        for fit, wins in zip(comparison.fits, better, strict=True):
            row += element("td", rounded(fit.rms[j]), "edge yes" if wins else "edge")
            row += element("td", rounded(fit.relative[j])) + element("td", rounded(fit.relative_moving[j]))
        rows.append(row + element("td", rounded(float(comparison.ratio[j])), "edge"))
    total = element("th", "all joints", "text") + element("td", "")
    for fit in comparison.fits:
        total += element("td", "", "edge") + element("td", rounded(fit.total_relative), "yes") + element("td", "")
    return (
        element("h2", "Errors by joint", id="errors")
        + table([top, head], [*rows, total + element("td", "", "edge")])
        + element(
            "p",
            "Errors of predicted torques over all logs, friction included. RRE is the norm of the error in percent of the norm "
            f"of the measured torque; moving: over samples at which the joint is faster than {MOVING:g} rad/s or m/s. The "
            "better of two that differ by more than 5 % is bold.",
            "faint",
        )
    )


def _positions(comparison: ModelComparison) -> str:
    runs = [r for r in comparison.runs if r.simulations is not None]
    if not runs:
        return ""
    chain, units = comparison.chains[0], position_units(comparison.chains[0])
    weights = np.array([len(r.simulations[0].windows) for r in runs], float)  # type: ignore[index]

    def pooled(values: Sequence[np.ndarray]) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.sqrt(np.tensordot(weights, np.asarray(values) ** 2, 1) / weights.sum())

    columns = [pooled([r.simulations[k].rms for r in runs]) for k in (0, 1)]  # type: ignore[index]
    columns.append(pooled([r.simulations[0].coasting_rms for r in runs]))  # type: ignore[index]
    head = "".join(
        element("th", t, k)
        for t, k in (("joint", "text"), ("unit", "text"), ("a", ""), ("b", ""), ("coasting", "edge"))
    )
    rows = []
    for j, joint in enumerate(chain.joint_names):
        cells = [rounded(float(c[j])) if np.isfinite(c[j]) and c[j] < 1e6 else "unbounded" for c in columns]
        row = element("th", escaped(joint), "text") + element("td", units[j], "text")
        rows.append(row + element("td", cells[0]) + element("td", cells[1]) + element("td", cells[2], "edge"))
    seconds = runs[0].simulations[0].seconds  # type: ignore[index]
    return (
        element("h2", "Positions re-simulated", id="positions")
        + element(
            "p",
            f"RMS of measured minus simulated position, each robot driven by the measured torques alone in windows of "
            f"{seconds:.2g} s that start from the measured state. Coasting is the guess without any model, by the velocity at "
            "the window's start.",
            "faint",
        )
        + table([head], rows)
    )


def _pictures(comparison: ModelComparison) -> str:
    chain, units = comparison.chains[0], torque_units(comparison.chains[0])
    drawn = max(1, MOST_PICTURES // chain.nv)
    text = element("h2", "Torques", id="torques")
    for k, run in enumerate(comparison.runs):
        text += element("h3", escaped(run.source))
        if k >= drawn:
            text += element("p", f"Not drawn: the page holds the pictures of {drawn} runs at most.")
            continue
        s = run.samples
        for j, joint in enumerate(chain.joint_names):
            errors = " and ".join(rounded(fit.rms[j]) for fit in run.fits)
            caption = element("b", escaped(joint)) + element("span", f"errors of a and b {errors} {units[j]} RMS")
            curves = {name: p[:, j] for name, p in zip("ab", run.predictions, strict=True)}
            label = f"Measured torque, those predicted by two models, and the differences, of joint {j + 1}"
            words = ("torque", "residual", units[j])
            svg = over_time(s.t, s.tau[:, j], curves, s.segments, words, label, 1000, f"{k} {j}")
            text += element("figure", element("figcaption", caption) + svg)
    return text

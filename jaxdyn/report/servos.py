"""Servos that were identified from commands: result files, and their page."""

import datetime
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..identification.from_commands import PARAMETERS, UNITS, CommandIdentification
from ..io.logs import Log
from ..model.chain import position_units
from .files import write_table
from .markup import (
    Cell,
    Column,
    columns_table,
    element,
    escaped,
    faint,
    names_column,
    rounded,
    section,
    tile,
    unit,
    with_deviation,
)
from .page import simple_page
from .pictures import plot, time_view
from .provenance import Provenance
from .results import FILES, whole_results, write_mjcf_of, write_urdf_of

POINTS = 60_000  # maximum total number of points of all curves


def write_servos(
    found: CommandIdentification,
    logs: Sequence[Log],
    directory: str | os.PathLike[str],
    source_urdf: str | os.PathLike[str] | None = None,
    load_options: Mapping[str, Any] | None = None,
    date: datetime.datetime | None = None,
    provenance: Provenance | None = None,
    settings: str = "",
) -> dict[str, Path]:
    """Write servos and friction identified from commands to a folder, all files or none; return the paths by file name.

    The files are parameters.csv (`CommandIdentification.table`), identified.urdf with the friction, identified.xml for MuJoCo
    with friction and armature, report.html, and settings.toml, if given.

    Args:
        found: result of `identify_from_commands`.
        logs: logs whose positions the page compares with simulated ones.
        directory: the folder, which is created if necessary.
        source_urdf: as for `write_all`, and so are `load_options`, `provenance` and `settings`.
        date: date of the page; by default now.

    Raises:
        OutputError: the folder cannot be written.
    """
    with whole_results(directory, FILES, source_urdf) as draft:
        table = found.table()
        write_table(draft / "parameters.csv", [[*table], *zip(*table.values(), strict=True)])
        if settings:
            (draft / "settings.toml").write_text(settings, "utf-8")
        notes = [
            write_urdf_of(found.chain, draft / "identified.urdf", source_urdf, load_options or {})[0],
            write_mjcf_of(found.chain, draft / "identified.xml"),
        ]
        page = servos_html(found, logs, [note for note in notes if note], date, provenance)
        (draft / "report.html").write_text(page, "utf-8")
        names = [name for name in FILES if (draft / name).exists()]
    return {name: Path(os.path.abspath(directory)) / name for name in names}


def servos_html(
    found: CommandIdentification,
    logs: Sequence[Log],
    notes: Sequence[str] = (),
    date: datetime.datetime | None = None,
    provenance: Provenance | None = None,
) -> str:
    """The page of `write_servos`: errors of simulated positions, positions over time, parameters with intervals, notes."""
    chain, held = found.given, found.noise if found.held_out is None else found.held_out
    which = "fitted" if found.held_out is None else "held-out"
    share = 100 * np.sqrt((held**2).mean() / (found.tracking**2).mean())
    worst = int(np.argmax(held / found.tracking))
    units, joints = position_units(chain), chain.joint_names
    headline = (
        f"Simulated from the commands alone, {which} positions err by {rounded(share)} % of the distance between commands and "
        "measured positions in the fitted logs, RMS of all joints."
    )
    tiles = tile(f"{rounded(share)} %", f"error of {which} positions", "of the commands' distance, all joints")
    ratio = 100 * held[worst] / found.tracking[worst]
    tiles += tile(f"{rounded(ratio)} %", "worst joint", f"{joints[worst]}: {rounded(held[worst])} {units[worst]} RMS")
    errors = [
        *(names_column("joint", joints), Column("unit", units, "text")),
        Column("commands", [*map(rounded, found.tracking.tolist())]),
        Column("simulated, fitted", [*map(rounded, found.noise.tolist())]),
        *([] if found.held_out is None else [Column("simulated, held out", [*map(rounded, held.tolist())])]),
    ]
    points = max(150, min(1400, POINTS // (len(logs) * chain.n)))
    views = []
    for log in logs:
        simulated = found.predict(log)
        for j in range(chain.n):
            words, rms = ("position", "error", units[j]), float(np.sqrt(np.nanmean((log.q - simulated)[:, j] ** 2)))
            caption = f"error {rounded(rms)} {units[j]} RMS, simulated from the first state of the log"
            views.append(time_view(log.t, log.q[:, j], {"simulated": simulated[:, j]}, (), words, caption, points))
    choices = (("run", [log.source for log in logs]), ("joint", joints))
    return simple_page(
        ("Servos from commands", f"Servos of a robot with {chain.n} joint{'s' if chain.n > 1 else ''}"),
        [("Logs", ", ".join(log.source for log in logs))],
        headline,
        element("div", tiles, "tiles"),
        section(
            "Positions", "positions", plot("Measured and simulated positions, and their difference", views, choices)
        ),
        section(
            "Errors", "errors", columns_table(errors), faint("RMS of measured minus commanded or simulated positions.")
        ),
        _parameters(found),
        wrong=found.notes,
        level="fair" if found.notes else "good",
        notes=(*notes, *(note for log in logs for note in log.notes)),
        date=date,
        provenance=provenance,
    )


def _parameters(found: CommandIdentification) -> str:
    """Section with the parameters of each joint, with standard deviations; intervals on pointing."""
    low, high = np.moveaxis(found.confidence_intervals(), -1, 0)

    def cell(j: int, k: int) -> Cell:
        value, deviation = float(found.values[j, k]), float(found.standard_deviations[j, k])
        if not np.isfinite(deviation):
            return "not determined", "no", f"the logs do not determine {PARAMETERS[k]}; the simulation uses {value:.4g}"
        shown, unsure = with_deviation(value, deviation)
        return shown + element("small", f"± {unsure}"), "", f"95 % interval {low[j, k]:.4g} to {high[j, k]:.4g}"

    columns = [names_column("joint", found.given.joint_names)]
    for k in map(PARAMETERS.index, found.identified):
        heading = f"{escaped(PARAMETERS[k]).replace('_', '_<wbr>')} [{unit(UNITS[PARAMETERS[k]])}]"
        columns.append(Column(heading, [cell(j, k) for j in range(found.given.n)], "name"))
    about = "± one standard deviation; point at a number to see its 95 % interval. The given inertias set the scale."
    return section("Parameters", "parameters", faint(about), columns_table(columns))

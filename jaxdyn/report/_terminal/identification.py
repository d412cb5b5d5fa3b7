"""Summary of an identification that fits on one screen of a terminal."""

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ...identification._result import Identification
from ...identification._selection.outcome import TermChoice
from ...identification._validation.diagnostics import Finding
from ...model._chain import Chain
from .._files.results import MAY_LACK, WrittenFiles
from .._quality import FAIR, GOOD, deviations_from, pooled, pooled_raw, torque_units
from .._sections.overview import REFIT
from .._verdict import ErrorLimit, Verdict, verdict
from .comparison import print_whole

_LISTED = 3  # number of best and worst determined parameters that are named
_LONGEST = 16  # longest name that is not abbreviated


def summary(result: Identification, judged: Verdict, truth: Chain | None = None) -> Group:
    """Errors by joint, precision of the parameters, and a verdict, as a rich group whose first part is the table.

    The text has about 14 lines, plus one per joint. Errors on held-out motion come first, both relative to the torque as
    logged and relative to the filtered torque.

    Args:
        judged: the verdict, of which the headline and one line per limit and use are shown.
        truth: the robot that simulated the logs, if known.
    """
    fitted, unseen = pooled(result.fitted), pooled(result.validation)
    units = torque_units(result.chain)
    same = len(set(units)) == 1
    logged = pooled_raw(result.validation)
    title = "Torque errors by joint" + (f" [{units[0]}]" if same else "")
    title += ", relative to the torque as logged and filtered" if logged else ""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title, title_justify="left")
    table.add_column("joint", min_width=min(max(map(len, result.rows)), 24))
    kind = "filtered " if logged else ""
    found = (("held out\nlogged RMS", logged), (f"held out\n{kind}RMS", unseen), (f"fitted\n{kind}RMS", fitted))
    groups = [(name, fit) for name, fit in found if fit]
    for name, fit in groups:
        table.add_column(name, justify="right")
        for column in ("RRE\n[%]", "moving\n[%]") if fit is groups[0][1] else ("RRE\n[%]",):
            table.add_column(column, justify="right")
    for j, joint in enumerate(result.rows):
        cells = []
        for _, fit in groups:
            seen = f"{fit.rms[j]:#.3g}".rstrip(".") + ("" if same else f" {units[j]}")
            cells += ["-" if np.isnan(fit.rms[j]) else seen, _percent(fit.relative[j])]
            cells += [_percent(fit.relative_moving[j])] if fit is groups[0][1] else []
        table.add_row(Text(joint), *cells)
    totals = (["", _percent(fit.total_relative), *([""] if fit is groups[0][1] else [])] for _, fit in groups)
    table.add_row("all", *itertools.chain.from_iterable(totals))
    lines: list[RenderableType] = [table]
    if unseen and result.validation_refit:
        lines.append(Text(f"{REFIT[0].upper()}{REFIT[1:]}."))
    lines += [Text(line) for line in _determined(result)]
    if result.inconsistent_links:
        count = len(result.inconsistent_links)
        lines.append(
            Text(
                f"{count} of {result.chain.n} links are physically inconsistent (see the report), so no URDF "
                "was written: omit --no-consistent",
                style="yellow",
            )
        )
    if truth is not None:
        off = np.abs(deviations_from(result, truth))
        lines.append(
            Text(
                f"Compared with the true robot: {int((off <= 2).sum())} of {result.base.size} base parameters within 2 "
                f"standard deviations, largest deviation {off.max():.1f}"
            )
        )
    colour = {"good": "green", "fair": "yellow", "poor": "red"}
    lines += [Text(check.text, style=colour[check.level]) for check in judged.limits]
    lines += [Text(use.text, style=colour[use.level]) for use in judged.uses]
    lines.append(Text(judged.headline.replace("below", "in the report"), style=f"bold {colour[judged.level]}"))
    return Group(*lines)


def _gains(choice: TermChoice) -> str:
    """Text with the change in each joint's error on left-out blocks; empty if no terms were adopted."""
    if not choice.adopted:
        return ""
    changes = 100 * (choice.errors / np.maximum(choice.errors_before, 1e-300) - 1)
    return f"; change in the errors on left-out blocks, by joint: {', '.join(f'{x:+.0f}' for x in changes)} %"


def print_summary(
    result: Identification,
    paths: Mapping[str, Path] | None = None,
    truth: Chain | None = None,
    console: Console | None = None,
    limits: Sequence[ErrorLimit] = (),
    findings: Sequence[Finding] | None = None,
) -> None:
    """Print a summary of an identification, suspected faults, and the paths of written files.

    The summary contains errors by joint, the precision of the parameters, and the verdict.

    Args:
        result: the identification.
        paths: return value of `write_all`; the figures and the verdict then match the report.
        truth: the robot that simulated the logs, if known.
        console: a rich `Console`; by default standard output.
        limits: acceptable errors (`parse_limit`); used only if `paths` is not from `write_all`.
        findings: suspected faults, which are listed (`diagnose_identification`).

    Raises:
        IdentificationError: a limit has neither one value nor one per joint.
    """
    console = Console(highlight=False) if console is None else console
    written = isinstance(paths, WrittenFiles)
    result, judged = (paths.result, paths.judged) if written else (result, verdict(result, limits, findings=findings))
    table, *lines = summary(result, judged, truth).renderables
    print_whole(console, table)
    console.print(Group(*lines))
    if result.choice is not None:
        console.print(Text(f"Terms: {result.choice.sentence}{_gains(result.choice)}"))
    for finding in findings or ():
        console.print(Text(f"Check: {finding.text}", style="yellow"))
    for path in (paths or {}).values():
        console.print(Text(str(path)), soft_wrap=True)
    if paths and (lacking := [name for name in MAY_LACK if name not in paths]):
        console.print(
            Text(f"{' and '.join(lacking)} could not be written; the report states the reason", style="yellow")
        )


def _determined(result: Identification) -> list[str]:
    relative = np.nan_to_num(result.wls.relative_standard_deviations, nan=np.inf)
    well, fairly = int((relative <= GOOD).sum()), int(((relative > GOOD) & (relative <= FAIR)).sum())
    order = np.argsort(relative)
    halves = result.split_half
    lines = [
        f"{result.base.size} base parameters of {len(result.names)}; condition number {result.wls.condition:.3g} "
        f"({result.wls.scaled_condition:.3g} with unit-norm columns)",
        f"Standard deviation up to {GOOD:g} % of the value: {well}; up to {FAIR:g} %: {fairly} more; above: "
        f"{result.base.size - well - fairly}",
        *([f"{str(halves)[0].upper()}{str(halves)[1:]}"] if halves is not None else []),
    ]
    for word, chosen in (("Best determined:  ", order[:_LISTED]), ("Worst determined: ", order[::-1][:_LISTED])):
        lines.append(
            word + "; ".join(f"{_short(result.base.names[k])} {_percent(float(relative[k]))} %" for k in chosen)
        )
    return lines


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name.split()[0]} + ..."


def _percent(x: float) -> str:
    return "-" if math.isnan(x) else f"{x:#.3g}".rstrip(".") if x < 999.5 else f"{x:.3g}"

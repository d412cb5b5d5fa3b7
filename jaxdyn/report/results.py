"""Function `write_all`, which writes either all result files of an identification or none.

Summary of an identification that fits on one screen of a terminal."""

import contextlib
import datetime
import itertools
import math
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..errors import ModelError, OutputError
from ..identification.diagnostics import Finding
from ..identification.friction_fit import dissipative_chain
from ..identification.result import Identification
from ..identification.selection import TermChoice
from ..identification.torque_model import load_torque_model, save_torque_model
from ..io.files import check_output_folder, draft_prefix, remove_stale_drafts
from ..io.mjcf_write import write_mjcf
from ..io.urdf_write import save_urdf, update_urdf
from ..model.chain import Chain
from .comparison import print_whole
from .files import as_written, predictions_of, write_errors, write_parameters
from .fit_sections import REFIT
from .page import write_report
from .provenance import Provenance
from .quality import FAIR, GOOD, deviations_from, pooled, pooled_raw, torque_units
from .verdicts import ErrorLimit, Verdict, assess, verdict

FILES = (
    "parameters.csv",
    "errors.csv",
    "identified.urdf",
    "identified.xml",
    "model.eqx",
    "report.html",
    "settings.toml",
)
MAY_LACK = ("identified.urdf", "identified.xml", "model.eqx")  # formats that cannot represent every model


class WrittenFiles(dict[str, Path]):
    """Paths by file name, and the assessment of the model in these files.

    Attributes:
        result: the identification, with its runs predicted by the written model.eqx.
        judged: the verdict that the report shows.
    """

    def __init__(self, paths: Mapping[str, Path], result: Identification, judged: Verdict):
        super().__init__(paths)
        self.result, self.judged = result, judged


def write_all(
    result: Identification,
    directory: str | os.PathLike[str],
    source_urdf: str | os.PathLike[str] | None = None,
    load_options: Mapping[str, Any] | None = None,
    *,
    title: str | None = None,
    date: datetime.datetime | None = None,
    limits: Sequence[ErrorLimit] = (),
    provenance: Provenance | None = None,
    findings: Sequence[Finding] | None = None,
    settings: str = "",
) -> WrittenFiles:
    """Write all results to a folder, which is created if necessary; return the paths by file name, with the verdict.

    The files are:

    - model.eqx: the complete identified model, bit-exact (`save_torque_model`);
    - identified.urdf, and identified.xml for MuJoCo: the model with the nearest viscous, Coulomb and constant friction,
      without negative friction, damping or armature;
    - parameters.csv: the identified parameters (`write_parameters`);
    - errors.csv: the torque errors by run and joint (`write_errors`);
    - report.html: the report (`write_report`);
    - settings.toml: the settings with which `jaxdyn identify --settings settings.toml` repeats the identification, if given.

    The errors and the verdict are computed with the model loaded from model.eqx. The report also shows the predictions of
    the other model files.

    All files are completed in a draft folder and then moved into place, so an error or Ctrl-C leaves the folder
    unchanged. Existing files with these names are replaced.

    identified.urdf is omitted if URDF cannot represent the model (helical joints, physically inconsistent inertias),
    identified.xml if MJCF cannot, and model.eqx if there are user-defined columns. The report then states the reason, and
    a file of that name from an earlier run is renamed with the suffix .old.

    Args:
        source_urdf: file from which the chain was loaded; identified.urdf is a copy of this file with the identified
            numbers. By default, a new URDF is written.
        load_options: options of `load` with which `source_urdf` was loaded: `lock`, `tip`, `floating_base` and
            `ignore_mimic`.
        title: title of the report; by default derived from the name of the source.
        date: date of the report; by default now.
        limits: acceptable errors, for the report's verdict (`parse_limit`).
        provenance: input files and settings, for the report (`collect_provenance`).
        findings: suspected faults, for the report and its verdict; by default those of `diagnose_identification`.
        settings: contents of settings.toml.

    Raises:
        OutputError: the folder cannot be written, because it is a file, permission is denied, or the disk is full.
        IdentificationError: a limit has neither one value nor one per joint.
    """
    target, fitted = Path(os.path.abspath(directory)), result
    check_output_folder(target, FILES)
    if title is None and source_urdf is not None:
        title = f"Identification of {Path(source_urdf).stem}"
    made, draft = _missing(target), None
    try:
        target.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=draft_prefix("results"), suffix="part", dir=target))
        write_parameters(result, draft / "parameters.csv")
        if settings:
            (draft / "settings.toml").write_text(settings, "utf-8")
        notes, options, mended = _write_models(result, draft, source_urdf, load_options or {})
        if (draft / "model.eqx").exists():
            result = as_written(result, load_torque_model(draft / "model.eqx"))
        write_errors(result, draft / "errors.csv")
        assessed = assess(result, limits, predictions_of(fitted, draft, options, mended), findings)
        write_report(result, draft / "report.html", title, date, notes, limits, provenance, findings, assessed)
        names = [name for name in FILES if (draft / name).exists()]
        moves = [(draft / name, target / name) for name in names]
        for name in (*MAY_LACK, "settings.toml"):
            stale = target / name
            if name not in names and stale.exists() and not (source_urdf is not None and stale.samefile(source_urdf)):
                moves.append((stale, target / f"{name}.old"))
        _move(moves, draft)
    except BaseException as error:
        if draft is not None:
            shutil.rmtree(draft, ignore_errors=True)
        for folder in made:
            with contextlib.suppress(OSError):
                folder.rmdir()
        if isinstance(error, OSError):
            reason = error.strerror or str(error)
            remedy = "check its permissions and the free disk space"
            raise OutputError(f"cannot be written: {reason}", remedy, place=target) from None
        if isinstance(error, ModelError | OutputError):  # the draft's name is meaningless to users
            place = error.place and target / Path(error.place).name
            raise OutputError(error.fault, error.remedy, place=place, **error.arguments) from None
        raise
    shutil.rmtree(draft, ignore_errors=True)
    remove_stale_drafts(target, "results")
    return WrittenFiles({name: target / name for name in names}, result, assessed.verdict)


def _missing(folder: Path) -> list[Path]:
    """Folders that must be created, the innermost first."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    return missing


def _write_models(
    result: Identification, draft: Path, source: str | os.PathLike[str] | None, loaded: Mapping[str, Any]
) -> tuple[list[str], Mapping[str, Any], tuple[str, ...]]:
    """Write the model in every format; return notes, options for loading the URDF, and joints with changed negative terms."""
    plain, mended = dissipative_chain(result.chain, [e.samples for e in result.fitted])
    urdf, options = _write_urdf(plain, draft / "identified.urdf", source, loaded)
    notes = [urdf, _write_mjcf(plain, draft / "identified.xml")]
    if mended:
        notes.append(
            f"friction or armature of {', '.join(mended)} is negative: identified.urdf and identified.xml contain the "
            "nearest non-negative values"
        )
    try:
        save_torque_model(result.model, draft / "model.eqx")
    except ModelError as error:
        notes.append(_refused(draft / "model.eqx", error))
    return [note for note in notes if note], options, mended


def _write_urdf(
    chain: Chain, path: Path, source: str | os.PathLike[str] | None, loaded: Mapping[str, Any]
) -> tuple[str, Mapping[str, Any]]:
    """Write the model as URDF, based on its source if there is one; return notes, and options for `load`."""
    note = ""
    if source is not None:
        try:
            update_urdf(source, chain, path, **loaded)
            return "", loaded
        except ModelError as error:
            note = (
                f"identified.urdf was written anew, without the other contents of {os.fspath(source)} (meshes, branches): "
                f"{error}"
            )
    again = {"tip": chain.topology.tip_name}
    try:
        save_urdf(chain, path)
        return note, again
    except ModelError as error:
        return _refused(path, error), again


def _write_mjcf(chain: Chain, path: Path) -> str:
    """Write the model for MuJoCo; return notes."""
    try:
        left_out = write_mjcf(chain, path)
    except ModelError as error:
        return _refused(path, error)
    return f"identified.xml lacks {', '.join(left_out)}, which MJCF cannot represent" if left_out else ""


def _refused(path: Path, error: ModelError) -> str:
    if error.place:  # not a limitation of the format, but a failure to write the file
        raise error
    others = "parameters.csv" if path.name == "model.eqx" else "parameters.csv and model.eqx"
    return f"{path.name} was not written: {error}. All numbers are in {others}"


def _move(moves: list[tuple[Path, Path]], draft: Path) -> None:
    """Move files into place one by one; if one cannot be moved, move all of them back."""
    undo: list[tuple[Path, Path]] = []
    try:
        for k, (source, place) in enumerate(moves):
            if place.exists():
                backup = draft / f"before-{k}"
                os.replace(place, backup)
                undo.append((backup, place))
            os.replace(source, place)
            undo.append((place, source))
    except BaseException:
        for place, source in reversed(undo):
            os.replace(place, source)
        raise


# -- identification

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
                "was written: fit with consistent = true",
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
    relative = np.nan_to_num(result.estimate.relative_standard_deviations, nan=np.inf)
    well, fairly = int((relative <= GOOD).sum()), int(((relative > GOOD) & (relative <= FAIR)).sum())
    order = np.argsort(relative)
    halves = result.split_half
    lines = [
        f"{result.base.size} base parameters of {len(result.names)}; condition number {result.estimate.condition:.3g} "
        f"({result.estimate.scaled_condition:.3g} with unit-norm columns)",
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

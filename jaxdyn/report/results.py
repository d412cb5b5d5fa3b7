"""All result files of an identification, of which either all are written or none, and its summary for the terminal."""

import contextlib
import datetime
import os
import shutil
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from ..errors import ModelError, OutputError
from ..identification.diagnostics import Finding
from ..identification.friction_fit import dissipative_chain
from ..identification.result import Identification
from ..identification.torque_model import save_torque_model
from ..io.files import check_output_folder, draft_prefix, remove_stale_drafts
from ..io.mjcf_write import write_mjcf
from ..io.urdf_write import save_urdf, update_urdf
from ..model.chain import Chain
from .comparison import print_errors
from .files import predictions_of, write_errors, write_parameters
from .page import write_report
from .provenance import Provenance
from .quality import deviations_from, pooled
from .verdicts import ErrorLimit, Verdict, verdict

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
    """Paths by file name, and the verdict that the report shows, `judged`."""

    judged: Verdict


@contextlib.contextmanager
def whole_results(
    directory: str | os.PathLike[str], files: Sequence[str], source: str | os.PathLike[str] | None = None
) -> Iterator[Path]:
    """A folder for drafts of files, which all replace those of a directory when the block ends, or none if it fails.

    Files of these names in the directory that are not among the drafts, apart from `source`, get the suffix .old.
    """
    target = Path(os.path.abspath(directory))
    check_output_folder(target, tuple(files))
    made = [folder for folder in (target, *target.parents) if not folder.exists()]
    draft = None
    try:
        target.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=draft_prefix("results"), suffix="part", dir=target))
        yield draft
        moves = [(draft / name, target / name) for name in files if (draft / name).exists()]
        for name in files:
            stale = target / name
            written = (draft / name).exists() or not stale.exists()
            if not written and not (source is not None and stale.samefile(source)):
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

    The report and the verdict also state the errors of the models that are loaded from the three model files.

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
    if title is None and source_urdf is not None:
        title = f"Identification of {Path(source_urdf).stem}"
    with whole_results(directory, FILES, source_urdf) as draft:
        write_parameters(result, draft / "parameters.csv")
        if settings:
            (draft / "settings.toml").write_text(settings, "utf-8")
        notes, options, mended = _write_models(result, draft, source_urdf, load_options or {})
        write_errors(result, draft / "errors.csv")
        judged = verdict(result, limits, predictions_of(result, draft, options, mended), findings)
        write_report(result, draft / "report.html", title, date, notes, provenance=provenance, judged=judged)
        names = [name for name in FILES if (draft / name).exists()]
    written = WrittenFiles({name: Path(os.path.abspath(directory)) / name for name in names})
    written.judged = judged
    return written


def _write_models(
    result: Identification, draft: Path, source: str | os.PathLike[str] | None, loaded: Mapping[str, Any]
) -> tuple[list[str], Mapping[str, Any], tuple[str, ...]]:
    """Write the model in every format; return notes, options for loading the URDF, and joints with changed negative terms."""
    plain, mended = dissipative_chain(result.chain, [e.samples for e in result.fitted])
    urdf, options = write_urdf_of(plain, draft / "identified.urdf", source, loaded)
    notes = [urdf, write_mjcf_of(plain, draft / "identified.xml")]
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


def write_urdf_of(
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


def write_mjcf_of(chain: Chain, path: Path) -> str:
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


# -- terminal

LINES = 20  # largest number of lines for an arm with seven joints
_COLOURS = {"good": "green", "fair": "yellow", "poor": "red"}


def print_summary(
    result: Identification,
    paths: Mapping[str, Path] | None = None,
    truth: Chain | None = None,
    console: Console | None = None,
    limits: Sequence[ErrorLimit] = (),
    findings: Sequence[Finding] | None = None,
) -> None:
    """Print the verdict, the torque error of each joint beside that of the given model, warnings, and written files.

    Errors are percentages of the filtered torque, over the samples at which the joint moves. The summary has at most 20
    lines for an arm with seven joints; warnings that do not fit are in the report.

    Args:
        result: the identification.
        paths: return value of `write_all`; the verdict is then that of the report.
        truth: the robot that simulated the logs, if known.
        console: a rich `Console`; by default standard output.
        limits: acceptable errors (`parse_limit`); used only if `paths` is not from `write_all`.
        findings: suspected faults (`diagnose_identification`); used only if `paths` is not from `write_all`.

    Raises:
        IdentificationError: a limit has neither one value nor one per joint.
    """
    console = Console(highlight=False) if console is None else console
    judged = paths.judged if isinstance(paths, WrittenFiles) else verdict(result, limits, findings=findings)
    wrapped = lambda text: textwrap.wrap(text, max(console.width, 40), break_long_words=False, break_on_hyphens=False)
    top = wrapped(judged.headline.replace("see below", "see the report").replace("below", "in the report"))
    bottom = [line for text in _closing(result, truth) for line in wrapped(text)]
    warnings = [check.text for check in judged.limits]
    warnings += [use.text for use in judged.uses if use.level != "good"]
    warnings += [found.text for found in (*judged.findings, *judged.checks)]
    shown = [line for text in warnings for line in wrapped(text)]
    room = max(LINES - 9 - len(top) - len(bottom) - (3 if paths else 0), 1)  # the table has two lines and one per joint
    if len(shown) > room:  # the report has them whole
        shorter = lambda text: textwrap.shorten(text, max(console.width, 40), placeholder=" ...")
        shown = [*map(shorter, warnings[:room])]
        if len(warnings) > room:
            shown[-1] = f"... and {len(warnings) - room + 1} more in the report"
    for line in top:
        console.print(Text(line, style=f"bold {_COLOURS[judged.level]}"))
    fits = {"held out" if result.validation else "fitted": pooled(result.validation or result.fitted)}
    fits |= {"given model": judged.given.given} if judged.given else {}
    groups = [(name, fit, fit.relative_moving) for name, fit in fits.items()]
    print_errors(console, "error while moving [%]", result.rows, groups)
    for line in shown:
        console.print(Text(line, style="yellow"))
    for line in bottom:
        console.print(Text(line))
    if paths:
        folder = os.path.dirname(next(iter(paths.values())))
        console.print(Text(f"Written to {folder}: {', '.join(paths)}"), soft_wrap=True)
    if paths and (lacking := [name for name in MAY_LACK if name not in paths]):
        console.print(
            Text(f"{' and '.join(lacking)} could not be written; the report states the reason", style="yellow")
        )


def _closing(result: Identification, truth: Chain | None) -> list[str]:
    """Terms that were found, and the comparison with the true robot."""
    lines = [] if result.choice is None else [f"Terms: {result.choice.sentence}"]
    if truth is not None:
        off = np.abs(deviations_from(result, truth))
        lines.append(
            f"Compared with the true robot: {int((off <= 2).sum())} of {len(off)} base parameters within 2 standard "
            f"deviations, largest deviation {off.max():.1f}"
        )
    return lines

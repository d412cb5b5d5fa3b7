"""Function `write_all`, which writes either all result files of an identification or none."""

import contextlib
import datetime
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import ModelError, OutputError
from ...identification._friction.nearest import dissipative_chain
from ...identification._model.file import load_torque_model, save_torque_model
from ...identification._result import Identification
from ...identification._validation.diagnostics import Finding
from ...io._files import check_output_folder, draft_prefix, remove_stale_drafts
from ...io._mjcf.write import write_mjcf
from ...io._urdf.update import update_urdf
from ...io._urdf.write import save_urdf
from ...model._chain import Chain
from .._pages.identification import write_report
from .._provenance import Provenance
from .._verdict import ErrorLimit, Verdict, assess
from .errors import write_errors
from .parameters import write_parameters
from .predictions import as_written, predictions_of

FILES = ("parameters.csv", "errors.csv", "identified.urdf", "identified.xml", "model.eqx", "report.html")
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
) -> WrittenFiles:
    """Write all results to a folder, which is created if necessary; return the paths by file name, with the verdict.

    The files are:

    - model.eqx: the complete identified model, bit-exact (`save_torque_model`);
    - identified.urdf, and identified.xml for MuJoCo: the model with the nearest viscous, Coulomb and constant friction,
      without negative friction, damping or armature;
    - parameters.csv: the identified parameters (`write_parameters`);
    - errors.csv: the torque errors by run and joint (`write_errors`);
    - report.html: the report (`write_report`).

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
        notes, options, mended = _write_models(result, draft, source_urdf, load_options or {})
        if (draft / "model.eqx").exists():
            result = as_written(result, load_torque_model(draft / "model.eqx"))
        write_errors(result, draft / "errors.csv")
        assessed = assess(result, limits, predictions_of(fitted, draft, options, mended), findings)
        write_report(result, draft / "report.html", title, date, notes, limits, provenance, findings, assessed)
        names = [name for name in FILES if (draft / name).exists()]
        moves = [(draft / name, target / name) for name in names]
        for name in MAY_LACK:
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

"""`write_all`: the files that an identification leaves behind, all of them or none."""

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
MAY_LACK = ("identified.urdf", "identified.xml", "model.eqx")  # formats that do not hold every model


class WrittenFiles(dict[str, Path]):
    """Paths by file name, and what was judged: the model in these files.

    Attributes:
        result: the identification, its runs predicted by the written model.eqx.
        judged: what the report says of it.
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
    findings: Sequence[Finding] = (),
) -> WrittenFiles:
    """Write all results into a folder, which is created; the paths by file name, with the verdict.

    parameters.csv (`write_parameters`), errors.csv (`write_errors`), identified.urdf, identified.xml for MuJoCo, model.eqx
    (`save_torque_model`: all that was identified, to the last bit) and report.html. Errors and the verdict are those of
    model.eqx, loaded again; the report says what each of the others predicts. URDF and MJCF get the nearest viscous, Coulomb
    and constant friction, and no negative friction, damping or armature.

    All files are finished in a draft folder first and moved in place when the last one is: after an error or Ctrl-C the folder
    is what it was. Files of these names are replaced. A model that a URDF cannot hold (helical joints, inertias that no body
    can have) leaves out identified.urdf, one that MJCF cannot identified.xml, one with columns of the user's own model.eqx:
    the report says why, and one from an earlier run is moved to a name with .old behind, so that nobody takes it for this.

    Args:
        source_urdf: the file the chain was loaded from: identified.urdf is that file with the identified numbers.
            Written anew where None.
        load_options: what it was loaded with: `lock`, `tip`, `floating_base` and `ignore_mimic` of `load`.
        title: of the report; made from the name of the source where None.
        date: of the report; now where None.
        limits: what errors are good enough, for the report's verdict (`parse_limit`).
        provenance: input files and settings, for the report (`collect_provenance`).
        findings: what may be wrong, for the report (`diagnose_identification`).

    Raises:
        OutputError: the folder cannot be written: it is a file, there is no permission, the disk is full.
        IdentificationError: a limit has the wrong number of numbers.
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
        assessed = assess(result, limits, predictions_of(fitted, draft, options, mended))
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
            remedy = "check its permissions and the space on the disk"
            raise OutputError(f"cannot be written: {reason}", remedy, place=target) from None
        if isinstance(error, ModelError | OutputError):  # the draft's name is nobody's
            place = error.place and target / Path(error.place).name
            raise OutputError(error.fault, error.remedy, place=place, **error.arguments) from None
        raise
    shutil.rmtree(draft, ignore_errors=True)
    remove_stale_drafts(target, "results")
    return WrittenFiles({name: target / name for name in names}, result, assessed.verdict)


def _missing(folder: Path) -> list[Path]:
    """The folders that have to be made, the innermost first."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    return missing


def _write_models(
    result: Identification, draft: Path, source: str | os.PathLike[str] | None, loaded: Mapping[str, Any]
) -> tuple[list[str], Mapping[str, Any], tuple[str, ...]]:
    """Write the model in every format; what is to be said about it, what the URDF is loaded with, what was mended."""
    plain, mended = dissipative_chain(result.chain, [e.samples for e in result.fitted])
    urdf, options = _write_urdf(plain, draft / "identified.urdf", source, loaded)
    notes = [urdf, _write_mjcf(plain, draft / "identified.xml")]
    if mended:
        notes.append(
            f"friction or armature of {', '.join(mended)} came out negative: identified.urdf and identified.xml hold the "
            "nearest that is not"
        )
    try:
        save_torque_model(result.model, draft / "model.eqx")
    except ModelError as error:
        notes.append(_refused(draft / "model.eqx", error))
    return [note for note in notes if note], options, mended


def _write_urdf(
    chain: Chain, path: Path, source: str | os.PathLike[str] | None, loaded: Mapping[str, Any]
) -> tuple[str, Mapping[str, Any]]:
    """Write the model, into its source where there is one; what is to be said about it, and what `load` reads it with."""
    note = ""
    if source is not None:
        try:
            update_urdf(source, chain, path, **loaded)
            return "", loaded
        except ModelError as error:
            note = (
                f"identified.urdf was written anew, without what else {os.fspath(source)} holds (meshes, branches): "
                f"{error}"
            )
    again = {"tip": chain.topology.tip_name}
    try:
        save_urdf(chain, path)
        return note, again
    except ModelError as error:
        return _refused(path, error), again


def _write_mjcf(chain: Chain, path: Path) -> str:
    """Write the model for MuJoCo; what is to be said about it."""
    try:
        left_out = write_mjcf(chain, path)
    except ModelError as error:
        return _refused(path, error)
    return f"identified.xml is without {', '.join(left_out)}, which MJCF has no place for" if left_out else ""


def _refused(path: Path, error: ModelError) -> str:
    if error.place:  # nothing can be written
        raise error
    others = "parameters.csv" if path.name == "model.eqx" else "parameters.csv and model.eqx"
    return f"{path.name} was not written: {error}. All numbers are in {others}"


def _move(moves: list[tuple[Path, Path]], draft: Path) -> None:
    """Move files in place, one after the other; if one cannot be moved, all are put back."""
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

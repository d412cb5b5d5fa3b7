"""Tables of torque errors and of parameters as CSV, and predictions of the written model files.

The model files are loaded from disk as a user would load them, and their predictions are compared with the runs.
"""

import csv
import dataclasses
import io
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import JaxdynError, ModelWarning, OutputError
from ..identification.friction_terms import is_of_chain
from ..identification.prediction import Fit
from ..identification.result import Evaluation, Identification, ParameterRow, parameter_rows
from ..identification.torque_model import TorqueModel, load_torque_model
from ..io.files import write_whole
from ..io.loading import load
from ..model.chain import torque_units
from .quality import pooled

ERROR_COLUMNS = ("run", "fitted", "joint", "unit", "samples", "torque_rms", "rms", "rre_percent", "rre_moving_percent")
RAW = ("raw_rms", "raw_rre_percent", "raw_rre_moving_percent")


def write_errors(result: Identification, path: str | os.PathLike[str]) -> None:
    """Write the torque errors of the report as a CSV file with one row per run and joint.

    The columns are:

    - run, fitted (yes or no), joint, unit (of the torque), samples;
    - torque_rms: RMS of the measured torque;
    - rms: RMS of the measured minus the predicted torque;
    - rre_percent: rms as a percentage of torque_rms;
    - rre_moving_percent: rre_percent over only the samples at which the joint moves; empty if it never moves;
    - raw_rms, raw_rre_percent and raw_rre_moving_percent: rms, rre_percent and rre_moving_percent relative to the torque
      as logged, without filtering; empty if unknown.

    Raises:
        OutputError: the file cannot be written; an existing file remains unchanged.
    """
    units, rows = torque_units(result.chain), list[Sequence[Any]]([(*ERROR_COLUMNS, *RAW)])
    for run, fitted in (*((e, "no") for e in result.validation), *((e, "yes") for e in result.fitted)):
        size, fit, raw = np.sqrt((run.samples.tau**2).mean(0)), run.fit, run.raw
        for j, joint in enumerate(result.rows):
            numbers = (size[j], *(x[j] for f in (fit, raw) if f for x in (f.rms, f.relative, f.relative_moving)))
            numbers += (np.nan,) * (len(RAW) if raw is None else 0)
            cells = ("" if np.isnan(x) else repr(float(x)) for x in numbers)
            rows.append((run.title, fitted, joint, units[j], fit.samples, *cells))
    write_table(path, rows)


# -- parameters

COLUMNS = tuple(field.name for field in dataclasses.fields(ParameterRow))


def write_parameters(result: Identification, path: str | os.PathLike[str]) -> None:
    """Write the parameters as a CSV file with one row per parameter.

    The rows contain the base parameters (`kind` base), the full set (`kind` full) and, if a friction model was fitted,
    its nonlinear parameters (`kind` friction), such as widths, in rad, m, s and powers of these.

    The columns are:

    - kind, name, belongs_to (link or joint), value, unit, standard_deviation, relative_sd_percent;
    - lower and upper: limits of the 95 % confidence interval of the value;
    - prior: value in the given model;
    - identifiable: yes, only in sums, no, or known;
    - model_value: value in the identified, physically consistent model.

    The value of a base parameter is its unconstrained estimate, with a standard deviation from a block jackknife. The
    values of the full set and of the nonlinear parameters are those of the written model, with the standard deviations
    and intervals of the same, physically consistent estimate. An interval ends at the parameter's bound, for example zero;
    that of a nonlinear parameter, which is positive, is symmetric in the logarithm. A parameter of the full set has a
    standard deviation only if it is also a base parameter; otherwise its value depends on how the set was completed.
    Numbers have full precision, and missing numbers are empty cells.

    Read the table with a spreadsheet, pandas, or
    `numpy.genfromtxt(path, delimiter=",", names=True, dtype=None, encoding="utf-8")`.

    Raises:
        OutputError: the file cannot be written; an existing file remains unchanged.
    """
    rows = [dataclasses.astuple(row) for part in parameter_rows(result) for row in part]
    write_table(path, [COLUMNS, *rows])


def write_table(path: str | os.PathLike[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write rows as a CSV file, numbers with full precision and None as an empty cell.

    Raises:
        OutputError: the file cannot be written; an existing file remains unchanged.
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_whole(path, text.getvalue(), OutputError)


# -- predictions

MODEL_FILES = ("model.eqx", "identified.urdf", "identified.xml")
WORSE = 1.02  # errors within 2 % of the fitted model's errors count as equal


@dataclasses.dataclass(frozen=True)
class FilePrediction:
    """Prediction errors of a written file on the validation runs or, if it was fitted to all runs, on the fitted runs.

    Attributes:
        name: name of the file.
        fit: errors of the model loaded from the file; None if it could not be loaded.
        why: the reason why errors are missing, or larger than those of the fitted model; otherwise empty.
    """

    name: str
    fit: Fit | None
    why: str

    @property
    def whole(self) -> bool:
        """True if the file contains the whole fitted model."""
        return self.name == MODEL_FILES[0]


def predictions_of(
    result: Identification, folder: Path, load_options: Mapping[str, Any], mended: tuple[str, ...] = ()
) -> list[FilePrediction]:
    """Prediction errors of each model file in a folder.

    Args:
        load_options: options of `load` for the URDF.
        mended: joints whose negative friction or armature is omitted from URDF and MJCF.
    """
    found: list[FilePrediction] = []
    best = pooled(compared_runs(result), result.model).total_relative
    for name in MODEL_FILES:
        path = folder / name
        if not path.exists():
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ModelWarning)
                model = _loaded(path, load_options, result)
            fit = pooled(compared_runs(result), model)
        except JaxdynError as error:
            found.append(FilePrediction(name, None, _unread(error, folder)))
            continue
        why = _why(result, name, mended) if fit.total_relative > WORSE * best else ""
        found.append(FilePrediction(name, fit, why))
    return found


def _unread(error: JaxdynError, folder: Path) -> str:
    """The reason why a file was not read back, without the name of the folder, which may be temporary."""
    if isinstance(error.__cause__, ImportError):
        return f"not read back, because the optional package {error.__cause__.name} is not installed"
    short = lambda text: text.replace(f"{folder}{os.sep}", "")
    plain = JaxdynError(short(error.fault), error.remedy, place=short(error.place), **error.arguments)
    return f"the file cannot be compared: {plain}"


def _loaded(path: Path, load_options: Mapping[str, Any], result: Identification) -> TorqueModel:
    if path.suffix == ".eqx":
        return load_torque_model(path)
    # after rounding, inertias at the boundary of physical consistency may be inconsistent
    chain = load(path, allow_nonphysical=True, **(load_options if path.suffix == ".urdf" else {}))
    own = result.chain
    if chain.n != own.n:
        raise JaxdynError(f"the file has {chain.n} joints, but the identified model has {own.n}")
    # torques do not depend on names, and with equal names, all files share one compiled program
    if chain.topology.parents == own.topology.parents:
        chain = dataclasses.replace(chain, topology=own.topology, frame_poses=own.frame_poses)
    return TorqueModel(chain).filtered(result.model.cutoff)


def compared_runs(result: Identification) -> Sequence[Evaluation]:
    """The runs with which the files are compared: those of separate validation logs, or else the fitted ones.

    The written model was fitted to the held-out part of a log as well, so its errors there are not those of unseen motion.
    """
    return result.fitted if result.validation_refit or not result.validation else result.validation


def _why(result: Identification, name: str, mended: tuple[str, ...]) -> str:
    """Parts of the model that this file format cannot represent."""
    model, reasons = result.model, []
    if name == "model.eqx":
        return "its numbers are rounded"
    if model.friction is not None and not is_of_chain(model.friction.terms):
        reasons.append(
            f"the friction model ({', '.join(model.terms)}) is approximated by viscous, Coulomb and constant friction"
        )
    if model.extra:
        names = ", ".join(column for e in model.extra for column in e.names)
        reasons.append(f"the format cannot represent the columns {names}")
    if mended:
        reasons.append(f"negative friction or armature of {', '.join(mended)} is omitted")
    if name.endswith(".xml"):
        reasons.append(
            "MJCF cannot represent torque offsets, or the width of the smooth sign function in Coulomb friction"
        )
    return "; ".join(reasons) or "its numbers are rounded"

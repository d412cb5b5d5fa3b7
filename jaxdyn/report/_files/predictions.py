"""Predictions of the written model files, loaded from disk as a user would load them and compared with the runs."""

import dataclasses
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import JaxdynError, ModelWarning
from ...identification._friction.terms import is_of_chain
from ...identification._model.file import load_torque_model
from ...identification._model.torque_model import TorqueModel
from ...identification._regression.prediction import Fit, fit_quality
from ...identification._result import Evaluation, Identification
from ...io._load import load
from .._quality import together

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


def as_written(result: Identification, model: TorqueModel) -> Identification:
    """The identification, with all runs predicted by the model that was read back from a file.

    If the written model was also fitted to the held-out runs (`validation_refit`), these runs keep the predictions of the
    fit that excluded them.
    """

    def again(e: Evaluation) -> Evaluation:
        prediction = e.predicted_by(model)
        logged = e.logged
        if logged is not None:  # if jaxdyn did not filter the logged torque, the same prediction applies to it
            sharp = prediction if logged[1] is e.prediction else e.predicted_by(model, filtered=False)
            logged = (logged[0], sharp)
        fit = fit_quality(e.samples.tau, prediction, e.samples.qd)
        return dataclasses.replace(e, prediction=prediction, fit=fit, logged=logged)

    validation = result.validation if result.validation_refit else tuple(map(again, result.validation))
    return dataclasses.replace(result, fitted=tuple(map(again, result.fitted)), validation=validation)


def predictions_of(
    result: Identification, folder: Path, load_options: Mapping[str, Any], mended: tuple[str, ...] = ()
) -> list[FilePrediction]:
    """Prediction errors of each model file in a folder.

    Args:
        load_options: options of `load` for the URDF.
        mended: joints whose negative friction or armature is omitted from URDF and MJCF.
    """
    found: list[FilePrediction] = []
    best = _errors(result, result.model).total_relative
    for name in MODEL_FILES:
        path = folder / name
        if not path.exists():
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ModelWarning)
                model = _loaded(path, load_options, result)
            fit = _errors(result, model)
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


def _errors(result: Identification, model: TorqueModel) -> Fit:
    evaluations = compared_runs(result)
    data = together(evaluations)
    return fit_quality(data.tau, np.concatenate([e.predicted_by(model) for e in evaluations]), data.qd)


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

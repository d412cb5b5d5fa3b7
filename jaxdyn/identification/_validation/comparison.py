"""Comparison of two models of a robot on the same logs, joint by joint."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ..._summary import data_frame
from ...errors import IdentificationError
from ...io._logs.log import Log, check_log
from ...model._chain import Chain
from .._model.torque_model import TorqueModel
from .._preprocessing.samples import Filters, Samples
from .._regression.prediction import Fit, fit_quality
from .._stretches import prepared
from .resimulation import Resimulation, resimulate


@dataclasses.dataclass(frozen=True, eq=False)
class ComparedRun:
    """A log, and the torques that both models predict for its motion.

    Attributes:
        source: origin of the log.
        samples: the filtered samples.
        predictions: torques that each model predicts, (N, n) [N m or N].
        fits: errors of each model's torques.
        simulations: positions simulated with each model (`resimulate`); None if the run is shorter than a simulation
            window.
        notes: remarks from reading and preprocessing.
    """

    source: str
    samples: Samples
    predictions: tuple[Float[np.ndarray, "N n"], Float[np.ndarray, "N n"]]
    fits: tuple[Fit, Fit]
    simulations: tuple[Resimulation, Resimulation] | None
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class ModelComparison:
    """Comparison of two models on the same logs.

    Attributes:
        names: names of the two models.
        models: the two models.
        runs: comparison on each log separately.
        fits: errors of each model over all logs together.
    """

    names: tuple[str, str]
    models: tuple[TorqueModel, TorqueModel]
    runs: tuple[ComparedRun, ...]
    fits: tuple[Fit, Fit]

    @property
    def chains(self) -> tuple[Chain, Chain]:
        """The models' chains."""
        return self.models[0].chain, self.models[1].chain

    @property
    def ratio(self) -> Float[np.ndarray, " n"]:
        """RMS error of the second model divided by that of the first, for each joint; above 1, the first model is better."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.fits[1].rms / self.fits[0].rms

    def to_pandas(self) -> Any:
        """Errors over all logs, as a `pandas.DataFrame` with one row per joint and columns (model, figure).

        The figures are `rms`, `relative` and `relative_moving`, as in `Fit`.

        Raises:
            ImportError: pandas is not installed.
        """
        figures = ("rms", "relative", "relative_moving")
        pairs = zip(self.names, self.fits, strict=True)
        columns = {(name, figure): getattr(fit, figure) for name, fit in pairs for figure in figures}
        return data_frame(columns, self.chains[0].joint_names, "joint")


def compare_models(
    a: Chain | TorqueModel,
    b: Chain | TorqueModel,
    logs: Log | Sequence[Log],
    names: tuple[str, str] = ("a", "b"),
    filters: Filters | None = None,
) -> ModelComparison:
    """Compare the torques that two complete models predict for logged motion with the measured torques.

    No parameter is fitted. A chain predicts inverse_dynamics(q, qd, qdd) + resistive_force(q, qd), and a `TorqueModel`
    predicts the torques of `TorqueModel.predict`. The motion is also simulated with both models (`resimulate`). Joints
    are matched by their order.

    Both models are evaluated on the same filtered samples (`preprocess`), so the errors equal those that `identify`
    reports for the same run and filters. The friction of uncoupled joints is low-pass filtered like the measured
    torques, as `identify` does unless the plain model is fitted. If `filters` does not specify delays, the logged
    torques are corrected for the delays of the first model that has any.

    Args:
        a: the first model.
        b: the second model, of the same robot.
        logs: the runs. Filter settings that are not specified are chosen from the first run.
        names: names of the two models, for display.
        filters: as for `preprocess`.

    Raises:
        IdentificationError: no log is given, the models and logs have different numbers of joints, or a model has
            spherical joints or a floating base.
        LogError: a log looks as if it were in degrees (`check_log`), or is too short to be filtered.
    """
    logs = [logs] if isinstance(logs, Log) else list(logs)
    if not logs:
        raise IdentificationError("no log was given to compare the models on; pass at least one")
    first, second = (m if isinstance(m, TorqueModel) else TorqueModel(m) for m in (a, b))
    models, filters = (first, second), filters or Filters()
    for name, model in zip(names, models, strict=True):
        _check(name, model.chain, logs)
    logs = [check_log(log, first.chain, allow_still=True) for log in logs]
    if filters.delay is None:
        filters = filters.but(delay=next((np.asarray(m.delay, float) for m in models if m.delay is not None), None))
    runs, ready = [], prepared(logs, filters, True)
    judged = [m.filtered(ready[0].samples.torque_cutoff) for m in models]
    for log, run in zip(logs, ready, strict=True):
        s = run.decimated
        one, other = (m.predict(run.samples, run.kept, filtered=True) for m in judged)
        fits = fit_quality(s.tau, one, s.qd), fit_quality(s.tau, other, s.qd)
        try:
            moved, other_moved = (resimulate(m, s, memory=m.memory(run.samples)[run.kept]) for m in models)
            simulations = moved, other_moved
        except IdentificationError:  # shorter than a window
            simulations = None
        notes = tuple(dict.fromkeys((*log.notes, *s.notes)))
        runs.append(ComparedRun(log.source, s, (one, other), fits, simulations, notes))
    tau, qd = (np.concatenate([getattr(r.samples, name) for r in runs]) for name in ("tau", "qd"))
    pooled = [fit_quality(tau, np.concatenate([r.predictions[k] for r in runs]), qd) for k in (0, 1)]
    return ModelComparison(names, models, tuple(runs), (pooled[0], pooled[1]))


def _check(name: str, chain: Chain, logs: Sequence[Log]) -> None:
    """Raise an error if a model cannot be evaluated on the logs."""
    if chain.topology.quaternion_joints:
        raise IdentificationError(
            f"{name}: the model has spherical joints or a floating base, whose motion a joint log does not contain"
        )
    for log in logs:
        if log.n != chain.nv:
            raise IdentificationError(
                f"{log.source}: the log has {log.n} joints, but {name} has {chain.nv}: {', '.join(chain.joint_names)}; "
                "lock joints that were not logged (lock=)"
            )

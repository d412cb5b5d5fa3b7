"""Two models of a robot on the same logs: which predicts its torques better, joint by joint."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ..._summary import data_frame
from ...errors import IdentificationError
from ...io._logs.log import Log
from ...model._chain import Chain
from .._preprocessing.samples import Filters, Samples, preprocess_alike
from .._regression.prediction import Fit, fit_quality
from .resimulation import Resimulation, model_torque, resimulate


@dataclasses.dataclass(frozen=True, eq=False)
class ComparedRun:
    """One log with the torques that both models predict.

    Attributes:
        source: where the log comes from.
        samples: the filtered samples.
        predictions: torques of both models, (N, n) each [N m].
        fits: their errors.
        simulations: positions simulated by both (`resimulate`); None where the run is shorter than a window.
        notes: what reading and preprocessing noticed.
    """

    source: str
    samples: Samples
    predictions: tuple[Float[np.ndarray, "N n"], Float[np.ndarray, "N n"]]
    fits: tuple[Fit, Fit]
    simulations: tuple[Resimulation, Resimulation] | None
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class ModelComparison:
    """Two models on the same logs.

    Attributes:
        names: of both models.
        chains: the models.
        runs: each log by itself.
        fits: errors of both over all logs together.
    """

    names: tuple[str, str]
    chains: tuple[Chain, Chain]
    runs: tuple[ComparedRun, ...]
    fits: tuple[Fit, Fit]

    @property
    def ratio(self) -> Float[np.ndarray, " n"]:
        """RMS error of the second model over that of the first, joint by joint: above 1, the first is better."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.fits[1].rms / self.fits[0].rms

    def to_pandas(self) -> Any:
        """Errors over all logs as a `pandas.DataFrame` with a row a joint and columns (model, figure) as in `Fit`.

        Raises:
            ImportError: pandas is not installed.
        """
        figures = ("rms", "relative", "relative_moving")
        pairs = zip(self.names, self.fits, strict=True)
        columns = {(name, figure): getattr(fit, figure) for name, fit in pairs for figure in figures}
        return data_frame(columns, self.chains[0].joint_names, "joint")


def compare_models(
    a: Chain,
    b: Chain,
    logs: Log | Sequence[Log],
    names: tuple[str, str] = ("a", "b"),
    filters: Filters | None = None,
) -> ModelComparison:
    """Predict the torques of logged motion by two models, friction and springs included, and compare them with the measured.

    tau = inverse_dynamics(q, qd, qdd) + resistive_force(q, qd) on the same filtered samples (`preprocess`), so that errors are
    those that `identify` would report. Joints are matched by their order. Nothing is fitted.

    Args:
        logs: the runs; what is chosen for the first one's filters holds for all.
        names: to be shown.
        filters: as for `preprocess`.

    Raises:
        IdentificationError: no log, models or logs of different numbers of joints, or joints whose position is a quaternion.
        LogError: a log is too short to be filtered.
    """
    logs = [logs] if isinstance(logs, Log) else list(logs)
    if not logs:
        raise IdentificationError("there is no log to compare the models on")
    for name, chain in zip(names, (a, b), strict=True):
        if chain.topology.quaternion_joints:
            raise IdentificationError(
                f"{name}: has spherical joints or a free base, which a log of joint positions does not hold"
            )
        for log in logs:
            if log.n != chain.nv:
                raise IdentificationError(
                    f"{log.source}: the log has {log.n} joints, but {name} has {chain.nv}: {', '.join(chain.joint_names)}; "
                    "hold joints that were not logged (lock=)"
                )
    runs = []
    for log, s in zip(logs, preprocess_alike(logs, filters), strict=True):
        predictions = model_torque(a, s), model_torque(b, s)
        fits = fit_quality(s.tau, predictions[0], s.qd), fit_quality(s.tau, predictions[1], s.qd)
        try:
            simulations = resimulate(a, s), resimulate(b, s)
        except IdentificationError:  # shorter than a window
            simulations = None
        runs.append(
            ComparedRun(log.source, s, predictions, fits, simulations, tuple(dict.fromkeys((*log.notes, *s.notes))))
        )
    tau, qd = (np.concatenate([getattr(r.samples, name) for r in runs]) for name in ("tau", "qd"))
    first, second = (fit_quality(tau, np.concatenate([r.predictions[k] for r in runs]), qd) for k in (0, 1))
    return ModelComparison(names, (a, b), tuple(runs), (first, second))

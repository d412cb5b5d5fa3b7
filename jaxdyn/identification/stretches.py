"""Stretches of runs that `identify` fits or predicts, with their samples, known torques and row weights."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int

from ..errors import IdentificationError, LogError
from ..io.logs import Log, check_log
from ..model.chain import Chain, coordinate_names
from .base import BaseParameters, given_samples_torque
from .columns import Columns
from .defaults import LEAST_SAMPLES
from .friction_fit import FrictionFit, fit_friction
from .friction_model import along_joints
from .preprocessing import (
    Filters,
    Motion,
    Samples,
    default_stride,
    divide,
    picked,
    preprocess,
    preprocess_alike,
    repeated_motion,
    split,
)


@dataclasses.dataclass(frozen=True, eq=False)
class Stretch:
    """Consecutive samples of one run, with their known torques and weights.

    Attributes:
        samples: the samples.
        given: known torques of the drive terms that are in the chain but not identified [N m or N].
        weights: one weight per sample and joint: 0 if the row is excluded, otherwise 1.
        signals: columns of the friction model; None if there is none.
        logged: raw torques, without filtering; None if unknown.
        run: the run at the log's rate, which a friction model needs; otherwise None.
        rows: indices of the samples in `run`; None if there is no friction model.
        measured: mask of the rows of the equations of motion with a measured torque; None if all have one.
        forces: the unmeasured forces (`mechanisms.UnknownForces`); None if all forces were measured.
        instruments: commanded motion (q, qd, qdd), filtered like the samples; None if it is not needed.
    """

    samples: Samples
    given: Float[np.ndarray, "N n"]
    weights: Float[np.ndarray, "N n"]
    signals: Float[np.ndarray, "N n k"] | None = None
    logged: Float[np.ndarray, "N n"] | None = None
    run: Samples | None = None
    rows: Int[np.ndarray, " N"] | None = None
    measured: Bool[np.ndarray, " n"] | None = None
    forces: Any = None
    instruments: tuple[np.ndarray, ...] | None = None

    @property
    def seen(self) -> Samples:
        """The samples; torques that were not measured are NaN."""
        if self.measured is None:
            return self.samples
        return dataclasses.replace(self.samples, tau=np.where(self.measured, self.samples.tau, np.nan))

    def with_forces(self, torque: Float[np.ndarray, "N n"]) -> Float[np.ndarray, "N n"]:
        """Predicted torques, including the best-fitting unmeasured forces if there are any [N m or N]."""
        return torque if self.forces is None else self.forces.added(self.samples, torque)

    @property
    def through(self) -> Callable[[Samples], np.ndarray] | None:
        """Function that combines the rows of samples to those free of unmeasured forces; None if all were measured."""
        return None if self.forces is None else self.forces.rows

    @property
    def tau(self) -> Float[np.ndarray, "N n"]:
        """Measured torques minus known torques, to which the columns are fitted."""
        return self.samples.tau - self.given

    def cut(self, holdout: float) -> tuple["Stretch", "Stretch"]:
        """Split the stretch into a part to fit and a held-out part, which is the last fraction `holdout` of the samples.

        Raises:
            LogError: one of the parts would be too short.
        """
        try:
            first, last = split(self.samples, 1 - holdout)
        except LogError as error:
            raise LogError(f"{error}; log a longer run, or pass a separate validation run") from None
        start, end = len(first), len(self.samples) - len(last)
        return self._with(first, slice(start)), self._with(last, slice(end, None))

    def cut_at(self, held: Bool[np.ndarray, " N"]) -> tuple["Stretch | None", "Stretch | None"]:
        """Split the stretch into a part to fit and a held-out part, given by a mask; None for a part without samples."""
        parts = (self._with(picked(self.samples, rows), rows) for rows in divide(self.samples, held))
        first, last = (part if len(part.samples) >= LEAST_SAMPLES else None for part in parts)
        return first, last

    def _with(self, samples: Samples, part: slice | Int[np.ndarray, " M"]) -> "Stretch":
        """The stretch of the given samples, which are a part of the samples of this one."""
        of = lambda x: None if x is None else x[part]
        rest = self.given[part], self.weights[part], of(self.signals), of(self.logged), self.run, of(self.rows)
        instruments = self.instruments and tuple(x[part] for x in self.instruments)
        return Stretch(samples, *rest, self.measured, self.forces, instruments)


@dataclasses.dataclass(frozen=True, eq=False)
class FullRun:
    """A run at the log's rate, for friction with memory, and its decimated samples.

    Attributes:
        samples: all samples.
        decimated: the decimated samples.
        kept: indices of the decimated samples.
        stride: decimation factor: every stride-th sample is kept.
        logged: raw torques of the decimated samples; None if unknown.
        instruments: commanded motion (q, qd, qdd) at the decimated samples; None if it is not needed.
    """

    samples: Samples
    decimated: Samples
    kept: Int[np.ndarray, " M"]
    stride: int
    logged: Float[np.ndarray, "M n"] | None = None
    instruments: tuple[np.ndarray, ...] | None = None


def full_run(samples: Samples, stride: int) -> FullRun:
    """Combine all samples of a run with a decimated copy, which keeps every stride-th sample of each continuous piece."""
    kept = [np.arange(a, b, stride) for a, b in samples.segments]
    ends = np.cumsum([0, *map(len, kept)]).tolist()
    rows = np.concatenate(kept)
    return FullRun(samples, samples.rows(rows, itertools.pairwise(ends), rate=samples.rate / stride), rows, stride)


Run = TypeVar("Run", bound=Log | Samples)


def check_run(run: Run, chain: Chain, robot: str = "") -> Run:
    """Return a run, with the notes of `check_log` if it is a log. A joint may rest in one run and move in another.

    Raises:
        IdentificationError: the number of joints differs from that of the chain, or a log contains NaN or infinity.
        LogError: see `check_log`.
    """
    if run.n != chain.nv:
        raise IdentificationError(
            f"{robot and f'{robot}, '}{run.source}: the log has {run.n} joints, but the model has {chain.nv}: "
            + ", ".join(coordinate_names(chain)),
            "If the others are locked in the model, leave out their columns: read_log with {joints} and {numbered}",
            joints="chain.joint_names",
            numbered="the names of all joints in the log",
        )
    if not isinstance(run, Log):
        return run
    lost = [name for name, tau in zip(coordinate_names(chain), run.tau.T, strict=True) if np.isnan(tau).all()]
    if 0 < len(lost) < run.n:
        raise IdentificationError(
            f"{run.source}: the torque of {', '.join(lost)} is NaN in all samples; only `identify` accepts such a run, "
            "as a MechanismLog, in which NaN marks torques that were not measured"
        )
    if (bad := ~np.isfinite(np.concatenate([run.q, run.tau], axis=1)).all(axis=1)).any():
        raise IdentificationError(
            f"{run.source}: sample {int(np.argmax(bad))} (counted from 0) contains NaN or infinity; remove such samples"
        )
    return check_log(run, chain, allow_still=True)


def same_data(a: Log | Samples, b: Log | Samples) -> bool:
    """True if two runs contain the same positions and torques, whatever their names and start times."""
    return np.array_equal(a.q, b.q) and np.array_equal(a.tau, b.tau, equal_nan=True)


def prepared(
    runs: Iterable[Log | Samples], filters: Filters, full_rate: bool, report: Callable[[int], None] = lambda done: None
) -> list[FullRun]:
    """Preprocess all runs with the same filters, and decimate them; with `full_rate`, also keep all samples.

    Args:
        report: callback that receives the number of runs done.
    """
    found, runs = [], list(runs)
    for one in preprocess_alike(runs, filters.but(stride=1) if full_rate else filters):
        default = default_stride(one.rate, max(one.position_cutoff, one.torque_cutoff))
        found.append(full_run(one, (filters.stride or default) if full_rate else 1))
        report(len(found))
    stride = found[0].stride
    alike = [run if run.stride == stride else full_run(run.samples, stride) for run in found]
    return [
        dataclasses.replace(
            run, logged=logged_torque(log, run.decimated, filters.delay) if isinstance(log, Log) else None
        )
        for log, run in zip(runs, alike, strict=True)
    ]


def motion_of(runs: Iterable[Log | Samples], filters: Filters) -> Motion | None:
    """The distinct motion of runs, whichever terms are fitted to them; None if no motion is repeated.

    It is found behind the filters that the user asks for, without delays. Were it found behind the selected filters, the
    selection and the fit could hold out different stretches, and so could the fits of two models.
    """
    return repeated_motion([run.decimated for run in prepared(runs, filters.but(delay=None), False)])


def logged_torque(log: Log, samples: Samples, delay: Any = None) -> Float[np.ndarray, "N n"]:
    """Raw torques of a log, interpolated linearly at the sample times plus `delay`.

    Args:
        delay: delay of the torques relative to the positions, one value or one per joint [s]; None means no delay.
    """
    late = np.broadcast_to(0.0 if delay is None else np.asarray(delay, float), log.n)
    return np.stack([np.interp(samples.t + d, log.t, tau) for d, tau in zip(late, log.tau.T, strict=True)], axis=1)


def with_commands(run: FullRun, log: Log) -> FullRun:
    """A run with the commanded motion, filtered like the measured one, as instruments.

    Raises:
        IdentificationError: the log has no commanded positions.
    """
    if log.command is None:
        raise IdentificationError(
            f"{log.source}: the estimator 'instrumental' needs commanded positions, which the log does not contain; log "
            "them, or reduce the noise of the motion by lower cutoffs"
        )
    s = run.decimated
    alike = Filters(position_cutoff=s.position_cutoff, torque_cutoff=s.torque_cutoff, stride=1)
    moved = preprocess(dataclasses.replace(log, q=log.command, qd=None), alike)
    states = (np.stack([np.interp(s.t, moved.t, x) for x in y.T], axis=1) for y in (moved.q, moved.qd, moved.qdd))
    return dataclasses.replace(run, instruments=tuple(states))


def stretch(chain: Chain, columns: Columns, run: FullRun, friction: FrictionFit | None, dead_zone: float) -> Stretch:
    """Convert a run to a stretch, with the columns of the fitted friction model, if any.

    A joint's row is excluded if the joint moves more slowly than `dead_zone` [rad/s or m/s], or if its friction memory
    is not yet known.
    """
    s = run.decimated
    weights = (np.abs(s.qd) >= dead_zone).astype(float)
    given = given_samples_torque(chain, columns, s)
    if friction is None:
        return Stretch(s, given, weights, None, run.logged, instruments=run.instruments)
    weights = weights * friction.model.known(along_joints(chain, run.samples))[run.kept]
    signals = friction.signals(run.samples)[run.kept]
    return Stretch(s, given, weights, signals, run.logged, run.samples, run.kept, instruments=run.instruments)


def fit_friction_beside(
    chain: Chain,
    columns: Columns,
    base: BaseParameters,
    runs: Sequence[Samples],
    stride: int,
    free: Sequence[int] | None = None,
) -> FrictionFit:
    """Fit columns with a friction model to the torque that remains for them in runs at the log's rate.

    Args:
        free: numbers of the joints whose nonlinear parameters are fitted; by default all.
    """
    assert columns.friction is not None
    rest = [dataclasses.replace(s, tau=s.tau - given_samples_torque(chain, columns, s)) for s in runs]
    return fit_friction(chain, rest, columns.friction, stride=stride, base=base, columns=columns, free=free)

"""`identify`: from a chain and logs to identified parameters, validated on data that were not fitted."""

import dataclasses
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import IdentificationError, LogError
from ..io.check import STILL
from ..io.log import Log, named_apart
from ..model.chain import Chain
from .accumulate import Factors, accumulate, predict
from .base_parameters import BaseParameters, as_float64, base_parameters
from .columns import DRIVE_TERMS, Columns, DriveTerm, ExtraColumns
from .completion import (
    STAND_IN_MASS,
    STAND_IN_RADIUS,
    given_torque,
    impossible_links,
    nearest_parameters,
    prior_parameters,
    with_parameters,
    with_stand_ins,
)
from .estimators import Estimate, ordinary_least_squares, weighted_least_squares
from .preprocessing import Samples, preprocess, split
from .validation import Fit, fit_quality

Progress = Callable[[str, int, int], None]


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Measured and predicted torques of one stretch of samples, and how well they match.

    Attributes:
        title: what the samples are ("fitted: run.csv", "held out: last 30 % of run.csv").
        samples: the samples.
        prediction: (N, n) predicted torques [N m].
        fit: the errors.
    """

    title: str
    samples: Samples
    prediction: np.ndarray
    fit: Fit


@dataclasses.dataclass(frozen=True)
class Identification:
    """What `identify` found.

    Attributes:
        chain: the model with the identified inertias, friction and armature in its leaves.
        prior: the model that was given.
        columns: what was identified.
        base: the base parameters.
        ols: ordinary least squares.
        wls: weighted least squares, whose values the chain holds.
        parameters: (p,) the full set nearest the prior's that has these base parameters, in column order.
        fitted: an evaluation per log that was fitted.
        validation: an evaluation per stretch of data that was not.
        validation_refit: the held-out stretch was predicted by a fit without it, while `chain` was fitted to everything.
        impossible: for every link whose identified inertia no body can have, what is wrong with it.
        notes: what reading and preprocessing noticed.
    """

    chain: Chain
    prior: Chain
    columns: Columns
    base: BaseParameters
    ols: Estimate
    wls: Estimate
    parameters: np.ndarray
    fitted: tuple[Evaluation, ...]
    validation: tuple[Evaluation, ...]
    validation_refit: bool
    impossible: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the full parameters, in column order."""
        return self.columns.names(self.chain.n)


def check_identifiable(chain: Chain) -> None:
    """Refuse robots whose joints are not logged one by one.

    Raises:
        IdentificationError: joints mimic others, have rotors or springs of their own, or hold quaternions.
    """
    topology = chain.topology
    found = {
        "coupled or mimicking joints (lock them with --lock JOINT=VALUE, lock= in `load`)": chain.coupling is not None,
        "a transmission (put its inertia into the armature)": chain.transmission is not None,
        "joint springs": bool(np.any(np.asarray(chain.stiffness))),
        "spherical joints or a free base": bool(topology.quaternion_joints),
    }
    if kinds := [kind for kind, there in found.items() if there]:
        raise IdentificationError(
            f"identification takes robots whose joints move one by one; this one has {' and '.join(kinds)}"
        )


def identify(
    chain: Chain,
    logs: Log | Sequence[Log],
    validate: Log | Sequence[Log] = (),
    *,
    drive_terms: Sequence[DriveTerm] = DRIVE_TERMS,
    extra: Sequence[ExtraColumns] = (),
    holdout: float = 0.3,
    dead_zone: float = 0.0,
    position_cutoff: float | None = None,
    torque_cutoff: float | None = None,
    stride: int | None = None,
    progress: Progress | None = None,
) -> Identification:
    """Identify a robot's inertial parameters, friction and armature from logged motion.

    Logs are resampled, filtered without phase shift and differentiated (`preprocess`); the regressor is accumulated in chunks;
    the base parameters are estimated by ordinary and by weighted least squares; the full set nearest the chain's own becomes
    the identified chain; and torques of motion that was not fitted are predicted. Everything runs in float64, whatever JAX's
    configuration, and the stacked regressor is never held.

    Args:
        chain: the robot; its inertias are the prior for what the data do not determine. Links without any (a kinematics-only
            model) get a stand-in for it, which is noted.
        logs: the runs to fit.
        validate: runs to validate on; where there are none, the last part of each fitted run is held out for it, predicted by
            a fit without it, and then joins the final fit.
        drive_terms: which of armature, viscous, coulomb, offset to identify; the rest is taken as the chain has it.
        extra: columns of your own (`ExtraColumns`, `coupled_drive`).
        holdout: share of each log held out where no validation run is given.
        dead_zone: leave samples with |qd_j| below this out of joint j's equations [rad/s]: near rest, dry friction takes any
            value up to fc, which no term here describes.
        position_cutoff: low-pass on positions [Hz]; chosen from the first run, for all, where None.
        torque_cutoff: low-pass on torques [Hz]; the positions' where None.
        stride: keep every stride-th sample after filtering; chosen from the rates where None.
        progress: called with (stage, done, total).

    Raises:
        IdentificationError: the logs do not fit the chain or do not excite its parameters, or the chain has coupled joints, a
            transmission, springs, spherical joints or a free base.
    """
    check_identifiable(chain)
    logs, validate = _listed(logs), _listed(validate)
    named = named_apart([*logs, *validate])
    logs, validate = named[: len(logs)], named[len(logs) :]
    if not logs:
        raise IdentificationError("there is no log to identify from")
    for log in (*logs, *validate):
        if log.q.shape[1] != chain.n:
            raise IdentificationError(
                f"{log.source}: the log has {log.q.shape[1]} joints, but the model has {chain.n}: "
                + ", ".join(chain.joint_names)
            )
    span = np.max([np.ptp(log.q, axis=0) for log in logs], axis=0)
    if span.min() < STILL:
        raise IdentificationError(
            f"{', '.join(log.source for log in logs)}: {chain.joint_names[int(np.argmin(span))]} does not move (it spans "
            f"{span.min():.2g}), so that its friction and most of its inertia cannot be identified; add a log that moves it, "
            "or hold it fixed in the model"
        )
    columns = Columns(tuple(drive_terms), tuple(extra))
    report = progress or (lambda stage, done, total: None)

    prepared: list[Samples] = []
    for log in (*logs, *validate):
        report("preparing logs", len(prepared), len(logs) + len(validate))
        prepared.append(preprocess(log, position_cutoff=position_cutoff, torque_cutoff=torque_cutoff, stride=stride))
        # what is chosen for the first run holds for all: errors are comparable only behind the same filter
        position_cutoff, torque_cutoff = prepared[0].position_cutoff, prepared[0].torque_cutoff
    report("preparing logs", len(prepared), len(prepared))
    training, unseen = prepared[: len(logs)], prepared[len(logs) :]

    with jax.enable_x64(True):
        model = as_float64(chain)
        report("finding base parameters", 0, 1)
        base = base_parameters(chain, columns)
        report("finding base parameters", 1, 1)
        filled, bodiless = with_stand_ins(model)
        prior = prior_parameters(filled, columns)
        independence = min(_independence(s) for s in training)

        def fit(parts: list[Samples], start: Factors | None = None) -> Factors:
            total, before, factors = sum(len(s.t) for s in parts), 0, start
            for s in parts:

                def advance(done: int, before: int = before) -> None:
                    report("accumulating the regressor", before + done, total)

                weights = (np.abs(s.qd) >= dead_zone).astype(float)
                tau = s.tau - given_torque(model, columns, s.qd, s.qdd)
                factors = accumulate(columns, model, s.q, s.qd, s.qdd, tau, weights, factors, advance)
                before += len(s.t)
            assert factors is not None
            return factors

        def evaluate(title: str, s: Samples, parameters: np.ndarray) -> Evaluation:
            prediction = predict(columns, model, parameters, s.q, s.qd, s.qdd)
            prediction += given_torque(model, columns, s.qd, s.qdd)
            return Evaluation(title, s, prediction, fit_quality(s.tau, prediction, s.qd))

        held: list[Evaluation] = []
        if validate:
            factors = fit(training)
        else:
            halves = [_cut(s, holdout) for s in training]
            factors = fit([first for first, _ in halves])
            partial = nearest_parameters(base, weighted_least_squares(factors, base, independence).values, prior)
            held = [
                evaluate(f"held out: last {100 * holdout:g} % of {log.source}", last, partial)
                for log, (_, last) in zip(logs, halves, strict=True)
            ]
            factors = fit([last for _, last in halves], factors)
        ols = ordinary_least_squares(factors, base, independence)
        wls = weighted_least_squares(factors, base, independence)
        parameters = nearest_parameters(base, wls.values, prior)
        fitted = [evaluate(f"fitted: {log.source}", s, parameters) for log, s in zip(logs, training, strict=True)]
        held += [evaluate(f"validation: {log.source}", s, parameters) for log, s in zip(validate, unseen, strict=True)]
        identified = with_parameters(model, columns, parameters)
        report("predicting torques", 1, 1)
    identified = jax.tree.map(lambda new, old: jnp.asarray(np.asarray(new), old.dtype), identified, chain)
    notes = tuple(
        f"{log.source}: {note}"
        for log, s in zip((*logs, *validate), (*training, *unseen), strict=True)
        for note in dict.fromkeys((*log.notes, *s.notes))
    )
    if bodiless:
        notes = (
            f"the model has no inertials for {', '.join(bodiless)}: a sphere of {STAND_IN_MASS:g} kg and {STAND_IN_RADIUS:g} m "
            "radius stood in as the prior for what the motion does not determine",
            *notes,
        )
    return Identification(
        chain=identified,
        prior=chain,
        columns=columns,
        base=base,
        ols=ols,
        wls=wls,
        parameters=parameters,
        fitted=tuple(fitted),
        validation=tuple(held),
        validation_refit=not validate,
        impossible=impossible_links(identified),
        notes=notes,
    )


def _listed(logs: Log | Sequence[Log]) -> list[Log]:
    return [logs] if isinstance(logs, Log) else list(logs)


def _cut(samples: Samples, holdout: float) -> tuple[Samples, Samples]:
    try:
        return split(samples, 1 - holdout)
    except LogError as error:
        raise LogError(f"{error}; log a longer run, or give another one to validate on") from None


def _independence(samples: Samples) -> float:
    """Share of the samples that are independent: filtered noise repeats itself at rates above twice its bandwidth.

    0.9 of the cutoff is the bandwidth of white noise behind the forward and backward filter of fourth order.
    """
    return float(min(1.0, 2 * 0.9 * samples.torque_cutoff / samples.rate))

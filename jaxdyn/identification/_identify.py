"""`identify`: from a chain and logs to identified parameters, validated on data that were not fitted."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..errors import IdentificationError
from ..io._logs.log import Log, named_apart
from ..io._logs.units import STILL
from ..model._chain import Chain
from ._consistency.consistent import ConsistentEstimate, consistent_least_squares, consistent_problem
from ._consistency.constraints import Constraints, no_constraints, total_mass_constraint
from ._consistency.priors import Divergence, entropic_divergence
from ._delay import without_delay
from ._estimators.estimate import Estimate
from ._estimators.least_squares import ordinary_least_squares, weighted_least_squares
from ._friction.fit import FrictionFit, chain_with_friction
from ._friction.model import FrictionModel
from ._preprocessing.samples import Samples, default_stride, preprocess, split
from ._regression.accumulate import accumulate
from ._regression.base_parameters import base_parameters
from ._regression.columns import DRIVE_TERMS, Columns, DriveTerm, ExtraColumns, joint_springs
from ._regression.completion import (
    STAND_IN_MASS,
    STAND_IN_RADIUS,
    impossible_links,
    nearest_parameters,
    prior_parameters,
    with_parameters,
    with_stand_ins,
    with_thickness,
)
from ._regression.factors import QRFactors
from ._regression.prediction import fit_quality, predict
from ._regression.robot import as_float64, check_identifiable
from ._result import Evaluation, Identification
from ._settings import Settings, choose_settings, known_or_estimated_delay
from ._stretches import (
    Stretch,
    fit_friction_beside,
    friction_stretch,
    full_run,
    plain_stretch,
)

Progress = Callable[[str, int, int], None]


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
    delay: float | Sequence[float] | Float[np.ndarray, " n"] | Literal["estimated"] | None = None,
    consistent: bool = True,
    mass: float | None = None,
    constraints: Constraints | None = None,
    prior_weight: float = 1.0,
    divergence: Divergence = entropic_divergence,
    friction: FrictionModel | Literal["chosen"] | None = None,
    settings: Settings | Literal["chosen"] | None = None,
    progress: Progress | None = None,
) -> Identification:
    """Identify a robot's inertial parameters, friction and armature from logged motion.

    Logs are resampled, filtered without phase shift and differentiated (`preprocess`); the regressor is accumulated in chunks;
    the base parameters are estimated by ordinary and by weighted least squares, and then again, with the same weights, among
    links that can exist (`consistent_least_squares`), which become the identified chain; and torques of motion that was not
    fitted are predicted. Everything runs in float64, whatever JAX's configuration, and the stacked regressor is never held.

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
        delay: how much later than the positions the torques were logged [s], one number or one a joint, which is taken out of
            all logs (`without_delay`); "estimated" finds it by cross-validation within what is fitted, and where
            part of that is held out, without looking at it.
        consistent: only links of positive density, and no negative armature or friction. Otherwise the chain becomes the
            full set nearest its own that has the base parameters of weighted least squares, whether it can exist or not.
        mass: what all links that move weigh together [kg], where it is known.
        constraints: what else is known of the parameters: `known_parameters`, `mass_bounds`, `bounding_ellipsoid`, ..
        prior_weight: of the chain's own inertias against the log (`consistent_problem`).
        divergence: how the distance from them is measured.
        friction: a friction model (`FrictionModel`) in place of the drive terms viscous, coulomb and offset, fitted at the
            log's rate (`fit_friction`); "chosen" takes the best of the usual ones for each joint (`choose_friction`), which
            takes some minutes. The chain gets the viscous, Coulomb and constant friction nearest it.
        settings: the filter, and joint by joint dry friction, springs and delays; "chosen" chooses them by cross-validation
            within what is fitted (`choose_settings`), and where part of that is held out, without looking at it. Where it
            holds a friction model, that takes the place of `friction` unless one is given.
        progress: called with (stage, done, total).

    Raises:
        IdentificationError: the logs do not fit the chain or do not excite its parameters, or the chain has coupled joints, a
            transmission, springs, spherical joints or a free base; its inertias are none to start from; constraints
            cannot be met, or are given although `consistent` is False.
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
    for name, option, kind in (("friction", friction, "a FrictionModel"), ("settings", settings, "Settings")):
        if isinstance(option, str) and option != "chosen":
            raise IdentificationError(f'{name} is {kind}, "chosen" or None, not {option!r}')
    report = progress or (lambda stage, done, total: None)
    choice: dict[str, Any] = {"drive_terms": drive_terms, "extra": extra, "share": 1.0 if validate else 1 - holdout}
    choice |= {"position_cutoff": position_cutoff, "torque_cutoff": torque_cutoff, "stride": stride}
    if settings is not None:
        if delay is not None:
            raise IdentificationError("settings hold the delays: give delay or settings, not both")
        if isinstance(settings, str):
            report("choosing settings", 0, 1)
            settings = choose_settings(chain, logs, **choice)
            report("choosing settings", 1, 1)
        chain, delay = settings.chain(chain), settings.delay
        friction = settings.friction if friction is None else friction
        if settings.cutoff is not None:
            position_cutoff = torque_cutoff = settings.cutoff
        extra = (*extra, joint_springs(chain, settings.springs)) if settings.springs else extra
    own: tuple[DriveTerm, ...] = tuple(t for t in drive_terms if friction is None or t == "armature")
    columns = Columns(own, tuple(extra))
    names = columns.names(chain.n)
    known = constraints or no_constraints(len(names))
    if mass is not None:
        known = known + total_mass_constraint(names, mass)
    if known.size and not consistent:
        raise IdentificationError("a known mass and other constraints take part in a consistent estimate only")
    delays = None
    if delay is not None:
        report("delays", 0, 1)
        delays = known_or_estimated_delay(chain, logs, delay, **choice)
        logs, validate = ([without_delay(log, delays) for log in some] for some in (logs, validate))
        report("delays", 1, 1)

    prepared: list[Samples] = []
    for log in (*logs, *validate):
        report("preparing logs", len(prepared), len(logs) + len(validate))
        by = stride if friction is None else 1
        prepared.append(preprocess(log, position_cutoff=position_cutoff, torque_cutoff=torque_cutoff, stride=by))
        # what is chosen for the first run holds for all: errors are comparable only behind the same filter
        position_cutoff, torque_cutoff = prepared[0].position_cutoff, prepared[0].torque_cutoff
    report("preparing logs", len(prepared), len(prepared))
    full = []
    if friction is not None:
        thin_by = stride or default_stride(prepared[0].rate, max(position_cutoff or 0.0, torque_cutoff or 0.0))
        full = [full_run(s, thin_by) for s in prepared]
        prepared = [run.thinned for run in full]
    training = prepared[: len(logs)]

    with jax.enable_x64(True):
        model = as_float64(chain)
        report("finding base parameters", 0, 1)
        base = base_parameters(chain, columns)
        report("finding base parameters", 1, 1)
        filled, bodiless = with_stand_ins(model)
        filled, thin = with_thickness(filled) if consistent else (filled, ())
        prior = prior_parameters(filled, columns)
        independence = min(_independence(s) for s in training)

        def stretches(share: float) -> tuple[list[Stretch], FrictionFit | None]:
            """All runs, with the friction fitted to this first share of those that are fitted."""
            if friction is None:
                return [plain_stretch(model, columns, s, dead_zone) for s in prepared], None
            report("fitting friction", 0, 1)
            parts = [run.samples for run in full[: len(logs)]]
            parts = parts if share == 1.0 else [split(s, share)[0] for s in parts]
            found = fit_friction_beside(chain, columns, base, parts, friction, thin_by)
            report("fitting friction", 1, 1)
            return [friction_stretch(model, columns, run, found, dead_zone) for run in full], found

        def fit(parts: list[Stretch], start: QRFactors | None = None) -> QRFactors:
            total, before, factors = sum(len(part.samples) for part in parts), 0, start
            for part in parts:

                def advance(done: int, before: int = before) -> None:
                    report("accumulating the regressor", before + done, total)

                s = part.samples
                factors = accumulate(columns, model, s.q, s.qd, s.qdd, part.tau, part.weights, factors, advance)
                before += len(s)
            assert factors is not None
            return factors

        def solve(factors: QRFactors) -> tuple[Estimate, ConsistentEstimate | None, np.ndarray, np.ndarray]:
            wls = weighted_least_squares(factors, base, independence)
            nearest = nearest_parameters(base, wls.values, prior)
            if not consistent:
                return wls, None, nearest, nearest
            options = {"independence": independence, "weight": prior_weight, "divergence": divergence}
            problem = consistent_problem(factors, base, wls, columns, prior, constraints=known, **options)
            possible = consistent_least_squares(problem, base)
            return wls, possible, possible.parameters, nearest

        def evaluate(title: str, part: Stretch, parameters: np.ndarray, nearest: np.ndarray) -> Evaluation:
            s = part.samples
            both = [predict(columns, model, x, s.q, s.qd, s.qdd) + part.given for x in (parameters, nearest)]
            return Evaluation(title, s, both[0], *(fit_quality(s.tau, torque, s.qd) for torque in both))

        held: list[Evaluation] = []
        if not validate:
            runs, known_friction = stretches(1 - holdout)
            halves = [run.cut(holdout) for run in runs]
            factors = fit([first for first, _ in halves])
            _, _, *partial = solve(factors)
            held = [
                evaluate(f"held out: last {100 * holdout:g} % of {log.source}", last, *partial)
                for log, (_, last) in zip(logs, halves, strict=True)
            ]
        if validate or friction is not None:
            runs, known_friction = stretches(1.0)
            factors = fit(runs[: len(logs)])
        else:
            factors = fit([last for _, last in halves], factors)
        ols = ordinary_least_squares(factors, base, independence)
        wls, possible, *found = solve(factors)
        fitted = [evaluate(f"fitted: {log.source}", s, *found) for log, s in zip(logs, runs, strict=False)]
        held += [
            evaluate(f"validation: {log.source}", s, *found) for log, s in zip(validate, runs[len(logs) :], strict=True)
        ]
        if known_friction is not None:
            model = chain_with_friction(
                dataclasses.replace(known_friction, chain=model), [r.samples for r in full[: len(logs)]]
            )
        identified = with_parameters(model, columns, found[0])
        report("predicting torques", 1, 1)
    identified = jax.tree.map(lambda new, old: jnp.asarray(np.asarray(new), old.dtype), identified, chain)
    notes = tuple(
        f"{log.source}: {note}"
        for log, s in zip((*logs, *validate), prepared, strict=True)
        for note in dict.fromkeys((*log.notes, *s.notes))
    )
    if settings is not None:
        notes = (f"settings: {settings.sentence}", *notes)
    if bodiless:
        notes = (
            f"the model has no inertials for {', '.join(bodiless)}: a sphere of {STAND_IN_MASS:g} kg and {STAND_IN_RADIUS:g} m "
            "radius stood in as the prior for what the motion does not determine",
            *notes,
        )
    if thin:
        notes = (
            f"the inertia of {', '.join(thin)} is that of a body without thickness: it was given some, as a prior",
            *notes,
        )
    if possible is not None and not possible.converged:
        notes = (
            "the consistent estimate stopped before its optimum: its bodies are possible, but may fit better",
            *notes,
        )
    return Identification(
        chain=identified,
        prior=chain,
        columns=columns,
        base=base,
        ols=ols,
        wls=wls,
        consistent=possible,
        parameters=found[0],
        unconstrained=found[1],
        fitted=tuple(fitted),
        validation=tuple(held),
        validation_refit=not validate,
        friction=known_friction,
        delay=delays,
        settings=settings,
        factors=factors,
        impossible=impossible_links(identified),
        notes=notes,
    )


def _listed(logs: Log | Sequence[Log]) -> list[Log]:
    return [logs] if isinstance(logs, Log) else list(logs)


def _independence(samples: Samples) -> float:
    """Share of the samples that are independent: filtered noise repeats itself at rates above twice its bandwidth.

    0.9 of the cutoff is the bandwidth of white noise behind the forward and backward filter of fourth order.
    """
    return float(min(1.0, 2 * 0.9 * samples.torque_cutoff / samples.rate))

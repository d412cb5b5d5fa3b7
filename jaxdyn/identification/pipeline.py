"""`identify`: a chain's parameters, estimated from logs and validated on held-out data."""

import dataclasses
from collections.abc import Iterator, Sequence

import jax
import numpy as np

from ..errors import IdentificationError
from ..io.logs import Log, named_apart
from ..io.tables import STILL
from ..model.build import rounding_note
from ..model.chain import Chain, coordinate_names
from .consistency import Consistency
from .defaults import STAND_IN_MASS, STAND_IN_RADIUS
from .factors import check_identifiable, check_one_by_one
from .fit import HOLDOUT, POSSIBLE, Fitting, Progress, Solution, begin, held_out_share
from .knowledge import Knowledge
from .least_squares import Estimator
from .mechanism_fit import identify_mechanism
from .mechanisms import MechanismLog
from .preprocessing import Filters
from .result import Identification
from .selection import TermChoice, choose_terms, known_friction, setup_of
from .stretches import check_run, motion_of, prepared, same_data, with_commands
from .terms import Terms
from .validation import play

CHOSEN = Terms()


def identify(
    chain: Chain,
    logs: Log | MechanismLog | Sequence[Log] | Sequence[MechanismLog],
    validate: Log | MechanismLog | Sequence[Log] | Sequence[MechanismLog] | float = HOLDOUT,
    *,
    terms: Terms = CHOSEN,
    filters: Filters | None = None,
    consistent: Consistency | None = POSSIBLE,
    knowledge: Knowledge | None = None,
    estimator: Estimator = "weighted",
    progress: Progress | None = None,
) -> Identification:
    """Identify a robot's inertial parameters, friction and armature from logged motion.

    The steps are:

    1. Select the torque terms by cross-validation over blocks of the logs (`choose_terms`).
    2. Resample the logs, filter them without phase shift and differentiate them (`preprocess`).
    3. Accumulate the regressor in chunks; the stacked regressor is never stored.
    4. Estimate the base parameters by weighted least squares. Then repeat the fit under
       physical-consistency constraints (`consistent_least_squares`); the result is the identified chain.
    5. Predict the torques of held-out motion.

    Everything runs in float64 regardless of JAX's configuration.

    Args:
        chain: the robot; its inertias are the prior for parameters that the data do not determine. Links without
            inertia (a kinematics-only model) get a default prior, which is reported in `Identification.notes`.
        logs: the runs to fit, with the same joints as the chain, in the same order. All logs are checked (`check_log`);
            the notes list positions and speeds beyond the limits, joints that rest, and velocities of another scale. A
            `MechanismLog`, of a robot with a floating base, contacts or closed loops, is fitted by `identify_mechanism`.
        validate: validation runs, or the share of each fitted run to hold out at its end (default 0.3). The held-out
            part is predicted by a fit that excludes it. The final fit uses all data. If the runs repeat a motion, this is
            the share of the motion to hold out, from all repetitions. A validation run that repeats the fitted motion
            validates nothing (`Evaluation.repeats_fitted`).
        terms: torque terms to fit in addition to the links' inertias, and the kinds of terms to select. By default, the
            usual drive terms are fitted, and the filter, friction, springs and delays are selected by cross-validation.
            Held-out data are never used for selection, and nothing is selected for a `MechanismLog`. `Terms(choose=())`
            disables the selection and fits the plain
            model, which is linear in its parameters: the drive terms, the motors of a transmission (`motor_terms`), and
            the chain's springs. If a friction model is selected, the chain approximates it by viscous, Coulomb and
            constant friction, and `Identification.model` is the complete model.
        filters: cutoffs, stride and delay; by default they are chosen from the first run and used for all runs.
        consistent: constraints on the estimate. Links must be physically consistent, and armature and friction must be
            non-negative. By default, the sizes and densities of links are also limited to those of ordinary machines
            (`Consistency.densities`). Further prior knowledge may be added. With None, the estimate is unconstrained:
            the identified chain has the full parameters nearest to the prior among those that reproduce the base
            parameters of weighted least squares, and may be physically inconsistent.
        knowledge: which links and drives to identify, how well the chain's values for the others are known, and which
            limbs mirror each other. By default, everything is identified. If only part of the robot is identified, only
            the plain drive terms are fitted.
        estimator: estimator of the base parameters, whose weights and instruments the physically consistent estimate shares
            (`solve`): "weighted" least squares, "ordinary" least squares, "huber" for logs with collisions and other
            outliers, or "instrumental" for noisy positions, if the logs contain commanded positions.
        progress: callback that receives the name of the current stage, the number of steps done, and the total number
            of steps.

    Raises:
        IdentificationError: the logs do not match the chain or do not excite its parameters; the chain has spherical
            joints, a floating base or an invalid prior; or no parameters satisfy the constraints.
        LogError: a log looks as if it were in degrees or millimetres (`check_log`; a log read or made with
            `units_checked=True` is exempt), or is too short to be filtered, or a filter setting is invalid.
    """
    first = logs if isinstance(logs, Log | MechanismLog) else next(iter(logs), None)
    if isinstance(first, MechanismLog):
        if terms.dead_zone:
            raise IdentificationError("a dead zone needs logs of joints alone, not a MechanismLog")
        if estimator != "weighted":
            raise IdentificationError(f"the estimator {estimator!r} needs logs of joints alone, not a MechanismLog")
        columns = None if terms is CHOSEN else setup_of(chain, terms, Filters(), None).columns
        common = {"filters": filters, "consistent": consistent, "knowledge": knowledge, "progress": progress}
        return identify_mechanism(chain, logs, validate, columns=columns, **common)  # type: ignore[arg-type]
    check_identifiable(chain)
    if terms.further:
        check_one_by_one(chain, "a term with columns of single joints")
    if knowledge is not None and knowledge.is_partial:
        if terms.further:
            raise IdentificationError(
                "further terms are fitted for all joints and cannot be combined with knowledge of only some links or "
                "joints; omit one of the two"
            )
        terms = dataclasses.replace(terms, choose=())
    if known_friction(chain, terms):
        terms = dataclasses.replace(terms, choose=tuple(part for part in terms.choose if part != "friction"))
    logs, unseen, holdout = _runs(chain, logs, validate, knowledge)  # type: ignore[arg-type]
    report = progress or (lambda stage, done, total: None)
    choice = choose_terms(chain, logs, terms, filters, share=1 - (holdout or 0.0), progress=report)
    setup = setup_of(chain, terms, filters or Filters(), choice)
    every = [*logs, *unseen]
    advance = lambda done: report("preparing logs", done, len(every))
    runs = prepared(every, setup.filters, setup.columns.friction is not None, advance)
    if estimator == "instrumental":
        runs = [with_commands(run, log) for run, log in zip(runs, every, strict=True)]
    with jax.enable_x64(True):
        motion = motion_of(every, filters or Filters())
        fitting = begin(setup, consistent, runs, len(logs), report, knowledge, motion=motion, estimator=estimator)
        notes = lambda solution: _notes(fitting, solution, choice, every)
        (result,) = fitting.results(holdout, notes, choice)
    loose = play(result.chain, logs, setup.filters, result.fitted[0].samples.torque_cutoff)
    return dataclasses.replace(result, play=loose)


def _runs(
    chain: Chain, logs: Log | Sequence[Log], validate: Log | Sequence[Log] | float, knowledge: Knowledge | None
) -> tuple[list[Log], list[Log], float | None]:
    """Return the runs to fit, the validation runs, and the held-out share (if any), with a unique name for each run.

    Raises:
        IdentificationError: no log was given, a log has the wrong number of joints, or a joint does not move in any
            fitted log, or moves under a torque that is constant in all of them.
    """
    listed = lambda some: [some] if isinstance(some, Log) else list(some)
    share = held_out_share(validate)
    logs, unseen = listed(logs), [] if share is not None else listed(validate)
    if not logs:
        raise IdentificationError("no log was given; pass at least one run to fit")
    named = [check_run(log, chain) for log in named_apart([*logs, *unseen])]
    logs, unseen = named[: len(logs)], named[len(logs) :]
    span = np.max([np.ptp(log.q, axis=0) for log in logs], axis=0)
    silent = np.all([np.ptp(log.tau, axis=0) == 0 for log in logs], axis=0) & (span >= STILL)
    if silent.any():
        names = ", ".join(name for name, flag in zip(coordinate_names(chain), silent, strict=True) if flag)
        raise IdentificationError(
            f"{', '.join(log.source for log in logs)}: the torque of {names} is constant although the joint moves: was it "
            "recorded?",
            "In Python, a MechanismLog may lack torques: NaN marks those that were not measured",
        )
    if knowledge is not None and knowledge.joints is not None and chain.coupling is None:  # known drives need not move
        span = np.where(np.isin(chain.joint_names, knowledge.joints), span, np.inf)
    still = np.flatnonzero(span < STILL)
    if len(still):
        places = np.median(logs[0].q[:, still], axis=0)
        names = [coordinate_names(chain)[j] for j in still]
        at = ", ".join(f"{name} ({x:.6g})" for name, x in zip(names, places, strict=True))
        raise IdentificationError(
            f"{', '.join(log.source for log in logs)}: {', '.join(names)} does not move (it spans "
            f"{span.min():.2g}), so its friction and most of its inertia cannot be identified",
            f"add a log that moves it, or lock it in the model at its position, {at}: {{lock}}",
            lock="{'JOINT': POSITION, ..}",
        )
    return logs, unseen, None if unseen else HOLDOUT if share is None else share


def _notes(fitting: Fitting, solution: Solution, choice: TermChoice | None, logs: Sequence[Log]) -> Iterator[str]:
    """Notes for the user, most important first."""
    if solution.consistent is not None and not solution.consistent.converged:
        yield "the physically consistent fit stopped before it converged: its links are consistent, but a better fit may exist"
    yield from solution.estimate.notes
    if fitting.thickened:
        yield (
            f"the model's inertia of {', '.join(fitting.thickened)} is physically impossible or describes a body without "
            "thickness; the prior is the nearest inertia of a body with thickness"
        )
    if (motion := fitting.fitted_motion) is not None:
        seconds = sum(len(run.decimated) / run.decimated.rate for run in fitting.runs[: fitting.fitted])
        yield (
            f"the motion is repeated: {seconds:.3g} s of data show {motion.length:.3g} s of distinct motion; for intervals, "
            "the selection of terms and the hold-out, the same stretch of the motion is left out of all repetitions"
        )
    if note := rounding_note(fitting.setup.chain):
        yield note
    if fitting.without_inertia:
        yield (
            f"the model has no inertials for {', '.join(fitting.without_inertia)}: a sphere of {STAND_IN_MASS:g} kg and "
            f"{STAND_IN_RADIUS:g} m radius is the prior for parameters that the motion does not determine"
        )
    for k, log in enumerate(logs):
        if same := [other.source for other in logs[:k] if same_data(log, other)]:
            yield f"{log.source} and {same[0]} contain the same data: passing a run twice adds no information"
    if choice is not None:
        yield f"terms: {choice.sentence}"
    elif fitting.setup.terms.choose:
        mimics = fitting.setup.chain.coupling is not None
        reason = "some joints mimic others" if mimics else "the runs are too short for cross-validation"
        yield f"no terms were selected: {reason}"
    for log, run in zip(logs, fitting.runs, strict=True):
        yield from (f"{log.source}: {note}" for note in dict.fromkeys(run.decimated.notes))

"""`identify`: from a chain and logs to identified parameters, validated on data that were not fitted."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..errors import IdentificationError
from ..io._logs.log import Log, named_apart
from ..io._logs.units import STILL
from ..model._chain import Chain
from ._consistency.constraints import DENSITIES, Consistency
from ._consistency.densities import unusual_links
from ._estimators.least_squares import ordinary_least_squares
from ._estimators.split_half import split_half
from ._fit import Fitting, Progress, Solution, begin
from ._friction.model import FrictionModel
from ._friction.nearest import chain_with_friction
from ._preprocessing.samples import Filters
from ._regression.columns import Columns, joint_springs
from ._regression.completion import STAND_IN_MASS, STAND_IN_RADIUS, impossible_links, with_parameters
from ._regression.robot import check_identifiable
from ._result import Evaluation, Identification
from ._settings import Settings, choose_settings, known_or_estimated_delay
from ._stretches import FullRun, prepared

HOLDOUT = 0.3  # share of each fitted run where there is nothing else to validate on
POSSIBLE = Consistency()


def identify(
    chain: Chain,
    logs: Log | Sequence[Log],
    validate: Log | Sequence[Log] | float = HOLDOUT,
    *,
    columns: Columns | None = None,
    filters: Filters | None = None,
    consistent: Consistency | None = POSSIBLE,
    friction: FrictionModel | Literal["chosen"] | None = None,
    settings: Settings | Literal["chosen"] | None = None,
    dead_zone: float = 0.0,
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
        validate: runs to validate on; or which last share of each fitted run is held out for it (30 % where there are no
            such runs), predicted by a fit without it, and then joins the final fit.
        columns: what is identified besides the links' inertias: which of armature, viscous, coulomb, offset (all of them where
            None; the rest is taken as the chain has it), and columns of your own (`ExtraColumns`, `coupled_drive`).
        filters: cutoffs, stride and delay, chosen from the first run, for all, where None. A delay that is "estimated" is found
            by cross-validation within what is fitted, and where part of that is held out, without looking at it.
        consistent: only links of positive density, as large and as dense as those of ordinary machines
            (`Consistency.densities`), and no negative armature or friction, and what else is known of them.
            Where None, the chain becomes the full set nearest its own that has the base parameters of weighted least squares,
            whether it can exist or not.
        friction: a friction model (`FrictionModel`) in place of the drive terms viscous, coulomb and offset, fitted at the
            log's rate (`fit_friction`); "chosen" takes the best of the usual ones for each joint (`choose_friction`), which
            takes some minutes. The chain gets the viscous, Coulomb and constant friction nearest it.
        settings: the filter, and joint by joint dry friction, springs and delays; "chosen" chooses them by cross-validation
            within what is fitted (`choose_settings`), and where part of that is held out, without looking at it. Where it
            holds a friction model, that takes the place of `friction` unless one is given.
        dead_zone: leave samples with |qd_j| below this out of joint j's equations [rad/s]: near rest, dry friction takes any
            value up to fc, which no term here describes.
        progress: called with (stage, done, total).

    Raises:
        IdentificationError: the logs do not fit the chain or do not excite its parameters, or the chain has coupled joints, a
            transmission, springs, spherical joints or a free base; its inertias are none to start from; constraints
            cannot be met.
    """
    check_identifiable(chain)
    logs, unseen, holdout = _runs(chain, logs, validate)
    for name, option, kind in (("friction", friction, "a FrictionModel"), ("settings", settings, "Settings")):
        if isinstance(option, str) and option != "chosen":
            raise IdentificationError(f'{name} is {kind}, "chosen" or None, not {option!r}')
    report = progress or (lambda stage, done, total: None)
    choice = _Choice(chain, columns or Columns(), filters or Filters(), friction)
    share = 1.0 if holdout is None else 1 - holdout
    choice = choice.with_settings(settings, logs, share, report).with_delay(logs, share, report)
    if consistent is not None:
        consistent = consistent.of(choice.fitted.names(chain.n))
    runs = _prepared([*logs, *unseen], choice, report)
    with jax.enable_x64(True):
        fitting = begin(choice.chain, choice.fitted, consistent, choice.friction, dead_zone, runs, len(logs), report)
        held: list[Evaluation] = []
        if holdout is not None:
            all_stretches, found = fitting.stretches(share)
            halves = [run.cut(holdout) for run in all_stretches]
            blocks = fitting.accumulated([first for first, _ in halves], share)
            partial = fitting.solved(blocks, found)
            titles = [f"held out: last {100 * holdout:g} % of {log.source}" for log in logs]
            held = [
                fitting.evaluated(title, last, partial, found) for title, (_, last) in zip(titles, halves, strict=True)
            ]
        if holdout is None or choice.friction is not None:
            all_stretches, found = fitting.stretches(1.0)
            blocks = fitting.accumulated(all_stretches[: len(logs)])
        else:
            blocks = blocks.joined(fitting.accumulated([last for _, last in halves], holdout))
        solution = fitting.solved(blocks, found)
        titles = [*(f"fitted: {log.source}" for log in logs), *(f"validation: {log.source}" for log in unseen)]
        seen = [fitting.evaluated(title, s, solution, found) for title, s in zip(titles, all_stretches, strict=True)]
        model = fitting.model
        if found is not None:
            whole = [run.samples for run in runs[: len(logs)]]
            model = chain_with_friction(dataclasses.replace(found, chain=model), whole)
        ols = ordinary_least_squares(blocks, fitting.base, fitting.independence)
        halves_agree = split_half(blocks, fitting.base, fitting.independence)
        identified = with_parameters(model, choice.fitted, solution.parameters)
        report("predicting torques", 1, 1)
    identified = jax.tree.map(lambda new, old: jnp.asarray(np.asarray(new), old.dtype), identified, choice.chain)
    return Identification(
        chain=identified,
        prior=choice.chain,
        columns=choice.fitted,
        base=fitting.base,
        ols=ols,
        wls=solution.wls,
        consistent=solution.consistent,
        parameters=solution.parameters,
        unconstrained=solution.nearest,
        fitted=tuple(seen[: len(logs)]),
        validation=(*held, *seen[len(logs) :]),
        validation_refit=holdout is not None,
        friction=found,
        delay=choice.delay,
        settings=choice.settings,
        factors=blocks.total,
        split_half=halves_agree,
        impossible=impossible_links(identified),
        notes=tuple(_notes(fitting, solution, choice, [*logs, *unseen])),
        unusual=unusual_links(identified, (consistent and consistent.densities) or DENSITIES, choice.chain),
    )


def _runs(
    chain: Chain, logs: Log | Sequence[Log], validate: Log | Sequence[Log] | float
) -> tuple[list[Log], list[Log], float | None]:
    """The runs that are fitted and those that are not, each with a name of its own, and which share is held out, if any.

    Raises:
        IdentificationError: there is no log, one has another number of joints, or a joint moves in none of those fitted.
    """
    listed = lambda some: [some] if isinstance(some, Log) else list(some)
    logs, unseen = listed(logs), [] if isinstance(validate, float | int) else listed(validate)
    named = named_apart([*logs, *unseen])
    logs, unseen = named[: len(logs)], named[len(logs) :]
    if not logs:
        raise IdentificationError("there is no log to identify from")
    for log in named:
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
    return logs, unseen, None if unseen else float(validate) if isinstance(validate, float | int) else HOLDOUT


@dataclasses.dataclass(frozen=True, eq=False)
class _Choice:
    """What a log is read with, and what is fitted to it, as far as it is chosen by now."""

    chain: Chain
    columns: Columns
    filters: Filters
    friction: FrictionModel | Literal["chosen"] | None
    settings: Settings | None = None
    delay: Float[np.ndarray, " n"] | None = None

    @property
    def fitted(self) -> Columns:
        """The columns that stand in the regression: without those that a friction model takes the place of."""
        if self.friction is None:
            return self.columns
        own = tuple(term for term in self.columns.drive_terms if term == "armature")
        return dataclasses.replace(self.columns, drive_terms=own)

    def with_settings(
        self, settings: Settings | Literal["chosen"] | None, logs: Sequence[Log], share: float, report: Progress
    ) -> "_Choice":
        """With what the settings say, chosen on the first share of each log where they are to be."""
        if settings is None:
            return self
        if self.filters.delay is not None:
            raise IdentificationError("settings hold the delays: give delay or settings, not both")
        if isinstance(settings, str):
            report("choosing settings", 0, 1)
            settings = choose_settings(self.chain, logs, self.columns, self.filters, share=share)
            report("choosing settings", 1, 1)
        chain, columns, filters = settings.chain(self.chain), self.columns, self.filters.but(delay=settings.delay)
        if settings.cutoff is not None:
            filters = filters.but(position_cutoff=settings.cutoff, torque_cutoff=settings.cutoff)
        if settings.springs:
            springs = joint_springs(chain, settings.springs)
            columns = dataclasses.replace(columns, extra=(*columns.extra, springs))
        friction = settings.friction if self.friction is None else self.friction
        return _Choice(chain, columns, filters, friction, settings)

    def with_delay(self, logs: Sequence[Log], share: float, report: Progress) -> "_Choice":
        """With one delay a joint in numbers, estimated on the first share of each log where it is to be."""
        if self.filters.delay is None:
            return self
        report("delays", 0, 1)
        delay = known_or_estimated_delay(self.chain, logs, self.columns, self.filters, share)
        report("delays", 1, 1)
        return dataclasses.replace(self, filters=self.filters.but(delay=delay), delay=delay)


def _prepared(logs: Sequence[Log], choice: _Choice, report: Progress) -> list[FullRun]:
    """All runs behind the same filters, thinned, and for friction models at full rate too."""
    report("preparing logs", 0, len(logs))
    advance = lambda done: report("preparing logs", done, len(logs))
    return prepared(logs, choice.filters, choice.friction is not None, advance)


def _notes(fitting: Fitting, solution: Solution, choice: _Choice, logs: Sequence[Log]) -> Iterator[str]:
    """What a user should know, the weightiest first."""
    if solution.consistent is not None and not solution.consistent.converged:
        yield "the consistent estimate stopped before its optimum: its bodies are possible, but may fit better"
    if fitting.thin:
        yield f"the inertia of {', '.join(fitting.thin)} is that of a body without thickness: it was given some, as a prior"
    if fitting.bodiless:
        yield (
            f"the model has no inertials for {', '.join(fitting.bodiless)}: a sphere of {STAND_IN_MASS:g} kg and "
            f"{STAND_IN_RADIUS:g} m radius stood in as the prior for what the motion does not determine"
        )
    if choice.settings is not None:
        yield f"settings: {choice.settings.sentence}"
    for log, run in zip(logs, fitting.runs, strict=True):
        yield from (f"{log.source}: {note}" for note in dict.fromkeys(run.thinned.notes))

"""`identify_mechanism`: from logs of a robot with a free base, contacts or closed loops to identified parameters."""

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ...errors import IdentificationError
from ...model._chain import Chain
from .._consistency.constraints import DENSITIES, Consistency
from .._consistency.densities import unusual_links
from .._fit import Fitting, Progress, Solution
from .._preprocessing.samples import Filters, split
from .._regression.accumulate import accumulate_blocks
from .._regression.base_parameters import base_parameters
from .._regression.blocks import BLOCKS
from .._regression.columns import Columns, all_columns
from .._regression.completion import (
    given_torque,
    impossible_links,
    prior_parameters,
    with_parameters,
    with_stand_ins,
    with_thickness,
)
from .._regression.knowledge import Knowledge
from .._regression.prediction import fit_quality, predict
from .._regression.robot import as_float64
from .._result import Evaluation, Identification
from .._selection.setup import Setup
from .._selection.terms import Terms
from .._stretches import full_run
from .log import MechanismLog, MechanismSamples, mechanism_samples, narrow_cutoff
from .rows import left_over, projected_blocks, remaining_parameters, unknown_forces

HOLDOUT = 0.3
ROUNDS = 3  # of weights from residuals, where unknown forces are eliminated
LEAST_NOISE = 1e-4  # of a row's root mean square
POSSIBLE = Consistency()


def identify_mechanism(
    chain: Chain,
    logs: MechanismLog | Sequence[MechanismLog],
    validate: MechanismLog | Sequence[MechanismLog] | float = HOLDOUT,
    *,
    columns: Columns | None = None,
    filters: Filters | None = None,
    consistent: Consistency | None = POSSIBLE,
    knowledge: Knowledge | None = None,
    progress: Progress | None = None,
) -> Identification:
    """Identify a humanoid, a quadruped or a linkage: any robot with a free base, contacts, spherical joints or closed loops.

    The equations of motion W pi = S^T tau + sum_i J_i^T F_i have six rows without drive torque for a free base. The
    measurements determine the fitted rows: all rows if joint torques and contact wrenches were measured; the base's six
    rows if no joint torque was measured (tau is NaN), which determine all link parameters but no drive parameters
    (Ayusawa, Venture & Nakamura 2014; Mistry, Schaal & Yamane 2009); and with unmeasured forces at held frames or
    closed loops, the projection orthogonal to the range of their transposed Jacobians, weighted by the noise of the
    rows, which is equivalent to estimating parameters and forces together. The rest is as in `identify`: base
    parameters, ordinary and weighted least squares, physically consistent links, jackknife standard deviations, and
    held-out validation.

    Args:
        chain: the robot, with its free joint (`load(.., floating_base=True)`); its inertias are the prior.
        logs: the runs to fit.
        validate: runs to validate on, or the last share of each run that is held out, as in `identify`.
        columns: columns identified besides the links; by default drive terms, motors and springs if a joint torque was
            measured, else none.
        filters: cutoffs and stride, as for `preprocess`, the same for all runs; the default cutoff is 0.4 times its
            default, at least 8 Hz, because noise of the base's acceleration enters every column and biases all
            parameters.
        consistent: prior knowledge of the links; None for plain least squares.
        knowledge: as in `identify`; for example, that left and right limbs mirror each other.
        progress: called with (stage, done, total).

    Raises:
        LogError: a log that does not match the chain, or lacks a measurement, which is named.
        IdentificationError: the motion does not excite the parameters, or unknown forces leave no equation.
    """
    listed = lambda some: [some] if isinstance(some, MechanismLog) else list(some)
    share = float(validate) if isinstance(validate, int | float) else None
    fitted, unseen = listed(logs), [] if share is not None else listed(validate)  # type: ignore[arg-type]
    if not fitted:
        raise IdentificationError("there is no log to identify from")
    report = progress or (lambda stage, done, total: None)
    runs = _prepared(chain, [*fitted, *unseen], filters, report)
    first = runs[: len(fitted)]
    if columns is None:
        joints = np.any([run.measured for run in first], axis=0)
        columns = all_columns(chain) if joints[_driven(chain)].any() else Columns(())
    consistent = None if consistent is None else consistent.of(columns.names(chain.n))
    with jax.enable_x64(True):
        fit = _begin(chain, columns, consistent, first, report, knowledge)
        held = []
        if share is not None:
            halves = [_split(run, 1 - share) for run in first]
            partial = fit.solved([a for a, _ in halves], report)
            named = f"held out: last {100 * share:g} % of "
            held = [fit.evaluated(named + b.samples.source, b, partial) for _, b in halves]
        solution = fit.solved(first, report)
        titles = [*(f"fitted: {x.source}" for x in fitted), *(f"validation: {x.source}" for x in unseen)]
        seen = [fit.evaluated(title, run, solution) for title, run in zip(titles, runs, strict=True)]
        fitting = fit.fitting
        identified = with_parameters(fitting.model, columns, solution.parameters)
    identified = jax.tree.map(lambda new, old: jnp.asarray(np.asarray(new), old.dtype), identified, chain)
    notes = dict.fromkeys(f"{run.samples.source}: {note}" for run in runs for note in run.samples.notes)
    return Identification(
        chain=identified,
        prior=chain,
        columns=columns,
        base=fitting.base,
        ols=solution.ols,
        wls=solution.wls,
        consistent=solution.consistent,
        parameters=solution.parameters,
        unconstrained=solution.nearest,
        fitted=tuple(seen[: len(fitted)]),
        validation=(*held, *seen[len(fitted) :]),
        validation_refit=share is not None,
        friction=None,
        delay=None,
        choice=None,
        factors=solution.blocks.total,
        split_half=solution.split_half,
        impossible=impossible_links(identified),
        notes=tuple(notes),
        unusual=unusual_links(identified, (consistent and consistent.densities) or DENSITIES, chain),
    )


def _driven(chain: Chain) -> np.ndarray:
    """(nv,) coordinates that can have a drive."""
    driven = np.ones(chain.nv, bool)
    for link, size in chain.topology.quaternion_joints:
        driven[link : link + size] = size != 6
    return driven


def _prepared(
    chain: Chain, logs: Sequence[MechanismLog], filters: Filters | None, report: Progress
) -> list[MechanismSamples]:
    runs, filters = [], filters or Filters()
    for k, log in enumerate(logs):
        report("preparing logs", k, len(logs))
        if filters.position_cutoff is None and filters.torque_cutoff is None:
            filters = filters.but(position_cutoff=narrow_cutoff(chain, log))
        run = mechanism_samples(chain, log, filters)
        cutoffs = run.samples.position_cutoff, run.samples.torque_cutoff
        filters = filters.but(position_cutoff=cutoffs[0], torque_cutoff=cutoffs[1])
        runs.append(run)
    report("preparing logs", len(logs), len(logs))
    return runs


def _split(run: MechanismSamples, share: float) -> tuple[MechanismSamples, MechanismSamples]:
    first, last = split(run.samples, share)
    return dataclasses.replace(run, samples=first), dataclasses.replace(run, samples=last)


@dataclasses.dataclass(frozen=True, eq=False)
class _Fit:
    """The fit of `identify`, with different rows."""

    fitting: Fitting
    projected: bool

    def solved(self, runs: Sequence[MechanismSamples], report: Progress) -> Solution:
        """Estimates from runs."""
        fitting = self.fitting
        given = [_given(fitting, run) for run in runs]
        total = sum(len(run) for run in runs)
        advance = lambda done: report("accumulating the regressor", done, total)
        if not self.projected:
            data = [
                (run.samples.q, run.samples.qd, run.samples.qdd, run.samples.tau - known, _weights(run))
                for run, known in zip(runs, given, strict=True)
            ]
            blocks = accumulate_blocks(fitting.columns, fitting.model, data, advance, BLOCKS)
            return fitting.solved(blocks, None)
        tau = np.concatenate([run.samples.tau for run in runs])
        noise = np.maximum(np.sqrt((tau**2).mean(axis=0)), 1e-3 * np.abs(tau).max())
        least, plain = LEAST_NOISE * noise, dataclasses.replace(fitting, consistent=None)
        for _ in range(ROUNDS - 1):
            blocks = projected_blocks(fitting.columns, fitting.chain, runs, given, noise, BLOCKS, advance)
            values = plain.solved(blocks, None).parameters
            noise = np.maximum(self._noise(runs, values, noise), least)
        blocks = projected_blocks(fitting.columns, fitting.chain, runs, given, noise, BLOCKS, advance)
        solution = fitting.solved(blocks, None)
        wls = dataclasses.replace(solution.wls, noise=noise * solution.wls.noise[0], joint_residuals=noise)
        return dataclasses.replace(solution, wls=wls)

    def _noise(
        self, runs: Sequence[MechanismSamples], parameters: np.ndarray, noise: Float[np.ndarray, " nv"]
    ) -> Float[np.ndarray, " nv"]:
        """Standard deviation of each row's errors, corrected for the share absorbed by unknown forces."""
        squares, left = np.zeros_like(noise), np.zeros_like(noise)
        for run in runs:
            squares += ((run.samples.tau - self.predicted(run, parameters, noise)) ** 2).sum(axis=0)
            left += ((left_over(unknown_forces(self.fitting.chain, run), noise) * noise) ** 2).sum(axis=(0, 1))
        return np.sqrt(squares / np.maximum(left, 1e-9))

    def predicted(
        self, run: MechanismSamples, parameters: np.ndarray, noise: Float[np.ndarray, " nv"]
    ) -> Float[np.ndarray, "N nv"]:
        """Generalised forces of parameters, including unmeasured ones."""
        fitting, s = self.fitting, run.samples
        torque = predict(fitting.columns, fitting.model, parameters, s.q, s.qd, s.qdd) + _given(fitting, run)
        return self._with_forces(run, noise, torque) if self.projected else torque

    def _with_forces(
        self, run: MechanismSamples, noise: Float[np.ndarray, " nv"], torque: Float[np.ndarray, "N nv"]
    ) -> Float[np.ndarray, "N nv"]:
        """Predicted torques, minus the best-fitting unmeasured forces."""
        s, through = run.samples, left_over(unknown_forces(self.fitting.chain, run), noise)
        error = np.einsum("tmj,tj->tm", through, s.tau - torque)
        return s.tau - noise * np.einsum("tmj,tm->tj", through * noise, error)

    def evaluated(self, title: str, run: MechanismSamples, solution: Solution) -> Evaluation:
        """Prediction of the measured rows by a solution; NaN for the others."""
        s, noise = run.samples, solution.wls.noise
        noise = noise if self.projected else np.ones(self.fitting.chain.nv)
        found, nearest = (self.predicted(run, x, noise) for x in (solution.parameters, solution.nearest))
        seen = dataclasses.replace(s, tau=np.where(run.measured, s.tau, np.nan))
        fits = [fit_quality(seen.tau, x, s.qd) for x in (found, nearest)]
        forces = functools.partial(self._with_forces, run, noise) if self.projected else None
        return Evaluation(title, seen, found, fits[0], fits[1], with_forces=forces)


def _weights(run: MechanismSamples) -> np.ndarray:
    return np.broadcast_to(run.measured.astype(float), run.samples.tau.shape)


def _given(fitting: Fitting, run: MechanismSamples) -> np.ndarray:
    s = run.samples
    return given_torque(fitting.model, fitting.columns, s.q, s.qd, s.qdd) * run.measured


def _begin(
    chain: Chain,
    columns: Columns,
    consistent: Consistency | None,
    runs: Sequence[MechanismSamples],
    report: Progress,
    knowledge: Knowledge | None,
) -> _Fit:
    """The regression with its base parameters and its prior found."""
    projected = any(run.is_held for run in runs)
    model = as_float64(chain)
    report("finding base parameters", 0, 1)
    rows = np.any([run.measured for run in runs], axis=0).astype(float)
    known = None if knowledge is None else knowledge.of(chain, columns)
    base = base_parameters(chain, columns, rows=rows, knowledge=knowledge)
    if projected:
        base = remaining_parameters(chain, columns, runs, base, known)
    report("finding base parameters", 1, 1)
    filled, bodiless = with_stand_ins(model)
    filled, thin = (filled, ()) if consistent is None else with_thickness(filled)
    prior = prior_parameters(filled, columns)
    whole = [full_run(run.samples, 1) for run in runs]
    terms = Terms(columns.drive_terms, extra=columns.extra, choose=())
    setup = Setup(chain, columns, None, Filters(), None, terms)
    return _Fit(
        Fitting(setup, consistent, 0.0, whole, len(runs), model, base, prior, bodiless, thin, report, known), projected
    )

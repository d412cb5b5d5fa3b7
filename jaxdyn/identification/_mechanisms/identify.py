"""`identify_mechanism`: identification of robots with a floating base, contacts or closed loops."""

import dataclasses
import functools
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Float

from ...errors import IdentificationError
from ...model._chain import Chain
from ...model._layout import driven_joints, leading_joints
from .._consistency.constraints import Consistency
from .._fit import HOLDOUT, POSSIBLE, Fitting, Progress, Solution, begin
from .._preprocessing.repeats import REPEATED, Motion, repeated_motion
from .._preprocessing.samples import Filters, Samples, split
from .._regression.accumulate import accumulate_samples
from .._regression.base_parameters import BaseParameters, base_parameters
from .._regression.blocks import BLOCKS
from .._regression.columns import Columns, all_columns
from .._regression.completion import given_samples_torque
from .._regression.knowledge import Knowledge, Known
from .._regression.prediction import fit_quality, predict_samples
from .._result import Evaluation, Identification
from .._selection.setup import Setup
from .._selection.terms import Terms
from .._stretches import full_run
from .log import MechanismLog, MechanismSamples, mechanism_samples, narrow_cutoff
from .rows import left_over, projected_blocks, remaining_parameters, unknown_forces

ROUNDS = 3  # number of fits with updated weights, if unmeasured forces are eliminated
LEAST_NOISE = 1e-4  # smallest noise of a row, relative to its RMS


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
    """Identify a robot with a floating base, contacts, spherical joints or closed loops, such as a humanoid or a linkage.

    The equations of motion are W pi = S^T tau + sum_i J_i^T F_i, with the regressor W, the parameters pi, the drive
    torques tau and the contact wrenches F_i. For a floating base, six rows have no drive torque. The available
    measurements determine which rows are fitted:

    - If joint torques and contact wrenches were measured, all rows are fitted.
    - If no joint torque was measured (tau is NaN), the six rows of the base are fitted. They determine all identifiable
      link parameters but no drive parameters (Ayusawa, Venture & Nakamura 2014; Mistry, Schaal & Yamane 2009).
    - If unmeasured forces act at fixed frames or in closed loops, the rows are weighted by their noise and projected
      onto the orthogonal complement of the range of the forces' transposed Jacobians. The result is the same as if
      parameters and forces were estimated together.

    Everything else is as in `identify`: base parameters, ordinary and weighted least squares, physically consistent
    links, jackknife standard deviations, and validation on held-out data.

    Args:
        chain: the robot, with its floating base (`load(..., floating_base=True)`); its inertias are the prior.
        logs: the runs to fit.
        validate: validation runs, or the share of each run to hold out at its end, as in `identify`.
        columns: terms to identify in addition to the links' parameters; by default drive terms, motors and springs if
            any joint torque was measured, and none otherwise.
        filters: cutoffs and stride for all runs, as for `preprocess`. The default cutoff is 0.4 times that of
            `preprocess`, but at least 8 Hz, because noise in the base's acceleration affects all columns of the
            regressor and biases all parameters.
        consistent: physical-consistency constraints and prior knowledge of the links; None for plain least squares.
        knowledge: as in `identify`, for example that left and right limbs mirror each other.
        progress: callback that receives the name of the current stage, the number of steps done, and the total number
            of steps.

    Raises:
        LogError: a log does not match the chain, or lacks a measurement, which the message names.
        IdentificationError: no log was given, the motion does not excite the parameters, or there are at least as many
            unmeasured forces as equations.
    """
    listed = lambda some: [some] if isinstance(some, MechanismLog) else list(some)
    share = float(validate) if isinstance(validate, int | float) else None
    fitted, unseen = listed(logs), [] if share is not None else listed(validate)  # type: ignore[arg-type]
    if not fitted:
        raise IdentificationError("no log was given; pass at least one run to fit")
    report = progress or (lambda stage, done, total: None)
    runs = _prepared(chain, [*fitted, *unseen], filters, report)
    first = runs[: len(fitted)]
    if columns is None:
        joints = np.any([run.measured for run in first], axis=0)
        columns = (
            all_columns(chain) if joints[driven_joints(chain.topology)[leading_joints(chain)]].any() else Columns(())
        )
    weighed = consistent is not None and consistent.mass is not None
    consistent = None if consistent is None else consistent.of(columns.names(chain.n))
    with jax.enable_x64(True):
        fit = _begin(chain, columns, consistent, first, report, knowledge)
        held = []
        partial = None
        if share is not None:
            halves = [_split(run, 1 - share) for run in first]
            partial = fit.solved([a for a, _ in halves], report)
            named = f"held out: last {100 * share:g} % of "
            held = [fit.evaluated(named + b.samples.source, b, partial) for _, b in halves]
            motion = repeated_motion([run.samples for run in first])
            held = [_marked(x, motion, k, [a.samples for a, _ in halves]) for k, x in enumerate(held)]
        solution = fit.solved(first, report)
        titles = [*(f"fitted: {x.source}" for x in fitted), *(f"validation: {x.source}" for x in unseen)]
        seen = [fit.evaluated(title, run, solution) for title, run in zip(titles, runs, strict=True)]
        notes = [f"{run.samples.source}: {note}" for run in runs for note in run.samples.notes]
        motion = repeated_motion([run.samples for run in runs]) if unseen else None
        known = [run.samples for run in first]
        checked = [_marked(x, motion, k, known) for k, x in enumerate(seen) if k >= len(fitted)]
        validation = [*held, *checked]
        result = fit.fitting.identification(solution, seen[: len(fitted)], validation, without=partial, notes=notes)
    if result.has_free_base and result.total_mass.deviation is None and not weighed:
        result = dataclasses.replace(result, notes=(_undetermined(result, first), *result.notes))
    return result


def _marked(evaluation: Evaluation, motion: Motion | None, run: int, fitted: Sequence[Samples]) -> Evaluation:
    """The evaluation of a run, marked if most of its motion repeats that of the fitted samples."""
    if motion is None or not motion.repeats_those(run, evaluation.samples.t, [(k, s.t) for k, s in enumerate(fitted)]):
        return evaluation
    return dataclasses.replace(evaluation, title=f"{evaluation.title} ({REPEATED})", repeats_fitted=True)


def _undetermined(result: Identification, runs: Sequence[MechanismSamples]) -> str:
    """Note for the user that the fitted rows do not determine the total mass."""
    frames = ", ".join(dict.fromkeys(frame for run in runs for frame in run.held))
    carried = f", because unmeasured forces at {frames} carry it" if frames else ""
    return (
        f"the total mass is {result.total_mass}{carried}: measure the contact wrenches, weigh the robot and specify its mass "
        "(Consistency(mass=...), --mass), or use only the predicted torques"
    )


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
    """The fit of `identify` for the rows of a mechanism; `projected` is True if unmeasured forces are eliminated."""

    fitting: Fitting
    projected: bool

    def solved(self, runs: Sequence[MechanismSamples], report: Progress) -> Solution:
        """Solution of the fit to the given runs."""
        fitting = self.fitting
        given = [_given(fitting, run) for run in runs]
        motion = repeated_motion([run.samples for run in runs])
        groups = motion and [motion.groups(k, run.samples.t, BLOCKS) for k, run in enumerate(runs)]
        total = sum(len(run) for run in runs)
        advance = lambda done: report("accumulating the regressor", done, total)
        if not self.projected:
            data = [
                (run.samples, run.samples.tau - known, _weights(run), None)
                for run, known in zip(runs, given, strict=True)
            ]
            blocks = accumulate_samples(fitting.columns, fitting.model, data, advance, BLOCKS, groups=groups)
            return fitting.solved(blocks, None)
        tau = np.concatenate([run.samples.tau for run in runs])
        noise = np.maximum(np.sqrt((tau**2).mean(axis=0)), 1e-3 * np.abs(tau).max())
        least, plain = LEAST_NOISE * noise, dataclasses.replace(fitting, consistent=None)
        for _ in range(ROUNDS - 1):
            blocks = projected_blocks(fitting.columns, fitting.chain, runs, given, noise, BLOCKS, advance, groups)
            values = plain.solved(blocks, None).parameters
            noise = np.maximum(self._noise(runs, values, noise), least)
        blocks = projected_blocks(fitting.columns, fitting.chain, runs, given, noise, BLOCKS, advance, groups)
        solution = fitting.solved(blocks, None)
        wls = dataclasses.replace(solution.wls, noise=noise * solution.wls.noise[0], joint_residuals=noise)
        return dataclasses.replace(solution, wls=wls)

    def _noise(
        self, runs: Sequence[MechanismSamples], parameters: np.ndarray, noise: Float[np.ndarray, " nv"]
    ) -> Float[np.ndarray, " nv"]:
        """Standard deviation of the errors in each row, corrected for the share absorbed by the unmeasured forces."""
        squares, left = np.zeros_like(noise), np.zeros_like(noise)
        for run in runs:
            squares += ((run.samples.tau - self.predicted(run, parameters, noise)) ** 2).sum(axis=0)
            left += ((left_over(unknown_forces(self.fitting.chain, run), noise) * noise) ** 2).sum(axis=(0, 1))
        return np.sqrt(squares / np.maximum(left, 1e-9))

    def predicted(
        self, run: MechanismSamples, parameters: np.ndarray, noise: Float[np.ndarray, " nv"]
    ) -> Float[np.ndarray, "N nv"]:
        """Generalised forces predicted with the given parameters, including the effect of unmeasured forces."""
        fitting, s = self.fitting, run.samples
        torque = predict_samples(fitting.columns, fitting.model, parameters, s) + _given(fitting, run)
        return self._with_forces(run, noise, torque) if self.projected else torque

    def _with_forces(
        self, run: MechanismSamples, noise: Float[np.ndarray, " nv"], torque: Float[np.ndarray, "N nv"]
    ) -> Float[np.ndarray, "N nv"]:
        """Predicted torques plus the effect of the best-fitting unmeasured forces."""
        s, through = run.samples, left_over(unknown_forces(self.fitting.chain, run), noise)
        error = np.einsum("tmj,tj->tm", through, s.tau - torque)
        return s.tau - noise * np.einsum("tmj,tm->tj", through * noise, error)

    def evaluated(self, title: str, run: MechanismSamples, solution: Solution) -> Evaluation:
        """Evaluate a solution on the measured rows; the torques of unmeasured rows are NaN."""
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
    return given_samples_torque(fitting.model, fitting.columns, run.samples) * run.measured


def _begin(
    chain: Chain,
    columns: Columns,
    consistent: Consistency | None,
    runs: Sequence[MechanismSamples],
    report: Progress,
    knowledge: Knowledge | None,
) -> _Fit:
    """Create the regression, with its base parameters and its prior."""
    projected = any(run.is_held for run in runs)
    rows = np.any([run.measured for run in runs], axis=0).astype(float)

    def choose_base(known: Known | None) -> BaseParameters:
        base = base_parameters(chain, columns, rows=rows, knowledge=knowledge)
        return remaining_parameters(chain, columns, runs, base, known) if projected else base

    whole = [full_run(run.samples, 1) for run in runs]
    setup = Setup(chain, columns, None, Filters(), None, Terms(columns.drive_terms, extra=columns.extra, choose=()))
    return _Fit(begin(setup, consistent, whole, len(runs), report, knowledge, choose_base), projected)

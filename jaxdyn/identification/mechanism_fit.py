"""Identification of stiffness, damping and rotors of elastic joints, from encoders on both sides of the gear.

`identify_mechanism`: identification of robots with a floating base, contacts or closed loops."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Float

from ..errors import IdentificationError, LogError
from ..io.logs import Log
from ..model.chain import Chain, driven_joints, leading_joints
from .base import BaseParameters, UndeterminedError, all_of, base_parameters
from .columns import Columns, all_columns, with_friction_at_joints
from .consistency import Consistency
from .factors import BlockFactors, RowBlocks, check_one_by_one, contiguous
from .fit import HOLDOUT, POSSIBLE, Fitting, Progress, Solution, begin, held_out_share
from .friction_fit import FrictionFit, unfitted
from .friction_model import FrictionModel
from .knowledge import Knowledge, Known
from .least_squares import solve
from .mechanisms import (
    MechanismLog,
    MechanismSamples,
    UnknownForces,
    mechanism_samples,
    narrow_cutoff,
    remaining_parameters,
)
from .prediction import predict_samples
from .preprocessing import Filters, Samples, default_stride, preprocess, repeated_motion
from .result import Identification
from .selection import Setup
from .stretches import FullRun, Stretch, full_run
from .terms import Terms

LARGEST_CONDITION = 1e6  # maximum condition number of the columns after scaling to unit norm


@dataclasses.dataclass(frozen=True, eq=False)
class ElasticIdentification:
    """Result of `identify_elastic_joints`.

    Attributes:
        values: (n, 6) identified parameters of each joint's motor equation: stiffness K [N m/rad], damping D [N m
            s/rad], reflected rotor inertia J [kg m^2], viscous friction B [N m s/rad], Coulomb friction F [N m], and
            offset [N m].
        standard_deviations: (n, 6) standard deviations of the values, as those of `Estimate`.
        residual: (n,) RMS error of the motor equation [N m].
        links: log of the links, for `identify` with a chain without the rotors' armature and friction. The log contains
            the low-pass filtered link positions q [rad] and the spring torques K (theta - q) + D (thetad - qd) [N m].
    """

    values: Float[np.ndarray, "n 6"]
    standard_deviations: Float[np.ndarray, "n 6"]
    residual: Float[np.ndarray, " n"]
    links: Log

    @property
    def stiffness(self) -> Float[np.ndarray, " n"]:
        """Stiffness K of each joint [N m/rad], for `jaxdyn.mechanisms.elastic_joints`."""
        return self.values[:, 0]

    @property
    def damping(self) -> Float[np.ndarray, " n"]:
        """Damping D of each joint [N m s/rad]."""
        return self.values[:, 1]

    @property
    def rotor_inertia(self) -> Float[np.ndarray, " n"]:
        """Reflected rotor inertia J of each joint, gear_ratio^2 times that of the rotor [kg m^2]."""
        return self.values[:, 2]


def identify_elastic_joints(
    log: Log, theta: Float[np.ndarray, "N n"], filters: Filters | None = None, coulomb_velocity: float = 0.02
) -> ElasticIdentification:
    """Identify stiffness, damping and rotor inertia of elastic joints from encoders of the links and of the motors.

    For each joint, the motor equation of Spong's model (`jaxdyn.mechanisms.ElasticJoints`) is fitted by least squares:

        gear_ratio tau_m = J thetadd + B thetad + F tanh(thetad / v) + offset + K (theta - q) + D (thetad - qd)

    The equation is linear in the unknowns K, D, J, B, F and offset, and does not need a model of the links. The offset
    combines the rest angle of the spring with the offsets of the encoders and the motor. The identified spring torque
    is the torque on the link, so it can be used to identify the links (`ElasticIdentification.links`).

    Encoder noise biases K towards zero, because the deflection theta - q is typically only about 1 mrad. The relative
    bias is the variance of the low-pass filtered noise divided by the variance of theta - q. High-resolution encoders
    on both sides, large accelerations and large loads keep the bias small.

    Args:
        log: a log with time [s], link positions q [rad] and motor torques referred to the joints, gear_ratio * tau_m
            [N m].
        theta: motor positions referred to the joints, rotor angle / gear_ratio, at the log's times [rad].
        filters: cutoffs and stride, as for `preprocess`.
        coulomb_velocity: v, the width of the smooth sign function in Coulomb friction [rad/s].

    Raises:
        LogError: theta has the wrong shape or is not finite; see `preprocess` for other causes.
        IdentificationError: the parameters of a joint cannot be determined separately, because the joint is at rest
            or its spring does not deflect.

    Cost: about 0.1 s for 20 000 rows of 7 joints.
    """
    theta, n = np.asarray(theta, float), log.n
    if theta.shape != log.q.shape or not np.isfinite(theta).all():
        raise LogError(
            f"{log.source}: motor positions must be finite and of shape {log.q.shape}; their shape is {theta.shape}"
        )
    both = dataclasses.replace(
        log, q=np.hstack([log.q, theta]), qd=None, tau=np.hstack([log.tau, np.zeros_like(theta)])
    )
    samples = preprocess(both, filters)
    q, qd, tau = samples.q[:, :n], samples.qd[:, :n], samples.tau[:, :n]
    motor, rate, acceleration = (x[:, n:] for x in (samples.q, samples.qd, samples.qdd))
    columns = motor - q, rate - qd, acceleration, rate, np.tanh(rate / coulomb_velocity), np.ones_like(rate)
    rows, fits = np.stack([*columns, tau], axis=2), []
    held = RowBlocks(contiguous([len(rows)]), n, rows.shape[2])
    held.absorb(0, 0, rows)
    blocks = held.factors
    for j in range(n):
        own = dataclasses.replace(blocks, r=blocks.r[:, j : j + 1], counts=blocks.counts[:, j : j + 1])
        try:
            found = solve(own, all_of(len(columns)), "weighted", samples.independence)
        except UndeterminedError:
            found = None
        if found is None or found.scaled_condition > LARGEST_CONDITION:
            raise IdentificationError(
                f"{log.source}: joint {j + 1}: stiffness, rotor inertia and friction cannot be separated, because the joint "
                "hardly moves or its spring does not deflect; log a motion with varying speed and load"
            )
        fits.append((found.values, found.standard_deviations, found.joint_residuals[0]))
    values, deviations, residual = (np.array(x) for x in zip(*fits, strict=True))
    spring = np.einsum("tjk,jk->tj", rows[:, :, :2], values[:, :2])
    links = Log(samples.t, q, qd, spring, f"links of {log.source}", samples.notes)
    return ElasticIdentification(values, deviations, residual, links)


# -- identify

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
            any joint torque was measured, and none otherwise. Terms of a friction model apply to all driven joints with a
            measured torque, or to those they name. Beside unmeasured forces, their nonlinear parameters keep the given values.
        filters: cutoffs and stride for all runs, as for `preprocess`. The default cutoff is 0.4 times that of
            `preprocess`, but at least 8 Hz, because noise in the base's acceleration affects all columns of the
            regressor and biases all parameters.
        consistent: physical-consistency constraints and prior knowledge of the links; None for plain least squares.
        knowledge: as in `identify`, for example that left and right limbs mirror each other.
        progress: callback that receives the name of the current stage, the number of steps done, and the total number
            of steps.

    Raises:
        LogError: a log does not match the chain, or lacks a measurement, which the message names.
        IdentificationError: no log was given, the motion does not excite the parameters, there are at least as many
            unmeasured forces as equations, or there is a friction model, but joints are coupled or no joint torque was
            measured.
    """
    listed = lambda some: [some] if isinstance(some, MechanismLog) else list(some)
    share = held_out_share(validate)
    fitted, unseen = listed(logs), [] if share is not None else listed(validate)  # type: ignore[arg-type]
    if not fitted:
        raise IdentificationError("no log was given; pass at least one run to fit")
    report = progress or (lambda stage, done, total: None)
    memory = columns is not None and columns.friction is not None
    runs, whole = _prepared(chain, [*fitted, *unseen], filters, memory, report)
    first = runs[: len(fitted)]
    measured = np.any([run.measured for run in first], axis=0) & driven_joints(chain.topology)[leading_joints(chain)]
    if columns is None:
        columns = all_columns(chain) if measured.any() else Columns(())
    if columns.friction is not None:
        check_one_by_one(chain, "a friction model")
        if not measured.any():
            raise IdentificationError("a friction model needs measured joint torques, but none is in the logs")
        seen = tuple((np.flatnonzero(measured) + 1).tolist())
        terms = [dataclasses.replace(term, joints=term.joints or seen) for term in columns.friction.terms]
        columns = dataclasses.replace(columns, friction=FrictionModel(tuple(terms)))
        chain, columns = with_friction_at_joints(chain, columns)
    weighed = consistent is not None and consistent.mass is not None
    consistent = None if consistent is None else consistent.of(columns.names(chain.n))
    with jax.enable_x64(True):
        fitting = _begin(chain, columns, consistent, runs, whole, len(fitted), report, knowledge)
        notes = [f"{run.samples.source}: {note}" for run in runs for note in run.samples.notes]
        (result,) = fitting.results(share, lambda solution: notes)
    if result.has_free_base and result.total_mass.deviation is None and not weighed:
        result = dataclasses.replace(result, notes=(_undetermined(result, first), *result.notes))
    return result


def _undetermined(result: Identification, runs: Sequence[MechanismSamples]) -> str:
    """Note for the user that the fitted rows do not determine the total mass."""
    frames = ", ".join(dict.fromkeys(frame for run in runs for frame in run.held))
    carried = f", because unmeasured forces at {frames} carry it" if frames else ""
    return (
        f"the total mass is {result.total_mass}{carried}: measure the contact wrenches, weigh the robot and specify its mass "
        "(Consistency(mass=...), --mass), or use only the predicted torques"
    )


def _prepared(
    chain: Chain, logs: Sequence[MechanismLog], filters: Filters | None, memory: bool, report: Progress
) -> tuple[list[MechanismSamples], list[FullRun]]:
    """All runs with the same filters; with `memory`, also at the log's rate, with NaN for torques that were not measured."""
    runs, whole, filters = [], [], filters or Filters()
    stride = filters.stride
    for k, log in enumerate(logs):
        report("preparing logs", k, len(logs))
        if filters.position_cutoff is None and filters.torque_cutoff is None:
            filters = filters.but(position_cutoff=narrow_cutoff(chain, log))
        run = mechanism_samples(chain, log, filters.but(stride=1) if memory else filters)
        cutoffs = run.samples.position_cutoff, run.samples.torque_cutoff
        filters = filters.but(position_cutoff=cutoffs[0], torque_cutoff=cutoffs[1])
        stride = stride or default_stride(run.samples.rate, max(cutoffs))
        full = full_run(run.samples, stride if memory else 1)
        seen = dataclasses.replace(run.samples, tau=np.where(run.measured, run.samples.tau, np.nan))
        whole.append(dataclasses.replace(full, samples=seen))
        runs.append(dataclasses.replace(run, samples=full.decimated))
    report("preparing logs", len(logs), len(logs))
    return runs, whole


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class MechanismFitting(Fitting):
    """The regression of a mechanism: only measured rows are fitted, and unmeasured forces are eliminated.

    Attributes:
        mechanisms: all runs, as those of `Fitting`.
        row_noise: (nv,) noise of the rows from which unmeasured forces are eliminated [N m or N]; None if all forces were
            measured.
    """

    mechanisms: tuple[MechanismSamples, ...]
    row_noise: Float[np.ndarray, " nv"] | None = None

    def as_stretches(self, frictions: Sequence[FrictionFit]) -> list[Stretch]:
        """All runs as stretches, with their measured rows and the unmeasured forces."""
        out = []
        for run, part in zip(self.mechanisms, super().as_stretches(frictions), strict=True):
            forces = None if self.row_noise is None else UnknownForces(self.chain, run, self.row_noise)
            weights = part.weights * run.measured if forces is None else part.weights
            said = {"given": part.given * run.measured, "weights": weights, "measured": run.measured}
            out.append(dataclasses.replace(part, **said, forces=forces))
        return out

    def fit_friction(self, columns: Columns, runs: Sequence[Samples]) -> FrictionFit:
        """As in `Fitting`; beside unmeasured forces, nonlinear parameters of friction keep their initial values."""
        if self.row_noise is None:
            return super().fit_friction(columns, runs)
        return unfitted(self.model, columns, self.base, self.prior)

    def solved(self, blocks: BlockFactors, frictions: tuple[FrictionFit, ...]) -> Solution:
        """As in `Fitting`, with the noise of all rows."""
        found = super().solved(blocks, frictions)
        if self.row_noise is None:
            return found
        noise = self.row_noise * found.estimate.noise[0]
        return dataclasses.replace(
            found, estimate=dataclasses.replace(found.estimate, noise=noise, joint_residuals=self.row_noise)
        )

    def with_row_noise(self) -> "MechanismFitting":
        """A copy with the noise of the rows, from repeated fits without physical consistency to all fitted runs."""
        runs = self.mechanisms[: self.fitted]
        tau = np.concatenate([run.samples.tau for run in runs])
        noise = np.maximum(np.sqrt((tau**2).mean(axis=0)), 1e-3 * np.abs(tau).max())
        least = LEAST_NOISE * noise
        for _ in range(ROUNDS - 1):
            fit = dataclasses.replace(self, consistent=None, row_noise=noise)
            parts, frictions = fit.stretches(1.0)
            values = Fitting.solved(fit, fit.accumulated(parts[: self.fitted]), frictions).parameters
            squares, left = np.zeros_like(noise), np.zeros_like(noise)
            for run, part in zip(runs, parts, strict=False):
                torque = predict_samples(self.columns, self.model, values, run.samples, part.signals) + part.given
                squares += ((run.samples.tau - part.with_forces(torque)) ** 2).sum(axis=0)
                left += ((part.forces.rows(run.samples) * noise) ** 2).sum(axis=(0, 1))
            own = squares / np.maximum(left, 1e-9)  # without the share that forces absorbed
            noise = np.maximum(np.sqrt(own), least)
        return dataclasses.replace(self, row_noise=noise)


def _begin(
    chain: Chain,
    columns: Columns,
    consistent: Consistency | None,
    runs: Sequence[MechanismSamples],
    whole: Sequence[FullRun],
    fitted: int,
    report: Progress,
    knowledge: Knowledge | None,
) -> MechanismFitting:
    """Create the regression, with its base parameters and its prior."""
    first = runs[:fitted]
    projected = any(run.is_held for run in first)
    rows = np.any([run.measured for run in first], axis=0).astype(float)

    def choose_base(known: Known | None) -> BaseParameters:
        base = base_parameters(chain, columns, rows=rows, knowledge=knowledge)
        return remaining_parameters(chain, columns, first, base, known) if projected else base

    motion = repeated_motion([run.samples for run in runs])
    further = () if columns.friction is None else columns.friction.terms
    setup = Setup(chain, columns, Filters(), None, Terms(further=further, choose=()))
    begun = begin(setup, consistent, whole, fitted, report, knowledge, choose_base, motion)
    found = MechanismFitting(**vars(begun), mechanisms=tuple(runs))
    return found.with_row_noise() if projected else found

"""Payloads and drive gains, from one regression of runs with and without a payload.

All runs share the arm's parameters, the coefficients of friction and the payload's ten inertial parameters. The measured
torque of joint j is

    tau_j = (Y_j pi + s Y_P,j p) / c_j + F_j f,      s = 1 in loaded runs, 0 in the others,

where pi are the arm's base parameters, p are the payload's parameters in its frame, F contains the columns of a friction
model, and the gain c_j converts logged torques to newton metres. Y is the regressor of the arm, and Y_P contains the
columns of the link that carries the payload. All noise is assumed to be in tau, so weighted least squares gives the
maximum-likelihood estimate. A gain is a further column, the derivative of the prediction with respect to its logarithm.
Motion alone determines only the ratios of the gains; a known mass determines their scale."""

import dataclasses
import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float
from scipy.linalg import block_diag

from .._summary import Summary, lines
from ..errors import IdentificationError, ModelError
from ..io.logs import Log
from ..model.chain import Chain, coordinate_names, frame_index, torque_units
from ..spatial.inertia import inertial_parameters_from_com, pseudo_inertia, transform_inertial_parameters
from .base import all_of, base_parameters, stacked, without_friction
from .columns import INERTIAL_NAMES, Columns
from .consistent import consistent_least_squares, consistent_problem
from .delay import RIGID
from .factors import BlockFactors, check_identifiable, cleared, triangle_of
from .fit import HOLDOUT, Fitting, begin
from .friction_model import FrictionModel, usual_friction
from .friction_terms import Coulomb, LoadDependent, LoadedSlip, MaxwellSlip
from .knowledge import Known
from .least_squares import Estimate, solve
from .prediction import predict
from .preprocessing import Filters, Samples, repeated_motion
from .selection import Setup
from .stretches import Stretch, check_run, prepared, same_data
from .terms import Terms
from .torque_model import TorqueModel

Runs = Log | Samples | Sequence[Log | Samples]
PASSES = 8  # maximum number of passes; load-dependent friction uses the load from the previous pass
ROUNDS = 30  # maximum number of Gauss-Newton steps for the gains
GAIN_SPREAD = 0.7  # prior standard deviation of a log gain, which corresponds to a factor of two (log 2 = 0.7)
TOLERANCE = 1e-10  # relative singular value below which parameters are not determined separately
PRIOR_WEIGHT = 1e-3  # weight of the stand-in body, which decides only what the runs do not determine
LARGEST_DEVIATION = 0.1  # gains with a larger relative standard deviation count as undetermined
SURELY = 5.0  # a mass this many standard deviations below zero is an error of the inputs


def carrier(chain: Chain, frame: str | None) -> tuple[int, Float[np.ndarray, "4 4"]]:
    """Index of the link that carries a payload, and pose of the payload's frame in this link.

    Raises:
        IdentificationError: the frame is unknown or fixed to the base, or the robot has a floating base or spherical
            joints.
    """
    check_identifiable(chain)
    try:
        link, index = frame_index(chain, frame)
    except ModelError as error:
        raise IdentificationError(f"the payload's frame: {error}") from None
    if link < 0:
        raise IdentificationError(
            f"the payload's frame {frame!r} is fixed to the base, so no joint carries the payload; specify a moving link"
        )
    return link, np.eye(4) if index is None else np.asarray(chain.frame_poses[index], float)


def transform_matrix(pose: Float[np.ndarray, "4 4"]) -> Float[np.ndarray, "10 10"]:
    """Matrix T in p_a = T p_b, which transforms the ten inertial parameters from frame b, with this pose in a, to a."""
    with jax.enable_x64(True):
        columns = jax.vmap(transform_inertial_parameters, in_axes=(None, 1), out_axes=1)
        return np.asarray(columns(jnp.asarray(pose), jnp.eye(10)))


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class LoadedFitting(Fitting):
    """The regression of runs with and without a payload, whose parameters are those of the arm, payload and friction.

    Attributes:
        maps: for each run, the parameters of its columns as combinations of all parameters.
        payload: place of the payload among the parameters; before it are the arm's, if they are unknown.
        loaded: True for each run with the payload.
        given: known torques of each run: of the arm if it is known, of springs, motors and further columns.
        loads: torques of the known arm at the log's rate; zeros if it is unknown.
    """

    maps: tuple[Float[np.ndarray, "c u"], ...]
    payload: slice
    loaded: Bool[np.ndarray, " runs"]
    given: tuple[Float[np.ndarray, "_ n"], ...]
    loads: tuple[Float[np.ndarray, "_ n"], ...]

    def mapped(self, blocks: BlockFactors) -> BlockFactors:
        """The factors of all parameters; the payload is absent from the rows of unloaded runs."""
        return blocks.mapped(self.maps)

    def with_loads(self, found: "LoadedFit | None", whole: bool = False) -> BlockFactors:
        """Factors of the runs, with friction under the loads of a fit; if `whole`, known torques are not subtracted."""
        parts, rigid, friction = [], self.columns.of_state, self.columns.friction
        assert friction is not None
        for run, given, load, own in zip(self.runs, self.given, self.loads, self.maps, strict=True):
            s = run.samples
            if friction.needs_load and found is not None:
                held = own[: len(rigid.names(self.model.n))] @ found.values
                load = load + predict(rigid, self.model, held, s.q, s.qd, s.qdd)
            known = friction.known(s)[run.kept].astype(float)
            parts.append(
                Stretch(run.decimated, 0 * given if whole else given, known, friction.signals(s, load)[run.kept])
            )
        return self.accumulated(parts)

    def fit(
        self,
        known: Float[np.ndarray, "10"],
        free: Float[np.ndarray, "10 z"],
        ties: Float[np.ndarray, "n k"],
        start: "LoadedFit | None" = None,
    ) -> "LoadedFit":
        """Fit all runs together, in repeated passes until the load in the friction terms has converged.

        The first pass takes loads and gains from another fit, if one is given.
        """
        found = start
        for turn in range(PASSES if self.columns.friction.needs_load else 1):  # type: ignore[union-attr]
            before, blocks = found, self.with_loads(found)
            found = fit_loads(blocks, self.payload, self.independence, known, free, ties, GAIN_SPREAD, before)
            if turn and before is not None:
                noise, moved = found.estimate.noise, np.abs(found.estimate.noise - before.estimate.noise).max()
                alike = moved < 1e-4 * noise.max() or noise.max() < 1e-9 * np.abs(blocks.r[..., -1]).max()
                if alike and np.abs(found.gains - before.gains).max() < 1e-4:
                    break
        assert found is not None
        return found

    def held_out(self, found: "LoadedFit") -> Float[np.ndarray, " n"] | None:
        """RMS errors of the torques in the last 30 % of the loaded runs, predicted by a fit to the rest; None if impossible.

        If the runs repeat a motion, the last 30 % of the motion is held out from all of them.
        """
        blocks, late = found.blocks, late_part(found.blocks)
        chosen, whole = late & self.loaded[blocks.runs], (np.zeros(10), np.eye(10))
        if late.all() or not chosen.any():
            return None
        try:
            ties = np.zeros((blocks.r.shape[1], 0))
            early = fit_loads(blocks.of(~late), self.payload, self.independence, *whole, ties)
        except IdentificationError:
            return None
        return blocks.of(chosen).total.joint_rms(np.arange(len(early.values)), early.values)

    def slopes(self, found: "LoadedFit") -> Float[np.ndarray, "10 n"]:
        """Derivatives of the payload's parameters with respect to the logarithms of factors of the joints' torques."""
        r, n = self.with_loads(found, whole=True).by_run.r, self.model.nv
        rows = r / np.maximum(found.run_noise, 1e-300)[:, None, None]
        right = (rows[:, :, -1:] * np.tile(np.eye(n), (len(rows) // n, 1))[:, None, :]).reshape(-1, n)
        left = rows[:, :, :-1].reshape(len(right), -1)
        norms = np.maximum(np.linalg.norm(left, axis=0), 1e-300)
        return (np.linalg.lstsq(left / norms, right, rcond=TOLERANCE)[0] / norms[:, None])[self.payload]

    def payload_torque(self, found: "LoadedFit") -> Float[np.ndarray, " n"]:
        """RMS torque of the payload over the loaded runs [N m or N]."""
        of_loaded = found.blocks.of(self.loaded[found.blocks.runs]).total
        torque = of_loaded.r[:, :, self.payload] @ found.payload
        return np.sqrt((torque**2).sum(1) / np.maximum(of_loaded.counts, 1))

    def consistent_body(self, found: "LoadedFit") -> Float[np.ndarray, "10"]:
        """The payload's parameters under the constraint of physical consistency, with all others fitted freely beside it.

        The rows, weighted as in the fit, are reduced to those that depend on the payload. Parameters that the runs do not
        determine are those of a homogeneous sphere.
        """
        whole, at = found.blocks.by_run, self.payload
        floor = 1e-4 * np.sqrt((whole.r[:, :, -1] ** 2).sum(1) / np.maximum(whole.counts, 1))
        r = stacked(whole, np.sqrt(self.independence) / np.maximum(found.run_noise, np.maximum(floor, 1e-300)))
        others = [*range(at.start), *range(at.stop, r.shape[1] - 1)]
        rows = triangle_of(cleared(r, others, [*range(at.start, at.stop), -1]))
        mass = max(abs(float(found.payload[0])), 1e-3)
        sphere = np.array(inertial_parameters_from_com(mass, np.zeros(3), 0.4 * mass * 0.1**2 * np.eye(3)))
        reduced = dataclasses.replace(found.estimate, values=found.payload, rows=rows)
        problem = consistent_problem(reduced, all_of(10), Columns(()), sphere, weight=PRIOR_WEIGHT)
        return consistent_least_squares(problem, all_of(10)).parameters


@dataclasses.dataclass(frozen=True, eq=False)
class LoadedFit:
    """Result of a combined fit.

    Attributes:
        values: all parameters: arm, payload and friction.
        payload: (p,) the payload's parameters in its frame; p = 10, or 0 if only gains are fitted.
        gains: (n,) logarithms of the gain factors c.
        covariance: (p + n, p + n) covariance of payload parameters and log gains, from the jackknife of the fit.
        determined: (p + n,) True for payload parameters and gains that the runs determine.
        estimate: the weighted least-squares estimate, of the combinations of unknowns that the runs determine.
        blocks: the factors that were fitted.
    """

    values: Float[np.ndarray, " u"]
    payload: Float[np.ndarray, " p"]
    gains: Float[np.ndarray, " n"]
    covariance: Float[np.ndarray, "m m"]
    determined: Bool[np.ndarray, " m"]
    estimate: Estimate
    blocks: BlockFactors

    @property
    def run_noise(self) -> Float[np.ndarray, " m"]:
        """Standard deviations of the residuals of each run and joint, in the order of `BlockFactors.by_run`."""
        assert self.estimate.run_noise is not None
        return self.estimate.run_noise.reshape(-1)


def fit_loads(
    blocks: BlockFactors,
    at: slice,
    independence: float,
    known: Float[np.ndarray, " p"],
    free: Float[np.ndarray, "p z"],
    ties: Float[np.ndarray, "n k"],
    spread: float = GAIN_SPREAD,
    start: "LoadedFit | None" = None,
) -> "LoadedFit":
    """Solve the regression by weighted least squares, with Gauss-Newton steps if gains are unknown.

    Args:
        blocks: factors of [arm, payload, friction, torque], as from `LoadedFitting.with_loads`.
        at: place of the payload among the columns.
        independence: fraction of the samples that count as independent.
        known: known part of the payload's parameters, p = known + free @ z.
        free: directions of the unknown part, with unknowns z.
        ties: map from k unknowns to the logarithms of the gains; k = 0 if the gains are known.
        spread: prior standard deviation of a log gain, which keeps those that the runs do not determine.
        start: a fit of the same columns from which the gains are improved.

    Raises:
        IdentificationError: there are too few samples.
    """
    (n, k), turn = ties.shape, 0
    gains, body, z = np.zeros(n), np.zeros(at.stop), slice(at.start, at.start + free.shape[1])
    if k and start is not None:
        gains, body, turn = start.gains, start.values[: at.stop], 1
    while True:
        rigid = np.exp(-gains)[:, None, None] * blocks.r[..., : at.stop]
        moving = -(rigid @ body)[..., None] * ties[:, None, :]  # derivative with respect to the unknown log gains
        tau = blocks.r[..., -1] - rigid[..., at] @ known - (rigid @ body) * gains[:, None]
        beside = blocks.r[..., at.stop : -1], moving, tau[..., None]
        rows = np.concatenate([rigid[..., : at.start], rigid[..., at] @ free, *beside], axis=3)
        prior = np.zeros((n, rows.shape[3]))
        prior[:, -1 - k : -1] = ties / spread
        found, stated = blocks.with_rows(rows), prior if k and turn else prior[:0]
        back, determined = independent_columns(np.concatenate([stacked(found.total), stated])[:, :-1])
        reduced = lambda x, back=back: np.concatenate([x[..., :-1] @ back, x[..., -1:]], axis=-1)
        size = back.shape[1]
        beyond = Known(np.zeros(size, bool), np.zeros(size), reduced(stated)) if len(stated) else None
        estimate = solve(found.with_rows(reduced(found.r)), all_of(size), "weighted", independence, beyond)
        values = back @ estimate.values
        body = np.concatenate([values[: at.start], known + free @ values[z]])
        change = ties @ values[len(values) - k :] - gains if turn else np.zeros(n)  # at first, no torque can be scaled
        gains, turn = gains + np.clip(change, -0.5, 0.5), turn + 1
        if not k or (turn > 2 and np.abs(change).max() < 1e-6) or turn == ROUNDS:
            break
    outer, p = np.zeros((len(known) + n, len(values))), len(known)
    outer[:p, z], outer[p:, len(values) - k :] = free, ties
    return LoadedFit(
        values=np.concatenate([body, values[z.stop : len(values) - k]]),
        payload=body[at],
        gains=gains,
        covariance=outer @ back @ estimate.covariance @ (outer @ back).T,
        determined=~((np.abs(outer) > 0) @ ~determined),
        estimate=estimate,
        blocks=blocks,
    )


def loaded_runs(
    arm: Chain | TorqueModel,
    unloaded: Runs,
    loaded: Runs,
    frame: str | None,
    friction: FrictionModel | None,
    by_run: bool,
    filters: Filters | None,
    *,
    known: bool = False,
    gains: Float[np.ndarray, " n"] | None = None,
) -> tuple[LoadedFitting, list[str]]:
    """The regression of all runs, and notes for the user; call under `jax.enable_x64(True)`.

    Args:
        known: True if the parameters of the arm are those of the model.
        gains: factors by which the logged torques are multiplied.

    Raises:
        IdentificationError: a run has the wrong number of joints, runs are missing, or a run is passed both with and without
            the payload.
        LogError: a log looks as if it were in degrees (`check_log`).
    """
    model = arm if isinstance(arm, TorqueModel) else TorqueModel(arm)
    chain = model.chain
    link, pose = carrier(chain, frame)
    filters = filters or Filters()
    if filters.delay is None and model.delay is not None:
        filters = filters.but(delay=np.asarray(model.delay, float))
    groups = [[group] if isinstance(group, Log | Samples) else list(group) for group in (unloaded, loaded)]
    if missing := "with" if not groups[1] else "" if groups[0] or known else "without":
        raise IdentificationError(f"there are no runs {missing} the payload; pass at least one")
    given = [check_run(run, chain) for group in groups for run in group]
    for run, other in itertools.product(groups[1], groups[0]):
        if same_data(run, other):
            raise IdentificationError(
                f"{run.source} and {other.source} contain the same data, but one is passed as a run with the payload and the "
                "other as a run without it; pass each run once"
            )
    runs = prepared(given, filters, True)
    of_logs = [run.decimated for run, log in zip(runs, given, strict=True) if isinstance(log, Log)]
    notes = [f"{s.source}: {note}" for s in of_logs for note in dict.fromkeys(s.notes)]
    if friction is None:
        friction = usual_friction(chain) if model.friction is None else _with_load(model.friction, chain.nv)
    rest = dataclasses.replace(model, chain=without_friction(chain), friction=None, coefficients=None)
    if not known:  # only springs, motors and further columns
        none = dataclasses.replace(rest.chain, inertia=0 * chain.inertia, armature=0 * chain.armature)
        rest = dataclasses.replace(rest, chain=none)
    if gains is not None:
        scaled = [dataclasses.replace(run.decimated, tau=run.decimated.tau * gains) for run in runs]
        runs = [dataclasses.replace(run, decimated=s) for run, s in zip(runs, scaled, strict=True)]
    base, motion = base_parameters(chain, RIGID), repeated_motion([run.decimated for run in runs])
    setup = Setup(chain, dataclasses.replace(RIGID, friction=friction), filters, None, Terms(choose=()))
    begun = begin(setup, None, runs, len(runs), lambda *stage: None, choose_base=lambda known: base, motion=motion)
    p, loads = len(RIGID.names(chain.n)), np.arange(len(runs)) >= len(groups[0])
    arm_columns, carried = np.eye(p)[:, [] if known else base.kept], np.zeros((p, 10))
    carried[10 * link : 10 * link + 10] = transform_matrix(pose)
    which = np.eye(len(runs)) if by_run else np.ones((len(runs), 1))  # coefficients of friction of each run
    each = [np.kron(one, np.eye(len(friction.names(chain.nv)))) for one in which]
    smooth = begun.columns.friction.cutoff is not None  # type: ignore[union-attr]
    found = LoadedFitting(
        **vars(begun),
        maps=tuple(
            np.asarray(block_diag(np.hstack([arm_columns, on * carried]), x)) for on, x in zip(loads, each, strict=True)
        ),
        payload=slice(arm_columns.shape[1], arm_columns.shape[1] + 10),
        loaded=loads,
        given=tuple(rest.predict(run.samples, run.kept, filtered=smooth) for run in runs),
        loads=tuple(
            rest.predict(run.samples, filtered=False) if known else np.zeros_like(run.samples.qd) for run in runs
        ),
    )
    return found, notes


def _with_load(friction: FrictionModel, n: int) -> FrictionModel:
    """A friction model in which the weight of a payload increases the friction of all joints.

    A joint without such a term gets one with the width of its Coulomb friction or of its first slip.
    """
    of = lambda term: set(term.joints or range(1, n + 1))
    missing, terms = set(range(1, n + 1)).difference(*(of(term) for term in friction.terms if term.needs_load)), []
    for kind, loaded in ((MaxwellSlip, LoadedSlip), (Coulomb, LoadDependent)):
        for term in friction.terms:
            if isinstance(term, kind) and (joints := of(term) & missing):
                terms.append(loaded(width=term.width, joints=tuple(sorted(joints))))
                missing -= joints
    if missing:
        terms.append(LoadDependent(joints=tuple(sorted(missing))))
    return dataclasses.replace(friction, terms=(*friction.terms, *terms))


def late_part(blocks: BlockFactors) -> Bool[np.ndarray, " k"]:
    """Mask of the blocks to hold out: the last 30 % of each run, or of the motion if the runs repeat it."""
    own = blocks.runs if blocks.groups is None else np.zeros_like(blocks.runs)
    order = np.array([(own[:k] == own[k]).sum() for k in range(len(own))])
    order = order if blocks.groups is None else blocks.order_of_groups
    return order >= np.round((1 - HOLDOUT) * np.array([order[own == k].max() + 1 for k in own]))


def independent_columns(r: Float[np.ndarray, "m w"]) -> tuple[Float[np.ndarray, "w r"], Bool[np.ndarray, " w"]]:
    """Basis of the columns' combinations that the rows r determine, and the mask of the columns determined by themselves."""
    norms = np.linalg.norm(r, axis=0)
    norms[norms == 0] = 1.0
    _, s, vt = np.linalg.svd(r / norms, full_matrices=len(r) < r.shape[1])
    alive = np.arange(len(vt)) < (s > TOLERANCE * s[0]).sum()
    return vt[alive].T / norms[:, None], np.abs(vt[~alive]).max(axis=0, initial=0) < 1e-4


# -- gains


@dataclasses.dataclass(frozen=True, eq=False)
class DriveGains:
    """Drive gains, tau_j = gain_j i_j for motor currents i_j, calibrated with a known payload.

    Attributes:
        factors: factors by which the logged torques must be multiplied, one per joint.
        covariance: covariance of the logarithms of the factors.
        gains: calibrated gains [N m/A or N/A], which are the products of `factors` and the `gains` passed to
            `calibrate_gains`; if none were passed, they equal `factors`.
        determined: True for joints whose gain the runs determine. The factor of every other joint is the geometric mean
            of the determined factors.
        common: factor from a separate fit in which all joints share one factor.
        common_deviation: standard deviation of `common`.
        payload: (10,) parameters of the payload, with the known mass, in the frame that carries it [kg, kg m, kg m^2].
        payload_torque: RMS torque of the payload on each joint [N m or N].
        noise: standard deviation of each joint's residual torque [N m or N].
        notes: remarks for the user.
    """

    factors: Float[np.ndarray, " n"]
    covariance: Float[np.ndarray, "n n"]
    gains: Float[np.ndarray, " n"]
    determined: Bool[np.ndarray, " n"]
    common: float
    common_deviation: float
    payload: Float[np.ndarray, "10"]
    payload_torque: Float[np.ndarray, " n"]
    noise: Float[np.ndarray, " n"]
    notes: tuple[str, ...]

    @property
    def standard_deviations(self) -> Float[np.ndarray, " n"]:
        """Standard deviations of the gains, in the units of `gains`."""
        return self.gains * np.sqrt(np.diag(self.covariance))


def calibrate_gains(
    arm: Chain | TorqueModel,
    unloaded: Runs,
    loaded: Runs,
    mass: float,
    *,
    com: Sequence[float] | Float[np.ndarray, "3"] | None = None,
    frame: str | None = None,
    gains: Sequence[float] | Float[np.ndarray, " n"] | None = None,
    friction: FrictionModel | None = None,
    own_friction: bool = False,
    filters: Filters | None = None,
) -> DriveGains:
    """Calibrate the gains of all drives from runs with and without a payload of known mass.

    The arm's parameters pi, its friction, the payload's parameters p other than its mass, and one gain k_j per joint
    are fitted together:

        i_j = (Y_j pi + s Y_P,j p) / k_j + friction_j,    p_1 = mass.

    Here i_j is the current of joint j, Y_j and Y_P,j are the regressor rows of arm and payload, and s is 1 in loaded
    runs and 0 in the others. All noise is assumed to be in the currents, in which case weighted least squares gives the
    maximum-likelihood estimate.

    Motion alone determines the ratios of the gains, because all joints share the arm's parameters; only the known
    payload determines their scale. If the runs do not determine a gain to within 10 %, its factor is the geometric mean
    of the determined factors. This preserves the nominal ratio of this gain to the others.

    Standard deviations come from the jackknife of `solve`. They do not include errors caused by a wrong
    mass, an inadequate friction model, or parts of the payload that were not weighed, such as a flange and its screws.

    Args:
        arm: the arm; only its kinematics, gravity, springs and the form of its friction are used.
        unloaded: one or more runs without the payload. The logged torques are either currents, or currents
            multiplied by nominal gains.
        loaded: one or more runs with the payload; their motion may differ from that of the unloaded runs.
        mass: mass of the payload [kg].
        com: the payload's centre of mass in `frame`, if known [m].
        frame: link or frame that carries the payload; by default the tip.
        gains: nominal gains by which the logged currents were multiplied, one per joint [N m/A or N/A]; by default 1.
        friction: friction model whose coefficients are fitted, as in `identify_payload`.
        own_friction: as in `identify_payload`.
        filters: as in `preprocess`, the same for all runs; by default chosen from the first run.

    Raises:
        IdentificationError: the logs do not match the chain, loaded or unloaded runs are missing, a run is passed both as
            loaded and unloaded, the mass is not positive, the number of gains differs from the number of joints,
            or the payload's torque is too small to determine any gain.
        LogError: a log seems to be in degrees (`check_log`) or is too short to be filtered, or a filter setting is invalid.

    Cost: about 3 s for two runs of 5000 samples with 6 joints, after compilation.
    """
    if not mass > 0:
        raise IdentificationError(f"the payload's mass is {mass:g} kg; it must be positive")
    chain = arm.chain if isinstance(arm, TorqueModel) else arm
    n = chain.nv
    listed = np.ones(n) if gains is None else np.asarray(gains, float)
    if listed.shape != (n,):
        raise IdentificationError(f"there are {listed.size} gains for {n} joints; specify one per joint")
    with jax.enable_x64(True):
        runs, notes = loaded_runs(arm, unloaded, loaded, frame, friction, own_friction, filters)
        known, free = given_body(mass, com)
        together = np.ones((n, 1))
        one = runs.fit(known, free, together)
        shared = float(np.sqrt(one.covariance[10, 10]))
        if not one.determined[10] or not shared < 0.5:
            raise IdentificationError(
                "the payload's torque is too small, relative to the noise, to determine any gain: the common factor has a "
                f"relative standard deviation of {100 * shared:.3g} %. Use a heavier payload, or vary its lever arm"
            )
        determined = np.ones(n, bool)
        while True:
            ties = np.eye(n)[:, determined] if determined.any() else together
            if determined.any() and not determined.all():
                ties[~determined] = 1 / determined.sum()
            found = runs.fit(known, free, ties, one)
            sd = np.where(found.determined[10:], np.sqrt(np.diag(found.covariance)[10:]), np.inf)
            worst = int(np.argmax(np.where(determined, sd, -1.0)))
            if not determined.any() or sd[worst] <= LARGEST_DEVIATION:
                break
            determined[worst] = False
        torque = runs.payload_torque(found)
    scale, units = np.exp(found.gains), torque_units(chain)
    for j in np.flatnonzero(~determined):
        notes.append(
            f"{coordinate_names(chain)[j]}: the runs do not determine its gain to within {100 * LARGEST_DEVIATION:g} % (the "
            f"payload's torque on this joint is {torque[j]:.3g} {units[j]} RMS); its nominal ratio to the other gains is kept"
        )
    return DriveGains(
        factors=scale,
        covariance=found.covariance[10:, 10:],
        gains=scale * listed,
        determined=determined,
        common=float(np.exp(one.gains[0])),
        common_deviation=float(np.exp(one.gains[0]) * shared),
        payload=found.payload,
        payload_torque=torque,
        noise=found.estimate.noise * scale,
        notes=tuple(notes),
    )


def given_body(
    mass: float, com: Sequence[float] | Float[np.ndarray, "3"] | None
) -> tuple[Float[np.ndarray, "10"], Float[np.ndarray, "10 z"]]:
    """Vector `known` and matrix `free` in p = known + free @ z, for a known mass and, optionally, centre of mass."""
    known = np.zeros(10)
    known[0] = mass
    if com is None:
        return known, np.eye(10)[:, 1:]
    centre = np.asarray(com, float)
    if centre.shape != (3,) or not np.all(np.isfinite(centre)):
        raise IdentificationError(f"the payload's centre of mass is {com}; specify three coordinates in metres")
    known[1:4] = mass * centre
    return known, np.eye(10)[:, 4:]


def with_gains(log: Log, gains: DriveGains) -> Log:
    """Return a copy of the log with torques multiplied by the calibrated factors.

    Args:
        log: the log.
        gains: result of `calibrate_gains`.

    Raises:
        IdentificationError: the log and the gains have different numbers of joints.
    """
    if log.n != len(gains.factors):
        raise IdentificationError(f"{log.source}: the log has {log.n} joints, but there are {len(gains.factors)} gains")
    listed = ", ".join(f"{x:.4g}" for x in gains.factors)
    return dataclasses.replace(
        log,
        tau=log.tau * gains.factors,
        notes=(*log.notes, f"torques were multiplied by the calibrated factors {listed}"),
    )


# -- payload


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Payload(Summary):
    """An identified payload, expressed in the frame named `frame`.

    Attributes:
        frame: link or frame in which all quantities are expressed.
        parameters: estimated mass m, first moments m c, and moments and products of inertia Ixx, Ixy, Iyy, Ixz, Iyz,
            Izz about the frame's origin [kg, kg m, kg m^2].
        covariance: covariance of the parameters, including the uncertainty of gains passed as `DriveGains`.
        determined: True for parameters that the runs determine. The others are NaN in `parameters` and in all
            quantities derived from them.
        body: the physically consistent parameters that fit the runs best, with the arm and friction fitted beside them;
            where the runs determine nothing, those of a sphere. It equals `parameters` if they are all determined and
            consistent.
        consistent: True if `parameters` are physically consistent.
        payload_torque: RMS torque of the payload on each joint [N m or N].
        noise: standard deviation of each joint's residual torque [N m or N].
        held_out: RMS error of each joint's torque in the last 30 % of the loaded runs, predicted by a fit to the rest
            [N m or N]; None if the rest does not determine the parameters.
        notes: remarks for the user.
        calibrated: True if gains from `calibrate_gains` were used. Otherwise the torque scale is assumed to be exact,
            and its error is not included in the standard deviations; a scale error of 1 % shifts the mass by 1 %.
        degrees: degrees of freedom of the covariance, for Student's t.
    """

    frame: str
    parameters: Float[np.ndarray, "10"]
    covariance: Float[np.ndarray, "10 10"]
    determined: Bool[np.ndarray, "10"]
    body: Float[np.ndarray, "10"]
    consistent: bool
    payload_torque: Float[np.ndarray, " n"]
    noise: Float[np.ndarray, " n"]
    held_out: Float[np.ndarray, " n"] | None
    notes: tuple[str, ...]
    calibrated: bool = False
    degrees: float = np.inf

    def __repr__(self) -> str:
        centre = (f"{x:.4g} +- {d:.2g}" for x, d in zip(self.com, self.com_deviations, strict=True))
        return lines(
            f"Payload: {self.mass:.4g} +- {self.standard_deviations[0]:.2g} kg{self.scale_caveat} in the frame {self.frame}",
            f"centre of mass ({', '.join(centre)}) m",
            *self.notes,
        )

    @property
    def scale_caveat(self) -> str:
        """Caveat that the mass depends on the gains if they were not calibrated; otherwise an empty string."""
        if self.calibrated:
            return ""
        shift = f"{0.01 * abs(self.mass):.2g} kg" if self.determined[0] else "1 %"
        return f" if the gains are exact (they were not calibrated: an error of 1 % shifts the mass by {shift})"

    @property
    def standard_deviations(self) -> Float[np.ndarray, "10"]:
        """Standard deviations of the ten parameters [kg, kg m, kg m^2]."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def mass(self) -> float:
        """Mass [kg]."""
        return float(self.parameters[0])

    @property
    def com(self) -> Float[np.ndarray, "3"]:
        """Centre of mass, expressed in `frame` [m]."""
        return self.parameters[1:4] / self.mass

    @property
    def com_deviations(self) -> Float[np.ndarray, "3"]:
        """Standard deviations of the centre of mass, to first order [m]."""
        c, v = self.covariance, self.com
        return np.sqrt(np.diag(c)[1:4] - 2 * v * c[0, 1:4] + v**2 * c[0, 0]) / abs(self.mass)

    @property
    def inertia(self) -> Float[np.ndarray, "3 3"]:
        """Rotational inertia about the centre of mass, along the axes of the frame [kg m^2]."""
        return _about_com(self.parameters)

    @property
    def inertia_deviations(self) -> Float[np.ndarray, "3 3"]:
        """Standard deviations of the inertia about the centre of mass, to first order [kg m^2]."""
        p, covariance = self.parameters, np.where(np.isfinite(self.covariance), self.covariance, 0.0)
        ends = [[_about_com(p + sign * d) for sign in (1, -1)] for d in np.diag(np.full(10, 1e-6))]
        slope = np.array([(a - b) / 2e-6 for a, b in ends])  # (10, 3, 3)
        known = np.isfinite(_about_com(p))
        slope = np.where(known, slope, 0.0)
        variance = np.einsum("iab,ij,jab->ab", slope, covariance, slope)
        return np.where(known, np.sqrt(np.maximum(variance, 0)), np.nan)


def identify_payload(
    arm: Chain | TorqueModel,
    loaded: Runs,
    *,
    unloaded: Runs = (),
    frame: str | None = None,
    gains: DriveGains | None = None,
    friction: FrictionModel | None = None,
    own_friction: bool = False,
    filters: Filters | None = None,
) -> Payload:
    """Identify the ten inertial parameters of a payload from runs with it, and from runs without it or an arm's model.

    With unloaded runs, a single fit to all runs yields the payload as their difference:

        tau_j = Y_j pi + s Y_P,j p + friction_j,    s = 1 in loaded runs, 0 in the others.

    All runs share the arm's base parameters pi; p are the payload's parameters. Y is the regressor of the arm, and Y_P
    contains the columns of the link that carries the payload (Khalil, Gautier & Lemoine 2007). The runs may differ in
    motion, length and time stamps, because nothing is subtracted sample by sample. Of the arm, only kinematics, gravity,
    springs and the form of its friction are used.

    Without unloaded runs, Y_j pi is the torque that the arm's model predicts without friction. Errors of this model are
    attributed to the payload and are not included in the standard deviations.

    In both cases, friction is a sum of columns whose coefficients are fitted again, because friction changes from day to
    day. The columns are those of the `TorqueModel` that `identify` found, with its widths, memory and temperatures, and a
    term proportional to the load if there is none, which now includes the payload. Without this term, payload estimates on
    geared arms are wrong by several percent.

    All runs are fitted by `solve`, with its weights and the standard deviations of its jackknife.

    Args:
        arm: the arm's model, from `identify` (`Identification.model`), a file, or only its kinematics if there are unloaded
            runs. A delay of the model's logs (`TorqueModel.delay`) is removed from these logs too.
        loaded: one or more runs with the payload.
        unloaded: runs without the payload.
        frame: link or frame that carries the payload and in which the result is expressed; by default the tip.
        gains: result of `calibrate_gains`; the logged torques are multiplied by its factors.
        friction: another friction model, with given nonlinear parameters; for an arm without a friction model, the default
            is viscous, Coulomb, constant and load-dependent friction.
        own_friction: True to fit the coefficients of friction separately for each run, for example because the temperature
            changed between runs.
        filters: as in `preprocess`, the same for all runs; by default chosen from the first run.

    Raises:
        IdentificationError: the logs do not match the arm or have too few samples; there are no loaded runs; a run is passed
            both as loaded and unloaded; or there are no unloaded runs, and the arm has no inertias.
        LogError: a log seems to be in degrees (`check_log`) or is too short to be filtered, or a filter setting is invalid.

    Cost: about 3 s for two runs of 5000 samples with 6 joints, after compilation.
    """
    chain = arm.chain if isinstance(arm, TorqueModel) else arm
    known = not isinstance(unloaded, Log | Samples) and not len(unloaded)
    if known and not np.any(np.asarray(chain.inertia)):
        raise IdentificationError(
            "the model has no inertials, so all torque would be attributed to the payload; identify the arm first, or pass a "
            "run without the payload as well"
        )
    n = chain.nv
    if gains is not None and len(gains.factors) != n:
        raise IdentificationError(f"there are gains for {len(gains.factors)} joints, but the model has {n}")
    with jax.enable_x64(True):
        runs, notes = loaded_runs(
            arm, unloaded, loaded, frame, friction, own_friction, filters, known=known, gains=gains and gains.factors
        )
        found = runs.fit(np.zeros(10), np.eye(10), np.zeros((n, 0)))
        covariance, determined = found.covariance[:10, :10], found.determined[:10]
        if gains is not None:
            slopes = runs.slopes(found)
            covariance = covariance + slopes @ gains.covariance @ slopes.T
        possible = bool(determined.all() and np.linalg.eigvalsh(_pseudo(found.payload))[0] >= 0)
        body = found.payload if possible else runs.consistent_body(found)
        held_out, torque = runs.held_out(found), runs.payload_torque(found)
    if known:
        notes.append(_assumed_gains(gains))
    if determined[0] and found.payload[0] < -SURELY * np.sqrt(covariance[0, 0]):
        cause = "does the arm's model contain a payload?" if known else "were runs with and without it exchanged?"
        notes.append(f"the payload's mass is negative: {cause}")
    parameters = np.where(determined, found.payload, np.nan)
    covariance = np.where(np.outer(determined, determined), covariance, np.nan)
    if not determined.all():
        lost = ", ".join(name for name, there in zip(INERTIAL_NAMES, determined, strict=True) if not there)
        notes.append(f"the runs do not determine the payload's {lost} (except in combinations)")
        scale = np.where(determined, np.sqrt(np.diag(covariance)), np.inf)
        possible = bool((np.abs(body - parameters)[determined] < 0.01 * scale[determined] + 1e-6).all())
    if not possible:
        notes.append("the estimated parameters are not physically consistent; `body` is the nearest consistent set")
    return Payload(
        frame=frame if frame is not None else str(chain.topology.tip_name),
        parameters=parameters,
        covariance=covariance,
        determined=determined,
        body=body,
        consistent=possible,
        payload_torque=torque,
        noise=found.estimate.noise,
        held_out=held_out,
        notes=tuple(notes),
        calibrated=gains is not None,
        degrees=found.estimate.degrees,
    )


def _assumed_gains(gains: DriveGains | None) -> str:
    """Warning that the arm's model and the loaded runs must share their gains."""
    if gains is None:
        return "the gains were not calibrated: those of these runs must be the gains with which the arm's model was identified"
    change = float(np.abs(gains.factors - 1).max())
    return (
        f"the calibrated gains differ by up to {100 * change:.2g} % from those of the logs. If the arm's model was identified "
        "with the uncalibrated gains, its weight is wrong by as much, and the payload carries the difference: identify the "
        "arm from runs with the same calibrated gains (with_gains), or pass a run without the payload"
    )


def _pseudo(parameters: Float[np.ndarray, "10"]) -> Float[np.ndarray, "4 4"]:
    return np.asarray(pseudo_inertia(jnp.asarray(parameters)))


def _about_com(p: np.ndarray) -> np.ndarray:
    """Inertia about the centre of mass (3, 3), computed entry by entry so that NaN entries do not affect the others."""
    x, y, z = p[1:4]
    xx, xy, yy = p[4] - (y * y + z * z) / p[0], p[5] + x * y / p[0], p[6] - (x * x + z * z) / p[0]
    xz, yz, zz = p[7] + x * z / p[0], p[8] + y * z / p[0], p[9] - (x * x + y * y) / p[0]
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])

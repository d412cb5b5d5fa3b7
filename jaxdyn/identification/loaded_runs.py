"""Combined fit of runs with and without a payload: the regression behind payloads and drive gains.

All runs share the arm's parameters, the coefficients of friction and the payload's ten inertial parameters. The measured
torque of joint j is

    tau_j = (Y_j pi + s Y_P,j p) / c_j + F_j f,      s = 1 in loaded runs, 0 in the others,

where pi are the arm's base parameters, p are the payload's parameters in its frame, F contains the columns of a friction
model, and the gain c_j converts logged torques to newton metres. Y is the regressor of the arm, and Y_P contains the
columns of the link that carries the payload. All noise is assumed to be in tau, so weighted least squares gives the
maximum-likelihood estimate. A gain is a further column, the derivative of the prediction with respect to its logarithm."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from ..errors import IdentificationError, ModelError
from ..io.logs import Log, check_log
from ..model.chain import Chain, coordinate_names, frame_index
from ..spatial.inertia import inertial_parameters_from_com, transform_inertial_parameters
from .accumulate import accumulate_samples
from .base import BaseParameters, base_parameters, stacked, without_friction
from .consistency import no_constraints
from .consistent import ConsistentProblem, consistent_least_squares
from .defaults import BLOCKS
from .delay import RIGID
from .factors import BlockFactors, as_float64, check_identifiable, triangle_of, triangles_of
from .fit import HOLDOUT
from .friction_model import FrictionModel, usual_friction
from .friction_terms import Coulomb, LoadDependent, LoadedSlip, MaxwellSlip
from .knowledge import Known
from .least_squares import Estimate, solve
from .prediction import predict
from .preprocessing import Filters, Samples, repeated_motion
from .stretches import FullRun, prepared
from .torque_model import TorqueModel

Runs = Log | Samples | Sequence[Log | Samples]
PASSES = 8  # maximum number of passes; load-dependent friction uses the load from the previous pass
ROUNDS = 30  # maximum number of Gauss-Newton steps for the gains
GAIN_SPREAD = 0.7  # prior standard deviation of a log gain, which corresponds to a factor of two (log 2 = 0.7)
TOLERANCE = 1e-10  # relative singular value below which parameters are not determined separately
PRIOR_WEIGHT = 1e-3  # weight of the stand-in body, which decides only what the runs do not determine


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


@dataclasses.dataclass(frozen=True, eq=False)
class LoadedRuns:
    """Runs with and without a payload, prepared for fits; for use under `jax.enable_x64(True)`.

    Attributes:
        chain: the arm, in float64.
        link: index of the link that carries the payload.
        to_link: (10, 10) matrix that transforms the payload's parameters to the link's frame.
        arm: (10 n + n, a) the arm's parameters as a map from the unknown ones; a = 0 if they are known.
        friction: the friction model, whose coefficients are fitted.
        by_run: True to fit the coefficients of friction separately for each run.
        runs: the runs, at the log's rate and decimated.
        loaded: True for each run with the payload.
        given: known torques of each run: of the arm if it is known, of springs, motors and further columns.
        scale: (n,) factors by which the logged torques are multiplied.
        loads: torques of the known arm at the log's rate; zeros if it is unknown.
    """

    chain: Chain
    link: int
    to_link: Float[np.ndarray, "10 10"]
    arm: Float[np.ndarray, "p a"]
    friction: FrictionModel
    by_run: bool
    runs: tuple[FullRun, ...]
    loaded: Bool[np.ndarray, " runs"]
    given: tuple[Float[np.ndarray, "_ n"], ...]
    scale: Float[np.ndarray, " n"]
    loads: tuple[Float[np.ndarray, "_ n"], ...]

    @property
    def independence(self) -> float:
        """Smallest fraction of effectively independent samples among the runs."""
        return min(run.decimated.independence for run in self.runs)

    @property
    def payload(self) -> slice:
        """Place of the payload among the columns."""
        return slice(self.arm.shape[1], self.arm.shape[1] + 10)

    def accumulated(self, found: "LoadedFit | None") -> BlockFactors:
        """Triangular factors of [arm, payload, friction, known torque, torque], with friction under the loads of a fit."""
        data = []
        for run, given, load, on in zip(self.runs, self.given, self.loads, self.loaded, strict=True):
            s = run.samples
            if self.friction.needs_load and found is not None:
                held = self.arm @ found.values[: self.payload.start]
                held[10 * self.link : 10 * self.link + 10] += on * self.to_link @ found.payload
                load = load + predict(RIGID, self.chain, held, s.q, s.qd, s.qdd)
            weights = self.friction.known(s)[run.kept].astype(float)
            signals = np.concatenate([self.friction.signals(s, load)[run.kept], given[:, :, None]], axis=2)
            data.append((run.decimated, run.decimated.tau * self.scale, weights, signals))
        motion = repeated_motion([s for s, *_ in data])
        groups = motion and [motion.groups(k, s.t, BLOCKS) for k, (s, *_) in enumerate(data)]
        found_blocks = accumulate_samples(RIGID, self.chain, data, groups=groups)
        r, p = found_blocks.r, len(self.arm)
        of_run, body = found_blocks.runs[:, None, None, None], slice(10 * self.link, 10 * self.link + 10)
        beside = [r[..., :p] @ self.arm, r[..., body] @ self.to_link * self.loaded[of_run]]
        runs = range(len(self.runs)) if self.by_run else [of_run]
        beside += [r[..., p:-2] * (of_run == run) for run in runs]
        return with_rows(found_blocks, np.concatenate([*beside, r[..., -2:]], axis=3))

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
        found, spread = start, GAIN_SPREAD
        for turn in range(PASSES if self.friction.needs_load else 1):
            before, blocks = found, self.accumulated(found)
            found = fit_loads(blocks, self.payload, self.independence, known, free, ties, spread, before)
            if turn and before is not None:
                moved = np.abs(found.noise - before.noise).max() / max(found.noise.max(), 1e-300)
                scale = np.abs(found.gains - before.gains).max()
                if (moved < 1e-4 or found.noise.max() < 1e-9 * found.size) and scale < 1e-4:
                    break
        assert found is not None
        return found

    def held_out(self, found: "LoadedFit") -> Float[np.ndarray, " n"] | None:
        """RMS errors of the torques in the last 30 % of the loaded runs, predicted by a fit to the rest; None if impossible.

        If the runs repeat a motion, the last 30 % of the motion is held out from all of them.
        """
        blocks = found.blocks
        late = late_part(blocks)
        chosen = late & self.loaded[blocks.runs]
        if late.all() or not chosen.any():
            return None
        try:
            n = blocks.r.shape[1]
            early = fit_loads(
                blocks.of(~late), self.payload, self.independence, np.zeros(10), np.eye(10), np.zeros((n, 0))
            )
        except IdentificationError:
            return None
        return blocks.of(chosen).total.joint_rms(np.arange(len(early.values)), early.values)

    def slopes(self, found: "LoadedFit") -> Float[np.ndarray, "10 n"]:
        """Derivatives of the payload's parameters with respect to the logarithms of factors of the joints' torques."""
        whole, n = found.blocks.by_run, found.blocks.r.shape[1]
        rows = whole.r / np.maximum(found.run_noise, 1e-300)[:, None, None]
        of_joint = np.tile(np.eye(n), (len(rows) // n, 1))
        right = (rows[:, :, -1:] * of_joint[:, None, :]).reshape(-1, n)
        left = rows[:, :, :-2].reshape(len(right), -1)
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
        r[:, -1] -= r[:, -2]
        others = [*range(at.start), *range(at.stop, r.shape[1] - 2)]
        rows = triangle_of(cleared(r, others, [*range(at.start, at.stop), -1]))
        mass = max(abs(float(found.payload[0])), 1e-3)
        sphere = inertial_parameters_from_com(jnp.asarray(mass), jnp.zeros(3), 0.4 * mass * 0.1**2 * jnp.eye(3))
        problem = ConsistentProblem(
            matrix=rows[:10, :10],
            values=rows[:10, 10],
            floor=0.5 * float(rows[10, 10] ** 2) if len(rows) > 10 else 0.0,
            prior=np.asarray(sphere, float),
            start=np.asarray(sphere, float),
            links=1,
            positive=np.zeros(10, bool),
            constraints=no_constraints(10),
            weight=PRIOR_WEIGHT,
        )
        return consistent_least_squares(problem, all_of(10)).parameters


@dataclasses.dataclass(frozen=True, eq=False)
class LoadedFit:
    """Result of a combined fit.

    Attributes:
        values: factors of all columns: arm, payload, friction, and 1 for the known torque.
        payload: (10,) the payload's parameters in its frame.
        gains: (n,) logarithms of the gain factors c.
        covariance: (10 + n, 10 + n) covariance of payload parameters and log gains, from the jackknife of the fit.
        determined: (10 + n,) True for payload parameters and gains that the runs determine.
        noise: (n,) standard deviations of the residuals, in the units of the given torques.
        estimate: the weighted least-squares estimate.
        blocks: the factors that were fitted.
    """

    values: Float[np.ndarray, " u"]
    payload: Float[np.ndarray, "10"]
    gains: Float[np.ndarray, " n"]
    covariance: Float[np.ndarray, "m m"]
    determined: Bool[np.ndarray, " m"]
    noise: Float[np.ndarray, " n"]
    estimate: Estimate
    blocks: BlockFactors

    @property
    def run_noise(self) -> Float[np.ndarray, " m"]:
        """Standard deviations of the residuals of each run and joint, in the order of `BlockFactors.by_run`."""
        own = self.noise if self.estimate.run_noise is None else self.estimate.run_noise
        return np.broadcast_to(own, (len(np.unique(self.blocks.runs)), len(self.noise))).reshape(-1)

    @property
    def size(self) -> float:
        """RMS torque of all rows [N m or N]."""
        whole = self.blocks.total
        return float(np.sqrt((whole.r[:, :, -1] ** 2).sum() / max(whole.counts.sum(), 1)))


def fit_loads(
    blocks: BlockFactors,
    at: slice,
    independence: float,
    known: Float[np.ndarray, "10"],
    free: Float[np.ndarray, "10 z"],
    ties: Float[np.ndarray, "n k"],
    spread: float = GAIN_SPREAD,
    start: "LoadedFit | None" = None,
) -> "LoadedFit":
    """Solve the regression by weighted least squares, with Gauss-Newton steps if gains are unknown.

    Args:
        blocks: factors of [arm, payload, friction, known torque, torque], as from `LoadedRuns.accumulated`.
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
        tau = blocks.r[..., -1] - blocks.r[..., -2] - rigid[..., at] @ known - (rigid @ body) * gains[:, None]
        beside = blocks.r[..., at.stop : -2], moving, tau[..., None]
        rows = np.concatenate([rigid[..., : at.start], rigid[..., at] @ free, *beside], axis=3)
        prior = np.zeros((n, rows.shape[3]))
        prior[:, -1 - k : -1] = ties / spread
        values, covariance, determined, estimate = _independent(
            with_rows(blocks, rows), independence, prior if k and turn else None
        )
        body = np.concatenate([values[: at.start], known + free @ values[z]])
        change = (
            ties @ values[len(values) - k :] - gains if turn else np.zeros(n)
        )  # at first, there is no torque to scale
        gains, turn = gains + np.clip(change, -0.5, 0.5), turn + 1
        if not k or (turn > 2 and np.abs(change).max() < 1e-6) or turn == ROUNDS:
            break
    outer = np.zeros((10 + n, len(values)))
    outer[:10, z], outer[10:, len(values) - k :] = free, ties
    return LoadedFit(
        values=np.concatenate([body, values[z.stop : len(values) - k], [1.0]]),
        payload=body[at],
        gains=gains,
        covariance=outer @ covariance @ outer.T,
        determined=~((np.abs(outer) > 0) @ ~determined),
        noise=estimate.noise,
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
) -> tuple[LoadedRuns, list[str]]:
    """Preprocess all runs with the same filters, and collect notes for the user; call under `jax.enable_x64(True)`.

    Args:
        known: True if the parameters of the arm are those of the model.
        gains: factors by which the logged torques are multiplied.

    Raises:
        IdentificationError: a run has the wrong number of joints, or there are no runs.
        LogError: a log looks as if it were in degrees (`check_log`).
    """
    model = arm if isinstance(arm, TorqueModel) else TorqueModel(arm)
    chain = model.chain
    link, pose = carrier(chain, frame)
    filters = filters or Filters()
    if filters.delay is None and model.delay is not None:
        filters = filters.but(delay=np.asarray(model.delay, float))
    groups = [[group] if isinstance(group, Log | Samples) else list(group) for group in (unloaded, loaded)]
    given = [run for group in groups for run in group]
    for k, run in enumerate(given):
        if run.n != chain.nv:
            name = run.source if isinstance(run, Log) else f"{'unloaded' if k < len(groups[0]) else 'loaded'} run"
            raise IdentificationError(
                f"{name}: the run has {run.n} joints, but the model has {chain.nv}: {', '.join(coordinate_names(chain))}"
            )
    given = [check_log(run, chain, allow_still=True) if isinstance(run, Log) else run for run in given]
    runs = prepared(given, filters, True)
    logs = (run for run, log in zip(runs, given, strict=True) if isinstance(log, Log))
    notes = [f"{run.decimated.source}: {note}" for run in logs for note in dict.fromkeys(run.decimated.notes)]
    if friction is None:
        friction = usual_friction(chain) if model.friction is None else _with_load(model.friction, chain.nv)
    rate, cutoff = runs[0].samples.rate, runs[0].samples.torque_cutoff
    friction = dataclasses.replace(friction, cutoff=cutoff if cutoff < rate / 2 else None)
    rest = dataclasses.replace(model, chain=without_friction(chain), friction=None, coefficients=None)
    if not known:  # only springs, motors and further columns
        none = dataclasses.replace(rest.chain, inertia=0 * chain.inertia, armature=0 * chain.armature)
        rest = dataclasses.replace(rest, chain=none)
    whole = as_float64(chain)
    torques = tuple(rest.predict(run.samples, run.kept, filtered=cutoff < rate / 2) for run in runs)
    parts = LoadedRuns(
        chain=whole,
        link=link,
        to_link=transform_matrix(pose),
        arm=np.eye(10 * chain.n + chain.n)[:, [] if known else base_parameters(chain, RIGID).kept],
        friction=friction,
        by_run=by_run,
        runs=tuple(runs),
        loaded=np.arange(len(runs)) >= len(groups[0]),
        given=torques,
        scale=np.ones(chain.nv) if gains is None else np.asarray(gains, float),
        loads=tuple(
            rest.predict(run.samples, filtered=False) if known else np.zeros_like(run.samples.qd) for run in runs
        ),
    )
    return parts, notes


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


def cleared(
    rows: Float[np.ndarray, "m w"], of: Int[np.ndarray, " j"] | list[int], rest: list[int]
) -> Float[np.ndarray, "m k"]:
    """Some columns of the rows, without what other columns, of any rank, can explain."""
    others = rows[:, of]
    u, s, _ = np.linalg.svd(others / np.maximum(np.linalg.norm(others, axis=0), 1e-300), full_matrices=False)
    u = u[:, s > TOLERANCE * s.max(initial=0)]
    found = rows[:, rest]
    return found - u @ (u.T @ found)


def _independent(
    blocks: BlockFactors, independence: float, prior: Float[np.ndarray, "k w"] | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Estimate]:
    """Values, covariance and mask of determined unknowns of factors with columns of any rank, and the estimate."""
    r = stacked(blocks.total)
    back, determined = independent_columns((r if prior is None else np.concatenate([r, prior]))[:, :-1])
    reduce = lambda rows: np.concatenate([rows[..., :-1] @ back, rows[..., -1:]], axis=-1)
    size = back.shape[1]
    known = None if prior is None else Known(np.zeros(size, bool), np.zeros(size), reduce(prior))
    estimate = solve(with_rows(blocks, reduce(blocks.r)), all_of(size), "weighted", independence, known)
    return back @ estimate.values, back @ estimate.covariance @ back.T, determined, estimate


def with_rows(blocks: BlockFactors, rows: Float[np.ndarray, "k n m w"]) -> BlockFactors:
    """The blocks with other columns, brought to triangular form."""
    return dataclasses.replace(blocks, r=np.stack([triangles_of(block) for block in rows]))


def all_of(size: int) -> BaseParameters:
    """A basis that contains every column."""
    names = tuple(f"x{k + 1}" for k in range(size))
    return BaseParameters(np.arange(size), np.eye(size), names, (), (), names)

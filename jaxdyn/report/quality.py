"""How accurate an identified model is: pooled torque errors, and figures per joint for torques, gravity, inertia and motion."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy import signal

from ..errors import IdentificationError
from ..identification.base import prior_parameters, with_parameters
from ..identification.filters import bandwidth
from ..identification.prediction import MOVING, Fit, fit_quality
from ..identification.result import Evaluation, Identification
from ..identification.torque_model import TorqueModel
from ..identification.validation import Resimulation, base_regressor, covariance_root, resimulate
from ..model.chain import Chain, coordinate_limits, layout, leading_joints, turning_joints

# settings of the figures; the thresholds that judge them are in `verdicts.LIMITS`
QUIET = 20  # percentile of the spectral density that is taken as the noise density
EXCUSED = 0.5  # largest fraction of the error's power that counts as noise
SMALL = 0.05  # relative errors refer to at least this fraction of the largest torque among joints of the same unit
GROUPS = 10  # groups of samples of similar speed, each with a tenth of the samples at which a joint moves
POSTURES, ROWS, LEAST_ROWS = 60, 600, 60
TURN = np.pi  # range to either side of the mean position, assumed for joints without limits [rad or m]
SLOW = 0.01  # a joint moves above this fraction of its speed limit, if that is less than `MOVING`
TRAVEL = 0.01  # a joint is tested only if it travels through this fraction of its range: its gravity torque then varies
TESTED_SECONDS = 1.0  # and only if it moves for as long as two windows of re-simulation [s]


class Together(NamedTuple):
    """Samples of several evaluations, concatenated, as arrays (N, n)."""

    q: np.ndarray
    qd: np.ndarray
    tau: np.ndarray
    prediction: np.ndarray

    @property
    def error(self) -> np.ndarray:
        """Measured minus predicted torques."""
        return self.tau - self.prediction


def together(evaluations: Sequence[Evaluation]) -> Together:
    """Concatenate the samples of several evaluations."""
    q, qd, tau = (np.concatenate([getattr(e.samples, name) for e in evaluations]) for name in ("q", "qd", "tau"))
    return Together(q, qd, tau, np.concatenate([e.prediction for e in evaluations]))


def measured_rows(evaluations: Sequence[Evaluation]) -> list[int]:
    """Coordinates whose torque was measured in every run."""
    return np.flatnonzero(~np.isnan(np.concatenate([e.samples.tau for e in evaluations])).any(0)).tolist()


def rms_where(x: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """RMS over the chosen samples of each joint, (n,); NaN if there are none."""
    return np.sqrt((x**2 * chosen).sum(0) / np.where(chosen.any(0), chosen.sum(0), np.nan))


def pooled(evaluations: Sequence[Evaluation], model: TorqueModel | None = None) -> Fit:
    """Errors over the samples of all evaluations, relative to the filtered torque: of their predictions, or of a model's."""
    data = together(evaluations)
    prediction = data.prediction if model is None else np.concatenate([e.predicted_by(model) for e in evaluations])
    return fit_quality(data.tau, prediction, data.qd)


def pooled_raw(evaluations: Sequence[Evaluation]) -> Fit | None:
    """Errors relative to the torques as logged, over the samples of all evaluations; None if logged torques are unknown."""
    known = [e.logged for e in evaluations if e.logged is not None]
    if not known or len(known) < len(evaluations):
        return None
    logged, predicted = (np.concatenate(x) for x in zip(*known, strict=True))
    return fit_quality(logged, predicted, np.concatenate([e.samples.qd for e in evaluations]))


def deviations_from(result: Identification, truth: Chain) -> np.ndarray:
    """Estimated minus true base parameters in units of the standard deviations, without those of a friction model."""
    rest = ~result.base.matrix[:, len(result.columns.of_state.names(truth.n)) :].any(axis=1)
    true = result.base.matrix @ prior_parameters(truth, result.columns)
    return ((result.estimate.values - true) / result.estimate.standard_deviations)[rest]


def torque_shares(result: Identification) -> tuple[Float[np.ndarray, " b"], Float[np.ndarray, " b"]]:
    """RMS torque of each base parameter, and of its standard deviation, both relative to the noise: (b,), (b,).

    The RMS torque of a parameter is its magnitude times the norm of its column, divided by the square root of the number of
    samples; each joint's rows are divided by the joint's noise. For residuals that are correlated only by the filter, the
    covariance is C = (W^T W / s^2)^-1, so the norms |W_k| / s are the square roots of the diagonal of C^-1.
    """
    spread, axes = np.linalg.eigh(result.estimate.independent_covariance)
    spread = np.maximum(spread, np.finfo(float).eps * spread[-1])
    samples = sum(len(e.samples) * e.samples.independence for e in result.fitted)
    norms = np.sqrt(((axes**2) / spread).sum(1) / samples)
    return np.abs(result.estimate.values) * norms, result.estimate.standard_deviations * norms


# -- torques


def torque_figures(result: Identification) -> dict[str, np.ndarray]:
    """Errors of predicted torques while a joint moves, on the held-out runs, or on the fitted runs if none were held out.

    A joint moves if |qd| exceeds 0.02 rad/s or m/s, or 1 % of its speed limit if that is less. Relative errors refer to the
    RMS of the measured torque, but at least to one twentieth of the largest torque among joints of the same unit.

    Returns:
        torque: (n,) relative error after subtraction of the noise power (`noise_share`).
        slow: (n,) relative error in the worst tenth of the samples at which the joint moves, sorted by speed, after
            subtraction of the same noise power. Errors of stiction, for example, hardly show in an average over the motion.
        speeds: (2, n) lowest and highest speed of this tenth [rad/s or m/s].
        unseen: (n,) error relative to that on the fitted runs.
        still: (n,) error at rest relative to that in motion; zero for joints that hardly rest.
        untested: (n,) 1 for joints with measured torque that hardly move (`moved_enough`), whose other figures are NaN.
    """
    held, chain = result.validation or result.fitted, result.chain
    tested, noise, data = moved_enough(chain, held), noise_share(held), together(held)
    least = np.where(tested, 1.0, np.nan)
    error, torque = (least * x for x in _while_moving(chain, held))
    scale = np.maximum(floored(torque, chain), 1e-300)
    slow, speeds = _worst_tenth(chain, held)
    fast = np.abs(data.qd) > MOVING
    moving, resting = (rms_where(data.error, chosen) for chosen in (fast, ~fast))
    rests = with_drive(chain) & (fast.mean(0) < 0.95)
    return {
        "torque": error / scale * np.sqrt(1 - noise),
        "slow": np.sqrt(np.maximum((least * slow) ** 2 - noise * error**2, 0.0)) / scale,
        "speeds": speeds,
        "unseen": error / np.maximum(_while_moving(chain, result.fitted)[0], 1e-300),
        "still": np.where(rests & (moving > 0), resting / np.where(moving > 0, moving, 1.0), 0.0),
        "untested": 1.0 * (np.isfinite(data.tau).any(axis=0) & ~tested),
    }


def _while_moving(chain: Chain, evaluations: Sequence[Evaluation]) -> tuple[np.ndarray, np.ndarray]:
    """RMS error and RMS torque of each joint while it moves."""
    data = together(evaluations)
    moves = (np.abs(data.qd) > moving_speed(chain)) | ~with_drive(chain)
    return rms_where(data.error, moves), rms_where(data.tau, moves)


def _worst_tenth(chain: Chain, evaluations: Sequence[Evaluation]) -> tuple[np.ndarray, np.ndarray]:
    """Largest RMS error (n,) among ten groups of equal size from slow to fast motion, and the speeds (2, n) of this group."""
    data = together(evaluations)
    speed, slowest = np.abs(data.qd), moving_speed(chain)
    errors, speeds = np.full(chain.nv, np.nan), np.full((2, chain.nv), np.nan)
    for j in range(chain.nv):
        moves = np.flatnonzero(speed[:, j] > slowest[j])
        if len(moves) >= GROUPS:
            groups = np.array_split(moves[np.argsort(speed[moves, j])], GROUPS)
            each = [np.sqrt(np.mean(data.error[rows, j] ** 2)) for rows in groups]
            worst = groups[int(np.argmax(each))]
            errors[j], speeds[:, j] = max(each), speed[worst[[0, -1]], j]
    return errors, speeds


def floored(torque: Float[np.ndarray, " n"], chain: Chain) -> Float[np.ndarray, " n"]:
    """Torques, but at least one twentieth of the largest one among joints of the same unit: small ones matter little."""
    turns = turning_joints(chain)[leading_joints(chain)]
    largest = np.array([np.nan_to_num(torque)[turns == one].max() for one in turns])
    return np.fmax(torque, SMALL * largest)


def moving_speed(chain: Chain) -> Float[np.ndarray, " n"]:
    """Speed above which each coordinate moves: `MOVING`, or 1 % of its speed limit if that is less [rad/s or m/s]."""
    limit = coordinate_limits(chain)["velocity"]
    return np.where(limit > 0, np.minimum(MOVING, SLOW * limit), MOVING)


def moved_enough(chain: Chain, evaluations: Sequence[Evaluation]) -> Bool[np.ndarray, " n"]:
    """Mask of the coordinates that move for at least one second in all, through at least 1 % of their range.

    Coordinates without a drive, such as those of a free base, always count as moved.
    """
    data, where, limits = together(evaluations), layout(chain), coordinate_limits(chain)
    seconds = np.sum(
        [(np.abs(e.samples.qd) > moving_speed(chain)).sum(0) / e.samples.rate for e in evaluations], axis=0
    )
    span = limits["upper"] - limits["lower"]
    least = TRAVEL * np.where(np.isfinite(span), span, 0.0)
    travel = np.zeros(chain.nv)
    travel[where.columns] = np.ptp(data.q[:, where.entries], axis=0)
    return ~with_drive(chain) | ((seconds >= TESTED_SECONDS) & (travel >= least))


def with_drive(chain: Chain) -> Bool[np.ndarray, " nv"]:
    """Mask of the coordinates of joints that can have friction, which excludes those of a free base."""
    return np.isin(np.arange(chain.nv), layout(chain).columns)


def noise_share(evaluations: Sequence[Evaluation]) -> Float[np.ndarray, " n"]:
    """Fraction of the residual's power that is noise, (n,), from the spectral density above the motion's band.

    Model errors lie within the motion's band, which contains 99 % of the power of the velocities. Between 1.5 times the
    upper limit of this band and 0.8 times the low-pass cutoff, the residual consists of noise and of friction at
    reversals. Only noise has a flat spectrum, so the 20th percentile of the density over these frequencies is taken as
    the noise density. The fraction is limited to one half, and is zero if the frequency range is empty.
    """
    noise, total = 0.0, 0.0
    for e in evaluations:
        s = e.samples
        residual, moved = s.tau - e.prediction, bandwidth(s.q, s.rate)
        for a, b in s.segments or ((0, len(s)),):
            if b - a < 64:
                continue
            f, density = signal.welch(residual[a:b], s.rate, nperseg=min(b - a, 256), axis=0, detrend="constant")
            quiet = (f > 1.5 * moved) & (f < 0.8 * s.torque_cutoff)
            if quiet.sum() >= 4:
                noise = noise + (b - a) * np.percentile(density[quiet], QUIET, axis=0) * 0.9 * s.torque_cutoff
            total = total + (residual[a:b] ** 2).sum(0)
    return np.clip(noise / np.maximum(total, 1e-300), 0.0, EXCUSED) * np.ones(evaluations[0].samples.n)


# -- gravity and inertia


def determination_in_use(result: Identification) -> dict[str, Float[np.ndarray, " n"]]:
    """Uncertainty of torques at rest and of the mass matrix, from the residuals and the covariance of the base parameters.

    Standard deviations are averaged over 60 postures within the joint limits, or within pi of the run's mean position for
    joints without limits. Quaternions are taken from the run.

    Returns:
        position: RMS of the position-dependent part of a joint's torque error, which is caused by errors of gravity,
            springs, counterbalances or cables: the part that functions of position explain in addition to friction. These
            functions are the joint's regressor at rest, and harmonics and powers of the joint position. It is relative to
            the RMS torque, but at least to one twentieth of the largest RMS torque; NaN for joints without measured torque.
        rest: standard deviation of the torque at rest within the joint limits, relative to the RMS of that torque or to the
            logged torque (with the same floor), whichever is greater; NaN if unmeasured forces act.
        inertia: standard deviation of the diagonal entries of the mass matrix, relative to their means; NaN if unmeasured
            forces act.
    """
    chain, n, where = result.chain, len(result.rows), layout(result.chain)
    rows = lambda q, qdd: base_regressor(result.prior, result.columns, result.base, q, np.zeros_like(qdd), qdd)
    data = together(result.validation or result.fitted)
    some = np.unique(np.linspace(0, len(data.q) - 1, min(ROWS, len(data.q))).astype(int))
    q, qd, error = data.q[some], data.qd[some], data.error[some]
    size = np.nan_to_num(np.sqrt((data.tau**2).mean(0)))  # unmeasured torques count as zero
    size = np.where(size > 0, floored(size, chain), 0.0)
    still, own = rows(q, np.zeros_like(qd)), np.zeros((len(q), chain.nv))  # quaternion joints have no own position
    own[:, where.columns] = q[:, where.entries]
    position = np.array([_explained(still[:, j], own[:, j], qd[:, j], error[:, j]) for j in range(n)])
    position /= np.where(size > 0, size, np.nan)
    if result.has_unmeasured_forces:  # base parameters then refer to combinations of rows without these forces
        return {"position": position, "rest": np.full(n, np.nan), "inertia": np.full(n, np.nan)}
    postures = _postures(result, q)
    rest = rows(postures, np.zeros((len(postures), n)))
    b = rest.shape[2]  # without the base parameters of a friction model
    root = covariance_root(result.estimate.covariance[:b, :b])
    # torques of the links only: tau = W p = W_b (B p) for any parameters p, with base parameters B p
    bodies = result.base.matrix[:b, : 10 * chain.n] @ result.parameters[: 10 * chain.n]
    weight, inertia, spread = rest @ bodies, np.empty(n), np.empty(n)
    s = np.eye(n) if chain.coupling is None else np.asarray(chain.coupling.matrix, float)
    armature = (s**2).T @ np.asarray(chain.armature, float)
    for j in range(n):
        alone = rows(postures, np.broadcast_to(np.eye(n)[j], (len(postures), n)))[:, j] - rest[:, j]
        inertia[j] = (alone @ bodies).mean() + armature[j]
        spread[j] = np.sqrt(((alone @ root) ** 2).sum(1).mean())
    gravity = np.sqrt(((rest @ root) ** 2).sum(2).mean(0)) / np.maximum(np.sqrt((weight**2).mean(0)), size + 1e-300)
    return {"position": position, "rest": gravity, "inertia": spread / np.maximum(np.abs(inertia), 1e-300)}


def cost_of_consistency(result: Identification) -> Float[np.ndarray, " n"]:
    """Increase of the torque error by physical consistency, relative to the unconstrained estimate's error; NaN without."""
    if not result.consistent:
        return np.full(len(result.rows), np.nan)
    evaluations = result.validation or result.fitted
    counts = [e.unconstrained.samples for e in evaluations]
    free = np.sqrt(np.average([e.unconstrained.rms**2 for e in evaluations], axis=0, weights=counts))
    return pooled(evaluations).rms / np.maximum(free, 1e-300) - 1


def _postures(result: Identification, q: Float[np.ndarray, "N nq"]) -> Float[np.ndarray, "60 nq"]:
    rng, where, limits = np.random.default_rng(0), layout(result.prior), coordinate_limits(result.prior)
    own = q[:, where.entries]
    middle = own.mean(0)
    low, high = (
        np.where(np.isfinite(x := limits[side][where.columns]), x, middle + d)
        for side, d in (("lower", -TURN), ("upper", TURN))
    )
    low = np.minimum(np.maximum(low, middle - TURN), own.min(0))
    high = np.maximum(np.minimum(high, middle + TURN), own.max(0))
    found = q[np.linspace(0, len(q) - 1, POSTURES).astype(int)]
    found[:, where.entries] = low + (high - low) * rng.uniform(size=(POSTURES, len(low)))
    return found


def _explained(still: np.ndarray, q: np.ndarray, qd: np.ndarray, error: np.ndarray) -> float:
    """RMS of the part of a moving joint's error that functions of position explain in addition to friction [N m or N]."""
    moves = np.abs(qd) > MOVING  # at rest, dry friction can have any value
    if moves.sum() < LEAST_ROWS:
        return 0.0
    still, q, qd, error = still[moves], q[moves], qd[moves], error[moves]
    x = (q - q.mean()) / max(float(np.ptp(q)), 1e-9)
    own = np.stack([np.ones_like(x), x, x**2, x**3, np.sin(2 * q), np.cos(2 * q)], axis=1)
    clear = np.linalg.qr(np.stack([qd, np.tanh(qd / MOVING)], axis=1))[0]
    columns, error = (y - clear @ (clear.T @ y) for y in (np.concatenate([own, still], axis=1), error))
    u, s, _ = np.linalg.svd(columns / np.maximum(np.linalg.norm(columns, axis=0), 1e-12), full_matrices=False)
    return float(np.linalg.norm(u[:, s > 1e-2 * s[0]].T @ error) / np.sqrt(len(error)))


# -- the given model


class AgainstPrior(NamedTuple):
    """Errors of the identified and the given model on the same samples, which are held-out samples if there are any.

    Attributes:
        identified: errors of the identified model.
        given: errors of the unchanged given model, including its friction, if any.
        driven: errors of the given inertias with the identified drive terms (friction, armature, offset), which like
            those of the identified model come from a fit without the held-out samples.
    """

    identified: Fit
    given: Fit
    driven: Fit


def against_prior(result: Identification) -> AgainstPrior | None:
    """The errors of both models, relative to the filtered torque; None if the given model has no inertias."""
    if not np.any(np.asarray(result.prior.inertia)):
        return None
    evaluations, model = result.validation or result.fitted, result.validated_model
    mixed = np.array(prior_parameters(model.chain, result.columns))
    mixed[: 10 * result.chain.n] = np.asarray(result.prior.inertia, float).reshape(-1)
    driven = dataclasses.replace(model, chain=with_parameters(result.prior, result.columns, mixed))
    given = TorqueModel(result.prior).filtered(result.model.cutoff)
    return AgainstPrior(pooled(evaluations), pooled(evaluations, given), pooled(evaluations, driven))


# -- motion

Simulated = tuple[Evaluation, Resimulation]


def resimulated(model: TorqueModel, evaluations: Sequence[Evaluation]) -> list[Simulated]:
    """Evaluations that are long enough for at least one simulation window, each with its re-simulation.

    The state of friction with memory is computed from the start of the run. The list is empty for robots with a free
    base or spherical joints, because a robot with a free base falls over under the smallest torque error. The list is
    also empty if unmeasured forces act, such as those that close a loop.
    """
    if model.chain.topology.has_curved_joints or any(e.with_forces is not None for e in evaluations):
        return []
    found = []
    for e in evaluations:
        memory = None if e.run is None else model.memory(e.run)[e.rows]
        try:
            found.append((e, resimulate(model, e.samples, memory=memory)))
        except IdentificationError:  # shorter than a window
            continue
    return found


def simulated_against_coasting(chain: Chain, found: Sequence[Simulated]) -> Float[np.ndarray, " n"]:
    """RMS error of re-simulated positions relative to that of a coasting robot in the worst run, (n,).

    A coasting robot keeps its initial velocity. The ratio is infinite if the simulation diverges, and NaN for joints
    that move enough in no run.
    """
    ratios = [np.full(chain.nv, np.nan)]
    for evaluation, run in found:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            ratio = run.rms / run.coasting_rms
        ratio = np.where(np.isfinite(ratio), ratio, np.inf)
        ratios.append(np.where(moved_enough(chain, [evaluation]), ratio, np.nan))
    return np.fmax.reduce(ratios)


def all_figures(result: Identification, prior: AgainstPrior | None, runs: Sequence[Simulated]) -> dict[str, np.ndarray]:
    """All figures of a verdict by their names in `verdicts.LIMITS`, with those of `torque_figures`; NaN where unknown.

    Args:
        prior: the errors beside the given model.
        runs: the re-simulated runs.
    """
    unknown = np.full(len(result.rows), np.nan)
    moved = np.max([run.coasting_rms for _, run in runs], axis=0) if runs else unknown
    given = unknown
    if prior is not None:
        given = np.where(
            np.isnan(prior.identified.relative), np.nan, prior.identified.rms / np.maximum(prior.given.rms, 1e-300)
        )
    return {
        **torque_figures(result),
        **determination_in_use(result),
        "simulated": simulated_against_coasting(result.chain, runs),
        "play": unknown if result.play is None else result.play / np.maximum(moved, 1e-300),
        "given": given,
        "cost": cost_of_consistency(result),
    }

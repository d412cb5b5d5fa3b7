"""Quantities shared by the report and the summary: pooled errors, units, and the precision of each parameter.

Accuracy of an identified model at each joint: torques, gravity, inertia and simulated motion."""

import dataclasses
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy import signal

from ..errors import IdentificationError
from ..identification.base import prior_parameters
from ..identification.filters import bandwidth
from ..identification.prediction import MOVING, Fit, fit_quality
from ..identification.result import Evaluation, Identification
from ..identification.torque_model import TorqueModel
from ..identification.validation import Resimulation, base_regressor, covariance_root, resimulate
from ..model.chain import Chain, coordinate_limits, layout, leading_joints, turning_joints

GOOD, FAIR = (
    10.0,
    30.0,
)  # largest relative standard deviations [%] of well determined and of fairly determined parameters


def determination(relative: float) -> Literal["well", "fairly", "poorly"]:
    """How well a parameter with the given relative standard deviation [%] is determined, as a word."""
    return "well" if relative <= GOOD else "fairly" if relative <= FAIR else "poorly"


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

    @property
    def moves(self) -> np.ndarray:
        """Mask of the samples at which the joint moves."""
        return np.abs(self.qd) > MOVING


def together(evaluations: Sequence[Evaluation]) -> Together:
    """Concatenate the samples of several evaluations."""
    q, qd, tau = (np.concatenate([getattr(e.samples, name) for e in evaluations]) for name in ("q", "qd", "tau"))
    return Together(q, qd, tau, np.concatenate([e.prediction for e in evaluations]))


def measured_rows(evaluations: Sequence[Evaluation]) -> list[int]:
    """Coordinates whose torque was measured in every run."""
    tau = np.concatenate([e.samples.tau for e in evaluations])
    return [j for j, x in enumerate(tau.T) if not np.isnan(x).any()]


def rms_where(x: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """RMS over the chosen samples of each joint, (n,); NaN if there are none."""
    return np.sqrt((x**2 * chosen).sum(0) / np.where(chosen.any(0), chosen.sum(0), np.nan))


def pooled(evaluations: Sequence[Evaluation]) -> Fit | None:
    """Errors over the samples of all evaluations; None if there are no evaluations."""
    if not evaluations:
        return None
    data = together(evaluations)
    return fit_quality(data.tau, data.prediction, data.qd)


def pooled_raw(evaluations: Sequence[Evaluation]) -> Fit | None:
    """Errors relative to the torques as logged, over the samples of all evaluations; None if logged torques are unknown."""
    known = [e.logged for e in evaluations if e.logged is not None]
    if not known or len(known) < len(evaluations):
        return None
    logged, predicted = (np.concatenate(x) for x in zip(*known, strict=True))
    return fit_quality(logged, predicted, np.concatenate([e.samples.qd for e in evaluations]))


def pooled_unconstrained(evaluations: Sequence[Evaluation]) -> np.ndarray:
    """RMS errors with the unconstrained base parameters, (n,), over the samples of all evaluations."""
    counts = [e.unconstrained.samples for e in evaluations]
    return np.sqrt(np.average([e.unconstrained.rms**2 for e in evaluations], axis=0, weights=counts))


def torque_units(chain: Chain) -> tuple[str, ...]:
    """Unit of the torque of each joint (coordinate): N m, or N for prismatic joints."""
    return tuple("N m" if turns else "N" for turns in turning_joints(chain)[leading_joints(chain)])


def position_units(chain: Chain) -> tuple[str, ...]:
    """Unit of the position of each joint (coordinate): rad, or m for prismatic joints."""
    return tuple("rad" if turns else "m" for turns in turning_joints(chain)[leading_joints(chain)])


def deviations_from(result: Identification, truth: Chain) -> np.ndarray:
    """Estimated minus true base parameters, (b,), in units of the estimates' standard deviations."""
    true = result.base.matrix @ prior_parameters(truth, result.columns)
    return (result.estimate.values - true) / result.estimate.standard_deviations


# -- accuracy

QUIET = 20  # percentile of the spectral density that is taken as the noise density
SMALL = 0.05  # relative errors refer to at least this fraction of the largest torque among joints of the same unit
GROUPS = 10  # groups of samples of similar speed, each with a tenth of the samples at which a joint moves
# the error in a group may be this multiple of the error that is allowed on the whole, i.e. 20 % for "good": it is up to 16 %
# on real arms whose error is below 10 % on the whole, and 24 % where stiction is not modelled
LOCAL = 2.0
EXCUSED = 0.5  # largest fraction of the error's power that counts as noise
POSTURES, ROWS, LEAST_ROWS = 60, 600, 60
TURN = np.pi  # range to either side of the mean position, assumed for joints without limits [rad or m]
SLOW = 0.01  # a joint moves above this fraction of its speed limit, if that is less than `MOVING`
TRAVEL = 0.01  # a joint is tested only if it travels through this fraction of its range: its gravity torque then varies
TESTED_SECONDS = 1.0  # and only if it moves for as long as two windows of re-simulation [s]


@dataclasses.dataclass(frozen=True, eq=False)
class TorqueAccuracy:
    """Errors of predicted torques while a joint moves; NaN for joints that are not tested (`moved_enough`).

    A joint moves if |qd| exceeds 0.02 rad/s or m/s, or 1 % of its speed limit if that is less.

    Attributes:
        error: (n,) RMS error [N m or N].
        torque: (n,) RMS of the measured torque [N m or N].
        scale: (n,) reference for relative errors: `torque`, but at least one twentieth of the largest torque among joints
            of the same unit [N m or N].
        fitted: (n,) RMS error on the fitted runs [N m or N].
        noise: (n,) fraction of the error's power that is noise, up to one half (`noise_share`).
        untested: (n,) True for joints with measured torque that hardly move (`moved_enough`).
        by_speed: (10, n) RMS error in each tenth of the samples at which the joint moves, from slow to fast [N m or N].
        speeds: (11, n) speeds that separate these tenths [rad/s or m/s].
    """

    error: Float[np.ndarray, " n"]
    torque: Float[np.ndarray, " n"]
    scale: Float[np.ndarray, " n"]
    fitted: Float[np.ndarray, " n"]
    noise: Float[np.ndarray, " n"]
    untested: Bool[np.ndarray, " n"]
    by_speed: Float[np.ndarray, "10 n"]
    speeds: Float[np.ndarray, "11 n"]

    @property
    def relative(self) -> Float[np.ndarray, " n"]:
        """Error divided by `scale`."""
        return self.error / np.maximum(self.scale, 1e-300)

    @property
    def without_noise(self) -> Float[np.ndarray, " n"]:
        """Relative error after subtraction of the noise power: sqrt(1 - noise) times `relative`."""
        return self.relative * np.sqrt(1 - self.noise)

    @property
    def at_worst_speed(self) -> Float[np.ndarray, " n"]:
        """Relative error in the worst tenth of speeds, after subtraction of the same noise power."""
        power = self.by_speed.max(axis=0) ** 2 - self.noise * self.error**2
        return np.sqrt(np.maximum(power, 0.0)) / np.maximum(self.scale, 1e-300)

    @property
    def judged(self) -> Float[np.ndarray, " n"]:
        """The figure to be compared with the limits: `without_noise` or, if it is larger, half of `at_worst_speed`.

        Errors that are confined to low speeds, such as those of stiction, hardly show in an average over the motion.
        """
        local = self.at_worst_speed / LOCAL
        return np.where(np.isnan(local), self.without_noise, np.maximum(self.without_noise, local))


def torque_accuracy(result: Identification) -> TorqueAccuracy:
    """Errors on the held-out runs, or on the fitted runs if none were held out."""
    held = result.validation or result.fitted
    tested = moved_enough(result.chain, held)
    error, torque = (np.where(tested, x, np.nan) for x in _while_moving(result.chain, held))
    fitted = _while_moving(result.chain, result.fitted)[0]
    measured = np.isfinite(together(held).tau).any(axis=0)
    scale = floored(torque, result.chain)
    by_speed, speeds = _by_speed(result.chain, held)
    by_speed = np.where(tested, by_speed, np.nan)
    return TorqueAccuracy(error, torque, scale, fitted, noise_share(held), measured & ~tested, by_speed, speeds)


def _while_moving(chain: Chain, evaluations: Sequence[Evaluation]) -> tuple[np.ndarray, np.ndarray]:
    """RMS error and RMS torque of each joint while it moves."""
    data = together(evaluations)
    moves = (np.abs(data.qd) > moving_speed(chain)) | ~with_drive(chain)
    return rms_where(data.error, moves), rms_where(data.tau, moves)


def _by_speed(chain: Chain, evaluations: Sequence[Evaluation]) -> tuple[np.ndarray, np.ndarray]:
    """RMS error (10, n) of each joint in groups of equal size from slow to fast motion, and the speeds (11, n) between."""
    data = together(evaluations)
    speed, slowest = np.abs(data.qd), moving_speed(chain)
    errors, edges = np.full((GROUPS, chain.nv), np.nan), np.full((GROUPS + 1, chain.nv), np.nan)
    for j in range(chain.nv):
        moves = np.flatnonzero(speed[:, j] > slowest[j])
        if len(moves) >= GROUPS:
            moves = moves[np.argsort(speed[moves, j])]
            groups = np.array_split(moves, GROUPS)
            errors[:, j] = [np.sqrt(np.mean(data.error[rows, j] ** 2)) for rows in groups]
            edges[:, j] = [*(speed[rows[0], j] for rows in groups), speed[moves[-1], j]]
    return errors, edges


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
    enough = ~with_drive(chain)
    travel = np.zeros(chain.nv)
    travel[where.columns] = np.ptp(data.q[:, where.entries], axis=0)
    return enough | ((seconds >= TESTED_SECONDS) & (travel >= least))


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


@dataclasses.dataclass(frozen=True, eq=False)
class Determination:
    """Relative uncertainty of the model within its range of use.

    Attributes:
        position_error: (n,) RMS of the position-dependent part of the torque error, relative to the RMS torque, but at
            least to one twentieth of the largest RMS torque; NaN for joints without measured torque.
        gravity: (n,) standard deviation of the torque at rest within the joint limits, relative to the RMS of that
            torque or to the logged torque (with the same floor), whichever is greater; NaN if unmeasured forces act.
        inertia: (n,) standard deviation of the diagonal entries of the mass matrix, relative to their means; NaN if
            unmeasured forces act.
    """

    position_error: Float[np.ndarray, " n"]
    gravity: Float[np.ndarray, " n"]
    inertia: Float[np.ndarray, " n"]


def determination_in_use(result: Identification) -> Determination:
    """Uncertainty of torques at rest and of the mass matrix, from the residuals and the covariance of the base parameters.

    The position-dependent part of a joint's torque error is caused by errors of gravity, springs, counterbalances or
    cables. It is computed as the part that functions of position explain in addition to friction. These functions are
    the joint's regressor at rest, and harmonics and powers of the joint position.

    Standard deviations are averaged over 60 postures within the joint limits, or within pi of the run's mean position for
    joints without limits. Quaternions are taken from the run.
    """
    chain, n = result.chain, len(result.rows)
    rows = lambda q, qdd: base_regressor(result.prior, result.columns, result.base, q, np.zeros_like(qdd), qdd)
    data = together(result.validation or result.fitted)
    some = np.unique(np.linspace(0, len(data.q) - 1, min(ROWS, len(data.q))).astype(int))
    q, qd, error = data.q[some], data.qd[some], data.error[some]
    size = np.nan_to_num(np.sqrt((data.tau**2).mean(0)))  # unmeasured torques count as zero
    size = np.where(size > 0, floored(size, chain), 0.0)
    driven = np.where(size > 0, size, np.nan)
    still = rows(q, np.zeros_like(qd))
    own = _own_positions(chain, q)
    position = np.array([_explained(still[:, j], own[:, j], qd[:, j], error[:, j]) for j in range(n)])
    if result.has_unmeasured_forces:  # base parameters then refer to combinations of rows without these forces
        return Determination(position / driven, *np.full((2, n), np.nan))
    postures = _postures(result, q)
    root = covariance_root(result.estimate.covariance)
    rest = rows(postures, np.zeros((len(postures), n)))
    gravity_sd = np.sqrt(((rest @ root) ** 2).sum(2).mean(0))
    # torques of the links only: tau = W p = W_b (B p) for any parameters p, with base parameters B p
    bodies = result.base.matrix[:, : 10 * chain.n] @ result.parameters[: 10 * chain.n]
    s = np.eye(n) if chain.coupling is None else np.asarray(chain.coupling.matrix, float)
    armature = (s**2).T @ np.asarray(chain.armature, float)
    weight, inertia, spread = rest @ bodies, np.empty(n), np.empty(n)
    for j in range(n):
        alone = rows(postures, np.broadcast_to(np.eye(n)[j], (len(postures), n)))[:, j] - rest[:, j]
        inertia[j] = (alone @ bodies).mean() + armature[j]
        spread[j] = np.sqrt(((alone @ root) ** 2).sum(1).mean())
    floor = lambda x: np.maximum(x, 1e-300)
    return Determination(
        position / driven,
        gravity_sd / floor(np.maximum(np.sqrt((weight**2).mean(0)), size)),
        spread / floor(np.abs(inertia)),
    )


def _own_positions(chain: Chain, q: Float[np.ndarray, "N nq"]) -> Float[np.ndarray, "N nv"]:
    """Position of each coordinate; 0 for quaternion joints."""
    where, own = layout(chain), np.zeros((len(q), chain.nv))
    own[:, where.columns] = q[:, where.entries]
    return own


def _postures(result: Identification, q: Float[np.ndarray, "N nq"]) -> Float[np.ndarray, "60 nq"]:
    rng, where, limits = np.random.default_rng(0), layout(result.prior), coordinate_limits(result.prior)
    own = q[:, where.entries]
    middle = own.mean(0)
    low, high = (
        np.where(np.isfinite(x := limits[side][where.columns]), x, middle + d)
        for side, d in (("lower", -TURN), ("upper", TURN))
    )
    low, high = np.maximum(low, middle - TURN), np.minimum(high, middle + TURN)
    low, high = np.minimum(low, own.min(0)), np.maximum(high, own.max(0))
    found = q[np.linspace(0, len(q) - 1, POSTURES).astype(int)]
    found[:, where.entries] = low + (high - low) * rng.uniform(size=(POSTURES, len(low)))
    return found


def _explained(still: np.ndarray, q: np.ndarray, qd: np.ndarray, error: np.ndarray) -> float:
    """RMS of the part of a moving joint's error that functions of position explain in addition to friction [N m or N]."""
    moves = np.abs(qd) > MOVING  # at rest, dry friction can have any value
    if moves.sum() < LEAST_ROWS:
        return 0.0
    still, q, qd, error = still[moves], q[moves], qd[moves], error[moves]
    span = max(float(np.ptp(q)), 1e-9)
    x = (q - q.mean()) / span
    own = np.stack([np.ones_like(x), x, x**2, x**3, np.sin(2 * q), np.cos(2 * q)], axis=1)
    beside = np.stack([qd, np.tanh(qd / MOVING)], axis=1)
    clear = np.linalg.qr(beside)[0]
    columns = np.concatenate([own, still], axis=1)
    columns, error = (y - clear @ (clear.T @ y) for y in (columns, error))
    u, s, _ = np.linalg.svd(columns / np.maximum(np.linalg.norm(columns, axis=0), 1e-12), full_matrices=False)
    u = u[:, s > 1e-2 * s[0]]
    return float(np.linalg.norm(u.T @ error) / np.sqrt(len(error)))


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


def simulated_against_coasting(chain: Chain, found: Sequence[Simulated]) -> Float[np.ndarray, " n"] | None:
    """RMS error of re-simulated positions relative to that of a coasting robot in the worst run, (n,).

    A coasting robot keeps its initial velocity. The ratio is infinite if the simulation diverges, and NaN for joints
    that move enough in no run. The result is None if all runs are shorter than a window.
    """
    if not found:
        return None
    ratios = []
    for evaluation, run in found:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            ratio = run.rms / run.coasting_rms
        ratio = np.where(np.isfinite(ratio), ratio, np.inf)
        ratios.append(np.where(moved_enough(chain, [evaluation]), ratio, np.nan))
    return np.fmax.reduce(ratios)

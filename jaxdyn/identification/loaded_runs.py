"""Preparation of payload fits: the link that carries the payload, known parameters, and preprocessing of runs.

Combined fit of runs with and without a payload.

All runs share the arm's parameters, the friction parameters and the payload's ten inertial parameters. The measured
torque of joint j is

    tau_j = (Y_j pi + s Y_P,j p) / c_j + friction_j,      s = 1 in loaded runs, 0 in the others,

where pi are the arm's base parameters, p are the payload's parameters, and the gain c_j converts logged torques to
newton metres. Y is the regressor of the arm, and Y_P contains the columns of the link that carries the payload.
Friction is fv qd + fc sgn(qd) + fl |Y pi + s Y_P p| sgn(qd) + offset. All noise is assumed to be in tau, in which case
weighted least squares gives the maximum-likelihood estimate of all parameters and gains."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..errors import IdentificationError, ModelError
from ..io.logs import Log, check_log
from ..model.chain import Chain, coordinate_names, frame_index, leading_joints
from ..spatial.inertia import transform_inertial_parameters
from .accumulate import accumulate_blocks
from .base import base_parameters, given_samples_torque, prior_parameters
from .columns import Columns
from .factors import as_float64, below, check_identifiable, equal_blocks, triangles_of
from .prediction import filtered_along, predict
from .preprocessing import Filters, Samples, left_out_deviations, preprocess_alike

Runs = Log | Samples | Sequence[Log | Samples]


def carrier(chain: Chain, frame: str | None) -> tuple[int, np.ndarray]:
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


def given_body(
    mass: float, com: Sequence[float] | np.ndarray | None, pose: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Vector `known` and matrix `free` in p = known + free @ z, for a known mass and, optionally, centre of mass."""
    known = np.zeros(10)
    known[0] = mass
    if com is None:
        return known, np.eye(10)[:, 1:]
    centre = np.asarray(com, float)
    if centre.shape != (3,) or not np.all(np.isfinite(centre)):
        raise IdentificationError(f"the payload's centre of mass is {com}; specify three coordinates in metres")
    known[1:4] = mass * (pose[:3, :3] @ centre + pose[:3, 3])
    return known, np.eye(10)[:, 4:]


def prepare_runs(
    chain: Chain, unloaded: Runs, loaded: Runs, filters: Filters | None
) -> tuple[list[tuple[Samples, bool]], list[str]]:
    """Preprocess all runs with the same filters, flag them as loaded (True) or unloaded, and collect notes for the user.

    Raises:
        IdentificationError: a run has the wrong number of joints, or there is no loaded run.
        LogError: a log looks as if it were in degrees (`check_log`).
    """
    groups = [[group] if isinstance(group, Log | Samples) else list(group) for group in (unloaded, loaded)]
    given = [(run, on) for on, group in enumerate(groups) for run in group]
    for run, on in given:
        if run.n != chain.nv:
            name = run.source if isinstance(run, Log) else f"{'loaded' if on else 'unloaded'} run"
            raise IdentificationError(
                f"{name}: the run has {run.n} joints, but the model has {chain.nv}: {', '.join(coordinate_names(chain))}"
            )
    if not groups[1]:
        raise IdentificationError("there is no run with the payload; pass at least one")
    given = [(check_log(run, chain, allow_still=True) if isinstance(run, Log) else run, on) for run, on in given]
    runs, notes = [], []
    for (run, on), samples in zip(given, preprocess_alike([run for run, _ in given], filters), strict=True):
        runs.append((samples, bool(on)))
        if isinstance(run, Log):
            notes += [f"{run.source}: {note}" for note in dict.fromkeys(samples.notes)]
    return runs, notes


def transform_matrix(pose: Float[np.ndarray, "4 4"]) -> Float[np.ndarray, "10 10"]:
    """Matrix T in p_a = T p_b, which transforms the ten inertial parameters from frame b to frame a.

    `pose` is the pose of b in a. Call this function with x64 enabled.
    """
    return np.asarray(_transformed(jnp.asarray(pose), jnp.eye(10)))


@jax.jit
def _transformed(pose, parameters):
    return jax.vmap(transform_inertial_parameters, in_axes=(None, 1), out_axes=1)(pose, parameters)


# -- loaded runs

FrictionTerm = Literal["viscous", "coulomb", "load", "offset"]
FRICTION_TERMS: tuple[FrictionTerm, ...] = ("viscous", "coulomb", "load", "offset")
BLOCKS = 20  # number of jackknife blocks
RIGID = Columns(("armature",))
PASSES = 8  # maximum number of passes; load-dependent friction uses the load from the previous pass
GAIN_SPREAD = 0.7  # prior standard deviation of a log gain, which corresponds to a factor of two (log 2 = 0.7)
TOLERANCE = 1e-10  # relative singular value below which parameters are not determined separately


@dataclasses.dataclass(frozen=True)
class Model:
    """The model to fit: the arm, the link that carries the payload, and the friction terms.

    Attributes:
        chain: the arm, in double precision.
        link: index of the link that carries the payload.
        arm: (p, a) matrix that maps the a fitted parameters to the arm's p parameters. The fitted parameters are the
            base parameters or, for a known arm, one factor common to all of the chain's parameters.
        known_arm: True if the arm's parameters are known to be those of the chain.
        friction: friction terms fitted for every joint.
        own: friction terms fitted separately for each run.
    """

    chain: Chain
    link: int
    arm: np.ndarray
    known_arm: bool
    friction: tuple[FrictionTerm, ...]
    own: tuple[FrictionTerm, ...]

    def load(self, samples: Samples, loaded: bool, solution: "Solution | None") -> np.ndarray:
        """Magnitude of the transmitted torque, |Y pi + s Y_P p| (N, n).

        Without a solution, this is the torque of the arm alone if the arm's parameters are known, and zero otherwise.
        """
        if solution is None and not self.known_arm:
            return np.zeros_like(samples.q)
        held = self.arm @ (np.ones(1) if solution is None else solution.arm)
        if loaded and solution is not None:
            held[10 * self.link : 10 * self.link + 10] += solution.payload
        return np.abs(predict(RIGID, self.chain, held, samples.q, samples.qd, samples.qdd))


@dataclasses.dataclass(frozen=True)
class Factors:
    """Triangular factors of the columns [arm, payload, friction, torque], one per block and joint.

    Attributes:
        r: (blocks, n, w, w) factors with w columns.
        counts: rows in each joint's factors.
        arm: number of arm columns, which are followed by ten payload columns and the friction columns.
        known_arm: True if the arm's only column is its torque computed from known parameters.
        loaded: number of samples with the payload.
    """

    r: np.ndarray
    counts: np.ndarray
    arm: int
    known_arm: bool
    loaded: int

    def total(self, without: int | None = None) -> np.ndarray:
        """Factors (n, w, w) of all blocks, or of all blocks except `without`."""
        return triangles_of(below(self.r if without is None else np.delete(self.r, without, axis=0)))

    def payload_torques(self, payload: np.ndarray) -> np.ndarray:
        """RMS torque of a payload over the loaded runs (n,) [N m or N]."""
        torque = self.total()[:, :, self.arm : self.arm + 10] @ payload
        return np.sqrt((torque**2).sum(1) / max(self.loaded, 1))


@dataclasses.dataclass(frozen=True)
class Solution:
    """Result of a fit.

    Attributes:
        arm: (a,) the arm's base parameters.
        payload: (10,) the payload's parameters in the link's frame.
        gains: (n,) logarithms of the gain factors c.
        noise: (n,) standard deviations of the residuals, in the units of the given torques.
        covariance: (10 + n, 10 + n) covariance of payload parameters and log gains, assuming independent residuals.
        determined: (10 + n,) True for payload parameters and gains that the runs determine.
    """

    arm: np.ndarray
    payload: np.ndarray
    gains: np.ndarray
    noise: np.ndarray
    covariance: np.ndarray
    determined: np.ndarray


def model_of(
    chain: Chain, link: int, friction: Sequence[FrictionTerm], own: Sequence[FrictionTerm], known_arm: bool
) -> Model:
    """Create the model to fit. Call this function with x64 enabled.

    Raises:
        IdentificationError: a friction term is unknown, or is in `own` but not in `friction`.
    """
    for term in (*friction, *own):
        if term not in FRICTION_TERMS:
            raise IdentificationError(f"unknown friction term {term!r}; the terms are {', '.join(FRICTION_TERMS)}")
    if lost := [term for term in own if term not in friction]:
        raise IdentificationError(
            f"friction term {lost[0]!r} is listed in own_friction but is not fitted; add it to friction"
        )
    ordered: tuple[FrictionTerm, ...] = tuple(term for term in FRICTION_TERMS if term in friction)
    whole = as_float64(chain)
    own_values = prior_parameters(whole, RIGID)
    arm = own_values[:, None] if known_arm else np.eye(len(own_values))[:, base_parameters(chain, RIGID).kept]
    return Model(whole, link, arm, known_arm, ordered, tuple(own))


def friction_signals(chain: Chain, terms: Sequence[FrictionTerm], qd: np.ndarray, load: np.ndarray) -> np.ndarray:
    """Columns of the friction terms (N, n, f), given the transmitted torques."""
    sign = np.tanh(qd / np.asarray(chain.friction.coulomb_velocity)[leading_joints(chain)])
    values = {"viscous": qd, "coulomb": sign, "load": load * sign, "offset": np.ones_like(qd)}
    return np.stack([values[term] for term in terms], axis=2) if terms else np.zeros((*qd.shape, 0))


def accumulate_runs(model: Model, runs: Sequence[tuple[Samples, bool]], previous: Solution | None) -> Factors:
    """Accumulate all runs, each divided into the same number of blocks.

    Load-dependent friction is computed from the transmitted torque of the previous solution.

    Args:
        runs: pairs of samples and a flag that is True if the payload was attached.
    """
    chain, terms = model.chain, model.friction
    given = Columns(("armature", *(term for term in terms if term != "load")))
    count = min(BLOCKS, *(len(samples) for samples, _ in runs))
    parts, edges = [], []
    for samples, loaded in runs:
        q, qd, qdd = samples.q, samples.qd, samples.qdd
        load = model.load(samples, loaded, previous) if "load" in terms else qd
        signals = filtered_along(samples, functools.partial(friction_signals, chain, terms), qd, load)
        parts.append((q, qd, qdd, samples.tau - given_samples_torque(chain, given, samples), None, signals))
        edges.append(equal_blocks(len(samples), count))
    found = accumulate_blocks(RIGID, chain, parts, edges=edges)
    r, p, runs_of = found.r, len(model.arm), found.runs[:, None, None, None]
    on = np.array([loaded for _, loaded in runs])[runs_of]
    beside = [r[..., :p] @ model.arm, r[..., 10 * model.link : 10 * model.link + 10] * on]
    for k, term in enumerate(terms):
        column = r[..., p + k, None]
        beside += [column * (runs_of == run) for run in range(len(runs))] if term in model.own else [column]
    rows = np.concatenate([*beside, r[..., -1:]], axis=3)
    together = np.stack([triangles_of(below(rows[k::count])) for k in range(count)])
    samples_on = sum(len(samples) for samples, loaded in runs if loaded)
    return Factors(together, found.counts.sum(0), model.arm.shape[1], model.known_arm, samples_on)


def solve(
    factors: Factors,
    known: np.ndarray,
    free: np.ndarray,
    ties: np.ndarray,
    start: Solution | None = None,
    rounds: int = 30,
    without: int | None = None,
    scale: np.ndarray | None = None,
    spread: float = GAIN_SPREAD,
) -> Solution:
    """Solve the weighted least-squares problem by the Gauss-Newton method.

    Joints are weighted by the inverse of their noise. If all gains are known, the model is linear in the unknowns.

    Args:
        factors: factors of the runs.
        known: (10,) known part of the payload's parameters, p = known + free @ z.
        free: (10, z) directions of the unknown part, with unknowns z.
        ties: (n, k) map from k unknowns to the log gains, or (n, 0) if the gains are known.
        start: initial solution.
        rounds: maximum number of iterations.
        without: index of a block to exclude.
        scale: (n,) factors by which the torques are multiplied.
        spread: prior standard deviation of a log gain.

    Raises:
        IdentificationError: the number of rows does not exceed the number of parameters.
    """
    system = _System(factors, known, free, ties, without, scale)
    body = system.fixed if start is None else np.concatenate([start.arm, start.payload])
    gains, noise = (np.zeros(system.n), np.ones(system.n)) if start is None else (start.gains, start.noise)
    turn = 0
    while True:
        moving = turn > 0 or start is not None  # in the first step, there is no rigid-body torque for gains to scale
        u, s, vt, norms, b = system.decomposed(body if moving else None, gains, noise, spread)
        alive = s > TOLERANCE * s[0]
        step = vt[alive].T @ ((u[:, alive].T @ b) / s[alive]) / norms
        change = ties @ np.clip(step[system.gains], -0.5, 0.5)
        body, gains = system.fixed + system.reach @ step[: system.bodies], gains + change
        before, noise = noise, system.noise(step, body, gains)
        settled = np.abs(noise - before).max() < 1e-6 * noise.max() and np.abs(change).max(initial=0) < 1e-6
        turn += 1
        if (settled and turn > 2) or turn >= rounds:
            break
    inverse = vt[alive].T / s[alive] / norms[:, None]
    null = np.abs(vt[~alive].T).max(axis=1, initial=0) > 1e-4
    outer = np.zeros((10 + system.n, system.size))
    outer[:10, system.payload], outer[10:, system.gains] = free, ties
    return Solution(
        arm=body[: system.arm],
        payload=body[system.arm :],
        gains=gains,
        noise=noise,
        covariance=outer @ (inverse @ inverse.T) @ outer.T,
        determined=~((np.abs(outer) > 0) @ null),
    )


class _System:
    """The factors of all joints as one least-squares problem, with the unknowns [arm, payload, friction by joint, gains]."""

    def __init__(self, factors: Factors, known, free, ties, without: int | None, scale: np.ndarray | None):
        self.r, self.arm, self.ties = factors.total(without), factors.arm, ties
        blocks = len(factors.r)
        self.counts = factors.counts if without is None else factors.counts * (blocks - 1) / blocks
        if scale is not None:
            self.r[:, :, -1] *= scale[:, None]
        self.n, self.width = self.r.shape[0], self.r.shape[2]
        self.own = self.width - 1 - self.arm - 10  # number of friction columns per joint
        unknown = 0 if factors.known_arm else self.arm
        self.bodies = unknown + free.shape[1]
        frictions = self.bodies + self.n * self.own
        self.size = frictions + ties.shape[1]
        self.payload, self.gains = slice(unknown, self.bodies), slice(frictions, self.size)
        if self.counts.sum() <= self.size:
            raise IdentificationError(
                f"{int(self.counts.sum())} rows of samples cannot determine {self.size} parameters; log a longer run or "
                "decimate less"
            )
        self.reach = np.zeros((self.arm + 10, self.bodies))  # map from the unknowns to (arm, payload)
        self.reach[: self.arm, :unknown] = np.eye(self.arm)[:, :unknown]
        self.reach[self.arm :, unknown:] = free
        self.fixed = np.concatenate([np.full(self.arm, float(factors.known_arm)), known])

    def friction(self, j: int) -> slice:
        """Indices of joint j's friction among the unknowns."""
        return slice(self.bodies + j * self.own, self.bodies + (j + 1) * self.own)

    def rigid(self, j: int, gains: np.ndarray) -> np.ndarray:
        """Columns of arm and payload in the rows of joint j, in the units of its torque."""
        return np.exp(-gains[j]) * self.r[j, :, : self.arm + 10]

    def decomposed(self, body: np.ndarray | None, gains: np.ndarray, noise: np.ndarray, spread: float):
        """SVD of the rows, which are linearised about a solution and scaled to columns of unit norm.

        Also returns the column norms and the right-hand side.

        Args:
            body: parameters of arm and payload at which the derivatives with respect to the gains are computed; None if
                not yet known.
        """
        weights = 1 / np.maximum(noise, 1e-12 * noise.max() or 1.0)
        a = np.zeros((self.n, self.width, self.size))
        b = self.r[:, :, -1].copy()
        for j in range(self.n):
            rigid = self.rigid(j, gains)
            a[j, :, : self.bodies] = rigid @ self.reach
            a[j, :, self.friction(j)] = self.r[j, :, self.arm + 10 : -1]
            if body is not None:
                a[j, :, self.gains] = -(rigid @ body)[:, None] * self.ties[j]
            b[j] -= rigid @ self.fixed
        a, b = (a * weights[:, None, None]).reshape(-1, self.size), (b * weights[:, None]).reshape(-1)
        if body is not None:  # the prior keeps undetermined gains at their given values
            hold = np.zeros((self.n, self.size))
            hold[:, self.gains] = self.ties / spread
            a, b = np.concatenate([a, hold]), np.concatenate([b, -gains / spread])
        norms = np.linalg.norm(a, axis=0)
        norms[norms == 0] = 1.0
        return *np.linalg.svd(a / norms, full_matrices=False), norms, b

    def noise(self, step: np.ndarray, body: np.ndarray, gains: np.ndarray) -> np.ndarray:
        """Standard deviation of the residual torques of a solution (n,)."""
        residual = np.empty((self.n, self.width))
        for j in range(self.n):
            friction = self.r[j, :, self.arm + 10 : -1] @ step[self.friction(j)]
            residual[j] = self.r[j, :, -1] - self.rigid(j, gains) @ body - friction
        return np.sqrt((residual**2).sum(1) / np.maximum(self.counts * (1 - self.size / self.counts.sum()), 1))


def fit_runs(
    model: Model,
    runs: Sequence[tuple[Samples, bool]],
    known: np.ndarray,
    free: np.ndarray,
    ties: np.ndarray,
) -> tuple[Solution, Factors]:
    """Fit all runs together, in repeated passes over the data until the load in the friction terms has converged."""
    solution = None
    size = max(float(np.abs(samples.tau).max()) for samples, _ in runs)
    for turn in range(PASSES):
        factors = accumulate_runs(model, runs, solution)
        before, solution = (
            solution,
            solve(factors, known, free, ties, None if turn < 2 else solution),
        )
        if "load" not in model.friction:
            break
        if before is not None:
            moved = np.abs(solution.noise - before.noise).max()
            if moved < 1e-4 * solution.noise.max() + 1e-9 * size and np.abs(solution.gains - before.gains).max() < 1e-4:
                break
    assert solution is not None
    return solution, factors


def jackknife(
    factors: Factors,
    solution: Solution,
    known: np.ndarray,
    free: np.ndarray,
    ties: np.ndarray,
    spread: float = GAIN_SPREAD,
) -> np.ndarray:
    """Covariance of payload and log gains (10 + n, 10 + n), from a jackknife over blocks of the runs.

    Each jackknife fit leaves out one block of every run. The variances therefore account for residuals that are
    correlated by filters and model errors. The correlation coefficients are those for independent residuals, because
    there are too few blocks to estimate them.
    """
    values = []
    rounds = 4 if ties.size else 1  # with fixed gains and the weights of the full fit, the problem is linear
    for block in range(len(factors.r)):
        part = solve(factors, known, free, ties, solution, rounds, without=block, spread=spread)
        values.append(np.concatenate([part.payload, part.gains]))
    plain = np.sqrt(np.diag(solution.covariance))
    sd = np.maximum(left_out_deviations(np.array(values)), plain)
    ratio = np.where(plain > 0, sd / np.where(plain > 0, plain, 1.0), 0.0)
    return solution.covariance * ratio[:, None] * ratio[None, :]

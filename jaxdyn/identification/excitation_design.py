"""Design of excitation trajectories: D-optimality within limits, by an augmented Lagrangian method, and its assessment.

The unknowns are the coefficients z (n, k) of a motion in a linear basis. The problem is:

    minimise  f(z) = -log det(H(z)) / b + w log cond(Sigma^-1/2 W(z)),    H = W^T Sigma^-1 W / N,
    subject to  |x(z)| / limit <= 1  for x = q - middle, qd, qdd, qddd, tau at all samples, and  clearance(q) >= 0,

which for shapes is the distance of every pair, less the least distance (see `separation`).

The constraints are written as c(z) <= 0, with multipliers mu and a penalty weight rho. Each round takes several steps
of Adam on the Lagrangian of Powell, Hestenes and Rockafellar, f + sum(max(0, mu + rho c)^2 - mu^2) / (2 rho). It then
updates the multipliers, mu <- max(0, mu + rho c) (Nocedal & Wright 2006, sec. 17.4). Gradients are exact and include
the derivatives of the regressor."""

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from ..dynamics import friction_force, inverse_dynamics
from ..errors import IdentificationError
from ..io.logs import Log, check_log
from ..model.build import rounding_note
from ..model.chain import Chain, coordinate_names, with_leaves
from .accumulate import accumulate
from .base import BaseParameters, base_parameters, stacked
from .columns import Columns, all_columns
from .excitation import (
    LIMIT_NAMES,
    FourierSeries,
    JointTrajectory,
    MotionLimits,
    balanced,
    bounded,
    largest_shares,
    motion_limits,
    repaired,
    rest_basis,
    sample_trajectory,
)
from .factors import as_float64, check_identifiable
from .preprocessing import Filters, preprocess
from .separation import Clearance, Nearest, Separation, Tangents, begin_apart, moved_apart, of_robot, tangents

RIDGE = 1e-10  # added to H, which is scaled to about unit size, so that poor initial motions can be factorised


class Setting(NamedTuple):
    """Settings of an excitation problem that are static arguments of compiled functions.

    Attributes:
        columns: the identified columns.
        kept: indices of the base parameters' columns.
        torques: True if the torque of at least one joint is limited.
    """

    columns: Columns
    kept: tuple[int, ...]
    torques: bool


class ExcitationProblem(NamedTuple):
    """Data of an excitation problem, shared by all motions of the batch.

    Attributes:
        chain: the robot.
        coarse: (4, n, N, k) maps from z to q, qd, qdd and qddd at the samples used for the information matrix, torques
            and clearance.
        fine: (4, n, M, k) the same maps on a finer grid, for the quantities that are linear in z.
        limits: limits of the motion; the position limits are finite.
        weights: (n,) inverse standard deviations of the joint torques.
        scale: (b,) magnitudes by which the columns of the regressor are divided.
    """

    chain: Chain
    coarse: Float[Array, "4 n N k"]
    fine: Float[Array, "4 n M k"]
    limits: MotionLimits
    weights: Float[Array, " n"]
    scale: Float[Array, " b"]


class State(NamedTuple):
    """State of one motion: coefficients, multipliers of the limits on the fine and coarse grids, state of Adam, clearances."""

    z: Float[Array, "n k"]
    multipliers: tuple[Array, Array]
    adam: PyTree
    near: Tangents | None


class Rating(NamedTuple):
    """The criterion f of a motion, its constraint values c (satisfied if c <= 0), and the weighted RMS of its columns.

    The constraints are those linear in z, on the fine grid, and all others, on the coarse grid.
    """

    value: Float[Array, ""]
    excess: tuple[Array, Array]
    sizes: Float[Array, " b"]


def rated(setting: Setting, problem: ExcitationProblem, z: Float[Array, "n k"], near: Tangents | None = None) -> Rating:
    """Rate the motion with coefficients z; z = 0 is a robot at rest in the middle of the position ranges.

    Clearances are those of tangents at the samples of a motion nearby.
    """
    limits, chain, scale = problem.limits, problem.chain, problem.scale
    middle, half = (limits.upper + limits.lower) / 2, (limits.upper - limits.lower) / 2
    q, qd, qdd, _ = jnp.einsum("djmk,jk->dmj", problem.coarse, z)
    q += middle[None]
    rows = jax.vmap(setting.columns.matrix, in_axes=(None, 0, 0, 0))(chain, q, qd, qdd)
    weighted = rows[:, :, jnp.asarray(setting.kept)] * problem.weights[None, :, None]
    w = (weighted / scale[None, None]).reshape(-1, len(scale))
    information = w.T @ w / len(q) + RIDGE * jnp.eye(len(scale), dtype=w.dtype)
    # use only one decomposition: a batch of LAPACK calls occupies a thread of XLA:CPU's pool while it waits for its
    # subtasks in the same pool, so two batches deadlock on two cores (jaxlib 0.10.2)
    spectrum = jnp.linalg.eigvalsh(information * scale[:, None] * scale[None])
    log_det = jnp.log(spectrum).sum() - 2 * jnp.log(scale).sum()
    value = -log_det / len(scale) + CONDITION_WEIGHT * jnp.log(spectrum[-1] / spectrum[0]) / 2

    bounds = jnp.stack([half, limits.velocity, limits.acceleration, limits.jerk])
    linear = jnp.abs(jnp.einsum("djmk,jk->dmj", problem.fine, z)) / bounds[:, None] - 1
    rest = [jnp.zeros(0, z.dtype)]
    if setting.torques:
        if chain.coupling is None and chain.transmission is None:
            tau = rows[:, :, : 10 * chain.n] @ chain.inertia.reshape(-1) + chain.armature[None] * qdd
        else:  # joints and motors depend on common coordinates
            tau = jax.vmap(inverse_dynamics, in_axes=(None, 0, 0, 0))(chain, q, qd, qdd)
        tau += jax.vmap(friction_force, in_axes=(None, 0))(chain, qd)
        rest.append((jnp.abs(tau) / limits.torque[None] - 1).reshape(-1))
    if near is not None:
        rest.append(-jnp.ravel(near.value + jnp.einsum("spj,sj->sp", near.slope, q - near.q)))
    return Rating(value, (linear, jnp.concatenate(rest)), jnp.sqrt((weighted**2).sum(1).mean(0)))


def _lagrangian(setting: Setting, problem: ExcitationProblem, near, multipliers, penalty: Array, z: Array) -> Array:
    value, excess, _ = rated(setting, problem, z, near)
    for mu, c in zip(multipliers, excess, strict=True):
        value += jnp.sum(jnp.maximum(0, mu + penalty * c) ** 2 - mu**2) / (2 * penalty)
    return value


def _adam():
    """Adam (Kingma & Ba 2015), with a shorter memory of squared gradients than usual because there are few steps."""
    import optax

    return optax.scale_by_adam(0.9, 0.99)


@functools.partial(jax.jit, static_argnums=0)
def begin(setting: Setting, problem: ExcitationProblem, z: Float[Array, "s n k"], near: Tangents | None) -> State:
    """The initial state of all motions, with zero multipliers."""

    def one(z, near):
        shapes = jax.eval_shape(functools.partial(rated, setting, problem), z, near)
        zero = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes.excess)
        return State(z, zero, _adam().init(z), near)

    return jax.vmap(one)(z, near)


@functools.partial(jax.jit, static_argnums=0)
def advance(
    setting: Setting, problem: ExcitationProblem, state: State, rates: Float[Array, " r"], penalty: Array, last: Array
) -> State:
    """Adam steps for all motions, with the given sizes, and, if they are the last of a round, new multipliers."""

    def one(state: State) -> State:
        minimised = functools.partial(_lagrangian, setting, problem, state.near, state.multipliers, penalty)

        def step(carry, rate):
            z, adam = carry
            with jax.numpy_dtype_promotion("standard"):  # because optax mixes data types
                direction, adam = _adam().update(jax.grad(minimised)(z), adam)
            return (z - rate * direction, adam), None

        (z, adam), _ = jax.lax.scan(step, (state.z, state.adam), rates)
        excess = rated(setting, problem, z, state.near).excess
        renewed = lambda mu, c: jnp.where(last, jnp.maximum(0, mu + penalty * c), mu)
        return State(z, jax.tree.map(renewed, state.multipliers, excess), adam, state.near)

    return jax.vmap(one)(state)


@functools.partial(jax.jit, static_argnums=0)
def criteria(
    setting: Setting, problem: ExcitationProblem, z: Float[Array, "s n k"]
) -> tuple[Array, Float[Array, "s b"]]:
    """The criterion f of every motion, and the weighted RMS of its base regressor's columns."""
    found = jax.vmap(functools.partial(rated, setting, problem))(z)
    return found.value, found.sizes


# -- quality


@dataclasses.dataclass(frozen=True)
class ExcitationQuality:
    """Measures of how well the samples of a motion determine the base parameters.

    All measures are computed from the base regressor W of N samples and the information matrix H = W^T Sigma^-1 W / N,
    where Sigma is the diagonal matrix of torque variances.

    Attributes:
        log_det: log det H. Of two motions with the same number of samples, the one with the larger value is better: a
            difference of d reduces the standard deviations of the b base parameters by a factor of exp(d / (2 b)), in
            the geometric mean over all directions. Such differences do not depend on the units of the parameters.
        condition: condition number of Sigma^-1/2 W.
        scaled_condition: condition number with columns scaled to unit norm; it does not depend on units.
        parameters: number of base parameters.
        samples: number of samples N.
    """

    log_det: float
    condition: float
    scaled_condition: float
    parameters: int
    samples: int


def excitation_quality(
    chain: Chain,
    q: Float[np.ndarray, "N n"],
    qd: Float[np.ndarray, "N n"],
    qdd: Float[np.ndarray, "N n"],
    columns: Columns | None = None,
    base: BaseParameters | None = None,
    torque_noise: Sequence[float] | Float[np.ndarray, " n"] | None = None,
) -> ExcitationQuality:
    """Compute the log det of the information matrix and the condition number of the base regressor for a motion.

    To compare motions, use the same columns, base parameters, noise, filter and number of samples.

    Args:
        chain: the robot; only its kinematics are used.
        q: positions [rad or m].
        qd: velocities [rad/s or m/s].
        qdd: accelerations [rad/s^2 or m/s^2].
        columns: columns to identify, by default all drive terms, motors and springs of the chain. A friction model is
            represented by the drive terms that it replaces.
        base: the base parameters of the columns; by default they are computed.
        torque_noise: (n,) standard deviations of the joint torques [N m or N]; by default all are 1.

    Raises:
        IdentificationError: there are fewer rows than base parameters; the motion does not excite all base parameters,
            or does not determine them separately; or the noise is not one positive number per joint.

    Cost: O(N p^2) for N samples and p columns, after compilation.
    """
    columns = (columns or all_columns(chain)).with_drives
    base = base or base_parameters(chain, columns)
    noise = checked_noise(torque_noise, chain.nv)
    q, qd, qdd = (np.asarray(x, float) for x in (q, qd, qdd))
    if q.size < base.size:
        raise IdentificationError(
            f"{q.size} rows of samples cannot determine {base.size} base parameters; use more samples of the motion"
        )
    with jax.enable_x64(True):
        factors = accumulate(columns, as_float64(chain), q, qd, qdd, np.zeros_like(q))
    w = stacked(factors, 1 / noise)[:, base.kept]
    norms = np.linalg.norm(w, axis=0)
    if np.any(norms == 0):
        raise IdentificationError(f"the motion does not excite {base.names[int(np.argmin(norms))]!r}")
    plain, scaled = (np.linalg.svd(x, compute_uv=False) for x in (w, w / norms))
    if scaled[-1] == 0:
        raise IdentificationError("the motion does not determine the base parameters separately")
    log_det = 2 * (np.log(scaled).sum() + np.log(norms).sum()) - base.size * np.log(len(q))
    return ExcitationQuality(
        float(log_det), float(plain[0] / plain[-1]), float(scaled[0] / scaled[-1]), base.size, len(q)
    )


def variance_ratio(better: ExcitationQuality, other: ExcitationQuality) -> float:
    """Compute the ratio of the parameter variances from motion `other` to those from `better`, as a geometric mean.

    The result is exp((better.log_det - other.log_det) / parameters), the relative D-efficiency of the two motions for
    the same number of samples. It is also the number of times that motion `other` would have to be repeated to yield a
    confidence ellipsoid with the same volume as that from `better`.

    Raises:
        IdentificationError: the two motions were rated with different numbers of base parameters.
    """
    if better.parameters != other.parameters:
        raise IdentificationError(
            f"the motions were rated with {better.parameters} and {other.parameters} base parameters; use the same for both"
        )
    return float(np.exp((better.log_det - other.log_det) / better.parameters))


def checked_noise(torque_noise: Sequence[float] | Float[np.ndarray, " n"] | None, n: int) -> Float[np.ndarray, " n"]:
    """Check and return the standard deviations of the joint torques; 1 by default."""
    noise = np.ones(n) if torque_noise is None else np.asarray(torque_noise, float)
    if noise.shape != (n,) or not np.all((noise > 0) & np.isfinite(noise)):
        raise IdentificationError(
            f"the torque noise is {noise}; specify one positive number for each of the {n} joints"
        )
    return noise


# -- design

Progress = Callable[[str, int, int], None]
STAGE = "designing the excitation"

# samples per period of the fastest component; the information matrix contains up to four times its frequency
SAMPLES_A_WAVE = 8
FINER = 4  # refinement of the grid for limits that are linear in the coefficients
VERIFIED = 10  # refinement of the grid for the final check of all limits
STEPS = 20  # Adam steps per round
EVERY = 4  # rounds between two checks of all limits, after which the best motion is stored
SLOWEST_SIGN = 0.05  # smallest width of the smooth sign function during design, relative to the velocity limit
RATE, LAST_RATE = 0.03, 0.02  # Adam's first step size relative to the limits, and its last relative to the first
# share of a motion that is left within all limits below which, with clearances, it goes on from what is left
LOST = 0.7
STRAIGHT = 10  # steps of a round, which move q little, after which the tangents of clearances are renewed
MOST_TIGHTER = 1.1  # largest factor by which torque limits are tightened on the coarse grid
CONDITION_WEIGHT = 0.5  # w; with 0.2, the Panda's variances are 0.8 times, its condition number 1.7 times as large
PENALTY, PENALTY_GROWTH, LARGEST_PENALTY = 1.0, 1.15, 100.0  # rho of the first round, its growth per round, its limit


@dataclasses.dataclass(frozen=True)
class ExcitationDesign:
    """An excitation trajectory, its quality, and its use of the limits.

    Attributes:
        trajectory: the motion t -> q, qd, qdd, which starts and ends at rest, with qdd = 0.
        quality: quality of the motion.
        random: quality of the random initial motions that could be scaled to satisfy the limits.
        limits: limits of the motion.
        usage: largest share of each limit that each joint uses (n,), by name of the limit. The shares are computed on a
            grid ten times finer than that of the optimisation.
        clearance: smallest value of the user's clearance function, or distance [m] of the pair of shapes that exceeds its
            least distance by the smallest amount, on the grid used for `usage`; infinite if there are neither.
        nearest: this pair, and when it is nearest; None if there are no shapes.
        base: the base parameters that the motion excites.
        rounds: number of rounds of the solver.
        notes: remarks, for example that the search was interrupted.
    """

    trajectory: JointTrajectory
    quality: ExcitationQuality
    random: tuple[ExcitationQuality, ...]
    limits: MotionLimits
    usage: dict[str, Float[np.ndarray, " n"]]
    clearance: float
    nearest: Nearest | None
    base: BaseParameters
    rounds: int
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class ExcitationSearch:
    """Settings of the search for a design.

    Attributes:
        starts: number of random initial motions.
        rounds: number of rounds, each of twenty steps.
        time_limit: time after which the search stops and returns the best motion so far [s]; None means no limit.
        seed: seed for the random initial motions.
    """

    starts: int = 4
    rounds: int = 16
    time_limit: float | None = None
    seed: int = 0


def optimal_excitation(
    chain: Chain,
    family: FourierSeries | None = None,
    *,
    limits: MotionLimits | None = None,
    usage: float = 0.95,
    clearance: Clearance | Separation | None = None,
    columns: Columns | None = None,
    torque_noise: Sequence[float] | Float[np.ndarray, " n"] | None = None,
    search: ExcitationSearch | None = None,
    progress: Progress | None = None,
) -> ExcitationDesign:
    """Find the motion of a family that is most informative about the base parameters and satisfies all limits.

    The criterion combines log det(W^T Sigma^-1 W) of the base regressor W (D-optimality, Swevers et al. 1997), where
    Sigma is the diagonal matrix of torque variances, and the condition number. Its gradients are exact.

    Several random initial motions are optimised in parallel with an augmented Lagrangian method. Every few rounds, each
    motion is scaled down until it satisfies all limits on a grid ten times finer than that of the optimisation. The
    best of these motions is returned, even if the search is interrupted (Ctrl-C) or reaches its time limit. All
    computations are in float64, regardless of JAX's configuration.

    Args:
        chain: the robot. Without inertias, torques contain only friction, and torque limits are meaningless.
        family: family of motions; by default a Fourier series of ten harmonics with a period of 10 s.
        limits: limits from `motion_limits`; by default the limits of the chain. A joint without position limits gets a
            range of one revolution or, if it is prismatic, 1 m.
        usage: largest permissible share of each limit. For example, 0.95 restricts positions to the central 95 % of
            their range.
        clearance: shapes and their least distance, such as `Separation(shapes, 0.03)`; pairs that cannot be kept so far
            apart keep less, with a note. Or a function from q (n,) to distances, () or (m,), that must not be negative;
            traceable by JAX, and with values that span about ten units. It must be positive in the middle of the position
            ranges, towards which initial motions are scaled down.
        columns: columns to identify, by default all drive terms, motors and springs of the chain. A friction model is
            represented by the drive terms that it replaces.
        torque_noise: (n,) standard deviations of the joint torques [N m or N], by default equal; only ratios matter.
        search: settings of the search, such as the number of initial motions and the time limit.
        progress: called with the name of the stage, the number of rounds done, and the total number of rounds.

    Raises:
        IdentificationError: a value is out of range; the robot is not supported; or no motion within the limits was
            found, for example because gravity alone exceeds the torque limits.

    Cost: starts * samples * steps evaluations of the regressor and its gradient. For 7 joints, each evaluation takes
    about 0.1 ms on one core, and compilation takes 20 s, or less with a compilation cache. With default settings, two
    designs for 7 joints took 13 s and 24 s of processor time.
    """
    check_identifiable(chain)
    family = family or FourierSeries()
    columns = (columns or all_columns(chain)).with_drives
    limits = limits or motion_limits(chain)
    if not 0 < usage <= 1:
        raise IdentificationError(f"usage is {usage:g}; it must be above 0 and at most 1")
    asked = search or ExcitationSearch()
    if asked.starts < 1 or asked.rounds < 1:
        raise IdentificationError(f"starts is {asked.starts} and rounds {asked.rounds}; both must be at least 1")
    noise = checked_noise(torque_noise, chain.nv)
    report = progress or (lambda stage, done, total: None)
    with jax.enable_x64(True):
        whole = as_float64(chain)
        report(STAGE, 0, asked.rounds)
        base = base_parameters(chain, columns)
        found = _Search(whole, family, limits, usage, clearance, columns, base, noise)
        done, notes = found.run(asked, report)
        notes = [*found.notes, *notes, *filter(None, [rounding_note(chain)])]
        if found.best is None:
            raise IdentificationError(found.why_none())

        def quality(z: np.ndarray) -> ExcitationQuality:
            q, qd, qdd, _ = found.motion(found.fine, z)[:, :-1]
            return excitation_quality(whole, q, qd, qdd, columns, base, noise)

        trajectory, random = found.trajectory(found.best), tuple(quality(z) for z in found.random)
        motion, where = found.motion(found.verified, found.best), None
        used, least, (sample, index) = largest_shares(whole, bounded(chain, limits), motion, found.clearance)
        if isinstance(found.clearance, Separation):
            least = found.clearance.metres(least, index)
            where = Nearest(*found.clearance.shapes.pair_names[index], float(found.times(VERIFIED)[sample]))
        usage_of: dict[str, np.ndarray] = dict(zip(LIMIT_NAMES, used, strict=True))
        if np.isfinite(limits.torque).any() and not np.asarray(chain.inertia).any():
            notes.append(
                "the model has no inertials, so torques contain only friction, and torque limits are meaningless"
            )
        return ExcitationDesign(
            trajectory, quality(found.best), random, limits, usage_of, least, where, base, done, tuple(notes)
        )


class _Search:
    """State of a search: matrices, limits, random initial motions, and the best motion so far that satisfies all limits."""

    def __init__(self, chain, family, limits, usage, clearance, columns, base, noise):
        self.chain, self.family, self.notes = chain, family, []
        self.clearance = None if clearance is None else of_robot(clearance)
        limits = bounded(chain, limits)
        self.middle, half = np.asarray(limits.upper + limits.lower) / 2, usage * (limits.upper - limits.lower) / 2
        scaled = MotionLimits(self.middle - half, self.middle + half, *(usage * x for x in limits[2:]))
        self.limits, self.best, self.value, self.random = scaled, None, np.inf, []
        self.samples = max(int(np.ceil(SAMPLES_A_WAVE * family.harmonics)), 2 * base.size // chain.nv + 1, 32)
        fastest = 2 * np.pi * family.harmonics / family.duration
        # an unlimited velocity is replaced by that of a motion over the full range at the highest frequency
        velocity = np.minimum(scaled.velocity, half * fastest)
        sizes = np.stack([half, velocity, np.minimum(scaled.acceleration, velocity * fastest)])
        grids = [family.matrices(self.times(finer)) for finer in (1, FINER, VERIFIED)]
        self.to_coefficients = balanced(grids[1], rest_basis(family), sizes)
        coarse, self.fine, self.verified = (np.einsum("dml,jlk->djmk", m, self.to_coefficients) for m in grids)
        rates = velocity if chain.coupling is None else np.abs(np.asarray(chain.coupling.matrix)) @ velocity
        sign = jnp.maximum(chain.friction.coulomb_velocity, SLOWEST_SIGN * jnp.asarray(rates))
        self.rest = np.zeros((1, chain.nv, coarse.shape[3]))
        self.setting = Setting(columns, tuple(int(k) for k in base.kept), bool(np.isfinite(limits.torque).any()))
        self.problem = ExcitationProblem(
            with_leaves(chain, {"friction.coulomb_velocity": sign}),
            jnp.asarray(coarse),
            jnp.asarray(self.fine),
            MotionLimits(*map(jnp.asarray, scaled)),
            jnp.asarray(1 / noise * noise.min()),
            jnp.ones(base.size),
        )

    def times(self, finer: int) -> Float[np.ndarray, " N"]:
        count = finer * self.samples
        return self.family.duration * np.arange(count + 1) / count

    def run(self, asked: ExcitationSearch, report: Progress) -> tuple[int, list[str]]:
        """Run the search; return the number of completed rounds, and notes on why it stopped early, if it did."""
        began, done, notes, rounds = time.monotonic(), 0, [], asked.rounds
        self.begin(asked.starts, asked.seed)
        try:
            while done < rounds:
                if asked.time_limit is not None and time.monotonic() - began > asked.time_limit:
                    notes.append(
                        f"stopped at the time limit after {done} of {rounds} rounds; a longer search may find a better motion"
                    )
                    break
                self.go_on(done, rounds)
                done += 1
                report(STAGE, done, rounds)
        except KeyboardInterrupt:
            if self.best is None:
                raise
            notes.append(f"interrupted after {done} of {rounds} rounds; this is the best motion so far")
        if notes:  # the search stopped between two checks
            self.take()
        report(STAGE, rounds, rounds)
        return done, notes

    def begin(self, count: int, seed: int) -> None:
        """Draw random initial motions about configurations at rest, and scale each of them to satisfy the limits."""
        shape = (count, *self.rest.shape[1:])
        self.rest = np.zeros(shape)
        if isinstance(self.clearance, Separation):
            lower, upper = map(np.asarray, self.limits[:2])
            self.clearance, offsets, self.notes = begin_apart(self.chain, self.clearance, lower, upper, count, seed)
            self.rest = offsets[:, :, None] * np.linalg.pinv(self.to_coefficients)[:, :, 0]
        z, feasible = self._repaired(self.rest + np.random.default_rng(seed).normal(size=shape))
        self.random = list(z[feasible])
        other = self.rest + 0.1 * np.random.default_rng(seed + 1).normal(size=shape)
        z = np.where(feasible[:, None, None], z, other)
        sizes = np.sqrt((np.asarray(criteria(self.setting, self.problem, jnp.asarray(z))[1]) ** 2).mean(0))
        self.problem = self.problem._replace(scale=jnp.asarray(np.where(sizes > 0, sizes, 1.0)))
        self._keep(z, feasible)
        self.state = begin(self.setting, self.problem, jnp.asarray(z), self._near(z))

    def go_on(self, done: int, rounds: int) -> None:
        """Perform one round; every few rounds, and after the last round, call `take`."""
        share = (done * STEPS + np.arange(STEPS)) / (rounds * STEPS)
        rates = RATE * (LAST_RATE + (1 - LAST_RATE) * (1 + np.cos(np.pi * share)) / 2)
        penalty = min(PENALTY * PENALTY_GROWTH**done, LARGEST_PENALTY)
        parts = np.split(rates, 1 if self.clearance is None else STEPS // STRAIGHT)
        for k, part in enumerate(parts, 1):
            state, last = self.state._replace(near=self._near(self.state.z)), k == len(parts)
            self.state = advance(self.setting, self.problem, state, *map(jnp.asarray, (part, penalty, last)))
        jax.block_until_ready(self.state)
        if (done + 1) % EVERY == 0 or done + 1 == rounds:
            best = self.take()
            if 2 * done > rounds:
                self._tighten(np.asarray(self.state.z)[best])

    def take(self) -> int:
        """Make motions satisfy the limits, store the best one if it is the best so far, and return its index."""
        z, limits = np.asarray(self.state.z), self.limits
        if self.clearance is None:
            return self._keep(*self._repaired(z))
        bounds = np.stack([(limits.upper - limits.lower) / 2, *limits[2:5]])
        size = lambda z: np.linalg.norm(z - self.rest, axis=(1, 2))
        found, feasible = z.copy(), np.zeros(len(z), bool)
        # as this takes time, only the most informative motions are moved apart, until one need hardly be scaled
        for k in np.argsort(np.asarray(criteria(self.setting, self.problem, self.state.z)[0])):
            apart = moved_apart(self.chain, self.clearance, bounds, self.verified, self.middle, z[k])
            found[k], feasible[k] = self._scaled(apart, self.rest[k])
            if feasible[k] and size(found)[k] >= LOST * size(z)[k]:
                break
        lost = feasible & (size(found) < LOST * size(z))  # a motion that goes through an obstacle would not find back
        self.state = self.state._replace(z=jnp.asarray(np.where(lost[:, None, None], found, z)))
        return self._keep(found, feasible)

    def _near(self, z: Float[np.ndarray, "s n k"] | Float[Array, "s n k"]) -> Tangents | None:
        """Tangents of the clearances at the samples of motions."""
        q = self.middle + np.einsum("jmk,sjk->smj", *map(np.asarray, (self.problem.coarse[0], z)))
        return None if self.clearance is None else tangents(self.chain, self.clearance, q)

    def motion(self, matrices: np.ndarray, z: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "4 N n"]:
        motion = np.einsum("djmk,jk->dmj", matrices, z)
        motion[0] += self.middle
        return motion

    def trajectory(self, z: Float[np.ndarray, "n k"]) -> JointTrajectory:
        coefficients = np.einsum("jlk,jk->jl", self.to_coefficients, z)
        coefficients[:, 0] += self.middle
        return self.family.trajectory(coefficients)

    def why_none(self) -> str:
        most, least, _ = self._shares(self.rest[0])
        kind, joint = np.unravel_index(np.nanargmax(most), most.shape)
        text = "no motion was found within all limits"
        where = "the initial configuration" if self.rest[0].any() else "the middle of the position ranges"
        if most[kind, joint] > 1:
            return (
                f"{text}: at rest in {where}, {coordinate_names(self.chain)[joint]} needs "
                f"{most[kind, joint]:.3g} times its {LIMIT_NAMES[kind]} limit; check the limits and the model's masses"
            )
        if least < 0:
            return (
                f"{text}: in the middle of the position ranges, the clearance is {least:.3g}; restrict the position limits to "
                "configurations with positive clearance"
            )
        return f"{text}; try more rounds or initial motions, another seed, or narrower position limits"

    def _shares(self, z: np.ndarray) -> tuple[np.ndarray, float, tuple[int, int]]:
        return largest_shares(self.chain, self.limits, self.motion(self.verified, z), self.clearance)

    def _repaired(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found, feasible = zip(*(self._scaled(*x) for x in zip(z, self.rest, strict=True)), strict=True)
        return np.stack(found), np.array(feasible)

    def _scaled(self, z: np.ndarray, rest: np.ndarray) -> tuple[np.ndarray, bool]:
        """Scale a motion about a configuration at rest until it satisfies all limits; whether it then does."""
        centre, feasible = self.middle + np.einsum("jk,jk->j", self.verified[0, :, 0], rest), True
        for every in (1,) if self.clearance is None else (VERIFIED, 1):  # few samples first, as clearances are costly
            offset = np.einsum("djmk,jk->dmj", self.verified[:, :, ::every], z - rest)
            factors, holds = repaired(self.chain, self.limits, centre, offset, self.clearance)
            z, feasible = rest + (z - rest) * factors[:, None], feasible and holds
        return z, feasible

    def _keep(self, z: np.ndarray, feasible: np.ndarray) -> int:
        """Store the best of the given motions if it is the best so far, and return its index."""
        values = np.asarray(criteria(self.setting, self.problem, jnp.asarray(z))[0])
        values = np.where(feasible & np.isfinite(values), values, np.inf)
        best = int(np.argmin(values))
        if values[best] < self.value:
            self.best, self.value = z[best], float(values[best])
        return best

    def _tighten(self, z: np.ndarray) -> None:
        """Tighten the coarse grid's torque limits by as much as a motion violates them on the finest grid."""
        used, limits = self._shares(z)[0][LIMIT_NAMES.index("torque")], self.problem.limits
        tighter = limits._replace(torque=limits.torque / np.clip(used, 1, MOST_TIGHTER))
        self.problem = self.problem._replace(limits=tighter)


# -- compare


def compare_with_log(
    chain: Chain,
    design: ExcitationDesign,
    log: Log,
    columns: Columns | None = None,
    torque_noise: Sequence[float] | Float[np.ndarray, " n"] | None = None,
    cutoff: float | None = None,
) -> tuple[ExcitationQuality, ExcitationQuality]:
    """Quality of a design, and that of a recorded motion with the same filter, base parameters and number of samples.

    The design is sampled at the log's rate, and both motions are preprocessed with the cutoff chosen for the log. The
    same number of evenly spaced samples is then taken from each, even if their durations differ.

    Args:
        chain: the robot; only its kinematics affect the result.
        design: the design.
        log: the recorded motion.
        columns: columns for which the motion was designed; by default as in `optimal_excitation`.
        torque_noise: (n,) standard deviations of the joint torques [N m or N]; by default all are 1.
        cutoff: cutoff of the filter [Hz]; by default that of `preprocess` for the log.

    Raises:
        LogError: the log is not usable (`check_log`) or too short, or the cutoff is not between 0 and half its rate.
        IdentificationError: as for `excitation_quality`.
    """
    recorded = preprocess(check_log(log, chain, allow_still=True), Filters(position_cutoff=cutoff, stride=1))
    samples = sample_trajectory(chain, design.trajectory, 1 / float(np.median(np.diff(log.t))))
    own = Log(t=samples.t, q=samples.q, qd=None, tau=samples.tau, source="design")
    filtered = preprocess(own, Filters(position_cutoff=recorded.position_cutoff, stride=1))
    count = min(len(recorded), len(filtered), max(1000, round(20 * recorded.position_cutoff * recorded.t[-1])))
    rated = []
    for x in (filtered, recorded):
        pick = np.linspace(0, len(x) - 1, count).round().astype(int)
        rated.append(excitation_quality(chain, x.q[pick], x.qd[pick], x.qdd[pick], columns, design.base, torque_noise))
    return rated[0], rated[1]


def summary(
    design: ExcitationDesign,
    joint_names: tuple[str, ...],
    compared: tuple[ExcitationQuality, ExcitationQuality] | None = None,
) -> str:
    """Text that compares a design with random and recorded motions, and lists its largest share of each limit."""
    lines = [
        f"{'':30}{'log det':>10}{'condition':>12}{'scaled':>9}   variances of the parameters, relative to the design"
    ]

    def line(name: str, quality: ExcitationQuality, reference: ExcitationQuality) -> str:
        ratio = variance_ratio(reference, quality)
        note = "" if quality is reference else f"{ratio:.2f} times"
        return f"{name:30}{quality.log_det:10.1f}{quality.condition:12.1f}{quality.scaled_condition:9.2f}   {note}"

    quality = design.quality
    lines.append(line(f"design ({quality.parameters} parameters)", quality, quality))
    if design.random:
        ranked = sorted(design.random, key=lambda x: x.log_det)
        if len(ranked) > 1:
            lines.append(line(f"best of {len(ranked)} random motions", ranked[-1], quality))
        lines.append(line("median random motion", ranked[(len(ranked) - 1) // 2], quality))
    if compared is not None:
        lines.append(line("design, same filter as log", compared[0], compared[0]))
        lines.append(line("log", compared[1], compared[0]))
    lines.append("largest share of each limit that is used, on a grid ten times finer than that of the optimisation:")
    for name, share in design.usage.items():
        limit = getattr(design.limits, "upper" if name == "position" else name)
        if np.isfinite(limit).any():
            worst = int(np.argmax(share))
            lines.append(f"  {name.replace('_', ' '):14}{100 * share[worst]:6.1f} %  ({joint_names[worst]})")
        else:
            lines.append(f"  {name.replace('_', ' '):14}  no limit set")
    if design.nearest is not None:
        first, second, time = design.nearest
        lines.append(f"  smallest distance {design.clearance:.3f} m, between {first} and {second} at {time:.2f} s")
    elif np.isfinite(design.clearance):
        lines.append(f"  smallest clearance {design.clearance:.3g}")
    return "\n".join([*lines, *design.notes])

"""Design of excitation trajectories: the most informative motion within a robot's limits."""

import dataclasses
import time
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy import interpolate

from ...errors import IdentificationError
from ...io._logs.motion import coordinate_names
from ...model._chain import Chain, with_leaves
from ...model._rounded import rounding_note
from .._regression.base_parameters import BaseParameters, base_parameters
from .._regression.columns import Columns, all_columns
from .._regression.robot import as_float64, check_identifiable
from .basis import BSplines, FourierSeries, balanced, rest_basis
from .limits import (
    LIMIT_NAMES,
    Clearance,
    MotionLimits,
    bounded,
    largest_shares,
    limit_usage,
    motion_limits,
    repaired,
)
from .quality import ExcitationQuality, checked_noise, excitation_quality
from .solver import ExcitationProblem, Setting, advance, begin, criteria
from .trajectories import JointTrajectory

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
MOST_TIGHTER = 1.1  # largest factor by which torque limits are tightened on the coarse grid
PENALTY, PENALTY_GROWTH, LARGEST_PENALTY = 1.0, 1.15, 100.0


@dataclasses.dataclass(frozen=True)
class ExcitationDesign:
    """An excitation trajectory, its quality, and its use of the limits.

    Attributes:
        trajectory: the motion t -> q, qd, qdd, which starts and ends at rest, with qdd = 0.
        quality: quality of the motion, including log det of the information matrix and the condition number of the
            weighted regressor.
        random: quality of the random initial motions that could be scaled to satisfy the limits.
        limits: the limits.
        usage: largest share of each limit that each joint uses (n,), by name of the limit. The shares are computed on a
            grid ten times finer than that of the optimisation.
        clearance: smallest value of the user's clearance function on the grid used for `usage`; infinite if there is no
            such function.
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
    family: FourierSeries | BSplines | None = None,
    *,
    limits: MotionLimits | None = None,
    usage: float = 0.95,
    clearance: Clearance | None = None,
    columns: Columns | None = None,
    torque_noise: Sequence[float] | Float[np.ndarray, " n"] | None = None,
    condition_weight: float = 0.5,
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

    Torques are computed from the inertias and friction of the chain. If the chain has no inertias, torque limits are
    meaningless.

    Args:
        chain: the robot.
        family: family of motions and their duration; by default a Fourier series of ten harmonics with a period of 10
            s.
        limits: limits from `motion_limits`; by default the limits of the chain. A joint without position limits gets a
            range of one revolution or, if it is prismatic, 1 m.
        usage: largest permissible share of each limit. For example, 0.95 restricts positions to the central 95 % of
            their range.
        clearance: function from q (n,) to distances, () or (m,), that must not be negative, for example distances
            between links. It must be traceable by JAX. Scale it so that its values span about ten units. It must be
            positive in the middle of the position ranges, so that random initial motions can be scaled down until they
            satisfy it.
        columns: columns to identify; by default all drive terms, motors and springs of the chain.
        torque_noise: (n,) standard deviations of the joint torques [N m or N]; only their ratios affect the motion. By
            default all are equal.
        condition_weight: weight w of the condition number in the criterion to be maximised, log det / b - w log cond,
            for b base parameters. With w = 0, the motion is D-optimal and does not depend on the units of the
            parameters. With w > 0, it depends on the units, because the condition number does.
        search: settings of the search, such as the number of initial motions and the time limit.
        progress: function that is called with the name of the stage, the number of rounds done, and the total number of
            rounds.

    Raises:
        IdentificationError: a value is out of range; the robot is not supported; or no motion within the limits was
            found, for example because gravity alone exceeds the torque limits.

    Cost: starts * samples * steps evaluations of the regressor and its gradient. For 7 joints, each evaluation takes
    about 0.1 ms on one core, and compilation takes 20 s, or less with a compilation cache. With default settings, two
    designs for 7 joints took 13 s and 24 s of processor time.
    """
    check_identifiable(chain)
    family = family or FourierSeries()
    columns = columns or all_columns(chain)
    limits = limits or motion_limits(chain)
    if not 0 < usage <= 1:
        raise IdentificationError(f"usage is {usage:g}; it must be above 0 and at most 1")
    asked = search or ExcitationSearch()
    if asked.starts < 1 or asked.rounds < 1 or condition_weight < 0:
        raise IdentificationError(
            f"starts is {asked.starts}, rounds {asked.rounds} and condition_weight {condition_weight:g}; they must be at least "
            "1, 1 and 0, respectively"
        )
    noise = checked_noise(torque_noise, chain.nv)
    report = progress or (lambda stage, done, total: None)
    with jax.enable_x64(True):
        whole = as_float64(chain)
        report(STAGE, 0, asked.rounds)
        base = base_parameters(chain, columns)
        found = _Search(whole, family, limits, usage, clearance, columns, base, noise, condition_weight)
        done, notes = found.run(asked, report)
        notes += filter(None, [rounding_note(chain)])
        if found.best is None:
            raise IdentificationError(found.why_none())
        trajectory = found.trajectory(found.best)

        def rated(z: np.ndarray) -> ExcitationQuality:
            q, qd, qdd, _ = found.motion(found.fine, z)[:, :-1]
            return excitation_quality(whole, q, qd, qdd, columns, base, noise)

        random = tuple(rated(z) for z in found.random)
        used, least = limit_usage(chain, trajectory, limits, found.times(VERIFIED), clearance)
        if np.isfinite(limits.torque).any() and not np.asarray(chain.inertia).any():
            notes.append(
                "the model has no inertials, so torques contain only friction, and torque limits are meaningless"
            )
        return ExcitationDesign(trajectory, rated(found.best), random, limits, used, least, base, done, tuple(notes))


class _Search:
    """State of a search: matrices, limits, random initial motions, and the best motion so far that satisfies all limits."""

    def __init__(self, chain, family, limits, usage, clearance, columns, base, noise, condition_weight):
        n = chain.nv
        self.chain, self.family, self.clearance = chain, family, clearance
        limits = bounded(chain, limits)
        self.middle, half = (limits.upper + limits.lower) / 2, usage * (limits.upper - limits.lower) / 2
        scaled = MotionLimits(self.middle - half, self.middle + half, *(usage * x for x in limits[2:]))
        self.limits = scaled
        self.samples = max(int(np.ceil(SAMPLES_A_WAVE * family.waves)), 2 * base.size // n + 1, 32)
        fastest = 2 * np.pi * family.waves / family.duration
        # an unlimited velocity is replaced by that of a motion over the full range at the highest frequency
        velocity = np.minimum(scaled.velocity, half * fastest)
        sizes = np.stack([half, velocity, np.minimum(scaled.acceleration, velocity * fastest)])
        grids = [family.matrices(self.times(finer)) for finer in (1, FINER, VERIFIED)]
        self.to_coefficients = balanced(grids[1], rest_basis(family), sizes)
        coarse, self.fine, self.verified = (np.einsum("dml,jlk->djmk", m, self.to_coefficients) for m in grids)
        times = self.times(1)
        slopes = interpolate.make_interp_spline(times, np.eye(len(times)), k=5).derivative()(times)
        rates = velocity if chain.coupling is None else np.abs(np.asarray(chain.coupling.matrix)) @ velocity
        sign = jnp.maximum(chain.friction.coulomb_velocity, SLOWEST_SIGN * jnp.asarray(rates))
        self.setting = Setting(
            columns,
            tuple(int(k) for k in base.kept),
            clearance,
            torques=bool(np.isfinite(limits.torque).any()),
            torque_rates=bool(np.isfinite(limits.torque_rate).any()),
            conditioned=condition_weight > 0,
        )
        self.problem = ExcitationProblem(
            with_leaves(chain, {"friction.coulomb_velocity": sign}),
            jnp.asarray(coarse),
            jnp.asarray(self.fine),
            jnp.asarray(slopes),
            MotionLimits(*(jnp.asarray(x) for x in scaled)),
            jnp.asarray(1 / noise * noise.min()),
            jnp.ones(base.size),
            jnp.asarray(condition_weight, jnp.float64),
            jnp.zeros(()),
        )
        self.best, self.value, self.random = None, np.inf, []

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
        """Draw random initial motions, and scale each of them to satisfy the limits."""
        shape = (count, self.chain.nv, self.to_coefficients.shape[2])
        z, feasible = self._repaired(np.random.default_rng(seed).normal(size=shape))
        self.random = list(z[feasible])
        z = np.where(feasible[:, None, None], z, 0.1 * np.random.default_rng(seed + 1).normal(size=shape))
        _, sizes = criteria(self.setting, self.problem, jnp.asarray(z))
        sizes = np.sqrt((np.asarray(sizes) ** 2).mean(0))
        self.problem = self.problem._replace(scale=jnp.asarray(np.where(sizes > 0, sizes, 1.0)))
        self._keep(z, feasible)
        self.state = begin(self.setting, self.problem, jnp.asarray(z))

    def go_on(self, done: int, rounds: int) -> None:
        """Perform one round; every few rounds, and after the last round, call `take`."""
        share = (done * STEPS + np.arange(STEPS)) / (rounds * STEPS)
        rates = RATE * (LAST_RATE + (1 - LAST_RATE) * (1 + np.cos(np.pi * share)) / 2)
        penalty = min(PENALTY * PENALTY_GROWTH**done, LARGEST_PENALTY)
        self.state = advance(self.setting, self.problem, self.state, jnp.asarray(rates), jnp.asarray(penalty))
        jax.block_until_ready(self.state)
        if (done + 1) % EVERY == 0 or done + 1 == rounds:
            best = self.take()
            if 2 * done > rounds:
                self._tighten(np.asarray(self.state.z)[best])

    def take(self) -> int:
        """Scale the motions to satisfy the limits, store the best one if it is the best so far, and return its index."""
        return self._keep(*self._repaired(np.asarray(self.state.z)))

    def motion(self, matrices: np.ndarray, z: Float[np.ndarray, "n k"]) -> Float[np.ndarray, "4 N n"]:
        motion = np.einsum("djmk,jk->dmj", matrices, z)
        motion[0] += self.middle
        return motion

    def trajectory(self, z: Float[np.ndarray, "n k"]) -> JointTrajectory:
        coefficients = np.einsum("jlk,jk->jl", self.to_coefficients, z)
        return self.family.trajectory(coefficients + self.middle[:, None] * self.family.constant)

    def why_none(self) -> str:
        most, least = self._shares(np.zeros(self.state.z.shape[1:]))
        kind, joint = np.unravel_index(np.nanargmax(most), most.shape)
        text = "no motion was found within all limits"
        if most[kind, joint] > 1:
            return (
                f"{text}: at rest in the middle of the position ranges, {coordinate_names(self.chain)[joint]} needs "
                f"{most[kind, joint]:.3g} times its {LIMIT_NAMES[kind]} limit; check the limits and the model's masses"
            )
        if least < 0:
            return (
                f"{text}: in the middle of the position ranges, the clearance is {least:.3g}; restrict the position limits to "
                "configurations with positive clearance"
            )
        return f"{text}; try more rounds or initial motions, another seed, or narrower position limits"

    def _shares(self, z: np.ndarray) -> tuple[np.ndarray, float]:
        return largest_shares(self.chain, self.limits, self.motion(self.verified, z), self.clearance)

    def _repaired(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        offsets = np.einsum("djmk,sjk->sdmj", self.verified, z)
        factors, feasible = zip(*(repaired(self.chain, self.limits, x, self.clearance) for x in offsets), strict=True)
        return z * np.stack(factors)[:, :, None], np.array(feasible)

    def _keep(self, z: np.ndarray, feasible: np.ndarray) -> int:
        """Store the best of the given motions if it is the best so far, and return its index."""
        values = np.asarray(criteria(self.setting, self.problem, jnp.asarray(z))[0])
        values = np.where(feasible & np.isfinite(values), values, np.inf)
        best = int(np.argmin(values))
        if values[best] < self.value:
            self.best, self.value = z[best], float(values[best])
        return best

    def _tighten(self, z: np.ndarray) -> None:
        """Tighten the coarse grid's torque and clearance limits by as much as a motion violates them on the finest grid."""
        most, least = self._shares(z)
        excess = dict(zip(LIMIT_NAMES, np.clip(most, 1, MOST_TIGHTER), strict=True))
        limits = self.problem.limits
        limits = limits._replace(
            torque=limits.torque / excess["torque"], torque_rate=limits.torque_rate / excess["torque_rate"]
        )
        margin = self.problem.margin + max(0.0, -least)
        self.problem = self.problem._replace(limits=limits, margin=margin)

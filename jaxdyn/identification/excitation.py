"""Excitation trajectories: finite Fourier series at rest at both ends, limits of motion, tables and plots."""

import dataclasses
import functools
import io
import os
from collections.abc import Sequence
from types import ModuleType
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy import linalg

from ..dynamics import friction_force, inverse_dynamics
from ..errors import IdentificationError
from ..io.files import write_whole
from ..model.chain import Chain, coordinate_limits, coordinate_names, leading_joints, turning_joints
from .factors import as_float64
from .separation import ClearanceOf, tangents


@runtime_checkable
class JointTrajectory(Protocol):
    """Motion of all joints as a function of time, evaluated at an array of times; traceable by JAX."""

    @property
    def duration(self) -> float:
        """Duration from start to end [s]."""
        ...

    def __call__(self, t: Float[Array, " N"]) -> tuple[Float[Array, "N n"], Float[Array, "N n"], Float[Array, "N n"]]:
        """Positions, velocities and accelerations at times t [s]."""
        ...


@dataclasses.dataclass(frozen=True)
class FourierTrajectory:
    """Periodic Fourier trajectory, q(t) = centre + sum_k a_k sin(k w t) / (k w) - b_k cos(k w t) / (k w).

    Attributes:
        centre: (n,) centre positions [rad or m].
        a: (n, harmonics) amplitudes a_k of the cosines in the velocity [rad/s or m/s].
        b: (n, harmonics) amplitudes b_k of the sines in the velocity [rad/s or m/s].
        period: period 2 pi / w [s].
    """

    centre: np.ndarray
    a: np.ndarray
    b: np.ndarray
    period: float

    @property
    def duration(self) -> float:
        """Duration of one period [s]."""
        return self.period

    def __call__(self, t: Float[Array, " N"]) -> tuple[Float[Array, "N n"], Float[Array, "N n"], Float[Array, "N n"]]:
        """Positions, velocities and accelerations at times t [s]."""
        t = jnp.asarray(t)
        return _traced(t, *(np.asarray(x, t.dtype) for x in (self.centre, self.a, self.b, self.period)))

    def sampled(
        self, t: Float[np.ndarray, " N"]
    ) -> tuple[Float[np.ndarray, "N n"], Float[np.ndarray, "N n"], Float[np.ndarray, "N n"]]:
        """Evaluate the trajectory in double precision with NumPy, without compilation."""
        return _fourier(np, t, self.centre, self.a, self.b, self.period)


def _waves(xp: ModuleType, t, harmonics: int, period):
    """Functions sin(k w t) / (k w) and -cos(k w t) / (k w), k = 1..K, and their three derivatives: (4, N, 2 K)."""
    k = xp.arange(1, harmonics + 1, dtype=t.dtype)[None] * (2 * np.pi / period)
    phase = t[:, None] * k
    sin, cos = xp.sin(phase), xp.cos(phase)
    values = [(sin / k, -cos / k), (cos, sin), (-sin * k, cos * k), (-cos * k**2, -sin * k**2)]
    return xp.stack([xp.concatenate(pair, axis=1) for pair in values])


def _fourier(xp: ModuleType, t, centre, a, b, period):
    """The series and its first two derivatives, computed by NumPy or JAX."""
    q, qd, qdd = _waves(xp, t, a.shape[1], period)[:3] @ xp.concatenate([a, b], axis=1).T
    return centre[None] + q, qd, qdd


_traced = jax.jit(functools.partial(_fourier, jnp))


def random_excitation(
    chain: Chain, period: float = 10.0, harmonics: int = 5, seed: int = 0, usage: float = 0.8
) -> FourierTrajectory:
    """Create a Fourier trajectory with random amplitudes and phases, at rest at both ends, within the joints' limits.

    A joint without position limits gets a range of one revolution or, if it is prismatic, 1 m.

    Args:
        chain: the robot.
        period: period of the motion [s].
        harmonics: number of harmonics.
        seed: seed of the amplitudes.
        usage: largest fraction of the position range and of the velocity limit that a joint uses.

    Raises:
        IdentificationError: there are fewer than two harmonics, with which the motion cannot start at rest.
    """
    if harmonics < 2:
        raise IdentificationError("an excitation trajectory needs at least two harmonics to start at rest")
    rng = np.random.default_rng(seed)
    lower, upper = np.asarray(chain.limits.position, float).T
    lower, upper = _finite_range(lower, upper, np.where(turning_joints(chain), 2 * np.pi, 1.0))
    a, b = rng.normal(size=(2, chain.n, harmonics))
    k = np.arange(1, harmonics + 1)
    a -= a.mean(1, keepdims=True)  # the velocity at t = 0 is the sum of a
    b -= k * (b @ k)[:, None] / (k @ k)  # the acceleration at t = 0 is the sum of k w b
    shape = FourierTrajectory(np.zeros(chain.n), a, b, period)
    q, qd, _ = shape.sampled(np.linspace(0, period, 50 * harmonics))
    middle, reach = (q.max(0) + q.min(0)) / 2, (q.max(0) - q.min(0)) / 2
    factor = usage * (upper - lower) / 2 / reach
    factor = np.minimum(factor, usage * np.asarray(chain.limits.velocity, float) / np.abs(qd).max(0))
    return FourierTrajectory((upper + lower) / 2 - factor * middle, a * factor[:, None], b * factor[:, None], period)


# -- basis

Matrices = Float[np.ndarray, "4 N k"]  # q, qd, qdd and qddd of every basis function


@dataclasses.dataclass(frozen=True)
class FourierSeries:
    """Finite Fourier series (Swevers et al. 1997): periodic motions with frequencies up to harmonics / duration.

    Attributes:
        duration: the period [s].
        harmonics: number of harmonics K; the highest frequency is K / duration [Hz].

    Raises:
        IdentificationError: the duration is not positive, or there are fewer than three harmonics.
    """

    duration: float = 10.0
    harmonics: int = 10

    def __post_init__(self) -> None:
        if not (self.duration > 0 and np.isfinite(self.duration)):
            raise IdentificationError(
                f"the duration of the motion is {self.duration:g} s; it must be positive and finite"
            )
        if self.harmonics < 3:
            raise IdentificationError(
                f"a Fourier series that starts at rest needs at least 3 harmonics, not {self.harmonics}"
            )

    def matrices(self, t: Float[np.ndarray, " N"]) -> Matrices:
        """Basis functions 1, sin(k w t) / (k w), -cos(k w t) / (k w), k = 1..K, and their derivatives at times t [s]."""
        constant = np.zeros((4, len(t), 1))
        constant[0] = 1.0
        return np.concatenate([constant, _waves(np, t, self.harmonics, self.duration)], axis=2)

    def trajectory(self, coefficients: Float[np.ndarray, "n k"]) -> FourierTrajectory:
        """The motion with the given coefficients."""
        a, b = np.split(coefficients[:, 1:], 2, axis=1)
        return FourierTrajectory(coefficients[:, 0].copy(), a, b, self.duration)


def rest_basis(family: FourierSeries) -> Float[np.ndarray, "k m"]:
    """Orthonormal basis of the coefficients for which qd and qdd vanish at both ends."""
    ends = family.matrices(np.array([0.0, family.duration]))
    rows = np.concatenate([ends[1], ends[2]])
    return linalg.null_space(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def balanced(
    matrices: Matrices, rest: Float[np.ndarray, "k m"], sizes: Float[np.ndarray, "3 n"]
) -> Float[np.ndarray, "n k m"]:
    """Compute one matrix P per joint, such that |z| measures the use of the limits by the motion with coefficients P z.

    |z|^2 is the mean of (q / half range)^2 + (qd / velocity)^2 + (qdd / acceleration)^2 over the samples. Steps of
    equal size in z are therefore comparable in all directions.
    """
    at_rest = matrices[:3] @ rest
    out = []
    for half, velocity, acceleration in sizes.T:
        scaled = at_rest / np.array([half, velocity, acceleration])[:, None, None]
        gram = np.einsum("dnk,dnl->kl", scaled, scaled) / matrices.shape[1]
        values, vectors = np.linalg.eigh(gram)
        out.append(rest @ (vectors / np.sqrt(np.maximum(values, 1e-12 * values[-1]))))
    return np.stack(out)


# -- limits

Numbers = Float[np.ndarray, " n"] | Float[Array, " n"]
Bound = float | Sequence[float | int] | Float[np.ndarray, " n"] | None

RATE_NAMES = ("velocity", "acceleration", "jerk", "torque")
LIMIT_NAMES = ("position", *RATE_NAMES)
FINEST = 256  # steps in which the scale of a motion that exceeds its limits is found
ROUNDING = 1e-9
SECONDS_TO_SPEED = 0.5  # time in which a joint reaches its velocity limit with the default limit of acceleration [s]


class MotionLimits(NamedTuple):
    """Limits of a motion for each joint; infinite if there is no limit.

    Attributes:
        lower: lower position limits [rad or m].
        upper: upper position limits [rad or m].
        velocity: limits of |qd| [rad/s or m/s].
        acceleration: limits of |qdd| [rad/s^2 or m/s^2].
        jerk: limits of |d qdd / dt| [rad/s^3 or m/s^3].
        torque: limits of |tau| [N m or N].
    """

    lower: Numbers
    upper: Numbers
    velocity: Numbers
    acceleration: Numbers
    jerk: Numbers
    torque: Numbers


def motion_limits(
    chain: Chain,
    *,
    lower: Bound = None,
    upper: Bound = None,
    velocity: Bound = None,
    acceleration: Bound = None,
    jerk: Bound = None,
    torque: Bound = None,
) -> MotionLimits:
    """Create motion limits from the limits of a chain and given values, which take precedence.

    Each limit (`MotionLimits`) is one number for all joints, or one number per joint; infinity means no limit. By
    default, position, velocity and torque limits (`limits.effort`) are those of the chain, and jerk is unlimited. Robot
    descriptions contain no limits of acceleration, so the default is conservative: a joint needs at least 0.5 s to reach
    its velocity limit or, if it has none, 1 rad/s or 0.5 m/s. For comparison, the joints of a Panda need 0.13 to 0.29 s
    at their published limits.

    Raises:
        IdentificationError: a limit has the wrong shape or is NaN; a limit other than a position limit is not positive;
            or an upper position limit does not exceed the lower limit.
    """
    own = coordinate_limits(chain)
    given = {"lower": lower, "upper": upper, "velocity": velocity, "acceleration": acceleration}
    given |= {"jerk": jerk, "torque": torque}
    values = {}
    for name, value in given.items():
        if name == "acceleration":
            speed = values["velocity"]
            own[name] = np.where(np.isinf(speed), np.where(_turning(chain), 1.0, 0.5), speed) / SECONDS_TO_SPEED
        value = np.asarray(own.get(name, np.inf) if value is None else value, float)
        if value.shape not in ((), (1,), (chain.nv,)):
            raise IdentificationError(
                f"the {name} limit has shape {value.shape}; specify one number, or one for each of the {chain.nv} joints"
            )
        if np.isnan(value).any():
            raise IdentificationError(f"the {name} limit contains NaN; omit it, or specify inf for no limit")
        values[name] = np.broadcast_to(value, chain.nv).copy()
    limits = MotionLimits(**values)
    for j, name in enumerate(coordinate_names(chain)):
        if not limits.lower[j] < limits.upper[j]:
            raise IdentificationError(
                f"{name}: the lower position limit {limits.lower[j]:g} is not below the upper limit {limits.upper[j]:g}",
                "pass {lower} and {upper}, or lock the joint",
                lower="..",
                upper="..",
            )
        for kind in RATE_NAMES:
            if not getattr(limits, kind)[j] > 0:
                raise IdentificationError(
                    f"{name}: the {kind} limit is {getattr(limits, kind)[j]:g}; specify a positive number, or inf for no limit"
                )
    return limits


def bounded(chain: Chain, limits: MotionLimits) -> MotionLimits:
    """The limits, with a position range of one revolution or 1 m for joints without one, centred at zero if possible."""
    lower, upper = _finite_range(limits.lower, limits.upper, np.where(_turning(chain), 2 * np.pi, 1.0))
    return limits._replace(lower=lower, upper=upper)


def _turning(chain: Chain) -> Bool[np.ndarray, " n"]:
    """Mask of the coordinates that are angles."""
    return turning_joints(chain)[leading_joints(chain)]


def _finite_range(lower: Numbers, upper: Numbers, size: Float[np.ndarray, " n"]) -> tuple[np.ndarray, np.ndarray]:
    """Ranges in which infinite limits are replaced by those of ranges of the given size."""
    free = np.isinf(lower) & np.isinf(upper)
    lower, upper = np.where(free, -size / 2, lower), np.where(free, size / 2, upper)
    return np.where(np.isinf(lower), upper - size, lower), np.where(np.isinf(upper), lower + size, upper)


def drive_torque(
    chain: Chain, q: Float[Array, " n"], qd: Float[Array, " n"], qdd: Float[Array, " n"]
) -> Float[Array, " n"]:
    """Torques of a motion, including friction [N m or N]."""
    return inverse_dynamics(chain, q, qd, qdd) + friction_force(chain, qd)


@jax.jit
def _shares(chain: Chain, limits: MotionLimits, motion):
    def one(q, qd, qdd, qddd):
        middle, half = (limits.upper + limits.lower) / 2, (limits.upper - limits.lower) / 2
        bounds = (half, *(getattr(limits, name) for name in RATE_NAMES))
        values = (q - middle, qd, qdd, qddd, drive_torque(chain, q, qd, qdd))
        parts = [x / bound for x, bound in zip(values, bounds, strict=True)]
        return jnp.abs(jnp.stack(parts))

    return jax.vmap(one)(*motion).max(0)


def largest_shares(
    chain: Chain, limits: MotionLimits, motion: Float[np.ndarray, "4 N n"], clearance: ClearanceOf | None
) -> tuple[Float[np.ndarray, "5 n"], float, tuple[int, int]]:
    """Largest share of each limit used by samples of q, qd, qdd and qddd; the smallest clearance; its sample and its index.

    A share is |x| / limit; for positions, it is the distance from the middle of the range, divided by half the range.
    For a motion within its limits, all shares are at most 1, and the clearance is not negative. Without a clearance
    function, the clearance is infinite. Torques are those of inverse dynamics plus friction.
    """
    on_device = MotionLimits(*(jnp.asarray(x, jnp.float64) for x in limits))
    most = np.asarray(_shares(chain, on_device, tuple(jnp.asarray(x, jnp.float64) for x in motion)))
    if clearance is None:
        return most, np.inf, (0, 0)
    apart = tangents(chain, clearance, motion[0]).value
    sample, index = np.unravel_index(apart.argmin(), apart.shape)
    return most, float(apart[sample, index]), (int(sample), int(index))


def repaired(
    chain: Chain,
    limits: MotionLimits,
    centre: Float[np.ndarray, " n"],
    offset: Float[np.ndarray, "4 N n"],
    clearance: ClearanceOf | None,
) -> tuple[Float[np.ndarray, " n"], bool]:
    """Find factors that scale each joint's motion about a configuration at rest such that all limits are satisfied.

    First, each joint is scaled down to satisfy the limits on quantities that are proportional to its factor. If torques or
    clearance still violate theirs, all joints are scaled by a common factor, found by a search from 1 down and bisection.
    Also returns whether such factors were found.

    Args:
        centre: the configuration at rest, within the (finite) ranges.
        offset: q minus the centre, qd, qdd and qddd.
    """
    at_rest = np.zeros_like(offset)
    at_rest[0] = centre

    def holds(factors: np.ndarray) -> bool:
        most, least, _ = largest_shares(chain, limits, at_rest + factors * offset, clearance)
        return bool(most.max() <= 1 and least >= 0)  # False for NaN

    rates = np.stack([limits.velocity, limits.acceleration, limits.jerk])
    linear = (np.abs(offset[1:]).max(1) / rates).max(0)
    linear = np.maximum(linear, (offset[0].max(0) / (limits.upper - centre)))
    linear = np.maximum(linear, (-offset[0].min(0) / (centre - limits.lower)))
    factors = (1 - ROUNDING) / np.maximum(1, linear)
    if holds(factors):
        return factors, True
    low, high, step = 0, FINEST, 1
    while high - low > 1:
        between = max(high - step, (low + high) // 2) if low == 0 else (low + high) // 2
        if holds(between / FINEST * factors):
            low = between
        else:
            high, step = between, 4 * step  # most motions hold their limits almost as they are
    return low / FINEST * factors, low > 0


# -- output


class TrajectorySamples(NamedTuple):
    """A trajectory sampled uniformly from start to end.

    Attributes:
        t: times [s].
        q: positions [rad or m].
        qd: velocities [rad/s or m/s].
        qdd: accelerations [rad/s^2 or m/s^2].
        tau: torques required by the motion, including friction [N m or N].
    """

    t: Float[np.ndarray, " N"]
    q: Float[np.ndarray, "N n"]
    qd: Float[np.ndarray, "N n"]
    qdd: Float[np.ndarray, "N n"]
    tau: Float[np.ndarray, "N n"]


def sample_trajectory(chain: Chain, trajectory: JointTrajectory, rate: float = 1000.0) -> TrajectorySamples:
    """Sample a trajectory and its torques in float64, at t = 0, 1 / rate, ... up to its duration; rate in 1/s.

    Raises:
        IdentificationError: the rate is not positive, or is so low that there would be fewer than two samples.
    """
    if not (rate > 0 and np.isfinite(rate) and rate * trajectory.duration >= 1):
        raise IdentificationError(
            f"{rate:g} samples per second are too few for a motion of {trajectory.duration:g} s; specify a higher rate"
        )
    t = np.arange(int(trajectory.duration * rate + 1e-6) + 1) / rate
    with jax.enable_x64(True):

        @jax.jit
        def sampled(chain, t):
            motion = trajectory(t)
            return *motion, jax.vmap(drive_torque, (None, 0, 0, 0))(chain, *motion)

        return TrajectorySamples(t, *(np.asarray(x) for x in sampled(as_float64(chain), jnp.asarray(t))))


def write_trajectory(path: str | os.PathLike[str], samples: TrajectorySamples) -> None:
    """Write samples as a table with columns t, q1.., qd1.., qdd1.., tau1.., in SI units, which `read_log` reads as a log.

    Raises:
        ModelError: the file cannot be written; an existing file remains unchanged.
    """
    n = samples.q.shape[1]
    names = ["t", *(f"{name}{j + 1}" for name in ("q", "qd", "qdd", "tau") for j in range(n))]
    text = io.StringIO()
    rows = np.column_stack(samples)
    np.savetxt(text, rows + 0.0, fmt="%.10g", delimiter=",", header=",".join(names), comments="")  # + 0: no -0
    write_whole(path, text.getvalue())


def draw_trajectory(
    path: str | os.PathLike[str], chain: Chain, samples: TrajectorySamples, limits: MotionLimits
) -> None:
    """Plot q, qd, qdd and tau of every joint over time, relative to their limits.

    Positions are plotted as distances from the middle of their range, so that their limits are -1 and 1. Quantities
    without a limit are plotted relative to their largest magnitude. The file's suffix determines its format.

    Raises:
        ModelError: the file cannot be written; an existing file remains unchanged.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    limits = bounded(chain, limits)
    middle, half = (limits.upper + limits.lower) / 2, (limits.upper - limits.lower) / 2
    rows = (
        ("position", samples.q - middle, half),
        ("velocity", samples.qd, limits.velocity),
        ("acceleration", samples.qdd, limits.acceleration),
        ("torque", samples.tau, limits.torque),
    )
    figure = Figure(figsize=(9, 9), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(rows), 1, sharex=True)
    for ax, (name, values, limit) in zip(axes, rows, strict=True):
        own = np.maximum(np.abs(values).max(axis=0), 1e-12)
        lines = ax.plot(samples.t, values / np.where(np.isfinite(limit), limit, own), linewidth=1)
        for y in (-1, 1):
            ax.axhline(y, color="black", linewidth=0.8, linestyle="--")
        free = "" if np.isfinite(limit).any() else " (no limit: relative to the largest value)"
        ax.set_ylabel(f"{name} / limit{free}")
        ax.set_ylim(-1.1, 1.1)
        ax.grid(alpha=0.3)
    axes[-1].set(xlabel="t [s]", xlim=(samples.t[0], samples.t[-1]))
    figure.legend(lines, chain.joint_names, loc="outside upper center", ncols=min(chain.n, 4), frameon=False)
    picture = io.BytesIO()
    figure.savefig(picture, format=os.path.splitext(os.fspath(path))[1][1:] or "png", dpi=110)
    write_whole(path, picture.getvalue())

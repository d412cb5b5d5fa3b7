"""Motion limits: how much of them a trajectory uses, and scaling of motions that exceed them."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...dynamics import friction_force, inverse_dynamics
from ...errors import IdentificationError
from ...io._logs.motion import coordinate_names
from ...model._chain import Chain
from ...model._layout import coordinate_limits, leading_joints, turning_joints
from .._regression.robot import as_float64
from .trajectories import JointTrajectory

# function q (n,) -> distances, () or (m,), that must not be negative; traceable by JAX
Clearance = Callable[[Array], Array]
Numbers = Float[np.ndarray, " n"] | Float[Array, " n"]
Bound = float | Sequence[float | int] | Float[np.ndarray, " n"] | None

RATE_NAMES = ("velocity", "acceleration", "jerk", "torque", "torque_rate")
LIMIT_NAMES = ("position", *RATE_NAMES)
HALVINGS = 8  # bisection steps to find the scale of a motion that exceeds its limits
ROUNDING = 1e-9


class MotionLimits(NamedTuple):
    """Limits of a motion for each joint; infinite if there is no limit.

    Attributes:
        lower: lower position limits [rad or m].
        upper: upper position limits [rad or m].
        velocity: limits of |qd| [rad/s or m/s].
        acceleration: limits of |qdd| [rad/s^2 or m/s^2].
        jerk: limits of |d qdd / dt| [rad/s^3 or m/s^3].
        torque: limits of |tau| [N m or N].
        torque_rate: limits of |d tau / dt| [N m/s or N/s].
    """

    lower: Numbers
    upper: Numbers
    velocity: Numbers
    acceleration: Numbers
    jerk: Numbers
    torque: Numbers
    torque_rate: Numbers


def motion_limits(
    chain: Chain,
    *,
    lower: Bound = None,
    upper: Bound = None,
    velocity: Bound = None,
    acceleration: Bound = None,
    jerk: Bound = None,
    torque: Bound = None,
    torque_rate: Bound = None,
) -> MotionLimits:
    """Create motion limits from the limits of a chain and given values, which take precedence.

    By default, position, velocity and torque limits (`limits.effort`) are those of the chain. Acceleration, jerk and
    torque rate are unlimited by default, because robot descriptions contain no limits for them. Each limit is one
    number for all joints, or one number per joint.

    Args:
        chain: the robot.
        lower: lower position limit [rad or m].
        upper: upper position limit [rad or m].
        velocity: limit of |qd| [rad/s or m/s].
        acceleration: limit of |qdd| [rad/s^2 or m/s^2].
        jerk: limit of |d qdd / dt| [rad/s^3 or m/s^3].
        torque: limit of |tau| [N m or N].
        torque_rate: limit of |d tau / dt| [N m/s or N/s].

    Raises:
        IdentificationError: a limit has the wrong shape or is NaN; a limit other than a position limit is not positive;
            or an upper position limit does not exceed the lower limit.
    """
    own = coordinate_limits(chain)
    given = {"lower": lower, "upper": upper, "velocity": velocity, "acceleration": acceleration}
    given |= {"jerk": jerk, "torque": torque, "torque_rate": torque_rate}
    values = {}
    for name, value in given.items():
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
    """The limits, with a finite position range for every joint.

    A joint without position limits gets a range centred at zero, of one revolution or, if it is prismatic, 1 m. A joint
    with only one position limit gets a range of the same size that starts or ends at this limit.
    """
    size = np.where(turning_joints(chain)[leading_joints(chain)], 2 * np.pi, 1.0)
    free = np.isinf(limits.lower) & np.isinf(limits.upper)
    lower, upper = np.where(free, -size / 2, limits.lower), np.where(free, size / 2, limits.upper)
    lower, upper = np.where(np.isinf(lower), upper - size, lower), np.where(np.isinf(upper), lower + size, upper)
    return limits._replace(lower=lower, upper=upper)


def torque_and_rate(
    chain: Chain, q: Float[Array, " n"], qd: Float[Array, " n"], qdd: Float[Array, " n"], qddd: Float[Array, " n"]
) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """Torques of a motion, including friction, and their time derivatives [N m and N m/s, or N and N/s]."""

    def torque(q, qd, qdd):
        return inverse_dynamics(chain, q, qd, qdd) + friction_force(chain, qd)

    return jax.jvp(torque, (q, qd, qdd), (qd, qdd, qddd))


@functools.partial(jax.jit, static_argnames=("clearance", "rates"))
def _shares(chain: Chain, limits: MotionLimits, motion, clearance: Clearance | None, rates: bool):
    def one(q, qd, qdd, qddd):
        if rates:
            tau, rate = torque_and_rate(chain, q, qd, qdd, qddd)
        else:  # omitting torque rates halves the compilation time
            tau, rate = inverse_dynamics(chain, q, qd, qdd) + friction_force(chain, qd), jnp.zeros_like(q)
        middle, half = (limits.upper + limits.lower) / 2, (limits.upper - limits.lower) / 2
        bounds = (half, *(getattr(limits, name) for name in RATE_NAMES))
        parts = [x / bound for x, bound in zip((q - middle, qd, qdd, qddd, tau, rate), bounds, strict=True)]
        least = jnp.asarray(jnp.inf, q.dtype) if clearance is None else jnp.min(jnp.asarray(clearance(q)))
        return jnp.abs(jnp.stack(parts)), least

    most, least = jax.vmap(one)(*motion)
    return most.max(0), least.min()


def largest_shares(
    chain: Chain, limits: MotionLimits, motion: Float[np.ndarray, "4 N n"], clearance: Clearance | None
) -> tuple[Float[np.ndarray, "6 n"], float]:
    """Largest share of each limit used by samples of q, qd, qdd and qddd, and the smallest clearance.

    A share is |x| / limit; for positions, it is the distance from the middle of the range, divided by half the range.
    For a motion within its limits, all shares are at most 1, and the clearance is not negative. Without a clearance
    function, the clearance is infinite.
    """
    rates = bool(np.isfinite(limits.torque_rate).any())
    on_device = MotionLimits(*(jnp.asarray(x, jnp.float64) for x in limits))
    most, least = _shares(chain, on_device, tuple(jnp.asarray(x, jnp.float64) for x in motion), clearance, rates)
    return np.asarray(most), float(least)


def limit_usage(
    chain: Chain,
    trajectory: JointTrajectory,
    limits: MotionLimits,
    times: Float[np.ndarray, " N"],
    clearance: Clearance | None = None,
) -> tuple[dict[str, Float[np.ndarray, " n"]], float]:
    """Compute each joint's largest share of each limit at given times of a trajectory, and the smallest clearance.

    The share of a position limit is the distance from the middle of the range, divided by half the range. Torques are
    those of inverse dynamics plus friction. Jerks and torque rates are exact time derivatives. Torque rates are
    computed only if at least one of them is limited; otherwise their shares are zero.

    Args:
        chain: the robot, whose inertias and friction determine the torques.
        trajectory: the motion t -> q, qd, qdd.
        limits: limits from `motion_limits`.
        times: times at which the trajectory is evaluated [s].
        clearance: function from q (n,) to distances, () or (m,), that must not be negative.

    Returns:
        The largest shares (n,), by name of the limit, and the smallest clearance (infinite without a clearance
        function).
    """
    with jax.enable_x64(True):
        t = jnp.asarray(times, jnp.float64)
        (q, qd, qdd), (_, _, qddd) = jax.jit(lambda t: jax.jvp(trajectory, (t,), (jnp.ones_like(t),)))(t)
        motion = np.stack([np.asarray(x) for x in (q, qd, qdd, qddd)])
        most, least = largest_shares(as_float64(chain), bounded(chain, limits), motion, clearance)
    return dict(zip(LIMIT_NAMES, most, strict=True)), least


def repaired(
    chain: Chain, limits: MotionLimits, offset: Float[np.ndarray, "4 N n"], clearance: Clearance | None
) -> tuple[Float[np.ndarray, " n"], bool]:
    """Find factors that scale each joint's motion about the middle of its range such that all limits are satisfied.

    Each joint's distance from the middle, velocity, acceleration and jerk are proportional to its factor, so the motion
    of each joint is first scaled down until it satisfies the limits on these quantities. If the torques or the
    clearance still violate their limits, all joints are then scaled by a common factor, which is found by bisection.
    Also returns whether such factors were found.

    Args:
        chain: the robot.
        limits: limits, with finite position limits.
        offset: q minus the middle of the ranges, qd, qdd and qddd, at the samples that must satisfy the limits.
        clearance: the user's clearance function.
    """
    middle = np.zeros_like(offset)
    middle[0] = (limits.upper + limits.lower) / 2

    def holds(factors: np.ndarray) -> bool:
        most, least = largest_shares(chain, limits, middle + factors * offset, clearance)
        return bool(most.max() <= 1 and least >= 0)  # False for NaN

    bounds = np.stack([(limits.upper - limits.lower) / 2, limits.velocity, limits.acceleration, limits.jerk])
    linear = (np.abs(offset).max(1) / bounds).max(0)
    factors = (1 - ROUNDING) / np.maximum(1, linear)
    if holds(factors):
        return factors, True
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        between = (low + high) / 2
        low, high = (between, high) if holds(between * factors) else (low, between)
    return low * factors, low > 0

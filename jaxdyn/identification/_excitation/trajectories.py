"""Excitation trajectories: finite Fourier series that start and end at rest, and B-splines."""

import dataclasses
import functools
from types import ModuleType
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import interpolate

from ...errors import IdentificationError
from ...model._chain import Chain
from ...model._layout import turning_joints


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

    Source: Swevers et al. 1997.

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


def _fourier(xp: ModuleType, t, centre, a, b, period):
    """The series and its derivatives, computed by NumPy or JAX."""
    k = xp.arange(1, a.shape[1] + 1, dtype=t.dtype)[None] * (2 * np.pi / period)
    phase = t[:, None] * k
    sin, cos = xp.sin(phase), xp.cos(phase)
    q = centre[None] + (sin / k) @ a.T - (cos / k) @ b.T
    return q, cos @ a.T + sin @ b.T, -(sin * k) @ a.T + (cos * k) @ b.T


_traced = jax.jit(functools.partial(_fourier, jnp))


def random_excitation(
    chain: Chain, period: float = 10.0, harmonics: int = 5, seed: int = 0, usage: float = 0.8
) -> FourierTrajectory:
    """Create a random Fourier trajectory of all joints within their position and velocity limits.

    Phases and amplitudes are random. Each joint starts at rest. Its motion is scaled to use at most the fraction
    `usage` of its position range and of its velocity limit. A joint without position limits gets a range of one
    revolution or, if it is prismatic, 1 m.

    Args:
        chain: the robot.
        period: period of the motion [s].
        harmonics: number of harmonics.
        seed: seed for the random number generator.
        usage: largest fraction of the position range and of the velocity limit that a joint uses.

    Raises:
        IdentificationError: there are fewer than two harmonics, with which the motion cannot start at rest.
    """
    if harmonics < 2:
        raise IdentificationError("an excitation trajectory needs at least two harmonics to start at rest")
    rng = np.random.default_rng(seed)
    lower, upper = np.asarray(chain.limits.position, float).T
    half = np.where(turning_joints(chain), np.pi, 0.5)
    free = np.isinf(lower) & np.isinf(upper)
    lower, upper = np.where(free, -half, lower), np.where(free, half, upper)
    lower, upper = (
        np.where(np.isinf(lower), upper - 2 * half, lower),
        np.where(np.isinf(upper), lower + 2 * half, upper),
    )
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


def spline_knots(duration: float, intervals: int, degree: int) -> Float[np.ndarray, " m"]:
    """Uniform knots from 0 to `duration`, repeated at the ends so that the curve starts and ends at control points."""
    inner = np.linspace(0, duration, intervals + 1)
    return np.concatenate([np.zeros(degree), inner, np.full(degree, duration)])


@dataclasses.dataclass(frozen=True)
class SplineTrajectory:
    """B-spline trajectory q(t) = sum_i c_i B_i(t), with uniform knots from 0 to `duration`.

    Outside the interval from 0 to `duration`, the polynomials of the first and last knot intervals are extrapolated.

    Attributes:
        control: (n, m) control points c_i [rad or m]; the first and the last are the positions at the start and the
            end.
        duration: duration [s].
        degree: polynomial degree; with degree 5, the jerk is continuously differentiable.
    """

    control: np.ndarray
    duration: float
    degree: int = 5

    def __call__(self, t: Float[Array, " N"]) -> tuple[Float[Array, "N n"], Float[Array, "N n"], Float[Array, "N n"]]:
        """Positions, velocities and accelerations at times t [s]."""
        t = jnp.asarray(t)
        intervals = self.control.shape[1] - self.degree
        knots = spline_knots(self.duration, intervals, self.degree)
        joints = np.asarray(self.control, float)
        pieces = np.stack([interpolate.PPoly.from_spline((knots, x, self.degree)).c for x in joints], axis=2)
        # (degree + 1, intervals, n), without the empty intervals between repeated knots
        coefficients = jnp.asarray(pieces[:, self.degree : self.degree + intervals], t.dtype)
        step = self.duration / intervals
        piece = jnp.clip(jnp.floor(t / step).astype(int), 0, intervals - 1)
        local = (t - piece.astype(t.dtype) * jnp.asarray(step, t.dtype))[:, None]
        c = coefficients[:, piece]  # highest power first
        q, qd, qdd = c[0], jnp.zeros_like(c[0]), jnp.zeros_like(c[0])
        for lower in c[1:]:  # Horner's rule and its derivatives
            qdd, qd, q = qdd * local + 2 * qd, qd * local + q, q * local + lower
        return q, qd, qdd

"""Families of motions that are linear in their coefficients and can start and end at rest."""

import dataclasses

import numpy as np
from jaxtyping import Float
from scipy import interpolate, linalg

from ...errors import IdentificationError
from .trajectories import FourierTrajectory, SplineTrajectory, spline_knots

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
        _check(self.duration, self.harmonics, 3, "harmonics", "a Fourier series that starts at rest")

    @property
    def waves(self) -> float:
        """Number of periods of the fastest component within the motion."""
        return float(self.harmonics)

    def matrices(self, t: Float[np.ndarray, " N"]) -> Matrices:
        """Basis functions 1, sin(k w t) / (k w), -cos(k w t) / (k w), k = 1..K, and their derivatives at times t [s]."""
        k = np.arange(1, self.harmonics + 1) * 2 * np.pi / self.duration
        phase = t[:, None] * k
        sin, cos = np.sin(phase), np.cos(phase)
        one, zero = np.ones((len(t), 1)), np.zeros((len(t), 1))
        values = [
            [one, sin / k, -cos / k],
            [zero, cos, sin],
            [zero, -sin * k, cos * k],
            [zero, -cos * k**2, -sin * k**2],
        ]
        return np.stack([np.hstack(row) for row in values])

    @property
    def constant(self) -> Float[np.ndarray, " k"]:
        """Coefficients of the constant q = 1."""
        return np.eye(1, 2 * self.harmonics + 1)[0]

    def trajectory(self, coefficients: Float[np.ndarray, "n k"]) -> FourierTrajectory:
        """The motion with the given coefficients."""
        a, b = np.split(coefficients[:, 1:], 2, axis=1)
        return FourierTrajectory(coefficients[:, 0].copy(), a, b, self.duration)


@dataclasses.dataclass(frozen=True)
class BSplines:
    """B-spline motions with uniform knots; the positions at the start and the end may differ.

    Attributes:
        duration: duration of the motion [s].
        intervals: number of intervals between knots; more intervals allow faster motions.
        degree: polynomial degree; at least 4, for continuous jerk.

    Raises:
        IdentificationError: the duration is not positive, the degree is below 4, or there are fewer than four
            intervals.
    """

    duration: float = 10.0
    intervals: int = 30
    degree: int = 5

    def __post_init__(self) -> None:
        if self.degree < 4:
            raise IdentificationError(f"splines of degree {self.degree} have discontinuous jerk; use at least degree 4")
        _check(self.duration, self.intervals, 4, "intervals", "a spline that starts and ends at rest")

    @property
    def waves(self) -> float:
        """Number of periods of the fastest component within the motion; one period spans two intervals."""
        return self.intervals / 2

    def matrices(self, t: Float[np.ndarray, " N"]) -> Matrices:
        """Values of all B-splines and of their derivatives at times t [s]."""
        knots = spline_knots(self.duration, self.intervals, self.degree)
        spline = interpolate.BSpline(knots, np.eye(len(knots) - self.degree - 1), self.degree)
        return np.stack([spline.derivative(d)(t) if d else spline(t) for d in range(4)])

    @property
    def constant(self) -> Float[np.ndarray, " k"]:
        """Coefficients of the constant q = 1."""
        return np.ones(self.intervals + self.degree)

    def trajectory(self, coefficients: Float[np.ndarray, "n k"]) -> SplineTrajectory:
        """The motion with the given coefficients, which are the control points of the spline."""
        return SplineTrajectory(coefficients, self.duration, self.degree)


def _check(duration: float, count: int, least: int, name: str, what: str) -> None:
    if not (duration > 0 and np.isfinite(duration)):
        raise IdentificationError(f"the duration of the motion is {duration:g} s; it must be positive and finite")
    if count < least:
        raise IdentificationError(f"{what} needs at least {least} {name}, not {count}")


def rest_basis(family: FourierSeries | BSplines) -> Float[np.ndarray, "k m"]:
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

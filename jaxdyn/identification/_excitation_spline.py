"""Exciting motions made of B-splines."""

import dataclasses

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import interpolate


def spline_knots(duration: float, intervals: int, degree: int) -> Float[np.ndarray, " m"]:
    """Uniform knots from 0 to duration, those at the ends repeated so that the curve starts and ends at control points."""
    inner = np.linspace(0, duration, intervals + 1)
    return np.concatenate([np.zeros(degree), inner, np.full(degree, duration)])


@dataclasses.dataclass(frozen=True)
class SplineTrajectory:
    """q(t) = sum_i c_i B_i(t), B-splines with uniform knots from 0 to `duration`; outside, the polynomials at the ends go on.

    Attributes:
        control: (n, m) control points [rad or m]; the first and last are the positions at the ends.
        duration: [s].
        degree: of the polynomials; 5 makes the jerk smooth.
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
        # (degree + 1, intervals, n): those between repeated knots are empty
        coefficients = jnp.asarray(pieces[:, self.degree : self.degree + intervals], t.dtype)
        step = self.duration / intervals
        piece = jnp.clip(jnp.floor(t / step).astype(int), 0, intervals - 1)
        local = (t - piece.astype(t.dtype) * jnp.asarray(step, t.dtype))[:, None]
        c = coefficients[:, piece]  # highest power first
        q, qd, qdd = c[0], jnp.zeros_like(c[0]), jnp.zeros_like(c[0])
        for lower in c[1:]:  # Horner's rule, and its derivatives
            qdd, qd, q = qdd * local + 2 * qd, qd * local + q, q * local + lower
        return q, qd, qdd

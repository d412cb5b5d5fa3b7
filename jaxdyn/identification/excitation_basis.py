"""Linear bases of motions that start and end at rest: values and derivatives of q at sample times, as matrices."""

import numpy as np
from jaxtyping import Float
from scipy import interpolate, linalg

Matrices = Float[np.ndarray, "4 N k"]  # q, qd, qdd and qddd of every basis function


def fourier_matrices(t: Float[np.ndarray, " N"], period: float, harmonics: int) -> Matrices:
    """1, then sin(k w t) / (k w) for k = 1..K, then -cos(k w t) / (k w), as in `FourierTrajectory`, and derivatives."""
    k = np.arange(1, harmonics + 1) * 2 * np.pi / period
    phase = t[:, None] * k
    sin, cos = np.sin(phase), np.cos(phase)
    one, zero = np.ones((len(t), 1)), np.zeros((len(t), 1))
    return np.stack(
        [
            np.hstack([one, sin / k, -cos / k]),
            np.hstack([zero, cos, sin]),
            np.hstack([zero, -sin * k, cos * k]),
            np.hstack([zero, -cos * k**2, -sin * k**2]),
        ]
    )


def spline_knots(duration: float, intervals: int, degree: int) -> Float[np.ndarray, " m"]:
    """Uniform knots from 0 to duration, those at the ends repeated so that the curve starts and ends at control points."""
    inner = np.linspace(0, duration, intervals + 1)
    return np.concatenate([np.zeros(degree), inner, np.full(degree, duration)])


def spline_matrices(t: Float[np.ndarray, " N"], duration: float, intervals: int, degree: int) -> Matrices:
    """The B-splines of `spline_knots`, and derivatives."""
    knots = spline_knots(duration, intervals, degree)
    spline = interpolate.BSpline(knots, np.eye(len(knots) - degree - 1), degree)
    return np.stack([spline.derivative(d)(t) if d else spline(t) for d in range(4)])


def rest_basis(ends: Matrices) -> Float[np.ndarray, "k m"]:
    """The coefficients with which qd and qdd vanish at both ends: an orthonormal basis, from the matrices at the ends."""
    rows = np.concatenate([ends[1], ends[2]])
    return linalg.null_space(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def balanced(
    matrices: Matrices, rest: Float[np.ndarray, "k m"], sizes: Float[np.ndarray, "3 n"]
) -> Float[np.ndarray, "n k m"]:
    """For each joint coefficients = P z with P chosen so that |z| is how far a motion goes through its limits.

    |z|^2 is the mean over the samples of (q / half range)^2 + (qd / velocity)^2 + (qdd / acceleration)^2, so that a step of one
    size means the same in every direction.
    """
    at_rest = matrices[:3] @ rest
    out = []
    for half, velocity, acceleration in sizes.T:
        scaled = at_rest / np.array([half, velocity, acceleration])[:, None, None]
        gram = np.einsum("dnk,dnl->kl", scaled, scaled) / matrices.shape[1]
        values, vectors = np.linalg.eigh(gram)
        out.append(rest @ (vectors / np.sqrt(np.maximum(values, 1e-12 * values[-1]))))
    return np.stack(out)

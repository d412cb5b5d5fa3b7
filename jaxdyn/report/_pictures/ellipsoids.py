"""Equivalent ellipsoids of links: solid ellipsoids of uniform density with the same mass, centre of mass and inertia."""

import dataclasses

import jax
import numpy as np
from jaxtyping import Float

from ...identification._preprocessing.samples import Samples
from ...identification._regression.robot import as_float64
from ...model._chain import Chain
from ...spatial._host import second_moment
from .stick_figure import link_poses


@dataclasses.dataclass(frozen=True, eq=False)
class Ellipsoid:
    """The equivalent solid ellipsoid {x : (x - centre)^T shape^-1 (x - centre) <= 1} of a body.

    Attributes:
        mass: mass of the body [kg].
        centre: centre of mass [m].
        shape: 5 / m times the second moment of mass about the centre of mass [m^2]; positive definite for a physically
            consistent body.
    """

    mass: float
    centre: Float[np.ndarray, "3"]
    shape: Float[np.ndarray, "3 3"]

    @property
    def squares(self) -> Float[np.ndarray, "3"]:
        """Squares of the semi-axes [m^2] in ascending order, non-negative for a physically consistent body."""
        return np.linalg.eigvalsh(self.shape)

    @property
    def consistent(self) -> bool:
        """True if mass and inertia are physically consistent."""
        squares = self.squares
        return bool(self.mass > 0 and squares[0] >= -1e-6 * max(squares[-1], 0))  # tolerates single precision

    @property
    def semi_axes(self) -> Float[np.ndarray, "3"]:
        """Semi-axes [m] in ascending order; 0 in place of semi-axes with negative squares."""
        return np.sqrt(np.maximum(self.squares, 0))

    @property
    def density(self) -> float:
        """Mass over volume [kg/m^3]; infinite if a semi-axis is 0."""
        volume = 4 / 3 * np.pi * float(np.prod(self.semi_axes))
        return self.mass / volume if volume > 0 else np.inf

    def moved(self, pose: Float[np.ndarray, "4 4"]) -> "Ellipsoid":
        """The ellipsoid in the frame in which the link has the given pose."""
        r = pose[:3, :3]
        return Ellipsoid(self.mass, r @ self.centre + pose[:3, 3], r @ self.shape @ r.T)


def equivalent_ellipsoid(pi: Float[np.ndarray, "10"]) -> Ellipsoid | None:
    """Compute the equivalent ellipsoid of a link, in the link frame, from its ten inertial parameters.

    The result is None if the mass is zero. A uniform solid ellipsoid with mass m and semi-axes a_k has the second moments
    m a_k^2 / 5 about its centre. Therefore, shape = 5 / m (S - h h^T / m), where h is the first moment, I_o is the inertia
    about the origin of the link frame, and S = (tr(I_o) / 2) eye(3) - I_o is the second moment of mass about this origin.
    """
    m, h = float(pi[0]), np.asarray(pi[1:4], float)
    if m == 0:
        return None
    return Ellipsoid(m, h / m, 5 / m * (second_moment(np.asarray(pi, float)) - np.outer(h, h) / m))


def projected(
    ellipsoid: Ellipsoid, view: Float[np.ndarray, "2 3"]
) -> tuple[Float[np.ndarray, "2"], tuple[float, float], float]:
    """Outline of an ellipsoid in the parallel projection x -> view @ x: centre, semi-axes (larger first) and angle [rad].

    The projection of {x^T A^-1 x <= 1} by V is {u^T (V A V^T)^-1 u <= 1}.
    """
    squares, axes = np.linalg.eigh(view @ ellipsoid.shape @ view.T)
    b, a = np.sqrt(np.maximum(squares, 0))
    return view @ ellipsoid.centre, (float(a), float(b)), float(np.arctan2(axes[1, 1], axes[0, 1]))


def outstretched(chain: Chain, samples: Samples, most: int = 300) -> Float[np.ndarray, "m 4 4"]:
    """Poses of all links, followed by the base, in the posture in which the link origins are most spread out."""
    q = samples.q[np.unique(np.linspace(0, len(samples) - 1, min(most, len(samples))).astype(int))]
    poses = posed(chain, q)
    origins = poses[:, :-1, :3, 3]
    spread = ((origins - origins.mean(axis=1, keepdims=True)) ** 2).sum(axis=(1, 2))
    return poses[int(np.argmax(spread))]


def posed(chain: Chain, q: Float[np.ndarray, "... n"]) -> Float[np.ndarray, "... m 4 4"]:
    """The poses from `link_poses`, computed in float64."""
    with jax.enable_x64(True):
        return link_poses(as_float64(chain), q)

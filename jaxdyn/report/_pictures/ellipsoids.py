"""Links as bodies: the solid ellipsoid of uniform density that has the mass, centre and inertia of a link."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ...dynamics import forward_kinematics
from ...identification._preprocessing.samples import Samples
from ...identification._regression.robot import as_float64
from ...model._chain import Chain
from ...spatial._host import inertia_tensor


@dataclasses.dataclass(frozen=True, eq=False)
class Ellipsoid:
    """The equivalent solid ellipsoid {x : (x - centre)^T shape^-1 (x - centre) <= 1} of a body.

    Attributes:
        mass: of the body [kg].
        centre: its centre of mass [m].
        shape: 5 / m times its second moment of mass about the centre [m^2]; positive definite for a body.
    """

    mass: float
    centre: Float[np.ndarray, "3"]
    shape: Float[np.ndarray, "3 3"]

    @property
    def squares(self) -> Float[np.ndarray, "3"]:
        """Squares of the semi-axes [m^2], the least first; a body has none that is negative."""
        return np.linalg.eigvalsh(self.shape)

    @property
    def possible(self) -> bool:
        """Whether a body can have this mass and inertia."""
        squares = self.squares
        return bool(self.mass > 0 and squares[0] >= -1e-6 * max(squares[-1], 0))  # numbers may be single

    @property
    def semi_axes(self) -> Float[np.ndarray, "3"]:
        """Semi-axes [m], the least first; 0 where the square is negative."""
        return np.sqrt(np.maximum(self.squares, 0))

    def moved(self, pose: Float[np.ndarray, "4 4"]) -> "Ellipsoid":
        """The same, seen from the frame that the link has this pose in."""
        r = pose[:3, :3]
        return Ellipsoid(self.mass, r @ self.centre + pose[:3, 3], r @ self.shape @ r.T)


def equivalent_ellipsoid(pi: Float[np.ndarray, "10"]) -> Ellipsoid | None:
    """The ellipsoid of the ten parameters of a link, in its frame; None without mass.

    A uniform solid ellipsoid with semi-axes a_k has the second moments m a_k^2 / 5 about its centre. With
    S = tr(I_o) / 2 1 - I_o the second moment about the origin and h the first one, shape = 5 / m (S - h h^T / m).
    """
    m, h = float(pi[0]), np.asarray(pi[1:4], float)
    if m == 0:
        return None
    inertia = inertia_tensor(np.asarray(pi, float))
    second = np.trace(inertia) / 2 * np.eye(3) - inertia
    return Ellipsoid(m, h / m, 5 / m * (second - np.outer(h, h) / m))


def projected(
    ellipsoid: Ellipsoid, view: Float[np.ndarray, "2 3"]
) -> tuple[Float[np.ndarray, "2"], tuple[float, float], float]:
    """Outline of an ellipsoid in a parallel projection x -> view @ x: centre, semi-axes (greater first), angle [rad].

    The shadow of {x^T A^-1 x <= 1} is {u^T (V A V^T)^-1 u <= 1}.
    """
    squares, axes = np.linalg.eigh(view @ ellipsoid.shape @ view.T)
    b, a = np.sqrt(np.maximum(squares, 0))
    return view @ ellipsoid.centre, (float(a), float(b)), float(np.arctan2(axes[1, 1], axes[0, 1]))


def outstretched(chain: Chain, samples: Samples, most: int = 300) -> Float[np.ndarray, " n"]:
    """Of the positions in a run, those with the links' origins spread out most about their mean."""
    q = samples.q[np.unique(np.linspace(0, len(samples) - 1, min(most, len(samples))).astype(int))]
    with jax.enable_x64(True):
        origins = np.asarray(_poses(as_float64(chain), jnp.asarray(q)))[:, :, :3, 3]
    spread = ((origins - origins.mean(axis=1, keepdims=True)) ** 2).sum(axis=(1, 2))
    return q[int(np.argmax(spread))]


@jax.jit
def _poses(chain: Chain, q):
    return jax.vmap(lambda x: forward_kinematics(chain, x))(q)


def skeleton(
    chain: Chain, q: Float[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, "n 4 4"], Sequence[Float[np.ndarray, "k 3"]]]:
    """Poses of the links in a posture, and the lines to draw from joint to joint: one a link, from its parent's origin."""
    with jax.enable_x64(True):
        model = as_float64(chain)
        poses = np.asarray(_poses(model, jnp.asarray(q)[None])[0])
        base = np.eye(4) if model.base_pose is None else np.asarray(model.base_pose)
        topology = chain.topology
        lines = [
            np.stack([(poses[p] if p >= 0 else base)[:3, 3], poses[i][:3, 3]]) for i, p in enumerate(topology.parents)
        ]
        if topology.tip_name is not None and topology.tip_name in topology.frame_names:
            k = topology.frame_names.index(topology.tip_name)
            if (carrier := topology.frame_links[k]) >= 0:
                lines.append(
                    np.stack([poses[carrier][:3, 3], (poses[carrier] @ np.asarray(model.frame_poses[k]))[:3, 3]])
                )
    return poses, lines

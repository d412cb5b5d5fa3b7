"""A robot drawn as lines from joint to joint."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...dynamics import forward_kinematics
from ...errors import ModelError
from ...model._chain import Chain, frame_index
from ...spatial._host import second_moment


def skeleton(chain: Chain) -> tuple[tuple[int, int, np.ndarray], ...]:
    """Lines from the origin of each link's parent to the origin of the link, and from links without children to their ends.

    If the tip is a frame, it is the end of its link. Other ends are those of the uniform rods from the link's origin through
    its centre of mass that have the link's mass and moments along this line. The tip's line is the last one.
    """
    parents, tip = chain.topology.parents, chain.topology.tip_name
    lines = [(parent, i, np.zeros(3)) for i, parent in enumerate(parents)]
    last, frame = (-1, None) if tip is None else frame_index(chain, tip)
    ends = {i: _end(np.asarray(chain.inertia[i], float)) for i in range(chain.n) if i not in parents}
    if frame is not None:
        ends[last] = np.asarray(chain.frame_poses, float)[frame, :3, 3]
    for i in sorted(ends, key=lambda i: i == last):
        if i == last or ends[i].any():
            lines.append((i, i, ends[i]))
    return tuple(lines)


def _end(pi: Float[np.ndarray, "10"]) -> Float[np.ndarray, "3"]:
    """End of the uniform rod of a link; zero if the centre of mass is at the link's origin."""
    mass, distance = pi[0], float(np.linalg.norm(pi[1:4]))
    if mass <= 0 or distance <= 1e-9 * mass:
        return np.zeros(3)
    along = pi[1:4] / distance
    spread = max(along @ second_moment(pi) @ along / mass - (distance / mass) ** 2, 0.0)
    return (distance / mass + np.sqrt(3 * spread)) * along  # a uniform rod of length L has the spread L^2 / 12


def line_ends(
    poses: Float[np.ndarray, "... m 4 4"], lines: Sequence[tuple[int, int, np.ndarray]]
) -> Float[np.ndarray, "... k 2 3"]:
    """Both ends of every line in world coordinates [m], given poses from `link_poses`."""
    first = np.stack([poses[..., a, :3, 3] for a, _, _ in lines], axis=-2)
    second = np.stack([poses[..., b, :3, :3] @ point + poses[..., b, :3, 3] for _, b, point in lines], axis=-2)
    return np.stack([first, second], axis=-2)


def link_poses(chain: Chain, q: Float[np.ndarray, "... nq"]) -> Float[np.ndarray, "... m 4 4"]:
    """Poses of all links, followed by that of the base, in the world frame, for one or many configurations.

    Raises:
        ModelError: the number of columns of q differs from the number of the robot's positions.
    """
    if q.shape[-1:] != (chain.nq,):
        raise ModelError(f"q has shape {q.shape}, but this robot has {chain.nq} positions")
    rows = q.reshape(-1, chain.nq)
    poses = np.asarray(_poses(chain, jnp.asarray(rows, chain.dtype)), float)
    base = np.eye(4) if chain.base_pose is None else np.asarray(chain.base_pose, float)
    poses = np.concatenate([poses, np.broadcast_to(base, (len(rows), 1, 4, 4))], axis=1)
    return poses.reshape(*q.shape[:-1], chain.n + 1, 4, 4)


@jax.jit
def _poses(chain: Chain, q: Array) -> Array:
    return jax.lax.map(lambda x: forward_kinematics(chain, x), q)  # compiles in half the time of a batch

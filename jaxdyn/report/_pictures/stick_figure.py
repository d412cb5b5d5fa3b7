"""A robot drawn as lines from joint to joint."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...dynamics import forward_kinematics
from ...errors import ModelError
from ...model._chain import Chain, frame_index


def skeleton(chain: Chain) -> tuple[tuple[int, int, np.ndarray], ...]:
    """Lines from the origin of each link's parent to the origin of the link, and from there to the tip; see `Scene.joints`."""
    lines = [(parent, i, np.zeros(3)) for i, parent in enumerate(chain.topology.parents)]
    tip = chain.topology.tip_name
    if tip is not None and tip in chain.frame_names:
        link, frame = frame_index(chain, tip)
        assert frame is not None
        lines.append((link, link, np.asarray(chain.frame_poses, float)[frame, :3, 3]))
    return tuple(lines)


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

"""Forward kinematics: poses of links and frames."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...model._chain import Chain, frame_index
from ...model._compiled import compiled
from ...model._joints import Link
from .._lowering import by_batch
from .._recursions.poses import start_pose, walk, walk_finely
from .._recursions.sweep import outward
from .coordinates import place


@compiled
def forward_kinematics(chain: Chain, q: Float[Array, " nq"]) -> Float[Array, "n 4 4"]:
    """Poses T_0i of all link frames in the world, T_0i = T_0p M_i exp([A_i] q_i) with p the parent of i, O(n) [m].

    The formula is the product of exponentials (Lynch & Park 2017, sec. 4.1). The world frame coincides with the base frame
    unless the chain has a `base_pose` or a free joint. For a named frame, or for the tip, see `frame_pose`.
    """

    return link_poses(*place(chain, q))


@by_batch(size=lambda chain: 100 + 40 * chain.n)
def link_poses(chain: Chain, x: Float[Array, "n *#lanes"]) -> Float[Array, "n 4 4 *#lanes"]:
    """Poses of the links of a chain with ordinary joints, in the world."""

    def out(parent, link: Link, _):
        here = walk(parent, link)
        return here, here

    r, p = outward(chain, x, out, start_pose(chain, x))
    zero, one = jnp.zeros_like(p[0]), jnp.ones_like(p[0])
    entries = [*r[0:3], p[0], *r[3:6], p[1], *r[6:9], p[2], zero, zero, zero, one]
    return jnp.stack(entries, axis=1).reshape(chain.n, 4, 4, *zero.shape[1:])


class Placements(NamedTuple):
    """Rotations of the links and of the base, which is the last row, and their positions as sums p + rest (`walk_finely`)."""

    rotation: Float[Array, "m 3 3"]
    position: Float[Array, "m 3"]
    rest: Float[Array, "m 3"]

    def seen_from(self, link: int) -> Float[Array, "m 3"]:
        """Vectors in world axes from the origin of a link, or of the base if -1, to those of all links and of the base."""
        return (self.position - self.position[link][None]) + (self.rest - self.rest[link][None])


def placements(chain: Chain, x: Float[Array, " n"]) -> Placements:
    """Rotations and positions of the links of a chain with ordinary joints; differences of positions are accurate."""
    entries = _placement_entries(chain, x)
    base = jnp.eye(4, dtype=entries.dtype) if chain.base_pose is None else chain.base_pose.astype(entries.dtype)
    last = jnp.concatenate([base[:3, :3].reshape(-1), base[:3, 3], jnp.zeros(3, entries.dtype)])
    entries = jnp.concatenate([entries, last[None]])
    return Placements(entries[:, :9].reshape(-1, 3, 3), entries[:, 9:12], entries[:, 12:])


@by_batch(size=lambda chain: 100 + 40 * chain.n)
def _placement_entries(chain: Chain, x: Float[Array, "n *#lanes"]) -> Float[Array, "n 15 *#lanes"]:
    def out(parent, link: Link, _):
        here = walk_finely(parent, link)
        return here, here

    rotation, position = start_pose(chain, x)
    nothing = tuple(jnp.zeros_like(p) for p in position)
    r, p, rest = outward(chain, x, out, (rotation, position, nothing))
    return jnp.stack([*r, *p, *rest], axis=1)


@compiled
def frame_pose(chain: Chain, q: Float[Array, " nq"], frame: str | None = None) -> Float[Array, "4 4"]:
    """Pose T_0f in the world of a link or named frame, or of the chain's tip if `frame` is None [m].

    Raises:
        ModelError: the chain has no link or frame of that name.
    """
    return pose_among(chain, forward_kinematics(chain, q), frame)


def pose_among(chain: Chain, poses: Float[Array, "n 4 4"], frame: str | None) -> Float[Array, "4 4"]:
    """Pose of a link or named frame in the world, from the poses of all links."""
    link, k = frame_index(chain, frame)
    base = jnp.eye(4, dtype=poses.dtype) if chain.base_pose is None else chain.base_pose.astype(poses.dtype)
    t = poses[link] if link >= 0 else base
    return t if k is None else t @ chain.frame_poses[k].astype(t.dtype)

"""Forward kinematics: poses of links and frames."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model._chain import Chain, frame_index
from ..model._compiled import compiled
from ..model._joints import Link
from ..spatial._components import add, cross, matmul, rotate, scale, unrotate, zeros
from ._coordinates import place
from ._lowering import by_batch
from ._sweep import outward


@compiled
def forward_kinematics(chain: Chain, q: Float[Array, " nq"]) -> Float[Array, "n 4 4"]:
    """Poses T_0i of every link's frame, seen from the world: T_0i = T_0p M_i exp([A_i] q_i), p the parent of i, O(n).

    The world's frame is the base's unless the chain has a `base_pose` or a free joint (Lynch & Park
    2017, sec. 4.1). For a named frame, and for the tip, see `frame_pose`.
    """

    return link_poses(*place(chain, q))


@by_batch(size=lambda chain: 100 + 40 * chain.n)
def link_poses(chain: Chain, x: Float[Array, "n *#lanes"]) -> Float[Array, "n 4 4 *#lanes"]:
    """Poses of the links in the world, of a chain of ordinary joints."""

    def out(parent, link: Link, _):
        here = walk(parent, link)
        return here, here

    r, p = outward(chain, x, out, start_pose(chain, x))
    zero, one = jnp.zeros_like(p[0]), jnp.ones_like(p[0])
    entries = [*r[0:3], p[0], *r[3:6], p[1], *r[6:9], p[2], zero, zero, zero, one]
    return jnp.stack(entries, axis=1).reshape(chain.n, 4, 4, *zero.shape[1:])


@compiled
def frame_pose(chain: Chain, q: Float[Array, " nq"], frame: str | None = None) -> Float[Array, "4 4"]:
    """Pose T_0f of a link or named frame seen from the world; the chain's tip where `frame` is None.

    Raises:
        ModelError: the chain has no link or frame of that name.
    """
    return pose_among(chain, forward_kinematics(chain, q), frame)


def pose_among(chain: Chain, poses: Float[Array, "n 4 4"], frame: str | None) -> Float[Array, "4 4"]:
    """Pose of a link or named frame in the world, from those of all links."""
    link, k = frame_index(chain, frame)
    base = jnp.eye(4, dtype=poses.dtype) if chain.base_pose is None else chain.base_pose.astype(poses.dtype)
    t = poses[link] if link >= 0 else base
    return t if k is None else t @ chain.frame_poses[k].astype(t.dtype)


def walk(parent, link: Link):
    """Pose (R, p) of a link in the world, from its parent's: R = R_p R_pi, p = p_p + R_p p_pi."""
    rotation, position = parent
    return matmul(rotation, link.rotation), add(position, rotate(rotation, link.translation))


def carry_twist(parent, link: Link, rate):
    """Twist (w, v) of a link in its own frame, from its parent's in the parent's frame and the rate of the joint between."""
    w_parent, v_parent = parent
    at_joint = add(v_parent, cross(w_parent, link.translation))
    w = add(unrotate(link.rotation, w_parent), scale(rate, link.screw[:3]))
    return w, add(unrotate(link.rotation, at_joint), scale(rate, link.screw[3:]))


def start_pose(chain: Chain, *inputs: Float[Array, "n *#lanes"]):
    """The base's pose (R, p) in the world, as components of the type and lanes that a sweep over these inputs will carry."""
    (zero,) = zeros(1, inputs, (), (chain.rotation,))
    if chain.base_pose is not None:
        t = chain.base_pose
        return tuple(t[i, j] + zero for i in range(3) for j in range(3)), tuple(t[i, 3] + zero for i in range(3))
    one = jnp.ones_like(zero)
    return (one, zero, zero, zero, one, zero, zero, zero, one), (zero, zero, zero)

"""Forward kinematics: poses of links and frames."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model.chain import Chain, frame_index
from ..model.joints import Link
from ..spatial.components import add, matmul, rotate
from .sweep import outward


def forward_kinematics(chain: Chain, q: Float[Array, " n"]) -> Float[Array, "n 4 4"]:
    """Poses T_0i of every link's frame, seen from the base: T_0i = T_0p M_i exp([A_i] q_i), p the parent of i, O(n).

    (Lynch & Park 2017, sec. 4.1.) For a named frame, and for the tip, see `frame_pose`.
    """

    def out(parent, link: Link, _):
        here = walk(parent, link)
        return here, here

    r, p = outward(chain, q, out, base_pose(chain, q))
    zero, one = jnp.zeros_like(p[0]), jnp.ones_like(p[0])
    entries = [*r[0:3], p[0], *r[3:6], p[1], *r[6:9], p[2], zero, zero, zero, one]
    return jnp.stack(entries, axis=1).reshape(chain.n, 4, 4)


def frame_pose(chain: Chain, q: Float[Array, " n"], frame: str | None = None) -> Float[Array, "4 4"]:
    """Pose T_0f of a link or named frame seen from the base; the chain's tip where `frame` is None.

    Raises:
        ModelError: the chain has no link or frame of that name.
    """
    return pose_among(chain, forward_kinematics(chain, q), frame)


def pose_among(chain: Chain, poses: Float[Array, "n 4 4"], frame: str | None) -> Float[Array, "4 4"]:
    """Pose of a link or named frame in the base, from those of all links."""
    link, k = frame_index(chain, frame)
    t = poses[link] if link >= 0 else jnp.eye(4, dtype=poses.dtype)
    return t if k is None else t @ chain.frame_poses[k].astype(t.dtype)


def walk(parent, link: Link):
    """Pose (R, p) of a link in the base, from its parent's: R = R_p R_pi, p = p_p + R_p p_pi."""
    rotation, position = parent
    return matmul(rotation, link.rotation), add(position, rotate(rotation, link.translation))


def base_pose(chain: Chain, q: Float[Array, " n"]):
    """The base's pose (R, p) in itself, as components of the type that a sweep will carry."""
    zero = jnp.zeros_like(q[0] + chain.rotation[0, 0, 0])
    one = jnp.ones_like(zero)
    return (one, zero, zero, zero, one, zero, zero, zero, one), (zero, zero, zero)

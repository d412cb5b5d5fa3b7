"""Jacobians of links and frames, in body, space and mixed coordinates, and their time derivatives."""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...errors import ModelError
from ...model._chain import Chain, frame_index
from ...model._compiled import compiled
from ...model._configuration import integrate
from ...model._tree import ancestor_mask
from ...spatial.se3 import adjoint, pose_inverse
from .coordinates import joints_of
from .forward_kinematics import forward_kinematics, pose_among

Reference = Literal["body", "space", "mixed"]


@compiled
def jacobian(
    chain: Chain, q: Float[Array, " nq"], frame: str | None = None, reference: Reference = "body"
) -> Float[Array, "6 nv"]:
    """Jacobian J(q) of a link or named frame (Lynch & Park 2017, sec. 5.1), O(n).

    The twist of the frame is V = (w, v) = J(q) qd [rad/s, m/s].

    Args:
        frame: name of a link or frame; by default, the chain's tip.
        reference: the coordinates of the twist. "body": in the axes of the frame, where v is the velocity of its origin.
            "space": in world axes, where v is the velocity of the body-fixed point at the world's origin. "mixed": in world
            axes, where v is the velocity of the frame's origin.

    Raises:
        ModelError: the frame or reference is unknown.
    """
    if reference not in ("body", "space", "mixed"):
        raise ModelError(f"the reference of a Jacobian must be 'body', 'space' or 'mixed', not {reference!r}")
    poses = forward_kinematics(chain, q)
    link, _ = frame_index(chain, frame)
    moves = ancestor_mask(chain.topology.parents)[:, link] if link >= 0 else jnp.zeros(chain.n, bool)
    space = jnp.einsum("nij,nj->in", jax.vmap(adjoint)(poses), chain.screw.astype(poses.dtype))
    space = joints_of(chain, jnp.where(moves, space, jnp.zeros_like(space)))
    if reference == "space":
        return space
    t = pose_among(chain, poses, frame)
    if reference == "mixed":
        t = t.at[:3, :3].set(jnp.eye(3, dtype=t.dtype))
    return adjoint(pose_inverse(t)) @ space


@compiled
def jacobian_derivative(
    chain: Chain,
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    frame: str | None = None,
    reference: Reference = "body",
) -> Float[Array, "6 nv"]:
    """Time derivative dJ/dt of the Jacobian along qd, with dV/dt = J(q) qdd + dJ/dt qd [rad/s^2, m/s^2].

    The derivative is computed by forward-mode differentiation of `jacobian`, which takes the same arguments and raises the same
    errors.
    """
    moved = lambda time: jacobian(chain, integrate(chain, q, time * qd), frame, reference)
    return jax.jvp(moved, (jnp.zeros((), qd.dtype),), (jnp.ones((), qd.dtype),))[1]

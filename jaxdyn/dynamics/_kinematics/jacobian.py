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
from .coordinates import joints_of, place
from .forward_kinematics import Placements, placements

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
    links, x = place(chain, q)
    placed = placements(links, x)
    link, k = frame_index(chain, frame)
    # from the joints to the point of the twist; the links' positions in the world may have too few digits for that
    own = jnp.eye(4, dtype=placed.position.dtype) if k is None else chain.frame_poses[k].astype(placed.position.dtype)
    if reference == "space":
        to_point = -(placed.position + placed.rest)
    else:
        to_point = (placed.rotation[link] @ own[:3, 3])[None] - placed.seen_from(link)
    moves = ancestor_mask(chain.topology.parents)[:, link] if link >= 0 else jnp.zeros(chain.n, bool)
    columns = screws_at(links, placed, to_point)
    columns = joints_of(chain, jnp.where(moves, columns, jnp.zeros_like(columns)))
    if reference != "body":
        return columns
    axes = placed.rotation[link] @ own[:3, :3]
    return jnp.concatenate([axes.T @ columns[:3], axes.T @ columns[3:]])


def screws_at(chain: Chain, placed: Placements, to_point: Float[Array, "m 3"]) -> Float[Array, "6 n"]:
    """The joint screws (w, v) in world axes, with v at a point; `to_point` leads from the links' origins to that point."""
    rotation, screw = placed.rotation[:-1], chain.screw.astype(placed.rotation.dtype)
    w, v = (jnp.einsum("nij,nj->ni", rotation, s) for s in (screw[:, :3], screw[:, 3:]))
    return jnp.concatenate([w, v + jnp.cross(w, to_point[:-1])], axis=1).T


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

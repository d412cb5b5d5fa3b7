"""Twists and accelerations of all links by the outward recursion, in the coordinates of the Jacobians."""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...errors import ModelError
from ...model._chain import Chain
from ...model._compiled import compiled
from ...model._joints import Link
from ...spatial._components import zeros
from ...spatial.se3 import adjoint
from .._recursions.link_forces import link_motions
from .._recursions.poses import carry_twist
from .._recursions.sweep import outward
from .coordinates import joint_accelerations, joint_rates, place
from .forward_kinematics import forward_kinematics
from .jacobian import Reference

Acceleration = Literal["spatial", "conventional"]


@compiled
def link_twists(
    chain: Chain, q: Float[Array, " nq"], qd: Float[Array, " nv"], reference: Reference = "body"
) -> Float[Array, "n 6"]:
    """Twists V_i = (w_i, v_i) = J_i(q) qd of all links, where J_i is the `jacobian`, by one sweep, O(n) [rad/s, m/s].

    The recursion is V_i = Ad_{T_i,i-1} V_{i-1} + A_i qd_i (Lynch & Park 2017, sec. 8.3), where i-1 denotes the parent of link
    i.

    Args:
        reference: coordinates of the twists, "body", "space" or "mixed", as in `jacobian`.

    Raises:
        ModelError: the reference is unknown.
    """
    body = _body_twists(chain, q, qd)
    return body if reference == "body" else to_reference(chain, q, body, reference)


@compiled
def link_accelerations(
    chain: Chain,
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    qdd: Float[Array, " nv"],
    reference: Reference = "body",
    kind: Acceleration = "spatial",
) -> Float[Array, "n 6"]:
    """Accelerations of all links, without gravity, by one sweep, O(n) [rad/s^2, m/s^2].

    The spatial acceleration dV_i/dt = J_i qdd + dJ_i/dt qd is the component-wise time derivative of `link_twists`. In body
    coordinates, it is dV_i = Ad_{T_i,i-1} dV_{i-1} + ad_{V_i} A_i qd_i + A_i qdd_i (Lynch & Park 2017, sec. 8.3, where dV_i
    also includes -g, since the base acceleration is (0, -g)).

    The conventional acceleration (dw_i/dt, d2p/dt2) consists of the angular acceleration and the acceleration of a point p of
    the body. In body coordinates, p is the frame's origin, and d2p/dt2 = dv/dt + w x v in the axes of the frame. In mixed
    coordinates, d2p/dt2 is the same vector in world axes, and the two kinds of acceleration are equal. In space coordinates,
    p is the body-fixed point at the world's origin.

    Args:
        reference: coordinates of the accelerations, as in `jacobian`.
        kind: "spatial" or "conventional".

    Raises:
        ModelError: the reference or kind is unknown.
    """
    if kind not in ("spatial", "conventional"):
        raise ModelError(f"the kind of acceleration must be 'spatial' or 'conventional', not {kind!r}")
    links, x = place(chain, q)
    motions = link_motions(links, x, joint_rates(chain, qd), joint_accelerations(chain, qd, qdd))
    conventional = motions[:, 3:]
    if reference == "mixed":
        return to_reference(chain, q, conventional, reference)
    if reference == "body" and kind == "conventional":
        return conventional
    body = _body_twists(chain, q, qd)
    spatial = conventional.at[:, 3:].add(-jnp.cross(body[:, :3], body[:, 3:]))
    if reference == "body":
        return spatial
    spatial = to_reference(chain, q, spatial, reference)  # Ad_T dV = d(Ad_T V)/dt, since ad_V V = 0
    if kind == "spatial":
        return spatial
    space = to_reference(chain, q, body, reference)
    return spatial.at[:, 3:].add(jnp.cross(space[:, :3], space[:, 3:]))


def to_reference(
    chain: Chain, q: Float[Array, " nq"], motions: Float[Array, "n 6"], reference: Reference
) -> Float[Array, "n 6"]:
    """Convert motions (w, v) of link frames from body coordinates to those of a reference.

    Raises:
        ModelError: the reference is unknown.
    """
    poses = reference_poses(chain, q, reference)
    return jnp.einsum("nij,nj->ni", jax.vmap(adjoint)(poses), motions)


def reference_poses(chain: Chain, q: Float[Array, " nq"], reference: Reference) -> Float[Array, "n 4 4"]:
    """Poses of the link frames relative to the frames of a reference.

    For "space", the reference is the world frame; otherwise it is a frame with world axes at the origin of each link.

    Raises:
        ModelError: the reference is unknown.
    """
    if reference not in ("body", "space", "mixed"):
        raise ModelError(f"the reference must be 'body', 'space' or 'mixed', not {reference!r}")
    poses = forward_kinematics(chain, q)
    return poses if reference == "space" else poses.at[:, :3, 3].set(jnp.zeros_like(poses[:, :3, 3]))


def _body_twists(chain: Chain, q: Float[Array, " nq"], qd: Float[Array, " nv"]) -> Float[Array, "n 6"]:
    def out(parent, link: Link, rate):
        twist = carry_twist(parent, link, rate)
        return twist, (*twist[0], *twist[1])

    links, x = place(chain, q)
    rates = joint_rates(chain, qd)
    zero = zeros(3, (x, rates), (chain.screw,))
    return jnp.stack(outward(links, x, out, (zero, zero), rates), axis=1)

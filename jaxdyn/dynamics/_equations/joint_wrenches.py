"""Wrenches that joints transmit between each link and its parent, from the inward recursion."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...model._chain import Chain
from ...model._compiled import compiled
from ...spatial.se3 import adjoint, pose_inverse
from .._kinematics.coordinates import base_gravity, joint_accelerations, joint_rates, place
from .._kinematics.jacobian import Reference
from .._kinematics.link_motion import reference_poses
from .._recursions.link_forces import link_motions, transmitted_wrenches
from .._recursions.wrench import link_wrenches


@compiled
def joint_wrenches(
    chain: Chain,
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    qdd: Float[Array, " nv"],
    external_wrenches: Float[Array, "n 6"] | None = None,
    wrench_by_tip: Float[Array, "6"] | None = None,
    reference: Reference = "body",
) -> Float[Array, "n 6"]:
    """Wrenches F_i = (n_i, f_i) that each link's parent exerts on it through its joint, for a given motion, O(n) [N m, N].

        F_i = sum_j Ad_{T_ji}^T F_j + G_i dV_i - ad_{V_i}^T G_i V_i - (external wrench on i),

    where j are the children of link i, V_i is its twist and G_i its spatial inertia. The wrenches are computed by the inward
    recursion (Lynch & Park 2017, sec. 8.3; Spong, Hutchinson & Vidyasagar 2020, sec. 6.6).

    A force sensor or strain gauges at the joint measure F_i. With the joint screw A_i, A_i . F_i is the joint torque of
    `inverse_dynamics` without armature and rotors; the bearings carry the other five components. For a robot on a fixed base,
    the wrench on the first link is the reaction of the foundation. A spherical or free joint consists of several links, all
    massless except the last; its wrench is in the row of the last link.

    Args:
        external_wrenches: wrenches (n, f) that act *on* each link, in the link's frame [N m, N].
        wrench_by_tip: wrench (n, f) that the tip exerts on the world, in the tip's frame [N m, N].
        reference: coordinates of the wrenches. "body": in the axes of link i, about the origin of its frame; "mixed": in
            world axes, about the origin of the link frame; "space": in world axes, about the world's origin.

    Raises:
        ModelError: the reference is unknown.
    """
    links, x = place(chain, q)
    gravity = base_gravity(links)
    base = jnp.concatenate([jnp.zeros(6, gravity.dtype), -gravity])
    motions = link_motions(links, x, joint_rates(chain, qd), joint_accelerations(chain, qd, qdd), base)
    acting = link_wrenches(chain, external_wrenches, wrench_by_tip)
    found, _ = transmitted_wrenches(links, x, motions, acting)
    if reference == "body":
        return found
    back = jax.vmap(lambda t: adjoint(pose_inverse(t)).T)(reference_poses(chain, q, reference))
    return jnp.einsum("nij,nj->ni", back, found)

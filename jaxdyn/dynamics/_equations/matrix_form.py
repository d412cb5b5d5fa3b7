"""The Newton-Euler recursion in matrix form: M = A^T L^T G L A, and the velocity and gravity torques in closed form."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...errors import ModelError
from ...model._chain import Chain
from ...model._compiled import compiled
from ...model._layout import is_ordinary
from ...model._tree import ancestor_mask
from ...spatial.inertia import spatial_inertia
from ...spatial.se3 import adjoint, pose_inverse, twist_cross
from .._kinematics.coordinates import base_gravity
from .._kinematics.forward_kinematics import link_poses
from .._recursions.wrench import link_wrenches


class MatrixForm(NamedTuple):
    """The stacked quantities of Lynch & Park 2017, sec. 8.4, with six rows per link, in the link frames and SI units.

    Attributes:
        screws: block-diagonal matrix A of the joint screws A_i.
        inertias: block-diagonal matrix G of the spatial inertias.
        transport: matrix Gamma, with Ad_{T_ip} in the row of link i and the column of its parent p; Gamma^n = 0.
        propagation: matrix L = (1 - Gamma)^-1 = 1 + Gamma + ... + Gamma^(n-1), with Ad_{T_ij} in the row of link i and the
            column of link j if j is i or an ancestor of i.
        base_twist: vector V_base, with Ad_{T_i0} V_0 in the rows of links attached to the base [rad/s, m/s].
        base_acceleration: vector dV_base, with Ad_{T_i0} (dV_0 + (0, -g)) in the rows of links attached to the base
            [rad/s^2, m/s^2].
        tip_wrench: vector F_tip, with Ad_{T_ti}^T F_t in the rows of the tip's link, where F_t is the wrench of the tip on the
            world [N m, N].
        twists: link twists V = L (A qd + V_base) [rad/s, m/s].
        accelerations: link accelerations dV = L (A qdd - ad_{A qd} (Gamma V + V_base) + dV_base), including -g
            [rad/s^2, m/s^2].
        wrenches: joint wrenches F = L^T (G dV - ad_V^T G V + F_tip) [N m, N].
        mass_matrix: mass matrix M = A^T L^T G L A [kg m^2 or kg].
        velocity_force: velocity torques c = A^T L^T (G L (-ad_{A qd}) (Gamma V + V_base) - ad_V^T G V) [N m or N].
        gravity_force: gravity torques g = A^T L^T G L dV_base [N m or N].
        tip_force: torques due to the wrench at the tip, J^T F_t = A^T L^T F_tip [N m or N].
        torques: joint torques tau = A^T F = M qdd + c + g + J^T F_t [N m or N].
    """

    screws: Float[Array, "6n n"]
    inertias: Float[Array, "6n 6n"]
    transport: Float[Array, "6n 6n"]
    propagation: Float[Array, "6n 6n"]
    base_twist: Float[Array, " 6n"]
    base_acceleration: Float[Array, " 6n"]
    tip_wrench: Float[Array, " 6n"]
    twists: Float[Array, " 6n"]
    accelerations: Float[Array, " 6n"]
    wrenches: Float[Array, " 6n"]
    mass_matrix: Float[Array, "n n"]
    velocity_force: Float[Array, " n"]
    gravity_force: Float[Array, " n"]
    tip_force: Float[Array, " n"]
    torques: Float[Array, " n"]


@compiled
def matrix_form(
    chain: Chain,
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    qdd: Float[Array, " nv"],
    base_twist: Float[Array, "6"] | None = None,
    base_acceleration: Float[Array, "6"] | None = None,
    wrench_by_tip: Float[Array, "6"] | None = None,
) -> MatrixForm:
    """All terms of the dynamics as matrix products; velocity terms are in closed form, without derivatives of M.

    The matrix form is intended for teaching and as an independent check. Its cost is O(n^3) with large constants, whereas
    `inverse_dynamics` is O(n). Serial chains and trees of ordinary joints are supported. Armature, rotors and friction are not
    included. If the base moves, `velocity_force` includes the terms that depend on its velocity, and `gravity_force` those that
    depend on its acceleration.

    The equations differ from those printed in Lynch & Park 2017, sec. 8.4, in three ways:

    - The joint screw is in the link frame: A_i = Ad_{M_i^-1} S_i.
    - The base acceleration is (0, -g), where the gravity vector g points down.
    - The matrix ad_{A qd} has a minus sign, since [V_i, A_i qd_i] = -ad_{A_i qd_i} V_i.

    Args:
        base_twist: twist V_0 = (w, v) of the base in its own frame; zero by default [rad/s, m/s].
        base_acceleration: spatial acceleration dV_0/dt of the base in its own frame, without gravity; zero by default
            [rad/s^2, m/s^2].
        wrench_by_tip: wrench F_t = (n, f) that the tip exerts on the world, in the tip's frame [N m, N].

    Raises:
        ModelError: the chain has quaternion joints or a coupling.
    """
    if not is_ordinary(chain):
        raise ModelError("matrix_form supports ordinary joints only, without quaternion joints or couplings")
    n, parents = chain.n, chain.topology.parents
    poses = link_poses(chain, q)
    dtype = jnp.result_type(poses, qd, qdd)
    blocks = _adjoints(poses)
    mask = jnp.asarray(ancestor_mask(parents).T)[:, :, None, None]
    direct = np.zeros((n, n), bool)
    for i, p in enumerate(parents):
        if p >= 0:
            direct[i, p] = True
    zero = jnp.zeros_like(blocks)
    transport = _matrix(jnp.where(jnp.asarray(direct)[:, :, None, None], blocks, zero))
    propagation = _matrix(jnp.where(mask, blocks, zero))
    screws = _diagonal(chain.screw[:, :, None].astype(dtype))
    inertias = _diagonal(jax.vmap(spatial_inertia)(chain.inertia).astype(dtype))
    base = jnp.eye(4, dtype=dtype) if chain.base_pose is None else chain.base_pose.astype(dtype)
    on_base = jnp.asarray(np.array(parents) < 0, dtype)[:, None]

    def from_base(motion: Array) -> Array:
        carried = jax.vmap(lambda t: adjoint(pose_inverse(t) @ base) @ motion)(poses)
        return (on_base * carried).reshape(-1)

    still, up = jnp.zeros(6, dtype), jnp.concatenate([jnp.zeros(3, dtype), -base_gravity(chain).astype(dtype)])
    twist = from_base(still if base_twist is None else base_twist)
    acceleration = from_base(up if base_acceleration is None else up + base_acceleration)
    acting = link_wrenches(chain, None, wrench_by_tip)
    tip = jnp.zeros(6 * n, dtype) if acting is None else -acting.reshape(-1)

    twists = propagation @ (screws @ qd + twist)
    turn = -_diagonal(jax.vmap(twist_cross)((screws @ qd).reshape(n, 6))) @ (transport @ twists + twist)
    gyroscopic = -_diagonal(jax.vmap(twist_cross)(twists.reshape(n, 6))).T @ (inertias @ twists)
    accelerations = propagation @ (screws @ qdd + turn + acceleration)
    wrenches = propagation.T @ (inertias @ accelerations + gyroscopic + tip)
    inward = screws.T @ propagation.T
    return MatrixForm(
        screws=screws,
        inertias=inertias,
        transport=transport,
        propagation=propagation,
        base_twist=twist,
        base_acceleration=acceleration,
        tip_wrench=tip,
        twists=twists,
        accelerations=accelerations,
        wrenches=wrenches,
        mass_matrix=inward @ inertias @ propagation @ screws,
        velocity_force=inward @ (inertias @ propagation @ turn + gyroscopic),
        gravity_force=inward @ inertias @ propagation @ acceleration,
        tip_force=inward @ tip,
        torques=screws.T @ wrenches,
    )


def _adjoints(poses: Float[Array, "n 4 4"]) -> Float[Array, "n n 6 6"]:
    """Ad_{T_ij} of every pair of links."""
    return jax.vmap(lambda a: jax.vmap(lambda b: adjoint(pose_inverse(a) @ b))(poses))(poses)


def _matrix(blocks: Float[Array, "n m a b"]) -> Float[Array, "rows columns"]:
    n, m, a, b = blocks.shape
    return blocks.transpose(0, 2, 1, 3).reshape(n * a, m * b)


def _diagonal(blocks: Float[Array, "n a b"]) -> Float[Array, "rows columns"]:
    return _matrix(jnp.eye(len(blocks), dtype=blocks.dtype)[:, :, None, None] * blocks[:, None])

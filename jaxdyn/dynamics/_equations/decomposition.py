"""Decomposition of the mass matrix M and the Coriolis matrix C into contributions of the links' rotation and translation."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...model._chain import Chain
from ...model._compiled import compiled
from ...model._configuration import integrate
from ...model._tree import ancestor_mask
from ...spatial.inertia import inertial_parameters_to_com
from ...spatial.se3 import adjoint
from ...spatial.so3 import skew
from .._kinematics.coordinates import joints_of
from .._kinematics.forward_kinematics import forward_kinematics


class Decomposition(NamedTuple):
    """Contributions of the links' rotation and translation: M = D_w + D_v, C = C_w + C_v, and g = G.

    The units are those for revolute joints.

    Attributes:
        rotational_mass_matrix: D_w = sum_i Jw_i^T I_i Jw_i [kg m^2].
        translational_mass_matrix: D_v = sum_i m_i Jv_i^T Jv_i [kg m^2].
        rotational_coriolis_matrix: C_w = sum_i Jw_i^T (I_i dJw_i/dt + w_i x I_i Jw_i) [N m s/rad].
        translational_coriolis_matrix: C_v = sum_i m_i Jv_i^T dJv_i/dt [N m s/rad].
        gravity_force: G = -sum_i m_i Jv_i^T gravity [N m].
    """

    rotational_mass_matrix: Float[Array, "nv nv"]
    translational_mass_matrix: Float[Array, "nv nv"]
    rotational_coriolis_matrix: Float[Array, "nv nv"]
    translational_coriolis_matrix: Float[Array, "nv nv"]
    gravity_force: Float[Array, " nv"]


@compiled
def decomposition(chain: Chain, q: Float[Array, " nq"], qd: Float[Array, " nv"]) -> Decomposition:
    """Decomposition of M, C and g into rotational terms D_w and C_w, translational terms D_v and C_v, and G, O(n^3).

    The terms are computed by the cross-product method. In world axes, w_i = Jw_i qd is the angular velocity of link i,
    dp_i/dt = Jv_i qd is the velocity of its centre of mass, and I_i is its inertia about the centre of mass (Shih et al. 2012,
    sec. 2.2 and 3). The sum D_w + D_v is the mass matrix without armature and rotors.

    The sum C = C_w + C_v satisfies C qd = `coriolis_force`, and dM/dt - 2 C is skew-symmetric. The rotational part dD_w/dt - 2
    C_w and the translational part dD_v/dt - 2 C_v are each skew-symmetric as well. If three joints rotate a link about
    independent axes, C differs from `coriolis_matrix`, which is defined by Christoffel symbols. The derivatives dJ/dt come from
    one forward-mode derivative of the Jacobians.
    """
    mass, com, inertia = jax.vmap(inertial_parameters_to_com)(chain.inertia)
    carries = jnp.asarray(ancestor_mask(chain.topology.parents).T)[:, None, :]  # [link, 1, joint]

    def jacobians(time):
        poses = forward_kinematics(chain, integrate(chain, q, time * qd))
        rotation = poses[:, :3, :3]
        centres = poses[:, :3, 3] + jnp.einsum("nij,nj->ni", rotation, com)
        screws = jnp.einsum("nij,nj->in", jax.vmap(adjoint)(poses), chain.screw.astype(poses.dtype))
        angular, linear = jnp.broadcast_to(screws[None, :3], (chain.n, 3, chain.n)), screws[None, 3:]
        linear = linear - jax.vmap(skew)(centres) @ angular
        jw, jv = (joints_of(chain, jnp.where(carries, x, jnp.zeros_like(x))) for x in (angular, linear))
        return jw, jv, rotation

    zero, one = jnp.zeros((), qd.dtype), jnp.ones((), qd.dtype)
    (jw, jv, rotation), (djw, djv, _) = jax.jvp(jacobians, (zero,), (one,))
    inertia = rotation @ inertia @ rotation.transpose(0, 2, 1)
    gyroscopic = jax.vmap(skew)(jw @ qd) @ inertia @ jw
    together = lambda a, b: jnp.einsum("nij,nik->jk", a, b)
    weighted = mass[:, None, None] * jv
    return Decomposition(
        rotational_mass_matrix=together(jw, inertia @ jw),
        translational_mass_matrix=together(jv, weighted),
        rotational_coriolis_matrix=together(jw, inertia @ djw + gyroscopic),
        translational_coriolis_matrix=together(weighted, djv),
        gravity_force=-jnp.einsum("nij,i->j", weighted, chain.gravity),
    )

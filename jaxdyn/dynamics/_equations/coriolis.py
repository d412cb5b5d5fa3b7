"""The Coriolis matrix from Christoffel symbols, for which dM/dt - 2 C is skew-symmetric, and velocity products."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...model._chain import Chain
from ...model._compiled import compiled
from .._kinematics.coordinates import by_coordinates, joint_rates, place, rate_matrix, times_rate_matrix
from .._recursions.pairs import pairs_of, spread, spread_sides
from .._recursions.variation import coriolis_entries
from .mass_matrix import link_mass_matrix


@compiled
def christoffel_symbols(chain: Chain, q: Float[Array, " nq"]) -> Float[Array, "nv nv nv"]:
    """Christoffel symbols of the first kind of the mass matrix, by automatic differentiation of M(q), O(n^3).

    The symbols Gamma_ijk = (dM_ij/dq_k + dM_ik/dq_j - dM_jk/dq_i) / 2 are symmetric in j and k (Lynch & Park 2017, sec. 8.1.2)
    and yield the Coriolis and centrifugal torques c(q, qd)_i = sum_jk Gamma_ijk qd_j qd_k. Their unit is that of torque divided
    by squared rate [N m s^2/rad^2 for revolute joints].

    The velocities of quaternion joints are not rates of coordinates. The symbols of these joints are those of local coordinates
    x about the current placement, minus M dA/dt (see the module `coordinates`), and are not symmetric in j and k.
    """
    links, x = place(chain, q)
    dm = jax.jacfwd(link_mass_matrix, argnums=1)(links, x)
    symbols = 0.5 * (dm + dm.transpose(0, 2, 1) - dm.transpose(2, 0, 1))
    if chain.coupling is not None:
        s = chain.coupling.matrix
        symbols = jnp.einsum("ijk,ia,jb,kc->abc", symbols, s, s, s)
    if not chain.topology.quaternion_joints:
        return symbols
    structure = jax.jacfwd(lambda v: rate_matrix(chain, v))(jnp.zeros(chain.nv, symbols.dtype))
    return symbols - jnp.einsum("il,ljk->ijk", by_coordinates(chain, link_mass_matrix(links, x)), structure)


class VelocityProducts(NamedTuple):
    """Coefficients of products of rates in the velocity terms, c = coriolis (qd_j qd_k)_{j<k} + centrifugal (qd_j^2).

    The unit is that of torque divided by squared rate [N m s^2/rad^2 for revolute joints].

    Attributes:
        coriolis: coefficients of qd_1 qd_2, qd_1 qd_3, ..., qd_2 qd_3, ..., in the order of `rate_pairs`.
        centrifugal: coefficients of qd_1^2, qd_2^2, ...
    """

    coriolis: Float[Array, "nv pairs"]
    centrifugal: Float[Array, "nv nv"]


def rate_pairs(nv: int) -> tuple[tuple[int, int], ...]:
    """Pairs (j, k) of joints, j < k, in the order of the columns of `VelocityProducts.coriolis`."""
    return tuple(zip(*(x.tolist() for x in np.triu_indices(nv, 1)), strict=True))


@compiled
def velocity_products(chain: Chain, q: Float[Array, " nq"]) -> VelocityProducts:
    """The velocity terms c(q, qd), split into Coriolis terms qd_j qd_k and centrifugal terms qd_j^2.

    With Gamma = `christoffel_symbols`, c_i = sum_{j<k} (Gamma_ijk + Gamma_ikj) qd_j qd_k + sum_j Gamma_ijj qd_j^2. The cost is
    O(n^3). The names follow Spong, Hutchinson & Vidyasagar (2020, sec. 6.3), and the two matrices are those of Craig (2005,
    sec. 6.8). Whether a term is a Coriolis term depends on the choice of coordinates; for example, the equations of
    `textbook.remotely_driven_elbow` contain no Coriolis terms.
    """
    symbols = christoffel_symbols(chain, q)
    j, k = np.triu_indices(chain.nv, 1)
    return VelocityProducts(symbols[:, j, k] + symbols[:, k, j], jnp.diagonal(symbols, axis1=1, axis2=2))


@compiled
def coriolis_matrix(chain: Chain, q: Float[Array, " nq"], qd: Float[Array, " nv"]) -> Float[Array, "nv nv"]:
    """Coriolis matrix C(q, qd), C_ij = sum_k Gamma_ijk qd_k with Gamma = `christoffel_symbols`, O(n depth) [N m s/rad].

    The matrix has two properties: dM/dt - 2 C is skew-symmetric, and C qd = c with c = `coriolis_force`. It is computed as (d
    c / d qd) / 2, which is exact because c is quadratic in qd and Gamma_ijk is symmetric in j and k. The derivative is
    analytic, as in `inverse_dynamics_derivatives`. For quaternion joints, M dA/dt is subtracted, as in `christoffel_symbols`;
    both properties still hold.
    """
    links, x = place(chain, q)
    pairs, turning = pairs_of(links.topology.parents), bool(chain.topology.quaternion_joints)
    above, below, *mass = coriolis_entries(links, x, joint_rates(chain, qd), turning)
    matrix = by_coordinates(chain, spread_sides(pairs, above, below))
    if not turning:
        return matrix
    return matrix - times_rate_matrix(chain, by_coordinates(chain, spread(pairs.symmetric, *mass)), qd)

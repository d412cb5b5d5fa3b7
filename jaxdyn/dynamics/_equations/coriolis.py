"""The Coriolis matrix, consistent with the Christoffel symbols, so that dM/dt - 2 C is skew-symmetric."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...model._chain import Chain
from ...model._compiled import compiled
from .._kinematics.coordinates import by_coordinates, joint_rates, place, rate_matrix
from .._lowering import by_batch
from .._recursions.newton_euler import newton_euler
from .._recursions.pairs import jacobian_by_column
from .mass_matrix import link_mass_matrix


@compiled
def christoffel_symbols(chain: Chain, q: Float[Array, " nq"]) -> Float[Array, "nv nv nv"]:
    """Christoffel symbols of the first kind of the mass matrix, by automatic differentiation of M(q), O(n^3).

    Gamma_ijk = (dM_ij/dq_k + dM_ik/dq_j - dM_jk/dq_i) / 2, symmetric in j and k (Lynch & Park 2017, sec. 8.1.2).
    c(q, qd)_i = sum_jk Gamma_ijk qd_j qd_k. Twists of quaternion joints are no coordinates' rates: there the symbols are
    those of coordinates x about the present placement, less M dA/dt (`coordinates`), and not symmetric.
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


@compiled
def coriolis_matrix(chain: Chain, q: Float[Array, " nq"], qd: Float[Array, " nv"]) -> Float[Array, "nv nv"]:
    """C(q, qd) with C_ij = sum_k Gamma_ijk qd_k, computed as C = (d c / d qd) / 2 with c = `coriolis_force`, O(n^2).

    Exact, because c is quadratic in qd and Gamma_ijk is symmetric in j and k. dM/dt - 2 C is skew-symmetric, and C qd = c.
    Equals the contraction of `christoffel_symbols` with qd, at the price of one forward-mode derivative [N m s/rad]. With
    quaternion joints M dA/dt is taken off, as there, which keeps both properties.
    """
    links, x = place(chain, q)
    matrix = by_coordinates(chain, link_coriolis_matrix(links, x, joint_rates(chain, qd)))
    if not chain.topology.quaternion_joints:
        return matrix
    return matrix - by_coordinates(chain, link_mass_matrix(links, x)) @ rate_matrix(chain, qd)


@by_batch(size=lambda chain: max(100 + 80 * chain.n, 2 * chain.n**2))
def link_coriolis_matrix(
    chain: Chain, x: Float[Array, "n *#lanes"], rates: Float[Array, "n *#lanes"]
) -> Float[Array, "n n *#lanes"]:
    """The rigid links' Coriolis matrix, of a chain of ordinary joints."""
    rates = rates.astype(jnp.result_type(x, rates, chain.inertia))
    zero, still = jnp.zeros_like(rates), jnp.zeros_like(chain.gravity)
    return 0.5 * jacobian_by_column(lambda qd: newton_euler(chain, x, qd, zero, still, None), rates)

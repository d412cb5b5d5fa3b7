"""The Coriolis matrix, consistent with the Christoffel symbols, so that dM/dt - 2 C is skew-symmetric."""

import jax
from jaxtyping import Array, Float

from ..model.chain import Chain
from .inverse import coriolis_force
from .mass_matrix import mass_matrix


def christoffel_symbols(chain: Chain, q: Float[Array, " n"]) -> Float[Array, "n n n"]:
    """Christoffel symbols of the first kind of the mass matrix, by automatic differentiation of M(q), O(n^3).

    Gamma_ijk = (dM_ij/dq_k + dM_ik/dq_j - dM_jk/dq_i) / 2, symmetric in j and k (Lynch & Park 2017, sec. 8.1.2).
    c(q, qd)_i = sum_jk Gamma_ijk qd_j qd_k.
    """
    dm = jax.jacfwd(mass_matrix, argnums=1)(chain, q)
    return 0.5 * (dm + dm.transpose(0, 2, 1) - dm.transpose(2, 0, 1))


def coriolis_matrix(chain: Chain, q: Float[Array, " n"], qd: Float[Array, " n"]) -> Float[Array, "n n"]:
    """C(q, qd) with C_ij = sum_k Gamma_ijk qd_k, computed as C = (d c / d qd) / 2 with c = `coriolis_force`, O(n^2).

    Exact, because c is quadratic in qd and Gamma_ijk is symmetric in j and k. dM/dt - 2 C is skew-symmetric, and C qd = c.
    Equals the contraction of `christoffel_symbols` with qd, at the price of one forward-mode derivative [N m s/rad].
    """
    return 0.5 * jax.jacfwd(coriolis_force, argnums=2)(chain, q, qd)

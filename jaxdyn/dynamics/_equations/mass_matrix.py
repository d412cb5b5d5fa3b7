"""The mass matrix M(q): by its definition, as the derivative of inverse dynamics, and by composite rigid bodies."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...model._chain import Chain
from ...model._compiled import compiled
from ...model._tree import ancestor_mask
from ...spatial._components import dot
from .._kinematics.coordinates import generalised_inertia, place
from .._lowering import by_batch
from .._recursions.composite import composite_momenta
from .._recursions.newton_euler import newton_euler
from .._recursions.pairs import by_row, jacobian_by_column


@compiled
def mass_matrix(chain: Chain, q: Float[Array, " nq"]) -> Float[Array, "nv nv"]:
    """M(q) = d inverse_dynamics / d qdd, by forward-mode differentiation of recursive Newton-Euler, O(n^2).

    Symmetric and positive definite; the kinetic energy is qd^T M qd / 2. Armature is on the diagonal. `crba` computes the
    same matrix by another algorithm (Lynch & Park 2017, sec. 8.5 for its columns as inverse dynamics) [kg m^2].
    """
    links, x = place(chain, q)
    return generalised_inertia(chain, link_mass_matrix(links, x) + jnp.diag(chain.armature))


@by_batch(size=lambda chain: max(100 + 80 * chain.n, 2 * chain.n**2))
def link_mass_matrix(chain: Chain, x: Float[Array, "n *#lanes"]) -> Float[Array, "n n *#lanes"]:
    """The rigid links' mass matrix, of a chain of ordinary joints: without armature."""
    zero, still = jnp.zeros_like(x, jnp.result_type(x, chain.inertia)), jnp.zeros_like(chain.gravity)
    return jacobian_by_column(lambda qdd: newton_euler(chain, x, zero, qdd, still, None), zero)


@compiled
def crba(chain: Chain, q: Float[Array, " nq"]) -> Float[Array, "nv nv"]:
    """M(q) by the composite-rigid-body algorithm: M_ij = A_i^T G^c_j A_j, all in the world frame, O(n^2).

    G^c_j is the inertia of link j and everything beyond it as one body, moved to the world frame where composites just add
    (Walker & Orin 1982; Featherstone 2008, sec. 6.2). Equals `mass_matrix`.
    """
    links, x = place(chain, q)
    return generalised_inertia(chain, link_crba(links, x) + jnp.diag(chain.armature))


@by_batch(size=lambda chain: max(100 + 40 * chain.n, 2 * chain.n**2))
def link_crba(chain: Chain, x: Float[Array, "n *#lanes"]) -> Float[Array, "n n *#lanes"]:
    """The rigid links' mass matrix by composite bodies: without armature."""
    axes, momenta = composite_momenta(chain, x)
    momenta = (*momenta[0], *momenta[1])
    row = lambda own: [(dot(own[1], axes),), (dot(own[0], momenta),)]
    return by_row(ancestor_mask(chain.topology.parents), row, (axes, momenta))[0]

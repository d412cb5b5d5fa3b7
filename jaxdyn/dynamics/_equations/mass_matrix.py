"""The mass matrix M(q), as the derivative of inverse dynamics and by the composite-rigid-body algorithm."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ...model._chain import Chain
from ...model._compiled import compiled
from ...model._joints import carried_masses
from ...spatial._components import dot
from .._kinematics.coordinates import generalised_inertia, place
from .._lowering import by_batch, spread_over_lanes
from .._recursions.composite import Masses, composite_momenta
from .._recursions.newton_euler import newton_euler
from .._recursions.pairs import jacobian_by_column, over_pairs, pairs_of, spread


@compiled
def mass_matrix(chain: Chain, q: Float[Array, " nq"]) -> Float[Array, "nv nv"]:
    """Mass matrix M(q) = d inverse_dynamics / d qdd, by forward-mode differentiation of Newton-Euler, O(n^2) [kg m^2].

    M is symmetric and positive definite, and the kinetic energy is qd^T M qd / 2. The diagonal includes the armature. Lynch &
    Park (2017, sec. 8.5) compute the columns by inverse dynamics. `crba` computes the same matrix by another algorithm.
    """
    links, x = place(chain, q)
    return generalised_inertia(chain, link_mass_matrix(links, x) + jnp.diag(chain.armature))


@by_batch(size=lambda chain: max(100 + 80 * chain.n, 2 * chain.n**2))
def link_mass_matrix(chain: Chain, x: Float[Array, "n *#lanes"]) -> Float[Array, "n n *#lanes"]:
    """Mass matrix of the rigid links, without armature, of a chain with ordinary joints."""
    zero, still = jnp.zeros_like(x, jnp.result_type(x, chain.inertia)), jnp.zeros_like(chain.gravity)
    return jacobian_by_column(lambda qdd: newton_euler(chain, x, zero, qdd, still, None), zero)


@compiled
def crba(chain: Chain, q: Float[Array, " nq"]) -> Float[Array, "nv nv"]:
    """Mass matrix M(q) by the composite-rigid-body algorithm, M_ij = A_i^T G^c_j A_j, O(n depth) [kg m^2].

    G^c_j is the composite inertia of link j and all links that it carries (Walker & Orin 1982; Featherstone 2008, sec. 6.2).
    Sums are in world axes, about the origins of links, so the result does not depend on the position of the robot. M_ij = 0
    if neither of the joints i and j carries the other. The result equals that of `mass_matrix`.
    """
    links, x = place(chain, q)
    pairs = pairs_of(links.topology.parents)
    return generalised_inertia(chain, spread(pairs.symmetric, crba_entries(links, x, carried_masses(links))))


@by_batch(size=lambda chain: 100 + 2 * chain.n + pairs_of(chain.topology.parents).count)
def crba_entries(chain: Chain, x: Float[Array, "n *#lanes"], masses: Masses) -> Float[Array, "entries *#lanes"]:
    """Entries of the mass matrix, including armature, from composite bodies, in the order of `pairs_of`."""
    composite = composite_momenta(chain, x, masses)

    def entry(screw, of_carried, same):
        momentum, armature = of_carried
        return ((dot(screw, momentum) + jnp.where(same, armature, jnp.zeros_like(armature)),),)

    of_carried = (composite.momentum, spread_over_lanes(chain.armature))
    return over_pairs(pairs_of(chain.topology.parents), entry, composite.screw, of_carried)[0]

"""Mass, centre of mass and momentum of all moving links, without a fixed base, and the centroidal momentum matrix.

All quantities are in world axes.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..model.chain import Chain, Position, Velocity, ancestor_mask
from ..model.compiled import compiled
from ..model.configuration import place
from ..spatial.components import add, move_wrench, zeros
from .composite_body import Masses, Momenta, carried_masses, carried_wrench, composite_momenta, wrench_at
from .coordinates import joint_accelerations, joint_rates, joints_of
from .engine.lanes import PerLink, by_batch
from .engine.sweep import Link, carry_twist, next_pose, outward, start_pose
from .kinematics import link_poses
from .wrenches import world_wrenches


def total_mass(chain: Chain) -> Float[Array, ""]:
    """Mass m = sum_i m_i of all moving links [kg]."""
    return chain.inertia[:, 0].sum()


@compiled
def centre_of_mass(chain: Chain, q: Position) -> Float[Array, "3"]:
    """Centre of mass c = sum_i (m_i p_i + R_i h_i) / m of the moving links in the world, O(n) [m]; NaN if the mass m is 0."""
    return first_moment(*place(chain, q)) / total_mass(chain)


def first_moment(chain: Chain, x: Float[Array, " n"]) -> Float[Array, "3"]:
    """First moment sum_i (m_i p_i + R_i h_i) of the links of a chain with ordinary joints about the world's origin [kg m]."""
    weights = jnp.concatenate([chain.inertia[:, 1:4], chain.inertia[:, :1]], axis=1)
    return jnp.einsum("nij,nj->i", link_poses(chain, x)[:, :3], weights)


@compiled
def centre_of_mass_jacobian(chain: Chain, q: Position) -> Float[Array, "3 nv"]:
    """Jacobian of the centre of mass, dc/dt = J_c(q) qd in world axes, O(n) [m/rad or 1]."""
    return centroidal_momentum_matrix(chain, q)[3:] / total_mass(chain)


@compiled
def total_momentum(chain: Chain, q: Position, qd: Velocity) -> Float[Array, "6"]:
    """Angular momentum about the world's origin, and linear momentum, in world axes, O(n) [kg m^2/s, kg m/s].

    Its rate is the total wrench of gravity and all external forces, including the reaction at a fixed base.
    """

    links, x = place(chain, q)
    return _link_momenta(links, x, joint_rates(chain, qd)).sum(1)


@by_batch
def _link_momenta(chain: Chain, x: PerLink, rates: PerLink) -> Float[Array, "6 n *#lanes"]:
    """Momenta of the links about the world's origin."""

    def out(parent, link: Link, rate):
        world, twist = parent
        twist = carry_twist(twist, link, rate)
        r, p = next_pose(world, link)
        return ((r, p), twist), move_wrench(r, p, carried_wrench(link.inertia, (*twist[0], *twist[1])))

    zero = zeros(3, (x, rates), (chain.inertia,))
    return jnp.stack(outward(chain, x, out, (start_pose(chain, x, rates), (zero, zero)), rates))


@compiled
def centroidal_momentum_matrix(chain: Chain, q: Position) -> Float[Array, "6 nv"]:
    """Matrix A_G(q) with A_G qd = (l_G, p), the angular momentum about the centre of mass and the linear momentum, O(n).

    At unit rate of joint j, the links that it carries have the momentum G^c_j A_j about the centre of mass, which is column j
    of A_G (Orin, Goswami & Lee 2013). The linear rows are m J_c, where m is the mass and J_c = `centre_of_mass_jacobian`.
    Pinocchio puts the linear part first.
    """
    links, x = place(chain, q)
    return joints_of(chain, centroidal_columns(links, x, carried_masses(links.topology.parents, links.inertia)))


@compiled
def centroidal_momentum(chain: Chain, q: Position, qd: Velocity) -> Float[Array, "6"]:
    """Angular momentum l_G about the centre of mass, and linear momentum p, in world axes, O(n) [kg m^2/s, kg m/s].

    (l_G, p) = A_G(q) qd with A_G = `centroidal_momentum_matrix`. Without contact, its rate is (0, m gravity).
    """
    return centroidal_momentum_matrix(chain, q) @ qd


@compiled
def centroidal_momentum_bias(chain: Chain, q: Position, qd: Velocity) -> Float[Array, "6"]:
    """Bias dA_G/dt qd in the rate of the centroidal momentum, d(l_G, p)/dt = A_G qdd + dA_G/dt qd, O(n) [N m, N]."""
    links, x = place(chain, q)
    rates, accelerations = joint_rates(chain, qd), joint_accelerations(chain, qd, jnp.zeros_like(qd))
    return wrenches_about_centre(
        links, x, carried_masses(links.topology.parents, links.inertia), rates, accelerations
    ).sum(1)


@by_batch
def centroidal_columns(chain: Chain, q: PerLink, masses: Masses) -> Float[Array, "6 n *#lanes"]:
    """Momenta (l, p) about the centre of mass of the links that each joint carries at unit rate of the joint."""
    composite = composite_momenta(chain, q, masses)
    return jnp.stack(wrench_at(to_centre(chain, composite, masses), composite.momentum))


@by_batch
def wrenches_about_centre(
    chain: Chain, q: PerLink, masses: Masses, qd: PerLink, qdd: PerLink
) -> Float[Array, "6 n *#lanes"]:
    """The links' Newton-Euler wrenches (n, f) without gravity, about the centre of mass."""

    _, wrenches = world_wrenches(chain, q, qd, qdd, None, None)
    composite = composite_momenta(chain, q, masses)
    return jnp.stack(wrench_at(add(composite.to_pivot, to_centre(chain, composite, masses)), wrenches))


def to_centre(chain: Chain, composite: Momenta, masses: Masses):
    """Vectors to the centre of mass from the pivots of the links."""
    roots = np.flatnonzero(np.array(chain.topology.parents) < 0)
    # relative to the first root's pivot, because pivots in the world may have few digits
    pivots = tuple(x[roots] - x[roots[:1]] for x in composite.from_parent)
    mass = masses[roots]
    mass = mass.reshape(*mass.shape, *(1,) * (pivots[0].ndim - mass.ndim))
    moments = (x[roots] + mass * p for x, p in zip(composite.moment, pivots, strict=True))
    centre = tuple(sum(x) / sum(mass) for x in moments)
    root = np.argmax(ancestor_mask(chain.topology.parents)[roots], axis=0)
    return tuple((c - p)[root] for c, p in zip(centre, pivots, strict=True))

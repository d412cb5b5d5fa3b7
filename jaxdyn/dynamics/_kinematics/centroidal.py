"""Mass, centre of mass and momentum of a robot, and the centroidal momentum matrix.

All quantities are in world axes. They include all moving links, but exclude a fixed base.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...model._chain import Chain
from ...model._compiled import compiled
from ...model._joints import Link
from ...model._tree import branches_of
from ...spatial._components import matmul, rotate, zeros
from .._recursions.composite import composite_momenta
from .._recursions.newton_euler import accelerate, body_wrench
from .._recursions.poses import start_pose
from .._recursions.sweep import outward
from .coordinates import joint_accelerations, joint_rates, joints_of, place
from .forward_kinematics import placements


def total_mass(chain: Chain) -> Float[Array, ""]:
    """Mass m = sum_i m_i of all moving links [kg]."""
    return chain.inertia[:, 0].sum()


@compiled
def centre_of_mass(chain: Chain, q: Float[Array, " nq"]) -> Float[Array, "3"]:
    """Centre of mass c = sum_i (m_i p_i + R_i h_i) / m of the moving links in the world, O(n) [m]; NaN if the mass m is 0."""

    origins = _origins(chain, q)
    return origins.reference + origins.centre


@compiled
def centre_of_mass_jacobian(chain: Chain, q: Float[Array, " nq"]) -> Float[Array, "3 nv"]:
    """Jacobian of the centre of mass, dc/dt = J_c(q) v in world axes, O(n) [m/rad or 1].

    Column j is the linear momentum at unit rate of joint j, divided by the total mass.
    """
    return joints_of(chain, _momenta(chain, q)[3:]) / total_mass(chain)


@compiled
def total_momentum(chain: Chain, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, "6"]:
    """Angular momentum about the world's origin, and linear momentum, in world axes, O(n) [kg m^2/s, kg m/s].

    The rate of the momentum is the total wrench of gravity and all external forces, including the reaction at a fixed base.
    """
    origins = _origins(chain, q)
    about_reference = joints_of(chain, _about(-origins.from_reference, _momenta(chain, q))) @ v
    return _about(-origins.reference[None], about_reference[:, None])[:, 0]


@compiled
def centroidal_momentum_matrix(chain: Chain, q: Float[Array, " nq"]) -> Float[Array, "6 nv"]:
    """Matrix A_G(q) with A_G v = (l_G, p), the angular momentum about the centre of mass and the linear momentum, O(n).

    Components are in world axes. At unit rate of joint j, the links that it carries have the momentum G^c_j A_j about the
    centre of mass, which is column j of A_G (Orin, Goswami & Lee 2013). The linear rows are m J_c, where m is the mass and
    J_c = `centre_of_mass_jacobian`. Pinocchio puts the linear part first.
    """
    return joints_of(chain, _about(_origins(chain, q).to_centre, _momenta(chain, q)))


@compiled
def centroidal_momentum(chain: Chain, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, "6"]:
    """Angular momentum l_G about the centre of mass, and linear momentum p, in world axes, O(n) [kg m^2/s, kg m/s].

    The momenta are (l_G, p) = A_G(q) v with A_G = `centroidal_momentum_matrix`. Without contact, the rate of (l_G, p) is (0, m
    gravity), so l_G is constant for any joint motion.
    """
    return centroidal_momentum_matrix(chain, q) @ v


@compiled
def centroidal_momentum_bias(chain: Chain, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> Float[Array, "6"]:
    """Bias dA_G/dt v in the rate of the centroidal momentum, d(l_G, p)/dt = A_G a + dA_G/dt v, in world axes, O(n) [N m, N].

    The bias is computed as the sum of the links' Newton-Euler wrenches at a = 0.
    """

    def out(parent, link: Link, x):
        rotation, motion = parent
        motion = accelerate(motion, link, *x)
        r = matmul(rotation, link.rotation)
        moment, force = body_wrench(link.inertia, *motion)
        return (r, motion), (*rotate(r, moment), *rotate(r, force))

    links, x = place(chain, q)
    rates, accelerations = joint_rates(chain, v), joint_accelerations(chain, v, jnp.zeros_like(v))
    zero = zeros(3, (x, rates), (chain.inertia,))
    start = (start_pose(links, x, rates)[0], (zero, zero, zero))
    wrenches = outward(links, x, out, start, (rates, accelerations))
    return _about(_origins(chain, q).to_centre, jnp.stack(wrenches)).sum(1)


class _Origins(NamedTuple):
    """Origins of the links and the centre of mass, relative to a reference link: in the world, they may have few digits."""

    reference: Float[Array, "3"]
    centre: Float[Array, "3"]
    from_reference: Float[Array, "n 3"]

    @property
    def to_centre(self) -> Float[Array, "n 3"]:
        return self.centre[None] - self.from_reference


def _origins(chain: Chain, q: Array) -> _Origins:
    links, x = place(chain, q)
    placed = placements(links, x)
    # the first link at which the robot branches, or its last link
    reference = int(np.argmax(branches_of(chain.topology.parents).ends))
    away = placed.seen_from(reference)[:-1]
    mass, moment = links.inertia[:, :1], links.inertia[:, 1:4]
    moments = mass * away + jnp.einsum("nij,nj->ni", placed.rotation[:-1], moment.astype(away.dtype))
    here = placed.position[reference] + placed.rest[reference]
    return _Origins(here, moments.sum(0) / total_mass(chain), away)


def _momenta(chain: Chain, q: Array) -> Float[Array, "6 n"]:
    """Momenta (l, p) of the links that each joint carries at unit rate, about the joint's link."""
    links, x = place(chain, q)
    _, momenta, _ = composite_momenta(links, x)
    return jnp.stack(momenta)


def _about(points: Float[Array, "#m 3"], columns: Float[Array, "6 m"]) -> Float[Array, "6 m"]:
    """Momenta or wrenches about other points, given by their vectors c from the present ones: l - c x p."""
    moved = columns[:3] - jnp.cross(points.T, columns[3:], axis=0)
    return jnp.concatenate([moved, columns[3:]])

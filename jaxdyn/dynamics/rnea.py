"""The equations of motion as the theory states them: the definitions of the library's dynamics.

    tau = M(q) qdd + C(q, qd) qd + g(q) = Y(q, qd, qdd) pi

The recursive Newton-Euler algorithm (RNEA) is two scans over the links: outward for motions, inward for wrenches. All
other terms follow from it by differentiation. This module is plain JAX without regard to speed; the functions of the
same names in `jaxdyn.dynamics` return the same values by fast algorithms, unless the environment variable
`JAXDYN_DEFINITIONS=1` makes the whole library use these definitions.

Notation follows Lynch & Park (2017), ch. 8. Twists V = (w, v) and wrenches F = (n, f) of a link are in the axes of its
frame, about its origin, angular part first. T_pi is the pose of link i in its parent p, and A_i the screw of joint i.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..model.chain import Chain
from ..model.configuration import place
from ..spatial.inertia import spatial_inertia
from ..spatial.se3 import adjoint, pose, pose_exp, pose_inverse, twist_cross
from .coordinates import (
    base_gravity,
    by_coordinates,
    generalised_force,
    joint_accelerations,
    joint_rates,
    link_wrenches,
    rate_matrix,
    rotor_torques,
)


class Motion(NamedTuple):
    """Twist V and acceleration dV/dt of a link, in its own axes."""

    twist: Float[Array, "6"]
    acceleration: Float[Array, "6"]


def link_motion(parent: Motion, t: Float[Array, "4 4"], screw: Float[Array, "6"], qd: Array, qdd: Array) -> Motion:
    """Motion of link i from that of its parent p, whose pose in link i is T = T_ip.

    V_i  = Ad_T V_p  + A_i qd_i
    dV_i = Ad_T dV_p + A_i qdd_i + ad_{V_i} A_i qd_i
    """
    twist = adjoint(t) @ parent.twist + screw * qd
    acceleration = adjoint(t) @ parent.acceleration + screw * qdd + twist_cross(twist) @ screw * qd
    return Motion(twist, acceleration)


def required_wrench(inertia: Float[Array, "10"], motion: Motion) -> Float[Array, "6"]:
    """Wrench that the motion of a rigid body with spatial inertia G requires: F = G dV - ad_V^T G V."""
    g = spatial_inertia(inertia)
    return g @ motion.acceleration - twist_cross(motion.twist).T @ (g @ motion.twist)


def newton_euler(
    chain: Chain,
    q: Float[Array, " n"],
    qd: Float[Array, " n"],
    qdd: Float[Array, " n"],
    gravity: Float[Array, "3"],
    external_wrenches: Float[Array, "n 6"] | None = None,
) -> Float[Array, " n"]:
    """Joint torques by the RNEA, for joints with one degree of freedom; gravity is in the axes of the base."""
    n, base = chain.n, -1  # the base's motion is kept in the last of n + 1 rows, which index -1 denotes as well
    parents = np.array(chain.topology.parents)  # a parent precedes its children; -1 is the base
    screws = chain.screw
    placements = jax.vmap(pose)(chain.rotation, chain.translation)
    in_link = jax.vmap(lambda m, a, x: pose_inverse(m @ pose_exp(a * x)))(placements, screws, q)  # T_ip

    def outward(motions: Motion, link):
        i, parent, t, screw, inertia, rate, acceleration, external = link
        motion = link_motion(jax.tree.map(lambda x: x[parent], motions), t, screw, rate, acceleration)
        wrench = required_wrench(inertia, motion) - external
        return jax.tree.map(lambda rows, row: rows.at[i].set(row), motions, motion), wrench

    def inward(wrenches: Float[Array, "links 6"], link):
        i, parent, t, screw = link
        torque = screw @ wrenches[i]  # tau_i = A_i^T F_i
        return wrenches.at[parent].add(adjoint(t).T @ wrenches[i]), torque  # F_p <- F_p + Ad_T^T F_i

    links = np.arange(n), parents, in_link, screws
    dtype = jnp.result_type(chain.inertia, q, qd, qdd)
    still, base_acceleration = jnp.zeros((n + 1, 6), dtype), -gravity
    at_base = Motion(still, still.at[base, 3:].set(base_acceleration))
    acting = jnp.zeros((n, 6), dtype) if external_wrenches is None else external_wrenches
    _, wrenches = jax.lax.scan(outward, at_base, (*links, chain.inertia, qd, qdd, acting))
    _, torques = jax.lax.scan(inward, jnp.pad(wrenches, ((0, 1), (0, 0))), links, reverse=True)
    return torques


def inverse_dynamics(
    chain: Chain,
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    qdd: Float[Array, " nv"],
    external_wrenches: Float[Array, "n 6"] | None = None,
    wrench_by_tip: Float[Array, "6"] | None = None,
) -> Float[Array, " nv"]:
    """Generalised forces that produce qdd: tau = S^T (RNEA + (diag(armature) + R^T J R) S qdd).

    S is the coupling matrix (joint rates = S qd) and R that of the transmission, with rotor inertias J. Quaternion
    joints are several links with local coordinates about the current placement, to which `place` converts q.
    """
    torques = link_torques(chain, q, qd, qdd, link_wrenches(chain, external_wrenches, wrench_by_tip))
    spins = joint_rates(chain, qdd)
    return generalised_force(chain, torques + chain.armature * spins + rotor_torques(chain, spins))


def link_torques(
    chain: Chain,
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    qdd: Float[Array, " nv"],
    external_wrenches: Float[Array, "n 6"] | None = None,
) -> Float[Array, " n"]:
    """Joint torques of the links alone, by the RNEA, at generalised coordinates."""
    links, x = place(chain, q)
    rates, accelerations = joint_rates(chain, qd), joint_accelerations(chain, qd, qdd)
    return newton_euler(links, x, rates, accelerations, base_gravity(links), external_wrenches)


def gravity_force(chain: Chain, q: Float[Array, " nq"]) -> Float[Array, " nv"]:
    """Forces that hold the robot still: g(q) = tau(q, 0, 0)."""
    still = jnp.zeros(chain.nv, chain.dtype)
    return inverse_dynamics(chain, q, still, still)


def bias_force(chain: Chain, q: Float[Array, " nq"], qd: Float[Array, " nv"]) -> Float[Array, " nv"]:
    """Forces without acceleration: C(q, qd) qd + g(q) = tau(q, qd, 0)."""
    return inverse_dynamics(chain, q, qd, jnp.zeros_like(qd))


def mass_matrix(chain: Chain, q: Float[Array, " nq"]) -> Float[Array, "nv nv"]:
    """Mass matrix M(q) = d tau / d qdd, which does not depend on qd and qdd."""
    still = jnp.zeros(chain.nv, chain.dtype)
    return jax.jacfwd(lambda qdd: inverse_dynamics(chain, q, still, qdd))(still)


def christoffel_symbols(chain: Chain, q: Float[Array, " nq"]) -> Float[Array, "nv nv nv"]:
    """Christoffel symbols Gamma_ijk = (dM_ij/dq_k + dM_ik/dq_j - dM_jk/dq_i) / 2 (Lynch & Park 2017, sec. 8.1.2).

    The derivatives are those by the local coordinates u of the links. The velocities of quaternion joints equal du/dt only at
    the current placement: elsewhere, du/dt = B(u)^-1 qd, so -M dB/dt is added to the symbols of these joints.
    """
    links, x = place(chain, q)
    # the rotors' part of M is constant
    links = dataclasses.replace(links, armature=jnp.zeros_like(chain.armature), transmission=None)
    dm = jax.jacfwd(mass_matrix, argnums=1)(links, x)
    symbols = (dm + dm.transpose(0, 2, 1) - dm.transpose(2, 0, 1)) / 2
    if chain.coupling is not None:
        s = chain.coupling.matrix
        symbols = jnp.einsum("ijk,ia,jb,kc->abc", symbols, s, s, s)
    by_rate = jax.jacfwd(lambda qd: rate_matrix(chain, qd))(jnp.zeros(chain.nv, chain.dtype))
    return symbols - jnp.einsum("il,ljk->ijk", by_coordinates(chain, mass_matrix(links, x)), by_rate)


def coriolis_matrix(chain: Chain, q: Float[Array, " nq"], qd: Float[Array, " nv"]) -> Float[Array, "nv nv"]:
    """Coriolis matrix C_ij = sum_k Gamma_ijk qd_k, for which dM/dt - 2 C is skew-symmetric."""
    return christoffel_symbols(chain, q) @ qd


def regressor(
    chain: Chain, q: Float[Array, " nq"], qd: Float[Array, " nv"], qdd: Float[Array, " nv"]
) -> Float[Array, "nv p"]:
    """Regressor Y(q, qd, qdd) = d tau / d pi, with tau = Y pi + S^T (diag(armature) + R^T J R) S qdd.

    Each link has ten parameters (m, m c, Ixx, Ixy, Iyy, Ixz, Iyz, Izz), with moments about the origin of the link's
    frame. tau is linear in them, so Y does not depend on pi.
    """

    def torques(pi: Float[Array, " p"]) -> Float[Array, " nv"]:
        links = dataclasses.replace(chain, inertia=pi.reshape(chain.n, 10))
        return generalised_force(chain, link_torques(links, q, qd, qdd))

    return jax.jacfwd(torques)(jnp.zeros(10 * chain.n, chain.dtype))

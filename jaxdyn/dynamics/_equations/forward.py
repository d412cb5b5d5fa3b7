"""Forward dynamics: accelerations from torques, by the articulated-body algorithm or by factorising the mass matrix."""

import jax
from jaxtyping import Array, Float

from ...errors import ModelError
from ...model._chain import Chain
from ...model._compiled import compiled
from .._kinematics.coordinates import base_gravity, place, rate_terms
from .._lowering import sparse_jvp
from .._recursions.articulated import articulated_body
from .._recursions.wrench import link_wrenches
from .inverse import bias_force, inverse_dynamics
from .mass_matrix_inverse import mass_matrix_solve


@compiled
def forward_dynamics(
    chain: Chain,
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    external_wrenches: Float[Array, "n 6"] | None = None,
    wrench_by_tip: Float[Array, "6"] | None = None,
) -> Float[Array, " nv"]:
    """Accelerations qdd = M(q)^-1 (tau - C(q, qd) qd - g(q) + sum_i J_i^T F_i - J_tip^T F_tip).

    This function is the inverse of `inverse_dynamics`. The accelerations are computed in O(n) by the articulated-body
    algorithm, as in `aba`. Robots with coupled joints or a transmission require a linear solve with the mass matrix instead.
    Friction and springs are not included; to include them, pass tau - resistive_force(chain, q, qd).

    Derivatives of any order, with respect to all arguments, follow from d qdd = M^-1 (d tau - dID), where dID is the
    differential of inverse dynamics at this qdd. The recursion itself is not differentiated (Carpentier & Mansard 2018).

    Args:
        tau: joint torques [N m] (forces [N] for prismatic joints).
        external_wrenches: wrenches (n, f) that act *on* each link, in the link's frame [N m, N].
        wrench_by_tip: wrench (n, f) that the tip exerts on the world, in the tip's frame [N m, N].

    Returns:
        Joint accelerations [rad/s^2 or m/s^2]. If M(q) is singular, they are meaningless (huge, infinite or NaN).
    """
    return _forward_dynamics(chain, q, qd, tau, link_wrenches(chain, external_wrenches, wrench_by_tip))


@jax.custom_jvp
def _forward_dynamics(chain, q, qd, tau, wrenches):
    if chain.coupling is None and chain.transmission is None:
        return _articulated(chain, q, qd, tau, wrenches)
    return mass_matrix_solve(chain, q, tau - bias_force(chain, q, qd, wrenches))


def _articulated(chain, q, qd, tau, wrenches):
    links, x = place(chain, q)
    if not chain.topology.quaternion_joints:
        return articulated_body(links, x, qd, tau, base_gravity(links), wrenches)
    # dv/dt = d2x/dt2 + g(v), and an armature resists dv/dt
    terms = rate_terms(chain, qd)
    return terms + articulated_body(links, x, qd, tau - chain.armature * terms, base_gravity(links), wrenches)


def _forward_dynamics_jvp(primals, tangents):
    chain, q, qd, tau, wrenches = primals
    d_chain, d_q, d_qd, d_tau, d_wrenches = tangents
    qdd = _forward_dynamics(*primals)
    _, rate = sparse_jvp(
        lambda c, x, xd, t, f: t - inverse_dynamics(c, x, xd, qdd, f),
        (chain, q, qd, tau, wrenches),
        (d_chain, d_q, d_qd, d_tau, d_wrenches),
    )
    return qdd, mass_matrix_solve(chain, q, rate)


_forward_dynamics.defjvp(_forward_dynamics_jvp, symbolic_zeros=True)


@compiled
def aba(
    chain: Chain,
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    external_wrenches: Float[Array, "n 6"] | None = None,
    wrench_by_tip: Float[Array, "6"] | None = None,
) -> Float[Array, " nv"]:
    """Accelerations by the articulated-body algorithm, O(n) (Featherstone 2008, sec. 7.3) [rad/s^2 or m/s^2].

    The arguments and the result are the same as for `forward_dynamics`. Derivatives of `aba` are more expensive, because JAX
    differentiates through the recursion.

    Raises:
        ModelError: the chain has a coupling or a transmission, which the recursion does not support.
    """
    if chain.coupling is not None or chain.transmission is not None:
        raise ModelError("aba supports neither coupled joints nor a transmission; use forward_dynamics")
    return _articulated(chain, q, qd, tau, link_wrenches(chain, external_wrenches, wrench_by_tip))

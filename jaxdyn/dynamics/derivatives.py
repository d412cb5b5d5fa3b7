"""Analytic derivatives of inverse and forward dynamics with respect to the state, the inputs and the parameters."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model.chain import Chain
from ..model.compiled import compiled, is_ordinary
from ..model.configuration import place
from .aba import articulated_body, forward_dynamics
from .coordinates import (
    base_gravity,
    by_coordinates,
    generalised_inertia,
    joint_accelerations,
    joint_rates,
)
from .crba import inverse_of_mass_matrix, positive_inverse
from .engine.kernel import in_kernel
from .engine.lanes import by_batch
from .engine.small_matrices import matrix_times
from .newton_euler import link_wrenches
from .regressor import regressor
from .variation import (
    accelerated,
    derivative_entries,
    entries_of_motion,
    spread_derivatives,
    torques_and_mass,
    world_motion,
)

TOGETHER = 12  # largest nv for which derivatives of forward dynamics are faster as one kernel than as several


class InverseDynamicsDerivatives(NamedTuple):
    """Jacobians of the torques tau = inverse_dynamics(q, qd, qdd); the units are those for revolute joints.

    Attributes:
        q: d tau / d q, with respect to small motions dq of `integrate(chain, q, dq)` [N m/rad].
        qd: d tau / d qd [N m s/rad].
        qdd: d tau / d qdd, the mass matrix [kg m^2].
        parameters: d tau / d pi, the `regressor`; None unless requested.
    """

    q: Float[Array, "nv nv"]
    qd: Float[Array, "nv nv"]
    qdd: Float[Array, "nv nv"]
    parameters: Float[Array, "nv p"] | None = None


class ForwardDynamicsDerivatives(NamedTuple):
    """Jacobians of the accelerations qdd = forward_dynamics(q, qd, tau); the units are those for revolute joints.

    Attributes:
        q: d qdd / d q, with respect to small motions dq of `integrate(chain, q, dq)` [1/s^2].
        qd: d qdd / d qd [1/s].
        tau: d qdd / d tau, the inverse of the mass matrix [1/(kg m^2)].
        parameters: d qdd / d pi = -M^-1 Y with the `regressor` Y; None unless requested.
    """

    q: Float[Array, "nv nv"]
    qd: Float[Array, "nv nv"]
    tau: Float[Array, "nv nv"]
    parameters: Float[Array, "nv p"] | None = None


@compiled
def inverse_dynamics_derivatives(
    chain: Chain,
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    qdd: Float[Array, " nv"],
    external_wrenches: Float[Array, "n 6"] | None = None,
    wrench_by_tip: Float[Array, "6"] | None = None,
    parameters: bool = False,
) -> InverseDynamicsDerivatives:
    """Jacobians of `inverse_dynamics` at (q, qd, qdd), with wrenches constant in their link frames; O(n^2).

    The Jacobians are computed analytically in two sweeps (Carpentier & Mansard 2018; Singh, Russo & Wensing 2022), and agree
    with automatic differentiation to within rounding errors. `jax.jacfwd`, `jax.grad` and higher derivatives of
    `inverse_dynamics` use the same formulas.

    Args:
        q: joint positions [rad or m].
        qd: joint velocities [rad/s or m/s].
        qdd: joint accelerations [rad/s^2 or m/s^2].
        external_wrenches: wrenches (n, f) that act *on* each link, in the link's frame [N m, N].
        wrench_by_tip: wrench (n, f) that the tip exerts on the world, in the tip's frame [N m, N].
        parameters: True to compute the regressor as well, which takes longer than all other Jacobians together.
    """
    wrenches = link_wrenches(chain, external_wrenches, wrench_by_tip)
    position, velocity, acceleration = _of_torques(chain, q, qd, qdd, wrenches)
    own = regressor(chain, q, qd, qdd) if parameters else None
    return InverseDynamicsDerivatives(position, velocity, acceleration, own)


@compiled
def forward_dynamics_derivatives(
    chain: Chain,
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    external_wrenches: Float[Array, "n 6"] | None = None,
    wrench_by_tip: Float[Array, "6"] | None = None,
    parameters: bool = False,
) -> ForwardDynamicsDerivatives:
    """Jacobians of `forward_dynamics` at (q, qd, tau): d qdd/d x = -M^-1 d ID/d x and d qdd/d tau = M^-1.

    ID is `inverse_dynamics`, which is differentiated analytically at the resulting qdd. Neither the forward recursion nor a
    linear solve is differentiated (Carpentier & Mansard 2018). The cost is O(n^3) with small constants.

    Args:
        q: joint positions [rad or m].
        qd: joint velocities [rad/s or m/s].
        tau: joint torques [N m] (forces [N] for prismatic joints).
        external_wrenches: wrenches (n, f) that act *on* each link, in the link's frame [N m, N].
        wrench_by_tip: wrench (n, f) that the tip exerts on the world, in the tip's frame [N m, N].
        parameters: True to compute d qdd/d pi as well.

    Returns:
        The Jacobians. If M(q) is singular, they are meaningless (huge, infinite or NaN).
    """
    wrenches = link_wrenches(chain, external_wrenches, wrench_by_tip)
    if is_ordinary(chain) and chain.transmission is None and chain.nv <= TOGETHER:
        qdd, position, velocity, inverse = _link_forward(chain, q, qd, tau, base_gravity(chain), wrenches)
    else:
        qdd = forward_dynamics(chain, q, qd, tau, wrenches)
        position, velocity, inverse = _matrix_slopes(chain, q, qd, qdd, wrenches)
    own = -inverse @ regressor(chain, q, qd, qdd) if parameters else None
    return ForwardDynamicsDerivatives(position, velocity, inverse, own)


def _of_torques(chain: Chain, q: Array, qd: Array, qdd: Array, wrenches: Array | None) -> tuple[Array, Array, Array]:
    links, x = place(chain, q)
    rates, accelerations = joint_rates(chain, qd), joint_accelerations(chain, qd, qdd)
    joints = chain.topology.quaternion_joints
    entries = derivative_entries(links, x, rates, accelerations, base_gravity(links), wrenches, links.armature, joints)
    position, velocity, mass = spread_derivatives(links, entries, joints)
    return by_coordinates(chain, position), by_coordinates(chain, velocity), generalised_inertia(chain, mass)


def slopes_of_accelerations(
    chain: Chain, q: Float[Array, " n"], qd: Float[Array, " n"], qdd: Float[Array, " n"]
) -> ForwardDynamicsDerivatives:
    """Jacobians of `forward_dynamics` at known accelerations qdd, for robots with ordinary joints and no transmission.

    Known accelerations save about a quarter of the computing time, since they need not be computed by the recursion.
    """
    if chain.nv <= TOGETHER:
        position, velocity, inverse = _link_slopes(chain, q, qd, qdd, base_gravity(chain), None)
    else:
        position, velocity, inverse = _matrix_slopes(chain, q, qd, qdd, None)
    return ForwardDynamicsDerivatives(position, velocity, inverse)


def _matrix_slopes(chain: Chain, q: Array, qd: Array, qdd: Array, wrenches: Array | None) -> tuple[Array, Array, Array]:
    # without the barrier, XLA would fuse the assembly of the matrices into the products and repeat it for every row
    by_position, by_velocity, mass = jax.lax.optimization_barrier(_of_torques(chain, q, qd, qdd, wrenches))
    inverse = inverse_of_mass_matrix(mass)
    return -inverse @ by_position, -inverse @ by_velocity, inverse


_PER_LINK = lambda chain: max(100 + 60 * chain.n, 8 * chain.n**2)


@by_batch(size=_PER_LINK)
def _link_forward(
    chain: Chain,
    q: Float[Array, "n *#lanes"],
    qd: Float[Array, "n *#lanes"],
    tau: Float[Array, "n *#lanes"],
    gravity: Float[Array, "3 *#lanes"],
    wrenches: Float[Array, "n 6 *#lanes"] | None,
) -> tuple[Array, Array, Array, Array]:
    """Accelerations of a chain with one-degree-of-freedom joints, their Jacobians with respect to q and qd, and M^-1."""
    # on a GPU, the second form, which stores the links' motion at qdd = 0, spills 6 KB of registers; the first, only
    # 1.5 KB
    if not in_kernel():
        qdd = articulated_body(chain, q, qd, tau, gravity, wrenches)
        return qdd, *_link_slopes(chain, q, qd, qdd, gravity, wrenches)
    still = world_motion(chain, q, qd, jnp.zeros_like(qd), gravity, wrenches)
    bias, mass = torques_and_mass(chain, q, still, chain.armature)
    inverse = positive_inverse(mass)
    qdd = matrix_times(inverse, tau - bias)
    entries = entries_of_motion(chain, q, qd, accelerated(chain, q, still, qdd), chain.armature)
    position, velocity, _ = spread_derivatives(chain, entries)
    return qdd, *_times_inverse(inverse, position, velocity), inverse


@by_batch(size=_PER_LINK)
def _link_slopes(
    chain: Chain,
    q: Float[Array, "n *#lanes"],
    qd: Float[Array, "n *#lanes"],
    qdd: Float[Array, "n *#lanes"],
    gravity: Float[Array, "3 *#lanes"],
    wrenches: Float[Array, "n 6 *#lanes"] | None,
) -> tuple[Array, Array, Array]:
    """Jacobians of the accelerations with respect to q and qd, and M^-1, of a chain with one-degree-of-freedom joints."""
    entries = derivative_entries(chain, q, qd, qdd, gravity, wrenches, chain.armature)
    position, velocity, mass = spread_derivatives(chain, entries)
    inverse = positive_inverse(mass)
    return *_times_inverse(inverse, position, velocity), inverse


def _times_inverse(inverse: Array, position: Array, velocity: Array) -> tuple[Array, Array]:
    """-M^-1 times both matrices."""

    def body(total, x):
        column, row = x
        return total - column[:, None] * row[None], None

    both = jnp.concatenate([position, velocity], axis=1)
    product, _ = jax.lax.scan(body, jnp.zeros_like(both), (inverse, both))
    return product[:, : len(inverse)], product[:, len(inverse) :]

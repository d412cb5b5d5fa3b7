"""Quantities for passivity-based control: the torques M qdd_ref + C qd_ref + g, and the work done on a robot."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..model.chain import Acceleration, Chain, Force, Position, Velocity
from ..model.compiled import compiled
from ..model.configuration import difference, place
from .coordinates import base_gravity, generalised_force, joint_rates, rate_matrix, rotor_torques
from .engine.lanes import BaseGravity, PerLink, by_batch, with_lanes
from .newton_euler import newton_euler


@compiled
def passivity_inverse_dynamics(
    chain: Chain, q: Position, qd: Velocity, qd_ref: Velocity, qdd_ref: Acceleration
) -> Force:
    """Torques tau = M(q) qdd_ref + C(q, qd) qd_ref + g(q), O(n) (Slotine & Li 1987) [N m or N].

    With C = `coriolis_matrix`, C(q, qd) qd_ref is half the derivative of C(q, qd) qd along qd_ref; dM/dt - 2 C is
    skew-symmetric. For qd_ref = qd, the result equals that of `inverse_dynamics`. A common choice is qd_ref = qd_d -
    lambda (q - q_d). For quaternion joints, qdd_ref is the time derivative of the body components of qd_ref.
    """
    links, x = place(chain, q)
    torques = _link_torques(links, x, *reference_motion(chain, links, qd, qd_ref, qdd_ref))
    spins = joint_rates(chain, qdd_ref)
    return generalised_force(chain, torques + chain.armature * spins + rotor_torques(chain, spins))


def reference_motion(chain: Chain, links: Chain, qd: Array, qd_ref: Array, qdd_ref: Array) -> tuple[Array, ...]:
    """Rates, reference rates and reference accelerations of the links' joints, and gravity, for `by_reference`."""
    if chain.topology.has_curved_joints:
        qdd_ref = qdd_ref - rate_matrix(chain, qd) @ qd_ref
    return joint_rates(chain, qd), joint_rates(chain, qd_ref), joint_rates(chain, qdd_ref), base_gravity(links)


def by_reference(terms: Callable[[Array, Array, Array], Array], rates, references, accelerations, gravity) -> Array:
    """From M a + C(q, v) v + g as a function of (v, a, gravity), the terms M a_ref + C(q, v) v_ref + g."""
    rates, references = with_lanes(rates, 1), with_lanes(references, 1)  # only one of them may have lanes
    point = rates, jnp.zeros_like(accelerations), jnp.zeros_like(gravity)
    return jax.jvp(terms, point, (references / 2, accelerations, gravity))[1]


@by_batch
def _link_torques(
    chain: Chain, x: PerLink, rates: PerLink, references: PerLink, accelerations: PerLink, gravity: BaseGravity
) -> PerLink:
    """The torques due to the rigid links of a chain with ordinary joints."""
    torques = lambda qd, qdd, gravity: newton_euler(chain, x, qd, qdd, gravity, None)
    return by_reference(torques, rates, references, accelerations, gravity)


@compiled
def passivity_integral(
    chain: Chain, q: Float[Array, "times nq"], tau: Float[Array, "steps nv"]
) -> Float[Array, " times"]:
    """Work int_0^t qd^T tau dt done on a robot up to the time t of each row of q; the first entry is 0 [J].

    The work is computed as sum_k tau_k . (q_{k+1} - q_k), with the torque tau_k constant during step k, as in
    `rollout`. The sum is exact for ordinary joints, and second-order accurate in the time step for quaternion joints.
    If torques are sampled at the rows of q, pass the means of neighbouring samples.

    Without friction, the work equals E(t) - E(0) with E = `total_energy`; with friction, it is larger. It is therefore
    never less than min E - E(0), so the robot is passive (Spong, Hutchinson & Vidyasagar 2020, sec. 6.5).
    """
    moved = jax.vmap(lambda here, there: difference(chain, here, there))(q[:-1], q[1:])
    work = jnp.cumsum((moved * tau).sum(1))
    return jnp.concatenate([jnp.zeros_like(work[:1]), work])

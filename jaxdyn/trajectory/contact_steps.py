"""Linearised steps of robots that touch."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..contact import Contacts, contact_dynamics, contact_dynamics_derivatives
from ..contact.stepping import without_dry_friction
from ..dynamics import (
    friction_force,
    inverse_dynamics_derivatives,
    mass_matrix_inverse,
    mass_matrix_solve,
    resistive_force,
)
from ..model.chain import Chain


def contact_slopes(
    chain: Chain,
    contacts: Contacts,
    q: Float[Array, " nv"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    dt: Float[Array, ""],
    rate: Float[Array, " nv"] | None = None,
) -> Float[Array, "nv w"]:
    """Derivatives of the velocities after a `contact_step` of ordinary joints by (q, v, tau), in closed form.

    The velocities change by dt x, with (M + dt D) x = M qdd. By differentiation, (M + dt D) dx = M dqdd + dM y - dt dD x with
    y = qdd - x = M^-1 dt D x. If the `rate` x is known, nothing is searched.
    """
    passive, one = without_dry_friction(chain, contacts), jnp.ones_like(v)
    slopes_at = lambda v: jax.jvp(lambda v: friction_force(passive, v), (v,), (one,))[1]
    damping, change = jax.jvp(lambda v: dt * jnp.maximum(slopes_at(v), 0), (v,), (one,))
    damped = mass_matrix_inverse(dataclasses.replace(chain, armature=chain.armature + damping), q)
    if rate is None:
        qdd = contact_dynamics(chain, contacts, q, v, tau - resistive_force(passive, q, v)).qdd
        lag = damped @ (damping * qdd)
        rate = qdd - lag
    else:
        lag = mass_matrix_solve(chain, q, damping * rate)
        qdd = rate + lag
    of_qdd = contact_dynamics_derivatives(chain, contacts, q, v, qdd)
    still = dataclasses.replace(chain, gravity=jnp.zeros_like(chain.gravity))
    of_mass = inverse_dynamics_derivatives(still, q, jnp.zeros_like(v), lag).q  # dM y
    slower = lambda x: x - damped @ (damping[:, None] * x)  # (M + dt D)^-1 M x
    by_q = slower(of_qdd.q - of_qdd.tau * chain.springs.stiffness[None]) + damped @ of_mass
    by_v = slower(of_qdd.qd - of_qdd.tau * slopes_at(v)[None]) - damped * (change * rate)[None]
    return jnp.concatenate([dt * by_q, jnp.diag(one) + dt * by_v, dt * slower(of_qdd.tau)], axis=1)

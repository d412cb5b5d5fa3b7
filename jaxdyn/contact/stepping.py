"""Time steps and rollouts of robots that touch, as MuJoCo makes them."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..dynamics.composite_body import mass_matrix_inverse
from ..dynamics.derivatives import inverse_dynamics_derivatives
from ..dynamics.friction import resistive_force
from ..model.chain import Chain, Force, layout
from ..model.compiled import compiled
from ..model.configuration import difference, integrate
from ..model.joints import Free
from ..model.layouts import free_turning
from ..simulation.integrate import promoted
from ..simulation.rollouts import Controls, repeated
from ..spatial.so3 import quaternion_to_rotation
from .contacts import Contacts, in_derivatives
from .dynamics import solution, torque_jacobians


class ContactState(NamedTuple):
    """A state, with the accelerations from which the search of the next step starts.

    Attributes:
        q: configuration.
        qd: velocities [rad/s or m/s].
        qdd: accelerations at the beginning of the last step, zero at first [rad/s^2 or m/s^2].
    """

    q: Float[Array, "*times nq"]
    qd: Float[Array, "*times nv"]
    qdd: Float[Array, "*times nv"]


@compiled
def contact_step(
    chain: Chain,
    contacts: Contacts,
    state: ContactState,
    tau: Force,
    dt: float | Float[Array, ""],
    damping: Float[Array, " nv"] | None = None,
) -> ContactState:
    """The state after a time step dt [s] of MuJoCo's semi-implicit Euler scheme.

    With qdd = `contact_dynamics` under tau - resistive_force, the velocities are qd' = qd + dt (M + dt D)^-1 M qdd, and the
    configuration moves with qd'. D contains the slopes of the friction of the joints, which is thereby integrated implicitly,
    and `damping`. This is MuJoCo's Euler scheme, and with the velocity gains of servos as `damping` its implicitfast scheme
    (mujoco.readthedocs.io, Computation: Numerical integration). In both, the velocity of a free joint is in world axes.

    Dry friction of the joints in `contacts.rows.rubbing` is a constraint of `contact_dynamics`, in place of the Coulomb
    friction of the chain.

    Args:
        state: the state; `ContactState(q, qd, jnp.zeros_like(qd))` at first.
        damping: -d tau/d qd of servos whose torques are part of `tau` [N m s/rad or N s/m].
    """
    q, qd, dt, _, found = _solved(chain, contacts, state, tau, dt, damping)
    return ContactState(*_moved(chain, q, qd + dt * found.damped, dt), found.qdd)


def _solved(
    chain: Chain, contacts: Contacts, state: ContactState, tau: Array, dt: Any, damping: Array | None
) -> tuple[Array, Array, Array, Array, Any]:
    """State and time step of one type, dt D, and the accelerations, also those of the damped step."""
    q, qd, start = promoted(chain, *state)
    dt = jnp.asarray(dt, q.dtype)
    passive = without_dry_friction(chain, contacts)
    resistance, slopes = jax.jvp(lambda v: resistive_force(passive, q, v), (qd,), (jnp.ones_like(qd),))
    damps = dt * (jnp.maximum(slopes, 0) if damping is None else jnp.maximum(slopes, 0) + damping)
    return q, qd, dt, damps, solution(chain, contacts, q, qd, tau - resistance, start, damps)


class ContactStepDerivatives(NamedTuple):
    """The result of `contact_step_derivatives`, which describes it."""

    state: Float[Array, "2*nv 2*nv"]
    tau: Float[Array, "2*nv nv"]


@compiled
def contact_step_derivatives(
    chain: Chain,
    contacts: Contacts,
    state: ContactState,
    tau: Force,
    dt: float | Float[Array, ""],
    damping: Float[Array, " nv"] | None = None,
) -> ContactStepDerivatives:
    """Jacobians of `contact_step` in closed form, for optimal control and filters.

    The velocities change by dt x, with (M + dt D) x = M y, y = qdd + (0, w x v) of free bodies. By differentiation,
    (M + dt D) dx = M dy + dM (y - x) - dt dD x, with dqdd by `contact_dynamics_derivatives`. `damping` is constant.

    Args:
        state: the state, with accelerations from which the search starts, for example those of `contact_step` there.

    Returns:
        - state: of the state after the step, (small motion, velocity), with respect to small motions dq of
          `integrate(chain, q, dq)` and to the velocities.
        - tau: of the state after the step with respect to the torques.
    """
    q, v, dt, damps, found = _solved(chain, contacts, state, tau, dt, damping)
    zero, one, passive = jnp.zeros_like(v), jnp.ones_like(v), without_dry_friction(chain, contacts)
    resistance = lambda dq, v: resistive_force(passive, integrate(chain, q, dq), v)
    slope_of = lambda v: jax.jvp(lambda v: resistance(zero, v), (v,), (one,))[1]  # diagonal, as are the others
    _, stiffness = jax.jvp(lambda dq: resistance(dq, v), (zero,), (one,))
    slope, change = jax.jvp(slope_of, (v,), (one,))
    turning, by_turning = free_turning(chain, v), jax.jacfwd(lambda v: free_turning(chain, v))(v)
    by_motion, by_rate, by_force = torque_jacobians(chain, in_derivatives(contacts), q, v, found.qdd)
    inverse = mass_matrix_inverse(dataclasses.replace(chain, armature=chain.armature + damps), q)
    still = dataclasses.replace(chain, gravity=jnp.zeros_like(chain.gravity))
    of_mass = inverse_dynamics_derivatives(still, q, zero, found.qdd + turning - found.damped).q
    slower = lambda y: y - inverse @ (damps[:, None] * y)  # (M + dt D)^-1 M y
    by_force = slower(by_force)
    by_q = inverse @ of_mass - by_force @ (by_motion + jnp.diag(stiffness))
    by_v = slower(by_turning) - by_force @ (by_rate + jnp.diag(slope))
    by_v -= inverse * (dt * jnp.where(slope > 0, change, 0) * found.damped)[None]
    rates = dt * jnp.concatenate([by_q, by_v, by_force], axis=1)
    rates = rates.at[:, chain.nv : 2 * chain.nv].add(jnp.eye(chain.nv, dtype=q.dtype))
    moved = _derivatives_of_motion(chain, q, v + dt * found.damped, dt, rates)
    return ContactStepDerivatives(moved[:, : 2 * chain.nv], moved[:, 2 * chain.nv :])


def _derivatives_of_motion(chain: Chain, q: Array, v: Array, dt: Array, rates: Array) -> Array:
    """Derivatives of the state after moving with v, by (dq, ...), from the derivatives of v."""
    n, zero = chain.nv, jnp.zeros_like(v)
    motion = (dt * rates).at[:, :n].add(jnp.eye(n, dtype=q.dtype))
    after, _ = _moved(chain, q, v, dt)

    def ahead(dq, rate):
        x, velocity = _moved(chain, integrate(chain, q, dq), rate, dt)
        return difference(chain, after, x), velocity

    for joint in layout(chain).curved:
        part = slice(joint.columns.start, joint.columns.stop)
        units = jnp.eye(n, dtype=q.dtype)[part]
        by_motion = jax.vmap(lambda e: jax.jvp(ahead, (zero, v), (e, zero))[1], out_axes=1)(units)
        by_rate = jax.vmap(lambda e: jax.jvp(ahead, (zero, v), (zero, e))[1], out_axes=1)(units)
        of_part = [(y[part] @ rates[part]).at[:, part].add(x[part]) for x, y in zip(by_motion, by_rate, strict=True)]
        motion, rates = (y.at[part].set(x) for y, x in zip((motion, rates), of_part, strict=True))
    return jnp.concatenate([motion, rates])


def _moved(chain: Chain, q: Array, v: Array, dt: Array) -> tuple[Array, Array]:
    """The state after moving with the velocities v, whose linear part of a free joint is constant in the world."""
    moved, after = integrate(chain, q, dt * v), v
    for joint in layout(chain).curved:
        if isinstance(joint, Free):
            linear = quaternion_to_rotation(q[joint.quaternion]) @ v[joint.columns][3:]
            turned = quaternion_to_rotation(moved[joint.quaternion]).T @ linear
            moved = moved.at[joint.point].set(q[joint.point] + dt * linear)
            after = after.at[joint.columns].set(jnp.concatenate([v[joint.columns][:3], turned]))
    return moved, after


def without_dry_friction(chain: Chain, contacts: Contacts) -> Chain:
    """The chain without the Coulomb friction of joints whose dry friction is a constraint."""
    rubs = np.zeros(chain.nv, bool)
    rubs[list(contacts.rows.rubbing)] = True
    coulomb = jnp.where(rubs, 0, chain.friction.coulomb)
    return dataclasses.replace(chain, friction=dataclasses.replace(chain.friction, coulomb=coulomb))


@compiled
def contact_rollout(
    chain: Chain,
    contacts: Contacts,
    state: ContactState,
    controls: Controls,
    dt: float | Float[Array, ""],
    steps: int | None = None,
    damping: Float[Array, " nv"] | None = None,
    every: int = 1,
    checkpoint: int | None = None,
) -> ContactState:
    """The states at t = 0, every * dt, ..., steps * dt, by `contact_step`; arguments as for `rollout`.

    Each step starts its search at the accelerations of the last one.

    Raises:
        ModelError: as for `rollout`.
    """

    def move(_, q, qd, qdd, tau, dt, __):
        return tuple(contact_step(chain, contacts, ContactState(q, qd, qdd), tau, dt, damping))

    return ContactState(*repeated(move, promoted(chain, *state), controls, dt, steps, every, checkpoint))

"""Time steps and rollouts of robots that touch, as MuJoCo makes them."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..dynamics.friction import resistive_force
from ..model.chain import Chain, Force, layout
from ..model.compiled import compiled
from ..model.configuration import integrate
from ..model.joints import Free
from ..simulation.integrate import promoted
from ..simulation.rollouts import Controls, repeated
from ..spatial.so3 import quaternion_to_rotation
from .contacts import Contacts
from .dynamics import solution


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
    q, qd, start = promoted(chain, *state)
    dt = jnp.asarray(dt, q.dtype)
    passive = without_dry_friction(chain, contacts)
    resistance, slopes = jax.jvp(lambda v: resistive_force(passive, q, v), (qd,), (jnp.ones_like(qd),))
    damps = jnp.maximum(slopes, 0) if damping is None else jnp.maximum(slopes, 0) + damping
    found = solution(chain, contacts, q, qd, tau - resistance, start, dt * damps)
    assert found.damped is not None
    return ContactState(*_moved(chain, q, qd + dt * found.damped, dt), found.qdd)


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

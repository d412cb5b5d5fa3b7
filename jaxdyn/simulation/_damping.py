"""Implicit friction in a time step: the slopes of the friction curves act as additional armature and rotor inertia."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..dynamics._kinematics.coordinates import joint_rates
from ..model._chain import Chain


def with_implicit_friction(
    chain: Chain, qd: Float[Array, " nv"], predicted: Float[Array, " nv"], dt: Float[Array, ""]
) -> Chain:
    """The robot with the mass matrix M + dt D, where D contains the slopes of the friction curves.

    Let h = C qd + g, and let f(qd) be the friction at the start of the step. With friction linearised at the end of the step,
    as f(qd) + D (qd' - qd), the new velocity qd' satisfies

        M (qd' - qd) = dt (tau - h - f(qd) - D (qd' - qd))   <=>   (M + dt D) (qd' - qd) = dt (tau - h - f(qd)),

    which is forward dynamics with additional armature (or, for motors of a transmission, rotor inertia).

    D has one entry per joint and per motor. The entry is the slope f', or 0 on the falling branch of Stribeck friction, where
    f' is negative. If a step without D would reverse the joint, the entry is instead the slope f(qd) / qd of the chord from
    zero velocity. The slope f' at a sliding velocity does not reflect the jump of Coulomb friction at zero velocity, and would
    therefore make the joint chatter; the chord is at least as steep, and slows the joint without reversing it.

    Args:
        predicted: velocity at the end of a step without D, of which only the signs are used [rad/s or m/s].
        dt: time step [s].
    """
    friction = dataclasses.replace(chain.friction, offset=jnp.zeros_like(chain.friction.offset))
    before, after = joint_rates(chain, qd), joint_rates(chain, predicted)
    slopes = _slopes(friction.torque, before, after)
    damped = dataclasses.replace(chain, armature=chain.armature + dt * slopes)
    if (motors := chain.transmission) is None:
        return damped

    slopes = _slopes(motors.friction.torque, motors.matrix @ before, motors.matrix @ after)
    rotors = dataclasses.replace(motors, rotor_inertia=motors.rotor_inertia + dt * slopes)
    return dataclasses.replace(damped, transmission=rotors)


def _slopes(force: Callable[[Array], Array], before: Array, after: Array) -> Array:
    """Slope of an elementwise force at each rate, or the slope of its chord from rest if the rate changes sign."""
    torque, slope = jax.jvp(force, (before,), (jnp.ones_like(before),))
    moves = jnp.abs(before) > jnp.finfo(before.dtype).tiny
    chord = jnp.where(moves, torque / jnp.where(moves, before, jnp.ones_like(before)), slope)
    return jnp.maximum(jnp.where(before * after < 0, chord, slope), jnp.zeros_like(slope))

"""Implicit friction in a step: its slopes as additional armature and rotor inertia."""

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
    """The robot whose mass matrix is M + dt D, with D the slopes of friction: an armature of dt D_joint on every joint.

    With friction f(qd), and f(qd) + D (qd' - qd) at the step's end,

        M (qd' - qd) = dt (tau - h - f(qd) - D (qd' - qd))   <=>   (M + dt D) (qd' - qd) = dt (tau - h - f(qd)),

    which is forward dynamics with additional inertia (of the rotors, for a transmission's motors). D is diagonal over
    joints and motors: the slope f' if a joint keeps its direction (0 where f' is negative, on the falling branch of
    Stribeck friction), and the chord f(qd) / qd if the step without D would reverse the joint. The slope of a sliding
    joint does not contain the jump at rest, so the slope alone would make the joint chatter; the chord is at least the
    slope, and slows the joint without reversing it.

    Args:
        predicted: velocity at the step's end without D; only its signs are used.
        dt: step [s].
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
    """Slope, or chord from rest if the rate changes sign, of an entrywise force."""
    torque, slope = jax.jvp(force, (before,), (jnp.ones_like(before),))
    moves = jnp.abs(before) > jnp.finfo(before.dtype).tiny
    chord = jnp.where(moves, torque / jnp.where(moves, before, jnp.ones_like(before)), slope)
    return jnp.maximum(jnp.where(before * after < 0, chord, slope), jnp.zeros_like(slope))

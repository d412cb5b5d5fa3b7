"""Implicit friction in a step: its slopes, as an armature of the joints and an inertia of the rotors."""

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

    With f(qd) for friction and f(qd) + D (qd' - qd) for what it is at the step's end,

        M (qd' - qd) = dt (tau - h - f(qd) - D (qd' - qd))   <=>   (M + dt D) (qd' - qd) = dt (tau - h - f(qd)),

    which is forward dynamics with more inertia; that of a transmission's motors is on the rotors. D is diagonal over joints
    and motors: the slope f' where a joint keeps its direction (0 where f' is negative, on the falling branch of Stribeck
    friction), and where the step without it would reverse the joint the chord f(qd) / qd from rest. The slope of a sliding
    joint knows nothing of the jump at rest, so that a step by it alone would chatter across; the chord is never less than
    the slope, and friction then slows the joint without turning it around.

    Args:
        predicted: velocity at the step's end without D, of which the signs matter.
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
    """Slope, or chord from rest where the rate changes its sign, of a force that acts on each entry by itself."""
    torque, slope = jax.jvp(force, (before,), (jnp.ones_like(before),))
    moves = jnp.abs(before) > jnp.finfo(before.dtype).tiny
    chord = jnp.where(moves, torque / jnp.where(moves, before, jnp.ones_like(before)), slope)
    return jnp.maximum(jnp.where(before * after < 0, chord, slope), jnp.zeros_like(slope))

"""One step of time integration, by one of four fixed-step schemes."""

import dataclasses
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..dynamics import forward_dynamics, resistive_force
from ..dynamics.coordinates import joint_rates
from ..errors import ModelError
from ..model.chain import Chain, Force, Position, Velocity, Wrenches
from ..model.compiled import compiled
from ..model.configuration import integrate, motion_rate

Method = Literal["semi_implicit_euler", "explicit_euler", "rk4", "implicit_damping"]


@compiled
def step(
    chain: Chain,
    q: Position,
    qd: Velocity,
    tau: Force,
    dt: float | Float[Array, ""],
    external_wrenches: Wrenches | None = None,
    method: Method = "semi_implicit_euler",
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """The state (q, qd) after a time step dt [s] under qdd = forward_dynamics(tau - resistive_force).

    Torques and wrenches are constant during the step. For quaternion joints, "q + dq" stands for integrate(chain, q, dq).

    - `semi_implicit_euler`: qd' = qd + dt qdd, q' = q + dt qd'. First order, one evaluation of the dynamics per step.
      It is symplectic if M is constant. Otherwise the energy of a frictionless robot drifts at the rate
      dt qd^T C(q, qd) qdd, and can grow without bound; with friction, it stays bounded
      (docs/rollouts.md).
    - `implicit_damping`: like `semi_implicit_euler`, but with friction linearised at the end of the step,
      (M + dt D) (qd' - qd) = dt (tau - h - resistive_force), where h = C qd + g, and D >= 0 contains the slopes of
      `friction_force`. MuJoCo's implicitfast scheme is similar, but excludes dry friction. First order, two evaluations
      per step: the first finds the joints whose velocity would change sign. These come to rest instead of chattering,
      however stiff the friction is.
    - `explicit_euler`: q' = q + dt qd, qd' = qd + dt qdd. First order, one evaluation per step. It adds energy to the
      motion (Lynch & Park 2017, sec. 8.5).
    - `rk4`: the classical Runge-Kutta scheme, of fourth order, with four evaluations per step. Quaternion joints are
      integrated in exponential coordinates u about q, du/dt = qd + [u, qd] / 2 + [u, [u, qd]] / 12 (Munthe-Kaas 1999).

    In all schemes except `implicit_damping`, Coulomb friction is stiff: its rate constant is fc / (v_c M), where fc is
    the Coulomb torque and v_c the velocity scale over which friction changes sign. Keep dt below about M v_c / fc, or
    increase v_c.

    Args:
        external_wrenches: wrench (n, f) on each link, in the link's frame [N m, N]; for a wrench at the tip, use
            `link_wrenches`.

    Raises:
        ModelError: the scheme is unknown, or its name was passed as `external_wrenches`.
    """
    if isinstance(external_wrenches, str):
        raise ModelError(f"external_wrenches is {external_wrenches!r}", "pass the scheme as method=...")
    q, qd = promoted(chain, q, qd)

    def acceleration(robot, x, xd, _):
        return forward_dynamics(robot, x, xd, tau - resistive_force(robot, x, xd), external_wrenches)

    return advance(chain, q, qd, jnp.asarray(dt, q.dtype), acceleration, method)


def advance(
    chain: Chain,
    q: Position,
    qd: Velocity,
    dt: Float[Array, ""],
    acceleration: Callable[[Chain, Array, Array, float | Array], Array],
    method: str,
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """The state after a time step dt [s] under qdd = acceleration(chain, q, qd, elapsed), by one of the schemes of `step`."""
    if method in ("semi_implicit_euler", "implicit_damping"):
        change = dt * acceleration(chain, q, qd, 0.0)
        if method == "implicit_damping":
            damped = with_implicit_friction(chain, qd, qd + jax.lax.stop_gradient(change), dt)
            change = dt * acceleration(damped, q, qd, 0.0)
        qd = qd + change
        return integrate(chain, q, dt * qd), qd
    if method == "explicit_euler":
        return integrate(chain, q, dt * qd), qd + dt * acceleration(chain, q, qd, 0.0)
    if method == "rk4":
        return _rk4(chain, q, qd, dt, acceleration)
    known = "'semi_implicit_euler', 'explicit_euler', 'rk4' or 'implicit_damping'"
    raise ModelError(f"the integration method must be {known}, not {method!r}")


def _rk4(chain, q, qd, dt, acceleration):
    """The state after a step of the classical Runge-Kutta scheme, in a scan that compiles one stage instead of four."""
    nodes, weights = jnp.asarray([[0.0, 0.5, 0.5, 1.0], [1 / 6, 1 / 3, 1 / 3, 1 / 6]], q.dtype) * dt

    def stage(carry, x):
        (velocity, force), total = carry
        node, weight = x
        u, v = node * velocity, qd + node * force
        slope = motion_rate(chain, u, v), acceleration(chain, integrate(chain, q, u), v, node)
        return (slope, tuple(a + weight * b for a, b in zip(total, slope, strict=True))), None

    zero = jnp.zeros_like(qd)
    (_, (dq, dqd)), _ = jax.lax.scan(stage, ((zero, zero), (zero, zero)), (nodes, weights))
    return integrate(chain, q, dq), qd + dqd


def promoted(chain: Chain, *vectors: Array) -> list[Array]:
    """State vectors, converted to the type that a step of this chain returns."""
    arrays = [jnp.asarray(x) for x in vectors]
    dtype = jnp.result_type(chain.dtype, *arrays)
    return [x.astype(dtype) for x in arrays]


def with_implicit_friction(chain: Chain, qd: Velocity, predicted: Float[Array, " nv"], dt: Float[Array, ""]) -> Chain:
    """The robot with the armature dt D, where D >= 0 contains the slopes of the friction curves, for an implicit step."""
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
    # the slope of sliding friction misses its jump at rest and lets the joint chatter; the chord slows it without reversal
    moves = jnp.abs(before) > jnp.finfo(before.dtype).tiny
    chord = jnp.where(moves, torque / jnp.where(moves, before, jnp.ones_like(before)), slope)
    return jnp.maximum(jnp.where(before * after < 0, chord, slope), jnp.zeros_like(slope))

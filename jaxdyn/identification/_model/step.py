"""One simulation step of a complete model, with implicit friction for stability at rest with any friction stiffness."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .torque_model import TorqueModel

_ITERATIONS = 6


class Deviation(NamedTuple):
    """Deviation e of a simulated robot from a given motion.

    Attributes:
        position: e [rad or m].
        travelled: sum of dt e' over all steps [rad or m]; the friction memory uses this deviation instead of
            `position`.
        rate: e' [rad/s or m/s].
        memory: friction memory.
    """

    position: Float[Array, " n"]
    travelled: Float[Array, " n"]
    rate: Float[Array, " n"]
    memory: Float[Array, "n m"]


def advanced(
    model: TorqueModel,
    state: Deviation,
    q: Float[Array, " n"],
    qd: Float[Array, " n"],
    qdd: Float[Array, " n"],
    tau: Float[Array, " n"],
    dt: Float[Array, ""],
) -> Deviation:
    """Deviation e from a given motion at the end of a step, at which the motion is (q, qd, qdd) and the torques are tau.

    The step solves load(q + e, qd + e', qdd + x) + f(e' + dt x) = tau for x = e'', with the friction f at the velocity
    and travel after the step. Then e' is increased by dt x, and e is integrated by the trapezoidal rule. The load is
    affine in x, equal to M x + b, where b depends on the previous state.

    Newton's method uses the slope of the friction, or the secant of the last iteration if it is steeper. With the slope
    alone, the iteration would oscillate across a sign change of the velocity.

    Cost: n + 1 evaluations of inverse dynamics, and the solution of six linear systems of n equations.
    """
    position, rate = state.position + dt * state.rate, state.rate
    load = lambda x: model.load(q + position, qd + rate, qdd + x)
    rows = jax.vmap(load)(jnp.concatenate([jnp.zeros((1, len(q)), q.dtype), jnp.eye(len(q), dtype=q.dtype)]))
    b, m = rows[0], (rows[1:] - rows[0][None]).T

    def end(x: Array) -> tuple[Array, Array, Array]:
        """Memory, position and velocity after a step."""
        later = rate + dt * x
        place, speed = q + state.travelled + dt * later, qd + later
        return model.advanced(state.memory, place, speed), place, speed

    def improved(_: Array, now: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, before, f_before = now
        carried = b + m @ x
        f, slope = jax.jvp(lambda x: model.friction_at(*end(x), carried), (x,), (jnp.ones_like(x),))
        moved = x - before
        some = jnp.abs(moved) > 1e-9 * (1 + jnp.abs(x))
        secant = jnp.where(some, (f - f_before) / jnp.where(some, moved, jnp.ones_like(x)), jnp.zeros_like(x))
        slope = jnp.maximum(jnp.maximum(slope, secant), jnp.zeros_like(x))
        return x + jnp.linalg.solve(m + jnp.diag(slope), tau - f - carried), x, f

    still = jnp.zeros_like(q)
    x, _, _ = jax.lax.fori_loop(0, _ITERATIONS, improved, (still, still, still))
    later = rate + dt * x
    return Deviation(state.position + dt * (rate + later) / 2, state.travelled + dt * later, later, end(x)[0])

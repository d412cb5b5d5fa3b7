"""Simulation under a sampled controller with internal state: the counterpart of `rollout` for stateful controllers."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import ControlError
from ..model.chain import Chain
from ..model.compiled import compiled
from ..simulation.integrate import Method, promoted, step
from ..simulation.rollout import march


class ControlledMotion(NamedTuple):
    """The result of `controlled_rollout`: one row at t = 0 and one row after every `every` control periods.

    Attributes:
        t: times [s].
        q: positions [rad or m].
        v: velocities [rad/s or m/s].
        tau: torques applied in the preceding period; zero in the first row [N m or N].
        state: controller states; every leaf of the pytree has one row per time.
    """

    t: Float[Array, " times"]
    q: Float[Array, "times nq"]
    v: Float[Array, "times nv"]
    tau: Float[Array, "times nv"]
    state: Any


@compiled
def controlled_rollout(
    chain: Chain,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    controller: tuple[Callable[[Any, Array, Array, Array], tuple[Array, Any]], Any],
    dt: float | Float[Array, ""],
    steps: int,
    method: Method = "semi_implicit_euler",
    substeps: int = 1,
    every: int = 1,
    disturbance: Callable[[Array, Array, Array], Array] | None = None,
) -> ControlledMotion:
    """Simulate the robot under a control law (tau, state) = law(state, t, q, v) with control period dt.

    Torques are constant within a control period. The simulation includes the robot's friction and springs, and runs as one
    compiled loop. For stateless controllers, use `rollout`.

    Args:
        q: initial positions [rad or m].
        v: initial velocities [rad/s or m/s].
        controller: the pair (law, initial state). The law is a pure function that returns torques [N m or N] and the next
            state, a pytree of arrays with constant shapes and types.
        dt: control period [s].
        steps: number of periods.
        method: integration scheme, as in `step`.
        substeps: number of integration steps per period.
        every: number of periods between returned rows; must divide the total number of periods.
        disturbance: function of (t, q, v) that returns additional joint torques [N m or N], which are unknown to the controller
            and constant during a substep.

    Raises:
        ControlError: the controller does not return `nv` torques, or `substeps` is less than 1.
        ModelError: `every` does not divide the number of periods, or the method is unknown.
    """
    if substeps < 1:
        raise ControlError(f"substeps={substeps}; it must be at least 1")
    law, state = controller
    q, v = promoted(chain, q, v)
    dt = jnp.asarray(dt, q.dtype)
    short = dt / substeps

    def advance(carry, k, _):
        q, v, _, state = carry
        time = k.astype(dt.dtype) * dt
        tau, state = law(state, time, q, v)
        if jnp.shape(tau) != (chain.nv,):
            raise ControlError(f"the controller's torques have shape {jnp.shape(tau)}; this robot needs ({chain.nv},)")
        tau = tau.astype(v.dtype)

        def substep(inner, j):
            x, u = inner
            acting = tau
            if disturbance is not None:
                acting = tau + disturbance(time + j.astype(dt.dtype) * short, x, u)
            return step(chain, x, u, acting, short, method=method), None

        if substeps == 1:
            (q, v), _ = substep((q, v), jnp.zeros((), int))
        else:
            (q, v), _ = jax.lax.scan(substep, (q, v), jnp.arange(substeps))
        return q, v, tau, state

    state = jax.tree.map(jnp.asarray, state)
    q, v, tau, states = march(advance, (q, v, jnp.zeros_like(v), state), None, steps, every)
    return ControlledMotion(jnp.arange(len(q)).astype(dt.dtype) * (dt * every), q, v, tau, states)

"""Simulation under a sampled controller with internal state: `rollout` for stateful controllers."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import ControlError
from ..model._chain import Chain
from ..model._compiled import compiled
from ..simulation._integrate import Method, promoted, step
from ..simulation._march import march


class ControlledMotion(NamedTuple):
    """The result of `controlled_rollout`: one row at t = 0 and one after each `every`-th period.

    Attributes:
        t: times [s].
        q: positions.
        v: velocities.
        tau: torques of the preceding period, zero in the first row [N m].
        state: the controller's states, one row per leaf and time.
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
    """The motion under (tau, state) = law(state, t, q, v), called every dt, its torque held in between.

    The robot's own friction and springs act. One compiled loop; for stateless controllers use `rollout`.

    Args:
        controller: the law, a pure function, and its initial state, any pytree of arrays; the law returns states
            of the same shapes and types.
        dt: period of the controller [s].
        steps: number of periods.
        method: as in `step`.
        substeps: integration steps per period.
        every: keep every k-th row, k a divisor of the number of periods.
        disturbance: additional joint torques (t, q, v), unknown to the controller, held during a substep [N m].

    Raises:
        ControlError: the controller's torques do not have `nv` entries, or fewer than one substep.
        ModelError: `every` does not divide the number of periods; an unknown method.
    """
    if substeps < 1:
        raise ControlError(f"substeps={substeps}: give 1 or more")
    law, state = controller
    q, v = promoted(chain, q, v)
    dt = jnp.asarray(dt, q.dtype)
    short = dt / substeps

    def advance(carry, k, _):
        q, v, _, state = carry
        time = k.astype(dt.dtype) * dt
        tau, state = law(state, time, q, v)
        if jnp.shape(tau) != (chain.nv,):
            raise ControlError(f"the controller's torques have shape {jnp.shape(tau)}; this robot takes ({chain.nv},)")
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

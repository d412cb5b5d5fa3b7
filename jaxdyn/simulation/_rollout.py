"""Rollouts: many steps of one robot in one compiled loop."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..errors import ModelError
from ..model._chain import Chain
from ..model._compiled import compiled
from ._integrate import Method, promoted, step
from ._march import march


@compiled
def rollout(
    chain: Chain,
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    controls: Float[Array, "steps nv"] | Callable[[Array, Array, Array], Array],
    dt: float | Float[Array, ""],
    steps: int | None = None,
    method: Method = "semi_implicit_euler",
    external_wrenches: Float[Array, "n 6"] | Float[Array, "steps n 6"] | None = None,
    wrench_by_tip: Float[Array, "6"] | Float[Array, "steps 6"] | None = None,
    every: int = 1,
    checkpoint: int | None = None,
) -> tuple[Float[Array, "times nq"], Float[Array, "times nv"]]:
    """Positions and velocities at t = 0, every dt, 2 every dt, ..., steps dt: steps / every + 1 rows, the first as given.

    Memory is that of the controls and of the rows; with a policy and every = steps it does not grow with the horizon.
    Reverse-mode derivatives store every step's insides, unless `checkpoint` is given: with L levels they store about
    L steps^(1 / L) states and the insides of one step, and compute every step up to L + 1 times (L + 2 times where
    1 < every < steps). L = 1 keeps all states but no insides; L = 2 is enough for thousands of steps. Values and derivatives
    are the same.

    Args:
        controls: torques held during each step [N m], or a policy tau = controls(t, q, qd).
        dt: step [s].
        steps: number of steps; needed with a policy.
        method: as in `step`.
        external_wrenches: wrenches (n, f) on each link, in its frame, for all steps or one row a step [N m, N].
        wrench_by_tip: wrench (n, f) that the tip exerts on the world, in the tip's frame, for all steps or one row a step.
        every: keep the state after each so many steps; a divisor of their number.
        checkpoint: levels of checkpoints for reverse-mode derivatives; None stores everything.

    Raises:
        ModelError: a policy without `steps`, torques whose number is not `steps`, `every` that does not divide it, or fewer
            than one level.
    """
    policy, torques, steps = controls_by_step(controls, steps)
    q, qd = promoted(chain, q, qd)
    dt = jnp.asarray(dt, q.dtype)
    on_links, at_steps = _by_step(external_wrenches, 2)
    by_tip, by_tip_at_steps = _by_step(wrench_by_tip, 1)

    def advance(state, k, x):
        tau, wrenches, tip = x
        q, qd = state
        tau = tau if policy is None else policy(k.astype(dt.dtype) * dt, q, qd)
        wrenches = on_links if wrenches is None else wrenches
        return step(chain, q, qd, tau, dt, wrenches, method, by_tip if tip is None else tip)

    return march(advance, (q, qd), (torques, at_steps, by_tip_at_steps), steps, every, checkpoint)


def controls_by_step(
    controls: Array | Callable[[Array, Array, Array], Array], steps: int | None
) -> tuple[Callable[[Array, Array, Array], Array] | None, Array | None, int]:
    """(policy, None, steps) or (None, rows of torques, steps).

    Raises:
        ModelError: a policy without `steps`, or torques whose number is not `steps`.
    """
    if callable(controls):
        if steps is None:
            raise ModelError("a rollout under a policy needs its number of steps")
        return controls, None, steps
    if steps is not None and steps != len(controls):
        raise ModelError(f"{len(controls)} rows of torques are given for {steps} steps")
    return None, jnp.asarray(controls), len(controls)


def _by_step(wrenches: Array | None, held_dimensions: int) -> tuple[Array | None, Array | None]:
    """(held for all steps, one row a step): one of them, by the number of dimensions."""
    if wrenches is None or jnp.ndim(wrenches) == held_dimensions:
        return wrenches, None
    return None, jnp.asarray(wrenches)

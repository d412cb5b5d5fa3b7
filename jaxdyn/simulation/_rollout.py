"""Rollouts: many steps of one robot in one compiled loop."""

from collections.abc import Callable, Sequence

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

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
    every: int = 1,
    checkpoint: int | None = None,
) -> tuple[Float[Array, "times nq"], Float[Array, "times nv"]]:
    """Positions and velocities at t = 0, every * dt, 2 * every * dt, ..., steps * dt, starting from the state (q, qd).

    The result has steps / every + 1 rows. A rollout stores only the controls and the returned rows, so with a policy and
    every = steps, its memory does not grow with the horizon.

    Unless `checkpoint` is set, reverse-mode derivatives store the intermediate values of every step. With L levels of
    checkpoints, about L steps^(1 / L) states and the intermediate values of one step are stored, and every step is computed up
    to L + 1 times (L + 2 times if 1 < every < steps). L = 1 stores all states but no intermediate values; L = 2 suffices for
    thousands of steps. Values and derivatives do not depend on L.

    Args:
        q: initial positions [rad or m].
        qd: initial velocities [rad/s or m/s].
        controls: torques, constant during each step [N m or N], or a policy tau = controls(t, q, qd).
        dt: time step [s].
        steps: number of steps; required if `controls` is a policy.
        method: integration scheme, as in `step`.
        external_wrenches: wrenches (n, f) on each link, in its frame, for all steps or one row per step [N m, N].
        every: number of steps between returned states; must divide the total number of steps.
        checkpoint: number of checkpoint levels for reverse-mode derivatives; None to store all intermediate values.

    Raises:
        ModelError: `steps` differs from the number of torque rows, or is missing although `controls` is a policy; `every` does
            not divide `steps`; `checkpoint` is less than 1; or the scheme is unknown.
    """
    by_step = external_wrenches is not None and jnp.ndim(external_wrenches) == 3

    def move(q, qd, tau, dt, wrenches):
        return step(chain, q, qd, tau, dt, wrenches if by_step else external_wrenches, method)

    rows = external_wrenches if by_step else None
    return repeated(move, promoted(chain, q, qd), controls, dt, steps, rows, every, checkpoint)


def repeated(
    move: Callable[..., tuple[Array, Array]],
    start: Sequence[Array],
    controls: Array | Callable[[Array, Array, Array], Array],
    dt: float | Array,
    steps: int | None,
    rows: PyTree,
    every: int,
    checkpoint: int | None,
) -> tuple[Array, Array]:
    """Positions and velocities from repeated steps (q, qd) = move(q, qd, tau, dt, row), in the form returned by `rollout`.

    Raises:
        ModelError: as for `rollout`.
    """
    q, qd = start
    dt = jnp.asarray(dt, q.dtype)
    policy, torques = (controls, None) if callable(controls) else (None, jnp.asarray(controls))
    if torques is not None and steps not in (None, len(torques)):
        raise ModelError(
            f"{len(torques)} rows of torques are given for {steps} steps; omit steps, or pass one row per step"
        )
    steps = steps if torques is None else len(torques)
    if steps is None:
        raise ModelError("a rollout under a policy needs the number of steps; pass steps=")

    def advance(state, k, x):
        tau, row = x
        q, qd = state
        tau = tau if policy is None else policy(k.astype(dt.dtype) * dt, q, qd)
        return move(q, qd, tau, dt, row)

    return march(advance, (q, qd), (torques, rows), steps, every, checkpoint)

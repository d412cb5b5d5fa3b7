"""Time integration: one step, and rollouts of many, by three fixed-step schemes."""

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..dynamics.forward import forward_dynamics
from ..dynamics.friction import passive_force
from ..errors import ModelError
from ..model.chain import Chain
from ..model.configuration import integrate, motion_rate

Method = Literal["semi_implicit_euler", "explicit_euler", "rk4"]


def step(
    chain: Chain,
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    dt: float | Float[Array, ""],
    external_wrenches: Float[Array, "n 6"] | None = None,
    method: Method = "semi_implicit_euler",
    wrench_by_tip: Float[Array, "6"] | None = None,
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """The state (q, qd) a time dt later, torques and wrenches held: qdd = forward_dynamics(tau - passive_force).

    Quaternion joints move on their manifold: where "q + dq" stands below, it is integrate(chain, q, dq).

    semi_implicit_euler: qd' = qd + dt qdd, q' = q + dt qd'; first order; one evaluation. Symplectic where M
    is constant; otherwise energy drifts slowly, at first order in dt.
    explicit_euler: q' = q + dt qd, qd' = qd + dt qdd; first order, gains energy (Lynch & Park 2017, sec. 8.5).
    rk4: the classical Runge-Kutta scheme; fourth order, four evaluations. On quaternions in exponential coordinates u about q,
    du/dt = qd + [u, qd] / 2 + [u, [u, qd]] / 12, which is exact to the scheme's order (Munthe-Kaas 1999).
    Coulomb friction is as stiff as fc / (v_c M): keep dt below about M v_c / fc, or widen v_c.

    Args:
        tau: joint torques during the step [N m].
        dt: step [s].
        external_wrenches: wrenches (n, f) on each link, in its frame, held [N m, N].
        method: the scheme.
        wrench_by_tip: wrench (n, f) that the tip exerts on the world, in the tip's frame, held [N m, N].

    Raises:
        ModelError: a scheme of another name.
    """
    q, qd = promoted(chain, q, qd)

    def acceleration(x, xd):
        return forward_dynamics(chain, x, xd, tau - passive_force(chain, x, xd), external_wrenches, wrench_by_tip)

    return advance(chain, q, qd, jnp.asarray(dt, q.dtype), acceleration, method)


def advance(
    chain: Chain,
    q: Float[Array, " nq"],
    qd: Float[Array, " nv"],
    dt: Float[Array, ""],
    acceleration: Callable[[Array, Array], Array],
    method: str,
) -> tuple[Float[Array, " nq"], Float[Array, " nv"]]:
    """The state a time dt later for accelerations qdd = acceleration(q, qd), by one of the schemes of `step`.

    Raises:
        ModelError: a scheme of another name.
    """
    if method == "semi_implicit_euler":
        qd = qd + dt * acceleration(q, qd)
        return integrate(chain, q, dt * qd), qd
    if method == "explicit_euler":
        return integrate(chain, q, dt * qd), qd + dt * acceleration(q, qd)
    if method == "rk4":

        def slope(u, v):
            return motion_rate(chain, u, v), acceleration(integrate(chain, q, u), v)

        u1, a1 = qd, acceleration(q, qd)
        u2, a2 = slope(dt / 2 * u1, qd + dt / 2 * a1)
        u3, a3 = slope(dt / 2 * u2, qd + dt / 2 * a2)
        u4, a4 = slope(dt * u3, qd + dt * a3)
        return integrate(chain, q, dt / 6 * (u1 + 2 * u2 + 2 * u3 + u4)), qd + dt / 6 * (a1 + 2 * a2 + 2 * a3 + a4)
    raise ModelError(f"an integration method is 'semi_implicit_euler', 'explicit_euler' or 'rk4', not {method!r}")


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
) -> tuple[Float[Array, "times nq"], Float[Array, "times nv"]]:
    """Positions and velocities at t = 0, dt, ..., steps dt: `steps` + 1 rows, the first the initial state.

    Args:
        controls: torques held during each step [N m], or a policy tau = controls(t, q, qd).
        dt: step [s].
        steps: number of steps; needed with a policy.
        method: as in `step`.
        external_wrenches: wrenches (n, f) on each link, in its frame, for all steps or one row a step [N m, N].
        wrench_by_tip: wrench (n, f) that the tip exerts on the world, in the tip's frame, for all steps or one row a step.

    Raises:
        ModelError: a policy without `steps`, or torques whose number is not `steps`.
    """
    if callable(controls):
        policy, torques = controls, None
        if steps is None:
            raise ModelError("a rollout under a policy needs its number of steps")
    else:
        policy, torques = None, controls
        if steps is not None and steps != len(torques):
            raise ModelError(f"{len(torques)} rows of torques are given for {steps} steps")
        steps = len(torques)
    q, qd = promoted(chain, q, qd)
    dt = jnp.asarray(dt, q.dtype)
    on_links, at_steps = _by_step(external_wrenches, 2)
    by_tip, by_tip_at_steps = _by_step(wrench_by_tip, 1)

    def body(state, x):
        time, tau, wrenches, tip = x
        q, qd = state
        tau = tau if policy is None else policy(time, q, qd)
        wrenches = on_links if wrenches is None else wrenches
        new = step(chain, q, qd, tau, dt, wrenches, method, by_tip if tip is None else tip)
        return new, new

    times = jnp.arange(steps, dtype=q.dtype) * dt
    inputs = (times, torques, at_steps, by_tip_at_steps)
    _, (positions, velocities) = jax.lax.scan(body, (q, qd), inputs, length=steps)
    return jnp.concatenate([q[None], positions]), jnp.concatenate([qd[None], velocities])


def promoted(chain: Chain, *vectors: Array) -> list[Array]:
    """State vectors in the type that the chain's leaves will give their successors."""
    arrays = [jnp.asarray(x) for x in vectors]
    dtype = jnp.result_type(chain.dtype, *arrays)
    return [x.astype(dtype) for x in arrays]


def _by_step(wrenches: Array | None, held_dimensions: int) -> tuple[Array | None, Array | None]:
    """(held for all steps, one row a step): one of them, by the number of dimensions."""
    if wrenches is None or jnp.ndim(wrenches) == held_dimensions:
        return wrenches, None
    return None, jnp.asarray(wrenches)

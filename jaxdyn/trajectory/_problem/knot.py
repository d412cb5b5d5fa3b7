"""The argument of costs and constraints: one knot of a motion, with the state and the torque at one time."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ...errors import TrajectoryError


class Knot(NamedTuple):
    """State and torques at time t = k dt. At the last knot, k = steps, no torque acts; `tau` repeats the previous torque.

    Attributes:
        k: index of the knot.
        t: time [s].
        q: positions [rad or m].
        v: velocities [rad/s or m/s].
        tau: torques from this knot to the next [N m or N].
        tau_before: torques before this knot [N m or N]; at k = 0 the problem's `tau0`.
        dt: time step [s].
        ground: wrench (n, f) of the ground on the robot, as returned by `ground_reaction` [N m, N], if a constraint needs it
            and the solver provides it; otherwise None.
    """

    k: Int[Array, ""]
    t: Float[Array, ""]
    q: Float[Array, " nq"]
    v: Float[Array, " nv"]
    tau: Float[Array, " nv"]
    tau_before: Float[Array, " nv"]
    dt: Float[Array, ""]
    ground: Float[Array, "6"] | None = None


def as_floats(x: Any) -> Array:
    """The argument as a floating-point array; a plain number becomes a weakly typed array."""
    if isinstance(x, Array):
        return x
    return jnp.asarray(float(x)) if isinstance(x, int | float) else jnp.asarray(x, float)


def as_floats_or_none(x: Any) -> Array | None:
    """The result of `as_floats`, or None for None."""
    return None if x is None else as_floats(x)


def reference_at(owner: Any, name: str, shape: tuple[int, ...], k: Int[Array, ""]) -> Array:
    """The reference of a cost or constraint at a knot: row k of a time-varying reference, or the constant reference.

    Raises:
        TrajectoryError: the reference has neither of these shapes.
    """
    x = getattr(owner, name)
    at = jnp.take(x, k, axis=0) if x.ndim == len(shape) + 1 else x
    if at.shape != shape:
        raise TrajectoryError(
            f"{type(owner).__name__}: {name} has shape {x.shape}, but this robot requires {shape}, or one such row per knot"
        )
    return at

"""A motion as seen by costs and constraints: one knot, the state and the torque at one time."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ...errors import TrajectoryError


class Knot(NamedTuple):
    """A motion at time t = k dt. At the last knot, k = steps, no torque acts; `tau` repeats the previous one.

    Attributes:
        k: index of the knot.
        t: time [s].
        q: positions.
        v: velocities.
        tau: torques held from this knot to the next [N m].
        tau_before: torques held until this knot [N m]; at k = 0 the problem's `tau0`.
        dt: the step [s].
        ground: the ground's wrench (n, f), as `ground_reaction`, if a constraint needs it and the solver provides it;
            otherwise None [N m, N].
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
    """An array; a plain number becomes one of weak type."""
    if isinstance(x, Array):
        return x
    return jnp.asarray(float(x)) if isinstance(x, int | float) else jnp.asarray(x, float)


def as_floats_or_none(x: Any) -> Array | None:
    """`as_floats`, or None."""
    return None if x is None else as_floats(x)


def reference_at(owner: Any, name: str, shape: tuple[int, ...], k: Int[Array, ""]) -> Array:
    """A cost's or constraint's reference at a knot: row k of a time-varying one, or the constant reference itself.

    Raises:
        TrajectoryError: a shape that is neither.
    """
    x = getattr(owner, name)
    at = jnp.take(x, k, axis=0) if x.ndim == len(shape) + 1 else x
    if at.shape != shape:
        raise TrajectoryError(
            f"{type(owner).__name__}: {name} has shape {x.shape}, but this robot takes {shape}, or one such row per knot"
        )
    return at

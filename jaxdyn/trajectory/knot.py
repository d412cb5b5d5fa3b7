"""Knots, the arguments of costs and constraints: the state and torques of a motion at one time."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..errors import TrajectoryError


class Knot(NamedTuple):
    """The state and torques at one time.

    No torque follows the last knot of a simulated trajectory, so the `tau` of this knot repeats the previous torque.

    Attributes:
        k: index of the knot; at the midpoint of a collocation step, the index of the preceding knot.
        t: time [s]; k dt at a knot.
        q: positions [rad or m].
        v: velocities [rad/s or m/s].
        tau: torques from this knot to the next [N m or N].
        tau_before: torques from the previous knot to this one [N m or N]; at k = 0, the problem's `tau0`.
        dt: time step [s].
        ground: wrench (n, f) that the ground exerts on the robot, in world axes about the world's origin [N m, N]; None
            unless a constraint needs it and the solver provides it.
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
    """Convert a number or sequence to a floating-point array, weakly typed for a number; return JAX arrays unchanged."""
    if isinstance(x, Array):
        return x
    return jnp.asarray(float(x)) if isinstance(x, int | float) else jnp.asarray(x, float)


def as_floats_or_none(x: Any) -> Array | None:
    """Apply `as_floats`, unless the argument is None."""
    return None if x is None else as_floats(x)


def one_per_knot(dimensions: int) -> dict[str, int]:
    """The metadata of a field that may have one row per knot, given its number of dimensions without the knot axis."""
    return {"dimensions": dimensions}


def reference_at(owner: Any, name: str, shape: tuple[int, ...], k: Int[Array, ""]) -> Array:
    """The reference of a cost or constraint at a knot: row k of a time-varying reference, or the constant reference.

    Raises:
        TrajectoryError: the reference has neither the given shape nor one such row per knot.
    """
    x = getattr(owner, name)
    at = jnp.take(x, k, axis=0) if x.ndim == len(shape) + 1 else x
    if at.shape != shape:
        raise TrajectoryError(
            f"{type(owner).__name__}: {name} has shape {x.shape}, but this robot requires {shape}, or one such row per knot"
        )
    return at


def coincide(lower: Float[Array, "*n"], upper: Float[Array, "*n"]) -> Bool[Array, "*n"]:
    """True for limits with nothing in between, that is, a range below eps^0.6 = 4e-10 (7e-5 in float32) of max(1, |limit|).

    A barrier function has no interior there: between closer limits, rounding errors exceed the distances.
    """
    size = jnp.maximum(1.0, jnp.maximum(jnp.abs(lower), jnp.abs(upper)))
    return jnp.isfinite(size) & (
        upper - lower <= jnp.finfo(lower.dtype).eps ** 0.6 * jnp.where(jnp.isfinite(size), size, 1.0)
    )

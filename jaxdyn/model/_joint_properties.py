"""Properties of joints and motors other than inertia: friction, springs, limits."""

import dataclasses
from collections.abc import Iterable
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

T = TypeVar("T")
COULOMB_VELOCITY, STRIBECK_VELOCITY = 0.02, 0.1  # widths of the smooth sign function and of the Stribeck term [rad/s]


def as_array(x) -> Array:
    """Return arrays unchanged, and convert anything else to an array of JAX's default float type."""
    return x if isinstance(x, Array) else jnp.asarray(x, float)


def converts(cls: type[T]) -> type[T]:
    """Clear the annotations of a dataclass's `__init__`, whose arguments may have any type that converts to the field type."""
    cls.__init__.__annotations__.clear()
    return cls


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(eqx.field,))
def _of_arrays(cls: type[T]) -> type[T]:
    """Turn a class of array fields into a frozen dataclass that is a pytree and applies the converters of `equinox.field`.

    An `equinox.Module` would serve as well, but would add more overhead to each call of a jitted function that takes a
    robot as argument: 4 us for the three modules in a robot, compared with 1 us for these classes.
    """
    cls.__post_init__ = _convert  # type: ignore[attr-defined]
    cls = dataclasses.dataclass(frozen=True, eq=False)(cls)
    names = tuple(field.name for field in dataclasses.fields(cls))  # type: ignore[arg-type]
    converts(cls)
    values, keys = attrgetter(*names), tuple(map(jax.tree_util.GetAttrKey, names))

    def unflatten(_: None, leaves: Iterable[Any]) -> T:
        made = object.__new__(cls)  # no conversion: JAX also unflattens with leaves that are not arrays
        made.__dict__.update(zip(names, leaves, strict=True))
        return made

    keyed = lambda x: (tuple(zip(keys, values(x), strict=True)), None)
    jax.tree_util.register_pytree_with_keys(cls, keyed, unflatten, lambda x: (values(x), None))
    return cls


def _convert(self: Any) -> None:
    for field in dataclasses.fields(self):
        object.__setattr__(self, field.name, field.metadata["converter"](getattr(self, field.name)))


@_of_arrays
class Friction:
    """Friction of joints or motors, with one value of each coefficient per joint or motor.

    `make_chain` also accepts a single value for all joints. At the rate qd, the friction torque is

        f = fv qd + (fc + (fs - fc) exp(-(qd / w_s)^2)) tanh(qd / v_c) + offset.

    The smooth sign function tanh(qd / v_c) makes f differentiable at rest, but a loaded joint then creeps instead of
    sticking. The excess of static over Coulomb friction, fs - fc, decays over the velocity w_s (Armstrong-Helouvry, Dupont &
    Canudas de Wit 1994). The peak of f lies near v_c and is lower than fs unless v_c is much smaller than w_s. For
    prismatic joints, replace [rad] by [m] and [N m] by [N].

    Attributes:
        viscous: viscous coefficient fv [N m s/rad].
        coulomb: Coulomb friction fc [N m].
        coulomb_velocity: width v_c of the smooth sign function [rad/s].
        stribeck: excess fs - fc of static friction over Coulomb friction [N m].
        stribeck_velocity: velocity w_s over which this excess decays [rad/s].
        offset: constant torque [N m].
    """

    viscous: Float[Array, "*n"] = eqx.field(converter=as_array, default=0.0)
    coulomb: Float[Array, "*n"] = eqx.field(converter=as_array, default=0.0)
    coulomb_velocity: Float[Array, "*n"] = eqx.field(converter=as_array, default=COULOMB_VELOCITY)
    stribeck: Float[Array, "*n"] = eqx.field(converter=as_array, default=0.0)
    stribeck_velocity: Float[Array, "*n"] = eqx.field(converter=as_array, default=STRIBECK_VELOCITY)
    offset: Float[Array, "*n"] = eqx.field(converter=as_array, default=0.0)

    def sign(self, rates: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """The smooth sign function tanh(rates / v_c)."""
        return jnp.tanh(rates / self.coulomb_velocity)

    def torque(self, rates: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """Friction torques f(rates) [N m]."""
        sign = self.sign(rates)
        dry = self.coulomb + self.stribeck * _fading(rates, self.stribeck_velocity)
        return self.viscous * rates + dry * sign + self.offset


def _fading(rates: Float[Array, "*n"], width: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """The factor exp(-(rates / width)^2), with finite derivatives at all rates, even for very small widths."""
    # without these bounds, derivatives for tiny widths or large ratios would contain 0 * inf
    width = jnp.maximum(width, jnp.finfo(width.dtype).eps ** 2)
    near = jnp.abs(rates) < 12 * width  # exp(-144) < 1e-62
    ratio = jnp.where(near, rates, jnp.zeros_like(rates)) / width
    return jnp.where(near, jnp.exp(-(ratio**2)), jnp.zeros_like(ratio))


@_of_arrays
class Springs:
    """Joint springs; holding a joint at q against its spring requires the torque k (q - q_rest).

    Attributes:
        stiffness: stiffness k [N m/rad or N/m].
        rest_position: position q_rest at which the torque is zero [rad or m].
    """

    stiffness: Float[Array, "*n"] = eqx.field(converter=as_array, default=0.0)
    rest_position: Float[Array, "*n"] = eqx.field(converter=as_array, default=0.0)


@_of_arrays
class JointLimits:
    """Joint limits, infinite where a joint has none.

    `make_chain` also accepts a single value for all joints.

    Attributes:
        position: lower and upper joint limits [rad or m].
        velocity: maximum |qd| [rad/s or m/s].
        effort: maximum |tau| [N m or N].
    """

    position: Float[Array, "*n 2"] = eqx.field(converter=as_array, default=(-np.inf, np.inf))
    velocity: Float[Array, "*n"] = eqx.field(converter=as_array, default=np.inf)
    effort: Float[Array, "*n"] = eqx.field(converter=as_array, default=np.inf)

"""Friction that depends on the temperature of the joint, which is a column of the log.

The memory of this term does not depend on the motion: it is the temperature above the reference. Along a run it follows
the logged temperature; in step-by-step evaluation and simulation it remains as set by `TorqueModel.at_temperature`.
"""

import math
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...errors import IdentificationError
from .terms import FrictionTerm, like


def _degrees(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise IdentificationError(f"the reference temperature is {value!r}; it must be a finite number [°C]")
    return float(value)


class TemperatureDependent(FrictionTerm):
    """Change of viscous and Coulomb friction with the joint's temperature T: (T - reference) (fvt qd + fct tanh(qd / width)).

    Together with `Viscous` and `Coulomb`, friction is (fv + fvt (T - reference)) qd + (fc + fct (T - reference))
    sign(qd), so fvt / fv and fct / fc are the relative changes per kelvin; the units are fvt [N m s/(rad K) or N s/(m
    K)] and fct [N m/K or N/K]. A common relative change of both, as in (fv qd + fc sign(qd)) (1 + k (T - reference)),
    corresponds to fvt = k fv and fct = k fc. Grease becomes thinner as a joint warms up, so fvt is usually negative.
    The linear relation holds only for temperatures that occurred in the log; do not extrapolate.

    The log must contain temperatures (`Log.temperature`) that change while the joint moves; at a constant temperature,
    the columns are multiples of viscous and Coulomb friction. Source: Bittencourt, Wernholt, Sander-Tavallaey &
    Brogardh (2010).

    Attributes:
        reference: temperature at which the term vanishes [°C].
        width: width of the smooth sign [rad/s or m/s].
        joints: joints with the term, counted from 1; by default all.

    Raises:
        IdentificationError: the reference is not a finite number.
    """

    reference: float = eqx.field(static=True, converter=_degrees, default=25.0)
    width: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=0.01)
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)
    _remembers = True

    def warmth(self, temperature: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """The memory for joints at this temperature [°C], which is the difference from the reference [K]."""
        return temperature - self.reference

    def _states(self, q, qd, temperature):
        return jnp.zeros_like(q) if temperature is None else self.warmth(temperature)

    def _advance(self, z, travel, qd):
        return z

    def _columns(self, q, qd, load, z):
        return jnp.stack([z * qd, z * jnp.tanh(qd / like(self.width, qd))], axis=-1)

    def _labels(self):
        return ("fvt", "fct")

    def _units(self, force, length):
        return (f"{force} s/({length} K)", f"{force}/K")

"""Friction that depends on the temperature of a joint, for logs that contain joint temperatures.

The memory of `TemperatureDependent` is the difference between the joint's temperature and the reference temperature; it
does not depend on the motion. Along a run, the memory follows the logged temperature. In step-by-step evaluation and in
simulation, it keeps the value set by `TorqueModel.at_temperature`.
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
    """Change of viscous and Coulomb friction with a joint's temperature T: (T - reference) (fvt qd + fct tanh(qd / width)).

    Together with `Viscous` and `Coulomb`, the friction is:

        (fv + fvt (T - reference)) qd + (fc + fct (T - reference)) sign(qd)

    The relative changes per kelvin are therefore fvt / fv and fct / fc. The unit of fvt is N m s/(rad K) or N s/(m K),
    and that of fct is N m/K or N/K. If both kinds of friction change by the same fraction k per kelvin, then fvt = k fv
    and fct = k fc. Grease becomes thinner as a joint warms up, so fvt is usually negative. The linear relation is valid
    only in the temperature range of the log; do not extrapolate.

    The log must contain temperatures (`Log.temperature`) that change while the joint moves. At a constant temperature,
    the columns are multiples of those of viscous and Coulomb friction, and their parameters cannot be determined.

    Source: Bittencourt, Wernholt, Sander-Tavallaey & Brogardh (2010).

    Attributes:
        reference: temperature at which the term vanishes [°C].
        width: width of the smooth sign function [rad/s or m/s].
        joints: numbers of the joints that have the term, counted from 1; by default all joints.

    Raises:
        IdentificationError: the reference is not a finite number.
    """

    reference: float = eqx.field(static=True, converter=_degrees, default=25.0)
    width: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=0.01)
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)
    _remembers = True

    def warmth(self, temperature: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Memory at the given joint temperatures [°C]: their difference from the reference temperature [K]."""
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

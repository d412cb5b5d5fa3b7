"""Friction that changes with the temperature of the joint, which the log holds as a column.

The term's memory is not driven by the motion: it is the temperature above the reference. Along a run it follows the log;
step by step and in simulation it stays what it was set to (`TorqueModel.at_temperature`).
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
    """(T - reference) (fvt qd + fct tanh(qd / width)): viscous and Coulomb friction linear in the joint's temperature T.

    With `Viscous` and `Coulomb` beside it, friction is (fv + fvt (T - reference)) qd + (fc + fct (T - reference)) sign(qd):
    fvt / fv and fct / fc are the relative changes per kelvin. One common relative change of both, as in (fv qd + fc
    sign(qd)) (1 + k (T - reference)), has fvt = k fv and fct = k fc. Grease thins as a joint warms up, so fvt is mostly
    negative. Linear over the temperatures that occurred: do not extrapolate.

    Needs a log with temperatures (`Log.temperature`) that change while the joint moves: at one temperature the columns are
    multiples of viscous and Coulomb friction. Source: Bittencourt, Wernholt, Sander-Tavallaey & Brogardh (2010).

    Attributes:
        reference: temperature at which the term vanishes [°C].
        width: of the smooth sign [rad/s or m/s].
    """

    reference: float = eqx.field(static=True, converter=_degrees, default=25.0)
    width: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=0.01)
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)
    _remembers = True

    def warmth(self, temperature: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """The memory of joints at this temperature: the difference from the reference [K]."""
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

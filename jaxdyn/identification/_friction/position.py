"""Torques that depend on the position of a single joint: counterbalances and cables.

Gravity torques are sums of sines and cosines of the joint positions. Only torques of a different form can be
distinguished from them.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ...errors import IdentificationError
from .terms import FrictionTerm, like


class Counterbalance(FrictionTerm):
    """Gas spring or hydropneumatic cylinder between a fixed pivot and a crank on the link.

    The torque is the derivative of the energy of the gas with respect to q:

        cb h(q) ((s + r) / (s + r - x))^e

    - L = sqrt(D^2 + k^2 - 2 D k cos(q + angle)) is the length of the cylinder.
    - h = dL/dq = D k sin(q + angle) / L is its lever arm.
    - x = L - (D - k) is its stroke, which is at most s = 2 k.
    - r is the length of the gas column that remains at full stroke. For large r, the force is nearly constant.
    - cb, the linear parameter, is the force at x = 0 [N]. It may have either sign.

    Source: Siciliano et al. 2009 (virtual work), with the gas law p V^e = const.

    Attributes:
        pivot: D, the distance from the joint's axis to the fixed pivot [m].
        crank: k < D, the distance from the joint's axis to the crank's pin [m].
        angle: angle between the crank and the fixed pivot at q = 0 [rad]; it must be positive, so add 2 pi to a
            negative angle.
        reserve: r, the length of the gas column that remains at full stroke [m].
        exponent: polytropic exponent e of the gas: 1 for isothermal and 1.4 for adiabatic compression.
        fitted: names of the nonlinear parameters that `fit_friction` fits; the others keep their values.
        joints: numbers of the joints that have the term, counted from 1; by default all joints.

    Raises:
        IdentificationError: `fitted` contains an unknown name.
    """

    pivot: Float[Array, "..."] = eqx.field(converter=jnp.asarray)
    crank: Float[Array, "..."] = eqx.field(converter=jnp.asarray)
    angle: Float[Array, "..."] = eqx.field(converter=jnp.asarray)
    reserve: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=0.5)
    exponent: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=1.0)
    fitted: tuple[str, ...] = eqx.field(static=True, default=("reserve",))
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def __check_init__(self) -> None:
        names = ("pivot", "crank", "angle", "reserve", "exponent")
        if unknown := [name for name in self.fitted if name not in names]:
            raise IdentificationError(
                f"a counterbalance has no parameter {unknown[0]!r} to fit; its parameters are {', '.join(names)}"
            )

    def _columns(self, q, qd, load, z):
        held = lambda name: like(getattr(self, name), q)
        pivot, crank, angle, reserve, exponent = (
            held(name) if name in self.fitted else jax.lax.stop_gradient(held(name))
            for name in ("pivot", "crank", "angle", "reserve", "exponent")
        )
        length = jnp.sqrt(pivot**2 + crank**2 - 2 * pivot * crank * jnp.cos(q + angle))
        whole = 2 * crank + reserve
        pressure = (whole / (whole - (length - (pivot - crank)))) ** exponent
        return (pivot * crank * jnp.sin(q + angle) / length * pressure)[..., None]

    def _labels(self):
        return ("cb",)

    def _units(self, force, length):
        return ("N",) if force == "N m" else ("1",)


class Cable(FrictionTerm):
    """Torque of cables, hoses and springs as a polynomial in the joint's position, sum_k ca_k q^k.

    ca_k has the unit N m/rad^k or N/m^k.

    Attributes:
        powers: the powers k; (1,) describes a linear spring.
        joints: numbers of the joints that have the term, counted from 1; by default all joints.
    """

    powers: tuple[int, ...] = eqx.field(static=True, default=(1, 2, 3))
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def _columns(self, q, qd, load, z):
        return jnp.stack([q**power for power in self.powers], axis=-1)

    def _labels(self):
        return tuple(f"ca{power}_" for power in self.powers)

    def _units(self, force, length):
        return tuple(f"{force}/{length}" + (f"^{power}" if power > 1 else "") for power in self.powers)

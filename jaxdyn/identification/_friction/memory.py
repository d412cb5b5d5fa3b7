"""Friction with memory: the holding torque of a joint at rest depends on its past motion.

Before a dry contact slips, it yields like a spring over 1e-5 to 1e-2 rad. The state of this spring depends on the
joint's displacement (Maxwell slip, Dahl), or on its displacement and velocity (LuGre). The state is scaled to 1 at
steady slip (for LuGre, at steady slip at high speed), so the coefficient of its column is the friction torque at steady
slip. The state equation is solved exactly between samples, so the update is stable at any sample rate.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .terms import FrictionTerm, like

FORGOTTEN = 5.0  # travel, in multiples of the width, after which the effect of the initial state has decayed to exp(-5)


def _slip(z: Array, travel: Array, width: Array) -> Array:
    return jnp.clip(z + travel / like(width, z), -1.0, 1.0)


class MaxwellSlip(FrictionTerm):
    """Maxwell-slip element, a spring that slips at a limit torque: fz z with z <- clip(z + dq / width, -1, 1).

    Several of these terms in parallel, with different widths, form the Maxwell-slip (Iwan) model, a rate-independent
    hysteresis with non-local memory. For given widths, the model is linear in the slip torques fz [N m or N]. The
    stiffness of an element is fz / width. For friction that depends on the slip speed, as in the source, add `Stribeck`
    and `Coulomb`.

    Source: Al-Bender, Lampaert & Swevers (2005).

    Attributes:
        width: travel from the relaxed state to slip [rad or m].
        joints: numbers of the joints that have the term, counted from 1; by default all joints.
    """

    width: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=1e-4)
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)
    _remembers = True

    def _advance(self, z, travel, qd):
        return _slip(z, travel, self.width)

    def _columns(self, q, qd, load, z):
        return z[..., None]

    def _labels(self):
        return ("fz",)

    def _units(self, force, length):
        return (force,)

    def _reach(self):
        return 2 * float(np.asarray(self.width).max())


class LoadedSlip(FrictionTerm):
    """Presliding and sliding friction that depends on the load: sum_k fzl_k |load|^k z, with z as in `MaxwellSlip`.

    The load is the rigid-body torque of the joint due to gravity and inertia [N m or N]; it does not include friction.
    The unit of fzl_k is (N m)^(1 - k) or N^(1 - k).

    Attributes:
        width: travel from the relaxed state to slip [rad or m].
        powers: the powers k.
        joints: numbers of the joints that have the term, counted from 1; by default all joints.
    """

    width: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=1e-4)
    powers: tuple[int, ...] = eqx.field(static=True, default=(1,))
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)
    _loaded = True
    _remembers = True

    def _advance(self, z, travel, qd):
        return _slip(z, travel, self.width)

    def _columns(self, q, qd, load, z):
        size = jnp.abs(load)
        return jnp.stack([size**power * z for power in self.powers], axis=-1)

    def _labels(self):
        return tuple("fzl" if power == 1 else f"fzl{power}_" for power in self.powers)

    def _units(self, force, length):
        return tuple("1" if power == 1 else f"({force})^{1 - power}" for power in self.powers)

    def _reach(self):
        return 2 * float(np.asarray(self.width).max())


class Dahl(FrictionTerm):
    """Dahl friction, a spring that softens gradually: fd z with dz/dq = (1 - z sign(qd)) / width (Dahl 1968).

    Each step is solved exactly by z <- s + (z - s) exp(-|dq| / width) with s = sign(dq). The parameter fd [N m or N] is
    the Coulomb friction, which is approached but never fully reached.

    Attributes:
        width: travel over which z covers 63 % of the distance to its final value [rad or m].
        joints: numbers of the joints that have the term, counted from 1; by default all joints.
    """

    width: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=1e-4)
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)
    _remembers = True

    def _advance(self, z, travel, qd):
        s = jnp.sign(travel)
        return s + (z - s) * jnp.exp(-jnp.abs(travel) / like(self.width, z))

    def _columns(self, q, qd, load, z):
        return z[..., None]

    def _labels(self):
        return ("fd",)

    def _units(self, force, length):
        return (force,)

    def _reach(self):
        return FORGOTTEN * float(np.asarray(self.width).max())


class LuGre(FrictionTerm):
    """LuGre friction, the spring of the Dahl model with a Stribeck curve: fg z + fgd (width / velocity) dz/dt.

        dz/dt = (qd - |qd| z / g(qd)) / width,   g(qd) = 1 + excess exp(-(qd / velocity)^2)

    At steady slip, z tends to g(qd) sign(qd). Therefore fg is the Coulomb friction [N m or N], and static friction
    exceeds it by fg excess. The second term damps the spring, with the parameter fgd [N m or N]. In the notation of the
    source, the stiffness is sigma_0 = fg / width, the damping coefficient is sigma_1 = fgd / velocity, and the bristle
    deflection is width times z. Each step is solved exactly for constant g.

    Source: Canudas de Wit, Olsson, Astrom & Lischinsky (1995).

    Attributes:
        width: travel over which z covers 63 % of the distance to its final value at high speed [rad or m].
        excess: ratio of static to Coulomb friction, minus 1.
        velocity: Stribeck velocity [rad/s or m/s].
        joints: numbers of the joints that have the term, counted from 1; by default all joints.
    """

    width: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=1e-4)
    excess: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=0.1)
    velocity: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=0.1)
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)
    _remembers = True

    def _curve(self, qd):
        return 1 + like(self.excess, qd) * jnp.exp(-((qd / like(self.velocity, qd)) ** 2))

    def _advance(self, z, travel, qd):
        g = self._curve(qd)
        s = jnp.sign(travel) * g
        return s + (z - s) * jnp.exp(-jnp.abs(travel) / (like(self.width, z) * g))

    def _columns(self, q, qd, load, z):
        rate = (qd - jnp.abs(qd) * z / self._curve(qd)) / like(self.velocity, qd)
        return jnp.stack([z, rate], axis=-1)

    def _labels(self):
        return ("fg", "fgd")

    def _units(self, force, length):
        return (force, force)

    def _reach(self):
        return FORGOTTEN * float((np.asarray(self.width) * (1 + np.asarray(self.excess))).max())

"""Friction with memory: what a joint at rest holds depends on how it came there.

Before a dry contact slips it gives way like a spring, over 1e-5 to 1e-2 rad. The state of that spring is driven by the
joint's travel alone (Maxwell slip, Dahl), or by its travel and speed (LuGre). Each column is such a state divided by its
value at steady slip, so that its coefficient is a torque: its share of the Coulomb friction. A step between two samples is
solved exactly, so that no rate of sampling is too low for stability.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .terms import FrictionTerm

FORGOTTEN = 5.0  # widths of travel that leave exp(-5) of an unknown state


def _scan(step, *inputs: Float[Array, "N n"]) -> Float[Array, "N n"]:
    """States z along a run, from z = 0: z_i = step(z_i-1, inputs_i)."""

    def body(z, now):
        z = step(z, *now)
        return z, z

    return jax.lax.scan(body, jnp.zeros_like(inputs[0][0]), inputs)[1]


def _travel(q: Float[Array, "N n"]) -> Float[Array, "N n"]:
    return jnp.diff(q, axis=0, prepend=q[:1])


def _row(parameter: Array, q: Float[Array, "N n"]) -> Float[Array, " n"]:
    return jnp.broadcast_to(parameter, q.shape[1:]).astype(q.dtype)


def _slip(q: Float[Array, "N n"], width: Array) -> Float[Array, "N n"]:
    w = _row(width, q)
    return _scan(lambda z, d: jnp.clip(z + d / w, -1.0, 1.0), _travel(q))


class MaxwellSlip(FrictionTerm):
    """fz z with z <- clip(z + dq / width, -1, 1): a spring that slips at a force of its own.

    Several of these terms, of different widths, in parallel make the Maxwell-slip (Iwan) model: rate-independent hysteresis
    with non-local memory (Al-Bender, Lampaert & Swevers 2005, who also make the slip depend on speed; `Stribeck` and
    `Coulomb` beside it do that here). It is linear in the slip torques fz, given the widths; fz / width is the stiffness.

    Attributes:
        width: travel from rest to slip [rad or m].
    """

    width: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=1e-4)
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def _columns(self, q, qd, load):
        return _slip(q, self.width)[:, :, None]

    def _labels(self):
        return ("fz",)

    def _units(self, force, length):
        return (force,)

    def _reach(self):
        return 2 * float(np.asarray(self.width).max())


class LoadedSlip(FrictionTerm):
    """sum_k fzl_k |load|^k z with the z of `MaxwellSlip`: friction that grows with the load, at rest as in motion.

    Attributes:
        width: travel from rest to slip [rad or m].
        powers: the powers k.
    """

    width: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=1e-4)
    powers: tuple[int, ...] = eqx.field(static=True, default=(1,))
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)
    _loaded = True

    def _columns(self, q, qd, load):
        z, size = _slip(q, self.width), jnp.abs(load)
        return jnp.stack([size**power * z for power in self.powers], axis=2)

    def _labels(self):
        return tuple("fzl" if power == 1 else f"fzl{power}_" for power in self.powers)

    def _units(self, force, length):
        return tuple("1" if power == 1 else f"({force})^{1 - power}" for power in self.powers)

    def _reach(self):
        return 2 * float(np.asarray(self.width).max())


class Dahl(FrictionTerm):
    """fd z with dz/dq = (1 - z sign(qd)) / width: a spring that softens and never quite slips (Dahl 1968).

    Over a step z <- s + (z - s) exp(-|dq| / width), s = sign(dq), which solves it exactly.

    Attributes:
        width: travel over which z goes to 0.63 of its way [rad or m].
    """

    width: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=1e-4)
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def _columns(self, q, qd, load):
        w = _row(self.width, q)

        def step(z, d):
            s = jnp.sign(d)
            return s + (z - s) * jnp.exp(-jnp.abs(d) / w)

        return _scan(step, _travel(q))[:, :, None]

    def _labels(self):
        return ("fd",)

    def _units(self, force, length):
        return (force,)

    def _reach(self):
        return FORGOTTEN * float(np.asarray(self.width).max())


class LuGre(FrictionTerm):
    """fg z with dz/dq = (1 - |z| / g(qd)) / width where it is driven outwards: Dahl's spring under a Stribeck curve.

        dz/dt = (qd - |qd| z / g(qd)) / width,   g(qd) = 1 + excess exp(-(qd / velocity)^2)

    z goes to g(qd) sign(qd) at steady slip: fg is the Coulomb friction, fg excess the static friction beyond it. The second
    column, fgd width dz/dt / velocity, damps the spring (sigma_1 of the literature is fgd width / velocity in these units).
    A step with g held constant is solved exactly. Source: Canudas de Wit, Olsson, Astrom & Lischinsky (1995).

    Attributes:
        width: travel over which z goes to 0.63 of its way at high speed [rad or m].
        excess: static over Coulomb friction, less one.
        velocity: Stribeck velocity [rad/s or m/s].
    """

    width: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=1e-4)
    excess: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=0.1)
    velocity: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=0.1)
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def _columns(self, q, qd, load):
        w = _row(self.width, q)
        excess, velocity = (jnp.broadcast_to(_row(x, q), q.shape) for x in (self.excess, self.velocity))
        g = 1 + excess * jnp.exp(-((qd / velocity) ** 2))

        def step(z, d, g):
            s = jnp.sign(d) * g
            return s + (z - s) * jnp.exp(-jnp.abs(d) / (w * g))

        z = _scan(step, _travel(q), g)
        rate = (qd - jnp.abs(qd) * z / g) / velocity
        return jnp.stack([z, rate], axis=2)

    def _labels(self):
        return ("fg", "fgd")

    def _units(self, force, length):
        return (force, force)

    def _reach(self):
        return FORGOTTEN * float((np.asarray(self.width) * (1 + np.asarray(self.excess))).max())

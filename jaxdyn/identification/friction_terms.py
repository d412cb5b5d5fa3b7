"""Friction terms for identification, each linear in its parameters.

Each term has one or more columns per joint. The linear parameters, which multiply these columns, are estimated
together with the inertial parameters. Nonlinear parameters (widths, velocity scales, exponents) are leaves of the term,
and are estimated by `fit_friction`.

To add a term, define a class with its columns, labels and units and, for a term with memory, the update of its state.
The fit, `TorqueModel` and model files then support the term automatically."""

import abc
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from ..errors import IdentificationError

FRICTION = ("viscous", "coulomb", "offset")  # names of the drive terms that describe friction


class FrictionTerm(eqx.Module):
    """Base class of friction terms: columns of a joint's torque whose coefficients are linear parameters.

    Array fields are the nonlinear parameters. They must be positive. Each contains one number for all joints, or one
    number per joint. A subclass defines `at`, `labels` and `unit_forms`; one with memory also `remembers`, `advance` and
    `reach`; one that depends on the joint's load, `needs_load`.

    Attributes:
        joints: numbers of the joints that have the term, counted from 1; by default all joints.
        labels: stems of the linear parameters' names, to which the number of the joint is appended.
        unit_forms: units of the linear parameters, with {force} and {length} for those of the joint.
        needs_load: True if the columns depend on the joint's load.
        remembers: True if the columns depend on a memory, which contains the effect of past motion or a temperature.
    """

    joints: eqx.AbstractVar[tuple[int, ...] | None]
    labels: ClassVar[tuple[str, ...]] = ()
    unit_forms: ClassVar[tuple[str, ...]] = ()
    needs_load: ClassVar[bool] = False
    remembers: ClassVar[bool] = False

    @abc.abstractmethod
    def at(
        self,
        q: Float[Array, "*N n"],
        qd: Float[Array, "*N n"],
        load: Float[Array, "*N n"],
        memory: Float[Array, "*N n"],
    ) -> Float[Array, "*N n k"]:
        """Columns of all joints, computed elementwise from positions, velocities, loads and the memory (0 without one).

        Args:
            q: positions [rad or m].
            qd: velocities [rad/s or m/s].
            load: rigid-body torque of each joint [N m or N].
            memory: memory at these samples (`advance`).
        """
        raise NotImplementedError

    def advance(
        self, memory: Float[Array, " n"], travel: Float[Array, " n"], qd: Float[Array, " n"]
    ) -> Float[Array, " n"]:
        """Memory of all joints one sample later, after the displacement `travel` [rad or m] with velocities qd; relaxed: 0."""
        return memory

    @property
    def reach(self) -> float:
        """Travel after which the memory no longer depends on its initial value [rad or m]; 0 for terms without memory."""
        return 0.0

    def columns(
        self,
        q: Float[Array, "N n"],
        qd: Float[Array, "N n"],
        load: Float[Array, "N n"],
        temperature: Float[Array, "N n"] | None = None,
    ) -> Float[Array, "N n k"]:
        """Columns of all joints along an evenly sampled run, with relaxed initial memory; arguments as in `at`.

        Args:
            temperature: temperature of each joint [°C], for terms that depend on it; by default the term's reference
                temperature.
        """
        return self.at(q, qd, load, self.memory(q, qd, temperature) if self.remembers else jnp.zeros_like(q))

    def memory(
        self, q: Float[Array, "N n"], qd: Float[Array, "N n"], temperature: Float[Array, "N n"] | None
    ) -> Float[Array, "N n"]:
        """Memory along a run, relaxed before its first sample."""

        def follow(z, now):
            z = self.advance(z, *now)
            return z, z

        return jax.lax.scan(follow, jnp.zeros_like(q[0]), (jnp.diff(q, axis=0, prepend=q[:1]), qd))[1]

    def units(self, turns: bool) -> tuple[str, ...]:
        """Units of the linear parameters for a revolute joint, or for a prismatic joint if `turns` is False."""
        force, length = ("N m", "rad") if turns else ("N", "m")
        return tuple(form.format(force=force, length=length) for form in self.unit_forms)


def _of_load(powers: Sequence[int]) -> tuple[str, ...]:
    """Units of coefficients of |load|^k."""
    return tuple("1" if power == 1 else f"({{force}})^{1 - power}" for power in powers)


def like(parameter: Array, x: Array) -> Array:
    """A parameter, () or (n,), broadcast to the shape of samples x (..., n)."""
    return jnp.broadcast_to(parameter, x.shape).astype(x.dtype)


class Viscous(FrictionTerm):
    """Viscous friction, fv qd, with fv [N m s/rad or N s/m]."""

    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def at(self, q, qd, load, memory):
        return qd[..., None]

    labels = ("fv",)
    unit_forms = ("{force} s/{length}",)


class Coulomb(FrictionTerm):
    """Coulomb friction with a smooth sign function, fc tanh(qd / width), with fc [N m or N].

    Attributes:
        width: width of the smooth sign function, the speed at which tanh reaches 0.76 [rad/s or m/s].
    """

    width: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=0.01)
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def at(self, q, qd, load, memory):
        return jnp.tanh(qd / like(self.width, qd))[..., None]

    labels = ("fc",)
    unit_forms = ("{force}",)


class Offset(FrictionTerm):
    """Constant torque off [N m or N], such as a current-sensor offset or a difference in friction between directions."""

    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def at(self, q, qd, load, memory):
        return jnp.ones_like(qd)[..., None]

    labels = ("off",)
    unit_forms = ("{force}",)


def chain_terms(width: ArrayLike, drives: Sequence[str] = FRICTION) -> tuple[FrictionTerm, ...]:
    """Friction terms for the given drive terms, by default viscous, Coulomb and constant friction.

    Args:
        width: width of the smooth sign function [rad/s or m/s].
        drives: names of drive terms; those that do not describe friction are ignored.
    """
    terms = {"viscous": Viscous(), "coulomb": Coulomb(width=width), "offset": Offset()}
    return tuple(term for name, term in terms.items() if name in drives)


def is_of_chain(terms: Sequence[FrictionTerm]) -> bool:
    """True if every term is viscous, Coulomb or constant friction."""
    return all(type(term) in (Viscous, Coulomb, Offset) for term in terms)


class PowerViscous(FrictionTerm):
    """Nonlinear viscous friction, fp sign(qd) |qd|^exponent, with fp [N m (s/rad)^exponent or N (s/m)^exponent].

    Attributes:
        exponent: exponent of the speed. Below 1, friction grows more slowly than the speed, as with gear grease; above
            1, it grows faster. With exponent 1, the term equals `Viscous`.
    """

    exponent: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=1.5)
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def at(self, q, qd, load, memory):
        moves = qd != 0
        size = jnp.where(moves, jnp.abs(qd), jnp.ones_like(qd))
        power = jnp.exp(like(self.exponent, qd) * jnp.log(size))
        return jnp.where(moves, jnp.sign(qd) * power, jnp.zeros_like(qd))[..., None]

    labels = ("fp",)
    unit_forms = ("{force} (s/{length})^exponent",)


class Asymmetry(FrictionTerm):
    """Difference in friction between the two directions of motion, fva |qd| + fca tanh(qd / width)^2.

    Together with `Viscous` and `Coulomb`, the coefficient of viscous friction is fv + fva in the positive direction and
    fv - fva in the negative direction [N m s/rad or N s/m]. Coulomb friction is fc + fca and fc - fca, respectively [N m
    or N].

    Attributes:
        width: width of the smooth sign function, the speed at which tanh reaches 0.76 [rad/s or m/s].
    """

    width: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=0.01)
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def at(self, q, qd, load, memory):
        return jnp.stack([jnp.abs(qd), jnp.tanh(qd / like(self.width, qd)) ** 2], axis=-1)

    labels = ("fva", "fca")
    unit_forms = ("{force} s/{length}", "{force}")


class Stribeck(FrictionTerm):
    """Stribeck friction, fs exp(-(qd / velocity)^2) tanh(qd / width): additional friction at low speed.

    The parameter fs [N m or N] is added to Coulomb friction at low speed, and may be negative.

    Source: Armstrong-Helouvry, Dupont & Canudas de Wit (1994).

    Attributes:
        velocity: Stribeck velocity, which determines how fast the term decays with increasing speed [rad/s or m/s].
        width: width of the smooth sign function [rad/s or m/s].
    """

    velocity: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=0.2)
    width: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=0.01)
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def at(self, q, qd, load, memory):
        fading = jnp.exp(-((qd / like(self.velocity, qd)) ** 2))
        return (fading * jnp.tanh(qd / like(self.width, qd)))[..., None]

    labels = ("fs",)
    unit_forms = ("{force}",)


class LoadDependent(FrictionTerm):
    """Load-dependent friction, for example in gears: sum_k fl_k |load|^k tanh(qd / width).

    The load is the rigid-body torque of the joint due to gravity and inertia [N m or N]; it does not include friction.
    The unit of fl_k is (N m)^(1 - k) or N^(1 - k).

    Attributes:
        width: width of the smooth sign function [rad/s or m/s].
        powers: the powers k.
    """

    width: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=0.01)
    powers: tuple[int, ...] = eqx.field(static=True, default=(1,))
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)
    needs_load = True

    def at(self, q, qd, load, memory):
        sign, size = jnp.tanh(qd / like(self.width, qd)), jnp.abs(load)
        return jnp.stack([size**power * sign for power in self.powers], axis=-1)

    @property
    def labels(self):
        """As in `FrictionTerm`, for each power."""
        return tuple("fl" if power == 1 else f"fl{power}_" for power in self.powers)

    @property
    def unit_forms(self):
        """As in `FrictionTerm`, for each power."""
        return _of_load(self.powers)


class GearRipple(FrictionTerm):
    """Torque ripple that is periodic in the rotation of a motor or gear: sum_k rc_k cos(h_k x) + rs_k sin(h_k x).

    The amplitudes are rc_k and rs_k [N m or N], and x = q - delay qd. A strain-wave gear with gear ratio N causes
    ripple with h = 2 N, which is two periods per revolution of its wave generator. At harmonics this high, a delay of a
    few milliseconds between the logged position and torque shifts the phase by several radians, so the delay must be
    part of the model.

    Attributes:
        harmonics: numbers of periods per revolution of the joint, h_k; by default 202, for a strain-wave gear with a
            ratio of 101.
        delay: delay of the logged torque relative to the position [s].
    """

    harmonics: tuple[float, ...] = eqx.field(static=True, default=(202.0,))
    delay: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=0.004)
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def at(self, q, qd, load, memory):
        x = q - like(self.delay, qd) * qd
        return jnp.stack([wave(h * x) for h in self.harmonics for wave in (jnp.cos, jnp.sin)], axis=-1)

    @property
    def labels(self):
        """As in `FrictionTerm`, for each harmonic."""
        return tuple(f"{name}{h:g}_" for h in self.harmonics for name in ("rc", "rs"))

    @property
    def unit_forms(self):
        """As in `FrictionTerm`, for each harmonic."""
        return ("{force}", "{force}") * len(self.harmonics)


# -- memory
#
# Before a dry contact slips, it yields like a spring over 1e-5 to 1e-2 rad, whose state depends on the past motion. The
# state is scaled to 1 at steady slip (for LuGre, at steady slip at high speed), so the coefficient of its column is the
# friction torque at steady slip. The state equation is solved exactly between samples: stable at any sample rate.

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
    """

    width: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=1e-4)
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)
    remembers = True

    def advance(self, memory, travel, qd):
        return _slip(memory, travel, self.width)

    def at(self, q, qd, load, memory):
        return memory[..., None]

    labels = ("fz",)
    unit_forms = ("{force}",)

    @property
    def reach(self):
        return 2 * float(np.asarray(self.width).max())


class LoadedSlip(FrictionTerm):
    """Presliding and sliding friction that depends on the load: sum_k fzl_k |load|^k z, with z as in `MaxwellSlip`.

    The load is the rigid-body torque of the joint due to gravity and inertia [N m or N]; it does not include friction.
    The unit of fzl_k is (N m)^(1 - k) or N^(1 - k).

    Attributes:
        width: travel from the relaxed state to slip [rad or m].
        powers: the powers k.
    """

    width: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=1e-4)
    powers: tuple[int, ...] = eqx.field(static=True, default=(1,))
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)
    needs_load = True
    remembers = True

    def advance(self, memory, travel, qd):
        return _slip(memory, travel, self.width)

    def at(self, q, qd, load, memory):
        size = jnp.abs(load)
        return jnp.stack([size**power * memory for power in self.powers], axis=-1)

    @property
    def labels(self):
        """As in `FrictionTerm`, for each power."""
        return tuple("fzl" if power == 1 else f"fzl{power}_" for power in self.powers)

    @property
    def unit_forms(self):
        """As in `FrictionTerm`, for each power."""
        return _of_load(self.powers)

    @property
    def reach(self):
        return 2 * float(np.asarray(self.width).max())


class Dahl(FrictionTerm):
    """Dahl friction, a spring that softens gradually: fd z with dz/dq = (1 - z sign(qd)) / width (Dahl 1968).

    Each step is solved exactly by z <- s + (z - s) exp(-|dq| / width) with s = sign(dq). The parameter fd [N m or N] is
    the Coulomb friction, which is approached but never fully reached.

    Attributes:
        width: travel over which z covers 63 % of the distance to its final value [rad or m].
    """

    width: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=1e-4)
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)
    remembers = True

    def advance(self, memory, travel, qd):
        s = jnp.sign(travel)
        return s + (memory - s) * jnp.exp(-jnp.abs(travel) / like(self.width, memory))

    def at(self, q, qd, load, memory):
        return memory[..., None]

    labels = ("fd",)
    unit_forms = ("{force}",)

    @property
    def reach(self):
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
    """

    width: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=1e-4)
    excess: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=0.1)
    velocity: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=0.1)
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)
    remembers = True

    def _curve(self, qd):
        return 1 + like(self.excess, qd) * jnp.exp(-((qd / like(self.velocity, qd)) ** 2))

    def advance(self, memory, travel, qd):
        g = self._curve(qd)
        s = jnp.sign(travel) * g
        return s + (memory - s) * jnp.exp(-jnp.abs(travel) / (like(self.width, memory) * g))

    def at(self, q, qd, load, memory):
        rate = (qd - jnp.abs(qd) * memory / self._curve(qd)) / like(self.velocity, qd)
        return jnp.stack([memory, rate], axis=-1)

    labels = ("fg", "fgd")
    unit_forms = ("{force}", "{force}")

    @property
    def reach(self):
        return FORGOTTEN * float((np.asarray(self.width) * (1 + np.asarray(self.excess))).max())


# -- position
#
# Gravity torques are sums of sines and cosines of the joint positions; only torques of another form can be told from them.


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

    def at(self, q, qd, load, memory):
        held = lambda name: like(getattr(self, name), q)
        pivot, crank, angle, reserve, exponent = (
            held(name) if name in self.fitted else jax.lax.stop_gradient(held(name))
            for name in ("pivot", "crank", "angle", "reserve", "exponent")
        )
        length = jnp.sqrt(pivot**2 + crank**2 - 2 * pivot * crank * jnp.cos(q + angle))
        whole = 2 * crank + reserve
        pressure = (whole / (whole - (length - (pivot - crank)))) ** exponent
        return (pivot * crank * jnp.sin(q + angle) / length * pressure)[..., None]

    labels = ("cb",)
    unit_forms = ("N",)

    def units(self, turns):
        return ("N",) if turns else ("1",)


class Cable(FrictionTerm):
    """Torque of cables, hoses and springs as a polynomial in the joint's position, sum_k ca_k q^k.

    ca_k has the unit N m/rad^k or N/m^k.

    Attributes:
        powers: the powers k; (1,) describes a linear spring.
    """

    powers: tuple[int, ...] = eqx.field(static=True, default=(1, 2, 3))
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def at(self, q, qd, load, memory):
        return jnp.stack([q**power for power in self.powers], axis=-1)

    @property
    def labels(self):
        """As in `FrictionTerm`, for each power."""
        return tuple(f"ca{power}_" for power in self.powers)

    @property
    def unit_forms(self):
        """As in `FrictionTerm`, for each power."""
        return tuple("{force}/{length}" + (f"^{power}" if power > 1 else "") for power in self.powers)


# -- temperature
#
# The memory of `TemperatureDependent` is a temperature, not the effect of past motion. Along a run, it follows the log; in
# step-by-step evaluation and in simulation, it keeps the value set by `TorqueModel.at_temperature`.


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

    Raises:
        IdentificationError: the reference is not a finite number.
    """

    reference: float = eqx.field(static=True, converter=_degrees, default=25.0)
    width: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=0.01)
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)
    remembers = True

    def warmth(self, temperature: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
        """Memory at the given joint temperatures [°C]: their difference from the reference temperature [K]."""
        return temperature - self.reference

    def memory(self, q, qd, temperature):
        return jnp.zeros_like(q) if temperature is None else self.warmth(temperature)

    def at(self, q, qd, load, memory):
        return jnp.stack([memory * qd, memory * jnp.tanh(qd / like(self.width, qd))], axis=-1)

    labels = ("fvt", "fct")
    unit_forms = ("{force} s/({length} K)", "{force}/K")


def term_kinds() -> dict[str, type[FrictionTerm]]:
    """All classes of terms, by name, including a user's own; of classes with equal names, the one that was defined last."""
    found: dict[str, type[FrictionTerm]] = {}
    left = [FrictionTerm]
    while left:
        left += (kinds := left.pop(0).__subclasses__())
        found |= {kind.__name__: kind for kind in kinds}
    return found

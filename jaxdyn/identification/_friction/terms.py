"""Friction terms for identification, each linear in its parameters.

A term has a few columns per joint. Its linear parameters (viscous, Coulomb, ...) are estimated together with the
inertial parameters. The few nonlinear parameters (widths, velocity scales, exponents) are leaves of the term and are
estimated by `fit_friction`. Terms with memory, whose columns depend on the past motion, are in `memory.py`.

A new term is a class that defines its columns, names, units and, if it has memory, the step of its state. The fit,
`TorqueModel` and model files support it automatically.
"""

import abc
from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

FRICTION = ("viscous", "coulomb", "offset")  # drive terms that are friction


class FrictionTerm(eqx.Module):
    """Base class of friction terms: columns of a joint's torque whose coefficients are linear parameters.

    Array fields are the nonlinear parameters, all positive, with one number for all joints or one per joint.

    Attributes:
        joints: joints with the term, counted from 1; by default all.
    """

    joints: eqx.AbstractVar[tuple[int, ...] | None]

    def columns(
        self,
        q: Float[Array, "N n"],
        qd: Float[Array, "N n"],
        load: Float[Array, "N n"],
        temperature: Float[Array, "N n"] | None = None,
    ) -> Float[Array, "N n k"]:
        """Columns of all joints along an evenly sampled run that starts with relaxed memory.

        Args:
            q: positions [rad or m].
            qd: velocities [rad/s or m/s].
            load: rigid-body torque of each joint [N m or N].
            temperature: temperature of each joint, for terms that need it [°C]; by default the term's reference.
        """
        held = self._states(q, qd, temperature) if self._remembers else jnp.zeros_like(q)
        return self._columns(q, qd, load, held)

    def step(self, z: Float[Array, " n"], travel: Float[Array, " n"], qd: Float[Array, " n"]) -> Float[Array, " n"]:
        """Memory of all joints one sample later; terms without memory leave it unchanged.

        Args:
            z: memory at the last sample; zero if the joint is relaxed.
            travel: displacement since the last sample [rad or m].
            qd: velocities [rad/s or m/s].
        """
        return self._advance(z, travel, qd) if self._remembers else z

    def columns_at(
        self, z: Float[Array, " n"], q: Float[Array, " n"], qd: Float[Array, " n"], load: Float[Array, " n"]
    ) -> Float[Array, "n k"]:
        """Columns of all joints for one sample, given its memory (`step`): one row of the result of `columns`."""
        return self._columns(q, qd, load, z)

    @property
    def labels(self) -> tuple[str, ...]:
        """Stems of the parameter names of the columns, to which the joint's number is appended."""
        return self._labels()

    def units(self, turns: bool) -> tuple[str, ...]:
        """Units of the parameters of the columns, for a revolute (`turns`) or a prismatic joint."""
        return self._units("N m", "rad") if turns else self._units("N", "m")

    @property
    def reach(self) -> float:
        """Travel after which the initial state is forgotten [rad or m]; 0 without memory."""
        return self._reach()

    @property
    def needs_load(self) -> bool:
        """True if the columns depend on the joint's load."""
        return self._loaded

    @property
    def remembers(self) -> bool:
        """True if the columns depend on memory, which is the past motion or a temperature."""
        return self._remembers

    _loaded: ClassVar[bool] = False
    _remembers: ClassVar[bool] = False

    def _states(self, q: Array, qd: Array, temperature: Array | None) -> Array:
        """Memory along a run (N, n)."""

        def body(z, now):
            z = self._advance(z, *now)
            return z, z

        travel = jnp.diff(q, axis=0, prepend=q[:1])
        return jax.lax.scan(body, jnp.zeros_like(q[0]), (travel, qd))[1]

    @abc.abstractmethod
    def _columns(self, q: Array, qd: Array, load: Array, z: Array) -> Array:
        """Columns (..., n, k) for samples (..., n), computed elementwise."""
        raise NotImplementedError

    def _advance(self, z: Array, travel: Array, qd: Array) -> Array:
        """Memory after a step (n,); only terms with memory define it."""
        raise NotImplementedError

    @abc.abstractmethod
    def _labels(self) -> tuple[str, ...]:
        raise NotImplementedError

    @abc.abstractmethod
    def _units(self, force: str, length: str) -> tuple[str, ...]:
        raise NotImplementedError

    def _reach(self) -> float:
        return 0.0


def like(parameter: Array, x: Array) -> Array:
    """A parameter, () or (n,), broadcast against samples (..., n)."""
    return jnp.broadcast_to(parameter, x.shape).astype(x.dtype)


class Viscous(FrictionTerm):
    """Viscous friction, fv qd, with fv [N m s/rad or N s/m]."""

    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def _columns(self, q, qd, load, z):
        return qd[..., None]

    def _labels(self):
        return ("fv",)

    def _units(self, force, length):
        return (f"{force} s/{length}",)


class Coulomb(FrictionTerm):
    """Coulomb friction with a smooth sign, fc tanh(qd / width), with fc [N m or N].

    Attributes:
        width: width of the smooth sign, the speed at which tanh reaches 0.76 [rad/s or m/s].
        joints: joints with the term, counted from 1; by default all.
    """

    width: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=0.01)
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def _columns(self, q, qd, load, z):
        return jnp.tanh(qd / like(self.width, qd))[..., None]

    def _labels(self):
        return ("fc",)

    def _units(self, force, length):
        return (force,)


class Offset(FrictionTerm):
    """Constant torque off [N m or N]: an offset of the current sensor, or friction that differs between directions."""

    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def _columns(self, q, qd, load, z):
        return jnp.ones_like(qd)[..., None]

    def _labels(self):
        return ("off",)

    def _units(self, force, length):
        return (force,)


def chain_terms(width: ArrayLike, drives: Sequence[str] = FRICTION) -> tuple[FrictionTerm, ...]:
    """Viscous, Coulomb and constant friction as terms, or those of them among the drive terms.

    Args:
        width: width of the smooth sign [rad/s or m/s].
        drives: names of drive terms.
    """
    terms = {"viscous": Viscous(), "coulomb": Coulomb(width=width), "offset": Offset()}
    return tuple(term for name, term in terms.items() if name in drives)


def is_of_chain(terms: Sequence[FrictionTerm]) -> bool:
    """True if every term is viscous, Coulomb or constant friction."""
    return all(type(term) in (Viscous, Coulomb, Offset) for term in terms)


class PowerViscous(FrictionTerm):
    """Nonlinear viscous friction, fp sign(qd) |qd|^exponent, with fp [N m (s/rad)^exponent or N (s/m)^exponent].

    Attributes:
        exponent: exponent; below 1, friction grows more slowly than the speed (gear grease), above 1 faster; at 1, the
            term equals `Viscous`.
        joints: joints with the term, counted from 1; by default all.
    """

    exponent: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=1.5)
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def _columns(self, q, qd, load, z):
        moves = qd != 0
        size = jnp.where(moves, jnp.abs(qd), jnp.ones_like(qd))
        power = jnp.exp(like(self.exponent, qd) * jnp.log(size))
        return jnp.where(moves, jnp.sign(qd) * power, jnp.zeros_like(qd))[..., None]

    def _labels(self):
        return ("fp",)

    def _units(self, force, length):
        return (f"{force} (s/{length})^exponent",)


class Asymmetry(FrictionTerm):
    """Difference in friction between the two directions of motion, fva |qd| + fca tanh(qd / width)^2.

    Together with `Viscous` and `Coulomb`, viscous friction is fv + fva forwards and fv - fva backwards [N m s/rad or N
    s/m], and Coulomb friction is fc + fca forwards and fc - fca backwards [N m or N].

    Attributes:
        width: width of the smooth sign, the speed at which tanh reaches 0.76 [rad/s or m/s].
        joints: joints with the term, counted from 1; by default all.
    """

    width: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=0.01)
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def _columns(self, q, qd, load, z):
        return jnp.stack([jnp.abs(qd), jnp.tanh(qd / like(self.width, qd)) ** 2], axis=-1)

    def _labels(self):
        return ("fva", "fca")

    def _units(self, force, length):
        return (f"{force} s/{length}", force)


class Stribeck(FrictionTerm):
    """Stribeck friction, fs exp(-(qd / velocity)^2) tanh(qd / width): additional friction at low speed.

    fs [N m or N] adds to Coulomb friction; it may be negative. Source: Armstrong-Helouvry, Dupont & Canudas de Wit
    (1994).

    Attributes:
        velocity: Stribeck velocity, over which the term decays [rad/s or m/s].
        width: width of the smooth sign [rad/s or m/s].
        joints: joints with the term, counted from 1; by default all.
    """

    velocity: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=0.2)
    width: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=0.01)
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def _columns(self, q, qd, load, z):
        fading = jnp.exp(-((qd / like(self.velocity, qd)) ** 2))
        return (fading * jnp.tanh(qd / like(self.width, qd)))[..., None]

    def _labels(self):
        return ("fs",)

    def _units(self, force, length):
        return (force,)


class LoadDependent(FrictionTerm):
    """Friction that increases with the load, as in gears: sum_k fl_k |load|^k tanh(qd / width).

    The load is the rigid-body torque of the joint (gravity and inertia) [N m or N], without friction; the unit of fl_k
    is (N m)^(1 - k) or N^(1 - k).

    Attributes:
        width: width of the smooth sign [rad/s or m/s].
        powers: the powers k.
        joints: joints with the term, counted from 1; by default all.
    """

    width: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=0.01)
    powers: tuple[int, ...] = eqx.field(static=True, default=(1,))
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)
    _loaded = True

    def _columns(self, q, qd, load, z):
        sign, size = jnp.tanh(qd / like(self.width, qd)), jnp.abs(load)
        return jnp.stack([size**power * sign for power in self.powers], axis=-1)

    def _labels(self):
        return tuple("fl" if power == 1 else f"fl{power}_" for power in self.powers)

    def _units(self, force, length):
        return tuple("1" if power == 1 else f"({force})^{1 - power}" for power in self.powers)


class GearRipple(FrictionTerm):
    """Torque ripple, periodic in the rotation of the motor or a gear: sum_k rc_k cos(h_k x) + rs_k sin(h_k x).

    Here x = q - delay qd, and rc_k, rs_k are amplitudes [N m or N]. A strain-wave gear with gear ratio N causes ripple
    with h = 2 N, two periods per revolution of its wave generator. At such harmonics, a delay of a few milliseconds
    between the logged position and torque shifts the phase by radians, so it must be part of the model.

    Attributes:
        harmonics: h_k, the number of periods per revolution of the joint; by default 202, for a gear ratio of 101.
        delay: delay of the logged torque relative to the position [s].
        joints: joints with the term, counted from 1; by default all.
    """

    harmonics: tuple[float, ...] = eqx.field(static=True, default=(202.0,))
    delay: Float[Array, "..."] = eqx.field(converter=jnp.asarray, default=0.004)
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def _columns(self, q, qd, load, z):
        x = q - like(self.delay, qd) * qd
        return jnp.stack([wave(h * x) for h in self.harmonics for wave in (jnp.cos, jnp.sin)], axis=-1)

    def _labels(self):
        return tuple(f"{name}{h:g}_" for h in self.harmonics for name in ("rc", "rs"))

    def _units(self, force, length):
        return (force, force) * len(self.harmonics)

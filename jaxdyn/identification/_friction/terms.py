"""Friction terms for identification, each linear in its parameters.

Each term has one or more columns per joint. The linear parameters, which multiply these columns, are estimated
together with the inertial parameters. Nonlinear parameters (widths, velocity scales, exponents) are leaves of the term,
and are estimated by `fit_friction`. Terms with memory, whose columns depend on the past motion, are in `memory.py`.

To add a term, define a class with its columns, labels and units and, for a term with memory, the update of its state.
The fit, `TorqueModel` and model files then support the term automatically.
"""

import abc
from collections.abc import Sequence
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, ArrayLike, Float

FRICTION = ("viscous", "coulomb", "offset")  # names of the drive terms that describe friction


class FrictionTerm(eqx.Module):
    """Base class of friction terms: columns of a joint's torque whose coefficients are linear parameters.

    Array fields are the nonlinear parameters. They must be positive. Each contains one number for all joints, or one
    number per joint.

    Attributes:
        joints: numbers of the joints that have the term, counted from 1; by default all joints.
    """

    joints: eqx.AbstractVar[tuple[int, ...] | None]

    def columns(
        self,
        q: Float[Array, "N n"],
        qd: Float[Array, "N n"],
        load: Float[Array, "N n"],
        temperature: Float[Array, "N n"] | None = None,
    ) -> Float[Array, "N n k"]:
        """Columns of all joints along an evenly sampled run, with relaxed initial memory.

        Args:
            q: positions [rad or m].
            qd: velocities [rad/s or m/s].
            load: rigid-body torque of each joint [N m or N].
            temperature: temperature of each joint [°C], for terms that depend on it; by default the term's reference
                temperature.
        """
        held = self._states(q, qd, temperature) if self._remembers else jnp.zeros_like(q)
        return self._columns(q, qd, load, held)

    def step(self, z: Float[Array, " n"], travel: Float[Array, " n"], qd: Float[Array, " n"]) -> Float[Array, " n"]:
        """Memory of all joints one sample later; unchanged if the term has no memory.

        Args:
            z: memory at the last sample; zero if the joint is relaxed.
            travel: displacement since the last sample [rad or m].
            qd: velocities [rad/s or m/s].
        """
        return self._advance(z, travel, qd) if self._remembers else z

    def columns_at(
        self, z: Float[Array, " n"], q: Float[Array, " n"], qd: Float[Array, " n"], load: Float[Array, " n"]
    ) -> Float[Array, "n k"]:
        """Columns of all joints for one sample, given the memory at this sample (`step`); equal to one row of `columns`."""
        return self._columns(q, qd, load, z)

    @property
    def labels(self) -> tuple[str, ...]:
        """Stems of the linear parameters' names, to which the number of the joint is appended."""
        return self._labels()

    def units(self, turns: bool) -> tuple[str, ...]:
        """Units of the linear parameters for a revolute joint, or for a prismatic joint if `turns` is False."""
        return self._units("N m", "rad") if turns else self._units("N", "m")

    @property
    def reach(self) -> float:
        """Travel after which the memory no longer depends on its initial value [rad or m]; 0 for terms without memory."""
        return self._reach()

    @property
    def needs_load(self) -> bool:
        """True if the columns depend on the joint's load."""
        return self._loaded

    @property
    def remembers(self) -> bool:
        """True if the columns depend on a memory, which contains the effect of past motion or a temperature."""
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
        """Memory after a step (n,); defined only by terms with memory."""
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
    """A parameter, () or (n,), broadcast to the shape of samples x (..., n)."""
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
    """Coulomb friction with a smooth sign function, fc tanh(qd / width), with fc [N m or N].

    Attributes:
        width: width of the smooth sign function, the speed at which tanh reaches 0.76 [rad/s or m/s].
        joints: numbers of the joints that have the term, counted from 1; by default all joints.
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
    """Constant torque off [N m or N], such as a current-sensor offset or a difference in friction between directions."""

    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def _columns(self, q, qd, load, z):
        return jnp.ones_like(qd)[..., None]

    def _labels(self):
        return ("off",)

    def _units(self, force, length):
        return (force,)


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
        joints: numbers of the joints that have the term, counted from 1; by default all joints.
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

    Together with `Viscous` and `Coulomb`, the coefficient of viscous friction is fv + fva in the positive direction and
    fv - fva in the negative direction [N m s/rad or N s/m]. Coulomb friction is fc + fca and fc - fca, respectively [N m
    or N].

    Attributes:
        width: width of the smooth sign function, the speed at which tanh reaches 0.76 [rad/s or m/s].
        joints: numbers of the joints that have the term, counted from 1; by default all joints.
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

    The parameter fs [N m or N] is added to Coulomb friction at low speed, and may be negative.

    Source: Armstrong-Helouvry, Dupont & Canudas de Wit (1994).

    Attributes:
        velocity: Stribeck velocity, which determines how fast the term decays with increasing speed [rad/s or m/s].
        width: width of the smooth sign function [rad/s or m/s].
        joints: numbers of the joints that have the term, counted from 1; by default all joints.
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
    """Load-dependent friction, for example in gears: sum_k fl_k |load|^k tanh(qd / width).

    The load is the rigid-body torque of the joint due to gravity and inertia [N m or N]; it does not include friction.
    The unit of fl_k is (N m)^(1 - k) or N^(1 - k).

    Attributes:
        width: width of the smooth sign function [rad/s or m/s].
        powers: the powers k.
        joints: numbers of the joints that have the term, counted from 1; by default all joints.
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
    """Torque ripple that is periodic in the rotation of a motor or gear: sum_k rc_k cos(h_k x) + rs_k sin(h_k x).

    The amplitudes are rc_k and rs_k [N m or N], and x = q - delay qd. A strain-wave gear with gear ratio N causes
    ripple with h = 2 N, which is two periods per revolution of its wave generator. At harmonics this high, a delay of a
    few milliseconds between the logged position and torque shifts the phase by several radians, so the delay must be
    part of the model.

    Attributes:
        harmonics: numbers of periods per revolution of the joint, h_k; by default 202, for a strain-wave gear with a
            ratio of 101.
        delay: delay of the logged torque relative to the position [s].
        joints: numbers of the joints that have the term, counted from 1; by default all joints.
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

"""Adaptation law for drive parameters (friction, armature): a gradient flow that preserves their signs."""

from operator import attrgetter

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._jax_compat import Tracer
from ..dynamics._equations.drive_regressors import DRIVE_LEAVES
from ..dynamics._kinematics.coordinates import joint_rates
from ..errors import ControlError
from ..model._chain import Chain, with_leaves

_LARGEST_STEP = 0.25  # largest change of a logarithm in one step
_RANGE = 1e4  # largest factor between an estimate and its initial value


class DriveAdaptation(eqx.Module):
    """Adaptation law of friction and armature, d phi_hat/dt = -Gamma phi_hat (y . s), which keeps the estimates positive.

    phi_hat is the estimate of a parameter phi, y is its column of `drive_regressor`, and s is the sliding velocity. Friction
    offsets, which may have either sign, change at the rate -Gamma (y . s) instead. The multiplicative law performs steepest
    descent in the metric of relative entropy. Estimates start from the values of the chain, which must be positive unless they
    are offsets.

    The Lyapunov function V of `AdaptiveControl` then also contains (phi log(phi / phi_hat) - phi + phi_hat) / Gamma for each
    positive parameter, and (offset error)^2 / (2 Gamma) for each offset. With these terms, V does not increase.

    Attributes:
        gain: adaptation gain Gamma, given as a scalar or one value per term [1/J; N^2 m^2/J for offsets].
        terms: names of the adapted terms: "armature", "viscous", "coulomb" or "offset".
        leakage: rate at which offsets, and the logarithms of other parameters, decay towards their initial values [1/s].

    Raises:
        ControlError: a term is unknown.
    """

    gain: float | Float[Array, "..."] = 1.0
    terms: tuple[str, ...] = eqx.field(static=True, default=("viscous", "coulomb"))
    leakage: float | Float[Array, ""] = 0.0

    def __check_init__(self) -> None:
        unknown = [term for term in self.terms if term not in DRIVE_LEAVES]
        if unknown:
            raise ControlError(f"unknown drive term {unknown[0]!r}; the terms are {', '.join(DRIVE_LEAVES)}")

    def start(self, chain: Chain) -> Float[Array, "n terms"]:
        """The chain's values, from which the adaptation starts.

        Raises:
            ControlError: a value other than an offset is not positive.
        """
        for term in self.terms:
            values = attrgetter(DRIVE_LEAVES[term])(chain)
            if term == "offset" or isinstance(values, Tracer):
                continue
            for name, value in zip(chain.joint_names, np.asarray(values), strict=True):
                if not value > 0:
                    raise ControlError(
                        f"{term} of joint {name!r} is {value:g}; adaptation is multiplicative, so start from a positive guess"
                    )
        columns = [attrgetter(DRIVE_LEAVES[term])(chain) for term in self.terms]
        return jnp.stack(columns, axis=1) if columns else jnp.zeros((chain.n, 0), chain.dtype)

    def estimate(self, chain: Chain, values: Float[Array, "n terms"]) -> Chain:
        """The chain with the given values of the adapted terms."""
        return with_leaves(chain, {DRIVE_LEAVES[term]: values[:, k] for k, term in enumerate(self.terms)})

    def gradient(
        self, chain: Chain, v: Float[Array, " nv"], a_ref: Float[Array, " nv"], s: Float[Array, " nv"]
    ) -> Float[Array, "n terms"]:
        """The gradient Y^T s: for each joint and term, the regressor's entry times the sliding velocity."""
        rates, along = joint_rates(chain, v), joint_rates(chain, s)
        columns = {
            "armature": lambda: joint_rates(chain, a_ref),
            "viscous": lambda: rates,
            "coulomb": lambda: chain.friction.sign(rates),
            "offset": lambda: jnp.ones_like(rates),
        }
        found = [columns[term]() * along for term in self.terms]
        return jnp.stack(found, axis=1) if found else jnp.zeros((chain.n, 0), v.dtype)

    def rate(
        self, values: Float[Array, "n terms"], first: Float[Array, "n terms"], gradient: Float[Array, "n terms"]
    ) -> Float[Array, "n terms"]:
        """Time derivative of the values."""
        slopes = self._slopes(values, first, gradient)
        return jnp.where(self._signed(values), slopes, values * slopes)

    def update(
        self,
        values: Float[Array, "n terms"],
        first: Float[Array, "n terms"],
        gradient: Float[Array, "n terms"],
        dt: float | Float[Array, ""],
    ) -> Float[Array, "n terms"]:
        """The values after a time step dt [s] with a constant gradient.

        All parameters except offsets stay within a factor of 1e4 of their initial values. Entries with a non-finite gradient do
        not change.
        """
        step = dt * self._slopes(values, first, gradient)
        step = jnp.where(jnp.isfinite(step), step, jnp.zeros_like(step))
        grown = values * jnp.exp(jnp.clip(step, -_LARGEST_STEP, _LARGEST_STEP))
        grown = jnp.clip(grown, first / _RANGE, first * _RANGE)
        return jnp.where(self._signed(values), values + step, grown)

    def _slopes(self, values, first, gradient):
        """Time derivatives of the offsets, and of the logarithms of the other values."""
        gain = jnp.broadcast_to(jnp.asarray(self.gain, values.dtype), values.shape)
        signed = self._signed(values)
        ratio = jnp.where(signed, jnp.ones_like(values), values / jnp.where(signed, jnp.ones_like(first), first))
        away = jnp.where(signed, values - first, jnp.log(ratio))
        return -gain * gradient - self.leakage * away

    def _signed(self, values):
        return jnp.broadcast_to(jnp.asarray([term == "offset" for term in self.terms], bool), values.shape)

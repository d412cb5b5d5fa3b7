"""Collision detection without force sensors: external torque from the generalised momentum."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._jax_compat import Tracer
from ..dynamics import friction_force, generalised_momentum, momentum_drift
from ..errors import ControlError
from ..model._chain import Chain
from ._reference import Gain


class ObserverState(NamedTuple):
    """The state of `MomentumObserver`.

    Attributes:
        residual: r, the estimate of the external torque [N m].
        momentum: p = M v at the last sample [N m s].
        drift: C^T v - g - k - f at the last sample [N m].
    """

    residual: Float[Array, " nv"]
    momentum: Float[Array, " nv"]
    drift: Float[Array, " nv"]


class Collision(NamedTuple):
    """The interpretation of a residual.

    Attributes:
        detected: True if any residual exceeds its threshold.
        joints: the coordinates above their threshold.
        last: index of the last of them, or -1: in a serial arm the joint before the link that was hit, or one nearer to
            the base, since a force whose line of action meets a joint's axis causes no torque there.
    """

    detected: Bool[Array, ""]
    joints: Bool[Array, " nv"]
    last: Int[Array, ""]


class MomentumObserver(eqx.Module):
    """r with dr/dt = K (tau_ext - r): the external torque through a first-order filter (De Luca & Mattone 2005).

    From dp/dt = tau + C^T v - g - k - f + tau_ext of the momentum p = M v: neither accelerations nor M^-1 are needed. r
    is J^T F of the force on a link, and includes friction and payloads missing from the model. For a torque constant
    over a sample the filter's response is exact, 1 - exp(-K dt), and stable for every sample time; model terms are
    integrated by the trapezoidal rule. Friction is the chain's, at the measured velocity.

        state = observer.start(chain, q, v)
        state = observer.update(chain, state, q, v, tau, dt)
        observer.collision(state).detected

    Attributes:
        gain: K, the filter's bandwidth, one number or one per joint [1/s].
        threshold: limit of |r|, one number or one per joint [N m]; `collision_threshold` computes it from collision-free runs.
    """

    gain: Gain = 50.0
    threshold: Gain = float("inf")

    def start(self, chain: Chain, q: Float[Array, " nq"], v: Float[Array, " nv"]) -> ObserverState:
        """The state at the first sample, with no residual.

        Raises:
            ControlError: gain or threshold is not positive, or neither one number nor one per joint.
        """
        self._check(chain)
        return ObserverState(jnp.zeros_like(v), generalised_momentum(chain, q, v), _drift(chain, q, v))

    def update(
        self,
        chain: Chain,
        state: ObserverState,
        q: Float[Array, " nq"],
        v: Float[Array, " nv"],
        tau: Float[Array, " nv"],
        dt: float | Float[Array, ""],
    ) -> ObserverState:
        """The state at the next sample (q, v), a time dt after the last, with tau held in between; O(n).

        A non-finite sample makes the residual non-finite; the first finite one after it restarts the observer.
        """
        momentum, drift = generalised_momentum(chain, q, v), _drift(chain, q, v)
        external = (momentum - state.momentum) / dt - tau - 0.5 * (drift + state.drift)
        gain = jnp.broadcast_to(jnp.asarray(self.gain, v.dtype), v.shape)
        residual = state.residual - jnp.expm1(-gain * dt) * (external - state.residual)
        known = jnp.stack([jnp.isfinite(x).all() for x in state]).all()
        return ObserverState(jnp.where(known, residual, jnp.zeros_like(residual)), momentum, drift)

    def collision(self, state: ObserverState) -> Collision:
        """Detect and locate a residual beyond the threshold; a non-finite residual counts as beyond."""
        limit = jnp.broadcast_to(jnp.asarray(self.threshold, state.residual.dtype), state.residual.shape)
        joints = ~(jnp.abs(state.residual) <= limit)
        last = jnp.max(jnp.where(joints, jnp.arange(len(limit)), -jnp.ones(len(limit), int)))
        return Collision(joints.any(), joints, last)

    def _check(self, chain: Chain) -> None:
        for name, value in (("gain", self.gain), ("threshold", self.threshold)):
            if jnp.shape(value) not in ((), (chain.nv,)):
                raise ControlError(f"{name} has shape {jnp.shape(value)}; give one number or {chain.nv}")
            if not isinstance(value, Tracer) and not np.all(np.asarray(value) > 0):
                raise ControlError(f"{name} is {value}; it must be positive")


def collision_threshold(
    residuals: Float[Array, "samples nv"], margin: float | Float[Array, ""] = 1.5
) -> Float[Array, " nv"]:
    """margin times the largest |r| of every joint over collision-free runs [N m]: a bound of model errors and noise."""
    return margin * jnp.abs(residuals).max(0)


def _drift(chain: Chain, q: Array, v: Array) -> Float[Array, " nv"]:
    return momentum_drift(chain, q, v) - friction_force(chain, v)

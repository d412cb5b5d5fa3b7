"""Collision detection without force sensors: the external torque is estimated from the generalised momentum."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from .._jax_compat import Tracer
from ..dynamics import friction_force, generalised_momentum, momentum_drift
from ..errors import ControlError
from ..model.chain import Chain, Force, Position, Velocity
from ..model.compiled import checked
from .joint_space import Gain, Scalar, spread_gain


class ObserverState(NamedTuple):
    """The state of `MomentumObserver`.

    Attributes:
        residual: estimate r of the external torque [N m or N].
        momentum: generalised momentum p = M qd at the last sample [N m s or N s].
        drift: rate C^T qd - g - k - f of the momentum at zero torque, at the last sample [N m or N].
    """

    residual: Float[Array, " nv"]
    momentum: Float[Array, " nv"]
    drift: Float[Array, " nv"]


class Collision(NamedTuple):
    """The result of `MomentumObserver.collision`, which describes it."""

    detected: Bool[Array, ""]
    joints: Bool[Array, " nv"]
    last: Int[Array, ""]


class MomentumObserver(eqx.Module):
    """Momentum observer (De Luca & Mattone 2005): the residual r is the low-pass filtered external torque.

    The filter dr/dt = K (tau_ext - r) follows from the rate of the momentum p = M qd,

        dp/dt = tau + C^T qd - g - k - f + tau_ext,

    without accelerations and M^-1. A contact force F on a link contributes J^T F to tau_ext; friction and payloads that
    the model lacks appear in r as well. The discrete response 1 - exp(-K dt) is exact for constant tau_ext, and stable
    for every dt. Model terms are integrated by the trapezoidal rule.

        state = observer.start(chain, q, qd)
        state = observer.update(chain, state, q, qd, tau, dt)
        observer.collision(state).detected

    Attributes:
        gain: filter bandwidth K, given as a scalar or one value per joint [1/s].
        threshold: value of |r| above which a collision is detected [N m or N]; see `collision_threshold`.
    """

    gain: Gain = 50.0
    threshold: Gain = float("inf")

    def start(self, chain: Chain, q: Position, qd: Velocity) -> ObserverState:
        """The state at the first sample, with zero residual.

        Raises:
            ControlError: the gain or the threshold is not positive, or is neither a scalar nor one value per joint.
        """
        self._check(chain)
        return ObserverState(jnp.zeros_like(qd), generalised_momentum(chain, q, qd), _drift(chain, q, qd))

    def update(
        self, chain: Chain, state: ObserverState, q: Position, qd: Velocity, tau: Force, dt: Scalar
    ) -> ObserverState:
        """The state at the next sample (q, qd), a time dt [s] after the last one, with constant torques tau between them, O(n).

        A non-finite sample makes the residual non-finite; the next finite sample restarts the observer.
        """
        momentum, drift = generalised_momentum(chain, q, qd), _drift(chain, q, qd)
        external = (momentum - state.momentum) / dt - tau - 0.5 * (drift + state.drift)
        gain = spread_gain(self.gain, qd)
        residual = state.residual - jnp.expm1(-gain * dt) * (external - state.residual)
        known = jnp.stack([jnp.isfinite(x).all() for x in state]).all()
        return ObserverState(jnp.where(known, residual, jnp.zeros_like(residual)), momentum, drift)

    def collision(self, state: ObserverState) -> Collision:
        """Find the residuals that exceed their thresholds; non-finite residuals are treated as exceeding them.

        Returns:
            - detected: True if there is a collision.
            - joints: mask of the coordinates whose residuals exceed their thresholds.
            - last: index of the last coordinate in `joints`, or -1. In a serial arm, the collision is on the link that this
                joint moves or beyond; a distal joint has no residual if the line of the force meets its axis.
        """
        limit = spread_gain(self.threshold, state.residual)
        joints = ~(jnp.abs(state.residual) <= limit)
        last = jnp.max(jnp.where(joints, jnp.arange(len(limit)), -jnp.ones(len(limit), int)))
        return Collision(joints.any(), joints, last)

    def _check(self, chain: Chain) -> None:
        for name, value in (("gain", self.gain), ("threshold", self.threshold)):
            if jnp.shape(value) not in ((), (chain.nv,)):
                raise ControlError(f"{name} has shape {jnp.shape(value)}; pass a scalar or {chain.nv} values")
            if not isinstance(value, Tracer) and not np.all(np.asarray(value) > 0):
                raise ControlError(f"{name} is {value}; it must be positive")


@checked
def collision_threshold(residuals: Float[Array, "samples nv"], margin: Scalar = 1.5) -> Force:
    """Collision thresholds [N m or N]: `margin` times the largest |r| of each joint in collision-free runs."""
    return margin * jnp.abs(residuals).max(0)


def _drift(chain: Chain, q: Array, qd: Array) -> Force:
    return momentum_drift(chain, q, qd) - friction_force(chain, qd)

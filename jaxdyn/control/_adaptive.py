"""Adaptive control: tracking control that adapts to unknown inertial parameters (Slotine & Li 1987)."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._jax_compat import Tracer
from ..dynamics import passivity_inverse_dynamics, passivity_regressor_product, resistive_force
from ..errors import ControlError
from ..model._chain import Chain
from ..model._configuration import difference
from ..spatial.pseudo_inertia import check_consistent
from ._adaptation import Adaptation, EuclideanAdaptation, NaturalAdaptation
from ._drive_adaptation import DriveAdaptation
from ._reference import Gain, JointReference, apply_gain, error_rate


class Sliding(NamedTuple):
    """The sliding velocity, and the reference velocity and acceleration.

    Attributes:
        s: sliding velocity v - v_ref, which is zero if the position error e decays as de/dt = -slope e [rad/s or m/s].
        v_ref: reference velocity v_d + slope e, where v_d is the desired velocity and e = difference(q, q_d) [rad/s or m/s].
        a_ref: reference acceleration d/dt v_ref [rad/s^2 or m/s^2].
    """

    s: Float[Array, " nv"]
    v_ref: Float[Array, " nv"]
    a_ref: Float[Array, " nv"]


class AdaptiveState(NamedTuple):
    """The state of `AdaptiveControl`, from which `AdaptiveControl.estimate` computes the estimated robot.

    Attributes:
        bodies: state of the adaptation law `bodies`, one row per adapted link.
        drives: estimates of the adapted friction and armature parameters, one row per joint.
        first_bodies: initial value of `bodies`.
        first_drives: initial value of `drives`.
    """

    bodies: Float[Array, "links *memory"]
    drives: Float[Array, "n terms"]
    first_bodies: Float[Array, "links *memory"]
    first_drives: Float[Array, "n terms"]


class AdaptiveControl(eqx.Module):
    """Adaptive tracking control: tau = M_hat a_ref + C_hat v_ref + g_hat + k + f_hat - K s, O(n).

    The mass matrix M_hat, the Coriolis matrix C_hat, the gravity torques g_hat and the friction torques f_hat are those of the
    estimated robot; k are the spring torques, and s = v - v_ref is the sliding velocity. The estimate descends along the
    gradient Y_r(q, v, v_ref, a_ref)^T s, where Y_r is the `passivity_regressor`.

    Let V be the sum of s . M s / 2 and the divergence of the estimate from the true parameters, as defined by the adaptation
    law. Then dV/dt = -s . K s, so V never increases, s is square integrable, and the tracking error converges to zero. The
    estimate need not converge to the true parameters, because parameters that the motion does not excite cannot be identified
    (Slotine & Li 1987; Lee, Kwon & Park 2018). A small leakage makes the estimate robust to noise.

        controller = AdaptiveControl(slope=5.0, damping=20.0)
        state = controller.start(model)
        tau = controller.torque(model, state, q, v, reference)
        state = controller.update(model, state, q, v, reference, dt)

    Attributes:
        slope: decay rate Lambda of the position error on the sliding surface s = 0, given as a scalar, one value per joint, or
            a matrix [1/s].
        damping: feedback gain K of the sliding velocity, given as a scalar, one value per joint, or a matrix
            [N m s/rad or N s/m].
        bodies: adaptation law of the links' inertial parameters; None if they are not adapted.
        drives: adaptation law of friction and armature; None if they are not adapted.
        links: names of the adapted links; all links by default. For an unknown payload, adapt the link that carries it.
    """

    slope: Gain
    damping: Gain
    bodies: Adaptation | None = NaturalAdaptation()
    drives: DriveAdaptation | None = None
    links: tuple[str, ...] | None = eqx.field(static=True, default=None)

    def start(self, chain: Chain) -> AdaptiveState:
        """The initial state of the adaptation, in which the estimated robot is the chain itself.

        Raises:
            ControlError: a link is unknown, or an adapted friction or armature parameter is not positive.
            ModelError: an adapted link is physically inconsistent, but the adaptation law requires consistency.
        """
        rows = self._rows(chain)
        pi = chain.inertia[rows]
        if self.bodies is not None and not isinstance(self.bodies, EuclideanAdaptation):
            if not isinstance(pi, Tracer):
                for row, values in zip(rows, np.asarray(pi), strict=True):
                    check_consistent(chain.link_names[row], values)
        bodies = pi if self.bodies is None else self.bodies.start(pi)
        drives = jnp.zeros((chain.n, 0), chain.dtype) if self.drives is None else self.drives.start(chain)
        return AdaptiveState(bodies, drives, bodies, drives)

    def estimate(self, chain: Chain, state: AdaptiveState) -> Chain:
        """The estimated robot: the chain with its adapted parameters replaced by their estimates."""
        if self.bodies is not None:
            pi = self.bodies.parameters(state.bodies).astype(chain.dtype)
            chain = eqx.tree_at(lambda c: c.inertia, chain, chain.inertia.at[self._rows(chain)].set(pi))
        return chain if self.drives is None else self.drives.estimate(chain, state.drives)

    def sliding(
        self, chain: Chain, q: Float[Array, " nq"], v: Float[Array, " nv"], reference: JointReference
    ) -> Sliding:
        """The sliding velocity, and the reference velocity and acceleration, in the state (q, v)."""
        error = difference(chain, q, reference.q)
        rate = error_rate(chain, q, v, reference.q, reference.v)
        v_ref = reference.v + apply_gain("slope", self.slope, error)
        return Sliding(v - v_ref, v_ref, reference.a + apply_gain("slope", self.slope, rate))

    def torque(
        self,
        chain: Chain,
        state: AdaptiveState,
        q: Float[Array, " nq"],
        v: Float[Array, " nv"],
        reference: JointReference,
    ) -> Float[Array, " nv"]:
        """The control torque [N m or N], O(n).

        Raises:
            ControlError: a gain has the wrong shape.
        """
        estimate = self.estimate(chain, state)
        s, v_ref, a_ref = self.sliding(chain, q, v, reference)
        feedforward = passivity_inverse_dynamics(estimate, q, v, v_ref, a_ref) + resistive_force(estimate, q, v)
        return feedforward - apply_gain("damping", self.damping, s)

    def rate(
        self,
        chain: Chain,
        state: AdaptiveState,
        q: Float[Array, " nq"],
        v: Float[Array, " nv"],
        reference: JointReference,
    ) -> AdaptiveState:
        """The time derivative of the adaptation state, O(n)."""
        bodies, drives = self._gradients(chain, q, v, reference)
        zeros = jnp.zeros_like(state.bodies), jnp.zeros_like(state.drives)
        moved = zeros[0] if self.bodies is None else self.bodies.rate(state.bodies, state.first_bodies, bodies)
        driven = zeros[1] if self.drives is None else self.drives.rate(state.drives, state.first_drives, drives)
        return AdaptiveState(moved, driven, *zeros)

    def update(
        self,
        chain: Chain,
        state: AdaptiveState,
        q: Float[Array, " nq"],
        v: Float[Array, " nv"],
        reference: JointReference,
        dt: float | Float[Array, ""],
    ) -> AdaptiveState:
        """The adaptation state after a time step dt [s], given the measured q and v; non-finite measurements are ignored."""
        bodies, drives = self._gradients(chain, q, v, reference)
        finite = jnp.isfinite(bodies).all() & jnp.isfinite(drives).all()
        bodies = jnp.where(finite, bodies, jnp.zeros_like(bodies))
        drives = jnp.where(finite, drives, jnp.zeros_like(drives))
        moved, driven = state.bodies, state.drives
        if self.bodies is not None:
            moved = self.bodies.update(moved, state.first_bodies, bodies, dt)
        if self.drives is not None:
            driven = self.drives.update(driven, state.first_drives, drives, dt)
        return state._replace(bodies=moved, drives=driven)

    def _gradients(self, chain: Chain, q: Array, v: Array, reference: JointReference) -> tuple[Array, Array]:
        s, v_ref, a_ref = self.sliding(chain, q, v, reference)
        none = jnp.zeros((chain.n, 0), v.dtype)
        drives = none if self.drives is None else self.drives.gradient(chain, v, a_ref, s)
        if self.bodies is None:
            return jnp.zeros((len(self._rows(chain)), 10), v.dtype), drives
        return passivity_regressor_product(chain, q, v, v_ref, a_ref, s)[self._rows(chain)], drives

    def _rows(self, chain: Chain) -> np.ndarray:
        if self.links is None:
            return np.arange(chain.n)
        unknown = [name for name in self.links if name not in chain.link_names]
        if unknown:
            raise ControlError(f"unknown link {unknown[0]!r}; the links are {', '.join(chain.link_names)}")
        return np.array([chain.link_names.index(name) for name in self.links], int)

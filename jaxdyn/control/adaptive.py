"""Adaptive control (Slotine & Li 1987), and the laws by which its estimates of inertias, friction and armature adapt.

Each law is a gradient flow: steepest descent, in its own metric, on the power s^T Y (pi - pi_true) that parameter errors
supply, where Y is the Slotine-Li regressor, s the sliding velocity, and g = Y^T s the gradient. `NaturalAdaptation` and
`LogCholeskyAdaptation` keep the estimated bodies physically consistent; `DriveAdaptation` keeps friction and armature positive.
"""

from abc import abstractmethod
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._jax_compat import Tracer
from ..dynamics import passivity_inverse_dynamics, passivity_regressor_product, resistive_force
from ..dynamics.composite_body import positive_inverse
from ..dynamics.coordinates import joint_rates
from ..dynamics.regressors import DRIVE_LEAVES
from ..errors import ControlError
from ..model.chain import Acceleration, Chain, Force, Position, Velocity, with_leaves
from ..model.configuration import difference
from ..spatial.inertia import (
    check_consistent,
    inertial_parameters_from_pseudo_inertia,
    log_cholesky_factor,
    log_cholesky_from_inertial_parameters,
    log_cholesky_to_inertial_parameters,
    pseudo_inertia,
    pseudo_inertia_factor,
    pseudo_inertia_gradient,
)
from .joint_space import Gain, JointReference, Scalar, apply_gain, error_rate, spread_gain

Bodies = Float[Array, "links 10"]
Memory = Float[Array, "links *memory"]
Drives = Float[Array, "n terms"]

# largest entry of a multiplicative step: a violent gradient changes an estimate by a factor of at most e^(1/4) in one step
_LARGEST_STEP = 0.25
_RANGE = 1e4  # largest factor between an estimate of a drive's parameter and its initial value


class Adaptation(eqx.Module):
    """Base class of the adaptation laws of the ten inertial parameters of each link. All arrays have one row per link.

    Attributes:
        gain: adaptation gain Gamma; its unit depends on the law.
        leakage: rate sigma at which the estimate decays towards its initial value [1/s]. The convergence proofs assume sigma =
            0; a small positive value prevents drift due to noise and unmodelled forces (Ioannou & Kokotovic 1984).
    """

    gain: eqx.AbstractVar[Gain]
    leakage: eqx.AbstractVar[Scalar]

    @abstractmethod
    def start(self, pi: Bodies) -> Memory:
        """The state of the adaptation law for the estimate pi."""

    @abstractmethod
    def parameters(self, memory: Memory) -> Bodies:
        """The estimate."""

    @abstractmethod
    def rate(self, memory: Memory, first: Memory, gradient: Bodies) -> Memory:
        """Time derivative of the state; leakage pulls the state towards its initial value `first`."""

    @abstractmethod
    def update(self, memory: Memory, first: Memory, gradient: Bodies, dt: Scalar) -> Memory:
        """The state after a time step dt [s] with a constant gradient."""


class EuclideanAdaptation(Adaptation):
    """Adaptation law of Slotine & Li (1987): dpi/dt = -Gamma g - sigma (pi - pi_0). The state is pi.

    For sigma = 0, the Lyapunov function V = s^T M s / 2 + |pi - pi_true|^2 / (2 Gamma) does not increase. The law does not
    enforce physical consistency: an estimated mass may become negative.

    Attributes:
        gain: Gamma, a scalar, one value per parameter (10,), or per link and parameter (links, 10) [squared unit / J].
    """

    gain: Gain = 1.0
    leakage: Scalar = 0.0

    def start(self, pi: Bodies) -> Memory:
        return pi

    def parameters(self, memory: Memory) -> Bodies:
        return memory

    def rate(self, memory: Memory, first: Memory, gradient: Bodies) -> Memory:
        return -spread_gain(self.gain, memory) * gradient - self.leakage * (memory - first)

    def update(self, memory: Memory, first: Memory, gradient: Bodies, dt: Scalar) -> Memory:
        return memory + dt * self.rate(memory, first, gradient)


class NaturalAdaptation(Adaptation):
    """Natural adaptation law (Lee, Kwon & Park 2018): dP/dt = -Gamma P B P for the pseudo-inertia P of each link.

    The matrix B represents the gradient: tr(P B) = g . pi. The descent is steepest in the affine-invariant metric of
    positive definite matrices, so the estimate always belongs to a body of positive density, whatever the units and
    frames. The Lyapunov function V = s^T M s / 2 + sum_i D_i / Gamma does not increase, where
    D_i = entropic_divergence(pi_i, pi_hat_i) = tr(P_hat^-1 P) - log det(P_hat^-1 P) - 4 for link i with the estimate P_hat.

    Each step follows a geodesic, P <- U exp(-Gamma dt U^T B U) U^T. The state is the factor U of P = U U^T, so P stays
    positive definite despite rounding errors and large steps. One step changes the eigenvalues of P by a factor of at
    most e^2. A step is rejected if the mean eigenvalue of P_0^-1 P or of P^-1 P_0 would exceed `range`; V may then
    increase.

    Attributes:
        gain: Gamma, a scalar or one value per link [1/J].
        leakage: rate sigma at which P^-1 decays towards its initial value [1/s].
        range: limit relative to the initial P_0; by default eps^(-1/4) with the machine epsilon: 8192 (float64), 54
            (float32).
    """

    gain: Gain = 1.0
    leakage: Scalar = 0.0
    range: Scalar | None = None

    def start(self, pi: Bodies) -> Memory:
        """Upper triangular factors U of the pseudo-inertias; NaN where a pseudo-inertia is not positive definite."""
        return jax.vmap(lambda x: pseudo_inertia_factor(pseudo_inertia(x)))(pi)

    def parameters(self, memory: Memory) -> Bodies:
        return jax.vmap(lambda u: inertial_parameters_from_pseudo_inertia(u @ u.T))(memory)

    def rate(self, memory: Memory, first: Memory, gradient: Bodies) -> Memory:
        """Time derivative dU/dt = -U X / 2 with X = Gamma U^T B U + sigma (U^T P_0^-1 U - 1)."""
        return -0.5 * memory @ self._slopes(memory, first, gradient)

    def update(self, memory: Memory, first: Memory, gradient: Bodies, dt: Scalar) -> Memory:
        """The factor U exp(-dt X / 2) after a time step dt [s], where X is the matrix defined in `rate`."""
        half = _bounded(-0.5 * dt * self._slopes(memory, first, gradient))
        power = total = jnp.broadcast_to(jnp.eye(4, dtype=half.dtype), half.shape)
        for k in range(1, 11):
            power = power @ half / k
            total = total + power
        moved = memory @ total
        return _kept_within(self.range, memory, moved, first, moved)

    def _slopes(self, memory, first, gradient):
        def slope(u, u_0, g, gamma):
            along = gamma * (u.T @ pseudo_inertia_gradient(g) @ u)
            if isinstance(self.leakage, float) and self.leakage == 0.0:
                return along
            white = _upper_solve(u_0, u)
            return along + self.leakage * (white.T @ white - jnp.eye(4, dtype=u.dtype))

        return jax.vmap(slope)(memory, first, gradient, spread_gain(self.gain, memory[:, 0, 0]))


class LogCholeskyAdaptation(Adaptation):
    """Gradient flow in log-Cholesky parameters theta (Rucker & Wensing 2022).

    dtheta/dt = -Gamma (dpi/dtheta)^T g - sigma (theta - theta_0).

    The state is theta. Every theta corresponds to a physically consistent body. Since pi is a nonlinear function of theta,
    the law has no Lyapunov proof for large errors; near the true parameters, it behaves like `EuclideanAdaptation` with a
    different metric. The step size and `range` are limited as in `NaturalAdaptation`.

    Attributes:
        gain: Gamma, a scalar, one value per entry of theta (10,), or per link and entry (links, 10); 1/J for
            logarithms.
        leakage: rate sigma at which theta decays towards its initial value [1/s].
    """

    gain: Gain = 1.0
    leakage: Scalar = 0.0
    range: Scalar | None = None

    def start(self, pi: Bodies) -> Memory:
        return jax.vmap(log_cholesky_from_inertial_parameters)(pi)

    def parameters(self, memory: Memory) -> Bodies:
        return jax.vmap(log_cholesky_to_inertial_parameters)(memory)

    def rate(self, memory: Memory, first: Memory, gradient: Bodies) -> Memory:
        (pulled,) = jax.vjp(self.parameters, memory)[1](gradient)
        return -spread_gain(self.gain, memory) * pulled - self.leakage * (memory - first)

    def update(self, memory: Memory, first: Memory, gradient: Bodies, dt: Scalar) -> Memory:
        moved = memory + _bounded(dt * self.rate(memory, first, gradient))
        factors = jax.vmap(log_cholesky_factor)
        return _kept_within(self.range, memory, moved, factors(first), factors(moved))


def _bounded(steps: Float[Array, "links *each"]) -> Float[Array, "links *each"]:
    """The step of each link, scaled down if its largest entry exceeds `_LARGEST_STEP`, and set to zero if it is not finite."""
    largest = jnp.max(jnp.abs(steps), axis=range(1, steps.ndim), keepdims=True)
    finite = jnp.isfinite(largest)
    return jnp.where(finite, steps, 0.0) / jnp.where(finite, jnp.maximum(largest / _LARGEST_STEP, 1.0), 1.0)


def _kept_within(limit, memory, moved, first_factors, factors):
    """The updated state, except for links whose pseudo-inertia would leave the permitted range around its initial value."""
    limit = jnp.finfo(factors.dtype).eps ** -0.25 if limit is None else limit
    white = jax.vmap(_upper_solve)(first_factors, factors)
    inner = jnp.einsum("kij,kil->kjl", white, white)
    trace = lambda a: jnp.trace(a, axis1=1, axis2=2)
    inside = (trace(inner) <= 4 * limit) & (trace(jax.vmap(positive_inverse)(inner)) <= 4 * limit)
    return jnp.where(inside.reshape(-1, *(1,) * (memory.ndim - 1)), moved, memory)


def _upper_solve(u: Float[Array, "4 4"], a: Float[Array, "4 4"]) -> Float[Array, "4 4"]:
    """u^-1 a for an upper triangular u, by back substitution."""
    rows: list[Array] = [a[0]] * 4
    for i in (3, 2, 1, 0):
        rest = a[i]
        for j in range(i + 1, 4):
            rest = rest - u[i, j] * rows[j]
        rows[i] = rest / u[i, i]
    return jnp.stack(rows)


class DriveAdaptation(eqx.Module):
    """Adaptation law of friction and armature, d phi_hat/dt = -Gamma phi_hat (y . s), which keeps the estimates positive.

    y is the column of `drive_regressor` of the parameter phi. Friction offsets, which may have either sign, change at the rate
    -Gamma (y . s) instead. The multiplicative law is steepest descent in the metric of relative entropy. The Lyapunov function
    of `AdaptiveControl` then also contains (phi log(phi / phi_hat) - phi + phi_hat) / Gamma for each positive parameter, and
    (offset error)^2 / (2 Gamma) for each offset.

    Attributes:
        gain: Gamma, a scalar or one value per term [1/J; N^2 m^2/J for offsets].
        terms: names of the adapted terms: "armature", "viscous", "coulomb" or "offset".
        leakage: rate at which offsets, and the logarithms of other parameters, decay towards their initial values [1/s].

    Raises:
        ControlError: a term is unknown.
    """

    gain: float | Float[Array, "..."] = 1.0
    terms: tuple[str, ...] = eqx.field(static=True, default=("viscous", "coulomb"))
    leakage: Scalar = 0.0

    def __check_init__(self) -> None:
        if unknown := [term for term in self.terms if term not in DRIVE_LEAVES]:
            raise ControlError(f"unknown drive term {unknown[0]!r}; the terms are {', '.join(DRIVE_LEAVES)}")

    def start(self, chain: Chain) -> Drives:
        """The chain's values, which must be positive except for offsets; otherwise, a `ControlError` is raised."""
        columns = [attrgetter(DRIVE_LEAVES[term])(chain) for term in self.terms]
        for term, values in zip(self.terms, columns, strict=True):
            if term == "offset" or isinstance(values, Tracer):
                continue
            for name, value in zip(chain.joint_names, np.asarray(values), strict=True):
                if not value > 0:
                    raise ControlError(
                        f"{term} of joint {name!r} is {value:g}; adaptation is multiplicative, so start from a positive guess"
                    )
        return jnp.stack(columns, axis=1) if columns else jnp.zeros((chain.n, 0), chain.dtype)

    def estimate(self, chain: Chain, values: Drives) -> Chain:
        """The chain with the given values of the adapted terms."""
        return with_leaves(chain, {DRIVE_LEAVES[term]: values[:, k] for k, term in enumerate(self.terms)})

    def gradient(self, chain: Chain, qd: Velocity, qdd_ref: Acceleration, s: Velocity) -> Drives:
        """The gradient Y^T s: for each joint and term, the regressor's entry times the sliding velocity."""
        rates, along = joint_rates(chain, qd), joint_rates(chain, s)
        columns = {
            "armature": lambda: joint_rates(chain, qdd_ref),
            "viscous": lambda: rates,
            "coulomb": lambda: chain.friction.sign(rates),
            "offset": lambda: jnp.ones_like(rates),
        }
        found = [columns[term]() * along for term in self.terms]
        return jnp.stack(found, axis=1) if found else jnp.zeros((chain.n, 0), qd.dtype)

    def rate(self, values: Drives, first: Drives, gradient: Drives) -> Drives:
        """Time derivative of the values."""
        slopes = self._slopes(values, first, gradient)
        return jnp.where(self._signed(values), slopes, values * slopes)

    def update(self, values: Drives, first: Drives, gradient: Drives, dt: Scalar) -> Drives:
        """The values after a time step dt [s]; offsets aside, within a factor of 1e4 of the initial ones."""
        step = dt * self._slopes(values, first, gradient)
        step = jnp.where(jnp.isfinite(step), step, 0.0)
        grown = values * jnp.exp(jnp.clip(step, -_LARGEST_STEP, _LARGEST_STEP))
        grown = jnp.clip(grown, first / _RANGE, first * _RANGE)
        return jnp.where(self._signed(values), values + step, grown)

    def _slopes(self, values, first, gradient):
        """Time derivatives of the offsets, and of the logarithms of the other values."""
        signed = self._signed(values)
        ratio = jnp.where(signed, 1.0, values / jnp.where(signed, 1.0, first))
        away = jnp.where(signed, values - first, jnp.log(ratio))
        return -spread_gain(self.gain, values) * gradient - self.leakage * away

    def _signed(self, values):
        return jnp.broadcast_to(jnp.asarray([term == "offset" for term in self.terms], bool), values.shape)


class Sliding(NamedTuple):
    """The result of `AdaptiveControl.sliding`, which describes it."""

    s: Float[Array, " nv"]
    qd_ref: Float[Array, " nv"]
    qdd_ref: Float[Array, " nv"]


class AdaptiveState(NamedTuple):
    """The state of `AdaptiveControl`, as `AdaptiveControl.start` describes it."""

    bodies: Float[Array, "links *memory"]
    drives: Drives
    first_bodies: Float[Array, "links *memory"]
    first_drives: Drives


class AdaptiveControl(eqx.Module):
    """Adaptive tracking control: tau = M_hat qdd_ref + C_hat qd_ref + g_hat + k + f_hat - K s, O(n).

    M_hat, C_hat, the gravity torques g_hat and the friction torques f_hat are those of the estimated robot; k are the
    spring torques, and s = qd - qd_ref is the sliding velocity. The estimate descends along the gradient
    Y_r(q, qd, qd_ref, qdd_ref)^T s, where Y_r is the `passivity_regressor`.

    Let V be the sum of s . M s / 2 and the divergence of the estimate from the true parameters, as defined by the
    adaptation law. Then dV/dt = -s . K s, so s is square integrable, and the tracking error converges to zero.
    Parameters that the motion does not excite need not converge (Slotine & Li 1987; Lee, Kwon & Park 2018).

        controller = AdaptiveControl(slope=5.0, damping=20.0)
        state = controller.start(model)
        tau = controller.torque(model, state, q, qd, reference)
        state = controller.update(model, state, q, qd, reference, dt)

    Attributes:
        slope: decay rate Lambda of the position error on the sliding surface s = 0 [1/s].
        damping: feedback gain K of the sliding velocity [N m s/rad or N s/m].
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

        Returns:
            - bodies: state of the adaptation law `bodies`, one row per adapted link; `first_bodies` is its initial value.
            - drives: estimates of the adapted friction and armature parameters, one row per joint, likewise.

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

    def sliding(self, chain: Chain, q: Position, qd: Velocity, reference: JointReference) -> Sliding:
        """The sliding velocity, and the reference velocity and acceleration, in the state (q, qd).

        Returns:
            - s: sliding velocity qd - qd_ref; if s = 0, the error e = difference(q, q_d) satisfies de/dt = -slope e.
            - qd_ref: reference velocity qd_d + slope e, where qd_d is the desired velocity [rad/s or m/s].
            - qdd_ref: reference acceleration d/dt qd_ref [rad/s^2 or m/s^2].
        """
        error = difference(chain, q, reference.q)
        rate = error_rate(chain, q, qd, reference.q, reference.qd)
        qd_ref = reference.qd + apply_gain("slope", self.slope, error)
        return Sliding(qd - qd_ref, qd_ref, reference.qdd + apply_gain("slope", self.slope, rate))

    def torque(self, chain: Chain, state: AdaptiveState, q: Position, qd: Velocity, reference: JointReference) -> Force:
        """The control torque [N m or N], O(n)."""
        estimate = self.estimate(chain, state)
        s, qd_ref, qdd_ref = self.sliding(chain, q, qd, reference)
        feedforward = passivity_inverse_dynamics(estimate, q, qd, qd_ref, qdd_ref) + resistive_force(estimate, q, qd)
        return feedforward - apply_gain("damping", self.damping, s)

    def rate(
        self, chain: Chain, state: AdaptiveState, q: Position, qd: Velocity, reference: JointReference
    ) -> AdaptiveState:
        """The time derivative of the adaptation state, O(n)."""
        rates = [
            jnp.zeros_like(x) if law is None else law.rate(x, first, gradient)
            for law, x, first, gradient in self._laws(state, self._gradients(chain, q, qd, reference))
        ]
        return AdaptiveState(*rates, *map(jnp.zeros_like, state[2:]))

    def update(
        self, chain: Chain, state: AdaptiveState, q: Position, qd: Velocity, reference: JointReference, dt: Scalar
    ) -> AdaptiveState:
        """The adaptation state after a time step dt [s], given the measured q and qd; non-finite measurements are ignored."""
        gradients = self._gradients(chain, q, qd, reference)
        finite = jnp.stack([jnp.isfinite(x).all() for x in gradients]).all()
        gradients = [jnp.where(finite, x, 0.0) for x in gradients]
        bodies, drives = (
            x if law is None else law.update(x, first, gradient, dt)
            for law, x, first, gradient in self._laws(state, gradients)
        )
        return state._replace(bodies=bodies, drives=drives)

    def _laws(self, state: AdaptiveState, gradients: Sequence[Array]) -> Any:
        """Law, state, first state and gradient of the bodies and of the drives."""
        return zip((self.bodies, self.drives), state[:2], state[2:], gradients, strict=True)

    def _gradients(self, chain: Chain, q: Array, qd: Array, reference: JointReference) -> tuple[Array, Array]:
        s, qd_ref, qdd_ref = self.sliding(chain, q, qd, reference)
        none = jnp.zeros((chain.n, 0), qd.dtype)
        drives = none if self.drives is None else self.drives.gradient(chain, qd, qdd_ref, s)
        if self.bodies is None:
            return jnp.zeros((len(self._rows(chain)), 10), qd.dtype), drives
        return passivity_regressor_product(chain, q, qd, qd_ref, qdd_ref, s)[self._rows(chain)], drives

    def _rows(self, chain: Chain) -> np.ndarray:
        if self.links is None:
            return np.arange(chain.n)
        if unknown := [name for name in self.links if name not in chain.link_names]:
            raise ControlError(f"unknown link {unknown[0]!r}; the links are {', '.join(chain.link_names)}")
        return np.array([chain.link_names.index(name) for name in self.links], int)

"""Adaptation laws for inertial parameters: gradient flows of the ten parameters of each link.

Each law performs steepest descent, in its own metric, on the power s^T Y (pi - pi_true) that parameter errors supply, where Y
is the Slotine-Li regressor and s is the sliding velocity. The gradient of this power with respect to the estimate pi is g = Y^T
s. `NaturalAdaptation` and `LogCholeskyAdaptation` keep the estimate physically consistent.

Every law has four methods, whose arrays have one row per link:

- `start` returns the state of the law for a given estimate;
- `parameters` returns the estimate for a given state;
- `rate` returns the time derivative of the state;
- `update` returns the state after one time step.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..dynamics._equations.mass_matrix_inverse import positive_inverse
from ..spatial.inertia import pseudo_inertia
from ..spatial.pseudo_inertia import (
    inertial_parameters_from_pseudo_inertia,
    log_cholesky_factor,
    log_cholesky_from_inertial_parameters,
    log_cholesky_to_inertial_parameters,
    pseudo_inertia_factor,
    pseudo_inertia_gradient,
)

Bodies = Float[Array, "links 10"]
Memory = Float[Array, "links *memory"]
Gains = float | Float[Array, "..."]

_LARGEST_STEP = 0.25  # largest entry of a multiplicative step


class Adaptation(eqx.Module):
    """Base class of the adaptation laws: gradient flows of the ten inertial parameters of each link.

    Attributes:
        gain: adaptation gain Gamma; its unit depends on the law.
        leakage: rate sigma at which the estimate decays towards its initial value [1/s]. The convergence proofs assume sigma =
            0; a small positive value prevents drift due to noise and unmodelled forces (Ioannou & Kokotovic 1984).
    """

    gain: eqx.AbstractVar[Gains]
    leakage: eqx.AbstractVar[float | Float[Array, ""]]

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
    def update(self, memory: Memory, first: Memory, gradient: Bodies, dt: float | Float[Array, ""]) -> Memory:
        """The state after a time step dt [s] with a constant gradient."""


class EuclideanAdaptation(Adaptation):
    """Adaptation law of Slotine & Li (1987): dpi/dt = -Gamma g.

    The gradient is g = Y^T s, with the Slotine-Li regressor Y and the sliding velocity s. The Lyapunov function V = s^T M s /
    2 + |pi - pi_true|^2 / (2 Gamma) does not increase. The law does not enforce physical consistency: an estimated mass may
    become negative. A scalar Gamma applies the same numerical gain to masses [kg], first moments [kg m] and moments of inertia
    [kg m^2].

    Attributes:
        gain: adaptation gain Gamma, given as a scalar, one value per parameter (10,), or one value per link and parameter
            (links, 10) [squared unit of the parameter / J].
        leakage: rate sigma at which pi decays towards its initial value [1/s]; see `Adaptation`.
    """

    gain: Gains = 1.0
    leakage: float | Float[Array, ""] = 0.0

    def start(self, pi: Bodies) -> Memory:
        """The parameters themselves."""
        return pi

    def parameters(self, memory: Memory) -> Bodies:
        """The state itself."""
        return memory

    def rate(self, memory: Memory, first: Memory, gradient: Bodies) -> Memory:
        """Time derivative -Gamma g - sigma (pi - pi_0)."""
        return -_spread(self.gain, memory) * gradient - self.leakage * (memory - first)

    def update(self, memory: Memory, first: Memory, gradient: Bodies, dt: float | Float[Array, ""]) -> Memory:
        """The parameters pi + dt dpi/dt after a time step dt [s]."""
        return memory + dt * self.rate(memory, first, gradient)


class NaturalAdaptation(Adaptation):
    """Natural adaptation law (Lee, Kwon & Park 2018): dP/dt = -Gamma P B P for the pseudo-inertia P of each link.

    The matrix B represents the gradient g = Y^T s of the power supplied by parameter errors: tr(P B) = g . pi. The law performs
    steepest descent in the affine-invariant metric of positive definite matrices. The estimate therefore always corresponds to
    a body of positive density, and does not depend on the choice of units and frames.

    The Lyapunov function V = s^T M s / 2 + sum_i D_i / Gamma does not increase. For link i with the estimate P_hat, the
    divergence is D_i = entropic_divergence(pi_i, pi_hat_i) = tr(P_hat^-1 P) - log det(P_hat^-1 P) - 4.

    Each step follows a geodesic, P <- U exp(-Gamma dt U^T B U) U^T with P = U U^T. The state is the factor U, so P stays
    positive definite despite rounding errors and large steps. One step changes the eigenvalues of P by a factor of at most e^2.
    A step is rejected if it would move P too far from its initial value P_0, that is, if the mean eigenvalue of P_0^-1 P or of
    P^-1 P_0 would exceed `range`. After a rejected step, V may increase.

    Attributes:
        gain: adaptation gain Gamma, given as a scalar or one value per link [1/J].
        leakage: rate sigma at which P^-1 decays towards its initial value [1/s]; see `Adaptation`.
        range: largest mean eigenvalue of P_0^-1 P and of P^-1 P_0; by default eps^(-1/4) with the machine epsilon eps, which
            is 8192 in float64 and 54 in float32.
    """

    gain: Gains = 1.0
    leakage: float | Float[Array, ""] = 0.0
    range: float | Float[Array, ""] | None = None

    def start(self, pi: Bodies) -> Memory:
        """Upper triangular factors U of the pseudo-inertias; NaN where a pseudo-inertia is not positive definite."""
        return jax.vmap(lambda x: pseudo_inertia_factor(pseudo_inertia(x)))(pi)

    def parameters(self, memory: Memory) -> Bodies:
        """The ten parameters of each link, from its pseudo-inertia U U^T."""
        return jax.vmap(lambda u: inertial_parameters_from_pseudo_inertia(u @ u.T))(memory)

    def rate(self, memory: Memory, first: Memory, gradient: Bodies) -> Memory:
        """Time derivative dU/dt = -U X / 2 with X = Gamma U^T B U + sigma (U^T P_0^-1 U - 1)."""
        return -0.5 * memory @ self._slopes(memory, first, gradient)

    def update(self, memory: Memory, first: Memory, gradient: Bodies, dt: float | Float[Array, ""]) -> Memory:
        """The factor U exp(-dt X / 2) after a time step dt [s], where X is the matrix defined in `rate`."""
        half = _bounded(-0.5 * dt * self._slopes(memory, first, gradient))
        power = total = jnp.broadcast_to(jnp.eye(4, dtype=half.dtype), half.shape)
        for k in range(1, 11):
            power = power @ half / k
            total = total + power
        moved = memory @ total
        return _kept_within(self.range, memory, moved, first, moved)

    def _slopes(self, memory, first, gradient):
        gain = jnp.broadcast_to(jnp.asarray(self.gain, memory.dtype), memory.shape[:1])

        def slope(u, u_0, g, gamma):
            along = gamma * (u.T @ pseudo_inertia_gradient(g) @ u)
            if isinstance(self.leakage, float) and self.leakage == 0.0:
                return along
            white = _upper_solve(u_0, u)
            return along + self.leakage * (white.T @ white - jnp.eye(4, dtype=u.dtype))

        return jax.vmap(slope)(memory, first, gradient, gain)


class LogCholeskyAdaptation(Adaptation):
    """Gradient flow in log-Cholesky parameters theta (Rucker & Wensing 2022): dtheta/dt = -Gamma (dpi/dtheta)^T g.

    The vector g = Y^T s is the gradient with respect to the inertial parameters pi. Every theta corresponds to a physically
    consistent estimate. Since pi is a nonlinear function of theta, the law has no Lyapunov proof for large errors; near the
    true parameters, the law behaves like `EuclideanAdaptation` with a different metric. The step size and the range of the
    estimate are limited as in `NaturalAdaptation`.

    Attributes:
        gain: adaptation gain Gamma, given as a scalar, one value per entry of theta (10,), or one value per link and entry
            (links, 10); its unit is 1/J for entries that are logarithms.
        leakage: rate sigma at which theta decays towards its initial value [1/s]; see `Adaptation`.
        range: limit on the change of the pseudo-inertia, as in `NaturalAdaptation`.
    """

    gain: Gains = 1.0
    leakage: float | Float[Array, ""] = 0.0
    range: float | Float[Array, ""] | None = None

    def start(self, pi: Bodies) -> Memory:
        """Log-Cholesky parameters; NaN for a link whose pseudo-inertia is not positive definite."""
        return jax.vmap(log_cholesky_from_inertial_parameters)(pi)

    def parameters(self, memory: Memory) -> Bodies:
        """The ten parameters of each link."""
        return jax.vmap(log_cholesky_to_inertial_parameters)(memory)

    def rate(self, memory: Memory, first: Memory, gradient: Bodies) -> Memory:
        """Time derivative -Gamma (dpi/dtheta)^T g - sigma (theta - theta_0)."""
        (pulled,) = jax.vjp(self.parameters, memory)[1](gradient)
        return -_spread(self.gain, memory) * pulled - self.leakage * (memory - first)

    def update(self, memory: Memory, first: Memory, gradient: Bodies, dt: float | Float[Array, ""]) -> Memory:
        """The state theta + dt dtheta/dt after a time step dt [s]; no entry changes by more than 1/4."""
        moved = memory + _bounded(dt * self.rate(memory, first, gradient))
        factors = jax.vmap(log_cholesky_factor)
        return _kept_within(self.range, memory, moved, factors(first), factors(moved))


def _spread(gain: Gains, like: Float[Array, "links 10"]) -> Float[Array, "links 10"]:
    """Broadcast a gain to one value per link and parameter."""
    return jnp.broadcast_to(jnp.asarray(gain, like.dtype), like.shape)


def _bounded(steps: Float[Array, "links *each"]) -> Float[Array, "links *each"]:
    """The step of each link, scaled down if its largest entry exceeds `_LARGEST_STEP`, and set to zero if it is not finite."""

    def one(step):
        largest = jnp.max(jnp.abs(step))
        finite = jnp.isfinite(largest)
        step = jnp.where(finite, step, jnp.zeros_like(step))
        return step / jnp.where(finite, jnp.maximum(largest / _LARGEST_STEP, 1.0), 1.0)

    return jax.vmap(one)(steps)


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

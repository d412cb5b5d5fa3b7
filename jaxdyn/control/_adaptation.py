"""Adaptation of inertial estimates along a gradient: three flows of ten parameters per link, two physically consistent.

With g = Y^T s, the gradient with respect to the parameters of the power of model errors at the sliding velocity s, each
flow descends along g in its own metric. Rows are links. `start` returns the state of an estimate, `parameters` reads
it, `rate` is the flow in continuous time and `update` one step.
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
    """A flow of the links' ten parameters along a negative gradient; base class of `EuclideanAdaptation` and others.

    Attributes:
        gain: Gamma, the adaptation rate.
        leakage: sigma, the rate at which the estimate decays towards its start [1/s]. Zero preserves the Lyapunov
            function; a small value prevents drift from noise and unmodelled forces (Ioannou & Kokotovic 1984).
    """

    gain: eqx.AbstractVar[Gains]
    leakage: eqx.AbstractVar[float | Float[Array, ""]]

    @abstractmethod
    def start(self, pi: Bodies) -> Memory:
        """The state of an estimate equal to pi."""

    @abstractmethod
    def parameters(self, memory: Memory) -> Bodies:
        """The estimate."""

    @abstractmethod
    def rate(self, memory: Memory, first: Memory, gradient: Bodies) -> Memory:
        """d/dt of the state; leakage pulls towards `first`."""

    @abstractmethod
    def update(self, memory: Memory, first: Memory, gradient: Bodies, dt: float | Float[Array, ""]) -> Memory:
        """The state after a time dt at constant gradient."""


class EuclideanAdaptation(Adaptation):
    """dpi/dt = -Gamma g: the law of Slotine & Li (1987). Ignores physical consistency: masses may become negative.

    V = s^T M s / 2 + |pi - pi_true|^2 / (2 Gamma) does not increase. Unless Gamma differs, kilograms and kg m^2 are
    weighted equally.

    Attributes:
        gain: one number, ten, or ten per link.
        leakage: as in `Adaptation`.
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
        """-Gamma g - sigma (pi - pi_0)."""
        return -_spread(self.gain, memory) * gradient - self.leakage * (memory - first)

    def update(self, memory: Memory, first: Memory, gradient: Bodies, dt: float | Float[Array, ""]) -> Memory:
        """pi + dt dpi/dt."""
        return memory + dt * self.rate(memory, first, gradient)


class NaturalAdaptation(Adaptation):
    """dP/dt = -Gamma P B P of each link's pseudo-inertia P, with tr(P B) = g . pi (Lee, Kwon & Park 2018).

    The flow of steepest descent in the affine-invariant metric of positive definite matrices: the estimate is always a
    body of positive density, and the flow is invariant to units and frames. V = s^T M s / 2 + sum_i D_i / Gamma does
    not increase, D_i = tr(P_hat^-1 P) - log det(P_hat^-1 P) - 4 = entropic_divergence(pi_i, pi_hat_i). A step is a
    geodesic, P <- U exp(-Gamma dt U^T B U) U^T of P = U U^T, and the state is the factor U, so P stays positive
    definite despite rounding and large steps: one step changes principal values by at most a factor e^2, and a step
    that would bring one above `range` times, or below 1 / `range` of, its initial value is not taken (V may then not
    decrease).

    Attributes:
        gain: Gamma, one number or one per link [1/J].
        leakage: as in `Adaptation`; pulls P^-1 towards its initial value.
        range: see above; eps^-1/4 of the type if None, 8192 in float64 and 54 in float32, well above rounding.
    """

    gain: Gains = 1.0
    leakage: float | Float[Array, ""] = 0.0
    range: float | Float[Array, ""] | None = None

    def start(self, pi: Bodies) -> Memory:
        """Upper triangular factors of the pseudo-inertias; NaN if one is not positive definite."""
        return jax.vmap(lambda x: pseudo_inertia_factor(pseudo_inertia(x)))(pi)

    def parameters(self, memory: Memory) -> Bodies:
        """The ten parameters of U U^T."""
        return jax.vmap(lambda u: inertial_parameters_from_pseudo_inertia(u @ u.T))(memory)

    def rate(self, memory: Memory, first: Memory, gradient: Bodies) -> Memory:
        """dU/dt = -U X / 2 with X = Gamma U^T B U + sigma (U^T P_0^-1 U - 1)."""
        return -0.5 * memory @ self._slopes(memory, first, gradient)

    def update(self, memory: Memory, first: Memory, gradient: Bodies, dt: float | Float[Array, ""]) -> Memory:
        """U exp(-dt X / 2)."""
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
    """dtheta/dt = -Gamma (dpi/dtheta)^T g in log-Cholesky parameters theta (Rucker & Wensing 2022): always physically
    consistent.

    A plain gradient flow in unbounded numbers. pi is nonlinear in theta, so there is no Lyapunov function for large
    errors; near the true parameters it is that of a Euclidean law with another metric. Steps and range are bounded as
    in `NaturalAdaptation`.

    Attributes:
        gain: Gamma, one number, ten, or ten per link.
        leakage: as in `Adaptation`; pulls theta towards its initial value.
        range: as in `NaturalAdaptation`.
    """

    gain: Gains = 1.0
    leakage: float | Float[Array, ""] = 0.0
    range: float | Float[Array, ""] | None = None

    def start(self, pi: Bodies) -> Memory:
        """Log-Cholesky parameters; NaN if a pseudo-inertia is not positive definite."""
        return jax.vmap(log_cholesky_from_inertial_parameters)(pi)

    def parameters(self, memory: Memory) -> Bodies:
        """The ten parameters."""
        return jax.vmap(log_cholesky_to_inertial_parameters)(memory)

    def rate(self, memory: Memory, first: Memory, gradient: Bodies) -> Memory:
        """-Gamma (dpi/dtheta)^T g - sigma (theta - theta_0)."""
        (pulled,) = jax.vjp(self.parameters, memory)[1](gradient)
        return -_spread(self.gain, memory) * pulled - self.leakage * (memory - first)

    def update(self, memory: Memory, first: Memory, gradient: Bodies, dt: float | Float[Array, ""]) -> Memory:
        """theta + dt dtheta/dt, at most 1/4 per step and entry."""
        moved = memory + _bounded(dt * self.rate(memory, first, gradient))
        factors = jax.vmap(log_cholesky_factor)
        return _kept_within(self.range, memory, moved, factors(first), factors(moved))


def _spread(gain: Gains, like: Float[Array, "links 10"]) -> Float[Array, "links 10"]:
    """A gain as one number per parameter."""
    return jnp.broadcast_to(jnp.asarray(gain, like.dtype), like.shape)


def _bounded(steps: Float[Array, "links *each"]) -> Float[Array, "links *each"]:
    """Each link's step, shortened to `_LARGEST_STEP`; zero if not finite."""

    def one(step):
        largest = jnp.max(jnp.abs(step))
        finite = jnp.isfinite(largest)
        step = jnp.where(finite, step, jnp.zeros_like(step))
        return step / jnp.where(finite, jnp.maximum(largest / _LARGEST_STEP, 1.0), 1.0)

    return jax.vmap(one)(steps)


def _kept_within(limit, memory, moved, first_factors, factors):
    """The updated state; links whose pseudo-inertia would leave its range around the initial one are not updated."""
    limit = jnp.finfo(factors.dtype).eps ** -0.25 if limit is None else limit
    white = jax.vmap(_upper_solve)(first_factors, factors)
    inner = jnp.einsum("kij,kil->kjl", white, white)
    trace = lambda a: jnp.trace(a, axis1=1, axis2=2)
    inside = (trace(inner) <= 4 * limit) & (trace(jax.vmap(positive_inverse)(inner)) <= 4 * limit)
    return jnp.where(inside.reshape(-1, *(1,) * (memory.ndim - 1)), moved, memory)


def _upper_solve(u: Float[Array, "4 4"], a: Float[Array, "4 4"]) -> Float[Array, "4 4"]:
    """u^-1 a by substitution."""
    rows: list[Array] = [a[0]] * 4
    for i in (3, 2, 1, 0):
        rest = a[i]
        for j in range(i + 1, 4):
            rest = rest - u[i, j] * rows[j]
        rows[i] = rest / u[i, i]
    return jnp.stack(rows)

"""What the interior-point method asks of a problem, and the problem whose matrices are dense.

    minimise f(x)  subject to  c(x) = 0,  g(x) <= 0,  lower <= x <= upper

A program evaluates f, c and g, their derivatives, and solves one linear system; how its matrices are stored is its own affair.
"""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._elimination import block_backward, block_forward, pivot

Function = Callable[[Array], Array]


class Program(eqx.Module):
    """A nonlinear program in a vector x. Derivatives are those of the entries that `free` keeps (1), not of the fixed (0)."""

    @abc.abstractmethod
    def evaluate(self, x: Float[Array, " n"]) -> tuple[Array, Array, Array]:
        """f, c and g."""

    @abc.abstractmethod
    def linearise(
        self, x: Float[Array, " n"], y: Float[Array, " m"], w: Float[Array, " r"], free: Float[Array, " n"]
    ) -> Any:
        """The gradient of f, the Jacobians A and G and the Hessian W of f + y . c + w . g, or a convex one in its stead."""

    @abc.abstractmethod
    def values(self, at: Any) -> tuple[Array, Array, Array]:
        """f, c and g, of what `linearise` gave."""

    @abc.abstractmethod
    def gradient(self, at: Any) -> Float[Array, " n"]:
        """The gradient of f, of what `linearise` gave."""

    @abc.abstractmethod
    def times(self, at: Any, dx: Float[Array, " n"]) -> tuple[Array, Array, Array]:
        """W dx, A dx and G dx."""

    @abc.abstractmethod
    def transposed(self, at: Any, y: Float[Array, " m"], w: Float[Array, " r"]) -> Float[Array, " n"]:
        """A^T y + G^T w."""

    @abc.abstractmethod
    def curvature(self, at: Any) -> Float[Array, ""]:
        """The largest entry of W."""

    @abc.abstractmethod
    def factor(
        self,
        at: Any,
        share: Float[Array, ""],
        diagonal: Float[Array, " n"],
        weights: Float[Array, " r"],
        delta: Float[Array, ""],
    ) -> Any:
        """Factors of [H, A^T; A, -delta I] with H = share W + diag(diagonal) + G^T diag(weights) G.

        They hold a number that is not finite where H is not positive where A dx = 0.
        """

    @abc.abstractmethod
    def solve(self, factors: Any, r1: Float[Array, " n"], r2: Float[Array, " m"]) -> tuple[Array, Array]:
        """(dx, y) with the factored matrix times (dx, y) = (r1, r2)."""


def convexifier(curvature: Array, largest: Array, delta: Array) -> Float[Array, ""]:
    """rho of `elimination`: enough against curvature of W across the constraints, not so much that digits are lost."""
    size = jnp.maximum(largest * largest, jnp.finfo(largest.dtype).tiny)
    return jnp.minimum(jnp.maximum(1e4 * curvature, 1.0) / size, 0.01 / delta)


class Inner(NamedTuple):
    """Numbers u(z) in between: functions of (z, u) and u's Jacobian give derivatives with respect to z.

    Attributes:
        value: z -> u.
        jacobian: z -> du/dz.
        exact: whether second derivatives of u count in Hessians, or are left out (Gauss-Newton).
    """

    value: Function
    jacobian: Function
    exact: bool


def with_identity(jacobian: Float[Array, "S u n"]) -> Float[Array, "S n+u n"]:
    """d (z, u) / dz."""
    count, _, n = jacobian.shape
    identity = jnp.broadcast_to(jnp.eye(n, dtype=jacobian.dtype), (count, n, n))
    return jnp.concatenate([identity, jacobian], axis=1)


def times_rows(rows: Float[Array, "S e"], along: Float[Array, "S e n"]) -> Float[Array, "S n"]:
    """Each row times its matrix."""
    return jnp.einsum("se,sen->sn", rows, along)


class DenseLinearisation(eqx.Module):
    """Values and derivatives of a dense program at one point."""

    values: tuple[Array, Array, Array]
    gradient: Float[Array, " n"]
    equality: Float[Array, "m n"]
    inequality: Float[Array, "r n"]
    hessian: Float[Array, "n n"]


class DenseProgram(Program):
    """A program of functions of x, for up to a few hundred unknowns. Derivatives by JAX, W exact.

    Attributes:
        objective: f.
        equality: c.
        inequality: g.
    """

    objective: Function
    equality: Function
    inequality: Function

    def evaluate(self, x: Float[Array, " n"]) -> tuple[Array, Array, Array]:
        """f, c and g."""
        return self.objective(x), self.equality(x), self.inequality(x)

    def linearise(
        self, x: Float[Array, " n"], y: Float[Array, " m"], w: Float[Array, " r"], free: Float[Array, " n"]
    ) -> DenseLinearisation:
        """By forward mode; the Hessian by forward over reverse mode."""

        def lagrangian(x):
            f, c, g = self.evaluate(x)
            return f + y @ c + w @ g

        def twice(x):
            values = self.evaluate(x)
            return values, values

        (f, c, g), values = jax.jacfwd(twice, has_aux=True)(x)
        hessian = jax.jacfwd(jax.grad(lagrangian))(x)
        hessian = (hessian + hessian.T) / 2
        hessian = hessian * (free[:, None] * free[None])
        return DenseLinearisation(values, f * free, c * free[None], g * free[None], hessian)

    def values(self, at: DenseLinearisation) -> tuple[Array, Array, Array]:
        """f, c and g."""
        return at.values

    def gradient(self, at: DenseLinearisation) -> Float[Array, " n"]:
        """Of f."""
        return at.gradient

    def times(self, at: DenseLinearisation, dx: Float[Array, " n"]) -> tuple[Array, Array, Array]:
        """W dx, A dx and G dx."""
        return at.hessian @ dx, at.equality @ dx, at.inequality @ dx

    def transposed(self, at: DenseLinearisation, y: Float[Array, " m"], w: Float[Array, " r"]) -> Float[Array, " n"]:
        """A^T y + G^T w."""
        return at.equality.T @ y + at.inequality.T @ w

    def curvature(self, at: DenseLinearisation) -> Float[Array, ""]:
        """The largest entry of W."""
        return jnp.abs(at.hessian).max()

    def factor(
        self,
        at: DenseLinearisation,
        share: Float[Array, ""],
        diagonal: Float[Array, " n"],
        weights: Float[Array, " r"],
        delta: Float[Array, ""],
    ) -> Any:
        """One Cholesky factorisation of n rows, one of m."""
        matrix = share * at.hessian + jnp.diag(diagonal) + at.inequality.T @ (weights[:, None] * at.inequality)
        largest = jnp.abs(at.equality).max(initial=0.0)
        return pivot(matrix, at.equality, convexifier(self.curvature(at), largest, delta), delta)

    def solve(self, factors: Any, r1: Float[Array, " n"], r2: Float[Array, " m"]) -> tuple[Array, Array]:
        """By the factors."""
        return block_backward(factors, *block_forward(factors, r1, r2), jnp.zeros_like(r2))

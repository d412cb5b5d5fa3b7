"""What the interior-point method asks of a problem, and the problem whose matrices are dense.

    minimise f(x)  subject to  c(x) = 0,  g(x) <= 0,  lower <= x <= upper

A program evaluates f, c and g, their derivatives, and solves one linear system; how its matrices are stored is its own affair.
"""

import abc
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .elimination import block_backward, block_forward, pivot

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
    return jnp.minimum(jnp.maximum(10 * curvature, 1e-2) / size, 0.01 / delta)


class DenseLinearisation(eqx.Module):
    """Derivatives of a dense program at one point."""

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

        f, c, g = jax.jacfwd(self.evaluate)(x)
        hessian = jax.jacfwd(jax.grad(lagrangian))(x)
        hessian = (hessian + hessian.T) / 2
        return DenseLinearisation(f * free, c * free[None], g * free[None], hessian * (free[:, None] * free[None]))

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

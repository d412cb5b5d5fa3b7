"""Nonlinear programs for the interior-point method.

    minimise f(x)  subject to  c(x) = 0,  g(x) <= 0,  lower <= x <= upper

Each class of programs evaluates f, c, g and their derivatives, and solves the linear systems of Newton steps. A program of
stages is solved by block elimination. Each block is a linear system

    [ P   D^T    ] [z]   [r1]
    [ D  -delta I] [y] = [r2].

With delta > 0, the rows of D may be linearly dependent. Adding rho D^T times the second row to the first makes the pivot P +
rho D^T D positive definite if P is so on the null space of D and rho is large enough. A successful Cholesky factorisation
therefore shows that the matrix has the inertia required at a minimum.
"""

import abc
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jaxtyping import Array, Bool, Float


class Pivot(NamedTuple):
    """Factors with P + rho D^T D = L L^T, (1 - rho delta) D (L L^T)^-1 D^T + delta I = C C^T; NaN if one does not exist."""

    root: Float[Array, "*stages n n"]  # L^-1
    across: Float[Array, "*stages n m"]  # L^-1 D^T
    weight: Float[Array, "*stages m m"]  # C^-1
    rho: Float[Array, "*stages"]
    delta: Float[Array, "*stages"]


def pivot(p: Float[Array, "n n"], d: Float[Array, "m n"], rho: Float[Array, ""], delta: Float[Array, ""]) -> Pivot:
    """Factor one block, in O(n^3 + n^2 m + m^3)."""
    root = _inverse_root(p + rho * d.T @ d)
    across = root @ d.T
    small = (1 - rho * delta) * across.T @ across
    return Pivot(root, across, _inverse_root(small + delta * jnp.eye(len(d), dtype=d.dtype)), rho, delta)


def block_forward(block: Pivot, r1: Float[Array, " n"], r2: Float[Array, " m"]) -> tuple[Array, Array]:
    """Forward substitution: y = L^-1 (r1 + rho D^T r2) and w = C^-1 (D (L L^T)^-1 (r1 + rho D^T r2) - r2)."""
    # D^T = L (L^-1 D^T), and therefore L^-1 rho D^T r2 = rho (L^-1 D^T) r2
    y = block.root @ r1 + block.rho * (block.across @ r2)
    return y, block.weight @ (block.across.T @ y - r2)


def block_backward(
    block: Pivot, y: Float[Array, " n"], w: Float[Array, " m"], after: Float[Array, " m"]
) -> tuple[Array, Array]:
    """Back substitution for (z, multipliers); `after` is the term that the next stage's z adds to the second row."""
    share = 1 - block.rho * block.delta
    multipliers = block.weight.T @ (w + block.weight @ after / share) - block.rho / share * after
    return block.root.T @ (y - block.across @ (share * multipliers + block.rho * after)), multipliers


class StageFactors(NamedTuple):
    """Factors of the stages; `right` is the Jacobian R of each stage's rows with respect to the next stage's z."""

    stages: Pivot
    right: Float[Array, "N m n"]
    last: Pivot


def factor_stages(
    p: Float[Array, "S n n"],
    left: Float[Array, "N m n"],
    right: Float[Array, "N m n"],
    last: Float[Array, "k n"],
    rho: Float[Array, ""],
    delta: Float[Array, ""],
) -> StageFactors:
    """Factor stages with rows left_k z_k + right_k z_{k+1} - delta y_k, then last z_N - delta y_N: O(N (n^3 + m^3))."""

    def stage(carried, x):
        own, d, r = x
        block = pivot(own + carried, d, rho, delta)
        seen = block.weight @ r
        carried = (seen.T @ seen - rho * r.T @ r) / (1 - rho * delta)
        return carried, block

    carried, blocks = jax.lax.scan(stage, jnp.zeros_like(p[0]), (p[:-1], left, right))
    return StageFactors(blocks, right, pivot(p[-1] + carried, last, rho, delta))


def solve_stages(
    factors: StageFactors, r1: Float[Array, "S n"], r2: Float[Array, "N m"], last: Float[Array, " k"]
) -> tuple[Array, Array, Array]:
    """Solve for z, the multipliers of all stages' rows, and those of the last rows, in two passes: O(N (n + m)^2)."""

    def forward(carried, x):
        block, r, own, rows = x
        y, w = block_forward(block, own - carried, rows)
        return r.T @ (block.weight.T @ w), (y, w)

    carried, (y, w) = jax.lax.scan(forward, jnp.zeros_like(r1[0]), (factors.stages, factors.right, r1[:-1], r2))
    end, end_multipliers = block_backward(
        factors.last, *block_forward(factors.last, r1[-1] - carried, last), jnp.zeros_like(last)
    )

    def backward(following, x):
        block, r, y, w = x
        z, multipliers = block_backward(block, y, w, r @ following)
        return z, (z, multipliers)

    _, (z, multipliers) = jax.lax.scan(backward, end, (factors.stages, factors.right, y, w), reverse=True)
    return jnp.concatenate([z, end[None]]), multipliers, end_multipliers


def _inverse_root(matrix: Array) -> Array:
    """L^-1 for a matrix L L^T; NaN if the matrix is not positive definite."""
    if matrix.shape[0] == 0:
        return matrix
    lower = jax.lax.linalg.cholesky(matrix, symmetrize_input=False)
    return solve_triangular(lower, jnp.eye(len(matrix), dtype=matrix.dtype), lower=True)


Function = Callable[[Array], Array]


class Program(eqx.Module):
    """A nonlinear program in x; derivatives by fixed entries (`free` = 0) are zero, and `pinned` entries of g must be zero."""

    pinned: Bool[Array, " r"] | None = eqx.field(default=None, kw_only=True)

    @abc.abstractmethod
    def evaluate(self, x: Float[Array, " n"]) -> tuple[Array, Array, Array]:
        """The values of f, c and g."""

    @abc.abstractmethod
    def linearise(
        self, x: Float[Array, " n"], y: Float[Array, " m"], w: Float[Array, " r"], free: Float[Array, " n"]
    ) -> Any:
        """Compute grad f, the Jacobians A of c and G of g, and W, the Hessian of f + y . c + w . g or an approximation."""

    def values(self, at: Any) -> tuple[Array, Array, Array]:
        """The values of f, c and g at the point of a linearisation."""
        return at.values

    @abc.abstractmethod
    def gradient(self, at: Any) -> Float[Array, " n"]:
        """The gradient of f at the point of a linearisation."""

    @abc.abstractmethod
    def times(self, at: Any, dx: Float[Array, " n"]) -> tuple[Array, Array, Array]:
        """The products W dx, A dx and G dx."""

    @abc.abstractmethod
    def transposed(self, at: Any, y: Float[Array, " m"], w: Float[Array, " r"]) -> Float[Array, " n"]:
        """The vector A^T y + G^T w."""

    @abc.abstractmethod
    def curvature(self, at: Any) -> Float[Array, ""]:
        """The largest absolute entry of W."""

    @abc.abstractmethod
    def factor(
        self,
        at: Any,
        share: Float[Array, ""],
        diagonal: Float[Array, " n"],
        weights: Float[Array, " r"],
        delta: Float[Array, ""],
    ) -> Any:
        """Factor [H, A^T; A, -delta I], H = share W + diag(diagonal) + G^T diag(weights) G; not finite at a wrong inertia."""

    @abc.abstractmethod
    def solve(self, factors: Any, r1: Array, r2: Array) -> tuple[Array, Array]:
        """Solve the factored system for (dx, y), given the right-hand side (r1, r2)."""


def convexifier(curvature: Array, largest: Array, delta: Array) -> Float[Array, ""]:
    """The rho that outweighs negative curvature of W across the constraints without losing precision."""
    size = jnp.maximum(largest * largest, jnp.finfo(largest.dtype).tiny)
    return jnp.minimum(jnp.maximum(1e4 * curvature, 1.0) / size, 0.01 / delta)


def dense_factor(
    matrix: Float[Array, "n n"], equality: Float[Array, "m n"], curvature: Float[Array, ""], delta: Float[Array, ""]
) -> Pivot:
    """Factor [H, A^T; A, -delta I] by two Cholesky factorisations, of an n x n and an m x m matrix."""
    largest = jnp.abs(equality).max(initial=0.0)
    return pivot(matrix, equality, convexifier(curvature, largest, delta), delta)


def dense_solve(factors: Pivot, r1: Float[Array, " n"], r2: Float[Array, " m"]) -> tuple[Array, Array]:
    """Solve for (dx, y) with these factors."""
    return block_backward(factors, *block_forward(factors, r1, r2), jnp.zeros_like(r2))


class Part(NamedTuple):
    """What one part of a motion contributes to a program: a cost, equalities (= 0), and inequalities (<= 0)."""

    cost: Array
    equality: Array
    inequality: Array

    def lagrangian(self, y: Array, w: Array) -> Array:
        """The contribution to the Lagrangian: cost + y . equality + w . inequality."""
        return self.cost + y @ self.equality + w @ self.inequality


def with_values(function: Callable, argument: int = 0) -> Callable:
    """A function that returns the Jacobian of `function` with respect to one argument, and its value."""
    return jax.jacfwd(lambda *x: (function(*x),) * 2, argument, has_aux=True)


def with_slopes(function: Callable) -> Callable:
    """A function that returns the Hessian and gradient of a scalar `function` with respect to its first argument."""
    return jax.jacfwd(lambda *x: (jax.grad(function)(*x),) * 2, has_aux=True)


class Inner(NamedTuple):
    """Intermediate values u(z) and their Jacobian; `exact`: Hessians include their second derivatives."""

    value: Function
    jacobian: Function
    exact: bool

    def joined(self, z: Float[Array, "S n"]) -> tuple[Float[Array, "S e"], Float[Array, "S e n"]]:
        """The concatenated vectors (z, u), one per row, and their derivatives with respect to z."""
        count, n = z.shape
        u, jacobian = jax.vmap(self.value)(z), jax.vmap(self.jacobian)(z)
        identity = jnp.broadcast_to(jnp.eye(n, dtype=jacobian.dtype), (count, n, n))
        return jnp.concatenate([z, u], axis=1), jnp.concatenate([identity, jacobian], axis=1)

    def curvature(self, z: Float[Array, "S n"], slopes: Float[Array, "S e"]) -> Float[Array, "S n n"]:
        """The second derivatives of u, contracted with the gradients with respect to (z, u)."""
        return jax.vmap(jax.jacfwd(lambda z, slope: self.jacobian(z).T @ slope))(z, slopes[:, z.shape[1] :])


def along_rows(jacobian: Any, along: Float[Array, "S e n"]) -> Any:
    """Convert Jacobians (S, r, e) and gradients (S, e) with respect to (z, u) into derivatives with respect to z."""
    times_rows = lambda rows: jnp.einsum("se,sen->sn", rows, along)
    return jax.tree.map(lambda rows: rows @ along if rows.ndim == 3 else times_rows(rows), jacobian)


class DenseLinearisation(eqx.Module):
    """Values and derivatives of a dense program at one point."""

    values: tuple[Array, Array, Array]
    gradient: Float[Array, " n"]
    equality: Float[Array, "m n"]
    inequality: Float[Array, "r n"]
    hessian: Float[Array, "n n"]


class DenseProgram(Program):
    """A program of functions of up to a few hundred unknowns, with dense matrices and exact derivatives from JAX."""

    objective: Function
    equality: Function
    inequality: Function

    def evaluate(self, x: Float[Array, " n"]) -> tuple[Array, Array, Array]:
        return self.objective(x), self.equality(x), self.inequality(x)

    def linearise(self, x: Array, y: Array, w: Array, free: Array) -> DenseLinearisation:
        """Compute Jacobians in forward mode, and the Hessian in forward-over-reverse mode."""
        (f, c, g), values = with_values(self.evaluate)(x)
        hessian = jax.jacfwd(jax.grad(lambda x: Part(*self.evaluate(x)).lagrangian(y, w)))(x)
        hessian = (hessian + hessian.T) / 2
        hessian = hessian * (free[:, None] * free[None])
        return DenseLinearisation(values, f * free, c * free[None], g * free[None], hessian)

    def gradient(self, at: DenseLinearisation) -> Float[Array, " n"]:
        return at.gradient

    def times(self, at: DenseLinearisation, dx: Array) -> tuple[Array, Array, Array]:
        return at.hessian @ dx, at.equality @ dx, at.inequality @ dx

    def transposed(self, at: DenseLinearisation, y: Array, w: Array) -> Array:
        return at.equality.T @ y + at.inequality.T @ w

    def curvature(self, at: DenseLinearisation) -> Float[Array, ""]:
        return jnp.abs(at.hessian).max()

    def factor(self, at: DenseLinearisation, share: Array, diagonal: Array, weights: Array, delta: Array) -> Pivot:
        matrix = share * at.hessian + jnp.diag(diagonal) + at.inequality.T @ (weights[:, None] * at.inequality)
        return dense_factor(matrix, at.equality, self.curvature(at), delta)

    def solve(self, factors: Pivot, r1: Array, r2: Array) -> tuple[Array, Array]:
        return dense_solve(factors, r1, r2)

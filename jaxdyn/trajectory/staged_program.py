"""Programs of many stages, each coupled with the next one alone: their Newton steps take one pass forth and one back.

    minimise    sum_k cost_k(z_k) + |residual_k(z_k)|^2 / 2  +  the last stage's cost
    subject to  left_k(z_k) + right_{k+1}(z_{k+1}) = 0       k = 0 ... N - 1
                equality_k(z_k) = 0,  inequality_k(z_k) <= 0 k = 0 ... N
                equality(z_N) = 0,  inequality(z_N) <= 0     of the last stage alone

What a stage adds is a function of its own unknowns, so that the Hessian of the Lagrangian is block diagonal.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .elimination import StageFactors, factor_stages, solve_stages
from .nonlinear_program import Program, convexifier


class Stage(NamedTuple):
    """What a stage is worth at its unknowns z.

    Attributes:
        cost: a number.
        residual: of which half the square is added to the cost.
        left: its part of the coupling with the next stage.
        right: its part of the coupling with the stage before, of the same length.
        equality: = 0.
        inequality: <= 0.
    """

    cost: Array
    residual: Array
    left: Array
    right: Array
    equality: Array
    inequality: Array


class LastStage(NamedTuple):
    """What the last stage adds: cost, residual, equality = 0 and inequality <= 0."""

    cost: Array
    residual: Array
    equality: Array
    inequality: Array


class StagedLinearisation(NamedTuple):
    """Derivatives of a staged program at one point, stage by stage."""

    gradient: Float[Array, "S n"]
    left: Float[Array, "N m n"]
    right: Float[Array, "N m n"]
    equality: Float[Array, "S p n"]
    inequality: Float[Array, "S r n"]
    last_equality: Float[Array, "pl n"]
    last_inequality: Float[Array, "rl n"]
    hessian: Float[Array, "S n n"]


class StagedProgram(Program):
    """A program of S stages with n unknowns each; x holds them one stage after the other.

    Equality constraints are ordered: couplings by stage, stages' own by stage, those of the last stage; inequalities: stages'
    own, those of the last.

    Attributes:
        data: of the stages; every leaf has a row a stage.
        stage: (data of a stage, z) -> `Stage`.
        last: z -> `LastStage`.
        unknowns: n.
        stages: S, at least 2.
        sizes: of `stage_sizes`.
        exact: the Hessian of the Lagrangian; or that of residuals linearised (Gauss-Newton) and of no constraint.
    """

    data: PyTree
    stage: Callable[[Any, Array], Stage] = eqx.field(static=True)
    last: Callable[[Array], LastStage] = eqx.field(static=True)
    unknowns: int = eqx.field(static=True)
    stages: int = eqx.field(static=True)
    sizes: tuple[int, int, int] = eqx.field(static=True)
    exact: bool = eqx.field(static=True, default=True)

    def rows(self, x: Float[Array, " S*n"]) -> Float[Array, "S n"]:
        """A row of unknowns a stage."""
        return x.reshape(self.stages, self.unknowns)

    def evaluate(self, x: Float[Array, " S*n"]) -> tuple[Array, Array, Array]:
        """f, c and g."""
        z = self.rows(x)
        at, end = jax.vmap(self.stage)(self.data, z), self.last(z[-1])
        f = at.cost.sum() + (at.residual**2).sum() / 2 + end.cost + (end.residual**2).sum() / 2
        c = [(at.left[:-1] + at.right[1:]).reshape(-1), at.equality.reshape(-1), end.equality]
        return f, jnp.concatenate(c), jnp.concatenate([at.inequality.reshape(-1), end.inequality])

    def linearise(
        self, x: Float[Array, " S*n"], y: Float[Array, " m"], w: Float[Array, " r"], free: Float[Array, " S*n"]
    ) -> StagedLinearisation:
        """Jacobians by forward mode, stages side by side; exact Hessians by forward over reverse mode."""
        z, free = self.rows(x), self.rows(free)
        jacobian = jax.vmap(jax.jacfwd(self.stage, 1))(self.data, z)
        end = jax.jacfwd(self.last)(z[-1])
        residual, end_residual = self._residuals(z)
        gradient = jacobian.cost + jnp.einsum("ski,sk->si", jacobian.residual, residual)
        gradient = gradient.at[-1].add(end.cost + end.residual.T @ end_residual)
        jacobian = jax.tree.map(lambda rows: rows * (free[:, None] if rows.ndim == 3 else free), jacobian)
        end = jax.tree.map(lambda rows: rows * (free[-1][None] if rows.ndim == 2 else free[-1]), end)
        if self.exact:
            hessian = self._exact(z, y, w) * (free[:, :, None] * free[:, None])
        else:
            hessian = jnp.einsum("ski,skj->sij", jacobian.residual, jacobian.residual)
            hessian = hessian.at[-1].add(end.residual.T @ end.residual)
        return StagedLinearisation(
            gradient * free,
            *(jacobian.left[:-1], jacobian.right[1:], jacobian.equality, jacobian.inequality),
            *(end.equality, end.inequality, hessian),
        )

    def _residuals(self, z: Array) -> tuple[Array, Array]:
        return jax.vmap(self.stage)(self.data, z).residual, self.last(z[-1]).residual

    def _exact(self, z: Array, y: Array, w: Array) -> Array:
        (coupling, own, own_last), (inequality, inequality_last) = self.split(y, w)
        nothing = jnp.zeros((1, coupling.shape[1]), z.dtype)
        of_left, of_right = jnp.concatenate([coupling, nothing]), jnp.concatenate([nothing, coupling])

        def lagrangian(z, data, left, right, equality, inequality):
            at = self.stage(data, z)
            value = at.cost + at.residual @ at.residual / 2 + left @ at.left + right @ at.right
            return value + equality @ at.equality + inequality @ at.inequality

        def end_lagrangian(z):
            at = self.last(z)
            value = at.cost + at.residual @ at.residual / 2
            return value + own_last @ at.equality + inequality_last @ at.inequality

        hessian = jax.vmap(jax.jacfwd(jax.grad(lagrangian)))(z, self.data, of_left, of_right, own, inequality)
        hessian = hessian.at[-1].add(jax.jacfwd(jax.grad(end_lagrangian))(z[-1]))
        return (hessian + hessian.mT) / 2

    def split(self, y: Array, w: Array) -> tuple[list[Array], list[Array]]:
        """Multipliers of couplings, of the stages' own constraints and of the last's; and those of the inequalities."""
        count, (m, p, r) = self.stages, self.sizes
        coupling, own, end = jnp.split(y, [(count - 1) * m, (count - 1) * m + count * p])
        inequality, inequality_end = jnp.split(w, [count * r])
        of_equalities = [coupling.reshape(count - 1, m), own.reshape(count, p), end]
        return of_equalities, [inequality.reshape(count, r), inequality_end]

    def gradient(self, at: StagedLinearisation) -> Float[Array, " S*n"]:
        """Of f."""
        return at.gradient.reshape(-1)

    def times(self, at: StagedLinearisation, dx: Float[Array, " S*n"]) -> tuple[Array, Array, Array]:
        """W dx, A dx and G dx."""
        z = self.rows(dx)
        product = lambda matrices, vectors: jnp.einsum("sij,sj->si", matrices, vectors).reshape(-1)
        coupling = product(at.left, z[:-1]) + product(at.right, z[1:])
        c = jnp.concatenate([coupling, product(at.equality, z), at.last_equality @ z[-1]])
        return product(at.hessian, z), c, jnp.concatenate([product(at.inequality, z), at.last_inequality @ z[-1]])

    def transposed(self, at: StagedLinearisation, y: Float[Array, " m"], w: Float[Array, " r"]) -> Float[Array, " S*n"]:
        """A^T y + G^T w."""
        (coupling, own, end), (inequality, inequality_end) = self.split(y, w)
        product = lambda matrices, vectors: jnp.einsum("sij,si->sj", matrices, vectors)
        z = product(at.equality, own) + product(at.inequality, inequality)
        z = z.at[:-1].add(product(at.left, coupling)).at[1:].add(product(at.right, coupling))
        z = z.at[-1].add(at.last_equality.T @ end + at.last_inequality.T @ inequality_end)
        return z.reshape(-1)

    def curvature(self, at: StagedLinearisation) -> Float[Array, ""]:
        """The largest entry of W."""
        return jnp.abs(at.hessian).max()

    def factor(
        self,
        at: StagedLinearisation,
        share: Float[Array, ""],
        diagonal: Float[Array, " S*n"],
        weights: Float[Array, " r"],
        delta: Float[Array, ""],
    ) -> StageFactors:
        """One pass over the stages, whose own equality constraints join the rows of their coupling."""
        inequality, inequality_end = jnp.split(weights, [self.stages * self.sizes[2]])
        inequality = inequality.reshape(self.stages, -1)
        p = share * at.hessian + self.rows(diagonal)[:, :, None] * jnp.eye(self.unknowns, dtype=diagonal.dtype)
        p = p + jnp.einsum("ski,sk,skj->sij", at.inequality, inequality, at.inequality)
        p = p.at[-1].add(at.last_inequality.T @ (inequality_end[:, None] * at.last_inequality))
        left = jnp.concatenate([at.left, at.equality[:-1]], axis=1)
        right = jnp.concatenate([at.right, jnp.zeros_like(at.equality[1:])], axis=1)
        last = jnp.concatenate([at.equality[-1], at.last_equality])
        largest = jnp.abs(left).max(initial=0.0)
        return factor_stages(p, left, right, last, convexifier(self.curvature(at), largest, delta), delta)

    def solve(self, factors: StageFactors, r1: Float[Array, " S*n"], r2: Float[Array, " m"]) -> tuple[Array, Array]:
        """One pass forth, one back."""
        count, (m, p, _) = self.stages, self.sizes
        (coupling, own, end), _ = self.split(r2, jnp.zeros(count * self.sizes[2], r2.dtype))
        rows = jnp.concatenate([coupling, own[:-1]], axis=1)  # as `factor` joined them
        z, y, y_end = solve_stages(factors, self.rows(r1), rows, jnp.concatenate([own[-1], end]))
        own = jnp.concatenate([y[:, m:].reshape(-1), y_end[:p]])
        return z.reshape(-1), jnp.concatenate([y[:, :m].reshape(-1), own, y_end[p:]])


def stage_sizes(stage: Callable[[Any, Array], Stage], data: PyTree, unknowns: int, dtype: Any) -> tuple[int, int, int]:
    """Lengths of the coupling, of a stage's equalities and of its inequalities."""
    first = jax.tree.map(lambda leaf: leaf[0], data)
    shapes = jax.eval_shape(stage, first, jax.ShapeDtypeStruct((unknowns,), dtype))
    return shapes.left.shape[0], shapes.equality.shape[0], shapes.inequality.shape[0]

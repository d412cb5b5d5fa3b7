"""Programs with many stages, each coupled only to the next, so that a Newton step takes one forward and one backward pass.

    minimise    sum_k cost_k(z_k)  +  the last stage's cost
    subject to  left_k(z_k) + right_{k+1}(z_{k+1}) = 0       k = 0 ... N - 1
                equality_k(z_k) = 0,  inequality_k(z_k) <= 0 k = 0 ... N
                equality(z_N) = 0,  inequality(z_N) <= 0     additional, last stage only

Each term depends only on the unknowns of a single stage, so the Hessian of the Lagrangian is block diagonal.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._interior_point.elimination import StageFactors, factor_stages, solve_stages
from .._interior_point.program import Inner, Part, Program, along_rows, convexifier, with_slopes, with_values


class Stage(NamedTuple):
    """The contribution of a stage, a function of the stage's unknowns z.

    Attributes:
        cost: the stage's cost, a scalar.
        left: contribution to the equalities that couple the stage to the next stage.
        right: contribution to the equalities that couple the stage to the previous stage, of the same length as `left`.
        equality: values that must be zero.
        inequality: values that must not be positive.
    """

    cost: Array
    left: Array
    right: Array
    equality: Array
    inequality: Array


class StagedLinearisation(NamedTuple):
    """Values of a staged program at one point, and derivatives of each stage."""

    values: tuple[Array, Array, Array]
    gradient: Float[Array, "S n"]
    left: Float[Array, "N m n"]
    right: Float[Array, "N m n"]
    equality: Float[Array, "S p n"]
    inequality: Float[Array, "S r n"]
    last_equality: Float[Array, "pl n"]
    last_inequality: Float[Array, "rl n"]
    hessian: Float[Array, "S n n"]


class StagedProgram(Program):
    """A program with S stages of n unknowns each; x contains the unknowns stage by stage.

    The equalities are, in this order, those of all couplings, those of all stages, and the additional equalities of the last
    stage. The inequalities are those of all stages, followed by the additional inequalities of the last stage.

    Attributes:
        data: data of the stages, a pytree whose leaves have one row per stage.
        inner: expensive intermediate values u of a stage, for example torques, and their derivatives.
        stage: (data of a stage, z, u) -> `Stage`.
        last: (z, u) of the last stage -> additional `Part`.
        unknowns: number n of unknowns per stage.
        stages: number S of stages, at least 2.
        sizes: numbers of couplings, equalities and inequalities per stage.
    """

    data: PyTree
    inner: Inner = eqx.field(static=True)
    stage: Callable[[Any, Array, Array], Stage] = eqx.field(static=True)
    last: Callable[[Array, Array], Part] = eqx.field(static=True)
    unknowns: int = eqx.field(static=True)
    stages: int = eqx.field(static=True)
    sizes: tuple[int, int, int] = eqx.field(static=True)

    def rows(self, x: Array) -> Float[Array, "S n"]:
        """One row of unknowns per stage."""
        return x.reshape(self.stages, self.unknowns)

    def evaluate(self, x: Float[Array, " total"]) -> tuple[Array, Array, Array]:
        z = self.rows(x)
        u = jax.vmap(self.inner.value)(z)
        return self._sums(jax.vmap(self.stage)(self.data, z, u), self.last(z[-1], u[-1]))

    def _sums(self, at: Stage, end: Part) -> tuple[Array, Array, Array]:
        f = at.cost.sum() + end.cost
        c = [(at.left[:-1] + at.right[1:]).reshape(-1), at.equality.reshape(-1), end.equality]
        return f, jnp.concatenate(c), jnp.concatenate([at.inequality.reshape(-1), end.inequality])

    def linearise(self, x: Array, y: Array, w: Array, free: Array) -> StagedLinearisation:
        """Linearise all stages in parallel, with Jacobians in forward mode and Hessians in forward-over-reverse mode."""
        z, free, n = self.rows(x), self.rows(free), self.unknowns
        joined, along = self.inner.joined(z)
        along = along * free[:, None]
        stage, last = lambda data, e: self.stage(data, e[:n], e[n:]), lambda e: self.last(e[:n], e[n:])
        jacobian, at = jax.vmap(with_values(stage, 1))(self.data, joined)
        jacobian = along_rows(jacobian, along)
        end, at_end = with_values(last)(joined[-1])
        end = jax.tree.map(lambda rows: rows @ along[-1], end)

        (coupling, own, own_last), (inequality, inequality_last) = self.split(y, w)
        nothing = jnp.zeros((1, coupling.shape[1]), z.dtype)
        of_left, of_right = jnp.concatenate([coupling, nothing]), jnp.concatenate([nothing, coupling])

        def lagrangian(e, data, left, right, equality, inequality):
            at = stage(data, e)
            value = at.cost + left @ at.left + right @ at.right
            return value + equality @ at.equality + inequality @ at.inequality

        outer, slopes = jax.vmap(with_slopes(lagrangian))(joined, self.data, of_left, of_right, own, inequality)
        of_end = with_slopes(lambda e: last(e).lagrangian(own_last, inequality_last))
        outer_end, slopes_end = of_end(joined[-1])
        outer, slopes = outer.at[-1].add(outer_end), slopes.at[-1].add(slopes_end)
        hessian = along.mT @ outer @ along
        if self.inner.exact:
            hessian = hessian + self.inner.curvature(z, slopes) * (free[:, :, None] * free[:, None])
        return StagedLinearisation(
            self._sums(at, at_end),
            jacobian.cost.at[-1].add(end.cost),
            *(jacobian.left[:-1], jacobian.right[1:], jacobian.equality, jacobian.inequality),
            *(end.equality, end.inequality, (hessian + hessian.mT) / 2),
        )

    def split(self, y: Array, w: Array) -> tuple[list[Array], list[Array]]:
        """Split the multipliers y and w by constraint type.

        The parts of y belong to the couplings, the stages' equalities, and the last stage's additional equalities; the parts of
        w belong to the stages' inequalities and the last stage's additional inequalities.
        """
        count, (m, p, r) = self.stages, self.sizes
        coupling, own, end = jnp.split(y, [(count - 1) * m, (count - 1) * m + count * p])
        inequality, inequality_end = jnp.split(w, [count * r])
        of_equalities = [coupling.reshape(count - 1, m), own.reshape(count, p), end]
        return of_equalities, [inequality.reshape(count, r), inequality_end]

    def gradient(self, at: StagedLinearisation) -> Float[Array, " total"]:
        return at.gradient.reshape(-1)

    def times(self, at: StagedLinearisation, dx: Array) -> tuple[Array, Array, Array]:
        z = self.rows(dx)
        product = lambda matrices, vectors: jnp.einsum("sij,sj->si", matrices, vectors).reshape(-1)
        coupling = product(at.left, z[:-1]) + product(at.right, z[1:])
        c = jnp.concatenate([coupling, product(at.equality, z), at.last_equality @ z[-1]])
        return product(at.hessian, z), c, jnp.concatenate([product(at.inequality, z), at.last_inequality @ z[-1]])

    def transposed(self, at: StagedLinearisation, y: Array, w: Array) -> Array:
        (coupling, own, end), (inequality, inequality_end) = self.split(y, w)
        product = lambda matrices, vectors: jnp.einsum("sij,si->sj", matrices, vectors)
        z = product(at.equality, own) + product(at.inequality, inequality)
        z = z.at[:-1].add(product(at.left, coupling)).at[1:].add(product(at.right, coupling))
        z = z.at[-1].add(at.last_equality.T @ end + at.last_inequality.T @ inequality_end)
        return z.reshape(-1)

    def curvature(self, at: StagedLinearisation) -> Float[Array, ""]:
        return jnp.abs(at.hessian).max()

    def factor(
        self, at: StagedLinearisation, share: Array, diagonal: Array, weights: Array, delta: Array
    ) -> StageFactors:
        """Factor the system in one pass over the stages; each stage's equalities are appended to the rows of its coupling."""
        inequality, inequality_end = jnp.split(weights, [self.stages * self.sizes[2]])
        inequality = inequality.reshape(self.stages, self.sizes[2])
        p = share * at.hessian + jax.vmap(jnp.diag)(self.rows(diagonal))
        p = p + jnp.einsum("ski,sk,skj->sij", at.inequality, inequality, at.inequality)
        p = p.at[-1].add(at.last_inequality.T @ (inequality_end[:, None] * at.last_inequality))
        left = jnp.concatenate([at.left, at.equality[:-1]], axis=1)
        right = jnp.concatenate([at.right, jnp.zeros_like(at.equality[1:])], axis=1)
        last = jnp.concatenate([at.equality[-1], at.last_equality])
        largest = jnp.abs(left).max(initial=0.0)
        return factor_stages(p, left, right, last, convexifier(self.curvature(at), largest, delta), delta)

    def solve(self, factors: StageFactors, r1: Array, r2: Array) -> tuple[Array, Array]:
        """Solve in one forward and one backward pass."""
        count, (m, p, _) = self.stages, self.sizes
        (coupling, own, end), _ = self.split(r2, jnp.zeros(count * self.sizes[2], r2.dtype))
        rows = jnp.concatenate([coupling, own[:-1]], axis=1)  # in the order used by `factor`
        z, y, y_end = solve_stages(factors, self.rows(r1), rows, jnp.concatenate([own[-1], end]))
        own = jnp.concatenate([y[:, m:].reshape(-1), y_end[:p]])
        return z.reshape(-1), jnp.concatenate([y[:, :m].reshape(-1), own, y_end[p:]])

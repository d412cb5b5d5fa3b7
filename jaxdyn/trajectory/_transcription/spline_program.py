"""The nonlinear program of a B-spline motion: a sum over knots, in which each term depends on only a few numbers.

The unknowns x are the control points P and the duration T. Knot k depends on y_k = (q, q', q'', q''', T) = S_k x, where primes
denote derivatives with respect to t / T. Gradients and Hessians are computed with respect to y_k and mapped to x by S_k^T.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._interior_point.elimination import Pivot
from .._interior_point.program import (
    Inner,
    Part,
    Program,
    along_rows,
    dense_factor,
    dense_solve,
    with_slopes,
    with_values,
)


class SplineLinearisation(NamedTuple):
    """Values, gradient and Jacobian of the equalities with respect to x, and all other derivatives with respect to y_k."""

    values: tuple[Array, Array, Array]
    gradient: Float[Array, " n"]
    equality: Float[Array, "m n"]
    inequality: Float[Array, "S r y"]
    first: Float[Array, "rf y"]
    last: Float[Array, "rl y"]
    hessian: Float[Array, "S y y"]
    free: Float[Array, " n"]


class SplineProgram(Program):
    """A sum over knots, with additional terms for the first and the last knot.

    The equalities of all knots are followed by the additional equalities of the first knot, and then by those of the last knot.
    The inequalities are in the same order.

    Attributes:
        basis: values of the splines and of their derivatives at the knots.
        data: data of the knots, a pytree whose leaves have one row per knot.
        inner: expensive intermediate values u of a knot, such as torques, and their derivatives.
        knot: (data of a knot, y, u) -> `Part`.
        first: y of the first knot -> additional `Part`.
        last: (y, u) of the last knot -> additional `Part`.
        joints: number of entries of a control point.
    """

    basis: Float[Array, "d S k"]
    data: PyTree
    inner: Inner = eqx.field(static=True)
    knot: Callable[[Any, Array, Array], Part] = eqx.field(static=True)
    first: Callable[[Array], Part] = eqx.field(static=True)
    last: Callable[[Array, Array], Part] = eqx.field(static=True)
    joints: int = eqx.field(static=True)

    def seen(self, x: Float[Array, " n"]) -> Float[Array, "S y"]:
        """y_k at every knot."""
        control = x[:-1].reshape(-1, self.joints)
        parts = jnp.einsum("dsk,kj->sdj", self.basis, control)
        count = self.basis.shape[1]
        return jnp.concatenate([parts.reshape(count, -1), jnp.broadcast_to(x[-1:], (count, 1))], axis=1)

    def gathered(self, y: Float[Array, "S y"]) -> Float[Array, " n"]:
        """The sum over k of S_k^T y_k."""
        d, count, _ = self.basis.shape
        control = jnp.einsum("dsk,sdj->kj", self.basis, y[:, :-1].reshape(count, d, self.joints))
        return jnp.concatenate([control.reshape(-1), y[:, -1].sum()[None]])

    def _rows(self, jacobian: Float[Array, "s r y"], knots: slice = slice(None)) -> Float[Array, "rows n"]:
        """Convert Jacobian rows with respect to y_k at some knots into rows with respect to x."""
        basis, (count, r, _) = self.basis[:, knots], jacobian.shape
        parts = jacobian[:, :, :-1].reshape(count, r, basis.shape[0], self.joints)
        control = jnp.einsum("dsk,srdj->srkj", basis, parts).reshape(count * r, basis.shape[2] * self.joints)
        return jnp.concatenate([control, jacobian[:, :, -1].reshape(-1, 1)], axis=1)

    def evaluate(self, x: Float[Array, " n"]) -> tuple[Array, Array, Array]:
        y = self.seen(x)
        u = jax.vmap(self.inner.value)(y)
        return self._sums(jax.vmap(self.knot)(self.data, y, u), self.first(y[0]), self.last(y[-1], u[-1]))

    def _sums(self, at: Part, first: Part, last: Part) -> tuple[Array, Array, Array]:
        join = lambda name: jnp.concatenate([getattr(at, name).reshape(-1), getattr(first, name), getattr(last, name)])
        return at.cost.sum() + first.cost + last.cost, join("equality"), join("inequality")

    def linearise(self, x: Array, y: Array, w: Array, free: Array) -> SplineLinearisation:
        """Compute Jacobians with respect to y_k in forward mode, and Hessians in forward-over-reverse mode."""
        seen = self.seen(x)
        n = seen.shape[1]
        joined, along = self.inner.joined(seen)
        knot, end = lambda data, e: self.knot(data, e[:n], e[n:]), lambda e: self.last(e[:n], e[n:])
        at, values = jax.vmap(with_values(knot, 1))(self.data, joined)
        at = along_rows(at, along)
        first, first_values = with_values(self.first)(seen[0])
        last, last_values = with_values(end)(joined[-1])
        last = jax.tree.map(lambda rows: rows @ along[-1], last)
        gradient = self.gathered(at.cost.at[0].add(first.cost).at[-1].add(last.cost))
        ends = self._rows(first.equality[None], slice(0, 1)), self._rows(last.equality[None], slice(-1, None))
        equality = jnp.concatenate([self._rows(at.equality), *ends]) * free[None]

        own, of_first, of_last = self.split(y, at.equality.shape[1], len(first.equality))
        below, below_first, below_last = self.split(w, at.inequality.shape[1], len(first.inequality))
        of_knot = with_slopes(lambda e, data, y, w: knot(data, e).lagrangian(y, w))
        outer, slopes = jax.vmap(of_knot)(joined, self.data, own, below)
        outer_end, slopes_end = with_slopes(lambda e: end(e).lagrangian(of_last, below_last))(joined[-1])
        outer, slopes = outer.at[-1].add(outer_end), slopes.at[-1].add(slopes_end)
        hessian = along.mT @ outer @ along
        if self.inner.exact:
            hessian = hessian + self.inner.curvature(seen, slopes)
        at_first = lambda y: self.first(y).lagrangian(of_first, below_first)
        hessian = hessian.at[0].add(jax.jacfwd(jax.grad(at_first))(seen[0]))
        values, hessian = self._sums(values, first_values, last_values), (hessian + hessian.mT) / 2
        return SplineLinearisation(
            values, gradient * free, equality, at.inequality, first.inequality, last.inequality, hessian, free
        )

    def split(self, values: Array, own: int, first: int) -> tuple[Array, Array, Array]:
        """Split a vector into the values of all knots (one row each) and the additional values of the first and last knot."""
        count = self.basis.shape[1]
        at, of_first, of_last = jnp.split(values, [count * own, count * own + first])
        return at.reshape(count, own), of_first, of_last

    def gradient(self, at: SplineLinearisation) -> Float[Array, " n"]:
        return at.gradient

    def times(self, at: SplineLinearisation, dx: Array) -> tuple[Array, Array, Array]:
        dx = dx * at.free
        seen = self.seen(dx)
        curved = self.gathered(jnp.einsum("syz,sz->sy", at.hessian, seen)) * at.free
        below = jnp.einsum("sry,sy->sr", at.inequality, seen).reshape(-1)
        return curved, at.equality @ dx, jnp.concatenate([below, at.first @ seen[0], at.last @ seen[-1]])

    def transposed(self, at: SplineLinearisation, y: Array, w: Array) -> Array:
        below, first, last = self.split(w, at.inequality.shape[1], len(at.first))
        seen = jnp.einsum("sry,sr->sy", at.inequality, below)
        seen = seen.at[0].add(at.first.T @ first).at[-1].add(at.last.T @ last)
        return at.equality.T @ y + self.gathered(seen) * at.free

    def curvature(self, at: SplineLinearisation) -> Float[Array, ""]:
        """An estimate of the largest absolute entry of W."""
        return jnp.abs(self._matrix(at.hessian)).max()

    def _matrix(self, hessian: Float[Array, "S y y"]) -> Float[Array, "n n"]:
        """The sum over k of S_k^T H_k S_k."""
        d, count, _ = self.basis.shape
        n = self.joints
        inner = hessian[:, :-1, :-1].reshape(count, d, n, d, n)
        half = jnp.einsum("dsa,sdjel->sajel", self.basis, inner)
        control = jnp.einsum("sajel,esb->ajbl", half, self.basis).reshape(self.basis.shape[2] * n, -1)
        across = jnp.einsum("dsa,sdj->aj", self.basis, hessian[:, :-1, -1].reshape(count, d, n)).reshape(-1)
        corner = hessian[:, -1, -1].sum()[None]
        upper = jnp.concatenate([control, across[:, None]], axis=1)
        return jnp.concatenate([upper, jnp.concatenate([across, corner])[None]])

    def factor(self, at: SplineLinearisation, share: Array, diagonal: Array, weights: Array, delta: Array) -> Pivot:
        below, first, last = self.split(weights, at.inequality.shape[1], len(at.first))
        hessian = share * at.hessian + jnp.einsum("sry,sr,srz->syz", at.inequality, below, at.inequality)
        hessian = hessian.at[0].add(at.first.T @ (first[:, None] * at.first))
        hessian = hessian.at[-1].add(at.last.T @ (last[:, None] * at.last))
        matrix = self._matrix(hessian) * (at.free[:, None] * at.free[None]) + jnp.diag(diagonal)
        return dense_factor(matrix, at.equality, share * self.curvature(at), delta)

    def solve(self, factors: Pivot, r1: Array, r2: Array) -> tuple[Array, Array]:
        return dense_solve(factors, r1, r2)

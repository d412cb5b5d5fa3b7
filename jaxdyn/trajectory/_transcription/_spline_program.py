"""The nonlinear program of a motion made of B-splines: a sum over knots, each of which sees a few numbers.

With the control points P and the duration T as unknowns x, knot k sees y_k = (q, q', q'', q''', T) derivatives by the part
of the duration that has passed: y_k = S_k x. Gradients and Hessians are found in y_k and brought to x by S_k^T.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from .._interior_point._elimination import block_backward, block_forward, pivot
from .._interior_point._program import Inner, Program, convexifier, times_rows, with_identity


class AtKnot(NamedTuple):
    """What a knot, or an end of the motion, is worth: a cost, what is to be zero, what must not be above zero."""

    cost: Array
    equality: Array
    inequality: Array


class SplineLinearisation(NamedTuple):
    """Values; gradient and equalities' Jacobian with respect to x, the rest with respect to y_k."""

    values: tuple[Array, Array, Array]
    gradient: Float[Array, " n"]
    equality: Float[Array, "m n"]
    inequality: Float[Array, "S r y"]
    first: Float[Array, "rf y"]
    last: Float[Array, "rl y"]
    hessian: Float[Array, "S y y"]
    free: Float[Array, " n"]


class SplineProgram(Program):
    """A sum over knots, and what the first and the last knot add.

    Equality constraints are ordered: knots' own by knot, the first one's, the last one's; inequalities the same.

    Attributes:
        basis: values of the splines at the knots, and of their derivatives.
        data: of the knots; every leaf has a row a knot.
        inner: numbers u of a knot that take long to compute, the torques.
        knot: (data of a knot, y, u) -> `AtKnot`.
        first: y of that knot -> `AtKnot`.
        last: (y, u) of that knot -> `AtKnot`.
        joints: numbers in a control point.
    """

    basis: Float[Array, "d S k"]
    data: PyTree
    inner: Inner = eqx.field(static=True)
    knot: Callable[[Any, Array, Array], AtKnot] = eqx.field(static=True)
    first: Callable[[Array], AtKnot] = eqx.field(static=True)
    last: Callable[[Array, Array], AtKnot] = eqx.field(static=True)
    joints: int = eqx.field(static=True)

    def seen(self, x: Float[Array, " n"]) -> Float[Array, "S y"]:
        """y_k of every knot."""
        control = x[:-1].reshape(-1, self.joints)
        parts = jnp.einsum("dsk,kj->sdj", self.basis, control)
        count = self.basis.shape[1]
        return jnp.concatenate([parts.reshape(count, -1), jnp.broadcast_to(x[-1:], (count, 1))], axis=1)

    def gathered(self, y: Float[Array, "S y"]) -> Float[Array, " n"]:
        """sum_k S_k^T y_k."""
        d, count, _ = self.basis.shape
        control = jnp.einsum("dsk,sdj->kj", self.basis, y[:, :-1].reshape(count, d, self.joints))
        return jnp.concatenate([control.reshape(-1), y[:, -1].sum()[None]])

    def _rows(self, jacobian: Float[Array, "S r y"]) -> Float[Array, "rows n"]:
        """Rows over y_k as rows over x."""
        count, r, _ = jacobian.shape
        parts = jacobian[:, :, :-1].reshape(count, r, self.basis.shape[0], self.joints)
        control = jnp.einsum("dsk,srdj->srkj", self.basis, parts).reshape(count * r, self.basis.shape[2] * self.joints)
        return jnp.concatenate([control, jacobian[:, :, -1].reshape(-1, 1)], axis=1)

    def _row_at(self, jacobian: Float[Array, "r y"], k: int) -> Float[Array, "r n"]:
        parts = jacobian[:, :-1].reshape(len(jacobian), self.basis.shape[0], self.joints)
        control = jnp.einsum("dk,rdj->rkj", self.basis[:, k], parts).reshape(
            len(jacobian), self.basis.shape[2] * self.joints
        )
        return jnp.concatenate([control, jacobian[:, -1:]], axis=1)

    def evaluate(self, x: Float[Array, " n"]) -> tuple[Array, Array, Array]:
        """f, c and g."""
        y = self.seen(x)
        u = jax.vmap(self.inner.value)(y)
        return self._sums(jax.vmap(self.knot)(self.data, y, u), self.first(y[0]), self.last(y[-1], u[-1]))

    def _sums(self, at: AtKnot, first: AtKnot, last: AtKnot) -> tuple[Array, Array, Array]:
        join = lambda name: jnp.concatenate([getattr(at, name).reshape(-1), getattr(first, name), getattr(last, name)])
        return at.cost.sum() + first.cost + last.cost, join("equality"), join("inequality")

    def linearise(
        self, x: Float[Array, " n"], y: Float[Array, " m"], w: Float[Array, " r"], free: Float[Array, " n"]
    ) -> SplineLinearisation:
        """By forward mode in y_k; Hessians by forward over reverse mode."""
        seen = self.seen(x)
        n = seen.shape[1]
        u = jax.vmap(self.inner.value)(seen)
        along = with_identity(jax.vmap(self.inner.jacobian)(seen))
        joined = jnp.concatenate([seen, u], axis=1)
        functions = (lambda data, e: self.knot(data, e[:n], e[n:]), self.first, lambda e: self.last(e[:n], e[n:]))
        both = lambda function: lambda *arguments: (function(*arguments),) * 2
        at, values = jax.vmap(jax.jacfwd(both(functions[0]), 1, has_aux=True))(self.data, joined)
        at = jax.tree.map(lambda rows: rows @ along if rows.ndim == 3 else times_rows(rows, along), at)
        first, first_values = jax.jacfwd(both(self.first), has_aux=True)(seen[0])
        last, last_values = jax.jacfwd(both(functions[2]), has_aux=True)(joined[-1])
        last = jax.tree.map(lambda rows: rows @ along[-1], last)
        gradient = self.gathered(at.cost.at[0].add(first.cost).at[-1].add(last.cost))
        rows = [self._rows(at.equality), self._row_at(first.equality, 0), self._row_at(last.equality, -1)]
        own, of_first, of_last = self.split(y, at.equality.shape[1], len(first.equality))
        below, below_first, below_last = self.split(w, at.inequality.shape[1], len(first.inequality))

        def lagrangian(point, equality, inequality):
            return point.cost + equality @ point.equality + inequality @ point.inequality

        def twice(function):
            """Slopes and Hessian."""
            return jax.jacfwd(lambda e, *rest: (jax.grad(function)(e, *rest),) * 2, has_aux=True)

        of_knot = lambda e, data, a, b: lagrangian(functions[0](data, e), a, b)
        outer, slopes = jax.vmap(twice(of_knot))(joined, self.data, own, below)
        of_end = lambda e: lagrangian(functions[2](e), of_last, below_last)
        outer_end, slopes_end = twice(of_end)(joined[-1])
        outer, slopes = outer.at[-1].add(outer_end), slopes.at[-1].add(slopes_end)
        hessian = along.mT @ outer @ along
        if self.inner.exact:
            hessian = hessian + jax.vmap(jax.jacfwd(lambda y, slope: self.inner.jacobian(y).T @ slope))(
                seen, slopes[:, n:]
            )
        at_first = lambda y: lagrangian(self.first(y), of_first, below_first)
        hessian = hessian.at[0].add(jax.jacfwd(jax.grad(at_first))(seen[0]))
        hessian = (hessian + hessian.mT) / 2
        equality = jnp.concatenate(rows) * free[None]
        values = self._sums(values, first_values, last_values)
        return SplineLinearisation(
            values, gradient * free, equality, at.inequality, first.inequality, last.inequality, hessian, free
        )

    def split(self, values: Array, own: int, first: int) -> tuple[Array, Array, Array]:
        """Of knots, a row each; of the first one; of the last one."""
        count = self.basis.shape[1]
        at, of_first, of_last = jnp.split(values, [count * own, count * own + first])
        return at.reshape(count, own), of_first, of_last

    def values(self, at: SplineLinearisation) -> tuple[Array, Array, Array]:
        """f, c and g."""
        return at.values

    def gradient(self, at: SplineLinearisation) -> Float[Array, " n"]:
        """Of f."""
        return at.gradient

    def times(self, at: SplineLinearisation, dx: Float[Array, " n"]) -> tuple[Array, Array, Array]:
        """W dx, A dx and G dx."""
        dx = dx * at.free
        seen = self.seen(dx)
        curved = self.gathered(jnp.einsum("syz,sz->sy", at.hessian, seen)) * at.free
        below = jnp.einsum("sry,sy->sr", at.inequality, seen).reshape(-1)
        return curved, at.equality @ dx, jnp.concatenate([below, at.first @ seen[0], at.last @ seen[-1]])

    def transposed(self, at: SplineLinearisation, y: Float[Array, " m"], w: Float[Array, " r"]) -> Float[Array, " n"]:
        """A^T y + G^T w."""
        below, first, last = self.split(w, at.inequality.shape[1], len(at.first))
        seen = jnp.einsum("sry,sr->sy", at.inequality, below)
        seen = seen.at[0].add(at.first.T @ first).at[-1].add(at.last.T @ last)
        return at.equality.T @ y + self.gathered(seen) * at.free

    def curvature(self, at: SplineLinearisation) -> Float[Array, ""]:
        """The largest entry of W, about."""
        return jnp.abs(self._matrix(at.hessian)).max()

    def _matrix(self, hessian: Float[Array, "S y y"]) -> Float[Array, "n n"]:
        """sum_k S_k^T H_k S_k."""
        d, count, _ = self.basis.shape
        n = self.joints
        inner = hessian[:, :-1, :-1].reshape(count, d, n, d, n)
        half = jnp.einsum("dsa,sdjel->sajel", self.basis, inner)
        control = jnp.einsum("sajel,esb->ajbl", half, self.basis).reshape(self.basis.shape[2] * n, -1)
        across = jnp.einsum("dsa,sdj->aj", self.basis, hessian[:, :-1, -1].reshape(count, d, n)).reshape(-1)
        corner = hessian[:, -1, -1].sum()[None]
        upper = jnp.concatenate([control, across[:, None]], axis=1)
        return jnp.concatenate([upper, jnp.concatenate([across, corner])[None]])

    def factor(
        self,
        at: SplineLinearisation,
        share: Float[Array, ""],
        diagonal: Float[Array, " n"],
        weights: Float[Array, " r"],
        delta: Float[Array, ""],
    ) -> Any:
        """One Cholesky factorisation of n rows, one of m."""
        below, first, last = self.split(weights, at.inequality.shape[1], len(at.first))
        hessian = share * at.hessian + jnp.einsum("sry,sr,srz->syz", at.inequality, below, at.inequality)
        hessian = (
            hessian.at[0]
            .add(at.first.T @ (first[:, None] * at.first))
            .at[-1]
            .add(at.last.T @ (last[:, None] * at.last))
        )
        matrix = self._matrix(hessian) * (at.free[:, None] * at.free[None]) + jnp.diag(diagonal)
        largest = jnp.abs(at.equality).max(initial=0.0)
        return pivot(matrix, at.equality, convexifier(share * self.curvature(at), largest, delta), delta)

    def solve(self, factors: Any, r1: Float[Array, " n"], r2: Float[Array, " m"]) -> tuple[Array, Array]:
        """By the factors."""
        return block_backward(factors, *block_forward(factors, r1, r2), jnp.zeros_like(r2))

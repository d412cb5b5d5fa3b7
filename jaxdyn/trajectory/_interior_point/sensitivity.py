"""Derivatives of a program's solution with respect to its parameters, from one linear system at the solution.

The optimality conditions of the last barrier problem are

    grad f + A^T y + G^T w - low + high = 0,   c = 0,   w s = mu,   low (x - lower) = mu,   high (upper - x) = mu.

By the implicit function theorem, the derivatives follow from the linearisation of these conditions. Eliminating the multipliers
of inequalities and bounds leaves the linear system of a Newton step with the exact Hessian:

    [W + D + G^T (w/s) G, A^T; A, 0] (dx, dy) = -(change of the conditions at fixed x, y).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from ...dynamics._lowering import sparse_jvp
from .program import Program
from .solve import InteriorPointResult
from .step import bounds_of

Posed = tuple[Program, Array, Array, Array]  # (program with an exact Hessian, guess, lower bounds, upper bounds)
ROUNDS = 10  # number of iterative-refinement steps, which remove the effect of the regularisation


class _Conditions(NamedTuple):
    """The optimality conditions at constant unknowns and multipliers; `x` contains the unknowns fixed by equal bounds."""

    gradient: Array
    equality: Array
    inequality: Array
    cost: Array
    lower: Array
    upper: Array
    x: Array


def differentiable(
    pose: Callable[[PyTree], Posed], parameters: PyTree, result: InteriorPointResult
) -> InteriorPointResult:
    """Make the unknowns, multipliers and cost of a result differentiable with respect to the parameters.

    First derivatives with respect to all floating-point leaves of the parameters are supported, in forward and reverse mode.
    They are the derivatives of the last barrier problem, in which mu is a tenth of the tolerance. If an active constraint has a
    zero multiplier, the solution has a kink, and the computed derivatives lie between the one-sided ones. The derivatives are
    NaN if the Hessian is not positive definite on the null space of the active constraints (no strict local minimum), and
    meaningless if the status is not CONVERGED.
    """
    leaves, rest = eqx.partition(parameters, eqx.is_inexact_array)
    result = jax.lax.stop_gradient(result)

    @jax.custom_jvp
    def found(leaves: Any, result: InteriorPointResult) -> tuple[Array, ...]:
        del leaves
        r = result
        return r.x, r.equality_multipliers, r.inequality_multipliers, r.lower_multipliers, r.upper_multipliers, r.cost

    def rule(primals, tangents):
        leaves, result = primals
        return found(leaves, result), _tangent(
            lambda leaves: pose(eqx.combine(leaves, rest)), leaves, result, tangents[0]
        )

    found.defjvp(rule, symbolic_zeros=True)
    x, y, w, low, high, cost = found(leaves, result)
    return result._replace(
        x=x,
        equality_multipliers=y,
        inequality_multipliers=w,
        lower_multipliers=low,
        upper_multipliers=high,
        cost=cost,
    )


def _tangent(pose, leaves, result: InteriorPointResult, change) -> tuple[Array, ...]:
    x, y, w = result.x, result.equality_multipliers, result.inequality_multipliers
    program, _, lower, upper = pose(leaves)
    pinned = jnp.zeros(w.shape, bool) if program.pinned is None else program.pinned
    bounds = bounds_of(lower, upper, pinned)
    held = bounds.free == 0

    def conditions(leaves):
        program, _, lower, upper = pose(leaves)
        inside = jnp.where(held, jnp.where(held, lower, 0.0) / 2 + jnp.where(held, upper, 0.0) / 2, x)

        def lagrangian(x):
            f, c, g = program.evaluate(x)
            return f + y @ c + w @ g, (f, c, g)

        gradient, (f, c, g) = jax.grad(lagrangian, has_aux=True)(inside)
        only = lambda there, bound: jnp.where(there, bound, 0.0)
        return _Conditions(
            gradient, c, g, f, only(bounds.has_lower, lower), only(bounds.has_upper, upper), only(held, inside)
        )

    _, off = sparse_jvp(conditions, (leaves,), (change,))
    at = program.linearise(x, y, w, bounds.free)
    below, above = bounds.gaps(x)
    low, high = bounds.multipliers(result.lower_multipliers, result.upper_multipliers)
    # larger weights would not improve the accuracy at active constraints, but would cause cancellation in reverse mode
    most = jnp.finfo(x.dtype).eps ** -0.5
    stiff = lambda multiplier, distance: jnp.minimum(multiplier / distance, most)
    weights, from_lower, from_upper = stiff(w, bounds.slacks(result.slacks)), stiff(low, below), stiff(high, above)
    weights = jnp.where(pinned, most, weights)
    diagonal = (from_lower + from_upper) * bounds.free + (1 - bounds.free)
    soft = jnp.sqrt(jnp.finfo(x.dtype).eps)
    factors = program.factor(at, jnp.ones((), x.dtype), diagonal, weights, soft)
    none = jnp.zeros_like(y)

    def product(unknowns):
        dx, dy = unknowns
        w_dx, a_dx, g_dx = program.times(at, dx)
        return w_dx + diagonal * dx + program.transposed(at, dy, weights * g_dx), a_dx

    def solve(_, right):
        def refine(_, found):
            wrong = jax.tree.map(jnp.subtract, right, product(found))
            return jax.tree.map(jnp.add, found, program.solve(factors, *wrong))

        return jax.lax.fori_loop(0, ROUNDS, refine, (jnp.zeros_like(x), none))

    pull = from_lower * off.lower + from_upper * off.upper - off.gradient
    right = (pull * bounds.free - program.transposed(at, none, weights * off.inequality), -off.equality)
    # JAX can transpose a linear solve only if every part of the right-hand side depends on the argument
    tie = 0 * sum(part.sum() for part in right)
    dx, dy = jax.lax.custom_linear_solve(product, (right[0] + tie, right[1] + tie), solve, symmetric=True)
    _, _, g_dx = program.times(at, dx)
    d_low, d_high = from_lower * (off.lower - dx), from_upper * (dx - off.upper)
    cost = off.cost + program.gradient(at) @ dx
    return dx + off.x, dy, weights * (g_dx + off.inequality), d_low, d_high, cost

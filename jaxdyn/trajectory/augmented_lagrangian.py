"""The augmented Lagrangian of a problem's constraints, for solvers that do not enforce them directly.

A constraint c with multiplier m and penalty weight rho adds rho/2 |c + m/rho|^2 to the cost; for inequalities c <= 0, only
the positive part of c + m/rho is squared. The derivative of this term with respect to c is the multiplier of the next round:
m + rho c for equalities, max(0, m + rho c) for inequalities (Hestenes 1969; Powell 1969; Nocedal & Wright 2006, sec. 17.3).
"""

from collections.abc import Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..model.chain import Chain
from .constraints import Constraint
from .knot import Knot
from .problem import OptimalControlProblem, constraint_values, knots_of, on_forces
from .solution import Trajectory, at

GROWTH = 10.0  # growth factor of the weight if the violation remains above a quarter of its previous value
HEAVIEST = 1e8  # largest weight


class Penalty(NamedTuple):
    """Multipliers and weight of all constraints except torque limits.

    Attributes:
        multipliers: multipliers of the constraints at knots 0 ... N and of the terminal constraints, equalities first.
        weight: penalty weight rho.
        counted: 1 for enforced constraints; 0 for state constraints at the first knot and torque constraints at the last knot.
    """

    multipliers: tuple[Float[Array, "knots k"], Float[Array, " l"]]
    weight: Float[Array, ""]
    counted: Float[Array, "knots k"]


class Values(eqx.Module):
    """Values of the constraints at every knot, and of the terminal constraints.

    Equalities come first in both arrays; `equalities` contains the number of equalities in each array.
    """

    running: Float[Array, "knots k"]
    terminal: Float[Array, " l"]
    equalities: tuple[int, int] = eqx.field(static=True)

    def beside(self, penalty: Penalty) -> Iterator[tuple[Array, Array, Array, int]]:
        """Yield (values, multipliers, mask of enforced constraints, number of equalities) for the knots, then for the end."""
        counted = penalty.counted, jnp.ones_like(self.terminal)
        return zip((self.running, self.terminal), penalty.multipliers, counted, self.equalities, strict=True)


class Violation(NamedTuple):
    """The constraint violation of a trajectory, and the multipliers of the next round.

    Attributes:
        multipliers: m + rho c for equalities, max(0, m + rho c) for inequalities.
        largest: largest violation: |c| for equalities, the positive part of c for inequalities.
        complementarity: largest product of an inequality's multiplier and slack.
    """

    multipliers: tuple[Array, Array]
    largest: Float[Array, ""]
    complementarity: Float[Array, ""]


def constraint_rows(problem: OptimalControlProblem, knots: Knot) -> Values:
    """Values of all constraints at stacked knots."""
    equal, below = jax.vmap(lambda knot: constraint_values(problem.constraints, problem.chain, knot))(knots)
    last = at(knots, -1)
    end = constraint_values(problem.terminal_constraints, problem.chain, last)
    counts = equal.shape[1], end[0].shape[0]
    return Values(jnp.concatenate([equal, below], 1), jnp.concatenate(end), counts)


def no_penalty(problem: OptimalControlProblem, trajectory: Trajectory, weight: float | Array) -> Penalty:
    """A penalty with zero multipliers."""
    values = constraint_rows(problem, knots_of(problem, trajectory))
    on_torque = jnp.asarray(np.concatenate(on_forces(problem, problem.constraints)))
    k = jnp.arange(problem.steps + 1)[:, None]
    counted = jnp.where(on_torque[None], k < problem.steps, k > 0).astype(values.running.dtype)
    weight = jnp.asarray(weight, values.running.dtype)
    return Penalty((jnp.zeros_like(values.running), jnp.zeros_like(values.terminal)), weight, counted)


def penalty_residual(
    constraints: tuple[Constraint, ...],
    chain: Chain,
    knot: Knot,
    multiplier: Float[Array, " k"],
    weight: Float[Array, ""],
    counted: Float[Array, " k"],
) -> Float[Array, " k"]:
    """The residuals that the constraints add at a knot: sqrt(rho) (c + m / rho), or its positive part for inequalities."""
    equal, below = constraint_values(constraints, chain, knot)
    both = _shifted(jnp.concatenate([equal, below]), multiplier, weight, equal.shape[0])
    return jnp.sqrt(weight) * both * counted


def penalty_cost(values: Values, penalty: Penalty) -> Float[Array, ""]:
    """Penalty cost: m . c + rho/2 |c|^2 for equalities, (|max(0, m + rho c)|^2 - |m|^2) / (2 rho) for inequalities."""
    total, weight = jnp.zeros_like(penalty.weight), penalty.weight
    for value, multiplier, counts, count in values.beside(penalty):
        shifted = _shifted(value, multiplier, weight, count)
        total += jnp.sum(counts * (weight / 2 * shifted**2 - multiplier**2 / (2 * weight)))
    return total


def _shifted(values: Array, multiplier: Array, weight: Array, count: int) -> Array:
    """The shifted constraints: c + m / rho for equalities (the first `count` entries), max(0, c + m / rho) for inequalities."""
    total = values + multiplier / weight
    return jnp.concatenate([total[..., :count], jnp.maximum(total[..., count:], 0)], -1)


def violation(values: Values, penalty: Penalty) -> Violation:
    """The constraint violation of a trajectory with these values."""
    zero = jnp.zeros_like(penalty.weight)
    multipliers, largest, products = [], zero, zero
    for value, multiplier, counts, count in values.beside(penalty):
        below = ~_is_equality(value, count)
        new = multiplier + penalty.weight * value
        new = jnp.where(below, jnp.maximum(new, 0), new) * counts
        miss = jnp.where(below, jnp.maximum(value, 0), jnp.abs(value)) * counts
        slack = jnp.where(below, new * jnp.maximum(-value, 0), 0)
        multipliers.append(new)
        largest = jnp.maximum(largest, jnp.max(miss, initial=0.0))
        products = jnp.maximum(products, jnp.max(slack, initial=0.0))
    return Violation((multipliers[0], multipliers[1]), largest, products)


def binding(values: Values, penalty: Penalty) -> tuple[Bool[Array, "knots k"], Bool[Array, " l"]]:
    """Masks of the constraints with a nonzero penalty gradient: equalities, and inequalities with c + m / rho > 0."""
    running, terminal = (
        (_is_equality(value, count) | (value + multiplier / penalty.weight > 0)) & (counts > 0)
        for value, multiplier, counts, count in values.beside(penalty)
    )
    return running, terminal


def _is_equality(values: Array, count: int) -> Array:
    return jnp.broadcast_to(jnp.arange(values.shape[-1]) < count, values.shape)


def updated(penalty: Penalty, found: Violation, before: Float[Array, ""], growth: float = GROWTH) -> Penalty:
    """The penalty for the next round, with new multipliers.

    The weight is multiplied by `growth` if the violation is more than a quarter of its previous value.
    """
    slow = found.largest > 0.25 * before
    weight = jnp.where(slow, jnp.minimum(penalty.weight * growth, HEAVIEST), penalty.weight)
    return penalty._replace(multipliers=found.multipliers, weight=weight)

"""The outer loop of shooting: multipliers and weight of the constraints' augmented Lagrangian."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._problem._knot import Knot
from .._problem._problem import OptimalControlProblem, knots_of
from .._problem._solution import Trajectory
from ._local_model import Penalty, constraint_rows

GROWTH = 10.0  # of the weight, where the violation did not fall to a quarter
HEAVIEST = 1e8  # weight


class Violation(NamedTuple):
    """At a trajectory: the multipliers that the penalty's gradient stands for, and how far they and the constraints are off.

    Attributes:
        multipliers: those of the penalty plus rho c, not below zero for inequalities.
        largest: largest |c| of an equality, largest positive c of an inequality.
        complementarity: largest product of an inequality's multiplier and its slack.
    """

    multipliers: tuple[Array, Array]
    largest: Float[Array, ""]
    complementarity: Float[Array, ""]


def equalities(problem: OptimalControlProblem, knot: Knot) -> tuple[int, int]:
    """How many equalities stand before the inequalities: at every knot, and at the end."""
    counts = []
    for constraints in (problem.constraints, problem.terminal_constraints):
        values = [c.value(problem.chain, knot).shape[0] for c in constraints if c.kind == "equality"]
        counts.append(sum(values))
    return counts[0], counts[1]


def violation(problem: OptimalControlProblem, trajectory: Trajectory, penalty: Penalty) -> Violation:
    """How far a trajectory is from meeting the constraints."""
    knots = knots_of(problem, trajectory)
    last = jax.tree.map(lambda x: x[-1], knots)
    rows = constraint_rows(problem, knots)
    zero = jnp.zeros((), trajectory.q.dtype)
    multipliers, largest, products = [], zero, zero
    counted = penalty.counted, jnp.ones_like(rows.terminal)
    everything = zip(rows, penalty.multipliers, counted, equalities(problem, last), strict=True)
    for value, multiplier, counts, count in everything:
        below = jnp.arange(value.shape[-1]) >= count
        below = jnp.broadcast_to(below, value.shape)
        new = multiplier + penalty.weight * value
        new = jnp.where(below, jnp.maximum(new, 0), new) * counts
        miss = jnp.where(below, jnp.maximum(value, 0), jnp.abs(value)) * counts
        slack = jnp.where(below, new * jnp.maximum(-value, 0), 0)
        multipliers.append(new)
        largest = jnp.maximum(largest, jnp.max(miss, initial=0.0))
        products = jnp.maximum(products, jnp.max(slack, initial=0.0))
    return Violation((multipliers[0], multipliers[1]), largest, products)


def updated(penalty: Penalty, found: Violation, before: Float[Array, ""]) -> Penalty:
    """The next round's penalty: new multipliers, ten times the weight where the violation did not fall to a quarter."""
    slow = found.largest > 0.25 * before
    weight = jnp.where(slow, jnp.minimum(penalty.weight * GROWTH, HEAVIEST), penalty.weight)
    return penalty._replace(multipliers=found.multipliers, weight=weight)

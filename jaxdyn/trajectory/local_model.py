"""The objective of shooting and its linear-quadratic model around a trajectory.

The objective is the cost plus the augmented Lagrangian of the constraints, which shooting does not enforce directly. A
constraint c with multiplier m and penalty weight rho adds rho/2 |c + m/rho|^2; for inequalities c <= 0, only the positive part
of c + m/rho is squared. The derivative of this term with respect to c is the multiplier of the next round: m + rho c for
equalities, max(0, m + rho c) for inequalities (Hestenes 1969; Powell 1969; Nocedal & Wright 2006, sec. 17.3).
"""

from collections.abc import Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..dynamics import forward_dynamics_derivatives, friction_force, resistive_force
from ..dynamics.derivatives import slopes_of_accelerations
from ..dynamics.engine.lanes import by_batch
from ..dynamics.engine.matrices import by_row, row_times
from ..model.chain import Chain, is_ordinary
from ..model.configuration import difference, integrate
from .constraints import Constraint
from .costs import Cost, Knot
from .lq import DiagonalCost, EulerSteps, LinearQuadratic, Steps
from .problem import (
    OptimalControlProblem,
    Trajectory,
    advance,
    at,
    constraint_values,
    knot_dependence,
    knots_of,
    on_forces,
    residuals,
)

GROWTH = 10.0  # growth factor of the weight if the violation remains above a quarter of its previous value
HEAVIEST = 1e8  # largest weight


class Penalty(NamedTuple):
    """Multipliers and weight rho of all constraints, equalities first, at the knots and at the end, without torque limits."""

    multipliers: tuple[Float[Array, "knots k"], Float[Array, " l"]]
    weight: Float[Array, ""]
    counted: Float[Array, "knots k"]  # 0 for constraints that are not enforced


class Values(eqx.Module):
    """Values of the constraints at every knot and at the end; the first `equalities` of each are equalities."""

    running: Float[Array, "knots k"]
    terminal: Float[Array, " l"]
    equalities: tuple[int, int] = eqx.field(static=True)

    def beside(self, penalty: Penalty) -> Iterator[tuple[Array, Array, Array, int]]:
        """Yield (values, multipliers, mask of enforced constraints, number of equalities) for the knots, then for the end."""
        counted = penalty.counted, jnp.ones_like(self.terminal)
        return zip((self.running, self.terminal), penalty.multipliers, counted, self.equalities, strict=True)


class Violation(NamedTuple):
    """The multipliers of the next round, the largest violation, and the largest product of a multiplier and a slack."""

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


def updated(penalty: Penalty, found: Violation, before: Float[Array, ""]) -> Penalty:
    """The penalty of the next round; a violation above a quarter of the previous one multiplies the weight by 10."""
    slow = found.largest > 0.25 * before
    weight = jnp.where(slow, jnp.minimum(penalty.weight * GROWTH, HEAVIEST), penalty.weight)
    return penalty._replace(multipliers=found.multipliers, weight=weight)


EULER = ("semi_implicit_euler", "explicit_euler")


def _running_residual(problem, knot, multiplier, weight, counted) -> Array:
    own = jnp.sqrt(knot.dt) * residuals(problem.running, problem.chain, knot)
    return jnp.concatenate(
        [own, penalty_residual(problem.constraints, problem.chain, knot, multiplier, weight, counted)]
    )


def _end_residual(problem, knot, penalty: Penalty) -> Array:
    running, terminal = penalty.multipliers
    chain, weight = problem.chain, penalty.weight
    along = penalty_residual(problem.constraints, chain, knot, running[-1], weight, penalty.counted[-1])
    end = penalty_residual(problem.terminal_constraints, chain, knot, terminal, weight, jnp.ones_like(terminal))
    return jnp.concatenate([residuals(problem.terminal, chain, knot), along, end])


def _scalars(costs, chain: Chain, knot: Knot) -> Array:
    return sum((c.value(chain, knot) for c in costs if not c.has_residual), jnp.zeros((), knot.q.dtype))


def _of_knots(problem: OptimalControlProblem, trajectory: Trajectory):
    knots = knots_of(problem, trajectory)
    return at(knots, slice(None, -1)), at(knots, -1)


def objective(problem: OptimalControlProblem, trajectory: Trajectory, penalty: Penalty) -> Float[Array, ""]:
    """The problem's cost plus the penalty of its constraints."""
    knots, last = _of_knots(problem, trajectory)
    rows = penalty.multipliers[0][:-1], penalty.counted[:-1]

    one = lambda knot, multiplier, counted: running_objective(problem, knot, multiplier, penalty.weight, counted)
    return jax.vmap(one)(knots, *rows).sum() + end_objective(problem, last, penalty)


def running_objective(problem: OptimalControlProblem, knot: Knot, multiplier, weight, counted) -> Float[Array, ""]:
    """The contribution of one knot to the objective."""
    r = _running_residual(problem, knot, multiplier, weight, counted)
    return 0.5 * (r * r).sum() + knot.dt * _scalars(problem.running, problem.chain, knot)


def end_objective(problem: OptimalControlProblem, last: Knot, penalty: Penalty) -> Float[Array, ""]:
    """The contribution of the last knot to the objective."""
    r = _end_residual(problem, last, penalty)
    return 0.5 * (r * r).sum() + _scalars(problem.terminal, problem.chain, last)


def linearised(
    problem: OptimalControlProblem,
    trajectory: Trajectory,
    gaps: Float[Array, "steps n"],
    penalty: Penalty,
    duals: Float[Array, "knots n"] | None = None,
    dynamics: Steps | None = None,
) -> LinearQuadratic:
    """The linear-quadratic problem in (dq, dv, dtau) around a trajectory; with `duals`, its Hessian is the Lagrangian's."""
    knots, last = _of_knots(problem, trajectory)
    parts = (jnp.zeros_like(trajectory.v[0]),) * (4 if problem.has_torque_rate else 3)
    rows = penalty.multipliers[0][:-1], penalty.counted[:-1]
    parts_at_knots = (*problem.running, *problem.constraints)
    diagonal = (
        duals is None
        and is_ordinary(problem.chain)
        and not any(isinstance(c, Cost) and not c.has_residual for c in parts_at_knots)
        and all(knot_dependence(problem, c).is_single for c in parts_at_knots)
    )

    def running(knot, multiplier, counted, *dual):
        residual = lambda *z: _running_residual(problem, moved(problem, knot, z), multiplier, penalty.weight, counted)
        scalar = lambda *z: knot.dt * _scalars(problem.running, problem.chain, moved(problem, knot, z))
        if diagonal:
            return _diagonal(residual, parts)
        ahead = None
        if dual:
            ahead = lambda z: _pulled_back(problem, moved(problem, knot, z), dual[0])
        return _quadratic(residual, scalar, problem.running, parts, ahead)

    def end(*z):
        return _end_residual(problem, moved(problem, last, (*z, parts[-1])), penalty)

    def end_scalar(*z):
        return _scalars(problem.terminal, problem.chain, moved(problem, last, (*z, parts[-1])))

    exact = None if duals is None else lambda z: jnp.zeros_like(jnp.concatenate(z))
    cost = jax.vmap(running)(knots, *rows, *(() if duals is None else (duals[1:],)))
    of_end = _quadratic(end, end_scalar, problem.terminal, parts[:-1], exact)
    if dynamics is None:
        dv = trajectory.v[1:] - trajectory.v[:-1] + gaps[:, problem.chain.nv : 2 * problem.chain.nv]
        dynamics = linear_steps(problem, trajectory, gaps, dv / problem.dt)
    return LinearQuadratic(dynamics, cost, of_end)


def linear_steps(
    problem: OptimalControlProblem,
    trajectory: Trajectory,
    gaps: Float[Array, "steps n"],
    accelerations: Float[Array, "steps nv"] | None = None,
) -> Steps:
    """The linearised steps, with offsets `gaps`; known accelerations (of an Euler step, dv / dt) save computing them."""
    x = trajectory
    if is_ordinary(problem.chain) and problem.method == EULER[0] and not problem.has_torque_rate:
        one = lambda q, v, tau, qdd: velocity_slopes(problem, q, v, tau, qdd)
        return EulerSteps(jax.vmap(one)(x.q[:-1], x.v[:-1], x.tau, accelerations), gaps, problem.dt)
    jacobians = jax.vmap(lambda q, v, tau: dynamics_jacobian(problem, q, v, tau))(x.q[:-1], x.v[:-1], x.tau)
    return jnp.concatenate([jacobians, gaps[..., None]], -1)


def moved(problem: OptimalControlProblem, knot: Knot, z: tuple[Array, ...]) -> Knot:
    """A knot displaced by (dq, dv, dtau) or (dq, dv, dtau_before, dtau)."""
    before = knot.tau_before + z[2] if len(z) == 4 else knot.tau_before
    q = integrate(problem.chain, knot.q, z[0])
    return knot._replace(q=q, v=knot.v + z[1], tau=knot.tau + z[-1], tau_before=before)


def state_after(problem: OptimalControlProblem, reference: tuple[Array, Array], knot: Knot) -> Array:
    """The state one step after a knot, relative to a reference state."""
    q, v = advance(problem, knot.q, knot.v, knot.tau)
    parts = [difference(problem.chain, reference[0], q), v - reference[1]]
    return jnp.concatenate([*parts, knot.tau] if problem.has_torque_rate else parts)


def _pulled_back(problem: OptimalControlProblem, knot: Knot, dual: Array) -> Array:
    """The derivative of dual . step(knot) with respect to the knot's displacements."""
    return dual @ dynamics_jacobian(problem, knot.q, knot.v, knot.tau)


def _quadratic(residual, scalar, costs, parts, exact) -> Float[Array, "w 1+w"]:
    """[Hessian, gradient] of 1/2 |residual|^2 + scalar: by Gauss-Newton, or exact plus the Jacobian of the function `exact`."""
    with_scalar = any(not cost.has_residual for cost in costs)
    jacobian = [jax.jacfwd(residual, argnums=i)(*parts) for i in range(len(parts))]
    rows = jnp.concatenate([*jacobian, residual(*parts)[:, None]], -1)
    total = gram(rows) if len(rows) else jnp.zeros((rows.shape[1] - 1, rows.shape[1]), rows.dtype)
    if not with_scalar and exact is None:
        return total
    sizes = [len(x) for x in parts]
    split = lambda z: tuple(z[sum(sizes[:i]) : sum(sizes[: i + 1])] for i in range(len(sizes)))
    flat = jnp.concatenate(parts)
    if with_scalar:
        total = total.at[:, -1].add(jax.grad(lambda z: scalar(*split(z)))(flat))
    if exact is None:
        values, vectors = jnp.linalg.eigh(jax.hessian(lambda z: scalar(*split(z)))(flat))
        own = (vectors * jnp.maximum(values, 0)[None]) @ vectors.T
        return total.at[:, :-1].add(own)

    def whole(z):
        r = residual(*split(z))
        return 0.5 * (r * r).sum() + scalar(*split(z))

    curved = jax.jacfwd(lambda z: exact(split(z)))(flat)
    return total.at[:, :-1].set(jax.hessian(whole)(flat) + 0.5 * (curved + curved.T))


def _diagonal(residual, parts) -> DiagonalCost:
    """Hessian and gradient of 1/2 |residual|^2 if J' J is diagonal; the diagonal is then J' J times a vector of ones."""
    r, along = jax.linearize(residual, *parts)
    back = jax.linear_transpose(along, *parts)
    hessian = back(along(*(jnp.ones_like(x) for x in parts)))
    return DiagonalCost(jnp.concatenate(hessian), jnp.concatenate(back(r)))


@by_batch(size=lambda rows: 2 * rows.shape[0] * rows.shape[1] + 2000 if rows.shape[0] <= 64 else 10**6)
def gram(rows: Float[Array, "k w *#lanes"]) -> Array:
    """The product J' [J, r], given [J, r]."""
    width = rows.shape[1] - 1
    columns = jnp.moveaxis(rows[:, :width], 0, 1)
    return by_row(lambda column: row_times(column, rows), columns)


def dynamics_jacobian(
    problem: OptimalControlProblem, q: Float[Array, " nq"], v: Float[Array, " nv"], tau: Float[Array, " nv"]
) -> Float[Array, "n w"]:
    """The Jacobian [A, B] of a step: analytic for Euler steps of ordinary joints, by `jax.jacfwd` otherwise."""
    chain, dt, nv = problem.chain, problem.dt, problem.chain.nv
    eye = jnp.eye(nv, dtype=q.dtype)
    if is_ordinary(chain) and problem.method in EULER:
        a, b, c = jnp.split(velocity_slopes(problem, q, v, tau), 3, axis=1)
        first = [eye + dt * a, dt * b, dt * c] if problem.method == EULER[0] else [eye, dt * eye, 0 * eye]
        rows = [first, [a, b, c]]
    else:
        after = advance(problem, q, v, tau)
        zero = jnp.zeros_like(v)

        def along(dq, dv, dtau):
            x = advance(problem, integrate(chain, q, dq), v + dv, tau + dtau)
            return difference(chain, after[0], x[0]), x[1] - after[1]

        columns = [jax.jacfwd(along, argnums=i)(zero, zero, zero) for i in range(3)]
        rows = [[c[0] for c in columns], [c[1] for c in columns]]
    if problem.has_torque_rate:
        nothing = jnp.zeros_like(eye)
        rows = [[*row[:2], nothing, row[2]] for row in rows] + [[nothing, nothing, nothing, eye]]
    return jnp.concatenate([jnp.concatenate(row, 1) for row in rows])


def velocity_slopes(
    problem: OptimalControlProblem,
    q: Float[Array, " nq"],
    v: Float[Array, " nv"],
    tau: Float[Array, " nv"],
    qdd: Float[Array, " nv"] | None = None,
) -> Float[Array, "nv w"]:
    """Derivatives of the velocities after an Euler step of ordinary joints with respect to (q, v, tau); qdd if known."""
    chain, dt = problem.chain, problem.dt
    if qdd is None or chain.transmission is not None:
        of_qdd = forward_dynamics_derivatives(chain, q, v, tau - resistive_force(chain, q, v))
    else:
        of_qdd = slopes_of_accelerations(chain, q, v, qdd)
    if chain.transmission is None:
        _, slopes = jax.jvp(lambda x: friction_force(chain, x), (v,), (jnp.ones_like(v),))
        by_velocity = of_qdd.qd - of_qdd.tau * slopes[None]
    else:
        by_velocity = of_qdd.qd - of_qdd.tau @ jax.jacfwd(lambda x: friction_force(chain, x))(v)
    by_position = dt * (of_qdd.q - of_qdd.tau * chain.springs.stiffness[None])
    return jnp.concatenate([by_position, jnp.eye(len(v), dtype=v.dtype) + dt * by_velocity, dt * of_qdd.tau], 1)


def gaps_of(problem: OptimalControlProblem, trajectory: Trajectory) -> Float[Array, "steps n"]:
    """The gaps step(x_k, tau_k) - x_{k+1}; zero for previous torques that are part of the state."""
    x = trajectory

    def one(knot):
        q, v, tau, q_after, v_after = knot
        q, v = advance(problem, q, v, tau)
        return jnp.concatenate([difference(problem.chain, q_after, q), v - v_after])

    # The gaps are evaluated only once per solution, and a loop over the knots compiles twice as fast as `jax.vmap`.
    gaps = jax.lax.map(one, (x.q[:-1], x.v[:-1], x.tau, x.q[1:], x.v[1:]))
    return jnp.concatenate([gaps, jnp.zeros_like(x.tau)], -1) if problem.has_torque_rate else gaps

"""Derivatives of a shooting solution with respect to the problem's leaves, from one linear-quadratic problem.

At a solution, the gradient of the Lagrangian, the gaps and the active constraints are zero. By the implicit function theorem,
they remain zero as the problem changes. The change of the solution therefore solves a linear-quadratic problem:

- Its Hessian is that of the Lagrangian at the solution.
- Its gradient and gaps are the changes of the Lagrangian's gradient and of the gaps while the solution is held fixed.
- Its multipliers enforce the linearised active constraints, and torques at a limit move with the limit.
"""

import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ...dynamics._lowering import sparse_jvp
from ...model._configuration import integrate
from .._linear_quadratic.box_qp import masked_inverse
from .._linear_quadratic.problem import LinearQuadratic
from .._linear_quadratic.riccati import riccati
from .._problem.augmented_lagrangian import Penalty, binding, constraint_rows
from .._problem.problem import OptimalControlProblem, knot_times, knots_of
from .._problem.solution import Trajectory
from .._trees import at
from .local_model import (
    dynamics_jacobian,
    end_objective,
    linear_steps,
    linearised,
    moved,
    running_objective,
    state_after,
)

ROUNDS = 40  # number of multiplier updates in the linear-quadratic problem
HEAVY = 1e4  # smallest penalty weight of constraints in the linear-quadratic problem


class Solved(NamedTuple):
    """The result of a solver, treated as constant.

    Attributes:
        trajectory: the solution.
        penalty: multipliers and weight of the constraints.
        duals: multipliers of the dynamics.
        side: for each torque, -1 at its lower limit, 1 at its upper limit, otherwise 0.
    """

    trajectory: Trajectory
    penalty: Penalty
    duals: Array
    side: Array


def differentiable(problem: OptimalControlProblem, solved: Solved) -> Trajectory:
    """The solution's trajectory, differentiable with respect to the problem's floating-point leaves."""
    leaves, rest = eqx.partition(problem, eqx.is_inexact_array)

    @jax.custom_jvp
    def found(leaves: Any, solved: Solved) -> Trajectory:
        del leaves
        return solved.trajectory

    def rule(primals, tangents):
        leaves, solved = primals
        return solved.trajectory, _tangent(leaves, rest, solved, tangents[0])

    found.defjvp(rule, symbolic_zeros=True)
    return found(leaves, jax.lax.stop_gradient(solved))


class _Conditions(NamedTuple):
    """Quantities that vanish at a solution: Lagrangian gradients (at knots, at the end), gaps, and active constraints."""

    running: Array
    end: Array
    gaps: Array
    constraints: tuple[Array, Array]


def _conditions(problem: OptimalControlProblem, solved: Solved) -> _Conditions:
    x, penalty, duals = _held(problem, solved), solved.penalty, solved.duals
    knots = knots_of(problem, x)
    first, last = at(knots, slice(None, -1)), at(knots, -1)
    parts = (jnp.zeros_like(x.v[0]),) * (4 if problem.has_torque_rate else 3)

    def gradient(knot, multiplier, counted, dual):
        along = jax.grad(
            lambda z: running_objective(problem, moved(problem, knot, z), multiplier, penalty.weight, counted)
        )
        return jnp.concatenate(along(parts)) + dual @ dynamics_jacobian(problem, knot.q, knot.v, knot.tau)

    running = jax.vmap(gradient)(first, penalty.multipliers[0][:-1], penalty.counted[:-1], duals[1:])
    end = jax.grad(lambda z: end_objective(problem, moved(problem, last, (*z, parts[-1])), penalty))(parts[:-1])
    gaps = jax.vmap(lambda knot, q, v: state_after(problem, (q, v), knot))(first, x.q[1:], x.v[1:])
    if problem.has_torque_rate:
        gaps = gaps.at[:, 2 * x.v.shape[1] :].set(0)
    values = constraint_rows(problem, knots)
    return _Conditions(running, jnp.concatenate(end), gaps, (values.running, values.terminal))


def _held(problem: OptimalControlProblem, solved: Solved) -> Trajectory:
    """The trajectory, in which times, initial state and torques at limits are differentiable functions of the problem."""
    x, limits, side = solved.trajectory, problem.torque_limits, solved.side
    tau = x.tau
    if limits is not None:
        tau = jnp.where(side < 0, limits[None, :, 0], jnp.where(side > 0, limits[None, :, 1], tau)).astype(tau.dtype)
    return Trajectory(knot_times(problem, x.t.dtype), x.q.at[0].set(problem.q0), x.v.at[0].set(problem.v0), tau)


def _tangent(leaves, rest, solved: Solved, change) -> Trajectory:
    problem = eqx.combine(leaves, rest)
    heavy = jnp.maximum(solved.penalty.weight, HEAVY)
    solved = solved._replace(penalty=solved.penalty._replace(weight=heavy))
    both = lambda leaves: (_conditions(eqx.combine(leaves, rest), solved), _held(eqx.combine(leaves, rest), solved))
    _, (off, held) = sparse_jvp(both, (leaves,), (change,))
    motion = _solve(problem, solved, off)
    nv = solved.trajectory.v.shape[1]
    states, controls = motion
    dq, dv = states[:, :nv], states[:, nv : 2 * nv]
    zero = jnp.zeros_like(dq)
    moving = lambda q, d, rate: jax.jvp(lambda y: integrate(problem.chain, q, y), (d,), (rate,))[1]
    dq = jax.vmap(moving)(solved.trajectory.q, zero, dq)
    return Trajectory(held.t, held.q + dq, held.v + dv, held.tau + controls)


class _Factors(NamedTuple):
    """Factors of the linear system for the unknowns (dx at knots 1 ... N, du, duals, multipliers)."""

    lq: LinearQuadratic
    gains: Array
    hessian: Array
    inverse: Array
    free: Array  # mask of the torques that are not at a limit
    jacobians: tuple[Array, Array]
    active: tuple[Array, Array]
    weight: Array


def _solve(problem: OptimalControlProblem, solved: Solved, off: _Conditions) -> tuple[Array, Array]:
    """The changes (dx at all knots, du) of the solution that cancel the residuals `off` of the optimality conditions."""
    n = off.end.shape[0]
    factors = _factored(problem, solved, jnp.zeros_like(off.gaps))
    wrong = (
        jnp.concatenate([off.running[1:, :n], off.end[None]]),
        jnp.where(factors.free, off.running[:, n:], 0),
        off.gaps,
        tuple(jnp.where(a, v, 0) for a, v in zip(factors.active, off.constraints, strict=True)),
    )
    # JAX can transpose a linear solve only if every part of the right-hand side depends on the argument
    tie = 0 * sum(y.sum() for y in jax.tree.leaves(wrong))
    wrong = jax.tree.map(lambda y: tie - y, wrong)
    product, inverse = functools.partial(_product, factors), lambda _, right: _solution(factors, right)
    dx, du, _, _ = jax.lax.custom_linear_solve(product, wrong, inverse, symmetric=True)
    return jnp.concatenate([jnp.zeros_like(dx[:1]), dx]), du


def _factored(problem: OptimalControlProblem, solved: Solved, gaps: Array) -> _Factors:
    """Factor the linear-quadratic problem by the Riccati recursion, with active constraints as heavily weighted costs."""
    x, penalty, bare = jax.lax.stop_gradient((solved.trajectory, solved.penalty, problem))
    # compute the accelerations from the torques; velocity differences would be accurate only to the solver's tolerance
    lq = linearised(bare, x, gaps, penalty, solved.duals, linear_steps(bare, x, gaps)).dense()
    free, n = solved.side == 0, lq.states
    bound = jnp.where(free, jnp.inf, 0).astype(x.tau.dtype)
    policy = riccati(lq, (-bound, bound))
    B = lq.dynamics[:, :, n:-1]
    by_control = lq.cost[:, n:, n:-1] + B.mT @ policy.hessian[1:] @ B
    inverse = jax.vmap(lambda h, f: masked_inverse(h, f)[0])(by_control, free)
    return _Factors(lq, policy.gains, policy.hessian, inverse, free, *_active(bare, x, penalty), penalty.weight)


def _product(factors: _Factors, unknowns: tuple) -> tuple:
    """The product of the system's matrix and the unknowns (dx, du, duals, multipliers)."""
    (dx, du, duals, multipliers), lq, n = unknowns, factors.lq, factors.lq.states
    du = jnp.where(factors.free, du, 0)
    z = jnp.concatenate([jnp.concatenate([jnp.zeros_like(dx[:1]), dx[:-1]]), du], -1)
    pull = _pulled(factors, multipliers)
    F = lq.dynamics[..., :-1]
    rows = jnp.einsum("kij,kj->ki", lq.cost[..., :-1], z) + jnp.einsum("kij,ki->kj", F, duals) + pull[0]
    end = lq.end[:, :n] @ dx[-1] - duals[-1] + pull[1]
    by_state = jnp.concatenate([rows[1:, :n] - duals[:-1], end[None]])
    by_control = jnp.where(factors.free, rows[:, n:], du)
    gaps = jnp.einsum("kij,kj->ki", F, z) - dx
    return by_state, by_control, gaps, _pushed(factors, z, dx[-1], multipliers)


def _solution(factors: _Factors, right: tuple) -> tuple:
    """Solve the linear system for (dx, du, duals, multipliers), iterating on the multipliers of the active constraints."""
    by_state, by_control, gaps, values = right
    running = jnp.concatenate([jnp.concatenate([jnp.zeros_like(by_state[:1]), by_state[:-1]]), by_control], -1)

    def once(multipliers):
        pull = _pulled(factors, multipliers)
        # `running` and `by_state` already contain the right-hand sides of active constraints, with the Hessian's weights
        return _affine(factors, pull[0] - running, pull[1] - by_state[-1], -gaps)

    def round_(multipliers, _):
        states, controls, _ = once(multipliers)
        z = jnp.concatenate([states[:-1], controls], -1)
        reached = _pushed(factors, z, states[-1], tuple(jnp.zeros_like(y) for y in multipliers))
        new = [
            jnp.where(a, y + factors.weight * (r - v), -v)
            for a, y, r, v in zip(factors.active, multipliers, reached, values, strict=True)
        ]
        return tuple(new), None

    multipliers = tuple(jnp.where(a, 0, -v) for a, v in zip(factors.active, values, strict=True))
    if any(y.size for y in multipliers):
        multipliers, _ = jax.lax.scan(round_, multipliers, None, length=ROUNDS)
    states, controls, duals = once(multipliers)
    return states[1:], jnp.where(factors.free, controls, 0), duals[1:], multipliers


def _active(problem, x: Trajectory, penalty: Penalty) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Jacobians of all constraints with respect to the displacements of their knots, and masks of the active constraints."""
    knots = knots_of(problem, x)
    parts = (jnp.zeros_like(x.v[0]),) * (4 if problem.has_torque_rate else 3)
    single = lambda knot: jax.tree.map(lambda y: y[None], knot)

    def jacobian(knot, which):
        values = lambda *z: getattr(constraint_rows(problem, single(moved(problem, knot, z))), which).reshape(-1)
        return jnp.concatenate([jax.jacfwd(values, argnums=i)(*parts) for i in range(len(parts))], -1)

    running = jax.vmap(lambda knot: jacobian(knot, "running"))(knots)
    terminal = jacobian(at(knots, -1), "terminal")
    return (running, terminal), binding(constraint_rows(problem, knots), penalty)


def _pulled(factors: _Factors, multipliers) -> tuple[Array, Array]:
    """C' y for each knot and for the last state, where C is the Jacobian of the active constraints and y their multipliers."""
    (running, terminal), (of_running, of_terminal) = factors.jacobians, factors.active
    n = factors.lq.states
    along = jnp.einsum("kij,ki->kj", running, jnp.where(of_running, multipliers[0], 0))
    end = jnp.where(of_terminal, multipliers[1], 0) @ terminal
    return along[:-1], along[-1, :n] + end[:n]


def _pushed(factors: _Factors, z, last, multipliers) -> tuple[Array, Array]:
    """C z for active constraints with the Jacobian C, and -y for inactive constraints with the multipliers y."""
    (running, terminal), (of_running, of_terminal) = factors.jacobians, factors.active
    n = factors.lq.states
    along = jnp.einsum("kij,kj->ki", running[:-1], z)
    values = jnp.concatenate([along, (running[-1, :, :n] @ last)[None]])
    end = terminal[:, :n] @ last
    return jnp.where(of_running, values, -multipliers[0]), jnp.where(of_terminal, end, -multipliers[1])


def _affine(factors: _Factors, gradient, end, gaps):
    """Solve the factored problem for other gradients and gaps; return states, controls and multipliers."""
    n = factors.lq.states
    F = factors.lq.dynamics[..., :-1]

    def back(later, x):
        dynamics, gains, hessian, inverse, g, c = x
        ahead = g + dynamics.T @ (later + hessian @ c)
        return ahead[:n] + gains.T @ ahead[n:], (later, -inverse @ ahead[n:])

    turns = F, factors.gains, factors.hessian[1:], factors.inverse, gradient, gaps
    first, (slopes, feedforward) = jax.lax.scan(back, end, turns, reverse=True)

    def ahead(state, x):
        dynamics, gains, k, c = x
        control = gains @ state + k
        return dynamics @ jnp.concatenate([state, control]) + c, (state, control)

    last, (states, controls) = jax.lax.scan(ahead, jnp.zeros_like(end), (F, factors.gains, feedforward, gaps))
    states = jnp.concatenate([states, last[None]])
    slopes = jnp.concatenate([first[None], slopes])
    return states, controls, jnp.einsum("kij,kj->ki", factors.hessian, states) + slopes

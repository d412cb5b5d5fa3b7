"""Shooting: linear-quadratic problems against dense solves and scipy, motions against their optimality conditions."""

import dataclasses
import functools
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
from numpy.testing import assert_allclose

import jaxdyn
from helpers import once, random_chain
from jaxdyn.dynamics.engine.matrices import matrix_times, product, row_times
from jaxdyn.trajectory import (
    LinearQuadratic,
    lq as shooting_model,
    problem as shift,
    shooting as shooting,
    shooting as shooting_rollout,
)
from jaxdyn.trajectory.lq import (
    DiagonalCost,
    EulerSteps,
    LQPolicy,
    Penalty,
    Violation,
    _quadratic,
    adjoints,
    box_qp,
    constraint_rows,
    dynamics_jacobian,
    gaps_of,
    linearised,
    lq_rollout,
    no_penalty,
    objective,
    policy_and_descent,
    updated,
    velocity_slopes,
    violation,
)
from jaxdyn.trajectory.problem import advance, knots_of
from jaxdyn.trajectory.shooting import (
    Solved,
    _convex_policy,
    _Ends,
    _Iterate,
    _Pace,
    _paced,
    _status,
    _step,
    differentiable,
    line_search,
)

ARM = jaxdyn.textbook.pendulum(2, damping=0.1)


def lq_cost(lq, states, controls):
    """The cost of an LQ problem."""
    lq = lq.dense()
    z = jnp.concatenate([states[:-1], controls], -1)
    running = (z * (0.5 * jnp.einsum("kij,kj->ki", lq.cost[..., :-1], z) + lq.cost[..., -1])).sum()
    last = states[-1]
    return running + last @ (0.5 * lq.end[:, :-1] @ last + lq.end[:, -1])


def lq_residual(lq, solution):
    """(gradient of the Lagrangian to states from the second on and to controls, misses of the dynamics), both flat."""
    dx, du, multipliers = solution
    lq, n = lq.dense(), lq.states
    z = jnp.concatenate([dx[:-1], du], -1)
    ahead = jnp.einsum("kij,ki->kj", lq.dynamics[..., :-1], multipliers[1:])
    gradient = jnp.einsum("kij,kj->ki", lq.cost[..., :-1], z) + lq.cost[..., -1] + ahead
    end = lq.end[:, :-1] @ dx[-1] + lq.end[:, -1] - multipliers[-1]
    by_state = jnp.concatenate([gradient[1:, :n] - multipliers[1:-1], end[None]])
    misses = jnp.einsum("kij,kj->ki", lq.dynamics[..., :-1], z) + lq.dynamics[..., -1] - dx[1:]
    return jnp.concatenate([by_state.reshape(-1), gradient[:, n:].reshape(-1)]), misses.reshape(-1)


def random_lq(steps=6, n=3, m=2, seed=0):
    rng = np.random.default_rng(seed)

    def root(*shape):
        x = rng.normal(size=(*shape, shape[-1]))
        return jnp.asarray(x @ np.swapaxes(x, -1, -2) + 0.1 * np.eye(shape[-1]))

    cost = root(steps, n + m)
    rows = lambda *shape: jnp.asarray(rng.normal(size=shape))
    return jaxdyn.trajectory.linear_quadratic(
        rows(steps, n, n),
        rows(steps, n, m),
        cost[:, :n, :n],
        cost[:, n:, n:],
        root(n),
        S=cost[:, :n, n:],
        c=rows(steps, n),
        q=rows(steps, n),
        r=rows(steps, m),
        end_gradient=rows(n),
    )


def test_the_riccati_recursion_meets_the_optimality_conditions():
    lq, start = random_lq(), jnp.array([0.3, -0.2, 0.5])
    solved = lambda solve, rollout: lambda lq, x: (policy := solve(lq), rollout(lq, policy, x))
    policy, solution = jax.jit(solved(jaxdyn.trajectory.riccati, lq_rollout))(lq, start)
    for part in lq_residual(lq, solution):
        assert_allclose(part, 0, atol=1e-9)
    jax.tree.map(assert_allclose, jax.jit(jaxdyn.trajectory.solve_lq)(lq, start), solution)
    # derivatives of the cost by states and controls where all are zero
    dynamics, cost, end = map(np.asarray, (lq.dynamics, lq.cost, lq.end))
    adjoint, slopes = [end[:, 3]], []
    for matrix, own in zip(dynamics[::-1], cost[::-1], strict=True):
        both = own[:, 5] + matrix[:, :5].T @ adjoint[0]
        adjoint, slopes = [both[:3], *adjoint], [both[3:], *slopes]
    assert_allclose(policy.adjoint, adjoint, rtol=1e-10)
    assert_allclose(policy.slope, slopes, rtol=1e-10)
    assert_allclose(once(adjoints)(lq), adjoint, rtol=1e-10)
    assert_allclose(lq.control_weights, [np.diag(own[3:, 3:5]) for own in cost])
    batch = jax.tree.map(lambda *x: jnp.stack(x), *(random_lq(seed=k) for k in range(3)))
    gains = jax.jit(jax.vmap(lambda lq: jaxdyn.trajectory.riccati(lq).gains))(batch)
    assert_allclose(gains[0], policy.gains, atol=1e-9)


@pytest.mark.nightly
def test_euler_steps_and_diagonal_costs_are_a_shorter_way_to_the_same_policy():
    rng, (steps, v, m) = np.random.default_rng(3), (4, 2, 2)
    rows = lambda *shape: jnp.asarray(rng.normal(size=shape))
    end = jnp.concatenate([jnp.eye(2 * v), rows(2 * v, 1)], 1)
    dynamics = EulerSteps(rows(steps, v, 2 * v + m), rows(steps, 2 * v), jnp.asarray(0.1))
    lq = LinearQuadratic(dynamics, DiagonalCost(0.1 + rows(steps, 2 * v + m) ** 2, rows(steps, 2 * v + m)), end)
    bounds, damping = (-jnp.full((steps, m), 0.3), jnp.full((steps, m), 0.4)), 0.3
    solve = jax.jit(lambda lq: policy_and_descent(lq, bounds, damping))
    policy, descent = solve(lq)
    assert not bool(policy.free.all())
    jax.tree.map(lambda a, b: assert_allclose(a, b, atol=1e-12), (policy, descent), solve(lq.dense()))
    # the promise is kept by the motion
    x = np.zeros(2 * v)
    states, controls = [x], []
    for k, row in enumerate(np.asarray(lq.dense().dynamics)):
        controls.append(policy.gains[k] @ x + policy.feedforward[k])
        x = row @ np.concatenate([x, controls[-1], [1.0]])
        states.append(x)
    states, controls = jnp.stack(states), jnp.stack(controls)
    for a in (0.4, 1.0):
        cost = lq_cost(lq, a * states, a * controls) + 0.5 * damping * a**2 * (controls**2).sum()
        assert_allclose(a * descent.slope + 0.5 * a**2 * descent.curvature, cost, rtol=1e-10)


@pytest.mark.nightly
def test_a_diagonal_hessian_equals_the_dense_one():
    limits = (
        jaxdyn.trajectory.PositionLimits(jnp.array([-0.3, -0.2]), jnp.array([0.4, 0.1])),
        jaxdyn.trajectory.VelocityLimits(jnp.array([0.1]), (1,)),
    )
    problem = arm_problem(constraints=(*limits, jaxdyn.trajectory.StateConstraint(v=jnp.array([0.1, 0.2]))), steps=5)
    rng = np.random.default_rng(4)
    rows = lambda *shape: jnp.asarray(rng.normal(size=shape))
    guess = jaxdyn.trajectory.Trajectory(0.04 * jnp.arange(6.0), rows(6, 2), rows(6, 2), rows(5, 2))
    weights, off = jnp.asarray(7.0), rows(6, 8)

    def model(problem, guess):
        penalty = Penalty((off, jnp.zeros(0)), weights, jnp.ones((6, 8)))
        return linearised(problem, guess, jnp.zeros((5, 4)), penalty)._replace(dynamics=jnp.zeros((5, 4, 7)))

    short = jax.jit(model)(problem, guess)
    assert isinstance(short.cost, DiagonalCost)
    # a cost without effect whose entries depend on two coordinates
    joint = jaxdyn.trajectory.UserCost(lambda chain, knot, data: 0 * (knot.q[:1] + knot.q[1:]))
    long = jax.jit(model)(dataclasses.replace(problem, running=(*problem.running, joint)), guess)
    assert not isinstance(long.cost, DiagonalCost)
    assert_allclose(short.dense().cost, long.cost, atol=1e-12)


class Difference(jaxdyn.trajectory.StateCost):
    """The cost of a state and of the difference between neighbouring positions."""

    def residual(self, chain, knot):
        return jnp.concatenate([super().residual(chain, knot), 3.0 * jnp.diff(knot.q)])


@pytest.mark.nightly
def test_the_hessian_of_a_subclass_with_another_residual_is_not_diagonal():
    problem = arm_problem(steps=3)
    problem = dataclasses.replace(problem, running=(Difference(jnp.zeros(2), jnp.zeros(2)),))
    motion = jaxdyn.trajectory.stationary_guess(problem)
    penalty = Penalty((jnp.zeros((4, 0)), jnp.zeros(0)), jnp.asarray(1.0), jnp.ones((4, 0)))
    lq = jax.jit(linearised)(problem, motion, jnp.zeros((3, 4)), penalty).dense()
    expected = np.diag([1.0, 1.0, 1.0, 1.0, 0.0, 0.0])
    expected[:2, :2] += 9 * np.array([[1, -1], [-1, 1]])
    assert_allclose(lq.cost[0, :, :-1], problem.dt * expected, atol=1e-12)


@pytest.mark.nightly
def test_a_long_horizon_has_the_gain_of_the_algebraic_equation():
    rng = np.random.default_rng(1)
    A, B, Q, R = rng.normal(size=(3, 3)) * 0.6, rng.normal(size=(3, 2)), np.eye(3), 0.5 * np.eye(2)
    P = scipy.linalg.solve_discrete_are(A, B, Q, R)
    every = lambda x: jnp.broadcast_to(jnp.asarray(x), (60, *x.shape))
    lq = jaxdyn.trajectory.linear_quadratic(every(A), every(B), every(Q), every(R), jnp.zeros((3, 3)))
    gain = -np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
    for policy in (jax.jit(jaxdyn.trajectory.riccati)(lq),):
        assert_allclose(policy.hessian[0], P, atol=1e-9)
        assert_allclose(policy.gains[0], gain, atol=1e-9)


def test_quadratic_programs_with_bounds_are_solved():
    """Against scipy; and two thousand worse conditioned ones, with steps that meet a bound at once, by their fixed points."""
    rng, count = np.random.default_rng(2), 2000
    stretched = np.exp(rng.normal(size=(count, 1, 4)) * np.where(np.arange(count) < 20, 0, 0.8)[:, None, None])
    roots = rng.normal(size=(count, 4, 4)) * stretched
    h, g = roots @ np.swapaxes(roots, 1, 2) + 0.1 * np.eye(4), 3 * rng.normal(size=(count, 4))
    g[20:] *= 10
    lower, upper = -rng.uniform(0, 0.5, (count, 4)), rng.uniform(0, 0.5, (count, 4))
    upper[0, 0] = lower[0, 0]  # a fixed one
    lower[20:][rng.uniform(size=(count - 20, 4)) < 0.3] = 0
    u, free, inverse, pivot = map(
        np.asarray,
        jax.jit(jax.vmap(box_qp))(*map(jnp.asarray, (h, g, lower, upper))),
    )
    for k in range(20):
        wide = np.maximum(upper[k], lower[k] + 1e-12)
        root = np.linalg.cholesky(h[k]).T
        found = scipy.optimize.lsq_linear(root, -np.linalg.solve(root.T, g[k]), (lower[k], wide), tol=1e-14)
        assert_allclose(u[k], found.x, atol=1e-7)
        kept = np.flatnonzero(free[k])
        block = np.linalg.inv(h[k][np.ix_(kept, kept)])
        assert_allclose(inverse[k][np.ix_(kept, kept)], block, rtol=1e-9)
        assert not inverse[k][~free[k]].any() and 0 < pivot[k] <= 1 + h[k].max()
    gradient = np.einsum("kij,kj->ki", h, u) + g
    assert_allclose(u, np.clip(u - gradient / np.abs(h).sum(2).max(1)[:, None], lower, upper), atol=1e-12)
    assert_allclose(np.where(free, gradient, 0), 0, atol=1e-7)


def linear_problem():
    robot = dataclasses.replace(jaxdyn.textbook.cartesian_two_link(), gravity=jnp.zeros(3))
    running = (
        jaxdyn.trajectory.StateCost(jnp.array([0.5, -0.2]), jnp.zeros(2), 1.0, 0.3),
        jaxdyn.trajectory.TorqueCost(0.2),
    )
    terminal = (jaxdyn.trajectory.StateCost(jnp.array([0.5, -0.2]), jnp.zeros(2), 5.0, 2.0),)
    return jaxdyn.trajectory.OptimalControlProblem(
        robot, jnp.zeros(2), jnp.array([0.1, 0.0]), 20, 0.05, running, terminal
    )


@pytest.mark.ci
def test_a_linear_problem_takes_one_iteration():
    problem = linear_problem()
    solution = jax.jit(jaxdyn.trajectory.solve_by_shooting)(problem)
    assert int(solution.status) == jaxdyn.trajectory.Status.CONVERGED and int(solution.iterations) == 1
    mass = np.asarray(jaxdyn.mass_matrix(problem.chain, problem.q0))
    dt, eye, zero = 0.05, np.eye(2), np.zeros((2, 2))
    push = np.linalg.inv(mass) * dt
    A, B = np.block([[eye, dt * eye], [zero, eye]]), np.vstack([dt * push, push])
    every = lambda x: jnp.broadcast_to(jnp.asarray(x), (20, *x.shape))
    Q, end = dt * np.diag([1, 1, 0.09, 0.09]), jnp.asarray(np.diag([25.0, 25, 4, 4]))
    lq = jaxdyn.trajectory.linear_quadratic(every(A), every(B), every(Q), every(dt * 0.04 * eye), end)
    goal = jnp.array([0.5, -0.2, 0, 0])
    known = jaxdyn.trajectory.solve_lq(lq, jnp.concatenate([problem.q0, problem.v0]) - goal)
    assert_allclose(solution.trajectory.tau, known.controls, atol=1e-9)
    assert_allclose(solution.trajectory.q, known.states[:, :2] + goal[None, :2], atol=1e-9)


def arm_problem(goal=(0.6, 0.4), limit=6.0, steps=25, **named):
    goal = jnp.asarray(goal)
    running = (jaxdyn.trajectory.StateCost(goal, jnp.zeros(2), 0.3, 0.1), jaxdyn.trajectory.TorqueCost(0.1))
    terminal = named.pop("terminal", (jaxdyn.trajectory.StateCost(goal, jnp.zeros(2), 20.0, 3.0),))
    limits = limit * jnp.array([[-1.0, 1.0], [-1.0, 1.0]])
    return jaxdyn.trajectory.OptimalControlProblem(
        ARM, jnp.zeros(2), jnp.zeros(2), steps, 0.04, running, terminal, torque_limits=limits, **named
    )


solve = functools.lru_cache(
    lambda **options: jax.jit(functools.partial(jaxdyn.trajectory.solve_by_shooting, **options))
)


@pytest.mark.nightly
def test_torques_stay_within_their_limits():
    problem = arm_problem()
    solution = solve()(problem)
    assert int(solution.status) == jaxdyn.trajectory.Status.CONVERGED
    assert float(solution.residuals.largest) <= 1e-6
    tau = np.asarray(solution.trajectory.tau)
    assert np.abs(tau).max() == 6.0
    assert_allclose(
        jaxdyn.trajectory.simulate_controls(problem, solution.trajectory.tau).q, solution.trajectory.q, atol=1e-9
    )
    # no admissible change of the torques lowers the cost
    cost = lambda tau: jaxdyn.trajectory.total_cost(problem, jaxdyn.trajectory.simulate_controls(problem, tau))
    gradient = np.asarray(jax.jit(jax.grad(cost))(solution.trajectory.tau))
    assert_allclose(tau, np.clip(tau - gradient, -6.0, 6.0), atol=1e-6)


@pytest.mark.nightly
def test_a_batch_is_solved_as_its_problems_are():
    goals = jnp.array([[0.6, 0.4], [0.2, -0.3], [1.5, 0.0]])
    problem = arm_problem()
    with_goal = lambda goal: eqx.tree_at(lambda p: (p.running[0].q, p.terminal[0].q), problem, (goal, goal))
    batch = jax.jit(lambda goals: jax.vmap(lambda g: jaxdyn.trajectory.solve_by_shooting(with_goal(g)))(goals))(goals)
    assert (np.asarray(batch.status) == jaxdyn.trajectory.Status.CONVERGED).all()
    single = solve()(problem)
    assert int(single.iterations) == int(batch.iterations[0])
    assert_allclose(batch.trajectory.tau[0], single.trajectory.tau, atol=1e-7)


@pytest.mark.nightly
def test_a_guess_that_is_no_motion_is_made_one():
    problem = arm_problem()
    t = problem.dt * jnp.arange(26.0)
    q = jnp.linspace(0, 1, 26)[:, None] * jnp.array([[0.6, 0.4]])
    guess = jaxdyn.trajectory.Trajectory(t, q, jnp.full((26, 2), 0.3), jnp.zeros((25, 2)))
    solution = solve()(problem, guess)
    assert int(solution.status) == jaxdyn.trajectory.Status.CONVERGED
    assert_allclose(solution.trajectory.q, solve()(problem).trajectory.q, atol=1e-4)


@pytest.mark.nightly
def test_constraints_hold_at_the_end_and_along_the_way():
    goal = jnp.array([0.6, 0.4])
    limits = jaxdyn.trajectory.VelocityLimits(jnp.array([1.2, 1.2]))
    end = jaxdyn.trajectory.StateConstraint(goal, jnp.zeros(2))
    problem = arm_problem(limit=30.0, terminal=(), constraints=(limits,), terminal_constraints=(end,))
    solution = solve()(problem)
    assert int(solution.status) == jaxdyn.trajectory.Status.CONVERGED
    assert float(solution.residuals.largest) <= 1e-6
    assert_allclose(solution.trajectory.q[-1], goal, atol=1e-6)
    assert_allclose(solution.trajectory.v[-1], 0, atol=1e-6)
    assert np.abs(solution.trajectory.v).max() <= 1.2 + 1e-6
    assert np.asarray(solution.multipliers["inequality"]).max() > 0


@pytest.mark.nightly
def test_derivatives_of_a_solution_are_those_of_solutions_nearby():
    problem = arm_problem()
    place = lambda p: (p.running[0].q, p.terminal[0].q, p.torque_limits, p.chain.inertia)

    def outcome(x):
        goal = problem.terminal[0].q + x[:2]
        limits, inertia = problem.torque_limits * (1 + x[2]), problem.chain.inertia * (1 + x[3])
        changed = eqx.tree_at(place, problem, (goal, goal, limits, inertia))
        solution = jaxdyn.trajectory.solve_by_shooting(changed, tolerance=1e-13)  # the differences need it
        return jnp.concatenate([solution.cost[None], solution.trajectory.q[-1], solution.trajectory.tau[12]])

    run = jax.jit(outcome)
    zero, h = jnp.zeros(4), 1e-5
    differences = np.stack([(run(zero.at[i].set(h)) - run(zero.at[i].set(-h))) / (2 * h) for i in range(4)], 1)
    jacobian = jax.jit(jax.jacfwd(outcome))(zero)
    assert_allclose(jacobian, differences, rtol=1e-5, atol=1e-5)


def tilted_problem():
    """Three steps with costs and constraints of every kind; a linear cost of the torques makes any of them the best."""
    goal = jnp.array([0.5, -0.3])
    tilt = jaxdyn.trajectory.ScalarCost(
        lambda chain, knot, data: data[knot.k] @ knot.tau + knot.tau @ knot.tau, jnp.zeros((3, 2))
    )
    speed = jaxdyn.trajectory.VelocityLimits(jnp.array([1.0]), (1,))
    end = jaxdyn.trajectory.UserConstraint(
        lambda chain, knot, data: jnp.sin(knot.q[:1]) - data, jnp.zeros(1), kind="equality"
    )
    return jaxdyn.trajectory.OptimalControlProblem(
        ARM,
        jnp.array([0.3, -0.2]),
        jnp.array([0.4, 0.9]),
        3,
        0.1,
        (jaxdyn.trajectory.StateCost(goal, jnp.zeros(2), 0.8, 0.3), jaxdyn.trajectory.TorqueRateCost(0.02), tilt),
        (jaxdyn.trajectory.StateCost(goal, jnp.zeros(2), 2.0, 1.0),),
        (speed,),
        (end,),
        torque_limits=jnp.array([[-9.0, 2.0], [-9.0, 9.0]]),
        tau0=jnp.array([0.2, -0.4]),
        method="rk4",
    )


def coupled_step(problem, q, v, tau):
    """Of a system of two coordinates in place of a robot: of a few operations, so that its derivatives compile quickly."""
    mass = problem.chain.inertia[:, 0]
    v = v + problem.dt * (tau * (1 + 0.3 * jnp.cos(q[::-1])) - jnp.sin(q) - 0.2 * v * v[::-1]) / mass
    return q + problem.dt * v, v


def advance_coupled(problem, q, v, tau, near=None):
    """`coupled_step` in place of `advance`, without contacts."""
    return (*coupled_step(problem, q, v, tau), near)


def lagrangian(problem, tau, equal, active, pushes):
    """Cost and multipliers times constraints, and the motion; with pushes on the states (q, v, tau before) on the way."""
    goal, tilt, dt = problem.running[0].q, problem.running[2].data, problem.dt

    def one(state, x):
        (q, v, before), (tau, tilt, push, multiplier) = state, x
        q, v, before = q + push[:2], v + push[2:4], before + push[4:]
        rate = 0.02 * (tau - before) / dt
        cost = 0.32 * (q - goal) @ (q - goal) + 0.045 * v @ v + 0.5 * rate @ rate + tilt @ tau + tau @ tau
        limited = multiplier * (v[1] - problem.constraints[0].limit[0])
        return (*coupled_step(problem, q, v, tau), tau), (dt * cost + limited, q, v)

    start = problem.q0, problem.v0, problem.tau0
    turns = tau, tilt, pushes[:-1], jnp.zeros(3).at[2].set(active)
    (q, v, _), (costs, qs, vs) = jax.lax.scan(one, start, turns)
    q, v = q + pushes[-1, :2], v + pushes[-1, 2:4]
    off = jnp.sin(q[0]) - problem.terminal_constraints[0].data[0]
    value = costs.sum() + 2 * (q - goal) @ (q - goal) + 0.5 * v @ v + equal * off
    return value, jnp.concatenate([qs, q[None]]), jnp.concatenate([vs, v[None]]), off


@pytest.mark.parametrize(
    "mode", [pytest.param("forwards", marks=pytest.mark.ci), pytest.param("backwards", marks=pytest.mark.nightly)]
)
def test_derivatives_of_a_solution_that_is_known(monkeypatch, mode):
    """Of a problem made so that its solution is known: dz/dp = -F_z^-1 F_p of its optimality conditions in all torques.

    With a torque at its limit, a velocity at its own, an equality at the end, second derivatives and rates of torques.
    """
    monkeypatch.setattr(shooting_model, "advance", advance_coupled)
    tau = jnp.array([[0.5, 3.0], [2.0, 2.5], [-1.3, -4.0]])
    multipliers, still = jnp.array([0.6, 0.4]), jnp.zeros((4, 6))
    along, weights = (jnp.asarray(np.random.default_rng(8).normal(size=n)) for n in (11, 26))
    goals = lambda p: (p.running[0].q, p.terminal[0].q)
    where = lambda p: (*goals(p), p.torque_limits, p.q0, p.constraints[0].limit, p.chain.inertia, p.dt)
    reached = lambda p: (p.constraints[0].limit, p.terminal_constraints[0].data)

    def moved(problem, x):
        """By eleven parameters."""
        goal, end, limits, q0, fastest, inertia, dt = where(problem)
        start = goal + x[:2], end + x[:2], limits + x[2:6].reshape(2, 2), q0 + x[6:8]
        return eqx.tree_at(where, problem, (*start, fastest + x[8:9], inertia * (1 + x[9]), dt * (1 + x[10])))

    @jax.jit
    def run(x):
        value = lambda problem, tau, y, pushes: lagrangian(problem, tau, *y, pushes)
        problem = tilted_problem()
        _, q, v, off = value(problem, tau, multipliers, still)
        problem = eqx.tree_at(reached, problem, (v[2, 1:], off[None]))
        slope = jax.grad(lambda tau: value(problem, tau, multipliers, still)[0])(tau)
        problem = eqx.tree_at(lambda p: p.running[2].data, problem, (-slope / problem.dt).at[1, 0].add(-5.0))
        duals = jax.grad(lambda pushes: value(problem, tau, multipliers, pushes)[0])(still)
        motion = jaxdyn.trajectory.Trajectory(problem.dt * jnp.arange(4.0), q, v, tau)
        penalty = no_penalty(problem, motion, 10.0)
        known = penalty.multipliers[0].at[2, 1].set(multipliers[1]), multipliers[:1]
        solved = Solved(motion, penalty._replace(multipliers=known), duals, jnp.zeros((3, 2)).at[1, 0].set(1.0))
        leaves = lambda motion: jnp.concatenate([y.reshape(-1) for y in jax.tree.leaves(motion)])
        found = lambda x: leaves(differentiable(moved(problem, x), solved))

        def conditions(z, x):
            now = moved(problem, x)
            tau = z[:6].reshape(3, 2)
            (_, q, v, off), pull = jax.vjp(lambda tau: value(now, tau, z[6:], still), tau)
            (slope,) = pull((jnp.ones(()), 0 * q, 0 * v, 0 * off))
            slope = slope.reshape(-1).at[2].set(tau[1, 0] - now.torque_limits[0, 1])
            motion = jnp.concatenate([now.dt * jnp.arange(4.0), q.reshape(-1), v.reshape(-1), tau.reshape(-1)])
            return jnp.concatenate([slope, jnp.stack([off, v[2, 1] - now.constraints[0].limit[0]])]), motion

        z = jnp.concatenate([tau.reshape(-1), multipliers])
        (by_z, by_x), (motion_by_z, motion_by_x) = jax.jacfwd(conditions, (0, 1))(z, x)
        forwards = mode == "forwards"
        derivatives = jax.jvp(found, (x,), (along,))[1] if forwards else jax.grad(lambda x: weights @ found(x))(x)
        return conditions(z, x)[0], v, (by_z, by_x, motion_by_z, motion_by_x), derivatives

    zero, v, slopes, derivatives = jax.tree.map(np.asarray, run(jnp.zeros(11)))
    by_z, by_x, motion_by_z, motion_by_x = slopes
    assert_allclose(zero, 0, atol=1e-12)
    assert (np.abs(v[[1, 3], 1]) < v[2, 1]).all()  # one velocity alone is at its limit
    expected = motion_by_x - motion_by_z @ np.linalg.solve(by_z, by_x)
    assert_allclose(derivatives, expected @ along if mode == "forwards" else weights @ expected, rtol=1e-7, atol=1e-7)


@pytest.mark.ci
def test_the_linear_quadratic_problem_is_the_objective_s_expansion(monkeypatch):
    """Its gradient, its Hessian and its steps' Jacobians, about a guess with gaps; the objective written out in NumPy."""
    monkeypatch.setattr(shooting_model, "advance", advance_coupled)
    rng = np.random.default_rng(5)
    rows = lambda *shape: jnp.asarray(rng.normal(size=shape))
    curved = jaxdyn.trajectory.ScalarCost(lambda chain, knot, data: -jnp.sin(knot.q @ data), rows(2))
    problem = tilted_problem()
    end = jaxdyn.trajectory.StateConstraint(v=rows(2)), jaxdyn.trajectory.PositionLimits(rows(1), rows(1) + 9, (1,))
    problem = dataclasses.replace(problem, terminal=(*problem.terminal, curved), terminal_constraints=end)
    motion = jaxdyn.trajectory.Trajectory(problem.dt * jnp.arange(4.0), rows(4, 2), rows(4, 2), rows(3, 2))
    penalty = no_penalty(problem, motion, 7.0)
    assert_allclose(penalty.counted, [[0, 0], [1, 1], [1, 1], [1, 1]])
    penalty = penalty._replace(multipliers=(jnp.abs(rows(4, 2)), jnp.abs(rows(4)).at[:2].add(-0.5)))

    @once
    def run(changes):
        def value(changes):
            q, v, tau = (y + d for y, d in zip((motion.q, motion.v, motion.tau), changes, strict=True))
            return objective(problem, jaxdyn.trajectory.Trajectory(motion.t, q, v, tau), penalty)

        gaps = gaps_of(problem, motion)
        exact = linearised(problem, motion, gaps, penalty, jnp.zeros((4, 6)))
        step = lambda z: jnp.concatenate([*coupled_step(problem, z[:2], z[2:4], z[6:]), z[6:]])
        z = jnp.concatenate([motion.q[1], motion.v[1], motion.tau[0], motion.tau[1]])
        values = constraint_rows(problem, knots_of(problem, motion))
        found = violation(values, penalty), linearised(problem, motion, gaps, penalty), exact, gaps
        cost = jaxdyn.trajectory.total_cost(problem, motion)
        return (value(changes), cost), jax.grad(value)(changes), jax.hessian(value)(changes), found, jax.jacfwd(step)(z)

    changes = jnp.zeros((4, 2)), jnp.zeros((4, 2)), jnp.zeros((3, 2))
    (value, cost), slopes, hessian, (found, lq, exact, gaps), step = jax.tree.map(np.asarray, run(changes))
    q, v, tau = np.asarray(motion.q), np.asarray(motion.v), np.asarray(motion.tau)
    speed = np.stack([-1 - v[:, 1], v[:, 1] - 1], axis=1)
    ends = np.concatenate([v[3] - end[0].v, end[1].lower - q[3, 1:], q[3, 1:] - end[1].upper])
    multipliers = [np.asarray(x) for x in penalty.multipliers]
    new = np.maximum(multipliers[0] + 7 * speed, 0) * penalty.counted
    new_end = multipliers[1] + 7 * ends
    new_end[2:] = np.maximum(new_end[2:], 0)
    assert_allclose(value, cost + ((new**2).sum() + (new_end**2).sum()) / 14, rtol=1e-12)
    assert_allclose(found.multipliers[0], new, atol=1e-12)
    assert_allclose(found.multipliers[1], new_end, atol=1e-12)
    missed = np.concatenate([np.abs(ends[:2]), ends[2:], speed[1:].reshape(-1)])
    assert_allclose(found.largest, missed.max(), rtol=1e-12)
    slack = np.concatenate([(new * np.maximum(-speed, 0)).reshape(-1), new_end[2:] * np.maximum(-ends[2:], 0)])
    assert_allclose(found.complementarity, slack.max(), atol=1e-12)

    # z = (dq, dv, dtau before, dtau) of a knot; what a torque changes is in its own knot and in the next
    place = np.zeros((30, 22))  # of all z, by (q, v, tau) of all knots
    for k in range(4):
        own = place[8 * k : 8 * k + 8]
        own[:2, 2 * k : 2 * k + 2] = own[2:4, 8 + 2 * k : 10 + 2 * k] = np.eye(2)
        if k > 0:
            own[4:6, 14 + 2 * k : 16 + 2 * k] = np.eye(2)
        if k < 3:
            own[6:, 16 + 2 * k : 18 + 2 * k] = np.eye(2)
    flat = np.concatenate([x.reshape(-1) for x in slopes])
    for one in (lq, exact):
        gradient = np.concatenate([one.cost[..., -1].reshape(-1), one.end[:, -1]])
        assert_allclose(place.T @ gradient, flat, atol=1e-10)
        assert_allclose(one.dynamics[1, :, :-1], step, atol=1e-12)
        assert_allclose(one.dynamics[..., -1], gaps, atol=1e-12)
    blocks = scipy.linalg.block_diag(*exact.cost[..., :-1], exact.end[:, :-1])
    whole = np.block([[x.reshape(size, -1) for x in row] for size, row in zip((8, 8, 6), hessian, strict=True)])
    assert_allclose(place.T @ blocks @ place, whole, atol=1e-10)
    # the other has the same Hessian but for the curvature of the scalar cost at the end, which is negative
    wave = np.asarray(curved.data)
    assert np.sin(q[3] @ wave) < -0.1
    convex = exact.end[:, :-1].copy()
    convex[:2, :2] -= np.sin(q[3] @ wave) * np.outer(wave, wave)
    assert_allclose(lq.cost, exact.cost, atol=1e-10)
    assert_allclose(lq.end[:, :-1], convex, atol=1e-10)
    after = [
        np.concatenate(jax.tree.map(np.asarray, coupled_step(problem, *map(jnp.asarray, x))))
        for x in zip(q[:3], v[:3], tau, strict=True)
    ]
    assert_allclose(gaps[:, :4], np.array(after) - np.concatenate([q[1:], v[1:]], axis=1), atol=1e-12)
    assert_allclose(gaps[:, 4:], 0)
    nothing = _quadratic(lambda *z: jnp.zeros(0), None, (), (jnp.zeros(2), jnp.zeros(3)), None)  # where nothing costs
    assert nothing.shape == (5, 6) and not nothing.any()


@pytest.mark.ci
def test_steps_of_ordinary_joints_have_their_jacobians(monkeypatch):
    """Velocities with friction and springs against differences; both methods of Euler, with rates of torques or without."""
    rate = dataclasses.replace(tilted_problem(), chain=random_chain(2, 3), method="explicit_euler")
    x, h = jnp.asarray(np.random.default_rng(6).normal(size=6)), 1e-3

    @once
    def run(x):
        around = x[None, None] + h * jnp.asarray([-2.0, -1.0, 1.0, 2.0])[:, None, None] * jnp.eye(6)[None]
        after = jax.lax.map(lambda x: advance(rate, x[:2], x[2:4], x[4:])[1], around.reshape(24, 6)).reshape(4, 6, 2)
        return velocity_slopes(rate, x[:2], x[2:4], x[4:]), (after[0] - 8 * after[1] + 8 * after[2] - after[3]).T / (
            12 * h
        )

    slopes, expected = run(x)
    assert_allclose(slopes, expected, atol=1e-8)
    monkeypatch.setattr(shooting_model, "velocity_slopes", lambda *_: slopes)
    implicit = dataclasses.replace(rate, running=(), method="semi_implicit_euler")
    eye = np.eye(2)
    short = np.vstack([np.hstack([eye, np.zeros((2, 4))]) + 0.1 * np.asarray(slopes), slopes])
    assert_allclose(dynamics_jacobian(implicit, x[:2], x[2:4], x[4:]), short, atol=1e-15)
    whole = np.zeros((6, 8))
    whole[:2, :4], whole[2:4, [0, 1, 2, 3, 6, 7]], whole[4:, 6:] = np.hstack([eye, 0.1 * eye]), slopes, eye
    assert_allclose(dynamics_jacobian(rate, x[:2], x[2:4], x[4:]), whole, atol=1e-15)


def test_policies_are_followed_with_gaps_closed_in_part(monkeypatch):
    """tau + a k + K (x - x before) within the limits, gaps (1 - a) as wide, against a loop; and moved on by some steps."""
    monkeypatch.setattr(shooting_rollout, "advance", advance_coupled)
    monkeypatch.setattr(shift, "advance", advance_coupled)
    problem, rng = tilted_problem(), np.random.default_rng(9)
    rows = lambda *shape: rng.normal(size=shape)
    t, q, v, tau = 0.1 * np.arange(4.0), rows(4, 2), rows(4, 2), rows(3, 2)
    gains, feedforward, gaps, a = rows(3, 2, 6), rows(3, 2), rows(3, 6), 0.6
    blank = jnp.zeros(())
    policy = LQPolicy(jnp.asarray(gains), jnp.asarray(feedforward), *[blank] * 6)
    motion = jaxdyn.trajectory.Trajectory(*map(jnp.asarray, (t, q, v, tau)))
    multipliers = {"dynamics": rows(4, 6), "torques": rows(3, 2), "terminal_constraints": rows(3), "other": rows(7)}
    multipliers = {name: jnp.asarray(x) for name, x in multipliers.items()}
    step = lambda *x: [np.asarray(y) for y in coupled_step(problem, *map(jnp.asarray, x))]

    @once
    def run(motion):
        solution = jaxdyn.trajectory.problem.Guess(motion, multipliers)
        return shooting_rollout.under_policy(
            problem, motion, policy, jnp.asarray(gaps), a
        ), jaxdyn.trajectory.shift_guess(problem, solution, 2)

    found, later = run(motion)
    x, u, change, states, torques = np.asarray(problem.q0), np.asarray(problem.v0), np.zeros(2), [], []
    for k in range(3):
        away = np.concatenate([x - q[k], u - v[k], change])
        push = np.clip(tau[k] + a * feedforward[k] + gains[k] @ away, [-9, -9], [2, 9])
        states.append((x, u))
        torques.append(push)
        change = push - tau[k]
        x, u = step(x, u, push)
        x, u = x - (1 - a) * gaps[k, :2], u - (1 - a) * gaps[k, 2:4]
    states.append((x, u))
    assert_allclose(found.q, [x for x, _ in states], atol=1e-12)
    assert_allclose(found.v, [u for _, u in states], atol=1e-12)
    assert_allclose(found.tau, torques, atol=1e-12)
    assert max(torque[0] for torque in torques) == 2.0

    once_more = step(q[3], v[3], tau[2])
    twice = step(*once_more, tau[2])
    assert_allclose(later.trajectory.q, [q[2], q[3], once_more[0], twice[0]], atol=1e-12)
    assert_allclose(later.trajectory.v, [v[2], v[3], once_more[1], twice[1]], atol=1e-12)
    assert_allclose(later.trajectory.tau, tau[[2, 2, 2]])
    for name, order in (("dynamics", [2, 3, 3, 3]), ("torques", [2, 2, 2]), ("other", range(7))):
        assert_allclose(later.multipliers[name], multipliers[name][jnp.asarray(order)])
    assert_allclose(later.multipliers["terminal_constraints"], multipliers["terminal_constraints"])


@pytest.mark.nightly
def test_the_simple_rollout_is_the_general_one():
    """Of a robot with friction and springs, by explicit steps."""
    rng, problem = (
        np.random.default_rng(10),
        dataclasses.replace(tilted_problem(), chain=random_chain(2, 3), running=(), method="explicit_euler"),
    )
    rows = lambda *shape: jnp.asarray(rng.normal(size=shape))
    motion = jaxdyn.trajectory.Trajectory(jnp.arange(3.0), rows(3, 2), rows(3, 2), rows(2, 2))
    policy = LQPolicy(rows(2, 2, 4), rows(2, 2), *[jnp.zeros(())] * 6)
    gaps = rows(2, 4)
    turns = motion.q[:-1], motion.v[:-1], motion.tau, policy.gains, 0.7 * policy.feedforward, 0.3 * gaps

    @once
    def run(motion):
        expected = shooting_rollout._general(problem, (problem.q0, problem.v0), turns)
        return shooting_rollout.under_policy(problem, motion, policy, gaps, 0.7), expected

    found, expected = run(motion)
    for x, y in zip((found.q, found.v, found.tau), expected, strict=True):
        assert_allclose(x, y, atol=1e-12)


@pytest.mark.parametrize("together", [False, True])
def test_step_lengths_are_chosen_by_a_parabola(together):
    """Of a parabola whose slope at no step is -1, by where its minimum is; a longer one is tried where it is allowed."""

    @once
    def run(least, slope, longer):
        merit = lambda length: 2.0 + slope * (length - 0.5 * length**2 / least)
        return line_search(lambda a: (a * jnp.ones(2), merit(a)), -jnp.ones(2), merit(0.0), slope, together, longer)

    def chosen(least, slope=-1.0, longer=True):
        result, length = run(*map(jnp.asarray, (least, slope, longer)))
        assert_allclose(result, -1.0 if length == 0 else length)
        return float(length)

    if together:
        assert chosen(2.2) == 2 and chosen(3.7) == 4 and chosen(20.0) == 8
    else:
        assert chosen(3.0) == pytest.approx(3.0, rel=1e-12) and chosen(20.0) == 8 and chosen(1.2) == 1
    assert chosen(3.0, longer=False) == 1
    assert chosen(0.3) == 0.5 and chosen(0.06) == pytest.approx(0.0625, rel=1e-12) and chosen(1e-5) == 0
    assert chosen(-1.0, slope=1.0) == 0  # upwards everywhere
    assert chosen(0.50001) == 0.5  # falls by 2e-5 at length 1, where the slope promises 1
    assert chosen(0.5, slope=1.0, longer=False) == 1  # no rise, though the slope points upwards
    assert chosen(0.500001, slope=1.0, longer=False) == 0


def test_gaps_weigh_enough_for_the_merit_to_fall_while_they_close(monkeypatch, annotations_unchecked):
    """An objective that rises by 2 a while the part a of gaps is closed: the merit falls by slope + curvature."""
    monkeypatch.setattr(shooting, "under_policy", lambda problem, x, policy, gaps, length: x + length)
    monkeypatch.setattr(shooting, "objective", lambda problem, x, penalty: 3.0 + 2.0 * x)

    @once
    def run(gaps, least, pivot):
        now = _Iterate(jnp.zeros(()), gaps, jnp.asarray(3.0))
        state = SimpleNamespace(now=now, pace=SimpleNamespace(gap_weight=least), round=SimpleNamespace(penalty=None))
        descent = SimpleNamespace(slope=jnp.asarray(2.0), curvature=jnp.asarray(1.0))
        (after, kept, value), length, weight = _step(None, state, SimpleNamespace(pivot=pivot), descent, True)
        return weight, length, after, kept, value

    at = lambda gaps, least, pivot: [
        np.asarray(x) for x in run(jnp.array(gaps), jnp.asarray(least), jnp.asarray(pivot))
    ]
    weight, length, after, kept, value = at([0.3, -0.2], 0.0, 1.0)
    assert_allclose([weight, length, after, value], [(2 + 1 / 2) / (0.5 / 2), 1, 1, 5], rtol=1e-12)
    assert not kept.any()
    assert at([0.3, -0.2], 17.0, 1.0)[:2] == [17, 1]  # it never falls
    assert at([0.0, 0.0], 4.0, 1.0)[:2] == [4, 0]  # without gaps nothing helps
    weight, length, after, kept, value = at([0.3, -0.2], 0.0, 0.0)  # the policy of a problem that is not convex
    assert_allclose([length, after, value, *kept], [0, 0, 3, 0.3, -0.2])


def test_iterations_end_where_they_converge_and_otherwise_by_the_first_reason(annotations_unchecked):
    usual = {"stationarity": 1e-7, "gaps": 1e-8, "violated": 1e-9, "slack": 1e-9, "value": 3.0, "boxed": True}
    usual |= {"weight": 10.0, "damping": 1.0, "iteration": 4, "fine": False}

    @once
    def run(x):
        residuals = jaxdyn.trajectory.problem.Residuals(x["stationarity"], x["gaps"], x["violated"], x["slack"])
        state = SimpleNamespace(
            now=SimpleNamespace(value=x["value"]),
            pace=SimpleNamespace(boxed=x["boxed"], damping=x["damping"]),
            round=SimpleNamespace(penalty=SimpleNamespace(weight=x["weight"])),
            iteration=x["iteration"],
        )
        return _status(_Ends(5, 1e-6), state, residuals, SimpleNamespace(largest=x["violated"]), x["fine"])

    def ends(**changed):
        status = int(run(jax.tree.map(jnp.asarray, usual | changed)))
        return "" if status == shooting.RUNNING else jaxdyn.trajectory.Status(status).name

    assert ends() == ends(iteration=9, damping=1e9) == "CONVERGED"
    for name in ("stationarity", "gaps", "violated", "slack"):
        assert ends(**{name: 2e-6}) == ""
    assert ends(boxed=False) == ends(value=np.inf) == ""
    assert ends(gaps=1.0, iteration=5) == ends(gaps=1.0, iteration=6) == "MAX_ITERATIONS"
    assert ends(gaps=1.0, damping=1e8, iteration=5) == ends(stationarity=np.nan) == "STALLED"
    heavy = {"violated": 2e-6, "weight": 1e8, "damping": 1e8}
    assert ends(**heavy, fine=True) == "INFEASIBLE" and ends(**heavy) == "STALLED"
    assert ends(**heavy | {"weight": 9e7, "damping": 1.0}, fine=True) == ""
    assert ends(**heavy | {"violated": 1e-7, "gaps": 1.0, "damping": 1.0}, fine=True) == ""


def test_slopes_through_a_limit_are_multipliers_and_no_residuals(annotations_unchecked):
    """A slope that pushes a torque through its limit is none of the iterate's, but the limit's multiplier."""
    policy = SimpleNamespace(
        slope=jnp.array([[-3.0, 0.25], [0.5, -2.0]]), free=jnp.array([[False, True], [True, False]]), adjoint=1, gains=2
    )
    found = SimpleNamespace(largest=jnp.asarray(0.3), complementarity=jnp.asarray(0.4), multipliers=(3, 4))
    bounds = jnp.array([[-1.0, -1.0], [-0.4, -5.0]]), jnp.array([[0.0, 1.0], [1.0, 0.0]])
    gaps = jnp.array([0.1, -0.2])
    residuals = shooting._residuals(policy, bounds, gaps, found)
    assert [float(x) for x in jax.tree.leaves(residuals)] == [0.4, 0.2, 0.3, 0.4]  # 0.5 down, of which 0.4 is left
    assert float(shooting._residuals(policy, None, gaps, found).stationarity) == 3.0
    kept = shooting._multipliers(policy, found, bounds)
    assert_allclose(kept.pop("torques"), [[-3, 0], [0, -2]])
    assert kept == {"dynamics": 1, "constraints": 3, "terminal_constraints": 4, "gains": 2}
    assert not shooting._multipliers(policy, found, None)["torques"].any()
    held = jnp.array([[0.0, -1.0], [0.0, -1.0]]), jnp.array([[0.0, 1.0], [0.0, 1.0]])
    lower, upper = shooting._widened(held, jnp.asarray(False))
    assert_allclose([lower, upper], [[[0, -np.inf]] * 2, [[0, np.inf]] * 2])
    assert_allclose(shooting._widened(held, jnp.asarray(True)), held)


def test_damping_and_second_derivatives_follow_the_step_lengths():
    """By hand: damping over 3, 9, ... after steps above 1/2 and times 3, 9, ... after steps below 1/10 or none."""

    @once
    def following(damping, growth, share, tried, length, near, boxed):
        pace = _Pace(damping, growth, share, jnp.asarray(5.0), boxed)
        return _paced(pace, tried, length, near, jnp.asarray(7.0))

    def after(length, damping=0.9, growth=1.0, share=0.25, tried=0.25, near=False, boxed=True):
        numbers = (damping, growth, share, tried, length)
        found = following(*map(jnp.asarray, numbers), jnp.asarray(near), jnp.asarray(boxed))
        assert found.gap_weight == 7.0
        return [float(x) for x in (found.damping, found.growth, found.share)], bool(found.boxed)

    third = pytest.approx(1 / 3)
    assert after(1.0) == ([pytest.approx(0.3), third, 0.5], True)
    assert after(0.6, growth=1 / 3)[0] == [pytest.approx(0.1), pytest.approx(1 / 9), 0.5]
    assert after(1.0, damping=0.02)[0][0] == 0  # below the lightest
    assert after(0.3)[0] == [0.9, 1.0, 0.25]
    assert after(0.2)[0] == [0.9, 1.0, 0.0625]
    assert after(0.05)[0] == [pytest.approx(2.7), 3.0, 0.0625]
    assert after(0.0, damping=0.0, growth=3.0)[0] == [0.01, 9.0, 0.0625]
    assert after(1.0, share=1.0, tried=0.25)[0][2] == 0.25  # another was tried than the one asked for
    assert after(1.0, share=0.75, tried=0.75)[0][2] == 1.0 and after(0.0, share=1 / 64, tried=1 / 64)[0][2] == 1 / 64
    # until the policy respects the limits, only a long, near or null step changes that, and damping stays
    assert after(0.6, boxed=False) == ([0.9, 1.0, 0.5], False)
    assert [after(x, boxed=False)[1] for x in (1.0, 0.0)] == [True, True] and after(0.6, near=True, boxed=False)[1]


def test_penalties_grow_where_constraints_stay_violated():
    numbers = jnp.asarray
    penalty = Penalty((jnp.zeros((2, 1)), jnp.zeros(1)), numbers(3.0), jnp.ones((2, 1)))
    new = jnp.ones((2, 1)), jnp.full(1, 2.0)
    for largest, before, weight in ((0.3, 1.0, 30.0), (0.2, 1.0, 3.0)):
        found = updated(penalty, Violation(new, numbers(largest), numbers(0.0)), numbers(before))
        assert found.multipliers is new and float(found.weight) == weight
    heaviest = updated(penalty._replace(weight=numbers(5e7)), Violation(new, numbers(1.0), numbers(0.0)), numbers(1.0))
    assert float(heaviest.weight) == 1e8


def test_products_of_long_rows_equal_those_of_einsum():
    rng = np.random.default_rng(11)
    for k in (3, 30, 70):
        a, b, x = rng.normal(size=(2, k, 4)), rng.normal(size=(k, 3, 4)), rng.normal(size=(k, 4))
        a_, b_, x_ = map(jnp.asarray, (a, b, x))
        assert_allclose(product(a_, b_), np.einsum("ikl,kjl->ijl", a, b), atol=1e-12)
        assert_allclose(row_times(a_[1], b_), np.einsum("kl,kjl->jl", a[1], b), atol=1e-12)
        assert_allclose(matrix_times(a_, x_), np.einsum("ikl,kl->il", a, x), atol=1e-12)


def test_second_derivatives_count_as_far_as_the_problem_stays_convex():
    lq = random_lq(3, 2, 1)
    bent = lq._replace(cost=lq.cost.at[:, 2, 2].add(-10.0))  # the controls' Hessian, which is 0.1 and more
    run = once(lambda exact, share: _convex_policy(lq, exact, None, jnp.asarray(0.0), share))
    pivot = once(
        lambda share: jaxdyn.trajectory.riccati(lq._replace(cost=lq.cost + share * (bent.cost - lq.cost))).pivot
    )
    (policy, _), share = run(bent, jnp.asarray(0.9))
    assert float(share) == max(0.9 * 4.0**-k for k in range(4) if pivot(0.9 * 4.0**-k) > 0)
    assert float(policy.pivot) == pytest.approx(float(pivot(share)), rel=1e-10)
    assert float(run(lq, jnp.asarray(0.3))[1]) == 0.3
    assert float(run(lq._replace(cost=1e6 * bent.cost), jnp.asarray(0.3))[1]) == 0


@pytest.mark.nightly
def test_the_gradient_of_a_cost_under_constraints():
    end = jaxdyn.trajectory.StateConstraint(jnp.array([0.6, 0.4]), jnp.zeros(2))
    problem = arm_problem(limit=30.0, terminal=(), terminal_constraints=(end,))

    def cost(goal):
        changed = eqx.tree_at(lambda p: p.terminal_constraints[0].q, problem, goal)
        return jaxdyn.trajectory.solve_by_shooting(changed, tolerance=1e-9).cost

    goal, h = jnp.array([0.6, 0.4]), 1e-5
    run = jax.jit(cost)
    steps = h * jnp.eye(2)
    differences = [(run(goal + step) - run(goal - step)) / (2 * h) for step in steps]
    assert_allclose(jax.jit(jax.grad(cost))(goal), jnp.stack(differences), rtol=1e-5, atol=1e-5)


@pytest.mark.nightly
def test_second_order_takes_fewer_iterations_to_the_same_motion():
    problem = arm_problem(goal=(1.5, 0.5))
    first, second = solve()(problem), solve(second_order=True)(problem)
    assert int(second.status) == int(first.status) == jaxdyn.trajectory.Status.CONVERGED
    assert int(second.iterations) <= int(first.iterations)
    assert_allclose(second.cost, first.cost, rtol=1e-8)


@pytest.mark.nightly
def test_a_shifted_solution_is_a_good_guess():
    problem = arm_problem(limit=30.0)
    solution = solve()(problem)
    x = solution.trajectory
    later = eqx.tree_at(lambda p: (p.q0, p.v0), problem, (x.q[1], x.v[1]))
    guess = jax.jit(jaxdyn.trajectory.shift_guess)(problem, solution)
    assert_allclose(guess.trajectory.q[:-1], x.q[1:], atol=1e-12)
    again = solve()(later, guess)
    assert int(again.status) == jaxdyn.trajectory.Status.CONVERGED
    assert int(again.iterations) <= int(solve()(later).iterations)


def test_what_cannot_be_posed_is_refused():
    problem = arm_problem()
    with pytest.raises(jaxdyn.TrajectoryError, match="duration"):
        jaxdyn.trajectory.solve_by_shooting(arm_problem(duration_limits=jnp.array([0.5, 2.0])))
    with pytest.raises(jaxdyn.TrajectoryError, match="guess has"):
        jaxdyn.trajectory.solve_by_shooting(problem, jaxdyn.trajectory.stationary_guess(arm_problem(steps=3)))
    with pytest.raises(jaxdyn.TrajectoryError, match="max_iterations"):
        jaxdyn.trajectory.solve_by_shooting(problem, max_iterations=0)


@pytest.mark.ci
def test_what_cannot_be_solved_is_said():
    problem = arm_problem()
    lost = solve()(eqx.tree_at(lambda p: p.q0, problem, jnp.array([jnp.nan, 0.0])))
    assert int(lost.status) == jaxdyn.trajectory.Status.NOT_FINITE
    crossed = solve()(eqx.tree_at(lambda p: p.torque_limits, problem, -problem.torque_limits))
    assert int(crossed.status) == jaxdyn.trajectory.Status.CONTRADICTORY_LIMITS
    costly = solve()(eqx.tree_at(lambda p: p.running[1].weight, problem, jnp.array(jnp.nan)))
    assert int(costly.status) == jaxdyn.trajectory.Status.NOT_FINITE
    for stopped in (crossed, costly):  # the start, as no iterate is better
        assert jaxdyn.trajectory.Status(int(stopped.status)).message == stopped.message
        assert_allclose(stopped.trajectory.q, jaxdyn.trajectory.stationary_guess(problem).q)


@pytest.mark.nightly
def test_an_end_out_of_reach_is_said_and_the_nearest_motion_returned():
    end = jaxdyn.trajectory.StateConstraint(jnp.array([2.5, -2.0]), jnp.zeros(2))
    problem = arm_problem(limit=0.5, steps=10, terminal=(), terminal_constraints=(end,))
    solution = solve()(problem)
    assert int(solution.status) in (
        jaxdyn.trajectory.Status.INFEASIBLE,
        jaxdyn.trajectory.Status.MAX_ITERATIONS,
        jaxdyn.trajectory.Status.STALLED,
    )
    assert solution.message != jaxdyn.trajectory.Status.CONVERGED.message
    leaves = (solution.trajectory, solution.cost, solution.multipliers, solution.residuals)
    assert all(bool(jnp.isfinite(x).all()) for x in jax.tree.leaves(leaves))
    assert float(solution.residuals.constraints) > 0.1


def least(problem, **options):
    """The solution by shooting, checked: converged, a motion, no gradient of the cost in torques that are free."""
    solution = jax.jit(functools.partial(jaxdyn.trajectory.solve_by_shooting, **options))(problem)
    assert int(solution.status) == jaxdyn.trajectory.Status.CONVERGED
    cost = lambda tau: jaxdyn.trajectory.total_cost(problem, jaxdyn.trajectory.simulate_controls(problem, tau))
    value, gradient = jax.jit(jax.value_and_grad(cost))(solution.trajectory.tau)
    assert_allclose(solution.cost, value, rtol=1e-9)
    assert_allclose(gradient, 0, atol=1e-5)
    return solution


@pytest.mark.nightly
def test_rates_of_torques_and_scalars_cost():
    robot, start = jaxdyn.textbook.pendulum(damping=0.1), jnp.array([0.3])
    running = (
        jaxdyn.trajectory.TorqueCost(0.1),
        jaxdyn.trajectory.TorqueRateCost(0.05),
        jaxdyn.trajectory.ScalarCost(lambda chain, knot, data: data * (1 + jnp.cos(knot.q[0])), 20.0),
    )
    problem = jaxdyn.trajectory.OptimalControlProblem(robot, start, jnp.zeros(1), 10, 0.05, running, method="rk4")
    smooth = least(problem)
    rough = eqx.tree_at(lambda p: p.running[1].weight, problem, jnp.array(1e-3))
    jump = lambda s: float(jnp.abs(jnp.diff(s.trajectory.tau[:, 0])).max())
    assert jump(smooth) < 0.5 * jump(least(rough))


@pytest.mark.nightly
def test_a_ball_joint_turns_to_where_it_shall():
    inertia = np.zeros((3, 10))
    inertia[2] = [1.0, 0.0, 0.0, -0.3, 0.12, 0.0, 0.12, 0.0, 0.0, 0.02]
    robot = jaxdyn.make_chain(
        rotation=np.tile(np.eye(3), (3, 1, 1)),
        translation=np.zeros((3, 3)),
        screw=np.eye(6)[:3],
        inertia=inertia,
        topology=jaxdyn.Topology.serial(3, compound_joints=[(0, "spherical")]),
    )
    start, goal = jnp.array([1.0, 0, 0, 0]), jnp.array([0.5, 0.5, -0.5, 0.5])
    running = (jaxdyn.trajectory.TorqueCost(0.05),)
    terminal = (jaxdyn.trajectory.StateCost(goal, jnp.zeros(3), 20.0, 3.0),)
    solution = least(jaxdyn.trajectory.OptimalControlProblem(robot, start, jnp.zeros(3), 15, 0.05, running, terminal))
    q = solution.trajectory.q
    assert_allclose(jnp.linalg.norm(q, axis=1), 1, atol=1e-12)
    assert float(jnp.abs(jaxdyn.difference(robot, goal, q[-1])).max()) < 0.05


@pytest.mark.nightly
def test_single_precision_finds_the_same_motion():
    problem = arm_problem()
    single = jax.tree.map(lambda x: x.astype(jnp.float32) if eqx.is_inexact_array(x) else x, problem)
    exact = solve()(problem)
    # the cost is flat: what remains of its gradient at the default tolerance is some hundredths of a radian
    for tolerance, of_cost, of_motion in ((None, 1e-4, 3e-2), (1e-4, 1e-5, 5e-3)):
        solution = solve(tolerance=tolerance)(single)
        assert solution.trajectory.q.dtype == jnp.float32
        assert int(solution.status) == jaxdyn.trajectory.Status.CONVERGED
        assert_allclose(solution.cost, exact.cost, rtol=of_cost)
        assert_allclose(solution.trajectory.q, exact.trajectory.q, atol=of_motion)


def swing_up(robot, limits, duration, steps):
    up, rest = jnp.zeros(robot.n).at[0].set(jnp.pi), jnp.zeros(robot.n)
    return jaxdyn.trajectory.OptimalControlProblem(
        robot,
        rest,
        rest,
        steps,
        duration / steps,
        (jaxdyn.trajectory.TorqueCost(0.1), jaxdyn.trajectory.StateCost(up, rest, 0.05, 0.05)),
        (jaxdyn.trajectory.StateCost(up, rest, 30.0, 10.0),),
        torque_limits=jnp.asarray(limits)[:, None] * jnp.array([[-1.0, 1.0]]),
    )


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("links", "limits", "second_order", "arrived", "converged"),
    [(1, [2.0], False, 19, 19), (2, [8.0, 8.0], True, 19, 19), (2, [0.0, 8.0], False, 16, 5)],
)
def test_pendulums_swing_up_from_nearly_all_starts(links, limits, second_order, arrived, converged):
    """With its elbow alone, an arm's iterations are chaotic: by the rounding of one version or another 17 to 19 arrive."""
    problem = swing_up(jaxdyn.textbook.pendulum(links, damping=0.02), limits, 4.0, 100)

    def outcome(key):
        tau = 0.3 * problem.torque_limits[None, :, 1] * jax.random.normal(key, (problem.steps, links))
        tau = jnp.clip(tau, problem.torque_limits[None, :, 0], problem.torque_limits[None, :, 1])
        guess = jaxdyn.trajectory.simulate_controls(problem, tau)
        solution = jaxdyn.trajectory.solve_by_shooting(problem, guess, second_order=second_order)
        return solution.trajectory.q[-1], solution.status

    q, status = jax.jit(jax.vmap(outcome))(jax.random.split(jax.random.key(0), 20))
    there = jnp.abs(q - problem.terminal[0].q[None]).max(1) < 0.1
    assert int(there.sum()) >= arrived
    assert int((there & (status == jaxdyn.trajectory.Status.CONVERGED)).sum()) >= converged

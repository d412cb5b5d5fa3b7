"""Shooting: linear-quadratic problems against dense solves and scipy, motions against their optimality conditions."""

import dataclasses
import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
from numpy.testing import assert_allclose

import jaxdyn
from jaxdyn.trajectory.lq import lq_cost, lq_residual

ARM = jaxdyn.textbook.pendulum(2, damping=0.1)


def random_lq(steps=6, n=3, m=2, seed=0):
    rng = np.random.default_rng(seed)

    def root(*shape):
        x = rng.normal(size=(*shape, shape[-1]))
        return jnp.asarray(x @ np.swapaxes(x, -1, -2) + 0.1 * np.eye(shape[-1]))

    cost = root(steps, n + m)
    rows = lambda *shape: jnp.asarray(rng.normal(size=shape))
    return jaxdyn.linear_quadratic(
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


def test_riccati_recursions_meet_the_optimality_conditions_and_each_other():
    lq, start = random_lq(), jnp.array([0.3, -0.2, 0.5])
    in_turn = jax.jit(lambda lq, x: jaxdyn.lq_rollout(lq, jaxdyn.riccati(lq), x))(lq, start)
    at_once = jax.jit(lambda lq, x: jaxdyn.lq_rollout_scan(lq, jaxdyn.riccati_scan(lq), x))(lq, start)
    for part in lq_residual(lq, in_turn):
        assert_allclose(part, 0, atol=1e-9)
    for a, b in zip(in_turn, at_once, strict=True):
        assert_allclose(a, b, atol=1e-9)
    assert_allclose(lq_cost(lq, *in_turn[:2]), lq_cost(lq, *at_once[:2]), rtol=1e-10)
    batch = jax.tree.map(lambda *x: jnp.stack(x), *(random_lq(seed=k) for k in range(3)))
    gains = jax.jit(jax.vmap(lambda lq: jaxdyn.riccati(lq).gains))(batch)
    assert_allclose(gains[0], jaxdyn.riccati_scan(lq).gains, atol=1e-9)


def test_a_long_horizon_has_the_gain_of_the_algebraic_equation():
    rng = np.random.default_rng(1)
    A, B, Q, R = rng.normal(size=(3, 3)) * 0.6, rng.normal(size=(3, 2)), np.eye(3), 0.5 * np.eye(2)
    P = scipy.linalg.solve_discrete_are(A, B, Q, R)
    every = lambda x: jnp.broadcast_to(jnp.asarray(x), (60, *x.shape))
    lq = jaxdyn.linear_quadratic(every(A), every(B), every(Q), every(R), jnp.zeros((3, 3)))
    gain = -np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
    for policy in (jax.jit(jaxdyn.riccati)(lq), jax.jit(jaxdyn.riccati_scan)(lq)):
        assert_allclose(policy.hessian[0], P, atol=1e-9)
        assert_allclose(policy.gains[0], gain, atol=1e-9)


def test_box_programs_are_solved():
    rng = np.random.default_rng(2)
    roots = rng.normal(size=(20, 4, 4))
    h, g = roots @ np.swapaxes(roots, 1, 2) + 0.1 * np.eye(4), 3 * rng.normal(size=(20, 4))
    lower, upper = -rng.uniform(0, 0.5, (20, 4)), rng.uniform(0, 0.5, (20, 4))
    upper[0, 0] = lower[0, 0]  # a fixed one
    u, free, _, _ = jax.jit(jax.vmap(jaxdyn.box_qp))(*map(jnp.asarray, (h, g, lower, upper)))
    for k in range(20):
        wide = np.maximum(upper[k], lower[k] + 1e-12)
        root = np.linalg.cholesky(h[k]).T
        found = scipy.optimize.lsq_linear(root, -np.linalg.solve(root.T, g[k]), (lower[k], wide), tol=1e-14)
        assert_allclose(u[k], found.x, atol=1e-7)
        gradient = h[k] @ u[k] + g[k]
        assert_allclose(np.where(free[k], gradient, 0), 0, atol=1e-9)


def linear_problem():
    robot = dataclasses.replace(jaxdyn.textbook.cartesian_two_link(), gravity=jnp.zeros(3))
    running = (jaxdyn.StateCost(jnp.array([0.5, -0.2]), jnp.zeros(2), 1.0, 0.3), jaxdyn.TorqueCost(0.2))
    terminal = (jaxdyn.StateCost(jnp.array([0.5, -0.2]), jnp.zeros(2), 5.0, 2.0),)
    return jaxdyn.OptimalControlProblem(robot, jnp.zeros(2), jnp.array([0.1, 0.0]), 20, 0.05, running, terminal)


def test_a_linear_problem_takes_one_iteration():
    problem = linear_problem()
    solution = jax.jit(jaxdyn.solve_by_shooting)(problem)
    assert int(solution.status) == jaxdyn.Status.CONVERGED and int(solution.iterations) == 1
    mass = np.asarray(jaxdyn.mass_matrix(problem.chain, problem.q0))
    dt, eye, zero = 0.05, np.eye(2), np.zeros((2, 2))
    push = np.linalg.inv(mass) * dt
    A, B = np.block([[eye, dt * eye], [zero, eye]]), np.vstack([dt * push, push])
    every = lambda x: jnp.broadcast_to(jnp.asarray(x), (20, *x.shape))
    Q, end = dt * np.diag([1, 1, 0.09, 0.09]), jnp.asarray(np.diag([25.0, 25, 4, 4]))
    lq = jaxdyn.linear_quadratic(every(A), every(B), every(Q), every(dt * 0.04 * eye), end)
    goal = jnp.array([0.5, -0.2, 0, 0])
    known = jaxdyn.solve_lq(lq, jnp.concatenate([problem.q0, problem.v0]) - goal)
    assert_allclose(solution.trajectory.tau, known.controls, atol=1e-9)
    assert_allclose(solution.trajectory.q, known.states[:, :2] + goal[None, :2], atol=1e-9)


def arm_problem(goal=(0.6, 0.4), limit=6.0, steps=25, **named):
    goal = jnp.asarray(goal)
    running = (jaxdyn.StateCost(goal, jnp.zeros(2), 0.3, 0.1), jaxdyn.TorqueCost(0.1))
    terminal = named.pop("terminal", (jaxdyn.StateCost(goal, jnp.zeros(2), 20.0, 3.0),))
    limits = limit * jnp.array([[-1.0, 1.0], [-1.0, 1.0]])
    return jaxdyn.OptimalControlProblem(
        ARM, jnp.zeros(2), jnp.zeros(2), steps, 0.04, running, terminal, torque_limits=limits, **named
    )


solve = functools.lru_cache(lambda **options: jax.jit(functools.partial(jaxdyn.solve_by_shooting, **options)))


def test_torques_stay_within_their_limits():
    problem = arm_problem()
    solution = solve()(problem)
    assert int(solution.status) == jaxdyn.Status.CONVERGED
    assert float(solution.residuals.largest) <= 1e-6
    tau = np.asarray(solution.trajectory.tau)
    assert np.abs(tau).max() == 6.0
    assert_allclose(jaxdyn.rolled_out(problem, solution.trajectory.tau).q, solution.trajectory.q, atol=1e-9)
    # no admissible change of the torques lowers the cost
    cost = lambda tau: jaxdyn.total_cost(problem, jaxdyn.rolled_out(problem, tau))
    gradient = np.asarray(jax.jit(jax.grad(cost))(solution.trajectory.tau))
    assert_allclose(tau, np.clip(tau - gradient, -6.0, 6.0), atol=1e-6)


def test_a_batch_is_solved_as_its_problems_are():
    goals = jnp.array([[0.6, 0.4], [0.2, -0.3], [1.5, 0.0]])
    problem = arm_problem()
    with_goal = lambda goal: eqx.tree_at(lambda p: (p.running[0].q, p.terminal[0].q), problem, (goal, goal))
    batch = jax.jit(lambda goals: jax.vmap(lambda g: jaxdyn.solve_by_shooting(with_goal(g)))(goals))(goals)
    assert (np.asarray(batch.status) == jaxdyn.Status.CONVERGED).all()
    single = solve()(problem)
    assert int(single.iterations) == int(batch.iterations[0])
    assert_allclose(batch.trajectory.tau[0], single.trajectory.tau, atol=1e-7)


def test_a_guess_that_is_no_motion_is_made_one():
    problem = arm_problem()
    t = problem.dt * jnp.arange(26)
    q = jnp.linspace(0, 1, 26)[:, None] * jnp.array([[0.6, 0.4]])
    guess = jaxdyn.Trajectory(t, q, jnp.full((26, 2), 0.3), jnp.zeros((25, 2)))
    solution = solve()(problem, guess)
    assert int(solution.status) == jaxdyn.Status.CONVERGED
    assert_allclose(solution.trajectory.q, solve()(problem).trajectory.q, atol=1e-4)

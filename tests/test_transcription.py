"""Collocation and inverse dynamics against closed forms, each other, rollouts and shooting."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import jaxdyn
from jaxdyn import Status

ROBOT = jaxdyn.textbook.planar_elbow()
GOAL = jnp.array([1.2, 0.8])
LIMITS = jnp.array([[-30.0, 30.0], [-8.0, 8.0]])


def reach(steps, **named):
    """The elbow against gravity from rest to rest in a second; its torque limits are reached."""
    still = jnp.zeros(2)
    named = {"torque_limits": LIMITS, "terminal_constraints": (jaxdyn.StateConstraint(GOAL, still),)} | named
    running = (jaxdyn.TorqueCost(0.1), jaxdyn.StateCost(GOAL, still, 0.1, 0.1))
    return jaxdyn.OptimalControlProblem(ROBOT, jnp.array([-1.0, 0.3]), still, steps, 1.0 / steps, running, **named)


def sliding(**named):
    """Two prismatic joints, the first one against gravity: q_1'' = u_1 / m_1 - g, q_2'' = u_2 / m_2."""
    robot = jaxdyn.textbook.cartesian_two_link(m1=1.0, m2=1.0)
    still = jnp.zeros(2)
    end = (jaxdyn.StateConstraint(jnp.array([0.5, 0.8]), still),)
    named = {"running": (jaxdyn.TorqueCost(1.0),)} | named
    return jaxdyn.OptimalControlProblem(robot, still, still, 10, 0.1, terminal_constraints=end, **named)


def masses_and_weights(problem):
    still = jnp.zeros(2)
    mass = np.diag(jaxdyn.mass_matrix(problem.chain, still))
    return mass, np.asarray(jaxdyn.gravity_force(problem.chain, still))


def test_least_effort_of_sliding_joints():
    """Accelerations fall linearly: int u^2 = m^2 12 d^2 / T^3 + w^2 T; Hermite-Simpson's rule is exact on it."""
    problem = sliding()
    mass, weight = masses_and_weights(problem)
    solution = jax.jit(jaxdyn.solve_by_collocation)(problem)
    assert solution.message == Status.CONVERGED.message
    assert solution.residuals.largest <= 1e-6
    expected = 0.5 * np.sum(mass**2 * 12 * np.array([0.5, 0.8]) ** 2 + weight**2)
    assert_allclose(solution.cost, expected, rtol=1e-8)
    s = np.linspace(0, 1, 11)[:, None]
    assert_allclose(solution.trajectory.q, np.array([[0.5, 0.8]]) * (3 * s**2 - 2 * s**3), atol=1e-7)
    assert_allclose(np.asarray(solution.trajectory.v)[[0, -1]], 0, atol=1e-9)


def in_least_time(lower, upper):
    """Nothing but the duration costs; the first joint's force is limited, the other's hardly."""
    return sliding(
        running=(),
        torque_limits=jnp.array([[lower, upper], [-30.0, 30.0]]),
        duration_limits=(0.2, 5.0),
        duration_weight=1.0,
    )


@pytest.mark.nightly
@pytest.mark.parametrize("scheme", ["trapezoidal", "hermite_simpson"])
def test_least_time_of_sliding_joints(scheme):
    """Full force one way, full force the other: T = 2 sqrt(m d / u) of the slower joint, u the force beside its weight.

    In the same batch a force that cannot carry the weight: the goal is out of reach, however long it takes.
    """
    mass, weight = masses_and_weights(in_least_time(0.0, 1.0))
    problems = [in_least_time(weight[0] - 2, weight[0] + 2), in_least_time(-2.0, 2.0)]
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *problems)
    solution = jax.jit(jax.vmap(lambda p: jaxdyn.solve_by_collocation(p, scheme=scheme)))(batch)
    assert [Status(int(status)) for status in solution.status] == [Status.CONVERGED, Status.INFEASIBLE]
    found = jax.tree.map(lambda x: x[0], solution)
    assert_allclose(found.trajectory.t[-1], 2 * np.sqrt(mass[0] * 0.5 / 2.0), rtol=0.02)
    assert found.residuals.largest <= 1e-6
    assert (jnp.abs(found.trajectory.tau[:, 0] - weight[0]) <= 2 + 1e-4).all()


def swing(goal, strength, steps=8, **named):
    """A pendulum from rest to rest in a second; a torque limit of `strength` is reached."""
    still = jnp.zeros(1)
    limit = jnp.stack([-strength, strength])[None]
    end = (jaxdyn.StateConstraint(goal, still),)
    with jax.ensure_compile_time_eval():
        robot, start = jaxdyn.textbook.pendulum(), still - 0.5
    cost = (jaxdyn.TorqueCost(0.1), jaxdyn.StateCost(goal, still, 0.1, 0.1))
    return jaxdyn.OptimalControlProblem(
        robot, start, still, steps, 1 / steps, cost, torque_limits=limit, terminal_constraints=end, **named
    )


TRANSCRIPTIONS = {
    "trapezoidal": lambda p, **named: jaxdyn.solve_by_collocation(p, scheme="trapezoidal", **named),
    "splines": lambda p, **named: jaxdyn.solve_by_inverse_dynamics(p, intervals=4, **named),
}


@pytest.mark.nightly
@pytest.mark.parametrize("method", list(TRANSCRIPTIONS))
def test_derivatives_are_those_of_solutions_again(method):
    """By goal and torque limit, forwards and backwards, against differences of problems solved again."""
    solve = TRANSCRIPTIONS[method]

    def motion(parameters):
        problem = swing(parameters[:1], parameters[1], duration_limits=(0.2, 3.0), duration_weight=2.0)
        solution = solve(problem, hessian="exact", tolerance=1e-9)
        t = solution.trajectory
        numbers = jnp.concatenate([t.t, t.q.reshape(-1), t.v.reshape(-1), t.tau.reshape(-1), solution.cost[None]])
        return numbers, solution.status

    at, step = jnp.array([0.9, 2.0]), 1e-4
    around = jnp.concatenate([at[None], at[None] + step * jnp.eye(2), at[None] - step * jnp.eye(2)])
    numbers, status = jax.jit(jax.vmap(motion))(around)
    assert (status == Status.CONVERGED).all()
    differences = (numbers[1:3] - numbers[3:]).T / (2 * step)
    forwards = jax.jit(jax.jacfwd(lambda x: motion(x)[0]))(at)
    assert_allclose(forwards, differences, atol=1e-5 * np.abs(differences).max())
    weights = jnp.asarray(np.random.default_rng(0).normal(size=len(forwards)))
    backwards = jax.jit(jax.grad(lambda x: weights @ motion(x)[0]))(at)
    assert_allclose(backwards, weights @ differences, rtol=1e-5, atol=1e-5 * np.abs(differences).max())


@pytest.mark.nightly
@pytest.mark.parametrize("method", list(TRANSCRIPTIONS))
def test_single_precision(method):
    """Converged at float32's tolerance, to the float64 solution's cost."""
    problem = swing(jnp.array([0.9]), jnp.asarray(1.5))
    single = jax.tree.map(lambda x: x.astype(jnp.float32) if x.dtype == jnp.float64 else x, problem)
    found, exact = (jax.jit(TRANSCRIPTIONS[method])(p) for p in (single, problem))
    assert found.trajectory.q.dtype == jnp.float32
    assert found.message == exact.message == Status.CONVERGED.message
    assert max(found.residuals.constraints, found.residuals.dynamics) <= 1e-4
    assert_allclose(found.cost, exact.cost, atol=1e-4)  # the tolerance


@pytest.mark.nightly
def test_transcriptions_and_shooting_agree():
    """In cost to 1 %, with residuals of 1e-6 and limits held to 1e-4 at the knots; from rest shooting finds another minimum."""
    problem = reach(30)
    methods = {
        "trapezoidal": lambda p: jaxdyn.solve_by_collocation(p, scheme="trapezoidal"),
        "exact": lambda p: jaxdyn.solve_by_collocation(p, scheme="trapezoidal", hessian="exact"),
        "hermite_simpson": jaxdyn.solve_by_collocation,
        "splines": lambda p: jaxdyn.solve_by_inverse_dynamics(p, intervals=10, tolerance=1e-7),
    }
    costs, motions = {}, {}
    methods["shooting"] = lambda p: jaxdyn.solve_by_shooting(p, motions["trapezoidal"])
    for name, method in methods.items():
        solution = jax.jit(method)(problem)
        motions[name] = solution.trajectory
        assert solution.message == Status.CONVERGED.message, name
        assert solution.residuals.largest <= 1e-6, name
        tau = solution.trajectory.tau
        assert (tau >= LIMITS[None, :, 0] - 1e-4).all() and (tau <= LIMITS[None, :, 1] + 1e-4).all(), name
        costs[name] = float(solution.cost)
    assert max(costs.values()) <= 1.01 * min(costs.values()), costs
    assert_allclose(costs["exact"], costs["trapezoidal"], rtol=1e-6)


@pytest.mark.ci
def test_what_cannot_be_met_is_said():
    """A goal outside of the position limits, limits the wrong way round, a cost that is no number: in one batch."""
    solve = jax.jit(jax.vmap(lambda p: jaxdyn.solve_by_collocation(p, scheme="trapezoidal")))

    def problem(upper, lower, weight):
        box = jaxdyn.PositionLimits(jnp.full(2, lower), jnp.full(2, upper))
        cost = jaxdyn.ScalarCost(_root, jnp.asarray(weight))
        end = (jaxdyn.StateConstraint(GOAL, jnp.zeros(2)),)
        return jaxdyn.OptimalControlProblem(
            ROBOT, jnp.array([-1.0, 0.3]), jnp.zeros(2), 10, 0.1, (cost,), (), (box,), end
        )

    problems = [problem(2.0, -2.0, 1.0), problem(1.0, -2.0, 1.0), problem(-2.0, 2.0, 1.0), problem(2.0, -2.0, -1.0)]
    batch = jax.tree.map(lambda *leaves: jnp.stack(leaves), *problems)
    solution = solve(batch)
    expected = [Status.CONVERGED, Status.INFEASIBLE, Status.CONTRADICTORY_LIMITS, Status.NOT_FINITE]
    assert [Status(int(status)) for status in solution.status] == expected
    assert jnp.isfinite(solution.trajectory.q).all()


def _root(chain, knot, weight):
    del chain
    return jnp.sqrt(weight) * (knot.tau @ knot.tau)


def test_what_cannot_be_posed_is_refused():
    with pytest.raises(jaxdyn.TrajectoryError, match="torque rates"):
        rate = (jaxdyn.TorqueRateCost(0.1),)
        jaxdyn.solve_by_collocation(jaxdyn.OptimalControlProblem(ROBOT, GOAL, jnp.zeros(2), 3, 0.1, rate))
    with pytest.raises(jaxdyn.TrajectoryError, match="no drive"):
        jaxdyn.solve_by_inverse_dynamics(reach(4, torque_limits=jnp.array([[-1.0, 1.0], [0.0, 0.0]])))
    with pytest.raises(jaxdyn.TrajectoryError, match="spherical or free"):
        biped = jaxdyn.textbook.biped(floating=True)
        q = jaxdyn.neutral_configuration(biped)
        jaxdyn.solve_by_collocation(jaxdyn.OptimalControlProblem(biped, q, jnp.zeros(biped.nv), 3, 0.1))
    with pytest.raises(jaxdyn.TrajectoryError, match="steps"):
        jaxdyn.OptimalControlProblem(ROBOT, GOAL, jnp.zeros(2), 0, 0.1)

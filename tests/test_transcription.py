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
    """Two prismatic joints: x'' = u_1 / m_1, y'' = u_2 / m_2 - g."""
    robot = jaxdyn.textbook.cartesian_two_link(m1=1.0, m2=1.0)
    still = jnp.zeros(2)
    end = (jaxdyn.StateConstraint(jnp.array([0.5, 0.8]), still),)
    named = {"running": (jaxdyn.TorqueCost(1.0),)} | named
    return jaxdyn.OptimalControlProblem(robot, still, still, 10, 0.1, terminal_constraints=end, **named)


def masses_and_weights(problem):
    still = jnp.zeros(2)
    mass = np.diag(jaxdyn.mass_matrix(problem.chain, still))
    return mass, np.asarray(jaxdyn.gravity_force(problem.chain, still))


@pytest.mark.thorough
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


@pytest.mark.thorough
@pytest.mark.xfail(reason="least time by collocation can end in a false INFEASIBLE: docs/transcription.md", strict=True)
@pytest.mark.exhaustive
@pytest.mark.parametrize("scheme", ["trapezoidal", "hermite_simpson"])
def test_least_time_of_sliding_joints(scheme):
    """Full force one way, full force the other: T = 2 sqrt(m d / u) of the slower joint."""
    problem = sliding(
        running=(),
        torque_limits=jnp.array([[-2.0, 2.0], [-30.0, 30.0]]),
        duration_limits=(0.2, 5.0),
        duration_weight=1.0,
    )
    mass, _ = masses_and_weights(problem)
    solution = jax.jit(lambda p: jaxdyn.solve_by_collocation(p, scheme=scheme))(problem)
    assert solution.message == Status.CONVERGED.message
    assert_allclose(solution.trajectory.t[-1], 2 * np.sqrt(mass[0] * 0.5 / 2.0), rtol=0.02)
    assert solution.residuals.largest <= 1e-6
    assert (jnp.abs(solution.trajectory.tau[:, 0]) <= 2 + 1e-4).all()


@pytest.mark.thorough
@pytest.mark.exhaustive
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


@pytest.mark.thorough
@pytest.mark.exhaustive
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

"""Time scalings against the book's code; timed paths against closed forms, linear programs and integration."""

import functools

import jax
import jax.numpy as jnp
import modern_robotics
import numpy as np
import pytest
import scipy.interpolate
import scipy.optimize
from numpy.testing import assert_allclose

import jaxdyn

ARM = jaxdyn.textbook.planar_elbow()
WAYPOINTS = jnp.array([[0.1, 0.3], [0.8, -0.5], [1.3, 0.9], [0.4, 1.2]])
TORQUES = jnp.array([[-40.0, 40.0], [-12.0, 12.0]])


def slider(mass=2.0):
    """A mass on a rail."""
    return jaxdyn.make_chain(
        rotation=[np.eye(3)],
        translation=np.zeros((1, 3)),
        screw=[[0, 0, 0, 1, 0, 0]],
        inertia=[[mass, 0, 0, 0, 0.1, 0, 0.1, 0, 0, 0.1]],
        gravity=(0, 0, 0),
        tip_name="link1",
    )


def test_time_scalings_are_those_of_the_book():
    t = jnp.linspace(0, 2.5, 6)
    start, goal = modern_robotics.MatrixExp6(np.zeros((4, 4))), np.eye(4)
    rng = np.random.default_rng(0)
    start = modern_robotics.MatrixExp6(modern_robotics.VecTose3(rng.normal(size=6)))
    goal = modern_robotics.MatrixExp6(modern_robotics.VecTose3(rng.normal(size=6)))
    q0, q1 = rng.normal(size=(2, 2))
    for scaling, order in ((jaxdyn.cubic_scaling, 3), (jaxdyn.quintic_scaling, 5)):
        joint = jaxdyn.joint_motion(ARM, jnp.asarray(q0), jnp.asarray(q1), 2.5, t, scaling)
        assert_allclose(joint.q, modern_robotics.JointTrajectory(q0, q1, 2.5, 6, order), atol=1e-12)
        screw = jaxdyn.screw_motion(jnp.asarray(start), jnp.asarray(goal), 2.5, t, scaling)
        assert_allclose(screw.pose, modern_robotics.ScrewTrajectory(start, goal, 2.5, 6, order), atol=1e-10)
        straight = jaxdyn.cartesian_motion(jnp.asarray(start), jnp.asarray(goal), 2.5, t, scaling)
        assert_allclose(straight.pose, modern_robotics.CartesianTrajectory(start, goal, 2.5, 6, order), atol=1e-10)
    s, sd, sdd = jaxdyn.scaled_time(jaxdyn.quintic_scaling, 2.5, jnp.array([-1.0, 1.25, 3.0]))
    assert_allclose([s, sd, sdd], [[0, 0.5, 1], [0, 15 / 8 / 2.5, 0], [0, 0, 0]], atol=1e-12)


@pytest.mark.thorough
@pytest.mark.parametrize("motion", [jaxdyn.screw_motion, jaxdyn.cartesian_motion])
def test_twists_are_the_derivatives_of_the_poses(motion):
    rng = np.random.default_rng(1)
    start, goal = (jaxdyn.se3.pose_exp(jnp.asarray(rng.normal(size=6))) for _ in range(2))
    at = lambda t: jax.tree.map(lambda x: x[0], motion(start, goal, 2.0, t[None], jaxdyn.cubic_scaling))
    t, one = jnp.asarray(0.7), jnp.asarray(1.0)
    here, rate = jax.jvp(at, (t,), (one,))
    moved = jaxdyn.se3.pose_inverse(here.pose) @ rate.pose
    assert_allclose(modern_robotics.se3ToVec(np.asarray(moved)), here.twist, atol=1e-12)
    assert_allclose(rate.twist, here.acceleration, atol=1e-12)


def test_a_mass_on_a_rail_in_closed_form():
    mass, force, way, top = 2.0, 5.0, 0.8, 0.9
    rail, limits = slider(mass), jnp.array([[-force, force]])
    path = jaxdyn.straight_path(jnp.zeros(1), jnp.array([way]))
    timing = jaxdyn.time_optimal_path(rail, path, torque_limits=limits, points=101)
    assert timing.status == jaxdyn.Status.CONVERGED
    assert_allclose(timing.duration, 2 * np.sqrt(way * mass / force), rtol=1e-9)  # the switch is on the grid
    capped = jaxdyn.time_optimal_path(
        rail, path, torque_limits=limits, velocity_limits=jnp.array([top]), points=101
    )
    duration, ramp = jaxdyn.shortest_trapezoid(jnp.array([way]), jnp.array([top]), jnp.array([force / mass]))
    assert_allclose(capped.duration, duration, rtol=2e-3)
    assert capped.duration >= duration * (1 - 1e-9)
    assert_allclose(duration, way / top + top * mass / force, rtol=1e-12)
    trapezoid = functools.partial(jaxdyn.trapezoidal_scaling, ramp=ramp)
    t = jnp.linspace(0, duration, 50)
    motion = jaxdyn.joint_motion(rail, jnp.zeros(1), jnp.array([way]), duration, t, trapezoid)
    assert_allclose([motion.qd.max(), jnp.abs(motion.qdd).max()], [top, force / mass], rtol=1e-9)


def linear_program(chain, path, torque, points):
    """The largest x = s'^2 everywhere at once, by a linear program over all of the grid: the discrete problem's optimum."""
    s = jnp.linspace(0, 1, points)
    step = 1 / (points - 1)
    at = jaxdyn.path_dynamics(chain, path, s)
    m, c, g = (np.asarray(x) for x in (at.inertia, at.centrifugal, at.gravity))
    rows, most = [], []
    for i in range(points - 1):
        for k in (i, i + 1):
            for sign, limit in ((1, np.asarray(torque)[:, 1]), (-1, -np.asarray(torque)[:, 0])):
                for j in range(chain.nv):
                    row = np.zeros(points)
                    row[i], row[i + 1] = -m[k, j] / (2 * step), m[k, j] / (2 * step)
                    row[k] += c[k, j]
                    rows.append(sign * row)
                    most.append(limit[j] - sign * g[k, j])
    ends = [(0, 0)] + [(0, None)] * (points - 2) + [(0, 0)]
    return scipy.optimize.linprog(-np.ones(points), np.array(rows), np.array(most), bounds=ends, method="highs").x


def test_the_timing_is_the_optimum_of_the_discrete_problem_and_holds_its_limits():
    path, points = jaxdyn.spline_path(WAYPOINTS), 61
    timing = jaxdyn.time_optimal_path(ARM, path, torque_limits=TORQUES, points=points)
    assert timing.status == jaxdyn.Status.CONVERGED
    x = linear_program(ARM, path, TORQUES, points)
    assert_allclose(timing.speed**2, x, atol=1e-7 * x.max())
    assert_allclose(timing.tau, jax.vmap(functools.partial(jaxdyn.inverse_dynamics, ARM))(timing.q, timing.qd, timing.qdd), atol=1e-9)
    assert (jnp.abs(timing.tau) <= TORQUES[None, :, 1] * (1 + 1e-9)).all()
    share = (jnp.abs(timing.tau) / TORQUES[None, :, 1]).max(1)
    assert (share > 1 - 1e-6).mean() > 0.9  # bang-bang


def test_a_path_that_cannot_be_followed():
    path = jaxdyn.straight_path(jnp.array([np.pi / 2, 0.0]), jnp.zeros(2))  # from upright to stretched out
    weak = jnp.array([[-9.0, 9.0], [-12.0, 12.0]])
    timing = jaxdyn.time_optimal_path(ARM, path, torque_limits=weak, points=61)
    assert timing.status == jaxdyn.Status.INFEASIBLE and "cannot be followed from s = 0." in timing.message
    assert 0 < timing.stuck_at < 1 and timing.duration == jnp.inf
    assert np.isfinite(timing.tau).all() and np.isfinite(timing.speed).all()
    assert jaxdyn.shortest_duration(ARM, path, torque_limits=weak) == jnp.inf
    fast = jaxdyn.time_optimal_path(ARM, path, torque_limits=TORQUES, points=61, start_speed=100.0)
    assert fast.status == jaxdyn.Status.INFEASIBLE and fast.stuck_at == 0


def test_splines_and_bad_input():
    path = jaxdyn.spline_path(WAYPOINTS)
    other = scipy.interpolate.CubicSpline(np.asarray(path.knots), np.asarray(WAYPOINTS), bc_type="natural")
    s = jnp.linspace(0, 1, 17)
    assert_allclose(jax.vmap(path)(s), other(np.asarray(s)), atol=1e-12)
    assert_allclose(jax.vmap(jax.jacfwd(jax.jacfwd(path)))(s), other(np.asarray(s), 2), atol=1e-10)
    for call, message in (
        (lambda: jaxdyn.spline_path(WAYPOINTS[:1]), "two waypoints"),
        (lambda: jaxdyn.spline_path(WAYPOINTS[jnp.array([0, 1, 1])]), "waypoints 1 and 2"),
        (lambda: jaxdyn.spline_path(WAYPOINTS, (0, 0.5, 0.4, 1)), "rise from 0 to 1"),
        (lambda: jaxdyn.time_optimal_path(ARM, path, torque_limits=-TORQUES), "contradictory"),
        (lambda: jaxdyn.time_optimal_path(ARM, path, velocity_limits=jnp.zeros(2)), "not positive"),
        (lambda: jaxdyn.time_optimal_path(ARM, path, points=2), "at least 3"),
        (lambda: jaxdyn.time_optimal_path(ARM, path, end_speed=-1.0), "forward"),
        (lambda: jaxdyn.time_optimal_path(slider(), path), "coordinates"),
        (lambda: jaxdyn.trapezoidal_scaling(jnp.zeros(()), 0.7), "ramp"),
    ):
        with pytest.raises(jaxdyn.TrajectoryError, match=message):
            call()

"""Time scalings against the book's code; timed paths against closed forms, linear programs and integration."""

import functools

import jax
import jax.numpy as jnp
import modern_robotics
import numpy as np
import pytest
import scipy.integrate
import scipy.interpolate
import scipy.optimize
from numpy.testing import assert_allclose

import jaxdyn
from helpers import once
from jaxdyn.trajectory import paths as time_scaling
from jaxdyn.trajectory.paths import Bands, PathTiming, bands_of, fastest_speeds, lasting_speeds

ARM = jaxdyn.textbook.planar_elbow()
WAYPOINTS = jnp.array([[0.1, 0.3], [0.8, -0.5], [1.3, 0.9], [0.4, 1.2]])
TORQUES = jnp.array([[-40.0, 40.0], [-12.0, 12.0]])


@once
def timed(waypoints, torque, start_speed=0.0):
    """The elbow arm along a spline, on 61 points; the dynamics and the torques there."""
    path = jaxdyn.trajectory.spline_path(waypoints)
    timing = jaxdyn.trajectory.time_optimal_path(ARM, path, torque_limits=torque, points=61, start_speed=start_speed)
    needed = jax.vmap(functools.partial(jaxdyn.inverse_dynamics, ARM))(timing.q, timing.qd, timing.qdd)
    return timing, jaxdyn.trajectory.path_dynamics(ARM, path, timing.s), needed


def slider(mass=2.0):
    """A mass on a rail."""
    return jaxdyn.make_chain(
        rotation=[np.eye(3)],
        translation=np.zeros((1, 3)),
        screw=[[0, 0, 0, 1, 0, 0]],
        inertia=[[mass, 0, 0, 0, 0.1, 0, 0.1, 0, 0, 0.1]],
        gravity=(0, 0, 0),
        topology=jaxdyn.Topology.serial(1, tip_name="link1"),
    )


def test_time_scalings_are_those_of_the_book():
    h = 1e-3
    t = jnp.concatenate([jnp.linspace(0, 2.5, 6), 0.7 + h * jnp.arange(-2.0, 3.0)])
    rng = np.random.default_rng(0)
    start = modern_robotics.MatrixExp6(modern_robotics.VecTose3(rng.normal(size=6)))
    goal = modern_robotics.MatrixExp6(modern_robotics.VecTose3(rng.normal(size=6)))
    q0, q1 = rng.normal(size=(2, 2))

    @once
    def motions(start, goal, q0, q1):
        return [
            (
                jaxdyn.trajectory.joint_motion(ARM, q0, q1, 2.5, t, scaling).q,
                jaxdyn.trajectory.screw_motion(start, goal, 2.5, t, scaling),
                jaxdyn.trajectory.cartesian_motion(start, goal, 2.5, t, scaling),
            )
            for scaling in (jaxdyn.trajectory.cubic_scaling, jaxdyn.trajectory.quintic_scaling)
        ]

    for order, (joint, screw, straight) in zip((3, 5), motions(start, goal, q0, q1), strict=True):
        assert_allclose(joint[:6], modern_robotics.JointTrajectory(q0, q1, 2.5, 6, order), atol=1e-12)
        assert_allclose(screw.pose[:6], modern_robotics.ScrewTrajectory(start, goal, 2.5, 6, order), atol=1e-10)
        assert_allclose(straight.pose[:6], modern_robotics.CartesianTrajectory(start, goal, 2.5, 6, order), atol=1e-10)
        for motion in (screw, straight):  # twists in the moving frame's axes
            rate, acceleration = (
                np.tensordot([1, -8, 0, 8, -1], x[6:], 1) / (12 * h) for x in (motion.pose, motion.twist)
            )
            moved = np.linalg.solve(motion.pose[8], rate)
            assert_allclose(motion.twist[8], [moved[2, 1], moved[0, 2], moved[1, 0], *moved[:3, 3]], atol=1e-9)
            assert_allclose(motion.acceleration[8], acceleration, atol=1e-9)
    s, sd, sdd = jaxdyn.trajectory.paths.scaled_time(
        jaxdyn.trajectory.quintic_scaling, 2.5, jnp.array([-1.0, 1.25, 3.0])
    )
    assert_allclose([s, sd, sdd], [[0, 0.5, 1], [0, 15 / 8 / 2.5, 0], [0, 0, 0]], atol=1e-12)


@pytest.mark.ci
@pytest.mark.parametrize("motion", [jaxdyn.trajectory.screw_motion, jaxdyn.trajectory.cartesian_motion])
def test_twists_are_the_derivatives_of_the_poses(motion):
    rng = np.random.default_rng(1)
    start, goal = (jaxdyn.spatial.se3.pose_exp(jnp.asarray(rng.normal(size=6))) for _ in range(2))
    at = lambda t: jax.tree.map(lambda x: x[0], motion(start, goal, 2.0, t[None], jaxdyn.trajectory.cubic_scaling))
    t, one = jnp.asarray(0.7), jnp.asarray(1.0)
    here, rate = jax.jvp(at, (t,), (one,))
    moved = jaxdyn.spatial.se3.pose_inverse(here.pose) @ rate.pose
    assert_allclose(modern_robotics.se3ToVec(np.asarray(moved)), here.twist, atol=1e-12)
    assert_allclose(rate.twist, here.acceleration, atol=1e-12)


def test_joint_motions_have_the_derivatives_of_their_positions():
    q0, q1 = jnp.array([0.1, -0.4]), jnp.array([0.9, 0.5])
    along = lambda t: jaxdyn.trajectory.joint_motion(ARM, q0, q1, 2.0, t[None], jaxdyn.trajectory.quintic_scaling)
    position = lambda t: along(t).q[0]
    motion, rate, second = once(lambda t: (along(t), jax.jacfwd(position)(t), jax.jacfwd(jax.jacfwd(position))(t)))(
        jnp.asarray(0.7)
    )
    s = 0.35
    assert_allclose(motion.q[0], q0 + (10 * s**3 - 15 * s**4 + 6 * s**5) * (q1 - q0), rtol=1e-13)
    assert_allclose(motion.qd[0], rate, rtol=1e-12)
    assert_allclose(motion.qdd[0], second, rtol=1e-12)


@pytest.mark.ci
def test_a_mass_on_a_rail_in_closed_form():
    mass, force, way, top = 2.0, 5.0, 0.8, 0.9
    rail, limits = slider(mass), jnp.array([[-force, force]])

    @once
    def timed(way, top):
        path = jaxdyn.trajectory.straight_path(jnp.zeros(1), way)
        timing = jaxdyn.trajectory.time_optimal_path(rail, path, torque_limits=limits, velocity_limits=top, points=101)
        duration, ramp = jaxdyn.trajectory.shortest_trapezoid(way, top, jnp.array([force / mass]))
        trapezoid = functools.partial(jaxdyn.trajectory.trapezoidal_scaling, ramp=ramp)
        t = jnp.linspace(0, duration, 50)
        return timing, duration, jaxdyn.trajectory.joint_motion(rail, jnp.zeros(1), way, duration, t, trapezoid)

    way = jnp.array([way])
    timing, duration, _ = timed(way, jnp.array([1e3]))
    assert timing.status == jaxdyn.trajectory.Status.CONVERGED
    assert_allclose(
        [timing.duration, duration], 2 * np.sqrt(way[0] * mass / force), rtol=1e-9
    )  # the switch is on the grid
    capped, duration, motion = timed(way, jnp.array([top]))
    assert_allclose(duration, way[0] / top + top * mass / force, rtol=1e-12)
    assert duration * (1 - 1e-9) <= capped.duration <= duration * (1 + 2e-3)
    assert_allclose([motion.qd.max(), jnp.abs(motion.qdd).max()], [top, force / mass], rtol=1e-9)


def test_trapezoids_of_speed_are_integrals_of_their_rates():
    """Up, along and down, their integral and their rates; the fastest under limits, in closed form."""
    ramp, u = 0.2, np.linspace(0, 1, 21)
    trapezoid = functools.partial(jaxdyn.trajectory.trapezoidal_scaling, ramp=ramp)
    s, sd, sdd = once(lambda t: jaxdyn.trajectory.paths.scaled_time(trapezoid, 2.0, t))(2.0 * u)
    speed = np.minimum(np.minimum(u, 1 - u) / ramp, 1) / (1 - ramp)
    assert_allclose(sd, speed / 2.0, atol=1e-12)
    assert_allclose(s, np.append(0, np.cumsum(speed[1:] + speed[:-1]) * 0.025), atol=1e-12)
    push = np.where(u < ramp, 1, np.where(u > 1 - ramp, -1, 0)) / (ramp * (1 - ramp)) / 4
    smooth = np.abs(np.abs(u - 0.5) - 0.3) > 1e-9  # but where it jumps
    assert_allclose(np.asarray(sdd)[smooth], push[smooth], atol=1e-12)
    run = once(jaxdyn.trajectory.shortest_trapezoid)
    fastest = lambda *x: [float(y) for y in run(*map(jnp.asarray, x))]
    way, top = np.array([0.8, 0.0, -1.5]), np.array([0.5, 0.1, 0.9])
    duration, ramp = fastest(way, top, np.array([2.0, 0.1, 1.0]))
    v, a = 0.9 / 1.5, 1.0 / 1.5  # of the last joint
    assert_allclose([duration, ramp], [1 / v + v / a, v / a / (1 / v + v / a)], rtol=1e-12)
    assert_allclose(fastest(way, 10 * top, np.array([0.4, 0.1, 1.0])), [2 / np.sqrt(0.5), 0.5], rtol=1e-12)
    assert fastest(0 * way, top, top) == [0.0, 0.5]


def test_the_shortest_duration_is_the_first_that_holds_all_limits(monkeypatch):
    """Of dynamics along a path that are any numbers: speed, acceleration or torque reach their limit, and none is exceeded."""
    rng = np.random.default_rng(3)
    at = jaxdyn.trajectory.paths.PathDynamics(*(jnp.asarray(rng.normal(size=(7, 2))) for _ in range(6)))
    monkeypatch.setattr(time_scaling, "path_dynamics", lambda chain, path, s: at)
    torque = jnp.array([[-6.0, 4.0], [-3.5, 5.0]])

    @once
    def shortest(velocity, acceleration, torque):
        named = {"velocity_limits": velocity, "acceleration_limits": acceleration, "torque_limits": torque}
        return jaxdyn.trajectory.shortest_duration(
            ARM, lambda s: s, jaxdyn.trajectory.cubic_scaling, samples=7, **named
        )

    u, limits = np.linspace(0, 1, 7)[:, None], np.asarray(torque)
    sd, sdd = 6 * u * (1 - u), 6 - 12 * u
    slope, curvature, inertia, centrifugal, gravity = map(np.asarray, at[1:])
    for velocity, acceleration in (([1.0, 2.0], [9e9, 9e9]), ([9e9, 9e9], [3.0, 5.0]), ([9e9, 9e9], [9e9, 9e9])):
        duration = float(shortest(jnp.array(velocity), jnp.array(acceleration), torque))
        effort = (inertia * sdd + centrifugal * sd**2) / duration**2 + gravity
        shares = [
            np.abs(slope * sd / duration / velocity).max(),
            np.abs((slope * sdd + curvature * sd**2) / duration**2 / acceleration).max(),
            ((effort - gravity) / (np.where(effort > gravity, limits[:, 1], limits[:, 0]) - gravity)).max(),
        ]
        assert_allclose(max(shares), 1, rtol=1e-12)
    for side in (0, 1):
        weak = torque.at[1, side].set(float(gravity[:, 1].max() - 0.1 if side else gravity[:, 1].min() + 0.1))
        assert shortest(jnp.ones(2), jnp.ones(2), weak) == jnp.inf
    # a limit that gravity alone reaches: no T for an effort towards it, any for one away from it
    effort, seen = inertia * sdd + centrifugal * sd**2, set()
    for j, side in ((0, 0), (0, 1), (1, 0), (1, 1)):
        k = int(gravity[:, j].argmax() if side else gravity[:, j].argmin())
        beyond = bool((effort[k, j] > 0) == bool(side))
        assert (shortest(jnp.ones(2), jnp.ones(2), torque.at[j, side].set(gravity[k, j])) == jnp.inf) == beyond
        seen.add(beyond)
    assert seen == {True, False}


def test_a_timed_path_can_be_sampled_at_any_times():
    """Constant s'' in each interval, so that s(t) is a parabola; at rest at the ends before and after."""
    path = lambda s: jnp.stack([s**3, jnp.sin(2 * s)])
    s, push = np.array([0, 0.2, 0.7, 1.0]), np.array([2.0, -0.6, -1.1])
    x = np.append(0.5, 0.5 + np.cumsum(2 * push * np.diff(s)))
    speed = np.sqrt(x)
    t = np.append(0, np.cumsum(2 * np.diff(s) / (speed[1:] + speed[:-1])))
    rest = [jnp.zeros((4, 2))] * 5 + [jnp.zeros(4), jnp.array(0), jnp.array(jnp.inf)]
    timing = PathTiming(*map(jnp.asarray, (s, t, speed, push)), *rest)
    times = np.array([-0.1, 0.0, 0.5 * t[1], 0.4 * t[1] + 0.6 * t[2], 0.1 * t[2] + 0.9 * t[3], t[3] + 9.0])
    motion = once(lambda times: jaxdyn.trajectory.motion_along(path, timing, times))(times)
    k = np.array([0, 0, 0, 1, 2, 2])
    late, inside = times - t[k], np.array([0, 1, 1, 1, 1, 0])
    where = np.clip(s[k] + speed[k] * late + push[k] * late**2 / 2, 0, 1)
    where[-1] = 1
    rate, push = (speed[k] + push[k] * late) * inside, push[k] * inside
    slope, bend = np.stack([3 * where**2, 2 * np.cos(2 * where)]), np.stack([6 * where, -4 * np.sin(2 * where)])
    assert_allclose(motion.q.T, [where**3, np.sin(2 * where)], atol=1e-12)
    assert_allclose(motion.qd.T, slope * rate, atol=1e-12)
    assert_allclose(motion.qdd.T, slope * push + bend * rate**2, atol=1e-12)


def constraints(at, torque):
    """Rows and bounds of A x <= b for x = s'^2 on the whole grid: the torque at both ends of every interval."""
    points, n = at.q.shape
    m, c, g = (np.asarray(x) for x in (at.inertia, at.centrifugal, at.gravity))
    rows, most = [], []
    for i in range(points - 1):
        for k in (i, i + 1):
            for sign, limit in ((1, np.asarray(torque)[:, 1]), (-1, -np.asarray(torque)[:, 0])):
                for j in range(n):
                    row = np.zeros(points)
                    row[i], row[i + 1] = -m[k, j] * (points - 1) / 2, m[k, j] * (points - 1) / 2
                    row[k] += c[k, j]
                    rows.append(sign * row / limit[j])
                    most.append(1 - sign * g[k, j] / limit[j])
    return np.array(rows), np.array(most)


def test_the_timing_is_the_optimum_of_the_discrete_problem_and_holds_its_limits():
    timing, at, torque = timed(WAYPOINTS, TORQUES, 0.0)
    assert timing.status == jaxdyn.trajectory.Status.CONVERGED
    a, b = constraints(at, TORQUES)
    x = np.asarray(timing.speed) ** 2
    assert (a @ x <= b + 1e-9).all()
    ends = [(0, 0)] + [(0, None)] * (len(x) - 2) + [(0, 0)]
    best = scipy.optimize.linprog(-np.ones(len(x)), a, b, bounds=ends, method="highs").x
    duration = (2 / (len(x) - 1) / (np.sqrt(best[1:]) + np.sqrt(best[:-1]))).sum()
    # the largest sum of x; where b is large for the grid a greedy step may cost a little later
    assert_allclose([timing.duration, x.sum()], [duration, best.sum()], rtol=1e-4)
    slack = (b - a @ x).reshape(len(x) - 1, -1).min(1)
    assert (slack < 1e-9).mean() > 0.9  # a limit is reached, at one of an interval's ends
    assert_allclose(timing.tau, torque, atol=1e-9)
    step = 1 / (len(x) - 1)
    assert_allclose(timing.acceleration, np.diff(x) / (2 * step), rtol=1e-9)
    lasts = 2 * step / (timing.speed[1:] + timing.speed[:-1])
    assert_allclose(timing.t, np.append(0, np.cumsum(lasts)), rtol=1e-12)
    rows = len(b) // (len(x) - 1)
    for k in (5, 40):  # the speed above which no acceleration is within the limits of the interval
        part = slice(k * rows, (k + 1) * rows)
        most = scipy.optimize.linprog([-1, 0], a[part, k : k + 2], b[part], bounds=[(0, None), (None, None)])
        assert_allclose(timing.speed_limit[k] ** 2, -most.fun, rtol=1e-7)
    # the fastest start from which the end can be reached
    most = float(timing.controllable[0, 1])
    for speed, status in (
        (most * (1 - 1e-6), jaxdyn.trajectory.Status.CONVERGED),
        (most * (1 + 1e-6), jaxdyn.trajectory.Status.INFEASIBLE),
    ):
        assert timed(WAYPOINTS, TORQUES, speed)[0].status == status


def test_bands_are_the_limits_at_both_ends_of_an_interval():
    """lo <= a u + b x <= hi where torques and accelerations keep their limits with s'^2 = x, then x + 2 d u."""
    rng, step = np.random.default_rng(5), 0.1
    at = jaxdyn.trajectory.paths.PathDynamics(*(jnp.asarray(rng.normal(size=(3, 2))) for _ in range(6)))
    friction, torque, most = 0.3 * rng.normal(size=(3, 2)), np.array([[-4.0, 3.0], [-5.0, 2.5]]), np.array([2.0, 3.5])
    bands = once(bands_of)(at, jnp.asarray(step), *map(jnp.asarray, (friction, torque, most)))
    assert (np.asarray(bands.a) >= 0).all()
    slope, curvature, inertia, centrifugal, gravity = map(np.asarray, at[1:])
    held = {True: 0, False: 0}
    for u, x in zip(3 * rng.normal(size=200), rng.uniform(0, 3, 200), strict=True):
        value = bands.a * u + bands.b * x
        inside = np.asarray((bands.lo <= value) & (value <= bands.hi)).all(1)
        for i in range(2):
            ends = [(k, y) for k, y in ((i, x), (i + 1, x + 2 * step * u))]
            effort = [inertia[k] * u + centrifugal[k] * y + gravity[k] + friction[k] for k, y in ends]
            push = [slope[k] * u + curvature[k] * y for k, y in ends]
            kept = all((torque[:, 0] <= e).all() and (e <= torque[:, 1]).all() for e in effort)
            assert (kept and all((np.abs(a) <= most).all() for a in push)) == inside[i]
            held[bool(inside[i])] += 1
    assert min(held.values()) > 20


def test_friction_is_among_the_torques():
    """Of a mass on a rail with viscous friction: the force is at its limit on the way up, with friction at that speed."""
    rail = jaxdyn.model.with_leaves(slider(), {"friction.viscous": jnp.array([1.5])})
    force, way = jnp.array([[-4.0, 5.0]]), jnp.array([1.2])
    named = {"torque_limits": force, "velocity_limits": jnp.array([9e9]), "points": 21, "friction_rounds": 12}
    path = jaxdyn.trajectory.straight_path(0 * way, way)
    run = once(
        lambda start, end: jaxdyn.trajectory.time_optimal_path(rail, path, start_speed=start, end_speed=end, **named)
    )
    timing = run(jnp.asarray(0.0), jnp.asarray(0.0))
    assert_allclose(timing.tau, 2.0 * timing.qdd + 1.5 * timing.qd, rtol=1e-9)
    # the force is the one at the interval's begin or at its end, whichever is nearer to the limit
    push, rate = np.asarray(timing.qdd), np.asarray(timing.qd)
    ends = np.stack([2.0 * push[:-1] + 1.5 * rate[:-1], 2.0 * push[:-1] + 1.5 * rate[1:]])
    used = np.maximum(ends.max(0) / 5.0, -ends.min(0) / 4.0)
    assert used.max() < 1 + 1e-3 and (used > 1 - 1e-3).sum() == len(used) - 1  # but where it changes over
    # a speed at the end that asks for one at the start
    least = float(run(jnp.asarray(1.9), jnp.asarray(1.9)).controllable[0, 0])
    assert 0.1 < least < 1.9
    for start, status in (
        (1.15 * least, jaxdyn.trajectory.Status.CONVERGED),
        (0.7 * least, jaxdyn.trajectory.Status.INFEASIBLE),
    ):
        assert run(jnp.asarray(start), jnp.asarray(1.9)).status == status


def test_a_path_that_cannot_be_followed():
    lying = jnp.asarray(np.linspace([np.pi / 2, 0.0], [0.0, 0.0], 4))  # from upright to stretched out
    weak = jnp.array([[-9.0, 9.0], [-12.0, 12.0]])
    timing, _, _ = timed(lying, weak, 0.0)
    assert timing.status == jaxdyn.trajectory.Status.INFEASIBLE and "cannot be followed from s = 0." in timing.message
    assert 0 < timing.stuck_at < 1 and timing.duration == jnp.inf
    assert np.isfinite(timing.tau).all() and np.isfinite(timing.speed).all()
    fast, _, _ = timed(lying, TORQUES, 100.0)
    assert fast.status == jaxdyn.trajectory.Status.INFEASIBLE and fast.stuck_at == 0


def test_a_spline_is_that_of_scipy():
    path = once(jaxdyn.trajectory.spline_path)(WAYPOINTS)
    steps = np.sqrt(np.linalg.norm(np.diff(np.asarray(WAYPOINTS), axis=0), axis=1))  # centripetal
    assert_allclose(path.knots, np.concatenate([[0], np.cumsum(steps)]) / steps.sum(), atol=1e-14)
    other = scipy.interpolate.CubicSpline(np.asarray(path.knots), np.asarray(WAYPOINTS), bc_type="natural")
    s = jnp.linspace(0, 1, 17)
    values, second = once(lambda s: (jax.vmap(path)(s), jax.vmap(jax.jacfwd(jax.jacfwd(path)))(s)))(s)
    assert_allclose(values, other(np.asarray(s)), atol=1e-12)
    assert_allclose(second, other(np.asarray(s), 2), atol=1e-10)


def test_bad_input_says_what_is_wrong():
    path = jaxdyn.trajectory.paths.SplinePath(jnp.linspace(0, 1, 2), jnp.ones((1, 4, 2)))
    for call, message in (
        (lambda: jaxdyn.trajectory.spline_path(WAYPOINTS[:1]), "two waypoints"),
        (lambda: jaxdyn.trajectory.spline_path(WAYPOINTS[jnp.array([0, 1, 1])]), "waypoints 1 and 2"),
        (lambda: jaxdyn.trajectory.spline_path(WAYPOINTS, (0, 0.5, 0.4, 1)), "must increase from 0 to 1"),
        (lambda: jaxdyn.trajectory.time_optimal_path(ARM, path, torque_limits=-TORQUES), "contradictory"),
        (
            lambda: jaxdyn.trajectory.time_optimal_path(ARM, path, velocity_limits=jnp.array([1.0, 0.0])),
            "coordinate 1 is",
        ),
        (lambda: jaxdyn.trajectory.time_optimal_path(ARM, path, velocity_limits=jnp.zeros(2)), "not positive"),
        (lambda: jaxdyn.trajectory.time_optimal_path(ARM, path, points=2), "at least 3"),
        (lambda: jaxdyn.trajectory.time_optimal_path(ARM, path, end_speed=-1.0), "not be negative"),
        (lambda: jaxdyn.trajectory.time_optimal_path(slider(), path), "coordinates"),
        (lambda: jaxdyn.trajectory.trapezoidal_scaling(jnp.zeros(()), 0.7), "ramp"),
    ):
        with pytest.raises(jaxdyn.TrajectoryError, match=message):
            call()


@pytest.mark.ci
def test_the_switch_equals_that_of_integration_in_the_phase_plane():
    """A straight path with one switch: the two extremal curves integrated with scipy, and where they meet (Bobrow 1985)."""
    start, goal = jnp.array([0.2, 0.4]), jnp.array([1.0, -0.3])
    path = jaxdyn.trajectory.straight_path(start, goal)
    timing = once(lambda: jaxdyn.trajectory.time_optimal_path(ARM, path, torque_limits=TORQUES, points=401))()
    dense = jnp.linspace(0, 1, 2001)
    at = once(lambda: jaxdyn.trajectory.path_dynamics(ARM, path, dense))()
    m, c, g = (
        scipy.interpolate.CubicSpline(np.asarray(dense), np.asarray(x))
        for x in (at.inertia, at.centrifugal, at.gravity)
    )

    def push(s, x, side):
        ends = (np.asarray(TORQUES) - (c(s) * x + g(s))[:, None]) / m(s)[:, None]
        return ends.max(1).min() if side > 0 else ends.min(1).max()

    def curve(side):
        span = (0, 1) if side > 0 else (1, 0)
        s = np.linspace(0, 1, 2001)[:: int(side)]
        solved = scipy.integrate.solve_ivp(
            lambda s, x: 2 * push(s, x[0], side), span, [0.0], t_eval=s, rtol=1e-9, atol=1e-10, max_step=2e-3
        )
        return solved.y[0][:: int(side)]

    x = np.minimum(curve(1), curve(-1))
    s = np.linspace(0, 1, 2001)
    duration = (2 * np.diff(s) / (np.sqrt(x[1:]) + np.sqrt(x[:-1]))).sum()
    assert_allclose(timing.duration, duration, rtol=1e-3)
    assert_allclose(np.asarray(timing.speed) ** 2, x[::5], atol=6e-3 * x.max())


@pytest.mark.ci
def test_limits_hold_between_the_points_and_friction_counts():
    robot = jaxdyn.robots.panda(friction=jaxdyn.Friction(viscous=2.0, coulomb=1.0))
    waypoints = jnp.array(
        [[0, -0.5, 0, -2, 0, 1.5, 0.7], [0.8, 0.2, -0.4, -1.2, 0.5, 2.0, 0], [-0.2, 0.5, 0.4, -1.8, 0.1, 1.2, 1.0]]
    )
    top = jnp.full(7, 8.0)

    @once
    def timed(waypoints):
        path = jaxdyn.trajectory.spline_path(waypoints)
        timing = jaxdyn.trajectory.time_optimal_path(robot, path, acceleration_limits=top)
        motion = jaxdyn.trajectory.motion_along(path, timing, jnp.linspace(1e-6, timing.duration - 1e-6, 5000))
        torque = jax.vmap(functools.partial(jaxdyn.inverse_dynamics, robot))(*motion)
        return timing, motion, torque + jax.vmap(functools.partial(jaxdyn.friction_force, robot))(motion.qd)

    timing, motion, torque = timed(waypoints)
    assert timing.status == jaxdyn.trajectory.Status.CONVERGED
    shares = jnp.abs(torque).max(0) / robot.limits.effort
    rates, pushes = jnp.abs(motion.qd).max(0) / robot.limits.velocity, jnp.abs(motion.qdd).max(0) / top
    assert shares.max() < 1 + 1e-4 and pushes.max() < 1 + 1e-4 and rates.max() < 1 + 2e-3
    assert max(shares.max(), rates.max(), pushes.max()) > 1 - 1e-3
    assert_allclose(motion.q[-1], waypoints[-1], atol=1e-4)


@pytest.mark.ci
def test_the_duration_has_derivatives_and_batches():
    value = jax.jit(jax.vmap(jax.value_and_grad(lambda w: timed_duration(w))))
    rng = np.random.default_rng(4)
    along, h = jnp.asarray(rng.normal(size=WAYPOINTS.shape)), 1e-6
    durations, slopes = value(jnp.stack([WAYPOINTS, WAYPOINTS + h * along, WAYPOINTS - h * along]))
    assert np.isfinite(slopes).all()
    assert_allclose((slopes[0] * along).sum(), (durations[1] - durations[2]) / (2 * h), rtol=1e-4)


def timed_duration(waypoints):
    """Of the elbow arm."""
    return jaxdyn.trajectory.time_optimal_path(
        ARM, jaxdyn.trajectory.spline_path(waypoints), torque_limits=TORQUES, points=61
    ).duration


@pytest.mark.nightly
def test_the_shortest_duration_of_a_scaling_reaches_a_limit():
    path = jaxdyn.trajectory.spline_path(WAYPOINTS)

    @once
    def shares(top):
        duration = jaxdyn.trajectory.shortest_duration(
            ARM, path, jaxdyn.trajectory.cubic_scaling, torque_limits=TORQUES, velocity_limits=top
        )
        s, sd, sdd = jaxdyn.trajectory.paths.scaled_time(
            jaxdyn.trajectory.cubic_scaling, duration, jnp.linspace(0, duration, 201)
        )
        at = jaxdyn.trajectory.path_dynamics(ARM, path, s)
        torque = at.inertia * sdd[:, None] + at.centrifugal * (sd**2)[:, None] + at.gravity
        return jnp.abs(torque / TORQUES[None, :, 1]).max(), jnp.abs(at.slope * sd[:, None] / top[None]).max()

    torque, speed = shares(jnp.array([1e3, 1e3]))
    assert_allclose(torque, 1, rtol=1e-9)
    torque, speed = shares(jnp.array([1.0, 1.5]))
    assert torque < 1
    assert_allclose(speed, 1, rtol=1e-9)
    assert (
        jaxdyn.trajectory.shortest_duration(ARM, path, torque_limits=0.1 * TORQUES) == jnp.inf
    )  # gravity alone takes more


def test_the_fastest_speeds_equal_those_derived_by_hand():
    """x' = 2 u along s in steps of 0.1, with bands lo <= a u + b x <= hi; one that does not depend on u is no limit of it."""
    lo, hi, step = np.full((3, 2), [-1.0, -9.0]), np.full((3, 2), [2.0, 9.0]), 0.1
    a, b = np.array([[1.0, 0.0], [2.0, 0.0], [1.0, 1e-18]]), np.array([[0.5, 1.0], [0.5, 1.0], [-1.0, 1.0]])
    sets = np.array([[0, 9], [0, 0.35], [0, 9], [0.1, 9.0]])
    x, u = once(fastest_speeds)(
        Bands(*map(jnp.asarray, (a, b, lo, hi))), jnp.asarray(sets), jnp.asarray(0.2), jnp.asarray(step)
    )
    first = (2.0 - 0.5 * 0.2) / 1.0  # u, which the controllable set holds down
    assert 0.2 + 2 * step * first > 0.35
    second = (2.0 - 0.5 * 0.35) / 2.0
    at = [0.2, 0.35, 0.35 + 2 * step * second]
    at.append(at[2] + 2 * step * (2.0 + at[2]))
    assert_allclose(x, at, rtol=1e-12)
    assert_allclose(u, np.diff(at) / (2 * step), rtol=1e-12)
    falling = Bands(*map(jnp.asarray, (a, b, lo, np.full((3, 2), [-3.0, 9.0]))))  # to go slower than the least allowed
    x, u = once(fastest_speeds)(falling, jnp.asarray(np.array([[0, 9.0]] * 4)), jnp.asarray(2.0), jnp.asarray(step))
    assert_allclose(u[0], -1.0 - 0.5 * 2.0, rtol=1e-12)  # the lower edge counts where the upper is below it
    # |u| <= 1 and 2 <= u + x <= 3: x from 1 to 4; a second interval, of which 5 <= u, leaves none
    one = np.ones((2, 2))
    narrow = Bands(*map(jnp.asarray, (one, [[0.0, 1.0]] * 2, [[-1.0, 2.0], [5.0, 2.0]], one * [1.0, 3.0])))
    low, high = once(lasting_speeds)(narrow)
    assert_allclose([low[0], high[0]], [1, 4], rtol=1e-12)
    assert low[1] > high[1]

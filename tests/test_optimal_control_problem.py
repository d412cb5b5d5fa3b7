"""Problems, costs and constraints against their formulas written out with numpy and `step`."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import jaxdyn
from jaxdyn.trajectory import Status
from jaxdyn.trajectory.problem import dependence, holding_torque, on_forces, status_of_problem

ROBOT = jaxdyn.textbook.planar_elbow()
STEPS, DT = 4, 0.05


def a_problem(**named):
    goal = jnp.array([0.4, -0.2])
    running = (
        jaxdyn.trajectory.StateCost(goal, jnp.zeros(2), 2.0, 0.5),
        jaxdyn.trajectory.TorqueCost(0.1),
        jaxdyn.trajectory.TorqueRateCost(0.01),
        jaxdyn.trajectory.ScalarCost(lambda chain, knot, data: data * jnp.cos(knot.q[0]), 0.3),
    )
    terminal = (
        jaxdyn.trajectory.PointCost(jnp.array([1.0, 0.5, 0.0]), 3.0),
        jaxdyn.trajectory.CentreOfMassCost(jnp.array([0.2, -0.3, 0.5]), 0.8),
    )
    return jaxdyn.trajectory.OptimalControlProblem(
        ROBOT, jnp.array([0.1, 0.2]), jnp.zeros(2), STEPS, DT, running, terminal, **named
    )


def test_the_cost_is_the_sum_of_its_parts():
    problem = a_problem(tau0=jnp.array([1.0, 2.0]), duration_weight=0.7)
    tau = np.random.default_rng(0).normal(size=(STEPS, 2))
    trajectory = jax.jit(jaxdyn.trajectory.simulate_controls)(problem, tau)
    step = jax.jit(jaxdyn.step)
    q, v, before, cost = problem.q0, problem.v0, np.array([1.0, 2.0]), 0.0
    for k in range(STEPS):
        q, v = np.asarray(q), np.asarray(v)
        error = np.concatenate([2.0 * (q - np.array([0.4, -0.2])), 0.5 * v])
        rate = 0.01 * (tau[k] - before) / DT
        cost += DT * (0.5 * (error @ error + 0.01 * tau[k] @ tau[k] + rate @ rate) + 0.3 * np.cos(q[0]))
        before = tau[k]
        q, v = step(ROBOT, q, v, tau[k], DT)
        assert_allclose(trajectory.q[k + 1], q, rtol=1e-12)
        assert_allclose(trajectory.v[k + 1], v, rtol=1e-12)
    miss = 3.0 * (jax.jit(jaxdyn.frame_pose)(ROBOT, q)[:3, 3] - np.array([1.0, 0.5, 0.0]))
    centre = 0.8 * (np.asarray(jax.jit(jaxdyn.centre_of_mass)(ROBOT, q)) - np.array([0.2, -0.3, 0.5]))
    cost += 0.5 * (miss @ miss + centre @ centre) + 0.7 * STEPS * DT
    assert_allclose(jax.jit(jaxdyn.trajectory.total_cost)(problem, trajectory), cost, rtol=1e-12)


def test_references_may_have_one_row_per_knot():
    t = jaxdyn.trajectory
    rng = np.random.default_rng(1)
    poses = jnp.stack([jaxdyn.frame_pose(ROBOT, q) for q in rng.normal(size=(STEPS + 1, 2))])
    points, states = poses[:, :3, 3], jnp.asarray(rng.normal(size=(STEPS + 1, 2)))
    q, v, tau = rng.normal(size=(3, 2))
    knot = t.Knot(
        jnp.asarray(2), 0.1, jnp.asarray(q), jnp.asarray(v), jnp.asarray(tau), jnp.asarray(tau), jnp.asarray(DT)
    )
    for make, rows in (
        (t.PoseCost, poses),
        (t.PointCost, points),
        (t.CentreOfMassCost, points),
        (lambda x: t.StateCost(x, -x), states),
        (lambda x: t.TorqueCost(0.3, x), states),
    ):
        assert_allclose(make(rows).residual(ROBOT, knot), make(rows[2]).residual(ROBOT, knot), rtol=1e-13)
    for make, rows in (
        (t.PoseConstraint, poses),
        (t.PointConstraint, points),
        (lambda x: t.StateConstraint(x, 2 * x), states),
    ):
        assert_allclose(make(rows).value(ROBOT, knot), make(rows[2]).value(ROBOT, knot), rtol=1e-13)


def test_the_torque_held_before_the_start_balances_gravity_springs_and_offsets():
    """Rates of torques count from it: the torque that keeps the robot at rest, which a step confirms."""
    sprung = eqx.tree_at(
        lambda c: (c.springs.stiffness, c.friction.offset), ROBOT, (jnp.array([5.0, 3.0]), jnp.array([0.4, -0.7]))
    )
    problem = eqx.tree_at(lambda p: (p.chain, p.v0), a_problem(), (sprung, jnp.zeros(2)))
    tau = holding_torque(problem)
    assert_allclose(jaxdyn.step(sprung, problem.q0, problem.v0, tau, DT)[1], 0, atol=1e-13)
    assert np.abs(tau - holding_torque(a_problem())).min() > 0.05


def test_a_reference_of_another_shape_is_refused_by_name():
    zero = jnp.zeros(2)
    knot = jaxdyn.trajectory.Knot(jnp.asarray(2), 0.1, zero, zero, zero, zero, jnp.asarray(DT))
    with pytest.raises(jaxdyn.TrajectoryError, match=r"PointCost: target has shape \(4, 2\), .* \(3,\)"):
        jaxdyn.trajectory.PointCost(jnp.zeros((STEPS, 2))).residual(ROBOT, knot)


@pytest.mark.parametrize(("part", "rows"), [("running", STEPS), ("terminal", STEPS + 1), ("constraints", STEPS + 1)])
def test_a_reference_with_too_few_rows_is_refused_by_name(part, rows):
    trajectory = jaxdyn.trajectory
    kind = trajectory.PointConstraint if part == "constraints" else trajectory.PointCost
    build = lambda n: dataclasses.replace(a_problem(), **{part: (kind(jnp.zeros((n, 3))),)})
    build(rows)
    with pytest.raises(jaxdyn.TrajectoryError, match=rf"target has {rows - 1} rows, .* at {rows} knots"):
        build(rows - 1)


def test_a_problem_is_a_pytree_to_differentiate_and_batch():
    problem = a_problem()
    motion = jaxdyn.trajectory.stationary_guess(problem)

    @jax.jit
    def cost(goal):
        other = eqx.tree_at(lambda p: p.running[0].q, problem, goal)
        return jaxdyn.trajectory.total_cost(other, motion)

    goals = jnp.array([[0.1, 0.2], [0.3, -0.1]])
    gradients = jax.jit(jax.vmap(jax.grad(cost)))(goals)
    assert_allclose(gradients, STEPS * DT * 4.0 * (goals - problem.q0[None]), rtol=1e-12)


def test_constraints_have_the_sign_they_say():
    robot = jaxdyn.robots.panda()
    limits = jaxdyn.trajectory.position_limits(robot, margin=0.1)
    q = robot.limits.position.mean(axis=1)
    knot = jaxdyn.trajectory.Knot(
        jnp.array(0), jnp.array(0.0), q, jnp.zeros(7), jnp.zeros(7), jnp.zeros(7), jnp.array(0.1)
    )
    half = (robot.limits.position[:, 1] - robot.limits.position[:, 0]) / 2
    assert_allclose(limits.value(robot, knot), jnp.tile(0.1 - half, 2), rtol=1e-12)
    fast = knot._replace(v=1.5 * robot.limits.velocity)
    rates = np.asarray(jaxdyn.trajectory.velocity_limits(robot, 0.8).value(robot, fast)) / np.tile(
        robot.limits.velocity, 2
    )
    assert_allclose(rates, np.repeat([-2.3, 0.7], 7), rtol=1e-12)
    pose, twist = jaxdyn.frame_pose(robot, q), jnp.array([0.1, -0.2, 0.3, 0.05, -0.03, 0.02])
    before = pose @ jaxdyn.spatial.se3.pose_inverse(jaxdyn.spatial.se3.pose_exp(twist))
    assert_allclose(jaxdyn.trajectory.PoseConstraint(before).value(robot, knot), twist, atol=1e-12)
    assert_allclose(
        jaxdyn.trajectory.PoseConstraint(before, directions=(5, 1)).value(robot, knot),
        twist[jnp.array([5, 1])],
        atol=1e-12,
    )
    assert_allclose(jaxdyn.trajectory.PoseCost(before, 2.0).residual(robot, knot), 2 * twist, atol=1e-12)
    point = jaxdyn.trajectory.PointConstraint(pose[:3, 3] - twist[:3])
    assert_allclose(point.value(robot, knot), twist[:3], atol=1e-12)
    state = jaxdyn.trajectory.StateConstraint(q - 1, jnp.full(7, 0.5))
    assert_allclose(state.value(robot, knot), np.repeat([1.0, -0.5], 7), rtol=1e-12)
    assert jaxdyn.trajectory.StateConstraint().value(robot, knot).shape == (0,)
    balls = [
        jaxdyn.geometry.sphere(robot.link_names[-1]),
        jaxdyn.geometry.sphere(robot.topology.base_name, 0.2, jnp.ones(3)),
    ]
    ball = jaxdyn.trajectory.Clearance(jaxdyn.geometry.make_shapes(robot, balls, pairs=[(0, 1)]), 0.1)
    distance = np.linalg.norm(jaxdyn.forward_kinematics(robot, q)[-1, :3, 3] - 1.0) - 0.2
    assert_allclose(ball.value(robot, knot), [0.1 - distance], rtol=1e-12)
    efforts = np.asarray(robot.limits.effort)[:, None]
    assert_allclose(jaxdyn.trajectory.torque_limits(robot, 0.5), efforts * np.array([[-0.5, 0.5]]))
    # joints without limits are left out; where one side alone is limited the other is far off
    open_ = jaxdyn.model.with_leaves(
        robot, {"limits.position": robot.limits.position.at[1].set(jnp.inf * jnp.array([-1.0, 1]))}
    )
    open_ = jaxdyn.model.with_leaves(open_, {"limits.position": open_.limits.position.at[3, 1].set(jnp.inf)})
    some = jaxdyn.trajectory.position_limits(open_)
    assert some.entries == (0, 2, 3, 4, 5, 6) and float(some.upper[2]) == 1e4
    assert_allclose(some.value(open_, knot)[:6], (robot.limits.position[:, 0] - q)[jnp.array(some.entries)])


def test_limits_of_joints_are_not_those_of_coupled_coordinates():
    arm = jaxdyn.textbook.remotely_driven_elbow(m1=1.0, m2=1.0, l1=1.0, l2=1.0)
    for limits in (jaxdyn.trajectory.torque_limits, jaxdyn.trajectory.velocity_limits):
        with pytest.raises(
            jaxdyn.TrajectoryError, match=r"with limits of the coordinates, or lock mimic joints.* lock="
        ):
            limits(arm)


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({"steps": 0}, "steps=0"),
        ({"q0": jnp.zeros(3)}, "q0 has shape"),
        ({"torque_limits": jnp.zeros(2)}, "torque_lim"),
    ],
)
def test_a_problem_that_cannot_be_posed_is_refused(named, words):
    given = {"q0": jnp.zeros(2), "steps": 5, **named}
    with pytest.raises(jaxdyn.TrajectoryError, match=words):
        jaxdyn.trajectory.OptimalControlProblem(ROBOT, given.pop("q0"), jnp.zeros(2), given.pop("steps"), 0.1, **given)


def test_statuses_have_words():
    assert all(status.message for status in jaxdyn.trajectory.Status)


@pytest.mark.parametrize(
    ("limits", "status"), [((0.5, 0.5), "CONVERGED"), ((0.5, 2.0), "CONVERGED"), ((2.0, 0.5), "CONTRADICTORY_LIMITS")]
)
def test_durations_that_exclude_each_other_are_a_status(limits, status):
    problem = a_problem(duration_limits=jnp.asarray(limits))
    assert Status(int(status_of_problem(problem))).name == status


def test_a_floating_base_has_no_torque():
    robot = jaxdyn.textbook.biped(floating=True)
    limits = np.asarray(jaxdyn.trajectory.torque_limits(robot, 0.5))
    np.testing.assert_array_equal(limits[:6], 0)
    effort = np.asarray(robot.limits.effort)[6:]
    np.testing.assert_array_equal(limits[6:], 0.5 * np.stack([-effort, effort], axis=1))


def depends(function, kind=jaxdyn.trajectory.UserConstraint, name="value", data=None):
    """The entries of (q, v, tau, tau_before, ground) on which each value depends, as tuples of indices into all of them."""
    found = dependence(kind(function, data), name, ROBOT, jnp.float64, grounded=True)
    return [tuple(np.flatnonzero(row).tolist()) for row in np.concatenate(found, axis=1)]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda chain, knot, data: 2 * knot.q - data, [(0,), (1,)]),
        (lambda chain, knot, data: knot.q[jnp.array([1, 0])], [(1,), (0,)]),
        (lambda chain, knot, data: knot.q[::-1] * knot.tau[0], [(1, 4), (0, 4)]),
        (lambda chain, knot, data: jnp.concatenate([jnp.abs(knot.v), 0 * knot.tau[1:]]), [(2,), (3,), (5,)]),
        (lambda chain, knot, data: jnp.where(knot.tau_before > 0, 1.0, jnp.zeros(2)), [(6,), (7,)]),
        (lambda chain, knot, data: jnp.stack([knot.ground[2], knot.t]), [(10,), ()]),
        (lambda chain, knot, data: jnp.ones((1, 2)) @ knot.v, [(2, 3)]),
        (lambda chain, knot, data: jnp.tile(jax.jit(jnp.sin)(knot.q), 2)[1:3], [(1,), (0,)]),
    ],
)
def test_the_entries_on_which_a_function_depends_are_found_from_its_program(function, expected):
    assert depends(function, data=jnp.ones(2)) == expected


def test_an_unknown_index_counts_as_any_index():
    both = (0, 1)
    assert depends(lambda chain, knot, data: knot.q[data], data=jnp.array([1])) == [both]


def test_a_torque_constraint_whose_slope_is_zero_at_rest_is_found():
    square = jaxdyn.trajectory.UserConstraint(lambda chain, knot, data: jnp.append(knot.tau**2 - 4, knot.q[0]))
    _, below = on_forces(a_problem(), (square,))
    assert below.tolist() == [True, True, False]


def test_a_user_s_cost_of_the_previous_torques_is_found():
    rate = jaxdyn.trajectory.UserCost(lambda chain, knot, data: knot.tau - knot.tau_before)
    problem = a_problem()
    assert dataclasses.replace(problem, running=(rate,)).has_torque_rate
    assert not dataclasses.replace(problem, running=problem.running[:2]).has_torque_rate


def test_a_cost_or_constraint_that_contradicts_its_base_class_is_refused():
    with pytest.raises(jaxdyn.TrajectoryError, match="defines value, but it has a residual"):

        class Bent(jaxdyn.trajectory.StateCost):
            def value(self, chain, knot):
                return knot.q[0]

    with pytest.raises(jaxdyn.TrajectoryError, match="inherits pinned from PositionLimits"):

        class Shifted(jaxdyn.trajectory.PositionLimits):
            def value(self, chain, knot):
                return knot.q - self.upper

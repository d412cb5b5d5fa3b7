"""Distances that motions and postures keep: constraint, cost, three solvers, and inverse kinematics."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import jaxdyn
from helpers import derivatives, once
from jaxdyn import geometry
from jaxdyn.trajectory import (
    Clearance,
    ClearanceCost,
    Knot,
    OptimalControlProblem,
    StateConstraint,
    StateCost,
    Status,
    TorqueCost,
    solve_by_collocation,
    solve_by_inverse_dynamics,
    solve_by_shooting,
)

LEAST = 0.05
GOAL = jnp.array([0.5, 0.8])
POSTURE = jnp.array([0.4, 0.5, 0.6, 0.5])


@functools.cache
def sliding():
    """A ball on two slides and a pillar across the straight line from the origin to GOAL."""
    robot = jaxdyn.textbook.cartesian_two_link(m1=1.0, m2=1.0)
    middle = jaxdyn.frame_pose(robot, GOAL / 2 + jnp.array([0.03, -0.01]))[:3, 3]
    link, base = robot.link_names[-1], robot.topology.base_name
    at = jaxdyn.frame_pose(robot, GOAL / 2)
    carried = jnp.linalg.inv(jaxdyn.forward_kinematics(robot, GOAL / 2)[-1]) @ at
    bodies = [geometry.sphere(link, 0.05, carried[:3, 3]), geometry.sphere(base, 0.1, middle)]
    return robot, geometry.make_shapes(robot, bodies, pairs=[(0, 1)])


@functools.cache
def planar_arm():
    """Four links of 0.4 m in a plane, as capsules, and a ball on the second link at POSTURE."""
    homes = [np.eye(4) + 0.4 * k * np.outer(np.eye(4)[0], np.eye(4)[3]) for k in range(5)]
    screws = [[0, 0, 1, 0, -0.4 * k, 0] for k in range(4)]
    arm = jaxdyn.from_screws(screws, homes[:4], [np.diag([0.1, 0.1, 0.1, 1, 1, 1.0])] * 4, tip_pose=homes[4])
    pose = jaxdyn.forward_kinematics(arm, POSTURE)[1]
    ball = geometry.sphere(arm.topology.base_name, 0.05, (pose @ jnp.array([0.2, 0.06, 0, 1]))[:3])
    bodies = [geometry.capsule(name, (0, 0, 0), (0.4, 0, 0), 0.03) for name in arm.link_names]
    return arm, geometry.make_shapes(arm, [*bodies, ball], pairs=[(k, 4) for k in range(4)])


def knot(q):
    zero = jnp.zeros_like(q)
    return Knot(jnp.array(0), jnp.zeros(()), q, zero, zero, zero, jnp.array(0.1))


@pytest.mark.parametrize("part", ["constraint", pytest.param("cost", marks=pytest.mark.nightly)])
def test_values_are_those_of_distances_and_derivatives_those_of_differences(part):
    arm, shapes = planar_arm()
    least, weight = jnp.array([0.1, 0.2, 0.3, 0.4]), jnp.array([1.0, 2.0, 3.0, 4.0])
    q = POSTURE + 0.2
    lack = least - geometry.distances(arm, shapes, q)
    if part == "constraint":
        value, expected = lambda q: Clearance(shapes, least).value(arm, knot(q)), lack
    else:
        value = lambda q: ClearanceCost(shapes, least, weight).residual(arm, knot(q))
        expected = weight * jnp.maximum(lack, 0) ** 2
    assert (np.asarray(lack) > 0).any() and (np.asarray(lack) < 0).any()
    along = (jnp.asarray(np.random.default_rng(0).normal(size=(3, 4))),)
    found, forward, reverse, differences = derivatives(value, (q,), along, weight)
    assert_allclose(found[0], expected, rtol=1e-12, atol=1e-14)
    assert_allclose(forward, differences, atol=1e-9)
    assert_allclose(reverse, differences @ weight, atol=1e-8)


SOLVERS = {
    "shooting": solve_by_shooting,
    "collocation": solve_by_collocation,
    "splines": functools.partial(solve_by_inverse_dynamics, intervals=5),
}


@pytest.mark.ci
@pytest.mark.parametrize(
    "solver", [pytest.param(x, marks=() if x == "splines" else pytest.mark.nightly) for x in SOLVERS]
)
def test_motions_pass_the_pillar(solver):
    robot, shapes = sliding()
    still = jnp.zeros(2)

    @once
    def nearest(least):
        problem = OptimalControlProblem(
            robot,
            still,
            still,
            16,
            1 / 16,
            (TorqueCost(0.1), StateCost(GOAL, still, 0.1, 0.1)),
            constraints=(Clearance(shapes, least),),
            terminal_constraints=(StateConstraint(GOAL, still),),
        )
        solution = SOLVERS[solver](problem)
        distance = jax.vmap(lambda q: geometry.distances(robot, shapes, q))(solution.trajectory.q)
        return solution.status, distance.min(), solution.cost

    status, near, cost = nearest(jnp.array(LEAST))
    free, near_free, cost_free = nearest(jnp.array(-1.0))
    assert status == free == Status.CONVERGED
    assert near > LEAST - 1e-5 and near_free < 0
    assert cost > cost_free


@functools.cache
def solve(batch=False):
    """Inverse kinematics of the planar arm for a target or several, and the least distance."""
    arm, shapes = planar_arm()

    def one(target, least):
        return jaxdyn.inverse_kinematics(arm, target, guess=POSTURE, clearance=Clearance(shapes, least), starts=4)

    return once(jax.vmap(one, (0, None)) if batch else one)


def test_a_redundant_arm_reaches_a_pose_beside_an_obstacle():
    arm, shapes = planar_arm()
    target = jaxdyn.frame_pose(arm, POSTURE)
    assert geometry.distances(arm, shapes, POSTURE).min() < 0  # where the guess is a solution without the obstacle
    found = solve()(target, jnp.array(0.02))
    assert found.status == Status.CONVERGED
    assert_allclose(jaxdyn.frame_pose(arm, found.q), target, atol=1e-8)
    distance = geometry.distances(arm, shapes, found.q).min()
    assert distance > 0.02 - 1e-8
    assert_allclose(found.clearance, distance - 0.02, atol=1e-12)
    assert np.abs(found.q - POSTURE).max() > 0.05
    free = solve()(target, jnp.array(-1.0))
    assert_allclose(free.q, POSTURE, atol=1e-12)


@pytest.mark.nightly
def test_a_batch_of_targets_has_the_solutions_of_each():
    target = jaxdyn.frame_pose(planar_arm()[0], POSTURE)
    targets = jnp.stack([target] * 3).at[1:, 0, 3].add(jnp.array([0.01, -0.02]))
    several = solve(batch=True)(targets, jnp.array(0.02))
    assert (several.status == Status.CONVERGED).all() and (several.clearance > -1e-8).all()
    for target, q in zip(targets, several.q, strict=True):
        assert_allclose(q, solve()(target, jnp.array(0.02)).q, atol=1e-8)


def test_a_target_within_the_obstacle_is_out_of_reach():
    target = jnp.eye(4).at[:3, 3].set(planar_arm()[1].pose[4, :3, 3])
    found = solve()(target, jnp.array(0.02))
    assert found.status == Status.UNREACHABLE and found.clearance < -0.01
    assert np.isfinite(found.q).all() and "clearance -" in repr(found)


@pytest.mark.nightly
def test_solutions_follow_the_target_where_no_distance_holds_them():
    """With a distance that the guess keeps, against a second search; the arm has as many joints as the error has components."""
    arm, shapes = planar_arm()
    q = POSTURE + jnp.array([0.8, 0.0, 0.2, 0.3])
    limits = jnp.stack([jnp.full(4, -3.0), jnp.full(4, 3.0)], axis=1).at[0].set(q[0])  # three joints in a plane
    target = jaxdyn.frame_pose(arm, q)

    def again(s):
        moved = target.at[0, 3].add(s).at[1, 3].add(-2 * s)
        clear = Clearance(shapes, 0.01)
        return jaxdyn.inverse_kinematics(arm, moved, guess=q, position_limits=limits, clearance=clear, starts=1)

    assert geometry.distances(arm, shapes, q).min() > 0.02

    @once
    def both(s):
        found, forward = jax.jvp(lambda s: again(s).q, (s,), (jnp.ones_like(s),))
        return found, forward, jax.vjp(lambda s: again(s).q, s)[1](jnp.arange(4.0))[0]

    h = 1e-4
    difference = (both(jnp.array(h))[0] - both(jnp.array(-h))[0]) / (2 * h)
    _, forward, reverse = both(jnp.array(0.0))
    assert np.abs(difference).max() > 0.1
    assert_allclose(forward, difference, rtol=1e-5, atol=1e-6)
    assert_allclose(reverse, difference @ np.arange(4.0), rtol=1e-5)


@pytest.mark.nightly
def test_inverse_kinematics_with_a_clearance_in_single_precision():
    arm, shapes = jax.tree.map(
        lambda x: x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x, planar_arm()
    )
    target = jaxdyn.frame_pose(arm, POSTURE.astype(jnp.float32))
    for least in (0.02, jnp.full(4, 0.02)):  # the second is in double precision
        found = jaxdyn.inverse_kinematics(arm, target, guess=POSTURE, clearance=Clearance(shapes, least), starts=4)
        assert found.q.dtype == found.clearance.dtype == jnp.float32
        assert found.status == Status.CONVERGED and found.clearance > -2e-5


def test_shapes_of_another_robot_and_wrong_numbers_of_distances_are_refused():
    arm, shapes = planar_arm()
    other, target = sliding()[0], jnp.eye(4)
    with pytest.raises(jaxdyn.ModelError, match="is on link 3, but the robot has 2 links"):
        jaxdyn.inverse_kinematics(other, target, clearance=Clearance(shapes, 0.1))
    with pytest.raises(
        jaxdyn.TrajectoryError, match=r"Clearance: least has shape \(3,\), but shapes.pairs has length 4"
    ):
        jaxdyn.inverse_kinematics(arm, target, clearance=Clearance(shapes, jnp.ones(3)))
    for given, name in (((jnp.ones(3), 1.0), "margin"), ((1.0, jnp.ones((4, 4))), "weight")):
        with pytest.raises(jaxdyn.TrajectoryError, match=f"ClearanceCost: {name} has shape"):
            ClearanceCost(shapes, *given).residual(arm, knot(POSTURE))

"""Inverse kinematics: forward kinematics of the result, the book's code and example, poses out of reach, derivatives."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import modern_robotics
import numpy as np
import pytest
from numpy.testing import assert_allclose

import jaxdyn
from helpers import once, random_chain, random_links, random_mechanism
from jaxdyn.trajectory.ik import (
    _finite,
    _following,
    _middle,
    _starts,
    coordinate_limits,
    rotation_vector,
)

PANDA = jaxdyn.robots.panda()


@once
def solved(targets):
    """Positions, and their poses."""
    found = jax.vmap(functools.partial(jaxdyn.inverse_kinematics, PANDA))(targets)
    return found, jax.vmap(functools.partial(jaxdyn.frame_pose, PANDA))(found.q)


def reachable(chain, count, seed=0, frame=None):
    """Random positions and their poses."""

    @once
    def draw(keys):
        q = jax.vmap(functools.partial(jaxdyn.random_configuration, chain))(keys)
        return q, jax.vmap(lambda x: jaxdyn.frame_pose(chain, x, frame))(q)

    return draw(jax.random.split(jax.random.key(seed), count))


def test_forward_kinematics_of_the_solution_is_the_pose_and_limits_are_held():
    _, targets = reachable(PANDA, 63)
    far = targets[0].at[0, 3].set(3.0)  # out of reach
    found, poses = solved(jnp.concatenate([targets, far[None]]))
    assert (found.status[:63] == jaxdyn.trajectory.Status.CONVERGED).all()
    assert_allclose(poses[:63], targets, atol=1e-8)
    limits = PANDA.limits.position
    assert (found.q >= limits[None, :, 0]).all() and (found.q <= limits[None, :, 1]).all()
    assert found.status[63] == jaxdyn.trajectory.Status.UNREACHABLE
    assert np.linalg.norm(found.error[63, 3:]) > 3.0 - 1.3 and np.isfinite(found.q[63]).all()
    assert found.message.startswith("63 of 64: converged; 1 of 64: no start converged")


def test_rotation_vectors_are_the_logarithms_of_rotations():
    rng = np.random.default_rng(1)
    axes = rng.normal(size=(7, 3))
    axes /= np.linalg.norm(axes, axis=1, keepdims=True)
    vectors = np.array([0, 1e-9, 1e-4, 0.09, 1.0, 3.0, np.pi - 1e-7])[:, None] * axes
    vectors = np.concatenate([vectors, -vectors])
    there_and_back = once(
        jax.vmap(lambda v: jnp.stack(rotation_vector(tuple(jaxdyn.spatial.so3.rotation_exp(v).reshape(9)))))
    )
    error = np.abs(there_and_back(jnp.asarray(vectors)) - vectors).max(1)
    assert (error < np.where(np.linalg.norm(vectors, axis=1) > 3.1, 1e-8, 1e-13)).all()


def test_bad_input_says_what_is_wrong():
    target = jnp.eye(4)
    for named, message in (
        ({"target": 2 * target}, "not a pose"),
        ({"weights": jnp.zeros(6)}, "weights"),
        ({"starts": 0}, "starts=0, .* at least 1"),
        ({"position_limits": jnp.ones((7, 2)).at[3, 0].set(2.0)}, "coordinate 3 exceeds"),
        ({"position_limits": jnp.ones((6, 2))}, "shape"),
    ):
        with pytest.raises(jaxdyn.TrajectoryError, match=message):
            jaxdyn.inverse_kinematics(PANDA, **({"target": target} | named))
    with pytest.raises(jaxdyn.ModelError, match="nothing"):
        jaxdyn.inverse_kinematics(PANDA, target, "nothing")


@pytest.mark.ci
def test_the_position_nearest_to_the_guess_is_found():
    """Of a planar arm whose elbow may be on either side: whichever of the two the guess is near."""
    arm = jaxdyn.textbook.planar_elbow()
    sides = jnp.array([[0.4, 0.9], [1.3, -0.9]])  # links of equal length
    target = jaxdyn.frame_pose(arm, sides[0])
    find = once(lambda guess: jaxdyn.inverse_kinematics(arm, target, guess=guess, weights=(0, 0, 0, 1, 1, 0), starts=8))
    for side in sides:
        found = find(side + 0.05)
        assert found.status == jaxdyn.trajectory.Status.CONVERGED and found.reached > 1
        assert_allclose(found.q, side, atol=1e-8)


def ball_and_slider():
    """A joint of quaternions, one that turns and one that slides, with limits."""
    rotation, translation, inertia = random_links(5, [(0, 3)], np.random.default_rng(5))
    return jaxdyn.make_chain(
        rotation=rotation,
        translation=translation,
        screw=[*np.eye(6)[:3], [0, 0.6, 0.8, 0, 0, 0], [0, 0, 0, 0.8, 0, 0.6]],
        inertia=inertia,
        frames={"tool": (4, [[0, -1, 0, 0.1], [1, 0, 0, 0.2], [0, 0, 1, 0.3], [0, 0, 0, 1]])},
        limits=jaxdyn.JointLimits(position=[[-np.inf, np.inf]] * 4 + [[-0.2, 0.5]]),
        topology=jaxdyn.Topology.serial(5, compound_joints=[(0, "spherical")]),
    )


@pytest.mark.nightly
def test_solutions_follow_the_target_and_the_robot():
    """To first order the frame stays where it should be, by the least motion, of the joints that are not at a limit."""
    chain, q = ball_and_slider(), jnp.array([0.5, 0.5, -0.1, 0.7, 0.4, 0.3])  # a unit quaternion
    turns, moves = [0.5, 2.0, 1.0, 0, 0, 0], [0, 0, 0, 1.0, 3.0, 0]
    far, at_limit = [[-9.0, 9.0]] * 5, [*[[-9.0, 9.0]] * 3, [-1, 0.4], [-9, 9]]
    cases = jnp.array([turns, moves, moves]), jnp.array([far, far, at_limit])
    along = jnp.asarray(np.random.default_rng(3).normal(size=6))

    @once
    def run(s):
        pose = jaxdyn.frame_pose(chain, q, "tool")

        def followed(s, weights, limits):
            longer = dataclasses.replace(chain, translation=chain.translation * (1 + s))
            target = pose @ jaxdyn.spatial.se3.pose_exp(s * along)
            found = _following("tool", longer, target, weights, limits, q)
            return jaxdyn.difference(chain, q, found), jaxdyn.frame_pose(longer, found, "tool") - target

        moved = jax.lax.map(lambda case: jax.jvp(lambda s: followed(s, *case), (s,), (jnp.ones(()),))[1], cases)
        return moved, jaxdyn.jacobian(chain, q, "tool", "mixed"), pose

    (moved, off), jacobian, pose = jax.tree.map(np.asarray, run(jnp.zeros(())))
    back = pose[:3, :3].T
    for weights, limits, v, miss in zip(*map(np.asarray, cases), moved, off, strict=True):
        assert np.abs(v).max() > 0.1
        skew, position = back @ miss[:3, :3] @ back.T, back @ miss[:3, 3]
        assert_allclose(np.append(skew, 0) if weights[0] else position[:2], 0, atol=1e-10)
        rows = (np.kron(np.eye(2), back) @ jacobian * (limits[:, 1] > 0.4))[weights > 0]
        assert_allclose(v, np.linalg.pinv(rows) @ rows @ v, atol=1e-10)


@pytest.mark.nightly
def test_a_ball_joint_and_a_slider_reach_a_pose():
    """Within the limits; where the starts are."""
    chain = ball_and_slider()
    q = jnp.array([0.5, 0.5, -0.1, 0.7, 0.4, 0.3])
    guess = q + jnp.array([0, 0.1, 0, -0.1, 0.1, 9.0])

    @once
    def run(guess):
        target = jaxdyn.frame_pose(chain, q)
        found = jaxdyn.inverse_kinematics(chain, target, guess=guess, weights=(1, 1, 1, 1, 0, 0), starts=2)
        limits = coordinate_limits(chain)
        starts = _starts(chain, target, jnp.ones(6), limits, None, guess, 3, 0)
        near = jax.vmap(lambda q: jaxdyn.frame_pose(chain, q))(starts[1:])
        return (jaxdyn.frame_pose(chain, found.q), target), found, limits, starts, near, _middle(chain, limits, q.dtype)

    (reached, target), found, limits, starts, near, middle = jax.tree.map(np.asarray, run(guess))
    assert found.status == jaxdyn.trajectory.Status.CONVERGED and -0.2 <= found.q[5] <= 0.5
    assert_allclose(found.error[:4], 0, atol=1e-9)
    assert_allclose(reached[:3, :3], target[:3, :3], atol=1e-8)
    assert_allclose(target[:3, 0] @ (reached - target)[:3, 3], 0, atol=1e-8)
    assert_allclose(limits, [[-np.inf, np.inf]] * 4 + [[-0.2, 0.5]])
    assert_allclose(starts[0], guess.at[5].set(0.5))
    assert_allclose(np.linalg.norm(starts[1:, :4], axis=1), 1, rtol=1e-12)
    assert (np.abs(starts[1:, 4]) <= np.pi).all() and ((starts[1:, 5] >= -0.2) & (starts[1:, 5] <= 0.5)).all()
    turned = np.arccos((np.einsum("kij,ij->k", near[:, :3, :3], target[:3, :3]) - 1) / 2)
    assert turned.max() < 1.0  # of 192 random positions those that are near
    assert_allclose(middle, [1, 0, 0, 0, 0, 0.15], atol=1e-15)


def test_coordinates_without_limits_start_within_half_a_turn():
    """Half a turn or a metre about zero, a turn or two metres from the one limit there is; and of joints that are coupled."""
    inf, pi = np.inf, np.pi
    chain = random_chain(4, 2)  # the second one slides
    for limits, expected in (
        ([[-inf, inf], [-inf, inf], [-1, inf], [-inf, 2]], [[-pi, pi], [-1, 1], [-1, -1 + 2 * pi], [2 - 2 * pi, 2]]),
        ([[-1, 2], [0.5, inf], [-2, 1], [-inf, inf]], [[-1, 2], [0.5, 2.5], [-2, 1], [-pi, pi]]),
        ([[-1, 2], [-inf, 0.5], [-2, 1], [-1, 1]], [[-1, 2], [-1.5, 0.5], [-2, 1], [-1, 1]]),
    ):
        assert_allclose(np.stack(_finite(chain, jnp.array(limits)), axis=1), expected, rtol=1e-14)
    rng = np.random.default_rng(1)
    rotation, translation, inertia = random_links(4, [], rng)
    coupled = dataclasses.replace(
        jaxdyn.make_chain(
            rotation=rotation,
            translation=translation,
            screw=np.eye(6)[[0, 3, 1, 4]],
            inertia=inertia,
            limits=jaxdyn.JointLimits(position=[[-1.0, 2.0], [-0.4, 0.8], [-0.1, 0.1], [-0.2, 0.5]]),
        ),
        coupling=jaxdyn.Coupling(np.array([[2.0, 0], [0, -1.5], [1, 1], [-0.5, 0]]), np.array([0.1, 0.2, 0, 0.3])),
    )
    assert_allclose(coordinate_limits(coupled), [[-0.4, 0.95], [-0.4, 0.4]], atol=1e-12)
    open_ = jnp.array([[-inf, inf], [-inf, inf]])
    assert_allclose(np.stack(_finite(coupled, open_), axis=1), [[-pi, pi], [-pi, pi]])


@pytest.mark.ci
def test_the_example_of_the_book_is_solved():
    screws = np.array([[0, 0, -1, 2, 0, 0], [0, 0, 0, 0, 1, 0], [0, 0, 1, 0, 0, 0.1]], float)  # in the tip's frame
    home = np.array([[-1, 0, 0, 0], [0, 1, 0, 6], [0, 0, -1, 2], [0, 0, 0, 1]], float)
    target = np.array([[0, 1, 0, -5], [1, 0, 0, 4], [0, 0, -1, 1.6858], [0, 0, 0, 1]], float)
    guess = np.array([1.5, 2.5, 3.0])
    space = (modern_robotics.Adjoint(home) @ screws.T).T
    body = np.diag([1.0, 1, 1, 1, 1, 1])
    chain = jaxdyn.from_screws(space, [np.eye(4)] * 3, [body] * 3, tip_pose=home)
    expected, success = modern_robotics.IKinBody(screws.T, home, target, guess, 1e-9, 1e-4)
    del success  # the example's pose is given with four digits
    found = jaxdyn.inverse_kinematics(chain, jnp.asarray(target), guess=jnp.asarray(guess), starts=1, tolerance=1e-3)
    assert found.status == jaxdyn.trajectory.Status.CONVERGED
    assert_allclose(found.q, [1.57073819, 2.999667, 3.14153913], atol=2e-3)
    assert_allclose(found.q, expected, atol=2e-3)
    exact = jaxdyn.frame_pose(chain, jnp.asarray(expected))
    again = jaxdyn.inverse_kinematics(chain, exact, guess=jnp.asarray(guess), starts=1)
    assert_allclose(again.q, expected, atol=1e-8)


@pytest.mark.nightly
def test_weights_select_parts_of_the_error_also_in_single_precision():
    targets = reachable(PANDA, 16, seed=3)[1]
    position = once(
        jax.vmap(lambda t: jaxdyn.inverse_kinematics(PANDA, t, "panda_link6", weights=(0, 0, 0, 1, 1, 1), starts=8))
    )
    inner = reachable(PANDA, 16, seed=4, frame="panda_link6")[1].at[:, :3, :3].set(jnp.eye(3))
    found = position(inner)
    tips = jax.vmap(lambda q: jaxdyn.frame_pose(PANDA, q, "panda_link6")[:3, 3])(found.q)
    assert (found.status == jaxdyn.trajectory.Status.CONVERGED).all()
    assert_allclose(tips, inner[:, :3, 3], atol=1e-8)
    assert np.abs(found.error[:, :3]).max() > 0.1  # the orientation is free
    spin = once(jax.vmap(lambda t: jaxdyn.inverse_kinematics(PANDA, t, weights=(1, 1, 0, 1, 1, 1))))(targets)
    assert (spin.status == jaxdyn.trajectory.Status.CONVERGED).all()
    assert np.abs(spin.error[:, [0, 1, 3, 4, 5]]).max() < 1e-8 < np.abs(spin.error[:, 2]).max()
    single = jax.tree.map(lambda x: x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x, PANDA)
    found = once(jax.vmap(functools.partial(jaxdyn.inverse_kinematics, single)))(targets.astype(jnp.float32))
    assert found.q.dtype == jnp.float32 and (found.status == jaxdyn.trajectory.Status.CONVERGED).all()
    assert np.abs(found.error).max() < 2e-5


@pytest.mark.ci
def test_trees_with_quaternions_and_couplings_reach_their_targets():
    chain = random_mechanism(3)
    _, targets = reachable(chain, 4, seed=5, frame="tool")
    find = once(jax.vmap(lambda t: jaxdyn.inverse_kinematics(chain, t, "tool", starts=4)))
    found = find(targets)
    assert (found.status == jaxdyn.trajectory.Status.CONVERGED).all()
    assert_allclose(jax.vmap(lambda q: jaxdyn.frame_pose(chain, q, "tool"))(found.q), targets, atol=1e-8)
    assert jnp.isinf(jaxdyn.trajectory.coordinate_limits(chain)).all()
    still = find(targets.at[0, 0, 3].set(jnp.nan))
    assert still.status[0] == jaxdyn.trajectory.Status.NOT_FINITE and np.isfinite(still.q).all()


@pytest.mark.ci
def test_the_derivative_is_that_of_the_problem_solved_again():
    arm = jaxdyn.robots.ur5()
    q0 = jnp.array([0.3, -1.1, 1.4, -0.7, 1.2, 0.4])
    target = jaxdyn.frame_pose(arm, q0)
    twist = jnp.asarray(np.random.default_rng(2).normal(size=6))

    def again(size):
        moved = target @ jaxdyn.spatial.se3.pose_exp(size * twist)
        return jaxdyn.inverse_kinematics(arm, moved, guess=q0, starts=1).q

    @jax.jit
    def both(size):
        q, forward = jax.jvp(again, (size,), (jnp.ones_like(size),))
        return q, forward, jax.vjp(again, size)[1](jnp.arange(6.0))[0]

    h = 1e-4
    _, forward, reverse = both(0.0)
    difference = (both(h)[0] - both(-h)[0]) / (2 * h)
    assert_allclose(forward, difference, rtol=1e-5, atol=1e-6)
    assert_allclose(reverse, difference @ jnp.arange(6.0), rtol=1e-5)


@pytest.mark.nightly
def test_ten_thousand_poses_of_a_panda_are_reached():
    _, targets = reachable(PANDA, 10_000, seed=42)
    many = jax.jit(lambda t: jax.lax.map(functools.partial(jaxdyn.inverse_kinematics, PANDA), t, batch_size=250))
    found = many(targets)
    poses = jax.vmap(functools.partial(jaxdyn.frame_pose, PANDA))(found.q)
    limits = PANDA.limits.position
    inside = ((found.q >= limits[None, :, 0]) & (found.q <= limits[None, :, 1])).all(1)
    good = inside & (jnp.abs(poses - targets).max((1, 2)) < 1e-6)
    assert (good == (found.status == jaxdyn.trajectory.Status.CONVERGED)).all()
    assert good.mean() >= 0.995
    away = many(targets[:500].at[:, :3, 3].multiply(2.5 / jnp.linalg.norm(targets[:500, :3, 3], axis=1)[:, None]))
    assert (away.status == jaxdyn.trajectory.Status.UNREACHABLE).all()


def test_limits_with_nothing_in_between_lock_a_joint():
    arm = jaxdyn.robots.panda()
    limits = coordinate_limits(arm).at[2].set(0.3)
    target = jaxdyn.frame_pose(arm, jnp.array([0.2, 0.2, 0.3, -1.5, 0.2, 1.6, 0.2], arm.dtype))
    found = jax.jit(lambda target: jaxdyn.inverse_kinematics(arm, target, position_limits=limits))(target)
    assert found.status == jaxdyn.trajectory.Status.CONVERGED and found.q[2] == limits[2, 0]
    np.testing.assert_allclose(jaxdyn.frame_pose(arm, found.q), target, atol=1e-5)

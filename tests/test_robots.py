"""The ready-made arms against their makers' published kinematics, and against what every arm must satisfy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxdyn
from helpers import compiled, relative
from jaxdyn import Topology, from_dh, robots
from jaxdyn.model.build import check_inertia
from jaxdyn.spatial.inertia import inertial_parameters_to_com
from published_inertias import PUBLISHED

ARMS = [robots.panda, robots.ur5, robots.ur5e, robots.ur10, robots.iiwa14, robots.xarm7]
HALF = np.pi / 2

# Denavit-Hartenberg tables as the makers publish them: a, alpha, d
PANDA_MODIFIED = (
    [0, 0, 0, 0.0825, -0.0825, 0, 0.088],
    [0, -HALF, HALF, HALF, -HALF, HALF, HALF],
    [0.333, 0, 0.316, 0, 0.384, 0, 0],
)
UNIVERSAL = {
    "ur5": (0.089159, -0.425, -0.39225, 0.10915, 0.09465, 0.0823),
    "ur5e": (0.1625, -0.425, -0.3922, 0.1333, 0.0997, 0.0996),
    "ur10": (0.1273, -0.612, -0.5723, 0.163941, 0.1157, 0.0922),
}
# Home positions of the flange at q = 0: metres, and the flange's z axis
HOMES = {
    "panda": ((0.088, 0, 0.333 + 0.316 + 0.384 - 0.107), (0, 0, -1)),
    "ur5": ((-0.81725, -0.19145, -0.005491), (0, -1, 0)),
    "ur5e": ((-0.8172, -0.2329, 0.0628), (0, -1, 0)),
    "ur10": ((-1.1843, -0.256141, 0.0116), (0, -1, 0)),
    "iiwa14": ((0, 0, 0.36 + 0.42 + 0.4 + 0.126), (0, 0, 1)),
    "xarm7": ((0.206, 0, 0.1205), (0, 0, -1)),
}


@pytest.fixture(scope="module", params=ARMS, ids=lambda make: make.__name__)
def arm(request):
    return request.param.__name__, request.param()


def test_the_robots_have_the_published_poses_at_zero(arm):
    name, chain = arm
    position, axis = HOMES[name]
    pose = np.asarray(compiled.frame_pose(chain, jnp.zeros(chain.n)))
    np.testing.assert_allclose(pose[:3, 3], position, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(pose[:3, 2], axis)


def test_the_published_inertias_are_those_of_bodies(arm):
    _, chain = arm
    for name, pi in zip(chain.link_names, chain.inertia, strict=True):
        check_inertia(name, pi)
        assert pi[0] > 0


def test_mass_matrix_is_positive_definite_and_gravity_within_the_drives_reach(arm):
    _, chain = arm
    rng = np.random.default_rng(0)
    q = jnp.asarray(rng.uniform(*np.asarray(chain.limits.position).T, size=(8, chain.n)))
    mass_matrices = jax.jit(jax.vmap(jaxdyn.crba, in_axes=(None, 0)))(chain, q)
    assert np.linalg.eigvalsh(np.asarray(mass_matrices)).min() > 1e-5
    gravity = np.asarray(jax.jit(jax.vmap(jaxdyn.gravity_force, in_axes=(None, 0)))(chain, q))
    assert np.all(np.abs(gravity) < np.tile(chain.limits.effort, (8, 1)))


def test_limits_are_those_of_an_arm(arm):
    _, chain = arm
    lower, upper = np.asarray(chain.limits.position).T
    assert np.all(lower < upper) and np.all(upper - lower <= 4 * np.pi + 1e-12)
    assert np.all(np.isfinite(chain.limits.effort)) and np.all(np.asarray(chain.limits.effort) >= 12)
    assert np.all((np.asarray(chain.limits.velocity) > 1) & (np.asarray(chain.limits.velocity) < 4))


def massless(n):
    return np.tile(np.eye(10)[0], (n, 1))


def test_panda_is_its_published_modified_dh_table():
    a, alpha, d = PANDA_MODIFIED
    flange = np.eye(4)
    flange[2, 3] = 0.107
    table = from_dh(a, alpha, d, np.zeros(7), convention="modified", inertia=massless(7), tool_pose=flange)
    q = jnp.asarray(np.random.default_rng(1).normal(size=7))
    assert relative(compiled.forward_kinematics(robots.panda(), q), compiled.forward_kinematics(table, q)) < 1e-12
    assert relative(compiled.frame_pose(robots.panda(), q), compiled.frame_pose(table, q)) < 1e-12


@pytest.mark.parametrize("name", UNIVERSAL)
def test_universal_robots_tool_is_that_of_the_published_dh_table(name):
    d1, a2, a3, d4, d5, d6 = UNIVERSAL[name]
    alpha = [HALF, 0, 0, HALF, -HALF, 0]
    table = from_dh([0, a2, a3, 0, 0, 0], alpha, [d1, 0, 0, d4, d5, d6], np.zeros(6), inertia=massless(6))
    q = jnp.asarray(np.random.default_rng(2).normal(size=6))
    chain = getattr(robots, name)()
    assert relative(compiled.frame_pose(chain, q, "tool0"), compiled.frame_pose(table, q)) < 1e-12
    turn = (
        np.asarray(compiled.frame_pose(chain, q, "tool0"))[:3, :3].T @ compiled.frame_pose(chain, q, "flange")[:3, :3]
    )
    np.testing.assert_allclose(turn, [[0, 1, 0], [0, 0, 1], [1, 0, 0]], rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", PUBLISHED)
def test_inertias_are_the_published_ones_in_their_axes(name):
    chain = getattr(robots, name)()
    for pi, (mass, com, moments, *turned) in zip(chain.inertia, PUBLISHED[name], strict=True):
        xx, yy, zz, xy, xz, yz = (*moments, 0, 0, 0)[:6]
        axes = Rotation.from_euler("xy", np.multiply(*turned or [(0, 0)], 90), degrees=True).as_matrix()
        tensor = axes @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ axes.T
        for found, expected in zip(inertial_parameters_to_com(pi), (mass, com, tensor), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


def test_leaves_of_the_caller_go_before_the_tables():
    tool = np.eye(4)
    chain = robots.panda(
        armature=0.1,
        gravity=(0, 0, 0),
        frames={"tool": (6, tool)},
        topology=Topology.serial(7, joint_names=list("abcdefg")),
    )
    np.testing.assert_array_equal(chain.armature, np.full(7, 0.1))
    assert chain.frame_names == ("flange", "tool") and chain.joint_names == tuple("abcdefg")
    assert not np.any(compiled.gravity_force(chain, jnp.ones(7)))
    assert robots.ur5e(topology=Topology.serial(6, link_names=list("abcdef"))).link_names == tuple("abcdef")


def test_joints_and_bases_of_the_robots_have_their_names():
    assert robots.panda().joint_names[0] == "panda_joint1" and robots.panda().topology.base_name == "panda_base"
    assert robots.ur10().joint_names[2] == "elbow_joint"

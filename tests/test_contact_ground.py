"""Contacts with height fields and of hulls, against planes, all triangles, MuJoCo, the definition and differences."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from numpy.testing import assert_allclose

import jaxdyn
from helpers import once
from jaxdyn import contact, geometry
from jaxdyn.contact import definition
from jaxdyn.io import Geometry
from jaxdyn.model import layouts
from test_contact_dynamics import States, compiled, differences
from test_height_fields import from_triangles, triangles

ROUGH = 0.25 * np.random.default_rng(3).uniform(size=(17, 13))
EXTENT = (1.6, 1.2)
ROBOT = jaxdyn.io.loads(
    """<robot name="walker"><link name="trunk"><inertial><origin xyz="0.02 0 0.01"/><mass value="2"/>
    <inertia ixx="0.02" iyy="0.03" izz="0.025" ixy="0.001" ixz="0" iyz="0"/></inertial></link>
    <link name="arm"><inertial><origin xyz="0.1 0 0"/><mass value="0.5"/>
    <inertia ixx="0.002" iyy="0.004" izz="0.003" ixy="0" ixz="0" iyz="0"/></inertial></link>
    <joint name="elbow" type="revolute"><parent link="trunk"/><child link="arm"/><origin xyz="0.15 0 0"/>
    <axis xyz="0 1 0"/><limit lower="-2" upper="2" effort="10" velocity="10"/></joint></robot>""",
    floating_base=True,
)
CORNERS = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) * [0.12, 0.08, 0.05]
FACES = np.array([[0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1], [2, 3, 7], [2, 7, 6]])
FACES = np.concatenate([FACES, [[0, 2, 6], [0, 6, 4], [1, 5, 7], [1, 7, 3]]])
TURNED = np.array([[0.8, 0, 0.6, 0.01], [0, 1, 0, 0.02], [-0.6, 0, 0.8, 0], [0, 0, 0, 1]])
BOX = Geometry("trunk", "box", TURNED, (0.24, 0.16, 0.1))
HULL = Geometry("trunk", "mesh", TURNED, (1.0, 1.0, 1.0), triangles=(CORNERS, FACES))
ARM = [geometry.capsule("arm", [0.05, 0, 0], [0.15, 0.02, 0], 0.02), geometry.sphere("arm", 0.03, [0.2, 0, 0])]
STEEP = 0.3  # slope of the plane


def on(ground, body=BOX, cone="elliptic"):
    shapes = geometry.with_environment(ROBOT, geometry.make_shapes(ROBOT, [body, *ARM], pairs=[]), [ground])
    return contact.make_contacts(ROBOT, shapes, cone=cone, dimension=4, friction=(0.7, 0.01, 0.001), margin=0.002)


def rough(heights=ROUGH, body=BOX):
    return on(geometry.height_field(heights, EXTENT, (0.1, 0.05, -0.2)), body)


def planar():
    """The same slope as a plane and as a height field, in another pose."""
    sine, cosine = np.sin(0.5), np.cos(0.5)
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = [[cosine, -sine, 0], [sine, cosine, 0], [0, 0, 1]], (0.1, -0.1, 0.02)
    x = np.linspace(-1.5, 1.5, 12)
    heights = STEEP * x[:, None] + 0.2 * np.linspace(-2, 2, 15)[None]
    normal = np.array([-STEEP, -0.2, 1]) / np.sqrt(1 + STEEP**2 + 0.04)
    side = np.cross(normal, [1, 0, 0]) / np.linalg.norm(np.cross(normal, [1, 0, 0]))
    tilted = np.eye(4)
    tilted[:3, :3] = np.stack([side, np.cross(normal, side), normal], axis=1)
    field = Geometry("ground", "height_field", pose, (3.0, 4.0, 0.0), heights=heights)
    return on(Geometry("ground", "plane", pose @ tilted, (0.0, 0.0, 0.0))), on(field)


def states(count, seed=0, low=-0.1, high=0.15, tilt=0.5):
    """Positions about the ground and random velocities and torques."""
    rng = np.random.default_rng(seed)
    turns = np.concatenate([np.ones((count, 1)), tilt * rng.normal(size=(count, 3))], axis=1)
    place = rng.uniform(-1, 1, (count, 3)) * [0.5, 0.4, 0] + np.stack(
        [np.zeros(count)] * 2 + [rng.uniform(low, high, count)], 1
    )
    q = np.concatenate(
        [place, turns / np.linalg.norm(turns, axis=1, keepdims=True), rng.uniform(-1, 1, (count, 1))], axis=1
    )
    return jnp.asarray(q), *(jnp.asarray(rng.normal(size=(count, 7))) for _ in range(2))


@once
def accelerations(contacts, q, v, tau):
    solve = lambda c, q, v, tau: contact.contact_dynamics(ROBOT, c, q, v, tau)
    return jax.vmap(solve, (None, 0, 0, 0))(contacts, q, v, tau)


@once
def forces(contacts, q, v, qdd):
    return jax.vmap(lambda q, v, a: contact.contact_forces(ROBOT, contacts, q, v, a))(q, v, qdd)


@pytest.mark.ci
def test_a_slope_is_a_plane():
    plane, field = planar()
    q, v, tau = states(100, low=0.1, high=0.25, tilt=0.1)
    expected, found = (accelerations(contacts, q, v, tau) for contacts in (plane, field))
    at = forces(field, q, v, found.qdd)
    touching = at.gap < 0
    assert touching[:, :8].any(1).sum() > 20 and touching[:, 8:10].any() and touching[:, 10].any()
    assert found.converged.all() and not touching[:, :8].all(axis=1).any()
    assert_allclose(found.qdd, expected.qdd, atol=1e-9 * (1 + np.abs(expected.qdd).max()))


@functools.cache
def on_rough():
    q, v, tau = states(300, seed=1)
    found = accelerations(rough(), q, v, tau)
    return q, v, tau, found, forces(rough(), q, v, found.qdd)


def exact(gap, distance):
    """Gaps are distances up to the margin, and no smaller beyond it."""
    gap, near = np.asarray(gap), distance < 0.002
    assert 20 < near.sum() < len(near) - 20
    assert_allclose(gap[near], distance[near], atol=1e-13)
    assert (gap - distance)[~near].min() > -1e-13


def test_gaps_are_the_distances_from_all_triangles():
    q, v, a = states(300, seed=1)
    at = forces(rough(), q, v, a)
    poses = np.asarray(once(jax.vmap(lambda q: jaxdyn.forward_kinematics(ROBOT, q)))(q))
    surface = triangles(ROUGH, EXTENT, (0.1, 0.05, -0.2), beyond=0)
    tip = poses[:, 6, :3] @ [0.2, 0, 0, 1]
    within = (np.abs(tip[:, 0] - 0.1) < 0.8) & (np.abs(tip[:, 1] - 0.05) < 0.6)
    assert within.sum() > 150
    exact(at.gap[within, 10], from_triangles(tip[within], surface) - 0.03)
    distance = once(jax.vmap(lambda q: geometry.distances(ROBOT, rough().shapes, q)))(q)
    whole = np.abs(np.asarray(q)[:, :2] - [0.1, 0.05]).max(axis=1) < 0.4  # all corners of the box are above the field
    exact(at.gap[whole, :8].min(1), distance[whole, 0])
    assert ((np.abs(at.force).max(axis=2) > 0).any(axis=1)).sum() > 100
    beyond = forces(rough(), q.at[:, 0].add(2.0), v, a)
    assert not beyond.force.any() and np.isfinite(beyond.gap).all()


@pytest.mark.ci
def test_heights_can_differ_within_a_batch():
    q, v, a = states(8, seed=1)
    heights = jnp.stack([jnp.asarray(ROUGH) + 0.02 * k for k in range(3)])

    def force(heights, q, v, a):
        contacts = eqx.tree_at(lambda c: c.shapes.heights[0], rough(), heights)
        return contact.contact_forces(ROBOT, contacts, q, v, a).force

    states_on = jax.vmap(force, (None, 0, 0, 0))
    single = once(states_on)
    expected = np.stack([single(h, q, v, a) for h in heights])
    assert np.abs(expected[2] - expected[0]).max() > 1
    several = once(jax.vmap(states_on, (0, None, None, None)))(heights, q, v, a)
    assert_allclose(several, expected, atol=1e-9 * np.abs(expected).max())
    every = jnp.broadcast_to(heights[:, None], (3, 8, *ROUGH.shape))
    both = once(jax.vmap(jax.vmap(force), (0, None, None, None)))(every, q, v, a)
    assert_allclose(both, expected, atol=1e-9 * np.abs(expected).max())


SLOPE = """<mujoco><option timestep="0.002" cone="elliptic"/><asset>
<hfield name="ground" nrow="9" ncol="11" size="1.5 1 {top} 0.1" elevation="HEIGHTS"/></asset>
<worldbody><geom type="hfield" hfield="ground" euler="5 0 30" friction=".6 .01 .001"/>
<body name="ball"><freejoint/><geom type="sphere" size="0.05" condim="4" mass="1"/></body></worldbody></mujoco>"""


def test_a_ball_on_a_slope_has_mujoco_s_accelerations():
    heights = (np.linspace(0, 1, 11)[None] + np.linspace(0, 1, 9)[:, None]) / 2
    model = compiled(SLOPE.format(top=0.5).replace("HEIGHTS", " ".join(map(str, heights[::-1].ravel()))))
    found = States(model, 1)
    rng = np.random.default_rng(0)
    qvel, force = rng.normal(size=(2, 200, 6))
    rotation = np.zeros(9)
    mujoco.mju_quat2Mat(rotation, model.geom_quat[0])
    rotation = rotation.reshape(3, 3)
    on_field = rng.uniform(-1, 1, (200, 2)) * [1.3, 0.8]
    slopes = np.array([0.25 / 3, 0.25 / 2])
    normal = np.append(-slopes, 1.0) / np.sqrt(1 + slopes @ slopes)
    depth = rng.uniform(0, 5e-4, (200, 1))  # deeper balls touch several cells
    centres = np.column_stack([on_field, 0.25 + on_field @ slopes]) + normal * (0.05 - depth)
    qpos = np.concatenate([centres @ rotation.T, np.tile([1.0, 0, 0, 0], (200, 1))], axis=1)
    data, qacc, single = mujoco.MjData(model), np.zeros((200, 6)), np.zeros(200, bool)
    for k in range(200):
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:], data.qfrc_applied[:] = qpos[k], qvel[k], force[k]
        mujoco.mj_forward(model, data)
        qacc[k], single[k] = data.qacc, data.ncon == 1

    def torques(qpos, qvel, qacc):
        q, v = layouts.from_mujoco_state(found.chain, qpos, qvel)
        a = layouts.from_mujoco_acceleration(found.chain, qpos, qvel, qacc)
        return contact.contact_inverse_dynamics(found.chain, found.contacts, q, v, a)

    expected = jax.vmap(lambda q, f: layouts.from_mujoco_force(found.chain, q, f))(qpos, force)
    error = np.abs(np.asarray(once(jax.vmap(torques))(qpos, qvel, qacc) - expected)).max(axis=1)
    assert single.sum() > 100 and np.abs(qacc).max() > 10
    assert (error / (1 + np.abs(qacc).max(axis=1)))[single].max() < 1e-9


MESH = """<mujoco><option cone="elliptic"/><asset><mesh name="mesh" vertex="VERTICES"/></asset><worldbody>
<geom type="plane" size="1 1 1" friction=".6 .01 .001"/>
<body pos="0 0 .1"><freejoint/><geom type="mesh" mesh="mesh" condim="3" mass="1"/></body></worldbody></mujoco>"""


@pytest.mark.ci
def test_a_mesh_on_a_plane_has_mujoco_s_accelerations():
    found = States(compiled(MESH.replace("VERTICES", " ".join(map(str, CORNERS.ravel())))), 300)
    solve = lambda q, v, tau: contact.contact_dynamics(found.chain, found.contacts, q, v, tau).qdd
    to_mujoco = lambda q, v, tau: layouts.to_mujoco_acceleration(found.chain, q, v, solve(q, v, tau))
    qacc = once(jax.vmap(to_mujoco))(found.q, found.qd, found.tau)
    at = once(jax.vmap(lambda q, v: contact.contact_forces(found.chain, found.contacts, q, v, v)))(found.q, found.qd)
    below, contacts = (at.gap < 0).sum(axis=1), np.array([len(pairs) for pairs in found.touching])
    same = np.asarray(below == contacts)  # MuJoCo makes at most 4 contacts
    assert same.mean() > 0.8 and (contacts[same] == 4).sum() > 30
    error = np.abs(qacc - found.qacc).max(axis=1) / (1 + np.abs(found.qacc).max(axis=1))
    assert error[same].max() < 1e-11


@pytest.mark.nightly
def test_derivatives_agree_in_four_ways():
    q, v, tau, found, at = on_rough()
    chosen = np.flatnonzero((np.abs(at.force).max(axis=(1, 2)) > 0) & ~np.any(np.abs(at.gap) < 1e-4, axis=1))[:4]
    contacts = rough()

    def solve(dq, v, tau, heights, q):
        moved = eqx.tree_at(lambda c: c.shapes.heights[0], contacts, heights)
        return contact.contact_dynamics(ROBOT, moved, jaxdyn.model.integrate(ROBOT, q, dq), v, tau).qdd

    heights, zero = jnp.asarray(ROUGH), jnp.zeros(7)
    arguments = lambda k: (zero, v[k], tau[k], heights, q[k])
    forward = once(jax.jacfwd(solve, (0, 1, 2)))
    weights = jnp.asarray(np.random.default_rng(2).normal(size=7))
    reverse = once(jax.grad(lambda *x: weights @ solve(*x), (0, 1, 2, 3)))
    along = jnp.asarray(np.random.default_rng(3).normal(size=ROUGH.shape))
    by_heights = once(lambda *x: jax.jvp(lambda h: solve(*x[:3], h, x[4]), (x[3],), (along,))[1])
    closed = once(lambda q, v, a: contact.contact_dynamics_derivatives(ROBOT, contacts, q, v, a))
    value = once(solve)
    for k in chosen:
        gradient, change = reverse(*arguments(k)), by_heights(*arguments(k))
        for mine, other, pulled in zip(
            closed(q[k], v[k], found.qdd[k]), forward(*arguments(k)), gradient, strict=False
        ):
            size = 1 + np.abs(other).max()
            assert_allclose(mine, other, atol=1e-9 * size)
            assert_allclose(weights @ other, pulled, atol=1e-9 * size)
        for place, step in ((0, 1e-6), (1, 1e-6), (2, 1e-4)):
            given = arguments(k)
            at_one = lambda x, given=given, place=place: value(*given[:place], x, *given[place + 1 :])
            expected = differences(at_one, given[place], step)
            assert_allclose(weights @ expected, gradient[place], atol=2e-5 * (1 + np.abs(expected).max()))
        assert_allclose(change @ weights, (gradient[3] * along).sum(), atol=1e-9 * (1 + np.abs(change).max()))
        moved = [value(*arguments(k)[:3], heights + h * along, q[k]) for h in (1e-7, -1e-7)]
        assert_allclose(change, (moved[0] - moved[1]) / 2e-7, atol=2e-5 * (1 + np.abs(change).max()))
        assert np.abs(change).max() > 1


@pytest.mark.ci
def test_derivatives_of_torques_by_heights_are_differences():
    q, v, a = states(40, seed=1)
    weights, along = (jnp.asarray(np.random.default_rng(k).normal(size=n)) for k, n in ((2, 7), (3, ROUGH.shape)))

    def torque(heights, q, v, a):
        contacts = eqx.tree_at(lambda c: c.shapes.heights[0], rough(), heights)
        return weights @ contact.contact_inverse_dynamics(ROBOT, contacts, q, v, a)

    heights, over = jnp.asarray(ROUGH), (None, 0, 0, 0)
    gradient = once(jax.vmap(jax.grad(torque), over))(heights, q, v, a)
    slope = once(jax.vmap(lambda h, *x: jax.jvp(lambda h: torque(h, *x), (h,), (along,))[1], over))(heights, q, v, a)
    assert_allclose(jnp.sum(gradient * along[None], axis=(1, 2)), slope, atol=1e-9 * np.abs(slope).max())
    value = once(jax.vmap(torque, over))
    change = (value(heights + 1e-7 * along, q, v, a) - value(heights - 1e-7 * along, q, v, a)) / 2e-7
    smooth = np.abs(change - slope) < 1e-5 * (1 + np.abs(slope).max())
    assert smooth.mean() > 0.9 and (np.abs(slope) > 1).sum() > 10  # others are at kinks


@pytest.mark.ci
def test_the_fast_route_equals_the_definition():
    q, v, tau, found, at = on_rough()
    few = np.flatnonzero(np.abs(at.force).max(axis=(1, 2)) > 0)[:12]
    defined = once(jax.vmap(lambda q, v, t: definition.contact_dynamics(ROBOT, rough(), q, v, t)))
    expected = defined(q[few], v[few], tau[few])
    assert_allclose(found.qdd[few], expected, atol=1e-8 * (1 + np.abs(expected).max()))


def special(count):
    """Random states, of which half have the ball of the arm exactly above vertices, edges or centres, or on the surface."""
    rng = np.random.default_rng(0)
    q, v, tau = (np.array(x) for x in states(count, seed=4, tilt=2.0))
    half = count // 2
    q[:half, 3:7] = rng.choice([-1.0, 0.0, 0.0, 1.0], (half, 4))
    q[:half][np.abs(q[:half, 3:7]).max(axis=1) == 0, 3] = 1
    q[:, 3:7] /= np.linalg.norm(q[:, 3:7], axis=1, keepdims=True)
    q[:half, 7] = 0
    node = np.stack([rng.integers(0, n, half) for n in ROUGH.shape], 1)
    point = np.stack([(k * 2 / (n - 1) - 1) * e / 2 for k, n, e in zip(node.T, ROUGH.shape, EXTENT, strict=True)], 1)
    point = np.column_stack([point, ROUGH[tuple(node.T)] + rng.choice([0, 0, 0.03, -0.03, 0.02], half)])
    point[:, :2] += rng.choice([0, 0, 0.05], (half, 2))
    rotation = np.asarray(jax.vmap(jaxdyn.spatial.so3.quaternion_to_rotation)(jnp.asarray(q[:half, 3:7])))
    q[:half, :3] = point + np.array([0.1, 0.05, -0.2]) - rotation @ [0.35, 0, 0]
    v *= rng.choice([0.0, 1.0, 1.0], v.shape)
    return jnp.asarray(q), jnp.asarray(v), jnp.asarray(tau)


@pytest.mark.nightly
def test_none_of_a_hundred_thousand_states_has_nan():
    def both(q, qd, tau):
        qdd = contact.contact_dynamics(ROBOT, rough(), q, qd, tau).qdd
        return qdd, contact.contact_dynamics_derivatives(ROBOT, rough(), q, qd, qdd)

    def heights(height, q, qd, tau):
        moved = eqx.tree_at(lambda c: c.shapes.heights[0], rough(), height)
        return contact.contact_dynamics(ROBOT, moved, q, qd, tau).qdd.sum()

    given = special(100_000)
    for part in jax.tree.leaves(jax.jit(jax.vmap(both))(*given)):
        assert np.isfinite(part).all()
    few = tuple(x[:2000] for x in given)
    slope = jax.jit(jax.vmap(jax.grad(heights, (0, 1, 2, 3)), (None, 0, 0, 0)))(jnp.asarray(ROUGH), *few)
    assert all(np.isfinite(part).all() for part in slope)


@pytest.mark.ci
def test_a_box_is_the_hull_of_its_corners():
    plane = geometry.floor(0.0)
    q, v, tau = states(60, seed=5, low=0.03, high=0.1, tilt=0.1)
    expected, found = (accelerations(on(plane, body), q, v, tau).qdd for body in (BOX, HULL))
    at = forces(on(plane, HULL), q, v, found)
    assert (at.force[:, :8, 2] > 0).any(axis=1).sum() > 20
    assert_allclose(found, expected, atol=1e-9 * (1 + np.abs(expected).max()))
    q, v, tau = states(100, seed=1)
    whole, vertices = (forces(rough(body=body), q, v, tau) for body in (BOX, HULL))
    assert_allclose(np.sort(vertices.gap[:, :8]), np.sort(whole.gap[:, :8]), atol=1e-13)
    assert_allclose(vertices.force.sum(1), whole.force.sum(1), atol=1e-8 * (1 + np.abs(whole.force).max()))


@pytest.mark.ci
def test_single_precision():
    q, v, tau, found, _ = on_rough()
    robot, contacts = (jax.tree.map(lambda x: x.astype(np.float32), y) for y in (ROBOT, rough()))
    solve = once(jax.vmap(lambda q, v, t: contact.contact_dynamics(robot, contacts, q, v, t).qdd))
    qdd = solve(*(x.astype(jnp.float32) for x in (q, v, tau)))
    assert qdd.dtype == jnp.float32
    expected = np.asarray(found.qdd)
    error = np.abs(np.asarray(qdd) - expected).max(axis=1) / (1 + np.abs(expected).max(axis=1))
    assert np.median(error) < 1e-5 and np.quantile(error, 0.9) < 1e-3


@pytest.mark.ci
def test_a_ball_rolls_down_into_the_valley_and_a_robot_stays_above_the_ground():
    x = np.linspace(-1, 1, 33)
    valley = 0.5 * (x[:, None] ** 2 + x[None] ** 2)
    contacts = on(geometry.height_field(valley, (2.0, 2.0)))
    start = jnp.asarray(
        [[0.5, 0.2, 0.45, 1, 0, 0, 0, 0], [-0.3, 0.4, 0.5, 0.6, 0.8, 0, 0, 1], [0, 0, 0.3, 0, 1, 0, 0, 0]]
    )

    def fall(q):
        state = contact.ContactState(q, jnp.zeros(7), jnp.zeros(7))
        return contact.contact_rollout(ROBOT, contacts, state, jnp.zeros((1500, 7)), 0.002, every=50)

    motion = once(jax.vmap(fall))(start)
    surface = 0.5 * (motion.q[..., 0] ** 2 + motion.q[..., 1] ** 2)
    height = motion.q[..., 2] - surface
    assert height.min() > 0.02 and np.abs(motion.q[..., :2]).max() < 0.8
    assert np.abs(motion.q[:, -1, :2]).max() < 0.4 and np.abs(motion.qd[:, -1]).max() < 0.3

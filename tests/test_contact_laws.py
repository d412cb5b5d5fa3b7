"""Contact dynamics obey the closed forms of mechanics: bounces, friction, rolling, spinning, rest, momentum, and frames.

Two programs take most of the time: rollouts of balls, with all their cases as one batch, and a step of an arm on a free base.
"""

import dataclasses
import functools
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import brentq

import jaxdyn
from helpers import random_rotation
from jaxdyn import contact, geometry
from jaxdyn.spatial.so3 import quaternion_to_rotation, rotation_to_quaternion

G, MASS, RADIUS = 9.81, 2.0, 0.1
INERTIA = 0.4 * MASS * RADIUS**2
STEPS = 1200
REST = np.array([0.0, 0.0, RADIUS, 1.0, 0.0, 0.0, 0.0])


BALL = f"""<robot name="ball"><link name="ball"><inertial><mass value="{MASS}"/><inertia ixx="{INERTIA}" iyy="{INERTIA}"
izz="{INERTIA}" ixy="0" ixz="0" iyz="0"/></inertial></link></robot>"""


class Case(NamedTuple):
    """A ball with its contact, start and time step."""

    chain: jaxdyn.Chain
    contacts: contact.Contacts
    q: jax.Array
    qd: jax.Array
    dt: jax.Array


FRICTION, TORSION = 0.5, 0.01
SLOPES = (0.3, 0.45, 0.475, 0.7)  # the friction angle is 0.464
BOUNCE = {"stiffness": 1e5, "damping": 120.0, "impedance": 0.9, "speed": 0.35, "dt": 8e-5}
HEAVIER = 1.7


@functools.cache
def cases():
    """All cases of balls, which start on the floor."""
    chain = jaxdyn.io.loads(BALL, floating_base=True)
    shapes = geometry.make_shapes(chain, [geometry.sphere("ball", RADIUS)], pairs=[])
    shapes = geometry.with_environment(chain, shapes, [geometry.floor()])
    scaled = lambda factor: eqx.tree_at(lambda c: c.inertia, chain, chain.inertia * factor)
    friction = (FRICTION, TORSION, 1e-4)
    material = {"friction": friction, "dimension": 4, "reference": (0.01, 1.0), "cone": "elliptic"}
    make = lambda factor: contact.make_contacts(scaled(factor), shapes, **material)
    both = jax.jit(jax.vmap(make))(jnp.array([1.0, HEAVIER]))  # each robot of a batch has the weights of its own masses
    soft, of_heavy = (jax.tree.map(lambda x, k=k: x[k], both) for k in range(2))
    heavy = scaled(HEAVIER)
    flat = (BOUNCE["impedance"], BOUNCE["impedance"], 0.001, 0.5, 2.0)
    springy = contact.Softness([(-BOUNCE["stiffness"], -BOUNCE["damping"])], [flat], [0.0])
    elastic = eqx.tree_at(lambda c: c.softness, soft, springy)
    start = lambda k, speed: np.eye(6)[k] * speed
    falls, dt = start(5, -BOUNCE["speed"]), BOUNCE["dt"]
    # a block is a ball that does not turn
    block = eqx.tree_at(lambda c: c.inertia, chain, chain.inertia.at[5, jnp.array([4, 6, 9])].set(1e9))
    tilted = lambda slope: eqx.tree_at(lambda c: c.gravity, block, G * np.array([np.sin(slope), 0, -np.cos(slope)]))
    found = {
        "bounces": (chain, elastic, REST, falls, dt),
        "bounces in half steps": (chain, elastic, REST, falls, dt / 2),
        "rolls": (chain, soft, REST, start(3, 1.0), 5e-4),
        "spins": (chain, soft, REST, start(2, 5.0), 4e-4),
        "rests": (chain, soft, REST, start(0, 0.0), 5e-4),
        "heavy": (heavy, soft, REST, start(0, 0.0), 5e-4),
        "heavy with its own weights": (heavy, of_heavy, REST, start(0, 0.0), 5e-4),
        **{f"slope {slope}": (tilted(slope), soft, REST, start(0, 0.0), 5e-4) for slope in SLOPES},
    }
    return {name: Case(*case[:2], *map(jnp.asarray, case[2:])) for name, case in found.items()}


@functools.cache
def balls():
    """The motions of all balls: name -> state over time."""
    named = cases()

    def move(case):
        start = contact.ContactState(case.q, case.qd, jnp.zeros(6))
        return contact.contact_rollout(case.chain, case.contacts, start, jnp.zeros((STEPS, 6)), case.dt)

    motions = jax.jit(jax.vmap(move))(jax.tree.map(lambda *x: jnp.stack(x), *named.values()))
    motions = jax.tree.map(np.asarray, motions)
    return {name: jax.tree.map(lambda x, k=k: x[k], motions) for k, name in enumerate(named)}


def in_world(motion):
    """Angular and linear velocities in the world over time, each (times, 3)."""
    turned = jax.vmap(lambda q, v: (quaternion_to_rotation(q[3:]) @ v.reshape(2, 3).T).T)(motion.q, motion.qd)
    return np.asarray(turned[:, 0]), np.asarray(turned[:, 1])


def bounce(speed):
    """Duration of a touch of a ball that arrives with this speed, and its speed when the touch ends.

    Of an impedance d, a reference acceleration r = -(b v + k x) / d and the acceleration a0 = -g without contact, MuJoCo's
    soft constraint makes a = (1 - d) a0 + d r, which is a damped oscillator. The force vanishes where a = a0, before the
    gap x closes; the ball then flies.
    """
    k, b, d = BOUNCE["stiffness"], BOUNCE["damping"], BOUNCE["impedance"]
    middle, decay = -(1 - d) * G / k, b / 2
    rate = np.sqrt(k - decay**2)
    # x = middle + exp(-decay t) (A cos + B sin), with x(0) = 0 and v(0) = -speed
    a = -middle
    c = (-speed + decay * a) / rate
    x = lambda t: middle + np.exp(-decay * t) * (a * np.cos(rate * t) + c * np.sin(rate * t))
    v = lambda t: (
        np.exp(-decay * t) * ((rate * c - decay * a) * np.cos(rate * t) - (rate * a + decay * c) * np.sin(rate * t))
    )
    pull = lambda t: b * v(t) + k * x(t) - d * G  # of r < a0
    leaves = brentq(pull, 0.25 * np.pi / rate, np.pi / rate)
    left = np.sqrt(v(leaves) ** 2 + 2 * G * x(leaves))  # v^2 at x = 0 in flight
    return leaves + (v(leaves) - left) / G, left


def test_a_ball_bounces_as_a_damped_oscillator():
    errors = {}
    for name, dt in (("bounces", BOUNCE["dt"]), ("bounces in half steps", BOUNCE["dt"] / 2)):
        gap, speed, errors[name] = balls()[name].q[:, 2] - RADIUS, BOUNCE["speed"], []
        # a step whose end is in the floor begins a touch, one whose end is above ends it
        turns = np.flatnonzero(np.diff(np.concatenate([[0], gap[1:] < 0])))
        for down, up, after in [*zip(turns[::2], turns[1::2], [*turns[2::2], STEPS], strict=False)][:2]:
            duration, speed = bounce(speed)
            assert_allclose((up - down) * dt, duration, atol=3 * dt)
            errors[name].append(gap[up:after].max() / (speed**2 / (2 * G)) - 1)
    assert len(errors["bounces"]) == 2
    assert np.abs(errors["bounces"]).max() < 0.015
    assert abs(2 * errors["bounces in half steps"][0] - errors["bounces"][0]) < 3e-4  # errors are of first order in dt


def test_a_sliding_ball_ends_rolling_with_five_sevenths_of_its_speed():
    turning, speed = in_world(balls()["rolls"])
    assert_allclose(speed[-1, 0], 5 / 7, atol=5e-4)
    assert_allclose(turning[-1, 1], speed[-1, 0] / RADIUS, rtol=1e-2)


def test_torsional_friction_stops_a_spinning_ball():
    turning, speed = in_world(balls()["spins"])
    t = float(cases()["spins"].dt) * np.arange(STEPS + 1)
    # the normal impulse is that of the weight and of the change of vertical momentum
    expected = 5.0 - TORSION * MASS * (G * t + speed[:, 2]) / INERTIA
    stops = np.flatnonzero(expected < 0.3)[0]
    assert 0.15 < t[stops] < 0.25
    assert_allclose(turning[:stops, 2], expected[:stops], atol=1e-9)
    assert np.abs(turning[-1]).max() < 1e-9 and np.abs(speed[-1]).max() < 1e-9


def softness(case, depth):
    """The impedance d, and stiffness k and damping b of the reference acceleration, at a depth."""
    low, high, width, middle, _ = np.asarray(case.contacts.softness.impedance[0])
    x = depth / width
    d = low + (high - low) * (x**2 / middle if x < middle else 1 - (1 - x) ** 2 / (1 - middle))
    time, ratio = np.asarray(case.contacts.softness.reference[0])
    return d, 1 / (high * time * ratio) ** 2, 2 / (high * time)


@pytest.mark.parametrize("name", ["rests", "heavy", "heavy with its own weights"])
def test_a_body_at_rest_is_held_by_its_weight_at_the_depth_of_the_formula(name):
    case, depth = cases()[name], RADIUS - balls()[name].q[-1, 2]
    d, k, _ = softness(case, depth)
    # the weights of contacts that were made with another mass keep the force at a depth, those of the mass keep the depth
    masses = MASS * np.array([HEAVIER if name != "rests" else 1, HEAVIER if "own" in name else 1])
    assert_allclose(masses[1] * d / (1 - d) * d * k * depth, masses[0] * G, rtol=1e-9)


def test_a_pyramid_at_rest_holds_by_its_edges():
    case, depth = cases()["rests"], 5e-4
    rows = dataclasses.replace(case.contacts.rows, cone="pyramidal", dimensions=(3,))
    made = dataclasses.replace(case.contacts, rows=rows)
    d, k = 0.9 + 0.05 * 0.5, 1 / (0.95 * 0.01) ** 2
    # 4 edges, each with the regularisation 2 mu^2 (1 - d)/d (1 + mu^2) / m
    each = d * k * depth / (2 * 0.25 * (1 - d) / d * 1.25 / MASS)
    forces = contact.contact_forces(case.chain, made, jnp.asarray(REST).at[2].add(-depth), *jnp.zeros((2, 6)))
    assert_allclose(forces.force, [[0, 0, 4 * each]], rtol=1e-9, atol=1e-9)


def test_a_block_on_an_incline_sticks_below_the_friction_angle_and_slides_above():
    for slope in SLOPES:
        case, (_, speed) = cases()[f"slope {slope}"], in_world(balls()[f"slope {slope}"])
        t = float(case.dt) * np.arange(STEPS + 1)
        slides = np.tan(slope) > FRICTION
        if slides:  # by the normal impulse, as the spinning ball
            expected = G * np.sin(slope) * t - FRICTION * (G * np.cos(slope) * t + speed[:, 2])
            assert_allclose(speed[300:, 0] - speed[300, 0], expected[300:] - expected[300], atol=1e-9)
            assert speed[-1, 0] > 0.05
        else:  # creeps with the force d / (1 - d) b v m of the softness
            d, _, b = softness(case, RADIUS - balls()[f"slope {slope}"].q[-1, 2])
            assert_allclose(speed[-1], [G * np.sin(slope) * (1 - d) / (d * b), 0, 0], rtol=1e-6, atol=1e-9)
            assert speed[-1, 0] < 5e-3


ARM = """<robot name="arm"><link name="base"><inertial><origin xyz="0.02 0 0.01"/><mass value="2"/>
<inertia ixx="0.02" iyy="0.04" izz="0.05" ixy="0.001" ixz="0" iyz="0"/></inertial></link>
<link name="upper"><inertial><origin xyz="0.05 0 0"/><mass value="0.7"/>
<inertia ixx="0.002" iyy="0.004" izz="0.004" ixy="0" ixz="0" iyz="0"/></inertial></link>
<link name="hand"><inertial><mass value="0.4"/>
<inertia ixx="0.001" iyy="0.001" izz="0.001" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="elbow" type="revolute"><parent link="base"/><child link="upper"/><origin xyz="0.2 0 0"/><axis xyz="0 1 0"/>
<limit lower="-3" upper="3" velocity="9" effort="9"/></joint>
<joint name="slide" type="prismatic"><parent link="upper"/><child link="hand"/><origin xyz="0.2 0 0"/><axis xyz="1 0 0"/>
<limit lower="-0.05" upper="0.05" velocity="9" effort="9"/></joint></robot>"""


@functools.cache
def arm():
    """An arm on a free base, whose links touch the floor, and whose hand touches its base when folded."""
    chain = jaxdyn.io.loads(ARM, floating_base=True)
    lies = np.array([[0, 0, 1, 0.1], [0, 1, 0, 0], [-1, 0, 0, 0], [0, 0, 0, 1.0]])
    parts = [
        geometry.capsule("base", (-0.15, 0, 0), (0.15, 0, 0), 0.05),
        jaxdyn.io.Geometry("upper", "cylinder", lies, (0.03, 0.03, 0.1)),
        geometry.sphere("hand", 0.04),
    ]
    shapes = geometry.with_environment(chain, geometry.make_shapes(chain, parts, pairs=[(0, 2)]), [geometry.floor()])
    return chain, contact.make_contacts(chain, shapes, friction=(0.6, 0.02, 0.003), dimension=6, cone="elliptic")


class Scene(NamedTuple):
    """Where an arm is and moves, and the gravity and the floor."""

    gravity: jax.Array
    floor: jax.Array
    q: jax.Array
    qd: jax.Array


class Found(NamedTuple):
    """The state of the arm after a step, and before it the forces, and joint torques without and with these."""

    after: contact.ContactState
    forces: contact.ContactForces
    torques: jax.Array
    balance: jax.Array


@functools.cache
def program():
    chain, contacts = arm()

    def move(scene):
        own = eqx.tree_at(lambda c: c.gravity, chain, scene.gravity)
        ground = contacts.shapes.names.index("floor")
        touching = eqx.tree_at(lambda c: c.shapes.pose, contacts, contacts.shapes.pose.at[ground].set(scene.floor))
        start, zero = contact.ContactState(scene.q, scene.qd, jnp.zeros(8)), jnp.zeros(8)
        after = contact.contact_step(own, touching, start, zero, 1e-3)
        state = scene.q, scene.qd, after.qdd
        return Found(
            after,
            contact.contact_forces(own, touching, *state),
            jaxdyn.inverse_dynamics(own, *state),
            jaxdyn.inverse_dynamics(own, *state, contact.contact_wrenches(own, touching, *state)),
        )

    return jax.jit(jax.vmap(move))


def scenes():
    """An arm on the floor, one that touches itself in the air, and one that touches nothing."""
    rng = np.random.default_rng(0)
    turned = [np.array([1.0, 0.1, 0.15, -0.3]), np.array([1.0, 0.5, -0.3, 0.2]), np.array([1.0, 0, 0, 0])]
    joints, heights = [(0.5, 0.06), (2.7, 0.0), (1.0, 0.01)], [0.05, 0.5, 0.5]
    q = [[0.1, -0.2, z, *x / np.linalg.norm(x), *j] for z, x, j in zip(heights, turned, joints, strict=True)]
    every = lambda x: np.tile(x, (3,) + (1,) * np.ndim(x))
    return Scene(every([0, 0, -G]), every(np.eye(4)), np.array(q), rng.normal(size=(3, 8)))


def transformed(scene, rotation, shift):
    """The scene after a rigid motion."""
    pose = np.eye(4)
    pose[:3, :3], pose[:3, 3] = rotation, shift
    q = np.array(scene.q)
    q[:, :3] = q[:, :3] @ rotation.T + shift
    q[:, 3:7] = jax.vmap(lambda x: rotation_to_quaternion(rotation @ quaternion_to_rotation(x)))(jnp.asarray(q[:, 3:7]))
    return Scene(scene.gravity @ rotation.T, pose @ scene.floor, q, scene.qd)


@functools.cache
def both():
    """What happens in all scenes, and in these after a rigid motion."""
    rng = np.random.default_rng(1)
    rotation, shift = random_rotation(rng), rng.normal(size=3)
    first = scenes()
    second = transformed(first, rotation, shift)
    found = program()(jax.tree.map(lambda *x: jnp.concatenate(x), first, second))
    halves = [jax.tree.map(lambda x, s=s: np.asarray(x[s]), found) for s in (slice(3), slice(3, 6))]
    return first, rotation, shift, *halves


@pytest.mark.ci
def test_motion_and_forces_turn_with_the_scene():
    _, rotation, shift, one, other = both()
    assert_allclose(other.after.qdd, one.after.qdd, atol=1e-9 * np.abs(one.after.qdd).max())
    assert_allclose(other.after.qd, one.after.qd, atol=1e-9)
    assert_allclose(other.after.q[..., :3], one.after.q[..., :3] @ rotation.T + shift, atol=1e-9)
    assert_allclose(other.after.q[..., 7:], one.after.q[..., 7:], atol=1e-9)
    turned = [jax.vmap(quaternion_to_rotation)(jnp.asarray(x.after.q[..., 3:7])) for x in (one, other)]
    assert_allclose(turned[1], rotation @ turned[0], atol=1e-9)
    scale = np.abs(one.forces.force).max()
    assert_allclose(other.forces.force, one.forces.force @ rotation.T, atol=1e-9 * scale)
    assert_allclose(other.forces.moment, one.forces.moment @ rotation.T, atol=1e-9 * scale)
    assert_allclose(other.forces.gap, one.forces.gap, atol=1e-12)


@pytest.mark.ci
def test_forces_change_the_momentum_of_a_robot_and_those_between_its_links_do_not():
    scene, _, _, found, _ = both()
    names = arm()[1].place_names
    outer = np.array([first == "floor" for first, _ in names])
    force, moment = found.forces.force, found.forces.moment
    acts = np.abs(force).max(axis=2) > 1
    assert acts[0, outer].sum() > 1 and acts[1, ~outer].sum() == 1 and not acts[1, outer].any()
    about = np.asarray(scene.q)[:, None, :3]
    turned = jax.vmap(quaternion_to_rotation)(jnp.asarray(scene.q[:, 3:7]))
    on_robot = force[:, outer].sum(1), (moment + np.cross(found.forces.point - about, force))[:, outer].sum(1)
    in_base = [np.einsum("kji,kj->ki", turned, x) for x in on_robot]
    assert_allclose(found.torques[:, :3], in_base[1], atol=1e-9 * np.abs(force).max())
    assert_allclose(found.torques[:, 3:6], in_base[0], atol=1e-9 * np.abs(force).max())
    assert np.abs(found.torques[1, 6:]).max() > 0.1  # but they move the joints


@pytest.mark.ci
def test_links_move_by_the_wrenches_of_the_contacts():
    *_, found, _ = both()
    assert_allclose(found.balance, 0, atol=1e-10 * np.abs(found.forces.force).max())


@pytest.mark.ci
def test_what_does_not_touch_moves_freely():
    *_, found, _ = both()
    assert (found.forces.gap[2] > 0).any()
    assert not found.forces.force[2].any() and not found.forces.moment[2].any()
    assert_allclose(found.torques[2], 0, atol=1e-12)

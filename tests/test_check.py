"""Checks of a motion before a robot moves: limits, consistency of samples, and what comes near; and `jaxdyn check`."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import jaxdyn
from helpers import random_chain
from jaxdyn import geometry
from jaxdyn.cli import main
from jaxdyn.io import Geometry, Motion
from jaxdyn.trajectory import check_motion


def link(name: str) -> str:
    """A link with a capsule of 0.5 m along z, 0.4 m of which are between its joints."""
    ends = "".join(
        f'<collision><origin xyz="0 0 {z}"/><geometry><sphere radius="0.05"/></geometry></collision>' for z in (0, 0.4)
    )
    return f"""<link name="{name}"><inertial><origin xyz="0 0 0.2"/><mass value="2"/>
    <inertia ixx="0.03" ixy="0" ixz="0" iyy="0.03" iyz="0" izz="0.01"/></inertial>{ends}
    <collision><origin xyz="0 0 0.2"/><geometry><cylinder radius="0.05" length="0.4"/></geometry></collision></link>"""


def joint(name: str, parent: str, child: str, axis: str, z: float) -> str:
    return f"""<joint name="{name}" type="revolute"><parent link="{parent}"/><child link="{child}"/><origin xyz="0 0 {z}"/>
    <axis xyz="{axis}"/><limit lower="-2" upper="2.8" velocity="3" effort="40"/>
    <dynamics damping="0.5" friction="0.4"/></joint>"""


LINKS = "".join(map(link, ("column", "upper", "forearm")))
JOINTS = joint("turn", "base", "column", "0 0 1", 0.1) + joint("lift", "column", "upper", "0 1 0", 0.4)
ARM = f'<robot name="arm"><link name="base"/>{LINKS}{JOINTS}{joint("bend", "upper", "forearm", "0 1 0", 0.4)}</robot>'
CELL = """<robot name="cell"><link name="cell"/><link name="post"><collision><origin xyz="0.27 0.42 0.6"/>
<geometry><sphere radius="0.1"/></geometry></collision></link>
<joint name="there" type="fixed"><parent link="cell"/><child link="post"/></joint></robot>"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("check")
    (folder / "arm.urdf").write_text(ARM)
    (folder / "cell.urdf").write_text(CELL)
    return folder


@pytest.fixture(scope="module")
def arm(files):
    chain = jaxdyn.load(files / "arm.urdf")
    shapes = geometry.read(files / "arm.urdf", chain, samples=0)
    return chain, geometry.with_environment(chain, shapes, [geometry.floor()])


def course(duration=2.0, rate=100.0):
    """Times, and a course from 0 to 1 that starts and ends at rest, with its derivatives (quintic)."""
    t = np.arange(round(duration * rate) + 1) / rate
    s, d = t / duration, duration
    rows = 10 * s**3 - 15 * s**4 + 6 * s**5, 30 * (s - s**2) ** 2 / d, 60 * (s - 3 * s**2 + 2 * s**3) / d**2
    return t, *(x[:, None] for x in rows)


def motion(goal=(1.0, 0.8, 0.9), start=(0.0, 0.2, 0.0), **options):
    """A motion from start to goal with its derivatives."""
    t, s, sd, sdd = course(**options)
    way = np.subtract(goal, start)
    return Motion(t, start + s * way, qd=sd * way, qdd=sdd * way)


def bare(given):
    return dataclasses.replace(given, qd=None, qdd=None)


def used(found, joint, quantity):
    return next(x for x in found.usage if (x.joint, x.quantity) == (joint, quantity))


def test_shares_of_limits(arm):
    """Against the closed form of the motion, and inverse dynamics plus friction."""
    chain, _ = arm
    given = motion()
    found = check_motion(chain, given, acceleration=[2.0, 3.0, 4.0])
    assert found.passed and not found.approaches and not found.notes
    assert_allclose(
        [used(found, name, "position").share for name in chain.joint_names], [0.6 / 2.4, 0.4 / 2.4, 0.5 / 2.4]
    )
    assert used(found, "turn", "position").time == 2.0 and used(found, "turn", "position").limit == 2.8
    assert used(found, "lift", "position").limit == 2.8
    speed = used(found, "bend", "velocity")
    assert_allclose((speed.value, speed.time, speed.share), (15 / 16 * 0.9, 1.0, 15 / 16 * 0.3), rtol=1e-9)
    assert_allclose(used(found, "turn", "acceleration").share, 10 / np.sqrt(3) / 4 / 2, rtol=1e-3)
    one = lambda q, qd, qdd: jaxdyn.inverse_dynamics(chain, q, qd, qdd) + jaxdyn.friction_force(chain, qd)
    tau = np.asarray(jax.vmap(one)(*map(jnp.asarray, (given.q, given.qd, given.qdd))))
    assert_allclose(
        [used(found, name, "torque").share for name in chain.joint_names], np.abs(tau).max(axis=0) / 40, rtol=1e-9
    )
    estimated = check_motion(chain, bare(given), acceleration=[2.0, 3.0, 4.0])
    assert estimated.passed
    assert_allclose([x.share for x in estimated.usage], [x.share for x in found.usage], rtol=2e-3, atol=1e-3)
    text = repr(found)
    assert text.startswith("MotionCheck: within all limits") and "turn   25 % at 2.00 s  31 % at 1.00 s" in text


@pytest.mark.parametrize("digits", ["%.5f", "%.6f"])
def test_accelerations_from_rounded_positions(arm, digits):
    chain, _ = arm
    given = motion(rate=1000.0)
    rounded = np.char.mod(digits, given.q).astype(float)
    found = check_motion(chain, Motion(given.t, rounded), acceleration=10.0)
    assert found.passed
    assert_allclose(used(found, "turn", "acceleration").share, 10 / np.sqrt(3) / 4 / 10, rtol=0.03)


def changed(name, edit):
    given = motion()
    values = {name: getattr(given, name).copy()}
    edit(values[name])
    return dataclasses.replace(given, **values)


def shift(rows, column, by):
    def edit(x):
        x[rows, column] += by

    return edit


VIOLATIONS = {
    "position": (motion((3.0, 0.8, 0.9)), "turn: position 3 rad at 2.000 s; the limit is 2.8 rad"),
    "lower position": (motion((1.0, -2.2, 0.9)), "lift: position -2.2 rad at 2.000 s; the limit is -2 rad"),
    "velocity": (motion((2.0, 0.8, 0.9), duration=1.0), "turn: velocity 3.75 rad/s at 0.500 s; the limit is 3 rad/s"),
    "acceleration": (
        motion((2.0, 0.8, 0.9)),
        "turn: acceleration -2.887 rad/s^2 at 1.580 s; the limit is -2.5 rad/s^2",
    ),
    "torque": (motion((1.0, 0.8, 1.0), duration=0.35), "lift: torque"),
    "velocity column": (changed("qd", shift(slice(None), 0, 0.3)), "turn: the velocity is 0.3"),
    "acceleration column": (changed("qdd", shift(slice(50, 70), 2, 2.0)), "bend: the acceleration is"),
    "wrong step": (changed("q", shift(slice(120, None), 1, 0.02)), "lift: the velocity is 0.5"),
    "jump": (bare(changed("q", shift(slice(120, None), 1, 0.02))), "lift: jumps by 0.02521 rad from 1.190 to 1.200 s"),
    "spike": (bare(changed("q", shift(slice(90, 91), 2, 0.03))), "bend: jumps by"),
    "start": (
        bare(changed("q", lambda x: np.copyto(x, x[40:41] + (x - x[0]) * 0 + np.arange(201)[:, None] / 400))),
        "turn: starts",
    ),
    "end": (Motion(course()[0][:100], motion().q[:100]), "lift: ends at 0.990 s with 0.56"),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_violations_of_single_kinds(arm, name):
    given, words = VIOLATIONS[name]
    found = check_motion(arm[0], given, acceleration=None if name != "acceleration" else 2.5)
    assert not found.passed and any(line.startswith(words) for line in found.violations), found.violations


def test_steps_that_are_sharp_and_no_jumps(arm):
    """Bang-bang acceleration with a standstill, and the noise of a measurement."""
    t = np.arange(601) / 200
    acceleration = np.where(t < 0.5, 1.0, np.where(t < 1.0, -1.0, 0.0))
    speed = np.cumsum(acceleration) / 200
    q = np.cumsum(speed)[:, None] / 200 * np.ones(3)
    assert check_motion(arm[0], Motion(t, q)).passed
    noisy = q + np.random.default_rng(0).normal(size=q.shape) * 1e-4
    assert not any("jumps" in line for line in check_motion(arm[0], Motion(t, noisy)).violations)


def test_closest_approaches_between_samples(arm):
    """A sphere on a circle passes another one on it: distance 2 R |sin((a - b) / 2)| - r - s."""
    chain, _ = arm
    ball = lambda link, at, radius: Geometry(
        link, "sphere", np.block([[np.eye(3), np.reshape(at, (3, 1))], [0, 0, 0, 1]]), (radius,) * 3
    )
    shapes = geometry.make_shapes(chain, [ball("column", (0.6, 0, 0.2), 0.05)], pairs=[])
    shapes = geometry.with_environment(chain, shapes, [ball("post", (0.6 * np.cos(1.1), 0.6 * np.sin(1.1), 0.3), 0.02)])
    t, q = np.array([0.0, 1.0, 3.0]), np.array([[0.0, 0, 0], [0.5, 0, 0], [2.5, 0, 0]])  # sampled coarsely
    (found,) = geometry.closest_approaches(chain, shapes, t, q)
    assert (found.first, found.second) == ("column", "post")
    assert_allclose(found.distance, -0.07, atol=7e-3)  # a tenth
    assert found.bound <= -0.07 and found.bound > -0.08
    touching = 2 * np.arcsin(0.07 / 1.2)
    assert_allclose(found.time, 1.6, atol=0.02)
    assert_allclose(found.begin, 1.6 - touching, atol=2e-3)
    near = geometry.closest_approaches(chain, shapes, t, q, 0.05)[0]
    assert_allclose(near.begin, 1.6 - 2 * np.arcsin(0.12 / 1.2), atol=2e-3)
    assert geometry.closest_approaches(chain, geometry.with_pairs(shapes, []), t, q) == ()
    before = geometry.closest_approaches(chain, shapes, t[:2], q[:2])[0]
    assert before.begin is None and before.time == 1.0
    assert_allclose(before.distance, 1.2 * np.sin(0.3) - 0.07, rtol=1e-9)


@pytest.mark.filterwarnings("ignore:.*the mass matrix is singular")  # the base has no mass
@pytest.mark.parametrize("kind", ["all kinds of joints", pytest.param("a floating base", marks=pytest.mark.nightly)])
def test_approaches_against_dense_samples(kind):
    """With revolute, prismatic, helical and offset joints, and a free joint: no dense sample is below the bounds."""
    chain = random_chain(4, seed=5) if kind != "a floating base" else jaxdyn.io.loads(ARM, floating_base=True)
    rng = np.random.default_rng(1)
    links = list(chain.link_names)[-3:]
    at = lambda x: np.block([[np.eye(3), np.reshape(x, (3, 1))], [0, 0, 0, 1]])
    found = [Geometry(name, "capsule", at(rng.normal(size=3) * 0.1), (0.05, 0.05, 0.3)) for name in links]
    shapes = geometry.make_shapes(chain, found, pairs=[(0, 2)])
    post = Geometry("post", "box", at((0.3, 0.2, 0.1)), (0.1, 0.2, 0.3))
    shapes = geometry.with_environment(chain, shapes, [post, geometry.floor(-0.4)])
    q = np.stack([jaxdyn.random_configuration(chain, key, 0.5) for key in jax.random.split(jax.random.key(2), 5)])
    t = np.array([0.0, 0.3, 1.0, 1.2, 2.0])
    fine = jaxdyn.model.configuration.positions_at(chain, t, q, np.linspace(0, 2, 8001))
    dense = np.asarray(jax.jit(jax.vmap(lambda q: geometry.distances(chain, shapes, q)))(jnp.asarray(fine)))
    for x in geometry.closest_approaches(chain, shapes, t, q):
        own = dense[:, shapes.pair_names.index((x.first, x.second))]
        assert x.bound <= own.min() + 1e-9
        assert own.min() - 1e-3 <= x.distance <= own.min() + max(1e-3, 0.1 * abs(own.min()))
        assert (x.begin is None) == (own.min() >= 0) or abs(own.min()) < 1e-3
        if x.begin is not None and own.min() < -2e-3:
            assert_allclose(x.begin, np.linspace(0, 2, 8001)[(own < 0).argmax()], atol=2e-3)


def test_contacts_of_a_motion(arm):
    chain, shapes = arm
    found = check_motion(chain, motion((0.0, 2.0, 1.1)), shapes)
    (line,) = found.violations
    assert line.startswith("forearm and floor: touch at 1.") and "smallest distance -" in line
    assert "forearm, floor" in found.table()
    free = motion((1.0, 0.8, 0.9))
    assert check_motion(chain, free, shapes).passed
    found = check_motion(chain, free, shapes, clearance=0.2)
    assert any(
        x.startswith("column and floor: nearer than 200 mm from 0.000 s on; smallest distance 50.0 mm")
        for x in found.violations
    )


def test_coupled_joints_have_limits_of_their_own(arm):
    chain, _ = arm
    coupled = dataclasses.replace(chain, coupling=jaxdyn.Coupling(np.array([[1.0, 0], [0, 1], [1, -1]]), np.zeros(3)))
    t, s, *_ = course()
    found = check_motion(coupled, Motion(t, s * [1.5, -1.5]))
    assert [x.split(":")[0] for x in found.violations] == ["bend"] and "position 3 rad" in found.violations[0]


@pytest.mark.parametrize(
    ("given", "options", "words"),
    [
        (Motion(np.arange(2.0), np.zeros((2, 3))), {}, "at least three samples"),
        (Motion(np.arange(4.0), np.zeros((4, 2))), {}, "the robot has 3 positions"),
        (motion(), {"clearance": -0.1}, "must not be negative"),
        (motion(), {"acceleration": [1.0, 2.0]}, "one for each of the 3 coordinates"),
    ],
)
def test_what_cannot_be_checked(arm, given, options, words):
    with pytest.raises(jaxdyn.ModelError, match=words):
        check_motion(arm[0], given, **options)
    with pytest.raises(jaxdyn.ModelError, match="no motion of this robot"):
        geometry.closest_approaches(*arm, np.arange(3.0), np.zeros((3, 2)))


def test_the_command(files, capsys):
    good, bad = motion((1.0, 0.8, 0.9)), motion((0.0, 2.0, 1.1))
    for name, x in (("good", good), ("bad", bad)):
        table = np.c_[x.t, x.q, x.qd, x.qdd]
        header = "t,q1,q2,q3,qd1,qd2,qd3,qdd1,qdd2,qdd3"
        np.savetxt(files / f"{name}.csv", table, "%.9g", ",", header=header, comments="")
    line = ["check", str(files / "arm.urdf")]
    assert main([*line, str(files / "good.csv")]) == 0
    out = capsys.readouterr().out
    assert "201 samples, 2 s: within all limits" in out and "column, floor  50 mm" in out
    assert main([*line, str(files / "bad.csv"), "--quiet"]) == 1
    assert capsys.readouterr().out.startswith("forearm and floor: touch at 1.")
    assert main([*line, str(files / "bad.csv"), "--quiet", "--shapes", "none"]) == 0
    assert main([*line, str(files / "good.csv"), "--acceleration", "1.2", "--shapes", "none", "--quiet"]) == 1
    assert "turn: acceleration 1.443 rad/s^2" in capsys.readouterr().out
    assert main([*line, str(files / "good.csv"), "--shapes", "none", "--environment", str(files / "cell.urdf")]) == 2
    assert "omit --shapes none" in capsys.readouterr().err


def test_the_command_with_surroundings(files, capsys):
    np.savetxt(files / "good2.csv", np.c_[motion().t, motion().q], "%.9g", ",", header="t,q1,q2,q3", comments="")
    line = ["check", str(files / "arm.urdf"), str(files / "good2.csv"), "--environment", str(files / "cell.urdf")]
    assert main([*line, "--no-floor", "--clearance", "0.05"]) == 1
    out = capsys.readouterr().out
    assert " and post: nearer than 50 mm from " in out and "floor" not in out


def test_a_robot_without_shapes(files, capsys):
    (files / "plain.urdf").write_text(re.sub("<collision>.*?</collision>", "", ARM, flags=re.DOTALL))
    np.savetxt(files / "plain.csv", np.c_[motion().t, motion().q], "%.9g", ",", header="t,turn,lift,bend", comments="")
    assert main(["check", str(files / "plain.urdf"), str(files / "plain.csv")]) == 0
    seen = capsys.readouterr()
    assert (
        "plain.urdf has no collision shapes: no distances are checked" in seen.err and "within all limits" in seen.out
    )

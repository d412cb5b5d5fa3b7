"""Validation of a chain's constructors and of its functions' arguments."""

import dataclasses
import pickle
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import random_chain, random_state, relative
from jaxdyn.dynamics.engine.sweep import outward
from jaxdyn.model.build import build_chain

ONE = {
    "rotation": np.eye(3)[None],
    "translation": np.zeros((1, 3)),
    "screw": [[0, 0, 1, 0, 0, 0]],
    "inertia": np.zeros((1, 10)),
}
TILTED = np.eye(4) * 2


@pytest.mark.parametrize(
    "message, change",
    [
        ("no movable joint", {"screw": np.zeros((0, 6))}),
        ("rotation has shape", {"rotation": np.eye(3)}),
        ("is NaN or infinite", {"translation": [[np.nan, 0, 0]]}),
        ("not a rotation", {"rotation": -np.eye(3)[None]}),
        ("has length 2", {"screw": [[0, 0, 2, 0, 0, 0]]}),
        ("has length 0.5", {"screw": [[0, 0, 0, 0, 0, 0.5]]}),
        ("fixed to link 3", {"frames": {"tool": (3, np.eye(4))}}),
        ("is not a rotation|last row", {"frames": {"tool": (0, TILTED)}}),
        ("is used twice", {"frames": {"link1": (0, np.eye(4))}}),
        ("exceeds upper limit", {"limits": jaxdyn.JointLimits((1.0, -1.0))}),
        ("armature is -1; it must not be negative", {"armature": -1.0}),
        ("coulomb_velocity must be positive", {"friction": jaxdyn.Friction(coulomb_velocity=0.0)}),
        ("gravity is", {"gravity": (0.0, -9.81)}),
        (
            "unknown tip 'hand'; the links and frames are link1",
            {"topology": jaxdyn.Topology.serial(1, tip_name="hand")},
        ),
        ("mass -1 kg", {"inertia": [[-1.0, 0, 0, 0, 1, 0, 1, 0, 0, 1]]}),
        ("translation is 1e\\+300 at index", {"translation": [[0, 1e300, 0]]}),
        ("friction.viscous is inf", {"friction": jaxdyn.Friction(np.inf)}),
        ("gravity is -1e\\+200", {"gravity": (0.0, 0.0, -1e200)}),
        ("frame_poses is", {"frames": {"tool": (0, np.eye(4) + 1e99 * np.eye(4, k=3))}}),
        ("violate the triangle inequality", {"inertia": [[1.0, 0, 0, 0, 1, 0, 1, 0, 0, 3]]}),
    ],
)
def test_impossible_models_are_refused(message, change):
    with pytest.raises(jaxdyn.ModelError, match=message):
        jaxdyn.make_chain(**{**ONE, **change})


@pytest.mark.parametrize(
    "message, change",
    [
        ("translation is 1e\\+300 at index", {"translation": [[0, 1e300, 0]]}),
        ("inertia is 1e\\+300", {"inertia": [[1e300, 0, 0, 0, 1, 0, 1, 0, 0, 1]]}),
        ("springs.stiffness is inf", {"springs.stiffness": np.inf}),
    ],
)
def test_numbers_that_no_robot_has_are_refused_whatever_is_allowed(message, change):
    with pytest.raises(jaxdyn.ModelError, match=message):
        build_chain({**ONE, **change}, allow_nonphysical=True)


def test_names_are_as_many_as_joints_and_different():
    with pytest.raises(jaxdyn.ModelError, match="2 joint names are given for 1 joints"):
        jaxdyn.Topology.serial(1, joint_names=["a", "b"])
    with pytest.raises(jaxdyn.ModelError, match="the link name 'a' is used twice"):
        jaxdyn.Topology.serial(2, link_names=["a", "a"])
    with pytest.raises(jaxdyn.ModelError, match="the topology has 2 joints, but there are 1 screws"):
        jaxdyn.make_chain(**ONE, topology=jaxdyn.Topology.serial(2))


def test_one_number_for_all_joints_is_for_make_chain():
    chain = random_chain(2)
    with pytest.raises(jaxdyn.ModelError, match=r"Friction\.coulomb is one number for all joints, .*pass 2, or"):
        dataclasses.replace(chain, friction=jaxdyn.Friction(jnp.ones(2)))


def test_limits_the_wrong_way_round_name_their_joint():
    two = {name: np.concatenate([np.asarray(x)] * 2) for name, x in ONE.items()}
    with pytest.raises(jaxdyn.ModelError, match="'joint2': lower limit 2 exceeds upper limit -1"):
        jaxdyn.make_chain(limits=jaxdyn.JointLimits(position=[(-3.0, 3.0), (2.0, -1.0)]), **two)


def test_axes_given_with_few_digits_are_made_exact():
    axis = np.array([0.7071068, 0, 0.7071068])
    chain = jaxdyn.make_chain(**{**ONE, "screw": [[*axis, 0, 0, 0]], "rotation": np.round(np.eye(3), 7)[None]})
    rotation = jaxdyn.forward_kinematics(chain, jnp.array([2.0]))[0, :3, :3]
    np.testing.assert_allclose(rotation.T @ rotation, np.eye(3), atol=1e-14)
    c, s = np.cos(0.5), np.sin(0.5)
    turn = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
    kept = jaxdyn.make_chain(**{**ONE, "rotation": turn[None]}).rotation[0]
    np.testing.assert_array_equal(kept, turn)
    made = np.asarray(jaxdyn.make_chain(**{**ONE, "rotation": (turn * (1 + 4e-7))[None]}).rotation[0])
    np.testing.assert_allclose(made, turn, rtol=0, atol=1e-15)


def test_inertial_parameters_are_accepted_flat_or_by_link():
    chain = random_chain(3)
    pi = jnp.arange(30.0)
    for given in (pi, pi.reshape(3, 10)):
        np.testing.assert_array_equal(
            jaxdyn.inertial_parameters(jaxdyn.with_inertial_parameters(chain, given)).ravel(), pi
        )
    with pytest.raises(jaxdyn.ModelError, match="requires \\(3, 10\\)"):
        jaxdyn.with_inertial_parameters(chain, pi[:20])


@pytest.mark.ci
def test_a_topology_hashes_alike_in_another_process():
    topology = random_chain(2).topology
    code = (
        "import pickle, sys; t = pickle.load(sys.stdin.buffer); sys.exit(hash(t) != hash(type(t)(*t.__reduce__()[1])))"
    )
    done = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(topology), check=False)
    assert done.returncode == 0
    assert pickle.loads(pickle.dumps(topology)) == topology


def test_messages_about_wrong_shapes_name_the_remedy():
    chain = random_chain(3)
    q, qd, qdd = random_state(3)
    with pytest.raises(jaxdyn.ModelError, match="vmap"):
        outward(chain, q[:2], lambda state, link, x: (state, state), jnp.zeros(()))
    batch = jax.tree.map(lambda x: jnp.stack([x, x]), chain)
    torques = jax.vmap(jaxdyn.inverse_dynamics, (0, None, None, None))(batch, q, qd, qdd)
    assert relative(torques[1], jaxdyn.inverse_dynamics(chain, q, qd, qdd)) < 1e-14


@pytest.mark.ci
@pytest.mark.parametrize("by_step", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_rollouts_under_wrenches_are_repeated_steps(by_step):
    chain = random_chain(2)
    q, qd, _ = random_state(2)
    rng = np.random.default_rng(3)
    on_links, by_tip, torques = (jnp.asarray(rng.normal(size=s)) for s in ((4, 2, 6), (4, 6), (4, 2)))
    given = (on_links, by_tip) if by_step else (on_links[0], by_tip[0])
    all_wrenches = lambda on_links, by_tip: jaxdyn.dynamics.link_wrenches(chain, on_links, by_tip)
    wrenches = (jax.vmap(all_wrenches) if by_step else all_wrenches)(*given)
    positions, velocities = jax.jit(jaxdyn.rollout)(chain, q, qd, torques, 0.01, external_wrenches=wrenches)
    step = lambda q, qd, tau, *wrenches: (
        qd := qd + 0.01 * jaxdyn.forward_dynamics(chain, q, qd, tau - jaxdyn.resistive_force(chain, q, qd), *wrenches),
        q + 0.01 * qd,
    )
    for k in range(4):
        row = k if by_step else 0
        qd, q = jax.jit(step)(q, qd, torques[k], on_links[row], by_tip[row])
        assert relative(positions[k + 1], q) < 1e-13 and relative(velocities[k + 1], qd) < 1e-13


@pytest.mark.ci
def test_attached_bodies_and_changed_masses_equal_those_of_pinocchio():
    """A payload on a tool frame and on a link, against Pinocchio; derivatives by mass at a fixed centre of mass."""
    pin = pytest.importorskip("pinocchio")
    arm = jaxdyn.robots.panda()
    rng = np.random.default_rng(0)
    q, v, a = rng.normal(size=(3, 7))
    mass, com, inertia = 1.3, np.array([0.1, -0.2, 0.3]), np.diag([0.02, 0.03, 0.04])

    def peer():
        model = pin.Model()
        for i in range(7):
            screw = np.asarray(arm.screw[i])
            joint = pin.JointModelRevoluteUnaligned(screw[:3]) if screw[:3].any() else None
            assert joint is not None and not screw[3:].any()
            place = pin.SE3(np.asarray(arm.rotation[i]), np.asarray(arm.translation[i]))
            model.addJoint(i, joint, place, arm.joint_names[i])
            model.inertias[i + 1] = pin.Inertia.FromDynamicParameters(np.asarray(arm.inertia[i]))
        return model

    for frame, link, place in (("flange", 6, np.asarray(arm.frame_poses[0])), (arm.link_names[2], 2, np.eye(4))):
        model = peer()
        body = pin.Inertia(mass, com, inertia)
        model.appendBodyToJoint(link + 1, body, pin.SE3(place[:3, :3], place[:3, 3]))
        wanted = pin.rnea(model, model.createData(), q, v, a)
        loaded = jaxdyn.attach(arm, frame, mass, com, inertia)
        bare = pin.rnea(peer(), model.createData(), q, v, a)
        change = jaxdyn.inverse_dynamics(loaded, q, v, a) - jaxdyn.inverse_dynamics(arm, q, v, a)
        np.testing.assert_allclose(change, wanted - bare, atol=1e-12 * np.abs(wanted).max())
    # a point mass at the centre of mass of a link changes its mass, and nothing else
    masses = jnp.asarray(arm.inertia[:, 0])
    centre = arm.inertia[4, 1:4] / masses[4]
    heavier = jaxdyn.with_masses(arm, masses.at[4].add(0.5))
    point = jaxdyn.attach(arm, arm.link_names[4], 0.5, centre)
    np.testing.assert_allclose(heavier.inertia, point.inertia, atol=1e-12)
    slope = jax.jacfwd(lambda m: jaxdyn.gravity_force(jaxdyn.with_masses(arm, m), jnp.asarray(q)))(masses)[:, 4]
    step = jaxdyn.gravity_force(heavier, jnp.asarray(q)) - jaxdyn.gravity_force(arm, jnp.asarray(q))
    np.testing.assert_allclose(slope, step / 0.5, atol=1e-12)
    with pytest.raises(jaxdyn.ModelError, match="fixed to the base"):
        jaxdyn.attach(arm, arm.topology.base_name, 1.0)

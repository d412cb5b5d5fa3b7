"""MJCF that is written: MuJoCo loads it and finds the same motion; and what cannot be written is refused with the reason."""

import dataclasses
from operator import attrgetter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import random_chain, relative
from jaxdyn import ModelError, Topology, resistive_force, with_coupling, with_transmission, write_mjcf
from jaxdyn.io import to_mjcf
from test_mjcf import MODELS, compiled

mujoco = pytest.importorskip("mujoco")


def arm(seed: int = 3, joints: str = "offset") -> jaxdyn.Chain:
    return random_chain(4, seed, joints)


def test_written_models_have_the_dynamics_of_mujoco():
    chain = eqx.tree_at(lambda c: (c.screw, c.inertia), random_chain(4, 3, "offset"), (arm(4).screw, arm(5).inertia))
    slide = random_chain(4, 3, "prismatic").screw[1]
    chain = eqx.tree_at(lambda c: c.screw, chain, chain.screw.at[1].set(slide))
    frictionless = eqx.tree_at(
        lambda c: (c.friction.coulomb, c.friction.stribeck, c.friction.offset), chain, (jnp.zeros(4),) * 3
    )
    evaluate = jax.jit(
        lambda q, qd, qdd: jaxdyn.inverse_dynamics(chain, q, qd, qdd) + resistive_force(frictionless, q, qd)
    )
    for seed in range(3):
        _, data = compiled(to_mjcf(chain), seed)
        ours = evaluate(*(jnp.asarray(np.array(x)) for x in (data.qpos, data.qvel, data.qacc)))
        assert relative(ours, data.qfrc_inverse) < 1e-12


@pytest.mark.parametrize("name", MODELS)
def test_what_mujoco_reads_again_moves_alike(name):
    """Free and ball joints, several joints on a body, references, fused bodies: the same motion as the file it came from."""
    again = to_mjcf(jaxdyn.io.loads(MODELS[name]))
    model, data = compiled(MODELS[name], 1)
    other, copy = compiled(again, 1)
    copy.qpos[:], copy.qvel[:], copy.qacc[:] = data.qpos, data.qvel, data.qacc
    mujoco.mj_inverse(other, copy)
    assert relative(copy.qfrc_inverse, data.qfrc_inverse) < 1e-12
    sites = {other.site(s).name: copy.site_xpos[s] for s in range(other.nsite)}
    for s in range(model.nsite):
        if (site := model.site(s).name) in sites and site != "torso":  # a body has that name too
            np.testing.assert_allclose(sites[site], data.site_xpos[s], atol=1e-12)
    for leaf in (
        "dof_armature",
        "dof_damping",
        "dof_frictionloss",
        "jnt_stiffness",
        "jnt_limited",
        "jnt_actfrclimited",
    ):
        before, after = attrgetter(leaf)(model), attrgetter(leaf)(other)
        if leaf != "jnt_actfrclimited":  # from the actuators there
            np.testing.assert_array_equal(before, after)
    limited = model.jnt_limited != 0
    np.testing.assert_allclose(model.jnt_range[limited], other.jnt_range[limited])


def test_numbers_survive_writing_and_reading():
    chain = random_chain(3, 2, "revolute")
    limits = jnp.asarray([[-1.0, 2.0], [-jnp.inf, jnp.inf], [-jnp.inf, 1.0]])
    effort = jnp.asarray([10.0, jnp.inf, 3.0])
    chain = eqx.tree_at(lambda c: (c.limits.position, c.limits.effort), chain, (limits, effort))
    back = jaxdyn.io.loads(to_mjcf(chain))
    assert back.joint_names == chain.joint_names and back.link_names == chain.link_names
    assert back.frame_names == ("base", "tool")
    names = (
        "rotation",
        "translation",
        "screw",
        "inertia",
        "armature",
        "friction.viscous",
        "friction.coulomb",
        "springs.stiffness",
    )
    for name in (*names, "springs.rest_position", "limits.effort", "gravity"):
        np.testing.assert_allclose(
            attrgetter(name)(back), attrgetter(name)(chain), rtol=1e-13, atol=1e-14, err_msg=name
        )
    np.testing.assert_allclose(back.frame_poses[1], chain.frame_poses[0], atol=1e-15)
    np.testing.assert_allclose(back.limits.position, [[-1, 2], [-np.inf, np.inf], [-1e10, 1]])


def test_what_has_no_place_is_said(tmp_path):
    chain = arm()
    missing = write_mjcf(chain, tmp_path / "arm.xml", name="an arm")
    text = (tmp_path / "arm.xml").read_text("utf-8")
    assert len(missing) == 3 and missing[0] == "torque offsets (joint1, joint2, joint3, joint4)"
    assert text.startswith("<!-- not supported by MJCF, omitted: torque offsets (") and 'model="an arm"' in text
    assert [p.name for p in tmp_path.iterdir()] == ["arm.xml"]
    still = jnp.zeros(4)
    plain = eqx.tree_at(lambda c: (c.friction.coulomb, c.friction.stribeck, c.friction.offset), chain, (still,) * 3)
    assert write_mjcf(plain, tmp_path / "arm.xml") == () and "<!--" not in (tmp_path / "arm.xml").read_text()
    fixed = eqx.tree_at(lambda c: c.limits.position, plain, jnp.zeros((4, 2)))
    assert "position limits of zero width" in write_mjcf(fixed, tmp_path / "arm.xml")[0]
    with pytest.raises(ModelError, match="cannot be written"):
        write_mjcf(chain, tmp_path / "none" / "arm.xml")


def test_motors_are_written_as_armature_and_friction_of_their_joints():
    chain = with_transmission(arm(), gear_ratio=[10.0, -20.0, 5.0, 1.0], rotor_inertia=1e-3, viscous_friction=0.01)
    back = jaxdyn.io.loads(to_mjcf(chain))
    np.testing.assert_allclose(back.armature, chain.armature + 1e-3 * np.array([100, 400, 25, 1]))
    np.testing.assert_allclose(back.friction.viscous, chain.friction.viscous + 0.01 * np.array([100, 400, 25, 1]))
    coupled = with_transmission(arm(), matrix=[[1.0, 0, 0, 0], [0, 2, 3, 0]])
    with pytest.raises(ModelError, match="motor 2 of the transmission drives joint2, joint3 together"):
        to_mjcf(coupled)


def test_the_pose_of_the_base_is_written():
    pose = np.array([[0, -1, 0, 1], [1, 0, 0, 2], [0, 0, 1, 3.0], [0, 0, 0, 1]])
    chain = arm()
    _, plain = compiled(to_mjcf(chain), 0)
    _, moved = compiled(to_mjcf(dataclasses.replace(chain, base_pose=jnp.asarray(pose))), 0)
    for link in chain.link_names:
        there = pose[:3, :3] @ plain.body(link).xpos + pose[:3, 3]
        np.testing.assert_allclose(moved.body(link).xpos, there, atol=1e-12)
    assert np.abs(moved.qfrc_inverse - plain.qfrc_inverse).max() > 0.1  # gravity is the world's


def test_single_precision_and_flat_bodies_can_be_written():
    single = jax.tree.map(lambda x: x.astype(jnp.float32), arm())
    np.testing.assert_allclose(jaxdyn.io.loads(to_mjcf(single)).inertia, single.inertia, rtol=1e-12, atol=1e-13)
    # a plate: its moments are on the edge of the triangle inequality
    plate = jnp.asarray([2.0, 0.2, 0, 0, 0.03, 0, 0.07, 0, 0, 0.1])
    chain = eqx.tree_at(lambda c: c.inertia, arm(), jnp.tile(plate, (4, 1)))
    np.testing.assert_allclose(jaxdyn.io.loads(to_mjcf(chain)).inertia, chain.inertia, atol=1e-14)


def inertia(chain: jaxdyn.Chain, link: int, *pi: float) -> jaxdyn.Chain:
    return eqx.tree_at(lambda c: c.inertia, chain, chain.inertia.at[link].set(jnp.asarray(pi, float)))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: inertia(arm(), 1, -1, 0, 0, 0, 1, 0, 1, 0, 0, 1), "link 'link2': mass -1 kg is not positive"),
        (lambda: inertia(arm(), 2, 1, 0, 0, 0, 1, 0, 1, 0, 0, 3), r"link 'link3': .*violate the triangle inequality"),
        (lambda: inertia(arm(), 2, 1, 1, 0, 0, 1, 0, 0.1, 0, 0, 0.1), r"link 'link3': .*negative principal moment"),
        (lambda: inertia(arm(), 0, 1, 0, 0, 0, 1, 0, np.nan, 0, 0, 1), "link 'link1': its inertia .* is not finite"),
        (
            lambda: inertia(arm(), 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0),
            "link 'link4': .*rejects a moving body if one of these is below 1e-15",
        ),
        (lambda: inertia(arm(), 3, *np.zeros(10)), "link 'link4' has no mass and is the last"),
        (lambda: random_chain(3, 0, "helical"), "joint 'joint1' is helical"),
        (lambda: with_coupling(arm(), np.eye(4, 3)), "only soft constraints"),
        (lambda: jaxdyn.make_chain(topology=Topology.serial(1, link_names=["world"]), **single()), "called 'world'"),
        (
            lambda: jaxdyn.make_chain(topology=Topology.serial(1, link_names=["\x00"]), **single()),
            "cannot be written as XML",
        ),
        (
            lambda: jaxdyn.model.with_leaves(jaxdyn.make_chain(**single()), {"friction.viscous": jnp.array([-1.0])}),
            "friction.viscous .*negative",
        ),
        (
            lambda: dataclasses.replace(
                jaxdyn.make_chain(topology=Topology.serial(1, base_name="world"), **single()), base_pose=jnp.eye(4)
            ),
            "rename the base",
        ),
        (lambda: jax.tree.map(lambda x: x[None], arm()), "is a batch"),
    ],
)
def test_models_that_the_format_cannot_hold_are_refused(build, message):
    with pytest.raises(ModelError, match=message):
        to_mjcf(build())


def single() -> dict:
    body = [1, 0, 0, 0, 1, 0, 1, 0, 0, 1]
    return {"rotation": [np.eye(3)], "translation": [[0, 0, 0]], "screw": [[0, 0, 1, 0, 0, 0]], "inertia": [body]}


def test_uneven_leaves_of_quaternion_joints_are_refused():
    text = MODELS["pendulum"]
    ball = jaxdyn.io.loads(text)
    uneven = eqx.tree_at(lambda c: c.armature, ball, ball.armature.at[0].set(0.1))
    with pytest.raises(ModelError, match=r"armature of 'first' is \[0.1, 0.0, 0.0\]"):
        to_mjcf(uneven)
    walker = jaxdyn.io.loads(MODELS["walker"])
    with pytest.raises(ModelError, match=r"friction\.coulomb of 'root'"):
        to_mjcf(eqx.tree_at(lambda c: c.friction.coulomb, walker, walker.friction.coulomb.at[:6].set(1.0)))
    with pytest.raises(ModelError, match="a free joint is relative to the world"):
        named = dataclasses.replace(walker.topology, base_name="floor")
        to_mjcf(dataclasses.replace(walker, base_pose=jnp.eye(4), topology=named))

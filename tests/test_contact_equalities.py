"""Equality constraints against MuJoCo, the definition, differences and a pendulum."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from numpy.testing import assert_allclose

import jaxdyn
from helpers import once
from jaxdyn import contact
from jaxdyn.contact import definition
from jaxdyn.errors import ModelError, ModelWarning
from jaxdyn.model import layouts
from test_contact_dynamics import States, compiled

# a robot with hinges, a slide, a ball and free bodies, which touch the ground while they are tied together
TIED = """<mujoco><option timestep="0.002" cone="{cone}"/><worldbody>
<geom name="floor" type="plane" size="5 5 .1" euler="5 3 0" friction="0.6 .01 .002"/>
<body name="a" pos="0 0 .3"><freejoint/><geom type="sphere" size=".1"/><site name="sa" pos=".1 .02 0" euler="10 20 30"/>
  <body name="b" pos=".2 0 0"><joint name="jb" axis="0 1 0" damping=".1" armature=".01" ref=".2"/>
    <geom type="capsule" size=".05 .08" pos=".15 0 0"/>
    <body name="c" pos=".3 0 .1"><joint name="jc" type="slide" axis="1 0 0"/><geom type="sphere" size=".04"/></body></body>
  <body name="d" pos="-.2 0 0"><joint name="jd" type="ball" pos=".02 .01 0"/><geom type="sphere" size=".05" pos="-.1 0 0"/>
  </body></body>
<body name="other" pos="0 .3 .3"><freejoint/><geom type="sphere" size=".06"/>
  <site name="so" pos="0 .02 .1" euler="10 50 30"/></body>
<body name="hung" pos="0 .6 .6"><joint name="jh" axis="1 0 0"/><geom type="sphere" size=".06" pos="0 0 -.2"/></body>
</worldbody><equality>
<connect name="loop" body1="c" body2="other" anchor=".1 .02 .03" solref="-500 -20" solimp=".8 .95 .02 .4 3"/>
<connect body1="d" anchor="0 .1 0"/><connect site1="sa" site2="so"/>
<weld body1="d" body2="other" torquescale=".7"/><weld body1="hung" relpose=".1 .2 -.3 1 .2 .3 .1" anchor="0 .05 0"/>
<weld site1="sa" site2="so"/>
<joint joint1="jb" joint2="jc" polycoef=".1 .5 .3 -.2 .1"/><joint joint1="jh" polycoef=".3 0 0 0 0"/>
<tendon tendon1="sum" tendon2="two" polycoef=".1 .5 .2 0 0"/>
<connect body1="a" body2="hung" anchor="0 0 0" active="false"/></equality>
<tendon><fixed name="sum"><joint joint="jb" coef="1"/><joint joint="jc" coef="-2"/></fixed>
<fixed name="two"><joint joint="jh" coef=".5"/></fixed></tendon></mujoco>"""


@functools.cache
def tied(cone, count=100):
    return States(compiled(TIED.format(cone=cone)), count)


def accelerations(states):
    solve = lambda q, v, t: contact.contact_dynamics(states.chain, states.contacts, q, v, t).qdd
    return jax.jit(jax.vmap(solve))(states.q, states.qd, states.tau)


@pytest.mark.ci
@pytest.mark.parametrize("cone", ("pyramidal", "elliptic"))
def test_accelerations_and_forces_are_those_of_mujoco(cone):
    states = tied(cone)
    qdd = accelerations(states)
    to_mujoco = jax.vmap(lambda q, v, a: layouts.to_mujoco_acceleration(states.chain, q, v, a))
    error = np.abs(to_mujoco(states.q, states.qd, qdd) - states.qacc).max(axis=1)
    assert (error / (1 + np.abs(states.qacc).max(axis=1))).max() < 1e-11
    forces = jax.jit(jax.vmap(lambda q, v, a: contact.equality_forces(states.chain, states.contacts, q, v, a)))
    found = np.concatenate(forces(states.q, states.qd, qdd), axis=1)
    for k in range(10):
        data = states.at(k)
        equal = data.efc_type == mujoco.mjtConstraint.mjCNSTR_EQUALITY
        # quaternions of a weld have either sign
        assert_allclose(np.abs(found[k]), np.abs(data.efc_force[equal]), rtol=1e-8, atol=1e-8)


@pytest.mark.ci
def test_the_fast_route_equals_the_definition():
    states = tied("pyramidal")
    few = [x[:10] for x in (states.q, states.qd, states.tau)]
    expected = jax.jit(jax.vmap(lambda *x: definition.contact_dynamics(states.chain, states.contacts, *x)))(*few)
    found = accelerations(states)[:10]
    assert_allclose(found, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
    inverse = lambda q, v, a: contact.contact_inverse_dynamics(states.chain, states.contacts, q, v, a)
    assert_allclose(jax.jit(jax.vmap(inverse))(*few[:2], found), few[2], atol=1e-8 * np.abs(expected).max())


@pytest.mark.ci
def test_a_hundred_steps_are_those_of_mujoco():
    states = tied("pyramidal")
    model, chain, contacts = states.model, states.chain, states.contacts
    data = states.at(0)
    start = contact.ContactState(states.q[0], states.qd[0], jnp.zeros(chain.nv))
    data.qfrc_applied[:] = 0
    for _ in range(100):
        mujoco.mj_step(model, data)
    motion = contact.contact_rollout(chain, contacts, start, jnp.zeros((100, chain.nv)), 0.002)
    qpos, qvel = layouts.to_mujoco_state(chain, motion.q[-1], motion.qd[-1])
    assert_allclose(qpos, data.qpos, atol=1e-9)
    assert_allclose(qvel, data.qvel, atol=1e-7)


# a closed chain of four bars on the ground, of which the last pin is a constraint
BARS = """<mujoco><worldbody>
<body name="one" pos="0 0 1"><joint name="j1" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 -.3" size=".02"/>
<body name="two" pos="0 0 -.3"><joint name="j2" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 .4 0 0" size=".02"/>
<body name="three" pos=".4 0 0"><joint name="j3" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 .3" size=".02"/>
</body></body></body></worldbody><contact><exclude body1="one" body2="three"/></contact>
<equality><connect body1="three" body2="world" anchor="0 0 .3" solref=".01 1"/></equality></mujoco>"""


STIFF = jnp.array([0.9999, 0.9999, 0.001, 0.5, 2.0])


@functools.cache
def bars():
    return States(compiled(BARS), 20)


@once
def bars_accelerate(contacts, q, v, tau):
    return contact.contact_dynamics(bars().chain, contacts, q, v, tau).qdd


def test_four_bars_move_as_in_mujoco():
    states = bars()
    found = jax.vmap(bars_accelerate, in_axes=(None, 0, 0, 0))(states.contacts, states.q, states.qd, states.tau)
    assert_allclose(found, states.qacc, rtol=1e-10, atol=1e-10 * np.abs(states.qacc).max())


def test_four_bars_swing_as_a_pendulum():
    """A parallelogram of stiff pins, whose coupler stays horizontal: one equation for all three joints."""
    chain, contacts = bars().chain, bars().contacts
    stiff = dataclasses.replace(contacts.equalities[0], impedance=jnp.array([0.9999, 0.9999, 0.001, 0.5, 2.0]))
    q, v, along = jnp.array([0.3, -0.3, 0.3]), jnp.zeros(3), jnp.array([1.0, -1.0, 1.0])
    batch = jax.vmap(bars_accelerate, in_axes=(None, 0, 0, 0))
    found = batch(dataclasses.replace(contacts, equalities=(stiff,)), *(jnp.tile(x, (20, 1)) for x in (q, v, v)))[0]
    gravity, mass = jaxdyn.inverse_dynamics(chain, q, v, v), jaxdyn.mass_matrix(chain, q)
    assert_allclose(found, -along * (along @ gravity) / (along @ mass @ along), rtol=2e-3)


@pytest.mark.ci
def test_derivatives_agree_in_four_ways():
    chain, contacts = bars().chain, bars().contacts
    q, v, tau = jnp.array([0.3, -0.25, 0.28]), jnp.array([0.5, -1.0, 0.3]), jnp.array([0.1, 0.2, -0.3])
    solve = lambda q, v, tau: contact.contact_dynamics(chain, contacts, q, v, tau).qdd
    qdd = jax.jit(solve)(q, v, tau)
    found = jax.jit(lambda: contact.contact_dynamics_derivatives(chain, contacts, q, v, qdd))()
    for closed, mode in ((found, jax.jacfwd), (found, jax.jacrev)):
        for a, b in zip(closed, jax.jit(mode(solve, argnums=(0, 1, 2)))(q, v, tau), strict=True):
            assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(b).max())
    h, eye = 1e-6, np.eye(3)
    shifted = jax.jit(jax.vmap(solve, in_axes=(0, None, None)))
    differences = (shifted(q[None] + h * eye, v, tau) - shifted(q[None] - h * eye, v, tau)) / (2 * h)
    assert_allclose(found.q, differences.T, rtol=1e-6, atol=1e-6 * np.abs(differences).max())


def test_what_is_not_supported_is_named():
    text = TIED.format(cone="pyramidal").replace("</equality>", '<tendon name="rope" tendon1="t"/></equality>')
    text = text.replace(
        "</tendon></mujoco>", '<spatial name="t"><site site="sa"/><site site="so"/></spatial></tendon></mujoco>'
    )
    model = mujoco.MjModel.from_xml_string(text)
    with pytest.warns(ModelWarning):
        chain = jaxdyn.io.from_mujoco(model)
    with pytest.raises(ModelError, match=r"connect, weld, joint and fixed tendon.*rope"):
        contact.contacts_from_mujoco(model, chain)
    with pytest.warns(ModelWarning, match="left out"):
        assert len(contact.contacts_from_mujoco(model, chain, leave_out=True).equalities) == 9
    with pytest.raises(ModelError, match="revolute or prismatic"):
        contact.follow(bars().chain, "j1", "spring")


def test_constraints_made_by_hand_are_those_of_files():
    chain, contacts = bars().chain, bars().contacts
    pin = contact.connect(chain, "three", "world", ((0, 0, 0.3), (0.4, 0, 1)), reference=(0.01, 1.0))
    weld = contact.weld(chain, "three", "world")
    follow = contact.follow(chain, "j2", "j1", (0.0, -1.0, 0.0, 0.0, 0.0))
    text = """<equality><weld body1="three" body2="world" relpose="0 0 0 1 0 0 0"/>
        <joint joint1="j2" joint2="j1" polycoef="0 -1 0 0 0"/></equality></mujoco>"""
    read = contact.contacts_from_mujoco(compiled(BARS.replace("</mujoco>", text)), chain).equalities
    for made, of_file in zip((pin, weld, follow), read, strict=True):
        jax.tree.map(lambda a, b: assert_allclose(a, b, atol=1e-12), made, of_file)
    assert "2 equality constraints" in repr(dataclasses.replace(contacts, equalities=(pin, follow)))


def test_wrong_arguments_are_named():
    chain = bars().chain
    for make, name in (
        (lambda: contact.connect(chain, "three", "world", (0, 0, 0.3)), r"points has the shape \(3,\).*\(2, 3\)"),
        (lambda: contact.weld(chain, "three", "world", (0, 0, 0.3)), r"pose .*\(4, 4\)"),
        (lambda: contact.weld(chain, "three", "world", reference=0.02), r"reference .*\(2,\)"),
        (lambda: contact.follow(chain, "j2", "j2"), "cannot follow itself"),
        (lambda: contact.follow(chain, "j2", "j1", (0, 1)), r"polynomial .*\(5,\)"),
        (lambda: contact.follow(chain, "j2", "j1", impedance=(0.9, 0.95)), r"impedance .*\(5,\)"),
    ):
        with pytest.raises(ModelError, match=name):
            make()

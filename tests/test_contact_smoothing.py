"""Stiffness in physical units; smoothed contacts: the limit of zero width, derivatives, and contacts that are near."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import jaxdyn
from helpers import once
from jaxdyn import contact, geometry
from jaxdyn.errors import ModelError

BALL = jaxdyn.io.loads(
    """<robot name="ball"><link name="ball"><inertial><mass value="2"/>
    <inertia ixx="0.01" iyy="0.01" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link></robot>""",
    floating_base=True,
)
RADIUS, WIDTH = 0.1, 1e-3
HEIGHTS = RADIUS + np.array([0.1, 0.005, 0.001, 0.0, -1e-4, -2e-3])


@functools.cache
def contacts_of(cone):
    shapes = geometry.make_shapes(BALL, [geometry.sphere("ball", RADIUS)], pairs=[])
    return contact.make_contacts(BALL, geometry.with_environment(BALL, shapes, [geometry.floor()]), cone=cone)


def at(height):
    return jnp.array([0, 0, 0, 1.0, 0, 0, 0]).at[2].set(height), jnp.zeros(6).at[3].set(0.5)


@once
def accelerated(contacts, heights):
    """Accelerations, and derivatives by the height, of a ball that slides."""

    def one(height):
        return contact.contact_dynamics(BALL, contacts, *at(height), jnp.zeros(6)).qdd

    along = lambda height: jax.jvp(one, (height,), (jnp.ones_like(height),))
    return jax.vmap(along)(heights)


@pytest.mark.parametrize("cone", ("pyramidal", "elliptic"))
def test_a_ball_at_rest_sinks_as_on_a_spring_and_moves_as_on_a_damper(cone):
    """Forces at given accelerations of zero, without a search."""
    contacts = contact.with_stiffness(contacts_of(cone), 3e4, 150.0)
    depth, speed = np.array([1e-3, 2e-3]), np.array([0.0, -0.2])
    q = jax.vmap(lambda d: at(RADIUS - d)[0])(depth)
    qd = jnp.zeros((2, 6)).at[:, 5].set(speed)
    forces = jax.vmap(lambda q, v: contact.contact_forces(BALL, contacts, q, v, jnp.zeros(6)).force[0])(q, qd)
    assert_allclose(forces[:, 2], 3e4 * depth - 150 * speed, rtol=1e-12)
    each = jax.vmap(lambda k: contact.with_stiffness(contacts_of(cone), k, 150.0))(jnp.array([1e4, 3e4]))
    assert_allclose(each.softness.reference[1], contacts.softness.reference, rtol=1e-15)
    with pytest.raises(ModelError, match=r"stiffness=-1.*stiffness > 0"):
        contact.with_stiffness(contacts, -1.0, 0.0)


@pytest.mark.parametrize("cone", ("pyramidal", "elliptic"))
@pytest.mark.ci
def test_smooth_contacts_become_those_of_mujoco_and_have_derivatives(cone):
    hard = contacts_of(cone)
    smooth = contact.smoothed(hard, WIDTH)
    expected, slopes = accelerated(hard, HEIGHTS)
    deep = np.abs(HEIGHTS - RADIUS) > 0
    narrow = accelerated(contact.smoothed(hard, 0.0), HEIGHTS)
    assert_allclose(narrow[0][deep], expected[deep], rtol=1e-9, atol=1e-9)
    assert_allclose(narrow[1][deep], slopes[deep], rtol=1e-9, atol=1e-6)
    found, change = accelerated(smooth, HEIGHTS)
    h = 1e-7
    differences = (accelerated(smooth, HEIGHTS + h)[0] - accelerated(smooth, HEIGHTS - h)[0]) / (2 * h)
    assert_allclose(change, differences, rtol=1e-5, atol=1e-5)
    # a force at 1 mm, less at 5 mm, and none at 10 cm
    assert found[2, 5] > found[1, 5] + 0.5 > found[0, 5] + 0.5 and abs(found[0, 5] + 9.81) < 1e-12
    assert not slopes[2].any() and abs(change[2, 5]) > 100
    closed = jax.jit(jax.vmap(lambda z, a: contact.contact_dynamics_derivatives(BALL, smooth, *at(z), a).q[:, 5]))
    assert_allclose(closed(HEIGHTS, found), change, rtol=1e-9, atol=1e-9 * np.abs(change).max())


@pytest.mark.ci
def test_only_derivatives_are_smooth():
    """The implicit function theorem for smooth contacts at the accelerations of hard ones."""
    hard = contacts_of("pyramidal")
    found, change = accelerated(contact.smoothed(hard, WIDTH, derivatives_only=True), HEIGHTS)
    assert_allclose(found, accelerated(hard, HEIGHTS)[0], rtol=1e-12, atol=1e-12)
    smooth = contact.smoothed(hard, WIDTH)
    torque = lambda z, a: contact.contact_inverse_dynamics(BALL, smooth, *at(z), a)
    both = jax.jit(jax.vmap(jax.jacfwd(torque, argnums=(0, 1))))
    by_height, by_acceleration = both(HEIGHTS, found)
    expected = -np.linalg.solve(by_acceleration, by_height[..., None])[..., 0]
    assert_allclose(change, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
    assert np.abs(change[2]).max() > 100

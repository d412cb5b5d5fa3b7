"""The biped in its two forms, and the ground's wrench and the zero moment point by three routes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import derivatives, directions, mechanism_state, once, random_mechanism, random_state, relative
from jaxdyn.spatial.se3 import adjoint, pose_inverse

FIXED = jaxdyn.textbook.biped()
FLOATING = jaxdyn.textbook.biped(floating=True)
TOLERANCE = 1e-10


def com_inertia(parameters):
    """Centre of mass and the inertia about it, of ten parameters; a body without mass has them at its origin."""
    m, h = parameters[0], parameters[1:4]
    xx, xy, yy, xz, yz, zz = parameters[4:]
    c = h / jnp.where(m > 0, m, 1.0)
    about_origin = jnp.asarray([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    return c, about_origin - m * (c @ c * jnp.eye(3) - jnp.outer(c, c))


@once
def by_links(chain, q, v, a):
    """The links' positions, velocities and accelerations of centres, and rates of angular momentum about them: by jvp."""
    centres, inertias = jax.vmap(com_inertia)(chain.inertia)

    def poses(t):
        return jaxdyn.forward_kinematics(chain, jaxdyn.integrate(chain, q, t * v + t**2 / 2 * a))

    def centre(t):
        placed = poses(t)
        return jnp.einsum("nij,nj->ni", placed[:, :3, :3], centres) + placed[:, :3, 3]

    def spin(t):
        rotation, rate = jax.jvp(lambda s: poses(s)[:, :3, :3], (t,), (1.0,))
        turning = jnp.einsum("nij,nkj->nik", rate, rotation)
        omega = jnp.stack([turning[:, 2, 1], turning[:, 0, 2], turning[:, 1, 0]], axis=1)
        return jnp.einsum("nij,njk,nlk,nl->ni", rotation, inertias, rotation, omega)

    velocity = lambda t: jax.jvp(centre, (t,), (1.0,))[1]
    acceleration = jax.jvp(velocity, (0.0,), (1.0,))[1]
    return centre(0.0), acceleration, jax.jvp(spin, (0.0,), (1.0,))[1]


@once
def reaction(chain, q, v, a, external=None):
    wrench = jaxdyn.ground_reaction(chain, q, v, a, external)
    return wrench, jaxdyn.zero_moment_point(wrench)


@once
def torques(chain, q, v, a, external=None):
    return jaxdyn.inverse_dynamics(chain, q, v, a, external)


@once
def pelvis_motion(q, v, a):
    j = jaxdyn.jacobian(FIXED, q, "pelvis")
    change = jaxdyn.jacobian_derivative(FIXED, q, v, "pelvis") @ v
    return jaxdyn.frame_pose(FIXED, q, "pelvis"), j @ v, j @ a + change


def quaternion(rotation):
    """Of a rotation by less than half a turn."""
    w = np.sqrt(1 + np.trace(rotation)) / 2
    skew = (rotation - rotation.T) / (4 * w)
    return np.array([w, skew[2, 1], skew[0, 2], skew[1, 0]])


def floating_state(q, v, a):
    """State of the tree from that of the chain on its left foot."""
    pose, twist, change = (np.asarray(x) for x in pelvis_motion(q, v, a))
    legs = lambda x: np.concatenate([x[4::-1], x[5:]])
    heads = [np.concatenate([pose[:3, 3], quaternion(pose[:3, :3])]), twist, change]
    return [jnp.asarray(np.concatenate([head, legs(np.asarray(x))])) for head, x in zip(heads, (q, v, a), strict=True)]


@functools.cache
def state():
    """A moving biped in single support, with bent knees."""
    rng = np.random.default_rng(3)
    q = np.array([0.1, -0.3, 0.7, -0.4, -0.1, 0.2, -0.6, 0.9, -0.3, 0.15])
    return tuple(jnp.asarray(x) for x in (q, rng.normal(size=10), rng.normal(size=10) * 2))


def test_the_two_forms_are_the_same_robot():
    q, v, a = state()
    free, free_v, free_a = floating_state(q, v, a)
    for frame in ("pelvis", "left_sole", "right_sole", "right_shin", "torso"):
        one, other = jaxdyn.frame_pose(FIXED, q, frame), jaxdyn.frame_pose(FLOATING, free, frame)
        if frame == "torso":  # its frame is at the left hip in one, in the middle in the other
            one, other = one[:3, :3], other[:3, :3]
        assert relative(other, one) < 1e-14
    # the left foot stands still
    j = jaxdyn.jacobian(FLOATING, free, "left_sole")
    assert np.abs(j @ free_v).max() < 1e-13
    assert np.abs(j @ free_a + jaxdyn.jacobian_derivative(FLOATING, free, free_v, "left_sole") @ free_v).max() < 1e-12
    of_foot = FLOATING.inertia[FLOATING.link_names.index("left_foot"), 0]
    assert float(FLOATING.inertia[:, 0].sum() - of_foot) == pytest.approx(float(FIXED.inertia[:, 0].sum()))
    assert float(jaxdyn.kinetic_energy(FLOATING, free, free_v)) == pytest.approx(
        float(jaxdyn.kinetic_energy(FIXED, q, v)), rel=1e-13
    )
    assert [link for link, pi in zip(FIXED.link_names, FIXED.inertia, strict=True) if pi[0] == 0] == [
        "left_ankle", "left_hip", "right_hip", "right_ankle",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["fixed", "floating", "mechanism"])
def test_reaction_and_zero_moment_point_by_the_sums_over_links(name):
    chain, (q, v, a) = {
        "fixed": lambda: (FIXED, state()),
        "floating": lambda: (FLOATING, floating_state(*state())),
        "mechanism": lambda: ((other := random_mechanism(3)), mechanism_state(other, 3)),
    }[name]()
    wrench, zmp = map(np.asarray, reaction(chain, q, v, a))
    m, g = np.asarray(chain.inertia[:, 0]), np.asarray(chain.gravity)
    p, pdd, spin_rate = map(np.asarray, by_links(chain, q, v, a))
    needed = m[:, None] * (pdd - g)
    assert relative(wrench[3:], needed.sum(0)) < TOLERANCE
    assert relative(wrench[:3], (np.cross(p, needed) + spin_rate).sum(0)) < TOLERANCE
    if name != "mechanism":  # gravity along -z: the source's formulas
        (x, y, z), (xdd, ydd, zdd) = p.T, pdd.T
        lifting = m * (zdd - g[2])
        moments = [lifting @ x - m * xdd @ z - spin_rate[:, 1].sum(), lifting @ y - m * ydd @ z + spin_rate[:, 0].sum()]
        assert relative(zmp, np.array(moments) / lifting.sum()) < TOLERANCE


def test_the_floating_tree_gives_the_same_wrench():
    q, v, a = state()
    free, free_v, free_a = floating_state(q, v, a)
    wrench, _ = reaction(FLOATING, free, free_v, free_a)
    pelvis = adjoint(pose_inverse(jaxdyn.frame_pose(FLOATING, free, "torso")))
    needed = torques(FLOATING, free, free_v, free_a)
    assert relative(pelvis.T @ needed[:6], wrench) < TOLERANCE

    # the fixed robot's, and the weight of the foot that stands
    of_chain, _ = reaction(FIXED, q, v, a)
    weight = 1.0 * 9.81
    assert relative(of_chain + weight * np.array([0, -0.03, 0, 0, 0, 1.0]), wrench) < TOLERANCE

    # at the foot, that wrench is all that the free joint lacks, and the joints' torques are those of the fixed robot
    foot = FLOATING.link_names.index("left_foot")
    on_foot = adjoint(jaxdyn.forward_kinematics(FLOATING, free)[foot]).T @ wrench
    acting = jnp.zeros((16, 6)).at[foot].set(on_foot)
    held = np.asarray(torques(FLOATING, free, free_v, free_a, acting))
    fixed = np.asarray(torques(FIXED, q, v, a))
    assert np.abs(held[:6]).max() < TOLERANCE * np.abs(wrench).max()
    assert relative(held[6:], np.concatenate([fixed[4::-1], fixed[5:]])) < TOLERANCE
    assert np.abs(reaction(FLOATING, free, free_v, free_a, acting)[0]).max() < TOLERANCE * np.abs(wrench).max()


def test_at_rest_the_ground_carries_the_weight_below_the_centre_of_mass():
    q, zero = state()[0], jnp.zeros(10)
    for chain, x, rest in ((FIXED, q, zero), (FLOATING, floating_state(q, zero, zero)[0], jnp.zeros(16))):
        wrench, zmp = reaction(chain, x, rest, rest)
        mass = chain.inertia[:, 0]
        centre = mass @ by_links(chain, x, rest, rest)[0] / mass.sum()
        np.testing.assert_allclose(wrench[3:], [0, 0, 9.81 * float(mass.sum())], atol=1e-11)
        assert relative(zmp, centre[:2]) < 1e-12
        # at rest the moment vanishes about any height
        assert relative(jaxdyn.zero_moment_point(wrench, 0.3), centre[:2]) < 1e-12


def test_height_of_the_zero_moment_point():
    rng = np.random.default_rng(1)
    wrench, height = jnp.asarray(rng.normal(size=6)), 0.4
    point = np.append(jaxdyn.zero_moment_point(wrench, height), height)
    moment = wrench[:3] - np.cross(point, wrench[3:])
    assert np.abs(moment[:2]).max() < 1e-13


def test_a_push_is_carried_by_the_ground():
    q, v, a = state()
    push = jnp.zeros((10, 6)).at[4].set(jnp.asarray([1.0, 2, 3, 40, 50, 60]))
    pushed, free = reaction(FIXED, q, v, a, push)[0], reaction(FIXED, q, v, a)[0]
    to_world = adjoint(pose_inverse(jaxdyn.forward_kinematics(FIXED, q)[4])).T
    assert relative(free - pushed, to_world @ push[4]) < TOLERANCE


def test_derivatives_and_types():
    chain = jaxdyn.textbook.planar_elbow(gravity=9.7)
    arguments = (chain, *random_state(2, 4), jnp.ones((2, 6)))
    names, along = directions(arguments)
    values, tangents, reverse, differences = derivatives(
        jaxdyn.ground_reaction, arguments, along, jnp.asarray([1.0, -2, 3, -4, 5, -6])
    )
    weights = np.array([1.0, -2, 3, -4, 5, -6])
    assert relative(tangents, differences) < 1e-7
    assert relative(reverse, tangents @ weights) < 1e-12
    assert len(names) == len(tangents) and np.isfinite(values).all()

    single = jax.tree.map(lambda x: x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x, arguments)
    out = jaxdyn.ground_reaction(*single)
    assert out.dtype == jnp.float32 and jaxdyn.zero_moment_point(out, 0.1).dtype == jnp.float32
    assert relative(out, jaxdyn.ground_reaction(*arguments)) < 1e-5
    batch = jax.vmap(jaxdyn.ground_reaction, (None, 0, 0, 0, None))(
        chain, *(x[None] for x in arguments[1:4]), arguments[4]
    )
    assert relative(batch[0], jaxdyn.ground_reaction(*arguments)) < 1e-13

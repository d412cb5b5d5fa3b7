"""The biped in its two forms, and the ground's wrench and the zero moment point by three routes."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import mechanism_state, once, random_mechanism, random_state, relative
from jaxdyn.spatial.se3 import adjoint, pose_inverse

FIXED = jaxdyn.textbook.biped()
FLOATING = jaxdyn.textbook.biped(floating=True)
TOLERANCE = 1e-10  # of second derivatives by differences


@once
def poses_along(chain, q, v, a, times):
    return jax.vmap(lambda t: jaxdyn.forward_kinematics(chain, jaxdyn.integrate(chain, q, t * v + t**2 / 2 * a)))(times)


@functools.cache
def stencil(step=0.01, reach=5):
    """Times, and the weights of the value, first and second derivative at 0, exact for polynomials of degree 10."""
    k = np.arange(-reach, reach + 1.0)
    weights = np.linalg.inv(np.vander(k, increasing=True).T)[:, :3].T * [[1], [1], [2]]
    return k * step, weights / step ** np.arange(3)[:, None]


def motion_of_poses(chain, q, v, a):
    """Poses of all links with their first and second derivatives in time, by differences."""
    times, weights = stencil()
    poses = np.asarray(poses_along(chain, q, v, a, jnp.asarray(times)))
    return np.einsum("dt,tnij->dnij", weights, poses)


def by_links(chain, q, v, a):
    """The links' centres of mass, the accelerations of these, and the rates of angular momentum about them."""
    motion = motion_of_poses(chain, q, v, a)
    centres, accelerations, spin_rates = [], [], []
    for pi, (t, td, tdd) in zip(np.asarray(chain.inertia), motion.swapaxes(0, 1), strict=True):
        m, h, (xx, xy, yy, xz, yz, zz) = pi[0], pi[1:4], pi[4:]
        c = h / m if m > 0 else h
        about_origin = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        r = t[:3, :3]
        inertia = r @ (about_origin - m * (c @ c * np.eye(3) - np.outer(c, c))) @ r.T
        w, dw = vector(td[:3, :3] @ r.T), vector(tdd[:3, :3] @ r.T)
        centres.append(r @ c + t[:3, 3])
        accelerations.append(tdd[:3, :3] @ c + tdd[:3, 3])
        spin_rates.append(inertia @ dw + np.cross(w, inertia @ w))
    return np.array(centres), np.array(accelerations), np.array(spin_rates)


def vector(matrix):
    """Of the skew part of a matrix."""
    skew = (matrix - matrix.T) / 2
    return np.array([skew[2, 1], skew[0, 2], skew[1, 0]])


@once
def reaction(chain, q, v, a, external=None):
    wrench = jaxdyn.mechanisms.ground_reaction(chain, q, v, a, external)
    return wrench, jaxdyn.mechanisms.zero_moment_point(wrench)


@once
def torques(chain, q, v, a, external=None):
    return jaxdyn.inverse_dynamics(chain, q, v, a, external)


energy = once(jaxdyn.kinetic_energy)
poses_of = once(jaxdyn.forward_kinematics)


@once
def pelvis_motion(q, v, a):
    j = jaxdyn.jacobian(FIXED, q, "pelvis")
    change = jaxdyn.jacobian_derivative(FIXED, q, v, "pelvis") @ v
    return jaxdyn.frame_pose(FIXED, q, "pelvis"), j @ v, j @ a + change


def quaternion(rotation):
    """Of a rotation by less than half a turn."""
    w = np.sqrt(1 + np.trace(rotation)) / 2
    return np.array([w, *vector(rotation) / (2 * w)])


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


@pytest.mark.ci
def test_the_two_forms_are_the_same_robot():
    q, v, a = state()
    free, free_v, free_a = floating_state(q, v, a)
    fixed, tree = (FIXED, motion_of_poses(FIXED, q, v, a)), (FLOATING, motion_of_poses(FLOATING, free, free_v, free_a))

    def frame(robot, name):
        chain, motion = robot
        k = chain.topology.frame_names.index(name)
        return motion[:, chain.topology.frame_links[k]] @ np.asarray(chain.frame_poses[k])

    for name in ("pelvis", "right_sole"):
        assert relative(frame(tree, name), frame(fixed, name)) < 1e-11
    for name in {*FIXED.link_names} & {*FLOATING.link_names} - {"left_hip", "left_ankle"}:
        one, other = (motion[:, chain.link_names.index(name), :3, :3] for chain, motion in (fixed, tree))
        assert relative(other, one) < 1e-11, name
    # the left foot stands still
    np.testing.assert_allclose(frame(tree, "left_sole"), [np.eye(4), np.zeros((4, 4)), np.zeros((4, 4))], atol=1e-10)
    of_foot = FLOATING.inertia[FLOATING.link_names.index("left_foot"), 0]
    assert float(FLOATING.inertia[:, 0].sum() - of_foot) == pytest.approx(float(FIXED.inertia[:, 0].sum()))
    assert float(energy(FLOATING, free, free_v)) == pytest.approx(float(energy(FIXED, q, v)), rel=1e-12)
    virtual = [link for link, pi in zip(FIXED.link_names, FIXED.inertia, strict=True) if pi[0] == 0]
    assert virtual == ["left_ankle", "left_hip", "right_hip", "right_ankle"]


@pytest.mark.parametrize(
    "name", ["fixed", *(pytest.param(x, marks=pytest.mark.nightly) for x in ("floating", "mechanism"))]
)
def test_reaction_and_zero_moment_point_equal_sums_over_links(name):
    chain, (q, v, a) = {
        "fixed": lambda: (FIXED, state()),
        "floating": lambda: (FLOATING, floating_state(*state())),
        "mechanism": lambda: ((other := random_mechanism(3)), mechanism_state(other, 3)),
    }[name]()
    wrench, zmp = map(np.asarray, reaction(chain, q, v, a))
    m, g = np.asarray(chain.inertia[:, 0]), np.asarray(chain.gravity)
    p, pdd, spin_rate = by_links(chain, q, v, a)
    needed = m[:, None] * (pdd - g)
    assert relative(wrench[3:], needed.sum(0)) < TOLERANCE
    assert relative(wrench[:3], (np.cross(p, needed) + spin_rate).sum(0)) < TOLERANCE
    if name != "mechanism":  # gravity along -z: the source's formulas
        (x, y, z), (xdd, ydd, zdd) = p.T, pdd.T
        lifting = m * (zdd - g[2])
        moments = [lifting @ x - m * xdd @ z - spin_rate[:, 1].sum(), lifting @ y - m * ydd @ z + spin_rate[:, 0].sum()]
        assert relative(zmp, np.array(moments) / lifting.sum()) < TOLERANCE


@pytest.mark.nightly
def test_the_floating_tree_gives_the_same_wrench():
    q, v, a = state()
    free, free_v, free_a = floating_state(q, v, a)
    wrench, _ = reaction(FLOATING, free, free_v, free_a)
    poses = poses_of(FLOATING, free)
    pelvis = adjoint(pose_inverse(poses[5]))
    needed = torques(FLOATING, free, free_v, free_a)
    assert relative(pelvis.T @ needed[:6], wrench) < TOLERANCE

    # the fixed robot's, and the weight of the foot that stands
    of_chain, _ = reaction(FIXED, q, v, a)
    weight = 1.0 * 9.81
    assert relative(of_chain + weight * np.array([0, -0.03, 0, 0, 0, 1.0]), wrench) < TOLERANCE

    # at the foot, that wrench is all that the free joint lacks, and the joints' torques are those of the fixed robot
    foot = FLOATING.link_names.index("left_foot")
    on_foot = adjoint(poses[foot]).T @ wrench
    acting = jnp.zeros((16, 6)).at[foot].set(on_foot)
    held = np.asarray(torques(FLOATING, free, free_v, free_a, acting))
    fixed = np.asarray(torques(FIXED, q, v, a))
    assert np.abs(held[:6]).max() < TOLERANCE * np.abs(wrench).max()
    assert relative(held[6:], np.concatenate([fixed[4::-1], fixed[5:]])) < TOLERANCE
    assert np.abs(reaction(FLOATING, free, free_v, free_a, acting)[0]).max() < TOLERANCE * np.abs(wrench).max()


@pytest.mark.ci
def test_a_foot_held_to_the_ground_is_the_fixed_base():
    """A constraint on the sole makes the floating tree move as the fixed chain, and its force is the ground's."""
    q, v, a = state()
    free, free_v, free_a = floating_state(q, v, a)
    fixed = torques(FIXED, q, v, a)
    drives = jnp.concatenate([jnp.zeros(6), fixed[4::-1], fixed[5:]])
    sole = jaxdyn.mechanisms.pose_constraint("left_sole")
    held = once(jaxdyn.mechanisms.constrained_forward_dynamics)(FLOATING, sole, free, free_v, drives)
    assert int(held.rank) == 6 and not held.redundant and held.consistent
    assert relative(held.acceleration, free_a) < TOLERANCE
    assert relative(held.multipliers, reaction(FLOATING, free, free_v, free_a)[0]) < TOLERANCE


def test_at_rest_the_ground_carries_the_weight_below_the_centre_of_mass():
    q, zero = state()[0], jnp.zeros(10)
    for chain, x, rest in ((FIXED, q, zero), (FLOATING, floating_state(q, zero, zero)[0], jnp.zeros(16))):
        wrench, zmp = reaction(chain, x, rest, rest)
        mass = np.asarray(chain.inertia[:, 0])
        centre = mass @ by_links(chain, x, rest, rest)[0] / mass.sum()
        np.testing.assert_allclose(wrench[3:], [0, 0, 9.81 * float(mass.sum())], atol=1e-11)
        assert relative(zmp, centre[:2]) < 1e-12
        # at rest the moment vanishes about any height
        assert relative(jaxdyn.mechanisms.zero_moment_point(wrench, 0.3), centre[:2]) < 1e-12


def test_moments_vanish_at_the_zero_moment_point_of_any_height():
    rng = np.random.default_rng(1)
    wrench, height = jnp.asarray(rng.normal(size=6)), 0.4
    point = np.append(jaxdyn.mechanisms.zero_moment_point(wrench, height), height)
    moment = wrench[:3] - np.cross(point, wrench[3:])
    assert np.abs(moment[:2]).max() < 1e-13


def test_a_push_is_carried_by_the_ground():
    q, v, a = state()
    push = jnp.zeros((10, 6)).at[4].set(jnp.asarray([1.0, 2, 3, 40, 50, 60]))
    pushed, free = reaction(FIXED, q, v, a, push)[0], reaction(FIXED, q, v, a)[0]
    to_world = adjoint(pose_inverse(poses_of(FIXED, q)[4])).T
    assert relative(free - pushed, to_world @ push[4]) < TOLERANCE


@pytest.mark.ci
def test_reaction_and_zero_moment_point_can_be_differentiated_and_keep_their_type():
    chain, rng = jaxdyn.textbook.planar_elbow(gravity=9.7), np.random.default_rng(2)
    arguments = (chain.inertia, *random_state(2, 4), jnp.ones((2, 6)))
    along = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), arguments)
    weights = jnp.asarray([1.0, -2, 3, -4, 5, -6])

    def moved(s):
        inertia, *rest = (x + s * d for x, d in zip(arguments, along, strict=True))
        return jaxdyn.mechanisms.ground_reaction(dataclasses.replace(chain, inertia=inertia), *rest)

    h, compiled = 1e-3, once(moved)
    out = [compiled(s) for s in (-2 * h, -h, h, 2 * h)]
    differences = (out[0] - 8 * out[1] + 8 * out[2] - out[3]) / (12 * h)
    value, tangent, reverse = once(
        lambda: (*jax.jvp(moved, (0.0,), (1.0,)), jax.grad(lambda s: moved(s) @ weights)(0.0))
    )()
    assert relative(tangent, differences) < 1e-9
    assert relative(reverse, tangent @ weights) < 1e-12

    single = jax.tree.map(lambda x: x.astype(jnp.float32), (chain, *arguments[1:]))
    out, zmp = reaction(*single)
    assert out.dtype == zmp.dtype == jnp.float32
    assert relative(out, value) < 1e-5


@pytest.mark.parametrize("floating", [False, True])
def test_the_upright_biped_has_the_centres_and_boxes_of_its_docstring(floating):
    """Centres and boxes by the docstring, at q = 0, where all links have the world's axes."""
    sizes = {"leg_length": 0.4, "hip_width": 0.3, "ankle_height": 0.1}
    chain = jaxdyn.textbook.biped(floating=floating, torso_mass=21.0, thigh_mass=5.0, shin_mass=2.0, **sizes)
    points, parents = np.zeros((chain.n, 3)), chain.topology.parents
    for i, (offset, parent) in enumerate(zip(np.asarray(chain.translation), parents, strict=True)):
        points[i] = offset + (points[parent] if parent >= 0 else [0, -0.15, 0.9] if floating else 0)
    boxes = {"torso": (21.0, [0, -0.15, 0.9 + 0.25], [0.15, 0.25, 0.5])}
    for side, y in (("left", 0.0), ("right", -0.3)):
        boxes[f"{side}_thigh"] = 5.0, [0, y, 0.7], [0.08, 0.08, 0.4]
        boxes[f"{side}_shin"] = 2.0, [0, y, 0.3], [0.08, 0.08, 0.4]
        boxes[f"{side}_foot"] = 1.0, [0.03, y, 0.05], [0.22, 0.12, 0.1]
    seen = set()
    for name, point, pi in zip(chain.link_names, points, chain.inertia, strict=True):
        if pi[0] == 0:
            continue
        seen.add(name)
        mass, centre, edges = boxes[name]
        found = jaxdyn.spatial.inertia.inertial_parameters_to_com(pi)
        squares = np.square(edges)
        for value, expected in zip(
            found, (mass, centre - point, mass / 12 * np.diag(squares.sum() - squares)), strict=True
        ):
            np.testing.assert_allclose(value, expected, atol=1e-12)
    assert seen == set(boxes) - (set() if floating else {"left_foot"})

"""The contact wrench cone: against forces at the corners found by linear programming, and on robots that stand and move."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import linprog

import jaxdyn
from helpers import once

LOWER, UPPER, FRICTION = np.array([-0.08, -0.06]), np.array([0.14, 0.06]), 0.4
CONE = jaxdyn.trajectory.ContactWrenchCone("left_sole", jnp.asarray(LOWER), jnp.asarray(UPPER), jnp.asarray(FRICTION))
BIPED = jaxdyn.textbook.biped()
WEIGHT = 9.81 * float(BIPED.inertia[:, 0].sum())


def a_knot(q, v, tau, ground=None):
    zero = jnp.zeros(())
    return jaxdyn.trajectory.Knot(jnp.zeros((), int), zero, q, v, tau, tau, zero + 0.1, ground)


@once
def value(cone, q, wrench):
    return cone.value(BIPED, a_knot(q, 0 * q, 0 * q, wrench))


def corners_can_give(wrench, shrunk=1.0):
    """True if forces within the pyramids at the sole's corners can produce a wrench (n, f) about the frame's origin."""
    corners = [np.array([x, y, 0]) for x in (LOWER[0], UPPER[0]) for y in (LOWER[1], UPPER[1])]
    balance = np.hstack([np.vstack([np.cross(p, np.eye(3), axisb=0, axisc=0), np.eye(3)]) for p in corners])
    mu = FRICTION * shrunk
    face = np.array([[1, 0, -mu], [-1, 0, -mu], [0, 1, -mu], [0, -1, -mu]])
    slip = np.kron(np.eye(4), face)
    found = linprog(np.zeros(12), slip, np.zeros(16), balance, wrench, bounds=(None, None), method="highs")
    return found.status == 0


def test_the_cone_is_what_forces_at_the_corners_can_give():
    rng = np.random.default_rng(4)
    q = jnp.zeros(10)
    agreed = {True: 0, False: 0}
    for _ in range(150):
        # near the edge of the cone: a wrench of forces at the corners, and something besides
        force = rng.exponential(size=(4, 1)) * np.append(rng.uniform(-1.0, 1.0, 2) * FRICTION, 1.0)[None]
        force[:, :2] += 0.3 * FRICTION * rng.normal(size=(4, 2)) * force[:, 2:]
        corners = np.array([[x, y, 0] for x in (LOWER[0], UPPER[0]) for y in (LOWER[1], UPPER[1])])
        wrench = np.concatenate([np.cross(corners, force).sum(0), force.sum(0)])
        wrench[:3] += 0.03 * rng.normal(size=3)
        largest = float(np.asarray(value(CONE, q, jnp.asarray(wrench))).max()) * WEIGHT
        if abs(largest) > 1e-9:
            assert corners_can_give(wrench) == (largest < 0), (wrench, largest)
            agreed[largest < 0] += 1
    assert min(agreed.values()) > 30


def test_the_wrench_is_the_one_of_the_motion():
    """Of torques alone, and as a solver gives it; about the middle of the sole, with the weight of the foot."""
    rng = np.random.default_rng(5)
    q = jnp.array([0.1, -0.3, 0.7, -0.4, -0.1, 0.2, -0.6, 0.9, -0.3, 0.15])
    v, a = (jnp.asarray(rng.normal(size=10)) for _ in range(2))
    foot = jnp.array([0, -0.3, 0, 0, 0, 10.0])
    cone = jaxdyn.trajectory.ContactWrenchCone("left_sole", LOWER, UPPER, FRICTION, foot)
    tau = once(lambda q, v, a: jaxdyn.inverse_dynamics(BIPED, q, v, a) + jaxdyn.resistive_force(BIPED, q, v))(q, v, a)
    ground = once(lambda q, v, a: jaxdyn.mechanisms.ground_reaction(BIPED, q, v, a))(q, v, a)
    of_torques = once(lambda q, v, tau: cone.wrench(BIPED, a_knot(q, v, tau)))(q, v, tau)
    given = cone.wrench(BIPED, a_knot(q, v, tau, ground))
    middle = np.array([0.03, 0, 0])
    moment, force = np.split(np.asarray(ground + foot), 2)
    expected = np.concatenate([moment - np.cross(middle, force), force])
    assert_allclose(given, expected, rtol=1e-12, atol=1e-9)
    # the cone's inequalities, over the weight and, of moments, over half of the sole's length and width together
    (nx, ny, nz), (fx, fy, fz), (x, y), mu = *expected.reshape(2, 3), (0.11, 0.06), FRICTION
    forces = [-fz, -fx - mu * fz, fx - mu * fz, -fy - mu * fz, fy - mu * fz]
    tipping = [-nx - y * fz, nx - y * fz, -ny - x * fz, ny - x * fz]
    turning = [
        nz * sign + s * (y * fx + sign * mu * nx) + t * (x * fy + sign * mu * ny) - mu * (x + y) * fz
        for sign in (-1, 1)
        for s in (-1, 1)
        for t in (-1, 1)
    ]
    rows = np.array([*forces, *(m / (x + y) for m in (*tipping, *turning))]) / WEIGHT
    assert_allclose(cone.value(BIPED, a_knot(q, v, tau, ground)), rows, rtol=1e-9, atol=1e-12)
    assert_allclose(of_torques, expected, rtol=1e-9, atol=1e-8)


def test_the_wrench_in_a_turned_sole_equals_the_sum_over_links():
    """In the axes of a moving frame; the force is the mass times the acceleration of the centre of mass less gravity."""
    rng = np.random.default_rng(6)
    q, v, a = (jnp.asarray(rng.normal(size=10)) * scale for scale in (0.3, 1.0, 2.0))
    cone = jaxdyn.trajectory.ContactWrenchCone("right_sole", LOWER, UPPER, FRICTION)

    @once
    def both(q, v, a):
        ground = jaxdyn.mechanisms.ground_reaction(BIPED, q, v, a)
        centre = lambda t: jaxdyn.centre_of_mass(BIPED, q + t * v + t**2 / 2 * a)
        rate = lambda t: jax.jvp(centre, (t,), (1.0,))[1]
        sole = jaxdyn.frame_pose(BIPED, q, "right_sole")
        wrench = cone.wrench(BIPED, a_knot(q, v, a, ground))
        return wrench, ground, sole, jax.jvp(rate, (0.0,), (1.0,))[1] - BIPED.gravity

    wrench, ground, sole, acceleration = map(np.asarray, both(q, v, a))
    rotation, origin = sole[:3, :3], sole[:3, 3] + sole[:3, :3] @ [0.03, 0, 0]
    force = WEIGHT / 9.81 * acceleration
    assert_allclose(wrench[3:], rotation.T @ force, rtol=1e-9, atol=1e-8)
    assert_allclose(wrench[:3], rotation.T @ (ground[:3] - np.cross(origin, force)), rtol=1e-9, atol=1e-8)


def test_the_contact_cone_limits_the_normal_force_from_below():
    q = jnp.zeros(10)
    light = jaxdyn.trajectory.ContactWrenchCone("left_sole", LOWER, UPPER, FRICTION, least_force=30.0)
    ground = jnp.array([0, -0.03 * 20.0, 0, 0, 0, 20.0])
    assert float(value(CONE, q, ground).max()) < 0
    assert_allclose(float(value(light, q, ground).max()), 10.0 / WEIGHT, rtol=1e-12)


@pytest.mark.parametrize(
    ("moment", "force", "row"),
    [
        ((0, 0, 0), (FRICTION, 0, 1), 2),
        ((0, 0, 0), (-FRICTION, 0, 1), 1),
        ((0, 0, 0), (0, FRICTION, 1), 4),
        ((0, 0, 0), (0, -FRICTION, 1), 3),
        ((0.06, 0, 0), (0, 0, 1), 6),
        ((-0.06, 0, 0), (0, 0, 1), 5),
        ((0, 0.11, 0), (0, 0, 1), 8),
        ((0, -0.11, 0), (0, 0, 1), 7),
    ],
    ids=str,
)
def test_each_way_to_slip_and_to_tip_has_its_row(moment, force, row):
    """At the edge of the pyramid, or of the sole, one inequality alone is tight; a little beyond it is violated."""
    moment, force = 50.0 * np.array(moment, float), 50.0 * np.array(force, float)
    about_the_frame = np.concatenate(
        [moment + np.cross([0.03, 0, 0], force), force]
    )  # the sole's middle is off the frame
    at_the_edge = np.asarray(value(CONE, jnp.zeros(10), jnp.asarray(about_the_frame)))
    assert abs(at_the_edge[row]) < 1e-15
    assert np.delete(at_the_edge, row).max() < (1e-15 if moment.any() else -1e-3)
    beyond = np.concatenate([1.01 * moment + np.cross([0.03, 0, 0], force), force])
    beyond[3:5] *= 1.01
    beyond[:3] += np.cross([0.03, 0, 0], beyond[3:] - force)
    assert np.asarray(value(CONE, jnp.zeros(10), jnp.asarray(beyond)))[row] > 1e-5

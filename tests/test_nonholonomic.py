"""Particles under constraints, and constraints of velocities: against formulas by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import once
from jaxdyn import mechanisms
from jaxdyn.mechanisms import nonholonomic


def wire(chain, q, length):
    return jnp.sum((q[:3] - q[3:]) ** 2)[None] - length**2


def test_a_vertical_particle_obeys_newtons_law():
    """m ydd + m g = f (Spong, Hutchinson & Vidyasagar 2020, (6.1)), with x and y held."""
    chain = nonholonomic.particles([1.7], gravity=9.7)
    hold = mechanisms.FunctionConstraint(None, lambda chain, q, _: q[:2])
    q, f = jnp.asarray([0.0, 0, 0.3]), jnp.asarray([3.0, -2, 20.0])
    got = once(lambda q, f: mechanisms.constrained_forward_dynamics(chain, hold, q, 0 * q, f))(q, f)
    np.testing.assert_allclose(got.acceleration, [0, 0, (20 - 1.7 * 9.7) / 1.7], atol=1e-12)
    np.testing.assert_allclose(got.multipliers, [-3, 2], atol=1e-12)  # the walls take what pushes sideways


def test_two_particles_on_a_wire_have_the_force_of_the_book():
    """The wire pulls along r1 - r2 by the c of the book; d'Alembert's equation holds for every virtual displacement."""
    m1, m2, length, g = 1.2, 0.7, 0.9, 9.7
    chain = nonholonomic.particles([m1, m2], gravity=g)
    constraint = mechanisms.FunctionConstraint(jnp.asarray(length), wire)
    rng = np.random.default_rng(0)
    r1, along = rng.normal(size=3), rng.normal(size=3)
    along *= length / np.linalg.norm(along)
    q = jnp.asarray([*r1, *(r1 - along)])
    v1, v2 = rng.normal(size=(2, 3))
    v2 = v2 + along * (along @ (v1 - v2)) / length**2
    qd, f = jnp.asarray([*v1, *v2]), jnp.asarray(rng.normal(size=6))

    @once
    def found(q, qd, f):
        dynamics = mechanisms.constrained_forward_dynamics(chain, constraint, q, qd, f)
        chosen = mechanisms.independent_coordinates(chain, constraint, q, (0, 1, 2, 3, 4))
        return dynamics, chosen, mechanisms.constraint_jacobian(chain, constraint, q)

    got, displacements, jacobian = found(q, qd, f)
    # (r1 - r2) . (dr1 - dr2) = 0 for virtual displacements
    np.testing.assert_allclose(along @ (displacements[:3] - displacements[3:]), np.zeros(5), atol=1e-12)
    applied = np.asarray(f) - np.array([0, 0, m1 * g, 0, 0, m2 * g])
    momentum_rate = np.array([m1, m1, m1, m2, m2, m2]) * np.asarray(got.acceleration)
    np.testing.assert_allclose(displacements.T @ (applied - momentum_rate), np.zeros(5), atol=1e-11)
    # by hand: m_i a_i = f_i +- c (r1 - r2) with |r1 - r2| constant
    relative_force = applied[:3] / m1 - applied[3:] / m2
    c = -((v1 - v2) @ (v1 - v2) + along @ relative_force) / (length**2 * (1 / m1 + 1 / m2))
    by_hand = [*(applied[:3] + c * along) / m1, *(applied[3:] - c * along) / m2]
    np.testing.assert_allclose(got.acceleration, by_hand, atol=1e-11)
    force = jacobian.T @ got.multipliers
    np.testing.assert_allclose(force, [*(c * along), *(-c * along)], atol=1e-11)
    assert abs(force @ displacements[:, 0]) < 1e-11  # which does no virtual work


def test_a_pendulum_made_of_a_particle_has_the_generalised_forces_of_the_book():
    """psi = f . dr/dq, and m l^2 qdd = psi for a particle on a rod (q from hanging, in the x-z plane)."""
    m, length, g = 0.8, 0.6, 9.7
    place = lambda q: jnp.stack([length * jnp.sin(q), 0 * q, -length * jnp.cos(q)])
    chain = nonholonomic.particles([m], gravity=g)
    held = mechanisms.FunctionConstraint(jnp.asarray(length), lambda chain, r, x: jnp.stack([r @ r - x**2, r[1]]))

    @once
    def found(q, qd):
        r, rd = jax.jvp(place, (q,), (qd,))
        a = mechanisms.constrained_forward_dynamics(chain, held, r, rd, jnp.zeros(3)).acceleration
        gravity = -jaxdyn.gravity_force(chain, r)
        return a, jax.jvp(place, (q,), (jnp.ones(()),))[1], gravity, rd

    q, qd = 0.7, 1.3
    a, slope, gravity, _ = found(jnp.asarray(q), jnp.asarray(qd))
    qdd = -g / length * np.sin(q)
    np.testing.assert_allclose(slope @ gravity, -m * g * length * np.sin(q), atol=1e-12)  # psi
    tangent, normal = np.array([np.cos(q), 0, np.sin(q)]), np.array([-np.sin(q), 0, np.cos(q)])
    np.testing.assert_allclose(a, length * (qdd * tangent + qd**2 * normal), atol=1e-11)


@pytest.mark.ci
def test_a_knife_edge_goes_across_the_slope():
    """The closed form; the force across the edge; and what it does no work on: the energy."""
    slope, w, g, m = 0.4, 1.5, 9.7, 1.3
    chain, edge = nonholonomic.knife_edge(mass=m, inertia=0.2, slope=slope, gravity=g)
    start = jnp.zeros(3), jnp.asarray([0.0, 0, w])

    @once
    def found(q, qd):
        roll = mechanisms.constrained_rollout(chain, edge, q, qd, jnp.zeros((400, 3)), 5e-3, every=100)
        at = mechanisms.constrained_forward_dynamics(chain, edge, roll[0][2], roll[1][2], jnp.zeros(3))
        energy = jax.vmap(lambda *x: jaxdyn.total_energy(chain, *x))(*roll)
        rows = jax.vmap(lambda q, v: mechanisms.constraint_jacobian(chain, edge, q) @ v)(*roll)
        return roll, at, energy, rows

    (q, _), at, energy, rows = found(*start)
    t = np.linspace(0, 2, 5)
    h = w * t
    fall = g * np.sin(slope) / (2 * w**2)
    exact = np.stack([fall * np.sin(h) ** 2, fall * (h - np.sin(2 * h) / 2), h], 1)
    np.testing.assert_allclose(q, exact, atol=1e-9)
    np.testing.assert_allclose(energy, energy[0] * np.ones(5), atol=1e-9)
    assert np.abs(rows).max() < 1e-13
    # along the edge u = g sin(slope) sin(h) / w; across it lambda = -(m u w + m g sin(slope) sin h)
    push = -2 * m * g * np.sin(slope) * np.sin(h[2])
    np.testing.assert_allclose(at.multipliers, [push], atol=1e-9)


@pytest.mark.ci
def test_a_coin_rolls_in_circles():
    """Constant rates and a circle of the radius R sd / hd; driven, (J + m R^2) sdd is the torque."""
    m, radius, j, i = 1.3, 0.2, 0.03, 0.02
    chain, rolling = nonholonomic.rolling_coin(mass=m, radius=radius, spin_inertia=j, turn_inertia=i)
    hd, sd = 0.9, 4.0
    start = jnp.asarray([0.0, -radius * sd / hd, 0, 0]), jnp.asarray([radius * sd, 0, hd, sd])

    @once
    def found(q, qd):
        roll = mechanisms.constrained_rollout(chain, rolling, q, qd, jnp.zeros((400, 4)), 5e-3, every=100)
        pushed = mechanisms.constrained_forward_dynamics(chain, rolling, q, qd, jnp.asarray([0.0, 0, 0.4, 0.7]))
        back = mechanisms.project_velocity(chain, rolling, q, qd + jnp.asarray([0.1, 0.2, 0, 0]))
        moved = mechanisms.project_configuration(chain, rolling, q).configuration
        reduced = mechanisms.reduced_forward_dynamics(
            chain, rolling, q, qd[2:], jnp.asarray([0.0, 0, 0.4, 0.7]), ("heading", "spin")
        )
        return roll, pushed, back, moved, reduced

    (q, qd), pushed, back, moved, reduced = found(*start)
    h = hd * np.linspace(0, 2, 5)
    reach = radius * sd / hd
    np.testing.assert_allclose(q, np.stack([reach * np.sin(h), -reach * np.cos(h), h, sd * h / hd], 1), atol=1e-9)
    np.testing.assert_allclose(qd[:, 2:], np.tile([hd, sd], (5, 1)), atol=1e-12)
    sdd = 0.7 / (j + m * radius**2)
    np.testing.assert_allclose(pushed.acceleration, [radius * sdd, radius * sd * hd, 0.4 / i, sdd], atol=1e-11)
    np.testing.assert_allclose(pushed.multipliers, [m * radius * sdd, m * radius * sd * hd], atol=1e-11)
    np.testing.assert_allclose(reduced, [0.4 / i, sdd], atol=1e-11)
    np.testing.assert_allclose(jaxdyn.frame_pose(chain, start[0])[:3, 3], [0, -reach, 0], atol=1e-12)
    np.testing.assert_allclose([back[0] - radius * back[3], back[1]], [0, 0], atol=1e-12)
    np.testing.assert_array_equal(moved, start[0])


def test_both_nonholonomic_examples_have_the_accelerations_by_hand():
    """At heading h the edge lets through what lies along it; the coin rolls R sd along its heading."""
    slope, w, g, m, h = 0.4, 1.5, 9.7, 1.3, 0.6
    chain, edge = nonholonomic.knife_edge(mass=m, inertia=0.2, slope=slope, gravity=g)
    u, along = 0.8, np.array([np.cos(h), np.sin(h)])
    q, qd = jnp.asarray([0.1, -0.2, h]), jnp.asarray([*(u * along), w])
    got = once(lambda q, qd: mechanisms.constrained_forward_dynamics(chain, edge, q, qd, 0 * q))(q, qd)
    down = g * np.sin(slope) * np.array([1.0, 0.0])
    wanted = (down @ along) * along + u * w * np.array([-np.sin(h), np.cos(h)])
    np.testing.assert_allclose(got.acceleration, [*wanted, 0], atol=1e-12)
    radius, j, sd, hd = 0.2, 0.03, 4.0, 0.9
    coin, rolling = nonholonomic.rolling_coin(mass=m, radius=radius, spin_inertia=j, turn_inertia=0.02)
    q, qd = jnp.asarray([0.1, -0.2, h, 0.3]), jnp.asarray([*(radius * sd * along), hd, sd])
    got = once(lambda q, qd: mechanisms.constrained_forward_dynamics(coin, rolling, q, qd, 0 * q))(q, qd)
    np.testing.assert_allclose(
        got.acceleration, [*(radius * sd * hd * np.array([-along[1], along[0]])), 0, 0], atol=1e-12
    )


def test_a_system_without_particles_is_refused():
    with pytest.raises(jaxdyn.ModelError, match="no particles"):
        nonholonomic.particles([])

"""The textbooks' robots against their closed forms, derived by hand (seed formulas with their slips corrected)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import compiled, numbered, relative
from jaxdyn import textbook

TOLERANCE = 1e-12
slope = jax.jit(jax.grad(jaxdyn.potential_energy, argnums=1))


def terms(chain, q, qd):
    """M, C, h and g as numpy arrays."""
    q, qd = jnp.asarray(q, float), jnp.asarray(qd, float)
    values = (
        compiled.mass_matrix(chain, q),
        compiled.coriolis_matrix(chain, q, qd),
        compiled.coriolis_force(chain, q, qd),
        compiled.gravity_force(chain, q),
    )
    return [np.asarray(x) for x in values]


def near(x, y):
    assert np.shape(x) == np.shape(y)
    np.testing.assert_allclose(x, y, rtol=0, atol=TOLERANCE * max(1.0, np.abs(y).max()))


def test_planar_2r_has_the_corrected_equations_of_motion():
    m1, m2, l1, l2, gravity = 1.7, 0.9, 0.6, 0.8, 9.7
    chain = textbook.planar_2r_point_masses(m1=m1, m2=m2, l1=l1, l2=l2, gravity=gravity)
    (q1, q2), (w1, w2), (a1, a2) = q, qd, qdd = np.array([[0.4, -1.1], [0.7, -1.3], [2.0, 0.3]])
    s2, c1, c2, c12 = np.sin(q2), np.cos(q1), np.cos(q2), np.cos(q1 + q2)
    tau1 = ((m1 + m2) * l1**2 + m2 * (2 * l1 * l2 * c2 + l2**2)) * a1 + m2 * (l1 * l2 * c2 + l2**2) * a2
    tau1 += -m2 * l1 * l2 * s2 * (2 * w1 * w2 + w2**2) + (m1 + m2) * l1 * gravity * c1 + m2 * gravity * l2 * c12
    tau2 = m2 * (l1 * l2 * c2 + l2**2) * a1 + m2 * l2**2 * a2 + m2 * l1 * l2 * w1**2 * s2 + m2 * gravity * l2 * c12
    near(compiled.inverse_dynamics(chain, *map(jnp.asarray, (q, qd, qdd))), [tau1, tau2])
    m, c, _, _ = terms(chain, q, qd)
    near(np.linalg.det(m), m2 * l1**2 * l2**2 * (m1 + m2 * s2**2))
    near(c, m2 * l1 * l2 * s2 * np.array([[-w2, -w1 - w2], [w1, 0]]))
    tip = [l1 * c1 + l2 * c12, l1 * np.sin(q1) + l2 * np.sin(q1 + q2), 0]
    near(compiled.frame_pose(chain, jnp.asarray(q))[:3, 3], tip)


def test_the_planar_elbow_has_the_equations_of_its_docstring():
    p = {"m1": 1.2, "m2": 0.8, "l1": 0.7, "l2": 0.5, "lc1": 0.3, "lc2": 0.2, "i1": 0.05, "i2": 0.03, "gravity": 9.6}
    m1, m2, l1, _, lc1, lc2, i1, i2, gravity = p.values()
    (q1, q2), (w1, w2) = q, qd = np.array([[-0.3, 0.9], [1.1, -0.6]])
    m, c, h, g = terms(textbook.planar_elbow(**p), q, qd)
    k = m2 * l1 * lc2
    m11 = m1 * lc1**2 + m2 * (l1**2 + lc2**2) + 2 * k * np.cos(q2) + i1 + i2
    m12, m22 = m2 * lc2**2 + k * np.cos(q2) + i2, m2 * lc2**2 + i2
    christoffel = k * np.sin(q2) * np.array([[-w2, -w1 - w2], [w1, 0]])
    near(m, [[m11, m12], [m12, m22]])
    near(c, christoffel)
    near(h, christoffel @ qd)
    last = m2 * lc2 * gravity * np.cos(q1 + q2)
    near(g, [(m1 * lc1 + m2 * l1) * gravity * np.cos(q1) + last, last])


def test_cartesian_arm_is_constant_and_gravity_acts_along_the_first_joint():
    m, c, h, g = terms(textbook.cartesian_two_link(m1=2.0, m2=0.7, gravity=9.5), [0.3, -0.4], [1.0, 2.0])
    near(m, [[2.7, 0], [0, 0.7]])
    near(c, np.zeros((2, 2)))
    near(h, np.zeros(2))
    near(g, [2.7 * 9.5, 0])
    poses = jaxdyn.forward_kinematics(textbook.cartesian_two_link(), np.array([0.3, -0.4]))
    near(poses[:, :3, 3], [[0, 0, 0.3], [-0.4, 0, 0.3]])


def test_the_geared_link_has_the_equation_of_its_docstring():
    chain = textbook.single_link(
        mass=1.5,
        com_distance=0.4,
        link_inertia=0.3,
        motor_inertia=2e-4,
        gear_ratio=50.0,
        motor_damping=1e-4,
        link_damping=0.02,
        gravity=9.8,
    )
    q, qd, qdd = (jnp.asarray([x]) for x in (0.8, -1.4, 0.6))
    tau = compiled.inverse_dynamics(chain, q, qd, qdd) + compiled.friction_force(chain, qd)
    inertia = 0.3 + 50.0**2 * 2e-4
    near(compiled.mass_matrix(chain, q), [[inertia]])
    near(tau, inertia * qdd + (50.0**2 * 1e-4 + 0.02) * qd + 1.5 * 9.8 * 0.4 * np.sin(q))
    lifted = compiled.potential_energy(chain, q) - compiled.potential_energy(chain, 0 * q)
    near(lifted, 1.5 * 9.8 * 0.4 * (1 - np.cos(0.8)))
    lost = 1e-4 * (50.0 * qd) ** 2 + 0.02 * qd**2  # at the motor's shaft and at the link's
    near(compiled.friction_force(chain, qd) * qd, lost)
    with pytest.raises(jaxdyn.ModelError, match="parallel-axis"):
        textbook.single_link(mass=1.0, com_distance=1.0, link_inertia=0.5)


@pytest.mark.ci
def test_the_spherical_arm_has_the_equations_of_its_docstring():
    m1, m2, lc1, i1, i2, turret, gravity = 1.3, 0.6, 0.35, 0.04, 0.01, 0.07, 9.7
    chain = textbook.spherical_rrp(m1=m1, m2=m2, lc1=lc1, i1=i1, i2=i2, turret_inertia=turret, gravity=gravity)
    (q1, q2, r), (w1, w2, v) = q, qd = np.array([[0.5, 0.7, 0.9], [1.2, -0.8, 0.4]])
    m, _, h, g = terms(chain, q, qd)
    s, c = np.sin(q2), np.cos(q2)
    a = m1 * lc1**2 + i1 + m2 * r**2 + i2
    near(m, np.diag([a * c**2 + turret, a, m2]))
    near(
        h,
        [
            2 * c * w1 * (m2 * r * c * v - a * s * w2),
            2 * m2 * r * v * w2 + a * s * c * w1**2,
            -m2 * r * (w2**2 + c**2 * w1**2),
        ],
    )
    near(g, gravity * np.array([0, (m1 * lc1 + m2 * r) * c, m2 * s]))
    near(compiled.frame_pose(chain, jnp.asarray(q))[:3, 3], r * np.array([c * np.cos(q1), c * np.sin(q1), s]))


@pytest.mark.ci
def test_spherical_arm_without_turret_is_singular_straight_up():
    up = terms(textbook.spherical_rrp(), [0.2, np.pi / 2, 0.5], [0, 0, 0])[0]
    assert abs(np.linalg.det(up)) < 1e-15
    assert np.linalg.det(terms(textbook.spherical_rrp(), [0.2, 1.0, 0.5], [0, 0, 0])[0]) > 1e-3


def lagrange_force(mass_matrix, potential, q, qd):
    """h and g of the Euler-Lagrange equations, by automatic differentiation of closed-form M and P."""
    q, qd = jnp.asarray(q), jnp.asarray(qd)
    kinetic = lambda q, qd: 0.5 * qd @ mass_matrix(q) @ qd
    h = jax.jvp(lambda q: mass_matrix(q) @ qd, (q,), (qd,))[1] - jax.grad(kinetic)(q, qd)
    return np.asarray(h), np.asarray(jax.grad(potential)(q))


def test_the_pendulum_with_three_joints_has_the_equations_of_its_docstring():
    p = {"m1": 0.9, "m2": 0.7, "l1": 0.8, "lc1": 0.5, "lc2": 0.3, "i1": 0.05, "i2": 0.02, "l2": 0.6, "gravity": 9.7}
    m1, m2, l1, lc1, lc2, i1, i2, l2, gravity = p.values()

    def reach(q):
        return l1 * jnp.cos(q[1]) + lc2 * jnp.cos(q[1] + q[2])

    def mass_matrix(q):
        c2, c3, c23 = jnp.cos(q[1]), jnp.cos(q[2]), jnp.cos(q[1] + q[2])
        m11 = (m1 * lc1**2 + i1) * c2**2 + m2 * reach(q) ** 2 + i2 * c23**2
        m22 = m1 * lc1**2 + i1 + m2 * (l1**2 + lc2**2 + 2 * l1 * lc2 * c3) + i2
        m23, zero = m2 * (lc2**2 + l1 * lc2 * c3) + i2, 0 * c3
        m33 = zero + m2 * lc2**2 + i2
        return jnp.stack([jnp.stack(x) for x in ([m11, zero, zero], [zero, m22, m23], [zero, m23, m33])])

    def potential(q):
        return -gravity * jnp.cos(q[0]) * (m1 * lc1 * jnp.cos(q[1]) + m2 * reach(q))

    q, qd = np.array([[0.4, -0.7, 1.1], [0.9, 1.2, -0.8]])
    chain = textbook.pendulum_3dof(**p)
    m, _, h, g = terms(chain, q, qd)
    near(m, mass_matrix(jnp.asarray(q)))
    h_closed, g_closed = lagrange_force(mass_matrix, potential, q, qd)
    near(h, h_closed)
    near(g, g_closed)
    near(compiled.frame_pose(chain, jnp.zeros(3))[:3, 3], [0, 0, -l1 - l2])


@pytest.mark.parametrize(
    "n", [pytest.param(1, marks=pytest.mark.nightly), 2, pytest.param(5, marks=pytest.mark.nightly)]
)
def test_a_pendulum_of_n_links_has_the_energies_of_its_docstring(n):
    rng = np.random.default_rng(n)
    m, ll = rng.uniform(0.5, 1.5, n), rng.uniform(0.2, 0.8, n)
    lc, moment, q, qd = ll * rng.uniform(0.2, 1, n), rng.uniform(0.01, 0.1, n), rng.normal(size=n), rng.normal(size=n)
    beyond = np.array([m[i + 1 :].sum() for i in range(n)])
    w = np.diag(m * lc**2 + moment + ll**2 * beyond)
    for i in range(n):
        for j in range(i + 1, n):
            w[i, j] = w[j, i] = m[j] * ll[i] * lc[j] + ll[i] * ll[j] * beyond[j]
    chain = textbook.pendulum(n, mass=m, length=ll, com_distance=lc, inertia=moment, gravity=9.7)

    def mass_matrix(q):
        b = jnp.cumsum(q)
        lower = jnp.tril(jnp.ones((n, n)))
        return lower.T @ (w * jnp.cos(b[:, None] - b[None, :])) @ lower

    def potential(q):
        return -9.7 * jnp.sum((m * lc + ll * beyond) * jnp.cos(jnp.cumsum(q)))

    got_m, _, h, g = terms(chain, q, qd)
    h_closed, g_closed = lagrange_force(mass_matrix, potential, q, qd)
    near(got_m, mass_matrix(jnp.asarray(q)))
    near(h, h_closed)
    near(g, g_closed)
    height = -np.sum(ll * np.cos(np.cumsum(q)))
    near(compiled.frame_pose(chain, jnp.asarray(q))[2, 3], height)


def test_pendulum_defaults_are_uniform_rods_and_point_masses_can_be_asked_for():
    rod = textbook.pendulum(mass=2.0, length=0.6).inertia[0]
    point = textbook.pendulum(mass=2.0, length=0.6, com_distance=0.6, inertia=0.0).inertia[0]
    near(rod[jnp.array([0, 3, 4])], [2.0, -2.0 * 0.3, 2.0 * 0.6**2 / 3])  # mass, its moment, Ixx about the joint
    near(point[jnp.array([0, 3, 4])], [2.0, -2.0 * 0.6, 2.0 * 0.6**2])
    near(textbook.pendulum(3, damping=0.1).friction.viscous, [0.1] * 3)


def test_a_pendulum_refuses_bad_arguments():
    with pytest.raises(jaxdyn.ModelError, match="at least one"):
        textbook.pendulum(0)
    with pytest.raises(jaxdyn.ModelError, match="length has shape"):
        textbook.pendulum(3, length=[1.0, 2.0])


@pytest.mark.parametrize(
    "make",
    [
        textbook.planar_2r_point_masses,
        textbook.planar_elbow,
        textbook.cartesian_two_link,
        textbook.single_link,
        textbook.spherical_rrp,
        textbook.pendulum_3dof,
        textbook.pendulum,
    ],
)
def test_defaults_build_and_move_as_they_should(make):
    chain = make()
    q = jnp.full(chain.n, 0.3)
    m, _, _, g = terms(chain, q, q)
    assert np.linalg.eigvalsh(m).min() > 0
    assert relative(g, slope(numbered(chain)[0], q)) < 1e-12

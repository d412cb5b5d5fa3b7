"""Quantities of small arms: singularities, gradients, trajectories, bounds of the mass matrix, and a moving base point."""

import dataclasses
import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import once, random_chain, random_inertia, random_rotation, relative
from jaxdyn import Coupling, Topology, Transmission, textbook
from jaxdyn.dynamics.operational_space_dynamics import pseudo_inverse, symmetric_pseudo_inverse

mass_matrix_bounds = importlib.import_module("jaxdyn.dynamics.eigenvalue_bounds")


@pytest.fixture(scope="module")
def arm():
    return random_chain(3, 2)


@once
def task_forms(chain, q, v, damping):
    """The operational space by pseudo-inverse and damped, at some configurations."""

    def one(q):
        return {
            "J": jaxdyn.jacobian(chain, q),
            "dJ v": jaxdyn.jacobian_derivative(chain, q, v) @ v,
            "M": jaxdyn.crba(chain, q),
            "bias": jaxdyn.bias_force(chain, q, v),
            "space": tuple(jaxdyn.dynamics.operational_space(chain, q, v)),
            "rate": jax.jvp(lambda x: tuple(jaxdyn.dynamics.operational_space(chain, x, v))[:3], (q,), (v,))[1],
            "eta": jaxdyn.dynamics.operational_space_bias(chain, q, v, damping=damping),
            "J_bar": jaxdyn.dynamics.dynamically_consistent_inverse(chain, q, damping=damping),
        }

    return jax.vmap(one)(q)


@pytest.mark.nightly
def test_the_operational_space_of_few_joints_has_their_rank():
    """A planar arm of three joints reaches three directions, and stretched two."""
    rng, h = np.random.default_rng(1), 1e-4
    chain = jaxdyn.make_chain(
        rotation=[np.eye(3)] * 3,
        translation=[[0, 0, 0], [0.5, 0, 0], [0.4, 0, 0]],
        screw=[[0, 0, 1, 0, 0, 0]] * 3,
        inertia=[random_inertia(rng) for _ in range(3)],
        frames={"tool": (2, [[1, 0, 0, 0.3], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])},
        topology=Topology.serial(3, tip_name="tool"),
    )
    q, v, tau = jnp.asarray(rng.normal(size=(3, 3)))
    damping = jnp.asarray([0.1, 0.1, 0.1, 0.02, 0.02, 0.02])
    points = jnp.stack([jnp.zeros(3), q, q - h * v, q + h * v])
    x = jax.tree.map(np.asarray, task_forms(chain, points, v, damping))
    assert x["space"][3].tolist() == [2, 3, 3, 3]
    for i in range(2):
        j, mass = x["J"][i], x["M"][i]
        inertia, bias, inverse, _ = (part[i] for part in x["space"])
        mobility = j @ np.linalg.solve(mass, j.T)
        assert relative(inertia, np.linalg.pinv(mobility, rcond=1e-10, hermitian=True)) < 1e-9
        assert relative(inverse, np.linalg.solve(mass, j.T) @ inertia) < 1e-9
        # F = Lambda dV/dt + eta moves the frame as torques do, in the directions that there are
        wrench = inertia @ (j @ np.linalg.solve(mass, tau - x["bias"][i]) + x["dJ v"][i]) + bias
        assert relative(j @ np.linalg.solve(mass, j.T @ wrench), j @ np.linalg.solve(mass, tau)) < 1e-9
        assert i == 0 or relative(j.T @ wrench, tau) < 1e-9
        damped = np.linalg.inv(mobility + np.diag(damping))
        assert relative(x["J_bar"][i], np.linalg.solve(mass, j.T) @ damped) < 1e-10
        assert relative(x["eta"][i], x["J_bar"][i].T @ x["bias"][i] - damped @ x["dJ v"][i]) < 1e-10
        assert all(np.isfinite(part[i]).all() for part in x["rate"])
    for part, rate in zip(x["space"][:3], x["rate"], strict=True):
        assert relative(rate[1], (part[3] - part[2]) / (2 * h)) < 1e-5


@pytest.mark.ci
def test_operational_space_of_six_joints_is_that_of_dense_matrices():
    """Lambda = (J M^-1 J^T)^-1, eta and J_bar, plain and damped, by numpy."""
    chain, q, v = random_chain(6, 3), jnp.linspace(-1.0, 1.0, 6), jnp.linspace(0.5, -0.4, 6)
    damping = jnp.asarray([0.1, 0.1, 0.1, 0.02, 0.02, 0.03])

    @once
    def of(q, v):
        pieces = jaxdyn.jacobian(chain, q), jaxdyn.jacobian_derivative(chain, q, v) @ v
        plain = (
            jaxdyn.dynamics.operational_space_inertia(chain, q),
            jaxdyn.dynamics.dynamically_consistent_inverse(chain, q),
        )
        given = jaxdyn.dynamics.operational_space_inertia(chain, q, damping=damping)
        biases = (
            jaxdyn.dynamics.operational_space_bias(chain, q, v),
            jaxdyn.dynamics.operational_space_bias(chain, q, v, damping=damping),
        )
        return *pieces, jaxdyn.crba(chain, q), jaxdyn.bias_force(chain, q, v), *plain, given, *biases

    j, drift, mass, bias, inertia, inverse, damped, eta, damped_eta = map(np.asarray, of(q, v))
    mobility = j @ np.linalg.solve(mass, j.T)
    for got, wanted, biased in (
        (inertia, np.linalg.inv(mobility), eta),
        (damped, np.linalg.inv(mobility + np.diag(damping)), damped_eta),
    ):
        assert relative(got, wanted) < 1e-12 * np.linalg.cond(mobility)
        assert np.all(got == got.T)
        across = np.linalg.solve(mass, j.T) @ wanted
        assert relative(biased, across.T @ bias - wanted @ drift) < 1e-12 * np.linalg.cond(mobility)
    assert relative(inverse, np.linalg.solve(mass, j.T) @ inertia) < 1e-12 * np.linalg.cond(mobility)


@once
def along_a_line(chain, arguments, direction, offsets):
    """Sums of quantities on a line through a state, and their gradients."""

    def total(x):
        q, v, v_ref, a_ref = x
        values = (
            jaxdyn.dynamics.centroidal_momentum_bias(chain, q, v),
            jaxdyn.dynamics.passivity_inverse_dynamics(chain, q, v, v_ref, a_ref),
            jaxdyn.dynamics.operational_space(chain, q, v).inertia,
        )
        return sum(jnp.sum(jnp.sin(leaf + 1)) for leaf in values)

    moved = lambda s: jax.tree.map(lambda x, d: x + s * d, arguments, direction)
    return jax.vmap(lambda s: jax.value_and_grad(total)(moved(s)))(offsets)


@pytest.mark.nightly
def test_gradients_at_a_straight_arm_equal_differences(arm):
    rng, h = np.random.default_rng(4), 3e-4
    arguments = (jnp.zeros(arm.n), *jnp.asarray(rng.normal(size=(3, arm.n))))
    direction = tuple(jnp.asarray(rng.normal(size=(4, arm.n))))
    totals, gradients = along_a_line(arm, arguments, direction, h * jnp.arange(-2.0, 3.0))
    slope = (totals[0] - 8 * totals[1] + 8 * totals[3] - totals[4]) / (12 * h)
    assert np.isfinite(np.asarray(gradients)).all()
    assert abs(sum(g[2] @ d for g, d in zip(gradients, direction, strict=True)) - slope) < 1e-7 * abs(slope)


@once
def hamiltonian_rollout(chain, q, p, torques, dt):
    """(q, p) by the classical Runge-Kutta scheme on Hamilton's equations."""

    def step(state, tau):
        def slope(k, s):
            q, p = jax.tree.map(lambda x, d: x + s * d, state, k)
            return jaxdyn.dynamics.hamiltonian_flow(chain, q, p, tau)

        def stage(k, x):
            k = slope(k, x[0])
            return k, jax.tree.map(lambda rate: x[1] * rate, k)

        stages = (dt * jnp.asarray([0, 0.5, 0.5, 1]), dt / 6 * jnp.asarray([1.0, 2, 2, 1]))
        _, parts = jax.lax.scan(stage, (0 * q, 0 * p), stages)
        return jax.tree.map(lambda x, part: x + part.sum(0), state, parts), None

    return jax.lax.scan(step, (q, p), torques)[0]


@once
def lagrangian_rollout(chain, q, v, torques, dt):
    """The end of a rollout, its momentum, and energies and work along the way."""
    qs, vs = jaxdyn.rollout(chain, q, v, torques, dt, method="rk4")
    energies = jax.vmap(lambda x, xd: jaxdyn.total_energy(chain, x, xd))(qs, vs)
    p = jax.vmap(lambda x, xd: jaxdyn.dynamics.generalised_momentum(chain, x, xd))(qs, vs)
    return qs[-1], p[0], p[-1], energies, jaxdyn.dynamics.passivity_integral(chain, qs, torques)


@pytest.mark.ci
def test_trajectories_of_hamilton_and_lagrange_agree_and_work_is_energy(arm):
    """Hamilton's and Lagrange's equations move alike; the work done is the energy gained, and more with friction."""
    zero, steps, dt = jnp.zeros(arm.n), 100, jnp.asarray(2e-3)
    none = {"friction.viscous": zero, "friction.coulomb": zero, "friction.stribeck": zero, "friction.offset": zero}
    smooth = jaxdyn.model.with_leaves(arm, none)
    rng = np.random.default_rng(5)
    q, v = jnp.asarray(rng.normal(size=(2, arm.n)))
    torques = jnp.asarray(rng.normal(size=(steps, arm.n)))
    q_end, p, p_end, energies, work = lagrangian_rollout(smooth, q, v, torques, dt)
    by_momenta = hamiltonian_rollout(smooth, q, p, torques, dt)
    assert relative(by_momenta[0], q_end) < 1e-8
    assert relative(by_momenta[1], p_end) < 1e-8
    assert relative(work, energies - energies[0]) < 1e-8
    rough = jaxdyn.model.with_leaves(arm, {"friction.offset": zero})
    *_, energies, work = lagrangian_rollout(rough, q, v, torques, dt)
    losses = np.diff(np.asarray(work - energies))
    assert losses.min() > -1e-10
    assert losses.max() > 1e-6


@pytest.mark.nightly
@pytest.mark.parametrize("limits", [(-np.pi, np.pi), (0.5, 2.0)])
def test_the_search_finds_the_mass_matrix_bounds_of_the_elbow(limits):
    """Of the elbow, whose mass matrix depends on one angle alone, inside and at its limits."""
    chain = textbook.planar_elbow(l2=2.0, lc2=1.5)
    chain = jaxdyn.model.with_leaves(chain, {"limits.position": jnp.asarray([[-1.0, 1.0], limits])})
    found, doubled = bounds_and_rate(chain)
    masses = jax.vmap(lambda b: jaxdyn.crba(chain, jnp.stack([0 * b, b])))(jnp.linspace(*limits, 4001))
    values = np.linalg.eigvalsh(np.asarray(masses))
    assert abs(found.lowest - values.min()) < 1e-6 * values.min()
    assert abs(found.highest - values.max()) < 1e-6 * values.max()
    assert np.all(found.q_highest >= chain.limits.position[:, 0])
    assert np.all(found.q_highest <= chain.limits.position[:, 1])
    # eigenvalues are linear in the masses
    assert relative(doubled.lowest, found.lowest) < 1e-12
    assert relative(doubled.highest, found.highest) < 1e-12


@once
def bounds_and_rate(chain):
    bounds = lambda pi: jaxdyn.dynamics.mass_matrix_bounds(
        jaxdyn.with_inertial_parameters(chain, pi), jax.random.key(0), count=32, refinements=10
    )
    return jax.jvp(bounds, (chain.inertia,), (chain.inertia,))


@pytest.mark.ci
def test_a_moving_base_point_has_the_forces_on_the_base(arm):
    """On a turned base, with coupled joints and a motor."""
    chain = dataclasses.replace(
        arm,
        base_pose=jnp.eye(4).at[:3, :3].set(random_rotation(np.random.default_rng(8))),
        coupling=Coupling(jnp.asarray([[1.0, 0], [0, 1], [-0.5, 1]]), jnp.asarray([0, 0.1, 0])),
        transmission=Transmission(
            jnp.asarray([[5.0, 0, 2]]), jnp.asarray([0.01]), jaxdyn.Friction([0.1], coulomb_velocity=1.0)
        ),
    )
    moving = jaxdyn.mechanisms.with_moving_base_point(chain)
    assert (moving.n, moving.nv) == (chain.n + 3, chain.nv + 3)
    rng = np.random.default_rng(6)
    q, v, a, point = (jnp.asarray(rng.normal(size=k)) for k in (chain.nv, chain.nv, chain.nv, 3))
    extended = lambda first, x: jnp.concatenate([first, x])

    @once
    def of(chain, q, v, a):
        return {
            "M": jaxdyn.crba(chain, q),
            "tau": jaxdyn.inverse_dynamics(chain, q, v, a),
            "J_c": jaxdyn.centre_of_mass_jacobian(chain, q),
            "bias": jaxdyn.dynamics.centroidal_momentum_bias(chain, q, v),
            "tool": jaxdyn.frame_pose(chain, q),
        }

    still, x = jnp.zeros(3), of(chain, q, v, a)
    y = of(moving, extended(point, q), extended(still, v), extended(still, a))
    mass = float(jaxdyn.total_mass(chain))
    across = mass * np.asarray(x["J_c"])
    assert relative(y["M"], np.block([[mass * np.eye(3), across], [across.T, np.asarray(x["M"])]])) < 1e-13
    assert relative(y["tau"][3:], x["tau"]) < 1e-12
    assert relative(y["tau"][:3], across @ a + x["bias"][3:] - mass * chain.gravity) < 1e-12
    assert relative(y["tool"][:3, 3], x["tool"][:3, 3] + point) < 1e-13
    assert jaxdyn.model.chain.frame_index(moving, "base") == (2, None)


def test_a_second_moving_base_point_is_refused(arm):
    with pytest.raises(jaxdyn.ModelError, match="base_x"):
        jaxdyn.mechanisms.with_moving_base_point(jaxdyn.mechanisms.with_moving_base_point(arm))


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_inertia_at_a_frame_is_finite_where_directions_are_lost(dtype):
    """A planar arm of six joints loses three directions everywhere, a stretched one four."""
    links = random_chain(6, 3)
    about_z = jnp.zeros((6, 6)).at[:, 2].set(1.0)
    along_x = jnp.tile(jnp.asarray([0.4, 0.0, 0.0]), (6, 1))
    arm = dataclasses.replace(links, rotation=jnp.tile(jnp.eye(3), (6, 1, 1)), translation=along_x, screw=about_z)
    arm = jax.tree.map(lambda x: x.astype(dtype), arm)

    @once
    @functools.partial(jax.value_and_grad, has_aux=True)
    def of(q, v):
        parts = (
            jaxdyn.dynamics.operational_space_inertia(arm, q, "link5"),
            jaxdyn.dynamics.operational_space_bias(arm, q, v, "link5"),
            jaxdyn.dynamics.dynamically_consistent_inverse(arm, q, "link5"),
        )
        return sum(part.sum() for part in parts), parts

    for angles in (jnp.zeros(6), jnp.linspace(-1.0, 1.0, 6)):
        for part in jax.tree.leaves(of(angles.astype(dtype), jnp.ones(6, dtype))):
            assert part.dtype == dtype and np.isfinite(part).all()


def test_inertia_at_a_frame_of_few_joints_needs_damping():
    with pytest.raises(jaxdyn.ModelError, match=r"a robot with 3 velocities .* pass damping= or use operational_space"):
        jaxdyn.dynamics.operational_space_inertia(random_chain(3), jnp.zeros(3))


def test_bounds_of_a_mass_matrix_known_everywhere_are_found(monkeypatch):
    """The search alone, on eigenvalues 3 + (q1 - 0.4)^2 - q2 / 4 and 1 + q2^2 / 10 in turned axes."""
    turn = jnp.asarray([[0.8, -0.6], [0.6, 0.8]])
    values = lambda q: jnp.stack([3 + (q[0] - 0.4) ** 2 - q[1] / 4, 1 + q[1] ** 2 / 10])
    monkeypatch.setattr(mass_matrix_bounds, "crba", lambda chain, q: turn @ jnp.diag(values(q)) @ turn.T)
    chain = textbook.planar_elbow()
    search = once(
        lambda limits: jaxdyn.dynamics.mass_matrix_bounds(
            jaxdyn.model.with_leaves(chain, {"limits.position": limits}), jax.random.key(0), count=24, refinements=6
        )
    )
    for limits, lowest, highest in (
        ([[-1.0, 0.9], [0.5, 2.0]], (None, 0.5), (-1.0, 0.5)),
        ([[-0.2, 1.2], [-np.inf, np.inf]], (None, 0.0), (1.2, -np.pi)),
    ):
        found = search(jnp.asarray(limits))
        assert abs(found.q_lowest[1] - lowest[1]) < 0.02
        np.testing.assert_allclose(found.q_highest, highest, atol=1e-9)
        np.testing.assert_allclose(found.lowest, 1 + float(found.q_lowest[1]) ** 2 / 10, rtol=1e-9)
        np.testing.assert_allclose(found.highest, values(found.q_highest)[0], rtol=1e-9)
    starts = jnp.asarray([[0.9, 1.9], [-0.9, 0.6]])
    for top in (True, False):
        climb = lambda q, top=top: mass_matrix_bounds._climb(chain, q, jnp.asarray(top), 3)
        before, after = (np.linalg.eigvalsh(np.diag(values(q))) for q in (starts[0], climb(starts[0])))
        assert after[1] > before[1] + 0.5 if top else after[0] < before[0] - 0.2


def test_coordinates_of_a_coupled_robot_are_searched_within_one():
    coupled = jaxdyn.with_coupling(random_chain(3), [[1.0, 0], [0, 1], [1, 2]])
    np.testing.assert_array_equal(mass_matrix_bounds._range(coupled), [[-1, -1], [1, 1]])


def test_pseudo_inverses_have_derivatives_at_constant_rank():
    """Of a symmetric matrix and of any other, along changes that keep the rank, by central differences."""
    rng, h = np.random.default_rng(2), 1e-5
    root, slope = rng.normal(size=(2, 5, 3))
    wide, wide_slope = rng.normal(size=(2, 3, 4))
    tolerance = jnp.asarray(1e-9)
    for inverse, at in (
        (
            lambda a: symmetric_pseudo_inverse(a, tolerance),
            lambda t: (root + t * slope) @ (root + t * slope).T,
        ),
        (lambda a: pseudo_inverse(a)[0], lambda t: (root + t * slope) @ (wide + t * wide_slope)),
    ):
        a, ahead, behind = (jnp.asarray(at(t)) for t in (0.0, h, -h))
        assert relative(inverse(a), np.linalg.pinv(at(0.0), rcond=1e-9)) < 1e-11
        _, rate = jax.jvp(inverse, (a,), ((ahead - behind) / (2 * h),))
        assert relative(rate, (inverse(ahead) - inverse(behind)) / (2 * h)) < 1e-6
    assert pseudo_inverse(jnp.asarray(at(0.0)))[1] == 3
    for inverse in (
        lambda a: symmetric_pseudo_inverse(a, jnp.asarray(0.2)),
        lambda a: pseudo_inverse(a, 0.2)[0],
    ):
        np.testing.assert_allclose(
            inverse(jnp.diag(jnp.asarray([10.0, 1.9, 2.1]))), np.diag([0.1, 0, 1 / 2.1]), atol=1e-15
        )

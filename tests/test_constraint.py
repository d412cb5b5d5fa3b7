"""Constraints: closed forms of the planar linkages, Pinocchio, drift and energy, redundancy, and derivatives."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import compiled, derivatives, directions, once, random_chain, random_inertia, relative
from jaxdyn import Topology, integrate, random_configuration
from jaxdyn.dynamics.constraints import Terms, constraint_target, constraint_terms
from jaxdyn.mechanisms import linkages
from peer_models import to_pinocchio

FIVE_BAR = {"l1": 0.8, "l2": 0.35, "l4": 0.9, "com_distances": (0.3, 0.15, 0.45, 0.4), "gravity": 9.7}
FOUR_BAR = {"l1": 0.6, "l2": 1.1, "l3": 0.45, "com_distances": (0.25, 0.5, 0.2, 0.3), "gravity": 9.7}
BODIES = {"masses": (1.1, 0.7, 1.3, 0.9), "inertias": (0.05, 0.01, 0.06, 0.07)}


def five_bar_closed_form(q, w, masses, inertias, l1, l2, l4, com_distances, gravity):
    """M and h + g in (q1, q2)."""
    (m1, m2, m3, m4), (i1, i2, i3, i4), (c1, c2, c3, c4) = masses, inertias, com_distances
    d = m3 * l2 * c3 - m4 * l1 * c4
    d12 = d * np.cos(q[1] - q[0])
    d11 = m1 * c1**2 + m3 * c3**2 + m4 * l1**2 + i1 + i3
    d22 = m2 * c2**2 + m3 * l2**2 + m4 * c4**2 + i2 + i4
    g = [(m1 * c1 + m3 * c3 + m4 * l1) * np.cos(q[0]), (m2 * c2 + m3 * l2 - m4 * c4) * np.cos(q[1])]
    h = d * np.sin(q[0] - q[1]) * np.array([w[1] ** 2, -(w[0] ** 2)])
    return np.array([[d11, d12], [d12, d22]]), h + gravity * np.array(g)


def four_bar_closed_form(q, w, masses, inertias, l1, l2, l3, com_distances, gravity):
    """M and h + g in (theta1, theta2)."""
    (m1, m2, m3, m4), (i1, i2, i3, i4), (c1, c2, c3, c4) = masses, inertias, com_distances
    d = m2 * l1 * c2 + m4 * l3 * c4
    d12 = d * np.cos(q[0] - q[1])
    d11 = m1 * c1**2 + m2 * l1**2 + m4 * c4**2 + i1 + i4
    d22 = m2 * c2**2 + m3 * c3**2 + m4 * l3**2 + i2 + i3
    g = [(m1 * c1 + m2 * l1 + m4 * c4) * np.cos(q[0]), (m2 * c2 + m3 * c3 + m4 * l3) * np.cos(q[1])]
    h = d * np.sin(q[0] - q[1]) * np.array([w[1] ** 2, -(w[0] ** 2)])
    return np.array([[d11, d12], [d12, d22]]), h + gravity * np.array(g)


# (builder, sizes, closed form, joint positions from the absolute angles, independent joints)
SYSTEMS = {
    "five_bar": (linkages.five_bar, FIVE_BAR, five_bar_closed_form, [[1, 0], [0, 1], [1, -1], [-1, 1]]),
    "four_bar": (linkages.four_bar, FOUR_BAR, four_bar_closed_form, [[1, 0], [-1, 1], [0, 1], [1, -1]]),
}
INDEPENDENT = {"five_bar": ("joint1", "joint2"), "four_bar": ("joint1", 2)}


@functools.partial(once, static_argnames="name")
def everything(chain, constraint, q, w, tau, name):
    """Every algorithm at states of independent velocities w, a batch of them."""
    independent = INDEPENDENT[name]

    def single(q, w, tau):
        if name == "four_bar":
            qd = jaxdyn.mechanisms.independent_coordinates(chain, constraint, q, independent) @ w
            full = jaxdyn.mechanisms.constrained_forward_dynamics(chain, constraint, q, qd, tau)
            back = jaxdyn.mechanisms.constrained_inverse_dynamics(
                chain, constraint, q, qd, full.acceleration, (2, "joint1")
            )
            return full, jaxdyn.mechanisms.reduced_forward_dynamics(chain, constraint, q, w, tau, independent), back
        terms = jaxdyn.mechanisms.reduced_dynamics(chain, constraint, q, w, independent)
        a = tau[:2]
        rows = jaxdyn.mechanisms.reduced_regressor(chain, constraint, q, w, a, independent)
        c = jaxdyn.mechanisms.reduced_coriolis_matrix(chain, constraint, q, w, independent)
        mass = lambda t: (
            jaxdyn.mechanisms.reduced_dynamics(chain, constraint, q + t * (terms.map @ w), w, independent).mass_matrix
        )
        reduced = {
            "torque": (rows @ chain.inertia.reshape(-1), terms.mass_matrix @ a + terms.bias),
            "bias": (c @ w + terms.map.T @ jaxdyn.gravity_force(chain, q), terms.bias),
            "skew": jax.jvp(mass, (0.0,), (1.0,))[1] - 2 * c,
        }
        full = jaxdyn.mechanisms.constrained_forward_dynamics(chain, constraint, q, terms.map @ w, tau)
        return (
            full,
            terms,
            reduced,
            jaxdyn.mechanisms.constrained_inverse_dynamics(
                chain, constraint, q, terms.map @ w, full.acceleration, independent
            ),
        )

    return jax.lax.map(lambda state: single(*state), (q, w, tau))


@pytest.mark.parametrize("name", [pytest.param("five_bar", marks=pytest.mark.nightly), "four_bar"])
def test_linkages_equal_their_closed_forms(name):
    build, sizes, closed_form, angles = SYSTEMS[name]
    chain, constraint = build(**BODIES, **sizes)
    rng = np.random.default_rng(0)
    y, w, tau = rng.uniform(-3, 3, (5, 2)), rng.normal(size=(5, 2)), rng.normal(size=(5, 4))
    w[0] = 0  # gravity alone
    q = y @ np.array(angles, float).T
    full, *more = everything(chain, constraint, jnp.asarray(q), jnp.asarray(w), jnp.asarray(tau), name)
    for k in range(5):
        mass, bias = closed_form(y[k], w[k], **BODIES, **sizes)
        force = np.array(angles).T @ tau[k]
        wanted = np.linalg.solve(mass, force - bias)
        np.testing.assert_allclose(full.acceleration[k], np.array(angles) @ wanted, rtol=1e-9, atol=1e-11)
        if name == "four_bar":
            np.testing.assert_allclose(more[0][k], wanted, rtol=1e-9)
            back = more[1]  # of joints 3 and 1, in the order asked for
            np.testing.assert_allclose(back.torques[k], force[::-1], rtol=1e-9)
            held = np.asarray(tau[k]) - np.array(
                [force[0], 0, force[1], 0]
            )  # the forces that carry the other torques too
            jacobian = np.asarray(jaxdyn.mechanisms.constraint_jacobian(chain, constraint, jnp.asarray(q[k])))
            np.testing.assert_allclose(jacobian.T @ (back.multipliers[k] - full.multipliers[k]), held, atol=1e-9)
            assert back.rank[k] == 2 and back.feasible[k] and back.residual[k] < 1e-9
            continue
        terms, reduced, back = more
        for found, expected in (reduced["torque"], reduced["bias"]):
            np.testing.assert_allclose(found[k], expected[k], atol=1e-12 * np.abs(expected[k]).max())
        assert np.abs(reduced["skew"][k] + reduced["skew"][k].T).max() < 1e-12
        np.testing.assert_allclose(terms.map[k], angles, atol=1e-12)
        np.testing.assert_allclose(terms.mass_matrix[k], mass, atol=1e-12)
        np.testing.assert_allclose(terms.bias[k], bias, atol=1e-12)
        np.testing.assert_allclose(back.torques[k], force, rtol=1e-9)
        assert back.rank[k] == 2 and back.feasible[k]
    assert (full.rank == 2).all() and not full.redundant.any() and full.consistent.all() and full.residual.max() < 1e-11


@pytest.mark.nightly
def test_the_balanced_five_bar_has_two_decoupled_equations():
    m3, m4, l1, l2, c4 = 1.3, 0.9, 0.8, 0.35, 0.4
    sizes = {**FIVE_BAR, "com_distances": (0.3, 0.15, m4 * l1 * c4 / (m3 * l2), c4)}
    chain, constraint = linkages.five_bar(**BODIES, **sizes)
    rng = np.random.default_rng(1)
    y, w = rng.normal(size=(5, 2)), rng.normal(size=(5, 2)) * 3
    y[:, 0] = 0.4
    q = y @ np.array(SYSTEMS["five_bar"][3], float).T
    terms = everything(chain, constraint, jnp.asarray(q), jnp.asarray(w), jnp.zeros((5, 4)), "five_bar")[1]
    assert np.abs(terms.mass_matrix[:, 0, 1]).max() < 1e-13
    assert np.ptp(terms.bias[:, 0]) < 1e-11 and np.ptp(terms.bias[:, 1]) > 0.1  # q2, qd1 and qd2 do not enter the first


def test_four_bar_is_the_sum_of_two_serial_chains():
    sizes = BODIES | FOUR_BAR
    chain, _ = linkages.four_bar(**sizes)
    pair = linkages.four_bar_chains(**sizes)
    y, w, a = jnp.asarray([0.4, -0.9]), jnp.asarray([1.5, 0.7]), jnp.asarray([-0.3, 0.8])
    run = once(jaxdyn.inverse_dynamics)
    total = sum(run(c, y, w, a) for c in pair)
    mass, bias = four_bar_closed_form(y, w, **sizes)
    np.testing.assert_allclose(total, mass @ a + bias, rtol=1e-12)
    # and the tree with both couplings at once closes itself
    matrix = jnp.concatenate([c.coupling.matrix for c in pair])
    coupled = dataclasses.replace(chain, coupling=jaxdyn.model.chain.Coupling(matrix, jnp.zeros(4)))
    np.testing.assert_allclose(run(coupled, y, w, a), total, rtol=1e-12)


def closed_arm():
    """A random arm of 10 joints whose tip is welded to the world, with a point of link 3 pinned to one of link 8."""
    chain = random_chain(10, 4)
    q, qd, tau = jnp.asarray(np.random.default_rng(8).normal(size=(3, 10)))
    poses = once(lambda q: (jaxdyn.forward_kinematics(chain, q), jaxdyn.frame_pose(chain, q, "tool")))(q)
    links, tool = jax.tree.map(np.array, poses)
    point = np.array([0.1, -0.2, 0.3, 1.0])
    seen = np.linalg.inv(links[7]) @ links[2] @ point
    weld = jaxdyn.mechanisms.pose_constraint("tool", other_pose=tool)
    pin = jaxdyn.mechanisms.point_constraint("link3", "link8", point=point[:3], other_point=seen[:3])
    return chain, (weld, pin), q, qd, tau


@once
def kept_motion(chain, constraints, q, qd, tau):
    """Accelerations of a motion that keeps the constraints, with its velocity and the Jacobian."""
    qd = jaxdyn.mechanisms.project_velocity(chain, constraints, q, qd)
    jacobian = jaxdyn.mechanisms.constraint_jacobian(chain, constraints, q)
    return qd, jacobian, jaxdyn.mechanisms.constrained_forward_dynamics(chain, constraints, q, qd, tau)


@once
def two_routes(chain, constraints, q, qd, tau, gains):
    """Residual, Jacobian, rate and bias by two routes each, and the accelerations."""
    residual = lambda dq: jaxdyn.mechanisms.constraint_residual(chain, constraints, integrate(chain, q, dq))
    jacobian = lambda t: jaxdyn.mechanisms.constraint_jacobian(chain, constraints, integrate(chain, q, t * qd)) @ qd
    phi, pushforward = jax.linearize(residual, jnp.zeros(chain.nv))
    at, slope = jax.jvp(jacobian, (jnp.zeros(()),), (jnp.ones(()),))
    terms = constraint_terms(chain, constraints, q, qd)
    routes = {
        "residual": (terms.residual, phi),
        "jacobian": (terms.jacobian, jax.vmap(pushforward, out_axes=1)(jnp.eye(chain.nv))),
        "rate": (terms.jacobian @ qd, at),
        "bias": (terms.bias, slope),
    }
    return routes, jaxdyn.mechanisms.constrained_forward_dynamics(chain, constraints, q, qd, tau, None, gains)


@pytest.mark.ci
def test_a_weld_and_a_loop_have_the_accelerations_of_pinocchio():
    pin = pytest.importorskip("pinocchio")
    chain, constraints, q, qd, tau = closed_arm()
    qd, jacobian, out = kept_motion(chain, constraints, q, qd, tau)
    assert np.abs(jacobian @ qd).max() < 1e-12 and out.rank == 9 and out.consistent

    model = to_pinocchio(chain)
    frames = [model.frames[model.getFrameId(x)] for x in ("tool", "link2", "link7")]  # numbered from 0
    shift = lambda p: pin.SE3(np.eye(3), np.array(p)[:3, 3])
    poses = [x.placement for x in frames]
    weld, loop = constraints
    models = [
        pin.RigidConstraintModel(
            pin.ContactType.CONTACT_6D, model, 0, pin.SE3(np.array(weld.other_pose)), frames[0].parentJoint, poses[0]
        ),
        pin.RigidConstraintModel(
            pin.ContactType.CONTACT_3D,
            model,
            frames[1].parentJoint,
            poses[1] * shift(loop.pose),
            frames[2].parentJoint,
            poses[2] * shift(loop.other_pose),
        ),
    ]
    contacts, datas = pin.StdVec_RigidConstraintModel(), pin.StdVec_RigidConstraintData()
    for m in models:
        contacts.append(m)
        datas.append(m.createData())
    data = model.createData()
    since_4 = (datas,) if int(pin.__version__.split(".")[0]) >= 4 else ()
    pin.initConstraintDynamics(model, data, contacts, *since_4)
    settings = pin.ProximalSettings(1e-13, 1e-12, 1000)
    wanted = pin.constraintDynamics(model, data, np.array(q), np.array(qd), np.array(tau), contacts, datas, settings)
    assert relative(out.acceleration, wanted) < 1e-9
    # the constraints' generalised force, whatever frames the multipliers are given in
    given = pin.rnea(model, data, np.array(q), np.array(qd), wanted) - np.array(tau)
    assert relative(jacobian.T @ out.multipliers, given) < 1e-9
    force = float(np.linalg.norm(out.multipliers[6:]))
    assert abs(force - np.linalg.norm(datas[1].contact_force.linear)) < 1e-9 * force


def floating_pair():
    """An arm of two joints on a free body, and the same arm and body fixed in the world where the first one is now."""
    rng = np.random.default_rng(3)
    axes, bodies = np.eye(6), np.array([np.zeros(10)] * 5 + [random_inertia(rng) for _ in range(3)])
    screws = np.array([*axes, [0, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]], float)
    offsets = np.zeros((8, 3))
    offsets[6:] = rng.normal(size=(2, 3))
    floating = jaxdyn.make_chain(
        rotation=np.tile(np.eye(3), (8, 1, 1)),
        translation=offsets,
        screw=screws,
        inertia=bodies,
        gravity=(1.0, 2, -9),
        topology=Topology.serial(8, compound_joints=[(0, "free")]),
    )
    q = random_configuration(floating, jax.random.key(1))
    base = once(lambda q: jaxdyn.frame_pose(floating, q, "link6"))(q)
    fixed = dataclasses.replace(
        jaxdyn.make_chain(
            rotation=np.tile(np.eye(3), (2, 1, 1)),
            translation=offsets[6:],
            screw=screws[6:],
            inertia=bodies[6:],
            gravity=(1.0, 2, -9),
        ),
        base_pose=base,
    )
    return floating, fixed, q, base


@pytest.mark.nightly
def test_held_floating_base_is_a_fixed_base():
    floating, fixed, q, base = floating_pair()
    hold = jaxdyn.mechanisms.pose_constraint("link6", other_pose=base)
    qd, tau = jnp.asarray(np.random.default_rng(0).normal(size=(2, 8)))
    tau = tau.at[:6].set(0.0)
    qd = qd.at[:6].set(0.0)
    _, out = two_routes(floating, hold, q, qd, tau, (0.0, 0.0))
    wanted = once(jaxdyn.forward_dynamics)(fixed, q[7:], qd[6:], tau[6:])
    np.testing.assert_allclose(out.acceleration, np.concatenate([np.zeros(6), wanted]), atol=1e-10)
    # moved off its place, with a velocity of its own: Baumgarte's equation
    start = integrate(floating, q, 0.3 * jnp.asarray(np.random.default_rng(1).normal(size=8)))
    routes, out = two_routes(floating, hold, start, qd + 0.5, tau, (3.0, 2.0))
    for name, (one, other) in routes.items():
        np.testing.assert_allclose(one, other, atol=1e-11, err_msg=name)
    phi, jacobian, rate, bias = (routes[x][0] for x in ("residual", "jacobian", "rate", "bias"))
    np.testing.assert_allclose(jacobian @ out.acceleration + bias + 6 * rate + 4 * phi, np.zeros(6), atol=1e-10)
    assert np.abs(phi).min() > 1e-3 and np.abs(rate).min() > 1e-3
    # and the nearest configuration is back there
    found = once(jaxdyn.mechanisms.project_configuration)(floating, hold, start)
    assert found.converged and found.residual < 1e-12
    pose = once(lambda q: jaxdyn.frame_pose(floating, q, "link6"))(found.configuration)
    np.testing.assert_allclose(pose, base, atol=1e-12)
    np.testing.assert_allclose(found.configuration[7:], start[7:], atol=1e-12)


def closed_five_bar(angles=(0.4, 1.3)):
    chain, constraint = linkages.five_bar(**BODIES, **FIVE_BAR)
    q1, q2 = angles
    q = jnp.asarray([q1, q2, q1 - q2, q2 - q1])
    qd = jnp.asarray([0.7, -1.1, 1.8, -1.8])
    return chain, constraint, q, qd, jnp.asarray([1.0, 2, 0.3, -0.2])


dynamics = once(jaxdyn.mechanisms.constrained_forward_dynamics)


@pytest.mark.ci
def test_redundant_constraints_share_the_force():
    chain, constraint, q, qd, tau = closed_five_bar()
    single = dynamics(chain, constraint, q, qd, tau)
    spatial = dataclasses.replace(constraint, rows=(3, 4, 5))  # z is redundant in the plane
    out = dynamics(chain, (constraint, spatial), q, qd, tau)
    assert out.rank == 2 and out.redundant and out.consistent and not single.redundant
    np.testing.assert_allclose(out.acceleration, single.acceleration, atol=1e-11)
    half = np.array(single.multipliers) / 2
    np.testing.assert_allclose(out.multipliers, [*half, *half, 0], atol=1e-11)  # the least of all that sum up


@pytest.mark.ci
def test_contradicting_constraints_are_reported():
    chain, _, q, qd, tau = closed_five_bar((0.0, 0.0))
    one = jaxdyn.mechanisms.FunctionConstraint(None, lambda chain, q, _: q[0])
    other = jaxdyn.mechanisms.FunctionConstraint(jnp.ones(()), lambda chain, q, x: jnp.stack([q[0] + x * q[1] ** 2]))
    out = dynamics(chain, (one, other), q, qd, tau)
    # 0 and -2 qd2^2 are asked of the same acceleration
    np.testing.assert_allclose(out.residual, qd[1] ** 2, rtol=1e-9)
    assert not out.consistent and out.rank == 1 and np.isfinite(out.multipliers).all()
    unreachable = jaxdyn.mechanisms.point_constraint("tip", other_point=(9.0, 0, 0), axes="xy")
    found = once(lambda q: jaxdyn.mechanisms.project_configuration(chain, unreachable, q, max_iterations=20))(q + 0.3)
    assert not found.converged and found.residual > 1 and np.isfinite(found.configuration).all()


def test_projection_finds_the_nearest_closed_configuration():
    chain, constraint, q, qd, _ = closed_five_bar()
    start = q + jnp.asarray([0.2, -0.1, 0.15, 0.05])
    project = once(jaxdyn.mechanisms.project_configuration, static_argnames="held")
    found = project(chain, constraint, start)
    assert found.converged and found.residual < 1e-13 and found.iterations < 20
    # nearest: the way there is in the range of J^T
    j = np.array(once(jaxdyn.mechanisms.constraint_jacobian)(chain, constraint, found.configuration))
    moved = np.array(found.configuration - start)
    assert np.abs(moved - np.linalg.pinv(j) @ j @ moved).max() < 1e-11
    held = project(chain, constraint, start, held=("joint1", 1))
    assert held.converged
    np.testing.assert_allclose(held.configuration[:2], start[:2], atol=1e-15)
    a, b = start[:2]
    np.testing.assert_allclose(held.configuration[2:], [a - b, b - a], atol=1e-12)
    v = once(jaxdyn.mechanisms.project_velocity)(chain, constraint, found.configuration, qd + 1)
    impulse = np.array(once(jaxdyn.crba)(chain, found.configuration) @ (v - qd - 1))
    assert np.abs(j @ v).max() < 1e-12 and np.abs(impulse - j.T @ np.linalg.pinv(j.T) @ impulse).max() < 1e-11


CHUNK = 100


@jax.jit
def simulate(chain, constraint, q, qd, dt):
    """The state CHUNK steps later, the energies on the way, and the largest residual."""
    resting = lambda t, q, qd: jnp.zeros_like(qd)
    qs, qds = jaxdyn.mechanisms.constrained_rollout(chain, constraint, q, qd, resting, dt, CHUNK, "semi_implicit_euler")
    energy = jax.vmap(lambda q, qd: jaxdyn.total_energy(chain, q, qd))(qs, qds)
    drift = jax.vmap(lambda q: jnp.abs(jaxdyn.mechanisms.constraint_residual(chain, constraint, q)).max())(qs)
    return qs[-1], qds[-1], energy, drift.max()


def energy_change(chain, constraint, q, qd, dt, chunks):
    """The largest change of energy, and the largest residual."""
    changes, drifts, start = [], [], None
    for _ in range(chunks):
        q, qd, energy, drift = simulate(chain, constraint, q, qd, dt)
        start = energy[0] if start is None else start
        changes.append(jnp.abs(energy - start).max())
        drifts.append(drift)
    return float(np.max(changes)), float(np.max(drifts))


@pytest.mark.ci
def test_constraints_do_not_drift_and_energy_is_kept_to_the_order():
    chain, constraint, q, qd, _ = closed_five_bar()
    change, drift = energy_change(chain, constraint, q, qd, 1e-3, 100)
    assert drift < 1e-12 and change < 0.1  # ten seconds at 1 kHz; the bar is 1e-6 m
    # the scheme is of first order: half the step leaves half of the energy error over the same time
    coarse, fine = (energy_change(chain, constraint, q, qd, 4e-3 / k, k)[0] for k in (1, 2))
    assert 1.7 < coarse / fine < 2.3, (coarse, fine)


def stretched(chain, q, x):
    """One condition in two rows, whose dependence changes with x."""
    u = jnp.sin(q[0]) + q[1] * q[2] - 0.3
    return jnp.stack([u, x * u])


@pytest.mark.ci
def test_tangents_with_a_redundant_constraint_equal_differences():
    """Accelerations and multipliers are affine in the torques, so that tangents are differences; along q by differences."""
    chain, constraint, q, qd, tau = closed_five_bar()

    @once
    def of(q, tau, dq, dtau):
        f = lambda q, tau: jaxdyn.mechanisms.constrained_forward_dynamics(chain, (constraint, constraint), q, qd, tau)[
            :2
        ]
        return jax.vmap(lambda q, tau, dq, dtau: jax.jvp(f, (q, tau), (dq, dtau)))(q, tau, dq, dtau)

    dq, dtau = jnp.asarray(np.random.default_rng(5).normal(size=(2, 4)))
    shifts = 1e-3 * jnp.array([0.0, 0, 0, -2, -1, 1, 2])
    positions, torques = q[None] + jnp.outer(shifts, dq), jnp.stack([tau, tau + dtau, *[tau] * 5])
    values, slopes = of(positions, torques, jnp.zeros((7, 4)).at[2].set(dq), jnp.zeros((7, 4)).at[0].set(dtau))
    for value, slope in zip(values, slopes, strict=True):
        moved, central = value[1] - value[0], (value[3] - 8 * value[4] + 8 * value[5] - value[6]) / 12e-3
        np.testing.assert_allclose(slope[0], moved, atol=1e-12 * np.abs(moved).max())
        np.testing.assert_allclose(slope[2], central, atol=1e-9 * np.abs(central).max())
        assert np.abs(moved).max() > 0.1 and np.abs(central).max() > 0.1


@pytest.mark.nightly
def test_derivatives_of_constrained_dynamics_equal_differences():
    chain, constraint, q, qd, tau = closed_five_bar()
    rng = np.random.default_rng(2)
    state = {"q": q + 0.05 * jnp.asarray(rng.normal(size=4)), "qd": qd, "tau": tau, "x": jnp.asarray(0.7)}
    state |= {"inertia": chain.inertia, "translation": chain.translation, "point": constraint.other_pose[:3, 3]}

    def f(state):
        q, qd, tau = state["q"], state["qd"], state["tau"]
        robot = dataclasses.replace(chain, inertia=state["inertia"], translation=state["translation"])
        moved = constraint.other_pose.at[:3, 3].set(state["point"])
        loop = dataclasses.replace(constraint, other_pose=moved)
        rows = jaxdyn.mechanisms.FunctionConstraint(state["x"], stretched)
        out = jaxdyn.mechanisms.constrained_forward_dynamics(robot, (loop, rows), q, qd, tau, None, (3.0, 2.0))
        back = jaxdyn.mechanisms.constrained_inverse_dynamics(robot, rows, q, qd, tau, (0, 1, 2))
        closed = jaxdyn.mechanisms.project_configuration(robot, rows, q).configuration
        return jnp.concatenate([*out[:2], *back[:2], closed])

    names, along = directions((state,))
    cotangent = jnp.asarray(rng.normal(size=4 + 4 + 3 + 2 + 4))
    value, forward, reverse, differences = derivatives(f, (state,), along, cotangent)
    assert np.isfinite(value).all()
    for k, name in enumerate(names):
        scale = float(jnp.abs(differences[k]).max())
        assert scale > 1e-3, name
        assert np.abs(forward[k] - differences[k]).max() < 1e-7 * scale, name
        assert abs(reverse[k] - forward[k] @ cotangent) < 1e-11 * scale * np.abs(cotangent).sum(), name


@pytest.mark.ci
def test_constrained_dynamics_stay_in_single_precision():
    chain, constraint, q, qd, tau = closed_five_bar()
    half = lambda tree: jax.tree.map(lambda x: x.astype(jnp.float32), tree)
    out = dynamics(*half((chain, constraint, q, qd, tau)))
    full = dynamics(chain, constraint, q, qd, tau)
    assert out.acceleration.dtype == out.multipliers.dtype == jnp.float32 and out.consistent and out.rank == 2
    assert relative(out.acceleration, full.acceleration) < 1e-4 and relative(out.multipliers, full.multipliers) < 1e-4
    found = once(jaxdyn.mechanisms.project_configuration)(*half((chain, constraint, q + 0.05 * q)))
    assert found.converged and found.configuration.dtype == jnp.float32 and found.residual < 1e-5


def test_bad_input_is_refused():
    chain, constraint, q, qd, tau = closed_five_bar()
    refused = functools.partial(pytest.raises, jaxdyn.ModelError)
    with refused(match="rows of a constraint must be among"):
        jaxdyn.mechanisms.point_constraint("link1", axes="xx")
    with refused(match="rows of a constraint must be among"):
        jaxdyn.mechanisms.pose_constraint("link1", rows="x y w")
    with refused(match="other_pose is not a rotation"):
        jaxdyn.mechanisms.pose_constraint("link1", other_pose=np.diag([1.0, 1, 2, 1]))
    with refused(match="there is no constraint"):
        jax.eval_shape(jaxdyn.mechanisms.constrained_forward_dynamics, chain, (), q, qd, tau)
    with refused(match="unknown link or frame 'foot'"):
        jax.eval_shape(jaxdyn.mechanisms.constraint_residual, chain, jaxdyn.mechanisms.point_constraint("foot"), q)
    with refused(match="unknown coordinate 'knee'"):
        jaxdyn.mechanisms.independent_coordinates(chain, constraint, q, ("joint1", "knee"))
    with refused(match="named twice"):
        jaxdyn.mechanisms.project_configuration(chain, constraint, q, held=("joint1", 0))
    with refused(match="one independent coordinate per degree of freedom"):
        jax.eval_shape(lambda q: jaxdyn.mechanisms.independent_coordinates(chain, constraint, q, ("joint1",)), q)
    with refused(match="under a policy needs the number of steps"):
        jaxdyn.mechanisms.constrained_rollout(chain, constraint, q, qd, lambda t, q, qd: qd, 1e-3)


def test_drifting_constraints_are_pulled_together():
    rng = np.random.default_rng(0)
    residual, bias, qd, jacobian = rng.normal(size=2), rng.normal(size=2), rng.normal(size=3), rng.normal(size=(2, 3))
    target = constraint_target(Terms(*map(jnp.asarray, (residual, jacobian, bias))), jnp.asarray(qd), (3.0, 5.0))
    np.testing.assert_allclose(target, -bias - 6 * jacobian @ qd - 25 * residual, rtol=1e-14)


@pytest.mark.parametrize("name", SYSTEMS)
def test_centres_of_mass_of_the_linkages_are_those_of_their_docstrings(name):
    """By the docstrings, from the potential energy's gradient with respect to each mass."""
    build, sizes, _, angles = SYSTEMS[name]
    chain, _ = build(**BODIES, **sizes)
    y, e = np.array([0.4, 1.3]), lambda a: np.array([np.cos(a), np.sin(a)])
    poses = compiled.forward_kinematics(chain, jnp.asarray(np.array(angles, float) @ y))
    centres = [
        (t @ [*pi[1:4] / pi[0], 1])[:2] for t, pi in zip(np.asarray(poses), np.asarray(chain.inertia), strict=True)
    ]
    c1, c2, c3, c4 = sizes["com_distances"]
    if name == "five_bar":
        l1, l2 = sizes["l1"], sizes["l2"]
        wanted = [c1 * e(y[0]), c2 * e(y[1]), l2 * e(y[1]) + c3 * e(y[0]), l1 * e(y[0]) - c4 * e(y[1])]
    else:
        l1, l3 = sizes["l1"], sizes["l3"]
        wanted = [c1 * e(y[0]), l1 * e(y[0]) + c2 * e(y[1]), c3 * e(y[1]), l3 * e(y[1]) + c4 * e(y[0])]
    np.testing.assert_allclose(centres, wanted, atol=1e-14)
    np.testing.assert_allclose(chain.inertia[:, 0], BODIES["masses"])
    about = [pi[9] - (pi[1:4] @ pi[1:4]) / pi[0] for pi in np.asarray(chain.inertia)]
    np.testing.assert_allclose(about, BODIES["inertias"], rtol=1e-9)

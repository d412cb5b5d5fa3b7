"""Elastic joints: closed forms, an equivalent chain, energy, and the limit of stiff springs."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import once, random_chain, relative
from jaxdyn import ModelError, Topology, textbook

N = 3


def arm():
    return random_chain(N, 7, "revolute")


def drives(chain, **changes):
    leaves = {"stiffness": [80.0, 60.0, 50.0], "damping": [0.3, 0.2, 0.1], "rest": [0.05, -0.1, 0.2]}
    leaves |= {"gear_ratio": [10.0, 20.0, 30.0], "rotor_inertia": 1e-3, "rotor_friction": 2e-3}
    return jaxdyn.mechanisms.elastic_joints(chain, **{**leaves, **changes})


def state(n=N, seed=2):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(x) for x in rng.normal(size=(5, n)) * np.array([[1], [1], [1], [1], [0.1]])]


def test_the_elastic_energy_contains_springs_and_rotors():
    """By hand, and its slope along the rotors, which is the springs' torque."""
    chain, elastic = arm(), drives(arm())
    q, theta, qd, thetad, _ = state()
    energy = lambda theta, thetad: jaxdyn.mechanisms.elastic_energy(chain, elastic, q, theta, qd, thetad)
    twist = theta + elastic.rest - q
    rotors = (elastic.gear_ratio**2 * 1e-3 * thetad**2).sum()
    value, slope = once(jax.value_and_grad(energy))(theta, thetad)
    extra = value - once(jaxdyn.total_energy)(chain, q, qd)
    np.testing.assert_allclose(extra, 0.5 * rotors + 0.5 * (elastic.stiffness * twist**2).sum(), rtol=1e-12)
    np.testing.assert_allclose(slope, elastic.stiffness * twist, rtol=1e-12)


@once
def accelerations(chain, elastic, q, theta, qd, thetad, tau_m):
    """By the two mass matrices and by the equivalent chain."""
    double = jaxdyn.mechanisms.elastic_chain(chain, elastic)
    x, v = jnp.concatenate([q, theta]), jnp.concatenate([qd, thetad])
    applied = jaxdyn.mechanisms.joint_torques_from_motors(double, tau_m) - jaxdyn.resistive_force(double, x, v)
    one = jaxdyn.mechanisms.elastic_forward_dynamics(chain, elastic, q, theta, qd, thetad, tau_m)
    return jnp.concatenate(one), jaxdyn.forward_dynamics(double, x, v, applied)


inverse = once(jaxdyn.mechanisms.elastic_inverse_dynamics)


@once
def energies(chain, elastic, q, theta, qd, thetad, tau_m):
    """Energies and mass matrices of links and rotors, and of the equivalent chain."""
    double = jaxdyn.mechanisms.elastic_chain(chain, elastic)
    x, v = jnp.concatenate([q, theta]), jnp.concatenate([qd, thetad])
    one = jaxdyn.mechanisms.elastic_forward_dynamics(chain, elastic, q, theta, qd, thetad, tau_m)
    energy = lambda *s: jaxdyn.mechanisms.elastic_energy(chain, elastic, *s)
    rate = jax.jvp(energy, (q, theta, qd, thetad), (qd, thetad, *one))[1]
    return {
        "energy": energy(q, theta, qd, thetad),
        "energy of the chain": jaxdyn.total_energy(double, x, v),
        "M": jaxdyn.crba(double, x),
        "Mq": jaxdyn.crba(chain, q),
        "rate": rate,
        "power": tau_m @ (elastic.gear_ratio * thetad) - jaxdyn.friction_force(double, v) @ v,
        "torque": jaxdyn.mechanisms.elastic_torque(chain, elastic, q, theta, qd, thetad),
    }


@pytest.mark.nightly
def test_two_mass_matrices_are_one_chain_of_links_and_rotors():
    chain = arm()
    elastic, s = drives(chain), state()
    x = jax.tree.map(np.asarray, energies(chain, elastic, *s))
    direct, of_chain = accelerations(chain, elastic, *s)
    assert relative(direct, of_chain) < 1e-11
    np.testing.assert_allclose(x["energy"], x["energy of the chain"], rtol=1e-13)
    np.testing.assert_allclose(x["rate"], x["power"], rtol=1e-11)
    rotors = np.array([10.0, 20, 30]) ** 2 * 1e-3
    expected = np.block([[x["Mq"], np.zeros((N, N))], [np.zeros((N, N)), np.diag(rotors)]])
    assert relative(x["M"], expected) < 1e-13
    q, theta, qd, thetad, tau_m = map(np.asarray, s)
    torque = np.array([80.0, 60, 50]) * (theta + np.array([0.05, -0.1, 0.2]) - q) + np.array([0.3, 0.2, 0.1]) * (
        thetad - qd
    )
    assert relative(x["torque"], torque) < 1e-13
    rotor = ([10, 20, 30] * tau_m - np.array([10.0, 20, 30]) ** 2 * 2e-3 * thetad - torque) / rotors
    assert relative(direct[N:], rotor) < 1e-13
    double = jaxdyn.mechanisms.elastic_chain(chain, elastic)
    assert double.topology.coordinate_names[N] == "joint1_motor" and double.nq == double.nv == 2 * N


@pytest.mark.ci
def test_robots_with_spherical_and_coupled_joints_can_have_elastic_joints():
    ball = jaxdyn.make_chain(
        rotation=np.tile(np.eye(3), (5, 1, 1)),
        translation=[[0, 0, 0], [0, 0, 0], [0, 0, 0], [0.3, 0, 0], [0, 0.4, 0]],
        screw=np.eye(6)[[0, 1, 2, 0, 1]],
        inertia=[*np.zeros((2, 10)), *np.tile([1, 0.1, 0.2, 0.3, 1, 0, 1.1, 0, 0, 1.2], (3, 1))],
        topology=Topology.serial(5, compound_joints=[(0, "spherical")]),
    )
    ball = jaxdyn.with_coupling(ball, np.eye(5, 4) - 0.5 * np.eye(5, 4, -1) * (np.arange(5) == 4)[:, None])
    elastic = jaxdyn.mechanisms.elastic_joints(ball, stiffness=30.0, rotor_inertia=0.1, damping=0.2, gear_ratio=2.0)
    q = jaxdyn.random_configuration(ball, jax.random.key(0))
    v, short = state(4)[0], [x[:1] for x in state(4)]
    one, two = accelerations(ball, elastic, q, short[0], v, short[1], short[2])
    assert relative(one, two) < 1e-11
    with pytest.raises(ModelError, match=r"spherical|q has shape \(4,\)"):
        jaxdyn.mechanisms.elastic_inverse_dynamics(ball, elastic, *[v] * 5)


@once
def swing(chain, q, qd, times):
    motion = jaxdyn.rollout(chain, q, qd, jnp.zeros((times.shape[0] - 1, chain.nv)), times[1], method="rk4")
    return *motion, jax.vmap(lambda *x: jaxdyn.total_energy(chain, *x))(*motion)


@pytest.mark.nightly
def test_elastic_link_has_the_equations_and_the_motion_of_the_example():
    inertia, rotor, k, weight = 0.3, 0.1, 40.0, 1.5 * 0.4
    values = {"mass": 1.5, "com_distance": 0.4, "link_inertia": inertia, "motor_inertia": rotor, "stiffness": k}
    chain = textbook.elastic_link(**values, damping=0.2, gravity=9.8)
    (q1, q2), (v1, v2), (a1, a2) = q, v, a = [x[:2] for x in state()[:3]]
    tau = once(lambda c: jaxdyn.inverse_dynamics(c, q, v, a) + jaxdyn.resistive_force(c, q, v))(chain)
    link = inertia * a1 + weight * 9.8 * np.sin(q1) + k * (q1 - q2) + 0.2 * (v1 - v2)
    np.testing.assert_allclose(tau, [link, rotor * a2 + k * (q2 - q1) + 0.2 * (v2 - v1)], rtol=1e-12)
    # without gravity: the twist swings at w^2 = k (1 / I + 1 / J), what both have together moves on
    free = textbook.elastic_link(**values, gravity=0.0)
    times = 2.5e-3 * np.arange(401)
    positions, _, energy = map(np.asarray, swing(free, jnp.asarray([0.3, -0.2]), jnp.asarray([1.0, 0.5]), times))
    w = np.sqrt(k * (1 / inertia + 1 / rotor))
    twist = 0.5 * np.cos(w * times) + 0.5 / w * np.sin(w * times)
    mean = (inertia * 0.3 - rotor * 0.2 + (inertia * 1.0 + rotor * 0.5) * times) / (inertia + rotor)
    exact = np.stack([mean + rotor / (inertia + rotor) * twist, mean - inertia / (inertia + rotor) * twist], 1)
    np.testing.assert_allclose(positions, exact, atol=2e-6)
    assert np.ptp(energy) < 1e-6 * energy[0]


def test_elastic_link_equals_a_rotor_that_carries_the_link():
    """Coaxial bodies: a chain of two joints, the rotor on the base and the link on the rotor, with a spring between."""
    values = {"mass": 1.5, "com_distance": 0.4, "link_inertia": 0.3, "motor_inertia": 0.1, "stiffness": 40.0}
    chain = textbook.elastic_link(**values)
    serial = textbook.pendulum(2, mass=[0.0, 1.5], length=0.0, com_distance=[0.0, -0.0], inertia=[0.0, 0.06])
    body = textbook.single_link(mass=1.5, com_distance=0.4, link_inertia=0.3).inertia
    inertia = jnp.concatenate([jnp.asarray([[0.0, 0, 0, 0, 0.1, 0, 0.1, 0, 0, 0.1]]), body])
    serial = jaxdyn.model.with_leaves(serial, {"inertia": inertia, "springs.stiffness": jnp.asarray([0.0, 40.0])})
    serial = jaxdyn.with_coupling(serial, [[0.0, 1.0], [1.0, -1.0]])  # (rotor, twist) by (link, motor)
    q, v, a = (x[:2] for x in state()[:3])
    tau = once(lambda c: jaxdyn.inverse_dynamics(c, q, v, a) + jaxdyn.resistive_force(c, q, v))
    np.testing.assert_allclose(tau(chain), tau(serial), rtol=1e-12)


@pytest.mark.ci
def test_inverse_dynamics_gives_the_torques_that_make_the_motion():
    """Along q(t) = sum of sines: the rotors' motion and torques put into forward dynamics return qdd and thetadd."""
    chain = arm()
    elastic = drives(chain, damping=0.0)
    amplitude, w = np.array([0.4, 0.3, 0.5]), np.array([2.0, 3.0, 2.5])

    def at(t):
        """q and its derivatives, and what they need: theta, thetad, thetadd, tau_m."""
        q = [jnp.asarray(amplitude * w**k * np.sin(w * t + amplitude + k * np.pi / 2)) for k in range(5)]
        return q, inverse(chain, elastic, *q)

    (q, qd, qdd, *_), (theta, thetad, thetadd, tau_m) = at(0.7)
    made = accelerations(chain, elastic, q, theta, qd, thetad, tau_m)[0]
    assert relative(made, np.concatenate([qdd, thetadd])) < 1e-11
    h = 1e-4  # the motion is consistent in time
    before, after = at(0.7 - h)[1], at(0.7 + h)[1]
    assert relative((after[0] - before[0]) / (2 * h), thetad) < 1e-6
    assert relative((after[1] - before[1]) / (2 * h), thetadd) < 1e-6


@pytest.mark.ci
def test_elastic_inverse_dynamics_refuse_damped_springs():
    chain = arm()
    with pytest.raises(Exception, match="without damping"):
        jax.block_until_ready(inverse(chain, drives(chain), *state()))


@pytest.mark.nightly
def test_stiff_joints_become_rigid_at_first_order():
    """Torques and motions differ from those of rigid joints with the armature J by a constant over K."""
    chain = jaxdyn.model.with_leaves(arm(), {"friction.coulomb": jnp.zeros(N), "friction.stribeck": jnp.zeros(N)})
    rigid = dataclasses.replace(chain, armature=chain.armature + 0.1)
    motion = state()
    stiff = lambda k: jaxdyn.mechanisms.elastic_joints(chain, stiffness=k, rotor_inertia=0.1)

    rigid_torques = once(lambda c: jaxdyn.inverse_dynamics(c, *motion[:3]) + jaxdyn.resistive_force(c, *motion[:2]))
    limit = rigid_torques(rigid)
    gaps = np.array([np.abs(inverse(chain, stiff(k), *motion)[3] - limit).max() for k in (1e4, 1e6, 1e8)])
    np.testing.assert_allclose(gaps[1:] / gaps[:-1], 0.01, rtol=1e-2)

    rotor, times = 0.1, 5e-4 * np.arange(401)
    start = jnp.asarray([0.8]), jnp.asarray([1.5])
    exact = swing(textbook.single_link(motor_inertia=rotor), *start, times)[0][:, 0]
    errors = []
    for k in (2e3, 8e3, 32e3):
        pair = textbook.elastic_link(motor_inertia=rotor, stiffness=k)
        twice = [jnp.repeat(x, 2) for x in start]
        errors.append(float(np.abs(swing(pair, *twice, times)[0][:, 0] - exact).max()))
    np.testing.assert_allclose(np.array(errors[:-1]) / np.array(errors[1:]), 4, rtol=0.2)


@pytest.mark.ci
def test_derivatives_of_elastic_dynamics_equal_differences():
    """Forward, reverse and finite differences with respect to the drives, in the equivalent chain too; float32."""
    chain = arm()
    elastic, s = drives(chain), state()
    weights = state()[0]

    def direct(e):
        qdd, thetadd = jaxdyn.mechanisms.elastic_forward_dynamics(chain, e, *s)
        return weights @ (qdd + thetadd)

    def double(e):
        robot = jaxdyn.mechanisms.elastic_chain(chain, e)
        x, v = jnp.concatenate(s[:2]), jnp.concatenate(s[2:4])
        applied = jaxdyn.mechanisms.joint_torques_from_motors(robot, s[4]) - jaxdyn.resistive_force(robot, x, v)
        out = jaxdyn.forward_dynamics(robot, x, v, applied)
        return weights @ (out[:N] + out[N:])

    rng = np.random.default_rng(3)
    along = jax.tree.map(lambda x: x * jnp.asarray(rng.normal(size=x.shape)), elastic)
    moved = lambda f, h: f(jax.tree.map(lambda x, d: x + h * d, elastic, along))
    slopes = lambda e, d: (jax.grad(direct)(e), jax.jvp(direct, (e,), (d,))[1], jax.jvp(double, (e,), (d,))[1])
    gradient, forward, of_chain = once(slopes)(elastic, along)
    reverse = sum(jnp.vdot(a, b) for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(along), strict=True))
    np.testing.assert_allclose(forward, reverse, rtol=1e-12)
    np.testing.assert_allclose(forward, of_chain, rtol=1e-10)
    f = once(lambda h: moved(direct, h))
    np.testing.assert_allclose(forward, (f(1e-5) - f(-1e-5)) / 2e-5, rtol=1e-7)
    single = jax.tree.map(lambda x: x.astype(np.float32), (chain, drives(chain, damping=0.0), *s))
    out = jax.eval_shape(
        lambda *x: (
            jaxdyn.mechanisms.elastic_forward_dynamics(*x),
            jaxdyn.mechanisms.elastic_inverse_dynamics(*x),
            jaxdyn.mechanisms.elastic_energy(*x[:-1]),
            jaxdyn.mechanisms.elastic_chain(*x[:2]),
        ),
        *single,
    )
    assert {x.dtype for x in jax.tree.leaves(out)} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("stiffness is not positive", {"stiffness": 0.0}),
        ("rotor_inertia is not positive", {"rotor_inertia": [1.0, 0.0, 1.0]}),
        ("damping is negative", {"damping": -0.1}),
        ("rest has shape", {"rest": [0.1, 0.2]}),
        ("gear_ratio contains NaN", {"gear_ratio": np.nan}),
    ],
)
def test_impossible_elastic_joints_are_refused(message, changes):
    with pytest.raises(ModelError, match=message):
        drives(arm(), **changes)


def test_elastic_joints_do_not_ride_on_a_transmission():
    with pytest.raises(ModelError, match="rigidly coupled to the joints"):
        drives(jaxdyn.with_transmission(arm(), gear_ratio=2.0))


def test_both_forms_of_a_pendulum_on_a_spring_agree():
    """Springs, rotors and the rotors' motion of one link in closed form."""
    mass, lc, inertia, gravity = 1.5, 0.4, 0.5, 9.7
    link = textbook.single_link(mass=mass, com_distance=lc, link_inertia=inertia, gravity=gravity, link_damping=0.3)
    leaves = {"stiffness": 60.0, "rest": 0.1, "gear_ratio": 20.0, "rotor_inertia": 1e-3, "rotor_friction": 2e-3}
    damped, plain = (jaxdyn.mechanisms.elastic_joints(link, damping=d, **leaves) for d in (0.8, 0.0))
    q, v, a, jerk, snap = np.random.default_rng(1).normal(size=5)
    theta, thetad, tau_m, k, r = 0.3, -0.7, 0.2, 60.0, 20.0
    weight = mass * gravity * lc

    @once
    def of(*motion):
        q, v, *others = motion
        forward = jaxdyn.mechanisms.elastic_forward_dynamics(
            link, damped, q, theta + 0 * q, v, thetad + 0 * q, tau_m + 0 * q
        )
        return forward, jaxdyn.mechanisms.elastic_inverse_dynamics(link, plain, q, v, *others)

    forward, inverse = of(*(jnp.asarray([x]) for x in (q, v, a, jerk, snap)))
    spring = k * (theta + 0.1 - q) + 0.8 * (thetad - v)
    rotor = r * tau_m - r**2 * 2e-3 * thetad - spring
    expected = (spring - weight * np.sin(q) - 0.3 * v) / inertia, rotor / (r**2 * 1e-3)
    np.testing.assert_allclose(np.ravel(forward), expected, rtol=1e-12)
    f = inertia * a + weight * np.sin(q) + 0.3 * v
    fd = inertia * jerk + weight * np.cos(q) * v + 0.3 * a
    fdd = inertia * snap + weight * (np.cos(q) * a - np.sin(q) * v**2) + 0.3 * jerk
    turned = [q - 0.1 + f / k, v + fd / k, a + fdd / k]
    needed = (r**2 * 1e-3 * turned[2] + r**2 * 2e-3 * turned[1] + f) / r
    np.testing.assert_allclose(np.ravel(inverse), [*turned, needed], rtol=1e-11)

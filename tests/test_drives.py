"""Transmissions, couplings, Stribeck friction and the textbooks' drives against matrices by hand, power and closed forms."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import once, random_chain, relative
from jaxdyn import Friction, ModelError, Topology, textbook
from jaxdyn.identification import coupled_drive

N = 3
rng = np.random.default_rng(0)
RATIOS = np.array([[40.0, 0, 0], [0, -30, 0], [5, 20, 25]])
ROTORS = np.array([2e-4, 3e-4, 1e-4])
ABSOLUTE = np.array([[1.0, 0, 0], [-1, 1, 0], [0, 0.5, 2]])
MOTORS = {
    "rotor_inertia": ROTORS,
    "viscous_friction": [1e-4, 2e-4, 3e-4],
    "coulomb_friction": [0.01, 0.02, 0.03],
    "coulomb_velocity": [3.0, 4.0, 5.0],
}


def driven(**changes):
    """Three joints with coupled motors, in other coordinates."""
    geared = jaxdyn.with_transmission(random_chain(N, 3), matrix=RATIOS, **{**MOTORS, **changes})
    return jaxdyn.with_coupling(geared, ABSOLUTE, 0.1, names="abc")


@once
def terms(chain, q, qd, qdd):
    tau = jaxdyn.inverse_dynamics(chain, q, qd, qdd)
    friction = jaxdyn.friction_force(chain, qd)
    energy_rate = jax.jvp(lambda *x: jaxdyn.total_energy(chain, *x), (q, qd), (qd, qdd))[1]
    applied = tau + jaxdyn.resistive_force(chain, q, qd)
    return {
        "M": jaxdyn.crba(chain, q),
        "tau": tau,
        "applied": applied,
        "FD": jaxdyn.forward_dynamics(chain, q, qd, tau),
        "friction": friction,
        "along itself": jaxdyn.dynamics.passivity_inverse_dynamics(chain, q, qd, qd, qdd),
        "momentum": jaxdyn.dynamics.generalised_momentum(chain, q, qd),
        "power": (energy_rate, applied @ qd - friction @ qd),
    }


@once
def torques(chain, q, qd, qdd):
    """Power of motors and friction alone."""
    return jaxdyn.inverse_dynamics(chain, q, qd, qdd) + jaxdyn.resistive_force(chain, q, qd)


def state(n, seed=1):
    generator = np.random.default_rng(seed)
    return [jnp.asarray(generator.normal(size=n)) for _ in range(3)]


@pytest.mark.ci
def test_a_coupled_and_geared_robot_has_the_torques_by_hand_and_by_power():
    """S^T (M + R^T J R) S, S^T tau, friction at motors and joints; power balance; FD inverts ID."""
    plain, chain, (y, yd, ydd) = random_chain(N, 3), driven(), state(N)
    x = jax.tree.map(np.asarray, terms(chain, y, yd, ydd))
    s, q, qd, qdd = ABSOLUTE, ABSOLUTE @ y + 0.1, ABSOLUTE @ yd, ABSOLUTE @ ydd
    rotors = RATIOS.T @ np.diag(ROTORS) @ RATIOS
    p = once(lambda c, a, b, d: {"M": jaxdyn.crba(c, a), "tau": jaxdyn.inverse_dynamics(c, a, b, d)})
    p = jax.tree.map(np.asarray, p(plain, *map(jnp.asarray, (q, qd, qdd))))
    assert relative(x["M"], s.T @ (p["M"] + rotors) @ s) < 1e-13
    assert relative(x["tau"], s.T @ (p["tau"] + rotors @ qdd)) < 1e-13
    assert relative(x["FD"], ydd) < 1e-11
    assert relative(x["along itself"], x["tau"]) < 1e-13
    assert relative(x["momentum"], x["M"] @ yd) < 1e-13
    spins = RATIOS @ qd
    losses = np.array(MOTORS["viscous_friction"]) * spins
    losses += np.array(MOTORS["coulomb_friction"]) * np.tanh(spins / np.array(MOTORS["coulomb_velocity"]))
    sign, fading = (
        np.tanh(qd / plain.friction.coulomb_velocity),
        np.exp(-((qd / plain.friction.stribeck_velocity) ** 2)),
    )
    joints = plain.friction.viscous * qd + plain.friction.offset
    joints += (plain.friction.coulomb + plain.friction.stribeck * fading) * sign
    assert relative(x["friction"], s.T @ (joints + RATIOS.T @ losses)) < 1e-13
    np.testing.assert_allclose(x["power"][0], x["power"][1], rtol=1e-11)
    # the same power at the motors
    rates = jaxdyn.mechanisms.motor_rates(chain, yd)
    np.testing.assert_allclose(rates, spins, rtol=1e-13)
    at_motors = jaxdyn.mechanisms.motor_torques(chain, jnp.asarray(x["applied"]))
    np.testing.assert_allclose(at_motors @ rates, x["applied"] @ yd, rtol=1e-11)
    assert relative(jaxdyn.mechanisms.joint_torques_from_motors(chain, at_motors), x["applied"]) < 1e-12
    assert relative(at_motors, np.linalg.solve((RATIOS @ s).T, x["applied"])) < 1e-12


def test_a_coupling_of_coupled_joints_is_the_product_of_both():
    first = np.array([[1.0, 0], [0, 1], [0.5, -0.5]])
    then = np.array([[1.0], [2.0]])
    chain = jaxdyn.with_coupling(jaxdyn.with_coupling(random_chain(N), first, [0.1, 0.2, 0.3]), then, [0.4, 0.5])
    np.testing.assert_allclose(chain.coupling.matrix, first @ then)
    np.testing.assert_allclose(chain.coupling.offset, first @ [0.4, 0.5] + [0.1, 0.2, 0.3])
    assert chain.nv == 1 and chain.topology.coordinate_names is None


def test_there_may_be_more_or_fewer_motors_than_coordinates():
    chain, tau = random_chain(N, 3), jnp.asarray([1.0, -2.0, 3.0])
    many = jaxdyn.with_transmission(chain, matrix=np.vstack([RATIOS, [1, 2, 3]]))
    torques = jaxdyn.mechanisms.motor_torques(many, tau)
    assert relative(torques, np.linalg.pinv(np.asarray(many.transmission.matrix).T) @ tau) < 1e-12
    assert relative(jaxdyn.mechanisms.joint_torques_from_motors(many, torques), tau) < 1e-12
    few = jaxdyn.with_transmission(chain, matrix=[[10.0, 0, 0], [0, 20.0, 5.0]])
    assert (
        relative(jaxdyn.mechanisms.motor_torques(few, tau), np.linalg.pinv(np.asarray(few.transmission.matrix).T) @ tau)
        < 1e-12
    )


def test_gears_on_a_floating_base_leave_its_joint_alone():
    chain = jaxdyn.robots.xarm7()
    geared = jaxdyn.with_transmission(chain, gear_ratio=50.0, rotor_inertia=1e-5)
    np.testing.assert_allclose(geared.transmission.matrix, 50 * np.eye(7))
    np.testing.assert_allclose(geared.transmission.friction.coulomb_velocity, 1.0)
    spherical = jaxdyn.make_chain(
        rotation=np.tile(np.eye(3), (4, 1, 1)),
        translation=np.zeros((4, 3)),
        screw=np.eye(6)[[0, 1, 2, 0]],
        inertia=[*np.zeros((2, 10)), *np.tile([1, 0, 0, 0, 1, 0, 1, 0, 0, 1], (2, 1))],
        topology=Topology.serial(4, compound_joints=[(0, "spherical")]),
    )
    one = jaxdyn.with_transmission(spherical, gear_ratio=-7.0)
    np.testing.assert_allclose(one.transmission.matrix, [[0, 0, 0, -7]])
    with pytest.raises(ModelError, match="'joint2', part of a spherical"):
        jaxdyn.with_transmission(spherical, matrix=[[0, 1, 0, 2.0]])
    with pytest.raises(ModelError, match="spherical"):
        jaxdyn.with_coupling(spherical, np.eye(4), [0.1, 0, 0, 0])


@pytest.mark.parametrize(
    ("message", "build"),
    [
        ("either gear_ratio", lambda c: jaxdyn.with_transmission(c)),
        ("either gear_ratio", lambda c: jaxdyn.with_transmission(c, gear_ratio=1.0, matrix=RATIOS)),
        ("gear_ratio has shape", lambda c: jaxdyn.with_transmission(c, gear_ratio=[1.0, 2.0])),
        ("gear_ratio contains NaN", lambda c: jaxdyn.with_transmission(c, gear_ratio=np.nan)),
        (r"matrix has shape \(0, 3\)", lambda c: jaxdyn.with_transmission(c, matrix=np.zeros((0, 3)))),
        ("motor 2 does not drive any joint", lambda c: jaxdyn.with_transmission(c, gear_ratio=[1.0, 0.0, 2.0])),
        ("but 3 joints require", lambda c: jaxdyn.with_transmission(c, matrix=np.eye(2))),
        ("contain NaN", lambda c: jaxdyn.with_transmission(c, matrix=RATIOS * np.nan)),
        ("rotor_inertia is negative", lambda c: jaxdyn.with_transmission(c, gear_ratio=1.0, rotor_inertia=-1e-3)),
        ("coulomb_velocity is not pos", lambda c: jaxdyn.with_transmission(c, gear_ratio=1.0, coulomb_velocity=0.0)),
        (r"requires a matrix \(3, new", lambda c: jaxdyn.with_coupling(c, np.eye(2))),
        ("contains NaN", lambda c: jaxdyn.with_coupling(c, np.full((3, 3), np.inf))),
        ("but only rank 1", lambda c: jaxdyn.with_coupling(c, np.ones((3, 2)))),
        ("offset has shape", lambda c: jaxdyn.with_coupling(c, np.eye(3), [0.1, 0.2])),
        ("used twice", lambda c: jaxdyn.with_coupling(c, np.eye(3), names=("a", "b", "a"))),
        ("2 coordinate names", lambda c: jaxdyn.with_coupling(c, np.eye(3), names=("a", "b"))),
        ("no transmission", lambda c: jaxdyn.mechanisms.motor_torques(c, jnp.zeros(3))),
        (r"friction\.stribeck is -0\.1; it must not be negative", lambda c: stribeck(fe=-0.1)),
        ("stribeck_velocity must be positive", lambda c: stribeck(ws=0.0)),
    ],
)
def test_what_no_drive_has_is_refused(message, build):
    with pytest.raises(ModelError, match=message):
        build(random_chain(N))


# Stribeck friction


def stribeck(fe=2.0, ws=0.1, vc=0.01, fc=1.0, fv=0.5):
    return jaxdyn.from_screws(
        [[0, 0, 1.0, 0, 0, 0]],
        np.eye(4)[None],
        [[1.0, 0, 0, 0, 1, 0, 1, 0, 0, 1]],
        friction=Friction(viscous=fv, coulomb=fc, coulomb_velocity=vc, stribeck=fe, stribeck_velocity=ws),
    )


def test_stribeck_friction_peaks_falls_and_rises():
    friction = jax.jit(jax.vmap(jaxdyn.friction_force, (None, 0)))
    speeds = np.array([0.0, 0.03, 0.1, 0.5, 3.0])
    expected = 0.5 * speeds + (1 + 2 * np.exp(-((speeds / 0.1) ** 2))) * np.tanh(speeds / 0.01)
    got = np.asarray(friction(stribeck(), jnp.asarray(speeds)[:, None]))[:, 0]
    np.testing.assert_allclose(got, expected, rtol=1e-14)
    assert got[1] > got[2] > got[3] < got[4] and 2.8 < got[1] < 3.1
    np.testing.assert_allclose(friction(stribeck(), -jnp.asarray(speeds)[:, None])[:, 0], -got, rtol=1e-14)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_derivatives_of_friction_stay_finite_at_rest_and_for_tiny_widths(dtype):
    @once
    def all_of_them(chain, qd):
        f = lambda c, v: jaxdyn.friction_force(c, v)[0]
        second = jax.jacfwd(jax.grad(f, 1), 1)(chain, qd)
        return f(chain, qd), jax.grad(f, (0, 1))(chain, qd), jax.jacfwd(f, (0, 1))(chain, qd), second

    for width in (0.1, 1e-3, 1e-12, 1e-30):
        chain = jax.tree.map(lambda x: x.astype(dtype), stribeck(ws=width))
        for speed in (0.0, 1e-20, 0.3, 1e3):
            out = all_of_them(chain, jnp.asarray([speed], dtype))
            assert all(np.all(np.isfinite(x)) and x.dtype == dtype for x in jax.tree.leaves(out)), (width, speed)
    # at rest the slope is fv + fs / v_c: sticking is fast creep
    slope = all_of_them(jax.tree.map(lambda x: x.astype(dtype), stribeck()), jnp.zeros(1, dtype))[1][1]
    np.testing.assert_allclose(slope, [0.5 + 3.0 / 0.01], rtol=1e-6)


def test_stribeck_friction_makes_a_dragged_mass_stick_and_slip():
    """A spring drawn slowly: with break-away friction the mass jumps, without it creeps."""
    slow = {"vc": 1e-3, "ws": 0.05, "fv": 0.2}

    @once
    def largest_speed(chain):
        pull = lambda t, q, qd: 10.0 * (0.05 * t - q)
        return jnp.abs(jaxdyn.rollout(chain, jnp.zeros(1), jnp.zeros(1), pull, 5e-4, 12000)[1]).max()

    assert float(largest_speed(stribeck(fe=1.0, **slow))) > 0.2 > 0.12 > float(largest_speed(stribeck(fe=0.0, **slow)))


# Textbook systems


def test_geared_link_is_the_example_with_power_balance():
    values = {"mass": 1.5, "com_distance": 0.4, "link_inertia": 0.3, "gravity": 9.8, "link_damping": 0.02}
    values |= {"motor_inertia": 2e-4, "motor_damping": 1e-4, "gear_ratio": 50.0}
    chain, (q, qd, qdd) = textbook.geared_link(**values), state(1)
    tau = jaxdyn.mechanisms.motor_torques(chain, torques(chain, q, qd, qdd))
    inertia, damping = 50.0**2 * 2e-4 + 0.3, 50.0**2 * 1e-4 + 0.02
    needed = inertia * qdd + damping * qd + 1.5 * 9.8 * 0.4 * np.sin(q)
    np.testing.assert_allclose(50 * tau, needed, rtol=1e-13)
    np.testing.assert_allclose(jaxdyn.friction_force(chain, qd) * qd, 1e-4 * (50 * qd) ** 2 + 0.02 * qd**2, rtol=1e-13)
    same = torques(textbook.single_link(**values), q, qd, qdd)
    np.testing.assert_allclose(same, needed, rtol=1e-13)
    with pytest.raises(ModelError, match="parallel-axis"):
        textbook.geared_link(mass=1.0, com_distance=1.0, link_inertia=0.5)
    textbook.geared_link(mass=1.0, com_distance=1.0, link_inertia=1.0)  # a point mass


@pytest.mark.ci
def test_the_gear_ratio_can_be_differentiated():
    chain, (q, qd, tau) = textbook.geared_link(motor_damping=1e-3), state(1)

    def accelerations(ratio):
        geared = jaxdyn.with_transmission(chain, gear_ratio=ratio, rotor_inertia=1e-4, viscous_friction=1e-3)
        applied = jaxdyn.mechanisms.joint_torques_from_motors(geared, tau) - jaxdyn.resistive_force(geared, q, qd)
        return jaxdyn.forward_dynamics(geared, q, qd, applied)[0]

    r, h, value = 60.0, 1e-3, once(accelerations)
    slope = (value(r + h) - value(r - h)) / (2 * h)
    weight = 9.81 * 0.5 * np.sin(q[0])
    closed = lambda r: (r * tau[0] - r**2 * 1e-3 * qd[0] - weight) / (r**2 * 1e-4 + 1 / 3)
    gradient = once(jax.grad(accelerations))(r)
    np.testing.assert_allclose(value(r), closed(r), rtol=1e-12)
    np.testing.assert_allclose(gradient, jax.grad(closed)(r), rtol=1e-11)
    np.testing.assert_allclose(gradient, slope, rtol=1e-7)
    # the leaf itself, as every other
    leaf = lambda m: jaxdyn.crba(eqx.tree_at(lambda c: c.transmission.matrix, chain, m), q)[0, 0]
    np.testing.assert_allclose(once(jax.grad(leaf))(chain.transmission.matrix), [[2 * 100 * 1e-4]], rtol=1e-12)


@pytest.mark.ci
def test_remotely_driven_elbow_has_no_coriolis_forces():
    p = {"m1": 1.2, "m2": 0.8, "l1": 0.7, "l2": 0.5, "lc1": 0.3, "lc2": 0.2, "i1": 0.05, "i2": 0.03, "gravity": 9.6}
    m1, m2, l1, _, lc1, lc2, i1, i2, gravity = p.values()
    rotors, ratios = np.array([1e-4, 2e-4]), np.array([30.0, -20.0])
    chain = textbook.remotely_driven_elbow(**p, motor_inertia=rotors, gear_ratio=ratios)
    assert chain.topology.coordinate_names == ("p1", "p2")
    (p1, p2), (v1, v2) = angles, rates = state(2)[:2]
    x = once(
        lambda robot: {
            "M": jaxdyn.crba(robot, angles),
            "symbols": jaxdyn.christoffel_symbols(robot, angles),
            "c": jaxdyn.coriolis_force(robot, angles, rates),
            "g": jaxdyn.gravity_force(robot, angles),
            "tip": jaxdyn.frame_pose(robot, angles)[:3, 3],
        }
    )
    x = jax.tree.map(np.asarray, x(chain))
    k, s, c = m2 * l1 * lc2, np.sin(p2 - p1), np.cos(p2 - p1)
    m11, m22 = m1 * lc1**2 + m2 * l1**2 + i1 + 900 * 1e-4, m2 * lc2**2 + i2 + 400 * 2e-4
    assert relative(x["M"], np.array([[m11, k * c], [k * c, m22]])) < 1e-13
    assert relative(x["symbols"] @ np.asarray(rates), k * s * np.array([[0, -v2], [v1, 0]])) < 1e-12
    assert relative(x["c"], np.array([-k * s * v2**2, k * s * v1**2])) < 1e-12
    weights = gravity * np.array([(m1 * lc1 + m2 * l1) * np.cos(p1), m2 * lc2 * np.cos(p2)])
    assert relative(x["g"], weights) < 1e-13
    # [k, i, j]: products of different speeds have no coefficient (the elbow in joint angles has: test_textbook)
    expected = np.zeros((2, 2, 2))
    expected[0, 1, 1], expected[1, 0, 0] = -k * s, k * s
    np.testing.assert_allclose(x["symbols"], expected, atol=1e-13)
    # a motor for each coordinate; the tip knows only absolute angles
    np.testing.assert_allclose(jaxdyn.mechanisms.motor_torques(chain, jnp.ones(2)), 1 / ratios, rtol=1e-13)
    tip = [l1 * np.cos(p1) + 0.5 * np.cos(p2), l1 * np.sin(p1) + 0.5 * np.sin(p2), 0]
    np.testing.assert_allclose(x["tip"], tip, atol=1e-14)


@pytest.mark.ci
def test_coupled_wrist_is_what_identification_calls_a_coupled_drive():
    """Torques less those of the same wrist with plain gears are the three columns of `coupled_drive`."""
    inertia, viscous, coulomb, ratio = 2e-5, 1e-4, 5e-3, 32.0
    wrist, (q, qd, qdd) = textbook.coupled_wrist(), state(3)
    bare = dataclasses.replace(wrist, transmission=None)
    # the first two motors alone; motor 6 adds its own part to Ia and fv of the joints 5 and 6
    alone = jaxdyn.with_transmission(
        bare, matrix=[[-48.0, 0, 0], [0, 45.0, 0]], rotor_inertia=inertia, viscous_friction=viscous,
        coulomb_friction=coulomb, coulomb_velocity=1.0,
    )  # fmt: skip
    own = ratio**2 * np.array([0, 1, 1])
    alone = jaxdyn.model.with_leaves(
        alone, {"armature": alone.armature + inertia * own, "friction.viscous": alone.friction.viscous + viscous * own}
    )
    columns = coupled_drive(2, 3, 1.0 / ratio).matrix(bare, q, qd, qdd)
    coupled = columns @ (ratio * np.array([ratio * inertia, ratio * viscous, coulomb]))
    difference = torques(wrist, q, qd, qdd) - torques(alone, q, qd, qdd)
    np.testing.assert_allclose(difference, coupled, rtol=0, atol=1e-13)
    assert np.abs(np.asarray(coupled)[1:]).min() > 1e-3
    m = np.asarray(once(lambda c, b: jaxdyn.crba(c, q) - jaxdyn.crba(b, q))(wrist, bare))
    assert relative(m, inertia * np.array([[48**2, 0, 0], [0, 45**2 + 32**2, 32**2], [0, 32**2, 32**2]])) < 1e-12
    np.testing.assert_allclose(jaxdyn.mechanisms.motor_rates(wrist, jnp.asarray([0, 1.0, 0])), [0, 45, 32])


@pytest.mark.nightly
def test_drives_stay_in_single_precision():
    chain = jax.tree.map(lambda x: x.astype(np.float32), driven())
    x = [v.astype(np.float32) for v in state(N)]
    out = torques(chain, *x)
    rates = (
        jaxdyn.mechanisms.joint_torques_from_motors(chain, jaxdyn.mechanisms.motor_torques(chain, out)),
        jaxdyn.mechanisms.motor_rates(chain, x[1]),
    )
    assert {v.dtype for v in (out, *rates)} == {np.dtype(np.float32)}
    assert relative(out, torques(driven(), *state(N))) < 1e-5 and relative(rates[0], out) < 1e-4
    again = jaxdyn.with_coupling(jaxdyn.with_transmission(random_chain(N), gear_ratio=3.0), np.eye(3))
    assert again.transmission.matrix.dtype == again.coupling.matrix.dtype == np.float64
    single = jaxdyn.with_transmission(jax.tree.map(lambda x: x.astype(np.float32), random_chain(N)), gear_ratio=3.0)
    assert single.transmission.matrix.dtype == single.transmission.friction.coulomb_velocity.dtype == np.float32


def test_remotely_driven_elbow_moves_as_its_equations_say():
    p = {"m1": 1.2, "m2": 0.8, "l1": 0.7, "l2": 0.5, "lc1": 0.3, "lc2": 0.2, "i1": 0.05, "i2": 0.03, "gravity": 9.6}
    m1, m2, l1, l2, lc1, lc2, i1, i2, gravity = p.values()
    rotors, ratios = np.array([1e-4, 2e-4]), np.array([30.0, -20.0])
    chain = textbook.remotely_driven_elbow(**p, motor_inertia=rotors, gear_ratio=ratios)
    (p1, p2), (v1, v2), (a1, a2) = motion = state(2)
    k, s, c = m2 * l1 * lc2, np.sin(p2 - p1), np.cos(p2 - p1)
    first = (m1 * lc1**2 + m2 * l1**2 + i1 + 900 * 1e-4) * a1 + k * c * a2 - k * s * v2**2
    second = (m2 * lc2**2 + i2 + 400 * 2e-4) * a2 + k * c * a1 + k * s * v1**2
    weights = gravity * np.array([(m1 * lc1 + m2 * l1) * np.cos(p1), m2 * lc2 * np.cos(p2)])
    np.testing.assert_allclose(torques(chain, *motion), np.array([first, second]) + weights, rtol=1e-12)
    assert chain.topology.coordinate_names == ("p1", "p2") and chain.frame_poses[0, 0, 3] == l2
    np.testing.assert_allclose(jaxdyn.mechanisms.motor_torques(chain, jnp.ones(2)), 1 / ratios, rtol=1e-13)


def test_the_coupled_wrist_has_the_torques_derived_by_hand(annotations_unchecked):
    """The pitch turns the last motor too; masses lie at their distances from the centre, the first below it."""
    masses, lengths = np.array([1.0, 0.5, 0.2]), np.array([0.2, 0.07, 0.05])
    wrist = textbook.coupled_wrist(gear_ratio=(-40.0, 30.0, 20.0), rotor_inertia=[1e-5, 2e-5, 3e-5], gravity=9.7)
    np.testing.assert_allclose(jaxdyn.mechanisms.motor_rates(wrist, jnp.asarray([1.0, 2.0, 5.0])), [-40, 60, 140])
    np.testing.assert_array_equal(wrist.transmission.rotor_inertia, [1e-5, 2e-5, 3e-5])
    centres = np.asarray(wrist.inertia[:, 1:4]) / masses[:, None]
    np.testing.assert_allclose(wrist.inertia[:, 0], masses)
    np.testing.assert_allclose(centres, lengths[:, None] * [[0.1, 0, -1], [0.1, 0, 1], [0.1, 0, 1]], atol=1e-15)
    for pi, m, d in zip(wrist.inertia, masses, lengths, strict=True):
        about = jaxdyn.spatial.inertia.inertial_parameters_to_com(pi)[2]
        np.testing.assert_allclose(np.linalg.eigvalsh(about)[1:], m * d**2 / 5, rtol=1e-9)
    q, still = jnp.asarray([0.3, 0.7, -0.4]), jnp.zeros(3)
    # weight: the second and third body turn up about y, and the third about its own axis
    gravity = torques(wrist, q, still, still)
    arms = masses * lengths
    pitch = -9.7 * (
        arms[1] * (np.sin(0.7) + 0.1 * np.cos(0.7)) + arms[2] * (np.sin(0.7) + 0.1 * np.cos(0.7) * np.cos(-0.4))
    )
    roll = 9.7 * arms[2] * 0.1 * np.sin(0.7) * np.sin(-0.4)
    np.testing.assert_allclose(gravity, [0.0, pitch, roll], atol=1e-13)
    assert wrist.joint_names == ("joint4", "joint5", "joint6") and wrist.frame_poses[0, 2, 3] == 0.05
    with pytest.raises(ModelError, match="2 values, but the wrist has 3 joints"):
        textbook.coupled_wrist(gear_ratio=(1.0, 2.0))


def test_the_axes_of_the_wrist_meet_at_its_base():
    wrist = textbook.coupled_wrist(lengths=(0.2, 0.07, 0.05))
    np.testing.assert_allclose(jaxdyn.frame_pose(wrist, jnp.zeros(3))[:3, 3], [0, 0, 0.05], atol=1e-12)
    turned = jaxdyn.frame_pose(wrist, jnp.array([0.0, jnp.pi / 2, 0.4]))[:3, 3]
    np.testing.assert_allclose(turned, [0.05, 0, 0], atol=1e-7)

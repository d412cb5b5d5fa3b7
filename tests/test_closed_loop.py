"""The simulated closed loop, against other integrators and differences."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import jaxdyn
from helpers import once
from jaxdyn import IdentificationError, ModelError, forward_dynamics, from_dh, resistive_force, textbook
from jaxdyn.identification import (
    NOISE_LEVELS,
    ClosedLoop,
    Columns,
    ComputedTorqueLaw,
    NoiseLevel,
    ProportionalDerivativeLaw,
    Samples,
    base_parameters,
    closed_loop_log,
    coupled_drive,
    drive_gains,
    joint_springs,
    perturbed_chains,
    prior_parameters,
    random_excitation,
    simulate_closed_loop,
    simulated_logs as closed_loop,
    simulated_logs as monte_carlo,
)
from jaxdyn.identification.base import with_parameters
from jaxdyn.identification.simulated_logs import parameters_of, parametric_acceleration, parametric_torque
from jaxdyn.model.build import check_inertia
from regression import dense, known_arm

SMOOTH = Columns(("armature", "viscous"))


def planar_arm(**leaves):
    """Two links in a vertical plane, with viscous friction and a rotor."""
    link = [3.0, 0.6, 0, 0, 0.03, 0, 0.15, 0, 0, 0.15]
    given = {"armature": [0.0, 0.05], "friction": jaxdyn.Friction([1.0, 0.6])}
    given["limits"] = jaxdyn.JointLimits([(-2.0, 2.0)] * 2, [3.0, 3.0])
    table = {"a": [0, 0.5], "alpha": [np.pi / 2, 0], "d": [0, 0], "theta": [0, 0], "convention": "modified"}
    return from_dh(**table, inertia=[link, link], **{**given, **leaves})


@pytest.mark.ci
def test_sensitivities_of_one_state_are_those_of_differences():
    arm = known_arm()
    columns = Columns(("viscous", "armature"), (coupled_drive(2, 3, velocity=0.1),))
    p = np.concatenate([prior_parameters(arm, columns)[:-3], [0.02, 0.1, 0.2]])
    rng = np.random.default_rng(0)
    q, qd, qdd = rng.normal(size=(3, 3))
    directions = [jnp.asarray(rng.normal(size=x.shape)) for x in (p, q, qd, qdd)]

    @jax.jit
    def both(p, q, qd, qdd, directions):
        tau, by_torque = jax.jvp(lambda *x: parametric_torque(columns, arm, *x), (p, q, qd, qdd), tuple(directions))
        back, by_motion = jax.jvp(
            lambda *x: parametric_acceleration(columns, arm, *x), (p, q, qd, tau), (*directions[:3], by_torque)
        )
        return tau, by_torque, back, by_motion

    point = tuple(map(jnp.asarray, (p, q, qd, qdd)))
    tau, by_torque, back, by_motion = both(*point, directions)
    coulomb = np.asarray(arm.friction.coulomb) * np.tanh(qd / np.asarray(arm.friction.coulomb_velocity))
    everything = dense(arm, q[None], qd[None], qdd[None])[0]
    rigid = everything[:, :30] @ p[:30] + p[30:36:2] * qd + p[31:36:2] * qdd
    extra = np.asarray(columns.extra[0].matrix(arm, *point[1:])) @ p[-3:]
    np.testing.assert_allclose(tau, rigid + coulomb + np.asarray(arm.friction.offset) + extra, rtol=1e-10)
    np.testing.assert_allclose(back, qdd, rtol=1e-8, atol=1e-9)
    step = 1e-6
    moved = [both(*(x + s * step * d for x, d in zip(point, directions, strict=True)), directions)[0] for s in (1, -1)]
    np.testing.assert_allclose(by_torque, (moved[0] - moved[1]) / (2 * step), rtol=1e-6, atol=1e-6)
    # torques that change as those of the motion do change the motion as prescribed
    np.testing.assert_allclose(by_motion, directions[3], rtol=1e-8, atol=1e-8)
    np.testing.assert_array_equal(parameters_of(arm, columns)[:-3], prior_parameters(arm, columns)[:-3])


def test_starts_of_the_benchmark_are_possible_robots():
    arm = planar_arm()
    starts = perturbed_chains(arm, 3, seed=1)
    for chain in (arm, *starts):
        for name, pi in zip(chain.link_names, np.asarray(chain.inertia), strict=True):
            check_inertia(name, pi)
    ratio = np.stack([np.asarray(c.friction.viscous) / np.asarray(arm.friction.viscous) for c in starts])
    assert 0.05 < np.std(ratio) < 0.3 and np.abs(ratio - 1).min() > 0
    again = perturbed_chains(arm, 3, seed=1)[2]
    np.testing.assert_array_equal(again.inertia, starts[2].inertia)
    point_mass = dataclasses.replace(arm, inertia=arm.inertia.at[0, 4:].set(0.0))
    with pytest.raises(
        ModelError, match="no physically consistent parameters of link1 were found with a perturbation of 15 %"
    ):
        perturbed_chains(point_mass, 1)
    degrees = {"low_position": 1e-4, "standard": 1e-3, "high_torque": 1e-3, "high_position": 1e-2, "high_both": 1e-2}
    assert {name: round(np.degrees(level.position), 12) for name, level in NOISE_LEVELS.items()} == degrees
    assert {name for name, level in NOISE_LEVELS.items() if level.torque == 0.1} == {"high_torque", "high_both"}


def test_loops_refuse_what_they_cannot_do():
    arm = planar_arm()

    def hold(t):
        still = jnp.zeros((len(t), 2))
        return still, still, still

    loop = ClosedLoop.following(hold, ComputedTorqueLaw(jnp.asarray(20.0), jnp.asarray(1.0)), 0.1, 1e-3, every=10)
    assert loop.rate == pytest.approx(100) and len(loop.q) == 101
    np.testing.assert_array_equal(loop.rows(np.array([0.0, 0.05, 0.1])), [0, 5, 10])
    for t in ([0.005, 0.02], [0.09, 0.11]):
        with pytest.raises(IdentificationError, match="are not among those of the closed loop"):
            loop.rows(np.array(t))
    damped = dataclasses.replace(loop, method="implicit_damping")
    with pytest.raises(IdentificationError, match="cannot be simulated with 'implicit_damping'"):
        simulate_closed_loop(damped, arm)


def test_each_period_holds_the_laws_torque_and_what_is_fed_to_it(monkeypatch):
    """Five periods of two Runge-Kutta steps by hand, of a robot of two masses on springs in place of an arm."""
    moved = lambda q, qd, tau: (tau - np.array([5.0, 9.0]) * q - 0.4 * qd) / np.array([2.0, 0.5])
    model = lambda columns, chain, values, q, qd, tau: (tau - 5 * q - 0.4 * qd + (0 * q).at[1].set(-4 * q[1])) / values
    monkeypatch.setattr(closed_loop, "parametric_acceleration", model)
    monkeypatch.setattr(
        closed_loop, "parametric_torque", lambda columns, chain, values, q, qd, qdd: values * qdd + q - qd
    )

    def law(torque, reference, q, qd):  # with the model's own torque in it
        return 3 * (reference[0] - q) + 2 * (reference[1] - qd) + torque(q, qd, reference[2])

    q_r, qd_r, qdd_r, fed, against, e, ed = np.random.default_rng(3).normal(size=(7, 5, 2))
    start, dt = (jnp.asarray([0.3, -0.2]), jnp.asarray([0.1, 0.4])), 0.2
    loop = ClosedLoop(*map(jnp.asarray, (q_r, qd_r, qdd_r)), law, start, dt, 0.5, 2, 2, feedforward=jnp.asarray(fed))
    found = simulate_closed_loop(
        loop, planar_arm(), SMOOTH, jnp.asarray([2.0, 0.5]), tuple(map(jnp.asarray, (e, ed))), jnp.asarray(against)
    )
    x, rows = np.stack(start), []
    for k in range(5):
        q, qd = x[0] + e[k], x[1] + ed[k]
        own = np.array([2.0, 0.5]) * qdd_r[k] + q - qd + against[k]
        tau = 3 * (q_r[k] - q) + 2 * (qd_r[k] - qd) + own + fed[k]
        rows.append((*x, moved(*x, tau - against[k]), tau))
        rate = lambda x, tau=tau, k=k: np.stack([x[1], moved(*x, tau - against[k])])
        for _ in range(2):
            h = dt / 2
            a = rate(x)
            b = rate(x + h / 2 * a)
            c = rate(x + h / 2 * b)
            x = x + h / 6 * (a + 2 * b + 2 * c + rate(x + h * c))
    for got, expected in zip(found, zip(*rows[::2], strict=True), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-12)


def test_laws_by_hand():
    law = ComputedTorqueLaw(jnp.asarray(20.0), jnp.asarray(0.7))
    q_r, qd_r, qdd_r, q, qd = map(jnp.asarray, np.random.default_rng(0).normal(size=(5, 2)))
    wanted = qdd_r + 2 * 0.7 * 20 * (qd_r - qd) + 400 * (q_r - q)
    seen = law(lambda *x: jnp.stack(x), (q_r, qd_r, qdd_r), q, qd)
    np.testing.assert_allclose(seen, np.stack([q, qd, wanted]), rtol=1e-12)
    arm = planar_arm()
    gains, mass = drive_gains(arm, 30.0, damping=0.8), np.diag(once(jaxdyn.crba)(arm, jnp.zeros(2)))
    np.testing.assert_allclose(gains.kp, 900 * mass, rtol=1e-12)
    np.testing.assert_allclose(gains.kd, 48 * mass, rtol=1e-12)
    ahead = once(lambda q, qd, qdd: jaxdyn.inverse_dynamics(arm, q, qd, qdd) + jaxdyn.friction_force(arm, qd))
    gains = dataclasses.replace(gains, nominal=arm)
    expected = gains.kp * (q_r - q) + gains.kd * (qd_r - qd) + ahead(q_r, qd_r, qdd_r)
    np.testing.assert_allclose(gains(lambda *x: x[0], (q_r, qd_r, qdd_r), q, qd), expected, rtol=1e-12)


def test_measured_motions_as_references():
    t = 0.4 + np.arange(60) / 100.0
    waves = [np.stack([w**k * np.sin(w * t + k * np.pi / 2) for w in (2.0, 3.0)], axis=1) for k in range(3)]
    samples = Samples(t, *waves, np.cos(waves[0]), 100.0, ((0, 60),), 20.0, 20.0)
    loop = ClosedLoop.tracking(samples, frequency=50.0, period=3e-3)
    assert loop.every == 4 and loop.dt == pytest.approx(2.5e-3) and loop.t_0 == t[0] and len(loop.q) == 237
    np.testing.assert_array_equal(loop.rows(t), np.arange(60))
    for found, k in ((loop.q, 0), (loop.qd, 1), (loop.qdd, 2)):
        np.testing.assert_allclose(found[::4], waves[k], atol=[1e-12, 1e-6, 1e-3][k])
    assert loop.law.frequency == 50.0 and loop.law.damping == 1.0 and loop.feedforward is None
    again = ClosedLoop.replaying(samples, drive_gains(planar_arm(), 20.0), period=0.01)
    assert again.every == 1 and again.law.kp.shape == (2,)
    np.testing.assert_allclose(again.feedforward, samples.tau, atol=1e-12)
    np.testing.assert_allclose(again.q, samples.q, atol=1e-12)
    with pytest.raises(IdentificationError, match="in 2 pieces cannot be simulated"):
        ClosedLoop.tracking(dataclasses.replace(samples, segments=((0, 30), (30, 60))))


def test_logs_of_a_loop_have_the_noise_asked_for(monkeypatch):
    """The controller sees the encoders' noise, at all its instants; the log has it where it has samples."""
    q, tau = np.random.default_rng(0).normal(size=(2, 4, 2))
    loop = ClosedLoop.following(lambda t: (jnp.stack([t, t**2], axis=1),) * 3, None, 0.06, 0.01, every=2, t_0=0.3)
    seen = []
    moved = lambda loop, chain, noise: seen.append(noise) or SimpleNamespace(q=q, tau=tau)
    monkeypatch.setattr(monte_carlo, "_run", moved)
    log = closed_loop_log(planar_arm(), loop, NoiseLevel(0.01, 0.2), seed=7)
    rng = np.random.default_rng(7)
    encoders, torques = 0.01 * rng.normal(size=(7, 2)), 0.2 * rng.normal(size=(4, 2))
    np.testing.assert_allclose(seen[0][0], encoders, rtol=1e-14)
    assert not seen[0][1].any() and seen[0][1].shape == (7, 2)
    np.testing.assert_allclose(log.q, q + encoders[::2], rtol=1e-14)
    np.testing.assert_allclose(log.tau, tau + torques, rtol=1e-14)
    np.testing.assert_allclose(log.t, [0.3, 0.32, 0.34, 0.36], rtol=1e-12)
    q[1, 0] = np.nan
    with pytest.raises(ModelError, match="closed loop is unstable"):
        closed_loop_log(planar_arm(), loop)


@pytest.fixture(scope="module")
def planar():
    """An arm, its base parameters, and its loop: 6 s at 500 Hz."""
    arm = planar_arm()
    base = base_parameters(arm, SMOOTH)
    motion = random_excitation(arm, 6.0, 5, seed=1, usage=0.5)
    return arm, base, ClosedLoop.following(motion, drive_gains(arm, 40.0), 6.0, 2e-3, every=2)


@pytest.mark.ci
def test_the_loop_moves_as_another_integrator_says(planar):
    arm, _, loop = planar
    short = dataclasses.replace(loop, **{k: getattr(loop, k)[:101] for k in ("q", "qd", "qdd")}, every=1)
    motion = jax.jit(simulate_closed_loop)(short, arm)
    rate = jax.jit(lambda x, tau: forward_dynamics(arm, x[:2], x[2:], tau - resistive_force(arm, x[:2], x[2:])))
    state, law = np.concatenate([np.asarray(x) for x in short.start]), short.law
    for k in range(100):
        np.testing.assert_allclose(np.concatenate([motion.q[k], motion.qd[k]]), state, rtol=1e-6, atol=1e-8)
        tau = law.kp * (short.q[k] - state[:2]) + law.kd * (short.qd[k] - state[2:])
        np.testing.assert_allclose(motion.tau[k], tau, rtol=1e-5, atol=1e-6)
        right = lambda t, x, tau=tau: np.concatenate([x[2:], np.asarray(rate(jnp.asarray(x), tau))])
        state = solve_ivp(right, (0, short.dt), state, rtol=1e-10, atol=1e-12).y[:, -1]
    nominal = ProportionalDerivativeLaw(
        law.kp, law.kd, arm
    )  # with the true model fed forward only rounding is left to follow
    exact = jax.jit(simulate_closed_loop)(dataclasses.replace(loop, law=nominal), arm)
    assert np.abs(np.asarray(exact.q) - np.asarray(loop.q)[::2]).max() < 2e-3


@pytest.mark.nightly
def test_with_parameters_and_without_the_motion_is_one(planar):
    arm, _, loop = planar
    p = prior_parameters(arm, SMOOTH)
    own = jax.jit(simulate_closed_loop)(loop, arm)
    other = dataclasses.replace(arm, inertia=arm.inertia * 2)
    given = jax.jit(lambda p: simulate_closed_loop(loop, other, SMOOTH, p))(jnp.asarray(p))
    for a, b in zip(own, given, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    assert np.array_equal(with_parameters(other, SMOOTH, p).inertia, arm.inertia)


@pytest.mark.ci
def test_torques_and_accelerations_of_parameters_and_their_slopes():
    """An elbow with springs and a motor that both joints turn, by its equations; slopes beside differences."""
    chain = textbook.planar_elbow(m1=1.2, m2=0.8, l1=0.7, lc1=0.3, lc2=0.2, i1=0.05, i2=0.03)
    leaves = {"friction.coulomb": [0.5, 0.2], "friction.coulomb_velocity": [0.3, 0.5], "friction.offset": [0.1, -0.2]}
    leaves |= {"springs.rest_position": [0.2, -0.1], "friction.viscous": [0.5, 0.4], "armature": [0.1, 0.05]}
    chain = jaxdyn.model.with_leaves(chain, {name: jnp.asarray(x) for name, x in leaves.items()})
    columns = Columns(("viscous", "armature"), (joint_springs(chain, (2,)), coupled_drive(1, 2, velocity=0.4)))
    p = prior_parameters(chain, columns)
    p[-4:] = [3.0, 0.02, 0.3, 0.2]
    (q1, q2), (v1, v2), (a1, a2) = q, v, a = np.random.default_rng(0).normal(size=(3, 2))
    directions = [jnp.asarray(np.random.default_rng(1).normal(size=x.shape)) for x in (p, q, v, a)]

    @once
    def both(p, q, v, a, directions):
        tau, by_torque = jax.jvp(lambda *x: parametric_torque(columns, chain, *x), (p, q, v, a), tuple(directions))
        return tau, by_torque, parametric_acceleration(columns, chain, p, q, v, tau)

    tau, by_torque, back = both(*map(jnp.asarray, (p, q, v, a)), directions)
    k, g = 0.8 * 0.7 * 0.2, 9.81
    m12 = 0.8 * 0.2**2 + k * np.cos(q2) + 0.03
    m11 = 1.2 * 0.3**2 + 0.8 * 0.7**2 + k * np.cos(q2) + 0.05 + m12
    last = 0.8 * 0.2 * g * np.cos(q1 + q2)
    first = m11 * a1 + m12 * a2 - k * np.sin(q2) * (2 * v1 * v2 + v2**2) + (0.36 + 0.56) * g * np.cos(q1) + last
    second = m12 * a1 + (0.8 * 0.2**2 + 0.03) * a2 + k * np.sin(q2) * v1**2 + last + 3.0 * (q2 + 0.1)
    motor = 0.02 * a[::-1] + 0.3 * v[::-1] + 0.2 * np.tanh((v1 + v2) / 0.4)  # what each joint has beside its own
    friction = [0.5, 0.4] * v + [0.5, 0.2] * np.tanh(v / [0.3, 0.5]) + [0.1, -0.2] + [0.1, 0.05] * a
    np.testing.assert_allclose(tau, np.array([first, second]) + friction + motor, rtol=1e-12)
    np.testing.assert_allclose(back, a, rtol=1e-10)
    h = 1e-6
    ahead, behind = (
        both(*(x + s * h * d for x, d in zip((p, q, v, a), directions, strict=True)), directions)[0] for s in (1, -1)
    )
    np.testing.assert_allclose(by_torque, (ahead - behind) / (2 * h), rtol=1e-7, atol=1e-7)
    np.testing.assert_array_equal(parameters_of(chain, columns)[:-3], prior_parameters(chain, columns)[:-3])

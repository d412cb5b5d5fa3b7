"""Arms with a mimic finger and with coupled gears, identified through their own coupling and transmission."""

import dataclasses

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxdyn
from helpers import random_inertia, random_rotation
from jaxdyn import LogError, textbook
from jaxdyn.identification import (
    Coulomb,
    Filters,
    FourierSeries,
    FrictionModel,
    LoadDependent,
    Offset,
    Terms,
    Viscous,
    base_parameters,
    diagnose,
    load_torque_model,
    motion_limits,
    optimal_excitation,
    preprocess,
    save_torque_model,
    solve,
)
from jaxdyn.identification.accumulate import accumulate_samples
from jaxdyn.identification.columns import all_columns, prior_parameters, with_friction_at_joints
from jaxdyn.identification.excitation_design import ExcitationSearch
from jaxdyn.io.logs import Log, check_log
from jaxdyn.report import write_report

WIDTH = 0.02


def motion(amplitude, seconds, rate, seed):
    """q, qd, qdd of sums of six sines."""
    rng = np.random.default_rng(seed)
    n = len(amplitude)
    frequency, phase = rng.uniform(0.05, 0.6, (6, n)), rng.uniform(0, 6, (6, n))
    speed = 2 * np.pi * frequency[:, None]
    t = np.arange(round(seconds * rate)) / rate
    angle = speed * t[None, :, None] + phase[:, None]
    a = np.asarray(amplitude)
    return t, *((a * x).sum(0) for x in (np.sin(angle), speed * np.cos(angle), -(speed**2) * np.sin(angle)))


def by_mujoco(chain, q, qd, qdd):
    """Torques of the joints along a motion, by MuJoCo; without friction."""
    none = jnp.zeros(chain.n)
    friction = dataclasses.replace(chain.friction, viscous=none, coulomb=none, offset=none)
    limits = jaxdyn.JointLimits(
        position=jnp.tile(jnp.array([[-jnp.inf, jnp.inf]]), (chain.n, 1)), velocity=none, effort=none
    )
    bare = dataclasses.replace(chain, friction=friction, coupling=None, transmission=None, limits=limits)
    model = mujoco.MjModel.from_xml_string(jaxdyn.io.to_mjcf(bare))
    data, out = mujoco.MjData(model), []
    for x in zip(q, qd, qdd, strict=True):
        data.qpos[:], data.qvel[:], data.qacc[:] = x
        mujoco.mj_inverse(model, data)
        out.append(data.qfrc_inverse.copy())
    return np.array(out)


def gripper():
    """Three joints and two fingers, of which the second mirrors the first."""
    rng = np.random.default_rng(0)
    inertia = np.array([random_inertia(rng) for _ in range(5)]) * np.array([[1.0], [1], [1], [0.3], [0.3]])
    chain = jaxdyn.make_chain(
        rotation=[*(random_rotation(rng) for _ in range(3)), np.eye(3), np.eye(3)],
        translation=rng.normal(size=(5, 3)) * 0.3,
        screw=[*[[0, 0, 1, 0, 0, 0]] * 3, [0, 0, 0, 0, 1, 0], [0, 0, 0, 0, -1, 0]],
        inertia=inertia,
        armature=[0.1, 0.05, 0.03, 0.2, 0.2],
        friction=jaxdyn.Friction([0.5, 0.4, 0.3, 2.0, 2.0], [1.0, 0.8, 0.5, 0.5, 0.5], WIDTH),
        topology=jaxdyn.Topology((-1, 0, 1, 2, 2), tip_name="tool"),
        frames={"tool": (2, np.eye(4))},
        limits=jaxdyn.JointLimits(position=[[-1, 1]] * 3 + [[0, 0.04]] * 2),
    )
    matrix = np.eye(5, 4)
    matrix[4, 3] = 1.0
    return jaxdyn.with_coupling(chain, matrix, names=("a", "b", "c", "grip"))


def measured(t, q, tau, noise, seed, name):
    """A log of these angles and torques with noise: 2e-6 rad and `noise` [N m]."""
    rng = np.random.default_rng(seed)
    return Log(t, q + 2e-6 * rng.normal(size=q.shape), None, tau + noise * rng.normal(size=q.shape), name)


def agreeing(chain, logs):
    """Share of base parameters within two standard deviations of the truth, over logs that differ in their noise.

    One log says little: its parameters' errors are correlated, and the share of a single log lies anywhere between 80 and
    100 %.
    """
    columns, base = all_columns(chain), base_parameters(chain)
    true = base.matrix @ prior_parameters(chain, columns)
    shares = []
    for log in logs:
        samples = preprocess(log, Filters(position_cutoff=30.0))
        found = solve(
            accumulate_samples(columns, chain, [(samples, samples.tau)]), base, independence=samples.independence
        )
        shares.append(np.mean(np.abs(found.values - true) <= 2 * found.standard_deviations))
    return np.mean(shares)


@pytest.mark.nightly
def test_an_arm_with_a_mimic_finger(tmp_path):
    chain = gripper()
    s = np.asarray(chain.coupling.matrix)
    t, q, qd, qdd = motion([0.35, 0.35, 0.35, 0.012], 40.0, 250.0, 1)
    rates, f = qd @ s.T, chain.friction
    losses = np.asarray(f.viscous) * rates + np.asarray(f.coulomb) * np.tanh(rates / WIDTH)
    tau = (by_mujoco(chain, q @ s.T, rates, qdd @ s.T) + losses) @ s
    log, *others = (measured(t, q, tau, 0.3, seed, "gripper") for seed in range(2, 26))
    prior = jaxdyn.with_inertial_parameters(chain, chain.inertia * np.array([[0.8], [1.2], [0.9], [1.3], [0.7]]))
    result = jaxdyn.identify(prior, log)
    assert result.rows == ("a", "b", "c", "grip") and not result.inconsistent_links
    assert {"Ia4 + Ia5", "fv4 + fv5", "fc4 + fc5"} <= set(result.base.names)
    assert result.validation[0].fit.rms.max() < 0.15
    assert agreeing(chain, [log, *others]) >= 0.9  # 93 % by Student's t for eight blocks; 91.6 % are found
    assert not [x for x in diagnose(prior, log) if x.kind in ("sign", "gain", "scale")]
    write_report(result, tmp_path / "report.html")
    assert "grip" in (tmp_path / "report.html").read_text()


def test_a_friction_model_replaces_the_friction_of_motors_of_one_joint():
    """Its columns are those of the joint; with both, no parameter of friction would be determined."""
    wrist = textbook.coupled_wrist()
    t, q, *_ = motion([0.5, 0.5, 0.5], 10.0, 125.0, 3)
    samples = preprocess(Log(t, q, None, 0 * q, "wrist"), Filters(10.0, stride=1))
    model = FrictionModel((Viscous(), Coulomb(), Offset()))
    chain, columns = with_friction_at_joints(wrist, all_columns(wrist))
    columns = dataclasses.replace(columns, drive_terms=("armature",), friction=model)
    base = base_parameters(chain, columns)
    friction = [name for name in base.names if name[0] in "BFfo"]
    assert friction == ["B3", "Fc3", *(f"{x}{j}" for j in (1, 2, 3) for x in ("fv", "fc", "off"))]
    np.testing.assert_array_equal(chain.transmission.friction.viscous[:2], 0)
    blocks = accumulate_samples(columns, chain, [(samples, samples.tau, None, model.signals(samples))])
    r = blocks.total.r[:, :, base.kept].reshape(-1, base.size)
    assert np.linalg.cond(r / np.linalg.norm(r, axis=0)) < 1e3


def test_limits_of_coordinates_are_those_of_all_their_joints():
    limits = motion_limits(gripper())
    np.testing.assert_allclose(limits.lower, [-1, -1, -1, 0])
    np.testing.assert_allclose(limits.upper, [1, 1, 1, 0.04])


def test_a_log_of_coupled_joints_is_checked_by_the_limits_of_its_coordinates():
    t = np.linspace(0, 2, 200)
    q = np.sin(np.outer(t, [3, 4, 5, 6])) * [1.4, 0.8, 0.8, 0.01] + [0, 0, 0, 0.02]
    log = Log(t, q, None, 0 * q, "gripper")
    (note,) = check_log(log, gripper()).notes
    assert note.startswith("a is beyond its position limits -1 .. 1 by up to 0.4")
    with pytest.raises(LogError, match=r"grip look like degrees .* beyond the limits 0 \.\. 0\.04"):
        check_log(dataclasses.replace(log, q=q * [1, 1, 1, 50.0]), gripper())


@pytest.mark.nightly
def test_a_motion_is_designed_within_the_torques_of_coordinates():
    """The finger that follows another counts in the torque of their coordinate."""
    chain = gripper()
    limits = motion_limits(chain, torque=np.array([60.0, 60.0, 30.0, 20.0]))
    design = optimal_excitation(chain, FourierSeries(2.0, 3), search=ExcitationSearch(1, 2), limits=limits)
    motion = design.trajectory(jnp.linspace(0, 2, 50))
    tau = jax.vmap(lambda q, v, a: jaxdyn.inverse_dynamics(chain, q, v, a) + jaxdyn.friction_force(chain, v))(
        *motion[:3]
    )
    assert design.usage["torque"].shape == (4,)
    np.testing.assert_allclose(np.abs(tau).max(axis=0) / limits.torque, design.usage["torque"], rtol=0.1)


@pytest.mark.ci
def test_motors_rub_in_the_model_of_a_wrist_as_in_its_fit(tmp_path):
    """With friction at the log's rate, of which motors of a single joint have none beside the joint's own."""
    wrist = textbook.coupled_wrist()
    t, q, qd, qdd = motion([0.5, 0.5, 0.5], 10.0, 125.0, 3)
    force = jax.vmap(lambda *x: jaxdyn.inverse_dynamics(wrist, *x) + jaxdyn.friction_force(wrist, x[1]))
    log = measured(t, q, np.asarray(force(*map(jnp.asarray, (q, qd, qdd)))), 0.002, 4, "wrist")
    terms = Terms(further=(LoadDependent(),), choose=())
    result = jaxdyn.identify(wrist, log, terms=terms, filters=Filters(10.0), consistent=None)
    save_torque_model(result.model, tmp_path / "model.eqx")
    model, (seen,), fit = load_torque_model(tmp_path / "model.eqx"), result.fitted, result.friction
    own = fit.predict(seen.run)[seen.rows]
    tolerance = 1e-5 * np.abs(own).max()  # leaves in single precision
    np.testing.assert_allclose(model.predict(seen.run, seen.rows), own, atol=tolerance)
    np.testing.assert_allclose(seen.prediction, own, atol=tolerance)
    assert np.all(seen.fit.rms < [0.01, 0.05, 0.05])
    viscous, motors = wrist.transmission.friction.viscous, result.chain.transmission.friction
    np.testing.assert_allclose(fit.coefficients[0, 0], 48.0**2 * viscous[0], rtol=0.02)
    np.testing.assert_allclose(motors.viscous, [0.0, 0.0, viscous[2]], rtol=0.05)
    sharp, s = model.unfiltered, seen.run
    torques = sharp.torques(*(jnp.asarray(x) for x in (s.q, s.qd, s.qdd)))
    np.testing.assert_allclose(torques, sharp.predict(s), atol=3 * tolerance)


@pytest.mark.nightly
def test_a_wrist_with_coupled_motors():
    """Rotor inertias and motor friction of a wrist whose pitch turns the last motor too: no special columns."""
    wrist = textbook.coupled_wrist()
    wide = np.array([0, 0, 0, 0, 2e-3, 0, 2e-3, 0, 0, 2e-3])  # MuJoCo takes no rod without width
    wrist = jaxdyn.with_inertial_parameters(wrist, wrist.inertia + wide[None])
    base = base_parameters(wrist)
    alone = {name for name in base.names if name[0] in "JBF"}
    assert {"J3", "B3", "Fc3"} <= alone  # the motor of two joints has its own
    ratios, motors = np.asarray(wrist.transmission.matrix), wrist.transmission
    t, q, qd, qdd = motion([0.5, 0.5, 0.5], 40.0, 250.0, 3)
    spins = qd @ ratios.T
    viscous, coulomb, width = (
        np.asarray(getattr(motors.friction, k)) for k in ("viscous", "coulomb", "coulomb_velocity")
    )
    losses = viscous * spins + coulomb * np.tanh(spins / width)
    at_motors = np.asarray(motors.rotor_inertia) * (qdd @ ratios.T) + losses
    tau = by_mujoco(wrist, q, qd, qdd) + at_motors @ ratios
    log, *others = (measured(t, q, tau, 0.02, seed, "wrist") for seed in range(4, 28))
    result = jaxdyn.identify(wrist, log)
    assert agreeing(wrist, [log, *others]) >= 0.92
    found = result.chain.transmission
    np.testing.assert_allclose(found.rotor_inertia[2], motors.rotor_inertia[2], rtol=0.1)
    np.testing.assert_allclose(found.friction.viscous[2], motors.friction.viscous[2], rtol=0.1)

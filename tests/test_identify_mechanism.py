"""Robots with a free base, contacts and closed loops, identified from logs that MuJoCo simulates."""

import dataclasses
import functools
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxdyn
from jaxdyn import IdentificationError, LogError, ModelError, textbook
from jaxdyn.identification import (
    Columns,
    Consistency,
    Filters,
    FrictionModel,
    MaxwellSlip,
    MechanismLog,
    Samples,
    Terms,
    Viscous,
    base_parameters,
    identify_mechanism,
    load_torque_model,
    random_excitation,
    save_torque_model,
    synthetic_log,
)
from jaxdyn.identification.base import BaseParameters, total_mass_of
from jaxdyn.identification.columns import INERTIAL_NAMES, prior_parameters
from jaxdyn.identification.mechanisms import (
    _continuous,
    _in_coordinates,
    _of_imu,
    left_over,
    mechanism_samples,
    remaining_parameters,
)
from jaxdyn.identification.prediction import fit_quality, predict
from jaxdyn.mechanisms import linkages
from jaxdyn.report import verdict
from regression import known_arm
from standing_robots import STEP, standing_log

FEET = "left_sole", "right_sole"
LINKS = Columns(())


def test_rows_that_are_left_are_those_of_parameters_and_forces_together():
    """Eliminated sample by sample, or estimated beside the parameters: one estimate."""
    rng = np.random.default_rng(0)
    samples, rows, parameters, forces = 12, 7, 5, 3
    w, y = rng.normal(size=(samples, rows, parameters)), rng.normal(size=(samples, rows))
    a, noise = rng.normal(size=(samples, rows, forces)), rng.uniform(0.1, 3.0, rows)
    through = left_over(a, noise)
    assert through.shape == (samples, rows - forces, rows)
    found = np.linalg.lstsq((through @ w).reshape(-1, parameters), (through @ y[:, :, None]).reshape(-1), rcond=None)[0]
    both = np.zeros((samples, rows, parameters + samples * forces))
    both[:, :, :parameters] = w
    for k in range(samples):
        both[k, :, parameters + k * forces : parameters + (k + 1) * forces] = a[k]
    whole = (both / noise[None, :, None]).reshape(samples * rows, -1)
    together = np.linalg.lstsq(whole, (y / noise).reshape(-1), rcond=None)[0][:parameters]
    np.testing.assert_allclose(found, together, rtol=1e-10)


def test_twists_of_a_filtered_base_are_derivatives_of_its_pose(annotations_unchecked):
    """Of entries that filters left unnormalised: w from R^T dR/dt, R^T dp/dt, and their rates by differences."""
    chain, rng, h = textbook.biped(floating=True), np.random.default_rng(3), 1e-3
    powers = rng.normal(size=(3, chain.nq))
    powers[0, 3:7] += [2.0, 0, 0, 0]
    t = 0.3 + h * np.arange(-2.0, 3.0)[:, None]
    given = powers[0] + powers[1] * t + powers[2] * t**2, powers[1] + 2 * powers[2] * t, 2 * powers[2] + 0 * t
    q, v, a = _in_coordinates(chain, *given)
    slope = lambda x: np.tensordot([1, -8, 0, 8, -1], x, 1) / (12 * h)
    turns = Rotation.from_quat(q[:, [4, 5, 6, 3]]).as_matrix()
    np.testing.assert_allclose(q[:, 3:7], given[0][:, 3:7] / np.linalg.norm(given[0][:, 3:7], axis=1, keepdims=True))
    np.testing.assert_array_equal(np.delete(q, range(3, 7), axis=1), np.delete(given[0], range(3, 7), axis=1))
    spin = turns[2].T @ slope(turns)
    twist = [spin[2, 1], spin[0, 2], spin[1, 0], *turns[2].T @ given[1][2, :3]]
    np.testing.assert_allclose(v[2, :6], twist, atol=1e-9)
    np.testing.assert_allclose(a[2, :6], slope(v[:, :6]), atol=1e-8)
    np.testing.assert_array_equal([v[:, 6:], a[:, 6:]], [given[1][:, 7:], given[2][:, 7:]])
    signs = np.array([1, -1, -1, 1, -1.0])[:, None]
    np.testing.assert_allclose(_continuous(3 * signs * q[:, 3:7]), q[:, 3:7], rtol=1e-14)
    # an IMU at the identity: rates as they are, their slope, and specific force plus gravity
    felt, rate = rng.normal(size=(5, 6)), 100.0
    pose = np.eye(4)
    pose[:3, :3] = turns[0]
    tilted = dataclasses.replace(chain, base_pose=jnp.asarray(pose))
    felt[:, :3] = np.outer(np.arange(5.0), [1, -2, 3]) / rate
    for robot, gravity in ((chain, chain.gravity), (tilted, turns[0].T @ chain.gravity)):
        speed, push = _of_imu(robot, SimpleNamespace(rate=rate, segments=((0, 5),)), felt)
        np.testing.assert_array_equal(speed, np.hstack([felt[:, :3], np.zeros((5, 3))]))
        np.testing.assert_allclose(push[2], [1, -2, 3, *felt[2, 3:] + gravity], rtol=1e-9)


def test_errors_count_what_was_measured():
    tau, error = np.array([[3.0, np.nan, 0.0], [0.0, np.nan, 4.0]]), np.array([[0.3, 5.0, 0.0], [0.4, 5.0, 1.2]])
    rates = np.array([[1.0, 1, 0], [0, 1, 1]])
    found = fit_quality(tau, np.nan_to_num(tau) - error, rates)
    np.testing.assert_allclose(found.rms, [np.sqrt(0.125), np.nan, 1.2 / np.sqrt(2)])
    np.testing.assert_allclose(found.relative, [100 * 0.5 / 3, np.nan, 30])
    np.testing.assert_allclose(found.relative_moving, [10, np.nan, 30])
    assert found.total_relative == pytest.approx(100 * 1.3 / 5) and found.samples == 2
    assert np.isnan(fit_quality(0 * tau, error, rates).total_relative)


def test_deviation_of_the_total_mass_is_that_of_its_combination():
    """Two links: m1 + m2 from base parameters m1 + 2 my2 and m2 - 2 my2; without the second it is not determined."""
    names = tuple(f"{name}{k}" for k in (1, 2) for name in INERTIAL_NAMES)
    rows = np.zeros((2, 20))
    rows[0, [0, 12]], rows[1, [10, 12]] = [1, 2], [1, -2]
    covariance, found, prior = np.array([[0.04, 0.01], [0.01, 0.09]]), np.arange(20.0), np.ones(20)
    both = BaseParameters(np.array([0, 10]), rows, ("a", "b"), (), (), names)
    total = total_mass_of(both, covariance, found, prior, np.ones(2, bool))
    assert (total.value, total.prior) == (10.0, 2.0) and total.deviation == pytest.approx(np.sqrt(0.04 + 0.02 + 0.09))
    one = BaseParameters(np.array([0]), rows[:1], ("a",), (), (), names)
    assert total_mass_of(one, covariance[:1, :1], found, prior, np.ones(2, bool)).deviation is None
    assert (
        total_mass_of(one, covariance[:1, :1], found, prior, np.array([True, False])).deviation is None
    )  # my2 is in it
    alone = dataclasses.replace(one, matrix=np.eye(1, 20), known=("m2",))
    known = total_mass_of(alone, covariance[:1, :1], found, prior, np.ones(2, bool))
    assert known.deviation == pytest.approx(0.2) and str(known) == "10 kg, standard deviation 0.2 kg"


def biped_log(**changes):
    q = np.zeros((3, 17))
    q[:, 3] = 1.0
    made = MechanismLog(np.arange(3) * 1e-3, q, np.zeros((3, 16)))
    return dataclasses.replace(made, **changes)


def test_what_is_missing_or_does_not_fit_is_named():
    chain, six = textbook.biped(floating=True), np.zeros((3, 6))
    lost = biped_log().q.copy()
    lost[:, :7] = np.nan
    cases = [
        (biped_log(q=lost), LogError, "provide the base's pose or its IMU"),
        (biped_log(q=np.zeros((3, 16))), LogError, r"q has shape \(3, 16\); for this robot it must be \(3, 17\)"),
        (biped_log(wrenches={"left_sole": six[:, :3]}), LogError, "the wrench at 'left_sole' has shape"),
        (biped_log(wrenches={"hand": six}), ModelError, "hand"),
        (biped_log(wrenches={"left_sole": six}, held={"left_sole": "pose"}), ModelError, "choose one"),
        (biped_log(held={"left_sole": "edge"}), ModelError, 'held must be "pose" or "point"'),
        (biped_log(tau=np.full((3, 15), np.nan)), LogError, "tau has shape"),
    ]
    for log, error, text in cases:
        with pytest.raises(error, match=text):
            mechanism_samples(chain, log)
    with pytest.raises(LogError, match="one floating base, but this robot has 0"):
        mechanism_samples(textbook.biped(), MechanismLog(np.arange(3.0), *np.zeros((2, 3, 10)), imu=six))
    with pytest.raises(IdentificationError, match="no log"):
        identify_mechanism(chain, [])


@pytest.mark.ci
def test_friction_of_joints_whose_torques_were_measured():
    """An arm of three joints, of which the first has no torque sensor."""
    arm = known_arm()
    made = synthetic_log(arm, random_excitation(arm, 6.0, 5, seed=1), None, 200.0, 1e-6, 0.01)
    log = MechanismLog(made.t, made.q, made.tau.copy())
    law = Terms(further=(MaxwellSlip(width=0.02, joints=(3,)),))
    log.tau[:, 0] = np.nan
    result = jaxdyn.identify(arm, log, terms=law)
    assert set(result.columns.friction_names(3)) == {"fv2", "fc2", "off2", "fv3", "fc3", "off3", "fz3"}
    np.testing.assert_allclose(result.friction.coefficients[1:, 0], arm.friction.viscous[1:], rtol=0.05)
    assert np.isnan(result.fitted[0].fit.rms[0]) and result.fitted[0].fit.rms[1:].max() < 0.01
    assert verdict(result).uses
    with pytest.raises(IdentificationError, match="needs measured joint torques"):
        jaxdyn.identify(arm, dataclasses.replace(log, tau=np.full_like(log.tau, np.nan)), terms=law)
    held = MechanismLog(made.t, made.q, made.tau, held={arm.frame_names[0]: "point"})
    with pytest.raises(IdentificationError, match="at least as many unmeasured forces as equations"):
        identify_mechanism(arm, held)


@functools.cache
def standing():
    """The biped, a prior that is up to 30 % off, and 15 s on two feet."""
    chain = textbook.biped(floating=True)
    q0 = np.array([0, 0, 1.0, 1, 0, 0, 0, *[0.0, -0.3, 0.6, -0.3, 0.0] * 2])
    amplitude = np.array([0.05, 0.4, 0.6, 0.4, 0.05] * 2)
    log, exact = standing_log(chain, FEET, q0, amplitude, stiffness=np.full(10, 300.0), seconds=15.0)
    scale = 1 + 0.3 * np.random.default_rng(0).uniform(-1, 1, (chain.n, 1))
    return chain, jaxdyn.with_inertial_parameters(chain, chain.inertia * scale), log, exact


def agreeing(result, truth):
    """Share of base parameters within two standard deviations of the truth."""
    true = result.base.matrix @ prior_parameters(truth, result.columns)
    return np.mean(np.abs(result.estimate.values - true) <= 2 * result.estimate.standard_deviations)


def mass(chain):
    return float(chain.inertia[:, 0].sum())


@pytest.mark.ci
def test_equation_of_motion_along_exact_logs():
    """MuJoCo's motion, torques and wrenches through our rows: pose and IMU alike."""
    chain, _, _, exact = standing()
    for log in (exact, dataclasses.replace(exact, imu=None)):
        run = mechanism_samples(chain, log, Filters(position_cutoff=25.0))
        s = run.samples
        error = s.tau - predict(LINKS, chain, prior_parameters(chain, LINKS), s.q, s.qd, s.qdd)
        size = np.array([20, 20, 20, 300, 300, 300, *[40] * 10])
        assert (np.sqrt((error**2).mean(axis=0)) / size).max() < 3e-3 and run.measured.all()


@pytest.mark.ci
def test_a_standing_biped_by_all_rows():
    chain, prior, log, _ = standing()
    result = identify_mechanism(prior, log, columns=LINKS)
    assert result.base.size == 80 and not result.inconsistent_links
    assert abs(mass(result.chain) / mass(chain) - 1) < 1e-3  # 0.5 % asked for
    assert agreeing(result, chain) >= 0.9
    assert result.validation[0].fit.total_relative < 0.3
    total = result.total_mass
    assert total.value == pytest.approx(mass(result.chain)) and abs(total.value - 36.0) < 3 * total.deviation < 0.01
    assert (np.asarray(result.chain.inertia[:5]) == 0).all()  # links within the free joint stay none


@pytest.mark.nightly
def test_friction_with_memory_of_a_bipeds_joints(tmp_path):
    """By all rows, its widths are found too; on held feet without force plates, they are given."""
    chain, prior, log, _ = standing()
    given = np.zeros((chain.nv, 2))
    given[6:] = np.linspace([1.0, 2.0], [3.0, 6.0], 10)
    law, q = lambda width: FrictionModel((Viscous(), MaxwellSlip(width=width))), np.asarray(log.q)[:, 7:]
    padded = np.hstack([np.zeros((len(q), 6)), q])
    qd, none = np.gradient(padded, log.t, axis=0), np.zeros_like(padded)
    samples = Samples(log.t, padded, qd, none, none, 1.0, ((0, len(q)),), 0.5, 0.5)
    log = dataclasses.replace(log, tau=log.tau + np.einsum("tjk,jk->tj", law(0.02).blocks(samples), given))
    held = dataclasses.replace(log, wrenches={}, held=dict.fromkeys(FEET, "pose"))
    for some, width, near in ((log, 0.03, 0.01), (held, 0.02, 0.1)):
        result = identify_mechanism(prior, some, columns=Columns(("armature",), friction=law(width)))
        np.testing.assert_allclose(result.friction.coefficients, given, rtol=near)
        np.testing.assert_allclose(result.friction.nonlinear[6:], 0.02, rtol=0.02)
        assert result.validation[0].fit.total_relative < 0.2 and not result.inconsistent_links
    save_torque_model(result.model, tmp_path / "biped.eqx")
    again, s = load_torque_model(tmp_path / "biped.eqx"), result.validation[0].run
    np.testing.assert_array_equal(again.predict(s), result.model.predict(s))
    part = s.part(0, 200)
    stepped, memory = [], again.start(jnp.asarray(part.q[0]))
    step = eqx.filter_jit(again.torque)
    for x in zip(part.q, part.qd, part.qdd, strict=True):
        torque, memory = step(memory, *x)
        stepped.append(torque)
    whole = again.torques(*(jnp.asarray(x) for x in (part.q, part.qd, part.qdd)))
    np.testing.assert_allclose(np.stack(stepped), whole, rtol=1e-4, atol=1e-4 * np.abs(whole).max())


@pytest.mark.nightly
def test_a_standing_biped_by_the_rows_of_its_base_alone():
    chain, prior, log, _ = standing()
    result = jaxdyn.identify(prior, dataclasses.replace(log, tau=np.full_like(log.tau, np.nan)))
    assert result.columns.drive_terms == () and result.base.size == 80 and not result.inconsistent_links
    assert abs(mass(result.chain) / mass(chain) - 1) < 2e-3  # 1 % asked for
    assert agreeing(result, chain) >= 0.92
    assert np.isnan(result.validation[0].fit.rms[6:]).all() and result.validation[0].fit.rms[:6].max() < 1.0


@pytest.mark.nightly
def test_a_biped_on_held_feet_without_force_plates():
    """Joint torques suffice to predict unseen motion, but leave feet that never move undetermined."""
    chain, prior, log, _ = standing()
    held = dataclasses.replace(log, wrenches={}, held=dict.fromkeys(FEET, "pose"))
    result = identify_mechanism(prior, held, columns=LINKS)
    assert 40 < result.base.size < 80 and not result.inconsistent_links
    assert not any(f"{k}{i}" in name.split() for name in result.base.names for k in ("Ixx", "Izz") for i in (11, 16))
    assert agreeing(result, chain) >= 0.9
    assert result.validation[0].fit.total_relative < 0.5
    # the ground carries what never moves: no combination of base parameters is the total mass, and the result says so
    assert result.total_mass.deviation is None and "not determined by the data" in str(result)
    assert "at left_sole, right_sole carry it: measure the contact wrenches" in result.notes[0]
    weighed = identify_mechanism(prior, held, columns=LINKS, consistent=Consistency(mass=36.0))
    assert weighed.total_mass.value == pytest.approx(36.0) and not weighed.notes


@functools.cache
def five_bar_log():
    """Twenty seconds of a five-bar whose two motors follow sums of sines, encoders at the motors alone."""
    chain, pin = linkages.five_bar(masses=(1.1, 0.9, 1.3, 0.7), com_distances=(0.45, 0.2, 0.55, 0.3))
    wide = np.array([0, 0, 0, 0, 1e-2, 0, 1e-2, 0, 0, 1e-2])  # MuJoCo takes no rod without width
    chain = jaxdyn.with_inertial_parameters(chain, chain.inertia + wide[None])
    spec = mujoco.MjSpec.from_string(jaxdyn.io.to_mjcf(chain))
    spec.option.timestep = STEP
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    for name, body, at in (("a", "link3", 1.0), ("b", "link4", 0.4)):
        spec.body(body).add_site(name=name, pos=[at, 0, 0])
    loop = spec.add_equality()
    loop.type, loop.objtype = mujoco.mjtEq.mjEQ_CONNECT, mujoco.mjtObj.mjOBJ_SITE
    loop.name1, loop.name2, loop.solref = "a", "b", [4 * STEP, 1.0]
    model = spec.compile()
    data = mujoco.MjData(model)
    angles = np.array([[1.0, 0], [0, 1], [1, -1], [-1, 1]])
    at = [int(model.joint(name).qposadr[0]) for name in chain.joint_names]  # MuJoCo goes depth first
    data.qpos[at] = angles @ [0.6, 1.8]
    rng = np.random.default_rng(1)
    frequency, phase = rng.uniform(0.2, 1.5, (5, 2)), rng.uniform(0, 6, (5, 2))
    q, tau = [], []
    for k in range(round(20 / STEP)):
        wanted = [0.6, 1.8] + 0.12 * (np.sin(2 * np.pi * frequency * k * STEP + phase) - np.sin(phase)).sum(axis=0)
        data.qfrc_applied[at[:2]] = 200 * (wanted - data.qpos[at[:2]]) - 20 * data.qvel[at[:2]]
        if k % 2 == 0:
            q.append(data.qpos[at])
            tau.append(data.qfrc_applied[at])
        mujoco.mj_step(model, data)
    q, tau = np.array(q), np.array(tau)
    seen = (q[:, :2] + 2e-5 * rng.normal(size=(len(q), 2))) @ angles.T
    tau[:, :2] += 0.05 * rng.normal(size=(len(q), 2))
    return chain, pin, MechanismLog(np.arange(len(q)) * 2 * STEP, seen, tau, constraints=(pin,), source="five-bar")


@pytest.mark.nightly
def test_a_five_bar_without_encoders_at_its_passive_joints():
    chain, _, log = five_bar_log()
    prior = jaxdyn.with_inertial_parameters(chain, chain.inertia * np.array([[0.8], [1.2], [0.9], [1.1]]))
    result = identify_mechanism(prior, log, columns=LINKS)
    assert result.base.size == 8  # d11, d22, and d and both gravity terms with what lies beside the links' lines
    assert agreeing(result, chain) == 1.0 and not result.inconsistent_links
    assert result.validation[0].fit.total_relative < 1.0
    judged = verdict(result)  # the loop's force stands in all predictions, and passive joints in no verdict
    assert result.has_unmeasured_forces and not judged.simulated
    assert [use.level for use in judged.uses] == ["good", "good", "fair"]
    assert "closed loops" in judged.uses[2].text
    assert 1.0 < judged.given.given.total_relative < 40.0  # masses are up to 20 % off


@pytest.mark.ci
def test_what_a_closed_loop_leaves_is_the_rank_of_the_reduced_regressor():
    chain, pin, log = five_bar_log()
    run = mechanism_samples(chain, log, Filters(position_cutoff=10.0))
    found = remaining_parameters(chain, LINKS, [run], base_parameters(chain, LINKS))
    y = np.random.default_rng(0).normal(size=(40, 2))
    q = y @ np.array([[1.0, 0], [0, 1], [1, -1], [-1, 1]]).T
    w, a = np.random.default_rng(1).normal(size=(2, 40, 2))
    rows = jax.jit(jax.vmap(lambda *x: jaxdyn.mechanisms.reduced_regressor(chain, pin, *x, ("joint1", "joint2"))))(
        q, w, a
    )
    rows = np.asarray(rows).reshape(-1, 40)
    assert np.linalg.matrix_rank(rows, tol=1e-9) == found.size
    assert np.abs(rows @ (np.eye(40) - np.linalg.pinv(found.matrix) @ found.matrix)).max() < 1e-6

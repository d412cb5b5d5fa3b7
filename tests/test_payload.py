"""Payloads, drive gains, delays and diagnoses: recovered from runs of a known arm, and on a real one's logs."""

import dataclasses
import hashlib
import json
import pathlib
import re
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, stats

import jaxdyn
from jaxdyn import (
    IdentificationError,
    Log,
    LogError,
    friction_force,
    identify,
    inverse_dynamics,
    load,
    read_log,
    robots,
    textbook,
)
from jaxdyn.cli import main
from jaxdyn.identification import (
    Columns,
    Coulomb,
    Filters,
    FrictionModel,
    MaxwellSlip,
    Offset,
    Samples,
    Terms,
    TorqueModel,
    Viscous,
    base_parameters,
    calibrate_gains,
    diagnose,
    diagnose_identification,
    diagnostics,
    estimate_delay,
    identify_payload,
    preprocess,
    random_excitation,
    save_torque_model,
    with_gains,
    without_delay,
)
from jaxdyn.identification.delay import least_by_parabola
from jaxdyn.identification.diagnostics import _Runs, _unexcited, _unlike
from jaxdyn.identification.factors import BlockFactors
from jaxdyn.identification.payload import given_body, loaded_runs, transform_matrix
from jaxdyn.model.chain import coordinate_names
from jaxdyn.report.markup import rounded, with_deviation
from jaxdyn.report.payloads import payload_json, read_gains
from jaxdyn.spatial.inertia import (
    inertial_parameters_from_com,
    pseudo_inertia,
    transform_inertial_parameters,
)
from regression import dense, known_arm

WIDTH = np.asarray(known_arm().friction.coulomb_velocity)
LINEAR = FrictionModel((Viscous(), Coulomb(width=WIDTH), Offset()))
GAINS = np.array([1.3, 0.8, 1.1])


def body() -> np.ndarray:
    inertia = jnp.diag(jnp.array([0.03, 0.04, 0.02]))
    return np.array(inertial_parameters_from_com(jnp.asarray(2.0), jnp.array([0.05, 0.1, -0.08]), inertia))


@pytest.fixture(scope="module")
def arm():
    """Its tip is the last link, and no tool frame."""
    chain = known_arm()
    return dataclasses.replace(chain, topology=dataclasses.replace(chain.topology, tip_name=chain.link_names[-1]))


@jax.jit
def torques(chain, q, qd, qdd, by_load):
    def one(*x):
        rigid = inverse_dynamics(chain, *x)
        return (
            rigid
            + friction_force(chain, x[1])
            + by_load * jnp.abs(rigid) * jnp.tanh(x[1] / chain.friction.coulomb_velocity)
        )

    return jax.vmap(one)(q, qd, qdd)


def run(arm, payload=None, seed=0, noise=0.0, by_load=0.0, seconds=12.0, rate=50.0) -> Samples:
    """Exact samples of a motion, with noise on the torques."""
    if payload is not None:
        arm = eqx.tree_at(lambda c: c.inertia, arm, arm.inertia.at[-1].add(jnp.asarray(payload)))
    t = np.arange(round(seconds * rate)) / rate
    q, qd, qdd = (np.asarray(x) for x in random_excitation(arm, seconds, 5, seed)(jnp.asarray(t)))
    tau = np.array(torques(arm, q, qd, qdd, jnp.full(arm.n, by_load)))
    tau += noise * np.random.default_rng(seed).normal(size=tau.shape)
    return Samples(t, q, qd, qdd, tau, rate, ((0, len(t)),), rate / 2.0, rate / 2.0)


def test_a_payload_is_the_difference_of_two_runs(arm):
    unloaded, loaded = run(arm, seed=1), run(arm, body(), seed=2, seconds=9.0)
    found = identify_payload(arm, loaded, unloaded=unloaded)
    np.testing.assert_allclose(found.parameters, body(), rtol=0, atol=1e-8)
    np.testing.assert_allclose(found.com, [0.05, 0.1, -0.08], atol=1e-8)
    np.testing.assert_allclose(found.inertia, np.diag([0.03, 0.04, 0.02]), atol=1e-8)
    assert found.consistent and found.determined.all() and np.array_equal(found.body, found.parameters)
    # from the loaded run alone, where the arm is known
    alone = identify_payload(arm, loaded)
    assert any("gains were not calibrated" in note for note in alone.notes)
    np.testing.assert_allclose(alone.parameters, body(), rtol=0, atol=1e-8)
    complete = identify_payload(TorqueModel(arm), loaded)
    np.testing.assert_allclose(complete.parameters, body(), rtol=0, atol=1e-8)
    other = eqx.tree_at(lambda c: c.inertia, arm, arm.inertia.at[-1].add(jnp.asarray(body())))
    nothing = identify_payload(other, loaded)
    assert np.abs(nothing.parameters).max() < 1e-8


def test_exchanged_and_repeated_runs_are_noticed(arm):
    unloaded, loaded = run(arm, seed=1, noise=0.02), run(arm, body(), seed=2, noise=0.02)
    exchanged = identify_payload(arm, unloaded, unloaded=loaded)
    assert exchanged.mass == pytest.approx(-2, rel=0.01)
    assert any("mass is negative: were runs with and without it exchanged?" in note for note in exchanged.notes)
    heavy = eqx.tree_at(lambda c: c.inertia, arm, arm.inertia.at[-1].add(jnp.asarray(body())))
    assert any("does the arm's model contain a payload?" in note for note in identify_payload(heavy, unloaded).notes)
    assert not any("negative" in note for note in identify_payload(arm, loaded, unloaded=unloaded).notes)
    other = run(arm, body(), seed=3)
    with pytest.raises(
        IdentificationError, match="memory and memory contain the same data, but one is passed as a run with"
    ):
        identify_payload(arm, [other, loaded], unloaded=loaded)
    with pytest.raises(IdentificationError, match="pass each run once"):
        calibrate_gains(arm, loaded, [other, loaded], 2.0)


@pytest.mark.ci
def test_a_payload_of_an_arm_with_coupled_joints(arm, tmp_path, capsys):
    """Three joints on two coordinates, with a payload that has a gain of its own on each."""
    still = jaxdyn.model.with_leaves(
        arm, {f"friction.{x}": jnp.zeros(3) for x in ("viscous", "coulomb", "stribeck", "offset")}
    )
    coupled = jaxdyn.with_coupling(still, np.array([[1.0, 0.0], [0.0, 1.0], [0.0, -0.5]]))

    def moved(chain, seed):
        q, qd, qdd = (np.asarray(x)[:, :2] for x in random_excitation(arm, 12.0, 5, seed)(jnp.arange(600.0) / 50.0))
        tau = np.asarray(jax.vmap(lambda *x: inverse_dynamics(chain, *x))(q, qd, qdd))
        return Samples(np.arange(600) / 50.0, q, qd, qdd, tau, 50.0, ((0, 600),), 25.0, 25.0)

    loaded = moved(eqx.tree_at(lambda c: c.inertia, coupled, coupled.inertia.at[-1].add(jnp.asarray(body()))), 2)
    for unloaded in ((), moved(coupled, 1)):
        found = identify_payload(coupled, loaded, unloaded=unloaded)
        np.testing.assert_allclose(found.parameters, body(), rtol=0, atol=1e-7)
    gains = np.array([1.3, 0.8])
    currents = (dataclasses.replace(s, tau=s.tau / gains) for s in (moved(coupled, 1), loaded))
    np.testing.assert_allclose(calibrate_gains(coupled, *currents, 2.0).factors, gains, rtol=1e-6)
    save_torque_model(TorqueModel(coupled), tmp_path / "arm.eqx")
    line = ["payload", "--model", str(tmp_path / "arm.eqx"), "--mass", "2"]
    for option, s in (("--unloaded", moved(coupled, 1)), ("--loaded", loaded)):
        path = str(tmp_path / f"{option}.csv")
        np.savetxt(path, np.c_[s.t, s.q, s.tau], "%.9g", ",", header="t,q1,q2,tau1,tau2", comments="")
        line += [option, path]
    assert main(line) == 0
    said = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in said[1:3]] == [*coordinate_names(coupled)]


def test_deviations_of_the_centre_of_mass_are_those_of_the_parameters_to_first_order(arm):
    found = identify_payload(arm, run(arm, body(), seed=2, noise=0.2, seconds=6.0))
    slope = np.asarray(jax.jacobian(lambda p: p[1:4] / p[0])(jnp.asarray(found.parameters)))
    expected = np.sqrt(np.diag(slope @ found.covariance @ slope.T))
    np.testing.assert_allclose(found.com_deviations, expected, rtol=1e-9)
    negative = dataclasses.replace(found, parameters=-found.parameters)
    np.testing.assert_allclose(negative.com_deviations, expected, rtol=1e-9)


def test_a_payload_at_a_named_frame(arm):
    pose = np.asarray(arm.frame_poses[0])
    np.testing.assert_allclose(
        transform_matrix(pose) @ body(),
        transform_inertial_parameters(jnp.asarray(pose), jnp.asarray(body())),
        atol=1e-14,
    )
    there = np.linalg.solve(transform_matrix(pose), body())
    found = identify_payload(arm, run(arm, body(), seed=2), frame="tool")
    np.testing.assert_allclose(found.parameters, there, rtol=0, atol=1e-8)
    with pytest.raises(IdentificationError, match="fixed to the base"):
        identify_payload(arm, run(arm, body()), frame=str(arm.topology.base_name))
    with pytest.raises(IdentificationError, match="unknown link or frame 'hand'"):
        identify_payload(arm, run(arm, body()), frame="hand")


@pytest.mark.ci
def test_what_a_planar_arm_cannot_weigh_is_not_invented():
    arm = textbook.planar_elbow()
    found = identify_payload(arm, run(arm, body(), 2), frame=arm.link_names[-1])
    assert found.determined.tolist() == [True, True, True, *[False] * 6, True]
    np.testing.assert_allclose(found.parameters[found.determined], body()[found.determined], atol=1e-8)
    assert np.isnan(found.parameters[~found.determined]).all() and np.isnan(found.com[2])
    assert found.consistent and found.inertia[2, 2] == pytest.approx(0.02, abs=1e-8)
    assert "do not determine the payload's mz, Ixx" in found.notes[-1]
    assert json.loads(payload_json(found))["com"][2] is None
    assert "an error of 1 % shifts the mass by 0.02 kg" in found.scale_caveat
    unknown = dataclasses.replace(found, parameters=np.full(10, np.nan), determined=np.zeros(10, bool))
    assert "an error of 1 % shifts the mass by 1 %" in unknown.scale_caveat
    assert np.linalg.eigvalsh(np.asarray(pseudo_inertia(jnp.asarray(found.body))))[0] > 0


@pytest.mark.ci
def test_friction_that_grows_with_the_load(arm):
    pair = run(arm, None, 1, by_load=0.1), run(arm, body(), 2, by_load=0.1)
    found = identify_payload(arm, pair[1], unloaded=pair[0])
    np.testing.assert_allclose(found.parameters, body(), rtol=0, atol=2e-3)
    without = identify_payload(arm, pair[1], unloaded=pair[0], friction=LINEAR)
    assert np.abs(without.parameters - body()).max() > 5 * np.abs(found.parameters - body()).max()
    assert np.all(found.noise < 0.2 * without.noise)


def test_friction_of_each_runs_own(arm):
    warm = jaxdyn.model.with_leaves(arm, {"friction.viscous": arm.friction.viscous * 0.5})
    pair = run(arm, None, 1, 0.01), run(warm, body(), 2, 0.01)
    found = identify_payload(arm, pair[1], unloaded=pair[0], own_friction=True)
    np.testing.assert_allclose(found.noise, 0.01, rtol=0.1)
    assert np.all(np.abs(found.parameters - body()) < 4 * found.standard_deviations)
    shared = identify_payload(arm, pair[1], unloaded=pair[0])
    assert np.all(shared.noise > 5 * found.noise)
    assert np.abs(shared.parameters - body()).max() > np.abs(found.parameters - body()).max()


@pytest.mark.nightly
def test_standard_deviations_of_payload_and_gains(arm):
    z, z_gains = [], []
    for seed in range(6):
        pair = run(arm, None, 100 + seed, 0.3), run(arm, body(), 300 + seed, 0.3)
        found = identify_payload(arm, pair[1], unloaded=pair[0], friction=LINEAR)
        z.append((found.parameters - body()) / found.standard_deviations)
        currents = [dataclasses.replace(s, tau=s.tau / GAINS) for s in pair]
        gains = calibrate_gains(arm, *currents, 2.0, friction=LINEAR)
        assert gains.determined.all()
        z_gains.append((gains.gains - GAINS) / gains.standard_deviations)
    for values in (z, z_gains):
        assert 0.5 < np.sqrt(np.mean(np.square(values))) < 1.4


def test_nominal_gains_in_the_arms_model_are_warned_of(arm):
    """The arm's model was identified with the nominal gains, those of the payload's run were calibrated."""
    pair = [dataclasses.replace(s, tau=s.tau / 1.25) for s in (run(arm, None, 1, 1e-3), run(arm, body(), 2, 1e-3))]
    gains = calibrate_gains(arm, *pair, 2.0, friction=LINEAR)
    np.testing.assert_allclose(gains.factors, 1.25, rtol=1e-3)
    nominal = dataclasses.replace(arm, inertia=arm.inertia / 1.25)
    found = identify_payload(nominal, pair[1], gains=gains, friction=LINEAR)
    assert abs(found.mass - 2.0) > 0.1  # wrong without the run that would tell
    (note,) = [note for note in found.notes if "calibrated gains differ" in note]
    assert "by up to 25 %" in note and "pass a run without the payload" in note
    both = identify_payload(nominal, pair[1], unloaded=pair[0], gains=gains, friction=LINEAR)
    assert both.mass == pytest.approx(2.0, rel=1e-3) and not [x for x in both.notes if "gains differ" in x]


@pytest.mark.nightly
def test_gains_equal_those_of_a_direct_fit(arm):
    """The same maximum likelihood by SciPy on the dense regressor."""
    pair = run(arm, None, 1, 0.2), run(arm, body(), 2, 0.2)
    currents = [dataclasses.replace(s, tau=s.tau / GAINS) for s in pair]
    found = calibrate_gains(arm, *currents, 2.0, friction=LINEAR, gains=[2.0, 2.0, 2.0])
    np.testing.assert_allclose(found.gains, 2 * found.factors)
    np.testing.assert_allclose(found.factors, GAINS, rtol=0.05)
    columns = Columns()
    kept = base_parameters(arm, columns).kept
    shared, local = kept[kept < 30], kept[kept >= 30]
    armature = [k for k in local if columns.names(3)[k].startswith("Ia")]
    local = [k for k in local if k not in armature]
    w = [dense(arm, s.q, s.qd, s.qdd) for s in currents]
    rigid = np.concatenate([x[:, :, [*shared, *armature]] for x in w])
    load = np.concatenate([0 * w[0][:, :, 20:30], w[1][:, :, 20:30]])
    friction = np.concatenate([x[:, :, local] for x in w])
    i = np.concatenate([s.tau for s in currents])
    size = rigid.shape[2]

    def error(x):
        pi, p, f, c = x[:size], np.concatenate([[2.0], x[size : size + 9]]), x[size + 9 : -3], np.exp(x[-3:])
        return ((i - (rigid @ pi + load @ p) / c - friction @ f) / (found.noise / found.factors)).ravel()

    start = np.concatenate([np.zeros(rigid.shape[2] + 9 + friction.shape[2]), np.log(GAINS)])
    direct = optimize.least_squares(error, start, method="lm", x_scale="jac", xtol=1e-12)
    np.testing.assert_allclose(np.exp(direct.x[-3:]), found.factors, rtol=3e-4)  # a prior of a factor of two is in ours
    # and the next payload comes out right with them, its deviation with that of the gains in it
    one = {"unloaded": currents[0], "friction": LINEAR}
    plain = identify_payload(arm, currents[1], **one)
    scaled = identify_payload(arm, currents[1], gains=found, **one)
    assert abs(plain.mass - 2) > 0.1 and abs(scaled.mass - 2) < 2e-3
    sure = identify_payload(arm, currents[1], gains=dataclasses.replace(found, covariance=np.zeros((3, 3))), **one)
    assert scaled.mass == sure.mass and scaled.standard_deviations[0] > 1.1 * sure.standard_deviations[0]


def test_a_joint_whose_gain_the_payload_does_not_tell_keeps_its_ratio(arm):
    pair = [run(arm, None, 1, 0.02), run(arm, body(), 2, 0.02)]
    loud = 100 * np.random.default_rng(0).normal(size=pair[0].tau.shape) * [0, 0, 1]
    pair = [dataclasses.replace(s, tau=s.tau / 1.2 + loud) for s in pair]
    found = calibrate_gains(arm, *pair, 2.0, friction=LINEAR)
    assert found.determined.tolist() == [True, True, False]
    assert found.factors[2] == pytest.approx(np.sqrt(found.factors[0] * found.factors[1]), rel=1e-9)
    assert f"{arm.joint_names[2]}: the runs do not determine its gain" in found.notes[-1]
    assert found.common == pytest.approx(1.2, abs=4 * found.common_deviation)
    log = Log(pair[0].t, pair[0].q, None, pair[0].tau)
    np.testing.assert_allclose(with_gains(log, found).tau, log.tau * found.factors)
    with pytest.raises(IdentificationError, match="there are 3 gains"):
        with_gains(dataclasses.replace(log, q=log.q[:, :2], tau=log.tau[:, :2]), found)
    with pytest.raises(IdentificationError, match="positive"):
        calibrate_gains(arm, *pair, -1.0)
    with pytest.raises(IdentificationError, match="2 gains for 3 joints"):
        calibrate_gains(arm, *pair, 1.0, gains=[1.0, 1.0])
    with pytest.raises(IdentificationError, match="no runs without the payload"):
        calibrate_gains(arm, [], pair[1], 1.0)
    for given in ([], pair[0]):
        with pytest.raises(IdentificationError, match="no runs with the payload"):
            identify_payload(arm, [], unloaded=given)


def test_an_inconsistent_estimate_is_replaced_by_the_consistent_body_that_fits_best(arm):
    """A thin plate: noise makes a moment of inertia too small. No consistent body fits better, not even the true one."""
    plate = body()
    plate[[4, 6, 9]] += np.array([0.02, 0.02, 0.04]) - [0.03, 0.04, 0.02]
    pair = run(arm, None, 1, 0.3), run(arm, plate, 2, 0.3)
    found = identify_payload(arm, pair[1], unloaded=pair[0], friction=LINEAR)
    values = lambda p: np.linalg.eigvalsh(np.asarray(pseudo_inertia(jnp.asarray(p))))
    assert not found.consistent and values(found.parameters)[0] < 0 < values(found.body)[0]
    with jax.enable_x64(True):
        runs = loaded_runs(arm, *pair, None, LINEAR, False, None)[0]
        fit = runs.fit(np.zeros(10), np.eye(10), np.zeros((3, 0)))
    metric = np.linalg.inv(fit.covariance[:10, :10])
    near, true = ((p - found.parameters) @ metric @ (p - found.parameters) for p in (found.body, plate))
    assert 0 < near < true + 1


def test_held_out_torques_are_predicted_with_the_payload(arm):
    pair = run(arm, None, 1, 0.2), run(arm, body(), 2, 0.2)
    found = identify_payload(arm, pair[1], unloaded=pair[0])
    np.testing.assert_allclose(found.held_out, 0.2, rtol=0.15)
    assert np.all(found.payload_torque > 5 * found.held_out)
    np.testing.assert_allclose(identify_payload(arm, pair[1]).held_out, 0.2, rtol=0.15)


def test_friction_with_memory_of_the_identified_arm_is_kept(arm):
    """Joints that yield over 0.02 rad before they slip; signs of the velocity alone cannot describe this."""
    terms = FrictionModel((Viscous(), MaxwellSlip(width=0.02), Offset()))
    none = jnp.zeros(arm.n)
    chain = jaxdyn.model.with_leaves(arm, {f"friction.{x}": none for x in ("viscous", "coulomb", "stribeck", "offset")})
    coefficients = jnp.array([[2.0, 6.0, 0.1], [2.0, 5.0, -0.1], [1.0, 3.0, 0.2]])
    s = run(chain, body(), 2)
    slipping = np.einsum("tjk,jk->tj", terms.blocks(s), coefficients)
    s = dataclasses.replace(s, tau=s.tau + slipping + 0.02 * np.random.default_rng(0).normal(size=s.tau.shape))
    found = identify_payload(
        TorqueModel(chain, terms, 0.8 * coefficients), s
    )  # colder than when the arm was identified
    np.testing.assert_allclose(found.noise, 0.02, rtol=0.2)
    assert np.all(np.abs(found.parameters - body()) < 4 * found.standard_deviations)
    assert np.all(identify_payload(chain, s).noise > 10 * found.noise)


def test_a_parabola_through_the_least_errors():
    shifts = np.linspace(-0.02, 0.03, 6)
    squares = 3e4 * (shifts[:, None] - [0.0041, -0.0083, 0.01, -0.05, 0.06]) ** 2 + [1.0, 2.0, 3.0, 4.0, 5.0]
    seconds, least, inside = least_by_parabola(shifts, squares)
    np.testing.assert_allclose(seconds, [0.0041, -0.0083, 0.01, -0.02, 0.03], rtol=1e-9)
    np.testing.assert_allclose(least, [1, 2, 3, squares[0, 3], squares[-1, 4]], rtol=1e-9)
    assert inside.tolist() == [True, True, True, False, False]
    flat = least_by_parabola(shifts, np.ones((6, 1)))  # the same at all of them: none is better
    assert (flat[0][0], flat[1][0], flat[2][0]) == (-0.02, 1.0, False)


def test_delays_are_found_and_taken_out(arm):
    truth = np.array([0.004, -0.002, 0.0075])
    fine = run(arm, None, 1, rate=1000.0)
    late = np.stack([np.interp(fine.t - d, fine.t, fine.tau[:, j]) for j, d in enumerate(truth)], axis=1)
    late += 0.02 * np.random.default_rng(0).normal(size=late.shape)
    log = Log(fine.t[100:-100:5], fine.q[100:-100:5], None, late[100:-100:5])
    found = estimate_delay(arm, log, Filters(position_cutoff=20.0), longest=0.02)
    assert found.inside.all() and np.all(found.standard_deviations < 5e-4)
    np.testing.assert_allclose(found.seconds, truth, atol=3e-4)
    with jax.enable_x64(False):
        alike = estimate_delay(arm, log, Filters(position_cutoff=20.0), longest=0.02)
    np.testing.assert_allclose(alike.residuals, found.residuals, rtol=1e-9)
    assert np.all(np.diff(found.gain[[1, 0, 2]]) > 0)
    straight = without_delay(log, found.seconds)
    early, late = log.t + min(found.seconds.min(), 0), log.t + max(found.seconds.max(), 0)
    np.testing.assert_array_equal(straight.t, log.t[(early >= log.t[0]) & (late <= log.t[-1])])
    assert 0 < len(log) - len(straight) < 4 and "torque delays were removed" in straight.notes[-1]
    again = estimate_delay(arm, straight, Filters(position_cutoff=20.0), longest=0.02)
    assert np.abs(again.seconds).max() < 3e-4
    with pytest.raises(LogError, match="finite number"):
        without_delay(log, np.array([0.0, 1.0]))
    with pytest.raises(LogError, match="longer than the delays"):
        without_delay(log, 20.0)


def test_diagnoses_name_what_is_wrong(arm):
    good = run(arm, None, 1, 0.1)
    changed = lambda f: dataclasses.replace(good, tau=good.tau * np.array(f))
    kinds = lambda findings: [(f.kind, f.about) for f in findings]
    names = arm.joint_names
    assert diagnose(arm, good) == ()
    assert ("sign", names[1:2]) in kinds(diagnose(arm, changed([1, -1, 1])))
    assert [k for k in kinds(diagnose(arm, changed([-1, -1, -1]))) if k[0] == "sign"] == [("sign", names)]
    wrong = [f for f in diagnose(arm, changed([1, 1, 3])) if f.kind == "gain"]
    assert [f.about for f in wrong] == [names[2:]] and "about 3" in wrong[0].text
    assert [f.kind for f in diagnose(arm, changed([0.1] * 3))] == ["scale"]
    still = dataclasses.replace(good, q=good.q * [1, 1, 0], qd=good.qd * [1, 1, 0], qdd=good.qdd * [1, 1, 0])
    unexcited = [f for f in diagnose(arm, still) if f.kind == "unexcited"]
    assert any("fv3" in name for f in unexcited for name in f.about)
    short = dataclasses.replace(good, **{k: getattr(good, k)[:6] for k in ("t", "q", "qd", "qdd", "tau")})
    assert [f.kind for f in diagnose(arm, short)] == ["short"]
    impossible = eqx.tree_at(lambda c: c.inertia, arm, arm.inertia.at[1, 0].set(-1.0))
    assert ("prior", arm.link_names[1:2]) in kinds(diagnose(impossible, good))


def test_the_other_joints_tell_a_sign_that_friction_does_not(arm):
    none = jnp.zeros(arm.n)
    smooth = jaxdyn.model.with_leaves(
        arm, {"friction.viscous": none, "friction.coulomb": none, "friction.stribeck": none}
    )
    good = run(smooth, None, 1, 0.1)
    turned = dataclasses.replace(good, tau=good.tau * np.array([1, -1, 1]))
    assert [(f.kind, f.about) for f in diagnose(smooth, turned) if f.kind == "sign"] == [("sign", arm.joint_names[1:2])]
    assert not [f for f in diagnose(smooth, good) if f.kind == "sign"]


@pytest.mark.ci
def test_diagnosis_of_an_identification(arm):
    s = run(arm, None, 1, 0.05)
    result = identify(
        arm, Log(s.t, s.q, None, s.tau * [1, 1, -1]), filters=Filters(position_cutoff=20.0), terms=Terms(choose=())
    )
    findings = diagnose_identification(result)
    assert ("sign", arm.joint_names[2:]) in [(f.kind, f.about) for f in findings]
    assert {f.about for f in findings if f.kind == "result"} == {
        (sentence.split("'")[1],) for sentence in result.inconsistent_links
    }


def write(path, log, currents=None):
    kind = "tau" if currents is None else "i"
    header = ["t", *(f"q{j + 1}" for j in range(log.n)), *(f"{kind}{j + 1}" for j in range(log.n))]
    values = log.tau if currents is None else log.tau / currents
    np.savetxt(path, np.column_stack([log.t, log.q, values]), delimiter=",", header=",".join(header), comments="")
    return str(path)


def test_the_command(arm, tmp_path, capsys):
    from jaxdyn.io import save_model
    from jaxdyn.io.urdf_write import save_urdf

    save_urdf(arm, tmp_path / "arm.urdf")
    unloaded = write(tmp_path / "a.csv", run(arm, None, 1, 0.02), GAINS)
    loaded = write(tmp_path / "b.csv", run(arm, body(), 2, 0.02), GAINS)
    (tmp_path / "my.toml").write_text("cutoff = 20\n")
    (tmp_path / "bare.toml").write_text("cutoff = 20\nignore_inertials = true\n")
    cutoff, bare = (["--settings", str(tmp_path / name)] for name in ("my.toml", "bare.toml"))
    common = ["payload", "--model", str(tmp_path / "arm.urdf"), "--gains", "1,1,1", *cutoff]
    pair = ["--unloaded", unloaded, "--loaded", loaded]
    gains, out = str(tmp_path / "gains.json"), str(tmp_path / "payload.json")
    assert main([*common, *pair, "--mass", "2", "--out", gains]) == 0
    assert "common factor" in capsys.readouterr().out
    np.testing.assert_allclose(json.loads((tmp_path / "gains.json").read_text())["gains"], GAINS, rtol=0.02)
    page = tmp_path / "payload.html"
    assert main([*common, *pair, "--mass", "2", "--report", str(page)]) == 2 and not page.exists()
    capsys.readouterr()
    assert main([*common, *pair, "--calibrated", gains, "--out", out, "--report", str(page), "--quiet"]) == 0
    result = json.loads((tmp_path / "payload.json").read_text())
    text = page.read_text()
    rows = [re.sub("<[^>]*>", "|", row).split("|") for row in re.findall(r"<tr>(.*?)</tr>", text, re.DOTALL)]
    cells = {row[1]: [cell for cell in row if cell] for row in rows}
    value, deviation = with_deviation(result["mass"], result["mass_deviation"])
    assert cells["m"][1:3] == [value, f"± {deviation}"] and f"a mass of {value} ± {deviation} kg." in text
    low, high = map(float, cells["m"][3].split(" to "))
    assert high - low == pytest.approx(2 * stats.t.ppf(0.975, result["degrees"]) * result["mass_deviation"], rel=0.05)
    assert 5 < result["degrees"] < 30  # of the jackknife, not infinite
    for j, name in enumerate(arm.joint_names):
        numbers = [result[key][j] for key in ("payload_torque", "noise", "held_out")]
        assert cells[name][1:] == ["N m", *map(rounded, numbers)]
    assert "No fault was found." in text and hashlib.sha256(pathlib.Path(loaded).read_bytes()).hexdigest() in text
    assert result["mass"] == pytest.approx(2.0, rel=0.01) and not capsys.readouterr().out
    assert result["gains_calibrated"]
    save_model(arm, tmp_path / "model.eqx")
    known = ["payload", "--model", str(tmp_path / "model.eqx"), "--gains", ",".join(map(str, GAINS)), *cutoff]
    assert main([*known, "--loaded", loaded, "--own-friction", "--out", out, "--quiet"]) == 0
    assert json.loads((tmp_path / "payload.json").read_text())["mass"] == pytest.approx(2.0, rel=0.01)
    assert main([*known, *pair, "--tip", "hand"]) == 2 and "apply only to URDF" in capsys.readouterr().err
    assert main([*known, *pair, *bare]) == 2 and "has identified inertias" in capsys.readouterr().err
    assert main([*common, *pair]) == 0
    assert re.search(
        r"Payload: .* kg if the gains are exact \(they were not calibrated: an error of 1 %", capsys.readouterr().out
    )
    assert main([*common, "--loaded", loaded, "--mass", "2"]) == 2
    assert main([*common, *pair, "--calibrated", str(tmp_path / "arm.urdf")]) == 1
    assert "not a file with calibrated gains" in capsys.readouterr().err
    whole = json.loads((tmp_path / "gains.json").read_text())
    assert read_gains(tmp_path / "gains.json").determined.tolist() == whole["determined"]
    for change in (
        {"determined": [True]},
        {"noise": [1.0]},
        {"gains": [0.0, None, 1.0]},
        {"notes": [1]},
        {"notes": "x"},
        {"factors": [-1] * 3},
    ):
        (tmp_path / "bad.json").write_text(json.dumps(whole | change))
        with pytest.raises(IdentificationError, match="is not a file with calibrated gains"):
            read_gains(tmp_path / "bad.json")
    (tmp_path / "bad.json").write_text("[" * 50_000 + "]" * 50_000)
    with pytest.raises(IdentificationError, match="calibrated gains"):
        read_gains(tmp_path / "bad.json")
    assert main([*common, *pair, "--out", str(tmp_path / "none" / "x.json")]) == 1


@pytest.fixture(scope="module")
def ur10e(shared_data):
    folder = shared_data / "ur10e"
    listed = [14.87, 13.26, 11.13, 10.62, 11.03, 11.47]
    read = lambda name: read_log(folder / f"{name}.csv", 6, gains=listed, on_bad_rows="drop")
    return load(folder / "ur10e_kinematics.urdf"), listed, read


@pytest.mark.nightly
def test_ur10e_gains_from_its_payload_weigh_it_again(ur10e):
    """2.805 kg; gains from one third of both runs give the mass from another within 3 %, and with other unloaded runs."""
    chain, listed, read = ur10e
    pair = [read("unloaded_15harm50sec"), read("loaded_15harm50sec")]
    usual = FrictionModel((Viscous(), Coulomb(width=0.02), Offset()))
    plain = identify_payload(chain, pair[1], unloaded=pair[0], friction=usual)
    assert plain.mass == pytest.approx(3.06, abs=0.04)  # the gains listed are too large
    gains = calibrate_gains(chain, *pair, 2.805, gains=listed)
    assert gains.common == pytest.approx(0.91, abs=0.02) and gains.determined.all()
    for name in ("train_20sec_8harm", "train_30sec_12harm", "train_40sec_12harm"):
        assert identify_payload(chain, pair[1], unloaded=read(name), gains=gains).mass == pytest.approx(2.805, rel=0.02)
    samples = [preprocess(log, Filters(stride=1)) for log in pair]

    def part(s, k):
        moves = np.flatnonzero(np.abs(s.qd).max(axis=1) > 0.02)
        edges = np.linspace(moves[0], moves[-1], 4).astype(int)
        cut = slice(edges[k] + 10, edges[k + 1] - 10)
        fields = {name: getattr(s, name)[cut] for name in ("t", "q", "qd", "qdd", "tau")}
        return dataclasses.replace(s, **fields, segments=((0, len(fields["t"])),))

    parts = [[part(s, k) for s in samples] for k in range(3)]
    for a in range(3):
        found = calibrate_gains(chain, *parts[a], 2.805, gains=listed)
        for b in {0, 1, 2} - {a}:
            weighed = identify_payload(chain, parts[b][1], unloaded=parts[b][0], gains=found)
            assert weighed.mass == pytest.approx(2.805, rel=0.03)
            assert weighed.mass == pytest.approx(2.805, abs=3 * weighed.standard_deviations[0])


@pytest.mark.nightly
def test_ur10e_delays_and_diagnoses(ur10e):
    chain, _, read = ur10e
    log = read("unloaded_15harm50sec")
    found = estimate_delay(chain, log)
    assert found.inside.all() and np.all((found.seconds > 0) & (found.seconds < 0.035))
    assert diagnose(chain, log) == ()
    for j in range(6):
        turned = dataclasses.replace(log, tau=log.tau * np.where(np.arange(6) == j, -1, 1))
        assert [(f.kind, f.about) for f in diagnose(chain, turned)] == [("sign", (chain.joint_names[j],))]


@pytest.mark.nightly
def test_a_wrist_gain_is_told_by_the_given_model_and_no_clean_run_is_blamed(ur10e, shared_data):
    chain, _, read = ur10e
    numbers = json.loads((shared_data / "ur10e" / "published_parameters.json").read_text())
    links = np.array(numbers["links_Ixx_Ixy_Ixz_Iyy_Iyz_Izz_hx_hy_hz_m"])
    inertia = links[:, [9, 6, 7, 8, 0, 1, 3, 2, 4, 5]]
    prior = dataclasses.replace(chain, inertia=jnp.asarray(inertia))
    names = ("train_20sec_8harm", "train_30sec_12harm", "train_40sec_12harm", "unloaded_15harm50sec")
    runs = [preprocess(read(name)) for name in (*names, "validate_ptp_10_points")]
    gains = lambda chain, runs: [f.about for f in diagnose(chain, runs) if f.kind == "gain"]
    assert all(gains(prior, run) == [] for run in runs)
    for factor in (0.5, 2.0):
        wrong = [dataclasses.replace(s, tau=s.tau * [1, 1, 1, 1, factor, 1]) for s in runs[:3]]
        assert gains(prior, wrong) == [chain.joint_names[4:5]]
    for name, arm in (("ur10/exciting", robots.ur10()), ("panda/exciting_1", robots.panda())):
        assert gains(arm, preprocess(read_log(shared_data / f"{name}.csv", arm.n))) == []


def test_bodies_of_which_something_is_known():
    known, free = given_body(2.0, None)
    assert known.tolist() == [2.0] + [0.0] * 9 and free.shape == (10, 9) and not free[0].any()
    known, free = given_body(2.0, [0.05, 0.06, -0.07])
    np.testing.assert_allclose(known[:4], [2, 0.1, 0.12, -0.14], rtol=1e-14)
    assert not known[4:].any() and free.shape == (10, 6) and np.array_equal(free[4:], np.eye(6)) and not free[:4].any()
    for com in ([0.1, 0.2], [0.1, 0.2, np.nan]):
        with pytest.raises(IdentificationError, match="three coordinates"):
            given_body(2.0, com)


def test_the_weighted_fit_in_numbers(arm, annotations_unchecked):
    """Log of the variances that a fit with weights by joint leaves, and standard deviations of poorly excited parameters."""
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(3, 50, 8))
    rows[:, :, 3] *= 1e-3
    tau = rows @ np.array([1.0, -2, 0.5, 0, 0, 3, 0, 0]) + np.array([[0.1], [1.0], [0.3]]) * rng.normal(size=(3, 50))
    r = np.stack([np.linalg.qr(np.column_stack([w, y]), mode="r") for w, y in zip(rows, tau, strict=True)])
    kept = np.array([0, 1, 2, 3, 5])
    factors = BlockFactors(r[None], np.full((1, 3), 50), np.zeros(1, int))
    base = SimpleNamespace(kept=kept, names=("m1", "mx1", "my1", "mz1", "Ixx1"), size=5)
    noise = np.ones(3)
    for _ in range(30):
        w = np.concatenate([x[:, kept] / s for x, s in zip(rows, noise, strict=True)])
        y = np.concatenate([x / s for x, s in zip(tau, noise, strict=True)])
        values = np.linalg.lstsq(w, y, rcond=None)[0]
        noise = np.sqrt(((tau - rows[:, :, kept] @ values) ** 2).mean(1))
    runs = _Runs(SimpleNamespace(n=1), SimpleNamespace(units=lambda chain: ("kg",) * 8), base, factors, 0.5)
    np.testing.assert_allclose(runs.noise(), noise / np.sqrt(1 - 5 / 75), rtol=1e-3)
    (finding,) = _unexcited(runs)
    sd = np.sqrt(np.linalg.inv(w.T @ w)[3, 3] / 0.5 / (1 - 5 / 75))
    assert finding.about == ("mz1",) and f"mz1 = {values[3]:.2g} +- {sd:.2g}" in finding.text
    # the same column twice, and one that is zero
    r[:, :, 2], r[:, :, 0] = r[:, :, 1], 0.0
    dead, together, *_ = _unexcited(dataclasses.replace(runs, blocks=dataclasses.replace(factors, r=r[None])))
    assert dead.about == ("m1",) and set(together.about) == {"mx1", "my1"}


def test_friction_that_came_out_negative_is_named(arm, monkeypatch, annotations_unchecked):
    monkeypatch.setattr(diagnostics, "_findings", lambda *x: [diagnostics.Finding("sign", (arm.joint_names[2],), "")])
    columns = Columns()
    names = columns.names(3)
    kept = np.array([names.index(x) for x in ("m2", "fv1", "fc2", "off2", "Ia2", "fv3", "fc3")])
    matrix = np.eye(len(names))[kept]
    matrix[4, 0] = 1.0  # not by itself
    delays = SimpleNamespace(trials=(SimpleNamespace(kind="delay"),))
    result = SimpleNamespace(
        delay=None, choice=delays, play=None,
        fitted=(), prior=arm, columns=columns, factors=None, friction=None, inconsistent_links=("link 'a' is none",),
        names=names,
        base=SimpleNamespace(kept=kept, matrix=matrix), chain=arm,
        estimate=SimpleNamespace(
            values=np.array([-1.0, -0.5, -0.3, -1.0, -1.0, -1.0, 0.5]), standard_deviations=np.full(7, 0.1)
        ),
    )  # fmt: skip
    found = diagnose_identification(result)[1:]
    assert [(f.kind, f.about) for f in found] == [("result", ("a",)), ("friction", (arm.joint_names[0],))]
    assert "the identified viscous term is negative, fv1 = -0.5 +- 0.1" in found[1].text


def test_gains_are_compared_with_those_of_joints_that_determine_them():
    """Logarithms of four joints' gains with their covariance; the last one's is hardly known."""
    names = ("a", "b", "c", "d")
    covariance = np.diag([0.01, 0.008, 0.012, 0.09]) + 0.006 * (1 - np.eye(4))
    unlike = lambda *gains: _unlike(names, np.array(gains), covariance)
    (finding,) = unlike(0.5, 0.0, 0.04, 0.6)  # 0.48 off, 4 deviations of about 0.08 and 0.1 are 0.31 and 0.4
    assert finding.about == ("a",)
    assert f"about {np.exp(-0.48):.2g} times the torque that is consistent with b, c:" in finding.text
    covariance[1, 1] += 0.02
    assert unlike(0.5, 0.0, 0.04, 0.6) == []  # clear beside one of two only
    covariance[1, 1] -= 0.02
    assert unlike(0.3, 0.0, -0.02, 0.6) == []  # less than a ratio of 1.4
    (finding,) = unlike(-0.5, 0.0, 0.04, -0.6)
    assert finding.about == ("a",) and f"about {np.exp(0.52):.2g} times" in finding.text

"""Friction that depends on temperature, from a column of the log to the controller; further terms from the command line."""

import csv
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import IdentificationError, Log, LogError, inverse_dynamics, read_log
from jaxdyn.cli import main
from jaxdyn.identification import (
    Cable,
    Coulomb,
    Counterbalance,
    Filters,
    FrictionModel,
    GearRipple,
    LoadDependent,
    MaxwellSlip,
    Offset,
    TemperatureDependent,
    TorqueModel,
    Viscous,
    fit_friction,
    load_torque_model,
    preprocess,
    random_excitation,
    save_torque_model,
    write_predictor,
)
from jaxdyn.identification.factors import as_float64
from jaxdyn.io import loads
from jaxdyn.io.logs import write_log
from test_friction import samples, wander
from test_source import python

WARM = TemperatureDependent(30.0, 0.05)


def heated(s, low=20.0, high=60.0):
    """Samples while the joints warm up, each to its own temperature."""
    ramp = low + (high - low) * np.linspace(0, 1, len(s))[:, None] ** 0.5 * np.linspace(0.6, 1.0, s.n)
    return dataclasses.replace(s, temperature=ramp)


def test_columns_are_friction_times_the_temperature_above_the_reference():
    s = heated(samples(wander(300, 2)))
    model = FrictionModel((Viscous(), WARM))
    above, sign = s.temperature - 30.0, np.tanh(s.qd / 0.05)
    np.testing.assert_allclose(model.blocks(s), np.stack([s.qd, above * s.qd, above * sign], axis=2), atol=1e-12)
    assert model.names(1) == ("fv1", "fvt1", "fct1") and model.known(s).all()
    assert WARM.units(True) == ("N m s/(rad K)", "N m/K") and WARM.units(False) == ("N s/(m K)", "N/K")
    slope = model.slopes(s)[..., 0]  # with respect to ln(width)
    np.testing.assert_allclose(slope[..., 2], -above * s.qd / 0.05 / np.cosh(s.qd / 0.05) ** 2, atol=1e-11)
    with pytest.raises(IdentificationError, match="columns temperature1"):
        model.blocks(dataclasses.replace(s, temperature=None))
    for wrong in ("warm", float("inf"), True):
        with pytest.raises(IdentificationError, match="reference temperature"):
            TemperatureDependent(wrong)


@pytest.fixture(scope="module")
def model():
    """Two links with friction that depends on temperature, beside friction with memory."""
    chain = jaxdyn.textbook.planar_elbow()
    friction = FrictionModel((Viscous(), MaxwellSlip(2e-3), WARM, Coulomb(0.05))).for_joints(2)
    values = jnp.array([[0.5, 0.3, -5e-3, -1e-2, 1.0], [0.4, 0.2, -4e-3, -8e-3, 0.8]])
    return TorqueModel(chain, jax.tree.map(lambda x: x.astype(chain.dtype), friction), values.astype(chain.dtype))


@pytest.mark.ci
def test_a_run_is_stepped_through_saved_and_written_at_its_temperatures(model, tmp_path):
    s = heated(samples(wander(200, 2) * 0.3))
    with jax.enable_x64(True):
        double = jax.tree.map(lambda x: x.astype(jnp.float64), model)
        q, qd, qdd, heat = (jnp.asarray(x) for x in (s.q, s.qd, s.qdd, s.temperature))
        run = jax.jit(TorqueModel.torques)(double, q, qd, qdd, heat)

        def body(memory, now):
            *state, warm = now
            memory = double.at_temperature(memory, warm)
            tau, after = double.torque(memory, *state)
            back, _ = double.acceleration(memory, *state[:2], tau)
            return after, (tau, back, after)

        tau, back, memory = jax.jit(lambda: jax.lax.scan(body, double.start(q[0]), (q, qd, qdd, heat))[1])()
        cold = double.torques(q, qd, qdd)
        np.testing.assert_allclose(cold, double.torques(q, qd, qdd, jnp.full_like(q, 30.0)), rtol=1e-14)
        assert np.abs(cold - run).max() > 0.1
    most = np.abs(run).max()
    np.testing.assert_allclose(tau, run, atol=1e-12 * most)
    np.testing.assert_allclose(back, qdd, atol=1e-9 * np.abs(qdd).max())
    np.testing.assert_allclose(double.predict(s), run, atol=1e-12 * most)
    np.testing.assert_allclose(double.memory(s), memory, atol=1e-12)
    single = jax.jit(TorqueModel.torques)(
        jax.tree.map(lambda x: x.astype(jnp.float32), model), *(jnp.asarray(x, jnp.float32) for x in (q, qd, qdd, heat))
    )
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, run, atol=2e-3 * most)

    save_torque_model(double, tmp_path / "model.eqx")
    np.testing.assert_array_equal(load_torque_model(tmp_path / "model.eqx").predict(s), double.predict(s))
    write_predictor(double, tmp_path / "arm")
    written = python(tmp_path / "arm.py")
    held = written.start(s.q[0])
    for k in range(60):
        torque, held = written.torque(written.at_temperature(held, s.temperature[k]), s.q[k], s.qd[k], s.qdd[k])
        np.testing.assert_allclose(torque, run[k], atol=1e-12 * most)


def test_derivatives_with_respect_to_temperature(model):
    s = heated(samples(wander(40, 2) * 0.3))
    q, qd, qdd, heat = (jnp.asarray(x, model.chain.dtype) for x in (s.q, s.qd, s.qdd, s.temperature))
    total = lambda heat: model.torques(q, qd, qdd, heat).sum()
    slope = jax.jit(jax.vmap(jax.grad(total)))(jnp.stack([heat, heat + 5]))
    _, _, viscous, dry, _ = np.asarray(model.coefficients).T
    expected = viscous * s.qd + dry * np.tanh(s.qd / 0.05)
    for one in slope:
        np.testing.assert_allclose(one, expected, atol=1e-5)


LINK = """<link name="{0}"><inertial><origin xyz="0.2 0 0.02"/><mass value="{1}"/>
    <inertia ixx="0.02" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial></link>
    <joint name="{2}" type="revolute"><parent link="{3}"/><child link="{0}"/><axis xyz="0 1 0"/><origin xyz="{4} 0 0"/>
    <limit lower="-3" upper="3" velocity="4" effort="500"/></joint>"""
URDF = f"""<robot name="arm"><link name="base"/>{LINK.format("upper", 6, "shoulder", "base", 0)}
    {LINK.format("fore", 4, "elbow", "upper", 0.5)}</robot>"""


@pytest.fixture(scope="module")
def warming():
    """A log of an arm that warms up, with all further terms at known values, and 0.05 N m of noise."""
    arm = loads(URDF)
    t = np.arange(6000) / 200.0
    with jax.enable_x64(True):
        wide = as_float64(arm)
        q, qd, qdd = (np.asarray(x) for x in random_excitation(wide, 30.0, 20, 3)(jnp.asarray(t)))
        rigid = np.asarray(jax.vmap(lambda *x: inverse_dynamics(wide, *x))(*map(jnp.asarray, (q, qd, qdd))))
    heat = np.linspace(20.0, 60.0, len(t))[:, None] * [1.0, 0.9]
    s = dataclasses.replace(samples(q), q=q, qd=qd, qdd=qdd, temperature=heat)
    terms = FrictionModel(
        (
            Viscous(),
            Coulomb(0.05),
            TemperatureDependent(25.0, 0.05),
            LoadDependent(0.05, joints=(1,)),
            GearRipple((30.0,), 0.004, joints=(1,)),
            Counterbalance(0.8, 0.2, 1.658, 0.3, joints=(2,)),
            Cable((3,), joints=(1,)),
        )
    )
    true = dict(zip(terms.names(2), TRUE, strict=True))
    tau = rigid + terms.signals(s, rigid) @ np.array(TRUE)
    tau += 0.05 * np.random.default_rng(0).normal(size=tau.shape)
    return arm, Log(t, q, None, tau, temperature=heat), true


TRUE = (1.5, 2.0, -0.02, -0.03, 0.05, 0.3, -0.2, 0.4, 0.9, 1.2, -0.012, -0.01, 40.0)


def errors(folder):
    """RMS errors on the held-out run, from errors.csv."""
    with open(folder / "errors.csv") as file:
        return np.array([float(row["rms"]) for row in csv.DictReader(file) if row["fitted"] == "no"])


def test_changes_with_temperature_are_recovered(warming):
    arm, log, true = warming
    model = FrictionModel(
        (
            Viscous(),
            Coulomb(0.04),
            Offset(),
            TemperatureDependent(25.0, 0.04),
            LoadDependent(0.05, joints=(1,)),
            GearRipple((30.0,), joints=(1,)),
            Counterbalance(0.8, 0.2, 1.658, 0.3, joints=(2,)),
            Cable((3,), joints=(1,)),
        ),
        cutoff=15.0,
    )
    s = preprocess(log, Filters(15.0, stride=1))
    assert s.temperature is not None and s.temperature.shape == s.q.shape
    np.testing.assert_allclose(s.temperature, (20 + s.t[:, None] * 40 / 29.995) * [1.0, 0.9], rtol=1e-9)
    fit = fit_friction(arm, [s], model, stride=8, iterations=3)
    deviations = np.sqrt(np.diag(fit.covariance))
    found = {name: (x, sd) for name, x, sd in zip(fit.names, fit.values, deviations, strict=True)}
    for name in ("fvt1", "fct1", "fvt2", "fct2"):
        x, sd = found[name]
        assert abs(x - true[name]) < 4 * sd and abs(x - true[name]) < 0.15 * abs(true[name]), (name, x, sd)


@pytest.mark.parametrize(
    "slope", [pytest.param(0.0, marks=pytest.mark.nightly), pytest.param(-0.02, marks=pytest.mark.ci)]
)
def test_friction_that_changes_with_temperature_is_selected_where_it_does(slope):
    arm = jaxdyn.textbook.planar_elbow()
    t = np.arange(4000) / 200.0
    q, qd, qdd = (np.asarray(x) for x in random_excitation(arm, 20.0, 8, 3)(jnp.asarray(t)))
    rigid = np.asarray(jax.vmap(lambda *x: inverse_dynamics(arm, *x))(*map(jnp.asarray, (q, qd, qdd))))
    heat = 40 + 20 * np.sin(2 * np.pi * t / 13.0)[:, None] * [1.0, 0.8]
    fading = 1 + slope * (heat - 40)
    tau = rigid + fading * (1.5 * qd + 2.0 * np.tanh(qd / 0.01)) + 0.2 * np.random.default_rng(1).normal(size=q.shape)
    found = jaxdyn.identify(arm, Log(t, q, None, tau, temperature=heat), filters=Filters(15.0))
    adopted = {trial.joint for trial in found.choice.adopted if trial.kind == "temperature"}
    assert adopted == ({1, 2} if slope else set())
    if slope:
        values = dict(zip(*found.friction.rows()[:2], strict=True))
        np.testing.assert_allclose([values["fvt1"], values["fvt2"]], 1.5 * slope, rtol=0.15)
        np.testing.assert_allclose([values["fct1"], values["fct2"]], 2.0 * slope, rtol=0.15)


def test_temperatures_are_read_and_written(tmp_path):
    t = np.arange(100) / 100
    q, tau = np.sin(t)[:, None] * [1, 2], np.cos(t)[:, None] * [1, 2]
    heat = 20 + 10 * t[:, None] * [1, 2]
    log = Log(t, q, None, tau, temperature=heat)
    write_log(tmp_path / "log.csv", log)
    np.testing.assert_allclose(read_log(tmp_path / "log.csv").temperature, heat, rtol=1e-9)
    rows = (tmp_path / "log.csv").read_text().splitlines()
    one = [rows[0].replace(",temperature1,temperature2", ",Temp [C]"), *(row.rpartition(",")[0] for row in rows[1:])]
    one[5] = one[5].rpartition(",")[0] + ","  # a slow sensor
    (tmp_path / "one.csv").write_text("\n".join(one))
    np.testing.assert_allclose(read_log(tmp_path / "one.csv").temperature, heat[:, [0, 0]], rtol=1e-9)
    other = [rows[0].replace("temperature2", "temperature7"), *rows[1:]]
    (tmp_path / "other.csv").write_text("\n".join(other))
    found = read_log(tmp_path / "other.csv")
    assert found.temperature is None and "columns ignored: temperature1, temperature7" in found.notes
    mapped = {"t": {"column": "t"}, "q": {"columns": "q*"}, "tau": {"columns": "tau*"}}
    kelvin = {"column": "temperature2", "unit": "K"}
    assert read_log(tmp_path / "log.csv", columns=mapped).temperature is None
    by_map = read_log(tmp_path / "log.csv", columns={**mapped, "temperature": kelvin}).temperature
    np.testing.assert_allclose(by_map, heat[:, [1, 1]] - 273.15, rtol=1e-9)
    with pytest.raises(LogError, match="temperature"):
        read_log(tmp_path / "log.csv", columns={**mapped, "temperature": {"column": "temperature2", "unit": "F"}})


@pytest.mark.nightly
def test_every_further_term_runs_from_the_command_line(warming, tmp_path, capsys):
    arm, log, true = warming
    (tmp_path / "arm.urdf").write_text(URDF)
    write_log(tmp_path / "log.csv", log)
    names = arm.joint_names
    text = f"""
        [[term]]
        kind = "TemperatureDependent"
        reference = 25
        width = 0.05
        [[term]]
        kind = "LoadDependent"
        joints = ["{names[0]}"]
        width = 0.05
        [[term]]
        kind = "GearRipple"
        joints = [1]
        harmonics = [30.0]
        [[term]]
        kind = "Cable"
        joints = [1]
        powers = [1, 3]"""
    balance = f'[[term]]\nkind = "Counterbalance"\njoints = ["{names[1]}"]\npivot = 0.8\ncrank = 0.2\nangle = 1.658\n'
    settings = "choose = []\ncutoff = 15\ncoulomb_velocity = 0.05\n"
    (tmp_path / "plain.toml").write_text(settings)
    (tmp_path / "terms.toml").write_text(f"{settings}{balance}reserve = 0.3\n{text}")
    given = ["identify", "--model", tmp_path / "arm.urdf", "--log", tmp_path / "log.csv", "--quiet", "--settings"]
    plain, whole = tmp_path / "plain", tmp_path / "whole"
    assert main([*map(str, given), str(tmp_path / "plain.toml"), "--out", str(plain)]) == 0
    assert main([*map(str, given), str(tmp_path / "terms.toml"), "--out", str(whole)]) == 0
    with open(whole / "parameters.csv") as file:
        found = {row["name"]: row for row in csv.DictReader(file) if row["kind"] == "full"}
    for name in ("fvt1", "fct1", "fvt2", "fct2", "fl1", "rc30_1", "rs30_1", "cb2", "ca3_1"):
        value, deviation = (float(found[name][key]) for key in ("value", "standard_deviation"))
        assert abs(value - true[name]) < 4 * deviation + 0.05 * abs(true[name]), (name, value, deviation)
    assert found["fvt2"]["belongs_to"] == names[1] and found["fvt2"]["unit"] == "N m s/(rad K)" and "ca1_1" in found
    assert load_torque_model(whole / "model.eqx").terms
    less, more = (errors(folder) for folder in (plain, whole))
    assert (more < 0.5 * less).all(), (less, more)
    # without temperatures in the log, the message says what to log
    write_log(tmp_path / "cold.csv", dataclasses.replace(log, temperature=None))
    given[4] = tmp_path / "cold.csv"
    assert main([*map(str, given), str(tmp_path / "terms.toml"), "--out", str(whole)]) == 1
    assert "log columns temperature1" in capsys.readouterr().err

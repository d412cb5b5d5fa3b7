"""The model that was fitted, whole: run by run, step by step, backwards, in files, and in what `identify` says of it."""

import dataclasses
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import ModelError, load_model, save_model
from jaxdyn.deployment import export_function, load_exported
from jaxdyn.errors import ModelWarning
from jaxdyn.identification import (
    Coulomb,
    Dahl,
    ExtraColumns,
    Filters,
    FrictionModel,
    FrictionTerm,
    LoadDependent,
    LoadedSlip,
    LuGre,
    MaxwellSlip,
    Offset,
    Stribeck,
    Terms,
    TorqueModel,
    Viscous,
    compare_models,
    coupled_drive,
    fit_friction,
    fit_quality,
    identify,
    load_torque_model,
    preprocess,
    random_excitation,
    save_torque_model,
    synthetic_log,
)
from jaxdyn.identification.filters import low_pass
from jaxdyn.identification.friction_fit import chain_with_friction
from jaxdyn.report import results, write_all
from jaxdyn.report.markup import rounded
from jaxdyn.report.sections import errors_section, first_screen
from test_friction import samples, wander

ALL = (
    Viscous(),
    Offset(),
    Stribeck(),
    LoadDependent(0.02, (1, 2)),
    MaxwellSlip(2e-3),
    LoadedSlip(3e-3),
    Dahl(1e-3),
    LuGre(),
)


def same(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for x, y in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


@pytest.fixture(scope="module")
def model():
    """Two links with every kind of term, one of them at the second joint only, and a coupled drive."""
    chain = jaxdyn.textbook.planar_elbow()
    friction = FrictionModel((*ALL, Coulomb(0.03, joints=(2,)))).for_joints(2)
    k = friction.chosen(2)
    # friction that grows by more than the load does would leave accelerations undetermined
    size = np.array([0.5, 0.3, 0.5, 0.1, 2e-3, 1.0, 0.1, 1.0, 1.0, 0.1, 0.5])
    values = jnp.asarray(np.where(k, size * np.random.default_rng(0).uniform(0.5, 1.0, k.shape), 0), chain.dtype)
    friction = jax.tree.map(lambda x: x.astype(chain.dtype), friction)
    extra = jnp.array([0.1, 0.2, 0.3], chain.dtype)
    return TorqueModel(chain, friction, values, (coupled_drive(1, 2),), extra, jnp.array([1e-3, 0.0], chain.dtype))


def motion(count=400, dtype=None):
    s = samples(wander(count, 2) * 0.3)
    return tuple(jnp.asarray(x, dtype) for x in (s.q, s.qd, s.qdd))


@jax.jit
def stepped(model, q, qd, qdd):
    """Torques one sample after the other, and the accelerations that these torques give."""

    def body(memory, now):
        tau, after = model.torque(memory, *now)
        back, again = model.acceleration(memory, now[0], now[1], tau)
        return after, (tau, back, after - again)

    return jax.lax.scan(body, model.start(q[0]), (q, qd, qdd))[1]


@pytest.mark.ci
def test_runs_steps_and_accelerations_agree(model):
    with jax.enable_x64(True):
        double = jax.tree.map(lambda x: x.astype(jnp.float64), model)
        q, qd, qdd = motion(dtype=jnp.float64)
        run = jax.jit(TorqueModel.torques)(double, q, qd, qdd)
        tau, back, after = stepped(double, q, qd, qdd)
        np.testing.assert_allclose(tau, run, atol=1e-12 * np.abs(run).max())
        np.testing.assert_allclose(back, qdd, atol=1e-9 * np.abs(qdd).max())
        assert not np.any(after)
        np.testing.assert_allclose(double.predict(samples(np.asarray(q))), run, atol=1e-12 * np.abs(run).max())
    single = jax.jit(TorqueModel.torques)(
        jax.tree.map(lambda x: x.astype(jnp.float32), model), *motion(dtype=jnp.float32)
    )
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, run, atol=2e-3 * np.abs(run).max())


def test_a_chain_alone_has_its_own_friction(model):
    viscous, coulomb = jnp.array([0.5, 0.4]), jnp.array([1.0, 0.8])
    width = model.chain.friction.coulomb_velocity
    friction = dataclasses.replace(model.chain.friction, viscous=viscous, coulomb=coulomb)
    chain = dataclasses.replace(model.chain, friction=friction)
    q, qd, qdd = motion()
    more = TorqueModel(chain).torques(q, qd, qdd) - TorqueModel(model.chain).torques(q, qd, qdd)
    own = np.asarray(viscous) * np.asarray(qd) + np.asarray(coulomb) * np.tanh(np.asarray(qd) / np.asarray(width))
    np.testing.assert_allclose(more, own, atol=2e-4 * np.abs(own).max())


@pytest.mark.ci
def test_models_are_batched_and_differentiated(model):
    q, qd, qdd = motion()
    heavier = eqx.tree_at(lambda m: m.chain.inertia, model, model.chain.inertia * 2)
    both = jax.tree.map(lambda *x: jnp.stack(x), model, heavier)

    def size(m):
        torques = m.torques(q, qd, qdd)
        return (torques**2).sum(), torques

    slopes, torques = jax.jit(jax.vmap(jax.grad(size, has_aux=True)))(both)
    for one, tau in zip((model, heavier), torques, strict=True):
        np.testing.assert_allclose(tau, one.predict(samples(np.asarray(q))), atol=1e-9)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(slopes))
    assert np.all(np.asarray(slopes.friction.terms[4].width) != 0) and np.all(
        np.asarray(slopes.chain.inertia)[..., 9] != 0
    )


class Heating(FrictionTerm):
    """A user's own term: friction that is less the faster the joint has turned."""

    scale: jax.Array = eqx.field(converter=jnp.asarray, default=0.3)
    kind: str = eqx.field(static=True, default="grease")
    joints: tuple[int, ...] | None = eqx.field(static=True, default=None)
    labels = ("fh",)
    unit_forms = ("{force}",)
    remembers = True

    def advance(self, memory, travel, qd):
        return 0.99 * memory + jnp.abs(travel)

    def at(self, q, qd, load, memory):
        return (jnp.tanh(qd) * jnp.exp(-memory / self.scale))[..., None]


def test_a_file_holds_all_of_it(model, tmp_path):
    path = tmp_path / "model.eqx"
    save_torque_model(model, path, {"robot": "of the test"})
    again = load_torque_model(path)
    same(again, model)
    assert again.extra == model.extra and repr(again) == repr(model) and "MaxwellSlip" in repr(again)
    with pytest.warns(ModelWarning, match=r"terms that a Chain cannot represent \(friction, extra\)"):
        same(load_model(path), model.chain)
    assert load_torque_model(path, dtype="float16").friction.terms[4].width.dtype == jnp.float16

    # one's own term: the class is all that is needed
    own = FrictionModel((Heating(0.2), Viscous()), cutoff=8.0).for_joints(2)
    save_torque_model(TorqueModel(model.chain, own, jnp.ones((2, 2))), path)
    found = load_torque_model(path, dtype="float32")
    assert isinstance(found.friction.terms[0], Heating) and found.friction.cutoff == 8.0 and found.needs_full_rate
    path.write_bytes(path.read_bytes().replace(b"Heating", b"Heaving"))
    with pytest.raises(ModelError, match="checksum"):
        load_torque_model(path)


def test_a_chain_alone_is_the_file_it_has_been(model, tmp_path):
    save_model(model.chain, tmp_path / "chain.eqx")
    save_torque_model(TorqueModel(model.chain), tmp_path / "model.eqx")
    assert (tmp_path / "chain.eqx").read_bytes() == (tmp_path / "model.eqx").read_bytes()
    loaded = load_torque_model(tmp_path / "chain.eqx")
    same(loaded, TorqueModel(model.chain))
    assert loaded.is_chain and not loaded.needs_full_rate
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save_torque_model(TorqueModel(model.chain, delay=model.delay), tmp_path / "model.eqx")
        same(load_model(tmp_path / "model.eqx"), model.chain)  # a delay is the log's


def test_columns_of_ones_own_are_in_no_file(model, tmp_path):
    own = ExtraColumns(("kq1",), ("N m",), lambda chain, q, qd, qdd: jnp.sin(q)[:, None])
    mine = dataclasses.replace(model, extra=(own,), extra_values=jnp.ones(1))
    with pytest.raises(ModelError, match=r"columns kq1 are user-defined functions.*extra=\(\)"):
        save_torque_model(mine, tmp_path / "model.eqx")
    assert not (tmp_path / "model.eqx").exists()
    save_torque_model(dataclasses.replace(mine, extra=(), extra_values=None), tmp_path / "model.eqx")


@pytest.fixture(scope="module")
def identified():
    """A pendulum of two links with slipping friction, identified with a model of it."""
    chain = jaxdyn.textbook.planar_elbow()
    log = synthetic_log(chain, random_excitation(chain, 6.0, 4), 8.0, 200.0, 1e-5, 0.02)
    s = preprocess(log, Filters(stride=1, margin=0.0))
    with jax.enable_x64(True):
        extra = FrictionModel((Viscous(), MaxwellSlip(0.02), LoadedSlip(0.02))).blocks(s, 20 * np.cos(s.q))
    tau = s.tau + extra @ np.array([0.5, 2.0, 0.05])
    log = jaxdyn.Log(s.t, s.q, None, tau, source="run.csv")
    terms = Terms(("armature",), (Viscous(), Offset(), MaxwellSlip(0.02), LoadedSlip(0.02)), choose=())
    return log, identify(chain, log, terms=terms, filters=Filters(10.0, delay=0.002))


@pytest.mark.ci
def test_what_is_reported_is_what_the_file_predicts(identified, tmp_path):
    log, result = identified
    save_torque_model(result.model, tmp_path / "model.eqx")
    loaded = load_torque_model(tmp_path / "model.eqx")
    (fitted,) = result.fitted
    prediction = fitted.predicted_by(loaded)
    np.testing.assert_allclose(prediction, fitted.prediction, atol=1e-5 * np.abs(fitted.prediction).max())
    both = compare_models(loaded, result.chain, log, filters=Filters(10.0))
    np.testing.assert_allclose(both.fits[0].rms, fitted.fit.rms, rtol=1e-4)
    assert both.fits[0].total_relative == pytest.approx(fitted.fit.total_relative, rel=1e-4)
    assert np.all(both.fits[1].rms > 1.5 * both.fits[0].rms)  # no chain holds slipping friction
    thinned = dataclasses.replace(fitted, run=None)
    with pytest.raises(jaxdyn.IdentificationError, match="at the log's rate"):
        thinned.predicted_by(loaded)
    assert thinned.predicted_by(TorqueModel(result.chain)).shape == fitted.prediction.shape


def test_every_piece_of_a_run_has_its_own_memory(identified):
    _, result = identified
    (fitted,) = result.fitted
    run, model, k = fitted.run, result.model, len(fitted.run) // 3
    pieces = [(0, k), (k, len(run))]
    found = model.memory(dataclasses.replace(run, segments=tuple(pieces)))
    np.testing.assert_array_equal(found, np.concatenate([model.memory(run.part(*piece)) for piece in pieces]))
    starts = [a for a, _ in pieces]
    assert not found[starts, :, 1:].any() and found[..., 1:].any()  # relaxed at first


@pytest.fixture
def page(monkeypatch):
    """Of the report that is written: all that its page is made from, by "all"."""
    given = {}
    monkeypatch.setattr(
        "jaxdyn.report.page.report_html",
        lambda *arguments: given.setdefault("all", arguments) and "page",
    )
    return given


def test_the_report_says_what_each_file_predicts(identified, tmp_path, page):
    _, result = identified
    law = dataclasses.replace(result.chain.friction, viscous=result.chain.friction.viscous.at[0].set(-0.2))
    negative = dataclasses.replace(result, chain=dataclasses.replace(result.chain, friction=law))
    paths = write_all(negative, tmp_path)
    files = {file.name: file for file in page["all"][1].files}
    assert tuple(files) == ("model.eqx", "identified.urdf", "identified.xml")
    (fitted,) = result.fitted  # the files contain the fit to all data, which includes what was held out
    own = fit_quality(fitted.samples.tau, fitted.predicted_by(load_torque_model(paths["model.eqx"])), fitted.samples.qd)
    np.testing.assert_array_equal(files["model.eqx"].fit.rms, own.rms)
    assert files["model.eqx"].why == "" and "(Viscous, Offset, MaxwellSlip, LoadedSlip)" in files["identified.urdf"].why
    chain = jaxdyn.load(paths["identified.urdf"], gravity=result.chain.gravity)
    run = fitted.run
    friction = np.asarray(jax.vmap(lambda qd: jaxdyn.friction_force(chain, qd))(jnp.asarray(run.qd)))
    smooth = np.concatenate([low_pass(friction[a:b], run.rate, run.torque_cutoff) for a, b in run.segments])
    whole = TorqueModel(chain).predict(run) - friction + smooth  # low-passed like the torques
    fit = fit_quality(fitted.samples.tau, whole[fitted.rows], fitted.samples.qd)
    np.testing.assert_allclose(files["identified.urdf"].fit.rms, fit.rms, rtol=1e-6)
    assert fit.total_relative > 1.2 * own.total_relative
    assert float(chain.friction.viscous[0]) == 0 and float(chain.friction.coulomb[0]) > 0
    assert "damping" not in paths["identified.xml"].read_text().split("joint2")[0]
    assert rounded(fit.total_relative) in errors_section(negative, page["all"][1])
    text = first_screen(negative, page["all"][1])
    assert (
        "not identified.urdf and identified.xml: the friction model" in text and "armature of joint1 is omitted" in text
    )


def test_what_no_file_holds_is_said(identified, tmp_path, monkeypatch, page):
    _, result = identified
    own = ExtraColumns(("kq1",), ("N m",), lambda chain, q, qd, qdd: jnp.sin(q)[:, None])
    columns = dataclasses.replace(result.columns, extra=(own,))
    (fitted,) = result.fitted
    pulled = dataclasses.replace(
        fitted, samples=dataclasses.replace(fitted.samples, tau=fitted.samples.tau + 20 * np.sin(fitted.samples.q))
    )
    parameters = np.insert(result.parameters, len(result.columns.of_state.names(2)), 20.0)  # friction comes last
    mine = dataclasses.replace(result, columns=columns, parameters=parameters, fitted=(pulled,))
    monkeypatch.setattr(results, "write_parameters", lambda result, path: path.touch())
    paths = write_all(mine, tmp_path)
    assert "model.eqx" not in paths and any("model.eqx was not written: the columns kq1" in x for x in page["all"][4])
    assert "the format cannot represent the columns kq1" in page["all"][1].files[0].why


def test_the_nearest_friction_takes_power():
    """Friction that falls with speed: plain least squares would give negative damping."""
    chain = jaxdyn.textbook.planar_elbow()
    s = samples(wander(1000, 2))
    load = np.asarray(jax.vmap(lambda *x: jaxdyn.inverse_dynamics(chain, *x))(*map(jnp.asarray, (s.q, s.qd, s.qdd))))
    falling = load + np.tanh(s.qd / 0.02) * (2 - 0.1 * np.abs(s.qd))
    terms = FrictionModel((Viscous(), Coulomb(0.02), Offset()))
    fit = fit_friction(chain, [dataclasses.replace(s, tau=falling)], terms, iterations=0)
    assert fit.coefficients[:, 0].max() < 0
    plain = chain_with_friction(fit, [s]).friction
    assert np.all(np.asarray(plain.viscous) == 0) and np.all(np.asarray(plain.coulomb) > 0)
    # no other law of this kind is nearer
    at = lambda width: chain_with_friction(fit, [s], width).friction
    law = lambda f: np.asarray(jax.vmap(f.torque)(jnp.asarray(s.qd)))
    wanted = fit.predict(s) - fit.load(s)
    error = np.linalg.norm(wanted - law(plain), axis=0)
    for name, step in (("coulomb", 0.02), ("coulomb", -0.02), ("offset", 0.02), ("offset", -0.02), ("viscous", 0.02)):
        moved = dataclasses.replace(plain, **{name: getattr(plain, name) + step})
        assert np.all(np.linalg.norm(wanted - law(moved), axis=0) > error)
    assert all(np.all(error <= np.linalg.norm(wanted - law(at(w)), axis=0)) for w in (0.005, 0.02, 0.05))


@pytest.mark.ci
def test_the_model_is_a_function_in_a_file(model, tmp_path):
    """For a control loop: torques of one cycle after the other, from a process that has neither model nor sources."""
    pytest.importorskip("flatbuffers")
    with jax.enable_x64(True):
        double = jax.tree.map(lambda x: x.astype(jnp.float64), model)
        q, qd, qdd = motion(40, jnp.float64)
        memory = double.start(q[0])
        feedforward = lambda chain, *cycle: double.torque(*cycle)
        export_function(feedforward, double.chain, memory, q[0], qd[0], qdd[0], path=tmp_path / "f.jaxdyn")
        loaded = load_exported(tmp_path / "f.jaxdyn")
        run = np.asarray(double.torques(q, qd, qdd))
        for k, now in enumerate(zip(q, qd, qdd, strict=True)):
            tau, memory = loaded(memory, *now)
            np.testing.assert_allclose(tau, run[k], atol=1e-12 * np.abs(run).max())

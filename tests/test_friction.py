"""Friction models: columns against closed forms and plain loops, slopes against differences, and known friction found again."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import IdentificationError
from jaxdyn.identification import (
    Asymmetry,
    Columns,
    Coulomb,
    Dahl,
    FrictionModel,
    GearRipple,
    Knowledge,
    LoadDependent,
    LoadedSlip,
    LuGre,
    MaxwellSlip,
    Offset,
    PowerViscous,
    Samples,
    Stribeck,
    Terms,
    Viscous,
    accumulate_stream,
    base_parameters,
    fit_friction,
    solve,
)
from jaxdyn.identification.accumulate import accumulate
from jaxdyn.identification.friction_fit import chain_with_friction
from jaxdyn.identification.friction_model import shifted
from jaxdyn.identification.prediction import predict

RATE = 100.0


def samples(q, tau=None):
    """Samples of a run given by q(t) at RATE, derivatives by differences."""
    qd = np.gradient(q, 1 / RATE, axis=0)
    qdd = np.gradient(qd, 1 / RATE, axis=0)
    t = np.arange(len(q)) / RATE
    return Samples(t, q, qd, qdd, np.zeros_like(q) if tau is None else tau, RATE, ((0, len(q)),), 8.0, 8.0)


def wander(count, n, seed=0):
    """Positions that stop and turn: sums of sines, held now and then."""
    t = np.arange(count) / RATE
    rng = np.random.default_rng(seed)
    clock = np.cumsum(np.clip(1.3 * np.sin(0.9 * t) + 0.6, 0, None)) / RATE
    f, p = rng.uniform(0.1, 0.9, (2, n, 3))
    return (0.8 * np.sin(2 * np.pi * (clock[:, None, None] * f + p))).sum(2)


def test_maxwell_slip_is_a_chain_of_stops():
    q = wander(600, 2) * 0.01
    widths = np.array([1e-3, 4e-3])
    z, expected = np.zeros(2), []
    for d in np.diff(q, axis=0, prepend=q[:1]):
        z = np.minimum(np.maximum(z + d, -widths), widths)
        expected.append(z / widths)
    block = FrictionModel((MaxwellSlip(widths),)).blocks(samples(q))[:, :, 0]
    np.testing.assert_allclose(block, expected, atol=1e-12)
    assert np.abs(block).max() == 1


def test_slip_remembers_at_rest_what_a_smooth_sign_forgets():
    q = np.concatenate([np.linspace(0, 0.2, 100), np.full(200, 0.2)])[:, None]
    block = FrictionModel((MaxwellSlip(1e-3), Coulomb(0.01))).blocks(samples(q))[-1, 0]
    assert block[0] == pytest.approx(1) and block[1] == pytest.approx(0, abs=1e-12)


def test_dahl_solves_its_equation_and_lugre_slips_at_its_stribeck_curve():
    width, speed, excess, velocity = 2e-3, 0.05, 0.4, 0.1
    q = speed * np.arange(400)[:, None] / RATE
    model = FrictionModel((Dahl(width), LuGre(width, excess, velocity)))
    block = model.blocks(samples(q))[:, 0]
    np.testing.assert_allclose(block[:, 0], 1 - np.exp(-q[:, 0] / width), atol=1e-12)
    g = 1 + excess * np.exp(-((speed / velocity) ** 2))
    np.testing.assert_allclose(block[:, 1], g * (1 - np.exp(-q[:, 0] / (width * g))), atol=1e-12)
    np.testing.assert_allclose(block[:, 2], speed / velocity * (1 - block[:, 1] / g), atol=1e-12)
    assert block[-1, 1] == pytest.approx(g, rel=1e-9) and block[-1, 2] == pytest.approx(0, abs=1e-9)


def test_terms_without_memory_are_their_formulas():
    s = samples(wander(300, 2))
    load = np.random.default_rng(1).normal(size=s.qd.shape)
    model = FrictionModel(
        (
            Viscous(),
            Coulomb(0.02),
            Offset(),
            PowerViscous(0.5),
            Asymmetry(0.02),
            Stribeck(0.3, 0.02),
            LoadDependent(0.02, (1, 2)),
            GearRipple((50.0,), 0.01),
        )
    )
    v, sign = s.qd, np.tanh(s.qd / 0.02)
    power = np.sign(v) * np.sqrt(np.abs(v))
    fading = np.exp(-((v / 0.3) ** 2)) * sign
    ripple = [wave(50 * (s.q - 0.01 * v)) for wave in (np.cos, np.sin)]
    expected = [
        v,
        sign,
        np.ones_like(v),
        power,
        np.abs(v),
        sign**2,
        fading,
        np.abs(load) * sign,
        load**2 * sign,
        *ripple,
    ]
    np.testing.assert_allclose(model.blocks(s, load), np.stack(expected, axis=2), atol=1e-12)
    assert model.names(2)[:9] == ("fv1", "fc1", "off1", "fp1", "fva1", "fca1", "fs1", "fl1", "fl2_1")
    assert model.names(2)[9:11] == ("rc50_1", "rs50_1")
    assert model.units([True, False])[-4:] == ("1", "(N)^-1", "N", "N")
    with pytest.raises(IdentificationError, match="depends on the load"):
        model.signals(s)


def test_slopes_are_derivatives_with_respect_to_logarithms():
    s = samples(wander(300, 2) * 0.01)
    load = np.abs(s.q) * 100
    terms = (Coulomb(0.02), PowerViscous(0.7), Stribeck(), MaxwellSlip(1e-3), LoadedSlip(1e-3), Dahl(1e-3), LuGre(1e-3))
    model = FrictionModel(terms, cutoff=10.0)
    assert len(model.nonlinear_names()) == 10
    slopes = model.slopes(s, load)
    with jax.enable_x64(True):
        spread = model.for_joints(2)
        for p in range(slopes.shape[3]):
            up, down = (shifted(spread, h * np.eye(10)[[p, p]]).blocks(s, load) for h in (1e-6, -1e-6))
            np.testing.assert_allclose(slopes[..., p], (up - down) / 2e-6, atol=2e-6 * (1 + np.abs(slopes).max()))


def test_terms_keep_their_inputs_precision_and_have_finite_derivatives():
    q = wander(64, 2) * 0.01
    terms = (
        Coulomb(),
        PowerViscous(0.5),
        Stribeck(),
        LoadedSlip(1e-3),
        MaxwellSlip(1e-3),
        Dahl(1e-3),
        LuGre(1e-3),
        GearRipple(),
    )

    def all_columns(q, qd):
        return jnp.concatenate([term.columns(q, qd, 10 * q) for term in terms], axis=2)

    qd = np.gradient(q, 1 / RATE, axis=0)
    qd[:5] = 0

    def pulled_back(q, qd):
        columns, pull = jax.vjp(all_columns, q, qd)
        return columns, pull(jnp.ones_like(columns))

    compiled = jax.jit(pulled_back)
    double, slopes = compiled(jnp.asarray(q), jnp.asarray(qd))
    single, _ = compiled(jnp.asarray(q, jnp.float32), jnp.asarray(qd, jnp.float32))
    assert single.dtype == jnp.float32
    np.testing.assert_allclose(single, double, atol=2e-3)
    # |qd|^0.5 alone is infinitely steep at rest; its slope there is taken as zero
    assert all(np.isfinite(x).all() for x in slopes)


def test_terms_of_some_joints_only():
    s = samples(wander(200, 3))
    model = FrictionModel((Viscous(), MaxwellSlip(1e-3, joints=(2,)), MaxwellSlip(1e-2)))
    assert model.names(3) == ("fv1", "fzb1", "fv2", "fza2", "fzb2", "fv3", "fzb3")
    signals = model.signals(s)
    assert signals.shape == (200, 3, 7)
    rows = np.array([0, 0, 1, 1, 1, 2, 2])
    assert np.all(signals[:, np.arange(3)[:, None] != rows] == 0)
    np.testing.assert_array_equal(signals[:, rows, np.arange(7)][:, 3], model.blocks(s)[:, 1, 1])
    with pytest.raises(IdentificationError, match="names joints"):
        FrictionModel((Viscous(joints=(4,)),)).for_joints(3)
    with pytest.raises(IdentificationError, match="positive"):
        FrictionModel((Coulomb(0.0),)).for_joints(3)


def test_memory_is_known_after_its_reach_and_starts_anew_in_each_piece():
    q = np.concatenate([np.zeros(50), np.linspace(0, 0.01, 100)])[:, None]
    s = dataclasses.replace(samples(np.tile(q, (2, 1))), segments=((0, 150), (150, 300)))
    model = FrictionModel((MaxwellSlip(1e-3),))
    known, block = model.known(s), model.blocks(s)
    assert not known[:50].any() and not known[150:200].any() and known[100:150].all()
    np.testing.assert_array_equal(block[:150], block[150:])


@pytest.fixture(scope="module")
def slipping():
    """A pendulum of two links that turn in a vertical plane, with friction that remembers and grows with the load."""
    chain = jaxdyn.textbook.planar_elbow()
    truth = FrictionModel(
        (Viscous(), Offset(), MaxwellSlip(np.array([4e-4, 8e-4])), LoadedSlip(np.array([4e-4, 8e-4])))
    )
    values = np.array([2.0, 0.1, 1.5, 0.05, 1.0, -0.1, 0.8, 0.04])
    runs = []
    for seed in (0, 1, 2):
        s = samples(wander(1000, 2, seed))
        load = np.asarray(
            jax.vmap(lambda *x: jaxdyn.inverse_dynamics(chain, *x))(*map(jnp.asarray, (s.q, s.qd, s.qdd)))
        )
        noise = 0.02 * np.random.default_rng(seed).normal(size=load.shape)
        runs.append(dataclasses.replace(s, tau=load + truth.signals(s, load) @ values + noise))
    return chain, base_parameters(chain, Columns(("armature",), friction=truth)), truth, values, runs


def test_widths_and_torques_of_a_slipping_drive_are_found(slipping):
    chain, base, truth, values, runs = slipping
    start = FrictionModel((Viscous(), Offset(), MaxwellSlip(1e-3), LoadedSlip(1e-3)))
    fit = fit_friction(chain, runs[:2], start, base=base)
    assert fit.names[-8:] == truth.names(2)
    deviation = np.sqrt(np.diag(fit.covariance))[-8:]
    # both terms have the same width here, so their product is better determined than each
    np.testing.assert_allclose(fit.nonlinear[:, 0], [4e-4, 8e-4], rtol=0.1)
    assert np.all(np.abs(fit.values[-8:] - values) < np.maximum(6 * deviation, 0.02))
    np.testing.assert_allclose(fit.noise, 0.02, rtol=0.1)
    error = runs[2].tau - fit.predict(runs[2])
    assert np.all(np.sqrt((error**2).mean(0)) < 0.025)

    one_joint = fit_friction(chain, runs[:1], start, base=base, iterations=2, free=(2,))
    np.testing.assert_array_equal(one_joint.nonlinear[0], [1e-3, 1e-3])
    assert np.all(one_joint.nonlinear[1] != 1e-3)

    # the same linear parameters by the way that `identify` goes
    s = runs[0]
    one = fit_friction(chain, [s], fit.model, iterations=0, base=base)
    signals, known = one.signals(s), one.model.known(s)
    factors = accumulate(one.columns, chain, s.q, s.qd, s.qdd, s.tau, known.astype(float), signals=signals)
    estimate = solve(factors, base)
    assert np.all(np.abs(estimate.values - one.values) < 0.05 * estimate.standard_deviations)
    parameters = np.zeros(len(one.columns.names(2)))
    parameters[base.kept] = estimate.values
    other = predict(one.columns, chain, parameters, s.q, s.qd, s.qdd, signals)
    np.testing.assert_allclose(other, one.predict(s), atol=1e-3)

    plain = chain_with_friction(fit, runs[:2])
    np.testing.assert_allclose(plain.friction.viscous, values[[0, 4]], rtol=0.2)  # takes up what grows with the load
    assert np.all(np.asarray(plain.friction.coulomb) > [1.4, 0.7])


def test_a_run_too_short_for_a_friction_fit_is_refused(slipping):
    chain, _, _, _, runs = slipping
    with pytest.raises(IdentificationError, match="cannot determine"):
        cut = {name: getattr(runs[0], name)[:12] for name in ("t", "q", "qd", "qdd", "tau")}
        short = dataclasses.replace(runs[0], segments=((0, 12),), **cut)
        fit_friction(chain, [short], FrictionModel((Viscous(), Offset(), Coulomb())))


@pytest.mark.ci
def test_identify_with_a_friction_model_equals_identify_with_its_terms():
    """Viscous and constant friction as a model, and as columns: the same least squares."""
    chain = jaxdyn.textbook.planar_elbow()
    true = jaxdyn.model.with_leaves(
        chain, {"friction.viscous": jnp.array([0.7, 0.3]), "friction.offset": jnp.array([0.2, -0.1])}
    )
    log = jaxdyn.identification.synthetic_log(
        true, jaxdyn.identification.random_excitation(true, 6.0, 4), 8.0, 200.0, 1e-5, 0.02
    )
    plain, further = (
        Terms(("armature", "viscous", "offset"), choose=()),
        Terms(("armature",), (Viscous(), Offset()), choose=()),
    )
    terms, model = (jaxdyn.identify(chain, log, terms=each, consistent=None) for each in (plain, further))
    assert terms.friction is None and model.friction is not None
    shared = [terms.base.names.index(name) for name in model.base.names]
    # up to the joints' weights, which both estimate from their residuals
    difference = np.abs(model.estimate.values - terms.estimate.values[shared])
    assert np.all(difference < 0.15 * terms.estimate.standard_deviations[shared])
    for one, other in ((terms.fitted, model.fitted), (terms.validation, model.validation)):
        np.testing.assert_allclose(one[0].samples.t, other[0].samples.t)
        np.testing.assert_allclose(one[0].prediction, other[0].prediction, atol=5e-3)  # a model is filtered
    np.testing.assert_allclose(model.chain.friction.viscous, terms.chain.friction.viscous, atol=1e-3)


def test_units_and_reach_of_friction_with_memory():
    assert LoadedSlip(powers=(0, 1, 2)).units(True) == ("(N m)^1", "1", "(N m)^-1")
    assert LoadedSlip(powers=(2,)).units(False) == ("(N)^-1",)
    widths = np.array([1e-4, 3e-4])
    assert MaxwellSlip(width=widths).reach == LoadedSlip(width=widths).reach == pytest.approx(6e-4)
    assert Dahl(width=widths).reach == pytest.approx(1.5e-3)
    assert LuGre(width=widths, excess=np.array([0.5, 0.2])).reach == pytest.approx(5 * 3e-4 * 1.2)
    assert Viscous().reach == 0.0 and LuGre().units(False) == ("N", "N")


def test_columns_of_friction_are_asked_for_where_they_are_missing(slipping):
    chain, _, truth, _, runs = slipping
    columns = Columns(friction=truth)
    assert columns.drive_terms == ("armature",) and columns.with_drives.names(2) == Columns().names(2)
    with pytest.raises(IdentificationError, match="friction model with 8 parameters, but there are 0 signals"):
        accumulate_stream(columns, chain, [runs[0]])
    with pytest.raises(IdentificationError, match=r"columns\.of_state\.matrix"):
        columns.matrix(chain, jnp.zeros(2), jnp.zeros(2), jnp.zeros(2))
    with pytest.raises(IdentificationError, match="needs drive terms"):
        base_parameters(chain, columns, knowledge=Knowledge(joints=(chain.joint_names[0],)))
    with pytest.raises(IdentificationError, match="the base parameters are those of"):
        fit_friction(chain, runs[:1], truth, base=base_parameters(chain))
    coupled = jaxdyn.with_coupling(chain, np.ones((2, 1)))
    with pytest.raises(IdentificationError, match="a friction model needs a robot with uncoupled joints"):
        base_parameters(coupled, columns)
    assert base_parameters(coupled).size > 0


def test_parameters_of_friction_have_names_of_their_own():
    alone = [Viscous(joints=(j + 1,)) for j in range(30)]
    names = FrictionModel((*alone[:2], Asymmetry(), MaxwellSlip(), MaxwellSlip())).names(2)
    assert names == ("fvb1", "fva1", "fca1", "fza1", "fzb1", "fvc2", "fva2", "fca2", "fza2", "fzb2")
    many = FrictionModel((*alone, Asymmetry())).names(30)
    assert len(set(many)) == len(many) == 90

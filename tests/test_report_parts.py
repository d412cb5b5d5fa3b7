"""Each part of the report against an independent computation, and what it shows against what it computed."""

import base64
import dataclasses
import hashlib
import html.parser
import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from helpers import random_inertia, random_rotation
from jaxdyn import Friction, IdentificationError, OutputError, inverse_dynamics, make_chain, mass_matrix
from jaxdyn.cli import main
from jaxdyn.identification import (
    Columns,
    Estimate,
    FrictionModel,
    MaxwellSlip,
    Resimulation,
    Samples,
    TorqueModel,
    Viscous,
    fit_quality,
    resimulate,
)
from jaxdyn.identification.friction_model import chain_friction_model
from jaxdyn.identification.prediction import filtered_along
from jaxdyn.identification.validation import base_regressor
from jaxdyn.report import (
    Ellipsoid,
    ErrorLimit,
    collect_provenance,
    equivalent_ellipsoid,
    parse_limit,
    quality as accuracy,
    verdict,
)
from jaxdyn.report.fit_sections import (
    binned_medians,
    excitation,
    friction_samples,
    overview,
    positions_section,
    residual_spectra,
)
from jaxdyn.report.markup import rounded
from jaxdyn.report.parameter_sections import (
    against_prior,
    bodies_section,
    correlation,
    correlation_section,
    prior_section,
)
from jaxdyn.report.pictures import line_ends, outstretched, projected, skeleton
from jaxdyn.report.provenance import provenance_section
from jaxdyn.report.quality import noise_share, pooled, pooled_raw, resimulated
from jaxdyn.spatial.solids import box, sphere
from report_example import small_example


@pytest.fixture(scope="module")
def result():
    return small_example()[1]


class Tables(html.parser.HTMLParser):
    """The cells of every row of every table, as text."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.inside = [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
            self.inside = True

    def handle_endtag(self, tag):
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data):
        if self.inside:
            self.rows[-1][-1] += data


def samples_of(t, q, qd, qdd, tau, segments=()):
    rate = 1 / (t[1] - t[0])
    return Samples(t, q, qd, qdd, tau, float(rate), segments, 10.0, 10.0)


# positions


def pendulum(mass, friction=0.0):
    """A point mass on a rod of 0.5 m that hangs, with friction of width 0.05 rad/s."""
    inertia = [mass, 0, 0, -0.5 * mass, 0.25 * mass, 0, 0.25 * mass, 0, 0, 0]
    return make_chain(
        rotation=[np.eye(3)],
        translation=[[0, 0, 0]],
        screw=[[0, 1, 0, 0, 0, 0]],
        inertia=[inertia],
        friction=Friction(coulomb=[friction], coulomb_velocity=0.05),
    )


def swing(rate):
    """A pendulum of 2 kg moved along a sum of sines, with the torque in closed form."""
    t = np.arange(round(1.2 * rate)) / rate
    w = np.array([[2.0], [5.0]])
    q, qd, qdd = (x.sum(0) for x in (np.sin(w * t), w * np.cos(w * t), -(w**2) * np.sin(w * t)))

    def torque(q, qd, qdd):
        return 0.5 * qdd + 2 * 9.81 * 0.5 * np.sin(q) + 0.3 * np.tanh(qd / 0.05)

    return samples_of(t, *(x[:, None] for x in (q, qd, qdd, torque(q, qd, qdd)))), torque


@pytest.mark.ci
def test_positions_agree_with_an_adaptive_integrator_at_the_order_of_the_step():
    """2.1 kg instead of 2, and 0.25 N m of friction instead of 0.3, along the torque of the true pendulum."""
    errors = []
    for rate in (100.0, 200.0):
        samples, torque = swing(rate)
        run = resimulate(pendulum(2.1, 0.25), samples, window=0.4)
        w = np.array([2.0, 5.0])

        def rhs(t, x, w=w, torque=torque):
            now = [(f(w * t) * w**k).sum() for k, f in enumerate((np.sin, np.cos, lambda a: -np.sin(a)))]
            tau = torque(*now)
            load = 2.1 * 9.81 * 0.5 * np.sin(x[0]) + 0.25 * np.tanh(x[1] / 0.05)
            return [x[1], (tau - load) / (2.1 * 0.25)]

        found, expected = [], []
        for start, stop in run.windows:
            t = samples.t[start:stop]
            x0 = [samples.q[start, 0], samples.qd[start, 0]]
            true = solve_ivp(rhs, (t[0], t[-1]), x0, t_eval=t, rtol=1e-10, atol=1e-12).y[0]
            expected.append(true - samples.q[start:stop, 0])
            # the last sample of a window is the first of the next, whose measured position stands there
            found.append(run.simulated[start : stop - 1, 0] - samples.q[start : stop - 1, 0])
        assert len(run.windows) >= 2 and run.seconds == pytest.approx(0.4)
        expected = np.array(expected)
        errors.append(np.abs(np.array(found) - expected[:, :-1]).max() / np.abs(expected).max())
        assert run.rms[0] == pytest.approx(np.sqrt((expected**2).mean()), rel=0.07)
        assert run.growth[-1, 0] == pytest.approx(np.sqrt((expected[:, -1] ** 2).mean()), rel=0.07)
        early = round(0.1 * rate)
        assert run.after(0.1)[0] == pytest.approx(np.sqrt((expected[:, early] ** 2).mean()), rel=0.2)
    assert errors[0] < 0.1 and errors[1] < 0.6 * errors[0]  # first order


def test_the_true_model_stays_on_the_log_and_coasting_does_not():
    samples, _ = swing(100.0)
    run = resimulate(pendulum(2.0, 0.3), samples)
    assert run.rms[0] < 1e-12
    start, stop = run.windows[0]
    t = samples.t[start:stop] - samples.t[start]
    guess = samples.q[start] + samples.qd[start] * t[:, None]
    first = ((samples.q[start:stop] - guess) ** 2).mean()
    assert len(run.windows) == 2 and run.coasting_rms[0] ** 2 > first / 2 > 1e-4


@pytest.mark.ci
def test_friction_with_memory_is_simulated_whole():
    """A pendulum that sticks: the true model stays on the log, also from memory of the run before, and a chain does not."""
    t = np.arange(240) / 100
    q = np.cumsum(np.where((t % 0.8 < 0.4), 0.01 * np.sin(2 * np.pi * t / 0.4), 0.0))[:, None]
    qd, qdd = (np.gradient(q, 0.01, axis=0), np.gradient(np.gradient(q, 0.01, axis=0), 0.01, axis=0))
    chain = pendulum(2.0)
    friction = FrictionModel((Viscous(), MaxwellSlip(5e-3))).for_joints(1)
    model = TorqueModel(chain, friction, jnp.array([[0.2, 1.5]]))
    bare = dataclasses.replace(samples_of(t, q, qd, qdd, np.zeros_like(q)), segments=((0, 240),))
    samples = dataclasses.replace(bare, tau=model.predict(bare))
    assert resimulate(model, samples).rms[0] < 1e-12
    later = samples.rows(np.arange(100, 240), ((0, 140),))
    assert resimulate(model, later, memory=model.memory(samples)[100:]).rms[0] < 1e-12
    softer = dataclasses.replace(model, coefficients=jnp.array([[0.2, 1.2]]))
    off = resimulate(softer, samples)
    # at rest under torques that the weaker spring does not hold, it gives way no further than a solver's own friction would
    assert 1e-5 < off.rms[0] < resimulate(chain, samples).rms[0]
    assert np.abs(np.diff(off.simulated[1:50], 2, axis=0)).max() < 0.05  # no chatter


def test_windows_do_not_cross_gaps_and_short_runs_are_refused():
    samples, _ = swing(100.0)
    parted = dataclasses.replace(samples, segments=((0, 30), (30, 120)))
    run = resimulate(pendulum(2.0), parted)
    assert run.windows == ((30, 81),) and np.isnan(run.simulated[:30]).all() and np.isfinite(run.simulated[30:81]).all()
    with pytest.raises(IdentificationError, match=r"no piece .* 0\.5 s.*longest has 0\.4 s"):
        resimulate(pendulum(2.0), dataclasses.replace(samples, segments=((0, 40), (40, 80))))
    with pytest.raises(IdentificationError, match="the window is 0 s; it must be positive"):
        resimulate(pendulum(2.0), samples, window=0.0)


@pytest.mark.ci
def test_the_table_of_positions_shows_what_was_simulated(result):
    text = positions_section(result, resimulated(result.model, result.validation), with_prior=True)
    runs = [resimulate(result.model, e.samples) for e in result.validation]
    given = [resimulate(result.prior, e.samples) for e in result.validation]
    rows = {row[0]: row for row in Tables(text).rows}
    for j, joint in enumerate(result.chain.joint_names):
        span = np.ptp(result.validation[0].samples.q[:, j])
        values = (
            span,
            runs[0].rms[j],
            runs[0].after(0.1)[j],
            runs[0].growth[-1, j],
            given[0].rms[j],
            runs[0].coasting_rms[j],
        )
        assert rows[joint][1:] == [("rad", "m")[j], *map(rounded, values)]
    assert np.all(runs[0].rms < given[0].rms) and np.all(runs[0].rms < runs[0].coasting_rms)


# spectra and friction


def test_spectra_of_a_sine_in_white_noise(result):
    """A sine of 3 Hz and amplitude 2 has power 2; noise of variance v at rate r has density 2 v / r."""
    rng = np.random.default_rng(0)
    rate, e = 100.0, result.fitted[0]
    t = np.arange(40_000) / rate
    noise, zero = 0.5 * rng.normal(size=(len(t), 1)), np.zeros((len(t), 1))
    sine = 2 * np.sin(2 * np.pi * 3.0 * t)[:, None]
    pieces = ((0, 25_000), (25_000, 40_000))
    run = dataclasses.replace(e, samples=samples_of(t, zero, zero, zero, sine + noise, pieces), prediction=sine)
    frequency, measured, residual = residual_spectra([run])
    step = frequency[1] - frequency[0]
    assert step == pytest.approx(0.25)
    near = np.abs(frequency - 3) < 0.6
    assert measured[near].sum() * step == pytest.approx(2.0, rel=0.02)
    assert residual.sum() * step == pytest.approx(0.25, rel=0.02)  # Parseval
    np.testing.assert_allclose(residual[2:-2].mean(), 2 * 0.25 / rate, rtol=0.02)


def test_friction_samples_are_the_torque_without_the_rigid_body(result):
    e, chain = result.fitted[0], result.chain
    data = friction_samples(chain, result.fitted)
    s = e.samples
    rigid = jax.vmap(lambda *x: inverse_dynamics(chain, *x))(*map(jnp.asarray, (s.q, s.qd, s.qdd)))
    smooth = e.logged[1] - e.prediction  # what the filter takes off the friction, which the curve does not lack
    np.testing.assert_allclose(data.torque, s.tau - np.asarray(rigid) + smooth, atol=1e-8)
    fv, fc, width, offset = (
        np.asarray(x)
        for x in (
            chain.friction.viscous,
            chain.friction.coulomb,
            chain.friction.coulomb_velocity,
            chain.friction.offset,
        )
    )
    np.testing.assert_allclose(data.curve, fv * data.grid + fc * np.tanh(data.grid / width) + offset, atol=1e-12)
    assert np.all(data.grid.max(0) == np.abs(s.qd).max(0)) and np.all(np.diff(data.grid, axis=0) > 0)


def test_figures_on_one_line_have_one_filter(result):
    """Of the sentence, the tiles and the terminal: logged with logged, filtered with filtered."""
    text = overview(result, verdict(result))
    held, fitted = (pooled(runs).total_relative for runs in (result.validation, result.fitted))
    raw = [pooled_raw(runs).total_relative for runs in (result.validation, result.fitted)]
    assert raw[0] > 1.05 * held and raw[1] > 1.05 * fitted
    logged, low = map(rounded, raw), [rounded(x) for x in (held, fitted)]
    (a, b), (c, d) = logged, low
    assert f"{a} % of the logged torque ({c} % after low-pass filtering)" in text
    assert f"for the fitted motion, the error is {b} % ({d} %)." in text
    tiles = re.findall(r'class="tile[^"]*"><b>([^<]*)</b>(.*?)</div>', text)
    shown = {
        word: (value, rest) for value, rest in tiles for word in ("error, held out", "error, fitted") if word in rest
    }
    assert shown["error, held out"][0] == f"{a} %" and f"{c} % filtered" in shown["error, held out"][1]
    assert shown["error, fitted"][0] == f"{b} %" and f"{d} % filtered" in shown["error, fitted"][1]
    unknown = dataclasses.replace(result, fitted=tuple(dataclasses.replace(e, logged=None) for e in result.fitted))
    text = overview(unknown, verdict(unknown))
    assert (
        f"total error of {c} % of the torque; for the fitted motion, the error is {d} %." in text
        and f"{a} %" not in text
    )


def test_samples_of_a_friction_model_are_not_filtered_like_the_torque(result):
    """Without residual, they are the model's friction as it is, so that they lie on a curve that is not filtered."""
    e, chain = result.fitted[0], result.chain
    step = 0.5 * np.tanh(e.samples.qd / 0.02)
    smooth = e.prediction - 0.3 * step  # the filter has rounded the friction's steps
    exact = dataclasses.replace(
        e, samples=dataclasses.replace(e.samples, tau=smooth), prediction=smooth, logged=(smooth, smooth + 0.3 * step)
    )
    plain, sharp = (
        friction_samples(chain, [x], modelled=True).torque for x in (dataclasses.replace(exact, logged=None), exact)
    )
    np.testing.assert_allclose(sharp - plain, 0.3 * step, atol=1e-12)


def test_medians_of_bins():
    x = np.concatenate([-np.arange(1.0, 25.0), np.arange(1.0, 49.0)])
    u, v = binned_medians(x, 3 * x, bins=24)
    assert len(u) == 24 and np.all(v == 3 * u) and np.all(np.diff(u) > 0)
    assert (u[:12] < 0).all() and (u[12:] > 0).all() and u[12] == 2.5 and u[0] == -23.5


# excitation and null space


def test_singular_values_come_back_from_the_covariance():
    rng = np.random.default_rng(0)
    w = rng.normal(size=(200, 6)) * [1, 10, 0.1, 3, 1, 1]
    w[:, 5] = w[:, 4] * [1.0] + 0.01 * w[:, 5]
    s = np.linalg.svd(w, compute_uv=False)
    scaled = np.linalg.svd(w / np.linalg.norm(w, axis=0), compute_uv=False)
    estimate = Estimate(
        np.ones(6), 0.25 * np.linalg.inv(w.T @ w), np.ones(1), s[0] / s[-1], scaled[0] / scaled[-1], np.ones(1)
    )
    found = excitation(estimate)
    np.testing.assert_allclose(found.values, s / 0.5, rtol=1e-8)
    np.testing.assert_allclose(found.scaled, scaled / scaled[0], rtol=1e-8)
    weakest = np.abs(found.directions[-1])  # the two columns that are almost one
    assert weakest[4:].min() > 0.7 and weakest[:4].max() < 0.01


def test_excitation_of_a_result_has_its_condition_numbers(result):
    found = excitation(result.estimate)
    assert found.values[0] / found.values[-1] == pytest.approx(result.estimate.condition, rel=1e-6)
    assert 1 / found.scaled[-1] == pytest.approx(result.estimate.scaled_condition, rel=1e-6)


# bodies


def test_ellipsoid_of_a_sphere_and_of_points_in_an_ellipsoid():
    e = equivalent_ellipsoid(np.asarray(sphere(3.0, 0.2, np.block([[np.eye(3), np.ones((3, 1))], [0, 0, 0, 1]]))))
    np.testing.assert_allclose(e.semi_axes, 0.2, rtol=1e-12)
    np.testing.assert_allclose(e.centre, 1.0, rtol=1e-12)
    b = equivalent_ellipsoid(np.asarray(box(2.0, [0.1, 0.2, 0.3])))
    np.testing.assert_allclose(b.semi_axes, np.sqrt(5 / 12) * np.array([0.1, 0.2, 0.3]), rtol=1e-12)
    rng = np.random.default_rng(0)  # a hundred thousand points of one body
    u = rng.normal(size=(100_000, 3))
    u *= (rng.uniform(size=(len(u), 1)) ** (1 / 3)) / np.linalg.norm(u, axis=1, keepdims=True)
    axes, turn, centre = np.array([0.05, 0.2, 0.4]), random_rotation(rng), np.array([0.3, -0.2, 0.1])
    x = (u * axes) @ turn.T + centre
    second = x.T @ x * (1.5 / len(x))
    inertia = np.trace(second) * np.eye(3) - second
    i = inertia
    pi = np.array([1.5, *(1.5 * x.mean(0)), i[0, 0], i[0, 1], i[1, 1], i[0, 2], i[1, 2], i[2, 2]])
    e = equivalent_ellipsoid(pi)
    np.testing.assert_allclose(e.semi_axes, axes, rtol=0.02)
    np.testing.assert_allclose(e.centre, centre, atol=3e-3)
    assert e.consistent and not equivalent_ellipsoid(np.array([1.0, 0, 0, 0, 1, 0, 1, 0, 0, 3])).consistent
    assert equivalent_ellipsoid(np.zeros(10)) is None


def test_outline_is_the_shadow():
    rng = np.random.default_rng(1)
    root = rng.normal(size=(3, 3))
    e = Ellipsoid(1.0, rng.normal(size=3), root @ root.T)
    view = random_rotation(rng)[:2]
    u = rng.normal(size=(20_000, 3))
    surface = e.centre + (u / np.linalg.norm(u, axis=1, keepdims=True)) @ root.T
    centre, (a, b), angle = projected(e, view)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    inside = (((surface @ view.T - centre) @ turn.T / [a, b]) ** 2).sum(1)
    assert inside.max() <= 1 + 1e-9 and inside.max() > 0.999 and a >= b
    polar = np.arctan2(*((surface @ view.T - centre) @ turn.T / [a, b]).T[::-1])
    edge = np.array([inside[np.abs(polar - p) < 0.05].max() for p in np.linspace(-3, 3, 12)])
    assert edge.min() > 0.99  # it touches all around


def test_ellipses_on_the_page_are_those_of_the_links(result):
    chain = dataclasses.replace(
        result.chain, inertia=jnp.asarray([random_inertia(np.random.default_rng(k)) for k in (1, 2)])
    )
    samples = result.fitted[0].samples
    text = bodies_section(chain, None, samples)
    poses = outstretched(chain, samples)
    lines, poses = line_ends(poses, skeleton(chain)), poses[:-1]
    middle = np.concatenate(lines).mean(0)
    views = ([[0, 1, 0], [0, 0, 1]], [[1, 0, 0], [0, 0, 1]])
    expected = []
    for view in np.array(views, float):
        for pose, pi in zip(poses, np.asarray(chain.inertia), strict=True):
            e = equivalent_ellipsoid(pi).moved(pose)
            at, (a, b), _ = projected(e, view)
            at = at - view @ middle
            expected.append(1000 * np.array([a, b, at[0], -at[1]]))
    found = [
        [float(x) for x in match]
        for match in re.findall(
            r'class="body" rx="([\d.]+)" ry="([\d.]+)" transform="translate\(([\d.-]+) ([\d.-]+)\)', text
        )
    ]
    np.testing.assert_allclose(found, expected, atol=0.1)
    rows = {row[1]: row for row in Tables(text).rows if len(row) > 3}
    e = equivalent_ellipsoid(np.asarray(chain.inertia[0]))
    assert rows["link1"][2] == f"{e.mass:.3g}" and rows["link1"][5] == ", ".join(
        f"{1000 * a:.0f}" for a in e.semi_axes[::-1]
    )
    spoiled = dataclasses.replace(chain, inertia=chain.inertia.at[1, 9].set(50.0))
    text = bodies_section(spoiled, None, samples)
    assert text.count('class="body"') == 2 and "link2" in re.search(r"Not drawn.*?</p>", text)[0]


# errors, verdict, provenance


def test_errors_of_the_given_model(result, annotations_unchecked):
    errors, seen = against_prior(result), result.held_out_model.chain  # whose drives have not seen the held-out motion
    s = result.validation[0].samples
    own = jax.vmap(lambda *x: inverse_dynamics(result.prior, *x))(*map(jnp.asarray, (s.q, s.qd, s.qdd)))

    def friction(chain):
        viscous, coulomb, width, offset = (
            np.asarray(getattr(chain.friction, name)) for name in ("viscous", "coulomb", "coulomb_velocity", "offset")
        )
        dry = filtered_along(s, lambda qd: np.tanh(qd / width), s.qd)  # like the measured torques
        return viscous * s.qd + coulomb * dry + offset

    given = s.tau - np.asarray(own) - friction(result.prior)
    np.testing.assert_allclose(errors.given.rms, np.sqrt((given**2).mean(0)), rtol=1e-9)
    swap = np.asarray(seen.armature) - np.asarray(result.prior.armature)
    driven = s.tau - np.asarray(own) - swap * s.qdd - friction(seen)
    np.testing.assert_allclose(errors.driven.rms, np.sqrt((driven**2).mean(0)), rtol=1e-9)
    np.testing.assert_array_equal(errors.identified.rms, pooled(result.validation).rms)
    rows = {row[0]: row for row in Tables(prior_section(result, errors)).rows}
    for j, joint in enumerate(result.chain.joint_names):
        assert rows[joint][2] == rounded(errors.given.rms[j]) and rows[joint][4] == rounded(errors.driven.rms[j])
        assert rows[joint][-1] == rounded(errors.given.rms[j] / errors.identified.rms[j])
    # the same friction as terms of a friction model, which the columns then lack
    law, coefficients = chain_friction_model(seen)
    whole = TorqueModel(seen, law.for_joints(result.chain.n), coefficients)
    with_terms = types.SimpleNamespace(
        **{name: getattr(result, name) for name in ("prior", "chain", "validation", "fitted")}
    )
    with_terms.columns, with_terms.model, with_terms.validated_model = Columns(("armature",)), whole, whole
    np.testing.assert_allclose(against_prior(with_terms).driven.rms, errors.driven.rms, rtol=1e-3)
    bare = dataclasses.replace(result, prior=dataclasses.replace(result.prior, inertia=0 * result.prior.inertia))
    assert against_prior(bare) is None and prior_section(bare, None) == ""


def off_by(result, share):
    """The result with held-out errors of this share of the torque while joints move, at a frequency of no motion."""
    e = result.validation[0]
    size = share * np.sqrt(np.mean(e.samples.tau**2, axis=0, where=np.abs(e.samples.qd) > 0.02))
    sign = np.where(np.arange(len(e.samples)) % 2, 1.0, -1.0)[:, None]
    prediction = e.samples.tau - size * sign
    fit = fit_quality(e.samples.tau, prediction, e.samples.qd)
    return dataclasses.replace(
        result, validation=(dataclasses.replace(e, prediction=prediction, fit=fit, unconstrained=fit),)
    )


@pytest.mark.parametrize(("share", "level"), [(0.09, "good"), (0.3, "fair"), (0.5, "poor")])
def test_verdict_by_errors_over_torque(result, share, level):
    sound = dataclasses.replace(off_by(result, share), inconsistent_links=(), unusual_links=())
    judged = verdict(sound)
    uses = {use.use: use for use in judged.uses}
    assert uses["feed-forward"].level == level and judged.joints == (level, level)
    assert f"up to {rounded(100 * share)} % of the torque" in uses["feed-forward"].text
    weak = verdict(dataclasses.replace(sound, estimate=dataclasses.replace(sound.estimate, scaled_condition=500.0)))
    assert weak.level == judged.level and weak.headline == judged.headline  # the condition number is for information
    assert any("Condition number" in c.text and " 500" in c.text and c.level == "note" for c in weak.checks)
    for fault in (
        {"inconsistent_links": ("link 'a': mass -1",)},
        {"unusual_links": ("link 'a' has a mass of 199 kg and a density of 4.7e+07 kg/m^3",)},
    ):
        broken = {use.use: use.level for use in verdict(dataclasses.replace(sound, **fault)).uses}
        assert broken["simulation"] == "poor" and broken["feed-forward"] == level
    unconfirmed = {use.use: use for use in verdict(dataclasses.replace(sound, validation=())).uses}
    assert unconfirmed["feed-forward"].level != "good" and "o motion was held out" in unconfirmed["feed-forward"].text


def test_a_failed_validation_names_the_commonest_causes(result):
    (check,) = [c for c in verdict(off_by(result, 0.5)).checks if "Validation" in c.text]
    assert (
        check.level == "poor"
        and "a different robot, payload, temperature (which changes the friction) or set of gains" in check.text
    )
    (check,) = [c for c in verdict(result).checks if "Validation" in c.text]
    assert check.level == "good" and "confirms the fit" in check.text


def test_verdict_takes_noise_within_the_band_off(result):
    """Of white noise, at most what lies within the filter's band; less in a short run, whose density is uneven."""
    e = result.validation[0]
    white = np.random.default_rng(0).normal(size=e.samples.tau.shape)
    size = np.sqrt((e.samples.tau**2).mean(0))
    share = noise_share([dataclasses.replace(e, prediction=e.samples.tau - 0.2 * size * white)])
    assert np.all((share > 0.2 * e.samples.independence) & (share < 1.2 * e.samples.independence))
    slow = dataclasses.replace(e, prediction=e.samples.tau - 0.2 * size * np.sin(0.5 * e.samples.t[:, None]))
    assert np.all(noise_share([slow]) < 0.01)


def test_verdict_tells_standstill_from_motion(result):
    """The second joint rests for half of the run, and errs three times as much then."""
    calm = off_by(result, 0.1)
    e = calm.validation[0]
    still = np.arange(len(e.samples)) < len(e.samples) // 2
    qd = np.where(still[:, None] & [False, True], 0.0, np.where(np.abs(e.samples.qd) > 0.02, e.samples.qd, 0.5))
    error = (e.samples.tau - e.prediction) * np.where(still[:, None] & [False, True], 3.0, 1.0)
    samples = dataclasses.replace(e.samples, qd=qd)
    run = dataclasses.replace(e, samples=samples, prediction=e.samples.tau - error)
    (check,) = [c for c in verdict(dataclasses.replace(calm, validation=(run,))).checks if "standstill" in c.text]
    assert check.level == "fair" and "joint2 (3.00 times)" in check.text and "joint1" not in check.text


@pytest.mark.parametrize(("excess", "level"), [(1.04, "good"), (1.15, "fair"), (1.3, "poor")])
def test_verdict_tells_what_physical_consistency_costs(result, excess, level):
    run = off_by(result, 0.1)
    e = run.validation[0]
    free = dataclasses.replace(e.fit, rms=e.fit.rms / [1.0, excess])
    checks = verdict(dataclasses.replace(run, validation=(dataclasses.replace(e, unconstrained=free),))).checks
    check = next(c for c in checks if "unconstrained parameters" in c.text)
    assert check.level == level and f"(+{100 * (excess - 1):.1f} % on joint2" in check.text
    unasked = dataclasses.replace(run, consistent=None)
    assert not any("unconstrained parameters" in c.text for c in verdict(unasked).checks)


def test_verdict_beside_the_given_model(result):
    errors = against_prior(result)

    def judged(times):
        given = dataclasses.replace(errors.given, rms=errors.identified.rms * times)
        return verdict(result, prior=dataclasses.replace(errors, given=given))

    worse = judged([0.5, 2.0])
    assert any("better on joint1." in c.text and c.level == "poor" for c in worse.checks)
    assert {use.use: use.level for use in worse.uses}["feed-forward"] != "good"
    assert any("no better than by the given model" in c.text and c.level == "note" for c in judged([1.0, 1.0]).checks)
    assert any("but not on joint1." in c.text for c in judged([1.0, 3.0]).checks)
    assert any("2.00 times as large" in c.text and c.level == "good" for c in judged([2.0, 2.0]).checks)


def test_verdict_by_limits(result):
    rms = pooled(result.validation).rms
    kept = verdict(result, [ErrorLimit("rms", tuple(1.01 * rms))])
    assert kept.level == "good" and "meets your limits" in kept.headline
    broken = verdict(result, [ErrorLimit("rms", tuple(rms * [1.01, 0.99])), ErrorLimit("rre", (99.0,))])
    assert broken.level == "poor" and "joint2" in broken.checks[0].text and "joint1" not in broken.checks[0].text
    assert broken.checks[1].level == "good"
    assert parse_limit("RRE = 10,5") == ErrorLimit("rre", (10.0, 5.0))
    with pytest.raises(IdentificationError, match="3 numbers for 2 joints"):
        verdict(result, [parse_limit("moving=1,2,3")])


@pytest.mark.parametrize("text", ["rms", "rms=", "rms=a", "rms=-1", "rms=nan", "max=3", "3"])
def test_limits_that_are_none(text):
    with pytest.raises(IdentificationError, match="is not a limit: write rms="):
        parse_limit(text)


def test_a_limit_that_is_none_is_refused_before_the_work(tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["identify", "--limit", "rms=high", "--out", str(out)]) == 1
    assert "'rms=high' is not a limit" in capsys.readouterr().err and not out.exists()


def test_provenance_names_files_by_their_hash(tmp_path):
    file = tmp_path / "run.csv"
    file.write_bytes(b"abc")
    found = collect_provenance(
        [("log", file)], {"cutoff": 8.0, "lock": {"finger": 0.02}, "tip": None, "rows": []}, ["identify", "a b"]
    )
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, of "abc"
    assert found.inputs[0].sha256 == digest == hashlib.sha256(b"abc").hexdigest() and found.inputs[0].size == 3
    assert found.settings == (("cutoff", "8"), ("lock", "finger=0.02")) and found.command == "jaxdyn identify 'a b'"
    assert dict(found.versions)["jax"] == jax.__version__ and dict(found.versions)["numpy"] == np.__version__
    rows = Tables(provenance_section(found)).rows
    assert ["log", str(file), "3", digest] in rows and ["cutoff", "8"] in rows
    assert dict(found.with_settings({"delay": [0.002], "none": None}).settings)["delay"] == "0.002"
    with pytest.raises(OutputError, match=r"gone\.csv: cannot be read to compute its hash: No such file"):
        collect_provenance([("log", tmp_path / "gone.csv")])


def test_provenance_lists_a_folder_as_its_files(tmp_path):
    folder = tmp_path / "run" / "parts"
    folder.mkdir(parents=True)
    for path in (folder / "b.db3", folder / "a.db3", folder.parent / "metadata.yaml"):
        path.write_bytes(path.name.encode())
    (folder / "gone").symlink_to(tmp_path / "nowhere")
    found = collect_provenance([("model", folder / "a.db3"), ("log", tmp_path / "run")]).inputs
    assert [i.role for i in found] == ["model", "log", "log", "log"]
    assert [i.name for i in found[1:]] == [
        str(folder.parent / x) for x in ("metadata.yaml", "parts/a.db3", "parts/b.db3")
    ]
    for i in found:
        assert i.sha256 == hashlib.sha256(i.name.rpartition("/")[2].encode()).hexdigest()


def test_positions_that_run_away_are_not_drawn(result):
    e = result.validation[0]
    away = np.array(e.samples.q)
    away[50:] += 100 * np.ptp(away, axis=0)
    run = Resimulation(((0, len(away)),), away, np.ones(2), np.ones((9, 2)), np.ones(2), 0.5)
    text = positions_section(result, [(e, run)], with_prior=False)
    assert text.count("not drawn where the simulation diverges") == 2
    away[50:] = e.samples.q[50:]
    assert "diverges" not in positions_section(result, [(e, run)], with_prior=False)


def test_correlation_is_that_of_the_covariance(result):
    found, estimate = correlation(result.estimate), result.estimate
    i, j = 3, 1
    np.testing.assert_allclose(
        found[i, j],
        estimate.covariance[i, j] / np.sqrt(estimate.covariance[i, i] * estimate.covariance[j, j]),
        rtol=1e-9,
    )
    np.testing.assert_allclose(np.diag(found), 1.0)
    text = correlation_section(result.base, estimate)
    lower = np.where(np.tri(len(found), k=-1, dtype=bool), np.abs(found), 0)
    i, j = np.unravel_index(np.argmax(lower), lower.shape)
    assert Tables(text).rows[1][1:] == [result.base.names[i], result.base.names[j]]
    coded = np.frombuffer(base64.b64decode(re.search(r'"values": "([^"]+)"', text)[1]), np.int8)
    np.testing.assert_allclose(coded.reshape(found.shape) / 100, found, atol=0.006)
    shades = np.round(10 * found[np.tril_indices(len(found))])
    assert text.count("h1v1h-1z") == np.count_nonzero(shades)


def test_masses_add_up_and_densities_are_those_of_ellipsoids():
    e = equivalent_ellipsoid(np.asarray(sphere(3.0, 0.2)))
    assert e.density == pytest.approx(3.0 / (4 / 3 * np.pi * 0.2**3), rel=1e-9)
    flat = equivalent_ellipsoid(np.array([1.0, 0, 0, 0, 1, 0, 1, 0, 0, 2]))
    assert flat.density == np.inf


@pytest.mark.ci
def test_inertia_and_weight_come_from_the_base_parameters(result, monkeypatch):
    """By the base regressor, as by the mass matrix and inverse dynamics of the identified chain."""
    given = {}
    monkeypatch.setattr(accuracy, "_postures", lambda result, q: given.setdefault("q", np.array(q[:60])))
    found = accuracy.determination_in_use(result)
    chain, root = result.chain, np.linalg.cholesky(result.estimate.covariance)
    with jax.enable_x64(True):
        q = jnp.asarray(given["q"])
        inertia = np.asarray(jax.vmap(lambda x: jnp.diagonal(mass_matrix(chain, x)))(q)).mean(0)
        weight = np.asarray(jax.vmap(lambda x: inverse_dynamics(chain, x, 0 * x, 0 * x))(q))
    rows = lambda qdd: base_regressor(result.prior, result.columns, result.base, np.asarray(q), 0 * np.asarray(q), qdd)
    rest = rows(np.zeros(q.shape))
    for j in range(chain.n):
        alone = (rows(np.broadcast_to(np.eye(chain.n)[j], q.shape)) - rest)[:, j] @ root
        assert found.inertia[j] == pytest.approx(np.sqrt((alone**2).sum(1).mean()) / inertia[j], rel=1e-6)
    spread = np.sqrt(((rest @ root) ** 2).sum(2).mean(0))
    size = np.sqrt((np.concatenate([e.samples.tau for e in result.validation]) ** 2).mean(0))
    np.testing.assert_allclose(found.gravity, spread / np.maximum(np.sqrt((weight**2).mean(0)), size), rtol=1e-6)

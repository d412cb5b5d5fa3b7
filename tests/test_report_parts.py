"""Each part of the report against an independent computation, and what it shows against what it computed."""

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

from helpers import random_rotation
from jaxdyn import Friction, IdentificationError, OutputError, inverse_dynamics, make_chain, mass_matrix
from jaxdyn.cli import main
from jaxdyn.identification import (
    Columns,
    Estimate,
    FrictionModel,
    MaxwellSlip,
    Samples,
    TorqueModel,
    Viscous,
    fit_quality,
    resimulate,
)
from jaxdyn.identification.friction_model import chain_friction_model
from jaxdyn.identification.prediction import filtered_along
from jaxdyn.identification.validation import Resimulation, base_regressor
from jaxdyn.report import (
    ErrorLimit,
    collect_provenance,
    equivalent_ellipsoid,
    parse_limit,
    quality as accuracy,
    verdict,
    verdicts,
)
from jaxdyn.report.markup import rounded
from jaxdyn.report.provenance import provenance_section
from jaxdyn.report.quality import against_prior, all_figures, noise_share, pooled, pooled_raw, torque_shares
from jaxdyn.report.sections import (
    binned_medians,
    details_section,
    errors_section,
    first_screen,
    friction_samples,
    parameters_section,
)
from jaxdyn.report.verdicts import LIMITS
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


@pytest.mark.nightly
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


def test_errors_are_those_of_the_nearest_sample_after_a_start():
    growth = np.arange(6.0)[:, None] * [1.0, 2.0]
    run = Resimulation(((0, 6),), np.zeros((6, 2)), np.ones(2), growth, np.ones(2), 0.5)
    for seconds, k in ((0.0, 0), (0.1, 1), (0.26, 3), (0.5, 5), (2.0, 5)):
        np.testing.assert_array_equal(run.after(seconds), growth[k])


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
    text = details_section(result, verdict(result)).partition('id="bodies"')[0]
    runs = [resimulate(result.held_out_model, e.samples) for e in result.validation]
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


# friction


def test_friction_samples_are_the_torque_without_the_rigid_body(result):
    e, chain = result.fitted[0], result.chain
    _, torque, grid, curve = friction_samples(chain, result.fitted)
    s = e.samples
    rigid = jax.vmap(lambda *x: inverse_dynamics(chain, *x))(*map(jnp.asarray, (s.q, s.qd, s.qdd)))
    smooth = e.logged[1] - e.prediction  # what the filter takes off the friction, which the curve does not lack
    np.testing.assert_allclose(torque, s.tau - np.asarray(rigid) + smooth, atol=1e-8)
    fv, fc, width, offset = (
        np.asarray(x)
        for x in (
            chain.friction.viscous,
            chain.friction.coulomb,
            chain.friction.coulomb_velocity,
            chain.friction.offset,
        )
    )
    np.testing.assert_allclose(curve, fv * grid + fc * np.tanh(grid / width) + offset, atol=1e-12)
    assert np.all(grid.max(0) == np.abs(s.qd).max(0)) and np.all(np.diff(grid, axis=0) > 0)


def test_one_table_compares_like_with_like(result):
    """Every row relative to the filtered torque, apart from those that say that they are not."""
    judged = verdict(result)
    rows = {row[0]: row[1:] for row in Tables(errors_section(result, judged)).rows}
    held, fitted = (pooled(runs) for runs in (result.validation, result.fitted))
    raw = [pooled_raw(runs) for runs in (result.validation, result.fitted)]
    assert raw[0].total_relative > 1.05 * held.total_relative and raw[1].total_relative > 1.05 * fitted.total_relative
    expected = {
        "Held out: ": held,
        "Fitted: ": fitted,
        "Given model, on held-out motion": judged.given.given,
        "Given inertias, identified friction and rotors, on held-out motion": judged.given.driven,
        "As logged, unfiltered: held out": raw[0],
        "As logged, unfiltered: fitted": raw[1],
    }
    for title, fit in expected.items():
        (row,) = [row for name, row in rows.items() if name.startswith(title)]
        cells = [rounded(a) + rounded(b) for a, b in zip(fit.relative_moving, fit.rms, strict=True)]
        assert row == [rounded(fit.total_relative), *cells], title
    text = first_screen(result, judged)
    tiles = re.findall(r'class="tile"><b>([^<]*)</b><span>([^<]*)</span>', text)
    times = judged.given.given.total_relative / held.total_relative
    assert tiles[0] == (f"{rounded(held.total_relative)} %", "torque error, held out")
    assert tiles[2] == (f"{rounded(judged.given.given.total_relative)} %", "error of the given model")
    assert f"{rounded(times)} times as large, same motion" in text
    unknown = dataclasses.replace(result, fitted=tuple(dataclasses.replace(e, logged=None) for e in result.fitted))
    assert "unfiltered: fitted" not in errors_section(unknown, judged)


def test_samples_of_a_friction_model_are_not_filtered_like_the_torque(result):
    """Without residual, they are the model's friction as it is, so that they lie on a curve that is not filtered."""
    e, chain = result.fitted[0], result.chain
    step = 0.5 * np.tanh(e.samples.qd / 0.02)
    smooth = e.prediction - 0.3 * step  # the filter has rounded the friction's steps
    exact = dataclasses.replace(
        e, samples=dataclasses.replace(e.samples, tau=smooth), prediction=smooth, logged=(smooth, smooth + 0.3 * step)
    )
    plain, sharp = (
        friction_samples(chain, [x], modelled=True)[1] for x in (dataclasses.replace(exact, logged=None), exact)
    )
    np.testing.assert_allclose(sharp - plain, 0.3 * step, atol=1e-12)


def test_medians_of_bins():
    x = np.concatenate([-np.arange(1.0, 25.0), np.arange(1.0, 49.0)])
    u, v = binned_medians(x, 3 * x, bins=24)
    assert len(u) == 24 and np.all(v == 3 * u) and np.all(np.diff(u) > 0)
    assert (u[:12] < 0).all() and (u[12:] > 0).all() and u[12] == 2.5 and u[0] == -23.5


# parameters


def test_shares_of_the_torque_come_from_the_columns_and_the_noise(annotations_unchecked):
    """Of a known regressor: magnitude, or standard deviation, times the RMS of the column, over the noise."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(200, 6)) * [1, 10, 0.1, 3, 1, 1]
    values, noise = np.array([1.0, -2.0, 0.0, 4.0, 5.0, 6.0]), 0.5
    inverse = np.linalg.inv(w.T @ w)
    for independence in (1.0, 0.25):  # of samples that a filter has correlated
        estimate = Estimate(values, noise**2 * inverse / independence, np.ones(1), 1.0, 1.0, np.ones(1), w / noise)
        run = types.SimpleNamespace(samples=type("Run", (), {"independence": independence, "__len__": lambda _: 200})())
        torque, unsure = torque_shares(types.SimpleNamespace(estimate=estimate, fitted=[run]))
        size = np.sqrt((w**2).mean(0)) / noise
        np.testing.assert_allclose(torque, np.abs(values) * size, rtol=1e-9)
        np.testing.assert_allclose(unsure, estimate.standard_deviations * size, rtol=1e-9)


def test_a_parameter_is_judged_by_its_share_of_the_torque_not_by_its_value(result):
    """The standard deviation's torque over the noise decides: a value near zero is no worse determined than a large one."""
    _, unsure = torque_shares(result)
    bounds = LIMITS["parameter"]
    expected = ["well" if x <= bounds.good else "fairly" if x <= bounds.fair else "poorly" for x in unsure]
    assert len({*expected}) == 3
    near_zero = dataclasses.replace(
        result, estimate=dataclasses.replace(result.estimate, values=1e-9 * result.estimate.values)
    )
    for one in (result, near_zero):
        rows = Tables(parameters_section(one)).rows
        assert [row[-1] for row in rows[-len(expected) :]] == [
            f"{rounded(x)} {y}" for x, y in zip(unsure, expected, strict=True)
        ]


def test_every_parameter_stands_beside_its_own_interval(result):
    """That of the written model, not of the unconstrained estimate."""
    rows = [row for row in Tables(parameters_section(result)).rows if " to " in row[3]]
    values, factor = result.base.matrix @ result.parameters, result.estimate.interval_factor()
    deviations = np.sqrt(np.diag(result.covariance))
    number = lambda text: float(text.replace("\N{MINUS SIGN}", "-").removeprefix("± "))
    assert len(rows) == result.base.size
    for row, value, deviation in zip(rows, values, deviations, strict=True):
        low, high = map(number, row[3].split(" to "))
        assert abs(number(row[1]) - value) <= 0.051 * deviation and number(row[2]) == pytest.approx(deviation, rel=0.06)
        np.testing.assert_allclose([low, high], value + np.array([-1, 1]) * factor * deviation, atol=0.051 * deviation)


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
    np.testing.assert_allclose(all_figures(result, errors, [])["given"], errors.identified.rms / errors.given.rms)
    # the same friction as terms of a friction model, which the columns then lack
    law, coefficients = chain_friction_model(seen)
    whole = TorqueModel(seen, law.for_joints(result.chain.n), coefficients)
    with_terms = types.SimpleNamespace(
        **{name: getattr(result, name) for name in ("prior", "chain", "validation", "fitted")}
    )
    with_terms.columns, with_terms.model, with_terms.validated_model = Columns(("armature",)), whole, whole
    np.testing.assert_allclose(against_prior(with_terms).driven.rms, errors.driven.rms, rtol=1e-3)
    bare = dataclasses.replace(result, prior=dataclasses.replace(result.prior, inertia=0 * result.prior.inertia))
    assert against_prior(bare) is None and "iven model" not in errors_section(bare, verdict(bare))


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
    assert f"error while moving is {rounded(100 * share)} % of the torque" in uses["feed-forward"].text
    weak = verdict(dataclasses.replace(sound, estimate=dataclasses.replace(sound.estimate, scaled_condition=500.0)))
    assert weak.level == judged.level and weak.headline == judged.headline  # the condition number is for information
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
    assert not verdict(result).checks  # nothing is wrong


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
    constrained = dataclasses.replace(run, validation=(dataclasses.replace(e, unconstrained=free),))
    found = [c for c in verdict(constrained).checks if "Physically consistent links" in c.text]
    assert [c.level for c in found] == [level] * (level != "good")
    assert all(f"by {rounded(100 * (excess - 1))} % (joint2)" in c.text for c in found)
    unasked = dataclasses.replace(constrained, consistent=None)
    assert not any("Physically consistent links" in c.text for c in verdict(unasked).checks)


def test_verdict_beside_the_given_model(result, monkeypatch):
    errors = against_prior(result)

    def feed_forward(times):
        given = dataclasses.replace(errors.given, rms=errors.identified.rms * times)
        monkeypatch.setattr(verdicts, "against_prior", lambda result: errors._replace(given=given))
        judged = verdict(result)
        assert judged.given.given is given
        return judged.uses[1]

    assert feed_forward([2.0, 2.0]).level == "good"
    worse = feed_forward([0.5, 2.0])
    assert worse.level == "fair" and "the given model predicts better: the error is 200 % of its error (joint1)" in (
        worse.text.replace("The given", "the given")
    )


def test_verdict_by_limits(result):
    rms = pooled(result.validation).rms
    kept = verdict(result, [ErrorLimit("rms", tuple(1.01 * rms))])
    assert kept.level == "good" and "meets your limits" in kept.headline
    broken = verdict(result, [ErrorLimit("rms", tuple(rms * [1.01, 0.99])), ErrorLimit("rre", (99.0,))])
    assert broken.level == "poor" and "joint2" in broken.limits[0].text and "joint1" not in broken.limits[0].text
    assert broken.limits[1].level == "good"
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
    judged = dataclasses.replace(verdict(result), given=None, simulated=[(e, run)])
    assert details_section(result, judged).count("not drawn where the simulation diverges") == 2
    away[50:] = e.samples.q[50:]
    assert "diverges" not in details_section(result, judged)


def test_masses_add_up_and_densities_are_those_of_ellipsoids(result):
    e = equivalent_ellipsoid(np.asarray(sphere(3.0, 0.2)))
    assert e.density == pytest.approx(3.0 / (4 / 3 * np.pi * 0.2**3), rel=1e-9)
    flat = equivalent_ellipsoid(np.array([1.0, 0, 0, 0, 1, 0, 1, 0, 0, 2]))
    assert flat.density == np.inf
    links = details_section(result, verdict(result)).partition('id="bodies"')[2]
    rows = {row[0]: row[1:] for row in Tables(links.partition('id="full"')[0]).rows}
    for i, name in enumerate(result.chain.link_names):
        e, given = (equivalent_ellipsoid(np.asarray(c.inertia[i])) for c in (result.chain, result.prior))
        whole = lambda x: ", ".join(f"{1000 * y:.0f}".replace("-", "\N{MINUS SIGN}") for y in x)
        centre, axes = whole(e.centre), whole(e.semi_axes[::-1])
        mass, density = f"{e.mass:.3g}", rounded(e.density)
        assert rows[name] == [mass, density, centre, axes, f"{given.mass:.3g}", rounded(given.density)]
    total = rows["all moving links"]
    assert total[0] == f"{float(result.chain.inertia[:, 0].sum()):.4g}"
    spoiled = dataclasses.replace(result.chain, inertia=result.chain.inertia.at[1, 9].set(50.0))
    assert (
        details_section(dataclasses.replace(result, chain=spoiled), verdict(result)).count("<td>inconsistent</td>") == 2
    )


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
        assert found["inertia"][j] == pytest.approx(np.sqrt((alone**2).sum(1).mean()) / inertia[j], rel=1e-6)
    spread = np.sqrt(((rest @ root) ** 2).sum(2).mean(0))
    size = np.sqrt((np.concatenate([e.samples.tau for e in result.validation]) ** 2).mean(0))
    np.testing.assert_allclose(found["rest"], spread / np.maximum(np.sqrt((weight**2).mean(0)), size), rtol=1e-6)

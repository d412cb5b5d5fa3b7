"""Standard deviations from fits that leave out blocks: against those fits, coloured noise, and real logs' halves and runs."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import intervals
from jaxdyn import IdentificationError, Log, friction_force, identify, inverse_dynamics, robots, with_coupling
from jaxdyn.identification import (
    BlockFactors,
    Consistency,
    Filters,
    MechanismLog,
    Terms,
    identify_mechanism,
    identify_together,
    known_parameters,
    random_excitation,
    solve,
    synthetic_log,
)
from jaxdyn.identification.base import BaseParameters
from jaxdyn.identification.columns import prior_parameters
from jaxdyn.identification.defaults import LEFT_OUT, PRIOR_DEGREES
from jaxdyn.identification.filters import low_pass
from jaxdyn.identification.least_squares import split_half
from jaxdyn.identification.result import model_intervals, parameter_rows
from jaxdyn.model import with_leaves
from regression import dense_blocks, known_arm

B = 6
NAMES = tuple("abcdef")
BASE = BaseParameters(np.arange(B), np.eye(B), NAMES, (), ())
TRUTH = np.array([3.0, -1.0, 0.5, 2.0, 0.1, -0.4])


def run_of(seed, samples=800, smooth=False, noise=0.3):
    """(N, 2, 7) rows [W, tau] of two joints, their noise white or below a tenth of the rate, as W then is."""
    rng = np.random.default_rng(seed)
    w, e = rng.normal(size=(samples, 2, B)), rng.normal(size=(samples, 2)) * [1.0, 0.3]
    if smooth:
        w, e = (low_pass(x.reshape(samples, -1), 1.0, 0.02).reshape(x.shape) * 5 for x in (w, e))
    return np.concatenate([w, (w @ TRUTH + noise * e)[:, :, None]], axis=2)


@pytest.mark.parametrize("smooth", [False, True])
def test_the_covariance_is_that_of_fits_that_leave_out_blocks(smooth):
    """For coloured noise; for white noise, it is mostly that of residuals divided by the root of I - W (W^T W)^-1 W^T."""
    rows = run_of(0, smooth=smooth)
    found = solve(dense_blocks([rows]), BASE, "ordinary")
    independent = found.independent_covariance
    ratio = lambda covariance: np.mean(np.diag(covariance) / np.diag(independent))
    flat = rows.reshape(-1, B + 1)
    inverse, e = np.linalg.inv(flat[:, :B].T @ flat[:, :B]), flat[:, B] - flat[:, :B] @ found.values
    fits, reduced = [], np.zeros((B, B))
    for part in np.array_split(np.arange(len(flat)), LEFT_OUT):
        rest = np.delete(flat, part, axis=0)
        fits.append(np.linalg.lstsq(rest[:, :B], rest[:, B], rcond=None)[0])
        own = flat[part, :B]
        size, turn = np.linalg.eigh(np.eye(len(part)) - own @ inverse @ own.T)
        change = inverse @ own.T @ (turn / np.sqrt(size)) @ turn.T @ e[part]
        reduced += np.outer(change, change)
    off = np.array(fits) - np.mean(fits, axis=0)
    left_out = (1 - 1 / LEFT_OUT) * off.T @ off
    white = 1 / max(1.0, ratio(reduced)) ** 2
    assert white < 0.1 if smooth else white > 0.5
    mixed = white * reduced + (1 - white) * left_out
    share = (LEFT_OUT - 1) / (LEFT_OUT - 1 + PRIOR_DEGREES)
    np.testing.assert_allclose(found.covariance, share * mixed + (1 - share) * ratio(mixed) * independent, rtol=1e-8)
    assert np.linalg.eigvalsh(found.covariance).min() > 0
    plain = solve(dense_blocks([rows]).total, BASE, "ordinary")
    np.testing.assert_allclose(plain.covariance, independent, rtol=1e-9)
    np.testing.assert_array_equal(plain.values, found.values)


def test_intervals_of_independent_residuals_hold_where_blocks_tell_what_others_do_not():
    """Each column is large in one block: the variances of a jackknife alone are 2.2 times those of the errors."""
    rng, errors, variances = np.random.default_rng(3), [], []
    w = rng.normal(size=(LEFT_OUT, 50, 2, B)) * np.where(np.eye(LEFT_OUT, B), 1.0, 0.25)[:, None, None]
    w = w.reshape(-1, 2, B)
    for _ in range(150):
        tau = w @ TRUTH + 0.3 * rng.normal(size=w.shape[:2])
        found = solve(dense_blocks([np.concatenate([w, tau[:, :, None]], axis=2)]), BASE, "ordinary")
        errors.append(found.values - TRUTH)
        variances.append(np.diag(found.covariance))
    ratio = np.mean(variances, axis=0) / np.mean(np.square(errors), axis=0)
    assert 0.95 < ratio.mean() < 1.4 and ratio.max() < 1.7


def test_intervals_of_independent_residuals_hold_where_one_block_tells_nearly_all():
    """Of the information on each of the first two columns, one block holds 99.9 %."""
    rng, errors = np.random.default_rng(4), []
    w = rng.normal(size=(LEFT_OUT, 50, 2, B))
    w[2, :, :, 0] *= 100
    w[5, :, :, 1] *= 100
    w = w.reshape(-1, 2, B)
    for _ in range(150):
        tau = w @ TRUTH + 0.3 * rng.normal(size=w.shape[:2])
        found = solve(dense_blocks([np.concatenate([w, tau[:, :, None]], axis=2)]), BASE, "ordinary")
        errors.append((found.values - TRUTH) / found.standard_deviations)
    within = np.mean(np.abs(errors) < 2, axis=0)
    assert within[:2].min() > 0.82 and within[2:].mean() > 0.9


@pytest.mark.parametrize("smooth", [False, True])
def test_intervals_hold_where_noise_is_coloured(smooth):
    errors, plain = [], []
    for seed in range(40):
        found = solve(dense_blocks([run_of(seed, smooth=smooth)]), BASE)
        errors.append((found.values - TRUTH) / found.standard_deviations)
        plain.append((found.values - TRUTH) / np.sqrt(np.diag(found.independent_covariance)))
    coverage = lambda z: np.mean(np.abs(z) < 1.96)
    assert 0.90 < coverage(errors) < 0.985
    assert coverage(plain) < 0.6 if smooth else 0.92 < coverage(plain) < 0.98


def test_blocks_of_runs_are_put_together_in_order():
    runs = [run_of(1, 320), run_of(2, 160)]
    blocks = dense_blocks(runs)
    assert blocks.runs.tolist() == [0] * 11 + [1] * 5 and blocks.left_out.runs.tolist() == [0] * 5 + [1] * 3
    stacked = np.concatenate(runs)
    for j, r in enumerate(blocks.total.r):
        np.testing.assert_allclose(r.T @ r, stacked[:, j].T @ stacked[:, j], rtol=1e-9)
    by_run = blocks.by_run
    assert by_run.counts.tolist() == [320, 320, 160, 160]
    np.testing.assert_allclose(by_run.r[3].T @ by_run.r[3], runs[1][:, 1].T @ runs[1][:, 1], rtol=1e-9)
    parts = [dense_blocks([x[:100] for x in runs]), dense_blocks([x[100:] for x in runs])]
    both = parts[0].joined(parts[1])
    assert np.all(np.diff(both.runs) >= 0) and both.counts.sum() == blocks.counts.sum()
    with pytest.raises(IdentificationError, match="are incompatible"):
        blocks.joined(BlockFactors(blocks.r[:, :1], blocks.counts[:, :1], blocks.runs))


def test_halves_that_do_not_agree_are_named():
    rows = run_of(5)
    agreeing = split_half(dense_blocks([rows]), BASE)
    assert agreeing is not None and agreeing.share == 1 and agreeing.disagreeing == () and agreeing.rms < 1.6
    rows[400:, :, B] += 0.5 * rows[400:, :, 1]  # b changes
    apart = split_half(dense_blocks([rows]), BASE)
    assert apart is not None and apart.disagreeing[0] == "b" and apart.rms > 3
    assert "5 of 6 base parameters" in str(apart) and "not on b" in str(apart)
    rows[400:, :, :B] = 0
    assert split_half(dense_blocks([rows]), BASE) is None


@pytest.mark.nightly
def test_halves_and_pairs_of_real_runs_agree(shared_data):
    names = ("UR10e 30 s", "UR10e ptp", "Panda", "KR300 B")
    found = list(intervals.real("weighted", names))
    assert len(found) == 5
    for what, held, plain in found:
        assert held.share >= 0.9 and held.rms <= 1.3, what
        assert plain.share < 0.85 and plain.rms > 1.5, what


@pytest.mark.nightly
def test_intervals_hold_on_simulated_logs():
    problems, truth = intervals.simulated(10, 20.0)
    estimates = [intervals.estimate("weighted", problem) for problem in problems]
    share, rms = intervals.coverage(estimates, truth)
    assert 0.92 <= share <= 0.98 and 0.8 < rms < 1.2
    smaller = dataclasses.replace(estimates[0], covariance=0.25 * estimates[0].covariance)
    assert intervals.coverage([smaller], truth)[1] > 1.9 * intervals.coverage(estimates[:1], truth)[1]


PATHS = [
    pytest.param("plain", marks=pytest.mark.ci),
    *(pytest.param(x, marks=pytest.mark.nightly) for x in ("short", "mimic", "together", "mechanism")),
]


def coulomb_errors(path, seed):
    """Relative errors of Coulomb friction of an arm that reverses often, and the same in standard deviations."""
    arm = known_arm()
    friction = dataclasses.replace(arm.friction, coulomb=jnp.array([1.0, 2.0, 1.5]), coulomb_velocity=jnp.full(3, 0.01))
    arm = dataclasses.replace(arm, friction=friction)
    if path == "mimic":  # the last joint follows the second
        arm = with_coupling(arm, np.array([[1.0, 0], [0, 1], [0, 0.7]]))
    seconds, rate, n = (2.5 if path == "short" else 12.0), 200.0, arm.nv
    rng = np.random.default_rng(seed)
    frequency, phase = rng.uniform(0.1, 0.8, (8, n)), rng.uniform(0, 6, (8, n))
    speed = 2 * np.pi * frequency[:, None]
    t = np.arange(round(seconds * rate)) / rate
    angle = speed * t[None, :, None] + phase[:, None]
    q, qd, qdd = (0.3 * x.sum(0) for x in (np.sin(angle), speed * np.cos(angle), -(speed**2) * np.sin(angle)))
    with jax.enable_x64(True):
        force = jax.vmap(lambda *x: inverse_dynamics(arm, *x) + friction_force(arm, x[1]))
        tau = np.asarray(force(*map(jnp.asarray, (q, qd, qdd)))) + 0.02 * rng.normal(size=q.shape)
    log, terms = Log(t, q + 1e-6 * rng.normal(size=q.shape), None, tau, source=f"log {seed}"), Terms(choose=())
    if path == "together":
        second = dataclasses.replace(log, tau=tau + 0.02 * rng.normal(size=q.shape), source="second")
        result = identify_together(arm, {"a": log, "b": second}, consistent=None)["a"]
    elif path == "mechanism":
        result = identify_mechanism(arm, MechanismLog(log.t, log.q, log.tau), consistent=None)
    else:
        result = identify(arm, log, terms=Terms() if path == "short" else terms, consistent=None)
    expected = result.base.matrix @ prior_parameters(arm, result.columns)
    at = [k for k, name in enumerate(result.base.names) if name.split()[0].startswith("fc")]
    # the signs of two joints that move together are almost equal, so only their sum is determined
    sums = np.zeros((n, len(expected)))
    sums[np.minimum(np.arange(len(at)), n - 1), at] = [1.0, 1.0, 0.7 if path == "mimic" else 1.0]
    off, sd = sums @ (result.estimate.values - expected), np.sqrt(np.diag(sums @ result.estimate.covariance @ sums.T))
    return off / (sums @ expected), off / sd


@pytest.mark.parametrize("path", PATHS)
def test_coulomb_friction_is_right_on_every_path(path):
    """Columns of dry friction pass the filter of the torques; without it, Coulomb friction is 2 to 5 % low."""
    errors, deviations = (
        np.concatenate(x) for x in zip(*(coulomb_errors(path, seed) for seed in range(3)), strict=True)
    )
    assert np.abs(errors.mean()) < 5e-3
    assert np.mean(np.abs(deviations) < 2) >= 0.85


# intervals of the physically consistent estimate


def noisy_log(seed, noise=1.0, missing=0.0, heavier=1.0):
    """A UR5e with rotor inertia at every second joint only, a prior that is far off, and a log with noisy torques.

    With `missing`, the torques lack this multiple of the acceleration, so the rotor inertias of the best fit are negative.
    The links are `heavier` by a factor than those of a UR5e.
    """
    rng = np.random.default_rng(seed)
    truth = robots.ur5e()
    armature = jnp.where(jnp.arange(truth.n) % 2 == 0, 0.0, 0.2)
    truth = with_leaves(truth, {"armature": armature, "inertia": heavier * truth.inertia})
    drives = ("armature", "friction.viscous", "friction.coulomb", "friction.offset")
    prior = with_leaves(
        truth,
        {
            "inertia": truth.inertia * np.exp(0.5 * rng.normal(size=(truth.n, 1))),
            **{name: jnp.zeros(truth.n) for name in drives},
        },
    )
    log = synthetic_log(truth, random_excitation(truth, 10.0, 5, seed=seed), None, 100.0, 0.0, 0.0)
    qdd = np.gradient(np.gradient(log.q, log.t, axis=0), log.t, axis=0)
    tau = log.tau + noise * rng.normal(size=log.tau.shape) - missing * qdd
    return truth, prior, dataclasses.replace(log, tau=tau)


def test_a_value_lies_in_its_interval_and_the_truth_in_nine_of_ten():
    """Of the full parameters, friction and base parameters, the intervals of the values beside which they stand."""
    held, bounds = [], 0
    for seed in range(3):
        truth, prior, log = noisy_log(seed)
        result = identify(prior, log, terms=Terms(choose=()), filters=Filters(20.0, 20.0))
        true = np.array(prior_parameters(truth, result.columns))
        base, full, _ = parameter_rows(result)
        for rows, expected in ((base, result.base.matrix @ true), (full, true)):
            for row, x in zip(rows, expected, strict=True):
                if row.lower is None:
                    continue
                assert row.lower <= row.value <= row.upper, row
                held.append(row.lower - 1e-9 <= x <= row.upper + 1e-9)
                bounds += row.lower == 0
        deviations = [row.standard_deviation for row in full if row.standard_deviation is not None]
        alone = [row.name for row in full if row.standard_deviation is not None]
        own = dict(zip(result.base.names, result.consistent.standard_deviations, strict=True))
        np.testing.assert_allclose(deviations, [own[name] for name in alone])
    assert np.mean(held) >= 0.9 and len(held) > 250
    assert bounds > 0  # some intervals end at zero
    assert {row.identifiable for row in base} == {"yes"}
    vague = dataclasses.replace(result.estimate, covariance=1e16 * result.estimate.covariance)
    base, full, _ = parameter_rows(dataclasses.replace(result, estimate=vague))
    assert "no" in {row.identifiable for row in base} and "yes" not in {row.identifiable for row in base if row.prior}


def test_an_interval_at_an_active_bound_is_one_sided():
    """Torques that ask for negative rotor inertias: zero is the value, the end of its interval, and not its whole."""
    _, prior, log = noisy_log(0, noise=0.1, missing=0.5)
    terms, filters = Terms(choose=()), Filters(20.0, 20.0)
    result = identify(prior, log, terms=terms, filters=filters)
    rows = {row.name: row for row in parameter_rows(result)[1]}
    negative = [
        name
        for name, value in zip(result.base.names, result.estimate.confidence_intervals()[:, 1], strict=True)
        if name.startswith("Ia") and name in rows and value < 0
    ]
    assert negative
    for name in negative:
        row = rows[name]
        assert 0 <= row.lower <= row.value < 1e-3 and row.upper > row.standard_deviation > 0
    # a sum of such parameters is as positive as they are
    for name, row, (low, high) in zip(result.base.names, result.base.matrix, model_intervals(result)[1], strict=True):
        if name in rows:
            assert (low, high) == (rows[name].lower, rows[name].upper)
        summed = [column for column, factor in zip(result.names, row, strict=True) if factor]
        if row.min() >= 0 and all(column.startswith(("I", "m")) and column[1] in "axyz123" for column in summed):
            diagonal = [column for column in summed if column[:3] in ("Ixx", "Iyy", "Izz") or column[:2] == "Ia"]
            assert diagonal != summed or low >= -1e-9
    free = {
        row.name: row for row in parameter_rows(identify(prior, log, terms=terms, filters=filters, consistent=None))[1]
    }
    assert all(
        free[name].upper < 0 for name in negative
    )  # without consistency, the value and its interval are negative
    # a known value has no deviation, and its interval is the value
    name = negative[0]
    known = Consistency(constraints=known_parameters(result.names, {name: 0.25}))
    again = parameter_rows(identify(prior, log, terms=terms, filters=filters, consistent=known))[1]
    row = next(row for row in again if row.name == name)
    assert row.value == pytest.approx(0.25) and row.standard_deviation < 1e-9
    assert row.lower <= row.value <= row.upper


def test_intervals_of_links_much_heavier_than_their_prior_hold_the_truth():
    """A model without inertias: the default prior of 2 kg draws links of up to 160 kg towards itself by several deviations."""
    held, outside = [], 0
    for seed in range(2):
        truth, prior, log = noisy_log(seed, noise=10.0, heavier=20.0)
        bare = with_leaves(prior, {"inertia": 0.0 * prior.inertia})
        consistent = Consistency(densities=None)
        result = identify(bare, log, terms=Terms(choose=()), filters=Filters(20.0, 20.0), consistent=consistent)
        true = np.array(prior_parameters(truth, result.columns))
        for row, x in zip(parameter_rows(result)[1], true, strict=True):
            if row.lower is not None:
                assert row.lower <= row.value <= row.upper
                held.append(row.lower - 1e-9 <= x <= row.upper + 1e-9)
        alone = result.base.matrix @ result.parameters - result.estimate.values
        outside += np.sum(np.abs(alone) > result.estimate.interval_factor() * result.estimate.standard_deviations)
    assert np.mean(held) >= 0.9
    assert outside > 0  # the pull is felt

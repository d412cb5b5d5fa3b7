"""Estimators against dense algebra written here, against the truth, and their intervals against their stated rates."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import null_space

from jaxdyn import IdentificationError, identify, textbook
from jaxdyn.identification import (
    Columns,
    Filters,
    Knowledge,
    Samples,
    Terms,
    base_parameters,
    random_excitation,
    recursive_start,
    recursive_step,
    recursive_values,
    solve,
    synthetic_log,
)
from jaxdyn.identification.accumulate import RunRows, accumulate_samples
from jaxdyn.identification.columns import prior_parameters
from regression import dense, dense_blocks, known_arm, states

ALL = Columns()
SHARP = {"filters": Filters(position_cutoff=20.0), "terms": Terms(choose=())}


def run_of(x, tau, rate=100.0):
    """Samples that no filter has seen."""
    q, qd, qdd = x
    t = np.arange(len(q)) / rate
    return Samples(t, q, qd, qdd, tau, rate, ((0, len(q)),), rate, rate)


@pytest.fixture(scope="module")
def exact():
    """The known arm, its base, two runs of states, their dense base regressors, and the true values."""
    arm = known_arm()
    base = base_parameters(arm, ALL)
    runs = [states(400, seed=12), states(300, seed=13)]
    rows = [dense(arm, *x)[:, :, base.kept] for x in runs]
    return arm, base, runs, rows, base.matrix @ prior_parameters(arm, ALL)


def disturbed(exact, noise, seed=0, runs=slice(None)):
    """Blocks of runs whose torques have noise (runs, n), and the torques."""
    arm, _, xs, rows, truth = exact
    rng = np.random.default_rng(seed)
    taus = [w @ truth + s * rng.normal(size=w.shape[:2]) for w, s in zip(rows[runs], noise, strict=True)]
    return blocks_of(arm, xs[runs], taus), taus


def blocks_of(arm, xs, taus, weights=None):
    weights = [None] * len(xs) if weights is None else weights
    listed = zip(xs, taus, weights, strict=True)
    return accumulate_samples(ALL, arm, [RunRows(run_of(x, tau), tau, weight) for x, tau, weight in listed])


def dense_of(exact, taus, w=None):
    """Blocks of dense rows of base parameters, which `reduced` base parameters name."""
    rows = exact[3] if w is None else w
    return dense_blocks([np.concatenate([x, y[:, :, None]], axis=2) for x, y in zip(rows, taus, strict=True)])


def reduced(base):
    return dataclasses.replace(base, kept=np.arange(base.size))


def test_runs_and_joints_weigh_by_their_own_noise(exact):
    noise = np.array([[0.05, 0.5, 0.1], [1.0, 0.02, 0.4]])
    blocks, taus = disturbed(exact, noise)
    base = exact[1]
    weighted, ordinary = solve(blocks, base), solve(blocks, base, "ordinary")
    np.testing.assert_allclose(weighted.run_noise, noise, rtol=0.15)
    scale = weighted.run_noise
    a = np.concatenate([(w / s[:, None]).reshape(-1, w.shape[2]) for w, s in zip(exact[3], scale, strict=True)])
    y = np.concatenate([(tau / s).reshape(-1) for tau, s in zip(taus, scale, strict=True)])
    expected = np.linalg.lstsq(a, y, rcond=None)[0]
    assert np.abs((weighted.values - expected) / weighted.standard_deviations).max() < 1e-3
    independent = weighted.independent_covariance
    np.testing.assert_allclose(independent, np.linalg.inv(a.T @ a), rtol=0.05, atol=1e-3 * independent.max())
    z = lambda e: np.sqrt(((e.values - exact[4]) ** 2 / np.diag(independent)).mean())
    assert z(weighted) < 1.5 < 3 < z(ordinary)
    assert weighted.converged and weighted.iterations == len(weighted.history) and weighted.method == "weighted"
    few = solve(blocks, base, independence=1e-9 + base.size / 2100 * 1.1)
    np.testing.assert_allclose(few.run_noise[0], few.run_noise[1])  # runs of few independent samples share their noise
    one = solve(blocks, base, iterations=1)  # from ordinary least squares
    size = np.maximum(np.abs(one.values), np.abs(ordinary.values))
    steps = np.abs(one.values - ordinary.values) / np.maximum(size, 1e-3 * size.max())
    assert one.history == (pytest.approx(steps.max()),) and not one.converged
    rows = np.concatenate([w.reshape(-1, w.shape[2]) for w in exact[3]])
    plain = np.linalg.lstsq(rows, np.concatenate([t.reshape(-1) for t in taus]), rcond=None)[0]
    np.testing.assert_allclose(ordinary.values, plain, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("estimator", ["weighted", "ordinary", "huber"])
def test_the_values_solve_the_rows_that_the_consistent_estimate_fits(exact, estimator):
    blocks, _ = disturbed(exact, [[0.05, 0.5, 0.1], [1.0, 0.02, 0.4]])
    found, base = solve(blocks, exact[1], estimator), exact[1]
    a, y = found.rows[:, base.kept], found.rows[:, -1]
    again = np.linalg.lstsq(a, y, rcond=None)[0]
    assert np.abs((again - found.values) / found.standard_deviations).max() < 0.02  # the last step of the weights
    np.testing.assert_allclose(np.linalg.inv(a.T @ a), found.independent_covariance, rtol=0.1, atol=1e-6)


@pytest.mark.nightly
def test_intervals_hold_the_truth_at_their_stated_rate(exact):
    """200 noise draws of a run of 100 samples; three joints of one noise, and of different ones."""
    _, base, _, rows, truth = exact
    w, noise = rows[0][:100], np.array([0.1, 0.3, 0.2])
    rng = np.random.default_rng(3)
    inside = {"ordinary": [], "weighted": []}
    for _ in range(200):
        even = w @ truth + 0.2 * rng.normal(size=w.shape[:2])
        uneven = w @ truth + noise * rng.normal(size=w.shape[:2])
        for name, tau in (("ordinary", even), ("weighted", uneven)):
            found = solve(dense_of(exact, [tau], [w]), reduced(base), name)
            lower, upper = found.confidence_intervals(0.9).T
            inside[name].append((lower <= truth) & (truth <= upper))
    # of so short a run they are wider than need be: the blocks' degrees of freedom, and the others' in each block
    assert 0.88 < np.mean(inside["ordinary"]) < 0.94 and 0.88 < np.mean(inside["weighted"]) < 0.94


def test_outliers_pull_least_squares_but_not_hubers_estimate(exact):
    arm, base, xs, rows, truth = exact
    noise = np.array([[0.05, 0.1, 0.02]] * 2)
    clean, taus = disturbed(exact, noise)
    rng = np.random.default_rng(5)
    bad = [tau + (rng.uniform(size=tau.shape) < 0.05) * 30 * noise[0] for tau in taus]
    spoilt = blocks_of(arm, xs, bad)
    huber, weighted = solve(spoilt, base, "huber", tolerance=1e-6, iterations=60), solve(spoilt, base)
    error = lambda e: np.sqrt((((e.values - truth) / solve(clean, base).standard_deviations) ** 2).mean())
    assert error(huber) < 1.8 < 3 < error(weighted)
    z = (huber.values - truth) / huber.standard_deviations
    assert 0.6 < np.sqrt((z**2).mean()) < 1.5
    assert "have residuals of more than 4 standard deviations" in huber.notes[0]
    # stationary: sum psi(u) w / s = 0 for the scales found, whatever route led there
    scaled = [w / s[:, None] for w, s in zip(rows, huber.run_noise, strict=True)]
    errors = [(tau - w @ huber.values) / s for w, tau, s in zip(rows, bad, huber.run_noise, strict=True)]
    total = sum(np.einsum("tj,tjb->b", np.clip(u, -1.345, 1.345), a) for u, a in zip(errors, scaled, strict=True))
    size = np.sqrt(sum((a**2).sum((0, 1)) for a in scaled))
    assert np.abs(total / size).max() < 1e-3
    quiet = solve(clean, base, "huber")
    np.testing.assert_allclose(quiet.standard_deviations, solve(clean, base).standard_deviations, rtol=0.2)


def test_samples_with_weight_zero_are_no_outliers(exact):
    arm, base, xs, _, _ = exact
    _, taus = disturbed(exact, [np.full(3, 0.1)] * 2)
    weights = [np.ones_like(tau) for tau in taus]
    for k in range(2):
        taus[k][5:40, 1] += 100.0
        weights[k][5:40, 1] = 0.0
    assert not any("joint2" in note for note in solve(blocks_of(arm, xs, taus, weights), base, "huber").notes)
    (note,) = solve(blocks_of(arm, xs, taus), base, "huber").notes
    assert re.match(r"Huber's weights: 7\d samples of joint2 have", note)


def test_instruments_take_away_the_bias_of_noisy_states(exact):
    """Regressors of motion with noise are smaller on average; those of another record of the motion are not used as such."""
    arm, base, xs, _, truth = exact
    rng = np.random.default_rng(0)
    noisy = lambda x: tuple(a + s * rng.normal(size=a.shape) for a, s in zip(x, (0.02, 0.5, 1.0), strict=True))
    found = {"weighted": [], "instrumental": []}
    inside = []
    for _ in range(12):
        runs = []
        for x, w in zip(xs, exact[3], strict=True):
            tau = w @ truth + 0.1 * rng.normal(size=w.shape[:2])
            runs.append(RunRows(noisy(x), tau, None, None, noisy(x)))
        blocks = accumulate_samples(ALL, arm, runs)
        for name, values in found.items():
            values.append(solve(blocks, base, name))
        lower, upper = found["instrumental"][-1].confidence_intervals().T
        inside.append((lower < truth) & (truth < upper))
    bias = {k: np.mean([e.values for e in v], axis=0) - truth for k, v in found.items()}
    assert np.abs(bias["instrumental"]).max() < 0.25 * np.abs(bias["weighted"]).max()
    assert np.mean(inside) > 0.9
    last = found["instrumental"][-1]
    again = np.linalg.lstsq(last.rows[:, base.kept], last.rows[:, -1], rcond=None)[0]
    np.testing.assert_allclose(again, last.values, rtol=1e-8, atol=1e-10)
    kept = last.rows[:, base.kept]
    assert last.scaled_condition == pytest.approx(np.linalg.cond(kept / np.linalg.norm(kept, axis=0)), rel=1e-6)
    dense_rows = [
        [dense(arm, *part)[:, :, base.kept] for part in (run.samples, run.instruments)] for run in blocks.rows.runs
    ]
    scale = solve(blocks, base).run_noise
    z, w, y = (
        np.concatenate([(part / s[:, None]).reshape(-1, part.shape[2]) for part, s in zip(parts, scale, strict=True)])
        for parts in (
            [pair[1] for pair in dense_rows],
            [pair[0] for pair in dense_rows],
            [run.tau[:, :, None] for run in blocks.rows.runs],
        )
    )
    np.testing.assert_allclose(last.values, np.linalg.solve(z.T @ w, z.T @ y)[:, 0], rtol=1e-6, atol=1e-8)


def test_instruments_need_not_determine_what_prior_knowledge_does(exact):
    """A link and parameters of it that no torque shows, known to five per cent of the model."""
    arm, _, xs, rows, truth = exact
    own, knowledge = prior_parameters(arm, ALL), Knowledge(links=arm.link_names[1:], deviation=0.05)
    base = base_parameters(arm, ALL, knowledge=knowledge)
    taus = [w @ truth + 1e-3 * np.random.default_rng(3).normal(size=w.shape[:2]) for w in rows]
    blocks = accumulate_samples(
        ALL, arm, [RunRows(tuple(x), y, None, None, tuple(x)) for x, y in zip(xs, taus, strict=True)]
    )
    found = solve(blocks, base, "instrumental", known=knowledge.of(arm, ALL))
    assert base.size > exact[1].size and np.all(np.isfinite(found.covariance))
    np.testing.assert_allclose(found.values, base.matrix @ own, atol=0.02 * np.abs(own).max())


def test_rounding_errors_do_not_decide_the_deviations_of_what_is_known_beforehand(exact):
    """The jackknife's mean ratio of variances leaves out parameters of whose variance the data explain nothing."""
    arm, _, xs, rows, truth = exact
    knowledge, rng = Knowledge(links=arm.link_names[1:], deviation=0.05), np.random.default_rng(4)
    base, tau = base_parameters(arm, ALL, knowledge=knowledge), rows[0] @ truth + 0.1 * rng.normal(size=xs[0][0].shape)
    taus = tau, tau * (1 + 1e-13 * rng.normal(size=tau.shape))
    runs = [[RunRows(tuple(xs[0]), x)] for x in taus]
    first, second = (
        solve(accumulate_samples(ALL, arm, run), base, "ordinary", known=knowledge.of(arm, ALL)) for run in runs
    )
    np.testing.assert_allclose(first.standard_deviations, second.standard_deviations, rtol=1e-7)


@pytest.fixture(scope="module")
def logged():
    """An arm, and a log of it with its commands, that is free of noise."""
    arm = known_arm()
    log = synthetic_log(arm, random_excitation(arm, 10.0, 5, seed=1), 10.0, 200.0, 0.0, 0.0)
    return arm, dataclasses.replace(log, command=log.q)


def errors_of(arm, result):
    """RMS error of the identified base parameters, and the share of them inside their intervals."""
    truth = result.base.matrix @ prior_parameters(arm, result.columns)
    held, sd = result.base.matrix @ result.parameters, np.sqrt(np.diag(result.covariance))
    inside = np.abs(held - truth) <= result.estimate.interval_factor() * np.maximum(sd, 1e-12)
    return np.sqrt(np.mean((held - truth) ** 2)), inside.mean()


@pytest.mark.ci
def test_an_identification_with_hubers_weights_withstands_collisions(logged):
    arm, log = logged
    rng = np.random.default_rng(0)
    tau = log.tau + 0.1 * rng.normal(size=log.tau.shape)
    for at in rng.integers(100, len(tau) - 100, 25):
        tau[at : at + 12] += 40.0 * rng.normal(size=tau.shape[1])
    hit = dataclasses.replace(log, tau=tau)
    weighted, huber = (identify(arm, hit, **SHARP, estimator=name) for name in ("weighted", "huber"))
    assert errors_of(arm, huber)[0] < 0.5 * errors_of(arm, weighted)[0]
    assert errors_of(arm, huber)[1] > 0.85
    assert huber.estimate.method == "huber" and not huber.inconsistent_links and huber.consistent is not None
    assert any(note.startswith("Huber's weights: ") for note in huber.notes)
    quiet = np.abs(huber.validation[0].samples.tau - huber.validation[0].prediction)
    assert np.median(quiet) < np.median(np.abs(weighted.validation[0].samples.tau - weighted.validation[0].prediction))


def test_an_identification_with_commands_as_instruments_has_less_bias(logged):
    arm, log = logged
    rng = np.random.default_rng(0)
    noisy = dataclasses.replace(log, q=log.q + 3e-3 * rng.normal(size=log.q.shape))
    weighted, instrumental = (identify(arm, noisy, **SHARP, estimator=name) for name in ("weighted", "instrumental"))
    assert errors_of(arm, instrumental)[0] < 0.5 * errors_of(arm, weighted)[0]
    assert errors_of(arm, instrumental)[1] > 0.85
    assert instrumental.estimate.method == "instrumental" and instrumental.consistent is not None
    with pytest.raises(IdentificationError, match="needs commanded positions, which the log does not contain"):
        identify(arm, dataclasses.replace(noisy, command=None), **SHARP, estimator="instrumental")


def test_an_identification_can_use_ordinary_least_squares(logged):
    arm, log = logged
    rough = dataclasses.replace(
        log, tau=log.tau + [0.05, 0.5, 5.0] * np.random.default_rng(0).normal(size=log.tau.shape)
    )
    ordinary, weighted = (identify(arm, rough, **SHARP, estimator=name) for name in ("ordinary", "weighted"))
    assert np.ptp(ordinary.estimate.run_noise) < 1e-12 and ordinary.estimate.method == "ordinary"
    assert errors_of(arm, weighted)[0] < errors_of(arm, ordinary)[0]
    assert errors_of(arm, ordinary)[1] > 0.85


def test_one_recursive_step_is_compiled_batched_single_and_starts_from_what_is_known(exact):
    w, truth = exact[3][0], exact[4]
    step = jax.jit(recursive_step)
    known = recursive_start(jnp.asarray(truth + 0.01), 0.01)
    values, deviations = recursive_values(known)
    np.testing.assert_allclose(values, truth + 0.01, rtol=1e-12)
    np.testing.assert_allclose(deviations, 0.01, rtol=1e-12)
    noise = jnp.full(3, 0.1)
    state = known
    for row in w[:5]:
        state = step(state, jnp.asarray(row), jnp.asarray(row @ truth), noise, 1.0)
    a = np.concatenate([np.eye(len(truth)) / 0.01, w[:5].reshape(-1, len(truth)) / 0.1])
    y = np.concatenate([(truth + 0.01) / 0.01, (w[:5] @ truth).reshape(-1) / 0.1])
    np.testing.assert_allclose(recursive_values(state)[0], np.linalg.lstsq(a, y, rcond=None)[0], rtol=1e-9)
    two = jax.vmap(recursive_step, in_axes=(None, 0, 0, None))(
        known, jnp.asarray(w[:2]), jnp.asarray(w[:2] @ truth), noise
    )
    one = recursive_step(known, jnp.asarray(w[1]), jnp.asarray(w[1] @ truth), noise)
    np.testing.assert_allclose(
        recursive_values(jax.tree.map(lambda x: x[1], two))[0], recursive_values(one)[0], rtol=1e-9
    )
    single = recursive_start(jnp.zeros(len(truth), jnp.float32), 10.0)
    for row in w[:60].astype(np.float32):
        tau = (row @ truth.astype(np.float32)).astype(np.float32)
        single = step(single, jnp.asarray(row), jnp.asarray(tau), jnp.full(3, 0.1, jnp.float32), 1.0)
    assert single.r.dtype == jnp.float32
    np.testing.assert_allclose(recursive_values(single)[0], truth, atol=2e-3 * np.abs(truth).max())
    deaf = step(known, jnp.asarray(w[0]), jnp.asarray(w[0] @ truth), jnp.full(3, jnp.inf), 1.0)
    np.testing.assert_allclose(recursive_values(deaf)[0], truth + 0.01, rtol=1e-9)


def test_recursive_steps_forget_as_told(exact):
    noise, forgetting = np.array([0.05, 0.5, 0.1]), 0.99
    tau, w = disturbed(exact, noise[None], runs=slice(0, 1))[1][0], exact[3][0]
    scan = jax.jit(lambda s, x: jax.lax.scan(lambda s, x: (recursive_step(s, *x, forgetting), None), s, x)[0])
    scales = np.broadcast_to(noise, tau.shape)
    state = scan(recursive_start(jnp.zeros(w.shape[2])), tuple(map(jnp.asarray, (w, tau, scales))))
    age = np.sqrt(forgetting ** np.arange(len(w))[::-1])[:, None] / noise
    a = (w * age[:, :, None]).reshape(-1, w.shape[2])
    values, deviations = recursive_values(state)
    np.testing.assert_allclose(values, np.linalg.lstsq(a, (tau * age).reshape(-1), rcond=None)[0], rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(deviations, np.sqrt(np.diag(np.linalg.inv(a.T @ a))), rtol=1e-6)


def test_the_null_space_changes_no_torque_and_reads_well(exact):
    arm, base, _, _, _ = exact
    assert base.null_space.shape == (base.matrix.shape[1] - base.size, base.matrix.shape[1])
    assert np.abs(base.matrix @ base.null_space.T).max() < 1e-12
    w = dense(arm, *states(20, seed=2))
    assert np.abs(w @ base.null_space.T).max() < 1e-7 * np.abs(w).max()
    angle = np.linalg.svd(null_space(base.matrix).T @ np.linalg.qr(base.null_space.T)[0])[1]
    np.testing.assert_allclose(angle, 1, rtol=1e-10)
    elbow = base_parameters(textbook.planar_elbow(l1=0.7, lc1=0.3, lc2=0.25), ALL)
    assert "m2 - 0.49 Izz1 - 0.7 mx1" in elbow.null_names or "m2 - 0.7 mx1 - 0.49 Izz1" in elbow.null_names
    assert {"Ia1 - Izz1", "m1", "Ixx2"} < set(elbow.null_names)


def test_predicted_torques_scatter_as_the_covariance_says(exact):
    _, base, _, rows, truth = exact
    found = solve(disturbed(exact, [np.full(3, 0.3)] * 2)[0], base)
    band = np.sqrt(np.einsum("tjk,kl,tjl->tj", rows[1], found.covariance, rows[1]))
    errors = []
    rng = np.random.default_rng(7)
    for _ in range(40):
        tau = [w @ truth + 0.3 * rng.normal(size=w.shape[:2]) for w in rows]
        other = solve(dense_of(exact, tau), reduced(base), "ordinary")
        errors.append(np.abs(rows[1][::20] @ (other.values - truth)) < 2 * band[::20])
    assert 0.92 < np.mean(errors) < 0.98


def test_deviations_of_joints_over_runs_of_different_lengths(exact):
    blocks, taus = disturbed(exact, np.array([[0.05, 0.5, 0.1], [1.0, 0.02, 0.4]]))
    found = solve(blocks, exact[1])
    rms = lambda x: np.sqrt((np.array([[400.0], [300.0]]) * x**2).sum(0) / 700)
    np.testing.assert_allclose(found.noise, rms(found.run_noise), rtol=1e-12)
    residuals = [y - w @ found.values for y, w in zip(taus, exact[3], strict=True)]
    each = np.stack([np.sqrt((e**2).mean(0)) for e in residuals])
    np.testing.assert_allclose(found.joint_residuals, rms(each), rtol=1e-6)
    np.testing.assert_allclose(found.run_noise, each / np.sqrt(1 - exact[1].size / 2100), rtol=1e-6)


def test_estimators_that_need_rows_say_so(exact, annotations_unchecked):
    blocks, base = disturbed(exact, [np.full(3, 0.1)] * 2)[0], exact[1]
    with pytest.raises(
        IdentificationError, match="no estimator 'robust'; choose from weighted, ordinary, huber, instrumental"
    ):
        solve(blocks, base, "robust")
    with pytest.raises(IdentificationError, match="'huber' needs the rows of runs"):
        solve(blocks.total, base, "huber")
    with pytest.raises(IdentificationError, match=r"another record of the motion.*Log\.command"):
        solve(blocks, base, "instrumental")

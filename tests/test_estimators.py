"""Estimators against dense algebra written here, against the truth, and their intervals against their stated rates."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import null_space

from jaxdyn import IdentificationError, textbook
from jaxdyn.identification import (
    Columns,
    Samples,
    base_parameters,
    compare_estimators,
    essential_parameters,
    estimate_cloe,
    estimate_irls,
    estimate_ols,
    estimate_recursive,
    estimate_tls,
    estimate_wls,
    estimation_problem,
    figures_of_merit,
    prior_parameters,
    recursive_path,
    recursive_start,
    recursive_step,
    recursive_values,
    row_errors,
    torque_band,
    weighted_least_squares,
)
from jaxdyn.identification.estimators import _outliers
from jaxdyn.identification.filters import differentiate, low_pass
from regression import dense, known_arm, states

ALL = Columns()


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
    """A problem whose torques have noise (runs, n), and the torques."""
    arm, base, xs, rows, truth = exact
    rng = np.random.default_rng(seed)
    taus = [w @ truth + s * rng.normal(size=w.shape[:2]) for w, s in zip(rows[runs], noise, strict=True)]
    samples = [run_of(x, tau) for x, tau in zip(xs[runs], taus, strict=True)]
    return dataclasses.replace(estimation_problem(arm, samples, ALL, base=base), independence=1.0), taus


@pytest.mark.ci
def test_runs_and_joints_weigh_by_their_own_noise(exact):
    noise = np.array([[0.05, 0.5, 0.1], [1.0, 0.02, 0.4]])
    problem, taus = disturbed(exact, noise)
    wls, ols = estimate_wls(problem), estimate_ols(problem)
    assert wls.run_noise is not None
    np.testing.assert_allclose(wls.run_noise, noise, rtol=0.15)
    a = np.concatenate([(w / s[:, None]).reshape(-1, w.shape[2]) for w, s in zip(exact[3], wls.run_noise, strict=True)])
    y = np.concatenate([(tau / s).reshape(-1) for tau, s in zip(taus, wls.run_noise, strict=True)])
    expected = np.linalg.lstsq(a, y, rcond=None)[0]
    assert np.abs((wls.values - expected) / wls.standard_deviations).max() < 1e-3
    independent = wls.independent_covariance
    np.testing.assert_allclose(independent, np.linalg.inv(a.T @ a), rtol=0.05, atol=1e-3 * independent.max())
    z = lambda e: np.sqrt(((e.values - exact[4]) ** 2 / np.diag(independent)).mean())
    assert z(wls) < 1.5 < 3 < z(ols)
    assert wls.converged and wls.iterations == len(wls.history) and wls.method == "WLS"
    same = weighted_least_squares(problem.blocks, problem.base)  # as `identify` calls it
    np.testing.assert_array_equal(same.values, wls.values)
    np.testing.assert_array_equal(same.covariance, wls.covariance)
    few = weighted_least_squares(
        problem.blocks, problem.base, 1e-9 + problem.base.size / problem.factors.counts.sum() * 1.1
    )
    np.testing.assert_allclose(
        few.run_noise[0], few.run_noise[1]
    )  # runs of few independent samples have no noise of their own
    one = estimate_wls(problem, iterations=1)  # from ordinary least squares
    size = np.maximum(np.abs(one.values), np.abs(ols.values))
    steps = np.abs(one.values - ols.values) / np.maximum(size, 1e-3 * size.max())
    assert one.history == (pytest.approx(steps.max()),) and not one.converged
    rows = np.concatenate([w.reshape(-1, w.shape[2]) for w in exact[3]])
    plain = np.linalg.lstsq(rows, np.concatenate([t.reshape(-1) for t in taus]), rcond=None)[0]
    np.testing.assert_allclose(ols.values, plain, rtol=1e-8, atol=1e-10)


def test_intervals_hold_the_truth_at_their_stated_rate(exact):
    """200 noise draws of a run of 100 samples; three joints of one noise, and of different ones."""
    _, _, xs, rows, truth = exact
    w, noise = rows[0][:100], np.array([0.1, 0.3, 0.2])
    problem = disturbed(exact, [noise], runs=slice(0, 1))[0]
    rng = np.random.default_rng(3)
    inside = {"OLS": [], "WLS": []}
    for _ in range(200):
        even = w @ truth + 0.2 * rng.normal(size=w.shape[:2])
        uneven = w @ truth + noise * rng.normal(size=w.shape[:2])
        for name, tau in (("OLS", even), ("WLS", uneven)):
            part = dataclasses.replace(
                problem,
                samples=(run_of([x[:100] for x in xs[0]], tau),),
                weights=(np.ones_like(tau),),
                filtered=(np.concatenate([w, tau[:, :, None]], axis=2),),
            )
            found = estimate_ols(part) if name == "OLS" else estimate_wls(part)
            lower, upper = found.confidence_intervals(0.9).T
            inside[name].append((lower <= truth) & (truth <= upper))
    # of so short a run they are wider than need be: the blocks' degrees of freedom, and the others' in each block
    assert 0.88 < np.mean(inside["OLS"]) < 0.94 and 0.88 < np.mean(inside["WLS"]) < 0.94


def test_outliers_pull_least_squares_but_not_hubers_estimate(exact):
    noise = np.array([[0.05, 0.1, 0.02]] * 2)
    problem, taus = disturbed(exact, noise)
    rng = np.random.default_rng(5)
    bad = [tau + (rng.uniform(size=tau.shape) < 0.05) * 30 * noise[0] for tau in taus]
    samples = [dataclasses.replace(s, tau=tau) for s, tau in zip(problem.samples, bad, strict=True)]
    spoilt = dataclasses.replace(estimation_problem(problem.chain, samples, ALL, base=problem.base), independence=1.0)
    dense_rows = [np.concatenate([w, y[:, :, None]], axis=2) for w, y in zip(exact[3], bad, strict=True)]
    streamed = estimate_irls(spoilt, iterations=3)
    spoilt = dataclasses.replace(spoilt, filtered=tuple(dense_rows))
    np.testing.assert_allclose(streamed.values, estimate_irls(spoilt, iterations=3).values, rtol=1e-8, atol=1e-10)
    huber, wls = estimate_irls(spoilt, tolerance=1e-6, iterations=60), estimate_wls(spoilt)
    assert huber.run_noise is not None
    error = lambda e: np.sqrt((((e.values - exact[4]) / estimate_wls(problem).standard_deviations) ** 2).mean())
    assert error(huber) < 1.8 < 3 < error(wls)
    z = (huber.values - exact[4]) / huber.standard_deviations
    assert 0.6 < np.sqrt((z**2).mean()) < 1.5
    assert "have residuals of more than 4 standard deviations" in huber.notes[0]
    # stationary: sum psi(u) w / s = 0 for the scales found, whatever route led there
    total = np.zeros(problem.base.size)
    for w, tau, s in zip(exact[3], bad, huber.run_noise, strict=True):
        u = (tau - w @ huber.values) / s
        total += np.einsum("tj,tjb->b", np.clip(u, -1.345, 1.345) / s, w)
    # the covariance of an M-estimate
    u = np.concatenate(
        [((y - w @ huber.values) / s).reshape(-1) for w, y, s in zip(exact[3], bad, huber.run_noise, strict=True)]
    )
    a = np.concatenate(
        [(w / s[:, None]).reshape(-1, w.shape[2]) for w, s in zip(exact[3], huber.run_noise, strict=True)]
    )
    spread = (np.clip(u, -1.345, 1.345) ** 2).sum() / (len(u) - a.shape[1]) / (np.abs(u) < 1.345).mean() ** 2
    np.testing.assert_allclose(huber.independent_covariance, spread * np.linalg.inv(a.T @ a), rtol=1e-6, atol=1e-12)
    size = np.sqrt(sum((w**2 / s[:, None] ** 2).sum((0, 1)) for w, s in zip(exact[3], huber.run_noise, strict=True)))
    assert np.abs(total / size).max() < 1e-4
    clean_rows = [np.concatenate([w, y[:, :, None]], axis=2) for w, y in zip(exact[3], taus, strict=True)]
    clean = estimate_irls(dataclasses.replace(problem, filtered=tuple(clean_rows)))
    np.testing.assert_allclose(clean.standard_deviations, estimate_wls(problem).standard_deviations, rtol=0.15)


def test_total_least_squares_has_no_bias_where_the_regressor_is_noisy(exact):
    _, base, _, rows, truth = exact
    w, b = rows[0][:200], base.size
    size = 0.3 * np.sqrt((w**2).mean((0, 1)))
    size[::3] = 0  # some columns are exact
    rng = np.random.default_rng(0)
    problem = disturbed(exact, [np.full(3, 0.1)], runs=slice(0, 1))[0]
    errors = np.zeros((3, b + 1, b + 1))
    errors[:, np.arange(b), np.arange(b)] = size**2
    errors[:, b, b] = 0.1**2
    problem = dataclasses.replace(problem, weights=(np.ones(w.shape[:2]),))
    noisy = w
    found = {"OLS": [], "TLS": []}
    for _ in range(40):
        noisy = np.concatenate(
            [w + size * rng.normal(size=w.shape), (w @ truth + 0.1 * rng.normal(size=w.shape[:2]))[..., None]], 2
        )
        part = dataclasses.replace(problem, filtered=(noisy,))
        found["OLS"].append(estimate_ols(part).values)
        found["TLS"].append(estimate_tls(part, errors).values)
    bias = {k: np.abs(np.mean(v, 0) - truth) / np.std(v, 0) * np.sqrt(40) for k, v in found.items()}
    assert np.sqrt((bias["OLS"] ** 2).mean()) > 8 and np.sqrt((bias["TLS"] ** 2).mean()) < 3
    # with equal errors in all columns and equal weights it is the plain method: the last right singular vector
    plain = dataclasses.replace(problem, filtered=(noisy,))
    noise = estimate_wls(plain).run_noise
    assert noise is not None
    scale = noise[0]
    whitened = np.concatenate([noisy[:, j] / scale[j] for j in range(3)])
    _, _, vt = np.linalg.svd(whitened, full_matrices=False)
    equal = np.broadcast_to(np.eye(b + 1), (3, b + 1, b + 1)) * (scale**2)[:, None, None]
    np.testing.assert_allclose(estimate_tls(plain, equal).values, -vt[-1, :-1] / vt[-1, -1], rtol=1e-6)
    with pytest.raises(IdentificationError, match=r"errors have shape \(3, 2, 2\)"):
        estimate_tls(plain, np.ones((3, 2, 2)))
    # two columns that differ by less than the noise that equal relative errors give them
    alike = noisy.copy()
    alike[..., 1] = 2 * alike[..., 0] + 1e-3 * alike[..., 1]
    close = dataclasses.replace(problem, filtered=(alike,))
    with pytest.raises(IdentificationError, match=r"without `errors`, .* equally noisy.*pass errors=row_errors"):
        estimate_tls(close)


def test_recursive_is_batch_and_forgets_as_told(exact):
    noise = np.array([[0.05, 0.5, 0.1]])
    problem, taus = disturbed(exact, noise, runs=slice(0, 1))
    batch, recursive = estimate_wls(problem, tolerance=1e-12, iterations=50), estimate_recursive(problem)
    assert np.abs((recursive.values - batch.values) / batch.standard_deviations).max() < 1e-6
    np.testing.assert_allclose(recursive.standard_deviations, batch.standard_deviations, rtol=1e-2)
    w, tau = exact[3][0], taus[0]
    forgetting = 0.99
    _, values, deviations, _ = recursive_path(problem, 100, forgetting, noise[0])
    for k, upto in enumerate((100, 200, 300, 400)):
        age = np.sqrt(forgetting ** np.arange(upto)[::-1])[:, None] / noise
        a = (w[:upto] * age[:, :, None]).reshape(-1, w.shape[2])
        expected = np.linalg.lstsq(a, (tau[:upto] * age).reshape(-1), rcond=None)[0]
        np.testing.assert_allclose(values[k], expected, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(deviations[k], np.sqrt(np.diag(np.linalg.inv(a.T @ a))), rtol=1e-6)
    forgotten = estimate_recursive(problem, forgetting)
    np.testing.assert_allclose(np.sqrt(np.diag(forgotten.independent_covariance)), deviations[-1], rtol=0.2)
    with pytest.raises(IdentificationError, match=r"forgetting is 1\.5"):
        recursive_path(problem, 100, 1.5)


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


def test_essential_parameters_are_those_that_torques_tell(exact):
    arm, base, xs, rows, truth = exact
    none = [k for k, name in enumerate(base.names) if name.startswith(("off", "Ixy", "Iyz"))]
    true = truth.copy()
    true[none] = 0
    rng = np.random.default_rng(1)
    samples = [run_of(x, w @ true + 0.2 * rng.normal(size=w.shape[:2])) for x, w in zip(xs, rows, strict=True)]
    problem = dataclasses.replace(estimation_problem(arm, samples, ALL, base=base), independence=1.0)
    found = essential_parameters(problem)
    left_out = [e.name for e in found.eliminated]
    assert len(left_out) >= len(none) - 1
    for name in left_out:  # what is left out is nothing, or drowned in its own noise
        k = base.names.index(name)
        assert abs(true[k]) < 3 * estimate_wls(problem).standard_deviations[k]
    assert found.base.size == base.size - len(left_out) == len(found.estimate.values)
    assert all(e.residual < 1 and e.probability > 0.05 for e in found.eliminated) and found.stopped
    a = np.concatenate([w.reshape(-1, base.size) for w in rows])[:, [n not in left_out for n in base.names]]
    y = np.concatenate([s.tau.reshape(-1) for s in samples])
    expected = np.linalg.lstsq(a, y, rcond=None)[0]
    assert np.abs((found.estimate.values - expected) / found.estimate.standard_deviations).max() < 0.2


def test_the_torque_band_is_the_spread_of_predictions(exact):
    arm, base, xs, rows, truth = exact
    problem = disturbed(exact, [np.full(3, 0.3)] * 2)[0]
    found = estimate_wls(problem)
    band = torque_band(arm, ALL, base, found.covariance, *xs[1])
    expected = np.sqrt(np.einsum("tjk,kl,tjl->tj", rows[1], found.covariance, rows[1]))
    np.testing.assert_allclose(band, expected, rtol=1e-7)
    errors = []
    rng = np.random.default_rng(7)
    for _ in range(40):
        tau = [w @ truth + 0.3 * rng.normal(size=w.shape[:2]) for w in rows]
        filtered = tuple(np.concatenate([w, y[:, :, None]], axis=2) for w, y in zip(rows, tau, strict=True))
        other = estimate_ols(dataclasses.replace(problem, filtered=filtered))
        errors.append(np.abs(rows[1][::20] @ (other.values - truth)) < 2 * band[::20])
    assert 0.92 < np.mean(errors) < 0.98


def test_figures_of_merit_and_the_table(exact):
    problem, taus = disturbed(exact, np.full((2, 3), 0.2))
    truth = exact[4]
    table = compare_estimators(problem, (estimate_ols, estimate_wls, estimate_cloe), truth)
    assert [e.method for e in table.estimates] == ["OLS", "WLS"] and table.failures[0][0] == "CLOE"
    text = str(table).splitlines()
    assert len(text) == 4 and text[1].startswith("OLS") and "needs closed loops" in text[3]
    ols, merit = table.estimates[0], table.merits[0]
    residuals = [np.linalg.norm(t - w @ ols.values) / np.linalg.norm(t) for t, w in zip(taus, exact[3], strict=True)]
    assert merit.torque == pytest.approx(100 * np.mean(residuals))
    expected = 200 * np.mean(np.abs(ols.values - truth) / (np.abs(ols.values) + np.abs(truth)))
    assert merit.parameters == pytest.approx(expected) and np.isnan(merit.position)
    assert np.isnan(figures_of_merit(problem, ols).parameters) and merit.iterations == 1 and merit.simulations == 0


def test_refusals(exact):
    arm, base, xs, _, _ = exact
    s = run_of(xs[0], np.zeros_like(xs[0][0]))
    with pytest.raises(IdentificationError, match="no samples"):
        estimation_problem(arm, [], ALL, base=base)
    with pytest.raises(IdentificationError, match="run 1 has 3 joints, but the model has 2"):
        estimation_problem(textbook.planar_elbow(), s, ALL)
    with pytest.raises(IdentificationError, match="there are 1 weights for 2 runs"):
        estimation_problem(arm, [s, s], ALL, base=base, weights=[np.ones((400, 3))])
    with pytest.raises(IdentificationError, match="parallel_cutoff is 60 Hz"):
        estimation_problem(arm, s, ALL, base=base, parallel_cutoff=60.0)
    bare = dataclasses.replace(arm, inertia=arm.inertia.at[1].set(0.0))
    with pytest.raises(IdentificationError, match="link 'link2' has no inertia"):
        _ = estimation_problem(bare, s, ALL, base=base).initial


def test_deviations_of_joints_over_runs_of_different_lengths(exact):
    problem, _ = disturbed(exact, np.array([[0.05, 0.5, 0.1], [1.0, 0.02, 0.4]]))
    wls = estimate_wls(problem)
    rms = lambda x: np.sqrt((np.array([[400.0], [300.0]]) * x**2).sum(0) / 700)
    np.testing.assert_allclose(wls.noise, rms(wls.run_noise), rtol=1e-12)
    residuals = [y - p for y, p in zip(problem.torques, problem.predictions(wls.values), strict=True)]
    each = np.stack([np.sqrt((e**2).mean(0)) for e in residuals])
    np.testing.assert_allclose(wls.joint_residuals, rms(each), rtol=1e-6)
    spent = 1 - exact[1].size / 2100
    np.testing.assert_allclose(wls.run_noise, each / np.sqrt(spent), rtol=1e-6)
    tls = estimate_tls(problem)
    residuals = [y - p for y, p in zip(problem.torques, problem.predictions(tls.values), strict=True)]
    expected = np.sqrt((np.concatenate(residuals) ** 2).mean(0))
    np.testing.assert_allclose(tls.joint_residuals, expected, rtol=1e-6)
    # of errors of torques alone it is weighted least squares, deviations and all
    only = np.zeros((3, exact[1].size + 1, exact[1].size + 1))
    only[:, -1, -1] = 1.0
    tls = estimate_tls(problem, only)
    np.testing.assert_allclose(tls.values, wls.values, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(tls.standard_deviations, wls.standard_deviations, rtol=1e-3)


def test_torques_of_drives_that_are_not_identified_are_those_of_the_chain(exact):
    arm, base, (x, _), _, _ = exact
    problem = estimation_problem(arm, run_of(x, np.ones_like(x[0])), ALL, base=base)
    np.testing.assert_array_equal(problem.torques[0], 1.0)
    (left,) = dataclasses.replace(problem, columns=Columns(("viscous", "offset"))).torques
    qd, qdd = x[1], x[2]
    friction = np.asarray(arm.friction.coulomb) * np.tanh(qd / np.asarray(arm.friction.coulomb_velocity))
    np.testing.assert_allclose(left, 1 - np.asarray(arm.armature) * qdd - friction, rtol=1e-12, atol=1e-12)


def test_outliers_are_counted_at_the_joint_that_has_most(exact):
    problem, _ = disturbed(exact, [np.full(3, 0.1)] * 2)
    scale, residuals = np.array([[1.0, 2.0, 0.5], [2.0, 1.0, 0.5]]), [np.zeros((400, 3)), np.zeros((300, 3))]
    residuals[0][:7, 0], residuals[1][:3, 0] = -4.5, 9.0
    residuals[0][10:20, 1] = 7.9
    residuals[1][:12, 2], problem.weights[1][:6, 2] = 2.1, 0.0
    assert _outliers(problem, scale, residuals) == [
        "10 samples of joint1 have residuals of more than 4 standard deviations"
    ]
    assert _outliers(problem, 10 * scale, residuals) == []
    problem.weights[1][:6, 2] = 1.0


def test_rows_and_torques_behind_one_filter(exact):
    arm, base, xs, rows, truth = exact
    tau = rows[0] @ truth
    whole = run_of(xs[0], tau)
    pieces = dataclasses.replace(whole, segments=((0, 150), (150, 180), (180, 400)))
    problem = estimation_problem(arm, pieces, ALL, base=base, parallel_cutoff=4.0)
    both = np.concatenate([rows[0], tau[:, :, None]], axis=2)
    parts = [low_pass(both[a:b], 100.0, 4.0)[50 : b - a - 50 : 2] for a, b in ((0, 150), (180, 400))]
    np.testing.assert_allclose(problem.filtered[0], np.concatenate(parts), rtol=1e-6, atol=1e-8)
    assert problem.samples[0].segments == ((0, 25), (25, 85)) and problem.samples[0].rate == 50.0
    np.testing.assert_array_equal(problem.samples[0].t, whole.t[[*range(50, 100, 2), *range(230, 350, 2)]])
    np.testing.assert_allclose(estimate_ols(problem).values, truth, rtol=1e-6, atol=1e-8)
    assert problem.independence == pytest.approx(2 * 0.9 * 4 / 50)
    with pytest.raises(IdentificationError, match=r"longer than four periods of the cutoff, 0\.1 Hz"):
        estimation_problem(arm, pieces, ALL, base=base, parallel_cutoff=0.1)
    for cutoff in (0.0, 50.0):
        with pytest.raises(IdentificationError, match="between 0 and half the sample rate, 50 Hz"):
            estimation_problem(arm, whole, ALL, base=base, parallel_cutoff=cutoff)
    assert estimation_problem(arm, whole, ALL, base=base, parallel_cutoff=45.0).filtered[0].shape[1:] == both.shape[1:]


def test_errors_of_rows_are_those_of_disturbed_positions(exact):
    arm, base, xs, _, _ = exact
    runs = [dataclasses.replace(run_of(x, x[0]), position_cutoff=c) for x, c in zip(xs, (10.0, 60.0), strict=True)]
    runs[0] = dataclasses.replace(runs[0], segments=((0, 250), (250, 400)))
    problem = estimation_problem(arm, runs, ALL, base=base)
    problem.weights[1][:40, 1] = 0.0
    size = np.array([1e-3, 2e-3, 5e-4])
    found = row_errors(problem, size, np.array([0.1, 0.2, 0.3]), seed=4)
    rng, total = np.random.default_rng(4), 0.0
    for (q, qd, qdd), pieces, cutoff, mask in zip(xs, ([250, 150], [300]), (10.0, None), problem.weights, strict=True):
        noise = [rng.normal(size=(n, 3)) for n in pieces]
        noise = [x if cutoff is None else low_pass(x, 100.0, cutoff) for x in noise]
        noise = [size * x / x.std(0) for x in noise]
        slopes = [differentiate(x, 100.0) for x in noise]
        bends = [differentiate(x, 100.0) for x in slopes]
        moved = [a + np.concatenate(b) for a, b in zip((q, qd, qdd), (noise, slopes, bends), strict=True)]
        change = (dense(arm, *moved) - dense(arm, q, qd, qdd))[:, :, base.kept] * (mask > 0)[:, :, None]
        total = total + np.einsum("tjk,tjl->jkl", change, change)
    b = base.size
    expected = total / np.array([700, 660, 700])[:, None, None]
    np.testing.assert_allclose(found[:, :b, :b], expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max())
    np.testing.assert_allclose(found[:, b, b], [0.01, 0.04, 0.09], rtol=1e-12)
    assert not found[:, b, :b].any() and not found[:, :b, b].any()


def test_parameters_about_as_well_known_as_the_best_stay(exact):
    problem = disturbed(exact, [np.full(3, 0.05)] * 2)[0]
    found = estimate_wls(problem)
    relative = np.sqrt(np.diag(found.independent_covariance)) / np.abs(found.values)
    ratio = relative.max() / relative.min()
    assert essential_parameters(problem, ratio=1.01 * ratio).stopped.endswith(
        f"within a factor of {1.01 * ratio:g} of the smallest"
    )
    other = essential_parameters(problem, ratio=0.99 * ratio)
    assert other.eliminated or "worse" in other.stopped or "larger" in other.stopped

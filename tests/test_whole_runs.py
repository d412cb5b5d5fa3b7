"""Friction that remembers and late torques inside estimation problems; friction fits in chunks; loops driven by torques."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import IdentificationError
from jaxdyn.identification import (
    ClosedLoop,
    Columns,
    FrictionModel,
    LoadedSlip,
    MaxwellSlip,
    Offset,
    Viscous,
    drive_gains,
    estimate_cloe,
    estimate_didim,
    estimate_iv,
    estimate_ols,
    estimate_wls,
    estimation_problem,
    friction_fit as friction_rows,
    prediction as regressor_rows,
    simulate_closed_loop,
)
from jaxdyn.identification.friction_fit import with_signals
from jaxdyn.identification.least_squares import samples_of
from regression import dense

RATE = 200.0
ROTOR = Columns(("armature",))
SLIP = FrictionModel((Viscous(), Offset(), MaxwellSlip(width=np.array([4e-3, 8e-3]))))
TORQUES = np.array([1.0, 0.1, 1.5, 0.6, -0.1, 0.8])  # fv1, off1, fz1, fv2, off2, fz2


def elbow():
    return dataclasses.replace(jaxdyn.textbook.planar_elbow(), armature=jnp.array([0.1, 0.05]))


def motion(t):
    """Two joints that turn now and then; q, qd, qdd."""
    a, w, p = np.array([[0.9, 0.5], [0.6, 0.7]]), np.array([[1.1, 2.9], [1.7, 3.7]]), np.array([[0, 1.0], [2.0, 0.3]])
    angle = w * np.asarray(t)[:, None, None] + p
    return (a * np.sin(angle)).sum(2), (a * w * np.cos(angle)).sum(2), -(a * w**2 * np.sin(angle)).sum(2)


@pytest.fixture(scope="module")
def run():
    """A run of 4 s with friction that remembers, its dense columns, and the true values."""
    arm = elbow()
    base = jaxdyn.identification.base_parameters(arm, ROTOR)
    t = np.arange(800) / RATE
    x = motion(t)
    rigid = dense_rows(arm, base, x)
    blocks = SLIP.blocks(samples_of(0.0, RATE, *x))
    signals = np.zeros((800, 2, 6))
    signals[:, 0, :3], signals[:, 1, 3:] = blocks[:, 0], blocks[:, 1]
    everything = np.concatenate([rigid, signals], axis=2)
    truth = np.concatenate([base.matrix @ jaxdyn.identification.prior_parameters(arm, ROTOR), TORQUES])
    return arm, base, t, x, everything, truth


@pytest.mark.ci
def test_friction_that_remembers_is_estimated_beside_the_rigid_body(run):
    arm, base, _, x, rows, truth = run
    tau = rows @ truth + 0.01 * np.random.default_rng(0).normal(size=(800, 2))
    s = samples_of(0.0, RATE, *x, tau=tau)
    # what friction the chain has itself is not counted twice
    chain = jaxdyn.model.with_leaves(
        arm, {"friction.viscous": jnp.array([5.0, 5.0]), "friction.offset": jnp.array([3.0, 3.0])}
    )
    problem = dataclasses.replace(estimation_problem(chain, s, base=base, friction=SLIP), independence=1.0)
    assert problem.base.names[-3:] == ("fv2", "off2", "fz2") and problem.columns == ROTOR
    known = SLIP.known(s)
    assert np.array_equal(problem.weights[0], known) and 0 < (~known).sum() < 200
    np.testing.assert_allclose(problem.measured_rows()[0], rows, atol=1e-10)
    found = estimate_ols(problem)
    expected = np.linalg.lstsq(rows[known], tau[known], rcond=None)[0]
    np.testing.assert_allclose(found.values, expected, rtol=1e-8, atol=1e-9)
    assert np.abs((found.values - truth) / found.standard_deviations).max() < 4
    np.testing.assert_allclose(problem.predictions(found.values)[0], rows @ found.values, atol=1e-9)
    assert np.all(problem.full(truth)[-6:] == TORQUES)
    # behind one more filter, alike on both sides, the same values
    parallel = estimation_problem(chain, s, base=base, friction=SLIP, parallel_cutoff=20.0)
    assert parallel.filtered[0].shape[2] == rows.shape[2] + 1
    assert np.abs(estimate_ols(parallel).values - truth).max() < 0.02
    with pytest.raises(IdentificationError, match=r"pass friction=fit_friction"):
        estimation_problem(arm, s, friction=FrictionModel((LoadedSlip(width=1e-3),)))


def dense_torque(run, t):
    """Torques of the rigid body alone, at any times."""
    arm, base, *_, truth = run
    return dense_rows(arm, base, motion(t)) @ truth[: base.size]


def dense_rows(arm, base, x):
    """The base regressor of bodies and rotors."""
    w = dense(arm, *x)
    return np.concatenate([w[:, :, :20], w[:, :, 20:28:4]], axis=2)[:, :, base.kept]


@pytest.mark.ci
def test_friction_fits_hold_no_regressor_of_long_runs(run, monkeypatch):
    arm, base, t, x, rows, truth = run
    tau = rows @ truth + 0.01 * np.random.default_rng(0).normal(size=(800, 2))
    s = samples_of(0.0, RATE, *x, tau=tau)
    for module in (friction_rows, regressor_rows):
        monkeypatch.setattr(module, "SHORT", 128)
    held = friction_rows.prepare(arm, ROTOR, base, s, stride=2)
    monkeypatch.setattr(friction_rows, "HELD", 0)
    streamed = friction_rows.prepare(arm, ROTOR, base, s, stride=2)
    assert len(held.held) == 4 and not streamed.held and len(streamed.kept) == 400
    mask, blocks = np.ones((400, 2)), SLIP.blocks(s)[::2]
    mask[:20, 1] = 0
    found = [friction_rows.factors_with([r], [mask], [blocks]) for r in (held, streamed)]
    np.testing.assert_array_equal(found[0].r, found[1].r)
    np.testing.assert_array_equal(found[0].counts.sum(0), [400, 380])
    r = found[0].total.r
    whole = np.concatenate([rows[::2, :, : base.size], blocks, s.tau[::2, :, None]], axis=2) * mask[:, :, None]
    for j in range(2):
        np.testing.assert_allclose(r[j].T @ r[j], whole[:, j].T @ whole[:, j], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(streamed.load(truth[: base.size]), dense_torque(run, t), atol=1e-9)


@pytest.mark.nightly
def test_estimators_that_simulate_take_friction_that_remembers_and_measured_torques():
    """A log whose friction acts along the reference; its controller known, then unknown."""
    arm = elbow()
    base = jaxdyn.identification.base_parameters(arm, ROTOR)
    whole = with_signals(base, SLIP.names(2))
    truth = whole.matrix @ np.concatenate([jaxdyn.identification.prior_parameters(arm, ROTOR), TORQUES])
    law = drive_gains(arm, 40.0)
    loop = ClosedLoop.following(lambda t: motion(t), law, 4.0, 2.5e-3, every=2)
    signals = SLIP.signals(samples_of(0.0, 400.0, *(np.asarray(v) for v in (loop.q, loop.qd, loop.qdd))))
    simulate = jax.jit(simulate_closed_loop)
    moved = simulate(loop, arm, resistance=jnp.asarray(signals @ TORQUES))
    q, qd, qdd, tau = (np.asarray(v) for v in moved)
    assert np.abs(tau - np.asarray(simulate(loop, arm).tau)).max() > 1.5  # the friction is felt
    noise = np.random.default_rng(0).normal(size=(2, *q.shape))
    s = dataclasses.replace(samples_of(0.0, RATE, q, qd, qdd, tau + 0.02 * noise[0]), torque_cutoff=RATE)
    start = estimate_wls(estimation_problem(arm, s, base=base, friction=SLIP)).values
    problem = dataclasses.replace(
        estimation_problem(arm, s, base=base, friction=SLIP, loops=loop, start=start), independence=1.0
    )
    for estimator in (estimate_iv, estimate_didim):
        found = estimator(problem)
        assert found.converged and np.abs(found.values - truth).max() < 0.03, found.method
    disturbed = dataclasses.replace(s, q=q + 1e-5 * noise[1])
    far = dataclasses.replace(problem, samples=(disturbed,), start=1.1 * truth)
    found = estimate_cloe(far)
    assert found.converged and np.abs(found.values - truth).max() < 0.03
    # neither reference nor gains, but torques
    driven = ClosedLoop.replaying(dataclasses.replace(disturbed, tau=tau), drive_gains(arm, 30.0), period=2.5e-3)
    driven = dataclasses.replace(far, loops=(driven,))
    found = estimate_cloe(driven)
    error = driven.predictions(found.values)[0] - driven.predictions(truth)[0]
    assert np.sqrt((error**2).mean(0)).max() < 0.1  # of 18 and 6.5 N m

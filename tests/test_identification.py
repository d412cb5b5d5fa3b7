"""Identification as a whole: of robots that are known, with and without noise, from excitation to identified chain."""

import dataclasses
import json
import os
import subprocess
import sys
from operator import attrgetter
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import random_chain
from jaxdyn import (
    IdentificationError,
    LogError,
    friction_force,
    identify,
    inverse_dynamics,
    robots,
    textbook,
    with_inertial_parameters,
)
from jaxdyn.identification import (
    Columns,
    ExtraColumns,
    Filters,
    MechanismLog,
    Terms,
    coupled_drive,
    random_excitation,
    solve,
    synthetic_log,
)
from jaxdyn.identification.accumulate import accumulate_samples
from jaxdyn.identification.base import given_torque, impossible_links, with_stand_ins
from jaxdyn.identification.columns import prior_parameters
from jaxdyn.report import verdict
from regression import known_arm, states

ALL = Columns()
PLAIN = Terms(choose=())
SHARP = {"filters": Filters(100.0, 100.0), "terms": PLAIN}  # far above the motion: the filters change nothing
DRIVES = ("armature", "friction.viscous", "friction.coulomb", "friction.offset")


@pytest.fixture(scope="module")
def truth():
    return known_arm()


@pytest.fixture(scope="module")
def prior(truth):
    return jaxdyn.model.with_leaves(truth, {"inertia": truth.inertia * 1.1, **{k: jnp.zeros(3) for k in DRIVES}})


@pytest.fixture(scope="module")
def log(truth):
    return synthetic_log(truth, random_excitation(truth, 10.0, 5, seed=1), None, 500.0, 0.0, 0.0)


@pytest.fixture(scope="module")
def result(prior, log):
    """Without noise, the last part held out."""
    return identify(prior, log, **SHARP)


def test_a_result_prints_as_its_errors(result):
    text = repr(result)
    assert text.startswith(f"Identification: {len(result.base.names)} base parameters of 3 joints") and len(text) < 1000
    for run in (*result.fitted, *result.validation):
        assert f"{run.title}: torque error {run.fit.total_relative:.3g} %" in text
    assert "all links are physically consistent" in text and not result.inconsistent_links


def base_errors(result, truth):
    """Errors of the weighted estimates, and their true values."""
    expected = result.base.matrix @ prior_parameters(truth, result.columns)
    return result.estimate.values - expected, expected


def test_the_truth_is_recovered_from_a_log_without_noise(truth, prior, log, result):
    error, expected = base_errors(result, truth)
    assert np.abs(error).max() < 1e-7 * np.abs(expected).max()
    assert result.fitted[0].fit.total_relative < 1e-4 > result.validation[0].fit.total_relative  # percent
    # filters chosen from the data take 1e-3 of the sharp edges of Coulomb friction
    error, expected = base_errors(identify(prior, log, terms=PLAIN), truth)
    assert np.abs(error).max() < 2e-3 * np.abs(expected).max()


def test_standard_deviations_are_those_of_the_estimates(truth, prior, log):
    squares, independent = [], []
    for seed in range(5):
        noise = 0.1 * np.random.default_rng(seed).normal(size=log.tau.shape)
        result = identify(
            prior, dataclasses.replace(log, tau=log.tau + noise), filters=Filters(position_cutoff=20.0), terms=PLAIN
        )
        error = base_errors(result, truth)[0]
        squares.append((error**2 / np.diag(result.estimate.covariance)).mean())
        independent.append((error**2 / np.diag(result.estimate.independent_covariance)).mean())
        assert result.split_half.share > 0.8 and result.split_half.rms < 1.6
    # those of blocks vary more from log to log, and are conservative: 0.83 over 30 logs
    for found, least, most, mean in ((independent, 0.6, 1.5, 0.85), (squares, 0.45, 1.7, 0.75)):
        assert least < np.sqrt(min(found)) and np.sqrt(max(found)) < most
        assert mean < np.sqrt(np.mean(found)) < 1.15


def test_the_identified_chain_gives_the_predicted_torques(truth, prior, result):
    base, chain = result.base, result.chain
    np.testing.assert_allclose(base.matrix @ result.unconstrained, result.estimate.values, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(base.matrix @ result.parameters, result.estimate.values, rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(result.parameters, prior_parameters(chain, ALL))
    for evaluation in result.fitted:
        s = evaluation.samples
        torque = jax.vmap(lambda *x: inverse_dynamics(chain, *x) + friction_force(chain, x[1]))(
            *map(jnp.asarray, (s.q, s.qd, s.qdd))
        )
        assert evaluation.logged is not None
        size = np.abs(torque).max()
        np.testing.assert_allclose(evaluation.logged[1], torque, atol=1e-9 * size)
        np.testing.assert_allclose(result.model.predict(s, filtered=True), evaluation.prediction, atol=1e-9 * size)
        assert (
            0 < np.abs(evaluation.prediction - torque).max() < 1e-4 * size
        )  # dry friction is filtered like the torque
    names = result.names
    unknown = [names.index(name) for name in base.unidentifiable]
    np.testing.assert_allclose(result.unconstrained[unknown], prior_parameters(prior, ALL)[unknown], rtol=0, atol=1e-14)
    assert result.prior is prior and result.names == ALL.names(3)
    for leaf in DRIVES:  # joint 1 has no armature apart
        np.testing.assert_allclose(attrgetter(leaf)(chain)[1:], attrgetter(leaf)(truth)[1:], atol=1e-5)


def test_what_is_not_identified_is_taken_from_the_model(truth, log):
    columns = Columns(("viscous", "coulomb", "offset"))
    x = states(5)
    np.testing.assert_allclose(given_torque(truth, columns, *x), np.asarray(truth.armature) * x[2], rtol=1e-14)
    friction = np.asarray(jax.vmap(friction_force, in_axes=(None, 0))(truth, jnp.asarray(x[1])))
    np.testing.assert_allclose(given_torque(truth, Columns(("armature",)), *x), friction, rtol=1e-14)
    assert not given_torque(truth, ALL, *x).any()
    result = identify(truth, log, **SHARP | {"terms": Terms(columns.drive_terms, choose=())})
    error, expected = base_errors(result, truth)
    assert np.abs(error).max() < 1e-7 * np.abs(expected).max()
    np.testing.assert_array_equal(result.chain.armature, truth.armature)
    assert result.fitted[0].fit.total_relative < 1e-4


def test_held_out_samples_are_predicted_by_a_fit_without_them(prior, log, result):
    assert result.validation_refit and [e.title for e in result.fitted] == ["fitted: synthetic"]
    assert [e.title for e in result.validation] == ["held out: last 30 % of synthetic"]
    late = log.t > 0.8 * log.t[-1]
    other = identify(prior, dataclasses.replace(log, tau=np.where(late[:, None], 2 * log.tau, log.tau)), **SHARP)
    held, unseen = result.validation[0], other.validation[0]
    np.testing.assert_allclose(unseen.prediction, held.prediction, rtol=0, atol=1e-7)
    assert unseen.fit.total_relative > 20 > 1e-3 > held.fit.total_relative
    assert np.abs(other.estimate.values - result.estimate.values).max() > 0.1  # the final fit has seen them
    assert not np.allclose(other.model.chain.inertia, result.model.chain.inertia, rtol=1e-2)
    for model in (other.held_out_model, other.validated_model):  # what simulates the held-out part has not
        np.testing.assert_allclose(model.chain.inertia, result.held_out_model.chain.inertia, rtol=0, atol=1e-6)
    np.testing.assert_allclose(held.predicted_by(result.held_out_model), held.prediction, rtol=0, atol=1e-9)


@pytest.mark.ci
def test_held_out_figures_of_the_report_do_not_depend_on_the_fit_to_all_data(prior, log, result):
    """The re-simulation and the given inertias with identified drives use the model that predicted the held-out part."""
    late = log.t > 0.8 * log.t[-1]
    other = identify(prior, dataclasses.replace(log, tau=np.where(late[:, None], 2 * log.tau, log.tau)), **SHARP)
    seen = dataclasses.replace(other, validation=result.validation)  # only the fit to all data differs
    one, two = verdict(result), verdict(seen)
    for a, b in zip(one.simulated, two.simulated, strict=True):
        np.testing.assert_allclose(b[1].rms, a[1].rms, rtol=1e-3)
    np.testing.assert_allclose(two.given.driven.rms, one.given.driven.rms, rtol=1e-6)


def test_validation_runs_are_not_fitted(prior, log, result):
    half = len(log) // 2
    part = lambda name, *rows: dataclasses.replace(
        log, source=name, **{k: attrgetter(k)(log)[slice(*rows)] for k in ("t", "q", "tau")}
    )
    stages = []
    separate = identify(
        prior,
        [part("first", 0, half), part("second", half, None)],
        [part("third", 0, half)],
        **SHARP,
        progress=lambda *call: stages.append(call),
    )
    assert [e.title for e in separate.fitted] == ["fitted: first", "fitted: second"]
    assert [e.title for e in separate.validation] == ["validation: third (the same motion, repeated)"]
    assert separate.validation[0].repeats_fitted and not separate.is_validated and not separate.validation_refit
    assert separate.validation[0].fit.total_relative < 0.05  # percent; the cut at full speed is felt at the ends
    np.testing.assert_allclose(separate.estimate.values, result.estimate.values, atol=2e-3)
    assert list(dict.fromkeys(stage for stage, _, _ in stages)) == [
        *("preparing logs", "finding base parameters", "accumulating the regressor", "predicting torques")
    ]
    assert all(0 <= done <= total for _, done, total in stages)
    for stage in {stage for stage, _, _ in stages}:
        assert [(d, t) for s, d, t in stages if s == stage][-1][0] == [t for s, _, t in stages if s == stage][-1]


def test_samples_in_the_dead_zone_are_left_out_joint_by_joint(prior, log):
    result = identify(prior, log, [log], filters=SHARP["filters"], terms=Terms(choose=(), dead_zone=0.3))
    assert any("slower than 0.3 rad/s (m/s) are excluded" in note for note in result.notes)
    s = result.fitted[0].samples
    moving = np.abs(s.qd) >= 0.3
    assert 0.2 < moving.mean() < 0.98
    factors = accumulate_samples(ALL, prior, [(s, s.tau, moving.astype(float), None)]).total
    expected = solve(factors, result.base, independence=min(1.0, 2 * s.torque_cutoff / s.rate))
    np.testing.assert_allclose(result.estimate.values, expected.values, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(result.estimate.covariance, expected.covariance, rtol=1e-6, atol=1e-16)


def test_links_without_a_body_get_a_stand_in(truth, log, result):
    inertia = np.array(truth.inertia)
    inertia[[0, 2]] = 0
    bare = with_inertial_parameters(truth, jnp.asarray(inertia))
    filled, names = with_stand_ins(bare)
    assert names == ("link1", "link3")
    np.testing.assert_array_equal(filled.inertia[1], truth.inertia[1])
    sphere = [2, 0, 0, 0, 0.008, 0, 0.008, 0, 0, 0.008]
    np.testing.assert_allclose(filled.inertia[::2], [sphere, sphere], rtol=1e-15)
    assert with_stand_ins(truth)[1] == () and impossible_links(filled) == ()
    again = identify(bare, log, **SHARP)
    np.testing.assert_allclose(
        again.estimate.values, result.estimate.values, rtol=1e-9, atol=1e-11
    )  # a prior for the rest alone
    assert "no inertials for link1, link3: a sphere of 2 kg" in again.notes[0]
    assert not any("inertials" in note for note in result.notes)
    m1 = again.names.index("m1")
    assert again.unconstrained[m1] == pytest.approx(2.0) and "m1" in again.base.unidentifiable


@pytest.fixture(scope="module")
def elbow():
    return textbook.planar_elbow(l1=0.7, lc1=0.3, lc2=0.25)


def test_coupled_drive_columns(elbow):
    extra = coupled_drive(1, 2, velocity=0.1)
    assert extra.names == ("Iam2", "fvm2", "fsm2") and extra.units == ("kg m^2", "N m s/rad", "N m")
    assert extra == coupled_drive(1, 2, velocity=0.1)  # so that what is compiled for one serves the other
    qd, qdd = np.array([0.3, -0.15]), np.array([2.0, 5.0])
    sign = np.tanh(1.5)
    np.testing.assert_allclose(
        extra.matrix(elbow, jnp.zeros(2), jnp.asarray(qd), jnp.asarray(qdd)),
        [[5.0, -0.15, sign], [2.0, 0.3, sign]],
        rtol=1e-14,
    )
    for pair in ((1, 3), (0, 1), (2, 2)):
        with pytest.raises(IdentificationError, match=f"axes {pair[0]} and {pair[1]} cannot be coupled"):
            coupled_drive(*pair).matrix(elbow, jnp.zeros(2), jnp.zeros(2), jnp.zeros(2))


@pytest.mark.ci
def test_columns_of_ones_own_are_identified(elbow):
    spring = ExtraColumns(("k1", "k2"), ("N m/rad", "N m/rad"), lambda chain, q, qd, qdd: jnp.diag(q))
    log = synthetic_log(elbow, random_excitation(elbow, 8.0, 5, seed=2), None, 400.0, 0.0, 0.0)
    coupled = coupled_drive(1, 2, velocity=0.1)
    x = [np.asarray(v) for v in random_excitation(elbow, 8.0, 5, seed=2)(jnp.asarray(log.t))]
    columns = jax.vmap(lambda *s: jnp.concatenate([e.matrix(elbow, *s) for e in (spring, coupled)], axis=1))
    parameters = np.array([3.0, -0.7, 0.11, 0.6, 0.4])
    tau = log.tau + np.asarray(columns(*map(jnp.asarray, x))) @ parameters
    result = identify(
        elbow, dataclasses.replace(log, tau=tau), **SHARP | {"terms": Terms(extra=(spring, coupled), choose=())}
    )
    assert result.names[-5:] == ("k1", "k2", "Iam2", "fvm2", "fsm2")
    assert "Iam2" in result.base.dropped  # in a plane it is a sum of Izz2, Izz1 and Ia2
    expected = result.base.matrix @ np.concatenate([prior_parameters(elbow, ALL), parameters])
    np.testing.assert_allclose(result.estimate.values, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(result.parameters[[-5, -4, -2, -1]], parameters[[0, 1, 3, 4]], rtol=1e-4, atol=1e-5)
    assert result.columns.units(elbow)[-5:] == ("N m/rad", "N m/rad", "kg m^2", "N m s/rad", "N m")
    assert result.fitted[0].fit.total_relative < 0.01
    wrong = ExtraColumns(("k",), ("N m/rad",), spring.matrix)
    with pytest.raises(IdentificationError, match=r"the extra columns k have shape \(2, 2\); it must be \(2, 1\)"):
        Columns((), (wrong,)).matrix(elbow, *jnp.zeros((3, 2)))


def test_refusals(prior, log):
    with pytest.raises(IdentificationError, match="no log was given"):
        identify(prior, [])
    with pytest.raises(
        IdentificationError, match=r"synthetic: the log has 3 joints, but the model has 7: panda_joint1"
    ):
        identify(robots.panda(), log)
    with pytest.raises(LogError, match="each part needs at least 10"):
        identify(prior, log, 0.999, **SHARP)
    for share in (0.0, 1.0):
        with pytest.raises(IdentificationError, match=f"the share to hold out is {share:g}"):
            identify(prior, log, share)


@pytest.mark.parametrize("still", [0, 1, 2])
def test_a_joint_at_rest_is_named(prior, log, still):
    q = log.q.copy()
    q[:, still] = 0.3 + 1e-5 * np.random.default_rng(0).normal(size=len(q))  # the noise of encoders is no motion
    at_rest = dataclasses.replace(log, q=q)
    with pytest.raises(IdentificationError, match=rf"joint{still + 1} does not move .* add a log"):
        identify(prior, at_rest)
    assert identify(prior, [at_rest, log], terms=PLAIN).base.size == 28  # one run that moves it is enough


def test_a_joint_without_measured_torque_is_named(prior, log):
    """A constant stands for a torque that was not recorded, and so does NaN; a `MechanismLog` may lack torques."""
    without = lambda x: dataclasses.replace(log, tau=np.where(np.arange(3) == 1, x, log.tau))
    with pytest.raises(
        IdentificationError, match="the torque of joint2 is constant although the joint moves: was it recorded"
    ):
        identify(prior, without(5.0))
    with pytest.raises(
        IdentificationError, match="the torque of joint2 is NaN in all samples; only `identify` accepts"
    ):
        identify(prior, without(np.nan))
    assert identify(prior, [without(5.0), log], terms=PLAIN).base.size == 28
    found = identify(prior, MechanismLog(log.t, log.q, without(np.nan).tau))
    assert np.isnan(found.fitted[0].fit.rms).tolist() == [False, True, False]


def test_random_excitation_keeps_the_limits_and_starts_at_rest():
    chain = robots.panda()
    motion = random_excitation(chain, 8.0, 6, seed=3)
    t = jnp.linspace(0.0, 8.0, 4001)
    q, qd, qdd = (np.asarray(x) for x in motion(t))
    lower, upper = np.asarray(chain.limits.position).T
    assert np.all((q > lower) & (q < upper)) and np.all(np.abs(qd).max(0) <= 0.801 * np.asarray(chain.limits.velocity))
    used = np.maximum(np.ptp(q, axis=0) / (upper - lower), np.abs(qd).max(0) / np.asarray(chain.limits.velocity))
    np.testing.assert_allclose(used, 0.8, rtol=2e-3)
    for x, scale in ((qd, qd), (qdd, qdd)):
        assert np.abs(x[[0, -1]]).max() < 1e-9 * np.abs(scale).max()
    np.testing.assert_allclose(q[-1], q[0], atol=1e-12)
    step = float(t[1])
    np.testing.assert_allclose((q[2:] - q[:-2]) / (2 * step), qd[1:-1], atol=1e-3)
    np.testing.assert_allclose((qd[2:] - qd[:-2]) / (2 * step), qdd[1:-1], atol=1e-2)
    other = np.asarray(random_excitation(chain, 8.0, 6, seed=4)(t)[0])
    assert np.abs(other - q).max() > 0.1
    np.testing.assert_array_equal(random_excitation(chain, 8.0, 6, seed=3).a, motion.a)
    with pytest.raises(IdentificationError, match="at least two harmonics"):
        random_excitation(chain, harmonics=1)


def test_random_excitation_within_limits_on_one_side():
    limits = jnp.asarray([[20.0, jnp.inf], [-jnp.inf, -0.2], [-jnp.inf, jnp.inf]])
    chain = eqx.tree_at(lambda c: c.limits.position, random_chain(3, seed=4), limits)
    q = np.asarray(random_excitation(chain, seed=1)(jnp.linspace(0.0, 10.0, 500))[0])
    assert q[:, 0].min() > 20 and q[:, 1].max() < -0.2
    np.testing.assert_allclose(np.ptp(q, axis=0), 0.8 * np.array([2 * np.pi, 1.0, 2 * np.pi]), rtol=1e-3)


def test_synthetic_noise_is_what_is_asked_for(truth, log):
    noisy = synthetic_log(truth, random_excitation(truth, 10.0, 5, seed=1), None, 500.0, 1e-3, 0.2, seed=5)
    np.testing.assert_allclose((noisy.q - log.q).std(0), 1e-3, rtol=0.05)
    np.testing.assert_allclose((noisy.tau - log.tau).std(0), 0.2, rtol=0.05)
    assert len(log) == 5000 and log.qd is None
    x = [jnp.asarray(v) for v in random_excitation(truth, 10.0, 5, seed=1)(jnp.asarray(log.t[100:103]))]
    torque = jax.vmap(lambda *s: inverse_dynamics(truth, *s) + friction_force(truth, s[1]))(*x)
    np.testing.assert_allclose(log.tau[100:103], torque, rtol=1e-12, atol=1e-12)


SINGLE = """
import dataclasses, json
import jax, jax.numpy as jnp, numpy as np
from helpers import linear_friction, random_chain
from jaxdyn.report import verdict
from regression import known_arm, states
from jaxdyn import identify
from jaxdyn.identification import Filters, Terms, random_excitation, synthetic_log
assert not jax.config.jax_enable_x64
chain = linear_friction(random_chain(3, seed=1, joints="revolute"))
log = synthetic_log(chain, random_excitation(chain, 10.0, 5, seed=1), 10.0, 500.0, 0.0, 0.0)
result = identify(dataclasses.replace(chain, inertia=chain.inertia * 1.1), log, filters=Filters(100.0), terms=Terms(choose=()))
leaves = jax.tree.leaves(result.chain)
print(json.dumps({
    "given": str(chain.dtype), "leaves": sorted({str(x.dtype) for x in leaves}), "x64": jax.config.jax_enable_x64,
    "default": str(jnp.ones(1).dtype), "values": str(result.estimate.values.dtype), "size": result.base.size,
    "error": result.fitted[0].fit.total_relative, "log": str(log.tau.dtype),
}))
"""


@pytest.mark.ci
def test_single_precision_of_the_user_stays_and_does_not_reach_the_estimates(tmp_path):
    environment = {k: v for k, v in os.environ.items() if k != "JAX_ENABLE_X64"}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
    done = subprocess.run([sys.executable, "-c", SINGLE], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "given": "float32",
        "leaves": ["float32"],
        "x64": False,
        "default": "float32",
        "values": "float64",
        "log": "float64",
        "size": 28,
        "error": pytest.approx(0.0, abs=1e-4),  # percent; single precision would leave 1e-3
    }

"""Springs, delays and what cross-validation chooses: on runs of a known arm, and on a real one's log."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn import (
    Columns,
    ExtraColumns,
    IdentificationError,
    Log,
    choose_settings,
    coupled_drive,
    diagnose,
    diagnose_identification,
    identify,
    inverse_dynamics,
    joint_springs,
    passive_force,
    preprocess,
    prior_parameters,
    prior_scales,
    random_excitation,
)
from jaxdyn.cli import main
from jaxdyn.identification.completion import with_parameters
from jaxdyn.identification.parametric import model_torque, parameters_of
from jaxdyn.identification.settings import known_or_estimated_delay
from jaxdyn.report.html import report_html
from regression import known_arm, states

FILTER = {"position_cutoff": 20.0}
DELAY = np.array([0.004, 0.0, 0.0075])
WIDTH = np.array([0.05, 0.01, 0.1])


@pytest.fixture(scope="module")
def arm():
    """With springs at the outer joints and a smooth sign of another width at each."""
    leaves = {"stiffness": jnp.array([3.0, 0.0, -2.0]), "coulomb_velocity": jnp.asarray(WIDTH)}
    return dataclasses.replace(known_arm(), **leaves)


@pytest.fixture(scope="module")
def given(arm):
    """The arm as it is thought to be: no springs, one width."""
    return dataclasses.replace(arm, stiffness=jnp.zeros(3), coulomb_velocity=jnp.full(3, 0.02))


@pytest.fixture(scope="module")
def log(arm):
    """A run with late torques and some noise."""
    t = np.arange(6000) / 500.0
    q, qd, qdd = random_excitation(arm, 12.0, 5, 1)(jnp.asarray(t))
    tau = np.asarray(jax.vmap(lambda *x: inverse_dynamics(arm, *x) + passive_force(arm, *x[:2]))(q, qd, qdd))
    late = np.stack([np.interp(t - d, t, tau[:, j]) for j, d in enumerate(DELAY)], axis=1)
    return Log(t, np.asarray(q), None, late + 0.02 * np.random.default_rng(0).normal(size=tau.shape))


def test_springs_are_columns_with_a_leaf(arm, given):
    extra = joint_springs(arm, (1, 3))
    assert extra.names == ("k1", "k3") and extra is joint_springs(arm, (1, 3))
    columns = Columns(extra=(coupled_drive(1, 2), extra))
    parameters = prior_parameters(arm, columns)
    np.testing.assert_array_equal(parameters[-2:], [3.0, -2.0])
    np.testing.assert_array_equal(parameters_of(arm, columns), parameters)
    np.testing.assert_array_equal(with_parameters(given, columns, parameters).stiffness, arm.stiffness)
    q, qd, qdd = (jnp.asarray(x[0]) for x in states(1))
    np.testing.assert_allclose(extra.matrix(arm, q, qd, qdd), np.diag(q - arm.rest_position)[:, [0, 2]], rtol=1e-15)
    with pytest.raises(IdentificationError, match=r"joints \(1, 1\)"):
        joint_springs(arm, (1, 1))
    with pytest.raises(IdentificationError, match="of 2 joints"):
        ExtraColumns(("a",), ("1",), extra.matrix, "stiffness", (1, 3))


def test_springs_in_the_torques(arm, given):
    columns = Columns(extra=(joint_springs(arm, (1, 3)),))
    parameters = jnp.asarray(prior_parameters(arm, columns))
    state = tuple(jnp.asarray(x[0]) for x in states(1))
    wide = dataclasses.replace(given, coulomb_velocity=arm.coulomb_velocity)
    torque = jax.jit(lambda q, qd, qdd: inverse_dynamics(arm, q, qd, qdd) + passive_force(arm, q, qd))(*state)
    np.testing.assert_allclose(jax.jit(columns.matrix)(wide, *state) @ parameters, torque, rtol=1e-12)
    found = jax.jit(lambda *x: model_torque(columns, wide, *x))(parameters, *state)
    np.testing.assert_allclose(found, torque, rtol=1e-12)


@pytest.mark.ci
def test_chosen_settings_and_what_comes_of_them(arm, given, log):
    result = identify(given, log, settings="chosen", **FILTER)
    found = result.settings
    np.testing.assert_allclose(found.delay, DELAY, atol=6e-4)
    assert {1, 3} <= set(found.springs) and np.all(found.errors < 0.5 * found.errors_before)
    assert found.cutoff is None and str(found).count("\n") == 3
    assert result.notes[0].startswith("settings: widths of dry friction s") and "springs at joints 1" in result.notes[0]
    np.testing.assert_allclose(result.chain.stiffness, arm.stiffness, atol=0.05)
    assert result.validation[0].fit.total_relative < 1.0
    np.testing.assert_array_equal(result.delay, found.delay)
    late = log.t > 0.75 * log.t[-1]
    other = dataclasses.replace(log, tau=np.where(late[:, None], -log.tau, log.tau))
    again = choose_settings(given, other, share=0.7, **FILTER)  # never looks at what is held out
    np.testing.assert_allclose(again.errors, found.errors, rtol=1e-7)
    # one delay, given and found
    late = identify(given, log, delay=list(DELAY), extra=[joint_springs(given)], **FILTER)
    np.testing.assert_array_equal(late.delay, DELAY)
    assert "torques taken 4, 0, 7.5 ms later" in report_html(late)
    with pytest.raises(IdentificationError, match="not both"):
        identify(given, log, delay=0.0, settings="chosen")
    estimated = known_or_estimated_delay(given, [log], "estimated", share=0.7, **FILTER)
    np.testing.assert_allclose(estimated, found.delay, atol=1e-9)
    with pytest.raises(IdentificationError, match="one or one a joint"):
        identify(given, log, delay=[0.0, 1.0])
    # the findings come from the factors of the fit
    assert diagnose_identification(late) == diagnose(given, [e.samples for e in late.fitted], columns=late.columns)


def test_scales_against_the_given_model(arm, log):
    samples = preprocess(log, **FILTER)
    rough = dataclasses.replace(arm, inertia=arm.inertia * jnp.array([1.2, 0.9, 1.1])[:, None])
    found = prior_scales(rough, [samples])
    twice = prior_scales(rough, [dataclasses.replace(samples, tau=2 * samples.tau)])
    assert found.judged[1:].all() and np.all(np.abs(np.log(found.factors[1:])) < 0.25)
    np.testing.assert_allclose(twice.factors, 2 * found.factors, rtol=1e-8)
    np.testing.assert_allclose(twice.deviations, found.deviations, rtol=1e-6)
    # white noise: the deviation of the logarithm of a slope, of which the jackknife sees as much
    rng, size = np.random.default_rng(3), 20.0
    exact = np.asarray(jax.jit(jax.vmap(lambda *x: inverse_dynamics(arm, *x)))(samples.q, samples.qd, samples.qdd))
    noisy = dataclasses.replace(samples, tau=exact + size * rng.normal(size=exact.shape))
    found = prior_scales(arm, [noisy])
    for j in range(3):
        rest = np.stack(
            [samples.qdd[:, j], samples.qd[:, j], np.tanh(samples.qd[:, j] / WIDTH[j]), exact[:, j] ** 0], 1
        )
        clear = exact[:, j] - rest @ np.linalg.lstsq(rest, exact[:, j], rcond=None)[0]
        expected = size / np.linalg.norm(clear) / found.factors[j]
        assert 0.5 < found.deviations[j] / expected < 2


def test_choosing_leaves_nothing_to_give(capsys):
    assert main(["identify", "--settings", "chosen", "--springs"]) == 2
    assert "leave --delay and --springs out" in capsys.readouterr().err

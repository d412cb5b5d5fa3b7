"""Friction of two real arms: chosen by cross-validation on training runs alone, then held against runs never fitted."""

import jax
import numpy as np
import pytest

from jaxdyn import read_log
from jaxdyn.identification import (
    Columns,
    Filters,
    base_parameters,
    choose_friction,
    fit_friction,
    fit_quality,
    friction_candidates,
    preprocess,
    split,
    weighted_least_squares,
    with_signals,
)
from jaxdyn.identification.accumulate import accumulate
from jaxdyn.io import check_log, load

GAINS = [14.87, 13.26, 11.13, 10.62, 11.03, 11.47]
COLUMNS = Columns(("armature",))
pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def ur10e(shared_data):
    chain = load(shared_data / "ur10e" / "ur10e_kinematics.urdf")

    def read(name, **options):
        log = check_log(read_log(shared_data / "ur10e" / f"{name}.csv", 6, gains=GAINS, **options), chain)
        return log, preprocess(log, Filters(position_cutoff=7.5, torque_cutoff=10.0, stride=1))

    return chain, base_parameters(chain, COLUMNS), read


def unfiltered(log, samples):
    """Measured torques at the samples' times, as they were logged."""
    return np.stack([np.interp(samples.t, log.t, column) for column in log.tau.T], axis=1)


@pytest.mark.nightly
def test_ur10e_predicts_another_run_in_motion_and_at_rest(ur10e):
    chain, base, read = ur10e
    training = ("train_20sec_8harm", "train_30sec_12harm", "train_40sec_12harm", "unloaded_15harm50sec")
    some = ("slip, power", "two slips", "two slips, Stribeck", "two slips, power, load")
    models = {name: model for name, model in friction_candidates(10.0).items() if name in some}
    choice = choose_friction(chain, [read(name)[1] for name in training], models, stride=4, base=base)
    assert choice.best == (some[0], some[3], some[3], some[1], some[2], some[1])

    _, train = read("train_30sec_12harm", rows=(635, 3510))
    fit = fit_friction(chain, [train], choice.model, stride=3, base=base)
    log, check = read("validate_ptp_10_points", rows=(700, 4200))
    predicted = fit.predict(check)
    error = fit_quality(unfiltered(log, check), predicted, check.qd)
    assert np.all(error.relative_moving < [9.4, 4.2, 4.5, 6.8, 9.4, 8.2])
    assert np.all(error.relative < [11, 4.4, 4.6, 8.0, 13.8, 48])
    filtered = fit_quality(check.tau, predicted, check.qd)
    assert np.all(filtered.relative_moving < [6.0, 2.5, 2.0, 4.0, 6.5, 5.5])
    # joint 5 creeps by 0.3 mrad/s where it seems to rest, which a slipping spring follows
    rest = np.abs(check.qd[:, 4]) < 0.005
    assert np.abs(check.tau[rest, 4]).mean() > 2 and np.abs((check.tau - predicted)[rest, 4]).mean() < 1.1

    # the same through the factors and estimators that `identify` uses
    with jax.enable_x64(True):
        states = (train.q, train.qd, train.qdd, train.tau)
        known = fit.model.known(train).astype(float)
        factors = accumulate(COLUMNS, chain, *states, weights=known, signals=fit.signals(train))
    estimate = weighted_least_squares(factors, with_signals(base, fit.model.names(6)))
    np.testing.assert_allclose(estimate.noise, fit.noise, rtol=0.1)


def test_ur10_predicts_the_rest_of_its_run_better_than_its_authors_model(shared_data):
    chain = load(shared_data / "ur10" / "ur10_kinematics.urdf")
    log = check_log(read_log(shared_data / "ur10" / "exciting.csv", 6), chain)
    train, check = split(preprocess(log, Filters(position_cutoff=7.5, torque_cutoff=10.0, stride=1)))
    base = base_parameters(chain, COLUMNS)
    some = ("plain", "two slips, Stribeck", "two slips, power, load")
    models = {name: model for name, model in friction_candidates(10.0).items() if name in some}
    choice = choose_friction(chain, [train], models, stride=3, base=base)
    fit = fit_friction(chain, [train], choice.model, stride=2, base=base)
    error = fit_quality(unfiltered(log, check), fit.predict(check), check.qd)
    assert np.all(error.relative < [19.5, 6.9, 5.3, 12.4, 18.5, 23.0])  # the authors' model
    assert np.all(error.relative < [6.0, 3.0, 4.0, 8.0, 10.0, 17.0])

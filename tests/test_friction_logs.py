"""Friction of two real arms, held against runs never fitted."""

import numpy as np
import pytest

import jaxdyn
from jaxdyn import read_log
from jaxdyn.identification import LoadedSlip, MaxwellSlip, PowerViscous, Stribeck, Terms
from jaxdyn.io import check_log, load

GAINS = [14.87, 13.26, 11.13, 10.62, 11.03, 11.47]


@pytest.mark.nightly
def test_ur10e_creeps_as_a_slipping_spring_where_it_seems_to_rest(shared_data):
    """Joint 5 creeps by 0.3 mrad/s and needs 3 N m, of which a smooth sign function of the velocity predicts nothing."""
    chain = load(shared_data / "ur10e" / "ur10e_kinematics.urdf")
    read = lambda name, rows: check_log(
        read_log(shared_data / "ur10e" / f"{name}.csv", 6, gains=GAINS, rows=rows), chain
    )
    train, check = read("train_30sec_12harm", (635, 3510)), read("validate_ptp_10_points", (700, 4200))
    terms = (
        MaxwellSlip(1e-4),
        MaxwellSlip(1e-3, joints=(2, 3, 4, 5, 6)),
        PowerViscous(joints=(1, 2, 3)),
        LoadedSlip(joints=(2, 3)),
        Stribeck(joints=(5,)),
    )
    found = jaxdyn.identify(chain, train, check, terms=Terms(further=terms, choose=())).validation[0]
    assert np.all(found.raw.relative_moving < [9.4, 4.2, 4.5, 6.8, 9.4, 8.2])
    assert np.all(found.raw.relative < [11, 4.4, 4.6, 8.0, 13.8, 48])
    assert np.all(found.fit.relative_moving < [6.0, 2.5, 2.0, 4.0, 6.5, 5.5])
    rest = np.abs(found.samples.qd[:, 4]) < 0.005
    assert np.abs(found.samples.tau[rest, 4]).mean() > 2
    assert np.abs((found.samples.tau - found.prediction)[rest, 4]).mean() < 1.1


@pytest.mark.nightly
def test_ur10_predicts_the_rest_of_its_run_better_than_its_authors_model(shared_data):
    chain = load(shared_data / "ur10" / "ur10_kinematics.urdf")
    log = check_log(read_log(shared_data / "ur10" / "exciting.csv", 6), chain)
    found = jaxdyn.identify(chain, log).validation[0]
    assert np.all(found.raw.relative < [19.5, 6.9, 5.3, 12.4, 18.5, 23.0])  # the authors' model
    assert np.all(found.raw.relative < [6.0, 3.0, 4.0, 8.0, 12.0, 17.0])

"""Accumulation of the regressor, base parameters and their estimates, on samples that are exact or have known noise."""

import dataclasses
import pickle
from operator import attrgetter
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from scipy.linalg import null_space

from helpers import random_chain
from jaxdyn import IdentificationError, ModelError, from_dh, robots, textbook, with_inertial_parameters
from jaxdyn.dynamics import drive_regressor
from jaxdyn.identification import Columns, accumulate_stream, base_parameters, coupled_drive, fit_quality, solve
from jaxdyn.identification.accumulate import accumulate
from jaxdyn.identification.base import (
    RANK_TOLERANCE,
    _select,
    impossible_links,
    nearest_parameters,
    stacked,
    with_parameters,
)
from jaxdyn.identification.columns import prior_parameters
from jaxdyn.identification.factors import as_float64
from jaxdyn.identification.prediction import SHORT, predict
from jaxdyn.io import load_model, loads, save_model
from jaxdyn.model.build import rounding_note
from jaxdyn.spatial import so3
from regression import dense, known_arm, states

ALL = Columns()
FRICTION = ("viscous", "coulomb", "offset")


@pytest.fixture(scope="module")
def truth():
    return known_arm()


def gram(r):
    return r.transpose(0, 2, 1) @ r


def assert_grams(factors, rows):
    """R^T R = rows^T rows joint by joint, each entry relative to the two columns' norms."""
    expected = gram(rows.transpose(1, 0, 2))
    size = np.sqrt(np.maximum(np.diagonal(expected, axis1=1, axis2=2), 1e-300))
    error = np.abs(gram(factors.r) - expected) / size[:, :, None] / size[:, None, :]
    assert np.where(expected == 0, 0, error).max() < 1e-10
    assert np.abs(factors.r[:, np.tri(factors.r.shape[1], k=-1, dtype=bool)]).max() == 0


@pytest.fixture(scope="module")
def mixed():
    """A revolute, a prismatic and a helical joint; samples that do not fill their last chunk, and their dense columns."""
    chain = random_chain(3, seed=4)
    x = states(SHORT + 188)
    tau = np.random.default_rng(1).normal(size=x[0].shape)
    return chain, x, tau, dense(chain, *x)


def test_factors_keep_every_inner_product(mixed):
    chain, x, tau, w = mixed
    done = []
    factors = accumulate_stream(ALL, chain, [(*x, tau)], progress=done.append).total
    assert_grams(factors, np.concatenate([w, tau[:, :, None]], axis=2))
    assert factors.counts.tolist() == [700] * 3 and done == [700]


def test_weights_multiply_rows_and_zero_leaves_them_out(mixed):
    chain, x, tau, w = mixed
    weights = np.random.default_rng(2).uniform(0, 3, tau.shape) * (
        np.random.default_rng(3).uniform(size=tau.shape) > 0.4
    )
    factors = accumulate(ALL, chain, *x, tau, weights)
    assert_grams(factors, np.concatenate([w, tau[:, :, None]], axis=2) * weights[:, :, None])
    assert factors.counts.tolist() == (weights > 0).sum(0).tolist()


def test_accumulation_goes_on_from_earlier_factors_whatever_the_chunks(mixed):
    chain, x, tau, w = mixed
    first = accumulate_stream(ALL, chain, [(*x[:, :77], tau[:77])])
    before = first.r.copy()
    factors = accumulate_stream(ALL, chain, [(*x[:, 77:], tau[77:])], start=first).total
    assert_grams(factors, np.concatenate([w, tau[:, :, None]], axis=2))
    assert factors.counts.tolist() == [700] * 3 and first.total.counts.tolist() == [77] * 3
    np.testing.assert_array_equal(first.r, before)


def test_predictions_are_the_columns_times_the_parameters(mixed):
    chain, x, _, w = mixed
    parameters = np.random.default_rng(5).normal(size=w.shape[2])
    expected = w @ parameters
    assert np.abs(predict(ALL, chain, parameters, *x) - expected).max() < 1e-12 * np.abs(expected).max()


def test_signals_are_columns_after_the_others(mixed):
    chain, x, tau, w = mixed
    signals = np.random.default_rng(6).normal(size=(*tau.shape, 2))
    rows = np.concatenate([w, signals, tau[:, :, None]], axis=2)
    parts = [(*x[:, part], tau[part], None, signals[part]) for part in (slice(77), slice(77, None))]
    factors = accumulate_stream(ALL, chain, parts).total
    assert_grams(factors, rows)
    parameters = np.random.default_rng(5).normal(size=w.shape[2] + 2)
    expected = rows[:, :, :-1] @ parameters
    predicted = predict(ALL, chain, parameters, *x, signals=signals)
    assert np.abs(predicted - expected).max() < 1e-12 * np.abs(expected).max()
    with pytest.raises(IdentificationError, match=r"signals have shape \(700, 2\)"):
        accumulate(ALL, chain, *x, tau, signals=signals[:, 0])
    with pytest.raises(IdentificationError, match="columns, but the parameters have shape"):
        predict(ALL, chain, parameters, *x)


def test_base_parameters_carry_all_torques(mixed):
    chain, _, _, _ = mixed
    base = base_parameters(chain, ALL)
    x = states(200, seed=9)
    pi = np.random.default_rng(6).normal(size=base.matrix.shape[1])
    w = dense(chain, *x)
    torque = w @ pi
    assert np.abs(w[:, :, base.kept] @ (base.matrix @ pi) - torque).max() < 1e-9 * np.abs(torque).max()
    assert np.linalg.matrix_rank(w.reshape(-1, w.shape[2]), rtol=1e-9) == base.size == len(base.names)
    np.testing.assert_array_equal(base.matrix[:, base.kept], np.eye(base.size))
    names = ALL.names(3)
    leads = [names[k] for k in base.kept]
    assert sorted((*leads, *base.unidentifiable, *base.dropped)) == sorted(names)
    dead = [names.index(name) for name in base.unidentifiable]
    assert np.abs(w[:, :, dead]).max() < 1e-12 * np.abs(w).max() and not base.matrix[:, dead].any()
    assert all(f"{name}" in " ".join(base.names).split() for name in base.dropped)


def test_base_parameters_of_the_planar_elbow_by_name():
    # m cy of both links stands beside the textbook's five: a centre of mass need not lie on its link's line
    elbow = textbook.planar_elbow(l1=0.7, lc1=0.3, lc2=0.25)
    base = base_parameters(elbow, ALL)
    drive1, drive2 = ("fv1", "fc1", "off1"), ("Ia2", "fv2", "fc2", "off2")
    assert base.names == ("Izz1 + 0.49 m2 + Ia1", "mx1 + 0.7 m2", "my1", *drive1, "Izz2", "mx2", "my2", *drive2)
    assert base.dropped == ("Ia1", "m2")
    out_of_plane = ("Ixx", "Ixy", "Ixz", "Iyy", "Iyz", "mz")
    assert set(base.unidentifiable) == {"m1", *(f"{name}{i}" for name in out_of_plane for i in (1, 2))}
    weightless = base_parameters(eqx.tree_at(lambda c: c.gravity, elbow, jnp.zeros(3)), ALL)
    assert weightless.names == ("Izz1 + 0.49 m2 + Ia1", *drive1, "Izz2", "mx2", "my2", *drive2)
    assert {"mx1", "my1", "m1"} < set(weightless.unidentifiable)


@pytest.mark.parametrize(
    ("robot", "terms", "size"),
    [
        pytest.param(robots.panda, (), 43, marks=pytest.mark.nightly),
        (robots.panda, FRICTION, 64),
        pytest.param(robots.ur10, (), 36, marks=pytest.mark.nightly),
        pytest.param(robots.ur10, ("armature",), 40, marks=pytest.mark.nightly),
        pytest.param(robots.ur10, ("armature", *FRICTION), 58, marks=pytest.mark.nightly),
    ],
)
def test_structural_ranks_of_arms(robot, terms, size):
    base = base_parameters(robot(), Columns(terms))
    assert base.size == size
    assert max(map(len, base.names)) < 400


def test_rounded_right_angles_do_not_count_as_rank():
    chain = robots.panda()
    rounding = np.cos(np.pi / 2) * np.random.default_rng(0).choice([-1, 1], chain.rotation.shape)
    rotation = np.asarray(chain.rotation)
    chain = eqx.tree_at(lambda c: c.rotation, chain, jnp.asarray(np.where(rotation == 0, rounding, rotation)))
    columns = Columns(())
    assert base_parameters(chain, columns).size == 43
    q, qd, qdd = states(256, 7)
    r = stacked(accumulate(columns, chain, q, qd, qdd, 0 * q))[:, :-1]
    size = np.linalg.norm(r, axis=0)
    unit = r / np.where(size == 0, 1, size)  # the trap: columns of rounding errors, as long as all others
    assert np.linalg.matrix_rank(r, rtol=RANK_TOLERANCE) == 43 < np.linalg.matrix_rank(unit, rtol=RANK_TOLERANCE)


def test_what_single_precision_rounds_is_made_whole():
    chain = random_chain(4, seed=2)  # the last axis does not pass through its frame, the third is a helix
    single = jax.tree.map(lambda x: x.astype(jnp.float32), chain)
    whole = as_float64(single)
    orthogonal = lambda r: np.abs(np.einsum("nij,nkj->nik", *2 * [np.asarray(r, float)]) - np.eye(3)).max()
    assert orthogonal(whole.rotation) < 1e-14 and orthogonal(single.rotation) > 1e-9
    w, v = np.split(np.asarray(whole.screw), 2, axis=1)
    np.testing.assert_allclose(np.linalg.norm(np.where([[True], [False], [True], [True]], w, v), axis=1), 1, rtol=1e-15)
    np.testing.assert_allclose((w * v).sum(1), [0, 0, 0.15, 0], rtol=1e-6, atol=1e-16)
    for before, after in zip(jax.tree.leaves(chain), jax.tree.leaves(whole), strict=True):
        assert after.dtype == np.float64
        np.testing.assert_allclose(after, before, rtol=1e-6, atol=3e-7)
    np.testing.assert_array_equal(as_float64(chain).rotation, chain.rotation)
    assert base_parameters(single).size == base_parameters(chain).size


def test_limits_far_from_zero_are_no_obstacle(truth):
    limits = jnp.asarray([[4.0, 6.0], [-1.0, 1.0], [-9.0, -7.0]])
    base = base_parameters(eqx.tree_at(lambda c: c.limits.position, truth, limits), ALL)
    assert base.names == base_parameters(truth, ALL).names


@pytest.fixture(scope="module")
def exact(truth):
    """Samples without any filter: columns, parameters and the torques they give, and the base."""
    x = states(1000, seed=12)
    w = dense(truth, *x)
    parameters = prior_parameters(truth, ALL)
    return x, w, parameters, w @ parameters, base_parameters(truth, ALL)


def test_estimates_recover_the_truth_from_exact_samples(truth, exact):
    x, _, parameters, tau, base = exact
    factors = accumulate(ALL, truth, *x, tau)
    expected = base.matrix @ parameters
    for estimate in (solve(factors, base, name) for name in ("ordinary", "weighted")):
        np.testing.assert_allclose(estimate.values, expected, rtol=1e-6, atol=1e-9)
        assert estimate.noise.max() < 1e-9
    nothing = solve(accumulate(ALL, truth, *x, 0 * tau), base)
    np.testing.assert_array_equal(nothing.values, 0)  # no torque and no noise: nothing is divided by zero


@pytest.mark.parametrize("independence", [1.0, 0.25])
def test_ordinary_least_squares_is_numpys(truth, exact, independence):
    x, w, _, tau, base = exact
    tau = tau + np.random.default_rng(1).normal(size=tau.shape)
    estimate = solve(accumulate(ALL, truth, *x, tau), base, "ordinary", independence)
    a = w[:, :, base.kept].reshape(-1, base.size)
    values, squares, _, singular = np.linalg.lstsq(a, tau.reshape(-1), rcond=None)
    np.testing.assert_allclose(estimate.values, values, rtol=1e-9, atol=1e-11)
    covariance = squares[0] / (independence * tau.size - base.size) * np.linalg.inv(a.T @ a)
    np.testing.assert_allclose(estimate.covariance, covariance, rtol=1e-7, atol=1e-9 * covariance.max())
    residual = tau - w[:, :, base.kept] @ values
    np.testing.assert_allclose(estimate.joint_residuals, np.sqrt((residual**2).mean(0)), rtol=1e-10)
    np.testing.assert_allclose(estimate.condition, singular[0] / singular[-1], rtol=1e-8)
    np.testing.assert_allclose(estimate.scaled_condition, np.linalg.cond(a / np.linalg.norm(a, axis=0)), rtol=1e-8)
    np.testing.assert_array_equal(estimate.standard_deviations, np.sqrt(np.diag(estimate.covariance)))
    relative = 100 * estimate.standard_deviations / np.abs(values)
    np.testing.assert_allclose(estimate.relative_standard_deviations, relative, rtol=1e-8)


def test_weighted_least_squares_weighs_joints_by_their_noise(truth, exact):
    x, w, parameters, tau, base = exact
    noise = np.array([0.02, 0.2, 2.0])
    tau = tau + noise * np.random.default_rng(2).normal(size=tau.shape)
    factors = accumulate(ALL, truth, *x, tau)
    ols, wls = solve(factors, base, "ordinary"), solve(factors, base)
    np.testing.assert_allclose(wls.noise, noise, rtol=0.1)
    a = (w[:, :, base.kept] / wls.noise[:, None]).reshape(-1, base.size)
    values = np.linalg.lstsq(a, (tau / wls.noise).reshape(-1), rcond=None)[0]
    assert np.abs((wls.values - values) / wls.standard_deviations).max() < 1e-3  # the weights have come to rest
    covariance = np.linalg.inv(a.T @ a)
    np.testing.assert_allclose(wls.standard_deviations, np.sqrt(np.diag(covariance)), rtol=0.03)
    expected = base.matrix @ parameters
    z = (wls.values - expected) / wls.standard_deviations
    assert 0.6 < np.sqrt((z**2).mean()) < 1.5
    assert np.mean(((ols.values - expected) / wls.standard_deviations) ** 2) > 4 * np.mean(z**2)


@pytest.mark.parametrize("still", [0, 1, 2])
def test_parameters_without_any_effect_on_the_data_are_named(truth, exact, still):
    (q, qd, qdd), _, _, tau, base = exact
    moves = np.arange(3) != still
    factors = accumulate(ALL, truth, q, qd * moves, qdd * moves, tau)
    with pytest.raises(
        IdentificationError, match=rf"the data do not excite '\w+{still + 1}.*': log a motion of all joints"
    ):
        solve(factors, base, "ordinary")


def test_motions_that_do_not_tell_parameters_apart_are_refused(truth, exact):
    (q, _, _), _, _, tau, base = exact
    one = np.ones((len(q), 1))
    factors = accumulate(ALL, truth, q, one * [0.1, 0.2, 0.3], one * [1.0, 2.0, 3.0], tau)  # friction is all offset
    with pytest.raises(
        IdentificationError,
        match=r"does not determine these base parameters separately: '.*Log a more informative motion",
    ):
        solve(factors, base, "ordinary")


def test_too_few_samples_are_refused(truth, exact):
    x, _, _, tau, base = exact
    few = accumulate(ALL, truth, *x[:, :9], tau[:9])
    with pytest.raises(IdentificationError, match=r"27 rows of samples cannot determine 28 base parameters"):
        solve(few, base, "ordinary")
    more = accumulate(ALL, truth, *x[:, :100], tau[:100])
    with pytest.raises(IdentificationError, match=r"only 27 of 300 rows of filtered samples count as independent"):
        solve(more, base, "ordinary", independence=0.09)


def test_nearest_parameters_keep_the_base_and_are_nearest(exact):
    base = exact[4]
    rng = np.random.default_rng(3)
    prior, values = rng.normal(size=base.matrix.shape[1]), rng.normal(size=base.size)
    full = nearest_parameters(base, values, prior)
    np.testing.assert_allclose(base.matrix @ full, values, rtol=1e-11, atol=1e-11)
    nothing = null_space(base.matrix)
    assert nothing.shape[1] == base.matrix.shape[1] - base.size
    assert np.abs(nothing.T @ (full - prior)).max() < 1e-11  # no step that keeps the base comes nearer
    least = np.linalg.lstsq(base.matrix, values - base.matrix @ prior, rcond=None)[0]
    np.testing.assert_allclose(full - prior, least, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("terms", [(), ("coulomb",), ("offset", "armature"), ALL.drive_terms])
def test_parameters_go_into_the_leaves_and_come_back(truth, terms):
    columns = Columns(terms, (coupled_drive(1, 2),))
    count = len(columns.names(3))
    assert count == 30 + 3 * len(terms) + 3 == len(columns.units(truth))
    parameters = np.random.default_rng(4).normal(size=count)
    parameters[-3:] = 0  # extra columns have no leaf
    chain = with_parameters(truth, columns, parameters)
    np.testing.assert_array_equal(prior_parameters(chain, columns), parameters)
    for term, leaf in zip(
        ALL.drive_terms, ("armature", "friction.viscous", "friction.coulomb", "friction.offset"), strict=True
    ):
        assert (term in terms) != np.array_equal(attrgetter(leaf)(chain), attrgetter(leaf)(truth))


def test_units_are_those_of_the_joint():
    units = dict(zip(ALL.names(3), ALL.units(random_chain(3, seed=4)), strict=True))
    assert [units[name] for name in ("m1", "mx1", "Ixy3", "Ia1", "fv1", "fc1", "off3")] == [
        *("kg", "kg m", "kg m^2", "kg m^2", "N m s/rad", "N m", "N m")
    ]
    assert [units[name] for name in ("Ia2", "fv2", "fc2", "off2")] == ["kg", "N s/m", "N", "N"]  # it slides


def test_unknown_drive_terms_are_refused(truth):
    unknown: Any = ("viscous", "stiction")
    jaxtyping.config.update("jaxtyping_disable", True)  # users have no type checker running: the message is for them
    try:
        with pytest.raises(IdentificationError, match="unknown drive term 'stiction'; the terms are armature, viscous"):
            Columns(unknown)
        with pytest.raises(ModelError, match="unknown drive term 'stiction'; the terms are armature, viscous"):
            drive_regressor(truth, jnp.zeros(3), jnp.zeros(3), unknown)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def test_impossible_links_are_named(truth):
    inertia = np.array(truth.inertia)
    inertia[0, 0], inertia[2, 9] = -1.0, 50.0
    faults = impossible_links(with_inertial_parameters(truth, jnp.asarray(inertia)))
    assert len(faults) == 2
    assert "'link1': mass -1 kg is not positive" in faults[0] and "'link3'" in faults[1] and "triangle" in faults[1]


def test_fit_quality_by_hand():
    tau = np.array([[3.0, 1.0], [4.0, 0.0], [0.0, 2.0], [0.0, 2.0]])
    prediction = tau - np.array([[0.3, 0.0], [0.4, 0.0], [1.0, 1.0], [0.0, 1.0]])
    qd = np.array([[1.0, 0.0], [-0.5, 0.01], [0.0, 0.0], [0.02, 0.0]])
    fit = fit_quality(tau, prediction, qd)
    np.testing.assert_allclose(fit.rms, np.sqrt([1.25 / 4, 2 / 4]))
    np.testing.assert_allclose(fit.relative, 100 * np.sqrt([1.25 / 25, 2 / 9]))
    np.testing.assert_allclose(fit.relative_moving, [10.0, np.nan])  # joint 2 never moves
    np.testing.assert_allclose(fit.total_relative, 100 * np.sqrt(3.25 / 34))
    assert fit.samples == 4


def test_columns_are_chosen_by_their_size_beside_the_largest():
    """Whatever the unit of the whole; what the columns chosen before leave nothing of is expressed by them."""
    rng = np.random.default_rng(0)
    r = rng.normal(size=(40, 5))
    r[:, 4] = 2 * r[:, 1] - 0.5 * r[:, 3]
    r[:, 2] *= 1e-9
    names, order = tuple("abcde"), (4, 2, 0, 3, 1)
    for size in (1e-4, 1.0, 1e4):
        base = _select(size * r, names, order, 1e-7)
        assert base.kept.tolist() == [4, 0, 3] and base.unidentifiable == ("c",) and base.dropped == ("b",)
        np.testing.assert_allclose(base.matrix[:, 1], [0.5, 0, 0.25], atol=1e-9)
        assert base.names == ("e + 0.5 b", "a", "d + 0.25 b")
    assert _select(r, names, order, 1e-11).kept.tolist() == [4, 2, 0, 3]
    assert _select(np.diag([1.0, 3e-7, 3e-8]), names[:3], (0, 1, 2), 1e-7).kept.tolist() == [0, 1]
    with pytest.raises(IdentificationError, match="no parameter has any effect"):
        _select(0 * r, names, order, 1e-7)


def test_columns_that_are_alike_to_seven_digits_do_not_raise_the_rank():
    """As those of a Romeo's finger joints, whose axes its file rounds: a, a + 1e-8 u and u are two directions, not three."""
    rng = np.random.default_rng(0)
    a, u = np.linalg.qr(rng.normal(size=(60, 12)))[0].T.reshape(2, 6, 60)
    r = np.concatenate([a, a + 1e-8 * u, u, a - 0.5 * u]).T
    names = tuple(f"{kind}{k}" for kind in ("a", "b", "u", "c") for k in range(6))
    base = _select(r, names, tuple(range(24)), RANK_TOLERANCE)
    assert base.size == 12 and np.abs(r - r[:, base.kept] @ base.matrix).max() < 2e-8
    assert base.names[:6] == tuple(f"a{k} + b{k} + c{k}" for k in range(6))
    assert base.names[6:] == tuple(f"u{k} - 0.5 c{k}" for k in range(6))


def _arm_of(joints, version="1.0"):
    """URDF of an arm of four links, from the attributes of each joint's origin and its axis."""
    body = (
        '<inertial><origin xyz="0.1 0.02 0.03"/><mass value="1"/>'
        '<inertia ixx="0.1" ixy="0" iyy="0.11" ixz="0" iyz="0" izz="0.12"/></inertial>'
    )
    text = f'<robot name="arm" version="{version}"><link name="l0"/>'
    for i, (turn, axis) in enumerate(joints, 1):
        text += (
            f'<link name="l{i}">{body}</link><joint name="j{i}" type="revolute"><parent link="l{i - 1}"/><child link="l{i}"/>'
            f'<origin xyz="0.3 0 0.1" {turn}/><axis xyz="{axis}"/>'
            '<limit lower="-2" upper="2" effort="9" velocity="3"/></joint>'
        )
    return text + "</robot>"


def _rolls(*angles):
    return [(f'rpy="{a} 0 0"', "0 0 1") for a in angles]


H, Q = np.pi / 2, 0.5**0.5
ROUNDED = {
    "1.5708": (_rolls(0, "1.5708", 0, "-1.5708"), _rolls(0, H, 0, -H)),
    "1.571 and 1.57": (_rolls(0, "1.571", 0, "-1.57"), _rolls(0, H, 0, -H)),
    "truncated and padded": (_rolls(0, "1.57079", 0, "-1.570800"), _rolls(0, H, 0, -H)),
    "pi": (_rolls("3.14", "3.1416", "-3.142", "3.14159"), _rolls(2 * H, 2 * H, -2 * H, 2 * H)),
    "20 and 70 degrees": (_rolls(0, "0.3491", "1.2217", "-1.5708"), _rolls(0, H / 4.5, 3.5 * H / 4.5, -H)),
    "axis at 45 degrees": (
        [*_rolls(0), ('rpy="-0.785 0 0"', "0 0.7071 0.7071"), ("", "0 0.707 0.707"), *_rolls("0.785")],
        [*_rolls(0), (f'rpy="{-H / 2} 0 0"', f"0 {Q} {Q}"), ("", f"0 {Q} {Q}"), *_rolls(H / 2)],
    ),
    "axis at 30 degrees": (
        [*_rolls(0), ('rpy="0.5236 0 0"', "0 0.866 0.5"), ("", "0 0.8660 0.5"), ("", "0 -0.5 0.866")],
        [
            *_rolls(0),
            (f'rpy="{H / 3} 0 0"', f"0 {0.75**0.5} 0.5"),
            ("", f"0 {0.75**0.5} 0.5"),
            ("", f"0 -0.5 {0.75**0.5}"),
        ],
    ),
    "axis turned by 1.5708": (
        [*_rolls(0), ("", "0 1 3.673205e-06"), ("", "0 1 3.67321e-06"), *_rolls(0)],
        [*_rolls(0), ("", "0 1 0"), ("", "0 1 0"), *_rolls(0)],
    ),
    "quaternion": (
        [
            *_rolls(0),
            ('quat_xyzw="0.2588 0 0 0.9659"', "0 0 1"),
            *_rolls(0),
            ('quat_xyzw="-0.2588 0 0 0.9659"', "0 0 1"),
        ],
        _rolls(0, H / 3, 0, -H / 3),
    ),
}


@pytest.mark.parametrize(("rounded", "exact"), ROUNDED.values(), ids=ROUNDED)
def test_rounding_in_the_file_adds_no_base_parameters(rounded, exact, annotations_unchecked):
    chain, whole = loads(_arm_of(rounded, "1.1")), loads(_arm_of(exact))
    found, expected = base_parameters(chain), base_parameters(whole)
    assert found.names == expected.names
    assert whole.topology.unrounded == () and chain.topology.rounding > 1e-7
    assert "are rounded" in str(rounding_note(chain))
    assert rounding_note(whole) is None


@pytest.mark.parametrize("angle", ["1.5708123", "1.5718", "1.58", "1.5707001"])
def test_an_angle_with_enough_digits_keeps_its_parameters(angle):
    chain, parallel = loads(_arm_of(_rolls(0, angle, 0, f"-{H}"))), loads(_arm_of(_rolls(0, H, 0, -H)))
    assert base_parameters(chain).size == base_parameters(parallel).size + 1
    assert rounding_note(chain) is None


def test_the_exact_geometry_lasts_until_the_geometry_is_changed(tmp_path, annotations_unchecked):
    chain = loads(_arm_of(_rolls(0, "1.57", 0, "-1.5708")))
    assert_same_numbers = lambda a, b: np.testing.assert_array_equal(a.rotation, b.rotation)
    assert float(chain.rotation[1, 2, 1]) == np.sin(1.57)  # as in the file
    save_model(chain, tmp_path / "model.eqx")
    back = load_model(tmp_path / "model.eqx")
    assert_same_numbers(back, chain)
    assert (back.topology.unrounded, back.topology.rounding) == (chain.topology.unrounded, chain.topology.rounding)
    assert pickle.loads(pickle.dumps(chain)).topology.unrounded == chain.topology.unrounded
    assert base_parameters(back).size == base_parameters(chain).size
    calibrated = dataclasses.replace(chain, rotation=chain.rotation @ so3.rotation_exp(jnp.array([0.0, 0.002, 0.0])))
    assert rounding_note(calibrated) is None
    assert base_parameters(calibrated).size > base_parameters(chain).size


def test_rounded_denavit_hartenberg_tables_and_mjcf_add_no_base_parameters(annotations_unchecked):
    tables = ([1.5708, 0, 1.571, -1.57], 1.57), ([H, 0, H, -H], H)
    rounded, exact = (from_dh([0, 0.3, 0, 0.0], alpha, [0.3, 0, 0.2, 0.1], [0, 0, h, 0]) for alpha, h in tables)
    assert base_parameters(rounded).names == base_parameters(exact).names
    pytest.importorskip("mujoco")

    def robot(*turns, compiler="angle='radian'"):
        text = f"<mujoco><compiler {compiler}/><worldbody>"
        for turn in turns:
            inertial = '<inertial pos="0.1 0.02 0.03" mass="1" diaginertia="0.1 0.11 0.12"/>'
            text += f'<body pos="0.3 0 0.1" {turn}>{inertial}<joint axis="0 0.707 0.707"/>'
        return loads(text + "</body>" * len(turns) + "</worldbody></mujoco>")

    exact = robot("", "euler='90 0 0'", "", "euler='0 -90 0'", compiler="")
    for turns in (
        ("euler='1.5708 0 0'", "euler='0 -1.571 0'"),
        ("quat='0.707105 0.707108 0 0'", "quat='0.707107 0 -0.707107 0'"),
    ):
        assert base_parameters(robot("", turns[0], "", turns[1])).names == base_parameters(exact).names

"""Consistent estimation: two routes to one optimum, constraints, intervals, and models that other libraries accept."""

import dataclasses

import jax.numpy as jnp
import mujoco
import numpy as np
import pinocchio as pin
import pytest

from helpers import linear_friction, random_chain
from jaxdyn import IdentificationError, identify, robots, save_urdf, textbook, with_inertial_parameters
from jaxdyn.identification import (
    Columns,
    Consistency,
    Terms,
    base_parameters,
    entropic_divergence,
    known_parameters,
    linear_constraints,
    random_excitation,
    solve,
    synthetic_log,
)
from jaxdyn.identification.accumulate import accumulate
from jaxdyn.identification.base import nearest_parameters, with_possible_links, with_thickness
from jaxdyn.identification.columns import prior_parameters
from jaxdyn.identification.consistency import bounding_ellipsoid
from jaxdyn.identification.consistent import consistent_least_squares, consistent_problem
from jaxdyn.identification.factors import QRFactors
from jaxdyn.identification.prediction import predict
from jaxdyn.io import load
from jaxdyn.spatial.inertia import check_consistent, pseudo_inertia
from regression import known_arm, states
from semidefinite import semidefinite_least_squares

COLUMNS = Columns()
NAMES = COLUMNS.names(2)
NOISE = np.array([0.5, 0.2])


def noisy(clean: QRFactors, x: np.ndarray, seed: int, noise: np.ndarray = NOISE) -> QRFactors:
    """The factors of a log with parameters x and white noise, drawn in the factors themselves: Q^T e is white too."""
    rng = np.random.default_rng(seed)
    p = len(x)
    r = clean.r.copy()
    for j, sigma in enumerate(noise):
        signs = np.where(np.diagonal(clean.r[j, :p, :p]) < 0, -1.0, 1.0)  # those of the rows are arbitrary
        r[j, :p, p] = clean.r[j, :p, :p] @ x + sigma * signs * rng.normal(size=p)
        r[j, p, p] = sigma * np.sqrt(rng.chisquare(clean.counts[j] - p))
    return QRFactors(r, clean.counts)


@pytest.fixture(scope="module")
def arm():
    """Two revolute joints: chain, base parameters, factors of 400 samples without torque, true and prior parameters."""
    chain = linear_friction(random_chain(2, seed=1, joints="revolute"))
    base = base_parameters(chain, COLUMNS)
    q, qd, qdd = states(400, 2)
    clean = accumulate(COLUMNS, chain, q, qd, qdd, np.zeros_like(q))
    prior = dataclasses.replace(chain, inertia=chain.inertia * jnp.asarray([[0.7], [1.4]]))
    return chain, base, clean, prior_parameters(chain, COLUMNS), prior_parameters(prior, COLUMNS)


def problem(arm, x=None, seed=0, **options):
    _, base, clean, truth, prior = arm
    factors = noisy(clean, truth if x is None else x, seed)
    wls = solve(factors, base)
    return wls, consistent_problem(wls, base, COLUMNS, prior, **options)


@pytest.fixture(scope="module")
def impossible(arm):
    """Parameters that fit a log best and that no robot has: a link with a moment too large, and negative friction."""
    x = arm[3].copy()
    x[[14, 19]] *= [0.1, 2.5]
    x[NAMES.index("fv2")] = -0.1
    return x


def test_both_routes_reach_one_optimum(arm, impossible):
    for x in (None, impossible):
        _, p = problem(arm, x)
        ours, other = consistent_least_squares(p, arm[1]), semidefinite_least_squares(p, arm[1])
        assert ours.converged and abs(ours.cost - other.cost) < 1e-6 * other.cost
        np.testing.assert_allclose(ours.values, other.values, atol=0.1 * ours.standard_deviations.max())
        assert ours.misfit >= ours.least_misfit and ours.cost >= ours.misfit
        for link in ours.parameters[:20].reshape(2, 10):
            check_consistent("", link)
        assert np.all(ours.parameters[p.positive] > 0)
        np.testing.assert_array_equal(p.ridge > 0, np.arange(len(p.ridge)) >= 20)  # of drive terms only
    assert ours.misfit > ours.least_misfit + 10  # the last one had to give way


def test_both_routes_keep_what_is_known(arm, impossible):
    known = (
        Consistency(mass=5.0, constraints=known_parameters(NAMES, {"mx2": 0.1})).of(NAMES).constraints
        + linear_constraints(NAMES, {"m1": 1.0}, most=1.5)
        + linear_constraints(NAMES, {"m2": 1.0}, least=3.0)
        + bounding_ellipsoid(NAMES, 2, np.array([0.1, 0.0, 0.0]), np.array([0.4, 0.5, 0.6]))
    )
    _, p = problem(arm, impossible, constraints=known)
    ours, other = consistent_least_squares(p, arm[1]), semidefinite_least_squares(p, arm[1])
    assert ours.converged and abs(ours.cost - other.cost) < 1e-6 * other.cost
    for x in (ours.parameters, other.parameters):
        np.testing.assert_allclose(known.equal @ x, known.equal_to, atol=1e-6)
        assert np.all(known.least @ x > known.least_of - 1e-6)
        assert (
            x[0] + x[10] == pytest.approx(5.0, abs=1e-6) and x[11] == pytest.approx(0.1, abs=1e-6) and x[0] < 1.5 + 1e-6
        )


def test_the_optimum_is_that_of_the_unconstrained_estimate_where_it_is_possible(arm):
    wls, p = problem(arm, seed=1)
    ours = consistent_least_squares(p, arm[1])
    assert np.abs((ours.values - wls.values) / wls.standard_deviations).max() < 1
    assert np.all(ours.standard_deviations < 1.05 * wls.standard_deviations)
    weak = consistent_least_squares(dataclasses.replace(p, weight=1e-3), arm[1])
    assert np.abs((weak.values - wls.values) / wls.standard_deviations).max() < 0.01
    factors, base = noisy(arm[2], arm[3], 1), arm[1]
    rows = np.concatenate(factors.r / wls.noise[:, None, None])
    squares = np.linalg.norm(rows[:, -1] - rows[:, base.kept] @ np.linalg.lstsq(rows[:, base.kept], rows[:, -1])[0])
    assert ours.cost == pytest.approx(p.cost(ours.parameters))
    assert ours.least_misfit == p.floor == pytest.approx(0.5 * squares**2)
    # residuals that are alike: what they add to the unconstrained covariance C_0 is followed by C C_0^-1
    c, alone = ours.covariance - np.outer(ours.pull, ours.pull), wls.covariance
    alike = ours.with_covariance_of(dataclasses.replace(wls, covariance=4 * alone, independent=alone))
    np.testing.assert_allclose(alike.covariance, ours.covariance + 3 * c @ np.linalg.solve(alone, c), rtol=1e-6)


def test_ellipsoid_bounds_second_moments():
    centre, axes = np.array([0.1, -0.2, 0.3]), np.array([0.5, 0.4, 0.3])
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    bound = bounding_ellipsoid(NAMES, 2, centre, axes, rotation)
    for inside, point in ((True, [0.2, 0.1, -0.1]), (False, [0.6, 0.3, 0.1])):
        at = centre + rotation @ point
        moments = at @ at * np.eye(3) - np.outer(at, at)
        x = np.zeros(len(NAMES))
        x[10:20] = 2 * np.array([1, *at, *moments[[0, 0, 1, 0, 1, 2], [0, 1, 1, 2, 2, 2]]])
        expected = 2 * (1 - ((np.array(point) / axes) ** 2).sum())
        assert (bound.least @ x)[0] == pytest.approx(expected, abs=1e-12) and ((bound.least @ x)[0] > 0) == inside


def test_confidence_intervals_hold_the_truth(arm):
    _, base, clean, truth, _ = arm
    expected = base.matrix @ truth
    z = []
    for seed in range(200):
        wls = solve(noisy(clean, truth, seed), base)
        z.append(np.abs(wls.values - expected) / wls.standard_deviations)
    inside = np.mean(np.array(z) < 1.96)
    assert 0.935 < inside < 0.965 and np.mean(np.array(z) < 1, axis=0).min() > 0.55


@pytest.mark.nightly
def test_confidence_intervals_of_consistent_estimates_hold_the_truth(arm):
    _, base, _, truth, _ = arm
    expected = base.matrix @ truth
    z = []
    for seed in range(200):
        ours = consistent_least_squares(problem(arm, seed=seed)[1], base)
        z.append(np.abs(ours.values - expected) / ours.standard_deviations)
    # 0.930 over 400 draws: a prior 30 to 40 % off takes its share of the 0.95
    assert 0.91 < np.mean(np.array(z) < 1.96) < 0.98


def test_refusals(arm):
    _, base, clean, truth, prior = arm
    factors = noisy(clean, truth, 0)
    wls = solve(factors, base)
    bad = prior.copy()
    bad[19] = 100.0
    with pytest.raises(IdentificationError, match="the prior is not physically consistent: link '2'"):
        consistent_problem(wls, base, COLUMNS, bad)
    with pytest.raises(IdentificationError, match="the prior's weight is 0"):
        consistent_problem(wls, base, COLUMNS, prior, weight=0.0)
    with pytest.raises(IdentificationError, match="the prior has shape"):
        consistent_problem(wls, base, COLUMNS, prior[:-1])
    with pytest.raises(
        IdentificationError, match="the constraints are on 3 parameters, but there are 28 full parameters"
    ):
        consistent_problem(wls, base, COLUMNS, prior, constraints=known_parameters(("a", "b", "c"), {"a": 1.0}))
    with pytest.raises(IdentificationError, match="unknown parameter 'm9'"):
        known_parameters(NAMES, {"m9": 1.0})
    with pytest.raises(IdentificationError, match="total mass is -1"):
        Consistency(mass=-1.0).of(NAMES)
    with pytest.raises(IdentificationError, match="the lower bound on m1 exceeds the upper bound"):
        linear_constraints(NAMES, {"m1": 1.0}, least=2.0, most=1.0)
    with pytest.raises(IdentificationError, match="specify equal, least or most of the sum of m1, m2"):
        linear_constraints(NAMES, {"m1": 1.0, "m2": 1.0})
    with pytest.raises(IdentificationError, match="there is no link 3; links are numbered from 1 to 2"):
        bounding_ellipsoid(NAMES, 3, np.zeros(3), np.ones(3))
    with pytest.raises(IdentificationError, match="three positive semi-axes"):
        bounding_ellipsoid(NAMES, 1, np.zeros(3), np.zeros(3))
    with pytest.raises(IdentificationError, match="a row of equal is zero"):
        linear_constraints(NAMES, {"m1": 0.0}, equal=1.0)
    with pytest.raises(IdentificationError, match="cannot be combined"):
        known_parameters(NAMES, {"m1": 1.0}) + linear_constraints(NAMES[:4], {"m1": 1.0}, least=1.0)
    contradiction = linear_constraints(NAMES, {"m1": 1.0}, least=3.0) + known_parameters(NAMES, {"m1": 1.0})
    _, p = problem(arm, constraints=contradiction)
    with pytest.raises(IdentificationError, match="no physically consistent parameters satisfy the constraints"):
        consistent_least_squares(p, base)
    with pytest.raises(ValueError, match="the semidefinite program is infeasible"):
        semidefinite_least_squares(p, base)


def accepted_elsewhere(path) -> None:
    """Pinocchio's pseudo-inertias of a URDF are positive definite, and MuJoCo compiles it."""
    model = pin.buildModelFromUrdf(str(path))
    for inertia in list(model.inertias)[1:]:
        assert np.linalg.eigvalsh(pin.PseudoInertia.FromInertia(inertia).toMatrix()).min() > 0
    assert mujoco.MjModel.from_xml_path(str(path)).nv == model.nv


@pytest.fixture(scope="module")
def run():
    """A three-joint arm, a prior that is off, and a short noisy log, from which the plain estimate is of no body."""
    truth = known_arm()
    prior = with_inertial_parameters(truth, truth.inertia * jnp.asarray([[1.5], [0.6], [1.3]]))
    return truth, prior, synthetic_log(truth, random_excitation(truth, 10.0, 5, seed=1), 4.0, 250.0, 1e-4, 2.0)


def test_identified_chains_are_possible_and_others_read_them(run, tmp_path):
    truth, prior, log = run
    result = identify(prior, log, terms=Terms(choose=()), consistent=Consistency(mass=float(truth.inertia[:, 0].sum())))
    found = result.consistent
    assert found is not None and found.converged and result.inconsistent_links == ()
    np.testing.assert_array_equal(result.parameters, found.parameters)
    assert result.parameters[:30:10].sum() == pytest.approx(float(truth.inertia[:, 0].sum()), rel=1e-8)
    for evaluation in (*result.fitted, *result.validation):
        assert np.all(evaluation.fit.rms < 1.05 * evaluation.unconstrained.rms)
    np.testing.assert_allclose(result.base.matrix @ result.unconstrained, result.estimate.values, rtol=1e-8, atol=1e-10)
    save_urdf(result.chain, tmp_path / "identified.urdf")
    accepted_elsewhere(tmp_path / "identified.urdf")
    np.testing.assert_allclose(load(tmp_path / "identified.urdf").inertia, result.chain.inertia, rtol=1e-6, atol=1e-9)
    inertia = np.array(prior.inertia)
    inertia[1, 9] *= 20
    impossible = with_inertial_parameters(prior, jnp.asarray(inertia))
    projected, names = with_possible_links(impossible)
    assert names == ("link2",) and np.array_equal(projected.inertia[::2], prior.inertia[::2])
    thick, named = with_thickness(impossible)
    assert "link2" in named
    np.testing.assert_allclose(projected.inertia[1], thick.inertia[1])
    # the nearest second moments of mass: the difference is at right angles to them, and negative semidefinite
    at = [np.asarray(pseudo_inertia(jnp.asarray(x[1])), float)[:3, :3] for x in (projected.inertia, inertia)]
    assert np.linalg.eigvalsh(at[1] - at[0]).max() < 1e-9 and np.array_equal(projected.inertia[1, :4], inertia[1, :4])
    inertia[1, 0] = -1.0
    with pytest.raises(IdentificationError, match=r"link 'link2': mass -1 kg is not positive.* consistent=None"):
        identify(with_inertial_parameters(prior, jnp.asarray(inertia)), log, terms=Terms(choose=()))


def test_bodies_without_thickness_get_some():
    chain = textbook.planar_elbow(l1=0.7, lc1=0.3, lc2=0.25)
    points = np.zeros((2, 10))
    points[:, 0], points[:, 1] = 2.0, 0.6
    points[:, [6, 9]] = 0.18  # 2 kg at x = 0.3
    points[1] = [1, 0, 0, 0, 0.02, 0, 0.01, 0, 0, 0.01]  # a plate through the origin
    thick, names = with_thickness(with_inertial_parameters(chain, jnp.asarray(points)))
    assert names == chain.link_names
    np.testing.assert_allclose(thick.inertia[0], [2, 0.6, 0, 0, 0.0036, 0, 0.1836, 0, 0, 0.1836][:10], rtol=1e-12)
    for pi in np.asarray(thick.inertia):
        check_consistent("", pi)
    own = np.array([2.0, 0.6, 0, 0, 0.1, 0, 0.25, 0, 0, 0.25])
    same, names = with_thickness(with_inertial_parameters(chain, jnp.asarray([own, own])))
    assert names == () and np.array_equal(same.inertia, [own, own])


@pytest.mark.nightly
def test_a_panda_is_identified_as_accurately_as_by_least_squares():
    """70 parameters from 4 s at 500 Hz with torque noise of 0.05 N m."""
    truth = robots.panda()
    columns = Columns(())
    motion = random_excitation(truth, 4.0, 5, seed=1)
    q, qd, qdd = (np.asarray(x) for x in motion(jnp.arange(2000) / 500))
    prior = with_inertial_parameters(truth, truth.inertia * (1 + 0.15 * np.random.default_rng(0).normal(size=(7, 1))))
    x, own = prior_parameters(truth, columns), prior_parameters(prior, columns)
    base = base_parameters(truth, columns)
    clean = predict(columns, truth, x, q, qd, qdd)
    tau = clean + 0.05 * np.random.default_rng(1).normal(size=clean.shape)

    factors = accumulate(columns, truth, q, qd, qdd, tau)
    wls = solve(factors, base)
    ours = consistent_least_squares(consistent_problem(wls, base, columns, own), base)
    other = [np.asarray(v) for v in random_excitation(truth, 4.0, 5, seed=2)(jnp.arange(1000) / 250)]
    unseen = predict(columns, truth, x, *other)
    ols, found = (
        np.sqrt(((predict(columns, truth, v, *other) - unseen) ** 2).mean())
        for v in (nearest_parameters(base, wls.values, own), ours.parameters)
    )
    assert found < 1.001 * ols < 0.0098 and base.size == 43
    assert np.mean(np.abs(ours.values - base.matrix @ x) < 1.96 * ours.standard_deviations) > 0.8


def test_the_cost_is_misfit_prior_and_what_holds_unseen_drive_terms(arm):
    _, p = problem(arm)
    p = dataclasses.replace(p, matrix=np.where(np.arange(28) == 24, 0.0, p.matrix), weight=0.7)
    x = p.prior.copy()
    x[:20] = arm[3][:20]
    x[[24, 25]] += [1e5, 0.01]
    misfit = p.floor + 0.5 * ((p.matrix @ x - p.values) ** 2).sum()
    assert p.misfit(x) == pytest.approx(misfit, rel=1e-12)
    links = jnp.asarray(x[:20].reshape(2, 10)), jnp.asarray(p.prior[:20].reshape(2, 10))
    divergence = sum(float(entropic_divergence(a, b)) for a, b in zip(*links, strict=True))
    held = 0.5e-8 * (1e5**2 + 0.01**2 * (p.matrix[:, 25] ** 2).sum())
    assert p.cost(x) - misfit == pytest.approx(0.7 * divergence + held, rel=1e-6) and divergence > 0.01
    unseen = NAMES.index("off1")
    elsewhere, start = p.prior.copy(), p.start.copy()
    elsewhere[unseen], start[unseen] = 1e7, 1.0
    p = dataclasses.replace(p, matrix=np.where(np.arange(28) == unseen, 0.0, p.matrix), prior=elsewhere, start=start)
    found = consistent_least_squares(p, arm[1])
    assert found.converged and found.parameters[unseen] == pytest.approx(1e7, rel=1e-3)


def test_thickness_is_a_share_of_the_longest_side():
    """A plate of sides that differ, off the origin and turned: its largest second moment gives the thickness."""
    chain, mass, sides = textbook.planar_elbow(), 1.5, np.array([0.3, 0.1, 0.0])
    turn = np.linalg.qr(np.random.default_rng(3).normal(size=(3, 3)))[0]
    centre = np.array([0.02, 0.05, -0.01])

    def body(spread):
        second = mass * (turn @ np.diag(spread**2) @ turn.T + np.outer(centre, centre))
        about = np.trace(second) * np.eye(3) - second
        return [mass, *mass * centre, *about[[0, 0, 1, 0, 1, 2], [0, 1, 1, 2, 2, 2]]]

    thick, names = with_thickness(with_inertial_parameters(chain, jnp.asarray([body(sides), body(sides + 0.2)])))
    assert names == chain.link_names[:1]
    np.testing.assert_allclose(thick.inertia[0], body(np.array([0.3, 0.1, 0.03])), rtol=1e-9, atol=1e-12)
    far = np.array([mass, *mass * 10 * centre, *np.zeros(6)])
    moments = 100 * (centre @ centre * np.eye(3) - np.outer(centre, centre)) * mass
    far[4:] = moments[[0, 0, 1, 0, 1, 2], [0, 1, 1, 2, 2, 2]]  # a point
    thick, _ = with_thickness(with_inertial_parameters(chain, jnp.asarray([far, far])))
    about = thick.inertia[0, 4:] - far[4:]
    size = np.linalg.norm(10 * centre)
    np.testing.assert_allclose(about, mass * 2 * (0.1 * size) ** 2 * np.array([1, 0, 1, 0, 0, 1]), atol=1e-12)

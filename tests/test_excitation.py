"""Excitation design: families of motions, limits, quality of a motion, and designs within limits that beat random ones."""

import dataclasses
import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from helpers import once
from jaxdyn import IdentificationError, Log, ModelError, friction_force, inverse_dynamics, load, read_log, textbook
from jaxdyn.cli import main
from jaxdyn.identification import (
    Columns,
    Filters,
    FourierSeries,
    base_parameters,
    compare_with_log,
    draw_trajectory,
    excitation_design as excitation_design,
    motion_limits,
    optimal_excitation,
    preprocess,
    random_excitation,
    sample_trajectory,
    variance_ratio,
    write_trajectory,
)
from jaxdyn.identification.excitation import (
    LIMIT_NAMES,
    MotionLimits,
    balanced,
    bounded,
    largest_shares,
    repaired,
    rest_basis,
)
from jaxdyn.identification.excitation_design import (
    ExcitationProblem,
    ExcitationSearch,
    Setting,
    State,
    advance,
    begin,
    criteria,
    excitation_quality,
    rated,
    summary,
)
from jaxdyn.identification.separation import GivenFunction, Tangents, tangents
from regression import dense, known_arm, states


@pytest.mark.parametrize("family", [FourierSeries(4.0, 5), FourierSeries(3.0, 8)], ids=repr)
def test_matrices_and_trajectories_are_one_motion_at_rest_at_both_ends(family):
    rest = rest_basis(family)
    coefficients = (rest @ np.random.default_rng(0).normal(size=(rest.shape[1], 2))).T
    t = np.linspace(0, family.duration, 41)
    q, qd, qdd, qddd = family.matrices(t) @ coefficients.T
    trajectory = family.trajectory(coefficients)
    assert trajectory.duration == family.duration
    motion = jax.jit(lambda t: jax.jvp(trajectory, (t,), (jnp.ones_like(t),)))(jnp.asarray(t))
    (x, xd, xdd), (y, yd, ydd) = motion
    for ours, theirs in ((x, q), (xd, qd), (xdd, qdd), (y, qd), (yd, qdd), (ydd, qddd)):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9 * np.abs(theirs).max())
    np.testing.assert_allclose(np.stack([qd, qdd])[:, [0, -1]], 0, atol=1e-10 * np.abs(qdd).max())


def test_families_of_bad_numbers():
    with pytest.raises(IdentificationError, match="at least 3 harmonics, not 2"):
        FourierSeries(10.0, 2)
    with pytest.raises(IdentificationError, match="duration of the motion is -1 s"):
        FourierSeries(-1.0, 5)


def test_limits_come_from_the_chain_unless_given():
    chain = jaxdyn.model.with_leaves(known_arm(), {"limits.velocity": jnp.array([1.0, 2.0, 3.0])})
    limits = motion_limits(chain, lower=[-1, -2, -3], acceleration=5.0)
    np.testing.assert_array_equal(limits.velocity, [1, 2, 3])
    np.testing.assert_array_equal(limits.acceleration, [5, 5, 5])
    np.testing.assert_array_equal(limits.lower, [-1, -2, -3])
    assert np.isinf(limits.jerk).all() and np.isinf(limits.upper).all()
    np.testing.assert_array_equal(motion_limits(chain).acceleration, [2, 4, 6])  # half a second to the velocity limit
    np.testing.assert_array_equal(motion_limits(chain, velocity=1.5).acceleration, [3, 3, 3])
    np.testing.assert_array_equal(motion_limits(chain, velocity=np.inf).acceleration, [2, 2, 2])
    assert np.isinf(motion_limits(chain, acceleration=np.inf).acceleration).all()
    with pytest.raises(IdentificationError, match=r"velocity limit has shape \(2,\)"):
        motion_limits(chain, velocity=[1.0, 2.0])
    with pytest.raises(IdentificationError, match="torque limit contains NaN"):
        motion_limits(chain, torque=float("nan"))
    with pytest.raises(IdentificationError, match="joint2: the jerk limit is 0"):
        motion_limits(chain, jerk=[1, 0, 1])
    with pytest.raises(IdentificationError, match="joint1: the lower position limit 1 is not below the upper limit 1"):
        motion_limits(chain, lower=1.0, upper=1.0)


@pytest.mark.ci
def test_usage_of_limits_is_that_of_finite_differences():
    chain, motion = known_arm(), random_excitation(known_arm(), 4.0, 4, seed=1)
    limits = motion_limits(chain, lower=-2.0, upper=3.0, velocity=4.0, acceleration=9.0, jerk=50.0, torque=70.0)
    t = np.linspace(0, 4, 4001)
    used, least = limit_usage(chain, motion, limits, t, clearance=lambda q: 3.0 - q)
    q, qd, qdd = (np.asarray(x) for x in motion(jnp.asarray(t)))
    torque = jax.vmap(lambda *x: inverse_dynamics(chain, *x) + friction_force(chain, x[1]))
    tau = np.asarray(torque(*map(jnp.asarray, (q, qd, qdd))))
    slope = lambda x: np.gradient(x, t, axis=0)
    expected = {"position": (q - 0.5) / 2.5, "velocity": qd / 4, "acceleration": qdd / 9, "jerk": slope(qdd) / 50}
    expected |= {"torque": tau / 70}
    for name, values in expected.items():
        np.testing.assert_allclose(used[name], np.abs(values).max(0), rtol=1e-4)
    np.testing.assert_allclose(least, (3.0 - q).min(), rtol=1e-12)


def test_quality_is_that_of_the_stacked_regressor():
    chain, columns = known_arm(), Columns()
    base = base_parameters(chain, columns)
    noise = np.array([1.0, 0.5, 2.0])
    q, qd, qdd = states(60)
    quality = excitation_quality(chain, q, qd, qdd, columns, base, noise)
    w = (dense(chain, q, qd, qdd) / noise[None, :, None])[:, :, base.kept].reshape(-1, base.size)
    np.testing.assert_allclose(quality.log_det, np.linalg.slogdet(w.T @ w / 60)[1], rtol=1e-8)
    np.testing.assert_allclose(quality.condition, np.linalg.cond(w), rtol=1e-8)
    np.testing.assert_allclose(quality.scaled_condition, np.linalg.cond(w / np.linalg.norm(w, axis=0)), rtol=1e-8)
    twice = dataclasses.replace(quality, log_det=quality.log_det + base.size * np.log(2))
    np.testing.assert_allclose(variance_ratio(twice, quality), 2)
    with pytest.raises(IdentificationError, match="base parameters; use the same for both"):
        variance_ratio(quality, dataclasses.replace(quality, parameters=3))
    with pytest.raises(IdentificationError, match="15 rows of samples cannot determine"):
        excitation_quality(chain, q[:5], qd[:5], qdd[:5], columns, base)


def test_tables_are_logs(tmp_path):
    chain, motion = known_arm(), random_excitation(known_arm(), 2.0, 4, seed=1)
    samples = sample_trajectory(chain, motion, 100.0)
    assert len(samples.t) == 201 and samples.t[-1] == 2.0
    write_trajectory(tmp_path / "t.csv", samples)
    log = read_log(tmp_path / "t.csv", 3)
    np.testing.assert_allclose(log.q, samples.q, atol=1e-9)
    np.testing.assert_allclose(log.tau, samples.tau, rtol=1e-8, atol=1e-8)
    header = (tmp_path / "t.csv").read_text().splitlines()[0]
    assert header == "t,q1,q2,q3,qd1,qd2,qd3,qdd1,qdd2,qdd3,tau1,tau2,tau3"
    draw_trajectory(tmp_path / "t.png", chain, samples, motion_limits(chain, velocity=2.0))
    assert (tmp_path / "t.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(IdentificationError, match="specify a higher rate"):
        sample_trajectory(chain, motion, 0.1)
    with pytest.raises(IdentificationError, match=r"1\.5 samples per second are too few for a motion of 0\.5 s"):
        sample_trajectory(chain, random_excitation(chain, 0.5, 4), 1.5)
    with pytest.raises(ModelError, match="cannot be written"):
        write_trajectory(tmp_path / "none" / "t.csv", samples)


LIMITS = {"lower": -2.0, "upper": 2.0, "velocity": 2.0, "acceleration": 10.0, "torque": [60.0, 60.0, 12.0]}


def limit_usage(chain, trajectory, limits, t, clearance=None):
    """Shares of the limits by name, and the smallest clearance, from the trajectory and its exact derivatives."""
    (q, qd, qdd), (_, _, qddd) = jax.jvp(trajectory, (jnp.asarray(t),), (jnp.ones_like(jnp.asarray(t)),))
    clearance = None if clearance is None else GivenFunction(clearance)
    used, least, _ = largest_shares(chain, bounded(chain, limits), np.stack([q, qd, qdd, qddd]), clearance)
    return dict(zip(LIMIT_NAMES, used, strict=True)), least


def check(chain, design, usage, limits, clearance=None):
    """All limits hold at times that are not those of the design."""
    t = np.sort(np.random.default_rng(0).uniform(0, design.trajectory.duration, 3000))
    used, least = limit_usage(chain, design.trajectory, limits, t, clearance)
    for name, share in design.usage.items():
        assert share.max() <= usage * (1 + 1e-9), name
        assert used[name].max() <= usage + 2e-3, name
    assert design.clearance >= 0 and least > -1e-3
    for x in design.trajectory(jnp.array([0.0, design.trajectory.duration]))[1:]:
        np.testing.assert_allclose(x, 0, atol=1e-10)
    assert all(variance_ratio(design.quality, random) > 1.5 for random in design.random)


def test_coefficients_are_measured_by_how_far_they_go_through_the_limits():
    family, sizes = FourierSeries(3.0, 4), np.array([[0.5, 2.0], [3.0, 4.0], [9.0, 25.0]])
    matrices, rest = family.matrices(np.linspace(0, 3, 50)), rest_basis(family)
    found = balanced(matrices, rest, sizes)
    z = np.random.default_rng(0).normal(size=(2, rest.shape[1]))
    motion = np.einsum("dml,jlk,jk->djm", matrices[:3], found, z)
    np.testing.assert_allclose(((motion / sizes[:, :, None]) ** 2).sum(0).mean(1), (z**2).sum(1), rtol=1e-10)
    ends = np.einsum("dml,jlk->djmk", matrices[1:3][:, [0, -1]], found)
    np.testing.assert_allclose(ends, 0, atol=1e-10 * np.abs(found).max())


class Powers:
    """Columns without a robot: the first twenty are those of a motion of two joints by hand, two more are of the drives."""

    def matrix(self, chain, q, qd, qdd):
        own = jnp.stack([qdd, jnp.sin(q), q * qd, qd, jnp.cos(q) * qdd], axis=1)
        cross = jnp.stack([q[0] * qdd[1] + 0 * q, qd[0] * qd[1] + q, qdd * q[::-1]], axis=1)
        rest = jnp.zeros((2, 12), q.dtype)
        return jnp.concatenate([own, cross, rest, jnp.diag(qd)], axis=1)


KEPT = (0, 2, 3, 5, 6, 7, 21)


@pytest.fixture(scope="module")
def by_hand():
    """A setting, a problem, three starts, and tangents of clearances beside them."""
    rng, count = np.random.default_rng(4), 9
    chain = textbook.planar_elbow(l1=0.7, lc1=0.3, lc2=0.25)
    leaves = {"armature": [0.3, 0.1], "friction.viscous": [0.5, 0.2], "friction.offset": [0.3, -0.4]}
    chain = jaxdyn.model.with_leaves(chain, {name: jnp.asarray(x) for name, x in leaves.items()})
    coarse, fine = rng.normal(size=(4, 2, count, 3)), rng.normal(size=(4, 2, 2 * count, 3))
    clearance = GivenFunction(lambda q: jnp.stack([1.0 - q[0], 0.3 + q[0] * q[1], 2.0 - q[1]]))
    near = Tangents(*map(jnp.asarray, tangents(chain, clearance, rng.normal(size=(3, count, 2)))))
    bounds = ([-1.0, 0.5], [0.5, 3.0], [2.0, 3.0], [4.0, 3.0], [5.0, 9.0], [3.0, 2.0])
    limits = MotionLimits(*map(jnp.asarray, bounds))
    weights, scale = jnp.asarray([1.0, 0.4]), jnp.asarray(rng.uniform(0.5, 2, len(KEPT)))
    setting = Setting(Powers(), KEPT, torques=True)
    arrays = jnp.asarray(coarse), jnp.asarray(fine), limits, weights, scale
    return setting, ExcitationProblem(chain, *arrays), jnp.asarray(0.3 * rng.normal(size=(3, 2, 3))), near


def criterion_and_excess(setting, problem, z, near):
    """f and c <= 0 by stacked matrices, of the formulas at the solver's head."""
    chain, limits = problem.chain, problem.limits
    middle, half = (limits.upper + limits.lower) / 2, (limits.upper - limits.lower) / 2
    x = jnp.einsum("djmk,jk->dmj", problem.coarse, z)
    q, qd, qdd = x[0] + middle[None], x[1], x[2]
    rows = jnp.stack([setting.columns.matrix(chain, *s) for s in zip(q, qd, qdd, strict=True)])
    w = (rows[:, :, jnp.asarray(KEPT)] * problem.weights[None, :, None]).reshape(-1, len(KEPT))
    log_det = jnp.linalg.slogdet(w.T @ w / len(q))[1] - 2 * jnp.log(problem.scale).sum()
    sizes = jnp.linalg.svd(w, compute_uv=False)
    value = -log_det / len(KEPT) + 0.5 * jnp.log(sizes[0] / sizes[-1])
    bounds = (half, limits.velocity, limits.acceleration, limits.jerk)
    moved = jnp.einsum("djmk,jk->dmj", problem.fine, z)
    linear = jnp.stack([jnp.abs(y) / bound[None] - 1 for y, bound in zip(moved, bounds, strict=True)])
    tau = rows[:, :, :20] @ chain.inertia.reshape(-1) + chain.armature[None] * qdd
    tau += chain.friction.viscous[None] * qd + chain.friction.offset[None]
    others = [jnp.abs(tau) / limits.torque[None] - 1]
    others.append(-jnp.stack([c + slope @ (y - y0) for y, y0, c, slope in zip(q, *near, strict=True)]))
    return value, linear, jnp.concatenate([y.reshape(-1) for y in others])


@pytest.mark.ci
def test_the_solver_rates_motions_by_the_information_and_the_limits(by_hand):
    setting, problem, starts, near = by_hand
    values, sizes = criteria(setting, problem, starts)
    by_matrices = once(criterion_and_excess, static_argnums=0)
    for k, z in enumerate(starts):
        beside = Tangents(*(x[k] for x in near))
        value, linear, rest = by_matrices(setting, problem, z, beside)
        found = rated(setting, problem, z, beside)
        np.testing.assert_allclose([values[k], found.value], value, rtol=1e-6)
        for c, expected in zip(found.excess, (linear, rest), strict=True):
            np.testing.assert_allclose(c, expected, rtol=1e-12, atol=1e-12)
        q, qd, qdd, _ = np.einsum("djmk,jk->dmj", problem.coarse, z)
        q += np.asarray(problem.limits.upper + problem.limits.lower) / 2
        rows = [Powers().matrix(problem.chain, *map(jnp.asarray, state)) for state in zip(q, qd, qdd, strict=True)]
        w = np.asarray(rows)[:, :, KEPT] * np.asarray(problem.weights)[:, None]
        np.testing.assert_allclose(sizes[k], np.sqrt((w**2).sum(1).mean(0)), rtol=1e-12)


@pytest.mark.ci
def test_a_round_of_the_solver_is_adam_on_the_augmented_lagrangian(by_hand):
    setting, problem, starts, near = by_hand
    rates, penalty = jnp.asarray([0.03, 0.02, 0.05]), jnp.asarray(1.7)
    state = begin(setting, problem, starts, near)
    for last in (True, False):
        state = advance(setting, problem, state, rates, penalty, jnp.asarray(last))
    beside = Tangents(*(x[1] for x in near))

    def lagrangian(z, multipliers):
        value, *excess = criterion_and_excess(setting, problem, z, beside)
        for mu, c in zip(multipliers, excess, strict=True):
            value += jnp.where(mu + penalty * c > 0, mu * c + penalty * c**2 / 2, -(mu**2) / (2 * penalty)).sum()
        return value

    gradient, excess = once(jax.grad(lagrangian)), once(lambda z: criterion_and_excess(setting, problem, z, beside)[1:])
    z, mean, square, count = starts[1], 0.0, 0.0, 0
    multipliers = tuple(jnp.zeros_like(c) for c in excess(z))
    for last in (True, False):
        for rate in np.asarray(rates):
            slope, count = np.asarray(gradient(z, multipliers)), count + 1
            mean, square = 0.9 * mean + 0.1 * slope, 0.99 * square + 0.01 * slope**2
            z = z - rate * mean / (1 - 0.9**count) / (np.sqrt(square / (1 - 0.99**count)) + 1e-8)
        if last:  # the tangents of clearances are renewed within a round, the multipliers only at its end
            multipliers = tuple(jnp.maximum(0, mu + penalty * c) for mu, c in zip(multipliers, excess(z), strict=True))
    np.testing.assert_allclose(state.z[1], z, rtol=1e-6, atol=1e-8)
    for found, expected in zip(state.multipliers, multipliers, strict=True):
        np.testing.assert_allclose(found[1], expected, rtol=1e-5, atol=1e-6)


ELBOW = {"lower": [-1.0, -2.0], "upper": [1.5, 2.0], "velocity": [2.0, 3.0], "acceleration": [8.0, 12.0]}
ELBOW |= {"jerk": [90.0, 120.0], "torque": [60.0, 15.0]}
SHORT = FourierSeries(3.0, 4)


def room(q):
    return jnp.stack([1.3 - q[0], 1.0 + q[1] / 2])


@pytest.fixture(scope="module")
def elbow():
    """Two joints with friction, their limits of every kind, and the base parameters."""
    chain = textbook.planar_elbow(l1=0.7, lc1=0.3, lc2=0.25)
    leaves = {"friction.viscous": [0.5, 0.3], "friction.coulomb": [1.0, 0.4], "friction.coulomb_velocity": [0.05, 0.5]}
    chain = jaxdyn.model.with_leaves(chain, {name: jnp.asarray(x) for name, x in leaves.items()})
    return chain, motion_limits(chain, **ELBOW), base_parameters(chain, Columns())


@pytest.fixture
def elbow_search(elbow):
    chain, limits, base = elbow
    return excitation_design._Search(chain, SHORT, limits, 0.9, room, Columns(), base, np.array([2.0, 0.5]))


@pytest.mark.nightly
def test_a_design_of_two_joints_holds_limits_of_every_kind(elbow):
    chain, limits, _ = elbow
    settings = {
        "search": ExcitationSearch(2, 4),
        "limits": limits,
        "clearance": room,
        "usage": 0.9,
        "torque_noise": [2.0, 0.5],
    }
    design = optimal_excitation(chain, SHORT, **settings)
    check(chain, design, 0.9, limits, room)
    assert design.rounds == 4 and design.notes == () and max(x.max() for x in design.usage.values()) > 0.89
    again = optimal_excitation(chain, SHORT, **settings | {"search": ExcitationSearch(2, 4, time_limit=1e-9)})
    assert "time limit after 0 of 4 rounds" in again.notes[0]
    assert again.quality.log_det == max(random.log_det for random in again.random)
    held = limits._replace(torque=np.array([1e-3, 60.0]))
    with pytest.raises(IdentificationError, match=r"in the middle of the position ranges, joint1 needs .* its torque"):
        optimal_excitation(chain, SHORT, **settings | {"limits": held, "search": ExcitationSearch(2, 1)})

    # beside a recorded motion, and in words
    t = np.arange(1001) / 200
    waves = np.sin(t[:, None, None] * np.array([[2.0, 5.0, 9.0], [3.0, 4.0, 7.0]]) + np.arange(3)) / [1, 3, 5]
    log = Log(t=t, q=waves.sum(2), qd=None, tau=np.zeros((1001, 2)))
    compared = compare_with_log(chain, design, log, torque_noise=[2.0, 0.5], cutoff=12.0)
    s = preprocess(log, Filters(position_cutoff=12.0, stride=1))
    whole = excitation_quality(chain, s.q, s.qd, s.qdd, None, design.base, [2.0, 0.5])
    assert compared[0].samples == compared[1].samples <= len(s)
    np.testing.assert_allclose([x.log_det for x in compared], [design.quality.log_det, whole.log_det], atol=1.0)
    lines = summary(design, chain.joint_names, compared).splitlines()
    assert [x.split("  ")[0] for x in lines[1:6]] == [
        f"design ({design.base.size} parameters)",
        *("best of 2 random motions", "median random motion", "design, same filter as log", "log"),
    ]
    numbers = [float(x[30:40]) for x in lines[1:6]]
    worse, best = sorted(random.log_det for random in design.random)
    np.testing.assert_allclose(
        numbers, [design.quality.log_det, best, worse, *(x.log_det for x in compared)], atol=0.06
    )
    ratio = variance_ratio(design.quality, min(design.random, key=lambda x: x.log_det))
    assert f"{ratio:.2f} times" in lines[3] and "times" not in lines[4]
    share = dict(x.split(" %")[0].rsplit(maxsplit=1) for x in lines if " %" in x)
    for name, used in design.usage.items():
        assert float(share[f"  {name.replace('_', ' ')}"]) == pytest.approx(100 * used.max(), abs=0.06)
    assert lines[-1] == f"  smallest clearance {design.clearance:.3g}"


def test_a_search_sees_one_motion_on_all_its_grids(elbow, elbow_search):
    chain, limits, base = elbow
    z = np.random.default_rng(0).normal(size=(2, elbow_search.to_coefficients.shape[2]))
    trajectory, problem = elbow_search.trajectory(z), elbow_search.problem
    for finer, matrices in ((1, problem.coarse), (4, problem.fine), (10, elbow_search.verified)):
        t = elbow_search.times(finer)
        assert len(t) == 32 * finer + 1 and t[0] == 0 and t[-1] == 3.0 and np.ptp(np.diff(t)) < 1e-12
        motion = elbow_search.motion(np.asarray(matrices), z)
        for found, expected in zip(motion, trajectory(jnp.asarray(t)), strict=False):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
        slope = np.gradient(motion[2], t, axis=0, edge_order=2)
        np.testing.assert_allclose(slope, motion[3], atol=(0.2 / finer) * np.abs(motion[3]).max())
    middle = (limits.upper + limits.lower) / 2
    np.testing.assert_allclose(problem.limits.upper, middle + 0.9 * (limits.upper - middle), rtol=1e-14)
    np.testing.assert_allclose(problem.limits.lower, middle + 0.9 * (limits.lower - middle), rtol=1e-14)
    for name in ("velocity", "acceleration", "jerk", "torque"):
        np.testing.assert_allclose(getattr(problem.limits, name), 0.9 * getattr(limits, name), rtol=1e-14)
    # no smooth sign is narrower than a share of the velocity limit, itself at most the range at the highest frequency
    np.testing.assert_allclose(problem.chain.friction.coulomb_velocity, [0.09, 0.5], rtol=1e-12)
    np.testing.assert_allclose(problem.weights, [0.25, 1.0])
    free = limits._replace(velocity=np.full(2, np.inf))
    again = excitation_design._Search(chain, SHORT, free, 0.9, None, Columns(), base, np.ones(2))
    fastest = 0.9 * (limits.upper - limits.lower) / 2 * 2 * np.pi * 4 / 3.0
    np.testing.assert_allclose(
        again.problem.chain.friction.coulomb_velocity, np.maximum(chain.friction.coulomb_velocity, 0.05 * fastest)
    )
    assert again.setting.torques


def test_motions_are_scaled_until_they_hold_all_limits(elbow, elbow_search):
    chain, _, _ = elbow
    limits, middle = elbow_search.limits, elbow_search.middle
    z = 0.05 * np.random.default_rng(1).normal(size=(2, elbow_search.to_coefficients.shape[2]))
    offset = elbow_search.motion(elbow_search.verified, z)
    offset[0] -= middle

    def used(factors):
        motion = offset * factors
        motion[0] += middle
        return largest_shares(chain, limits, motion, GivenFunction(room))[:2]

    linear = used(np.ones(2))[0][:4].max(0)
    loose = limits._replace(torque=np.full(2, 1e9))
    factors, holds = repaired(chain, loose, middle, offset / linear * [3.0, 0.1], None)
    assert holds
    np.testing.assert_allclose(factors, [1 / 3, 1.0], rtol=1e-8)  # a joint that holds its limits is left alone
    # both joints alike where a torque is too large, to the next halving
    heavy = limits._replace(torque=np.array([16.0, 15.0]))
    offset /= linear
    factors, holds = repaired(chain, heavy, middle, offset, GivenFunction(room))
    share = factors[0]
    torques = [used(np.full(2, x))[0][4] * limits.torque / heavy.torque for x in (share, share + 1 / 256)]
    assert holds and share == factors[1] == pytest.approx(round(256 * share) / 256, rel=1e-8) and share < 1
    assert torques[0].max() <= 1 < torques[1].max()
    assert not repaired(chain, heavy._replace(torque=np.array([1.0, 15.0])), middle, offset, GivenFunction(room))[1]


def test_the_coarse_grid_asks_for_less_by_what_the_fine_one_shows(elbow_search):
    limits = elbow_search.limits
    z = 2.0 * np.random.default_rng(1).normal(size=(2, elbow_search.to_coefficients.shape[2]))
    most, _, _ = elbow_search._shares(z)
    elbow_search.limits = limits._replace(torque=most[4] / [1.05, 1.3] * limits.torque)
    elbow_search._tighten(z)
    found = elbow_search.problem
    np.testing.assert_allclose(found.limits.torque, limits.torque / [1.05, 1.1], rtol=1e-9)
    np.testing.assert_array_equal(found.limits.velocity, limits.velocity)
    # why nothing was found: what is not held at rest in the middle
    elbow_search.state = SimpleNamespace(z=z[None])
    assert elbow_search.why_none().endswith("or narrower position limits")
    away = limits._replace(lower=np.array([0.9, -2.0]), upper=np.array([2.1, 2.0]))
    elbow_search.limits, elbow_search.middle = away, np.array([1.5, 0.0])
    assert "in the middle of the position ranges, the clearance is -0.2;" in elbow_search.why_none()


def test_steps_fall_along_half_a_cosine_while_the_penalty_grows(elbow_search, monkeypatch):
    rates, penalties, calls = [], [], []

    def advance(setting, problem, state, rate, penalty, last):
        rates.append(np.asarray(rate))
        penalties.extend([float(penalty)] * bool(last))
        return state

    monkeypatch.setattr(excitation_design, "advance", advance)
    elbow_search.state, elbow_search._near = State(np.arange(3), (), None, None), lambda z: None
    elbow_search.take = lambda: calls.append(("taken", len(penalties))) or 2
    elbow_search._tighten = lambda z: calls.append(("tightened", len(penalties), int(z)))
    for done in range(10):
        elbow_search.go_on(done, 10)
    falling = 0.02 + (1 - 0.02) * (1 + np.cos(np.pi * np.arange(200) / 200)) / 2
    np.testing.assert_allclose(np.concatenate(rates), 0.03 * falling, rtol=1e-12)
    np.testing.assert_allclose(penalties, 1.15 ** np.arange(10), rtol=1e-6)
    assert calls == [("taken", 4), ("taken", 8), ("tightened", 8, 2), ("taken", 10), ("tightened", 10, 2)]
    elbow_search.go_on(60, 100)
    assert penalties[-1] == 100.0


@pytest.mark.nightly
def test_designs_hold_all_limits_and_beat_random_motions(monkeypatch):
    chain = known_arm()
    limits = motion_limits(chain, **LIMITS)
    settings = {"search": ExcitationSearch(2, 8), "limits": limits}
    calls = []
    design = optimal_excitation(chain, FourierSeries(4.0, 5), **settings, progress=lambda *x: calls.append(x))
    check(chain, design, 0.95, limits)
    assert design.rounds == 8 and calls[-1][1:] == (8, 8) and design.notes == ()
    assert design.usage["velocity"].min() > 0.9  # a good motion is a fast one
    text = summary(design, chain.joint_names)
    assert "best of 2 random motions" in text and "velocity" in text and "no limit set" in text

    again = optimal_excitation(chain, FourierSeries(4.0, 5), **settings)
    np.testing.assert_array_equal(again.trajectory.a, design.trajectory.a)

    # interrupted in the second round, what the first one found is what there is
    solve, rounds = excitation_design.advance, []

    def interrupted(*arguments):
        if rounds:
            raise KeyboardInterrupt
        rounds.append(1)
        return solve(*arguments)

    monkeypatch.setattr(excitation_design, "advance", interrupted)
    short = optimal_excitation(chain, FourierSeries(4.0, 5), **settings)
    assert short.rounds == 1 and "interrupted after 1 of 8 rounds" in short.notes[0]
    assert short.quality.log_det > max(random.log_det for random in short.random)
    assert max(share.max() for share in short.usage.values()) <= 0.95 * (1 + 1e-9)
    monkeypatch.undo()

    short = optimal_excitation(
        chain, FourierSeries(4.0, 5), **settings | {"search": ExcitationSearch(2, 8, time_limit=1e-9)}
    )
    assert "time limit after 0 of 8 rounds" in short.notes[0]

    weak = motion_limits(chain, **{**LIMITS, "torque": [1e-3, 60, 12]})
    with pytest.raises(
        IdentificationError, match=r"in the middle of the position ranges, joint1 needs .* times its torque"
    ):
        optimal_excitation(
            chain, FourierSeries(4.0, 5), **settings | {"limits": weak, "search": ExcitationSearch(2, 1)}
        )


@pytest.mark.nightly
def test_designs_keep_clearances_and_limits_of_jerk():
    chain = known_arm()
    limits = motion_limits(chain, **LIMITS, jerk=200.0)
    clearance = lambda q: jnp.stack([1.2 - q[0], 1.5 + q[1]])
    design = optimal_excitation(
        chain, FourierSeries(4.0, 5), limits=limits, clearance=clearance, search=ExcitationSearch(2, 8), usage=0.9
    )
    check(chain, design, 0.9, limits, clearance)
    assert design.clearance < 0.1  # it goes where it may


def test_bad_settings_are_refused_before_any_work():
    chain = known_arm()
    with pytest.raises(IdentificationError, match=r"usage is 1.5"):
        optimal_excitation(chain, usage=1.5)
    with pytest.raises(IdentificationError, match="starts is 0"):
        optimal_excitation(chain, search=ExcitationSearch(starts=0))
    with pytest.raises(IdentificationError, match=r"torque noise is .* one positive number for each of the 3 joints"):
        optimal_excitation(chain, torque_noise=[1.0, -1.0, 1.0])


PANDA = {
    "lower": [-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973],
    "upper": [2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973],
    "velocity": [2.175] * 4 + [2.61] * 3,
    "acceleration": [15, 7.5, 10, 12.5, 15, 20, 20],
    "jerk": [7500, 3750, 5000, 6250, 7500, 10000, 10000],
    "torque": [87] * 4 + [12] * 3,
}


@pytest.mark.nightly
def test_panda_beside_its_published_motion(shared_data):
    chain = load(shared_data / "panda" / "panda_phat.urdf")
    columns = Columns(("viscous", "coulomb", "offset"))
    limits = motion_limits(chain, **PANDA)
    design = optimal_excitation(
        chain,
        FourierSeries(21.0, 21),
        limits=limits,
        columns=columns,
        search=ExcitationSearch(1, 8),
    )
    assert max(share.max() for share in design.usage.values()) <= 0.95 * (1 + 1e-9)
    log = read_log(shared_data / "panda" / "exciting_1.csv", 7)
    own, published = compare_with_log(chain, design, log, columns)
    assert own.samples == published.samples and own.parameters == 64
    assert variance_ratio(own, published) > 5
    assert own.condition < published.condition and own.scaled_condition < published.scaled_condition / 2


@pytest.mark.nightly
def test_command_line(tmp_path, capsys):
    model = tmp_path / "arm.urdf"
    link = '<link name="{}"><inertial><origin xyz="0.2 0 0.01"/><mass value="2"/>'
    link += '<inertia ixx="0.02" iyy="0.03" izz="0.03" ixy="0" ixz="0" iyz="0"/></inertial></link>'
    joint = '<joint name="j{0}" type="revolute"><parent link="{1}"/><child link="{2}"/><origin xyz="0.4 0 0"/>'
    joint += '<axis xyz="0 1 0"/><limit lower="-2" upper="2" velocity="3" effort="{3}"/></joint>'
    parts = ['<link name="base"/>', link.format("a"), link.format("b"), joint.format(1, "base", "a", 60)]
    model.write_text(f"<robot name='arm'>{''.join(parts)}{joint.format(2, 'a', 'b', 30)}</robot>")
    out, picture = tmp_path / "out" / "traj.csv", tmp_path / "traj.svg"
    options = ["--out", str(out), "--picture", str(picture), "--duration", "4", "--rate", "100", "--starts", "2"]
    options += ["--rounds", "4", "--acceleration", "20", "--torque-noise", "1", "--seed", "1"]
    assert main(["excite", str(model), *options, "--compare", str(_recorded(tmp_path, model))]) == 0
    text = capsys.readouterr().out
    assert "median random motion" in text and "log " in text and "written:" in text
    log = read_log(out, 2)
    assert len(log.t) == 401 and np.abs(log.q).max() < 2 and np.abs(log.qd).max() < 3 and picture.read_text()
    assert main(["excite", str(model), *options, "--lower", "3"]) == 1
    error = capsys.readouterr().err
    assert "the lower position limit 3 is not below" in error and "pass --lower Q1,Q2,.. and --upper Q1,Q2,.." in error
    assert main(["excite", str(model), "--usage", "2"]) == 2
    model.write_text(re.sub("<limit [^>]*>", '<limit lower="0" upper="0" velocity="0" effort="0"/>', model.read_text()))
    assert main(["excite", str(model), "--out", str(out), "--duration", "4", "--rounds", "1", "--starts", "1"]) == 0
    shown, noted = capsys.readouterr()
    assert "no limits (position, velocity, effort of 'j1', 'j2')" in noted and shown.count("no limit set") == 4
    assert 0.1 < np.abs(read_log(out, 2).q).max() < np.pi


def _recorded(folder, model):
    chain = load(model)
    path = folder / "log.csv"
    write_trajectory(path, sample_trajectory(chain, random_excitation(chain, 6.0, 5, seed=3), 200.0))
    return path

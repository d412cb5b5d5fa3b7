"""Terms: springs, what is chosen by blocks left out, and what comes of it; on runs of known arms."""

import dataclasses
import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jaxdyn
from jaxdyn import (
    IdentificationError,
    Log,
    LogError,
    friction_force,
    identify,
    inverse_dynamics,
    resistive_force,
    textbook,
)
from jaxdyn.identification import (
    Asymmetry,
    BlockFactors,
    Cable,
    Columns,
    Consistency,
    Coulomb,
    ExtraColumns,
    Filters,
    LoadDependent,
    MaxwellSlip,
    PowerViscous,
    Terms,
    choose_terms,
    coupled_drive,
    diagnose,
    diagnose_identification,
    joint_springs,
    known_parameters,
    preprocess,
    random_excitation,
)
from jaxdyn.identification.accumulate import accumulate_samples
from jaxdyn.identification.base import base_parameters, with_parameters
from jaxdyn.identification.columns import prior_parameters
from jaxdyn.identification.diagnostics import _Runs, model_factors
from jaxdyn.identification.factors import as_float64
from jaxdyn.identification.filters import low_pass_before
from jaxdyn.identification.selection import Reading, gains_of
from jaxdyn.identification.stretches import logged_torque
from jaxdyn.identification.term_search import (
    Candidates,
    Gain,
    Grams,
    LeftOut,
    Search,
    State,
    friction_of,
    gain,
    solve_normal,
    system,
    trial_of,
    weights_between,
)
from jaxdyn.report import verdict
from jaxdyn.report.page import report_html
from regression import known_arm, states, worse

FILTER = {"filters": Filters(20.0)}
DELAY = np.array([0.004, 0.0, 0.0075])
WIDTH = np.array([0.05, 0.01, 0.1])


@pytest.fixture(scope="module")
def arm():
    """With springs at the outer joints and a smooth sign of another width at each."""
    leaves = {"springs.stiffness": jnp.array([3.0, 0.0, 2.0]), "friction.coulomb_velocity": jnp.asarray(WIDTH)}
    return jaxdyn.model.with_leaves(known_arm(), leaves)


@pytest.fixture(scope="module")
def given(arm):
    """The arm as it is thought to be: no springs, one width."""
    return jaxdyn.model.with_leaves(
        arm, {"springs.stiffness": jnp.zeros(3), "friction.coulomb_velocity": jnp.full(3, 0.02)}
    )


@pytest.fixture(scope="module")
def log(arm):
    """A run with late torques and some noise."""
    t = np.arange(6000) / 500.0
    q, qd, qdd = random_excitation(arm, 12.0, 5, 1)(jnp.asarray(t))
    tau = np.asarray(jax.vmap(lambda *x: inverse_dynamics(arm, *x) + resistive_force(arm, *x[:2]))(q, qd, qdd))
    late = np.stack([np.interp(t - d, t, tau[:, j]) for j, d in enumerate(DELAY)], axis=1)
    return Log(t, np.asarray(q), None, late + 0.02 * np.random.default_rng(0).normal(size=tau.shape))


def test_gains_weigh_joints_by_their_errors_share():
    """A joint in N m and one in mN m count alike: the gain is the mean of relative falls of the blocks' errors."""
    rng = np.random.default_rng(0)
    before = rng.uniform(1, 2, (6, 2))
    after = before * np.array([0.9, 0.7])
    usual, found = gains_of([before * [1.0, 1e6], after * [1.0, 1e6]], 0)
    assert usual.share == pytest.approx(0, abs=1e-15)
    share = 1 - (after / before.sum(0)).sum() / 2
    assert found.share == pytest.approx(share, rel=1e-12) and 0.1 < share < 0.3


def test_springs_are_columns_with_a_leaf(arm, given):
    extra = joint_springs(arm, (1, 3))
    assert extra.names == ("k1", "k3") and extra is joint_springs(arm, (1, 3))
    columns = Columns(extra=(coupled_drive(1, 2), extra))
    parameters = prior_parameters(arm, columns)
    np.testing.assert_array_equal(parameters[-2:], [3.0, 2.0])
    np.testing.assert_array_equal(with_parameters(given, columns, parameters).springs.stiffness, arm.springs.stiffness)
    q, qd, qdd = (jnp.asarray(x[0]) for x in states(1))
    np.testing.assert_allclose(
        extra.matrix(arm, q, qd, qdd), np.diag(q - arm.springs.rest_position)[:, [0, 2]], rtol=1e-15
    )
    with pytest.raises(IdentificationError, match=r"joints \(1, 1\)"):
        joint_springs(arm, (1, 1))
    with pytest.raises(IdentificationError, match="2 joints are named"):
        ExtraColumns(("a",), ("1",), extra.matrix, "springs.stiffness", (1, 3))


def test_springs_in_the_torques(arm, given):
    columns = Columns(extra=(joint_springs(arm, (1, 3)),))
    parameters = jnp.asarray(prior_parameters(arm, columns))
    state = tuple(jnp.asarray(x[0]) for x in states(1))
    wide = jaxdyn.model.with_leaves(given, {"friction.coulomb_velocity": arm.friction.coulomb_velocity})
    torque = jax.jit(lambda q, qd, qdd: inverse_dynamics(arm, q, qd, qdd) + resistive_force(arm, q, qd))(*state)
    np.testing.assert_allclose(jax.jit(columns.matrix)(wide, *state) @ parameters, torque, rtol=1e-12)


def test_springs_do_not_take_the_place_of_gravity(tmp_path):
    """A double pendulum that swings a little, with a friction by position that no candidate has: gravity looks like springs."""
    given = jaxdyn.textbook.pendulum(2)
    friction = dataclasses.replace(given.friction, viscous=jnp.array([0.02, 0.01]), coulomb=jnp.array([0.05, 0.03]))
    truth = dataclasses.replace(given, friction=friction)
    rng, t = np.random.default_rng(2), np.arange(3000)[:, None] / 200.0
    w, phase = 2 * np.pi * rng.uniform(0.2, 1.2, (4, 1, 2)), rng.uniform(0, 6, (4, 1, 2))
    q, qd, qdd = (
        0.25 * x.sum(0) for x in (np.sin(w * t + phase), w * np.cos(w * t + phase), -(w**2) * np.sin(w * t + phase))
    )
    tau = jax.jit(jax.vmap(lambda *x: inverse_dynamics(truth, *x) + resistive_force(truth, *x[:2])))(q, qd, qdd)
    noise = rng.normal(size=(2, *q.shape)) * np.array([1e-4, 0.02])[:, None, None]
    run = Log(t[:, 0], q + noise[0], None, np.asarray(tau) + 0.1 * np.cos(5 * q) + noise[1])
    result = identify(given, run, terms=Terms(choose=("springs",)))
    assert result.choice.springs == () and not np.any(result.chain.springs.stiffness)
    jaxdyn.write_mjcf(result.chain, tmp_path / "identified.xml")
    assert (tmp_path / "identified.xml").exists()


@pytest.mark.ci
def test_what_is_chosen_and_what_comes_of_it(arm, given, log):
    result = identify(given, log, **FILTER)
    found = result.choice
    np.testing.assert_allclose(found.delay, DELAY, atol=6e-4)
    assert {1, 3} <= set(found.springs) and np.all(found.errors < 0.5 * found.errors_before) and found.cutoff is None
    assert result.notes[0].startswith("terms: adopted, by joint: ") and "spring (1" in result.notes[0]
    np.testing.assert_allclose(result.chain.springs.stiffness[jnp.array([0, 2])], [3.0, 2.0], atol=0.05)
    assert result.validation[0].fit.total_relative < 1.0 and result.validation[0].raw.total_relative < 3.0
    np.testing.assert_array_equal(result.delay, found.delay)
    adopted = {(trial.kind, trial.joint) for trial in found.adopted}
    assert {("spring", 1), ("spring", 3), ("delay", 1), ("delay", 3)} <= adopted and "adopted" in repr(found)
    for trial in found.adopted:
        assert trial.gain > 0.9 and trial.ratio > 1
    late = log.t > 0.75 * log.t[-1]
    other = dataclasses.replace(log, tau=np.where(late[:, None], -log.tau, log.tau))
    again = choose_terms(given, other, share=0.7, **FILTER)  # never looks at what is held out
    np.testing.assert_allclose(again.errors, found.errors, rtol=1e-7)
    with pytest.raises(IdentificationError, match="one finite number of seconds, or one per joint"):
        identify(given, log, filters=Filters(delay=[0.0, 1.0]), terms=Terms(choose=()))


@pytest.mark.ci
def test_delays_and_springs_that_are_given(given, log):
    terms = Terms(extra=(joint_springs(given),), choose=())
    late = identify(given, log, terms=terms, filters=Filters(20.0, delay=list(DELAY)))
    np.testing.assert_array_equal(preprocess(log, Filters(20.0, delay=0.01)).delay, np.full(given.n, 0.01))
    np.testing.assert_array_equal(late.delay, DELAY)
    assert late.choice is None and "torque delays were removed, by joint: 4, 0, 7.5 ms" in report_html(
        late, verdict(late)
    )
    # the findings come from the factors of the fit
    assert diagnose_identification(late) == diagnose(given, [e.samples for e in late.fitted], columns=late.columns)


def test_a_cubic_between_shifts_is_that_of_the_four_nearest():
    shifts, cubic = np.linspace(-0.03, 0.05, 9), np.polynomial.Polynomial([0.3, -2.0, 40.0, 900.0])
    for d, first in ((-0.03, 0), (-0.027, 0), (0.011, 3), (0.0249, 4), (0.0499, 5), (0.05, 5)):
        weights = weights_between(shifts, d)
        assert weights @ cubic(shifts) == pytest.approx(cubic(d), rel=1e-12)
        assert not np.delete(weights, range(first, first + 4)).any()


def rows_of_two_joints(noise=(0.05, 0.2), blocks=3):
    """Rows of some blocks of two joints: a shared column, two of dry friction, a spring's, the torque at five shifts.

    Joint 1 has the second friction and the torque at the second shift, joint 2 the first friction, a spring and the third.
    """
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(blocks, 2, 40, 9))
    rows[:, 0, :, 5] = 2 * rows[:, 0, :, 0] - rows[:, 0, :, 2]
    rows[:, 1, :, 6] = 2 * rows[:, 1, :, 0] + 3 * rows[:, 1, :, 1] + 0.5 * rows[:, 1, :, 3]
    rows[:, :, :, 4:] += np.array(noise)[None, :, None, None] * rng.normal(size=(blocks, 2, 40, 1))
    has = np.array([[False, True, False], [True, False, True]])
    return rows, State(has, np.array([-0.01, 0.0])), [[0, 2, 5], [0, 1, 3, 6]]


TWO_AND_A_SPRING = Candidates.of([("dry friction", Coulomb()), ("dry friction", MaxwellSlip()), ("spring", None)])


def grams_of(rows):
    r = np.stack([np.stack([np.linalg.qr(joint, mode="r") for joint in block]) for block in rows])
    counts = np.full(rows.shape[:2], rows.shape[2])
    return Grams(BlockFactors(r, counts, np.zeros(len(rows), int)), 1, np.linspace(-0.02, 0.02, 5))


def fitted(rows, own, weights):
    """Shared and own parameters of both joints' rows (n, N, w), their columns and torques."""
    parts, torques, at = [], [], 1
    for x, columns in zip(rows, own, strict=True):
        wide = np.zeros((len(x), 4))
        wide[:, 0], wide[:, at : at + len(columns) - 2] = x[:, 0], x[:, columns[1:-1]]
        at += len(columns) - 2
        parts.append(wide)
        torques.append(x[:, columns[-1]])
    weighted = np.concatenate([p * w for p, w in zip(parts, weights, strict=True)])
    right = np.concatenate([t * w for t, w in zip(torques, weights, strict=True)])
    return np.linalg.lstsq(weighted, right, rcond=None)[0], parts, torques


def test_errors_are_those_of_blocks_left_out_by_joints_that_share_the_rigid_body():
    rows, state, own = rows_of_two_joints()
    found, noise, _ = grams_of(rows).left_out(state)
    for _ in range(3):
        found, noise, ratio = grams_of(rows).left_out(state, noise=noise)
    for k in range(3):
        rest = np.concatenate(np.delete(rows, k, axis=0), axis=1)
        x, _, _ = fitted(rest, own, 1 / noise)
        _, parts, torques = fitted(rows[k], own, 1 / noise)
        expected = [((t - p @ x) ** 2).sum() for p, t in zip(parts, torques, strict=True)]
        np.testing.assert_allclose(found[k], expected, rtol=1e-5)
    assert np.isfinite(ratio).sum() == 3 and np.isinf(ratio[0, 0])  # only of the columns that a joint has
    h, right = system(grams_of(rows).parts(state, grams_of(rows).grams), np.array([1 / 3, 2.0]))
    x, _, _ = fitted(rows[1], own, np.array([3.0, 0.5]))
    np.testing.assert_allclose(solve_normal(h[1], right[1]), x, rtol=1e-6)
    rows[:, 0, :, 2] = 0.0  # friction of a joint that stands still
    h, right = system(grams_of(rows).parts(state, grams_of(rows).grams), np.ones(2))
    assert solve_normal(h[1], right[1])[1] == 0


def test_a_gain_counts_where_it_exceeds_its_noise_over_the_blocks():
    size = np.where(np.arange(16) == 3, 100.0, 1.0)
    before = np.stack([size, np.ones(16), np.ones(16), np.ones(16)], axis=1)
    one_block, little = np.ones(16), np.linspace(0.98, 1.0, 16)
    one_block[3:5] = 0.1, 1.4  # as much in one block as it harms in another
    alike = np.linspace(0.5, 0.7, 16)  # falls of much the same share, whatever the error of the block
    found = gain(before, np.stack([alike * size, one_block, little, np.linspace(0.4, 1.7, 16)], axis=1))
    np.testing.assert_allclose(found.share[1:3], [0.5 / 16, 0.01], rtol=1e-12)
    assert 0 < found.ratio[1] < 1 and found.ratio[0] > 10
    assert found.confirmed.tolist() == [True, False, False, False]  # the third takes less than 1 % off
    for blocks in (6, 16):
        falls = np.linspace(-0.5, 0.5, blocks)
        error = np.sqrt(1 / blocks + 1 / (blocks - 1)) * falls.std(ddof=1)  # the fits to all blocks but one share data
        least = stats.t.isf(0.05, blocks - 1) * error
        around = [gain(1 + x[:, None], 1 - x[:, None]) for x in (falls + 0.99 * least, falls + 1.01 * least)]
        assert [bool(each.confirmed[0]) for each in around] == [False, True]


def test_a_joint_takes_what_makes_its_own_error_less():
    """Joint 1 has the second friction, joint 2 the first and a spring: found from the first friction without springs."""
    rows = rows_of_two_joints(blocks=12)[0]
    rows[:, 0, :, 4:] = rows[:, 0, :, 5:6]  # whatever the shift
    rows[:, 1, :, 4:] = rows[:, 1, :, 6:7]
    search = Search(grams_of(rows), TWO_AND_A_SPRING)
    first = search.errors
    search.climb()
    np.testing.assert_array_equal(search.state.has, [[False, True, False], [True, False, True]])
    assert not search.state.delay.any() and np.all(search.errors < 0.5 * first)
    adopted = {(trial.joint, trial.kind, trial.name) for trial in search.trials() if trial.adopted}
    assert adopted == {(1, "dry friction", "MaxwellSlip(0.0001)"), (2, "spring", "spring")}
    again = search.state
    assert not search.rung(("spring",)) and search.state is again
    plain, selected = Search(grams_of(rows), TWO_AND_A_SPRING).nested_errors()
    np.testing.assert_allclose(
        selected, [0.05, 0.2], rtol=0.15
    )  # the noise: the selection was the same without each third
    assert np.all(selected < 0.5 * plain)
    noise = np.concatenate([rows[:, :, :, :4], np.random.default_rng(9).normal(size=(12, 2, 40, 5))], axis=3)
    plain, selected = Search(grams_of(noise), TWO_AND_A_SPRING).nested_errors()
    np.testing.assert_allclose(selected, plain, rtol=0.1)


def test_delays_are_where_a_parabola_through_the_least_errors_is_least():
    """Joint 1's torque is best explained at the second of five shifts, joint 2's 0.4 of a step after the third."""
    rows, state, _ = rows_of_two_joints((0.01, 0.01), blocks=8)
    away = np.random.default_rng(7).normal(size=rows.shape[:3])
    for j, (column, best) in enumerate(((5, 1.0), (6, 2.4))):
        rows[:, j, :, 4:] = rows[:, j, :, column, None] + (np.arange(5) - best) * away[:, j, :, None]
    search = Search(grams_of(rows), TWO_AND_A_SPRING)
    search.use(state.but(delay=np.zeros(2)))
    first = search.errors
    assert search.rung(("delay",)) and not search.rung(("delay",))
    np.testing.assert_allclose(search.state.delay, [-0.01, 0.004], atol=5e-5)
    assert np.all(search.errors < [0.1 * first[0], 0.1 * first[1]])
    assert not search.rung(("dry friction",))  # each has the right one


def test_candidates_and_the_friction_of_a_choice():
    own = np.array([0.02, 0.03])
    dry = Coulomb(width=own), Coulomb(width=0.1), MaxwellSlip(width=1e-3)
    further = ("second slip", MaxwellSlip(width=4e-3)), ("speed", PowerViscous(exponent=0.5))
    given = (Asymmetry(joints=(2,)),)
    kinds_of_dry = [("dry friction", term) for term in dry]
    candidates = Candidates.of([*kinds_of_dry, *(("given", term) for term in given), *further, ("spring", None)])
    assert [one.columns for one in candidates.listed] == [(0,), (1,), (2,), (3, 4), (5,), (6,), (7,)]
    assert candidates.given == given and candidates.sprung and not candidates.of_kind("load")
    assert [(one.kind, one.columns) for one in candidates.plain.listed] == [("dry friction", (0,)), ("given", (1, 2))]
    names = [candidates.listed[k].name(0) for k in (1, 2, 4, 5, 6)]
    assert names == ["Coulomb(0.1)", "MaxwellSlip(0.001)", "MaxwellSlip(0.004)", "PowerViscous(0.5)", "spring"]
    start = candidates.start(2)
    assert [np.flatnonzero(has).tolist() for has in start.has] == [[0], [0, 3, 4]] and not start.delay.any()
    has = np.array([[0, 0, 1, 0, 0, 1, 0, 0], [0, 1, 0, 1, 1, 0, 1, 0]], bool)
    model = friction_of(candidates, start.but(has=has), Terms(("viscous", "coulomb")), 7.0)
    kinds = [(type(term).__name__, term.joints) for term in model.terms]
    assert kinds == [
        *(("Viscous", None), ("MaxwellSlip", (1,)), ("MaxwellSlip", (1,))),
        *(("Coulomb", (2,)), ("PowerViscous", (2,)), ("Asymmetry", (2,))),
    ]
    assert model.cutoff == 7.0 and [float(term.width[0]) for term in model.terms[1:3]] == [1e-3, 4e-3]
    assert float(model.terms[3].width[1]) == 0.1
    unlike = [LoadDependent(powers=powers, width=0.1) for powers in ((1,), (2, 3))]
    two = Candidates.of([*kinds_of_dry, *(("load", term) for term in unlike)])
    state = two.start(2)
    state.has[0, 3], state.has[1, 4:] = True, True  # terms of one class that differ in a static field
    powers = [(term.powers, term.joints) for term in friction_of(two, state, Terms(()), 7.0).terms[1:]]
    assert powers == [((1,), (1,)), ((2, 3), (2,))]
    plain = friction_of(candidates, start, Terms(("viscous", "coulomb", "offset")), 7.0)
    np.testing.assert_array_equal(plain.terms[2].width, own)
    tried = trial_of(2, "speed", "PowerViscous(0.5)", Gain(np.array([0.5, 0.36]), np.array([9.0, 3.0]), 8), True)
    assert (tried.joint, tried.gain, tried.ratio) == (2, pytest.approx(20.0), 3.0)  # sqrt(1 - 0.36) is left
    assert trial_of(0, "filter", "low-pass", Gain(np.array([1.5]), np.zeros(1), 8), False).gain == 100.0


class Thinned(list):
    rate = 10.0


def test_blocks_lie_a_period_of_the_lowest_cutoff_apart(annotations_unchecked):
    """640 samples in 16 blocks of 40, of which half a period of 2 Hz, three samples, goes at either end."""
    rows, known = np.random.default_rng(0).normal(size=(640, 2, 5)), np.ones((640, 2))
    known[::7, 1] = 0.0
    reading = SimpleNamespace(
        lowest=2.0,
        rows=lambda candidates, run, load: (
            rows[: len(run.decimated)],
            known[: len(run.decimated)].copy(),
            np.arange(len(run.decimated)),
            velocity[: len(run.decimated)],
        ),
        motion=None,
        chain=SimpleNamespace(n=2),
        base=SimpleNamespace(size=1),
        shifts=np.zeros(1),
    )
    run = lambda count: SimpleNamespace(decimated=Thinned(range(count)))
    tried, velocity = TWO_AND_A_SPRING, np.random.default_rng(1).normal(size=(640, 2))
    grams = Reading.grams(reading, tried, [run(640)], None)
    assert (grams.size, grams.own) == (1, 3)
    kept = known * (np.arange(640) % 40 >= 3)[:, None] * (np.arange(640) % 40 < 37)[:, None]
    expected = np.einsum("tj,tja,tjb->tjab", kept, rows, rows).reshape(16, 40, 2, 5, 5).sum(1)
    np.testing.assert_allclose(grams.grams, expected, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(grams.counts, kept.reshape(16, 40, 2).sum(1))
    assert grams.regions is not None and np.ptp(grams.regions.counts, axis=0).max() <= 1
    np.testing.assert_allclose(grams.regions.grams.sum(0), grams.grams.sum(0), rtol=1e-10, atol=1e-10)
    backwards = kept[:, 1] * (velocity[:, 1] <= np.quantile(velocity[kept[:, 1] > 0, 1], 0.25))
    np.testing.assert_allclose(
        grams.regions.grams[0, 1], (rows[:, 1].T * backwards) @ rows[:, 1], rtol=1e-10, atol=1e-10
    )
    assert len(Reading.grams(reading, tried, [run(90)], None).grams) == 6  # of 1.5 s each
    assert len(Reading.grams(reading, tried, [run(120)], None).grams) == 8
    # six times the margin is 1.5 s
    with pytest.raises(LogError, match="the runs last 8 s in total, which is too short for 6 cross-validation blocks"):
        Reading.grams(reading, tried, [run(80)], None)


class Table(Grams):
    """Left-out errors of two joints, by whether either has its term, with a coefficient of joint 1."""

    def __init__(self, errors, coefficient=9.0):
        self.errors, self.coefficient, self.grams, self.shifts = errors, coefficient, np.zeros((1, 2)), np.zeros(1)

    def left_out(self, state, noise=None):
        size = np.array(self.errors[tuple(state.has[:, 0].tolist())])
        ratio = np.where(state.has, [[self.coefficient], [9.0]], np.inf)
        return LeftOut(size * (1 + 0.02 * np.cos(np.arange(8)))[:, None], np.ones(2), ratio)


def test_a_term_is_judged_on_each_joint_that_it_affects():
    none, first, second, both = (False, False), (True, False), (False, True), (True, True)
    spring, everywhere = Candidates.of([("spring", None)]), State(np.ones((2, 1), bool), np.zeros(2))

    def adopted(errors, coefficient=9.0):
        plain, search = (Search(Table(errors, coefficient), spring) for _ in range(2))
        search.climb()
        search.no_worse_than(plain)
        return tuple(search.state.has[:, 0].tolist())

    assert adopted({none: [1.0, 1.0], first: [0.5, 1.0], second: [1.0, 0.5], both: [0.5, 0.5]}) == both
    assert adopted({none: [1.0, 1.0], first: [0.5, 1.7], second: [1.0, 1.2], both: [0.5, 1.7]}) == none  # joint 2 pays
    assert adopted({none: [1.0, 1.0], first: [0.5, 1.7], second: [1.0, 0.5], both: [0.5, 0.6]}) == both
    assert adopted({none: [1.0, 1.0], first: [0.5, 1.0], second: [1.0, 1.0], both: [0.5, 1.0]}, -9.0) == none
    assert adopted({none: [1.0, 1.0], first: [0.5, 1.0], second: [1.0, 1.0], both: [0.5, 1.0]}, 1.0) == none
    plain, search = (Search(Table({none: [1.0, 1.0], both: [0.5, 0.5], first: [0.5, 1.0]}), spring) for _ in range(2))
    search.grams.regions = Table({none: [1.0, 1.0], both: [0.8, 1.1], first: [0.8, 1.0]})
    search.use(everywhere)
    search.no_worse_than(plain)  # the term of joint 2 predicts another operating region worse
    assert search.state.has[:, 0].tolist() == [True, False]
    errors = {none: [1.0, 1.0], first: [0.5, 1.3], second: [1.0, 0.99], both: [0.5, 1.2]}
    search = Search(Table(errors), spring)
    search.use(everywhere)
    search.no_worse_than(Search(Table(errors), spring))
    assert not search.state.has.any()


@pytest.mark.parametrize(
    "noise", [pytest.param(5e-4, marks=pytest.mark.nightly), pytest.param(3e-3, marks=pytest.mark.ci)]
)
def test_noisy_encoders_get_a_filter_about_as_good_as_the_best(arm, given, noise):
    """Noise in the regressor biases the parameters; the torques, smooth as if filtered before logging, hide nothing."""

    def run(seed):
        t = np.arange(3000) / 200.0
        q, qd, qdd = random_excitation(arm, 15.0, 5, seed)(jnp.asarray(t))
        tau = np.asarray(jax.vmap(lambda *x: inverse_dynamics(arm, *x) + resistive_force(arm, *x[:2]))(q, qd, qdd))
        rng = np.random.default_rng(seed)
        return Log(t, np.asarray(q) + noise * rng.normal(size=q.shape), None, tau + 0.02 * rng.normal(size=tau.shape))

    def error(**options):
        return identify(given, fitted, unseen, **options).validation[0].raw.total_relative

    fitted, unseen = run(1), run(2)
    sprung = Terms(choose=("springs",))
    fixed = [error(terms=sprung, filters=Filters(cutoff, cutoff), consistent=None) for cutoff in (2.0, 3.0, 4.0, 8.0)]
    found = error()
    assert found < 1.3 * min(fixed) < 0.5 * fixed[-1]


@pytest.mark.nightly
def test_gaps_of_a_few_milliseconds_change_nothing(given, log):
    """All candidates are compared on the same samples, whatever gap their cutoffs would bridge."""
    whole = choose_terms(given, log)
    gone = np.ones(len(log.t), bool)
    for at in (1500, 3000, 4500):
        gone[at : at + 10] = False
    found = choose_terms(given, Log(log.t[gone], log.q[gone], None, log.tau[gone]))
    assert (found.springs, found.cutoff) == (whole.springs, whole.cutoff)
    np.testing.assert_allclose(found.delay, whole.delay, atol=1e-3)
    np.testing.assert_allclose(found.errors, whole.errors, rtol=0.3)


def test_torques_behind_a_low_pass_before_the_log(elbow, late_log):
    """A low-pass before logging shows in the spectrum; cross-validation selects its cutoff, and friction is filtered too."""
    rate = 400.0
    plain = jaxdyn.model.with_leaves(
        elbow, {"springs.stiffness": jnp.zeros(2), "friction.coulomb": jnp.array([2.0, 1.0])}
    )
    q, qd, qdd = (np.asarray(x) for x in random_excitation(plain, 12.0, 3, 0)(jnp.asarray(late_log.t)))
    tau = np.asarray(
        jax.jit(jax.vmap(lambda *x: inverse_dynamics(plain, *x) + resistive_force(plain, *x[:2])))(q, qd, qdd)
    )
    wave = np.fft.rfftfreq(2 * len(tau) - 1, 1 / rate)
    gain = 1 / (1 + (np.tan(np.pi * wave / rate) / np.tan(np.pi * 3.0 / rate)) ** 8)
    # not by the library's filter: by its transfer function, the run continued by its mirror image
    whole = np.fft.rfft(np.concatenate([tau, tau[-2::-1]]), axis=0)
    smooth = np.fft.irfft(gain[:, None] * whole, 2 * len(tau) - 1, axis=0)[: len(tau)]
    assert low_pass_before(np.zeros((900, 2)), rate) is None
    assert low_pass_before(tau + 1e-2 * np.random.default_rng(1).normal(size=tau.shape), rate) is None
    assert 2.2 < low_pass_before(smooth, rate) < 4.0
    noisy = smooth + 1e-4 * np.random.default_rng(0).normal(size=tau.shape)
    found = choose_terms(
        plain, Log(late_log.t, q, None, noisy), Terms(("viscous", "coulomb", "offset"), choose=("filter",))
    )
    assert 2.7 < found.logged_cutoff < 3.3 and found.cutoff is None
    assert [trial.kind for trial in found.adopted] == ["filter"] and found.adopted[0].gain > 30
    samples = preprocess(Log(late_log.t, q, None, noisy), Filters(logged_cutoff=3.0, stride=1))
    first = int(np.searchsorted(late_log.t, samples.t[0] - 1e-9))
    np.testing.assert_array_equal(samples.tau, noisy[first : first + len(samples)])  # as they are
    assert (samples.position_cutoff, samples.torque_cutoff) == (8.0, 3.0)


def test_dry_friction_is_fitted_behind_the_filter_of_the_torques(elbow, late_log):
    """The low-pass rounds the jumps of the torques; columns that jump would not fit them, of chosen terms or plain ones."""
    robot = jaxdyn.model.with_leaves(
        elbow, {"springs.stiffness": jnp.zeros(2), "friction.coulomb": jnp.array([2.0, 1.0])}
    )
    q, qd, qdd = (np.asarray(x) for x in random_excitation(robot, 12.0, 3, 0)(jnp.asarray(late_log.t)))
    tau = jax.jit(jax.vmap(lambda *x: inverse_dynamics(robot, *x) + resistive_force(robot, *x[:2])))(q, qd, qdd)
    log = Log(late_log.t, q, None, np.asarray(tau) + 1e-2 * np.random.default_rng(2).normal(size=tau.shape))
    found = [
        identify(robot, log, terms=Terms(("viscous", "coulomb", "offset"), choose=choose))
        for choose in (("filter",), ())
    ]
    for result in found:
        np.testing.assert_allclose(result.chain.friction.coulomb, [2.0, 1.0], rtol=5e-3)
        assert (result.fitted[0].fit.rms < 3e-3).all()  # noise behind the filter: 2e-3 N m


@pytest.fixture(scope="module")
def elbow():
    """Joint 1 with a spring, a smooth sign and late torques; joint 2 with a spring of friction that slips."""
    chain = textbook.planar_elbow(l1=0.7, lc1=0.3, lc2=0.25)
    leaves = {"springs.stiffness": [6.0, 0.0], "friction.viscous": [0.5, 0.2], "friction.coulomb": [2.0, 0.0]}
    leaves |= {"friction.coulomb_velocity": [0.05, 0.03], "friction.offset": [0.1, -0.2]}
    return jaxdyn.model.with_leaves(chain, {name: jnp.asarray(x) for name, x in leaves.items()})


@pytest.fixture(scope="module")
def late_log(elbow):
    t = np.arange(4800) / 400.0
    w, phase = np.array([[1.3, 2.9, 4.1], [1.7, 2.3, 5.3]]), np.array([[0.0, 1.0, 2.0], [0.5, 2.5, 1.5]])
    waves = [0.6 / w * w**k * np.sin(w * t[:, None, None] + phase + k * np.pi / 2) for k in range(3)]
    q, qd, qdd = (x.sum(2) for x in waves)
    torque = jax.jit(jax.vmap(lambda *x: inverse_dynamics(elbow, *x) + resistive_force(elbow, *x[:2])))
    tau = np.array(torque(*map(jnp.asarray, (q, qd, qdd))))
    travelled = np.diff(q[:, 1], prepend=q[0, 1]) / 4e-3
    tau[:, 1] += list(itertools.accumulate(travelled, lambda z, d: np.clip(z + d, -1.0, 1.0)))
    tau[:, 0] = np.interp(t - 0.006, t, tau[:, 0])
    return Log(t, q, None, tau + [0.05, 0.02] * np.random.default_rng(0).normal(size=tau.shape))


@pytest.mark.ci
def test_terms_of_two_joints_that_differ(elbow, late_log):
    given = jaxdyn.model.with_leaves(
        elbow, {"springs.stiffness": jnp.zeros(2), "friction.coulomb_velocity": jnp.full(2, 0.02)}
    )
    found = choose_terms(given, late_log, Terms(("viscous", "coulomb", "offset")))
    np.testing.assert_allclose(found.delay, [0.006, 0.0], atol=0.25 / 400)  # a quarter of a sample
    assert 1 in found.springs and np.all(found.errors < 0.5 * found.errors_before)
    slips = [
        term for term in found.further if isinstance(term, MaxwellSlip) and (term.joints is None or 2 in term.joints)
    ]
    assert float(slips[0].width[1]) == 4e-3
    # nothing beyond the first share of a run counts, and runs are one after the other whatever their number
    # (with the delay removed: beside an error that is not modelled, half of the log does not show the spring significantly)
    known = Filters(15.0, delay=np.array([0.006, 0.0]))
    options = {"filters": known, "terms": Terms(("viscous", "coulomb", "offset"), choose=("springs",))}
    half = lambda a, b, sign=1: Log(late_log.t[a:b], late_log.q[a:b], None, sign * late_log.tau[a:b])
    whole = choose_terms(given, [half(0, 2400), half(2400, 4800)], **options)
    assert whole.cutoff is None and 1 in whole.springs and whole.further == () and not whole.delay.any()
    turned = np.where(late_log.t[:, None] < 8.0, late_log.tau, -late_log.tau)
    first, again = (
        choose_terms(given, x, share=0.6, **options) for x in (late_log, dataclasses.replace(late_log, tau=turned))
    )
    np.testing.assert_allclose(again.errors, first.errors, rtol=1e-7)
    assert choose_terms(given, half(0, 330), **options) is None  # too short to be cut
    assert choose_terms(given, late_log, Terms(choose=())) is None


@pytest.mark.nightly
def test_no_joint_is_predicted_worse_than_by_the_plain_model(elbow, late_log):
    """By more than 5 % and two standard errors over blocks, on another motion, with and without what can be selected."""
    given = jaxdyn.model.with_leaves(elbow, {"springs.stiffness": jnp.zeros(2)})
    model = jax.jit(jax.vmap(lambda *x: inverse_dynamics(elbow, *x) + friction_force(elbow, x[1])))
    t = np.arange(3200) / 400.0

    def run(seed, late):
        generator = np.random.default_rng(seed)
        w, phase = generator.uniform(1, 5, (2, 4)), generator.uniform(0, 6, (2, 4))
        q, qd, qdd = ((0.5 / w * w**k * np.sin(w * t[:, None, None] + phase + k * np.pi / 2)).sum(2) for k in range(3))
        tau = np.array(model(*map(jnp.asarray, (q, qd, qdd))))
        tau = np.stack([np.interp(t - late, t, x) for x in tau.T], axis=1)
        return Log(t, q, None, tau + [0.05, 0.02] * generator.normal(size=tau.shape))

    for seed, late in ((0, 0.0), (2, 0.06)):
        fitted, unseen = run(seed, late), run(seed + 1, late)
        plain, found = (identify(given, fitted, unseen, terms=Terms(choose=choose)) for choose in ((), Terms().choose))
        changes = np.array([worse(a, b) for a, b in zip(plain.validation, found.validation, strict=True)])
        assert not np.any((changes[:, 0] > 0.05) & (changes[:, 1] > 2)), changes
        np.testing.assert_allclose(found.choice.delay, late, atol=1e-3)


@pytest.mark.nightly
def test_the_same_motion_is_held_out_whatever_is_selected(elbow, late_log):
    """A selected cutoff or delay moves no stretch, else two models would be validated on different data."""
    part = slice(0, 2400)
    twice = lambda x: np.concatenate([x[part], x[part][::-1], x[part], x[part][::-1]])
    log = Log(np.arange(9600) / 400.0, twice(late_log.q), None, twice(late_log.tau))
    seen = [
        identify(elbow, log, filters=filters, terms=Terms(choose=())).validation[0]
        for filters in (None, Filters(delay=0.05), Filters(delay=[0.0, -0.1]))
    ]
    assert all(x.title.startswith("held out: 30 % of the motion") for x in seen)
    assert np.ptp([x.samples.t[len(x.samples) // 2] for x in seen]) < 0.15


@pytest.mark.nightly
def test_what_is_not_there_is_hardly_ever_adopted(elbow):
    """The plain model with noise, six runs of two joints: of 72 trials three at most are adopted."""
    plain = jaxdyn.model.with_leaves(
        elbow, {"springs.stiffness": jnp.zeros(2), "friction.coulomb": jnp.array([1.0, 0.5])}
    )
    plain = jaxdyn.model.with_leaves(plain, {"friction.coulomb_velocity": jnp.full(2, 0.1)})
    torque = jax.jit(jax.vmap(lambda *x: inverse_dynamics(plain, *x) + resistive_force(plain, *x[:2])))
    trials = adopted = 0
    for seed in range(6):
        t = np.arange(3000) / 200.0
        x = random_excitation(plain, 15.0, 5, seed)(jnp.asarray(t))
        tau = np.asarray(torque(*x)) + [0.3, 0.1] * np.random.default_rng(seed).normal(size=(3000, 2))
        found = choose_terms(plain, Log(t, np.asarray(x[0]), None, tau), filters=Filters(10.0))
        trials, adopted = trials + len(found.trials), adopted + len(found.adopted)
    assert trials == 6 * 2 * 6 and adopted <= 3


def test_constraints_follow_their_parameters(elbow):
    from jaxdyn.identification.selection import TermChoice, setup_of

    terms = Terms()
    names = terms.columns(elbow).names(2)
    choice = TermChoice((MaxwellSlip(),), (1,), np.zeros(2), 5.0, np.full(2, 0.1), np.ones(2), np.ones(2), ())
    setup = setup_of(elbow, terms, Filters(), choice)
    assert setup.filters.position_cutoff == 5.0 and setup.delay is None and setup.columns.drive_terms == ("armature",)
    fitted_names = (*setup.columns.names(2), "fz1", "fz2")
    known = setup.known(Consistency(constraints=known_parameters(names, {"m2": 1.5, "Ia1": 0.3})), fitted_names)
    x = np.arange(len(fitted_names), dtype=float)
    picked = known.constraints.equal @ x
    np.testing.assert_allclose(np.sort(picked), np.sort([x[fitted_names.index("m2")], x[fitted_names.index("Ia1")]]))
    with pytest.raises(IdentificationError, match=r"constraints refer to fc1.*choose=\(\)"):
        setup.known(Consistency(constraints=known_parameters(names, {"fc1": 0.3})), fitted_names)
    with pytest.raises(IdentificationError, match="constraints refer to a, which is not a parameter"):
        setup.known(Consistency(constraints=known_parameters(["a", "b", "c"], {"a": 1.0})), fitted_names)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Terms(("inertia",)), "unknown drive term 'inertia'"),
        (
            lambda: Terms(choose=("gains",)),
            "'gains' cannot be selected; choose may contain filter, friction, springs, delays",
        ),
        (lambda: Terms(further=(Columns(),)), "further contains Columns"),
        (lambda: Terms(dead_zone=-0.1), r"the dead zone is -0\.1; it must be a speed of zero or more"),
        (lambda: Terms(dead_zone=float("nan")), "the dead zone is nan"),
        (lambda: Terms(dead_zone=float("inf")), "the dead zone is inf"),
    ],
)
def test_terms_that_are_none_are_refused(make, message, annotations_unchecked):
    with pytest.raises(IdentificationError, match=message):
        make()
    assert repr(Terms(("viscous",), (MaxwellSlip(),))) == (
        "Terms: viscous, MaxwellSlip; selected from the log: filter, friction, springs, delays"
    )
    assert repr(Terms(("armature",), choose=(), dead_zone=0.05)) == "Terms: armature; dead zone 0.05 rad/s or m/s"


@pytest.mark.nightly
def test_scales_against_the_given_model(arm, log):
    samples, columns = preprocess(log, **FILTER), Columns()

    def scales(chain, samples):
        with jax.enable_x64(True):
            blocks = accumulate_samples(columns, as_float64(chain), [(samples, samples.tau, None, None)])
            return model_factors(_Runs(chain, columns, base_parameters(chain, columns), blocks, 1.0))

    rough = dataclasses.replace(arm, inertia=arm.inertia * jnp.array([1.2, 0.9, 1.1])[:, None])
    factors, deviations, correlations = scales(rough, samples)
    twice = scales(rough, dataclasses.replace(samples, tau=2 * samples.tau))
    assert np.all(deviations[1:] < 0.15) and np.all(np.abs(np.log(factors[1:])) < 0.25)
    np.testing.assert_allclose(twice[0], 2 * factors, rtol=1e-8)
    turned = scales(rough, dataclasses.replace(samples, tau=-samples.tau))
    np.testing.assert_allclose(turned[0], -factors, rtol=1e-8)
    np.testing.assert_allclose(turned[2], -correlations, rtol=1e-8)
    assert np.isinf(turned[1]).all()
    np.testing.assert_allclose(twice[1], deviations, rtol=1e-6)
    # white noise, on average over its seeds: the deviation of the logarithm of a slope
    exact = np.asarray(jax.jit(jax.vmap(lambda *x: inverse_dynamics(arm, *x)))(samples.q, samples.qd, samples.qdd))
    states, size, ratios = (samples.qdd, samples.qd, np.tanh(samples.qd / WIDTH), np.ones_like(exact)), 20.0, []
    own = np.stack(states, axis=2)
    clear = [x - w @ np.linalg.lstsq(w, x, rcond=None)[0] for x, w in zip(exact.T, np.swapaxes(own, 0, 1), strict=True)]
    for seed in range(100):
        tau = exact + size * np.random.default_rng(seed).normal(size=exact.shape)
        factors, deviations, _ = scales(arm, dataclasses.replace(samples, tau=tau, torque_cutoff=samples.rate / 2))
        ratios.append(deviations * np.linalg.norm(clear, axis=1) * factors / size)
    assert np.all(np.abs(np.log(np.sqrt(np.mean(np.square(ratios), axis=0)))) < np.log(1.25))


def test_raw_torques_are_read_after_their_delay(annotations_unchecked):
    t = np.arange(100) / 100
    log = Log(t, np.zeros((100, 2)), None, np.stack([3 * t, 5 * t], axis=1))
    found = logged_torque(log, SimpleNamespace(t=t[10:50]), [0.013, 0.021])
    np.testing.assert_allclose(found, np.stack([3 * (t[10:50] + 0.013), 5 * (t[10:50] + 0.021)], axis=1), rtol=1e-12)


@pytest.mark.ci
def test_what_is_taken_from_the_model_stays_when_terms_are_selected():
    """Friction that is not identified, and parameters that are known by name."""
    drives = {
        "armature": jnp.array([0.2, 0.1]),
        "friction.viscous": jnp.array([1.0, 2.0]),
        "friction.coulomb": jnp.array([0.5, 0.7]),
    }
    arm = jaxdyn.model.with_leaves(jaxdyn.textbook.planar_elbow(), drives)
    log = jaxdyn.identification.synthetic_log(arm, random_excitation(arm, 10.0, 5, seed=0), 10.0, 200.0, 1e-5, 0.02)
    some = Terms(drives=("armature", "viscous"))
    found = jaxdyn.identify(arm, log, terms=some)
    np.testing.assert_array_equal(found.chain.friction.coulomb, arm.friction.coulomb)
    assert (found.validation[0].fit.relative < 1).all()
    cable = dataclasses.replace(some, further=(Cable(powers=(1,), joints=(1,)),), choose=())
    with pytest.raises(jaxdyn.IdentificationError, match="of which coulomb"):
        jaxdyn.identify(arm, log, terms=cable)
    armature = float(arm.armature[1])
    known = Consistency(constraints=known_parameters(Columns().names(2), {"Ia2": armature}))
    result = jaxdyn.identify(arm, log, consistent=known)
    assert result.parameters[result.names.index("Ia2")] == pytest.approx(armature, rel=1e-6)

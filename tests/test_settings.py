"""Springs, delays and what cross-validation chooses: on runs of a known arm, and on a real one's log."""

import dataclasses
import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import IdentificationError, Log, identify, inverse_dynamics, resistive_force, textbook
from jaxdyn.cli import main
from jaxdyn.identification import (
    Columns,
    ExtraColumns,
    Filters,
    choose_settings,
    coupled_drive,
    diagnose,
    diagnose_identification,
    joint_springs,
    preprocess,
    prior_parameters,
    prior_scales,
    random_excitation,
)
from jaxdyn.identification._regression.completion import with_parameters
from jaxdyn.identification._settings import (
    _better,
    _between,
    _left,
    _Products,
    _Search,
    _solve,
    _State,
    known_or_estimated_delay,
)
from jaxdyn.identification._simulation.parametric import parameters_of, parametric_torque
from jaxdyn.report._pages.identification import report_html
from regression import known_arm, states

FILTER = {"filters": Filters(20.0)}
DELAY = np.array([0.004, 0.0, 0.0075])
WIDTH = np.array([0.05, 0.01, 0.1])


@pytest.fixture(scope="module")
def arm():
    """With springs at the outer joints and a smooth sign of another width at each."""
    leaves = {"springs.stiffness": jnp.array([3.0, 0.0, -2.0]), "friction.coulomb_velocity": jnp.asarray(WIDTH)}
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


def test_springs_are_columns_with_a_leaf(arm, given):
    extra = joint_springs(arm, (1, 3))
    assert extra.names == ("k1", "k3") and extra is joint_springs(arm, (1, 3))
    columns = Columns(extra=(coupled_drive(1, 2), extra))
    parameters = prior_parameters(arm, columns)
    np.testing.assert_array_equal(parameters[-2:], [3.0, -2.0])
    np.testing.assert_array_equal(parameters_of(arm, columns), parameters)
    np.testing.assert_array_equal(with_parameters(given, columns, parameters).springs.stiffness, arm.springs.stiffness)
    q, qd, qdd = (jnp.asarray(x[0]) for x in states(1))
    np.testing.assert_allclose(
        extra.matrix(arm, q, qd, qdd), np.diag(q - arm.springs.rest_position)[:, [0, 2]], rtol=1e-15
    )
    with pytest.raises(IdentificationError, match=r"joints \(1, 1\)"):
        joint_springs(arm, (1, 1))
    with pytest.raises(IdentificationError, match="of 2 joints"):
        ExtraColumns(("a",), ("1",), extra.matrix, "springs.stiffness", (1, 3))


def test_springs_in_the_torques(arm, given):
    columns = Columns(extra=(joint_springs(arm, (1, 3)),))
    parameters = jnp.asarray(prior_parameters(arm, columns))
    state = tuple(jnp.asarray(x[0]) for x in states(1))
    wide = jaxdyn.model.with_leaves(given, {"friction.coulomb_velocity": arm.friction.coulomb_velocity})
    torque = jax.jit(lambda q, qd, qdd: inverse_dynamics(arm, q, qd, qdd) + resistive_force(arm, q, qd))(*state)
    np.testing.assert_allclose(jax.jit(columns.matrix)(wide, *state) @ parameters, torque, rtol=1e-12)
    found = jax.jit(lambda *x: parametric_torque(columns, wide, *x))(parameters, *state)
    np.testing.assert_allclose(found, torque, rtol=1e-12)


@pytest.mark.ci
def test_chosen_settings_and_what_comes_of_them(arm, given, log):
    result = identify(given, log, settings="chosen", **FILTER)
    found = result.settings
    np.testing.assert_allclose(found.delay, DELAY, atol=6e-4)
    assert {1, 3} <= set(found.springs) and np.all(found.errors < 0.5 * found.errors_before)
    assert found.cutoff is None and str(found).count("\n") == 3
    assert result.notes[0].startswith("settings: widths of dry friction s") and "springs at joints 1" in result.notes[0]
    np.testing.assert_allclose(result.chain.springs.stiffness, arm.springs.stiffness, atol=0.05)
    assert result.validation[0].fit.total_relative < 1.0
    np.testing.assert_array_equal(result.delay, found.delay)
    late = log.t > 0.75 * log.t[-1]
    other = dataclasses.replace(log, tau=np.where(late[:, None], -log.tau, log.tau))
    again = choose_settings(given, other, share=0.7, **FILTER)  # never looks at what is held out
    np.testing.assert_allclose(again.errors, found.errors, rtol=1e-7)
    # one delay, given and found
    late = identify(
        given, log, columns=Columns(extra=(joint_springs(given),)), filters=Filters(20.0, delay=list(DELAY))
    )
    np.testing.assert_array_equal(late.delay, DELAY)
    assert "torques taken 4, 0, 7.5 ms later" in report_html(late)
    with pytest.raises(IdentificationError, match="not both"):
        identify(given, log, filters=Filters(delay=0.0), settings="chosen")
    estimated = known_or_estimated_delay(given, [log], Columns(), Filters(20.0, delay="estimated"), share=0.7)
    np.testing.assert_allclose(estimated, found.delay, atol=1e-9)
    with pytest.raises(IdentificationError, match="one or one a joint"):
        identify(given, log, filters=Filters(delay=[0.0, 1.0]))
    # the findings come from the factors of the fit
    assert diagnose_identification(late) == diagnose(given, [e.samples for e in late.fitted], columns=late.columns)


def test_a_cubic_between_shifts_is_that_of_the_four_nearest():
    shifts, cubic = np.linspace(-0.03, 0.05, 9), np.polynomial.Polynomial([0.3, -2.0, 40.0, 900.0])
    for d, first in ((-0.03, 0), (-0.027, 0), (0.011, 3), (0.0249, 4), (0.0499, 5), (0.05, 5)):
        weights = _between(shifts, d)
        assert weights @ cubic(shifts) == pytest.approx(cubic(d), rel=1e-12)
        assert not np.delete(weights, range(first, first + 4)).any()


def stretches(noise=(0.05, 0.2)):
    """Rows of three stretches of two joints: a shared column, two of dry friction, a spring's, the torque at five shifts.

    Joint 1 has the second friction and the torque at the second shift, joint 2 the first friction, a spring and the third.
    """
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(3, 2, 40, 9))
    rows[:, 0, :, 5] = 2 * rows[:, 0, :, 0] - rows[:, 0, :, 2]
    rows[:, 1, :, 6] = 2 * rows[:, 1, :, 0] + 3 * rows[:, 1, :, 1] + 0.5 * rows[:, 1, :, 3]
    rows[:, :, :, 4:] += np.array(noise)[None, :, None, None] * rng.normal(size=(3, 2, 40, 1))
    state = _State(np.array([-0.01, 0.0]), np.array([1, 0]), np.array([False, True]))
    return rows, state, [[0, 2, 5], [0, 1, 3, 6]]


def search():
    """Of two joints, without the columns of any robot."""
    made = object.__new__(_Search)
    made.chain, made.terms, made.size, made.kinds = SimpleNamespace(n=2), ("viscous", "coulomb"), 1, 2
    made.shifts = np.linspace(-0.02, 0.02, 5)
    return made


def products(rows):
    return _Products(rows.transpose(0, 1, 3, 2) @ rows, np.full(len(rows), float(rows.shape[2])))


def fitted(rows, own, weights):
    """Shared and own parameters of both joints' rows (n, N, w), and what they leave of the torques (n, N)."""
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


def test_joints_share_the_rigid_body_and_weigh_as_told():
    rows, state, own = stretches()
    chosen, place = search()._columns(state)
    assert [at.tolist() for at in place] == [[0, 1], [0, 2, 3]]
    grams, weights = products(rows).stretches[1], np.array([3.0, 0.5])
    x = _solve(grams, chosen, place, weights**2)
    expected, parts, torques = fitted(rows[1], own, weights)
    np.testing.assert_allclose(x, expected, rtol=1e-8)
    left = [((t - p @ expected) ** 2).sum() for p, t in zip(parts, torques, strict=True)]
    np.testing.assert_allclose(_left(grams, chosen, place, x), left, rtol=1e-8)
    rows[:, 0, :, 2] = 0.0  # friction of a joint that stands still
    assert _solve(products(rows).stretches[0], chosen, place, weights**2)[1] == 0


def test_errors_are_those_of_stretches_left_out():
    rows, state, own = stretches()
    other = stretches(noise=(0.3, 0.1))[0][:, :, :25]
    found = search().errors(state, products(rows), products(other))
    squares = np.zeros(2)
    for k in range(3):
        rest, noise = np.concatenate(np.delete(rows, k, axis=0), axis=1), np.ones(2)
        for _ in range(8):
            x, parts, torques = fitted(rest, own, 1 / noise)
            noise = np.array([np.sqrt(((t - p @ x) ** 2).mean()) for p, t in zip(parts, torques, strict=True)])
        _, parts, torques = fitted(other[k], own, 1 / noise)
        squares += [((t - p @ x) ** 2).sum() for p, t in zip(parts, torques, strict=True)]
    np.testing.assert_allclose(found, np.sqrt(squares / 75), rtol=1e-6)


def test_a_joint_takes_what_makes_its_own_error_less():
    state = _State(np.zeros(3), np.zeros(3, int), np.array([False, True, True]))
    now, known = np.array([1.0, 2.0, 3.0]), {}  # errors by joint, delay and spring

    def errors(state):
        settings = zip(range(3), state.delay, state.spring, strict=True)
        return np.array([known.get((j, float(d), bool(k)), now[j]) for j, d, k in settings])

    later = state.but(delay=np.array([0.1, 0.2, 0.3]))
    known |= {(0, 0.1, False): 0.8, (1, 0.2, True): 1.99, (2, 0.3, True): 4.0}
    best, left = _better(errors, state, now, later, 0.01)
    np.testing.assert_array_equal(best.delay, [0.1, 0, 0])  # a little less, as at joint 2, is not enough
    np.testing.assert_array_equal(left, [0.8, 2, 3])
    # a spring comes where it takes enough off the error, and goes where it took next to nothing off
    known |= {(0, 0.0, True): 0.995, (1, 0.0, False): 2.015, (2, 0.0, False): 3.05}
    best, left = _better(errors, state, now, state.but(spring=~state.spring), 0.01)
    np.testing.assert_array_equal(best.spring, [False, False, True])
    np.testing.assert_array_equal(left, [1, 2.015, 3])


@pytest.mark.parametrize(("together", "taken"), [(1.005, True), (1.2, False)])
def test_what_is_better_for_each_joint_must_not_be_worse_for_all(together, taken):
    state, now = _State(np.zeros(3), np.zeros(3, int), np.zeros(3, bool)), np.array([1.0, 2.0, 3.0])
    # with all three delays joints 1 and 2 gain and joint 3 does not; with those two alone all of them lose
    errors = lambda state: now * [0.9, 0.9, 1.1] if state.delay.all() else now * together
    best, left = _better(errors, state, now, state.but(delay=np.full(3, 0.1)), 0.01)
    np.testing.assert_array_equal(best.delay, [0.1, 0.1, 0.0] if taken else np.zeros(3))
    np.testing.assert_array_equal(left, now * together if taken else now)


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


def test_settings_of_two_joints_that_differ(elbow, late_log):
    given = jaxdyn.model.with_leaves(
        elbow, {"springs.stiffness": jnp.zeros(2), "friction.coulomb_velocity": jnp.full(2, 0.02)}
    )
    found = choose_settings(given, late_log, columns=Columns(("viscous", "coulomb", "offset")))
    np.testing.assert_allclose(found.delay, [0.006, 0.0], atol=5e-4)
    assert found.springs == (1,) and found.cutoff is not None and found.friction is not None
    assert found.friction.names(2) == ("fv1", "off1", "fc1", "fv2", "off2", "fz2")
    assert found.coulomb_velocity[0] == 0.05 and float(found.friction.terms[2].width[1]) == 4e-3
    assert found.friction.cutoff == found.cutoff and np.all(found.errors < 0.5 * found.errors_before)
    np.testing.assert_array_equal(found.chain(elbow).friction.coulomb_velocity, found.coulomb_velocity)
    assert "dry friction sign 0.05, slip 0.004; springs at joints 1; delays " in found.sentence
    head, *rows = str(found).splitlines()
    assert head.endswith(f"low-pass {found.cutoff:g} Hz") and [row.split()[0] for row in rows] == ["1", "2"]
    assert [row.split()[1:4] for row in rows] == [["tanh", "0.05", "yes"], ["slip", "0.004", "no"]]
    # nothing beyond the first share of a run counts, and runs are one after the other whatever their number
    options = {"filters": Filters(15.0), "slips": False, "columns": Columns(("viscous", "coulomb", "offset"))}
    half = lambda a, b, sign=1: Log(late_log.t[a:b], late_log.q[a:b], None, sign * late_log.tau[a:b])
    whole = choose_settings(given, [half(0, 2400), half(2400, 4800)], **options)
    np.testing.assert_allclose(whole.delay[0], 0.006, atol=5e-4)
    assert whole.cutoff is None and whole.springs == (1,) and whole.friction is None
    turned = np.where(late_log.t[:, None] < 8.0, late_log.tau, -late_log.tau)
    first, again = (
        choose_settings(given, x, share=0.6, delays=False, springs=False, **options)
        for x in (late_log, dataclasses.replace(late_log, tau=turned))
    )
    np.testing.assert_allclose(again.errors, first.errors, rtol=1e-7)
    assert first.springs == () and not first.delay.any()
    with pytest.raises(IdentificationError, match="too short to be cut"):
        choose_settings(given, half(0, 330), **options)


def test_scales_against_the_given_model(arm, log):
    samples = preprocess(log, **FILTER)
    rough = dataclasses.replace(arm, inertia=arm.inertia * jnp.array([1.2, 0.9, 1.1])[:, None])
    found = prior_scales(rough, [samples])
    twice = prior_scales(rough, [dataclasses.replace(samples, tau=2 * samples.tau)])
    assert found.judged[1:].all() and np.all(np.abs(np.log(found.factors[1:])) < 0.25)
    np.testing.assert_allclose(twice.factors, 2 * found.factors, rtol=1e-8)
    turned = prior_scales(rough, [dataclasses.replace(samples, tau=-samples.tau)])
    np.testing.assert_allclose(turned.factors, -found.factors, rtol=1e-8)
    np.testing.assert_allclose(turned.alike, -found.alike, rtol=1e-8)
    assert not turned.judged.any()
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

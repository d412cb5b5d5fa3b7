"""Motion that is repeated: found by its states, and left out, held out and split as a motion rather than in time."""

import dataclasses
import itertools

import numpy as np
import pytest

import jaxdyn
from benchmarks import intervals
from jaxdyn.identification import Terms, identify, preprocess
from jaxdyn.identification.preprocessing import Motion, repeated_motion
from jaxdyn.report import verdict

PERIOD = 10.0


def motion(
    seed: int, joints: int = 3, rate: float = 100.0, seconds: float = PERIOD, late: float = 0.0, speed: float = 1.0
):
    """(N, joints) positions of a periodic motion of five harmonics, without stops."""
    rng, t = np.random.default_rng(seed), speed * (np.arange(0, seconds, 1 / rate) + late)
    k = 2 * np.pi / PERIOD * np.arange(1, 6)
    a, b = rng.normal(size=(2, joints, 5)) / np.arange(1, 6)
    return np.sin(t[:, None] * k) @ a.T + np.cos(t[:, None] * k) @ b.T


def to_and_from(home, places, rate=100.0, seconds=1.5):
    """Moves from a home pose to each of several places and back, at rest for half a second at either end."""
    s = np.linspace(0, 1, int(seconds * rate))[:, None]
    s, pause, out = s**3 * (10 - 15 * s + 6 * s**2), int(rate / 2), []
    for place in places:
        out += [
            home + s * (place - home),
            np.tile(place, (pause, 1)),
            place - s * (place - home),
            np.tile(home, (pause, 1)),
        ]
    return np.concatenate(out)


def samples(q, rate: float = 100.0):
    noise = np.random.default_rng(len(q)).normal(size=q.shape)
    q = np.asarray(q) + 2e-5 * noise
    return preprocess(jaxdyn.Log(t=np.arange(len(q)) / rate, q=q, qd=None, tau=noise, source="made"))


def still(q, seconds: float, rate: float = 100.0):
    return np.tile(q, (int(seconds * rate), 1))


A, B, C = (motion(seed) for seed in (1, 2, 3))
REPEATED = {  # name: runs, seconds of distinct motion
    "three in a row": ([motion(1, seconds=30.0)], 10.0),
    "slow": ([0.1 * motion(1, seconds=30.0)], 10.0),
    "with pauses": ([np.concatenate([A, still(A[-1], 3.0), A, still(A[-1], 1.7), A])], 10.0),
    "in another order": ([np.concatenate([A, B, C]), np.concatenate([B, C, A])], 30.0),
    "two runs": ([A, A], 10.0),
    "another phase": ([A, motion(1, late=3.7)], 10.0),
    "a half": ([np.concatenate([A, A[: len(A) // 2]])], 10.0),
    "three and another": ([np.concatenate([A, A, A, B])], 20.0),
    "seven joints": ([motion(5, joints=7, seconds=40.0)], 10.0),
    "one joint": ([motion(6, joints=1, seconds=40.0)], 10.0),
    "two per cent faster": ([A, motion(1, seconds=PERIOD / 1.02, speed=1.02)], 10.0),
}


@pytest.mark.parametrize("name", REPEATED)
def test_repeated_motion_is_found(name):
    runs, seconds = REPEATED[name]
    found = repeated_motion([samples(q) for q in runs])
    assert found is not None and abs(found.length - seconds) < 0.12 * seconds


def test_stretches_leave_out_the_end_of_every_runs_motion():
    t = np.arange(0, 20, 0.05)
    both = Motion((t[:200], t), (t[:200], 10 + t), (10.0, 30.0), (t[:200] >= 0, t >= 0), (False, False))
    np.testing.assert_array_equal(both.groups(1, t, 6), 2 + np.floor(t / 5))
    kept = np.minimum(t, 10)  # half of each run's motion is held out: 5 s of the first, 10 s of the second are left
    np.testing.assert_array_equal(both.groups(1, t, 3, 0.5), np.minimum(1 + kept // 5, 2))


@pytest.mark.parametrize("rate", [83.0, 101.0, 250.0])
def test_another_sample_rate_is_the_same_motion(rate):
    runs = [samples(A), samples(motion(1, rate=rate), rate)]
    found = repeated_motion(runs)
    assert found is not None and abs(found.length - PERIOD) < 1.0
    places = [np.interp(np.arange(1.0, 9.0, 0.5), s.t, p) for s, p in zip(runs, found.places, strict=True)]
    np.testing.assert_allclose(places[1], places[0], atol=0.05)
    assert found.repeats == (False, True)


PLACES = np.random.default_rng(7).uniform(-1.5, 1.5, (8, 3))
OTHERS = {
    "one motion": [A],
    "two motions of one period": [A, B],
    "one long motion": [motion(8, seconds=9.9)],
    "from one home to many places": [to_and_from(np.zeros(3), PLACES)],
    "through several places": [np.concatenate([to_and_from(a, [b])[:200] for a, b in itertools.pairwise(PLACES)])],
    "standing": [still(A[0], 20.0)],
    "standing, then moving": [np.concatenate([still(A[0], 8.0), A, still(A[-1], 8.0)])],
    "faster by a half": [A, motion(1, seconds=PERIOD / 1.5, speed=1.5)],
    "backwards": [A, A[::-1]],
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_motion_is_not_taken_for_a_repetition(name):
    assert repeated_motion([samples(q) for q in OTHERS[name]]) is None


@pytest.fixture(scope="module")
def arm():
    return jaxdyn.robots.ur5()


def log_of(arm, repeats: int, seed: int = 1, period: float = PERIOD):
    excitation = jaxdyn.identification.random_excitation(arm, period, 6, seed=seed)
    return jaxdyn.identification.synthetic_log(arm, excitation, repeats * period, 100.0, 1e-5, 0.1, seed=seed)


def test_a_stretch_of_the_motion_is_held_out_of_all_repetitions(arm):
    result = identify(arm, log_of(arm, 4), terms=Terms(choose=()), consistent=None)
    (held,) = result.validation
    assert held.title == "held out: 30 % of the motion in synthetic" and not held.repeats_fitted and result.is_validated
    phase = held.samples.t % PERIOD
    seconds = np.bincount((held.samples.t // PERIOD).astype(int)) / held.samples.rate
    assert len(seconds) == 4 and 2.0 < seconds.min() and seconds.max() < 3.2  # three seconds, less two guards
    empty = np.flatnonzero(np.histogram(phase, np.arange(0, 10.1, 0.25))[0] == 0)
    assert len(empty) >= 26  # seven of ten seconds were never held out
    assert result.split_half is None or result.split_half.of_motion


@pytest.mark.ci
def test_validation_by_the_same_motion_validates_nothing(arm):
    log, other = log_of(arm, 1), log_of(arm, 1, seed=2)
    again = dataclasses.replace(log_of(arm, 1), tau=log.tau + 0.01, source="again")
    same = identify(arm, log, again, terms=Terms(choose=()), consistent=None)
    assert same.validation[0].title == "validation: again (the same motion, repeated)"
    assert same.validation[0].repeats_fitted and not same.is_validated
    judged = verdict(same)
    assert any("repeats the fitted motion" in check.text for check in judged.checks)
    assert all(use.level != "good" for use in judged.uses)
    assert not any("confirms" in check.text for check in judged.checks)
    apart = identify(arm, log, [other, again], terms=Terms(choose=()), consistent=None)
    assert [run.repeats_fitted for run in apart.validation] == [False, True] and apart.is_validated


@pytest.mark.nightly
@pytest.mark.parametrize("effect", ["position", "elastic"])
def test_intervals_hold_when_the_motion_is_repeated(effect):
    share, least, *_ = intervals.repeated_coverage(3, effect, 4)
    assert share >= 0.9 and least >= 0.75

"""Filters without lag, derivatives, uneven stamps, gaps, motor to joint; and the logs of real robots."""

import dataclasses

import numpy as np
import pytest

from jaxdyn import Log, LogError, read_log
from jaxdyn.identification import Filters, Samples, motor_to_joint, preprocess, split
from jaxdyn.identification.filters import bandwidth, differentiate, low_pass
from jaxdyn.identification.preprocessing import default_cutoff, stale_rows
from jaxdyn.io import check_log

OMEGA = 2 * np.pi * np.array([0.4, 1.1])  # motion of the made-up robot [rad/s]
PHASE = np.array([0.3, 1.2])
INERTIA, VISCOUS = np.array([0.8, 0.3]), np.array([2.0, 1.0])


def exact(t: np.ndarray, omega: np.ndarray = OMEGA) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x = t[:, None] * omega + PHASE
    return np.sin(x), omega * np.cos(x), -(omega**2) * np.sin(x)


def made(t: np.ndarray, omega: np.ndarray = OMEGA, logged: bool = False) -> Log:
    q, qd, qdd = exact(t, omega)
    return Log(t, q, qd if logged else None, INERTIA * qdd + VISCOUS * qd, "made")


def even(seconds: float = 10.0, rate: float = 1000.0) -> np.ndarray:
    return np.arange(round(seconds * rate)) / rate


def worst(found: np.ndarray, expected: np.ndarray) -> float:
    """Largest error in parts of the largest value."""
    return float((np.abs(found - expected).max(axis=0) / np.abs(expected).max(axis=0)).max())


def assert_exact(samples: Samples, tolerance: float = 1e-5, ends: float = 1.0) -> None:
    """q, qd, qdd and tau are the made-up motion's, a second and more away from the ends of each piece."""
    inside = np.zeros(len(samples), bool)
    for start, stop in samples.segments:
        t = samples.t[start:stop]
        inside[start:stop] = (t > t[0] + ends) & (t < t[-1] - ends)
    q, qd, qdd = exact(samples.t)
    pairs = ((samples.q, q), (samples.qd, qd), (samples.qdd, qdd), (samples.tau, INERTIA * qdd + VISCOUS * qd))
    for found, expected in pairs:
        assert inside.sum() > 0.3 * len(samples) and worst(found[inside], expected[inside]) < tolerance


def complaint(function, *args, **kwargs) -> str:
    with pytest.raises(LogError) as caught:
        function(*args, **kwargs)
    return str(caught.value)


# filters


@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("share", [0.25, 0.5, 1.0, 2.0])
def test_low_pass_has_its_gain_and_no_lag(order, share):
    rate, cutoff = 200.0, 10.0
    t, w = even(60.0, rate), 2 * np.pi * cutoff * share
    inside = slice(2000, -2000)
    out = low_pass(np.sin(w * t)[:, None], rate, cutoff, order)[inside, 0]
    basis = np.stack([np.sin(w * t), np.cos(w * t)], axis=1)[inside]
    (in_phase, in_quadrature), *_ = np.linalg.lstsq(basis, out)
    gain = 1 / (1 + (np.tan(w / 2 / rate) / np.tan(np.pi * cutoff / rate)) ** (2 * order))
    assert in_phase == pytest.approx(gain, rel=1e-9)
    assert abs(in_quadrature) < 1e-9


def test_low_pass_keeps_constants_and_ramps_and_reverses_with_time():
    rng = np.random.default_rng(1)
    t = even(5.0, 100.0)
    np.testing.assert_allclose(low_pass(3 + 0 * t, 100.0, 5.0), 3 + 0 * t, rtol=0, atol=1e-12)
    np.testing.assert_allclose(low_pass(3 + 2 * t, 100.0, 5.0), 3 + 2 * t, rtol=0, atol=1e-4)
    x = np.cumsum(rng.normal(size=(500, 2)), axis=0)
    forward, backward = low_pass(x, 100.0, 5.0), low_pass(x[::-1], 100.0, 5.0)[::-1]
    np.testing.assert_allclose(forward[100:-100], backward[100:-100], rtol=0, atol=1e-8 * np.abs(x).max())


def test_low_pass_refuses():
    for cutoff in (0.0, 50.0):
        assert "it must be between 0 and half the rate, 50 Hz" in complaint(low_pass, np.ones(100), 100.0, cutoff)
    assert "order is 0; it must be at least 1" in complaint(low_pass, np.ones(100), 100.0, 5.0, 0)


def test_differentiate_has_the_error_it_states():
    rate, f = 100.0, 5.0
    t, w = even(4.0, rate), 2 * np.pi * f
    found = differentiate(np.sin(w * t)[:, None], rate)[3:-3, 0] / (w * np.cos(w * t[3:-3]))
    error = 1 - found[np.abs(np.cos(w * t[3:-3])) > 0.5]
    assert error == pytest.approx((w / rate) ** 6 / 140, rel=0.05)
    x = t[:, None] ** 2
    np.testing.assert_allclose(differentiate(x, rate), 2 * t[:, None], rtol=0, atol=1e-11)
    np.testing.assert_allclose(differentiate(x[:4], rate), 2 * t[:4, None], rtol=0, atol=1e-13)


def test_bandwidth():
    rng = np.random.default_rng(2)
    t = even(20.0, 500.0)
    q = np.stack([np.sin(2 * np.pi * 0.5 * t), np.sin(2 * np.pi * 3.0 * t), 0 * t], axis=1)
    assert bandwidth(q + 1e-5 * rng.normal(size=q.shape), 500.0) == pytest.approx(3.0, abs=0.5)
    assert bandwidth(0 * q, 500.0) == 0.0


# preprocess


@pytest.mark.parametrize("rate", [95.0, 1000.0])
def test_derivatives_at_half_the_cutoff(rate):
    cutoff = 10.0
    omega = np.pi * cutoff * np.ones(2)
    samples = preprocess(made(even(10.0, rate), omega), Filters(position_cutoff=cutoff, stride=1))
    gain = 1 / (1 + (np.tan(np.pi * cutoff / 2 / rate) / np.tan(np.pi * cutoff / rate)) ** 8)
    inside = slice(round(rate), -round(rate))
    for found, expected in zip((samples.q, samples.qd, samples.qdd), exact(samples.t, omega), strict=True):
        assert worst(found[inside], gain * expected[inside]) < 3e-5


def test_slow_motion_comes_out_as_it_is():
    samples = preprocess(made(even()), Filters(position_cutoff=10.0))
    assert_exact(samples, 1e-7)
    assert (samples.position_cutoff, samples.torque_cutoff) == (10.0, 10.0)


def test_both_sides_of_a_linear_model_see_the_same_filter():
    rng = np.random.default_rng(3)
    t = even(20.0, 500.0)
    q = np.cumsum(np.cumsum(rng.normal(size=(len(t), 2)), axis=0), axis=0) * 1e-4
    qd = differentiate(q, 500.0)
    tau = INERTIA * differentiate(qd, 500.0) + VISCOUS * qd
    samples = preprocess(Log(t, q, None, tau, "made"), Filters(position_cutoff=8.0, margin=1.0))
    assert worst(INERTIA * samples.qdd + VISCOUS * samples.qd, samples.tau) < 1e-6


def test_a_delay_of_all_joints_is_one_of_each():
    log = made(even(4.0))
    assert preprocess(log, Filters(8.0, delay=0.01)).delay.tolist() == [0.01] * log.tau.shape[1]


def test_uneven_stamps_give_what_even_ones_give():
    rng = np.random.default_rng(4)
    t = even()
    uneven = t + rng.uniform(-3e-4, 3e-4, len(t))
    reference, samples = preprocess(made(t)), preprocess(made(uneven))
    assert not any("uneven" in note for note in reference.notes)
    assert any(note.startswith("time steps are uneven: resampled at 1000") for note in samples.notes)
    assert abs(len(samples) - len(reference)) <= 1
    np.testing.assert_allclose(np.diff(samples.t), samples.t[1] - samples.t[0], rtol=1e-9)
    assert_exact(samples)


def test_taking_uneven_stamps_for_even_ones_would_show():
    rng = np.random.default_rng(4)
    uneven = even() + rng.uniform(-3e-4, 3e-4, 10000)
    samples = preprocess(dataclasses.replace(made(uneven), t=even()))
    with pytest.raises(AssertionError):
        assert_exact(samples)


def test_noise_is_filtered():
    rng = np.random.default_rng(5)
    log = made(even(20.0))
    noisy = dataclasses.replace(log, q=np.round((log.q + 1e-5 * rng.normal(size=log.q.shape)) / 2e-5) * 2e-5)
    samples = preprocess(noisy, Filters(position_cutoff=10.0))
    assert_exact(samples, 0.02)
    raw = differentiate(differentiate(noisy.q, 1000.0), 1000.0)
    assert worst(raw, exact(noisy.t)[2]) > 1.0


def test_default_cutoffs_and_stride():
    samples = preprocess(made(even()))
    assert samples.position_cutoff == samples.torque_cutoff == pytest.approx(13.0, abs=3.0)
    assert samples.rate == 1000.0 / int(1000 / (10 * samples.position_cutoff))
    slow = preprocess(made(even(), OMEGA / 4))
    assert slow.position_cutoff == 8.0 and slow.rate == 1000.0 / 12
    fast = preprocess(made(even(), OMEGA * 4))
    assert fast.position_cutoff == pytest.approx(46.0, abs=4.0)
    coarse = preprocess(made(even(20.0, 30.0)))
    assert (coarse.position_cutoff, coarse.rate) == (6.0, 30.0)
    samples = preprocess(made(even()), Filters(torque_cutoff=7.0))
    assert (samples.position_cutoff, samples.torque_cutoff, samples.rate) == (7.0, 7.0, 1000.0 / 14)
    samples = preprocess(made(even()), Filters(position_cutoff=5.0, torque_cutoff=20.0))
    assert (samples.position_cutoff, samples.torque_cutoff, samples.rate) == (5.0, 20.0, 200.0)


def test_margin_and_stride():
    log = made(even())
    samples = preprocess(log, Filters(position_cutoff=10.0, stride=20, margin=0.5))
    np.testing.assert_allclose(samples.t, log.t[500:-500:20], rtol=0, atol=1e-12)
    assert samples.rate == pytest.approx(50.0) and samples.notes == ()
    samples = preprocess(log, Filters(position_cutoff=10.0, stride=1, margin=0.0))
    assert len(samples) == len(log)
    samples = preprocess(log, Filters(position_cutoff=10.0, stride=100))
    assert samples.notes == ("stride 100 leaves 10 Hz, too low for a cutoff of 10 Hz: aliasing occurs",)


@pytest.mark.parametrize(("margin", "limit"), [(0.1, 0.1), (None, 0.012), (0.3, 0.0015)])
def test_the_margin_covers_the_ends(margin, limit):
    samples = preprocess(made(even(), np.full(2, 6.0)), Filters(position_cutoff=10.0, stride=1, margin=margin))
    q, qd, qdd = exact(samples.t, np.full(2, 6.0))
    assert limit / 20 < worst(samples.qdd, qdd) < limit
    assert worst(samples.qd, qd) < limit / 5 and worst(samples.q, q) < limit / 20


def test_pieces_are_treated_apart():
    t = even(12.0)
    t = t[(t < 4.0) | ((t > 5.0) & (t < 5.1)) | (t > 7.0)]
    samples = preprocess(made(t), Filters(position_cutoff=10.0))
    assert len(samples.segments) == 2
    (a, b), (c, d) = samples.segments
    assert (a, b, d) == (0, c, len(samples))
    assert samples.t[0] >= 0.2 and samples.t[b - 1] <= 3.8 and samples.t[c] >= 7.2 and samples.t[-1] <= 11.8
    assert samples.notes == ("3 pieces separated by gaps of over 0.01 s; discarded 1 of them, shorter than 0.5 s",)
    assert_exact(samples)


def test_a_gap_does_not_touch_the_other_piece():
    t = even(6.0)
    t = t[(t < 3.0) | (t > 4.0)]
    log = made(t)
    after = dataclasses.replace(log, q=np.where(t[:, None] > 4.0, log.q + 1.0, log.q))
    one, other = preprocess(log, Filters(position_cutoff=10.0)), preprocess(after, Filters(position_cutoff=10.0))
    stop = one.segments[0][1]
    np.testing.assert_array_equal(one.qdd[:stop], other.qdd[:stop])
    assert worst(other.qdd, one.qdd) < 1e-6


def test_a_short_gap_is_bridged():
    t = even()
    t = t[(t < 4.0) | (t >= 4.008)]
    samples = preprocess(made(t), Filters(position_cutoff=10.0))
    assert samples.segments == ((0, len(samples)),)
    assert_exact(samples)
    assert len(preprocess(made(t), Filters(position_cutoff=10.0, gap=0.005)).segments) == 2


def test_stale_rows_and_rows_too_close_are_left_out():
    rng = np.random.default_rng(7)
    log = made(even(), logged=True)
    repeated = np.sort(rng.choice(np.arange(1, 10000, 3), 500, replace=False))
    source = np.arange(10000)
    source[repeated] -= 1
    stale = Log(log.t, log.q[source], log.qd[source], log.tau[source], "made")
    samples = preprocess(stale, Filters(position_cutoff=10.0))
    assert samples.notes[0] == "500 stale rows, equal to the previous row, were discarded"
    assert_exact(samples)
    t = np.sort(np.concatenate([log.t, log.t[100::1000] + 1e-6]))
    samples = preprocess(made(t), Filters(position_cutoff=10.0))
    assert "10 rows within a quarter of the median step after the previous one were discarded" in samples.notes
    assert_exact(samples)


def test_rest_is_not_stale():
    t = even(6.0)
    rest = np.minimum(t, 3.0)
    q, qd, _ = exact(rest)
    samples = preprocess(Log(t, q, None, qd, "made"), Filters(position_cutoff=10.0))
    assert not any("stale" in note for note in samples.notes)
    assert np.abs(samples.qd[samples.t > 3.5]).max() < 1e-4


def test_logged_velocities_are_compared():
    log = made(even(), logged=True)
    (note,) = preprocess(log, Filters(position_cutoff=10.0)).notes
    assert note.startswith("logged velocities were not used") and float(note.split("up to ")[1].split(" %")[0]) < 0.02
    (note,) = preprocess(dataclasses.replace(log, qd=log.qd * [1.0, 1.5]), Filters(position_cutoff=10.0)).notes
    assert "by up to 50 % RMS (joint 2)" in note


def test_refusals():
    log = made(even())
    for wrong in (0.0, -1.0, 500.0):
        assert "both must be between 0 and half the log's rate, 500 Hz" in complaint(
            preprocess, log, Filters(position_cutoff=wrong)
        )
    assert "half the log's rate" in complaint(preprocess, log, Filters(position_cutoff=10.0, torque_cutoff=600.0))
    assert "stride is 0 samples" in complaint(preprocess, log, Filters(stride=0))
    assert "margin -1 s" in complaint(preprocess, log, Filters(margin=-1.0))
    text = complaint(preprocess, made(even(0.2)), Filters(position_cutoff=10.0))
    assert "no piece of the log is long enough: each needs 0.5 s" in text and "Log a longer run" in text


def test_notes_of_the_log_come_along():
    log = dataclasses.replace(made(even()), notes=("read well",))
    assert preprocess(log, Filters(position_cutoff=10.0)).notes == ("read well",)


# split


def test_split_keeps_order_and_leaves_the_cut_out():
    samples = preprocess(made(even()), Filters(position_cutoff=10.0))
    first, last = split(samples, 0.7)
    cut = samples.t[round(0.7 * len(samples))]
    assert first.t[0] == samples.t[0] and last.t[-1] == samples.t[-1]
    assert 0.0999 < cut - first.t[-1] < 0.1101 and 0.0999 < last.t[0] - cut < 0.1101
    first, last = split(samples, 0.6, guard=0.0)
    assert len(first) == round(0.6 * len(samples))
    for name in ("t", "q", "qd", "qdd", "tau"):
        joined = np.concatenate([getattr(first, name), getattr(last, name)])
        np.testing.assert_array_equal(joined, getattr(samples, name))
    assert (first.rate, first.position_cutoff, first.segments) == (samples.rate, 10.0, ((0, len(first)),))
    for fraction in (0.0, 1.0, 0.001):
        text = complaint(split, samples, fraction)
        assert (
            text.startswith("made: splitting ")
            and f" at {fraction:g} leaves" in text
            and "each part needs at least 10" in text
        )


def test_split_clips_the_pieces():
    t = even(12.0)
    samples = preprocess(made(t[(t < 4.0) | (t > 7.0)]), Filters(position_cutoff=10.0))
    first, last = split(samples, 0.7)
    assert first.segments == ((0, samples.segments[0][1]), (samples.segments[1][0], len(first)))
    assert last.segments == ((0, len(last)),)
    first, last = split(samples, 0.2)
    assert len(first.segments) == 1 and len(last.segments) == 2 and last.segments[1][1] == len(last)


def test_samples_show_themselves():
    samples = preprocess(made(even()), Filters(position_cutoff=10.0))
    assert isinstance(samples, Samples) and samples.n == 2
    assert repr(samples) == "Samples(960 at 100 Hz in 1 pieces, 2 joints, cutoffs 10 Hz on q, 10 Hz on tau)"


# motor side

RATIO = np.array([[30.0, 0.0], [12.0, -20.0]])  # q_m = RATIO (q - offset): the second motor turns with the first joint
OFFSET = np.array([0.5, -1.0])


def test_motor_to_joint_round_trip_and_power():
    joint = made(even(1.0), logged=True)
    motor = dataclasses.replace(
        joint,
        q=(joint.q - OFFSET) @ RATIO.T,
        qd=joint.qd @ RATIO.T,
        tau=joint.tau @ np.linalg.inv(RATIO),
        notes=("columns qm1, qm2 are motor-side: ...",),
    )
    back = motor_to_joint(motor, np.linalg.inv(RATIO), position_offset=OFFSET)
    for name in ("q", "qd", "tau"):
        np.testing.assert_allclose(getattr(back, name), getattr(joint, name), rtol=0, atol=1e-12)
    power = (motor.tau * motor.qd).sum(axis=1)
    np.testing.assert_allclose((back.tau * back.qd).sum(axis=1), power, rtol=0, atol=1e-11)
    assert back.notes == ("converted from motor side to joint side",)
    given = motor_to_joint(motor, np.linalg.inv(RATIO), RATIO.T, OFFSET)
    np.testing.assert_allclose(given.tau, joint.tau, rtol=0, atol=1e-12)
    assert given.notes == back.notes
    assert "power is not conserved" in motor_to_joint(motor, np.linalg.inv(RATIO), RATIO, OFFSET).notes[0]


def test_motor_to_joint_refuses():
    log = made(even(1.0))
    assert "position_matrix has shape (3, 3); for 2 joints it must be (2, 2)" in complaint(
        motor_to_joint, log, np.eye(3)
    )
    assert "torque_matrix is singular" in complaint(motor_to_joint, log, np.eye(2), np.ones((2, 2)))


# real robots


def tx40(folder) -> Log:
    ratio = np.diag([32.0, 32.0, 45.0, -48.0, 45.0, 32.0])
    ratio[5, 4] = 32.0
    offset = np.array([0.0, -np.pi / 2, np.pi / 2, 0.0, 0.0, 0.0])
    return motor_to_joint(read_log(folder / "tx40" / "motor_log.csv"), np.linalg.inv(ratio), position_offset=offset)


def test_tx40_torque_matrix_is_the_power_conserving_one(shared_data):
    motor, joint = read_log(shared_data / "tx40" / "motor_log.csv"), tx40(shared_data)
    ratio = np.diag([32.0, 32.0, 45.0, -48.0, 45.0, 32.0])
    ratio[4, 5] = 32.0
    np.testing.assert_allclose(joint.tau, motor.tau @ ratio.T, rtol=0, atol=1e-11)
    assert check_log(joint).notes == joint.notes
    samples = preprocess(joint)
    assert samples.position_cutoff == pytest.approx(32.0, abs=2.0) and samples.rate == pytest.approx(5000 / 15)


def test_panda(shared_data):
    log = read_log(shared_data / "panda" / "exciting_1.csv", 7)
    samples = preprocess(log)
    assert (samples.position_cutoff, len(samples.segments)) == (8.0, 1)
    assert samples.rate == pytest.approx(978.28 / 12, abs=0.01) and len(samples) > 1650
    (stale,) = [note for note in samples.notes if "stale" in note]
    assert 1000 < int(stale.split()[0]) < 1131
    logged = np.stack([np.interp(samples.t, log.t, log.qd[:, j]) for j in range(7)], axis=1)
    assert (np.sqrt(((logged - samples.qd) ** 2).mean(0)) < 0.02 * np.sqrt((samples.qd**2).mean(0))).all()


@pytest.mark.parametrize(
    ("name", "pieces"),
    [("ur10e/train_30sec_12harm.csv", 1), ("ur10e/loaded_15harm50sec.csv", 1), ("ur10/exciting.csv", 1)],
)
def test_universal_robots(shared_data, name, pieces):
    gains = (14.87, 13.26, 11.13, 10.62, 11.03, 11.47) if "ur10e" in name else None
    log = read_log(shared_data / name, 6, gains=gains, on_bad_rows="drop")
    samples = preprocess(log)
    assert samples.position_cutoff == 8.0 and len(samples.segments) == pieces
    (note,) = [note for note in samples.notes if note.startswith("logged velocities")]
    assert float(note.split("up to ")[1].split(" %")[0]) < 1.0
    assert np.abs(samples.qdd).max() < 40.0 and np.isfinite(samples.tau).all()


def test_a_rest_counts_from_the_row_that_it_repeats():
    t = np.array([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
    values = np.array([1.0, 1, 1, 2, 2, 3, 3, 3])[:, None] * [1.0, 2.0]
    values[4, 1] += 1e-9  # one number that differs is enough
    np.testing.assert_array_equal(stale_rows(t, values, 0.25), [False, True, True, False, False, False, True, True])
    np.testing.assert_array_equal(stale_rows(t, values, 0.15), [False] * 8)  # 0.2 s with the row before, 0.1 s without
    np.testing.assert_array_equal(stale_rows(t[:6], values[:6], 0.05), [False] * 6)


def test_the_longest_piece_decides_about_the_cutoff():
    t = np.concatenate([even(5.0), 7.0 + even(10.0), 20.0 + even(5.0)])
    hectic = made(t, OMEGA * np.where((t > 6) & (t < 18), 0.25, 4.0)[:, None])
    assert preprocess(hectic).position_cutoff == 8.0
    assert [default_cutoff(made(even(5.0)[:8]), rate)[0] for rate in (1000.0, 30.0)] == [8.0, 6.0]
    assert "too short" in default_cutoff(made(even(5.0)[:8]), 1000.0)[1]


def test_vibration_and_rest_do_not_raise_the_cutoff():
    """Two per cent of the velocity's power spread up to 25 Hz, and a stretch where nothing moves but the encoders' noise."""
    rng, t = np.random.default_rng(3), even(6.0)
    log = made(t, OMEGA / 4)
    shake = np.cumsum(low_pass(rng.normal(size=log.q.shape), 1000.0, 25.0), axis=0)
    speed = lambda q: np.sqrt((np.gradient(q, axis=0) ** 2).mean(axis=0))
    shaken = dataclasses.replace(log, q=log.q + shake * 0.15 * speed(log.q) / speed(shake))
    samples = preprocess(shaken)
    assert samples.position_cutoff <= 15.0  # not ten times 20 Hz
    assert samples.notes[0].startswith(f"low-pass {samples.position_cutoff:g} Hz: the motion's bandwidth is ")
    rest = dataclasses.replace(log, q=np.round(0.3 + 1e-5 * rng.normal(size=log.q.shape), 5))
    assert preprocess(rest).notes[0].endswith("and ten times that is below the minimum of 8 Hz")


def test_a_real_stretch_that_vibrates_is_filtered_as_the_whole(shared_data):
    """The last 30 % of this log were behind 115 Hz, with torques off by 116 %, where the whole log is behind 8 Hz."""
    path = shared_data / "rokae" / "exciting.csv"
    whole, tail = (preprocess(read_log(path, rows=rows)) for rows in (None, (14001, 20000)))
    assert whole.position_cutoff == tail.position_cutoff == 8.0

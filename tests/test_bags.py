"""Logs from bags that rosbags wrote: order, parts, several publishers, and everything that can be wrong with them."""

import contextlib
import sqlite3
import sys

import numpy as np
import pytest

from bag_files import MESSAGE, write_bag, write_trajectories
from jaxdyn import LogError, Topology, from_dh, read_log
from jaxdyn.io import read_motion
from jaxdyn.io.bags import JointStates

pytest.importorskip("rosbags")

KINDS = {"ros1": "run.bag", "ros2": "run", "mcap": "run.mcap"}
NAMES = ("shoulder", "elbow", "wrist")
N, START = 60, 1_700_000_000_250_000_000


def motion(t):
    """Positions, velocities and efforts of the three joints."""
    w = np.array([3.0, 5.0, 2.0])
    x = np.asarray(t)[:, None] * w
    return np.sin(x), w * np.cos(x), 4 * np.sin(x + 1) + 2


T = np.arange(N) / 50
Q, QD, TAU = motion(T)


def messages(topic="/joint_states", names=NAMES, t=T, only=slice(None)):
    joints = [NAMES.index(name) for name in names]
    for s, rows in zip(np.asarray(t)[only], zip(*(block[only] for block in motion(t)), strict=True), strict=True):
        yield (topic, START + round(1e9 * s), names, *(row[joints] for row in rows))


def complaint(*args, **kwargs) -> str:
    with pytest.raises(LogError) as caught:
        read_log(*args, **kwargs)
    return str(caught.value)


@pytest.fixture(scope="module", params=KINDS)
def bag(request, tmp_path_factory):
    return write_bag(tmp_path_factory.mktemp("bags") / KINDS[request.param], messages(), request.param)


def test_joints_of_a_bag_are_found_by_name_in_any_order(bag):
    log = read_log(bag, ("wrist", "shoulder", "elbow"))
    for name, block in (("q", Q), ("qd", QD), ("tau", TAU)):
        np.testing.assert_array_equal(getattr(log, name), block[:, [2, 0, 1]])
    np.testing.assert_allclose(log.t, T, atol=1e-9)  # from the header stamps, to the nanosecond
    assert log.source == bag.name
    assert any("time is counted from 1700000000.25" in note for note in log.notes)


def test_without_names_they_come_as_they_are(bag):
    log = read_log(bag, 3, rows=(1, 30), gains=(2.0, 1.0, 1.0))
    np.testing.assert_array_equal(log.q, Q[:30])
    np.testing.assert_array_equal(log.tau, TAU[:30] * [2, 1, 1])
    assert any("/joint_states" in note and "shoulder, elbow, wrist" in note for note in log.notes)
    assert "has 3 joints, but the robot has 2" in complaint(bag, 2)


def test_other_joints_are_left_out_and_missing_ones_are_named(bag):
    log = read_log(bag, ["elbow"])
    np.testing.assert_array_equal(log.q, Q[:, [1]])
    assert any("joints ignored: shoulder, wrist" in note for note in log.notes)
    text = complaint(bag, ["elbow", "knee"])
    assert (
        "no joint states for knee" in text and "/joint_states: shoulder, elbow, wrist" in text and "joints = [" in text
    )


def test_a_topic_can_be_named_and_an_unknown_one_is_answered_by_a_list(bag):
    np.testing.assert_array_equal(read_log(bag, topic="joint_states").q, Q)
    text = complaint(bag, topic="/other")
    assert "/other" in text and f"/joint_states ({MESSAGE})" in text and "/chatter (std_msgs/msg/String)" in text
    assert "'/chatter' has neither joint states (sensor_msgs/msg/JointState) nor" in complaint(bag, topic="/chatter")


def test_a_bag_without_joint_states_is_refused_with_its_topics(tmp_path):
    path = write_bag(tmp_path / "run.mcap", [], "mcap")
    text = complaint(path)
    assert "no topic in the bag has joint states" in text and "/chatter (std_msgs/msg/String)" in text


def test_the_order_may_change_from_message_to_message(tmp_path):
    one, other = messages(), messages(names=NAMES[::-1])
    mixed = [a if k % 2 else b for k, (a, b) in enumerate(zip(one, other, strict=True))]
    log = read_log(write_bag(tmp_path / "run.bag", mixed, "ros1"), NAMES)
    np.testing.assert_array_equal(log.tau, TAU)


@pytest.mark.parametrize("topics", [("/a", "/a"), ("/a", "/b")], ids=["one topic", "two topics"])
def test_joints_published_apart_are_joined_on_one_clock(tmp_path, topics):
    # a hand of its own at another rate and other times, starting later, with a gap
    fine = np.arange(1200) / 1000
    slow = np.arange(500) / 400 + 0.1003
    slow = slow[(slow < 0.5) | (slow > 0.6)]
    parts = [*messages(topics[0], NAMES[:2], fine), *messages(topics[1], NAMES[2:], slow)]
    log = read_log(write_bag(tmp_path / "run.mcap", sorted(parts, key=lambda m: m[1]), "mcap"), NAMES)
    t = log.t  # counts from the first message of all
    truth = motion(t)[0]
    np.testing.assert_allclose(log.q[:, :2], truth[:, :2], atol=1e-8)
    assert np.abs(log.q[:, 2] - truth[:, 2]).max() < 4 / 8 * 0.0025**2  # linear: w^2 h^2 / 8
    assert t[0] >= 0.1003 and t[-1] <= 1.2 and not ((t > slow[slow < 0.5][-1]) & (t < slow[slow > 0.6][0])).any()
    assert any("wrist are in separate messages" in note and "of shoulder" in note for note in log.notes)


def test_joints_that_are_missing_in_some_messages(tmp_path):
    whole = list(messages())
    whole[20] = next(iter(messages(names=NAMES[:2], only=slice(20, 21))))
    log = read_log(write_bag(tmp_path / "run.bag", whole, "ros1"), NAMES)
    rest = np.delete(np.arange(N), 20)
    np.testing.assert_array_equal(log.q[:, :2], Q[:, :2])
    np.testing.assert_array_equal(log.q[rest, 2], Q[rest, 2])
    np.testing.assert_allclose(log.q[20, 2], (Q[19, 2] + Q[21, 2]) / 2, atol=1e-9)


def test_two_topics_with_all_joints_require_a_choice(tmp_path):
    both = [m for pair in zip(messages("/left"), messages("/right"), strict=True) for m in pair]
    path = write_bag(tmp_path / "run.bag", both, "ros1")
    assert "/left and /right each contain all joints; choose one with topic=" in complaint(path, NAMES)
    text = complaint(path)
    assert "several topics" in text and "/left: shoulder, elbow, wrist; /right:" in text
    np.testing.assert_array_equal(read_log(path, NAMES, topic="/right").q, Q)

    some = [*messages("/all"), *messages("/hand", NAMES[2:])]
    log = read_log(write_bag(tmp_path / "some.bag", some, "ros1"), NAMES)
    np.testing.assert_array_equal(log.q, Q)
    assert any("some of the joints are also on /hand" in note for note in log.notes)

    split = [*messages("/a", NAMES[:2]), *messages("/b", NAMES[1:])]
    text = complaint(write_bag(tmp_path / "split.bag", split, "ros1"), NAMES)
    assert "position of 'elbow' is on several topics, /a and /b" in text


def test_two_publishers_of_one_joint_are_refused(tmp_path):
    other = [(*m[:3], m[3] + 1e-3, *m[4:]) for m in messages()]
    both = [m for pair in zip(messages(), other, strict=True) for m in pair]
    path = write_bag(tmp_path / "run.mcap", both, "mcap")
    text = complaint(path, NAMES)
    assert "time does not increase" in text and "'drop'" not in text  # half of the rows: too many to drop
    parts = [*((*m[:2], m[2][:2], *(x[:2] for x in m[3:])) for m in both), *messages(names=NAMES[2:])]
    text = complaint(write_bag(tmp_path / "parts.mcap", parts, "mcap"), NAMES)
    assert "stamps of 'shoulder' do not increase: do two publishers send this joint" in text


def test_messages_may_lack_velocities_but_not_positions_or_efforts(tmp_path):
    def without(place):
        return [(*m[:place], [], *m[place + 1 :]) for m in messages()]

    log = read_log(write_bag(tmp_path / "v.bag", without(4), "ros1"), NAMES)
    assert log.qd is None and any("no velocities" in note for note in log.notes)
    text = complaint(write_bag(tmp_path / "e.bag", without(5), "ros1"), NAMES)
    assert "topic /joint_states: the messages contain no effort for shoulder, elbow, wrist" in text
    for place, field in ((4, "velocities"), (5, "effort")):  # how drivers say that they do not know
        nothing = [(*m[:place], [np.nan] * 3, *m[place + 1 :]) for m in messages()]
        path = write_bag(tmp_path / f"{field}.bag", nothing, "ros1")
        if field == "effort":
            assert "contain no effort for shoulder" in complaint(path, NAMES)
        else:
            assert read_log(path, NAMES).qd is None
    odd = list(messages())
    odd[7] = (*odd[7][:5], odd[7][5][:2])
    text = complaint(write_bag(tmp_path / "o.bag", odd, "ros1"), NAMES)
    assert "message 8 has 3 joint names, but 2 numbers of effort" in text
    odd[7] = (*odd[7][:2], ("elbow", "elbow"), *(x[:2] for x in odd[3][3:]))
    assert "message 8 names a joint twice" in complaint(write_bag(tmp_path / "d.bag", odd, "ros1"), NAMES)
    bad = list(messages())
    bad[4] = (*bad[4][:5], [1.0, np.nan, 2.0])
    text = complaint(write_bag(tmp_path / "n.bag", bad, "ros1"), NAMES)
    assert "first at sample 5, column 'effort of elbow' (nan)" in text


def test_messages_that_lack_a_field_are_interpolated(tmp_path):
    some = [(*m[:5], []) if k == 20 else m for k, m in enumerate(messages())]
    log = read_log(write_bag(tmp_path / "one.bag", some, "ros1"), NAMES)
    expected = TAU.copy()
    expected[20] = (TAU[19] + TAU[21]) / 2
    np.testing.assert_allclose(log.tau, expected, atol=1e-9)
    np.testing.assert_array_equal(log.q, Q)
    assert any(
        "effort of shoulder, effort of elbow, effort of wrist are in separate messages (59," in x for x in log.notes
    )

    some = [(*m[:4], [np.nan] * 3, m[5]) if k == 20 else m for k, m in enumerate(messages())]
    log = read_log(write_bag(tmp_path / "nan.bag", some, "ros1"), NAMES)
    assert log.qd is not None and np.isfinite(log.qd).all()


@pytest.mark.parametrize("topics", [("/state", "/state"), ("/state", "/effort"), ("/z", "/a")])
@pytest.mark.parametrize("late", [0.0, 0.004])
def test_positions_and_efforts_may_come_from_two_publishers(tmp_path, topics, late):
    """Two publishers, on one topic or on two, with the same stamps or with others."""
    positions = [(*m[:5], []) for m in messages(topics[0])]
    efforts = [(*m[:3], [], [], m[5]) for m in messages(topics[1], NAMES[::-1], T + late)]
    both = sorted([*positions, *efforts], key=lambda m: m[1])
    path = write_bag(tmp_path / "run.mcap", both, "mcap")
    log = read_log(path, NAMES)
    linear = 4 * 5**2 / 8 / 50**2 * (late > 0)  # error of linear interpolation, w^2 h^2 / 8
    for name, block in zip(("q", "qd", "tau"), motion(log.t), strict=True):
        np.testing.assert_allclose(getattr(log, name), block, atol=1e-8 + linear * (name == "tau"))
    assert len(log) == N - (late > 0) and read_log(path, 3).q.shape == log.q.shape
    if topics[0] != topics[1]:
        assert f"effort from {topics[1]}" in log.notes and "contain no effort" in complaint(
            path, NAMES, topic=topics[0]
        )


def test_exact_repeats_of_messages_are_removed(tmp_path):
    twice = [m for m in messages() for _ in range(3)]
    log = read_log(write_bag(tmp_path / "run.mcap", twice, "mcap"), NAMES)
    np.testing.assert_array_equal(log.q, Q)
    assert f"{2 * N} exact repeats of messages on /joint_states removed" in log.notes


def test_messages_without_stamps_have_the_times_of_their_receipt(tmp_path):
    unstamped = [(m[0], 0, *m[2:]) for m in messages()]
    stamps = [m[1] for m in messages()]
    log = read_log(write_bag(tmp_path / "run.bag", unstamped, "ros1", received=stamps), NAMES)
    np.testing.assert_allclose(log.t, T, atol=1e-9)
    assert any("no stamps" in note for note in log.notes)


@pytest.mark.parametrize("kind", KINDS)
def test_a_truncated_bag_is_refused_with_the_command_that_mends_it(kind, tmp_path):
    path = write_bag(tmp_path / KINDS[kind], messages(), kind)
    file = next(path.glob("*.db3")) if kind == "ros2" else path
    whole = file.read_bytes()
    for share in (0.0, 0.4, 0.99):
        file.write_bytes(whole[: int(share * len(whole))])
        text = complaint(path, NAMES)
        assert (str(path) in text and "truncated" in text and "of its 60 messages" in text) or "nothing" in text
        assert {"ros1": "rosbag reindex", "ros2": "ros2 bag reindex", "mcap": "mcap recover"}[kind] in text
    file.write_bytes(whole)
    assert len(read_log(path, NAMES)) == N


def test_a_damaged_bag_says_what_was_readable(tmp_path):
    path = write_bag(tmp_path / "run.bag", messages(), "ros1")
    raw = bytearray(path.read_bytes())
    raw[8000:8200] = b"\xff" * 200
    path.write_bytes(raw)
    text = complaint(path, NAMES)
    assert f"{path}: topic /joint_states: only " in text and " of its 60 messages, the first 0." in text


def test_a_damaged_index_of_a_bag_is_reported(tmp_path):
    folder = write_bag(tmp_path / "run", messages(), "ros2")
    text = (folder / "metadata.yaml").read_text()
    (folder / "metadata.yaml").write_text(text.replace("message_count: 60", "message_count: many"))
    assert f"{folder}: the bag's index is damaged" in complaint(folder, NAMES)

    (folder / "metadata.yaml").write_text(text.replace("name: /joint_states", "name: [a, b]"))
    assert f"{folder}: the bag's index is damaged: ['a', 'b'] is not a topic" in complaint(folder, NAMES)


def test_a_message_without_time_of_receipt_is_refused(tmp_path):
    folder = write_bag(tmp_path / "run", messages(), "ros2")
    (file,) = folder.glob("*.db3")
    with contextlib.closing(sqlite3.connect(file)) as base, base:
        base.execute("UPDATE messages SET timestamp = 'never' WHERE id = (SELECT max(id) FROM messages)")
    text = complaint(folder, NAMES)
    assert "only 59 of its 60 messages" in text and "'never' is not a receive time" in text


@pytest.mark.parametrize("error", [AssertionError, MemoryError, TypeError])
def test_only_what_rosbags_raises_is_damage(error, bag, monkeypatch):
    def fails(*_):
        raise error("a defect of ours")

    monkeypatch.setattr(JointStates, "add", fails)
    with pytest.raises(error, match="a defect of ours"):
        read_log(bag, NAMES)


def test_files_that_are_no_bags_are_refused(tmp_path):
    for name in ("x" * 300, "x" * 300 + ".bag", "a\0b.bag"):
        assert "there is no such file" in complaint(tmp_path / name) or "a log is a .csv" in complaint(tmp_path / name)
    assert "there is no such file" in complaint(tmp_path / "none.bag")
    (tmp_path / "folder").mkdir()
    text = complaint(tmp_path / "folder")
    assert "folder does not contain the metadata.yaml of a ROS 2 bag" in text and "ros2 bag reindex" in text
    (tmp_path / "text.mcap").write_text("t,q1,tau1\n")
    assert "cannot be opened" in complaint(tmp_path / "text.mcap")
    (tmp_path / "log.csv").write_text("t,q1,tau1\n")
    assert "topic= is for bags" in complaint(tmp_path / "log.csv", topic="/joint_states")


def test_without_rosbags_the_message_names_the_extra(bag, monkeypatch):
    monkeypatch.setitem(sys.modules, "rosbags.rosbag1", None)
    assert "pip install 'jaxdyn[bags]'" in complaint(bag)


def test_a_column_map_applies_to_a_bag(bag):
    names = {"joints": ["wrist", "elbow"], "topic": "/joint_states"}
    log = read_log(bag, ("a1", "a2"), columns={**names, "q": {"sign": [-1, 1]}, "i": {"gains": [10.0, 20.0]}})
    np.testing.assert_array_equal(log.q, Q[:, [2, 1]] * [-1, 1])
    np.testing.assert_array_equal(log.qd, QD[:, [2, 1]])
    np.testing.assert_array_equal(log.tau, TAU[:, [2, 1]] * [10, 20])
    assert "the log has 2 joints, but the robot has 3" in complaint(bag, NAMES, columns=names)


def planned(first, last):
    """Points of a trajectory that begins at a sample: (time from start [ns], positions, velocities, efforts)."""
    return [(round(1e9 * (T[k] - T[first])), Q[k], QD[k], TAU[k]) for k in range(first, last)]


@pytest.mark.parametrize("stamped", [True, False])
def test_later_joint_trajectories_replace_the_rest_of_earlier_ones(stamped, tmp_path):
    """A plan of all samples is replaced by another, from sample 40 on, which runs backwards for two points."""
    sent = [(0, planned(0, N)), (40, planned(40, N))]
    sent[0][1][45] = (sent[0][1][45][0], Q[45] + 9.0, QD[45], TAU[45])  # of the part that is replaced
    at = [START + round(1e9 * T[first]) for first, _ in sent]
    path = write_trajectories(
        tmp_path / "plan.mcap",
        "/controller/joint_trajectory",
        [(when if stamped else 0, when, NAMES, points) for when, (_, points) in zip(at, sent, strict=True)],
    )
    log = read_log(path, NAMES[::-1])
    np.testing.assert_allclose(log.t, T, atol=1e-9)
    for name, block in (("q", Q), ("qd", QD), ("tau", TAU)):
        np.testing.assert_array_equal(getattr(log, name), block[:, ::-1])
    assert any("no stamps" in note for note in log.notes) is not stamped
    assert "neither joint" in complaint(path, topic="/other")


def test_planned_positions_are_a_motion_and_no_log(tmp_path):
    points = [(at, q, (), ()) for at, q, _, _ in planned(0, N)]
    path = write_trajectories(tmp_path / "plan.mcap", "/plan", [(START, START, NAMES, points)])
    assert "contain no effort for shoulder, elbow, wrist" in complaint(path, NAMES)
    chain = from_dh([1.0] * 3, [0.0] * 3, [0.0] * 3, [0.0] * 3, topology=Topology.serial(3, joint_names=NAMES))
    motion = read_motion(path, chain)
    np.testing.assert_array_equal(motion.q, Q)
    assert motion.tau is None


def test_parts_of_a_bag_are_read_as_one_log(tmp_path):
    first = write_bag(tmp_path / "run_0.mcap", messages(only=slice(0, 25)), "mcap")
    second = write_bag(tmp_path / "run_1.mcap", messages(only=slice(25, N)), "mcap")
    log = read_log([first, second], NAMES)
    np.testing.assert_array_equal(log.tau, TAU)
    np.testing.assert_allclose(log.t, T, atol=1e-9)
    assert log.source == "run_0.mcap+run_1.mcap"

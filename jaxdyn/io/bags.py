"""Joint states and joint trajectories from ROS 1 bags, ROS 2 bags and MCAP files, read with rosbags.

Messages may be incomplete, in any order, and on several topics; `one_table` makes of them one table of samples. The points of a
trajectory are read as joint states.
"""

import array
import contextlib
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import LogError
from .tables import LOCK_THEM, Table, in_memory, log_error, within

FIELDS = {"q": "position", "qd": "velocity", "tau": "effort"}
_NANO = 1e-9


Key = tuple[str, str]  # quantity and joint


class Series(NamedTuple):
    """A quantity of a joint: for each message with it, its number, stamp and receive time [ns], and the value."""

    times: np.ndarray
    value: np.ndarray


class _Group:
    """The messages with the same list of joint names, in the order of the bag."""

    def __init__(self):
        self.times = array.array("q")  # number, stamp and receive time
        self.values = array.array("d")  # all positions, velocities and efforts
        self.last: tuple[int, bytes] | None = None


class JointStates:
    """The joint states on one topic, collected message by message and retrieved joint by joint."""

    def __init__(self, topic: str):
        self.topic = topic
        self.repeats = 0
        self._count = 0
        self._span = (0, 0)
        self._groups: dict[tuple[str, ...], _Group] = {}

    def __len__(self) -> int:
        return self._count

    @property
    def span(self) -> float:
        """Time between the first and the last message received [s]."""
        return (self._span[1] - self._span[0]) * _NANO

    @property
    def joint_names(self) -> tuple[str, ...]:
        """All joints, in order of appearance."""
        return tuple(dict.fromkeys(name for names in self._groups for name in names))

    def add(self, stamp: int, received: int, message: Any) -> None:
        """Add a message with its stamp and receive time [ns]; an exact repeat of the previous one is only counted."""
        names = tuple(message.name)
        group = self._groups.get(names)
        if group is None:
            if len(set(names)) < len(names):
                raise LogError(f"message {self._count + 1} names a joint twice: {', '.join(names)}")
            group = self._groups[names] = _Group()
        rows = b""
        for field in FIELDS.values():
            values = np.asarray(getattr(message, field), np.float64)
            if len(values) not in (0, len(names)):
                counts = f"{len(names)} joint names, but {len(values)} numbers of {field}"
                raise LogError(f"message {self._count + 1} has {counts}")
            rows += (values if len(values) else np.full(len(names), np.nan)).tobytes()
        self._span = (self._span[0] if self._count else received, received)
        self._count += 1
        now = stamp or received, rows
        if now == group.last:
            self.repeats += 1
            return
        group.last = now
        group.values.frombytes(rows)
        group.times.extend((self._count, stamp, received))

    def series(self) -> dict[str, dict[str, Series]]:
        """For each joint and quantity, the messages that have numbers of it (not all NaN), in the bag's order."""
        parts: dict[tuple[str, str], list[Series]] = {}
        for names, group in self._groups.items():
            times = np.frombuffer(group.times, np.int64).reshape(-1, 3)
            values = np.frombuffer(group.values).reshape(len(times), len(FIELDS), len(names))
            for k, kind in enumerate(FIELDS):
                has = ~np.isnan(values[:, k]).all(axis=1)
                at, held = times[has].T.copy(), values[has, k].T.copy()  # contiguous for each joint
                for name, value in zip(names, held, strict=True):
                    parts.setdefault((name, kind), []).append(Series(at, value))
        found: dict[str, dict[str, Series]] = {name: {} for name in self.joint_names}
        for (name, kind), some in parts.items():
            times, value = (np.concatenate(x, axis=-1) for x in zip(*some, strict=True))
            if len(value):
                order = np.argsort(times[0], kind="stable")
                found[name][kind] = Series(times[:, order], value[order])
        return found


def one_table(
    path: pathlib.Path,
    topics: Mapping[str, JointStates],
    joint_names: Sequence[str] | None,
    chosen: bool,
    efforts: bool = True,
) -> tuple[dict[str, np.ndarray], dict[str, list[str]], list[str]]:
    """Return the columns of joint states by name, the names of the columns of each kind (t, q, qd, tau), and notes."""
    data = {topic: states.series() for topic, states in topics.items()}
    source, notes = _sources(path, data, joint_names, efforts)
    used = list(dict.fromkeys(topic for kind in source.values() for topic in kind.values()))
    joints = list(source["q"])
    if not chosen or len(used) > 1:
        notes.append(f"joint states from {', '.join(used)}; joints in the order {', '.join(joints)}")
    for kind, places in source.items():
        apart = list(dict.fromkeys(topic for name, topic in places.items() if topic != source["q"][name]))
        if apart:
            notes.append(f"{FIELDS[kind]} from {', '.join(apart)}")
    others = sorted({name for topic in used for name in topics[topic].joint_names} - set(joints))
    if others:
        notes.append(f"joints ignored: {', '.join(others)}")
    if "qd" not in source:
        lacking = [name for name in joints if "qd" not in data[source["q"][name]][name]]
        notes.append(f"no velocities, since they are missing for {', '.join(lacking)}")
    again = {topic: topics[topic].repeats for topic in used}
    notes += [f"{count} exact repeats of messages on {topic} removed" for topic, count in again.items() if count]
    keys = [(kind, name, topic) for kind, places in source.items() for name, topic in places.items()]
    series = {(kind, name): data[topic][name][kind] for kind, name, topic in keys}
    unstamped = any(not x.times[1].any() for x in series.values())
    if unstamped:
        notes.append("the messages have no stamps: their receive times, which have more jitter, are used instead")
    stamps = {key: x.times[2 if unstamped else 1] for key, x in series.items()}
    start = min(int(x.min()) for x in stamps.values())
    notes.append(f"time is counted from {start * _NANO:.6f} s")
    times = {key: (x - start) * _NANO for key, x in stamps.items()}
    t, moved = _common(path, times, source, notes)
    columns, kinds = {"t": t}, {"t": ["t"]}
    for (kind, name), x in series.items():
        label = f"{FIELDS[kind]} of {name}"
        kinds.setdefault(kind, []).append(label)
        columns[label] = np.interp(t, times[kind, name], x.value) if moved[kind, name] else x.value
    return columns, kinds, notes


def _sources(
    path: pathlib.Path,
    data: Mapping[str, Mapping[str, Mapping[str, Series]]],
    joint_names: Sequence[str] | None,
    efforts: bool,
) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Choose the topic of each quantity of each joint, preferably one with the positions and efforts of all joints; notes."""
    there = "; ".join(f"{topic}: {', '.join(joints) or 'none'}" for topic, joints in data.items())
    if joint_names is None:
        holding = [joints for joints in data.values() if any("q" in has for has in joints.values())] or [*data.values()]
        if len(holding) > 1:
            remedy = "Choose one with {topic}, or pass the robot's joint names as joints="
            raise log_error(f"{path}: joint states are on several topics: {there}", remedy)
        joint_names = list(holding[0])
        if not joint_names:
            raise LogError(f"{path}: the messages on {', '.join(data)} contain no joint names")
    missing = [name for name in joint_names if not any(name in joints for joints in data.values())]
    if missing:
        remedy = (
            "If joints have other names than the robot's, list them in a column map: {columns} with joints = [..]. "
        )
        raise log_error(
            f"{path}: no joint states for {', '.join(missing)}; joints by topic: {there}", remedy + LOCK_THEM
        )
    holders = {
        (kind, name): [topic for topic, joints in data.items() if kind in joints.get(name, {})]
        for kind in FIELDS
        for name in joint_names
    }
    for kind in ("q", "tau") if efforts else ("q",):
        without = [name for name in joint_names if not holders[kind, name]]
        if without:
            places = dict.fromkeys(topic for topic, joints in data.items() if any(name in joints for name in without))
            fault = f"topic {', '.join(places)}: the messages contain no {FIELDS[kind]} for {', '.join(without)}"
            fault += f"; identification needs {'torques' if kind == 'tau' else 'positions'}"
            remedy = "Record them (with a driver that publishes them), or choose another topic with {topic}"
            raise log_error(f"{path}: {fault}", remedy)
    complete = lambda kind: [t for t in data if all(t in holders[kind, name] for name in joint_names)]
    best = complete("q")
    if len(best) > 1:
        best = [topic for topic in best if topic in complete("tau")] or best
    if len(best) > 1:
        fault = f"{path}: topics {' and '.join(best)} each contain all joints"
        raise log_error(fault, "choose one with {topic}")
    source: dict[str, dict[str, str]] = {"q": {}}
    for name in joint_names:
        source["q"][name] = best[0] if best else _only(path, name, "q", holders["q", name])
    for kind in ("qd", "tau"):
        if not all(holders[kind, name] for name in joint_names):
            continue
        whole, places = complete(kind), {}
        for name in joint_names:
            held, own = holders[kind, name], source["q"][name]
            if kind == "qd" and own not in held and len(held) > 1:  # optional: none is better than any
                break
            places[name] = own if own in held else whole[0] if len(whole) == 1 else _only(path, name, kind, held)
        if len(places) == len(joint_names):
            source[kind] = places
    used = {topic for places in source.values() for topic in places.values()}
    rest = [topic for topic, joints in data.items() if topic not in used and set(joints) & set(joint_names)]
    return source, [f"some of the joints are also on {', '.join(rest)}, which was not read"] if rest else []


def _only(path: pathlib.Path, name: str, kind: str, topics: Sequence[str]) -> str:
    """The only topic that has a quantity of a joint."""
    if len(topics) > 1:
        fault = f"{FIELDS[kind]} of {name!r} is on several topics, {' and '.join(topics)}, none of which contains all joints"
        raise log_error(f"{path}: {fault}", "record only one of them, or choose one with {topic}")
    return topics[0]


def _common(
    path: pathlib.Path, times: Mapping[Key, np.ndarray], source: Mapping[str, Mapping[str, str]], notes: list[str]
) -> tuple[np.ndarray, dict[Key, bool]]:
    """Choose the time stamps of the samples. For each quantity, also return whether it must be interpolated to these stamps."""
    main = max((key for key in times if key[0] == "q"), key=lambda key: len(times[key]))
    t = times[main]
    moved = {key: not np.array_equal(x, t) for key, x in times.items()}
    if not any(moved.values()):
        return t, moved
    keep = np.ones(len(t), bool)
    for (kind, name), x in times.items():
        steps = np.diff(x)
        if len(steps) == 0 or steps.min() <= 0:
            raise log_error(
                f"{path}: topic {source[kind][name]}: the joints are in separate messages, and the stamps of {name!r} do not "
                "increase: do two publishers send this joint, or were messages received out of order?",
                "Choose a topic with {topic}",
            )
        keep &= within(t, x)
    if keep.sum() < 2:
        raise LogError(f"{path}: the joints are in separate messages that do not overlap in time")
    rate = lambda x: (len(x) - 1) / np.ptp(x)
    apart: dict[tuple[int, float], list[Key]] = {}  # by their number and rate
    for key in times:
        if moved[key]:
            apart.setdefault((len(times[key]), float(rate(times[key]))), []).append(key)
    out = f"{len(t) - int(keep.sum())} of {len(t)} samples"
    for (count, hertz), keys in apart.items():
        notes.append(
            f"{_spoken(keys, source)} are in separate messages ({count}, {hertz:.4g} Hz): interpolated linearly to the stamps "
            f"of {main[1]} ({len(t)}, {rate(t):.4g} Hz); {out} omitted because some joints were not published at these times"
        )
    return t[keep], dict.fromkeys(times, True)


def _spoken(keys: Sequence[Key], source: Mapping[str, Mapping[str, str]]) -> str:
    """Name quantities of joints: only the joint if all of its quantities are meant."""
    joints = list(dict.fromkeys(name for _, name in keys))
    if len(keys) == len(source) * len(joints):
        return ", ".join(joints)
    return ", ".join(f"{FIELDS[kind]} of {name}" for kind, name in keys)


class Point(NamedTuple):
    """A point of a trajectory with the fields of a joint state."""

    name: Sequence[str]
    position: Sequence[float]
    velocity: Sequence[float]
    effort: Sequence[float]


def _points(stamp: int, received: int, message: Any) -> list[tuple[int, int, Point]]:
    """The points of a trajectory, at `time_from_start` after its stamp or, if it has none, its receive time [ns]."""
    points = []
    for point in message.points:
        after = point.time_from_start.sec * 10**9 + point.time_from_start.nanosec
        if not len(point.positions):
            raise LogError("a trajectory has a point without positions")
        state = Point(message.joint_names, point.positions, point.velocities, point.effort)
        points.append((stamp + after if stamp else 0, received + after, state))
    return points


SUFFIXES = (".bag", ".mcap", ".db3")
MESSAGE = "sensor_msgs/msg/JointState"
TRAJECTORY = "trajectory_msgs/msg/JointTrajectory"
_REPAIR = {
    ".bag": "repair it with `rosbag reindex` (ROS 1)",
    ".mcap": "repair it with `mcap recover damaged.mcap -o repaired.mcap`",
    ".db3": "repair it with `ros2 bag reindex FOLDER`, or sqlite3's `.recover`",
}


class _Damaged(Exception):
    """Error for a damaged bag: rosbags cannot read it, or it contains a value that is impossible in an intact bag."""


class _Bag(NamedTuple):
    """An open bag: rosbags' reader, and a function that decodes a message from its bytes and type."""

    reader: Any
    decode: Any


def is_bag(path: pathlib.Path) -> bool:
    """True if the path has the suffix of a bag or is a folder (a ROS 2 bag)."""
    return path.suffix.lower() in SUFFIXES or os.path.isdir(path)


def open_bag(
    paths: Sequence[pathlib.Path],
    joint_names: Sequence[str] | None = None,
    topic: str | None = None,
    *,
    efforts: bool = True,
) -> Table:
    """Read joint states from a bag or its parts as a table of time (header stamps), positions, velocities and efforts."""
    states: dict[str, JointStates] = {}
    for path in paths:
        if not os.path.exists(path):
            raise LogError(f"{path}: there is no such file")
        if path.is_dir() and not (path / "metadata.yaml").is_file():
            remedy = "specify a bag file inside it, or create metadata.yaml with `ros2 bag reindex FOLDER`"
            raise LogError(f"{path}: this folder does not contain the metadata.yaml of a ROS 2 bag", remedy)
        with _opened(path) as bag:
            try:
                topics = _topics(path, bag, topic)
            except _Damaged as error:
                raise LogError(f"{path}: the bag's index is damaged: {error}: {_repair(path)}") from error.__cause__
            for name, connections in topics.items():
                _read(path, bag, states.setdefault(name, JointStates(name)), connections)
    columns, kinds, notes = one_table(paths[0], states, joint_names, topic is not None, efforts)

    return in_memory(columns, lambda row: f"sample {row + 1}", notes=tuple(notes), kinds=kinds)


@contextlib.contextmanager
def _opened(path: pathlib.Path) -> Iterator[_Bag]:
    try:
        from rosbags.rosbag1 import Reader as Reader1
        from rosbags.rosbag2 import Reader as Reader2
        from rosbags.typesys import Stores, get_typestore
    except ImportError as error:
        remedy = "pip install 'jaxdyn[bags]', or convert the bag to .csv or .parquet"
        raise LogError(f"{path}: reading bags requires rosbags, which is not installed: {remedy}") from error
    # the message type is the same in all versions of ROS; other types in the bag are ignored
    first = path.suffix.lower() == ".bag"
    types = get_typestore(Stores.ROS1_NOETIC if first else Stores.LATEST)
    decode = types.deserialize_ros1 if first else types.deserialize_cdr
    try:
        reader: Any = Reader1(path) if first else Reader2(path)
        reader.open()
    except Exception as error:  # on damaged files, rosbags raises all kinds of exceptions, including AssertionError
        size = "" if path.is_dir() else f" of its {path.stat().st_size} bytes"
        raise LogError(
            f"{path}: the bag cannot be opened: {_reason(error)}. Was it truncated, or is it still being recorded? "
            f"Without its index, nothing{size} can be read: {_repair(path)}, or copy it again"
        ) from error
    try:
        yield _Bag(reader, decode)
    finally:
        with contextlib.suppress(Exception):
            reader.close()


def _topics(path: pathlib.Path, bag: _Bag, topic: str | None) -> dict[str, list[Any]]:
    """Find the connections of each topic with joint states or, if there are none, of each topic with joint trajectories."""
    found: dict[str, dict[str, list[Any]]] = {MESSAGE: {}, TRAJECTORY: {}}
    kinds: dict[str, str] = {}
    for connection in _connections(bag):
        kinds[connection.topic] = connection.msgtype
        if connection.msgtype in found:
            found[connection.msgtype].setdefault(connection.topic, []).append(connection)
    there = ", ".join(f"{name} ({kind})" for name, kind in sorted(kinds.items())) or "none (empty bag)"
    there = f"topics in the bag: {there}"
    states, trajectories = found.values()
    if not (states or trajectories):
        raise LogError(f"{path}: no topic in the bag has joint states ({MESSAGE}) or joint trajectories; {there}")
    if topic is None:
        return states or trajectories
    for name in (topic, f"/{topic}"):
        for some in (states, trajectories):
            if name in some:
                return {name: some[name]}
    raise LogError(f"{path}: topic {topic!r} has neither joint states ({MESSAGE}) nor trajectories; {there}")


def _connections(bag: _Bag) -> list[Any]:
    """Return the connections in the index after checking their types, since rosbags reads metadata.yaml without checks."""
    try:
        connections = list(bag.reader.connections)
    except Exception as error:  # raised by rosbags
        raise _Damaged(_reason(error)) from error
    expected = (("topic", "topic", str), ("type of message", "msgtype", str), ("number of messages", "msgcount", int))
    for connection in connections:
        for what, name, kind in expected:
            if type(value := getattr(connection, name)) is not kind:
                raise _Damaged(f"{repr(value)[:80]} is not a {what}")
    return connections


def _messages(bag: _Bag, connections: list[Any]) -> Iterator[tuple[int, int, Any]]:
    """Iterate over messages, each with its stamp and receive time [ns]."""
    try:
        for connection, received, raw in bag.reader.messages(connections=connections):
            message = bag.decode(raw, connection.msgtype)
            stamp = message.header.stamp
            if type(received) is not int or not -(2**63) <= received < 2**63:
                raise ValueError(f"{repr(received)[:80]} is not a receive time")
            yield stamp.sec * 10**9 + stamp.nanosec, received, message
    except Exception as error:  # on damaged files, rosbags raises all kinds of exceptions
        raise _Damaged(_reason(error)) from error


def _read(path: pathlib.Path, bag: _Bag, states: JointStates, connections: list[Any]) -> None:
    """Read all messages on a topic into `states`."""
    expected = sum(connection.msgcount for connection in connections)
    trajectories = connections[0].msgtype == TRAJECTORY
    count, reason = 0, ""
    last: list[tuple[int, int, Point]] = []
    try:
        for stamp, received, message in _messages(bag, connections):
            count += 1
            if not trajectories:
                states.add(stamp, received, message)
                continue
            points = _points(stamp, received, message)
            for point in last:
                if not points or point[:2] < points[0][:2]:  # later points are replaced by this trajectory
                    states.add(*point)
            last = points
        for point in last:
            states.add(*point)
    except LogError as error:
        raise LogError(f"{path}: topic {states.topic}: {error}") from None
    except _Damaged as error:
        reason = str(error)
    if reason or count < expected:
        span = f", the first {states.span:.6g} s," if len(states) else ""
        raise LogError(
            f"{path}: topic {states.topic}: only {count} of its {expected} messages{span} could be read"
            f"{f': {reason}' if reason else ''}. The bag is truncated or damaged: {_repair(path)}, or copy it again"
        )


def _repair(path: pathlib.Path) -> str:
    if path.is_dir():
        inside = [suffix for suffix in (".mcap", ".db3") if any(path.glob(f"*{suffix}*"))]
        return _REPAIR[inside[0] if inside else ".db3"]
    return _REPAIR[path.suffix.lower()]


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()).rstrip(".")
    return f"{text} ({type(error).__name__})" if text else type(error).__name__

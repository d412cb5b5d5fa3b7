"""Read joint states or joint trajectories from ROS 1 bags, ROS 2 bags and MCAP files, with rosbags."""

import contextlib
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...errors import LogError
from .joint_states import JointStates, one_table
from .table import BadCell, Table
from .trajectories import Trajectory

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
    """Read joint states from a bag or its parts as a table of time (header stamps), positions, velocities and efforts.

    If no topic has joint states, or if the chosen topic has trajectories, the points of joint trajectories are read instead.
    The time of a point is its `time_from_start` added to the stamp of the header. A new trajectory replaces the remaining
    points of the previous one.

    Args:
        paths: the bag, or its parts in order.
        joint_names: the joints to read, in this order; if None, all joints of the topic.
        topic: the topic of the joint states; detected if None.
        efforts: require efforts. If False, efforts are omitted if some messages lack them.

    Raises:
        LogError: the bag cannot be used. The causes are:

            - rosbags is not installed;
            - the bag does not exist, is truncated or damaged (the message names the readable part and a way to repair it);
            - the bag or the topic has no joint states, or several topics match;
            - a joint is missing or repeated;
            - the number of values in a message differs from the number of joint names.
    """
    states: dict[str, JointStates] = {}
    for path in paths:
        if not os.path.exists(path):
            raise LogError(f"{path}: there is no such file")
        if path.is_dir() and not (path / "metadata.yaml").is_file():
            raise LogError(
                f"{path}: this folder does not contain the metadata.yaml of a ROS 2 bag; specify a bag file inside it, or "
                "create metadata.yaml with `ros2 bag reindex FOLDER`"
            )
        with _opened(path) as bag:
            try:
                topics = _topics(path, bag, topic)
            except _Damaged as error:
                raise LogError(f"{path}: the bag's index is damaged: {error}: {_repair(path)}") from error.__cause__
            for name, connections in topics.items():
                _read(path, bag, states.setdefault(name, JointStates(name)), connections)
    columns, kinds, notes = one_table(paths[0], states, joint_names, topic is not None, efforts)

    def read(wanted: Sequence[str]) -> tuple[dict[str, np.ndarray], list[BadCell]]:
        return {name: columns[name] for name in wanted}, []

    return Table(tuple(columns), read, lambda row: f"sample {row + 1}", tuple(notes), kinds)


@contextlib.contextmanager
def _opened(path: pathlib.Path) -> Iterator[_Bag]:
    try:
        from rosbags.rosbag1 import Reader as Reader1
        from rosbags.rosbag2 import Reader as Reader2
        from rosbags.typesys import Stores, get_typestore
    except ImportError as error:
        raise LogError(
            f"{path}: reading bags requires rosbags, which is not installed: pip install 'jaxdyn[bags]', or convert the bag "
            "to .csv or .parquet"
        ) from error
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
    """Find the connections of each topic with joint states or, if there are none, of each topic with joint trajectories.

    If `topic` is not None, only the connections of this topic are returned.

    Raises:
        LogError: the topic, or the entire bag if `topic` is None, contains neither joint states nor joint trajectories.
        _Damaged: a topic, type or number of messages is invalid.
    """
    found: dict[str, dict[str, list[Any]]] = {MESSAGE: {}, TRAJECTORY: {}}
    kinds: dict[str, str] = {}
    for connection in _connections(bag):
        kinds[connection.topic] = connection.msgtype
        if connection.msgtype in found:
            found[connection.msgtype].setdefault(connection.topic, []).append(connection)
    there = ", ".join(f"{name} ({kind})" for name, kind in sorted(kinds.items())) or "none (empty bag)"
    states, trajectories = found.values()
    if not (states or trajectories):
        raise LogError(
            f"{path}: no topic in the bag has joint states ({MESSAGE}) or joint trajectories; topics in the bag: {there}"
        )
    if topic is None:
        return states or trajectories
    for name in (topic, f"/{topic}"):
        if name in states or name in trajectories:
            return {name: (states if name in states else trajectories)[name]}
    raise LogError(
        f"{path}: topic {topic!r} has neither joint states ({MESSAGE}) nor trajectories; topics in the bag: {there}"
    )


def _connections(bag: _Bag) -> list[Any]:
    """Return the connections in the index after checking their types, since rosbags reads metadata.yaml without checks."""
    try:
        connections = list(bag.reader.connections)
    except Exception as error:  # raised by rosbags
        raise _Damaged(_reason(error)) from error
    for connection in connections:
        for what, value, kind in (
            ("topic", connection.topic, str),
            ("type of message", connection.msgtype, str),
            ("number of messages", connection.msgcount, int),
        ):
            if type(value) is not kind:
                raise _Damaged(f"{repr(value)[:80]} is not a {what}")
    return connections


def _messages(bag: _Bag, connections: list[Any]) -> Iterator[tuple[int, int, Any]]:
    """Iterate over messages, each with its stamp and receive time [ns].

    Raises:
        _Damaged: rosbags cannot read or decode a message, or the receive time of a message is invalid. Exceptions
            that the caller raises between messages are not converted.
    """
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
    count, reason, last = 0, "", Trajectory()
    try:
        for stamp, received, message in _messages(bag, connections):
            count += 1
            if trajectories:
                trajectory = Trajectory.of(stamp, received, message)
                last.add_to(states, trajectory.start)
                last = trajectory
            else:
                states.add(stamp, received, message)
        last.add_to(states)
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

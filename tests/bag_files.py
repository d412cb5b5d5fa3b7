"""Bags of joint states for the tests, written by rosbags."""

import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

MESSAGE = "sensor_msgs/msg/JointState"
TRAJECTORY = "trajectory_msgs/msg/JointTrajectory"
Messages = Iterable[tuple[str, int, Sequence[str], Sequence[float], Sequence[float], Sequence[float]]]


def write_bag(path: pathlib.Path, messages: Messages, kind: str, received: Sequence[int] | None = None) -> pathlib.Path:
    """Write (topic, stamp [ns], names, position, velocity, effort) as a ROS 1 bag, a ROS 2 folder or an MCAP file; its path.

    Messages are received 10 ms after their stamps, unless `received` says when. Every bag has a topic of another type beside.
    """
    from rosbags.rosbag1 import Writer as Writer1
    from rosbags.rosbag2 import StoragePlugin, Writer as Writer2
    from rosbags.typesys import Stores, get_typestore

    first = kind == "ros1"
    types = get_typestore(Stores.ROS1_NOETIC if first else Stores.LATEST)
    State, Header = types.types[MESSAGE], types.types["std_msgs/msg/Header"]
    Time, Text = types.types["builtin_interfaces/msg/Time"], types.types["std_msgs/msg/String"]
    encode = types.serialize_ros1 if first else types.serialize_cdr
    if first:
        writer: Any = Writer1(path)
    else:
        plugin = StoragePlugin.MCAP if kind == "mcap" else StoragePlugin.SQLITE3
        folder = path.with_suffix(".folder") if kind == "mcap" else path
        writer = Writer2(folder, version=9, storage_plugin=plugin)
    with writer:
        add = lambda topic, typename: writer.add_connection(topic, typename, typestore=types)
        chatter = add("/chatter", "std_msgs/msg/String")
        writer.write(chatter, 1, encode(Text(data="hello"), "std_msgs/msg/String"))
        connections: dict[str, Any] = {}
        for k, (topic, stamp, names, *values) in enumerate(messages):
            if topic not in connections:
                connections[topic] = add(topic, MESSAGE)
            time = Time(sec=stamp // 10**9, nanosec=stamp % 10**9)
            header = Header(stamp=time, frame_id="", **({"seq": k} if first else {}))
            state = State(header, list(names), *(np.ascontiguousarray(x, np.float64) for x in values))
            arrival = stamp + 10**7 if received is None else received[k]
            writer.write(connections[topic], arrival, encode(state, MESSAGE))
    if kind == "mcap":
        (file,) = folder.glob("*.mcap")
        return file.rename(path)
    return path


def write_bag_folder(folder: pathlib.Path, parts: Sequence[Messages], kind: str) -> pathlib.Path:
    """Write the folder of a ROS 2 bag that was split into several files ("ros2" or "mcap"); its path."""
    from ruamel.yaml import YAML

    folder.mkdir()
    whole: dict[str, Any] = {}
    for k, messages in enumerate(parts):
        part = write_bag(folder.parent / f"{folder.name}-{k}{'.mcap' * (kind == 'mcap')}", messages, kind)
        source = part if kind == "mcap" else next(part.glob("*.db3"))
        source.rename(folder / f"{folder.name}_{k}{source.suffix}")
        known = YAML(typ="safe").load((part.with_suffix(".folder") if kind == "mcap" else part) / "metadata.yaml")
        own = known["rosbag2_bagfile_information"]
        whole = whole or {**own, "message_count": 0, "relative_file_paths": []}
        whole["message_count"] += own["message_count"]
        whole["relative_file_paths"] += [f"{folder.name}_{k}{source.suffix}"]
        if k:
            for topic, further in zip(
                whole["topics_with_message_count"], own["topics_with_message_count"], strict=True
            ):
                topic["message_count"] += further["message_count"]
    whole.pop("files")
    YAML(typ="safe").dump({"rosbag2_bagfile_information": whole}, folder / "metadata.yaml")
    return folder


def write_trajectories(
    path: pathlib.Path, topic: str, messages: Iterable[tuple[int, int, Sequence[str], Any]]
) -> pathlib.Path:
    """Write (stamp, receive time [ns], names, points) as an MCAP file of joint trajectories; its path.

    A point is (time from start [ns], positions, velocities, efforts).
    """
    from rosbags.rosbag2 import StoragePlugin, Writer
    from rosbags.typesys import Stores, get_typestore

    types = get_typestore(Stores.LATEST)
    Message, Point = types.types[TRAJECTORY], types.types["trajectory_msgs/msg/JointTrajectoryPoint"]
    Header, Time = types.types["std_msgs/msg/Header"], types.types["builtin_interfaces/msg/Time"]
    Duration = types.types["builtin_interfaces/msg/Duration"]
    floats = lambda x: np.ascontiguousarray(x, np.float64)
    folder = path.with_suffix(".folder")
    with Writer(folder, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        connection = writer.add_connection(topic, TRAJECTORY, typestore=types)
        for stamp, received, names, points in messages:
            made = [
                Point(floats(q), floats(v), floats(()), floats(tau), Duration(sec=at // 10**9, nanosec=at % 10**9))
                for at, q, v, tau in points
            ]
            header = Header(stamp=Time(sec=stamp // 10**9, nanosec=stamp % 10**9), frame_id="")
            writer.write(connection, received, types.serialize_cdr(Message(header, list(names), made), TRAJECTORY))
    (file,) = folder.glob("*.mcap")
    return file.rename(path)

"""Bags of joint states for the tests, written by rosbags."""

import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

MESSAGE = "sensor_msgs/msg/JointState"
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

"""Convert joint state messages, which may be incomplete and in any order, to one table of samples."""

import array
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import LogError
from .rows import GAP

FIELDS = {"q": "position", "qd": "velocity", "tau": "effort"}
_NANO = 1e-9


class _Group:
    """The messages with the same list of joint names, in the order of the bag."""

    def __init__(self):
        self.whole = {key: array.array("q") for key in ("number", "stamp", "received")}
        self.values = {kind: array.array("d") for kind in FIELDS}
        self.lacking: set[str] = set()


class JointStates:
    """The joint states on one topic, collected message by message and retrieved joint by joint."""

    def __init__(self, topic: str):
        self.topic = topic
        self._count = 0
        self._span = [0, 0]
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
        """Add a message with its stamp and receive time [ns].

        Raises:
            LogError: a joint is repeated, or the number of values differs from the number of names.
        """
        names = tuple(message.name)
        group = self._groups.get(names)
        if group is None:
            if len(set(names)) < len(names):
                raise LogError(f"message {self._count + 1} names a joint twice: {', '.join(names)}")
            group = self._groups[names] = _Group()
        for kind, field in FIELDS.items():
            values = np.asarray(getattr(message, field), np.float64)
            if len(values) not in (0, len(names)):
                raise LogError(
                    f"message {self._count + 1} has {len(names)} joint names, but {len(values)} numbers of {field}"
                )
            if len(values) < len(names):
                group.lacking.add(kind)
                values = np.full(len(names), np.nan)
            group.values[kind].frombytes(values.tobytes())
        for key, value in (("number", self._count), ("stamp", stamp), ("received", received)):
            group.whole[key].append(value)
        self._span[:] = [received if self._count == 0 else self._span[0], received]
        self._count += 1

    def joint(self, name: str) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
        """Return the data of a joint in the order of the bag, and the fields that some of its messages lack.

        The data are arrays with one entry per message: message index, stamp and receive time [ns], and joint values.
        """
        parts: dict[str, list[np.ndarray]] = {}
        lacking = []
        for names, group in self._groups.items():
            if name not in names:
                continue
            for key, whole in group.whole.items():
                parts.setdefault(key, []).append(np.array(whole, np.int64))
            for kind, values in group.values.items():
                block = np.frombuffer(values, np.float64).reshape(-1, len(names))
                parts.setdefault(kind, []).append(block[:, names.index(name)])
            lacking += [FIELDS[kind] for kind in FIELDS if kind in group.lacking]
        series = {key: np.concatenate(values) for key, values in parts.items()}
        # drivers that do not measure a field may write NaN
        lacking += [FIELDS[kind] for kind in FIELDS if np.isnan(series[kind]).all()]
        order = np.argsort(series["number"], kind="stable")
        return {key: values[order] for key, values in series.items()}, tuple(dict.fromkeys(lacking))


def one_table(
    path: pathlib.Path,
    topics: Mapping[str, JointStates],
    joint_names: Sequence[str] | None,
    chosen: bool,
    efforts: bool = True,
) -> tuple[dict[str, np.ndarray], dict[str, list[str]], list[str]]:
    """Return the columns of joint states by name, the names of the columns of each kind (t, q, qd, tau), and notes.

    Joint states that arrive in separate messages (from several publishers, or for different parts of the robot) are
    interpolated linearly to the time stamps of the joint with the most messages, except in gaps.

    Args:
        topics: the joint states on each topic.
        joint_names: the joints to read, in this order; by default all joints of the topic, in order of appearance.
        chosen: True if the user chose the topic.
        efforts: require efforts; if False, efforts are omitted if some messages lack them.

    Raises:
        LogError: the topic is ambiguous; a joint is missing, on several topics, or without positions or efforts; the
            stamps of joints in separate messages do not increase or do not overlap.
    """
    source, notes = _sources(path, topics, joint_names)
    used = list(dict.fromkeys(source.values()))
    if not chosen or len(used) > 1:
        notes.append(f"joint states from {', '.join(used)}; joints in the order {', '.join(source)}")
    others = sorted({name for topic in used for name in topics[topic].joint_names} - set(source))
    if others:
        notes.append(f"joints ignored: {', '.join(others)}")
    series: dict[str, dict[str, np.ndarray]] = {}
    without: dict[str, list[str]] = {}
    for name, topic in source.items():
        series[name], lacking = topics[topic].joint(name)
        for field in lacking:
            without.setdefault(field, []).append(name)
    for field in ("position", "effort")[: 1 + efforts]:
        if field in without:
            wanted = "torques" if field == "effort" else "positions"
            raise LogError(
                f"{path}: topic {source[without[field][0]]}: some messages contain no {field} for "
                f"{', '.join(without[field])}; identification needs {wanted}",
                "Record them (with a driver that publishes them), or choose another topic with {topic}",
                topic="'/name'",
            )
    fields = dict(FIELDS)
    if "effort" in without:
        del fields["tau"]
    if "velocity" in without:
        del fields["qd"]
        notes.append(f"no velocities, since they are missing for {', '.join(without['velocity'])}")
    clock = "stamp"
    if any(not x["stamp"].any() for x in series.values()):
        clock = "received"
        notes.append("the messages have no stamps: their receive times, which have more jitter, are used instead")
    start = min(int(x[clock].min()) for x in series.values())
    for x in series.values():
        x["t"] = (x[clock] - start) * _NANO
    notes.append(f"time is counted from {start * _NANO:.6f} s")
    t, moved = _common(path, series, source, notes)
    columns, kinds = {"t": t}, {"t": ["t"]}
    for kind, field in fields.items():
        kinds[kind] = [f"{field} of {name}" for name in series]
        for label, (name, x) in zip(kinds[kind], series.items(), strict=True):
            columns[label] = np.interp(t, x["t"], x[kind]) if moved[name] else x[kind]
    return columns, kinds, notes


def _sources(
    path: pathlib.Path, topics: Mapping[str, JointStates], joint_names: Sequence[str] | None
) -> tuple[dict[str, str], list[str]]:
    """Choose the topic of each joint. Return the topics by joint name, in the order of the joints, and notes."""
    there = "; ".join(f"{topic}: {', '.join(states.joint_names) or 'none'}" for topic, states in topics.items())
    if joint_names is None:
        if len(topics) > 1:
            raise LogError(
                f"{path}: joint states are on several topics: {there}",
                "Choose one with {topic}, or pass the robot's joint names as joints=",
                topic="'/name'",
            )
        ((topic, states),) = topics.items()
        if not states.joint_names:
            raise LogError(f"{path}: topic {topic} has {len(states)} messages, but they contain no joint names")
        return dict.fromkeys(states.joint_names, topic), []
    missing = [name for name in joint_names if not any(name in states.joint_names for states in topics.values())]
    if missing:
        raise LogError(
            f"{path}: no joint states for {', '.join(missing)}; joints by topic: {there}",
            "If the joint names differ from the robot's, list them in a column map: {columns} with joints = [..]",
            columns="'map.toml'",
        )
    complete = [topic for topic, states in topics.items() if set(joint_names) <= set(states.joint_names)]
    if len(complete) > 1:
        raise LogError(
            f"{path}: topics {' and '.join(complete)} each contain all joints",
            "choose one with {topic}",
            topic="'/name'",
        )
    if complete:
        rest = [t for t, states in topics.items() if t != complete[0] and set(joint_names) & set(states.joint_names)]
        notes = [f"some of the joints are also on {', '.join(rest)}, which was not read"] if rest else []
        return dict.fromkeys(joint_names, complete[0]), notes
    source = {}
    for name in joint_names:
        holders = [topic for topic, states in topics.items() if name in states.joint_names]
        if len(holders) > 1:
            raise LogError(
                f"{path}: {name!r} is on several topics, {' and '.join(holders)}, none of which contains all joints",
                "record only one of them, or choose one with {topic}",
                topic="'/name'",
            )
        source[name] = holders[0]
    return source, []


def _common(
    path: pathlib.Path, series: dict[str, dict[str, np.ndarray]], source: dict[str, str], notes: list[str]
) -> tuple[np.ndarray, dict[str, bool]]:
    """Choose the time stamps of the samples. For each joint, also return whether it must be interpolated to these stamps."""
    main = max(series, key=lambda name: len(series[name]["t"]))
    t = series[main]["t"]
    moved = {name: not np.array_equal(x["t"], t) for name, x in series.items()}
    if not any(moved.values()):
        return t, moved
    keep = np.ones(len(t), bool)
    for name, x in series.items():
        steps = np.diff(x["t"])
        if len(steps) == 0 or steps.min() <= 0:
            raise LogError(
                f"{path}: topic {source[name]}: the joints are in separate messages, and the stamps of {name!r} do not "
                "increase: do two publishers send this joint, or were messages received out of order?",
                "Choose a topic with {topic}",
                topic="'/name'",
            )
        after = np.clip(np.searchsorted(x["t"], t, "left"), 1, len(x["t"]) - 1)
        bridged = steps[after - 1]
        exact = np.isin(t, x["t"])
        inside = (t >= x["t"][0]) & (t <= x["t"][-1])
        keep &= inside & (exact | (bridged <= GAP * np.median(steps)))
    if keep.sum() < 2:
        raise LogError(f"{path}: the joints are in separate messages that do not overlap in time")
    others = [name for name in series if moved[name]]
    rates = {name: (len(series[name]["t"]) - 1) / np.ptp(series[name]["t"]) for name in (main, others[0])}
    out = f"{len(t) - int(keep.sum())} of {len(t)} samples"
    notes.append(
        f"{', '.join(others)} are in separate messages ({rates[others[0]]:.4g} Hz): interpolated linearly to the stamps "
        f"of {main} ({rates[main]:.4g} Hz); {out} omitted because some joints were not published at these times"
    )
    return t[keep], dict.fromkeys(series, True)

"""Assign the columns of a table to the time, positions, velocities and torques of a log."""

import itertools
import pathlib
import re
from collections.abc import Mapping, Sequence

import numpy as np

from ...errors import LogError
from .table import NO_TIME, BadCell, Table

ALIASES = {
    "t": ("t", "time", "timestamp", "stamp", "datetime", "__time", "__index_level_0__"),
    "q": ("q", "pos", "position"),
    "qd": ("qd", "dq", "v", "vel", "velocity"),
    "tau": ("tau", "torque", "effort"),
    "i": ("i", "current"),
    "temperature": ("temperature", "temp"),
}
# motor-side columns, read if the log lacks the joint-side quantity
MOTOR_SIDE = {"qm": "q", "qdm": "qd", "taum": "tau"}
_KIND = {alias: kind for kind, names in ALIASES.items() for alias in names} | MOTOR_SIDE
_UNIT = re.compile(r"\s*[\[(](s|rad|rad/s|n\s?m|a|°?c|k)[\])]$|_(m|meas|measured|s|rad)$")
_LISTED = 20  # maximum number of columns of one kind in a message
_NUMBERED = re.compile(r"([a-z]+)[ _.]?[\[(]?(\d{1,6})[\])]?$")


def stem_of(name: str) -> tuple[str, int | None]:
    """Stem and joint number of a column name: ("q", 3) for "Q_3 [rad]"."""
    plain = _UNIT.sub("", name.lower())
    match = _NUMBERED.match(plain)
    return (match[1], int(match[2])) if match else (plain, None)


def find_columns(
    path: pathlib.Path, names: Sequence[str], currents: bool, joints: Sequence[str] = ()
) -> tuple[dict[str, list[str]], list[str], list[str]]:
    """Return the columns of each quantity (t, q, qd, tau, i, temperature) in joint order, the ignored columns, and notes.

    If the table has both torques and currents, the currents are returned if `currents` is True, otherwise the torques. If no
    positions are numbered, columns are found by the names of the joints (`named_columns`).
    """
    stems = [stem_of(name) for name in names]
    if not any(_KIND.get(stem) == "q" for stem, _ in stems):
        kinds = named_columns(path, names, joints)
        clock = clock_columns(names)
        if "i" in kinds and "tau" in kinds:
            del kinds["tau" if currents else "i"]
        if kinds and len(clock) == 1 and ("tau" in kinds or "i" in kinds):
            kinds = {"t": clock, **kinds}
            used = {name for some in kinds.values() for name in some}
            return kinds, [name for name in names if name and name not in used], []
        if kinds:
            what = (
                f"{len(clock)} columns of time"
                if len(clock) != 1
                else "torques (or currents) of some joints are missing"
            )
            raise LogError(
                f"{path}: positions are called by joint, such as {kinds['q'][0]!r}, but {what}; {_listed(names)}",
                "If the columns have other names, list them in a column map (docs/logs.md): {columns}",
                columns="'map.toml'",
            )
    joint_side = {_KIND[stem] for stem, _ in stems if stem in _KIND and stem not in MOTOR_SIDE}
    numbered: dict[str, dict[int, str]] = {kind: {} for kind in ALIASES}
    whole: dict[str, str] = {}
    ignored: list[str] = []
    motor: list[str] = []
    for name, (stem, number) in zip(names, stems, strict=True):
        kind = _KIND.get(stem)
        double = stem in MOTOR_SIDE and kind in joint_side
        if kind is None or double or (kind == "t" and number is not None):
            ignored += [name] if name else []
            continue
        known = whole.get(kind) if number is None else numbered[kind].get(number)
        if known is not None:
            raise LogError(
                f"{path}: columns {known!r} and {name!r} denote the same quantity; rename or remove one of them"
            )
        if number is None:
            whole[kind] = name
        else:
            numbered[kind][number] = name
        motor += [name] if stem in MOTOR_SIDE else []
    both = [kind for kind in ("tau", "i") if kind in whole or numbered[kind]]
    if len(both) == 2:
        left = "tau" if currents else "i"
        ignored += [whole.pop(left)] if left in whole else numbered[left].values()
        numbered[left] = {}
    heat = numbered["temperature"]
    if heat and (set(heat) != set(numbered["q"]) or "temperature" in whole):  # not one temperature per joint
        ignored += heat.values()
        numbered["temperature"] = {}
    there = _listed(names)
    kinds: dict[str, list[str]] = {}
    for kind in ALIASES:
        if kind in whole and numbered[kind]:
            raise LogError(
                f"{path}: {whole[kind]!r} and {next(iter(numbered[kind].values()))!r} both contain {kind}; remove one"
            )
        if kind in whole:
            kinds[kind] = [whole[kind]]
        elif numbered[kind]:
            kinds[kind] = [numbered[kind][k] for k in sorted(numbered[kind])]
    first = 0 if 0 in numbered["q"] else 1
    missing = [kind for kind in ("t", "q") if kind not in kinds] + _missing_numbers(numbered, first)
    if "tau" not in kinds and "i" not in kinds:
        missing.append("tau (or currents i)")
    if missing:
        raise LogError(
            f"{path}: missing columns: {', '.join(missing)}; {there}. "
            "Expected: t, q1 .. qn, tau1 .. taun (or currents i1 .. in with gains) and optionally qd1 .. qdn",
            "If the columns have other names, list them in a column map (docs/logs.md): {columns}",
            columns="'map.toml'",
        )
    notes = []
    if first == 0:
        notes.append("joints are numbered from 0 in the file: q0 is joint 1")
    if motor:
        notes.append(f"columns {', '.join(motor)} are motor-side: convert them to joint values with motor_to_joint")
    return kinds, ignored, notes


_WORDS = {word: kind for kind, words in ALIASES.items() if kind != "t" for word in words}
_WORDS |= {
    "positions": "q",
    "velocities": "qd",
    "torques": "tau",
    "efforts": "tau",
    "currents": "i",
    "temperatures": "temperature",
}


def named_columns(path: pathlib.Path, names: Sequence[str], joints: Sequence[str]) -> dict[str, list[str]]:
    """Find columns that are called by quantity and joint, in the order of the joints; those of other joints are left out.

    Examples are shoulder/position, position_shoulder, effort[shoulder] and /joint_states/shoulder/velocity. A column with the
    name of a joint contains its position. Without positions for any joint, the result is empty; a quantity that some
    joints lack is left out.

    Raises:
        LogError: positions of some joints are missing, or two columns denote the same quantity.
    """
    if not joints:
        return {}
    word, joint = ("|".join(sorted(map(re.escape, some), key=len, reverse=True)) for some in (_WORDS, joints))
    by_name = {name.lower(): name for name in joints}
    apart = r"[/._ -]"
    form = re.compile(
        rf"(?:.*[/.])?(?:(?P<w1>{word}){apart}(?P<j1>{joint})|(?P<j2>{joint}){apart}(?P<w2>{word})|(?P<w3>{word})[\[(](?P<j3>{joint})[\])])",
        re.IGNORECASE,
    )
    found: dict[tuple[str, str], str] = {}
    for name in names:
        match = form.fullmatch(name) or form.fullmatch(_UNIT.sub("", name.lower()))
        if match is None:
            continue
        of = match.groupdict()
        key = _WORDS[(of["w1"] or of["w2"] or of["w3"]).lower()], by_name[(of["j1"] or of["j2"] or of["j3"]).lower()]
        if key in found:
            raise LogError(
                f"{path}: columns {found[key]!r} and {name!r} both look like {key[0]} of joint {key[1]!r}",
                "Name the right ones in a column map (docs/logs.md): {columns}",
                columns="'map.toml'",
            )
        found[key] = name
    if not any(kind == "q" for kind, _ in found):
        found |= {("q", joint): joint for joint in joints if joint in names}
    missing = [joint for joint in joints if ("q", joint) not in found]
    if len(missing) == len(joints):
        return {}
    if missing:
        raise LogError(
            f"{path}: no columns contain the positions of {', '.join(missing)}; {_listed(names)}",
            "If the columns have other names, list them in a column map (docs/logs.md): {columns}. If these joints do not "
            "move, load the model with them locked: {lock}",
            columns="'map.toml'",
            lock="{'JOINT': POSITION, ..}",
        )
    kinds = list(dict.fromkeys(kind for kind, _ in found))
    return {kind: [found[kind, j] for j in joints] for kind in kinds if all((kind, j) in found for j in joints)}


def _missing_numbers(numbered: Mapping[str, Mapping[int, str]], first: int) -> list[str]:
    """Names of missing columns. Each quantity in the table needs one column per position, numbered from `first`."""
    count = max(numbered["q"], default=first - 1) + 1 - first
    missing = []
    for kind in ("q", "qd", "tau", "i"):
        if numbered[kind]:
            expected = range(first, first + max(count, len(numbered[kind])))
            lacking = (k for k in expected if k not in numbered[kind])
            missing += [f"{kind}{k}" for k in itertools.islice(lacking, _LISTED)]
            more = len(expected) - sum(k in expected for k in numbered[kind]) - _LISTED
            if more > 0:
                missing[-1] += f" and {more} more"
    return missing


def _listed(names: Sequence[str]) -> str:
    return f"the columns are {', '.join(filter(None, names))}"


def clock_columns(names: Sequence[str]) -> list[str]:
    """The columns that are called like a time."""
    return [name for name in names if stem_of(name) in [(alias, None) for alias in ALIASES["t"]]]


def with_clock(table: Table) -> Table:
    """Combine two columns of time into one called time: seconds and their fraction, or a date and a time of day.

    The first are called sec and nanosec, secs and nsecs, stamp_sec and stamp_nanosec, header.stamp.sec and ..., with any common
    beginning. Their fraction must be less than a second, so that a full time in nanoseconds is not added to one in seconds.
    """
    if table.kinds is not None:
        return table
    lower = {name.lower(): name for name in table.names if table.names.count(name) == 1}
    if "date" in lower and "time" in lower:
        pair = [lower["date"], lower["time"]]
        return combined(table, pair, [1e-9, 1e-9], "time") if _are_times(table, pair) else table
    pairs = []
    for name in table.names:
        start = _SECONDS.fullmatch(name)
        for ending, unit in _FRACTIONS.items() if start else ():
            if (other := lower.get(f"{start[1]}{ending}".lower())) is not None:  # type: ignore[index]
                pairs.append((name, other, unit))
    pairs = [pair for pair in pairs if not set(clock_columns(table.names)) - set(pair[:2])]
    if len(pairs) != 1:
        return table
    whole, fraction, unit = pairs[0]
    arrays, bad = table.read([whole, fraction])
    known = {row for row, _, _ in bad}
    usable = [row for row in range(len(arrays[whole])) if row not in known] if known else slice(None)
    x, part = arrays[whole][usable], arrays[fraction][usable]
    if x.ndim != 1 or (x % 1 != 0).any() or not ((part >= 0) & (part * unit < 1)).all():
        return table
    return combined(table, [whole, fraction], [1.0, unit], "time")


def _are_times(table: Table, names: Sequence[str]) -> bool:
    return all(array.dtype.kind == "i" for array in table.read(names)[0].values())


_SECONDS = re.compile(r"(.*?)(?:secs|sec|seconds|s)", re.IGNORECASE | re.DOTALL)
_FRACTIONS = {
    **dict.fromkeys(("nanosec", "nanosecs", "nsec", "nsecs", "nanoseconds", "ns"), 1e-9),
    **dict.fromkeys(("microsec", "usec", "usecs", "microseconds", "us"), 1e-6),
}


def combined(table: Table, names: Sequence[str], units: Sequence[float], title: str) -> Table:
    """Replace columns of time by their sum, an exact count of nanoseconds.

    The sum takes the place of the first column. The others lose their names, so that numbers of columns remain valid.

    Args:
        units: unit of each column [s]; ignored for columns of dates and times of day.
        title: name of the sum.
    """

    def read(wanted: Sequence[str]) -> tuple[dict[str, np.ndarray], list[BadCell]]:
        asked = [name for name in wanted if name != title or title in names]
        asked = list(dict.fromkeys([*(x for x in asked if x != title), *(names if title in wanted else ())]))
        arrays, bad = table.read(asked)
        if title in wanted:
            parts = [arrays[name] for name in names]
            lost = np.zeros(len(parts[0]), bool)
            total = np.zeros(len(parts[0]), np.int64)
            for part, unit in zip(parts, units, strict=True):
                whole, rest = (part, 0.0) if part.dtype.kind == "i" else (np.floor(part), part - np.floor(part))
                scale = 1 if part.dtype.kind == "i" else round(1e9 * unit)
                wrong = (part == NO_TIME) if part.dtype.kind == "i" else ~(np.abs(part) * scale < 2**62)
                lost |= wrong
                total += np.where(wrong, 0, whole).astype(np.int64) * scale
                total += np.where(wrong, 0, np.rint(scale * rest)).astype(np.int64)
            arrays[title] = np.where(lost, NO_TIME, total)
        return {name: arrays[name] for name in wanted}, [
            (row, title if column in names else column, text) for row, column, text in bad
        ]

    rest = [title if name == names[0] else "" if name in names else name for name in table.names]
    spoken = " and ".join(repr(name) for name in names)
    return Table(tuple(rest), read, table.line, (*table.notes, f"time is the sum of columns {spoken}"), table.kinds)


def seconds_of(stamps: np.ndarray, start: int | None = None) -> tuple[np.ndarray, list[str]]:
    """Times in seconds. Stamps that are counts of nanoseconds (integers) are counted from `start`, by default the first one."""
    if stamps.dtype.kind != "i":
        return stamps, []
    known = stamps != NO_TIME
    start = start if start is not None else int(stamps[known][0]) if known.any() else 0
    t = np.where(known, (np.where(known, stamps, start) - start) * 1e-9, np.nan)
    return t, [f"time is counted from {start // 10**9}.{start % 10**9:09d} s"]


def blocks_of(path: pathlib.Path, kinds: dict[str, list[str]], arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Concatenate the columns of each quantity into one (N, n) array."""
    time = arrays[kinds["t"][0]]
    if time.ndim == 0 or not len(time):
        raise LogError(f"{path}: {kinds['t'][0]!r} has shape {time.shape}: the log contains no samples")
    samples = len(time)
    blocks: dict[str, np.ndarray] = {}
    for kind, names in kinds.items():
        for name in names:
            array = arrays[name]
            if array.ndim > 2 or array.ndim == 0 or len(array) != samples or (kind == "t" and array.size != samples):
                raise LogError(
                    f"{path}: array {name!r} has shape {array.shape}, but {kinds['t'][0]!r} has {samples} samples; "
                    "one row per sample is expected, and one column per joint"
                )
            if kind != "t" and array.dtype.kind == "i":
                raise LogError(f"{path}: column {name!r} contains times, not numbers")
            if array.size != samples and len(names) > 1:
                raise LogError(
                    f"{path}: array {name!r} has shape {array.shape}, unlike {', '.join(x for x in names if x != name)}; "
                    "provide one column per joint, or one array for all joints"
                )
        blocks[kind] = np.concatenate([arrays[name].reshape(samples, -1) for name in names], axis=1)
    wide = blocks.get("temperature")
    if wide is not None and wide.shape[1] == 1:  # one sensor for all joints
        blocks["temperature"] = np.tile(wide, blocks["q"].shape[1])
    for kind in blocks:
        if kind != "t" and blocks[kind].shape[1] != blocks["q"].shape[1]:
            raise LogError(
                f"{path}: {blocks['q'].shape[1]} joints have positions, but {blocks[kind].shape[1]} have {kind}"
            )
    return blocks


def labels_of(names: Sequence[str], block: np.ndarray) -> list[str]:
    return list(names) if len(names) == block.shape[1] else [f"{names[0]}[:, {k}]" for k in range(block.shape[1])]

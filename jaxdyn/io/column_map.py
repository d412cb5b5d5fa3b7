"""Which columns of a table are the time, positions, velocities and torques of a log.

`find_columns` recognises their names; a column map (docs/logs.md) specifies them, with units, signs, offsets and gains.
"""

import dataclasses
import itertools
import json
import math
import os
import pathlib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import LogError
from .tables import IN_A_MAP, LOCK_THEM, NO_TIME, BadCell, Table, TextForm, log_error

ALIASES = {
    "t": ("t", "time", "timestamp", "stamp", "datetime", "__time", "__index_level_0__"),
    "q": ("q", "pos", "position"),
    "qd": ("qd", "dq", "v", "vel", "velocity"),
    "tau": ("tau", "torque", "effort"),
    "i": ("i", "current"),
    "temperature": ("temperature", "temp"),
    "command": ("q_cmd", "cmd", "command"),
}
# motor-side columns, read if the log lacks the joint-side quantity
MOTOR_SIDE = {"qm": "q", "qdm": "qd", "taum": "tau"}
_KIND = {alias: kind for kind, names in ALIASES.items() for alias in names} | MOTOR_SIDE
_UNIT = re.compile(r"\s*[\[(](s|rad|rad/s|n\s?m|a|°?c|k)[\])]$|_(m|meas|measured|s|rad)$")
_LISTED = 20  # maximum number of columns of one kind in a message
_NUMBERED = re.compile(r"((?:q_)?[a-z]+)[ _.]?[\[(]?(\d{1,6})[\])]?$")


def stem_of(name: str) -> tuple[str, int | None]:
    """Stem and joint number of a column name: ("q", 3) for "Q_3 [rad]"."""
    plain = _UNIT.sub("", name.lower())
    match = _NUMBERED.match(plain)
    return (match[1], int(match[2])) if match else (plain, None)


def find_columns(
    path: pathlib.Path, names: Sequence[str], currents: bool, joints: Sequence[str] = ()
) -> tuple[dict[str, list[str]], list[str], list[str]]:
    """Return the columns of each quantity (`ALIASES`) in joint order, the ignored columns, and notes."""
    stems = [stem_of(name) for name in names]
    if not any(_KIND.get(stem) == "q" for stem, _ in stems):
        stems = _without_start(names, stems)
    if not any(_KIND.get(stem) == "q" for stem, _ in stems) and (kinds := named_columns(path, names, joints)):
        clock = clock_columns(names)
        if "i" in kinds and "tau" in kinds:
            del kinds["tau" if currents else "i"]
        lacking = "" if kinds.keys() & {"tau", "i", "command"} else "torques (or currents) of some joints are missing"
        if lacking := lacking if len(clock) == 1 else f"{len(clock)} columns of time":
            fault = f"positions are called by joint, such as {kinds['q'][0]!r}, but {lacking}; {_listed(names)}"
            raise log_error(f"{path}: {fault}", IN_A_MAP)
        kinds = {"t": clock, **kinds}
        used = {name for some in kinds.values() for name in some}
        return kinds, [name for name in names if name and name not in used], []
    whole, numbered, ignored, motor = _by_number(path, names, stems)
    if all(kind in whole or numbered[kind] for kind in ("tau", "i")):
        left = "tau" if currents else "i"
        ignored += [whole.pop(left)] if left in whole else numbered[left].values()
        numbered[left] = {}
    for kind in ("temperature", "command"):
        own = numbered[kind]
        if own and (set(own) != set(numbered["q"]) or kind in whole):  # not one per joint
            ignored += own.values()
            numbered[kind] = {}
    kinds = {}
    for kind, columns in numbered.items():
        if kind in whole and columns:
            both = f"{whole[kind]!r} and {next(iter(columns.values()))!r}"
            raise LogError(f"{path}: {both} both contain {kind}; remove one")
        if kind in whole or columns:
            kinds[kind] = [whole[kind]] if kind in whole else [columns[k] for k in sorted(columns)]
    first = 0 if 0 in numbered["q"] else 1
    missing = [kind for kind in ("t", "q") if kind not in kinds] + _missing_numbers(numbered, first)
    if not kinds.keys() & {"tau", "i", "command"}:
        missing.append("tau (or currents i)")
    if missing:
        expected = "t, q1 .. qn, tau1 .. taun (or currents i1 .. in with gains) and optionally qd1 .. qdn"
        fault = f"missing columns: {', '.join(missing)}; {_listed(names)}. Expected: {expected}"
        raise log_error(f"{path}: {fault}", IN_A_MAP)
    notes = ["joints are numbered from 0 in the file: q0 is joint 1"] if first == 0 else []
    if motor:
        notes.append(f"columns {', '.join(motor)} are motor-side: convert them to joint values with motor_to_joint")
    return kinds, ignored, notes


def _without_start(names: Sequence[str], stems: list[tuple[str, int | None]]) -> list[tuple[str, int | None]]:
    """Stems and numbers without the common beginning of the only numbered positions, as in /joint_states/position[0]."""
    split = [re.fullmatch(r"(.*[/.])([a-zA-Z][^/.]*(?:\.\d+)?)", name) for name in names]
    of = [
        ("", stem) if match is None else (match[1], stem_of(match[2])) for match, stem in zip(split, stems, strict=True)
    ]
    starts = {start for start, (stem, number) in of if start and _KIND.get(stem) == "q" and number is not None}
    if len(starts) != 1:
        return stems
    return [own if start in starts else plain for (start, own), plain in zip(of, stems, strict=True)]


def _by_number(
    path: pathlib.Path, names: Sequence[str], stems: Sequence[tuple[str, int | None]]
) -> tuple[dict[str, str], dict[str, dict[int, str]], list[str], list[str]]:
    """Columns without a number and with one, by kind; the other columns; and those of the motor side."""
    joint_side = {_KIND[stem] for stem, _ in stems if stem in _KIND and stem not in MOTOR_SIDE}
    whole: dict[str, str] = {}
    numbered: dict[str, dict[int, str]] = {kind: {} for kind in ALIASES}
    ignored, motor = [], []
    for name, (stem, number) in zip(names, stems, strict=True):
        kind = _KIND.get(stem)
        double = stem in MOTOR_SIDE and kind in joint_side
        if kind is None or double or (kind == "t" and number is not None):
            ignored += [name] if name else []
            continue
        known = whole.get(kind) if number is None else numbered[kind].get(number)
        if known is not None:
            fault = f"columns {known!r} and {name!r} denote the same quantity; rename or remove one of them"
            raise LogError(f"{path}: {fault}")
        if number is None:
            whole[kind] = name
        else:
            numbered[kind][number] = name
        motor += [name] if stem in MOTOR_SIDE else []
    return whole, numbered, ignored, motor


_PLURALS = {"positions": "q", "velocities": "qd", "torques": "tau", "efforts": "tau", "currents": "i"}
_WORDS = {word: kind for kind, words in ALIASES.items() if kind != "t" for word in words}
_WORDS |= {**_PLURALS, "temperatures": "temperature", "angle": "q"}


def columns_by_joint(path: pathlib.Path, names: Sequence[str], joints: Sequence[str]) -> dict[tuple[str, str], str]:
    """Find columns called by quantity and joint, such as shoulder/position and effort[shoulder], by quantity and joint.

    If several columns look like one quantity of a joint, those of the only group of columns with a common beginning, such as
    /joint_states/, that has positions and torques (or currents) of all joints are taken.
    """
    if not joints:
        return {}
    word, joint = ("|".join(sorted(map(re.escape, some), key=len, reverse=True)) for some in (_WORDS, joints))
    by_name = {name.lower(): name for name in joints}
    word = rf"(?:(?:actual|measured)[_ ])?({word})"
    forms = (
        rf"{word}(?:[/._ :-]|::)({joint})",
        rf"({joint})(?:[/._ :-]|::){word}",
        rf"{word}[\[(]['\"]?({joint})['\"]?[\])]",
    )
    form = re.compile(rf"(.*[/.])?(?:{'|'.join(forms)})", re.IGNORECASE)
    found: dict[tuple[str, str], dict[str, str]] = {}  # columns by their beginnings
    for name in names:
        match = form.fullmatch(name) or form.fullmatch(_UNIT.sub("", name.lower()))
        if match is None:
            continue
        start, w1, j1, j2, w2, w3, j3 = (part and part.lower() for part in match.groups())
        key = _WORDS[w1 or w2 or w3], by_name[j1 or j2 or j3]
        _refuse_double(path, key, found.setdefault(key, {}).setdefault(start or "", name), name)
    if any(len(columns) > 1 for columns in found.values()):
        has = lambda start, kinds: all(any(start in found.get((kind, j), ()) for kind in kinds) for j in joints)
        starts = dict.fromkeys(start for columns in found.values() for start in columns)
        whole = [start for start in starts if has(start, ["q"]) and has(start, ["tau", "i"])]
        if len(whole) != 1:
            key, (first, second, *_) = next((key, [*some.values()]) for key, some in found.items() if len(some) > 1)
            _refuse_double(path, key, first, second)
        found = {key: columns for key, columns in found.items() if whole[0] in columns}
        found = {key: {whole[0]: columns[whole[0]]} for key, columns in found.items()}
    taken = {key: next(iter(columns.values())) for key, columns in found.items()}
    if not any(kind == "q" for kind, _ in taken):
        taken |= {("q", joint): joint for joint in joints if joint in names}
    return taken


def named_columns(path: pathlib.Path, names: Sequence[str], joints: Sequence[str]) -> dict[str, list[str]]:
    """The columns of `columns_by_joint` of every quantity that all joints have, in the order of the joints, if any."""
    taken = columns_by_joint(path, names, joints)
    missing = [joint for joint in joints if ("q", joint) not in taken]
    if len(missing) == len(joints):
        return {}
    if missing:
        fault = f"{path}: no columns contain the positions of {', '.join(missing)}; {_listed(names)}"
        raise log_error(fault, f"{IN_A_MAP}. {LOCK_THEM}")
    kinds = list(dict.fromkeys(kind for kind, _ in taken))
    return {kind: [taken[kind, j] for j in joints] for kind in kinds if all((kind, j) in taken for j in joints)}


def _refuse_double(path: pathlib.Path, key: tuple[str, str], first: str, second: str) -> None:
    """Raise an error if two columns look like the same quantity of a joint."""
    if first is not second:
        fault = f"columns {first!r} and {second!r} both look like {key[0]} of joint {key[1]!r}"
        raise log_error(f"{path}: {fault}", "Name the right ones in a column map (docs/logs.md): {columns}")


_LIKELY = {"q": r"pos|angle|\bq", "tau": r"tor|tau|eff|moment|force|curr"}
_COMMANDED = r"cmd|comm|des|targ|ref|set"


def proposed_map(names: Sequence[str], joints: Sequence[str] = ()) -> str:
    """A column map with the likeliest columns of a table, to be corrected; empty if positions are numbered as expected.

    Columns that differ only in a joint's name or in a number belong together. Those called like positions or torques, and
    not like commands, come first, otherwise those that stand first.
    """
    if not names or any(_KIND.get(stem) == "q" and number is not None for stem, number in map(stem_of, names)):
        return ""
    groups: dict[str, list[str]] = {}
    any_joint = "|".join(sorted(map(re.escape, joints), key=len, reverse=True))
    for name in names:
        pattern, count = re.subn(any_joint, "*", name, flags=re.IGNORECASE) if joints else ("", 0)
        pattern, count = (pattern, count) if count else re.subn(r"\d+(?=\D*$)", "*", name)
        if count == 1:
            groups.setdefault(pattern, []).append(name)
    n = len(joints) or max(map(len, groups.values()), default=1)
    wide = [pattern for pattern, some in groups.items() if len(some) == n]
    clock = next((name for name in names if re.search("time|stamp|clock", name, re.IGNORECASE)), names[0])
    lines = ["", "", "[t]", f"column = {json.dumps(clock)}", 'unit = "s"']
    for kind, unit in (("q", "rad"), ("tau", "Nm")):
        like = lambda expression, pattern: re.search(expression, pattern, re.IGNORECASE) is not None
        rank = {
            p: (like(_COMMANDED, p), not like(_LIKELY[kind], p), any(like(x, p) for x in _LIKELY.values()))
            for p in wide
        }
        best = min(rank, key=rank.__getitem__, default=None)
        wide = [pattern for pattern in wide if pattern != best]
        lines += [f"[{kind}]", f"columns = {json.dumps(best or ['?'] * n)}", f'unit = "{unit}"']
    return "\n".join(lines)


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
    named = list(filter(None, names))
    more = f" and {len(named) - 2 * _LISTED} more" if len(named) > 2 * _LISTED else ""
    return f"the columns are {', '.join(named[: 2 * _LISTED])}{more}"


def clock_columns(names: Sequence[str]) -> list[str]:
    """The columns that are called like a time."""
    return [name for name in names if stem_of(name) in [(alias, None) for alias in ALIASES["t"]]]


def with_clock(table: Table) -> Table:
    """Combine two columns of time into one called time: seconds and their fraction, or a date and a time of day."""
    if table.kinds is not None:
        return table
    lower = {name.lower(): name for name in table.names if table.names.count(name) == 1}
    if "date" in lower and "time" in lower:
        pair = [lower["date"], lower["time"]]
        are_times = all(array.dtype.kind == "i" for array in table.read(pair)[0].values())
        return combined(table, pair, [1e-9, 1e-9], "time") if are_times else table
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


_SECONDS = re.compile(r"(.*?)(?:secs|sec|seconds|s)", re.IGNORECASE | re.DOTALL)
_FRACTIONS = {
    **dict.fromkeys(("nanosec", "nanosecs", "nsec", "nsecs", "nanoseconds", "ns"), 1e-9),
    **dict.fromkeys(("microsec", "usec", "usecs", "microseconds", "us"), 1e-6),
}


def combined(table: Table, names: Sequence[str], units: Sequence[float], title: str) -> Table:
    """Replace columns of time, in `units` [s], by their sum [ns]; the others lose their names, so that numbers stay valid."""

    def read(wanted: Sequence[str]) -> tuple[dict[str, np.ndarray], list[BadCell]]:
        asked = [name for name in wanted if name != title or title in names]
        asked = list(dict.fromkeys([*(x for x in asked if x != title), *(names if title in wanted else ())]))
        arrays, bad = table.read(asked)
        if title in wanted:
            total, lost = np.zeros(len(arrays[names[0]]), np.int64), False
            for name, unit in zip(names, units, strict=True):
                part, exact = arrays[name], arrays[name].dtype.kind == "i"
                scale = 1 if exact else round(1e9 * unit)
                wrong = part == NO_TIME if exact else ~(np.abs(part) * scale < 2**62)
                part = np.where(wrong, 0, part)
                whole = np.floor(part)
                total += (
                    part if exact else whole.astype(np.int64) * scale + np.rint(scale * (part - whole)).astype(np.int64)
                )
                lost |= wrong
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
            fault = f"array {name!r} has shape {array.shape}"
            if array.ndim > 2 or array.ndim == 0 or len(array) != samples or (kind == "t" and array.size != samples):
                remedy = "one row per sample is expected, and one column per joint"
                raise LogError(f"{path}: {fault}, but {kinds['t'][0]!r} has {samples} samples", remedy)
            if kind != "t" and array.dtype.kind == "i":
                raise LogError(f"{path}: column {name!r} contains times, not numbers")
            if array.size != samples and len(names) > 1:
                others = ", ".join(x for x in names if x != name)
                remedy = "provide one column per joint, or one array for all joints"
                raise LogError(f"{path}: {fault}, unlike {others}", remedy)
        blocks[kind] = np.concatenate([arrays[name].reshape(samples, -1) for name in names], axis=1)
    wide = blocks.get("temperature")
    if wide is not None and wide.shape[1] == 1:  # one sensor for all joints
        blocks["temperature"] = np.tile(wide, blocks["q"].shape[1])
    if "command" in blocks and blocks["command"].shape[1] != blocks["q"].shape[1]:  # of something else than the joints
        del blocks["command"]
    for kind in blocks:
        if kind != "t" and blocks[kind].shape[1] != blocks["q"].shape[1]:
            found, n = blocks[kind].shape[1], blocks["q"].shape[1]
            raise LogError(f"{path}: {n} joints have positions, but {found} have {kind}")
    return blocks


def labels_of(names: Sequence[str], block: np.ndarray) -> list[str]:
    return list(names) if len(names) == block.shape[1] else [f"{names[0]}[:, {k}]" for k in range(block.shape[1])]


_TURNS = {"rad": 1.0, "mrad": 1e-3, "deg": math.pi / 180, "rev": 2 * math.pi}
_LENGTHS = {"m": 1.0, "cm": 1e-2, "mm": 1e-3}
UNITS: dict[str, dict[str, float]] = {
    "t": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0},
    "q": _TURNS | _LENGTHS,
    "qd": {f"{x}/s": k for x, k in _TURNS.items()} | {"rpm": math.pi / 30} | {f"{x}/s": k for x, k in _LENGTHS.items()},
    "tau": {"Nm": 1.0, "mNm": 1e-3, "kNm": 1e3, "Ncm": 1e-2, "N": 1.0, "mN": 1e-3, "kN": 1e3},
    "i": {"A": 1.0, "mA": 1e-3},
    "temperature": {"degC": 1.0, "K": 1.0},
    "command": _TURNS | _LENGTHS,
}
# offset of each unit whose zero is not that of the standard unit (here degC), added after scaling
_ZEROS = {"K": -273.15}
_FILE_KEYS = {"separator": str, "decimal": str, "skip_lines": int, "header": bool, "topic": str, "joints": list}
CLOCK = "the sum of the columns of time"
_KEYS = ("column", "columns", "unit", "scale", "sign", "offset", "gains")


@dataclasses.dataclass(frozen=True)
class ColumnMap:
    """The contents of a column map."""

    source: str
    form: TextForm
    topic: str | None
    joints: tuple[str, ...] | None
    kinds: dict[str, dict[str, Any]]
    text: str

    @property
    def has_clock_in_parts(self) -> bool:
        """True if time is the sum of several columns."""
        columns = self.kinds.get("t", {}).get("columns")
        return isinstance(columns, list) and len(columns) > 1

    def error(self, kind: str | None, key: str | None, what: str = "", remedy: str = "", **arguments: str) -> LogError:
        """Create a `LogError` that names the file, the line and the key."""
        line = _line_of(self.text, kind, key)
        places = [self.source, f"line {line}" if line else "", f"[{kind}]" if kind else "", key or ""]
        return LogError(what, remedy, place=", ".join(place for place in places if place), **arguments)


def read_column_map(given: str | os.PathLike[str] | Mapping[str, Any]) -> ColumnMap:
    """Read a column map from a TOML file, or from a mapping with the same structure."""
    if isinstance(given, Mapping):
        source, text, content = "the column map", "", dict(given)
    else:
        source = os.fspath(given)
        try:
            text = pathlib.Path(given).read_text("utf-8-sig")
            content = tomllib.loads(text)
        except OSError as error:
            raise LogError(f"{source}: the column map cannot be read: {error.strerror or error}") from None
        except (ValueError, RecursionError) as error:  # not TOML, nested too deeply, or a null character in the path
            raise LogError(f"{source}: the column map is not TOML: {error}") from None
    if _beyond_64_bits(content):
        raise LogError(f"{source}: an integer in the column map exceeds the 64 bits of TOML integers")
    kinds = {key: dict(value) for key, value in content.items() if isinstance(value, Mapping)}
    plain = {key: value for key, value in content.items() if key not in kinds}
    found = ColumnMap(source, TextForm(), plain.get("topic"), None, kinds, text)
    for kind, key, fault in _faults(plain, kinds):
        raise found.error(kind, key, fault)
    header = plain.get("header", None if _by_numbers(kinds) else True)
    form = TextForm(plain.get("separator"), plain.get("decimal", "."), plain.get("skip_lines", 0), header)
    joints = tuple(plain["joints"]) if "joints" in plain else None
    return dataclasses.replace(found, form=form, joints=joints)


def _faults(
    plain: Mapping[str, Any], kinds: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str | None, str | None, str]]:
    """What is wrong in a column map, with the table and the key."""
    for key, value in plain.items():
        kind = _FILE_KEYS.get(key)
        if kind is None:
            yield None, key, f"unknown key; known keys are {', '.join(_FILE_KEYS)}, and {_TABLES}"
        elif not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            yield None, key, f"{value!r} is not {_SPOKEN[kind]}"
    for kind, keys in kinds.items():
        if kind not in UNITS:
            yield kind, None, f"unknown table; known tables are {_TABLES}"
        for key in keys:
            if key not in _KEYS or (key == "gains" and kind != "i"):
                yield kind, key, f"unknown key; known keys are {', '.join(_KEYS)} (gains only in [i])"
        if "column" in keys and "columns" in keys:
            yield kind, "column", "specify column or columns, not both"
    if "tau" in kinds and "i" in kinds:
        yield "i", None, "specify [tau] or [i], not both; [i] replaces torques by currents and gains"
    separator, decimal, joints = plain.get("separator"), plain.get("decimal", "."), plain.get("joints")
    if separator is not None and len(separator) != 1:
        yield None, "separator", f'{separator!r} is not a single character; write " " for blanks, "\\t" for tabs'
    if decimal not in (".", ",") or decimal == separator:
        yield None, "decimal", f"{decimal!r} is neither '.' nor ',', or is also the separator"
    if plain.get("skip_lines", 0) < 0:
        yield None, "skip_lines", "the number of lines cannot be negative"
    if joints is not None and (not joints or not all(isinstance(x, str) for x in joints)):
        yield None, "joints", f"{joints!r} is not a list of joint names"


def _by_numbers(kinds: Mapping[str, Mapping[str, Any]]) -> bool:
    """True if all columns are specified by number."""
    given = [keys[key] for keys in kinds.values() for key in ("column", "columns") if key in keys]
    flat = [item for value in given for item in (value if isinstance(value, list) else [value])]
    return bool(flat) and all(isinstance(item, int) for item in flat)


def _beyond_64_bits(content: Any) -> bool:
    """True if an integer at any depth exceeds 64 bits."""
    rest = [content]
    while rest:
        value = rest.pop()
        if isinstance(value, Mapping | list | tuple):
            rest += value.values() if isinstance(value, Mapping) else value
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            return True
    return False


def with_map(
    table: Table, path: pathlib.Path, columns: ColumnMap, joints: Sequence[str] = (), *, torques: bool = True
) -> Table:
    """Assign the columns of a table to quantities, and convert them to SI units, as specified in a column map."""
    if columns.has_clock_in_parts:
        table = with_combined_clock(table, path, columns)
        columns = dataclasses.replace(columns, kinds={**columns.kinds, "t": {"column": CLOCK}})
    known = table.kinds or {}
    kinds = dict(known)
    if columns.kinds.keys() & {"i"}:
        kinds.pop("tau", None)
    uses: dict[str, tuple[str, int, int]] = {}  # quantity, index among its columns, number of these columns
    for kind, keys in columns.kinds.items():
        names = _resolve(table, path, columns, kind, keys, known.get("tau" if kind == "i" else kind), joints)
        for place, name in enumerate(names):
            if name in uses:
                fault = f"column {name!r} of {path} is used twice, by [{uses[name][0]}] and [{kind}]"
                raise columns.error(kind, "columns", fault)
            uses[name] = kind, place, len(names)
        kinds["tau" if "gains" in keys else kind] = names
    for kind in ("t", "q"):
        if kind not in kinds:
            raise LogError(f"{columns.source}: [{kind}] is missing: specify the column of {path} that contains it")
    if torques and not kinds.keys() & {"tau", "i", "command"}:
        raise LogError(f"{columns.source}: [tau] or [i] is missing: specify the columns of {path} that contain torques")

    def read(wanted: Sequence[str]) -> tuple[dict[str, np.ndarray], list[BadCell]]:
        arrays, bad = table.read(wanted)
        for name in filter(uses.__contains__, wanted):
            kind, place, count = uses[name]
            if arrays[name].dtype.kind == "i":  # dates and times of day
                if kind != "t" or set(columns.kinds["t"]) & {"unit", "scale", "sign", "offset"}:
                    raise columns.error(kind, None, f"column {name!r} of {path} contains times, not numbers")
                continue
            wide = arrays[name].shape[1] if arrays[name].ndim == 2 and count == 1 else count
            factor, offset = _factors(columns, kind, wide)
            if wide == count:
                factor, offset = factor[place], offset[place]
            arrays[name] = factor * arrays[name] + offset
        return arrays, bad

    note, place = f"columns as specified in {columns.source}", ("column", "columns")
    given = {kind: [f"{k} {x}" for k, x in keys.items() if k not in place] for kind, keys in columns.kinds.items()}
    what = "; ".join(f"{kind} with {', '.join(said)}" for kind, said in given.items() if said)
    note += f": {what}" if what else ""
    return Table(table.names, read, table.line, (*table.notes, note), kinds)


def with_combined_clock(table: Table, path: pathlib.Path, columns: ColumnMap) -> Table:
    """Replace the columns of time in a map by their sum, called `CLOCK`."""
    keys = columns.kinds["t"]
    names = _resolve(table, path, columns, "t", keys, None, ())
    if extra := set(keys) - {"columns", "unit"}:
        raise columns.error("t", sorted(extra)[0], "columns of time that are added have only units")
    units, _ = _factors(columns, "t", len(names))
    return combined(table, names, units.tolist(), CLOCK)


def _resolve(
    table: Table,
    path: pathlib.Path,
    columns: ColumnMap,
    kind: str,
    keys: Mapping[str, Any],
    known: list[str] | None,
    joints: Sequence[str],
) -> list[str]:
    """Find the names of the columns of one quantity."""
    key = "column" if "column" in keys else "columns"
    if key not in keys:
        if known is None:
            there = f"; {path} does not contain this quantity" if table.kinds else ""
            raise columns.error(kind, None, f"key {'column' if kind == 't' else 'columns'} is missing{there}")
        return known
    wrong = lambda what: columns.error(kind, key, what)
    wanted = keys[key] if isinstance(keys[key], list) else [keys[key]]
    names = []
    for item in wanted:
        if isinstance(item, str) and item.count("*") == 1 and item not in table.names:
            names += _matching(table.names, path, wrong, item, joints if len(wanted) == 1 else ())
            continue
        if isinstance(item, int) and not isinstance(item, bool):
            if not 1 <= item <= len(table.names):
                raise wrong(f"{item} is not a column of {path}, which has columns 1 to {len(table.names)}")
            name = table.names[item - 1]
            # tables of text files also accept "column N" as a name
            item = name if table.names.count(name) == 1 else f"column {item}"
        elif item not in table.names:
            raise wrong(f"{item!r} is not a column of {path}; its columns are {', '.join(table.names)}")
        elif table.names.count(item) > 1:
            raise wrong(f"{path} has several columns {item!r}; specify the column by its number, counted from 1")
        names.append(item)
    if not names:
        raise wrong("no columns are specified; time needs one, other quantities one per joint")
    return names


def _matching(
    names: Sequence[str], path: pathlib.Path, wrong: Callable[[str], LogError], pattern: str, joints: Sequence[str]
) -> list[str]:
    """Find the columns that match a pattern with one *, which stands for the robot's joint names, or for their numbers."""
    before, after = (re.escape(part) for part in pattern.split("*"))
    found = [(m[1], name) for name in names if (m := re.fullmatch(f"{before}(.+?){after}", name))]
    for _, name in found:
        if names.count(name) > 1:
            raise wrong(f"{path} has several columns {name!r}; specify the columns by numbers, counted from 1")
    held = [[name for star, name in found if joint == star or joint in re.split("[/.]", name)] for joint in joints]
    if held and all(len(some) == 1 for some in held):
        return [name for some in held for name in some]
    groups: dict[tuple[str, str], dict[int, str]] = {}  # by the text around the number
    for star, name in found:
        if m := re.fullmatch(r"(.*?)([0-9]{1,9})(\D*)", star):
            known = groups.setdefault((m[1], m[3]), {}).setdefault(int(m[2]), name)
            if known is not name:
                raise wrong(f"{pattern!r} matches both {known!r} and {name!r} of {path}")
    numbers = groups.get(("", "")) or (next(iter(groups.values())) if len(groups) == 1 else {})
    if not numbers or max(numbers) - min(numbers) >= len(numbers) or min(numbers) > 1:
        there = ", ".join(name for _, name in found) or "none"
        by_name = f", or columns with the robot's joint names ({', '.join(joints)})" if joints else ""
        raise wrong(f"{pattern!r} must match columns numbered from 0 or 1 without gaps{by_name}; {path} has {there}")
    return [numbers[k] for k in sorted(numbers)]


def _factors(columns: ColumnMap, kind: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Compute factor (sign x scale x unit x gain) and offset (offset x gain, and -273.15 for kelvins) of each column."""
    keys = columns.kinds[kind]

    def one_each(key: str, usual: Any) -> list[Any]:
        value = keys.get(key, usual)
        if isinstance(value, list) and len(value) != count:
            what = f"{len(value)} values for {count} columns; specify one for all columns, or one per column"
            raise columns.error(kind, key, what)
        return value if isinstance(value, list) else [value] * count

    def numbers(key: str, usual: float) -> np.ndarray:
        values = one_each(key, usual)
        for x in values:
            if isinstance(x, bool) or not isinstance(x, int | float) or not math.isfinite(x):
                raise columns.error(kind, key, f"{x!r} is not a finite number")
            if (key == "sign" and abs(x) != 1) or (x == 0 and key != "offset"):
                why = "use 1 or -1" if key == "sign" else "it erases the column"
                raise columns.error(kind, key, f"{x:g} is not a valid {key}: {why}")
        return np.array(values, np.float64)

    units, zeros = np.ones(count), np.zeros(count)
    for k, unit in enumerate(one_each("unit", None)):
        plain = re.sub(r"[\s*·]", "", unit) if isinstance(unit, str) else unit
        if plain is None:
            continue
        if not isinstance(plain, str) or plain not in UNITS[kind]:
            what = f"{unit!r} is unknown; choose among {', '.join(UNITS[kind])}, or specify a scale"
            raise columns.error(kind, "unit", what)
        units[k], zeros[k] = UNITS[kind][plain], _ZEROS.get(plain, 0.0)
    gains = numbers("gains", 1.0)
    return gains * numbers("sign", 1.0) * numbers("scale", 1.0) * units, gains * numbers("offset", 0.0) + zeros


_TABLES = ", ".join(f"[{kind}]" for kind in UNITS)
_SPOKEN = {str: "a text in quotes", int: "an integer", bool: "true or false", list: "a list"}


def _line_of(text: str, kind: str | None, key: str | None) -> int:
    """Find the line number of a table, or of a key in the table; 0 if unknown."""
    at, found = None, 0
    for number, line in enumerate(text.splitlines(), 1):
        plain = line.strip()
        if match := re.match(r"\[\s*\"?([\w-]+)\"?\s*\]", plain):
            at = match[1]
            if at == kind and not found:
                found = number
        elif at == kind and key and re.match(rf"\"?{re.escape(key)}\"?\s*=", plain):
            return number
    return found

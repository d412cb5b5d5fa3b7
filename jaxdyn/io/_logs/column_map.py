"""Column maps: TOML files that assign the columns of a log to quantities, with units, signs, offsets and gains."""

import dataclasses
import math
import os
import pathlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import LogError
from .columns import combined
from .table import BadCell, Table, TextForm

UNITS: dict[str, dict[str, float]] = {
    "t": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0},
    "q": {"rad": 1.0, "mrad": 1e-3, "deg": math.pi / 180, "rev": 2 * math.pi, "m": 1.0, "cm": 1e-2, "mm": 1e-3},
    "qd": {
        "rad/s": 1.0,
        "mrad/s": 1e-3,
        "deg/s": math.pi / 180,
        "rev/s": 2 * math.pi,
        "rpm": math.pi / 30,
        "m/s": 1.0,
        "cm/s": 1e-2,
        "mm/s": 1e-3,
    },
    "tau": {"Nm": 1.0, "mNm": 1e-3, "kNm": 1e3, "Ncm": 1e-2, "N": 1.0, "mN": 1e-3, "kN": 1e3},
    "i": {"A": 1.0, "mA": 1e-3},
    "temperature": {"degC": 1.0, "K": 1.0},
}
# offset of each unit whose zero is not that of the standard unit (here degC), added after scaling
_ZEROS = {"K": -273.15}
_FILE_KEYS = {"separator": str, "decimal": str, "skip_lines": int, "header": bool, "topic": str, "joints": list}
CLOCK = "the sum of the columns of time"
_KEYS = ("column", "columns", "unit", "scale", "sign", "offset", "gains")


@dataclasses.dataclass(frozen=True)
class ColumnMap:
    """The contents of a column map.

    Attributes:
        source: name of the file, for messages.
        form: separator, decimal mark and header of a text file.
        topic: topic of a bag's joint states.
        joints: joint names in a bag, in the robot's order.
        kinds: for each quantity (t, q, qd, tau, i or temperature), the keys and values of its table in the map.
        text: text of the file, used to find line numbers for messages.
    """

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
    """Read a column map from a TOML file, or from a mapping with the same structure.

    ```toml
    separator = ";"            # of a text file, if it is not detected: any single character, " " for blanks
    decimal = ","              # default "."
    skip_lines = 3             # lines to skip above the header line
    header = false             # no header line: columns are identified by numbers, starting with 1

    [t]
    column = "Timestamp (ms)"  # a name, or a number starting with 1
    unit = "ms"                # without a unit, also dates and times of day; columns = ["sec", "nanosec"] with
                               # unit = ["s", "ns"], or columns = ["date", "time"], are added

    [q]
    columns = ["A1", "A2"]     # in the robot's joint order; or "A*" or "*/position", where * is a number
                               # or the name of a joint; or one (N, n) array of an .npz file
    unit = "deg"               # one for all joints, or one per joint
    sign = [1, -1]
    offset = [0.0, 1.5708]     # added last, in SI units

    [i]                        # or [tau]; optionally [qd] and [temperature]
    columns = ["I1", "I2"]
    gains = [14.87, 13.26]     # tau = gain x current [N m/A]
    ```

    If all columns are specified by number and `header` is omitted, a header line is detected automatically.

    Each value in the log is converted to sign x scale x unit x value + offset. Temperatures in K are then converted to degC.

    For a bag, specify `topic` and `joints` (the joint names in the bag, in the robot's order) as top-level keys. The columns
    may be omitted. A table `[i]` with `gains` declares that the efforts in the bag are currents.

    Raises:
        LogError: the file cannot be read or is not TOML, or a key, unit or type is unknown or unsuitable. The message names
            the file, line and key.
    """
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
    kinds = {key: value for key, value in content.items() if isinstance(value, Mapping)}
    plain = {key: value for key, value in content.items() if key not in kinds}
    empty = ColumnMap(source, TextForm(), None, None, {}, text)
    for key, value in plain.items():
        if key not in _FILE_KEYS:
            raise empty.error(None, key, f"unknown key; known keys are {', '.join(_FILE_KEYS)}, and {_tables()}")
        if not isinstance(value, _FILE_KEYS[key]) or (_FILE_KEYS[key] is int and isinstance(value, bool)):
            raise empty.error(None, key, f"{value!r} is not {_SPOKEN[_FILE_KEYS[key]]}")
    for kind, keys in kinds.items():
        if kind not in UNITS:
            raise empty.error(kind, None, f"unknown table; known tables are {_tables()}")
        for key in keys:
            if key not in _KEYS or (key == "gains" and kind != "i"):
                raise empty.error(kind, key, f"unknown key; known keys are {', '.join(_KEYS)} (gains only in [i])")
        if "column" in keys and "columns" in keys:
            raise empty.error(kind, "column", "specify column or columns, not both")
    if "tau" in kinds and "i" in kinds:
        raise empty.error("i", None, "specify [tau] or [i], not both; [i] replaces torques by currents and gains")
    separator, decimal = plain.get("separator"), plain.get("decimal", ".")
    if separator is not None and len(separator) != 1:
        raise empty.error(
            None, "separator", f'{separator!r} is not a single character; write " " for blanks, "\\t" for tabs'
        )
    if decimal not in (".", ",") or decimal == separator:
        raise empty.error(None, "decimal", f"{decimal!r} is neither '.' nor ',', or is also the separator")
    if plain.get("skip_lines", 0) < 0:
        raise empty.error(None, "skip_lines", "the number of lines cannot be negative")
    joints, topic = plain.get("joints"), plain.get("topic")
    if joints is not None and (not joints or not all(isinstance(x, str) for x in joints)):
        raise empty.error(None, "joints", f"{joints!r} is not a list of joint names")
    header = plain.get("header", None if _by_numbers(kinds) else True)
    form = TextForm(separator, decimal, plain.get("skip_lines", 0), header)
    return ColumnMap(
        source,
        form,
        topic,
        None if joints is None else tuple(joints),
        {k: dict(v) for k, v in kinds.items()},
        text,
    )


def _by_numbers(kinds: Mapping[str, Mapping[str, Any]]) -> bool:
    """True if all columns are specified by number."""
    given = [keys[key] for keys in kinds.values() for key in ("column", "columns") if key in keys]
    flat = [item for value in given for item in (value if isinstance(value, list) else [value])]
    return bool(flat) and all(isinstance(item, int) for item in flat)


def _beyond_64_bits(content: Mapping[str, Any]) -> bool:
    """True if an integer at any depth exceeds 64 bits."""
    rest: list[Any] = [content]
    while rest:
        value = rest.pop()
        if isinstance(value, Mapping):
            rest += value.values()
        elif isinstance(value, list | tuple):
            rest += value
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            return True
    return False


def with_map(
    table: Table, path: pathlib.Path, columns: ColumnMap, joints: Sequence[str] = (), *, torques: bool = True
) -> Table:
    """Assign the columns of a table to quantities, and convert them to SI units, as specified in a column map.

    Args:
        joints: names of the robot's joints, by which patterns such as */position select and order columns.
        torques: require torques or currents.

    Raises:
        LogError: a column is missing or used twice, or the number of values of a key differs from the number of columns.
    """
    if columns.has_clock_in_parts:
        table = with_combined_clock(table, path, columns)
        columns = dataclasses.replace(columns, kinds={**columns.kinds, "t": {"column": CLOCK}})
    known = table.kinds or {}
    kinds = dict(known)
    if columns.kinds.keys() & {"i"}:
        kinds.pop("tau", None)
    # for each column name: quantity, index among the columns of the quantity, number of these columns
    changes: dict[str, list[tuple[str, int | None, int]]] = {}
    for kind, keys in columns.kinds.items():
        names = _resolve(table, path, columns, kind, keys, known.get("tau" if kind == "i" else kind), joints)
        for place, name in enumerate(names):
            changes.setdefault(name, []).append((kind, place if len(names) > 1 else None, len(names)))
        kinds["tau" if "gains" in keys else kind] = names
    for name, uses in changes.items():
        if len(uses) > 1:
            kind = uses[1][0]
            raise columns.error(
                kind, "columns", f"column {name!r} of {path} is used twice, by [{uses[0][0]}] and [{kind}]"
            )
    missing = [kind for kind in ("t", "q") if kind not in kinds]
    if missing:
        raise LogError(f"{columns.source}: [{missing[0]}] is missing: specify the column of {path} that contains it")
    if torques and "tau" not in kinds and "i" not in kinds:
        raise LogError(f"{columns.source}: [tau] or [i] is missing: specify the columns of {path} that contain torques")

    def read(wanted: Sequence[str]) -> tuple[dict[str, np.ndarray], list[BadCell]]:
        arrays, bad = table.read(wanted)
        for name in wanted:
            for kind, place, count in changes.get(name, ()):
                if arrays[name].dtype.kind == "i":  # dates and times of day
                    if kind != "t" or set(columns.kinds["t"]) & {"unit", "scale", "sign", "offset"}:
                        raise columns.error(kind, None, f"column {name!r} of {path} contains times, not numbers")
                    continue
                wide = arrays[name].shape[1] if arrays[name].ndim == 2 and count == 1 else count
                factor, offset = _factors(columns, kind, wide)
                if place is not None:
                    factor, offset = factor[place], offset[place]
                elif wide == 1:
                    factor, offset = factor[0], offset[0]
                arrays[name] = factor * arrays[name] + offset
        return arrays, bad

    what = "; ".join(_spoken(kind, keys) for kind, keys in columns.kinds.items() if set(keys) - {"column", "columns"})
    note = f"columns as specified in {columns.source}" + (f": {what}" if what else "")
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
    wanted = keys[key]
    wanted = wanted if isinstance(wanted, list) else [wanted]
    names = []
    for item in wanted:
        if isinstance(item, str) and item.count("*") == 1 and item not in table.names:
            names += _matching(table, path, columns, kind, key, item, joints if len(wanted) == 1 else ())
            continue
        if isinstance(item, int) and not isinstance(item, bool):
            if not 1 <= item <= len(table.names):
                raise columns.error(
                    kind, key, f"{item} is not a column of {path}, which has columns 1 to {len(table.names)}"
                )
            name = table.names[item - 1]
            # tables of text files also accept "column N" as a name
            item = name if table.names.count(name) == 1 else f"column {item}"
        elif item not in table.names:
            raise columns.error(
                kind, key, f"{item!r} is not a column of {path}; its columns are {', '.join(table.names)}"
            )
        elif table.names.count(item) > 1:
            raise columns.error(
                kind, key, f"{path} has several columns {item!r}; specify the column by its number, counted from 1"
            )
        names.append(item)
    if not names:
        raise columns.error(kind, key, "no columns are specified; time needs one, other quantities one per joint")
    return names


def _matching(
    table: Table, path: pathlib.Path, columns: ColumnMap, kind: str, key: str, pattern: str, joints: Sequence[str]
) -> list[str]:
    """Find the columns that match a pattern with one *, which stands for the robot's joint names, or for their numbers."""
    before, after = (re.escape(part) for part in pattern.split("*"))
    found = [(m[1], name) for name in table.names if (m := re.fullmatch(f"{before}(.+?){after}", name))]
    repeated = [name for _, name in found if table.names.count(name) > 1]
    if repeated:
        raise columns.error(
            kind, key, f"{path} has several columns {repeated[0]!r}; specify the columns by numbers, counted from 1"
        )
    held = [[name for star, name in found if joint == star or joint in re.split("[/.]", name)] for joint in joints]
    if held and all(len(some) == 1 for some in held):
        return [name for some in held for name in some]
    groups: dict[tuple[str, str], dict[int, str]] = {}  # by the text around the number
    for star, name in found:
        if m := re.fullmatch(r"(.*?)([0-9]{1,9})(\D*)", star):
            group = groups.setdefault((m[1], m[3]), {})
            if int(m[2]) in group:
                raise columns.error(kind, key, f"{pattern!r} matches both {group[int(m[2])]!r} and {name!r} of {path}")
            group[int(m[2])] = name
    numbers = groups.get(("", "")) or (next(iter(groups.values())) if len(groups) == 1 else {})
    if not numbers or max(numbers) - min(numbers) >= len(numbers) or min(numbers) > 1:
        there = ", ".join(name for _, name in found) or "none"
        by_name = f", or columns with the robot's joint names ({', '.join(joints)})" if joints else ""
        raise columns.error(
            kind, key, f"{pattern!r} must match columns numbered from 0 or 1 without gaps{by_name}; {path} has {there}"
        )
    return [numbers[k] for k in sorted(numbers)]


def _factors(columns: ColumnMap, kind: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Compute factor (sign x scale x unit x gain) and offset (offset x gain, and -273.15 for kelvins) of each column."""
    keys = columns.kinds[kind]

    def one_each(key: str, usual: Any) -> list[Any]:
        value = keys.get(key, usual)
        if not isinstance(value, list):
            return [value] * count
        if len(value) != count:
            raise columns.error(
                kind, key, f"{len(value)} values for {count} columns; specify one for all columns, or one per column"
            )
        return value

    def numbers(key: str, usual: float) -> np.ndarray:
        values = one_each(key, usual)
        for x in values:
            if isinstance(x, bool) or not isinstance(x, int | float) or not math.isfinite(x):
                raise columns.error(kind, key, f"{x!r} is not a finite number")
            if (key == "sign" and abs(x) != 1) or (x == 0 and key != "offset"):
                raise columns.error(
                    kind,
                    key,
                    f"{x:g} is not a valid {key}: {'use 1 or -1' if key == 'sign' else 'it erases the column'}",
                )
        return np.array(values, np.float64)

    units, zeros = [], []
    for unit in one_each("unit", None):
        plain = re.sub(r"[\s*·]", "", unit) if isinstance(unit, str) else unit
        if plain is not None and (not isinstance(plain, str) or plain not in UNITS[kind]):
            raise columns.error(
                kind, "unit", f"{unit!r} is unknown; choose among {', '.join(UNITS[kind])}, or specify a scale"
            )
        units.append(1.0 if plain is None else UNITS[kind][plain])
        zeros.append(0.0 if plain is None else _ZEROS.get(plain, 0.0))
    gains = numbers("gains", 1.0)
    factors = gains * numbers("sign", 1.0) * numbers("scale", 1.0) * np.array(units)
    return factors, gains * numbers("offset", 0.0) + np.array(zeros)


def _spoken(kind: str, keys: Mapping[str, Any]) -> str:
    given = ", ".join(f"{key} {value}" for key, value in keys.items() if key not in ("column", "columns"))
    return f"{kind} with {given}"


def _tables() -> str:
    return ", ".join(f"[{kind}]" for kind in UNITS)


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

"""Logged runs of robots: `Log`, and how it is read, whole or in parts, checked and written; and `Motion`, for viewing.

A log is read as one table, whatever its files. Unusable data is an error that names the file, row and column; doubtful data is
noted in the log.
"""

import contextlib
import dataclasses
import io
import os
import pathlib
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from .._summary import data_frame, numbered
from ..errors import LogError, OutputError
from ..model.chain import Chain, coordinate_limits, coordinate_names
from .bags import is_bag, open_bag
from .column_map import (
    ALIASES,
    CLOCK,
    ColumnMap,
    blocks_of,
    clock_columns,
    find_columns,
    labels_of,
    named_columns,
    proposed_map,
    read_column_map,
    seconds_of,
    stem_of,
    with_clock,
    with_combined_clock,
    with_map,
)
from .files import write_whole
from .tables import (
    GAP,
    IN_A_MAP,
    LOCK_THEM,
    STILL,
    TEXT_SUFFIXES,
    BadCell,
    BadRows,
    Table,
    binary_parts,
    checked_suffix,
    find_bad_rows,
    jumps,
    log_error,
    looks_like_degrees,
    open_table,
    repeated_note,
    repeats,
    segments,
    smooth_speed,
    text_parts,
    velocity_scale,
    within,
)

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]  # a file, or the files of one run


def files_of(path: Paths) -> tuple[list[pathlib.Path], pathlib.Path]:
    """The files of a run, and what they are called in messages."""
    files = [pathlib.Path(p) for p in ([path] if isinstance(path, str | os.PathLike) else path)]
    return files, pathlib.Path("+".join(map(str, files)))


def open_log(
    paths: Sequence[pathlib.Path],
    joint_names: Sequence[str] | None,
    given: ColumnMap | None,
    topic: str | None,
    *,
    torques: bool = True,
) -> Table:
    """Open the files of one run as one table, with columns assigned by the column map `given`, if any."""
    bags = [is_bag(path) for path in paths]
    if any(bags) and not all(bags):
        bag, other = (paths[bags.index(kind)] for kind in (True, False))
        raise LogError(f"{bag}: this is a bag, but {other} is not; convert one of the two")
    if all(bags):
        names = joint_names if given is None or given.joints is None else given.joints
        table = open_bag(paths, names, topic or (given.topic if given else None), efforts=torques)
    elif topic is not None:
        raise LogError(remedy="{topic} is for bags, which this is not; omit it", place=paths[0], topic="")
    else:
        tables = [open_table(path, given.form if given else None) for path in paths]
        if given is None or "t" not in given.kinds:
            tables = [with_clock(table) for table in tables]
        table, given = (tables[0], given) if len(tables) == 1 else _joined(paths, tables, given)
    return table if given is None else with_map(table, paths[0], given, joint_names or (), torques=torques)


def _joined(
    paths: Sequence[pathlib.Path], tables: Sequence[Table], given: ColumnMap | None
) -> tuple[Table, ColumnMap | None]:
    """Concatenate the tables of one run if they have the same columns; otherwise join them by time, combined as in the map."""
    if all(set(table.names) == set(tables[0].names) for table in tables):
        return _one_after_the_other(paths, tables), given
    if given is not None and given.has_clock_in_parts:
        tables = [with_combined_clock(table, path, given) for table, path in zip(tables, paths, strict=True)]
        given = dataclasses.replace(given, kinds={**given.kinds, "t": {"column": CLOCK}})
    clocks = [_clock(path, table, given) for path, table in zip(paths, tables, strict=True)]
    return _side_by_side(paths, tables, clocks), given


def _one_after_the_other(paths: Sequence[pathlib.Path], tables: Sequence[Table]) -> Table:
    """Concatenate tables with the same columns, in the order of the files."""
    starts: list[int] = []

    def read(wanted: Sequence[str]) -> tuple[dict[str, np.ndarray], list[BadCell]]:
        blocks, cells = [], []
        starts[:] = []
        for table in tables:
            arrays, bad = table.read(wanted)
            starts.append(sum(len(block[wanted[0]]) for block in blocks))
            cells += [(starts[-1] + row, column, text) for row, column, text in bad]
            blocks.append(arrays)
        return {name: np.concatenate([block[name] for block in blocks]) for name in wanted}, cells

    def line(row: int) -> str:
        part = int(np.searchsorted(starts, row, "right")) - 1
        return f"{tables[part].line(row - starts[part])} of {paths[part].name}"

    notes = [f"{path.name}: {note}" for path, table in zip(paths, tables, strict=True) for note in table.notes]
    return Table(tables[0].names, read, line, (f"{len(paths)} files concatenated", *notes))


def _side_by_side(paths: Sequence[pathlib.Path], tables: Sequence[Table], clocks: Sequence[str]) -> Table:
    """Join tables with different columns by time. Later tables are interpolated linearly to the time stamps of the first."""
    owner: dict[str, int] = {}
    for k, (table, clock) in enumerate(zip(tables, clocks, strict=True)):
        for name in table.names:
            if not name or (k and name == clock):
                continue
            if name in owner:
                raise LogError(f"{paths[k]}: column {name!r} is also in {paths[owner[name]]}; rename or remove one")
            owner[name] = k
    times = [_stamps(path, table, clock) for path, table, clock in zip(paths, tables, clocks, strict=True)]
    exact = all(t.dtype.kind == "i" for t in times)  # counts of nanoseconds, which lose digits as seconds since 1970
    start = times[0][0] if exact else 0
    times = [(t - start) * 1e-9 if t.dtype.kind == "i" else t for t in times]
    keep = np.ones(len(times[0]), bool)
    for t in times[1:]:
        keep &= within(times[0], t)
    rows = np.flatnonzero(keep)
    if len(rows) < 2:
        raise LogError(f"{paths[0]}: the files of this run do not overlap in time with {paths[1]}")

    def read(wanted: Sequence[str]) -> tuple[dict[str, np.ndarray], list[BadCell]]:
        arrays, cells = {}, []
        for k, (table, t) in enumerate(zip(tables, times, strict=True)):
            own, bad = table.read(here) if (here := [name for name in wanted if owner[name] == k]) else ({}, [])
            if k == 0:
                places = {int(row): place for place, row in enumerate(rows)}
                cells += [(places[row], column, text) for row, column, text in bad if row in places]
                arrays |= {name: array[rows] for name, array in own.items()}
                continue
            _refuse_cells(paths[k], table.line, bad)
            for name, array in own.items():
                flat = array.reshape(len(t), -1)
                across = np.stack([np.interp(times[0][rows], t, column) for column in flat.T], axis=1)
                arrays[name] = across.reshape(len(rows), *array.shape[1:])
        return {name: arrays[name] for name in wanted}, cells

    others = ", ".join(path.name for path in paths[1:])
    note = f"{others} interpolated linearly to the time stamps of {paths[0].name}"
    lost = f"; {np.count_nonzero(~keep)} of {len(keep)} rows omitted because some files have no values at these times"
    notes = (note + lost * (not keep.all()), *(note for table in tables for note in table.notes))
    return Table(tuple(owner), read, lambda row: tables[0].line(int(rows[row])), notes)


def _refuse_cells(path: pathlib.Path, line: Callable[[int], str], bad: Sequence[BadCell]) -> None:
    if bad:
        row, column, what = bad[0]
        raise LogError(f"{path}: {line(row)}, column {column!r}: {what}")


def _clock(path: pathlib.Path, table: Table, given: ColumnMap | None) -> str:
    """Find the time column: the column specified in the column map, or the one with a standard name."""
    named = given.kinds.get("t", {}).get("column") if given else None
    if isinstance(named, int) and 1 <= named <= len(table.names):
        named = table.names[named - 1]
    if named in table.names:
        return str(named)
    found = clock_columns(table.names)
    if len(found) != 1:
        reason = "each file of a run needs exactly one, because files are joined by time"
        raise LogError(f"{path}: {len(found)} columns {_CALLED}; {reason}; {_there(table)}")
    return found[0]


_CALLED = "are called t, time, timestamp or stamp"


def _there(table: Table) -> str:
    return f"the columns are {', '.join(filter(None, table.names[:40]))}"


def _stamps(path: pathlib.Path, table: Table, clock: str) -> np.ndarray:
    """Read the time stamps by which tables are joined."""
    arrays, bad = table.read([clock])
    t = arrays[clock].reshape(-1)
    lost = [row for row, *_ in bad] or np.flatnonzero(~np.isfinite(t))
    if len(lost):
        fault = "files are joined by time stamps, but this value is not a finite number"
        raise LogError(f"{path}: {table.line(int(lost[0]))}, column {clock!r}: {fault}")
    back = np.flatnonzero(np.diff(t) <= 0)
    if len(t) < 2 or len(back):
        where = f" at {table.line(int(back[0]) + 1)}" if len(back) else ""
        raise LogError(f"{path}: time does not increase{where}; the files of a run are joined by time")
    return t


MINIMUM_ROWS = 20


@dataclasses.dataclass(frozen=True, eq=False)
class Log:
    """A logged run of a robot with n joints and N samples, in SI units and radians.

    What is not a NumPy array, such as a list or a column of pandas, is converted to one.

    Attributes:
        t: time stamps, strictly increasing; steps may vary [s].
        q, qd, tau: joint positions [rad or m], logged velocities, if any [rad/s or m/s], and torques [N m or N].
        notes: remarks made while reading and checking the log.
        path: the file from which the log was read, or the first of several files.
        temperature: joint temperatures, if logged [°C], for `TemperatureDependent` friction.
        command: commanded joint positions, if logged [rad or m], for `identify_from_commands`. If a file has commands but no
            torques, tau is NaN.
        units_checked: the values are in SI units and radians although they look like degrees, as for multi-turn joints; see
            `check_log`.

    Raises:
        LogError: the arrays do not have the same number of samples and joints.
    """

    t: Float[np.ndarray, " N"]
    q: Float[np.ndarray, "N n"]
    qd: Float[np.ndarray, "N n"] | None
    tau: Float[np.ndarray, "N n"]
    source: str = "memory"
    notes: tuple[str, ...] = ()
    path: pathlib.Path | None = None
    temperature: Float[np.ndarray, "N n"] | None = None
    units_checked: bool = False
    command: Float[np.ndarray, "N n"] | None = None

    def __post_init__(self) -> None:
        for name in ("t", "q", "qd", "tau", "temperature", "command"):
            x = getattr(self, name)
            if x is not None and not isinstance(x, np.ndarray):  # lists, and arrays of JAX and pandas
                object.__setattr__(self, name, np.asarray(x, np.float64))
        shape = (*self.t.shape, *self.q.shape[1:])
        for name in ("q", "qd", "tau", "temperature", "command"):
            x = getattr(self, name)
            if x is not None and (x.shape != shape or len(shape) != 2):
                fault = f"{self.source}: {name} has shape {x.shape}, but t has shape {self.t.shape}"
                raise LogError(fault, "pass one row per time stamp, and one column per joint, in all arrays")

    @property
    def n(self) -> int:
        """Number of joints."""
        return self.q.shape[1]

    @property
    def has_torques(self) -> bool:
        """Whether torques were logged."""
        return not bool(np.isnan(self.tau).all())

    @property
    def columns(self) -> dict[str, Float[np.ndarray, "N n"]]:
        """The logged arrays by the names of their columns in tables: q, qd, tau, temperature and q_cmd."""
        arrays = {"q": self.q, "qd": self.qd, "tau": self.tau, "temperature": self.temperature, "q_cmd": self.command}
        return {name: x for name, x in arrays.items() if x is not None and not np.isnan(x).all()}

    def __len__(self) -> int:
        return len(self.t)

    def __repr__(self) -> str:
        span = self.t[-1] - self.t[0] if len(self) else 0.0
        return f"Log({self.source}: {len(self)} samples in {span:.6g} s, {self.n} joints, {len(self.notes)} notes)"

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame` indexed by time, with the columns q1.. and, if logged, those of the other arrays."""
        columns = [numbered(name, block) for name, block in self.columns.items()]
        return data_frame({key: x for block in columns for key, x in block.items()}, self.t, "t")


def read_log(
    path: Paths,
    joints: int | Sequence[str] | None = None,
    *,
    gains: Sequence[float] | Float[np.ndarray, " n"] | None = None,
    rows: tuple[int, int] | None = None,
    on_bad_rows: Literal["raise", "drop"] = "raise",
    columns: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    topic: str | None = None,
    units_checked: bool = False,
    numbered: Sequence[str] | None = None,
) -> Log:
    """Read a log from a .csv (.tsv, .txt), .npz or .parquet file, or from a ROS bag.

    Parquet requires the extra `jaxdyn[parquet]`, bags require `jaxdyn[bags]`. Of a bag (a ROS 1 .bag, the folder of a ROS 2
    bag, or an .mcap or .db3 file), `sensor_msgs/JointState` messages are read, whose header stamps are time and whose efforts
    are torques, or `trajectory_msgs/JointTrajectory` messages. Its joints are identified by name.

    In other files, columns are recognised by name, in any order and case, with joints numbered from 1 or 0:

    - time [s]: `t`, `time`, `timestamp`, `stamp` or `datetime`, as numbers, or as dates and times (ISO 8601, or the timestamps
      of Parquet and NumPy); or seconds and nanoseconds in two columns, `sec` and `nanosec` (`secs`, `nsecs`, ..) with any
      common beginning; or a date and a time of day, `date` and `time`;
    - positions [rad or m]: `q1`, `pos1`, `position1`; motor side `qm1`;
    - velocities, optional [rad/s or m/s]: `qd1`, `dq1`, `v1`, `vel1`, `velocity1`; motor side `qdm1`;
    - torques [N m or N]: `tau1`, `torque1`, `effort1`, motor side `taum1`; or currents [A]: `i1`, `current1`;
    - temperatures of the joints, optional [°C]: `temperature1`, `temp1`, or one column for all; empty cells are interpolated;
    - commanded positions, optional [rad or m]: `q_cmd1`, `cmd1`, `command1`. A log with commands needs no torques, but then
      serves only `identify_from_commands`.

    `q_1`, `q.1`, `q[1]` and `q(1)` are equivalent to `q1`; suffixes `_m`, `_meas`, `_measured`, `_s`, `_rad` and SI units in
    brackets are ignored. If no positions are numbered, columns are found by joint name, as in `shoulder/position`,
    `position_shoulder`, `effort[shoulder]` or `/joint_states/shoulder/velocity`. In .npz and .parquet files, a quantity may
    also be one (N, n) array. Other columns are ignored, with a note.

    Rows that repeat an earlier row exactly, with its time stamp, are removed with a note. Gaps (time steps longer than 5 times
    the median step) are noted but accepted: `preprocess` treats the pieces separately.

    Args:
        path: the file, or the files of one run. Files with the same columns are concatenated. Files with different columns
            are interpolated linearly to the time stamps of the first file, except in gaps.
        joints: the required number of joints, or the joint names (`chain.joint_names`), which select and order the joints of a
            bag, and of a table whose columns are called by joint name.
        gains: one gain per joint [N m/A], required if the log has currents: tau_j = gain_j x current_j. If the log has
            torques but no currents, the torques are multiplied by the gains. If it has both, the torques are ignored.
        rows: first and last data row to read, inclusive and counted from 1. Other rows are not checked.
        on_bad_rows: "raise" reports implausible rows as an error; "drop" removes up to a tenth of all rows, with a note. A
            row is implausible if it contains NaN, infinity or a number beyond 1e6, if its time stamp is out of order or far
            from all others, or if a position jumps away and back.
        columns: a column map for other names, units, signs, offsets and gains: a TOML file (docs/logs.md) or a mapping.
        topic: topic of the joint states in a bag; detected if None.
        units_checked: do not check the log for degrees and millimetres when it is used (`check_log`).
        numbered: names of the joints that the numbers in the file stand for, if these are more than `joints`, for example
            because some of them are locked in the model. The columns of the others are left out, with a note.

    Raises:
        LogError: the file cannot be read; columns are missing, repeated or incomplete; the log has currents, but no gains are
            passed; cells are not finite or not plausible; time does not increase or is not in seconds; positions jump; there
            are fewer than 20 samples; no joint moves or no torque was recorded.

    Cost: about 0.1 s for a CSV file with 20 000 rows and 22 columns.
    """
    files, path = files_of(path)
    names = None if joints is None or isinstance(joints, int) else tuple(joints)
    given = None if columns is None else read_column_map(columns)
    if given is not None and gains is not None and "gains" in given.kinds.get("i", {}):
        raise given.error("i", "gains", remedy="{gains} is also passed; omit one of the two", gains="")
    table = open_log(files, names, given, topic)
    kinds, ignored, found = table.kinds, [], []
    if kinds is None:
        try:
            kinds, ignored, found = find_columns(path, table.names, gains is not None, names or ())
        except LogError as error:
            if "columns" not in error.arguments:
                raise
            proposal = re.sub(r"([{}])", r"\1\1", proposed_map(table.names, names or ()))
            raise LogError(error.fault, error.remedy + proposal, **error.arguments) from None
    arrays, cells = table.read([name for names in kinds.values() for name in names])
    blocks = blocks_of(path, kinds, arrays)
    blocks["t"], counted = seconds_of(blocks["t"])
    total = len(blocks["t"])
    first, last = row_range(path, rows, total)
    blocks = {kind: block[first:last] for kind, block in blocks.items()}
    notes = [*table.notes, *found, *counted]
    if rows is not None:
        notes.append(f"rows {rows[0]} to {rows[1]} of {total} read")
    if ignored:
        notes.append(f"columns ignored: {', '.join(ignored)}")
    if names is not None and numbered is not None and blocks["q"].shape[1] == len(numbered) != len(names):
        kinds, blocks, others = _selected(path, kinds, blocks, names, tuple(numbered))
        notes.append(f"columns of {', '.join(others)} left out, which are not among the robot's joints")
        notes += [f"{name} is left out, but moves (it spans {x:.2g})" for name, x in others.items() if x > STILL]
    _check_count(path, kinds["q"], blocks["q"].shape[1], joints if names is None else len(names))  # type: ignore[arg-type]
    again = repeats(np.concatenate([blocks["t"], _values(blocks)], axis=1))
    at = np.flatnonzero(~again)
    if again.any():
        notes.append(repeated_note(int(np.count_nonzero(again))))
        blocks = {kind: block[at] for kind, block in blocks.items()}
    heat = blocks.pop("temperature", None)
    rank = np.cumsum(~again) - 1
    inside = lambda row: first <= row < last and not again[row - first]
    cells = [(int(rank[row - first]), column, text) for row, column, text in cells if inside(row)]
    place = lambda row: table.line(first + int(at[row]))
    t, labels = blocks["t"][:, 0], _labels(kinds, blocks)
    faults = find_bad_rows(t, _values(blocks), labels, blocks["q"].shape[1], kinds["t"][0])
    bad, report = _bad_rows(faults, cells, place)
    keep = np.ones(len(t), bool)
    if len(bad):
        report = f"{len(bad)} of {len(t)} rows cannot be used: {report}"
        _refuse_rows(path, report, on_bad_rows, len(bad) > len(t) / 10)
        keep[bad] = False
        notes.append(f"{report}; dropped: {_ranges(at[np.sort(bad)] + first + 1)}")
    _refuse_jumps(path, blocks["q"], keep, labels, place, ", or select rows without jumps with {rows}")
    if keep.sum() < MINIMUM_ROWS:
        raise LogError(f"{path}: {keep.sum()} samples are too few; at least {MINIMUM_ROWS} are needed")
    kept = np.flatnonzero(keep)
    blocks = {kind: block[keep] for kind, block in blocks.items()}
    t, q = blocks["t"][:, 0], blocks["q"]
    notes += check_time(path, t, lambda row: place(int(kept[row])))
    tau = _torques(path, blocks, gains, notes)
    notes += _check_variance(path, q, tau, kinds)
    heat = None if heat is None else filled(t, heat[keep])
    source = "+".join(file.name for file in files)
    command = blocks.get("command")
    return Log(t, q, blocks.get("qd"), tau, source, tuple(notes), files[0], heat, units_checked, command)


def _values(blocks: Mapping[str, np.ndarray]) -> np.ndarray:
    """All columns but time."""
    return np.concatenate([block for kind, block in blocks.items() if kind != "t"], axis=1)


def _labels(kinds: Mapping[str, list[str]], blocks: Mapping[str, np.ndarray]) -> list[str]:
    """Names of the columns of `_values`."""
    return [label for kind in blocks if kind != "t" for label in labels_of(kinds[kind], blocks[kind])]


def _check_count(path: pathlib.Path, positions: Sequence[str], n: int, wanted: int | None) -> None:
    if wanted is None or n == wanted:
        return
    fault = f"{path}: the log has {n} joints, but the robot has {wanted}; the positions are {', '.join(positions)}"
    if n < wanted:
        raise log_error(fault, "Load the model with the missing joints locked: {lock}")
    raise log_error(fault, "List only the columns of the robot's joints in a column map (docs/logs.md): {columns}")


def _selected(
    path: pathlib.Path,
    kinds: Mapping[str, list[str]],
    blocks: Mapping[str, np.ndarray],
    joints: Sequence[str],
    numbered: Sequence[str],
) -> tuple[dict[str, list[str]], dict[str, np.ndarray], dict[str, float]]:
    """Keep the columns of some of the joints; also return the names of the others, and how far they move."""
    if unknown := [name for name in joints if name not in numbered]:
        raise LogError(f"{path}: numbered= lacks {', '.join(unknown)}; it must contain all of the robot's joints")
    pick = [list(numbered).index(name) for name in joints]
    of_joints = lambda kind, names: [names[k] for k in pick] if kind != "t" and len(names) == len(numbered) else names
    return (
        {kind: of_joints(kind, names) for kind, names in kinds.items()},
        {kind: block if kind == "t" else block[:, pick] for kind, block in blocks.items()},
        {name: float(np.ptp(x)) for name, x in zip(numbered, blocks["q"].T, strict=True) if name not in joints},
    )


def filled(t: Float[np.ndarray, " N"], values: Float[np.ndarray, "N n"]) -> Float[np.ndarray, "N n"] | None:
    """Interpolate the missing values of slow signals in time. Return None if a column contains no numbers."""
    known = np.isfinite(values)
    if not known.any(axis=0).all():
        return None
    return np.stack([np.interp(t, t[ok], x[ok]) for ok, x in zip(known.T, values.T, strict=True)], axis=1)


def named_apart(logs: Sequence[Log]) -> list[Log]:
    """Make the sources of logs distinct: folder/name for files with the same name, and name (1), .. for parts of one file."""
    names = [log.source for log in logs]
    parts = [log.path.absolute().parts if log.path is not None and names.count(log.source) > 1 else () for log in logs]
    files, depth = {p for p in parts if p}, 2
    while len({p[-depth:] for p in files}) < len(files):
        depth += 1
    out, seen = [], Counter[tuple[str, ...]]()
    for log, p in zip(logs, parts, strict=True):
        seen[p] += 1
        name = "/".join(p[-depth:]) if len(files) > 1 else log.source
        name += f" ({seen[p]})" if parts.count(p) > 1 else ""
        out.append(dataclasses.replace(log, source=name) if p else log)
    return out


def check_log(
    log: Log,
    chain: Chain | None = None,
    *,
    position_limits: Float[np.ndarray, "k 2"] | None = None,
    velocity_limit: Float[np.ndarray, " k"] | None = None,
    joint_names: Sequence[str] | None = None,
    units_checked: bool = False,
    allow_still: bool = False,
) -> Log:
    """Check the units and plausibility of a log. Clear faults raise an error; doubtful data are noted in the returned log.

    `identify`, `identify_together`, `identify_payload`, `calibrate_gains`, `compare_models` and `compare_with_log` check their
    logs in this way, with `allow_still=True`. A joint is assumed to be logged in degrees (or millimetres) if

    - |q| exceeds 4 pi, and also the joint's limits, if any;
    - more than half of the positions q are outside the limits, whereas all q pi/180 are inside;
    - the speed exceeds three times the velocity limit for a tenth of the time, whereas 1/57 of it is within the limit; or
    - the logged velocity is 57.3 or 1/57.3 times the derivative of the logged position, within 20 %.

    The following only add notes: positions more than 0.1 rad (m) beyond the limits, speeds more than 10 % above the limit,
    logged velocities that differ in sign or scale from the derivative of the positions, and limits that allow no motion (0 ..
    0, as CAD programs export them), which are ignored for joints that move.

    Args:
        chain: the robot, for default limits and names: those of its joints, or of its coordinates if joints are coupled.
        position_limits: lower and upper limit of each joint; infinite for a joint without limits [rad or m].
        velocity_limit: largest |qd| of each joint [rad/s or m/s].
        units_checked: accept values that look like degrees, as for multi-turn joints, and mark the returned log, so that this
            check is omitted wherever it is used.
        allow_still: accept joints that do not move, with a note. Parameters that affect only such a joint cannot be identified.

    Raises:
        LogError: there are fewer than two samples, the time does not increase, values look like degrees, the positions of a
            joint span less than 1e-3 rad (m), or the number of limits or names differs from the number of joints.
    """
    n = log.n
    if chain is not None:
        given = coordinate_limits(chain)
        position_limits = np.stack([given["lower"], given["upper"]], 1) if position_limits is None else position_limits
        velocity_limit = given["velocity"] if velocity_limit is None else velocity_limit
        joint_names = joint_names or coordinate_names(chain)
    limits = np.tile([-np.inf, np.inf], (n, 1)) if position_limits is None else position_limits.astype(np.float64)
    fastest = np.full(n, np.inf) if velocity_limit is None else velocity_limit.astype(np.float64)
    names = [f"joint {j + 1}" for j in range(n)] if joint_names is None else list(joint_names)
    for what, given in (("position limits", limits), ("velocity limits", fastest), ("joint names", names)):
        if len(given) != n:
            raise LogError(f"{log.source}: {len(given)} {what} for a log with {n} joints; is it from another robot?")
    if len(log) < 2:
        raise LogError(f"{log.source}: the log has {len(log)} samples", "record a motion of some seconds")
    if not np.all(np.diff(log.t) > 0):
        raise LogError(f"{log.source}: the time does not increase from sample to sample", "sort the samples by time")
    notes = list(log.notes)
    none = (limits[:, 0] == limits[:, 1]) & (np.ptp(log.q, axis=0) >= STILL)
    if none.any():  # exporters of CAD programs write zeros for limits that are not set
        which = ", ".join(name for name, unset in zip(names, none, strict=True) if unset)
        value = ", ".join(dict.fromkeys(f"{x:.4g} .. {x:.4g}" for x in limits[none, 0]))
        notes.append(
            f"the model's position limits of {which} are {value}, which allows no motion; they are ignored here"
        )
    limits = np.where(none[:, None], [-np.inf, np.inf], limits)
    fastest = np.where(fastest > 0, fastest, np.inf)
    speed = smooth_speed(log.t, log.q)
    scale = np.full(n, np.nan) if log.qd is None else velocity_scale(log.qd, speed)
    units_checked = units_checked or log.units_checked
    if not units_checked:
        for joint, name in enumerate(names):
            reason = looks_like_degrees(
                log.q[:, joint], limits[joint], speed[:, joint], float(fastest[joint]), float(scale[joint])
            )
            if reason:
                fault = f"the values of {name} look like degrees (or millimetres), not radians (metres): {reason}"
                remedy = "Convert the log, or pass {units_checked} if the values are correct (a multi-turn joint)"
                raise log_error(f"{log.source}: {fault}", remedy)
    for joint, name in enumerate(names):
        q, (low, high) = log.q[:, joint], limits[joint]
        if np.ptp(q) < STILL:
            text = f"{name} does not move (it spans {np.ptp(q):.2g})"
            if not allow_still:
                fault = f"{log.source}: {text}, so its friction and most of its inertia cannot be identified"
                raise log_error(fault, "log a run in which it moves, or pass {allow_still}")
            notes.append(text)
        beyond = np.maximum(low - q, q - high)
        if beyond.max() > 0.1:
            notes.append(
                f"{name} is beyond its position limits {low:.4g} .. {high:.4g} by up to {beyond.max():.3g}, "
                f"in {np.count_nonzero(beyond > 0.1)} of {len(log)} samples"
            )
        top = np.abs(speed[:, joint]).max()
        if top > 1.1 * fastest[joint]:
            notes.append(f"{name} moves at up to {top:.3g}, above its velocity limit {fastest[joint]:.4g}")
        if np.isfinite(scale[joint]) and not 0.8 < scale[joint] < 1.25:
            notes.append(f"the logged velocity of {name} is {scale[joint]:.3g} times the derivative of its position")
    return dataclasses.replace(log, notes=tuple(dict.fromkeys(notes)), units_checked=units_checked)


def row_range(path: pathlib.Path, rows: tuple[int, int] | None, count: int) -> tuple[int, int]:
    if rows is None:
        return 0, count
    if not 1 <= rows[0] < rows[1] <= count:
        raise LogError(f"{path}: rows={rows} is not a range (first, last) within the file's rows 1 to {count}")
    return rows[0] - 1, rows[1]


def _bad_rows(
    found: Sequence[BadRows], cells: Sequence[BadCell], place: Callable[[int], str]
) -> tuple[np.ndarray, str]:
    """Return the indices of the unusable rows, and a text that lists the faults."""
    text = {(row, column): cell for row, column, cell in cells}
    said = []
    for reason in found:
        row = int(reason.rows[0])
        value = text.get((row, reason.column), f"{reason.value:.6g}")
        said.append(f"{len(reason.rows)} {reason.what}, first at {place(row)}, column {reason.column!r} ({value})")
    return np.concatenate([reason.rows for reason in found]) if found else np.zeros(0, int), "; ".join(said)


def _refuse_rows(path: pathlib.Path, counted: str, on_bad_rows: str, too_many: bool) -> None:
    if too_many:
        remedy = "repair the file, or select the rows to read with {rows}"
        raise log_error(f"{path}: {counted}. This is more than a tenth, too many to drop", remedy)
    if on_bad_rows == "raise":
        remedy = "Repair the file, drop these rows with {on_bad_rows}, or select the rows to read with {rows}"
        raise log_error(f"{path}: {counted}", remedy)


def _ranges(numbers: np.ndarray) -> str:
    """Row numbers as ranges: 2-10, 17."""
    parts = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    shown = [f"{p[0]}" if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts[:8]]
    return f"rows {', '.join(shown)}" + (f" and {len(parts) - 8} more places" if len(parts) > 8 else "")


def _refuse_jumps(
    path: pathlib.Path,
    q: np.ndarray,
    keep: np.ndarray,
    labels: Sequence[str],
    place: Callable[[int], str],
    otherwise: str = "",
) -> None:
    found = jumps(q, keep)
    if found:
        joint, row = min(found, key=lambda pair: pair[1])
        where = f"first at {place(row)}, column {labels[joint]!r}, which reaches {q[row, joint]:.6g} in one step"
        remedy = "Unwrap angles that jump by a full turn (numpy.unwrap)"
        raise log_error(f"{path}: {len(found)} jumps in position, {where}", remedy + otherwise)


def check_time(path: pathlib.Path, t: np.ndarray, place: Callable[[int], str]) -> list[str]:
    steps = np.diff(t)
    median = float(np.median(steps))
    if median > 0.5:
        remedy = "is the time in milliseconds or smaller units? Convert it to seconds"
        raise LogError(f"{path}: the median time step is {median:.6g} s, too long for a robot log; {remedy}")
    longest = int(np.argmax(steps))
    gaps = len(segments(t)) - 1
    if gaps == 0:
        return []
    return [
        f"gaps in time: {gaps} (steps longer than {GAP:g} times the median of {median:.6g} s); "
        f"the longest, {steps[longest]:.6g} s, follows {place(longest)}"
    ]


def _torques(
    path: pathlib.Path, blocks: dict[str, np.ndarray], gains: Sequence[float] | np.ndarray | None, notes: list[str]
) -> np.ndarray:
    n = blocks["q"].shape[1]
    if "i" not in blocks and "tau" not in blocks:
        notes.append("the log has commands, but no torques: identify_from_commands can use it")
        return np.full_like(blocks["q"], np.nan)
    if gains is None:
        if "i" in blocks:
            remedy = "specify {gains}, one per joint [N m/A], for tau = gain x current"
            raise log_error(f"{path}: the log has motor currents, not torques", remedy)
        return blocks["tau"]
    factors = np.asarray(gains, dtype=np.float64)
    if factors.shape != (n,) or not np.isfinite(factors).all() or (factors == 0).any():
        raise LogError(f"{path}: gains must be {n} finite numbers other than zero, one per joint, not {gains}")
    listed = ", ".join(f"{g:g}" for g in factors)
    notes.append(f"tau = {'gain x current' if 'i' in blocks else 'factor x logged torque'} with {listed}")
    return (blocks["i"] if "i" in blocks else blocks["tau"]) * factors


def _check_variance(path: pathlib.Path, q: np.ndarray, tau: np.ndarray, kinds: dict[str, list[str]]) -> list[str]:
    if (np.ptp(q, axis=0) == 0).all():
        reason = "nothing can be identified from a robot at rest"
        raise LogError(f"{path}: positions are constant ({', '.join(kinds['q'])}): {reason}")
    if np.isnan(tau).all():
        return []
    silent = np.ptp(tau, axis=0) == 0
    names = labels_of(kinds["tau" if "tau" in kinds else "i"], tau)
    if silent.all():
        raise LogError(f"{path}: torques are constant ({', '.join(names)}): were torques recorded?")
    constant = [name for name, flag in zip(names, silent, strict=True) if flag]
    return [f"columns {', '.join(constant)} are constant: was the torque recorded?"] if constant else []


def read_log_chunks(
    path: str | os.PathLike[str],
    rows: int = 100_000,
    joints: int | None = None,
    *,
    gains: Sequence[float] | Float[np.ndarray, " n"] | None = None,
) -> Iterator[Log]:
    """Read a log from a .csv (.tsv, .txt), .npz or .parquet file in parts of `rows` (at least 100) samples, each a `Log`.

    Only one part is in memory at a time. Columns, units, `joints`, `gains` and errors are those of `read_log`, but implausible
    rows cannot be dropped, and checks that require the entire log, for example whether any joint moves, are omitted.
    """
    path = pathlib.Path(path)
    if rows < 100:
        raise LogError(f"{path}: parts of {rows} samples are too short; use at least 100")
    if is_bag(path):
        raise LogError(f"{path}: a bag cannot be read in parts; read it with read_log")
    at, removed, start = 0, 0, None
    last = np.zeros((0, 0))  # the row before a part, with the time first
    with contextlib.closing(_parts(path, rows, gains is not None)) as parts:
        for part in parts:
            table = with_clock(part)
            kinds, _, notes = find_columns(path, table.names, gains is not None)
            arrays, bad = table.read([name for held in kinds.values() for name in held])
            _refuse_cells(path, lambda row, at=at: f"data row {at + row + 1}", bad)
            blocks = blocks_of(path, kinds, arrays)
            if start is None and blocks["t"].dtype.kind == "i":
                start = int(blocks["t"][0, 0])
            blocks["t"], counted = seconds_of(blocks["t"], start)
            heat, n = blocks.pop("temperature", None), blocks["q"].shape[1]
            _check_count(path, kinds["q"], n, joints)
            every = np.concatenate([blocks["t"], _values(blocks)], axis=1)
            last = last if len(last) else every[:0]
            new = ~repeats(np.concatenate([last, every]))[len(last) :]
            removed += int(np.count_nonzero(~new))
            if not new.any():
                at += len(new)
                continue
            notes += [*counted, *([repeated_note(removed)] if removed else [])]
            removed = 0
            blocks = {kind: block[new] for kind, block in blocks.items()}
            t, q, labels = blocks["t"][:, 0], blocks["q"], _labels(kinds, blocks)
            place = lambda row, at=at: f"row {at + row + 1}"
            if found := find_bad_rows(t, _values(blocks), labels, n):
                where = f"unusable rows among rows {at + 1} to {at + len(t)}"
                raise LogError(f"{path}: {where}: {_bad_rows(found[:1], (), place)[1]}", "repair the file")
            if len(last) and t[0] <= last[0, 0]:
                raise LogError(f"{path}: time does not increase at {place(0)}: {t[0]:.9g} s follows {last[0, 0]:.9g} s")
            _refuse_jumps(path, q, np.ones(len(t), bool), labels, place)
            tau = _torques(path, blocks, gains, notes)
            heat = None if heat is None else filled(t, heat[new])
            command = blocks.get("command")
            yield Log(t, q, blocks.get("qd"), tau, path.name, tuple(notes), temperature=heat, command=command)
            at, last = at + len(new), every[new][-1:]


def _parts(path: pathlib.Path, rows: int, currents: bool) -> Generator[Table]:
    """The parts of a file, with the columns that are used."""
    if checked_suffix(path) in TEXT_SUFFIXES:
        return text_parts(path, rows)
    whole = open_table(path)
    names = with_clock(whole).names
    used = {name for held in find_columns(path, names, currents)[0].values() for name in held}
    wanted = [old for old, new in zip(whole.names, names, strict=True) if new in used or old != new]
    return binary_parts(path, wanted, rows)


def write_log(path: str | os.PathLike[str], log: Log) -> None:
    """Write a log atomically as a CSV table that `read_log` can read."""
    there = log.columns
    header = ",".join(["t", *(f"{name}{j + 1}" for name in there for j in range(log.n))])
    text = io.StringIO()
    np.savetxt(text, np.column_stack([log.t, *there.values()]) + 0.0, "%.10g", ",", header=header, comments="")
    write_whole(path, text.getvalue(), OutputError)


@dataclasses.dataclass(frozen=True, eq=False)
class Motion:
    """A sampled motion of a robot; q contains quaternions of spherical and free joints; tau, qd and qdd may be unknown."""

    t: Float[np.ndarray, " N"]
    q: Float[np.ndarray, "N nq"]
    tau: Float[np.ndarray, "N nv"] | None = None
    source: str = "memory"
    qd: Float[np.ndarray, "N nv"] | None = None
    qdd: Float[np.ndarray, "N nv"] | None = None

    def __len__(self) -> int:
        return len(self.t)


def read_motion(
    path: Paths,
    chain: Chain,
    *,
    columns: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    topic: str | None = None,
) -> Motion:
    """Read a motion of a robot from a .csv (.tsv, .txt), .npz or .parquet file, or from a ROS bag.

    The following columns are read, in any order; others are ignored:

    - Time [s]: `t`, `time`, `timestamp` or `stamp`, or the dates and pairs of columns that `read_log` accepts.
    - Positions [rad or m]: `NAME` or `q_NAME` for every joint, or `q1` to `qN` (also `pos1`, `position1`) in the order of
      `q`. If a joint has a quaternion, only the numbered form is accepted.
    - Torques [N m or N], optional: `tau_NAME` for every joint, or `tau1` to `tauN` (also `torque1`, `effort1`).
    - Velocities [rad/s or m/s], optional: `qd_NAME`, or `qd1` to `qdN` (also `dq1`, `v1`, `vel1`, `velocity1`).
    - Accelerations [rad/s^2 or m/s^2], optional: `qdd_NAME`, or `qdd1` to `qddN` (also `ddq1`, `acc1`, `acceleration1`).

    Instead of numbered columns, .npz and .parquet files may contain arrays `q`, `tau`, `qd` and `qdd`. In contrast to
    `read_log`, torques are optional, and joints at rest, short files and planned motions are accepted. `path`, `columns` and
    `topic` are as for `read_log`.

    Raises:
        LogError: the file cannot be read, time or positions are missing or not finite, the number of position or torque
            columns does not match the robot, or time does not increase.
    """
    files, path = files_of(path)
    given = None if columns is None else read_column_map(columns)
    table = open_log(files, coordinate_names(chain), given, topic, torques=False)
    if table.kinds is None:
        kinds = _motion_columns(path, table, chain)
    else:
        kinds = {kind: table.kinds.get(kind, []) for kind in ("t", "q", *_OF_MOTIONS)}
    time, positions = kinds["t"], kinds["q"]
    arrays, bad = table.read([name for names in kinds.values() for name in names])
    _refuse_cells(path, table.line, bad)
    t = seconds_of(arrays[time[0]].reshape(-1))[0]
    if single := [name for name, array in arrays.items() if array.ndim == 0]:
        raise LogError(f"{path}: {single[0]!r} is a single number; one row per sample is expected")
    q = _block(path, arrays, positions, len(t), chain.nq, "positions")
    others = {
        kind: _block(path, arrays, kinds[kind], len(t), chain.nv, what)
        for kind, what in _OF_MOTIONS.items()
        if kinds[kind]
    }
    rows = np.flatnonzero(~repeats(np.hstack([t[:, None], q, *others.values()])))
    t, q, others = t[rows], q[rows], {kind: block[rows] for kind, block in others.items()}
    _check_motion(path, lambda row: table.line(int(rows[row])), t, q)
    return Motion(t, q, source="+".join(file.name for file in files), **others)


_OF_MOTIONS = {"tau": "torques", "qd": "velocities", "qdd": "accelerations"}  # besides positions
_NAMES = ALIASES | {"qdd": ("qdd", "ddq", "acc", "acceleration")}


def _motion_columns(path: pathlib.Path, table: Table, chain: Chain) -> dict[str, list[str]]:
    """Find the names of the columns of time, positions and, if present, of `_OF_MOTIONS`."""
    time = clock_columns(table.names)
    positions = _find(table.names, "q", chain.nq, coordinate_names(chain) if chain.nq == chain.nv else ())
    others = {kind: _find(table.names, kind, chain.nv, coordinate_names(chain)) for kind in _OF_MOTIONS}
    if not positions and chain.nq == chain.nv:
        named = named_columns(path, table.names, coordinate_names(chain))
        positions, others = named.get("q", []), {kind: x or named.get(kind, []) for kind, x in others.items()}
    if not others["tau"] and (some := _named(table.names, "tau")[1]):
        fault = f"the torque columns are {', '.join(some.values())}, but this robot needs {chain.nv}"
        raise log_error(f"{path}: {fault}; complete or remove them", LOCK_THEM)
    if len(time) != 1:
        fault = f"{len(time)} columns {_CALLED}; one is needed; {_there(table)}"
        raise log_error(f"{path}: {fault}", "Specify it in a column map (docs/logs.md): {columns}")
    if not positions:
        names = f"{', '.join(coordinate_names(chain)[:8])}, or " if chain.nq == chain.nv else ""
        called = f"which must be called {names}q1 .. q{chain.nq}"
        fault = f"the columns do not match the {chain.nq} positions of this robot, {called}; {_there(table)}"
        raise log_error(f"{path}: {fault}", f"{IN_A_MAP}. {LOCK_THEM}")
    return {"t": time, "q": positions, **others}


def _find(names: Sequence[str], kind: str, count: int, joints: Sequence[str]) -> list[str]:
    """Find the columns of one quantity, in order; empty if any column is missing."""
    for form in ("{}", "q_{}") if kind == "q" else (f"{kind}_{{}}",):
        wanted = [form.format(joint) for joint in joints]
        if wanted and set(wanted) <= set(names):
            return wanted
    whole, numbered = _named(names, kind)
    first = 0 if 0 in numbered else 1
    if set(numbered) == set(range(first, first + count)):
        return [numbered[k] for k in sorted(numbered)]
    return whole if len(whole) == 1 and not numbered else []


def _named(names: Sequence[str], kind: str) -> tuple[list[str], dict[int, str]]:
    """The columns of one quantity without a number, and with one."""
    stems = [(name, number) for name in names for stem, number in [stem_of(name)] if stem in _NAMES[kind]]
    return [name for name, k in stems if k is None], {k: name for name, k in stems if k is not None}


def _block(
    path: pathlib.Path, arrays: Mapping[str, np.ndarray], names: Sequence[str], rows: int, count: int, what: str
) -> Float[np.ndarray, "N k"]:
    parts = [arrays[name] for name in names]
    if any(len(part) != rows for part in parts):
        raise LogError(f"{path}: {rows} time stamps, but {len(parts[0])} rows of {what}")
    block = np.concatenate([part.reshape(rows, -1) for part in parts], axis=1)
    if block.shape[1] != count:
        raise LogError(f"{path}: {block.shape[1]} columns of {what}, but this robot has {count}")
    return block


def _check_motion(path: pathlib.Path, place: Callable[[int], str], t: np.ndarray, q: np.ndarray) -> None:
    if len(t) < 2:
        raise LogError(f"{path}: a motion needs at least two rows, but this one has {len(t)}")
    lost = np.flatnonzero(~(np.isfinite(t) & np.isfinite(q).all(1)))
    if len(lost):
        raise LogError(f"{path}: {place(int(lost[0]))} contains a time or position that is not finite")
    back = np.flatnonzero(np.diff(t) <= 0)
    if len(back):
        where = place(int(back[0]) + 1)
        raise LogError(f"{path}: time does not increase at {where}", "sort the rows, and keep one row per time stamp")

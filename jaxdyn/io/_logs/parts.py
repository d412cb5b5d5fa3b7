"""Read a log as one table. Several files of one run are concatenated, or joined by their time stamps."""

import dataclasses
import pathlib
from collections.abc import Sequence

import numpy as np

from ...errors import LogError
from .bags import is_bag, open_bag
from .column_map import CLOCK, ColumnMap, with_combined_clock, with_map
from .columns import clock_columns, with_clock
from .rows import GAP
from .table import BadCell, Table, open_table


def open_log(
    paths: Sequence[pathlib.Path],
    joint_names: Sequence[str] | None,
    given: ColumnMap | None,
    topic: str | None,
    *,
    torques: bool = True,
) -> Table:
    """Open the files of one run as one table, with columns assigned by the column map `given`, if any.

    Args:
        torques: require torques.

    Raises:
        LogError: see `read_log`.
    """
    bags = [is_bag(path) for path in paths]
    if any(bags) and not all(bags):
        raise LogError(
            f"{paths[bags.index(True)]}: this is a bag, but {paths[bags.index(False)]} is not; convert one of the two"
        )
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
    return _side_by_side(
        paths, tables, [_clock(path, table, given) for path, table in zip(paths, tables, strict=True)]
    ), given


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
        after = np.clip(np.searchsorted(t, times[0], "left"), 1, len(t) - 1)
        steps = np.diff(t)
        bridged = (steps[after - 1] <= GAP * np.median(steps)) | np.isin(times[0], t)
        keep &= (times[0] >= t[0]) & (times[0] <= t[-1]) & bridged
    rows = np.flatnonzero(keep)
    if len(rows) < 2:
        raise LogError(f"{paths[0]}: the files of this run do not overlap in time with {paths[1]}")

    def read(wanted: Sequence[str]) -> tuple[dict[str, np.ndarray], list[BadCell]]:
        arrays, cells = {}, []
        for k, (table, t) in enumerate(zip(tables, times, strict=True)):
            here = [name for name in wanted if owner[name] == k]
            own, bad = table.read(here) if here else ({}, [])
            if k == 0:
                places = {int(row): place for place, row in enumerate(rows)}
                cells += [(places[row], column, text) for row, column, text in bad if row in places]
                arrays |= {name: array[rows] for name, array in own.items()}
                continue
            if bad:
                row, column, text = bad[0]
                raise LogError(f"{paths[k]}: {table.line(row)}, column {column!r}: {text}")
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


def _clock(path: pathlib.Path, table: Table, given: ColumnMap | None) -> str:
    """Find the time column: the column specified in the column map, or the one with a standard name."""
    named = given.kinds.get("t", {}).get("column") if given else None
    if isinstance(named, int) and 1 <= named <= len(table.names):
        named = table.names[named - 1]
    if named in table.names:
        return str(named)
    found = clock_columns(table.names)
    if len(found) != 1:
        raise LogError(
            f"{path}: {len(found)} columns are called t, time, timestamp or stamp; each file of a run needs exactly one, "
            f"because files are joined by time; the columns are {', '.join(table.names[:40])}"
        )
    return found[0]


def _stamps(path: pathlib.Path, table: Table, clock: str) -> np.ndarray:
    """Read the time stamps by which tables are joined.

    Raises:
        LogError: fewer than two stamps, or stamps that are not finite or do not increase.
    """
    arrays, bad = table.read([clock])
    t = arrays[clock].reshape(-1)
    if bad or not np.isfinite(t).all():
        row = bad[0][0] if bad else int(np.flatnonzero(~np.isfinite(t))[0])
        raise LogError(
            f"{path}: {table.line(row)}, column {clock!r}: files are joined by time stamps, but this value is not a "
            "finite number"
        )
    back = np.flatnonzero(np.diff(t) <= 0)
    if len(t) < 2 or len(back):
        where = f" at {table.line(int(back[0]) + 1)}" if len(back) else ""
        raise LogError(f"{path}: time does not increase{where}; the files of a run are joined by time")
    return t

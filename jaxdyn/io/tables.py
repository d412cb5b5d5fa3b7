"""Tables of numbers in files: text with a header line, NumPy archives and Parquet, accessed by column names.

Also what can be seen in the numbers of a log alone: unusable rows, gaps in time, and units that are not radians or metres.
"""

import bisect
import contextlib
import dataclasses
import datetime
import itertools
import math
import os
import pathlib
import re
import zipfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from ..errors import LogError

# remedies of many messages
IN_A_MAP = "If the columns have other names, list them in a column map (docs/logs.md): {columns}"
LOCK_THEM = "If joints are missing because they do not move, load the model with them locked: {lock}"
# arguments that remedies recommend, with examples of their values
_EXAMPLES = {"columns": "'map.toml'", "lock": "{'JOINT': POSITION, ..}", "rows": "(first, last)", "topic": "'/name'"}
_EXAMPLES |= {"gains": "[..]", "on_bad_rows": "'drop'", "units_checked": "True to read_log", "allow_still": "True"}
STILL = 1e-3  # minimum span of a moving joint [rad or m]; minimum RMS speed to estimate a velocity scale [rad/s or m/s]
LARGE = 4 * np.pi  # positions above this are suspicious, unless the joint's limits allow them [rad]


def log_error(fault: str, remedy: str) -> LogError:
    """A `LogError` whose remedy names arguments as {name}, which are shown with examples of their values."""
    return LogError(fault, remedy, **{name: x for name, x in _EXAMPLES.items() if f"{{{name}}}" in remedy})


def smooth_speed(t: Float[np.ndarray, " N"], q: Float[np.ndarray, "N n"]) -> Float[np.ndarray, "N n"]:
    """Joint velocities from position differences over about 50 ms. They are coarse, but insensitive to sample noise."""
    half = min(max(1, round(0.025 / float(np.median(np.diff(t))))), (len(t) - 1) // 2)
    index = np.arange(len(t))
    after, before = np.minimum(index + half, len(t) - 1), np.maximum(index - half, 0)
    return (q[after] - q[before]) / (t[after] - t[before])[:, None]


def velocity_scale(qd: Float[np.ndarray, "N n"], speed: Float[np.ndarray, "N n"]) -> Float[np.ndarray, " n"]:
    """Least-squares factor s in qd = s dq/dt for each joint; NaN for a joint that does not move."""
    power = (speed**2).sum(axis=0)
    moves = np.sqrt(power / len(speed)) > STILL
    return np.where(moves, (qd * speed).sum(axis=0) / np.where(moves, power, 1.0), np.nan)


def looks_like_degrees(
    q: Float[np.ndarray, " N"],
    limits: Float[np.ndarray, "2"],
    speed: Float[np.ndarray, " N"],
    fastest: float,
    scale: float,
) -> str:
    """Explain why a joint's values look like degrees. The text is empty if they do not."""
    largest = np.abs(q).max()
    reach = np.abs(limits).max()
    if largest > LARGE and not (np.isfinite(reach) and reach >= largest):
        return f"|q| reaches {largest:.4g}" + (f", but the limits only {reach:.4g}" if np.isfinite(reach) else "")
    beyond = ((q < limits[0] - 0.1) | (q > limits[1] + 0.1)).mean()
    radians = np.radians(q)
    if beyond > 0.5 and ((radians >= limits[0] - 0.1) & (radians <= limits[1] + 0.1)).all():
        return f"{100 * beyond:.0f} % of the positions are beyond the limits {limits[0]:.4g} .. {limits[1]:.4g}"
    typical = float(np.percentile(np.abs(speed), 90))
    if typical > 3 * fastest >= 3 * np.radians(typical):
        return f"the joint moves faster than {typical:.4g} for a tenth of the time, but its velocity limit is {fastest:.4g}"
    for factor in (180 / np.pi, np.pi / 180):
        if 0.8 < scale / factor < 1.25:
            return f"the logged velocity is {scale:.4g} times the derivative of the logged position"
    return ""


ABSURD = 1e6  # maximum plausible magnitude of positions, velocities, torques and currents, in SI units
GAP = 5.0  # a time step longer than this multiple of the median step is a gap


@dataclasses.dataclass(frozen=True, eq=False)
class BadRows:
    """Rows with the same fault: their indices from 0, a description, and the column and value of the first occurrence."""

    rows: Int[np.ndarray, " k"]
    what: str
    column: str
    value: float


def find_bad_rows(
    t: Float[np.ndarray, " N"],
    values: Float[np.ndarray, "N m"],
    labels: Sequence[str],
    positions: int,
    clock: str = "t",
) -> list[BadRows]:
    """Find implausible rows, grouped by fault; the first `positions` columns of `values`, called `labels`, are positions."""
    found: list[BadRows] = []
    everything = np.column_stack([t, values])
    names = [clock, *labels]
    alive = np.ones(len(t), bool)

    def note(cells: Bool[np.ndarray, "N m1"], what: str) -> None:
        cells = cells & alive[:, None]
        rows = np.flatnonzero(cells.any(axis=1))
        if len(rows):
            column = int(np.argmax(cells[rows[0]]))
            found.append(BadRows(rows, what, names[column], float(everything[rows[0], column])))
            alive[rows] = False

    def note_times(rows: np.ndarray, what: str) -> None:
        note(rows[:, None] & (np.arange(everything.shape[1]) == 0), what)

    note(~np.isfinite(everything), "with NaN or infinite numbers")
    with np.errstate(invalid="ignore"):
        large = np.abs(everything) > ABSURD
    large[:, 0] = False
    note(large, f"with numbers beyond {ABSURD:.0e}")
    if alive.sum() < 3:
        return found
    low, middle, high = np.percentile(t[alive], [25, 50, 75])
    far = alive & (np.abs(t - middle) > 10 * (high - low))
    if far.sum() <= max(10, len(t) // 100):
        note_times(far, "with time stamps far from all the others")
    kept = np.flatnonzero(alive)
    steps = np.diff(t[kept])
    if (steps <= 0).any():
        back, same = int((steps < 0).sum()), int((steps == 0).sum())
        out = np.zeros(len(t), bool)
        out[np.delete(kept, _longest_increasing(t[kept]))] = True
        note_times(out, f"at which time does not increase ({back} steps back, {same} repeated stamps)")
    for joint, row in jumps(values[:, :positions], alive, there_and_back=True):
        cells = np.zeros(everything.shape, bool)
        cells[row, 1 + joint] = True
        note(cells, "at which a position jumps away and back")
    return found


def repeats(rows: Float[np.ndarray, "N m"]) -> Bool[np.ndarray, " N"]:
    """Rows that repeat an earlier row exactly, as loggers write that run faster than their source; the first column is time."""
    again = np.zeros(len(rows), bool)
    if not (np.diff(rows[:, 0]) > 0).all():
        whole = np.ascontiguousarray(rows + 0.0).view(f"V{rows.itemsize * rows.shape[1]}")[:, 0]  # -0 becomes 0
        again[:] = True
        again[np.unique(whole, return_index=True)[1]] = False
    return again


def repeated_note(count: int) -> str:
    return f"{count} rows removed that repeat an earlier row exactly, with its time stamp"


def jumps(
    q: Float[np.ndarray, "N n"], alive: Bool[np.ndarray, " N"], there_and_back: bool = False
) -> list[tuple[int, int]]:
    """Find the pairs (joint, row) at which a position jumps. With `there_and_back`, it must jump again on the next step."""
    kept = np.flatnonzero(alive)
    if len(kept) < 3:
        return []
    steps = np.abs(np.diff(q[kept], axis=0))
    rank = max(0, len(steps) - 1 - max(5, len(steps) // 100))
    jump = steps > np.maximum(3.0, 20 * np.partition(steps, rank, axis=0)[rank])
    row, joint = np.nonzero(jump[:-1] & jump[1:] if there_and_back else jump)
    return [(int(j), int(kept[k + 1])) for k, j in zip(row, joint, strict=True)]


def _longest_increasing(t: Float[np.ndarray, " N"]) -> list[int]:
    """Indices of a longest strictly increasing subsequence, by patience sorting, O(N log N)."""
    tails: list[float] = []
    owners: list[int] = []
    before = [-1] * len(t)
    for k, value in enumerate(t.tolist()):
        place = bisect.bisect_left(tails, value)
        before[k] = owners[place - 1] if place else -1
        tails[place : place + 1], owners[place : place + 1] = [value], [k]
    chain = owners[-1:]
    while chain and before[chain[-1]] >= 0:
        chain.append(before[chain[-1]])
    return chain[::-1]


def within(t: Float[np.ndarray, " N"], x: Float[np.ndarray, " M"]) -> Bool[np.ndarray, " N"]:
    """Which times are covered by a signal with increasing stamps x: inside its span, and exactly on a stamp or not in a gap."""
    steps = np.diff(x)
    after = np.clip(np.searchsorted(x, t, "left"), 1, len(x) - 1)
    bridged = (steps[after - 1] <= GAP * np.median(steps)) | np.isin(t, x)
    return (t >= x[0]) & (t <= x[-1]) & bridged


def segments(t: Float[np.ndarray, " N"], gap: float | None = None) -> tuple[tuple[int, int], ...]:
    """Split a log at gaps in time into pieces, and return them as row ranges (start, stop), with stop excluded."""
    steps = np.diff(t)
    limit = GAP * float(np.median(steps)) if gap is None else gap
    cuts = [0, *(np.flatnonzero(steps > limit) + 1).tolist(), len(t)]
    return tuple(itertools.pairwise(cuts))


TEXT_SUFFIXES = (".csv", ".tsv", ".txt")

BadCell = tuple[int, str, str]  # row index from 0, column, fault

NO_TIME = np.iinfo(np.int64).min  # an unknown stamp [ns]; also NumPy's NaT
_DATE = r"(?:(?P<year>\d{4})(?P<mark>[-/.])(?P<month>\d\d?)(?P=mark)(?P<day>\d\d?)|(?P<d>\d\d?)\.(?P<m>\d\d?)\.(?P<y>\d{4}))"
_CLOCK = r"(?P<hour>\d\d?):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<fraction>\d+))?"
_ZONE = r"\s*(?:Z|UTC|(?P<zone>[+-])(?P<hours>\d\d):?(?P<minutes>\d\d)?)?"
_STAMP = re.compile(f"(?:{_DATE})?(?:(?:^|(?<=\\d)T|(?<=\\d) +){_CLOCK}{_ZONE})?$", re.ASCII)


@dataclasses.dataclass(frozen=True, eq=False)
class Table:
    """An open table with known column names; numbers are read on demand."""

    names: tuple[str, ...]  # in the order of the file
    read: Callable[[Sequence[str]], tuple[dict[str, np.ndarray], list[BadCell]]]  # bad cells are NaN; dates are in ns
    line: Callable[[int], str]  # place in the file of a row, for messages
    notes: tuple[str, ...] = ()
    kinds: dict[str, list[str]] | None = None  # columns of each quantity, in joint order, if known


@dataclasses.dataclass(frozen=True)
class TextForm:
    """The layout of a text file."""

    separator: str | None = None  # " " stands for any number of blanks; detected if None
    decimal: str = "."  # commas are also detected if semicolons or tabs separate the columns
    skip_lines: int = 0
    header: bool | None = True  # detected if None; without one, columns are called column 1, column 2, ...


def row_name(row: int) -> str:
    return f"row {row + 1}"


def in_memory(columns: Mapping[str, np.ndarray], line: Callable[[int], str] = row_name, **rest: Any) -> Table:
    """A table of arrays."""
    return Table(tuple(columns), lambda wanted: ({name: columns[name] for name in wanted}, []), line, **rest)


def open_table(path: pathlib.Path, form: TextForm | None = None) -> Table:
    """Open a .csv, .tsv, .txt, .npz or .parquet file."""
    suffix = checked_suffix(path)
    return _open_text(path, form or TextForm()) if suffix in TEXT_SUFFIXES else _BINARY[suffix][0](path)


def binary_parts(path: pathlib.Path, wanted: Sequence[str], rows: int) -> Generator[Table]:
    """Read columns of a .npz or .parquet file in parts."""
    yield from map(in_memory, _BINARY[checked_suffix(path)][1](path, wanted, rows))


def checked_suffix(path: pathlib.Path) -> str:
    """Check that a log file exists, is supported and is not empty, and return its suffix in lower case."""
    suffix = path.suffix.lower()
    known = *TEXT_SUFFIXES, *_BINARY
    if suffix not in known:
        raise LogError(f"{path}: a log is a {', '.join(known)} file, not {suffix or 'one without a suffix'!r}")
    if not os.path.isfile(path):  # unlike pathlib, accepts any path
        raise LogError(f"{path}: there is no such file")
    if path.stat().st_size == 0:
        raise LogError(f"{path}: the file is empty")
    return suffix


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return cell.isascii() and "_" not in cell  # Python also accepts other digits and underscores; NumPy does not


def stamp_of(cell: str) -> int | None:
    """Nanoseconds since 1970 of a date and time (ISO 8601, or day.month.year), or since midnight of a time of day."""
    match = _STAMP.match(cell) if cell else None
    if match is None:
        return None
    part = match.groupdict()
    number = lambda *names: next((int(part[name]) for name in names if part[name] is not None), 0)
    days = 0
    if part["year"] or part["y"]:
        try:
            days = datetime.date(number("year", "y"), number("month", "m"), number("day", "d")).toordinal() - _EPOCH
        except ValueError:
            return None
    shift = (60 * number("hours") + number("minutes")) * (-1 if part["zone"] == "-" else 1)
    seconds = 86400 * days + 3600 * number("hour") + 60 * (number("minute") - shift) + number("second")
    return 10**9 * seconds + int(f"{part['fraction'] or '':0<9}"[:9])


_EPOCH = datetime.date(1970, 1, 1).toordinal()


def _has_cells(line: str) -> bool:
    text = line.lstrip()
    return text != "" and text[0] != "#"


def _begins_with_number(line: str, delimiter: str | None) -> bool:
    """True if a line is a row of numbers (or times) instead of names."""
    cell = _cells(line, delimiter)[0]
    return _is_number(cell) or stamp_of(cell) is not None


def _cells(line: str, delimiter: str | None) -> list[str]:
    return [cell.strip().strip("\"'").strip() for cell in line.split(delimiter)]


def _delimiter(header: str) -> str | None:
    return next((mark for mark in (";", "\t", ",") if mark in header), None)


def _open_text(path: pathlib.Path, form: TextForm) -> Table:
    raw = path.read_bytes()
    wide = raw[:2] in (b"\xff\xfe", b"\xfe\xff")
    try:
        return text_table(path, raw.decode("utf-16") if wide else raw.decode("utf-8-sig", errors="replace"), form)
    except UnicodeDecodeError as error:
        fault = "the file begins with the byte-order mark of UTF-16, but cannot be decoded"
        raise LogError(f"{path}: {fault}: {error}; was it truncated?") from None


def text_parts(path: pathlib.Path, rows: int) -> Generator[Table]:
    """Read a text file in parts. The lines above the first row of numbers are repeated at the start of each part."""
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        head: list[str] = []
        for line in file:
            if _has_cells(line):
                break
            head.append(line)
        else:
            raise LogError(f"{path}: the file contains no data")
        numbers = _begins_with_number(line, _delimiter(line))
        head += [] if numbers else [line]
        body = itertools.chain([line] if numbers else [], file)
        while lines := list(itertools.islice(body, rows)):
            yield text_table(path, "".join([*head, *lines]))


def text_table(path: pathlib.Path, text: str, form: TextForm = TextForm()) -> Table:
    """Create a table from the text of a file, or from part of the text preceded by the header lines of the file."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    filled = [k for k, line in enumerate(lines) if k >= form.skip_lines and _has_cells(line)]
    if not filled:
        raise LogError(f"{path}: the file contains no data")
    notes: tuple[str, ...] = ()
    first = filled[0]
    blank = form.separator is not None and form.separator.isspace() and form.separator != "\t"
    delimiter = _delimiter(lines[first]) if form.separator is None else None if blank else form.separator
    header = form.header if form.header is not None else not _begins_with_number(lines[first], _delimiter(lines[first]))
    if not header:
        names = [f"column {k + 1}" for k in range(len(_cells(lines[first].strip(), delimiter)))]
    elif _begins_with_number(lines[first], delimiter):
        comments = [k for k in range(first) if lines[k].lstrip().startswith("#")]
        comment = lines[comments[-1]].lstrip().lstrip("#") if comments else ""
        names = _cells(comment.strip(), delimiter)
        if len(names) != len(_cells(lines[first], delimiter)) or any(_is_number(name) for name in names):
            raise log_error(
                f"{path}: line {first + 1} contains numbers instead of the header",
                "add a first line with column names, such as t,q1,q2,tau1,tau2, or give the columns by number in a column map "
                "(docs/logs.md): {columns}",
            )
        notes = (f"column names taken from the comment in line {comments[-1] + 1}",)
    else:
        names, filled = _cells(lines[first].strip(), delimiter), filled[1:]
    if not filled:
        raise LogError(f"{path}: there is a header line, but no data below it")
    body = [lines[k] for k in filled]
    if delimiter != "," and (form.decimal == "," or (delimiter in (";", "\t") and "," in body[0])):
        body = [line.replace(",", ".") for line in body]
        notes += ("decimal commas read as points",)

    def read(wanted: Sequence[str]) -> tuple[dict[str, np.ndarray], list[BadCell]]:
        columns = [names.index(name) if name in names else int(name.removeprefix("column ")) - 1 for name in wanted]
        bad = _wrong_widths(body, delimiter, len(names), wanted)
        left_out = {row for row, _, _ in bad}
        sample = next((line for row, line in enumerate(body) if row not in left_out), "")
        cells = _cells(sample.partition("#")[0], delimiter)
        out: dict[str, np.ndarray] = {}
        for name, column in zip(wanted, columns, strict=True):
            if column < len(cells) and stamp_of(cells[column]) is not None:
                stamps, lost = _by_cell(body, delimiter, [column], [name], left_out, times=True)
                out[name], bad = stamps[:, 0], bad + lost
        rest = [name for name in wanted if name not in out]
        places = [column for name, column in zip(wanted, columns, strict=True) if name not in out]
        values = None
        if not left_out and rest:
            with contextlib.suppress(ValueError):
                values = np.loadtxt(body, delimiter=delimiter, usecols=places, ndmin=2, comments="#")
        if values is None:
            values, lost = _by_cell(body, delimiter, places, rest, left_out, times=False)
            bad += lost
        out |= dict(zip(rest, values.T, strict=True))
        return {name: out[name] for name in wanted}, bad

    return Table(tuple(names), read, lambda row: f"row {row + 1} (line {filled[row] + 1})", notes)


def _wrong_widths(body: list[str], delimiter: str | None, width: int, wanted: Sequence[str]) -> list[BadCell]:
    """Find rows whose number of cells differs from the number of columns, so that cells cannot be assigned to columns."""
    bad = []
    for row, line in enumerate(body):
        text = line.partition("#")[0] if "#" in line else line
        count = len(text.split()) if delimiter is None else text.count(delimiter) + 1
        if count == width or (count > width and not any(_cells(text, delimiter)[width:])):
            continue
        bad += [(row, name, f"the row has {count} cells, not {width}") for name in wanted]
    return bad


def _by_cell(
    body: list[str], delimiter: str | None, columns: list[int], names: Sequence[str], left_out: set[int], times: bool
) -> tuple[np.ndarray, list[BadCell]]:
    """Read columns of numbers (or of dates or times of day) cell by cell, and list the cells that are none."""
    values = np.full((len(body), len(columns)), NO_TIME if times else np.nan)
    bad: list[BadCell] = []
    for row, line in enumerate(body):
        if row in left_out:
            continue
        cells = _cells(line.partition("#")[0], delimiter)
        for k, column in enumerate(columns):
            cell = cells[column]
            found = stamp_of(cell) if times else float(cell) if _is_number(cell) else None
            if found is None:
                bad.append((row, names[k], f"not a {'time' if times else 'number'}: {cell!r}"))
            else:
                values[row, k] = found
    return values, bad


def _numeric(path: pathlib.Path, name: str, array: np.ndarray) -> np.ndarray:
    """Return an array as float64, or as int64 in nanoseconds if it contains times."""
    if array.dtype.kind in "mM":
        return array.astype(f"{array.dtype.kind}8[ns]").view(np.int64)
    if array.dtype.kind in "OU" and array.ndim == 1 and len(array):  # texts
        stamps = [stamp_of(cell) if isinstance(cell, str) else None for cell in array.tolist()]
        if stamps[0] is not None:
            return np.array([NO_TIME if x is None else x for x in stamps])
    if array.dtype.kind not in "fiu":
        raise LogError(f"{path}: column {name!r} contains {array.dtype}, not numbers")
    return array.astype(np.float64)


@contextlib.contextmanager
def _npz(path: pathlib.Path) -> Iterator[zipfile.ZipFile]:
    """A NumPy archive."""
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            yield archive
    except LogError:
        raise
    except Exception as error:  # on damaged bytes, zipfile, zlib and NumPy raise all kinds of exceptions
        raise LogError(f"{path}: this is not a NumPy archive, or it is damaged: {error}") from error


def _open_npz(path: pathlib.Path) -> Table:
    with _npz(path) as archive:
        names = tuple(name.removesuffix(".npy") for name in archive.namelist())

    def read(wanted: Sequence[str]) -> tuple[dict[str, np.ndarray], list[BadCell]]:
        arrays = {}
        with _npz(path) as archive:
            for name in wanted:
                try:
                    if f"{name}.npy" in archive.namelist():
                        with archive.open(f"{name}.npy") as member:
                            arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
                    else:
                        arrays[name] = np.asarray(archive.read(name))  # bytes, since the member is not an array
                except Exception as error:
                    why = (
                        "it contains objects, not numbers"
                        if "bject arrays" in str(error)
                        else f"it is damaged: {error}"
                    )
                    raise LogError(f"{path}: array {name!r} cannot be read: {why}") from error
        return {name: _numeric(path, name, array) for name, array in arrays.items()}, []

    return Table(names, read, row_name)


def _npz_parts(path: pathlib.Path, wanted: Sequence[str], rows: int) -> Generator[dict[str, np.ndarray]]:
    with _npz(path) as archive:
        members = {name: archive.open(f"{name}.npy") for name in wanted}
        shapes = {}
        for name, member in members.items():
            first = np.lib.format.read_magic(member) == (1, 0)
            read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
            shape, by_columns, dtype = read(member)
            if by_columns and len(shape) > 1:
                remedy = f"save numpy.ascontiguousarray({name})"
                raise LogError(f"{path}: {name!r} is stored in column-major order", remedy)
            if dtype.hasobject or not shape:
                raise LogError(f"{path}: array {name!r} of shape {shape} contains {dtype}, not columns of numbers")
            shapes[name] = shape, dtype
        for at in range(0, max(shape[0] for shape, _ in shapes.values()), rows):
            part = {}
            for name, (shape, dtype) in shapes.items():
                row = dtype.itemsize * math.prod(shape[1:])
                raw = members[name].read(max(min(rows, shape[0] - at), 0) * row)
                part[name] = _numeric(path, name, np.frombuffer(raw, dtype).reshape(-1, *shape[1:]))
            yield part


@contextlib.contextmanager
def _parquet(path: pathlib.Path) -> Iterator[Any]:
    """pyarrow's module for Parquet."""
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as error:
        remedy = "pip install 'jaxdyn[parquet]', or save the log as .csv or .npz"
        raise LogError(f"{path}: reading Parquet requires pyarrow, which is not installed: {remedy}") from error
    try:
        yield parquet
    except LogError:
        raise
    except (arrow.ArrowException, OSError, ValueError) as error:  # ValueError: column names that are not text
        raise LogError(f"{path}: this is not a Parquet file, or it is damaged: {error}") from error


def _open_parquet(path: pathlib.Path) -> Table:
    with _parquet(path) as parquet:
        names = tuple(parquet.read_schema(path).names)

    def read(wanted: Sequence[str]) -> tuple[dict[str, np.ndarray], list[BadCell]]:
        with _parquet(path) as parquet:
            table = parquet.read_table(path, columns=list(wanted))
            return {name: _parquet_column(path, name, table.column(name).combine_chunks()) for name in wanted}, []

    return Table(names, read, row_name)


def _parquet_parts(path: pathlib.Path, wanted: Sequence[str], rows: int) -> Generator[dict[str, np.ndarray]]:
    with _parquet(path) as parquet:
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=rows, columns=wanted):
            yield {name: _parquet_column(path, name, batch.column(name)) for name in wanted}


# other formats than text: functions that open a file, and that read it in parts
_BINARY = {".npz": (_open_npz, _npz_parts), ".parquet": (_open_parquet, _parquet_parts)}


def _parquet_column(path: pathlib.Path, name: str, column: Any) -> np.ndarray:
    """Convert a column to an array of numbers: (N,), or (N, k) if the column contains lists of k numbers."""
    if re.match("(fixed_size_|large_)?list", str(column.type)):
        from pyarrow import compute

        flat, lengths = column.flatten(), compute.list_value_length(column).unique()  # type: ignore[attr-defined]
        if column.null_count or len(lengths) != 1:
            raise LogError(f"{path}: the lists in column {name!r} have different lengths")
        return _numeric(path, name, flat.to_numpy(zero_copy_only=False)).reshape(len(column), -1)
    if re.match(r"time\d", str(column.type)):  # a time of day, which is not a timestamp
        column = column.cast("time64[ns]").cast("int64")
        return np.asarray(column.fill_null(NO_TIME).to_numpy(zero_copy_only=False))
    return _numeric(path, name, column.to_numpy(zero_copy_only=False))

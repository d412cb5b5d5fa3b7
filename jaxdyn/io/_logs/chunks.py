"""`read_log_chunks`: read a log in parts, for files larger than memory."""

import contextlib
import itertools
import os
import pathlib
import zipfile
from collections.abc import Generator, Iterator, Sequence

import numpy as np
from jaxtyping import Float

from ...errors import LogError
from .columns import blocks_of, find_columns, labels_of, seconds_of, with_clock
from .log import Log, filled
from .rows import find_bad_rows, jumps, repeated_note, repeats
from .table import TEXT_SUFFIXES, Table, begins_with_number, checked_suffix, open_table, parquet_column, text_table

Part = tuple[tuple[str, ...], dict[str, np.ndarray]]  # column names, and one array per name


def read_log_chunks(
    path: str | os.PathLike[str],
    rows: int = 100_000,
    joints: int | None = None,
    *,
    gains: Sequence[float] | Float[np.ndarray, " n"] | None = None,
) -> Iterator[Log]:
    """Read a log in parts of `rows` samples, each a `Log`, with only one part in memory at a time.

    Columns, units and `gains` are the same as for `read_log`. Text files are read line by line, Parquet files in batches,
    and the arrays of .npz archives (compressed or not) as streams.

    As in `read_log`, implausible rows, jumps, and time stamps that do not increase raise an error; here, they cannot be
    dropped. Checks that require the entire log, for example whether any joint moves, are omitted.

    Args:
        path: a .csv (.tsv, .txt), .npz or .parquet file.
        rows: samples per part; at least 100.
        joints: the required number of joints.
        gains: as for `read_log` [N m/A].

    Yields:
        The parts of the log in order.

    Raises:
        LogError: the log cannot be used. The message names the file, row and column. The causes are:

            - the file cannot be read, or columns are missing;
            - numbers are not finite or are implausible, or positions jump;
            - time does not increase;
            - the log has currents, but no gains are passed.
    """
    path = pathlib.Path(path)
    if rows < 100:
        raise LogError(f"{path}: parts of {rows} samples are too short; use at least 100")
    suffix = checked_suffix(path)
    parts = (
        _text(path, rows, gains is not None)
        if suffix in TEXT_SUFFIXES
        else _npz(path, rows)
        if suffix == ".npz"
        else _parquet(path, rows, gains is not None)
    )
    at, removed, last, start = 0, 0, np.zeros((0, 0)), None
    factors = None if gains is None else np.asarray(gains, np.float64)
    with contextlib.closing(parts):
        for names, arrays in parts:
            kinds, _, notes = find_columns(path, names, gains is not None)
            blocks = blocks_of(path, kinds, {name: arrays[name] for held in kinds.values() for name in held})
            if start is None and blocks["t"].dtype.kind == "i":
                start = int(blocks["t"][0, 0])
            blocks["t"], counted = seconds_of(blocks["t"], start)
            notes += counted
            heat, n = blocks.pop("temperature", None), blocks["q"].shape[1]
            if joints is not None and n != joints:
                raise LogError(f"{path}: the log has {n} joints, but the robot has {joints}")
            if "i" in blocks and (factors is None or factors.shape != (n,)):
                raise LogError(
                    f"{path}: the log has motor currents",
                    f"specify {{gains}}, one for each of the {n} joints [N m/A]",
                    gains="[..]",
                )
            every = np.concatenate([blocks["t"], *(block for kind, block in blocks.items() if kind != "t")], axis=1)
            last = last if len(last) else every[:0]
            new = ~repeats(np.concatenate([last, every]))[len(last) :]
            removed += int(np.count_nonzero(~new))
            if not new.any():
                at += len(new)
                continue
            if removed:
                notes.append(repeated_note(removed))
                removed = 0
            blocks = {kind: block[new] for kind, block in blocks.items()}
            heat = None if heat is None else heat[new]
            _check(path, kinds, blocks, at, last)
            tau = blocks["i"] if "i" in blocks else blocks["tau"]
            t, q, qd = blocks["t"][:, 0], blocks["q"], blocks.get("qd")
            heat = None if heat is None else filled(t, heat)
            tau = tau if factors is None else tau * factors
            yield Log(t, q, qd, tau, path.name, tuple(notes), temperature=heat)
            at, last = at + len(new), every[new][-1:]


def _check(
    path: pathlib.Path,
    kinds: dict[str, list[str]],
    blocks: dict[str, np.ndarray],
    at: int,
    last: np.ndarray,
) -> None:
    """Check a part of a log that starts at row `at`. `last` is the row before it, if any, with the time first."""
    n = blocks["q"].shape[1]
    labels = [label for kind in blocks if kind != "t" for label in labels_of(kinds[kind], blocks[kind])]
    t = blocks["t"][:, 0]
    values = np.concatenate([block for kind, block in blocks.items() if kind != "t"], axis=1)
    found = find_bad_rows(t, values, labels, n)
    if found:
        bad = found[0]
        raise LogError(
            f"{path}: unusable rows among rows {at + 1} to {at + len(t)}: {len(bad.rows)} {bad.what}, first at row "
            f"{at + int(bad.rows[0]) + 1}, column {bad.column!r} ({bad.value:.6g}). Repair the file"
        )
    if len(last) and t[0] <= last[0, 0]:
        raise LogError(f"{path}: time does not increase at row {at + 1}: {t[0]:.9g} s follows {last[0, 0]:.9g} s")
    for joint, row in jumps(values[:, :n], np.ones(len(t), bool)):
        raise LogError(
            f"{path}: the position jumps at row {at + row + 1}, column {labels[joint]!r}: unwrap angles that jump by a full "
            "turn (numpy.unwrap)"
        )


def _text(path: pathlib.Path, rows: int, currents: bool) -> Generator[Part]:
    """Read a text file in parts. The lines above the first row of numbers are repeated at the start of each part."""
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        head: list[str] = []
        for line in file:
            named = line.strip() and not line.lstrip().startswith("#")
            if named and begins_with_number(line):
                file_lines = itertools.chain([line], file)
                break
            head.append(line)
            if named:
                file_lines = file
                break
        else:
            raise LogError(f"{path}: the file contains no data")
        at = 0
        while lines := list(itertools.islice(file_lines, rows)):
            table = with_clock(text_table(path, "".join([*head, *lines])))
            arrays, bad = table.read(_used(path, table.names, currents))
            if bad:
                row, column, what = bad[0]
                raise LogError(f"{path}: data row {at + row + 1}, column {column!r}: {what}")
            yield table.names, arrays
            at += len(next(iter(arrays.values())))


def _used(path: pathlib.Path, names: Sequence[str], currents: bool) -> list[str]:
    return [name for held in find_columns(path, names, currents)[0].values() for name in held]


def _npz(path: pathlib.Path, rows: int) -> Generator[Part]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = {name.removesuffix(".npy"): archive.open(name) for name in archive.namelist()}
            shapes = {}
            for name, member in members.items():
                version = np.lib.format.read_magic(member)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, by_columns, dtype = read(member)
                if by_columns and len(shape) > 1:
                    raise LogError(
                        f"{path}: {name!r} is stored in column-major order: save numpy.ascontiguousarray({name}) instead"
                    )
                if dtype.kind not in "fiu" or not shape:
                    raise LogError(f"{path}: array {name!r} of shape {shape} contains {dtype}, not columns of numbers")
                shapes[name] = shape, dtype
            total = max(shape[0] for shape, _ in shapes.values())
            for at in range(0, total, rows):
                arrays = {}
                for name, (shape, dtype) in shapes.items():
                    count = min(rows, shape[0] - at)
                    width = int(np.prod(shape[1:], dtype=int))
                    raw = members[name].read(max(count, 0) * width * dtype.itemsize)
                    arrays[name] = np.frombuffer(raw, dtype).reshape(-1, *shape[1:]).astype(np.float64)
                yield tuple(arrays), arrays
    except LogError:
        raise
    except Exception as error:  # on damaged bytes, zipfile, zlib and NumPy raise all kinds of exceptions
        raise LogError(f"{path}: this is not a NumPy archive, or it is damaged: {error}") from error


def _parquet(path: pathlib.Path, rows: int, currents: bool) -> Generator[Part]:
    whole = open_table(path)  # raises if the file is damaged or pyarrow is not installed
    names = with_clock(whole).names
    used = _used(path, names, currents)
    wanted = [old for old, new in zip(whole.names, names, strict=True) if old in used or old != new]
    import pyarrow as arrow
    from pyarrow import parquet

    try:
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=rows, columns=wanted):
            arrays = {name: parquet_column(path, name, batch.column(name)) for name in wanted}
            part = with_clock(Table(tuple(wanted), lambda some, arrays=arrays: ({x: arrays[x] for x in some}, []), str))
            yield names, part.read(used)[0]
    except (arrow.ArrowException, OSError) as error:
        raise LogError(f"{path}: the file is damaged: {error}") from error

"""Damage to tables: cells, rows and columns of text; types, shapes and names of arrays; what a Parquet file can hold."""

import io
import random

import numpy as np

from .archives import damaged_archive, packed, unpacked
from .text import NAMES, NUMBERS, damaged_bytes, damaged_text, encoded

SEPARATORS = (",", ";", "\t", " ")
_CELLS = (*NUMBERS, "0.1#", '"0.5"', "'1'", "=1+1", "1;2", "1\t2", "-", "12:30:00", "2026-01-01T00:00:00Z", "0.1 rad")
_HEADS = (
    *NAMES,
    "q2",
    "q_3",
    "Q1",
    "tau3",
    "time",
    "qd1",
    "i1",
    "qm1",
    "1.5",
    "t,q1",
    "q01",
    "q99999999999",
    "q",
    "tau",
)


def damaged_csv(rng: random.Random, data: bytes, separator: str) -> bytes:
    """Text of a table with its cells, rows, columns, header, encoding or bytes damaged."""
    choice = rng.randrange(20)
    text = data.decode()
    if choice < 2:
        return damaged_bytes(rng, data)
    if choice < 4:
        return damaged_text(rng, text).encode()
    if choice < 6:
        return encoded(rng, text)
    rows = [line.split(separator) for line in text.rstrip("\n").split("\n")]
    for _ in range(rng.choice((1, 1, 2, 4))):
        _change_rows(rng, rows)
        if not rows:
            break
    out = "\n".join(separator.join(row) for row in rows) + "\n"
    return (encoded(rng, out) if choice == 6 else out.encode()) if rng.random() < 0.97 else out[:-4].encode()


def _change_rows(rng: random.Random, rows: list[list[str]]) -> None:
    at = rng.randrange(len(rows))
    row = rows[at]
    column = rng.randrange(len(row)) if row else 0
    match rng.randrange(14):
        case 0 if row:
            del row[column]
        case 1:
            row.insert(column, rng.choice((*_CELLS, "0.5", "0")))
        case 2:
            del rows[at]
        case 3:
            rows.insert(at, list(row))
        case 4:
            other = rng.randrange(len(rows))
            rows[at], rows[other] = rows[other], rows[at]
        case 5:
            rows.insert(at, rng.choice(([""], ["# a comment"], ["%"], [""] * len(row), ["  "], row[:1])))
        case 6 if rows[0]:
            rows[0][rng.randrange(len(rows[0]))] = rng.choice(_HEADS)
        case 7:  # a whole column
            value = rng.choice((None, *_CELLS))
            for other in rows[1:]:
                if column < len(other):
                    if value is None:
                        del other[column]
                    else:
                        other[column] = value
        case 8:
            del rows[0]
        case 9:
            del rows[max(1, at) :]
        case 10:
            row += [""] * rng.choice((1, 3))
        case 11 if row and at:  # exchanged with a neighbour
            other = rng.randrange(len(row))
            row[column], row[other] = row[other], row[column]
        case _:
            if row:
                row[column] = rng.choice(_CELLS)


def damaged_arrays(rng: random.Random, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Arrays of other types, shapes, orders and values, under other names, or gone."""
    out = dict(arrays)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if not out:
            break
        name = rng.choice(list(out))
        array = out[name]
        match rng.randrange(10):
            case 0:
                del out[name]
            case 1:
                out[rng.choice(_HEADS).replace("\x00", "")] = out.pop(name)
            case 2:
                out[name + rng.choice(("2", "_m", " ", ""))] = array[:-1] if array.ndim else array
            case 3 | 4:
                out[name] = _retyped(rng, array)
            case 5 | 6:
                out[name] = _reshaped(rng, array)
            case _:
                out[name] = _revalued(rng, array)
    return out


def _retyped(rng: random.Random, array: np.ndarray) -> np.ndarray:
    kind = rng.choice(
        ("?", "c16", "O", "S8", "U8", "M8[ns]", "m8[s]", "f2", "f4", "g", "i1", "u8", "i8", ">f8", "V8", "rec")
    )
    if kind == "rec":
        return np.zeros(array.shape, [("a", "f8"), ("b", "i4")])
    with np.errstate(all="ignore"):
        return array.view("V8") if kind == "V8" and array.dtype == np.float64 else _cast(array, kind)


def _cast(array: np.ndarray, kind: str) -> np.ndarray:
    try:
        return array.astype("i8").astype(kind) if kind[0] in "Mm" else array.astype(kind)
    except (TypeError, ValueError, RuntimeError):
        return array.astype("O")


def _reshaped(rng: random.Random, array: np.ndarray) -> np.ndarray:
    if not array.size:
        return np.zeros((3, 0))
    match rng.randrange(10):
        case 0:
            return array.reshape(-1)[0].copy()  # 0-d
        case 1:
            return array[:0] if array.ndim else array
        case 2:
            return array[..., None]
        case 3:
            return np.asfortranarray(array)
        case 4:
            return array.T
        case 5:
            return array[: len(array) // 2] if array.ndim else array
        case 6:
            return np.concatenate([array, array]) if array.ndim else array
        case 7:
            return array[None]
        case 8:
            return np.tile(array[..., None], (1,) * array.ndim + (rng.choice((1, 2, 50)),))
    return np.zeros((0, *array.shape[1:]))


def _revalued(rng: random.Random, array: np.ndarray) -> np.ndarray:
    out = array.astype(float) if array.dtype.kind in "fiu" else np.zeros(array.shape)
    flat = out.reshape(-1)
    if not flat.size:
        return out
    value = rng.choice((np.nan, np.inf, -np.inf, 1e300, -1e300, 0.0, -0.0, 5e-324, 2e6, 1e9))
    match rng.randrange(4):
        case 0:
            flat[:] = value
        case 1:
            flat[rng.randrange(flat.size) :] = value
        case 2 if out.ndim and len(out) > 1:
            order = list(range(len(out)))
            rng.shuffle(order)
            return out[order]
        case _:
            flat[rng.randrange(flat.size)] = value
    return out


def arrays_of(data: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(data)) as archive:
        return {name: archive[name] for name in archive.files}


def archive_of(arrays: dict[str, np.ndarray], compressed: bool = False) -> bytes:
    parts = {}
    for name, array in arrays.items():
        member = io.BytesIO()
        np.save(member, array, allow_pickle=True)
        parts[f"{name}.npy"] = member.getvalue()
    return packed(parts, 8 if compressed else 0)


def damaged_npz(rng: random.Random, data: bytes) -> bytes:
    """The archive or its members' bytes damaged, their headers rewritten, or their arrays changed."""
    choice = rng.randrange(10)
    if choice < 3:
        return damaged_archive(rng, data)
    if choice < 4:
        return damaged_bytes(rng, data)
    if choice < 6:
        parts = unpacked(data)
        name = rng.choice(list(parts))
        parts[name] = _damaged_header(rng, parts[name])
        return packed(parts)
    return archive_of(damaged_arrays(rng, arrays_of(data)), rng.random() < 0.5)


def _damaged_header(rng: random.Random, data: bytes) -> bytes:
    """Header of a .npy file."""
    length = int.from_bytes(data[8:10], "little")
    head, rest = data[10 : 10 + length].decode("latin-1"), data[10 + length :]
    old, new = rng.choice(
        (
            *(
                ("<f8", ">f8"),
                ("<f8", "|O"),
                ("<f8", "<f4"),
                ("<f8", "<c16"),
                ("'<f8'", "[('a', '<f8')]"),
                ("<f8", "<i8"),
            ),
            *(
                ("False", "True"),
                ("(", "(9999999999999, "),
                ("(", "(-1, "),
                ("(", "(1, "),
                ("shape", "shapes"),
                ("}", ""),
            ),
            *(
                ("{", "(" * 5000),
                ("'descr'", "'descr': __import__('os'), 'x'"),
                (" ", "\x00"),
                ("<f8", "<f9"),
                ("<f8", "|b1"),
            ),
            *(("{", "{'a': 1, "), ("descr", "описание"), ("(", "(1e9, "), ("(", "('x', "), ("(", "(True, ")),
        )
    )
    body = head.replace(old, new, 1).encode("utf-8")
    version = rng.choice((1, 1, 1, 2, 3, 9)).to_bytes(1, "little")
    size = len(body).to_bytes(2 if version == b"\x01" else 4, "little") if len(body) < 65536 else b"\xff\xff"
    return data[:6] + version + b"\x00" + size + body + rest


def damaged_parquet(rng: random.Random, data: bytes) -> bytes:
    """The file's bytes damaged, or columns of other types, lengths of lists, nulls, doubled names."""
    import pyarrow as arrow
    from pyarrow import parquet

    if rng.random() < 0.4:
        return damaged_bytes(rng, data)
    table = parquet.read_table(io.BytesIO(data))
    columns = {name: table.column(name).combine_chunks() for name in table.column_names}
    names = list(columns)
    for _ in range(rng.choice((1, 1, 2))):
        name = rng.choice(list(columns))
        columns[name] = _parquet_column(rng, arrow, np.asarray(table.column(name).to_pylist(), object))
    heads = [rng.choice(_HEADS) if rng.random() < 0.05 else name for name in names]
    if rng.random() < 0.1:
        heads[-1] = heads[0]
    rows = min(len(column) for column in columns.values())
    cut = [columns[name].slice(0, rows) for name in names]
    out = io.BytesIO()
    codec = rng.choice(("snappy", "zstd", "gzip", "none"))
    parquet.write_table(
        arrow.Table.from_arrays(cut, heads), out, compression=codec, row_group_size=rng.choice((7, 1000))
    )
    return out.getvalue()


def _parquet_column(rng: random.Random, arrow, values: np.ndarray):
    """A column of some type with something of these values in it."""
    x = [v if isinstance(v, float) and abs(v) < 1e6 else 0.5 for v in values.tolist()]
    n = len(x)
    match rng.randrange(16):
        case 0:
            return arrow.array([None if k == n // 2 else v for k, v in enumerate(x)])
        case 1:
            return arrow.nulls(n)
        case 2:
            return arrow.array([str(v) for v in x])
        case 3:
            return arrow.array([str(v) for v in x]).dictionary_encode()
        case 4:
            return arrow.array([v > 0 for v in x])
        case 5:
            return arrow.array([int(1e9 * v) for v in x], arrow.timestamp("ns"))
        case 6:
            return arrow.array([round(v, 4) for v in x]).cast(arrow.decimal128(20, 4), safe=False)
        case 7:
            return arrow.array([[v] * rng.choice((1, 1, 2)) for v in x])
        case 8:
            return arrow.array([[v, v] for v in x], arrow.list_(arrow.float64(), 2))
        case 9:
            return arrow.array([{"a": v} for v in x])
        case 10:
            return arrow.array([[[v]] for v in x])
        case 11:
            return arrow.array(np.asarray(x, np.float16))
        case 12:
            return arrow.array([2**64 - 1 if k == 3 else k for k in range(n)], arrow.uint64())
        case 13:
            return arrow.array(x[: n // 2])
        case 14:
            return arrow.array(
                [rng.choice((float("nan"), float("inf"), 1e300)) if k == 5 else v for k, v in enumerate(x)]
            )
    return arrow.array([b"\xff" for _ in x])

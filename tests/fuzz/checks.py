"""Checks of everything that is read without an error: finite, complete, and equal to an independent reader's result."""

import contextlib
import re
from pathlib import Path
from typing import Any

import numpy as np

_INFINITE = ("limits.position", "limits.velocity", "limits.effort")


class Wrong(Exception):
    """Something was read, without a word, that is not what the file says."""


def leaves_of(module: Any) -> dict[str, np.ndarray]:
    """The arrays of a chain by their names."""
    found = {}
    for name in module.__dataclass_fields__:
        value = getattr(module, name)
        if hasattr(value, "__dataclass_fields__") and name != "topology":
            found |= {f"{name}.{key}": x for key, x in leaves_of(value).items()}
        elif value is not None and name != "topology":
            found[name] = np.asarray(value)
    return found


def check_chain(chain: Any, allow_nonphysical: bool = False) -> None:
    """Numbers are finite, rotations are rotations, masses are not negative, names and parents make a tree."""
    leaves, topology = leaves_of(chain), chain.topology
    for name, x in leaves.items():
        usual = np.isfinite(x) | (np.isinf(x) if name in _INFINITE else False)
        if x.dtype.kind != "f" or not usual.all():
            raise Wrong(f"{name} holds {x.reshape(-1)[~usual.reshape(-1)][:3]}")
    turned = leaves["rotation"] @ np.swapaxes(leaves["rotation"], 1, 2)
    if len(turned) and abs(turned - np.eye(3)).max() > 1e-6:
        raise Wrong("a placement is no rotation")
    if not allow_nonphysical and (leaves["inertia"][:, 0] < 0).any():
        raise Wrong("a mass is negative")
    parents = topology.parents
    if not all(-1 <= p < k for k, p in enumerate(parents)) or len(parents) != len(leaves["inertia"]):
        raise Wrong(f"parents {parents}")
    for names in (topology.joint_names, (*topology.link_names, *topology.frame_names)):
        if len(set(names)) < len(names):
            raise Wrong(f"names repeat: {names}")


def check_same_chain(chain: Any, other: Any) -> None:
    """Every number and every name is the same."""
    a, b = leaves_of(chain), leaves_of(other)
    if a.keys() != b.keys() or chain.topology != other.topology:
        raise Wrong("names or structure differ from what was written")
    for name, x in a.items():
        if x.dtype != b[name].dtype or x.shape != b[name].shape or x.tobytes() != b[name].tobytes():
            raise Wrong(f"{name} differs from what was written")


def check_like_pinocchio(chain: Any, path: Path) -> bool:
    """Inertias, placements and screws are those of Pinocchio, joint by joint, also of joints that mimic others.

    Returns:
        whether they were compared: Pinocchio is installed, reads the file, and finds the same joints in it.
    """
    try:
        import pinocchio
    except ImportError:
        return False
    names = chain.topology.joint_names
    try:
        model = pinocchio.buildModelFromXML(path.read_text("utf-8"))
    except Exception:
        return False
    theirs = list(model.names)[1:]  # the first is "universe", which is no joint
    if sorted(names) != sorted(theirs):
        return False
    leaves, neutral = leaves_of(chain), pinocchio.neutral(model)
    for k, name in enumerate(names):
        at = 1 + theirs.index(name)
        placement = model.jointPlacements[at]
        of_joint = model.joints[at].createData()
        model.joints[at].calc(of_joint, neutral)
        column = np.reshape(of_joint.S, 6)
        screw = np.concatenate([column[3:], column[:3]])
        if not np.isclose(np.linalg.norm(screw), 1.0):  # an axis so short that Pinocchio takes it as it is
            screw = leaves["screw"][k]
        for what, mine, other in (
            ("inertia", leaves["inertia"][k], model.inertias[at].toDynamicParameters()),
            ("translation", leaves["translation"][k], placement.translation),
            ("rotation", leaves["rotation"][k], placement.rotation),
            ("screw", leaves["screw"][k], screw),
        ):
            if not np.allclose(mine, other, rtol=1e-5, atol=1e-6 * max(1.0, abs(np.asarray(other)).max())):
                raise Wrong(f"{what} of {name} is {np.ravel(mine)[:6]}, Pinocchio has {np.ravel(other)[:6]}")
    return True


def check_log(log: Any) -> None:
    """Samples without NaN in a time that increases, a row for each and a column for each joint."""
    blocks = {"t": log.t, "q": log.q, "tau": log.tau} | ({} if log.qd is None else {"qd": log.qd})
    for kind, x in blocks.items():
        if x.dtype != np.float64 or not np.isfinite(x).all():
            raise Wrong(f"{kind} of type {x.dtype} holds what is not finite")
        if x.shape != ((len(log.t),) if kind == "t" else log.q.shape):
            raise Wrong(f"{kind} has shape {x.shape}, q {log.q.shape}")
    if not (np.diff(log.t) > 0).all():
        raise Wrong("time does not increase")


def check_against(log: Any, table: dict[str, np.ndarray]) -> None:
    """The log's numbers are those that a plain reading found under the same names; NaN there is what no number was in."""
    rows = max((len(x) for x in table.values() if x.ndim), default=0)
    dropped = sum(int(m[1]) for note in log.notes if (m := re.match(r"(\d+) of \d+ rows cannot be used", note)))
    repeated = sum(int(m[1]) for note in log.notes if (m := re.match(r"(\d+) rows removed that repeat", note)))
    if "t" in table and rows != len(log.t) + dropped + repeated:
        raise Wrong(f"{len(log.t)} samples, {dropped} dropped and {repeated} repeated of {rows} rows")
    if repeated:
        whole = [x.reshape(rows, -1) for x in table.values() if x.ndim and len(x) == rows]
        seen = {row.tobytes() for row in np.concatenate(whole, axis=1) + 0.0}
        if rows - len(seen) > repeated:  # fewer may be exact repeats where ignored columns differ
            raise Wrong(f"{repeated} rows removed that repeat others, of {rows - len(seen)}")
        return
    if dropped:
        gone = _dropped(log)
        if (
            len(gone) != dropped or rows != len(log.t) + dropped
        ):  # too many places for the note to name, or no such table
            return
        kept = np.delete(np.arange(rows), gone)
        table = {name: x[kept] if x.ndim and len(x) == rows else x for name, x in table.items()}
    if any("ignored" in note and re.search(r"\b(t|q|tau|qd)\d?\b", note) for note in log.notes):
        return
    for kind, block in (("t", log.t[:, None]), ("q", log.q), ("qd", log.qd), ("tau", log.tau)):
        if block is None:
            continue
        names = ["t"] if kind == "t" else [f"{kind}{k + 1}" for k in range(block.shape[1])]
        for k, name in enumerate(names):
            found = (
                table[name]
                if name in table
                else table[kind][:, k]
                if name != "t" and _wide(table, kind, block)
                else None
            )
            if found is not None and found.size == len(block):
                found = found.reshape(-1)
            elif found is not None and found.shape == block.shape:
                found = found[:, k]  # one array for all joints, under the name of one
            if found is not None and not np.array_equal(found, block[:, k]):
                if found.shape != (len(block),):
                    raise Wrong(f"{name} has shape {found.shape} in the file, of {len(block)} samples")
                row = int(np.flatnonzero(found != block[:, k])[0])
                raise Wrong(f"{name} is {block[row, k]:.9g} in row {row + 1}, where the file has {found[row]:.9g}")


def _dropped(log: Any) -> list[int]:
    """The rows that the notes say were dropped, counted from 0."""
    listed = [m[1] for note in log.notes if (m := re.search(r"; dropped: rows ([-\d, ]+)$", note))]
    ends = [[int(x) for x in part.split("-")] for text in listed for part in text.split(", ")]
    return [row - 1 for part in ends for row in range(part[0], part[-1] + 1)]


def _wide(table: dict[str, np.ndarray], kind: str, block: np.ndarray) -> bool:
    return kind in table and table[kind].shape == block.shape


def plain_table(path: Path) -> dict[str, np.ndarray]:
    """The columns of a file by a reading without any subtlety; nothing where it cannot be read so."""
    with contextlib.suppress(Exception):
        if path.suffix == ".npz":
            with np.load(path) as archive:
                return {name: _floats(archive[name]) for name in archive.files}
        if path.suffix == ".parquet":
            from pyarrow import parquet

            table = parquet.read_table(path)
            cells = {name: table.column(name).to_pylist() for name in dict.fromkeys(table.column_names)}
            return {
                name: _floats(np.array([np.nan if x is None else x for x in values])) for name, values in cells.items()
            }
        if path.suffix == ".csv":
            return _plain_text(path)
    return {}


def _floats(array: np.ndarray) -> np.ndarray:
    return array.astype(float) if array.dtype.kind in "fiu" else np.full(array.shape, np.nan)


def _plain_text(path: Path) -> dict[str, np.ndarray]:
    raw = path.read_bytes()
    text = raw.decode("utf-16") if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else raw.decode("utf-8-sig", "replace")
    lines = [line.partition("#")[0] for line in re.split("\r\n|\r|\n", text) if line.strip() and line.strip()[0] != "#"]
    mark = next((m for m in (";", "\t", ",") if m in lines[0]), None)
    rows = [[cell.strip().strip("\"'").strip() for cell in line.split(mark)] for line in lines]
    names = rows[0]
    while len(names) > 1 and not names[-1]:
        names.pop()
    values = np.full((len(rows) - 1, len(names)), np.nan)
    for k, row in enumerate(rows[1:]):
        for column, cell in enumerate(row[: len(names)]):
            with contextlib.suppress(ValueError):
                values[k, column] = float(cell.replace(",", ".") if mark != "," else cell)
        if len(row) < len(names) or any(row[len(names) :]):
            values[k] = np.nan
    return {name: values[:, names.index(name)] for name in dict.fromkeys(names)}

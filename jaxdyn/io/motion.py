"""`read_motion`: read a logged or planned motion for viewing (times, positions and, if available, torques)."""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ..errors import LogError
from ..model.chain import Chain
from .column_map import ALIASES, clock_columns, named_columns, read_column_map, seconds_of, stem_of
from .logs import open_log
from .tables import IN_A_MAP, LOCKED, MAP, Table, repeats


@dataclasses.dataclass(frozen=True, eq=False)
class Motion:
    """A sampled motion of a robot; q contains quaternions of spherical and free joints, and tau is None if unknown."""

    t: Float[np.ndarray, " N"]
    q: Float[np.ndarray, "N nq"]
    tau: Float[np.ndarray, "N nv"] | None = None
    source: str = "memory"

    def __len__(self) -> int:
        return len(self.t)


def coordinate_names(chain: Chain) -> tuple[str, ...]:
    """Names of the `nv` generalised coordinates: joint names, or the coordinate names of a coupling."""
    return chain.topology.coordinate_names or chain.joint_names[: chain.nv]


def read_motion(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
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

    Instead of numbered columns, .npz and .parquet files may contain one array `q` and one array `tau`. In contrast to
    `read_log`, torques are optional, and joints at rest, short files and planned motions are accepted. `path`, `columns` and
    `topic` are as for `read_log`.

    Raises:
        LogError: the file cannot be read, time or positions are missing or not finite, the number of position or torque
            columns does not match the robot, or time does not increase.
    """
    files = [pathlib.Path(p) for p in ([path] if isinstance(path, str | os.PathLike) else path)]
    path = pathlib.Path("+".join(map(str, files)))  # for messages
    given = None if columns is None else read_column_map(columns)
    table = open_log(files, coordinate_names(chain), given, topic, torques=False)
    if table.kinds is None:
        time, positions, torques = _columns(path, table, chain)
    else:
        time, positions, torques = (table.kinds.get(kind, []) for kind in ("t", "q", "tau"))
    arrays, bad = table.read([*time, *positions, *torques])
    if bad:
        row, column, what = bad[0]
        raise LogError(f"{path}: {table.line(row)}, column {column!r}: {what}")
    t = seconds_of(arrays[time[0]].reshape(-1))[0]
    if single := [name for name, array in arrays.items() if array.ndim == 0]:
        raise LogError(f"{path}: {single[0]!r} is a single number; one row per sample is expected")
    q = _block(path, arrays, positions, len(t), chain.nq, "positions")
    tau = _block(path, arrays, torques, len(t), chain.nv, "torques") if torques else None
    rows = np.flatnonzero(~repeats(np.hstack([t[:, None], q, *([] if tau is None else [tau])])))
    t, q, tau = t[rows], q[rows], None if tau is None else tau[rows]
    _check(path, lambda row: table.line(int(rows[row])), t, q)
    return Motion(t, q, tau, "+".join(file.name for file in files))


def _columns(path: pathlib.Path, table: Table, chain: Chain) -> tuple[list[str], list[str], list[str]]:
    """Find the names of the columns of time, positions and, if present, torques."""
    time = clock_columns(table.names)
    positions = _find(table.names, "q", chain.nq, coordinate_names(chain) if chain.nq == chain.nv else ())
    torques = _find(table.names, "tau", chain.nv, coordinate_names(chain))
    if not positions and chain.nq == chain.nv:
        named = named_columns(path, table.names, coordinate_names(chain))
        positions, torques = named.get("q", []), torques or named.get("tau", [])
    if not torques and (others := _named(table.names, "tau")[1]):
        raise LogError(
            f"{path}: the torque columns are {', '.join(others.values())}, but this robot needs {chain.nv}; complete or "
            "remove them",
            "If joints are missing because they do not move, load the model with them locked: {lock}",
            **LOCKED,
        )
    there = f"the columns are {', '.join(filter(None, table.names[:40]))}"
    if len(time) != 1:
        raise LogError(
            f"{path}: {len(time)} columns are called t, time, timestamp or stamp; one is needed; {there}",
            "Specify it in a column map (docs/logs.md): {columns}",
            **MAP,
        )
    if not positions:
        names = f"{', '.join(coordinate_names(chain)[:8])}, or " if chain.nq == chain.nv else ""
        raise LogError(
            f"{path}: the columns do not match the {chain.nq} positions of this robot, which must be called {names}q1 .. "
            f"q{chain.nq}; "
            f"{there}",
            f"{IN_A_MAP}. If joints are missing because they do not move, load the model with them locked: {{lock}}",
            **MAP,
            **LOCKED,
        )
    return time, positions, torques


def _find(names: Sequence[str], kind: str, count: int, joints: Sequence[str]) -> list[str]:
    """Find the columns of one quantity, in order; empty if any column is missing."""
    for form in ("{}", "q_{}") if kind == "q" else ("tau_{}",):
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
    stems = [(name, number) for name in names for stem, number in [stem_of(name)] if stem in ALIASES[kind]]
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


def _check(path: pathlib.Path, place: Callable[[int], str], t: np.ndarray, q: np.ndarray) -> None:
    if len(t) < 2:
        raise LogError(f"{path}: a motion needs at least two rows, but this one has {len(t)}")
    lost = np.flatnonzero(~(np.isfinite(t) & np.isfinite(q).all(1)))
    if len(lost):
        raise LogError(f"{path}: {place(int(lost[0]))} contains a time or position that is not finite")
    back = np.flatnonzero(np.diff(t) <= 0)
    if len(back):
        raise LogError(
            f"{path}: time does not increase at {place(int(back[0]) + 1)}; sort the rows, and keep one row per time stamp"
        )

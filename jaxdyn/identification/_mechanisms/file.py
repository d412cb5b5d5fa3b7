"""Log files of floating-base robots, with columns named after joints and frames."""

import io
import os
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from ...errors import LogError, OutputError
from ...io._files import write_whole
from ...io._logs.columns import ALIASES
from ...io._logs.log import check_time, row_range
from ...io._logs.motion import coordinate_names
from ...io._logs.rows import find_bad_rows
from ...io._logs.table import Table, open_table
from ...model._chain import Chain
from ...model._layout import layout
from .log import MechanismLog, check_mechanism_log

POSE = tuple(f"base_{x}" for x in ("px", "py", "pz", "qw", "qx", "qy", "qz"))
IMU = tuple(f"imu_{x}" for x in ("wx", "wy", "wz", "ax", "ay", "az"))
MOMENT, FORCE = ("mx", "my", "mz"), ("fx", "fy", "fz")


def read_mechanism_log(
    path: str | os.PathLike[str],
    chain: Chain,
    held: Mapping[str, str] | None = None,
    *,
    rows: tuple[int, int] | None = None,
) -> MechanismLog:
    """Read a log of a robot with one floating base from a .csv (.tsv, .txt), .npz or .parquet file.

    The file has the following columns, in any order; others are ignored:

    - time [s]: `t`, `time`, `timestamp` or `stamp`;
    - positions of all joints [rad or m]: `q_NAME` or `NAME`;
    - torques of the joints whose torque was measured [N m or N]: `tau_NAME`;
    - pose of the base in the world, unless the motion of the base is given by an IMU: position `base_px`, `base_py`,
      `base_pz` [m] and unit quaternion `base_qw`, `base_qx`, `base_qy`, `base_qz`;
    - IMU readings, in the axes and at the origin of the base link: angular velocity `imu_wx`, `imu_wy`, `imu_wz`
      [rad/s] and specific force `imu_ax`, `imu_ay`, `imu_az` [m/s^2], which is +9.81 upwards at rest; if the file
      contains IMU readings, the pose is not used;
    - contact wrench that the world exerts on the robot at a frame or link, in the frame's axes about its origin:
      `FRAME_fx`, `FRAME_fy`, `FRAME_fz` [N] and `FRAME_mx`, `FRAME_my`, `FRAME_mz` [N m]; without the moment columns,
      the contact is a point contact.

    Args:
        path: the file.
        chain: the robot, with its floating base (`load(..., floating_base=True)`).
        held: frames that unmeasured forces hold in place, as in `MechanismLog`.
        rows: first and last data row to read, counted from 1 and both inclusive; by default all rows.

    Raises:
        LogError: the file cannot be read; the robot does not have exactly one floating base, or has spherical joints;
            columns are missing, including components of a wrench (the message names them); a number is malformed; or
            time does not increase.
        ModelError: a frame in `held` is unknown.
    """
    path = pathlib.Path(path)
    free = [joint for joint in layout(chain).quaternions if joint.size == 6]
    if len(free) != 1 or len(layout(chain).quaternions) != 1 or free[0].start:
        raise LogError(f"{path}: only robots with one floating base and no spherical joints are supported")
    table = open_table(path)
    there = set(table.names)
    joints = [coordinate_names(chain)[k] for k in layout(chain).columns]
    clock = next((name for name in table.names if name.lower() in ALIASES["t"]), "t")
    positions = [name if f"q_{name}" not in there else f"q_{name}" for name in joints]
    imu, pose = set(IMU) <= there, set(POSE) <= there
    missing = [name for name in (clock, *positions) if name not in there]
    missing = [f"q_{name}" if name in joints else name for name in missing]
    if not imu and not pose:
        some = next((kind for kind in (IMU, POSE) if there & set(kind)), POSE)
        missing += [name for name in some if name not in there]
    wrenches = _wrenches(chain, there)
    missing += [name for names in wrenches.values() for name in names if name not in there]
    if missing:
        raise LogError(f"{path}: missing columns: {_few(missing)}; the columns are {_few(table.names)}")
    torques = [f"tau_{name}" for name in joints if f"tau_{name}" in there]
    base = IMU if imu else POSE
    loads = [name for names in wrenches.values() for name in names]
    columns = [*positions, *base, *torques, *loads]
    t, values = _numbers(path, table, clock, columns, len(positions), rows)
    data = dict(zip(columns, values.T, strict=True))
    side = lambda names: np.column_stack([data[name] for name in names])
    q, tau = np.full((len(t), chain.nq), np.nan), np.full((len(t), chain.nv), np.nan)
    q[:, layout(chain).entries] = side(positions)
    if not imu:
        q[:, :7] = side(POSE)
    for column, name in zip(layout(chain).columns, joints, strict=True):
        if f"tau_{name}" in data:
            tau[:, column] = data[f"tau_{name}"]
    measured = {frame: np.hstack([np.zeros((len(t), 6 - len(n))), side(n)]) for frame, n in wrenches.items()}
    log = MechanismLog(t, q, tau, measured, held or {}, side(IMU) if imu else None, source=path.name)
    check_mechanism_log(chain, log)
    return log


def write_mechanism_log(path: str | os.PathLike[str], chain: Chain, log: MechanismLog) -> None:
    """Write a log of a robot with one floating base to a text table that `read_mechanism_log` can read.

    Quantities that were not measured (columns of NaN) are omitted. The frames in `held` and the loop constraints are
    not written. The file is written completely or not at all.

    Args:
        path: the file.
        chain: the robot.
        log: the log.

    Raises:
        LogError: the log does not match the chain.
        OutputError: the file cannot be written; an existing file remains unchanged.
    """
    check_mechanism_log(chain, log)
    where, names = layout(chain), coordinate_names(chain)
    columns = {"t": log.t} | {f"base_{x[5:]}": log.q[:, k] for k, x in enumerate(POSE)}
    columns |= {f"q_{names[v]}": log.q[:, e] for v, e in zip(where.columns, where.entries, strict=True)}
    columns |= {f"tau_{names[v]}": log.tau[:, v] for v in where.columns}
    for frame, wrench in log.wrenches.items():
        columns |= {f"{frame}_{x}": wrench[:, k] for k, x in enumerate((*MOMENT, *FORCE))}
    if log.imu is not None:
        columns |= dict(zip(IMU, np.asarray(log.imu).T, strict=True))
    columns = {name: x for name, x in columns.items() if not np.isnan(x).all()}
    text = io.StringIO()
    np.savetxt(text, np.column_stack([*columns.values()]) + 0.0, "%.10g", ",", header=",".join(columns), comments="")
    write_whole(path, text.getvalue(), OutputError)


def _wrenches(chain: Chain, there: set[str]) -> dict[str, tuple[str, ...]]:
    """Column names of each frame's wrench: forces, preceded by moments if the file contains any moment."""
    found = {}
    for frame in dict.fromkeys((*chain.topology.frame_names, *chain.link_names)):
        moment, force = (tuple(f"{frame}_{x}" for x in kind) for kind in (MOMENT, FORCE))
        if there & {*moment, *force}:
            found[frame] = (*moment, *force) if there & set(moment) else force
    return found


def _numbers(
    path: pathlib.Path, table: Table, clock: str, columns: list[str], positions: int, rows: tuple[int, int] | None
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "N m"]]:
    """Read the time stamps and the values of the columns, and check for malformed rows."""
    arrays, cells = table.read([clock, *columns])
    wrong = [name for name, x in arrays.items() if x.shape != (len(arrays[clock]),)]
    if wrong:
        raise LogError(f"{path}: {wrong[0]!r} has shape {arrays[wrong[0]].shape}; it must have one number per sample")
    first, last = row_range(path, rows, len(arrays[clock]))
    t, values = arrays[clock][first:last], np.column_stack([arrays[name] for name in columns])[first:last]
    found = find_bad_rows(t, values, columns, positions, clock)
    if found:
        row, column = int(found[0].rows[0]), found[0].column
        said = {(r, c): text for r, c, text in cells}.get((first + row, column), f"{found[0].value:.6g}")
        raise LogError(
            f"{path}: {len(found[0].rows)} {found[0].what}, first at {table.line(first + row)}, column {column!r} ({said})",
            "Repair the file, or choose the rows to read with {rows}",
            rows="(first, last)",
        )
    check_time(path, t, lambda row: table.line(first + row))
    return t, values


def _few(names: Sequence[str], most: int = 30) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")

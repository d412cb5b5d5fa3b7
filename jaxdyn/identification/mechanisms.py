"""Logs of robots with floating bases, spherical joints, contact wrenches or closed loops: samples, files, and the rows that
are free of unmeasured forces.

With parameters pi and unmeasured forces x, the equations of motion are W pi = tau + A x. The matrix A contains the
transposed Jacobians of the fixed frames and loop constraints, and a unit column for every unmeasured drive. The rows
are divided by their noise, which forms the diagonal matrix S. The projection of S^-1 (W pi - tau) onto the orthogonal
complement of the range of S^-1 A does not depend on x. Its least-squares solution equals that of a combined fit of pi
and all x."""

import dataclasses
import functools
import io
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.spatial.transform import Rotation

from ..dynamics import jacobian, jacobian_derivative
from ..dynamics.constraints import constraint_bias, constraint_jacobian
from ..errors import IdentificationError, LogError, ModelError, OutputError
from ..io.column_map import ALIASES, columns_by_joint
from ..io.files import write_whole
from ..io.logs import Log, check_time, row_range
from ..io.tables import TEXT_SUFFIXES, Table, find_bad_rows, open_table
from ..model.build import unrounded
from ..model.chain import Chain, coordinate_names, frame_index, layout
from ..model.joints import Free
from ..model.mechanisms import Constraint
from .base import RANK_TOLERANCE, BaseParameters, chosen_parameters
from .columns import Columns
from .defaults import LOWEST_CUTOFF
from .factors import as_float64, triangle_of
from .filters import differentiate
from .friction_model import joint_positions
from .knowledge import Known
from .prediction import by_chunks, row_chunks
from .preprocessing import Filters, Samples, preprocess

NARROW = 0.4


@dataclasses.dataclass(frozen=True, eq=False)
class MechanismLog:
    """Logged run of a robot with a floating base, contacts, spherical joints or closed loops, with N samples in SI units.

    The motion of the base is given by its pose in `q`. If the pose was not measured, `imu` is sufficient, because the
    dynamics depend only on the base's angular velocity and specific force. Every contact must be listed in `wrenches`
    or `held`.

    Attributes:
        t: time stamps, strictly increasing [s].
        q: positions in the chain's layout [rad or m], with (px, py, pz, w, x, y, z) for a floating base; with an IMU,
            these seven entries are ignored and may be NaN.
        tau: measured generalised forces [N m or N], with NaN for drives whose torque was not measured. A floating base
            has no drive, so its six entries are ignored and taken as zero.
        wrenches: (N, 6) contact wrenches (moment, force) by frame name, exerted by the world on the robot, in the
            frame's axes about its origin [N m, N]; zero while there is no contact.
        held: frames that unmeasured forces hold in place during the whole run, by name, with the value "pose" if
            position and orientation are fixed, or "point" if only the frame's origin is fixed.
        imu: angular velocity [rad/s] and specific force (acceleration minus gravity) [m/s^2], in the axes and at the
            origin of the base link.
        constraints: constraints that close the robot's loops, whose forces are not measured. Set the torques of passive
            joints to zero, because NaN means an unmeasured drive torque. If the positions of passive joints were not
            measured, compute them with `project_configuration`.
        source: origin of the log, such as a file name.
    """

    t: Float[np.ndarray, " N"]
    q: Float[np.ndarray, "N nq"]
    tau: Float[np.ndarray, "N nv"]
    wrenches: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    held: Mapping[str, str] = dataclasses.field(default_factory=dict)
    imu: Float[np.ndarray, "N 6"] | None = None
    constraints: tuple[Constraint, ...] = ()
    source: str = "memory"

    def __len__(self) -> int:
        return len(self.t)


@dataclasses.dataclass(frozen=True, eq=False)
class MechanismSamples:
    """Evenly spaced, filtered samples of a `MechanismLog`.

    Attributes:
        samples: the filtered motion; its `tau` contains the measured generalised forces of drives and contact wrenches.
        measured: (nv,) mask of the rows of the equations of motion with a measured right-hand side.
        held: fixed frames, as in `MechanismLog`.
        constraints: loop constraints, as in `MechanismLog`.
    """

    samples: Samples
    measured: Bool[np.ndarray, " nv"]
    held: Mapping[str, str]
    constraints: tuple[Constraint, ...] = ()

    @property
    def is_held(self) -> bool:
        """True if unmeasured forces act at fixed frames or in closed loops."""
        return bool(self.held or self.constraints)

    def part(self, start: int, stop: int) -> "MechanismSamples":
        """The samples from index `start` up to but excluding `stop`."""
        return dataclasses.replace(self, samples=self.samples.part(start, stop))

    def __len__(self) -> int:
        return len(self.samples)


def check_mechanism_log(chain: Chain, log: MechanismLog) -> None:
    """Raise an error if a log does not match the chain or lacks a measurement.

    Raises:
        LogError: an array has the wrong shape or contains non-finite numbers, or the motion of the base was not measured.
        ModelError: a frame is unknown, is in both `wrenches` and `held`, or has a value in `held` other than "pose" or
            "point".
    """
    shapes = {"q": (log.q, chain.nq), "tau": (log.tau, chain.nv)}
    shapes |= {f"the wrench at {frame!r}": (x, 6) for frame, x in log.wrenches.items()}
    shapes |= {} if log.imu is None else {"imu": (log.imu, 6)}
    for name, (x, width) in shapes.items():
        if np.shape(x) != (len(log.t), width):
            raise LogError(
                f"{log.source}: {name} has shape {np.shape(x)}; for this robot it must be ({len(log.t)}, {width})"
            )
    free = [joint for joint in layout(chain).curved if isinstance(joint, Free)]
    for frame in (*log.wrenches, *log.held):
        frame_index(chain, frame)
        if frame in log.wrenches and frame in log.held:
            raise ModelError(
                f"frame {frame!r} has a measured wrench and is also held by unmeasured forces; choose one of the two"
            )
    for frame, hold in log.held.items():
        if hold not in ("pose", "point"):
            raise ModelError(f'frame {frame!r}: held must be "pose" or "point", not {hold!r}')
    if log.imu is not None and len(free) != 1:
        raise LogError(
            f"{log.source}: an IMU replaces the pose of one floating base, but this robot has {len(free)} floating "
            "bases"
        )
    for name, (x, _) in shapes.items():
        looked_at = np.asarray(x, float)
        if name == "q" and log.imu is not None:
            looked_at = np.delete(looked_at, np.arange(chain.nq)[free[0].entries], axis=1)
        if name == "tau":
            looked_at = looked_at[:, ~np.isnan(looked_at).all(axis=0)]
        if not np.isfinite(looked_at).all():
            what = "provide the base's pose or its IMU" if name == "q" and free else "remove such samples"
            raise LogError(f"{log.source}: {name} contains numbers that are not finite; {what}")


def mechanism_samples(chain: Chain, log: MechanismLog, filters: Filters | None = None) -> MechanismSamples:
    """Filter and differentiate the log of a robot with a floating base, as `preprocess` does for a fixed-base arm.

    Quaternions are made continuous in sign and filtered entry by entry. The result r is normalised to n = r / |r|. The
    angular velocity in body axes is w = 2 Im(n* dn/dt), where n* is the conjugate, and its derivative is
    2 Im(n* d2n/dt2). For a base at position p with orientation R, the linear part of the twist is v = R^T dp/dt, with
    the derivative R^T d2p/dt2 - w x v.

    If an IMU is given, the pose of the base is set to the identity and its linear velocity to zero. The gyroscope
    provides w and dw/dt, and the linear acceleration is the specific force plus gravity.

    Measured wrenches F_i are added to the measured torques as generalised forces sum_i J_i^T F_i, with the Jacobians J_i
    of their frames.

    Args:
        chain: the robot.
        log: the log.
        filters: cutoffs, stride and further settings, as for `preprocess`.

    Raises:
        LogError: the log does not match the chain, lacks a measurement, or is too short to be filtered.
        ModelError: a frame is unknown, or is both measured and held.
    """
    check_mechanism_log(chain, log)
    where = layout(chain)
    q, forces = np.array(log.q, float), [np.where(np.isnan(log.tau), 0.0, log.tau), *log.wrenches.values()]
    free = [joint for joint in where.curved if isinstance(joint, Free)]
    if log.imu is not None:
        q[:, free[0].entries] = free[0].neutral()
        forces.append(np.asarray(log.imu, float))
    for joint in where.curved:
        q[:, joint.quaternion] = _continuous(q[:, joint.quaternion])
    width = max(q.shape[1], sum(x.shape[1] for x in forces))
    beside = np.hstack(forces)
    padded = [np.hstack([x, np.zeros((len(x), width - x.shape[1]))]) for x in (q, beside)]
    raw = preprocess(Log(np.asarray(log.t, float), padded[0], None, padded[1], log.source), filters)
    q, qd, qdd = (_in_coordinates(chain, raw.q, raw.qd, raw.qdd)) if where.curved else (raw.q, raw.qd, raw.qdd)
    q, qd, qdd = q[:, : chain.nq], qd[:, : chain.nv], qdd[:, : chain.nv]
    measured = np.asarray(~np.isnan(np.asarray(log.tau, float)).any(axis=0))
    tau = raw.tau[:, : chain.nv].copy()
    for joint in free:
        tau[:, joint.columns], measured[joint.columns] = 0.0, True
    if log.imu is not None:
        imu = raw.tau[:, chain.nv + 6 * len(log.wrenches) :][:, :6]
        at = free[0].columns
        qd[:, at], qdd[:, at] = _of_imu(chain, raw, imu)
    tau[:, ~measured] = 0.0
    j = _along(_rows, chain, dict.fromkeys(log.wrenches, "pose"), (), q)
    tau = tau + np.einsum("tij,ti->tj", j, raw.tau[:, chain.nv : chain.nv + j.shape[1]])
    samples = dataclasses.replace(raw, q=q, qd=qd, qdd=qdd, tau=tau)
    return MechanismSamples(samples, measured, dict(log.held), tuple(log.constraints))


def narrow_cutoff(chain: Chain, log: MechanismLog) -> float:
    """Default cutoff for robots with a floating base [Hz]: 0.4 times that of `preprocess`, with the same lower limit."""
    check_mechanism_log(chain, log)
    free = [i for joint in layout(chain).curved for i in range(chain.nq)[joint.entries]]
    q = np.delete(np.asarray(log.q, float), free, axis=1)
    if not q.shape[1]:
        return LOWEST_CUTOFF
    joints = Log(np.asarray(log.t, float), q, None, np.zeros_like(q), log.source)
    cutoff = Filters().setting(joints).position_cutoff
    return max(min(LOWEST_CUTOFF, cutoff), NARROW * cutoff)


def held_rows(chain: Chain, run: MechanismSamples) -> Float[np.ndarray, "N k nv"]:
    """Jacobian J of all constraints J qd = 0 with unmeasured forces, for each sample."""
    return _along(_rows, chain, run.held, run.constraints, run.samples.q)


def _along(
    function: Callable[..., Array],
    chain: Chain,
    held: Mapping[str, str],
    constraints: tuple[Constraint, ...],
    *states: Float[np.ndarray, "N _"],
) -> Float[np.ndarray, "N ..."]:
    """Values of `_rows` or `_biases` along samples, in float64."""
    with jax.enable_x64(True):
        model, frames = as_float64(chain), tuple(held.items())
        return by_chunks(lambda *x: _each(function, frames, model, constraints, *map(jnp.asarray, x)), *states)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _each(function, held, chain, constraints, *states):
    return jax.vmap(lambda *x: function(held, chain, constraints, *x))(*states)


def _rows(held, chain, constraints, q):
    """Body Jacobians of held frames, the last three rows of each point, and the Jacobian of the loop constraints."""
    rows = [jacobian(chain, q, frame)[0 if hold == "pose" else 3 :] for frame, hold in held]
    rows += [constraint_jacobian(chain, constraints, q)] if constraints else []
    return jnp.concatenate([jnp.zeros((0, chain.nv)), *rows])


def _biases(held, chain, constraints, q, qd):
    """Bias dJ/dt qd of the constraints in `_rows`."""
    rows = [(jacobian_derivative(chain, q, qd, frame) @ qd)[0 if hold == "pose" else 3 :] for frame, hold in held]
    rows += [constraint_bias(chain, constraints, q, qd)] if constraints else []
    return jnp.concatenate([jnp.zeros(0), *rows])


def _continuous(x: Float[np.ndarray, "N 4"]) -> Float[np.ndarray, "N 4"]:
    """Normalise quaternions, with signs that make them continuous from sample to sample."""
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    flips = np.concatenate([[1.0], np.where((x[1:] * x[:-1]).sum(axis=1) < 0, -1.0, 1.0)])
    return x * np.cumprod(flips)[:, None]


def _in_coordinates(chain: Chain, r, rd, rdd):
    """Positions q, velocities v and accelerations dv/dt, from the filtered entries of q and their derivatives."""
    where = layout(chain)
    q, v, a = r[:, : chain.nq].copy(), np.zeros((len(r), chain.nv)), np.zeros((len(r), chain.nv))
    v[:, where.columns], a[:, where.columns] = rd[:, where.entries], rdd[:, where.entries]
    for joint in where.curved:
        n, nd, ndd = _normalised(*(x[:, joint.quaternion] for x in (r, rd, rdd)))
        q[:, joint.quaternion] = n
        w, wd = 2 * _conjugate_product(n, nd), 2 * _conjugate_product(n, ndd)
        at = joint.column
        v[:, at : at + 3], a[:, at : at + 3] = w, wd
        if isinstance(joint, Free):
            back, there = Rotation.from_quat(n[:, [1, 2, 3, 0]]).inv(), slice(at + 3, at + 6)
            v[:, there] = back.apply(rd[:, joint.point])
            a[:, there] = back.apply(rdd[:, joint.point]) - np.cross(w, v[:, there])
    return q, v, a


def _normalised(r, rd, rdd):
    """r / |r| and its first two derivatives."""
    size = np.linalg.norm(r, axis=1, keepdims=True)
    n = r / size
    size_d = (n * rd).sum(axis=1, keepdims=True)
    nd = (rd - n * size_d) / size
    size_dd = (nd * rd + n * rdd).sum(axis=1, keepdims=True)
    return n, nd, (rdd - 2 * nd * size_d - n * size_dd) / size


def _conjugate_product(n: Float[np.ndarray, "N 4"], x: Float[np.ndarray, "N 4"]) -> Float[np.ndarray, "N 3"]:
    """Vector part of the quaternion product n* x."""
    return n[:, :1] * x[:, 1:] - x[:, :1] * n[:, 1:] - np.cross(n[:, 1:], x[:, 1:])


def _of_imu(chain: Chain, raw: Samples, imu: Float[np.ndarray, "N 6"]):
    """Velocity and acceleration of a base at the identity pose, from the IMU's angular velocity and specific force."""
    rates = imu[:, :3]
    turning = np.concatenate([differentiate(rates[a:b], raw.rate) for a, b in raw.segments])
    gravity = np.asarray(chain.gravity, float)
    if chain.base_pose is not None:
        gravity = np.asarray(chain.base_pose, float)[:3, :3].T @ gravity
    still = np.zeros_like(rates)
    return np.hstack([rates, still]), np.hstack([turning, imu[:, 3:] + gravity])


# -- file

POSE = tuple(f"base_{x}" for x in ("px", "py", "pz", "qw", "qx", "qy", "qz"))
IMU = tuple(f"imu_{x}" for x in ("wx", "wy", "wz", "ax", "ay", "az"))
MOMENT, FORCE = ("mx", "my", "mz"), ("fx", "fy", "fz")


def has_base_motion(path: str | os.PathLike[str]) -> bool:
    """True if a file has columns of `read_mechanism_log` for the pose or the IMU of a base."""
    path = pathlib.Path(path)
    return (
        path.is_file()
        and path.suffix in (*TEXT_SUFFIXES, ".npz", ".parquet")
        and bool({*POSE, *IMU} & {*open_table(path).names})
    )


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
    - positions of all joints [rad or m]: `q_NAME`, `NAME`, or any other name with the joint's name that `read_log` accepts;
    - torques of the joints whose torque was measured [N m or N]: `tau_NAME`, or as for positions;
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
    free = [joint for joint in layout(chain).curved if isinstance(joint, Free)]
    if len(free) != 1 or len(layout(chain).curved) != 1 or free[0].start:
        raise LogError(f"{path}: only robots with one floating base and no spherical joints are supported")
    table = open_table(path)
    there = set(table.names)
    joints = [coordinate_names(chain)[k] for k in layout(chain).columns]
    clock = next((name for name in table.names if name.lower() in ALIASES["t"]), "t")
    found = columns_by_joint(path, table.names, joints)
    # names in the table, by standard name
    wanted = {f"q_{name}": found.get(("q", name), f"q_{name}") for name in joints}
    wanted |= {f"tau_{name}": found["tau", name] for name in joints if ("tau", name) in found}
    whole = [kind for kind in (IMU, POSE) if set(kind) <= there] or [kind for kind in (IMU, POSE) if there & set(kind)]
    base, frames, kinds = (
        [*whole, POSE][0],
        dict.fromkeys((*chain.topology.frame_names, *chain.link_names)),
        MOMENT + FORCE,
    )
    frames = [frame for frame in frames if there & {f"{frame}_{x}" for x in kinds}]
    has_moment = lambda frame: bool(there & {f"{frame}_{x}" for x in MOMENT})
    forces = [f"{frame}_{x}" for frame in frames for x in (kinds if has_moment(frame) else FORCE)]
    wanted |= {name: name for name in (*base, *forces)}
    if missing := [name for name in (clock, *wanted.values()) if name not in there]:
        raise LogError(f"{path}: missing columns: {_few(missing)}; the columns are {_few(table.names)}")
    t, values = _numbers(path, table, clock, [*wanted.values()], len(joints), rows)
    blank = lambda width, value=np.nan: np.full((len(t), width), value)
    wrenches, imu = {frame: blank(6, 0.0) for frame in frames}, blank(6) if base is IMU else None
    log = MechanismLog(t, blank(chain.nq), blank(chain.nv), wrenches, held or {}, imu, source=path.name)
    columns = _columns(chain, log)
    for name, x in zip(wanted, values.T, strict=True):
        columns[name][:] = x
    check_mechanism_log(chain, log)
    return log


def _columns(chain: Chain, log: MechanismLog) -> dict[str, Float[np.ndarray, " N"]]:
    """Views of all columns of a log of a robot with one floating base, by their names in a table."""
    where, names = layout(chain), coordinate_names(chain)
    columns = {name: log.q[:, k] for k, name in enumerate(POSE)}
    columns |= {f"q_{names[v]}": log.q[:, e] for v, e in zip(where.columns, where.entries, strict=True)}
    columns |= {f"tau_{names[v]}": log.tau[:, v] for v in where.columns}
    for frame, wrench in log.wrenches.items():
        columns |= {f"{frame}_{x}": wrench[:, k] for k, x in enumerate(MOMENT + FORCE)}
    return columns | ({} if log.imu is None else {name: log.imu[:, k] for k, name in enumerate(IMU)})


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
    columns = {"t": log.t} | _columns(chain, log)
    columns = {name: x for name, x in columns.items() if not np.isnan(x).all()}
    text = io.StringIO()
    np.savetxt(text, np.column_stack([*columns.values()]) + 0.0, "%.10g", ",", header=",".join(columns), comments="")
    write_whole(path, text.getvalue(), OutputError)


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


# -- rows

LEAST_STATES = 256
ROUNDED = 1e-7  # relative rank tolerance of columns at logged postures, which satisfy constraints only up to noise


def unknown_forces(chain: Chain, run: MechanismSamples) -> Float[np.ndarray, "N nv k"]:
    """Matrix A of each sample, which maps unmeasured forces to generalised forces."""
    missing = np.eye(chain.nv)[:, ~run.measured]
    missing = np.broadcast_to(missing, (len(run), *missing.shape))
    return np.concatenate([np.swapaxes(held_rows(chain, run), 1, 2), missing], axis=2)


def left_over(a: Float[np.ndarray, "N nv k"], noise: Float[np.ndarray, " nv"]) -> Float[np.ndarray, "N m nv"]:
    """Matrix P^T S^-1 of each sample, where P is an orthonormal basis of the complement of the range of S^-1 A.

    It has m = nv - k rows. If A loses rank, for example at a straight knee, more than m rows are free of the forces, and
    only m of them are used.

    Args:
        a: matrix A of each sample.
        noise: diagonal of S, the standard deviation of each row [N m or N].
    """
    scaled = a / noise[None, :, None]
    u = np.linalg.svd(scaled, full_matrices=True)[0]
    return np.swapaxes(u[:, :, a.shape[2] :], 1, 2) / noise[None, None, :]


@dataclasses.dataclass(frozen=True, eq=False)
class UnknownForces:
    """Unmeasured forces of a run, which are eliminated from its rows.

    Attributes:
        chain: the robot.
        run: the run.
        noise: standard deviation of every row [N m or N].

    Raises:
        IdentificationError: there are at least as many unmeasured forces as equations.
    """

    chain: Chain
    run: MechanismSamples
    noise: Float[np.ndarray, " nv"]

    def __post_init__(self) -> None:
        if unknown_forces(self.chain, self.run.part(0, 1)).shape[2] >= self.chain.nv:
            raise IdentificationError(
                f"{self.run.samples.source}: there are at least as many unmeasured forces as equations of motion, so no "
                "equations are left to fit; measure the contacts or the joint torques, or list fewer frames in held"
            )

    def rows(self, samples: Samples) -> Float[np.ndarray, "N m nv"]:
        """Matrix of each sample that combines the rows to those free of the forces, divided by their noise (`left_over`)."""
        return left_over(unknown_forces(self.chain, dataclasses.replace(self.run, samples=samples)), self.noise)

    def added(self, samples: Samples, torque: Float[np.ndarray, "N nv"]) -> Float[np.ndarray, "N nv"]:
        """Predicted torques plus the effect of the unmeasured forces that fit the samples best [N m or N]."""
        through = self.rows(samples)
        error = np.einsum("tmj,tj->tm", through, samples.tau - torque)
        return samples.tau - self.noise * np.einsum("tmj,tm->tj", through * self.noise, error)


def remaining_parameters(
    chain: Chain,
    columns: Columns,
    runs: Sequence[MechanismSamples],
    base: BaseParameters,
    known: Known | None = None,
    seed: int = 0,
) -> BaseParameters:
    """Compute the base parameters of the rows that are free of unmeasured forces.

    Postures are taken from the runs. Velocities v and accelerations a are random, but satisfy the constraints J v = 0
    and J a + dJ/dt v = 0.

    Args:
        base: base parameters of all rows; their number determines how many postures are used.
        known: prior knowledge of the parameters.

    Raises:
        IdentificationError: there are at least as many unmeasured forces as equations.
    """
    chain = unrounded(chain)
    rng, model, factor = np.random.default_rng(seed), as_float64(chain), np.zeros((0, len(columns.names(chain.n))))
    for run in runs:
        chosen = np.unique(np.linspace(0, len(run) - 1, max(LEAST_STATES, 3 * base.size)).astype(int))
        picked = dataclasses.replace(run, samples=run.samples.rows(chosen, ()))
        v, a = _held_motion(chain, picked, rng)
        through, q = UnknownForces(chain, picked, np.ones(chain.nv)).rows(picked.samples), picked.samples.q
        friction = None if columns.friction is None else columns.friction.at_states(joint_positions(chain, q), v)
        for part, w in row_chunks(columns, model, (q, v, a)):
            w = w if friction is None else np.concatenate([w, friction[part]], axis=2)
            rows = through[part] @ w
            factor = triangle_of(np.concatenate([factor, rows.reshape(-1, rows.shape[2])]))
    return chosen_parameters(
        chain, columns, factor, ROUNDED if any(run.is_held for run in runs) else RANK_TOLERANCE, known
    )


def _held_motion(chain: Chain, run: MechanismSamples, rng: np.random.Generator):
    """Random velocities and accelerations that satisfy the constraints."""
    v, a = rng.normal(size=(2, len(run), chain.nv)) * 2
    if not run.is_held:
        return v, a
    j = held_rows(chain, run)
    inverse = np.linalg.pinv(j)
    free = np.eye(chain.nv) - inverse @ j
    v = np.einsum("tij,tj->ti", free, v)
    bias = _along(_biases, chain, run.held, run.constraints, run.samples.q, v)
    return v, np.einsum("tij,tj->ti", free, a) - np.einsum("tij,tj->ti", inverse, bias)

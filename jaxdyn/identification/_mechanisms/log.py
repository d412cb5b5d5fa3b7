"""Logs of robots with floating bases, spherical joints, contact wrenches or closed loops."""

import dataclasses
import functools
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ...dynamics import jacobian, jacobian_derivative
from ...dynamics._mechanisms.constraint import constraint_bias, constraint_jacobian
from ...errors import LogError, ModelError
from ...io._logs.log import Log
from ...model._chain import Chain, frame_index
from ...model._layout import layout
from ...model._mechanisms.constraint import Constraint
from .._preprocessing.filters import differentiate
from .._preprocessing.samples import LOWEST_CUTOFF, Filters, Samples, preprocess
from .._regression.robot import as_float64
from .._regression.rows import by_chunks

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
    free = [joint for joint in layout(chain).quaternions if joint.size == 6]
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
            looked_at = np.delete(looked_at, np.arange(free[0].start, free[0].start + 7), axis=1)
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
    free = [joint for joint in where.quaternions if joint.size == 6]
    if log.imu is not None:
        q[:, free[0].start : free[0].start + 7] = [0, 0, 0, 1, 0, 0, 0]
        forces.append(np.asarray(log.imu, float))
    for joint in where.quaternions:
        q[:, joint.quaternion] = _continuous(q[:, joint.quaternion])
    width = max(q.shape[1], sum(x.shape[1] for x in forces))
    beside = np.hstack(forces)
    padded = [np.hstack([x, np.zeros((len(x), width - x.shape[1]))]) for x in (q, beside)]
    raw = preprocess(Log(np.asarray(log.t, float), padded[0], None, padded[1], log.source), filters)
    q, qd, qdd = (_in_coordinates(chain, raw.q, raw.qd, raw.qdd)) if where.quaternions else (raw.q, raw.qd, raw.qdd)
    q, qd, qdd = q[:, : chain.nq], qd[:, : chain.nv], qdd[:, : chain.nv]
    measured = np.logical_not(np.isnan(np.asarray(log.tau, float)).any(axis=0))
    measured = np.asarray(measured)
    tau = raw.tau[:, : chain.nv].copy()
    for joint in free:
        tau[:, joint.columns], measured[joint.columns] = 0.0, True
    if log.imu is not None:
        imu = raw.tau[:, chain.nv + 6 * len(log.wrenches) :][:, :6]
        at = free[0].columns
        qd[:, at], qdd[:, at] = _of_imu(chain, raw, imu)
    tau[:, ~measured] = 0.0
    for k, frame in enumerate(log.wrenches):
        wrench = raw.tau[:, chain.nv + 6 * k : chain.nv + 6 * k + 6]
        tau = tau + np.einsum("tij,ti->tj", jacobians(chain, frame, q), wrench)
    samples = dataclasses.replace(raw, q=q, qd=qd, qdd=qdd, tau=tau)
    return MechanismSamples(samples, measured, dict(log.held), tuple(log.constraints))


def narrow_cutoff(chain: Chain, log: MechanismLog) -> float:
    """Default cutoff for robots with a floating base [Hz]: 0.4 times that of `preprocess`, with the same lower limit."""
    check_mechanism_log(chain, log)
    free = [joint.start + k for joint in layout(chain).quaternions for k in range(joint.size + 1)]
    q = np.delete(np.asarray(log.q, float), free, axis=1)
    if not q.shape[1]:
        return LOWEST_CUTOFF
    joints = Log(np.asarray(log.t, float), q, None, np.zeros_like(q), log.source)
    cutoff = Filters().setting(joints).position_cutoff
    return max(min(LOWEST_CUTOFF, cutoff), NARROW * cutoff)


def held_rows(chain: Chain, run: MechanismSamples) -> Float[np.ndarray, "N k nv"]:
    """Jacobian J of all constraints J qd = 0 with unmeasured forces, for each sample."""
    q = run.samples.q
    rows = [np.zeros((len(q), 0, chain.nv))]
    for frame, hold in run.held.items():
        j = jacobians(chain, frame, q)
        rows.append(j if hold == "pose" else j[:, 3:])
    if run.constraints:
        with jax.enable_x64(True):
            model = as_float64(chain)
            rows.append(by_chunks(lambda x: _constraint_jacobians(model, run.constraints, jnp.asarray(x)), q))
    return np.concatenate(rows, axis=1)


def held_bias(chain: Chain, run: MechanismSamples, qd: Float[np.ndarray, "N nv"]) -> Float[np.ndarray, "N k"]:
    """Bias dJ/dt qd of the constraints in `held_rows`."""
    q = run.samples.q
    rows = [np.zeros((len(q), 0))]
    for frame, hold in run.held.items():
        rate = jacobian_rates(chain, frame, q, qd)
        rows.append(rate if hold == "pose" else rate[:, 3:])
    if run.constraints:
        with jax.enable_x64(True):
            model, of = as_float64(chain), run.constraints
            rows.append(by_chunks(lambda *x: _constraint_biases(model, of, *map(jnp.asarray, x)), q, qd))
    return np.concatenate(rows, axis=1)


@jax.jit
def _constraint_jacobians(chain: Chain, constraints: tuple[Constraint, ...], q: Array) -> Array:
    return jax.vmap(lambda x: constraint_jacobian(chain, constraints, x))(q)


@jax.jit
def _constraint_biases(chain: Chain, constraints: tuple[Constraint, ...], q: Array, qd: Array) -> Array:
    return jax.vmap(lambda x, xd: constraint_bias(chain, constraints, x, xd))(q, qd)


def jacobians(chain: Chain, frame: str, q: Float[np.ndarray, "N nq"]) -> Float[np.ndarray, "N 6 nv"]:
    """Body Jacobians of a frame, one per sample."""
    with jax.enable_x64(True):
        model = as_float64(chain)
        return by_chunks(lambda x: _jacobians(model, jnp.asarray(x), frame), q)


def jacobian_rates(
    chain: Chain, frame: str, q: Float[np.ndarray, "N nq"], qd: Float[np.ndarray, "N nv"]
) -> Float[np.ndarray, "N 6"]:
    """Products dJ/dt qd for the body Jacobian J of a frame, one per sample."""
    with jax.enable_x64(True):
        model = as_float64(chain)
        return by_chunks(lambda x, xd: _jacobian_rates(model, jnp.asarray(x), jnp.asarray(xd), frame), q, qd)


@functools.partial(jax.jit, static_argnames="frame")
def _jacobian_rates(chain: Chain, q: Array, qd: Array, frame: str) -> Array:
    return jax.vmap(lambda x, xd: jacobian_derivative(chain, x, xd, frame) @ xd)(q, qd)


@functools.partial(jax.jit, static_argnames="frame")
def _jacobians(chain: Chain, q: Array, frame: str) -> Array:
    return jax.vmap(lambda x: jacobian(chain, x, frame))(q)


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
    for joint in where.quaternions:
        n, nd, ndd = _normalised(*(x[:, joint.quaternion] for x in (r, rd, rdd)))
        q[:, joint.quaternion] = n
        w, wd = 2 * _conjugate_product(n, nd), 2 * _conjugate_product(n, ndd)
        at = joint.column
        v[:, at : at + 3], a[:, at : at + 3] = w, wd
        if joint.size == 6:
            point = slice(joint.start, joint.start + 3)
            rotation = _rotations(n)
            linear = np.einsum("tji,tj->ti", rotation, rd[:, point])
            v[:, at + 3 : at + 6] = linear
            a[:, at + 3 : at + 6] = np.einsum("tji,tj->ti", rotation, rdd[:, point]) - np.cross(w, linear)
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


def _rotations(n: Float[np.ndarray, "N 4"]) -> Float[np.ndarray, "N 3 3"]:
    w, u = n[:, 0], n[:, 1:]
    cross = np.zeros((len(n), 3, 3))
    cross[:, [2, 0, 1], [1, 2, 0]], cross[:, [1, 2, 0], [2, 0, 1]] = u, -u
    return np.eye(3) + 2 * w[:, None, None] * cross + 2 * cross @ cross


def _of_imu(chain: Chain, raw: Samples, imu: Float[np.ndarray, "N 6"]):
    """Velocity and acceleration of a base at the identity pose, from the IMU's angular velocity and specific force."""
    rates = imu[:, :3]
    turning = np.concatenate([differentiate(rates[a:b], raw.rate) for a, b in raw.segments])
    gravity = np.asarray(chain.gravity, float)
    if chain.base_pose is not None:
        gravity = np.asarray(chain.base_pose, float)[:3, :3].T @ gravity
    still = np.zeros_like(rates)
    return np.hstack([rates, still]), np.hstack([turning, imu[:, 3:] + gravity])

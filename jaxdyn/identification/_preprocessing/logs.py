"""Corrections of logs before preprocessing: conversion from motor to joint side, and removal of torque delays."""

import dataclasses
from collections.abc import Iterable

import numpy as np
from jaxtyping import Float, Int
from scipy import interpolate

from ...errors import LogError
from ...io._logs.log import Log
from ...io._logs.rows import segments


def motor_to_joint(
    log: Log,
    position_matrix: Float[np.ndarray, "n n"],
    torque_matrix: Float[np.ndarray, "n n"] | None = None,
    position_offset: float | Float[np.ndarray, " n"] = 0.0,
) -> Log:
    """Convert a motor-side log to the joint side, for drives with gears and couplings.

    The conversion is q = P q_m + q_0, qd = P qd_m and tau = T tau_m, with motor positions q_m, velocities qd_m and
    torques tau_m. Without losses, the power is the same on both sides, tau_m . qd_m = tau . qd. T is therefore P^-T by
    default. The inverse R = P^-1 maps joint positions to motor positions, q_m = R (q - q_0); for gears without
    coupling, R = diag(gear ratios).

    Args:
        log: the log, with positions, velocities and torques of the motors [rad, rad/s, N m].
        position_matrix: P, joint displacement per motor displacement [1 or m/rad].
        torque_matrix: T [1 or rad/m]; by default P^-T.
        position_offset: q_0, the joint positions at motor position zero [rad or m].

    Raises:
        LogError: a matrix is singular or does not have one row and column per joint.
    """
    position = np.asarray(position_matrix, dtype=np.float64)
    for name, matrix in (("position_matrix", position), ("torque_matrix", torque_matrix)):
        if matrix is not None and np.shape(matrix) != (log.n, log.n):
            raise LogError(f"{name} has shape {np.shape(matrix)}; for {log.n} joints it must be ({log.n}, {log.n})")
        if matrix is not None and np.linalg.matrix_rank(matrix) < log.n:
            raise LogError(f"{name} is singular; check its rows")
    torque = np.linalg.inv(position).T if torque_matrix is None else np.asarray(torque_matrix, dtype=np.float64)
    note = "converted from motor side to joint side"
    if torque_matrix is not None and not np.allclose(torque, np.linalg.inv(position).T, rtol=1e-6, atol=1e-9):
        note += "; torque_matrix is not the transposed inverse of position_matrix: power is not conserved"
    return dataclasses.replace(
        log,
        q=log.q @ position.T + np.asarray(position_offset, dtype=np.float64),
        qd=None if log.qd is None else log.qd @ position.T,
        tau=log.tau @ torque.T,
        notes=(*(text for text in log.notes if "are motor-side" not in text), note),
    )


def without_delay(log: Log, seconds: float | Float[np.ndarray, " n"]) -> Log:
    """Return a copy of the log without torque delays, so that the torques and positions of a row are simultaneous.

    The torques tau_j(t + d_j) are interpolated by a cubic spline in each gap-free piece. Rows whose shifted time lies
    outside their piece are discarded.

    Args:
        log: the log.
        seconds: delays d of the torques relative to the positions [s], one for all joints or one per joint, for example
            from `estimate_delay`; negative if the positions are delayed.

    Raises:
        LogError: the number of delays is neither one nor the number of joints, a delay is not finite, or no piece of
            the log is longer than the delays.
    """
    delays = np.broadcast_to(np.asarray(seconds, float), (log.n,)) if np.size(seconds) in (1, log.n) else None
    if delays is None or not np.all(np.isfinite(delays)):
        raise LogError(
            f"{log.source}: the delays are {seconds}; specify one finite number of seconds, or one per joint"
        )
    kept, tau = shifted_torques(log.t, log.tau, segments(log.t), delays[:, None])
    if not len(kept):
        raise LogError(
            f"{log.source}: no piece of the log is longer than the delays, {np.abs(delays).max():.3g} s; "
            "log a longer run"
        )
    listed = ", ".join(f"{1e3 * d:.3g}" for d in delays)
    return dataclasses.replace(
        log,
        t=log.t[kept],
        q=log.q[kept],
        qd=None if log.qd is None else log.qd[kept],
        tau=tau[:, :, 0],
        temperature=None if log.temperature is None else log.temperature[kept],
        notes=(*log.notes, f"torque delays were removed, by joint: {listed} ms"),
    )


def shifted_torques(
    t: Float[np.ndarray, " N"],
    tau: Float[np.ndarray, "N n"],
    pieces: Iterable[tuple[int, int]],
    shifts: Float[np.ndarray, "n k"],
) -> tuple[Int[np.ndarray, " M"], Float[np.ndarray, "M n k"]]:
    """Indices of the rows whose shifted times lie within their piece, and the torques tau_j(t + shifts_jk) at these rows."""
    least, most = min(shifts.min(), 0.0), max(shifts.max(), 0.0)
    rows, found = [np.zeros(0, int)], [np.zeros((0, *shifts.shape))]
    for start, stop in pieces:
        own = t[start:stop]
        inside = (own + least >= own[0]) & (own + most <= own[-1])
        if len(own) < 4 or not inside.any():
            continue
        splines = interpolate.CubicSpline(own, tau[start:stop])
        at = {d: splines(own[inside] + d) for d in np.unique(shifts).tolist()}
        rows.append(start + np.flatnonzero(inside))
        found.append(np.stack([np.stack([at[d][:, j] for d in row], 1) for j, row in enumerate(shifts.tolist())], 1))
    return np.concatenate(rows), np.concatenate(found)

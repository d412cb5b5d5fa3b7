"""Zero-phase filters and derivatives of uniform samples, and corrections of logs: motor to joint side, and delays."""

import dataclasses
from collections.abc import Iterable

import numpy as np
from jaxtyping import Float, Int
from scipy import interpolate, signal

from ..errors import LogError
from ..io.logs import Log
from ..io.tables import segments

_TAIL = 3.0  # largest bandwidth of a motion, relative to the frequency below which 90 % of its power lies
_STEEP = 64.0  # largest factor by which the amplitude can decrease within an octave without a filter
_RESTS = 8.0  # a joint with less than 90 % of its velocity's power below this frequency counts as at rest [Hz]


def low_pass(
    values: Float[np.ndarray, "N ..."], rate: float, cutoff: float, order: int = 4
) -> Float[np.ndarray, "N ..."]:
    """Apply a Butterworth low-pass filter forwards and backwards along the first axis, without phase lag.

    The combined gain of both passes is |H(f)|^2 = 1 / (1 + (tan(pi f / rate) / tan(pi cutoff / rate))^(2 order)). It is
    one half at the cutoff and, for order 4, 0.996 at half the cutoff.

    The signal is extended at both ends by point reflection over three periods of the cutoff frequency. This makes the
    second derivative discontinuous at the ends; for order 4, the effect on the output decays by a factor of ten per
    period.

    Args:
        values: evenly spaced samples.
        rate: sample rate [1/s].
        cutoff: frequency with a gain of one half [Hz].
        order: order of each pass.

    Raises:
        LogError: the cutoff is not between 0 and half the rate, or the order is not positive.
    """
    if not 0 < cutoff < rate / 2:
        raise LogError(f"the cutoff is {cutoff:g} Hz; it must be between 0 and half the rate, {rate / 2:.5g} Hz")
    if order < 1:
        raise LogError(f"the filter's order is {order}; it must be at least 1")
    sections = signal.butter(order, cutoff, fs=rate, output="sos")
    reflected = min(len(values) - 1, max(9, int(3 * rate / cutoff)))
    return signal.sosfiltfilt(sections, values, axis=0, padlen=reflected)


def differentiate(values: Float[np.ndarray, "N ..."], rate: float) -> Float[np.ndarray, "N ..."]:
    """Compute the first derivative along the first axis by sixth-order central differences.

    x'_k = rate (45 (x_k+1 - x_k-1) - 9 (x_k+2 - x_k-2) + (x_k+3 - x_k-3)) / 60. For a sine of frequency f, this
    underestimates the derivative by a fraction of (2 pi f / rate)^6 / 140, for example 2e-6 at 4 Hz and 100 samples per
    second. At the three samples at either end, the derivative is accurate to second order. At least three samples are
    needed; the rate is in 1/s.
    """
    x, out = values, np.gradient(values, 1 / rate, axis=0, edge_order=2)
    if len(x) >= 7:
        out[3:-3] = (45 * (x[4:-2] - x[2:-4]) - 9 * (x[5:-1] - x[1:-5]) + (x[6:] - x[:-6])) * (rate / 60)
    return out


def bandwidth(q: Float[np.ndarray, "N n"], rate: float) -> float:
    """Frequency below which 99 % of the velocity's power lies, for the fastest joint [Hz]; 0 if nothing moves.

    The power spectrum of the velocity is (2 pi f)^2 times the spectrum of q by Welch's method, with segments of 4 s.
    The following rules exclude vibration and the noise of differentiated positions:

    - frequencies above 25 Hz, at which robots do not move intentionally, are ignored;
    - for each joint, only power above twice the median of its spectrum (the noise floor) is included;
    - the result is limited to three times the frequency below which 90 % of the power lies: for a motion with
      continuous acceleration, the spectrum falls as f^-4 or faster, so the 99 % frequency is at most 2.2 times the 90 %
      frequency;
    - joints with more than 10 % of their power above 8 Hz (sensor noise at rest) are ignored, as are joints whose RMS
      velocity is at most a tenth of that of the fastest joint.
    """
    frequency, power = signal.welch(
        q - q.mean(axis=0), rate, nperseg=min(len(q), int(4 * rate)), axis=0, detrend="linear"
    )
    within = (frequency > 0) & (frequency <= 25.0)
    frequency, power = frequency[within], power[within] * (frequency[within] ** 2)[:, None]
    if not power.any():
        return 0.0
    total = power.sum(axis=0)
    counted = total > 0.01 * total.max()
    below = lambda x, part: frequency[np.argmax(np.cumsum(x, axis=0) >= part * x.sum(axis=0), axis=0)]
    power = power[:, counted]
    most = below(power, 0.9)
    band = np.minimum(below(np.maximum(power - 2 * np.median(power, axis=0), 0.0), 0.99), _TAIL * most)
    return float(band[most <= _RESTS].max(initial=0.0))


def low_pass_before(tau: Float[np.ndarray, "N n"], rate: float) -> float | None:
    """Estimate the cutoff of a low-pass filter applied to the torques before logging [Hz]; None if none is detected.

    Jumps of dry friction make the amplitude spectrum decrease like 1/f, and sensor noise makes it level off at high
    frequencies. If the amplitude decreases by more than a factor of 64 from f to 2 f (median over the joints), the
    torques were therefore most likely filtered. The cutoff is estimated as f / 0.78: with this cutoff, the gain of
    `low_pass` decreases by a factor of 32 from f to 2 f, and friction accounts for the remaining factor of two.
    """
    frequency, power = signal.welch(
        tau - tau.mean(axis=0), rate, "blackmanharris", min(len(tau), int(8 * rate)), axis=0, detrend="linear"
    )
    power = power[:, power.any(axis=0)]
    if not power.shape[1] or rate < 5.0 or frequency[1] > 0.15:  # no octave from 0.5 Hz upwards is resolved
        return None

    def amplitude(f: float) -> np.ndarray:
        return np.sqrt(power[(frequency > f / 1.2) & (frequency < 1.2 * f)].mean(axis=0))

    tried = np.geomspace(0.5, rate / 5, 64).tolist()
    steep = (f for f in tried if np.median(amplitude(f) / np.maximum(amplitude(2 * f), 1e-300)) > _STEEP)
    first = next(steep, None)
    return None if first is None else first / 0.78


# -- logs


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

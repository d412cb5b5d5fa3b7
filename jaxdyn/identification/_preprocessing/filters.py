"""Filters and derivatives of evenly spaced samples, all without lag."""

import numpy as np
from jaxtyping import Float
from scipy import signal

from ...errors import LogError


def low_pass(
    values: Float[np.ndarray, "N ..."], rate: float, cutoff: float, order: int = 4
) -> Float[np.ndarray, "N ..."]:
    """Zero-phase Butterworth low-pass along the first axis: the filter runs forwards, then backwards, so nothing lags.

    Its gain is |H(f)|^2 = 1 / (1 + (tan(pi f / rate) / tan(pi cutoff / rate))^(2 order)): one half at the cutoff, 0.996
    at half of it for order 4. The ends are continued by point reflection over three periods of the cutoff. The second
    derivative breaks there, and what the break does to the output falls, for order 4, by a factor of ten a period.

    Args:
        values: evenly spaced samples.
        rate: samples a second [1/s].
        cutoff: where the gain is one half [Hz].
        order: order of the Butterworth filter; the two passes together roll off like twice the order.

    Raises:
        LogError: the cutoff is not between 0 and half the rate, or the order is not positive.
    """
    if not 0 < cutoff < rate / 2:
        raise LogError(f"the cutoff is {cutoff:g} Hz; it lies between 0 and half the rate, {rate / 2:.5g} Hz")
    if order < 1:
        raise LogError(f"the filter's order is {order}; it is 1 or more")
    sections = signal.butter(order, cutoff, fs=rate, output="sos")
    reflected = min(len(values) - 1, max(9, int(3 * rate / cutoff)))
    return signal.sosfiltfilt(sections, values, axis=0, padlen=reflected)


def differentiate(values: Float[np.ndarray, "N ..."], rate: float) -> Float[np.ndarray, "N ..."]:
    """First derivative along the first axis by central differences of sixth order.

    x'_k = rate (45 (x_k+1 - x_k-1) - 9 (x_k+2 - x_k-2) + (x_k+3 - x_k-3)) / 60. A sine of f Hz comes out too small by
    (2 pi f / rate)^6 / 140 of its size: 2e-6 at 4 Hz and 100 samples a second. Second order in the three samples at
    either end.

    Args:
        values: evenly spaced samples, three at least.
        rate: samples a second [1/s].
    """
    x = values
    out = np.gradient(x, 1 / rate, axis=0, edge_order=2)
    if len(x) >= 7:
        out[3:-3] = (45 * (x[4:-2] - x[2:-4]) - 9 * (x[5:-1] - x[1:-5]) + (x[6:] - x[:-6])) * (rate / 60)
    return out


def bandwidth(q: Float[np.ndarray, "N n"], rate: float) -> float:
    """Frequency below which 99 % of the velocity's power lies, for the fastest joint [Hz].

    From Welch's spectrum of q times (2 pi f)^2, in stretches of 4 s; nothing above 25 Hz is counted, where no robot
    moves on purpose and the noise of differentiated positions would decide. Joints a tenth as fast as the fastest, or
    slower, are not counted either.
    """
    frequency, power = signal.welch(
        q - q.mean(axis=0), rate, nperseg=min(len(q), int(4 * rate)), axis=0, detrend="linear"
    )
    power = power * (np.where(frequency <= 25.0, frequency, 0.0) ** 2)[:, None]
    total = power.sum(axis=0)
    counted = total > 0.01 * total.max()
    share = np.cumsum(power[:, counted], axis=0) / total[counted]
    return float(max((frequency[np.argmax(s >= 0.99)] for s in share.T), default=0.0))

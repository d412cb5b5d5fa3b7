"""Zero-phase filters and derivatives of uniform samples."""

import numpy as np
from jaxtyping import Float
from scipy import signal

from ...errors import LogError

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
        order: order of the Butterworth filter; the two passes together roll off like a filter of twice this order.

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
    second. At the three samples at either end, the derivative is accurate to second order.

    Args:
        values: at least three evenly spaced samples.
        rate: sample rate [1/s].
    """
    x = values
    out = np.gradient(x, 1 / rate, axis=0, edge_order=2)
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

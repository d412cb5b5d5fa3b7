"""Preprocessing of logs read in chunks, in windows that overlap by the length of the filter's transients."""

import math
from collections.abc import Iterable, Iterator

import numpy as np

from ...errors import LogError
from ...io._logs.log import Log
from .samples import LEAST_SAMPLES, Filters, Samples, Setting, even_samples

MEMORY = 38.0  # e-folds after which a filter's transient is below rounding error in float64
SPLINE = 40  # number of samples after which the end conditions of a cubic spline have no effect


def preprocess_stream(
    chunks: Iterable[Log], filters: Filters | None = None, *, rate: float | None = None
) -> Iterator[Samples]:
    """Resample, filter, differentiate and decimate a log read in chunks, as `preprocess` does in memory.

    The chunks are consecutive parts of one log; a time step longer than `gap` separates two pieces. One chunk and the
    overlap of the filtered windows are held in memory.

    The windows overlap by 38 / (2 pi sin(pi / (2 order))) periods of the cutoff on either side (16 periods for order
    4), after which the filter's transients are below rounding error. The samples are therefore the same, up to
    rounding, as those of `preprocess` with equal cutoffs, rate and gap.

    Args:
        chunks: parts of a log in order, for example from `read_log_chunks`.
        filters: as for `preprocess`, without a delay; by default chosen from the first chunk.
        rate: sample rate of the uniform grid [1/s]; by default the mean rate of the first chunk. If the time steps
            jitter, specify the mean rate of the whole log.

    Yields:
        Gap-free samples, each in a single piece.

    Raises:
        LogError: as for `preprocess`; or `filters` contains a delay, time does not increase between chunks, or chunks
            have different numbers of joints.
    """
    filters = filters or Filters()
    if filters.delay is not None:
        raise LogError("delays cannot be removed from a log in chunks: apply `without_delay` to the whole log")
    setting: Setting | None = None
    window: _Window | None = None
    found = False
    for log in chunks:
        if setting is None:
            setting = filters.setting(log, rate)
            window = _Window(setting, log.n)
        assert window is not None
        if log.n != window.n:
            raise LogError(f"{log.source}: a chunk has {log.n} joints, but earlier chunks had {window.n}")
        rows = np.column_stack([log.t, log.q, log.tau])
        if len(window.rows) and rows[0, 0] <= window.rows[-1, 0]:
            raise LogError(
                f"{log.source}: time does not increase between chunks: {rows[0, 0]:.9g} s follows {window.rows[-1, 0]:.9g} s"
            )
        for part in np.split(rows, np.flatnonzero(np.diff(rows[:, 0]) > setting.gap) + 1):
            if len(window.rows) and part[0, 0] - window.rows[-1, 0] > setting.gap:
                yield from (made := window.finished())
                found |= bool(made)
                window = _Window(setting, log.n)
            window.rows = np.concatenate([window.rows, part])
        yield from (made := window.advanced())
        found |= bool(made)
    if window is not None:
        yield from (made := window.finished())
        found |= bool(made)
    if not found:
        raise LogError("no piece of the log is long enough for the filter: log a longer run, or specify higher cutoffs")


def _overlap(s: Setting) -> int:
    """Number of samples after which the filter's initial state has no effect."""
    periods = MEMORY / (2 * math.pi * math.sin(math.pi / (2 * s.order)))
    return math.ceil(periods * s.rate / min(s.position_cutoff, s.torque_cutoff)) + SPLINE


class _Window:
    """The rows (t, q, tau) of a piece that are still needed: the overlap before the next sample, and all later rows."""

    def __init__(self, setting: Setting, n: int):
        self.setting, self.n, self.overlap = setting, n, _overlap(setting)
        self.rows = np.zeros((0, 1 + 2 * n))
        self.start: float | None = None  # start of the piece's grid
        self.next = 0  # index of the next sample in the grid

    def advanced(self) -> list[Samples]:
        """The samples beyond the reach of the filter's transients."""
        if not len(self.rows):
            return []
        keep = self._length() - self.overlap - self.setting.margin
        if keep - self.next < self.overlap // 4:
            return []
        return self._emitted(keep)

    def finished(self) -> list[Samples]:
        """The remaining samples of the piece."""
        s = self.setting
        if not len(self.rows) or (self._length() < 2 * s.margin + LEAST_SAMPLES * s.stride and self.next == 0):
            return []
        return self._emitted(self._length() - s.margin)

    def _length(self) -> int:
        start = self.rows[0, 0] if self.start is None else self.start
        return int((self.rows[-1, 0] - start) * self.setting.rate + 1e-6) + 1

    def _emitted(self, stop: int) -> list[Samples]:
        s, t = self.setting, self.rows[:, 0]
        made = even_samples(t, self.rows[:, 1:], self.n, s, self.start)
        first = made.first
        self.start = float(made.columns[0][0]) if self.start is None else self.start
        begin = max(self.next, s.margin)
        begin += -(begin - s.margin) % s.stride
        chosen = slice(begin - first, max(stop - first, 0), s.stride)
        t, q, qd, qdd, tau = (x[chosen] for x in made.columns[:5])
        self.next = max(stop, self.next)
        self.rows = self.rows[self.rows[:, 0] >= self.start + (self.next - self.overlap) / s.rate]
        piece = ((0, len(t)),)
        samples = Samples(t, q, qd, qdd, tau, s.rate / s.stride, piece, s.position_cutoff, s.torque_cutoff)
        return [samples] if len(t) else []

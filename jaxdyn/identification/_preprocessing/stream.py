"""`preprocess` for logs that come in chunks: windows that overlap by as much as the filter remembers."""

import dataclasses
import math
from collections.abc import Iterable, Iterator

import numpy as np
from scipy import interpolate

from ...errors import LogError
from ...io._logs.log import Log
from ...io._logs.rows import GAP
from .filters import differentiate, low_pass
from .samples import LEAST_SAMPLES, Samples, Setting, default_cutoff, stale_rows

MEMORY = 38.0  # e-folds after which nothing is left of a filter's transient in float64
SPLINE = 40  # samples over which a cubic spline forgets its ends


def preprocess_stream(
    chunks: Iterable[Log],
    *,
    position_cutoff: float | None = None,
    torque_cutoff: float | None = None,
    rate: float | None = None,
    stride: int | None = None,
    order: int = 4,
    margin: float | None = None,
    gap: float | None = None,
) -> Iterator[Samples]:
    """Resamples, filters, differentiates and thins a log that comes in chunks, as `preprocess` does it in memory.

    The chunks are windows of one log: time goes on from one to the next, and a step longer than `gap` parts two pieces. What
    the filter sees of a piece overlaps by 38 / (2 pi sin(pi / (2 order))) periods of the cutoff (16 for order 4) on either
    side of what is kept, where its transients have fallen below rounding, so that the samples are those of `preprocess`
    with the same cutoffs, rate and gap, to rounding. What is held: a chunk and the overlap.

    Args:
        chunks: parts of a log in order, as from `read_log_chunks`.
        position_cutoff: as for `preprocess`; by default chosen from the first chunk.
        torque_cutoff: likewise.
        rate: samples a second of the even grid [1/s]; by default the first chunk's mean. Give it where steps jitter and
            the grid is to be that of the whole log.
        stride: as for `preprocess`.
        order: as for `preprocess`.
        margin: as for `preprocess`.
        gap: as for `preprocess`.

    Yields:
        samples without a gap, one piece each.

    Raises:
        LogError: as `preprocess`; time that does not increase from one chunk to the next; another number of joints.
    """
    setting: _Setting | None = None
    window: _Window | None = None
    found = False
    for log in chunks:
        if setting is None:
            setting = _choose(log, position_cutoff, torque_cutoff, rate, stride, order, margin, gap)
            window = _Window(setting, log.n)
        assert window is not None
        if log.n != window.n:
            raise LogError(f"{log.source}: a chunk has {log.n} joints, those before it had {window.n}")
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
        raise LogError("no piece of the log is long enough for the filter: log a longer run, or give higher cutoffs")


@dataclasses.dataclass(frozen=True)
class _Setting(Setting):
    @property
    def overlap(self) -> int:
        """Samples after which the filter has forgotten where it started."""
        periods = MEMORY / (2 * math.pi * math.sin(math.pi / (2 * self.order)))
        return math.ceil(periods * self.rate / min(self.position_cutoff, self.torque_cutoff)) + SPLINE


class _Window:
    """What is held of one piece: rows (t, q, tau) from the overlap before the next sample on."""

    def __init__(self, setting: _Setting, n: int):
        self.setting, self.n = setting, n
        self.rows = np.zeros((0, 1 + 2 * n))
        self.start: float | None = None  # of the piece's grid
        self.next = 0  # place in the grid of the next sample

    def advanced(self) -> list[Samples]:
        """The samples whose surroundings are known."""
        if not len(self.rows):
            return []
        keep = self._length() - self.setting.overlap - self.setting.margin
        if keep - self.next < self.setting.overlap // 4:
            return []
        return self._emitted(keep)

    def finished(self) -> list[Samples]:
        """The rest of the piece."""
        s = self.setting
        if not len(self.rows) or (self._length() < 2 * s.margin + LEAST_SAMPLES * s.stride and self.next == 0):
            return []
        return self._emitted(self._length() - s.margin)

    def _length(self) -> int:
        start = self.rows[0, 0] if self.start is None else self.start
        return int((self.rows[-1, 0] - start) * self.setting.rate + 1e-6) + 1

    def _emitted(self, stop: int) -> list[Samples]:
        s, n = self.setting, self.n
        t, values = self.rows[:, 0], self.rows[:, 1:]
        keep = ~stale_rows(t, values, s.gap)
        keep &= ~np.concatenate([[False], np.diff(t) < 0.25 * s.step])
        t, values = t[keep], values[keep]
        if self.start is None:
            self.start = float(t[0])
        first = math.ceil((t[0] - self.start) * s.rate - 1e-2)  # an even row counts as on the grid
        grid = self.start + np.arange(first, int((t[-1] - self.start) * s.rate + 1e-6) + 1) / s.rate
        even = len(grid) == len(t) and bool(np.abs(grid - t).max() < 0.01 / s.rate)
        if not even:
            values = interpolate.CubicSpline(t, values)(np.clip(grid, t[0], t[-1]))
        q = low_pass(values[:, :n], s.rate, s.position_cutoff, s.order)
        tau = low_pass(values[:, n:], s.rate, s.torque_cutoff, s.order)
        qd = differentiate(q, s.rate)
        qdd = differentiate(qd, s.rate)
        begin = max(self.next, s.margin)
        begin += -(begin - s.margin) % s.stride
        chosen = slice(begin - first, max(stop - first, 0), s.stride)
        t, q, qd, qdd, tau = (x[chosen] for x in (grid, q, qd, qdd, tau))
        self.next = max(stop, self.next)
        self.rows = self.rows[self.rows[:, 0] >= self.start + (self.next - s.overlap) / s.rate]
        piece = ((0, len(t)),)
        made = Samples(t, q, qd, qdd, tau, s.rate / s.stride, piece, s.position_cutoff, s.torque_cutoff)
        return [made] if len(t) else []


def _choose(
    log: Log,
    position_cutoff: float | None,
    torque_cutoff: float | None,
    rate: float | None,
    stride: int | None,
    order: int,
    margin: float | None,
    gap: float | None,
) -> _Setting:
    """What `preprocess` would choose for the first chunk."""
    steps = np.diff(log.t)
    step = float(np.median(steps))
    of = lambda longest: float(1 / steps[steps <= max(longest, steps.min())].mean())
    coarse = rate or of(GAP * step)
    if position_cutoff is None:
        position_cutoff = torque_cutoff if torque_cutoff is not None else default_cutoff(log, coarse)
    torque_cutoff = position_cutoff if torque_cutoff is None else torque_cutoff
    lower, higher = sorted((position_cutoff, torque_cutoff))
    gap = max(GAP * step, 0.1 / max(higher, 1e-9)) if gap is None else gap
    rate = rate or of(gap)
    if not 0 < lower <= higher < rate / 2:
        raise LogError(
            f"{log.source}: the cutoffs are {position_cutoff:g} Hz on q and {torque_cutoff:g} Hz on tau; "
            f"both lie between 0 and half the log's rate, {rate / 2:.5g} Hz"
        )
    stride = max(1, int(rate / (10 * higher))) if stride is None else stride
    margin = 2 / lower if margin is None else margin
    if stride < 1 or margin < 0:
        raise LogError(f"stride is {stride} samples and margin {margin:g} s; they are at least 1 and 0")
    return _Setting(rate, step, gap, position_cutoff, torque_cutoff, order, round(margin * rate), stride)

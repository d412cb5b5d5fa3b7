"""From a log to the samples an identification needs: evenly spaced, filtered without lag, with all derivatives."""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import interpolate

from ...errors import LogError
from ...io._logs.log import Log
from ...io._logs.rows import GAP, segments
from .filters import bandwidth, differentiate, low_pass
from .logs import without_delay

LOWEST_CUTOFF = 8.0  # [Hz]
LEAST_SAMPLES = 10  # a shorter piece is left out


@dataclasses.dataclass(frozen=True, eq=False)
class Samples:
    """N evenly spaced samples of a run, in pieces without gaps.

    Attributes:
        t: time [s].
        q: joint positions, low-passed [rad or m].
        qd: their derivative [rad/s or m/s].
        qdd: their second derivative [rad/s^2 or m/s^2].
        tau: joint torques, low-passed [N m or N].
        rate: samples per second within a piece [1/s].
        segments: (start, stop) of each piece, stop left out.
        position_cutoff: cutoff of the low-pass on q [Hz].
        torque_cutoff: cutoff of the low-pass on tau, here or before it was logged [Hz].
        notes: remarks of the reader and the preprocessing.
        source: the log they come from.
    """

    t: Float[np.ndarray, " N"]
    q: Float[np.ndarray, "N nq"]
    qd: Float[np.ndarray, "N n"]
    qdd: Float[np.ndarray, "N n"]
    tau: Float[np.ndarray, "N n"]
    rate: float
    segments: tuple[tuple[int, int], ...]
    position_cutoff: float
    torque_cutoff: float
    notes: tuple[str, ...] = ()
    source: str = "memory"

    @property
    def n(self) -> int:
        """Number of joints (of velocities, where positions hold quaternions)."""
        return self.qd.shape[1]

    def rows(
        self, chosen: slice | Int[np.ndarray, " M"], segments: Iterable[tuple[int, int]], **changes: Any
    ) -> "Samples":
        """Some of the samples, which make these pieces."""
        cut = {name: getattr(self, name)[chosen] for name in ("t", "q", "qd", "qdd", "tau")}
        return dataclasses.replace(self, **cut, segments=tuple(segments), **changes)

    def part(self, start: int, stop: int) -> "Samples":
        """The samples from `start` on, `stop` left out."""
        clipped = [(max(a, start) - start, min(b, stop) - start) for a, b in self.segments]
        return self.rows(slice(start, stop), (piece for piece in clipped if piece[0] < piece[1]))

    @property
    def independence(self) -> float:
        """Share of the samples that are independent: filtered noise repeats itself at rates above twice its bandwidth.

        0.9 of the cutoff is the bandwidth of white noise behind the forward and backward filter of fourth order.
        """
        return float(min(1.0, 2 * 0.9 * self.torque_cutoff / self.rate))

    def __len__(self) -> int:
        return len(self.t)

    def __repr__(self) -> str:
        return (
            f"Samples({len(self)} at {self.rate:.5g} Hz in {len(self.segments)} pieces, {self.n} joints, cutoffs "
            f"{self.position_cutoff:g} Hz on q, {self.torque_cutoff:g} Hz on tau)"
        )


@dataclasses.dataclass(frozen=True)
class Filters:
    """Settings of `preprocess`; None is chosen from the log, or the first of several.

    Attributes:
        position_cutoff: where the amplitude of q falls to a half [Hz]; by default that of tau where it is given, else
            8 Hz; for fast motion ten times the motion's band, the frequency below which 99 % of the velocity's power above
            its floor of noise lies, in whole Hz, if that is more; at most a fifth of the log's rate. A note says which and
            why.
        torque_cutoff: the same for tau; by default that of q.
        stride: by default the one that leaves at least ten samples a period of the higher cutoff.
        delay: how much later than the positions the torques were logged [s], one number or one per joint, taken out
            first (`without_delay`); where None, `identify` chooses it.
        order: order of the Butterworth filter, run forwards and backwards.
        margin: dropped at each end of each piece [s]; by default two periods of the lower cutoff, which leave
            1 % of what the ends do to qdd.
        gap: a longer time step parts two pieces [s]; by default 5 median steps, or a tenth of a period of the higher
            cutoff if that is more: a cubic bridges it without loss.
        logged_cutoff: low-pass that the torques went through before they were logged [Hz], without lag and of this order: they
            are taken as they are, in place of `torque_cutoff`, and a model's friction goes through the same filter. Where None,
            `identify` looks for one.
    """

    position_cutoff: float | None = None
    torque_cutoff: float | None = None
    stride: int | None = None
    delay: float | Sequence[float] | Float[np.ndarray, " n"] | None = None
    order: int = 4
    margin: float | None = None
    gap: float | None = None
    logged_cutoff: float | None = None

    def but(self, **changes: Any) -> "Filters":
        """These filters with some fields changed."""
        return dataclasses.replace(self, **changes)

    def setting(self, log: Log, rate: float | None = None) -> "Setting":
        """All of it in numbers, for one log.

        Args:
            log: the log.
            rate: samples a second of the even grid [1/s]; the log's mean where None.

        Raises:
            LogError: a cutoff is not between 0 and half the rate; stride or margin are too small.
        """
        steps = np.diff(log.t)
        step = float(np.median(steps))
        # by the mean of all steps but the gaps: one rate for all pieces
        mean_rate = lambda gap: float(1 / steps[steps <= max(gap, steps.min())].mean())
        position, why, before = self.position_cutoff, "", self.logged_cutoff
        torque = self.torque_cutoff if before is None else None
        if position is None:
            usual = (torque, "") if torque is not None else default_cutoff(log, rate or mean_rate(GAP * step))
            position, why = usual
        torque = before if before is not None else position if torque is None else torque
        lower, higher = sorted((position, torque))
        gap = max(GAP * step, 0.1 / max(higher, 1e-9)) if self.gap is None else self.gap
        rate = rate or mean_rate(gap)
        if not 0 < lower <= higher < rate / 2:
            raise LogError(
                f"{log.source}: the cutoffs are {position:g} Hz on q and {torque:g} Hz on tau; "
                f"both lie between 0 and half the log's rate, {rate / 2:.5g} Hz"
            )
        stride = default_stride(rate, higher) if self.stride is None else self.stride
        margin = 2 / lower if self.margin is None else self.margin
        if stride < 1 or margin < 0:
            raise LogError(
                f"{log.source}: stride is {stride} samples and margin {margin:g} s; they are at least 1 and 0"
            )
        return Setting(
            rate, step, gap, position, torque, self.order, round(margin * rate), stride, why, before is not None
        )


def preprocess(log: Log, filters: Filters | None = None) -> Samples:
    """Resamples, filters, differentiates and thins a log, each gap-free piece of it by itself.

    1. Delays of the torques that are given are taken out, and the log is cut into pieces where a time step exceeds `gap`.
    2. Stale rows (every number that of the row before, for less than a gap) and rows closer than a quarter of the
       median step to the one before are left out.
    3. Where steps are uneven, cubic splines give q and tau on a uniform grid at the log's mean rate.
    4. q and tau go through `low_pass`, a zero-phase Butterworth filter.
    5. qd and qdd are the first and second derivative of the filtered q (`differentiate`), so that they fit together.
    6. `margin` is dropped at both ends of each piece, where the filter has to guess what came before or after.
    7. Every `stride`-th sample is kept.

    Logged velocities are not used: what filter and delay the controller put on them is not known. How far they differ
    is noted. With one cutoff for q and tau (the default) both sides of tau = Y pi see the same filter as far as Y is
    linear in the motion. To filter them exactly alike, use stride 1, and `low_pass` on tau and on every column of
    Y with one cutoff, below that of q, before thinning both.

    Args:
        log: the log, checked.
        filters: cutoffs, stride and the like.

    Raises:
        LogError: a cutoff is not between 0 and half the log's rate; nothing is left: the pieces are too short; the delay is not
            given in numbers.

    Cost: about 0.1 s for 20 000 rows of 7 joints.
    """
    filters = filters or Filters()
    if filters.delay is not None:
        log = without_delay(log, np.asarray(filters.delay, float))
    setting = filters.setting(log)
    parts = segments(log.t, setting.gap)
    pieces = [piece for part in parts if (piece := _piece(log, *part, setting)) is not None]
    span = (2 * setting.margin + LEAST_SAMPLES * setting.stride) / setting.rate
    if not pieces:
        raise LogError(
            f"{log.source}: no piece of the log is long enough: each needs {span:.3g} s "
            f"without a gap of over {setting.gap:.3g} s. "
            "Log a longer run, or give a larger gap, higher cutoffs or a smaller margin"
        )
    t, q, qd, qdd, tau, logged = (np.concatenate([piece.columns[k] for piece in pieces]) for k in range(6))
    ends = np.cumsum([0, *(len(piece.columns[0]) for piece in pieces)]).tolist()
    notes = [*log.notes, *_notes(parts, pieces, setting, span)]
    if log.qd is not None:
        notes.append(_compare(qd, logged))
    rate, cutoffs = setting.rate / setting.stride, (setting.position_cutoff, setting.torque_cutoff)
    return Samples(t, q, qd, qdd, tau, rate, tuple(itertools.pairwise(ends)), *cutoffs, tuple(notes), log.source)


def preprocess_alike(
    runs: Log | Samples | Iterable[Log | Samples], filters: Filters | None = None
) -> Iterator[Samples]:
    """One run, or several behind one filter: what is chosen for the first holds for all, as errors are comparable only so.

    Samples pass as they are; what they were filtered with holds for those that follow.
    """
    filters = filters or Filters()
    for run in [runs] if isinstance(runs, Log | Samples) else runs:
        samples = preprocess(run, filters) if isinstance(run, Log) else run
        filters = filters.but(position_cutoff=samples.position_cutoff, torque_cutoff=samples.torque_cutoff)
        yield samples


@dataclasses.dataclass(frozen=True)
class Setting:
    """Settings to cut, filter and thin a log: rates in Hz, steps and gaps in seconds, the rest in samples."""

    rate: float
    step: float
    gap: float
    position_cutoff: float
    torque_cutoff: float
    order: int
    margin: int
    stride: int
    why: str = ""  # these cutoffs, where they were chosen
    torque_as_logged: bool = False  # the torques went through their low-pass before


@dataclasses.dataclass(frozen=True, eq=False)
class _Piece:
    columns: tuple[np.ndarray, ...]  # t, q, qd, qdd, tau, logged qd (N, 0) or (N, n)
    first: int  # place of the first sample in the grid
    stale: int
    close: int
    resampled: bool


def left_out_deviations(values: Float[np.ndarray, "k ..."]) -> Float[np.ndarray, "..."]:
    """Standard deviations from k estimates, each with another of k blocks left out (jackknife)."""
    return np.sqrt((1 - 1 / len(values)) * ((values - values.mean(axis=0)) ** 2).sum(axis=0))


def default_stride(rate: float, cutoff: float) -> int:
    """Every how many samples at least ten a period of the cutoff are left."""
    return max(1, int(rate / (10 * cutoff)))


def default_cutoff(log: Log, rate: float) -> tuple[float, str]:
    """The low-pass cutoff that is taken where none is given [Hz], and why."""
    start, stop = max(segments(log.t), key=lambda part: part[1] - part[0])
    t, highest = log.t[start:stop], rate / 5
    if len(t) < LEAST_SAMPLES:
        return min(LOWEST_CUTOFF, highest), "the log is too short to determine the motion's band"
    grid = np.arange(t[0], t[-1], 1 / rate)
    q = np.stack([np.interp(grid, t, log.q[start:stop, j]) for j in range(log.n)], axis=1)
    band = bandwidth(q, rate)
    wanted = max(LOWEST_CUTOFF, float(round(10 * band)))
    why = f"the motion's band reaches {band:.3g} Hz, and ten times that is "
    why += f"less than the {LOWEST_CUTOFF:g} Hz taken at least" if wanted == LOWEST_CUTOFF else "taken"
    return (wanted, why) if wanted <= highest else (highest, f"{why}, but no more than a fifth of the rate")


def _piece(log: Log, start: int, stop: int, setting: Setting) -> _Piece | None:
    """One gap-free piece, filtered and thinned; None where it is too short."""
    if (log.t[stop - 1] - log.t[start]) * setting.rate + 1 < 2 * setting.margin + LEAST_SAMPLES * setting.stride:
        return None
    logged = np.zeros((len(log.t), 0)) if log.qd is None else log.qd
    made = even_samples(log.t[start:stop], np.hstack([log.q, log.tau, logged])[start:stop], log.n, setting)
    thin = slice(setting.margin, len(made.columns[0]) - setting.margin, setting.stride)
    return dataclasses.replace(made, columns=tuple(column[thin] for column in made.columns))


def even_samples(
    t: Float[np.ndarray, " N"], values: Float[np.ndarray, "N m"], n: int, setting: Setting, origin: float | None = None
) -> _Piece:
    """Rows (q, tau, logged qd) of a piece without stale ones, on an even grid, filtered and differentiated.

    Args:
        n: number of joints.
        origin: a time of the grid; the first row's where None [s].
    """
    stale = stale_rows(t, values, setting.gap)
    close = np.concatenate([[False], np.diff(t) < 0.25 * setting.step]) & ~stale
    keep = ~(stale | close)
    t, values = t[keep], values[keep]
    origin = float(t[0]) if origin is None else origin
    first = math.ceil((t[0] - origin) * setting.rate - 1e-2)  # an even row counts as on the grid
    grid = origin + np.arange(first, int((t[-1] - origin) * setting.rate + 1e-6) + 1) / setting.rate
    even = len(grid) == len(t) and bool(np.abs(grid - t).max() < 0.01 / setting.rate)
    if not even:
        values = interpolate.CubicSpline(t, values)(np.clip(grid, t[0], t[-1]))
    q = low_pass(values[:, :n], setting.rate, setting.position_cutoff, setting.order)
    tau = values[:, n : 2 * n]
    if not setting.torque_as_logged:
        tau = low_pass(tau, setting.rate, setting.torque_cutoff, setting.order)
    logged = values[:, 2 * n :]
    if logged.size:
        logged = low_pass(logged, setting.rate, setting.position_cutoff, setting.order)
    qd = differentiate(q, setting.rate)
    columns = (grid, q, qd, differentiate(qd, setting.rate), tau, logged)
    return _Piece(columns, first, int(stale.sum()), int(close.sum()), not even)


def stale_rows(t: Float[np.ndarray, " N"], values: Float[np.ndarray, "N m"], gap: float) -> Bool[np.ndarray, " N"]:
    """Rows that repeat the one before in every number, in runs shorter than a gap: the controller had nothing new."""
    same = np.concatenate([[False], (np.diff(values, axis=0) == 0).all(axis=1)])
    edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]]).astype(int)))
    for first, after in edges.reshape(-1, 2).tolist():
        if t[after - 1] - t[first - 1] > gap:
            same[first:after] = False
    return same


def _notes(parts: tuple[tuple[int, int], ...], pieces: list[_Piece], setting: Setting, span: float) -> list[str]:
    notes = [f"low-pass {setting.position_cutoff:g} Hz: {setting.why}"] if setting.why else []
    stale, close = sum(piece.stale for piece in pieces), sum(piece.close for piece in pieces)
    if len(parts) > 1:
        notes.append(
            f"{len(parts)} pieces parted by gaps of over {setting.gap:.3g} s; {len(parts) - len(pieces)} of them, "
            f"shorter than {span:.3g} s, left out"
        )
    if stale:
        notes.append(f"{stale} stale rows, which repeat the one before in every number, left out")
    if close:
        notes.append(f"{close} rows within a quarter of the median step of the one before left out")
    if any(piece.resampled for piece in pieces):
        notes.append(f"uneven time steps: resampled at {setting.rate:.6g} Hz")
    left = setting.rate / setting.stride
    higher = max(setting.position_cutoff, setting.torque_cutoff)
    if setting.stride > 1 and left < 2 * higher:
        notes.append(f"stride {setting.stride} leaves {left:.4g} Hz, too few for a cutoff of {higher:g} Hz: it aliases")
    return notes


def _compare(qd: Float[np.ndarray, "N n"], logged: Float[np.ndarray, "N n"]) -> str:
    """Difference of logged velocities from the derivative of the positions."""
    size = np.sqrt((qd**2).mean(axis=0))
    off = np.sqrt(((logged - qd) ** 2).mean(axis=0)) / np.where(size > 0, size, 1.0)
    worst = int(np.argmax(off))
    return (
        "logged velocities not used: filtered alike they differ from the derivative of the positions "
        f"by {100 * off[worst]:.2g} % RMS at most (joint {worst + 1})"
    )


def split(samples: Samples, fraction: float = 0.7, guard: float | None = None) -> tuple[Samples, Samples]:
    """The first part of a run to identify from, and the rest to validate on: in one stretch each, never interleaved.

    Samples next to each other share what the filter spread over them, so `guard` seconds on either side of the cut
    are left out.

    Args:
        samples: the samples.
        fraction: share of the samples before the cut.
        guard: left out on either side of the cut [s]; by default one period of the lower cutoff.

    Raises:
        LogError: one of the two parts would be shorter than ten samples.
    """
    if guard is None:
        guard = 1 / min(samples.position_cutoff, samples.torque_cutoff)
    cut = round(fraction * len(samples))
    edge = samples.t[min(max(cut, 0), len(samples) - 1)]
    first = int(np.searchsorted(samples.t, edge - guard)) if guard > 0 else cut
    second = int(np.searchsorted(samples.t, edge + guard)) if guard > 0 else cut
    if first < LEAST_SAMPLES or len(samples) - second < LEAST_SAMPLES:
        raise LogError(
            f"{samples.source}: cut at {fraction:g} of {len(samples)} samples leaves {first} and {len(samples) - second}; "
            f"each part needs {LEAST_SAMPLES}"
        )
    return samples.part(0, first), samples.part(second, len(samples))

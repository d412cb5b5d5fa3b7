"""Preprocessing of logs, in memory or in chunks, and repeated motion: which samples show one stretch of one motion."""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import interpolate

from ..errors import LogError
from ..io.logs import Log
from ..io.tables import GAP, segments
from .defaults import ALIKE, BANDWIDTH, LEAST_SAMPLES, LOWEST_CUTOFF, MOSTLY, SAME_PLACE, STANDSTILL
from .filters import bandwidth, differentiate, low_pass, without_delay


@dataclasses.dataclass(frozen=True, eq=False)
class Samples:
    """N evenly spaced samples of a run, in pieces without gaps.

    Attributes:
        t: time [s].
        q: joint positions, low-pass filtered [rad or m].
        qd: first derivative of `q` [rad/s or m/s].
        qdd: second derivative of `q` [rad/s^2 or m/s^2].
        tau: joint torques, low-pass filtered [N m or N].
        rate: sample rate [1/s].
        segments: (start, stop) indices of each piece, with stop excluded.
        position_cutoff: cutoff of the low-pass on q [Hz].
        torque_cutoff: cutoff of the low-pass on tau, applied by `preprocess` or before logging [Hz].
        notes: remarks from reading and preprocessing.
        source: the log that the samples come from.
        temperature: joint temperatures, interpolated linearly [°C]; None if not logged.
        delay: torque delay that was removed [s] (`Filters.delay`); None if none was specified.
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
    temperature: Float[np.ndarray, "N n"] | None = None
    delay: Float[np.ndarray, " n"] | None = None

    @property
    def n(self) -> int:
        """Number of joints, or of velocities if the positions contain quaternions."""
        return self.qd.shape[1]

    def rows(
        self, chosen: slice | Int[np.ndarray, " M"], segments: Iterable[tuple[int, int]], **changes: Any
    ) -> "Samples":
        """A subset of the samples, divided into the given pieces."""
        held = {name: getattr(self, name) for name in ("t", "q", "qd", "qdd", "tau", "temperature")}
        cut = {name: value[chosen] for name, value in held.items() if value is not None}
        return dataclasses.replace(self, **cut, segments=tuple(segments), **changes)

    def part(self, start: int, stop: int) -> "Samples":
        """The samples from `start` to `stop` (excluded)."""
        clipped = [(max(a, start) - start, min(b, stop) - start) for a, b in self.segments]
        return self.rows(slice(start, stop), (piece for piece in clipped if piece[0] < piece[1]))

    @property
    def independence(self) -> float:
        """Effective fraction of independent samples.

        Filtered noise that is sampled faster than twice its bandwidth is correlated. For white noise filtered forwards
        and backwards with the fourth-order filter, the bandwidth is 0.9 times the cutoff.
        """
        return float(min(1.0, 2 * BANDWIDTH * self.torque_cutoff / self.rate))

    def __len__(self) -> int:
        return len(self.t)

    def __repr__(self) -> str:
        return (
            f"Samples({len(self)} at {self.rate:.5g} Hz in {len(self.segments)} pieces, {self.n} joints, cutoffs "
            f"{self.position_cutoff:g} Hz on q, {self.torque_cutoff:g} Hz on tau)"
        )


@dataclasses.dataclass(frozen=True)
class Filters:
    """Settings of `preprocess`; fields left as None are chosen from the log, or from the first of several logs.

    Attributes:
        position_cutoff: cutoff frequency for q, at which the amplitude is halved [Hz]; by default equal to
            `torque_cutoff`. If neither is given, it is ten times the motion's bandwidth, rounded to whole Hz, but at
            least 8 Hz and at most a fifth of the log's sample rate. The bandwidth is the frequency below which 99 % of
            the velocity's power above its noise floor lies. A note states the chosen cutoff and the reason.
        torque_cutoff: cutoff frequency for tau [Hz]; by default equal to `position_cutoff`.
        stride: decimation factor; by default chosen to keep at least ten samples per period of the higher cutoff.
        delay: total delay of the logged torques relative to the positions [s], one number or one per joint, removed
            before filtering (`without_delay`). Zero means that the torques and positions of a row refer to the same
            instant, as in logs of `jaxdyn simulate`. If None, `identify` estimates the delay.
        order: order of the Butterworth filter, run forwards and backwards.
        margin: time discarded at both ends of each piece [s]; by default two periods of the lower cutoff, after which
            end effects on qdd have decayed to 1 %.
        gap: longest time step within a piece [s]; by default 5 median steps or, if longer, a tenth of a period of the
            higher cutoff, over which cubic interpolation remains accurate.
        logged_cutoff: cutoff of the zero-phase low-pass filter, of the same order, that was applied to the torques
            before logging [Hz]. Such torques are not filtered again with `torque_cutoff`, and the friction of a model
            is filtered with this cutoff. If None, `identify` tests whether such a filter was applied.
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
        """A copy of these filters with some fields changed."""
        return dataclasses.replace(self, **changes)

    def setting(self, log: Log, rate: float | None = None) -> "Setting":
        """Resolve the settings to numbers for one log, whose mean rate is the default rate of the uniform grid [1/s].

        Raises:
            LogError: a cutoff is not between 0 and half the rate, or the stride or the margin is too small.
        """
        steps = np.diff(log.t)
        step = float(np.median(steps))
        # one rate for all pieces, from the mean of all steps except gaps
        mean_rate = lambda gap: float(1 / steps[steps <= max(gap, steps.min())].mean())
        position, why, before = self.position_cutoff, "", self.logged_cutoff
        torque = self.torque_cutoff if before is None else None
        if position is None:
            position, why = (torque, "") if torque is not None else default_cutoff(log, rate or mean_rate(GAP * step))
        torque = before if before is not None else position if torque is None else torque
        lower, higher = sorted((position, torque))
        gap = max(GAP * step, 0.1 / max(higher, 1e-9)) if self.gap is None else self.gap
        rate = rate or mean_rate(gap)
        if not 0 < lower <= higher < rate / 2:
            raise LogError(
                f"{log.source}: the cutoffs are {position:g} Hz on q and {torque:g} Hz on tau; "
                f"both must be between 0 and half the log's rate, {rate / 2:.5g} Hz"
            )
        stride = default_stride(rate, higher) if self.stride is None else self.stride
        margin = 2 / lower if self.margin is None else self.margin
        if stride < 1 or margin < 0:
            raise LogError(
                f"{log.source}: stride is {stride} samples and margin {margin:g} s; they must be at least 1 and 0, respectively"
            )
        return Setting(
            rate, step, gap, position, torque, self.order, round(margin * rate), stride, why, before is not None
        )


def preprocess(log: Log, filters: Filters | None = None) -> Samples:
    """Resample, filter, differentiate and decimate each gap-free piece of a log.

    1. Torque delays are removed if specified, and the log is cut where a time step exceeds `gap`.
    2. Stale rows (equal to the previous row, for less than a gap) are discarded, as are rows that follow the previous
       row within a quarter of the median step.
    3. If time steps are uneven, q and tau are resampled by cubic splines on a uniform grid at the log's mean rate.
    4. q and tau are filtered by `low_pass`, a zero-phase Butterworth filter.
    5. qd and qdd are computed as the first and second derivatives of the filtered q (`differentiate`), so they are
       mutually consistent.
    6. The first and last `margin` seconds of each piece are discarded, because the filter extrapolates there.
    7. The samples are decimated by `stride`.

    Logged velocities are not used, because their filter and delay are unknown; a note states how much they differ from qd.

    With equal cutoffs for q and tau (the default), both sides of tau = Y pi are filtered equally to the extent that Y
    is linear in the motion. To filter them exactly equally, use stride 1, apply `low_pass` to tau and every column of Y
    with one cutoff, below that of q, and then decimate both.

    Raises:
        LogError: a cutoff is not between 0 and half the log's rate, all pieces are too short, or a delay is not finite.

    Cost: about 0.1 s for 20 000 rows of 7 joints.
    """
    filters = filters or Filters()
    delay = None
    if filters.delay is not None:
        seconds = np.asarray(filters.delay, float)
        log = without_delay(log, seconds if seconds.ndim else float(seconds))
        delay = np.broadcast_to(seconds, log.tau.shape[1:])
    if not log.has_torques:
        raise LogError(
            f"{log.source}: the log has no torques", "identify servos and friction with identify_from_commands"
        )
    setting = filters.setting(log)
    parts = segments(log.t, setting.gap)
    pieces = [piece for part in parts if (piece := _piece(log, *part, setting)) is not None]
    span = (2 * setting.margin + LEAST_SAMPLES * setting.stride) / setting.rate
    if not pieces:
        raise LogError(
            f"{log.source}: no piece of the log is long enough: each needs {span:.3g} s "
            f"without a gap of over {setting.gap:.3g} s. "
            "Log a longer run, or specify a larger gap, higher cutoffs or a smaller margin"
        )
    t, q, qd, qdd, tau, logged = (np.concatenate([piece.columns[k] for piece in pieces]) for k in range(6))
    ends = np.cumsum([0, *(len(piece.columns[0]) for piece in pieces)]).tolist()
    notes = [*log.notes, *_notes(parts, pieces, setting, span)]
    if log.qd is not None:
        notes.append(_compare(qd, logged))
    rate, cutoffs = setting.rate / setting.stride, (setting.position_cutoff, setting.torque_cutoff)
    columns = () if log.temperature is None else log.temperature.T
    heat = np.stack([np.interp(t, log.t, x) for x in columns], axis=1) if len(columns) else None
    parts = tuple(itertools.pairwise(ends))
    return Samples(t, q, qd, qdd, tau, rate, parts, *cutoffs, tuple(notes), log.source, heat, delay)


def preprocess_alike(
    runs: Log | Samples | Iterable[Log | Samples], filters: Filters | None = None
) -> Iterator[Samples]:
    """Preprocess one or more runs with the settings chosen for the first, so that their errors are comparable.

    Runs that are already `Samples` are returned unchanged, and their cutoffs apply to the logs that follow.
    """
    filters = filters or Filters()
    for run in [runs] if isinstance(runs, Log | Samples) else runs:
        samples = preprocess(run, filters) if isinstance(run, Log) else run
        filters = filters.but(position_cutoff=samples.position_cutoff, torque_cutoff=samples.torque_cutoff)
        yield samples


@dataclasses.dataclass(frozen=True)
class Setting:
    """Settings for cutting, filtering and decimating a log, in Hz, s and samples (margin and stride)."""

    rate: float
    step: float
    gap: float
    position_cutoff: float
    torque_cutoff: float
    order: int
    margin: int
    stride: int
    why: str = ""  # reason for the cutoffs, if chosen automatically
    torque_as_logged: bool = False  # the torques were low-pass filtered before logging


@dataclasses.dataclass(frozen=True, eq=False)
class _Piece:
    columns: tuple[np.ndarray, ...]  # t, q, qd, qdd, tau, logged qd (N, 0) or (N, n)
    first: int  # index of the first sample on the grid
    stale: int
    close: int
    resampled: bool


def left_out_deviations(values: Float[np.ndarray, "k ..."]) -> Float[np.ndarray, "..."]:
    """Jackknife standard deviations from k estimates, each of which leaves out one of k blocks."""
    return np.sqrt((1 - 1 / len(values)) * ((values - values.mean(axis=0)) ** 2).sum(axis=0))


def default_stride(rate: float, cutoff: float) -> int:
    """The largest stride that leaves at least ten samples per period of the cutoff frequency."""
    return max(1, int(rate / (10 * cutoff)))


def default_cutoff(log: Log, rate: float) -> tuple[float, str]:
    """The default low-pass cutoff [Hz], and the reason for it."""
    start, stop = max(segments(log.t), key=lambda part: part[1] - part[0])
    t, highest = log.t[start:stop], rate / 5
    if len(t) < LEAST_SAMPLES:
        return min(LOWEST_CUTOFF, highest), "the log is too short to determine the motion's bandwidth"
    grid = np.arange(t[0], t[-1], 1 / rate)
    q = np.stack([np.interp(grid, t, log.q[start:stop, j]) for j in range(log.n)], axis=1)
    band = bandwidth(q, rate)
    wanted = max(LOWEST_CUTOFF, float(round(10 * band)))
    why = f"the motion's bandwidth is {band:.3g} Hz, and ten times that is "
    why += f"below the minimum of {LOWEST_CUTOFF:g} Hz" if wanted == LOWEST_CUTOFF else "used"
    return (wanted, why) if wanted <= highest else (highest, f"{why}, limited to a fifth of the sample rate")


def _piece(log: Log, start: int, stop: int, setting: Setting) -> _Piece | None:
    """One gap-free piece, filtered and decimated; None if it is too short."""
    if (log.t[stop - 1] - log.t[start]) * setting.rate + 1 < 2 * setting.margin + LEAST_SAMPLES * setting.stride:
        return None
    logged = np.zeros((len(log.t), 0)) if log.qd is None else log.qd
    made = even_samples(log.t[start:stop], np.hstack([log.q, log.tau, logged])[start:stop], log.n, setting)
    thin = slice(setting.margin, len(made.columns[0]) - setting.margin, setting.stride)
    return dataclasses.replace(made, columns=tuple(column[thin] for column in made.columns))


def even_samples(
    t: Float[np.ndarray, " N"], values: Float[np.ndarray, "N m"], n: int, setting: Setting, origin: float | None = None
) -> _Piece:
    """Remove stale rows (q, tau, logged qd of n joints), resample the rest uniformly, then filter and differentiate.

    The grid contains the time `origin` [s], by default that of the first row.
    """
    stale = stale_rows(t, values, setting.gap)
    close = np.concatenate([[False], np.diff(t) < 0.25 * setting.step]) & ~stale
    keep = ~(stale | close)
    t, values = t[keep], values[keep]
    origin = float(t[0]) if origin is None else origin
    first = math.ceil((t[0] - origin) * setting.rate - 1e-2)  # tolerance for rows that lie on the grid
    grid = origin + np.arange(first, int((t[-1] - origin) * setting.rate + 1e-6) + 1) / setting.rate
    even = len(grid) == len(t) and bool(np.abs(grid - t).max() < 0.01 / setting.rate)
    if not even:
        values = interpolate.CubicSpline(t, values)(np.clip(grid, t[0], t[-1]))
    q, tau, logged = np.split(values, [n, 2 * n], axis=1)
    q, logged = (
        low_pass(x, setting.rate, setting.position_cutoff, setting.order) if x.size else x for x in (q, logged)
    )
    if not setting.torque_as_logged:
        tau = low_pass(tau, setting.rate, setting.torque_cutoff, setting.order)
    qd = differentiate(q, setting.rate)
    columns = (grid, q, qd, differentiate(qd, setting.rate), tau, logged)
    return _Piece(columns, first, int(stale.sum()), int(close.sum()), not even)


def stale_rows(t: Float[np.ndarray, " N"], values: Float[np.ndarray, "N m"], gap: float) -> Bool[np.ndarray, " N"]:
    """Mask of rows that repeat the previous one for less than a gap, because the controller had no new data."""
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
            f"{len(parts)} pieces separated by gaps of over {setting.gap:.3g} s; discarded {len(parts) - len(pieces)} of them, "
            f"shorter than {span:.3g} s"
        )
    if stale:
        notes.append(f"{stale} stale rows, equal to the previous row, were discarded")
    if close:
        notes.append(f"{close} rows within a quarter of the median step after the previous one were discarded")
    if any(piece.resampled for piece in pieces):
        notes.append(f"time steps are uneven: resampled at {setting.rate:.6g} Hz")
    left = setting.rate / setting.stride
    higher = max(setting.position_cutoff, setting.torque_cutoff)
    if setting.stride > 1 and left < 2 * higher:
        notes.append(
            f"stride {setting.stride} leaves {left:.4g} Hz, too low for a cutoff of {higher:g} Hz: aliasing occurs"
        )
    return notes


def _compare(qd: Float[np.ndarray, "N n"], logged: Float[np.ndarray, "N n"]) -> str:
    """Difference between logged velocities and the derivative of the positions."""
    size = np.sqrt((qd**2).mean(axis=0))
    off = np.sqrt(((logged - qd) ** 2).mean(axis=0)) / np.where(size > 0, size, 1.0)
    worst = int(np.argmax(off))
    return (
        "logged velocities were not used: with equal filters, they differ from the derivative of the positions "
        f"by up to {100 * off[worst]:.2g} % RMS (joint {worst + 1})"
    )


def split(samples: Samples, fraction: float = 0.7, guard: float | None = None) -> tuple[Samples, Samples]:
    """Split a run into a first part for identification and a last part for validation.

    Args:
        samples: the samples.
        fraction: share of the samples before the cut.
        guard: time discarded on either side of the cut, because the filter correlates neighbours [s]; by default one
            period of the lower cutoff.

    Raises:
        LogError: one of the two parts would have fewer than ten samples.
    """
    if guard is None:
        guard = 1 / min(samples.position_cutoff, samples.torque_cutoff)
    cut = round(fraction * len(samples))
    edge = samples.t[min(max(cut, 0), len(samples) - 1)]
    first = int(np.searchsorted(samples.t, edge - guard)) if guard > 0 else cut
    second = int(np.searchsorted(samples.t, edge + guard)) if guard > 0 else cut
    if first < LEAST_SAMPLES or len(samples) - second < LEAST_SAMPLES:
        raise LogError(
            f"{samples.source}: splitting {len(samples)} samples at {fraction:g} leaves {first} and "
            f"{len(samples) - second}; each part needs at least {LEAST_SAMPLES}"
        )
    return samples.part(0, first), samples.part(second, len(samples))


def divide(
    samples: Samples, held: Bool[np.ndarray, " N"], guard: float | None = None
) -> tuple[Int[np.ndarray, " M"], Int[np.ndarray, " L"]]:
    """Indices of the samples outside and inside a mask, without those within `guard` seconds of its changes (`split`).

    Pieces of fewer than ten samples are left out.
    """
    if guard is None:
        guard = 1 / min(samples.position_cutoff, samples.torque_cutoff)
    t, after = samples.t, np.flatnonzero(np.diff(held.astype(int))) + 1
    apart = np.full(len(t), np.inf)
    if len(after):
        edges = (t[after] + t[after - 1]) / 2
        right = np.clip(np.searchsorted(edges, t), 0, len(edges) - 1)
        apart = np.minimum(np.abs(edges[right] - t), np.abs(edges[np.maximum(right - 1, 0)] - t))
    clear, found = apart >= guard, []
    for rows in (np.flatnonzero(clear & ~held), np.flatnonzero(clear & held)):
        long = [rows[a:b] for a, b in _pieces(samples, rows) if b - a >= LEAST_SAMPLES]
        found.append(np.concatenate([np.zeros(0, int), *long]))
    return found[0], found[1]


def picked(samples: Samples, rows: Int[np.ndarray, " M"]) -> Samples:
    """The samples with the given indices; a piece ends wherever samples between two of them are left out."""
    return samples.rows(rows, _pieces(samples, rows))


def _pieces(samples: Samples, rows: Int[np.ndarray, " M"]) -> list[tuple[int, int]]:
    """Limits, in `rows`, of the stretches of consecutive samples of one piece."""
    piece = np.zeros(len(samples), int)
    for k, (a, b) in enumerate(samples.segments):
        piece[a:b] = k
    ends = np.flatnonzero((np.diff(rows) != 1) | (np.diff(piece[rows]) != 0)) + 1
    return [(a, b) for a, b in itertools.pairwise([0, *ends.tolist(), len(rows)]) if a < b]


# -- repeats

STEP = 0.25  # step of the grid, in radians of the motion's mean frequency
WINDOW = 25  # steps in a window: one period of the mean frequency
DELAYS = 8  # states compared in each window
LEAST_LAG = 18  # minimum steps between a stretch and its repetition
LEAST_SCALE = 0.05  # smallest scale of a joint, relative to the largest; noise of locked joints is not compared
REPEATED = "the same motion, repeated"
LONGEST_STEP = 1.0  # longest part of a gap that counts as motion [s]
MOST_WINDOWS = 1 << 14  # windows compared with one another; longer recordings are read on a coarser grid
ROWS = 256  # windows compared with all others at once


@dataclasses.dataclass(frozen=True, eq=False)
class Motion:
    """The distinct motion of several runs, as one time axis on which all repetitions of a stretch have the same place.

    The torque errors of a model are a function of the motion, so they repeat with it. Repetitions average noise, but not
    model errors: samples of one stretch, from all of its repetitions, must be left out of a fit together.

    Attributes:
        times: for each run, the times of its samples [s].
        places: for each run, the place of every sample on the axis [s]. While the robot stands still, it stays at the
            place at which the robot stopped.
        lengths: length of the motion shown by each run and by all runs before it [s].
        moving: for each run, the mask of the samples at which the robot moves.
        repeats: for each run, True if part of its motion was shown before, by this run or an earlier one.
    """

    times: tuple[Float[np.ndarray, " _"], ...]
    places: tuple[Float[np.ndarray, " _"], ...]
    lengths: tuple[float, ...]
    moving: tuple[Bool[np.ndarray, " _"], ...]
    repeats: tuple[bool, ...]

    @property
    def length(self) -> float:
        """Length of the distinct motion [s]."""
        return self.lengths[-1]

    def first(self, runs: int) -> "Motion | None":
        """The motion of the first runs alone; None if they repeat nothing."""
        parts = (getattr(self, field.name)[:runs] for field in dataclasses.fields(self))
        return Motion(*parts) if any(self.repeats[:runs]) else None

    def groups(self, run: int, t: Float[np.ndarray, " N"], count: int, share: float = 0.0) -> Int[np.ndarray, " N"]:
        """Number of the stretch of the motion, of `count` stretches of equal length, that a run shows at given times.

        Args:
            share: share of the motion that is held out (`held`); only the rest is divided into stretches.
        """
        knots, axis = [0.0], [0.0]
        for a, b in itertools.pairwise((0.0, *self.lengths)):
            kept, gone = (1 - share) * (b - a), share * (b - a)
            knots += [b - gone, b]
            axis += [axis[-1] + kept, axis[-1] + kept]
        place = np.interp(self._at(run, t, self.places), knots, axis)
        return np.clip((count * place / max(axis[-1], 1e-9)).astype(int), 0, count - 1)

    def held(self, run: int, t: Float[np.ndarray, " N"], share: float) -> Bool[np.ndarray, " N"]:
        """Mask of the times at which a run shows held-out motion.

        Held out is the last `share` of the motion that each run was the first to show, from all runs that show it.
        """
        place, starts = self._at(run, t, self.places), (0.0, *self.lengths[:-1])
        return np.any(
            [(place >= b - share * (b - a)) & (place < b) for a, b in zip(starts, self.lengths, strict=True)], axis=0
        )

    def repeats_those(
        self, run: int, t: Float[np.ndarray, " N"], others: Sequence[tuple[int, Float[np.ndarray, " _"]]]
    ) -> bool:
        """True if most of a run's motion at the given times is shown by other runs as well, at the times given for them."""
        seen = np.sort(np.concatenate([self._at(k, times, self.places) for k, times in others]))
        place = self._at(run, t, self.places)[self._at(run, t, self.moving)]
        if not len(place) or len(seen) < 2:
            return False
        after = np.clip(np.searchsorted(seen, place), 1, len(seen) - 1)
        near = np.minimum(np.abs(seen[after] - place), np.abs(seen[after - 1] - place))
        return bool(np.mean(near < SAME_PLACE) > MOSTLY)

    def _at(self, run: int, t: Float[np.ndarray, " N"], values: Sequence[np.ndarray]) -> np.ndarray:
        """The values at the samples of a run that are nearest to the given times."""
        times = self.times[run]
        middles = (times[1:] + times[:-1]) / 2
        return values[run][np.searchsorted(middles, t)]


def repeated_motion(runs: Sequence[Samples]) -> Motion | None:
    """Find the repetitions in runs; None if no motion is repeated.

    States (q, qd), in units of each joint's RMS over all runs, are compared in windows of one mean period of the motion.
    A window repeats an earlier one, of the same or of an earlier run, if their RMS difference is below a tenth. Times at
    which all joints stand still do not count, so pauses between repetitions have no effect, nor have the phase at which
    a run starts, its sample rate, or the order of the motions. The same path at another speed is another motion.

    Cost: O(N^2) for N steps of a quarter radian of the mean frequency; 10 ms for one minute of 7 joints.
    """
    qd = np.concatenate([s.qd for s in runs])
    if len(qd) < LEAST_SAMPLES:
        return None
    q = np.concatenate([s.q for s in runs])
    centre, sizes = q.mean(0), [q.std(axis=0), np.sqrt(np.mean(qd**2, axis=0))]
    sizes = [np.maximum(x, max(LEAST_SCALE * x.max(), 1e-9)) for x in sizes]
    mean = np.abs(np.concatenate([s.qdd for s in runs])).mean(0) / np.maximum(np.abs(qd).mean(0), sizes[1] / 2)
    frequency = float(np.sqrt(np.mean(mean**2)))  # from magnitudes, on which a jump between motions has little effect
    clocks, moving = zip(*(_clock(s, sizes[1]) for s in runs), strict=True)
    whole = sum(clock[-1] for clock in clocks)
    if not frequency > 0 or not whole > 0:
        return None
    step = max(STEP / frequency, whole / MOST_WINDOWS)
    states = [_states(s, clock, mask, centre, sizes, step) for s, clock, mask in zip(runs, clocks, moving, strict=True)]
    found = _matches(states)
    if not np.isfinite(found).any():
        return None
    places, lengths = _axis(states, found)
    spread = []
    for clock, axis in zip(clocks, places, strict=True):
        near = np.clip(np.rint(clock / step).astype(int), 0, len(axis) - 1)
        spread.append(step * np.maximum(axis[near] + clock / step - near, 0.0))
    ends = np.cumsum([0, *map(len, states)])
    repeats = tuple(bool(np.isfinite(found[a:b]).any()) for a, b in itertools.pairwise(ends))
    return Motion(tuple(s.t for s in runs), tuple(spread), tuple(step * x for x in lengths), moving, repeats)


def _clock(samples: Samples, speeds: Float[np.ndarray, " n"]) -> tuple[Float[np.ndarray, " N"], Bool[np.ndarray, " N"]]:
    """Time that the robot has moved until each sample [s], and the mask of the samples at which it moves."""
    moving = np.any(np.abs(samples.qd) > STANDSTILL * speeds, axis=1)
    steps = np.minimum(np.diff(samples.t, prepend=samples.t[0]), LONGEST_STEP)
    return np.cumsum(np.where(moving, steps, 0.0)), moving


def _states(
    samples: Samples,
    clock: Float[np.ndarray, " N"],
    moving: Bool[np.ndarray, " N"],
    centre: Float[np.ndarray, " c"],
    sizes: Sequence[np.ndarray],
    step: float,
) -> Float[np.ndarray, "m _"]:
    """States of a run on an even grid of the time in motion, relative to the sizes; the RMS of a row is that of a state."""
    x = np.concatenate([(samples.q - centre) / sizes[0], samples.qd / sizes[1]], axis=1) / np.sqrt(sum(map(len, sizes)))
    grid = np.arange(int(clock[-1] / step) + 1) * step
    if not moving.any():
        return x[:1]
    return np.stack([np.interp(grid, clock[moving], column) for column in x[moving].T], axis=1)


def _matches(states: Sequence[Float[np.ndarray, "_ k"]]) -> Float[np.ndarray, " m"]:
    """Row, among the rows of all runs, at which the earliest equal window starts; NaN for windows that repeat none."""
    rows = np.concatenate(states).astype(np.float32)
    ends = np.cumsum([0, *map(len, states)])
    starts = np.concatenate([np.arange(a, b - WINDOW) for a, b in itertools.pairwise(ends)]).astype(int)
    found = np.full(len(rows), np.nan)
    if not len(starts):
        return found
    offsets = np.rint(np.linspace(0, WINDOW, DELAYS)).astype(int)
    windows = np.concatenate([rows[starts + k] for k in offsets], axis=1) / np.float32(np.sqrt(DELAYS))
    squares, run = (windows**2).sum(1), np.searchsorted(ends, starts, side="right")
    alone = np.diff(run, prepend=-1) != 0, np.diff(run, append=-1) != 0  # no window before, or after, in the same run
    for at in range(0, len(starts), ROWS):
        some = slice(at, at + ROWS)
        d = squares[some, None] + squares[: at + ROWS] - 2 * windows[some] @ windows[: at + ROWS].T
        before = np.where(alone[0][: at + ROWS], np.inf, np.roll(d, 1, axis=1))
        after = np.where(alone[1][: at + ROWS], np.inf, np.roll(d, -1, axis=1))
        with np.errstate(invalid="ignore", divide="ignore"):  # infinite where a neighbour is missing
            bend, slope = before - 2 * d + after, before - after  # of the parabola through three neighbours
            offset = np.where(np.isfinite(bend) & (bend > 0), slope / (2 * bend), 0.0)
            least = np.where(np.isfinite(bend) & (bend > 0), d - slope * offset / 4, d)
        earlier = (starts[: at + ROWS] <= starts[some, None] - LEAST_LAG) | (run[: at + ROWS] < run[some, None])
        alike = earlier & (d <= before) & (d <= after) & (least <= ALIKE**2) & (d <= (ALIKE + STEP) ** 2)
        first = alike.argmax(axis=1)
        each = np.arange(len(first))
        match = starts[first] + np.clip(offset[each, first], -0.5, 0.5)
        found[starts[some]] = np.where(alike[each, first], match, np.nan)
    return found


def _axis(
    states: Sequence[np.ndarray], found: Float[np.ndarray, " m"]
) -> tuple[list[Float[np.ndarray, " _"]], list[float]]:
    """Places of the rows of each run on the axis of distinct motion, and the length of the axis after each run [steps]."""
    ends = np.cumsum([0, *map(len, states)])
    places, length, lengths = np.zeros(ends[-1]), 0.0, []
    for a, b in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        matched = a + np.flatnonzero(np.isfinite(found[a:b]))
        centre = np.arange(a, b) - WINDOW / 2
        source = np.full(b - a, np.nan)
        if len(matched):
            near = matched[np.searchsorted((matched[1:] + matched[:-1]) / 2, centre, side="right")]
            inside = np.abs(near - centre) <= WINDOW / 2
            source[inside] = (found[near] + np.arange(a, b) - near)[inside]
        for p, s in zip(range(a, b), source.tolist(), strict=True):
            if s == s:  # repeats an earlier row
                k = max(int(s), 0)
                places[p] = places[k] + s - k
            else:
                places[p] = length
                length += 1.0
        lengths.append(length)
    return [places[a:b] for a, b in itertools.pairwise(ends)], lengths


# -- stream

MEMORY = 38.0  # e-folds after which a filter's transient is below rounding error in float64
SPLINE = 40  # number of samples after which the end conditions of a cubic spline have no effect


def preprocess_stream(
    chunks: Iterable[Log], filters: Filters | None = None, *, rate: float | None = None
) -> Iterator[Samples]:
    """Resample, filter, differentiate and decimate a log read in chunks, as `preprocess` does in memory.

    One chunk and the overlap of the filtered windows are held in memory.

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
    window, found = None, False
    for log in itertools.chain(chunks, [None]):
        if log is None:  # the end
            made = [] if window is None else window.samples(True)
        else:
            window = window or _Window(filters.setting(log, rate), log.n)
            made = window.absorb(log)
        found |= bool(made)
        yield from made
    if not found:
        raise LogError("no piece of the log is long enough for the filter: log a longer run, or specify higher cutoffs")


class _Window:
    """The rows (t, q, tau) of a piece that are still needed: the overlap before the next sample, and all later rows."""

    def __init__(self, setting: Setting, n: int):
        self.setting, self.n = setting, n
        periods = MEMORY / (2 * math.pi * math.sin(math.pi / (2 * setting.order)))
        lower = min(setting.position_cutoff, setting.torque_cutoff)
        self.overlap = math.ceil(periods * setting.rate / lower) + SPLINE  # [samples] reach of the filter's transients
        self.clear()

    def clear(self) -> None:
        """Begin a new piece."""
        self.rows = np.zeros((0, 1 + 2 * self.n))
        self.start: float | None = None  # start of the piece's grid
        self.next = 0  # index of the next sample in the grid

    def absorb(self, log: Log) -> list[Samples]:
        """Add a chunk, and return the samples that later rows cannot affect."""
        if log.n != self.n:
            raise LogError(f"{log.source}: a chunk has {log.n} joints, but earlier chunks had {self.n}")
        rows, made = np.column_stack([log.t, log.q, log.tau]), []
        if len(self.rows) and rows[0, 0] <= self.rows[-1, 0]:
            raise LogError(
                f"{log.source}: time does not increase between chunks: {rows[0, 0]:.9g} s follows {self.rows[-1, 0]:.9g} s"
            )
        for part in np.split(rows, np.flatnonzero(np.diff(rows[:, 0]) > self.setting.gap) + 1):
            if len(self.rows) and part[0, 0] - self.rows[-1, 0] > self.setting.gap:
                made += self.samples(True)
                self.clear()
            self.rows = np.concatenate([self.rows, part])
        return made + self.samples(False)

    def samples(self, last: bool) -> list[Samples]:
        """The samples beyond the reach of the filter's transients or, if the piece ends, all remaining ones."""
        s, t = self.setting, self.rows[:, 0]
        if not len(t):
            return []
        count = int((t[-1] - (t[0] if self.start is None else self.start)) * s.rate + 1e-6) + 1
        stop = count - s.margin - (0 if last else self.overlap)
        short = self.next == 0 and count < 2 * s.margin + LEAST_SAMPLES * s.stride
        if short if last else stop - self.next < self.overlap // 4:
            return []
        made = even_samples(t, self.rows[:, 1:], self.n, s, self.start)
        self.start = float(made.columns[0][0]) if self.start is None else self.start
        begin = max(self.next, s.margin)
        begin += -(begin - s.margin) % s.stride
        chosen = slice(begin - made.first, max(stop - made.first, 0), s.stride)
        t, q, qd, qdd, tau = (x[chosen] for x in made.columns[:5])
        self.next = max(stop, self.next)
        self.rows = self.rows[self.rows[:, 0] >= self.start + (self.next - self.overlap) / s.rate]
        samples = Samples(t, q, qd, qdd, tau, s.rate / s.stride, ((0, len(t)),), s.position_cutoff, s.torque_cutoff)
        return [samples] if len(t) else []

"""Repeated motion: which samples of runs show the same stretch of one motion, whenever and in whichever run it was repeated.

The torque errors of a model are a function of the motion, so they repeat with it. Repetitions average noise, but not model
errors: samples of one stretch of the motion, from all of its repetitions, must be left out of a fit together.
"""

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

from .samples import LEAST_SAMPLES, Samples

STEP = 0.25  # step of the grid, in radians of the motion's mean frequency
WINDOW = 25  # steps in a window: one period of the mean frequency
DELAYS = 8  # states compared in each window
LEAST_LAG = 18  # minimum steps between a stretch and its repetition
ALIKE = 0.1  # largest RMS difference of equal windows, relative to the RMS of the motion
STILL = 0.1  # all joints slower than this share of their RMS velocities stand still
LEAST_SCALE = (
    0.05  # smallest scale of a joint, relative to the largest one, so that noise of locked joints is not compared
)
REPEATED = "the same motion, repeated"
MOSTLY = 0.5  # share of a run's motion above which it repeats another one
SAME_PLACE = 0.1  # distance between places of the same motion [s]
LONGEST_STEP = 1.0  # longest part of a gap that counts as motion [s]
MOST_WINDOWS = 1 << 14  # windows compared with one another; longer recordings are read on a coarser grid
ROWS = 256  # windows compared with all others at once


@dataclasses.dataclass(frozen=True, eq=False)
class Motion:
    """The distinct motion of several runs, as one time axis on which all repetitions of a stretch have the same place.

    Attributes:
        times: for each run, the times of its samples [s].
        places: for each run, the place of every sample on the axis [s]. While the robot stands still, it stays at the
            place at which the robot stopped.
        lengths: length of the axis after each run: of the motion shown by this run and by all runs before it [s].
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

    def groups(
        self, run: int, t: Float[np.ndarray, " N"], count: int, share: float = 0.0, late: bool = False
    ) -> Int[np.ndarray, " N"]:
        """Number of the stretch of the motion, of `count` stretches of equal length, that a run shows at given times.

        Args:
            share: share of the motion that is held out (`held`); only the rest is divided into stretches.
            late: True to divide only the motion that is held out.
        """
        knots, axis = [0.0], [0.0]
        for a, b in itertools.pairwise((0.0, *self.lengths)):
            kept, gone = (1 - share) * (b - a), share * (b - a)
            knots += [b - gone, b]
            axis += [axis[-1] + (0.0 if late else kept), axis[-1] + (gone if late else kept)]
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
    frequency = float(
        np.sqrt(np.mean(mean**2))
    )  # from magnitudes, on which a jump between two motions has little effect
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
    moving = np.any(np.abs(samples.qd) > STILL * speeds, axis=1)
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
            right = np.clip(np.searchsorted(matched, centre), 0, len(matched) - 1)
            left = np.maximum(right - 1, 0)
            near = np.where(
                np.abs(matched[left] - centre) < np.abs(matched[right] - centre), matched[left], matched[right]
            )
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

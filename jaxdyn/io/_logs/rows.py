"""Detect unusable rows and time gaps in a log."""

import bisect
import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int

ABSURD = 1e6  # maximum plausible magnitude of positions, velocities, torques and currents, in SI units
GAP = 5.0  # a time step longer than this multiple of the median step is a gap


@dataclasses.dataclass(frozen=True, eq=False)
class BadRows:
    """Rows with the same fault: their indices from 0, a description, and the column and value of the first occurrence."""

    rows: Int[np.ndarray, " k"]
    what: str
    column: str
    value: float


def find_bad_rows(
    t: Float[np.ndarray, " N"],
    values: Float[np.ndarray, "N m"],
    labels: Sequence[str],
    positions: int,
    clock: str = "t",
) -> list[BadRows]:
    """Find implausible rows, grouped by fault. Each criterion is applied to the rows that passed the previous ones.

    1. Rows with NaN or infinite numbers, or with numbers beyond 1e6.
    2. Rows whose time stamps differ from the median time by more than ten times the interquartile range, if they are few: at
       most 10, or at most 1 % of all rows.
    3. The smallest set of rows whose removal makes time increase: all rows outside a longest increasing subsequence of the
       time stamps.
    4. Rows in which a position jumps away and back. A jump is a step of more than 3 rad (or m) that is also more than 20
       times the joint's largest step, not counting the largest 1 % of its steps (at least 5 steps).

    Args:
        t: time stamps [s].
        values: all other numbers, with joint positions first.
        labels: column names of `values`.
        positions: number of position columns.
        clock: name of the time column.
    """
    found: list[BadRows] = []
    everything = np.column_stack([t, values])
    names = [clock, *labels]
    alive = np.ones(len(t), bool)

    def note(cells: Bool[np.ndarray, "N m1"], what: str) -> None:
        cells = cells & alive[:, None]
        rows = np.flatnonzero(cells.any(axis=1))
        if len(rows):
            column = int(np.argmax(cells[rows[0]]))
            found.append(BadRows(rows, what, names[column], float(everything[rows[0], column])))
            alive[rows] = False

    note(~np.isfinite(everything), "with NaN or infinite numbers")
    with np.errstate(invalid="ignore"):
        large = np.abs(everything) > ABSURD
    large[:, 0] = False
    note(large, f"with numbers beyond {ABSURD:.0e}")
    if alive.sum() < 3:
        return found
    low, middle, high = np.percentile(t[alive], [25, 50, 75])
    far = alive & (np.abs(t - middle) > 10 * (high - low))
    if far.sum() <= max(10, len(t) // 100):
        note(_first_column(far, everything), "with time stamps far from all the others")
    kept = np.flatnonzero(alive)
    steps = np.diff(t[kept])
    if (steps <= 0).any():
        back, same = int((steps < 0).sum()), int((steps == 0).sum())
        out = np.zeros(len(t), bool)
        out[np.delete(kept, _longest_increasing(t[kept]))] = True
        note(
            _first_column(out, everything),
            f"at which time does not increase ({back} steps back, {same} repeated stamps)",
        )
    for joint, row in jumps(values[:, :positions], alive, there_and_back=True):
        cells = np.zeros(everything.shape, bool)
        cells[row, 1 + joint] = True
        note(cells, "at which a position jumps away and back")
    return found


def repeats(rows: Float[np.ndarray, "N m"]) -> Bool[np.ndarray, " N"]:
    """Rows that repeat an earlier row exactly, as loggers write that run faster than their source; the first column is time."""
    again = np.zeros(len(rows), bool)
    if not (np.diff(rows[:, 0]) > 0).all():
        rows = np.ascontiguousarray(rows + 0.0)  # -0 becomes 0
        whole = rows.view([("", rows.dtype)] * rows.shape[1])[:, 0]
        again[:] = True
        again[np.unique(whole.view(np.dtype((np.void, whole.dtype.itemsize))), return_index=True)[1]] = False
    return again


def repeated_note(count: int) -> str:
    return f"{count} rows removed that repeat an earlier row exactly, with its time stamp"


def _first_column(rows: Bool[np.ndarray, " N"], like: np.ndarray) -> Bool[np.ndarray, "N m"]:
    cells = np.zeros(like.shape, bool)
    cells[:, 0] = rows
    return cells


def jumps(
    q: Float[np.ndarray, "N n"], alive: Bool[np.ndarray, " N"], there_and_back: bool = False
) -> list[tuple[int, int]]:
    """Find the pairs (joint, row) at which a position jumps. With `there_and_back`, it must jump again on the next step."""
    kept = np.flatnonzero(alive)
    if len(kept) < 3:
        return []
    steps = np.abs(np.diff(q[kept], axis=0))
    rank = max(0, len(steps) - 1 - max(5, len(steps) // 100))
    jump = steps > np.maximum(3.0, 20 * np.partition(steps, rank, axis=0)[rank])
    if there_and_back:
        row, joint = np.nonzero(jump[:-1] & jump[1:])
    else:
        row, joint = np.nonzero(jump)
    return [(int(j), int(kept[k + 1])) for k, j in zip(row, joint, strict=True)]


def _longest_increasing(t: Float[np.ndarray, " N"]) -> list[int]:
    """Indices of a longest strictly increasing subsequence, by patience sorting, O(N log N)."""
    tails: list[float] = []
    owners: list[int] = []
    before = [-1] * len(t)
    for k, value in enumerate(t.tolist()):
        place = bisect.bisect_left(tails, value)
        before[k] = owners[place - 1] if place else -1
        if place == len(tails):
            tails.append(value)
            owners.append(k)
        else:
            tails[place], owners[place] = value, k
    chain = []
    k = owners[-1] if owners else -1
    while k >= 0:
        chain.append(k)
        k = before[k]
    return chain[::-1]


def segments(t: Float[np.ndarray, " N"], gap: float | None = None) -> tuple[tuple[int, int], ...]:
    """Split a log at gaps in time into pieces, and return them as row ranges (start, stop), with stop excluded.

    Args:
        t: increasing time stamps [s].
        gap: longest time step within a piece [s]; by default 5 times the median step.
    """
    steps = np.diff(t)
    limit = GAP * float(np.median(steps)) if gap is None else gap
    cuts = [0, *(np.flatnonzero(steps > limit) + 1).tolist(), len(t)]
    return tuple(itertools.pairwise(cuts))

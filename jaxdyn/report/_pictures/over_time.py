"""Pictures of quantities over time: measured and predicted, and under them their difference."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float

from ...identification._result import Evaluation
from .svg import FAINT, GAP, MEASURED, PREDICTED, PRIOR, RESIDUAL, picture

_SIZE = (10.4, 3.05)  # [in]
_LATER = (PREDICTED, PRIOR)  # colours of the first and the second prediction


def envelope(
    t: Float[np.ndarray, " N"], y: Float[np.ndarray, " N"], points: int
) -> tuple[Float[np.ndarray, " M"], Float[np.ndarray, " M"]]:
    """At most about `points` of the points of a curve, none of its peaks lost: the least and greatest value of each
    of points / 2 stretches of equal length, in their order in time, and both ends."""
    count = max(1, points // 2)
    if len(t) <= 2 * count + 2:
        return t, y
    edges = np.linspace(0, len(t), count + 1).astype(int)
    keep = {0, len(t) - 1}
    for start, stop in itertools.pairwise(edges.tolist()):
        keep |= {start + int(np.argmin(y[start:stop])), start + int(np.argmax(y[start:stop]))}
    index = np.array(sorted(keep))
    return t[index], y[index]


def torque_svg(evaluation: Evaluation, joint: int, unit: str, points: int = 1400, key: str = "") -> str:
    """Measured and predicted torque of one joint over time, and under it their difference, as an SVG element.

    Pieces of the run parted by gaps are drawn apart, the gaps shaded. Colours are CSS variables of the page around it.

    Args:
        joint: its index, from 0.
        unit: of its torque.
        points: most points a curve; what is longer is drawn by its envelope.
        key: another one for each picture of a page, so that no id in it is used twice.
    """
    samples = evaluation.samples
    return over_time(
        samples.t,
        samples.tau[:, joint],
        {"predicted": evaluation.prediction[:, joint]},
        samples.segments,
        ("torque", "residual", unit),
        f"Measured and predicted torque over time, and their difference, of joint {joint + 1}",
        points,
        f"{key} {joint}",
    )


def over_time(
    t: Float[np.ndarray, " N"],
    measured: Float[np.ndarray, " N"],
    predictions: dict[str, Float[np.ndarray, " N"]],
    pieces: Sequence[tuple[int, int]],
    words: tuple[str, str, str],
    label: str,
    points: int = 1400,
    key: str = "",
) -> str:
    """A measured curve and one or two predicted ones by name, and under them measured minus predicted, as an SVG element.

    Args:
        t: time [s].
        pieces: (start, stop) of each piece without gaps; one where there are none.
        words: what is drawn, what the difference is called, and the unit of both.
        label: what is to be seen, for those who cannot.
        points: most points a curve.
        key: another one for each picture of a page.
    """
    start = float(t[0])
    shift = start if abs(start) > 1e5 else 0.0
    t, pieces = t - shift, tuple(pieces) or ((0, len(t)),)
    what, difference, unit = words
    several = len(predictions) > 1
    curves: list[tuple[int, np.ndarray, str, float, str]] = [(0, measured, MEASURED, 2.5, "measured")]
    for (name, y), colour in zip(predictions.items(), _LATER, strict=False):
        curves.append((0, y, colour, 1.0, name))
        curves.append((1, measured - y, colour if several else RESIDUAL, 0.7, "" if several else f"measured - {name}"))

    def draw(figure) -> None:
        both = upper, lower = figure.subplots(2, sharex=True, height_ratios=(1.75, 1))
        figure.subplots_adjust(left=0.075, right=0.995, top=0.915, bottom=0.15, hspace=0.12)
        for row, y, colour, width, name in curves:
            for k, (x, part) in enumerate(_drawn(t, y, pieces, points)):
                both[row].plot(x, part, color=colour, linewidth=width, label=None if k or not name else name)
        for axes, name in ((upper, f"{what} [{unit}]"), (lower, f"{difference} [{unit}]")):
            for (_, stop), (begin, _) in itertools.pairwise(pieces):
                axes.axvspan(t[stop - 1], t[begin], facecolor=GAP, edgecolor="none")
            axes.set_ylabel(name)
            axes.yaxis.set_label_coords(-0.052, 0.5)
            axes.margins(x=0.005)
        lower.locator_params(axis="y", nbins=4)
        lower.axhline(0, color=FAINT, linewidth=0.6)
        lower.set_xlabel(f"time from {shift:.3f} s on [s]" if shift else "time [s]")
        handles = [line for axes in both for line in axes.get_lines() if not line.get_label().startswith("_")]
        figure.legend(handles=handles, loc="upper right", ncols=3, frameon=False, borderaxespad=0.1, handlelength=2.2)

    return picture(draw, _SIZE, label, key)


def _drawn(
    t: np.ndarray, y: np.ndarray, pieces: tuple[tuple[int, int], ...], points: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Each piece with its share of the points; a curve is broken where its numbers are not finite."""
    for start, stop in pieces:
        there = start + np.flatnonzero(np.isfinite(y[start:stop]))
        for index in np.split(there, np.flatnonzero(np.diff(there) > 1) + 1):
            if len(index):
                yield envelope(t[index], y[index], max(8, points * len(index) // len(t)))

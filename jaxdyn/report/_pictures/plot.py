"""Plots drawn by the page from data: curves, dots and rings in panels over one axis, one view per joint and run."""

import base64
import dataclasses
import itertools
import json
import math
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float

from .._markup import element, escaped

_LEVELS = 65534  # quantisation steps between the minimum and maximum of a curve; one more stands for NaN


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
    """A curve, or dots, in a panel.

    Attributes:
        name: in the legend; curves of one name are one entry.
        colour: a variable of the page's style: measured, predicted, residual, prior, ink or faint.
        y: the values; NaN breaks a line.
        less: values subtracted from y by the page, which takes less space than a curve of differences.
        x: abscissae; those of the view if None.
        style: "line", "dots" or "rings".
        width: of a line [px].
    """

    name: str
    colour: str
    y: Float[np.ndarray, " N"]
    less: Float[np.ndarray, " N"] | None = None
    x: Float[np.ndarray, " N"] | None = None
    style: str = "line"
    width: float = 1.5


@dataclasses.dataclass(frozen=True, eq=False)
class Panel:
    """Curves with one vertical axis.

    Attributes:
        label: quantity and unit.
        curves: drawn on top of each other.
        share: of the height, relative to the view's other panels.
        logarithmic: whether the axis is.
        limits: of the axis while all of x is shown; those of the curves if None.
    """

    label: str
    curves: Sequence[Curve]
    share: float = 1.0
    logarithmic: bool = False
    limits: tuple[float, float] | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class View:
    """Panels over one horizontal axis, shown together.

    Attributes:
        x_label: quantity and unit.
        panels: from top to bottom.
        caption: one line of plain text.
        x: abscissae of all curves that do not have their own.
        logarithmic: whether the horizontal axis is.
        gaps: (from, to) of x without data.
        marks: x with a name, drawn as a vertical line.
    """

    x_label: str
    panels: Sequence[Panel]
    caption: str = ""
    x: Float[np.ndarray, " N"] | None = None
    logarithmic: bool = False
    gaps: Sequence[tuple[float, float]] = ()
    marks: Sequence[tuple[float, str]] = ()


def plot(label: str, views: Sequence[View], choices: Sequence[tuple[str, Sequence[str]]] = (), kind: str = "") -> str:
    """A figure that shows one of the views, which are in the order of the choices, the last varying fastest.

    page.js draws it with controls to choose, pan and zoom the view and read off values. Plots of a page with a choice
    of the same name and length share it.

    Args:
        label: alternative text.
        choices: (name, options), such as ("joint", joint names).
        kind: "low" for a lower figure.
    """
    assert len(views) == math.prod(len(options) for _, options in choices)
    data = {"label": label, "choices": [[name, list(options)] for name, options in choices]}
    text = json.dumps(data | {"views": [_view(view) for view in views]}, separators=(",", ":"), ensure_ascii=False)
    held = element("script", text.replace("<", "\\u003c"), type="application/json")
    without = element("noscript", element("p", escaped(f"{label}: drawn in browsers that run scripts."), "faint"))
    return element("figure", held + without, f"plot {kind}".strip())


def _view(view: View) -> dict:
    columns: list[list] = []
    known: dict[int, int] = {}

    def column(values: np.ndarray, logarithmic: bool) -> int:
        if id(values) not in known:
            known[id(values)] = len(columns)
            columns.append(packed(np.log10(values) if logarithmic else values))
        return known[id(values)]

    panels = []
    for panel in view.panels:
        curves = []
        for curve in panel.curves:
            x = view.x if curve.x is None else curve.x
            assert x is not None and len(x) == len(curve.y)
            y = [column(curve.y, panel.logarithmic)]
            y += [] if curve.less is None else [column(curve.less, panel.logarithmic)]
            given = {"name": curve.name, "colour": curve.colour, "x": column(x, view.logarithmic), "y": y}
            line = {"width": curve.width} if curve.style == "line" else {"style": curve.style}
            curves.append(given | line)
        limits = panel.limits and [math.log10(v) if panel.logarithmic else v for v in panel.limits]
        extra = {"log": True} if panel.logarithmic else {}
        extra |= {"limits": [_short(v) for v in limits]} if limits else {}
        panels.append({"label": panel.label, "share": panel.share, "curves": curves} | extra)
    marks = [[_short(math.log10(x) if view.logarithmic else x), name] for x, name in view.marks]
    out = {"x": view.x_label, "panels": panels, "columns": columns, "caption": view.caption}
    out |= {"log": True} if view.logarithmic else {}
    out |= {"gaps": [[_short(a), _short(b)] for a, b in view.gaps]} if view.gaps else {}
    return out | ({"marks": marks} if marks else {})


def _short(x: float) -> float:
    return float(f"{x:.7g}")


def packed(values: Float[np.ndarray, " N"]) -> list:
    """[least, greatest, text]: numbers in 65535 steps between these, as little-endian 16 bits in base64; 65535 is NaN."""
    values = np.asarray(values, float)
    there = np.isfinite(values)
    low, high = (float(f(values[there])) if there.any() else 0.0 for f in (np.min, np.max))
    steps = np.full(len(values), _LEVELS + 1, "<u2")
    steps[there] = np.round((values[there] - low) / ((high - low) or 1.0) * _LEVELS)
    return [_short(low), _short(high), base64.b64encode(steps.tobytes()).decode("ascii")]


def time_view(
    t: Float[np.ndarray, " N"],
    measured: Float[np.ndarray, " N"],
    predictions: dict[str, Float[np.ndarray, " N"]],
    pieces: Sequence[tuple[int, int]],
    words: tuple[str, str, str],
    caption: str = "",
    points: int = 1400,
) -> View:
    """A measured curve and one or two predicted ones by name over time, and below them measured minus predicted.

    Args:
        t: time [s].
        pieces: (start, stop) of each gap-free piece.
        words: names of the quantity and of the difference, and their unit.
        points: maximum number of points per curve.
    """
    what, difference, unit = words
    start = float(t[0])
    shift = start if abs(start) > 1e5 else 0.0
    pieces = tuple(pieces) or ((0, len(t)),)
    errors = [measured - y for y in predictions.values()]
    index = thinned([measured, *errors], pieces, points)
    broken = index < 0  # between pieces
    pick = lambda y: np.where(broken, np.nan, y[index])
    drawn, x = pick(measured), np.where(broken, t[np.roll(index, 1)], t[index]) - shift
    upper, lower = [Curve("measured", "measured", drawn, width=2.5)], []
    several = len(predictions) > 1
    for (name, y), colour in zip(predictions.items(), ("predicted", "prior"), strict=False):
        shown = pick(y)
        upper.append(Curve(name, colour, shown, width=1.2))
        error, own = (f"measured − {name}", colour) if several else (difference, "residual")  # noqa: RUF001
        lower.append(Curve(error, own, drawn, shown, width=1.0))
    return View(
        f"time from {shift:.3f} s on [s]" if shift else "time [s]",
        [Panel(f"{what} [{unit}]", upper, 1.75), Panel(f"{difference} [{unit}]", lower)],
        caption,
        x,
        gaps=[
            (float(t[stop - 1]) - shift, float(t[begin]) - shift)
            for (_, stop), (begin, _) in itertools.pairwise(pieces)
        ],
    )


def thinned(curves: Sequence[np.ndarray], pieces: Iterable[tuple[int, int]], points: int) -> np.ndarray:
    """Indices of about `points` samples at most, in order, with all peaks of the curves; -1 between pieces.

    Of each stretch of equal length, the first sample and the extremes of the curves. Samples that are not finite in
    all curves split a piece.
    """
    there = np.all(np.isfinite(curves), axis=0)
    runs = []
    for start, stop in pieces:
        found = start + np.flatnonzero(there[start:stop])
        runs += [run for run in np.split(found, np.flatnonzero(np.diff(found) > 1) + 1) if len(run)]
    total, out = sum(map(len, runs)), []
    for run in runs:
        count = max(2, points * len(run) // max(total, 1) // (2 * len(curves)))
        if len(run) > 2 * len(curves) * count:
            keep = {int(run[0]), int(run[-1])}
            for part in np.array_split(run, count):
                for y in curves:
                    keep |= {int(part[np.argmin(y[part])]), int(part[np.argmax(y[part])])}
            run = np.array(sorted(keep))
        out += [run, [-1]]
    return np.concatenate(out[:-1]).astype(int) if out else np.zeros(0, int)

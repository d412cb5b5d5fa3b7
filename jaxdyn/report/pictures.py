"""Plots, and equivalent ellipsoids of links.

A plot is the data that page.js draws: curves, dots and rings in panels with a common x axis, one view per joint and run.
"""

import base64
import itertools
import json
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..spatial.inertia import pseudo_inertia
from .markup import element, escaped

_LEVELS = 65534  # quantisation steps between the minimum and maximum of a curve; one further value represents NaN


class Curve(NamedTuple):
    """A curve, dots or rings in a panel.

    Attributes:
        name: name in the legend; curves with the same name share an entry.
        colour: a variable of the page's style: measured, predicted, residual, prior, ink or faint.
        y: values; NaN interrupts a line.
        less: values that page.js subtracts from y. If these values also form another curve, they are stored only once.
        x: abscissae; by default the view's.
        style: "line", "dots" or "rings".
        width: line width [px].
    """

    name: str
    colour: str
    y: np.ndarray
    less: np.ndarray | None = None
    x: np.ndarray | None = None
    style: str = "line"
    width: float = 1.5


class Panel(NamedTuple):
    """Curves that share a vertical axis, with its label, its height relative to other panels, and limits of the whole view."""

    label: str
    curves: Sequence[Curve]
    share: float = 1.0
    limits: tuple[float, float] | None = None


class View(NamedTuple):
    """Panels with a common horizontal axis: its label, panels, a caption, abscissae, and intervals (from, to) without data."""

    x_label: str
    panels: Sequence[Panel]
    caption: str = ""
    x: np.ndarray | None = None
    gaps: Sequence[tuple[float, float]] = ()


def plot(label: str, views: Sequence[View], choices: Sequence[tuple[str, Sequence[str]]] = (), kind: str = "") -> str:
    """A figure that shows one of several views, which the reader selects.

    page.js draws the figure, with controls to select, pan and zoom views and to read values. If several plots on a page
    have a choice with the same name and number of options, a selection applies to all of them.

    Args:
        label: alternative text.
        views: one view per combination of choices; the option of the last choice varies fastest.
        choices: pairs (name, options), for example ("joint", joint names).
        kind: "low" for a figure of smaller height.
    """
    assert len(views) == math.prod(len(options) for _, options in choices)
    data = {"label": label, "choices": [[name, list(options)] for name, options in choices]}
    text = json.dumps(data | {"views": [_view(view) for view in views]}, separators=(",", ":"), ensure_ascii=False)
    held = element("script", text.replace("<", "\\u003c"), type="application/json")
    without = element("noscript", element("p", escaped(f"{label}: shown only if the browser runs scripts."), "faint"))
    return element("figure", held + without, f"plot {kind}".strip())


def _view(view: View) -> dict:
    """A view as page.js reads it; arrays that several curves share are stored once."""
    columns: dict[int, list] = {}

    def column(values: np.ndarray) -> int:
        columns.setdefault(id(values), packed(values))
        return [*columns].index(id(values))

    def drawn(curve: Curve) -> dict:
        x = view.x if curve.x is None else curve.x
        assert x is not None and len(x) == len(curve.y)
        y = [column(values) for values in (curve.y, curve.less) if values is not None]
        line = {"width": curve.width} if curve.style == "line" else {"style": curve.style}
        return {"name": curve.name, "colour": curve.colour, "x": column(x), "y": y} | line

    panels = [
        {"label": panel.label, "share": panel.share, "curves": [*map(drawn, panel.curves)]}
        | ({"limits": [*map(_short, panel.limits)]} if panel.limits else {})
        for panel in view.panels
    ]
    gaps = {"gaps": [[_short(a), _short(b)] for a, b in view.gaps]} if view.gaps else {}
    return {"x": view.x_label, "panels": panels, "columns": [*columns.values()], "caption": view.caption} | gaps


def _short(x: float) -> float:
    return float(f"{x:.7g}")


def packed(values: Float[np.ndarray, " N"]) -> list:
    """Numbers as [minimum, maximum, text], where text is the base64 code of 16-bit little-endian integers; 65535 is NaN."""
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
    """A view with a measured and one or two predicted curves over time, and below them the errors measured - predicted.

    Args:
        t: time [s].
        measured: measured values.
        predictions: predicted values by name.
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
        "time since the first sample [s]" if shift else "time [s]",
        [Panel(f"{what} [{unit}]", upper, 1.75), Panel(f"{difference} [{unit}]", lower)],
        caption,
        x,
        gaps=[
            (float(t[stop - 1]) - shift, float(t[begin]) - shift)
            for (_, stop), (begin, _) in itertools.pairwise(pieces)
        ],
    )


def thinned(curves: Sequence[np.ndarray], pieces: Iterable[tuple[int, int]], points: int) -> np.ndarray:
    """Indices of about `points` samples or fewer, in order, including all peaks of the curves; -1 between pieces.

    Each piece is divided into intervals of equal length. The extremes of all curves in each interval, and both ends of
    the piece, are retained. A sample at which a curve is not finite splits a piece.
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


# -- ellipsoids


class Ellipsoid(NamedTuple):
    """The equivalent solid ellipsoid {x : (x - centre)^T shape^-1 (x - centre) <= 1} of a body.

    Attributes:
        mass: mass of the body [kg].
        centre: centre of mass [m].
        shape: 5 / m times the second moment of mass about the centre of mass [m^2]; positive definite for a physically
            consistent body.
    """

    mass: float
    centre: Float[np.ndarray, "3"]
    shape: Float[np.ndarray, "3 3"]

    @property
    def consistent(self) -> bool:
        """True if mass and inertia are physically consistent."""
        squares = np.linalg.eigvalsh(self.shape)
        return bool(self.mass > 0 and squares[0] >= -1e-6 * max(squares[-1], 0))  # tolerates single precision

    @property
    def semi_axes(self) -> Float[np.ndarray, "3"]:
        """Semi-axes [m] in ascending order; 0 in place of semi-axes with negative squares."""
        return np.sqrt(np.maximum(np.linalg.eigvalsh(self.shape), 0))

    @property
    def density(self) -> float:
        """Mass over volume [kg/m^3]; infinite if a semi-axis is 0."""
        volume = 4 / 3 * np.pi * float(np.prod(self.semi_axes))
        return self.mass / volume if volume > 0 else np.inf


def equivalent_ellipsoid(pi: Float[np.ndarray, "10"]) -> Ellipsoid | None:
    """Compute the equivalent ellipsoid of a link, in the link frame, from its ten inertial parameters.

    The result is None if the mass is zero. A uniform solid ellipsoid with mass m and semi-axes a_k has the second moments
    m a_k^2 / 5 about its centre. Therefore, shape = 5 / m (S - h h^T / m), where h is the first moment, I_o is the inertia
    about the origin of the link frame, and S = (tr(I_o) / 2) eye(3) - I_o is the second moment of mass about this origin.
    """
    m, h = float(pi[0]), np.asarray(pi[1:4], float)
    if m == 0:
        return None
    return Ellipsoid(m, h / m, 5 / m * (pseudo_inertia(np.asarray(pi, float))[:3, :3] - np.outer(h, h) / m))

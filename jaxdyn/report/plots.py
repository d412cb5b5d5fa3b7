"""Pictures of measured and predicted torques as inline SVG, which take their colours from the page's style sheet."""

import io
import itertools
import re
from collections.abc import Iterator

import numpy as np
from jaxtyping import Float

from ..identification.identify import Evaluation

# Stand-ins that become CSS variables, so that one picture serves light and dark screens and paper.
_COLOURS = {
    "#010101": "var(--ink)",
    "#020202": "var(--faint)",
    "#030303": "var(--line)",
    "#040404": "var(--measured)",
    "#050505": "var(--predicted)",
    "#060606": "var(--residual)",
    "#070707": "var(--gap)",
}
_INK, _FAINT, _LINE, _MEASURED, _PREDICTED, _RESIDUAL, _GAP = _COLOURS
_SIZE = (10.4, 3.05)  # [in]
_STYLE = {
    "svg.fonttype": "none",
    "path.simplify": False,
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": _INK,
    "axes.edgecolor": _LINE,
    "axes.labelcolor": _INK,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.unicode_minus": False,
    "grid.color": _LINE,
    "grid.linewidth": 0.5,
    "xtick.color": _LINE,
    "ytick.color": _LINE,
    "xtick.labelcolor": _FAINT,
    "ytick.labelcolor": _FAINT,
}


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

    Pieces of the run parted by gaps are drawn apart, the gaps shaded. Colours are the CSS variables --ink, --faint,
    --line, --measured, --predicted, --residual and --gap of the page around it.

    Args:
        joint: its index, from 0.
        unit: of its torque.
        points: most points a curve; what is longer is drawn by its envelope.
        key: another one for each picture of a page, so that no id in it is used twice.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.style import context

    samples = evaluation.samples
    measured, predicted = samples.tau[:, joint], evaluation.prediction[:, joint]
    start = float(samples.t[0])
    shift = start if abs(start) > 1e5 else 0.0
    t = samples.t - shift
    pieces = samples.segments or ((0, len(t)),)
    with context(["default", {**_STYLE, "svg.hashsalt": f"jaxdyn {key} {joint}"}]):
        figure = Figure(figsize=_SIZE, facecolor="none")
        FigureCanvasSVG(figure)
        upper, lower = figure.subplots(2, sharex=True, height_ratios=(1.75, 1))
        figure.subplots_adjust(left=0.075, right=0.995, top=0.915, bottom=0.15, hspace=0.12)
        curves = (
            (upper, measured, _MEASURED, 2.5, "measured"),
            (upper, predicted, _PREDICTED, 1.0, "predicted"),
            (lower, measured - predicted, _RESIDUAL, 0.7, "measured - predicted"),
        )
        for axes, y, colour, width, label in curves:
            for k, (x, part) in enumerate(_drawn(t, y, pieces, points)):
                axes.plot(x, part, color=colour, linewidth=width, label=None if k else label)
        for axes, label in ((upper, f"torque [{unit}]"), (lower, f"residual [{unit}]")):
            for (_, stop), (begin, _) in itertools.pairwise(pieces):
                axes.axvspan(t[stop - 1], t[begin], facecolor=_GAP, edgecolor="none")
            axes.set_facecolor("none")
            axes.set_ylabel(label)
            axes.yaxis.set_label_coords(-0.052, 0.5)
            axes.spines[["top", "right"]].set_visible(False)
            axes.margins(x=0.005)
        lower.locator_params(axis="y", nbins=4)
        lower.axhline(0, color=_FAINT, linewidth=0.6)
        lower.set_xlabel(f"time from {shift:.3f} s on [s]" if shift else "time [s]")
        handles = [line for axes in (upper, lower) for line in axes.get_lines() if not line.get_label().startswith("_")]
        figure.legend(handles=handles, loc="upper right", ncols=3, frameon=False, borderaxespad=0.1, handlelength=2.2)
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _tidy(
        text.getvalue(), f"Measured and predicted torque over time, and their difference, of joint {joint + 1}"
    )


def _drawn(
    t: np.ndarray, y: np.ndarray, pieces: tuple[tuple[int, int], ...], points: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Each piece with its share of the points."""
    for start, stop in pieces:
        yield envelope(t[start:stop], y[start:stop], max(8, points * (stop - start) // len(t)))


def _tidy(svg: str, label: str) -> str:
    """Only the SVG element: one decimal a coordinate, colours by variable, no ids of groups, fonts of the page."""
    svg = svg[svg.index("<svg") :]
    for needless in (
        r"<metadata>.*?</metadata>\s*",
        r"<defs>\s*<style.*?</style>\s*</defs>\s*",
        r"font-family: [^;]*; ",
        r' transform="rotate\(-0 [^"]*"',
        r'(?<=<g) id="[^"]*"',
        r"(?<=>)\s+(?=<)",
    ):
        svg = re.sub(needless, "", svg, flags=re.DOTALL)
    svg = re.sub(r"(?<= d=\")[^\"]+", lambda path: _short(path[0]), svg)
    for stand_in, variable in _COLOURS.items():
        svg = svg.replace(stand_in, variable)
    head, body = svg.split(">", 1)
    box = re.search(r'viewBox="[^"]+"', head)
    assert box is not None
    return f'<svg {box[0]} role="img" aria-label="{label}" xmlns:xlink="http://www.w3.org/1999/xlink">{body}'


def _short(path: str) -> str:
    numbers = re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.1f}", path)
    return re.sub(r"\s+", " ", numbers).strip()

"""Pictures by matplotlib as inline SVG elements, which take their colours from the page's style sheet."""

import io
import re
from collections.abc import Callable
from typing import Any

# Stand-ins that become CSS variables, so that one picture serves light and dark screens and paper.
_COLOURS = {
    "#010101": "var(--ink)",
    "#020202": "var(--faint)",
    "#030303": "var(--line)",
    "#040404": "var(--measured)",
    "#050505": "var(--predicted)",
    "#060606": "var(--residual)",
    "#070707": "var(--gap)",
    "#080808": "var(--prior)",
}
INK, FAINT, LINE, MEASURED, PREDICTED, RESIDUAL, GAP, PRIOR = _COLOURS
_STYLE = {
    "svg.fonttype": "none",
    "path.simplify": False,
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": INK,
    "axes.edgecolor": LINE,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.unicode_minus": False,
    "grid.color": LINE,
    "grid.linewidth": 0.5,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": FAINT,
    "ytick.labelcolor": FAINT,
}


def picture(draw: Callable[[Any], None], size: tuple[float, float], label: str, key: str) -> str:
    """What `draw` puts on an empty figure, as an SVG element whose colours are CSS variables of the page around it.

    matplotlib's own settings and backend are left as they are. Colours to draw with: INK, FAINT, LINE, MEASURED,
    PREDICTED, RESIDUAL, GAP and PRIOR, for the variables --ink, --faint and so on.

    Args:
        draw: given the matplotlib figure.
        size: width and height [in]; the page scales it.
        label: what is to be seen, for those who cannot.
        key: another one for each picture of a page, so that no id in it is used twice.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.style import context

    with context(["default", {**_STYLE, "svg.hashsalt": f"jaxdyn {key}"}]):
        figure = Figure(figsize=size, facecolor="none")
        FigureCanvasSVG(figure)
        draw(figure)
        for axes in figure.axes:
            axes.set_facecolor("none")
            axes.spines[["top", "right"]].set_visible(False)
        text = io.StringIO()
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _tidy(text.getvalue(), label)


def plain_powers(*axes: Any) -> None:
    """Labels like 0.01 on logarithmic axes, without marks between: in mathematical type they take most of the drawing."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    for axis in axes:
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))


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

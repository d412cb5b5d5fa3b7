"""Small pieces of HTML: escaped text, tables, tiles, numbers with as many digits as they deserve."""

import html
import math
from collections.abc import Iterable, Sequence

DASH, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"


def escaped(text: str) -> str:
    """Text as HTML shows it."""
    return html.escape(text)


def element(tag: str, content: str, kind: str = "", **attributes: str) -> str:
    """An element of a class, around content that is HTML already."""
    given = {"class": kind, **{name.rstrip("_"): value for name, value in attributes.items()}}
    inside = "".join(f' {name}="{html.escape(value)}"' for name, value in given.items() if value)
    return f"<{tag}{inside}>{content}</{tag}>"


def unit(text: str) -> str:
    """A unit with its powers raised: kg m^2 as kg m²."""
    return html.escape(text).replace("^2", "²").replace("^3", "³")


def items(lines: Iterable[str]) -> str:
    """A list of plain texts."""
    return element("ul", "".join(element("li", escaped(line)) for line in lines))


def names(given: Sequence[str]) -> str:
    """Names, set as code, with commas between them."""
    return ", ".join(element("code", escaped(name)) for name in given)


def table(head: Sequence[str], rows: Iterable[str], **attributes: str) -> str:
    """A table that scrolls sideways where the page is narrow; `head` and `rows` are the content of its rows."""
    top = "".join(element("tr", row) for row in head)
    body = "".join(element("tr", row) for row in rows)
    inner = element("table", element("thead", top) + element("tbody", body), **attributes)
    return element("div", inner, "scroll")


def tile(value: str, label: str, detail: str = "", kind: str = "") -> str:
    """A number of the summary."""
    content = element("b", escaped(value)) + element("span", escaped(label)) + element("small", escaped(detail))
    return element("div", content, f"tile {kind}".strip())


def number(x: float, digits: int = 4) -> str:
    """A few significant digits; a dash for NaN."""
    return DASH if math.isnan(x) else f"{x:.{digits}g}".replace("-", MINUS)


def rounded(x: float) -> str:
    """Three significant digits, zeros at the end as well, for errors and percents; a dash for NaN."""
    if not math.isfinite(x):
        return DASH if math.isnan(x) else "\N{INFINITY}"
    if x == 0:
        return "0"
    return f"{x:.2e}" if not 1e-3 <= abs(x) < 1e5 else f"{x:#.3g}".rstrip(".") if abs(x) < 999.5 else f"{x:.0f}"


def with_deviation(value: float, deviation: float) -> tuple[str, str]:
    """A value to the second significant digit of its standard deviation, and that: ("1.2346", "0.0067")."""
    if not (math.isfinite(deviation) and deviation > 0):
        return number(value, 6), number(deviation, 2)
    decimals = 1 - math.floor(math.log10(deviation))
    if not 0 <= decimals <= 7:
        digits = 1 + max(1, decimals + math.floor(math.log10(max(abs(value), deviation))))
        return number(value, min(digits, 17)), number(deviation, 2)
    return f"{value:.{decimals}f}".replace("-", MINUS), f"{deviation:.{decimals}f}"

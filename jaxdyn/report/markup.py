"""Building blocks of all pages: head, notes, tables, tiles, escaped text, and numbers rounded to significant digits."""

import dataclasses
import datetime
import html
import importlib.resources
import math
from collections.abc import Iterable, Sequence

from .._version import version_of

DASH, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"


def escaped(text: str) -> str:
    """Text escaped for HTML."""
    return html.escape(text)


def element(tag: str, content: str, kind: str = "", **attributes: str) -> str:
    """An HTML element with content and a class; underscores in attribute names become hyphens, as in font-size."""
    given = {"class": kind, **{name.replace("_", "-"): value for name, value in attributes.items()}}
    inside = "".join(f' {name}="{html.escape(value)}"' for name, value in given.items() if value)
    return f"<{tag}{inside}>{content}</{tag}>"


def unit(text: str) -> str:
    """A unit with superscript powers: kg m^2 as kg m²."""
    return html.escape(text).replace("^2", "²").replace("^3", "³")


def items(lines: Iterable[str]) -> str:
    """A list of plain texts."""
    return element("ul", "".join(element("li", escaped(line)) for line in lines))


def names(given: Sequence[str]) -> str:
    """Names in code style, separated by commas."""
    return ", ".join(element("code", escaped(name)) for name in given)


def section(title: str, key: str, *parts: str) -> str:
    """A heading with an anchor, and the content below it."""
    return element("h2", title, id=key) + "".join(parts)


def faint(text: str) -> str:
    """An explanatory paragraph."""
    return element("p", text, "faint")


def folded(title: str, key: str, *parts: str) -> str:
    """A section that is collapsed until the user opens or prints it."""
    return element("details", element("summary", element("h2", title, id=key)) + "".join(parts), "part")


def page(title: str, sections: Iterable[str]) -> str:
    """A complete HTML file, including style and script, around sections in HTML."""
    style, script = (
        (importlib.resources.files("jaxdyn.report") / name).read_text("utf-8") for name in ("page.css", "page.js")
    )
    footer = element("footer", "SI units and radians throughout. Made by jaxdyn.")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escaped(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join((*sections, footer))
        + f"\n</main>\n<script>\n{script}</script>\n</body>\n</html>\n"
    )


def page_head(
    kicker: str,
    title: str,
    facts: Sequence[tuple[str, str]],
    date: datetime.datetime | None,
    links: Sequence[tuple[str, str]] = (),
) -> str:
    """The top of a page: heading, facts as pairs of plain texts, date and version, and links to sections."""
    date = date or datetime.datetime.now().astimezone()
    made = f"{date.strftime('%Y-%m-%d %H:%M %Z').strip()}, jaxdyn {version_of()}"
    listed = "".join(element("dt", a) + element("dd", escaped(b)) for a, b in (*facts, ("Made", made)))
    jumps = element("nav", "".join(element("a", text, href=f"#{key}") for key, text in links)) if links else ""
    heading = element("p", escaped(kicker), "kicker") + element("h1", escaped(title))
    return element("header", heading + element("dl", listed) + jumps)


SHOWN = 4  # number of notes shown; the others are collapsed


def notes_section(notes: Sequence[str]) -> str:
    """Section with notes on the logs; if there are many, all but the first four are collapsed."""
    each = list(dict.fromkeys(notes))
    more = ""
    if len(each) > SHOWN + 2:
        more = element("details", element("summary", f"{len(each) - SHOWN} more") + items(each[SHOWN:]))
        each = each[:SHOWN]
    return section("Notes on the data", "notes", items(each) if each else element("p", "None."), more)


Cell = str | tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        heading: text above the column.
        cells: HTML of each cell, or a tuple of the HTML, a class that replaces `inside` and an optional title.
        kind: class of the heading.
        inside: class of the cells; by default the heading's class.
        tag: tag of the cells.
    """

    heading: str
    cells: Sequence[Cell]
    kind: str = ""
    inside: str | None = None
    tag: str = "td"

    def cell(self, row: int) -> str:
        given, kind = self.cells[row], self.kind if self.inside is None else self.inside
        content, kind, title = (*((given, kind) if isinstance(given, str) else given), "")[:3]
        return element(self.tag, content, kind, title=title)


def names_column(heading: str, given: Iterable[str]) -> Column:
    """A column of plain-text row headings."""
    return Column(heading, [escaped(name) for name in given], "text", tag="th")


def columns_table(columns: Sequence[Column]) -> str:
    """A table built from columns of equal length."""
    head = "".join(element("th", column.heading, column.kind) for column in columns)
    rows = ("".join(column.cell(row) for column in columns) for row in range(len(columns[0].cells)))
    return table(head, rows)


def table(head: str, rows: Iterable[str]) -> str:
    """A table that scrolls if the page is narrow or the table is long; `head` and `rows` contain the HTML of its rows."""
    body = "".join(element("tr", row) for row in rows)
    inner = element("table", element("thead", element("tr", head)) + element("tbody", body))
    return element("div", inner, "scroll")


def tile(value: str, label: str, detail: str = "", kind: str = "") -> str:
    """A key figure in the summary, with a label and details."""
    content = element("b", escaped(value)) + element("span", escaped(label)) + element("small", escaped(detail))
    return element("div", content, f"tile {kind}".strip())


def number(x: float, digits: int = 4) -> str:
    """A few significant digits; a dash for NaN."""
    return DASH if math.isnan(x) else f"{x:.{digits}g}".replace("-", MINUS)


def rounded(x: float) -> str:
    """Three significant digits with trailing zeros, for errors and percentages; a dash for NaN."""
    if not math.isfinite(x):
        return DASH if math.isnan(x) else "\N{INFINITY}"
    if x == 0:
        return "0"
    return f"{x:.2e}" if not 1e-3 <= abs(x) < 1e5 else f"{x:#.3g}".rstrip(".") if abs(x) < 999.5 else f"{x:.0f}"


def with_deviation(value: float, deviation: float) -> tuple[str, str]:
    """A value and its standard deviation, rounded to two significant digits of the deviation: ("1.2346", "0.0067")."""
    if not (math.isfinite(deviation) and deviation > 0):
        return number(value, 6), number(deviation, 2)
    decimals = 1 - math.floor(math.log10(deviation))
    if not 0 <= decimals <= 7:
        digits = 1 + max(1, decimals + math.floor(math.log10(max(abs(value), deviation))))
        return number(value, min(digits, 17)), number(deviation, 2)
    return f"{round(value, decimals) + 0.0:.{decimals}f}".replace("-", MINUS), f"{deviation:.{decimals}f}"


def value_columns(
    values: Sequence[float], deviations: Sequence[float], intervals: Sequence[Sequence[float]]
) -> list[Column]:
    """Columns of values, their standard deviations, and 95 % intervals."""
    both = [with_deviation(v, d) for v, d in zip(values, deviations, strict=True)]
    ends = [" to ".join(with_deviation(x, d)[0] for x in xs) for xs, d in zip(intervals, deviations, strict=True)]
    return [
        Column("value", [value for value, _ in both]),
        Column("± s.d.", [f"± {deviation}" for _, deviation in both]),
        Column("95 % interval", ends),
    ]

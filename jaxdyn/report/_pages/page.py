"""Parts shared by all pages: style, script, heading, links and notes."""

import datetime
import importlib.resources
from collections.abc import Sequence

from ..._version import version_of
from .._markup import element, escaped, items, section


def page(title: str, sections: Sequence[str]) -> str:
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
    kicker: str, title: str, facts: Sequence[tuple[str, str]], links: Sequence[tuple[str, str]] = (), more: str = ""
) -> str:
    """The top of a page: heading, facts, and links to sections.

    Args:
        facts: pairs of plain texts.
        links: id and title of each section.
        more: further facts as HTML.
    """
    return element(
        "header",
        element("p", escaped(kicker), "kicker")
        + element("h1", escaped(title))
        + facts_list(facts)
        + more
        + (element("nav", "".join(element("a", text, href=f"#{key}") for key, text in links)) if links else ""),
    )


def facts_list(facts: Sequence[tuple[str, str]]) -> str:
    """Pairs of plain texts, one below the other."""
    return element("dl", "".join(element("dt", a) + element("dd", escaped(b)) for a, b in facts), "about")


def made_by(date: datetime.datetime | None) -> list[tuple[str, str]]:
    """Date (by default now) and version, the last facts at the top of a page."""
    date = date or datetime.datetime.now().astimezone()
    return [("Date", date.strftime("%Y-%m-%d %H:%M %Z").strip()), ("Made by", f"jaxdyn {version_of()}")]


SHOWN = 4  # number of notes shown; the others are collapsed


def notes_section(notes: Sequence[str]) -> str:
    """Section with notes on the logs; if there are many, all but the first four are collapsed."""
    each = list(dict.fromkeys(notes))
    more = ""
    if len(each) > SHOWN + 2:
        more = element("details", element("summary", f"{len(each) - SHOWN} more") + items(each[SHOWN:]))
        each = each[:SHOWN]
    return section("Notes on the data", "notes", items(each) if each else element("p", "None."), more)

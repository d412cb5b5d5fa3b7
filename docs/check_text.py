"""MkDocs hook that fails the build if a page shows less text than its source contains.

Markdown can drop text silently: `<robot>` outside code becomes an HTML tag, which browsers do not show; a vertical bar starts
another cell in a table row; and asterisks in a product become emphasis. This hook therefore compares every page with its
Markdown, and every docstring on a page with the text shown under its name: all words must appear, in the same order.
"""

import difflib
import importlib
import inspect
import re
from html.parser import HTMLParser

from check_coverage import has_docstring, public_members

CODE = re.compile(
    r"^ *(?P<fence>`{3,})[^\n]*\n(?P<block>.*?)^ *(?P=fence) *$|(?P<tick>`+)(?P<span>.+?)(?P=tick)", re.M | re.S
)
SYNTAX = (  # of Markdown outside code and of docstrings: patterns, and the part of each match that is shown
    (re.compile(r"<!--.*?-->", re.S), ""),
    (re.compile(r"<(https?://[^>\s]*)>"), r"\1"),
    (re.compile(r"^::: .*$", re.M), ""),
    (re.compile(r"!\[[^\]]*\]\([^)]*\)(\{[^}]*\})?"), ""),
    (re.compile(r"\[([^\]]*)\]\([^)\s]*\)"), r"\1"),
    (re.compile(r"^(Args|Attributes|Raises|Returns|Yields|Warns):$", re.M), ""),
    (re.compile(r"^ *[*] ", re.M), ""),
    (re.compile(r"^ *(\d+)\. ", re.M), r"\1 "),
    (re.compile(r"(?<!\w)[*]+(?=\S)|(?<=\S)[*]+(?!\w)"), ""),
)
TAG = re.compile(r"</?[A-Za-z][^>]*>")
SKIPPED = {"doc-heading", "doc-signature", "headerlink"}  # parts of an API entry other than the docstring


def _outside_code(markdown: str) -> tuple[str, list[str]]:
    """A Markdown text without its syntax, with a mark in place of each piece of code; and these pieces of code."""
    pieces: list[str] = []

    def mark(found: re.Match) -> str:
        pieces.append(found["block"] if found["fence"] else found["span"])
        return f"\0{len(pieces) - 1}\0"

    prose = CODE.sub(mark, markdown)
    for pattern, shown in SYNTAX:
        prose = pattern.sub(shown, prose)
    return prose, pieces


def _words(text: str) -> list[str]:
    return re.findall(r"\w+|[<>=*^/%@~]", text)


def tags(markdown: str) -> list[str]:
    """Words in angle brackets outside code, which browsers interpret as HTML tags and do not show."""
    indented = re.compile(r"(?<=\n\n)( {4}[^\n]*\n?)+")
    return TAG.findall(indented.sub("", _outside_code(markdown)[0]))


def lost_text(markdown: str, shown: str) -> str:
    """Words of a Markdown text that are missing or out of order in the text shown; empty if there are none."""
    prose, pieces = _outside_code(markdown)
    source, target = _words(re.sub("\0(\\d+)\0", lambda found: pieces[int(found[1])], prose)), _words(shown)
    rest = iter(target)
    if all(word in rest for word in source):
        return ""
    changes = difflib.SequenceMatcher(None, source, target, autojunk=False).get_opcodes()
    return ", ".join(" ".join(source[i:j]) for kind, i, j, _, _ in changes if kind in ("delete", "replace"))


class ShownText(HTMLParser):
    """Visible text of each docstring on a page, by the API name it documents; all other text of the page is under ""."""

    def __init__(self, html: str):
        super().__init__()
        self.text: dict[str, str] = {"": ""}
        self._names = [""]  # names of the open objects
        self._divs: list[bool] = []  # for each open div, whether it opened an object
        self._skipped: list[str] = []  # open tags, starting with the one that is skipped
        self._lists: list[int | None] = []  # number of the last item of each open list, None for unnumbered lists
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        classes = set((values.get("class") or "").split())
        if "doc-heading" in classes:
            self._names[-1] = values.get("id") or ""
            self.text.setdefault(self._names[-1], "")
        if tag == "div":
            opens = "doc-object" in classes
            self._divs.append(opens)
            self._names += [self._names[-1]] if opens else []
        if (self._skipped and tag == self._skipped[0]) or (not self._skipped and classes & SKIPPED):
            self._skipped.append(tag)
        self._space(tag)
        if tag in ("ol", "ul"):
            self._lists.append(int(values.get("start") or 1) - 1 if tag == "ol" else None)
        if tag == "li" and self._lists and self._lists[-1] is not None:
            self._lists[-1] += 1
            self.text[self._names[-1]] += f"{self._lists[-1]} "

    def handle_endtag(self, tag: str) -> None:
        if self._skipped and tag == self._skipped[0]:
            self._skipped.pop()
        if tag == "div" and self._divs and self._divs.pop():
            self._names.pop()
        if tag in ("ol", "ul") and self._lists:
            self._lists.pop()
        self._space(tag)

    def handle_data(self, data: str) -> None:
        if not self._skipped and self.cdata_elem is None:
            self.text[self._names[-1]] += data

    def _space(self, tag: str) -> None:
        if tag not in ("a", "autoref", "b", "code", "em", "span", "strong"):
            self.text[self._names[-1]] += " "


def _named(name: str) -> object:
    """The object with the given dotted name in jaxdyn, with methods unwrapped; None if there is none."""
    value: object = importlib.import_module("jaxdyn")
    for part in name.split(".")[1:]:
        value = inspect.getattr_static(value, part, None) if inspect.isclass(value) else getattr(value, part, None)
        value = inspect.unwrap(getattr(value, "__func__", value))
    return value


def _docstring(name: str) -> str:
    """The docstring of a function, property, class or module; empty if it has none."""
    value = _named(name)
    kinds = (inspect.isfunction, inspect.isclass, inspect.ismodule, inspect.isdatadescriptor)
    return inspect.cleandoc(value.__doc__) if any(kind(value) for kind in kinds) and has_docstring(value) else ""


def _expected(name: str) -> list[str]:
    """The given name and the names of its members that have docstrings."""
    value = _named(name)
    members = public_members(value) if inspect.isclass(value) or inspect.ismodule(value) else {}
    return [name, *(f"{name}.{member}" for member, item in members.items() if has_docstring(item))]


def losses(markdown: str, html: str) -> list[str]:
    """One line for each text (the page's own or a docstring) that loses words, and for each docstring that is not shown."""
    shown = ShownText(html).text
    texts = {"": markdown} | {name: _docstring(name) for name in shown if name.startswith("jaxdyn.")}
    found = []
    for name, text in texts.items():
        lost = lost_text(text, shown[name]) if text else ""
        if lost:
            found.append(f"{name or 'the page'} loses: {lost}")
    for name in re.findall(r"^::: ([\w.]+)", markdown, re.M):
        found += [f"{part} is not shown" for part in _expected(name) if part not in shown]
    return found


_found: list[str] = []


def on_pre_build(**_: object) -> None:
    """Clear the list of losses before MkDocs reads a page."""
    _found.clear()


def on_page_content(html: str, page, **_: object) -> None:
    """Collect the losses of a page, whose HTML includes docstrings."""
    _found.extend(f"{page.file.src_uri}: {line}" for line in losses(page.markdown, html))


def on_env(env, **_: object) -> None:
    """Abort the build, after all pages are rendered and before any is written, if a page loses text."""
    from mkdocs.exceptions import Abort

    if _found:
        raise Abort("pages lose text:\n  " + "\n  ".join(_found))

"""The check of the documentation's build that no page loses text, on pages that do and on pages that do not."""

import ast
import importlib
import inspect
import sys

import pytest

import jaxdyn
from data_paths import ROOT


@pytest.fixture(scope="module")
def check():
    sys.path.insert(0, str(ROOT / "docs"))  # as MkDocs does for its hooks
    try:
        yield importlib.import_module("check_text")
    finally:
        sys.path.remove(str(ROOT / "docs"))


LOST = {  # Markdown, the HTML that Python-Markdown makes of it, and what a browser does not show of that
    "tag": ("no <inertial> here", "<p>no <inertial> here</p>", "< inertial >"),
    "tag_of_attributes": ("a <limit lower='0'/>", "<p>a <limit lower='0'/></p>", "< limit lower = 0 / >"),
    "hidden_element": ("a <script> of x", "<p>a <script> of x</p>", "< script > of x"),
    "bar_in_table": (
        "| a | b |\n|---|---|\n| 1 | |q| |",
        "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td>1</td><td></td></tr></tbody></table>",
        "q",
    ),
    "product": ("2*m*g", "<p>2<em>m</em>g</p>", "2 * m * g"),
    "underscores": ("calls __init__ first", "<p>calls <strong>init</strong> first</p>", "__init__"),
    "number_of_a_list": ("3. three\n4. four", "<ol><li>three</li><li>four</li></ol>", "3, 4"),
    "line": ("first\nsecond\nthird", "<p>first\nthird</p>", "second"),
}
KEPT = {
    "code": ("no `<inertial>` here", "<p>no <code>&lt;inertial&gt;</code> here</p>"),
    "fence": ("```xml\n<robot>\n```\nand", '<pre><code><span class="nt">&lt;robot</span>&gt;</code></pre><p>and</p>'),
    "link": (
        "a [`Chain`](api/models.md#chain) of\nlinks",
        '<p>a <a href="x.html"><code>Chain</code></a> of\nlinks</p>',
    ),
    "emphasis": ("**Not** *one*", "<p><strong>Not</strong> <em>one</em></p>"),
    "comment_and_picture": ("<!-- generated -->\n![a picture](a.png)\nx", '<p><img alt="a picture" src="a.png">x</p>'),
    "table": ("| a | `|q|` |\n|---|---|\n| 1 | 2 |", "<table><tr><th>a</th><th><code>|q|</code></th></tr><td>1 2</td>"),
    "list": ("1. one\n2. two", "<ol><li>one</li><li>two</li></ol>"),
    "heading": ("# M < 0", '<h1 id="m">M &lt; 0<a class="headerlink" href="#m">&para;</a></h1>'),
}


@pytest.mark.parametrize("sample", LOST)
def test_lost_text_is_found(check, sample):
    markdown, html, lost = LOST[sample]
    assert check.losses(markdown, html) == [f"the page loses: {lost}"]


@pytest.mark.parametrize("sample", KEPT)
def test_text_that_is_shown_is_not_missed(check, sample):
    assert check.losses(*KEPT[sample]) == []


def rendered(name: str, text: str) -> str:
    """HTML of an object's docstring as mkdocstrings lays it out."""
    return (
        f'<div class="doc doc-object"><h2 id="{name}" class="doc doc-heading">{name} robot</h2>'
        f'<div class="doc-signature">f(robot)</div><div class="doc doc-contents"><p>{text}</p></div></div>'
    )


def test_every_docstring_is_compared_with_what_stands_under_its_name(check):
    name = "jaxdyn.mass_matrix_inverse"
    text = inspect.cleandoc(jaxdyn.mass_matrix_inverse.__doc__)
    assert check.losses(f"::: {name}", rendered(name, text)) == []
    without = text.replace("elimination", "", 1)
    assert check.losses(f"::: {name}", rendered(name, without)) == [f"{name} loses: elimination"]
    # what stands elsewhere on the page does not count
    elsewhere = f"<p>elimination</p>{rendered(name, without)}<p>elimination</p>"
    assert check.losses(f"elimination\n::: {name}\nelimination", elsewhere) == [f"{name} loses: elimination"]


def test_names_that_are_not_shown_are_found(check):
    name, text = "jaxdyn.Transmission", inspect.cleandoc(jaxdyn.Transmission.__doc__)
    assert check.losses(f"::: {name}", rendered(name, text)) == []
    assert check.losses(f"::: {name}", rendered(f"{name}.matrix", text)) == [f"{name} is not shown"]
    name = "jaxdyn.Chain"
    found = check.losses(f"::: {name}", rendered(name, inspect.cleandoc(jaxdyn.Chain.__doc__)))
    assert found == [f"{name}.{x} is not shown" for x in check.public_members(jaxdyn.Chain)] and found


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda p: str(p.relative_to(ROOT / "docs")))
def test_pages_hold_no_tags(check, page):
    assert check.tags(page.read_text()) == []


def test_docstrings_hold_no_tags(check):
    found = {}
    for path in sorted((ROOT / "jaxdyn").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                tags = check.tags(ast.get_docstring(node) or "")
                found |= {f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}": tags} if tags else {}
    assert not found, f"write these in backticks, or pages lose them: {found}"


def test_tags_are_told_from_code_and_comparisons(check):
    text = "a <robot> has `<link>`, <https://x.org> <!-- no --> 1 < 2 > 0, z <- z\n\n    <code>\n\n```xml\n<a/>\n```\n</robot>"
    assert check.tags(text) == ["<robot>", "</robot>"]

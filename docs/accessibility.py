"""MkDocs hook: the markup that screen readers need and neither Markdown nor the theme writes."""

import re

REPLACED = (
    (re.compile(r'class="md-search" data-md-component="search" role="dialog"'), r'\g<0> aria-label="Search"'),
    (re.compile(r"<th([^>]*)></th>"), r"<td\1></td>"),  # an empty corner of a table is no header
)


def on_post_page(output: str, **_: object) -> str:
    """The HTML of a page, after the theme."""
    for pattern, replacement in REPLACED:
        output = pattern.sub(replacement, output)
    return output

"""MkDocs hook: markup for screen readers and narrow screens that neither Markdown nor the theme writes."""

import re

SEARCH = 'class="md-search" data-md-component="search" role="dialog"'
EMPTY_HEADER = re.compile(r"<th([^>]*)></th>")  # the empty corner of a table is no header
NAME = re.compile(r'(<span class="doc doc-object-name [^>]*>)([^<]+)')


def on_post_page(output: str, **_: object) -> str:
    """The finished HTML of a page: the search dialog labelled, and long names broken at dots and underscores only."""
    output = output.replace(SEARCH, f'{SEARCH} aria-label="Search"')
    output = EMPTY_HEADER.sub(r"<td\1></td>", output)
    return NAME.sub(lambda found: found[1] + re.sub(r"([._])", r"\1<wbr>", found[2]), output)


def on_post_template(output_content: str, **_: object) -> str:
    """The finished HTML of a page without a document, such as 404.html."""
    return on_post_page(output_content)

"""MkDocs hook that adds markup for screen readers and narrow screens, which neither Markdown nor the theme provides."""

import re

SEARCH = 'class="md-search" data-md-component="search" role="dialog"'
EMPTY_HEADER = re.compile(r"<th([^>]*)></th>")  # the empty corner of a table is not a header
NAME = re.compile(r'(<span class="doc doc-object-name [^>]*>)([^<]+)')


def on_post_page(output: str, **_: object) -> str:
    """Return the final HTML of a page with a labelled search dialog; long names break only at dots and underscores."""
    output = output.replace(SEARCH, f'{SEARCH} aria-label="Search"')
    output = EMPTY_HEADER.sub(r"<td\1></td>", output)
    return NAME.sub(lambda found: found[1] + re.sub(r"([._])", r"\1<wbr>", found[2]), output)


def on_post_template(output_content: str, **_: object) -> str:
    """Return the final HTML of a page without a source document, such as 404.html."""
    return on_post_page(output_content)

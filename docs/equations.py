"""MkDocs hook that converts equations to MathML, which browsers render natively, without scripts, fonts or downloads.

Pages contain LaTeX between `$$` lines; `pymdownx.arithmatex` marks it, and this hook converts it after the text is checked.
"""

import html
import re

MARKED = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.S)


def converted(page: str) -> str:
    """The HTML of a page, with every marked equation as MathML and its LaTeX as alternative text."""
    from latex2mathml.converter import convert

    def mathml(found: re.Match) -> str:
        latex = html.unescape(found[1]).strip()
        alternative = f'alttext="{html.escape(latex, quote=True)}"'
        return f'<div class="equation">{convert(latex, display="block").replace("<math ", f"<math {alternative} ", 1)}</div>'

    return MARKED.sub(mathml, page)


def on_page_content(html: str, **_: object) -> str:
    """Convert the equations of a page; MkDocs calls the hooks in the order of its configuration."""
    from mkdocs.exceptions import Abort

    page = converted(html)
    if 'class="arithmatex"' in page:
        raise Abort("equations.py converts only equations between lines of $$; put the inline equation there too")
    return page

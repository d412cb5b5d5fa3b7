"""MkDocs hook: equations as MathML, which browsers lay out themselves: no scripts, no fonts, nothing fetched.

Pages hold LaTeX between `$$` lines; `pymdownx.arithmatex` marks it, and this hook converts it once the text has been checked.
"""

import html
import re

MARKED = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.S)


def converted(page: str) -> str:
    """HTML with MathML for every marked equation; each carries its LaTeX as the alternative text."""
    from latex2mathml.converter import convert

    def mathml(found: re.Match) -> str:
        latex = html.unescape(found[1]).strip()
        alternative = f'alttext="{html.escape(latex, quote=True)}"'
        return f'<div class="equation">{convert(latex, display="block").replace("<math ", f"<math {alternative} ", 1)}</div>'

    return MARKED.sub(mathml, page)


def on_page_content(html: str, **_: object) -> str:
    """Called by MkDocs with each page's HTML, after the hooks before this one."""
    from mkdocs.exceptions import Abort

    page = converted(html)
    if 'class="arithmatex"' in page:
        raise Abort("equations.py converts equations between lines of $$ alone, and a page has another one")
    return page

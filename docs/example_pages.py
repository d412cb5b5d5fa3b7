"""MkDocs hook: every script of examples/ is a page of the site, so that links to it work there as in the repository."""

import re
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def on_files(files, config, **_: object):
    """Adds a page for each script; none of them stands in the navigation."""
    from mkdocs.structure.files import File, InclusionLevel

    for path in sorted(EXAMPLES.glob("*.py")):
        text = f"# {path.name}\n\n```python\n{path.read_text()}```\n"
        page = File.generated(config, f"examples/{path.stem}.md", content=text, inclusion=InclusionLevel.NOT_IN_NAV)
        files.append(page)
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Turns links to the repository's scripts into links to these pages."""
    return re.sub(r"\]\(\.\./((?:\.\./)*)examples/(\w+)\.py\)", r"](\1examples/\2.md)", markdown)

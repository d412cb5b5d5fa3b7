"""MkDocs hook that adds the scripts and notebooks in examples/ as pages of the site, so links to them work on the site too."""

import json
import re
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def on_files(files, config, **_: object):
    """Add a page for each script and notebook, outside the navigation, and the notebook files themselves."""
    from mkdocs.structure.files import File, InclusionLevel

    def add(place: str, text: str) -> None:
        files.append(File.generated(config, place, content=text, inclusion=InclusionLevel.NOT_IN_NAV))

    for path in sorted(EXAMPLES.glob("*.py")):
        add(f"examples/{path.stem}.md", f"# {path.name}\n\n```python\n{path.read_text()}```\n")
    for path in sorted(EXAMPLES.glob("notebooks/*.ipynb")):
        add(f"examples/notebooks/{path.stem}.md", notebook_page(path))
        add(f"examples/notebooks/{path.name}", path.read_text())
    return files


def notebook_page(path: Path) -> str:
    """The cells of a notebook as Markdown, with a link to the file below its title."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(path.read_text())["cells"]]
    texts = [f"```python\n{source}\n```" if kind == "code" else source for kind, source in cells]
    download = (
        f"[Download the notebook]({path.name}) and open it in Jupyter, or upload it to a hosted notebook service."
    )
    text = "\n\n".join([texts[0].replace("\n", f"\n\n{download}\n", 1), *texts[1:]])
    text = re.sub(r"\$\$(.+?)\$\$", r"\n\n$$\n\1\n$$\n\n", text)  # equations.py converts equations between lines of $$
    return re.sub(r"`(\w+)\.ipynb`", r"[\1](\1.md)", text) + "\n"


def on_page_markdown(markdown: str, **_: object) -> str:
    """Replace links to the repository's scripts and notebooks with links to their pages."""
    return re.sub(r"\]\(\.\./((?:\.\./)*)examples/([\w/]+)\.(?:py|ipynb)\)", r"](\1examples/\2.md)", markdown)

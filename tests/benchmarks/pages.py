"""The generated parts of docs/benchmarks.md, each between two comments; the text around them is never changed."""

import os
import re
from pathlib import Path

from .tables import Table, figures

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
PICTURES = PAGE.parent / "pictures"


def markers(part: str) -> tuple[str, str]:
    return f"<!-- generated: {part} -->", f"<!-- end of generated: {part} -->"


def about(machine: dict) -> str:
    """A paragraph that describes when and on which machine the benchmarks ran."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    text = f"{machine['date']}: {machine['processor']}, {machine['cores']} cores, {machine['system']}, "
    text += f"device {machine['device']}, " if machine["platform"] != "cpu" else ""
    text += f"load {machine['load']} at the start; Python {machine['python']}, {versions}."
    for peak in machine["peaks"]:
        text += (
            f"\nPeak of {peak['devices']} device{'s' * (peak['devices'] > 1)} in {peak['precision']}, measured: "
            f"{figures(peak['flops'] / 1e9)} Gflop/s, {figures(peak['bytes'] / 1e9)} GB/s."
        )
    return text


def section(part: str, machine: dict, tables: list[Table], pictures: list[Path]) -> str:
    """The text between the two comments of a part."""
    shown = [f"![{path.stem.replace('_', ' ')}](pictures/{path.name})" for path in pictures]
    return "\n\n".join([about(machine), *(table.text().strip() for table in tables), *shown])


def rewrite(part: str, text: str, page: Path = PAGE) -> None:
    """Atomically replace the text between a part's comments; if the page has none yet, append the part to the page."""
    begin, end = markers(part)
    block = f"{begin}\n\n{text.strip()}\n\n{end}"
    old = page.read_text(encoding="utf-8")
    if begin in old:
        if old.count(begin) != 1 or old.count(end) != 1 or old.index(end) < old.index(begin):
            raise SystemExit(f"{page.name}: the comments around {part} are not one pair; mend them by hand")
        new = re.sub(re.escape(begin) + ".*?" + re.escape(end), lambda _: block, old, flags=re.DOTALL)
    else:
        new = f"{old.rstrip()}\n\n## {part.capitalize()}\n\n{block}\n"
    draft = page.with_name(f".{page.name}.{os.getpid()}.part")
    draft.write_text(new, encoding="utf-8")
    os.replace(draft, page)

"""The page of the sources, walked: every row has live names, a test that does not run at night only, and a page."""

import re
from functools import reduce

import pytest

import jaxdyn
import jaxdyn.symbolic
from data_paths import ROOT

PAGE = ROOT / "docs" / "sources.md"
ROWS = [
    [cell.strip() for cell in line.strip().strip("|").split("|")]
    for line in PAGE.read_text().splitlines()
    if line.startswith("|") and not line.startswith(("| section", "|---"))
]


def test_there_are_five_sources():
    assert len(re.findall(r"^\| section", PAGE.read_text(), re.MULTILINE)) == 5 and len(ROWS) > 50


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_leads_somewhere(row):
    assert len(row) == 4 and all(row), f"an empty cell in {row}"
    _, names, test, shown = row
    for name in re.findall(r"`([^`]+)`", names):
        assert callable(reduce(getattr, name.split("."), jaxdyn)), name
    ((file, function),) = re.findall(r"`(\w+\.py)::(\w+)`", test)
    text = (ROOT / "tests" / file).read_text()
    found = re.search(rf"((?:^@.*\n(?:[ )\]].*\n)*)*)^def {function}\(", text, re.MULTILINE)
    assert found, f"{file} has no test {function}"
    assert not re.search(r"^@pytest\.mark\.nightly", found[1], re.MULTILINE), f"{function} runs at night only"
    ((link,),) = [re.findall(r"\]\(([^)]+)\)", shown)]
    assert (PAGE.parent / link).is_file(), link

"""The mutation check itself, on a package of a few lines: its changes, and that it reports what tests notice."""

import json

import pytest

from data_paths import ROOT
from mutation import report, sites
from mutation.__main__ import main
from mutation.campaign import batches
from mutation.coverage_map import Portion
from mutation.settings import Project

TEXT = '''"""Adds 1 + 1."""

DEFAULT: float = 2 * 3.0
__all__ = ["area"][0:1]


def area(radius: "list[1]", scale: float = 2 * 0.5) -> float:
    """Equal to 2 * 3 - 1."""
    if radius < 0:
        raise ValueError(f"{radius - 1} is less than {2 * 0}")
    names = ["a"] * 3 + list("b" + "c")
    return scale * math.pi * radius**2 if names else -1.0


def cube(x):
    return (
        x  # - 1
        * x
        * abs(-x)
    )


def differences(x, n):
    n -= 1
    return 1e-9 * n, x[1:] - x[:, :-1], n / 4, range(0, n)
'''
EQUIVALENT = """
[[equivalent]]
file = "toy/core.py"
before = "return abs(-x**3)"
after = "return abs(x**3)"
reason = "the sign does not matter to abs"

[[equivalent]]
file = "toy/core.py"
before = "gone"
after = "still gone"
reason = "none"
"""
TOY = '''"""Functions that a change breaks, hangs, aborts, or leaves as they are."""

import os

TWICE = 3 + 3


def area(radius):
    return 3.14 * radius


def cube(x):
    if x == 77:
        os.abort()
    return abs(-x**3)


def countdown(n):
    while n:
        n -= 1
    return TWICE


def unnoticed(x):
    return x < 3


def unused(x):
    return x > 3
'''
TESTS = """
import subprocess
import sys

import pytest

from toy import core


@pytest.fixture(scope="module")
def areas():
    return [core.area(1.0)]


def test_area(areas):
    assert 3.1 < areas[0] < 3.2


def test_in_another_process():
    code = "from toy.core import cube, unnoticed; assert cube(2) == 8; unnoticed(3)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_at_three():
    assert core.unnoticed(3) is False


def test_countdown():
    assert core.countdown(3) == 6


def test_unnoticed():
    core.unnoticed(3)


def test_that_fails_anyway():
    assert core.unnoticed(3)
"""


@pytest.fixture
def toy(tmp_path) -> Project:
    for name, text in {
        "toy/__init__.py": "from . import core\n",
        "toy/core.py": TOY,
        "tests/test_core.py": TESTS,
        "tests/test_other.py": "def test_nothing():\n    pass\n",
        "tests/mutation/equivalent.toml": EQUIVALENT,
        "pyproject.toml": '[tool.pytest.ini_options]\nmarkers = ["slow"]\n',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    tiers = {"quick": ("-m", "not slow"), "long": ("-m", "slow")}
    preload = ("pytest", "xdist.plugin", "jaxtyping", "coverage")
    return Project(tmp_path, "toy", ("",), preload=preload, tiers=tiers, least_limit=1.0)


def test_places():
    found = [(s.line, s.kind, s.old, s.new) for s in sites.sites_of("core.py", TEXT)]
    assert found == [
        (3, "factor", "2", "3"),
        (3, "factor", "*", "/"),
        (3, "factor", "3.0", "6.0"),
        (9, "comparison", "<", ">="),
        (12, "factor", "*", "/"),
        (12, "factor", "*", "/"),
        (12, "factor", "2", "3"),
        (12, "sign", "-", ""),
        (18, "factor", "*", "/"),
        (19, "factor", "*", "/"),
        (19, "sign", "-", ""),
        (24, "sign", "-=", "+="),
        (25, "factor", "*", "/"),  # but not 1e-9, a tolerance
        (25, "index", "1", "0"),
        (25, "sign", "-", "+"),
        (25, "index", "-1", "-2"),
        (25, "factor", "/", "*"),
        (25, "factor", "4", "5"),
        (25, "index", "0", "1"),
    ]


def test_a_change_touches_one_token():
    for site in sites.sites_of("core.py", TEXT):
        lines = zip(TEXT.splitlines(), site.applied(TEXT).splitlines(), strict=True)
        assert [(a.strip(), b.strip()) for a, b in lines if a != b] == [(site.before, site.after)]
    with pytest.raises(ValueError, match="has changed"):
        site.applied(TEXT.replace("range(0, n)", ""))


def test_a_draw_outlives_edits_elsewhere():
    found = sites.sites_of("core.py", TEXT)
    drawn = sites.draw(found, 8, seed=1)
    assert [s.key for s in sites.draw(found, 12, seed=1)][:8] == [s.key for s in drawn]
    assert {s.key for s in sites.draw(found, 8, seed=2)} != {s.key for s in drawn}
    moved = sites.draw(sites.sites_of("core.py", "\n\n" + TEXT), 8, seed=1)
    assert [(s.key, s.line) for s in moved] == [(s.key, s.line + 2) for s in drawn]


def test_places_of_the_package():
    folder = ROOT / "jaxdyn" / "spatial"
    found = list(sites.all_sites(ROOT, sorted(folder.glob("*.py"))))
    assert len(found) > 300 and len({site.key for site in found}) == len(found)
    for site in sites.draw(found, 50, seed=0):
        compile(site.applied((ROOT / site.file).read_text()), site.file, "exec")


def test_equivalents_have_reasons():
    equivalents = report.read_equivalents(Project().equivalents)
    assert equivalents and all(entry.reason for entry in equivalents)
    assert report.stale(equivalents, []) == equivalents


def test_the_cheapest_likely_failure_comes_first():
    many, costly, alone = Portion(("a",) * 9, 3.0), Portion(("b",), 60.0), Portion(("c",), 1.0)
    assert list(batches([costly, alone, many])) == [[many], [alone, costly]]
    assert [len(batch) for batch in batches([alone] * 9)] == [1, 2, 4, 2]


@pytest.mark.ci
def test_what_tests_notice(toy, capsys):
    assert main(["--jobs", "1", "--at-least", "90"], toy) == 1
    shown = capsys.readouterr().out
    assert "names a change that is not there: toy/core.py: gone" in shown
    assert "left out: tests/test_core.py::test_that_fails_anyway" in shown
    results = toy.folder / "results-0.jsonl"
    records = [json.loads(line) for line in results.read_text().splitlines()]
    found = {(r["before"], r["old"]): (r["status"], r["by"].removeprefix("tests/test_core.py::")) for r in records}
    assert found == {
        ("TWICE = 3 + 3", "+"): ("killed", "test_countdown"),  # only importing runs it
        ("return 3.14 * radius", "*"): ("survived", ""),
        ("return 3.14 * radius", "3.14"): ("killed", "test_area"),  # in a fixture
        ("if x == 77:", "=="): ("killed", "test_in_another_process"),
        ("return abs(-x**3)", "3"): ("killed", "test_in_another_process"),
        ("n -= 1", "-="): ("killed", "limit of time"),
        ("return x < 3", "<"): ("survived", ""),
        ("return x > 3", ">"): ("survived", "no test runs this line"),
    }
    # the same again has nothing to do; the next tier takes up what is left
    assert main(["--tier", "long", "--at-least", "75", "--jobs", "1"], toy) == 0
    assert main(["--tier", "quick"], toy) == 0
    later = [json.loads(line) for line in results.read_text().splitlines()[len(records) :]]
    assert sorted((r["before"], r["status"]) for r in later) == [
        ("return 3.14 * radius", "survived"),
        ("return x < 3", "killed"),
        ("return x > 3", "survived"),
    ]
    assert "killed by tests up to long: 6 of 8, 75.0 %" in capsys.readouterr().out

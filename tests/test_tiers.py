"""No test stands outside of the tiers that somebody runs: by default, in continuous integration, at night."""

import re
import shlex
import tomllib

import pytest

from data_paths import ROOT


def marked(command: str) -> str:
    """The expression that a command gives to -m."""
    words = shlex.split(command)
    return words[words.index("-m") + 1]


def tiers() -> dict[str, str]:
    """The expressions of marks by which the three tiers choose their tests."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["addopts"]
    found = {"default": marked(options)}
    for script in ("run", "nightly"):
        commands = re.findall(r"pytest (-m .*?)(?:\)|$)", (ROOT / ".ci" / script).read_text(), re.MULTILINE)
        commands = [command for command in commands if "${" not in command]  # a few files once more
        assert len(commands) == 1, f".ci/{script} runs {commands}"
        found[script] = marked(commands[0])
    return found


@pytest.mark.parametrize(
    ("marks", "tier"),
    [((), "default"), (("ci",), "run"), (("nightly",), "nightly"), (("ci", "nightly"), "nightly")],
    ids=str,
)
def test_every_test_is_in_one_tier(marks, tier):
    names = {name: name in marks for name in ("ci", "nightly")}
    chosen = [name for name, expression in tiers().items() if eval(expression, {}, names)]
    assert chosen == [tier]


def test_tests_are_left_out_by_what_is_installed_alone():
    """A variable of the environment that lets tests run, which no tier sets, would leave them to nobody."""
    conditions = [
        (path.name, line.strip())
        for path in sorted((ROOT / "tests").glob("*.py"))
        for line in path.read_text().splitlines()
        if re.search(r"skipif\(.*environ", line) and path.name != "test_tiers.py"
    ]
    assert not conditions, conditions

"""The command line on damaged files, in this process: its exit code and what it says."""

import contextlib
import io
import json
import os
import random
import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import archives, markup, tables, text, trees
from .checks import Wrong

_DAMAGE = {
    "arm.urdf": markup.damaged_markup,
    "leg.xml": markup.damaged_markup,
    "arm.eqx": archives.damaged_headed,
    "log0.csv": lambda rng, data: tables.damaged_csv(rng, data, ","),
    "log.npz": tables.damaged_npz,
    "setup.toml": lambda rng, data: text.damaged_text(rng, data.decode()).encode(),
    "settings.toml": lambda rng, data: trees.as_toml(trees.damaged_tree(rng, tomllib.loads(data.decode()))).encode(),
    "gains.json": lambda rng, data: trees.as_json(rng, trees.damaged_tree(rng, json.loads(data))).encode(
        "utf-8", "replace"
    ),
}
_PORT = "PORT"  # one of the process that runs the command
_COMMANDS = (
    ("identify", "--model", "arm.urdf", "--log", "log0.csv", "--settings", "settings.toml", "--out", "out"),
    ("identify", "--log", "log.npz", "--columns", "setup.toml", "--settings", "settings.toml", "--out", "out"),
    ("compare", "arm.urdf", "arm.eqx", "--log", "log0.csv", "--out", "out.html"),
    ("payload", "--model", "arm.urdf", "--loaded", "log0.csv", "--calibrated", "gains.json", "--out", "out.json"),
    ("view", "arm.urdf", "log0.csv", "--seconds", "0.01", "--port", _PORT),
    ("view", "leg.xml", "--seconds", "0.01", "--port", _PORT),
    ("view", "arm.eqx", "log.npz", "--seconds", "0.01", "--port", _PORT),
)
_OPTIONS = (
    "--rows",
    "--gains",
    "--lock",
    "--tip",
    "--gravity",
    "--topic",
    "--mass",
    "--delay",
    "--limit",
)
_VALUES = ("", "nan", "-1", "1:2", "0:0", "1,2", "1e300", "a=b", "turn=0", "x" * 300, "drop", "рука", "0", "9" * 30)


def make_command(rng: random.Random, folder: Path) -> dict[str, Any]:
    """A command on the files in a folder, one or two of which are damaged, sometimes with an odd option."""
    arguments = list(rng.choice(_COMMANDS))
    files = [name for name in arguments if name in _DAMAGE]
    for name in dict.fromkeys((rng.choice(files), *(files if rng.random() < 0.2 else ()))):  # no set: its order varies
        (folder / name).write_bytes(_DAMAGE[name](rng, (folder / name).read_bytes()))
    if rng.random() < 0.3:
        arguments += [rng.choice(_OPTIONS), rng.choice(_VALUES)]
    return {"reader": "command", "file": "", "options": {"arguments": arguments}}


def run_command(arguments: Sequence[str]) -> int:
    """Run it in the current folder; its exit code.

    Raises:
        Wrong: the code is none of its own, or what it says on an error is not one line of its own.
    """
    from jaxdyn.cli import main

    shown, said = io.StringIO(), io.StringIO()
    sys.argv[0] = "jaxdyn"
    own_port = str(20_000 + os.getpid() % 10_000)
    arguments = [own_port if x == _PORT else x for x in arguments]
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(said):
        try:
            code = main(arguments)
        except SystemExit as ended:  # argparse
            code = ended.code
    text = said.getvalue()
    errors = re.findall(r"^jaxdyn(?: \w+)?: error: .*$", text, re.MULTILINE)
    if code not in (0, 1, 2):
        raise Wrong(f"exit code {code}")
    if "Traceback" in text or len(errors) != int(code != 0):
        raise Wrong(f"exit code {code} and {len(errors)} errors: {text[-500:]}")
    if drafts := [name for name in os.listdir() if name.startswith(".")]:
        raise Wrong(f"left behind: {', '.join(drafts)}")
    if code == 1:
        rest = text[text.index(errors[0]) + len(errors[0]) :].strip()
        if (rest and not rest.startswith("[t]")) or len(errors[0]) > 2000:
            raise Wrong(f"an error of more than a line: {text[-500:]}")
    return int(code or 0)

"""`jaxdyn completion`: print a script that completes commands, options and file names in a shell."""

import argparse
from collections.abc import Iterator
from typing import Any

from ..errors import JaxdynError
from . import arguments

SHELLS = ("bash", "zsh", "tcsh", "fish")
FILES = frozenset({"FILE", "LOG", "MAP", "MODEL", "MOTION", "URDF"})  # metavars that are completed with file names

EPILOG = """Requires pip install "jaxdyn[completion]"

exit codes: 0 success; 1 shtab is not installed; 2 usage error

examples:
  bash   jaxdyn completion bash > ~/.local/share/bash-completion/completions/jaxdyn
  zsh    jaxdyn completion zsh > ~/.zfunc/_jaxdyn   # in .zshrc before compinit: fpath+=~/.zfunc
  fish   jaxdyn completion fish > ~/.config/fish/completions/jaxdyn.fish"""


def add(commands: Any, parser: argparse.ArgumentParser) -> None:
    """Add the subcommand, which prints a completion script for `parser` and all its subcommands."""
    command = arguments.add_command(
        commands,
        "completion",
        run,
        EPILOG,
        help="print a completion script for a shell",
        description="Print a script that completes jaxdyn's commands, options and file names in a shell.",
    )
    command.add_argument("shell", choices=SHELLS, help="the shell")
    command.set_defaults(parser=parser)


def run(options: argparse.Namespace) -> int:
    """Print the script; return the exit code."""
    try:
        import shtab  # type: ignore[import-not-found]
    except ImportError:
        raise JaxdynError(
            'shell completion needs shtab, which is not installed: pip install "jaxdyn[completion]"'
        ) from None
    for action in _actions(options.parser):
        metavar = action.metavar
        if metavar in FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif metavar == "DIR":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
    print(shtab.complete(options.parser, shell=options.shell))
    return arguments.OK


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All arguments of a parser and its subcommands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)

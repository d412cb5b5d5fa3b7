"""The command line: `jaxdyn COMMAND`; each command is a module of `jaxdyn.commands`."""

import argparse
import sys
import warnings
from collections.abc import Sequence
from typing import Any

from .commands import compare, excite, identify, payload, view
from .commands.arguments import BAD_INPUT, INTERRUPTED
from .errors import JaxdynError, ModelWarning

COMMANDS = (identify, payload, excite, compare, view)

# messages of the library name its arguments; here they are options
_OPTIONS = {
    "on_bad_rows='drop'": "--on-bad-rows drop",
    "rows=(first, last)": "--rows FIRST:LAST",
    "give gains=, one a joint [N m/A],": "give --gains K1,K2,.., one a joint [N m/A],",
    "pass units_checked=True": "give --units-checked",
    "allow_nonphysical=True": "--allow-nonphysical",
    "lock={joint: position}": "--lock JOINT=VALUE",
    "lock={...}": "--lock JOINT=VALUE",
    "tip=": "--tip",
    "topic=": "--topic",
    "packages=": "--package",
    "columns='map.toml'": "--columns map.toml",
    "consistent=False": "--no-consistent",
    "gains= are given": "--gains are given",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 1 bad input, 2 wrong usage, 130 interrupted.

    Raises:
        SystemExit: as argparse does, with code 2 on wrong usage and 0 after --help.
    """
    options = _parser().parse_args(arguments)
    options.arguments = sys.argv[1:] if arguments is None else list(arguments)  # for the record
    show = warnings.showwarning

    def note(message: Warning | str, category: type[Warning], *place: Any) -> None:
        if issubclass(category, ModelWarning):
            print(f"jaxdyn: note: {_in_options(message)}", file=sys.stderr)
        else:
            show(message, category, *place)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", ModelWarning)
            warnings.showwarning = note
            return options.run(options)
    except JaxdynError as error:
        print(f"jaxdyn: error: {_in_options(error)}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("jaxdyn: interrupted; nothing was written", file=sys.stderr)
        return INTERRUPTED


def _in_options(message: object) -> str:
    """A message of the library with its arguments as options."""
    text = str(message)
    for argument, option in _OPTIONS.items():
        text = text.replace(argument, option)
    return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="jaxdyn", description="Robot dynamics and identification on JAX.")
    commands = parser.add_subparsers(dest="command", required=True)
    for command in COMMANDS:
        command.add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())

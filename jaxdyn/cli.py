"""Command line `jaxdyn COMMAND`; each command is a module of `jaxdyn.commands`."""

import argparse
import functools
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from ._version import __version__
from .commands import check, compare, completion, excite, export, identify, payload, simulate, view
from .commands.arguments import BAD_INPUT, INTERRUPTED, OK, USAGE, WrongUsage
from .commands.cache import kept_programs
from .errors import JaxdynError, ModelWarning, as_python

COMMANDS = (excite, check, simulate, identify, payload, compare, view, export)

EPILOG = (
    "`jaxdyn COMMAND --help` lists the options of a command. For a guide to identification, see docs/identification.md."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    The exit code is 0 on success, 1 for invalid input, 2 for a usage error, and 130 if interrupted. Without a command,
    the help text is printed.

    Raises:
        SystemExit: raised by argparse with code 2 on usage errors, and with code 0 after --help and --version.
    """
    if "numpy" not in sys.modules:  # for small matrices, more threads only double the CPU time
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before parsing, which can import NumPy
    parser = _parser()
    options, others = parser.parse_known_args(arguments)
    if others:
        keys = [key for x in others if (key := x.lstrip("-").partition("=")[0].replace("-", "_")) in options.keys]
        hint = f"; {', '.join(keys)} can be set in a settings file (--settings)" if keys else ""
        parser.error(f"unrecognized arguments: {' '.join(others)}{hint}")
    if options.command is None:
        parser.print_help()
        return OK
    options.arguments = sys.argv[1:] if arguments is None else list(arguments)  # recorded in reports
    show = warnings.showwarning

    def note(message: Warning | str, category: type[Warning], *place: Any) -> None:
        if issubclass(category, ModelWarning):
            print(f"jaxdyn: note: {message}", file=sys.stderr)
        else:
            show(message, category, *place)

    try:
        with warnings.catch_warnings(), kept_programs() if options.cache else nullcontext():
            warnings.simplefilter("always", ModelWarning)
            warnings.showwarning = note
            return options.run(options)
    except JaxdynError as error:
        print(f"jaxdyn: error: {error.message(functools.partial(_spelled, options))}", file=sys.stderr)
        return BAD_INPUT
    except WrongUsage as error:
        print(f"jaxdyn: error: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("jaxdyn: interrupted; nothing was written", file=sys.stderr)
        return INTERRUPTED


def _spelled(options: argparse.Namespace, argument: str, value: str) -> str:
    """A library argument in a message: as an option of the command, a key of its settings, or in Python syntax otherwise."""
    name = {"packages": "package"}.get(argument, argument)
    option = options.parser._option_string_actions.get(f"--{name.replace('_', '-')}")
    if option is not None:
        sample = option.metavar or (option.choices or [""])[-1]
        return " ".join([option.option_strings[0], *([sample] if value and isinstance(sample, str) else [])]).strip()
    if argument in options.keys:
        samples = {"True": " = true", "False": " = false", "'drop'": ' = "drop"'}
        return f"the key {argument}{next((x for start, x in samples.items() if value.startswith(start)), '')} of --settings"
    return as_python(argument, value)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="jaxdyn", description="Robot dynamics and identification on JAX.", epilog=EPILOG
    )
    parser.set_defaults(keys=())  # of a settings file; commands that read one replace it
    parser.add_argument("--version", action="version", version=f"jaxdyn {__version__}")
    parser.add_argument("--no-cache", dest="cache", action="store_false", help="do not cache compiled programs")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for command in COMMANDS:
        command.add(commands)
    completion.add(commands, parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())

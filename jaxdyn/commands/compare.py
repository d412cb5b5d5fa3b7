"""`jaxdyn compare`: compare two models of a robot on logs; print a table of errors and write an HTML page."""

import argparse
import os
import pathlib
from typing import Any

from . import arguments
from .inputs import check_logs, filters_of, provenance_of, read_logs, read_model, use_float64
from .progress import Progress
from .settings import FILTERING, READING, add_settings, settings_of

EPILOG = f"""{arguments.LOGS_EPILOG}

A settings file (TOML) may contain the options from --rows to --gravity, and further keys:
[keys]"""


def add(commands: Any) -> None:
    """Add the subcommand's parser."""
    command = arguments.add_command(
        commands,
        "compare",
        run,
        EPILOG,
        help="compare the predicted torques of two models with logged torques",
        description="Compare the predicted torques and the simulated motions of two models with logged runs. "
        "No parameters are fitted.",
    )
    option = command.add_argument
    option("a", help="the first model: URDF, MJCF or model.eqx")
    option("b", help="the second model: URDF, MJCF or model.eqx")
    option("--log", metavar="LOG", action="append", required=True, help="log to compare with; may be repeated")
    option("--out", metavar="FILE", default="comparison.html", help="HTML page to write (default: %(default)s)")
    arguments.add_layout(option)
    lock = "fix a joint of a URDF at a value, in every model that has this joint"
    arguments.add_chain(option, lock, "use the serial chain of a URDF")
    arguments.add_gravity(option)
    add_settings(command, option, (*READING, *FILTERING))
    option("--quiet", action="store_true", help="hide the progress bar and the table")


def run(options: argparse.Namespace) -> int:
    """Compare the models, write the page and print the table; return the exit code."""
    settings = settings_of(options)
    check_logs(settings, len(options.log))
    use_float64()
    from ..identification.validation import compare_models
    from ..io.files import check_output_file
    from ..report import print_comparison, write_comparison

    out = pathlib.Path(options.out)
    check_output_file(out)
    both = (options.a, options.b)
    first, second = (read_model(settings, path, beside=other) for path, other in zip(both, both[::-1], strict=True))
    logs = list(read_logs(settings, options.log, first.chain, options.a))
    files = [("model a", options.a), ("model b", options.b), *(("log", path) for path in options.log)]
    provenance = provenance_of(options, files, {name: getattr(settings, name) for name in options.keys})
    with Progress(options.quiet) as progress, progress.stage("comparing"):
        result = compare_models(first, second, logs, _short_names(options.a, options.b), filters_of(settings))
        write_comparison(result, out, provenance=provenance)
    if not options.quiet:
        print_comparison(result)
        print(out)
    return arguments.OK


def _short_names(a: str, b: str) -> tuple[str, str]:
    """The names of the two files, or their paths as given if the names are equal."""
    first, second = (os.path.basename(os.path.normpath(p)) for p in (a, b))
    return (first, second) if first != second else (a, b)

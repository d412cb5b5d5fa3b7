"""`jaxdyn export`: write a model's torques as C and Python code for a control loop."""

import argparse

from . import arguments
from .inputs import read_model, use_float64

EPILOG = """The files define the functions start, torque and gravity, which are documented in comments; FILE.h declares the C
versions.

exit codes: 0 success; 1 invalid input (the message states the problem and a remedy); 2 usage error

example: feed-forward torques for a controller in C
  jaxdyn export results/model.eqx --out feedforward
  cc -O2 -c feedforward.c"""


def add(commands) -> None:
    """Add the subcommand's parser."""
    option = arguments.add_command(
        commands,
        "export",
        run,
        EPILOG,
        help="write a model's torques as C and Python code for a control loop",
        description="Write functions that compute the torques of a model, including friction with memory, as self-contained "
        "C code without dynamic memory allocation, and as Python code that requires only NumPy.",
    ).add_argument
    option("model", metavar="MODEL", help="the model: model.eqx, URDF or MJCF")
    about = "write FILE.c, FILE.h and FILE.py; the file name is the prefix of the C functions (default: %(default)s)"
    option("--out", metavar="FILE", default="predictor", help=about)
    arguments.add_chain(option)
    arguments.add_gravity(option)
    option("--quiet", action="store_true", help="print nothing")


def run(options: argparse.Namespace) -> int:
    """Write the files; return the exit code."""
    use_float64()
    from ..identification import write_predictor
    from ..io.files import check_output_file

    check_output_file(f"{options.out}.c")
    paths = write_predictor(read_model(options, options.model), options.out)
    if not options.quiet:
        for path in paths.values():
            print(path)
    return arguments.OK

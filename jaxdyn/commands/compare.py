"""`jaxdyn compare`: two models of a robot on a log, a table and an HTML page."""

import argparse
import os
import pathlib
from collections.abc import Mapping

from .arguments import OK, add_checks, add_filters, misused, numbers, pair, positive, rows
from .progress import Progress

_SETTINGS = (
    *("rows", "gains", "lock", "tip", "coulomb_velocity", "cutoff", "torque_cutoff", "stride"),
    *("on_bad_rows", "units_checked"),
)


def add(commands) -> None:
    """Add the subcommand's parser."""
    command = commands.add_parser(
        "compare",
        help="compare the torques that two models predict with a logged run",
        description="Compare the torques that two models predict, and the motion they simulate, with logged runs. "
        "Nothing is fitted.",
    )
    command.set_defaults(run=run)
    option = command.add_argument
    option("a", help="a model: URDF, MJCF, or a model.eqx")
    option("b", help="another one")
    option("--log", metavar="FILE", action="append", required=True, help="a run; may be repeated")
    option("--out", metavar="FILE", default="comparison.html", help="the page to write (default: %(default)s)")
    option(
        "--rows",
        type=rows,
        metavar="FIRST:LAST",
        action="append",
        default=[],
        help="rows of a log to read, in the order of the logs",
    )
    option(
        "--gains", type=numbers, metavar="K1,K2,..", help="torque = gain * current, for logs with columns i1.. [N m/A]"
    )
    option(
        "--lock",
        type=pair,
        metavar="JOINT=VALUE",
        action="append",
        default=[],
        help="hold a joint of a URDF at a value, in each model that has it",
    )
    option("--tip", metavar="LINK", help="take the serial chain of a URDF from the base to this link")
    option(
        "--coulomb-velocity",
        type=positive,
        metavar="V",
        help="width of the smooth sign in both models' Coulomb friction",
    )
    add_filters(option)
    add_checks(option)
    option("--quiet", action="store_true", help="no progress bar and no table")


def run(options: argparse.Namespace) -> int:
    """Compare, write the page, print the table; returns the exit code."""
    import jax

    # this process is ours; the library itself never touches the configuration
    jax.config.update("jax_enable_x64", True)

    from ..identification._validation.comparison import compare_models
    from ..io._files import check_output_file
    from ..io._logs.log import check_log, read_log
    from ..report._comparison_page import print_comparison, write_comparison
    from ..report._provenance import collect_provenance

    if len(options.rows) > len(options.log):
        return misused(f"--rows is given {len(options.rows)} times for {len(options.log)} logs")
    out = pathlib.Path(options.out)
    check_output_file(out)
    first, second = (_read_model(path, dict(options.lock), options) for path in (options.a, options.b))
    ranges = dict(enumerate(options.rows))
    logs = []
    for k, path in enumerate(options.log):
        log = read_log(path, first.nv, gains=options.gains, rows=ranges.get(k), on_bad_rows=options.on_bad_rows)
        logs.append(check_log(log, first, units_checked=options.units_checked, allow_still=True))
    with Progress(options.quiet) as progress:
        progress("comparing", 0, 1)
        result = compare_models(
            first,
            second,
            logs,
            _short_names(options.a, options.b),
            position_cutoff=options.cutoff,
            torque_cutoff=options.torque_cutoff or options.cutoff,
            stride=options.stride,
        )
        files = [("model a", options.a), ("model b", options.b), *(("log", path) for path in options.log)]
        settings = {
            k: v for k, v in vars(options).items() if k not in ("run", "command", "a", "b", "log", "out", "quiet")
        }
        write_comparison(
            result, out, provenance=collect_provenance(files, settings, getattr(options, "arguments", None))
        )
        progress("comparing", 1, 1)
    if not options.quiet:
        print_comparison(result)
        print(out)
    return OK


def _read_model(path: str, lock: Mapping[str, float], options: argparse.Namespace):
    """A model from any file; locks that one of the two models lacks are for the other."""
    import equinox as eqx
    import jax.numpy as jnp

    from ..io._files import read_bytes
    from ..io._load import load
    from ..io._model_file import load_model

    if path.endswith(".eqx"):
        chain = load_model(path)
    elif b"<mujoco" in (text := read_bytes(path)):
        chain = load(path, allow_nonphysical=True)
    else:
        there = {name: value for name, value in lock.items() if f'"{name}"'.encode() in text}
        # to compare is not to simulate: inertias that no body can have predict torques all the same
        chain = load(path, lock=there or None, tip=options.tip, allow_nonphysical=True)
    if options.coulomb_velocity is None:
        return chain
    return eqx.tree_at(
        lambda c: c.coulomb_velocity, chain, jnp.full_like(chain.coulomb_velocity, options.coulomb_velocity)
    )


def _short_names(a: str, b: str) -> tuple[str, str]:
    """The files' names, with the folder where they are the same."""
    first, second = (os.path.basename(os.path.normpath(p)) for p in (a, b))
    return (first, second) if first != second else (a, b)

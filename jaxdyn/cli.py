"""The command line: `jaxdyn identify`."""

import argparse
import math
import pathlib
import sys
from collections.abc import Sequence

from .errors import JaxdynError

EXIT_OK, EXIT_BAD_INPUT, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130

EPILOG = """exit codes: 0 done; 1 bad input (the message says what, where and what to do); 2 wrong usage; 130 interrupted.
With no --model and no --log a built-in 7R arm is simulated, identified and compared with the truth."""

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
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 1 bad input, 2 wrong usage, 130 interrupted.

    Raises:
        SystemExit: as argparse does, with code 2 on wrong usage and 0 after --help.
    """
    options = _parser().parse_args(arguments)
    try:
        return _identify(options)
    except JaxdynError as error:
        message = str(error)
        for argument, option in _OPTIONS.items():
            message = message.replace(argument, option)
        print(f"jaxdyn: error: {message}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        print("jaxdyn: interrupted; nothing was written", file=sys.stderr)
        return EXIT_INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="jaxdyn", description="Robot dynamics and identification on JAX.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser(
        "identify",
        help="identify a robot's inertial parameters and friction from logged motion",
        description="Identify a robot's inertial parameters, friction and armature from logged motion.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = command.add_argument
    add("--model", metavar="URDF", help="the robot; inertials in it are the prior, a kinematics-only file will do")
    add("--log", metavar="FILE", action="append", default=[], help="log to fit: csv, npz or parquet; may be repeated")
    add(
        "--validate",
        metavar="FILE",
        action="append",
        default=[],
        help="log to validate on, not fitted; may be repeated",
    )
    add("--out", metavar="DIR", default="identified", help="folder for the results (default: %(default)s)")
    add(
        "--rows",
        type=_rows,
        metavar="FIRST:LAST",
        action="append",
        default=[],
        help="rows of a log to read, in the order of the logs",
    )
    add(
        "--gains",
        type=_numbers,
        metavar="K1,K2,..",
        help="torque = gain * current, for logs with columns i1.. [N m/A]",
    )
    add(
        "--lock",
        type=_pair,
        metavar="JOINT=VALUE",
        action="append",
        default=[],
        help="hold a joint at a value (a gripper's finger)",
    )
    add("--tip", metavar="LINK", help="take the serial chain from the base to this link")
    add(
        "--terms",
        type=_terms,
        metavar="TERMS",
        default="armature,viscous,coulomb,offset",
        help="drive terms to identify (default: %(default)s)",
    )
    add("--coupled", type=_axes, metavar="A,B", action="append", default=[], help="coupled axes A and B (a wrist)")
    add(
        "--coulomb-velocity",
        type=_positive,
        metavar="V",
        help="width of the smooth sign in Coulomb friction [rad/s] (0.02)",
    )
    add(
        "--cutoff",
        type=_positive,
        metavar="HZ",
        help="low-pass cutoff for positions and torques (default: from the data)",
    )
    add("--torque-cutoff", type=_positive, metavar="HZ", help="another low-pass cutoff for torques")
    add("--stride", type=int, metavar="K", help="keep every K-th sample after filtering (default: from the rates)")
    add("--holdout", type=_share, default=0.3, metavar="SHARE", help="share held out without --validate (default: 0.3)")
    add(
        "--dead-zone",
        type=_finite,
        default=0.0,
        metavar="V",
        help="leave slower samples out of a joint's fit [rad/s] (0)",
    )
    add("--on-bad-rows", choices=("raise", "drop"), default="raise", help="what to do with rows of garbage or NaN")
    add("--units-checked", action="store_true", help="accept positions that look like degrees")
    add("--allow-nonphysical", action="store_true", help="accept a model with inertias that no body can have")
    add("--quiet", action="store_true", help="no progress bar and no summary")
    return parser


def _identify(options: argparse.Namespace) -> int:
    import jax

    # this process is ours; the library itself never touches the configuration
    jax.config.update("jax_enable_x64", True)

    from .identification.columns import coupled_drive
    from .identification.identify import check_identifiable, identify
    from .io.load import load
    from .io.log import check_log, read_log
    from .report.output import check_writable, write_all
    from .report.summary import print_summary

    if bool(options.model) != bool(options.log):
        missing = "--log" if options.model else "--model"
        return _misused(f"{missing} is missing; give both, or neither for the built-in example")
    if not options.model and any((options.validate, options.rows, options.gains, options.lock, options.tip)):
        return _misused("--validate, --rows, --gains, --lock and --tip need a --model and a --log")
    count = len(options.log) + len(options.validate)
    if len(options.rows) > count:
        return _misused(f"--rows is given {len(options.rows)} times for {count} log{'s'[: count != 1]}")
    out = pathlib.Path(options.out)
    check_writable(out)
    lock = dict(options.lock)
    truth = None
    if options.model:
        chain = load(options.model, lock=lock, tip=options.tip, allow_nonphysical=options.allow_nonphysical)
        check_identifiable(chain)
        chain = _with_coulomb_velocity(chain, options.coulomb_velocity)
        ranges = dict(enumerate(options.rows))

        def read(position: int, path: str):
            rows = ranges.get(position)
            log = read_log(path, chain.n, gains=options.gains, rows=rows, on_bad_rows=options.on_bad_rows)
            # a joint may rest in one log and move in another: `identify` refuses one that moves in none
            return check_log(log, chain, units_checked=options.units_checked, allow_still=True)

        checked = [read(i, p) for i, p in enumerate([*options.log, *options.validate])]
        logs, validation = checked[: len(options.log)], checked[len(options.log) :]
    else:
        from .identification.example import example

        truth, chain, logs, validation = example()
        chain = _with_coulomb_velocity(chain, options.coulomb_velocity)
    with _Progress(options.quiet) as progress:
        result = identify(
            chain,
            logs,
            validation,
            drive_terms=options.terms,
            extra=[coupled_drive(a, b) for a, b in options.coupled],
            holdout=options.holdout,
            dead_zone=options.dead_zone,
            position_cutoff=options.cutoff,
            torque_cutoff=options.torque_cutoff or options.cutoff,
            stride=options.stride,
            progress=progress,
        )
        progress("writing results", 0, 1)
        paths = write_all(result, out, source_urdf=options.model, lock=lock or None, tip=options.tip)
        progress("writing results", 1, 1)
    if not options.quiet:
        print_summary(result, paths, truth)
    return EXIT_OK


class _Progress:
    """A progress bar with one line a stage, on standard error, only where a person watches."""

    def __init__(self, quiet: bool):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        self._tasks: dict = {}
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
            console=console,
            disable=quiet or not console.is_terminal,
        )

    def __enter__(self) -> "_Progress":
        self._bar.start()
        return self

    def __exit__(self, *exception) -> None:
        self._bar.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage not in self._tasks:
            self._tasks[stage] = self._bar.add_task(stage, total=total)
        self._bar.update(self._tasks[stage], completed=done, total=total)


def _with_coulomb_velocity(chain, velocity: float | None):
    import equinox as eqx
    import jax.numpy as jnp

    if velocity is None:
        return chain
    return eqx.tree_at(lambda c: c.coulomb_velocity, chain, jnp.full_like(chain.coulomb_velocity, velocity))


def _misused(message: str) -> int:
    print(f"jaxdyn: error: {message}", file=sys.stderr)
    return EXIT_USAGE


def _finite(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number")
    return value


def _positive(text: str) -> float:
    value = _finite(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not positive")
    return value


def _share(text: str) -> float:
    value = _finite(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 0 and 1")
    return value


def _numbers(text: str) -> list[float]:
    return [_finite(x) for x in text.split(",")]


def _terms(text: str) -> tuple[str, ...]:
    from .identification.columns import DRIVE_TERMS

    terms = tuple(x.strip() for x in text.split(",") if x.strip())
    unknown = [x for x in terms if x not in DRIVE_TERMS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is unknown; there are {', '.join(DRIVE_TERMS)}")
    return tuple(dict.fromkeys(terms))


def _axes(text: str) -> tuple[int, int]:
    try:
        first, second = (int(x) for x in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not two joint numbers, as in --coupled 5,6") from None
    return first, second


def _pair(text: str) -> tuple[str, float]:
    name, sign, value = text.partition("=")
    if not (sign and name.strip()):
        raise argparse.ArgumentTypeError(f"{text!r} is not JOINT=VALUE, as in --lock finger_joint=0.02")
    return name.strip(), _finite(value)


def _rows(text: str) -> tuple[int, int] | None:
    if text.strip() == ":":
        return None
    try:
        first, last = (int(x) for x in text.split(":"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not FIRST:LAST, as in --rows 500:37500 (or : for all)") from None
    return first, last


if __name__ == "__main__":
    sys.exit(main())

"""Options shared by several commands, and argparse types whose error messages show the expected form."""

import argparse
import contextlib
import math
import pathlib
from collections.abc import Callable
from typing import Any

# exit codes
OK, BAD_INPUT, USAGE, INTERRUPTED = 0, 1, 2, 130
DRIVES = ("armature", "viscous", "coulomb", "offset")  # as `columns.DRIVE_TERMS`, which imports JAX
PARTS = ("filter", "friction", "springs", "delays")  # as `terms.PARTS`
LOGS_EPILOG = (
    "A LOG is a file, a ROS 2 bag folder, or PART1+PART2: several files of the same run, joined by time stamp."
)


class WrongUsage(Exception):
    """Invalid or conflicting options. The command prints the message and exits with code 2."""


def add_command(
    commands: Any, name: str, run: Callable[..., Any], epilog: str, **texts: str
) -> argparse.ArgumentParser:
    """Add a subcommand that calls `run(options)`."""
    command = commands.add_parser(name, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter, **texts)
    command.set_defaults(run=run, parser=command)
    return command


def add_repeated(option: Callable[..., Any], name: str, metavar: str = "FILE", **further: Any) -> None:
    """Add an option that may be repeated; here and below, the argument `option` is the `add_argument` method of a parser."""
    option(name, metavar=metavar, action="append", default=[], **further)


def add_layout(option: Callable[..., Any], order: str = "in the order of the logs") -> None:
    """Add the options that say which rows and columns of the logs contain what."""
    about = f"rows of a log to read, or : for all rows; repeat the option for further logs, {order}"
    add_repeated(option, "--rows", "FIRST:LAST", type=checked_rows, help=about)
    about = f"column map (TOML) for logs with other layouts: one for all logs, or one per log, {order} (-: no map)"
    add_repeated(option, "--columns", "MAP", help=about)
    option("--topic", metavar="TOPIC", help="topic of the joint states in bags (default: detected)")
    about = "torque per motor current of each joint [N m/A], for logs of currents (columns i1..) instead of torques"
    option("--gains", type=numbers, metavar="K1,K2,..", help=about)


def add_chain(
    option: Callable[..., Any], lock: str = "fix a joint at a value", tip: str = "use the serial chain"
) -> None:
    """Add the options that select the joints of a robot description."""
    add_repeated(option, "--lock", "JOINT=VALUE", type=pair, help=lock)
    option("--tip", metavar="LINK", help=f"{tip} from the base to this link")


def add_gravity(option: Callable[..., Any]) -> None:
    """Add the option for gravity, for robots that are not mounted upright."""
    about = (
        "gravitational acceleration in world axes [m/s^2], for example 0 0 9.81 for a robot on a ceiling and 0 9.81 0 for one "
        "on a wall (default: that of the file, or 0 0 -9.81)"
    )
    option("--gravity", nargs=3, type=finite, metavar=("X", "Y", "Z"), help=about)


def add_packages(option: Callable[..., Any]) -> None:
    """Add the option for folders of ROS packages, in which meshes are."""
    about = "folder to which package://NAME refers; may be repeated"
    add_repeated(option, "--package", "NAME=FOLDER", type=folder, help=about)


def add_shapes(option: Callable[..., Any]) -> None:
    """Add the options that say what the robot may touch (see `inputs.load_shapes`)."""
    about = "shapes of the links whose distances are checked (default: collision)"
    option("--shapes", choices=("collision", "visual", "none"), default="collision", help=about)
    option(
        "--environment", metavar="FILE", help="obstacles: a URDF with fixed joints, whose root link is the robot's base"
    )
    about = "there is no floor; otherwise, a robot with a fixed base stands on one, at z = 0 of its base"
    option("--no-floor", dest="floor", action="store_false", help=about)
    option("--srdf", metavar="FILE", help="SRDF file with pairs of links that are not checked")
    add_packages(option)


def finite(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number")
    return value


def positive(text: str) -> float:
    value = finite(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not positive")
    return value


def not_negative(text: str) -> float:
    value = finite(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is negative")
    return value


def numbers(text: str) -> list[float]:
    return [finite(x) for x in text.split(",")]


def delays(text: str) -> float | list[float]:
    found = numbers(text)
    return found[0] if len(found) == 1 else found


def terms(text: str) -> tuple[str, ...]:
    given = tuple(x.strip() for x in text.split(",") if x.strip())
    if unknown := [x for x in given if x not in DRIVES]:
        raise argparse.ArgumentTypeError(f"unknown name {unknown[0]!r}; choose from {', '.join(DRIVES)}")
    return given


def pair(text: str) -> tuple[str, float]:
    name, sign, value = text.partition("=")
    if not (sign and name.strip()):
        raise argparse.ArgumentTypeError(f"{text!r} must have the form JOINT=VALUE, as in --lock finger_joint=0.02")
    return name.strip(), finite(value)


def rows(text: str) -> tuple[int, int] | None:
    """The first and the last row of FIRST:LAST; None for all rows."""
    if text.strip() == ":":
        return None
    first, _, last = text.partition(":")
    return int(first), int(last)


def is_rows(text: str) -> bool:
    """True if `rows` can read a text."""
    with contextlib.suppress(ValueError):
        rows(text)
        return True
    return False


def checked_rows(text: str) -> str:
    if not is_rows(text):
        raise argparse.ArgumentTypeError(f"{text!r} must be FIRST:LAST, as in --rows 500:37500, or : for all rows")
    return text


def folder(text: str) -> tuple[str, pathlib.Path]:
    name, sign, value = text.partition("=")
    if not (sign and name.strip() and value):
        raise argparse.ArgumentTypeError(
            f"{text!r} must have the form NAME=FOLDER, as in --package my_robot=/opt/my_robot"
        )
    if not pathlib.Path(value).is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {value!r} for the package {name.strip()!r}")
    return name.strip(), pathlib.Path(value)

"""Values of options: parsers that argparse calls, each with a message that shows the form."""

import argparse
import math

# exit codes
OK, BAD_INPUT, USAGE, INTERRUPTED = 0, 1, 2, 130


LOGS_EPILOG = (
    """A LOG is a file, the folder of a ROS 2 bag, or PART1+PART2: files of one run, joined by their time stamps."""
)


class WrongUsage(Exception):
    """Options that do not go together: exit code 2 and a line that says which."""


def add_command(commands, name: str, run, epilog: str, **texts: str) -> argparse.ArgumentParser:
    """Add a subcommand, which `run(options)` carries out."""
    command = commands.add_parser(name, epilog=epilog, formatter_class=argparse.RawDescriptionHelpFormatter, **texts)
    command.set_defaults(run=run)
    return command


def add_repeated(option, name: str, metavar: str = "FILE", **further) -> None:
    """Add an option that may be given several times; `option` is a parser's `add_argument`, here and below."""
    option(name, metavar=metavar, action="append", default=[], **further)


def add_log_form(option, order: str = "in the order of the logs") -> None:
    """Add the options that say how logs are read: `inputs.read_logs` obeys them, for every command alike."""
    add_repeated(option, "--rows", "FIRST:LAST", type=rows, help=f"rows of a log to read, {order} (: for all)")
    about = f"column map (TOML) for logs in another form: one for all, or one per log, {order} (- for none)"
    add_repeated(option, "--columns", "MAP", help=about)
    option("--topic", metavar="TOPIC", help="topic with the joint states, of bags (default: found)")
    about = "torque = gain * current, for logs with columns i1.. [N m/A]"
    option("--gains", type=numbers, metavar="K1,K2,..", help=about)
    option("--on-bad-rows", choices=("raise", "drop"), default="raise", help="what to do with rows of garbage or NaN")
    option("--units-checked", action="store_true", help="accept positions that look like degrees")


def add_chain(option, lock: str = "hold a joint at a value", tip: str = "take the serial chain") -> None:
    """Add the options that choose the joints of a robot description."""
    add_repeated(option, "--lock", "JOINT=VALUE", type=pair, help=lock)
    option("--tip", metavar="LINK", help=f"{tip} from the base to this link")


def add_nonphysical(option) -> None:
    option("--allow-nonphysical", action="store_true", help="accept a model with inertias that no body can have")


def add_ignore_inertials(option) -> None:
    option("--ignore-inertials", action="store_true", help="take the kinematics of the URDF alone")


def add_terms(option, about: str) -> None:
    option("--terms", type=terms, metavar="TERMS", default="armature,viscous,coulomb,offset", help=about)


def add_coulomb_velocity(option, about: str) -> None:
    option("--coulomb-velocity", type=positive, metavar="V", help=f"width of the smooth sign in {about}")


def add_filters(option) -> None:
    """Add the options of commands that filter logs."""
    about = "low-pass cutoff for positions and torques (default: from the data)"
    option("--cutoff", type=positive, metavar="HZ", help=about)
    option("--torque-cutoff", type=positive, metavar="HZ", help="another low-pass cutoff for torques")
    option("--stride", type=int, metavar="K", help="keep every K-th sample after filtering (default: from the rates)")


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


def share(text: str) -> float:
    value = finite(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not between 0 and 1")
    return value


def numbers(text: str) -> list[float]:
    return [finite(x) for x in text.split(",")]


def delays(text: str) -> str | float | list[float]:
    if text.strip() == "estimated":
        return "estimated"
    found = numbers(text)
    return found[0] if len(found) == 1 else found


def densities(text: str) -> tuple[float, float] | None:
    if text.strip() == "any":
        return None
    found = numbers(text)
    if len(found) != 2 or not 0 <= found[0] < found[1]:
        raise argparse.ArgumentTypeError(f"{text!r} is not two densities, as in --densities 100,20000 (or any)")
    return found[0], found[1]


def terms(text: str) -> tuple[str, ...]:
    from ..identification._regression.columns import DRIVE_TERMS

    terms = tuple(x.strip() for x in text.split(",") if x.strip())
    unknown = [x for x in terms if x not in DRIVE_TERMS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is unknown; there are {', '.join(DRIVE_TERMS)}")
    return tuple(dict.fromkeys(terms))


def axes(text: str) -> tuple[int, int]:
    try:
        first, second = (int(x) for x in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not two joint numbers, as in --coupled 5,6") from None
    return first, second


def pair(text: str) -> tuple[str, float]:
    name, sign, value = text.partition("=")
    if not (sign and name.strip()):
        raise argparse.ArgumentTypeError(f"{text!r} is not JOINT=VALUE, as in --lock finger_joint=0.02")
    return name.strip(), finite(value)


def rows(text: str) -> tuple[int, int] | None:
    if text.strip() == ":":
        return None
    try:
        first, last = (int(x) for x in text.split(":"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not FIRST:LAST, as in --rows 500:37500 (or : for all)") from None
    return first, last

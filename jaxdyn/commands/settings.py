"""Settings of commands that read logs: their options, and the keys of a settings file (TOML) for everything else."""

import argparse
import difflib
import functools
import json
import math
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from .._version import __version__
from ..errors import JaxdynError
from .arguments import DRIVES, PARTS, WrongUsage, is_rows
from .inputs import files_of

NAME = "settings.toml"
PATHS = {"model", "log", "validate", "columns"}


class Key(NamedTuple):
    """A setting: what its value must be (of `KINDS`), what it is for, and its default."""

    kind: str
    about: str
    default: Any = None


def _finite(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x)


def _integer(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool)


def _list_of(element: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda x: isinstance(x, list) and all(map(element, x))


def _text(x: Any) -> bool:
    return isinstance(x, str)


TEXT, TEXTS, FLAG = "a text", "a list of texts", "true or false"
INTEGER, POSITIVE, NOT_NEGATIVE = "an integer", "a positive number", "a number that is not negative"
SHARE, NUMBERS, ONE_OR_MORE = "a number between 0 and 1", "a list of numbers", "a number or a list of numbers"
THREE, BOUNDS = "a list of three numbers", "a list of two numbers, the smaller one first, or []"
PAIRS, RANGES = "a list of pairs of joint numbers", "a list of ranges, such as ['500:37500', ':']"
TABLE, HOLDS = "a table of numbers", "a table with the values 'pose' and 'point'"
ON_BAD_ROWS, TERMS = "'raise' or 'drop'", "one [[term]] table per term"
KINDS: dict[str, Callable[[Any], bool]] = {
    TEXT: _text,
    TEXTS: _list_of(_text),
    FLAG: lambda x: isinstance(x, bool),
    INTEGER: _integer,
    POSITIVE: lambda x: _finite(x) and x > 0,
    NOT_NEGATIVE: lambda x: _finite(x) and x >= 0,
    SHARE: lambda x: _finite(x) and 0 < x < 1,
    ONE_OR_MORE: lambda x: _finite(x) or _list_of(_finite)(x),
    NUMBERS: _list_of(_finite),
    THREE: lambda x: _list_of(_finite)(x) and len(x) == 3,
    BOUNDS: lambda x: _list_of(_finite)(x) and (x == [] or (len(x) == 2 and 0 <= x[0] < x[1])),
    PAIRS: _list_of(lambda x: _list_of(_integer)(x) and len(x) == 2),
    RANGES: lambda x: _list_of(_text)(x) and all(map(is_rows, x)),
    TABLE: lambda x: isinstance(x, Mapping) and all(map(_finite, x.values())),
    HOLDS: lambda x: isinstance(x, Mapping) and all(y in ("pose", "point") for y in x.values()),
    ON_BAD_ROWS: lambda x: x in ("raise", "drop"),
    TERMS: _list_of(lambda x: isinstance(x, Mapping)),
}

KEYS: dict[str, Key] = {
    "model": Key(TEXT, "the robot (URDF or MJCF)"),
    "log": Key(TEXTS, "logs to fit", []),
    "validate": Key(TEXTS, "logs for validation", []),
    "lock": Key(TABLE, "joints that are fixed at a value [rad or m]", {}),
    "tip": Key(TEXT, "link at which the serial chain ends; default: the whole tree"),
    "gravity": Key(THREE, "gravity in world axes [m/s^2]; default: the model's"),
    "ignore_inertials": Key(FLAG, "use only the kinematics of the model", False),
    "floating_base": Key(FLAG, "the base moves; default: if the model or the first log says so"),
    "held": Key(HOLDS, "frames that unmeasured forces hold in place", {}),
    "rows": Key(RANGES, "rows to read, in the order of the logs", []),
    "columns": Key(TEXTS, "column maps: one, or one per log ('-': none)", []),
    "topic": Key(TEXT, "topic of the joint states in bags; default: detected"),
    "gains": Key(NUMBERS, "torque per motor current of each joint [N m/A]"),
    "on_bad_rows": Key(ON_BAD_ROWS, "what to do with implausible rows", "raise"),
    "units_checked": Key(FLAG, "positions are radians even if they look like degrees", False),
    "terms": Key(TEXTS, "drive terms to identify", list(DRIVES)),
    "choose": Key(TEXTS, "what is selected by cross-validation; []: only the drive terms", list(PARTS)),
    "coupled": Key(PAIRS, "drives coupled as in a wrist", []),
    "coulomb_velocity": Key(POSITIVE, "width of the sign function of Coulomb friction [rad/s]"),
    "cutoff": Key(POSITIVE, "low-pass cutoff of positions and torques [Hz]; default: chosen"),
    "torque_cutoff": Key(POSITIVE, "low-pass cutoff of torques [Hz]; default: that of positions"),
    "stride": Key(INTEGER, "every how many filtered samples one is used; default: chosen"),
    "delay": Key(ONE_OR_MORE, "delay of the torques, for each joint [s]; default: estimated"),
    "dead_zone": Key(NOT_NEGATIVE, "speed below which samples are not fitted [rad/s]", 0.0),
    "holdout": Key(SHARE, "share of the logs held out without validation logs", 0.3),
    "links": Key(TEXTS, "links to identify; default: all"),
    "joints": Key(TEXTS, "joints whose drives are identified; default: all"),
    "known": Key(NOT_NEGATIVE, "relative deviation of what links and joints exclude", 0.0),
    "mirrored": Key(POSITIVE, "relative deviation of left limbs from the image of right limbs"),
    "consistent": Key(FLAG, "every link must be physically possible", True),
    "mass": Key(POSITIVE, "total mass of all moving links [kg]"),
    "densities": Key(BOUNDS, "bounds on densities [kg/m^3]", [100.0, 20_000.0]),
    "prior_weight": Key(POSITIVE, "weight of the model's inertias relative to the logs", 1.0),
    "limit": Key(TEXTS, "acceptable errors, such as 'rms=0.5' and 'moving=10,5,5'", []),
    "term": Key(TERMS, "further terms of single joints", []),
}
READING = ("lock", "tip", "gravity", "rows", "columns", "topic", "gains", "on_bad_rows", "units_checked")
FILTERING = ("cutoff", "torque_cutoff", "stride")
# keys that do not apply to a robot with a floating base, and those that apply to logs of commands without torques
NOT_FLOATING = {"tip", "columns", "topic", "gains", "on_bad_rows", "units_checked", "terms", "choose", "coupled"}
NOT_FLOATING |= {"coulomb_velocity", "delay", "dead_zone", "term"}
OF_COMMANDS = {"model", "log", "validate", "floating_base", "coulomb_velocity", "holdout", *READING} - {"gains"}


def add_settings(command: argparse.ArgumentParser, option: Callable[..., Any], names: Iterable[str]) -> None:
    """Add the option for a settings file with these keys; in the epilog, [keys] becomes a list of those without an option."""
    option("--settings", metavar="FILE", help="settings file (TOML) for everything else, see below")
    options = {action.dest for action in command._actions}
    lines = [f"  {name:17} {KEYS[name].about}" for name in names if name not in options]
    command.epilog = (command.epilog or "").replace("[keys]", "\n".join(lines))
    command.set_defaults(keys=tuple(names))


def settings_of(options: argparse.Namespace) -> argparse.Namespace:
    """The options, with all keys of the command: from the command line, else the file of --settings, else defaults."""
    values = {name: KEYS[name].default for name in options.keys}
    values |= {} if options.settings is None else read_settings(options.settings, options.keys)
    values |= {name: value for name, value in vars(options).items() if name in options.keys and value not in (None, [])}
    return argparse.Namespace(**{**vars(options), **values, "lock": dict(values["lock"])})


def read_settings(path: str, names: Sequence[str]) -> dict[str, Any]:
    """Read a settings file that may contain these keys; paths in it are relative to its folder.

    Raises:
        JaxdynError: the file cannot be read or is not TOML, a key is unknown, or a value is of another kind.
    """
    try:
        with open(path, "rb") as file:
            found = tomllib.load(file)
    except OSError as error:
        raise JaxdynError(f"the settings cannot be read: {error.strerror or error}", place=path) from None
    except (ValueError, RecursionError) as error:
        raise JaxdynError(f"the settings are not TOML: {error}", place=path) from None
    for name, value in found.items():
        if name not in names:
            near = difflib.get_close_matches(name.replace("-", "_").lower(), names, 3, 0.5)
            hint = f"did you mean {' or '.join(near)}? " if near else ""
            what = f"the key {name!r} belongs to another command" if name in KEYS else f"unknown key {name!r}"
            raise JaxdynError(what, f"{hint}The keys are {', '.join(names)}", place=path)
        if not KINDS[KEYS[name].kind](value):
            raise JaxdynError(f"{name} is {value!r}", f"it must be {KEYS[name].kind}: {KEYS[name].about}", place=path)
        if "number" in KEYS[name].kind and "joint numbers" not in KEYS[name].kind:
            found[name] = _as_floats(value)
    at = functools.partial(os.path.join, os.path.dirname(path))
    beside = lambda file: at(file) if os.path.exists(at(file)) else "+".join(map(at, files_of(file)))
    for name in PATHS & found.keys():
        given = found[name]
        found[name] = at(given) if isinstance(given, str) else [x if x == "-" else beside(x) for x in given]
    return found


def _as_floats(value: Any) -> Any:
    """A number, or the numbers of a list or table, as floats."""
    if isinstance(value, Mapping):
        return {name: float(x) for name, x in value.items()}
    return [float(x) for x in value] if isinstance(value, list) else float(value)


def check_settings(settings: argparse.Namespace) -> None:
    """Raise an error if settings conflict, whatever the robot is."""
    if bool(settings.model) != bool(settings.log):
        missing = "--log" if settings.model else "--model"
        raise WrongUsage(f"{missing} is missing; pass both --model and --log, or neither to run the built-in example")
    needing = ("validate", "rows", "columns", "topic", "gains", "lock", "tip", "gravity", "floating_base", "held")
    if not settings.model and (found := _given(settings, needing)):
        raise WrongUsage(f"{', '.join(found)} cannot be used without a model and a log: pass --model and --log")
    if settings.known and settings.links is None and settings.joints is None:
        raise WrongUsage("known applies to the links and drives that links and joints exclude: specify links or joints")
    if not settings.consistent and settings.mass is not None:
        raise WrongUsage("--mass applies only to a consistent estimate: omit it, or the key consistent = false")


def check_applicable(settings: argparse.Namespace, names: Iterable[str], what: str) -> None:
    """Raise an error if settings are given that do not apply to `what`."""
    if found := _given(settings, names):
        raise WrongUsage(f"{', '.join(found)} cannot be used for {what}")


def _given(settings: argparse.Namespace, names: Iterable[str]) -> list[str]:
    """Those of the settings that differ from their defaults, in the order of `KEYS`."""
    return [name for name in KEYS if name in names and getattr(settings, name) != KEYS[name].default]


def write_settings(settings: argparse.Namespace, floating: bool) -> str:
    """The contents of a settings file with all settings that were used, defaults included, and absolute paths."""
    whole = lambda file: file if file == "-" else "+".join(map(os.path.abspath, files_of(file)))
    values = {**vars(settings), "floating_base": floating if settings.model else None}
    values |= {name: [whole(file) for file in values[name]] for name in PATHS - {"model"}}
    values["model"] = settings.model and whole(settings.model)
    lines = [f"# jaxdyn {__version__}; to repeat the run: jaxdyn identify --settings {NAME}", ""]
    for name, key in KEYS.items():
        entry = f"# {name} =" if values[name] is None else f"{name} = {_toml(values[name])}"
        lines += [f"{entry:40}  # {key.about}"] if name != "term" else []
    for term in settings.term:
        lines += ["", "[[term]]", *(f"{name} = {_toml(value)}" for name, value in term.items())]
    return "\n".join([*lines, ""])


def _toml(value: Any) -> str:
    """A value in TOML."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{json.dumps(name)} = {_toml(x)}' for name, x in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)

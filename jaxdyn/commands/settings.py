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
from .arguments import DRIVES, WrongUsage, is_rows
from .inputs import files_of

NAME = "settings.toml"
PATHS = {"model", "log", "validate", "columns"}


class Key(NamedTuple):
    """A setting: what its value must be (of `KINDS`), what it is for, its default, and to what else it applies.

    All keys apply to robots with a fixed base and logged torques; those of `floating` also to robots with a floating base,
    and those of `commands` also to logs of commands without torques.
    """

    kind: str
    about: str
    default: Any = None
    floating: bool = True
    commands: bool = False


def _finite(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x)


def _list_of(element: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda x: isinstance(x, list) and all(map(element, x))


def _text(x: Any) -> bool:
    return isinstance(x, str)


KINDS: dict[str, Callable[[Any], bool]] = {
    "a text": _text,
    "a list of texts": _list_of(_text),
    "true or false": lambda x: isinstance(x, bool),
    "an integer": lambda x: isinstance(x, int) and not isinstance(x, bool),
    "a positive number": lambda x: _finite(x) and x > 0,
    "a number that is not negative": lambda x: _finite(x) and x >= 0,
    "a number between 0 and 1": lambda x: _finite(x) and 0 < x < 1,
    "a number or a list of numbers": lambda x: _finite(x) or _list_of(_finite)(x),
    "a list of numbers": _list_of(_finite),
    "a list of three numbers": lambda x: _list_of(_finite)(x) and len(x) == 3,
    "a list of two numbers, the smaller one first, or []": lambda x: (
        _list_of(_finite)(x) and (x == [] or (len(x) == 2 and 0 <= x[0] < x[1]))
    ),
    "a list of pairs of joint numbers": _list_of(
        lambda x: _list_of(lambda k: isinstance(k, int) and not isinstance(k, bool))(x) and len(x) == 2
    ),
    "a list of ranges, such as ['500:37500', ':']": lambda x: _list_of(_text)(x) and all(map(is_rows, x)),
    "a table of numbers": lambda x: isinstance(x, Mapping) and all(map(_finite, x.values())),
    "a table with the values 'pose' and 'point'": lambda x: (
        isinstance(x, Mapping) and all(y in ("pose", "point") for y in x.values())
    ),
    "'raise' or 'drop'": lambda x: x in ("raise", "drop"),
    "one [[term]] table per term": _list_of(lambda x: isinstance(x, Mapping)),
}

KEYS: dict[str, Key] = {
    "model": Key("a text", "the robot (URDF or MJCF)", commands=True),
    "log": Key("a list of texts", "logs to fit", [], commands=True),
    "validate": Key("a list of texts", "logs for validation", [], commands=True),
    "lock": Key("a table of numbers", "joints that are fixed at a value [rad or m]", {}, commands=True),
    "tip": Key("a text", "link at which the serial chain ends; default: the whole tree", floating=False, commands=True),
    "gravity": Key("a list of three numbers", "gravity in world axes [m/s^2]; default: the model's", commands=True),
    "ignore_inertials": Key("true or false", "use only the kinematics of the model", False),
    "floating_base": Key(
        "true or false", "the base moves; default: if the model or the first log says so", commands=True
    ),
    "held": Key("a table with the values 'pose' and 'point'", "frames that unmeasured forces hold in place", {}),
    "rows": Key(
        "a list of ranges, such as ['500:37500', ':']", "rows to read, in the order of the logs", [], commands=True
    ),
    "columns": Key(
        "a list of texts", "column maps: one, or one per log ('-': none)", [], floating=False, commands=True
    ),
    "topic": Key("a text", "topic of the joint states in bags; default: detected", floating=False, commands=True),
    "gains": Key("a list of numbers", "torque per motor current of each joint [N m/A]", floating=False),
    "on_bad_rows": Key("'raise' or 'drop'", "what to do with implausible rows", "raise", floating=False, commands=True),
    "units_checked": Key(
        "true or false", "positions are radians even if they look like degrees", False, floating=False, commands=True
    ),
    "terms": Key("a list of texts", "drive terms to identify", list(DRIVES), floating=False),
    "choose": Key(
        "a list of texts",
        "what is selected by cross-validation; []: only the drive terms",
        ["filter", "friction", "springs", "delays"],
        floating=False,
    ),
    "coupled": Key("a list of pairs of joint numbers", "drives coupled as in a wrist", [], floating=False),
    "coulomb_velocity": Key(
        "a positive number", "width of the sign function of Coulomb friction [rad/s]", floating=False, commands=True
    ),
    "cutoff": Key("a positive number", "low-pass cutoff of positions and torques [Hz]; default: chosen"),
    "torque_cutoff": Key("a positive number", "low-pass cutoff of torques [Hz]; default: that of positions"),
    "stride": Key("an integer", "every how many filtered samples one is used; default: chosen"),
    "delay": Key(
        "a number or a list of numbers", "delay of the torques, for each joint [s]; default: estimated", floating=False
    ),
    "dead_zone": Key(
        "a number that is not negative", "speed below which samples are not fitted [rad/s]", 0.0, floating=False
    ),
    "holdout": Key(
        "a number between 0 and 1", "share of the logs held out without validation logs", 0.3, commands=True
    ),
    "links": Key("a list of texts", "links to identify; default: all"),
    "joints": Key("a list of texts", "joints whose drives are identified; default: all"),
    "known": Key("a number that is not negative", "relative deviation of what links and joints exclude", 0.0),
    "mirrored": Key("a positive number", "relative deviation of left limbs from the image of right limbs"),
    "consistent": Key("true or false", "every link must be physically possible", True),
    "mass": Key("a positive number", "total mass of all moving links [kg]"),
    "densities": Key(
        "a list of two numbers, the smaller one first, or []", "bounds on densities [kg/m^3]", [100.0, 20_000.0]
    ),
    "prior_weight": Key("a positive number", "weight of the model's inertias relative to the logs", 1.0),
    "limit": Key("a list of texts", "acceptable errors, such as 'rms=0.5' and 'moving=10,5,5'", []),
    "term": Key("one [[term]] table per term", "further terms of single joints", [], floating=False),
}
READING = ("lock", "tip", "gravity", "rows", "columns", "topic", "gains", "on_bad_rows", "units_checked")
FILTERING = ("cutoff", "torque_cutoff", "stride")


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
            raise JaxdynError(f"unknown key {name!r}", f"{hint}The keys are {', '.join(names)}", place=path)
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


def check_applicable(settings: argparse.Namespace, kind: str) -> None:
    """Raise an error if settings do not apply to a robot with a floating base, or to logs of commands without torques."""
    if found := _given(settings, [name for name, key in KEYS.items() if not getattr(key, kind)]):
        what = {"floating": "a robot with a floating base", "commands": "logs of commands without torques"}[kind]
        raise WrongUsage(f"{', '.join(found)} cannot be used for {what}")


def _given(settings: argparse.Namespace, names: Iterable[str]) -> list[str]:
    """Those of the settings that differ from their defaults."""
    return [name for name in names if getattr(settings, name) != KEYS[name].default]


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

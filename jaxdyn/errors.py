"""The errors jaxdyn raises, all of them `ValueError`s: what is wrong, where it is, and what to do about it."""

import os
import re
import sys
import warnings
from collections.abc import Callable

_MOST = 200  # characters of what the user gave, in a row
_LONGEST = 2000
_OWN = "jaxdyn.", "jaxtyping.", "beartype."  # modules whose frames are not the user's


def as_python(argument: str, value: str) -> str:
    """An argument of a function as written in a message: on_bad_rows='drop'."""
    return f"{argument}={value}"


class JaxdynError(ValueError):
    """Base class of every error that jaxdyn raises on bad input; quotations of the input are cut after 200 characters.

    Attributes:
        fault: the fault and its place.
        remedy: the remedy; `{name}` in it stands for an argument of the called function.
        place: the file, line or element, if not part of `fault`.
        arguments: arguments named in the remedy, with their values as Python writes them.
    """

    fault: str
    remedy: str
    place: str
    arguments: dict[str, str]

    def __init__(self, fault: str = "", remedy: str = "", *, place: str | os.PathLike[str] = "", **arguments: str):
        self.fault, self.remedy, self.place, self.arguments = fault, remedy, os.fspath(place), arguments
        super().__init__(self.message())

    def message(self, spelled: Callable[[str, str], str] = as_python) -> str:
        """`place: fault; remedy`, each argument spelled as the reader would give it."""
        remedy = self.remedy
        if self.arguments:
            remedy = remedy.format_map({name: spelled(name, value) for name, value in self.arguments.items()})
        between = "" if not (self.fault and remedy) else ". " if remedy[0].isupper() else "; "
        return shortened(f"{f'{self.place}: ' if self.place else ''}{self.fault}{between}{remedy}")


def shortened(message: str) -> str:
    """A message shortened for reading: quotations and words of more than 200 characters, and long lists, are cut."""
    quotation = rf"('[^'\n]{{{_MOST}}})[^'\n]{{40,}}(?=')"
    word = rf"(\S{{{_MOST}}})(?:[^'\s]{{40,}}(?=')|\S{{40,}})"
    message = re.sub(f"{quotation}|{word}", lambda m: f"{m[1] or m[2]}...", message)
    return message if len(message) <= _LONGEST else f"{message[: _LONGEST - 300]} ... {message[-250:]}"


class ModelWarning(UserWarning):
    """A fault of a robot description that was read nevertheless, and its interpretation."""


def warn(message: str) -> None:
    """Issue a `ModelWarning` at the line that called jaxdyn, skipping frames of annotation checkers."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OWN):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, ModelWarning, stacklevel=level)


class ModelError(JaxdynError):
    """A robot model that cannot be built: an inconsistent inertia, a zero axis, clashing names, a missing link."""


class LogError(JaxdynError):
    """A log that cannot be used: missing columns, NaN, time that does not increase, degrees instead of radians."""


class IdentificationError(JaxdynError):
    """An identification that cannot be carried out: nothing moves, the data and the model do not belong together."""


class TrajectoryError(JaxdynError):
    """A motion that cannot be posed or solved as asked: no steps, shapes that do not fit, limits that are missing."""


class OutputError(JaxdynError):
    """Results that cannot be written: the folder is a file, there is no permission, the disk is full."""


class ControlError(JaxdynError):
    """A controller that cannot be: gains of the wrong shape, a link that cannot be adapted, a negative threshold."""


class DeploymentError(JaxdynError):
    """A function that cannot be exported, or an exported file that cannot be used here: damaged, of another version."""

"""Errors and warnings of jaxdyn.

All errors are `ValueError`s. Their messages state what is wrong, where, and what to do.
"""

import os
import re
import sys
import warnings
from collections.abc import Callable

_MOST = 200  # maximum length of quoted input
_LONGEST = 2000
# packages whose frames are not user code
_OWN = "jaxdyn.", "jax.", "equinox.", "contextlib", "jaxtyping.", "beartype."


def as_python(argument: str, value: str) -> str:
    """Keyword argument in Python syntax, for example on_bad_rows='drop'."""
    return f"{argument}={value}"


class JaxdynError(ValueError):
    """Base class of jaxdyn's errors; messages truncate quoted input to 200 characters.

    Attributes:
        fault: what is wrong, and where.
        remedy: what to do; `{name}` is replaced by the keyword argument `name` with its value from `arguments`.
        place: file, line or element, if it is not part of `fault`.
        arguments: keyword arguments named in the remedy, with their values in Python syntax.
    """

    fault: str
    remedy: str
    place: str
    arguments: dict[str, str]

    def __init__(self, fault: str = "", remedy: str = "", *, place: str | os.PathLike[str] = "", **arguments: str):
        self.fault, self.remedy, self.place, self.arguments = fault, remedy, os.fspath(place), arguments
        super().__init__(self.message())

    def message(self, spelled: Callable[[str, str], str] = as_python) -> str:
        """Return the message `place: fault; remedy`.

        `spelled` formats the keyword arguments in the remedy, in Python syntax or as command-line options.
        """
        remedy = self.remedy
        if self.arguments:
            remedy = remedy.format_map({name: spelled(name, value) for name, value in self.arguments.items()})
        between = "" if not (self.fault and remedy) else ". " if remedy[0].isupper() else "; "
        return shortened(f"{f'{self.place}: ' if self.place else ''}{self.fault}{between}{remedy}")


def shortened(message: str) -> str:
    """Shorten quotations and words in a message to 200 characters.

    If the message is longer than 2000 characters, its middle is omitted.
    """
    quotation = rf"('[^'\n]{{{_MOST}}})[^'\n]{{40,}}(?=')"
    word = rf"(\S{{{_MOST}}})(?:[^'\s]{{40,}}(?=')|\S{{40,}})"
    message = re.sub(f"{quotation}|{word}", lambda m: f"{m[1] or m[2]}...", message)
    return message if len(message) <= _LONGEST else f"{message[: _LONGEST - 300]} ... {message[-250:]}"


class ModelWarning(UserWarning):
    """Warning about a fault in a robot description that jaxdyn tolerates; the message states how jaxdyn interprets it."""


class FallbackWarning(UserWarning):
    """Warning that a function runs in a slower form than requested; the message states the cause."""


def warn(message: str, category: type[Warning] = ModelWarning) -> None:
    """Issue a warning at the line that called jaxdyn, skipping frames of JAX and of annotation checkers."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OWN):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


class ModelError(JaxdynError):
    """Error for an invalid robot model, for example an inconsistent inertia, a zero axis, duplicate names or a missing link."""


class LogError(JaxdynError):
    """Error for an unusable log, for example missing columns, NaN, decreasing time stamps or angles in degrees."""


class IdentificationError(JaxdynError):
    """Error for an impossible identification, for example because nothing moves, or because data and model do not match."""


class TrajectoryError(JaxdynError):
    """Error for an invalid motion problem, for example no steps, wrong shapes or missing limits."""


class OutputError(JaxdynError):
    """Error for results that cannot be written, for example because permission is denied or the disk is full."""


class ControlError(JaxdynError):
    """Error for an invalid controller, for example gains of the wrong shape, an unknown link or a negative threshold."""


class DeploymentError(JaxdynError):
    """Error for a function that cannot be exported, or for an exported file that is damaged or of an unsupported version."""

"""jaxdyn's errors. All are `ValueError`s; their messages say what is wrong, where, and what to do."""

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
    """A keyword argument as it is written in messages: on_bad_rows='drop'."""
    return f"{argument}={value}"


class JaxdynError(ValueError):
    """Base class of all jaxdyn errors about invalid input; quoted input is truncated to 200 characters.

    Attributes:
        fault: what is wrong, and where.
        remedy: what to do; `{name}` is replaced by the name of an argument of the called function.
        place: the file, line or element, if it is not part of `fault`.
        arguments: arguments named in the remedy, with their values in Python syntax.
    """

    fault: str
    remedy: str
    place: str
    arguments: dict[str, str]

    def __init__(self, fault: str = "", remedy: str = "", *, place: str | os.PathLike[str] = "", **arguments: str):
        self.fault, self.remedy, self.place, self.arguments = fault, remedy, os.fspath(place), arguments
        super().__init__(self.message())

    def message(self, spelled: Callable[[str, str], str] = as_python) -> str:
        """The message `place: fault; remedy`, with arguments in the syntax that the reader would type."""
        remedy = self.remedy
        if self.arguments:
            remedy = remedy.format_map({name: spelled(name, value) for name, value in self.arguments.items()})
        between = "" if not (self.fault and remedy) else ". " if remedy[0].isupper() else "; "
        return shortened(f"{f'{self.place}: ' if self.place else ''}{self.fault}{between}{remedy}")


def shortened(message: str) -> str:
    """The message with quotations and words cut to 200 characters, and with its middle cut out beyond 2000 characters."""
    quotation = rf"('[^'\n]{{{_MOST}}})[^'\n]{{40,}}(?=')"
    word = rf"(\S{{{_MOST}}})(?:[^'\s]{{40,}}(?=')|\S{{40,}})"
    message = re.sub(f"{quotation}|{word}", lambda m: f"{m[1] or m[2]}...", message)
    return message if len(message) <= _LONGEST else f"{message[: _LONGEST - 300]} ... {message[-250:]}"


class ModelWarning(UserWarning):
    """Warning about a fault in a robot description that jaxdyn tolerates; the message says how jaxdyn interprets it."""


class FallbackWarning(UserWarning):
    """Warning that a function runs in a slower form than requested; the message names the operation responsible."""


def warn(message: str, category: type[Warning] = ModelWarning) -> None:
    """Issue a warning at the line that called jaxdyn, skipping frames of JAX and of annotation checkers."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OWN):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


class ModelError(JaxdynError):
    """An invalid robot model, for example with an inconsistent inertia, a zero axis, duplicate names or a missing link."""


class LogError(JaxdynError):
    """An unusable log, for example with missing columns, NaN, decreasing time stamps, or degrees instead of radians."""


class IdentificationError(JaxdynError):
    """An identification that is impossible, for example because nothing moves, or data and model do not match."""


class TrajectoryError(JaxdynError):
    """An invalid motion problem, for example without steps, with wrong shapes or with missing limits."""


class OutputError(JaxdynError):
    """Results that cannot be written, for example because permission is denied or the disk is full."""


class ControlError(JaxdynError):
    """An invalid controller, for example with gains of the wrong shape, an unknown link or a negative threshold."""


class DeploymentError(JaxdynError):
    """A function that cannot be exported, or an exported file that is damaged or of an unsupported version."""

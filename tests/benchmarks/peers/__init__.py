"""The libraries with which jaxdyn is compared, one module each.

Each module has a function `build(robot, state, precision)`, which returns an `Entry` for each quantity, by name. It raises an
exception if the library is not installed or does not support the robot; the tables then state the reason.
"""

import dataclasses
import importlib
import importlib.metadata
from collections.abc import Callable

PACKAGES = {"frax": "frax", "mjx": "mujoco-mjx", "adam": "adam-robotics", "brax": "brax"}


@dataclasses.dataclass(frozen=True)
class Entry:
    """Computation of one quantity by a library.

    Attributes:
        function: function f(*arrays) of one state, which JAX maps over a batch and compiles.
        arguments: arrays in the library's layout, with one row per state, in float64.
        finish: function that converts the result to arrays in Pinocchio's layout (see `comparison`).
        remark: how the quantity is computed, if not by a single function of the library.
    """

    function: Callable
    arguments: tuple
    finish: Callable
    remark: str = ""


def build(name: str, robot, state: dict, precision: str) -> dict[str, Entry]:
    """The quantities that a library computes for a robot, by name."""
    return importlib.import_module(f"{__name__}.{name}_").build(robot, state, precision)


def version(name: str) -> str:
    """The installed version of a library; empty if it is not installed."""
    try:
        return importlib.metadata.version(PACKAGES.get(name, name))
    except importlib.metadata.PackageNotFoundError:
        return ""

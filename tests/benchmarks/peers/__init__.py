"""The libraries that jaxdyn is measured beside, one file each.

A file has `build(robot, state, precision) -> Peer`; where the library is missing, or cannot take the robot, it raises, and
the suite says so by name.
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
        function: f(*arrays) of one state, to be mapped and compiled by JAX.
        arguments: the arrays in the library's layout, one row a state, as float64.
        finish: its result as arrays in Pinocchio's layout, see `comparison`.
        remark: how it is computed where that is not one function of the library.
    """

    function: Callable
    arguments: tuple
    finish: Callable
    remark: str = ""


def build(name: str, robot, state: dict, precision: str) -> dict[str, Entry]:
    """A library's quantities for a robot."""
    return importlib.import_module(f"{__name__}.{name}_").build(robot, state, precision)


def version(name: str) -> str:
    """The installed version; empty where there is none."""
    try:
        return importlib.metadata.version(PACKAGES.get(name, name))
    except importlib.metadata.PackageNotFoundError:
        return ""

"""The textbooks' systems with letters in the place of numbers."""

from collections.abc import Callable

from sympy import Expr, Symbol, symbols

from ..errors import ModelError
from ._leaves import Leaves, ten_parameters


def textbook_leaves(system: str) -> Leaves:
    """Leaves for `derive` that put letters in the place of the numbers of one of the chains of `jaxdyn.textbook`.

    `derive(textbook.planar_elbow(), textbook_leaves("planar_elbow"))`. The letters are the arguments of that function (m1,
    l1, lc1, i1, ...) as positive symbols, and g for gravity; a virtual link's inertia stays the chain's number.

    Args:
        system: planar_2r_point_masses, planar_elbow, spherical_rrp or pendulum_3dof.

    Raises:
        ModelError: another name.
    """
    if system not in _SYSTEMS:
        raise ModelError(f"there are no letters for the system {system!r}, only for {', '.join(_SYSTEMS)}")
    return _SYSTEMS[system](dict(zip(_LETTERS, symbols(_LETTERS, positive=True), strict=True)))


_LETTERS = ("m1", "m2", "l1", "l2", "lc1", "lc2", "i1", "i2", "g")


def _planar_2r(x: dict[str, Symbol]) -> Leaves:
    return _planar(x, x["l1"], x["l2"], 0, 0)


def _planar_elbow(x: dict[str, Symbol]) -> Leaves:
    return _planar(x, x["lc1"], x["lc2"], x["i1"], x["i2"])


def _planar(x: dict[str, Symbol], lc1: Expr, lc2: Expr, i1: Expr | int, i2: Expr | int) -> Leaves:
    first, second = ten_parameters(x["m1"], [lc1, 0, 0], [0, i1, i1]), ten_parameters(x["m2"], [lc2, 0, 0], [0, i2, i2])
    return {"translation": {(1, 0): x["l1"]}, "inertia": [first, second], "gravity": {1: -x["g"]}}


def _spherical_rrp(x: dict[str, Symbol]) -> Leaves:
    i1, i2 = x["i1"], x["i2"]
    rows = [
        10 * [None],
        ten_parameters(x["m1"], [x["lc1"], 0, 0], [0, i1, i1]),
        ten_parameters(x["m2"], [0, 0, 0], [0, i2, i2]),
    ]
    return {"inertia": rows, "gravity": {2: -x["g"]}}


def _pendulum_3dof(x: dict[str, Symbol]) -> Leaves:
    i1, i2 = x["i1"], x["i2"]
    rows = [
        10 * [None],
        ten_parameters(x["m1"], [0, 0, -x["lc1"]], [i1, i1, 0]),
        ten_parameters(x["m2"], [0, 0, -x["lc2"]], [i2, i2, 0]),
    ]
    return {"translation": {(2, 2): -x["l1"]}, "inertia": rows, "gravity": {2: -x["g"]}}


_SYSTEMS: dict[str, Callable[[dict[str, Symbol]], Leaves]] = {
    "planar_2r_point_masses": _planar_2r,
    "planar_elbow": _planar_elbow,
    "spherical_rrp": _spherical_rrp,
    "pendulum_3dof": _pendulum_3dof,
}

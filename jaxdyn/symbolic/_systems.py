"""Textbook systems with symbols instead of numbers."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import sympy
from sympy import Expr, Symbol

from ..errors import ModelError
from ._leaves import Leaves, ten_parameters


def textbook_leaves(system: str, joints: int = 2) -> Leaves:
    """Leaves for `derive` that replace the numbers of a chain from `jaxdyn.textbook` with symbols.

    An example is `derive(textbook.planar_elbow(), textbook_leaves("planar_elbow"))`.

    The symbols are positive. They have the names of the arguments of the corresponding function in `jaxdyn.textbook` (m1, l1,
    lc1, i1, ...), with g for gravity and the following exceptions:

    - m, lc, Jl, Jm, r and k stand for mass, com_distance, link_inertia, motor_inertia, gear_ratio and stiffness.
    - The remotely driven elbow has the gear ratios r1 and r2 and the rotor inertias J1 and J2.
    - The coupled wrist has the masses m1 to m3, the distances d1 to d3, the gear ratios r4 to r6 and the rotor inertias J4 to
      J6.

    The inertia of a virtual link remains a number. The systems five_bar and four_bar are those of `linkages.five_bar_chain` and
    `linkages.four_bar_chain`. Quantities are in SI units.

    Args:
        system: name of the system: cartesian_two_link, coupled_wrist, elastic_link, five_bar, four_bar, geared_link,
            pendulum, pendulum_3dof, planar_2r_point_masses, planar_elbow, remotely_driven_elbow, single_link or spherical_rrp.
        joints: number of joints of the system pendulum.

    Raises:
        ModelError: the system is unknown.
    """
    if system == "pendulum":
        return _pendulum(joints)
    if system not in _SYSTEMS:
        known = ", ".join(sorted((*_SYSTEMS, "pendulum")))
        raise ModelError(f"unknown system {system!r}; the systems are {known}")
    return _SYSTEMS[system]()


def _letters(names: str) -> list[Symbol]:
    return [Symbol(name, positive=True) for name in names.split()]


def _planar_2r() -> Leaves:
    m1, m2, l1, l2, g = _letters("m1 m2 l1 l2 g")
    return _planar([_along_x(m1, l1, 0), _along_x(m2, l2, 0)], {(1, 0): l1}, g)


def _planar_elbow() -> Leaves:
    m1, m2, l1, lc1, lc2, i1, i2, g = _letters("m1 m2 l1 lc1 lc2 i1 i2 g")
    return _planar([_along_x(m1, lc1, i1), _along_x(m2, lc2, i2)], {(1, 0): l1}, g)


def _remotely_driven_elbow() -> Leaves:
    r1, r2, j1, j2 = _letters("r1 r2 J1 J2")
    motors = {"transmission.matrix": {(0, 0): r1, (1, 0): r2, (1, 1): r2}, "transmission.rotor_inertia": [j1, j2]}
    return {**_planar_elbow(), **motors}


def _five_bar() -> Leaves:
    l1, l2, g = _letters("l1 l2 g")
    rows = [_along_x(m, sign * lc, i) for (m, lc, i), sign in zip(_bodies(4), (1, 1, 1, -1), strict=True)]
    return _planar(rows, {(2, 0): l2, (3, 0): l1}, g)


def _four_bar() -> Leaves:
    l1, l3, g = _letters("l1 l3 g")
    return _planar([_along_x(*body) for body in _bodies(4)], {(1, 0): l1, (3, 0): l3}, g)


def _bodies(count: int) -> list[list[Symbol]]:
    return [_letters(f"m{k} lc{k} i{k}") for k in range(1, count + 1)]


def _along_x(mass: Any, com: Any, moment: Any) -> list[Expr]:
    return ten_parameters(mass, [com, 0, 0], [0, moment, moment])


def _planar(rows: Sequence[list[Expr]], translation: dict[tuple[int, int], Any], g: Symbol) -> Leaves:
    return {"translation": translation, "inertia": list(rows), "gravity": {1: -g}}


def _cartesian_two_link() -> Leaves:
    m1, m2, g = _letters("m1 m2 g")
    return {"inertia": [ten_parameters(m, [0, 0, 0]) for m in (m1, m2)], "gravity": {2: -g}}


def _hanging() -> Leaves:
    m, lc, jl, g = _letters("m lc Jl g")
    central = jl - m * lc**2  # link_inertia is about the joint axis
    return {"inertia": [ten_parameters(m, [0, 0, -lc], [central, central, 0])], "gravity": {2: -g}}


def _single_link() -> Leaves:
    jm, r = _letters("Jm r")
    return {**_hanging(), "armature": [r**2 * jm]}


def _geared_link() -> Leaves:
    jm, r = _letters("Jm r")
    return {**_hanging(), "transmission.matrix": [[r]], "transmission.rotor_inertia": [jm]}


def _elastic_link() -> Leaves:
    jm, r, k = _letters("Jm r k")
    link = _hanging()
    return {
        **link,
        "inertia": [*link["inertia"], 10 * [None]],
        "transmission.matrix": [[r, -r]],
        "transmission.rotor_inertia": [jm],
        "springs.stiffness": {1: k},
    }


def _spherical_rrp() -> Leaves:
    m1, m2, lc1, i1, i2, g = _letters("m1 m2 lc1 i1 i2 g")
    return {"inertia": [10 * [None], _along_x(m1, lc1, i1), _along_x(m2, 0, i2)], "gravity": {2: -g}}


def _pendulum_3dof() -> Leaves:
    m1, m2, l1, lc1, lc2, i1, i2, g = _letters("m1 m2 l1 lc1 lc2 i1 i2 g")
    rows = [10 * [None], _down(m1, lc1, i1), _down(m2, lc2, i2)]
    return {"translation": {(2, 2): -l1}, "inertia": rows, "gravity": {2: -g}}


def _pendulum(joints: int) -> Leaves:
    (g,) = _letters("g")
    offsets = {(k, 2): -_letters(f"l{k}")[0] for k in range(1, joints)}
    return {"translation": offsets, "inertia": [_down(*body) for body in _bodies(joints)], "gravity": {2: -g}}


def _down(mass: Any, com: Any, moment: Any) -> list[Expr]:
    return ten_parameters(mass, [0, 0, -com], [moment, moment, 0])


def _coupled_wrist() -> Leaves:
    (g,) = _letters("g")
    rows = []
    for k, sign in ((1, -1), (2, 1), (3, 1)):
        m, d = _letters(f"m{k} d{k}")
        along: Any = np.array([sympy.Rational(1, 10), 0, sign], object)
        across: Any = sympy.eye(3) - sympy.Matrix(np.outer(along, along)) / (along @ along)
        rows.append(ten_parameters(m, list(d * along), m * d**2 / 5 * across))
    r4, r5, r6, *rotors = _letters("r4 r5 r6 J4 J5 J6")
    return {
        "inertia": rows,
        "gravity": {2: -g},
        "transmission.matrix": [[r4, 0, 0], [0, r5, 0], [0, r6, r6]],
        "transmission.rotor_inertia": rotors,
    }


_SYSTEMS: dict[str, Callable[[], Leaves]] = {
    "cartesian_two_link": _cartesian_two_link,
    "coupled_wrist": _coupled_wrist,
    "elastic_link": _elastic_link,
    "five_bar": _five_bar,
    "four_bar": _four_bar,
    "geared_link": _geared_link,
    "pendulum_3dof": _pendulum_3dof,
    "planar_2r_point_masses": _planar_2r,
    "planar_elbow": _planar_elbow,
    "remotely_driven_elbow": _remotely_driven_elbow,
    "single_link": _single_link,
    "spherical_rrp": _spherical_rrp,
}

"""Equations as LaTeX, with sines and cosines abbreviated as in textbooks."""

import re
from collections.abc import Mapping
from typing import Any

import sympy
from sympy import ImmutableMatrix, Symbol
from sympy.printing.latex import LatexPrinter


class _Short(LatexPrinter):
    """A printer that writes c_{12} for cos(q1 + q2) and s_2 for sin(q2)."""

    def __init__(self, q: tuple[Symbol, ...], settings: dict):
        super().__init__(settings)
        self._numbers = {x: str(i + 1) for i, x in enumerate(q)}

    def _print_cos(self, expr: Any, exp: str | None = None) -> str:
        return self._short("c", expr, exp)

    def _print_sin(self, expr: Any, exp: str | None = None) -> str:
        return self._short("s", expr, exp)

    def _short(self, letter: str, expr: Any, exp: str | None) -> str:
        angles: Any = sympy.Add.make_args(expr.args[0])
        if not all(x in self._numbers for x in angles):
            return self._long(expr, exp)
        numbers = sorted((self._numbers[x] for x in angles), key=int)
        name = f"{letter}_{{{(',' if len(self._numbers) > 9 else '').join(numbers)}}}"
        return name if exp is None else f"{name}^{{{exp}}}"

    def _long(self, expr: Any, exp: str | None) -> str:
        name = rf"\{expr.func.__name__}" + ("" if exp is None else f"^{{{exp}}}")
        return rf"{name}{{\left({self._print(expr.args[0])} \right)}}"


def latex_of(
    q: tuple[Symbol, ...],
    qd: tuple[Symbol, ...],
    parameters: tuple[Symbol, ...],
    terms: Mapping[str, ImmutableMatrix],
    short: bool,
) -> str:
    """Named matrices as lines of an `aligned` block, with rates as dotted coordinates and, for example, lc1 as l_{c1}."""
    names = {}
    for x, xd in zip(q, qd, strict=True):
        letter, _, index = sympy.latex(x).partition("_")
        names[xd] = rf"\dot{{{letter}}}" + (f"_{index}" if index else "")
    for x in parameters:
        if found := re.fullmatch(r"([A-Za-z])([a-z])(\d+)", x.name):
            names[x] = "{}_{{{}{}}}".format(*found.groups())
    settings = {"symbol_names": names, "mat_str": "bmatrix", "mat_delim": ""}
    printer = _Short(q, settings) if short else LatexPrinter(settings)
    lines = [f"{name} &= {printer.doprint(matrix)}" for name, matrix in terms.items()]
    return "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}"

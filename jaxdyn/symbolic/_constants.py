"""Recognition of exact constants in floating-point numbers."""

from fractions import Fraction
from typing import Any

import numpy as np
import sympy

LONGEST = 10**12
"""Largest denominator of an exact constant. Larger denominators indicate measured numbers, which are printed as decimals."""

_DIGITS = 7
_DENOMINATOR = 1000
_PI_DENOMINATOR = 60
_SQUARE_DENOMINATOR = 200


def exact(x: np.floating) -> sympy.Expr:
    """The exact constant represented by a float: 0.5 -> 1/2, 0.1 -> 1/10, 0.70710678... -> sqrt(2)/2, 1.5707... -> pi/2.

    The candidates are short decimals, fractions, fractions of pi, and square roots of fractions. A candidate is accepted if
    its relative deviation from the float is at most four times the machine epsilon of the float's type. If no candidate is
    accepted, the result is the rational number equal to the shortest decimal representation of the float, so that sums and
    products remain exact.
    """
    value, tolerance = float(x), 4 * float(np.finfo(x.dtype).eps)
    shortest = Fraction(np.format_float_scientific(x, unique=True))

    def near(candidate: float) -> bool:
        return abs(candidate - value) <= tolerance * abs(value)

    digits = np.format_float_scientific(x, unique=True).lower().partition("e")[0]
    if sum(d.isdigit() for d in digits) <= _DIGITS:
        return _rational(shortest)
    for scale, symbol, most in ((1.0, sympy.Integer(1), _DENOMINATOR), (np.pi, sympy.pi, _PI_DENOMINATOR)):
        fraction = Fraction(value / scale).limit_denominator(most)
        if near(float(fraction) * scale):
            return _rational(fraction) * symbol
    square = Fraction(value**2).limit_denominator(_SQUARE_DENOMINATOR)
    sign = -1 if value < 0 else 1
    if square and near(sign * float(square) ** 0.5):
        return sign * sympy.sqrt(_rational(square))
    return _rational(shortest)


def expression(x: Any) -> sympy.Expr:
    """A number, string or expression from the user, as an expression without floating-point numbers."""
    found: Any = sympy.sympify(x.item() if isinstance(x, np.generic) else x)
    return sympy.nsimplify(found, rational=True) if found.has(sympy.Float) else found


def rounded(terms: list[sympy.Expr]) -> list[sympy.Expr]:
    """The terms of a sum, with long rationals replaced by decimals, and without terms that are mere rounding errors."""
    numbers: list[Any] = [term.as_coeff_Mul()[0] for term in terms]
    if all(c.is_Rational and c.q <= LONGEST for c in numbers):
        return terms
    largest = max(abs(float(c)) for c in numbers)
    kept = []
    for c, term in zip(numbers, terms, strict=True):
        if abs(float(c)) > 1e-15 * largest:
            kept.append(sympy.Float(c, 17) * (term / c) if c.is_Rational and c.q > LONGEST else term)
    return kept


def _rational(x: Fraction) -> sympy.Expr:
    return sympy.Rational(x.numerator, x.denominator)

"""Fast simplification of polynomials in sines and cosines of joint angles, as in the equations of a chain.

Unlike SymPy's `trigsimp`, these functions do not search for the simplest form. Angles of joints with parallel axes are added
during the recursion, while expressions are short (`merge`). The entries of M, C and g are reduced modulo s^2 + c^2 = 1 to a
normal form (`tidy`), in which every expression that vanishes is 0.
"""

from typing import Any

import sympy
from sympy import Expr, cos, sin
from sympy.polys.rings import PolyRing

from ._constants import LONGEST, rounded

_FACTORED = 24
"""Maximum number of terms of a sum that is factored; factoring longer sums is slow, and few of them have a factor."""


def expand(x: Any) -> Expr:
    """Expand like `sympy.expand`; if all numbers are rational, sparse polynomials make the expansion much faster."""
    generators = sorted(x.atoms(cos, sin) | x.free_symbols, key=sympy.default_sort_key)
    if not generators or not (x.is_Add or x.is_Mul or x.is_Pow):
        return x
    try:
        return PolyRing(generators, sympy.QQ).from_expr(x).as_expr()
    except (ValueError, NotImplementedError, sympy.CoercionFailed):
        return sympy.expand(x)


def reduce(x: Expr) -> Expr:
    """The expanded expression, with every even power of a sine written in terms of cosines."""
    x = expand(x)
    return _without_squares(x, sin) if x.has(sin) else x


def merge(x: Expr, angle: Any, shorten: bool = False) -> Expr:
    """The reduced expression, with the sine and cosine of `angle` merged with those of other angles by addition theorems.

    For example, c_a c - s_a s becomes cos(a + angle), where c and s are the cosine and sine of `angle`. If `shorten` is True,
    terms are merged only if the new angle has fewer summands: c_12 c_2 + s_12 s_2 becomes c_1, with c_12 = cos(q1 + q2).
    """
    x = reduce(x)
    c, s = cos(angle), sin(angle)
    if not x.has(c) or not x.has(s):
        return x
    rest, with_c, with_s = [], [], {}
    for term in sympy.Add.make_args(x):
        powers = term.as_powers_dict()
        if powers[c] == 1 and powers[s] == 0:
            with_c.append(term / c)
        elif powers[s] == 1 and powers[c] == 0:
            with_s[term / s] = True
        else:
            rest.append(term)
    for term in with_c:
        rest.append(_partner(term, with_s, angle, shorten))
    return sympy.Add(*rest, *(term * s for term in with_s))


def _partner(term: Expr, with_s: dict[Expr, bool], angle: Expr, shorten: bool) -> Expr:
    """The product term * cos(angle), or its sum with a term of `with_s` if an addition theorem applies to both."""
    for factor in [f for f, power in term.as_powers_dict().items() if isinstance(f, (cos, sin)) and power == 1]:
        earlier, others = factor.args[0], term / factor
        sine = isinstance(factor, sin)
        other = (cos if sine else sin)(earlier) * others
        for sign in (1, -1):
            total = earlier + (sign if sine else -sign) * angle
            if (not shorten or _summands(total) < max(_summands(earlier), _summands(angle))) and with_s.pop(
                sign * other, False
            ):
                return others * factor.func(total)
    return term * cos(angle)


def _summands(angle: Any) -> int:
    return len(sympy.Add.make_args(angle))


def tidy(x: Expr) -> Expr:
    """The shortest of several forms: with sums of angles or expanded, with squares of cosines or of sines, factored or not."""
    x = reduce(x)
    forms = [x]
    angles = sorted({f.args[0] for f in x.atoms(cos, sin)}, key=sympy.default_sort_key)
    if any(angle.is_Add for angle in angles):
        for angle in angles:
            x = merge(x, angle, shorten=True)
        forms += [reduce(x), reduce(sympy.expand_trig(x))]
    if any(form == 0 for form in forms):
        return sympy.S.Zero
    forms = [_round(form) for form in forms]
    forms += [_with_sines(form) for form in forms]
    return _gathered(min(forms, key=_length))


def _length(x: Expr) -> tuple[int, int]:
    return len(sympy.Add.make_args(x)), sympy.count_ops(x)


def _round(x: Expr) -> Expr:
    return sympy.Add(*rounded(list(sympy.Add.make_args(x))))


def _with_sines(x: Expr) -> Expr:
    """The expression with squares of cosines replaced by 1 - sin^2 for each angle where this shortens it."""
    for angle in sorted({f.args[0] for f in x.atoms(cos)}, key=sympy.default_sort_key):
        other = _without_squares(x, cos, angle)
        x = min(x, other, key=_length)
    return x


def _without_squares(x: Expr, function: Any, angle: Any = None) -> Expr:
    """The expression with even powers of sines replaced by cosines, or vice versa, for one angle or for all angles."""
    partner = cos if function is sin else sin

    def is_square(p: Expr) -> bool:
        return (
            isinstance(p, sympy.Pow)
            and isinstance(p.base, function)
            and bool(p.exp.is_Integer and p.exp >= 2)
            and angle in (None, p.base.args[0])
        )

    def swapped(p: Any) -> Expr:
        return (1 - partner(p.base.args[0]) ** 2) ** (p.exp // 2) * p.base ** (p.exp % 2)

    squares = [p for p in x.atoms(sympy.Pow) if is_square(p)]
    return expand(x.xreplace({p: swapped(p) for p in squares})) if squares else x


def _gathered(x: Expr) -> Expr:
    """The shortest form of a sum: unchanged, factored, or collected by trigonometric products or by a symbol."""
    terms = sympy.Add.make_args(x)
    if len(terms) < 2:
        return x
    groups: dict[Expr, list[Expr]] = {}
    for term in terms:
        trigonometric = sympy.Mul(*(f for f in sympy.Mul.make_args(term) if f.has(cos, sin)))
        groups.setdefault(trigonometric, []).append(term / trigonometric)
    forms = [x, sympy.Add(*(_factored(sympy.Add(*parts)) * key for key, parts in groups.items()))]
    if len(terms) <= _FACTORED:
        product = _factored(x)
        if product.is_Mul:
            factors: Any = product.args
            product = sympy.Mul(*(_gathered(expand(f)) if f.is_Add else f for f in factors))
        forms += [product, *(sympy.collect(x, y) for y in sorted(x.free_symbols, key=sympy.default_sort_key))]
    return min(forms, key=sympy.count_ops)


def _factored(x: Expr) -> Expr:
    exactly = not x.has(sympy.Float) and all(r.q <= LONGEST for r in x.atoms(sympy.Rational))
    return sympy.factor(x) if exactly and len(sympy.Add.make_args(x)) <= _FACTORED else x

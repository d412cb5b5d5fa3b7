"""Expressions: exact constants instead of floats, simplified sines and cosines, the leaves of a chain, functions and LaTeX.

Unlike SymPy's `trigsimp`, the simplification does not search for the simplest form. Angles of joints with parallel axes are
added during the recursion, while expressions are short (`merge`). The entries of M, C and g are reduced modulo s^2 + c^2 = 1
to a normal form (`tidy`), in which every expression that vanishes is 0.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import sympy
from sympy import Expr, ImmutableMatrix, Matrix, Symbol, cos, sin
from sympy.polys.rings import PolyRing
from sympy.printing.latex import LatexPrinter

from ..errors import ModelError
from ..model.chain import Chain, layout
from ..spatial import components


def array_module(backend: str) -> Any:
    """`jax.numpy` or `numpy`, by the name that users pass."""
    if backend not in ("jax", "numpy"):
        raise ModelError(f"the backend must be 'jax' or 'numpy', not {backend!r}")
    return jnp if backend == "jax" else np


def on_arrays(
    evaluate: Callable[..., Any], sizes: Sequence[int], parameters: Sequence[str], shape: tuple[int, ...], xp: Any
) -> Callable[..., Any]:
    """A function of state arrays, or batches of them, and of parameters; `evaluate` maps lists of scalars to all entries."""

    def function(*states: Any, **values: Any) -> Any:
        missing, unknown = set(parameters) - set(values), set(values) - set(parameters)
        if missing or unknown:
            what = "missing" if missing else "not among the parameters of the equations"
            known = f"the parameters are {', '.join(parameters) or 'none'}"
            raise ModelError(f"{', '.join(sorted(missing or unknown))}: {what}; {known}")
        arrays = [xp.asarray(x) for x in states]
        if [x.shape[-1:] for x in arrays] != [(size,) for size in sizes]:
            raise ModelError(
                f"the function requires {len(sizes)} state arrays of {list(sizes)} numbers, not of the shapes "
                f"{[x.shape for x in arrays]}"
            )
        batch, dtype = (arrays[0].shape[:-1] if arrays else ()), xp.result_type(*arrays[:1], 0.0)
        found = evaluate(
            *([x[..., i] for i in range(x.shape[-1])] for x in arrays), [values[name] for name in parameters]
        )
        entries = [xp.broadcast_to(xp.asarray(x, dtype), batch) for x in found]
        return xp.stack(entries, axis=-1).reshape(*batch, *shape)

    return function


def function_of(
    matrix: ImmutableMatrix,
    shape: tuple[int, ...],
    states: tuple[tuple[Symbol, ...], ...],
    backend: str,
    parameters: Sequence[Symbol] | None = None,
) -> Callable[..., Any]:
    """A function of state and parameters (by default, those of the matrix) that returns the entries of a matrix."""
    if parameters is None:
        free: Any = matrix.free_symbols - {x for state in states for x in state}
        parameters = sorted(free, key=lambda x: x.name)
    xp = array_module(backend)
    entries = [sympy.N(x, 17) for x in matrix]  # roots and pi become numbers that do not affect the dtype
    evaluate = sympy.lambdify([*states, parameters], entries, modules=backend, cse=True)
    return on_arrays(evaluate, [len(state) for state in states], [x.name for x in parameters], shape, xp)


# largest denominator of an exact constant; larger ones indicate measured numbers, which are printed as decimals
LONGEST = 10**12
# A float is read as a short decimal, a fraction, a fraction of pi or the root of a fraction only if its digits or denominator
# do not exceed these numbers. With larger ones, a measured number would be mistaken for such a constant.
_DIGITS, _DENOMINATOR, _PI_DENOMINATOR, _SQUARE_DENOMINATOR = 7, 1000, 60, 200


def exact(x: np.floating) -> sympy.Expr:
    """The constant within 4 eps of a float: a short decimal, fraction (of pi) or root; else its shortest decimal, exactly."""
    value, tolerance = float(x), 4 * float(np.finfo(x.dtype).eps)
    near = lambda candidate: abs(candidate - value) <= tolerance * abs(value)
    text = np.format_float_scientific(x, unique=True)
    if sum(d.isdigit() for d in text.lower().partition("e")[0]) > _DIGITS:
        for scale, symbol, most in ((1.0, sympy.Integer(1), _DENOMINATOR), (np.pi, sympy.pi, _PI_DENOMINATOR)):
            fraction = Fraction(value / scale).limit_denominator(most)
            if near(float(fraction) * scale):
                return sympy.Rational(fraction) * symbol
        square = Fraction(value**2).limit_denominator(_SQUARE_DENOMINATOR)
        sign = -1 if value < 0 else 1
        if square and near(sign * float(square) ** 0.5):
            return sign * sympy.sqrt(sympy.Rational(square))
    return sympy.Rational(Fraction(text))


def expression(x: Any) -> sympy.Expr:
    """A number, string or expression from the user, as an expression without floating-point numbers."""
    found: Any = sympy.sympify(x.item() if isinstance(x, np.generic) else x)
    return sympy.nsimplify(found, rational=True) if found.has(sympy.Float) else found


def rounded(terms: list[sympy.Expr]) -> list[sympy.Expr]:
    """The terms of a sum, with long rationals replaced by decimals, and without terms that are mere rounding errors."""
    numbers: list[Any] = [term.as_coeff_Mul()[0] for term in terms]
    if all(c.is_Rational and c.q <= LONGEST for c in numbers):
        return terms
    least = 1e-15 * max(abs(float(c)) for c in numbers)
    return [
        sympy.Float(c, 17) * (term / c) if c.is_Rational and c.q > LONGEST else term
        for c, term in zip(numbers, terms, strict=True)
        if abs(float(c)) > least
    ]


# maximum number of terms of a sum that is factored; factoring longer sums is slow, and few of them have a factor
_FACTORED = 24


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
    """The reduced expression, with c_a c - s_a s as cos(a + angle) etc.; if `shorten`, only where the sum gets shorter."""
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
    merged = [_partner(term, with_s, angle, shorten) for term in with_c]
    return sympy.Add(*rest, *merged, *(term * s for term in with_s))


def _partner(term: Expr, with_s: dict[Expr, bool], angle: Expr, shorten: bool) -> Expr:
    """The product term * cos(angle), or its sum with a term of `with_s` if an addition theorem applies to both."""
    summands = lambda x: len(sympy.Add.make_args(x))
    for factor in [f for f, power in term.as_powers_dict().items() if isinstance(f, (cos, sin)) and power == 1]:
        earlier, others = factor.args[0], term / factor
        sine = isinstance(factor, sin)
        other = (cos if sine else sin)(earlier) * others
        for sign in (1, -1):
            total = earlier + (sign if sine else -sign) * angle
            shorter = summands(total) < max(summands(earlier), summands(angle))
            if (shorter or not shorten) and with_s.pop(sign * other, False):
                return others * factor.func(total)
    return term * cos(angle)


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
    forms = [sympy.Add(*rounded(list(sympy.Add.make_args(form)))) for form in forms]
    forms += [_with_sines(form) for form in forms]
    return _gathered(min(forms, key=_length))


def _length(x: Expr) -> tuple[int, int]:
    return len(sympy.Add.make_args(x)), sympy.count_ops(x)


def _with_sines(x: Expr) -> Expr:
    """The expression with squares of cosines replaced by 1 - sin^2 for each angle where this shortens it."""
    for angle in sorted({f.args[0] for f in x.atoms(cos)}, key=sympy.default_sort_key):
        other = _without_squares(x, cos, angle)
        x = min(x, other, key=_length)
    return x


def _without_squares(x: Expr, function: Any, angle: Any = None) -> Expr:
    """The expression with even powers of sines replaced by cosines, or vice versa, for one angle or for all angles."""
    partner = cos if function is sin else sin
    swapped = {}
    for p in x.atoms(sympy.Pow):
        if isinstance(p.base, function) and p.exp.is_Integer and p.exp >= 2 and angle in (None, p.base.args[0]):
            swapped[p] = (1 - partner(p.base.args[0]) ** 2) ** (p.exp // 2) * p.base ** (p.exp % 2)
    return expand(x.xreplace(swapped)) if swapped else x


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


Leaves = Mapping[str, Any]
LINKS = ("rotation", "translation", "screw", "inertia")
LEAVES = (
    *(*LINKS, "armature", "gravity", "base_pose", "springs.stiffness", "springs.rest_position"),
    *("transmission.matrix", "transmission.rotor_inertia", "coupling.matrix", "coupling.offset"),
)


class Body(NamedTuple):
    """A link in the derivation: its placement, its joint screw, and its inertia about the centre of mass."""

    rotation: Matrix
    translation: Matrix
    axis: Matrix
    slide: Matrix
    mass: Expr
    com: Matrix
    inertia: Matrix


class Robot(NamedTuple):
    """A chain in the derivation; the joint positions are `coupling` times the coordinates, plus `offset`."""

    links: list[Body]
    rotors: Matrix
    stiffness: Matrix
    rest: Matrix
    gravity: Matrix
    base_rotation: Matrix
    base_translation: Matrix
    coupling: Matrix
    offset: Matrix

    @property
    def parameters(self) -> set[Any]:
        """All symbols in the leaves."""
        found: set[Any] = set()
        for x in (*(x for link in self.links for x in link), *self[1:]):
            found |= x.free_symbols
        return found


def ten_parameters(mass: Any, com: Sequence[Any], inertia: Any = 0) -> list[Expr]:
    """Build a row of the leaf `inertia` as expressions: (m, m c, Ixx Ixy Iyy Ixz Iyz Izz) about the link frame's origin.

    All arguments may contain numbers, symbols, expressions or strings.

    Args:
        mass: m [kg].
        com: c in the link frame [m].
        inertia: about the centre of mass, in the axes of the link frame: a 3x3 matrix, its diagonal entries, or 0 [kg m^2].
    """
    m, c = expression(mass), [expression(x) for x in com]
    column: Any = Matrix(c)
    given = _objects(inertia)
    about = given if given.ndim == 2 else np.diag(np.broadcast_to(given, 3))
    total: Any = Matrix(3, 3, [expression(x) for x in about.ravel()]) - m * skew(column) ** 2
    return [m, *(m * x for x in c), *map(sympy.expand, components.mat_to_sym(tuple(total)))]


def robot_of(chain: Chain, leaves: Leaves) -> Robot:
    """The leaves of a chain as exact constants, some of which are replaced by expressions."""
    numbers = {name: x for name in LEAVES if (x := number(chain, name)) is not None}
    if unknown := sorted(set(leaves) - set(numbers)):
        raise ModelError(
            f"unknown leaf {unknown[0]!r}; the leaves that expressions can replace are {', '.join(numbers)}"
        )
    if chain.screw.shape != (chain.n, 6):
        raise ModelError(
            f"the leaf screw has shape {chain.screw.shape}, but derive accepts one robot with {chain.n} screws"
        )
    if chain.topology.has_curved_joints:
        name = chain.joint_names[layout(chain).curved[0].link]
        raise ModelError(f"joint {name!r} is spherical or free; {_ORDINARY}")
    leaf = {name: expressions(name, x, leaves.get(name)) for name, x in numbers.items()}
    rotors: Any = sympy.diag(*leaf["armature"])
    if chain.transmission is not None:
        ratios = Matrix(leaf["transmission.matrix"])
        rotors += ratios.T * sympy.diag(*leaf["transmission.rotor_inertia"]) * ratios
    base: Any = Matrix(leaf.get("base_pose", sympy.eye(4)))
    return Robot(
        links=[_body(chain, i, *(leaf[name][i] for name in LINKS)) for i in range(chain.n)],
        rotors=rotors,
        stiffness=Matrix(leaf["springs.stiffness"]),
        rest=Matrix(leaf["springs.rest_position"]),
        gravity=Matrix(leaf["gravity"]),
        base_rotation=base[:3, :3],
        base_translation=base[:3, 3],
        coupling=Matrix(leaf.get("coupling.matrix", sympy.eye(chain.n))),
        offset=Matrix(leaf.get("coupling.offset", sympy.zeros(chain.n, 1))),
    )


_ORDINARY = "closed forms are only supported for chains with revolute, prismatic and helical joints"


def number(chain: Chain, name: str) -> Any:
    """The leaf with the given dotted name; None if the chain has no such leaf."""
    x: Any = chain
    for part in name.split("."):
        x = None if x is None else getattr(x, part)
    return x


def _objects(x: Any) -> np.ndarray:
    """An array of objects from nested lists, an array or a SymPy matrix."""
    return np.asarray(x.tolist() if isinstance(x, sympy.MatrixBase) else x, object)


def expressions(name: str, numbers: Any, given: Any) -> np.ndarray:
    """A leaf as an object array, some or all of whose entries are replaced by expressions."""
    numbers = np.asarray(numbers)
    if given is not None and not isinstance(given, Mapping):
        given = _objects(given)
        given = given[..., 0] if given.shape == (*numbers.shape, 1) else given  # a SymPy column
        if given.shape != numbers.shape:
            raise ModelError(
                f"the expressions for {name} have shape {given.shape}, but the chain's leaf has {numbers.shape}"
            )
        given = {index: x for index, x in np.ndenumerate(given) if x is not None}
    given = {index if isinstance(index, tuple) else (index,): x for index, x in (given or {}).items()}
    leaf = np.empty(numbers.shape, object)
    for index, x in np.ndenumerate(numbers):
        replaced = index in given
        leaf[index] = expression(given.pop(index)) if replaced else exact(x)
    if given:
        raise ModelError(f"{name} has no entry {next(iter(given))}; its shape is {numbers.shape}")
    return leaf


def _body(
    chain: Chain, i: int, rotation: np.ndarray, translation: np.ndarray, screw: np.ndarray, pi: np.ndarray
) -> Body:
    axis, slide = Matrix(screw[:3]), Matrix(screw[3:])
    turns, slides = axis.dot(axis), slide.dot(slide)
    if not (turns.free_symbols or slides.free_symbols):
        size = float(turns) if turns != 0 else float(slides)
        if abs(size - 1) > 1e-5:
            raise ModelError(
                f"joint {chain.joint_names[i]!r} has the screw {[float(x) for x in screw]}, which satisfies neither |w| = 1 "
                f"nor (w = 0 and |v| = 1); {_ORDINARY}"
            )
    massless, mass, h = bool(pi[0] == 0), pi[0], Matrix(pi[1:4])
    if massless and any(pi[1:4]):
        raise ModelError(f"link {chain.link_names[i]!r} has no mass, but the first moment {list(pi[1:4])}")
    com = (h / mass).applyfunc(sympy.cancel) if not massless else h
    inertia = Matrix(3, 3, components.sym_to_mat(tuple(pi[4:]))) + mass * skew(com) ** 2
    inertia = inertia.applyfunc(lambda x: sympy.expand(x) if x.is_polynomial() else sympy.cancel(x))
    return Body(Matrix(rotation), Matrix(translation), axis, slide, mass, com, inertia)


def skew(x: Any) -> Matrix:
    """Skew-symmetric matrix [x] with [x] y = x cross y."""
    return Matrix(3, 3, components.skew(x))


class _Short(LatexPrinter):
    """A printer that writes c_{12} for cos(q1 + q2) and s_2 for sin(q2)."""

    def __init__(self, q: tuple[Symbol, ...], settings: dict):
        super().__init__(settings)
        self._numbers = {x: i + 1 for i, x in enumerate(q)}

    def _print_Function(self, expr: Any, exp: str | None = None) -> str:
        angles: Any = sympy.Add.make_args(expr.args[0])
        if not isinstance(expr, (cos, sin)) or any(x not in self._numbers for x in angles):
            return super()._print_Function(expr, exp)
        numbers = [str(i) for i in sorted(self._numbers[x] for x in angles)]
        name = f"{expr.func.__name__[0]}_{{{(',' if len(self._numbers) > 9 else '').join(numbers)}}}"
        return name if exp is None else f"{name}^{{{exp}}}"


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

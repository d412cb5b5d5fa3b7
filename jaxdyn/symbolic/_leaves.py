"""The leaves of a chain as SymPy matrices: exact constants, or expressions that replace them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import sympy
from sympy import Expr, Matrix

from ..errors import ModelError
from ..model._chain import Chain
from ..spatial._host import inertia_tensor
from ._constants import exact, expression

Leaves = Mapping[str, Any]
LINKS = ("rotation", "translation", "screw", "inertia")
DRIVES = ("transmission.matrix", "transmission.rotor_inertia", "coupling.matrix", "coupling.offset")
SPRINGS = ("springs.stiffness", "springs.rest_position")
LEAVES = (*LINKS, "armature", "gravity", "base_pose", *SPRINGS, *DRIVES)


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
        mass: mass m [kg].
        com: centre of mass c in the link frame [m].
        inertia: inertia about the centre of mass, in the axes of the link frame: a 3x3 matrix, its three diagonal entries, or
            0 [kg m^2].
    """
    m, c = expression(mass), [expression(x) for x in com]
    column: Any = Matrix(c)
    given = _objects(inertia)
    about = given if given.ndim == 2 else np.diag(np.broadcast_to(given, 3))
    total: Any = Matrix(3, 3, [expression(x) for x in about.ravel()]) + m * (
        column.dot(column) * sympy.eye(3) - column * column.T
    )
    return [
        m,
        *(m * x for x in c),
        *(sympy.expand(total[i, j]) for i, j in ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))),
    ]


def robot_of(chain: Chain, leaves: Leaves) -> Robot:
    """The leaves of a chain as exact constants, some of which are replaced by expressions.

    Raises:
        ModelError: a leaf or a joint is not supported, as described for `derive`.
    """
    numbers = {name: number(chain, name) for name in LEAVES}
    known = [name for name, x in numbers.items() if x is not None]
    unknown = sorted(set(leaves) - set(known))
    if unknown:
        raise ModelError(f"unknown leaf {unknown[0]!r}; the leaves that expressions can replace are {', '.join(known)}")
    if chain.screw.shape != (chain.n, 6):
        raise ModelError(
            f"the leaf screw has shape {chain.screw.shape}, but derive accepts one robot with {chain.n} screws"
        )
    if chain.topology.quaternion_joints:
        name = chain.joint_names[chain.topology.quaternion_joints[0][0]]
        raise ModelError(f"joint {name!r} is spherical or free; {_ORDINARY}")
    leaf = {name: expressions(name, x, leaves.get(name)) for name, x in numbers.items() if x is not None}
    rotors: Any = sympy.diag(*leaf["armature"])
    if chain.transmission is not None:
        ratios = Matrix(leaf["transmission.matrix"])
        rotors += ratios.T * sympy.diag(*leaf["transmission.rotor_inertia"]) * ratios
    coupled = chain.coupling is not None
    base: Any = Matrix(leaf["base_pose"]) if chain.base_pose is not None else sympy.eye(4)
    return Robot(
        links=[_body(chain, i, *(leaf[name][i] for name in LINKS)) for i in range(chain.n)],
        rotors=rotors,
        stiffness=Matrix(leaf["springs.stiffness"]),
        rest=Matrix(leaf["springs.rest_position"]),
        gravity=Matrix(leaf["gravity"]),
        base_rotation=base[:3, :3],
        base_translation=base[:3, 3],
        coupling=Matrix(leaf["coupling.matrix"]) if coupled else sympy.eye(chain.n),
        offset=Matrix(leaf["coupling.offset"]) if coupled else sympy.zeros(chain.n, 1),
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
    inertia = Matrix(inertia_tensor(pi)) + mass * skew(com) ** 2
    return Body(
        Matrix(3, 3, list(rotation.ravel())), Matrix(translation), axis, slide, mass, com, inertia.applyfunc(_neat)
    )


def _neat(x: Expr) -> Expr:
    return sympy.expand(x) if x.is_polynomial() else sympy.cancel(x)


def skew(x: Any) -> Matrix:
    """Skew-symmetric matrix [x] with [x] y = x cross y."""
    return Matrix([[0, -x[2], x[1]], [x[2], 0, -x[0]], [-x[1], x[0], 0]])

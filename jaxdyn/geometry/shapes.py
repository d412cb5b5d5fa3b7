"""`Shapes`: what the links of a robot and their surroundings occupy, as a pytree beside the `Chain`.

Every shape is a convex core, inflated by a radius: all points within this distance of the core. A sphere is an inflated point,
a capsule an inflated segment; the radius of the other kinds is 0 or a margin, which rounds their edges.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import equinox as eqx
from jaxtyping import Array, Float

from .._summary import Summary, lines
from ..errors import ModelError
from ..model.chain import as_array

Kind = Literal["sphere", "capsule", "box", "cylinder", "ellipsoid", "hull", "plane", "height_field"]
UNBOUNDED = frozenset({"plane", "height_field"})  # solid below a surface; two of them have no distance
KINDS: tuple[Kind, ...] = get_args(Kind)


class LeftOut(NamedTuple):
    """A pair of shapes, by their indices, whose distance is not computed, and why."""

    first: int
    second: int
    reason: str


@dataclasses.dataclass(frozen=True, eq=False)
class Fixed:
    """What is static about shapes: kinds, links, names and pairs. Equal if all fields are.

    Attributes:
        kinds: kind of each shape.
        links: index of the link that carries each shape, -1 for the base and the surroundings.
        names: name of each shape, unique: the name of its link in the robot description, and a number if it has several.
        pairs: indices of the pairs of shapes whose distances are computed.
        left_out: the other pairs of shapes on different links, each with the reason.
        notes: what was noticed when the shapes were read: omitted ones, and by how much hulls exceed their meshes.
    """

    kinds: tuple[Kind, ...]
    links: tuple[int, ...]
    names: tuple[str, ...]
    pairs: tuple[tuple[int, int], ...]
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()

    @functools.cached_property
    def _key(self) -> tuple[Any, ...]:
        return self.kinds, self.links, self.names, self.pairs, self.left_out, self.notes

    @functools.cached_property
    def _hash(self) -> int:  # computed once, since every call of a compiled function hashes its static arguments
        return hash(self._key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Fixed) and self._key == other._key)


class Shapes(eqx.Module, Summary):
    """Convex shapes and height fields fixed to the links of a chain, and the pairs of them that must not touch.

    Make them with `geometry.read` or `make_shapes`, add the surroundings with `with_environment`, and change leaves with
    `equinox.tree_at`: `tree_at(lambda s: s.radius, shapes, shapes.radius + 0.01)` enlarges all shapes by 1 cm.

    Attributes:
        pose: pose of each shape in its link's frame, or in the base frame for shapes on the base [m]. The origin is the centre
            of the core, and the axis of a capsule or cylinder is z. A plane bounds the half-space z < 0 of its frame, and a
            height field all that is below its heights.
        size: half of the core's extent along x, y and z [m]: (0, 0, half length) of a capsule, without its caps; (radius,
            radius, half length) of a cylinder; half edge lengths of a box, and along x and y of the grid of a height field;
            semi-axes of an ellipsoid; 0 for the other kinds.
        radius: distance from the core to the surface [m].
        vertices: vertices of each hull in its frame [m], in the order of the hulls.
        heights: z of the surface of each height field at the points (i, j) of its grid [m], where i counts along x and j along
            y, in the order of the height fields.
    """

    pose: Float[Array, "m 4 4"] = eqx.field(converter=as_array)
    size: Float[Array, "m 3"] = eqx.field(converter=as_array)
    radius: Float[Array, " m"] = eqx.field(converter=as_array)
    vertices: tuple[Float[Array, "_ 3"], ...]
    fixed: Fixed = eqx.field(static=True)
    heights: tuple[Float[Array, "_ _"], ...] = ()

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Kind of each shape."""
        return self.fixed.kinds

    @property
    def links(self) -> tuple[int, ...]:
        """Index of the link that carries each shape, -1 for the base and the surroundings."""
        return self.fixed.links

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each shape."""
        return self.fixed.names

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Indices of the pairs of shapes whose distances are computed, in the order of the results."""
        return self.fixed.pairs

    @property
    def pair_names(self) -> tuple[tuple[str, str], ...]:
        """Names of the shapes of each pair."""
        return tuple((self.names[a], self.names[b]) for a, b in self.pairs)

    @property
    def left_out(self) -> tuple[LeftOut, ...]:
        """Pairs of shapes on different links whose distances are not computed, each with the reason."""
        return self.fixed.left_out

    @property
    def notes(self) -> tuple[str, ...]:
        """What was noticed when the shapes were read: omitted ones, and by how much hulls exceed their meshes."""
        return self.fixed.notes

    def __repr__(self) -> str:
        counts = ", ".join(
            f"{self.kinds.count(kind)} {plural}" for kind, plural in _PLURALS.items() if kind in self.kinds
        )
        reasons: dict[str, int] = {}
        for pair in self.left_out:
            reasons[pair.reason] = reasons.get(pair.reason, 0) + 1
        return lines(
            f"Shapes: {len(self.kinds)} on {len(set(self.links) - {-1})} links and the base ({counts})",
            f"{len(self.pairs)} pairs",
            *(f"{count} pairs left out: {reason}" for reason, count in reasons.items()),
        )


_PLURALS = {
    "sphere": "spheres",
    "capsule": "capsules",
    "box": "boxes",
    "cylinder": "cylinders",
    "ellipsoid": "ellipsoids",
    "hull": "hulls",
    "plane": "planes",
    "height_field": "height fields",
}


def with_pairs(
    shapes: Shapes, pairs: Sequence[tuple[int | str, int | str]], left_out: Sequence[LeftOut] = ()
) -> Shapes:
    """The shapes with other pairs, given by indices or names.

    Raises:
        ModelError: a pair names no shape, or consists of two planes or height fields or of twice the same shape.
    """
    index = {name: k for k, name in enumerate(shapes.names)}
    found: list[tuple[int, int]] = []
    for pair in pairs:
        wrong = next(
            (x for x in pair if (x not in index if isinstance(x, str) else not 0 <= x < len(shapes.kinds))), None
        )
        if wrong is not None:
            raise ModelError(f"pair {pair}: there is no shape {wrong!r}", f"the shapes are {', '.join(shapes.names)}")
        a, b = (index[x] if isinstance(x, str) else int(x) for x in pair)
        if a == b or {shapes.kinds[a], shapes.kinds[b]} <= UNBOUNDED:
            raise ModelError(f"pair {pair}: the distance of these shapes is not defined", "omit the pair")
        found.append((a, b))
    fixed = dataclasses.replace(shapes.fixed, pairs=tuple(found), left_out=tuple(left_out))
    return dataclasses.replace(shapes, fixed=fixed)

"""`Contacts`: what acts on a robot by touching, as a pytree beside the `Chain`: contacts, joint limits and dry friction.

All are soft constraints of the acceleration, with MuJoCo's parameters (mujoco.readthedocs.io, Computation: Constraint model).
"""

import dataclasses
from typing import Literal

import equinox as eqx
from jaxtyping import Array, Float

from .._summary import Summary, lines
from ..geometry.shapes import Shapes
from ..model.chain import as_array
from .places import places_of, vertex_counts

Cone = Literal["pyramidal", "elliptic"]


class Softness(eqx.Module):
    """How soft constraints are, one row for each.

    Attributes:
        reference: MuJoCo's solref, (time constant [s], damping ratio), or if both are negative, (-stiffness [1/s^2], -damping
            [1/s]), of the violation as if its acceleration were free.
        impedance: MuJoCo's solimp: the impedance d without and with full violation, the violation at which it is full [m or
            rad], and the midpoint and power of the curve between them.
        margin: violation begins where the gap is below this [m or rad].
    """

    reference: Float[Array, "k 2"] = eqx.field(converter=as_array)
    impedance: Float[Array, "k 5"] = eqx.field(converter=as_array)
    margin: Float[Array, " k"] = eqx.field(converter=as_array)


@dataclasses.dataclass(frozen=True)
class Rows:
    """What is static about contacts.

    Attributes:
        dimensions: of the force of each pair of shapes: 1 (without friction), 3 (sliding), 4 (and torsion), or 6 (and rolling).
        cone: form of the friction cone.
        limited: the joints whose limits are constraints.
        rubbing: the velocities with dry friction.
    """

    dimensions: tuple[int, ...]
    cone: Cone
    limited: tuple[int, ...]
    rubbing: tuple[int, ...]

    @property
    def width(self) -> int:
        """Number of rows of every contact, the largest dimension."""
        return max(self.dimensions, default=1)


class Contacts(eqx.Module, Summary):
    """Contacts of the pairs of shapes, limits of joints, and dry friction.

    Attributes:
        shapes: shapes of the robot and the ground; `shapes.pairs` are those that can touch.
        softness: of each pair of shapes.
        friction: coefficients of each pair: two of sliding [1], torsion [m], and two of rolling [m].
        friction_reference: like `Softness.reference`, along friction; 0 for that of the pair. Elliptic cones only.
        limits: softness of the limit of each joint in `rows.limited`.
        dry_friction: largest friction torque or force of each velocity in `rows.rubbing` [N m or N].
        rubbing: softness of dry friction.
        shape_weight: inverse inertia of the body of each shape, (translation [1/kg], rotation [1/(kg m^2)]), 0 if it is fixed.
        weight: inverse inertia of each velocity.
        friction_ratio: MuJoCo's impratio, the ratio of the impedance along friction to that of the normal.
        least_time: smallest time constant of a reference [s], twice MuJoCo's time step, or 0.
    """

    shapes: Shapes
    softness: Softness
    friction: Float[Array, "p 5"] = eqx.field(converter=as_array)
    friction_reference: Float[Array, "p 2"] = eqx.field(converter=as_array)
    limits: Softness
    dry_friction: Float[Array, " f"] = eqx.field(converter=as_array)
    rubbing: Softness
    shape_weight: Float[Array, "m 2"] = eqx.field(converter=as_array)
    weight: Float[Array, " nv"] = eqx.field(converter=as_array)
    friction_ratio: Float[Array, ""] = eqx.field(converter=as_array)
    least_time: Float[Array, ""] = eqx.field(converter=as_array)
    rows: Rows = eqx.field(static=True)

    def __repr__(self) -> str:
        dimensions = ", ".join(map(str, sorted(set(self.rows.dimensions)))) or "none"
        return lines(
            f"Contacts: {len(self.place_names)} places of {len(self.shapes.pairs)} pairs of shapes, {self.rows.cone} cones",
            f"dimensions of forces: {dimensions}",
            f"limits of {len(self.rows.limited)} joints, dry friction of {len(self.rows.rubbing)}",
        )

    @property
    def place_names(self) -> tuple[tuple[str, str], ...]:
        """Names of the shapes of each place, in the order of `contact_forces`: the force acts on the second."""
        names = self.shapes.names
        links = max(self.shapes.links, default=-1) + 2
        shapes = places_of(self.shapes.fixed, links, vertex_counts(self.shapes)).shapes
        return tuple((names[a], names[b]) for a, b in shapes)

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
Smooth = Literal["nowhere", "derivatives", "everywhere"]


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
        smooth: what `Contacts.width` smooths.
    """

    dimensions: tuple[int, ...]
    cone: Cone
    limited: tuple[int, ...]
    rubbing: tuple[int, ...]
    smooth: Smooth = "nowhere"

    @property
    def width(self) -> int:
        """Number of rows of every contact, the largest dimension."""
        return max(self.dimensions, default=1)


class Connect(eqx.Module):
    """Two points of two links that coincide, MuJoCo's `connect`; the violation is p_a - p_b in world axes [m].

    Attributes:
        points: in the frames of the links [m].
        reference, impedance: as in `Softness`.
        weight: inverse inertias of both links, added [1/kg].
        links: indices of the links, -1 for the base.
    """

    points: Float[Array, "2 3"] = eqx.field(converter=as_array)
    reference: Float[Array, "2"] = eqx.field(converter=as_array)
    impedance: Float[Array, "5"] = eqx.field(converter=as_array)
    weight: Float[Array, ""] = eqx.field(converter=as_array)
    links: tuple[int, int] = eqx.field(static=True)


class Weld(eqx.Module):
    """Two frames of two links that coincide, MuJoCo's `weld`.

    The violation is p_a - p_b in world axes [m], and `turning_scale` times sin(angle / 2) along the axis of the rotation from
    frame b to frame a, in frame b.

    Attributes:
        frames: poses in the frames of the links [m].
        turning_scale: MuJoCo's torquescale [m].
        reference, impedance: as in `Softness`.
        weight: inverse inertias of both links, added, (translation [1/kg], rotation [1/(kg m^2)]).
        links: indices of the links, -1 for the base.
    """

    frames: Float[Array, "2 4 4"] = eqx.field(converter=as_array)
    turning_scale: Float[Array, ""] = eqx.field(converter=as_array)
    reference: Float[Array, "2"] = eqx.field(converter=as_array)
    impedance: Float[Array, "5"] = eqx.field(converter=as_array)
    weight: Float[Array, "2"] = eqx.field(converter=as_array)
    links: tuple[int, int] = eqx.field(static=True)


class Follow(eqx.Module):
    """A joint, or a sum of joints, that follows another one, MuJoCo's equalities `joint` and `tendon` (of fixed tendons).

    The violation is x - (k0 + k1 y + k2 y^2 + k3 y^3 + k4 y^4), with the sums x and y of coefficients times positions, less
    their `zeros`; without joints of y, it is x - k0.

    Attributes:
        polynomial: k0 ... k4.
        zeros: of both sums [rad or m].
        coefficients: of the joints of both sums.
        reference, impedance: as in `Softness`.
        weight: inverse inertias of both sums, added.
        joints: indices of the velocities of both sums.
    """

    polynomial: Float[Array, "5"] = eqx.field(converter=as_array)
    zeros: Float[Array, "2"] = eqx.field(converter=as_array)
    coefficients: tuple[Float[Array, " _"], Float[Array, " _"]]
    reference: Float[Array, "2"] = eqx.field(converter=as_array)
    impedance: Float[Array, "5"] = eqx.field(converter=as_array)
    weight: Float[Array, ""] = eqx.field(converter=as_array)
    joints: tuple[tuple[int, ...], tuple[int, ...]] = eqx.field(static=True)


Equality = Connect | Weld | Follow


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
        equalities: constraints by which links or joints are held together.
        width: gaps over which forces fade [m]; see `smoothed`.
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
    equalities: tuple[Equality, ...] = ()
    width: Float[Array, ""] = eqx.field(converter=as_array, default=0.0)

    def __repr__(self) -> str:
        dimensions = ", ".join(map(str, sorted(set(self.rows.dimensions)))) or "none"
        return lines(
            f"Contacts: {len(self.place_names)} places of {len(self.shapes.pairs)} pairs of shapes, {self.rows.cone} cones",
            f"dimensions of forces: {dimensions}",
            f"limits of {len(self.rows.limited)} joints, dry friction of {len(self.rows.rubbing)}",
            *([f"{len(self.equalities)} equality constraints"] if self.equalities else []),
        )

    @property
    def reach(self) -> Float[Array, " p"]:
        """The gap of each pair of shapes up to which it has forces, beside negligible ones [m]."""
        return self.softness.margin + 40 * self.width

    @property
    def place_names(self) -> tuple[tuple[str, str], ...]:
        """Names of the shapes of each place, in the order of `contact_forces`: the force acts on the second."""
        names = self.shapes.names
        links = max(self.shapes.links, default=-1) + 2
        shapes = places_of(self.shapes.fixed, links, vertex_counts(self.shapes)).shapes
        return tuple((names[a], names[b]) for a, b in shapes)


def smoothed(contacts: Contacts, width: float | Float[Array, ""], derivatives_only: bool = False) -> Contacts:
    """Contacts whose forces begin at a distance and grow smoothly, so that derivatives know of contacts that are near.

    With v = gap - margin, contacts act with the violation -w log(1 + exp(-v / w)) instead of min(v, 0), and their stiffness
    is multiplied by 1 / (1 + exp(v / w)). Each edge of a pyramidal cone exerts D u log(1 + exp(-x / u)) instead of
    D max(-x, 0), with u = k w and the stiffness k of the reference acceleration; elliptic cones keep their function of x.
    For w = 0, these are MuJoCo's contacts. Limits, dry friction and equality constraints do not change.

    Args:
        width: w [m], for example 1 mm; 0 for MuJoCo's contacts.
        derivatives_only: accelerations remain those of MuJoCo, and only their derivatives are those of smooth contacts at these
            accelerations, as in Paulus et al. (2025, Hard contacts with soft gradients).
    """
    smooth: Smooth = "derivatives" if derivatives_only else "everywhere"
    return dataclasses.replace(contacts, width=width, rows=dataclasses.replace(contacts.rows, smooth=smooth))


def in_derivatives(contacts: Contacts) -> Contacts:
    """The contacts of which derivatives are taken."""
    if contacts.rows.smooth != "derivatives":
        return contacts
    return dataclasses.replace(contacts, rows=dataclasses.replace(contacts.rows, smooth="everywhere"))

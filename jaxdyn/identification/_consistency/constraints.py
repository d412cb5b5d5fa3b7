"""Prior knowledge about a robot, expressed as linear equations and inequalities in its parameters."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float

from ...errors import IdentificationError
from .priors import Divergence, entropic_divergence

DENSITIES = (100.0, 20_000.0)  # [kg/m^3]: from a hollow link with covers to slightly more than solid tungsten


@dataclasses.dataclass(frozen=True)
class Constraints:
    """Linear constraints equal @ x = equal_to and least @ x >= least_of on the parameters x.

    The parameters are in column order and in SI units. The sum `a + b` contains the constraints of both a and b.

    Attributes:
        equal: (e, p) coefficients of the parameters in each equation.
        equal_to: (e,) right-hand sides of the equations.
        least: (i, p) coefficients of the parameters in each inequality.
        least_of: (i,) right-hand sides of the inequalities.

    Raises:
        IdentificationError: shapes do not match, numbers are not finite, or a row is zero.
    """

    equal: Float[np.ndarray, "e p"]
    equal_to: Float[np.ndarray, " e"]
    least: Float[np.ndarray, "i p"]
    least_of: Float[np.ndarray, " i"]

    def __post_init__(self) -> None:
        for rows, values, what in ((self.equal, self.equal_to, "equal"), (self.least, self.least_of, "least")):
            if rows.ndim != 2 or values.shape != (rows.shape[0],):
                raise IdentificationError(
                    f"constraints: {what} has shape {rows.shape}, but its right-hand sides have shape {values.shape}"
                )
            if not (np.all(np.isfinite(rows)) and np.all(np.isfinite(values))):
                raise IdentificationError(f"constraints: {what} contains NaN or infinity")
            if np.any(np.all(rows == 0, axis=1)):
                raise IdentificationError(
                    f"constraints: a row of {what} is zero, so it does not constrain any parameter; remove it"
                )
        if self.equal.shape[1] != self.least.shape[1]:
            raise IdentificationError(
                f"constraints on {self.equal.shape[1]} and on {self.least.shape[1]} parameters cannot be combined"
            )

    def __add__(self, other: "Constraints") -> "Constraints":
        if other.equal.shape[1] != self.equal.shape[1]:
            raise IdentificationError(
                f"constraints on {self.equal.shape[1]} and on {other.equal.shape[1]} parameters cannot be combined"
            )
        fields = [f.name for f in dataclasses.fields(self)]
        return Constraints(*(np.concatenate([getattr(self, f), getattr(other, f)]) for f in fields))

    def given(self, fixed: Bool[np.ndarray, " p"], values: Float[np.ndarray, " p"]) -> "Constraints":
        """Reduce the constraints to the free parameters, for given values of the fixed parameters.

        Constraints that involve only fixed parameters are dropped.

        Raises:
            IdentificationError: the fixed parameters violate a constraint that involves no free parameter.
        """
        parts = []
        for rows, sides, sign in ((self.equal, self.equal_to, 1.0), (self.least, self.least_of, 0.0)):
            free, rest = np.where(fixed, 0.0, rows), sides - rows[:, fixed] @ values[fixed]
            alone = ~free.any(axis=1)
            tolerance = 1e-6 * np.maximum(np.abs(rows) @ np.abs(np.where(fixed, values, 0.0)), np.abs(sides))
            if np.any(alone & ((rest > tolerance) | (sign * rest < -tolerance))):
                raise IdentificationError(
                    "a constraint involves only known parameters, whose values violate it; remove the constraint "
                    "or correct the values"
                )
            parts += [free[~alone], rest[~alone]]
        return Constraints(*parts)

    @property
    def size(self) -> int:
        """Number of equations and inequalities."""
        return len(self.equal_to) + len(self.least_of)


@dataclasses.dataclass(frozen=True, eq=False)
class Consistency:
    """Prior knowledge about the links, in addition to physical consistency.

    Attributes:
        mass: total mass of all moving links [kg], if known.
        constraints: constraints on the parameters, for example from `known_parameters`, `mass_bounds` or
            `bounding_ellipsoid`.
        densities: lower and upper bounds on the density of a link [kg/m^3], defined as the density of the solid
            ellipsoid with the link's mass and inertia. If given, the size of each link is also bounded by an ellipsoid
            derived from the distances between joints (`link_bounds`). None means no bounds on size and density.
        prior_weight: weight of the chain's inertias relative to the log (`consistent_problem`).
        divergence: measure of how far a link's parameters are from those of the chain; the cost penalises it.
    """

    mass: float | None = None
    constraints: Constraints | None = None
    densities: tuple[float, float] | None = DENSITIES
    prior_weight: float = 1.0
    divergence: Divergence = entropic_divergence

    def of(self, names: Sequence[str]) -> "Consistency":
        """Express the total mass as a constraint on the parameters; `names` are the names of all parameters."""
        known = self.constraints or no_constraints(len(names))
        if self.mass is not None:
            known = known + total_mass_constraint(names, self.mass)
        return dataclasses.replace(self, mass=None, constraints=known)


def linear_equalities(rows: Float[np.ndarray, "e p"], values: Float[np.ndarray, " e"]) -> Constraints:
    """Constraints rows @ x = values on the parameters x.

    Args:
        rows: (e, p) coefficients of the parameters in each equation, in column order; or (p,) for a single equation.
        values: (e,) right-hand sides of the equations, in SI units.

    Raises:
        IdentificationError: shapes do not match, numbers are not finite, or a row is zero.
    """
    rows, values = np.atleast_2d(np.asarray(rows, float)), np.atleast_1d(np.asarray(values, float))
    return Constraints(rows, values, np.zeros((0, rows.shape[1])), np.zeros(0))


def linear_inequalities(rows: Float[np.ndarray, "i p"], values: Float[np.ndarray, " i"]) -> Constraints:
    """Constraints rows @ x >= values on the parameters x.

    Args:
        rows: (i, p) coefficients of the parameters in each inequality, in column order; or (p,) for a single
            inequality.
        values: (i,) right-hand sides of the inequalities, in SI units.

    Raises:
        IdentificationError: shapes do not match, numbers are not finite, or a row is zero.
    """
    rows, values = np.atleast_2d(np.asarray(rows, float)), np.atleast_1d(np.asarray(values, float))
    return Constraints(np.zeros((0, rows.shape[1])), np.zeros(0), rows, values)


def known_parameters(names: Sequence[str], values: Mapping[str, float]) -> Constraints:
    """Constraints that fix the values of known parameters, for example {"m7": 0.9, "Ia1": 0.31}.

    Args:
        names: names of all parameters (`Columns.names`).
        values: the known values, by parameter name, in SI units.

    Raises:
        IdentificationError: a name is unknown.
    """
    unknown = [name for name in values if name not in names]
    if unknown:
        raise IdentificationError(f"unknown parameter {unknown[0]!r}; the parameters are {', '.join(names)}")
    rows = np.zeros((len(values), len(names)))
    rows[np.arange(len(values)), [list(names).index(name) for name in values]] = 1
    return linear_equalities(rows, np.array(list(values.values()), float))


def total_mass_constraint(names: Sequence[str], mass: float) -> Constraints:
    """Constraint that fixes the total mass of all moving links, without the mass of a fixed base.

    Args:
        names: names of all parameters (`Columns.names`).
        mass: the total mass [kg].

    Raises:
        IdentificationError: the mass is not positive.
    """
    if not mass > 0:
        raise IdentificationError(f"the total mass is {mass:g} kg; it must be positive")
    return linear_equalities(_mass_rows(names).sum(0, keepdims=True), np.array([float(mass)]))


def mass_bounds(
    names: Sequence[str], least: Float[np.ndarray, " n"] | None = None, most: Float[np.ndarray, " n"] | None = None
) -> Constraints:
    """Bounds on the mass of each link, least <= m_i <= most.

    Args:
        names: names of all parameters (`Columns.names`).
        least: lower bounds [kg], with -inf for links without a lower bound; None means no lower bounds.
        most: upper bounds [kg], with inf for links without an upper bound; None means no upper bounds.

    Raises:
        IdentificationError: the number of bounds differs from the number of links, a bound is NaN, or a lower bound
            exceeds the upper bound.
    """
    rows = _mass_rows(names)
    blocks = [np.zeros((0, rows.shape[1]))]
    values = [np.zeros(0)]
    for bound, sign in ((least, 1.0), (most, -1.0)):
        if bound is not None:
            bound = np.asarray(bound, float)
            if bound.shape != (len(rows),) or np.isnan(bound).any():
                raise IdentificationError(
                    f"the mass bounds have shape {bound.shape}; they must have shape ({len(rows)},), one per link, and must "
                    "not contain NaN"
                )
            given = np.isfinite(bound)
            blocks.append(sign * rows[given])
            values.append(sign * bound[given])
    if least is not None and most is not None and np.any(np.asarray(least) > np.asarray(most)):
        link = int(np.argmax(np.asarray(least) > np.asarray(most)))
        raise IdentificationError(f"link {link + 1}: the lower bound on its mass exceeds the upper bound")
    return linear_inequalities(np.concatenate(blocks), np.concatenate(values))


def bounding_ellipsoid(
    names: Sequence[str],
    link: int,
    centre: Float[np.ndarray, "3"],
    semi_axes: Float[np.ndarray, "3"],
    rotation: Float[np.ndarray, "3 3"] | None = None,
) -> Constraints:
    """Constraint that a link's body lies within an ellipsoid, tr(J Q) >= 0 (Wensing, Kim & Slotine 2017).

    J is the pseudo-inertia of the link. The matrix Q is chosen so that tr(J Q) is the integral over the body's mass of
    1 - (x - c)^T E (x - c), with E = R diag(1 / semi_axes^2) R^T. The integral is linear in the link's ten parameters.
    It is non-negative for every mass distribution inside the ellipsoid. Conversely, if it is non-negative and J is
    positive definite, such a distribution exists.

    Args:
        names: names of all parameters (`Columns.names`).
        link: number of the link, counted from 1 as in the parameter names.
        centre: c, the centre in the link's frame [m].
        semi_axes: semi-axes of the ellipsoid [m].
        rotation: R, whose columns are the ellipsoid's axes in the link's frame; by default the identity.

    Raises:
        IdentificationError: the link does not exist, a shape is wrong, or a semi-axis is not positive.
    """
    n = len(_mass_rows(names))
    centre, semi_axes = np.asarray(centre, float), np.asarray(semi_axes, float)
    if not 1 <= link <= n:
        raise IdentificationError(f"there is no link {link}; links are numbered from 1 to {n}")
    if centre.shape != (3,) or semi_axes.shape != (3,) or not np.all(semi_axes > 0):
        raise IdentificationError(
            f"link {link}: an ellipsoid needs a centre of three coordinates and three positive semi-axes [m]"
        )
    r = np.eye(3) if rotation is None else np.asarray(rotation, float)
    e = r @ np.diag(semi_axes**-2.0) @ r.T
    # tr(J Q) = m (1 - c^T E c) + 2 h^T E c - tr(S E), where the second moment S follows from the inertia at the origin
    row = np.zeros(len(names))
    at = 10 * (link - 1)
    row[at] = 1 - centre @ e @ centre
    row[at + 1 : at + 4] = 2 * e @ centre
    half = 0.5 * np.trace(e)
    row[[at + 4, at + 6, at + 9]] = np.diag(e) - half
    row[[at + 5, at + 7, at + 8]] = 2 * e[0, 1], 2 * e[0, 2], 2 * e[1, 2]
    return linear_inequalities(row[None], np.zeros(1))


def no_constraints(p: int) -> Constraints:
    """Empty set of constraints on p parameters."""
    return Constraints(np.zeros((0, p)), np.zeros(0), np.zeros((0, p)), np.zeros(0))


def _mass_rows(names: Sequence[str]) -> np.ndarray:
    """Rows (n, p) that select the links' masses; a link's mass is the first of its ten inertial parameters."""
    links = 0
    while 10 * links < len(names) and names[10 * links] == f"m{links + 1}":
        links += 1
    rows = np.zeros((links, len(names)))
    rows[np.arange(links), 10 * np.arange(links)] = 1
    return rows

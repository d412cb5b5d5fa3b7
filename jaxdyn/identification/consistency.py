"""Prior knowledge as linear constraints on parameters, and minimisation of costs that are convex in inertial parameters."""

import dataclasses
import functools
import operator
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy import linalg

from ..errors import IdentificationError
from ..spatial.inertia import pseudo_inertia, pseudo_inertia_factor
from .defaults import DENSITIES


def entropic_divergence(pi: Float[Array, "10"], prior: Float[Array, "10"]) -> Float[Array, ""]:
    """Entropic (log-det Bregman) divergence D = tr(J0^-1 J) - log det(J0^-1 J) - 4.

    D grows without bound as a link becomes flat, thin or massless, which keeps estimates physically consistent. It is
    NaN if the pseudo-inertia J of the link, or J0 of the prior, is not positive definite. D depends only on relative changes
    of the parameters, so it is independent of units and frames. To second order in dJ = J - J0, it equals tr((J0^-1 dJ)^2) / 2.
    Source: Lee, Wensing & Park 2020.
    """
    u0, u = pseudo_inertia_factor(pseudo_inertia(prior)), pseudo_inertia_factor(pseudo_inertia(pi))
    m = jax.scipy.linalg.solve_triangular(u0, u, lower=False)
    return jnp.sum(m**2) - 2 * jnp.sum(jnp.log(jnp.diagonal(u) / jnp.diagonal(u0))) - 4


# -- constraints


@dataclasses.dataclass(frozen=True)
class Constraints:
    """Linear constraints equal @ x = equal_to and least @ x >= least_of on the parameters x.

    The parameters are in column order and in SI units. The sum `a + b` contains the constraints of both a and b.

    Attributes:
        equal: (e, p) coefficients of the parameters in each equation.
        equal_to: (e,) right-hand sides of the equations.
        least: (i, p) coefficients of the parameters in each inequality.
        least_of: (i,) right-hand sides of the inequalities.
        names: names of the p parameters, by which `identify` finds them among those of the selected terms; None if unknown.

    Raises:
        IdentificationError: shapes do not match, numbers are not finite, or a row is zero.
    """

    equal: Float[np.ndarray, "e p"]
    equal_to: Float[np.ndarray, " e"]
    least: Float[np.ndarray, "i p"]
    least_of: Float[np.ndarray, " i"]
    names: tuple[str, ...] | None = None

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
        if self.names and other.names and self.names != other.names:
            raise IdentificationError("constraints on different parameters cannot be combined")
        fields = ("equal", "equal_to", "least", "least_of")
        both = {field: np.concatenate([getattr(self, field), getattr(other, field)]) for field in fields}
        return Constraints(**both, names=self.names or other.names)

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


@dataclasses.dataclass(frozen=True, eq=False)
class Consistency:
    """Prior knowledge about the links, in addition to physical consistency.

    Attributes:
        mass: total mass of all moving links [kg], if known.
        constraints: constraints on the parameters (`known_parameters`, `linear_constraints`, `bounding_ellipsoid`).
        densities: lower and upper bounds on the density of a link [kg/m^3], defined as the density of the solid
            ellipsoid with the link's mass and inertia. If given, the size of each link is also bounded by an ellipsoid
            derived from the distances between joints (`link_bounds`). None means no bounds on size and density.
        prior_weight: weight of the chain's inertias relative to the log (`consistent_problem`).
    """

    mass: float | None = None
    constraints: Constraints | None = None
    densities: tuple[float, float] | None = DENSITIES
    prior_weight: float = 1.0

    def of(self, names: Sequence[str]) -> "Consistency":
        """Express the total mass as a constraint on the parameters; `names` are the names of all parameters."""
        known = self.constraints or no_constraints(len(names))
        if self.mass is not None:
            if not self.mass > 0:
                raise IdentificationError(f"the total mass is {self.mass:g} kg; it must be positive")
            known += linear_constraints(names, {f"m{i + 1}": 1.0 for i in range(_links(names))}, equal=self.mass)
        return dataclasses.replace(self, mass=None, constraints=known)


def linear_constraints(
    names: Sequence[str],
    terms: Mapping[str, float],
    *,
    equal: float | None = None,
    least: float | None = None,
    most: float | None = None,
) -> Constraints:
    """Constraint on a sum of parameters with coefficients, for example {"m1": 1.0, "m2": 1.0}: its value, or its bounds.

    Args:
        names: names of all parameters (`Columns.names`).
        terms: coefficients of the sum, by parameter name.
        equal: value of the sum, in SI units.
        least: lower bound of the sum.
        most: upper bound of the sum.

    Raises:
        IdentificationError: a name is unknown, no value or bound is given, or the lower bound exceeds the upper bound.
    """
    if unknown := [name for name in terms if name not in names]:
        raise IdentificationError(f"unknown parameter {unknown[0]!r}; the parameters are {', '.join(names)}")
    if equal is None and least is None and most is None:
        raise IdentificationError(f"specify equal, least or most of the sum of {', '.join(terms)}")
    if least is not None and most is not None and least > most:
        raise IdentificationError(f"the lower bound on {', '.join(terms)} exceeds the upper bound")
    row = np.zeros(len(names))
    row[[list(names).index(name) for name in terms]] = list(terms.values())
    stated = lambda sides: (
        np.array([sign * row for sign, side in sides if side is not None]).reshape(-1, len(row)),
        np.array([sign * side for sign, side in sides if side is not None], float),
    )
    return Constraints(*stated([(1.0, equal)]), *stated([(1.0, least), (-1.0, most)]), tuple(names))


def known_parameters(names: Sequence[str], values: Mapping[str, float]) -> Constraints:
    """Constraints that fix the values of known parameters, for example {"m7": 0.9, "Ia1": 0.31}, in SI units.

    Raises:
        IdentificationError: a name is unknown.
    """
    fixed = (linear_constraints(names, {name: 1.0}, equal=value) for name, value in values.items())
    return functools.reduce(operator.add, fixed, no_constraints(len(names)))


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
    n = _links(names)
    centre, semi_axes = np.asarray(centre, float), np.asarray(semi_axes, float)
    if not 1 <= link <= n:
        raise IdentificationError(f"there is no link {link}; links are numbered from 1 to {n}")
    if centre.shape != (3,) or semi_axes.shape != (3,) or not np.all(semi_axes > 0):
        raise IdentificationError(
            f"link {link}: an ellipsoid needs a centre of three coordinates and three positive semi-axes [m]"
        )
    row = ellipsoid_row(len(names), link - 1, centre, semi_axes, np.eye(3) if rotation is None else rotation)
    return dataclasses.replace(inequalities(row[None], np.zeros(1)), names=tuple(names))


def ellipsoid_row(p: int, link: int, centre: np.ndarray, axes: np.ndarray, turn: np.ndarray) -> Float[np.ndarray, " p"]:
    """The coefficients of tr(J Q) of `bounding_ellipsoid`; `link` counts from 0."""
    e = turn @ np.diag(axes**-2.0) @ turn.T
    # tr(J Q) = m (1 - c^T E c) + 2 h^T E c - tr(S E), where the second moment S follows from the inertia at the origin
    row, at = np.zeros(p), 10 * link
    row[at] = 1 - centre @ e @ centre
    row[at + 1 : at + 4] = 2 * e @ centre
    half = 0.5 * np.trace(e)
    row[[at + 4, at + 6, at + 9]] = np.diag(e) - half
    row[[at + 5, at + 7, at + 8]] = 2 * e[0, 1], 2 * e[0, 2], 2 * e[1, 2]
    return row


def inequalities(rows: Float[np.ndarray, "i p"], sides: Float[np.ndarray, " i"]) -> Constraints:
    """Constraints rows @ x >= sides."""
    return dataclasses.replace(no_constraints(rows.shape[1]), least=rows, least_of=sides)


def no_constraints(p: int) -> Constraints:
    """Empty set of constraints on p parameters."""
    return Constraints(np.zeros((0, p)), np.zeros(0), np.zeros((0, p)), np.zeros(0))


def _links(names: Sequence[str]) -> int:
    """Number of links, of which the first of the ten inertial parameters is the mass m1, m2, ..."""
    return next(n for n in range(len(names) + 1) if list(names[10 * n : 10 * n + 1]) != [f"m{n + 1}"])


# -- gauss newton

RIDGE = 1e-4  # regularisation of undetermined drive terms, relative to a column's information
REACH = 0.95  # longest step, as a fraction of the distance to the boundary of consistency
TAKEN = 1e-3  # smallest ratio of actual to predicted decrease at which a step is accepted

UNITS = np.stack([pseudo_inertia(unit) for unit in np.eye(10)])  # pseudo-inertia of each parameter alone
# map from the entries (0, 0), (0, 1), ... of the pseudo-inertia to the ten parameters
LINEAR = np.zeros((10, 4, 4))
LINEAR[0, 3, 3] = LINEAR[1, 0, 3] = LINEAR[2, 1, 3] = LINEAR[3, 2, 3] = 1
LINEAR[[4, 4, 6, 6, 9, 9], [1, 2, 0, 2, 0, 1], [1, 2, 0, 2, 0, 1]] = 1
LINEAR[[5, 7, 8], [0, 0, 1], [1, 2, 2]] = -1
# derivative of the factor with respect to each log-Cholesky parameter at zero, where the factor is the identity
_GENERATORS = np.zeros((10, 4, 4))
_GENERATORS[0] = np.eye(4)
_GENERATORS[[1, 2, 3, 4, 5, 6, 7, 8, 9], [0, 1, 2, 0, 1, 0, 0, 1, 2], [0, 1, 2, 1, 2, 2, 3, 3, 3]] = 1
_ALONG = _GENERATORS + _GENERATORS.transpose(0, 2, 1)  # the corresponding derivatives of the pseudo-inertia
_METRIC = np.einsum("kij,lji->kl", _ALONG, _ALONG)  # Hessian of -log det at zero


@dataclasses.dataclass(frozen=True)
class ConsistentProblem:
    """Matrices and vectors that define a physically consistent estimation problem.

    Attributes:
        matrix: (b, p) the matrix A, weighted so that the noise of every row has unit variance.
        values: (b,) the right-hand side y, with the same weights.
        floor: irreducible part of the cost: half the sum of squared weighted residuals of the unconstrained estimate.
        prior: (p,) prior values of the full parameters, with strictly consistent inertias, in SI units.
        start: (p,) full parameters nearest to the prior that reproduce the unconstrained fit; used for the drive terms.
        links: number of links; the first 10 * links columns are inertial.
        positive: (p,) mask of the non-inertial columns whose parameters must be non-negative.
        constraints: constraints from prior knowledge.
        weight: weight of the divergence from the prior.
        stand_ins: links (counted from 0) whose prior is a stand-in, because the model has no inertia for them. The
            estimate is nearest to it as well, but it is no information: it does not reduce the covariance.
    """

    matrix: Float[np.ndarray, "b p"]
    values: Float[np.ndarray, " b"]
    floor: float
    prior: Float[np.ndarray, " p"]
    start: Float[np.ndarray, " p"]
    links: int
    positive: Bool[np.ndarray, " p"]
    constraints: Constraints
    weight: float = 1.0
    stand_ins: tuple[int, ...] = ()

    @functools.cached_property
    def ridge(self) -> Float[np.ndarray, " p"]:
        """Weights (p,) of the quadratic penalty on drive terms, small enough to affect only undetermined terms."""
        information = (self.matrix**2).sum(0)
        ridge = RIDGE**2 * np.where(information > 0, information, 1.0)
        ridge[: 10 * self.links] = 0
        return ridge

    def misfit(self, x: Float[np.ndarray, " p"]) -> float:
        """Half the sum of squared weighted torque residuals, |A x - y|^2 / 2 + floor."""
        return self.floor + 0.5 * float(((self.matrix @ x - self.values) ** 2).sum())

    def cost(self, x: Float[np.ndarray, " p"]) -> float:
        """Total cost of x, whose links are consistent: misfit, weighted divergence from the prior, and regularisation."""
        apart = divergence(prior_factors(self.prior, self.links), prior_factors(x, self.links))
        return self.misfit(x) + self.weight * apart + 0.5 * float((self.ridge * (x - self.prior) ** 2).sum())


@dataclasses.dataclass(frozen=True)
class Point:
    """Iterate of the optimisation: the inertias of physically consistent links, and the non-inertial parameters.

    Attributes:
        u: (n, 4, 4) upper triangular factors of the links' pseudo-inertias, J = U U^T.
        rest: (m,) the non-inertial parameters.
    """

    u: Float[np.ndarray, "n 4 4"]
    rest: Float[np.ndarray, " m"]

    @property
    def parameters(self) -> Float[np.ndarray, " p"]:
        """All parameters (p,), p = 10 n + m."""
        pi = np.einsum("kij,nij->nk", LINEAR, self.u @ self.u.transpose(0, 2, 1))
        return np.concatenate([pi.ravel(), self.rest])

    def jacobian(self, scale: Float[np.ndarray, " m"]) -> Float[np.ndarray, "p p"]:
        """Derivative of the parameters with respect to local coordinates.

        The coordinates are log-Cholesky parameters of the links, and the non-inertial parameters divided by `scale`.
        """
        n, m = len(self.u), len(self.rest)
        jacobian = np.zeros((10 * n + m, 10 * n + m))
        along = np.einsum("nia,kab,njb->nkij", self.u, _ALONG, self.u, optimize=True)
        for i, block in enumerate(np.einsum("lij,nkij->nlk", LINEAR, along, optimize=True)):
            jacobian[10 * i : 10 * i + 10, 10 * i : 10 * i + 10] = block
        jacobian[10 * n :, 10 * n :] = np.diag(scale)
        return jacobian


@dataclasses.dataclass(frozen=True)
class Cost:
    """Cost function and its quadratic model at a point.

    To the cost of a `problem`, the penalties of its constraints and barrier * entropy are added.

    Attributes:
        problem: the problem.
        u0: (n, 4, 4) factors of the prior's pseudo-inertias.
        centre: (m,) values of the positive parameters at which their entropy is smallest.
        spread: (m,) scales of the non-inertial parameters that may have either sign.
        barrier: weight of the entropy, sum_i D_entropic(pi_i, prior_i) + sum_k (r_k - log r_k - 1), where r_k is the
            ratio of a positive parameter to its `centre`.
        rows: (c, p) rows of the constraints rows @ x = sides or, for inequalities, rows @ x >= sides.
        sides: (c,) right-hand sides of the constraints.
        least: (c,) mask of the inequalities.
        multipliers: (c,) Lagrange multipliers.
        stiffness: penalty weight of the constraints.
    """

    problem: ConsistentProblem
    u0: Float[np.ndarray, "n 4 4"]
    centre: Float[np.ndarray, " m"]
    spread: Float[np.ndarray, " m"]
    barrier: float
    rows: Float[np.ndarray, "c p"]
    sides: Float[np.ndarray, " c"]
    least: Bool[np.ndarray, " c"]
    multipliers: Float[np.ndarray, " c"]
    stiffness: float

    @property
    def positive(self) -> Bool[np.ndarray, " m"]:
        """Mask of the non-inertial parameters that must be positive."""
        return self.problem.positive[10 * len(self.u0) :]

    def force(self, x: np.ndarray) -> np.ndarray:
        """Updated Lagrange multipliers (c,) of the constraints at the parameters x."""
        force = self.multipliers + self.stiffness * (self.rows @ x - self.sides)
        return np.where(self.least, np.minimum(force, 0.0), force)

    def __call__(self, point: Point) -> float:
        """The cost; NaN or infinity outside the feasible set."""
        p, x = self.problem, point.parameters
        if not np.all(np.abs(x) < 1e100):
            return np.nan
        entropy, ratio = divergence(self.u0, point.u), np.where(self.positive, point.rest / self.centre, 1.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            others = (ratio - np.log(ratio) - 1).sum()
        return float(
            0.5 * ((p.matrix @ x - p.values) ** 2).sum()
            + p.weight * entropy
            + 0.5 * (p.ridge * (x - p.prior) ** 2).sum()
            + self.barrier * (entropy + others)
            + 0.5 * (self.force(x) ** 2).sum() / self.stiffness
        )

    def scale(self, point: Point) -> np.ndarray:
        """Scales (m,) of the non-inertial parameters: their values at `point` if they must be positive, otherwise `spread`."""
        return np.where(self.positive, point.rest, self.spread)

    def model(self, point: Point) -> tuple[np.ndarray, np.ndarray]:
        """Gradient and Gauss-Newton matrix J^T H J of the cost in local coordinates (`Point.jacobian`).

        J is the Jacobian of the parameters x, and H the Hessian of the cost with respect to x. The neglected term, the
        curvature of the parametrisation times the gradient with respect to x, vanishes at the optimum.
        """
        p, x, inner = self.problem, point.parameters, 10 * len(self.u0)
        jacobian, weight = point.jacobian(self.scale(point)), self.barrier + p.weight
        force = self.force(x)
        active = (~self.least | (force < 0)).astype(float)
        gradient = p.matrix.T @ (p.matrix @ x - p.values) + p.ridge * (x - p.prior) + self.rows.T @ force
        curved = [p.matrix, self.rows * np.sqrt(self.stiffness * active)[:, None], np.diag(np.sqrt(p.ridge))]
        g = jacobian.T @ gradient
        g[:inner] += weight * divergence_slope(self.u0, point.u)
        g[inner:] += self.barrier * np.where(self.positive, point.rest / self.centre - 1, 0.0)
        half = np.concatenate(curved) @ jacobian
        return g, half.T @ half + self.metric(weight)

    def metric(self, weight: float) -> np.ndarray:
        """Hessian of the entropy in local coordinates, which is the same at every point; `weight` scales the links' part."""
        others = np.diag(np.where(self.positive, self.barrier, 0.0))
        return np.asarray(linalg.block_diag(weight * divergence_metric(len(self.u0)), others))


def move(cost: Cost, point: Point, step: np.ndarray) -> Point:
    """Point after a step in local coordinates: U <- U M(step) for links, x <- x exp(step) for positive parameters."""
    inner = 10 * len(point.u)
    theta = step[:inner].reshape(-1, 10)
    with np.errstate(over="ignore", invalid="ignore"):
        factors = np.einsum("nk,kij->nij", theta[:, 4:], _GENERATORS[4:])  # as in `log_cholesky_factor`
        factors[:, [0, 1, 2], [0, 1, 2]], factors[:, 3, 3] = np.exp(theta[:, 1:4]), 1.0
        factors *= np.exp(theta[:, 0])[:, None, None]
        rest = np.where(
            cost.positive,
            point.rest * np.exp(np.where(cost.positive, step[inner:], 0)),
            point.rest + cost.spread * step[inner:],
        )
        return Point(point.u @ factors, rest)


def move_straight(cost: Cost, point: Point, step: np.ndarray) -> Point:
    """Point after the parameter change jacobian @ step, which is shortened to keep all links strictly consistent."""
    inner, n = 10 * len(point.u), len(point.u)
    change = np.einsum("nk,kij->nij", step[:inner].reshape(n, 10), _ALONG)
    least = min(
        np.linalg.eigvalsh(change).min(initial=0.0), np.where(cost.positive, step[inner:], 0.0).min(initial=0.0)
    )
    share = min(1.0, REACH / max(-least, 1e-300))
    return Point(
        point.u @ upper_factor(np.eye(4) + share * change), point.rest + share * cost.scale(point) * step[inner:]
    )


def minimise(cost: Cost, point: Point, tolerance: float, limit: int) -> tuple[Point, int, bool]:
    """Take at most `limit` Levenberg-Marquardt steps, until the predicted decrease of the cost is below the tolerance.

    Each step is tried in two ways: directly in the parameters, where the quadratic model of the misfit is exact, and in
    log-Cholesky parameters, which never reach the boundary of consistency. The candidate with the lower cost is used.

    The damping term uses the metric of the entropy, in which the boundary is at least one unit away. The damping factor
    changes as in Nielsen 1999. Returns the point, the number of steps tried, and whether the tolerance was met.
    """
    size = 10 * len(point.u) + len(point.rest)
    metric = dataclasses.replace(cost, barrier=1.0).metric(1.0)
    metric[range(10 * len(point.u), size), range(10 * len(point.u), size)] = 1
    value, (g, h) = cost(point), cost.model(point)
    damping, growth = 0.0, 2.0
    least = 1e-6 * float((np.diag(h) / np.diag(metric)).max())
    for steps in range(limit):
        newton = -_solve(h, g)
        if -0.5 * float(g @ newton) <= tolerance:
            return point, steps, True
        step = newton if damping == 0 else -_solve(h + damping * metric, g)
        expected = -float(g @ step + 0.5 * step @ h @ step)
        new, new_value = point, np.inf
        for kind in (move_straight, move):
            if np.all(np.isfinite(step)) and (moved := cost(other := kind(cost, point, step))) < new_value:
                new, new_value = other, moved
        slack = 1e-15 * abs(value)
        ratio = (value - new_value + slack) / (expected + slack)
        if np.isfinite(ratio) and ratio > TAKEN:
            point, value = new, new_value
            g, h = cost.model(point)
            damping, growth = damping * max(0.1, 1 - (2 * ratio - 1) ** 3), 2.0
        else:
            damping, growth = max(damping, least) * growth, 2 * growth
    return point, limit, False


def _solve(h: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Solve h x = g for a positive definite h, with diagonal scaling because h may be badly scaled."""
    size = np.sqrt(np.diag(h))
    scaled = h / size[:, None] / size
    return np.linalg.solve(scaled + 1e-15 * np.eye(len(g)), g / size) / size


def upper_factor(j: Float[np.ndarray, "n 4 4"]) -> Float[np.ndarray, "n 4 4"]:
    """Upper triangular factors U of positive definite matrices U U^T."""
    return np.linalg.cholesky(j[:, ::-1, ::-1])[:, ::-1, ::-1]


def prior_factors(prior: Float[np.ndarray, " p"], n: int) -> Float[np.ndarray, "n 4 4"]:
    """Upper triangular factors of the pseudo-inertias of n links, from full parameters."""
    return upper_factor(np.einsum("nk,kij->nij", np.asarray(prior, float)[: 10 * n].reshape(n, 10), UNITS))


def divergence(u0: Float[np.ndarray, "n 4 4"], u: Float[np.ndarray, "n 4 4"]) -> float:
    """Sum of the entropic divergence of links with the factors u from links with the factors u0."""
    white = np.linalg.solve(u0, u)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        return float((white**2).sum() - 2 * np.log(np.diagonal(white, axis1=1, axis2=2)).sum() - 4 * len(u))


def divergence_slope(u0: Float[np.ndarray, "n 4 4"], u: Float[np.ndarray, "n 4 4"]) -> Float[np.ndarray, " m"]:
    """Gradient of `divergence` in local coordinates (`Point.jacobian`); its Hessian is `divergence_metric`."""
    white = np.linalg.solve(u0, u)
    slope = np.einsum("nij,kij->nk", white.transpose(0, 2, 1) @ white, _ALONG)
    return (slope - np.trace(_ALONG, axis1=1, axis2=2)).ravel()


def divergence_metric(n: int) -> Float[np.ndarray, "m m"]:
    """Hessian of `divergence` for n links in local coordinates, which is the same at every point."""
    return np.kron(np.eye(n), _METRIC)

"""Physically consistent estimation: least squares over physically consistent links, in log-Cholesky parameters.

minimise over x = (pi_1 .. pi_n, drive terms):  |A x - y|^2 / 2 + weight * sum_i D(pi_i, prior_i)
subject to J(pi_i) positive definite, non-negative armature and friction, and prior knowledge (`Constraints`).

A and y are triangular factors of the whole weighted log, so the cost of a step does not depend on the length of the
log. The problem is convex in x. Log-Cholesky parameters map one to one to the interior of its cone, so a stationary
point of the unconstrained problem in them is the unique optimum; the tests confirm it with a semidefinite program.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ...errors import IdentificationError, ModelError
from ...spatial.pseudo_inertia import check_consistent
from .._estimators.estimate import Estimate
from .._regression.base_parameters import BaseParameters, stacked
from .._regression.columns import Columns
from .._regression.factors import QRFactors
from .constraints import Constraints, no_constraints
from .gauss_newton import Cost, Point, minimise, prior_factors
from .priors import Divergence, entropic_divergence

POSITIVE_TERMS = frozenset({"armature", "viscous", "coulomb"})
PRECISION = 1e-4  # lower bound on the noise, as a share of the RMS torque
GAP = 1e-8  # tolerance of the cost above its infimum, as a share of the cost
RIDGE = 1e-4  # regularisation of drive terms that no torque depends on, times a column's information
STEPS = 100  # with one barrier, at most
FALL = 0.1  # of the barrier from one round to the next
ROUNDS = 25  # of barriers and multipliers, at most
TIGHT = 1e-9  # what remains of a violated constraint, relative to the size of its terms


@dataclasses.dataclass(frozen=True)
class ConsistentProblem:
    """Matrices and vectors of an estimation problem with physical consistency, as all solvers take it.

    Attributes:
        matrix: (b, p) A, weighted so that the noise of every row has variance one.
        values: (b,) y.
        floor: the irreducible part of the cost: the weighted residual of the unconstrained estimate.
        prior: (p,) full parameters of the prior; its inertias are strictly consistent.
        start: (p,) full parameters to start the drive terms from.
        links: number of links; the first 10 links columns are inertial.
        positive: (p,) other columns with non-negative parameters.
        constraints: prior knowledge.
        weight: weight of the divergence from the prior.
        divergence: between a link's ten parameters and the prior's.
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
    divergence: Divergence = entropic_divergence

    @property
    def ridge(self) -> Float[np.ndarray, " p"]:
        """(p,) weights of |x - prior|^2 / 2 on drive terms, so small that they only affect undetermined ones."""
        information = (self.matrix**2).sum(0)
        ridge = RIDGE**2 * np.where(information > 0, information, 1.0)
        ridge[: 10 * self.links] = 0
        return ridge

    def misfit(self, x: Float[np.ndarray, " p"]) -> float:
        """|A x - y|^2 / 2 + floor: half the sum of squared weighted torque residuals."""
        return self.floor + 0.5 * float(((self.matrix @ x - self.values) ** 2).sum())

    def cost(self, x: Float[np.ndarray, " p"]) -> float:
        """Misfit and prior."""
        n = 10 * self.links
        with jax.enable_x64(True):
            pi, prior = (jnp.asarray(v[:n].reshape(-1, 10)) for v in (x, self.prior))
            divergence = float(_divergences(self.divergence, pi, prior).sum()) if self.links else 0.0
        ridge = 0.5 * float((self.ridge * (x - self.prior) ** 2).sum())
        return self.misfit(x) + self.weight * divergence + ridge


@functools.partial(jax.jit, static_argnums=0)
def _divergences(divergence: Divergence, pi: Array, prior: Array) -> Array:
    return jax.vmap(divergence)(pi, prior)


@dataclasses.dataclass(frozen=True)
class ConsistentEstimate:
    """A full set of physically consistent parameters.

    Attributes:
        parameters: (p,) in column order.
        values: (b,) its base parameters.
        covariance: (b, b) of the base parameters: the inverse Hessian of the cost, prior and constraints included,
            which does not exceed that of the unconstrained estimate; for independent residuals, unless
            `with_covariance_of` was called.
        cost: misfit and prior.
        misfit: half the sum of squared residuals in standard deviations of the joint's noise.
        least_misfit: that of the unconstrained estimate; the difference is the cost of consistency.
        steps: Newton steps tried.
        converged: the optimum was reached; otherwise the parameters are consistent, but may fit better.
    """

    parameters: Float[np.ndarray, " p"]
    values: Float[np.ndarray, " b"]
    covariance: Float[np.ndarray, "b b"]
    cost: float
    misfit: float
    least_misfit: float
    steps: int
    converged: bool

    def with_covariance_of(self, estimate: Estimate) -> "ConsistentEstimate":
        """The estimate with the excess of the unconstrained covariance over that of independent residuals added.

        The consistent values follow the unconstrained ones by T = C C_0^-1, C the inverse Hessian and C_0 the covariance of
        independent residuals; T (C_u - C_0) T^T is added, C_u being the unconstrained estimate's.
        """
        independent = estimate.independent_covariance
        scale = np.sqrt(np.diag(independent))
        if not np.all(scale > 0):
            return self
        units = np.outer(scale, scale)
        follow = self.covariance @ (np.linalg.pinv(independent / units, hermitian=True) / units)
        beyond = follow @ (estimate.covariance - independent) @ follow.T
        return dataclasses.replace(self, covariance=self.covariance + beyond)

    @property
    def standard_deviations(self) -> Float[np.ndarray, " b"]:
        """(b,) standard deviations of the base parameters."""
        return np.sqrt(np.diag(self.covariance))


def positive_columns(columns: Columns, n: int) -> Bool[np.ndarray, " p"]:
    """Mask of non-negative parameters besides the inertias: armature, viscous and Coulomb friction."""
    p = len(columns.names(n))
    positive = np.zeros(p, bool)
    drive = [term in POSITIVE_TERMS for term in columns.drive_terms]
    positive[10 * n : 10 * n + n * len(drive)] = np.tile(drive, n)
    extra = [e.positive for e in columns.extra for _ in e.names]
    positive[p - len(extra) :] = extra
    return positive


def consistent_problem(
    factors: QRFactors,
    base: BaseParameters,
    estimate: Estimate,
    columns: Columns,
    prior: Float[np.ndarray, " p"],
    *,
    independence: float = 1.0,
    weight: float = 1.0,
    divergence: Divergence = entropic_divergence,
    constraints: Constraints | None = None,
    known: Float[np.ndarray, "k w"] | None = None,
) -> ConsistentProblem:
    """The consistent estimation problem for an unconstrained estimate, with its weight for each joint.

    The unit of the cost is the noise: a residual of one standard deviation in one independent sample costs 1/2. A
    prior of weight 1 is then worth four samples that each determine a link's mass to within 100 %, since D = 2
    (dm/m)^2: negligible where the log is informative, sufficient where it is not.

    Args:
        factors: factors of the log.
        base: the base parameters.
        estimate: unconstrained, by `weighted_least_squares` on the same factors.
        columns: the identified columns.
        prior: full parameters, strictly consistent.
        independence: share of the samples that count as independent.
        weight: of the prior.
        divergence: `entropic_divergence`, `pullback_divergence`, `euclidean_divergence`, or a user-defined function,
            convex in pi.
        constraints: prior knowledge.
        known: rows [P, y] of what is known besides, P parameters = y +- 1 in standard deviations (`Known.stated`).

    Raises:
        IdentificationError: an inconsistent prior, or invalid constraints or weight.
    """
    links = _links(columns, base, prior)
    size = np.sqrt((factors.r[:, :, -1] ** 2).sum(1) / np.maximum(factors.counts, 1))
    noise = np.maximum(estimate.noise, np.maximum(PRECISION * size, np.finfo(float).tiny))
    noise = np.where(size > 0, noise, np.maximum(estimate.noise, 1.0))
    r = stacked(factors, np.sqrt(independence) / noise)
    r = r if known is None else np.concatenate([r, known])
    q, upper = np.linalg.qr(r[:, base.kept])
    values = q.T @ r[:, -1]
    floor = 0.5 * max(float(r[:, -1] @ r[:, -1] - values @ values), 0.0)
    start = np.linalg.lstsq(base.matrix, estimate.values - base.matrix @ prior, rcond=None)[0] + prior
    return _checked(
        ConsistentProblem(
            matrix=upper @ base.matrix,
            values=values,
            floor=floor,
            prior=np.asarray(prior, float),
            start=start,
            links=links,
            positive=positive_columns(columns, links) & base.matrix.any(axis=0),
            constraints=constraints or no_constraints(len(prior)),
            weight=float(weight),
            divergence=divergence,
        )
    )


def consistent_least_squares(problem: ConsistentProblem, base: BaseParameters) -> ConsistentEstimate:
    """The optimum on log-Cholesky parameters, by damped Gauss-Newton steps with exact Jacobians.

    Every step is taken in log-Cholesky parameters about the current iterate, so that all have the same scale
    (`minimise`); non-negative drive terms are exponentials. The misfit is a sum of squares, linear in x; divergences
    enter with their exact Hessians. If the optimum lies on the boundary of consistency, log-Cholesky parameters go to
    infinity and steps near the boundary become tiny. A barrier, the entropic divergence, is therefore added, and its
    weight reduced tenfold per round until it raises the cost by 1e-8 at most (a barrier of weight e raises the
    minimum of a convex cost by at most e times the number of logarithms). Constraints hold by multipliers (augmented
    Lagrangian), to 1e-9 of their terms. O(p^3) per step for p parameters, independent of the length of the log; some 10
    to 50 steps.

    Raises:
        IdentificationError: the constraints cannot be met.
    """
    with jax.enable_x64(True):
        return _solve(problem, base)


def feasible_parameters(
    base: BaseParameters,
    values: Float[np.ndarray, " b"],
    columns: Columns,
    prior: Float[np.ndarray, " p"],
    *,
    deviations: Float[np.ndarray, " b"] | None = None,
    divergence: Divergence = entropic_divergence,
    constraints: Constraints | None = None,
) -> ConsistentEstimate:
    """The consistent full set nearest the prior with given base parameters, or with the smallest deviation from them.

    Deviations are measured in units of `deviations`, and `misfit` is half the sum of their squares: below 1e-6, such a
    set exists.

    Args:
        base: the base parameters.
        values: values of the base parameters.
        columns: columns of the full parameters.
        prior: full parameters, strictly consistent.
        deviations: unit of deviation, one per base parameter; 1e-6 of the value, and at least 1e-9 of the largest, if
            None.
        divergence: the measure of distance.
        constraints: prior knowledge.

    Raises:
        IdentificationError: an inconsistent prior, or a wrong shape.
    """
    values = np.asarray(values, float)
    if values.shape != (base.size,):
        raise IdentificationError(f"{values.shape} values are given for {base.size} base parameters")
    if deviations is None:
        deviations = np.maximum(1e-6 * np.abs(values), 1e-9 * max(np.abs(values).max(), 1e-3))
    scale = 1 / np.asarray(deviations, float)
    links = _links(columns, base, prior)
    problem = ConsistentProblem(
        matrix=scale[:, None] * base.matrix,
        values=scale * values,
        floor=0.0,
        prior=np.asarray(prior, float),
        start=np.linalg.lstsq(base.matrix, values - base.matrix @ prior, rcond=None)[0] + prior,
        links=links,
        positive=positive_columns(columns, links),
        constraints=constraints or no_constraints(len(prior)),
        divergence=divergence,
    )
    return consistent_least_squares(_checked(problem), base)


def _links(columns: Columns, base: BaseParameters, prior: np.ndarray) -> int:
    """Number of links, from the number of columns."""
    p = base.matrix.shape[1]
    if np.shape(prior) != (p,):
        raise IdentificationError(f"the prior has shape {np.shape(prior)}; the base parameters are of {p} parameters")
    for n in range(p + 1):
        if len(columns.names(n)) == p:
            return n
    raise IdentificationError(f"the columns are not those of the base parameters, which are of {p} parameters")


def _checked(problem: ConsistentProblem) -> ConsistentProblem:
    if not (np.isfinite(problem.weight) and problem.weight > 0):
        raise IdentificationError(
            f"the prior's weight is {problem.weight:g}; it must be positive, or the estimate is not unique"
        )
    p = len(problem.prior)
    if problem.constraints.equal.shape[1] != p:
        raise IdentificationError(f"constraints are of {problem.constraints.equal.shape[1]} parameters, not of {p}")
    if np.any(problem.positive[: 10 * problem.links]):
        raise IdentificationError(
            "only drive terms and extra columns can be marked positive; inertias are by themselves"
        )
    for i, pi in enumerate(problem.prior[: 10 * problem.links].reshape(-1, 10)):
        try:
            check_consistent(str(i + 1), pi)
        except ModelError as error:
            raise IdentificationError(f"the prior is not physically consistent: {error}") from None
    return problem


def _solve(problem: ConsistentProblem, base: BaseParameters) -> ConsistentEstimate:
    cost, point = _first(problem)
    links, positive = problem.links, int(cost.positive.sum())
    final = GAP * cost.barrier / (4 * links + positive + 1)
    # gradient floor from rounding of the torques' sum of squares, if the prior alone decides
    rounding = (1e-14 * float(problem.values @ problem.values)) ** 2 / problem.weight
    steps, violation, rounds = 0, np.inf, 0
    while True:
        last = cost.barrier <= final
        point, tried, converged = minimise(cost, point, max(0.1 * final, rounding) if last else cost.barrier, STEPS)
        steps, rounds = steps + tried, rounds + 1
        x = point.parameters
        force, off = cost.force(x), cost.rows @ x - cost.sides
        miss = np.abs(np.where(cost.least, np.minimum(off, -cost.multipliers / cost.stiffness), off)).max(initial=0.0)
        if last and (miss < TIGHT or rounds > ROUNDS):
            break
        stiffness = cost.stiffness * (10 if miss > 0.1 * violation else 1)
        barrier = max(final, cost.barrier * FALL)
        cost = dataclasses.replace(cost, barrier=barrier, multipliers=force, stiffness=stiffness)
        violation = miss
    if miss >= TIGHT:
        raise IdentificationError(
            f"no consistent parameters meet the constraints: they still miss by {miss:.2g} of their terms; they may "
            "contradict each other, or require physically inconsistent links"
        )
    along = base.matrix @ point.jacobian(cost.scale(point))
    covariance = along @ np.linalg.solve(cost.model(point)[1], along.T)
    return ConsistentEstimate(
        parameters=x,
        values=base.matrix @ x,
        covariance=0.5 * (covariance + covariance.T),
        cost=problem.cost(x),
        misfit=problem.misfit(x),
        least_misfit=problem.floor,
        steps=steps,
        converged=converged,
    )


def _first(problem: ConsistentProblem) -> tuple[Cost, Point]:
    """The cost with its first, largest barrier, and the start: the prior's links."""
    inner = 10 * problem.links
    information = np.sqrt((problem.matrix**2).sum(0))
    spread = np.where(information > 0, 1 / np.where(information > 0, information, 1), 1.0)
    positive = problem.positive[inner:]
    rest = np.where(positive, np.maximum(problem.start[inner:], spread[inner:]), problem.start[inner:])
    u0 = prior_factors(problem.prior, problem.links)
    known = problem.constraints
    rows, sides = np.concatenate([known.equal, known.least]), np.concatenate([known.equal_to, known.least_of])
    size = np.maximum(np.abs(rows) @ np.abs(problem.start) + np.abs(sides), 1e-300)
    unit = max(problem.floor, 0.5 * len(problem.values))
    cost = Cost(
        matrix=problem.matrix,
        values=problem.values,
        prior=problem.prior,
        u0=u0,
        ridge=problem.ridge,
        weight=problem.weight,
        divergence=problem.divergence,
        positive=positive,
        centre=np.where(positive, rest, 1.0),
        spread=spread[inner:],
        barrier=unit,
        rows=rows / size[:, None],
        sides=sides / size,
        least=np.arange(len(sides)) >= len(known.equal_to),
        multipliers=np.zeros(len(sides)),
        stiffness=10 * unit,
    )
    return cost, Point(u0, rest)

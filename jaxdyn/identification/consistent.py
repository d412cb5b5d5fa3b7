"""Physically consistent estimation: constrained least squares in log-Cholesky parameters.

The estimate x = (pi_1, ..., pi_n, drive terms) minimises |A x - y|^2 / 2 + weight * sum_i D(pi_i, prior_i), where D is
the entropic divergence from the prior. The pseudo-inertias J(pi_i) must be positive definite, armature and friction must be
non-negative, and prior knowledge may add further constraints (`Constraints`).

A and y are computed from triangular factors of the complete weighted log, so the cost of a step does not depend on the
length of the log. The problem is convex in x. Log-Cholesky parameters map one-to-one onto the interior of the feasible
cone, so a stationary point of the unconstrained problem in these parameters is the unique optimum. The tests confirm
this by comparison with a semidefinite program."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import linalg

from ..errors import IdentificationError, ModelError
from ..model.chain import Chain, with_bodies
from ..spatial.inertia import check_consistent, pseudo_inertia
from .base import BaseParameters
from .columns import Columns
from .consistency import (
    UNITS,
    ConsistentProblem,
    Constraints,
    Cost,
    Point,
    divergence_metric,
    divergence_slope,
    ellipsoid_row,
    inequalities,
    minimise,
    no_constraints,
    prior_factors,
)
from .defaults import AROUND, DENSITIES, LEAST_REACH, ROOM
from .least_squares import Estimate

POSITIVE_TERMS = frozenset({"armature", "viscous", "coulomb"})
GAP = 1e-8  # largest excess of the cost over its infimum, as a fraction of the cost
STEPS = 100  # maximum number of steps per round
FALL = 0.1  # factor by which the barrier weight changes from one round to the next
ROUNDS = 25  # maximum number of rounds, each with its own barrier weight and multipliers
NO_INFORMATION = 1e-6  # weight in the covariance of what is no information; positive, so that the inverse exists
TIGHT = 1e-9  # tolerance of constraints, relative to the size of their terms


@dataclasses.dataclass(frozen=True)
class ConsistentEstimate:
    """Physically consistent full parameters, estimated from data.

    Attributes:
        parameters: (p,) full parameters in column order, in SI units.
        values: (b,) base parameters.
        covariance: (b, b) covariance of the base parameters for independent residuals: the inverse of the Hessian of the
            misfit and the divergence from the prior, under the equations among the constraints, plus the square of `pull`.
            Inequalities do not reduce it, not even active ones, because noise may have activated them; they limit
            intervals through `bounds`. For correlated residuals, use `with_covariance_of`.
        pull: (b,) change of the values, to first order, due to links that are heavier than their prior, which draws them
            towards itself.
        bounds: (p, 2) lower and upper bound of each full parameter; infinite if it has none of its own.
        cost: misfit plus the cost of deviations from the prior.
        misfit: half the sum of squared weighted residuals.
        least_misfit: misfit of the unconstrained estimate; `misfit` minus this value is the cost of consistency.
        steps: number of Gauss-Newton steps tried.
        converged: True if the optimum was reached; otherwise the parameters are consistent, but a better fit may exist.
    """

    parameters: Float[np.ndarray, " p"]
    values: Float[np.ndarray, " b"]
    covariance: Float[np.ndarray, "b b"]
    pull: Float[np.ndarray, " b"]
    bounds: Float[np.ndarray, "p 2"]
    cost: float
    misfit: float
    least_misfit: float
    steps: int
    converged: bool

    def with_covariance_of(self, estimate: Estimate) -> "ConsistentEstimate":
        """Return the estimate with a covariance for correlated residuals, derived from the unconstrained `estimate`.

        To first order, a change x of the unconstrained values changes the consistent values by T x with T = C C_0^-1.
        Here C is the covariance for independent residuals without the square of `pull`, and C_0 that of the unconstrained
        estimate. T (C_u - C_0) T^T is therefore added, where C_u is the covariance of the unconstrained estimate.
        """
        independent = estimate.independent_covariance
        scale = np.sqrt(np.diag(independent))
        if not np.all(scale > 0):
            return self
        units = np.outer(scale, scale)
        own = self.covariance - np.outer(self.pull, self.pull)
        follow = own @ (np.linalg.pinv(independent / units, hermitian=True) / units)
        beyond = follow @ (estimate.covariance - independent) @ follow.T
        return dataclasses.replace(self, covariance=self.covariance + beyond)

    @property
    def standard_deviations(self) -> Float[np.ndarray, " b"]:
        """Standard deviations of the base parameters (b,)."""
        return np.sqrt(np.diag(self.covariance))


def positive_columns(columns: Columns, n: int) -> Bool[np.ndarray, " p"]:
    """Mask of the non-inertial parameters that must not be negative, for example armature and viscous friction."""
    drive = [term in POSITIVE_TERMS for term in columns.drive_terms] * n
    extra = [e.positive for e in columns.extra for _ in e.names]
    return np.array([*[False] * 10 * n, *drive, *extra, *[False] * len(columns.friction_names(n))], bool)


def consistent_problem(
    estimate: Estimate,
    base: BaseParameters,
    columns: Columns,
    prior: Float[np.ndarray, " p"],
    *,
    weight: float = 1.0,
    constraints: Constraints | None = None,
    origin: Int[np.ndarray, " p"] | None = None,
) -> ConsistentProblem:
    """Create the physically consistent counterpart of an unconstrained estimation problem, with the same weights.

    The cost is expressed in units of the noise: a residual of one standard deviation in one independent sample costs
    1/2. Scaling all inertial parameters of a link by 1 + e costs 2 e^2 per unit of prior weight, to second order. A
    prior of weight 1 therefore has the same influence as four samples that each determine the link's mass with a
    standard deviation of 100 %. Its effect is negligible on parameters that the log determines, but it determines the others.

    Args:
        estimate: the unconstrained estimate (`solve`), whose rows are fitted.
        base: the base parameters.
        columns: the identified columns.
        prior: prior values of the full parameters, with strictly consistent inertias, in SI units.
        weight: weight of the prior.
        constraints: constraints from prior knowledge.
        origin: index of each parameter's column, if some columns have several parameters, each in other rows; by default,
            every column has one.

    Raises:
        IdentificationError: the prior is physically inconsistent, or the constraints or the weight are invalid.
    """
    r, p = estimate.rows, base.matrix.shape[1]
    constraints = constraints or no_constraints(p)
    own = np.arange(p) if origin is None else origin
    links = next((n for n in range(p + 1) if len(columns.names(n)) == own.max() + 1), None)
    if links is None:
        raise IdentificationError(f"the columns do not match the base parameters, which combine {p} full parameters")
    if np.shape(prior) != (p,):
        raise IdentificationError(
            f"the prior has shape {np.shape(prior)}; it must have one entry for each of the {p} full parameters"
        )
    if not (np.isfinite(weight) and weight > 0):
        raise IdentificationError(
            f"the prior's weight is {weight:g}; it must be positive and finite, so that the estimate is unique"
        )
    if constraints.equal.shape[1] != p:
        raise IdentificationError(
            f"the constraints are on {constraints.equal.shape[1]} parameters, but there are {p} full parameters"
        )
    for i, pi in enumerate(prior[: 10 * links].reshape(-1, 10)):
        try:
            check_consistent(str(i + 1), pi)
        except ModelError as error:
            raise IdentificationError(f"the prior is not physically consistent: {error}") from None
    q, upper = np.linalg.qr(r[:, base.kept])
    values = q.T @ r[:, -1]
    return ConsistentProblem(
        matrix=upper @ base.matrix,
        values=values,
        floor=0.5 * max(float(r[:, -1] @ r[:, -1] - values @ values), 0.0),
        prior=np.asarray(prior, float),
        start=np.linalg.lstsq(base.matrix, estimate.values - base.matrix @ prior, rcond=None)[0] + prior,
        links=links,
        positive=positive_columns(columns, links)[own] & base.matrix.any(axis=0),
        constraints=constraints,
        weight=float(weight),
    )


def consistent_least_squares(problem: ConsistentProblem, base: BaseParameters) -> ConsistentEstimate:
    """Solve a physically consistent estimation problem by damped Gauss-Newton steps in log-Cholesky parameters.

    Every step uses log-Cholesky parameters about the current iterate, so that all parameters have the same scale.
    Non-negative drive terms are represented by their logarithms.

    If the optimum lies on the boundary of consistency, log-Cholesky parameters tend to infinity, and steps near the
    boundary become tiny. The entropic divergence is therefore added to the cost as a barrier, whose weight is reduced
    tenfold per round. A barrier of weight e increases the minimum of a convex cost by at most e times the number of
    logarithms in the barrier. In the last round, this bound is 1e-8 times the larger of `floor` and b / 2, for b base
    parameters. An augmented Lagrangian enforces the constraints to within 1e-9 of the size of their terms.

    Raises:
        IdentificationError: the constraints cannot be satisfied.
    """
    cost, point = _first(problem)
    links, positive = problem.links, int(cost.positive.sum())
    final = GAP * cost.barrier / (4 * links + positive + 1)
    # accuracy limit due to rounding errors in the sum of squared torques, if only the prior determines the parameters
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
            f"no physically consistent parameters satisfy the constraints (relative violation {miss:.2g}); the "
            "constraints may contradict each other or require physically inconsistent links"
        )
    covariance, pull = _accuracy(problem, base, point)
    return ConsistentEstimate(
        parameters=x,
        values=base.matrix @ x,
        covariance=covariance + np.outer(pull, pull),
        pull=pull,
        bounds=parameter_bounds(problem),
        cost=problem.cost(x),
        misfit=problem.misfit(x),
        least_misfit=problem.floor,
        steps=steps,
        converged=converged,
    )


def _accuracy(
    problem: ConsistentProblem, base: BaseParameters, point: Point
) -> tuple[Float[np.ndarray, "b b"], Float[np.ndarray, " b"]]:
    """Covariance of the base parameters for independent residuals under the equations alone, and the prior's pull on them.

    The covariance is the inverse Hessian of the misfit and the divergence. The pull is the product of the inverse Hessian and
    the gradient of the divergence: to first order, the change of the values due to the prior. In the covariance, stand-ins
    of missing inertias and the regularisation of drive terms are no information.

    Both are those at a link that is, in every direction, as large as the larger of the estimate and the prior. The
    divergence is more curved the smaller a link is: at an estimate near the boundary of consistency, or at a prior much
    smaller than the link, intervals would exclude the truth.
    """
    n, m = problem.links, len(problem.prior) - 10 * problem.links
    u0 = prior_factors(problem.prior, n)
    white = np.linalg.inv(u0) @ point.u
    stretch, axes = np.linalg.eigh(white @ white.transpose(0, 2, 1))
    larger = Point(u0 @ axes * np.sqrt(np.maximum(stretch, 1.0))[:, None], np.zeros(m))
    local = larger.jacobian(np.ones(m))
    bend = divergence_metric(n)
    stand_in = np.isin(np.arange(n), problem.stand_ins).repeat(10)
    ridge = np.sqrt(problem.ridge)[:, None] * local

    def inverse(stated: np.ndarray, ridge: np.ndarray, right: np.ndarray) -> np.ndarray:
        half = np.concatenate([problem.matrix @ local, ridge])
        hessian = half.T @ half
        hessian[: 10 * n, : 10 * n] += problem.weight * stated[:, None] * bend  # which has one block per link
        free = np.diag(1 / np.sqrt(np.diag(hessian)))
        if len(equal := problem.constraints.equal):
            free = free @ linalg.null_space(equal @ local @ free)
        return free @ np.linalg.solve(free.T @ hessian @ free, free.T @ right)

    along = base.matrix @ local
    stated = np.where(stand_in, NO_INFORMATION, 1.0)
    covariance = along @ inverse(stated, np.sqrt(NO_INFORMATION) * ridge, along.T)
    gradient = np.concatenate([problem.weight * divergence_slope(u0, larger.u), np.zeros(m)])
    return 0.5 * (covariance + covariance.T), along @ inverse(np.ones(10 * n), ridge, gradient)


def parameter_bounds(problem: ConsistentProblem) -> Float[np.ndarray, "p 2"]:
    """Bounds of the single parameters: from consistency, from signs, and from inequalities in one parameter alone."""
    bounds = np.full((len(problem.prior), 2), [-np.inf, np.inf])
    moments = np.isin(np.arange(10), (0, 4, 6, 9))  # masses, and moments of inertia about an axis
    bounds[problem.positive, 0] = 0.0
    bounds[: 10 * problem.links, 0][np.tile(moments, problem.links)] = 0.0
    for row, side in zip(problem.constraints.least, problem.constraints.least_of, strict=True):
        if np.count_nonzero(row) == 1:
            k = int(np.argmax(row != 0))
            end, tighter = (0, max) if row[k] > 0 else (1, min)
            bounds[k, end] = tighter(bounds[k, end], side / row[k])
    return bounds


def _first(problem: ConsistentProblem) -> tuple[Cost, Point]:
    """Cost of the first round, with the largest barrier weight, and the initial point, whose links are those of the prior."""
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
        problem=problem,
        u0=u0,
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


# -- densities

DENSITY_ROUNDS = 8  # maximum number of rounds to enforce bounds on density
NEARLY = 1.02  # factor by which a density may exceed its bound during estimation
SLACK = 1.1  # factor by which a link may exceed a bound before it is reported


@dataclasses.dataclass(frozen=True, eq=False)
class LinkBounds:
    """Bounds on the size and density of each link.

    Attributes:
        centres: (n, 3) centres of the bounding ellipsoids, in the links' frames [m].
        semi_axes: (n, 3) semi-axes of the ellipsoids [m]; infinite for links without bounds on their size.
        rotations: (n, 3, 3) rotations whose columns are the ellipsoids' axes in the links' frames.
        least: (n,) lower bounds on the density of the solid ellipsoid with the link's mass and inertia [kg/m^3].
        most: (n,) upper bounds on the density of the same ellipsoid [kg/m^3].
    """

    centres: Float[np.ndarray, "n 3"]
    semi_axes: Float[np.ndarray, "n 3"]
    rotations: Float[np.ndarray, "n 3 3"]
    least: Float[np.ndarray, " n"]
    most: Float[np.ndarray, " n"]

    def constraints(self, p: int) -> Constraints:
        """Constraints on p parameters that keep every link inside its ellipsoid (`bounding_ellipsoid`)."""
        bodies = enumerate(zip(self.centres, self.semi_axes, self.rotations, strict=True))
        rows = [ellipsoid_row(p, i, c, s, r) for i, (c, s, r) in bodies if np.all(np.isfinite(s))]
        return inequalities(np.reshape(rows, (-1, p)), np.zeros(len(rows)))


def link_bounds(chain: Chain, densities: tuple[float, float] = DENSITIES) -> LinkBounds:
    """Bounds on the size and density of each link, widened if necessary to include the chain's links.

    The size of each link is bounded by an ellipsoid that follows from the distances between joints:

    - L is the distance from the link's joint to the farthest of the child links' joints and the link's named frames.
    - P is the distance between the link's joint and its parent's joint, plus the travel if the link's joint is
      prismatic.
    - S is the sum of P over all joints.

    The centre of the ellipsoid is halfway between the joint and the farthest point. The semi-axis along the line
    between these two points is L / 2 + w, and the other semi-axes are w = max(L / 2, P / 2, S / 10). This width leaves
    room for parts that lie off the line, such as motors.

    If the chain has inertias, the bounds are widened where necessary to include its links with a safety factor of 1.5.

    Args:
        chain: the robot.
        densities: lower and upper bounds on the density of each link [kg/m^3].

    Raises:
        IdentificationError: a bound is negative, or the lower bound is not below the upper bound.
    """
    least, most = densities
    if not 0 <= least < most:
        raise IdentificationError(
            f"the density bounds are {least:g} and {most:g} kg/m^3; they must satisfy 0 <= lower < upper"
        )
    n = chain.n
    translation, screw = np.asarray(chain.translation, float), np.asarray(chain.screw, float)
    limits = np.asarray(chain.limits.position, float)
    travel = np.where(np.isfinite(limits).all(axis=-1), np.ptp(np.where(np.isfinite(limits), limits, 0), axis=-1), 0.0)
    slides = np.linalg.norm(screw[:, :3], axis=1) == 0
    before = np.linalg.norm(translation, axis=1) + np.where(slides, travel, 0.0)
    farthest = np.zeros((n, 3))
    points = [(parent, translation[i]) for i, parent in enumerate(chain.topology.parents) if parent >= 0]
    points += [
        (link, pose[:3, 3])
        for link, pose in zip(chain.topology.frame_links, np.asarray(chain.frame_poses, float), strict=True)
        if link >= 0
    ]
    for link, point in points:
        if np.linalg.norm(point) > np.linalg.norm(farthest[link]):
            farthest[link] = point
    length = np.linalg.norm(farthest, axis=1)
    width = np.maximum(AROUND * np.maximum(length, before), LEAST_REACH * before.sum())
    semi_axes = np.stack([width, width, length / 2 + width], axis=1)
    bodies = with_bodies(chain.topology)
    semi_axes[(width == 0) | ~bodies] = np.inf
    bounds = LinkBounds(
        farthest / 2,
        semi_axes,
        np.stack([_along(x) for x in farthest]),
        np.where(bodies, float(least), 0.0),
        np.where(bodies, float(most), np.inf),
    )
    return _holding(bounds, np.asarray(chain.inertia, float))


def _along(direction: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3 3"]:
    """Orthonormal axes as columns; the third points along `direction`."""
    size = np.linalg.norm(direction)
    if size == 0:
        return np.eye(3)
    q = np.linalg.qr(np.column_stack([direction / size, np.eye(3)]))[0]
    return np.column_stack([q[:, 1], q[:, 2], q[:, 0]])


def _holding(bounds: LinkBounds, inertia: Float[np.ndarray, "n 10"]) -> LinkBounds:
    """Widen the bounds where necessary to contain links with these inertias; massless links are ignored."""
    semi_axes, least, most = bounds.semi_axes.copy(), bounds.least.copy(), bounds.most.copy()
    for i, pi in enumerate(inertia):
        if pi[0] <= 0 or not np.isfinite(density := equivalent_density(pi)):
            continue
        least[i], most[i] = min(least[i], density / ROOM), max(most[i], density * ROOM)
        if np.all(np.isfinite(semi_axes[i])):
            semi_axes[i] *= max(1.0, ROOM * filled_share(bounds, i, pi))
    return dataclasses.replace(bounds, semi_axes=semi_axes, least=least, most=most)


def filled_share(bounds: LinkBounds, link: int, pi: Float[np.ndarray, "10"]) -> float:
    """RMS distance of a link's mass from its ellipsoid's centre, in units of the semi-axes; at most 1 if the link fits in."""
    second, h, m = pseudo_inertia(pi)[:3, :3], pi[1:4], pi[0]
    c, r, s = bounds.centres[link], bounds.rotations[link], bounds.semi_axes[link]
    about = second - np.outer(c, h) - np.outer(h, c) + m * np.outer(c, c)
    return float(np.sqrt(max(np.trace(r @ np.diag(s**-2.0) @ r.T @ about) / m, 0.0)))


def equivalent_density(pi: Float[np.ndarray, "10"]) -> float:
    """Density of the solid ellipsoid with a link's mass and inertia [kg/m^3]; infinite for a flat or inconsistent link."""
    m = pi[0]
    if not m > 0:
        return np.inf
    # the second moments of the ellipsoid with semi-axes a, b, c are m a^2 / 5, m b^2 / 5, m c^2 / 5, its volume 4 pi / 3 a b c
    squares = 5 / m * np.linalg.eigvalsh(pseudo_inertia(pi)[:3, :3] - np.outer(pi[1:4], pi[1:4]) / m)
    volume = 4 / 3 * np.pi * np.sqrt(max(np.prod(squares), 0.0)) if squares.min() > 0 else 0.0
    return float(m / volume) if volume > 0 else np.inf


def consistent_within(problem: ConsistentProblem, base: BaseParameters, bounds: LinkBounds) -> ConsistentEstimate:
    """Solve a physically consistent estimation problem with bounds on the size and density of links.

    Bounds on size are linear in the parameters (`LinkBounds.constraints`). Bounds on density are nonlinear, and are
    enforced in several rounds of convex estimation:

    - If a link was too dense in one round, it must be at least as thick, in the next round, as a ball with its mass and
      the maximum density. The matrix J(pi) - m diag(e^2, e^2, e^2, 0) must be positive definite, where J is the
      pseudo-inertia, m the mass, and e the RMS extent of the ball along an axis. A linear change of parameters turns
      this condition into that of the original problem.
    - If a link was not dense enough, its density bound is expressed as an upper bound on log det J - 6 log m, which
      decreases with density. This bound is linearised about the parameters of the previous round.

    If the density bounds conflict with the other constraints, the rounds end with the last feasible estimate. Some of
    its links may then violate their bounds; `unusual_links` names these links.

    Raises:
        IdentificationError: the constraints cannot be satisfied.
    """
    p, n = len(problem.prior), problem.links
    known = problem.constraints + bounds.constraints(p)
    thickness = np.zeros(n)
    light: dict[int, Constraints] = {}
    found = _thickened(problem, base, known, thickness)
    for _ in range(DENSITY_ROUNDS):
        done = True
        for i, pi in enumerate(found.parameters[: 10 * n].reshape(n, 10)):
            density = equivalent_density(pi)
            if density > NEARLY * bounds.most[i]:
                ball = (3 * pi[0] / (4 * np.pi * bounds.most[i])) ** (1 / 3) / np.sqrt(5)
                thickness[i], done = max(1.02 * ball, 1.1 * thickness[i]), False
            elif density < bounds.least[i] / NEARLY:
                light[i], done = _heavier(p, i, pi, 1.01 * bounds.least[i]), False
        if done:
            break
        try:
            found = _thickened(problem, base, sum(light.values(), known), thickness)
        except IdentificationError:  # density bounds conflict with the constraints
            break
    return found


def _thickened(
    problem: ConsistentProblem, base: BaseParameters, known: Constraints, thickness: Float[np.ndarray, " n"]
) -> ConsistentEstimate:
    """Physically consistent estimate with an RMS extent of at least `thickness` [m] of each link in every direction."""
    change = np.eye(len(problem.prior))
    for i, least in enumerate(thickness):
        change[10 * i + np.array([4, 6, 9]), 10 * i] = 2 * least**2
    moved = dataclasses.replace(
        problem,
        matrix=problem.matrix @ change,
        constraints=dataclasses.replace(known, equal=known.equal @ change, least=known.least @ change),
    )
    found = consistent_least_squares(moved, dataclasses.replace(base, matrix=base.matrix @ change))
    bounds = parameter_bounds(dataclasses.replace(problem, constraints=known))
    return dataclasses.replace(found, parameters=change @ found.parameters, bounds=bounds)


def _heavier(p: int, link: int, pi: Float[np.ndarray, "10"], least: float) -> Constraints:
    """Lower bound on a link's density, log det J - 6 log m <= log(9 / (16 pi^2 125 least^2)), linearised at `pi`."""
    m, pseudo = pi[0], pseudo_inertia(pi)
    inverse = np.linalg.inv(pseudo)
    above = np.linalg.slogdet(pseudo)[1] - 6 * np.log(m) - np.log(9 / (16 * np.pi**2 * 125 * least**2))
    row = np.zeros(p)
    row[10 * link : 10 * link + 10] = np.einsum("kij,ij->k", UNITS, inverse)
    row[10 * link] -= 6 / m
    return inequalities(-row[None], np.array([2.0 + above]))


def unusual_links(
    chain: Chain, densities: tuple[float, float] = DENSITIES, model: Chain | None = None
) -> tuple[str, ...]:
    """Describe each link that is too dense, not dense enough or too large for the kinematics, in one sentence per link.

    The inertias of `model`, if given, widen the bounds (`link_bounds`). Links without mass are ignored.
    """
    bare = dataclasses.replace(chain, inertia=0 * chain.inertia)
    bounds = link_bounds(bare if model is None else model, densities)
    out = []
    for i, (name, pi) in enumerate(zip(chain.link_names, np.asarray(chain.inertia, float), strict=True)):
        density = equivalent_density(pi)
        if pi[0] <= 0 or not np.isfinite(density):
            continue
        share = filled_share(bounds, i, pi) if np.all(np.isfinite(bounds.semi_axes[i])) else 0.0
        if density > SLACK * bounds.most[i] or density < bounds.least[i] / SLACK:
            out.append(f"link {name!r} has a mass of {pi[0]:.3g} kg and a density of {density:.2g} kg/m^3")
        elif share > SLACK:
            out.append(
                f"link {name!r} has a mass of {pi[0]:.3g} kg that extends {share:.2g} times as far as the distances between "
                "joints suggest"
            )
    return tuple(out)

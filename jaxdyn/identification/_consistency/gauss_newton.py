"""Damped Gauss-Newton method in the log-Cholesky parameters of links, for costs convex in the inertial parameters."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float
from scipy import linalg

from ...spatial.inertia import pseudo_inertia
from ...spatial.pseudo_inertia import log_cholesky_factor, pseudo_inertia_factor
from .priors import Divergence, entropic_divergence

REACH = 0.95  # longest step, as a fraction of the distance to the boundary of consistency
TAKEN = 1e-3  # smallest ratio of actual to predicted decrease at which a step is accepted

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

    The cost of the parameters x = (pi_1, ..., pi_n, non-inertial parameters) is the sum of the penalties of the
    constraints, a ridge penalty |x - prior|^2 / 2 with a weight for each parameter, and

        |A x - y|^2 / 2 + weight * sum_i D(pi_i, prior_i) + barrier * entropy

    Attributes:
        matrix: (b, p) A.
        values: (b,) y.
        prior: (p,) prior parameters.
        u0: (n, 4, 4) factors of the prior's pseudo-inertias.
        ridge: (p,) weights of the ridge penalty.
        weight: weight of the divergence from the prior.
        divergence: divergence D of a link's parameters from those of the prior.
        positive: (m,) mask of the non-inertial parameters that must be positive.
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

    matrix: Float[np.ndarray, "b p"]
    values: Float[np.ndarray, " b"]
    prior: Float[np.ndarray, " p"]
    u0: Float[np.ndarray, "n 4 4"]
    ridge: Float[np.ndarray, " p"]
    weight: float
    divergence: Divergence
    positive: Bool[np.ndarray, " m"]
    centre: Float[np.ndarray, " m"]
    spread: Float[np.ndarray, " m"]
    barrier: float
    rows: Float[np.ndarray, "c p"]
    sides: Float[np.ndarray, " c"]
    least: Bool[np.ndarray, " c"]
    multipliers: Float[np.ndarray, " c"]
    stiffness: float

    @functools.cached_property
    def _inverse(self) -> np.ndarray:
        return np.linalg.inv(self.u0)

    def force(self, x: np.ndarray) -> np.ndarray:
        """Updated Lagrange multipliers (c,) of the constraints at the parameters x."""
        force = self.multipliers + self.stiffness * (self.rows @ x - self.sides)
        return np.where(self.least, np.minimum(force, 0.0), force)

    def __call__(self, point: Point) -> float:
        """The cost; NaN or infinity outside the feasible set."""
        x, n = point.parameters, len(self.u0)
        if not np.all(np.abs(x) < 1e100):
            return np.nan
        white = self._inverse @ point.u
        diagonal = np.diagonal(white, axis1=1, axis2=2)
        ratio = np.where(self.positive, point.rest / self.centre, 1.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            entropy = (white**2).sum() - 2 * np.log(diagonal).sum() - 4 * n
            others = (ratio - np.log(ratio) - 1).sum()
        distance = (
            entropy if self.divergence is entropic_divergence else _distance(self.divergence, x, self.prior, n)[0]
        )
        return float(
            0.5 * ((self.matrix @ x - self.values) ** 2).sum()
            + self.weight * distance
            + 0.5 * (self.ridge * (x - self.prior) ** 2).sum()
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
        x, n = point.parameters, len(self.u0)
        jacobian = point.jacobian(self.scale(point))
        inner = 10 * n
        white = self._inverse @ point.u
        entropy = _entropy_slope(white)
        weight = self.barrier + (self.weight if self.divergence is entropic_divergence else 0.0)
        force = self.force(x)
        active = (~self.least | (force < 0)).astype(float)
        gradient = self.matrix.T @ (self.matrix @ x - self.values) + self.ridge * (x - self.prior) + self.rows.T @ force
        curved = [self.matrix, self.rows * np.sqrt(self.stiffness * active)[:, None], np.diag(np.sqrt(self.ridge))]
        hessian = np.zeros((len(x), len(x)))
        if self.divergence is not entropic_divergence:
            _, slope, bend = _distance(self.divergence, x, self.prior, n)
            gradient[:inner] += self.weight * slope.ravel()
            for i in range(n):
                at = slice(10 * i, 10 * i + 10)
                hessian[at, at] = self.weight * jacobian[at, at].T @ bend[i] @ jacobian[at, at]
        g = jacobian.T @ gradient
        g[:inner] += weight * entropy.ravel()
        g[inner:] += self.barrier * np.where(self.positive, point.rest / self.centre - 1, 0.0)
        half = np.concatenate(curved) @ jacobian
        hessian += half.T @ half
        hessian += self.metric(weight)
        return g, hessian

    def metric(self, weight: float) -> np.ndarray:
        """Hessian of the entropy in local coordinates, which is the same at every point; `weight` scales the links' part."""
        inner = 10 * len(self.u0)
        metric = np.zeros((inner + len(self.positive),) * 2)
        metric[:inner, :inner] = weight * np.kron(np.eye(len(self.u0)), _METRIC)
        metric[inner:, inner:] = np.diag(np.where(self.positive, self.barrier, 0.0))
        return metric


def move(cost: Cost, point: Point, step: np.ndarray) -> Point:
    """Point after a step in local coordinates: U <- U M(step) for links, x <- x exp(step) for positive parameters."""
    inner = 10 * len(point.u)
    factors = np.asarray(_factors(jnp.asarray(step[:inner].reshape(-1, 10))))
    with np.errstate(over="ignore", invalid="ignore"):
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
    inside = np.eye(4) + share * change
    factors = np.linalg.cholesky(inside[:, ::-1, ::-1])[:, ::-1, ::-1]
    return Point(point.u @ factors, point.rest + share * cost.scale(point) * step[inner:])


def minimise(cost: Cost, point: Point, tolerance: float, limit: int) -> tuple[Point, int, bool]:
    """Take at most `limit` Levenberg-Marquardt steps, until the predicted decrease of the cost is below the tolerance.

    Each step is tried in two ways: directly in the parameters, where the quadratic model of the misfit is exact, and in
    log-Cholesky parameters, which never reach the boundary of consistency. The candidate with the lower cost is used.

    The damping term uses the metric of the entropy, in which the boundary is at least one unit away. The damping factor
    decreases after every successful step and increases after every rejected step (Nielsen 1999).

    Cost: O(p^3) per step.

    Returns:
        The point, the number of steps tried, and whether the tolerance was met.
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


@jax.jit
def _factors(theta):
    return jax.vmap(log_cholesky_factor)(theta)


@jax.jit
def _factors_of(pi):
    return jax.vmap(lambda one: pseudo_inertia_factor(pseudo_inertia(one)))(pi)


def prior_factors(prior: Float[np.ndarray, " p"], n: int) -> Float[np.ndarray, "n 4 4"]:
    """Upper triangular factors of the pseudo-inertias of n links, from full parameters."""
    with jax.enable_x64(True):
        return np.asarray(_factors_of(jnp.asarray(np.asarray(prior, float)[: 10 * n].reshape(n, 10))))


def divergence_slopes(
    divergence: Divergence, point: Point, prior: Float[np.ndarray, " p"]
) -> tuple[Float[np.ndarray, " m"], Float[np.ndarray, "m m"]]:
    """Gradient and Hessian of the sum of a divergence over the links of a point, in its local coordinates."""
    n = len(point.u)
    if divergence is entropic_divergence:
        white = np.linalg.inv(prior_factors(prior, n)) @ point.u
        return _entropy_slope(white).ravel(), np.kron(np.eye(n), _METRIC)
    local = Point(point.u, np.zeros(0)).jacobian(np.zeros(0))
    _, slope, bend = _distance(divergence, point.parameters, prior, n)
    return local.T @ slope.ravel(), local.T @ linalg.block_diag(*bend) @ local


def _entropy_slope(white: Float[np.ndarray, "n 4 4"]) -> Float[np.ndarray, "n 10"]:
    """Gradient of the entropic divergence in local coordinates, for links with the factors u0 @ white."""
    squares = white.transpose(0, 2, 1) @ white
    return np.einsum("nij,kij->nk", squares, _ALONG) - np.trace(_ALONG, axis1=1, axis2=2)


@functools.cache  # compiled once per divergence
def _derivatives(divergence: Divergence):
    def all_three(pi, prior):
        return divergence(pi, prior), jax.grad(divergence)(pi, prior), jax.hessian(divergence)(pi, prior)

    return jax.jit(jax.vmap(all_three))


def _distance(divergence: Divergence, x: np.ndarray, prior: np.ndarray, n: int) -> tuple[float, np.ndarray, np.ndarray]:
    """Sum of a divergence over all links, and its gradient (n, 10) and Hessian (n, 10, 10) for each link."""
    pi, own = (jnp.asarray(v[: 10 * n].reshape(n, 10)) for v in (x, prior))
    value, slope, bend = _derivatives(divergence)(pi, own)
    return float(value.sum()), np.asarray(slope), np.asarray(bend)

"""Least squares on accumulated factors: ordinary, weighted by noise, robust, with instrumental variables, and recursive."""

import dataclasses
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import IdentificationError
from ..model.chain import coordinate_names
from .accumulate import Rows
from .base import BaseParameters, UndeterminedError, stacked
from .defaults import AGREEING, HUBER, MEDIAN, OUTLYING, PRECISION, ROWS_OF_A_RUN
from .factors import (
    BlockFactors,
    QRFactors,
    block_degrees,
    least_squares_covariance,
    left_out_covariance,
    weighted_blocks,
)
from .knowledge import Known

Estimator = Literal["weighted", "ordinary", "huber", "instrumental"]


@dataclasses.dataclass(frozen=True, eq=False)
class Estimate:
    """Base parameters estimated from data.

    Attributes:
        values: (b,) estimated base parameters, in SI units.
        covariance: (b, b) covariance of the values, from a jackknife over eight blocks of the data or, if a motion is
            repeated, over eight stretches of it. It accounts for correlated residuals, for example due to filters or
            unmodelled friction; without blocks, it is `independent_covariance`.
        noise: (n,) standard deviation of each joint's residual torque [N m or N].
        condition: condition number of the (weighted) base regressor.
        scaled_condition: condition number with columns scaled to unit norm; it does not depend on units.
        joint_residuals: (n,) RMS residual of each joint on the fitted data [N m or N].
        rows: (m, w) rows [W, y] with unit noise whose least-squares solution the values are, for the columns of all
            parameters; the physically consistent estimate fits the same rows.
        method: name of the estimator.
        run_noise: (runs, n) standard deviations by which the rows of each run are weighted [N m or N].
        iterations: number of updates of the values.
        history: the largest relative step of the values in each iteration.
        converged: True if the last step was below the tolerance.
        degrees: degrees of freedom of the covariance, from the number of blocks or independent rows; infinite if unknown.
        notes: remarks from the estimator.
        independent: (b, b) covariance s^2 (W^T W)^-1 for residuals that are correlated only by the filter, with the
            standard deviation s of the weighted rows. None if `covariance` already has this value.
        blocks: the factors to which the values were fitted, with the estimator's weights of rows; None if unknown.
    """

    values: np.ndarray
    covariance: np.ndarray
    noise: np.ndarray
    condition: float
    scaled_condition: float
    joint_residuals: np.ndarray
    rows: np.ndarray
    method: str = "weighted"
    run_noise: np.ndarray | None = None
    iterations: int = 1
    history: tuple[float, ...] = ()
    converged: bool = True
    degrees: float = np.inf
    notes: tuple[str, ...] = ()
    independent: np.ndarray | None = None
    blocks: BlockFactors | None = None

    @property
    def independent_covariance(self) -> Float[np.ndarray, "b b"]:
        """Covariance (b, b) of the values for residuals that are correlated only by the filter."""
        return self.covariance if self.independent is None else self.independent

    @property
    def standard_deviations(self) -> np.ndarray:
        """Standard deviations of the values (b,)."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def relative_standard_deviations(self) -> np.ndarray:
        """Standard deviations of the values as percentages of their magnitudes (b,)."""
        with np.errstate(divide="ignore"):
            return 100 * self.standard_deviations / np.abs(self.values)

    def interval_factor(self, level: float = 0.95) -> float:
        """Half-width of the confidence interval at `level`, in standard deviations, from Student's t distribution."""
        from scipy import stats  # slow to import

        return float(stats.t.ppf(0.5 + level / 2, self.degrees))

    def confidence_intervals(self, level: float = 0.95) -> Float[np.ndarray, "b 2"]:
        """Confidence interval (lower, upper) of each value at `level`, from Student's t distribution."""
        half = self.interval_factor(level) * self.standard_deviations
        return np.stack([self.values - half, self.values + half], axis=1)


# -- solve


def solve(
    factors: BlockFactors | QRFactors,
    base: BaseParameters,
    estimator: Estimator = "weighted",
    independence: float = 1.0,
    known: Known | None = None,
    tolerance: float = 1e-6,
    iterations: int = 30,
) -> Estimate:
    """Estimate base parameters from factors, with weights that are iterated.

    The estimators are:

    - "weighted": minimises sum_rj |tau_rj - W_rj base|^2 / s_rj^2, with the noise s_rj of joint j in run r, computed from
      the residuals of the previous iteration. A run with fewer than twice as many independent samples as there are base
      parameters could be fitted almost exactly, and would then outweigh all others: the noise of its joints is that of
      all runs together. Factors without blocks count as one run.
    - "ordinary": minimises sum |tau - W base|^2, with equal weights for all joints and runs.
    - "huber": minimises the sum of rho(u) over all rows, with u = (tau - W base) / s. Huber's loss rho is quadratic for
      |u| up to 1.345 and linear beyond, which limits the influence of outliers, collisions and friction at rest; s is
      computed from the median of |tau - W base|. Each iteration multiplies the rows by sqrt(min(1, 1.345 / |u|)) and
      accumulates them again (Huber 1964; Holland & Welsch 1977).
    - "instrumental": solves Z^T S^-2 (tau - W base) = 0, with the noise S of the weighted estimate. The instruments Z
      are the regressor of another record of the motion, whose errors are independent of those of W. Noise of positions,
      velocities and accelerations therefore causes no bias, unlike in least squares.

    Args:
        factors: triangular factors of the regressor and the torques. Standard deviations account for correlated
            residuals only if the factors were accumulated in blocks. The estimators "huber" and "instrumental" need
            `BlockFactors.rows`.
        base: the base parameters.
        estimator: the estimator.
        independence: effective fraction of independent samples (`Samples.independence`).
        known: prior knowledge of parameters. Known values are subtracted from the torques; rows P @ parameters = y +- 1
            are added to the fit, weighted relative to the noise of the data.
        tolerance: relative step of the values below which the iteration has converged; "huber" uses at least 1e-4.
        iterations: maximum number of iterations.

    Raises:
        IdentificationError: there are too few samples, the data do not excite all base parameters or do not determine
            them separately, or the rows or the instruments that an estimator needs are missing.

    Cost: O(n p^3) per iteration for n joints and p columns; "huber" also reads all samples twice per iteration.
    """
    if estimator not in get_args(Estimator):
        raise IdentificationError(f"there is no estimator {estimator!r}; choose from {', '.join(get_args(Estimator))}")
    if isinstance(factors, QRFactors):
        factors = BlockFactors(factors.r[None], factors.counts[None], np.zeros(1, int))
    problem = _Problem(base, independence, known, None if known is None else known.stated(factors.r.shape[3]))
    first = _weighted(problem, problem.prepared(factors), estimator == "ordinary", tolerance, iterations)
    if estimator in ("weighted", "ordinary"):
        return first
    if factors.rows is None:
        raise IdentificationError(f"the estimator {estimator!r} needs the rows of runs, not only their factors")
    if estimator == "huber":
        return _huber(problem, factors.rows, first, max(tolerance, 1e-4), iterations)
    return _instrumental(problem, factors.rows, first)


@dataclasses.dataclass(frozen=True, eq=False)
class _Problem:
    """What all iterations of an estimator share; `stated` are rows [P, y] of prior knowledge with unit standard deviation."""

    base: BaseParameters
    independence: float
    known: Known | None = None
    stated: Float[np.ndarray, "k w"] | None = None

    def prepared(self, blocks: BlockFactors, first: int = 0) -> BlockFactors:
        """Blocks whose runs are counted without gaps, without the torque of known parameters; W begins at column `first`."""
        r = blocks.r if self.known is None else self.known.taken_off(blocks.r, first)
        runs = np.unique(blocks.runs, return_inverse=True)[1]
        return dataclasses.replace(blocks, r=r, runs=runs, rows=None)

    def beside(self, r: Float[np.ndarray, "m w"]) -> Float[np.ndarray, "_ w"]:
        """Rows of the data, weighted by their noise, above those of prior knowledge in the same unit."""
        return r if self.stated is None else np.concatenate([r, self.stated / np.sqrt(self.independence)])

    def solution(self, factors: QRFactors, weights: Float[np.ndarray, " m"]) -> Estimate:
        """Least squares on factors, with one weight per factor and the covariance s^2 (W^T W)^-1 for independent rows."""
        base, counts, independence = self.base, factors.counts, self.independence
        b, total = base.size, factors.counts.sum()
        if total <= b:
            raise UndeterminedError(
                f"{int(total)} rows of samples cannot determine {b} base parameters; log a longer run or decimate less"
            )
        r = self.beside(stacked(factors, weights))
        values, inverse, singular = _svd_solution(base, r[:, base.kept], r[:, -1])
        squares = ((factors.r[:, :, -1] - factors.r[:, :, base.kept] @ values) ** 2).sum(1)
        free = max(b - (0 if self.stated is None else len(self.stated)), 0)
        spent = free / independence / total  # degrees of freedom used by the parameters, as a share of the rows
        if spent >= 1:
            raise UndeterminedError(
                f"only {total * independence:.0f} of {int(total)} rows of filtered samples count as independent, too "
                f"few to determine {b} base parameters; log a longer run"
            )
        variance = (squares * weights**2).sum() / (total * (1 - spent)) / independence
        return Estimate(
            values=values,
            covariance=variance * (inverse @ inverse.T),
            noise=np.sqrt(squares / np.maximum(counts * (1 - spent), 1)),
            condition=float(np.linalg.cond(r[:, base.kept])),
            scaled_condition=float(singular[0] / singular[-1]),
            joint_residuals=np.sqrt(squares / np.maximum(counts, 1)),
            rows=r,
            degrees=float(total * independence - b),
        )

    def rows(self, factors: QRFactors, noise: Float[np.ndarray, " m"]) -> Float[np.ndarray, "_ w"]:
        """Rows with unit noise, of the data and of prior knowledge; PRECISION limits the weight of a joint without noise."""
        size = np.sqrt((factors.r[:, :, -1] ** 2).sum(1) / np.maximum(factors.counts, 1))
        least = np.where(size > 0, np.maximum(PRECISION * size, np.finfo(float).tiny), 1.0)
        return np.sqrt(self.independence) * self.beside(stacked(factors, 1 / np.maximum(noise, least)))

    def with_blocks(
        self,
        estimate: Estimate,
        blocks: BlockFactors,
        weights: Float[np.ndarray, "runs n"],
        curved: BlockFactors | None = None,
    ) -> Estimate:
        """A copy of the estimate with a jackknife covariance, for rows weighted by run and joint.

        The jackknife leaves out blocks of data, but never the rows P of prior knowledge. Their contribution C P^T P C to
        the covariance C is therefore added separately. `curved` are the rows that contribute to the Hessian, if the weights
        depend on the residuals.
        """
        kept, beyond, besides = self.base.kept, 0.0, None
        parts = weighted_blocks(blocks, np.append(kept, -1), weights)
        bent = None if curved is None else weighted_blocks(curved, kept, weights)
        if self.stated is not None:
            rows = self.stated[:, kept]
            beyond = estimate.covariance @ (rows.T @ rows) @ estimate.covariance
            besides = rows / np.sqrt(self.independence)
        own = _of_data(estimate.covariance, beyond)
        found = least_squares_covariance(parts, estimate.values, own, bent, besides)
        degrees = min(estimate.degrees, block_degrees(len(parts)))
        independent = estimate.independent_covariance
        return dataclasses.replace(estimate, covariance=found + beyond, independent=independent, degrees=degrees)


def _svd_solution(base: BaseParameters, w: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Least-squares solution x of W x = y, a matrix with M M^T = (W^T W)^-1, and singular values for unit norms."""
    norms = np.linalg.norm(w, axis=0)
    if np.any(norms == 0):
        raise UndeterminedError(
            f"the data do not excite {base.names[int(np.argmin(norms))]!r}: log a motion of all joints, or omit this term"
        )
    u, s, vt = np.linalg.svd(w / norms, full_matrices=False)
    if s[-1] < 1e-12 * s[0]:
        worst = np.argsort(-np.abs(vt[-1]))[:3]
        raise UndeterminedError(
            "the motion does not determine these base parameters separately: "
            + "; ".join(repr(base.names[k]) for k in worst)
            + ". Log a more informative motion in which all joints move at once, or identify fewer terms"
        )
    return vt.T @ (u.T @ y / s) / norms, vt.T / s / norms[:, None], s


def _of_data(
    covariance: Float[np.ndarray, "b b"], beyond: float | Float[np.ndarray, "b b"]
) -> Float[np.ndarray, "b b"]:
    """A covariance without the share of prior knowledge; zero for parameters that knowledge alone determines."""
    own = covariance - beyond
    alone = np.diag(own) < 1e-9 * np.diag(covariance)  # rounding errors
    own[alone], own[:, alone] = 0.0, 0.0
    return own


def _inverse(noise: Float[np.ndarray, "runs n"]) -> Float[np.ndarray, "runs n"]:
    """Weights of rows; those without noise have large ones."""
    return 1 / np.maximum(noise, 1e-12 * float(noise.max()) or 1.0)


def _weighted(problem: _Problem, blocks: BlockFactors, even: bool, tolerance: float, iterations: int) -> Estimate:
    """Weighted least squares with iterated noise of each run and joint or, if `even`, of all rows together."""
    factors, n = blocks.by_run, blocks.r.shape[1]
    counts = factors.counts.reshape(-1, n)
    pooled = lambda x, axis: np.sqrt((x.reshape(-1, n) ** 2 * counts).sum(axis) / np.maximum(counts.sum(axis), 1))
    few = counts * problem.independence < ROWS_OF_A_RUN * problem.base.size

    together = lambda estimate: np.full(counts.shape, pooled(estimate.noise, None))
    each = lambda estimate: np.where(few, pooled(estimate.noise, 0), estimate.noise.reshape(-1, n))
    size = np.sqrt((factors.r[:, :, -1] ** 2).sum() / max(counts.sum(), 1)) or 1.0
    weights = np.full(counts.shape, 1 / size)
    estimate = problem.solution(factors, weights.reshape(-1))
    history: list[float] = []
    for measure in (together,) if even else (together, each):
        history = []
        while len(history) < iterations:
            noise = measure(estimate)
            weights = _inverse(noise)
            update = problem.solution(factors, weights.reshape(-1))
            history.append(relative_step(update.values, estimate.values))
            estimate = update
            if history[-1] < tolerance:
                break
    noise = together(estimate) if even else each(estimate)
    return dataclasses.replace(
        problem.with_blocks(estimate, blocks, weights),
        noise=pooled(estimate.noise if even else noise, 0),
        joint_residuals=pooled(estimate.joint_residuals, 0),
        run_noise=noise,
        rows=problem.rows(factors, noise.reshape(-1)),
        method="ordinary" if even else "weighted",
        iterations=len(history),
        history=tuple(history),
        converged=history[-1] < tolerance,
        blocks=blocks,
    )


def _huber(problem: _Problem, rows: Rows, start: Estimate, tolerance: float, iterations: int) -> Estimate:
    """Iteratively reweighted least squares with Huber's weights, from the weighted estimate."""
    runs = np.unique(rows.numbers, return_inverse=True)[1]
    used = [np.ones(run.tau.shape, bool) if run.weights is None else np.asarray(run.weights) != 0 for run in rows.runs]
    full = np.zeros(problem.base.matrix.shape[1])
    if problem.known is not None:
        full[: len(problem.known.values)] = problem.known.values

    def errors(values: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
        """Residuals of each part, and the standard deviations (runs, n) of each run from their medians."""
        full[problem.base.kept] = values
        found = rows.residuals(full)
        own = [np.where(there, np.abs(e), np.nan) for e, there in zip(found, used, strict=True)]
        medians = [np.nanmedian(np.concatenate([own[i] for i in np.flatnonzero(runs == k)]), axis=0) for k in set(runs)]
        return found, np.nan_to_num(np.stack(medians)) / MEDIAN

    estimate, history, blocks = start, [], start.blocks
    residuals, scale = errors(start.values)
    weights = np.ones_like(scale)
    while not history or (len(history) < iterations and history[-1] >= tolerance):
        light = [
            np.sqrt(np.minimum(1, HUBER * np.where(s > 0, s, np.inf) / np.maximum(np.abs(e), 1e-300)))
            for e, s in zip(residuals, scale[runs], strict=True)
        ]
        blocks = problem.prepared(rows.blocks(light))
        weights = _inverse(scale)
        update = problem.solution(blocks.by_run, weights.reshape(-1))
        history.append(relative_step(update.values, estimate.values))
        estimate = update
        residuals, scale = errors(estimate.values)
    assert blocks is not None
    inside = [(np.abs(e) <= HUBER * s).astype(float) for e, s in zip(residuals, scale[runs], strict=True)]
    curved = problem.prepared(rows.blocks(inside))
    unit = problem.rows(blocks.by_run, scale.reshape(-1))
    inverse = np.linalg.pinv(np.linalg.qr(unit[:, problem.base.kept], mode="r"))
    estimate = dataclasses.replace(estimate, covariance=inverse @ inverse.T)
    every, there = np.concatenate(residuals), np.concatenate(used)
    beyond = np.concatenate([np.abs(e) > OUTLYING * s for e, s in zip(residuals, scale[runs], strict=True)]) & there
    far = beyond.sum(axis=0)
    note = (
        f"Huber's weights: {far.max()} samples of {coordinate_names(rows.chain)[int(np.argmax(far))]} have residuals of more "
        f"than {OUTLYING:g} standard deviations"
    )
    return dataclasses.replace(
        problem.with_blocks(estimate, blocks, weights, curved),
        noise=np.sqrt((scale**2).mean(0)),
        run_noise=scale,
        joint_residuals=np.sqrt(((every * there) ** 2).sum(0) / np.maximum(there.sum(0), 1)),
        rows=unit,
        method="huber",
        iterations=len(history),
        history=tuple(history),
        converged=history[-1] < tolerance,
        notes=(note,) if far.any() else (),
        blocks=blocks,
    )


def _instrumental(problem: _Problem, rows: Rows, start: Estimate) -> Estimate:
    """Instrumental variables, from factors of [Z, W, tau] and the weights of the weighted estimate.

    With the factors Z = Q R and Q^T [W, tau] = [R_w, R_t], the estimate is the least-squares solution of R_w base = R_t.
    """
    base, b = problem.base, problem.base.size
    if any(run.instruments is None for run in rows.runs):
        raise IdentificationError(
            "instrumental variables need another record of the motion: logs with commanded positions (Log.command)"
        )
    wide = problem.prepared(rows.blocks(beside=base.kept), b)
    assert start.run_noise is not None
    weights = _inverse(start.run_noise)
    factors = wide.by_run
    whole = stacked(factors, weights.reshape(-1))
    projected = problem.beside(whole[:b, b:])
    values, back, singular = _svd_solution(base, projected[:, base.kept], projected[:, -1])
    errors = factors.r[:, :, -1] - factors.r[:, :, b + base.kept] @ values
    squares, counts = (errors**2).sum(1), factors.counts
    spent = b / problem.independence / counts.sum()
    variance = (squares * weights.reshape(-1) ** 2).sum() / (counts.sum() * (1 - spent)) / problem.independence
    independent = variance * (back @ back.T)
    # R_w^T R^-T; R is singular if only prior knowledge determines some parameters
    onto = np.linalg.lstsq(whole[:b, :b], whole[:b, b + base.kept], rcond=None)[0].T
    parts = weighted_blocks(wide, np.array([*range(b), *(b + base.kept), -1]), weights)
    moments = [back.T @ onto @ part[:, :b].T @ part[:, b:] for part in parts]
    shares = np.stack([m[:, :-1] @ back for m in moments])
    scores = np.stack([m[:, -1] - m[:, :-1] @ values for m in moments])
    beyond = 0.0
    if problem.stated is not None:
        stated = problem.stated[:, base.kept]
        beyond = independent @ (stated.T @ stated) @ independent
    found = left_out_covariance(shares, scores, back, _of_data(independent, beyond)) + beyond
    noise = np.sqrt(squares / np.maximum(counts * (1 - spent), 1)).reshape(weights.shape)
    return dataclasses.replace(
        start,
        values=values,
        covariance=found,
        independent=independent,
        noise=np.sqrt((noise**2).mean(0)),
        run_noise=noise,
        condition=float(np.linalg.cond(projected[:, base.kept])),
        scaled_condition=float(singular[0] / singular[-1]),
        joint_residuals=np.sqrt(
            squares.reshape(weights.shape).sum(0) / np.maximum(counts.reshape(weights.shape).sum(0), 1)
        ),
        rows=projected / np.sqrt(variance),
        method="instrumental",
        degrees=min(start.degrees, block_degrees(len(parts))),
    )


def relative_step(new: np.ndarray, old: np.ndarray) -> float:
    """Largest relative change of the values; changes of small values are relative to 1e-3 of the largest value."""
    size = np.maximum(np.abs(new), np.abs(old))
    return float((np.abs(new - old) / np.maximum(size, 1e-3 * size.max() or 1.0)).max())


# -- recursive


class RecursiveState(NamedTuple):
    """State of recursive least squares after the samples seen so far.

    Attributes:
        r: triangular factor such that r^T r is the sum of forgetting^age [W, tau]^T [W, tau] / s^2 over all rows so
            far, where s is the noise of a row, and its age is counted in samples.
    """

    r: Float[Array, "c c"]


def recursive_start(values: Float[Array, " b"], deviations: Float[Array, " b"] | float = np.inf) -> RecursiveState:
    """Create the state before the first sample.

    Args:
        values: prior base parameters; the state has their floating-point type.
        deviations: standard deviations of the prior; infinity means no prior knowledge.
    """
    values = jnp.asarray(values)
    weight = 1 / jnp.broadcast_to(jnp.asarray(deviations, values.dtype), values.shape)
    rows = jnp.concatenate([jnp.diag(weight), (weight * values)[:, None]], axis=1)
    return RecursiveState(jnp.concatenate([rows, jnp.zeros((1, rows.shape[1]), values.dtype)]))


def recursive_step(
    state: RecursiveState,
    rows: Float[Array, "n b"],
    tau: Float[Array, " n"],
    noise: Float[Array, " n"],
    forgetting: float | Float[Array, ""] = 1.0,
) -> RecursiveState:
    """Update the state with one sample: r becomes the QR factor of [sqrt(forgetting) r; [W, tau] / noise].

    The update is the square-root information form (Bierman 1977, ch. IV). The function is pure and works under
    `jax.jit` and `jax.vmap`, in float32 and float64.

    With forgetting = 1, the result equals weighted least squares on all samples, up to rounding. With forgetting < 1, a
    sample that is k samples old has the weight forgetting^k, so the memory spans about 1 / (1 - forgetting) samples.
    Knowledge of parameters that the current motion does not excite is then also forgotten; if this is a problem, start
    with finite standard deviations, or use forgetting = 1.

    Cost: O(b^2 (b + n)) per sample.

    Args:
        state: the state before the sample.
        rows: base regressor of the sample, `columns.matrix(chain, q, qd, qdd)[:, base.kept]`.
        tau: measured torques [N m or N].
        noise: standard deviation of each joint's torque [N m or N]; infinity excludes a joint.
        forgetting: factor that multiplies the weights of all previous samples, above 0 and at most 1.
    """
    new = jnp.concatenate([rows, tau[:, None]], axis=1) / noise[:, None]
    root = jnp.sqrt(jnp.asarray(forgetting, state.r.dtype))
    return RecursiveState(jnp.linalg.qr(jnp.concatenate([root * state.r, new]), mode="r"))


def recursive_values(state: RecursiveState) -> tuple[Float[Array, " b"], Float[Array, " b"]]:
    """Compute the base parameters and their standard deviations, in SI units.

    The results are not finite until there are enough samples to determine all parameters.
    """
    r = state.r[:-1, :-1]
    inverse = jax.scipy.linalg.solve_triangular(r, jnp.eye(len(r), dtype=r.dtype))
    return inverse @ state.r[:-1, -1], jnp.sqrt((inverse**2).sum(1))


# -- split half


@dataclasses.dataclass(frozen=True, eq=False)
class SplitHalf:
    """Agreement between two estimates from disjoint data.

    Attributes:
        names: names of the base parameters.
        differences: (b,) first minus second estimate, in standard deviations of the difference.
        of_motion: True if a motion is repeated, and the halves are those of the motion, each from all repetitions.
    """

    names: tuple[str, ...]
    differences: Float[np.ndarray, " b"]
    of_motion: bool = False

    @property
    def share(self) -> float:
        """Fraction of the base parameters that agree within two standard deviations; 0.95 is expected."""
        return float(np.mean(np.abs(self.differences) <= AGREEING))

    @property
    def rms(self) -> float:
        """RMS of the differences, in standard deviations; 1 is expected."""
        return float(np.sqrt(np.mean(self.differences**2)))

    @property
    def disagreeing(self) -> tuple[str, ...]:
        """Names of the parameters that disagree, largest difference first."""
        order = np.argsort(-np.abs(self.differences))
        return tuple(self.names[k] for k in order if abs(self.differences[k]) > AGREEING)

    def __str__(self) -> str:
        agree = len(self.names) - len(self.disagreeing)
        of = "repeated motion" if self.of_motion else "data"
        text = f"the two halves of the {of} agree on {agree} of {len(self.names)} base parameters within 2 standard deviations"
        if not self.disagreeing:
            return text
        listed = ", ".join(self.disagreeing[:3]) + (" and others" if len(self.disagreeing) > 3 else "")
        return f"{text}, but not on {listed}"


def agreement(names: tuple[str, ...], first: Estimate, second: Estimate) -> SplitHalf:
    """Differences (x_k - y_k) / sqrt(s_k^2 + r_k^2) of two estimates x +- s and y +- r from disjoint data."""
    deviations = np.hypot(first.standard_deviations, second.standard_deviations)
    off = first.values - second.values
    return SplitHalf(names, np.divide(off, deviations, out=np.zeros_like(off), where=deviations > 0))


def split_half(blocks: BlockFactors, base: BaseParameters, independence: float = 1.0) -> SplitHalf | None:
    """Compare weighted least-squares fits to the first and the second half of the data.

    If there are several runs, the first half contains the first runs. If the runs repeat a motion, the halves are those
    of the motion, because errors of the model repeat with it: two repetitions would agree whatever the model lacks.
    Returns None if either half alone does not determine the base parameters.
    """
    if blocks.order_of_groups.max() < 1:
        return None
    try:
        first, second = (solve(half, base, independence=independence) for half in blocks.halves)
    except IdentificationError:
        return None
    return dataclasses.replace(agreement(base.names, first, second), of_motion=blocks.groups is not None)

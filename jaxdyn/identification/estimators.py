"""Total least squares, for regressors with errors of known covariance.

Instrumental variables from a simulation of the robot, to remove the bias due to noise in the measured regressor.

Iteratively reweighted least squares, which reduces the weight of outliers.

Recursive least squares: online estimation that updates a triangular factor with each sample.

Essential parameters: the base parameters needed to predict torques without a noticeable loss of accuracy.

Comparison of estimators by figures of merit."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .._summary import data_frame
from ..errors import IdentificationError
from .base import BaseParameters, stacked
from .factors import (
    BLOCKS,
    LEFT_OUT,
    QRFactors,
    block_edges,
    least_squares_covariance,
    left_out_covariance,
    weighted_blocks,
)
from .filters import differentiate, low_pass
from .least_squares import (
    Estimate,
    EstimationProblem,
    estimate_ols,
    estimate_wls,
    inverse_noise,
    relative_step,
    solve_factors,
    with_blocks,
)
from .output_error import at_samples, check_loops, estimate_cloe, estimate_didim, motion, shortened

MOST_NOISE = 0.5  # largest permissible share of noise in any combination of columns


def estimate_tls(problem: EstimationProblem, errors: Float[np.ndarray, "n c c"] | None = None) -> Estimate:
    """Generalised total least squares, for errors in the regressor and the torques.

    Minimises |[W tau] x|^2 / x^T C x, with x = (base, -1) and the covariance C of the errors of [W tau]. Unlike
    ordinary least squares, this does not bias parameters with noisy columns towards zero (Van Huffel & Vandewalle 1991,
    ch. 10). Rows are weighted as in `estimate_wls`.

    C must be known up to a scale factor; `row_errors` derives it from the noise of positions and torques. By default,
    all columns are assumed to have equal relative errors, except for constant columns, which have none. This textbook
    assumption rarely holds for robots. An error is raised if it would attribute more than half of some combination of
    columns to noise.

    Args:
        problem: the problem.
        errors: for each joint, the (c, c) covariance of the errors of a row [W_j, tau_j], with c = b + 1.

    Raises:
        IdentificationError: the covariances have the wrong shape; the errors exceed the regressor; or `errors` is None,
            and under the default assumption more than half of some combination of columns would be noise.
    """
    start = estimate_wls(problem)
    kept, b = problem.base.kept, problem.base.size
    factors = problem.factors
    runs, n = len(problem.samples), problem.chain.nv
    assert start.run_noise is not None
    weights = inverse_noise(start.run_noise.reshape(-1))
    r = np.asarray(np.linalg.qr(stacked(factors, weights)[:, [*kept, -1]], mode="r"))
    norms = np.linalg.norm(r, axis=0)
    counts = factors.counts.reshape(runs, n)
    if errors is None:
        constant = np.array([problem.base.names[k].startswith("off") for k in range(b)] + [False])
        c = np.diag(np.where(constant, 0.0, norms**2))
    elif np.shape(errors) != (n, b + 1, b + 1):
        raise IdentificationError(
            f"errors have shape {np.shape(errors)}; it must be {(n, b + 1, b + 1)}, with one matrix per joint"
        )
    else:
        share = (counts * (weights.reshape(runs, n) ** 2)).sum(0)
        c = np.einsum("j,jkl->kl", share, np.asarray(errors, float))
    scaled = r / norms
    if abs(scaled[-1, -1]) < 1e-9:  # no errors at all: the columns are exactly linearly dependent
        return dataclasses.replace(start, method="TLS")
    inverse = np.linalg.inv(scaled)
    sizes, vectors = np.linalg.eigh(inverse.T @ (c / norms[:, None] / norms[None]) @ inverse)
    x = inverse @ vectors[:, -1] / norms
    if abs(x[-1]) < 1e-12 * np.abs(x * norms).max() / norms[-1] or sizes[-1] <= 0:
        raise IdentificationError("the errors exceed the regressor; specify smaller errors")
    values = -x[:-1] / x[-1]
    inexact = 1 / sizes[-1]  # factor that scales C to the actual errors of the rows
    if errors is None:
        _check_share(problem, r, inexact * c)
    gram = r[:, :-1].T @ r[:, :-1]
    inner = np.linalg.inv(gram - inexact * c[:-1, :-1])
    residual = np.append(values, -1)
    spread = ((r @ residual) ** 2).sum() / max(counts.sum() - b / problem.independence, 1)
    independent = spread / problem.independence * inner @ gram @ inner
    parts = weighted_blocks(problem.blocks, np.append(kept, -1), weights.reshape(runs, n))
    rows = problem.blocks.left_out.counts.sum(1)
    errors_of = [inexact * share * c for share in rows / rows.sum()]
    grams = np.stack([part.T @ part - own for part, own in zip(parts, errors_of, strict=True)])
    shares = np.stack([inner @ g[:-1, :-1] for g in grams])
    scores = -np.stack([inner @ (g @ residual)[:-1] for g in grams])
    return dataclasses.replace(
        start,
        values=values,
        covariance=left_out_covariance(shares, scores, np.eye(b), independent),
        independent=independent,
        joint_residuals=problem.pooled.joint_rms(kept, values),
        method="TLS",
        iterations=1,
        history=(),
        converged=True,
    )


def _check_share(problem: EstimationProblem, r: Float[np.ndarray, "c c"], noise: Float[np.ndarray, "c c"]) -> None:
    """Raise an error if noise accounts for more than half of the sum of squares of some combination of columns."""
    inverse = np.linalg.inv(r[:-1, :-1])
    shares, directions = np.linalg.eigh(inverse.T @ noise[:-1, :-1] @ inverse)
    if shares[-1] > MOST_NOISE:
        direction = np.abs(inverse @ directions[:, -1]) * np.linalg.norm(r[:, :-1], axis=0)
        names = " and ".join(problem.base.names[k].split(" ")[0] for k in np.argsort(-direction)[:2])
        raise IdentificationError(
            "without `errors`, total least squares assumes that all columns are equally noisy; "
            f"{100 * shares[-1]:.0f} % of the difference between {names} would then be noise",
            "pass {errors}, from the noise of positions and torques, or use estimate_wls",
            errors="row_errors(problem, position, torque)",
        )


def row_errors(
    problem: EstimationProblem,
    position: float | Float[np.ndarray, " n"],
    torque: float | Float[np.ndarray, " n"],
    seed: int = 0,
) -> Float[np.ndarray, "n c c"]:
    """Estimate the covariance of the errors of a row [W_j, tau_j] by adding noise to the positions of the runs.

    White noise at the sample rate is low-pass filtered like the samples, scaled to the given standard deviation,
    differentiated twice, and added to the motion. The covariance of each joint's columns is computed from the resulting
    change of W.

    Args:
        problem: the problem.
        position: standard deviation of the noise of the filtered positions [rad or m].
        torque: standard deviation of the noise of the filtered torques [N m or N].
        seed: seed for the random noise.

    Memory: 16 N n b bytes for two regressors of all samples.
    """
    rng = np.random.default_rng(seed)
    n, b = problem.chain.nv, problem.base.size
    total, count = np.zeros((n, b + 1, b + 1)), np.zeros(n)
    for s, mask in zip(problem.samples, problem.weights, strict=True):
        dq = np.zeros_like(s.q)
        dqd, dqdd = np.zeros_like(dq), np.zeros_like(dq)
        for first, last in s.segments:
            white = rng.normal(size=(last - first, n))
            coloured = low_pass(white, s.rate, s.position_cutoff) if s.position_cutoff < 0.45 * s.rate else white
            part = coloured / coloured.std(0) * position
            dq[first:last] = part
            dqd[first:last] = differentiate(part, s.rate)
            dqdd[first:last] = differentiate(dqd[first:last], s.rate)
        change = problem.rows(s.q + dq, s.qd + dqd, s.qdd + dqdd) - problem.rows(s.q, s.qd, s.qdd)
        change = change * (mask > 0)[:, :, None]
        total[:, :b, :b] += np.einsum("tjk,tjl->jkl", change, change, optimize=True)
        count += (mask > 0).sum(0)
    out = total / np.maximum(count, 1)[:, None, None]
    out[:, b, b] = np.broadcast_to(torque, n) ** 2
    return out


# -- instrumental


def estimate_iv(problem: EstimationProblem, tolerance: float = 1e-3, iterations: int = 10) -> Estimate:
    """Estimate base parameters by instrumental variables from a simulated closed loop (IDIM-IV).

    Computes base = (Z^T W)^-1 Z^T tau, where W is the regressor of the measured motion. The instruments Z = W(q_s,
    qd_s, qdd_s) are the regressor of the simulated motion.

    Least squares is biased, because position noise affects W and, through the controller, tau. The simulated motion
    follows the reference and is free of noise, so Z is uncorrelated with the noise, and the estimate is statistically
    consistent (Janot, Vandanjon & Gautier 2014). Each step simulates the robot with the parameters from the previous
    step. Each joint of each run is weighted by the inverse of its noise.

    Args:
        problem: the estimation problem, which must contain closed loops.
        tolerance: relative step of the values below which the iteration has converged.
        iterations: maximum number of steps.

    Raises:
        IdentificationError: the problem has no closed loops; a loop is unstable or does not cover the time range of its
            run; the data do not excite a parameter; or the instruments do not determine the parameters separately.

    Cost: one simulation per step and run. Memory: 16 N n b bytes for two regressors of N samples, n joints and b base
    parameters.
    """
    check_loops(problem, "IV")
    values = problem.initial
    values, instruments, simulations = shortened(problem, values, values, "IV")
    runs, n, b = len(problem.samples), problem.chain.nv, problem.base.size
    measured = problem.measured_rows()
    counts = np.array([(m > 0).sum(0) for m in problem.weights])
    noise = np.ones((runs, n))
    history: list[float] = []
    while True:
        z, w, y = (
            np.concatenate([(x * (m / s)[(...,) + (None,) * (x.ndim - 2)]).reshape(-1, *x.shape[2:]) for x, m, s in zip(
                parts, problem.weights, 1 / inverse_noise(noise.reshape(-1)).reshape(runs, n), strict=True
            )])
            for parts in (instruments, measured, problem.torques)
        )  # fmt: skip
        scale = np.linalg.norm(w, axis=0)
        if np.any(scale == 0):
            raise IdentificationError(f"the data do not excite {problem.base.names[int(np.argmin(scale))]!r}")
        q, r = np.linalg.qr(z / np.linalg.norm(z, axis=0))
        mixed = q.T @ (w / scale)
        u, singular, vt = np.linalg.svd(mixed)
        if singular[-1] < 1e-12 * singular[0] or np.abs(np.diag(r)).min() < 1e-12:
            worst = problem.base.names[int(np.argmax(np.abs(vt[-1])))]
            raise IdentificationError(
                f"the instruments do not determine {worst!r} separately: use a more informative reference motion"
            )
        inverse = (vt.T / singular) @ u.T
        new = inverse @ (q.T @ y) / scale
        errors = [tau - x @ new for tau, x in zip(problem.torques, measured, strict=True)]
        squares = np.array([((e * m) ** 2).sum(0) for e, m in zip(errors, problem.weights, strict=True)])
        spent = b / problem.independence / counts.sum()
        first = not history
        noise = np.sqrt(squares / np.maximum(counts * (1 - spent), 1))
        history.append(relative_step(new, values))
        rest = history[-1] < tolerance and not first
        if rest or len(history) >= iterations:
            break
        values, instruments, tried = shortened(problem, values, new, "IV")
        simulations += tried
    variance = ((y - w @ new) ** 2).sum() / (counts.sum() * (1 - spent)) / problem.independence
    spread = inverse / scale[:, None]
    independent = variance * (spread @ spread.T)
    parts = _blocks(problem)
    shares = np.stack([inverse @ (q[part].T @ (w[part] / scale)) for part in parts])
    scores = np.stack([inverse @ (q[part].T @ (y[part] - w[part] @ new)) for part in parts])
    found = Estimate(
        values=new,
        covariance=independent,
        noise=np.sqrt((noise**2).mean(0)),
        condition=float(np.linalg.cond(z)),
        scaled_condition=float(singular[0] / singular[-1]),
        joint_residuals=np.sqrt(squares.sum(0) / np.maximum(counts.sum(0), 1)),
        method="IV",
        run_noise=noise,
        iterations=len(history),
        simulations=simulations,
        history=tuple(history),
        converged=bool(rest),
        degrees=float(counts.sum() * problem.independence - b),
    )
    return found.with_covariance(left_out_covariance(shares, scores, np.diag(1 / scale), independent), len(parts))


def _blocks(problem: EstimationProblem) -> list[slice | Int[np.ndarray, " m"]]:
    """Rows of the jackknife blocks in the concatenated rows of all runs, with n rows per sample."""
    n, lengths = problem.chain.nv, [len(s) for s in problem.samples]
    if problem.groups is not None:
        groups = np.repeat(np.concatenate(problem.groups) * LEFT_OUT // BLOCKS, n)
        return [np.flatnonzero(groups == k) for k in np.unique(groups)]
    starts = np.cumsum([0, *lengths[:-1]]).tolist()
    edges = zip(starts, block_edges(lengths, LEFT_OUT), strict=True)
    return [slice(n * (start + a), n * (start + b)) for start, run in edges for a, b in run]


# -- robust


def estimate_irls(
    problem: EstimationProblem, threshold: float = 1.345, tolerance: float = 1e-4, iterations: int = 30
) -> Estimate:
    """Robust M-estimate with Huber's loss function, computed by iteratively reweighted least squares.

    Minimises the sum of rho(u) over all rows, with the scaled residuals u = (tau - W base) / s. Huber's loss rho is
    quadratic for |u| up to the threshold and linear beyond. The noise s of joint j in run r is computed from the median
    of |tau - W base|. Each iteration multiplies the rows by sqrt(min(1, threshold / |u|)) and accumulates the regressor
    again (Huber 1964; Holland & Welsch 1977). This limits the influence of outliers, collisions and friction at rest.

    Args:
        problem: the problem.
        threshold: largest residual with full weight, in standard deviations. With 1.345, the estimate is 95 % as
            efficient as least squares if the noise is normally distributed.
        tolerance: relative step of the values below which the iteration has converged.
        iterations: maximum number of iterations.

    Raises:
        IdentificationError: as for `estimate_wls`.

    Cost: one pass over the samples per iteration.
    """
    estimate = estimate_wls(problem)
    history: list[float] = []
    blocks, held = problem.blocks, np.ones(problem.chain.nv * len(problem.samples))
    scale, residuals = _residuals(problem, estimate.values)
    while len(history) < iterations:
        weights = []
        for mask, error, size in zip(problem.weights, residuals, scale, strict=True):
            light = np.sqrt(np.minimum(1, threshold * size / np.maximum(np.abs(error), 1e-300)))
            weights.append(mask * np.where(size > 0, light, 1.0))
        blocks, held = problem.accumulated(weights), inverse_noise(scale.reshape(-1))
        update = solve_factors(blocks.by_run, problem.base, held, problem.independence)
        history.append(relative_step(update.values, estimate.values))
        estimate = update
        scale, residuals = _residuals(problem, estimate.values)
        if history[-1] < tolerance:
            break
    masks = problem.weights
    inside = [
        m * (np.abs(e) <= threshold * np.maximum(s, 1e-300)) for m, e, s in zip(masks, residuals, scale, strict=True)
    ]
    columns, rows = np.append(problem.base.kept, -1), held.reshape(scale.shape)
    curved = [part[:, :-1] for part in weighted_blocks(problem.accumulated(inside), columns, rows)]
    independent, own = _independent(problem, scale, residuals, threshold, np.concatenate(curved))
    covariance = least_squares_covariance(weighted_blocks(blocks, columns, rows), estimate.values, own, curved)
    return dataclasses.replace(
        dataclasses.replace(estimate, covariance=independent).with_covariance(covariance, len(curved)),
        noise=np.sqrt((scale**2).mean(0)),
        run_noise=scale,
        joint_residuals=np.sqrt(
            sum(((e * (m > 0)) ** 2).sum(0) for e, m in zip(residuals, masks, strict=True))
            / np.maximum(sum((m > 0).sum(0) for m in masks), 1)
        ),
        method="IRLS",
        iterations=len(history),
        history=tuple(history),
        converged=history[-1] < tolerance,
        notes=(*estimate.notes, *_outliers(problem, scale, residuals)),
    )


def _residuals(problem: EstimationProblem, values: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Robust standard deviations (runs, n), and the residuals of each run [N m or N]."""
    residuals = [tau - p for tau, p in zip(problem.torques, problem.predictions(values), strict=True)]
    used = [np.where(m > 0, np.abs(e), np.nan) for e, m in zip(residuals, problem.weights, strict=True)]
    return np.stack([np.nan_to_num(np.nanmedian(u, axis=0)) for u in used]) / 0.6745, residuals


def _independent(
    problem: EstimationProblem, scale: np.ndarray, residuals: list[np.ndarray], threshold: float, curved: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Covariance of an M-estimate for independent rows, E[psi^2] / E[psi']^2 (W^T S^-2 W)^-1 (Huber 1981, sec. 7.6).

    psi is the derivative of rho, and S is the noise of the rows. Also returns E[psi^2] / E[psi'] (V^T V)^-1, where V
    consists of the rows with residuals within the threshold. The two covariances are equal if outliers are evenly
    distributed.
    """
    u = np.concatenate(
        [(e / np.maximum(s, 1e-300))[m > 0] for e, s, m in zip(residuals, scale, problem.weights, strict=True)]
    )
    b = problem.base.size
    spread = (np.clip(u, -threshold, threshold) ** 2).sum() / max(len(u) - b / problem.independence, 1)
    r = stacked(problem.factors, inverse_noise(scale.reshape(-1)))[:, problem.base.kept]
    slope = max(float((np.abs(u) <= threshold).mean()), 1e-3)
    inverses = [np.linalg.pinv(np.linalg.qr(x, mode="r")) for x in (r, curved)]
    first, second = (spread / slope / problem.independence * (inverse @ inverse.T) for inverse in inverses)
    return first / slope, second


def _outliers(problem: EstimationProblem, scale: np.ndarray, residuals: list[np.ndarray]) -> list[str]:
    counts = [((np.abs(e) > 4 * s) & (m > 0)).sum(0) for e, s, m in zip(residuals, scale, problem.weights, strict=True)]
    total = np.sum(counts, axis=0)
    worst = int(np.argmax(total))
    return (
        [
            f"{total[worst]} samples of {problem.chain.joint_names[worst]} have residuals of more than 4 standard deviations"
        ]
        if total[worst]
        else []
    )


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
        deviations: standard deviations of the prior. Infinity means no prior knowledge; `recursive_values` then needs
            at least as many rows as parameters.
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

    Args:
        state: the state after the last sample.
    """
    r = state.r[:-1, :-1]
    inverse = jax.scipy.linalg.solve_triangular(r, jnp.eye(len(r), dtype=r.dtype))
    return inverse @ state.r[:-1, -1], jnp.sqrt((inverse**2).sum(1))


@jax.jit
def _scan(state, forgetting, samples):
    def step(held, sample):
        rows, tau, noise = sample
        return recursive_step(held, rows, tau, noise, forgetting), None

    return jax.lax.scan(step, state, samples)[0]


def recursive_path(
    problem: EstimationProblem,
    every: int = 100,
    forgetting: float = 1.0,
    noise: Float[np.ndarray, " n"] | None = None,
    start: RecursiveState | None = None,
) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, "k b"], Float[np.ndarray, "k b"], RecursiveState]:
    """Compute recursive estimates at regular intervals along all runs.

    Args:
        problem: the problem.
        every: number of samples between two estimates.
        forgetting: factor that multiplies the weights of all previous samples at each sample, as in `recursive_step`.
        noise: standard deviation of each joint's torque [N m or N]; by default that of `estimate_wls`.
        start: initial state; by default `recursive_start` without prior knowledge.

    Returns:
        The times of the estimates [s], the estimates, their standard deviations, and the final state.

    Raises:
        IdentificationError: `forgetting` is not above 0 and at most 1.

    Memory: 8 N n b bytes for the base regressors of all runs.
    """
    if not 0 < forgetting <= 1:
        raise IdentificationError(f"forgetting is {forgetting:g}; it must be above 0 and at most 1")
    scale = estimate_wls(problem).noise if noise is None else np.asarray(noise, float)
    inverse = inverse_noise(scale)
    times, values, deviations = [], [], []
    with jax.enable_x64(True):
        state = recursive_start(jnp.zeros(problem.base.size)) if start is None else start
        runs = zip(problem.samples, problem.measured_rows(), problem.torques, problem.weights, strict=True)
        for s, rows, tau, mask in runs:
            with np.errstate(divide="ignore"):
                sizes = 1 / (mask * inverse)
            for at in range(0, len(s), every):
                part = tuple(jnp.asarray(x[at : at + every]) for x in (rows, tau, sizes))
                state = _scan(state, forgetting, part)
                now, deviation = recursive_values(state)
                times.append(s.t[min(at + every, len(s)) - 1])
                values.append(np.asarray(now))
                deviations.append(np.asarray(deviation))
    return np.array(times), np.stack(values), np.stack(deviations), state


def estimate_recursive(problem: EstimationProblem, forgetting: float = 1.0) -> Estimate:
    """Estimate base parameters by recursive least squares on all samples.

    With forgetting = 1, the values equal those of weighted least squares. With forgetting < 1, the covariance is based
    on the effective number of samples. Joints are weighted by the inverse of the noise from `estimate_wls`. Correlated
    residuals increase the standard deviations by the same factors as in `estimate_wls`.

    Args:
        problem: the problem.
        forgetting: factor that multiplies the weights of all previous samples at each sample.

    Raises:
        IdentificationError: `forgetting` is not above 0 and at most 1; see `estimate_wls` for other causes.
    """
    batch = estimate_wls(problem)
    *_, state = recursive_path(problem, 1000, forgetting, batch.noise)
    base = problem.base
    r = np.zeros((1, len(state.r), len(problem.prior) + 1))
    r[0][:, [*base.kept, -1]] = np.asarray(state.r)
    seen = sum((m > 0).sum() for m in problem.weights)
    samples = max(len(s) for s in problem.samples)
    remembered = seen if forgetting == 1 else seen / samples * (1 - forgetting**samples) / (1 - forgetting)
    found = solve_factors(QRFactors(r, np.array([remembered])), base, np.ones(1), problem.independence)
    residuals = [tau - p for tau, p in zip(problem.torques, problem.predictions(found.values), strict=True)]
    rms = np.sqrt(np.concatenate([e**2 * (m > 0) for e, m in zip(residuals, problem.weights, strict=True)]).mean(0))
    larger = batch.standard_deviations / np.sqrt(np.diag(batch.independent_covariance))
    return Estimate(
        values=found.values,
        covariance=found.covariance * np.outer(larger, larger),
        independent=found.covariance,
        noise=batch.noise,
        condition=found.condition,
        scaled_condition=found.scaled_condition,
        joint_residuals=rms,
        method="RLS",
        iterations=int(max(len(s) for s in problem.samples)),
        degrees=min(found.degrees, batch.degrees),
    )


# -- essential


class Elimination(NamedTuple):
    """Removal of one base parameter, and its effect on the fit.

    Attributes:
        name: name of the parameter.
        relative_deviation: relative standard deviation of the parameter in the last fit that included it, assuming
            independent residuals [%].
        residual: increase in the weighted RMS residual relative to the fit of all parameters [%].
        probability: p-value of the F-test for all parameters removed so far. It is the probability of at least this
            increase in the residual if the true values of these parameters were zero.
    """

    name: str
    relative_deviation: float
    residual: float
    probability: float


@dataclasses.dataclass(frozen=True, eq=False)
class EssentialParameters:
    """The essential base parameters.

    Attributes:
        base: the essential base parameters. All other base parameters are taken as zero, so the torques are predicted
            by the columns W[:, base.kept] alone.
        estimate: estimate of the essential parameters by weighted least squares.
        eliminated: the removed parameters, in order of removal.
        stopped: the reason why the elimination stopped.
    """

    base: BaseParameters
    estimate: Estimate
    eliminated: tuple[Elimination, ...]
    stopped: str


def essential_parameters(
    problem: EstimationProblem, ratio: float = 10.0, significance: float = 0.05, rise: float = 1.0
) -> EssentialParameters:
    """Repeatedly remove the least certain base parameter and refit, until a removal would noticeably worsen the fit.

    Each step removes the parameter with the largest relative standard deviation, assuming independent residuals (Khalil
    & Dombre 2002, sec. 12.6.4; Gautier 1997). The elimination stops in any of these cases:

    - the largest relative standard deviation is below `ratio` times the smallest;
    - the removed parameters are significant according to the F-test;
    - the residual would increase by more than `rise` percent;
    - only one parameter is left.

    All fits use the weights of `estimate_wls` with all parameters, so that their residuals are comparable.

    Args:
        problem: the problem.
        ratio: ratio of the largest to the smallest relative standard deviation below which the elimination stops.
        significance: significance level of the F-test; 0 disables it.
        rise: maximum increase in the weighted RMS residual [%].

    Raises:
        IdentificationError: as for `estimate_wls`.

    Cost: O(b^3) per removed parameter for b base parameters; the samples are read only once.
    """
    from scipy import stats  # slow to import

    whole = estimate_wls(problem)
    assert whole.run_noise is not None
    factors, weights = problem.factors, inverse_noise(whole.run_noise.reshape(-1))
    base, estimate = problem.base, solve_factors(factors, problem.base, weights, problem.independence)
    total = factors.counts.sum() * problem.independence
    first = _squares(factors, base, estimate, weights)
    degrees = total - problem.base.size
    out: list[Elimination] = []
    while True:
        relative = np.nan_to_num(estimate.relative_standard_deviations, nan=np.inf)
        worst = int(np.argmax(relative))
        if relative[worst] < ratio * relative.min():
            stopped = (
                f"the largest relative standard deviation, {relative[worst]:.3g} % for {base.names[worst]!r}, "
                f"is within a factor of {ratio:g} of the smallest"
            )
            break
        if base.size == 1:
            stopped = "only one parameter is left"
            break
        fewer = _without(base, worst)
        trial = solve_factors(factors, fewer, weights, problem.independence)
        squares = _squares(factors, fewer, trial, weights)
        f = (squares - first) / (len(out) + 1) / (first / degrees)  # independence cancels
        probability = float(stats.f.sf(max(f, 0.0), len(out) + 1, degrees))
        residual = 100 * (np.sqrt(squares / first) - 1)
        if probability < significance:
            stopped = (
                f"without {base.names[worst]!r} the fit would be significantly worse (F-test, p = {probability:.2g})"
            )
            break
        if residual > rise:
            stopped = f"without {base.names[worst]!r} the residual would be {residual:.2g} % larger"
            break
        out.append(Elimination(base.names[worst], float(relative[worst]), float(residual), probability))
        base, estimate = fewer, trial
    held = weights.reshape(len(problem.samples), -1)
    estimate = with_blocks(dataclasses.replace(estimate, method="essential"), problem.blocks, base, held)
    return EssentialParameters(base, estimate, tuple(out), stopped)


def _without(base: BaseParameters, row: int) -> BaseParameters:
    keep = np.arange(base.size) != row
    names = tuple(name for name, kept in zip(base.names, keep, strict=True) if kept)
    return dataclasses.replace(base, kept=base.kept[keep], matrix=base.matrix[keep], names=names)


def _squares(factors: QRFactors, base: BaseParameters, estimate: Estimate, weights: np.ndarray) -> float:
    error = factors.r[:, :, -1] - factors.r[:, :, base.kept] @ estimate.values
    return float(((error**2).sum(1) * weights**2).sum())


# -- compare

Estimator = Callable[[EstimationProblem], Estimate]
LINEAR: tuple[Estimator, ...] = (estimate_ols, estimate_wls, estimate_irls, estimate_tls, estimate_recursive)
SIMULATING: tuple[Estimator, ...] = (estimate_iv, estimate_didim, estimate_cloe)


class Merit(NamedTuple):
    """Figures of merit of one estimate (Leboutet et al. 2021).

    Attributes:
        torque: relative error of the predicted torques, d_tau = 100 |tau - W base| / |tau|, averaged over the runs [%].
        position: relative error of the positions q_s of the simulated closed loop, d_q = 100 |q - q_s| / |q|, averaged
            over the runs [%]. NaN if the problem has no closed loops; infinite if a loop is unstable.
        parameters: mean relative error of the b base parameters, d_beta = 200 / b sum |base - true| / (|base| + |true|)
            [%]. NaN if the true parameters are unknown.
        seconds: computation time d_t [s], including compilation on the first call with new array shapes.
        iterations: number of iterations N_it.
        simulations: number of simulations N_sim; a simulation and its sensitivities together count as one.
    """

    torque: float
    position: float
    parameters: float
    seconds: float
    iterations: int
    simulations: int


def figures_of_merit(
    problem: EstimationProblem,
    estimate: Estimate,
    truth: Float[np.ndarray, " b"] | None = None,
    seconds: float = np.nan,
) -> Merit:
    """Compute the figures of merit of an estimate on the runs of a problem.

    Args:
        problem: problem whose runs are predicted; they may differ from the runs used for the estimate.
        estimate: the estimate.
        truth: true base parameters, if known.
        seconds: computation time of the estimate [s].
    """
    pairs = zip(problem.torques, problem.predictions(estimate.values), strict=True)
    torque = np.mean([np.linalg.norm(tau - p) / np.linalg.norm(tau) for tau, p in pairs])
    position = []
    for run in range(len(problem.loops)):
        moved = motion(problem, run, estimate.values)
        q = problem.samples[run].q
        if moved is None:
            position.append(np.inf)
        else:
            error = q - at_samples(problem, run, moved.q, problem.samples[run].position_cutoff)
            position.append(np.linalg.norm(error) / np.linalg.norm(q))
    parameters = np.nan
    if truth is not None:
        size = np.abs(estimate.values) + np.abs(truth)
        parameters = 200 * float(np.mean(np.abs(estimate.values - truth) / np.where(size > 0, size, 1)))
    d_q = 100 * float(np.mean(position)) if position else np.nan
    return Merit(100 * float(torque), d_q, parameters, seconds, estimate.iterations, estimate.simulations)


@dataclasses.dataclass(frozen=True, eq=False)
class EstimatorComparison:
    """Comparison of several estimates for one problem.

    Attributes:
        names: names of the base parameters.
        estimates: one estimate per successful method.
        merits: figures of merit of each of the `estimates`.
        failures: name of each method that failed, with its error message.
    """

    names: tuple[str, ...]
    estimates: tuple[Estimate, ...]
    merits: tuple[Merit, ...]
    failures: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        """One line per method."""
        lines = [
            f"{'method':8s}{'d_tau %':>9s}{'d_q %':>9s}{'d_beta %':>10s}{'d_t s':>8s}{'N_it':>6s}{'N_sim':>7s}  converged"
        ]
        for estimate, m in zip(self.estimates, self.merits, strict=True):
            lines.append(
                f"{estimate.method:8s}{m.torque:9.3f}{m.position:9.4f}{m.parameters:10.3f}{m.seconds:8.2f}{m.iterations:6d}"
                f"{m.simulations:7d}  {'yes' if estimate.converged else 'no'}"
            )
        return "\n".join([*lines, *(f"{name:8s}{reason}" for name, reason in self.failures)])

    def to_pandas(self) -> Any:
        """Return figures of merit and convergence as a `pandas.DataFrame` with one row per successful method.

        Raises:
            ImportError: pandas is not installed.
        """
        columns = {name: [getattr(merit, name) for merit in self.merits] for name in Merit._fields}
        columns["converged"] = [estimate.converged for estimate in self.estimates]
        return data_frame(columns, [estimate.method for estimate in self.estimates], "method")


def compare_estimators(
    problem: EstimationProblem,
    estimators: Sequence[Estimator] | None = None,
    truth: Float[np.ndarray, " b"] | None = None,
    check: EstimationProblem | None = None,
) -> EstimatorComparison:
    """Solve one problem with several estimators and compare their figures of merit.

    `print` the result to see it as a table. If an estimator raises an `IdentificationError`, its name and the message
    are added to `failures`, and the comparison continues.

    Args:
        problem: the problem.
        estimators: functions that take an estimation problem and return an estimate; by default all linear estimators
            and, if the problem has closed loops, those that simulate the robot.
        truth: true base parameters, if known.
        check: problem whose runs are used to evaluate the torque and position errors; by default `problem`.
    """
    chosen = estimators or (*LINEAR, *(SIMULATING if problem.loops else ()))
    estimates, merits, failures = [], [], []
    for estimator in chosen:
        start = time.perf_counter()
        try:
            estimate = estimator(problem)
        except IdentificationError as error:
            failures.append((getattr(estimator, "__name__", "?").removeprefix("estimate_").upper(), str(error)))
            continue
        seconds = time.perf_counter() - start
        estimates.append(estimate)
        merits.append(figures_of_merit(check or problem, estimate, truth, seconds))
    return EstimatorComparison(problem.base.names, tuple(estimates), tuple(merits), tuple(failures))

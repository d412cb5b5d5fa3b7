"""Recursive least squares: online estimation that updates a triangular factor with each sample."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...errors import IdentificationError
from .._regression.factors import QRFactors
from .estimate import Estimate
from .least_squares import estimate_wls, inverse_noise, solve_factors
from .problem import EstimationProblem


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

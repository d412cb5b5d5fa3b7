"""Total least squares, for regressors with errors of known covariance."""

import dataclasses

import numpy as np
from jaxtyping import Float

from ...errors import IdentificationError
from .._preprocessing.filters import differentiate, low_pass
from .._regression.base_parameters import stacked
from .._regression.blocks import left_out_covariance, weighted_blocks
from .estimate import Estimate
from .least_squares import estimate_wls, inverse_noise
from .problem import EstimationProblem

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

"""The delay between position and torque signals: estimated for every joint from a run, and taken out of a log."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Bool, Float
from scipy import interpolate

from ..errors import LogError
from ..io._logs.log import Log
from ..model._chain import Chain
from ._payload.loaded_runs import FRICTION_TERMS, Model, columns_of, friction_columns, model_of
from ._preprocessing.samples import LEAST_SAMPLES, Filters, Samples, left_out_deviations, preprocess_alike
from ._regression.accumulate import CHUNK
from ._regression.blocks import RowBlocks, below, equal_blocks
from ._regression.factors import triangle_of

BLOCKS = 20  # stretches of the run that are left out in turn
SHIFTS = 10  # to either side of none
LOAD_PASSES = 3  # the load that friction depends on is known from the pass before


@dataclasses.dataclass(frozen=True, eq=False)
class Delay:
    """How much later than the position each joint's torque was recorded.

    Attributes:
        seconds: the torque logged at t belongs to the positions logged at t - seconds.
        standard_deviations: of them, from fits that leave out a twentieth of the run in turn.
        inside: whether the best fit lies within the shifts tried; a delay is not to be believed where it does not.
        gain: how much smaller the residual torque is without the delay, RMS [%].
        shifts: those tried [s].
        residuals: root mean square of each joint's residual torque at each shift [N m].
    """

    seconds: Float[np.ndarray, " n"]
    standard_deviations: Float[np.ndarray, " n"]
    inside: Bool[np.ndarray, " n"]
    gain: Float[np.ndarray, " n"]
    shifts: Float[np.ndarray, " k"]
    residuals: Float[np.ndarray, "k n"]


def estimate_delay(
    chain: Chain,
    log: Log | Samples | Sequence[Log | Samples],
    filters: Filters | None = None,
    *,
    longest: float = 0.05,
) -> Delay:
    """The shift of each joint's torque at which the motion explains it best.

    For joint j, r_j(d) = min over p of |tau_j(t + d) - W_j(t) p|, with parameters p of the joint's own, so that neither wrong
    gains nor another joint's delay matter. W holds the base parameters' columns and Coulomb friction in proportion to the
    torque transmitted. Torques are shifted by cubic splines through the filtered samples; a parabola through the three
    least of r_j^2 gives the delay far below the step of the samples.

    Friction tells most of it, at every reversal: friction that builds up over a way, as in presliding, looks like a delay of
    the torque, of some milliseconds at slow reversals, and of tens of them where it is soft. `choose_settings` looks for delays
    beside such friction, by the error on stretches left out.

    Args:
        chain: the robot's kinematics and gravity; its inertias are not used.
        log: a run in which the joints move, many reversals at best; or several, which have one delay a joint.
        filters: as in `preprocess`.
        longest: shifts up to this, to either side, are tried [s].

    Raises:
        LogError: the run is too short.

    Cost: 5000 samples of 6 joints in about 2 s after compilation.
    """
    if not longest > 0:
        raise LogError(f"the longest delay to try is {longest:g} s; it is positive")
    shifts = np.linspace(-longest, longest, 2 * SHIFTS + 1)
    runs = []
    for run in preprocess_alike(log, filters):
        if run.n != chain.n:
            raise LogError(f"the log has {run.n} joints, the model has {chain.n}: {', '.join(chain.joint_names)}")
        runs.append(shifted_torques(run, shifts)[:2])
    count = sum(len(samples) for samples, _ in runs)
    with jax.enable_x64(True):
        model = model_of(chain, chain.n - 1, FRICTION_TERMS, (), known_arm=False)
        own = None  # (n, a) parameters of each joint's own
        for _ in range(LOAD_PASSES):
            factors = _factors(model, runs, own)
            total = triangle_of(below(factors))
            width = total.shape[2] - len(shifts)
            fits = [np.linalg.lstsq(r[:, :width], r[:, width + SHIFTS], rcond=1e-10)[0] for r in total]
            own = np.stack(fits)[:, : width - len(model.friction)]
    squares = _squares(total, len(shifts))
    seconds, least, inside = least_by_parabola(shifts, squares)
    values = np.stack(
        [
            least_by_parabola(shifts, _squares(triangle_of(below(np.delete(factors, b, axis=0))), len(shifts)))[0]
            for b in range(len(factors))
        ]
    )
    rms = np.sqrt(squares / count)
    none = np.where(rms[SHIFTS] > 0, rms[SHIFTS], 1.0)
    return Delay(
        seconds=seconds,
        standard_deviations=left_out_deviations(values),
        inside=inside,
        gain=100 * (1 - np.sqrt(np.maximum(least, 0) / count) / none),
        shifts=shifts,
        residuals=rms,
    )


def shifted_torques(samples: Samples, shifts: np.ndarray) -> tuple[Samples, np.ndarray, np.ndarray]:
    """The samples from which all shifts stay within their piece, (N, n, k) torques at those shifts, and the rows kept."""
    rows, torques = [], []
    for start, stop in samples.segments:
        t = samples.t[start:stop]
        inside = (t + shifts[0] >= t[0]) & (t + shifts[-1] <= t[-1])
        if len(t) < 4 or not inside.any():
            continue
        spline = interpolate.CubicSpline(t, samples.tau[start:stop])
        rows.append(start + np.flatnonzero(inside))
        torques.append(np.stack([spline(t[inside] + d) for d in shifts], axis=2))
    if sum(map(len, rows)) < LEAST_SAMPLES:
        raise LogError(
            f"no piece of the log is longer than twice the longest delay, {shifts[-1]:g} s; log a longer run"
        )
    kept = np.concatenate(rows)
    return samples.rows(kept, [(0, len(kept))]), np.concatenate(torques), kept


def _factors(
    model: Model, runs: Sequence[tuple[Samples, np.ndarray]], own: np.ndarray | None
) -> Float[np.ndarray, "blocks n w w"]:
    """Triangular factors of the columns [arm, friction, torques at all shifts]."""
    found = None
    for run, (samples, shifted) in enumerate(runs):
        for start in range(0, len(samples), CHUNK):
            part = slice(start, min(start + CHUNK, len(samples)))
            arm, _ = columns_of(model, samples, part)
            load = np.zeros(arm.shape[:2]) if own is None else np.abs(np.einsum("tja,ja->tj", arm, own))
            friction = friction_columns(model, samples.qd[part], load, 0, 1)
            rows = np.concatenate([arm, friction, shifted[part]], axis=2)
            found = found or RowBlocks([equal_blocks(len(s), BLOCKS) for s, _ in runs], *rows.shape[1:])
            found.absorb(run, start, rows)
    assert found is not None
    return found.r


def _squares(r: np.ndarray, k: int) -> np.ndarray:
    """(k, n) sums of squares that are left of the torques at each shift."""
    out = []
    for factor in r:
        w, y = factor[:, :-k], factor[:, -k:]
        norms = np.linalg.norm(w, axis=0)
        u, s, _ = np.linalg.svd(w / np.where(norms > 0, norms, 1.0), full_matrices=False)
        u = u[:, s > 1e-10 * s[0]]
        out.append(((y - u @ (u.T @ y)) ** 2).sum(axis=0))
    return np.stack(out, axis=1)


def least_by_parabola(shifts: np.ndarray, squares: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Where each column of squares is least by a parabola through its three least, how small it is, and whether inside."""
    k = np.argmin(squares, axis=0)
    inside = (k > 0) & (k < len(shifts) - 1)
    middle = np.clip(k, 1, len(shifts) - 2)
    j = np.arange(squares.shape[1])
    low, at, high = squares[middle - 1, j], squares[middle, j], squares[middle + 1, j]
    bend, slope = low - 2 * at + high, (high - low) / 2
    move = np.where(bend > 0, -slope / np.where(bend > 0, bend, 1.0), 0.0)
    move = np.where(inside, np.clip(move, -1, 1), 0.0)
    step = shifts[1] - shifts[0]
    seconds = np.where(inside, shifts[middle] + step * move, shifts[k])
    return seconds, np.where(inside, at + slope * move / 2, squares[k, j]), inside

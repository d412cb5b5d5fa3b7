"""Estimation of the delay between the position and torque signals of each joint."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Bool, Float

from ..errors import LogError
from ..io.logs import Log
from ..model.chain import Chain, coordinate_names
from .accumulate import accumulate_samples
from .base import base_parameters
from .columns import Columns
from .defaults import LEAST_SAMPLES
from .factors import as_float64, below, cleared, equal_blocks, triangle_of
from .filters import shifted_torques
from .friction_model import usual_friction
from .prediction import row_chunks
from .preprocessing import Filters, Samples, left_out_deviations, preprocess_alike

BLOCKS = 20  # jackknife blocks per run
SHIFTS = 10  # number of shifts tried on either side of zero
LATEST = 0.2  # largest delay that is looked for unasked: that of slow networks and moving averages [s]
RIGID = Columns(("armature",))
LOAD_PASSES = 3  # each pass computes load-dependent friction from the loads estimated in the previous pass


@dataclasses.dataclass(frozen=True, eq=False)
class Delay:
    """Delay of each joint's recorded torque relative to its position.

    Attributes:
        seconds: delay of each joint [s]; the torque logged at time t belongs to the positions logged at t - seconds.
        standard_deviations: standard deviations of the delays [s], from a jackknife over twenty blocks of each run.
        inside: True for joints whose best shift lies inside the tested range; the delays of the other joints are
            unreliable.
        gain: reduction of the RMS residual torque when the delay is removed [%].
        shifts: tested shifts [s].
        residuals: RMS residual torque of each joint at each shift [N m or N].
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
    """Estimate, for each joint, the time shift at which the motion best explains the logged torque.

    For joint j with torque tau_j and regressor W_j, the delay d minimises the residual

        r_j(d) = min over p of |tau_j(t + d) - W_j(t) p|

    The parameters p are fitted separately for each joint, so errors in the torque gains or delays of other joints do
    not affect the result. W_j contains the columns of the base parameters, of viscous, Coulomb and constant friction,
    and of Coulomb friction proportional to the transmitted torque.

    Torques are shifted by interpolating the filtered samples with cubic splines. The minimum of a parabola through the
    smallest r_j^2 and its two neighbours then gives the delay with a resolution much finer than the sample time.

    Velocity reversals are the most informative part of a motion, because friction changes sign there. However,
    presliding friction builds up over a distance: at a slow reversal, it looks like a torque delay of a few
    milliseconds, or of tens of milliseconds if the contact is soft. To separate the two effects, `choose_terms`
    selects delays and presliding friction together by cross-validation.

    Args:
        chain: the robot; only its kinematics and gravity are used.
        log: a run in which all joints move, ideally with many velocity reversals, or several such runs with the same
            delays.
        filters: as in `preprocess`.
        longest: largest shift tried in either direction [s].

    Raises:
        LogError: the run is too short, its number of joints differs from the chain's, or `longest` is not positive.

    Cost: about 2 s for 5000 samples of 6 joints, after compilation.
    """
    if not longest > 0:
        raise LogError(f"longest must be positive, not {longest:g} s")
    shifts, runs = np.linspace(-longest, longest, 2 * SHIFTS + 1), []
    for run in preprocess_alike(log, filters):
        if run.n != chain.nv:
            raise LogError(
                f"the log has {run.n} joints, but the model has {chain.nv}: {', '.join(coordinate_names(chain))}"
            )
        runs.append(at_shifts(run, shifts)[:2])
    count = sum(len(samples) for samples, _ in runs)
    factors, width = _factors(chain, runs, LOAD_PASSES)
    squares = _squares(below(factors), width)
    seconds, least, inside = least_by_parabola(shifts, squares)
    left_out = [_squares(below(np.delete(factors, b, axis=0)), width) for b in range(len(factors))]
    rms = np.sqrt(squares / count)
    return Delay(
        seconds=seconds,
        standard_deviations=left_out_deviations(np.stack([least_by_parabola(shifts, x)[0] for x in left_out])),
        inside=inside,
        gain=_gain(least, squares),
        shifts=shifts,
        residuals=rms,
    )


def shown_delay(
    chain: Chain, samples: Samples, longest: float
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Delay of each joint and its gain [s and %] as in `estimate_delay`, at a fraction of its cost; 0 outside the range.

    Friction proportional to the transmitted torque is left out, and standard deviations are not computed.
    """
    shifts = np.linspace(-longest, longest, 2 * SHIFTS + 1)
    factors, width = _factors(chain, [at_shifts(samples, shifts)[:2]], 1)
    squares = _squares(below(factors), width)
    seconds, least, inside = least_by_parabola(shifts, squares)
    return np.where(inside, seconds, 0.0), np.where(inside, _gain(least, squares), 0.0)


def _gain(least: Float[np.ndarray, " n"], squares: Float[np.ndarray, "k n"]) -> Float[np.ndarray, " n"]:
    """Reduction of the RMS residual from no shift to the best one [%]."""
    return 100 * (1 - np.sqrt(np.maximum(least, 0) / np.where(squares[SHIFTS] > 0, squares[SHIFTS], 1.0)))


def at_shifts(samples: Samples, shifts: np.ndarray) -> tuple[Samples, np.ndarray, np.ndarray]:
    """Samples that stay within their continuous piece at every shift, their shifted torques (N, n, k), and their indices.

    Args:
        shifts: (k,) shifts of all joints, or (n, k) shifts of each joint [s].
    """
    shape = np.broadcast_to(shifts, (samples.n, shifts.shape[-1]))
    kept, torques = shifted_torques(samples.t, samples.tau, samples.segments, shape)
    if len(kept) < LEAST_SAMPLES:
        raise LogError(
            f"no continuous piece of the log is longer than twice the largest shift ({np.abs(shifts).max():g} s); log a longer "
            "run, or reduce longest"
        )
    return samples.rows(kept, [(0, len(kept))]), torques, kept


def _factors(
    chain: Chain, runs: Sequence[tuple[Samples, np.ndarray]], passes: int
) -> tuple[Float[np.ndarray, "blocks n w c"], int]:
    """Triangular factors of [base columns, friction columns, torques at all shifts], and the number of columns to fit.

    Load-dependent friction is that of the loads of the last pass, which fits the parameters of each joint separately.
    """
    with jax.enable_x64(True):
        model, base, friction = as_float64(chain), base_parameters(chain, RIGID), usual_friction(chain)
        own, edges = np.zeros((chain.nv, base.matrix.shape[1])), [equal_blocks(len(s), BLOCKS) for s, _ in runs]
        for left in reversed(range(passes)):
            parts = []
            for s, shifted in runs:
                load = np.concatenate([np.einsum("tjp,jp->tj", w, own) for _, w in row_chunks(RIGID, model, s)])
                signals = np.concatenate([friction.blocks(s, load), shifted[:, :, :-1]], axis=2)
                parts.append(((s.q, s.qd, s.qdd), shifted[:, :, -1], None, signals))
            r = accumulate_samples(RIGID, model, parts, edges=edges).r
            r = r[..., [*base.kept, *range(base.matrix.shape[1], r.shape[3])]]
            width = r.shape[3] - (2 * SHIFTS + 1)
            for j, rows in enumerate(triangle_of(below(r)) if left else ()):
                values = np.linalg.lstsq(rows[:, :width], rows[:, width + SHIFTS], rcond=1e-10)[0]
                own[j, base.kept] = values[: base.size]
    return r, width


def _squares(r: Float[np.ndarray, "n m c"], width: int) -> Float[np.ndarray, "k n"]:
    """Residual sum of squares for each shift and joint."""
    shifts = list(range(width, r.shape[2]))
    return np.stack([(cleared(rows, range(width), shifts) ** 2).sum(axis=0) for rows in triangle_of(r)], axis=1)


def least_by_parabola(shifts: np.ndarray, squares: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Minimum of each column of `squares` by parabolic interpolation: its shift, its value, and whether it is interior."""
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

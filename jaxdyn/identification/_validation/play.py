"""Play in gears, from logged positions that jump when the torque changes its sign."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from ...errors import LogError
from ...io._logs.log import Log
from ...model._chain import Chain
from .._preprocessing.filters import bandwidth, low_pass
from .._preprocessing.samples import Filters, Samples, preprocess

ABOVE = 1.5  # positions are examined above this multiple of the motion's bandwidth, where a smooth motion has no power
SHARE = 0.2  # a jump with the torque's sign must explain this share of the positions' power there, and
SIGNIFICANT = 5.0  # be as many standard deviations from zero as this
BLOCK = 1.0  # [s] within which the errors of positions may be correlated
SHORTEST = 2.0  # shortest piece of a log that is examined [s]
MANY = 10**6  # more blocks than a piece has
DETAIL = 0.4  # cutoff of positions, as a share of the sample rate


def play(chain: Chain, logs: Sequence[Log], filters: Filters, cutoff: float) -> Float[np.ndarray, " n"]:
    """Play of each joint [rad or m], zero where none is found.

    If the gear between a position sensor and a link has play p, the position sensor leads the link by p / 2 in the
    direction of the transmitted torque: q = q_link + p / 2 sign(tau). The link moves smoothly, so above the bandwidth of
    the motion, p follows by least squares from q, beside two effects that look similar: elasticity and inertia, which are
    proportional to the torque, and sticking at reversals, which follows the velocity's sign. The transmitted torque is
    the logged torque or, if this explains more, the logged torque without friction. Since its sign is uncertain while it is
    small, the play found is up to a third too small.

    Args:
        chain: the identified robot.
        logs: the fitted logs, with motor and link positions that are equal apart from elasticity and play.
        filters: the filters of the fit, of which the delay of torques is used.
        cutoff: low-pass cutoff of the torques [Hz].
    """
    found = np.zeros(chain.nv)
    if chain.coupling is not None or chain.topology.quaternion_joints:
        return found
    pieces = [piece for log in logs for piece in _pieces(log, filters, cutoff)]
    for j in range(chain.nv):
        friction = float(chain.friction.viscous[j]), float(chain.friction.coulomb[j])
        candidates = []
        for viscous, coulomb in ((0.0, 0.0), friction):
            parts = [part for piece in pieces if (part := _columns(piece, j, viscous, coulomb)) is not None]
            if parts:
                y, x, blocks = zip(*parts, strict=True)
                apart = [block + MANY * k for k, block in enumerate(blocks)]
                candidates.append(_jump(*(np.concatenate(one) for one in (y, x, apart))))
        if candidates:
            share, size = max(candidates)
            found[j] = size if share > SHARE else 0.0
    return found


def _pieces(log: Log, filters: Filters, cutoff: float) -> list[tuple[Samples, float]]:
    """Gap-free pieces of a log that are long enough, in the detail of the log, and the frequency above which to look [Hz]."""
    seconds = float(log.t[-1] - log.t[0])
    if not seconds > 2 * SHORTEST:
        return []
    most = DETAIL * (len(log.t) - 1) / seconds
    try:
        s = preprocess(
            log,
            Filters(most, min(cutoff, most), stride=1, margin=1.0, gap=filters.gap, delay=filters.delay),
        )
    except LogError:  # uneven, or in too short pieces
        return []
    edge = ABOVE * bandwidth(s.q, s.rate)
    long = [(a, b) for a, b in s.segments if b - a > SHORTEST * s.rate]
    return [(s.rows(slice(a, b), [(0, b - a)]), edge) for a, b in long if 0 < edge < DETAIL * s.rate]


def _columns(
    piece: tuple[Samples, float], j: int, viscous: float, coulomb: float
) -> tuple[Float[np.ndarray, " N"], Float[np.ndarray, "N 3"], Int[np.ndarray, " N"]] | None:
    """High-passed position of a joint, what it is compared with, and the block of each sample; None if unmeasured."""
    s, edge = piece
    q, tau = s.q[:, j], s.tau[:, j]
    if np.isnan(tau).any():
        return None
    qd = np.gradient(low_pass(q, s.rate, edge), 1 / s.rate)
    way = np.sign(qd)
    columns = np.stack([q, 0.5 * np.sign(tau - viscous * qd - coulomb * way), tau, way], axis=1)
    columns = columns - low_pass(columns, s.rate, edge)
    return columns[:, 0], columns[:, 1:], np.arange(len(q)) // round(BLOCK * s.rate)


def _jump(
    y: Float[np.ndarray, " N"], x: Float[np.ndarray, "N 3"], blocks: Int[np.ndarray, " N"]
) -> tuple[float, float]:
    """Share of the power of y that the first column of x explains beside the others, and its coefficient if significant."""
    beside = np.linalg.qr(x[:, 1:] / np.maximum(np.linalg.norm(x[:, 1:], axis=0), 1e-300))[0]
    y, step = (z - beside @ (beside.T @ z) for z in (y, x[:, 0]))
    power = float(step @ step)
    if power <= 1e-12 * len(y):
        return 0.0, 0.0
    size = float(step @ y) / power
    rest = y - size * step
    _, of = np.unique(blocks, return_inverse=True)
    deviation = np.sqrt((np.bincount(of, step * rest) ** 2).sum()) / power  # errors are correlated within blocks
    share = 1 - float(rest @ rest) / max(float(y @ y), 1e-300)
    return (share, size) if size > SIGNIFICANT * deviation else (0.0, 0.0)

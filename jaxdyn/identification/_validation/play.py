"""Play in gears, from logged positions that jump when the torque changes its sign."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from ...errors import LogError
from ...io._logs.log import Log
from ...model._chain import Chain
from .._preprocessing.filters import bandwidth, low_pass
from .._preprocessing.samples import Filters, preprocess

ABOVE = 1.5  # positions are examined above this multiple of the motion's bandwidth, where a smooth motion has no power
SHARE = 0.2  # a jump with the torque's sign must explain this share of the positions' power there, and
SIGNIFICANT = 5.0  # be as many standard deviations from zero as this
BLOCK = 1.0  # [s] within which the errors of positions may be correlated
DETAIL = 0.4  # cutoff of positions, as a share of the sample rate


def play(chain: Chain, logs: Sequence[Log], filters: Filters, cutoff: float) -> Float[np.ndarray, " n"]:
    """Play of each joint [rad or m], zero where none is found.

    If the gear between a position sensor and a link has play p, the position sensor leads the link by p / 2 in the
    direction of the transmitted torque: q = q_link + p / 2 sign(tau). The link moves smoothly, so above the bandwidth of
    the motion, p follows by least squares from q, beside two effects that look similar: elasticity and inertia, which are
    proportional to the torque, and sticking at reversals, which follows the velocity's sign. The transmitted torque is
    the logged torque or, if this explains more, the logged torque without friction.

    Args:
        chain: the identified robot.
        logs: the fitted logs, with motor and link positions that are equal apart from elasticity and play.
        filters: the filters of the fit, of which the delay of torques is used.
        cutoff: low-pass cutoff of the torques [Hz].
    """
    none = np.zeros(chain.nv)
    if chain.coupling is not None or chain.topology.quaternion_joints:
        return none
    friction = np.asarray(chain.friction.viscous, float), np.asarray(chain.friction.coulomb, float)
    runs = []
    for log in logs:
        try:
            rate = (len(log.t) - 1) / (log.t[-1] - log.t[0])
            detail = Filters(position_cutoff=DETAIL * rate, torque_cutoff=min(cutoff, DETAIL * rate), stride=1)
            runs.append(preprocess(log, detail.but(delay=filters.delay, margin=1.0, gap=filters.gap)))
        except LogError:  # too short
            continue
    found = none.copy()
    for j in range(chain.nv):
        candidates = []
        for without in (0.0, 1.0):
            y, x, blocks = [], [], []
            for s in runs:
                edge = ABOVE * bandwidth(s.q, s.rate)
                for a, b in s.segments:
                    if not 0 < edge < DETAIL * s.rate or (b - a) < 2 * s.rate or np.isnan(s.tau[a:b, j]).any():
                        continue
                    q, tau = s.q[a:b, j], s.tau[a:b, j]
                    qd = np.gradient(low_pass(q, s.rate, edge), 1 / s.rate)
                    transmitted = tau - without * (friction[0][j] * qd + friction[1][j] * np.sign(qd))
                    columns = np.stack([q, 0.5 * np.sign(transmitted), tau, np.sign(qd)], axis=1)
                    columns = columns - low_pass(columns, s.rate, edge)
                    y.append(columns[:, 0])
                    x.append(columns[:, 1:])
                    blocks.append(np.arange(b - a) // round(BLOCK * s.rate) + 10**6 * len(blocks))
            if y:
                candidates.append(_jump(np.concatenate(y), np.concatenate(x), np.concatenate(blocks)))
        if candidates:
            share, size = max(candidates)
            found[j] = size if share > SHARE else 0.0
    return found


def _jump(
    y: Float[np.ndarray, " N"], x: Float[np.ndarray, "N 3"], blocks: Float[np.ndarray, " N"]
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

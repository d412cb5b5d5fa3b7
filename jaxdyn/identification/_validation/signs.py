"""Confirmation of suspected torque signs on held-out motion."""

import math
from collections.abc import Sequence

import numpy as np

from ...errors import LogError
from ...model._chain import Chain
from .._preprocessing.samples import Samples, split
from .._regression.accumulate import accumulate_samples
from .._regression.base_parameters import BaseParameters, stacked
from .._regression.columns import Columns
from .._regression.factors import QRFactors
from .._regression.robot import as_float64

SHARE = 0.7  # fraction of each run that is fitted
SAME = (
    1.05  # held-out errors within this ratio count as equal, since a joint without shared parameters fits either sign
)


def confirmed_signs(
    chain: Chain, samples: Sequence[Samples], columns: Columns, base: BaseParameters, signs: np.ndarray
) -> np.ndarray:
    """Undo sign changes that worsen the prediction of held-out motion, and return the confirmed signs (n,).

    A weighted fit to the first 70 % of each run predicts the torques of the rest, with and without the sign change of
    each joint. The sign change is undone if it increases the prediction error of its joint, or the geometric mean of
    the errors of all joints, by more than 5 %. This test is needed for joints whose model lacks a term. Reversing the
    sign of such a joint may improve the fit of the other joints, but it worsens the prediction of the joint's own
    torque.

    Call this function under `jax.enable_x64(True)`.
    """
    accused = np.flatnonzero(signs < 0)
    if not len(accused):
        return signs
    try:
        parts = [split(s, SHARE) for s in samples]
    except LogError:  # too short to split
        return signs
    model = as_float64(chain)

    def factors(of: Sequence[Samples]) -> QRFactors:
        runs = [(s, s.tau, None, None) for s in of]
        return accumulate_samples(columns, model, runs, edges=[[(0, len(s))] for s in of]).total

    first, last = (factors(of) for of in zip(*parts, strict=True))
    with_signs = _held_out(first, last, base, signs)
    out = signs.copy()
    for j in accused:
        without = _held_out(first, last, base, np.where(np.arange(len(signs)) == j, 1.0, signs))
        ratio = np.log(with_signs / without)
        if ratio[j] > math.log(SAME) or ratio.mean() > math.log(SAME):
            out[j] = 1.0
    return out


def _held_out(first: QRFactors, last: QRFactors, base: BaseParameters, signs: np.ndarray) -> np.ndarray:
    """RMS prediction errors (n,) on the last parts of the runs, for a weighted fit to the first parts."""
    values = weighted_fit(first.with_signs(signs), base)[0]
    return np.maximum(last.with_signs(signs).joint_rms(base.kept, values), 1e-300)


def weighted_fit(factors: QRFactors, base: BaseParameters) -> tuple[np.ndarray, np.ndarray]:
    """Base parameters from a weighted least-squares fit, for factors of any rank, and the noise (n,) of the joints."""
    noise = np.ones(len(factors.counts))
    floor = 1e-9 * np.sqrt((factors.r[:, :, -1] ** 2).sum(1) / factors.counts)
    values = np.zeros(base.size)
    for _ in range(6):
        r = stacked(factors, 1 / noise)
        norms = np.linalg.norm(r[:, base.kept], axis=0)
        norms[norms == 0] = 1.0
        values = np.linalg.lstsq(r[:, base.kept] / norms, r[:, -1], rcond=1e-10)[0] / norms
        noise = np.maximum(factors.joint_rms(base.kept, values), np.maximum(floor, 1e-300))
    return values, noise

"""Ratio of each joint's measured torque to the given model's torque, without friction and rotor inertia."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Bool, Float

from ...model._chain import Chain
from ...model._layout import leading_joints
from .._preprocessing.samples import Samples, left_out_deviations
from .._regression.completion import rigid_torque
from .._regression.robot import as_float64

BLOCKS = 20  # jackknife blocks
LEAST_CORRELATION = 0.4  # below this correlation with the model's torque, the factor of a joint is not meaningful
CERTAIN = 0.15  # above this relative standard deviation, a factor is not determined


@dataclasses.dataclass(frozen=True, eq=False)
class PriorScales:
    """Ratio of measured to expected torque, for each joint.

    Attributes:
        factors: (n,) factors that scale the torque expected from the given model's inertias to the measured torque.
        deviations: (n,) standard deviations of the factors' logarithms, from a jackknife over twenty blocks.
        correlations: (n,) correlations between measured and expected torque, after projecting out friction, offset and
            rotor inertia.
        determined: (n,) True for each joint whose factor the data determine.
    """

    factors: Float[np.ndarray, " n"]
    deviations: Float[np.ndarray, " n"]
    correlations: Float[np.ndarray, " n"]
    determined: Bool[np.ndarray, " n"]


def prior_scales(chain: Chain, runs: Sequence[Samples]) -> PriorScales:
    """Compute the ratio of each joint's measured torque to the torque predicted from the chain's inertias.

    The equation tau_j = s_j Y_j pi_0 + Ia qdd_j + fv qd_j + fc tanh(qd_j / w) + off is fitted for each joint j
    separately. Here, Y_j pi_0 is the torque expected from the model's inertias pi_0. The factor s_j is determined by
    gravity and by the coupling between links. Friction and rotor inertia, which model files rarely contain, do not
    affect this factor.

    Args:
        chain: the robot, with the given model's inertias.
        runs: samples of one or more runs.

    Cost: one inverse-dynamics evaluation per sample.
    """
    width = np.asarray(chain.friction.coulomb_velocity, float)[leading_joints(chain)]
    normal = np.zeros((BLOCKS, chain.nv, 6, 6))
    with jax.enable_x64(True):
        model = as_float64(chain)
    for s in runs:
        with jax.enable_x64(True):
            expected = rigid_torque(model, s.q, s.qd, s.qdd)
        own = [s.qdd, s.qd, np.tanh(s.qd / width), np.ones_like(s.qd)]
        rows = np.stack([*own, expected, s.tau], axis=2)
        edges = np.linspace(0, len(s), BLOCKS + 1).astype(int)
        for block in range(BLOCKS):
            part = rows[edges[block] : edges[block + 1]]
            normal[block] += np.einsum("tja,tjb->jab", part, part)
    total = normal.sum(0)
    factors, correlations = _slopes(total)
    parts = np.stack([_slopes(total - part)[0] for part in normal])
    positive = (factors > 0) & (parts > 0).all(axis=0)
    logs = np.log(np.where(parts > 0, parts, 1.0))
    deviations = np.where(positive, left_out_deviations(logs), np.inf)
    return PriorScales(factors, deviations, correlations, (correlations > LEAST_CORRELATION) & (deviations < CERTAIN))


def _slopes(normal: Float[np.ndarray, "n 6 6"]) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Slope of measured versus expected torque, and the correlation of both, after projecting out the other columns."""
    size = np.sqrt(np.maximum(np.diagonal(normal, axis1=1, axis2=2), 1e-300))
    scaled = normal / size[:, :, None] / size[:, None, :]
    left = np.stack([m[4:, 4:] - m[4:, :4] @ np.linalg.lstsq(m[:4, :4], m[:4, 4:], rcond=1e-10)[0] for m in scaled])
    mm, mt, tt = (
        np.maximum(left[:, a, b], 1e-12 * (a == b)) if a == b else left[:, a, b] for a, b in ((0, 0), (0, 1), (1, 1))
    )
    alive = mm > 1e-9
    slope = np.where(alive, mt / mm, 0.0) * size[:, 5] / size[:, 4]
    return slope, np.where(alive, mt / np.sqrt(mm * tt), 0.0)

"""Quality of an excitation trajectory: log det of the information, condition number."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Float

from ...errors import IdentificationError
from ...model._chain import Chain
from .._regression.accumulate import accumulate
from .._regression.base_parameters import BaseParameters, base_parameters, stacked
from .._regression.columns import Columns, all_columns
from .._regression.robot import as_float64


@dataclasses.dataclass(frozen=True)
class ExcitationQuality:
    """Information of samples on the base parameters, by H = W^T Sigma^-1 W / N of their base regressor.

    Attributes:
        log_det: log det H; among motions sampled N times each, larger is better. Differences do not depend on the parameters'
            units: of two motions whose log det differ by d, the better one has standard deviations smaller by
            exp(d / (2 parameters)), in the geometric mean over all directions.
        condition: condition number of Sigma^-1/2 W.
        scaled_condition: the same with columns of unit norm: near-dependence independent of units.
        parameters: number of base parameters.
        samples: N.
    """

    log_det: float
    condition: float
    scaled_condition: float
    parameters: int
    samples: int


def excitation_quality(
    chain: Chain,
    q: Float[np.ndarray, "N n"],
    qd: Float[np.ndarray, "N n"],
    qdd: Float[np.ndarray, "N n"],
    columns: Columns | None = None,
    base: BaseParameters | None = None,
    torque_noise: Sequence[float] | Float[np.ndarray, " n"] | None = None,
) -> ExcitationQuality:
    """Log det of the information and condition number of the base regressor at samples of a motion.

    Compare motions by the same columns and base parameters, noise, filter, and number of samples.

    Args:
        chain: the robot; only its kinematics matter.
        q: positions of the motion's samples.
        qd: their velocities.
        qdd: their accelerations.
        columns: columns to identify; by default all drive terms, motors and springs of the chain.
        base: its base parameters; computed if None.
        torque_noise: (n,) standard deviations of the joint torques; all 1 if None.

    Raises:
        IdentificationError: fewer rows than base parameters, the motion does not excite all of them, or the noise is
            not one positive number per joint.

    Cost: O(N p^2) for p columns, after compiling.
    """
    columns = columns or all_columns(chain)
    base = base or base_parameters(chain, columns)
    noise = checked_noise(torque_noise, chain.nv)
    q, qd, qdd = (np.asarray(x, float) for x in (q, qd, qdd))
    if q.size < base.size:
        raise IdentificationError(
            f"{q.size} rows of samples cannot determine {base.size} base parameters; take more samples of the motion"
        )
    with jax.enable_x64(True):
        factors = accumulate(columns, as_float64(chain), q, qd, qdd, np.zeros_like(q))
    w = stacked(factors, 1 / noise)[:, base.kept]
    norms = np.linalg.norm(w, axis=0)
    if np.any(norms == 0):
        raise IdentificationError(f"the motion does not excite {base.names[int(np.argmin(norms))]!r} at all")
    plain, scaled = (np.linalg.svd(x, compute_uv=False) for x in (w, w / norms))
    if scaled[-1] == 0:
        raise IdentificationError("the motion does not separate the base parameters")
    log_det = 2 * (np.log(scaled).sum() + np.log(norms).sum()) - base.size * np.log(len(q))
    return ExcitationQuality(
        float(log_det), float(plain[0] / plain[-1]), float(scaled[0] / scaled[-1]), base.size, len(q)
    )


def variance_ratio(better: ExcitationQuality, other: ExcitationQuality) -> float:
    """exp((log det - other's) / parameters): factor by which `better` reduces variances, in the geometric mean.

    The D-efficiency of one design relative to the other, for the same number of samples; also how many times the
    other motion would have to be repeated for a confidence ellipsoid of the same volume.

    Raises:
        IdentificationError: different numbers of base parameters.
    """
    if better.parameters != other.parameters:
        raise IdentificationError(
            f"the motions are rated on {better.parameters} and {other.parameters} base parameters; rate both on the same ones"
        )
    return float(np.exp((better.log_det - other.log_det) / better.parameters))


def checked_noise(torque_noise: Sequence[float] | Float[np.ndarray, " n"] | None, n: int) -> Float[np.ndarray, " n"]:
    """Standard deviations of the joint torques; all 1 if None."""
    noise = np.ones(n) if torque_noise is None else np.asarray(torque_noise, float)
    if noise.shape != (n,) or not np.all((noise > 0) & np.isfinite(noise)):
        raise IdentificationError(f"the torque noise is {noise}; give one positive number for each of the {n} joints")
    return noise

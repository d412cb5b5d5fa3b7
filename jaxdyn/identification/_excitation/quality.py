"""Quality of an excitation trajectory: log det of the information matrix and condition number of the regressor."""

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
    """Measures of how well the samples of a motion determine the base parameters.

    All measures are computed from the base regressor W of N samples and the information matrix H = W^T Sigma^-1 W / N,
    where Sigma is the diagonal matrix of torque variances.

    Attributes:
        log_det: log det H. Of two motions with the same number of samples, the one with the larger value is better: a
            difference of d reduces the standard deviations of the b base parameters by a factor of exp(d / (2 b)), in
            the geometric mean over all directions. Such differences do not depend on the units of the parameters.
        condition: condition number of Sigma^-1/2 W.
        scaled_condition: condition number with columns scaled to unit norm; it does not depend on units.
        parameters: number of base parameters.
        samples: number of samples N.
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
    """Compute the log det of the information matrix and the condition number of the base regressor for a motion.

    To compare motions, use the same columns, base parameters, noise, filter and number of samples.

    Args:
        chain: the robot; only its kinematics are used.
        q: positions of the samples [rad or m].
        qd: velocities of the samples [rad/s or m/s].
        qdd: accelerations of the samples [rad/s^2 or m/s^2].
        columns: columns to identify; by default all drive terms, motors and springs of the chain.
        base: the base parameters of the columns; by default they are computed.
        torque_noise: (n,) standard deviations of the joint torques [N m or N]; by default all are 1.

    Raises:
        IdentificationError: there are fewer rows than base parameters; the motion does not excite all base parameters,
            or does not determine them separately; or the noise is not one positive number per joint.

    Cost: O(N p^2) for N samples and p columns, after compilation.
    """
    columns = columns or all_columns(chain)
    base = base or base_parameters(chain, columns)
    noise = checked_noise(torque_noise, chain.nv)
    q, qd, qdd = (np.asarray(x, float) for x in (q, qd, qdd))
    if q.size < base.size:
        raise IdentificationError(
            f"{q.size} rows of samples cannot determine {base.size} base parameters; use more samples of the motion"
        )
    with jax.enable_x64(True):
        factors = accumulate(columns, as_float64(chain), q, qd, qdd, np.zeros_like(q))
    w = stacked(factors, 1 / noise)[:, base.kept]
    norms = np.linalg.norm(w, axis=0)
    if np.any(norms == 0):
        raise IdentificationError(f"the motion does not excite {base.names[int(np.argmin(norms))]!r}")
    plain, scaled = (np.linalg.svd(x, compute_uv=False) for x in (w, w / norms))
    if scaled[-1] == 0:
        raise IdentificationError("the motion does not determine the base parameters separately")
    log_det = 2 * (np.log(scaled).sum() + np.log(norms).sum()) - base.size * np.log(len(q))
    return ExcitationQuality(
        float(log_det), float(plain[0] / plain[-1]), float(scaled[0] / scaled[-1]), base.size, len(q)
    )


def variance_ratio(better: ExcitationQuality, other: ExcitationQuality) -> float:
    """Compute the ratio of the parameter variances from motion `other` to those from `better`, as a geometric mean.

    The result is exp((better.log_det - other.log_det) / parameters), the relative D-efficiency of the two motions for
    the same number of samples. It is also the number of times that motion `other` would have to be repeated to yield a
    confidence ellipsoid with the same volume as that from `better`.

    Args:
        better: quality of the motion to which `other` is compared.
        other: quality of the other motion.

    Raises:
        IdentificationError: the two motions were rated with different numbers of base parameters.
    """
    if better.parameters != other.parameters:
        raise IdentificationError(
            f"the motions were rated with {better.parameters} and {other.parameters} base parameters; use the same for both"
        )
    return float(np.exp((better.log_det - other.log_det) / better.parameters))


def checked_noise(torque_noise: Sequence[float] | Float[np.ndarray, " n"] | None, n: int) -> Float[np.ndarray, " n"]:
    """Check and return the standard deviations of the joint torques; 1 by default."""
    noise = np.ones(n) if torque_noise is None else np.asarray(torque_noise, float)
    if noise.shape != (n,) or not np.all((noise > 0) & np.isfinite(noise)):
        raise IdentificationError(
            f"the torque noise is {noise}; specify one positive number for each of the {n} joints"
        )
    return noise

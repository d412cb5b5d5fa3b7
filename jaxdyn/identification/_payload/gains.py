"""Calibration of drive gains with a payload of known mass.

Motion alone determines only the ratios of the gains; the known mass determines their scale.
"""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Bool, Float

from ...errors import IdentificationError
from ...io._logs.log import Log
from ...model._chain import Chain
from .._preprocessing.samples import Filters
from .loaded_runs import FRICTION_TERMS, FrictionTerm, fit_runs, jackknife, model_of
from .loads import Runs, carrier, given_body, prepare_runs

LARGEST_DEVIATION = 0.1  # gains with a larger relative standard deviation count as undetermined


@dataclasses.dataclass(frozen=True, eq=False)
class DriveGains:
    """Drive gains, tau_j = gain_j i_j for motor currents i_j, calibrated with a known payload.

    Attributes:
        factors: factors by which the logged torques must be multiplied, one per joint.
        covariance: covariance of the logarithms of the factors.
        gains: calibrated gains [N m/A or N/A], which are the products of `factors` and the `gains` passed to
            `calibrate_gains`; if none were passed, they equal `factors`.
        determined: True for joints whose gain the runs determine. The factor of every other joint is the geometric mean
            of the determined factors.
        common: factor from a separate fit in which all joints share one factor.
        common_deviation: standard deviation of `common`.
        payload: (10,) parameters of the payload, with the known mass, in the frame of the link that carries it
            [kg, kg m, kg m^2].
        payload_torque: RMS torque of the payload on each joint [N m or N].
        noise: standard deviation of each joint's residual torque [N m or N].
        notes: remarks for the user.
    """

    factors: Float[np.ndarray, " n"]
    covariance: Float[np.ndarray, "n n"]
    gains: Float[np.ndarray, " n"]
    determined: Bool[np.ndarray, " n"]
    common: float
    common_deviation: float
    payload: Float[np.ndarray, "10"]
    payload_torque: Float[np.ndarray, " n"]
    noise: Float[np.ndarray, " n"]
    notes: tuple[str, ...]

    @property
    def standard_deviations(self) -> Float[np.ndarray, " n"]:
        """Standard deviations of the gains, in the units of `gains`."""
        return self.gains * np.sqrt(np.diag(self.covariance))


def calibrate_gains(
    chain: Chain,
    unloaded: Runs,
    loaded: Runs,
    mass: float,
    *,
    com: Sequence[float] | Float[np.ndarray, "3"] | None = None,
    frame: str | None = None,
    gains: Sequence[float] | Float[np.ndarray, " n"] | None = None,
    friction: Sequence[FrictionTerm] = FRICTION_TERMS,
    own_friction: Sequence[FrictionTerm] = (),
    filters: Filters | None = None,
) -> DriveGains:
    """Calibrate the gains of all drives from runs with and without a payload of known mass.

    The arm's parameters pi, its friction, the payload's parameters p other than its mass, and one gain k_j per joint
    are fitted together:

        i_j = (Y_j pi + s Y_P,j p) / k_j + friction_j,    p_1 = mass.

    Here i_j is the current of joint j, Y_j and Y_P,j are the regressor rows of arm and payload, and s is 1 in loaded
    runs and 0 in the others. All noise is assumed to be in the currents, in which case weighted least squares gives the
    maximum-likelihood estimate.

    Motion alone determines the ratios of the gains, because all joints share the arm's parameters; only the known
    payload determines their scale. If the runs do not determine a gain to within 10 %, its factor is the geometric mean
    of the determined factors. This preserves the nominal ratio of this gain to the others.

    Standard deviations come from a jackknife over twenty blocks. They do not include errors caused by a wrong mass, an
    inadequate friction model, or parts of the payload that were not weighed, such as a flange and its screws.

    Args:
        chain: the arm; only its kinematics and gravity are used.
        unloaded: one or more runs without the payload. The logged torques are either currents, or currents
            multiplied by nominal gains.
        loaded: one or more runs with the payload; their motion may differ from that of the unloaded runs.
        mass: mass of the payload [kg].
        com: the payload's centre of mass in `frame`, if known [m].
        frame: link or frame that carries the payload; by default the tip.
        gains: nominal gains by which the logged currents were multiplied, one per joint [N m/A or N/A]; by default 1.
        friction: friction terms fitted for every joint; "load" is Coulomb friction proportional to the transmitted
            torque.
        own_friction: terms in `friction` that are fitted separately for each run, for example because the temperature
            changed between runs.
        filters: as in `preprocess`, the same for all runs; by default chosen from the first run.

    Raises:
        IdentificationError: the logs do not match the chain, the mass is not positive, the number of gains differs
            from the number of joints, or the payload's torque is too small to determine any gain.
        LogError: a log seems to be in degrees (`check_log`) or is too short to be filtered, or a filter setting is invalid.

    Cost: about 3 s for two runs of 5000 samples with 6 joints, after compilation.
    """
    if not mass > 0:
        raise IdentificationError(f"the payload's mass is {mass:g} kg; it must be positive")
    n = chain.n
    listed = np.ones(n) if gains is None else np.asarray(gains, float)
    if listed.shape != (n,):
        raise IdentificationError(f"there are {listed.size} gains for {n} joints; specify one per joint")
    with jax.enable_x64(True):
        link, pose = carrier(chain, frame)
        runs, notes = prepare_runs(chain, unloaded, loaded, filters)
        known, free = given_body(mass, com, pose)
        model = model_of(chain, link, friction, own_friction, known_arm=False)
        together = np.ones((n, 1))
        one, factors = fit_runs(model, runs, known, free, together)
        shared = np.sqrt(jackknife(factors, one, known, free, together)[10, 10])
        if not one.determined[10] or not shared < 0.5:
            raise IdentificationError(
                "the payload's torque is too small, relative to the noise, to determine any gain: the common factor has a "
                f"relative standard deviation of {100 * shared:.3g} %. Use a heavier payload, or vary its lever arm"
            )
        determined = np.ones(n, bool)
        while True:
            ties = np.eye(n)[:, determined] if determined.any() else together
            if determined.any() and not determined.all():
                ties[~determined] = 1 / determined.sum()
            solution, factors = fit_runs(model, runs, known, free, ties)
            covariance = jackknife(factors, solution, known, free, ties)
            sd = np.sqrt(np.diag(covariance)[10:])
            sd = np.where(solution.determined[10:], sd, np.inf)
            worst = int(np.argmax(np.where(determined, sd, -1.0)))
            if not determined.any() or sd[worst] <= LARGEST_DEVIATION:
                break
            determined[worst] = False
    torque = factors.payload_torques(solution.payload)
    scale = np.exp(solution.gains)
    for j in np.flatnonzero(~determined):
        notes.append(
            f"{chain.joint_names[j]}: the runs do not determine its gain to within {100 * LARGEST_DEVIATION:g} % (the "
            f"payload's torque on this joint is {torque[j]:.3g} N m RMS); its nominal ratio to the other gains is kept"
        )
    return DriveGains(
        factors=scale,
        covariance=covariance[10:, 10:],
        gains=scale * listed,
        determined=determined,
        common=float(np.exp(one.gains[0])),
        common_deviation=float(np.exp(one.gains[0]) * shared),
        payload=solution.payload,
        payload_torque=torque,
        noise=solution.noise * scale,
        notes=tuple(notes),
    )


def with_gains(log: Log, gains: DriveGains) -> Log:
    """Return a copy of the log with torques multiplied by the calibrated factors.

    Args:
        log: the log.
        gains: result of `calibrate_gains`.

    Raises:
        IdentificationError: the log and the gains have different numbers of joints.
    """
    if log.n != len(gains.factors):
        raise IdentificationError(f"{log.source}: the log has {log.n} joints, but there are {len(gains.factors)} gains")
    listed = ", ".join(f"{x:.4g}" for x in gains.factors)
    return dataclasses.replace(
        log,
        tau=log.tau * gains.factors,
        notes=(*log.notes, f"torques were multiplied by the calibrated factors {listed}"),
    )

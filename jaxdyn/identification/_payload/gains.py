"""Drive gains from a payload whose mass is known: the scale of the currents, undetermined by motion alone."""

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

LARGEST_DEVIATION = 0.1  # relative standard deviation up to which a joint gets its own gain


@dataclasses.dataclass(frozen=True, eq=False)
class DriveGains:
    """Gains of the drives, tau_j = gain_j i_j, calibrated with a known payload.

    Attributes:
        factors: factors for the torques of the logs, one per joint.
        covariance: covariance of the logarithms of the factors.
        gains: factors times the gains the logs were read with [N m/A]; the factors if none were given.
        told: joints whose gain the runs determine; the others have the factor `common`.
        common: one factor for all joints.
        common_deviation: its standard deviation.
        payload: (10,) the payload with the known mass, about its link's frame [kg, kg m, kg m^2].
        payload_torque: root mean square of the payload's torque on each joint [N m].
        noise: standard deviation of each joint's residual torque [N m].
        notes: remarks for the user.
    """

    factors: Float[np.ndarray, " n"]
    covariance: Float[np.ndarray, "n n"]
    gains: Float[np.ndarray, " n"]
    told: Bool[np.ndarray, " n"]
    common: float
    common_deviation: float
    payload: Float[np.ndarray, "10"]
    payload_torque: Float[np.ndarray, " n"]
    noise: Float[np.ndarray, " n"]
    notes: tuple[str, ...]

    @property
    def standard_deviations(self) -> Float[np.ndarray, " n"]:
        """Standard deviations of the gains, in their units."""
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
    """Calibrate the gains of all drives from runs without and with a payload of known mass.

    The arm's parameters, its friction, the rest of the payload's parameters and one gain per joint are fitted together,

        i_j = (Y_j pi + s Y_P,j p) / k_j + friction_j,    p_1 = mass,

    by weighted least squares with the noise assigned to the currents: the maximum-likelihood form of total least squares
    on k_j i_j = Y_j pi + ... . Motion alone determines ratios of gains, since joints share the arm's parameters; only
    the known payload determines their scale. A joint whose gain is not determined to within 10 % keeps its nominal
    ratio: it gets the factor common to the others.

    Standard deviations come from a jackknife over twenty blocks. They do not include a wrong mass, a different friction
    law, or parts of the payload that were not weighed, such as a flange and its screws.

    Args:
        chain: the arm's kinematics and gravity; its inertias are not used.
        unloaded: one or several runs without the payload: torque = gain x current with the current gains, or currents.
        loaded: one or several runs with it; the motion need not be the same.
        mass: mass of the payload [kg].
        com: its centre of mass in `frame`, if known [m].
        frame: link or frame that carries the payload; the tip if None.
        gains: those the logs were read with [N m/A].
        friction: terms fitted for every joint; "load" is Coulomb friction in proportion to the torque transmitted.
        own_friction: terms fitted separately for each run, for example after a change of temperature.
        filters: as in `preprocess`; by default chosen from the first run for all.

    Raises:
        IdentificationError: the logs do not match the chain, the mass is not positive, or the payload's torque is too
            small for any gain.

    Cost: two runs of 5000 samples of 6 joints in about 3 s after compilation.
    """
    if not mass > 0:
        raise IdentificationError(f"the payload's mass is {mass:g} kg; it must be positive")
    n = chain.n
    listed = np.ones(n) if gains is None else np.asarray(gains, float)
    if listed.shape != (n,):
        raise IdentificationError(f"{listed.size} gains for {n} joints; give one per joint")
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
                "the payload's torque is too small for the noise to determine any gain: the factor common to all has a "
                f"relative standard deviation of {100 * shared:.3g} %. Use a heavier payload, or vary its lever arm"
            )
        told = np.ones(n, bool)
        while True:
            ties = np.eye(n)[:, told] if told.any() else together
            if told.any() and not told.all():
                ties[~told] = 1 / told.sum()
            solution, factors = fit_runs(model, runs, known, free, ties)
            covariance = jackknife(factors, solution, known, free, ties)
            sd = np.sqrt(np.diag(covariance)[10:])
            sd = np.where(solution.determined[10:], sd, np.inf)
            worst = int(np.argmax(np.where(told, sd, -1.0)))
            if not told.any() or sd[worst] <= LARGEST_DEVIATION:
                break
            told[worst] = False
    torque = factors.payload_torques(solution.payload)
    scale = np.exp(solution.gains)
    for j in np.flatnonzero(~told):
        notes.append(
            f"{chain.joint_names[j]}: the runs do not determine its gain to within {100 * LARGEST_DEVIATION:g} % (the "
            f"payload's torque on it is {torque[j]:.3g} N m RMS); it keeps its ratio to the other joints' gains"
        )
    return DriveGains(
        factors=scale,
        covariance=covariance[10:, 10:],
        gains=scale * listed,
        told=told,
        common=float(np.exp(one.gains[0])),
        common_deviation=float(np.exp(one.gains[0]) * shared),
        payload=solution.payload,
        payload_torque=torque,
        noise=solution.noise * scale,
        notes=tuple(notes),
    )


def with_gains(log: Log, gains: DriveGains) -> Log:
    """The log with its torques multiplied by the calibrated factors.

    Raises:
        IdentificationError: the log has another number of joints.
    """
    if log.n != len(gains.factors):
        raise IdentificationError(f"{log.source}: {log.n} joints, but gains of {len(gains.factors)}")
    listed = ", ".join(f"{x:.4g}" for x in gains.factors)
    return dataclasses.replace(
        log, tau=log.tau * gains.factors, notes=(*log.notes, f"torques multiplied by calibrated factors {listed}")
    )

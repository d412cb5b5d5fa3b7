"""Calibration of drive gains with a payload of known mass.

Motion alone determines only the ratios of the gains; the known mass determines their scale.

Identification of a payload's inertial parameters, from runs with and without it or from loaded runs of a known arm."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float
from scipy import optimize

from .._summary import Summary, lines
from ..errors import IdentificationError
from ..io.logs import Log
from ..model.chain import Chain
from ..spatial.inertia import pseudo_inertia
from .columns import INERTIAL_NAMES
from .consistency import LINEAR
from .loaded_runs import (
    FRICTION_TERMS,
    Factors,
    FrictionTerm,
    Runs,
    Solution,
    carrier,
    fit_runs,
    given_body,
    jackknife,
    model_of,
    prepare_runs,
    solve,
    transform_matrix,
)
from .preprocessing import Filters, Samples

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


# -- payload

THINNEST = 1e-4  # smallest radius of gyration of the nearest consistent body [m]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Payload(Summary):
    """An identified payload, expressed in the frame named `frame`.

    Attributes:
        frame: link or frame in which all quantities are expressed.
        parameters: estimated mass m, first moments m c, and moments and products of inertia Ixx, Ixy, Iyy, Ixz, Iyz,
            Izz about the frame's origin [kg, kg m, kg m^2].
        covariance: covariance of the parameters, including the uncertainty of gains passed as `DriveGains`.
        determined: True for parameters that the runs determine. The others are NaN in `parameters` and in all
            quantities derived from them.
        body: the physically consistent parameters closest to `parameters` in the metric of the covariance, with
            undetermined parameters as small as possible. It equals `parameters` if they are all determined and
            consistent.
        consistent: True if `parameters` are physically consistent.
        payload_torque: RMS torque of the payload on each joint [N m or N].
        noise: standard deviation of each joint's residual torque [N m or N].
        notes: remarks for the user.
        calibrated: True if gains from `calibrate_gains` were used. Otherwise the torque scale is assumed to be exact,
            and its error is not included in the standard deviations; a scale error of 1 % shifts the mass by 1 %.
    """

    frame: str
    parameters: Float[np.ndarray, "10"]
    covariance: Float[np.ndarray, "10 10"]
    determined: Bool[np.ndarray, "10"]
    body: Float[np.ndarray, "10"]
    consistent: bool
    payload_torque: Float[np.ndarray, " n"]
    noise: Float[np.ndarray, " n"]
    notes: tuple[str, ...]
    calibrated: bool = False

    def __repr__(self) -> str:
        centre = (f"{x:.4g} +- {d:.2g}" for x, d in zip(self.com, self.com_deviations, strict=True))
        return lines(
            f"Payload: {self.mass:.4g} +- {self.standard_deviations[0]:.2g} kg{self.scale_caveat} in the frame {self.frame}",
            f"centre of mass ({', '.join(centre)}) m",
            ""
            if self.consistent
            else "the parameters are not physically consistent; `body` is the nearest consistent set",
            *self.notes,
        )

    @property
    def scale_caveat(self) -> str:
        """Caveat that the mass depends on the gains if they were not calibrated; otherwise an empty string."""
        if self.calibrated:
            return ""
        shift = f"{0.01 * abs(self.mass):.2g} kg"
        return f" if the gains are exact (they were not calibrated: an error of 1 % shifts the mass by {shift})"

    @property
    def standard_deviations(self) -> Float[np.ndarray, "10"]:
        """Standard deviations of the ten parameters [kg, kg m, kg m^2]."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def mass(self) -> float:
        """Mass [kg]."""
        return float(self.parameters[0])

    @property
    def com(self) -> Float[np.ndarray, "3"]:
        """Centre of mass, expressed in `frame` [m]."""
        return self.parameters[1:4] / self.mass

    @property
    def com_deviations(self) -> Float[np.ndarray, "3"]:
        """Standard deviations of the centre of mass, to first order [m]."""
        c, v = self.covariance, self.com
        return np.sqrt(np.diag(c)[1:4] - 2 * v * c[0, 1:4] + v**2 * c[0, 0]) / self.mass

    @property
    def inertia(self) -> Float[np.ndarray, "3 3"]:
        """Rotational inertia about the centre of mass, along the axes of the frame [kg m^2]."""
        return _about_com(self.parameters)

    @property
    def inertia_deviations(self) -> Float[np.ndarray, "3 3"]:
        """Standard deviations of the inertia about the centre of mass, to first order [kg m^2]."""
        p, covariance = self.parameters, np.where(np.isfinite(self.covariance), self.covariance, 0.0)
        ends = [[_about_com(p + sign * d) for sign in (1, -1)] for d in np.diag(np.full(10, 1e-6))]
        slope = np.array([(a - b) / 2e-6 for a, b in ends])  # (10, 3, 3)
        known = np.isfinite(_about_com(p))
        slope = np.where(known, slope, 0.0)
        variance = np.einsum("iab,ij,jab->ab", slope, covariance, slope)
        return np.where(known, np.sqrt(np.maximum(variance, 0)), np.nan)


def identify_payload(
    chain: Chain,
    unloaded: Runs,
    loaded: Runs,
    *,
    frame: str | None = None,
    gains: DriveGains | None = None,
    friction: Sequence[FrictionTerm] = FRICTION_TERMS,
    own_friction: Sequence[FrictionTerm] = (),
    filters: Filters | None = None,
) -> Payload:
    """Identify the ten inertial parameters of a payload from runs with and without it, in a single fit to all runs.

        tau_j = Y_j pi + s Y_P,j p + friction_j,    s = 1 in loaded runs, 0 in the others.

    All runs share the arm's base parameters pi; p are the payload's parameters. Y is the regressor of the arm, and Y_P
    contains the columns of the link that carries the payload (Khalil, Gautier & Lemoine 2007).

    The runs may differ in motion, length and time stamps, because nothing is subtracted sample by sample. The usual
    alternative, subtracting two separate fits, adds the noise of both to the payload estimate.

    Args:
        chain: the arm; only its kinematics and gravity are used.
        unloaded: one or more runs without the payload.
        loaded: one or more runs with the payload.
        frame: link or frame that carries the payload and in which the result is expressed; by default the tip.
        gains: result of `calibrate_gains`; the logged torques are multiplied by its factors.
        friction: friction terms fitted for every joint; "load" is Coulomb friction proportional to the transmitted
            torque. Without this term, payload estimates on geared arms are wrong by several percent.
        own_friction: terms in `friction` that are fitted separately for each run, for example because the temperature
            changed between runs.
        filters: as in `preprocess`, the same for all runs; by default chosen from the first run.

    Raises:
        IdentificationError: the logs do not match the chain, or have too few samples.
        LogError: a log seems to be in degrees (`check_log`) or is too short to be filtered, or a filter setting is invalid.

    Cost: about 1.5 s for two runs of 5000 samples with 6 joints, after compilation.
    """
    with jax.enable_x64(True):
        runs, notes = prepare_runs(chain, unloaded, loaded, filters)
        if all(on for _, on in runs):
            raise IdentificationError(
                "there is no run without the payload; if the arm's model is known, use identify_payload_on"
            )
        return _identify(chain, runs, notes, frame, gains, friction, own_friction, known_arm=False)


def identify_payload_on(
    chain: Chain,
    loaded: Runs,
    *,
    frame: str | None = None,
    gains: DriveGains | None = None,
    friction: Sequence[FrictionTerm] = FRICTION_TERMS,
    own_friction: Sequence[FrictionTerm] = (),
    filters: Filters | None = None,
) -> Payload:
    """Identify the ten inertial parameters of a payload from loaded runs only, for an arm with known parameters.

        tau_j - inverse_dynamics(chain)_j = Y_P,j p + friction_j

    Here p are the payload's parameters, and Y_P contains the regressor columns of the link that carries it. The terms
    in `friction` are fitted again, because friction changes from day to day; all other friction terms are taken from
    the chain. Errors in the chain's inertias are attributed to the payload and are not included in the standard
    deviations.

    Args:
        chain: the identified arm.
        loaded: as in `identify_payload`.
        frame: as in `identify_payload`.
        gains: as in `identify_payload`.
        friction: as in `identify_payload`.
        own_friction: as in `identify_payload`.
        filters: as in `identify_payload`.

    Raises:
        IdentificationError: the logs do not match the chain, the chain has no inertias, or there are too few samples.
        LogError: a log seems to be in degrees (`check_log`) or is too short to be filtered, or a filter setting is invalid.
    """
    if not np.any(np.asarray(chain.inertia)):
        raise IdentificationError(
            "the model has no inertials, so all torque would be attributed to the payload; identify the arm first, or use "
            "identify_payload with a run without the payload"
        )
    with jax.enable_x64(True):
        runs, notes = prepare_runs(chain, (), loaded, filters)
        return _identify(chain, runs, notes, frame, gains, friction, own_friction, known_arm=True)


def _identify(
    chain: Chain,
    runs: list[tuple[Samples, bool]],
    notes: list[str],
    frame: str | None,
    gains: DriveGains | None,
    friction: Sequence[FrictionTerm],
    own: Sequence[FrictionTerm],
    known_arm: bool,
) -> Payload:
    link, pose = carrier(chain, frame)
    n = chain.n
    if gains is not None:
        if len(gains.factors) != n:
            raise IdentificationError(f"there are gains for {len(gains.factors)} joints, but the model has {n}")
        runs = [(dataclasses.replace(s, tau=s.tau * gains.factors), on) for s, on in runs]
    model = model_of(chain, link, friction, own, known_arm)
    if known_arm:
        notes.append(_assumed_gains(gains))
    known, free, fixed = np.zeros(10), np.eye(10), np.zeros((n, 0))
    solution, factors = fit_runs(model, runs, known, free, fixed)
    covariance = jackknife(factors, solution, known, free, fixed)[:10, :10]
    if gains is not None:
        covariance = covariance + _from_gains(factors, solution, gains.covariance)
    # the fitted parameters refer to the link's frame, in which the user's frame has this pose
    back = np.linalg.inv(transform_matrix(pose))
    determined = ~((np.abs(back) > 1e-12) @ ~solution.determined[:10])
    estimate, covariance = back @ solution.payload, back @ covariance @ back.T
    if not determined.all():
        lost = ", ".join(name for name, there in zip(INERTIAL_NAMES, determined, strict=True) if not there)
        notes.append(f"the runs do not determine the payload's {lost} (except in combinations)")
    consistent, body = nearest_body(estimate, covariance, determined)
    estimate[~determined] = np.nan
    covariance[~determined] = covariance[:, ~determined] = np.nan
    if not consistent:
        notes.append("the estimated parameters are not physically consistent; `body` is the nearest consistent set")
    return Payload(
        frame=frame if frame is not None else str(chain.topology.tip_name),
        parameters=estimate,
        covariance=covariance,
        determined=determined,
        body=body,
        consistent=consistent,
        payload_torque=factors.payload_torques(solution.payload),
        noise=solution.noise,
        notes=tuple(notes),
        calibrated=gains is not None,
    )


def _assumed_gains(gains: DriveGains | None) -> str:
    """Warning that the arm's model and the loaded runs must share their gains."""
    if gains is None:
        return "the gains were not calibrated: those of these runs must be the gains with which the arm's model was identified"
    change = float(np.abs(gains.factors - 1).max())
    return (
        f"the calibrated gains differ by up to {100 * change:.2g} % from those of the logs. If the arm's model was identified "
        "with the uncalibrated gains, its weight is wrong by as much, and the payload carries the difference: identify the "
        "arm from runs with the same calibrated gains (with_gains), or pass a run without the payload"
    )


def _from_gains(factors: Factors, solution: Solution, covariance: np.ndarray) -> np.ndarray:
    """Covariance J C J^T of the payload due to the gains, with its derivative J with respect to the log gains."""
    n, step = len(covariance), 1e-3
    slopes = []
    for j in range(n):
        ends = [
            solve(
                factors,
                np.zeros(10),
                np.eye(10),
                np.zeros((n, 0)),
                solution,
                4,
                scale=np.exp(sign * step * np.eye(n)[j]),
            )
            for sign in (1, -1)
        ]
        slopes.append((ends[0].payload - ends[1].payload) / (2 * step))
    slope = np.array(slopes).T
    return slope @ covariance @ slope.T


def nearest_body(
    parameters: Float[np.ndarray, "10"], covariance: Float[np.ndarray, "10 10"], determined: Bool[np.ndarray, "10"]
) -> tuple[bool, Float[np.ndarray, "10"]]:
    """Check ten inertial parameters for physical consistency, and find the nearest consistent parameters.

    The pseudo-inertia P of a consistent body is positive semidefinite (Wensing, Kim & Slotine 2017), so it is written
    as P = L L^T plus a small isotropic second moment. The nearest body minimises (p(L) - parameters)^T C^-1 (p(L) -
    parameters) over the determined parameters, where C is their covariance.
    """
    pseudo = np.asarray(pseudo_inertia(jnp.asarray(parameters)))
    lowest, largest = np.linalg.eigvalsh(pseudo)[[0, -1]]
    if determined.all() and lowest > 0:
        return True, parameters
    mass = max(abs(parameters[0]), 1e-6)
    rest = np.diag([mass * THINNEST**2] * 3 + [0.0])
    values, vectors = np.linalg.eigh(pseudo)
    clipped = vectors @ np.diag(np.maximum(values, 1e-3 * largest)) @ vectors.T
    sd = np.sqrt(np.diag(covariance))
    least = 1e-9 * np.abs(parameters[determined]).max(
        initial=1e-3
    )  # a noise-free log would leave the sizes to rounding
    sd = np.maximum(np.where(determined, sd, np.inf), least)
    use = np.flatnonzero(determined)
    scaled = covariance[np.ix_(use, use)] / np.outer(sd[use], sd[use]) + 1e-9 * np.eye(len(use))
    whiten = np.linalg.inv(np.linalg.cholesky(scaled)) / sd[use]
    lower = np.tril_indices(4)

    def at(entries: np.ndarray) -> np.ndarray:
        root = np.zeros((4, 4))
        root[lower] = entries
        return np.einsum("kij,ij->k", LINEAR, root @ root.T + rest)

    def error(entries: np.ndarray) -> np.ndarray:
        p = at(entries)
        small = np.where(determined, 0.0, 1e-3) * p / mass  # keep undetermined parameters as small as the others allow
        return np.concatenate([whiten @ (p - parameters)[use], small])

    found = optimize.least_squares(error, np.linalg.cholesky(clipped)[lower], method="trf", xtol=1e-14, ftol=1e-14)
    miss = np.linalg.norm(whiten @ (at(found.x) - parameters)[use])
    return bool(miss < 1e-2 and not determined.all()) or bool(lowest >= 0 and determined.all()), at(found.x)


def _about_com(p: np.ndarray) -> np.ndarray:
    """Inertia about the centre of mass (3, 3), computed entry by entry so that NaN entries do not affect the others."""
    x, y, z = p[1:4]
    xx, xy, yy = p[4] - (y * y + z * z) / p[0], p[5] + x * y / p[0], p[6] - (x * x + z * z) / p[0]
    xz, yz, zz = p[7] + x * z / p[0], p[8] + y * z / p[0], p[9] - (x * x + y * y) / p[0]
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])

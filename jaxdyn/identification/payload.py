"""Payloads: their inertial parameters, from runs with and without them or from loaded runs of a known arm, and the gains
of drives, from a payload of known mass.

Motion alone determines only the ratios of the gains; the known mass determines their scale."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from .._summary import Summary, lines
from ..errors import IdentificationError
from ..io.logs import Log
from ..model.chain import Chain
from ..spatial.inertia import pseudo_inertia
from .columns import INERTIAL_NAMES
from .friction_model import FrictionModel
from .loaded_runs import Runs, loaded_runs
from .preprocessing import Filters, Samples
from .torque_model import TorqueModel

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
        payload: (10,) parameters of the payload, with the known mass, in the frame that carries it [kg, kg m, kg m^2].
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
    arm: Chain | TorqueModel,
    unloaded: Runs,
    loaded: Runs,
    mass: float,
    *,
    com: Sequence[float] | Float[np.ndarray, "3"] | None = None,
    frame: str | None = None,
    gains: Sequence[float] | Float[np.ndarray, " n"] | None = None,
    friction: FrictionModel | None = None,
    own_friction: bool = False,
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

    Standard deviations come from the jackknife of `solve`. They do not include errors caused by a wrong
    mass, an inadequate friction model, or parts of the payload that were not weighed, such as a flange and its screws.

    Args:
        arm: the arm; only its kinematics, gravity, springs and the form of its friction are used.
        unloaded: one or more runs without the payload. The logged torques are either currents, or currents
            multiplied by nominal gains.
        loaded: one or more runs with the payload; their motion may differ from that of the unloaded runs.
        mass: mass of the payload [kg].
        com: the payload's centre of mass in `frame`, if known [m].
        frame: link or frame that carries the payload; by default the tip.
        gains: nominal gains by which the logged currents were multiplied, one per joint [N m/A or N/A]; by default 1.
        friction: friction model whose coefficients are fitted, as in `identify_payload`.
        own_friction: as in `identify_payload`.
        filters: as in `preprocess`, the same for all runs; by default chosen from the first run.

    Raises:
        IdentificationError: the logs do not match the chain, the mass is not positive, the number of gains differs
            from the number of joints, or the payload's torque is too small to determine any gain.
        LogError: a log seems to be in degrees (`check_log`) or is too short to be filtered, or a filter setting is invalid.

    Cost: about 3 s for two runs of 5000 samples with 6 joints, after compilation.
    """
    if not mass > 0:
        raise IdentificationError(f"the payload's mass is {mass:g} kg; it must be positive")
    chain = arm.chain if isinstance(arm, TorqueModel) else arm
    n = chain.nv
    listed = np.ones(n) if gains is None else np.asarray(gains, float)
    if listed.shape != (n,):
        raise IdentificationError(f"there are {listed.size} gains for {n} joints; specify one per joint")
    with jax.enable_x64(True):
        runs, notes = loaded_runs(arm, unloaded, loaded, frame, friction, own_friction, filters)
        known, free = given_body(mass, com)
        together = np.ones((n, 1))
        one = runs.fit(known, free, together)
        shared = float(np.sqrt(one.covariance[10, 10]))
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
            found = runs.fit(known, free, ties, one)
            sd = np.where(found.determined[10:], np.sqrt(np.diag(found.covariance)[10:]), np.inf)
            worst = int(np.argmax(np.where(determined, sd, -1.0)))
            if not determined.any() or sd[worst] <= LARGEST_DEVIATION:
                break
            determined[worst] = False
        torque = runs.payload_torque(found)
    scale = np.exp(found.gains)
    for j in np.flatnonzero(~determined):
        notes.append(
            f"{chain.joint_names[j]}: the runs do not determine its gain to within {100 * LARGEST_DEVIATION:g} % (the "
            f"payload's torque on this joint is {torque[j]:.3g} N m RMS); its nominal ratio to the other gains is kept"
        )
    return DriveGains(
        factors=scale,
        covariance=found.covariance[10:, 10:],
        gains=scale * listed,
        determined=determined,
        common=float(np.exp(one.gains[0])),
        common_deviation=float(np.exp(one.gains[0]) * shared),
        payload=found.payload,
        payload_torque=torque,
        noise=found.noise * scale,
        notes=tuple(notes),
    )


def given_body(
    mass: float, com: Sequence[float] | Float[np.ndarray, "3"] | None
) -> tuple[Float[np.ndarray, "10"], Float[np.ndarray, "10 z"]]:
    """Vector `known` and matrix `free` in p = known + free @ z, for a known mass and, optionally, centre of mass."""
    known = np.zeros(10)
    known[0] = mass
    if com is None:
        return known, np.eye(10)[:, 1:]
    centre = np.asarray(com, float)
    if centre.shape != (3,) or not np.all(np.isfinite(centre)):
        raise IdentificationError(f"the payload's centre of mass is {com}; specify three coordinates in metres")
    known[1:4] = mass * centre
    return known, np.eye(10)[:, 4:]


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
        body: the physically consistent parameters that fit the runs best, with the arm and friction fitted beside them;
            where the runs determine nothing, those of a sphere. It equals `parameters` if they are all determined and
            consistent.
        consistent: True if `parameters` are physically consistent.
        payload_torque: RMS torque of the payload on each joint [N m or N].
        noise: standard deviation of each joint's residual torque [N m or N].
        held_out: RMS error of each joint's torque in the last 30 % of the loaded runs, predicted by a fit to the rest
            [N m or N]; None if the rest does not determine the parameters.
        notes: remarks for the user.
        calibrated: True if gains from `calibrate_gains` were used. Otherwise the torque scale is assumed to be exact,
            and its error is not included in the standard deviations; a scale error of 1 % shifts the mass by 1 %.
        degrees: degrees of freedom of the covariance, for Student's t.
    """

    frame: str
    parameters: Float[np.ndarray, "10"]
    covariance: Float[np.ndarray, "10 10"]
    determined: Bool[np.ndarray, "10"]
    body: Float[np.ndarray, "10"]
    consistent: bool
    payload_torque: Float[np.ndarray, " n"]
    noise: Float[np.ndarray, " n"]
    held_out: Float[np.ndarray, " n"] | None
    notes: tuple[str, ...]
    calibrated: bool = False
    degrees: float = np.inf

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
    arm: Chain | TorqueModel,
    loaded: Runs,
    *,
    unloaded: Runs = (),
    frame: str | None = None,
    gains: DriveGains | None = None,
    friction: FrictionModel | None = None,
    own_friction: bool = False,
    filters: Filters | None = None,
) -> Payload:
    """Identify the ten inertial parameters of a payload from runs with it, and from runs without it or an arm's model.

    With unloaded runs, a single fit to all runs yields the payload as their difference:

        tau_j = Y_j pi + s Y_P,j p + friction_j,    s = 1 in loaded runs, 0 in the others.

    All runs share the arm's base parameters pi; p are the payload's parameters. Y is the regressor of the arm, and Y_P
    contains the columns of the link that carries the payload (Khalil, Gautier & Lemoine 2007). The runs may differ in
    motion, length and time stamps, because nothing is subtracted sample by sample. Of the arm, only kinematics, gravity,
    springs and the form of its friction are used.

    Without unloaded runs, Y_j pi is the torque that the arm's model predicts without friction. Errors of this model are
    attributed to the payload and are not included in the standard deviations.

    In both cases, friction is a sum of columns whose coefficients are fitted again, because friction changes from day to
    day. The columns are those of the `TorqueModel` that `identify` found, with its widths, memory and temperatures, and a
    term proportional to the load if there is none, which now includes the payload. Without this term, payload estimates on
    geared arms are wrong by several percent.

    All runs are fitted by `solve`, with its weights and the standard deviations of its jackknife.

    Args:
        arm: the arm's model, from `identify` (`Identification.model`), a file, or only its kinematics if there are unloaded
            runs. A delay of the model's logs (`TorqueModel.delay`) is removed from these logs too.
        loaded: one or more runs with the payload.
        unloaded: runs without the payload.
        frame: link or frame that carries the payload and in which the result is expressed; by default the tip.
        gains: result of `calibrate_gains`; the logged torques are multiplied by its factors.
        friction: another friction model, with given nonlinear parameters; for an arm without a friction model, the default
            is viscous, Coulomb, constant and load-dependent friction.
        own_friction: True to fit the coefficients of friction separately for each run, for example because the temperature
            changed between runs.
        filters: as in `preprocess`, the same for all runs; by default chosen from the first run.

    Raises:
        IdentificationError: the logs do not match the arm or have too few samples; or there are no unloaded runs, and the
            arm has no inertias.
        LogError: a log seems to be in degrees (`check_log`) or is too short to be filtered, or a filter setting is invalid.

    Cost: about 3 s for two runs of 5000 samples with 6 joints, after compilation.
    """
    chain = arm.chain if isinstance(arm, TorqueModel) else arm
    known = not isinstance(unloaded, Log | Samples) and not len(unloaded)
    if known and not np.any(np.asarray(chain.inertia)):
        raise IdentificationError(
            "the model has no inertials, so all torque would be attributed to the payload; identify the arm first, or pass a "
            "run without the payload as well"
        )
    n = chain.nv
    if gains is not None and len(gains.factors) != n:
        raise IdentificationError(f"there are gains for {len(gains.factors)} joints, but the model has {n}")
    with jax.enable_x64(True):
        runs, notes = loaded_runs(
            arm, unloaded, loaded, frame, friction, own_friction, filters, known=known, gains=gains and gains.factors
        )
        found = runs.fit(np.zeros(10), np.eye(10), np.zeros((n, 0)))
        covariance, determined = found.covariance[:10, :10], found.determined[:10]
        if gains is not None:
            slopes = runs.slopes(found)
            covariance = covariance + slopes @ gains.covariance @ slopes.T
        possible = bool(determined.all() and np.linalg.eigvalsh(_pseudo(found.payload))[0] >= 0)
        body = found.payload if possible else runs.consistent_body(found)
        held_out, torque = runs.held_out(found), runs.payload_torque(found)
    if known:
        notes.append(_assumed_gains(gains))
    parameters = np.where(determined, found.payload, np.nan)
    covariance = np.where(np.outer(determined, determined), covariance, np.nan)
    if not determined.all():
        lost = ", ".join(name for name, there in zip(INERTIAL_NAMES, determined, strict=True) if not there)
        notes.append(f"the runs do not determine the payload's {lost} (except in combinations)")
        scale = np.where(determined, np.sqrt(np.diag(covariance)), np.inf)
        possible = bool((np.abs(body - parameters)[determined] < 0.01 * scale[determined] + 1e-6).all())
    if not possible:
        notes.append("the estimated parameters are not physically consistent; `body` is the nearest consistent set")
    return Payload(
        frame=frame if frame is not None else str(chain.topology.tip_name),
        parameters=parameters,
        covariance=covariance,
        determined=determined,
        body=body,
        consistent=possible,
        payload_torque=torque,
        noise=found.noise,
        held_out=held_out,
        notes=tuple(notes),
        calibrated=gains is not None,
        degrees=found.estimate.degrees,
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


def _pseudo(parameters: Float[np.ndarray, "10"]) -> Float[np.ndarray, "4 4"]:
    return np.asarray(pseudo_inertia(jnp.asarray(parameters)))


def _about_com(p: np.ndarray) -> np.ndarray:
    """Inertia about the centre of mass (3, 3), computed entry by entry so that NaN entries do not affect the others."""
    x, y, z = p[1:4]
    xx, xy, yy = p[4] - (y * y + z * z) / p[0], p[5] + x * y / p[0], p[6] - (x * x + z * z) / p[0]
    xz, yz, zz = p[7] + x * z / p[0], p[8] + y * z / p[0], p[9] - (x * x + y * y) / p[0]
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])

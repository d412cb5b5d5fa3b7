"""Result of `identify`, and the table of its parameters."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from .._summary import Summary, data_frame, lines
from ..errors import IdentificationError
from ..model.chain import Chain, coordinate_names, torque_units, with_bodies
from .base import BaseParameters, TotalMass, prior_parameters, total_mass_of
from .columns import INERTIAL_NAMES, Columns
from .consistent import ConsistentEstimate
from .factors import QRFactors, bounded_intervals
from .friction_fit import FrictionFit
from .least_squares import Estimate, SplitHalf
from .prediction import Fit, fit_quality
from .preprocessing import Samples
from .selection import TermChoice
from .torque_model import TorqueModel, torque_model


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Measured and predicted torques of one stretch of samples, and their errors.

    Attributes:
        title: description of the samples, for example "fitted: run.csv" or "held out: last 30 % of run.csv".
        samples: the samples; torques that were not measured are NaN.
        prediction: (N, n) predicted torques [N m or N].
        fit: errors of the prediction.
        unconstrained: errors of the prediction by the unconstrained base parameters.
        logged: (N, n) raw logged torques, and their prediction with unfiltered friction [N m or N]; None if `identify`
            did not preprocess the log itself.
        run: the run at the log's rate, if a friction model was fitted; otherwise None.
        rows: indices of the samples in `run`.
        with_forces: function that adds the effect of the best-fitting unmeasured forces to predicted torques; None if
            all forces were measured.
        repeats_fitted: True if most of this motion repeats the motion of the fitted samples. Its prediction validates
            nothing, because the errors of a model repeat with the motion.
    """

    title: str
    samples: Samples
    prediction: np.ndarray
    fit: Fit
    unconstrained: Fit
    logged: tuple[np.ndarray, np.ndarray] | None = None
    run: Samples | None = None
    rows: Int[np.ndarray, " N"] | None = None
    with_forces: Callable[[np.ndarray], np.ndarray] | None = None
    repeats_fitted: bool = False

    @property
    def raw(self) -> Fit | None:
        """Errors of the prediction with respect to the raw, noisy torque in the log; None if that torque is unknown."""
        return None if self.logged is None else fit_quality(*self.logged, self.samples.qd)

    def predicted_by(self, model: TorqueModel, filtered: bool = True) -> Float[np.ndarray, "N n"]:
        """Torques that a model predicts for the samples [N m or N], for comparison by `fit_quality`.

        Args:
            filtered: False for unfiltered friction, for comparison with raw torques.

        Raises:
            IdentificationError: the model needs samples at the log's rate, but the samples were decimated.
        """
        if self.run is not None:
            return model.predict(self.run, self.rows, filtered=filtered)
        if model.needs_full_rate:
            raise IdentificationError(
                f"{self.title}: friction with memory needs samples at the log's rate, but these samples were decimated: "
                "use preprocess(log, Filters(stride=1)) and TorqueModel.predict"
            )
        return self.with_unmeasured(model.predict(self.samples, filtered=filtered))

    def with_unmeasured(self, torque: Float[np.ndarray, "N n"]) -> Float[np.ndarray, "N n"]:
        """Predicted torques, including the best-fitting unmeasured forces if there are any [N m or N]."""
        return torque if self.with_forces is None else self.with_forces(torque)


@dataclasses.dataclass(frozen=True, repr=False)
class Identification(Summary):
    """Result of `identify`.

    Attributes:
        chain: the robot with the identified inertias, friction and armature. A friction model is approximated by
            dissipative viscous, Coulomb and constant friction; `model` is the complete identified model.
        prior: the robot model that was passed to the identification.
        columns: the columns whose parameters were identified. Their friction model, if any, replaces viscous, Coulomb and
            constant friction.
        base: the base parameters.
        estimate: the unconstrained estimate of the base parameters.
        consistent: the physically consistent estimate, whose parameters `chain` contains; None if not requested.
        parameters: (p,) the full parameters of the chain in SI units, in column order.
        unconstrained: (p,) the full parameters nearest to the prior among those that reproduce the base parameters of
            `estimate`; `chain` contains them if `consistent` is None.
        fitted: one evaluation per fitted log.
        validation: one evaluation per validation run or held-out stretch.
        held_out_model: the complete model of the fit that excluded the held-out stretches and predicted them; None if
            nothing was held out. `chain` and `model` were fitted to all data.
        friction: the fit of the friction model, with standard deviations of its nonlinear parameters; None if there is none.
        delay: (n,) delay of the torques relative to the positions that was removed before the fit [s]; None if it was
            not estimated.
        choice: the selected terms and all trials; None if no selection was requested, the runs were too short for it,
            or joints mimic others.
        factors: QR factors of the fitted runs; the last column is the torque minus known torques.
        split_half: agreement between fits to the first and the second half of the data or, if a motion is repeated, of
            the motion; None if a half does not determine the base parameters.
        inconsistent_links: one sentence per identified link that is physically inconsistent.
        notes: remarks from reading, preprocessing and fitting.
        unusual_links: one sentence per identified link whose density or size is unusual for ordinary machines
            (`Consistency.densities`).
        play: (n,) play in the gears, where positions jump when the torque changes its sign [rad or m]; 0 where none is
            found, and None if it was not searched for. The model has no play.
    """

    chain: Chain
    prior: Chain
    columns: Columns
    base: BaseParameters
    estimate: Estimate
    consistent: ConsistentEstimate | None
    parameters: np.ndarray
    unconstrained: np.ndarray
    fitted: tuple[Evaluation, ...]
    validation: tuple[Evaluation, ...]
    held_out_model: TorqueModel | None
    friction: FrictionFit | None
    delay: np.ndarray | None
    choice: TermChoice | None
    factors: QRFactors
    split_half: SplitHalf | None
    inconsistent_links: tuple[str, ...]
    notes: tuple[str, ...]
    unusual_links: tuple[str, ...] = ()
    play: Float[np.ndarray, " n"] | None = None

    def __repr__(self) -> str:
        units = " or ".join(dict.fromkeys(torque_units(self.chain)))
        rows = (
            f"{run.title}: torque error {run.fit.total_relative:.3g} % of the torque, rms by joint "
            f"{np.array2string(run.fit.rms, precision=3)} {units}"
            for run in (*self.fitted, *self.validation)
        )
        consistent = f"{len(self.inconsistent_links)} links are not" if self.inconsistent_links else "all links are"
        return lines(
            f"Identification: {len(self.base.names)} base parameters of {self.chain.n} joints",
            *rows,
            f"{consistent} physically consistent",
            f"total mass {self.total_mass}" if self.has_free_base else "",
            "" if self.split_half is None else str(self.split_half),
            f"friction: {', '.join(type(term).__name__ for term in self.friction.model.terms)}"
            if self.friction
            else "",
            f"{len(self.notes)} notes" if self.notes else "",
        )

    @property
    def is_validated(self) -> bool:
        """True if the torques of motion that does not repeat the fitted motion were predicted."""
        return any(not run.repeats_fitted for run in self.validation)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the full parameters, in column order."""
        return self.columns.names(self.chain.n)

    @property
    def rows(self) -> tuple[str, ...]:
        """Names of the rows of the equations of motion: joints, or independent coordinates if joints are coupled."""
        return coordinate_names(self.chain)

    @property
    def model(self) -> TorqueModel:
        """The complete fitted model: the chain, the friction model, and the terms that a chain cannot represent."""
        return torque_model(self.chain, self.columns, self.parameters, self.delay)

    @property
    def validation_refit(self) -> bool:
        """True if held-out stretches were predicted by a fit that excluded them, while `chain` was fitted to all data."""
        return self.held_out_model is not None

    @property
    def validated_model(self) -> TorqueModel:
        """The model that predicted the runs of `validation`, none of which it was fitted to."""
        return self.model if self.held_out_model is None else self.held_out_model

    @property
    def has_free_base(self) -> bool:
        """True if the robot has a floating base."""
        return self.chain.topology.is_floating

    @property
    def has_unmeasured_forces(self) -> bool:
        """True if unmeasured forces on fixed frames or in closed loops were eliminated."""
        return any(run.with_forces is not None for run in self.fitted)

    @property
    def covariance(self) -> Float[np.ndarray, "b b"]:
        """Covariance of the identified chain's base parameters: of `consistent` if requested, otherwise of `estimate`."""
        return self.estimate.covariance if self.consistent is None else self.consistent.covariance

    @property
    def total_mass(self) -> TotalMass:
        """Total mass of the moving links [kg], with a standard deviation if the fitted rows determine the mass."""
        prior, bodies = prior_parameters(self.prior, self.columns), with_bodies(self.chain.topology)
        return total_mass_of(self.base, self.covariance, self.parameters, prior, bodies)

    def to_pandas(self) -> Any:
        """Return base, full and nonlinear friction parameters as a `pandas.DataFrame` with one row per parameter.

        The index contains the names. The columns are those of parameters.csv, in SI units:

        - kind ("base", "full" or "friction"), belongs_to, value and unit;
        - standard_deviation (by jackknife) and relative_sd_percent;
        - lower and upper, the ends of the 95 % interval of the value, which is limited to the bounds of the parameter;
        - prior, identifiable, and model_value, the value in the identified chain.

        The base parameters are those of weighted least squares, and the full parameters those of the identified chain. A
        full parameter has a standard deviation only if it is a base parameter on its own.

        Raises:
            ImportError: pandas is not installed.
        """
        rows = [dataclasses.asdict(row) for part in parameter_rows(self) for row in part]
        columns: dict[str, Any] = {key: [row[key] for row in rows] for key in rows[0] if key != "name"}
        columns |= {key: np.array(columns[key], float) for key in _ESTIMATED}
        return data_frame(columns, [row["name"] for row in rows], "parameter")


_ESTIMATED = ("standard_deviation", "relative_sd_percent", "lower", "upper")
VAGUE = 1000.0  # a 95 % interval that reaches further than this many times the prior says nothing
Identifiable = Literal["yes", "only in sums", "no", "known"]


@dataclasses.dataclass(frozen=True)
class ParameterRow:
    """One row of the parameter table, for a single parameter or a combination of parameters.

    Quantities that were not estimated are None.

    Attributes:
        kind: "base" for a combination that the torques determine, "full" for a single parameter, "friction" for a nonlinear
            parameter of friction, such as a width.
        name: the combination or the parameter.
        belongs_to: the link or joint to which the parameter belongs; for a combination, that of its leading parameter.
        value: for a combination, the unconstrained estimate; for a single parameter, its
            value in the identified model.
        unit: unit of the value; empty for a nonlinear parameter, which is in rad, m, s and powers of these.
        standard_deviation: standard deviation of the value.
        relative_sd_percent: standard deviation in percent of the value.
        lower: lower end of the 95 % confidence interval of the value. The interval of a single parameter ends at the
            parameter's bound, for example zero for friction and armature; a value on its bound is an end of its interval.
            That of a nonlinear parameter, which is positive, is symmetric in its logarithm.
        upper: upper end of the 95 % confidence interval of the value.
        prior: value in the given model, which contains no nonlinear parameters.
        identifiable: "yes" if the data determine the parameter on its own, "only in sums" if they determine it only in
            combination with others, "no" if they do not determine it or its interval says nothing (`determined`; for a
            nonlinear parameter, if it reaches beyond `VAGUE` times the value), and "known" if its value is taken from the
            model.
        model_value: value in the identified model.
    """

    kind: Literal["base", "full", "friction"]
    name: str
    belongs_to: str
    value: float
    unit: str
    standard_deviation: float | None
    relative_sd_percent: float | None
    lower: float | None
    upper: float | None
    prior: float | None
    identifiable: Identifiable
    model_value: float


def parameter_rows(result: Identification) -> tuple[list[ParameterRow], list[ParameterRow], list[ParameterRow]]:
    """The base parameters, the full parameters, each in column order, and the nonlinear parameters of friction.

    The value of a base parameter, its standard deviation and its interval are those of `Identification.estimate`; those of a
    full parameter belong to the identified chain (`Identification.covariance`). A full parameter has a standard deviation
    only if it is a base parameter on its own. Otherwise, many values yield the same torques, and the listed value depends
    on the prior and the constraints.
    """
    units, owners = result.columns.units(result.prior), _owners(result)
    prior = prior_parameters(result.prior, result.columns)
    base_prior, held = result.base.matrix @ prior, result.base.matrix @ result.parameters
    estimate = result.estimate
    with np.errstate(invalid="ignore"):  # 0 of 0
        relative = estimate.relative_standard_deviations
    lower, upper = estimate.confidence_intervals().T
    base, sure = [], determined(result)
    for k, lead in enumerate(result.base.kept.tolist()):
        base.append(
            ParameterRow(
                kind="base",
                name=result.base.names[k],
                belongs_to=owners[lead],
                value=float(estimate.values[k]),
                unit=units[lead],
                standard_deviation=float(estimate.standard_deviations[k]),
                relative_sd_percent=float(relative[k]),
                lower=float(lower[k]),
                upper=float(upper[k]),
                prior=float(base_prior[k]),
                identifiable="yes" if sure[k] else "no",
                model_value=float(held[k]),
            )
        )
    alone = {
        int(lead): k
        for k, lead in enumerate(result.base.kept)
        if np.count_nonzero(result.base.matrix[k]) == 1 and np.count_nonzero(result.base.matrix[:, lead]) == 1
    }
    full, known, factor = [], set(result.base.known), estimate.interval_factor()
    deviations = np.sqrt(np.diag(result.covariance))
    bounds = (
        np.full((len(result.names), 2), [-np.inf, np.inf]) if result.consistent is None else result.consistent.bounds
    )
    for i, name in enumerate(result.names):
        value, estimated = float(result.parameters[i]), dict.fromkeys(_ESTIMATED)
        if i in alone:
            k = alone[i]
            sd = float(deviations[k])
            low, high = bounded_intervals(value, factor * sd, bounds[i]).tolist()
            percent = 100 * sd / abs(value) if value else np.inf if sd else np.nan
            estimated = dict(zip(_ESTIMATED, (sd, percent, low, high), strict=True))
        found: Identifiable = "only in sums" if np.any(result.base.matrix[:, i]) else "no"
        found = base[alone[i]].identifiable if i in alone else found
        full.append(
            ParameterRow(
                kind="full",
                name=name,
                belongs_to=owners[i],
                value=value,
                unit=units[i],
                **estimated,
                prior=float(prior[i]),
                identifiable="known" if name in known else found,
                model_value=value,
            )
        )
    return base, full, _nonlinear_rows(result)


def _nonlinear_rows(result: Identification) -> list[ParameterRow]:
    """The nonlinear parameters of friction that were fitted."""
    factor, rows = result.estimate.interval_factor(), []
    for name, j, value, deviation in () if result.friction is None else result.friction.determined():
        with np.errstate(over="ignore", under="ignore"):
            lower, upper = (value * np.exp([-factor * deviation, factor * deviation])).tolist()
        rows.append(
            ParameterRow(
                kind="friction",
                name=name,
                belongs_to=result.chain.joint_names[j],
                value=value,
                unit="",
                standard_deviation=value * deviation,
                relative_sd_percent=100 * deviation,
                lower=lower,
                upper=upper,
                prior=None,
                identifiable="yes" if upper <= VAGUE * value else "no",
                model_value=value,
            )
        )
    return rows


def model_intervals(result: Identification) -> tuple[Float[np.ndarray, " b"], Float[np.ndarray, "b 2"]]:
    """Standard deviations and 95 % intervals of the identified model's base parameters.

    An interval ends where the bounds of the parameters that are summed end it, for example at zero for Izz1 + Ia1.
    """
    deviations, matrix = np.sqrt(np.diag(result.covariance)), result.base.matrix
    reach, ends = result.estimate.interval_factor() * deviations, np.full((len(deviations), 2), [-np.inf, np.inf])
    if result.consistent is not None:
        products = np.where(matrix[:, :, None] != 0, matrix[:, :, None], 1) * result.consistent.bounds
        products = np.where(matrix[:, :, None] != 0, products, 0)
        ends = np.stack([products.min(axis=2).sum(axis=1), products.max(axis=2).sum(axis=1)], axis=1)
    return deviations, bounded_intervals(matrix @ result.parameters, reach, ends)


def determined(result: Identification) -> Bool[np.ndarray, " b"]:
    """Mask of the base parameters whose 95 % interval says anything: it reaches less far than `VAGUE` times the prior.

    The prior's scale is the larger of the parameter's own prior, the sum of the magnitudes of its terms, and the largest
    prior of a base parameter with the same unit; without any, the parameter counts as determined.
    """
    prior, units = prior_parameters(result.prior, result.columns), result.columns.units(result.prior)
    own = np.abs(result.base.matrix) @ np.abs(prior)
    of = np.array([units[lead] for lead in result.base.kept.tolist()])
    scale = np.array([own[of == unit].max() for unit in of])
    reach = result.estimate.interval_factor() * result.estimate.standard_deviations
    return ~((scale > 0) & (reach > VAGUE * scale))


def _owners(result: Identification) -> list[str]:
    chain, terms = result.prior, result.columns.drive_terms
    links = [link for link in chain.link_names for _ in INERTIAL_NAMES]
    joints = [joint for joint in chain.joint_names for _ in terms]
    model = result.columns.friction
    friction = [] if model is None else [chain.joint_names[j] for j in model.joints(chain.n).tolist()]
    return links + joints + [""] * (len(result.names) - len(links) - len(joints) - len(friction)) + friction

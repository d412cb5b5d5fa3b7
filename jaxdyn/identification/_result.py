"""Result of `identify`, and its parameters one by one."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from .._summary import Summary, data_frame, lines
from ..errors import IdentificationError
from ..io._logs.motion import coordinate_names
from ..model._chain import Chain
from ._consistency.consistent import ConsistentEstimate
from ._estimators.estimate import Estimate
from ._estimators.split_half import SplitHalf
from ._friction.fit import FrictionFit
from ._model.torque_model import TorqueModel, torque_model
from ._preprocessing.samples import Samples
from ._regression.base_parameters import BaseParameters
from ._regression.columns import INERTIAL_NAMES, Columns
from ._regression.completion import prior_parameters
from ._regression.factors import QRFactors
from ._regression.prediction import Fit
from ._selection.outcome import TermChoice


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Measured and predicted torques of one stretch of samples, and their errors.

    Attributes:
        title: what the samples are ("fitted: run.csv", "held out: last 30 % of run.csv").
        samples: the samples; torques of coordinates where they were not measured are NaN.
        prediction: (N, n) predicted torques [N m].
        fit: the errors.
        unconstrained: the errors of the unconstrained base parameters.
        raw: the errors against the logged, unfiltered torque: noise counts in full. None where the samples
            were not made from a log here.
        run: the run at the log's rate, where a friction model was fitted; None where there is none.
        rows: which samples of it these are.
        with_forces: takes torques that parameters predict, and adds the forces nobody measured that fit the samples best; None
            where all forces were measured.
    """

    title: str
    samples: Samples
    prediction: np.ndarray
    fit: Fit
    unconstrained: Fit
    raw: Fit | None = None
    run: Samples | None = None
    rows: Int[np.ndarray, " N"] | None = None
    with_forces: Callable[[np.ndarray], np.ndarray] | None = None

    def predicted_by(self, model: TorqueModel) -> Float[np.ndarray, "N n"]:
        """Torques that a model predicts for these samples [N m]; `fit_quality` compares them with the measured.

        Raises:
            IdentificationError: the model needs samples at the log's rate, and these were thinned.
        """
        if self.run is not None:
            return model.predict(self.run, self.rows)
        if model.needs_full_rate:
            raise IdentificationError(
                f"{self.title}: friction with memory needs the log's own rate, and these samples were thinned: "
                "use preprocess(log, Filters(stride=1)) and TorqueModel.predict"
            )
        torque = model.predict(self.samples)
        return torque if self.with_forces is None else self.with_forces(torque)


@dataclasses.dataclass(frozen=True, repr=False)
class Identification(Summary):
    """Result of `identify`.

    Attributes:
        chain: the robot with the identified inertias, friction and armature in its leaves; of a friction model the
            nearest dissipative viscous, Coulomb and constant friction. `model` is the whole identified model.
        prior: the given model.
        columns: the identified columns.
        base: the base parameters.
        ols: ordinary least squares.
        wls: weighted least squares, of the base parameters alone.
        consistent: the physically consistent estimate, which the chain holds; None if not requested.
        parameters: (p,) the full set in the chain, in column order.
        unconstrained: (p,) the full set nearest the prior's that has the base parameters of `wls`; the chain holds it
            if `consistent` is None.
        fitted: one evaluation per fitted log.
        validation: one evaluation per held-out stretch.
        validation_refit: the held-out stretch was predicted by a fit without it, while `chain` was fitted to everything.
        friction: the friction model that was fitted in place of viscous, Coulomb and constant friction, or None.
        delay: (n,) how much later than the positions the torques were taken to be [s]; None if not estimated.
        choice: the chosen terms and all trials; None if nothing was to be chosen, or the runs were too short.
        factors: of the runs that were fitted: the columns, and the torque less what was taken as given.
        split_half: whether the first and the second half of the data, each fitted by itself, agree about the base parameters;
            None where a half does not determine them.
        impossible: one sentence for every physically inconsistent identified link.
        notes: remarks of reading and preprocessing.
        unusual: unusual links, one sentence each: denser, lighter or larger than those of ordinary machines
            (`Consistency.densities`).
    """

    chain: Chain
    prior: Chain
    columns: Columns
    base: BaseParameters
    ols: Estimate
    wls: Estimate
    consistent: ConsistentEstimate | None
    parameters: np.ndarray
    unconstrained: np.ndarray
    fitted: tuple[Evaluation, ...]
    validation: tuple[Evaluation, ...]
    validation_refit: bool
    friction: FrictionFit | None
    delay: np.ndarray | None
    choice: TermChoice | None
    factors: QRFactors
    split_half: SplitHalf | None
    impossible: tuple[str, ...]
    notes: tuple[str, ...]
    unusual: tuple[str, ...] = ()

    def __repr__(self) -> str:
        rows = (
            f"{run.title}: torque error {run.fit.total_relative:.3g} % of the torque, rms by joint "
            f"{np.array2string(run.fit.rms, precision=3)} N m"
            for run in (*self.fitted, *self.validation)
        )
        consistent = f"{len(self.impossible)} links are not" if self.impossible else "all links are"
        return lines(
            f"Identification: {len(self.base.names)} base parameters of {self.chain.n} joints",
            *rows,
            f"{consistent} physically consistent",
            "" if self.split_half is None else str(self.split_half),
            f"friction: {', '.join(type(term).__name__ for term in self.friction.model.terms)}"
            if self.friction
            else "",
            f"{len(self.notes)} notes" if self.notes else "",
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the full parameters, in column order."""
        return self.columns.names(self.chain.n)

    @property
    def rows(self) -> tuple[str, ...]:
        """Names of the rows of the equations of motion: the joints, or the coordinates they follow."""
        return coordinate_names(self.chain)

    @property
    def model(self) -> TorqueModel:
        """The model that was fitted and judged: the chain, the friction model, columns that the chain has no place for."""
        return torque_model(self.chain, self.columns, self.parameters, self.friction, self.delay)

    def to_pandas(self) -> Any:
        """The base parameters, then the full set, as a `pandas.DataFrame` with one row per parameter, in SI units.

        The index is the name; columns are kind (base or full), belongs_to, value, model (what the chain holds), unit,
        deviation (standard, from fits that leave out an eighth of the data in turn), relative [%], ols_value, ols_deviation,
        prior, identifiable, and lower and upper, the 95 % interval (`Estimate.confidence_intervals`). A full parameter has a
        deviation only where a base parameter consists of it alone.

        Raises:
            ImportError: pandas is not installed.
        """
        base, full = parameter_rows(self)
        rows = [dataclasses.asdict(row) for row in (*base, *full)]
        columns: dict[str, Any] = {key: [row[key] for row in rows] for key in rows[0] if key != "name"}
        columns |= {key: np.array(columns[key], float) for key in _ESTIMATED}
        reach = self.wls.interval_factor() * columns["deviation"]
        columns |= {"lower": columns["value"] - reach, "upper": columns["value"] + reach}
        return data_frame(columns, [row["name"] for row in rows], "parameter")


_ESTIMATED = ("deviation", "relative", "ols_value", "ols_deviation")
Identifiable = Literal["yes", "only in sums", "no", "known"]


@dataclasses.dataclass(frozen=True)
class ParameterRow:
    """One parameter, or combination of parameters, with its estimates; None if there is none.

    Attributes:
        kind: "base" for a combination that the torques determine, "full" for a single parameter.
        name: the combination or the parameter.
        belongs_to: the link or joint (of the parameter that leads a combination).
        value: weighted least squares for a combination, unconstrained; the value in the model for a single
            parameter.
        model: what the written model holds: of a combination, its value for the consistent set.
        unit: of the value.
        deviation: standard deviation of the value.
        relative: the same in percent of the value.
        ols_value: ordinary least squares.
        ols_deviation: standard deviation of that.
        prior: of the model that was given.
        identifiable: on its own, only within sums, or not at all; known, where it was taken from the model.
    """

    kind: Literal["base", "full"]
    name: str
    belongs_to: str
    value: float
    model: float
    unit: str
    deviation: float | None
    relative: float | None
    ols_value: float | None
    ols_deviation: float | None
    prior: float
    identifiable: Identifiable


def parameter_rows(result: Identification) -> tuple[list[ParameterRow], list[ParameterRow]]:
    """The base parameters and the full set, each in its order.

    A full parameter has a standard deviation only where a base parameter consists of it alone: otherwise the
    completion chose its value among all with the same torques.
    """
    units, owners = result.columns.units(result.prior), _owners(result)
    prior = prior_parameters(result.prior, result.columns)
    base_prior, held = result.base.matrix @ prior, result.base.matrix @ result.parameters
    ols, wls = result.ols, result.wls
    with np.errstate(invalid="ignore"):  # 0 of 0
        relative = wls.relative_standard_deviations
    base = []
    for k, lead in enumerate(result.base.kept.tolist()):
        base.append(
            ParameterRow(
                kind="base",
                name=result.base.names[k],
                belongs_to=owners[lead],
                value=float(wls.values[k]),
                model=float(held[k]),
                unit=units[lead],
                deviation=float(wls.standard_deviations[k]),
                relative=float(relative[k]),
                ols_value=float(ols.values[k]),
                ols_deviation=float(ols.standard_deviations[k]),
                prior=float(base_prior[k]),
                identifiable="yes",
            )
        )
    alone = {
        int(lead): k
        for k, lead in enumerate(result.base.kept)
        if np.count_nonzero(result.base.matrix[k]) == 1 and np.count_nonzero(result.base.matrix[:, lead]) == 1
    }
    full, known = [], set(result.base.known)
    for i, name in enumerate(result.names):
        row = base[alone[i]] if i in alone else None
        found: Identifiable = "yes" if row else "only in sums" if np.any(result.base.matrix[:, i]) else "no"
        full.append(
            ParameterRow(
                kind="full",
                name=name,
                belongs_to=owners[i],
                value=float(result.parameters[i]),
                model=float(result.parameters[i]),
                unit=units[i],
                deviation=row and row.deviation,
                relative=row and row.relative,
                ols_value=row and row.ols_value,
                ols_deviation=row and row.ols_deviation,
                prior=float(prior[i]),
                identifiable="known" if name in known else found,
            )
        )
    return base, full


def _owners(result: Identification) -> list[str]:
    chain, terms = result.prior, result.columns.drive_terms
    links = [link for link in chain.link_names for _ in INERTIAL_NAMES]
    joints = [joint for joint in chain.joint_names for _ in terms]
    return links + joints + [""] * (len(result.names) - len(links) - len(joints))

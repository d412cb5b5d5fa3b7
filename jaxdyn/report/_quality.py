"""What the report and the summary say in numbers: pooled errors, units, and how well each parameter is determined."""

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np

from ..identification._regression.columns import INERTIAL_NAMES
from ..identification._regression.completion import prior_parameters
from ..identification._regression.prediction import Fit, fit_quality
from ..identification._result import Evaluation, Identification
from ..model._chain import Chain

GOOD, FAIR = 10.0, 30.0  # relative standard deviation [%] up to which a parameter is well, or fairly, determined

Identifiable = Literal["yes", "only in sums", "no"]


@dataclasses.dataclass(frozen=True)
class Row:
    """One parameter, or combination of parameters, with its estimates; None where there is none.

    Attributes:
        kind: "base" for a combination that the torques determine, "full" for a single parameter.
        name: the combination or the parameter.
        belongs_to: the link or joint (of the parameter that leads a combination).
        value: weighted least squares for a combination, without asking for possible bodies; what the model holds for a single
            parameter.
        model: what the written model holds: of a combination, its value for the consistent set.
        unit: of the value.
        deviation: standard deviation of the value.
        relative: the same in percent of the value.
        ols_value: ordinary least squares.
        ols_deviation: standard deviation of that.
        prior: of the model that was given.
        identifiable: on its own, only within sums, or not at all.
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


def parameter_rows(result: Identification) -> tuple[list[Row], list[Row]]:
    """The base parameters and the full set, each in its order.

    A full parameter has a standard deviation only where a base parameter consists of it alone: elsewhere the completion
    chose its value among all that give the same torques.
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
            Row(
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
    full = []
    for i, name in enumerate(result.names):
        row = base[alone[i]] if i in alone else None
        full.append(
            Row(
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
                identifiable="yes" if row else "only in sums" if np.any(result.base.matrix[:, i]) else "no",
            )
        )
    return base, full


def _owners(result: Identification) -> list[str]:
    chain, terms = result.prior, result.columns.drive_terms
    links = [link for link in chain.link_names for _ in INERTIAL_NAMES]
    joints = [joint for joint in chain.joint_names for _ in terms]
    return links + joints + [""] * (len(result.names) - len(links) - len(joints))


def determination(relative: float) -> Literal["well", "fairly", "poorly"]:
    """A relative standard deviation [%] in a word."""
    return "well" if relative <= GOOD else "fairly" if relative <= FAIR else "poorly"


def pooled(evaluations: Sequence[Evaluation]) -> Fit | None:
    """Errors over the samples of several evaluations taken together; None where there are none."""
    if not evaluations:
        return None
    tau, prediction, qd = (
        np.concatenate(parts)
        for parts in (
            [e.samples.tau for e in evaluations],
            [e.prediction for e in evaluations],
            [e.samples.qd for e in evaluations],
        )
    )
    return fit_quality(tau, prediction, qd)


def pooled_unconstrained(evaluations: Sequence[Evaluation]) -> np.ndarray:
    """(n,) RMS errors of the base parameters that were not asked to be those of possible bodies, over several evaluations."""
    counts = [e.unconstrained.samples for e in evaluations]
    return np.sqrt(np.average([e.unconstrained.rms**2 for e in evaluations], axis=0, weights=counts))


def torque_units(chain: Chain) -> tuple[str, ...]:
    """Unit of each joint's torque: N m, or N for prismatic joints."""
    return tuple("N m" if turns else "N" for turns in np.any(np.asarray(chain.screw[:, :3]) != 0, axis=1))


def deviations_from(result: Identification, truth: Chain) -> np.ndarray:
    """(b,) estimated minus true base parameters, in standard deviations of the estimates."""
    true = result.base.matrix @ prior_parameters(truth, result.columns)
    return (result.wls.values - true) / result.wls.standard_deviations

"""Section that compares the identified model with the given one, joint by joint."""

import dataclasses

import numpy as np

from ...identification._model.torque_model import TorqueModel
from ...identification._regression.completion import prior_parameters, with_parameters
from ...identification._regression.prediction import Fit, fit_quality
from ...identification._result import Identification
from .._markup import Column, columns_table, element, faint, group_row, names_column, rounded, section
from .._quality import together, torque_units


@dataclasses.dataclass(frozen=True)
class AgainstPrior:
    """Errors of the given and the identified model on the same samples, which are held-out samples if there are any.

    Attributes:
        identified: errors of the identified model.
        given: errors of the unchanged given model, including its friction, if any.
        driven: errors of the given inertias with the identified drive terms (friction, armature, offset), which like
            those of the identified model come from a fit without the held-out samples.
        held_out: True if the samples were held out.
    """

    identified: Fit
    given: Fit
    driven: Fit
    held_out: bool


def has_inertias(result: Identification) -> bool:
    """True if the given model has inertias."""
    return bool(np.any(np.asarray(result.prior.inertia)))


def against_prior(result: Identification) -> AgainstPrior | None:
    """The errors of both models; None if the given model has no inertias."""
    if not has_inertias(result):
        return None
    evaluations = result.validation or result.fitted
    count = 10 * result.chain.n
    model = result.validated_model
    mixed = np.array(prior_parameters(model.chain, result.columns))
    mixed[:count] = np.asarray(result.prior.inertia, float).reshape(-1)
    driven = dataclasses.replace(model, chain=with_parameters(result.prior, result.columns, mixed))
    data = together(evaluations)

    def error(model: TorqueModel) -> Fit:
        return fit_quality(data.tau, np.concatenate([e.predicted_by(model) for e in evaluations]), data.qd)

    identified = fit_quality(data.tau, data.prediction, data.qd)
    given = TorqueModel(result.prior).filtered(result.model.cutoff)
    return AgainstPrior(identified, error(given), error(driven), bool(result.validation))


def prior_section(result: Identification, errors: AgainstPrior | None) -> str:
    """Section with a table of the errors of both models by joint; empty if the given model has no inertias."""
    if errors is None:
        return ""
    units = torque_units(result.chain)
    groups = (
        ("given model", errors.given),
        ("its inertias, identified drives", errors.driven),
        ("identified", errors.identified),
    )
    columns = [names_column("joint", result.rows), Column("unit", units, "text")]
    for _, fit in groups:
        columns += [Column("RMS", [*map(rounded, fit.rms)], "edge"), Column("RRE [%]", [*map(rounded, fit.relative)])]
    with np.errstate(divide="ignore", invalid="ignore"):
        columns.append(Column("ratio", [*map(rounded, errors.given.rms / errors.identified.rms)], "edge"))
    where = "held-out motion" if errors.held_out else "the fitted motion, because none was held out"
    return section(
        "Against the given model",
        "prior",
        columns_table(columns, group_row(2, (name for name, _ in groups), 2) + element("th", "")),
        faint(
            f"Errors relative to the low-pass filtered torque, on {where}, of three models: the given model; its inertias "
            "with the identified friction, armature and offsets, which isolates the effect of the links; and the "
            "identified model. The ratio is the error of the "
            "given model divided by that of the identified model."
        ),
    )

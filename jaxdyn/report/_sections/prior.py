"""The identified model beside the given one, joint by joint."""

import dataclasses

import numpy as np

from ...identification._regression.completion import prior_parameters, with_parameters
from ...identification._regression.prediction import Fit, fit_quality
from ...identification._result import Identification
from ...identification._validation.resimulation import model_torque
from .._markup import element, escaped, rounded, table
from .._quality import pooled, torque_units


@dataclasses.dataclass(frozen=True)
class AgainstPrior:
    """Errors of the given and of the identified model on the same samples, held out where there are such.

    Attributes:
        identified: the identified model.
        given: the given one as it is, with the friction it has or lacks.
        driven: the given one's inertias with the identified drive terms (friction, armature, offset).
        held_out: whether the samples were not fitted.
    """

    identified: Fit
    given: Fit
    driven: Fit
    held_out: bool


def has_inertias(result: Identification) -> bool:
    """Whether the given model has inertias at all."""
    return bool(np.any(np.asarray(result.prior.inertia)))


def against_prior(result: Identification) -> AgainstPrior | None:
    """The errors of both models; None where the given one has no inertias to compare with."""
    if not has_inertias(result):
        return None
    evaluations = result.validation or result.fitted
    count = 10 * result.chain.n
    mixed = np.array(prior_parameters(result.chain, result.columns))
    mixed[:count] = np.asarray(result.prior.inertia, float).reshape(-1)
    driven = with_parameters(result.prior, result.columns, mixed)
    tau, qd = (np.concatenate([getattr(e.samples, name) for e in evaluations]) for name in ("tau", "qd"))
    identified = pooled(evaluations)
    assert identified is not None

    def error(chain) -> Fit:
        return fit_quality(tau, np.concatenate([model_torque(chain, e.samples) for e in evaluations]), qd)

    return AgainstPrior(identified, error(result.prior), error(driven), bool(result.validation))


def prior_section(result: Identification, errors: AgainstPrior | None) -> str:
    """A table with a row a joint; empty where there is nothing to compare with."""
    if errors is None:
        return ""
    units = torque_units(result.chain)
    groups = (
        ("given model", errors.given),
        ("its inertias, identified drives", errors.driven),
        ("identified", errors.identified),
    )
    top = (
        element("th", "") * 2
        + "".join(element("th", name, "group edge", colspan="2") for name, _ in groups)
        + element("th", "")
    )
    head = element("th", "joint", "text") + element("th", "unit", "text")
    head += "".join(element("th", "RMS", "edge") + element("th", "RRE [%]") for _ in groups) + element(
        "th", "times less", "edge"
    )
    rows = []
    for j, joint in enumerate(result.chain.joint_names):
        row = element("th", escaped(joint), "text") + element("td", units[j], "text")
        for _, fit in groups:
            row += element("td", rounded(fit.rms[j]), "edge") + element("td", rounded(fit.relative[j]))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = errors.given.rms[j] / errors.identified.rms[j]
        rows.append(row + element("td", rounded(float(ratio)), "edge"))
    where = "motion that was not fitted" if errors.held_out else "the fitted motion, for none was held out"
    return (
        element("h2", "Against the given model", id="prior")
        + table([top, head], rows)
        + element(
            "p",
            f"Torque errors on {where}: of the given model as it is; of its inertias with the identified friction, armature "
            "and offsets, which tells how much is due to the bodies alone; and of the identified model. Times less: the error "
            "of the given model over that of the identified one.",
            "faint",
        )
    )

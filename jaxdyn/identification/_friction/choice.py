"""Selection of a friction model for each joint, based on the error on held-out runs."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from ..._summary import data_frame
from ...errors import IdentificationError
from ...model._chain import Chain
from .._preprocessing.samples import Samples
from .._regression.base_parameters import BaseParameters
from .._regression.columns import Columns
from .._regression.prediction import fit_quality
from .fit import base_with_friction, fit_prepared
from .memory import LoadedSlip, MaxwellSlip
from .model import FrictionModel
from .rows import prepare
from .terms import FrictionTerm, LoadDependent, PowerViscous, Stribeck, chain_terms

STRETCHES = 3  # number of stretches into which a single run is divided


@dataclasses.dataclass(frozen=True, eq=False)
class FrictionComparison:
    """Comparison of friction models by cross-validation.

    Attributes:
        names: names of the models.
        errors: (models, n) relative torque error of each joint on held-out runs [%], over all samples; RMS over the
            folds.
        moving: (models, n) relative torque error of each joint on held-out runs [%], over the samples at which the
            joint moves; RMS over the folds.
        best: name of the model selected for each joint.
        model: the friction model with each joint's selected terms.
    """

    names: tuple[str, ...]
    errors: Float[np.ndarray, "m n"]
    moving: Float[np.ndarray, "m n"]
    best: tuple[str, ...]
    model: FrictionModel

    def to_pandas(self) -> Any:
        """Held-out errors [%] as a `pandas.DataFrame` with one row per model.

        Each column label is a pair of "all" or "moving" and the joint's number, counted from 1.

        Raises:
            ImportError: pandas is not installed.
        """
        blocks = {"all": self.errors, "moving": self.moving}
        columns = {(key, j + 1): column for key, x in blocks.items() for j, column in enumerate(x.T)}
        return data_frame(columns, self.names, "model")

    def __str__(self) -> str:
        title = "held-out error [%]"
        width = max(len(title), *map(len, self.names))

        def line(name: str, row: np.ndarray) -> str:
            marks = ["*" if name == best else " " for best in self.best]
            return f"{name:{width}s} " + " ".join(f"{x:6.2f}{mark}" for x, mark in zip(row, marks, strict=True))

        head = f"{title:{width}s} " + " ".join(f"{'joint ' + str(j + 1):7s}" for j in range(len(self.best)))
        return "\n".join([head, *map(line, self.names, self.errors), "* chosen"])


def friction_candidates(cutoff: float | None = None) -> dict[str, FrictionModel]:
    """Candidate friction models for `choose_friction`, by name, from simple to complex.

    Args:
        cutoff: low-pass cutoff of the measured torques [Hz].
    """
    plain = chain_terms(0.01)
    slip = (*plain, MaxwellSlip(width=1e-4))
    slips = (*slip, MaxwellSlip(width=1e-3))
    models = {
        "plain": plain,
        "Stribeck": (*plain, Stribeck()),
        "slip": slip,
        "two slips": slips,
        "slip, power": (*slip, PowerViscous()),
        "two slips, Stribeck": (*slips, Stribeck()),
        "slip, load": (*slip, LoadedSlip()),
        "slip, power, load": (*slip, PowerViscous(), LoadedSlip()),
        "two slips, power, load": (*slips, PowerViscous(), LoadedSlip()),
        "sliding load": (*plain, PowerViscous(), LoadDependent()),
    }
    return {name: FrictionModel(terms, cutoff) for name, terms in models.items()}


def choose_friction(
    chain: Chain,
    runs: Sequence[Samples],
    models: Mapping[str, FrictionModel] | None = None,
    *,
    iterations: int = 0,
    stride: int = 1,
    tolerance: float = 0.01,
    base: BaseParameters | None = None,
    columns: Columns | None = None,
) -> FrictionComparison:
    """Select a friction model for each joint by leave-one-run-out cross-validation.

    Each model is fitted to all runs but one, and then predicts the run that was left out. A single run is divided into
    three stretches, which are treated as separate runs. The score of a model is the mean of its relative errors over
    all samples and over the samples in motion. For each joint, the model with the fewest linear parameters is selected
    among those whose score is within `tolerance` of the lowest.

    Args:
        chain: the robot; only its kinematics and gravity are used.
        runs: samples at the log's rate (`preprocess` with stride 1). If the model is to predict friction at rest, the
            runs should include phases at rest.
        models: friction models by name; by default `friction_candidates` with the cutoff of the torques.
        iterations: maximum number of Gauss-Newton steps on the nonlinear parameters in each fold; 0 keeps the given
            nonlinear parameters.
        stride: decimation of the regressor's rows, as in `fit_friction`.
        tolerance: relative increase of the score that is accepted for a simpler model.
        base: base parameters of `columns`; by default they are computed.
        columns: columns of the rigid body and rotors; by default `Columns(("armature",))`.

    Raises:
        IdentificationError: no runs or no models were given, or the models have different cutoffs.

    Cost: one fit per model and run.
    """
    if not runs:
        raise IdentificationError("no run was given for the friction selection; pass at least one")
    models = friction_candidates(runs[0].torque_cutoff) if models is None else models
    if not models or len({model.cutoff for model in models.values()}) > 1:
        raise IdentificationError("specify at least one friction model, all with the same cutoff")
    columns = columns or Columns(("armature",))
    common = [term for term in next(iter(models.values())).terms if all(_has(model, term) for model in models.values())]
    base = base_with_friction(chain, columns, FrictionModel(tuple(common))) if base is None else base
    if len(runs) == 1:
        cuts = np.linspace(0, len(runs[0]), STRETCHES + 1).astype(int).tolist()
        runs = [runs[0].part(a, b) for a, b in itertools.pairwise(cuts)]
    ready = [prepare(chain, columns, base, samples, stride) for samples in runs]
    squares = np.zeros((len(models), 2, chain.n))
    for k, model in enumerate(models.values()):
        for out in ready:
            fit = fit_prepared(chain, columns, base, [run for run in ready if run is not out], model, iterations)
            known = fit.model.known(out.samples)
            tau, prediction = (np.where(known, x, 0.0) for x in (out.samples.tau, fit.predict(out.samples)))
            quality = fit_quality(tau, prediction, out.samples.qd)
            squares[k] += np.stack([quality.relative, quality.relative_moving]) ** 2
    errors, moving = np.sqrt(squares / len(ready)).transpose(1, 0, 2)
    names = tuple(models)
    size = [sum(len(term.labels) for term in model.terms) for model in models.values()]
    score = errors + moving
    best = []
    for j in range(chain.n):
        good = np.flatnonzero(score[:, j] <= (1 + tolerance) * score[:, j].min())
        best.append(names[min(good, key=lambda k: (size[k], score[k, j]))])
    return FrictionComparison(names, errors, moving, tuple(best), combine_friction([models[name] for name in best]))


def _has(model: FrictionModel, term: FrictionTerm) -> bool:
    """True if a model contains a term of the same kind for the same joints."""
    return any(type(own) is type(term) and own.joints == term.joints for own in model.terms)


def combine_friction(models: Sequence[FrictionModel]) -> FrictionModel:
    """Combine one friction model per joint into a single model, and merge equal terms of several joints."""
    found: dict[tuple, tuple[FrictionTerm, list[int]]] = {}
    for j, model in enumerate(models):
        for term in model.terms:
            if term.joints is None or j + 1 in term.joints:
                leaves, kind = jax.tree.flatten(
                    dataclasses.replace(term, joints=None)
                )  # the kind has all static fields
                key = (kind, tuple((np.shape(leaf), np.asarray(leaf).tobytes()) for leaf in leaves))
                found.setdefault(key, (term, []))[1].append(j + 1)
    everyone = range(1, len(models) + 1)
    terms = tuple(
        dataclasses.replace(term, joints=None if joints == list(everyone) else tuple(joints))
        for term, joints in found.values()
    )
    return FrictionModel(terms, models[0].cutoff)

"""Stretches of runs as `identify` fits and predicts them: samples, the torque that is not fitted, and which rows count."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from jaxtyping import Float, Int

from ..errors import LogError
from ..io._logs.log import Log
from ..model._chain import Chain
from ._friction.choice import choose_friction
from ._friction.fit import FrictionFit, fit_friction
from ._friction.model import FrictionModel
from ._preprocessing.samples import Filters, Samples, default_stride, preprocess_alike, split
from ._regression.base_parameters import BaseParameters
from ._regression.columns import Columns
from ._regression.completion import given_torque

FRICTION_TERMS = ("viscous", "coulomb", "offset")  # that a friction model stands for


@dataclasses.dataclass(frozen=True, eq=False)
class Stretch:
    """Samples of one run.

    Attributes:
        samples: the samples.
        given: torques that are taken as they are: drive terms of the chain that are not identified, and a friction model's.
        weights: zero where a joint's row is left out, else one.
        run: the run at full rate that a friction model needs, where there is one.
        rows: which samples of it these are.
    """

    samples: Samples
    given: Float[np.ndarray, "N n"]
    weights: Float[np.ndarray, "N n"]
    run: Samples | None = None
    rows: Int[np.ndarray, " N"] | None = None

    @property
    def tau(self) -> Float[np.ndarray, "N n"]:
        """Torques left for the columns."""
        return self.samples.tau - self.given

    def cut(self, holdout: float) -> tuple["Stretch", "Stretch"]:
        """The first part, and the last, that is held out.

        Raises:
            LogError: a part would be too short.
        """
        try:
            first, last = split(self.samples, 1 - holdout)
        except LogError as error:
            raise LogError(f"{error}; log a longer run, or give another one to validate on") from None
        start, end = len(first), len(self.samples) - len(last)

        def rest(part: slice) -> tuple:
            rows = None if self.rows is None else self.rows[part]
            return self.given[part], self.weights[part], self.run, rows

        return Stretch(first, *rest(slice(start))), Stretch(last, *rest(slice(end, None)))


@dataclasses.dataclass(frozen=True, eq=False)
class FullRun:
    """A run at full rate, which friction with memory needs, and the rows of it that are kept."""

    samples: Samples
    thinned: Samples
    kept: Int[np.ndarray, " M"]
    stride: int


def full_run(samples: Samples, stride: int) -> FullRun:
    """Every stride-th sample of each piece, beside all of them."""
    kept = [np.arange(a, b, stride) for a, b in samples.segments]
    ends = np.cumsum([0, *map(len, kept)]).tolist()
    rows = np.concatenate(kept)
    return FullRun(samples, samples.rows(rows, itertools.pairwise(ends), rate=samples.rate / stride), rows, stride)


def prepared(
    runs: Iterable[Log | Samples], filters: Filters, full_rate: bool, report: Callable[[int], None] = lambda done: None
) -> list[FullRun]:
    """All runs behind the same filters, thinned; where `full_rate`, beside what they were thinned from.

    Args:
        report: called with how many are done.
    """
    samples: list[Samples] = []
    for one in preprocess_alike(runs, filters.but(stride=1) if full_rate else filters):
        samples.append(one)
        report(len(samples))
    if not full_rate:
        return [full_run(one, 1) for one in samples]
    first = samples[0]
    stride = filters.stride or default_stride(first.rate, max(first.position_cutoff, first.torque_cutoff))
    return [full_run(one, stride) for one in samples]


def plain_stretch(chain: Chain, columns: Columns, samples: Samples, dead_zone: float) -> Stretch:
    """Samples with the friction of the columns alone; rows of joints slower than the dead zone are left out."""
    weights = (np.abs(samples.qd) >= dead_zone).astype(float)
    return Stretch(samples, given_torque(chain, columns, samples.qd, samples.qdd), weights)


def friction_stretch(chain: Chain, columns: Columns, run: FullRun, fit: FrictionFit, dead_zone: float) -> Stretch:
    """Samples with the torque of a fitted friction model along the run; rows before its memory is known are left out."""
    friction = (fit.predict(run.samples) - fit.load(run.samples))[run.kept]
    plain = plain_stretch(chain, with_friction_terms(columns), run.thinned, dead_zone)
    weights = plain.weights * fit.model.known(run.samples)[run.kept]
    return Stretch(run.thinned, plain.given + friction, weights, run.samples, run.kept)


def fit_friction_beside(
    chain: Chain,
    columns: Columns,
    base: BaseParameters,
    runs: Sequence[Samples],
    friction: FrictionModel | str,
    stride: int,
) -> FrictionFit:
    """Fit a friction model together with columns to runs at full rate; "chosen" chooses among the usual ones."""
    rigid = [
        dataclasses.replace(
            s, tau=s.tau - given_torque(chain, with_friction_terms(columns), s.qd, s.qdd)
        )  # what the columns are for
        for s in runs
    ]
    options = {"stride": stride, "base": base, "columns": columns}
    model = choose_friction(chain, rigid, **options).model if isinstance(friction, str) else friction
    return fit_friction(chain, rigid, model, **options)


def with_friction_terms(columns: Columns) -> Columns:
    """The columns, if the friction that a model stands for were among them."""
    return dataclasses.replace(columns, drive_terms=(*columns.drive_terms, *FRICTION_TERMS))

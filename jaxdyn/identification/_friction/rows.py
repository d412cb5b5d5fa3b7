"""Rigid-body regressor for friction fits, computed in chunks, and its triangular factors with friction columns.

The regressor of a run is stored between evaluations if it takes at most `HELD` bytes; otherwise, it is recomputed. For
long runs, memory use therefore grows only with the size of the friction columns.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import jax
import numpy as np
from jaxtyping import Float, Int

from ...model._chain import Chain
from .._preprocessing.samples import Samples
from .._regression.base_parameters import BaseParameters
from .._regression.blocks import BlockFactors, RowBlocks, contiguous
from .._regression.columns import Columns
from .._regression.prediction import predict_samples
from .._regression.robot import as_float64
from .._regression.rows import SHORT, chunk_rows, dry_rows, filled

HELD = 1 << 28  # largest size of a cached regressor in bytes: 130 000 samples of 6 joints and 40 parameters


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """A run prepared for fitting: friction uses all samples, but the regressor has rows only for some of them.

    Attributes:
        chain: the robot, in float64.
        columns: columns of the rigid body.
        base: base parameters of `columns`.
        samples: samples at the log's rate.
        kept: indices of the samples that are rows of the regressor.
        dry: columns of dry friction among `columns`, low-pass filtered like the torques, at all samples.
        held: chunks of the regressor, if it is cached; otherwise empty.
    """

    chain: Chain
    columns: Columns
    base: BaseParameters
    samples: Samples
    kept: Int[np.ndarray, " M"]
    dry: Float[np.ndarray, "N n d"]
    held: tuple[np.ndarray, ...] = ()

    @property
    def tau(self) -> Float[np.ndarray, "M n"]:
        """Measured torques of the rows [N m or N]."""
        return self.samples.tau[self.kept]

    def load(self, values: Float[np.ndarray, " b"]) -> Float[np.ndarray, "N n"]:
        """Rigid-body torques at all samples, excluding friction, computed from base parameters [N m or N]."""
        rigid = np.where(self.columns.of_friction(self.chain.n)[self.base.kept], 0.0, values)
        return base_torque(self.chain, self.columns, self.base, rigid, self.samples)

    def chunks(self) -> Iterator[tuple[slice, Float[np.ndarray, "m n b"]]]:
        """Iterate over chunks of the base regressor: the slice of row indices, and the regressor of these rows."""
        for k, at in enumerate(range(0, len(self.kept), SHORT)):
            part = slice(at, min(at + SHORT, len(self.kept)))
            yield part, self.held[k] if self.held else self._regressor(self.kept[part])

    def _regressor(self, rows: Int[np.ndarray, " m"]) -> Float[np.ndarray, "m n b"]:
        states = [filled(x[rows]) for x in (self.samples.q, self.samples.qd, self.samples.qdd)]
        with jax.enable_x64(True):
            whole = chunk_rows(self.columns, self.chain, *states)[: len(rows)]
        whole[:, :, self.columns.apart_from_dry(self.chain.n)[3]] = self.dry[rows]
        return whole[:, :, self.base.kept]


def base_torque(
    chain: Chain, columns: Columns, base: BaseParameters, values: Float[np.ndarray, " b"], samples: Samples
) -> Float[np.ndarray, "N n"]:
    """Torques at the samples, computed from base parameters [N m or N]."""
    parameters = np.zeros(base.matrix.shape[1])
    parameters[base.kept] = values
    with jax.enable_x64(True):
        return predict_samples(columns, chain, parameters, samples)


def prepare(chain: Chain, columns: Columns, base: BaseParameters, samples: Samples, stride: int = 1) -> Run:
    """Prepare a run whose rows are every stride-th sample of each segment.

    The regressor of M rows takes 8 M n b bytes; it is stored if this is at most `HELD`, and recomputed otherwise.
    """
    with jax.enable_x64(True):
        model = as_float64(chain)
    kept = np.concatenate([np.arange(a, b, stride) for a, b in samples.segments])
    run = Run(model, columns, base, samples, kept, dry_rows(columns.apart_from_dry(chain.n)[1], chain, samples))
    if 8 * len(kept) * chain.n * base.size > HELD:
        return run
    return dataclasses.replace(run, held=tuple(rows for _, rows in run.chunks()))


def factors_with(
    runs: Sequence[Run],
    known: Sequence[np.ndarray],
    blocks: Sequence[np.ndarray],
    groups: Sequence[Int[np.ndarray, " _"]] | None = None,
) -> BlockFactors:
    """Triangular factors of [W_j, F_j, tau_j] for each joint and each block of all runs.

    Args:
        known: for each run, the mask (M, n) of the rows to use.
        blocks: for each run, the friction columns (M, n, k) of each joint.
        groups: for each run, the stretch of a repeated motion that each row shows.
    """
    n, size = runs[0].samples.n, runs[0].base.size + blocks[0].shape[2] + 1
    labels = contiguous([len(run.kept) for run in runs]) if groups is None else groups
    found = RowBlocks(labels, n, size, groups is not None)
    for k, (run, mask, columns) in enumerate(zip(runs, known, blocks, strict=True)):
        tau = run.tau
        for part, rows in run.chunks():
            whole = np.concatenate([rows, columns[part], tau[part][:, :, None]], axis=2)
            found.absorb(k, part.start, whole, mask[part].astype(float))
    return found.factors

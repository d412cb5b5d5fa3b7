"""Factors of logs larger than the memory, on all devices and hosts there are."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import jax
import numpy as np
from jax.sharding import Mesh

from ..model._chain import Chain
from ._accumulate import QRFactors, accumulate_chunks
from ._base_parameters import as_float64
from ._columns import Columns
from ._preprocessing import Samples


def accumulate_stream(
    columns: Columns,
    chain: Chain,
    chunks: Iterable[Samples | Sequence[Any]],
    *,
    start: QRFactors | None = None,
    progress: Callable[[int], None] | None = None,
    mesh: Mesh | None = None,
    precision: Literal["float64", "float32"] = "float64",
) -> QRFactors:
    """The triangular factors of a stacked regressor from samples that come chunk by chunk, in bounded memory.

    For every joint j, R_j^T R_j = sum over samples of [W_j, tau_j]^T [W_j, tau_j]: all that least squares need of a log,
    however long it is. A few thousand samples are held at once, and 8 n (p + 1)^2 bytes of factors. They are divided among this
    process's devices and, on a CPU, among threads, one a core. What comes out does not depend on how the samples are cut
    into chunks, nor on the devices, but by rounding. With several processes each accumulates its own part of the
    samples, and `merge_over_processes` puts the factors together; with one it changes nothing.

    Args:
        columns: what is identified.
        chain: the robot; its inertias do not matter.
        chunks: `Samples`, as from `preprocess_stream`, or tuples (q, qd, qdd, tau[, weights[, signals]]) of (N, n) arrays, of
            any lengths; weights multiply the rows, zero leaves a sample out for a joint; signals are (N, n, k) further columns.
        start: factors to go on from: of an earlier log, or of a run that was interrupted (`save_factors`).
        progress: called with the number of samples done.
        mesh: devices of this process; all of them by default.
        precision: of the regressor and its products. Sums are kept in float64 either way; what float32 costs in accuracy,
            `refine` gives back.

    Raises:
        IdentificationError: no samples; arrays that do not belong together; numbers that are not finite; `start` of other
            columns.

    Cost: about 4 us a sample and core for a 7-joint arm with 91 columns; O(n^2 + sum_j c_j^2) with c_j columns for joint j.
    """
    with jax.enable_x64(precision == "float64"):
        model = as_float64(chain) if precision == "float64" else jax.tree.map(_single, chain)
        return accumulate_chunks(columns, model, arrays_of(chunks), start, progress, mesh)


def _single(x: Any) -> jax.Array:
    return jax.numpy.asarray(np.asarray(x), jax.numpy.float32)


def arrays_of(chunks: Iterable[Samples | Sequence[Any]]) -> Iterator[Sequence[Any]]:
    """Chunks as tuples of arrays."""
    for chunk in chunks:
        yield (chunk.q, chunk.qd, chunk.qdd, chunk.tau) if isinstance(chunk, Samples) else chunk

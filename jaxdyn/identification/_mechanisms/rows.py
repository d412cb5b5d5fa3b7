"""Rows of the equations of motion that are free of unmeasured forces.

With parameters pi and unmeasured forces x, the equations of motion are W pi = tau + A x. The matrix A contains the
transposed Jacobians of the fixed frames and loop constraints, and a unit column for every unmeasured drive. The rows
are divided by their noise, which forms the diagonal matrix S. The projection of S^-1 (W pi - tau) onto the orthogonal
complement of the range of S^-1 A does not depend on x. Its least-squares solution equals that of a combined fit of pi
and all x.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float, Int

from ...errors import IdentificationError
from ...model._chain import Chain
from ...model._rounded import unrounded
from .._regression.base_parameters import RANK_TOLERANCE, BaseParameters, chosen_parameters
from .._regression.blocks import BLOCKS, BlockFactors, RowBlocks, contiguous
from .._regression.columns import Columns
from .._regression.factors import triangle_of
from .._regression.knowledge import Known
from .._regression.robot import as_float64
from .._regression.rows import SHORT, chunk_rows, dry_rows, filled
from .log import MechanismSamples, held_bias, held_rows

LEAST_STATES = 256
ROUNDED = 1e-7  # relative rank tolerance of columns at logged postures, which satisfy constraints only up to noise


def unknown_forces(chain: Chain, run: MechanismSamples) -> Float[np.ndarray, "N nv k"]:
    """Matrix A of each sample, which maps unmeasured forces to generalised forces."""
    missing = np.eye(chain.nv)[:, ~run.measured]
    missing = np.broadcast_to(missing, (len(run), *missing.shape))
    return np.concatenate([np.swapaxes(held_rows(chain, run), 1, 2), missing], axis=2)


def left_over(a: Float[np.ndarray, "N nv k"], noise: Float[np.ndarray, " nv"]) -> Float[np.ndarray, "N m nv"]:
    """Matrix P^T S^-1 of each sample, where P is an orthonormal basis of the complement of the range of S^-1 A.

    It has m = nv - k rows. If A loses rank, for example at a straight knee, more than m rows are free of the forces, and
    only m of them are used.

    Args:
        a: matrix A of each sample.
        noise: diagonal of S, the standard deviation of each row [N m or N].
    """
    scaled = a / noise[None, :, None]
    u = np.linalg.svd(scaled, full_matrices=True)[0]
    return np.swapaxes(u[:, :, a.shape[2] :], 1, 2) / noise[None, None, :]


def projected_blocks(
    columns: Columns,
    chain: Chain,
    runs: Sequence[MechanismSamples],
    given: Sequence[Float[np.ndarray, "N nv"]],
    noise: Float[np.ndarray, " nv"],
    count: int = BLOCKS,
    progress: Callable[[int], None] | None = None,
    groups: Sequence[Int[np.ndarray, " _"]] | None = None,
) -> BlockFactors:
    """Triangular factors of the rows that are free of unmeasured forces, one per block.

    The rows are divided by their noise and treated as those of a single joint.

    Args:
        given: known torques, which are subtracted [N m or N].
        noise: standard deviation of every row [N m or N].
        progress: callback that receives the number of samples done.
        groups: for each run, the stretch of a repeated motion that each sample shows.
    """
    model, done = as_float64(chain), 0
    kept = [chain.nv - unknown_forces(chain, run.part(0, 1)).shape[2] for run in runs]
    if min(kept) < 1:
        raise IdentificationError(
            f"{runs[int(np.argmin(kept))].samples.source}: there are at least as many unmeasured forces as equations of "
            "motion, so no equations are left to fit; measure the contacts or the joint torques, or list fewer "
            "frames in held"
        )
    labels = contiguous([len(run) for run in runs], count) if groups is None else groups
    repeated = [np.repeat(own, m) for own, m in zip(labels, kept, strict=True)]
    found = RowBlocks(repeated, 1, len(columns.names(chain.n)) + 1, groups is not None)
    _, dry, _, at_dry = columns.apart_from_dry(chain.n)
    for k, (run, known) in enumerate(zip(runs, given, strict=True)):
        s, friction = run.samples, dry_rows(dry, chain, run.samples)
        for at in range(0, len(run), SHORT):
            part = slice(at, min(at + SHORT, len(run)))
            through = left_over(unknown_forces(chain, run.part(part.start, part.stop)), noise)
            w = chunk_rows(columns, model, *(filled(x[part]) for x in (s.q, s.qd, s.qdd)))[: part.stop - at]
            w[:, :, at_dry] = friction[part]
            rows = np.concatenate([through @ w, through @ (s.tau - known)[part][:, :, None]], axis=2)
            found.absorb(k, at * kept[k], rows.reshape(-1, 1, rows.shape[2]))
            done += part.stop - at
            if progress is not None:
                progress(done)
    return found.factors


def remaining_parameters(
    chain: Chain,
    columns: Columns,
    runs: Sequence[MechanismSamples],
    base: BaseParameters,
    known: Known | None = None,
    seed: int = 0,
) -> BaseParameters:
    """Compute the base parameters of the rows that are free of unmeasured forces.

    Postures are taken from the runs. Velocities v and accelerations a are random, but satisfy the constraints J v = 0
    and J a + dJ/dt v = 0.

    Args:
        base: base parameters of all rows; their number determines how many postures are used.
        known: prior knowledge of the parameters.
    """
    chain = unrounded(chain)
    rng, model, factor = np.random.default_rng(seed), as_float64(chain), np.zeros((0, len(columns.names(chain.n))))
    for run in runs:
        chosen = np.unique(np.linspace(0, len(run) - 1, max(LEAST_STATES, 3 * base.size)).astype(int))
        picked = dataclasses.replace(run, samples=run.samples.rows(chosen, ()))
        v, a = _held_motion(chain, picked, rng)
        a_of = unknown_forces(chain, picked)
        for at in range(0, len(picked), SHORT):
            part = slice(at, min(at + SHORT, len(picked)))
            w = chunk_rows(columns, model, *(filled(x[part]) for x in (picked.samples.q, v, a)))[: part.stop - at]
            rows = left_over(a_of[part], np.ones(chain.nv)) @ w
            factor = triangle_of(np.concatenate([factor, rows.reshape(-1, rows.shape[2])]))
    return chosen_parameters(
        chain, columns, factor, ROUNDED if any(run.is_held for run in runs) else RANK_TOLERANCE, known
    )


def _held_motion(chain: Chain, run: MechanismSamples, rng: np.random.Generator):
    """Random velocities and accelerations that satisfy the constraints."""
    v, a = rng.normal(size=(2, len(run), chain.nv)) * 2
    if not run.is_held:
        return v, a
    j = held_rows(chain, run)
    inverse = np.linalg.pinv(j)
    free = np.eye(chain.nv) - inverse @ j
    v = np.einsum("tij,tj->ti", free, v)
    return v, np.einsum("tij,tj->ti", free, a) - np.einsum("tij,tj->ti", inverse, held_bias(chain, run, v))

"""Rows of the regressor for each joint, without the columns that are always zero for that joint.

The torque of a joint depends only on the links that the joint carries and on its own drive. For the last joint of a
serial arm, only a few columns are therefore nonzero. Samples are stored along the last axis. In this way, a block of
samples stays in cache, and no transposition is needed between the recursion that computes the columns and the matrix
products that use them.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...dynamics import regressor
from ...dynamics._equations.regressor import ROW_BY_ROW, carried_regressor, row_groups
from ...dynamics._kinematics.coordinates import base_gravity
from ...dynamics._lowering import lanes_of_kernel, over_lanes
from ...model._chain import Chain
from ...model._layout import is_ordinary
from ...model._tree import ancestor_mask
from .columns import Columns, of_bodies, only

BLOCK, BLOCK_ELSEWHERE = 256, 1 << 13  # samples processed in parallel without a kernel: on a CPU, and on a GPU
ALIGNMENT = 64  # bytes


class Layout(NamedTuple):
    """Columns of the regressor that are computed for each joint, and the size of the blocks of samples.

    Attributes:
        of_joint: for each joint (or coordinate), the indices of the columns that can be nonzero, in ascending order,
            with the signals and the torque last.
        width: total number of columns, including the signals and the torque.
        block: number of samples processed in parallel.
        kernel: True if `block` is small enough for a CPU kernel.
    """

    of_joint: tuple[tuple[int, ...], ...]
    width: int
    block: int
    kernel: bool


def layout_of(columns: Columns, chain: Chain, signals: int, cpu: bool) -> Layout:
    """The layout for a chain. If joints are coupled or have quaternions, every joint has all columns.

    Args:
        signals: number of signal columns.
        cpu: True if the layout is for a CPU.
    """
    n, p, k = chain.n, len(columns.names(chain.n)), len(columns.drive_terms)
    width = p + signals + 1
    block = BLOCK if cpu else BLOCK_ELSEWHERE
    if not is_ordinary(chain):
        return Layout((tuple(range(width)),) * chain.nv, width, block, False)
    links = ancestor_mask(chain.topology.parents)
    last = range(10 * n + k * n, width)
    of_joint = tuple(
        (
            *(10 * i + c for i in np.flatnonzero(links[j]).tolist() for c in range(10)),
            *range(10 * n + k * j, 10 * n + k * (j + 1)),
            *last,
        )
        for j in range(n)
    )
    beside = k + sum(len(e.names) for e in columns.extra) + signals + 1
    together = 0 if n in ROW_BY_ROW else 20 * n**2
    lanes = lanes_of_kernel(max(100 + 40 * n + 2 * n * beside, together)) if cpu and n > 1 else 0
    return Layout(of_joint, width, lanes or block, lanes > 0)


def joint_rows(
    columns: Columns, layout: Layout, chain: Chain, samples: Float[Array, "w lanes"]
) -> tuple[Float[Array, "c lanes"], ...]:
    """Weighted rows w_j [W_j, signals_j, tau_j] of every joint j, limited to the columns in the layout.

    Columns lie along the first axis, samples along the last.

    Args:
        samples: transposed result of `packed`; its rows are q, qd, qdd, tau, the weights and the signals of all joints.
    """
    n, p = chain.n, len(columns.names(chain.n))
    q, moving, signals = jnp.split(samples, [chain.nq, chain.nq + 4 * chain.nv])
    qd, qdd, tau, weights = moving.reshape(4, chain.nv, -1)
    signals = signals.reshape(chain.nv, -1, samples.shape[1])
    lanes_last = lambda f: jax.vmap(f, (None, -1, -1, -1), -1)(chain, q, qd, qdd)
    rest = lanes_last(columns.beyond_links)
    own = [_taken(rest[j], [c - 10 * n for c in wanted if 10 * n <= c < p]) for j, wanted in enumerate(layout.of_joint)]
    beside = jnp.concatenate([jnp.stack(own), signals, tau[:, None]], axis=1) * weights[:, None]
    if layout.kernel:
        gravity = jnp.broadcast_to(base_gravity(chain)[:, None], (3, q.shape[1]))
        carried = over_lanes(carried_regressor, kernel=True)(chain, q, qd, qdd, gravity, weights, beside)
        groups = zip(row_groups(n), carried, strict=True)
        whole = [(10 * first, row) for (first, _), rows in groups for row in rows]
    else:
        inertial = jnp.moveaxis(only(of_bodies(chain.topology), jnp.moveaxis(lanes_last(regressor), 1, -1)), -1, 1)
        inertial = inertial * weights[:, None]
        whole = [(0, row) for row in jnp.concatenate([inertial, beside], axis=1)]
    rows = []
    for (start, row), wanted in zip(whole, layout.of_joint, strict=True):
        of_links = [c - start for c in wanted if c < 10 * n]
        rows.append(_taken(row, [*of_links, *range(10 * n - start, len(row))]))
    return tuple(rows)


def _taken(x: Array, which: list[int]) -> Array:
    if not which or which[-1] - which[0] + 1 > len(which):
        return x[np.array(which, int)]
    return x[which[0] : which[-1] + 1]


def packed(block: Sequence[np.ndarray], size: int) -> Float[np.ndarray, "size w"]:
    """Samples (q, qd, qdd, tau, weights, signals) stacked in one array, padded with samples of weight zero."""
    count = len(block[0])
    width = sum(math.prod(x.shape[1:]) for x in block)
    room = np.empty(size * width + ALIGNMENT // 8)
    first = -room.ctypes.data % ALIGNMENT // 8
    out = room[first : first + size * width].reshape(size, width)  # JAX uses aligned arrays without copying them
    np.concatenate([x.reshape(count, -1) for x in block], axis=1, out=out[:count], casting="same_kind")
    out[count:] = out[:1]  # pad with a valid state, since zeros are not a valid quaternion
    first, after = (sum(x.shape[1] for x in block[:k]) for k in (4, 5))
    out[count:, first:after] = 0
    return out


def by_block(layout: Layout, samples: Float[Array, "N w"]) -> Float[Array, "blocks w lanes"]:
    """Divide samples into blocks, with the samples of a block along the last axis.

    The number of samples N must be a multiple of the block size, or smaller than the block size.
    """
    size = min(layout.block, len(samples))
    return jnp.moveaxis(samples.reshape(len(samples) // size, size, -1), 1, -1)

"""One formula for all one-degree-of-freedom joints: a screw represents revolute, prismatic and helical joints.

Let A = (w, v) be the joint's screw in the link frame, and (R_0, p_0) the placement M of that frame in its parent at q = 0.
The rotation and position of the pose T(q) = M exp([A] q) are (Lynch & Park 2017, sec. 3.3.3, with terms grouped by their
function of q)

    R(q) = a + sin(q) b + cos(q) c,    p(q) = p_a + sin(q) p_b + cos(q) p_c + q p_d

with constants for each link: b = R_0 [w], c = -R_0 [w]^2, a = R_0 - c, and with the offset r = w x v of the axis from the
origin, p_a = p_0 + R_0 r - a r, p_b = -b r, p_c = -c r, and the pitch p_d = R_0 (v + w x r) along the axis. Prismatic
joints have w = 0.
"""

import functools
from types import ModuleType
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .._jax_compat import Tracer
from ..spatial._components import Mat, add, cross
from ._chain import Chain

COEFFICIENTS = 39
LONG = 256  # chains with more links are very long


class Link(NamedTuple):
    """A link in the step of a sweep: its pose in its parent at q, its joint screw and its ten inertial parameters."""

    rotation: Mat
    translation: tuple[Array, ...]
    screw: tuple[Array, ...]
    inertia: tuple[Array, ...]


def link_rows(chain: Chain) -> Float[ArrayLike, "n 55"] | tuple[Float[ArrayLike, "n *lanes"], ...]:
    """Constants of all links: 39 pose coefficients, the screw (6) and the inertial parameters (10), one row per link.

    For a concrete robot the rows are NumPy arrays: nothing is compiled, and a program that captures the robot contains
    constants. For robots that differ between the lanes of a batch, and for very long chains, there are 55 separate arrays,
    since a single array would be large.
    """
    leaves = chain.rotation, chain.translation, chain.screw, chain.inertia
    if any(isinstance(x, Tracer) or (isinstance(x, Array) and not _is_local(x)) for x in leaves):
        return _rows(jnp, *leaves)
    return _rows(np, *map(np.asarray, leaves))


def _is_local(x: Array) -> bool:
    return x.is_fully_addressable or x.is_fully_replicated


def _rows(xp: ModuleType, *leaves: Any) -> Any:
    laned = any(x.ndim > y for x, y in zip(leaves, (3, 2, 2, 2), strict=True))
    if laned:  # add an axis of length 1 to a leaf that is shared by all lanes
        leaves = tuple(x if x.ndim > y else x[..., None] for x, y in zip(leaves, (3, 2, 2, 2), strict=True))
    placement, translation, screw, inertia = leaves
    n = len(screw)
    w, v = (tuple(screw[:, i + k] for i in range(3)) for k in (0, 3))
    zero = xp.zeros_like(w[0])
    columns = functools.partial(xp.stack, axis=1)
    k = columns((zero, -w[2], w[1], w[2], zero, -w[0], -w[1], w[0], zero))  # [w]
    k = k.reshape(k.shape[0], 3, 3, *k.shape[2:])
    b = _apply(placement, k)
    c = -_apply(b, k)
    a = placement - c
    offset = cross(w, v)
    r, along = columns(offset)[:, :, None], columns(add(v, cross(w, offset)))[:, :, None]
    moved, turned, drawn, turned_back = (_apply(m, x)[:, :, 0] for m, x in ((placement, r), (a, r), (b, r), (c, r)))
    poses = (x.reshape(n, 9, *x.shape[3:]) for x in (a, b, c))
    pitch = _apply(placement, along)[:, :, 0]
    blocks = [*poses, translation + moved - turned, -drawn, -turned_back, pitch, screw, inertia]
    if not laned and n <= LONG:
        return xp.concatenate(blocks, axis=1)
    return tuple(x[:, i] for x in blocks for i in range(x.shape[1]))


def _apply(a: Any, b: Any) -> Any:
    """Matrix products of A (n, i, j, *lanes) and B (n, j, k, *lanes), as elementwise products that XLA can fuse."""
    first, second, third = (a[:, :, j, None] * b[:, None, j] for j in range(3))
    return first + second + third


def link_at(row, q: Array, sin: Array, cos: Array) -> Link:
    """A link at joint position q, from its row of `link_rows`; sin(q) and cos(q) are computed once, outside the sweep."""
    x = [row[i] for i in range(COEFFICIENTS + 16)]
    rotation = tuple(x[i] + sin * x[9 + i] + cos * x[18 + i] for i in range(9))
    translation = tuple(x[27 + i] + sin * x[30 + i] + cos * x[33 + i] + q * x[36 + i] for i in range(3))
    return Link(rotation, translation, tuple(x[39:45]), tuple(x[45:55]))

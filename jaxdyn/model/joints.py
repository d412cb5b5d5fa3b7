"""Pose of a one-degree-of-freedom joint from its screw: one formula for revolute, prismatic and helical joints.

Let A = (w, v) be the joint screw in the link frame, and (R_0, p_0) the placement M of that frame in its parent at q = 0.
Grouping the terms of the pose T(q) = M exp([A] q) (Lynch & Park 2017, sec. 3.3.3) by their dependence on q gives its
rotation and position

    R(q) = a + sin(q) b + cos(q) c,    p(q) = p_a + sin(q) p_b + cos(q) p_c + q p_d

with the constants

    b = R_0 [w],  c = -R_0 [w]^2,  a = R_0 - c,
    p_a = p_0 + R_0 r - a r,  p_b = -b r,  p_c = -c r,  p_d = R_0 (v + w x r).

Here r = w x v is the offset of the axis from the origin, and p_d the translation along the axis per unit of q. Prismatic
joints have w = 0.
"""

import functools
from types import ModuleType
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from .._jax_compat import Tracer
from ..spatial.components import Mat, add, cross
from .chain import Chain
from .tree import ancestor_mask

COEFFICIENTS = 39
LONG = 256  # number of links above which `link_rows` returns separate arrays


class Link(NamedTuple):
    """A link as used in one step of a sweep: pose in the parent link at q, joint screw and ten inertial parameters."""

    rotation: Mat
    translation: tuple[Array, ...]
    screw: tuple[Array, ...]
    inertia: tuple[Array, ...]


def link_rows(chain: Chain) -> Float[ArrayLike, "n 55"] | tuple[Float[ArrayLike, "n *lanes"], ...]:
    """Constants of all links, one row per link: 39 pose coefficients, 6 entries of the screw and 10 inertial parameters.

    If the robot's leaves are concrete, the rows are computed with NumPy: nothing is compiled, and a program that closes over
    the robot contains them as constants. The 55 columns are separate arrays if the robots in a batch differ or the chain has
    more than `LONG` links, since a single array would then be large.
    """
    leaves = chain.rotation, chain.translation, chain.screw, chain.inertia
    return _rows(np, *map(np.asarray, leaves)) if all(map(_is_known, leaves)) else _rows(jnp, *leaves)


def carried_masses(chain: Chain) -> Float[np.ndarray | Array, "n *lanes"]:
    """Mass of every link and all links that it carries; like `link_rows`, computed with NumPy if it is concrete."""
    carries, mass = ancestor_mask(chain.topology.parents), chain.inertia[:, 0]
    if _is_known(chain.inertia):
        return carries @ np.asarray(chain.inertia)[:, 0]
    return jnp.where(carries.reshape(*carries.shape, *(1,) * (mass.ndim - 1)), mass, 0).sum(1)


def _is_known(x: ArrayLike) -> bool:
    """True if the values are concrete and available to this process."""
    return not isinstance(x, Tracer) and (not isinstance(x, Array) or x.is_fully_addressable or x.is_fully_replicated)


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
    """Multiply the matrices A (n, i, j, *lanes) and B (n, j, k, *lanes) by elementwise products, which XLA can fuse."""
    first, second, third = (a[:, :, j, None] * b[:, None, j] for j in range(3))
    return first + second + third


def link_at(row, q: Array, sin: Array, cos: Array) -> Link:
    """Evaluate a link at joint position q from its row of `link_rows`.

    The caller computes sin(q) and cos(q) of all joints at once, before the sweep.
    """
    x = [row[i] for i in range(COEFFICIENTS + 16)]
    rotation = tuple(x[i] + sin * x[9 + i] + cos * x[18 + i] for i in range(9))
    translation = tuple(x[27 + i] + sin * x[30 + i] + cos * x[33 + i] + q * x[36 + i] for i in range(3))
    return Link(rotation, translation, tuple(x[39:45]), tuple(x[45:55]))

"""One formula for every one-degree-of-freedom joint: its screw makes revolute, prismatic and helical joints alike.

With A = (w, v) the joint's screw in the link frame and (R_0, p_0) the placement M of that frame in its parent at q = 0, the
pose T(q) = M exp([A] q) has (Lynch & Park 2017, sec. 3.3.3, with the terms sorted by what q enters through)

    R(q) = a + sin(q) b + cos(q) c,    p(q) = p_a + sin(q) p_b + cos(q) p_c + q p_d

with constants per link: b = R_0 [w], c = -R_0 [w]^2, a = R_0 - c, and with r = w x v the axis's offset from the origin,
p_a = p_0 + R_0 r - a r, p_b = -b r, p_c = -c r, p_d = R_0 (v + w x r), the pitch along the axis. Prismatic joints have w = 0.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..spatial.components import Mat
from .chain import Chain

COEFFICIENTS = 39


class Link(NamedTuple):
    """What a sweep's step sees of a link: its pose in its parent at q, its joint's screw, its ten inertial parameters."""

    rotation: Mat
    translation: tuple[Array, ...]
    screw: tuple[Array, ...]
    inertia: tuple[Array, ...]


def link_buffer(chain: Chain) -> Float[Array, "n 55"]:
    """Every link's constants in one row: 39 pose coefficients, the screw (6) and the inertial parameters (10).

    Written in few array operations rather than by components: it runs once a call, before the sweeps.
    """
    placement, w, v = chain.rotation, chain.screw[:, :3], chain.screw[:, 3:]
    k = jnp.einsum("ijk,nj->nik", _SKEW.astype(w.dtype), w)  # [w]
    b = _apply(placement, k)
    c = -_apply(b, k)
    a = placement - c
    r = _apply(k, v[:, :, None])  # w x v, a column
    turned = _apply(jnp.concatenate([a, b, c], axis=1), r)[:, :, 0]
    pa = chain.translation + _apply(placement, r)[:, :, 0] - turned[:, :3]
    pd = _apply(placement, v[:, :, None] + _apply(k, r))[:, :, 0]
    poses = jnp.concatenate([x.reshape(-1, 9) for x in (a, b, c)], axis=1)
    return jnp.concatenate([poses, pa, -turned[:, 3:], pd, chain.screw, chain.inertia], axis=1)


_SKEW = np.zeros((3, 3, 3))
_SKEW[[0, 1, 2], [1, 2, 0], [2, 0, 1]] = 1
_SKEW[[0, 1, 2], [2, 0, 1], [1, 2, 0]] = -1


def _apply(a: Float[Array, "n i j"], b: Float[Array, "n j k"]) -> Float[Array, "n i k"]:
    """A B for every link, as a sum that XLA can fuse."""
    return (a[:, :, :, None] * b[:, None, :, :]).sum(2)


def link_at(row: Float[Array, "55"], q: Array, sin: Array, cos: Array) -> Link:
    """A link at joint position q from its row of `link_buffer`; sin and cos of q are taken outside the sweep, once."""
    x = [row[i] for i in range(COEFFICIENTS + 16)]
    rotation = tuple(x[i] + sin * x[9 + i] + cos * x[18 + i] for i in range(9))
    translation = tuple(x[27 + i] + sin * x[30 + i] + cos * x[33 + i] + q * x[36 + i] for i in range(3))
    return Link(rotation, translation, tuple(x[39:45]), tuple(x[45:55]))


def links_at(
    rows: Float[Array, "n 55"], q: Float[Array, " n"], sin: Float[Array, " n"], cos: Float[Array, " n"]
) -> Float[Array, "n 28"]:
    """All links at once: rotation (9), translation (3), screw (6) and inertial parameters (10), for `unpack_link`."""
    q, sin, cos = q[:, None], sin[:, None], cos[:, None]
    rotation = rows[:, 0:9] + sin * rows[:, 9:18] + cos * rows[:, 18:27]
    translation = rows[:, 27:30] + sin * rows[:, 30:33] + cos * rows[:, 33:36] + q * rows[:, 36:39]
    return jnp.concatenate([rotation, translation, rows[:, 39:55]], axis=1)


def unpack_link(row: Float[Array, "28 ..."]) -> Link:
    """A link from its row of `links_at`, or all links from its transpose."""
    x = tuple(row[i] for i in range(28))
    return Link(x[0:9], x[9:12], x[12:18], x[18:28])

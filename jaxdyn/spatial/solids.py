"""Ten inertial parameters of uniform solids. Bodies fixed to one another add up.

Every function takes the mass [kg], the dimensions [m] and `pose`, the 4x4 pose of the solid's frame in the link (None:
they coincide), and returns (m, m c, Ixx, Ixy, Iyy, Ixz, Iyz, Izz) about the *link* frame's origin, as in
`spatial.inertia`. The solid's frame sits at its centre. All are smooth in every argument and free of checks, so they
can be differentiated, batched and used inside jit; O(1).
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .inertia import inertial_parameters_from_com

Values = Array | np.ndarray | float | int | Sequence


def box(mass: Values, size: Values, pose: Values | None = None) -> Float[Array, "10"]:
    """Solid box with edges `size` = (a, b, c) along x, y, z: Ixx = m (b^2 + c^2) / 12 and so on about the centre."""
    m, s = _float(mass), _float(size)
    s2 = s * s
    return _place(m, m / 12 * jnp.diag(jnp.sum(s2) - s2), jnp.zeros_like(s), pose)


def sphere(mass: Values, radius: Values, pose: Values | None = None) -> Float[Array, "10"]:
    """Solid sphere: I = 2/5 m r^2 about every axis through the centre."""
    m, r = _float(mass), _float(radius)
    moment = 2 * m * r * r / 5
    return _place(m, moment * jnp.eye(3, dtype=moment.dtype), jnp.zeros(3, moment.dtype), pose)


def cylinder(mass: Values, radius: Values, length: Values, pose: Values | None = None) -> Float[Array, "10"]:
    """Solid cylinder along z: Izz = m r^2 / 2 and Ixx = Iyy = m (3 r^2 + l^2) / 12 about the centre."""
    m, r, length = _float(mass), _float(radius), _float(length)
    axial = m * r * r / 2
    across = m * (3 * r * r + length * length) / 12
    return _place(m, jnp.diag(jnp.stack([across, across, axial])), jnp.zeros(3, axial.dtype), pose)


def rod(mass: Values, length: Values, axis: Values = (0.0, 0.0, 1.0), pose: Values | None = None) -> Float[Array, "10"]:
    """Thin rod along `axis` (of any length but zero): I = m l^2 / 12 (1 - u u^T) about the centre, u the unit axis."""
    m, length, u = _float(mass), _float(length), _float(axis)
    projector = jnp.eye(3, dtype=u.dtype) - jnp.outer(u, u) / (u @ u)
    return _place(m, m * length * length / 12 * projector, jnp.zeros_like(u), pose)


def point(mass: Values, position: Values = (0.0, 0.0, 0.0), pose: Values | None = None) -> Float[Array, "10"]:
    """Point mass at `position`, seen from the solid's frame: I = m (p . p 1 - p p^T) about the origin."""
    m, p = _float(mass), _float(position)
    return _place(m, jnp.zeros((3, 3), p.dtype), p, pose)


def _place(mass: Array, inertia: Array, centre: Array, pose: Values | None) -> Float[Array, "10"]:
    """Parameters about the link's origin of a body with the inertia about its centre, both seen from the solid's
    frame."""
    if pose is not None:
        t = _float(pose)
        r = t[:3, :3]
        centre, inertia = r @ centre + t[:3, 3], r @ inertia @ r.T
    return inertial_parameters_from_com(mass, centre, inertia)


def _float(x: Values) -> Array:
    y = jnp.asarray(x)
    return y if jnp.issubdtype(y.dtype, jnp.floating) else y.astype(float)

"""Ten inertial parameters of uniform solids.

The functions return (m, m c, Ixx, Ixy, Iyy, Ixz, Iyz, Izz) [kg, kg m, kg m^2] about the origin of the *link* frame, as
in `spatial.inertia`. To combine solids that are fixed to each other, add their parameters.

The arguments are the mass [kg] (for a mesh, the density [kg/m^3]), the dimensions [m], and `pose`, the 4x4 pose of the
solid's frame in the link frame. If `pose` is None, the two frames coincide. The solid's frame is at the centre of the
solid, except for points and meshes. The functions are smooth in every argument and contain no checks.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .components import Values
from .inertia import inertial_parameters_from_com


def box(mass: Values, size: Values, pose: Values | None = None) -> Float[Array, "10"]:
    """A solid box with edge lengths `size` = (a, b, c) [m] along x, y, z; about the centre, Ixx = m (b^2 + c^2) / 12."""
    m, s = _float(mass), _float(size)
    s2 = s * s
    return _place(m, m / 12 * jnp.diag(jnp.sum(s2) - s2), jnp.zeros_like(s), pose)


def sphere(mass: Values, radius: Values, pose: Values | None = None) -> Float[Array, "10"]:
    """A solid sphere; the moment of inertia about any axis through the centre is 2/5 m r^2."""
    m, r = _float(mass), _float(radius)
    moment = 2 * m * r * r / 5
    return _place(m, moment * jnp.eye(3, dtype=moment.dtype), jnp.zeros(3, moment.dtype), pose)


def cylinder(mass: Values, radius: Values, length: Values, pose: Values | None = None) -> Float[Array, "10"]:
    """A solid cylinder along z; about the centre, Izz = m r^2 / 2 and Ixx = Iyy = m (3 r^2 + l^2) / 12."""
    m, r, length = _float(mass), _float(radius), _float(length)
    axial = m * r * r / 2
    across = m * (3 * r * r + length * length) / 12
    return _place(m, jnp.diag(jnp.stack([across, across, axial])), jnp.zeros(3, axial.dtype), pose)


def rod(mass: Values, length: Values, axis: Values = (0.0, 0.0, 1.0), pose: Values | None = None) -> Float[Array, "10"]:
    """A thin rod along `axis`, a vector of any nonzero length.

    About the centre, I = (m l^2 / 12) (eye(3) - u u^T), with the unit vector u along the axis.
    """
    m, length, u = _float(mass), _float(length), _float(axis)
    projector = jnp.eye(3, dtype=u.dtype) - jnp.outer(u, u) / (u @ u)
    return _place(m, m * length * length / 12 * projector, jnp.zeros_like(u), pose)


def point(mass: Values, position: Values = (0.0, 0.0, 0.0), pose: Values | None = None) -> Float[Array, "10"]:
    """A point mass at p = `position` [m], with I = m ((p . p) eye(3) - p p^T) about the origin of the solid's frame."""
    m, p = _float(mass), _float(position)
    return _place(m, jnp.zeros((3, 3), p.dtype), p, pose)


def ellipsoid(mass: Values, semi_axes: Values, pose: Values | None = None) -> Float[Array, "10"]:
    """A solid ellipsoid with semi-axes (a, b, c) [m] along x, y, z; about the centre, Ixx = m (b^2 + c^2) / 5."""
    m, s = _float(mass), _float(semi_axes)
    s2 = s * s
    return _place(m, m / 5 * jnp.diag(jnp.sum(s2) - s2), jnp.zeros_like(s), pose)


def cone(mass: Values, radius: Values, height: Values, pose: Values | None = None) -> Float[Array, "10"]:
    """A solid circular cone along z, with the apex on the positive side.

    The origin of the cone's frame is the centre of mass, a quarter of the height above the base. About this point,
    Ixx = Iyy = 3 m (4 r^2 + h^2) / 80 and Izz = 3 m r^2 / 10.
    """
    m, r, h = _float(mass), _float(radius), _float(height)
    across = 3 * m * (4 * r * r + h * h) / 80
    return _place(m, jnp.diag(jnp.stack([across, across, 3 * m * r * r / 10])), jnp.zeros(3, across.dtype), pose)


def hollow_cylinder(
    mass: Values, inner_radius: Values, outer_radius: Values, length: Values, pose: Values | None = None
) -> Float[Array, "10"]:
    """A tube along z with the inner and outer radii r_i and r_o.

    About the centre, Izz = m (r_i^2 + r_o^2) / 2 and Ixx = Iyy = m (3 (r_i^2 + r_o^2) + l^2) / 12.
    """
    m, inner, outer, length = _float(mass), _float(inner_radius), _float(outer_radius), _float(length)
    squares = inner * inner + outer * outer
    across = m * (3 * squares + length * length) / 12
    return _place(m, jnp.diag(jnp.stack([across, across, m * squares / 2])), jnp.zeros(3, across.dtype), pose)


def capsule(mass: Values, radius: Values, length: Values, pose: Values | None = None) -> Float[Array, "10"]:
    """A solid capsule along z: a cylinder of length l between two hemispheres of radius r.

    The masses m_c of the cylinder and m_s of both hemispheres are in proportion to their volumes,
    m_c / m_s = 3 l / (4 r). About the centre,

        Izz = m_c r^2 / 2 + 2 m_s r^2 / 5,
        Ixx = Iyy = m_c (3 r^2 + l^2) / 12 + m_s (2 r^2 / 5 + 3 r l / 8 + l^2 / 4).
    """
    m, r, length = _float(mass), _float(radius), _float(length)
    inside = m * length / (length + 4 * r / 3)
    caps = m - inside
    across = inside * (3 * r * r + length * length) / 12
    across = across + caps * (2 * r * r / 5 + 3 * r * length / 8 + length * length / 4)
    axial = inside * r * r / 2 + 2 * caps * r * r / 5
    return _place(m, jnp.diag(jnp.stack([across, across, axial])), jnp.zeros(3, axial.dtype), pose)


def point_cloud(
    masses: Float[Array, " k"] | Float[np.ndarray, " k"],
    points: Float[Array, "k 3"] | Float[np.ndarray, "k 3"],
    pose: Values | None = None,
) -> Float[Array, "10"]:
    """Point masses [kg], given their positions [m] in the solid's frame.

    About the origin of the solid's frame, I_xx = sum m (y^2 + z^2) and I_xy = -sum m x y (Lynch & Park 2017, sec. 8.2).
    """
    m, p = _float(masses), _float(points)
    return _from_moments(jnp.sum(m), m @ p, jnp.einsum("k,ki,kj->ij", m, p, p), pose)


def mesh(
    vertices: Float[Array, "v 3"] | Float[np.ndarray, "v 3"],
    triangles: Int[Array, "f 3"] | Int[np.ndarray, "f 3"],
    density: Values,
    pose: Values | None = None,
) -> Float[Array, "10"]:
    """A solid of constant density inside a closed surface of triangles, in O(f) operations.

    Each triangle (a, b, c) forms a tetrahedron with the origin, with the signed volume V = a . (b x c) / 6, the first
    moment V s / 4 and the second moment V (a a^T + b b^T + c c^T + s s^T) / 20, where s = a + b + c. The moments of the
    solid are the sums over all f triangles, multiplied by the density.

    All triangles must have the same orientation as seen from outside, which may be either one. If the surface has
    holes, the result depends on the position of the solid's frame.

    Args:
        vertices: positions [m] of the vertices in the solid's frame.
        triangles: indices of the three vertices of each triangle.
        density: density [kg/m^3].
    """
    v, rho = _float(vertices), _float(density)
    corners = v[jnp.asarray(triangles)]
    a, b, c = corners[:, 0], corners[:, 1], corners[:, 2]
    volumes = jnp.einsum("ki,ki->k", a, jnp.cross(b, c)) / 6
    volumes = volumes * jnp.sign(jnp.sum(volumes)) * rho
    s = a + b + c
    second = jnp.einsum("k,kij,kil->jl", volumes, jnp.stack([a, b, c, s], axis=1), jnp.stack([a, b, c, s], axis=1)) / 20
    return _from_moments(jnp.sum(volumes), volumes @ s / 4, second, pose)


def _from_moments(mass: Array, first: Array, second: Array, pose: Values | None) -> Float[Array, "10"]:
    """Ten inertial parameters from the mass and the first and second moments S in the solid's frame, I = tr(S) eye(3) - S."""
    inertia = jnp.trace(second) * jnp.eye(3, dtype=second.dtype) - second
    centre = first / mass
    about = inertia - mass * (centre @ centre * jnp.eye(3, dtype=second.dtype) - jnp.outer(centre, centre))
    return _place(mass, about, centre, pose)


def _place(mass: Array, inertia: Array, centre: Array, pose: Values | None) -> Float[Array, "10"]:
    """Ten inertial parameters about the link's origin, from mass, centre of mass and central inertia in the solid's frame."""
    if pose is not None:
        t = _float(pose)
        r = t[:3, :3]
        centre, inertia = r @ centre + t[:3, 3], r @ inertia @ r.T
    return inertial_parameters_from_com(mass, centre, inertia)


def _float(x: Values) -> Array:
    y = jnp.asarray(x)
    return y if jnp.issubdtype(y.dtype, jnp.floating) else y.astype(float)

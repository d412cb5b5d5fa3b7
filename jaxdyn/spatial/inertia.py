"""Inertia of rigid bodies: ten parameters, 6x6 spatial inertia, 4x4 pseudo-inertia, and log-Cholesky parameters.

The ten inertial parameters of a body are pi = (m, m cx, m cy, m cz, Ixx, Ixy, Iyy, Ixz, Iyz, Izz) [kg, kg m, kg m^2]. The
inertia is about the *origin* of the frame, which need not be the centre of mass c. Energies, momenta and torques are linear
in pi.

Inertial parameters describe a body of positive density if and only if their 4x4 pseudo-inertia J is positive definite
(Wensing, Kim & Slotine 2017):

    J = [[S, h], [h^T, m]] = integral of [x; 1] [x; 1]^T dm,    S = (tr(I_o) / 2) eye(3) - I_o.

J is linear in the ten inertial parameters. The triangular factor U in J = U U^T is described by ten unbounded numbers,
since its positive diagonal is represented by logarithms (Rucker & Wensing 2022):

    U = e^a [[e^d1, s12, s13, t1], [0, e^d2, s23, t2], [0, 0, e^d3, t3], [0, 0, 0, 1]],
    theta = (a, d1, d2, d3, s12, s23, s13, t1, t2, t3).

The number a determines the mass, m = e^2a, and t is the centre of mass [m]. The entries e^d [m] stretch the body, and the
entries s [m] shear it. The map from theta to consistent inertial parameters is one-to-one and smooth in both directions.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import ModelError
from .components import A, module_of, skew_matrix, stacked, sym_to_mat

MARGIN = 1e-13  # minimum central second moment of mass, relative to the trace of the inertia about the origin


def inertial_parameters_from_com(
    mass: float | Float[Array | np.ndarray, ""],
    com: Float[A, "3"],
    inertia: Float[A, "3 3"],
) -> Float[A, "10"]:
    """Ten inertial parameters from m [kg], the centre of mass c [m] and the inertia I_c about it, in the same axes [kg m^2].

    By the parallel-axis theorem, I_o = I_c - m [c]^2 is the inertia about the frame's origin.
    """
    return _packed(mass, mass * com, inertia + mass * _minus_square(com))


def _minus_square(c: Any) -> Any:
    """The matrix (c . c) eye(3) - c c^T = -[c]^2."""
    xp = module_of(c)
    return c @ c * xp.eye(3, dtype=c.dtype) - xp.outer(c, c)


def _packed(mass: Any, first: Any, tensor: Any) -> Any:
    xx, yy, zz = (tensor[i, i] for i in range(3))
    rest = xx, tensor[0, 1], yy, tensor[0, 2], tensor[1, 2], zz
    return stacked(tensor, [mass, first[0], first[1], first[2], *rest])


def inertial_parameters_to_com(
    pi: Float[A, "10"],
) -> tuple[Any, Float[A, "3"], Float[A, "3 3"]]:
    """Mass [kg], centre of mass [m] (zero for a massless body) and inertia about the centre of mass [kg m^2]."""
    xp, mass, h = module_of(pi), pi[0], pi[1:4]
    massless = mass == 0
    com = xp.where(massless, xp.zeros_like(h), h / xp.where(massless, xp.ones_like(mass), mass))
    return mass, com, rotational_inertia(pi) - mass * _minus_square(com)


def rotational_inertia(pi: Float[A, "10"]) -> Float[A, "3 3"]:
    """The 3x3 inertia tensor [kg m^2] about the frame's origin, with off-diagonal entries such as Ixy = -sum m x y."""
    return stacked(pi, sym_to_mat(tuple(pi[4 + k] for k in range(6)))).reshape(3, 3)


def spatial_inertia(pi: Float[A, "10"]) -> Float[A, "6 6"]:
    """Spatial inertia G = [[I_o, [h]], [[h]^T, m eye(3)]], with the angular part first and h = m c.

    For a twist V = (w, v), the momentum (l, p) is G V, and the kinetic energy is V^T G V / 2.
    """
    xp, k = module_of(pi), skew_matrix(pi[1:4])
    return xp.block([[rotational_inertia(pi), k], [k.T, pi[0] * xp.eye(3, dtype=pi.dtype)]])


def inertial_parameters_from_spatial(g: Float[A, "6 6"]) -> Float[A, "10"]:
    """Ten inertial parameters [kg, kg m, kg m^2] of a spatial inertia matrix; the inverse of `spatial_inertia`."""
    return _packed(g[5, 5], (g[2, 4], g[0, 5], g[1, 3]), g)


def transform_inertial_parameters(t_ab: Float[A, "4 4"], pi_b: Float[A, "10"]) -> Float[A, "10"]:
    """Ten parameters in frame a from those in frame b, whose pose in a is `t_ab` = (R, p) [m]: G_a = Ad_{T_ba}^T G_b Ad_{T_ba}.

    The first moment of mass and the inertia in frame a are

        h_a = R h + m p,    I_a = R I R^T + 2 (Rh . p) eye(3) - Rh p^T - p Rh^T + m ((p . p) eye(3) - p p^T).
    """
    xp, r, p, m = module_of(pi_b), t_ab[:3, :3], t_ab[:3, 3], pi_b[0]
    h = r @ pi_b[1:4]
    io = r @ rotational_inertia(pi_b) @ r.T + (2 * h @ p + m * p @ p) * xp.eye(3, dtype=p.dtype)
    io = io - xp.outer(h, p) - xp.outer(p, h) - m * xp.outer(p, p)
    return _packed(m, h + m * p, io)


def pseudo_inertia(pi: Float[A, "10"]) -> Float[A, "4 4"]:
    """Pseudo-inertia P = [[S, h], [h^T, m]], with the second moment of mass S = (tr(I_o) / 2) eye(3) - I_o.

    P is positive semidefinite if and only if a distribution of non-negative mass has these parameters (Wensing, Kim &
    Slotine 2017).
    """
    xp, inertia, h = module_of(pi), rotational_inertia(pi), pi[1:4, None]
    s = 0.5 * xp.trace(inertia) * xp.eye(3, dtype=pi.dtype) - inertia
    return xp.block([[s, h], [h.T, pi[0][None, None]]])


def inertial_parameters_from_pseudo_inertia(
    j: Float[A, "4 4"],
) -> Float[A, "10"]:
    """Ten inertial parameters of a pseudo-inertia, with I_o = tr(S) eye(3) - S; the inverse of `inertia.pseudo_inertia`."""
    s, h = j[:3, :3], j[:3, 3]
    xx, yy, zz = s[1, 1] + s[2, 2], s[0, 0] + s[2, 2], s[0, 0] + s[1, 1]
    return stacked(j, [j[3, 3], h[0], h[1], h[2], xx, -s[0, 1], yy, -s[0, 2], -s[1, 2], zz])


def pseudo_inertia_gradient(g: Float[Array, "10"]) -> Float[Array, "4 4"]:
    """The symmetric matrix B with tr(J B) = g . pi for every body; it converts a gradient g in pi to one in J."""
    m, x, y, z, xx, xy, yy, xz, yz, zz = jnp.asarray(g)
    rows = [
        [yy + zz, -xy / 2, -xz / 2, x / 2],
        [-xy / 2, xx + zz, -yz / 2, y / 2],
        [-xz / 2, -yz / 2, xx + yy, z / 2],
        [x / 2, y / 2, z / 2, m],
    ]
    return jnp.stack([jnp.stack(row) for row in rows])


def log_cholesky_factor(theta: Float[Array, "10"]) -> Float[Array, "4 4"]:
    """Upper triangular factor U, with positive diagonal, of the pseudo-inertia J = U U^T, from log-Cholesky parameters."""
    a, d1, d2, d3, s12, s23, s13, t1, t2, t3 = jnp.asarray(theta)
    zero, one = jnp.zeros_like(a), jnp.ones_like(a)
    rows = [
        [jnp.exp(d1), s12, s13, t1],
        [zero, jnp.exp(d2), s23, t2],
        [zero, zero, jnp.exp(d3), t3],
        [zero, zero, zero, one],
    ]
    return jnp.exp(a) * jnp.stack([jnp.stack(row) for row in rows])


def log_cholesky_from_factor(u: Float[Array, "4 4"]) -> Float[Array, "10"]:
    """Log-Cholesky parameters from the triangular factor U; the inverse of `log_cholesky_factor`."""
    v = u / u[3, 3]
    d = jnp.log(jnp.diagonal(v)[:3])
    return jnp.stack([jnp.log(u[3, 3]), d[0], d[1], d[2], v[0, 1], v[1, 2], v[0, 2], v[0, 3], v[1, 3], v[2, 3]])


def log_cholesky_to_inertial_parameters(theta: Float[Array, "10"]) -> Float[Array, "10"]:
    """Ten inertial parameters from log-Cholesky parameters; they are physically consistent for all values of theta."""
    u = log_cholesky_factor(theta)
    return inertial_parameters_from_pseudo_inertia(u @ u.T)


def log_cholesky_from_inertial_parameters(pi: Float[Array, "10"]) -> Float[Array, "10"]:
    """Log-Cholesky parameters of a body; NaN if its pseudo-inertia is not positive definite (see `check_consistent`)."""
    return log_cholesky_from_factor(pseudo_inertia_factor(pseudo_inertia(pi)))


def pseudo_inertia_factor(j: Float[Array, "4 4"]) -> Float[Array, "4 4"]:
    """Upper triangular factor U, with positive diagonal, of a pseudo-inertia J = U U^T; NaN if J is not positive definite."""
    flipped = jnp.linalg.cholesky(j[::-1, ::-1])
    return flipped[::-1, ::-1]


def check_consistent(link: str, pi: Float[np.ndarray, "10"] | Float[Array, "10"]) -> None:
    """Check that the pseudo-inertia of ten inertial parameters is positive definite, as for any body of positive density.

    This check is stricter than that of `make_chain`, since limiting cases such as a point mass, a thin rod or a
    massless link have no log-Cholesky parameters. It cannot run inside `jax.jit`.

    Raises:
        ModelError: the pseudo-inertia is not positive definite, or a parameter is not finite.
    """
    pi = np.asarray(pi, float)
    if not np.all(np.isfinite(pi)):
        raise ModelError(f"link {link!r}: its inertial parameters contain NaN or infinity")
    if pi[0] <= 0:
        raise ModelError(f"link {link!r}: mass {pi[0]:g} kg is not positive; specify a positive mass")
    least = np.linalg.eigvalsh(pseudo_inertia(pi)[:3, :3] - np.outer(pi[1:4], pi[1:4]) / pi[0])[0]
    if least <= MARGIN * (pi[4] + pi[6] + pi[9]):
        raise ModelError(
            f"link {link!r}: no body of positive density has this inertia. Its second moment of mass about the centre of mass, "
            f"(tr(I) / 2) eye(3) - I, has the eigenvalue {least:.3g} kg m^2; all eigenvalues must be positive (triangle "
            "inequality of the principal moments). Check units, frames and the signs of the products of inertia"
        )

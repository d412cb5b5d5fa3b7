"""Rigid-body inertia: the ten parameters, the 6x6 spatial inertia, the 4x4 pseudo-inertia, and their transformations.

The ten inertial parameters of a body are pi = (m, m cx, m cy, m cz, Ixx, Ixy, Iyy, Ixz, Iyz, Izz) [kg, kg m, kg m^2]. The
inertia is about the *origin* of the frame, which need not be the centre of mass c. Energies, momenta and torques are linear
in pi.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from ._host import inertia_tensor, packed
from .se3 import adjoint, pose_inverse
from .so3 import skew


def inertial_parameters_from_com(
    mass: Float[Array, ""], com: Float[Array, "3"], inertia: Float[Array, "3 3"]
) -> Float[Array, "10"]:
    """Ten inertial parameters from the mass [kg], the centre of mass c [m] and the inertia I_c about it [kg m^2].

    c and I_c are expressed in the same frame. By the parallel-axis theorem, I_o = I_c - m [c]^2 is the inertia about the
    frame's origin.
    """
    k = skew(com)
    io = inertia - mass * (k @ k)
    return packed(mass, mass * com, io, jnp)


def inertial_parameters_to_com(
    pi: Float[Array, "10"],
) -> tuple[Float[Array, ""], Float[Array, "3"], Float[Array, "3 3"]]:
    """Mass [kg], centre of mass [m] and inertia about the centre of mass [kg m^2].

    For a massless body, the centre of mass is the frame's origin.
    """
    mass, h = pi[0], pi[1:4]
    massless = mass == 0
    com = jnp.where(massless, jnp.zeros_like(h), h / jnp.where(massless, jnp.ones_like(mass), mass))
    k = skew(com)
    return mass, com, rotational_inertia(pi) + mass * (k @ k)


def rotational_inertia(pi: Float[Array, "10"]) -> Float[Array, "3 3"]:
    """The 3x3 inertia [kg m^2] about the frame's origin.

    Its off-diagonal entries are tensor components, Ixy = -sum m x y.
    """
    return inertia_tensor(pi, jnp)


def spatial_inertia(pi: Float[Array, "10"]) -> Float[Array, "6 6"]:
    """Spatial inertia G = [[I_o, [h]], [[h]^T, m eye(3)]], with the angular part first.

    G consists of the inertia I_o about the frame's origin [kg m^2], the first moment of mass h = m c [kg m] and the mass m
    [kg]. For a twist V = (w, v), the momentum (l, p) is G V, and the kinetic energy is V^T G V / 2.
    """
    pi = jnp.asarray(pi)
    k = skew(pi[1:4])
    return jnp.block([[rotational_inertia(pi), k], [k.T, pi[0] * jnp.eye(3, dtype=pi.dtype)]])


def inertial_parameters_from_spatial(g: Float[Array, "6 6"]) -> Float[Array, "10"]:
    """Ten inertial parameters [kg, kg m, kg m^2] of a spatial inertia matrix; the inverse of `spatial_inertia`."""
    return jnp.stack([g[5, 5], g[2, 4], g[0, 5], g[1, 3], g[0, 0], g[0, 1], g[1, 1], g[0, 2], g[1, 2], g[2, 2]])


def transform_inertial_parameters(t_ab: Float[Array, "4 4"], pi_b: Float[Array, "10"]) -> Float[Array, "10"]:
    """Transform the ten inertial parameters of a body from frame b to frame a.

    `t_ab` is the pose of frame b in frame a [m]. The spatial inertias are related by G_a = Ad_{T_ba}^T G_b Ad_{T_ba}.
    """
    x = adjoint(pose_inverse(t_ab))
    return inertial_parameters_from_spatial(x.T @ spatial_inertia(pi_b) @ x)


def pseudo_inertia(pi: Float[Array, "10"]) -> Float[Array, "4 4"]:
    """Pseudo-inertia P = [[S, h], [h^T, m]], with the second moment of mass S = (tr(I_o) / 2) eye(3) - I_o.

    The units of S, h and m are kg m^2, kg m and kg. P is positive semidefinite if and only if a distribution of
    non-negative mass has these parameters (Wensing, Kim & Slotine 2017).
    """
    pi = jnp.asarray(pi)
    inertia = rotational_inertia(pi)
    s = 0.5 * jnp.trace(inertia) * jnp.eye(3, dtype=pi.dtype) - inertia
    h = pi[1:4, None]
    return jnp.block([[s, h], [h.T, pi[0][None, None]]])

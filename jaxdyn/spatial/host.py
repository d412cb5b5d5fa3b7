"""Poses and inertial parameters as NumPy arrays in float64, for builders, readers and checks.

These functions use float64 regardless of JAX's default type. `inertia_tensor` and `packed` define the order of the ten
inertial parameters. With xp=jax.numpy, they also operate on JAX arrays.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from . import components
from .components import rotation_of_rpy, sym_to_mat

Values = ArrayLike | Array | float | Sequence[Any]  # ArrayLike alone makes checkers reject tuples and numbers
Ten = Float[np.ndarray, "10"]
Matrix = Float[np.ndarray, "3 3"]
Pose = Float[np.ndarray, "4 4"]


def inertia_tensor(pi: Any, xp: ModuleType = np) -> Any:
    """The 3x3 inertia I_o [kg m^2] about the frame's origin, from the ten inertial parameters."""
    tensor = xp.stack(sym_to_mat(tuple(pi[4 + k] for k in range(6))))
    return tensor.reshape(3, 3, *tensor.shape[1:])


def second_moment(pi: Ten) -> Matrix:
    """Second moment of mass S = (tr(I_o) / 2) eye(3) - I_o about the frame's origin [kg m^2]."""
    tensor = inertia_tensor(pi)
    return np.trace(tensor) / 2 * np.eye(3) - tensor


def pseudo_inertia_of(pi: Ten) -> Float[np.ndarray, "4 4"]:
    """Pseudo-inertia J = [[S, h], [h^T, m]], a linear function of the ten inertial parameters."""
    return np.block([[second_moment(pi), pi[1:4, None]], [pi[None, 1:4], np.array([[pi[0]]])]])


def packed(mass: Any, first: Any, tensor: Any, xp: ModuleType = np) -> Any:
    """Ten inertial parameters (m, h, Ixx, Ixy, Iyy, Ixz, Iyz, Izz) from the mass m, the first moment h and the inertia I_o."""
    t = tensor
    return xp.stack([mass, first[0], first[1], first[2], t[0, 0], t[0, 1], t[1, 1], t[0, 2], t[1, 2], t[2, 2]])


def ten_parameters(mass: float, com: Values, inertia: Values) -> Ten:
    """Ten inertial parameters from the mass, the centre of mass, and the inertia about the centre of mass."""
    c = np.asarray(com, float)
    return packed(mass, mass * c, np.asarray(inertia, float) + mass * _square(c))


def about_com(pi: Ten) -> tuple[np.ndarray, Matrix]:
    """Centre of mass [m] and inertia about the centre of mass [kg m^2] of a body with nonzero mass."""
    com = pi[1:4] / pi[0]
    return com, inertia_tensor(pi) - pi[0] * _square(com)


def move_inertia(pi: Ten, t_ab: Pose) -> Ten:
    """Transform ten inertial parameters from frame b to frame a, given the pose t_ab = (R, p) of frame b in frame a.

    The first moment of mass and the inertia in frame a are

        h_a = R h + m p,    I_a = R I R^T + 2 (Rh . p) eye(3) - Rh p^T - p Rh^T + m ((p . p) eye(3) - p p^T).
    """
    r, p, m = t_ab[:3, :3], t_ab[:3, 3], pi[0]
    h = r @ pi[1:4]
    io = r @ inertia_tensor(pi) @ r.T
    io = io + (2 * h @ p + m * p @ p) * np.eye(3) - np.outer(h, p) - np.outer(p, h) - m * np.outer(p, p)
    return packed(m, h + m * p, io)


_STRAIGHT = ((1, 0, 0), (0, 1, 0), (0, 0, 1))


def _square(c: np.ndarray) -> Matrix:
    """The matrix (c . c) eye(3) - c c^T = -[c]^2."""
    return c @ c * np.eye(3) - np.outer(c, c)


def pose_of(rotation: Values = _STRAIGHT, translation: Values = (0.0, 0.0, 0.0)) -> Pose:
    """Homogeneous matrix of a rotation and a translation."""
    t = np.eye(4)
    t[:3, :3], t[:3, 3] = rotation, translation
    return t


def pose_inverse(t: Pose) -> Pose:
    """Inverse T^-1 of a rigid motion."""
    r = t[:3, :3].T
    return pose_of(r, -r @ t[:3, 3])


def adjoint(t: Pose) -> Float[np.ndarray, "6 6"]:
    """Adjoint matrix Ad_T of a rigid motion."""
    r = t[:3, :3]
    return np.block([[r, np.zeros((3, 3))], [skew(t[:3, 3]) @ r, r]])


def skew(x: np.ndarray) -> Matrix:
    """Skew-symmetric matrix [x], with [x] y = x cross y."""
    return np.array(components.skew(x)).reshape(3, 3)


def rotation_about(axis: np.ndarray, angle: float) -> Matrix:
    """Rotation exp([axis] angle) about a unit axis."""
    k = skew(axis)
    return np.eye(3) + (np.sin(angle) * k + 2 * np.sin(angle / 2) ** 2 * (k @ k))


def rotation_from_rpy(cosines: Values, sines: Values) -> Matrix:
    """Rotation matrix Rz(yaw) Ry(pitch) Rx(roll), from the cosines and sines of (roll, pitch, yaw)."""
    return np.array(rotation_of_rpy(np.asarray(cosines), np.asarray(sines)), float).reshape(3, 3)


def rpy_of(r: Matrix) -> Float[np.ndarray, "3"]:
    """Roll, pitch and yaw [rad] of R = Rz(yaw) Ry(pitch) Rx(roll), exact also near pitch = +-pi/2."""
    yaw = np.arctan2(r[1, 0], r[0, 0])
    c, s = np.cos(yaw), np.sin(yaw)
    first, second = c * r[0] + s * r[1], c * r[1] - s * r[0]
    return np.array([np.arctan2(-second[2], second[1]), np.arctan2(-r[2, 0], first[0]), yaw])

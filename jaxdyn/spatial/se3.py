"""Rigid motions in SE(3), and twists (w, v) and wrenches (n, f), angular part first as in Lynch & Park and Featherstone."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .components import A, module_of
from .so3 import exp_coefficients, rotation_exp, rotation_log, skew


def pose(rotation: Float[A, "3 3"], translation: Float[A, "3"]) -> Float[A, "4 4"]:
    """Pose of frame b in frame a: the homogeneous matrix T_ab with rotation R_ab and translation p_ab [m]."""
    xp = module_of(rotation)
    top = xp.concatenate([rotation, translation[:, None]], axis=1)
    return xp.concatenate([top, xp.asarray([[0, 0, 0, 1]], dtype=top.dtype)])


def pose_inverse(t: Float[A, "4 4"]) -> Float[A, "4 4"]:
    """Inverse T_ba of the pose T_ab [m], computed without a linear solve."""
    r = t[:3, :3].T
    return pose(r, -r @ t[:3, 3])


def adjoint(t: Float[A, "4 4"]) -> Float[A, "6 6"]:
    """Adjoint matrix Ad_T of a pose, which transforms twists (w, v) [rad/s, m/s] (Lynch & Park 2017, ch. 3).

    Twists transform as V_a = Ad_{T_ab} V_b, and wrenches (n, f) [N m, N] as F_b = Ad_{T_ab}^T F_a.
    """
    r, xp = t[:3, :3], module_of(t)
    return xp.block([[r, xp.zeros_like(r)], [skew(t[:3, 3]) @ r, r]])


def twist_cross(v: Float[Array, "6"]) -> Float[Array, "6 6"]:
    """Matrix ad_V of V = (w, v), with ad_V U = [V, U] and, for wrenches, -ad_V^T F (Lynch & Park 2017, sec. 8.2.2)."""
    w = skew(v[:3])
    return jnp.block([[w, jnp.zeros_like(w)], [skew(v[3:]), w]])


def pose_exp(s: Float[Array, "6"]) -> Float[Array, "4 4"]:
    """Pose T = exp([S]) for exponential coordinates S = (w, v) [rad, m], a twist applied for unit time; smooth at w = 0."""
    s = jnp.asarray(s)
    w, v = s[:3], s[3:]
    _, b, c = exp_coefficients(w @ w)
    k = skew(w)
    return pose(rotation_exp(w), v + b * (k @ v) + c * (k @ (k @ v)))


def pose_log(t: Float[Array, "4 4"]) -> Float[Array, "6"]:
    """Exponential coordinates S = (w, v) [rad, m] of a pose T = exp([S]), with |w| <= pi; the inverse of `pose_exp`."""
    t = jnp.asarray(t)
    w = rotation_log(t[:3, :3])
    _, b, c = exp_coefficients(w @ w)
    k = skew(w)
    left = jnp.eye(3, dtype=t.dtype) + b * k + c * (k @ k)
    return jnp.concatenate([w, jnp.linalg.solve(left, t[:3, 3])])

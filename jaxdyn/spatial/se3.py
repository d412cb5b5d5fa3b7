"""Rigid motions: SE(3), twists (w, v) and wrenches (n, f), angular part first, as in Lynch & Park and Featherstone."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .so3 import exp_coefficients, rotation_exp, rotation_log, skew


def pose(rotation: Float[Array, "3 3"], translation: Float[Array, "3"]) -> Float[Array, "4 4"]:
    """The homogeneous matrix T_ab with rotation R_ab and translation p_ab [m]: the pose of frame b in frame a."""
    top = jnp.concatenate([rotation, translation[:, None]], axis=1)
    return jnp.concatenate([top, jnp.asarray([[0, 0, 0, 1]], dtype=top.dtype)])


def pose_inverse(t: Float[Array, "4 4"]) -> Float[Array, "4 4"]:
    """The inverse pose T_ba = T_ab^-1 [m], computed without a linear solve."""
    r = t[:3, :3].T
    return pose(r, -r @ t[:3, 3])


def adjoint(t: Float[Array, "4 4"]) -> Float[Array, "6 6"]:
    """Adjoint matrix Ad_T with V_a = Ad_{T_ab} V_b for twists (w, v) [rad/s, m/s] (Lynch & Park 2017, ch. 3).

    Wrenches (n, f) transform as F_b = Ad_{T_ab}^T F_a [N m, N].
    """
    r = t[:3, :3]
    return jnp.block([[r, jnp.zeros_like(r)], [skew(t[:3, 3]) @ r, r]])


def twist_cross(v: Float[Array, "6"]) -> Float[Array, "6 6"]:
    """Matrix ad_V with ad_V U = [V, U], the Lie bracket of twists (w, v) (Lynch & Park 2017, sec. 8.2.2).

    The corresponding product with a wrench is -ad_V^T F.
    """
    w = skew(v[:3])
    return jnp.block([[w, jnp.zeros_like(w)], [skew(v[3:]), w]])


def pose_exp(s: Float[Array, "6"]) -> Float[Array, "4 4"]:
    """Pose T = exp([S]) for a twist S = (w, v) times unit time, with rotation angle |w| [rad, m]; smooth at w = 0."""
    s = jnp.asarray(s)
    w, v = s[:3], s[3:]
    _, b, c = exp_coefficients(w @ w)
    k = skew(w)
    return pose(rotation_exp(w), v + b * (k @ v) + c * (k @ (k @ v)))


def pose_log(t: Float[Array, "4 4"]) -> Float[Array, "6"]:
    """The twist S = (w, v) [rad, m] with exp([S]) = T and |w| <= pi: the inverse of `pose_exp`."""
    t = jnp.asarray(t)
    w = rotation_log(t[:3, :3])
    _, b, c = exp_coefficients(w @ w)
    k = skew(w)
    left = jnp.eye(3, dtype=t.dtype) + b * k + c * (k @ k)
    return jnp.concatenate([w, jnp.linalg.solve(left, t[:3, 3])])

"""Rotations: SO(3) and its Lie algebra, as 3x3 matrices acting on column vectors, and unit quaternions (w, x, y, z).

The sine and cosine of joint angles are computed in arithmetic that a compiler can vectorise: in float64 on the CPU, XLA
would call the C library for every sine, a third of the run time of batched inverse dynamics.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from . import components
from .components import A, module_of, stacked

# pi/2 as a sum of three parts. The first two have 33 bits, so multiplying them by a number of quadrants of up to 2^20 is exact.
# For larger angles, the error is still less than one unit in the last place of the angle.
QUARTER = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
# Coefficients of the polynomials P in sin r = r + r z P(z) and cos r = 1 - z / 2 + z^2 P(z), with z = r^2 and |r| <= pi / 4.
# Each P interpolates at six Chebyshev points of z, with a truncation error below rounding error.
SINE = (
    -0.16666666666666666,
    0.008333333333330946,
    -0.0001984126983675497,
    2.755731610068303e-06,
    -2.5051131455427946e-08,
    1.591810123027412e-10,
)
COSINE = (
    0.041666666666666664,
    -0.0013888888888887395,
    2.4801587298763433e-05,
    -2.7557317270560326e-07,
    2.0876146024689747e-09,
    -1.1382614868556325e-11,
)


@jax.custom_jvp
def sine_and_cosine(x: Float[Array, "*shape"]) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    """Sine and cosine of float64 values, with absolute errors of about 2e-16 if x is exact."""
    quadrants = jnp.round(x * (2 / jnp.pi))
    r = ((x - quadrants * QUARTER[0]) - quadrants * QUARTER[1]) - quadrants * QUARTER[2]
    z = r * r
    sine = r + r * (z * _polynomial(SINE, z))
    cosine = 1.0 - (0.5 * z - z * z * _polynomial(COSINE, z))
    turn = quadrants - 4.0 * jnp.floor(0.25 * quadrants)
    swapped = (turn == 1.0) | (turn == 3.0)
    sin = jnp.where(swapped, cosine, sine)
    cos = jnp.where(swapped, sine, cosine)
    return jnp.where(turn >= 2.0, -sin, sin), jnp.where((turn == 1.0) | (turn == 2.0), -cos, cos)


@sine_and_cosine.defjvp
def _(primals, tangents):
    sin, cos = sine_and_cosine(*primals)
    return (sin, cos), (cos * tangents[0], -sin * tangents[0])


def _polynomial(coefficients: tuple[float, ...], z: Array) -> Array:
    total = coefficients[-1] * jnp.ones_like(z)
    for c in coefficients[-2::-1]:
        total = total * z + c
    return total


def skew(v: Float[A, "3"]) -> Float[A, "3 3"]:
    """Skew-symmetric matrix [v] of a vector, with [v] u = v x u (Lynch & Park 2017, sec. 3.2.1)."""
    return components.skew_matrix(v)


def rotation_exp(w: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """Rotation exp([w]) by the angle t = |w| [rad] about w (Rodrigues' formula); smooth at w = 0.

    R = I + (sin t / t) [w] + ((1 - cos t) / t^2) [w]^2
    """
    w = jnp.asarray(w)
    a, b, _ = exp_coefficients(w @ w)
    k = skew(w)
    return jnp.eye(3, dtype=w.dtype) + a * k + b * (k @ k)


def exp_coefficients(t2: Float[Array, ""]) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """Coefficients sin t / t, (1 - cos t) / t^2 and (t - sin t) / t^3 as smooth functions of t^2, accurate to rounding."""
    small = t2 < 1
    series = jnp.where(small, t2, jnp.zeros_like(t2))
    safe = jnp.where(small, jnp.ones_like(t2), t2)
    t = jnp.sqrt(safe)

    def power_series(first: int) -> Array:
        total = jnp.ones_like(t2)
        for k in range(first + 16, first, -2):
            total = 1 - series / (k * (k - 1)) * total
        return total / math.factorial(first)

    a = jnp.where(small, power_series(1), jnp.sin(t) / t)
    b = jnp.where(small, power_series(2), (1 - jnp.cos(t)) / safe)
    c = jnp.where(small, power_series(3), (t - jnp.sin(t)) / (safe * t))
    return a, b, c


def rotation_log(rotation: Float[Array, "3 3"]) -> Float[Array, "3"]:
    """Rotation vector w [rad] of a rotation R = exp([w]), with |w| <= pi, accurate also near 0 and pi."""
    return quaternion_log(rotation_to_quaternion(rotation))


def rotation_log_rate(w: Float[Array, "3"]) -> Float[Array, "3 3"]:
    """Matrix L(w) that maps angular velocity to the rate of the rotation vector w = rotation_log(R), dw/dt = L(w) u.

    The angular velocity u [rad/s] satisfies dR/dt = [u] R. L is the inverse of the left Jacobian of the exponential:

        L = 1 - [w] / 2 + c [w]^2,    c = (1 - (t / 2) cot(t / 2)) / t^2,    t = |w| < 2 pi.
    """
    a, b, c = exp_coefficients(w @ w / 4)  # coefficients at half the angle avoid cancellation
    k = skew(w)
    return jnp.eye(3, dtype=w.dtype) - k / 2 + (b - c) / (4 * a) * (k @ k)


def quaternion_log(quaternion: Float[Array, "4"]) -> Float[Array, "3"]:
    """Rotation vector r [rad], |r| <= pi, of a unit quaternion q = (w, x, y, z); the same for q and -q."""
    quaternion = jnp.where(quaternion[0] < 0, -quaternion, quaternion)
    scalar, vector = quaternion[0], quaternion[1:]
    s2 = vector @ vector
    small = s2 < 1e-12
    safe = jnp.where(small, jnp.ones_like(s2), s2)
    s = jnp.sqrt(safe)
    angle = 2 * jnp.arctan2(s, scalar)
    return jnp.where(small, 2 / jnp.where(small, scalar, 1.0) * (1 - s2 / 3), angle / s) * vector


def quaternion_exp(w: Float[Array, "3"]) -> Float[Array, "4"]:
    """Unit quaternion (cos(t/2), sin(t/2) w / t) of the rotation by t = |w| [rad] about w; smooth at w = 0."""
    quarter = (w @ w) / 4
    a, b, _ = exp_coefficients(quarter)
    return jnp.concatenate([(1 - quarter * b)[None], a / 2 * w])


def quaternion_multiply(a: Float[Array, "4"], b: Float[Array, "4"]) -> Float[Array, "4"]:
    """Hamilton product a b of quaternions (w, x, y, z): the rotation b followed by the rotation a, both about fixed axes."""
    scalar = a[0] * b[0] - a[1:] @ b[1:]
    return jnp.concatenate([scalar[None], a[0] * b[1:] + b[0] * a[1:] + jnp.cross(a[1:], b[1:])])


def rotation_to_quaternion(rotation: Float[A, "3 3"]) -> Float[A, "4"]:
    """Unit quaternion (w, x, y, z) of a rotation, with w >= 0, by the best-conditioned of four formulas (Shepperd 1978)."""
    xp, r = module_of(rotation), rotation
    d = xp.diagonal(r)
    trace = d.sum()
    rows = [
        [1 + trace, r[2, 1] - r[1, 2], r[0, 2] - r[2, 0], r[1, 0] - r[0, 1]],
        [r[2, 1] - r[1, 2], 1 + 2 * d[0] - trace, r[0, 1] + r[1, 0], r[0, 2] + r[2, 0]],
        [r[0, 2] - r[2, 0], r[0, 1] + r[1, 0], 1 + 2 * d[1] - trace, r[1, 2] + r[2, 1]],
        [r[1, 0] - r[0, 1], r[0, 2] + r[2, 0], r[1, 2] + r[2, 1], 1 + 2 * d[2] - trace],
    ]
    candidates = stacked(r, [stacked(r, row) for row in rows])
    q = candidates[xp.argmax(stacked(r, [trace, d[0], d[1], d[2]]))]
    q = q / xp.sqrt(q @ q)
    return xp.where(q[0] < 0, -q, q)


def quaternion_to_rotation(quaternion: Float[A, "4"]) -> Float[A, "3 3"]:
    """Rotation matrix of a nonzero quaternion (w, x, y, z), which need not have unit length."""
    w, x, y, z = quaternion[0], quaternion[1], quaternion[2], quaternion[3]
    s = 2 / (quaternion @ quaternion)
    rows = [
        [1 - s * (y * y + z * z), s * (x * y - w * z), s * (x * z + w * y)],
        [s * (x * y + w * z), 1 - s * (x * x + z * z), s * (y * z - w * x)],
        [s * (x * z - w * y), s * (y * z + w * x), 1 - s * (x * x + y * y)],
    ]
    return stacked(quaternion, [stacked(quaternion, row) for row in rows])


def rpy_to_rotation(rpy: Float[A, "3"]) -> Float[A, "3 3"]:
    """Rotation R = Rz(yaw) Ry(pitch) Rx(roll) from fixed-axis roll, pitch and yaw [rad], as in URDF's `rpy`."""
    xp = module_of(rpy)
    return stacked(rpy, components.rotation_of_rpy(xp.cos(rpy), xp.sin(rpy))).reshape(3, 3)


def rotation_to_rpy(rotation: Float[Array, "3 3"]) -> Float[Array, "3"]:
    """Fixed-axis roll, pitch and yaw [rad] of a rotation; at pitch = +-pi/2, they are not unique, and yaw is set to 0."""
    r = rotation
    across = jnp.hypot(r[0, 0], r[1, 0])
    yaw = jnp.where(across < 1e-12, jnp.zeros_like(across), jnp.arctan2(r[1, 0], r[0, 0]))
    sin, cos = jnp.sin(yaw), jnp.cos(yaw)
    # computing pitch and roll from Rz(yaw)^T R keeps them accurate for pitch near +-pi/2
    pitch = jnp.arctan2(-r[2, 0], cos * r[0, 0] + sin * r[1, 0])
    roll = jnp.arctan2(sin * r[0, 2] - cos * r[1, 2], cos * r[1, 1] - sin * r[0, 1])
    return jnp.stack([roll, pitch, yaw])

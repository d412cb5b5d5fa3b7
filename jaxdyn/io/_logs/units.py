"""Detect joints that were not logged in radians or metres, based on the logged values."""

import numpy as np
from jaxtyping import Float

STILL = 1e-3  # minimum span of a moving joint [rad or m]; minimum RMS speed to estimate a velocity scale [rad/s or m/s]
LARGE = 4 * np.pi  # positions above this are suspicious, unless the joint's limits allow them [rad]


def smooth_speed(t: Float[np.ndarray, " N"], q: Float[np.ndarray, "N n"]) -> Float[np.ndarray, "N n"]:
    """Joint velocities from position differences over about 50 ms. They are coarse, but insensitive to sample noise."""
    half = min(max(1, round(0.025 / float(np.median(np.diff(t))))), (len(t) - 1) // 2)
    index = np.arange(len(t))
    after, before = np.minimum(index + half, len(t) - 1), np.maximum(index - half, 0)
    return (q[after] - q[before]) / (t[after] - t[before])[:, None]


def velocity_scale(qd: Float[np.ndarray, "N n"], speed: Float[np.ndarray, "N n"]) -> Float[np.ndarray, " n"]:
    """Least-squares factor s in qd = s dq/dt for each joint; NaN for a joint that does not move."""
    power = (speed**2).sum(axis=0)
    moves = np.sqrt(power / len(speed)) > STILL
    return np.where(moves, (qd * speed).sum(axis=0) / np.where(moves, power, 1.0), np.nan)


def looks_like_degrees(
    q: Float[np.ndarray, " N"],
    limits: Float[np.ndarray, "2"],
    speed: Float[np.ndarray, " N"],
    fastest: float,
    scale: float,
) -> str:
    """Explain why a joint's values look like degrees. The text is empty if they do not."""
    largest = np.abs(q).max()
    reach = np.abs(limits).max()
    if largest > LARGE and not (np.isfinite(reach) and reach >= largest):
        return f"|q| reaches {largest:.4g}" + (f", but the limits only {reach:.4g}" if np.isfinite(reach) else "")
    beyond = ((q < limits[0] - 0.1) | (q > limits[1] + 0.1)).mean()
    radians = np.radians(q)
    if beyond > 0.5 and ((radians >= limits[0] - 0.1) & (radians <= limits[1] + 0.1)).all():
        return f"{100 * beyond:.0f} % of the positions are beyond the limits {limits[0]:.4g} .. {limits[1]:.4g}"
    typical = float(np.percentile(np.abs(speed), 90))
    if typical > 3 * fastest >= 3 * np.radians(typical):
        return f"the joint moves faster than {typical:.4g} for a tenth of the time, but its velocity limit is {fastest:.4g}"
    for factor in (180 / np.pi, np.pi / 180):
        if 0.8 < scale / factor < 1.25:
            return f"the logged velocity is {scale:.4g} times the derivative of the logged position"
    return ""

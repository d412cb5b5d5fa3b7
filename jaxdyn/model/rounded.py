"""Rounded numbers in robot descriptions: the geometry for which angles and axes such as 1.5708 and 0.7071 stand.

An arm whose axes are parallel has fewer base parameters than one whose axes differ by 4e-6 rad, as in a file with
1.5708 for pi/2. The exact numbers decide only the number of base parameters; torques are computed with the numbers in
the file.
"""

import dataclasses
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from ..spatial.host import rotation_from_rpy, rpy_of
from .chain import Chain

# Angles with two or three decimals are compared with multiples of 15 degrees, as every second number with two decimals is
# within its rounding of a whole degree; with four decimals, one number in a hundred is, of half a degree.
COARSE, FINE, FINE_PLACES = np.pi / 12, np.pi / 360, 4
LEAST_PLACES = 2
NEGLIGIBLE = 1e-10  # rounding that changes no rank (relative to the tolerance of ranks, 1e-9)
DECIMALS = 13  # of the exact geometry, so that it is the same in every file of a robot
FLOAT32 = 1e-6  # rounding of geometry in single precision
_STEP = np.cos(np.arange(13) * np.pi / 24)
# magnitudes of the components of axes and quaternions: cosines of multiples of 7.5 degrees, and their products, and
# those of diagonals of cubes and tetrahedra
_COMPONENTS = np.unique(np.concatenate([np.outer(_STEP, _STEP).ravel(), np.sqrt([1 / 3, 2 / 3])]).round(15))


def places_of(number: float) -> int:
    """Number of decimals of the shortest decimal that equals a number."""
    exponent = Decimal(repr(float(number))).normalize().as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0


def stands_for(number: float, exact: float) -> bool:
    """True if a number with at least two decimals is an exact number, rounded or truncated, or equals it."""
    if abs(exact - number) < 1e-15:
        return True
    places = places_of(number)
    if places < LEAST_PLACES or exact * number <= 0:
        return False
    unit, short = 10.0**-places, abs(exact) - abs(number)
    return bool(abs(short) <= 0.5 * unit * (1 + 1e-9) or 0 <= short < unit)


def meant_angle(angle: float) -> float:
    """The multiple of half a degree (15 degrees below four decimals), plus quarter turns, for which an angle stands, if any."""
    turned = _meant_turn(angle)
    return _meant_decimal(angle) if turned is None else turned


def _meant_decimal(angle: float) -> float:
    step = FINE if places_of(angle) >= FINE_PLACES else COARSE
    exact = round(angle / step) * step
    return exact if exact and stands_for(angle, exact) else angle


def meant_unit(numbers: Sequence[float] | Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"]:
    """The axis or quaternion of unit length for which its components stand, or else the normalised components."""
    values = np.asarray(numbers, float)
    nearest = _COMPONENTS[np.abs(_COMPONENTS[:, None] - np.abs(values)).argmin(axis=0)] * np.sign(values)
    found = [nearest]
    if np.count_nonzero(values) == 2:
        i, j = np.flatnonzero(values)
        angle = float(np.arctan2(values[j], values[i]))
        turned = _meant_turn(angle)
        at = round(2 * angle / FINE) * FINE / 2 if turned is None else turned  # quaternions contain half the angle
        in_plane = np.zeros(len(values))
        in_plane[[i, j]] = np.cos(at), np.sin(at)
        if turned is not None:
            return in_plane
        found.append(in_plane)
    for exact in found:
        if abs(np.linalg.norm(exact) - 1) < 1e-9 and all(map(stands_for, values, exact)):
            return exact / np.linalg.norm(exact)
    return values / np.linalg.norm(values)


def meant_rotation(quaternion: Float[np.ndarray, "4"]) -> Float[np.ndarray, "3 3"]:
    """The rotation for which a unit quaternion (w, x, y, z) stands if its components or Euler angles were short decimals."""
    whole = rotation_from_quaternion(quaternion)
    written = written_unit(quaternion)
    if written is None:
        return _with_meant_angles(whole, 1e-12)
    exact = rotation_from_quaternion(meant_unit(written))
    # components can also be those of rounded angles: 0.707105 0.707108 0 0 of 1.5708
    digits = max(map(places_of, written))
    return exact if np.abs(exact - whole).max() > 1e-12 else _with_meant_angles(whole, 2 * 10.0**-digits)


def written_unit(unit: Float[np.ndarray, " k"]) -> Float[np.ndarray, " k"] | None:
    """The short decimals that yield an axis or quaternion when they are normalised, if any."""
    for places in range(LEAST_PLACES, 9):
        written = unit.round(places)
        if written.any() and np.abs(written / np.linalg.norm(written) - unit).max() < 1e-15:
            return written
    return None


def _meant_turn(angle: float, tolerance: float = 1e-10) -> float | None:
    """The angle for which an angle stands that differs by quarter turns from a short decimal, as -3.673e-6 from 1.5708."""
    for quarters in (0, -1, 1, -2, 2, -3, 3):
        turned = angle + quarters * np.pi / 2
        for places in range(LEAST_PLACES, 7):
            written = round(turned, places)
            if abs(written - turned) < tolerance:
                return _meant_decimal(written) - quarters * np.pi / 2
    return None


def _with_meant_angles(r: Float[np.ndarray, "3 3"], tolerance: float) -> Float[np.ndarray, "3 3"]:
    """The rotation for which the angles of r stand, if all of them are short decimals within the tolerance [rad]."""
    for x, back in ((r, np.asarray), (r.T, np.transpose)):  # Rx(a) Ry(b) Rz(c) is the transpose of Rz(-c) Ry(-b) Rx(-a)
        turns = [_meant_turn(angle, tolerance) for angle in rpy_of(x).tolist()]
        exact = [turn for turn in turns if turn is not None]
        if len(exact) == 3:
            found = back(rotation_from_rpy(np.cos(exact), np.sin(exact)))
            if np.abs(found - r).max() > tolerance:
                return found
    return r


def rotation_from_quaternion(q: Float[np.ndarray, "4"]) -> Float[np.ndarray, "3 3"]:
    """Rotation matrix of a unit quaternion (w, x, y, z)."""
    w, v = q[0], q[1:]
    return (w * w - v @ v) * np.eye(3) + 2 * np.outer(v, v) + 2 * w * np.cross(np.eye(3), v)


def with_unrounded(
    chain: Chain,
    rotation: Float[np.ndarray, "n 3 3"],
    translation: Float[np.ndarray, "n 3"],
    screw: Float[np.ndarray, "n 6"],
) -> Chain:
    """Note in a chain's topology the geometry for which the rounded numbers of its description stand."""
    exact = np.concatenate([np.reshape(x, (chain.n, -1)) for x in (rotation, translation, screw)], axis=1)
    shift = float(np.abs(exact - _geometry(chain)).max())
    if shift <= (NEGLIGIBLE if chain.dtype == np.float64 else FLOAT32):
        return chain
    rows = tuple(map(tuple, (exact.round(DECIMALS) + 0.0).tolist()))  # + 0.0: no negative zeros
    shift = float(f"{1.1 * shift:.1e}")
    return dataclasses.replace(chain, topology=dataclasses.replace(chain.topology, unrounded=rows, rounding=shift))


def unrounded(chain: Chain) -> Chain:
    """The chain with its geometry before rounding, in double precision; the chain itself if nothing was rounded."""
    topology = chain.topology
    if len(topology.unrounded) != chain.n or chain.rotation.ndim != 3:
        return chain
    exact = np.array(topology.unrounded)
    if np.abs(exact - _geometry(chain)).max() > topology.rounding + FLOAT32:
        return chain
    whole: Any = jax.tree.map(lambda x: np.asarray(x, np.float64), chain)
    parts = {"rotation": exact[:, :9].reshape(-1, 3, 3), "translation": exact[:, 9:12], "screw": exact[:, 12:]}
    return dataclasses.replace(whole, **parts, topology=dataclasses.replace(topology, unrounded=(), rounding=0.0))


def rounding_note(chain: Chain) -> str | None:
    """Sentence for the user if base parameters are decided with other angles or axes than those in the description."""
    exact = unrounded(chain)
    if exact is chain:
        return None
    changes = np.abs(_geometry(exact) - _geometry(chain)).max(axis=1)
    joints = [name for name, change in zip(chain.joint_names, changes, strict=True) if change > NEGLIGIBLE]
    return (
        f"the model's angles or axes at {', '.join(joints)} are rounded (by up to {changes.max():.1g}, as 1.5708 for pi/2): "
        "base parameters are those of the exact ones, so that rounding adds none; torques use the model's own numbers"
    )


def _geometry(chain: Chain) -> Float[np.ndarray, "n 18"]:
    parts = (np.asarray(x, float).reshape(chain.n, -1) for x in (chain.rotation, chain.translation, chain.screw))
    return np.concatenate(list(parts), axis=1)

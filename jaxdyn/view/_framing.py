"""Position of the camera and height of the ground, derived from the space that a robot occupies."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ..report._pictures.stick_figure import line_ends
from ._scene import Scene

FIELD_OF_VIEW = np.radians(40.0)
_FROM = np.array([1.6, -2.0, 1.1]) / np.linalg.norm([1.6, -2.0, 1.1])


class Framing(NamedTuple):
    """A camera and a ground plane in the world.

    Attributes:
        up: direction opposite to gravity; z if there is no gravity.
        turn: rotation that maps the z axis to `up`, and thus the xy plane to the ground plane.
        eye: position of the camera [m].
        target: point at which the camera looks [m].
        ground: a point of the ground plane, which is at height 0 or at the height of the robot's lowest point, whichever is
            lower [m].
        cell: edge length of the grid squares on the ground, a round number [m].
        radius: radius of a ball about the target that contains the robot [m].
    """

    up: Float[np.ndarray, "3"]
    turn: Float[np.ndarray, "3 3"]
    eye: Float[np.ndarray, "3"]
    target: Float[np.ndarray, "3"]
    ground: Float[np.ndarray, "3"]
    cell: float
    radius: float


def frame_scene(scene: Scene, q: Float[np.ndarray, "rows nq"], most: int = 40) -> Framing:
    """A camera that shows the whole robot in the given configurations, of which at most `most` are used."""
    gravity = np.asarray(scene.chain.gravity, float)
    size = np.linalg.norm(gravity)
    up = -gravity / size if size > 0 else np.array([0.0, 0.0, 1.0])
    turn = _turn_to(up)
    poses = scene.poses(q[:: -(-len(q) // most)])
    points = [line_ends(poses, scene.joints).reshape(-1, 3)]
    for part in scene.parts:
        if part.shown:
            pose = poses[:, part.link]
            corners = _corners(part.vertices)
            points.append((corners @ pose[:, :3, :3].swapaxes(1, 2) + pose[:, None, :3, 3]).reshape(-1, 3))
    seen = np.concatenate(points) @ turn  # in axes whose z axis is up
    low, high = seen.min(axis=0), seen.max(axis=0)
    middle = (low + high) / 2
    radius = max(float(np.linalg.norm(seen - middle, axis=1).max()), 0.02)
    eye = middle + _FROM * 1.15 * radius / np.sin(FIELD_OF_VIEW / 2)
    ground = np.array([0.0, 0.0, min(0.0, low[2])])
    return Framing(up, turn, turn @ eye, turn @ middle, turn @ ground, _round_number(radius / 5), radius)


def _turn_to(up: Float[np.ndarray, "3"]) -> Float[np.ndarray, "3 3"]:
    """The shortest rotation from z to up."""
    x, y, z = up
    if z < -1 + 1e-9:
        return np.diag([1.0, -1.0, -1.0])
    return np.array(
        [[1 - x * x / (1 + z), -x * y / (1 + z), x], [-x * y / (1 + z), 1 - y * y / (1 + z), y], [-x, -y, z]]
    )


def _corners(vertices: Float[np.ndarray, "V 3"]) -> Float[np.ndarray, "8 3"]:
    ends = np.stack([vertices.min(axis=0), vertices.max(axis=0)])
    return np.stack(np.meshgrid(*ends.T, indexing="ij"), axis=-1).reshape(-1, 3)


def _round_number(value: float) -> float:
    """The largest number of the form 1, 2 or 5 times a power of ten that does not exceed a value."""
    power = 10.0 ** np.floor(np.log10(value))
    return float(power * max(k for k in (1, 2, 5) if k * power <= value * (1 + 1e-9)))

"""Convex hulls and capsules that contain a set of points, such as the vertices of a mesh."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize
from scipy.spatial import ConvexHull

from ..model.build import pose_of

Points = Float[np.ndarray, "P 3"]
_THINNEST = 1e-5  # thickness given to the hull of a flat mesh, relative to its extent, for Qhull


class Enclosure(NamedTuple):
    """A shape that contains given points: the fields of `Shapes`, its volume, and that of the points' convex hull [m^3]."""

    pose: Float[np.ndarray, "4 4"]
    size: Float[np.ndarray, "3"]
    radius: float
    vertices: Points | None
    volume: float
    convex_volume: float


def enclosing_hull(points: Points, most: int) -> Enclosure:
    """The convex hull of at most `most` of the points, inflated by the largest distance of the others from it.

    The hull starts with a tetrahedron, to which the point that is highest above a facet is added until none is left out or
    `most` is reached. Flat, straight and single sets of points get a thickness of 1e-5 of their extent. The cost is about
    `most` convex hulls of up to `most` points.
    """
    full = ConvexHull(_thickened(points))
    outer, chosen = full.points[full.vertices], _tetrahedron(full.points[full.vertices])
    inner = ConvexHull(outer[chosen])
    while len(chosen) < min(most, len(outer)):
        height = (outer @ inner.equations[:, :3].T + inner.equations[:, 3]).max(axis=1)
        chosen.append(int(height.argmax()))
        inner = ConvexHull(outer[chosen])
    left = np.delete(outer, chosen, axis=0)
    radius = float(_distances(left, inner).max()) if len(left) else 0.0
    centre = (inner.min_bound + inner.max_bound) / 2
    pose = pose_of(translation=centre)
    return Enclosure(pose, np.zeros(3), radius, inner.points - centre, _inflated_volume(inner, radius), full.volume)


def enclosing_capsule(points: Points) -> Enclosure:
    """A small capsule that contains all points.

    Its axis, a line, is searched from the principal axes of the hull's vertices by the method of Nelder & Mead (1965), for the
    least volume. For a given axis, the radius is the largest distance of a point from it, and the caps just reach the ends.
    """
    full = ConvexHull(_thickened(points))
    outer = full.points[full.vertices]
    middle = (full.min_bound + full.max_bound) / 2
    extent = np.ptp(outer, axis=0).max()
    local = (outer - middle) / extent
    starts = np.linalg.svd(local - local.mean(axis=0), full_matrices=False)[2]
    found = []
    for k in range(3):
        frame = np.roll(starts, 2 - k, axis=0)  # row k becomes the axis, the last row
        frame[0] *= np.linalg.det(frame)
        volume = lambda x, frame=frame: _capsule(local, frame, x)[-1]
        best = minimize(
            volume, np.zeros(4), method="Nelder-Mead", options={"maxiter": 400, "xatol": 1e-4, "fatol": 1e-6}
        )
        found.append((best.fun, k, best.x, frame))
    _, _, x, frame = min(found, key=lambda item: item[:2])
    rotation, centre, radius, half, volume = _capsule(local, frame, x)
    pose = pose_of(rotation, middle + extent * centre)
    size = np.array([0.0, 0.0, extent * half])
    return Enclosure(pose, size, extent * radius, None, extent**3 * volume, full.volume)


def enclosed_volume(vertices: Points, faces: np.ndarray) -> float | None:
    """Volume within a closed surface of triangles [m^3], by the divergence theorem; None if the surface is not closed."""
    a, b, c = vertices[faces].transpose(1, 0, 2)
    normals = np.cross(b - a, c - a) / 2
    volume = float(np.einsum("ij,ij->", a - vertices.mean(axis=0), normals) / 3)
    closed = np.linalg.norm(normals.sum(axis=0)) < 1e-4 * np.linalg.norm(normals, axis=1).sum()
    return volume if closed and volume > 0 else None


def _capsule(points: Points, frame: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, float, float, float]:
    """Rotation, centre, radius, half length and volume of the capsule about the axis frame[2] + x[0] frame[0] + ..."""
    z = frame[2] + x[0] * frame[0] + x[1] * frame[1]
    z /= np.linalg.norm(z)
    across = np.cross(z, frame[0])
    across /= np.linalg.norm(across)
    rotation = np.stack([np.cross(across, z), across, z], axis=1)
    local = points @ rotation
    beside = local[:, :2] - x[2:]
    squares = (beside**2).sum(axis=1)
    reach = np.sqrt(squares.max() - squares)  # of the caps, along the axis
    upper, lower = (local[:, 2] - reach).max(), (local[:, 2] + reach).min()
    radius, half = float(np.sqrt(squares.max())), float(max(upper - lower, 0.0) / 2)
    centre = rotation @ np.array([*x[2:], (upper + lower) / 2])
    return rotation, centre, radius, half, np.pi * radius**2 * (2 * half + 4 / 3 * radius)


def _thickened(points: Points) -> Float[np.ndarray, "more 3"]:
    """The points, twice and apart along every direction in which they have no extent."""
    points = np.asarray(points, float)
    centred = points - points.mean(axis=0)
    axes = np.linalg.svd(centred.T @ centred)[2]
    along = np.ptp(centred @ axes.T, axis=0)
    thinnest = max(_THINNEST * along.max(), 1e-9)
    for axis, extent in zip(axes, along, strict=True):
        if extent < thinnest:
            points = np.concatenate([points - axis * thinnest / 2, points + axis * thinnest / 2])
    return points


def _tetrahedron(points: Points) -> list[int]:
    """Indices of four points far apart, which are not in one plane unless all are."""
    rest = points - points[(points**2).sum(axis=1).argmax()]
    chosen = [int((points**2).sum(axis=1).argmax())]
    for _ in range(3):  # the point farthest from the point, line or plane of those before it
        squares = (rest**2).sum(axis=1)
        chosen.append(int(squares.argmax()))
        axis = rest[chosen[-1]] / np.sqrt(squares.max())
        rest = rest - np.outer(rest @ axis, axis)
    return chosen


def _distances(points: Points, hull: ConvexHull) -> Float[np.ndarray, " P"]:
    """Distances of points from a convex hull that contains none of them: the least to its triangles and their edges."""
    corners, normals = hull.points[hull.simplices], hull.equations[:, :3]
    height = points @ normals.T + hull.equations[:, 3]
    foot = points[:, None] - height[..., None] * normals
    squares, sides = np.full(height.shape, np.inf), []
    for k in range(3):
        start, edge = corners[:, k], corners[:, (k + 1) % 3] - corners[:, k]
        sides.append(np.einsum("pfi,fi->pf", foot - start, np.cross(normals, edge)))
        along = np.clip(np.einsum("pfi,fi->pf", foot - start, edge) / (edge**2).sum(axis=1), 0, 1)
        nearest = start + along[..., None] * edge
        squares = np.minimum(squares, ((points[:, None] - nearest) ** 2).sum(axis=2))
    inside = (np.array(sides) >= 0).all(axis=0) | (np.array(sides) <= 0).all(axis=0)
    return np.sqrt(np.where(inside, height**2, squares).min(axis=1))


def _inflated_volume(hull: ConvexHull, radius: float) -> float:
    """Steiner's formula V + S r + M r^2 + 4/3 pi r^3, where M is half the sum of edge lengths times exterior angles."""
    corners, normals = hull.points[hull.simplices], hull.equations[:, :3]
    bent = 0.0
    for k in range(3):  # neighbour k shares the edge opposite corner k; every edge belongs to two triangles
        length = np.linalg.norm(corners[:, (k + 1) % 3] - corners[:, (k + 2) % 3], axis=1)
        cosine = np.einsum("fi,fi->f", normals, normals[hull.neighbors[:, k]])
        bent += float((length * np.arccos(np.clip(cosine, -1, 1))).sum()) / 4
    return float(hull.volume + hull.area * radius + bent * radius**2 + 4 / 3 * np.pi * radius**3)

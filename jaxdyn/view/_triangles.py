"""Triangulated surfaces of simple bodies: vertices (V, 3), and vertex indices (F, 3) of faces, anticlockwise from outside."""

import functools

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from ..io._meshes import Surface


def box(size: tuple[float, float, float]) -> Surface:
    """A box with these edge lengths along x, y and z, centred at the origin."""
    corners = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)])
    squares = ((0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3))
    faces = [triangle for a, b, c, d in squares for triangle in ((a, b, c), (a, c, d))]
    return corners * np.asarray(size), np.array(faces)


def cylinder(radius: float, length: float, around: int = 32) -> Surface:
    """A cylinder along z, centred at the origin."""
    return turned(np.array([[0.0, -0.5], [1.0, -0.5], [1.0, 0.5], [0.0, 0.5]]) * [radius, length], around)


def capsule(radius: float, length: float, around: int = 32) -> Surface:
    """A cylinder along z with hemispheres at both ends, centred at the origin; `length` excludes the hemispheres."""
    half = np.linspace(0.0, np.pi / 2, around // 4 + 1)
    cap = np.stack([np.cos(half), np.sin(half)], axis=1) * radius + [0.0, length / 2]
    cap[-1, 0] = 0.0
    return turned(np.concatenate([cap[::-1] * [1, -1], cap]), around)


def ellipsoid(semi_axes: tuple[float, float, float], around: int = 32) -> Surface:
    """An ellipsoid with these semi-axes along x, y and z, centred at the origin; equal semi-axes give a sphere."""
    vertices, faces = _unit_sphere(around)
    return vertices * np.asarray(semi_axes), faces


@functools.lru_cache(maxsize=8)
def _unit_sphere(around: int) -> Surface:
    angle = np.linspace(-np.pi / 2, np.pi / 2, around // 2 + 1)
    outline = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    outline[[0, -1], 0] = 0.0
    return turned(outline, around)


def turned(outline: Float[np.ndarray, "k 2"], around: int) -> Surface:
    """The surface of revolution about z of an outline, given as points (radius, height) from the lowest to the highest.

    The first and the last point must lie on the axis.
    """
    angle = np.linspace(0.0, 2 * np.pi, around, endpoint=False)
    rings = outline[1:-1]
    vertices = np.stack(
        [
            rings[:, :1] * np.cos(angle),
            rings[:, :1] * np.sin(angle),
            np.broadcast_to(rings[:, 1:], (len(rings), around)),
        ],
        axis=2,
    ).reshape(-1, 3)
    ends = [[0.0, 0.0, outline[0, 1]], [0.0, 0.0, outline[-1, 1]]]
    here, there = np.arange(around), (np.arange(around) + 1) % around
    low, high = len(vertices), len(vertices) + 1
    faces = [np.stack([np.full(around, low), there, here], axis=1)]
    for ring in range(len(rings) - 1):
        a, b = ring * around + here, ring * around + there
        faces += [np.stack([a, b, b + around], axis=1), np.stack([a, b + around, a + around], axis=1)]
    last = (len(rings) - 1) * around
    faces.append(np.stack([last + here, last + there, np.full(around, high)], axis=1))
    return np.concatenate([vertices, ends]), np.concatenate(faces)


def creased(surface: Surface, angle: float = 0.6) -> tuple[Float[np.ndarray, "W 3"], Int[np.ndarray, "F 3"]]:
    """Split the vertices of a surface along edges at which it bends by more than an angle [rad].

    After the split, a renderer that averages face normals at vertices shows flat faces as flat and curved surfaces as smooth.

    Cost: O(F log F).
    """
    vertices, faces = surface
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    normals = np.cross(b - a, c - a)
    normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-300)
    # one row per edge of each face: the vertices at its ends (lower index first), and the corners of the face at these vertices
    _, place = np.unique(np.round(vertices, 9), axis=0, return_inverse=True)
    corner = np.arange(faces.size).reshape(-1, 3)
    ends = place.reshape(-1)[np.concatenate([faces[:, [k, (k + 1) % 3]] for k in range(3)])]
    corners = np.concatenate([corner[:, [k, (k + 1) % 3]] for k in range(3)])
    turned_round = ends[:, 0] > ends[:, 1]
    ends[turned_round], corners[turned_round] = ends[turned_round, ::-1], corners[turned_round, ::-1]
    order = np.lexsort(ends.T)
    ends, corners = ends[order], corners[order]
    first, second = corners[:-1], corners[1:]
    smooth = (ends[1:] == ends[:-1]).all(axis=1)
    smooth &= np.einsum("ij,ij->i", normals[first[:, 0] // 3], normals[second[:, 0] // 3]) >= np.cos(angle)
    pairs = np.concatenate([np.stack([first[smooth, k], second[smooth, k]]) for k in range(2)], axis=1)
    graph = coo_array((np.ones(pairs.shape[1], bool), (pairs[0], pairs[1])), shape=(faces.size, faces.size))
    _, group = connected_components(graph, directed=False)
    _, one, split = np.unique(group, return_index=True, return_inverse=True)
    return vertices[faces.reshape(-1)[one]], split.reshape(-1, 3)

"""Compute link inertias from the shapes in a robot description, for files without inertias."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from ..errors import ModelError
from ..model._chain import Chain, frame_index, with_inertial_parameters
from ..spatial import solids
from ._geometry import Geometry
from ._meshes import read_mesh


def with_inertias_of_shapes(
    chain: Chain, shapes: Sequence[Geometry], density: float, *, keep_given: bool = True
) -> Chain:
    """Return the chain with link inertias computed from shapes, which are treated as solids of uniform density.

    Use this function for robot descriptions without `<inertial>`. Example:
    `with_inertias_of_shapes(load(path, ignore_inertials=True), read_geometry(path, collision=True)[0], 1000.0)`.

    Since real links are hollow and contain motors and gears, the result is only a first model for simulation and a prior for
    identification.

    The inertia of a shape on a fused link is added to the moving link that carries the fused link. Shapes on the base are
    ignored. The inertias of several shapes on one link are summed, even if the shapes overlap. Meshes must be closed (see
    `spatial.solids.mesh`); reading mesh files requires trimesh.

    Args:
        shapes: shapes from `read_geometry` or `geometry_from_mujoco`.
        density: density of the solids [kg/m^3].
        keep_given: keep the inertia of links that already have mass.

    Raises:
        ModelError: the density is not positive, a shape is on an unknown link, or a mesh cannot be read or does not
            enclose a volume.
    """
    if not density > 0:
        raise ModelError(f"the density is {density:g} kg/m^3; it must be positive")
    given = np.asarray(chain.inertia)
    found = np.zeros((chain.n, 10))
    for shape in shapes:
        link, frame = frame_index(chain, shape.link)
        if link < 0:
            continue
        pose = np.asarray(shape.pose, float)
        if frame is not None:
            pose = np.asarray(chain.frame_poses[frame], float) @ pose
        found[link] += np.asarray(_solid(shape, density, pose), float)
    kept = (given[:, 0] > 0) & keep_given
    return with_inertial_parameters(chain, jnp.asarray(np.where(kept[:, None], given, found), chain.dtype))


def _solid(shape: Geometry, density: float, pose: np.ndarray) -> np.ndarray:
    """Compute the ten inertial parameters of a shape in the frame of its link."""
    x, y, z = shape.size
    if shape.kind == "mesh":
        surfaces = [shape.triangles] if shape.triangles is not None else [s for s, _ in read_mesh(_file(shape))]
        scale = np.ones(3) if shape.triangles is not None else np.array(shape.size)
        bodies = [_mesh(shape, vertices * scale, faces, density, pose) for vertices, faces in surfaces]
        return np.sum(bodies, axis=0)
    volume = {
        "box": x * y * z,
        "sphere": 4 / 3 * np.pi * x**3,
        "ellipsoid": 4 / 3 * np.pi * x * y * z,
        "cylinder": np.pi * x**2 * z,
        "capsule": np.pi * x**2 * z + 4 / 3 * np.pi * x**3,
    }[shape.kind]
    sizes = {"box": (shape.size,), "sphere": (x,), "ellipsoid": (shape.size,)}.get(shape.kind, (x, z))
    return np.asarray(getattr(solids, shape.kind)(density * volume, *sizes, pose=pose))


def _file(shape: Geometry):
    if shape.file is None:
        raise ModelError(f"the mesh of link {shape.link!r} has neither a file nor triangles")
    return shape.file


def _mesh(shape: Geometry, vertices: np.ndarray, faces: np.ndarray, density: float, pose: np.ndarray) -> np.ndarray:
    body = np.asarray(solids.mesh(vertices, faces, density, pose))
    if not np.isfinite(body).all():
        raise ModelError(
            f"the mesh of link {shape.link!r} does not enclose a volume, so its mass is undefined; close the mesh"
        )
    return body

"""Geometry of a compiled MuJoCo model: geoms with their poses, colours and meshes."""

from typing import Any

import numpy as np
from jaxtyping import Float

from .._geometry import Geometry, Kind
from .features import unsupported
from .tree import body_names, pose_matrix

_SHOWN = 3  # groups 0, 1 and 2, which MuJoCo's viewer shows by default
_DEFAULT = (0.5, 0.5, 0.5, 1.0)  # default rgba of a geom, which is replaced by the colour of its material, if any


def geometry_from_mujoco(model: Any, *, collision: bool = False) -> tuple[tuple[Geometry, ...], tuple[str, ...]]:
    """Return the shapes of all bodies of a compiled MuJoCo model (`mujoco.MjModel`), and notes on omitted parts.

    The shapes are the visible geoms in groups 0 to 2, which MuJoCo's viewer shows by default. A shape has the colour of the
    geom, or the colour of its material if the geom has the default colour; textures are not read.

    Planes are omitted, since the viewer draws its own ground. Height fields are omitted with a note. If the model has equality
    constraints, a note states that they are not enforced: the robot is shown at the given positions.

    Args:
        collision: return instead the geoms that can be in contact (contype or conaffinity is not 0), in any group.

    Source: MuJoCo's XML reference (mujoco.readthedocs.io, body/geom).
    """
    import mujoco

    package: Any = mujoco
    of = package.mjtGeom
    names = body_names(model)
    kinds: dict[int, Kind] = {
        int(of.mjGEOM_BOX): "box",
        int(of.mjGEOM_CYLINDER): "cylinder",
        int(of.mjGEOM_CAPSULE): "capsule",
        int(of.mjGEOM_SPHERE): "sphere",
        int(of.mjGEOM_ELLIPSOID): "ellipsoid",
        int(of.mjGEOM_MESH): "mesh",
    }
    shapes: list[Geometry] = []
    notes: list[str] = []
    for g in range(model.ngeom):
        colour, kind = _colour(model, g), kinds.get(int(model.geom_type[g]))
        touches = bool(model.geom_contype[g] or model.geom_conaffinity[g])
        if not (touches if collision else int(model.geom_group[g]) < _SHOWN and colour[3] > 0):
            continue
        link = names[int(model.geom_bodyid[g])]
        if kind is None:
            if int(model.geom_type[g]) != int(of.mjGEOM_PLANE):
                name = model.geom(g).name or f"number {g}"
                notes.append(f"geom {name} of body {link!r} is neither a simple shape nor a mesh; omitted")
            continue
        pose, triangles = pose_matrix(model.geom_pos[g], model.geom_quat[g]), None
        if kind == "mesh":
            triangles = _triangles(model, int(model.geom_dataid[g]))
        shapes.append(Geometry(link, kind, pose, _size(kind, model.geom_size[g]), colour, None, triangles))
    if "equality" in (acting := unsupported(model)):
        notes.append(f"{acting['equality']} are not enforced: positions are shown as given")
    return tuple(shapes), tuple(notes)


def _size(kind: Kind, size: Float[np.ndarray, "3"]) -> tuple[float, float, float]:
    """Convert MuJoCo's half sizes to the size of a shape as in `Geometry`."""
    x, y, z = (float(s) for s in size)
    if kind == "box":
        return 2 * x, 2 * y, 2 * z
    if kind in ("cylinder", "capsule"):
        return x, x, 2 * y
    if kind == "sphere":
        return x, x, x
    return (x, y, z) if kind == "ellipsoid" else (1.0, 1.0, 1.0)


def _triangles(model: Any, mesh: int) -> tuple[np.ndarray, np.ndarray]:
    """Vertices and faces of a mesh in its geom's frame: the origin is the centre of mass, the axes are principal axes."""
    first, count = int(model.mesh_vertadr[mesh]), int(model.mesh_vertnum[mesh])
    face, faces = int(model.mesh_faceadr[mesh]), int(model.mesh_facenum[mesh])
    return np.array(model.mesh_vert[first : first + count], float), np.array(model.mesh_face[face : face + faces], int)


def _colour(model: Any, geom: int) -> tuple[float, float, float, float]:
    rgba, material = model.geom_rgba[geom], int(model.geom_matid[geom])
    if material >= 0 and np.allclose(rgba, _DEFAULT):
        rgba = model.mat_rgba[material]
    red, green, blue, opacity = (float(x) for x in np.clip(rgba, 0.0, 1.0))
    return red, green, blue, opacity

"""Read triangle meshes with the optional dependency trimesh."""

from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from ..errors import ModelError

Surface = tuple[Float[np.ndarray, "V 3"], Int[np.ndarray, "F 3"]]
Colour = tuple[float, float, float, float]


def read_mesh(file: Path) -> list[tuple[Surface, Colour | None]]:
    """Read the surfaces in a mesh file (stl, obj, dae, glb, ply, ...), each with its colour or None.

    Textures are not read.

    Raises:
        ModelError: trimesh is not installed (the message names the extra to install), or cannot read the file.
    """
    try:
        import trimesh
    except ImportError as error:
        raise ModelError(
            "meshes require trimesh, which is not installed", f'pip install "jaxdyn[view]" ({error})'
        ) from error
    try:
        scene = trimesh.load_scene(file)
        meshes = [mesh for mesh in scene.dump() if isinstance(mesh, trimesh.Trimesh)]
    except Exception as error:  # trimesh's readers raise all kinds of exceptions
        raise ModelError(f"{file}: the mesh cannot be read: {type(error).__name__}: {error}") from None
    if not meshes:
        raise ModelError(f"{file}: the mesh contains no triangles")
    return [((np.asarray(m.vertices, float), np.asarray(m.faces, int)), _colour(m)) for m in meshes]


def _colour(mesh) -> Colour | None:
    """Return the main colour of a mesh, or None if the file specifies none."""
    visual = mesh.visual
    if not getattr(visual, "defined", False):
        return None
    material = getattr(visual, "material", None)
    rgba = visual.main_color if material is None else material.main_color
    red, green, blue, opacity = np.asarray(rgba, float)[:4] / 255
    return float(red), float(green), float(blue), float(opacity)

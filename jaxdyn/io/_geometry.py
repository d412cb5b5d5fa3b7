"""Geometry from a robot description: shapes on the links."""

import dataclasses
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

Kind = Literal["box", "cylinder", "capsule", "sphere", "ellipsoid", "mesh"]


@dataclasses.dataclass(frozen=True, eq=False)
class Geometry:
    """A shape that is fixed to a link.

    Attributes:
        link: name of the link or body in the file.
        kind: box, cylinder, capsule, sphere, ellipsoid or mesh.
        pose: pose of the shape's frame in the link frame [m]. Except for meshes, the origin is the centre of the shape; the
            axis of a cylinder or capsule is z.
        size: edge lengths of a box [m]; (radius, radius, length) of a cylinder, or of a capsule without its caps [m];
            (radius, radius, radius) of a sphere [m]; semi-axes of an ellipsoid [m]; scale factors of a mesh along x, y, z.
        colour: red, green, blue and opacity, each from 0 to 1; None if the file does not specify a colour.
        file: mesh file; None for other shapes and for a mesh held in `triangles`.
        triangles: vertices in the shape's frame [m] and faces of a mesh held in memory; otherwise None.
    """

    link: str
    kind: Kind
    pose: Float[np.ndarray, "4 4"]
    size: tuple[float, float, float]
    colour: tuple[float, float, float, float] | None = None
    file: Path | None = None
    triangles: tuple[Float[np.ndarray, "V 3"], Int[np.ndarray, "F 3"]] | None = None

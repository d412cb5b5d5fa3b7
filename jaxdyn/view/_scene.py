"""A robot as data for rendering: triangles fixed to its links, and lines from joint to joint."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..errors import ModelError
from ..io._geometry import Geometry
from ..io._meshes import Surface, read_mesh
from ..model._chain import Chain, frame_index
from ..model._configuration import difference, integrate
from ..report._pictures.ellipsoids import equivalent_ellipsoid
from ..report._pictures.stick_figure import link_poses, skeleton
from . import _triangles as triangles

Colour = tuple[float, float, float, float]
_GREY: Colour = (0.75, 0.75, 0.77, 1.0)
_LINKS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#b07aa1", "#edc948", "#9c755f")


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """Triangles fixed to a link.

    Attributes:
        name: unique path, "link/kind number".
        group: "shape" for a shape in the robot description, "inertia" for an inertia ellipsoid.
        link: index of the moving link; -1 for the base.
        vertices: points in the link's frame [m].
        faces: indices of the vertices of each triangle, anticlockwise as seen from outside.
        colour: red, green, blue and opacity, from 0 to 1.
        shown: True if the part is visible initially.
    """

    name: str
    group: str
    link: int
    vertices: Float[np.ndarray, "V 3"]
    faces: Int[np.ndarray, "F 3"]
    colour: Colour
    shown: bool = True


@dataclasses.dataclass(frozen=True, eq=False)
class Scene:
    """A robot as parts that move with its links.

    Attributes:
        chain: the robot.
        parts: triangles fixed to the links and the base.
        notes: notes on omitted parts.
    """

    chain: Chain
    parts: tuple[Part, ...]
    notes: tuple[str, ...] = ()

    def poses(self, q: Float[Array, "... nq"] | Float[np.ndarray, "... nq"]) -> Float[np.ndarray, "... m 4 4"]:
        """Poses in the world of the n links, followed by the base, for one or many configurations q.

        The pose of a part is `poses[part.link]`.

        Raises:
            ModelError: the number of columns of q differs from the number of the robot's positions.
        """
        return link_poses(self.chain, np.asarray(q))

    @property
    def joints(self) -> tuple[tuple[int, int, np.ndarray], ...]:
        """Lines (link a, link b, point on b), each from the origin of link a to a point on link b, in b's frame [m].

        The first n lines lead from the parent of each link to the link. The others lead from links without children to their
        ends: the tip, or the end of the uniform rod with the same centre of mass and spread along this line.
        """
        return skeleton(self.chain)


def build_scene(chain: Chain, geometry: Sequence[Geometry] = (), notes: Sequence[str] = ()) -> Scene:
    """Build a scene from a robot, with the shapes in its description and the inertia ellipsoids of its links.

    For every moving link with a mass, the scene contains the solid ellipsoid of uniform density that has the same mass, centre
    of mass and inertia. It is initially hidden if the link also has shapes. Shapes on links that are not part of the chain
    (beyond its `tip`) are omitted. A mesh that cannot be read is omitted and mentioned in the notes; the other shapes of its
    link are still shown.

    Args:
        chain: the robot; its inertias may differ from those of the description, for example after an identification.
        geometry: shapes returned by `read_geometry` for the description from which the chain was loaded.
        notes: notes to store with the scene, for example those returned by `read_geometry`.

    Raises:
        ModelError: a shape is a mesh, but trimesh is not installed.
    """
    parts: list[Part] = []
    found = list(notes)
    carried = {*chain.link_names, *chain.frame_names, chain.topology.base_name}
    for shape in geometry:
        if shape.link not in carried:
            continue
        link, frame = frame_index(chain, shape.link)
        pose = shape.pose if frame is None else np.asarray(chain.frame_poses[frame], float) @ shape.pose
        try:
            surfaces = _surfaces(shape)
        except ModelError as error:
            if isinstance(error.__cause__, ImportError):
                raise
            found.append(str(error))
            continue
        for surface, own in surfaces:
            name = f"{shape.link}/{shape.kind} {len(parts)}"
            colour = shape.colour or own or _GREY
            parts.append(Part(name, "shape", link, *_placed(surface, pose), colour))
    dressed = {part.link for part in parts}
    for i, name in enumerate(chain.link_names):
        ellipsoid = equivalent_ellipsoid(np.asarray(chain.inertia[i], float))
        if ellipsoid is None:
            continue
        if not ellipsoid.consistent:
            found.append(f"link {name!r} has a physically inconsistent inertia, and therefore no ellipsoid")
            continue
        squares, axes = np.linalg.eigh(ellipsoid.shape)
        axes[:, 0] *= np.sign(np.linalg.det(axes))
        pose = np.eye(4)
        pose[:3, :3], pose[:3, 3] = axes, ellipsoid.centre
        a, b, c = np.sqrt(np.maximum(squares, 0.0)).tolist()
        surface = triangles.ellipsoid((a, b, c))
        colour = (*_rgb(_LINKS[i % len(_LINKS)]), 0.85 if i not in dressed else 0.5)
        parts.append(Part(f"{name}/inertia", "inertia", i, *_placed(surface, pose), colour, i not in dressed))
    return Scene(chain, tuple(parts), tuple(found))


def positions_at(
    chain: Chain, t: Float[np.ndarray, " N"], q: Float[np.ndarray, "N nq"], times: Float[np.ndarray, " M"]
) -> Float[np.ndarray, "M nq"]:
    """Positions of a sampled motion at other times [s], interpolated linearly, or along screws for quaternion joints."""
    times = np.clip(times, t[0], t[-1])
    k = np.clip(np.searchsorted(t, times, side="right") - 1, 0, len(t) - 2)
    share = (times - t[k]) / (t[k + 1] - t[k])
    if chain.nq == chain.nv:
        return q[k] + share[:, None] * (q[k + 1] - q[k])
    return np.asarray(_between(chain, *(jnp.asarray(x, chain.dtype) for x in (q[k], q[k + 1], share))), float)


@jax.jit
def _between(chain: Chain, q0: Array, q1: Array, share: Array) -> Array:
    return jax.vmap(lambda a, b, s: integrate(chain, a, s * difference(chain, a, b)))(q0, q1, share)


def _surfaces(shape: Geometry) -> list[tuple[Surface, Colour | None]]:
    x, _, z = shape.size
    if shape.kind == "box":
        return [(triangles.box(shape.size), None)]
    if shape.kind == "cylinder":
        return [(triangles.cylinder(x, z), None)]
    if shape.kind == "capsule":
        return [(triangles.capsule(x, z), None)]
    if shape.kind in ("sphere", "ellipsoid"):
        return [(triangles.ellipsoid(shape.size), None)]
    if shape.triangles is None:
        assert shape.file is not None
        found = read_mesh(shape.file)
    else:
        found = [(shape.triangles, None)]
    surfaces = []
    for (vertices, faces), colour in found:
        mirrored = np.prod(shape.size) < 0  # for example a left hand that reuses the mesh of the right hand
        surfaces.append(((vertices * np.asarray(shape.size), faces[:, ::-1] if mirrored else faces), colour))
    return surfaces


def _placed(surface: Surface, pose: np.ndarray) -> Surface:
    vertices, faces = surface
    return vertices @ pose[:3, :3].T + pose[:3, 3], faces


def _rgb(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    return red, green, blue

"""Shapes on the links of a robot description: read from URDF and MuJoCo, and their inertias, for files without inertias."""

import dataclasses
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from ..errors import ModelError
from ..model.chain import Chain, frame_index, with_inertial_parameters
from ..spatial import solids
from .files import Node, attribute, number, numbers, only_child, read_bytes
from .mjcf import body_names, pose_matrix, unsupported
from .urdf import origin_pose, parse_robot

Surface = tuple[Float[np.ndarray, "V 3"], Int[np.ndarray, "F 3"]]
Colour = tuple[float, float, float, float]


def read_mesh(file: Path) -> list[tuple[Surface, Colour | None]]:
    """Read the surfaces in a mesh file (stl, obj, dae, glb, ply, ...), each with its colour or None."""
    try:
        import trimesh
    except ImportError as error:
        fault, remedy = "meshes require trimesh, which is not installed", f'pip install "jaxdyn[view]" ({error})'
        raise ModelError(fault, remedy) from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of the readers, which concern no user
            scene = trimesh.load_scene(file)
        meshes = [mesh for mesh in scene.dump() if isinstance(mesh, trimesh.Trimesh)]
    except Exception as error:  # trimesh's readers raise all kinds of exceptions
        raise ModelError(f"{file}: the mesh cannot be read: {type(error).__name__}: {error}") from None
    if not meshes:
        raise ModelError(f"{file}: the mesh contains no triangles")
    return [((np.asarray(m.vertices, float), np.asarray(m.faces, int)), _mesh_colour(m)) for m in meshes]


def _mesh_colour(mesh) -> Colour | None:
    """Return the main colour of a mesh, or None if the file specifies none."""
    visual = mesh.visual
    if not getattr(visual, "defined", False):
        return None
    material = getattr(visual, "material", None)
    rgba = visual.main_color if material is None else material.main_color
    return _clipped(np.asarray(rgba, float)[:4] / 255)


Kind = Literal["box", "cylinder", "capsule", "sphere", "ellipsoid", "mesh", "plane", "height_field"]


@dataclasses.dataclass(frozen=True, eq=False)
class Geometry:
    """A shape that is fixed to a link.

    Attributes:
        kind: box, cylinder, capsule, sphere, ellipsoid, mesh, plane or height_field; a plane stands for the half-space z < 0 of
            its frame, a height field for all that is below its heights.
        pose: pose of the shape's frame in the link frame [m]. Except for meshes, the origin is the centre of the shape; the
            axis of a cylinder or capsule is z.
        size: edge lengths of a box [m]; (radius, radius, length) of a cylinder, or of a capsule without its caps [m];
            (radius, radius, radius) of a sphere [m]; semi-axes of an ellipsoid [m]; scale factors of a mesh along x, y, z;
            edge lengths of the grid of a height field, and 0 [m]; not used for a plane.
        colour: red, green, blue and opacity, each from 0 to 1; None if the file does not specify a colour.
        file: mesh file; None for other shapes and for a mesh held in `triangles`.
        triangles: vertices in the shape's frame [m] and faces of a mesh held in memory; otherwise None.
        heights: z of a height field at the points (i, j) of a regular grid [m], where i counts along x and j along y; otherwise
            None.
    """

    link: str
    kind: Kind
    pose: Float[np.ndarray, "4 4"]
    size: tuple[float, float, float]
    colour: Colour | None = None
    file: Path | None = None
    triangles: Surface | None = None
    heights: Float[np.ndarray, "I J"] | None = None


def with_inertias_of_shapes(
    chain: Chain, shapes: Sequence[Geometry], density: float, *, keep_given: bool = True
) -> Chain:
    """Return the chain with link inertias computed from shapes, which are treated as solids of uniform density [kg/m^3].

    Use this function for robot descriptions without `<inertial>`. Example:
    `with_inertias_of_shapes(load(path, ignore_inertials=True), read_geometry(path, collision=True)[0], 1000.0)`.
    Since real links are hollow and contain motors and gears, the result is only a first model and a prior for identification.

    The inertia of a shape on a fused link is added to the moving link that carries it, and shapes on the base are ignored. The
    inertias of several shapes on one link are summed, even if the shapes overlap. Meshes must be closed (see
    `spatial.solids.mesh`); reading mesh files requires trimesh.

    Args:
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
    if shape.kind in ("plane", "height_field"):
        raise ModelError(f"the {shape.kind.replace('_', ' ')} on link {shape.link!r} has no volume", "omit it")
    x, y, z = shape.size
    if shape.kind == "mesh":
        surfaces = [shape.triangles] if shape.triangles is not None else [s for s, _ in read_mesh(mesh_file(shape))]
        scale = np.ones(3) if shape.triangles is not None else np.array(shape.size)
        bodies = [np.asarray(solids.mesh(vertices * scale, faces, density, pose)) for vertices, faces in surfaces]
        if not np.isfinite(bodies).all():
            fault = f"the mesh of link {shape.link!r} does not enclose a volume, so its mass is undefined"
            raise ModelError(fault, "close the mesh")
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


def mesh_file(shape: Geometry) -> Path:
    if shape.file is None:
        raise ModelError(f"the mesh of link {shape.link!r} has neither a file nor triangles")
    return shape.file


_GREY = (0.7, 0.7, 0.7, 1.0)


def read_urdf_geometry(
    path: str | os.PathLike[str], collision: bool, packages: Mapping[str, str | os.PathLike[str]] | None = None
) -> tuple[tuple[Geometry, ...], tuple[str, ...]]:
    """Read the `<visual>` or `<collision>` shapes of all links in a URDF file, with notes on shapes that cannot be drawn."""
    robot = parse_robot(read_bytes(path), os.fspath(path))
    named = [(node.get("name"), node.find("color")) for node in robot.document.root.iter("material")]
    palette = {name: _rgba(node) for name, node in named if name and node is not None}  # type: ignore[arg-type]
    shapes: list[Geometry] = []
    notes: list[str] = []
    for name, link in robot.links.items():
        for node in link.node.findall("collision" if collision else "visual"):
            shape, note = _shape(node, name, Path(path), packages or {})  # type: ignore[arg-type]
            if note:
                notes.append(note)
            if shape is not None:
                shapes.append(dataclasses.replace(shape, colour=_colour(node, palette)))  # type: ignore[arg-type]
    return tuple(shapes), tuple(notes)


def _shape(
    node: Node, link: str, urdf: Path, packages: Mapping[str, str | os.PathLike[str]]
) -> tuple[Geometry | None, str | None]:
    label = f"the {node.tag} of link {link!r}"
    geometry = only_child(node, "geometry", label)
    tags = () if geometry is None else geometry
    inside = [child for child in tags if isinstance(child.tag, str) and not child.tag.startswith("xacro:")]
    if len(inside) != 1:
        return None, f"{node.where}: {label} has {len(inside)} shapes instead of one; omitted"
    shape: Node = inside[0]  # type: ignore[assignment]
    pose, file = origin_pose(node, label), None
    if shape.tag in ("box", "mesh"):
        box = shape.tag == "box"
        size = numbers(shape, "size" if box else "scale", 3, label, None if box else (1.0, 1.0, 1.0))
    elif shape.tag in ("cylinder", "capsule", "sphere"):
        radius = number(shape, "radius", label)
        size = [radius, radius, radius if shape.tag == "sphere" else number(shape, "length", label)]
    else:
        return None, f"{shape.where}: {label} is a <{shape.tag}>, which is not a URDF shape; omitted"
    if shape.tag == "mesh":
        name = attribute(shape, "filename", label)
        file = find_mesh(name, urdf, packages)
        if file is None:
            return None, f"{shape.where}: the mesh file {name} was not found; {label} is omitted"
    return Geometry(link, shape.tag, pose, (size[0], size[1], size[2]), None, file), None  # type: ignore[arg-type]


def find_mesh(name: str, urdf: Path, packages: Mapping[str, str | os.PathLike[str]]) -> Path | None:
    """Find a mesh file by its name in a URDF; None if it is missing. The search paths are those of `read_geometry`."""
    scheme, mark, rest = name.partition("://")
    folder = urdf.absolute().parent
    if not mark or len(scheme) == 1:
        candidates = [folder / name]
    elif scheme == "file":
        candidates = [folder / rest]
    elif scheme in ("package", "model"):
        package, _, inside = rest.partition("/")
        candidates = [place / inside for place in _places(package, folder, packages)]
    else:
        candidates = []
    return next((path for path in candidates if path.is_file()), None)


def _places(package: str, folder: Path, packages: Mapping[str, str | os.PathLike[str]]) -> Iterator[Path]:
    """Iterate over the candidate folders of a package, in the order of the search."""
    if package in packages:
        yield Path(packages[package])
    for above in (folder, *folder.parents):
        if above.name == package:
            yield above
        yield above / package
    for root in filter(None, os.environ.get("ROS_PACKAGE_PATH", "").split(os.pathsep)):
        yield Path(root) if Path(root).name == package else Path(root) / package
    for root in filter(None, os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)):
        yield Path(root) / "share" / package


def _colour(node: Node, palette: Mapping[str, Colour]) -> Colour | None:
    material = node.find("material")
    if material is None:
        return None
    colour = material.find("color")
    return palette.get(material.get("name", "")) if colour is None else _rgba(colour)  # type: ignore[arg-type]


def _rgba(node: Node) -> Colour:
    return _clipped(numbers(node, "rgba", 4, "a material", _GREY))


def _clipped(rgba: Sequence[float] | Float[np.ndarray, "4"]) -> Colour:
    red, green, blue, opacity = (float(x) for x in np.clip(rgba, 0.0, 1.0))
    return red, green, blue, opacity


_IN_MUJOCO = {"height_field": "HFIELD"}
_SHOWN = 3  # groups 0, 1 and 2, which MuJoCo's viewer shows by default
_DEFAULT = (0.5, 0.5, 0.5, 1.0)  # default rgba of a geom, which is replaced by the colour of its material, if any


def geometry_from_mujoco(model: Any, *, collision: bool = False) -> tuple[tuple[Geometry, ...], tuple[str, ...]]:
    """Return the shapes of all bodies of a compiled MuJoCo model (`mujoco.MjModel`), and notes on omitted parts.

    The shapes are the visible geoms in groups 0 to 2, which MuJoCo's viewer shows by default, in the colour of the geom, or
    of its material if the geom has the default colour; textures are not read. Planes are omitted, since the viewer draws its
    own ground. A note states that equality constraints are not enforced.

    Args:
        collision: return instead the geoms that can be in contact (contype or conaffinity is not 0, or an explicit contact
            pair names them), in any group, including planes.

    Source: MuJoCo's XML reference (mujoco.readthedocs.io, body/geom).
    """
    shapes, notes = geoms(model, collision)
    if "equality" in (acting := unsupported(model)):
        notes.append(f"{acting['equality']} are not enforced: positions are shown as given")
    return tuple(shapes.values()), tuple(notes)


def geoms(model: Any, collision: bool) -> tuple[dict[int, Geometry], list[str]]:
    """The shapes of `geometry_from_mujoco` by MuJoCo's index of the geom, and notes on those that are omitted."""
    import mujoco

    package: Any = mujoco
    of = package.mjtGeom
    names = body_names(model)
    kinds = {int(getattr(of, f"mjGEOM_{_IN_MUJOCO.get(kind, kind.upper())}")): kind for kind in get_args(Kind)}
    paired = {int(g) for g in (*model.pair_geom1, *model.pair_geom2)}
    shapes: dict[int, Geometry] = {}
    notes: list[str] = []
    for g in range(model.ngeom):
        colour, kind = _geom_colour(model, g), kinds.get(int(model.geom_type[g]))
        touches = bool(model.geom_contype[g] or model.geom_conaffinity[g]) or g in paired
        drawn = int(model.geom_group[g]) < _SHOWN and colour[3] > 0 and kind != "plane"
        if not (touches if collision else drawn):
            continue
        link = names[int(model.geom_bodyid[g])]
        if kind is None:
            name = model.geom(g).name or f"number {g}"
            what = package.mjtGeom(int(model.geom_type[g])).name.removeprefix("mjGEOM_").lower()
            notes.append(f"geom {name} of body {link!r} ({what}) is no shape that can be read; omitted")
            continue
        pose, data = pose_matrix(model.geom_pos[g], model.geom_quat[g]), int(model.geom_dataid[g])
        triangles = _triangles(model, data) if kind == "mesh" else None
        heights = _heights(model, data) if kind == "height_field" else None
        shapes[g] = Geometry(link, kind, pose, _size(kind, model.geom_size[g]), colour, None, triangles, heights)
    return shapes, notes


def _size(kind: Kind, size: Float[np.ndarray, "3"]) -> tuple[float, float, float]:
    """Convert MuJoCo's half sizes to the size of a shape as in `Geometry`."""
    x, y, z = (float(s) for s in size)
    sizes = {"box": (2 * x, 2 * y, 2 * z), "sphere": (x, x, x), "ellipsoid": (x, y, z), "mesh": (1.0, 1.0, 1.0)}
    sizes["height_field"] = 2 * x, 2 * y, 0.0
    return sizes.get(kind, (x, x, 2 * y))


def _triangles(model: Any, mesh: int) -> tuple[np.ndarray, np.ndarray]:
    """Vertices and faces of a mesh in its geom's frame: the origin is the centre of mass, the axes are principal axes."""
    first, count = int(model.mesh_vertadr[mesh]), int(model.mesh_vertnum[mesh])
    face, faces = int(model.mesh_faceadr[mesh]), int(model.mesh_facenum[mesh])
    return np.array(model.mesh_vert[first : first + count], float), np.array(model.mesh_face[face : face + faces], int)


def _heights(model: Any, field: int) -> Float[np.ndarray, "I J"]:
    """Heights of a height field, of which MuJoCo keeps rows along x, one for each y, in multiples of the elevation."""
    rows, columns, first = (int(x[field]) for x in (model.hfield_nrow, model.hfield_ncol, model.hfield_adr))
    values = np.array(model.hfield_data[first : first + rows * columns], float)
    return values.reshape(rows, columns).T * float(model.hfield_size[field][2])


def _geom_colour(model: Any, geom: int) -> Colour:
    rgba, material = model.geom_rgba[geom], int(model.geom_matid[geom])
    if material >= 0 and np.allclose(rgba, _DEFAULT):
        rgba = model.mat_rgba[material]
    return _clipped(rgba)

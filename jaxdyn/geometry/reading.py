"""Shapes from the geometry of robot descriptions (URDF, MJCF), and from obstacles in the surroundings."""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..errors import ModelError
from ..io.files import read_bytes
from ..io.loading import MJCF, format_of, read_geometry
from ..io.mjcf import body_names, compile_mjcf, contact_filters
from ..io.shapes import Geometry, geoms, mesh_file, read_mesh
from ..io.urdf import fresh, parse_robot
from ..model.build import pose_of
from ..model.chain import Chain, frame_index
from ..spatial.components import Values
from .cores import perpendicular
from .enclosing import enclosed_volume, enclosing_capsule, enclosing_hull
from .pairs import ADJACENT, SAMPLES, Pair, candidates, choose_pairs, description_links, nearest_above, read_srdf, sift
from .shapes import Fixed, Kind, Shapes, with_pairs

Enclosing = Literal["hull", "capsule"]
VERTICES = 64  # of a hull: its volume then exceeds that of the convex hull of usual meshes by 8 % (median)


def read(
    path: str | os.PathLike[str],
    chain: Chain,
    *,
    visual: bool = False,
    mesh: Enclosing = "hull",
    vertices: int = VERTICES,
    packages: Mapping[str, str | os.PathLike[str]] | None = None,
    srdf: str | os.PathLike[str] | None = None,
    samples: int = SAMPLES,
) -> Shapes:
    """Read the collision shapes of a robot from its URDF or MJCF file, and choose the pairs that must not touch.

    Shapes and meshes become convex cores as in `make_shapes`, and pairs are chosen as in `choose_pairs`, where neighbours are
    the links that a joint connects in the file, also across links without shapes. From an MJCF file, the shapes are those of
    `io.geometry_from_mujoco`; MuJoCo's own rules decide which pairs are candidates: contype and conaffinity, `<exclude>`,
    and no pair on a body and its parent (unless the parent is fixed to the world). Explicit contact pairs are always kept.
    With `visual`, contype and conaffinity are not used. Many MJCF files rule out all pairs within a robot, to save time;
    `choose_pairs(chain, shapes)` then chooses among all pairs.

    Shapes on links that the chain lacks (beyond its `tip`) are omitted; `Shapes.notes` names them.

    Args:
        chain: the robot, loaded from the same file.
        visual: read the visual instead of the collision shapes.
        mesh: what encloses each mesh file, or each mesh of an MJCF file: a convex hull, or a capsule (see `make_shapes`).
        vertices: largest number of vertices of a hull.
        packages: URDF only: folders of ROS packages by name (see `io.read_geometry`).
        srdf: file with pairs to leave out (see `read_srdf`).
        samples: number of configurations in which distances are tested.

    Raises:
        ModelError: the file cannot be read, or has no shapes on links of this chain; a shape of a URDF cannot be read, for
            example because its mesh file is not found; or trimesh, for mesh files, or MuJoCo is not installed.
    """
    excluded = read_srdf(srdf) if srdf is not None else ()
    if format_of(read_bytes(path)) is MJCF:
        if packages:
            raise ModelError("packages= is for URDF files, which this is not; omit it", place=path)
        return _from_mujoco(compile_mjcf(path=path), path, chain, visual, (mesh, vertices), excluded, samples)
    geometries, faults = read_geometry(path, collision=not visual, packages=packages)
    if faults:
        fault = "; ".join(faults[:3]) + (f"; and {len(faults) - 3} more" if len(faults) > 3 else "")
        raise ModelError(
            f"shapes cannot be read, so that others would be incomplete: {fault}", "pass packages={'NAME': FOLDER}"
        )
    own, notes = _on_links(chain, dict(enumerate(geometries)), path, visual)
    shapes = _with_notes(_made(chain, _with_capsules(own.values()), mesh, vertices), notes)
    robot = parse_robot(read_bytes(path), os.fspath(path))
    near = nearest_above({joint.child: joint.parent for joint in robot.outward}, {g.link for g in geometries})
    return choose_pairs(chain, shapes, disabled=excluded, neighbours=near, samples=samples)


def make_shapes(
    chain: Chain,
    geometries: Sequence[Geometry],
    *,
    mesh: Enclosing = "hull",
    vertices: int = VERTICES,
    pairs: Sequence[tuple[int | str, int | str]] | None = None,
) -> Shapes:
    """Shapes on the links of a chain, from geometry that `io.read_geometry` returned or that was written by hand.

    Links that are fused with others by fixed joints carry their shapes along. All shapes but meshes are exact. A cylinder whose
    ends are the centres of two spheres of its radius (to 0.1 % of it), on the same link, is one capsule, since URDF has no
    capsules.

    A mesh is enclosed by the convex hull of at most `vertices` of its vertices. If it has more, the hull is inflated by the
    distance of the farthest vertex left out, so that it contains the mesh; the default of 64 makes the convex hulls of meshes
    of industrial and legged robots larger by 8 % (median), 16 by 48 % and 32 by 19 %. With `mesh="capsule"`, a small capsule
    encloses the mesh. `Shapes.notes` states by which factor each exceeds the volume of its mesh.

    Args:
        pairs: pairs of shapes whose distances are computed, as indices or names. None: those of `choose_pairs`.

    Raises:
        ModelError: a shape is on an unknown link or has a negative size, or a mesh cannot be read.
    """
    shapes = _made(chain, _with_capsules(geometries), mesh, vertices)
    return choose_pairs(chain, shapes) if pairs is None else with_pairs(shapes, pairs)


def with_environment(
    chain: Chain,
    shapes: Shapes,
    environment: Sequence[Geometry] | str | os.PathLike[str],
    *,
    mesh: Enclosing = "hull",
    vertices: int = VERTICES,
    packages: Mapping[str, str | os.PathLike[str]] | None = None,
) -> Shapes:
    """The shapes of a robot with obstacles fixed to its base, and all pairs of an obstacle and a shape on a moving link.

    Args:
        environment: obstacles, whose `link` is their name and whose `pose` is that in the base frame; or a URDF file whose
            joints are all fixed, and whose root link coincides with the base: its links are the obstacles.
        mesh: what encloses each mesh, as in `read`.
        vertices: largest number of vertices of a hull.
        packages: folders of ROS packages by name.

    Raises:
        ModelError: a file has a joint that is not fixed, or no collision shapes; or an obstacle cannot be read.
    """
    if isinstance(environment, str | os.PathLike):
        environment = _obstacles(environment, packages)
    obstacles = _made(chain, _with_capsules(environment), mesh, vertices, on_base=True)
    taken, m = {*shapes.names}, len(shapes.kinds)
    names = tuple(fresh(name, taken) for name in obstacles.names)
    moving = [k for k, link in enumerate(shapes.links) if link >= 0]
    join = lambda name: jnp.concatenate([getattr(x, name).astype(shapes.pose.dtype) for x in (shapes, obstacles)])
    fixed = Fixed(
        shapes.kinds + obstacles.kinds,
        shapes.links + obstacles.links,
        shapes.names + names,
        (*shapes.pairs, *((a, b) for a in moving for b in range(m, m + len(names)))),
        shapes.left_out,
        shapes.notes + obstacles.notes,
    )
    hulls, fields = (*shapes.vertices, *obstacles.vertices), (*shapes.heights, *obstacles.heights)
    return Shapes(join("pose"), join("size"), join("radius"), hulls, fixed, fields)


def capsule(link: str, start: Values, end: Values, radius: float) -> Geometry:
    """A capsule between two points of a link's frame, the centres of its caps [m], for `make_shapes` or `with_environment`."""
    first, last = np.asarray(start, float), np.asarray(end, float)
    along = last - first
    length = float(np.linalg.norm(along))
    z = along / length if length > 0 else np.array([0.0, 0.0, 1.0])
    x = np.array(perpendicular((z[0], z[1], z[2])), float)
    pose = pose_of(np.stack([x, np.cross(z, x), z], axis=1), (first + last) / 2)
    return Geometry(link, "capsule", pose, (radius, radius, length))


def sphere(link: str, radius: float = 0.0, centre: Values = (0.0, 0.0, 0.0)) -> Geometry:
    """A sphere about a point of a link's or frame's own frame [m], for `make_shapes` or `with_environment`."""
    return Geometry(link, "sphere", pose_of(translation=centre), (radius, radius, radius))


def floor(height: float = 0.0) -> Geometry:
    """A horizontal floor: the half-space below a height in the base frame [m], for `with_environment`."""
    return Geometry("floor", "plane", pose_of(translation=(0.0, 0.0, height)), (0.0, 0.0, 0.0))


def height_field(heights: Values, extent: Values, centre: Values = (0.0, 0.0, 0.0), name: str = "terrain") -> Geometry:
    """Uneven ground below a surface of given heights, for `with_environment`, or for `make_shapes` with the name of a link.

    `heights[i, j]` is z at the point (i, j) of a regular grid [m], of which i counts along x and j along y. The grid has the
    `extent` along x and y [m], about the `centre` in the base frame [m], to which heights are relative. Triangles span its
    cells; beyond its border, the surface continues level. For steps or walls, add boxes.
    """
    x, y = np.asarray(extent, float).tolist()
    return Geometry(name, "height_field", pose_of(translation=centre), (x, y, 0.0), heights=np.asarray(heights, float))


class _Core(NamedTuple):
    """A shape in its link's frame, and a remark about it."""

    kind: Kind
    pose: Float[np.ndarray, "4 4"]
    size: Float[np.ndarray, "3"]
    radius: float
    vertices: Float[np.ndarray, "V 3"] | None = None
    remark: str = ""
    heights: Float[np.ndarray, "I J"] | None = None


def _made(chain: Chain, geometries: Iterable[Geometry], mesh: Enclosing, most: int, *, on_base: bool = False) -> Shapes:
    """Shapes without pairs, in the order of the geometries; `on_base` for obstacles, whose links are not those of the chain."""
    if mesh not in ("hull", "capsule") or most < 4:
        raise ModelError(f"mesh={mesh!r}, vertices={most}", 'pass mesh="hull" or "capsule", and at least 4 vertices')
    cores, links, names, notes, counts = [], [], [], [], {}
    enclosed: dict[Any, _Core] = {}  # the same mesh is often used several times
    for shape in geometries:
        link, frame = (-1, None) if on_base else frame_index(chain, shape.link)
        carrier = np.eye(4) if frame is None else np.asarray(chain.frame_poses[frame], float)
        key = (shape.file, shape.size) if shape.triangles is None else id(shape.triangles)
        core = enclosed.get(key) if shape.kind == "mesh" else _primitive(shape)
        if core is None:
            core = enclosed[key] = _enclosed(shape, mesh, most)
        counts[shape.link] = counts.get(shape.link, 0) + 1
        names.append(shape.link if counts[shape.link] == 1 else f"{shape.link}/{counts[shape.link]}")
        cores.append(core._replace(pose=carrier @ np.asarray(shape.pose, float) @ core.pose))
        links.append(link)
        notes += [f"{names[-1]}: {core.remark}"] if core.remark else []
    as_leaf = lambda values, *shape: jnp.asarray(np.reshape(values, (len(cores), *shape)), chain.dtype)
    return Shapes(
        as_leaf([core.pose for core in cores], 4, 4),
        as_leaf([core.size for core in cores], 3),
        as_leaf([core.radius for core in cores]),
        tuple(jnp.asarray(core.vertices, chain.dtype) for core in cores if core.vertices is not None),
        Fixed(tuple(core.kind for core in cores), tuple(links), tuple(names), (), (), tuple(notes)),
        tuple(jnp.asarray(core.heights, chain.dtype) for core in cores if core.heights is not None),
    )


def _primitive(shape: Geometry) -> _Core:
    """A shape other than a mesh as core and radius, in its own frame."""
    x, y, z = size = np.asarray(shape.size, float)
    if not (size >= 0).all():
        raise ModelError(
            f"the {shape.kind} on link {shape.link!r} has the size {shape.size}", "sizes cannot be negative"
        )
    heights = None
    if shape.kind == "height_field":
        heights = np.asarray(shape.heights, float)
        if heights.ndim != 2 or min(heights.shape) < 2 or not np.isfinite(heights).all() or not min(x, y) > 0:
            fault = (
                f"the height field {shape.link!r} has heights of shape {heights.shape} and the extent {x:g} x {y:g} m"
            )
            raise ModelError(fault, "pass at least 2 x 2 finite heights, and an extent that is not zero")
    sizes = {"capsule": (0, 0, z / 2), "cylinder": (x, x, z / 2), "box": size / 2, "ellipsoid": (x, y, z)}
    sizes["height_field"] = x / 2, y / 2, 0
    radius = x if shape.kind in ("sphere", "capsule") else 0.0
    half = np.array(sizes.get(shape.kind, (0, 0, 0)), float)
    return _Core(shape.kind, np.eye(4), half, radius, heights=heights)  # type: ignore[arg-type]


def _enclosed(shape: Geometry, mesh: Enclosing, most: int) -> _Core:
    """The hull or capsule of a mesh in its own frame; a remark states how much it exceeds the mesh."""
    surfaces = [shape.triangles] if shape.triangles is not None else [s for s, _ in read_mesh(mesh_file(shape))]
    scale = np.asarray(shape.size)
    surfaces = [(np.asarray(vertices, float) * scale, faces) for vertices, faces in surfaces]
    points = np.concatenate([vertices[np.unique(faces)] for vertices, faces in surfaces])
    if not len(points) or not np.isfinite(points).all():
        raise ModelError(
            f"the mesh of link {shape.link!r} has no vertices, or one that is not finite", "repair the mesh"
        )
    found = enclosing_hull(points, most) if mesh == "hull" else enclosing_capsule(points)
    volumes = [enclosed_volume(*surface) for surface in surfaces]
    solid = None if None in volumes else abs(sum(volumes))  # type: ignore[arg-type]
    times = f"{found.volume / found.convex_volume:.3g} times the volume of the convex hull"
    times += f", {found.volume / solid:.3g} times that of the mesh" if solid else "; the mesh is not closed"
    inflated = f" inflated by {1000 * found.radius:.2g} mm" if found.radius else ""
    kind = "capsule" if found.vertices is None else f"hull of {len(found.vertices)} vertices{inflated}"
    return _Core(mesh, found.pose, found.size, found.radius, found.vertices, f"{kind}, {times}")


def _with_capsules(geometries: Iterable[Geometry]) -> list[Geometry]:
    """The geometries, with each cylinder that has spheres of its radius at both ends replaced by a capsule, as are these."""
    found, gone = list(geometries), set()
    spheres = {k: shape for k, shape in enumerate(found) if shape.kind == "sphere"}
    for k, shape in enumerate(found):
        if shape.kind != "cylinder":
            continue
        radius, half = shape.size[0], np.asarray(shape.pose)[:3, 2] * shape.size[2] / 2
        at = lambda centre, shape=shape, radius=radius: {
            j
            for j, x in spheres.items()
            if x.link == shape.link
            and np.allclose([*x.pose[:3, 3], x.size[0]], [*centre, radius], rtol=0, atol=1e-3 * radius)
        }
        ends = [at(shape.pose[:3, 3] + sign * half) for sign in (-1, 1)]
        if all(ends):
            found[k] = dataclasses.replace(shape, kind="capsule")
            gone |= ends[0] | ends[1]
    return [shape for k, shape in enumerate(found) if k not in gone]


def _with_notes(shapes: Shapes, notes: Sequence[str]) -> Shapes:
    return dataclasses.replace(shapes, fixed=dataclasses.replace(shapes.fixed, notes=(*notes, *shapes.notes)))


def _on_links(
    chain: Chain, found: Mapping[int, Geometry], path: str | os.PathLike[str], visual: bool
) -> tuple[dict[int, Geometry], list[str]]:
    """The shapes on links that the chain has, and a note on the others."""
    if not found:
        remedy = "add some" if visual else "pass visual=True to use the visual ones"
        raise ModelError(f"the file has no {'visual' if visual else 'collision'} shapes", remedy, place=path)
    known = {*chain.link_names, *chain.frame_names, chain.topology.base_name}
    missing = sorted({shape.link for shape in found.values()} - known)
    own = {k: shape for k, shape in found.items() if shape.link in known}
    if not own:
        fault = f"the chain has none of the links with shapes ({', '.join(missing)})"
        raise ModelError(fault, "load the chain from the same file", place=path)
    return own, [f"omitted the shapes of links that the chain lacks: {', '.join(missing)}"] if missing else []


def _obstacles(
    path: str | os.PathLike[str], packages: Mapping[str, str | os.PathLike[str]] | None
) -> tuple[Geometry, ...]:
    """The collision shapes of a URDF whose joints are all fixed, in the frame of its root link."""
    robot = parse_robot(read_bytes(path), os.fspath(path))
    poses = {robot.root: np.eye(4)}
    for joint in robot.outward:
        if joint.kind != "fixed":
            fault = f"joint {joint.name!r} is {joint.kind}, but obstacles do not move"
            raise ModelError(fault, "make it fixed", place=path)
        poses[joint.child] = poses[joint.parent] @ joint.origin
    geometries, faults = read_geometry(path, collision=True, packages=packages)
    if faults or not geometries:
        raise ModelError(
            faults[0] if faults else "the file has no collision shapes", "add them or repair them", place=path
        )
    return tuple(dataclasses.replace(shape, pose=poses[shape.link] @ shape.pose) for shape in geometries)


def _from_mujoco(
    model: Any, path: Any, chain: Chain, visual: bool, enclosing: tuple[Enclosing, int], excluded: Any, samples: int
) -> Shapes:
    """The shapes of a compiled model, with the pairs that MuJoCo tests, less those that `choose_pairs` leaves out."""
    found, omitted = geoms(model, collision=not visual)
    own, notes = _on_links(chain, found, path, visual)
    shapes = _with_notes(_made(chain, own.values(), *enclosing), [*omitted, *notes])
    index = {g: k for k, g in enumerate(own)}
    paired = zip(model.pair_geom1.tolist(), model.pair_geom2.tolist(), strict=True)
    kept = {tuple(sorted((index[g], index[h]))) for g, h in paired if {g, h} <= index.keys()}
    names = body_names(model)
    parents = {names[b]: names[p] for b, p in enumerate(model.body_parentid) if b and p}
    near = nearest_above(parents, {*description_links(shapes.names)})
    by_name = choose_pairs(chain, shapes, disabled=excluded, neighbours=near, samples=0)
    reasons = {(x.first, x.second): x.reason for x in by_name.left_out} | _filtered(model, list(own), shapes, visual)
    return sift(chain, shapes, {k: why for k, why in reasons.items() if k not in kept}, kept, samples=samples)


def _filtered(model: Any, geoms: list[int], shapes: Shapes, visual: bool) -> dict[Pair, str]:
    """The pairs of shapes, by index, that MuJoCo's filters of contacts rule out, and why."""
    filters, reasons = contact_filters(model, geoms), {}
    for pair in candidates(shapes):
        if filters.excluded[pair]:
            reasons[pair] = "<exclude> in the file"
        elif filters.parent[pair]:
            reasons[pair] = ADJACENT
        elif not visual and filters.masked[pair]:
            reasons[pair] = "contype and conaffinity in the file"
    return reasons

"""A robot as data for rendering: triangles fixed to its links, lines from joint to joint, a camera and a ground plane.

Also the limits of its coordinates, for sliders and plots.
"""

import dataclasses
import functools
from collections.abc import Container, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import ConvexHull

from ..dynamics import forward_kinematics
from ..errors import ModelError
from ..geometry import Shapes, closest_points
from ..geometry.pairs import description_links
from ..io.shapes import Colour, Geometry, Surface, mesh_file, read_mesh
from ..model.chain import Chain, coordinate_limits, coordinate_names, frame_index, layout, turning_joints
from ..model.configuration import neutral_configuration
from ..report.pictures import equivalent_ellipsoid
from ..spatial.inertia import pseudo_inertia


def slider_ranges(chain: Chain) -> list[tuple[str, int, float, float]]:
    """Name, entry of q, lower limit and upper limit of every coordinate that has a single entry in q and a nonzero range."""
    where, names = layout(chain), coordinate_names(chain)
    limits, sliding = coordinate_limits(chain), sliding_coordinates(chain)
    ranges = []
    for column, entry in zip(where.columns.tolist(), where.entries.tolist(), strict=True):
        free = 1.0 if sliding[column] else np.pi
        low, high = limits["lower"][column], limits["upper"][column]
        low, high = low if np.isfinite(low) else min(-free, high - free), high
        high = high if np.isfinite(high) else max(free, low + free)
        if high > low:
            ranges.append((names[column], entry, float(low), float(high)))
    return ranges


def start_configuration(chain: Chain) -> Float[np.ndarray, " nq"]:
    """The neutral configuration, clipped to the limits."""
    q = np.array(neutral_configuration(chain), float)
    for _, entry, low, high in slider_ranges(chain):
        q[entry] = np.clip(q[entry], low, high)
    return q


def sliding_coordinates(chain: Chain) -> Bool[np.ndarray, " nv"]:
    """Mask of the coordinates that are lengths [m], that is, those that move only prismatic joints."""
    sliding = ~turning_joints(chain)
    if chain.coupling is None:
        return sliding
    moves = np.asarray(chain.coupling.matrix) != 0
    return moves.any(axis=0) & ~moves[~sliding].any(axis=0)


def effort_limits(chain: Chain) -> Float[np.ndarray, " nv"]:
    """Largest |tau| of each coordinate [N m or N], infinite if unknown, for example if a coordinate moves several joints."""
    limits = np.asarray(chain.limits.effort, float)
    if chain.coupling is None:
        return limits
    matrix = np.asarray(chain.coupling.matrix, float)
    own = np.abs(matrix).argmax(axis=0)
    plain = ((matrix != 0).sum(axis=0) == 1) & ((matrix[own] != 0).sum(axis=1) == 1)
    return np.where(plain, limits[own] * np.abs(matrix).max(axis=0), np.inf)


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
    """The surface of revolution about z of an outline, given as points (radius, height) from the lowest to the highest."""
    angle = np.linspace(0.0, 2 * np.pi, around, endpoint=False)
    rings = outline[1:-1]
    radius, height = rings[:, :1], np.broadcast_to(rings[:, 1:], (len(rings), around))
    vertices = np.stack([radius * np.cos(angle), radius * np.sin(angle), height], axis=2).reshape(-1, 3)
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


def hull(points: Float[np.ndarray, "k 3"], radius: float = 0.0) -> Surface:
    """The convex hull of points, inflated by a radius."""
    if radius > 0:
        points = (points[:, None] + radius * _unit_sphere(12)[0]).reshape(-1, 3)
    found = ConvexHull(points, qhull_options="QJ")
    corners, faces = np.unique(found.simplices, return_inverse=True)
    a, b, c = (points[found.simplices[:, k]] for k in range(3))
    inward = (np.cross(b - a, c - a) * found.equations[:, :3]).sum(axis=1) < 0
    faces = faces.reshape(-1, 3)
    return points[corners], np.where(inward[:, None], faces[:, ::-1], faces)


def square(half: float) -> Surface:
    """A square in the plane z = 0, centred at the origin, seen from both sides."""
    corners = half * np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]], float)
    return corners, np.array([[0, 1, 2], [0, 2, 3]])


def terrain(heights: Float[np.ndarray, "I J"], extent: Sequence[float]) -> Surface:
    """The triangles of a height field over a grid of the given extent, centred at the origin."""
    x, y = (np.linspace(-e / 2, e / 2, n) for e, n in zip(extent, heights.shape, strict=True))
    vertices = np.stack([*np.meshgrid(x, y, indexing="ij"), heights], axis=-1).reshape(-1, 3)
    index = np.arange(heights.size).reshape(heights.shape)
    low, right, left, high = index[:-1, :-1], index[1:, :-1], index[:-1, 1:], index[1:, 1:]
    faces = [np.stack(corners, axis=-1).reshape(-1, 3) for corners in ((low, right, high), (low, high, left))]
    return vertices, np.concatenate(faces)


def creased(surface: Surface, angle: float = 0.6) -> tuple[Float[np.ndarray, "W 3"], Int[np.ndarray, "F 3"]]:
    """Split the vertices of a surface along edges at which it bends by more than an angle [rad]."""
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


_GREY: Colour = (0.75, 0.75, 0.77, 1.0)
_TRANSLUCENT, _AROUND = 0.5, 24  # opacity and resolution of convex shapes
_LINKS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#b07aa1", "#edc948", "#9c755f")


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """Triangles fixed to a link; `Scene` describes the fields."""

    name: str
    group: str
    link: int
    vertices: Float[np.ndarray, "V 3"]
    faces: Int[np.ndarray, "F 3"]
    colour: Colour
    shown: bool = True
    is_plane: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Scene:
    """A robot as parts that move with its links, and notes on omitted parts.

    A part is triangles fixed to a link: its `name` ("link/kind number"), `group` ("shape", of the description; "collision" or
    "surroundings", convex shapes; or "inertia", an ellipsoid), `link` (an index; -1 for the base), `vertices` in the link's
    frame [m], `faces` (three indices, anticlockwise as seen from outside) and `colour`, whether it is initially `shown`, and
    whether it is a square that stands for a plane. The convex `shapes` determine which points are nearest to each other.
    """

    chain: Chain
    parts: tuple[Part, ...]
    notes: tuple[str, ...] = ()
    shapes: Shapes | None = None

    def poses(self, q: Float[Array, "... nq"] | Float[np.ndarray, "... nq"]) -> Float[np.ndarray, "... m 4 4"]:
        """Poses in the world of the n links, followed by the base, for one or many configurations q: that of a part is
        `poses[part.link]`.
        """
        return link_poses(self.chain, np.asarray(q))

    def nearest(
        self, q: Float[Array, "rows nq"] | Float[np.ndarray, "rows nq"]
    ) -> tuple[Float[np.ndarray, "rows 2 3"], Float[np.ndarray, " rows"]] | None:
        """Closest points in the world of the nearest pair of shapes, and their distance [m], in each configuration; None
        without pairs of shapes.
        """
        if self.shapes is None or not self.shapes.pairs:
            return None
        ends, distance = _nearest(self.chain, self.shapes, jnp.asarray(q, self.chain.dtype))
        return np.asarray(ends, float), np.asarray(distance, float)

    @property
    def joints(self) -> tuple[tuple[int, int, np.ndarray], ...]:
        """Lines (link a, link b, point on b), each from the origin of link a to a point on link b, in b's frame [m].

        The first n lines lead from the parent of each link to the link. The others lead from links without children to their
        ends: the tip, or the end of the uniform rod with the same centre of mass and spread along this line.
        """
        return skeleton(self.chain)


@jax.jit
def _nearest(chain: Chain, shapes: Shapes, q: Array) -> tuple[Array, Array]:
    def one(q):
        found = closest_points(chain, shapes, q)
        k = jnp.argmin(found.distance)
        return jnp.stack([found.first[k], found.second[k]]), found.distance[k]

    return jax.lax.map(one, q)


def build_scene(
    chain: Chain, geometry: Sequence[Geometry] = (), notes: Sequence[str] = (), shapes: Shapes | None = None
) -> Scene:
    """Build a scene from a robot, with the shapes in its description and the inertia ellipsoids of its links.

    For every moving link with a mass, the scene contains the solid ellipsoid of uniform density that has the same mass, centre
    of mass and inertia; it is initially hidden if the link also has shapes. Shapes on links that are not part of the chain
    (beyond its `tip`) and planes are omitted, and so is a mesh that cannot be read, with a note.

    Args:
        chain: the robot; its inertias may differ from those of the description, for example after an identification.
        geometry: shapes returned by `read_geometry` for the description from which the chain was loaded.
        shapes: convex shapes of the robot and its surroundings (`geometry.read`, `geometry.with_environment`), drawn
            translucent; those of links with other shapes are initially hidden. Planes are drawn as squares.

    Raises:
        ModelError: a shape is a mesh, but trimesh is not installed.
    """
    parts: list[Part] = []
    found = list(notes)
    carried = {*chain.link_names, *chain.frame_names, chain.topology.base_name}
    for shape in geometry:
        if shape.link not in carried or shape.kind == "plane":
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
            parts.append(Part(name, "shape", link, *placed(surface, pose), colour))
    if shapes is not None:
        parts += _convex_parts(chain, shapes, {part.link for part in parts}, carried)
    dressed = {part.link for part in parts}
    for i, name in enumerate(chain.link_names):
        solid = equivalent_ellipsoid(np.asarray(chain.inertia[i], float))
        if solid is None:
            continue
        if not solid.consistent:
            found.append(f"link {name!r} has a physically inconsistent inertia, and therefore no ellipsoid")
            continue
        squares, axes = np.linalg.eigh(solid.shape)
        axes[:, 0] *= np.sign(np.linalg.det(axes))
        pose = np.eye(4)
        pose[:3, :3], pose[:3, 3] = axes, solid.centre
        a, b, c = np.sqrt(np.maximum(squares, 0.0)).tolist()
        surface = ellipsoid((a, b, c))
        colour = (*_rgb(_LINKS[i % len(_LINKS)]), 0.85 if i not in dressed else 0.5)
        parts.append(Part(f"{name}/inertia", "inertia", i, *placed(surface, pose), colour, i not in dressed))
    return Scene(chain, tuple(parts), tuple(found), shapes)


def _convex_parts(chain: Chain, shapes: Shapes, dressed: set[int], bodies: Container[str | None]) -> list[Part]:
    """Translucent parts for convex shapes, hidden on links that are `dressed` otherwise; planes are squares.

    Shapes that are named after one of the robot's `bodies` are its own, others are surroundings.
    """
    reach = max(float(np.linalg.norm(np.asarray(chain.translation), axis=1).sum()), 0.5)
    parts, hulls, fields = [], iter(shapes.vertices), iter(shapes.heights)
    described = zip(shapes.kinds, shapes.links, shapes.names, description_links(shapes.names), strict=True)
    for k, (kind, link, name, body) in enumerate(described):
        size, radius = np.asarray(shapes.size[k], float), float(shapes.radius[k])
        core = np.asarray(next(hulls), float) if kind == "hull" else None
        if kind == "height_field":
            surface = terrain(np.asarray(next(fields), float), (2 * size[:2]).tolist())
        else:
            surface = square(reach) if kind == "plane" else _convex_surface(kind, size, radius, core)
        colour = (*(_rgb(_LINKS[link % len(_LINKS)]) if link >= 0 else _GREY[:3]), _TRANSLUCENT)
        placement = placed(surface, np.asarray(shapes.pose[k], float))
        group = "collision" if body in bodies else "surroundings"
        shown = body not in bodies or link not in dressed
        parts.append(Part(f"{name}/{kind} {k}", group, link, *placement, colour, shown, kind == "plane"))
    return parts


def _convex_surface(
    kind: str, size: Float[np.ndarray, "3"], radius: float, vertices: Float[np.ndarray, "V 3"] | None
) -> Surface:
    """Surface of a convex core inflated by a radius, in the frame of the core (see `geometry.Shapes`)."""
    x, y, z = size.tolist()
    if kind in ("sphere", "capsule"):
        return capsule(radius, 2 * z, _AROUND) if z > 0 else ellipsoid((radius, radius, radius), _AROUND)
    if vertices is not None:
        return hull(vertices, radius)
    if kind == "box":
        surface = box((2 * x, 2 * y, 2 * z))
    else:
        surface = cylinder(x, 2 * z, _AROUND) if kind == "cylinder" else ellipsoid((x, y, z), _AROUND)
    return hull(surface[0], radius) if radius > 0 else surface


def skeleton(chain: Chain) -> tuple[tuple[int, int, np.ndarray], ...]:
    """Lines from the origin of each link's parent to the origin of the link, and from links without children to their ends.

    If the tip is a frame, it is the end of its link. Other ends are those of the uniform rods from the link's origin through
    its centre of mass that have the link's mass and moments along this line. If the centre of mass is at the origin, the end is
    a point on the joint's axis. The tip's line is the last one.
    """
    parents, tip = chain.topology.parents, chain.topology.tip_name
    lines = [(parent, i, np.zeros(3)) for i, parent in enumerate(parents)]
    last, frame = (-1, None) if tip is None else frame_index(chain, tip)
    leaves = [i for i in range(chain.n) if i not in parents]
    ends = {i: end if (end := _end(np.asarray(chain.inertia[i], float))).any() else _stub(chain, i) for i in leaves}
    if frame is not None:
        ends[last] = np.asarray(chain.frame_poses, float)[frame, :3, 3]
    lines += [(i, i, ends[i]) for i in sorted(ends, key=lambda i: i == last)]
    return tuple(lines)


def _stub(chain: Chain, i: int) -> Float[np.ndarray, "3"]:
    """A point on the axis of joint i, at a tenth of the length of the robot, or at a radius of gyration."""
    screw, pi = np.asarray(chain.screw[i], float), np.asarray(chain.inertia[i], float)
    length = 0.1 * float(np.linalg.norm(np.asarray(chain.translation, float), axis=1).sum())
    if length == 0:
        length = float(np.sqrt(pi[[4, 6, 9]].sum() / (2 * pi[0]))) if pi[0] > 0 else 0.1
    return length * (screw[:3] if screw[:3].any() else screw[3:])


def _end(pi: Float[np.ndarray, "10"]) -> Float[np.ndarray, "3"]:
    """End of the uniform rod of a link; zero if the centre of mass is at the link's origin."""
    mass, distance = pi[0], float(np.linalg.norm(pi[1:4]))
    if mass <= 0 or distance <= 1e-9 * mass:
        return np.zeros(3)
    along = pi[1:4] / distance
    spread = max(along @ pseudo_inertia(pi)[:3, :3] @ along / mass - (distance / mass) ** 2, 0.0)
    return (distance / mass + np.sqrt(3 * spread)) * along  # a uniform rod of length L has the spread L^2 / 12


def line_ends(
    poses: Float[np.ndarray, "... m 4 4"], lines: Sequence[tuple[int, int, np.ndarray]]
) -> Float[np.ndarray, "... k 2 3"]:
    """Both ends of every line in world coordinates [m], given poses from `link_poses`."""
    first = np.stack([poses[..., a, :3, 3] for a, _, _ in lines], axis=-2)
    second = np.stack([poses[..., b, :3, :3] @ point + poses[..., b, :3, 3] for _, b, point in lines], axis=-2)
    return np.stack([first, second], axis=-2)


def link_poses(chain: Chain, q: Float[np.ndarray, "... nq"]) -> Float[np.ndarray, "... m 4 4"]:
    """Poses of all links, followed by that of the base, in the world frame, for one or many configurations.

    Raises:
        ModelError: the number of columns of q differs from the number of the robot's positions.
    """
    if q.shape[-1:] != (chain.nq,):
        raise ModelError(f"q has shape {q.shape}, but this robot has {chain.nq} positions")
    rows = q.reshape(-1, chain.nq)
    poses = np.asarray(_poses(chain, jnp.asarray(rows, chain.dtype)), float)
    base = np.eye(4) if chain.base_pose is None else np.asarray(chain.base_pose, float)
    poses = np.concatenate([poses, np.broadcast_to(base, (len(rows), 1, 4, 4))], axis=1)
    return poses.reshape(*q.shape[:-1], chain.n + 1, 4, 4)


@jax.jit
def _poses(chain: Chain, q: Array) -> Array:
    return jax.lax.map(lambda x: forward_kinematics(chain, x), q)  # compiles in half the time of a batch


def _surfaces(shape: Geometry) -> list[tuple[Surface, Colour | None]]:
    x, _, z = shape.size
    if shape.kind in ("cylinder", "capsule"):
        return [((cylinder if shape.kind == "cylinder" else capsule)(x, z), None)]
    if shape.heights is not None:
        return [(terrain(shape.heights, shape.size[:2]), None)]
    if shape.kind != "mesh":
        return [((box if shape.kind == "box" else ellipsoid)(shape.size), None)]
    found = [(shape.triangles, None)] if shape.triangles is not None else read_mesh(mesh_file(shape))
    turn = -1 if np.prod(shape.size) < 0 else 1  # for example a left hand that reuses the mesh of the right hand
    return [((vertices * np.asarray(shape.size), faces[:, ::turn]), colour) for (vertices, faces), colour in found]


def placed(surface: Surface, pose: np.ndarray) -> Surface:
    """A surface in a frame with this pose."""
    vertices, faces = surface
    return vertices @ pose[:3, :3].T + pose[:3, 3], faces


def _rgb(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    return red, green, blue


FIELD_OF_VIEW = np.radians(40.0)
_FROM = np.array([1.6, -2.0, 1.1]) / np.linalg.norm([1.6, -2.0, 1.1])


class Framing(NamedTuple):
    """A camera and a ground plane in the world, at height 0 or at the robot's lowest point, whichever is lower."""

    up: Float[np.ndarray, "3"]  # direction opposite to gravity; z if there is no gravity
    turn: Float[np.ndarray, "3 3"]  # rotation that maps the z axis to `up`
    eye: Float[np.ndarray, "3"]
    target: Float[np.ndarray, "3"]
    ground: Float[np.ndarray, "3"]  # a point of the ground plane
    cell: float  # edge length of the grid squares
    radius: float  # radius of a ball about the target that contains the robot


def frame_scene(scene: Scene, q: Float[np.ndarray, "rows nq"], most: int = 40) -> Framing:
    """A camera that shows the whole robot in the given configurations, of which at most `most` are used."""
    gravity = np.asarray(scene.chain.gravity, float)
    size = np.linalg.norm(gravity)
    up = -gravity / size if size > 0 else np.array([0.0, 0.0, 1.0])
    turn = _turn_to(up)
    poses = scene.poses(q[:: -(-len(q) // most)])
    points = [line_ends(poses, scene.joints).reshape(-1, 3)]
    for part in scene.parts:
        if part.shown and not part.is_plane:
            pose = poses[:, part.link]
            ends = np.stack([part.vertices.min(axis=0), part.vertices.max(axis=0)])
            corners = np.stack(np.meshgrid(*ends.T, indexing="ij"), axis=-1).reshape(-1, 3)
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


def _round_number(value: float) -> float:
    """The largest number of the form 1, 2 or 5 times a power of ten that does not exceed a value."""
    power = 10.0 ** np.floor(np.log10(value))
    return float(power * max(k for k in (1, 2, 5) if k * power <= value * (1 + 1e-9)))

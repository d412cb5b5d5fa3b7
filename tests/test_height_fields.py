"""Distances from height fields against all of their triangles (trimesh), MuJoCo, planes and central differences."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
import trimesh

import jaxdyn
from jaxdyn import geometry
from jaxdyn.errors import ModelError, ModelWarning
from jaxdyn.io import Geometry

RNG = np.random.default_rng(0)
HEIGHTS, EXTENT, CENTRE = 0.4 * RNG.uniform(size=(13, 9)), (3.0, 2.0), (0.2, 0.1, -0.3)
FREE = jaxdyn.io.loads(
    """<robot name="ball"><link name="ball"><inertial><mass value="1"/>
    <inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link></robot>""",
    floating_base=True,
)


def on_terrain(shape, heights=HEIGHTS, extent=EXTENT, centre=CENTRE):
    shapes = geometry.make_shapes(FREE, [shape], pairs=[])
    return geometry.with_environment(FREE, shapes, [geometry.height_field(heights, extent, centre)])


def configurations(count, seed=1, reach=(2.5, 1.8, 0.6), offset=0.0):
    """Positions about and beyond the border of the grid, above and below the surface, with random orientations."""
    rng = np.random.default_rng(seed)
    q = np.concatenate([rng.uniform(-1, 1, (count, 3)) * reach + [0, 0, offset], rng.normal(size=(count, 4))], axis=1)
    q[:, 3:] /= np.linalg.norm(q[:, 3:], axis=1, keepdims=True)
    return q


def nearest(shapes, q, robot=FREE):
    found = jax.jit(jax.vmap(lambda q: geometry.closest_points(robot, shapes, q)))(q)
    return jax.tree.map(np.asarray, found)


def triangles(heights=HEIGHTS, extent=EXTENT, centre=CENTRE, beyond=10):
    """The triangles of the surface and of its continuation by some cells, (F, 3, 3)."""
    step = [e / (n - 1) for e, n in zip(extent, heights.shape, strict=True)]
    heights = np.pad(heights, beyond, mode="edge")
    x, y = (d * (np.arange(n) - (n - 1) / 2) for d, n in zip(step, heights.shape, strict=True))
    points = np.stack([*np.meshgrid(x, y, indexing="ij"), heights], axis=-1) + centre
    a, b, c, d = points[:-1, :-1], points[1:, :-1], points[:-1, 1:], points[1:, 1:]
    return np.concatenate([np.stack(corners, axis=2).reshape(-1, 3, 3) for corners in ((a, b, d), (a, d, c))])


def from_triangles(points, surface):
    """Distance of each point from a surface of triangles, negative below it."""
    found = []
    for x in points:
        closest = trimesh.triangles.closest_point(surface, np.repeat(x[None], len(surface), axis=0))
        found.append(np.linalg.norm(closest - x, axis=1).min())
    weights = trimesh.triangles.points_to_barycentric
    flat = surface * [1, 1, 0]
    heights = []
    for x in points:
        w = weights(flat, np.repeat(x[None] * [1, 1, 0], len(surface), axis=0))
        inside = int(np.argmax(w.min(axis=1)))
        heights.append(w[inside] @ surface[inside, :, 2])
    return np.array(found) * np.where(points[:, 2] >= heights, 1, -1)


@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.nightly)])
def test_a_sphere_has_its_exact_distance_from_all_triangles(dtype):
    shapes, q = on_terrain(geometry.sphere("ball", 0.05)), configurations(400)
    truth = from_triangles(q[:, :3], triangles()) - 0.05
    assert 50 < (truth < -0.05).sum() < 350
    found = nearest(*jax.tree.map(lambda x: jnp.asarray(x, dtype), (shapes, q, FREE)))
    assert found.distance.dtype == dtype
    tolerance = 1e-14 if dtype == "float64" else 2e-6
    np.testing.assert_allclose(found.distance[:, 0], truth, atol=tolerance)
    normal, d = found.normal[:, 0], found.distance[:, 0]
    np.testing.assert_allclose(np.linalg.norm(normal, axis=1), 1, atol=100 * tolerance)
    np.testing.assert_allclose(found.first[:, 0] + d[:, None] * normal, found.second[:, 0], atol=tolerance)
    np.testing.assert_allclose(found.first[:, 0], q[:, :3] + 0.05 * normal, atol=tolerance)
    on_surface = from_triangles(found.second[:40, 0].astype(float), triangles())
    np.testing.assert_allclose(on_surface, 0, atol=10 * tolerance)


@pytest.mark.ci
def test_distances_far_above_and_far_outside_are_exact():
    shapes = on_terrain(geometry.sphere("ball", 0.0))
    q = configurations(60, reach=(2, 2, 4), offset=6)
    truth = from_triangles(q[:, :3], triangles(beyond=60))
    assert truth.max() > 9
    np.testing.assert_allclose(nearest(shapes, q).distance[:, 0], truth, atol=1e-13)
    away = configurations(20)
    away[:, 0] = 5.0
    near = nearest(shapes, away).distance
    away[:, 0] = 50.0  # the border goes on as it is
    np.testing.assert_allclose(nearest(shapes, away).distance, near, atol=1e-12)
    blown_up = away.copy()
    blown_up[:3, :3] = [[1e30, 0, 0], [0, 0, 1e30], [np.nan, 0, 0]]
    assert np.isfinite(nearest(shapes, blown_up).distance[3:]).all()


def test_several_tilted_fields_each_have_their_own_heights():
    pose = np.eye(4)
    pose[:3, :3] = trimesh.transformations.rotation_matrix(0.4, [1, 2, 0.5])[:3, :3]
    pose[:3, 3] = 0.1, -0.2, 0.3
    other = 0.2 * np.random.default_rng(5).uniform(size=(4, 30))
    fields = [geometry.height_field(HEIGHTS, EXTENT, CENTRE), geometry.height_field(other, (1.0, 4.0), name="slope")]
    fields[1] = dataclasses.replace(fields[1], pose=pose)
    shapes = geometry.make_shapes(FREE, [geometry.sphere("ball", 0.1)], pairs=[])
    shapes = geometry.with_environment(FREE, shapes, fields)
    assert shapes.pair_names == (("ball", "terrain"), ("ball", "slope"))
    q = configurations(200)
    local = (q[:, :3] - pose[:3, 3]) @ pose[:3, :3]
    found = nearest(shapes, q).distance + 0.1
    np.testing.assert_allclose(found[:, 0], from_triangles(q[:, :3], triangles()), atol=1e-13)
    slope = from_triangles(local, triangles(other, (1.0, 4.0), (0, 0, 0), beyond=12))
    np.testing.assert_allclose(found[:, 1], slope, atol=1e-13)


CORNERS = np.array([[0.1, 0, 0], [-0.1, 0.1, 0], [-0.1, -0.1, 0], [0, 0, 0.2]])
FACES = np.array([[0, 1, 3], [1, 2, 3], [2, 0, 3], [0, 2, 1]])
BODIES = {
    "sphere": geometry.sphere("ball", 0.1),
    "capsule": geometry.capsule("ball", [0, 0.05, -0.2], [0, 0, 0.3], 0.05),
    "box": Geometry("ball", "box", np.eye(4), (0.2, 0.3, 0.4)),
    "hull": Geometry("ball", "mesh", np.eye(4), (1.0, 1.0, 1.0), triangles=(CORNERS, FACES)),
    "cylinder": Geometry("ball", "cylinder", np.eye(4), (0.1, 0.1, 0.4)),
    "ellipsoid": Geometry("ball", "ellipsoid", np.eye(4), (0.1, 0.2, 0.3)),
}
KINDS = [pytest.param(kind, marks=() if kind == "ellipsoid" else pytest.mark.nightly) for kind in BODIES]


@pytest.mark.parametrize("kind", KINDS)
def test_a_level_field_is_a_floor(kind):
    own = geometry.make_shapes(FREE, [BODIES[kind]], pairs=[])
    level = geometry.height_field(np.full((4, 5), 0.1), (1.0, 1.0))
    shapes = geometry.with_environment(FREE, own, [level, geometry.floor(0.1)])
    q = configurations(200)
    field, floor = nearest(shapes, q).distance.T
    # points of a rim are up to 22.5 degrees from the lowest one, those of an ellipsoid up to 27.4
    angle = {"cylinder": np.pi / 8, "ellipsoid": np.deg2rad(27.4)}.get(kind, 0)
    rounding = max(0.1, 3 * 0.1 * (kind == "ellipsoid")) * (1 - np.cos(angle)) + 1e-13
    assert (field - floor).min() > -1e-13 and (field - floor).max() < rounding


@pytest.mark.parametrize("kind", KINDS)
def test_points_of_a_shape_bound_its_distance(kind):
    shapes, q = on_terrain(BODIES[kind]), configurations(30, reach=(1, 0.7, 0.3), offset=0.7)
    found = nearest(shapes, q).distance[:, 0]
    truth = closest_surface_points(kind, shapes, q)
    # of its points, none is farther from the next one than this
    spacing = {"capsule": 0.506 / 4, "cylinder": 0.4, "box": 0.4, "hull": 0.2, "ellipsoid": 0.2}.get(kind, 1e-3)
    assert (found - truth).min() > -5e-3 and (found - truth).max() < spacing / 2
    assert np.median(np.abs(found - truth)) < 0.02


def closest_surface_points(kind, shapes, q):
    """The least distance of a thousand points on a shape's surface and the terrain."""
    size, pose = np.asarray(shapes.size[0]), np.asarray(shapes.pose[0])
    make = {
        "sphere": lambda: trimesh.creation.icosphere(3, 0.1),
        "capsule": lambda: trimesh.creation.capsule(2 * size[2], 0.05, [16, 16]),
        "box": lambda: trimesh.creation.box(2 * size),
        "hull": lambda: trimesh.Trimesh(np.asarray(shapes.vertices[0])).convex_hull,
        "cylinder": lambda: trimesh.creation.cylinder(0.1, 0.4, sections=64),
        "ellipsoid": lambda: trimesh.creation.icosphere(3).apply_scale(size),
    }
    mesh = make[kind]()
    if kind == "capsule" and abs(mesh.bounds[:, 2].sum()) > 1e-6:  # in some versions, it starts at the origin
        mesh.apply_translation([0, 0, -mesh.bounds[:, 2].mean()])
    points = np.concatenate([mesh.vertices, trimesh.sample.sample_surface(mesh, 600, seed=0)[0]])
    points = points @ pose[:3, :3].T + pose[:3, 3]
    ball = geometry.make_shapes(FREE, [geometry.sphere("ball")], pairs=[])
    ball = geometry.with_environment(FREE, ball, [geometry.height_field(HEIGHTS, EXTENT, CENTRE)])
    placed = lambda q: jax.vmap(lambda x: jaxdyn.forward_kinematics(FREE, q)[-1] @ jnp.append(x, 1.0))(points)
    world = np.asarray(jax.vmap(placed)(q))[..., :3].reshape(-1, 3)
    still = np.tile([1.0, 0, 0, 0], (len(world), 1))
    found = nearest(ball, np.concatenate([world, still], axis=1)).distance
    return found.reshape(len(q), -1).min(axis=1)


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_are_central_differences(kind):
    shapes, q = on_terrain(BODIES[kind]), configurations(100, seed=3)
    distance = lambda shapes, q: geometry.distances(FREE, shapes, q)[0]
    of_q = jax.jit(jax.vmap(jax.grad(distance, argnums=1), in_axes=(None, 0)))(shapes, q)
    forward = jax.jit(jax.vmap(jax.jacfwd(distance, argnums=1), in_axes=(None, 0)))(shapes, q)
    np.testing.assert_allclose(of_q, forward, atol=1e-13)
    rate = np.random.default_rng(0).normal(size=(100, 6))
    moved = jax.vmap(lambda h, q, v: jaxdyn.model.integrate(FREE, q, h * v), in_axes=(None, 0, 0))
    slope = jax.jvp(lambda h: moved(h, q, rate), (0.0,), (1.0,))[1]
    change = jax.vmap(jnp.dot)(of_q, slope)
    above, below = (nearest(shapes, moved(h, q, rate)).distance[:, 0] for h in (1e-6, -1e-6))
    differences = (above - below) / 2e-6
    error = np.abs(change - differences)
    assert (error < 1e-6).mean() > 0.97  # others are at kinks
    leaves = jax.jit(jax.grad(distance))(shapes, q[0])
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(leaves))
    assert not leaves.heights[0].any() and leaves.radius[0] == pytest.approx(-1)


@pytest.mark.nightly
def test_derivatives_with_respect_to_the_terrain_s_pose_and_extent():
    shapes, q = on_terrain(BODIES["sphere"]), jnp.asarray(configurations(1, seed=8)[0])
    distance = lambda shapes: geometry.distances(FREE, shapes, q)[0]
    gradient = jax.grad(distance)(shapes)
    for name, index in (("pose", (1, 2, 3)), ("pose", (1, 0, 3)), ("size", (1, 0)), ("size", (1, 1))):
        leaf = lambda s, name=name: getattr(s, name)
        moved = lambda h, index=index, leaf=leaf: eqx.tree_at(leaf, shapes, leaf(shapes).at[index].add(h))
        slope = (distance(moved(1e-6)) - distance(moved(-1e-6))) / 2e-6
        np.testing.assert_allclose(leaf(gradient)[index], slope, atol=1e-8)


@pytest.mark.ci
def test_points_exactly_on_the_surface_and_its_edges_have_finite_results():
    shapes = on_terrain(geometry.sphere("ball"))
    corners = triangles(beyond=0).reshape(-1, 3)
    middles = (corners[0::3] + corners[1::3]) / 2
    points = np.concatenate([corners, middles])
    q = np.concatenate([points, np.tile([1.0, 0, 0, 0], (len(points), 1))], axis=1)
    found = nearest(shapes, q)
    np.testing.assert_allclose(found.distance, 0, atol=1e-14)
    np.testing.assert_allclose(np.linalg.norm(found.normal[:, 0], axis=1), 1, atol=1e-12)
    assert (found.normal[:, 0, 2] < 0).all()
    gradient = jax.vmap(jax.grad(lambda q: geometry.distances(FREE, shapes, q)[0]))(q)
    np.testing.assert_allclose(gradient[:, :3], -found.normal[:, 0], atol=1e-12)


MODEL = """<mujoco><asset><hfield name="ground" nrow="7" ncol="11" size="1.5 1 0.4 0.1" elevation="HEIGHTS"/></asset>
<worldbody><geom type="hfield" hfield="ground" pos="0.1 0.2 -0.3" euler="5 10 30"/>
<body name="ball"><freejoint/><geom type="sphere" size="0.1"/></body></worldbody></mujoco>"""


def test_height_fields_of_mjcf_files_have_mujoco_s_distances(tmp_path):
    path = tmp_path / "terrain.xml"
    path.write_text(MODEL.replace("HEIGHTS", " ".join(map(str, np.random.default_rng(2).uniform(size=77)))))
    with pytest.warns(ModelWarning, match="contacts"):
        robot = jaxdyn.load(path)
    shapes = geometry.read(path, robot)
    assert shapes.kinds == ("height_field", "sphere") and len(shapes.pairs) == 1 and not shapes.notes
    assert shapes.heights[0].shape == (11, 7)
    model = mujoco.MjModel.from_xml_path(str(path))
    data = mujoco.MjData(model)
    q = configurations(300, reach=(1.2, 0.8, 0.2), offset=0.6)
    found = nearest(shapes, q, robot)
    rng, unused, checked = np.random.default_rng(0), np.zeros(1, np.int32), 0
    for x, distance, normal in zip(q, found.distance[:, 0], found.normal[:, 0], strict=True):
        data.qpos[:] = x
        mujoco.mj_forward(model, data)
        centre = data.geom_xpos[1]
        ray = lambda direction, centre=centre: mujoco.mj_ray(model, data, centre, direction, None, 1, 1, unused)
        if distance > 0 and (hit := ray(-normal)) >= 0:  # beyond the border, MuJoCo has no ground
            # a ray to a point of an edge may pass it; one a little lower does not
            lower = ray(-normal - 1e-6 * np.array([0.0, 0.0, 1.0]))
            assert hit == pytest.approx(distance + 0.1, abs=1e-5) or lower == pytest.approx(distance + 0.1, abs=1e-4)
            others = np.array([ray(d / np.linalg.norm(d)) for d in rng.normal(size=(20, 3))])
            assert others[others >= 0].min(initial=np.inf) > distance + 0.1 - 1e-5
            checked += 1
    assert checked > 100


def test_the_picture_of_a_height_field_has_its_triangles():
    shapes = on_terrain(geometry.sphere("ball", 0.05))
    scene = jaxdyn.view.build_scene(FREE, shapes=shapes)
    part = next(part for part in scene.parts if part.name.startswith("terrain"))
    drawn = part.vertices[part.faces]
    truth = triangles(beyond=0)
    assert drawn.shape == truth.shape
    key = lambda x: np.sort(np.round(x, 9).reshape(len(x), -1), axis=0)
    np.testing.assert_allclose(key(drawn), key(truth), atol=1e-9)
    assert (np.cross(drawn[:, 1] - drawn[:, 0], drawn[:, 2] - drawn[:, 0])[:, 2] > 0).all()  # seen from above
    ground = Geometry("ball", "height_field", np.eye(4), (*EXTENT, 0.0), heights=HEIGHTS)
    (described,) = (x for x in jaxdyn.view.build_scene(FREE, [ground]).parts if x.group == "shape")
    assert described.faces.shape == part.faces.shape


@pytest.mark.parametrize(
    ("heights", "extent", "message"),
    [
        (np.zeros((1, 5)), (1.0, 1.0), "shape \\(1, 5\\).*at least 2 x 2"),
        (np.full((3, 3), np.nan), (1.0, 1.0), "finite heights"),
        (np.zeros((3, 3)), (1.0, 0.0), "extent 1 x 0 m"),
        (np.zeros(9), (1.0, 1.0), "shape \\(9,\\)"),
    ],
)
def test_unusable_heights_are_named(heights, extent, message, annotations_unchecked):
    with pytest.raises(ModelError, match=message):
        on_terrain(geometry.sphere("ball"), heights, extent)


def test_what_height_fields_cannot_do_is_named(annotations_unchecked):
    shapes = on_terrain(geometry.sphere("ball"))
    two = geometry.with_environment(FREE, shapes, [geometry.floor()])
    with pytest.raises(ModelError, match="not defined"):
        geometry.with_pairs(two, [("terrain", "floor")])
    batch = eqx.tree_at(lambda s: s.heights[0], shapes, jnp.stack([shapes.heights[0]] * 3))
    axes = eqx.tree_at(lambda s: s.heights[0], jax.tree.map(lambda _: None, shapes), 0, is_leaf=lambda x: x is None)
    with pytest.raises(ModelError, match="cannot differ within a batch"):
        jax.vmap(lambda s: geometry.distances(FREE, s, jnp.asarray(configurations(1)[0])), in_axes=(axes,))(batch)
    ground = Geometry("ball", "height_field", np.eye(4), (*EXTENT, 0.0), heights=HEIGHTS)
    with pytest.raises(ModelError, match="height field on link 'ball' has no volume"):
        jaxdyn.io.with_inertias_of_shapes(FREE, [ground], 1000.0)


@pytest.mark.ci
def test_the_closest_approach_to_a_height_field():
    shapes = on_terrain(geometry.sphere("ball", 0.05))
    start, end = np.array([[-1.2, 0.0, 0.4, 1, 0, 0, 0], [1.2, 0.0, 0.2, 1, 0, 0, 0]])
    (found,) = geometry.closest_approaches(FREE, shapes, np.array([0.0, 2.0]), np.stack([start, end]))
    between = start + np.linspace(0, 1, 2001)[:, None] * (end - start)
    truth = nearest(shapes, between).distance[:, 0]
    assert found.distance == pytest.approx(truth.min(), abs=2e-3) and found.bound <= truth.min()

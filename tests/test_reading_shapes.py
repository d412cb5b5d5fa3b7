"""Shapes read from robot descriptions, against Pinocchio, MuJoCo and trimesh; and which pairs of them are chosen."""

import dataclasses
import re

import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.spatial import ConvexHull

import jaxdyn
from jaxdyn import geometry
from jaxdyn.io import Geometry

ARM = """<robot name="arm">
  <link name="base"><collision><origin xyz="0 0 -0.1"/><geometry><box size="0.2 0.2 0.1"/></geometry></collision></link>
  <link name="upper"><collision><origin xyz="0.01 0 0.2" rpy="0.3 0.1 0.2"/>
    <geometry><cylinder radius="0.05" length="0.3"/></geometry></collision></link>
  <link name="between"/>
  <link name="fore"><collision><origin xyz="0 0 0.2"/><geometry><sphere radius="0.06"/></geometry></collision></link>
  <link name="tool">
    <collision><origin xyz="0 0.05 0.1" rpy="0.7 0 0"/><geometry><box size="0.1 0.1 0.2"/></geometry></collision>
    <collision><origin xyz="0 0 0.3"/><geometry><sphere radius="0.03"/></geometry></collision></link>
  <joint name="j1" type="continuous"><parent link="base"/><child link="upper"/><axis xyz="0 1 0"/></joint>
  <joint name="j2" type="continuous"><parent link="upper"/><child link="between"/><origin xyz="0 0 0.4" rpy="0.2 0 0"/>
    <axis xyz="0 1 0"/></joint>
  <joint name="j3" type="revolute"><parent link="between"/><child link="fore"/><axis xyz="1 0 0"/>
    <limit lower="-0.5" upper="0.5" velocity="1" effort="1"/></joint>
  <joint name="flange" type="fixed"><parent link="fore"/><child link="tool"/><origin xyz="0 0 0.3" rpy="0 0 0.4"/></joint>
</robot>"""


def load(text, **options):
    return jaxdyn.io.loads(text, ignore_inertials=True, **options)


@pytest.fixture
def arm(tmp_path):
    path = tmp_path / "arm.urdf"
    path.write_text(ARM)
    return path


def at(*xyz):
    pose = np.eye(4)
    pose[:3, 3] = xyz
    return pose


def world_poses(chain, shapes, q):
    links = np.concatenate([jaxdyn.dynamics.forward_kinematics(chain, jnp.asarray(q, chain.dtype)), np.eye(4)[None]])
    return np.array([links[link] @ pose for link, pose in zip(shapes.links, np.asarray(shapes.pose), strict=True)])


def test_shapes_stand_where_pinocchio_has_them(arm):
    pin = pytest.importorskip("pinocchio")
    model = pin.buildModelFromUrdf(str(arm))
    truth = pin.buildGeomFromUrdf(model, str(arm), pin.GeometryType.COLLISION)
    chain = load(ARM)
    shapes = geometry.read(arm, chain, samples=0)
    assert shapes.names == ("base", "upper", "fore", "tool", "tool/2") and shapes.links == (-1, 0, 2, 2, 2)
    assert shapes.kinds == ("box", "cylinder", "sphere", "box", "sphere")
    q = np.array([0.3, -0.8, 0.4])
    data, placed = model.createData(), truth.createData()
    turns = np.array([np.cos(q[0]), np.sin(q[0]), np.cos(q[1]), np.sin(q[1]), q[2]])
    pin.updateGeometryPlacements(model, data, truth, placed, turns)
    for k, pose in enumerate(world_poses(chain, shapes, q)):
        name = {"tool/2": "tool_1"}.get(shapes.names[k], f"{shapes.names[k]}_0")
        assert_allclose(pose, placed.oMg[truth.getGeometryId(name)].homogeneous, atol=1e-6)
    assert_allclose(shapes.size[0], [0.1, 0.1, 0.05], rtol=1e-6)
    assert_allclose(shapes.size[1], [0.05, 0.05, 0.15], rtol=1e-6)
    assert_allclose(shapes.radius, [0, 0, 0.06, 0, 0.03], rtol=1e-6)


def test_a_cylinder_with_spheres_at_its_ends_is_a_capsule():
    turn = at(0.1, 0.2, 0.3)
    turn[:3, :3] = np.roll(np.eye(3), 1, axis=0)
    ends = [turn @ at(0, 0, z) for z in (-0.2, 0.2)]
    cylinder = Geometry("fore", "cylinder", turn, (0.05, 0.05, 0.4))
    sphere = lambda pose, radius=0.05, link="fore": Geometry(link, "sphere", pose, (radius,) * 3)
    chain = load(ARM)
    made = lambda *given: geometry.make_shapes(chain, given, pairs=[])
    shapes = made(sphere(ends[0]), cylinder, sphere(ends[1]))
    assert shapes.kinds == ("capsule",) and shapes.names == ("fore",)
    assert_allclose(shapes.size[0], [0, 0, 0.2], rtol=1e-6)
    assert_allclose(shapes.radius, [0.05], rtol=1e-6)
    assert_allclose(shapes.pose[0], turn, atol=1e-7)
    for other in (sphere(ends[1], 0.06), sphere(ends[1], link="tool"), sphere(at(0, 0, 0))):
        assert made(sphere(ends[0]), cylinder, other).kinds == ("sphere", "cylinder", "sphere")


def mesh_of(surface, scale=(1.0, 1.0, 1.0)):
    return Geometry("fore", "mesh", np.eye(4), scale, triangles=surface)


def bumpy(rng, count=300):
    points = rng.normal(size=(count, 3)) * [0.1, 0.2, 0.05] + [1, 2, 3]
    hull = ConvexHull(points)
    return points, hull.simplices


def reach(shapes, n):
    """How far the only shape, a hull or a capsule, reaches in each direction n."""
    pose = np.asarray(shapes.pose[0], float)
    axis = np.asarray([[0, 0, -1], [0, 0, 1]]) * np.asarray(shapes.size[0])
    core = np.asarray(shapes.vertices[0], float) if shapes.vertices else axis
    return (n @ (core @ pose[:3, :3].T + pose[:3, 3]).T).max(axis=1) + float(shapes.radius[0])


@pytest.mark.parametrize("mesh", ["hull", "capsule"])
def test_what_encloses_a_mesh_contains_it(mesh):
    rng = np.random.default_rng(0)
    n = rng.normal(size=(4000, 3))
    n /= np.linalg.norm(n, axis=1, keepdims=True)
    flat = np.stack([np.cos(t := np.arange(100) / 16), np.sin(t), 0 * t], axis=1)
    line, one = np.outer(np.arange(3.0), [1, 2, 3]), np.ones((3, 3))
    sets = [bumpy(rng)[0] * [1, -2, 1], flat, flat[:3], line, one, np.array(np.meshgrid(*[[0, 1]] * 3)).reshape(3, 8).T]
    for points in sets:
        surface = points, np.arange(len(points) // 3 * 3).reshape(-1, 3)
        used = points[: len(points) // 3 * 3]
        shapes = geometry.make_shapes(load(ARM), [mesh_of(surface)], mesh=mesh, vertices=20, pairs=[])
        over = reach(shapes, n) - (n @ used.T).max(axis=1)
        extent = np.ptp(used, axis=0).max()
        assert over.min() > -1e-6 * (extent + 5)
        assert all(len(v) <= 20 for v in shapes.vertices)
        if mesh == "hull" and shapes.radius[0] == 0:
            assert over.max() < 2e-5 * extent + 1e-6
        elif mesh == "hull":
            assert over.max() < 0.3 * extent


def test_notes_state_by_how_much_meshes_are_exceeded():
    trimesh = pytest.importorskip("trimesh")
    chain = load(ARM)
    noted = lambda shapes: [float(x) for x in re.findall(r"([\d.e+-]+) times", shapes.notes[0])]
    box = trimesh.creation.box((0.1, 0.2, 0.3))
    part = mesh_of((np.asarray(box.vertices), np.asarray(box.faces)))
    assert noted(geometry.make_shapes(chain, [part], pairs=[])) == [1, 1]
    ring = trimesh.creation.torus(0.2, 0.05)
    part = mesh_of((np.asarray(ring.vertices), np.asarray(ring.faces)))
    shapes = geometry.make_shapes(chain, [part], vertices=16, pairs=[])
    ball = trimesh.creation.icosphere(4).vertices * float(shapes.radius[0])
    volume = ConvexHull((np.asarray(shapes.vertices[0])[:, None] + ball).reshape(-1, 3)).volume
    assert_allclose(noted(shapes), [volume / ring.convex_hull.volume, volume / ring.volume], rtol=5e-3)
    capsule = geometry.make_shapes(chain, [part], mesh="capsule", pairs=[])
    r, h = float(capsule.radius[0]), float(capsule.size[0, 2])
    assert_allclose(noted(capsule)[1], np.pi * r**2 * (2 * h + 4 / 3 * r) / ring.volume, rtol=5e-3)
    opened = mesh_of((np.asarray(ring.vertices), np.asarray(ring.faces)[5:]))
    assert "the mesh is not closed" in geometry.make_shapes(chain, [opened], pairs=[]).notes[0]


def test_a_capsule_around_a_capsule_is_that_capsule():
    trimesh = pytest.importorskip("trimesh")
    solid = trimesh.creation.capsule(0.3, 0.05, count=(32, 32))
    solid.apply_transform(trimesh.transformations.rotation_matrix(0.8, (1, 2, 3)))
    part = mesh_of((np.asarray(solid.vertices), np.asarray(solid.faces)))
    made = geometry.make_shapes(load(ARM), [part], mesh="capsule", pairs=[])
    assert_allclose(made.radius[0], 0.05, rtol=0.01)
    assert_allclose(made.size[0], [0, 0, 0.15], atol=0.002)


LINKS = """<robot name="snake"><link name="world"/>{}</robot>"""


def snake(gap, lengths):
    """Spheres of radius 0.1 on links in a row, `gap` between joints, that turn by at most `lengths` [rad]."""
    text, before = "", "world"
    for k, most in enumerate(lengths):
        text += f"""<link name="l{k}"><collision><geometry><sphere radius="0.1"/></geometry></collision></link>
          <joint name="j{k}" type="revolute"><parent link="{before}"/><child link="l{k}"/><origin xyz="{gap} 0 0"/>
          <axis xyz="0 0 1"/><limit lower="{-most}" upper="{most}" velocity="1" effort="1"/></joint>"""
        before = f"l{k}"
    return LINKS.format(text)


def reasons(shapes):
    return {(shapes.names[x.first], shapes.names[x.second]): x.reason for x in shapes.left_out}


def test_pairs_that_always_or_never_touch_are_left_out(tmp_path):
    path = tmp_path / "snake.urdf"
    path.write_text(text := snake(0.5, (3.0, 0.1, 3.0, 3.0)))
    chain = load(text)
    shapes = geometry.read(path, chain, samples=2000)
    assert shapes.pair_names == (("l1", "l3"),)  # l0 and l2 stay 0.79 m apart, l0 and l3 0.29 m
    why = reasons(shapes)
    assert why["l0", "l2"] == why["l0", "l3"] == "farther apart than 0.05 m in all of 2000 configurations"
    assert {why[f"l{k}", f"l{k + 1}"] for k in range(3)} == {"adjacent links"}
    every = geometry.choose_pairs(chain, shapes, samples=0)
    assert len(every.pairs) == 3 and ("l0", "l2") in every.pair_names
    path.write_text(text := snake(0.05, (0.5, 0.5, 0.5)))
    touching = geometry.read(path, load(text), samples=300)
    assert touching.pairs == () and reasons(touching)["l0", "l2"] == "in contact in at least 95% of 300 configurations"
    assert "2 pairs left out: adjacent links" in repr(touching)
    table = geometry.pair_table(shapes).splitlines()
    assert len(table) == 6 and table[0].split() == ["l1", "l3"] and table[-1].endswith("left out: adjacent links")


def test_links_without_shapes_do_not_separate_neighbours(arm):
    chain = load(ARM)
    shapes = geometry.read(arm, chain, samples=0)
    assert reasons(shapes) == {("base", "upper"): "adjacent links", ("upper", "fore"): "adjacent links"}
    assert ("upper", "tool") in shapes.pair_names  # fused with the neighbour, but no neighbour in the file
    by_chain = geometry.choose_pairs(chain, shapes, samples=0)
    assert ("upper", "tool/2") in reasons(by_chain) and ("base", "fore") in by_chain.pair_names


def test_an_srdf_disables_pairs(arm, tmp_path):
    srdf = tmp_path / "arm.srdf"
    row = '<disable_collisions link1="tool" link2="base" reason="Never"/><disable_collisions link1="camera" link2="tool"/>'
    srdf.write_text(f"<robot name='arm'>{row}</robot>")
    assert geometry.read_srdf(srdf) == (("tool", "base", "Never"), ("camera", "tool", "no reason given"))
    shapes = geometry.read(arm, load(ARM), srdf=srdf, samples=0)
    off = "disabled in the file (Never)"
    assert reasons(shapes)["base", "tool"] == reasons(shapes)["base", "tool/2"] == off
    srdf.write_text('<robot name="other"><disable_collisions link1="a" link2="b" reason="Never"/></robot>')
    with pytest.raises(jaxdyn.ModelError, match="none of the 1 disabled pairs is on two links with shapes"):
        geometry.read(arm, load(ARM), srdf=srdf)
    srdf.write_text('<robot name="other"><disable_collisions link1="a" reason="Never"/></robot>')
    with pytest.raises(jaxdyn.ModelError, match="link2"):
        geometry.read_srdf(srdf)


def test_pairs_that_a_free_joint_moves_are_kept(tmp_path):
    """The base has a wall, far from the robot at its neutral configuration."""
    text = snake(0.5, (3.0, 0.1, 3.0))
    with pytest.warns(jaxdyn.ModelWarning, match="singular"):
        floating = load(text, floating_base="root")
    wall = Geometry("universe", "box", at(50, 0, 0), (1.0, 1.0, 1.0))
    assert floating.topology.base_name == "universe"
    spheres = [Geometry(f"l{k}", "sphere", np.eye(4), (0.1,) * 3) for k in range(3)]
    shapes = geometry.make_shapes(floating, [wall, *spheres])
    assert shapes.pair_names == (("universe", "l1"), ("universe", "l2"))  # l0 counts as adjacent to the base
    assert ("l0", "l2") in reasons(shapes)
    sliding = text.replace('type="revolute"', 'type="prismatic"', 1).replace("3.0", "1e13", 2)
    chain = load(sliding)
    assert not np.isfinite(chain.limits.position[0]).any()
    shapes = geometry.make_shapes(chain, [dataclasses.replace(wall, link="world"), *spheres])
    assert ("world", "l2") in shapes.pair_names


def test_limits_are_those_of_the_coordinates(tmp_path):
    """A mimic joint and a spherical one: nothing outside the limits, everything within them."""
    text = snake(0.15, (0.6, 0.6, 0.6)).replace(
        '<parent link="l0"/>', '<mimic joint="j0" multiplier="0.5"/><parent link="l0"/>'
    )
    chain = load(text)
    assert chain.coupling is not None and chain.nv == 2
    q = geometry.pairs.configurations(chain, 1000, 0)
    assert_allclose(np.abs(q).max(axis=0), 0.6, rtol=0.02)
    assert q[0].tolist() == [0, 0]


SCENE = """<mujoco><compiler angle="radian"/><worldbody><geom name="floor" type="plane" size="1 1 1"/>
<geom name="ghost" type="box" size=".1 .1 .1" contype="0" conaffinity="0"/>
<geom name="wall" type="box" size=".1 .1 .1" pos="1 0 0"/>
<body name="base" pos="0 0 1"><geom name="foot" type="box" size=".1 .1 .1"/>
 <body name="a" pos="0 0 .2"><joint name="ja" axis="0 1 0"/><geom name="ga" type="capsule" size=".04 .1"/>
  <geom name="only_hits_2" type="sphere" size=".05" contype="2" conaffinity="0"/>
  <body name="empty"><joint name="je" axis="1 0 0" range="-1 1"/><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
   <body name="b" pos="0 0 .3"><joint name="jb" axis="0 1 0" range="-1 1"/><geom name="gb" type="ellipsoid" size=".05 .1 .05"/>
    <body name="tip" pos="0 0 .2"><geom name="gt" type="cylinder" size=".05 .1"/></body></body></body></body>
 <body name="c" pos="0 .3 .2"><joint name="jc" axis="0 1 0" range="-1 1"/><geom name="gc" type="sphere" size=".05"/>
  <body name="d" pos="0 0 .3"><joint name="jd" axis="0 1 0" range="-1 1"/>
   <geom name="gd" type="sphere" size=".05" conaffinity="2"/></body></body></body>
<body name="free" pos="1 1 1"><freejoint/><geom name="gf" type="sphere" size=".1" contype="0" conaffinity="0"/></body>
</worldbody><contact><exclude body1="c" body2="tip"/>
<pair geom1="ga" geom2="foot"/><pair geom1="gf" geom2="gd"/></contact></mujoco>"""


@pytest.mark.parametrize("flag", ["", '<option><flag filterparent="disable"/></option>'])
def test_pairs_of_mjcf_are_those_that_mujoco_tests(tmp_path, flag):
    mujoco = pytest.importorskip("mujoco")
    path = tmp_path / "scene.xml"
    path.write_text(text := SCENE.replace("<worldbody>", f"{flag}<worldbody>"))
    wide = text.replace("<compiler", '<default><geom margin="100"/><pair margin="100"/></default><compiler')
    model = mujoco.MjModel.from_xml_string(wide)  # makes a contact for every pair that the filters let pass
    with pytest.warns(jaxdyn.ModelWarning):
        chain = jaxdyn.load(path)
    shapes = geometry.read(path, chain, samples=0)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    tested = {frozenset(model.geom(int(g)).name for g in pair) for pair in data.contact.geom}
    geoms = [model.geom(g).name for g in range(model.ngeom) if g not in (model.geom("ghost").id,)]
    assert shapes.names == ("world", "world/2", "base", "a", "a/2", "b", "tip", "c", "d", "free")
    own = dict(zip(shapes.names, geoms, strict=True))
    ours = {frozenset((own[a], own[b])) for a, b in shapes.pair_names}
    ruled = {frozenset((own[a], own[b])) for (a, b), why in reasons(shapes).items() if why == "adjacent links"}
    assert ours <= tested and tested - ours <= ruled
    assert {frozenset(("ga", "foot")), frozenset(("gf", "gd"))} <= ours  # explicit pairs
    assert frozenset(("gc", "foot")) in ruled and frozenset(("ga", "gb")) in ruled  # links that joints connect
    why = reasons(shapes)
    assert why["tip", "c"] == "<exclude> in the file" and why["a/2", "b"] == "contype and conaffinity in the file"
    assert shapes.kinds[0] == "plane" and ("world", "tip") in shapes.pair_names
    for k, pose in enumerate(world_poses(chain, shapes, jaxdyn.neutral_configuration(chain))[:-1]):
        g = model.geom(own[shapes.names[k]]).id
        assert_allclose(pose[:3, 3], data.geom_xpos[g], atol=1e-6)
        assert_allclose(pose[:3, :3].reshape(9), data.geom_xmat[g], atol=1e-6)
    seen = geometry.read(path, chain, visual=True, samples=0)
    assert "ghost" not in seen.names and len(seen.names) == 10 and "plane" not in seen.kinds
    with pytest.raises(jaxdyn.ModelError, match="packages= is for URDF"):
        geometry.read(path, chain, packages={"a": tmp_path})


def test_obstacles_are_fixed_to_the_base(arm, tmp_path):
    chain = load(ARM)
    shapes = geometry.read(arm, chain, samples=0)
    table = Geometry("table", "box", at(1, 0, 0), (0.5, 0.5, 0.1))
    whole = geometry.with_environment(
        chain, shapes, [table, geometry.floor(-0.2), dataclasses.replace(table, link="upper")]
    )
    assert whole.names == (*shapes.names, "table", "floor", "upper_") and whole.links[5:] == (-1, -1, -1)
    assert whole.kinds[5:] == ("box", "plane", "box")
    assert_allclose(whole.pose[6], at(0, 0, -0.2), atol=1e-7)
    assert whole.pairs[: len(shapes.pairs)] == shapes.pairs
    added = whole.pair_names[len(shapes.pairs) :]
    moving = ("upper", "fore", "tool", "tool/2")
    assert {*added} == {(a, b) for a in moving for b in ("table", "floor", "upper_")}
    file = tmp_path / "cell.urdf"
    file.write_text(
        """<robot name="cell"><link name="floor_frame"/><link name="bench"><collision><origin xyz="0 0 1"/>
        <geometry><sphere radius="0.1"/></geometry></collision></link><joint name="j" type="fixed">
        <parent link="floor_frame"/><child link="bench"/><origin xyz="1 2 3"/></joint></robot>"""
    )
    whole = geometry.with_environment(chain, shapes, file)
    assert whole.names[-1] == "bench"
    assert_allclose(whole.pose[-1], at(1, 2, 4), atol=1e-6)
    with pytest.raises(jaxdyn.ModelError, match="obstacles do not move"):
        geometry.with_environment(chain, shapes, arm)
    file.write_text("<robot name='cell'><link name='nothing'/></robot>")
    with pytest.raises(jaxdyn.ModelError, match="no collision shapes"):
        geometry.with_environment(chain, shapes, file)


def test_what_cannot_be_read_is_refused(arm, tmp_path):
    chain = load(ARM)
    other = tmp_path / "other.urdf"
    other.write_text(ARM.replace("collision", "visual"))
    with pytest.raises(jaxdyn.ModelError, match="no collision shapes; pass visual=True"):
        geometry.read(other, chain)
    assert geometry.read(other, chain, visual=True, samples=0).names == geometry.read(arm, chain, samples=0).names
    other.write_text(ARM.replace('<sphere radius="0.06"/>', '<mesh filename="package://meshes/fore.stl"/>'))
    with pytest.raises(jaxdyn.ModelError, match=r"package://meshes/fore.stl was not found.*pass packages="):
        geometry.read(other, chain)
    with pytest.raises(jaxdyn.ModelError, match="unknown link or frame 'wheel'"):
        geometry.make_shapes(chain, [Geometry("wheel", "box", np.eye(4), (1.0, 1.0, 1.0))])
    with pytest.raises(jaxdyn.ModelError, match="sizes cannot be negative"):
        geometry.make_shapes(chain, [Geometry("fore", "box", np.eye(4), (1.0, -1.0, 1.0))])
    with pytest.raises(jaxdyn.ModelError, match="at least 4 vertices"):
        geometry.make_shapes(chain, [], vertices=3)
    short = load(ARM, tip="upper")
    shapes = geometry.read(arm, short, samples=0)
    assert (
        shapes.names == ("base", "upper")
        and "omitted the shapes of links that the chain lacks: fore, tool" in shapes.notes
    )
    with pytest.raises(jaxdyn.ModelError, match="the chain has none of the links with shapes"):
        geometry.read(arm, jaxdyn.robots.panda())

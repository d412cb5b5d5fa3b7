"""Robots to look at: surfaces, shapes of a URDF, scenes, motions from tables, pictures, films, and the page itself."""

import argparse
import dataclasses
import struct
import urllib.request

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

import jaxdyn
from helpers import random_chain
from jaxdyn.cli import main
from jaxdyn.commands.view import read_robot
from jaxdyn.geometry import Fixed, Shapes
from jaxdyn.io.shapes import find_mesh
from jaxdyn.model.configuration import positions_at
from jaxdyn.view import scene as triangles
from jaxdyn.view.scene import (
    effort_limits,
    line_ends,
    skeleton,
    slider_ranges,
    sliding_coordinates,
    start_configuration,
)
from test_check import ARM as CAPSULES

ARM = """<robot name="arm">
  <material name="red"><color rgba="0.8 0.1 0.1 1"/></material>
  <link name="base"><visual><geometry><box size="0.2 0.2 0.1"/></geometry><material name="red"/></visual></link>
  <link name="upper"><inertial><origin xyz="0 0 0.1"/><mass value="3"/>
    <inertia ixx="0.04" ixy="0" ixz="0" iyy="0.03" iyz="0" izz="0.02"/></inertial>
    <visual><origin xyz="0 0 0.15" rpy="0 1.5707963267948966 0"/><geometry><cylinder radius="0.05" length="0.3"/></geometry>
      <material name="own"><color rgba="0 0 1 0.5"/></material></visual>
    <visual><geometry><mesh filename="package://arm_description/meshes/wedge.stl" scale="2 2 -2"/></geometry></visual>
    <collision><geometry><sphere radius="0.2"/></geometry></collision></link>
  <link name="lower"><inertial><origin xyz="0.2 0 0"/><mass value="1.5"/>
    <inertia ixx="0.01" ixy="0" ixz="0" iyy="0.02" iyz="0" izz="0.02"/></inertial></link>
  <link name="flange"><visual><origin xyz="0 0 0.1"/><geometry><sphere radius="0.03"/></geometry></visual></link>
  <joint name="turn" type="revolute"><parent link="base"/><child link="upper"/><axis xyz="0 0 1"/>
    <limit lower="-2" upper="2" velocity="3" effort="40"/></joint>
  <joint name="lift" type="continuous"><parent link="upper"/><child link="lower"/><origin xyz="0 0 0.3"/>
    <axis xyz="0 1 0"/></joint>
  <joint name="end" type="fixed"><parent link="lower"/><child link="flange"/><origin xyz="0.4 0 0"/></joint>
</robot>
"""


def volume_and_centre(vertices, faces):
    """By the divergence theorem, of faces seen from outside."""
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    sixth = np.einsum("ij,ij->i", a, np.cross(b, c)) / 6
    return sixth.sum(), (sixth[:, None] * (a + b + c) / 4).sum(0) / sixth.sum()


@pytest.fixture(scope="module")
def arm(tmp_path_factory):
    """A package arm_description with urdf/arm.urdf and a mesh: a tetrahedron as a binary STL."""
    folder = tmp_path_factory.mktemp("packages") / "arm_description"
    (folder / "urdf").mkdir(parents=True)
    (folder / "meshes").mkdir()
    (folder / "urdf" / "arm.urdf").write_text(ARM)
    corners = np.array([[0, 0, 0], [0.1, 0, 0], [0, 0.1, 0], [0, 0, 0.1]], np.float32)
    faces = [(0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3)]
    body = b"".join(struct.pack("<12fH", 0, 0, 0, *corners[list(f)].ravel(), 0) for f in faces)
    (folder / "meshes" / "wedge.stl").write_bytes(b"\0" * 80 + struct.pack("<I", len(faces)) + body)
    return folder / "urdf" / "arm.urdf"


@pytest.mark.parametrize(
    ("surface", "volume"),
    [
        (triangles.box((0.1, 0.2, 0.3)), 0.006),
        (triangles.cylinder(0.1, 0.5, 64), np.pi * 0.005),
        (triangles.capsule(0.1, 0.5, 64), np.pi * (0.005 + 4e-3 / 3)),
        (triangles.ellipsoid((0.1, 0.2, 0.3), 64), 4 / 3 * np.pi * 0.006),
    ],
    ids=["box", "cylinder", "capsule", "ellipsoid"],
)
def test_surfaces_are_closed_and_seen_from_outside(surface, volume):
    vertices, faces = surface
    found, centre = volume_and_centre(vertices, faces)
    assert_allclose(found, volume, rtol=5e-3)
    assert_allclose(centre, 0, atol=1e-12)
    edges = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    forth, back = {tuple(e) for e in edges.tolist()}, {tuple(e) for e in edges[:, ::-1].tolist()}
    assert forth == back and len(forth) == len(edges)  # every edge once each way


def test_shapes_of_a_urdf(arm, tmp_path):
    shapes, notes = jaxdyn.io.read_geometry(arm)
    assert [(s.link, s.kind) for s in shapes] == [
        ("base", "box"),
        ("upper", "cylinder"),
        ("upper", "mesh"),
        ("flange", "sphere"),
    ]
    assert not notes
    assert shapes[0].colour == (0.8, 0.1, 0.1, 1.0) and shapes[1].colour == (0.0, 0.0, 1.0, 0.5)
    assert_allclose(shapes[1].pose[:3, 2], [1, 0, 0], atol=1e-12)  # the cylinder lies along x
    assert shapes[2].file == arm.parent.parent / "meshes" / "wedge.stl" and shapes[2].size == (2.0, 2.0, -2.0)
    assert [s.kind for s in jaxdyn.io.read_geometry(arm, collision=True)[0]] == ["sphere"]
    elsewhere = tmp_path / "arm.urdf"
    elsewhere.write_text(ARM)
    shapes, notes = jaxdyn.io.read_geometry(elsewhere)
    assert len(shapes) == 3 and len(notes) == 1 and "wedge.stl" in notes[0] and "arm.urdf:8" in notes[0]
    assert len(jaxdyn.io.read_geometry(elsewhere, packages={"arm_description": arm.parent.parent})[0]) == 4


def test_mesh_files_are_found(arm, tmp_path, monkeypatch):
    mesh = arm.parent.parent / "meshes" / "wedge.stl"
    assert find_mesh("../meshes/wedge.stl", arm, {}).samefile(mesh)
    assert find_mesh(f"file://{mesh}", tmp_path / "x.urdf", {}) == mesh
    assert find_mesh("http://somewhere/wedge.stl", arm, {}) is None
    name, lone = "package://arm_description/meshes/wedge.stl", tmp_path / "x.urdf"
    assert find_mesh(name, lone, {}) is None
    monkeypatch.setenv("ROS_PACKAGE_PATH", str(mesh.parents[2]))
    assert find_mesh(name, lone, {}) == mesh


def test_a_scene_stands_where_the_robot_does(arm):
    pytest.importorskip("trimesh", reason="meshes are read by trimesh, of the extra view")
    chain = jaxdyn.load(arm)
    scene = jaxdyn.view.build_scene(chain, *jaxdyn.io.read_geometry(arm))
    shown = {part.name.split(" ")[0] for part in scene.parts if part.shown}
    # the lower link has a shape through the flange that is fixed to it, so that no ellipsoid stands in
    assert shown == {"base/box", "upper/cylinder", "upper/mesh", "flange/sphere"}
    assert {part.name for part in scene.parts if part.group == "inertia"} == {"upper/inertia", "lower/inertia"}
    q = np.array([0.7, -0.4])
    poses = scene.poses(q)
    ball = next(part for part in scene.parts if part.name.startswith("flange"))
    _, centre = volume_and_centre(ball.vertices, ball.faces)
    expected = np.asarray(jaxdyn.frame_pose(chain, jnp.asarray(q), "flange")) @ [0, 0, 0.1, 1]
    assert_allclose(poses[ball.link, :3, :3] @ centre + poses[ball.link, :3, 3], expected[:3], atol=1e-12)
    wedge = next(part for part in scene.parts if "mesh" in part.name)
    assert_allclose(volume_and_centre(wedge.vertices, wedge.faces)[0], 8e-3 / 6, rtol=1e-6)  # mirrored, still outward
    ends = line_ends(poses, scene.joints)
    assert_allclose(ends[-1, 1], jaxdyn.frame_pose(chain, jnp.asarray(q))[:3, 3], atol=1e-12)
    assert_allclose(ends[0, 0], 0, atol=0)


def test_every_link_is_drawn():
    """Links without children and tool frames end where their uniform rods or point masses end."""
    q = np.array([0.4, -0.7, 0.2])
    for chain in (jaxdyn.textbook.pendulum(3), jaxdyn.textbook.pendulum(3, com_distance=1.0, inertia=0.0)):
        scene = jaxdyn.view.build_scene(chain)
        ends = line_ends(scene.poses(q), scene.joints)
        assert len(ends) == 4
        below = np.cumsum(q)
        wanted = [0.0, np.sin(below).sum(), -np.cos(below).sum()]
        assert_allclose(ends[-1, 1], wanted, atol=1e-9)
    bare = dataclasses.replace(jaxdyn.textbook.pendulum(2), inertia=jnp.zeros((2, 10)))  # at least its joint's axis
    assert (
        np.linalg.norm(np.diff(line_ends(jaxdyn.view.build_scene(bare).poses(q[:2]), skeleton(bare))[-1], axis=0))
        > 0.05
    )
    biped = jaxdyn.textbook.biped(floating=True)
    drawn = {b for a, b, _ in jaxdyn.view.build_scene(biped).joints if a == b}
    assert drawn == set(range(biped.n)) - set(biped.topology.parents)


def test_an_ellipsoid_has_the_link_s_inertia():
    chain = random_chain(3, seed=2)
    scene = jaxdyn.view.build_scene(chain)
    assert all(part.shown and part.group == "inertia" for part in scene.parts) and len(scene.parts) == 3
    for part, pi in zip(scene.parts, np.asarray(chain.inertia), strict=True):
        _, centre = volume_and_centre(part.vertices, part.faces)
        assert_allclose(centre, pi[1:4] / pi[0], atol=1e-9)
        a = part.vertices - centre
        _, axes = np.linalg.eigh(a.T @ a)
        half = np.abs(a @ axes).max(axis=0)  # along the axes, on which there are vertices
        second = axes @ np.diag(half**2 / 5) @ axes.T * pi[0] + np.outer(pi[1:4], pi[1:4]) / pi[0]
        inertia = np.trace(second) * np.eye(3) - second
        assert_allclose(inertia[[0, 0, 1, 0, 1, 2], [0, 1, 1, 2, 2, 2]], pi[4:], rtol=0.02, atol=0.01 * pi[4:].max())
    broken = jaxdyn.with_inertial_parameters(chain, chain.inertia.at[1, 4].set(-1.0))
    assert "physically inconsistent inertia" in jaxdyn.view.build_scene(broken).notes[0]


def test_motions_from_tables(arm, tmp_path):
    chain = jaxdyn.load(arm)
    t = np.linspace(0, 1, 5)
    q, tau = np.stack([t, -t], 1), np.stack([2 * t, 3 * t], 1)
    path = tmp_path / "motion.csv"
    for header in ("t,q1,q2,tau1,tau2", "time,turn,lift,tau_turn,tau_lift", "stamp,q_turn,q_lift,torque1,torque2"):
        np.savetxt(path, np.column_stack([t, q, tau]), delimiter=",", header=header, comments="")
        motion = jaxdyn.io.read_motion(path, chain)
        assert_allclose(motion.q, q) and assert_allclose(motion.tau, tau)
    np.savetxt(path, np.column_stack([q[:, 1], t, q[:, 0]]), delimiter=",", header="lift,t,turn", comments="")
    motion = jaxdyn.io.read_motion(path, chain)
    assert motion.tau is None and len(motion) == 5
    assert_allclose(motion.q, q)
    np.savez(tmp_path / "motion.npz", t=t, q=q, tau=tau)
    assert_allclose(jaxdyn.io.read_motion(tmp_path / "motion.npz", chain).tau, tau)
    for text, words in (
        ("t,q1\n0,1\n1,2\n", "the columns do not match the 2 positions"),
        ("q1,q2\n0,1\n1,2\n", "called t"),
        ("t,q1,q2,tau1\n0,1,1,1\n1,2,2,2\n", "torque columns are tau1, but this robot needs 2"),
        ("t,q1,q2\n0,1,1\n0,2,2\n", "time does not increase at row 2"),
        ("t,q1,q2\n0,1,1\n1,nan,2\n", "row 2 .* not finite"),
        ("t,q1,q2\n0,1,1\n1,x,2\n", "'x'"),
        ("t,q1,q2\n0,1,1\n", "two rows"),
    ):
        path.write_text(text)
        with pytest.raises(jaxdyn.LogError, match=words):
            jaxdyn.io.read_motion(path, chain)
    np.savez(tmp_path / "motion.npz", t=t, q1=t, q2=np.array(1.0))
    with pytest.raises(jaxdyn.LogError, match="'q2' is a single number"):
        jaxdyn.io.read_motion(tmp_path / "motion.npz", chain)


@pytest.mark.filterwarnings("ignore:.*mass matrix is singular")  # there is nothing to simulate
def test_sliders_go_from_limit_to_limit():
    chain = jaxdyn.io.loads(ARM, floating_base=True)
    assert [name for name, *_ in slider_ranges(chain)] == ["turn", "lift"]
    assert slider_ranges(chain)[0][1:] == (7, -2.0, 2.0)
    assert_allclose(slider_ranges(chain)[1][2:], (-np.pi, np.pi))


@pytest.mark.ci
@pytest.mark.filterwarnings("ignore:.*mass matrix is singular")
def test_positions_between_samples():
    chain = jaxdyn.io.loads(ARM, floating_base=True)
    q = np.random.default_rng(0).normal(size=(3, 9))
    q[:, 3:7] /= np.linalg.norm(q[:, 3:7], axis=1, keepdims=True)
    t = np.array([0.0, 1.0, 3.0])
    found = positions_at(chain, t, q, np.array([0.0, 1.0, 9.0, 2.0]))
    a, b = found[[0, 1, 2, 1, 1]], np.concatenate([q, found[3:], q[2:]])
    miss = np.asarray(jax.jit(jax.vmap(lambda x, y: jaxdyn.difference(chain, x, y)))(a, b))
    assert_allclose(miss[:3], 0, atol=1e-9)
    assert_allclose(miss[3], miss[4] / 2, atol=1e-9)  # half way along the screw


@pytest.mark.filterwarnings("ignore:.*mass matrix is singular")  # there is nothing to simulate
def test_pictures(tmp_path):
    chain = jaxdyn.robots.panda()
    t = np.linspace(0, 1, 21)
    tau = 100 * np.sin(np.outer(t, np.arange(1, 8)))
    figure = jaxdyn.view.plot_torques(chain, t, tau[:-1], tmp_path / "torques.png")
    assert (tmp_path / "torques.png").read_bytes().startswith(b"\x89PNG")
    panel = figure.axes[6]
    assert sorted(line.get_ydata()[0] for line in panel.lines[1:]) == [-12, 12]
    assert panel.get_title(loc="left") == "panda_joint7 [N m]"
    q = np.asarray(chain.limits.position).mean(1) + 0.1 * np.sin(np.outer(t, np.ones(7)))
    jaxdyn.view.plot_positions(chain, t, q, tmp_path / "positions.svg")
    assert b"<svg" in (tmp_path / "positions.svg").read_bytes()
    floating = jaxdyn.io.loads(ARM, floating_base=True)
    rows = np.tile(np.asarray(jaxdyn.neutral_configuration(floating)), (21, 1))
    titles = [axes.get_title(loc="left") for axes in jaxdyn.view.plot_positions(floating, t, rows).axes]
    assert titles[0].endswith(": x [m]") and titles[3].endswith("quaternion w") and titles[7] == "turn [rad]"
    with pytest.raises(jaxdyn.OutputError, match="one row per time"):
        jaxdyn.view.plot_torques(chain, t, tau[:5])
    with pytest.raises(jaxdyn.OutputError, match="xyz"):
        jaxdyn.view.plot_torques(chain, t, tau, tmp_path / "torques.xyz")
    assert not (tmp_path / "torques.xyz").exists()


def test_a_film(tmp_path):
    from PIL import Image

    chain = jaxdyn.textbook.pendulum(2)
    t = np.array([0.0, 0.1, 0.3])
    q = np.array([[0.0, 0.0], [0.3, 0.1], [1.0, -0.4]])
    path = tmp_path / "arm.gif"
    count = jaxdyn.view.animate(chain, t, q, path, fps=10.0, ellipsoids=True, size=(160, 150))
    with Image.open(path) as film:
        assert (film.n_frames, film.size, film.info["duration"]) == (count, (160, 150), 100) and count == 4
        frames = []
        for k in range(count):
            film.seek(k)
            frames.append(np.asarray(film.convert("RGB"), int))
    assert all(np.abs(a - b).max() > 50 for a, b in zip(frames[1:], frames, strict=False))
    for name, rows, words in (
        ("arm.avi", q, "gif or .mp4"),
        ("arm.gif", q[:2], "3 time stamps"),
        ("arm.gif", q * np.nan, "finite"),
        ("arm.gif/arm.gif", q, "is a file"),
    ):
        with pytest.raises(jaxdyn.OutputError, match=words):
            jaxdyn.view.animate(chain, t, rows, tmp_path / name)


def test_convex_shapes_are_drawn():
    """The volumes are those of the cores, inflated by the radii; a plane fills a film without widening it."""
    chain = jaxdyn.textbook.pendulum(1)
    rng = np.random.default_rng(0)
    tetrahedron = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]) * 0.3
    sizes = {"sphere": (0, 0, 0), "capsule": (0, 0, 0.2), "box": (0.1, 0.2, 0.3), "cylinder": (0.1, 0.1, 0.2)}
    sizes |= {"ellipsoid": (0.1, 0.2, 0.3), "hull": (0, 0, 0), "plane": (0, 0, 0)}
    m, pose = len(sizes), np.tile(np.eye(4), (7, 1, 1))
    pose[:, :3, 3] = rng.normal(size=(m, 3))
    fixed = Fixed(tuple(sizes), (0, 0, 0, 0, 0, 0, -1), (chain.link_names[0], *"abcde", "floor"), ())
    radius = np.array([0.1, 0.1, 0, 0, 0, 0, 0])
    volumes = [np.pi * 4e-3 / 3, np.pi * (4e-3 / 3 + 4e-3), 0.048, np.pi * 4e-3, np.pi * 8e-3, 4.5e-3]
    for extra in (0.0, 0.05):
        shapes = Shapes(pose, [*sizes.values()], radius + extra * (radius == 0), (tetrahedron,), fixed)
        *parts, plane = [p for p in jaxdyn.view.build_scene(chain, shapes=shapes).parts if p.group != "inertia"]
        found = [volume_and_centre(part.vertices, part.faces) for part in parts]
        if extra == 0:
            assert_allclose([volume for volume, _ in found], volumes, rtol=0.03)
        else:  # Steiner: V + A r + .. for the box
            edges = np.array([0.2, 0.4, 0.6])
            area = 2 * (edges[0] * edges[1] + edges[1] * edges[2] + edges[2] * edges[0])
            rounded = 0.048 + area * extra + np.pi * extra**2 * edges.sum() + 4 / 3 * np.pi * extra**3
            assert_allclose(found[2][0], rounded, rtol=0.03)
        assert_allclose([centre for _, centre in found[:5]], pose[:5, :3, 3], atol=5e-3)
        assert plane.is_plane and plane.group == "surroundings" and parts[0].group == "collision"
    drawn = jaxdyn.view.build_scene(
        chain, [jaxdyn.io.Geometry(chain.link_names[0], "sphere", np.eye(4), (1, 1, 1))], (), shapes
    )
    assert [p.shown for p in drawn.parts if p.group == "collision"] == [False]  # there are visual shapes


def test_a_film_shows_what_is_nearest(arm_with_shapes, tmp_path):
    from PIL import Image

    chain, shapes = arm_with_shapes
    t, q = np.array([0.0, 0.1]), np.array([[0.0, 0.2, 0.0], [0.0, 2.0, 1.1]])
    scene = jaxdyn.view.build_scene(chain, shapes=shapes)
    ends, distance = scene.nearest(q)
    expected = np.stack([jaxdyn.geometry.distances(chain, shapes, jnp.asarray(x)).min() for x in q])
    assert_allclose(distance, expected, atol=1e-9)
    assert_allclose(np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1), np.abs(expected), atol=1e-9)
    assert jaxdyn.view.build_scene(chain).nearest(q) is None
    count = jaxdyn.view.animate(scene, t, q, tmp_path / "arm.gif", fps=10.0, size=(200, 200))
    with Image.open(tmp_path / "arm.gif") as film:
        frames = []
        for k in range(count):
            film.seek(k)
            frames.append(np.asarray(film.convert("RGB"), int))
    near = lambda frame, colour: (np.abs(frame - colour).max(axis=2) < 40).sum()
    assert [near(frame, (214, 39, 40)) > 0 for frame in frames] == [False, True]  # red where they overlap
    assert near(frames[0], (31, 95, 168)) > 0


@pytest.fixture(scope="module")
def arm_with_shapes(tmp_path_factory):
    path = tmp_path_factory.mktemp("shapes") / "arm.urdf"
    path.write_text(CAPSULES)
    chain = jaxdyn.load(path)
    shapes = jaxdyn.geometry.read(path, chain, samples=0)
    return chain, jaxdyn.geometry.with_environment(chain, shapes, [jaxdyn.geometry.floor()])


@pytest.mark.ci
def test_the_command_names_what_touches(tmp_path, capsys):
    (tmp_path / "arm.urdf").write_text(CAPSULES)
    (tmp_path / "motion.csv").write_text("t,turn,lift,bend\n0,0,0.2,0\n1,0,2.0,1.1\n")
    line = ["view", str(tmp_path / "arm.urdf"), str(tmp_path / "motion.csv"), "--film", str(tmp_path / "arm.gif")]
    assert main(line) == 0
    assert "pictures\ntouches at 0." in capsys.readouterr().out
    assert main([*line, "--shapes", "none"]) == 0
    assert "touches" not in capsys.readouterr().out


def test_the_viewer_names_its_extra(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "viser", None)
    with pytest.raises(jaxdyn.ModelError, match=r"jaxdyn\[view\]"):
        jaxdyn.view.open_viewer(jaxdyn.view.build_scene(jaxdyn.textbook.pendulum(1)))


def test_the_page_is_served(arm, tmp_path, monkeypatch, capsys):
    pytest.importorskip("viser", reason="the viewer needs viser, of the extra view")
    from jaxdyn.view.server import Viewer

    t = np.linspace(0, 1, 30)
    table = np.column_stack([t, 0.5 * t, t, 10 * t, t])
    for name, scale in (("motion.csv", 1), ("ghost.csv", 0.5)):
        rows = table * [1, *4 * [scale]]
        np.savetxt(tmp_path / name, rows, delimiter=",", header="t,q1,q2,tau1,tau2", comments="")
    seen = {}

    def visit(viewer, seconds=None):
        with urllib.request.urlopen(viewer.url, timeout=10) as page:
            seen["page"] = page.read()
        viewer.set_time(0.5)
        seen["url"], seen["q"], seen["frames"], seen["ghost"] = (
            viewer.url,
            viewer._q,
            viewer._frames,
            viewer._ghost_frames,
        )
        seen["sliders"] = [(slider.label, slider.min, slider.max, slider.value) for slider, _ in viewer._sliders]

    monkeypatch.setattr(Viewer, "wait", visit)
    monkeypatch.setattr(Viewer, "_play", lambda viewer: None)
    files = [str(tmp_path / name) for name in ("motion.csv", "ghost.csv")]
    assert main(["view", str(arm), files[0], "--ghost", files[1], "--port", "18080"]) == 0
    assert b"<html" in seen["page"].lower() and seen["url"] in capsys.readouterr().out
    assert_allclose(seen["q"], [0.25, 0.5], atol=1e-6)
    assert seen["sliders"] == [("turn", -2.0, 2.0, 0.25), ("lift", -3.142, 3.142, 0.5)]
    for frames, scale in ((seen["frames"], 1), (seen["ghost"], 0.5)):
        expected = jaxdyn.frame_pose(jaxdyn.load(arm), scale * jnp.array([0.25, 0.5]), "lower")
        assert_allclose(frames[1].position, expected[:3, 3], atol=1e-6)
    with pytest.raises(OSError):
        urllib.request.urlopen(seen["url"], timeout=2)


def test_the_command_writes_films_and_refuses(arm, tmp_path, capsys):
    motion = tmp_path / "motion.csv"
    motion.write_text("t,turn,lift\n0,0,0\n0.1,1,1\n")
    assert main(["view", str(arm), str(motion), "--film", str(tmp_path / "arm.gif")]) == 0
    assert (tmp_path / "arm.gif").read_bytes()[:6] == b"GIF89a" and "3 pictures" in capsys.readouterr().out
    assert main(["view", str(arm), "--film", "x.gif"]) == 2
    assert main(["view", str(arm), "--ghost", str(motion)]) == 2
    assert "--ghost needs a motion" in capsys.readouterr().err
    assert main(["view", str(arm), str(tmp_path / "none.csv")]) == 1
    assert "there is no such file" in capsys.readouterr().err
    assert main(["view", "model.eqx", "--collision"]) == 2
    assert "--collision applies only to" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["view", str(arm), "--package", f"arm_description={tmp_path / 'none'}"])
    assert "there is no folder" in capsys.readouterr().err


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid"])
def test_a_page_is_for_a_host_of_this_machine(host):
    pytest.importorskip("viser", reason="the viewer needs viser, of the extra view")
    with pytest.raises(jaxdyn.ModelError, match=r"is not an address of this machine.*127\.0\.0\.1"):
        jaxdyn.view.open_viewer(jaxdyn.view.build_scene(jaxdyn.textbook.pendulum(1)), host=host)


def film_program():
    """An ffmpeg to read films with, as `animate` finds one to write them."""
    import shutil

    found = shutil.which("ffmpeg")
    if found is None:
        imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg", reason="MP4 films are written by ffmpeg, not there")
        found = imageio_ffmpeg.get_ffmpeg_exe()
    return found


def test_a_film_as_mp4(tmp_path):
    import subprocess

    program = film_program()
    path, (width, height) = tmp_path / "arm.mp4", (115, 101)  # odd: one more row and column are added
    t, q = np.array([0.0, 0.1, 0.3]), np.array([[0.0, 0.0], [0.3, 0.1], [1.0, -0.4]])
    count = jaxdyn.view.animate(jaxdyn.textbook.pendulum(2), t, q, path, fps=10.0, size=(width, height))
    assert path.read_bytes()[4:8] == b"ftyp" and count == 4
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    found = subprocess.run([program, "-loglevel", "error", "-i", str(path), *raw], capture_output=True, check=True)
    frames = np.frombuffer(found.stdout, np.uint8).reshape(count, height + 1, width + 1, 3).astype(int)
    assert (np.abs(np.diff(frames, axis=0)).max(axis=(1, 2, 3)) > 50).all()


def test_a_film_needs_an_ffmpeg_that_works(tmp_path, monkeypatch):
    import sys

    chain, t, q = jaxdyn.textbook.pendulum(1), np.array([0.0, 0.1]), np.zeros((2, 1))
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(jaxdyn.OutputError, match=r"pip install imageio-ffmpeg, or write a \.gif"):
        jaxdyn.view.animate(chain, t, q, tmp_path / "arm.mp4")
    program = tmp_path / "ffmpeg"
    program.write_text("#!/bin/sh\necho no encoder for this >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(jaxdyn.OutputError, match="no encoder for this"):
        jaxdyn.view.animate(chain, t, q, tmp_path / "arm.mp4", size=(120, 100))
    assert [path.name for path in tmp_path.iterdir()] == ["ffmpeg"]


SHAPES = """<mujoco><asset><material name="orange" rgba="1 .5 .25 1"/>
<mesh name="wedge" vertex="0 0 0  .3 0 0  0 .2 0  0 0 .15  .3 .2 0"/></asset>
<worldbody><geom type="plane" size="5 5 .1"/><geom type="box" size=".1 .2 .05" pos="0 0 .05" material="orange"/>
<body name="upper" pos="0 0 .12" euler="10 20 30"><joint name="turn" axis="0 0 1" pos=".1 0 0" range="-90 90"/>
 <geom type="cylinder" size=".06 .2" pos="0 0 .2" rgba="0 1 0 1"/>
 <body name="elbow" pos="0 0 .45"><joint type="ball" pos=".05 0 .1"/><geom type="capsule" fromto="0 0 0 .4 0 .1" size=".04"/>
  <geom type="sphere" size=".07" pos=".01 .02 .03" group="2"/>
  <body pos=".45 0 .12" euler="0 40 0"><geom type="ellipsoid" size=".1 .05 .03"/>
   <geom type="mesh" mesh="wedge" pos=".1 0 .05" euler="50 10 30"/><geom type="box" size=".3 .3 .3" group="3"/>
   <geom type="sphere" size="1" rgba="1 1 1 0" contype="0" conaffinity="0"/></body></body></body>
</worldbody></mujoco>"""


def test_geoms_of_mjcf_stand_where_mujoco_has_them(tmp_path):
    mujoco = pytest.importorskip("mujoco", reason="MJCF is read by MuJoCo, of the extra mjcf")
    path = tmp_path / "shapes.xml"
    path.write_text(SHAPES)
    model = mujoco.MjModel.from_xml_string(SHAPES)
    data = mujoco.MjData(model)
    rng = np.random.default_rng(3)
    data.qpos[:] = rng.normal(size=model.nq)
    data.qpos[1:] /= np.linalg.norm(data.qpos[1:])
    mujoco.mj_kinematics(model, data)
    with pytest.warns(UserWarning, match="contacts"):
        chain = jaxdyn.load(path)
    shapes, notes = jaxdyn.io.read_geometry(path)
    assert not notes
    kinds = ["box", "cylinder", "capsule", "sphere", "ellipsoid", "mesh"]
    assert [s.kind for s in shapes] == kinds and [s.link for s in shapes][:3] == ["world", "upper", "elbow"]
    seen = [g for g in range(model.ngeom) if model.geom_group[g] < 3 and model.geom_rgba[g, 3] > 0][1:]
    scene = jaxdyn.view.build_scene(chain, shapes)
    poses = scene.poses(np.array(data.qpos))
    parts = [part for part in scene.parts if part.group == "shape"]
    for g, shape, part in zip(seen, shapes, parts, strict=True):
        turn, middle = data.geom_xmat[g].reshape(3, 3), data.geom_xpos[g]
        corners = part.vertices @ poses[part.link, :3, :3].T + poses[part.link, :3, 3]
        own = (corners - middle) @ turn  # in MuJoCo's frame of the geom
        if shape.kind == "mesh":
            assert_allclose(own, model.mesh_vert, atol=1e-6)
            # its frame is at the mesh's centre of mass
            assert_allclose(volume_and_centre(own, part.faces)[1], 0, atol=1e-6)
        else:
            x, y, z = model.geom_size[g]
            half = {"box": (x, y, z), "ellipsoid": (x, y, z), "sphere": (x, x, x), "cylinder": (x, x, y)}
            half["capsule"] = (x, x, x + y)
            assert_allclose(own.max(0), half[shape.kind], atol=1e-6)
            assert_allclose(own.min(0), -own.max(0), atol=1e-6)
    assert [shapes[0].colour, shapes[1].colour] == [(1.0, 0.5, 0.25, 1.0), (0.0, 1.0, 0.0, 1.0)]
    assert [s.kind for s in jaxdyn.io.read_geometry(path, collision=True)[0]] == ["plane", *kinds, "box"]
    with pytest.raises(jaxdyn.ModelError, match="packages= is for URDF"):
        jaxdyn.io.read_geometry(path, packages={"a": tmp_path})
    held = SHAPES.replace("</mujoco>", '<equality><joint name="still" joint1="turn"/></equality></mujoco>')
    assert "still" in jaxdyn.io.geometry_from_mujoco(mujoco.MjModel.from_xml_string(held))[1][0]


def test_creases_split_and_round_parts_do_not():
    for surface, split in ((triangles.box((1.0, 2.0, 3.0)), 24), (triangles.ellipsoid((1.0, 2.0, 3.0)), 482)):
        vertices, faces = triangles.creased(surface)
        assert len(vertices) == split  # a box has three at each corner, an ellipsoid what it had
        assert_allclose(vertices[faces], surface[0][surface[1]])
    vertices, faces = triangles.cylinder(0.5, 1.0)
    soup = vertices[faces].reshape(-1, 3), np.arange(faces.size).reshape(-1, 3)  # as in an STL file
    assert len(triangles.creased(soup)[0]) == len(triangles.creased((vertices, faces))[0]) == 2 * 64 + 2


def test_the_camera_sees_the_robot_whole(arm):
    from jaxdyn.view.scene import FIELD_OF_VIEW, frame_scene

    for gravity in ((0.0, 0.0, -9.81), (0.0, -9.81, 0.0), (0.0, 0.0, 9.81), (0.0, 0.0, 0.0)):
        scene = jaxdyn.view.build_scene(jaxdyn.load(arm, gravity=gravity))
        q = np.random.default_rng(0).uniform(-2, 2, (7, 2))
        view = frame_scene(scene, q)
        up = np.array([0.0, 0.0, 1.0]) if not any(gravity) else -np.array(gravity) / 9.81
        assert_allclose([view.up, view.turn[:, 2]], [up, up])
        assert_allclose(view.turn @ view.turn.T, np.eye(3), atol=1e-12)
        poses = scene.poses(q)
        points = [p.vertices @ pose[p.link, :3, :3].T + pose[p.link, :3, 3] for p in scene.parts for pose in poses]
        points = np.concatenate([*points, line_ends(poses, scene.joints).reshape(-1, 3)])
        rays, axis = points - view.eye, (view.target - view.eye) / np.linalg.norm(view.target - view.eye)
        off = np.arccos(rays @ axis / np.linalg.norm(rays, axis=1))
        assert FIELD_OF_VIEW / 4 < off.max() < FIELD_OF_VIEW / 2
        assert (points @ up).min() > view.ground @ up - 1e-9 and view.ground @ up <= 0
        assert view.eye @ up > view.ground @ up


@pytest.mark.filterwarnings("ignore:.*mass matrix is singular")  # there is nothing to simulate
def test_sliders_and_limits_of_coupled_joints():
    text = ARM.replace(
        '<axis xyz="0 1 0"/></joint>', '<axis xyz="0 1 0"/><mimic joint="turn" multiplier="-2"/></joint>'
    )
    text = text.replace(
        "</robot>",
        """<link name="finger"/><joint name="close" type="prismatic"><parent link="flange"/><child link="finger"/>
        <limit lower="0.01" upper="0.04" velocity="1" effort="20"/></joint></robot>""",
    )
    chain = jaxdyn.io.loads(text)
    assert chain.nv == 2 and chain.n == 3
    assert slider_ranges(chain) == [("turn", 0, -2.0, 2.0), ("close", 1, 0.01, 0.04)]
    assert_allclose(start_configuration(chain), [0, 0.01])
    assert_allclose(sliding_coordinates(chain), [False, True])
    assert_allclose(effort_limits(chain), [np.inf, 20])


def test_notes_on_forces_are_hidden_when_a_robot_is_shown(tmp_path):
    """Warnings are errors in tests; `load` warns that the contacts of this model are omitted."""
    pytest.importorskip("mujoco", reason="MJCF is read by MuJoCo, of the extra mjcf")
    path = tmp_path / "shapes.xml"
    path.write_text(SHAPES)
    options = argparse.Namespace(model=str(path), lock=[], tip=None, floating_base=False, collision=False, package=[])
    _, shapes, notes = read_robot(options)
    assert len(shapes) == 6 and not notes

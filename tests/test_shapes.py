"""Inertias of links from the shapes of a description without inertials."""

import numpy as np
import pytest

import jaxdyn
from jaxdyn.io import Geometry, read_geometry, with_inertias_of_shapes
from jaxdyn.spatial import solids

URDF = """<robot name="arm">
  <link name="base"><collision><geometry><box size="1 1 1"/></geometry></collision></link>
  <link name="upper">
    <collision><origin xyz="0 0 0.2" rpy="0 1.5707963267948966 0"/>
      <geometry><cylinder radius="0.05" length="0.4"/></geometry></collision>
    <collision><origin xyz="0.1 0 0"/><geometry><sphere radius="0.06"/></geometry></collision>
  </link>
  <link name="fore"><inertial><mass value="2"/><inertia ixx="0.1" iyy="0.1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial>
    <collision><geometry><box size="0.1 0.2 0.3"/></geometry></collision>
  </link>
  <link name="tool"><collision><origin xyz="0 0 0.1"/><geometry><box size="0.1 0.1 0.2"/></geometry></collision></link>
  <joint name="shoulder" type="continuous"><parent link="base"/><child link="upper"/><axis xyz="0 1 0"/></joint>
  <joint name="elbow" type="continuous"><parent link="upper"/><child link="fore"/><origin xyz="0 0 0.4"/>
    <axis xyz="0 1 0"/></joint>
  <joint name="flange" type="fixed"><parent link="fore"/><child link="tool"/><origin xyz="0 0 0.3"/></joint>
</robot>"""


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "arm.urdf"
    file.write_text(URDF)
    return file


def test_links_get_the_inertias_of_their_shapes(path):
    chain = jaxdyn.load(path, ignore_inertials=True)
    shapes, _ = read_geometry(path, collision=True)
    made = with_inertias_of_shapes(chain, shapes, 1000.0)
    turn = np.array([[0, 0, 1, 0], [0, 1, 0, 0], [-1, 0, 0, 0.2], [0, 0, 0, 1]])
    at = lambda x, y, z: np.array([[1, 0, 0, x], [0, 1, 0, y], [0, 0, 1, z], [0, 0, 0, 1.0]])
    upper = solids.cylinder(1000 * np.pi * 0.05**2 * 0.4, 0.05, 0.4, turn)
    upper = upper + solids.sphere(1000 * 4 / 3 * np.pi * 0.06**3, 0.06, at(0.1, 0, 0))
    fore = solids.box(6.0, (0.1, 0.2, 0.3)) + solids.box(
        2.0, (0.1, 0.1, 0.2), at(0, 0, 0.4)
    )  # the tool is fused into it
    np.testing.assert_allclose(made.inertia, np.array([upper, fore]), rtol=1e-12, atol=1e-13)
    assert float(jaxdyn.mass_matrix(made, np.zeros(2)).min()) > 0


def test_links_with_a_mass_keep_it_unless_told(path):
    chain = jaxdyn.load(path)
    shapes, _ = read_geometry(path, collision=True)
    made = with_inertias_of_shapes(chain, shapes, 1000.0)
    np.testing.assert_array_equal(made.inertia[1], chain.inertia[1])
    assert made.inertia[0, 0] > 0
    assert float(with_inertias_of_shapes(chain, shapes, 1000.0, keep_given=False).inertia[1, 0]) == pytest.approx(8.0)


def test_meshes_capsules_and_ellipsoids_get_the_inertias_of_solids(tmp_path, path):
    trimesh = pytest.importorskip("trimesh")
    chain = jaxdyn.load(path, ignore_inertials=True)
    trimesh.creation.box((0.2, 0.4, 0.6)).export(tmp_path / "half.stl")
    mesh = Geometry("upper", "mesh", np.eye(4), (2.0, 1.0, 0.5), file=tmp_path / "half.stl")
    shapes = [
        mesh,
        Geometry("fore", "capsule", np.eye(4), (0.1, 0.1, 0.3)),
        Geometry("fore", "ellipsoid", np.eye(4), (0.1, 0.2, 0.3)),
    ]
    made = np.asarray(with_inertias_of_shapes(chain, shapes, 800.0).inertia)
    np.testing.assert_allclose(made[0], solids.box(800 * 0.4 * 0.4 * 0.3, (0.4, 0.4, 0.3)), rtol=1e-6, atol=1e-9)
    round_ = solids.capsule(800 * (np.pi * 0.01 * 0.3 + 4 / 3 * np.pi * 0.001), 0.1, 0.3)
    egg = solids.ellipsoid(800 * 4 / 3 * np.pi * 0.006, (0.1, 0.2, 0.3))
    np.testing.assert_allclose(made[1], round_ + egg, rtol=1e-12, atol=1e-15)


def test_shapes_without_volume_or_known_link_are_refused(path):
    chain = jaxdyn.load(path, ignore_inertials=True)
    box = Geometry("elbow_cover", "box", np.eye(4), (1.0, 1.0, 1.0))
    with pytest.raises(jaxdyn.ModelError, match="unknown link or frame 'elbow_cover'"):
        with_inertias_of_shapes(chain, [box], 1000.0)
    with pytest.raises(jaxdyn.ModelError, match="must be positive"):
        with_inertias_of_shapes(chain, [], 0.0)
    flat = (np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]]), np.array([[0, 1, 2]]))
    with pytest.raises(jaxdyn.ModelError, match="does not enclose a volume"):
        with_inertias_of_shapes(chain, [Geometry("fore", "mesh", np.eye(4), (1.0, 1.0, 1.0), triangles=flat)], 1.0)
    with pytest.raises(jaxdyn.ModelError, match="neither a file nor triangles"):
        with_inertias_of_shapes(chain, [Geometry("fore", "mesh", np.eye(4), (1.0, 1.0, 1.0))], 1.0)

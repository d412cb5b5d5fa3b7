"""Chains from screws and from Denavit-Hartenberg tables, and the inertias of solids."""

import functools

import jax
import jax.numpy as jnp
import modern_robotics as mr
import numpy as np
import pytest
from scipy.linalg import expm

import jaxdyn
from helpers import compiled, random_inertia, random_rotation, relative
from jaxdyn import Topology, from_dh, from_screws, textbook
from jaxdyn.model.build import check_inertia
from jaxdyn.spatial import solids
from jaxdyn.spatial.inertia import pseudo_inertia, spatial_inertia, transform_inertial_parameters

# The three-link example in the docstrings of modern_robotics, with the numbers printed there
M01 = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0.089159], [0, 0, 0, 1]])
M12 = np.array([[0, 0, 1, 0.28], [0, 1, 0, 0.13585], [-1, 0, 0, 0], [0, 0, 0, 1]])
M23 = np.array([[1, 0, 0, 0], [0, 1, 0, -0.1197], [0, 0, 1, 0.395], [0, 0, 0, 1]])
M34 = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0.14225], [0, 0, 0, 1]])
INERTIAS = np.array(
    [
        np.diag([0.010267, 0.010267, 0.00666, 3.7, 3.7, 3.7]),
        np.diag([0.22689, 0.22689, 0.0151074, 8.393, 8.393, 8.393]),
        np.diag([0.0494433, 0.0494433, 0.004095, 2.275, 2.275, 2.275]),
    ]
)
SCREWS = np.array([[1, 0, 1, 0, 1, 0], [0, 1, 0, -0.089, 0, 0], [0, 1, 0, -0.089, 0, 0.425]])
SCALE = np.array(
    [np.sqrt(2), 1, 1]
)  # the first screw there has |w| = sqrt 2: its joint turns sqrt 2 q, and tau / sqrt 2
HOME = np.array([M01, M01 @ M12, M01 @ M12 @ M23])
TIP = HOME[-1] @ M34
Q, QD, QDD = np.array([0.1, 0.1, 0.1]), np.array([0.1, 0.2, 0.3]), np.array([2, 1.5, 1])
DOWN = np.array([0, 0, -9.8])


@pytest.fixture(scope="module")
def documented():
    return from_screws(SCREWS / SCALE[:, None], HOME, INERTIAS, tip_pose=TIP, gravity=DOWN)


def scaled(*states):
    return (jnp.asarray(SCALE * x) for x in states)


def random_pose(rng):
    t = np.eye(4)
    t[:3, :3], t[:3, 3] = random_rotation(rng), rng.normal(size=3) * 0.4
    return t


def cross_matrix(v):
    return np.array([[0, -v[2], v[1]], [v[2], 0, -v[0]], [-v[1], v[0], 0]])


def motion(screw, q):
    """exp([S] q) by scipy."""
    return expm(np.block([[cross_matrix(screw[:3]), screw[3:, None]], [np.zeros((1, 4))]]) * q)


def test_from_screws_gives_the_numbers_printed_in_modern_robotics(documented):
    mass = np.asarray(compiled.mass_matrix(documented, *scaled(Q))) * np.outer(SCALE, SCALE)
    printed = [
        [2.25433380e01, -3.07146754e-01, -7.18426391e-03],
        [-3.07146754e-01, 1.96850717e00, 4.32157368e-01],
        [-7.18426391e-03, 4.32157368e-01, 1.91630858e-01],
    ]
    np.testing.assert_allclose(mass, printed, rtol=0, atol=5e-8)
    coriolis = np.asarray(jaxdyn.coriolis_force(documented, *scaled(Q, QD))) * SCALE
    np.testing.assert_allclose(coriolis, [0.26453118, -0.05505157, -0.00689132], rtol=0, atol=5e-9)
    gravity = np.asarray(compiled.gravity_force(documented, *scaled(Q))) * SCALE
    np.testing.assert_allclose(gravity, [28.40331262, -37.64094817, -5.4415892], rtol=0, atol=5e-8)
    tau = compiled.inverse_dynamics(documented, *scaled(Q, QD, QDD), wrench_by_tip=jnp.ones(6))
    np.testing.assert_allclose(tau * SCALE, [74.69616155, -33.06766016, -3.23057314], rtol=0, atol=5e-8)


def test_from_screws_agrees_with_modern_robotics_to_rounding(documented):
    between = np.array([M01, M12, M23, M34])
    exact = mr.InverseDynamics(Q, QD, QDD, DOWN, np.ones(6), between, INERTIAS, SCREWS.T)
    tau = compiled.inverse_dynamics(documented, *scaled(Q, QD, QDD), wrench_by_tip=jnp.ones(6))
    assert relative(tau * SCALE, exact) < 1e-12
    (q,) = scaled(Q)
    assert relative(compiled.frame_pose(documented, q), mr.FKinSpace(TIP, SCREWS.T, Q)) < 1e-12


def test_from_screws_gives_the_pose_of_the_book_for_all_kinds_of_joints():
    """FKinSpace's printed example: a revolute, a prismatic and a helical joint (pitch 0.1 m/rad)."""
    home = np.array([[-1, 0, 0, 0], [0, 1, 0, 6], [0, 0, -1, 2], [0, 0, 0, 1]])
    screws = [[0, 0, 1, 4, 0, 0], [0, 0, 0, 0, 1, 0], [0, 0, -1, -6, 0, -0.1]]
    chain = from_screws(screws, [np.eye(4), np.eye(4), home], np.tile(np.eye(6), (3, 1, 1)), tip_pose=home)
    pose = compiled.frame_pose(chain, jnp.array([np.pi / 2, 3, np.pi]))
    exact = [[0, 1, 0, -5], [1, 0, 0, 4], [0, 0, -1, 2 - 0.1 * np.pi], [0, 0, 0, 1]]
    np.testing.assert_allclose(pose, exact, rtol=0, atol=1e-12)


def general_chain(rng, n=4, **leaves):
    screws = rng.normal(size=(n, 6))
    screws[:, :3] /= np.linalg.norm(screws[:, :3], axis=1, keepdims=True)
    home = np.array([random_pose(rng) for _ in range(n)])
    inertia = np.array([random_inertia(rng) for _ in range(n)])
    return screws, home, inertia, from_screws(screws, home, inertia, **leaves)


def test_from_screws_poses_are_products_of_exponentials_and_link_frames_the_given_ones():
    rng = np.random.default_rng(1)
    screws, home, inertia, chain = general_chain(rng)
    q = rng.normal(size=4)
    poses, product = compiled.forward_kinematics(chain, jnp.asarray(q)), np.eye(4)
    for i in range(4):
        product = product @ motion(screws[i], q[i])
        assert relative(poses[i], product @ home[i]) < 1e-12
    np.testing.assert_array_equal(chain.inertia, inertia)
    assert relative(compiled.forward_kinematics(chain, jnp.zeros(4)), home) < 1e-12


def test_from_screws_takes_spatial_inertias_off_the_centre_of_mass():
    rng = np.random.default_rng(2)
    screws, home, inertia, _ = general_chain(rng)
    matrices = np.array([spatial_inertia(jnp.asarray(x)) for x in inertia])
    np.testing.assert_array_equal(from_screws(screws, home, matrices).inertia, inertia)
    assert np.abs(matrices[:, :3, 3:]).max() > 1e-3


def test_from_screws_builds_chains_and_forwards_the_other_leaves():
    rng = np.random.default_rng(3)
    screws, home, _, chain = general_chain(
        rng,
        armature=[1, 2, 3, 4],
        topology=Topology.serial(4, joint_names=list("abcd")),
        frames={"tool": (1, np.eye(4))},
    )
    q = rng.normal(size=4)
    e = [motion(s, x) for s, x in zip(screws, q, strict=True)]
    steps = []  # T_pi(q) of every link in its parent, from the chain's leaves
    for r, p, screw, x in zip(chain.rotation, chain.translation, chain.screw, q, strict=True):
        steps.append(np.block([[np.asarray(r), np.asarray(p)[:, None]], [np.eye(4)[3]]]) @ motion(np.asarray(screw), x))
    assert relative(steps[0] @ steps[1], e[0] @ e[1] @ home[1]) < 1e-12
    assert relative(steps[0] @ steps[1] @ steps[2] @ steps[3], e[0] @ e[1] @ e[2] @ e[3] @ home[3]) < 1e-12
    assert chain.topology.parents == (-1, 0, 1, 2)
    assert chain.joint_names == ("a", "b", "c", "d") and chain.frame_names == ("tool",)
    np.testing.assert_array_equal(chain.armature, [1, 2, 3, 4])


UNIT = np.tile(np.eye(6), (3, 1, 1))
EYES = np.tile(np.eye(4), (3, 1, 1))


def spoilt(matrix, index, value):
    x = np.array(matrix, float)
    x[index] = value
    return x


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("transpose", (np.zeros((6, 3)), EYES, UNIT)),
        ("(n, 6)", (np.zeros((3, 5)), EYES, UNIT)),
        ("home_poses has shape", (SCREWS[1:], EYES, UNIT)),
        ("home pose 2 is not a rotation", (SCREWS, spoilt(EYES, (1, 0, 0), -1), UNIT)),
        ("home pose 3 is not a homogeneous", (SCREWS, spoilt(EYES, (2, 3, 0), 1), UNIT)),
        ("spatial_inertias has shape", (SCREWS, EYES, UNIT[:2])),
        ("upper left block of the spatial inertia of link 2 is not", (SCREWS, EYES, spoilt(UNIT, (1, 0, 1), 0.1))),
        ("lower right block of the spatial inertia of link 3 is not", (SCREWS, EYES, spoilt(UNIT, (2, 3, 3), 2))),
        (
            "upper right block of the spatial",
            (SCREWS, EYES, spoilt(spoilt(UNIT, (0, 0, 3), 0.1), (0, 3, 0), 0.1)),
        ),
        ("length 1.41421", (SCREWS, EYES, UNIT)),
    ],
)
def test_from_screws_refuses_impossible_arguments(message, arguments):
    with pytest.raises(jaxdyn.ModelError) as error:
        from_screws(*arguments)
    assert message in str(error.value)


def test_from_screws_refuses_a_bad_tip_and_bad_parents():
    with pytest.raises(jaxdyn.ModelError, match="tip_pose has shape"):
        from_screws(SCREWS / SCALE[:, None], EYES, UNIT, tip_pose=np.eye(3))
    cases = [(parents, "are not a tree") for parents in ([0, -1, 1], [-1, 2, 0], [-1, 1, 0], [-2, 0, 1])]
    for parents, message in [([-1, 0], "2 parents, but there are 3 screws"), *cases]:
        with pytest.raises(jaxdyn.ModelError, match=message):
            from_screws(SCREWS / SCALE[:, None], EYES, UNIT, topology=Topology(parents))


def test_from_screws_builds_trees():
    rng = np.random.default_rng(9)
    screws, home, _, chain = general_chain(rng, topology=Topology((-1, 0, 0, 1)))
    assert chain.topology.parents == (-1, 0, 0, 1) and chain.topology.tip_name is None
    q = rng.normal(size=4)
    e = [motion(s, x) for s, x in zip(screws, q, strict=True)]
    poses = compiled.forward_kinematics(chain, jnp.asarray(q))
    for i, path in enumerate(([0], [0, 1], [0, 2], [0, 1, 3])):
        assert relative(poses[i], functools.reduce(np.matmul, [e[j] for j in path]) @ home[i]) < 1e-12


def rot(axis, angle):
    t = np.eye(4)
    t[:3, :3] = expm(cross_matrix(np.eye(3)[axis]) * angle)
    return t


def trans(axis, distance):
    t = np.eye(4)
    t[axis, 3] = distance
    return t


def dh_product(convention, a, alpha, d, theta):
    if convention == "standard":
        return rot(2, theta) @ trans(2, d) @ trans(0, a) @ rot(0, alpha)
    return rot(0, alpha) @ trans(0, a) @ rot(2, theta) @ trans(2, d)


@pytest.mark.parametrize("convention", ["standard", "modified"])
def test_from_dh_poses_are_the_products_of_the_table(convention):
    rng = np.random.default_rng(4)
    types, n = "RPRRPR", 6
    a, alpha, d, theta, q = rng.normal(size=(5, n))
    base, tool = random_pose(rng), random_pose(rng)
    chain = from_dh(
        a,
        alpha,
        d,
        theta,
        convention=convention,
        joint_types=types,
        inertia=[random_inertia(rng) for _ in range(n)],
        base_pose=base,
        tool_pose=tool,
    )
    poses, product = compiled.forward_kinematics(chain, jnp.asarray(q)), base
    for i, kind in enumerate(types):
        moved = (d[i], theta[i] + q[i]) if kind == "R" else (d[i] + q[i], theta[i])
        product = product @ dh_product(convention, a[i], alpha[i], *moved)
        assert relative(poses[i], product) < 1e-12
    assert relative(compiled.frame_pose(chain, jnp.asarray(q), "tool"), product @ tool) < 1e-12
    assert chain.topology.tip_name == "tool"


@pytest.mark.ci
def test_standard_and_modified_tables_of_one_arm_have_the_same_dynamics():
    """Frame i of the modified table lies at joint i, that of the standard one at joint i + 1; the bodies are the
    same."""
    rng = np.random.default_rng(5)
    n = 4
    a, alpha, d, theta, q, qd = rng.normal(size=(6, n))
    standard = [random_inertia(rng) for _ in range(n)]
    # the modified table of the same axes: a_0 = alpha_0 = 0, then the standard a_i and alpha_i move to row i + 1
    shifted = [np.concatenate([[0.0], x[:-1]]) for x in (a, alpha)]
    end = [jnp.asarray(dh_product("standard", a[i], alpha[i], 0, 0)) for i in range(n)]  # standard frame i in modified
    modified = [transform_inertial_parameters(t, jnp.asarray(x)) for t, x in zip(end, standard, strict=True)]
    one = from_dh(a, alpha, d, theta, inertia=standard)
    two = from_dh(*shifted, d, theta, inertia=modified, convention="modified")
    q, qd = jnp.asarray(q), jnp.asarray(qd)
    mass_matrix, bias_force = jax.jit(jaxdyn.mass_matrix), jax.jit(jaxdyn.bias_force)
    assert relative(mass_matrix(one, q), mass_matrix(two, q)) < 1e-12
    assert relative(bias_force(one, q, qd), bias_force(two, q, qd)) < 1e-12


@pytest.mark.ci
def test_from_dh_of_the_planar_arm_is_the_textbook_one():
    arm = textbook.planar_elbow(m1=1.2, m2=0.8, l1=0.7, l2=0.5, lc1=0.3, lc2=0.2, i1=0.05, i2=0.03)
    lengths = (0.7, 0.5)  # a standard DH frame sits at the far end of its link
    back = [transform_inertial_parameters(jnp.asarray(trans(0, -x)), arm.inertia[i]) for i, x in enumerate(lengths)]
    chain = from_dh([0.7, 0.5], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0], inertia=back, gravity=(0, -9.81, 0))
    q = jnp.array([0.3, -0.8])
    gravity_force = jax.jit(jaxdyn.gravity_force)
    assert relative(gravity_force(chain, q), gravity_force(arm, q)) < 1e-12
    tau = jax.jit(jaxdyn.inverse_dynamics)
    assert relative(tau(chain, q, q, q), tau(arm, q, q, q)) < 1e-12


@pytest.mark.parametrize(
    ("message", "table", "options"),
    [
        ("column alpha has shape (3,)", ([1, 1], [0, 0, 0], [0, 0], [0, 0]), {}),
        ("3 joint types (RRR)", ([1, 1], [0, 0], [0, 0], [0, 0]), {"joint_types": "RRR"}),
        ("unknown joint type 'H'", ([1, 1], [0, 0], [0, 0], [0, 0]), {"joint_types": "RH"}),
        ("base_pose is not a rotation", ([1, 1], [0, 0], [0, 0], [0, 0]), {"base_pose": np.diag([1, 1, -1, 1.0])}),
        ("tool_pose has shape", ([1, 1], [0, 0], [0, 0], [0, 0]), {"tool_pose": np.eye(3)}),
    ],
)
def test_from_dh_refuses_impossible_tables(message, table, options):
    with pytest.raises(jaxdyn.ModelError) as error:
        from_dh(*table, inertia=np.tile(np.eye(10)[0], (2, 1)), **options)
    assert message in str(error.value)


def integrate(density_mass, inside, extent, pose, cells=48):
    """Ten parameters by the midpoint rule over a grid of the solid's bounding box."""
    axes = [(np.arange(cells) + 0.5) / cells * 2 * e - e for e in extent]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    points = points[inside(points)] @ pose[:3, :3].T + pose[:3, 3]
    second = points.T @ points / len(points)
    io = density_mass * (np.trace(second) * np.eye(3) - second)
    first = density_mass * points.mean(axis=0)
    return np.array([density_mass, *first, io[0, 0], io[0, 1], io[1, 1], io[0, 2], io[1, 2], io[2, 2]])


SOLIDS = {
    "box": (lambda t: solids.box(1.4, (0.3, 0.5, 0.2), pose=t), lambda p: p[:, 0] < 9, (0.15, 0.25, 0.1)),
    "sphere": (lambda t: solids.sphere(1.4, 0.3, pose=t), lambda p: (p**2).sum(1) < 0.09, (0.3, 0.3, 0.3)),
    "cylinder": (
        lambda t: solids.cylinder(1.4, 0.2, 0.6, pose=t),
        lambda p: p[:, 0] ** 2 + p[:, 1] ** 2 < 0.04,
        (0.2, 0.2, 0.3),
    ),
    "rod": (lambda t: solids.rod(1.4, 0.6, pose=t), lambda p: p[:, 0] < 9, (1e-9, 1e-9, 0.3)),
    "ellipsoid": (
        lambda t: solids.ellipsoid(1.4, (0.3, 0.2, 0.5), pose=t),
        lambda p: ((p / np.array([0.3, 0.2, 0.5])) ** 2).sum(1) < 1,
        (0.3, 0.2, 0.5),
    ),
    "cone": (
        lambda t: solids.cone(1.4, 0.3, 0.8, pose=t),
        lambda p: np.hypot(p[:, 0], p[:, 1]) < 0.3 * (0.6 - p[:, 2]) / 0.8 * (p[:, 2] > -0.2),
        (0.3, 0.3, 0.6),
    ),
    "hollow_cylinder": (
        lambda t: solids.hollow_cylinder(1.4, 0.1, 0.2, 0.6, pose=t),
        lambda p: (np.hypot(p[:, 0], p[:, 1]) < 0.2) & (np.hypot(p[:, 0], p[:, 1]) > 0.1),
        (0.2, 0.2, 0.3),
    ),
    "capsule": (
        lambda t: solids.capsule(1.4, 0.2, 0.5, pose=t),
        lambda p: p[:, 0] ** 2 + p[:, 1] ** 2 + np.maximum(np.abs(p[:, 2]) - 0.25, 0) ** 2 < 0.04,
        (0.2, 0.2, 0.45),
    ),
}


@pytest.mark.parametrize("name", SOLIDS)
def test_solids_equal_their_numerical_integrals(name):
    make, inside, extent = SOLIDS[name]
    pose = random_pose(np.random.default_rng(6))
    numerical = integrate(1.4, inside, extent, pose)
    np.testing.assert_allclose(make(pose), numerical, rtol=0, atol=3e-3 * np.abs(numerical).max())
    check_inertia(name, make(pose))


def test_solids_equal_the_formulas_of_handbooks():
    m, a, b, c = 2.0, 0.3, 0.5, 0.7
    moments = m / 12 * np.array([b * b + c * c, 0, a * a + c * c, 0, 0, a * a + b * b])
    np.testing.assert_allclose(solids.box(m, (a, b, c)), [m, 0, 0, 0, *moments], rtol=1e-13, atol=1e-16)
    np.testing.assert_allclose(solids.sphere(m, a)[4:], 0.4 * m * a * a * np.array([1, 0, 1, 0, 0, 1]), rtol=1e-13)
    across, axial = m * (3 * a * a + b * b) / 12, m * a * a / 2
    np.testing.assert_allclose(solids.cylinder(m, a, b)[4:], [across, 0, across, 0, 0, axial], rtol=1e-13)
    slender = m * b * b / 12
    np.testing.assert_allclose(solids.rod(m, b, axis=(0, 5, 0))[4:], [slender, 0, 0, 0, 0, slender], rtol=1e-13)
    np.testing.assert_allclose(solids.point(m, (a, b, c))[:4], [m, m * a, m * b, m * c], rtol=1e-13)
    np.testing.assert_allclose(
        solids.point(m, (a, b, c))[4:],
        m * np.array([b * b + c * c, -a * b, a * a + c * c, -a * c, -b * c, a * a + b * b]),
        rtol=1e-13,
    )


def test_solids_pose_is_the_parallel_axis_theorem():
    pose = random_pose(np.random.default_rng(7))
    moved = transform_inertial_parameters(jnp.asarray(pose), solids.box(1.3, (0.1, 0.2, 0.3)))
    assert relative(solids.box(1.3, (0.1, 0.2, 0.3), pose=pose), moved) < 1e-12


def test_solids_equal_their_exact_integrals():
    """By SymPy: the integrals of rho (y^2 + z^2), to rounding, of ellipsoid, cone, tube and capsule."""
    import sympy

    r, z = sympy.Symbol("r", positive=True), sympy.Symbol("z", real=True)

    def moments(limit, lower, upper):
        """Volume, mean of z, axial and transverse inertia of a body of revolution with the radius limit(z)."""
        ring = lambda f: sympy.integrate(
            sympy.integrate(f * 2 * sympy.pi * r, (r, limit[0], limit[1])), (z, lower, upper)
        )
        volume = ring(sympy.Integer(1))
        return [float(x) for x in (volume, ring(z) / volume, ring(r**2), ring(r**2 / 2 + z**2))]

    half, fifth = sympy.Rational(1, 2), sympy.Rational(1, 5)
    tube = moments((half / 5, half), -1, 1)
    cone = moments((0, (3 * fifth - z) / 2), -fifth, 3 * fifth)
    egg = moments((0, half * sympy.sqrt(1 - z**2)), -1, 1)
    cap, inside = moments((0, sympy.sqrt(half**2 - z**2)), 0, half), moments((0, half), -1, 1)
    # half spheres whose flat sides are at z = 1: int (z + 1)^2 = int z^2 + 2 int z + volume
    lifted = cap[3] + 2 * cap[0] * cap[1] + cap[0]
    capsule = [inside[0] + 2 * cap[0], 0, inside[2] + 2 * cap[2], inside[3] + 2 * lifted]
    for made, (volume, mean, axial, across) in (
        (solids.hollow_cylinder(1.0, 0.1, 0.5, 2.0), tube),
        (solids.cone(1.0, 0.4, 0.8), cone),
        (solids.ellipsoid(1.0, (0.5, 0.5, 1.0)), egg),
        (solids.capsule(1.0, 0.5, 2.0), capsule),
    ):
        assert abs(mean) < 1e-15
        expected = [1, 0, 0, 0, across / volume, 0, across / volume, 0, 0, axial / volume]
        np.testing.assert_allclose(made, expected, rtol=1e-13, atol=1e-16)


def test_meshes_of_a_box_are_the_box_and_clouds_the_sum_of_their_points():
    """A box of triangles is the box, wherever it is; a cloud is the sum of its points; and what is inside out is turned."""
    from jaxdyn.view.scene import box

    vertices, faces = box((0.4, 0.2, 0.6))
    pose = random_pose(np.random.default_rng(9))
    volume = 0.4 * 0.2 * 0.6
    expected = solids.box(1200 * volume, (0.4, 0.2, 0.6), pose=pose)
    np.testing.assert_allclose(solids.mesh(vertices, faces, 1200.0, pose=pose), expected, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(
        solids.mesh(vertices, faces[:, ::-1], 1200.0, pose=pose), expected, rtol=1e-12, atol=1e-13
    )
    moved = vertices @ pose[:3, :3].T + pose[:3, 3]
    np.testing.assert_allclose(solids.mesh(moved, faces, 1200.0), expected, rtol=1e-11, atol=1e-12)
    rng = np.random.default_rng(3)
    masses, points = rng.uniform(0.1, 1, 7), rng.normal(size=(7, 3))
    cloud = sum(np.asarray(solids.point(m, p, pose=pose)) for m, p in zip(masses, points, strict=True))
    np.testing.assert_allclose(solids.point_cloud(masses, points, pose=pose), cloud, rtol=1e-12, atol=1e-13)


def test_a_box_is_the_sum_of_its_halves():
    whole = solids.box(2.0, (0.4, 0.2, 0.3))
    halves = sum(solids.box(1.0, (0.2, 0.2, 0.3), pose=trans(0, x)) for x in (-0.1, 0.1))
    np.testing.assert_allclose(halves, whole, rtol=1e-13, atol=1e-16)


def test_solids_differentiate_batch_and_keep_float32():
    radius = jnp.array([0.1, 0.2])
    slope = jax.vmap(jax.grad(lambda r: solids.sphere(3.0, r)[4]))(radius)
    np.testing.assert_allclose(slope, 0.8 * 3.0 * radius, rtol=1e-13)
    assert solids.cylinder(jnp.float32(1), jnp.float32(2), jnp.float32(3)).dtype == jnp.float32
    densities = jax.jit(jax.vmap(lambda s: solids.box(1.0, s)))(jnp.ones((5, 3)))
    assert densities.shape == (5, 10)
    assert np.linalg.eigvalsh(np.asarray(pseudo_inertia(densities[0]))).min() > 0


def test_a_dh_table_without_inertias_gives_massless_links():
    chain = from_dh([0.4, 0.3], [0.0, 0.0], [0.1, 0.0], [0.0, 0.5])
    assert not np.any(chain.inertia)
    full = from_dh(
        [0.4, 0.3], [0.0, 0.0], [0.1, 0.0], [0.0, 0.5], inertia=np.tile([1, 0, 0, 0, 0.1, 0, 0.1, 0, 0, 0.1], (2, 1))
    )
    np.testing.assert_array_equal(chain.translation, full.translation)

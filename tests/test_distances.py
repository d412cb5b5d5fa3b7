"""Signed distances and closest points of shapes against coal, MuJoCo, central differences and closed forms."""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxdyn
from helpers import random_chain
from jaxdyn.geometry import Fixed, Shapes, closest_points, distances
from jaxdyn.spatial.so3 import rotation_exp

coal = pytest.importorskip("coal")
EXACT = ("sphere", "capsule", "box", "cylinder", "plane")
OFTEN = {("sphere", "box"), ("sphere", "plane"), ("capsule", "capsule"), ("capsule", "cylinder"), ("box", "plane")}
EXACT_PAIRS = [
    pytest.param((a, b), marks=() if (a, b) in OFTEN else pytest.mark.nightly)
    for a, b in itertools.product(EXACT, EXACT)
    if {a, b} != {"plane"} and not {a, b} <= {"box", "cylinder"}
]
SIZES = {"sphere": (0, 0, 0), "capsule": (0, 0, 0.3), "box": (0.2, 0.3, 0.1), "plane": (0, 0, 0)}
SIZES["cylinder"] = 0.2, 0.2, 0.3


@functools.cache
def one_link() -> jaxdyn.Chain:
    return random_chain(1)


def two_shapes(kinds, count, seed=0, reach=0.8):
    """Random poses of two shapes, one on the base, and one on a link; sizes and radii are random about `SIZES`."""
    rng = np.random.default_rng(seed)
    pose = np.tile(np.eye(4), (count, 2, 1, 1))
    pose[..., :3, :3] = Rotation.random(2 * count, random_state=seed).as_matrix().reshape(count, 2, 3, 3)
    pose[..., :3, 3] = rng.uniform(-reach, reach, (count, 2, 3)) / 2
    size = round_about_z(kinds, np.array([SIZES[kind] for kind in kinds]) * rng.uniform(0.3, 1.5, (count, 2, 3)))
    radius = np.array([{"sphere": 0.2, "capsule": 0.1}.get(kind, 0.0) for kind in kinds]) * rng.uniform(
        0.5, 1.5, (count, 2)
    )
    return pose, size, radius


def round_about_z(kinds, size):
    size[..., 1] = np.where(np.array(kinds) == "cylinder", size[..., 0], size[..., 1])
    return size


@functools.cache
def program(kinds, function):
    """The function for two shapes on bodies that coincide, for each row of the leaves."""
    fixed = Fixed(tuple(kinds), (-1, 0), ("a", "b"), ((0, 1),))
    leaves = jnp.eye(3)[None], jnp.zeros((1, 3))
    chain = eqx.tree_at(lambda c: (c.rotation, c.translation), one_link(), leaves)
    return jax.jit(jax.vmap(lambda *leaves: function(chain, Shapes(*leaves, (), fixed), jnp.zeros(1))))


def on_two_bodies(kinds, pose, size, radius, function=closest_points):
    return program(tuple(kinds), function)(pose, size, radius)


def slopes(chain, shapes, q):
    return jax.grad(lambda shapes: distances(chain, shapes, q)[0])(shapes)


def in_coal(kind, size, radius):
    if kind == "sphere":
        return coal.Sphere(radius)
    if kind == "capsule":
        return coal.Capsule(radius, 2 * size[2])
    if kind == "box":
        return coal.Box(*(2 * size))
    if kind == "cylinder":
        return coal.Cylinder(size[0], 2 * size[2])
    return coal.Halfspace(np.array([0.0, 0.0, 1.0]), 0.0)


def by_coal(kinds, pose, size, radius):
    request, found = coal.DistanceRequest(), []
    request.gjk_tolerance = request.epa_tolerance = 1e-10
    request.gjk_max_iterations = request.epa_max_iterations = 500
    for t, s, r in zip(pose, size, radius, strict=True):
        shapes = [in_coal(*x) for x in zip(kinds, s, r, strict=True)]
        placed = [coal.Transform3s(x[:3, :3], x[:3, 3]) for x in t]
        result = coal.DistanceResult()
        found.append(coal.distance(shapes[0], placed[0], shapes[1], placed[1], request, result))
    return np.array(found)


@pytest.mark.parametrize("kinds", EXACT_PAIRS, ids="-".join)
def test_distances_are_those_of_coal(kinds):
    pose, size, radius = two_shapes(kinds, 1000)
    found = on_two_bodies(kinds, pose, size, radius)
    truth = by_coal(kinds, pose, size, radius)
    apart = truth > 0
    assert 100 < apart.sum() < 1000 - 50
    # where coal's own iterations converge: it is exact for pairs without a box or a cylinder
    shallow = truth > (-np.inf if {"box", "cylinder"}.isdisjoint(kinds) else -0.9 * radius.sum(1))
    np.testing.assert_allclose(found.distance[shallow, 0], truth[shallow], atol=1e-9)
    check_points(kinds, pose, size, radius, found)


def check_points(kinds, pose, size, radius, found):
    """The points are on the surfaces, the second is first + distance * normal, and no plane between them does better."""
    d, first, second, n = (np.asarray(x)[:, 0] for x in found)
    np.testing.assert_allclose(np.linalg.norm(n, axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(first + d[:, None] * n, second, atol=1e-9)
    for side, (kind, x, outward) in enumerate(zip(kinds, (first, second), (n, -n), strict=True)):
        local = np.einsum("kji,kj->ki", pose[:, side, :3, :3], x - pose[:, side, :3, 3])
        normal = np.einsum("kji,kj->ki", pose[:, side, :3, :3], outward)
        core = local - radius[:, side, None] * normal
        if kind == "plane":
            np.testing.assert_allclose(local[:, 2], 0, atol=1e-9)
            continue
        # the point supports its core: all of the core lies behind the plane through it
        np.testing.assert_allclose((core * normal).sum(1), highest(kind, size[:, side], normal), atol=1e-8)
        extent = np.stack([np.hypot(*core.T[:2]), core[:, 2]], 1) if kind == "cylinder" else core
        most = size[:, side, 1:] if kind == "cylinder" else size[:, side]
        assert (np.abs(extent) <= most * (1 + 1e-9) + 1e-9).all()


def highest(kind, size, n):
    """The largest n . x of the points x of a core about its centre."""
    along = np.abs(n) * size
    return np.hypot(n[..., 0], n[..., 1]) * size[..., 0] + along[..., 2] if kind == "cylinder" else along.sum(-1)


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(("capsule", "box"), marks=pytest.mark.ci),
        *(pytest.param((x, "cylinder"), marks=pytest.mark.nightly) for x in ("capsule", "sphere")),
    ],
    ids="-".join,
)
def test_in_overlap_no_direction_separates_better(kinds):
    """All segments enter the other core; gap(n) of every direction is a bound of the distance."""
    pose, size, radius = two_shapes(kinds, 1000, seed=6, reach=0.1)
    found = on_two_bodies(kinds, pose, size, np.zeros_like(radius))
    assert np.mean(found.distance < 0) > 0.95
    check_points(kinds, pose, size, np.zeros_like(radius), found)
    for n in np.random.default_rng(0).normal(size=(4000, 3)):
        n /= np.linalg.norm(n)
        along = (pose[:, 1, :3, 3] - pose[:, 0, :3, 3]) @ n
        for side, kind in enumerate(kinds):
            along -= highest(kind, size[:, side], n @ pose[:, side, :3, :3])
        assert (along <= found.distance[:, 0] + 1e-12).all()


@pytest.mark.parametrize("kinds", [("capsule", "capsule"), ("sphere", "capsule"), ("capsule", "plane")], ids="-".join)
def test_distances_are_those_of_mujoco(kinds):
    pose, size, radius = two_shapes(kinds, 300, seed=3)
    names = {"sphere": "0.1", "capsule": "0.1 0.1", "plane": "1 1 1"}
    geoms = "".join(
        f'<body><geom type="{kind}" size="{names[kind]}"/><joint type="free"/></body>' for kind in kinds[:1]
    )
    geoms += f'<geom type="{kinds[1]}" size="{names[kinds[1]]}"/>'
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{geoms}</worldbody></mujoco>")
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    order = [1, 0] if model.geom_bodyid[0] == 0 else [0, 1]
    found = []
    for t, s, r in zip(pose, size, radius, strict=True):
        for side, geom in enumerate(order):
            data.geom_xpos[geom], data.geom_xmat[geom] = t[side, :3, 3], t[side, :3, :3].reshape(-1)
            model.geom_size[geom] = [r[side], s[side, 2], 1]
        model.geom_rbound[:] = np.where(model.geom_rbound > 0, 5.0, 0.0)
        found.append(mujoco.mj_geomDistance(model, data, *order, 10.0, None))
    ours = on_two_bodies(kinds, pose, size, radius).distance[:, 0]
    np.testing.assert_allclose(ours, found, atol=1e-9)


@pytest.mark.parametrize("kinds", EXACT_PAIRS, ids="-".join)
def test_derivatives_are_those_of_central_differences(kinds):
    pose, size, radius = two_shapes(kinds, 200, seed=1)
    rng = np.random.default_rng(5)
    spin, shift = rng.normal(size=(2, 200, 2, 3))
    change = round_about_z(kinds, size * rng.normal(size=size.shape)), radius * rng.normal(size=radius.shape)

    def along(step, pose, size, radius, spin, shift, stretch, swell):
        turn = jax.vmap(lambda w: rotation_exp(step * w))(spin)
        moved = jax.vmap(lambda t, r, p: t.at[:3, :3].set(t[:3, :3] @ r).at[:3, 3].add(step * p))(pose, turn, shift)
        fixed = Fixed(tuple(kinds), (-1, 0), ("a", "b"), ((0, 1),))
        shapes = Shapes(moved, size + step * stretch, radius + step * swell, (), fixed)
        return distances(one_link(), shapes, jnp.array([0.3]))[0]

    given = (pose, size, radius, spin, shift, *change)
    value = jax.jit(jax.vmap(along, (None, *[0] * 7)))
    exact = jax.jit(jax.vmap(jax.grad(along), (None, *[0] * 7)))(0.0, *given)
    step = 1e-6
    numeric = (value(step, *given) - value(-step, *given)) / (2 * step)
    smooth = np.abs(numeric - (value(step, *given) - value(0.0, *given)) / step) < 1e-3  # not across a kink in overlap
    assert smooth.mean() > 0.97
    np.testing.assert_allclose(np.asarray(exact)[smooth], np.asarray(numeric)[smooth], atol=1e-6)


# a robot


@functools.cache
def robot() -> tuple[jaxdyn.Chain, Shapes]:
    """A random arm of five joints with a shape on each link, a box beside it, and a floor."""
    rng = np.random.default_rng(2)
    chain = random_chain(5, seed=3)
    kinds = ("capsule", "sphere", "box", "capsule", "sphere", "box", "plane")
    links = (0, 1, 2, 3, 4, -1, -1)
    pose = np.tile(np.eye(4), (7, 1, 1))
    pose[:6, :3, :3] = Rotation.random(6, random_state=1).as_matrix()
    pose[:, :3, 3] = rng.normal(size=(7, 3)) * 0.1
    pose[6, 2, 3] = -0.6
    size = np.array([SIZES[kind] for kind in kinds]) / 2
    pairs = tuple(
        (a, b)
        for a, b in itertools.combinations(range(7), 2)
        if links[a] != links[b] and {kinds[a], kinds[b]} != {"box"}
    )
    shapes = Shapes(pose, size, [0.05, 0.08, 0, 0.04, 0.06, 0.01, 0], (), Fixed(kinds, links, tuple("abcdefg"), pairs))
    return chain, shapes


@pytest.fixture(scope="module")
def states():
    return jnp.asarray(np.random.default_rng(0).uniform(-2, 2, (40, 5)))


@pytest.mark.ci
def test_pairs_are_in_the_order_of_the_shapes(states):
    chain, shapes = robot()
    poses = jaxdyn.forward_kinematics(chain, states[0])
    base = np.eye(4) if chain.base_pose is None else np.asarray(chain.base_pose)
    placed = [(poses[link] if link >= 0 else base) @ t for link, t in zip(shapes.links, shapes.pose, strict=True)]
    found = closest_points(chain, shapes, states[0])
    for (a, b), d, first, second, n in zip(shapes.pairs, *found, strict=True):
        kinds = shapes.kinds[a], shapes.kinds[b]
        given = [np.stack([x[a], x[b]])[None] for x in (np.asarray(placed), shapes.size, shapes.radius)]
        alone = on_two_bodies(kinds, *given)
        np.testing.assert_allclose(alone.distance[0, 0], d, atol=1e-12)
        np.testing.assert_allclose(alone.normal[0, 0], n, atol=1e-7)
        np.testing.assert_allclose(first + d * n, second, atol=1e-12)


@pytest.mark.nightly
def test_batches_single_states_and_transformations_agree(states):
    chain, shapes = robot()
    one = np.stack([distances(chain, shapes, q) for q in states])
    batch = jax.jit(jax.vmap(lambda q: distances(chain, shapes, q)))(states)
    both = jax.vmap(jax.vmap(distances, (None, None, 0)), (None, None, 0))(chain, shapes, states.reshape(4, 10, 5))
    np.testing.assert_allclose(batch, one, atol=1e-13)
    np.testing.assert_allclose(both.reshape(40, -1), one, atol=1e-13)
    forward = jax.vmap(jax.jacfwd(lambda q: distances(chain, shapes, q)))(states)
    reverse = jax.vmap(jax.jacrev(lambda q: distances(chain, shapes, q)))(states)
    np.testing.assert_allclose(forward, reverse, atol=1e-12)
    swollen = jax.vmap(
        lambda r: distances(chain, eqx.tree_at(lambda s: s.radius, shapes, shapes.radius + r), states[0])
    )
    enlarged = swollen(jnp.array([0.0, 0.01]))
    np.testing.assert_allclose(enlarged[0] - enlarged[1], 0.02, atol=1e-12)


@pytest.mark.nightly
def test_derivatives_of_a_robot(states):
    chain, shapes = robot()
    value = jax.jit(jax.vmap(lambda q: distances(chain, shapes, q)))
    exact = np.asarray(jax.vmap(jax.jacfwd(lambda q: distances(chain, shapes, q)))(states))
    for j, step in enumerate(1e-6 * jnp.eye(5)[:, None]):
        numeric = (value(states + step) - value(states - step)) / 2e-6
        kink = np.abs(value(states + step) - 2 * value(states) + value(states - step)) > 1e-9
        assert kink.mean() < 0.02
        np.testing.assert_allclose(np.where(kink, 0, exact[:, :, j]), np.where(kink, 0, numeric), atol=1e-7)
    # with respect to the robot itself
    leaf = lambda c: c.translation
    moved = lambda x: distances(eqx.tree_at(leaf, chain, x), shapes, states[0])
    rng = np.random.default_rng(1)
    direction = rng.normal(size=leaf(chain).shape)
    _, tangent = jax.jvp(moved, (leaf(chain),), (jnp.asarray(direction),))
    numeric = (moved(leaf(chain) + 1e-6 * direction) - moved(leaf(chain) - 1e-6 * direction)) / 2e-6
    np.testing.assert_allclose(tangent, numeric, atol=1e-7)


@pytest.mark.ci
def test_float32_far_from_the_origin():
    chain, shapes = robot()
    states = np.random.default_rng(1).uniform(-2, 2, (100, 5))
    exact = jax.vmap(lambda q: distances(chain, shapes, q))(states)
    base = np.eye(4) if chain.base_pose is None else np.asarray(chain.base_pose)
    far = base.copy()
    far[:3, 3] += [1000.0, -2000.0, 500.0]
    chain = eqx.tree_at(lambda c: c.base_pose, chain, jnp.asarray(far), is_leaf=lambda x: x is None)
    single, shapes32 = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), (chain, shapes))
    found = jax.vmap(lambda q: distances(single, shapes32, q))(jnp.asarray(states, jnp.float32))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, exact, atol=3e-6)


def special_pairs():
    """Pairs in exact symmetry, with their distances: concentric, coaxial, parallel, crossing, touching, degenerate."""
    eye, turn = np.eye(4), np.eye(4)
    turn[:3, :3] = [[1, 0, 0], [0, 0, -1], [0, 1, 0]]

    def at(x, y, z, pose=eye):
        moved = pose.copy()
        moved[:3, 3] = x, y, z
        return moved

    line, ball, cube = (0, 0, 0.5), (0, 0, 0), (0.1, 0.2, 0.3)
    yield "concentric spheres", ("sphere", "sphere"), (eye, eye), (ball, ball), (0.1, 0.2), -0.3
    yield "touching spheres", ("sphere", "sphere"), (eye, at(0.3, 0, 0)), (ball, ball), (0.1, 0.2), 0.0
    yield "crossing capsules", ("capsule", "capsule"), (eye, turn), (line, line), (0.1, 0.2), -0.3
    yield "the same capsule", ("capsule", "capsule"), (eye, eye), (line, line), (0.1, 0.1), -0.2
    yield "coaxial capsules", ("capsule", "capsule"), (eye, at(0, 0, 2)), (line, line), (0.1, 0.2), 0.7
    yield "parallel capsules", ("capsule", "capsule"), (eye, at(1, 0, 0.2)), (line, line), (0.1, 0.2), 0.7
    yield "capsules end to end", ("capsule", "capsule"), (eye, at(0, 0, 1)), (line, line), (0.1, 0.2), -0.3
    yield "a capsule of no length", ("capsule", "capsule"), (eye, at(0, 0, 1)), (ball, line), (0.1, 0.1), 0.3
    yield "a point in a box", ("sphere", "box"), (eye, eye), (ball, cube), (0.0, 0.0), -0.1
    yield "a point on a face", ("sphere", "box"), (at(0.1, 0, 0), eye), (ball, cube), (0.0, 0.0), 0.0
    yield "a point on a vertex", ("sphere", "box"), (at(0.1, 0.2, 0.3), eye), (ball, cube), (0.0, 0.0), 0.0
    yield "a capsule along an edge", ("capsule", "box"), (at(0.1, 0.2, 0), eye), (line, cube), (0.05, 0.0), -0.05
    yield "a capsule through a box", ("capsule", "box"), (eye, eye), (line, cube), (0.05, 0.0), -0.15
    yield "a capsule on a face", ("capsule", "box"), (at(0.2, 0, 0), eye), (line, cube), (0.05, 0.0), 0.05
    yield "a box of no size", ("capsule", "box"), (eye, at(1, 0, 0)), (line, ball), (0.1, 0.0), 0.9
    rod = (0.1, 0.1, 0.3)
    yield "a point in a cylinder", ("sphere", "cylinder"), (eye, eye), (ball, rod), (0.0, 0.0), -0.1
    yield "a point on a rim", ("sphere", "cylinder"), (at(0.1, 0, 0.3), eye), (ball, rod), (0.0, 0.0), 0.0
    yield "a capsule along an axis", ("capsule", "cylinder"), (eye, eye), (line, rod), (0.05, 0.0), -0.15
    yield "a capsule on a side", ("capsule", "cylinder"), (at(0.1, 0, 0), eye), (line, rod), (0.05, 0.0), -0.05
    yield "a capsule across an axis", ("capsule", "cylinder"), (turn, eye), (line, rod), (0.05, 0.0), -0.15
    yield "a capsule on an end", ("capsule", "cylinder"), (at(0, 0, 0.3, turn), eye), (line, rod), (0.05, 0.0), -0.05
    yield "a cylinder of no size", ("capsule", "cylinder"), (eye, at(1, 0, 0)), (line, ball), (0.1, 0.0), 0.9
    yield "a sphere in a plane", ("sphere", "plane"), (eye, eye), (ball, ball), (0.1, 0.0), -0.1
    yield "a box on a plane", ("box", "plane"), (at(0, 0, 0.3), eye), (cube, ball), (0.0, 0.0), 0.0


@pytest.mark.parametrize(
    "dtype", [jnp.float64, pytest.param(jnp.float32, marks=pytest.mark.nightly)], ids=["float64", "float32"]
)
@pytest.mark.parametrize("order", [1, pytest.param(-1, marks=pytest.mark.nightly)])
def test_exact_symmetry_is_finite_and_right(dtype, order):
    for name, kinds, poses, sizes, radii, truth in special_pairs():
        given = [jnp.asarray(np.array(x)[::order], dtype)[None] for x in (poses, sizes, radii)]
        found = on_two_bodies(kinds[::order], *given)
        # the chain of the bodies is of float64, and so is the computation
        np.testing.assert_allclose(
            found.distance[0, 0], truth, atol=1e-6 if dtype == jnp.float32 else 1e-12, err_msg=name
        )
        np.testing.assert_allclose(np.linalg.norm(found.normal), 1, atol=1e-6, err_msg=name)
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(on_two_bodies(kinds[::order], *given, slopes))), name


@pytest.mark.nightly
def test_batch_of_random_touching_pairs_has_no_nan():
    """Poses on a coarse lattice, where shapes are often parallel, concentric or touching."""
    rng = np.random.default_rng(4)
    quarter = Rotation.create_group("O").as_matrix()
    for kinds in (
        ("capsule", "capsule"),
        ("capsule", "box"),
        ("sphere", "box"),
        ("box", "plane"),
        ("capsule", "cylinder"),
    ):
        pose = np.tile(np.eye(4), (4000, 2, 1, 1))
        pose[..., :3, :3] = quarter[rng.integers(0, 24, (4000, 2))]
        pose[..., :3, 3] = rng.integers(-2, 3, (4000, 2, 3)) * 0.1
        size = np.where(np.array([SIZES[k] for k in kinds]) > 0, 0.1, 0.0) * rng.integers(0, 3, (4000, 2, 3))
        size[:, :, :2] = np.where(np.array([k in ("box", "cylinder") for k in kinds])[:, None], size[:, :, :2], 0.0)
        size = round_about_z(kinds, size)
        found = on_two_bodies(kinds, pose, size, np.full((4000, 2), 0.1))
        assert all(np.isfinite(x).all() for x in found)
        slope = on_two_bodies(kinds, pose, size, np.full((4000, 2), 0.1), slopes)
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(slope))

"""Normals of convex cores against coal's GJK and EPA, the faces of hulls, and closed forms of special positions."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial import ConvexHull
from scipy.spatial.transform import Rotation

from jaxdyn.geometry.convex import search
from jaxdyn.geometry.cores import Core, gap

KINDS = "sphere", "capsule", "box", "cylinder", "ellipsoid", "hull"
PAIRS = list(itertools.combinations_with_replacement(KINDS, 2))
OFTEN = (
    ("sphere", "hull"),
    ("box", "box"),
    ("box", "cylinder"),
    ("cylinder", "ellipsoid"),
    ("capsule", "hull"),
    ("hull", "hull"),
)
SHALLOW = 0.03  # m; extents are 0.1 to 0.8 m


@jax.jit(static_argnums=0)
def distances(kinds, a, b):
    """gap(n), n, and its supporting points, of all lanes."""
    n = search(kinds, a, b).normal
    value, x, y = gap(kinds, a, b, n)
    return value, jnp.stack(n, -1), jnp.stack(x, -1), jnp.stack(y, -1)


def vertices(rng, count=50):
    points = rng.normal(size=(count, 3))
    return points / np.linalg.norm(points, axis=1)[:, None] * (0.25, 0.2, 0.3)


def random_pair(kinds, count, seed, nearest=0.2, farthest=1.1):
    """Rotations, centres, sizes and vertices of both cores; a third to two thirds of the pairs overlap."""
    rng = np.random.default_rng(seed)
    rotations = [Rotation.random(count, rng=rng).as_matrix() for _ in kinds]
    sizes = [rng.uniform(0.05, 0.4, (count, 3)) * used(kind) for kind in kinds]
    for kind, size in zip(kinds, sizes, strict=True):
        if kind == "cylinder":
            size[:, 1] = size[:, 0]
    hulls = [vertices(rng) if kind == "hull" else None for kind in kinds]
    reach = 0.05 + sum(
        np.linalg.norm(size, axis=1) + 0.3 * (kind == "hull") for kind, size in zip(kinds, sizes, strict=True)
    )
    way = rng.normal(size=(count, 3))
    way *= (reach * rng.uniform(nearest, farthest, count) / np.linalg.norm(way, axis=1))[:, None]
    first = rng.normal(size=(count, 3))
    return [*zip(rotations, (first, first + way), sizes, hulls, strict=True)]


def used(kind):
    """1 for the entries of the size that a kind has."""
    return {"sphere": (0, 0, 0), "capsule": (0, 0, 1), "hull": (0, 0, 0)}.get(kind, (1, 1, 1))


def core(rotation, centre, size, hull=None, dtype=float):
    components = lambda x: tuple(jnp.asarray(np.moveaxis(np.asarray(x), -1, 0), dtype))
    flat = np.asarray(rotation).reshape(*np.shape(rotation)[:-2], 9)
    return Core(
        components(flat), components(centre), components(size), None if hull is None else jnp.asarray(hull, dtype)
    )


def coal_distances(kinds, pair):
    """Signed distance and normal of each pair by coal, with its tightest tolerances; infinite where it fails."""
    coal = pytest.importorskip("coal")
    request, result = coal.DistanceRequest(), coal.DistanceResult()
    request.gjk_tolerance = request.epa_tolerance = 1e-12
    request.gjk_max_iterations = request.epa_max_iterations = 1000

    def convex(hull):
        points = coal.StdVec_Vec3s()
        points.extend(hull)
        return coal.Convex.convexHull(points, False, "")

    make = {
        "sphere": lambda size: coal.Sphere(0.0),
        "capsule": lambda size: coal.Capsule(0.0, 2 * size[2]),
        "box": lambda size: coal.Box(*(2 * size)),
        "cylinder": lambda size: coal.Cylinder(size[0], 2 * size[2]),
        "ellipsoid": lambda size: coal.Ellipsoid(*size),
    }
    hulls = [None if hull is None else convex(hull) for *_, hull in pair]
    values, normals = [], []
    for k in range(len(pair[0][0])):
        shapes = [hull or make[kind](s[2][k]) for kind, s, hull in zip(kinds, pair, hulls, strict=True)]
        poses = [coal.Transform3s(s[0][k], s[1][k]) for s in pair]
        result.clear()
        value = coal.distance(shapes[0], poses[0], shapes[1], poses[1], request, result)
        values.append(value if abs(value) < 1e3 else -np.inf)
        normals.append(result.normal)
    return np.array(values), np.nan_to_num(np.array(normals))


def aligned_pair(kinds, count, seed):
    """As `random_pair`, with parallel axes and all lengths multiples of 0.1, so that features often are parallel or touch."""
    rng = np.random.default_rng(seed)
    turns = Rotation.create_group("O").as_matrix()
    sizes = [rng.integers(1, 4, (count, 3)) * 0.1 * used(kind) for kind in kinds]
    for kind, size in zip(kinds, sizes, strict=True):
        if kind == "cylinder":
            size[:, 1] = size[:, 0]
    hulls = [np.array([*itertools.product((-0.1, 0.1), repeat=3)]) if kind == "hull" else None for kind in kinds]
    centre = rng.integers(-3, 4, (count, 3)) * 0.1
    centres = centre, centre + rng.integers(-5, 6, (count, 3)) * 0.1
    return [*zip((turns[rng.integers(0, 24, count)] for _ in kinds), centres, sizes, hulls, strict=True)]


def check_against_coal(kinds, pair):
    a, b = core(*pair[0]), core(*pair[1])
    value, n, x, y = map(np.asarray, distances(kinds, a, b))
    assert np.isfinite(value).all()
    np.testing.assert_allclose(np.linalg.norm(n, axis=1), 1, rtol=1e-14)
    np.testing.assert_allclose(np.sum(n * (y - x), axis=1), value, atol=1e-14)
    coal, coal_normal = coal_distances(kinds, pair)
    along = np.asarray(gap(kinds, a, b, tuple(jnp.asarray(coal_normal.T)))[0])
    curved = not {"cylinder", "ellipsoid"}.isdisjoint(kinds)
    precise = value > -SHALLOW
    accuracy = np.where(precise, 1e-8 if curved else 1e-12, 0.05)
    # gap(n) never exceeds the distance, and coal's normal, if exact, attains it
    known = np.linalg.norm(coal_normal, axis=1) > 0.99
    short = np.where(known, along, -np.inf) - value
    assert np.mean(short < accuracy) > (0.998 if "hull" in kinds else 0.9999)
    # coal's distances of curved cores that nearly touch are accurate to 1e-6
    difference = (coal - value)[value > 1e-6]
    assert (difference < (1e-6 if curved else 1e-12)).all()
    assert np.mean(difference < 1e-9) > 0.998
    assert np.mean(np.abs(difference) < 1e-9) > 0.85


@pytest.mark.parametrize(
    "kinds", [pytest.param(x, marks=() if x in OFTEN else pytest.mark.nightly) for x in PAIRS], ids="-".join
)
def test_distances_are_those_of_coal(kinds):
    check_against_coal(kinds, random_pair(kinds, 2000, 0))


@pytest.mark.ci
def test_distances_of_aligned_cores_are_those_of_coal():
    for kinds in (("box", "cylinder"), ("box", "hull"), ("cylinder", "cylinder"), ("capsule", "ellipsoid")):
        check_against_coal(kinds, aligned_pair(kinds, 2000, 0))


@pytest.mark.nightly
@pytest.mark.parametrize("kinds", PAIRS, ids="-".join)
def test_distances_of_many_pairs(kinds):
    check_against_coal(kinds, random_pair(kinds, 100_000, 1))
    check_against_coal(kinds, aligned_pair(kinds, 10_000, 1))
    for seed in range(5):  # 10^7 pairs of all kinds
        pair = random_pair(kinds, 100_000, seed, 0, 1e-3 if seed == 0 else 1)
        value, n, *_ = distances(kinds, core(*pair[0]), core(*pair[1]))
        assert np.isfinite(value).all()
        assert np.isfinite(n).all()


@pytest.mark.parametrize(
    "kinds",
    [
        *(pytest.param((x, x), marks=pytest.mark.nightly) for x in ("box", "cylinder")),
        pytest.param(("hull", "ellipsoid"), marks=pytest.mark.ci),
    ],
    ids="-".join,
)
def test_exchanged_cores_and_single_precision(kinds):
    pair = random_pair(kinds, 500, 2, 0.5, 1.5)
    value, n, *_ = map(np.asarray, distances(kinds, core(*pair[0]), core(*pair[1])))
    turned = np.asarray(distances(kinds[::-1], core(*pair[1]), core(*pair[0]))[0])
    near = value > -SHALLOW
    np.testing.assert_allclose(turned[near], value[near], atol=1e-9)
    single, n, *_ = distances(kinds, core(*pair[0], dtype=np.float32), core(*pair[1], dtype=np.float32))
    assert single.dtype == n.dtype == np.float32
    np.testing.assert_allclose(np.asarray(single)[near], value[near], atol=3e-6)
    one = jax.vmap(lambda a, b: distances(kinds, a, b)[0], in_axes=(axes := Core(0, 0, 0, None), axes))
    np.testing.assert_allclose(one(core(*pair[0]), core(*pair[1]))[near], value[near], atol=1e-9)


def test_a_point_in_a_hull_is_as_deep_as_its_closest_face():
    kinds = "sphere", "hull"
    pair = random_pair(kinds, 2000, 3, 0.2, 0.9)
    value = np.asarray(distances(kinds, core(*pair[0]), core(*pair[1]))[0])
    (_, point, _, _), (rotation, centre, _, hull) = pair
    faces = ConvexHull(hull).equations
    local = np.einsum("kji,kj->ki", rotation, point - centre)
    depth = -(local @ faces[:, :3].T + faces[:, 3]).max(axis=1)
    shallow = (depth > 0) & (depth < SHALLOW)
    assert shallow.sum() > 100
    assert (value < np.where(depth > 0, -depth + 1e-14, np.inf)).all()
    assert np.mean(-value[shallow] < depth[shallow] + 1e-12) > 0.99


TURNS = (
    np.eye(3),
    np.array([[0.0, 0, 1], [1, 0, 0], [0, 1, 0]]),
    Rotation.from_euler("xyz", (0.3, -0.7, 1.1)).as_matrix(),
)
SPECIAL = {  # kinds, sizes, centre of B in the frame of A, and signed distance; both cores have the same axes
    "concentric boxes": ("box", "box", (0.1, 0.2, 0.3), (0.1, 0.2, 0.3), (0, 0, 0), -0.2),
    "boxes that touch": ("box", "box", (0.1, 0.2, 0.3), (0.1, 0.2, 0.3), (0.2, 0, 0), 0),
    "edges that touch": ("box", "box", (0.1, 0.2, 0.3), (0.1, 0.2, 0.3), (0.2, 0.4, 0.1), 0),
    "corners apart": ("box", "box", (0.1, 0.2, 0.3), (0.1, 0.2, 0.3), (0.5, 0.8, 0.6), 0.5),
    "boxes without extent": ("box", "box", (0, 0, 0), (0, 0, 0), (0, 0, 0), 0),
    "flat boxes that coincide": ("box", "box", (0.1, 0.1, 0), (0.1, 0.1, 0), (0, 0, 0), 0),
    "a box and a point apart": ("box", "box", (0.1, 0.2, 0.3), (0, 0, 0), (0, 0, 0.4), 0.1),
    "points that coincide": ("sphere", "sphere", (0, 0, 0), (0, 0, 0), (0, 0, 0), 0),
    "a point on a segment": ("sphere", "capsule", (0, 0, 0), (0, 0, 0.2), (0, 0, 0.1), 0),
    "a point at the end of a segment": ("sphere", "capsule", (0, 0, 0), (0, 0, 0.2), (0, 0, 0.2), 0),
    "collinear segments apart": ("capsule", "capsule", (0, 0, 0.1), (0, 0, 0.2), (0, 0, 0.5), 0.2),
    "collinear segments that overlap": ("capsule", "capsule", (0, 0, 0.1), (0, 0, 0.2), (0, 0, 0.2), 0),
    "segments without length": ("capsule", "capsule", (0, 0, 0), (0, 0, 0), (0.3, 0, 0.4), 0.5),
    "a point on an axis": ("sphere", "cylinder", (0, 0, 0), (0.1, 0.1, 0.4), (0, 0, 0.1), -0.1),
    "a point on a cap": ("sphere", "cylinder", (0, 0, 0), (0.1, 0.1, 0.4), (0.05, 0, 0.4), 0),
    "parallel cylinders": ("cylinder", "cylinder", (0.1, 0.1, 0.4), (0.2, 0.2, 0.3), (0.3, 0.4, 0.1), 0.2),
    "parallel cylinders that touch": ("cylinder", "cylinder", (0.1, 0.1, 0.4), (0.2, 0.2, 0.3), (0.3, 0, 0), 0),
    "coaxial cylinders apart": ("cylinder", "cylinder", (0.1, 0.1, 0.4), (0.2, 0.2, 0.3), (0, 0, 0.8), 0.1),
    "a cylinder in itself": ("cylinder", "cylinder", (0.2, 0.2, 0.1), (0.2, 0.2, 0.1), (0, 0, 0), -0.2),
    "discs apart": ("cylinder", "cylinder", (0.2, 0.2, 0), (0.2, 0.2, 0), (0.5, 0, 0), 0.1),
    "cylinders without extent": ("cylinder", "cylinder", (0, 0, 0), (0, 0, 0), (0, 0, 0), 0),
    "ellipsoids that touch": ("ellipsoid", "ellipsoid", (0.1, 0.2, 0.3), (0.1, 0.2, 0.3), (0, 0.4, 0), 0),
    "concentric ellipsoids": ("ellipsoid", "ellipsoid", (0.1, 0.2, 0.3), (0.1, 0.2, 0.3), (0, 0, 0), -0.2),
    "balls apart": ("ellipsoid", "ellipsoid", (0.1, 0.1, 0.1), (0.2, 0.2, 0.2), (0.3, 0.4, 0), 0.2),
    "a point in the centre": ("sphere", "ellipsoid", (0, 0, 0), (0.1, 0.2, 0.3), (0, 0, 0), -0.1),
    "an ellipsoid without extent": ("box", "ellipsoid", (0.1, 0.2, 0.3), (0, 0, 0), (0, 0, 0.3), 0),
    "a cylinder on a box": ("box", "cylinder", (0.3, 0.3, 0.1), (0.1, 0.1, 0.2), (0.1, 0.1, 0.3), 0),
}


@pytest.mark.parametrize("name", SPECIAL)
@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.nightly)])
def test_special_positions(name, dtype):
    first, second, *sizes, centre, expected = SPECIAL[name]
    origin = np.array((0.7, -1.3, 0.4))
    cores = [
        core(np.stack(TURNS), np.stack([origin + turn @ c for turn in TURNS]), np.stack([size] * 3), dtype=dtype)
        for size, c in zip(sizes, ((0, 0, 0), np.array(centre)), strict=True)
    ]
    value, n, x, y = map(np.asarray, distances((first, second), *cores))
    tolerance = 1e-9 if dtype == np.float64 else 2e-6
    np.testing.assert_allclose(value, expected, atol=tolerance)
    np.testing.assert_allclose(np.linalg.norm(n, axis=-1), 1, rtol=1e-6)
    assert np.isfinite(x).all() and np.isfinite(y).all()

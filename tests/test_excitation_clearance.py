"""Excitation trajectories that keep shapes apart: of a planar arm above a floor, in Python and on the command line."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import jaxdyn
from jaxdyn import IdentificationError, geometry, load
from jaxdyn.cli import main
from jaxdyn.identification import FourierSeries, Separation, excitation_design, motion_limits, optimal_excitation
from jaxdyn.identification.excitation import repaired, rest_basis
from jaxdyn.identification.excitation_design import ExcitationSearch, summary
from jaxdyn.identification.separation import CHUNK, begin_apart, least_change, moved_apart, of_robot, tangents
from jaxdyn.io import Geometry

REACH, RADIUS, HEIGHT = 0.4, 0.05, 0.6
LINK = """<link name="{0}"><inertial><origin xyz="0.2 0 0.01"/><mass value="2"/>
  <inertia ixx="0.02" iyy="0.03" izz="0.03" ixy="0" ixz="0" iyz="0"/></inertial>{1}</link>"""
SHAPES = """<collision><origin xyz="0.2 0 0" rpy="0 1.5707963267948966 0"/>
    <geometry><cylinder radius="0.05" length="0.4"/></geometry></collision>
  <collision><origin xyz="0 0 0"/><geometry><sphere radius="0.05"/></geometry></collision>
  <collision><origin xyz="0.4 0 0"/><geometry><sphere radius="0.05"/></geometry></collision>"""
JOINT = """<joint name="j{0}" type="revolute"><parent link="{1}"/><child link="{2}"/><origin xyz="{3}"/><axis xyz="0 1 0"/>
  <limit lower="-2.5" upper="2.5" velocity="3" effort="60"/></joint>"""
BASE = """<link name="base">
  <collision><origin xyz="0 0.2 0.3"/><geometry><box size="0.1 0.1 0.6"/></geometry></collision></link>"""
LIMITS = np.full(2, -2.4), np.full(2, 2.4)
SHORT, QUICK = FourierSeries(3.0, 4), ExcitationSearch(2, 4)


def arm(shapes=SHAPES):
    joints = JOINT.format(1, "base", "upper", f"0 0 {HEIGHT}") + JOINT.format(2, "upper", "fore", f"{REACH} 0 0")
    links = LINK.format("upper", shapes) + LINK.format("fore", shapes)
    base = BASE if shapes else '<link name="base"/>'
    return f"<robot name='arm'>{base}{links}{joints}</robot>"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("arm") / "arm.urdf"
    path.write_text(arm())
    return path


@pytest.fixture(scope="module")
def known(model):
    """The arm, and its shapes with a floor and a ball that only the outer link reaches."""
    chain = load(model)
    ball = Geometry(
        "ball", "sphere", np.array([[1, 0, 0, 0.6], [0, 1, 0, 0], [0, 0, 1, 1.1], [0, 0, 0, 1.0]]), (0.08,) * 3
    )
    shapes = geometry.with_environment(chain, geometry.read(model, chain, samples=500), [geometry.floor(), ball])
    return chain, shapes


def above_floor(q):
    """Smallest distance of either link from the floor, by hand, for joints about y [m]."""
    elbow = HEIGHT - REACH * np.sin(q[:, 0])
    return np.minimum(elbow, elbow - REACH * np.sin(q.sum(axis=1))) - RADIUS


@pytest.mark.nightly
def test_a_design_keeps_shapes_apart(known):
    chain, shapes = known
    settings = {"limits": motion_limits(chain), "search": QUICK}
    q = lambda design, t: np.asarray(design.trajectory(jnp.asarray(t))[0])
    t = np.linspace(0, 3, 3201)
    free = optimal_excitation(chain, SHORT, **settings)
    assert above_floor(q(free, t)).min() < -0.1 and free.nearest is None  # or there would be nothing to keep
    design = optimal_excitation(chain, SHORT, **settings, clearance=Separation(shapes, 0.04))
    motion = q(design, t)
    assert above_floor(motion).min() > 0.04 - 1e-4
    found = np.asarray(jax.jit(jax.vmap(lambda x: geometry.distances(chain, shapes, x)))(jnp.asarray(motion)))
    assert found.min() == pytest.approx(design.clearance, abs=1e-3) and found.min() > 0.04 - 1e-4
    then, pair = np.abs(t - design.nearest.time).argmin(), shapes.pair_names.index(design.nearest[:2])
    assert found[then, pair] == pytest.approx(design.clearance, abs=1e-6)  # several pairs may come equally near
    assert f"between {design.nearest.first} and {design.nearest.second} at" in summary(design, chain.joint_names)
    assert all(share.max() <= 0.95 * (1 + 1e-9) for share in design.usage.values())
    assert design.quality.log_det > max(random.log_det for random in design.random) + 2
    assert design.quality.log_det > free.quality.log_det - 8


@pytest.mark.ci
def test_pairs_that_cannot_be_kept_apart_are_left_out_and_named(known):
    chain, shapes = known
    level = dataclasses.replace(geometry.floor(HEIGHT), link="level")  # of the first joint, which the upper arm touches
    ceiling = dataclasses.replace(level, link="ceiling", pose=np.diag([1.0, -1, -1, 1]))
    ceiling.pose[2, 3] = HEIGHT + 0.2
    shapes = geometry.with_environment(chain, shapes, [level, ceiling])

    def begin(distance, *pairs):
        chosen = geometry.shapes.with_pairs(shapes, pairs)
        return begin_apart(chain, Separation(chosen, distance), *LIMITS, 3, 0)

    found = begin(0.03, ("upper", "level"), ("fore", "floor"))
    assert found.notes == ["always in contact, and left out: upper and level"]
    assert found.separation.shapes.pair_names == (("fore", "floor"),) and float(found.separation.distance[0]) == 0.03
    assert found.separation.shapes.left_out[-1].reason == "always in contact within the limits"
    assert above_floor(found.offsets).min() > 0.03 and len(found.offsets) == 3
    with pytest.raises(IdentificationError, match="all pairs of shapes always touch"):
        begin(0.03, ("upper", "level"))
    with pytest.raises(IdentificationError, match=r"none of 1024 .* at best, fore and \w+ lack .* m; pass"):
        begin(0.1, ("fore", "level"), ("fore", "ceiling"))
    near = begin(0.03, ("fore", "ball"), ("upper", "ball"))
    assert near.notes == [] and near.separation.distance.shape == (2,)
    # pairs that touch somewhere keep a quarter of their largest distance, others half of the smallest: here, that of a
    # stretched upper arm
    touching, others = (begin(2.0, (name, "ball")) for name in ("fore", "upper"))
    assert touching.notes[0].startswith(
        "always close together, so that less than the clearance is kept: fore and ball ("
    )
    own = geometry.shapes.with_pairs(shapes, [("fore", "ball")])
    q = jnp.asarray(np.random.default_rng(9).uniform(*LIMITS, (2000, 2)))
    found = jax.jit(jax.vmap(lambda x: geometry.distances(chain, own, x)))(q)
    assert found.min() < 0
    np.testing.assert_allclose(touching.separation.distance[0], np.quantile(found, 0.95) / 4, rtol=0.03)
    np.testing.assert_allclose(others.separation.distance[0], (np.hypot(0.6, 0.5) - REACH - 0.05 - 0.08) / 2, rtol=1e-3)
    assert not np.any(begin(0.03, ("fore", "ball")).offsets[0])  # the middle is better than what is far from it


@pytest.mark.parametrize("kind", ["shapes", "function"])
def test_tangents_are_clearances_and_their_derivatives(known, kind):
    chain, shapes = known[0], geometry.shapes.with_pairs(known[1], [("fore", "ball"), ("upper", "floor")])
    by_function = lambda q: jnp.stack([jnp.sin(q[0]) * q[1], q[0] ** 2 - q[1], 1.0 - q[0]])
    keep = Separation(shapes, 0.04) if kind == "shapes" else of_robot(by_function)
    q = np.random.default_rng(0).uniform(*LIMITS, (2, CHUNK // 2 + 5, 2))  # no multiple of the chunk
    near = tangents(chain, keep, q)
    apart = (lambda x: 10 * (geometry.distances(chain, shapes, x) - 0.04)) if kind == "shapes" else by_function
    np.testing.assert_array_equal(near.q, q)
    np.testing.assert_allclose(near.value, jax.jit(jax.vmap(jax.vmap(apart)))(jnp.asarray(q)), atol=1e-12)
    for j, h in enumerate(1e-5 * np.eye(2)):
        change = np.asarray(tangents(chain, keep, q + h).value) - np.asarray(tangents(chain, keep, q - h).value)
        np.testing.assert_allclose(near.slope[..., j], change / 2e-5, rtol=1e-6, atol=1e-6)


def test_the_least_change_is_the_smallest_that_satisfies_all_rows():
    rng = np.random.default_rng(0)
    row = rng.normal(size=5)
    np.testing.assert_allclose(least_change(np.stack([row, -row]), np.array([0.3, -9.0])), 0.3 * row / (row @ row))
    np.testing.assert_allclose(least_change(row[None], np.array([-0.3])), 0, atol=1e-14)
    assert least_change(np.stack([row, -row]), np.array([0.3, -0.2])) is None
    for size in (4, 12):
        rows, x = rng.normal(size=(30, size)), rng.normal(size=size)
        least = rows @ x - rng.uniform(0, 0.5, 30)
        found = least_change(rows, least)
        assert found is not None and (rows @ found - least).min() > -1e-12
        rest = {
            "type": "ineq",
            "fun": lambda y, rows=rows, least=least: rows @ y - least,
            "jac": lambda _, rows=rows: rows,
        }
        best = minimize(lambda y: y @ y, x, jac=lambda y: 2 * y, method="SLSQP", constraints=rest, tol=1e-14)
        np.testing.assert_allclose(found, best.x, rtol=1e-6, atol=1e-8)


def test_a_motion_that_dips_below_the_floor_is_moved_apart(known):
    chain, shapes = known
    keep = Separation(geometry.shapes.with_pairs(shapes, [("upper", "floor"), ("fore", "floor")]), 0.04)
    t = np.linspace(0, 3, 321)
    matrices = np.stack([np.einsum("dml,lk->dmk", SHORT.matrices(t), rest_basis(SHORT))] * 2, axis=1)
    z = np.random.default_rng(7).normal(size=(2, matrices.shape[3]))
    motion = lambda z: np.einsum("djmk,jk->dmj", matrices, z)
    z *= np.array([[1.0], [1.2]]) / np.abs(motion(z)[0]).max(axis=0)[:, None]
    assert above_floor(motion(z)[0]).min() < 0
    bounds = np.abs(motion(z)).max(axis=1)  # all limits are reached
    bounds[2:] = np.inf
    moved = moved_apart(chain, keep, bounds, matrices, np.zeros(2), z)
    assert above_floor(motion(moved)[0]).min() >= 0.04 and np.all(np.abs(motion(moved)).max(axis=1) <= bounds + 1e-12)
    limits = motion_limits(
        chain,
        lower=-bounds[0],
        upper=bounds[0],
        velocity=bounds[1],
        **dict.fromkeys(("acceleration", "jerk", "torque"), np.inf),
    )
    factors, feasible = repaired(chain, limits, np.zeros(2), motion(z), keep)
    assert feasible and np.linalg.norm(moved - z) < 0.5 * np.linalg.norm((factors[:, None] - 1) * z)
    assert np.linalg.norm(moved) > np.linalg.norm(factors[:, None] * z)
    np.testing.assert_array_equal(moved_apart(chain, keep, bounds, matrices, np.zeros(2), 0.1 * z), 0.1 * z)


@pytest.fixture
def given(monkeypatch):
    """The clearances that the command passes to the design, which stops there."""
    clearances = []

    def design(*_, clearance, **__):
        clearances.append(clearance)
        raise IdentificationError("enough")

    monkeypatch.setattr(excitation_design, "optimal_excitation", design)
    return clearances


def test_the_command_keeps_apart_what_the_files_describe(model, tmp_path, capsys, given):
    obstacle = tmp_path / "post.urdf"
    shape = "<collision><origin xyz='0.5 0 0.9'/><geometry><box size='0.2 0.2 0.2'/></geometry></collision>"
    obstacle.write_text(f"<robot name='cell'><link name='post'>{shape}</link></robot>")
    command = ["excite", str(model), "--out", str(tmp_path / "t.csv")]
    assert main(command) == 1
    assert main([*command, "--no-floor", "--environment", str(obstacle), "--clearance", "0.05"]) == 1
    own, cell = ({name for pair in x.shapes.pair_names for name in pair} for x in given)
    assert {"floor", "fore"} <= own and {"post", "fore"} <= cell and not own & {"post"} and not cell & {"floor"}
    assert [float(x.distance) for x in given] == [0.03, 0.05]
    assert "shapes are not known" not in capsys.readouterr().err
    assert main([*command, "--clearance", "none", "--environment", str(obstacle)]) == 2
    assert "--environment and --srdf need a clearance" in capsys.readouterr().err
    assert main([*command, "--clearance", "none"]) == 1 and given[2] is None


def test_the_command_says_that_nothing_is_kept_apart(tmp_path, capsys, given):
    bare = tmp_path / "bare.urdf"
    said = "the shapes are not known: nothing keeps the robot from touching itself or the floor"
    mesh = "<collision><geometry><mesh filename='missing.stl'/></geometry></collision>"
    for shapes, reason in (("", said), (mesh, "missing.stl was not found")):
        bare.write_text(arm(shapes))
        assert main(["excite", str(bare), "--out", str(tmp_path / "t.csv")]) == 1
        shown = capsys.readouterr().err
        assert said in shown and reason in shown and given[-1] is None
    bare.write_text(arm(""))
    command = ["excite", str(bare), "--out", str(tmp_path / "t.csv"), "--environment", str(bare)]
    assert main(command) == 1 and len(given) == 2
    assert "no shapes to keep clear of --environment" in capsys.readouterr().err
    assert main([*command, "--shapes", "none"]) == 2 and len(given) == 2


@pytest.mark.nightly
def test_the_command_reports_the_smallest_distance(model, tmp_path, capsys):
    out = tmp_path / "traj.csv"
    quick = ["--duration", "3", "--frequency", "1.4", "--starts", "1", "--rounds", "4", "--rate", "300"]
    assert main(["excite", str(model), "--out", str(out), *quick]) == 0
    text = capsys.readouterr().out
    found = re.search(r"smallest distance ([0-9.]+) m, between \w+ and \w+ at [0-9.]+ s", text)
    assert found and float(found[1]) >= 0.03 and "--no-floor leaves it out" in text
    assert above_floor(jaxdyn.read_log(out, 2).q).min() > 0.03 - 1e-3

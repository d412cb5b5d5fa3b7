"""The standing sweep finds what it is for, and a sample of it over other people's robots."""

import dataclasses
import datetime
import re
import subprocess
import sys
import warnings
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from data_paths import ROOT
from helpers import random_chain, relative
from jaxdyn import geometry
from users_programs.environment import environment

pytest.importorskip("pinocchio")
pytest.importorskip("mujoco")

from sweep import programs
from sweep.campaign import Campaign, Settings
from sweep.models import Model, all_models, fetch, files
from sweep.peers import NoPeer, moving_joints, solved, truth
from sweep.report import summary
from sweep.trees import random_tree
from sweep.worker import loaded

WORKER = """
import json, os, sys, time
say = lambda **line: print(json.dumps(line), flush=True)
after, name = int(sys.argv[sys.argv.index("--after") + 1]), sys.argv[1]
say(begun="load")
if name == "refused": say(done="load", refused="x.urdf: no", peer=3); sys.exit()
say(done="load", refused=None, peer=None, programs=3)
for k in range(after, 3):
    say(begun=f"p{k}")
    if k == 1 and name == "aborts": os.abort()
    if k == 1 and name == "hangs": time.sleep(60)
    say(done=f"p{k}", problem="wrong: M" if k == 1 and name == "wrong" else None, seconds=0.5)
"""


@pytest.mark.ci
def test_what_ends_a_process_is_named_and_the_rest_still_runs(tmp_path, monkeypatch):
    (tmp_path / "worker_of_test.py").write_text(WORKER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    results = tmp_path / "results.jsonl"
    campaign = Campaign(Settings(3, 3.0, False), results, "worker_of_test")
    names = "fine", "aborts", "hangs", "wrong", "refused"
    for name in names:
        campaign.run(Model(name, "urdf", name))
    problems = {line["model"]: line["problem"] for line in campaign.lines if line.get("problem")}
    assert set(problems) == {"aborts", "hangs", "wrong"}
    assert "ended with status -6" in problems["aborts"] and "hung" in problems["hangs"]
    done = [(line["model"], line["done"]) for line in campaign.lines if "done" in line]
    assert all((name, "p2") in done for name in ("fine", "aborts", "hangs", "wrong"))
    text, defects = summary(campaign.lines, set(names))
    assert defects == 3 and "REFUSED refused: no" in text and "5 of 5 models" in text
    assert Campaign(Settings(3, 3.0, False), results).finished == set(names)
    with pytest.raises(ValueError, match=r"results\.jsonl has results of .* remove it, or give another file"):
        Campaign(Settings(4, 3.0, False), results)


@pytest.fixture(scope="module")
def robot():
    chain = dataclasses.replace(random_chain(2, 5), armature=jnp.asarray([0.1, 0.2]))
    state = (np.asarray([0.3, -0.4]), np.asarray([0.5, 1.0]), np.asarray([2.0, -1.0]))
    return programs.Robot(chain, "link1", [state], [truth(Model("r", "random", "0"), chain, "link1", *state)])


def test_a_wrong_number_is_found(robot):
    programs.alone(robot, "crba")
    programs.together(robot, ["crba", "gravity_force"])
    off = dict(robot.truths[0], crba=robot.truths[0]["crba"] * (1 + 1e-10))
    with pytest.raises(programs.Wrong, match="crba: result 0 is off by"):
        programs.alone(dataclasses.replace(robot, truths=[off]), "crba")
    robot.singles["potential_energy"] = [np.asarray(np.nan)]
    with pytest.raises(programs.Wrong, match="nothing to compare"):
        programs.together(robot, ["potential_energy"])


def test_refinement_solves_to_the_last_bits():
    hilbert = np.round(27720 / (np.add.outer(np.arange(6), np.arange(6)) + 1))  # whole numbers, and so are the products
    exact = np.arange(1.0, 7.0)
    error = relative(solved(hilbert, hilbert @ exact), exact)
    assert error < 1e-13 and relative(np.linalg.solve(hilbert, hilbert @ exact), exact) > 100 * error


def test_random_trees_have_every_kind_of_joint():
    trees = [random_tree(seed) for seed in range(24)]
    assert {kind for tree in trees for _, kind in tree.topology.compound_joints} == {"spherical", "free"}
    assert any(tree.coupling is not None for tree in trees) and any(tree.transmission is not None for tree in trees)
    assert min(tree.n for tree in trees) <= 2 and max(tree.n for tree in trees) >= 50
    assert len({m.name for m in all_models(None, 9, 0)}) == 9


@pytest.mark.nightly
def test_a_random_robot_in_some_programs(tmp_path):
    command = [sys.executable, "-m", "tests.sweep", "--trees", "1", "--seed", "3", "--programs", "6", "--jobs", "1"]
    command += ["--one-device", "--results", str(tmp_path / "results.jsonl")]
    ended = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=900)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 of 1 models, 1 loaded; 6 programs" in ended.stdout and "\n0 defects" in ended.stdout


@pytest.fixture(scope="module")
def wheels():
    folder = Path(ROOT) / ".wheels"
    try:
        folder.mkdir(exist_ok=True)
        fetch(folder)
    except OSError as error:
        pytest.skip(str(error))
    return folder


# whose reasons a reader accepts: moving links without mass, a mimic of nothing, moments of inertia far from possible,
# and forces of joints that a chain has no place for
REFUSED = 0.02  # 3 of 221 with MuJoCo 4, which itself refuses 13 of its files


@pytest.mark.nightly
def test_robots_of_others_load(wheels):
    peers, refused = 0, {}
    for model in files(wheels):
        try:
            if not model.floating and moving_joints(model):
                peers += 1
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", jaxdyn.ModelWarning)
                    loaded(model)
        except NoPeer:
            continue
        except jaxdyn.ModelError as error:
            refused[model.name] = str(error)
    assert peers > 150 and len(refused) <= REFUSED * peers, refused


@pytest.mark.nightly
def test_collision_shapes_of_robots_of_others_are_read(wheels):
    """Refused: mesh files that the package lacks, and a malformed scale."""
    read, refused = [], {}
    for model in files(wheels):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", jaxdyn.ModelWarning)
                chain = None if model.floating else loaded(model)
        except jaxdyn.ModelError:
            continue
        try:
            if chain is not None:
                shapes = geometry.read(model.source, chain, samples=0)
                read.append((model.name, len(shapes.kinds), len(shapes.pairs)))
        except jaxdyn.ModelError as error:
            if "the file has no collision shapes" not in str(error):
                refused[model.name] = str(error)
    assert len(read) > 150 and len(refused) <= 0.03 * len(read), refused
    assert sum(pairs > 0 for _, _, pairs in read) > 0.85 * len(read)


@pytest.mark.nightly
def test_a_sample_over_robots_of_others(wheels, tmp_path):
    """Six minutes, of other robots every day."""
    command = [sys.executable, "-m", "tests.sweep", "--robots", str(wheels), "--minutes", "5", "--jobs", "1"]
    command += ["--programs", "12", "--seed", str(datetime.date.today().toordinal())]
    command += ["--results", str(tmp_path / "results.jsonl")]
    ended = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=1800)
    assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stdout}{ended.stderr}"
    assert int(re.search(r"(\d+) loaded", ended.stdout)[1]) > 3, ended.stdout

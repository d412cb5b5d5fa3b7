"""Keys of the settings of `jaxdyn identify`: parts of a robot that are known, and limbs that mirror each other."""

import csv
import importlib

import numpy as np
import pytest

from jaxdyn import IdentificationError
from jaxdyn.cli import main
from jaxdyn.identification import random_excitation, synthetic_log
from jaxdyn.io import load, loads

identification = importlib.import_module("jaxdyn.identification.pipeline")

LIMIT = '<limit lower="-2" upper="2" velocity="3" effort="90"/>'


def robot(masses=(2.0, 2.0), lean=0.04):
    """A torso with a left and a right arm of one joint, mirror images of each other if their masses are equal."""
    arms = "".join(
        f"""<link name="{side}_arm"><inertial><origin xyz="0.2 {y * lean} 0.03"/><mass value="{m}"/>
          <inertia ixx="0.01" ixy="0" ixz="0" iyy="0.02" iyz="0" izz="0.02"/></inertial></link>
        <joint name="{side}_shoulder" type="revolute"><parent link="torso"/><child link="{side}_arm"/>
          <origin xyz="0 {y * 0.2} 0"/><axis xyz="0 1 0"/>{LIMIT}<dynamics damping="0.3" friction="0.2"/></joint>"""
        for side, y, m in (("left", 1, masses[0]), ("right", -1, masses[1]))
    )
    return f'<robot name="arms"><link name="torso"/>{arms}</robot>'


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """model.urdf, whose masses are wrong, lone.urdf, which nothing mirrors, and run.csv of the true robot."""
    folder = tmp_path_factory.mktemp("arms")
    (folder / "model.urdf").write_text(robot((1.5, 2.5)))
    (folder / "lone.urdf").write_text(robot().replace('"0 -0.2 0"', '"0.1 -0.2 0"'))
    chain = loads(robot())
    log = synthetic_log(chain, random_excitation(chain, 8.0, 5, seed=0), None, 250.0, 1e-5, 0.02, 0)
    header = "t,q1,q2,tau1,tau2"
    table = np.column_stack([log.t, log.q, log.tau])
    np.savetxt(folder / "run.csv", table, delimiter=",", header=header, comments="", fmt="%.9g")
    return folder


def arguments(files, out, text="", *options, model="model.urdf"):
    (out.parent / "my.toml").write_text(f"choose = []\n{text}")
    given = ["--model", str(files / model), "--log", str(files / "run.csv"), "--out", str(out)]
    return ["identify", *given, "--settings", str(out.parent / "my.toml"), *options]


def test_options_become_knowledge(files, tmp_path, monkeypatch, capsys):
    calls = []

    def record(*_, knowledge, **__):
        calls.append(knowledge)
        raise IdentificationError("stopped by the test")

    monkeypatch.setattr(identification, "identify", record)
    cases = (
        "",
        "links = ['left_arm']\nknown = 0.05",
        "joints = ['left_shoulder', 'right_shoulder']",
        "mirrored = 0.02",
    )
    for text in cases:
        assert main(arguments(files, tmp_path / "out", text)) == 1
    none, links, joints, mirrored = calls
    assert none is None
    assert (links.links, links.joints, links.deviation, links.mirrored) == (("left_arm",), None, 0.05, ())
    assert (joints.links, joints.joints, joints.deviation) == (None, ("left_shoulder", "right_shoulder"), 0.0)
    assert (mirrored.links, mirrored.mirrored) == (None, (("left_arm", "right_arm"),))
    assert mirrored.mirrored_deviation == 0.02
    capsys.readouterr()
    wrong = [
        ("known = 0.05", "model.urdf", 2, "known applies to the links and drives that links and joints exclude"),
        ("mirrored = 0.02", "lone.urdf", 2, "no two links of this robot are mirror images"),
        ("known = -1\nlinks = ['left_arm']", "model.urdf", 1, "known is -1; it must be a number that is not negative"),
    ]
    for text, model, code, message in wrong:
        assert main(arguments(files, tmp_path / "out", text, model=model)) == code
        assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.ci
def test_unknown_links_and_joints_are_named(files, tmp_path, capsys):
    for text, message in (
        ("links = ['hand']", "no link 'hand' to identify; the links are left_arm, right_arm"),
        ("joints = ['wrist']", "no joint 'wrist' to identify"),
    ):
        assert main(arguments(files, tmp_path / "out", text)) == 1
        assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def base_values(out):
    with open(out / "parameters.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["kind"] == "base"]
    return {row["name"].split()[0]: (float(row["value"]), float(row["standard_deviation"])) for row in rows}


@pytest.mark.ci
def test_one_link_alone_and_limbs_that_mirror_each_other(files, tmp_path):
    """Moments of the left arm, in truth m x = 0.4 kg m; the right arm stays that of the model, or becomes its image."""
    given, truth = load(files / "model.urdf"), loads(robot())
    one, both = tmp_path / "one", tmp_path / "both"
    assert main(arguments(files, one, "links = ['left_arm']\njoints = ['left_shoulder']", "--quiet")) == 0
    found = base_values(one)
    assert set(found) == {"Iyy1", "mx1", "mz1", "fv1", "fc1", "off1"}  # no second rotor, and no second arm
    assert abs(found["mx1"][0] - 0.4) < 3 * found["mx1"][1] and found["mx1"][1] < 2e-3
    again = load(one / "identified.urdf", allow_nonphysical=True)
    np.testing.assert_allclose(again.inertia[1], given.inertia[1], rtol=1e-6)
    report = (one / "report.html").read_text()
    assert "Taken from the given model" in report and "link right_arm" in report
    assert main(arguments(files, both, "mirrored = 0.01", "--quiet")) == 0
    again = load(both / "identified.urdf", allow_nonphysical=True)
    image = np.asarray(again.inertia[1]) * [1, 1, -1, 1, 1, -1, 1, 1, -1, 1]
    np.testing.assert_allclose(image, again.inertia[0], rtol=0.05, atol=2e-3)
    np.testing.assert_allclose(again.inertia[:, [1, 3, 6]], truth.inertia[:, [1, 3, 6]], atol=0.02)


@pytest.mark.nightly
def test_links_known_to_a_deviation(files, tmp_path):
    """A model that is trusted to 5 %, and wrong by 25 %, gives way to the data."""
    out = tmp_path / "out"
    assert main(arguments(files, out, "links = ['left_arm']\nknown = 0.05", "--quiet")) == 0
    found = base_values(out)
    assert {"mx1", "mx2"} <= set(found)
    assert abs(found["mx2"][0] - 0.4) < 0.02 < abs(float(load(files / "model.urdf").inertia[1, 1]) - 0.4)

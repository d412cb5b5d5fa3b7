"""Logs of floating-base robots in files, and how `jaxdyn identify` recognises and identifies such robots."""

import csv
import dataclasses
import re

import jax
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxdyn
from jaxdyn import LogError, ModelError, textbook
from jaxdyn.cli import main
from jaxdyn.identification import Filters, MechanismLog, read_mechanism_log, write_mechanism_log
from jaxdyn.identification.mechanisms import mechanism_samples
from standing_robots import standing_log

FEET = "left_sole", "right_sole"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The biped, a log of random numbers with all that can be measured, and the file that holds it."""
    chain, rng = textbook.biped(floating=True), np.random.default_rng(0)
    q, tau = rng.normal(size=(30, 17)), rng.normal(size=(30, 16))
    q[:, 3:7] /= np.linalg.norm(q[:, 3:7], axis=1, keepdims=True)
    q[:, 7:] *= 0.01
    tau[:, :6], tau[:, 9] = np.nan, np.nan  # nothing drives the base; one joint's torque is not measured
    wrenches = dict(zip(FEET, rng.normal(size=(2, 30, 6)), strict=True))
    log = MechanismLog(np.arange(30) * 1e-2, q, tau, wrenches, imu=rng.normal(size=(30, 6)))
    path = tmp_path_factory.mktemp("log") / "all.csv"
    write_mechanism_log(path, chain, log)
    return chain, log, path


def changed(path, name, change):
    """A copy of a table with its columns, a dictionary, changed."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    columns = change({key: [row[key] for row in rows] for key in rows[0]})
    copy = path.parent / name
    with open(copy, "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(columns)
        out.writerows(zip(*columns.values(), strict=True))
    return copy


def without(*names):
    return lambda columns: {key: x for key, x in columns.items() if key not in names}


def test_files_of_mechanisms_return_what_was_written(written):
    chain, log, path = written
    found = read_mechanism_log(path, chain, {"left_thigh": "point"})
    assert "tau_left_ankle_pitch" not in path.read_text().splitlines()[0]
    for x, y in ((found.t, log.t), (found.q[:, 7:], log.q[:, 7:]), (found.tau, log.tau), (found.imu, log.imu)):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)
    for frame in FEET:
        np.testing.assert_allclose(found.wrenches[frame], log.wrenches[frame], rtol=1e-9)
    assert found.held == {"left_thigh": "point"} and found.source == "all.csv"
    assert len(read_mechanism_log(path, chain, rows=(3, 25)).t) == 23


def test_pose_instead_of_imu_and_forces_without_moments(written):
    chain, log, path = written
    imu = ("imu_wx", "imu_wy", "imu_wz", "imu_ax", "imu_ay", "imu_az")
    moments = [f"right_sole_{x}" for x in ("mx", "my", "mz")]
    plain = {f"q_{name}": name for name in chain.joint_names}
    words = {"q": "position", "tau": "effort"}
    slashes = {f"{kind}_{x}": f"/states/{x}/{word}" for kind, word in words.items() for x in chain.joint_names}
    foreign = lambda c: {slashes.get(key, key): x for key, x in c.items()}
    found = read_mechanism_log(changed(path, "foreign.csv", foreign), chain)
    np.testing.assert_allclose(found.q[:, 7:], log.q[:, 7:], rtol=1e-9)
    np.testing.assert_allclose(found.tau, log.tau, rtol=1e-9)
    renamed = lambda c: {plain.get(key, key): x for key, x in without(*imu, *moments)(c).items()}
    found = read_mechanism_log(changed(path, "pose.csv", renamed), chain)
    assert found.imu is None
    np.testing.assert_allclose(found.q, log.q, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.wrenches["right_sole"][:, 3:], log.wrenches["right_sole"][:, 3:], rtol=1e-9)
    assert not found.wrenches["right_sole"][:, :3].any()


def test_missing_and_bad_columns_are_named(written):
    chain, _, path = written
    read = lambda change, **given: read_mechanism_log(changed(path, "bad.csv", change), chain, **given)
    pose = [f"base_{x}" for x in ("px", "py", "pz", "qw", "qx", "qy", "qz")]
    with pytest.raises(LogError, match="missing columns: q_left_knee; "):
        read(without("q_left_knee"))
    with pytest.raises(LogError, match="missing columns: t; "):
        read(without("t"))
    with pytest.raises(LogError, match="missing columns: imu_ay; "):
        read(without(*pose, "imu_ay"))
    with pytest.raises(LogError, match=r"missing columns: base_px, .*base_qz; "):
        read(lambda c: {key: x for key, x in c.items() if not key.startswith(("imu", "base"))})
    with pytest.raises(LogError, match="missing columns: left_sole_mx, left_sole_fz; "):
        read(without("left_sole_mx", "left_sole_fz"))
    with pytest.raises(LogError, match=r"row 4 \(line 5\), column 'tau_left_knee' \(not a number: 'stop'\)"):
        read(lambda c: c | {"tau_left_knee": [*c["tau_left_knee"][:3], "stop", *c["tau_left_knee"][4:]]})
    with pytest.raises(ModelError, match="hand"):
        read(lambda c: c, held={"hand": "pose"})
    with pytest.raises(LogError, match="one floating base"):
        read_mechanism_log(path, textbook.biped())


def floating_arm(folder):
    """A body with two joints, its URDF on a fixed base, and the columns of a log of its free flight, pushed at its body."""
    inertial = (
        '<inertial><origin xyz="{}"/><mass value="{}"/>'
        '<inertia ixx="{}" iyy="0.05" izz="0.04" ixy="0" ixz="0" iyz="0"/></inertial>'
    )
    joint = (
        '<joint name="{0}" type="continuous"><parent link="{1}"/><child link="{2}"/>'
        '<origin xyz="0.3 0 0.1"/><axis xyz="{3}"/></joint>'
    )
    links = (("body", "0.05 0 0.1", 6, 0.06), ("upper", "0.1 0 -0.2", 2, 0.03), ("lower", "0 0.05 -0.2", 1, 0.02))
    text = "".join(f'<link name="{name}">{inertial.format(*rest)}</link>' for name, *rest in links)
    text += joint.format("hip", "body", "upper", "0 1 0") + joint.format("knee", "upper", "lower", "1 0 0")
    (folder / "arm.urdf").write_text(f'<robot name="arm">{text}</robot>')
    chain = jaxdyn.load(folder / "arm.urdf", floating_base=True)
    rng = np.random.default_rng(0)
    t = np.arange(3000) / 250
    frequency, phase = rng.uniform(0.1, 0.7, (5, 8)), rng.uniform(0, 6, (5, 8))
    waves = 0.15 * np.sin(2 * np.pi * frequency * t[:, None, None] + phase).sum(axis=1)
    turn = Rotation.from_rotvec(waves[:, :3]).as_quat()[:, [3, 0, 1, 2]]
    smooth = MechanismLog(t, np.hstack([waves[:, 3:6], turn, waves[:, 6:]]), np.zeros((len(t), 8)))
    s = mechanism_samples(chain, smooth, Filters(position_cutoff=15.0, stride=1)).samples
    tau = np.array(jax.vmap(jaxdyn.inverse_dynamics, (None, 0, 0, 0))(chain, s.q, s.qd, s.qdd))
    noisy = lambda x, size: x + size * rng.normal(size=x.shape)
    log = MechanismLog(s.t, s.q, np.full_like(tau, np.nan), {"body": noisy(tau[:, :6], 0.05)})
    return chain, dataclasses.replace(log, tau=np.hstack([tau[:, :6], noisy(tau[:, 6:], 0.02)]))


def test_settings_that_do_not_fit_the_base_are_refused(tmp_path, capsys):
    chain, log = floating_arm(tmp_path)
    write_mechanism_log(tmp_path / "run.csv", chain, log)
    line = ["identify", "--model", str(tmp_path / "arm.urdf"), "--log", str(tmp_path / "run.csv"), "--settings"]
    for text, code, message in (
        ("dead_zone = 0.1", 2, "dead_zone cannot be used for a robot with a floating base"),
        ('topic = "a"\nterms = ["viscous"]', 2, "topic, terms cannot be used for a robot with a floating base"),
        ('floating_base = false\nheld = {body = "pose"}', 2, "held needs a floating base"),
        ('held = {body = "pose"}', 1, "frame 'body' has a measured wrench and is also held"),
        ('held = {body = "firmly"}', 1, "it must be a table with the values 'pose' and 'point'"),
    ):
        (tmp_path / "my.toml").write_text(text)
        assert main([*line, str(tmp_path / "my.toml"), "--out", str(tmp_path / "out")]) == code
        assert message in capsys.readouterr().err
    assert main(["identify", "--settings", str(tmp_path / "my.toml")]) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "measured", [pytest.param(True, marks=pytest.mark.ci), pytest.param(False, marks=pytest.mark.nightly)]
)
def test_a_floating_arm_from_the_command_line(measured, tmp_path, capsys):
    """The files and the command that users have, with joint torques and without them."""
    chain, log = floating_arm(tmp_path)
    log = log if measured else dataclasses.replace(log, tau=np.full_like(log.tau, np.nan))
    write_mechanism_log(tmp_path / "run.csv", chain, log)
    files = ["--model", str(tmp_path / "arm.urdf"), "--log", str(tmp_path / "run.csv")]
    assert main(["identify", *files, "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert "floating_base_wx" in shown and "nan" not in shown
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"report.html", "model.eqx", "identified.urdf"}
    found = jaxdyn.load(tmp_path / "out" / "identified.urdf", floating_base=True)
    np.testing.assert_allclose(found.inertia[:, 0].sum(), 9.0, rtol=2e-3)
    page = (tmp_path / "out" / "report.html").read_text()
    assert not re.search(r"[\[,:]NaN|>nan|\bnan %", page)
    assert bool(re.search(r"hip +- +-\n *knee +- +-\n", shown)) != measured


@pytest.mark.nightly
def test_a_biped_from_the_command_line(tmp_path, capsys):
    """MuJoCo's log of a squatting biped through the files and the command that users have; joint torques are not logged."""
    chain = textbook.biped(floating=True)
    q0 = np.array([0, 0, 1.0, 1, 0, 0, 0, *[0.0, -0.3, 0.6, -0.3, 0.0] * 2])
    amplitude = np.array([0.05, 0.4, 0.6, 0.4, 0.05] * 2)
    log, _ = standing_log(chain, FEET, q0, amplitude, stiffness=np.full(10, 300.0), seconds=8.0)
    log = dataclasses.replace(log, tau=np.full_like(log.tau, np.nan))
    scale = 1 + 0.3 * np.random.default_rng(0).uniform(-1, 1, (chain.n, 1))
    jaxdyn.save_urdf(jaxdyn.with_inertial_parameters(chain, chain.inertia * scale), tmp_path / "biped.urdf")
    write_mechanism_log(tmp_path / "run.csv", chain, log)
    files = ["--model", str(tmp_path / "biped.urdf"), "--log", str(tmp_path / "run.csv")]
    assert main(["identify", *files, "--out", str(tmp_path / "out")]) == 0
    assert "base" in capsys.readouterr().out
    found = jaxdyn.load(tmp_path / "out" / "identified.urdf")
    assert abs(float(found.inertia[:, 0].sum()) / float(chain.inertia[:, 0].sum()) - 1) < 0.01
    page = (tmp_path / "out" / "report.html").read_text()
    assert "left_knee" in page

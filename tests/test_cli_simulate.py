"""`jaxdyn simulate`, by itself and as one of the five commands that go from a robot's kinematics to a model to look at."""

import argparse
import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import ModelError, geometry, load, read_log
from jaxdyn.cli import main
from jaxdyn.commands.arguments import WrongUsage
from jaxdyn.commands.inputs import read_model
from jaxdyn.identification import (
    Filters,
    FrictionModel,
    MaxwellSlip,
    TorqueModel,
    Viscous,
    preprocess,
    save_torque_model,
)
from jaxdyn.identification.base import model_torque
from jaxdyn.identification.validation import with_payload
from test_check import ARM as CAPSULES
from test_cli import ARM

TWO = ["--lock", "grip=0.02"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulated")
    (folder / "arm.urdf").write_text(ARM.replace("<dynamics", '<jaxdyn armature="0.1"/><dynamics'))
    t = np.arange(301) / 100
    q = np.c_[0.8 * np.cos(2 * t), 0.6 * np.cos(3 * t) - 0.2]
    np.savetxt(folder / "plan.csv", np.c_[t, q], "%.9g", ",", header="t,q1,q2", comments="")
    return folder


def simulated(files, name, *options):
    out = files / name
    line = ["simulate", str(files / "arm.urdf"), str(files / "plan.csv"), "--out", str(out), "--rate", "250", *TWO]
    assert main([*line, "--quiet", *options]) == 0
    return read_log(out, 2)


def test_locks_of_joints_that_a_model_lacks_are_errors(files, capsys):
    arm, saved = str(files / "arm.urdf"), str(files / "saved.eqx")
    save_torque_model(TorqueModel(load(arm, lock={"grip": 0.02})), saved)
    export = ["export", "--out", str(files / "x"), "--quiet", "--lock", "gripp=0"]
    assert main([*export, arm]) == 1
    assert "unknown joint 'gripp' in lock; the joints are turn, lift, grip" in capsys.readouterr().err
    for command in ([*export, saved], ["simulate", saved, str(files / "plan.csv"), "--lock", "gripp=0"]):
        assert main(command) == 2
        assert "--lock gripp: --lock and --tip apply only to URDF" in capsys.readouterr().err
    # of two models, one has to have the joint
    options = argparse.Namespace(lock={"gripp": 0.0}, tip=None, gravity=None)
    with pytest.raises(ModelError, match="unknown joint 'gripp'"):
        read_model(options, arm, beside=saved)
    with pytest.raises(WrongUsage, match="--lock gripp"):
        read_model(options, saved, beside=saved)
    options.lock = {"grip": 0.0}
    assert read_model(options, arm, beside=saved).chain.n == read_model(options, saved, beside=arm).chain.n == 2
    (files / "two.urdf").write_text((files / "arm.urdf").read_text().replace("grip", "hand"))
    assert read_model(options, str(files / "two.urdf"), beside=arm).chain.n == 3


@pytest.mark.ci
def test_the_log_is_the_robots_with_noise(files):
    exact = simulated(files, "exact.csv", "--position-noise", "0", "--torque-noise", "0")
    chain = load(files / "arm.urdf", lock={"grip": 0.02})
    assert len(exact) == 751 and exact.t[-1] == pytest.approx(3.0)
    plan = np.c_[0.8 * np.cos(2 * exact.t), 0.6 * np.cos(3 * exact.t) - 0.2]
    assert np.abs(exact.q - plan).max() < 0.02
    samples = preprocess(exact, Filters(20.0))
    size = np.sqrt((samples.tau**2).mean(axis=0))
    error = samples.tau - model_torque(chain, samples)
    assert (np.sqrt((error**2).mean(axis=0)) < 0.02 * size + 0.02).all()  # friction and all, where velocities turn too
    noisy = simulated(files, "noisy.csv", "--position-noise", "1e-4", "--torque-noise", "0.3", "--seed", "5")
    assert (noisy.q - exact.q).std() == pytest.approx(1e-4, rel=0.2)
    assert (noisy.tau - exact.tau).std() > 0.25
    loaded = simulated(files, "loaded.csv", "--position-noise", "0", "--torque-noise", "0", "--payload", "2")
    lift = (loaded.tau - exact.tau)[:, 1].mean()  # the tip is 0.4 m from the axis that lifts
    assert lift == pytest.approx(-2 * 9.81 * 0.4 * np.cos(exact.q[:, 1]).mean(), rel=0.1)


def test_the_payload_is_where_the_command_says(files, capsys):
    line = ["simulate", str(files / "arm.urdf"), str(files / "plan.csv"), "--out", str(files / "p.csv"), *TWO]
    assert main([*line, "--rate", "250", "--payload", "1.5,0,0,0.1", "--frame", "upper"]) == 0
    assert "payload: 1.5 kg at 0, 0, 0.1 m in upper" in capsys.readouterr().out
    assert main([*line, "--frame", "upper"]) == 2
    assert "it needs --payload" in capsys.readouterr().err


@pytest.mark.ci
def test_what_touches_is_named(tmp_path, capsys):
    (tmp_path / "arm.urdf").write_text(CAPSULES)
    t = np.arange(101) / 50
    s = (10 - 15 * t / 2 + 6 * t**2 / 4) * t**3 / 8
    np.savetxt(
        tmp_path / "plan.csv", np.c_[t, 0 * s, 0.2 + 1.8 * s, 1.1 * s], "%.9g", ",", header="t,q1,q2,q3", comments=""
    )
    line = ["simulate", str(tmp_path / "arm.urdf"), str(tmp_path / "plan.csv"), "--out", str(tmp_path / "run.csv")]
    assert main([*line, "--rate", "250"]) == 0
    assert re.search(r"touches at 1\.\d\d s: forearm and floor", capsys.readouterr().out)
    assert main([*line, "--rate", "250", "--contacts"]) == 0
    chain = load(tmp_path / "arm.urdf")
    shapes = geometry.read(tmp_path / "arm.urdf", chain)
    shapes = geometry.with_environment(chain, shapes, [geometry.floor()])
    least = lambda q: jax.jit(jax.vmap(lambda q: geometry.distances(chain, shapes, q).min()))(jnp.asarray(q)).min()
    assert least(np.c_[0 * s, 0.2 + 1.8 * s, 1.1 * s]) < -0.05
    assert -0.02 < least(read_log(tmp_path / "run.csv", 3).q) < 0
    assert main([*line, "--contacts", "--shapes", "none"]) == 2
    assert "--contacts needs shapes" in capsys.readouterr().err


def test_a_logged_torque_is_the_mean_of_those_before_and_after(files):
    """So it is neither early nor late: the error of inverse dynamics does not correlate with the torque's slope."""
    exact = simulated(files, "centred.csv", "--position-noise", "0", "--torque-noise", "0", "--rate", "1000")
    chain = load(files / "arm.urdf", lock={"grip": 0.02})
    samples = preprocess(exact, Filters(20.0, stride=1))
    error, slope = samples.tau - model_torque(chain, samples), np.gradient(samples.tau, 1 / samples.rate, axis=0)
    late = (error * slope).sum(axis=0) / (slope**2).sum(axis=0)  # [s], of the logged torque
    assert (np.abs(late) < 5e-5).all(), late


def test_a_payload_is_a_point_mass_in_its_frame():
    arm, where = jaxdyn.robots.panda(), np.array([0.02, -0.03, 0.05])
    loaded = with_payload(arm, 1.7, tuple(where))
    q, qd = jnp.asarray(np.random.default_rng(0).normal(size=(2, 7)))
    point = lambda q: (jaxdyn.frame_pose(arm, q) @ jnp.append(jnp.asarray(where), 1.0))[:3]
    speed = jax.jvp(point, (q,), (qd,))[1]
    gained = jaxdyn.kinetic_energy(loaded, q, qd) - jaxdyn.kinetic_energy(arm, q, qd)
    np.testing.assert_allclose(gained, 0.5 * 1.7 * speed @ speed, rtol=1e-9)


@pytest.mark.nightly
def test_a_folded_arm_is_tracked_and_a_robot_that_leaves_the_motion_is_no_log(files, capsys):
    """Folded, the first joint moves a fiftieth of the stretched arm's inertia, which fixed gains would not survive."""
    two = jaxdyn.textbook.planar_elbow(m1=0.5, m2=4.0, l1=1.0, l2=1.0)
    t = np.arange(501) / 250
    q = np.c_[0.3 * np.sin(3 * t), 2.9 + 0.1 * np.cos(4 * t)]
    np.savetxt(files / "folded.csv", np.c_[t, q], "%.9g", ",", header="t,q1,q2", comments="")
    (files / "elbow.urdf").write_text(jaxdyn.io.to_urdf(two))
    line = ["simulate", str(files / "elbow.urdf"), str(files / "folded.csv"), "--out", str(files / "folded_run.csv")]
    assert main(line) == 0
    errors = re.search(r"tracking error .*: (\S+), (\S+)", capsys.readouterr().out).groups()
    assert max(float(x) for x in errors) < 5e-3
    (files / "folded_run.csv").unlink()
    assert main([*line, "--bandwidth", "3000"]) == 1
    assert "does not follow the motion" in capsys.readouterr().err and not (files / "folded_run.csv").exists()


@pytest.mark.ci
def test_a_whole_model_is_simulated(files, tmp_path):
    """Friction with memory, of a model.eqx: the log is that of the whole model, which its chain does not predict."""
    chain = load(files / "arm.urdf", lock={"grip": 0.02})
    bare = dataclasses.replace(chain, friction=jax.tree.map(jnp.zeros_like, chain.friction))
    law = FrictionModel((Viscous(), MaxwellSlip(0.05))).for_joints(2)
    model = TorqueModel(bare, jax.tree.map(lambda x: x.astype(chain.dtype), law), jnp.array([[0.5, 3.0], [0.3, 2.0]]))
    save_torque_model(model, tmp_path / "model.eqx")
    line = ["simulate", str(tmp_path / "model.eqx"), str(files / "plan.csv"), "--out", str(tmp_path / "run.csv")]
    assert main([*line, "--position-noise", "0", "--torque-noise", "0", "--quiet"]) == 0
    samples = preprocess(read_log(tmp_path / "run.csv", 2), Filters(30.0, stride=1))
    size = np.sqrt((samples.tau**2).mean(axis=0))
    rms = lambda tau: np.sqrt(((samples.tau - tau) ** 2).mean(axis=0))
    assert (rms(model.predict(samples)) < 0.03 * size).all()  # friction is not relaxed where the filter's margin ends
    assert (rms(model_torque(bare, samples)) > 1.5).all()


def test_what_cannot_be_simulated(files, tmp_path, capsys):
    bare = tmp_path / "bare.urdf"
    bare.write_text(re.sub(r"<inertial>.*?</inertial>", "", ARM, flags=re.DOTALL))
    line = ["simulate", str(bare), str(files / "plan.csv"), *TWO, "--out", str(tmp_path / "x.csv")]
    assert main(line) == 1 and "links without inertia" in capsys.readouterr().err
    assert not (tmp_path / "x.csv").exists()
    bare.write_text(ARM.replace('izz="0.02"', 'izz="0.2"', 1))  # no body has that: the nearest one is simulated
    assert main([*line, "--quiet"]) == 0 and "inertials of upper" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main([*line, "--payload", "1,2"])
    assert "'1,2' must have the form KG or KG,X,Y,Z" in capsys.readouterr().err


@pytest.mark.ci
def test_five_commands(files, tmp_path, monkeypatch, capsys):
    """Those of the guide: excite, simulate, identify, compare, view."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "arm.urdf").write_text((files / "arm.urdf").read_text())
    quick = ["--rounds", "1", "--starts", "1", "--duration", "5", "--rate", "250", "--acceleration", "15"]
    assert main(["excite", "arm.urdf", "--out", "plan.csv", *TWO, *quick]) == 0
    assert main(["simulate", "arm.urdf", "plan.csv", "--out", "run.csv", "--rate", "500", *TWO]) == 0
    assert main(["identify", "--model", "arm.urdf", "--log", "run.csv", "--out", "results", *TWO]) == 0
    assert main(["compare", "arm.urdf", "results/model.eqx", "--log", "run.csv", *TWO]) == 0
    assert re.search(r"total relative error of [\d.]+ %, model.eqx\s+with \d[\d.]* %", capsys.readouterr().out)
    pytest.importorskip("trimesh")
    assert main(["view", "results/model.eqx", "run.csv", "--film", "motion.gif", "--quiet"]) == 0
    assert (tmp_path / "motion.gif").stat().st_size > 1000

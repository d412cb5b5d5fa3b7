"""Servo gains, delays, biases, armature and friction from commanded and measured positions, without torques."""

import dataclasses
import functools
import hashlib
import tomllib

import jax.numpy as jnp
import numpy as np
import pytest

import jaxdyn
from jaxdyn import IdentificationError, Log, LogError
from jaxdyn.cli import main
from jaxdyn.identification import identify_from_commands, preprocess
from jaxdyn.identification.from_commands import (
    IDENTIFIED,
    PARAMETERS,
    _motions,
    _normal,
    _notes,
    _Plan,
    _positions,
    _sign_between,
    _windows,
)
from jaxdyn.io.logs import write_log
from jaxdyn.report import servos as servo_results
from servo_logs import Servos, command_log, servos

BITS = 2 * np.pi / 2**14  # one step of an encoder [rad]
JUDGED = ("kp", "delay", "bias", "armature", "viscous", "coulomb")


@functools.cache
def pendulum():
    """A link on a servo under gravity, as a model without a drive and as a robot with one."""
    bare = jaxdyn.make_chain(
        rotation=[np.eye(3)],
        translation=[[0, 0, 0]],
        screw=[[0, 1, 0, 0, 0, 0]],
        inertia=[[0.5, 0, 0, -0.1, 0.022, 0, 0.022, 0, 0, 1e-3]],
        limits=jaxdyn.JointLimits(position=[[-1.2, 1.2]], velocity=[8.0]),
    )
    friction = dataclasses.replace(bare.friction, viscous=jnp.array([0.2]), coulomb=jnp.array([0.1]))
    true = dataclasses.replace(bare, armature=jnp.array([0.01]), friction=friction)
    return bare, Servos(true, np.array([25.0]), np.array([0.6]), np.array([0.00725]), np.array([0.04]))


@functools.cache
def pendulum_log(seconds=6.0):
    return command_log(pendulum()[1], seconds, 200.0, BITS, 3, 15)


def errors(found, true):
    """(error / standard deviation) of each judged parameter."""
    return np.stack([(found[x] - true.truth(x)) / found.deviations(x) for x in JUDGED])


@pytest.mark.ci
def test_the_servo_of_a_pendulum_is_identified_from_commands():
    bare, true = pendulum()
    found = identify_from_commands(bare, pendulum_log(), step=1e-3)
    assert found.converged
    assert np.abs(errors(found, true)).max() < 3
    assert np.mean(np.abs(errors(found, true)) < 2) >= 0.8
    np.testing.assert_allclose(found["delay"], true.delay, atol=2e-4)
    np.testing.assert_allclose(found["kp"], true.kp, rtol=0.01)
    np.testing.assert_allclose(found.noise, BITS / np.sqrt(12), rtol=0.1)
    np.testing.assert_allclose(found.held_out, BITS / np.sqrt(12), rtol=0.15)
    assert found.tracking > 50 * found.noise
    np.testing.assert_array_equal(found.chain.armature, found["armature"])
    np.testing.assert_array_equal(found.chain.friction.viscous, found["viscous"])
    low, high = np.moveaxis(found.confidence_intervals(), -1, 0)
    width, cut = PARAMETERS.index("coulomb_velocity"), low == 0
    assert low[0, width] == 0 and high[0, width] > 2 * found["coulomb_velocity"]  # too small to be told from zero
    assert np.all(low[:, ~np.isin(PARAMETERS, ["bias", "offset"])] >= 0)
    np.testing.assert_allclose(((low + high) / 2)[~cut], found.values[~cut])
    off = found.predict(pendulum_log()) - pendulum_log().q
    assert np.sqrt((off**2).mean()) < 2 * BITS
    assert "joint1: kp 2" in repr(found)
    assert f"[1e-3 rad or m]: {1e3 * found.noise[0]:.3g}, {1e3 * found.held_out[0]:.3g} held out" in repr(found)
    values, deviations = found.values.copy(), np.full_like(found.values, 0.1)
    values[0, PARAMETERS.index("viscous")] = -0.5
    notes = _notes(bare, values, deviations, np.isin(PARAMETERS, IDENTIFIED), True)
    assert any("viscous of joint1 is negative" in note for note in notes)


def window_of(log, plan_of=None):
    """A plan with known values, and the windows of a log."""
    bare, true = pendulum()
    table = np.array([[true.kp[0], true.kd[0], 0.00725, 0.04, 0.01, 0.2, 0.1, 0.02, 0.0]])
    names = (*JUDGED, "kd", "coulomb_velocity", "offset")
    free = np.array([[0] * len(names), [PARAMETERS.index(x) for x in names]])
    plan = _Plan(bare, table, free, np.zeros(len(PARAMETERS), bool), 10, True)
    return plan, _windows(_motions([log]), 1.0), table[0, free[1]]


@pytest.mark.nightly
def test_sensitivities_are_the_derivatives_of_the_simulated_positions():
    plan, windows, values = window_of(pendulum_log())
    windows = windows.of(slice(2, 3))
    start = np.array([[float(windows.q[0, 0, 0]), 0.3]])
    normal = _normal(plan, windows, values, start)
    x, steps = np.concatenate([values, start[0]]), 1e-6
    moved = lambda d: np.asarray(_positions(plan, windows, (x + d)[:-2], (x + d)[None, -2:]))[0, :, 0]
    jacobian = np.stack([(moved(steps * e) - moved(-steps * e)) / (2 * steps) for e in np.eye(len(x))], axis=1)
    jacobian = jacobian[windows.there[0]]
    off = (windows.q[0, :, 0] - moved(0 * x))[windows.there[0]]
    np.testing.assert_allclose(normal[0][0, 0], jacobian.T @ jacobian, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(normal[1][0, 0], jacobian.T @ off, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(normal[2][0, 0], off @ off, rtol=1e-9)


@pytest.mark.parametrize(("before", "after"), [(-3.0, 2.0), (0.5, 0.502), (40.0, -41.0), (0.0, 0.0)])
def test_dry_friction_of_a_step_is_the_mean_over_the_velocities_passed(before, after):
    mean = lambda y: np.tanh(np.linspace(before, y, 200_001)).mean()
    found, slope = _sign_between(jnp.asarray(before), jnp.asarray(after))
    np.testing.assert_allclose(found, mean(after), atol=1e-5)
    np.testing.assert_allclose(slope, (mean(after + 1e-3) - mean(after - 1e-3)) / 2e-3, atol=2e-4)


def test_a_delayed_command_that_is_held_acts_between_the_steps():
    # without gravity and friction, kp of nothing but inertia: the first reaction comes exactly one delay after the command
    t = np.arange(60) * 0.01
    command = np.where(t[:, None] >= 0.2, 0.1, 0.0)
    log = Log(t, np.zeros((60, 1)), None, np.full((60, 1), np.nan), command=command)
    bare, _ = pendulum()
    free = dataclasses.replace(bare, gravity=jnp.zeros(3))
    table = np.zeros((1, len(PARAMETERS)))
    table[0, [PARAMETERS.index(x) for x in ("kp", "delay", "coulomb_velocity")]] = 1e-3, 0.0137, 0.02
    plan = _Plan(free, table, np.zeros((2, 0), int), np.zeros(len(PARAMETERS), bool), 20, True)
    windows = _windows(_motions([log]), 10.0)
    q = np.asarray(_positions(plan, windows, np.zeros(0), np.zeros((1, 2))))[0, :, 0]
    inertia = float(np.asarray(jaxdyn.crba(bare, jnp.zeros(1)))[0, 0])
    since = np.maximum(t - 0.2 - 0.0137, 0)
    np.testing.assert_allclose(q, 1e-3 * 0.1 / inertia * since**2 / 2, rtol=2e-3)
    early = t < 0.2 + 0.0137
    np.testing.assert_array_equal(q[early], 0.0)


def test_logs_with_commands_need_no_torques(tmp_path):
    log = pendulum_log()
    write_log(tmp_path / "log.csv", log)
    again = jaxdyn.read_log(tmp_path / "log.csv", 1)
    np.testing.assert_allclose(again.command, log.command, rtol=1e-9)
    assert np.isnan(again.tau).all()
    assert any("no torques" in note for note in again.notes)
    assert list(again.to_pandas().columns) == ["q1", "q_cmd1"]
    with pytest.raises(LogError, match="no torques"):
        preprocess(again)


def test_logs_that_determine_nothing_are_refused():
    bare, _ = pendulum()
    log = pendulum_log()
    for wrong, text in (
        (dataclasses.replace(log, command=None), "no commanded positions; add columns q_cmd1"),
        (dataclasses.replace(log, command=log.q), "equals its measured position"),
        (dataclasses.replace(log, command=0 * log.q), "is constant"),
        (dataclasses.replace(log, command=np.full_like(log.q, np.inf)), "not finite"),
    ):
        with pytest.raises(IdentificationError, match=text):
            identify_from_commands(bare, wrong)
    with pytest.raises(LogError, match="does not move"):
        identify_from_commands(bare, dataclasses.replace(log, q=0 * log.q))
    for options, text in (
        ({"identified": ("kp", "kd", "viscous")}, "only their sum is determined"),
        ({"identified": ("kp", "mass")}, "'mass' is not a parameter"),
        ({"known": {"kp": 3.0}}, "both identified and known"),
        ({"identified": ("delay",)}, "kp is neither"),
    ):
        with pytest.raises(IdentificationError, match=text):
            identify_from_commands(bare, log, **options)


@pytest.mark.nightly
def test_the_servos_of_a_leg_are_identified_from_commands():
    bare, true = servos("leg", 2)
    log = command_log(true, 15.0, 250.0, BITS, 2, 38)
    part = lambda k: dataclasses.replace(log, t=log.t[k], q=log.q[k], tau=log.tau[k], command=log.command[k])
    parts = part(slice(3000)), part(slice(3000, None))
    found = identify_from_commands(bare, parts[0], parts[1])
    assert found.converged
    # delay, armature and viscous friction of a joint are correlated: the share within 2 deviations needs many logs
    # (tests/benchmarks/commands.py)
    assert np.abs(errors(found, true)).max() < 4
    assert np.abs(found["delay"] - true.delay).max() < 3e-4
    np.testing.assert_allclose(found.noise, BITS / np.sqrt(12), rtol=0.15)
    np.testing.assert_allclose(found.held_out, BITS / np.sqrt(12), rtol=0.25)


@pytest.mark.ci
def test_identify_of_the_command_line_fits_servos_to_logs_without_torques(tmp_path, capsys, monkeypatch):
    bare, true = pendulum()
    jaxdyn.io.save_urdf(bare, tmp_path / "arm.urdf")
    write_log(tmp_path / "run.csv", pendulum_log())
    out = tmp_path / "out"
    where = ["--model", str(tmp_path / "arm.urdf"), "--log", str(tmp_path / "run.csv"), "--out", str(out)]
    assert main(["identify", *where]) == 0
    shown, _ = capsys.readouterr()
    assert "joint1: kp 2" in shown and "Written to" in shown
    found = np.genfromtxt(out / "parameters.csv", delimiter=",", names=True, dtype=None, encoding="utf-8")
    values = dict(zip(found["parameter"], found["value"], strict=True))
    np.testing.assert_allclose(values["kp"], true.kp[0], rtol=0.01)
    np.testing.assert_allclose(values["delay"], true.delay[0], atol=2e-4)
    np.testing.assert_allclose(jaxdyn.load(out / "identified.xml").armature, values["armature"], rtol=1e-5)
    names = ["identified.urdf", "identified.xml", "parameters.csv", "report.html", "settings.toml"]
    assert sorted(path.name for path in out.iterdir()) == names
    page, text = (out / "report.html").read_text("utf-8"), (out / "settings.toml").read_text("utf-8")
    low, high = (found[end][list(found["parameter"]).index("kp")] for end in ("lower", "upper"))
    assert f"95 % interval {low:.4g} to {high:.4g}" in page and page.count('<figure class="plot">') == 1
    assert hashlib.sha256((tmp_path / "run.csv").read_bytes()).hexdigest() in page
    assert tomllib.loads(text)["log"] == [str(tmp_path / "run.csv")]
    # what does not apply to commands is an error, and a failure leaves the earlier results as they are
    before = {path: path.read_bytes() for path in out.iterdir()}
    (tmp_path / "my.toml").write_text("cutoff = 5\nterms = ['viscous']\n")
    assert main(["identify", *where, "--settings", str(tmp_path / "my.toml"), "--limit", "rms=1"]) == 2
    assert "terms, cutoff, limit cannot be used for logs of commands without torques" in capsys.readouterr().err
    monkeypatch.setattr(servo_results, "write_mjcf_of", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left")))
    assert main(["identify", *where]) == 1 and "No space left" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in out.iterdir()} == before


@pytest.mark.nightly
def test_what_gravity_does_not_show_is_said_to_be_undetermined():
    bare, true = pendulum()
    level = lambda chain: dataclasses.replace(chain, gravity=jnp.zeros(3))
    log = command_log(dataclasses.replace(true, chain=level(true.chain), bias=np.array([0.0])), 6.0, 200.0, BITS, 3, 15)
    found = identify_from_commands(level(bare), log, 0.0, known={"kd": 0.6})
    assert np.isinf(found.deviations("kp")).all()  # the link's inertia and the armature act in the same way
    rest = tuple(name for name in IDENTIFIED if name != "armature")
    found = identify_from_commands(level(bare), log, 0.0, identified=rest, known={"kd": 0.6, "armature": 0.01})
    assert found.held_out is None
    assert np.isinf(found.deviations("bias")).all()
    assert "bias of joint1 is not determined by these logs" in found.notes
    np.testing.assert_allclose(found["viscous"], true.chain.friction.viscous, atol=4 * found.deviations("viscous")[0])
    np.testing.assert_array_equal(found["kd"], 0.6)


@pytest.mark.nightly
def test_light_links_determine_only_ratios_to_the_gain():
    bare, true = pendulum()
    own = dataclasses.replace(true.chain, armature=jnp.array([50.0]))
    drives = dataclasses.replace(own, friction=dataclasses.replace(own.friction, coulomb=jnp.array([50.0])))
    heavy = Servos(drives, np.array([40e3]), np.array([1000.0]), true.delay, np.array([0.0]))
    found = identify_from_commands(bare, command_log(heavy, 6.0, 200.0, BITS, 3, 15), 0.0)
    assert all(np.isinf(found.deviations(x)).all() for x in ("kp", "armature", "viscous", "coulomb"))
    assert any("of joint1 are determined at most relative to one another" in note for note in found.notes)
    for name in ("armature", "viscous", "coulomb"):
        np.testing.assert_allclose(found[name] / found["kp"], heavy.truth(name) / heavy.kp, rtol=0.05)
    np.testing.assert_allclose(found["delay"], heavy.delay, atol=5e-4)

"""Logs on the command line: column maps, bags and plain files."""

import hashlib
import importlib

import numpy as np
import pytest

import jaxdyn
from bag_files import write_bag, write_bag_folder
from jaxdyn import JaxdynError, save_urdf
from jaxdyn.cli import main
from jaxdyn.identification import payload, validation as comparison
from regression import known_arm

identification = importlib.import_module("jaxdyn.identification.pipeline")

T = np.arange(100) / 100
Q = 0.5 * np.sin(T[:, None] * [3.0, 4.0, 5.0])
TAU = 5 * np.cos(T[:, None] * [3.0, 4.0, 5.0])
MAP = '[t]\ncolumn = 1\n[q]\ncolumns = "A*"\nunit = "deg"\n[tau]\ncolumns = "M*"\n'


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """An arm, its motion as a plain CSV, as one with a map, and as a bag with two topics."""
    pytest.importorskip("rosbags")
    folder, chain = tmp_path_factory.mktemp("cli"), known_arm()
    save_urdf(chain, folder / "arm.urdf")
    plain, odd = np.c_[T, Q, TAU], np.c_[T, np.degrees(Q), TAU]
    np.savetxt(folder / "a.csv", plain, "%.12g", ",", header="t,q1,q2,q3,tau1,tau2,tau3", comments="")
    np.savetxt(folder / "b.csv", odd, "%.12g", ",", header="clock,A1,A2,A3,M1,M2,M3", comments="")
    (folder / "map.toml").write_text(MAP)
    messages = [
        (topic, 10**18 + round(1e9 * t), chain.joint_names[::-1], q[::-1], (), scale * tau[::-1])
        for t, q, tau in zip(T, Q, TAU, strict=True)
        for topic, scale in (("/measured", 1.0), ("/desired", 0.9))
    ]
    write_bag(folder / "c.mcap", messages, "mcap")
    return folder


@pytest.fixture
def run(files, monkeypatch, capsys):
    """Runs the command up to the identification; the logs it would use, or its exit code and message."""
    caught = []

    def stop(chain, logs, validate, **options):
        caught[:] = [*logs, *(validate if isinstance(validate, list) else ())]
        raise JaxdynError("enough")

    monkeypatch.setattr(identification, "identify", stop)

    def run(*options):
        code = main(["identify", "--model", str(files / "arm.urdf"), "--out", str(files / "out"), *map(str, options)])
        errors = capsys.readouterr().err
        return [*caught] if "enough" in errors else (code, errors)

    return run


def test_every_log_with_its_map(files, run):
    logs = run(
        *("--log", files / "a.csv", "--log", files / "b.csv", "--validate", files / "c.mcap"),
        *("--columns", "-", "--columns", files / "map.toml", "--columns", "-", "--topic", "measured"),
    )
    assert [log.source for log in logs] == ["a.csv", "b.csv", "c.mcap"]
    for log in logs:
        np.testing.assert_allclose(log.q, Q, atol=1e-10)
        np.testing.assert_allclose(log.tau, TAU, atol=1e-10)


def test_one_map_for_all(files, run):
    logs = run("--log", files / "b.csv", "--validate", files / "b.csv", "--columns", files / "map.toml")
    assert len(logs) == 2 and np.abs(logs[1].q - Q).max() < 1e-10


def test_all_commands_read_logs_alike(files, monkeypatch, capsys):
    caught, options = {}, {}

    def stopping(name):
        def stop(*arguments, **named):
            caught[name], options[name] = arguments, named
            raise JaxdynError("enough")

        return stop

    monkeypatch.setattr(payload, "identify_payload", stopping("payload"))
    monkeypatch.setattr(comparison, "compare_models", stopping("compare"))
    arm, form = str(files / "arm.urdf"), ["--columns", "-", "--columns", str(files / "map.toml"), "--topic", "measured"]
    bag, odd = str(files / "c.mcap"), str(files / "b.csv")
    assert main(["payload", "--model", arm, "--unloaded", bag, "--loaded", odd, *form]) == 1
    assert main(["compare", arm, arm, "--log", bag, "--log", odd, *form, "--out", str(files / "x.html")]) == 1
    assert capsys.readouterr().err.count("error: enough") == 2
    for log in (*caught["payload"][1], *options["payload"]["unloaded"], *caught["compare"][2]):
        np.testing.assert_allclose(log.q, Q, atol=1e-10)
        np.testing.assert_allclose(log.tau, TAU, atol=1e-10)
    assert main(["compare", arm, arm, "--log", bag, "--columns", "a", "--columns", "b"]) == 2
    assert "--columns is given 2 times for 1 log" in capsys.readouterr().err


def test_files_of_one_run_are_joined(files, run, tmp_path):
    later, slow = np.arange(5, 105) / 100, np.arange(60) / 60  # positions and torques by two clocks
    wave = lambda f, t: f(t[:, None] * [3.0, 4.0, 5.0])
    whole = np.c_[T, Q, TAU]
    for name, rows, header in (
        ("first.csv", whole[:40], "t,q1,q2,q3,tau1,tau2,tau3"),
        ("second.csv", whole[40:], "t,q1,q2,q3,tau1,tau2,tau3"),
        ("motion.csv", np.c_[later, wave(np.sin, later)], "t,q1,q2,q3"),
        ("torque.csv", np.c_[slow, wave(np.cos, slow)], "time,tau1,tau2,tau3"),
    ):
        np.savetxt(tmp_path / name, rows, "%.12g", ",", header=header, comments="")
    joined = lambda *names: "+".join(str(tmp_path / name) for name in names)
    (log,) = run("--log", joined("first.csv", "second.csv"), "--rows", "11:100")
    assert log.source == "first.csv+second.csv" and "2 files concatenated" in log.notes
    np.testing.assert_allclose(np.c_[log.t, log.q, log.tau], whole[10:], atol=1e-11)
    code, text = run("--log", joined("second.csv", "first.csv"))
    assert code == 1 and "at which time does not increase" in text and "row 1 (line 2) of first.csv" in text
    (log,) = run("--log", joined("motion.csv", "torque.csv"))
    np.testing.assert_allclose(log.t, later[later <= slow[-1]], atol=1e-12)
    np.testing.assert_allclose(log.q, wave(np.sin, log.t), atol=1e-11)
    np.testing.assert_allclose(log.tau, wave(np.cos, log.t), atol=5**2 / 60**2 / 8)  # of linear interpolation
    assert any(
        "torque.csv interpolated linearly to the time stamps of motion.csv; 6 of 100 rows" in x for x in log.notes
    )
    code, text = run("--log", joined("first.csv", "torque.csv"))
    assert code == 1 and "torque.csv: column 'tau1' is also in" in text


def test_refused(files, run, tmp_path):
    code, text = run("--log", files / "c.mcap")
    assert code == 1 and "/measured and /desired each contain all joints; choose one with --topic" in text
    code, text = run("--log", files / "a.csv", "--topic", "/measured")
    assert code == 1 and "--topic is for bags" in text
    code, text = run("--log", files / "a.csv", "--columns", files / "map.toml", "--columns", "-")
    assert code == 2 and "--columns is given 2 times for 1 log" in text
    (tmp_path / "wrong.toml").write_text(MAP.replace('"deg"', '"degrees"'))
    code, text = run("--log", files / "b.csv", "--columns", tmp_path / "wrong.toml")
    assert code == 1 and "wrong.toml, line 5, [q], unit: 'degrees' is unknown" in text
    assert main(["identify", "--columns", "map.toml"]) == 2
    assert not (files / "out").exists()


@pytest.mark.parametrize("kind", ["ros2", "mcap"])
def test_folder_of_a_split_bag_is_compared_and_hashed(files, tmp_path, capsys, kind):
    names = known_arm().joint_names
    messages = [("/states", 10**18 + round(1e9 * t), names, q, (), x) for t, q, x in zip(T, Q, TAU, strict=True)]
    folder = write_bag_folder(tmp_path / "run", [messages[:40], messages[40:]], kind)
    arm = str(files / "arm.urdf")
    pages = {}
    for log in (folder, files / "a.csv"):
        out = tmp_path / f"{log.name}.html"
        assert main(["compare", arm, arm, "--log", str(log), "--out", str(out)]) == 0
        table = capsys.readouterr().out
        pages[log] = [line for line in table.splitlines() if line.strip().startswith(("all", *names))]
        text = out.read_text()
    assert pages[folder] == pages[files / "a.csv"] and len(pages[folder]) == 4
    text = (tmp_path / "run.html").read_text()
    for path in folder.iterdir():
        assert hashlib.sha256(path.read_bytes()).hexdigest() in text and str(path) in text


def test_inputs_are_hashed_before_the_fit(files, run, tmp_path, monkeypatch):
    names = known_arm().joint_names
    messages = [("/states", 10**18 + round(1e9 * t), names, q, (), x) for t, q, x in zip(T, Q, TAU, strict=True)]
    folder = write_bag_folder(tmp_path / "run", [messages], "ros2")
    (log,) = run("--log", folder)
    np.testing.assert_allclose(log.q, Q, atol=1e-10)
    assert len(run("--log", files / "a.csv", "--validate", folder)) == 2

    def fail(*_):
        raise OSError(13, "Permission denied")

    monkeypatch.setattr("jaxdyn.report.provenance.hashlib.file_digest", fail)
    code, text = run("--log", folder)
    assert code == 1 and "cannot be read to compute its hash: Permission denied" in text


def test_columns_of_locked_joints_are_left_out(files, monkeypatch, capsys):
    """Advice to lock a joint that did not move works with the same log."""
    still = np.c_[T, Q * [1, 0, 1], TAU]
    np.savetxt(files / "still.csv", still, "%.12g", ",", header="t,q1,q2,q3,tau1,tau2,tau3", comments="")
    arm, log = str(files / "arm.urdf"), str(files / "still.csv")
    assert main(["identify", "--model", arm, "--log", log, "--out", str(files / "out")]) == 1
    said = capsys.readouterr().err
    joints = known_arm().joint_names
    assert f"{joints[1]} does not move" in said
    assert f"lock it in the model at its position, {joints[1]} (0): --lock JOINT=VALUE" in said
    lock = ("--lock", f"{joints[1]}=0")
    caught = []

    def stop(chain, logs, *_, **__):
        caught[:] = logs
        raise JaxdynError("enough")

    monkeypatch.setattr(identification, "identify", stop)
    monkeypatch.setattr(comparison, "compare_models", lambda a, b, logs, *_: stop(a, logs))
    for command in (["identify", "--model", arm], ["compare", arm, arm]):
        assert main([*command, "--log", log, *lock, "--out", str(files / "x")]) == 1
        assert "error: enough" in capsys.readouterr().err
        np.testing.assert_allclose(caught[0].q, Q[:, [0, 2]], atol=1e-11)
        np.testing.assert_allclose(caught[0].tau, TAU[:, [0, 2]], atol=1e-11)
        assert any(f"columns of {joints[1]} left out" in note for note in caught[0].notes)


def test_excite_reads_the_log_to_compare_with_like_all_commands(files, monkeypatch, capsys):
    from jaxdyn.identification import excitation_design as design

    reads = []
    monkeypatch.setattr(design, "optimal_excitation", lambda *_, **__: reads.append("designing") or stop())

    def stop():
        raise JaxdynError("enough")

    def excite(*options):
        line = [
            "excite",
            str(files / "arm.urdf"),
            "--out",
            str(files / "e.csv"),
            "--clearance",
            "none",
            *map(str, options),
        ]
        return main(line), capsys.readouterr().err

    assert excite("--compare", files / "b.csv", "--columns", files / "map.toml") == (1, "jaxdyn: error: enough\n")
    assert excite("--compare", files / "c.mcap", "--topic", "/desired")[1] == "jaxdyn: error: enough\n"
    code, text = excite("--compare", files / "b.csv")
    assert code == 1 and "in a column map (docs/logs.md): --columns MAP" in text
    code, text = excite("--columns", files / "map.toml")
    assert code == 2 and "--columns, --topic and --gains say how the log of --compare is read" in text
    np.savetxt(
        files / "deg.csv", np.c_[T, np.degrees(Q), TAU], "%.12g", ",", header="t,q1,q2,q3,tau1,tau2,tau3", comments=""
    )
    code, text = excite("--compare", files / "deg.csv")
    assert code == 1 and "look like degrees" in text and "the key units_checked = true of --settings" in text
    assert reads == ["designing"] * 2


WALL = (0.0, 9.81, 0.5)


@pytest.mark.parametrize("model", ["arm.urdf", "arm.eqx"])
@pytest.mark.parametrize("command", ["identify", "payload", "compare", "simulate", "export", "excite"])
def test_gravity_of_every_command(command, model, files, tmp_path, monkeypatch, capsys):
    """Every command uses the gravity of --gravity, whether the model is a URDF or a model.eqx, and otherwise the file's."""
    from jaxdyn import identification as public
    from jaxdyn.identification import excitation_design as design, validation as tracking

    jaxdyn.save_model(known_arm(), files / "arm.eqx")
    caught = []

    def stop(model, *_, **__):
        caught.append(np.asarray(getattr(model, "chain", model).gravity))
        raise JaxdynError("enough")

    places = (
        (identification, "identify"),
        (payload, "identify_payload"),
        (comparison, "compare_models"),
        (tracking, "tracking_log"),
        (public, "write_predictor"),
        (design, "optimal_excitation"),
    )
    for module, name in places:
        monkeypatch.setattr(module, name, stop)
    model, log = str(files / model), str(files / "a.csv")
    lines = {
        "identify": ["--model", model, "--log", log],
        "payload": ["--model", model, "--loaded", log],
        "compare": [model, model, "--log", log],
        "simulate": [model, log],
        "export": [model],
        "excite": [model],
    }
    if command in ("identify", "excite") and model.endswith(".eqx"):
        pytest.skip("reads descriptions only")
    for option in ([], ["--gravity", *map(str, WALL)]):
        assert main([command, *lines[command], *option, "--out", str(tmp_path / "out")]) == 1
        assert "error: enough" in capsys.readouterr().err
    np.testing.assert_allclose(caught, [known_arm().gravity, WALL], atol=1e-6)

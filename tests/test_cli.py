"""The command line: what it writes, what its options do, and how it refuses: one line, an exit code, nothing left behind."""

import csv
import importlib
import os
import re
import signal
import subprocess
import sys
import time
import tomllib

import jax.numpy as jnp
import numpy as np
import pytest

from jaxdyn import IdentificationError, cli
from jaxdyn._version import __version__
from jaxdyn.cli import main
from jaxdyn.commands import settings
from jaxdyn.identification import (
    Consistency,
    Filters,
    Terms,
    random_excitation,
    synthetic_log,
)
from jaxdyn.io import load, loads
from jaxdyn.model.build import check_inertia
from jaxdyn.report.results import FILES

identification = importlib.import_module("jaxdyn.identification.pipeline")

LIMIT = '<limit lower="-2.9" upper="2.9" velocity="3" effort="90"/>'
ARM = f"""<robot name="arm">
  <link name="base"/>
  <link name="upper"><inertial><origin xyz="0 0.02 0.1"/><mass value="3"/>
    <inertia ixx="0.04" ixy="0" ixz="0" iyy="0.03" iyz="0" izz="0.02"/></inertial></link>
  <link name="lower"><inertial><origin xyz="0.2 0.01 0"/><mass value="1.5"/>
    <inertia ixx="0.01" ixy="0" ixz="0" iyy="0.02" iyz="0" izz="0.02"/></inertial></link>
  <link name="finger"><inertial><origin xyz="0.01 0 0"/><mass value="0.1"/>
    <inertia ixx="0.001" ixy="0" ixz="0" iyy="0.001" iyz="0" izz="0.001"/></inertial></link>
  <joint name="turn" type="revolute"><parent link="base"/><child link="upper"/><axis xyz="0 0 1"/>{LIMIT}</joint>
  <joint name="lift" type="revolute"><parent link="upper"/><child link="lower"/><origin xyz="0 0 0.3"/>
    <axis xyz="0 1 0"/>{LIMIT}<dynamics damping="0.3" friction="0.5"/></joint>
  <joint name="grip" type="prismatic"><parent link="lower"/><child link="finger"/><origin xyz="0.4 0 0"/>
    <axis xyz="0 1 0"/><limit lower="0" upper="0.04" velocity="1" effort="9"/></joint>
</robot>
"""
BASE = """<link name="base"><inertial><mass value="-1"/>
    <inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial></link>"""
HEADER = "t,q1,q2,tau1,tau2"


def write_log(path, columns, header=HEADER):
    np.savetxt(path, columns, delimiter=",", header=header, comments="", fmt="%.9g")
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with arm.urdf, run.csv and other.csv; and the numbers of run.csv."""
    folder = tmp_path_factory.mktemp("arm")
    (folder / "arm.urdf").write_text(ARM)
    chain = loads(ARM, lock={"grip": 0.02})
    for k, name in enumerate(("run.csv", "other.csv")):
        log = synthetic_log(chain, random_excitation(chain, 6.0, 5, seed=k), None, 250.0, 1e-5, 0.05, k)
        write_log(folder / name, np.column_stack([log.t, log.q, log.tau]))
    return folder


@pytest.fixture(scope="module")
def numbers(files):
    return np.loadtxt(files / "run.csv", delimiter=",", skiprows=1)


def arguments(files, out, *options, model="arm.urdf", log="run.csv"):
    """The command line for the arm with its gripper locked; further options after it."""
    return [
        *("identify", "--model", str(files / model), "--log", str(files / log), "--lock", "grip=0.02"),
        *("--out", str(out), *map(str, options)),
    ]


def test_results_are_written_and_summed_up(files, tmp_path, capsys):
    out = tmp_path / "new" / "out"
    assert main(arguments(files, out, "--validate", files / "other.csv")) == 0
    shown, errors = capsys.readouterr()
    assert sorted(os.listdir(out)) == sorted(FILES) and errors == ""
    assert "turn" in shown and "lift" in shown and "held out" in shown and "given model" in shown
    assert f"Written to {out}: " in shown and all(name in shown for name in FILES) and len(shown.splitlines()) <= 20
    with open(out / "parameters.csv", newline="") as file:
        rows = {row["name"].split()[0]: row for row in csv.DictReader(file) if row["kind"] == "full"}
    for name, true in (("fv2", 0.3), ("fc2", 0.5), ("fv1", 0.0), ("off2", 0.0)):
        assert abs(float(rows[name]["value"]) - true) < 4 * float(rows[name]["standard_deviation"])
    again = load(out / "identified.urdf", allow_nonphysical=True)
    assert again.joint_names == ("turn", "lift") and 'name="grip"' in (out / "identified.urdf").read_text()
    report = (out / "report.html").read_text()
    assert "run.csv" in report and "other.csv" in report and "Identification of arm" in report


@pytest.mark.nightly  # the main job, which every whole run does on its own
def test_without_arguments_an_example_is_identified(tmp_path, capsys):
    """Of a single log, whose errors are correlated, 41 of 48 hold; `benchmarks.verdicts --coverage` has the shares of many."""
    assert main(["identify", "--out", str(tmp_path / "out")]) == 0
    shown, _ = capsys.readouterr()
    assert sorted(os.listdir(tmp_path / "out")) == sorted(FILES)
    assert len(shown.splitlines()) <= 20
    found = re.search(r"Compared with the true robot: (\d+) of (\d+) base\s+parameters within 2", shown)
    assert found and int(found[2]) == 48 and int(found[1]) > 0.8 * 48
    assert load(tmp_path / "out" / "identified.urdf", allow_nonphysical=True).n == 7


@pytest.mark.nightly
def test_quiet_says_nothing(files, tmp_path, capsys):
    assert main(arguments(files, tmp_path / "out", "--quiet")) == 0
    assert capsys.readouterr() == ("", "")


@pytest.fixture
def given(monkeypatch):
    """The arguments that `identify` receives; it then stops."""
    calls = []

    def record(*given, **options):
        calls.append((*given, options))
        raise IdentificationError("stopped by the test")

    monkeypatch.setattr(identification, "identify", record)
    return calls


def settings_file(folder, text):
    (folder / "my.toml").write_text(text)
    return "--settings", folder / "my.toml"


SETTINGS = """
terms = ["viscous", "offset"]
choose = ["springs", "filter"]
coupled = [[1, 2]]
coulomb_velocity = 0.1
cutoff = 12
torque_cutoff = 9.0
stride = 3
dead_zone = 0.05
holdout = 0.2
mass = 5
densities = [500, 8000]
prior_weight = 0.1

[[term]]
kind = "Cable"
joints = ["lift"]
"""


def test_options_and_settings_reach_the_identification(files, tmp_path, capsys, numbers, given):
    options = ["--validate", files / "other.csv", "--rows", "101:900", "--rows", ":", "--gains", "2,-3"]
    options += ["--delay", "0.004,0.001", *settings_file(tmp_path, SETTINGS)]
    assert main(arguments(files, tmp_path / "out", *options)) == 1
    assert capsys.readouterr().err == "jaxdyn: error: stopped by the test\n"
    chain, logs, validation, options = given[0]
    assert chain.joint_names == ("turn", "lift") and np.array_equal(chain.friction.coulomb_velocity, [0.1, 0.1])
    assert [log.source for log in logs] == ["run.csv"] and [log.source for log in validation] == ["other.csv"]
    np.testing.assert_array_equal(logs[0].t, numbers[100:900, 0])
    np.testing.assert_allclose(logs[0].tau, numbers[100:900, 3:] * [2, -3], rtol=1e-15)
    assert len(validation[0]) == len(numbers)
    assert options["terms"].drives == ("viscous", "offset") and options["terms"].choose == ("springs", "filter")
    assert [extra.names for extra in options["terms"].extra] == [("Iam2", "fvm2", "fsm2")]
    assert [(type(term).__name__, term.joints) for term in options["terms"].further] == [("Cable", (2,))]
    assert options["filters"] == Filters(12.0, 9.0, 3, delay=[0.004, 0.001])
    assert options["terms"].dead_zone == 0.05
    consistent = options["consistent"]
    assert (consistent.mass, consistent.densities, consistent.prior_weight) == (5, (500, 8000), 0.1)
    assert main(arguments(files, tmp_path / "out", "--mass", "6", "--settings", tmp_path / "my.toml")) == 1
    assert given[1][2] == 0.2 and given[1][3]["consistent"].mass == 6  # the command line takes precedence


def test_defaults_are_the_librarys(files, tmp_path, given):
    assert main(arguments(files, tmp_path / "out", *settings_file(tmp_path, "terms = []\nchoose = []"))) == 1
    assert main(arguments(files, tmp_path / "out")) == 1
    assert [given[k][3]["filters"] for k in (0, 1)] == [Filters(), Filters()]
    assert given[0][3]["terms"] == Terms((), choose=()) and given[1][3]["terms"] == Terms()
    assert given[1][2] == 0.3 and given[1][3]["terms"].dead_zone == 0.0
    consistent = given[1][3]["consistent"]
    for name in ("mass", "densities", "prior_weight"):
        assert getattr(consistent, name) == getattr(Consistency(), name)
    assert given[1][3]["knowledge"] is None


@pytest.mark.ci
def test_the_settings_that_the_results_contain_repeat_the_run_exactly(files, tmp_path):
    (tmp_path / "sub").mkdir()
    for name in ("arm.urdf", "run.csv", "other.csv"):
        (tmp_path / "sub" / name).write_text((files / name).read_text())
    text = 'model = "arm.urdf"\nlog = ["run.csv"]\nlock = {grip = 0.02}\nmass = 4.6\n'
    text += '[[term]]\nkind = "Counterbalance"\njoints = ["lift"]\npivot = 0.3\ncrank = 0.1\nangle = 0.5\n'
    line = ["identify", *map(str, settings_file(tmp_path / "sub", text)), "--quiet"]  # paths are relative to the file
    first, second = tmp_path / "first", tmp_path / "second"
    assert main([*line, "--validate", str(files / "other.csv"), "--rows", "1:1200", "--out", str(first)]) == 0
    assert main(["identify", "--settings", str(first / "settings.toml"), "--out", str(second), "--quiet"]) == 0
    for name in ("parameters.csv", "errors.csv", "model.eqx", "settings.toml"):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name
    used = tomllib.loads((first / "settings.toml").read_text())
    assert used["model"] == str(tmp_path / "sub" / "arm.urdf") and used["validate"] == [str(files / "other.csv")]
    assert used["rows"] == ["1:1200"] and used["lock"] == {"grip": 0.02} and used["mass"] == 4.6
    assert used["holdout"] == 0.3 and used["floating_base"] is False and used["term"][0]["kind"] == "Counterbalance"


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("cutof = 8", r"my\.toml: unknown key 'cutof'; did you mean cutoff or torque_cutoff\? The keys are model, log"),
        ("Dead-Zone = 0.1", r"unknown key 'Dead-Zone'; did you mean dead_zone\?"),
        ("zzzzzz = 1", r"unknown key 'zzzzzz'\. The keys are model"),
        ("cutoff = '8 Hz'", r"my\.toml: cutoff is '8 Hz'; it must be a positive number: low-pass cutoff .* \[Hz\]"),
        ("consistent = 0", r"consistent is 0; it must be true or false"),
        ("stride = 2.5", r"stride is 2\.5; it must be an integer"),
        ("log = 'run.csv'", r"log is 'run\.csv'; it must be a list of texts"),
        ("lock = {grip = 'open'}", r"lock is .*; it must be a table of numbers"),
        ("rows = ['5']", r"rows is \['5'\]; it must be a list of ranges"),
        ("densities = [8000, 500]", r"densities is .*; it must be a list of two numbers, the smaller one first"),
        ("holdout = 1", r"holdout is 1; it must be a number between 0 and 1"),
        ("coupled = [[1, 3]]", r"axes 1 and 3 cannot be coupled"),
        ("choose = ['friction', 'gains']", r"'gains' cannot be selected; choose may contain filter, friction"),
        ("terms = ['viscous', 'sticky']", r"sticky"),
        ("dead_zone = 50", r"0 rows of samples cannot determine"),
        ("stride = 0", r"stride is 0"),
        ("cutoff = 200", r"run\.csv: the cutoffs are 200 Hz on q .* half the log's rate, 125 Hz"),
        (
            "[[term]]\nkind = 'Cable'\njoints = ['hand']",
            r"my\.toml: term 1: there is no joint 'hand'; the joints are turn",
        ),
        ("cutoff = ", r"my\.toml: the settings are not TOML: "),
    ],
)
def test_wrong_settings_are_refused_by_name(text, pattern, files, tmp_path, capsys, annotations_unchecked):
    refused(arguments(files, tmp_path / "out", *settings_file(tmp_path, text)), capsys, tmp_path, pattern)


def test_every_option_of_the_robot_and_its_logs_is_also_a_key():
    parser = cli._parser()._subparsers._group_actions[0].choices["identify"]
    options = {action.dest for action in parser._actions if action.dest != "help"}
    assert len(options) == 16 and options - {"settings", "out", "quiet"} <= settings.KEYS.keys()
    assert parser.get_default("keys") == tuple(settings.KEYS)


def test_tip_and_currents_and_garbage(files, tmp_path, numbers, given):
    (tmp_path / "arm.urdf").write_text(ARM)
    spoilt = numbers.copy()
    spoilt[7, 1], spoilt[:, 3:] = np.nan, numbers[:, 3:] / 4
    write_log(tmp_path / "run.csv", spoilt, HEADER.replace("tau", "i"))
    options = ["--model", tmp_path / "arm.urdf", "--log", tmp_path / "run.csv", "--tip", "lower", "--gains", "4,4"]
    options += [*settings_file(tmp_path, 'on_bad_rows = "drop"'), "--out", tmp_path / "out"]
    assert main(["identify", *map(str, options)]) == 1
    chain, logs, *_ = given[0]
    assert chain.topology.tip_name == "lower" and chain.n == 2
    np.testing.assert_allclose(logs[0].tau, np.delete(numbers[:, 3:], 7, axis=0), rtol=1e-8)


def test_what_looks_like_degrees_can_be_accepted(files, tmp_path, numbers, given):
    turns = numbers.copy()
    turns[:, 1] += 100.0
    unlimited = re.sub(r'type="revolute"(.*?)<limit[^>]*>', r'type="continuous"\1', ARM, count=1, flags=re.DOTALL)
    (tmp_path / "arm.urdf").write_text(unlimited)
    write_log(tmp_path / "run.csv", turns)
    text = "units_checked = true\nconsistent = false"
    assert main(arguments(tmp_path, tmp_path / "out", *settings_file(tmp_path, text))) == 1
    assert given[0][1][0].units_checked and jnp.isinf(given[0][0].limits.position[0]).all()
    assert given[0][3]["consistent"] is None


def refused(line, capsys, folder, pattern):
    """Exit code 1, one line on standard error that says what and where, and no file more than before."""
    before = sorted(folder.rglob("*"))
    assert main(line) == 1
    shown, errors = capsys.readouterr()
    assert shown == "" and errors.startswith("jaxdyn: error: ") and errors.count("\n") == 1 and errors.endswith("\n")
    assert re.search(pattern, errors), errors
    assert sorted(folder.rglob("*")) == before


LAUGHS = "".join(f'<!ENTITY e{k + 1} "{f"&e{k};" * 10}">' for k in range(9))
BAD_MODELS = {
    "malformed": (ARM.replace("</robot>", ""), r"bad\.urdf:\d+: not well-formed XML"),
    "entities that multiply": (f'<!DOCTYPE r [<!ENTITY e0 "ha">{LAUGHS}]>{ARM}', r"bad\.urdf:1: .*DOCTYPE"),
    "an entity from outside": (f'<!DOCTYPE r [<!ENTITY x SYSTEM "file:///etc/passwd">]>{ARM}', "DOCTYPE"),
    "loop": (ARM.replace('<parent link="base"/>', '<parent link="finger"/>'), r"bad\.urdf.* loop: .* <- "),
    "missing link": (
        ARM.replace('<child link="lower"/>', '<child link="low"/>'),
        "'lift': its child link 'low' is not",
    ),
    "mimic": (
        ARM.replace("<dynamics damping", '<mimic joint="turn"/><dynamics damping'),
        r"the log has 2 joints, but the robot has 1",
    ),
    "zero mass": (ARM.replace('value="3"', 'value="0"'), r"bad\.urdf:\d+: link 'upper': mass 0 kg is not positive"),
    "negative mass": (ARM.replace('value="1.5"', 'value="-1.5"'), "link 'lower': mass -1.5 kg is not positive.*"),
    "joint type": (ARM.replace('"prismatic"', '"ball"'), r"bad\.urdf:\d+: joint 'grip': joint type 'ball'"),
    "empty": ("", r"bad\.urdf.* empty"),
}


@pytest.mark.parametrize(("text", "pattern"), BAD_MODELS.values(), ids=BAD_MODELS)
def test_bad_models_are_refused(text, pattern, files, tmp_path, capsys):
    (tmp_path / "bad.urdf").write_text(text)
    line = arguments(files, tmp_path / "out", "--validate", files / "other.csv")
    line[line.index("--model") + 1] = str(tmp_path / "bad.urdf")
    refused(line, capsys, tmp_path, pattern)


def test_inertials_that_no_body_can_have_are_projected_or_ignored(files, tmp_path, given, capsys):
    (tmp_path / "odd.urdf").write_text(ARM.replace('izz="0.02"', 'izz="0.2"', 1))
    line = arguments(files, tmp_path / "out", *settings_file(tmp_path, "ignore_inertials = true"))
    line[line.index("--model") + 1] = str(tmp_path / "odd.urdf")
    assert main(line) == 1 and not np.any(given[0][0].inertia)
    assert "note" not in capsys.readouterr().err
    assert main(line[:-2]) == 1
    assert (
        "inertials of upper are physically inconsistent and were replaced by the nearest consistent ones"
        in capsys.readouterr().err
    )
    odd, right = load(tmp_path / "odd.urdf", lock={"grip": 0.02}, allow_nonphysical=True), given[1][0]
    np.testing.assert_array_equal(odd.inertia[1], right.inertia[1])
    np.testing.assert_array_equal(odd.inertia[0, :4], right.inertia[0, :4])  # the mass and its centre
    check_inertia("upper", right.inertia[0])


def test_what_is_odd_in_a_model_is_a_note(tmp_path, capsys):
    (tmp_path / "odd.urdf").write_text(ARM.replace('<link name="base"/>', BASE))
    assert (
        main(
            ["identify", "--model", str(tmp_path / "odd.urdf"), "--log", str(tmp_path / "none.csv"), "--lock", "grip=0"]
        )
        == 1
    )
    note, error = capsys.readouterr().err.splitlines()
    assert note == f"jaxdyn: note: {tmp_path}/odd.urdf: inconsistent inertias of 'base' have no effect"
    assert error.startswith("jaxdyn: error: ")


def changed(rows, column, value):
    def change(x):
        x = x.copy()
        x[rows, column] = value(x[rows, column]) if callable(value) else value
        return x

    return change


JOINT4 = "t,q1,q2,q3,q4,tau1,tau2,tau3,tau4"
BAD_LOGS = {
    "NaN": (
        changed(41, 2, np.nan),
        HEADER,
        r"bad\.csv: .*line 43\), column 'q2' .*the key on_bad_rows = .drop. of",
    ),
    "duplicated time": (changed(10, 0, 9 / 250), HEADER, r"bad\.csv: 1 of 1500 rows .* increase .*line 1[12]\)"),
    "decreasing time": (
        changed(slice(10, None), 0, lambda t: t - 1),
        HEADER,
        r"bad\.csv: 10 of 1500 rows .* increase .*line \d+\)",
    ),
    "missing columns": (lambda x: x[:, [0, 1, 2, 3]], "t,q1,q2,tau1", r"bad\.csv: missing columns: tau2"),
    "no time": (lambda x: x[:, 1:], "q1,q2,tau1,tau2", r"bad\.csv: missing columns: t"),
    "joints": (
        lambda x: x[:, [0, 1, 2, 1, 2, 3, 4, 3, 4]],
        JOINT4,
        r"bad\.csv: the log has 4 joints, but the robot has 2",
    ),
    "degrees": (
        changed(slice(None), 2, np.rad2deg),
        HEADER,
        r"bad\.csv: .* lift look like degrees .*key units_checked = true",
    ),
    "at rest": (changed(slice(None), 1, 0.4), HEADER, r"bad\.csv: turn does not move .* add a log"),
    "all at rest": (changed(slice(None), slice(1, 3), 0.4), HEADER, r"bad\.csv: positions are constant"),
    "empty": (None, None, r"bad\.csv.* empty"),
    "no rows": (lambda x: x[:0], HEADER, r"bad\.csv"),
    "few rows": (lambda x: x[:12], HEADER, r"bad\.csv: 12 samples are too few"),
    "short": (lambda x: x[:60], HEADER, r"bad\.csv: .*[Ll]og a longer run"),
    "currents": (lambda x: x, HEADER.replace("tau", "i"), r"bad\.csv: .* motor currents, .* specify --gains K1,K2,.."),
    "milliseconds": (changed(slice(None), 0, lambda t: 1000 * t), HEADER, r"bad\.csv: .* milliseconds"),
    "silent": (changed(slice(None), slice(3, 5), 0.0), HEADER, r"bad\.csv: torques are constant"),
}


@pytest.mark.parametrize(("change", "header", "pattern"), BAD_LOGS.values(), ids=BAD_LOGS)
def test_bad_logs_are_refused(change, header, pattern, files, numbers, tmp_path, capsys):
    path = tmp_path / "bad.csv"
    path.write_text("") if change is None else write_log(path, change(numbers), header)
    line = arguments(files, tmp_path / "out")
    line[line.index("--log") + 1] = str(path)
    refused(line, capsys, tmp_path, pattern)
    if pattern != BAD_LOGS["at rest"][2]:  # a joint may rest while others are validated
        refused(arguments(files, tmp_path / "out", "--validate", path), capsys, tmp_path, pattern)


@pytest.mark.parametrize(
    ("options", "pattern"),
    [
        (["--validate", "none.csv"], r"none\.csv: there is no such file"),
        (["--rows", "1:90000"], r"run\.csv: rows=\(1, 90000\) is not a range .* 1 to 1500"),
        (["--gains", "1,2,3"], r"run\.csv: gains must be 2 finite numbers"),
        (["--lock", "turn=9"], r"arm\.urdf:\d+: joint 'turn' is locked at 9, outside its limits"),
        (
            ["--lock", "nobody=1"],
            r"arm\.urdf: unknown joint 'nobody' in lock; the joints are turn, lift, grip",
        ),
        (["--tip", "hand"], r"arm\.urdf: unknown link 'hand' in tip"),
        (["--limit", "tms=3"], r"'tms=3' is not a limit"),
        (["--settings", "none.toml"], r"none\.toml: the settings cannot be read: No such file"),
    ],
)
def test_options_that_do_not_fit_the_files_are_refused(options, pattern, files, tmp_path, capsys):
    refused(arguments(files, tmp_path / "out", *options), capsys, tmp_path, pattern)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--log is missing; pass both"),
        (["--rows", "1:100", "--rows", ":", "--log", "x"], "--rows is given 2 times for 1 log"),
        (["--log", "x", "--rows", "5"], "argument --rows: '5' must be FIRST:LAST"),
        (["--log", "x", "--gains", "1,x"], "argument --gains: 'x' is not a finite number"),
        (["--log", "x", "--gains", "1,nan"], "argument --gains: 'nan' is not a finite number"),
        (["--log", "x", "--lock", "grip"], "argument --lock: 'grip' must have the form JOINT=VALUE"),
        (["--log", "x", "--lock", "grip=far"], "argument --lock: 'far' is not a finite number"),
        (["--log", "x", "--delay", "nan"], "argument --delay: 'nan' is not a finite number"),
        (["--log", "x", "--mass", "-8"], "argument --mass: '-8' is not positive"),
        (["--log", "x", "--logs", "y"], "unrecognized arguments: --logs y\n"),
        (["--log", "x", "--dead-zone=1"], "--dead-zone=1; dead_zone can be set in a settings file (--settings)"),
    ],
)
def test_wrong_usage_is_told_from_bad_input(options, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        code = main(["identify", "--model", "arm.urdf", *options])
    except SystemExit as stop:
        code = stop.code
    assert code == 2 and message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_options_without_a_model_are_not_passed_over(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for text, message in (
        ("consistent = false\nmass = 3", "--mass applies only to a consistent estimate"),
        ("known = 0.05", "known applies to the links and drives that links and joints exclude"),
    ):
        (tmp_path / "s.toml").write_text(text)
        assert main(["identify", "--model", "a.urdf", "--log", "b.csv", "--settings", "s.toml"]) == 2
        assert message in capsys.readouterr().err
    (tmp_path / "s.toml").unlink()
    for option, value in (("--log", "x"), ("--validate", "x"), ("--rows", ":"), ("--gains", "1"), ("--tip", "x")):
        assert main(["identify", option, value]) == 2
        assert "--model" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["identity"])
    assert not list(tmp_path.iterdir())


def test_help_and_version(capsys):
    assert main([]) == 0
    assert "identify a robot's inertial parameters" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"jaxdyn {__version__}\n"
    with pytest.raises(SystemExit, match="0"):
        main(["identify", "--help"])
    text = capsys.readouterr().out
    titles = (
        "robot and logs:",
        "how logs are read:",
        "what is known:",
        "output:",
    )
    assert all(f"\n{title}\n" in text for title in titles) and "exit codes: 0 success; 1 invalid input" in text
    example = text.strip().splitlines()[-1].split()
    assert example[0] == "jaxdyn" and cli._parser().parse_args(example[1:]).validate == ["pick.csv"]


@pytest.mark.parametrize("below", ["", "deeper/still"])
def test_a_file_in_the_way_of_the_results_is_seen_before_the_work(below, files, tmp_path, capsys, given):
    (tmp_path / "file").write_text("mine")
    refused(arguments(files, tmp_path / "file" / below), capsys, tmp_path, r"file.*is a file; specify another folder")
    assert (tmp_path / "file").read_text() == "mine" and not given


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="there is no /proc")
def test_a_folder_that_cannot_be_made_is_one_line_too(files, tmp_path, capsys):
    # no user can make a folder there, and to the superuser only the attempt shows it
    refused(arguments(files, "/proc/results", "--quiet"), capsys, tmp_path, r"/proc/results: cannot be written: .*; ")
    assert not os.path.exists("/proc/results")


@pytest.mark.ci
def test_what_a_process_says_and_returns(files, tmp_path):
    line = [sys.executable, "-m", "jaxdyn", *arguments(files, tmp_path / "out", log="none.csv")]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1 and done.stdout == ""
    assert re.fullmatch(r"jaxdyn: error: .*none\.csv: there is no such file.*\n", done.stderr)
    assert not list(tmp_path.iterdir())


# a test run in the background has SIGINT ignored, and so would what it starts
INTERRUPTIBLE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from jaxdyn.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.ci
def test_interrupted_in_the_middle(tmp_path):
    pty = pytest.importorskip("pty", reason="no pseudo-terminals here")
    screen, terminal = pty.openpty()  # the progress bar is drawn only where a person watches
    line = [sys.executable, "-c", INTERRUPTIBLE, "identify", "--out", str(tmp_path / "out")]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=terminal, env=environment, cwd=tmp_path)
    os.close(terminal)
    seen, sent, limit = b"", False, time.monotonic() + 120
    while time.monotonic() < limit:
        try:
            part = os.read(screen, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        seen += part
        if not sent and b"preparing logs" in seen:
            process.send_signal(signal.SIGINT)
            sent = True
    output, _ = process.communicate(timeout=60)
    os.close(screen)
    assert sent and process.returncode == 130, seen
    assert b"jaxdyn: interrupted; nothing was written" in seen and b"Traceback" not in seen and output == b""
    assert not list(tmp_path.iterdir())

"""The fuzzer: a sample of its inputs, and that it notices what it looks for."""

import dataclasses
import json
import os
import re
import subprocess
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import jaxdyn
from data_paths import ROOT
from tests.fuzz import campaign, checks, readers, seeds, tables, worker
from tests.fuzz.__main__ import main
from tests.fuzz.kinds import KINDS, make_input
from tests.fuzz.report import Report

CHEAP = ["urdf", "csv", "npz", "column_map", "model", "policy", "factors", "gains", "path"]
# what the valid logs need to be read, and how far text rounds
LOGS = {f"log{k}.csv": (None, 1e-8) for k in range(len(tables.SEPARATORS))} | {
    "log.npz": (None, 0.0),
    "blocks.npz": (None, 0.0),
    "log.parquet": ("pyarrow", 0.0),
    "blocks.parquet": ("pyarrow", 0.0),
    "run.bag": ("rosbags", 0.0),
    "run": ("rosbags", 0.0),
    "run.mcap": ("rosbags", 0.0),
}
# the same inputs twice, in processes that order sets of texts differently
MAKE_COMMANDS = """
import hashlib, pathlib, sys
from tests.fuzz.kinds import make_input
valid, out = map(pathlib.Path, sys.argv[1:])
for k in range(30):
    print(make_input("command", str(k), valid, out / str(k)))
    for path in sorted((out / str(k)).rglob("*")):
        print(path.name, hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "")
"""
FAULTS = {
    "foreign": worker.FOREIGN,
    "wrong": worker.SILENT,
    "long": worker.MESSAGE,
    "nameless": worker.MESSAGE,
    "memory": worker.MEMORY,
    "none": worker.OK,
}


def planted(folder, fault):
    """An input whose reader does what no reader may do."""
    folder.mkdir()
    call = {"reader": "planted", "file": "x", "options": {"fault": fault}}
    (folder / "call.json").write_text(json.dumps(call))
    return call


def test_a_sample_of_the_cheap_kinds_shows_no_defect(tmp_path, monkeypatch):
    valid, report = tmp_path / "valid", Report()
    seeds.make(valid, programs=False)
    for k, item in enumerate(campaign.draw(100, 2, CHEAP)):
        folder = tmp_path / str(k)
        call = make_input(item.kind, item.key, valid, folder)
        monkeypatch.chdir(folder)
        status, words = worker.outcome(call, folder)
        report.add(campaign.Result(item, status, words, 0.0, call["reader"]))
    assert report.failed == 0, report.text()
    assert report.total[worker.REFUSED] > 50 and report.total[worker.OK] > 5
    assert set(report.counts) == set(CHEAP)


def test_an_input_is_made_the_same_again(tmp_path):
    seeds.make(tmp_path / "valid", programs=False)
    for kind in (*CHEAP, "command"):
        folders = [tmp_path / f"{kind}{k}" for k in range(3)]
        calls = [make_input(kind, key, tmp_path / "valid", f) for key, f in zip("aab", folders, strict=True)]
        names = [sorted(path.name for path in folder.rglob("*")) for folder in folders]
        contents = [[path.read_bytes() for path in sorted(f.rglob("*")) if path.is_file()] for f in folders]
        assert calls[0] == calls[1] and names[0] == names[1] and contents[0] == contents[1]
    larger, smaller = (list(campaign.draw(count, 5, list(KINDS))) for count in (30, 10))
    assert larger[:10] == smaller


def test_commands_are_made_the_same_in_every_process(tmp_path):
    seeds.make(tmp_path / "valid", programs=False)
    made = []
    for seed in "12":
        command = [sys.executable, "-c", MAKE_COMMANDS, str(tmp_path / "valid"), str(tmp_path / seed)]
        made.append(subprocess.check_output(command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}))
    assert made[0] == made[1] and made[0].count(b"'arguments'") == 30


@pytest.fixture(scope="module")
def valid(tmp_path_factory):
    folder = tmp_path_factory.mktemp("valid")
    seeds.make(folder, programs=False)
    return folder


def check_values(found, rounding, **wanted):
    for name, block in wanted.items():
        assert getattr(found, name).shape == block.shape
        np.testing.assert_allclose(getattr(found, name), block, rtol=rounding, atol=rounding, err_msg=name)


@pytest.mark.parametrize("name", LOGS)
def test_the_valid_logs_hold_what_was_written(name, valid):
    needs, rounding = LOGS[name]
    if needs:
        pytest.importorskip(needs)
    move = seeds.motion()
    bag = needs == "rosbags"
    log = jaxdyn.read_log(valid / name, seeds.NAMES if bag else 2)
    check_values(log, max(rounding, 1e-9) if bag else rounding, t=move["t"])  # stamps are whole nanoseconds
    blocks = {key: move[key] for key in ("q", "qd", "tau")}
    check_values(log, rounding, **blocks)
    if bag:
        backwards = jaxdyn.read_log(valid / name, seeds.NAMES[::-1])
        check_values(backwards, rounding, **{key: block[:, ::-1] for key, block in blocks.items()})
        return
    parts = list(jaxdyn.io.read_log_chunks(valid / name, 100))
    assert [len(part) for part in parts] == [100, 20]
    check_values(readers.joined(parts), rounding, **move)
    chain = jaxdyn.io.loads(seeds.ARM)
    check_values(jaxdyn.io.read_motion(valid / name, chain), rounding, t=move["t"], q=move["q"], tau=move["tau"])
    plain = checks.plain_table(valid / name)  # what damaged logs are compared with
    wanted = move if name.startswith("blocks") else seeds.columns()
    assert plain.keys() == wanted.keys()
    for key, column in wanted.items():
        np.testing.assert_allclose(plain[key], column, rtol=rounding, atol=rounding, err_msg=key)


def test_the_valid_maps_turn_units_signs_and_currents(valid):
    move = seeds.motion()
    q, tau = move["q"], move["tau"]
    signed = q * [1, -1]
    for log in ("log0.csv", "log.npz"):
        found = jaxdyn.read_log(valid / log, columns=valid / "setup.toml")
        check_values(found, 1e-8, t=move["t"], q=signed + np.array([0, 0.5]), tau=2 * tau)
    found = jaxdyn.read_log(valid / "log1.csv", columns=valid / "currents.toml")
    check_values(found, 1e-8, t=move["t"], q=q * [np.pi / 180, 1], tau=tau * [0.0148, -0.003])
    pytest.importorskip("rosbags")
    found = jaxdyn.read_log(valid / "run.bag", columns=valid / "bag.toml")
    check_values(found, 1e-9, t=move["t"], q=signed, qd=move["qd"], tau=tau * [2, 3])


@pytest.mark.parametrize("reader", ["load", "loads", "read_log"])
def test_warnings_of_others_are_noticed(reader, valid, monkeypatch):
    file = "log0.csv" if reader == "read_log" else "arm.urdf"
    call = {"reader": reader.removeprefix("read_"), "file": file, "options": {}}
    assert worker.outcome(call, valid) == (worker.OK, "")
    home = jaxdyn.io if reader == "loads" else jaxdyn
    read = getattr(home, reader)

    def warns(*args, **options):
        warnings.warn("overflow encountered", RuntimeWarning, stacklevel=2)
        return read(*args, **options)

    monkeypatch.setattr(home, reader, warns)
    status, words = worker.outcome(call, valid)
    assert status == worker.SILENT and "RuntimeWarning: overflow encountered" in words


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_noticed(fault, tmp_path):
    call = planted(tmp_path / "input", fault)
    status, words = worker.outcome(call, tmp_path / "input")
    assert status == FAULTS[fault]
    result = campaign.Result(campaign.Input("urdf", "0:7:urdf"), status, words, 0.1, "planted")
    kept = campaign.kept_where_it_fails(result, SimpleNamespace(scratch=tmp_path), tmp_path / "keep").kept
    report = Report()
    report.add(result)
    assert report.failed == (status in worker.DEFECTS) == bool(kept)
    if kept:
        assert f"--replay {kept}" in (tmp_path / "keep" / "0-7-urdf" / "README.txt").read_text()
        assert json.loads((tmp_path / "keep" / "0-7-urdf" / "call.json").read_text()) == call
        assert f"1 x urdf (planted), {status}" in report.text()


def test_what_differs_from_the_file_is_noticed(valid):
    log, table = jaxdyn.read_log(valid / "log0.csv"), checks.plain_table(valid / "log0.csv")
    checks.check_against(log, table)
    later = {name: getattr(log, name)[1:] for name in ("t", "q", "qd", "tau") if getattr(log, name) is not None}
    for changes in ({"q": log.q[:, ::-1]}, {"tau": log.tau + 1e-9}, later):
        with pytest.raises(checks.Wrong):
            checks.check_against(dataclasses.replace(log, **changes), table)


def test_what_differs_after_rows_were_dropped_is_noticed(valid, tmp_path):
    lines = (valid / "log0.csv").read_text().splitlines()
    for row in (20, 21, 60):
        lines[row] = lines[row].rpartition(",")[0] + ",nan"
    (tmp_path / "log.csv").write_text("\n".join(lines))
    log, table = jaxdyn.read_log(tmp_path / "log.csv", on_bad_rows="drop"), checks.plain_table(tmp_path / "log.csv")
    assert len(log) == seeds.ROWS - 3
    checks.check_against(log, table)
    q = log.q.copy()
    q[30, 1] += 1e-9
    with pytest.raises(checks.Wrong, match=r"q2 is .* in row 31"):
        checks.check_against(dataclasses.replace(log, q=q), table)


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (seeds.ARM, [('mass value="3"', 'mass value="3.1"'), ('rpy="0.1 0 0"', 'rpy="0.2 0 0"')]),
        (seeds.ARM, [('axis xyz="0 0 1"', 'axis xyz="0 0 -1"'), ('axis xyz="0 1 0"', 'axis xyz="0 1 0.1"')]),
        (seeds.TREE, [('mass value="0.4"', 'mass value="0.5"'), ('axis xyz="1 2 2"', 'axis xyz="2 2 1"')]),
        (seeds.TREE, [('type="prismatic"', 'type="revolute"')]),
    ],
    ids=["arm", "arm's axes", "tree", "tree's joint"],
)
def test_what_pinocchio_reads_otherwise_is_noticed(text, changes, tmp_path):
    pytest.importorskip("pinocchio")
    path = tmp_path / "robot.urdf"
    path.write_text(text)
    chain = jaxdyn.load(path)
    assert checks.check_like_pinocchio(chain, path)
    for old, new in changes:
        assert old in text
        path.write_text(text.replace(old, new))
        with pytest.raises(checks.Wrong, match="Pinocchio has"):
            checks.check_like_pinocchio(chain, path)


@pytest.mark.nightly
def test_an_abort_and_a_hang_are_named_and_the_campaign_goes_on(tmp_path, capsys):
    faults = ("foreign", "abort", "none", "hang", "none")
    folders = [tmp_path / f"{k}{fault}" for k, fault in enumerate(faults)]
    for folder, fault in zip(folders, faults, strict=True):
        planted(folder, fault)
    assert main(["--limit", "15", "--replay", *map(str, folders)]) == 1
    shown = capsys.readouterr().out
    assert re.search(r"all +5 +2 +0 +1 +0 +0 +0 +1 +1 +0 ", shown)
    for folder, status in zip(folders, (worker.FOREIGN, worker.ABORT, worker.OK, worker.HANG, worker.OK), strict=True):
        assert f"{status}: {folder}" in shown


@pytest.mark.nightly
def test_a_minute_of_all_kinds_shows_no_defect(tmp_path, capsys):
    assert main(["--count", "3000", "--seed", "7", "--minutes", "1", "--keep", str(tmp_path)]) == 0, (
        capsys.readouterr().out
    )

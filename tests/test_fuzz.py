"""The fuzzer: a sample of its inputs, and that it notices what it looks for."""

import dataclasses
import json
import re
from types import SimpleNamespace

import pytest

import jaxdyn
from tests.fuzz import campaign, checks, seeds, worker
from tests.fuzz.__main__ import main
from tests.fuzz.kinds import KINDS, make_input
from tests.fuzz.report import Report

CHEAP = ["urdf", "csv", "npz", "column_map", "model", "policy", "factors", "gains", "path"]
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
    for kind in CHEAP:
        folders = [tmp_path / f"{kind}{k}" for k in range(3)]
        calls = [make_input(kind, key, tmp_path / "valid", f) for key, f in zip("aab", folders, strict=True)]
        names = [sorted(path.name for path in folder.rglob("*")) for folder in folders]
        contents = [[path.read_bytes() for path in sorted(f.rglob("*")) if path.is_file()] for f in folders]
        assert calls[0] == calls[1] and names[0] == names[1] and contents[0] == contents[1]
    larger, smaller = (list(campaign.draw(count, 5, list(KINDS))) for count in (30, 10))
    assert larger[:10] == smaller


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


def test_what_differs_from_the_file_is_noticed(tmp_path):
    seeds.make(tmp_path, programs=False)
    log, table = jaxdyn.read_log(tmp_path / "log0.csv"), checks.plain_table(tmp_path / "log0.csv")
    checks.check_against(log, table)
    later = {name: getattr(log, name)[1:] for name in ("t", "q", "qd", "tau") if getattr(log, name) is not None}
    for changes in ({"q": log.q[:, ::-1]}, {"tau": log.tau + 1e-9}, later):
        with pytest.raises(checks.Wrong):
            checks.check_against(dataclasses.replace(log, **changes), table)
    pytest.importorskip("pinocchio")
    chain = jaxdyn.load(tmp_path / "arm.urdf")
    checks.check_like_pinocchio(chain, tmp_path / "arm.urdf")
    for old, new in (('mass value="3"', 'mass value="3.1"'), ('rpy="0.1 0 0"', 'rpy="0.2 0 0"')):
        (tmp_path / "other.urdf").write_text(seeds.ARM.replace(old, new))
        with pytest.raises(checks.Wrong, match="Pinocchio has"):
            checks.check_like_pinocchio(chain, tmp_path / "other.urdf")


@pytest.mark.ci
def test_an_abort_and_a_hang_are_named_and_the_campaign_goes_on(tmp_path, capsys):
    faults = ("foreign", "abort", "none", "hang", "none")
    folders = [tmp_path / f"{k}{fault}" for k, fault in enumerate(faults)]
    for folder, fault in zip(folders, faults, strict=True):
        planted(folder, fault)
    assert main(["--limit", "4", "--replay", *map(str, folders)]) == 1
    shown = capsys.readouterr().out
    assert re.search(r"all +5 +2 +0 +1 +0 +0 +0 +1 +1 +0 ", shown)
    for folder, status in zip(folders, (worker.FOREIGN, worker.ABORT, worker.OK, worker.HANG, worker.OK), strict=True):
        assert f"{status}: {folder}" in shown


@pytest.mark.nightly
def test_a_minute_of_all_kinds_shows_no_defect(tmp_path, capsys):
    assert main(["--count", "3000", "--seed", "7", "--minutes", "1", "--keep", str(tmp_path)]) == 0, (
        capsys.readouterr().out
    )

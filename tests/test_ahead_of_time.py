"""Programs for a GPU, compiled without one: no change may add kernels, traffic or spills unnoticed."""

import json
import os
import subprocess
import sys

import pytest

from benchmarks import ahead_of_time, launches
from data_paths import ROOT

# largest numbers of kernels, megabytes and bytes spilled
MOST = {
    "inverse dynamics": (1, 8, 0),
    "forward dynamics": (1, 8, 0),
    "mass matrix, composite bodies": (1, 16, 0),
    "mass matrix, differentiation": (1, 16, 0),
    "regressor": (1, 140, 0),
    "derivatives of inverse dynamics": (1, 48, 1300),
    "derivatives of forward dynamics": (1, 48, 2000),
    "step": (1, 10, 0),
    "rollout, 1000 steps": (1, 12, 0),
    "gradient of a rollout, 1000 steps": (5, 3900, 1900),
}


def compiled(folder, *options) -> dict[str, dict]:
    """The records of programs compiled in another process."""
    if reason := ahead_of_time.missing():
        pytest.skip(reason)
    file = folder / "records.json"
    command = [sys.executable, "-m", "tests.benchmarks.ahead_of_time", *options, "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text())


@pytest.mark.nightly
def test_programs_of_kernels(tmp_path):
    records = compiled(tmp_path)
    assert list(records) == list(MOST)
    for name, (kernels, megabytes, spills) in MOST.items():
        found = records[name]
        assert 1 <= found["kernels"] <= kernels and 1 < found["megabytes"] <= megabytes, (name, found)
        assert found["spills"] <= spills and 0 < found["registers"] <= 255, (name, found)


@pytest.mark.nightly
def test_a_rollout_that_falls_back_has_few_kernels(tmp_path):
    (found,) = compiled(tmp_path, "rollout under a policy with", "--set", "solver").values()
    assert "falls back" in found["fell_back"][0]
    assert found["kernels"] <= 8 * 1000 + 50


@pytest.mark.nightly
def test_of_a_large_robot_links_are_loops(tmp_path):
    (found,) = compiled(tmp_path, "forward dynamics", "--robots", "chain-24").values()
    assert found["kernels"] == 1 and found["seconds"] < 40


@pytest.mark.nightly
def test_only_sums_move_between_devices(tmp_path):
    records = compiled(tmp_path, "--set", "devices", "--robots", "chain-2")
    moved = {name: sum(found["collectives"].values()) for name, found in records.items() if found["collectives"]}
    assert moved == {
        "gradient of a rollout for gains, 1000 steps": 4 * 2 * 2,
        "normal matrix of an identification": 4 * (20**2 + 20),
    }
    assert not any(found["fell_back"] for found in records.values())
    functions = [name for name in records if "dynamics" in name or name.startswith("rollout")]
    assert [records[name]["kernels"] for name in functions] == [1] * 4


def test_launches_and_bytes_are_counted():
    text = """
%body (p: (s32[], f32[4])) -> (s32[], f32[4]) {
  %p = (s32[], f32[4]{0}) parameter(0)
  %x = f32[4]{0} get-tuple-element(%p), index=1
  ROOT %y = f32[4]{0} fusion(%x), kind=kLoop, calls=%inner
}

ENTRY %main (a: f32[4]) -> f32[4] {
  %a = f32[4]{0} parameter(0)
  %b = f64[2,2]{1,0} fusion(%a), kind=kLoop, calls=%other
  ROOT %w = (s32[], f32[4]{0}) while(%b), condition=%c, body=%body, backend_config={"known_trip_count":{"n":"3"}}
}
"""
    total = launches.launched(launches.computations(text))
    assert total[:2] == (4, 3 * 32 + 48) and total.least == pytest.approx(4 * 2.5e-6)


BRANCHES = """
%few (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  ROOT %y = f32[4]{0} fusion(%p), kind=kLoop, calls=%inner
}

%many (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  %y = f32[4]{0} fusion(%p), kind=kLoop, calls=%inner
  ROOT %z = f32[4]{0} fusion(%y), kind=kLoop, calls=%inner
}

%inner (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  ROOT %y = f32[4]{0} sine(%p)
}

%body (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  ROOT %y = f32[4]{0} conditional(%k, %p, %p), CONDITIONS
}

ENTRY %main (a: f32[4]) -> f32[4] {
  %a = f32[4]{0} parameter(0)
  %b = f32[4]{0} all-reduce(%a), replica_groups={{0,1}}, to_apply=%sum
  ROOT %w = f32[4]{0} while(%b), condition=%c, body=%body
}
"""


@pytest.mark.parametrize(
    "conditions", ["branch_computations={%few, %many}", "true_computation=%many, false_computation=%few"]
)
def test_of_a_conditional_the_longest_branch_counts(conditions):
    found = launches.computations(BRANCHES.replace("CONDITIONS", conditions))
    assert launches.launched(found)[:2] == (3, 3 * 32) and launches.iteration(found)[:2] == (2, 2 * 32)
    assert launches.communicated(found) == {"all-reduce": 16}


def test_of_what_a_fusion_slices_the_slice_counts():
    text = """
%inner (p: f32[1000,4], q: f32[1000,4], k: s32[]) -> f32[1000,4] {
  %p = f32[1000,4]{1,0} parameter(0)
  %q = f32[1000,4]{1,0} parameter(1)
  %k = s32[] parameter(2)
  %r = f32[1000,4]{1,0} bitcast(%p)
  %x = f32[1,4]{1,0} dynamic-slice(%r, %k), dynamic_slice_sizes={1,4}
  ROOT %y = f32[1000,4]{1,0} dynamic-update-slice(%q, %x, %k)
}

ENTRY %main (a: f32[1000,4], b: f32[1000,4], k: s32[]) -> f32[1000,4] {
  %a = f32[1000,4]{1,0} parameter(0)
  %b = f32[1000,4]{1,0} parameter(1)
  %k = s32[] parameter(2)
  ROOT %w = f32[1000,4]{1,0} fusion(%a, %b, %k), kind=kLoop, calls=%inner
}
"""
    assert launches.launched(launches.computations(text))[:2] == (1, 16 + 16 + 4)

"""Programs for a GPU, compiled without one: no change may add kernels, traffic or spills unnoticed."""

import json
import os
import subprocess
import sys

import pytest

from benchmarks import ahead_of_time
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


@pytest.mark.nightly
def test_programs_of_kernels(tmp_path):
    if reason := ahead_of_time.missing():
        pytest.skip(reason)
    file = tmp_path / "records.json"
    command = [sys.executable, "-m", "tests.benchmarks", "gpu", "--ahead-of-time", "--json", str(file)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    records = json.loads(file.read_text())
    assert list(records) == list(MOST)
    for name, (kernels, megabytes, spills) in MOST.items():
        found = records[name]
        assert 1 <= found["kernels"] <= kernels and 1 < found["megabytes"] <= megabytes, (name, found)
        assert found["spills"] <= spills and 0 < found["registers"] <= 255, (name, found)


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
    kernels, moved, least = ahead_of_time._launched(ahead_of_time._computations(text), "", 1)
    assert (kernels, moved) == (4, 3 * 32 + 48) and least == pytest.approx(4 * 2.5e-6)

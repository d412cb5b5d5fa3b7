"""Batches whose rows lie on two devices, by every way that JAX has: the numbers are those of one device."""

import subprocess
import sys

import pytest

from data_paths import ROOT
from users_programs.environment import environment

ALL = "automatic,explicit,shard_batch,spread,shard_map,pmap"
SOME = "inverse dynamics,forward dynamics,step"


@pytest.mark.parametrize(
    ("robot", "names", "ways", "count"),
    [
        pytest.param("arm", SOME, ALL, 130, marks=pytest.mark.ci),
        pytest.param("arm", "", ALL, 130, marks=pytest.mark.nightly),
        pytest.param("mechanism", "M,step", "explicit", 6, marks=pytest.mark.ci),
        pytest.param("mechanism", "", ALL, 6, marks=pytest.mark.nightly),
    ],
)
def test_the_numbers_are_those_of_one_device(robot, names, ways, count):
    flags = "--xla_force_host_platform_device_count=2"
    command = [sys.executable, str(ROOT / "tests" / "sharded_batches.py"), robot, names, ways, str(count)]
    variables = {**environment(), "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    ended = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=1800)
    assert ended.returncode == 0, ended.stderr[-2000:]
    lines = ended.stdout.splitlines()
    assert lines and all(line.startswith("ok") for line in lines), ended.stdout

"""Paths of the logs of real robots. They are not in the repository; tests that need them are skipped if they are missing."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED_DATA = Path(os.environ.get("JAXDYN_DATA") or ROOT.parent / "shared" / "data")

needs_data = pytest.mark.skipif(
    not SHARED_DATA.is_dir(),
    reason=f"no logs of real robots at {SHARED_DATA}; set JAXDYN_DATA to the folder that holds them",
)

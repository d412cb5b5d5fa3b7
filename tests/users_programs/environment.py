"""The environment of a user's process."""

import os

from data_paths import ROOT


def environment() -> dict[str, str]:
    """The environment of this process without XLA flags and jaxdyn settings, with the tests' modules on the path.

    BLAS keeps the one thread that the tests give it.
    """
    own = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS" and not name.startswith("JAXDYN_")}
    paths = [str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    return {**own, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}

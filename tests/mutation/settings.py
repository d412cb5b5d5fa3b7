"""The packages to check, the tests to run, and the folders of the tool."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Arguments of pytest that pick the tests of a tier, without those of the tiers before it.
TIERS = {
    "default": ("-m", "not ci and not nightly"),
    "ci": ("-m", "ci and not nightly"),
}


@dataclasses.dataclass(frozen=True)
class Project:
    """A package, its tests, and what to import before it."""

    root: Path = ROOT
    package: str = "jaxdyn"
    parts: tuple[str, ...] = ("dynamics", "model", "spatial", "simulation", "identification", "trajectory", "control")
    left_out: tuple[str, ...] = ("test_mutation.py",)  # test files that have nothing to do with the package
    # imported once, before processes fork; what is not installed is passed over
    preload: tuple[str, ...] = (
        *("pytest", "xdist.plugin", "jaxtyping", "coverage"),
        *("numpy", "scipy.linalg", "scipy.optimize", "scipy.signal", "scipy.stats", "scipy.interpolate"),
        *("jax", "jax.numpy", "optax", "equinox", "pinocchio", "mujoco"),
    )
    typechecker: str = "beartype.beartype"  # of --typecheck
    tiers: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=lambda: TIERS)
    least_limit: float = 90.0  # processor seconds that any process may take

    @property
    def folder(self) -> Path:
        """Folder of the coverage map, copies of the tree, and results."""
        return self.root / ".mutation"

    @property
    def equivalents(self) -> Path:
        return self.root / "tests" / "mutation" / "equivalent.toml"

    def sources(self) -> list[Path]:
        """The files among whose lines is drawn."""
        return sorted(path for part in self.parts for path in (self.root / self.package / part).rglob("*.py"))

    def all_sources(self) -> list[Path]:
        return sorted((self.root / self.package).rglob("*.py"))

    def tests(self) -> list[str]:
        """The test files, relative to the root."""
        found = sorted((self.root / "tests").glob("test_*.py"))
        return [path.relative_to(self.root).as_posix() for path in found if path.name not in self.left_out]

"""Provenance of a result: input files with hashes, versions, settings and command line."""

import dataclasses
import hashlib
import os
import platform
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from .._version import version_of
from ..errors import OutputError
from .markup import Column, columns_table, element, escaped, folded, names_column

_PACKAGES = ("jaxdyn", "jax", "jaxlib", "equinox", "numpy", "scipy")


@dataclasses.dataclass(frozen=True)
class InputFile:
    """An input file: its role, name, SHA-256 and size [bytes]."""

    role: str
    name: str
    sha256: str
    size: int


@dataclasses.dataclass(frozen=True)
class Provenance:
    """Everything needed to reproduce a result.

    Attributes:
        inputs: input files.
        settings: name and value of every setting.
        command: the command line; empty if there was none.
        versions: versions of this library, its dependencies and Python, and the platform.
    """

    inputs: tuple[InputFile, ...]
    settings: tuple[tuple[str, str], ...]
    command: str
    versions: tuple[tuple[str, str], ...]

    def with_settings(self, settings: Mapping[str, object]) -> "Provenance":
        """Return a copy with further settings, such as those that were chosen during the computation."""
        return dataclasses.replace(self, settings=(*self.settings, *_settings(settings)))


def collect_provenance(
    files: Iterable[tuple[str, str | os.PathLike[str]]] = (),
    settings: Mapping[str, object] | None = None,
    arguments: Sequence[str] | None = None,
) -> Provenance:
    """Collect the provenance of a result; call this before the computation, so that the hashes are those of what was read.

    Args:
        files: (role, path) of each input, for example ("log", "run.csv"). A folder, such as a ROS 2 bag, is listed as the
            files that it contains, at any depth.
        settings: settings of the computation. Values are converted to text; empty ones (None, "", [], False) are
            omitted.
        arguments: command-line arguments, without the program's name.

    Raises:
        OutputError: a file does not exist or cannot be read to compute its hash.
    """
    command = "" if arguments is None else shlex.join(["jaxdyn", *map(str, arguments)])
    inputs = tuple(_input(role, file) for role, path in files for file in _files_of(path))
    return Provenance(inputs, _settings(settings or {}), command, versions())


def versions() -> tuple[tuple[str, str], ...]:
    """Names and versions of the software, and the platform."""
    import jax

    device = jax.devices()[0]
    return (
        *((name, version_of(name)) for name in _PACKAGES),
        ("python", platform.python_version()),
        ("platform", f"{platform.system()} {platform.machine()}, {device.platform}: {device.device_kind}"),
    )


def _files_of(path: str | os.PathLike[str]) -> list[Path]:
    """The file itself, or the files in a folder, sorted by their paths."""
    if not os.path.isdir(path):
        return [Path(path)]
    return sorted(file for file in Path(path).rglob("*") if file.is_file())


def _input(role: str, path: Path) -> InputFile:
    try:
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return InputFile(role, os.fspath(path), digest, os.fstat(file.fileno()).st_size)
    except OSError as error:
        reason = error.strerror or error
        raise OutputError(f"cannot be read to compute its hash: {reason}", place=path) from None


def _settings(given: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    return tuple((k, _shown(v)) for k, v in given.items() if v is not None and v is not False and _shown(v))


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={_shown(v)}" for k, v in value.items())
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Iterable):
        return ", ".join(_shown(v) for v in value)
    return str(value)


def provenance_section(given: Provenance | None, facts: Sequence[tuple[str, str]] = ()) -> str:
    """Folded section with facts, files and their hashes, versions and settings; only versions if no provenance is given."""
    known = given or collect_provenance()
    text = element("p", "No input files: the logs were passed in memory, or simulated.")
    if known.inputs:
        columns = [
            Column("input", [escaped(i.role) for i in known.inputs], "text"),
            Column("file", [escaped(i.name) for i in known.inputs], "text", "wrap"),
            Column("bytes", [str(i.size) for i in known.inputs]),
            Column("SHA-256", [i.sha256 for i in known.inputs], "text", "hash"),
        ]
        text = columns_table(columns)
    pairs = [*facts, *known.versions, *known.settings, *([("command", known.command)] if known.command else [])]
    values = Column("value", [escaped(value) for _, value in pairs], "text", "wrap")
    text += columns_table([names_column("fact, version or setting", (name for name, _ in pairs)), values])
    return folded("Provenance", "provenance", text)

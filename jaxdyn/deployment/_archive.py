"""File format of exported functions: a zip archive with a JSON description and a program written by `jax.export`."""

import hashlib
import io
import json
import os
import zipfile
from typing import Any

from ..errors import DeploymentError, OutputError
from ..io._files import read_bytes, write_whole

FORMAT = "jaxdyn exported function"
VERSION = 2  # version 1, which has no checksum, can also be read
_DESCRIPTION, _PROGRAM, _CHECKSUM = "description.json", "program.jax_export", "sha256"
_LARGEST = {_DESCRIPTION: 1 << 24, _PROGRAM: 1 << 31, _CHECKSUM: 64}  # bytes; limits memory if a size is damaged
_DATE = (1980, 1, 1, 0, 0, 0)  # fixed, so that the same function always yields the same file


def write_archive(path: str | os.PathLike[str], description: dict[str, Any], program: bytes) -> None:
    """Write the description and the program to one file, atomically.

    Raises:
        OutputError: the file cannot be written; an existing file is left unchanged.
    """
    content = io.BytesIO()
    text = json.dumps({"format": FORMAT, "version": VERSION, **description}, indent=2).encode()
    parts = {_DESCRIPTION: text, _PROGRAM: program, _CHECKSUM: _checksum(text, program)}
    with zipfile.ZipFile(content, "w") as archive:
        for name, part in parts.items():
            archive.writestr(zipfile.ZipInfo(name, _DATE), part, zipfile.ZIP_DEFLATED)
    write_whole(path, content.getvalue(), OutputError)


def read_archive(path: str | os.PathLike[str]) -> tuple[dict[str, Any], bytes]:
    """Read the description and the serialised program of an exported function.

    Raises:
        DeploymentError: the file is missing, damaged, not an exported function, or has an unsupported format version.
    """
    name = os.fspath(path)
    content = read_bytes(path, "exported file", DeploymentError)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if any(part.file_size > _LARGEST.get(part.filename, 0) for part in archive.infolist()):
                raise ValueError("a part of that length")
            text, program = archive.read(_DESCRIPTION), archive.read(_PROGRAM)
            digest = archive.read(_CHECKSUM) if _CHECKSUM in archive.namelist() else b""
        description = json.loads(text)
        if description["format"] != FORMAT:
            raise KeyError("format")
        version, wrote = description["version"], description["versions"]["jaxdyn"]
    except Exception:  # zipfile, zlib and json raise exceptions of many types
        raise damaged(name) from None
    if version not in (1, VERSION):
        raise DeploymentError(
            f"{name}: the file has format version {version}, but this jaxdyn reads versions up to {VERSION}: use jaxdyn "
            f"{wrote}, which wrote the file, or export the function again"
        )
    if digest != (b"" if version == 1 else _checksum(text, program)):
        raise damaged(name)
    return description, program


def damaged(name: str) -> DeploymentError:
    """Error for a file with invalid contents."""
    return DeploymentError(
        f"{name}: the file is damaged, or not a function exported by jaxdyn: export the function again with export_function"
    )


def _checksum(description: bytes, program: bytes) -> bytes:
    """Checksum of the description and the program."""
    return hashlib.sha256(description + program).hexdigest().encode()

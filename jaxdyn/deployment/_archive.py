"""The file of an exported function: a zip archive of its description as JSON and the program serialized by `jax.export`."""

import hashlib
import io
import json
import os
import zipfile
from typing import Any

from ..errors import DeploymentError, OutputError
from ..io._files import read_bytes, write_whole

FORMAT = "jaxdyn exported function"
VERSION = 2  # version 1, which is read too, had no checksum
_DESCRIPTION, _PROGRAM, _CHECKSUM = "description.json", "program.jax_export", "sha256"
_LARGEST = {_DESCRIPTION: 1 << 24, _PROGRAM: 1 << 31, _CHECKSUM: 64}  # bytes; damaged sizes would fill the memory
_DATE = (1980, 1, 1, 0, 0, 0)  # the same function gives the same file


def write_archive(path: str | os.PathLike[str], description: dict[str, Any], program: bytes) -> None:
    """Write both atomically.

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
    """The description and the serialized program.

    Raises:
        DeploymentError: a missing, foreign or damaged file, or another version of the format.
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
    except Exception:  # any exception of zipfile, zlib or malformed JSON
        raise damaged(name) from None
    if version not in (1, VERSION):
        raise DeploymentError(
            f"{name}: the file has version {version} of the format, and this jaxdyn reads version {VERSION}: use the jaxdyn "
            f"that wrote it ({wrote}), or export the function anew"
        )
    if digest != (b"" if version == 1 else _checksum(text, program)):
        raise damaged(name)
    return description, program


def damaged(name: str) -> DeploymentError:
    """The error for a file with invalid contents."""
    return DeploymentError(
        f"{name}: this is not a function exported by jaxdyn, or it is damaged: write it anew with export_function"
    )


def _checksum(description: bytes, program: bytes) -> bytes:
    """Checksum of the program and of its description."""
    return hashlib.sha256(description + program).hexdigest().encode()

"""The file of an exported function: a zip archive of its description as JSON and of what `jax.export` serialized."""

import io
import json
import os
import zipfile
from typing import Any

from ..errors import DeploymentError, ModelError, OutputError
from ..io.files import read_bytes, write_whole

FORMAT = "jaxdyn exported function"
VERSION = 1
_DESCRIPTION, _PROGRAM = "description.json", "program.jax_export"
_DATE = (1980, 1, 1, 0, 0, 0)  # the same function gives the same file


def write_archive(path: str | os.PathLike[str], description: dict[str, Any], program: bytes) -> None:
    """Write both, whole or not at all.

    Raises:
        OutputError: the file cannot be written; what was there before is untouched.
    """
    content = io.BytesIO()
    text = json.dumps({"format": FORMAT, "version": VERSION, **description}, indent=2)
    with zipfile.ZipFile(content, "w") as archive:
        for name, part in ((_DESCRIPTION, text.encode()), (_PROGRAM, program)):
            archive.writestr(zipfile.ZipInfo(name, _DATE), part, zipfile.ZIP_DEFLATED)
    try:
        write_whole(path, content.getvalue())
    except ModelError as error:
        raise OutputError(str(error)) from None


def read_archive(path: str | os.PathLike[str]) -> tuple[dict[str, Any], bytes]:
    """The description and the serialized program.

    Raises:
        DeploymentError: there is no such file, it is not one of these or damaged, or of another version of the format.
    """
    name = os.fspath(path)
    try:
        content = read_bytes(path)
    except ModelError as error:
        raise DeploymentError(str(error).replace("robot description file", "exported file")) from None
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            parts = {part: archive.read(part) for part in archive.namelist()}
        description = json.loads(parts[_DESCRIPTION])
        if description["format"] != FORMAT:
            raise KeyError("format")
        version, program = description["version"], parts[_PROGRAM]
    except (zipfile.BadZipFile, zipfile.LargeZipFile, KeyError, TypeError, ValueError, EOFError):
        raise DeploymentError(
            f"{name}: this is not a function exported by jaxdyn, or it is damaged: write it anew with export_function"
        ) from None
    if version != VERSION:
        raise DeploymentError(
            f"{name}: the file has version {version} of the format, and this jaxdyn reads version {VERSION}: use the jaxdyn "
            f"that wrote it ({description.get('versions', {}).get('jaxdyn')}), or export the function anew"
        )
    return description, program

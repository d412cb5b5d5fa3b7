"""Where results go: is it writable, and files written whole or not at all."""

import os
from pathlib import Path

from ..errors import ModelError, OutputError
from ..io._files import write_whole


def write_output(path: str | os.PathLike[str], text: str | bytes) -> None:
    """Write a file whole or not at all.

    Raises:
        OutputError: the file cannot be written; what was there before is untouched.
    """
    try:
        write_whole(path, text)
    except ModelError as error:
        raise OutputError(str(error)) from None


def check_writable(directory: str | os.PathLike[str], names: tuple[str, ...] = ()) -> None:
    """Refuse an output folder that cannot be written, before the long work; nothing is created.

    Args:
        directory: the folder, which need not exist yet.
        names: files that will be written there.

    Raises:
        OutputError: it is a file or lies below one, there is no permission, or a folder has the name of a file to be
            written.
    """
    target = Path(os.path.abspath(directory))
    existing = target
    while not os.path.lexists(existing):
        existing = existing.parent
    if not existing.is_dir():
        where = "it" if existing == target else f"{existing}"
        raise OutputError(f"{target}: cannot be the folder for the results: {where} is a file; give another folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise OutputError(
            f"{target}: cannot be written: no permission to write in {existing}; "
            "give another folder or change its permissions"
        )
    for name in names:
        if (target / name).is_dir():
            raise OutputError(
                f"{target / name}: is a folder, where the file {name} is to be written; give another folder"
            )

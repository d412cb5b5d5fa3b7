"""Files read at once and written whole or not at all."""

import os
from pathlib import Path

from ..errors import ModelError


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """All bytes of a robot description file.

    Raises:
        ModelError: there is no such file, it is a folder, or it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise ModelError(f"{os.fspath(path)}: there is no such file; check the path") from None
    except IsADirectoryError:
        raise ModelError(f"{os.fspath(path)}: this is a folder; give the robot description file inside it") from None
    except OSError as error:
        raise ModelError(f"{os.fspath(path)}: cannot be read: {error.strerror}") from None


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file, text as UTF-8, by way of a draft in the same folder, so that no reader ever sees half of it.

    Raises:
        ModelError: the file cannot be written; what was there before is untouched.
    """
    target = Path(os.path.realpath(path))
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        try:
            with open(draft, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, target)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelError(
            f"{os.fspath(path)}: cannot be written: {reason}; check the folder and its permissions"
        ) from None

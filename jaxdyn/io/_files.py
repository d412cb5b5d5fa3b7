"""Files read at once and written whole or not at all."""

import glob
import os
import platform
import re
import shutil
import time
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
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        reason = getattr(error, "strerror", None) or error
        raise ModelError(f"{os.fspath(path)!r}: cannot be read: {reason}") from None


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a file, text as UTF-8, by way of a draft in the same folder, so that no reader ever sees half of it.

    Raises:
        ModelError: the file cannot be written; what was there before is untouched.
    """
    try:
        target = Path(os.path.realpath(path))
        draft = target.with_name(f"{draft_prefix(target.name)}part")
        try:
            with open(draft, "wb") as file:
                file.write(content.encode() if isinstance(content, str) else content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, target)
            remove_stale_drafts(target.parent, target.name)
        finally:
            draft.unlink(missing_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        reason = getattr(error, "strerror", None) or error
        raise ModelError(
            f"{os.fspath(path)}: cannot be written: {reason}; check the folder and its permissions"
        ) from None


def draft_prefix(name: str) -> str:
    """How the drafts of a file or folder begin that this process makes: by this, the next one sees who left it there."""
    return f".{name}.{platform.node()}-{os.getpid()}."


def remove_stale_drafts(folder: Path, name: str) -> None:
    """Remove what processes left behind that were killed while they wrote: of this machine at once, else after a day."""
    for path in folder.glob(f".{glob.escape(name)}.*part"):
        made = re.fullmatch(re.escape(f".{name}.") + r"(.*)-(\d+)\.\w*part", path.name)
        if made is None:
            continue
        here = made[1] == platform.node() and os.name == "posix"  # elsewhere signal 0 is not only a question
        try:
            if _runs(int(made[2])) if here else time.time() - path.stat().st_mtime < 86400:
                continue
        except OSError:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's
        return True
    return True

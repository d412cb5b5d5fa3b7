"""Read files, and write them atomically."""

import glob
import os
import platform
import re
import shutil
import time
from pathlib import Path

from ..errors import JaxdynError, ModelError, OutputError


def read_bytes(
    path: str | os.PathLike[str], kind: str = "robot description file", error: type[JaxdynError] = ModelError
) -> bytes:
    """Read a file as bytes. `kind` describes the file in error messages."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        raise error("there is no such file", "check the path", place=path) from None
    except IsADirectoryError:
        raise error("this is a folder", f"specify the {kind} inside it", place=path) from None
    except (OSError, ValueError) as found:  # ValueError: a path with a null character
        reason = getattr(found, "strerror", None) or found
        raise error(f"{os.fspath(path)!r} cannot be read: {reason}") from None


def write_whole(path: str | os.PathLike[str], content: str | bytes, error: type[JaxdynError] = ModelError) -> None:
    """Write a file atomically, via a temporary file in the same folder. Text is encoded as UTF-8."""
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
    except (OSError, ValueError) as found:  # ValueError: a path with a null character
        reason = getattr(found, "strerror", None) or found
        raise error(f"cannot be written: {reason}", "check the folder and its permissions", place=path) from None


def check_output_folder(directory: str | os.PathLike[str], names: tuple[str, ...] = ()) -> None:
    """Check that files can be written to a folder, without creating anything. Call this before a long computation."""
    target = Path(os.path.abspath(directory))
    existing = target
    while not os.path.lexists(existing):
        existing = existing.parent
    if not existing.is_dir():
        where = "it" if existing == target else f"{existing}"
        raise OutputError(f"{target} cannot be the output folder, because {where} is a file; specify another folder")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise OutputError(
            f"{target}: cannot be written: there is no permission to write in {existing}; "
            "specify another folder or change its permissions"
        )
    for name in names:
        if (target / name).is_dir():
            raise OutputError(
                f"{target / name} is a folder, but a file of this name has to be written; specify another output folder"
            )


def check_output_file(path: str | os.PathLike[str]) -> None:
    """Check that a file can be written. Call this before a long computation."""
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise OutputError(f"{os.fspath(path)} is a folder; specify a file")
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
        raise OutputError(f"{os.fspath(path)}: the folder {folder} does not exist or is not writable")


def draft_prefix(name: str) -> str:
    """Prefix of the temporary files that this process creates for `name`. It lets later processes recognise leftovers."""
    return f".{name}.{platform.node()}-{os.getpid()}."


def remove_stale_drafts(folder: Path, name: str) -> None:
    """Remove temporary files left by killed processes: files from this machine at once, files from others after a day."""
    for path in folder.glob(f".{glob.escape(name)}.*part"):
        made = re.fullmatch(re.escape(f".{name}.") + r"(.*)-(\d+)\.\w*part", path.name)
        if made is None:
            continue
        here = made[1] == platform.node() and os.name == "posix"  # elsewhere, os.kill(pid, 0) can end the process
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
    except OSError:  # the process belongs to another user
        return True
    return True

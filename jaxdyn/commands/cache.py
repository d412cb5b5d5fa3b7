"""Cache of compiled programs, shared by all runs of the command-line tool."""

import contextlib
import hashlib
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

LARGEST = 256 * 2**20  # bytes; the compiled programs of all commands take about 1 MB per robot
_SETTING = "JAX_COMPILATION_CACHE_DIR"  # environment variable of JAX, which takes precedence


@contextlib.contextmanager
def kept_programs(folder: Path | None = None) -> Iterator[None]:
    """Context manager that keeps JAX's persistent compilation cache in the user's cache folder.

    The context manager does nothing if an environment variable already specifies a cache folder for JAX, or if the user's
    cache folder is not writable. On exit, it deletes the least recently used programs until the rest occupy at most
    256 MiB.

    Args:
        folder: folder to use instead of the user's cache folder.
    """
    folder = folder or cache_folder()
    if _SETTING in os.environ or not _writable(folder):
        yield
        return
    import jax

    from .._jax_compat import reset_cache

    names = "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"
    before = {name: getattr(jax.config, name) for name in names}
    for name, value in zip(names, (str(folder), 0.0), strict=True):
        jax.config.update(name, value)
    reset_cache()  # otherwise JAX would continue to use the folder that was set first
    try:
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        reset_cache()
        prune(folder)


def cache_folder() -> Path:
    """Cache folder for this type of processor: programs compiled for one type may not run on another."""
    home = Path.home()
    if sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local"))
    elif sys.platform == "darwin":
        root = home / "Library" / "Caches"
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return root / "jaxdyn" / hashlib.sha256(_processor().encode()).hexdigest()[:16]


def prune(folder: Path, largest: int = LARGEST) -> None:
    """Delete the least recently used programs until the rest occupy at most `largest` bytes."""
    found = []
    for path in folder.iterdir() if folder.is_dir() else ():
        with contextlib.suppress(OSError):  # another process may have deleted the file
            state = path.stat()
            found.append((max(state.st_atime, state.st_mtime), state.st_size, path))
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= largest:
            break
        with contextlib.suppress(OSError):
            path.unlink()
        total -= size


def _processor() -> str:
    """Description of the processor and its capabilities."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return "\n".join(sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))}))
    return f"{platform.machine()} {platform.processor()}"


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)

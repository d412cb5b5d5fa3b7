"""A process that has imported what the package imports, and forks one that runs tests for each request.

Started by slots.py as `python -m mutation.server SETTINGS`; requests come as lines of JSON, so do the replies.
Nothing here may start a JAX backend before the fork: threads do not survive it.
"""

import importlib
import json
import os
import resource
import runpy
import signal
import sys
import time
from pathlib import Path

from . import recording

RESIDENT = 8 << 30  # bytes at which a process is ended
POLL = 0.02  # seconds


def main() -> None:
    settings = json.loads(sys.argv[1])
    root = Path(settings["root"])
    package = root / settings["package"]
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    del sys.path[0]  # where this package was found
    sys.path.insert(0, str(root))
    os.chdir(root)
    _prepare(root, settings)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who asked decides
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    print(json.dumps({"ready": True}), file=replies, flush=True)
    for line in sys.stdin:
        print(json.dumps(_serve(json.loads(line), package)), file=replies, flush=True)


def _prepare(root: Path, settings: dict) -> None:
    """Set what the tests' own conftest.py sets, then import what takes long."""
    conftest = root / "tests" / "conftest.py"
    if conftest.exists():
        sys.path.insert(1, str(conftest.parent))
        runpy.run_path(str(conftest))
    for name in settings["preload"]:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    if settings["typechecker"]:
        from jaxtyping import install_import_hook

        install_import_hook(settings["package"], settings["typechecker"])


def _serve(request: dict, package: Path) -> dict:
    """Fork, wait, and tell how it ended."""
    result = Path(request["result"])
    result.unlink(missing_ok=True)
    start = time.perf_counter()
    child = os.fork()
    if child == 0:
        code = 98
        try:
            os.setsid()
            code = _run(request, package)
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    limit = None
    try:
        while limit is None:
            ended, status, usage = os.wait4(child, os.WNOHANG)
            if ended:
                break
            if time.perf_counter() - start > request["wall"]:
                limit = "time"
            elif _resident(child) > RESIDENT:
                limit = "memory"
            time.sleep(POLL)
    finally:
        _end(child)  # and what it has started and left
    if limit:
        _, status, usage = os.wait4(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
        limit = "time"
    return {
        "code": os.WEXITSTATUS(status) if os.WIFEXITED(status) else None,
        "signal": os.WTERMSIG(status) if os.WIFSIGNALED(status) else None,
        "limit": limit,
        "cpu": round(usage.ru_utime + usage.ru_stime, 3),
        "wall": round(time.perf_counter() - start, 3),
        "result": json.loads(result.read_text()) if result.exists() else None,
    }


def _run(request: dict, package: Path) -> int:
    """In the forked process: run the tests, write what became of them."""
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ |= request["environment"]
    if request["cpu"]:
        resource.setrlimit(resource.RLIMIT_CPU, (request["cpu"], request["cpu"] + 10))
    import pytest

    if request["parts"]:
        plugin = recording.Recorder(package, Path(request["parts"]))
    else:
        plugin = recording.Selection(request["chosen"], request["known"])
    try:
        return int(pytest.main(request["arguments"], plugins=[plugin]))
    finally:
        recording.write_json(Path(request["result"]), plugin.result())


def _end(child: int) -> None:
    """End a process and all that it started."""
    try:
        os.killpg(child, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


if __name__ == "__main__":
    main()

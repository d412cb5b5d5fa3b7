"""Copies of the tree, each with a process that runs tests in it."""

import concurrent.futures
import contextlib
import fcntl
import json
import os
import queue
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from .settings import Project
from .sites import Site

NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "venv", "build", "dist", "*.egg-info")
UNLIMITED = 24 * 3600.0  # seconds
ARGUMENTS = ("-q", "-n0", "-p", "no:cacheprovider", "-o", "addopts=", "--tb=short")
# pytest rewrites installed plugins, and complains if they are already imported
ARGUMENTS += ("-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning")


Item, Result = TypeVar("Item"), TypeVar("Result")


class ToolError(RuntimeError):
    """Tests could not be run at all: nothing is known about the change."""


class Slot:
    """One copy of the tree in which one request at a time is served."""

    def __init__(self, project: Project, number: int, typecheck: bool = False):
        self.project, self.typecheck = project, typecheck
        self.folder = project.folder / f"slot{number}"
        self.tree = self.folder / project.root.name
        self.changes = 0
        self._server: subprocess.Popen | None = None
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        _copy(project.root, self.tree)

    @property
    def server(self) -> subprocess.Popen:
        """The process that forks those in which tests run; started when first needed."""
        if self._server is None:
            settings = {
                "root": str(self.tree),
                "package": self.project.package,
                "preload": self.project.preload,
                "typechecker": self.project.typechecker if self.typecheck else "",
            }
            with open(self.folder / "server.log", "w", encoding="utf-8") as log:
                self._server = subprocess.Popen(
                    [sys.executable, "-m", f"{__package__.split('.')[-1]}.server", json.dumps(settings)],
                    cwd=Path(__file__).resolve().parents[1],
                    env=self.environment(),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
            self._reply(self._server)
        return self._server

    def environment(self) -> dict[str, str]:
        """Tests see the copy as they would see the original; the compiled programs of both are the same files."""
        root, given = self.project.root, dict(os.environ)
        for name in ("PYTHONDONTWRITEBYTECODE", "PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST", "COVERAGE_PROCESS_START"):
            given.pop(name, None)
        found = {"JAX_COMPILATION_CACHE_DIR": str(root / ".jax_cache"), "MPLBACKEND": "Agg"}
        if (root.parent / "shared" / "data").is_dir():
            found["JAXDYN_DATA"] = str(root.parent / "shared" / "data")
        return found | given | {"PYTHONPATH": str(self.tree)}

    def _reply(self, server: subprocess.Popen) -> dict:
        line = server.stdout.readline()
        if not line:
            log = (self.folder / "server.log").read_text(encoding="utf-8")
            raise ToolError(f"the process that runs the tests has ended:\n{log[-3000:]}")
        return json.loads(line)

    def ask(self, arguments: tuple[str, ...], **request) -> dict:
        """Let pytest run in a forked process, with these arguments; what it prints is in `log`."""
        asked = {
            "arguments": [*ARGUMENTS, f"--rootdir={self.tree}", f"--basetemp={self.folder / 'tmp'}", *arguments],
            "result": str(self.folder / "result.json"),
            "log": str(self.log),
            "wall": UNLIMITED,
            "cpu": 0,
            "parts": "",  # where to write which lines run, if that is wanted
            "environment": {},
            **request,
        }
        server = self.server
        print(json.dumps(asked), file=server.stdin, flush=True)
        return self._reply(server)

    @property
    def log(self) -> Path:
        return self.folder / "output.log"

    def run(self, site: Site, tests: list[str], known: tuple[str, ...], limit: float, choice: tuple) -> dict:
        """Run tests with a change until one fails; tests of the same files that are not known run last.

        limit: processor seconds of a process; ten times that in all, for the processors may be busy with other things.
        """
        path = self.tree / site.file
        source = path.read_text(encoding="utf-8")
        files = dict.fromkeys(name.split("::")[0] for name in tests)
        # what only a changed program consists of is of no use to a later run: nothing is added to the cache
        environment = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "1e9"}
        request = {"chosen": tests, "known": known, "environment": environment}
        try:
            self._write(path, site.applied(source))
            return self.ask(("-x", *choice, *files), cpu=round(limit), wall=10 * limit, **request)
        finally:
            self._write(path, source)

    def _write(self, path: Path, text: str) -> None:
        """Each text with a time of its own: compiled files of Python are found by time and size."""
        path.write_text(text, encoding="utf-8")
        self.changes += 1
        os.utime(path, (10**9 + self.changes, 10**9 + self.changes))

    def close(self) -> None:
        if self._server is not None:
            self._server.terminate()
            self._server.wait()
            with contextlib.suppress(OSError):
                self._server.stdin.close()
                self._server.stdout.close()
            self._server = None
        shutil.rmtree(self.folder / "tmp", ignore_errors=True)


def _copy(root: Path, target: Path) -> None:
    """Files that git does not ignore; without git, all but hidden and built files."""
    listing = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"]
    done = subprocess.run(listing, capture_output=True, check=False) if (root / ".git").exists() else None
    if done is None or done.returncode:
        shutil.copytree(root, target, ignore=NOT_COPIED)
        return
    for name in done.stdout.decode().split("\0"):
        if name and (root / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name)


class Slots:
    """So many slots, of which each piece of work gets a free one."""

    def __init__(self, project: Project, count: int, typecheck: bool = False):
        project.folder.mkdir(exist_ok=True)
        self.lock = open(project.folder / "lock", "w")  # held as long as the slots are
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ToolError(f"another run works in {project.folder}") from None
        self.all = [Slot(project, number, typecheck) for number in range(count)]
        self.free: queue.SimpleQueue[Slot] = queue.SimpleQueue()
        for slot in self.all:
            self.free.put(slot)

    def __enter__(self) -> "Slots":
        return self

    def __exit__(self, *_: object) -> None:
        for slot in self.all:
            slot.close()
        self.lock.close()

    def each(self, work: Callable[[Slot, Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Results in the order in which they come. What interrupts this ends all that still runs."""
        with concurrent.futures.ThreadPoolExecutor(len(self.all)) as pool:
            waiting = [pool.submit(self._with_slot, work, item) for item in items]
            try:
                for done in concurrent.futures.as_completed(waiting):
                    yield done.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                for slot in self.all:
                    slot.close()
                raise

    def _with_slot(self, work: Callable[[Slot, Item], Result], item: Item) -> Result:
        slot = self.free.get()
        try:
            return work(slot, item)
        finally:
            self.free.put(slot)

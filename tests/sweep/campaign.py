"""Workers, one for each robot, and what came of them."""

import hashlib
import importlib.metadata
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from .models import Model

_TESTS = Path(__file__).resolve().parents[1]
_UNUSED = {"__init__.py", "__main__.py", "cli.py", "commands", "control", "deployment", "identification", "report"} | {
    *("symbolic", "trajectory", "_version.py", "view")
}


class Settings(NamedTuple):
    """Settings of a trial: programs, time limit of one, whether on two devices too, whether without LLVM optimisation, seed."""

    programs: int
    limit: float
    two_devices: bool
    quick: bool = False
    seed: int = 0

    def stamp(self) -> dict[str, Any]:
        """Key of the results: these settings, the sources of a robot's programs, and JAX's version."""
        digest = hashlib.sha256()
        for path in sources():
            digest.update(path.relative_to(_TESTS.parent).as_posix().encode() + path.read_bytes())
        return {
            "settings": list(self),
            "code": digest.hexdigest()[:16],
            "jaxlib": importlib.metadata.version("jaxlib"),
        }


def sources() -> list[Path]:
    """The library's files but for those of packages that no program of the sweep calls, and the sweep's own."""
    package = _TESTS.parent / "jaxdyn"
    parts = (path for path in package.rglob("*.py") if path.relative_to(package).parts[0] not in _UNUSED)
    return [*sorted(parts), *sorted((_TESTS / "sweep").glob("*.py"))]


class Campaign:
    """Runs workers and keeps a line of JSON for each program of the robots that are finished.

    Raises:
        ValueError: the results are of other settings, other code or another JAX.
    """

    def __init__(self, settings: Settings, results: Path, worker: str = "sweep.worker"):
        self.settings, self.results, self.worker = settings, results, worker
        lines = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
        stamp = settings.stamp()
        if not lines:
            results.write_text(json.dumps(stamp) + "\n")
        elif lines[0] != stamp:
            raise ValueError(f"{results} has results of {lines[0]}, this is {stamp}: remove it, or give another file")
        self.finished = {line["model"] for line in lines[1:] if "finished" in line}
        self.lines = [line for line in lines[1:] if line["model"] in self.finished]
        self._lock, self._running, self._stopped = threading.Lock(), set(), False

    def run(self, model: Model) -> None:
        """All programs of a model, in as many processes as it takes."""
        lines: list[dict[str, Any]] = []
        for devices in (1, 2) if self.settings.two_devices else (1,):
            after, total = 0, 1
            while after < total and not self._stopped:
                found = list(self._process(model, devices, after))
                for line in found:
                    total = line.get("programs") or total
                    after += line["done"] != "load"  # an end between two programs too, lest it be begun for ever
                lines += [{"model": model.name, "devices": devices, **line} for line in found]
                if any(line["done"] == "load" and (line.get("refused") or line.get("problem")) for line in found):
                    self._keep(model, lines)
                    return
        self._keep(model, lines)

    def stop(self) -> None:
        """Ends the processes that run, without results."""
        self._stopped = True
        for process in list(self._running):
            process.kill()

    def _keep(self, model: Model, lines: list[dict[str, Any]]) -> None:
        lines = [*lines, {"model": model.name, "finished": True}]
        with self._lock:
            if self._stopped:
                return
            self.lines += lines
            self.finished.add(model.name)
            with self.results.open("a") as file:
                file.write("".join(json.dumps(line) + "\n" for line in lines))

    def _process(self, model: Model, devices: int, after: int):
        """Lines of one process, the last of them made up where it did not end by itself."""
        flags = [f"--xla_force_host_platform_device_count={devices}"] if devices > 1 else []
        flags += ["--xla_backend_optimization_level=0"] if self.settings.quick else []
        own = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
        paths = [str(_TESTS.parent), str(_TESTS), os.environ.get("PYTHONPATH", "")]
        own |= {"PYTHONPATH": os.pathsep.join(p for p in paths if p), "JAX_PLATFORMS": "cpu"}
        own |= {"XLA_FLAGS": " ".join(flags)} if flags else {}
        command = [
            sys.executable,
            "-P",
            "-m",
            self.worker,
            model.name,
            model.kind,
            model.source,
            str(int(model.floating)),
        ]
        command += ["--after", str(after), "--programs", str(self.settings.programs)]
        process = subprocess.Popen(
            [*command, "--seed", str(zlib.crc32(f"{self.settings.seed} {model.name}".encode()))],
            env=own,
            cwd=tempfile.gettempdir(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._running.add(process)
        said: queue.Queue[str | None] = queue.Queue()
        errors: list[str] = []
        readers = [threading.Thread(target=_pump, args=(process.stdout, said.put, True))]
        readers += [threading.Thread(target=_pump, args=(process.stderr, errors.append, False))]
        for reader in readers:
            reader.start()
        begun, verdict = "load", None
        while True:
            try:
                text = said.get(timeout=self.settings.limit)
            except queue.Empty:
                verdict = f"hung: nothing for {self.settings.limit:g} s"
                process.kill()
                break
            if text is None:
                break
            if not text.startswith('{"'):  # of a library that prints
                continue
            line = json.loads(text)
            if "begun" in line:
                begun = line["begun"]
                continue
            yield line
            begun = None
        code = process.wait()
        for reader, stream in zip(readers, (process.stdout, process.stderr), strict=True):
            reader.join()
            stream.close()
        self._running.discard(process)
        if begun is not None or code:
            last = "".join(errors)[-1500:]
            problem = verdict or f"the process ended with status {code}: {last}"
            yield {"done": begun or "end", "problem": problem}


def _pump(stream: Any, put: Any, ends: bool) -> None:
    for line in stream:
        put(line)
    if ends:
        put(None)

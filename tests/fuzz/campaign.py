"""Inputs in worker processes: a worker that dies or takes too long is reported and replaced."""

import dataclasses
import json
import os
import random
import selectors
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from .kinds import KINDS
from .worker import ABORT, DEFECTS, HANG, UNMADE

ROOT = Path(__file__).resolve().parents[2]
_START = 300.0  # seconds until a worker has imported everything
_RENEWED = 3000  # inputs, after which a worker begins anew: compiled programs of theirs stay in its memory
_COMMAND = 10.0  # times as long as a reader, a command may take


@dataclasses.dataclass(frozen=True)
class Input:
    """One damaged input, made anew at any time from its kind and key; or a folder that was kept."""

    kind: str
    key: str
    folder: str = ""


@dataclasses.dataclass(frozen=True)
class Result:
    input: Input
    status: str
    words: str
    seconds: float
    reader: str
    kept: str = ""


def draw(count: int, seed: int, kinds: list[str]) -> Iterator[Input]:
    """Inputs of these kinds by their shares; a larger draw contains the smaller."""
    weights = [KINDS[kind].weight for kind in kinds]
    for k in range(count):
        (kind,) = random.Random(f"{seed}:{k}").choices(kinds, weights)
        yield Input(kind, f"{seed}:{k}:{kind}")


class Worker:
    """A process that reads one input at a time."""

    def __init__(self, folder: Path, number: int):
        self.valid, self.scratch = folder / "valid", folder / f"worker{number}"
        self.log = folder / f"worker{number}.txt"
        self.input: Input | None = None
        self._start()

    def _start(self) -> None:
        self.scratch.mkdir(exist_ok=True)
        shared = {"PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))}
        quick = "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
        flags = {
            "XLA_FLAGS": f"{quick} {os.environ.get('XLA_FLAGS', '')}".strip(),
            "JAX_PLATFORMS": "cpu",
            "OMP_NUM_THREADS": "1",
        }
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.worker", str(self.valid), str(self.scratch)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, **shared, **flags, "OPENBLAS_NUM_THREADS": "1"},
            )
        self.ready, self.deadline, self.given, self._rest = False, time.monotonic() + _START, 0, b""

    def give(self, item: Input, limit: float) -> None:
        assert self.process.stdin is not None
        self.input, self.given = item, self.given + 1
        self.deadline = time.monotonic() + limit * (_COMMAND if item.kind == "command" else 1.0)
        try:
            self.process.stdin.write(json.dumps(dataclasses.asdict(item)).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # its end is seen where its answer is read

    def answer(self) -> dict | None:
        """The next line; None where there is only a part of it.

        Raises:
            EOFError: the process has ended.
        """
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        if not data:
            raise EOFError
        line, end, rest = (self._rest + data).partition(b"\n")
        self._rest = rest if end else line
        return json.loads(line) if end else None

    def restart(self) -> None:
        self.stop()
        self._start()

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()

    def last_words(self) -> str:
        lines = self.log.read_text("utf-8", "replace").strip().splitlines()
        return " / ".join(lines[-3:])[-500:]


def run(
    inputs: Iterator[Input],
    folder: Path,
    jobs: int,
    limit: float,
    minutes: float,
    keep: Path,
    told: Callable[[Result], None],
) -> None:
    """Read all inputs, as long as time allows; results are reported as they arrive, with the files kept of a defect."""
    end = time.monotonic() + 60 * minutes
    workers = [Worker(folder, 0)]
    try:
        with selectors.DefaultSelector() as selector:
            _watch(selector, workers[0])
            while any(worker.input or not worker.ready for worker in workers):
                events = selector.select(timeout=0.5)
                for key, _ in events:
                    _heard(key.data, folder, keep, told, selector)
                for worker in workers:
                    if time.monotonic() > worker.deadline and (worker.input or not worker.ready):
                        _lost(worker, HANG, folder, keep, told, selector)
                if workers[0].ready and len(workers) < jobs:  # the first has made the valid files
                    workers.append(Worker(folder, len(workers)))
                    _watch(selector, workers[-1])
                for worker in workers:
                    if worker.ready and worker.input is None and time.monotonic() < end:
                        item = next(inputs, None)
                        if item is not None:
                            worker.give(item, limit)
    finally:
        for worker in workers:
            worker.stop()


def _watch(selector: selectors.BaseSelector, worker: Worker) -> None:
    assert worker.process.stdout is not None
    selector.register(worker.process.stdout, selectors.EVENT_READ, worker)


def _heard(worker: Worker, folder: Path, keep: Path, told: Callable[[Result], None], selector) -> None:
    try:
        answer = worker.answer()
    except EOFError:
        _lost(worker, ABORT, folder, keep, told, selector)
        return
    if answer is None:
        return
    if not worker.ready:
        worker.ready = True
        return
    assert worker.input is not None
    result = Result(worker.input, answer["status"], answer["words"], answer["seconds"], answer["call"]["reader"])
    worker.input = None
    told(kept_where_it_fails(result, worker, keep))
    if worker.given == _RENEWED:
        _renew(worker, selector)


def _lost(worker: Worker, status: str, folder: Path, keep: Path, told: Callable[[Result], None], selector) -> None:
    """A worker that has ended or will not end: its input is named, and it begins anew."""
    if not worker.ready:
        raise RuntimeError(f"a worker did not start: {worker.last_words()}")
    assert worker.input is not None
    code = worker.process.wait(10) if status == ABORT else None
    words = f"exit code {code}: {worker.last_words()}" if status == ABORT else "no answer within the limit"
    if not (worker.scratch / "input" / "call.json").exists():
        raise RuntimeError(f"{worker.input}: cannot be made: {worker.last_words()}")
    call = json.loads((worker.scratch / "input" / "call.json").read_text())
    told(kept_where_it_fails(Result(worker.input, status, words, 0.0, call["reader"]), worker, keep))
    worker.input = None
    _renew(worker, selector)


def _renew(worker: Worker, selector: selectors.BaseSelector) -> None:
    selector.unregister(worker.process.stdout)
    worker.restart()
    _watch(selector, worker)


def kept_where_it_fails(result: Result, worker: Worker, keep: Path) -> Result:
    """Keep a copy of the input, and the command that reads it again, if it is a defect."""
    if result.status not in DEFECTS or result.status == UNMADE or result.input.folder:
        return result
    to = keep / result.input.key.replace(":", "-")
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(worker.scratch / "input", to)
    command = f"python -m tests.fuzz --replay {to}"
    (to / "README.txt").write_text(f"{command}\n{result.status}: {result.words}\n", "utf-8", "backslashreplace")
    return dataclasses.replace(result, kept=str(to))

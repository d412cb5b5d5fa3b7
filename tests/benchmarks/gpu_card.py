"""A run on one GPU of at most a few minutes: correctness first, then throughput, then MJX, then tests.

`.ci/gpu` runs this. Each stage is a process of its own (`gpu_card_worker`), which writes a line of JSON as soon as an item is
finished. A process that crashes or hangs is replaced by a new one, which continues after the item that was running. This
process does not import JAX. All records are in the file gpu.json at the end, from which `--from FILE --write` makes the tables
of docs/benchmarks.md on any machine.
"""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from .tables import Table, figures, micro

PART = "gpu, kernels"
ROOT = Path(__file__).parents[2]
FORMS = ("kernel_vmap", "vmap")
STATE = (  # quantities of one state, those that compile in a short time first
    "inverse dynamics",
    "forward dynamics",
    "crba",
    "step",
    "mass matrix",
    "coriolis matrix",
    "regressor",
    "derivatives of inverse dynamics",
    "derivatives of forward dynamics",
)
TIMED = (
    "inverse dynamics",
    "forward dynamics",
    "crba",
    "step",
    "regressor",
    "derivatives of inverse dynamics",
    "derivatives of forward dynamics",
)
TESTS = ("tests/test_kernel_vmap.py", "tests/test_platform.py", "tests/test_lowering.py")
SILENCE = 100.0  # a worker that prints nothing for this time [s] is replaced
PACKAGES = ("jax", "jaxlib", "jax-cuda12-plugin", "jax-cuda13-plugin", "numpy", "mujoco", "mujoco-mjx", "warp-lang")

Item = dict[str, Any]
Record = dict[str, Any]


def item(stage: str, robot: str, quantity: str, form: str, precision: str, batch: int) -> Item:
    name = f"{stage}: {robot}, {quantity}, {form}, {precision}, batch {batch}"
    keys = {"robot": robot, "quantity": quantity, "form": form, "precision": precision, "batch": batch}
    return {"name": name, "stage": stage, **keys}


def checks(quick: bool) -> list[Item]:
    """The comparisons with the CPU in float64, most valuable first."""
    most, some, few = (5, 3, 2) if quick else (4097, 1000, 7)
    rolled = ("rollout of 100 steps",)
    found = []

    def add(robot, quantities, form, precision, *batches):
        found.extend(item("check", robot, x, form, precision, b) for b in batches for x in quantities)

    add("panda", (*STATE[:4], *rolled), "kernel_vmap", "float32", most)
    add("panda", STATE[4:], "kernel_vmap", "float32", most)
    add("chain-3", ("gradient of 100 steps",), "kernel_vmap", "float32", some)
    add("panda", ("gradient of 16 steps",), "kernel_vmap", "float32", some)
    add("panda", (*STATE[:4], *rolled), "kernel_vmap", "float64", most)
    add("floating tree", (*STATE[:4], *rolled), "kernel_vmap", "float32", some)
    add("panda", (*STATE[:4], *rolled), "kernel_vmap", "float32", 1, few, some)
    add("panda", (*STATE, *rolled), "vmap", "float32", most)
    add("chain-3", ("gradient of 100 steps",), "kernel_vmap", "float64", some)
    add("panda", STATE[4:], "kernel_vmap", "float64", most)
    add("panda", ("gradient of 16 steps",), "kernel_vmap", "float64", some)
    add("floating tree", STATE[4:], "kernel_vmap", "float32", some)
    add("floating tree", (*STATE, *rolled), "kernel_vmap", "float64", some)
    add("panda", (*STATE, *rolled), "vmap", "float64", most)
    add("chain-3", ("gradient of 100 steps",), "vmap", "float32", some)
    add("panda", ("gradient of 16 steps",), "vmap", "float32", some)
    add("floating tree", (*STATE, *rolled), "vmap", "float32", some)
    add("panda", STATE[4:], "kernel_vmap", "float32", 1, few, some)
    add("panda", (*STATE, *rolled), "kernel_vmap", "float64", 1, few)
    add("floating tree", (*STATE, *rolled), "vmap", "float64", some)
    return found


def speeds(quick: bool) -> list[Item]:
    """The measurements of throughput, most valuable first."""
    sizes = (2, 3, 4, 5, 6) if quick else (1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20)
    tiny, small, middle, large, huge = sizes
    steps = 10 if quick else 1000
    rolled, gradient = f"rollout of {steps} steps", f"gradient of {steps} steps"
    found = []

    def add(robot, quantities, precision, batch, forms=FORMS):
        found.extend(item("speed", robot, x, form, precision, batch) for form in forms for x in quantities)

    add("panda", (*TIMED, rolled, gradient), "float32", middle, FORMS[:1])
    add("panda", (*TIMED, rolled), "float32", middle, FORMS[1:])
    add("panda", TIMED, "float32", huge, FORMS[:1])
    add("humanoid", ("inverse dynamics", "forward dynamics", "step"), "float32", middle, FORMS[:1])
    add("panda", (*TIMED, rolled), "float64", middle, FORMS[:1])
    add("panda", TIMED, "float32", huge, FORMS[1:])
    for batch in (small, tiny, large):
        add("panda", TIMED, "float32", batch, FORMS[:1])
    add("panda", ("derivatives of forward dynamics", "inverse dynamics"), "float64", middle, FORMS[1:])
    add("humanoid", ("inverse dynamics", "forward dynamics", "step"), "float32", middle, FORMS[1:])
    for batch in (small, tiny, large):
        add("panda", TIMED[:4], "float32", batch, FORMS[1:])
    add("panda", (gradient,), "float32", middle, FORMS[1:])
    add("panda", (gradient,), "float64", middle, FORMS[:1])
    return found


def others(quick: bool) -> list[Item]:
    """The measurements of other libraries."""
    batch = 4 if quick else 1 << 16
    names = ("forward dynamics", "step", "rollout of 100 steps")
    found = [item("other", "panda", x, "MJX", "float32", batch) for x in names]
    return [*found, item("other", "panda", "step", "MuJoCo Warp", "float32", batch)]


STAGES = ("check", "speed", "other", "tests")
PLANS = {"check": checks, "speed": speeds, "other": others}


class Run:
    """One run: its time limit, its records, and the file to which they are appended."""

    def __init__(self, options: argparse.Namespace):
        self.options, self.start = options, time.monotonic()
        self.folder = Path(options.out or os.environ.get("OUT") or ROOT / "build" / "gpu")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lines = self.folder / "gpu.jsonl"
        self.lines.write_text("")
        self.records: list[Record] = []

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.start

    def add(self, record: Record) -> None:
        self.records.append(record)
        with self.lines.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        print(f"[{self.elapsed:5.0f} s] {line(record)}", flush=True)

    def stage(self, stage: str, until: float, precision: str | None = None) -> None:
        """Run the items of a stage that have no record yet, until a time since the start [s]."""
        serial = False
        for _ in range(6):
            known = {r["name"] for r in self.records}
            left = [x for x in PLANS[stage](self.options.quick) if x["name"] not in known]
            left = [x for x in left if x["precision"] == (precision or x["precision"])]
            if not left or until - self.elapsed < 10:
                return
            print(f"[{self.elapsed:5.0f} s] -- {stage}: {len(left)} items until {until:.0f} s", flush=True)
            running, code = self.worker(left, until, serial)
            if code == 0:
                return
            if running is None:
                if serial:  # it ended before the first item
                    self.add({"name": f"worker of the stage {stage}", "stage": stage, "failed": f"ended with {code}"})
                    return
                serial = True  # the next process compiles one program at a time, which finds the one that crashes
                continue
            culprit = next(x for x in left if x["name"] == running)
            if running not in {r["name"] for r in self.records}:
                self.add({**culprit, "failed": f"the process ended with {code} (-9: it was silent, and was killed)"})

    def worker(self, items: list[Item], until: float, serial: bool) -> tuple[str | None, int]:
        """Run a process; return the item that was running at its end, and the exit status."""
        plan = self.folder / "plan.json"
        seconds = until - self.elapsed
        options = {"seconds": seconds, "serial": serial, "quick": self.options.quick, "broken": self.options.broken}
        plan.write_text(json.dumps({**options, "interpret": self.options.interpret, "items": items}))
        command = [sys.executable, "-m", "tests.benchmarks.gpu_card_worker", str(plan)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, errors="replace")
        lines: queue.Queue[str | None] = queue.Queue()

        def read() -> None:
            assert process.stdout is not None
            for text in process.stdout:
                lines.put(text)
            lines.put(None)

        threading.Thread(target=read, daemon=True).start()
        running, silent_since = None, time.monotonic()
        while True:
            try:
                text = lines.get(timeout=0.5)
            except queue.Empty:
                silent = time.monotonic() - silent_since
                if silent > (25 if self.options.broken else SILENCE) or self.elapsed > until + 12:
                    process.kill()
                    process.wait()
                    late = self.elapsed > until
                    print(f"[{self.elapsed:5.0f} s] -- killed ({'late' if late else 'silent'}): {running}", flush=True)
                    return running, 0 if late else -9
                continue
            if text is None:
                break
            silent_since = time.monotonic()
            if text.startswith("@running "):
                running = text.removeprefix("@running ").strip() or None
            elif text.startswith("@record "):
                self.add(json.loads(text.removeprefix("@record ")))
            else:
                print("   ", text.rstrip()[:300], flush=True)
        return running, process.wait()

    def tests(self, until: float) -> None:
        seconds = until - self.elapsed
        if seconds < 20:
            self.add({"name": "tests", "stage": "tests", "failed": "not reached"})
            return
        command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "--tb=short", *TESTS]
        print(f"[{self.elapsed:5.0f} s] -- {' '.join(command[1:])}", flush=True)
        log = self.folder / "tests.txt"
        environment = {**os.environ, "JAXDYN_TEST_OPTIMISED": "1"}
        with log.open("w") as file:
            try:
                done = subprocess.run(
                    command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT, timeout=seconds
                )
                code = done.returncode
            except subprocess.TimeoutExpired:
                code = -9
        text = log.read_text(errors="replace")
        print(text[-3000:], flush=True)
        self.add({"name": "tests", "stage": "tests", "exit": code, "end": text[-1500:]})

    def finish(self) -> int:
        """List what was not reached, write gpu.json, and print the tables; the exit status is 1 if a check failed."""
        known = {r["name"] for r in self.records}
        missed = [
            x for y in self.options.stages if y in PLANS for x in PLANS[y](self.options.quick) if x["name"] not in known
        ]
        for x in missed:
            self.records.append({**x, "failed": "not reached"})
        (self.folder / "gpu.json").write_text(json.dumps({"records": self.records}, indent=1))
        (self.folder / "plan.json").unlink(missing_ok=True)
        show(self.records)
        print(f"\n{len(missed)} items not reached; {self.elapsed:.0f} s; records: {self.folder / 'gpu.json'}")
        wrong = [
            r for r in self.records if r.get("stage") == "check" and r.get("failed", "not reached") != "not reached"
        ]
        return int(bool(wrong))


def line(record: Record) -> str:
    """A record as one line."""
    text = record["name"]
    if record.get("failed"):
        return f"{text}: FAILED: {record['failed']}"
    if "exit" in record:
        text += f": exit status {record['exit']} (-9: out of time)"
    if "error" in record:
        text += f": error {record['error']:.1e}"
    if record.get("seconds"):
        per = f", {figures(record['steps_per_second'] / 1e6)} M steps/s" if record.get("steps_per_second") else ""
        text += f": {micro(record['seconds'])} us, {figures(record['batch'] / record['seconds'] / 1e6)} M/s{per}"
    if "compile_seconds" in record:
        text += f", compiled in {record['compile_seconds']:.1f} s"
    if record.get("kernels"):
        text += f", {record['kernels']} kernels"
    return text + (f", FELL BACK: {record['fell_back']}" if record.get("fell_back") else "")


def machine(quick: bool) -> Record:
    """The card, the date and the versions."""
    query = "name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,power.limit"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
    try:
        card = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        card = f"no GPU ({type(error).__name__})"
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    facts = {"card": card, "date": datetime.date.today().isoformat(), "python": platform.python_version()}
    return {
        "name": "machine",
        "stage": "machine",
        "quick": quick,
        "cores": os.cpu_count(),
        **facts,
        "versions": versions,
    }


def tables(records: list[Record]) -> list[Table]:
    """Correctness, and throughput by robot and precision, as tables."""
    found = []
    checked = [r for r in records if r.get("stage") == "check" and not r.get("failed")]
    rows = []
    for quantity in dict.fromkeys(r["quantity"] for r in checked):
        row = [quantity]
        for precision in ("float32", "float64"):
            for form in FORMS:
                errors = [
                    r["error"]
                    for r in checked
                    if (r["quantity"], r["precision"], r["form"]) == (quantity, precision, form)
                ]
                row.append(f"{max(errors):.0e}" if errors else "-")
        rows.append(row)
    if rows:
        header = ["relative difference", *(f"{f}, {p}" for p in ("float32", "float64") for f in FORMS)]
        found.append(Table("Largest differences from float64 on a CPU, all robots and batch sizes", header, rows))
    timed = [r for r in records if r.get("seconds") and r["stage"] == "speed"]
    for robot, precision in dict.fromkeys((r["robot"], r["precision"]) for r in timed):
        group = [r for r in timed if (r["robot"], r["precision"]) == (robot, precision)]
        rows = []
        for quantity, batch in dict.fromkeys((r["quantity"], r["batch"]) for r in group):
            of = {r["form"]: r for r in group if (r["quantity"], r["batch"]) == (quantity, batch)}
            ours, plain = (of.get(form, {}) for form in FORMS)
            times = [ours.get("seconds"), plain.get("seconds")]
            count = per_second(ours)
            ratio = figures(times[1] / times[0]) if times[0] and times[1] else "-"
            kernels = [str(x.get("kernels") or "-") for x in (ours, plain)]
            compiled = [figures(x.get("compile_seconds"), 2) for x in (ours, plain)]
            speed = figures(count / 1e6) if count else "-"
            rows.append([quantity, str(batch), micro(times[0]), speed, micro(times[1]), ratio, *kernels, *compiled])
        rows.sort(key=lambda row: ([*STATE, row[0]].index(row[0]), int(row[1])))
        header = ["us per batch", "batch size", "kernel_vmap", "million per second", "vmap", "ratio"]
        header += ["kernels", "of vmap", "compile s", "of vmap"]
        notes = ["us per batch: a call that waits for its result; million per second: calls that do not wait"]
        notes += (
            ["rollouts and gradients: million robot-steps per second"] if any("steps" in r[0] for r in rows) else []
        )
        found.append(Table(f"{robot}, {precision}", header, rows, notes))
    rows = []
    for r in records:
        if r.get("stage") == "other" and r.get("seconds"):
            speed = per_second(r)
            shown = figures(speed / 1e6) if speed else "-"
            row = [f"{r['form']}, {r['quantity']}", str(r["batch"]), micro(r["seconds"]), shown]
            rows.append([*row, figures(r["compile_seconds"], 2), f"{r['error']:.0e}" if "error" in r else "-"])
    if rows:
        header = ["", "batch size", "us per batch", "million per second", "compile s", "relative difference"]
        found.append(Table("Other libraries on the same card, panda, float32", header, rows))
    return found


def per_second(record: Record) -> float | None:
    """Evaluations or robot-steps per second, when calls do not wait for each other's results."""
    if not record.get("seconds"):
        return None
    queued = record["batch"] / min(record["seconds"], record["queued"])
    return record.get("steps_per_second") or queued


def about(records: list[Record]) -> str:
    facts = next((r for r in records if r.get("stage") == "machine"), None)
    if facts is None:
        return ""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return f"{facts['date']}: {facts['card']}, {facts['cores']} cores; Python {facts['python']}, {versions}."


def show(records: list[Record]) -> None:
    print(f"\n{about(records)}\n")
    for table in tables(records):
        print(table.text())
    failed = [r for r in records if r.get("failed") and r["failed"] != "not reached"]
    print(f"{len([r for r in records if r.get('stage') == 'check' and not r.get('failed')])} checks passed")
    for r in failed:
        print(f"FAILED: {line(r)}")
    for r in records:
        if r.get("fell_back"):
            print(f"FELL BACK: {line(r)}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=".ci/gpu", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to try this script on a CPU")
    parser.add_argument("--seconds", type=float, default=480, help="time limit of the whole run [s]")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES, help="stages to run; by default all")
    parser.add_argument("--out", metavar="FOLDER", help="folder of the results; by default $OUT or build/gpu")
    parser.add_argument("--from", dest="source", metavar="FILE", help="show the tables of this gpu.json; run nothing")
    parser.add_argument("--write", action="store_true", help="with --from: also rewrite them in docs/benchmarks.md")
    parser.add_argument("--interpret", action="store_true", help="run kernels in Pallas' interpreter")
    parser.add_argument("--broken", action="store_true", help="let some items raise, crash or hang, to try this script")
    return parser.parse_args()


def main() -> int:
    options = arguments()
    if options.source:
        records = json.loads(Path(options.source).read_text())["records"]
        show(records)
        if options.write:
            from . import pages

            text = "\n\n".join([about(records), *(table.text().strip() for table in tables(records))])
            pages.rewrite(PART, text)
        return 0
    run, limit = Run(options), options.seconds
    run.add(facts := machine(options.quick))
    print(json.dumps(facts, indent=1), flush=True)
    try:
        slots = (("check", None, 0.31), ("speed", "float32", 0.65), ("speed", "float64", 0.73))
        for stage, precision, share in (*slots, ("other", None, 0.87), ("check", None, 0.92)):
            if stage in options.stages:
                run.stage(stage, limit * (share if len(options.stages) > 1 else 1) - 4, precision)
        if "tests" in options.stages:
            run.tests(limit - 4)
    finally:
        code = run.finish()
    return code


if __name__ == "__main__":
    sys.exit(main())

"""Benchmarks of jaxdyn against Pinocchio and other libraries on this machine.

Before a function is timed, its result is compared with that of Pinocchio. All libraries are timed in turns in one process,
and every timed call ends when its result is ready. Libraries that are missing or fail are listed with the reason. Each part
runs in a separate process, so that earlier parts cannot affect its timings.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from .parts import PARTS, QUANTITIES

PEERS = ("frax", "mjx", "adam", "brax")
ONE_PRECISION = ("scaling", "compile", "memory", "accuracy", "identification")  # use only the first of --precisions
NOT_KEYS = (
    "seconds",
    "error",
    "compile_seconds",
    "compile_seconds_batch",
    "floor",
    "peak_bytes",
    "first",
    "core_seconds",
)


def main() -> int:
    """Run the benchmarks; return the exit status: 1 if a result of jaxdyn was wrong or a part crashed, else 0."""
    options = arguments()
    collected, machines, broken = {}, {}, []
    with tempfile.TemporaryDirectory() as folder:
        for part in options.parts:
            found, settings = [], list(_settings(part, options))
            for round_ in range(options.rounds if len(settings) > 1 and part == "latency" else 1):
                for setting in settings:
                    result = _run(part, options, setting, folder)
                    if result is None:
                        broken.append(f"{part} {setting}, round {round_ + 1}")
                        continue
                    found += result["records"]
                    machines[part] = _with_peaks(machines.get(part), result["machine"])
            collected[part] = merged(found)
            _show(part, collected[part], machines.get(part), options)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machines": machines, "records": collected}, file, indent=1)
    wrong = [r for records in collected.values() for r in records if r.get("failed")]
    for r in wrong:
        print(f"WRONG: {r['robot']} {r['quantity']} {r['precision']}: {r['reason']}", file=sys.stderr)
    for name in broken:
        print(f"CRASHED: {name}", file=sys.stderr)
    return int(bool(wrong or broken))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="parts:\n" + "\n".join(f"  {name:16s}{what}" for name, what in PARTS.items()),
    )
    parser.add_argument("parts", nargs="*", metavar="part", help="parts to run; by default all")
    parser.add_argument("--robots", nargs="+", help="panda, ur10, g1, talos, chain-N, or paths of URDF files")
    parser.add_argument(
        "--quantities",
        nargs="+",
        choices=QUANTITIES,
        metavar="NAME",
        help=f"quantities to measure: {', '.join(QUANTITIES)}",
    )
    parser.add_argument("--precisions", nargs="+", choices=("float64", "float32"), default=["float64", "float32"])
    parser.add_argument(
        "--peers", nargs="*", choices=PEERS, default=list(PEERS), help="libraries to compare in addition to Pinocchio"
    )
    parser.add_argument("--batch", type=int, default=4096, help="batch size in the tables")
    parser.add_argument("--max-batch", type=int, default=1 << 20, help="largest batch size in the curves")
    parser.add_argument("--max-links", type=int, default=1000, help="number of links of the longest chain")
    parser.add_argument(
        "--states", type=int, default=1 << 16, help="number of states at which float32 is compared with float64"
    )
    parser.add_argument(
        "--samples", type=int, default=1_000_000, help="number of samples of the log in the part identification"
    )
    parser.add_argument(
        "--devices", type=int, default=os.cpu_count(), help="number of CPU devices over which batches are sharded"
    )
    parser.add_argument("--budget", type=float, default=0.2, help="seconds for which a call is repeated in each turn")
    parser.add_argument("--turns", type=int, default=5, help="number of turns per library; the best median is reported")
    parser.add_argument(
        "--rounds", type=int, default=2, help="processes per setting in the part latency, run alternately"
    )
    parser.add_argument(
        "--longest", type=float, default=2.0, help="calls that take longer than this are not measured [s]"
    )
    parser.add_argument(
        "--memory", type=int, default=0, help="memory that a batch may use [GiB]; by default half of the free memory"
    )
    parser.add_argument("--json", metavar="FILE", help="write all records to this file")
    parser.add_argument("--plots", action="store_true", help="draw pictures and save them in --pictures")
    parser.add_argument("--pictures", metavar="FOLDER", help="folder for pictures; by default docs/pictures")
    parser.add_argument("--write", action="store_true", help="rewrite the generated parts of docs/benchmarks.md")
    options = parser.parse_args()
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser.error(f"unknown part {', '.join(unknown)}; the parts are {', '.join(PARTS)}")
    options.parts = options.parts or list(PARTS)
    return options


def merged(records: list[dict]) -> list[dict]:
    """The record with the shortest time of all rounds, for each measured quantity."""
    found: dict[tuple, dict] = {}
    for record in records:
        key = tuple(sorted((k, str(v)) for k, v in record.items() if k not in NOT_KEYS))
        if key not in found or record.get("seconds", 0) < found[key].get("seconds", 0):
            found[key] = record
    return list(found.values())


def _settings(part: str, options: argparse.Namespace):
    """The settings of each process of a part."""
    precisions = options.precisions[:1] if part in ONE_PRECISION else options.precisions
    if part in ("accuracy", "identification"):
        yield {"precision": "float64", "inline": False}
        return
    for precision in precisions:
        for inline in (False, True) if part == "latency" else (False,):
            yield {"precision": precision, "inline": inline}


def _run(part: str, options: argparse.Namespace, setting: dict, folder: str) -> dict | None:
    """The result of one process; None if it crashed, in which case its terminal output shows the reason."""
    counted = sorted({1, options.devices}) if part in ("throughput", "trees", "batches") else []
    peaks = [(setting["precision"], devices) for devices in counted]
    settings, result = os.path.join(folder, "settings.json"), os.path.join(folder, "result.json")
    with open(settings, "w", encoding="utf-8") as file:
        json.dump({**vars(options), **setting, "part": part, "peaks": peaks}, file)
    environment = {"JAX_COMPILATION_CACHE_DIR": folder, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", **os.environ}
    environment.pop("JAX_ENABLE_X64", None)
    environment.setdefault("NPROC", str(options.devices + 1))  # with fewer, batched LAPACK calls hang in jax 0.10
    environment["JAX_PLATFORMS"] = "cpu"
    shown = f"{setting['precision']}{', on the calling thread' if setting['inline'] else ''}"
    print(f"-- {part}, {shown}", file=sys.stderr, flush=True)
    if os.path.exists(result):
        os.unlink(result)
    command = [sys.executable, "-m", "tests.benchmarks.worker", settings, result]
    code = subprocess.run(command, env=environment, check=False).returncode
    if code or not os.path.exists(result):
        return None
    with open(result, encoding="utf-8") as file:
        return json.load(file)


def _with_peaks(before: dict | None, machine: dict) -> dict:
    """The machine as described by the first process, with the peaks measured by all processes."""
    if before is None:
        return machine
    known = {(p["precision"], p["devices"]): p for p in before["peaks"]}
    known |= {(p["precision"], p["devices"]): p for p in machine["peaks"]}
    return {**before, "peaks": list(known.values())}


def _show(part: str, records: list[dict], machine: dict | None, options: argparse.Namespace) -> None:
    """Print the tables of a part; if requested, draw plots and rewrite the page."""
    from . import pages
    from .tables import tables

    if machine is None:
        return
    made, pictures = tables(part, records), []
    if options.plots:
        from .plots import draw

        pictures = draw(part, records, Path(options.pictures or pages.PICTURES))
    print(f"\n# {part}: {PARTS[part]}\n\n{pages.about(machine)}\n")
    for table in made:
        print(table.text())
    for path in pictures:
        print(f"drawn: {path}")
    if options.write:
        pages.rewrite(part, pages.section(part, machine, made, pictures))


if __name__ == "__main__":
    sys.exit(main())

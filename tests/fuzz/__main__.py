"""Fuzzer: damage files of every kind that is read, and see that each is read right or refused with an error of the library.

Inputs are made from a seed, each from its own number, and read in worker processes with limits of time and memory, so that an
abort, a hang or a flood of memory is found and named too. Every input that shows a defect is kept in a folder of its own,
with the command that reads it again. An interruption ends the campaign with the figures until then.
"""

import argparse
import importlib.util
import math
import sys
import tempfile
import time
from pathlib import Path

from .campaign import Input, Result, draw, run
from .kinds import KINDS, NEEDS
from .report import Report
from .worker import DEFECTS


def main(arguments: list[str] | None = None) -> int:
    """0 where no input showed a defect, 1 where one did."""
    options = parse(arguments)
    kinds = [kind for kind in options.kinds if importlib.util.find_spec(NEEDS.get(kind, "sys"))]
    for kind in sorted(set(options.kinds) - set(kinds)):
        print(f"omitted: {kind}, which needs {NEEDS[kind]}")
    keep = Path(options.keep).absolute()
    inputs, count = draw(options.count, options.seed, kinds), options.count
    if options.replay:
        inputs, count = (
            iter([Input("replay", str(k), str(Path(f).absolute())) for k, f in enumerate(options.replay)]),
            1,
        )
    report, start = Report(), time.perf_counter()

    def told(result: Result) -> None:
        report.add(result)
        done = sum(report.total.values())
        minutes = (time.perf_counter() - start) / 60
        if result.status in DEFECTS or options.replay:
            print(
                f"{result.status}: {result.kept or result.input.folder or result.input.key}: {result.words}"[:500],
                flush=True,
            )
        if done % options.every == 0:
            print(f"[{done}/{count}, {minutes:.1f} min] {report.failed} defects", flush=True)

    with tempfile.TemporaryDirectory() as scratch:
        try:
            run(inputs, Path(scratch), options.jobs, options.limit, options.minutes, keep, told)
        except KeyboardInterrupt:
            print("interrupted")
    print(report.text())
    print(
        f"\n{sum(report.total.values())} inputs in {(time.perf_counter() - start) / 60:.1f} min, {report.failed} defects"
    )
    return int(report.failed > 0)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1000, help="inputs; a larger draw contains the smaller (1000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="worker processes (1)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no further input after this time")
    parser.add_argument(
        "--limit",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="for one input, ten times as much for a command (30)",
    )
    parser.add_argument(
        "--keep", default=".fuzz", metavar="FOLDER", help="where inputs that show a defect are kept (.fuzz)"
    )
    parser.add_argument(
        "--every", type=int, default=500, metavar="K", help="say how far it is after so many inputs (500)"
    )
    parser.add_argument("--replay", nargs="+", metavar="FOLDER", help="read kept inputs again instead")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
